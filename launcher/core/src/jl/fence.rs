//! The joining of a PMI fence: every node says who is in and what they put; when all ranks of the job are
//! in, the puts of all are the result. The last result is kept, for a node that asks again.

use crate::message::Part;
use crate::names::{NodeName, Ranks};
use crate::nla::pmi::split_lines;
use crate::wire::PART_BYTES_MAX;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What one node has said of the open fence.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Inside {
    ranks: Ranks,
    parts: u32,
    lines: BTreeMap<u32, String>,
}

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fence {
    number: u64,
    nodes: BTreeMap<NodeName, Inside>,
    result: Vec<Part>,
}

/// What a node's word led to.
#[derive(Debug, PartialEq, Eq)]
pub enum Said<'a> {
    /// Others are missing.
    Waiting,
    /// The fence is complete: these parts are for everybody.
    Complete(&'a [Part]),
    /// That fence is complete already: the same parts again.
    Again(&'a [Part]),
    /// A fence of another time.
    Stale,
}

impl Fence {
    /// The open fence has this number.
    pub fn new(number: u64) -> Self {
        Self { number, nodes: BTreeMap::new(), result: Vec::new() }
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Who is in, on that node, as it said last.
    pub fn inside(&self, node: &NodeName) -> Ranks {
        let inside = self.nodes.get(node);
        inside.map(|inside| inside.ranks.clone()).unwrap_or_default()
    }

    /// Whether all ranks of some node are in, and others are not.
    pub fn is_entered(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// A node is lost: what it said of the open fence does not count.
    pub fn forget(&mut self, node: &NodeName) {
        self.nodes.remove(node);
    }

    /// The open fence is void; the next number counts, so that what is still under way for the old one is
    /// recognised.
    pub fn void(&mut self) -> u64 {
        *self = Self::new(self.number + 1);
        self.number
    }

    /// A node says that `ranks` are in.
    pub fn said(&mut self, node: &NodeName, ranks: &Ranks, part: Part, size: u32) -> Said<'_> {
        if part.fence + 1 == self.number && !self.result.is_empty() {
            return Said::Again(&self.result);
        }
        if part.fence != self.number {
            return Said::Stale;
        }
        let inside = self.nodes.entry(node.clone()).or_default();
        if inside.ranks != *ranks || inside.parts != part.parts {
            *inside = Inside { ranks: ranks.clone(), parts: part.parts, lines: BTreeMap::new() };
        }
        inside.lines.insert(part.part, part.lines);
        let complete = |node: &&Inside| node.lines.len() == node.parts as usize;
        let met = self.nodes.values().filter(complete);
        let all: usize = met.flat_map(|node| node.ranks.iter()).collect::<Ranks>().len();
        if all < size as usize {
            return Said::Waiting;
        }
        self.complete();
        Said::Complete(&self.result)
    }

    fn complete(&mut self) {
        let mut puts = BTreeMap::new();
        for inside in self.nodes.values() {
            let lines = inside.lines.values().flat_map(|text| text.lines());
            for (key, value) in lines.filter_map(|line| line.split_once('=')) {
                puts.insert(key.to_owned(), value.to_owned());
            }
        }
        let texts = split_lines(&puts, PART_BYTES_MAX);
        let parts = u32::try_from(texts.len()).unwrap_or(u32::MAX);
        let fence = self.number;
        self.result =
            (0..).zip(texts).map(|(part, lines)| Part { fence, part, parts, lines }).collect();
        self.nodes.clear();
        self.number += 1;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn part(fence: u64, part: u32, parts: u32, lines: &str) -> Part {
        Part { fence, part, parts, lines: lines.to_owned() }
    }

    #[test]
    fn a_fence_opens_when_every_rank_and_every_part_is_there() {
        let (a, b) = (NodeName::new("a").unwrap(), NodeName::new("b").unwrap());
        let (one, two) = (Ranks::from_iter([0, 1]), Ranks::from_iter([2]));
        let mut fence = Fence::new(1);
        assert_eq!(fence.said(&a, &one, part(1, 0, 2, "x=1\n"), 3), Said::Waiting);
        assert_eq!(fence.said(&b, &two, part(1, 0, 1, "z=3\n"), 3), Said::Waiting);
        let said = fence.said(&a, &one, part(1, 1, 2, "y=2\n"), 3);
        let Said::Complete(parts) = said else { panic!("{said:?}") };
        assert_eq!(parts[0].lines, "x=1\ny=2\nz=3\n");
        let again = fence.said(&b, &two, part(1, 0, 1, "z=3\n"), 3);
        assert!(matches!(again, Said::Again(_)));
        assert_eq!(fence.said(&b, &two, part(7, 0, 1, ""), 3), Said::Stale);
    }

    #[test]
    fn a_node_that_grows_is_counted_as_it_is_now() {
        let a = NodeName::new("a").unwrap();
        let mut fence = Fence::new(4);
        let stayed = Ranks::from_iter([1]);
        assert_eq!(fence.said(&a, &stayed, part(4, 0, 1, "k=1\n"), 2), Said::Waiting);
        assert_eq!(fence.inside(&a), stayed);
        let all = Ranks::from_iter([0, 1]);
        let said = fence.said(&a, &all, part(4, 0, 1, "k=1\nl=2\n"), 2);
        assert!(matches!(said, Said::Complete(_)));
    }

    #[test]
    fn a_void_fence_takes_nothing_of_before() {
        let a = NodeName::new("a").unwrap();
        let mut fence = Fence::new(1);
        assert_eq!(fence.void(), 2);
        let said = fence.said(&a, &Ranks::from_iter([0]), part(1, 0, 1, ""), 1);
        assert_eq!(said, Said::Stale);
    }
}
