//! Events that are to be on disk before they are confirmed: how far the two journals are.
//!
//! The commit rule stays as it is. Beside the commit index, the acting root knows what its own
//! journal and that of its standby have synced. A committed batch that asks for it waits until
//! every journal of the two that works has synced it; then the root tells the origin the level. If
//! there is no such journal, it is settled at once at level `memory`.
//!
//! What memory gave up before a journal had it never counts as synced. A copy of an event that an
//! origin sends again has no new entry: it counts from the end of the log at that time.
//!
//! Responsible for: which batches are settled, and at which level. Not responsible for: what
//! publishers learn ([`crate::node::publishing`]), the disk itself ([`crate::node::journal`]).

use crate::confirm_level::ConfirmLevel;
use crate::frame::{Confirm, Settled, SyncedRange};
use crate::ident::OriginId;
use crate::node::Node;
use crate::numbers::{LogIndex, OriginSeq};
use std::collections::VecDeque;

/// Most batches that wait at an acting root; with more, the oldest is settled at level `memory`.
const DISK_WAITS_MAX: usize = 65_536;

/// A committed batch that is to be on disk.
pub(in crate::node) struct DiskWait {
    /// Its new entries lie after this index,
    pub(in crate::node) after: LogIndex,
    /// and all of its events not behind this one.
    pub(in crate::node) index: LogIndex,
    pub(in crate::node) origin: OriginId,
    /// The last of its origin's sequences.
    pub(in crate::node) seq: OriginSeq,
}

/// Committed batches that are to be on disk, in log order.
#[derive(Default)]
pub(in crate::node) struct DiskWaits(VecDeque<DiskWait>);

/// How far the journals of acting root and standby are, and what their agreement is worth.
#[derive(Clone, Copy)]
struct Synced {
    range: SyncedRange,
    level: ConfirmLevel,
}

impl Synced {
    /// Of both journals; `None` where neither works.
    fn of(own: Option<SyncedRange>, standby: Option<SyncedRange>) -> Option<Self> {
        match (own, standby) {
            (Some(one), Some(other)) => {
                let (after, until) = (one.after.max(other.after), one.until.min(other.until));
                let range = SyncedRange { after, until };
                Some(Self { range, level: ConfirmLevel::Disk })
            }
            (range, None) | (None, range) => {
                Some(Self { range: range?, level: ConfirmLevel::OneDisk })
            }
        }
    }

    /// The level that a batch has reached; `None`: it is to wait.
    fn level_of(self, wait: &DiskWait) -> Option<ConfirmLevel> {
        match wait.index <= self.range.until {
            true if wait.after < self.range.after => Some(ConfirmLevel::Memory),
            true => Some(self.level),
            false => None,
        }
    }
}

impl DiskWaits {
    /// The next batch that is settled, and its level.
    fn next(&mut self, synced: Option<Synced>) -> Option<(DiskWait, ConfirmLevel)> {
        let wait = self.0.front()?;
        let level = match synced {
            Some(synced) => synced.level_of(wait),
            None => Some(ConfirmLevel::Memory),
        };
        let level = level.or((self.0.len() > DISK_WAITS_MAX).then_some(ConfirmLevel::Memory))?;
        Some((self.0.pop_front()?, level))
    }
}

impl Node {
    /// A batch is committed that is to be on disk.
    pub(in crate::node) fn await_disk(&mut self, wait: DiskWait) {
        let Some(root) = self.role.root_mut() else { return self.cx.impossible("CommitAtRoot") };
        root.disk_waits.0.push_back(wait);
    }

    /// Tells origins what is settled.
    pub(in crate::node) fn settle(&mut self) {
        let Some(root) = self.role.root().filter(|root| !root.disk_waits.0.is_empty()) else {
            return;
        };
        let own = self.journal.synced(self.log.head());
        let standby = root.standby.and(root.standby_synced);
        let synced = Synced::of(own, standby);
        while let Some((wait, level)) =
            self.role.root_mut().and_then(|root| root.disk_waits.next(synced))
        {
            let DiskWait { index, origin, seq, .. } = wait;
            let position = self.log.epochs().position(index);
            let settled = Some(Settled { seq, level });
            self.publishing.on_confirm(&mut self.cx, Confirm { origin, seq, position, settled });
        }
    }

    /// More of the log is synced here, or nothing waits for the disk any more: a standby tells the
    /// acting root.
    pub(in crate::node) fn ack_synced(&mut self) {
        if self.role.replica().is_some()
            && let Some(parent) = self.role.parent_mut()
        {
            parent.ack_due = true;
            let link = parent.link;
            self.cx.wake(link);
        }
    }
}
