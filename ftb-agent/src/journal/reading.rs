//! Collects entries from chunks: the log at the start, later pages of it.
//!
//! Not responsible for: finding and reading chunks ([`super::log_store`]).

use ftb_core::frame::{Content, Item};
use ftb_core::limits::BATCH_BYTES_TARGET;
use ftb_core::log::conditions::ConditionLimits;
use ftb_core::node::api::{JournalPage, JournalRead};
use ftb_core::node::{Reserve, Retained};
use ftb_core::numbers::LogIndex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of the log examined for one page.
const PAGE_BYTES: u64 = 1024 * 1024;

/// Damage texts of one opening; further damage is not described.
const DAMAGE_MAX: usize = 8;

/// The log read so far.
pub(super) struct Reading {
    pub(super) items: VecDeque<Item>,
    /// The events of conditions before them.
    older: Retained,
    /// Of those before, only conditions count.
    reserve: Reserve,
    bytes: usize,
    bytes_max: usize,
    /// The entries follow this index,
    pub(super) after: LogIndex,
    /// and end with this one.
    pub(super) last: LogIndex,
    /// The oldest segment was seen.
    pub(super) has_oldest: bool,
    /// The first damage found.
    pub(super) damage: Vec<String>,
    /// The log ends before damage; bytes behind its end are void.
    pub(super) is_cut: bool,
}

impl Reading {
    /// An empty log after an index; only the newest `bytes_max` are kept.
    pub(super) fn new(after: LogIndex, bytes_max: usize, conditions: ConditionLimits) -> Self {
        let mark = Some(ftb_proto::event::counted_mark());
        let reserve = Reserve { bytes: 0, protected: Arc::default(), conditions, mark };
        Self {
            reserve,
            items: VecDeque::new(),
            older: Retained::new(LogIndex::ZERO, conditions),
            bytes: 0,
            bytes_max,
            after,
            last: after,
            has_oldest: false,
            damage: Vec::new(),
            is_cut: false,
        }
    }

    /// The log starts after this index.
    pub(super) fn begin(&mut self, after: LogIndex) {
        if after > self.last {
            (self.after, self.last) = (after, after);
        }
    }

    /// Notes damage.
    pub(super) fn damaged(&mut self, what: String) {
        if self.damage.len() < DAMAGE_MAX {
            self.damage.push(what);
        }
    }

    /// Damage that ends the log: nothing behind it is read.
    pub(super) fn end(&mut self, what: String) {
        self.damaged(what);
        self.is_cut = true;
    }

    /// Takes the entries of a chunk. A hole before one of them ends the log.
    pub(super) fn take(&mut self, items: &[Item]) {
        for item in items {
            let Some(item) = item.behind(self.last) else { continue };
            if item.covers_after() != self.last {
                let (from, until) = (self.last + 1, item.covers_after());
                return self.end(format!("entries {from} to {until} cannot be read"));
            }
            self.last = item.index;
            self.bytes += item.content.len();
            self.items.push_back(item);
            while self.bytes > self.bytes_max {
                let Some(oldest) = self.items.pop_front() else { break };
                self.bytes -= oldest.content.len();
                self.after = oldest.index;
                self.take_older(&oldest);
            }
        }
    }

    /// Takes an entry from before those that are kept: only what it states about conditions counts.
    pub(super) fn take_older(&mut self, item: &Item) {
        self.older.take(item, &self.reserve);
    }

    /// The events of conditions before the entries.
    pub(super) fn conditions(&self) -> Vec<Item> {
        self.older.pinned().filter(|item| item.index <= self.after).collect()
    }
}

/// Entries examined for a page.
pub(super) struct Scan<'a> {
    read: &'a JournalRead,
    after: LogIndex,
    entries: Vec<Item>,
    last: LogIndex,
    looked_bytes: u64,
    wanted_bytes: usize,
}

impl<'a> Scan<'a> {
    pub(super) fn new(read: &'a JournalRead) -> Self {
        let after = read.after;
        Self { read, after, entries: Vec::new(), last: after, looked_bytes: 0, wanted_bytes: 0 }
    }

    /// Takes the entries of the next chunk; true if there is room for another.
    pub(super) fn take(&mut self, items: &[Item], bytes: u64) -> bool {
        self.looked_bytes += bytes;
        for item in items {
            let Some(item) = item.behind(self.last) else { continue };
            if self.finds_nothing() && self.is_too_old(&item) {
                self.entries.clear();
                (self.after, self.last) = (item.last(), item.last());
                continue;
            }
            if self.entries.is_empty() {
                self.after = item.covers_after();
            } else if item.covers_after() != self.last {
                return false;
            }
            self.last = item.index;
            if let Content::Events(run) = &item.content {
                let wanted = run.iter().filter(|event| self.read.filters.matches(*event));
                self.wanted_bytes += wanted.map(|event| event.len()).sum::<usize>();
            }
            self.entries.push(item);
        }
        self.looked_bytes < PAGE_BYTES && self.wanted_bytes < BATCH_BYTES_TARGET
    }

    /// Only gaps so far. Gaps before an event that is too old are too old as well.
    fn finds_nothing(&self) -> bool {
        self.read.since_ns.is_some()
            && self.entries.iter().all(|entry| matches!(entry.content, Content::Gap(_)))
    }

    /// Events may be older than their chunk.
    fn is_too_old(&self, item: &Item) -> bool {
        match &item.content {
            Content::Events(run) => {
                self.read.since_ns.is_some_and(|ns| run.iter().all(|e| e.head().time_ns < ns))
            }
            Content::Gap(_) => false,
        }
    }

    pub(super) fn finish(self) -> JournalPage {
        JournalPage::pick(self.read, self.after, self.entries)
    }
}
