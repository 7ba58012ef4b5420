//! The launch tree as a pure state machine: who starts whose launch agent, and what is done when one does not come.
//!
//! The job launcher starts a few launch agents and hands each a share of the rest; each of those does the same, so
//! all nodes are reached in a number of steps that grows with the logarithm of their number. Everyone who has
//! started others is a [`Tree`]: it knows its branches and nothing of the tree above it. Words go up, from each
//! agent to the one that has started it: this node is up, that node is lost, with the reason. A node whose
//! start fails is named lost by its starter, which then reaches for the nodes behind it itself.
//!
//! Not responsible for: processes, pipes, ssh ([`crate::shell::starter`]), or what a lost node means for the job
//! ([`crate::jl`]).

use crate::names::NodeName;
use core::fmt;
use core::str::FromStr;
use core::time::Duration;
use ftb_core::Now;
use std::collections::{BTreeMap, BTreeSet};

/// Most branches of one starter.
pub const FANOUT_MAX: usize = 4096;
/// Branches of one starter, where nothing else is said.
pub const FANOUT: usize = 16;
/// How long a launch agent may take to come up, where nothing else is said.
pub const START_DEADLINE: Duration = Duration::from_secs(30);
/// Longest reason that goes up the tree, in bytes.
pub const REASON_BYTES_MAX: usize = 400;

/// What goes up the tree: one line `up NODE PID` or `lost NODE REASON`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// The launch agent of that node runs and hears the job launcher.
    Up {
        /// Which node.
        node: NodeName,
        /// Its process id there.
        pid: u32,
    },
    /// The launch agent of that node could not be started, or has ended.
    Lost {
        /// Which node.
        node: NodeName,
        /// How that is known.
        reason: String,
    },
}

impl Word {
    fn lost(node: NodeName, reason: &str) -> Self {
        let mut reason = reason.replace(['\n', '\r'], " ");
        while reason.len() > REASON_BYTES_MAX {
            reason.pop();
        }
        Self::Lost { node, reason }
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Up { node, pid } => write!(f, "up {node} {pid}"),
            Self::Lost { node, reason } => write!(f, "lost {node} {reason}"),
        }
    }
}

impl FromStr for Word {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let bad = || format!("{:.60?} is no word of a launch agent", line);
        let (word, rest) = line.trim_end().split_once(' ').ok_or_else(bad)?;
        let (node, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let node = NodeName::new(node).map_err(|_| bad())?;
        match word {
            "up" => Ok(Self::Up { node, pid: rest.parse().map_err(|_| bad())? }),
            "lost" => Ok(Self::lost(node, rest)),
            _ => Err(bad()),
        }
    }
}

/// What happens to a starter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// It may start its branches.
    Begin,
    /// A word came up through the branch of that node.
    Heard {
        /// The node at the head of the branch.
        head: NodeName,
        /// What it says.
        word: Word,
    },
    /// The process that has started a branch is over.
    Ended {
        /// The node at the head of the branch.
        head: NodeName,
        /// How, in words.
        reason: String,
        /// Whether the launch agent itself is known to be over; else it may only be the connection.
        certain: bool,
    },
    /// A deadline may have passed.
    Tick,
}

/// What the shell is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Start the launch agent of `head` and hand it the nodes behind it.
    Start {
        /// Which.
        head: NodeName,
        /// The nodes that it starts.
        behind: Vec<NodeName>,
    },
    /// Give the start of that branch up: end its process.
    GiveUp(NodeName),
    /// Say it upwards.
    Say(Word),
}

#[derive(Clone, Debug)]
struct Branch {
    /// Until when its head must be up; `None` when it is.
    deadline_ns: Option<u64>,
    /// Nodes behind the head of which no word has come.
    behind: BTreeSet<NodeName>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Tree {
    fanout: usize,
    deadline: Duration,
    waiting: Vec<NodeName>,
    branches: BTreeMap<NodeName, Branch>,
}

impl Tree {
    /// A starter of `nodes`, with at most `fanout` branches at first (more where a branch fails).
    pub fn new(nodes: Vec<NodeName>, fanout: usize, deadline: Duration) -> Self {
        let fanout = fanout.clamp(1, FANOUT_MAX);
        Self { fanout, deadline, waiting: nodes, branches: BTreeMap::new() }
    }

    /// The next moment at which [`Input::Tick`] is wanted, in monotonic nanoseconds.
    pub fn next_deadline_ns(&self) -> u64 {
        let deadlines = self.branches.values().filter_map(|branch| branch.deadline_ns);
        deadlines.min().unwrap_or(u64::MAX)
    }

    /// One input.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Begin => {
                let nodes = core::mem::take(&mut self.waiting);
                self.branch_out(now, nodes, out);
            }
            Input::Heard { head, word } => self.heard(&head, word, out),
            Input::Ended { head, reason, certain } => {
                self.ended(now, &head, &reason, certain, out);
            }
            Input::Tick => self.tick(now, out),
        }
    }

    /// Cuts the nodes into shares of equal size, and starts the first node of each.
    fn branch_out(&mut self, now: Now, nodes: Vec<NodeName>, out: &mut Vec<Output>) {
        for share in shares(nodes, self.fanout) {
            let mut share = share.into_iter();
            let Some(head) = share.next() else { continue };
            let behind: Vec<NodeName> = share.collect();
            let branch = Branch {
                deadline_ns: Some(now.deadline_ns(self.deadline)),
                behind: behind.iter().cloned().collect(),
            };
            self.branches.insert(head.clone(), branch);
            out.push(Output::Start { head, behind });
        }
    }

    /// A branch speaks only of its own nodes.
    fn heard(&mut self, head: &NodeName, word: Word, out: &mut Vec<Output>) {
        let Some(branch) = self.branches.get_mut(head) else {
            return;
        };
        let (Word::Up { node, .. } | Word::Lost { node, .. }) = &word;
        let known = if node == head {
            matches!(word, Word::Up { .. }) && branch.deadline_ns.take().is_some()
        } else {
            branch.behind.remove(node) || matches!(word, Word::Lost { .. })
        };
        if known {
            out.push(Output::Say(word));
        }
    }

    /// Nodes behind a branch that is gone are started from here. Those of which a word has come go on by
    /// themselves; where one is up without a word, the second agent of the node says so in its place.
    fn ended(
        &mut self,
        now: Now,
        head: &NodeName,
        reason: &str,
        certain: bool,
        out: &mut Vec<Output>,
    ) {
        let Some(branch) = self.branches.remove(head) else {
            return;
        };
        if certain || branch.deadline_ns.is_some() {
            out.push(Output::Say(Word::lost(head.clone(), reason)));
        }
        self.branch_out(now, branch.behind.into_iter().collect(), out);
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Output>) {
        let late = |branch: &Branch| branch.deadline_ns.is_some_and(|at| now.mono_ns >= at);
        let heads: Vec<NodeName> =
            self.branches.iter().filter(|(_, b)| late(b)).map(|(head, _)| head.clone()).collect();
        for head in heads {
            out.push(Output::GiveUp(head.clone()));
            let reason = format!(
                "its launch agent did not come up within {}",
                humantime::format_duration(self.deadline)
            );
            self.ended(now, &head, &reason, true, out);
        }
    }
}

/// At most `count` shares of `nodes`, in order, whose sizes differ by at most one.
fn shares(nodes: Vec<NodeName>, count: usize) -> Vec<Vec<NodeName>> {
    let count = count.min(nodes.len());
    let mut shares = Vec::with_capacity(count);
    let mut left = nodes.into_iter();
    for index in 0..count {
        let size = left.len().div_ceil(count - index);
        shares.push(left.by_ref().take(size).collect());
    }
    shares
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn node(n: usize) -> NodeName {
        NodeName::new(&format!("n{n:02}")).unwrap()
    }

    fn at(s: u64) -> Now {
        Now { mono_ns: s * 1_000_000_000, wall_ns: 0 }
    }

    fn begun(nodes: usize, fanout: usize) -> (Tree, Vec<Output>) {
        let mut tree = Tree::new((0..nodes).map(node).collect(), fanout, Duration::from_secs(30));
        let mut out = Vec::new();
        tree.handle(at(0), Input::Begin, &mut out);
        (tree, out)
    }

    fn start(head: usize, behind: impl IntoIterator<Item = usize>) -> Output {
        Output::Start { head: node(head), behind: behind.into_iter().map(node).collect() }
    }

    fn up(head: usize, of: usize) -> Input {
        Input::Heard { head: node(head), word: Word::Up { node: node(of), pid: 7 } }
    }

    fn feed(tree: &mut Tree, now: Now, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        tree.handle(now, input, &mut out);
        out
    }

    #[test]
    fn shares_are_even_and_complete() {
        let (_, out) = begun(8, 3);
        assert_eq!(out, [start(0, 1..3), start(3, 4..6), start(6, 7..8)]);
        assert_eq!(begun(2, 3).1, [start(0, []), start(1, [])]);
        assert_eq!(begun(0, 3).1, []);
    }

    #[test]
    fn a_head_that_fails_is_named_and_its_share_taken_over() {
        let (mut tree, _) = begun(7, 1);
        let reason = "exit 255: no route\nto host".to_owned();
        let ended = Input::Ended { head: node(0), reason, certain: false };
        let out = feed(&mut tree, at(1), ended.clone());
        let lost = Word::Lost { node: node(0), reason: "exit 255: no route to host".to_owned() };
        assert_eq!(out, [Output::Say(lost), start(1, 2..7)]);
        assert_eq!(feed(&mut tree, at(2), ended), [], "once");
    }

    #[test]
    fn a_head_that_is_silent_is_given_up_at_its_deadline() {
        let (mut tree, _) = begun(2, 1);
        assert_eq!(tree.next_deadline_ns(), at(30).mono_ns);
        assert_eq!(feed(&mut tree, at(29), Input::Tick), []);
        let out = feed(&mut tree, at(30), Input::Tick);
        assert_eq!(out[0], Output::GiveUp(node(0)));
        assert!(matches!(&out[1], Output::Say(Word::Lost { node: of, .. }) if *of == node(0)));
        assert_eq!(out[2], start(1, []));
        assert_eq!(feed(&mut tree, at(31), up(1, 1)).len(), 1);
        assert_eq!(tree.next_deadline_ns(), u64::MAX);
    }

    #[test]
    fn who_is_up_stays_when_the_branch_goes_and_the_rest_is_started_again() {
        let (mut tree, _) = begun(4, 1);
        assert_eq!(feed(&mut tree, at(1), up(0, 0)).len(), 1);
        assert_eq!(feed(&mut tree, at(1), up(0, 2)).len(), 1);
        assert_eq!(feed(&mut tree, at(1), up(0, 2)), [], "once");
        let reason = "exit 255".to_owned();
        let ended = Input::Ended { head: node(0), reason, certain: false };
        // Only the connection is over: the head itself may live, and nobody says that it is lost.
        assert_eq!(feed(&mut tree, at(2), ended), [start(1, [3])]);
    }

    #[test]
    fn a_branch_speaks_only_of_its_own() {
        let (mut tree, _) = begun(4, 2);
        assert_eq!(feed(&mut tree, at(1), up(0, 3)), []);
        assert_eq!(feed(&mut tree, at(1), up(3, 3)), []);
    }

    #[test]
    fn words_read_back_and_others_are_refused() {
        for word in [Word::Up { node: node(1), pid: 12 }, Word::lost(node(2), "not there")] {
            assert_eq!(word.to_string().parse(), Ok(word));
        }
        for bad in ["", "up", "up n1", "up n1 x", "down n1 3", "up ../x 3"] {
            assert!(bad.parse::<Word>().is_err(), "{bad}");
        }
        let long = Word::lost(node(1), &"é".repeat(REASON_BYTES_MAX));
        assert!(long.to_string().len() <= REASON_BYTES_MAX + 10);
    }
}
