//! The disk as one more reader of the log: it has a position, no queue, and its own pace.
//!
//! Entries of the log that goes on are kept, those beyond the fork are dropped ([`JournalBegin`]).
//!
//! A disk has a *mark* while entries may be confirmed that it does not have yet: after a power
//! failure it says so ([`JournalWrite::is_replicated`]). The rule:
//!
//! 1. An acting root counts a standby only once its own disk has the mark, and a standby
//!    acknowledges its whole copy only once its disk has the mark. Until then the root confirms
//!    alone. So both disks have the mark before the first entry that rests on two memories.
//! 2. A root without a standby gives the mark up when its disk was given the whole log; any other
//!    agent when it is below a parent and keeps nothing that the log of that parent may lack. An
//!    agent that searches keeps its copy, and the mark.
//! 3. A change of the mark is a write and begins a generation: an acknowledgement of that
//!    generation says that the disk has the mark.
//! 4. A disk that fails, or acknowledges nothing for `journal_ms`, is not waited for.
//!
//! Responsible for: what must be on disk, and the meaning of its acknowledgements. Not responsible
//! for: files, formats and checksums, which are the shell's; what becomes of a slow disk
//! ([`crate::node::role`]).

use crate::catalog::names;
use crate::epochs::EpochHistory;
use crate::frame::{DedupRanges, Item, SyncedRange};
use crate::ident::Rank;
use crate::limits::BATCH_EVENTS_MAX;
use crate::log::entries::Log;
use crate::node::api::{JournalBegin, JournalState, JournalWrite, Output, Stored};
use crate::node::config::ns;
use crate::node::cx::Cx;
use crate::numbers::LogIndex;
use crate::position::Epoch;
use crate::ranges::PublisherRanges;
use crate::severity::Severity;

/// The journal as the node knows it.
#[derive(Default)]
pub(crate) struct Journal {
    /// What the disk holds; `None` without a journal, or while it fails.
    disk: Option<Disk>,
    /// A lone root confirms only what the disk has acknowledged.
    gates: bool,
    /// The failure of the journal is announced.
    failure_announced: bool,
    /// The shell knows that there is something to pull.
    ready: bool,
    /// Since when a lone root waits for the disk.
    behind_since_ns: Option<u64>,
    /// The newest beginning.
    generation: u64,
    /// Bytes that a lone root has appended and not committed.
    waiting_bytes: usize,
    /// The last write has the mark ([`JournalWrite::is_replicated`]).
    is_replicated: bool,
}

struct Disk {
    epochs: EpochHistory,
    /// The log on disk is complete after this index,
    after: LogIndex,
    /// and was handed out up to this one,
    cursor: LogIndex,
    /// and acknowledged up to this one,
    acked: LogIndex,
    /// and synced up to this one.
    synced: LogIndex,
    /// Up to this index memory may have given up entries that the disk did not have.
    missed: LogIndex,
    /// Counts up with each new beginning, over all stores: an acknowledgement of an older one is
    /// stale.
    generation: u64,
    /// The store was just opened: the first write says which log it is.
    fresh: bool,
    /// It has acknowledged the mark.
    is_marked: bool,
}

/// The log that is to be on disk.
#[derive(Clone, Copy)]
pub(crate) struct JournalSource<'a> {
    pub(crate) epochs: &'a EpochHistory,
    pub(crate) log: &'a Log,
    pub(crate) published: &'a PublisherRanges,
    /// It is complete after this index, but for what its gaps state.
    pub(crate) after: LogIndex,
    /// Two agents confirm its entries in memory, or are about to.
    pub(crate) is_replicated: bool,
}

/// What the journal is to hold.
#[derive(Clone, Copy)]
pub(crate) enum JournalContent<'a> {
    /// That log.
    Log(JournalSource<'a>),
    /// What it holds. It keeps the mark: some of an earlier log may be here only.
    Unchanged,
    /// What it holds, without the mark: other agents have all that was confirmed.
    AtRest,
}

impl<'a> JournalContent<'a> {
    fn source(self) -> Option<JournalSource<'a>> {
        match self {
            Self::Log(source) => Some(source),
            Self::Unchanged | Self::AtRest => None,
        }
    }

    /// The epoch history of the log.
    pub(crate) fn epochs(self) -> Option<&'a EpochHistory> {
        self.source().map(|source| source.epochs)
    }

    /// The end of the log.
    pub(crate) fn last(self) -> Option<LogIndex> {
        self.source().map(|source| source.log.last())
    }
}

impl Disk {
    fn new(stored: Stored, generation: u64) -> Self {
        let Stored { epochs, after, last } = stored;
        let (cursor, acked, synced) = (last, last, last);
        let (missed, fresh, is_marked) = (after, true, false);
        Self { epochs, after, cursor, acked, synced, missed, generation, fresh, is_marked }
    }

    /// How the disk must begin to hold that log; `None` where it holds a part of it already, and
    /// what follows is still there.
    fn begin(&mut self, source: &JournalSource<'_>) -> Option<JournalBegin> {
        let fits = (source.after..=source.log.last()).contains(&self.cursor);
        let fresh = std::mem::take(&mut self.fresh);
        if fits && !fresh && self.epochs.head() == source.epochs.head() {
            return None;
        }
        let common = match self.epochs.is_empty() {
            true => None,
            false => self.epochs.common(self.cursor, source.epochs),
        };
        let kept = common.map(|common| common.min(source.log.last()));
        let kept = kept.filter(|kept| *kept >= source.after.max(self.after));
        self.generation += 1;
        self.epochs = source.epochs.clone();
        self.cursor = kept.unwrap_or(source.after);
        let mut anew = None;
        match kept {
            Some(kept) => {
                self.acked = self.acked.min(kept);
                self.synced = self.synced.min(kept);
                self.missed = self.missed.min(kept);
            }
            None => {
                self.after = source.after;
                self.acked = source.after;
                self.synced = source.after;
                self.missed = source.after;
                let dedup = source.published.iter();
                let publishers = dedup.map(|(id, set)| (id, set.ranges().to_vec())).collect();
                anew = Some(DedupRanges { publishers });
            }
        }
        Some(JournalBegin { epochs: source.epochs.clone(), after: self.cursor, anew })
    }

    /// The next entries, and up to which index they reach.
    fn next_items(&mut self, source: &JournalSource<'_>, bytes_max: usize) -> Vec<Item> {
        let JournalSource { log, epochs, .. } = source;
        if self.cursor < log.evicted() {
            self.missed = log.evicted();
        }
        let range = (self.cursor, log.last());
        let (items, until) = log.next(range, bytes_max, BATCH_EVENTS_MAX, epochs);
        self.cursor = until;
        items
    }
}

impl Journal {
    /// The shell has a store to write to.
    pub(crate) fn open(&mut self, stored: Stored) {
        self.disk = Some(Disk::new(stored, self.generation));
        self.is_replicated = false;
    }

    /// The store has the log of an earlier life: a lone root waits for it from the beginning.
    pub(crate) fn restore(&mut self, stored: Stored) {
        self.gates = true;
        self.open(stored);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.disk.is_some()
    }

    /// Whether a lone root waits for the disk.
    fn waits(&self) -> Option<&Disk> {
        self.disk.as_ref().filter(|_| self.gates)
    }

    /// Whether nothing has to wait for the mark: the disk has it, or does not work.
    pub(crate) fn is_marked(&self) -> bool {
        self.waits().is_none_or(|disk| disk.is_marked)
    }

    /// Up to which index a lone root may commit.
    pub(crate) fn commit_limit(&self, head: Epoch, last: LogIndex) -> LogIndex {
        match self.waits() {
            Some(disk) if disk.epochs.head() == head && !disk.fresh => disk.acked.min(last),
            Some(_) => LogIndex::ZERO,
            None => last,
        }
    }

    /// What of the log of that epoch is synced; `None` without a journal that works.
    pub(crate) fn synced(&self, head: Epoch) -> Option<SyncedRange> {
        let disk = self.disk.as_ref().filter(|_| !self.failure_announced)?;
        let is_current = disk.epochs.head() == head && !disk.fresh;
        let until = if is_current { disk.synced } else { LogIndex::ZERO };
        Some(SyncedRange { after: disk.missed, until })
    }

    /// The state of the journal; `None` without one.
    pub(crate) fn state(&self) -> Option<JournalState> {
        match (self.failure_announced, &self.disk) {
            (true, _) => Some(JournalState::Degraded),
            (false, Some(_)) => Some(JournalState::Ok),
            (false, None) => None,
        }
    }

    /// Which part of a log can be read from the disk: behind the first index at best, up to the
    /// second. `None` where nothing can: a disk that begins anew has what it had before until it
    /// has acknowledged something.
    pub(crate) fn range(&self, epochs: &EpochHistory) -> Option<(LogIndex, LogIndex)> {
        let disk = self.disk.as_ref().filter(|disk| !disk.epochs.is_empty())?;
        let until = disk.epochs.common(disk.acked, epochs)?;
        (disk.after < until).then_some((disk.after, until))
    }

    // What a lone root waits for.

    /// A root has appended an entry of that size.
    pub(crate) fn appended(&mut self, bytes: usize) {
        if self.disk.is_some() {
            self.waiting_bytes += bytes;
        }
    }

    /// Entries of that size are committed.
    pub(crate) fn committed(&mut self, bytes: usize) {
        self.waiting_bytes = self.waiting_bytes.saturating_sub(bytes);
    }

    /// An epoch begins with uncommitted entries of that size.
    pub(crate) fn set_waiting(&mut self, bytes: usize) {
        self.waiting_bytes = bytes;
    }

    /// When a disk that acknowledges nothing is passed over.
    pub(crate) fn deadline_ns(&self, cx: &Cx) -> Option<u64> {
        self.behind_since_ns.map(|since| since.saturating_add(ns(cx.config.journal_ms)))
    }

    /// Lets go of a disk that holds a lone root up; says whether it did. `is_behind`: a lone root
    /// has entries that it may not commit.
    pub(crate) fn skip_if_slow(&mut self, cx: &mut Cx, is_behind: bool) -> bool {
        if !is_behind || self.waits().is_none() {
            self.hold_up_nothing();
            return false;
        }
        self.behind_since_ns.get_or_insert(cx.now.mono_ns);
        if self.waiting_bytes > cx.config.uncommitted_bytes {
            self.pass_over(cx, "it is slower than what is published");
        } else if self.deadline_ns(cx).is_some_and(|at_ns| at_ns <= cx.now.mono_ns) {
            self.pass_over(cx, "it has acknowledged nothing for too long");
        }
        !self.gates
    }

    /// No commit waits for the disk.
    pub(crate) fn hold_up_nothing(&mut self) {
        self.behind_since_ns = None;
    }

    /// The log goes on in memory.
    fn pass_over(&mut self, cx: &mut Cx, why: &str) {
        self.gates = false;
        self.behind_since_ns = None;
        cx.counters.journal_failures += 1;
        if std::mem::replace(&mut self.failure_announced, true) {
            return;
        }
        cx.transition("journal", "", "open", "failed", why);
        let tags = vec![("host", cx.config.host.clone()), ("reason", why.to_owned())];
        let text = format!("the log is in memory only: {why}");
        cx.announce(names::FTB_JOURNAL_FAILED, Severity::Fatal, tags, text);
    }

    /// The store cannot be written.
    pub(crate) fn on_failed(&mut self, cx: &mut Cx, error: &str) {
        self.disk = None;
        self.pass_over(cx, error);
    }

    /// The disk has what was handed out up to an index, synced up to another. `last`: the end of
    /// the log. Says whether more is synced, or the mark is there.
    pub(crate) fn on_journaled(
        &mut self,
        cx: &mut Cx,
        (generation, until, synced): (u64, LogIndex, LogIndex),
        last: Option<LogIndex>,
    ) -> bool {
        let known =
            |disk: &&mut Disk| generation == disk.generation && until <= disk.cursor && !disk.fresh;
        let Some(disk) = self.disk.as_mut().filter(known) else {
            cx.counters.stale += 1;
            return false;
        };
        let more = synced > disk.synced || self.is_replicated && !disk.is_marked;
        disk.is_marked = self.is_replicated;
        disk.synced = disk.synced.max(synced.min(disk.cursor));
        if until > disk.acked {
            disk.acked = until;
            self.behind_since_ns = None;
        }
        if last.is_none_or(|last| until >= last) {
            self.caught_up(cx);
        }
        more
    }

    /// Everything is on disk: from now on a lone root waits for it (again).
    pub(crate) fn caught_up(&mut self, cx: &mut Cx) {
        self.gates = true;
        if std::mem::take(&mut self.failure_announced) {
            let why = "the log is written to disk again";
            cx.transition("journal", "", "failed", "open", why);
            let tags = vec![("host", cx.config.host.clone())];
            cx.announce(names::FTB_JOURNAL_BACK, Severity::Info, tags, why.to_owned());
        }
    }

    // What is to be written.

    /// Tells the shell, once, that there is something to be written.
    pub(crate) fn wake(&mut self, cx: &mut Cx, content: JournalContent<'_>, writes_members: bool) {
        // It has no journal, or one that fails.
        let Some(disk) = self.disk.as_ref().filter(|_| !self.ready) else { return };
        let news = content.source().is_some_and(|source| {
            disk.fresh
                || disk.cursor != source.log.last()
                || disk.epochs.head() != source.epochs.head()
        });
        if news || writes_members || self.wants_mark(disk, content) != self.is_replicated {
            self.ready = true;
            cx.push(Output::JournalReady);
        }
    }

    /// Whether the disk is to have the mark.
    fn wants_mark(&self, disk: &Disk, content: JournalContent<'_>) -> bool {
        match content {
            // After a standby has gone, the disk may not have yet what was confirmed before.
            JournalContent::Log(source) => {
                source.is_replicated || self.is_replicated && disk.cursor < source.log.last()
            }
            JournalContent::Unchanged => self.is_replicated,
            JournalContent::AtRest => false,
        }
    }

    /// What is to be written next.
    pub(crate) fn next_write(
        &mut self,
        content: JournalContent<'_>,
        dynamic_members: Option<Vec<(String, Rank)>>,
        bytes_max: usize,
    ) -> Option<JournalWrite> {
        self.ready = false;
        let source = content.source();
        let disk = self.disk.as_mut()?;
        let begin = source.as_ref().and_then(|source| disk.begin(source));
        let items = source.map(|source| disk.next_items(&source, bytes_max)).unwrap_or_default();
        let is_replicated = self.disk.as_ref().is_some_and(|disk| self.wants_mark(disk, content));
        let changes_mark =
            is_replicated != std::mem::replace(&mut self.is_replicated, is_replicated);
        let disk = self.disk.as_mut()?;
        if changes_mark {
            disk.is_marked = false;
            disk.generation += u64::from(begin.is_none());
        }
        self.generation = disk.generation;
        let (generation, until) = (disk.generation, disk.cursor);
        self.ready =
            begin.is_some() || !items.is_empty() || dynamic_members.is_some() || changes_mark;
        self.ready.then_some(JournalWrite {
            generation,
            begin,
            items,
            until,
            dynamic_members,
            is_replicated,
            changes_mark,
        })
    }
}
