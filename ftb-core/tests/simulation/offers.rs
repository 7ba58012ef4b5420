//! The holder of one agent's key offers a log to a root that has just started: what no honest agent
//! sends is refused, and the link ends.

use crate::events::{SPACE, Said, seal};
use crate::neighbour::{START, hello_of_b};
use ftb_core::Run;
use ftb_core::epochs::EpochHistory;
use ftb_core::frame::{
    Content, DedupRanges, EntryRef, Frame, Hello, Item, LogRange, NackCode, ReplicaStart, Replicate,
};
use ftb_core::ident::{OriginId, PublisherId};
use ftb_core::node::api::{Input, LinkId, Output};
use ftb_core::node::{Member, Node, NodeConfig};
use ftb_core::position::Epoch;
use ftb_core::sealed::Sealed;
use ftb_core::severity::Severity;
use ftb_core::time::Now;

const LINK: LinkId = LinkId(9);
const OWN: OriginId = OriginId(1);
const EPOCH: Epoch = Epoch { number: 3, root: OriginId(2) };

fn epochs(epoch: Epoch) -> EpochHistory {
    let mut epochs = EpochHistory::new();
    epochs.open(epoch, 1.into(), false);
    epochs
}

fn publisher(token: u64) -> PublisherId {
    PublisherId { account: 1, token }
}

/// A root that has just started, and what came of the offer of an agent.
struct NewRoot {
    node: Node,
    now: Now,
    out: Vec<Output>,
}

impl NewRoot {
    /// Agent `b` says that it has three entries.
    fn offered(epoch: Epoch) -> Self {
        let members =
            ["a", "b", "c"].map(|host| Member { host: host.into(), address: host.into() });
        let config = NodeConfig::new("c", "a", OWN, members.to_vec());
        let mut root = Self { node: Node::new(START, config, 1), now: START, out: Vec::new() };
        root.handle(Input::Tick);
        root.handle(Input::Accepted { link: LINK, certified_hosts: None });
        let log_range = Some(LogRange { after: 0.into(), until: 3.into() });
        let hello =
            Hello { epochs: epochs(epoch), commit_index: 3.into(), log_range, ..hello_of_b() };
        root.say(Frame::Hello(Box::new(hello)));
        root
    }

    fn handle(&mut self, input: Input) {
        self.now.mono_ns += 1_000;
        self.node.handle(self.now, input, &mut self.out);
    }

    fn say(&mut self, frame: Frame) {
        self.handle(Input::Frame { link: LINK, frame });
    }

    fn counted(&self, name: &str) -> u64 {
        let counters = self.node.status().counters;
        counters.iter().find(|(counter, _)| *counter == name).unwrap().1
    }

    fn is_closed(&self) -> bool {
        let closed =
            |output: &Output| matches!(output, Output::CloseLink { link, .. } if *link == LINK);
        self.out.iter().any(closed)
    }
}

fn start() -> Frame {
    Frame::ReplicaStart(ReplicaStart { epochs: epochs(EPOCH), after: 0.into(), copy: 0 })
}

fn dedup(publishers: &[(u64, &[(u64, u64)])]) -> Frame {
    let publishers = publishers.iter().map(|(token, ranges)| (publisher(*token), ranges.to_vec()));
    Frame::DedupRanges(DedupRanges { publishers: publishers.collect() })
}

fn entry(index: u64, event: Sealed) -> Item {
    Item { index: index.into(), content: Content::Events(Run::from(event)) }
}

fn event(seq: u64) -> Sealed {
    let (severity, space, name, host) = (Severity::Info, SPACE, "X", "b");
    seal(publisher(5), seq, &Said { severity, space, name, host, payload: 1 })
}

fn entries(items: Vec<Item>, until: u64, complete: bool) -> Replicate {
    Replicate {
        epoch: EPOCH,
        items,
        entry_refs: Vec::new(),
        until: until.into(),
        committed: until.into(),
        complete,
        refs_until: 0,
    }
}

fn whole() -> Vec<Item> {
    (1..=3).map(|seq| entry(seq, event(seq))).collect()
}

#[test]
fn a_log_that_an_honest_agent_offers_is_installed() {
    let mut root = NewRoot::offered(EPOCH);
    let ranges = dedup(&[(4, &[(1, 9)]), (5, &[(1, 1), (3, 3)])]);
    let all = Frame::Replicate(entries(whole(), 3, true));
    for frame in [start(), ranges, dedup(&[(6, &[(1, 2)])]), all] {
        root.say(frame);
    }
    assert!(!root.is_closed());
    assert_eq!((root.counted("logs_installed"), root.counted("misbehaved")), (1, 0));
}

#[test]
fn dedup_ranges_that_no_agent_keeps_end_the_offer() {
    let many: Vec<(u64, u64)> = (0..513).map(|at| (3 * at + 1, 3 * at + 1)).collect();
    let bad = [
        vec![start(), dedup(&[(5, &[(3, 1)])])],
        vec![start(), dedup(&[(5, &[(5, 9), (1, 2)])])],
        vec![start(), dedup(&[(5, &[(1, 4), (5, 9)])])],
        vec![start(), dedup(&[(5, &many)])],
        vec![start(), dedup(&[(5, &[(1, 1)])]), dedup(&[(4, &[(1, 1)])])],
        vec![start(), dedup(&[(5, &[(1, 1)]), (5, &[(3, 3)])])],
        vec![start(), Frame::Replicate(entries(whole(), 3, false)), dedup(&[(5, &[(1, 1)])])],
    ];
    for (case, frames) in bad.into_iter().enumerate() {
        let mut root = NewRoot::offered(EPOCH);
        frames.into_iter().for_each(|frame| root.say(frame));
        assert_eq!(root.counted("misbehaved"), 1, "case {case}");
        assert!(root.is_closed(), "case {case}");
    }
    // As many publishers as the root keeps, and one more.
    let mut root = NewRoot::offered(EPOCH);
    root.say(start());
    for part in 0..65 {
        let ranges: &[(u64, u64)] = &[(1, 1)];
        let tokens = part * 1_024..(part + 1) * 1_024;
        root.say(dedup(&tokens.map(|token| (token, ranges)).collect::<Vec<_>>()));
        assert_eq!(root.counted("misbehaved"), u64::from(part == 64), "part {part}");
    }
}

#[test]
fn entries_that_no_log_has_end_the_offer() {
    let named = EntryRef { index: 1.into(), batch: 1, skip: 0, count: 1 };
    let bad = [
        entries(vec![entry(2, event(1)), entry(1, event(2))], 3, false),
        entries(vec![entry(4, event(1))], 3, false),
        Replicate { entry_refs: vec![named], ..entries(Vec::new(), 3, false) },
    ];
    for (case, batch) in bad.into_iter().enumerate() {
        let mut root = NewRoot::offered(EPOCH);
        root.say(start());
        root.say(Frame::Replicate(batch));
        assert_eq!(root.counted("misbehaved"), 1, "case {case}");
        assert!(root.is_closed(), "case {case}");
        assert_eq!(root.counted("logs_installed"), 0, "case {case}");
    }
}

#[test]
fn a_log_that_is_not_the_one_of_the_hello_is_not_installed() {
    let mut root = NewRoot::offered(EPOCH);
    root.say(start());
    root.say(start());
    assert_eq!(root.counted("misbehaved"), 1, "it begins twice");
    let mut root = NewRoot::offered(EPOCH);
    let lower = epochs(Epoch { number: 2, ..EPOCH });
    root.say(Frame::ReplicaStart(ReplicaStart { epochs: lower, after: 0.into(), copy: 0 }));
    assert_eq!(root.counted("misbehaved"), 1, "a lower epoch");
    // Shorter than the one for which the root gave way.
    let mut root = NewRoot::offered(EPOCH);
    root.say(start());
    root.say(Frame::Replicate(entries(vec![entry(1, event(1))], 1, true)));
    assert_eq!((root.counted("logs_installed"), root.counted("installs_refused")), (0, 1));
}

#[test]
fn an_epoch_of_the_new_root_that_it_has_not_opened_is_refused() {
    let mut root = NewRoot::offered(Epoch { number: 3, root: OWN });
    assert!(root.is_closed());
    let answer = root.node.poll_link(root.now, LINK, 1 << 16, &mut root.out);
    let Some(Frame::HelloNack(nack)) = answer else { panic!("{answer:?}") };
    assert_eq!(nack.code, NackCode::Epoch);
}
