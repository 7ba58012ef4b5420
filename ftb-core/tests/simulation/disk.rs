//! The disk of a simulated agent: what its journal has written, and what becomes of that.

use crate::events::counted_mark;
use ftb_core::frame::{Content, Item};
use ftb_core::ident::EventId;
use ftb_core::log::conditions::ConditionLimits;
use ftb_core::node::api::{JournalPage, JournalRead, JournalWrite, Restored};
use ftb_core::node::{Reserve, Retained};
use ftb_core::numbers::LogIndex;
use std::collections::BTreeSet;

/// Entries that are looked through for one page.
const PAGE_ITEMS: usize = 40;

/// What is on disk. It survives the agent.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    content: Restored,
    /// Nothing can be written.
    pub full: bool,
    /// Nothing is taken from the agent, and nothing fails.
    pub stalled: bool,
    /// The agent could not read it when it started.
    pub unread: bool,
    /// A power failure leaves what it holds up to this index.
    pub synced: LogIndex,
    /// Entries that it does not have may be confirmed: the checkpoint says so,
    is_marked: bool,
    /// and will after the next sync.
    stays_marked: bool,
    /// A sync is due.
    pub sync_due: bool,
    /// Generation and last index of what the agent knows to be written.
    pub reported: (u64, LogIndex),
}

/// Keeps what lies not after an index.
fn cut(items: &mut Vec<Item>, index: LogIndex) {
    *items = items.iter().filter_map(|item| item.up_to(index)).collect();
}

impl Disk {
    /// Gives the events that it held and that the log does not have in memory any more.
    pub fn write(&mut self, write: JournalWrite) -> BTreeSet<EventId> {
        let before = write.begin.as_ref().map(|_| self.ids()).unwrap_or_default();
        if let Some(dynamic_members) = write.dynamic_members {
            self.content.dynamic_members = dynamic_members;
        }
        let Restored { stored, items, dedup, lost_until, unclean, .. } = &mut self.content;
        if let Some(begin) = write.begin {
            cut(items, if begin.anew.is_none() { begin.after } else { LogIndex::ZERO });
            if let Some(anew) = begin.anew {
                *dedup = anew;
                stored.after = begin.after;
            }
            stored.epochs = begin.epochs;
            stored.last = begin.after;
            *lost_until = None;
            self.synced = self.synced.min(begin.after);
        }
        // As the checkpoint: until something is acknowledged again. A mark is synced with that.
        *unclean = None;
        self.is_marked |= write.is_replicated;
        self.stays_marked = write.is_replicated;
        items.extend(write.items);
        stored.last = write.until;
        match (before.is_empty(), stored.after > LogIndex::ZERO) {
            (false, true) => before.difference(&self.ids()).copied().collect(),
            _ => BTreeSet::new(),
        }
    }

    /// Whether an event can be read from it.
    pub fn holds(&self, id: EventId) -> bool {
        self.content.items.iter().rev().any(|item| match &item.content {
            Content::Events(run) => run.iter().any(|event| event.id() == id),
            Content::Gap(_) => false,
        })
    }

    /// What was written is safe from a power failure.
    pub fn sync(&mut self) {
        self.sync_due = false;
        self.synced = self.content.stored.last;
        self.is_marked = self.stays_marked;
    }

    /// The power fails: what is not synced is gone.
    pub fn lose_power(&mut self) {
        let Restored { stored, items, unclean, .. } = &mut self.content;
        let kept = stored.last.min(self.synced.max(stored.after));
        if kept < stored.last || self.is_marked {
            *unclean = Some("something was unsynced".to_owned());
        }
        stored.last = kept;
        cut(items, stored.last);
    }

    /// The events that can be read from it.
    pub fn ids(&self) -> BTreeSet<EventId> {
        let runs = self.content.items.iter().filter_map(|item| match &item.content {
            Content::Events(run) => Some(run),
            Content::Gap(_) => None,
        });
        runs.flat_map(|run| run.iter().map(|event| event.id())).collect()
    }

    /// What an agent that starts finds; it has room for the newest only.
    pub fn read(&mut self, bytes_max: usize) -> Restored {
        // The journal syncs what it finds, and no other agent rests on it yet.
        self.stays_marked = false;
        self.sync();
        let mut content = self.content.clone();
        content.items_after = content.stored.after;
        let mut bytes: usize = content.items.iter().map(Item::len).sum();
        let mut older = Retained::new(content.stored.after, ConditionLimits::default());
        let conditions = ConditionLimits::default();
        let mark = Some(counted_mark());
        let nothing = Reserve { bytes: 0, protected: [].into(), conditions, mark };
        while bytes > bytes_max {
            let oldest = content.items.remove(0);
            bytes -= oldest.len();
            content.items_after = oldest.last();
            older.take(&oldest, &nothing);
        }
        content.conditions = older.pinned().collect();
        content
    }

    /// A page of what is there; of a time it knows nothing, and begins at the beginning.
    pub fn page(&self, read: &JournalRead) -> Option<JournalPage> {
        let Restored { stored, items, .. } = &self.content;
        let after = read.after.max(stored.after);
        let behind = items.iter().filter_map(|item| item.behind(after));
        let behind = behind.take(PAGE_ITEMS);
        Some(JournalPage::pick(read, after, behind))
    }

    /// The last entries are gone, as a power failure leaves a file that was not synced; `reported`:
    /// they are there and their checksums are wrong.
    pub fn tear(&mut self, count: u64, reported: bool) {
        let Restored { stored, items, lost_until, .. } = &mut self.content;
        let last = stored.last;
        stored.last = last.back(count).max(stored.after);
        cut(items, stored.last);
        *lost_until = (reported && last > stored.last).then_some(last);
        self.synced = self.synced.min(stored.last);
    }

    pub fn wipe(&mut self) {
        self.content = Restored::default();
        self.synced = LogIndex::ZERO;
        (self.is_marked, self.stays_marked) = (false, false);
    }
}
