//! A walk through what a log retains, with a gap for each hole.

use super::Retained;
use super::batch::LaneCursor;
use super::tally::Tally;
use crate::epochs::EpochHistory;
use crate::log::gap::{Gap, GapReason};
use crate::log::item::{Content, Item};
use crate::numbers::LogIndex;

/// Walks through the retained part of a log.
pub struct Items<'a> {
    pub(super) retained: &'a Retained,
    pub(super) epochs: &'a EpochHistory,
    pub(super) at: LogIndex,
    pub(super) heads: Vec<LaneCursor<'a>>,
    pub(super) gap: usize,
}

impl Items<'_> {
    /// The hole between this index and another; it lies in one epoch, and is known or unknown as a
    /// whole.
    fn hole(&self, until: LogIndex) -> Item {
        let retained = self.retained;
        let segments = self.epochs.segments();
        let next = segments.partition_point(|segment| segment.first <= self.at.next());
        let mut end = segments.get(next).map_or(until, |next| until.min(next.first.before()));
        let mut whole: Option<Tally> = None;
        for tally in retained.tallies.range(retained.tally_of(self.at.next())..) {
            match &mut whole {
                None => whole = Some(tally.clone()),
                Some(whole) if whole.last >= end => break,
                Some(whole) if whole.unknown != tally.unknown => end = whole.last,
                Some(whole) => {
                    whole.join(tally);
                    whole.last = tally.last;
                }
            }
        }
        let known = whole.filter(|whole| !whole.unknown);
        let gap = Gap {
            after: self.epochs.position(self.at),
            until: self.epochs.position(end),
            reason: GapReason::Retention,
            count: known.as_ref().map(|_| end - self.at),
            severity_max: known.as_ref().and_then(|known| known.severity_max),
            spaces: known.and_then(|known| known.spaces).unwrap_or_default(),
        };
        Item { index: end, content: Content::Gap(gap) }
    }
}

impl Iterator for Items<'_> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        let retained = self.retained;
        if self.at >= retained.last {
            return None;
        }
        let heads = self.heads.iter_mut();
        let head = heads.filter_map(|head| Some((head.index()?, head))).min_by_key(|head| head.0);
        let gap = retained.gaps.get(self.gap);
        let pinned = retained.pinned.range(self.at.next()..).next();
        let at_gap = gap.map(|gap| gap.index);
        let at_event = head.as_ref().map(|head| head.0);
        let at_pinned = pinned.map(|(index, _)| *index);
        let next = at_gap.into_iter().chain(at_event).chain(at_pinned).min();
        let item = if next.is_none_or(|next| next > self.at.next()) {
            self.hole(next.map_or(retained.last, |next| retained.last.min(next.before())))
        } else if at_pinned == next && at_event != next {
            let (index, run) = pinned?;
            Item { index: *index, content: Content::Events(run.clone()) }
        } else if at_gap == next {
            self.gap += 1;
            gap?.clone()
        } else {
            head?.1.next()?
        };
        self.at = item.last();
        Some(item)
    }
}
