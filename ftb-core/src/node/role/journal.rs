//! The log on disk: the shell writes what acting root and standby hold, and reads what an earlier
//! life of the agent wrote.
//!
//! The disk is one more reader of the log: it has a position, no queue, and its own pace
//! ([`Node::poll_journal`]). Entries of the log that goes on are kept, those beyond the fork are
//! dropped ([`JournalBegin`]). A lone root counts the disk as its standby: it commits what the disk
//! has acknowledged. A disk that fails, or acknowledges nothing for too long, is skipped like a
//! slow standby: the log continues in memory, and the agent announces it.
//!
//! An agent that starts with a journal was away since its last write. Either it goes on with that
//! log as acting root, or another root installs it. Or another log goes on: then the entries beyond
//! the fork go up as unconfirmed events ([`Node::re_propose_restored`]).
//!
//! Responsible for: what must be on disk, and the meaning of its acknowledgements. Not responsible
//! for: files, formats and checksums, which are the shell's.

use crate::epochs::EpochHistory;
use crate::frame::{Content, DedupRanges, Item, ReplicaStart, UpItem};
use crate::ident::Rank;
use crate::limits::BATCH_EVENTS_MAX;
use crate::log::ring::Log;
use crate::node::Node;
use crate::node::api::{
    Gap, GapReason, JournalBegin, JournalState, JournalWrite, Output, Restored, Stored,
};
use crate::node::config::ns;
use crate::node::publishing::LosingLog;
use crate::node::role::entry_refs::SentBatches;
use crate::node::role::standby::Replica;
use crate::position::{Epoch, Position};
use crate::ranges::PublisherRanges;
use crate::severity::Severity;
use crate::spaces::Spaces;

/// The journal as the node knows it.
#[derive(Default)]
pub(in crate::node) struct Journal {
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
}

struct Disk {
    epochs: EpochHistory,
    /// The log on disk is complete behind this index,
    after: u64,
    /// and was handed out up to this one,
    cursor: u64,
    /// and acknowledged up to this one.
    acked: u64,
    /// Counts up with each new beginning, over all stores: an acknowledgement of an older one is
    /// stale.
    generation: u64,
    /// The store was just opened: the first write says which log it is.
    fresh: bool,
}

/// The log of an earlier life, or of the root before, until it is known what becomes of it.
pub(in crate::node) struct Past {
    pub(in crate::node) replica: Replica,
    /// Entries up to this index were on disk and could not be read.
    lost_until: Option<u64>,
    /// More entries may have been there.
    end_unknown: bool,
}

/// The log that is to be on disk.
struct JournalSource<'a> {
    epochs: &'a EpochHistory,
    log: &'a Log,
    published: &'a PublisherRanges,
    /// It is complete after this index, but for what its gaps state.
    after: u64,
}

impl Disk {
    fn new(stored: Stored, generation: u64) -> Self {
        let Stored { epochs, after, last } = stored;
        Self { epochs, after, cursor: last, acked: last, generation, fresh: true }
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
            Some(kept) => self.acked = self.acked.min(kept),
            None => {
                self.after = source.after;
                self.acked = source.after;
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
        let range = (self.cursor, log.last());
        let (items, until) = log.next(range, bytes_max, BATCH_EVENTS_MAX, epochs);
        self.cursor = until;
        items
    }
}

impl Journal {
    /// Whether a lone root waits for the disk.
    fn waits(&self) -> Option<&Disk> {
        self.disk.as_ref().filter(|_| self.gates)
    }

    /// Up to which index a lone root may commit.
    pub(in crate::node) fn commit_limit(&self, head: Epoch, last: u64) -> u64 {
        match self.waits() {
            Some(disk) if disk.epochs.head() == head && !disk.fresh => disk.acked.min(last),
            Some(_) => 0,
            None => last,
        }
    }

    /// How it is, for who asks; `None` without one.
    pub(in crate::node) fn state(&self) -> Option<JournalState> {
        match (self.failure_announced, &self.disk) {
            (true, _) => Some(JournalState::Degraded),
            (false, Some(_)) => Some(JournalState::Ok),
            (false, None) => None,
        }
    }

    /// A root has appended an entry of that size.
    pub(in crate::node) fn appended(&mut self, bytes: usize) {
        if self.disk.is_some() {
            self.waiting_bytes += bytes;
        }
    }

    /// When a disk that acknowledges nothing is passed over.
    fn deadline_ns(&self, journal_ms: u64) -> Option<u64> {
        self.behind_since_ns.map(|since| since.saturating_add(ns(journal_ms)))
    }
}

impl Node {
    /// What was on disk is the past of this agent, which has just started: it has seen all of it.
    pub(in crate::node) fn restore(&mut self, restored: Restored) {
        self.journal.gates = true;
        let stored = self.remember(restored);
        if self.past.is_some() {
            self.epoch_seen = self.epoch_seen.max(stored.epochs.head().number);
            self.epochs = stored.epochs.clone();
            self.commit_index = stored.last;
            self.log = Log::new(stored.last);
        }
        self.journal.disk = Some(Disk::new(stored, self.journal.generation));
    }

    /// Takes what an earlier life has left; gives which log it is.
    fn remember(&mut self, restored: Restored) -> Stored {
        let Restored { stored, items, items_after, dedup, .. } = restored;
        let (lost_until, end_unknown) = (restored.lost_until, restored.end_unknown);
        self.restore_dynamic_members(restored.dynamic_members);
        self.journal_damaged(restored.damage);
        self.journal_unclean(restored.unclean);
        self.cx.counters.restored += items.iter().map(|item| item.count() as u64).sum::<u64>();
        let start = ReplicaStart { epochs: stored.epochs.clone(), after: items_after, copy: 0 };
        let mut replica = Replica::new(start, self.cx.config.publishers_max);
        replica.log = Log::with_conditions(items_after, restored.conditions);
        replica.complete = true;
        replica.mark(&dedup);
        items.into_iter().for_each(|item| replica.push(item));
        replica.log.cover(stored.last);
        let reserve = self.cx.config.reserve();
        while replica.log.bytes() > self.cx.config.log_bytes {
            if replica.log.retire(replica.log.last(), &reserve).is_none() {
                break;
            }
        }
        if !stored.epochs.is_empty() {
            self.past = Some(Past { replica, lost_until, end_unknown });
        }
        stored
    }

    /// Tells what is wrong with the journal.
    pub(in crate::node) fn journal_damaged(&mut self, damage: Option<String>) {
        if let Some(damage) = damage {
            let tags = vec![("host", self.cx.config.host.clone())];
            self.cx.announce("FTB_JOURNAL_DAMAGED", Severity::Error, tags, damage);
        }
    }

    /// Tells that what was confirmed last may be missing in the journal.
    fn journal_unclean(&mut self, unclean: Option<String>) {
        if let Some(unclean) = unclean {
            let tags = vec![("host", self.cx.config.host.clone())];
            self.cx.announce("FTB_JOURNAL_UNCLEAN", Severity::Warning, tags, unclean);
        }
    }

    /// The parent has that much of the epoch: a log of the past that ends there holds nothing else.
    pub(in crate::node) fn past_is_covered(&mut self, covered: u64) {
        let head = self.epochs.head();
        let known = |past: &mut Past| {
            past.replica.epochs.head() == head && past.replica.log.last() <= covered
        };
        self.past.take_if(known);
    }

    /// The shell has a store to write to, again or only now. `restored`: what an earlier life has
    /// left in it, where this one could not read it before.
    pub(in crate::node) fn on_journal_opened(
        &mut self,
        stored: Stored,
        restored: Option<Restored>,
    ) {
        self.journal.disk = Some(Disk::new(stored, self.journal.generation));
        if let Some(restored) = restored {
            self.remember(restored);
            let epochs = self.epochs.clone();
            self.re_propose_restored(&epochs);
        }
        self.membership.dynamic.write_again();
        self.count_waiting();
        if !self.role.is_root() && self.role.replica().is_none() {
            self.journal_caught_up();
        }
    }

    /// Who has which rank without being listed, as it was when the journal was written.
    fn restore_dynamic_members(&mut self, dynamic_members: Vec<(String, Rank)>) {
        self.membership.dynamic.restore(dynamic_members);
        if self.cx.is_unlisted() {
            self.cx.rank =
                self.cx.rank.or_else(|| self.membership.dynamic.rank_of(&self.cx.config.host));
        }
    }

    /// The disk has what was handed out up to an index.
    pub(in crate::node) fn on_journaled(&mut self, generation: u64, until: u64) {
        let last = self.journal_source().map_or(until, |source| source.log.last());
        let Some(disk) = &mut self.journal.disk else {
            self.cx.counters.stale += 1;
            return;
        };
        if generation != disk.generation || until > disk.cursor || disk.fresh {
            self.cx.counters.stale += 1;
            return;
        }
        if until > disk.acked {
            disk.acked = until;
            self.journal.behind_since_ns = None;
        }
        if until >= last {
            self.journal_caught_up();
        }
    }

    /// Everything is on disk: from now on a lone root waits for it (again).
    fn journal_caught_up(&mut self) {
        self.journal.gates = true;
        if std::mem::take(&mut self.journal.failure_announced) {
            let why = "the log is written to disk again";
            self.cx.transition("journal", "", "failed", "open", why);
            let tags = vec![("host", self.cx.config.host.clone())];
            self.cx.announce("FTB_JOURNAL_BACK", Severity::Info, tags, why.to_owned());
        }
    }

    /// The store can not be written.
    pub(in crate::node) fn on_journal_failed(&mut self, error: &str) {
        self.journal.disk = None;
        self.pass_journal_over(error);
    }

    /// The log goes on in memory.
    fn pass_journal_over(&mut self, why: &str) {
        self.journal.gates = false;
        self.journal.behind_since_ns = None;
        self.cx.counters.journal_failures += 1;
        if std::mem::replace(&mut self.journal.failure_announced, true) {
            return;
        }
        self.cx.transition("journal", "", "open", "failed", why);
        let tags = vec![("host", self.cx.config.host.clone()), ("reason", why.to_owned())];
        let text = format!("the log is in memory only: {why}");
        self.cx.announce("FTB_JOURNAL_FAILED", Severity::Fatal, tags, text);
    }

    /// Lets go of a disk that holds a lone root up; says whether it did. `until`: what may be
    /// committed.
    pub(in crate::node) fn skip_slow_journal(&mut self, until: u64) -> bool {
        let lone = self.role.root().is_some_and(|root| root.standby.is_none());
        if !lone || self.journal.waits().is_none() || self.log.last() <= until {
            self.journal.behind_since_ns = None;
            return false;
        }
        self.journal.behind_since_ns.get_or_insert(self.cx.now.mono_ns);
        if self.journal.waiting_bytes > self.cx.config.uncommitted_bytes {
            self.pass_journal_over("it is slower than what is published");
        } else if self.journal_deadline_ns().is_some_and(|at_ns| at_ns <= self.cx.now.mono_ns) {
            self.pass_journal_over("it has acknowledged nothing for too long");
        }
        !self.journal.gates
    }

    pub(in crate::node) fn journal_deadline_ns(&self) -> Option<u64> {
        self.journal.deadline_ns(self.cx.config.journal_ms)
    }

    /// An epoch begins: what is appended by now and not committed.
    pub(in crate::node) fn count_waiting(&mut self) {
        let waiting = self.log.after(self.commit_index).map(|item| item.len());
        self.journal.waiting_bytes = waiting.sum();
    }

    /// Entries behind `from` are committed.
    pub(in crate::node) fn journal_committed(&mut self, from: u64) {
        if self.journal.disk.is_none() {
            return;
        }
        let items = self.log.after(from).map_while(|item| item.up_to(self.commit_index));
        let bytes: usize = items.map(|item| item.len()).sum();
        self.journal.waiting_bytes = self.journal.waiting_bytes.saturating_sub(bytes);
    }

    fn journal_source(&self) -> Option<JournalSource<'_>> {
        match (self.role.root(), self.role.replica()) {
            (Some(root), _) => Some(JournalSource {
                epochs: &self.epochs,
                log: &self.log,
                published: &root.published,
                after: self.known_after(),
            }),
            (None, Some(replica)) if replica.complete => Some(JournalSource {
                epochs: &replica.epochs,
                log: &replica.log,
                published: &replica.published,
                after: replica.log.known_after(),
            }),
            _ => None,
        }
    }

    /// Whether ranks of unlisted agents are to be written: root and standby know all, and an
    /// unlisted agent its own.
    fn writes_dynamic_members(&self) -> bool {
        self.membership.dynamic.is_unwritten() && (self.role.holds_log() || self.cx.is_unlisted())
    }

    /// Tells the shell, once, that there is something to be written. Called after each input.
    pub(in crate::node) fn wake_journal(&mut self) {
        // It has no journal, or one that fails.
        let Some(disk) = &self.journal.disk else { return };
        if self.journal.ready {
            return;
        }
        let news = self.journal_source().is_some_and(|source| {
            disk.fresh
                || disk.cursor != source.log.last()
                || disk.epochs.head() != source.epochs.head()
        });
        if news || self.writes_dynamic_members() {
            self.journal.ready = true;
            self.cx.push(Output::JournalReady);
        }
    }

    /// Which part of the log can be read from the disk: behind the first index at best, up to the
    /// second. Who holds the log no longer has what it had when it did. `None` where nothing can:
    /// one that begins anew has what it had before until it has acknowledged something.
    pub(in crate::node) fn disk_range(&self) -> Option<(u64, u64)> {
        let disk = self.journal.disk.as_ref().filter(|disk| !disk.epochs.is_empty())?;
        let source = self.journal_source();
        let epochs = source.as_ref().map_or(&self.epochs, |source| source.epochs);
        let until = disk.epochs.common(disk.acked, epochs)?;
        (disk.after < until).then_some((disk.after, until))
    }

    /// What is to be written next.
    pub(in crate::node) fn next_journal_write(&mut self, bytes_max: usize) -> Option<JournalWrite> {
        let mut disk = self.journal.disk.take();
        let dynamic_members = match &disk {
            Some(_) if self.writes_dynamic_members() => self.membership.dynamic.take_unwritten(),
            _ => None,
        };
        let write = disk.as_mut().and_then(|disk| {
            let source = self.journal_source();
            let begin = source.as_ref().and_then(|source| disk.begin(source));
            let items = source.map(|source| disk.next_items(&source, bytes_max));
            let items = items.unwrap_or_default();
            let news = begin.is_some() || !items.is_empty() || dynamic_members.is_some();
            news.then(|| JournalWrite {
                generation: disk.generation,
                begin,
                items,
                until: disk.cursor,
                dynamic_members,
            })
        });
        self.journal.generation = disk.as_ref().map_or(self.journal.generation, |d| d.generation);
        self.journal.disk = disk;
        self.journal.ready = write.is_some();
        let items = write.iter().flat_map(|write| &write.items);
        self.cx.counters.journaled += items.map(|item| item.count() as u64).sum::<u64>();
        write
    }

    // What an earlier life has left, or an earlier place.

    /// A standby goes elsewhere: its copy is a log of its past until it knows which log goes on.
    pub(in crate::node) fn keep_copy(&mut self, mut replica: Replica) {
        if replica.complete && replica.epochs.head() == self.epochs.head() {
            replica.kept = SentBatches::default();
            self.cx.counters.copies_kept += 1;
            self.past = Some(Past { replica, lost_until: None, end_unknown: false });
        }
    }

    /// An acting root goes on with the log of its earlier life, and no other agent has brought what
    /// it could not read of that: logs a gap. A lone agent logs it at once.
    pub(in crate::node) fn log_unreadable(&mut self) {
        let now_ns = self.cx.now.mono_ns;
        let Some(root) = self.role.root_mut() else { return self.cx.impossible("TimerOfRoot") };
        if let Some((gap, _)) = root.unreadable.take_if(|(_, until_ns)| *until_ns <= now_ns) {
            self.append(UpItem::Gap(gap));
        }
    }

    /// Another log is the one that goes on: what that of the earlier life has behind the fork goes
    /// up as unconfirmed events, before what waits already. What is there too is known by its id.
    pub(in crate::node) fn re_propose_restored(&mut self, winning: &EpochHistory) {
        // It has no log of an earlier life.
        let Some(past) = self.past.take() else { return };
        let Replica { epochs, log, .. } = &past.replica;
        let items = items_behind(log, epochs, log.evicted(), winning);
        if items.is_empty() {
            // The parent is of the same epoch, and may have less of it than is here: then its next
            // log leaves that epoch before our end.
            let undecided = winning.head() == epochs.head();
            self.past = undecided.then_some(past);
            return;
        }
        let losing = LosingLog { items, has_all: false, hole_until: 0 };
        self.publishing.re_propose(&mut self.cx, losing, winning);
        self.flush_outbox();
    }
}

impl Past {
    /// The hole behind its last entry. Where nothing says how far the log went, one entry stands
    /// for all that may be missing, and the count is unknown (0).
    pub(in crate::node) fn lost(&self) -> Option<Gap> {
        let Replica { epochs, log, .. } = &self.replica;
        let last = log.last();
        let lost_until = self.lost_until.filter(|until| *until > last);
        let until = lost_until.or(self.end_unknown.then_some(last + 1))?;
        Some(Gap {
            after: epochs.position(last),
            until: Position { epoch: epochs.head(), index: until },
            reason: GapReason::LogLost,
            count: lost_until.map_or(0, |until| until - last),
            severity_max: None,
            spaces: Spaces::ANY,
        })
    }
}

/// What is missing of a hole whose entries are there up to an index; `None`: nothing.
pub(in crate::node) fn unfilled(gap: Gap, until: u64) -> Option<Gap> {
    if until <= gap.after.index {
        return Some(gap);
    }
    let left = gap.until.index.saturating_sub(until);
    (left > 0).then(|| {
        let after = Position { epoch: gap.until.epoch, index: until };
        Gap { after, count: if gap.count > 0 { left } else { 0 }, ..gap }
    })
}

/// What a log that is complete after `oldest` has beyond the point where another leaves it: to be
/// re-proposed there. Also the epochs, or ends of epochs, that the other does not have.
pub(in crate::node) fn items_behind(
    log: &Log,
    epochs: &EpochHistory,
    oldest: u64,
    winning: &EpochHistory,
) -> Vec<UpItem> {
    let last = log.last();
    let fork = epochs.common(last, winning).unwrap_or(0);
    let is_incomplete = fork < oldest && log.evicted() < oldest;
    let missing = match fork < oldest {
        true if is_incomplete => passed_by(log, fork, oldest),
        true => retained_between(log, epochs, fork, oldest),
        false => Vec::new(),
    };
    let events = log.after(fork.max(oldest)).map(|item| UpItem::from(item.content));
    let segments = epochs.segments();
    let reported = segments.iter().enumerate().filter_map(|(at, segment)| {
        let end = segments.get(at + 1).map_or(last, |next| next.first - 1).min(last);
        // The root waits for an agent that has the epoch whole before it reports a gap.
        let re_proposed = !(is_incomplete && end <= oldest);
        let until = match winning.knows(segment.epoch) {
            false if re_proposed => last,
            _ if end < segment.first => return None,
            true if winning.contains(Position { epoch: segment.epoch, index: end }) => return None,
            _ => end,
        };
        Some(UpItem::Fork { epoch: segment.epoch, until, re_proposed })
    });
    missing.into_iter().chain(events).chain(reported).collect()
}

/// A gap of which nothing is known but its range.
fn missing_between(epochs: &EpochHistory, after: u64, until: u64) -> Gap {
    Gap {
        after: epochs.position(after),
        until: epochs.position(until),
        reason: GapReason::Retention,
        count: 0,
        severity_max: None,
        spaces: Spaces::ANY,
    }
}

/// What a log retains of a range that it has given up, and one gap for all that it does not.
fn retained_between(log: &Log, epochs: &EpochHistory, after: u64, until: u64) -> Vec<UpItem> {
    let begin = log.known_after();
    let mut gap = missing_between(epochs, after, until);
    let (mut unknown, mut spaces, mut events) = (after < begin, None::<Spaces>, Vec::new());
    for item in log.with_gaps(after, epochs).map_while(|item| item.up_to(until)) {
        match item.content {
            Content::Gap(hole) if hole.reason == GapReason::Retention => {
                unknown |= hole.count == 0;
                gap.count += hole.count;
                gap.severity_max = gap.severity_max.max(hole.severity_max);
                let joined = spaces.map_or_else(|| hole.spaces.clone(), |s| s.joined(&hole.spaces));
                spaces = Some(joined);
            }
            content => events.push(UpItem::from(content)),
        }
    }
    if unknown {
        gap = missing_between(epochs, after, until);
    } else {
        gap.spaces = spaces.unwrap_or_default();
    }
    let is_missing = unknown || gap.count > 0;
    is_missing.then_some(UpItem::Gap(gap)).into_iter().chain(events).collect()
}

/// What has passed by before a log is complete, and is not in the rest of it: that has come again
/// there, with what was between.
fn passed_by(log: &Log, after: u64, until: u64) -> Vec<UpItem> {
    let mut later = PublisherRanges::new(usize::MAX);
    for item in log.after(after.max(until)).filter(|_| after < until) {
        if let Content::Events(run) = &item.content {
            later.insert_run(run);
        }
    }
    let passed = log.after(after).map_while(|item| item.up_to(until));
    let fresh = passed.flat_map(|item| match item.content {
        Content::Events(run) => {
            let again = run.iter().enumerate().filter(|(_, event)| later.contains(event.id()));
            let again: Vec<usize> = again.map(|(place, _)| place).collect();
            run.without(&again).into_iter().map(UpItem::Events).collect()
        }
        Content::Gap(gap) => vec![UpItem::Gap(gap)],
    });
    fresh.collect()
}
