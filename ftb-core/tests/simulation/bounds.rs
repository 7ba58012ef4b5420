//! What a hostile or careless neighbour can make one agent keep, or do: bounded, whatever it says.

use crate::events::{SPACE, Said, seal};
use crate::neighbour::{START, agent_a, hello_of_b};
use ftb_core::ConfirmLevel;
use ftb_core::epochs::{EpochHistory, Segment};
use ftb_core::filter::Filter;
use ftb_core::frame::{Frame, Hello, HelloAck, HistoryRequest, Probe, TreeState};
use ftb_core::ident::{OriginId, Rank};
use ftb_core::node::api::{
    ClientId, ClientInfo, Input, LinkId, Output, Start, SubscriptionId, ToClient,
};
use ftb_core::node::{Member, Node, NodeConfig};
use ftb_core::position::Epoch;
use ftb_core::protocol::{FEATURES, PROTOCOL};
use ftb_core::severity::Severity;
use ftb_core::time::Now;
use ftb_core::{PublisherId, Run};

const CHILD: LinkId = LinkId(9);
pub const CLIENT: ClientId = ClientId(1);
const PAYLOAD: usize = 1_000;

/// An agent with one child: as it is made, the acting root of two listed agents.
pub struct Agent {
    pub node: Node,
    pub now: Now,
    pub out: Vec<Output>,
    /// Of the log that the child heard of.
    epoch: Epoch,
}

impl Agent {
    fn root() -> Self {
        let mut root = Self::alone();
        root.greet(Rank(1));
        root
    }

    /// Without a child.
    pub fn alone() -> Self {
        Self::of(agent_a())
    }

    /// As a node, without a child.
    pub fn of(node: Node) -> Self {
        let mut root = Self { node, now: START, out: Vec::new(), epoch: Epoch::ZERO };
        // Until it is sure that no agent has an older log.
        for _ in 0..100 {
            root.pass_time();
        }
        root
    }

    /// Its child comes.
    fn greet(&mut self, rank: Rank) {
        self.handle(Input::Accepted { link: CHILD, certified_hosts: None });
        let hello = Hello { rank: Some(rank), wall_ns: self.now.wall_ns, ..hello_of_b() };
        self.say(Frame::Hello(Box::new(hello)));
        let frames = self.frames();
        let [Frame::HelloAck(hello_ack), ..] = &frames[..] else { panic!("{frames:?}") };
        self.epoch = hello_ack.tree_state.epochs.head();
        self.say(Frame::Resume { epoch: self.epoch, after: 0.into() });
    }

    pub fn handle(&mut self, input: Input) {
        self.now.mono_ns += 1_000;
        self.node.handle(self.now, input, &mut self.out);
    }

    /// The child says something.
    pub fn say(&mut self, frame: Frame) {
        self.handle(Input::Frame { link: CHILD, frame });
    }

    pub fn pass_time(&mut self) {
        let next = self.node.next_deadline_ns().unwrap_or(self.now.mono_ns);
        self.now.mono_ns = next.max(self.now.mono_ns);
        self.handle(Input::Tick);
    }

    /// All that waits for the child.
    pub fn frames(&mut self) -> Vec<Frame> {
        let (node, now, out) = (&mut self.node, self.now, &mut self.out);
        std::iter::from_fn(|| node.poll_link(now, CHILD, 1 << 16, out)).collect()
    }

    fn counted(&self, name: &str) -> u64 {
        let counters = self.node.status().counters;
        counters.iter().find(|(counter, _)| *counter == name).unwrap().1
    }

    pub fn attach(&mut self) {
        let publisher = PublisherId { account: 1, token: 1 };
        let (name, job_id) = ("test".to_owned(), String::new());
        let info = ClientInfo { uid: 1, gid: 1, pid: 1, name, job_id, publisher };
        self.handle(Input::ClientAttached { client: CLIENT, info });
    }

    pub fn subscribe(&mut self, number: u32, filter: &str) {
        let filter = Filter::parse(filter).unwrap();
        let subscription = SubscriptionId(number);
        self.handle(Input::Subscribe {
            client: CLIENT,
            subscription,
            filter: filter.into(),
            start: Start::Now,
        });
    }

    pub fn publish(&mut self, from: u64, count: u64) {
        let said =
            Said { severity: Severity::Info, space: SPACE, name: "X", host: "a", payload: PAYLOAD };
        let publisher = PublisherId { account: 1, token: 1 };
        let events: Vec<_> = (from..from + count).map(|seq| seal(publisher, seq, &said)).collect();
        let events = Run::collect(events.iter().map(|event| event.as_ref())).unwrap();
        self.handle(Input::Publish { client: CLIENT, events, confirm: ConfirmLevel::Memory });
    }

    pub fn messages(&mut self) -> Vec<ToClient> {
        let (node, now, out) = (&mut self.node, self.now, &mut self.out);
        std::iter::from_fn(|| node.poll_client(now, CLIENT, 1 << 16, out)).collect()
    }
}

#[test]
fn who_asks_and_does_not_read_is_answered_as_far_as_there_is_room() {
    let mut root = Agent::root();
    root.attach();
    for batch in 0..20 {
        root.publish(1 + batch * 100, 100);
    }
    let fetch = |id| {
        let filters = vec![Filter::everything()];
        Frame::HistoryRequest(HistoryRequest {
            id,
            epoch: Epoch::ZERO,
            after: 0.into(),
            since_ns: None,
            filters,
            conditions: false,
        })
    };
    let ask = |root: &mut Agent, id| {
        let Frame::HistoryRequest(fetch) = fetch(id) else { unreachable!() };
        root.say(Frame::HistoryRequest(HistoryRequest { epoch: root.epoch, ..fetch }));
    };
    const QUESTIONS: u64 = 10_000;
    for id in 0..QUESTIONS {
        ask(&mut root, id);
    }
    let frames = root.frames();
    let answers = frames.iter().filter_map(|frame| match frame {
        Frame::HistoryReply(fetched) => {
            Some(fetched.items.iter().map(|item| item.len()).sum::<usize>())
        }
        _ => None,
    });
    let answers: Vec<usize> = answers.collect();
    let bytes: usize = answers.iter().sum();
    assert!((1 << 20..4 << 20).contains(&bytes), "{bytes} bytes in {} answers", answers.len());
    assert_eq!(root.counted("control_dropped"), QUESTIONS - answers.len() as u64);
    let closed = |output: &Output| matches!(output, Output::CloseLink { .. });
    assert!(!root.out.iter().any(closed), "it may be slow, not hostile");
    // With room again it is answered again.
    ask(&mut root, QUESTIONS);
    assert!(root.frames().iter().any(|frame| matches!(frame, Frame::HistoryReply(_))));
}

#[test]
fn a_child_cannot_make_an_agent_dial_other_addresses() {
    let mut root = Agent::root();
    let probe = |target, host: &str, address: &str| {
        let (host, address) = (host.to_owned(), address.to_owned());
        Frame::Probe(Probe {
            requester: OriginId(2),
            probe: 1,
            prober: Rank(0),
            target,
            host,
            address,
        })
    };
    let dialled = |root: &Agent| -> Vec<String> {
        let dialled = root.out.iter().filter_map(|output| match output {
            Output::Dial { address, .. } => Some(address.clone()),
            _ => None,
        });
        dialled.collect()
    };
    let before = dialled(&root);
    root.say(probe(Rank::UNLISTED_FIRST, "guest", "192.0.2.1:22"));
    root.say(probe(Rank(2), "guest", "192.0.2.1:22"));
    assert_eq!(dialled(&root), before, "an address that only the child knows");
    root.say(probe(Rank(1), "guest", "192.0.2.1:22"));
    assert_eq!(dialled(&root)[before.len()..], ["b"], "a member is looked at where the list says");
}

#[test]
fn subscriptions_that_end_together_are_taken_out_together() {
    const COUNT: u32 = 1_000;
    let mut root = Agent::root();
    root.attach();
    for number in 0..COUNT {
        root.subscribe(number, &format!("event_space=other.s{number}"));
    }
    let merged = root.counted("merges");
    assert!(merged < 100, "{merged} merges for {COUNT} subscriptions: more is quadratic time");
    for number in 0..COUNT {
        let subscription = SubscriptionId(number);
        root.handle(Input::Unsubscribe { client: CLIENT, subscription });
    }
    root.pass_time();
    root.pass_time();
    let again = root.counted("merges") - merged;
    assert!((1..10).contains(&again), "{again} merges for {COUNT} subscriptions that end");
}

/// To merge the filters of all takes long: one user must not make an agent do nothing else.
#[test]
fn subscriptions_that_come_and_go_are_merged_a_few_times_and_slow_their_user_down() {
    const COUNT: u32 = 20_000;
    let mut root = Agent::root();
    root.attach();
    for number in 0..COUNT {
        root.subscribe(number, &format!("event_space=other.s{number}"));
        let subscription = SubscriptionId(number);
        root.handle(Input::Unsubscribe { client: CLIENT, subscription });
    }
    // They took 40 milliseconds.
    let merged = root.counted("merges");
    assert!((1..10).contains(&merged), "{merged} merges for {COUNT} subscriptions");
    let is_paused =
        |output: &Output| matches!(output, Output::PauseClient(client) if *client == CLIENT);
    assert!(root.out.iter().any(is_paused), "its user asks for more than its rate");
    root.pass_time();
    root.subscribe(COUNT, "event_space=other.last");
    root.pass_time();
    root.pass_time();
    let again = root.counted("merges") - merged;
    assert!((1..10).contains(&again), "{again} merges");
}

#[test]
fn every_subscription_that_wants_an_event_gets_it_and_no_other() {
    const COUNT: u32 = 300;
    let mut root = Agent::root();
    root.attach();
    for number in 0..COUNT {
        let space = if number % 3 == 0 { SPACE } else { "other.space" };
        root.subscribe(number, &format!("event_space={space}"));
    }
    let sent = root.messages();
    let active = sent.iter().filter(|message| matches!(message, ToClient::Subscribed { .. }));
    assert_eq!(active.count(), COUNT as usize, "all are active");
    for seq in 1..=3 {
        root.publish(seq, 1);
        let mut got: Vec<u32> = Vec::new();
        for message in root.messages() {
            if let ToClient::Deliver { subscription, items, .. } = message {
                assert_eq!(items.iter().map(|(_, run)| run.count()).sum::<usize>(), 1);
                got.push(subscription.0);
            }
        }
        got.sort_unstable();
        assert_eq!(got, (0..COUNT).step_by(3).collect::<Vec<_>>(), "event {seq}");
    }
}

/// What a child asks is passed up as far as there is room: a parent that reads slowly is not lost
/// for it.
#[test]
fn a_child_that_asks_too_much_does_not_cost_its_parent_the_way_up() {
    const UP: LinkId = LinkId(7);
    const QUESTIONS: u64 = 300;
    let members = ["r", "a", "b"].map(|host| Member { host: host.into(), address: host.into() });
    let now = Now { mono_ns: 1, wall_ns: 1_700_000_000_000_000_000 };
    let config = NodeConfig::new("c", "a", OriginId(1), members.to_vec());
    let node = Node::new(now, config, 1);
    let epoch = Epoch { number: 1, root: OriginId(3) };
    let mut agent = Agent { node, now, out: Vec::new(), epoch };
    agent.handle(Input::Tick);
    let dialled = agent.out.iter().find_map(|output| match output {
        Output::Dial { dial, rank: Rank(0), .. } => Some(*dial),
        _ => None,
    });
    agent.handle(Input::Dialed { dial: dialled.unwrap(), link: UP });
    let hello_ack = HelloAck {
        protocol: PROTOCOL.max,
        features: FEATURES,
        host: "r".into(),
        rank: Rank(0),
        origin: OriginId(3),
        assigned: None,
        tree_state: TreeState {
            epochs: EpochHistory::from_segments(vec![Segment {
                epoch,
                first: 1.into(),
                incomplete: false,
            }])
            .unwrap(),
            head: 100_000.into(),
            path: vec![Rank(0)],
            standby: None,
        },
        window_bytes: 1 << 20,
        send_log: false,
        wall_ns: now.wall_ns,
    };
    let hello_ack = Frame::HelloAck(Box::new(hello_ack));
    agent.handle(Input::Frame { link: UP, frame: hello_ack });
    while agent.node.poll_link(agent.now, UP, 1 << 16, &mut agent.out).is_some() {}
    agent.greet(Rank(2));
    let names: Vec<String> = (0..60).map(|number| format!("{number:060}")).collect();
    let filter = |number| {
        let text = format!("event_space=s{number},event_name={}", names.join("|"));
        Filter::parse(&text).unwrap()
    };
    let filters: Vec<Filter> = (0..64).map(filter).collect();
    for id in 0..QUESTIONS {
        let filters = filters.clone();
        agent.say(Frame::HistoryRequest(HistoryRequest {
            id,
            epoch,
            after: 0.into(),
            since_ns: None,
            filters,
            conditions: false,
        }));
    }
    let lost = |output: &Output| matches!(output, Output::CloseLink { link: UP, .. });
    assert!(!agent.out.iter().any(lost), "the parent has done nothing wrong");
    let (node, now, out) = (&mut agent.node, agent.now, &mut agent.out);
    let up = std::iter::from_fn(|| node.poll_link(now, UP, 1 << 16, out));
    let passed = up.filter(|frame| matches!(frame, Frame::HistoryRequest(_))).count() as u64;
    assert!((1..QUESTIONS).contains(&passed), "{passed} of {QUESTIONS} questions were passed up");
    assert!(agent.counted("control_dropped") >= QUESTIONS - passed, "the rest is counted");
}
