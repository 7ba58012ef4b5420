//! A reader of the table of conditions below a parent that is played by hand: what it learns when
//! the log goes back while it is in the middle of the table.

use crate::events::{Said, seal_stated};
use crate::neighbour::START;
use ftb_core::condition::{Condition, Provenance, Truth};
use ftb_core::epochs::EpochHistory;
use ftb_core::frame::{Content, Frame, HelloAck, HistoryReply, Item, TreeState};
use ftb_core::ident::{OriginId, PublisherId, Rank};
use ftb_core::node::api::{
    ClientId, ClientInfo, Input, LinkId, Output, Start, SubscriptionId, ToClient,
};
use ftb_core::node::{Member, Node, NodeConfig};
use ftb_core::position::Epoch;
use ftb_core::protocol::{FEATURES, PROTOCOL};
use ftb_core::run::Run;
use ftb_core::severity::Severity;

const PARENT: LinkId = LinkId(1);
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

/// Agent `b` below `a`, with a reader that has rows up to index 10 and waits for more.
fn in_the_middle() -> Played {
    let members = ["a", "b"].map(|host| Member { host: host.into(), address: host.into() });
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
        uid: 0,
        gid: 0,
        pid: 1,
        name: "reader".into(),
        job_id: String::new(),
        publisher: PublisherId { account: 9, token: 9 },
    };
    played.handle(Input::ClientAttached { client: READER, info });
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
