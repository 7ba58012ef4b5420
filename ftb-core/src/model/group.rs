//! Groups: one event, the *fold*, that stands for like events of many publishers, its *members*.
//!
//! Responsible for: what a fold says about its members, and the bytes of that. Not responsible for:
//! which events become members (`node/role/grouping.rs`), or the encoding of events ([`Grouper`]).

use crate::hostlist::{self, Hostlist};
use crate::ident::{EventId, PublisherId};
use crate::numbers::PublisherSeq;
use crate::sealed::{Sealed, SealedRef};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Most events in one fold. With more, it ends early.
pub const GROUP_MEMBERS_MAX: usize = 16_384;
/// Most bytes of an event that joins a group: one of the members carries the fold.
pub const GROUP_EVENT_BYTES_MAX: usize = 64 * 1024;
/// Most bytes that a fold has beside the event that carries it.
pub const GROUP_BYTES_MAX: usize = 896 * 1024;

/// Some events of one publisher in a fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberIds {
    /// Their publisher.
    pub publisher: PublisherId,
    /// The first sequence.
    pub first: PublisherSeq,
    /// The last.
    pub last: PublisherSeq,
    /// The host of the publisher: its index in the host list of the fold.
    pub host: u32,
}

impl MemberIds {
    /// How many events.
    pub fn count(&self) -> u64 {
        self.last - self.first + 1
    }

    /// Their ids.
    pub fn ids(self) -> impl Iterator<Item = EventId> {
        let Self { publisher, first, .. } = self;
        (0..self.count()).map(move |offset| EventId { publisher, seq: first + offset })
    }
}

/// What a fold says beside the member that carries it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupFold {
    /// How many events are in it, its carrier included.
    pub count: u64,
    /// The hosts of their publishers, as ranges.
    pub hosts: String,
    /// The time of the earliest, Unix nanoseconds.
    pub first_ns: u64,
    /// The time of the latest.
    pub last_ns: u64,
    /// The ids ([`read_members`]).
    pub members: Vec<u8>,
}

impl GroupFold {
    /// Of these events, by host.
    pub fn of(hosts: &GroupHosts, (first_ns, last_ns): (u64, u64)) -> Self {
        let mut fold = Self { first_ns, last_ns, ..Self::default() };
        fold.hosts = hostlist::fold(hosts.0.keys().map(|host| &*host.name));
        for (host, publishers) in (0..).zip(hosts.0.values()) {
            for (publisher, seqs) in publishers {
                for (first, last) in ranges(seqs) {
                    let (first, last) = (first.into(), last.into());
                    let members = MemberIds { publisher: *publisher, first, last, host };
                    fold.count += members.count();
                    put_members(members, &mut fold.members);
                }
            }
        }
        fold
    }
}

/// The members of a fold by host and publisher.
#[derive(Clone, Debug, Default)]
pub struct GroupHosts(BTreeMap<HostKey, BTreeMap<PublisherId, BTreeSet<u64>>>);

/// Sorts hosts by the last number in their names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HostKey {
    prefix: Box<str>,
    digits: usize,
    number: Box<str>,
    name: Box<str>,
}

impl HostKey {
    fn of(host: &str) -> Self {
        let name = host.to_ascii_lowercase();
        let end = name.rfind(|c: char| c.is_ascii_digit()).map_or(name.len(), |at| at + 1);
        let head = name[..end].trim_end_matches(|c: char| c.is_ascii_digit());
        let number = name[head.len()..end].trim_start_matches('0');
        let (prefix, digits, number) = (head.into(), number.len(), number.into());
        Self { prefix, digits, number, name: name.into() }
    }
}

impl GroupHosts {
    /// Adds an event of a publisher on a host.
    pub fn insert(&mut self, host: &str, id: EventId) {
        let publishers = self.0.entry(HostKey::of(host)).or_default();
        publishers.entry(id.publisher).or_default().insert(id.seq.get());
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The ranges of numbers.
fn ranges(numbers: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*number) => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    ranges
}

/// Account and token take 16 bytes, the numbers follow as varints: the host as the step from the
/// entry before, the first sequence, how many follow it.
fn put_members(members: MemberIds, out: &mut Vec<u8>) {
    let MemberIds { publisher, first, last, host } = members;
    out.extend_from_slice(&publisher.account.to_le_bytes());
    out.extend_from_slice(&publisher.token.to_le_bytes());
    for number in [host.into(), first.get(), last - first] {
        put_varint(number, out);
    }
}

fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Reads what [`GroupFold::of`] has written.
///
/// # Errors
/// What is wrong: a sequence 0, a range that overflows, too many events, bytes that end early.
pub fn read_members(bytes: &[u8]) -> Result<Vec<MemberIds>, &'static str> {
    let mut rest = bytes;
    let (mut all, mut count) = (Vec::new(), 0_u64);
    while !rest.is_empty() {
        let account = take_fixed(&mut rest)?;
        let token = take_fixed(&mut rest)?;
        let host = take_varint(&mut rest)?;
        let first = take_varint(&mut rest)?;
        let more = take_varint(&mut rest)?;
        let host = u32::try_from(host).map_err(|_| "the host of a member is out of range")?;
        let last = first.checked_add(more).filter(|_| first > 0);
        let last = last.ok_or("a sequence of a member is out of range")?;
        count = count.saturating_add(more).saturating_add(1);
        if count > GROUP_MEMBERS_MAX as u64 {
            return Err("a fold has too many members");
        }
        let publisher = PublisherId { account, token };
        all.push(MemberIds { publisher, first: first.into(), last: last.into(), host });
    }
    Ok(all)
}

fn take_fixed(rest: &mut &[u8]) -> Result<u64, &'static str> {
    let (number, behind) = rest.split_first_chunk().ok_or("the members of a fold end early")?;
    *rest = behind;
    Ok(u64::from_le_bytes(*number))
}

fn take_varint(rest: &mut &[u8]) -> Result<u64, &'static str> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, behind) = rest.split_first().ok_or("the members of a fold end early")?;
        *rest = behind;
        let part = u64::from(byte & 0x7f);
        if part << shift >> shift != part {
            break;
        }
        number |= part << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err("a number of a fold is out of range")
}

/// Checks a fold: members that can be read, of hosts that are in its list, as many as it says.
///
/// # Errors
/// What is wrong.
pub fn check_fold(hosts: &str, members: &[u8], count: u64) -> Result<(), &'static str> {
    let members_of = read_members(members)?;
    if members_of.is_empty() || members_of.iter().map(MemberIds::count).sum::<u64>() != count {
        return Err("a fold has another number of members than it says");
    }
    let bytes_max = GROUP_BYTES_MAX;
    let list = Hostlist::parse_within(hosts, bytes_max).map_err(|_| "a fold has no host list")?;
    match members_of.iter().all(|members| (members.host as usize) < list.len()) {
        true => Ok(()),
        false => Err("a member of a fold has no host"),
    }
}

/// What remains of a fold without some of its members: host list and count.
pub fn remaining(hosts: &str, left: &[MemberIds]) -> (String, u64) {
    let list = Hostlist::parse(hosts).unwrap_or_default();
    let mut indices: Vec<u32> = left.iter().map(|members| members.host).collect();
    indices.dedup();
    let names: Vec<String> = indices.iter().filter_map(|at| list.get(*at as usize)).collect();
    let hosts = hostlist::fold(names.iter().map(String::as_str));
    (hosts, left.iter().map(MemberIds::count).sum())
}

/// The encoding of events, as far as groups need it: the shell's, as all encodings are.
#[derive(Clone, Copy)]
pub struct Grouper {
    /// The values of tags; empty for a tag that it has not. `None`: the event joins no group.
    pub values: for<'a> fn(SealedRef<'a>, &[String]) -> Option<Vec<&'a str>>,
    /// The event as a member. `None`: it is over a bound.
    pub member: fn(SealedRef<'_>) -> Option<Sealed>,
    /// The fold that a member carries. `None`: it is over a bound.
    pub fold: fn(&Sealed, &GroupFold) -> Option<Sealed>,
}

impl fmt::Debug for Grouper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Grouper")
    }
}

/// There is one encoding.
impl PartialEq for Grouper {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Grouper {}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(token: u64, seq: u64) -> EventId {
        EventId { publisher: PublisherId { account: token % 7, token }, seq: seq.into() }
    }

    /// Any events, in any order: the fold names exactly these, with the hosts of each.
    #[test]
    fn a_fold_names_exactly_its_members_and_their_hosts() {
        let mut number = 1_u64;
        for count in [1, 2, 50, 3_000] {
            let mut hosts = GroupHosts::default();
            let mut plain = std::collections::BTreeSet::new();
            for _ in 0..count {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                let (host, seq) = ((number >> 33) % 400, (number >> 50) % 9 + 1);
                let id = id(host * 2 + (number >> 60) % 2, seq);
                hosts.insert(&format!("Node{host}"), id);
                plain.insert((format!("node{host}"), id));
            }
            let fold = GroupFold::of(&hosts, (3, 9));
            assert_eq!(check_fold(&fold.hosts, &fold.members, fold.count), Ok(()));
            let list = Hostlist::parse(&fold.hosts).expect("a host list");
            let members = read_members(&fold.members).expect("members");
            let named = members.iter().flat_map(|m| m.ids().map(|id| (m.host, id)));
            let named: std::collections::BTreeSet<_> =
                named.map(|(host, id)| (list.get(host as usize).expect("a host"), id)).collect();
            assert_eq!((named, fold.count), (plain.clone(), plain.len() as u64));
            let (left, dropped): (Vec<MemberIds>, Vec<MemberIds>) =
                members.iter().partition(|m| m.host % 3 == 1);
            let (hosts, left_count) = remaining(&fold.hosts, &left);
            let gone: u64 = dropped.iter().map(MemberIds::count).sum();
            assert_eq!(left_count + gone, fold.count);
            assert!(left.is_empty() || list.contains_all(&Hostlist::parse(&hosts).expect("one")));
        }
    }

    #[test]
    fn hosts_are_written_in_the_order_of_their_numbers() {
        let mut hosts = GroupHosts::default();
        for number in (1..=4_000).rev() {
            hosts.insert(&format!("node{number}"), id(number, 1));
        }
        hosts.insert("login", id(9_999, 1));
        let fold = GroupFold::of(&hosts, (0, 0));
        assert_eq!(fold.hosts, "login,node[1-4000]");
        assert!(fold.members.len() < 21 * 4_001, "{}", fold.members.len());
    }

    #[test]
    fn bad_members_are_rejected() {
        let mut hosts = GroupHosts::default();
        hosts.insert("node1", id(1, 300));
        let fold = GroupFold::of(&hosts, (0, 0));
        assert!(check_fold("node1", &fold.members, 2).is_err(), "another count");
        assert!(check_fold("node[", &fold.members, 1).is_err(), "no host list");
        assert!(check_fold("", &fold.members, 1).is_err(), "no such host");
        assert!(check_fold("node1", &[], 0).is_err(), "no member");
        for len in 1..fold.members.len() {
            assert!(read_members(&fold.members[..len]).is_err(), "{len}");
        }
        let with = |host: u64, first: u64, more: u64| {
            let mut bytes = vec![0; 16];
            [host, first, more].into_iter().for_each(|number| put_varint(number, &mut bytes));
            read_members(&bytes)
        };
        assert!(with(0, 1, 5).is_ok());
        assert!(with(0, 0, 5).is_err(), "sequences begin at 1");
        assert!(with(1 << 32, 1, 5).is_err());
        assert!(with(0, u64::MAX, 1).is_err());
        assert!(with(0, 1, GROUP_MEMBERS_MAX as u64).is_err());
        let mut long = vec![0; 16];
        long.extend_from_slice(&[0xff; 11]);
        assert!(read_members(&long).is_err());
    }
}
