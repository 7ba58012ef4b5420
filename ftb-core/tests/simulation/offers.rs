//! The holder of one agent's key offers a log to a root that has just started: what no honest agent
//! sends is refused, and the link ends.

use crate::events::{SPACE, Said, seal};
use crate::neighbour::{START, hello_of_b};
use ftb_core::epochs::EpochHistory;
use ftb_core::filter::Filter;
use ftb_core::frame::{
    Content, DedupRanges, EntryRef, Frame, Heartbeat, Hello, HistoryReply, Item, LogRange,
    NackCode, ReplicaStart, Replicate,
};
use ftb_core::ident::{OriginId, PublisherId, Rank};
use ftb_core::node::api::{
    ClientId, ClientInfo, Input, LinkId, Output, Start, SubscriptionId, ToClient,
};
use ftb_core::node::{Member, Node, NodeConfig};
use ftb_core::position::Epoch;
use ftb_core::sealed::Sealed;
use ftb_core::severity::Severity;
use ftb_core::time::Now;
use ftb_core::{ConfirmLevel, Run};

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
    /// The last that an agent came on.
    link: LinkId,
}

impl NewRoot {
    /// Agent `b` says that it has three entries.
    fn offered(epoch: Epoch) -> Self {
        let mut root = Self::started();
        root.comes(LINK, hello_with_log(epoch));
        root
    }

    fn started() -> Self {
        let members =
            ["a", "b", "c"].map(|host| Member { host: host.into(), address: host.into() });
        let config = NodeConfig::new("c", "a", OWN, members.to_vec());
        let node = Node::new(START, config, 1);
        let mut root = Self { node, now: START, out: Vec::new(), link: LINK };
        root.handle(Input::Tick);
        root
    }

    fn comes(&mut self, link: LinkId, hello: Hello) {
        self.link = link;
        self.handle(Input::Accepted { link, certified_hosts: None });
        self.handle(Input::Frame { link, frame: Frame::Hello(Box::new(hello)) });
    }

    /// What an agent hears that comes on another link: whether its log is wanted, or that it must
    /// wait.
    fn answer(&mut self, link: LinkId, hello: Hello) -> Result<bool, NackCode> {
        self.comes(link, hello);
        match self.node.poll_link(self.now, link, 1 << 16, &mut self.out) {
            Some(Frame::HelloAck(ack)) => Ok(ack.send_log),
            Some(Frame::HelloNack(nack)) => Err(nack.code),
            other => panic!("{other:?}"),
        }
    }

    /// Time passes; the child says only that it is there, and `frame`.
    fn beat(&mut self, for_ms: u64, frame: Option<&Frame>) {
        for _ in 0..for_ms / 500 {
            self.now.mono_ns += 500_000_000;
            self.say(Frame::Heartbeat(Heartbeat::default()));
            frame.into_iter().for_each(|frame| self.say(frame.clone()));
        }
    }

    fn role(&self) -> &'static str {
        let roles = self.out.iter().rev().find_map(|output| match output {
            Output::Transition(change) if change.machine == "role" => Some(change.to),
            _ => None,
        });
        roles.unwrap()
    }

    fn handle(&mut self, input: Input) {
        self.now.mono_ns += 1_000;
        self.node.handle(self.now, input, &mut self.out);
    }

    fn say(&mut self, frame: Frame) {
        self.handle(Input::Frame { link: self.link, frame });
    }

    fn counted(&self, name: &str) -> u64 {
        let counters = self.node.status().counters;
        counters.iter().find(|(counter, _)| *counter == name).unwrap().1
    }

    fn is_closed(&self) -> bool {
        self.out.iter().any(|output| match output {
            Output::CloseLink { link, .. } => *link == self.link,
            _ => false,
        })
    }
}

/// What agent `b` says that has three entries of a log.
fn hello_with_log(epoch: Epoch) -> Hello {
    let log_range = Some(LogRange { after: 0.into(), until: 3.into() });
    Hello { epochs: epochs(epoch), commit_index: 3.into(), log_range, ..hello_of_b() }
}

fn start() -> Frame {
    start_after(0)
}

fn start_after(after: u64) -> Frame {
    Frame::ReplicaStart(ReplicaStart { epochs: epochs(EPOCH), after: after.into(), copy: 0 })
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

#[test]
fn a_log_that_is_offered_and_does_not_come_holds_up_a_new_root_for_seconds() {
    let mut root = NewRoot::offered(EPOCH);
    root.beat(4_500, None);
    assert_eq!((root.role(), root.is_closed()), ("installing", false));
    root.beat(1_000, None);
    assert_eq!((root.role(), root.is_closed()), ("awaiting-log", true));
    assert_eq!(root.counted("misbehaved"), 1);
    // It does not begin again, and another agent can bring the log.
    assert_eq!(root.answer(LinkId(10), hello_with_log(EPOCH)), Err(NackCode::Busy));
    let of_c = Hello { host: "c".into(), rank: Some(Rank(2)), ..hello_with_log(EPOCH) };
    assert_eq!(root.answer(LinkId(11), Hello { origin: OriginId(3), ..of_c }), Ok(true));
}

#[test]
fn an_agent_whose_log_did_not_come_may_offer_one_after_ten_minutes() {
    let mut root = NewRoot::offered(EPOCH);
    root.beat(7_000, None);
    assert_eq!(root.role(), "root", "no other agent has brought one");
    assert_eq!(root.answer(LinkId(10), hello_with_log(EPOCH)), Ok(false));
    root.beat(590_000, None);
    assert_eq!(root.answer(LinkId(11), hello_with_log(EPOCH)), Ok(false));
    root.beat(10_000, None);
    assert_eq!(root.answer(LinkId(12), hello_with_log(EPOCH)), Ok(true));
    // It leads already: it is not held up for longer.
    assert_eq!(root.role(), "installing");
    root.beat(6_000, None);
    assert_eq!(root.role(), "root");
}

#[test]
fn a_log_that_drips_ends_the_offer_after_the_time_for_a_whole_one() {
    let mut root = NewRoot::offered(EPOCH);
    root.say(start());
    let nothing = Frame::Replicate(entries(Vec::new(), 0, false));
    root.beat(45_000, Some(&nothing));
    assert_eq!((root.role(), root.is_closed()), ("installing", false));
    root.beat(2_000, Some(&nothing));
    assert!(root.is_closed());
}

#[test]
fn a_child_that_breaks_off_again_and_again_holds_up_the_root_for_one_log() {
    let mut root = NewRoot::started();
    let mut held_ms = 0;
    for link in (20..200).map(LinkId) {
        root.comes(link, hello_with_log(EPOCH));
        if root.role() != "installing" {
            break;
        }
        root.beat(2_000, None);
        held_ms += 2_000;
        root.handle(Input::LinkClosed { link, error: "it has gone".to_owned() });
    }
    assert!((20_000..50_000).contains(&held_ms), "{held_ms} ms");
}

const CLIENT: ClientId = ClientId(1);

impl NewRoot {
    /// A root that has installed a log whose first ten entries were not in it any more, and what it
    /// asks the child for a subscription to all of them.
    fn asking() -> (Self, u64) {
        let mut root = Self::started();
        let log_range = Some(LogRange { after: 10.into(), until: 13.into() });
        let commit_index = 13.into();
        root.comes(LINK, Hello { commit_index, log_range, ..hello_with_log(EPOCH) });
        root.say(start_after(10));
        let items = (11..=13).map(|index| entry(index, event(index))).collect();
        root.say(Frame::Replicate(entries(items, 13, true)));
        assert_eq!(root.counted("logs_installed"), 1);
        let (name, job_id) = ("test".to_owned(), String::new());
        let publisher = publisher(1);
        let info = ClientInfo { uid: 1, gid: 1, pid: 1, name, job_id, publisher };
        root.handle(Input::ClientAttached { client: CLIENT, info });
        root.handle(Input::Subscribe {
            client: CLIENT,
            subscription: SubscriptionId(1),
            filter: Filter::everything().into(),
            start: Start::SinceNs(0),
        });
        let (node, now, out) = (&mut root.node, root.now, &mut root.out);
        let mut frames = std::iter::from_fn(|| node.poll_link(now, LINK, 1 << 16, out));
        let asked = frames.find_map(|frame| match frame {
            Frame::HistoryRequest(query) => Some(query.id),
            _ => None,
        });
        let asked = asked.expect("the child is asked");
        (root, asked)
    }

    /// The indices of the events that the subscription has got, and how many gaps.
    fn read(&mut self) -> (Vec<u64>, usize) {
        let (node, now, out) = (&mut self.node, self.now, &mut self.out);
        let messages = std::iter::from_fn(|| node.poll_client(now, CLIENT, 1 << 16, out));
        let (mut read, mut gaps) = (Vec::new(), 0);
        for message in messages {
            match message {
                ToClient::Deliver { items, .. } => {
                    for (first, run) in items {
                        read.extend((0..run.count() as u64).map(|at| (first + at).get()));
                    }
                }
                ToClient::Gap { .. } => gaps += 1,
                _ => {}
            }
        }
        (read, gaps)
    }
}

fn older(id: u64, items: Vec<Item>, covered: u64) -> Frame {
    Frame::HistoryReply(HistoryReply { id, items, covered: covered.into(), last: false })
}

#[test]
fn what_a_child_has_of_a_log_is_delivered() {
    let (mut root, id) = NewRoot::asking();
    root.say(older(id, vec![entry(9, event(9)), entry(10, event(10))], 10));
    assert_eq!(root.read(), (vec![9, 10, 11, 12, 13], 0));
    assert_eq!(root.counted("claims_refused"), 0);
}

#[test]
fn older_events_that_cannot_be_end_the_link_and_make_no_reader_deaf() {
    let bad = [
        (Vec::new(), 1 << 40, "it stands before all events to come"),
        (vec![entry(9, event(9)), entry(8, event(8))], 10, "they do not rise"),
        (vec![entry(9, event(9)), entry(13, event(10))], 10, "they end elsewhere"),
        (vec![entry(9, event(9))], 14, "more than is logged"),
    ];
    for (items, covered, what) in bad {
        let (mut root, id) = NewRoot::asking();
        root.say(older(id, items, covered));
        assert_eq!(root.counted("claims_refused"), 1, "{what}");
        assert!(root.is_closed(), "{what}");
        let said =
            Said { severity: Severity::Info, space: SPACE, name: "X", host: "a", payload: 1 };
        let events = Run::from(seal(publisher(1), 1, &said));
        root.handle(Input::Publish { client: CLIENT, events, confirm: ConfirmLevel::Memory });
        assert_eq!(root.read(), (vec![11, 12, 13, 14], 1), "{what}");
    }
}
