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
    /// Members whose nodes were lost and are back without images, by group and member.
    #[serde(default)]
    vacant: BTreeSet<(usize, usize)>,
    /// Copies that a member should have and has not: group, member, and whose share it is. Both
    /// members were lost at once, so there was nothing to copy when this one was gathered.
    #[serde(default)]
    lacking: BTreeSet<(usize, usize, usize)>,
    /// What nodes were asked to gather last.
    #[serde(default)]
    gathers: BTreeMap<NodeName, Gather>,
}

/// A member whose place a node is taking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Gather {
    group: usize,
    member: usize,
    /// Other members that were lost then.
    lost: Vec<usize>,
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
        let (loose, vacant) = (Placement::new(), BTreeSet::new());
        let (lacking, gathers) = (BTreeSet::new(), BTreeMap::new());
        Ok(Self { set, groups, loose, vacant, lacking, gathers })
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

    /// Whether a member has no images: its node is lost, or is back without them.
    fn is_without(&self, group: usize, member: usize, is_gone: &dyn Fn(&NodeName) -> bool) -> bool {
        let of = self.groups.get(group).and_then(|group| group.members.get(member));
        of.is_none_or(|of| is_gone(&of.host)) || self.vacant.contains(&(group, member))
    }

    /// Whether every share of a group is there or can be had. `is_gone`: the node is lost.
    fn is_intact(&self, group: usize, is_gone: &dyn Fn(&NodeName) -> bool) -> bool {
        let Some(of) = self.groups.get(group) else { return true };
        let without = |member: usize| self.is_without(group, member, is_gone);
        let mut lost = (0..of.members.len()).filter(|member| without(*member));
        let copies = |by: usize, ward: usize| !self.lacking.contains(&(group, by, ward));
        match of.scheme {
            Scheme::Xor(_) => lost.count() <= 1,
            Scheme::Buddy(_) => lost
                .all(|ward| of.guards(ward).into_iter().any(|by| !without(by) && copies(by, ward))),
        }
    }

    /// The first group that cannot return all shares. `is_gone`: the node is lost.
    pub fn broken(&self, is_gone: &dyn Fn(&NodeName) -> bool) -> Option<&Group> {
        let at = (0..self.groups.len()).find(|group| !self.is_intact(*group, is_gone))?;
        self.groups.get(at)
    }

    /// The first group that bears fewer losses than its scheme promises. `is_gone`: the node is
    /// lost, or is to be.
    pub fn weakened(&self, is_gone: &dyn Fn(&NodeName) -> bool) -> Option<&Group> {
        let lacks = |group: &usize| self.lacking.iter().any(|(of, ..)| of == group);
        let is_weak = |group: &usize| {
            let members = self.groups[*group].members.len();
            lacks(group) || (0..members).any(|member| self.is_without(*group, member, is_gone))
        };
        let at = (0..self.groups.len()).find(is_weak)?;
        self.groups.get(at)
    }

    /// Whether a share of a member is on that node.
    pub fn is_host(&self, node: &NodeName) -> bool {
        self.groups.iter().flat_map(|group| &group.members).any(|of| of.host == *node)
    }

    /// That node was lost and is back: it has no images.
    pub fn lose(&mut self, node: &NodeName) {
        self.loose.remove(node);
        for (at, group) in self.groups.iter().enumerate() {
            let hosted = group.members.iter().enumerate().filter(|(_, of)| of.host == *node);
            self.vacant.extend(hosted.map(|(member, _)| (at, member)));
        }
    }

    /// Whether that node has the image of that rank.
    pub fn has(&self, node: &NodeName, rank: u32) -> bool {
        let of_group = |(at, group): (usize, &Group)| {
            let image = |of: usize| group.members[of].images.contains_key(&rank);
            let here =
                |by: &usize| group.members[*by].host == *node && !self.vacant.contains(&(at, *by));
            (0..group.members.len()).filter(here).any(|by| {
                let copies = group.wards(by).into_iter();
                let copies = copies.filter(|ward| !self.lacking.contains(&(at, by, *ward)));
                core::iter::once(by).chain(copies).any(image)
            })
        };
        let is_loose = self.loose.get(node).is_some_and(|ranks| ranks.has(rank));
        is_loose || self.groups.iter().enumerate().any(of_group)
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
        let its = |of: &Member| ranks.iter().all(|rank| of.images.contains_key(&rank));
        for (index, group) in self.groups.iter().enumerate() {
            let Some(member) = group.members.iter().position(its) else { continue };
            let host = &group.members[member].host;
            return match self.is_intact(index, is_gone) {
                _ if !self.is_without(index, member, is_gone) => Ok(From::Node(host.clone())),
                true => Ok(From::Group { group: index, member }),
                false => Err(format!("the images of ranks {ranks} in memory are lost")),
            };
        }
        Err(format!("ranks {ranks} are of more than one node's share"))
    }

    /// The task of a node that takes the place of a lost member.
    pub fn gathering(
        &mut self,
        episode: Episode,
        (at, member): (usize, usize),
        target: &NodeName,
        is_gone: &dyn Fn(&NodeName) -> bool,
    ) -> Option<GroupTask> {
        let mut group = self.groups.get(at)?.clone();
        group.members.get_mut(member)?.host = target.clone();
        let lost = (0..group.members.len()).filter(|of| self.is_without(at, *of, is_gone));
        let lost: Vec<usize> = lost.filter(|of| *of != member).collect();
        let asked = Gather { group: at, member, lost: lost.clone() };
        self.gathers.insert(target.clone(), asked);
        let (target, set) = (target.clone(), self.set.clone());
        Some(GroupTask { episode, target, set, group, member, lost, keep: None })
    }

    /// Other requests follow.
    pub fn asks_anew(&mut self) {
        self.gathers.clear();
    }

    /// That node has the images that it was asked for: it takes the place of a member, or has them
    /// beside its share.
    pub fn has_fetched(&mut self, node: &NodeName, ranks: &Ranks) {
        match self.gathers.remove(node) {
            Some(gathered) => self.replace(&gathered, node),
            None => self.loose.entry(node.clone()).or_default().0.extend(ranks.iter()),
        }
    }

    /// That node takes the place of a lost member.
    fn replace(&mut self, Gather { group: at, member, lost }: &Gather, host: &NodeName) {
        let (at, member) = (*at, *member);
        let Some(group) = self.groups.get_mut(at) else { return };
        let wards = group.wards(member);
        let Some(of) = group.members.get_mut(member) else { return };
        of.host = host.clone();
        self.vacant.remove(&(at, member));
        self.lacking.retain(|(of, by, _)| (*of, *by) != (at, member));
        let skipped = wards.into_iter().filter(|ward| lost.contains(ward));
        self.lacking.extend(skipped.map(|ward| (at, member, ward)));
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
        set.gathering(Episode(9), (group, member), &spare, &first).unwrap();
        set.has_fetched(&spare, &ranks);
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
        set.has_fetched(&node(1), &ranks);
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
        set.has_fetched(&spare, &ranks);
        assert!(set.has(&spare, 1) && !set.has(&spare, 0));
    }

    /// Both were lost at once, so neither could copy the other.
    #[test]
    fn a_copy_that_could_not_be_made_after_two_losses_does_not_count() {
        let mut set = made(Scheme::Buddy(2), 4, 1);
        let spares = [NodeName::new("spare1").unwrap(), NodeName::new("spare2").unwrap()];
        let first = |gone: &NodeName| *gone == node(1) || *gone == node(2);
        for (member, spare) in [1, 2].into_iter().zip(&spares) {
            assert_eq!(set.weakened(&first).map(|group| group.members.len()), Some(4));
            let task = set.gathering(Episode(9), (0, member), spare, &first).unwrap();
            assert_eq!(task.lost, [3 - member]);
        }
        set.has_fetched(&spares[0], &Ranks::from_iter([1]));
        set.has_fetched(&spares[1], &Ranks::from_iter([2]));
        assert!(set.has(&spares[0], 3) && !set.has(&spares[0], 2), "member 1 has no copy of 2");
        assert!(set.has(&node(0), 2) && set.weakened(&first).is_some());
        assert!(set.broken(&first).is_none());
        let second = |gone: &NodeName| first(gone) || *gone == spares[1] || *gone == node(0);
        assert!(set.broken(&second).is_some(), "who had copies of 2 are both lost");
        assert!(set.source(&Ranks::from_iter([2]), &second).is_err());
        let other = |gone: &NodeName| first(gone) || *gone == spares[0] || *gone == spares[1];
        assert!(set.broken(&other).is_none());
        // It is lost again, alone: its successor copies all.
        let again = |gone: &NodeName| first(gone) || *gone == spares[0];
        set.gathering(Episode(12), (0, 1), &node(1), &again).unwrap();
        set.has_fetched(&node(1), &Ranks::from_iter([1]));
        assert!(set.has(&node(1), 2) && set.weakened(&|_: &NodeName| false).is_none());
    }

    /// With fewer ranks a node may have the places of two members.
    #[test]
    fn a_node_that_is_back_in_one_of_its_two_places_lacks_the_images_of_the_other() {
        let mut set = made(Scheme::Buddy(1), 4, 1);
        assert_eq!(set.groups.len(), 2);
        let none = |_: &NodeName| false;
        set.gathering(Episode(9), (1, 0), &node(0), &|gone: &NodeName| *gone == node(1)).unwrap();
        set.has_fetched(&node(0), &Ranks::from_iter([1]));
        assert!(set.has(&node(0), 0) && set.has(&node(0), 1));
        set.lose(&node(0));
        assert!(!set.has(&node(0), 0) && !set.has(&node(0), 1));
        set.gathering(Episode(12), (0, 0), &node(0), &none).unwrap();
        set.has_fetched(&node(0), &Ranks::from_iter([0]));
        assert!(set.has(&node(0), 0) && !set.has(&node(0), 1), "it has not gathered the other");
        let from = set.source(&Ranks::from_iter([1]), &none);
        assert_eq!(from, Ok(From::Group { group: 1, member: 0 }));
    }

    /// The node that had them died before the answer was heard.
    #[test]
    fn images_that_were_copied_stay_loose_whatever_is_lost_when_they_are_there() {
        let mut set = made(Scheme::Xor(4), 4, 2);
        let (spare, ranks) = (NodeName::new("spare").unwrap(), Ranks::from_iter([2, 3]));
        let none = |_: &NodeName| false;
        assert_eq!(set.source(&ranks, &none), Ok(From::Node(node(1))));
        set.has_fetched(&spare, &ranks);
        assert!(set.has(&spare, 2) && !set.is_host(&spare));
        let lost = |gone: &NodeName| *gone == node(1);
        assert!(matches!(set.source(&ranks, &lost), Ok(From::Group { .. })));
        assert!(set.broken(&|gone: &NodeName| lost(gone) || *gone == node(2)).is_some());
    }

    #[test]
    fn the_bytes_beside_the_images_are_those_of_the_scheme() {
        let (images, parity) = made(Scheme::Xor(4), 4, 1).bytes();
        assert_eq!((images, parity), (100 + 101 + 102 + 103, 4 * 35));
        let (images, copies) = made(Scheme::Buddy(2), 3, 1).bytes();
        assert_eq!(copies, 2 * images);
    }
}
