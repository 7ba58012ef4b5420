//! Which epochs a log has gone through, and where two logs part.
//!
//! A log has one running index over all epochs. Its epoch history says at which index each epoch
//! began, so that two agents find the newest position that their logs have in common by comparing
//! two short lists. Responsible for: that comparison. Not responsible for: what is in the log.

use crate::numbers::LogIndex;
use crate::position::{Epoch, Position};

/// Most segments an epoch history remembers. An agent that was away for more epochs than that
/// resumes from the oldest event that is still there.
pub const SEGMENTS_MAX: usize = 64;

/// One epoch: its epoch, and the index of its first event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Whose epoch.
    pub epoch: Epoch,
    /// The first index that it may have given out.
    pub first: LogIndex,
    /// Its root had no copy of the log: what lies before may be in no log.
    pub incomplete: bool,
}

/// The epochs of one log, oldest first; epochs and indices rise strictly.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EpochHistory {
    segments: Vec<Segment>,
}

/// Where two logs part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// They have no epoch in common.
    NeverMet,
    /// After this index.
    Behind(LogIndex),
    /// They have the same newest epoch.
    Open,
}

/// Segments that do not rise strictly, or too many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the epoch history is no list of at most {SEGMENTS_MAX} rising epochs")]
pub struct EpochHistoryError;

impl EpochHistory {
    /// Of an agent that has never been in a tree.
    pub const fn new() -> Self {
        Self { segments: Vec::new() }
    }

    /// Checks what came from outside.
    ///
    /// # Errors
    /// [`EpochHistoryError`] where epochs or indices do not rise strictly, or there are too many.
    pub fn from_segments(segments: Vec<Segment>) -> Result<Self, EpochHistoryError> {
        let rising =
            segments.windows(2).all(|w| w[0].epoch < w[1].epoch && w[0].first < w[1].first);
        if rising && segments.len() <= SEGMENTS_MAX {
            Ok(Self { segments })
        } else {
            Err(EpochHistoryError)
        }
    }

    /// The epochs, oldest first.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Whether its agent has never been in a tree.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// The epoch that goes on; [`Epoch::ZERO`] before the first.
    pub fn head(&self) -> Epoch {
        self.segments.last().map_or(Epoch::ZERO, |segment| segment.epoch)
    }

    /// Begins an epoch. Epochs without an entry before `first` are forgotten: no agent has an entry
    /// of them in this log. `incomplete`: the root has no copy of the entries before.
    pub fn open(&mut self, epoch: Epoch, first: LogIndex, mut incomplete: bool) {
        while let Some(empty) = self.segments.pop_if(|segment| segment.first >= first) {
            // The log is not mended by that.
            incomplete |= empty.incomplete;
        }
        self.segments.push(Segment { epoch, first, incomplete });
        if self.segments.len() > SEGMENTS_MAX {
            self.segments.remove(0);
        }
    }

    /// In whose epoch an index was given out; [`Epoch::ZERO`] for older ones than it remembers.
    pub fn epoch_of(&self, index: LogIndex) -> Epoch {
        let after = self.segments.partition_point(|segment| segment.first <= index);
        after.checked_sub(1).map_or(Epoch::ZERO, |at| self.segments[at].epoch)
    }

    /// The position of an index.
    pub fn position(&self, index: LogIndex) -> Position {
        Position { epoch: self.epoch_of(index), index }
    }

    /// An index, or the last one of the epoch at that place of the list. The last epoch has no end
    /// yet.
    fn up_to(&self, index: LogIndex, at: usize) -> LogIndex {
        self.segments.get(at + 1).map_or(index, |next| index.min(next.first.before()))
    }

    /// The place of an epoch in the list.
    fn find(&self, epoch: Epoch) -> Option<usize> {
        self.segments.binary_search_by_key(&epoch, |segment| segment.epoch).ok()
    }

    /// Whether that epoch is part of this log.
    pub fn knows(&self, epoch: Epoch) -> bool {
        self.find(epoch).is_some()
    }

    /// Whether that position is one of this log (it need not be given out yet).
    pub fn contains(&self, position: Position) -> bool {
        self.find(position.epoch)
            .filter(|at| self.segments[*at].first <= position.index)
            .is_some_and(|at| self.up_to(position.index, at) == position.index)
    }

    /// Whether what was logged at that position is in this log for good: it is one of its
    /// positions, and no root without a copy has followed.
    pub fn keeps(&self, position: Position) -> bool {
        self.contains(position)
            && self
                .segments
                .iter()
                .rev()
                .take_while(|s| s.first > position.index)
                .all(|s| !s.incomplete)
    }

    /// Whether a root without a copy of the log has followed on an index, or on one behind it.
    pub fn is_incomplete_after(&self, index: LogIndex) -> bool {
        self.segments.iter().any(|segment| segment.incomplete && segment.first > index)
    }

    /// The newest index up to which an agent that has consumed this log up to `consumed` has seen
    /// what the other log holds; `None` where it has seen something and they have no epoch in
    /// common.
    pub fn common(&self, commit_index: LogIndex, other: &Self) -> Option<LogIndex> {
        if commit_index == LogIndex::ZERO {
            // An agent without an entry agrees with every log. An epoch without an entry leaves no
            // trace in the history of the next.
            return Some(LogIndex::ZERO);
        }
        self.segments.iter().enumerate().rev().find_map(|(ours, segment)| {
            let theirs = other.find(segment.epoch)?;
            Some(other.up_to(self.up_to(commit_index, ours), theirs))
        })
    }

    /// Where this log and another part, whatever was consumed of them.
    pub fn parting(&self, other: &Self) -> Parting {
        let shared = self.segments.iter().enumerate().rev();
        let shared = shared.filter_map(|(ours, s)| Some((ours, other.find(s.epoch)?))).next();
        let Some((ours, theirs)) = shared else { return Parting::NeverMet };
        let ends = [self.segments.get(ours + 1), other.segments.get(theirs + 1)];
        let end = ends.into_iter().flatten().map(|next| next.first.before()).min();
        end.map_or(Parting::Open, Parting::Behind)
    }

    /// Behind which index of this log a reader at that position (of any log) resumes; `None` where
    /// its epoch is no part of this log: what they have in common is not known from the position.
    pub fn resume_after(&self, position: Position) -> Option<LogIndex> {
        if position.index == LogIndex::ZERO {
            return Some(LogIndex::ZERO);
        }
        self.find(position.epoch).map(|at| self.up_to(position.index, at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ident::OriginId;

    fn epoch(number: u64) -> Epoch {
        Epoch { number, root: OriginId(number) }
    }

    fn epochs(segments: &[(u64, u64)]) -> EpochHistory {
        let mut epochs = EpochHistory::new();
        for (number, first) in segments {
            epochs.open(epoch(*number), (*first).into(), false);
        }
        epochs
    }

    #[test]
    fn an_agent_resumes_where_the_logs_part() {
        let losing = epochs(&[(1, 1), (2, 50), (3, 90)]);
        let winning = epochs(&[(1, 1), (2, 50), (4, 80)]);
        assert_eq!(losing.common(120.into(), &winning), Some(79.into()));
        assert_eq!(winning.common(200.into(), &losing), Some(79.into()));
        assert_eq!(losing.common(60.into(), &winning), Some(60.into()));
        // A parent of the same epoch may lag behind its child.
        assert_eq!(losing.common(120.into(), &losing), Some(120.into()));
        assert_eq!(losing.common(120.into(), &epochs(&[(7, 1)])), None);
        assert_eq!(epochs(&[(1, 1)]).common(0.into(), &epochs(&[(2, 1)])), Some(LogIndex::ZERO));
    }

    #[test]
    fn an_epoch_without_an_entry_leaves_no_trace() {
        let mut empty = epochs(&[(1, 1), (2, 50)]);
        empty.open(epoch(3), 50.into(), false);
        assert_eq!(empty, epochs(&[(1, 1), (3, 50)]));
        assert_eq!(epochs(&[(1, 1), (2, 50)]).common(49.into(), &empty), Some(49.into()));
    }

    #[test]
    fn positions_of_a_dead_end_are_not_contained() {
        let log = epochs(&[(1, 1), (4, 80)]);
        let at = |number, index: u64| Position { epoch: epoch(number), index: index.into() };
        assert!(log.contains(at(1, 79)) && log.contains(at(4, 80)));
        assert!(!log.contains(at(1, 80)) && !log.contains(at(2, 60)));
        assert_eq!(log.resume_after(at(1, 90)), Some(79.into()));
        assert_eq!(log.resume_after(at(2, 90)), None);
        assert_eq!(log.epoch_of(79.into()), epoch(1));
    }

    #[test]
    fn positions_before_an_incomplete_epoch_are_not_kept() {
        let at = |number, index: u64| Position { epoch: epoch(number), index: index.into() };
        let mut log = epochs(&[(1, 1), (2, 50)]);
        assert!(log.keeps(at(1, 49)) && log.keeps(at(2, 60)) && !log.keeps(at(1, 50)));
        log.open(epoch(3), 70.into(), true);
        log.open(epoch(4), 70.into(), false);
        assert!(log.contains(at(2, 60)) && !log.keeps(at(2, 60)) && !log.keeps(at(1, 1)));
        assert!(log.keeps(at(4, 70)));
        log.open(epoch(5), 90.into(), false);
        assert!(log.keeps(at(4, 89)) && !log.keeps(at(2, 60)));
    }

    #[test]
    fn an_epoch_history_is_bounded_and_hostile_ones_are_refused() {
        let mut long = EpochHistory::new();
        for number in 1..=2 * SEGMENTS_MAX as u64 {
            long.open(epoch(number), number.into(), false);
        }
        assert_eq!(long.segments().len(), SEGMENTS_MAX);
        assert!(EpochHistory::from_segments(long.segments().to_vec()).is_ok());
        let falling = [(2, 1), (1, 5)].map(|(of, first)| Segment {
            epoch: epoch(of),
            first: LogIndex::new(first),
            incomplete: false,
        });
        assert_eq!(EpochHistory::from_segments(falling.to_vec()), Err(EpochHistoryError));
    }
}
