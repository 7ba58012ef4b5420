//! The PMI barrier of the job. Each node reports the ranks that have arrived and their puts. When
//! all ranks have arrived, the puts of all nodes are the result. The last result is kept for nodes
//! that ask again.
//!
//! Ranks of ftb-job that go back in place keep their addresses and put nothing. A node whose ranks
//! have put addresses may have none of before: its result has those of all ranks. The others get
//! the new ones only. The result says which ranks have put one ([`JOINED`]): the others keep their
//! connections.

use super::job::shrink::MEMBERS;
use crate::message::Part;
use crate::names::{NodeName, Ranks};
use crate::nla::pmi::{address_of, split_lines};
use crate::wire::PART_BYTES_MAX;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The key of the ranks that have put their addresses, in the result of a barrier of ftb-job, as
/// `0-2,5`: processes that no rank has met before.
const JOINED: &str = "ftb-joined";

/// What one node has reported of the open barrier.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct NodeArrival {
    ranks: Ranks,
    parts: u32,
    lines: BTreeMap<u32, String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Barrier {
    number: u64,
    nodes: BTreeMap<NodeName, NodeArrival>,
    result: Vec<Part>,
    /// The last address of each rank of ftb-job, by key.
    #[serde(default)]
    addresses: BTreeMap<String, String>,
    /// The last result with all addresses; empty where `result` has them.
    #[serde(default)]
    whole: Vec<Part>,
    /// The nodes that get `whole`.
    #[serde(default)]
    newcomers: BTreeSet<NodeName>,
}

/// The effect of a report.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival<'a> {
    Waiting,
    /// The barrier is complete; all nodes get the same parts.
    Complete(&'a [Part]),
    /// The same, but what a node gets is [`Barrier::result_of`].
    CompleteByNode,
    /// The barrier was complete before. The node gets these parts again: all for its first part,
    /// none for the others.
    Again(&'a [Part]),
    /// The report is of another barrier.
    Stale,
}

impl Barrier {
    pub fn new(number: u64) -> Self {
        Self {
            number,
            nodes: BTreeMap::new(),
            result: Vec::new(),
            addresses: BTreeMap::new(),
            whole: Vec::new(),
            newcomers: BTreeSet::new(),
        }
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// The ranks of that node that have arrived, by its last report.
    pub fn arrived(&self, node: &NodeName) -> Ranks {
        let arrived = self.nodes.get(node);
        arrived.map(|arrived| arrived.ranks.clone()).unwrap_or_default()
    }

    /// Whether all ranks of some node have arrived and others have not.
    pub fn is_entered(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Drops the report of a lost node.
    pub fn forget(&mut self, node: &NodeName) {
        self.nodes.remove(node);
    }

    /// Cancels the open barrier. Its successor has a new number, so that late reports are
    /// recognised.
    pub fn void(&mut self) -> u64 {
        *self = Self::new(self.number + 1);
        self.number
    }

    /// A node reports that `ranks` have arrived.
    /// `size` ranks are awaited; `members` go into the result (`MEMBERS`).
    pub fn on_arrival(
        &mut self,
        node: &NodeName,
        ranks: &Ranks,
        part: Part,
        (size, members): (u32, Option<String>),
    ) -> Arrival<'_> {
        if part.barrier + 1 == self.number && !self.result.is_empty() {
            let result = self.result_of(node);
            return Arrival::Again(if part.part == 0 { result } else { &[] });
        }
        if part.barrier != self.number {
            return Arrival::Stale;
        }
        let arrived = self.nodes.entry(node.clone()).or_default();
        if arrived.ranks != *ranks || arrived.parts != part.parts {
            *arrived =
                NodeArrival { ranks: ranks.clone(), parts: part.parts, lines: BTreeMap::new() };
        }
        arrived.lines.insert(part.part, part.lines);
        let complete = |node: &&NodeArrival| node.lines.len() == node.parts as usize;
        let met = self.nodes.values().filter(complete);
        let all: usize = met.flat_map(|node| node.ranks.iter()).collect::<Ranks>().len();
        if all < size as usize {
            return Arrival::Waiting;
        }
        self.complete(members);
        match self.whole.is_empty() {
            true => Arrival::Complete(&self.result),
            false => Arrival::CompleteByNode,
        }
    }

    /// What that node gets of the last barrier.
    pub fn result_of(&self, node: &NodeName) -> &[Part] {
        let is_whole = self.newcomers.contains(node) && !self.whole.is_empty();
        if is_whole { &self.whole } else { &self.result }
    }

    fn complete(&mut self, members: Option<String>) {
        let (mut puts, mut joined) = (BTreeMap::new(), Ranks::default());
        self.newcomers.clear();
        for (node, arrived) in &self.nodes {
            let lines = arrived.lines.values().flat_map(|text| text.lines());
            for (key, value) in lines.filter_map(|line| line.split_once('=')) {
                let owner = address_of(key);
                // Left by a process that has died, or by one that is elsewhere by now.
                if owner.is_some_and(|rank| !arrived.ranks.has(rank)) {
                    continue;
                }
                puts.insert(key.to_owned(), value.to_owned());
                if let Some(rank) = owner {
                    joined.0.insert(rank);
                    self.newcomers.insert(node.clone());
                    self.addresses.insert(key.to_owned(), value.to_owned());
                }
            }
        }
        let known = self.addresses.len();
        if known > 0 {
            puts.insert(JOINED.to_owned(), joined.ranges());
        }
        puts.extend(members.map(|members| (MEMBERS.to_owned(), members)));
        self.result = self.parts(&puts);
        self.whole.clear();
        if !joined.is_empty() && joined.len() < known {
            puts.extend(self.addresses.clone());
            self.whole = self.parts(&puts);
        }
        self.nodes.clear();
        self.number += 1;
    }

    fn parts(&self, puts: &BTreeMap<String, String>) -> Vec<Part> {
        let texts = split_lines(puts, PART_BYTES_MAX);
        let parts = u32::try_from(texts.len()).unwrap_or(u32::MAX);
        let barrier = self.number;
        (0..).zip(texts).map(|(part, lines)| Part { barrier, part, parts, lines }).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn part(barrier: u64, part: u32, parts: u32, lines: &str) -> Part {
        Part { barrier, part, parts, lines: lines.to_owned() }
    }

    #[test]
    fn a_barrier_opens_when_every_rank_and_every_part_is_there() {
        let (a, b) = (NodeName::new("a").unwrap(), NodeName::new("b").unwrap());
        let (one, two) = (Ranks::from_iter([0, 1]), Ranks::from_iter([2]));
        let mut barrier = Barrier::new(1);
        assert_eq!(
            barrier.on_arrival(&a, &one, part(1, 0, 2, "x=1\n"), (3, None)),
            Arrival::Waiting
        );
        assert_eq!(
            barrier.on_arrival(&b, &two, part(1, 0, 1, "z=3\n"), (3, None)),
            Arrival::Waiting
        );
        let said = barrier.on_arrival(&a, &one, part(1, 1, 2, "y=2\n"), (3, None));
        let Arrival::Complete(parts) = said else { panic!("{said:?}") };
        assert_eq!(parts[0].lines, "x=1\ny=2\nz=3\n");
        let again = barrier.on_arrival(&a, &one, part(1, 0, 2, "x=1\n"), (3, None));
        assert!(matches!(again, Arrival::Again([_])));
        let again = barrier.on_arrival(&a, &one, part(1, 1, 2, "y=2\n"), (3, None));
        assert_eq!(again, Arrival::Again(&[]), "one repetition of all parts gets one result");
        assert_eq!(barrier.on_arrival(&b, &two, part(7, 0, 1, ""), (3, None)), Arrival::Stale);
    }

    /// A report of one part of a rank on a node of its own.
    fn arrive(barrier: &mut Barrier, name: &str, rank: u32, lines: &str) -> bool {
        let (node, ranks) = (NodeName::new(name).unwrap(), Ranks::from_iter([rank]));
        let part = part(barrier.number(), 0, 1, lines);
        let arrival = barrier.on_arrival(&node, &ranks, part, (3, None));
        matches!(arrival, Arrival::Complete(_) | Arrival::CompleteByNode)
    }

    fn lines_of(barrier: &Barrier, name: &str) -> String {
        let parts = barrier.result_of(&NodeName::new(name).unwrap());
        parts.iter().map(|part| part.lines.as_str()).collect()
    }

    #[test]
    fn only_replacements_publish_addresses_and_only_their_nodes_get_those_of_all() {
        let mut barrier = Barrier::new(1);
        for (name, rank) in [("a", 0), ("b", 1), ("c", 2)] {
            arrive(&mut barrier, name, rank, &format!("ftb-addr-{rank}={name}\n"));
        }
        let all = "ftb-addr-0=a\nftb-addr-1=b\nftb-addr-2=c\nftb-joined=0-2\n";
        for node in ["a", "b", "c"] {
            assert_eq!(lines_of(&barrier, node), all);
        }
        // Rank 1 goes on elsewhere, on a node that was in no barrier.
        assert!(!arrive(&mut barrier, "a", 0, ""));
        assert!(!arrive(&mut barrier, "spare", 1, "ftb-addr-1=spare\n"));
        assert!(arrive(&mut barrier, "c", 2, ""));
        for node in ["a", "c"] {
            assert_eq!(lines_of(&barrier, node), "ftb-addr-1=spare\nftb-joined=1\n");
        }
        let whole = "ftb-addr-0=a\nftb-addr-1=spare\nftb-addr-2=c\nftb-joined=1\n";
        assert_eq!(lines_of(&barrier, "spare"), whole);
        let (node, ranks) = (NodeName::new("spare").unwrap(), Ranks::from_iter([1]));
        let Arrival::Again(parts) = barrier.on_arrival(&node, &ranks, part(2, 0, 1, ""), (3, None))
        else {
            panic!("it was complete")
        };
        assert_eq!(parts[0].lines, whole, "a repeated report gets the same");
        // None is replaced.
        for (name, rank) in [("a", 0), ("spare", 1), ("c", 2)] {
            arrive(&mut barrier, name, rank, "");
        }
        assert_eq!(lines_of(&barrier, "spare"), "ftb-joined=\n");
        // A start of all forgets the addresses of before.
        barrier.void();
        for (name, rank) in [("a", 0), ("b", 1), ("c", 2)] {
            arrive(&mut barrier, name, rank, "x=1\n");
        }
        assert_eq!(lines_of(&barrier, "a"), "x=1\n");
    }

    /// A replacement has put its address on a node with other ranks and has died; the next one is
    /// elsewhere.
    #[test]
    fn an_address_counts_only_where_its_rank_has_arrived() {
        let mut barrier = Barrier::new(1);
        assert!(!arrive(&mut barrier, "a", 0, "ftb-addr-0=a\n"));
        assert!(!arrive(&mut barrier, "spare", 1, "ftb-addr-1=spare\n"));
        assert!(arrive(&mut barrier, "x", 2, "ftb-addr-1=dead\nftb-addr-2=x\nk=1\n"));
        let all = "ftb-addr-0=a\nftb-addr-1=spare\nftb-addr-2=x\nftb-joined=0-2\nk=1\n";
        assert_eq!(lines_of(&barrier, "a"), all);
        // The address is not kept for later newcomers either.
        assert!(!arrive(&mut barrier, "a", 0, "ftb-addr-0=new\n"));
        assert!(!arrive(&mut barrier, "spare", 1, ""));
        assert!(arrive(&mut barrier, "x", 2, "ftb-addr-1=dead\n"));
        let whole = "ftb-addr-0=new\nftb-addr-1=spare\nftb-addr-2=x\nftb-joined=0\n";
        assert_eq!(lines_of(&barrier, "a"), whole);
        assert_eq!(lines_of(&barrier, "x"), "ftb-addr-0=new\nftb-joined=0\n");
    }

    #[test]
    fn a_node_that_grows_is_counted_as_it_is_now() {
        let a = NodeName::new("a").unwrap();
        let mut barrier = Barrier::new(4);
        let stayed = Ranks::from_iter([1]);
        assert_eq!(
            barrier.on_arrival(&a, &stayed, part(4, 0, 1, "k=1\n"), (2, None)),
            Arrival::Waiting
        );
        assert_eq!(barrier.arrived(&a), stayed);
        let all = Ranks::from_iter([0, 1]);
        let said = barrier.on_arrival(&a, &all, part(4, 0, 1, "k=1\nl=2\n"), (2, None));
        assert!(matches!(said, Arrival::Complete(_)));
    }

    #[test]
    fn a_void_barrier_takes_nothing_of_before() {
        let a = NodeName::new("a").unwrap();
        let mut barrier = Barrier::new(1);
        assert_eq!(barrier.void(), 2);
        let said = barrier.on_arrival(&a, &Ranks::from_iter([0]), part(1, 0, 1, ""), (1, None));
        assert_eq!(said, Arrival::Stale);
    }
}
