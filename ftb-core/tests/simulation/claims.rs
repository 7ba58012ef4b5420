//! A hostile child that holds one agent's key: whatever it says of hosts that are not below it is
//! refused, counted and reported; what honest agents say when they move counts.

use crate::events::{KEY, SPACE, Said, counted_mark, seal, seal_stated};
use crate::neighbour::{START, hello_of_b};
use crate::ops::Op;
use crate::world::{Setup, World, boot};
use ftb_core::condition::{Condition, Provenance, Subject, Truth};
use ftb_core::frame::{
    Close, DynamicMember, Frame, Heartbeat, Hello, MemberReport, NackCode, UpBatch, UpItem,
    members_digest,
};
use ftb_core::ident::{OriginId, PublisherId, Rank};
use ftb_core::node::api::{Gap, GapReason, Input, LinkId, MemberState, Output};
use ftb_core::node::{Member, Node, NodeConfig};
use ftb_core::position::{Epoch, Position};
use ftb_core::protocol::FEATURES;
use ftb_core::sealed::Sealed;
use ftb_core::severity::Severity;
use ftb_core::time::Now;
use ftb_core::trace::{TraceRequest, TraceSubject};
use std::sync::atomic::{AtomicU64, Ordering};

/// By rank; `a` is the acting root. The hostile agent is `b`, `c` a child of `a` as well, `d` and
/// `e` are below `c`.
const HOSTS: [&str; 5] = ["a", "b", "c", "d", "e"];
pub const SECOND: u64 = 1_000_000_000;

fn link(rank: u32) -> LinkId {
    LinkId(10 + u64::from(rank))
}

fn origin(rank: u32) -> OriginId {
    OriginId(1 + u64::from(rank))
}

pub struct Parent {
    node: Node,
    pub now: Now,
    out: Vec<Output>,
    epoch: Epoch,
    attempts: u64,
}

impl Parent {
    /// The acting root, with `b` and `c` below it.
    pub fn new() -> Self {
        let members = HOSTS.map(|host| Member { host: host.into(), address: host.into() });
        let mut config = NodeConfig::new("c", "a", origin(0), members.to_vec());
        config.counted_mark = Some(counted_mark());
        let node = Node::new(START, config, 1);
        let (out, epoch) = (Vec::new(), Epoch::ZERO);
        let mut parent = Self { node, now: START, out, epoch, attempts: 0 };
        // Until it is sure that no agent has an older log.
        while parent.now.mono_ns < START.mono_ns + 10 * SECOND {
            parent.pass(SECOND / 10, &[]);
        }
        parent.greet(1);
        parent.greet(2);
        for (rank, attempt) in [(3, 1), (4, 1)] {
            let report = report(rank, 2, attempt, MemberState::Up);
            parent.say(2, Frame::Members(vec![report]));
        }
        parent
    }

    pub fn handle(&mut self, input: Input) {
        self.now.mono_ns += 1_000;
        self.node.handle(self.now, input, &mut self.out);
    }

    pub fn say(&mut self, rank: u32, frame: Frame) {
        self.handle(Input::Frame { link: link(rank), frame });
    }

    /// A hello of the agent with that rank.
    pub fn hello_of(&mut self, rank: u32) -> Hello {
        self.attempts += 1;
        Hello {
            host: HOSTS[rank as usize].into(),
            rank: Some(Rank(rank)),
            origin: origin(rank),
            wall_ns: self.now.wall_ns,
            attempt: 10 + self.attempts,
            members_digest: members_digest(HOSTS.into_iter()),
            ..hello_of_b()
        }
    }

    fn hello(&mut self, rank: u32) {
        let hello = self.hello_of(rank);
        self.connect(rank, hello);
        let frames = self.frames(rank);
        let ack = frames.iter().find_map(|frame| match frame {
            Frame::HelloAck(ack) => Some(ack.tree_state.epochs.head()),
            _ => None,
        });
        self.epoch = ack.unwrap_or_else(|| panic!("{frames:?}"));
    }

    /// An agent wants to be a child.
    pub fn connect(&mut self, rank: u32, hello: Hello) {
        self.connect_as(rank, None, hello);
    }

    /// An agent wants to be a child, with a certificate for that host.
    pub fn connect_as(&mut self, rank: u32, host: Option<&str>, hello: Hello) {
        let certified_hosts = host.map(|host| vec![host.to_owned()]);
        self.handle(Input::Accepted { link: link(rank), certified_hosts });
        self.say(rank, Frame::Hello(Box::new(hello)));
    }

    fn greet(&mut self, rank: u32) {
        self.hello(rank);
        self.say(rank, Frame::Resume { epoch: self.epoch, after: 0.into() });
    }

    fn frames(&mut self, rank: u32) -> Vec<Frame> {
        let (node, now, out) = (&mut self.node, self.now, &mut self.out);
        std::iter::from_fn(|| node.poll_link(now, link(rank), 1 << 16, out)).collect()
    }

    /// Time passes; these children answer meanwhile.
    pub fn pass(&mut self, ns: u64, alive: &[u32]) {
        let until = self.now.mono_ns + ns;
        while self.now.mono_ns < until {
            self.now.mono_ns = until.min(self.now.mono_ns + SECOND / 10);
            self.now.wall_ns = START.wall_ns + self.now.mono_ns;
            self.handle(Input::Tick);
            for rank in alive {
                self.beat(*rank, 0);
                self.frames(*rank);
            }
        }
    }

    /// A heartbeat of a child whose clock is that much ahead.
    pub fn beat(&mut self, rank: u32, ahead_ns: u64) {
        let wall_ns = self.now.wall_ns + ahead_ns;
        self.say(rank, Frame::Heartbeat(Heartbeat { wall_ns, ..Heartbeat::default() }));
    }

    /// A heartbeat of a child with that member list.
    pub fn beat_with(&mut self, rank: u32, members_digest: u64) {
        let wall_ns = self.now.wall_ns;
        let beat = Heartbeat { wall_ns, members_digest, ..Heartbeat::default() };
        self.say(rank, Frame::Heartbeat(beat));
    }

    /// A child asks for another agent, which is not below it.
    pub fn claim(&mut self, over: u32, of: u32) {
        self.say(over, Frame::TreeQuery { origin: origin(of), query: 7 });
    }

    /// Whether the link of a child was ended.
    fn is_closed(&self, rank: u32) -> bool {
        self.out.iter().any(|output| {
            matches!(output, Output::CloseLink { link: closed, .. } if *closed == link(rank))
        })
    }

    /// A child has heard of that epoch.
    fn beat_of_epoch(&mut self, rank: u32, epoch_seen: u64) {
        let wall_ns = self.now.wall_ns;
        self.say(rank, Frame::Heartbeat(Heartbeat { wall_ns, epoch_seen, ..Heartbeat::default() }));
    }

    /// An event of `host` in a batch of an agent, over the link of another.
    fn send(&mut self, over: u32, of: u32, host: &str) -> u64 {
        self.send_large(over, of, host, 1)
    }

    /// The same, with a payload of that many bytes.
    fn send_large(&mut self, over: u32, of: u32, host: &str, payload: usize) -> u64 {
        let publisher = PublisherId { account: 1, token: self.attempts };
        let said = Said { severity: Severity::Info, space: SPACE, name: "X", host, payload };
        self.send_event(over, of, seal(publisher, 1, &said))
    }

    fn send_event(&mut self, over: u32, of: u32, event: Sealed) -> u64 {
        let before = self.counted("appended");
        self.attempts += 1;
        let items = vec![UpItem::Events(event.into())];
        let (origin, run) = (origin(of), self.attempts);
        let (base, first) = (1.into(), 1.into());
        self.say(over, Frame::Up(UpBatch { origin, run, base, first, wants_disk: false, items }));
        self.counted("appended") - before
    }

    fn counted(&self, name: &str) -> u64 {
        let counters = self.node.status().counters;
        counters.iter().find(|(counter, _)| *counter == name).unwrap().1
    }

    pub fn announced(&self, name: &str) -> Vec<Vec<(&'static str, String)>> {
        let said = self.out.iter().filter_map(|output| match output {
            Output::Announce(event) if event.name == name => Some(event.tags.clone()),
            _ => None,
        });
        said.collect()
    }

    fn state_of(&mut self, host: &str) -> (MemberState, Option<Rank>) {
        let query = ftb_core::node::api::QueryId(1);
        let deadline_ns = self.now.mono_ns + SECOND;
        self.handle(Input::QueryTree { query, deadline_ns });
        let tree = self.out.iter().rev().find_map(|output| match output {
            Output::Tree { nodes, .. } => nodes.iter().find(|node| node.host == host),
            _ => None,
        });
        tree.map(|node| (node.state, node.parent)).unwrap()
    }

    /// One claim was refused, and the event names the hostile agent and the host.
    fn assert_refused(&mut self, what: &str, about: &str) {
        assert_eq!(self.counted("claims_refused"), 1, "{what}");
        let tags = self.announced("FTB_CLAIM_REFUSED");
        let named = vec![("host", "b".into()), ("by", "a".into()), ("about", about.to_owned())];
        assert_eq!(tags, [named], "{what}");
    }
}

fn report(rank: u32, parent: u32, attempt: u64, state: MemberState) -> MemberReport {
    MemberReport {
        rank: Rank(rank),
        host: HOSTS.get(rank as usize).copied().unwrap_or_default().into(),
        address: String::new(),
        origin: origin(rank).0,
        attempt,
        state,
        parent: Some(Rank(parent)),
        since_ns: START.wall_ns,
        features: FEATURES,
    }
}

const UP: MemberState = MemberState::Up;

#[test]
fn events_of_agents_below_count_and_those_of_others_are_refused() {
    let mut parent = Parent::new();
    assert_eq!(parent.send(2, 3, "d"), 1, "an agent below");
    assert_eq!(parent.send(1, 1, "b"), 1, "the child itself");
    assert_eq!(parent.counted("claims_refused"), 0);
    for (of, about) in [(3, "d"), (2, "an unknown agent, incarnation 0000000000000003")] {
        let mut parent = Parent::new();
        assert_eq!(parent.send(1, of, HOSTS[of as usize]), 0, "{about}");
        assert_eq!(parent.counted("events_not_below"), 1);
        if of == 3 {
            // Its way may be another one now: the time for that passes first.
            parent.pass(7 * SECOND, &[1, 2]);
            assert_eq!(parent.send(1, of, "d"), 0);
        }
        parent.assert_refused("an event of another agent", about);
        assert!(!parent.is_closed(1), "the child may be honest, and an agent run twice");
    }
    // The host of an event is not that of its agent.
    let mut parent = Parent::new();
    parent.pass(601 * SECOND, &[1, 2]);
    assert_eq!(parent.send(1, 1, "c"), 0);
    parent.assert_refused("an event with another host", "c");
    assert!(parent.is_closed(1));
}

/// Another component gave the agent of `x` another rank. When it is part of this one, its root
/// reports that the agent has left there: the agent keeps the rank and the place that it has.
#[test]
fn a_rank_of_another_component_takes_no_agent_from_its_place() {
    let mut parent = Parent::new();
    let of_x = |rank, parent, attempt, state| MemberReport {
        rank: Rank(Rank::UNLISTED_FIRST.0 + rank),
        host: "x".into(),
        origin: origin(8).0,
        ..report(8, parent, attempt, state)
    };
    parent.say(2, Frame::DynamicMembers(vec![DynamicMember { host: "x".into(), rank: None }]));
    parent.say(2, Frame::Members(vec![of_x(0, 2, 6, UP)]));
    assert_eq!(parent.send(2, 8, "x"), 1);
    for state in [MemberState::Moved, MemberState::Lost, MemberState::Absent] {
        parent.say(1, Frame::Members(vec![of_x(3, 1, 4, state)]));
    }
    assert_eq!(parent.send(2, 8, "x"), 1);
    assert_eq!(parent.counted("events_not_below"), 0);
}

/// A child says that the incarnation of another host is that of an agent below it, or that such an
/// agent has come to it: the events of that host count meanwhile.
#[test]
fn a_child_takes_no_incarnation_from_another() {
    for forged in [report(9, 1, 1_000, UP), report(4, 1, 1_000, UP)] {
        let mut parent = Parent::new();
        let forged = MemberReport { origin: origin(3).0, ..forged };
        parent.say(1, Frame::Members(vec![forged]));
        assert_eq!(parent.send(2, 3, "d"), 1);
        assert_eq!(parent.counted("events_not_below"), 0);
    }
}

/// What counted in one log may not count in another: the root decides that.
#[test]
fn the_mark_of_a_log_forces_no_statement_upon_another() {
    let mut parent = Parent::new();
    let state = |token, truth, is_kept| {
        let publisher = PublisherId { account: 1, token };
        let (severity, space) = (Severity::Error, SPACE);
        let said = Said { severity, space, name: "X", host: "b", payload: 1 };
        let condition = Condition { is_kept, ..Condition::new(KEY, truth) };
        seal_stated(publisher, 1, &said, Some((condition, Provenance::direct(origin(1)))))
    };
    assert_eq!(parent.send_event(1, 1, state(50, Truth::True, true)), 1);
    let clear = state(51, Truth::False, false);
    let forced = (counted_mark().put)(clear.as_ref()).unwrap();
    assert_eq!(parent.send_event(1, 1, forced), 1);
    let row = parent.node.conditions().get(&Subject::new("b", "", KEY)).cloned();
    assert_eq!(row.map(|row| row.truth), Some(Truth::True), "only by hand");
}

#[test]
fn after_a_merge_an_agent_re_proposes_events_of_other_hosts() {
    let mut parent = Parent::new();
    assert_eq!(parent.send(1, 1, "c"), 1, "its link is new");
    assert_eq!(parent.counted("events_of_other_logs"), 1);
    assert_eq!(parent.counted("claims_refused"), 0);
}

#[test]
fn reports_of_agents_elsewhere_are_refused_whatever_they_say() {
    let forged = |host: &str, rank, attempt, state| MemberReport {
        host: host.into(),
        ..report(rank, 1, attempt, state)
    };
    let later = 1_000;
    let cases = [
        // A child of the parent, attached, and one that is below it.
        (forged("c", 2, later, MemberState::Dead), "c", true),
        (forged("c", 2, later, UP), "c", true),
        (forged("d", 3, later, MemberState::Lost), "d", true),
        (forged("d", 3, later, UP), "d", true),
        // Under the rank of an agent that is not there.
        (forged("c", 9, later, MemberState::Dead), "c", true),
        (forged("d", 9, later, UP), "d", true),
        // Itself, with the name of another; the parent.
        (forged("c", 1, later, MemberState::Dead), "c", false),
        (forged("a", 0, later, UP), "a", false),
        (forged("a", 9, later, UP), "a", false),
    ];
    for (forged, about, waits) in cases {
        let mut parent = Parent::new();
        let (before_c, before_d) = (parent.state_of("c"), parent.state_of("d"));
        let what = format!("{forged:?}");
        parent.say(1, Frame::Members(vec![forged]));
        if waits {
            assert_eq!(parent.counted("claims_refused"), 0, "{what}");
            parent.pass(7 * SECOND, &[1, 2]);
        }
        parent.assert_refused(&what, about);
        assert_eq!((parent.state_of("c"), parent.state_of("d")), (before_c, before_d), "{what}");
        assert!(parent.announced("FTB_NODE_DEAD").is_empty(), "{what}");
        // It stays refused, and is not reported again.
        parent.pass(20 * SECOND, &[1, 2]);
        parent.assert_refused(&what, about);
    }
}

#[test]
fn a_linked_agent_counts_as_attached() {
    let mut parent = Parent::new();
    parent.say(2, Frame::Close(Close { stopping: false, reason: "moves".into() }));
    parent.hello(2);
    parent.say(1, Frame::Members(vec![report(2, 1, 1_000, UP)]));
    parent.pass(7 * SECOND, &[1, 2]);
    parent.assert_refused("a report of an agent that has not resumed yet", "c");
}

#[test]
fn routes_and_joins_of_agents_elsewhere_do_not_count() {
    for (of, about) in [(2, "c"), (3, "d"), (0, "a")] {
        let mut parent = Parent::new();
        let answered = parent.frames(1).len();
        parent.say(1, Frame::TreeQuery { origin: origin(of), query: 7 });
        parent.assert_refused("a question of another agent", about);
        let answers = parent.frames(1);
        let answered_it = answers.iter().any(|f| matches!(f, Frame::TreeAnswer { .. }));
        assert!(!answered_it, "{answered}: {answers:?}");
    }
    // Hosts that are listed have no need to join: they may be listed since the child said so.
    let mut parent = Parent::new();
    parent.frames(1);
    for host in ["a", "c", "d"] {
        let join = DynamicMember { host: host.into(), rank: None };
        parent.say(1, Frame::DynamicMembers(vec![join]));
    }
    let answers = parent.frames(1);
    assert!(!answers.iter().any(|f| matches!(f, Frame::DynamicMembers(_))), "{answers:?}");
    assert_eq!(parent.counted("claims_refused"), 0);
    parent.say(1, Frame::DynamicMembers(vec![DynamicMember { host: "x".into(), rank: None }]));
    let answers = parent.frames(1);
    assert!(answers.iter().any(|f| matches!(f, Frame::DynamicMembers(_))), "{answers:?}");
}

/// A claim that is said again waits since it was said first.
#[test]
fn a_claim_that_is_repeated_is_refused_like_another() {
    let mut parent = Parent::new();
    for attempt in 1_000..1_010 {
        parent.say(1, Frame::Members(vec![report(3, 1, attempt, UP)]));
        parent.pass(SECOND, &[1, 2]);
    }
    parent.assert_refused("a claim that is repeated", "d");
}

/// Events that were dropped long ago do not count against an agent that comes now.
#[test]
fn an_agent_that_moves_is_not_late_for_what_was_dropped_before() {
    let mut parent = Parent::new();
    assert_eq!(parent.send(1, 3, "d"), 0);
    parent.pass(60 * SECOND, &[1, 2]);
    parent.say(1, Frame::Members(vec![report(3, 1, 1_000, UP)]));
    assert_eq!(parent.send(1, 3, "d"), 0);
    assert_eq!(parent.counted("claims_refused"), 0);
    parent.frames(1);
    parent.say(2, Frame::Members(vec![report(3, 2, 1, MemberState::Moved)]));
    assert!(parent.frames(1).iter().any(|frame| matches!(frame, Frame::Resend)));
    assert_eq!(parent.send(1, 3, "d"), 1);
}

/// One child says more than there is room for: another one is heard all the same.
#[test]
fn a_child_takes_no_room_from_another() {
    let mut parent = Parent::new();
    let claim = |number: u32| {
        let report = report(100 + number, 1, 1_000, UP);
        MemberReport { host: "c".into(), origin: 1_000 + u64::from(number), ..report }
    };
    parent.say(1, Frame::Members((0..4_100).map(claim).collect()));
    assert_eq!(parent.counted("reports_held"), 4_096);
    assert_eq!(parent.counted("claims_refused"), 4);
    // `e`, which is below `c`, is said to be below `d`, a child by now.
    parent.greet(3);
    parent.say(3, Frame::Members(vec![report(4, 3, 1_000, UP)]));
    assert_eq!(parent.counted("reports_held"), 4_097);
    parent.say(2, Frame::Members(vec![report(4, 2, 1, MemberState::Moved)]));
    assert_eq!(parent.state_of("e"), (UP, Some(Rank(3))));
    assert_eq!(parent.counted("claims_refused"), 5, "the hostile child lost one");
}

/// `c` leaves for a place below `b`, and `d` and `e` go with it. The report of its new place comes
/// before the end of its link: it waits, and counts.
#[test]
fn a_subtree_that_moves_is_believed_when_it_has_left() {
    let mut parent = Parent::new();
    let moved = [report(2, 1, 1_000, UP), report(3, 2, 1, UP), report(4, 2, 1, UP)];
    parent.say(1, Frame::Members(moved.to_vec()));
    assert_eq!(parent.counted("reports_held"), 3);
    assert_eq!(parent.send(1, 3, "d"), 0, "its report does not count yet");
    parent.frames(1);
    parent.say(2, Frame::Close(Close { stopping: false, reason: "moves".into() }));
    assert_eq!(parent.state_of("c"), (UP, Some(Rank(1))));
    assert_eq!(parent.state_of("d"), (UP, Some(Rank(2))));
    let asked = parent.frames(1).iter().any(|frame| matches!(frame, Frame::Resend));
    assert!(asked, "what was dropped must come again");
    for (of, host) in [(2, "c"), (3, "d"), (4, "e")] {
        assert_eq!(parent.send(1, of, host), 1, "{host}");
    }
    assert_eq!(parent.counted("claims_refused"), 0);
    assert!(parent.announced("FTB_NODE_SUSPECT").is_empty());
}

/// Each epoch makes all agents say anew where they resume.
#[test]
fn a_child_that_raises_the_epoch_again_and_again_is_refused() {
    let mut parent = Parent::new();
    let (before, first) = (parent.counted("epochs"), parent.epoch.number);
    for epoch in 1..=40 {
        if !parent.is_closed(1) {
            parent.beat_of_epoch(1, first + epoch);
        }
    }
    assert_eq!(parent.counted("epochs") - before, 4);
    parent.assert_refused("epochs without an end", "b");
    assert!(parent.is_closed(1));
    // It comes again, and must wait as well.
    let hello = Hello { epoch_seen: first + 100, ..parent.hello_of(1) };
    parent.connect(1, hello);
    assert_eq!(parent.counted("epochs") - before, 4);
    let is_put_off =
        |frame: &Frame| matches!(frame, Frame::HelloNack(nack) if nack.code == NackCode::Busy);
    let frames = parent.frames(1);
    assert!(frames.iter().any(is_put_off), "{frames:?}");
    // Merges come one after the other.
    parent.pass(60 * SECOND, &[2]);
    let hello = Hello { epoch_seen: first + 100, ..parent.hello_of(1) };
    parent.connect(1, hello);
    assert_eq!(parent.counted("epochs") - before, 5);
}

#[test]
fn a_higher_epoch_of_the_same_root_lets_no_child_re_propose_again() {
    let mut parent = Parent::new();
    parent.pass(601 * SECOND, &[1, 2]);
    assert_eq!(parent.send(1, 1, "b"), 1, "an epoch without entries leaves no trace");
    parent.frames(1);
    parent.beat_of_epoch(2, parent.epoch.number + 1);
    let state = parent.frames(1).into_iter().find_map(|frame| match frame {
        Frame::TreeState(state) => Some(state),
        _ => None,
    });
    let epoch = state.unwrap().epochs.head();
    assert_ne!(epoch, parent.epoch);
    parent.say(1, Frame::Resume { epoch, after: 0.into() });
    assert_eq!(parent.send(1, 1, "b"), 1, "its own");
    assert_eq!(parent.send(1, 1, "c"), 0);
    parent.assert_refused("an event with another host", "c");
}

/// How many bytes of other hosts an agent re-proposes until it is refused.
fn re_proposed(parent: &mut Parent, rank: u32, about: &str) -> usize {
    let (mut bytes, part, before) = (0, 400_000, parent.counted("claims_refused"));
    while parent.counted("claims_refused") == before {
        parent.send_large(rank, rank, about, part);
        bytes += part;
        assert!(bytes < 1 << 29, "there is no limit");
    }
    bytes - part
}

#[test]
fn a_child_re_proposes_no_more_than_a_few_logs_have() {
    let mut parent = Parent::new();
    assert!(re_proposed(&mut parent, 1, "c") > 16 << 20, "a log has room");
    parent.assert_refused("more than logs have", "c");
}

/// A new connection brings no new budget; time does.
#[test]
fn a_child_that_comes_again_re_proposes_no_more() {
    let mut parent = Parent::new();
    let whole = re_proposed(&mut parent, 1, "c");
    parent.handle(Input::LinkClosed { link: link(1), error: "it was ended".to_owned() });
    for _ in 0..3 {
        parent.greet(1);
        assert_eq!(parent.send_large(1, 1, "c", 400_000), 0);
        parent.handle(Input::LinkClosed { link: link(1), error: "it was ended".to_owned() });
    }
    parent.pass(300 * SECOND, &[2]);
    parent.greet(1);
    let half = re_proposed(&mut parent, 1, "c");
    assert!((whole / 3..whole * 2 / 3).contains(&half), "{half} of {whole}");
}

/// Each agent below a child may have been acting root of a component, and has a log then.
#[test]
fn a_child_above_others_re_proposes_the_logs_of_them_all() {
    let mut parent = Parent::new();
    let alone = re_proposed(&mut parent, 1, "c");
    let above_two = re_proposed(&mut parent, 2, "b");
    let wanted = alone * 3;
    assert!(above_two.abs_diff(wanted) < 1 << 20, "{above_two}, not {wanted}");
    // It says that an agent of another child is below it as well.
    let mut parent = Parent::new();
    parent.say(1, Frame::Members(vec![report(3, 1, 1_000, UP)]));
    let claimed = re_proposed(&mut parent, 1, "c");
    assert_eq!(claimed, alone);
}

impl Parent {
    /// An agent says that its log of an epoch has ended, or that it has sent it again.
    fn fork(&mut self, over: u32, number: u64, re_proposed: bool) {
        self.attempts += 1;
        let epoch = fork_epoch(number);
        let items = vec![UpItem::Fork { epoch, until: 1_000.into(), re_proposed }];
        let (origin, run, base, first) = (origin(over), self.attempts, 1.into(), 1.into());
        self.say(over, Frame::Up(UpBatch { origin, run, base, first, wants_disk: false, items }));
    }
}

#[test]
fn a_child_that_may_not_re_propose_settles_no_lost_log() {
    let mut parent = Parent::new();
    parent.pass(601 * SECOND, &[1, 2]);
    parent.fork(2, 50, false);
    parent.fork(1, 50, true);
    parent.assert_refused("a log that was not re-proposed", &format!("epoch {}", fork_epoch(50)));
    assert!(!parent.is_closed(1));
    parent.pass(40 * SECOND, &[1, 2]);
    assert_eq!(parent.counted("fork_gaps"), 1, "what is lost is reported");
    // An agent that has just come may have re-proposed it.
    parent.fork(2, 51, false);
    parent.greet(1);
    parent.fork(1, 51, true);
    parent.pass(40 * SECOND, &[1, 2]);
    assert_eq!(parent.counted("fork_gaps"), 1);
}

fn fork_epoch(number: u64) -> Epoch {
    Epoch { number, root: OriginId(99) }
}

#[test]
fn lost_logs_that_a_child_invents_are_bounded_and_push_out_no_other_in_silence() {
    let mut parent = Parent::new();
    parent.fork(2, 50, false);
    for number in 0..3_000 {
        parent.fork(1, 1_000 + number, false);
    }
    assert!(parent.counted("fork_gaps") >= 1_025 - 256, "one more than are remembered is due");
    parent.pass(40 * SECOND, &[1, 2]);
    assert_eq!(parent.counted("fork_gaps"), 1_025, "those of the budget, and that of the other");
    assert_eq!(parent.counted("claims_refused"), 3_000 - 1_024);
    parent.fork(2, 51, false);
    parent.pass(40 * SECOND, &[1, 2]);
    assert_eq!(parent.counted("fork_gaps"), 1_026, "another child has its own");
}

#[test]
fn a_gap_of_a_log_comes_only_from_a_child_that_may_re_propose() {
    let gap = |parent: &mut Parent, number| {
        parent.attempts += 1;
        let at = |index: u64| Position { epoch: fork_epoch(number), index: index.into() };
        let range = (at(1), at(9));
        let items = vec![UpItem::Gap(Gap::unknown(range, GapReason::LogLost))];
        let (origin, run, base, first) = (origin(1), parent.attempts, 1.into(), 1.into());
        parent.say(1, Frame::Up(UpBatch { origin, run, base, first, wants_disk: false, items }));
        parent.counted("appended")
    };
    let mut parent = Parent::new();
    let before = parent.counted("appended");
    assert_eq!(gap(&mut parent, 1), before + 1);
    // With a number that no cluster has come to.
    assert_eq!(gap(&mut parent, 1 << 62), before + 1);
    assert_eq!((parent.counted("implausible"), parent.is_closed(1)), (1, true));
    let mut parent = Parent::new();
    parent.pass(601 * SECOND, &[1, 2]);
    let before = parent.counted("appended");
    assert_eq!(gap(&mut parent, 1), before);
    parent.assert_refused("a gap of no log", "another log");
}

fn question(of: u32, request: u64) -> Frame {
    let (requester, subject) = (origin(of), TraceSubject::Reports);
    Frame::TraceRequest(TraceRequest { requester, request, subject, within_ms: 1_000 })
}

fn questions(frames: &[Frame]) -> usize {
    frames.iter().filter(|frame| matches!(frame, Frame::TraceRequest(_))).count()
}

#[test]
fn a_question_in_the_name_of_another_agent_takes_no_answer_from_it() {
    let mut parent = Parent::new();
    parent.frames(2);
    parent.say(1, question(3, 7));
    let answers = parent.frames(1);
    let is_empty = |frame: &Frame| matches!(frame, Frame::TraceAnswer(a) if a.trace.answered == 0);
    assert!(answers.iter().any(is_empty), "{answers:?}");
    assert_eq!(questions(&parent.frames(2)), 0);
    parent.say(2, question(3, 7));
    assert_eq!(questions(&parent.frames(1)), 1, "it is passed on");
}

#[test]
fn questions_of_one_child_leave_places_for_those_of_another() {
    let mut parent = Parent::new();
    parent.frames(1);
    (0..40).for_each(|request| parent.say(2, question(3, request)));
    assert_eq!(questions(&parent.frames(1)), 16);
    parent.frames(2);
    parent.say(1, question(1, 1));
    assert_eq!(questions(&parent.frames(2)), 1);
}

/// Reports that agent 7 has moved away from agent 6, and are lost.
static LOST: AtomicU64 = AtomicU64::new(0);

fn loses_that_7_moved(frame: &Frame) -> bool {
    let Frame::Members(reports) = frame else { return false };
    let is_lost = reports.iter().any(|report| {
        report.rank == Rank(7)
            && report.state == MemberState::Moved
            && report.parent == Some(Rank(6))
    });
    LOST.fetch_add(u64::from(is_lost), Ordering::Relaxed);
    is_lost
}

/// Agent 7 is below 6, which is below 5, which is below 2. Then 7 moves to the other side of the
/// root, and the report of that is lost. `None`: 6 moves before it.
fn moved_unreported(seed: u64) -> Option<World> {
    let tolerant = Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(8, 2) };
    let mut world = boot(tolerant, seed).unwrap();
    for (low, high) in (0..5).map(|low| (low, 6)).chain((0..6).map(|low| (low, 7))) {
        world.operate(Op::CutOneWay(low, high)).unwrap();
        world.operate(Op::CutOneWay(high, low)).unwrap();
    }
    world.run_ms(20_000).unwrap();
    let parents = [5, 6, 7].map(|rank| world.parent_of(rank).map(|parent| parent.0));
    assert_eq!(parents, [Some(2), Some(5), Some(6)]);
    let lost_before = LOST.load(Ordering::Relaxed);
    world.loses = loses_that_7_moved;
    world.operate(Op::Heal).unwrap();
    while world.parent_of(7) == Some(Rank(6)) {
        world.run_ms(1).unwrap();
    }
    world.run_ms(1).unwrap();
    world.loses = |_| false;
    let is_first = world.parent_of(6) == Some(Rank(5)) && world.parent_of(7) == Some(Rank(3));
    let lost = LOST.load(Ordering::Relaxed) - lost_before;
    (is_first && lost == 1).then_some(world)
}

/// 6 moves to 2, 7 restarts, and 2 moves to the other side of the root: it must not say there that
/// the former life of 7 is below it.
#[test]
fn a_move_whose_report_was_lost_is_reported_to_the_next_parent() {
    let mut world = (1..=50).find_map(moved_unreported).expect("7 moves before 6 with some seed");
    world.run_ms(20_000).unwrap();
    world.check_tree().unwrap();
    world.operate(Op::Kill(7)).unwrap();
    world.run_ms(10_000).unwrap();
    world.operate(Op::Start(7)).unwrap();
    world.run_ms(10_000).unwrap();
    // 2 comes below 1, below which 7 is, and its reports wait there for as long as any can.
    world.operate(Op::Kill(0)).unwrap();
    world.run_ms(20_000).unwrap();
    assert_eq!(world.parent_of(2), Some(Rank(1)));
}
