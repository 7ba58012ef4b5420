//! Readers below a parent that is played by hand: what one of the table of conditions learns when
//! the log goes back while it is in the middle of it, when those of the past ask the parent, and
//! what it hears that all of them want.

use crate::events::{Said, seal_stated};
use crate::neighbour::{START, hello_of_b};
use ftb_core::condition::{Condition, Provenance, Truth};
use ftb_core::epochs::EpochHistory;
use ftb_core::filter::{Filter, FilterSet};
use ftb_core::frame::{
    Content, Down, Frame, Hello, HelloAck, HistoryReply, HistoryRequest, Interest, Item, TreeState,
};
use ftb_core::ident::{OriginId, PublisherId, Rank};
use ftb_core::node::api::{
    ClientId, ClientInfo, Input, LinkId, Output, Start, SubscriptionId, ToClient,
};
use ftb_core::node::{Member, Node, NodeConfig};
use ftb_core::position::Epoch;
use ftb_core::protocol::{FEATURES, PROTOCOL};
use ftb_core::run::Run;
use ftb_core::severity::Severity;
use ftb_fuzz::random::SplitMix;
use std::collections::{BTreeMap, VecDeque};

const PARENT: LinkId = LinkId(1);
const CHILD: LinkId = LinkId(2);
const READER: ClientId = ClientId(7);
const TABLE: SubscriptionId = SubscriptionId(1);

/// The log of the parent: epoch 1, and from an index on epoch 2.
fn epochs(second: Option<u64>) -> EpochHistory {
    let mut epochs = EpochHistory::new();
    epochs.open(Epoch { number: 1, root: OriginId(1) }, 1.into(), false);
    if let Some(first) = second {
        epochs.open(Epoch { number: 2, root: OriginId(1) }, first.into(), false);
    }
    epochs
}

fn tree_state(second: Option<u64>) -> TreeState {
    let (epochs, path) = (epochs(second), vec![Rank(0)]);
    TreeState { epochs, head: 20.into(), path, standby: None }
}

/// A row of the table: the statement at an index of the log.
fn row(index: u64) -> Item {
    let said =
        Said { severity: Severity::Error, space: "ftb.sim", name: "FAN", host: "a", payload: 10 };
    let condition = Condition { host: "a".into(), ..Condition::new("FANFAIL", Truth::True) };
    let publisher = PublisherId { account: 1, token: 1 };
    let stated = Some((condition, Provenance::direct(OriginId(1))));
    let event = seal_stated(publisher, index, &said, stated);
    Item { index: index.into(), content: Content::Events(Run::from(event)) }
}

struct Played {
    node: Node,
    now: ftb_core::time::Now,
}

impl Played {
    fn handle(&mut self, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        (self.now.mono_ns, self.now.wall_ns) = (self.now.mono_ns + 1, self.now.wall_ns + 1);
        self.node.handle(self.now, input, &mut out);
        out
    }

    fn say(&mut self, frame: Frame) {
        self.handle(Input::Frame { link: PARENT, frame });
    }

    /// What the agent says to its parent.
    fn heard(&mut self) -> Vec<Frame> {
        let mut out = Vec::new();
        let next = || self.node.poll_link(self.now, PARENT, 1 << 20, &mut out);
        std::iter::from_fn(next).collect()
    }

    /// What the reader gets.
    fn read(&mut self) -> Vec<ToClient> {
        let mut out = Vec::new();
        let next = || self.node.poll_client(self.now, READER, 1 << 20, &mut out);
        std::iter::from_fn(next).collect()
    }

    fn subscribe(&mut self, number: u32, filter: &Filter, start: Start) {
        let (subscription, filter) = (SubscriptionId(number), Box::new(filter.clone()));
        self.handle(Input::Subscribe { client: READER, subscription, filter, start });
    }

    fn unsubscribe(&mut self, number: u32) {
        let subscription = SubscriptionId(number);
        self.handle(Input::Unsubscribe { client: READER, subscription });
    }

    /// Time passes. The parent is not silent.
    fn pass(&mut self, ms: u64) {
        self.now.mono_ns += ms * 1_000_000;
        self.say(Frame::TreeState(Box::new(tree_state(None))));
        self.handle(Input::Tick);
    }

    /// The parent says that what it heard is active; gives what it is asked for.
    fn activate(&mut self) -> Vec<HistoryRequest> {
        let mut asked = Vec::new();
        for frame in self.heard() {
            match frame {
                Frame::Subscribe(Interest { version, .. }) => {
                    self.say(Frame::FilterActive { version, index: 20.into() });
                }
                Frame::HistoryRequest(request) => asked.push(request),
                _ => {}
            }
        }
        asked.extend(self.asked());
        asked
    }

    fn asked(&mut self) -> Vec<HistoryRequest> {
        let asked = self.heard().into_iter().filter_map(|frame| match frame {
            Frame::HistoryRequest(request) => Some(request),
            _ => None,
        });
        asked.collect()
    }

    fn answer(&mut self, request: &HistoryRequest, items: Vec<Item>, covered: u64) {
        let (id, covered) = (request.id, covered.into());
        self.say(Frame::HistoryReply(HistoryReply { id, items, covered, last: false }));
    }

    /// An event passes that all want.
    fn pass_event(&mut self, index: u64) {
        let (epoch, items, covered) = (epochs(None).head(), vec![row(index)], index.into());
        self.say(Frame::Down(Down { epoch, items, covered }));
    }

    fn counted(&self, name: &str) -> u64 {
        let counters = self.node.status().counters;
        counters.iter().find(|(counter, _)| *counter == name).unwrap().1
    }

    /// Answers the request for rows; `None`: there is none.
    fn give_rows(&mut self, items: Vec<Item>, covered: u64) -> Option<()> {
        let asked = self.heard().into_iter().find_map(|frame| match frame {
            Frame::HistoryRequest(request) if request.conditions => Some(request.id),
            _ => None,
        });
        let (id, covered) = (asked?, covered.into());
        self.say(Frame::HistoryReply(HistoryReply { id, items, covered, last: false }));
        Some(())
    }
}

/// Agent `b` below `a`, with a client of a user.
fn below_parent(uid: u32) -> Played {
    let members = ["a", "b", "c"].map(|host| Member { host: host.into(), address: host.into() });
    let config = NodeConfig::new("c", "b", OriginId(2), members.to_vec());
    let mut played = Played { node: Node::new(START, config, 1), now: START };
    let dial = played.handle(Input::Tick).into_iter().find_map(|output| match output {
        Output::Dial { dial, .. } => Some(dial),
        _ => None,
    });
    played.handle(Input::Dialed { dial: dial.unwrap(), link: PARENT });
    played.say(Frame::HelloAck(Box::new(HelloAck {
        protocol: PROTOCOL.max,
        features: FEATURES,
        host: "a".into(),
        rank: Rank(0),
        origin: OriginId(1),
        assigned: None,
        tree_state: tree_state(None),
        window_bytes: 1 << 20,
        send_log: false,
        wall_ns: START.wall_ns,
    })));
    assert_eq!(played.node.parent_rank(), Some(Rank(0)));
    let info = ClientInfo {
        uid,
        gid: 0,
        pid: 1,
        name: "reader".into(),
        job_id: String::new(),
        publisher: PublisherId { account: 9, token: 9 },
    };
    played.handle(Input::ClientAttached { client: READER, info });
    played
}

/// The same, with a reader that has rows up to index 10 and waits for more.
fn in_the_middle() -> Played {
    let mut played = below_parent(0);
    let (filter, start) = (Box::new("condition=*".parse().unwrap()), Start::Conditions);
    played.handle(Input::Subscribe { client: READER, subscription: TABLE, filter, start });
    let version = played.heard().into_iter().rev().find_map(|frame| match frame {
        Frame::Subscribe(interest) => Some(interest.version),
        _ => None,
    });
    played.say(Frame::FilterActive { version: version.unwrap(), index: 20.into() });
    played.give_rows(vec![row(3), row(9)], 10).expect("it reads the table");
    let read = played.read();
    let rows = read.iter().filter(|message| matches!(message, ToClient::Deliver { .. })).count();
    assert_eq!(rows, 1, "{read:?}");
    played
}

fn gaps(read: &[ToClient]) -> usize {
    read.iter().filter(|message| matches!(message, ToClient::Gap { .. })).count()
}

/// The statement at index 9 is not in the log any more: its reader must not keep it.
#[test]
fn a_reader_in_the_middle_of_the_table_learns_that_the_log_goes_back() {
    let mut played = in_the_middle();
    played.say(Frame::TreeState(Box::new(tree_state(Some(6)))));
    assert_eq!(gaps(&played.read()), 1);
    // Nothing that it has had is gone: it goes on without a gap, from the beginning.
    let mut played = in_the_middle();
    played.say(Frame::TreeState(Box::new(tree_state(Some(12)))));
    assert_eq!(gaps(&played.read()), 0);
    played.give_rows(vec![row(3)], 10).expect("it reads the table again");
}

/// How many messages say that a subscription has read its past.
fn ended(read: &[ToClient]) -> usize {
    let is_end =
        |message: &&ToClient| matches!(message, ToClient::Covered { history_ended: true, .. });
    read.iter().filter(is_end).count()
}

/// Readers that wait for answers, or for their turn to ask, cost nothing when an event comes. Each
/// has its turn.
#[test]
fn an_event_makes_no_reader_of_the_past_ask_again() {
    const READERS: u32 = 100;
    let mut played = below_parent(1_000);
    for number in 0..READERS {
        let filter = format!("event_name=x{number}").parse().unwrap();
        played.subscribe(number, &filter, Start::SinceNs(0));
    }
    played.pass(500);
    let mut asked = VecDeque::from(played.activate());
    assert!((1..20).contains(&asked.len()), "{} of {READERS} asked at once", asked.len());
    let before = played.counted("history_waits");
    assert!(before >= u64::from(READERS) / 2, "{before} wait for their turn");
    (21..31).for_each(|index| played.pass_event(index));
    assert_eq!(played.counted("history_waits"), before);
    assert!(played.asked().is_empty());
    let mut all_ended = ended(&played.read());
    while let Some(request) = asked.pop_front() {
        played.answer(&request, Vec::new(), 30);
        asked.extend(played.asked());
        all_ended += ended(&played.read());
    }
    assert_eq!(all_ended, READERS as usize);
}

#[test]
fn a_reader_whose_answer_had_nothing_new_asks_again_when_the_log_moves() {
    let mut played = below_parent(1_000);
    played.subscribe(1, &Filter::everything(), Start::SinceNs(0));
    played.pass(500);
    let asked = played.activate();
    let [request] = &asked[..] else { panic!("{asked:?}") };
    played.answer(request, Vec::new(), 0);
    assert!(played.asked().is_empty(), "nothing has changed");
    played.pass_event(21);
    let asked = played.asked();
    let [request] = &asked[..] else { panic!("{asked:?}") };
    played.pass_event(22);
    assert!(played.asked().is_empty(), "its question is under way");
    played.answer(request, vec![row(3)], 22);
    assert_eq!(ended(&played.read()), 1);
}

/// A subscription that gets the number of one that has ended gets no answer for that.
#[test]
fn an_answer_for_a_subscription_that_has_ended_is_none_for_the_next_with_its_number() {
    let mut played = below_parent(1_000);
    played.subscribe(2, &Filter::everything(), Start::Now);
    played.subscribe(1, &"event_name=none".parse().unwrap(), Start::SinceNs(0));
    played.pass(500);
    let asked = played.activate();
    let [of_ended] = &asked[..] else { panic!("{asked:?}") };
    played.unsubscribe(1);
    played.subscribe(1, &"event_name=FAN".parse().unwrap(), Start::SinceNs(0));
    let asked = played.asked();
    let [request] = &asked[..] else { panic!("it has not asked itself: {asked:?}") };
    played.answer(of_ended, Vec::new(), 20);
    assert_eq!(ended(&played.read()), 0);
    played.answer(request, vec![row(3)], 20);
    let read = played.read();
    let rows = read.iter().filter(|message| matches!(message, ToClient::Deliver { .. })).count();
    assert_eq!((rows, ended(&read)), (1, 1), "{read:?}");
}

/// A filter that the clients or the child want.
fn any_filter(random: &mut SplitMix) -> Filter {
    let number = random.below(80);
    let text = match random.below(8) {
        0 => format!("event_space=ftb.s{number}"),
        1 => format!("event_space=ftb.s{number},severity>=error"),
        _ => format!("event_space=ftb.s{},event_name=n{number}", number % 4),
    };
    text.parse().unwrap()
}

/// Whatever comes and goes, the parent soon hears of all that is wanted; and later that what
/// ended is not.
#[test]
fn the_parent_knows_of_each_filter_that_is_wanted_while_many_come_and_go() {
    for seed in 0..20 {
        let mut random = SplitMix(seed);
        let mut played = below_parent(0);
        played.handle(Input::Accepted { link: CHILD, certified_hosts: None });
        let (host, rank, origin) = ("c".to_owned(), Some(Rank(2)), OriginId(3));
        let hello = Hello { host, rank, origin, ..hello_of_b() };
        let of_child = |frame| Input::Frame { link: CHILD, frame };
        played.handle(of_child(Frame::Hello(Box::new(hello))));
        played.handle(of_child(Frame::Resume { epoch: epochs(None).head(), after: 20.into() }));
        let mut live = BTreeMap::<u32, Filter>::new();
        let (mut below, mut known) = (Vec::new(), FilterSet::new());
        // Few, so that each counts, and more than an agent tells its parent.
        let max = if seed % 2 == 0 { 20 } else { 90 };
        for step in 1..200_u64 {
            for _ in 0..=random.below(6) {
                let number = u32::try_from(random.below(max)).unwrap();
                if live.remove(&number).is_some() {
                    played.unsubscribe(number);
                } else {
                    let filter = any_filter(&mut random);
                    played.subscribe(number, &filter, Start::Now);
                    live.insert(number, filter);
                }
            }
            if random.below(4) == 0 {
                below = (0..random.below(4)).map(|_| any_filter(&mut random)).collect();
            }
            // Said again, it changes nothing.
            let interest = Interest { version: step, filters: below.clone() };
            played.handle(of_child(Frame::Subscribe(interest)));
            played.pass(60);
            tell(&mut played, &mut known);
            let missing = live.values().chain(&below).find(|filter| !known.covers(filter));
            assert!(missing.is_none(), "seed {seed}, step {step}: {missing:?} of {known:?}");
        }
        live.keys().for_each(|number| played.unsubscribe(*number));
        let interest = Interest { version: 1_000, filters: Vec::new() };
        played.handle(of_child(Frame::Subscribe(interest)));
        (0..10).for_each(|_| played.pass(60));
        tell(&mut played, &mut known);
        assert!(known.is_empty(), "seed {seed}: nothing is wanted any more, but {known:?}");
    }
}

/// What the parent has heard last.
fn tell(played: &mut Played, known: &mut FilterSet) {
    for frame in played.heard() {
        if let Frame::Subscribe(interest) = frame {
            *known = FilterSet::merge(&interest.filters);
        }
    }
}
