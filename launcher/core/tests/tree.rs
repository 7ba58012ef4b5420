//! The launch tree in virtual time, to ten thousand nodes: the time of a start by fan-out, and that
//! every node is reached or named with any death. The costs of one step are measured on a real
//! machine.

#![allow(clippy::unwrap_used, missing_docs)]

use bytes::Bytes;
use core::time::Duration;
use ftb_core::Now;
use ftb_launcher_core::names::NodeName;
use ftb_launcher_core::packet::PacketHead as _;
use ftb_launcher_core::tree::{Tree, TreeInput, TreeMessage, TreeOutput};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::Write as _;

/// A starter makes one process after the other.
const FORK_US: u64 = 1_500;
/// From there until an ssh on the other host has its session; most of it is waiting.
const SSH_US: u64 = 180_000;
/// Processor time of the starter for one ssh: key exchange and signature.
const SSH_CPU_US: u64 = 90_000;
/// Processors of a starter that share it.
const CPUS: u64 = 4;
/// From its specification to its word: the agent attaches to the backplane.
const UP_US: u64 = 25_000;
/// One step of a word upwards.
const WORD_US: u64 = 200;
const DEADLINE: Duration = Duration::from_secs(30);

fn name(index: usize) -> NodeName {
    NodeName::new(&format!("node{index:05}")).unwrap()
}

/// A starter: the launcher, or an agent of a node, numbered if there are several.
type Who = Option<(NodeName, u32)>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    /// A host has an agent, with the nodes behind it.
    Arrives { starter: Who, head: NodeName, behind: Vec<NodeName> },
    /// The start of a host fails.
    Fails { starter: Who, head: NodeName },
    /// A packet that a starter reads from its branch.
    Packet { starter: Who, head: NodeName, packet: Bytes },
    /// A starter's deadline.
    Tick { starter: Who },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Lives,
    /// Its sshd refuses at once.
    Refuses,
    /// It never answers.
    Silent,
    /// It starts its branches, then dies before it has said its word.
    DiesStarting,
}

struct World {
    fanout: usize,
    now_us: u64,
    queue: BinaryHeap<Reverse<(u64, u64, Happens)>>,
    sequence: u64,
    trees: BTreeMap<Who, (Tree, Who)>,
    busy_us: BTreeMap<Who, u64>,
    ticks: BTreeMap<Who, u64>,
    fates: BTreeMap<NodeName, Fate>,
    started: BTreeMap<NodeName, u32>,
    reported: BTreeMap<NodeName, Vec<TreeMessage>>,
    last_us: u64,
}

impl World {
    fn run(nodes: usize, fanout: usize, fates: BTreeMap<NodeName, Fate>) -> Self {
        let mut world = Self {
            fanout,
            now_us: 0,
            queue: BinaryHeap::new(),
            sequence: 0,
            trees: BTreeMap::new(),
            busy_us: BTreeMap::new(),
            ticks: BTreeMap::new(),
            fates,
            started: BTreeMap::new(),
            reported: BTreeMap::new(),
            last_us: 0,
        };
        world.plant(None, None, (0..nodes).map(name).collect());
        while let Some(Reverse((at, _, happens))) = world.queue.pop() {
            world.now_us = at;
            world.happen(happens);
        }
        world
    }

    fn at(&mut self, us: u64, happens: Happens) {
        self.sequence += 1;
        self.queue.push(Reverse((us, self.sequence, happens)));
    }

    /// `of` becomes the starter of `nodes`; `above` is who has started it.
    fn plant(&mut self, of: Who, above: Who, nodes: Vec<NodeName>) {
        self.trees.insert(of.clone(), (Tree::new(nodes, self.fanout, DEADLINE), above));
        self.feed(&of, TreeInput::Begin);
    }

    fn fate(&self, node: &NodeName) -> Fate {
        self.fates.get(node).copied().unwrap_or(Fate::Lives)
    }

    fn feed(&mut self, of: &Who, input: TreeInput) {
        let Some((tree, above)) = self.trees.get_mut(of) else { return };
        let above = above.clone();
        let mut out = Vec::new();
        let now = Now { mono_ns: self.now_us * 1000, wall_ns: 0 };
        tree.handle(now, input, &mut out);
        let deadline_ns = tree.next_deadline_ns();
        for output in out {
            match output {
                TreeOutput::Start { head, behind } => self.start(of, head, behind),
                TreeOutput::GiveUp(_) => {}
                TreeOutput::Say(word) => self.say(of, above.clone(), word),
            }
        }
        let known = self.ticks.insert(of.clone(), deadline_ns);
        if deadline_ns != u64::MAX && known != Some(deadline_ns) {
            self.at(deadline_ns.div_ceil(1000), Happens::Tick { starter: of.clone() });
        }
    }

    /// A word goes to the starter above, or has arrived.
    fn say(&mut self, of: &Who, above: Who, word: TreeMessage) {
        let Some(node) = of else {
            let (TreeMessage::Up { node, .. } | TreeMessage::Lost { node, .. }) = &word;
            self.last_us = self.now_us;
            self.reported.entry(node.clone()).or_default().push(word);
            return;
        };
        let (head, packet) = (node.0.clone(), word.encode());
        self.at(self.now_us + WORD_US, Happens::Packet { starter: above, head, packet });
    }

    fn start(&mut self, of: &Who, head: NodeName, behind: Vec<NodeName>) {
        // Forks are one after the other; the processors are shared by the sessions that come up.
        let busy = self.busy_us.entry(of.clone()).or_default();
        *busy = (*busy).max(self.now_us) + FORK_US.max(SSH_CPU_US / CPUS);
        let session = *busy + SSH_US;
        let starter = of.clone();
        match self.fate(&head) {
            Fate::Silent => {}
            Fate::Refuses => self.at(session, Happens::Fails { starter, head }),
            Fate::Lives | Fate::DiesStarting => {
                self.at(session, Happens::Arrives { starter, head, behind });
            }
        }
    }

    fn happen(&mut self, happens: Happens) {
        match happens {
            Happens::Arrives { starter, head, behind } => {
                let count = self.started.entry(head.clone()).or_default();
                *count += 1;
                // The second agent of a node stands in for the first.
                let of = Some((head.clone(), *count));
                self.plant(of.clone(), starter.clone(), behind);
                if self.fate(&head) == Fate::DiesStarting {
                    // The nodes that it has started go on, and their messages are lost.
                    self.trees.remove(&of);
                    self.at(self.now_us + UP_US, Happens::Fails { starter, head });
                    return;
                }
                let packet = TreeMessage::Up { node: head.clone(), pid: 1 }.encode();
                self.at(self.now_us + UP_US + WORD_US, Happens::Packet { starter, head, packet });
            }
            Happens::Fails { starter, head } => {
                let reason = "exit status: 255".to_owned();
                self.feed(&starter, TreeInput::Ended { head, reason, certain: false });
            }
            Happens::Packet { starter, head, packet } => {
                let word = TreeMessage::decode(packet).unwrap();
                self.feed(&starter, TreeInput::Heard { head, word });
            }
            Happens::Tick { starter } => self.feed(&starter, TreeInput::Tick),
        }
    }

    fn seconds(&self) -> f64 {
        self.last_us as f64 / 1e6
    }

    fn up(&self) -> usize {
        let up = |words: &&Vec<TreeMessage>| matches!(words.as_slice(), [TreeMessage::Up { .. }]);
        self.reported.values().filter(up).count()
    }
}

/// The table in `launcher/core/protocol.md` is what the simulation says. `FTB_BLESS=1` writes it.
#[test]
fn the_launch_tree_reaches_ten_thousand_nodes() {
    let mut table = String::from("| nodes | fan-out 4 | 8 | 16 | 32 | 64 | 1024 |\n");
    table.push_str("|---|---|---|---|---|---|---|\n");
    for nodes in [16, 128, 1024, 4096, 10_000] {
        write!(table, "| {nodes} |").unwrap();
        for fanout in [4, 8, 16, 32, 64, 1024] {
            let world = World::run(nodes, fanout, BTreeMap::new());
            assert_eq!(world.up(), nodes, "fan-out {fanout}");
            assert!(world.started.values().all(|count| *count == 1));
            write!(table, " {:.2} s |", world.seconds()).unwrap();
        }
        table.push('\n');
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/protocol.md");
    let book = std::fs::read_to_string(path).unwrap();
    let (start, end) = ("<!-- launch tree -->\n", "<!-- end -->");
    let (head, rest) = book.split_once(start).unwrap();
    let (_, tail) = rest.split_once(end).unwrap();
    ftb_fuzz::kept::assert_file_is_current(path, format!("{head}{start}{table}{end}{tail}"));
}

/// One host in a hundred does not come, in any of three ways, at every place in the tree: every
/// living node is up, and every other is named, once.
#[test]
fn every_node_is_reached_or_named_with_any_death() {
    let nodes = 1_000;
    let kinds = [Fate::Refuses, Fate::Silent, Fate::DiesStarting];
    for seed in 0_u64..20 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let mut fates = BTreeMap::new();
        for index in 0..nodes {
            if next() % 100 == 0 {
                fates.insert(name(index), kinds[(next() % 3) as usize]);
            }
        }
        let fanout = [1, 2, 4, 16, 64][(seed % 5) as usize];
        // A chain of two thousand deadlines takes too long.
        let fanout = if fanout == 1 { 3 } else { fanout };
        let world = World::run(nodes, fanout, fates.clone());
        for index in 0..nodes {
            let node = name(index);
            let words = world.reported.get(&node).cloned().unwrap_or_default();
            let one = words.as_slice();
            match fates.get(&node) {
                None => {
                    assert!(matches!(one, [TreeMessage::Up { .. }]), "seed {seed} {node}: {one:?}")
                }
                Some(fate) => assert!(
                    matches!(one, [TreeMessage::Lost { .. }]),
                    "seed {seed} {node} {fate:?}: {one:?}"
                ),
            }
        }
    }
}
