//! One reader of the log: a child link or a subscription. It has a place in the log, no queue; only
//! when the log has moved on without it, it keeps what it would have missed, within a bound, and
//! sheds the mildest events first, each hole told.

use super::api::{Gap, GapReason};
use super::log::Log;
use crate::frame::{Content, Item};
use crate::lineage::Lineage;
use crate::sealed::Sealed;
use crate::severity::Severity;
use std::collections::VecDeque;

/// A place in the log.
#[derive(Clone, Debug, Default)]
pub(super) struct Reader {
    /// Everything wanted up to here was read.
    pub(super) cursor: u64,
    kept: VecDeque<Item>,
    kept_bytes: usize,
    /// How many events it has lost by being slow.
    pub(super) shed: u64,
    /// What it wants next is not (all) in the log here and is fetched from above.
    pub(super) catching_up: bool,
    /// It begins with the first event that is not older than this Unix time; 0: where it stands.
    pub(super) since_ns: u64,
}

/// Where a batch ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Bytes after which no further event is added.
    pub(super) bytes: usize,
    /// Most events.
    pub(super) items: usize,
    /// Not behind this index.
    pub(super) until: u64,
    /// Leave out what was delivered here before.
    pub(super) skip_repeated: bool,
}

impl Reader {
    pub(super) fn new(cursor: u64) -> Self {
        Self { cursor, ..Self::default() }
    }

    /// Whether everything up to an index was read, or nothing can be read now.
    pub(super) fn is_at(&self, index: u64) -> bool {
        self.kept.is_empty() && (self.cursor >= index || self.catching_up)
    }

    /// Whether nothing is kept for it.
    pub(super) fn is_drained(&self) -> bool {
        self.kept.is_empty()
    }

    /// Older events have come from above: they are read before the log.
    pub(super) fn fetched(&mut self, items: Vec<Item>, covered: u64) {
        for item in items {
            if item.index > self.cursor {
                self.kept_bytes += item.content.len();
                self.kept.push_back(item);
            }
        }
        self.cursor = self.cursor.max(covered);
    }

    /// Bytes that it pins beside the log.
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Goes back (or on) to an index; what it kept behind it is void.
    pub(super) fn seek(&mut self, index: u64) {
        self.cursor = index;
        while self.kept.back().is_some_and(|item| item.index > index) {
            if let Some(item) = self.kept.pop_back() {
                self.kept_bytes -= item.content.len();
            }
        }
    }

    /// Reads on: what is wanted, up to the cut. The cursor moves behind what was examined.
    pub(super) fn read(
        &mut self,
        log: &Log,
        cut: Cut,
        mut wants: impl FnMut(&Sealed) -> bool,
    ) -> Vec<Item> {
        let mut items = Vec::new();
        let mut bytes = 0;
        while items.len() < cut.items && bytes < cut.bytes {
            let Some(item) = self.kept.pop_front() else { break };
            self.kept_bytes -= item.content.len();
            bytes += item.content.len();
            items.push(item);
        }
        if !self.kept.is_empty() || self.catching_up {
            return items;
        }
        for entry in log.after(self.cursor) {
            if entry.item.index > cut.until || items.len() >= cut.items || bytes >= cut.bytes {
                self.cursor = self.cursor.max((entry.item.index - 1).min(cut.until));
                return items;
            }
            self.cursor = entry.item.index;
            let wanted = match &entry.item.content {
                Content::Event(sealed) => !(cut.skip_repeated && entry.repeated) && wants(sealed),
                Content::Gap(_) => true,
            };
            if wanted {
                bytes += entry.item.content.len();
                items.push(entry.item.clone());
            }
        }
        self.cursor = self.cursor.max(cut.until);
        items
    }

    /// The log gives up an entry that this reader wants and has not read: it keeps it, within the
    /// bound, and sheds the mildest beyond. One that catches up fetches it.
    pub(super) fn keep(&mut self, item: &Item, bytes_max: usize, lineage: &Lineage) {
        if self.catching_up {
            return;
        }
        self.cursor = self.cursor.max(item.index);
        self.kept_bytes += item.content.len();
        self.kept.push_back(item.clone());
        while self.kept_bytes > bytes_max {
            let events = self.kept.iter().filter_map(|item| match &item.content {
                Content::Event(sealed) => Some(sealed.severity()),
                Content::Gap(_) => None,
            });
            let Some(mildest) = events.min() else { break };
            // The lane that is reserved for FATAL.
            if mildest == Severity::Fatal && self.kept_bytes <= bytes_max + bytes_max / 4 {
                break;
            }
            self.shed_all(mildest, lineage);
        }
    }

    /// Turns every kept event of a severity into a hole that is told; neighbouring holes merge.
    fn shed_all(&mut self, severity: Severity, lineage: &Lineage) {
        let kept = std::mem::take(&mut self.kept);
        self.kept_bytes = 0;
        for mut item in kept {
            if let Content::Event(sealed) = &item.content
                && sealed.severity() == severity
            {
                self.shed += 1;
                item.content = Content::Gap(Gap {
                    after: lineage.position(item.index.saturating_sub(1)),
                    until: lineage.position(item.index),
                    reason: GapReason::Shed,
                    count: 1,
                    severity_max: Some(severity),
                });
            }
            if let Content::Gap(gap) = &item.content
                && let Some(Item { index, content: Content::Gap(last) }) = self.kept.back_mut()
                && last.reason == gap.reason
                && last.reason == GapReason::Shed
            {
                *index = item.index;
                last.until = gap.until;
                last.count += gap.count;
                last.severity_max = last.severity_max.max(gap.severity_max);
                continue;
            }
            self.kept_bytes += item.content.len();
            self.kept.push_back(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::sealed_with;
    use super::*;

    fn log_of(severities: &[Severity]) -> Log {
        let mut log = Log::new(0);
        for (at, severity) in severities.iter().enumerate() {
            let index = at as u64 + 1;
            log.push(Item { index, content: Content::Event(sealed_with(1, index, *severity)) });
        }
        log
    }

    fn cut(items: usize, until: u64) -> Cut {
        Cut { bytes: usize::MAX, items, until, skip_repeated: true }
    }

    #[test]
    fn a_reader_reads_everything_once_in_batches_and_not_behind_the_cut() {
        let log = log_of(&[Severity::Info; 10]);
        let mut reader = Reader::new(2);
        let mut read = Vec::new();
        for _ in 0..5 {
            read.extend(reader.read(&log, cut(3, 8), |_| true).into_iter().map(|i| i.index));
        }
        assert_eq!(read, [3, 4, 5, 6, 7, 8]);
        assert!(reader.is_at(8) && !reader.is_at(9));
        assert!(reader.read(&log, cut(3, 10), |_| false).is_empty());
        assert!(reader.is_at(10));
    }

    #[test]
    fn what_a_slow_reader_loses_is_the_mildest_and_every_loss_is_told() {
        use Severity::{Error, Fatal, Info, Warning};
        let severities = [Info, Fatal, Info, Warning, Error, Info, Info, Fatal];
        let mut log = log_of(&severities);
        let one = log.after(0).map(|entry| entry.item.content.len()).max().unwrap_or(0);
        let mut reader = Reader::new(0);
        while let Some(entry) = log.evict(8) {
            reader.keep(&entry.item, 4 * one, &Lineage::new());
        }
        let mut got = Vec::new();
        let mut told = 0;
        for item in reader.read(&log, cut(100, 8), |_| true) {
            match item.content {
                Content::Event(sealed) => got.push(sealed.severity()),
                Content::Gap(gap) => {
                    assert!(gap.severity_max <= Some(Warning));
                    told += gap.count;
                }
            }
        }
        assert_eq!(got.iter().filter(|severity| **severity == Fatal).count(), 2);
        assert!(got.contains(&Error) && !got.contains(&Info));
        assert_eq!(got.len() as u64 + told, severities.len() as u64);
        assert_eq!(reader.shed, told);
        assert_eq!(reader.kept_bytes(), 0);
    }
}
