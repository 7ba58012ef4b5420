//! Host lists in Slurm's syntax: `login[1-2],node[001-512]`, `rack[1-3]n[01-32]`.
//!
//! Order matters: the index of a host in a member list is its rank, so a host may stand in a list
//! only once. Names compare without case.
//!
//! A list keeps ranges of numbers, as written, and never expands them: `node[000001-262144]` takes
//! less than 1 KiB. Lookups and comparisons calculate with the ranges.

mod block;
mod fold;
mod parse;
mod slot;
#[cfg(test)]
mod tests;

pub use fold::fold;

use crate::limits;
use block::{Block, NUMBER, Name};
use core::fmt;
use parse::Bounds;
use slot::Number;
use std::collections::BTreeMap;

/// Why a text is no host list, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("host list, column {column}: {reason}")]
pub struct HostlistError {
    /// Where, counted in characters from 1.
    pub column: usize,
    /// What is wrong there.
    pub reason: String,
}

/// An ordered list of distinct hosts, kept as ranges.
#[derive(Clone, Debug, Default)]
pub struct Hostlist {
    blocks: Box<[Block]>,
    /// Sorted by shape.
    groups: Box<[ShapeGroup]>,
    count: u32,
}

/// The blocks of one shape, capitals aside.
#[derive(Clone, Debug)]
struct ShapeGroup {
    /// In lower case.
    shape: Box<str>,
    /// Which of their numbers `entries` is sorted by.
    slot: usize,
    /// By number. A group of one block has none.
    entries: Box<[RangeEntry]>,
    /// The first block.
    block: u32,
}

/// A range of numbers, and the block that has it.
#[derive(Clone, Copy, Debug)]
struct RangeEntry {
    first: Number,
    last: Number,
    /// The highest number of this entry and all before it.
    reach: Number,
    block: u32,
}

impl Hostlist {
    /// Reads a list. Blanks around names are allowed.
    ///
    /// # Errors
    /// [`HostlistError`] with the column: an empty name, a bad character, an unclosed bracket, a
    /// range that runs backwards, a host that stands there twice, or more than
    /// [`limits::HOSTLIST_HOSTS_MAX`] hosts.
    pub fn parse(text: &str) -> Result<Self, HostlistError> {
        Self::parse_within(text, usize::MAX)
    }

    /// Reads a list that takes at most `bytes_max` in memory. A longer one is refused before it
    /// takes more.
    ///
    /// # Errors
    /// As [`Hostlist::parse`], or the bound.
    pub fn parse_within(text: &str, bytes_max: usize) -> Result<Self, HostlistError> {
        let bounds = Bounds { hosts_max: limits::HOSTLIST_HOSTS_MAX, bytes_max };
        let read = parse::read(text, bounds)?;
        let list = Self::of(read.blocks);
        if list.bytes() > bytes_max {
            return Err(bounds.bytes_error(1));
        }
        if let Some(index) = list.repeated() {
            let word = read.columns.partition_point(|(start, _)| *start <= index);
            let column = read.columns.get(word.saturating_sub(1)).map_or(1, |(_, column)| *column);
            let host = list.get(index as usize).unwrap_or_default();
            let reason = format!("host {host:?} stands in the list twice");
            return Err(HostlistError { column, reason });
        }
        Ok(list)
    }

    fn of(blocks: Vec<Block>) -> Self {
        let mut by_shape: BTreeMap<Box<str>, Vec<u32>> = BTreeMap::new();
        for (place, block) in (0..).zip(&blocks) {
            by_shape.entry(block.shape.to_ascii_lowercase().into()).or_default().push(place);
        }
        let group = |(shape, places): (Box<str>, Vec<u32>)| ShapeGroup::of(shape, &places, &blocks);
        let groups = by_shape.into_iter().map(group).collect();
        let count = blocks.last().map_or(0, |last| last.start + last.count);
        Self { blocks: blocks.into(), groups, count }
    }

    /// The index of a host that stands in the list twice.
    fn repeated(&self) -> Option<u32> {
        let within = |block: &Block| Some(block.start + block.repeated_host()?.1);
        if let Some(index) = self.blocks.iter().filter_map(within).min() {
            return Some(index);
        }
        let shared = self.groups.iter().flat_map(|group| {
            let pairs = group.entries.iter().flat_map(|entry| {
                group.overlapping(entry.first, entry.last).map(|other| (entry.block, other))
            });
            pairs.filter(|(one, other)| one < other)
        });
        let index = |(one, other): (u32, u32)| {
            let (one, other) = (self.block(one)?, self.block(other)?);
            Some(other.start + one.shared_host(other)?.1)
        };
        shared.filter_map(index).min()
    }

    fn block(&self, place: u32) -> Option<&Block> {
        self.blocks.get(place as usize)
    }

    /// How many hosts.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The host at that index.
    pub fn get(&self, index: usize) -> Option<String> {
        let index = u32::try_from(index).ok().filter(|index| *index < self.count)?;
        let place = self.blocks.partition_point(|block| block.start <= index);
        let block = self.blocks.get(place.checked_sub(1)?)?;
        let mut name = String::with_capacity(block.name_bytes_max());
        block.write_name(index - block.start, &mut name);
        Some(name)
    }

    /// The index of a host.
    pub fn position(&self, host: &str) -> Option<usize> {
        let name = Name::of(host)?;
        let place =
            self.groups.binary_search_by(|group| group.shape.as_bytes().cmp(name.shape())).ok()?;
        let group = &self.groups[place];
        let index = |place: u32| {
            let block = self.block(place)?;
            Some((block.start + block.position(name.numbers())?) as usize)
        };
        if group.entries.is_empty() {
            return index(group.block);
        }
        let number = name.numbers().nth(group.slot).unwrap_or(Number::NONE);
        group.overlapping(number, number).find_map(index)
    }

    /// Whether a host is in the list.
    pub fn contains(&self, host: &str) -> bool {
        self.position(host).is_some()
    }

    /// Whether all hosts of another list are in this one.
    pub fn contains_all(&self, other: &Self) -> bool {
        let all = |theirs: &ShapeGroup| {
            let found = self.groups.binary_search_by(|ours| ours.shape.cmp(&theirs.shape));
            let Some(ours) = found.ok().and_then(|place| self.groups.get(place)) else {
                return false;
            };
            theirs.blocks().filter_map(|place| other.block(place)).all(|block| {
                let shared = |place| self.block(place).map_or(0, |ours| ours.shared_count(block));
                // A host is in one block only: the counts add up.
                ours.blocks().map(shared).sum::<u64>() == u64::from(block.count)
            })
        };
        other.count <= self.count && other.groups.iter().all(all)
    }

    /// Texts in lower case: the name of each host begins with one of them.
    pub fn beginnings(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().map(|group| group.shape.split(NUMBER).next().unwrap_or_default())
    }

    /// All hosts in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = String> {
        (0..self.len()).map(|index| self.get(index).unwrap_or_default())
    }

    /// The bytes that the list takes in memory.
    pub fn bytes(&self) -> usize {
        let blocks: usize = self.blocks.iter().map(Block::bytes).sum();
        let groups = self.groups.iter().map(|group| {
            size_of::<ShapeGroup>() + group.shape.len() + size_of_val(&*group.entries)
        });
        size_of::<Self>() + blocks + groups.sum::<usize>()
    }
}

impl ShapeGroup {
    fn of(shape: Box<str>, places: &[u32], blocks: &[Block]) -> Self {
        let block = places.first().copied().unwrap_or(0);
        if places.len() < 2 {
            return Self { shape, slot: 0, entries: Box::default(), block };
        }
        let entries = |slot: usize| {
            let mut entries = Vec::new();
            for place in places {
                let ranges = blocks[*place as usize].slots.get(slot).map(|slot| slot.ranges());
                let ends = ranges.map(|ranges| ranges.iter().map(|range| range.ends()));
                let add = |(first, last)| RangeEntry { first, last, reach: last, block: *place };
                match ends {
                    Some(ends) => entries.extend(ends.map(add)),
                    None => entries.push(add((Number::NONE, Number::NONE))),
                }
            }
            entries.sort_by_key(|entry| (entry.first, entry.block));
            entries
        };
        // Sorted by the number of which most different ones begin, few blocks are looked at.
        let slots = blocks[block as usize].slots.len();
        let distinct = |slot: &usize| {
            entries(*slot)
                .chunk_by(|one: &RangeEntry, next: &RangeEntry| one.first == next.first)
                .count()
        };
        let slot = (0..slots).max_by_key(distinct).unwrap_or(0);
        let mut entries = entries(slot);
        let mut reach = Number::NONE;
        for entry in &mut entries {
            reach = reach.max(entry.last);
            entry.reach = reach;
        }
        Self { shape, slot, entries: entries.into(), block }
    }

    /// The blocks that have numbers between two, these included, in the slot that sorts them. A
    /// block can come more than once.
    fn overlapping(&self, first: Number, last: Number) -> impl Iterator<Item = u32> {
        let end = self.entries.partition_point(|entry| entry.first <= last);
        let before = self.entries[..end].iter().rev();
        before
            .take_while(move |entry| entry.reach >= first)
            .filter(move |entry| entry.last >= first)
            .map(|entry| entry.block)
    }

    /// All blocks, each once.
    fn blocks(&self) -> impl Iterator<Item = u32> {
        let mut places: Vec<u32> = self.entries.iter().map(|entry| entry.block).collect();
        places.push(self.block);
        places.sort_unstable();
        places.dedup();
        places.into_iter()
    }
}

impl PartialEq for Hostlist {
    /// The same hosts in the same order, written with the same capitals.
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count && (self.blocks == other.blocks || self.iter().eq(other.iter()))
    }
}

impl Eq for Hostlist {}

impl fmt::Display for Hostlist {
    /// The folded form, which parses to the same list.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        for block in &self.blocks {
            if !out.is_empty() {
                out.push(',');
            }
            block.write(&mut out);
        }
        f.write_str(&out)
    }
}
