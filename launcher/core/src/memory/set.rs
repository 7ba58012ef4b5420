//! Where the images of a set in memory are, what the loss of nodes costs, and where the images of a
//! rank can be had from.

use super::scheme::Scheme;
use super::stripes;
use crate::message::Placement;
use crate::names::{Episode, NodeName, Ranks, SetId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// One node's part of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The node on which these images were made: the name of the share.
    pub owner: NodeName,
    /// The node that has them now.
    pub host: NodeName,
    /// The bytes of each rank's image. In this order they are the share.
    pub images: BTreeMap<u32, u64>,
}

impl Member {
    /// Bytes of the share.
    pub fn bytes(&self) -> u64 {
        self.images.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    pub fn ranks(&self) -> Ranks {
        self.images.keys().copied().collect()
    }
}

/// Nodes that protect each other's images of one set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub scheme: Scheme,
    pub members: Vec<Member>,
}

impl Group {
    /// Bytes of a chunk and of the parity (`xor:N`).
    pub fn chunk_bytes(&self) -> u64 {
        let largest = self.members.iter().map(Member::bytes).max().unwrap_or(0);
        stripes::chunk_bytes(self.members.len(), largest)
    }

    /// The members whose shares this member copies (`buddy:K`).
    pub fn wards(&self, member: usize) -> Vec<usize> {
        let Scheme::Buddy(copies) = self.scheme else { return Vec::new() };
        let count = self.members.len();
        (1..=copies as usize).map(|step| (member + step) % count).filter(|m| *m != member).collect()
    }

    /// The members that have a copy of this member's share (`buddy:K`), the nearest first.
    pub fn guards(&self, member: usize) -> Vec<usize> {
        (0..self.members.len()).filter(|of| self.wards(*of).contains(&member)).collect()
    }

    /// Bytes that the member holds beside its share.
    pub fn protection_bytes(&self, member: usize) -> u64 {
        match self.scheme {
            Scheme::Xor(_) => self.chunk_bytes(),
            Scheme::Buddy(_) => {
                let wards = self.wards(member).into_iter().filter_map(|of| self.members.get(of));
                wards.map(Member::bytes).sum()
            }
        }
    }

    /// Whether every share is there or can be computed. `is_gone`: the node is lost.
    pub fn is_intact(&self, is_gone: &dyn Fn(&NodeName) -> bool) -> bool {
        let gone = |member: usize| self.members.get(member).is_none_or(|of| is_gone(&of.host));
        let mut lost = (0..self.members.len()).filter(|member| gone(*member));
        match self.scheme {
            Scheme::Xor(_) => lost.count() <= 1,
            Scheme::Buddy(_) => lost.all(|of| self.guards(of).into_iter().any(|by| !gone(by))),
        }
    }
}

/// The work of one member, in a request of the JL to its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupTask {
    pub episode: Episode,
    /// The node that does it.
    pub target: NodeName,
    pub set: SetId,
    pub group: Group,
    /// The index of the member whose parity or copies are to be made there.
    pub member: usize,
    /// Members whose nodes are lost.
    #[serde(default)]
    pub lost: Vec<usize>,
    /// Another generation that must stay.
    pub keep: Option<SetId>,
}

impl GroupTask {
    /// The member.
    pub fn who(&self) -> Option<&Member> {
        self.group.members.get(self.member)
    }

    /// The other nodes of the group, whose addresses the target needs.
    pub fn peers(&self) -> impl Iterator<Item = &NodeName> {
        self.group.members.iter().map(|of| &of.host).filter(|host| **host != self.target)
    }
}

/// Where images come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// A node has them.
    Node(NodeName),
    /// The group at this index computes the share of its member at that index.
    Group { group: usize, member: usize },
}

/// A set in memory that every group has protected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySet {
    pub set: SetId,
    pub groups: Vec<Group>,
    /// Images that nodes have beside their shares, because ranks have moved.
    #[serde(default)]
    loose: Placement,
    /// Members' nodes that were lost and are back without images.
    #[serde(default)]
    empty: BTreeSet<NodeName>,
}

impl MemorySet {
    /// A set of these ranks, with images of these sizes.
    ///
    /// # Errors
    /// There are too few nodes, or a size is missing.
    pub fn new(
        set: SetId,
        scheme: Scheme,
        placement: &Placement,
        sizes: &BTreeMap<u32, u64>,
        racks: &BTreeMap<NodeName, String>,
    ) -> Result<Self, String> {
        let nodes: Vec<NodeName> = placement.keys().cloned().collect();
        let member = |node: NodeName| {
            let ranks = placement.get(&node).into_iter().flat_map(Ranks::iter);
            let image = |rank| Some((rank, *sizes.get(&rank)?));
            let images = ranks.map(image).collect::<Option<BTreeMap<_, _>>>();
            let images = images.ok_or("the size of an image is not known")?;
            Ok(Member { owner: node.clone(), host: node, images })
        };
        let group = |nodes: Vec<NodeName>| {
            let members = nodes.into_iter().map(member).collect::<Result<_, String>>()?;
            Ok(Group { scheme, members })
        };
        let groups = scheme.groups(&nodes, racks)?;
        let groups = groups.into_iter().map(group).collect::<Result<_, String>>()?;
        Ok(Self { set, groups, loose: Placement::new(), empty: BTreeSet::new() })
    }

    /// The tasks that protect it.
    pub fn tasks(&self, episode: Episode, keep: Option<&SetId>) -> Vec<GroupTask> {
        let of_group = |group: &Group| {
            let task = |(member, of): (usize, &Member)| GroupTask {
                episode,
                target: of.host.clone(),
                set: self.set.clone(),
                group: group.clone(),
                member,
                lost: Vec::new(),
                keep: keep.cloned(),
            };
            group.members.iter().enumerate().map(task).collect::<Vec<_>>()
        };
        self.groups.iter().flat_map(of_group).collect()
    }

    /// The ranks that have made it.
    pub fn ranks(&self) -> Ranks {
        let members = self.groups.iter().flat_map(|group| &group.members);
        members.flat_map(|of| of.images.keys().copied()).collect()
    }

    /// Of images that a node lacks those of the first share: they can be had together.
    pub fn of_one_share(&self, ranks: &Ranks) -> Ranks {
        let mut members = self.groups.iter().flat_map(|group| &group.members);
        let has = |of: &&Member| ranks.iter().any(|rank| of.images.contains_key(&rank));
        let share = members.find(has).map(Member::ranks).unwrap_or_default();
        ranks.iter().filter(|rank| share.has(*rank)).collect()
    }

    /// Bytes of all images; of the parity and copies beside them.
    pub fn bytes(&self) -> (u64, u64) {
        let images = self.groups.iter().flat_map(|group| &group.members).map(Member::bytes).sum();
        let of_group = |group: &Group| {
            (0..group.members.len()).map(|member| group.protection_bytes(member)).sum::<u64>()
        };
        (images, self.groups.iter().map(of_group).sum())
    }

    /// The first group that cannot return all shares. `is_gone`: the node is lost.
    pub fn broken(&self, is_gone: &dyn Fn(&NodeName) -> bool) -> Option<&Group> {
        let is_gone = |node: &NodeName| is_gone(node) || self.empty.contains(node);
        self.groups.iter().find(|group| !group.is_intact(&is_gone))
    }

    /// That node was lost and is back: it has no images.
    pub fn lose(&mut self, node: &NodeName) {
        self.loose.remove(node);
        self.empty.insert(node.clone());
    }

    /// Whether that node has the image of that rank.
    pub fn has(&self, node: &NodeName, rank: u32) -> bool {
        let of_group = |group: &Group| {
            let here = |member: &usize| group.members[*member].host == *node;
            let members = (0..group.members.len()).filter(here);
            members.flat_map(|by| core::iter::once(by).chain(group.wards(by))).any(|of| {
                group.members.get(of).is_some_and(|member| member.images.contains_key(&rank))
            })
        };
        let is_loose = self.loose.get(node).is_some_and(|ranks| ranks.has(rank));
        is_loose || !self.empty.contains(node) && self.groups.iter().any(of_group)
    }

    /// Where the images of these ranks can be had from.
    ///
    /// # Errors
    /// They are lost, or belong to several shares.
    pub fn source(
        &self,
        ranks: &Ranks,
        is_gone: &dyn Fn(&NodeName) -> bool,
    ) -> Result<From, String> {
        let is_gone = &|node: &NodeName| is_gone(node) || self.empty.contains(node);
        let its = |of: &Member| ranks.iter().all(|rank| of.images.contains_key(&rank));
        for (index, group) in self.groups.iter().enumerate() {
            let Some(member) = group.members.iter().position(its) else { continue };
            let host = &group.members[member].host;
            return match group.is_intact(is_gone) {
                _ if !is_gone(host) => Ok(From::Node(host.clone())),
                true => Ok(From::Group { group: index, member }),
                false => Err(format!("the images of ranks {ranks} in memory are lost")),
            };
        }
        Err(format!("ranks {ranks} are of more than one node's share"))
    }

    /// The task of a node that takes the place of a lost member.
    pub fn gathering(
        &self,
        episode: Episode,
        (group, member): (usize, usize),
        target: &NodeName,
        is_gone: &dyn Fn(&NodeName) -> bool,
    ) -> Option<GroupTask> {
        let mut group = self.groups.get(group)?.clone();
        group.members.get_mut(member)?.host = target.clone();
        let is_gone = |node: &NodeName| is_gone(node) || self.empty.contains(node);
        let lost = (0..group.members.len()).filter(|of| is_gone(&group.members[*of].host));
        let lost = lost.filter(|of| *of != member);
        let (lost, target, set) = (lost.collect(), target.clone(), self.set.clone());
        Some(GroupTask { episode, target, set, group, member, lost, keep: None })
    }

    /// That node takes the place of a lost member.
    pub fn replace(&mut self, group: usize, member: usize, host: &NodeName) {
        let group = self.groups.get_mut(group);
        if let Some(member) = group.and_then(|group| group.members.get_mut(member)) {
            member.host = host.clone();
            self.empty.remove(host);
        }
    }

    /// That node has these images beside its share.
    pub fn add_loose(&mut self, node: &NodeName, ranks: &Ranks) {
        self.loose.entry(node.clone()).or_default().0.extend(ranks.iter());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn node(n: usize) -> NodeName {
        NodeName::new(&format!("node{n:02}")).unwrap()
    }

    fn made(scheme: Scheme, nodes: usize, per_node: u32) -> MemorySet {
        let placement: Placement = (0..nodes)
            .map(|n| (node(n), (n as u32 * per_node..(n as u32 + 1) * per_node).collect()))
            .collect();
        let sizes = (0..nodes as u32 * per_node).map(|rank| (rank, 100 + u64::from(rank)));
        let set = SetId::of_memory(Episode(2));
        MemorySet::new(set, scheme, &placement, &sizes.collect(), &BTreeMap::new()).unwrap()
    }

    proptest! {
        #[test]
        fn a_set_is_intact_exactly_while_no_group_has_lost_more_than_it_bears(
            nodes in 2_usize..24,
            is_xor: bool,
            size in 2_u32..8,
            lost in prop::collection::btree_set(0_usize..24, 0..5),
        ) {
            let scheme = if is_xor { Scheme::Xor(size) } else { Scheme::Buddy(size - 1) };
            prop_assume!(nodes > scheme.tolerates());
            let set = made(scheme, nodes, 2);
            let lost: BTreeSet<NodeName> = lost.into_iter().map(node).collect();
            let is_gone = |node: &NodeName| lost.contains(node);
            let broken = set.broken(&is_gone).is_some();
            let gone = |group: &Group| group.members.iter().filter(|of| is_gone(&of.host)).count();
            let too_many = set.groups.iter().any(|group| gone(group) > scheme.tolerates());
            // Copies in a large group may survive more.
            let agrees = if is_xor { broken == too_many } else { !broken || too_many };
            prop_assert!(agrees, "broken: {}, too many: {}", broken, too_many);
            for n in (0..nodes).filter(|n| lost.contains(&node(*n))) {
                let ranks: Ranks = [2 * n as u32, 2 * n as u32 + 1].into_iter().collect();
                let source = set.source(&ranks, &is_gone);
                prop_assert!(broken || matches!(source, Ok(From::Group { .. })), "{:?}", source);
            }
        }
    }

    #[test]
    fn a_replaced_member_makes_its_group_whole_again() {
        let mut set = made(Scheme::Xor(4), 4, 2);
        let spare = NodeName::new("spare").unwrap();
        let ranks: Ranks = [2, 3].into_iter().collect();
        let first = |gone: &NodeName| *gone == node(1);
        let Ok(From::Group { group, member }) = set.source(&ranks, &first) else { panic!() };
        set.replace(group, member, &spare);
        assert!(set.has(&spare, 2) && set.has(&spare, 3) && !set.has(&node(1), 2));
        let second = |gone: &NodeName| first(gone) || *gone == node(2);
        assert!(set.broken(&second).is_none());
        let third = |gone: &NodeName| second(gone) || *gone == spare;
        assert!(set.broken(&third).is_some());
    }

    /// It may take its own place again.
    #[test]
    fn a_node_that_is_back_has_no_images_until_it_has_gathered_them() {
        let mut set = made(Scheme::Xor(3), 3, 2);
        let ranks: Ranks = [2, 3].into_iter().collect();
        let none = |_: &NodeName| false;
        set.lose(&node(1));
        assert!(!set.has(&node(1), 2) && set.broken(&none).is_none());
        let Ok(From::Group { group, member }) = set.source(&ranks, &none) else { panic!() };
        let task = set.gathering(Episode(9), (group, member), &node(1), &none).unwrap();
        assert_eq!(task.lost, [0_usize; 0], "its own place does not count as lost");
        assert!(set.broken(&|gone: &NodeName| *gone == node(2)).is_some());
        set.replace(group, member, &node(1));
        assert!(set.has(&node(1), 2));
        assert_eq!(set.source(&ranks, &none), Ok(From::Node(node(1))));
    }

    #[test]
    fn moved_ranks_get_their_images_from_the_node_that_they_have_left() {
        let mut set = made(Scheme::Buddy(1), 2, 1);
        let spare = NodeName::new("spare").unwrap();
        let ranks = Ranks::from_iter([1]);
        let none = |_: &NodeName| false;
        assert!(matches!(set.source(&ranks, &none), Ok(From::Node(_))));
        set.add_loose(&spare, &ranks);
        assert!(set.has(&spare, 1) && !set.has(&spare, 0));
    }

    #[test]
    fn the_bytes_beside_the_images_are_those_of_the_scheme() {
        let (images, parity) = made(Scheme::Xor(4), 4, 1).bytes();
        assert_eq!((images, parity), (100 + 101 + 102 + 103, 4 * 35));
        let (images, copies) = made(Scheme::Buddy(2), 3, 1).bytes();
        assert_eq!(copies, 2 * images);
    }
}
