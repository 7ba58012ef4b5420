//! How images in memory are protected, and how nodes are divided into groups.

use crate::names::NodeName;
use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most copies of a share beside the share itself.
pub const COPIES_MAX: u32 = 8;
/// Largest group that `xor:N` may ask for. Each member serves one stream for each other member.
pub const GROUP_MAX: u32 = 32;

/// The protection of images in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Scheme {
    /// Each share has this number of copies on other nodes.
    Buddy(u32),
    /// Groups of about this number of nodes; each member holds parity of the others' shares.
    Xor(u32),
}

impl Scheme {
    /// How many members of one group may be lost at once.
    pub fn tolerates(self) -> usize {
        match self {
            Self::Buddy(copies) => copies as usize,
            Self::Xor(_) => 1,
        }
    }

    /// Divides nodes into groups. Nodes of one rack come into different groups as far as possible;
    /// a node without a known rack counts as its own rack.
    ///
    /// # Errors
    /// There are too few nodes.
    pub fn groups(
        self,
        nodes: &[NodeName],
        racks: &BTreeMap<NodeName, String>,
    ) -> Result<Vec<Vec<NodeName>>, String> {
        let count = nodes.len();
        let least = self.tolerates() + 1;
        if count < least {
            return Err(format!(
                "{self} needs ranks on at least {least} nodes, and they are on {count}"
            ));
        }
        let groups = match self {
            Self::Buddy(_) => count / least,
            Self::Xor(size) => count.div_ceil(size as usize).min(count / least),
        };
        let mut order: Vec<&NodeName> = nodes.iter().collect();
        order.sort_by_key(|node| (racks.get(*node).map_or(node.as_str(), String::as_str), *node));
        let mut all = vec![Vec::new(); groups];
        // Neighbours in this order share a rack, so they are dealt to different groups.
        for (place, node) in order.into_iter().enumerate() {
            all[place % groups].push(node.clone());
        }
        Ok(all)
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buddy(copies) => write!(f, "buddy:{copies}"),
            Self::Xor(size) => write!(f, "xor:{size}"),
        }
    }
}

impl FromStr for Scheme {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<u32>().ok();
        match text.split_once(':') {
            Some(("buddy", copies)) => match number(copies) {
                Some(copies @ 1..=COPIES_MAX) => Ok(Self::Buddy(copies)),
                _ => Err(format!("buddy:K needs a number of copies from 1 to {COPIES_MAX}")),
            },
            Some(("xor", size)) => match number(size) {
                Some(size @ 2..=GROUP_MAX) => Ok(Self::Xor(size)),
                _ => Err(format!("xor:N needs a number of nodes from 2 to {GROUP_MAX}")),
            },
            _ => Err("expected buddy:K (K copies) or xor:N (groups of N nodes)".to_owned()),
        }
    }
}

impl TryFrom<String> for Scheme {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Scheme> for String {
    fn from(scheme: Scheme) -> Self {
        scheme.to_string()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn nodes(count: usize) -> Vec<NodeName> {
        (0..count).map(|n| NodeName::new(&format!("node{n:03}")).unwrap()).collect()
    }

    proptest! {
        #[test]
        fn every_node_is_in_one_group_and_no_group_is_too_small_or_much_too_large(
            count in 1_usize..200,
            copies in 1..=COPIES_MAX,
            size in 2..=GROUP_MAX,
            is_xor: bool,
        ) {
            let scheme = if is_xor { Scheme::Xor(size) } else { Scheme::Buddy(copies) };
            let least = scheme.tolerates() + 1;
            let all = nodes(count);
            let Ok(groups) = scheme.groups(&all, &BTreeMap::new()) else {
                prop_assert!(count < least);
                return Ok(());
            };
            let members: Vec<&NodeName> = groups.iter().flatten().collect();
            let distinct: BTreeSet<&&NodeName> = members.iter().collect();
            prop_assert_eq!((members.len(), distinct.len()), (count, count));
            for group in &groups {
                prop_assert!(group.len() >= least);
                let most = if is_xor { size as usize + 1 } else { 2 * least - 1 };
                prop_assert!(group.len() <= most, "{} of {}", group.len(), scheme);
            }
        }
    }

    #[test]
    fn nodes_of_one_rack_are_in_different_groups_where_that_is_possible() {
        let all = nodes(16);
        // Four racks of four: each group of four gets one node of each rack.
        let rack = |(place, node): (usize, &NodeName)| (node.clone(), format!("rack{}", place % 4));
        let racks: BTreeMap<NodeName, String> = all.iter().enumerate().map(rack).collect();
        for group in Scheme::Xor(4).groups(&all, &racks).unwrap() {
            let of_group: BTreeSet<&String> = group.iter().map(|node| &racks[node]).collect();
            assert_eq!((group.len(), of_group.len()), (4, 4), "{group:?}");
        }
    }

    #[test]
    fn a_scheme_reads_back_and_a_wrong_one_is_refused_with_the_reason() {
        for scheme in [Scheme::Buddy(1), Scheme::Buddy(8), Scheme::Xor(2), Scheme::Xor(32)] {
            assert_eq!(scheme.to_string().parse(), Ok(scheme));
        }
        for (text, word) in [
            ("xor:1", "2 to 32"),
            ("xor:x", "2 to 32"),
            ("buddy:0", "1 to 8"),
            ("mirror", "expected"),
            ("", "expected"),
        ] {
            let error = text.parse::<Scheme>().unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
