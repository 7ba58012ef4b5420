//! The launch tree as a pure state machine: who starts which launch agent, and what follows from a
//! failed start.
//!
//! The JL starts a few launch agents and hands each a share of the nodes; each of these does the
//! same. The depth grows with the logarithm of the number of nodes. Every starter is a [`Tree`]: it
//! knows its branches and nothing above. Messages go up: a node is up, or it is lost with a reason.
//! A starter names a node whose start failed as lost, and starts the nodes behind it itself.
//!
//! Not responsible for: processes, pipes, ssh, or the effect of a lost node on the job
//! ([`crate::jl`]).

use crate::names::NodeName;
use crate::packet::PacketHead;
use core::time::Duration;
use ftb_core::Now;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Most branches of one starter.
pub const FANOUT_MAX: usize = 4096;
/// Default number of branches.
pub const FANOUT: usize = 16;
/// Default time for a launch agent to come up.
pub const START_DEADLINE: Duration = Duration::from_secs(30);
/// Longest reason that goes up the tree, in bytes.
pub const REASON_BYTES_MAX: usize = 400;
/// Longest packet up the tree, in bytes.
pub const PACKET_BYTES_MAX: usize = 4096;

/// A message up the tree. Only its head is used, so programs on the way (ssh) may write lines too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TreeMessage {
    /// The launch agent of that node runs and receives the JL.
    Up {
        node: NodeName,
        /// Its process id there.
        pid: u32,
    },
    /// The launch agent of that node could not be started, or has ended.
    Lost {
        node: NodeName,
        #[serde(deserialize_with = "read_reason")]
        reason: String,
    },
}

impl PacketHead for TreeMessage {}

impl TreeMessage {
    fn lost(node: NodeName, reason: &str) -> Self {
        Self::Lost { node, reason: short_line(reason) }
    }
}

fn short_line(reason: &str) -> String {
    let mut reason = reason.replace(|c: char| c.is_control(), " ");
    while reason.len() > REASON_BYTES_MAX {
        reason.pop();
    }
    reason
}

fn read_reason<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(|reason| short_line(&reason))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeInput {
    /// It may start its branches.
    Begin,
    /// A message came up through the branch of that node.
    Heard {
        /// The node at the head of the branch.
        head: NodeName,
        word: TreeMessage,
    },
    /// The process that started a branch has ended.
    Ended {
        /// The node at the head of the branch.
        head: NodeName,
        reason: String,
        /// Whether the launch agent itself has ended; otherwise it may only be the connection.
        certain: bool,
    },
    /// A deadline may have passed.
    Tick,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeOutput {
    /// Start the launch agent of `head`, with the nodes that it starts in turn.
    Start {
        head: NodeName,
        /// The nodes that it starts.
        behind: Vec<NodeName>,
    },
    /// End the process that starts this branch.
    GiveUp(NodeName),
    Say(TreeMessage),
}

#[derive(Clone, Debug)]
struct Branch {
    /// Deadline of its head; `None` when it is up.
    deadline_ns: Option<u64>,
    /// Nodes behind the head that have not reported.
    behind: BTreeSet<NodeName>,
}

#[derive(Clone, Debug)]
pub struct Tree {
    fanout: usize,
    deadline: Duration,
    waiting: Vec<NodeName>,
    branches: BTreeMap<NodeName, Branch>,
}

impl Tree {
    /// A starter of `nodes`, with at most `fanout` branches at first; failures may add more.
    pub fn new(nodes: Vec<NodeName>, fanout: usize, deadline: Duration) -> Self {
        let fanout = fanout.clamp(1, FANOUT_MAX);
        Self { fanout, deadline, waiting: nodes, branches: BTreeMap::new() }
    }

    /// When [`TreeInput::Tick`] is due, in monotonic nanoseconds.
    pub fn next_deadline_ns(&self) -> u64 {
        let deadlines = self.branches.values().filter_map(|branch| branch.deadline_ns);
        deadlines.min().unwrap_or(u64::MAX)
    }

    pub fn handle(&mut self, now: Now, input: TreeInput, out: &mut Vec<TreeOutput>) {
        match input {
            TreeInput::Begin => {
                let nodes = core::mem::take(&mut self.waiting);
                self.branch_out(now, nodes, out);
            }
            TreeInput::Heard { head, word } => self.heard(&head, word, out),
            TreeInput::Ended { head, reason, certain } => {
                self.ended(now, &head, &reason, certain, out);
            }
            TreeInput::Tick => self.tick(now, out),
        }
    }

    /// Cuts the nodes into equal shares and starts the first node of each.
    fn branch_out(&mut self, now: Now, nodes: Vec<NodeName>, out: &mut Vec<TreeOutput>) {
        for share in shares(nodes, self.fanout) {
            let mut share = share.into_iter();
            let Some(head) = share.next() else { continue };
            let behind: Vec<NodeName> = share.collect();
            let branch = Branch {
                deadline_ns: Some(now.deadline_ns(self.deadline)),
                behind: behind.iter().cloned().collect(),
            };
            self.branches.insert(head.clone(), branch);
            out.push(TreeOutput::Start { head, behind });
        }
    }

    /// A branch may only report its own nodes.
    fn heard(&mut self, head: &NodeName, word: TreeMessage, out: &mut Vec<TreeOutput>) {
        let Some(branch) = self.branches.get_mut(head) else {
            return;
        };
        let (TreeMessage::Up { node, .. } | TreeMessage::Lost { node, .. }) = &word;
        let known = if node == head {
            matches!(word, TreeMessage::Up { .. }) && branch.deadline_ns.take().is_some()
        } else {
            branch.behind.remove(node) || matches!(word, TreeMessage::Lost { .. })
        };
        if known {
            out.push(TreeOutput::Say(word));
        }
    }

    /// Starts the nodes behind a lost branch from here. Nodes that reported go on by themselves. If
    /// an agent of a node is up without a report, the second agent of the node reports in its
    /// place.
    fn ended(
        &mut self,
        now: Now,
        head: &NodeName,
        reason: &str,
        certain: bool,
        out: &mut Vec<TreeOutput>,
    ) {
        let Some(branch) = self.branches.remove(head) else {
            return;
        };
        if certain || branch.deadline_ns.is_some() {
            out.push(TreeOutput::Say(TreeMessage::lost(head.clone(), reason)));
        }
        self.branch_out(now, branch.behind.into_iter().collect(), out);
    }

    fn tick(&mut self, now: Now, out: &mut Vec<TreeOutput>) {
        let late = |branch: &Branch| branch.deadline_ns.is_some_and(|at| now.mono_ns >= at);
        let heads: Vec<NodeName> =
            self.branches.iter().filter(|(_, b)| late(b)).map(|(head, _)| head.clone()).collect();
        for head in heads {
            out.push(TreeOutput::GiveUp(head.clone()));
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

    fn started(nodes: usize, fanout: usize) -> (Tree, Vec<TreeOutput>) {
        let mut tree = Tree::new((0..nodes).map(node).collect(), fanout, Duration::from_secs(30));
        let mut out = Vec::new();
        tree.handle(at(0), TreeInput::Begin, &mut out);
        (tree, out)
    }

    fn start(head: usize, behind: impl IntoIterator<Item = usize>) -> TreeOutput {
        TreeOutput::Start { head: node(head), behind: behind.into_iter().map(node).collect() }
    }

    fn up(head: usize, of: usize) -> TreeInput {
        TreeInput::Heard { head: node(head), word: TreeMessage::Up { node: node(of), pid: 7 } }
    }

    fn feed(tree: &mut Tree, now: Now, input: TreeInput) -> Vec<TreeOutput> {
        let mut out = Vec::new();
        tree.handle(now, input, &mut out);
        out
    }

    #[test]
    fn shares_are_even_and_complete() {
        let (_, out) = started(8, 3);
        assert_eq!(out, [start(0, 1..3), start(3, 4..6), start(6, 7..8)]);
        assert_eq!(started(2, 3).1, [start(0, []), start(1, [])]);
        assert_eq!(started(0, 3).1, []);
    }

    #[test]
    fn a_head_that_fails_is_named_and_its_share_taken_over() {
        let (mut tree, _) = started(7, 1);
        let reason = "exit 255: no route\nto host".to_owned();
        let ended = TreeInput::Ended { head: node(0), reason, certain: false };
        let out = feed(&mut tree, at(1), ended.clone());
        let lost =
            TreeMessage::Lost { node: node(0), reason: "exit 255: no route to host".to_owned() };
        assert_eq!(out, [TreeOutput::Say(lost), start(1, 2..7)]);
        assert_eq!(feed(&mut tree, at(2), ended), [], "once");
    }

    #[test]
    fn a_head_that_is_silent_is_given_up_at_its_deadline() {
        let (mut tree, _) = started(2, 1);
        assert_eq!(tree.next_deadline_ns(), at(30).mono_ns);
        assert_eq!(feed(&mut tree, at(29), TreeInput::Tick), []);
        let out = feed(&mut tree, at(30), TreeInput::Tick);
        assert_eq!(out[0], TreeOutput::GiveUp(node(0)));
        assert!(
            matches!(&out[1], TreeOutput::Say(TreeMessage::Lost { node: of, .. }) if *of == node(0))
        );
        assert_eq!(out[2], start(1, []));
        assert_eq!(feed(&mut tree, at(31), up(1, 1)).len(), 1);
        assert_eq!(tree.next_deadline_ns(), u64::MAX);
    }

    #[test]
    fn nodes_that_are_up_stay_when_their_branch_goes() {
        let (mut tree, _) = started(4, 1);
        assert_eq!(feed(&mut tree, at(1), up(0, 0)).len(), 1);
        assert_eq!(feed(&mut tree, at(1), up(0, 2)).len(), 1);
        assert_eq!(feed(&mut tree, at(1), up(0, 2)), [], "once");
        let reason = "exit 255".to_owned();
        let ended = TreeInput::Ended { head: node(0), reason, certain: false };
        // Only the connection is over: the head may live, so it is not reported as lost.
        assert_eq!(feed(&mut tree, at(2), ended), [start(1, [3])]);
    }

    #[test]
    fn a_branch_speaks_only_of_its_own() {
        let (mut tree, _) = started(4, 2);
        assert_eq!(feed(&mut tree, at(1), up(0, 3)), []);
        assert_eq!(feed(&mut tree, at(1), up(3, 3)), []);
    }

    #[test]
    fn words_read_back_and_others_are_refused() {
        for word in
            [TreeMessage::Up { node: node(1), pid: 12 }, TreeMessage::lost(node(2), "not there")]
        {
            assert_eq!(TreeMessage::decode(word.clone().encode()), Ok(word));
        }
        for bad in ["", "{}", r#"{"Up":{"node":"n1"}}"#, r#"{"Up":{"node":"../x","pid":3}}"#] {
            assert!(TreeMessage::decode(format!("{bad}\n").into()).is_err(), "{bad}");
        }
        let long = TreeMessage::lost(node(1), &"\u{e9}".repeat(REASON_BYTES_MAX));
        assert!(long.encode().len() <= REASON_BYTES_MAX + 40);
        let foreign = r#"{"Lost":{"node":"n01","reason":"a\n\u001b[2Jb"}}"#;
        let read = TreeMessage::decode(format!("{foreign}\n").into());
        assert_eq!(read, Ok(TreeMessage::lost(node(1), "a  [2Jb")));
        let longest = TreeMessage::lost(node(1), &"\"".repeat(2 * REASON_BYTES_MAX));
        assert!(longest.encode().len() <= PACKET_BYTES_MAX);
    }
}
