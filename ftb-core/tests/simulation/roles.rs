//! Every row of the role table is reached: one agent, whose neighbours are played by hand.

use crate::neighbour::{START, hello_of_b};
use ftb_core::epochs::EpochHistory;
use ftb_core::frame::{
    Frame, Hello, HelloAck, HelloNack, LogRange, NackCode, ReplicaStart, Replicate, TreeState,
};
use ftb_core::ident::{OriginId, Rank};
use ftb_core::node::api::{DialId, HostAnswer, Input, LinkId, Output};
use ftb_core::node::{Member, Node, NodeConfig, RoleName, role_table};
use ftb_core::position::Epoch;
use ftb_core::protocol::{FEATURES, PROTOCOL};
use ftb_core::time::Now;
use std::collections::BTreeSet;

/// Rank 2 of four. Its wanted parent is rank 0.
struct Played {
    node: Node,
    now: Now,
    links: u64,
    parent: LinkId,
    dials: Vec<(DialId, Rank)>,
    /// What it has followed, without the meaning.
    rows: BTreeSet<String>,
}

fn epochs(number: u64) -> EpochHistory {
    let mut epochs = EpochHistory::new();
    epochs.open(Epoch { number, root: OriginId(8) }, 1.into(), false);
    epochs
}

fn start(epochs: EpochHistory) -> Frame {
    Frame::ReplicaStart(ReplicaStart { epochs, after: 0.into(), copy: 1 })
}

fn complete(epochs: &EpochHistory) -> Frame {
    Frame::Replicate(Replicate {
        epoch: epochs.head(),
        items: Vec::new(),
        entry_refs: Vec::new(),
        until: 5.into(),
        committed: 0.into(),
        complete: true,
        refs_until: 0,
    })
}

impl Played {
    fn new() -> Self {
        let members =
            ["a", "b", "c", "d"].map(|host| Member { host: host.into(), address: host.into() });
        let mut config = NodeConfig::new("c", "c", OriginId(3), members.to_vec());
        // It may move at once, and waits long for a log.
        (config.settle_ms, config.search_ms) = (0, 20_000);
        let mut played = Self {
            node: Node::new(START, config, 1),
            now: START,
            links: 0,
            parent: LinkId(0),
            dials: Vec::new(),
            rows: BTreeSet::new(),
        };
        played.handle(Input::Tick);
        played
    }

    fn handle(&mut self, input: Input) {
        let mut out = Vec::new();
        self.now.mono_ns += 1;
        self.now.wall_ns += 1;
        self.node.handle(self.now, input, &mut out);
        for output in out {
            match output {
                Output::Dial { dial, rank, .. } => self.dials.push((dial, rank)),
                Output::Transition(change) if change.machine == "role" => {
                    let (from, cause, to) = (change.from, change.subject, change.to);
                    self.rows.insert(format!("| {from} | {cause} | {to} |"));
                }
                _ => {}
            }
        }
    }

    fn frame(&mut self, link: LinkId, frame: Frame) {
        self.handle(Input::Frame { link, frame });
    }

    /// A frame of the parent.
    fn say(&mut self, frame: Frame) {
        self.frame(self.parent, frame);
    }

    /// Lets time pass until the agent dials a rank; no other rank answers. Gives the link.
    fn dialed(&mut self, rank: u32) -> LinkId {
        for _ in 0..10_000 {
            while let Some((dial, dialed)) = self.dials.pop() {
                if dialed == Rank(rank) {
                    self.links += 1;
                    let link = LinkId(self.links);
                    self.handle(Input::Dialed { dial, link });
                    return link;
                }
                self.refuse(dial);
            }
            self.pass();
        }
        panic!("rank {rank} is never dialled: {:?}", self.rows);
    }

    fn refuse(&mut self, dial: DialId) {
        let answer = HostAnswer::Refused;
        self.handle(Input::DialFailed { dial, error: "refused".into(), answer });
    }

    /// The next timer expires, or a heartbeat of the parent comes.
    fn pass(&mut self) {
        let due_ns = self.node.next_deadline_ns().expect("a timer is set");
        let passed_ns = due_ns.saturating_sub(self.now.mono_ns).min(500_000_000);
        self.now =
            Now { mono_ns: self.now.mono_ns + passed_ns, wall_ns: self.now.wall_ns + passed_ns };
        self.say(Frame::Credit { bytes: 1 });
        self.handle(Input::Tick);
    }

    /// No lower rank answers until the agent has that role.
    fn alone_until(&mut self, wanted: RoleName) {
        let to = format!("| {wanted} |");
        for _ in 0..10_000 {
            while let Some((dial, _)) = self.dials.pop() {
                self.refuse(dial);
            }
            if self.rows.iter().any(|row| row.ends_with(&to)) {
                return;
            }
            self.pass();
        }
        panic!("it is never {wanted}");
    }

    /// A rank answers as a parent with that log.
    fn take(&mut self, rank: u32, epochs: EpochHistory, send_log: bool) {
        let link = self.dialed(rank);
        let path = if epochs.is_empty() { Vec::new() } else { vec![Rank(0)] };
        self.frame(
            link,
            Frame::HelloAck(Box::new(HelloAck {
                protocol: PROTOCOL.max,
                features: FEATURES,
                host: ["a", "b"][rank as usize].into(),
                rank: Rank(rank),
                origin: OriginId(u64::from(rank) + 1),
                assigned: None,
                tree_state: TreeState { epochs, head: 0.into(), path, standby: None },
                window_bytes: 1 << 20,
                send_log,
                wall_ns: self.now.wall_ns,
            })),
        );
        if self.node.parent_rank() == Some(Rank(rank)) {
            self.parent = link;
        }
    }

    /// Rank 0 knows another agent of the same rank.
    fn meet_duplicate(&mut self) {
        let link = self.dialed(0);
        let code = NackCode::Duplicate;
        let nack = HelloNack { code, message: "two agents".into(), redirect: Vec::new() };
        self.frame(link, Frame::HelloNack(nack));
    }

    fn lose(&mut self, link: LinkId) {
        self.handle(Input::LinkClosed { link, error: "lost".into() });
    }

    /// Rank 3 offers a log of that epoch.
    fn offered(&mut self, epochs: EpochHistory) -> LinkId {
        self.links += 1;
        let link = LinkId(self.links);
        self.handle(Input::Accepted { link, certified_hosts: None });
        let hello = Hello {
            host: "d".into(),
            rank: Some(Rank(3)),
            origin: OriginId(4),
            epoch_seen: epochs.head().number,
            epochs,
            log_range: Some(LogRange { after: 0.into(), until: 5.into() }),
            ..hello_of_b()
        };
        self.frame(link, Frame::Hello(Box::new(hello)));
        link
    }
}

/// How an agent below rank 1 comes to a role.
fn below(role: RoleName) -> Played {
    let mut played = Played::new();
    if role == RoleName::Offering {
        played.alone_until(RoleName::Root);
        played.take(1, epochs(9), true);
        return played;
    }
    played.take(1, epochs(9), false);
    if matches!(role, RoleName::Syncing | RoleName::Standby) {
        played.say(start(epochs(9)));
    }
    if role == RoleName::Standby {
        played.say(complete(&epochs(9)));
    }
    played
}

/// What a parent, or its loss, may cause below it.
fn causes_below() -> Vec<fn(&mut Played)> {
    vec![
        |played| {
            // An agent leaves its component alone only after several attempts.
            while played.node.parent_rank() != Some(Rank(0)) {
                played.take(0, epochs(9), false);
            }
        },
        Played::meet_duplicate,
        |played| played.lose(played.parent),
        |played| played.say(start(epochs(9))),
        |played| played.say(start(EpochHistory::new())),
        |played| {
            let tree_state = TreeState { epochs: epochs(9), ..TreeState::default() };
            played.say(Frame::TreeState(Box::new(tree_state)));
        },
    ]
}

#[test]
fn every_row_of_the_role_table_is_reached() {
    let mut rows = BTreeSet::new();
    for role in [RoleName::Member, RoleName::Syncing, RoleName::Standby, RoleName::Offering] {
        for cause in causes_below() {
            let mut played = below(role);
            cause(&mut played);
            assert_eq!(played.node.impossible_states(), 0, "{role}: {:?}", played.rows);
            rows.extend(played.rows);
        }
    }
    // A parent that searches has no log: the agent still waits for one when it meets a duplicate.
    let mut played = Played::new();
    played.take(1, EpochHistory::new(), false);
    played.meet_duplicate();
    rows.extend(played.rows);
    // A lost parent, and no other.
    let mut played = below(RoleName::Member);
    played.lose(played.parent);
    played.alone_until(RoleName::Root);
    rows.extend(played.rows);
    for role in [RoleName::AwaitingLog, RoleName::Root] {
        let ends: [fn(&mut Played, LinkId); 3] = [
            |played, child| {
                played.frame(child, start(epochs(9)));
                played.frame(child, complete(&epochs(9)));
            },
            |played, child| played.lose(child),
            |played, _| played.take(1, epochs(20), false),
        ];
        for end in ends {
            let mut played = Played::new();
            played.alone_until(role);
            let child = played.offered(epochs(9));
            end(&mut played, child);
            assert_eq!(played.node.impossible_states(), 0, "{role}: {:?}", played.rows);
            rows.extend(played.rows);
        }
        let mut played = Played::new();
        played.alone_until(role);
        played.take(1, epochs(20), false);
        rows.extend(played.rows);
    }
    for row in role_table().lines().skip(2) {
        let columns: Vec<&str> = row.split(" | ").take(3).collect();
        let reached = format!("{} |", columns.join(" | "));
        assert!(rows.contains(&reached), "no agent follows {reached}\n{rows:#?}");
    }
}
