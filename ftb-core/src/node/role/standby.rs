//! The log in two places: the acting root sends each entry to its standby, and commits it once the
//! standby has acknowledged it. Without a synced standby the root commits alone. The standby's copy
//! lets it take over without a loss.

use crate::epochs::EpochHistory;
use crate::frame::{
    Content, DEDUP_PUBLISHERS_MAX, DedupRanges, EntryRef, Frame, Item, ReplicaStart, Replicate,
    SyncedRange,
};
use crate::limits::BATCH_EVENTS_MAX;
use crate::log::entries::Log;
use crate::log::followed::FollowedLog;
use crate::node::Node;
use crate::node::api::LinkId;
use crate::node::config::{NodeConfig, ns};
use crate::node::role::entry_refs::{FollowerEntries, SentBatches};
use crate::node::role::{Role, RoleCause};
use crate::numbers::LogIndex;
use crate::position::Epoch;
use crate::ranges::PublisherRanges;
use crate::trace::TraceStep;
use std::collections::VecDeque;

/// Bounds of a log that the copy may fill while entries are still on their way down to the readers
/// at the standby.
const COPY_PART_MAX: usize = 2;

/// A log on its way to another agent.
pub(in crate::node) struct LogShipper {
    start: Option<ReplicaStart>,
    dedup: VecDeque<DedupRanges>,
    /// Entries up to here were sent.
    cursor: LogIndex,
    /// The dedup ranges cover all events up to here. Entries that the log drops before that may be
    /// missing in the copy too.
    marked: LogIndex,
    /// With the entries up to here the copy was complete for the first time.
    complete_at: Option<LogIndex>,
    /// Which copy of this epoch it is.
    copy: u64,
    /// What the other end says of a copy that is complete, until it is the standby.
    whole: Option<CopyAck>,
    /// What has come up from there.
    pub(in crate::node) entry_refs: FollowerEntries,
}

/// What goes into one [`Replicate`].
#[derive(Default)]
struct ShippedPart {
    items: Vec<Item>,
    entry_refs: Vec<EntryRef>,
}

/// What a standby says of its copy, as [`Frame::ReplicaAck`] tells it.
#[derive(Clone, Copy)]
pub(in crate::node) struct CopyAck {
    pub(in crate::node) index: LogIndex,
    pub(in crate::node) copy: u64,
    pub(in crate::node) kept_from: Option<u64>,
    pub(in crate::node) synced: Option<SyncedRange>,
}

/// The copy of the log at a standby.
pub(in crate::node) struct Replica {
    pub(in crate::node) epochs: EpochHistory,
    pub(in crate::node) log: Log,
    pub(in crate::node) published: PublisherRanges,
    /// Everything that the root had appended was here at some time, and all since.
    pub(in crate::node) complete: bool,
    /// How long the acknowledgement of the whole copy waits for the mark on the disk here.
    mark_until_ns: u64,
    /// Which [`ReplicaStart::copy`] it is.
    copy: u64,
    /// What was sent up and is not in it yet.
    pub(in crate::node) kept: SentBatches,
}

impl LogShipper {
    /// Of everything after the first of these indices; `published` is of the log up to the second.
    pub(in crate::node) fn new(
        epochs: &EpochHistory,
        (after, marked): (LogIndex, LogIndex),
        published: &PublisherRanges,
        copy: u64,
    ) -> Self {
        let all: Vec<_> =
            published.iter().map(|(publisher, set)| (publisher, set.ranges().to_vec())).collect();
        let dedup = all
            .chunks(DEDUP_PUBLISHERS_MAX)
            .map(|chunk| DedupRanges { publishers: chunk.to_vec() });
        Self {
            start: Some(ReplicaStart { epochs: epochs.clone(), after, copy }),
            dedup: dedup.collect(),
            cursor: after,
            marked,
            complete_at: None,
            copy,
            whole: None,
            entry_refs: FollowerEntries::default(),
        }
    }

    /// What the other end says of its whole copy, until it is the standby.
    pub(in crate::node) fn whole(&self) -> Option<CopyAck> {
        self.whole
    }

    /// The next piece.
    pub(in crate::node) fn next(
        &mut self,
        followed: &FollowedLog,
        bytes_max: usize,
    ) -> Option<Frame> {
        let (log, epochs) = (followed.entries(), followed.epochs());
        let (epoch, committed) = (epochs.head(), followed.commit_index());
        if let Some(start) = self.start.take() {
            return Some(Frame::ReplicaStart(start));
        }
        if let Some(dedup) = self.dedup.pop_front() {
            return Some(Frame::DedupRanges(dedup));
        }
        let last = log.last();
        let nothing_new = self.cursor >= last && !self.entry_refs.is_due();
        if nothing_new && self.complete_at.is_some() {
            return None;
        }
        let ShippedPart { items, entry_refs } = self.piece(log, epochs, bytes_max);
        let until = self.cursor;
        let complete = until == last;
        if complete && self.complete_at.is_none() {
            self.complete_at = Some(until);
        }
        let refs_until = if complete { self.entry_refs.all_sent() } else { 0 };
        let batch = Replicate { epoch, items, entry_refs, until, committed, complete, refs_until };
        Some(Frame::Replicate(batch))
    }

    /// The next entries: those that the other end has sent up are named, not sent.
    fn piece(&mut self, log: &Log, epochs: &EpochHistory, bytes_max: usize) -> ShippedPart {
        let mut piece = ShippedPart::default();
        let (mut bytes, mut events) = (bytes_max, BATCH_EVENTS_MAX);
        while self.cursor < log.last() && piece.entry_refs.len() < BATCH_EVENTS_MAX {
            let entry_ref = self.entry_refs.behind(self.cursor);
            if let Some(entry_ref) =
                entry_ref.filter(|entry_ref| entry_ref.index == self.cursor.next())
            {
                piece.entry_refs.push(*entry_ref);
                self.cursor = entry_ref.last();
                continue;
            }
            let end = entry_ref.map_or(log.last(), |entry_ref| entry_ref.index.before());
            let (items, until) = log.next((self.cursor, end), bytes, events, epochs);
            bytes = bytes.saturating_sub(items.iter().map(Item::len).sum());
            events -= items.iter().map(Item::count).sum::<usize>();
            piece.items.extend(items);
            self.cursor = until;
            if until < end {
                break;
            }
        }
        piece
    }
}

impl Replica {
    /// Of a log behind `after`, of which nothing is here yet.
    pub(in crate::node) fn new(start: ReplicaStart, config: &NodeConfig) -> Self {
        Self {
            epochs: start.epochs,
            log: Log::new(start.after, config.conditions),
            published: PublisherRanges::new(config.publishers_max),
            complete: false,
            mark_until_ns: 0,
            copy: start.copy,
            kept: SentBatches::default(),
        }
    }

    pub(in crate::node) fn mark(&mut self, dedup: &DedupRanges) {
        for (publisher, ranges) in &dedup.publishers {
            for (first, last) in ranges {
                self.published.insert_range(*publisher, (*first).into(), (*last).into());
            }
        }
    }

    /// Adds a piece of the log. Fails on a reference to a batch that was not kept.
    #[must_use]
    pub(in crate::node) fn add(&mut self, batch: Replicate) -> bool {
        let mut items = batch.items.into_iter().peekable();
        for entry_ref in &batch.entry_refs {
            while let Some(item) = items.next_if(|item| item.index < entry_ref.index) {
                self.push(item);
            }
            let Some(entries) = self.kept.entries(entry_ref) else { return false };
            entries.into_iter().for_each(|entry| self.push(entry));
        }
        items.for_each(|item| self.push(item));
        self.kept.forget_before(batch.refs_until.saturating_add(1));
        self.log.cover(batch.until);
        self.complete |= batch.complete;
        true
    }

    /// Adds an entry.
    pub(in crate::node) fn push(&mut self, item: Item) {
        if let Content::Events(run) = &item.content {
            self.published.insert_run(run);
        }
        self.log.push(item);
    }
}

impl Node {
    /// The lowest-ranked child is the standby: it is who becomes acting root next. While it still
    /// copies the log, the one before goes on.
    pub(in crate::node) fn choose_standby(&mut self) {
        // Only an acting root has a standby.
        let Some(root) = self.role.root_mut() else { return };
        if root.skip_until_ns <= self.cx.now.mono_ns {
            root.skipped = None;
        }
        let attached = self.tree.children().filter(|(_, child)| child.attached);
        let lowest = attached.min_by_key(|(_, child)| child.rank).map(|(link, _)| link);
        let Some(lowest) = lowest else { return };
        if root.standby == Some(lowest) || root.syncing == Some(lowest) {
            return;
        }
        if root.skipped == Some(lowest) {
            return;
        }
        let old = root.syncing.replace(lowest);
        let range = (self.log.known_after(true), self.log.last());
        root.copies += 1;
        let shipper = LogShipper::new(self.log.epochs(), range, &root.published, root.copies);
        root.shippers.insert(lowest, shipper);
        if let Some(old) = old {
            self.stop_shipper(old);
        }
        self.refresh_around();
        self.membership.copy_dynamic_members(&mut self.cx, lowest);
        self.cx.wake(lowest);
    }

    /// A child's copy of the log is not kept up any more: it must not take over with it.
    fn stop_shipper(&mut self, link: LinkId) {
        let shipper = self.role.root_mut().and_then(|root| root.shippers.remove(&link));
        if shipper.is_some() && self.tree.child(link).is_some() {
            let stop = ReplicaStart { epochs: EpochHistory::new(), after: LogIndex::ZERO, copy: 0 };
            self.cx.send(link, Frame::ReplicaStart(stop));
        }
    }

    /// A child is gone, or can no longer be standby.
    pub(in crate::node) fn standby_gone(&mut self, link: LinkId) {
        // Only an acting root has a standby.
        let Some(root) = self.role.root_mut() else { return };
        root.shippers.remove(&link);
        if root.syncing == Some(link) {
            root.syncing = None;
        }
        if root.standby == Some(link) {
            root.standby = None;
            let why = "the standby is gone: the acting root confirms alone";
            self.cx.transition("standby", "", "synced", "none", why);
        }
        self.refresh_around();
    }

    /// Skips a standby that delays all commits.
    pub(in crate::node) fn skip_slow_standby(&mut self) {
        // Only an acting root has a standby, and not always.
        let Some(root) = self.role.root_mut() else { return };
        let Some(link) = root.standby else { return };
        let behind = self.log.last() > root.acked;
        let too_long = behind
            && root.last_ack_ns.saturating_add(ns(self.cx.config.standby_ms))
                <= self.cx.now.mono_ns;
        let too_much =
            behind && self.log.entries().bytes_after(root.acked) > self.cx.config.uncommitted_bytes;
        if !too_long && !too_much {
            return;
        }
        self.cx.counters.standby_skipped += 1;
        root.skipped = Some(link);
        let pause_ms = self.cx.config.probe_ms.saturating_mul(1 << root.skips.min(16));
        let pause_ms = pause_ms.min(self.cx.config.probe_ms_max);
        root.skips = root.skips.saturating_add(1);
        root.skip_until_ns = self.cx.after_ms(pause_ms);
        self.stop_shipper(link);
        self.standby_gone(link);
    }

    /// When a standby that acknowledges nothing is let go; at a standby, when it waits for the mark
    /// on its disk no longer.
    pub(in crate::node) fn standby_deadline_ns(&self) -> Option<u64> {
        let Some(root) = self.role.root() else {
            let waits = self.waits_for_mark();
            return self.role.replica().filter(|_| waits).map(|replica| replica.mark_until_ns);
        };
        if root.standby.is_some() {
            let waits = self.log.last() > root.acked;
            return waits.then(|| root.last_ack_ns.saturating_add(ns(self.cx.config.standby_ms)));
        }
        let waits = root.skipped.is_some() && root.syncing.is_none();
        waits.then_some(root.skip_until_ns)
    }

    /// The next piece of the log for a child that copies it.
    pub(in crate::node) fn poll_shipper(
        &mut self,
        link: LinkId,
        bytes_max: usize,
    ) -> Option<Frame> {
        let evicted = self.log.entries().evicted();
        let shipper = self.role.root_mut()?.shippers.get_mut(&link)?;
        if shipper.start.is_none() && shipper.cursor < evicted && shipper.marked < evicted {
            // It was outrun: its copy has a hole. Begin again.
            self.stop_shipper(link);
            self.standby_gone(link);
            self.choose_standby();
            return None;
        }
        shipper.next(&self.log, bytes_max)
    }

    /// Whether what comes up over a link is kept there, so that its place in the log will do.
    pub(in crate::node) fn is_kept_by_follower(&self, link: LinkId) -> bool {
        let shipper = self.role.root().and_then(|root| root.shippers.get(&link));
        shipper.is_some_and(|found| found.entry_refs.wants(self.publishing.batches_of(link)))
    }

    /// The last batch that came up over a link is in the log, at those places.
    pub(in crate::node) fn note_entry_refs(&mut self, link: LinkId, mut places: Vec<EntryRef>) {
        let batch = self.publishing.batches_of(link);
        places.iter_mut().for_each(|entry_ref| entry_ref.batch = batch);
        let shipper = self.role.root_mut().and_then(|root| root.shippers.get_mut(&link));
        if shipper.is_some_and(|shipper| shipper.entry_refs.on_batch(batch, places)) {
            self.cx.wake(link);
        }
    }

    /// What a standby says of its copy; of a whole copy nothing before its disk has the mark.
    pub(in crate::node) fn replica_ack(&self) -> Option<Frame> {
        let replica = self.role.replica().filter(|_| !self.waits_for_mark())?;
        let (epoch, index) = (replica.epochs.head(), replica.log.last());
        let (copy, kept_from) = (replica.copy, replica.kept.from());
        let synced = self.journal.synced(epoch);
        Some(Frame::ReplicaAck { epoch, index, copy, kept_from, synced })
    }

    /// Entries are appended: standby and syncing standby get them.
    pub(in crate::node) fn wake_followers(&mut self) {
        let Some(root) = self.role.root() else { return self.cx.impossible("CommitAtRoot") };
        for link in [root.standby, root.syncing].into_iter().flatten() {
            self.cx.wake(link);
        }
    }

    /// The standby holds the log up to an index.
    pub(in crate::node) fn on_replica_ack(&mut self, link: LinkId, epoch: Epoch, ack: CopyAck) {
        let CopyAck { index, copy, kept_from, synced } = ack;
        let last = self.log.last();
        let Some(root) = self.role.root_mut() else {
            // The standby has not yet learned that this agent steps down.
            self.cx.counters.stale += 1;
            return;
        };
        let shipper = root.shippers.get_mut(&link);
        let Some(shipper) = shipper.filter(|shipper| shipper.copy == copy) else {
            self.cx.counters.stale += 1;
            return;
        };
        if epoch != self.log.head() || index > last {
            self.cx.counters.stale += 1;
            return;
        }
        shipper.entry_refs.begin(kept_from);
        // The copy is not complete.
        let Some(complete_at) = shipper.complete_at else { return };
        if root.standby == Some(link) {
            root.acked = root.acked.max(index);
            root.standby_synced = synced;
            root.last_ack_ns = self.cx.now.mono_ns;
            let steady_ns = root.skip_until_ns.saturating_add(ns(self.cx.config.probe_ms_max));
            if steady_ns <= self.cx.now.mono_ns {
                root.skips = 0;
            }
        } else if root.syncing == Some(link) && index >= complete_at {
            shipper.whole = Some(ack);
        }
    }

    /// A child that holds the whole log is the standby as soon as the disk here has the mark.
    pub(in crate::node) fn take_standby(&mut self) {
        // Only an acting root has a standby.
        let Some(root) = self.role.root_mut() else { return };
        let Some((link, ack)) = root.whole_copy().filter(|_| self.journal.is_marked()) else {
            return;
        };
        let old = root.standby.replace(link);
        root.syncing = None;
        root.skipped = None;
        root.acked = ack.index;
        root.standby_synced = ack.synced;
        root.last_ack_ns = self.cx.now.mono_ns;
        if let Some(old) = old {
            self.stop_shipper(old);
        }
        let host = self.host_of(link);
        self.cx.transition("standby", &host, "copying", "synced", "it holds the whole log");
        self.send_tree_state();
    }

    // What a standby does.

    /// Whether it holds the whole log, and its disk has not the mark yet.
    fn waits_for_mark(&self) -> bool {
        matches!(&self.role, Role::Standby(_, replica)
            if !self.journal.is_marked() && self.cx.now.mono_ns < replica.mark_until_ns)
    }

    pub(in crate::node) fn on_replica_start(&mut self, start: ReplicaStart) {
        if let Some(parent) = self.role.parent() {
            // Batches that were kept for the last copy hold nothing up any more.
            let link = parent.link;
            self.cx.wake(link);
        }
        if start.epochs.is_empty() {
            return self.stop_copy("the acting root sends no copy any more");
        }
        let replica = Replica::new(start, &self.cx.config);
        let why = "the acting root sends its log";
        self.change_role(RoleCause::CopyBegun, why, |role| role.with_copy(Some(replica)));
    }

    /// The copy of the log is not kept up any more.
    fn stop_copy(&mut self, why: &str) {
        if matches!(self.role, Role::Syncing(..) | Role::Standby(..)) {
            self.change_role(RoleCause::CopyStopped, why, |role| role.with_copy(None));
        }
    }

    pub(in crate::node) fn on_dedup_ranges(&mut self, dedup: &DedupRanges) {
        if let Some(replica) = self.role.replica_mut() {
            replica.mark(dedup);
        }
    }

    pub(in crate::node) fn on_replicate(&mut self, link: LinkId, batch: Replicate) {
        let batches = self.role.parent().map_or(0, |parent| parent.batches);
        // The copy has ended here, and the root does not know.
        let Some(replica) = self.role.replica_mut() else { return };
        if replica.epochs.head() != batch.epoch {
            self.cx.counters.stale += 1;
            return;
        }
        let (committed, before) = (batch.committed, replica.log.last());
        let added = replica.add(batch);
        for item in replica.log.after(before) {
            if let Content::Events(run) = &item.content {
                let step = TraceStep::Replicated;
                self.cx.trace.note_indexed(self.cx.now.wall_ns, item.index, run, step);
            }
        }
        replica.log.apply_conditions(committed.min(replica.log.last()));
        if !added {
            self.stop_copy("an entry reference names no batch");
            return self.misbehaved(link, "an entry reference names no batch");
        }
        let is_complete = replica.complete;
        if is_complete && matches!(self.role, Role::Syncing(..)) {
            let why = "the whole log is here";
            self.change_role(RoleCause::CopyComplete, why, Role::into_standby);
            let until_ns = self.cx.after_ms(self.cx.config.journal_ms);
            if let Some(replica) = self.role.replica_mut() {
                replica.mark_until_ns = until_ns;
            }
        }
        // Batches are kept only while the root hears of it.
        let keeps = is_complete && !self.waits_for_mark();
        if let Some(replica) = self.role.replica_mut().filter(|_| keeps)
            && replica.kept.from().is_none()
        {
            replica.kept.begin(batches + 1);
        }
        self.trim_copy(committed);
        if let Some(parent) = self.role.parent_mut() {
            parent.ack_due = true;
            let link = parent.link;
            self.cx.wake(link);
        }
    }

    /// Keeps the bound of the copy. It gives up committed entries. What is still on its way down to
    /// the readers here goes only beyond twice the bound: after a take-over they read that in it.
    pub(in crate::node) fn trim_copy(&mut self, committed: LogIndex) {
        let (bytes_max, reserve) = (self.cx.config.log_bytes, self.cx.config.reserve());
        let visible = committed.min(self.log.commit_index());
        // There is a copy at the standby only.
        let Some(replica) = self.role.replica_mut() else { return };
        while replica.log.bytes() > bytes_max {
            let is_far_over = replica.log.bytes() > bytes_max.saturating_mul(COPY_PART_MAX);
            let until = if is_far_over { committed } else { visible };
            if replica.log.retire(until, &reserve).is_none() {
                break;
            }
        }
    }

    /// Goes on with the copy. What the copy has given up counts as given up here now: readers keep
    /// what they want of what has passed by, within their bound. What has not passed by yet they
    /// catch up with: from the disk, or as a gap.
    pub(in crate::node) fn take_copy(&mut self, copy: Log) {
        let given_up = copy.evicted();
        while let Some(evicted) = self.log.evict_until(given_up) {
            self.cx.counters.kept_at_take_over += evicted.item.count() as u64;
            self.reading(|delivery, cx| delivery.on_evicted(cx, &evicted));
        }
        self.log.take_copy(copy);
        let visible = self.log.commit_index();
        if given_up > visible {
            self.cx.counters.copies_outrun += 1;
            self.delivery.subscribers_missed(visible, given_up);
        }
    }

    /// The copy is of use only in the epoch that it was made in, and for the standby.
    pub(in crate::node) fn check_replica(&mut self) {
        let head = self.log.head();
        if self.role.replica().is_some_and(|replica| replica.epochs.head() != head) {
            self.stop_copy("another epoch goes on");
        }
    }
}
