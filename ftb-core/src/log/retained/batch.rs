//! Batches of retained events, and a walk through them.

use super::{BATCH_BYTES, EVENT_BYTES};
use crate::log::item::{Content, Item};
use crate::numbers::LogIndex;
use crate::run::Run;
use core::ops::Range;
use std::collections::VecDeque;

/// Some retained events of one severity and share, rising in index.
#[derive(Clone, Debug)]
pub(super) struct RetainedBatch {
    /// The index of the first.
    pub(super) first: LogIndex,
    /// The indices of all, where they do not follow each other.
    indices: Option<Box<[LogIndex]>>,
    pub(super) run: Run,
}

impl RetainedBatch {
    pub(super) fn index(&self, place: usize) -> LogIndex {
        match &self.indices {
            Some(indices) => indices.get(place).copied().unwrap_or(LogIndex::LAST),
            None => self.first + place as u64,
        }
    }

    pub(super) fn last(&self) -> LogIndex {
        self.index(self.run.count() - 1)
    }

    pub(super) fn cost(&self) -> usize {
        let indices =
            self.indices.as_ref().map_or(0, |indices| indices.len() * size_of::<LogIndex>());
        BATCH_BYTES + self.run.len() + EVENT_BYTES * self.run.count() + indices
    }

    /// The first place whose index is higher.
    pub(super) fn place_after(&self, index: LogIndex) -> usize {
        match &self.indices {
            Some(indices) => indices.partition_point(|at| *at <= index),
            None => usize::try_from(index.next() - self.first)
                .unwrap_or(usize::MAX)
                .min(self.run.count()),
        }
    }

    /// How many from that place on follow each other.
    pub(super) fn stretch(&self, place: usize) -> usize {
        let Some(indices) = &self.indices else { return self.run.count() - place };
        let rest = indices.get(place..).unwrap_or_default();
        1 + rest.windows(2).take_while(|pair| pair[0].next() == pair[1]).count()
    }

    /// The events before a place; `None` without any.
    pub(super) fn before(&self, place: usize) -> Option<Self> {
        let indices = self.indices.as_ref().and_then(|all| all.get(..place));
        let run = self.run.slice(0..place)?;
        Some(Self { first: self.first, indices: indices.map(Into::into), run })
    }
}

/// Some places of a run that begins at an index; `None` without any.
pub(super) fn batch_of(
    index: LogIndex,
    run: &Run,
    ranges: &[Range<usize>],
) -> Option<RetainedBatch> {
    let first = index + ranges.first()?.start as u64;
    if let [all] = ranges {
        let run = run.slice(all.clone())?.detached();
        return Some(RetainedBatch { first, indices: None, run });
    }
    let places = || ranges.iter().cloned().flatten();
    let run = Run::collect(places().filter_map(|place| run.get(place)))?;
    let indices = places().map(|place| index + place as u64).collect();
    Some(RetainedBatch { first, indices: Some(indices), run })
}

/// The next event of one lane.
pub(super) struct LaneCursor<'a> {
    pub(super) lane: &'a VecDeque<RetainedBatch>,
    pub(super) batch: usize,
    pub(super) place: usize,
}

impl LaneCursor<'_> {
    pub(super) fn index(&self) -> Option<LogIndex> {
        Some(self.lane.get(self.batch)?.index(self.place))
    }

    /// Events that follow each other.
    pub(super) fn next(&mut self) -> Option<Item> {
        let batch = self.lane.get(self.batch)?;
        let (index, count) = (batch.index(self.place), batch.stretch(self.place));
        let run = batch.run.slice(self.place..self.place + count)?;
        self.place += count;
        if self.place >= batch.run.count() {
            (self.batch, self.place) = (self.batch + 1, 0);
        }
        Some(Item { index, content: Content::Events(run) })
    }
}
