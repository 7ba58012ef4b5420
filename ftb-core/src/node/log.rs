//! The events that an agent keeps: the whole log at acting root and standby, what passed by at any
//! other agent. Entries rise in index; bounded by whoever pushes.

use crate::frame::{Content, Item};
use std::collections::VecDeque;

/// One entry.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) item: Item,
    /// Delivered here before, in a reign that has lost: local subscriptions skip it.
    pub(super) repeated: bool,
}

/// Entries behind `evicted` up to `last`. Indices may be missing where nobody here wanted them.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    entries: VecDeque<Entry>,
    bytes: usize,
    evicted: u64,
    last: u64,
}

/// What an entry costs beside its event's bytes.
const ENTRY_BYTES: usize = 128;

impl Log {
    /// Nothing yet; the next index is behind `after`.
    pub(super) fn new(after: u64) -> Self {
        Self { entries: VecDeque::new(), bytes: 0, evicted: after, last: after }
    }

    /// The last index that it covers.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Entries up to this index may be gone.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds an entry behind all others; an index that is not is ignored.
    pub(super) fn push(&mut self, item: Item) -> bool {
        if item.index <= self.last {
            return false;
        }
        self.last = item.index;
        self.bytes += item.content.len() + ENTRY_BYTES;
        self.entries.push_back(Entry { item, repeated: false });
        true
    }

    /// Nothing (more) is to come up to this index.
    pub(super) fn cover(&mut self, index: u64) {
        self.last = self.last.max(index);
    }

    fn start(&self, after: u64) -> usize {
        self.entries.partition_point(|entry| entry.item.index <= after)
    }

    /// The entries behind an index.
    pub(super) fn after(&self, after: u64) -> impl Iterator<Item = &Entry> {
        self.entries.range(self.start(after)..)
    }

    /// The entries behind an index, to be marked.
    pub(super) fn after_mut(&mut self, after: u64) -> impl Iterator<Item = &mut Entry> {
        let start = self.start(after);
        self.entries.range_mut(start..)
    }

    /// Bytes of the entries behind an index.
    pub(super) fn bytes_after(&self, after: u64) -> usize {
        self.after(after).map(|entry| entry.item.content.len() + ENTRY_BYTES).sum()
    }

    /// Takes everything behind an index back, because it lies in a reign that has lost.
    pub(super) fn truncate(&mut self, after: u64) {
        while self.entries.back().is_some_and(|entry| entry.item.index > after) {
            if let Some(entry) = self.entries.pop_back() {
                self.bytes -= entry.item.content.len() + ENTRY_BYTES;
            }
        }
        self.last = self.last.min(after);
        self.evicted = self.evicted.min(after);
    }

    /// Gives the oldest entry up, if it is not behind `until`.
    pub(super) fn evict(&mut self, until: u64) -> Option<Entry> {
        if self.entries.front()?.item.index > until {
            return None;
        }
        let entry = self.entries.pop_front()?;
        self.bytes -= entry.item.content.len() + ENTRY_BYTES;
        self.evicted = self.evicted.max(entry.item.index);
        Some(entry)
    }

    /// The index of the first event that is not older than a Unix time, less one.
    pub(super) fn before(&self, since_ns: u64) -> u64 {
        let first = self.entries.iter().find(|entry| match &entry.item.content {
            Content::Event(sealed) => sealed.head().time_ns >= since_ns,
            Content::Gap(_) => false,
        });
        first.map_or(self.last, |entry| entry.item.index - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::sealed;
    use super::*;

    fn item(index: u64) -> Item {
        Item { index, content: Content::Event(sealed(1, index)) }
    }

    #[test]
    fn a_log_counts_its_bytes_through_push_evict_and_truncate() {
        let mut log = Log::new(10);
        for index in [11, 13, 17] {
            assert!(log.push(item(index)));
        }
        assert!(!log.push(item(17)), "an index comes once");
        let indices = |log: &Log, after| -> Vec<u64> {
            log.after(after).map(|entry| entry.item.index).collect()
        };
        assert_eq!(indices(&log, 12), [13, 17]);
        assert!(log.evict(10).is_none());
        assert_eq!(log.evict(11).map(|entry| entry.item.index), Some(11));
        assert_eq!((log.evicted(), log.last()), (11, 17));
        log.truncate(13);
        assert_eq!((indices(&log, 0), log.last()), (vec![13], 13));
        assert_eq!(log.bytes(), log.bytes_after(0));
        log.truncate(0);
        assert_eq!(log.bytes(), 0);
    }
}
