//! Entries of the log: events, or a gap.

use super::gap::{GAP_BYTES, Gap, GapReason};
use super::position::Position;
use crate::numbers::LogIndex;
use crate::run::Run;

/// What some indices of the log hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Events, one index each.
    Events(Run),
    /// A gap.
    Gap(Gap),
}

impl Content {
    /// How many indices of the log it has.
    pub fn count(&self) -> usize {
        match self {
            Self::Events(run) => run.count(),
            Self::Gap(_) => 1,
        }
    }

    /// Its size in bytes, as logs and queues count it.
    pub fn len(&self) -> usize {
        match self {
            Self::Events(run) => run.len(),
            Self::Gap(gap) => GAP_BYTES + gap.spaces.len(),
        }
    }

    /// Never: a content has a size.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Some indices of the log that follow each other, and what they hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The first index.
    pub index: LogIndex,
    /// What they hold.
    pub content: Content,
}

impl Item {
    /// How many indices.
    pub fn count(&self) -> usize {
        self.content.count()
    }

    /// The last index.
    pub fn last(&self) -> LogIndex {
        self.index + (self.count() as u64 - 1)
    }

    /// Its size in bytes, as queues count it.
    pub fn len(&self) -> usize {
        self.content.len()
    }

    /// Never: an item has a size.
    pub fn is_empty(&self) -> bool {
        self.content.is_empty()
    }

    /// Whether it is a gap that stands for all the indices of a range, up to its own. Any other gap
    /// is an entry of the log: it has one index, and says what is missing elsewhere.
    pub fn is_range(&self) -> bool {
        let Content::Gap(gap) = &self.content else { return false };
        let (after, until) = (gap.after.index, gap.until.index);
        gap.reason == GapReason::Retention
            && until == self.index
            && after < until
            && gap.count.is_none_or(|count| count == until - after)
    }

    /// The last index before it.
    pub fn covers_after(&self) -> LogIndex {
        match &self.content {
            Content::Gap(gap) if self.is_range() => gap.after.index,
            _ => self.index.before(),
        }
    }

    /// The part of a range between two indices.
    fn part_of_range(&self, gap: &Gap, after: LogIndex, until: LogIndex) -> Self {
        let at = |index| match index {
            index if index == gap.after.index => gap.after,
            index => Position { epoch: gap.until.epoch, index },
        };
        let count = gap.count.map(|_| until - after);
        let gap = Gap { after: at(after), until: at(until), count, ..gap.clone() };
        Self { index: until, content: Content::Gap(gap) }
    }

    /// What of it lies after an index; `None` where that is nothing.
    pub fn behind(&self, index: LogIndex) -> Option<Self> {
        if index <= self.covers_after() {
            return Some(self.clone());
        }
        if index >= self.last() {
            return None;
        }
        match &self.content {
            Content::Gap(gap) => Some(self.part_of_range(gap, index, self.index)),
            Content::Events(run) => {
                let skip = usize::try_from(index.next() - self.index).unwrap_or(usize::MAX);
                let content = Content::Events(run.slice(skip..run.count())?);
                Some(Self { index: index.next(), content })
            }
        }
    }

    /// What of it lies not after an index; `None` where that is nothing.
    pub fn up_to(&self, index: LogIndex) -> Option<Self> {
        if self.last() <= index {
            return Some(self.clone());
        }
        if index <= self.covers_after() {
            return None;
        }
        match &self.content {
            Content::Gap(gap) => Some(self.part_of_range(gap, gap.after.index, index)),
            Content::Events(run) => {
                let keep = usize::try_from(index.next() - self.index).unwrap_or(usize::MAX);
                let content = Content::Events(run.slice(0..keep)?);
                Some(Self { index: self.index, content })
            }
        }
    }
}
