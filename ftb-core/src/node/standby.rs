//! The log in two places: the acting root sends everything it appends to its standby before it
//! counts as committed; the standby keeps the copy that lets it take over without a loss.

use super::Node;
use super::api::LinkId;
use super::config::ns;
use super::log::Log;
use crate::frame::{Content, Frame, MARKS_MAX, Marks, ReplicaStart, Replicate};
use crate::limits::BATCH_EVENTS_MAX;
use crate::lineage::Lineage;
use crate::position::Epoch;
use crate::ranges::PublisherRanges;
use std::collections::VecDeque;

/// A log on its way to another agent.
pub(super) struct Feed {
    start: Option<ReplicaStart>,
    marks: VecDeque<Marks>,
    /// Entries up to here were sent.
    cursor: u64,
    /// With the entries up to here the copy was complete for the first time.
    complete_at: Option<u64>,
    /// Up to here it was committed when that was last said.
    committed: u64,
}

/// The copy of the log at a standby.
pub(super) struct Replica {
    pub(super) lineage: Lineage,
    pub(super) log: Log,
    pub(super) published: PublisherRanges,
    /// Everything that the root had appended was here at some time, and all since.
    pub(super) complete: bool,
}

impl Feed {
    /// Of everything behind `after`.
    pub(super) fn new(lineage: &Lineage, after: u64, published: &PublisherRanges) -> Self {
        let all: Vec<_> =
            published.iter().map(|(publisher, set)| (publisher, set.ranges().to_vec())).collect();
        let marks = all.chunks(MARKS_MAX).map(|chunk| Marks { publishers: chunk.to_vec() });
        Self {
            start: Some(ReplicaStart { lineage: lineage.clone(), after }),
            marks: marks.collect(),
            cursor: after,
            complete_at: None,
            committed: 0,
        }
    }

    /// The next piece.
    pub(super) fn next(
        &mut self,
        log: &Log,
        epoch: Epoch,
        committed: u64,
        bytes_max: usize,
    ) -> Option<Frame> {
        if let Some(start) = self.start.take() {
            return Some(Frame::ReplicaStart(start));
        }
        if let Some(marks) = self.marks.pop_front() {
            return Some(Frame::Marks(marks));
        }
        let last = log.last();
        let nothing_new = self.cursor >= last && self.committed >= committed;
        if nothing_new && self.complete_at.is_some() {
            return None;
        }
        let (items, until) = log.next(self.cursor, bytes_max, BATCH_EVENTS_MAX);
        self.cursor = until;
        self.committed = committed;
        let complete = until == last;
        if complete && self.complete_at.is_none() {
            self.complete_at = Some(until);
        }
        Some(Frame::Replicate(Replicate { epoch, items, until, committed, complete }))
    }
}

impl Replica {
    pub(super) fn mark(&mut self, marks: &Marks) {
        for (publisher, ranges) in &marks.publishers {
            for (first, last) in ranges {
                self.published.insert_range(*publisher, *first, *last);
            }
        }
    }

    pub(super) fn add(&mut self, batch: Replicate) {
        for item in batch.items {
            if let Content::Events(run) = &item.content {
                self.published.insert_run(run);
            }
            self.log.push(item);
        }
        self.log.cover(batch.until);
        self.complete |= batch.complete;
    }
}

impl Node {
    /// The lowest-ranked child is the standby: it is who becomes acting root next. While it still
    /// copies the log, the one before goes on.
    pub(super) fn choose_standby(&mut self) {
        let Some(root) = &mut self.root else { return };
        if root.skip_until_ns <= self.now.mono_ns {
            root.skipped = None;
        }
        let attached = self.children.iter().filter(|(_, child)| child.attached);
        let lowest = attached.min_by_key(|(_, child)| child.rank).map(|(link, _)| *link);
        let Some(lowest) = lowest else { return };
        if root.standby == Some(lowest) || root.heir == Some(lowest) {
            return;
        }
        if root.skipped == Some(lowest) {
            return;
        }
        let old = root.heir.replace(lowest);
        let after = self.full_since.max(self.log.evicted());
        if let Some(child) = self.children.get_mut(&lowest) {
            child.feed = Some(Feed::new(&self.lineage, after, &root.published));
        }
        if let Some(old) = old {
            self.stop_feed(old);
        }
        self.copy_roster(lowest);
        self.wake(lowest);
    }

    /// A child's copy of the log is not kept up any more: it must not take over with it.
    fn stop_feed(&mut self, link: LinkId) {
        if let Some(child) = self.children.get_mut(&link)
            && child.feed.take().is_some()
        {
            let stop = ReplicaStart { lineage: Lineage::new(), after: 0 };
            self.say(link, Frame::ReplicaStart(stop));
        }
    }

    /// A child is gone, or can no longer be standby.
    pub(super) fn standby_gone(&mut self, link: LinkId) {
        let Some(root) = &mut self.root else { return };
        if root.heir == Some(link) {
            root.heir = None;
        }
        if root.standby == Some(link) {
            root.standby = None;
            let why = "the standby is gone: the acting root confirms alone";
            self.transition("standby", "", "synced", "none", why);
        }
    }

    /// Lets go of a standby that holds everybody up.
    pub(super) fn skip_slow_standby(&mut self) {
        let Some(root) = &mut self.root else { return };
        let Some(link) = root.standby else { return };
        let behind = self.log.last() > root.acked;
        let too_long =
            behind && root.acked_ns.saturating_add(ns(self.config.standby_ms)) <= self.now.mono_ns;
        let too_much = behind && self.log.bytes_after(root.acked) > self.config.uncommitted_bytes;
        if !too_long && !too_much {
            return;
        }
        self.counters.standby_skipped += 1;
        root.skipped = Some(link);
        root.skip_until_ns = self.now.mono_ns.saturating_add(ns(self.config.probe_ms_max));
        self.stop_feed(link);
        self.standby_gone(link);
    }

    /// When a standby that acknowledges nothing is let go.
    pub(super) fn standby_deadline_ns(&self) -> u64 {
        let Some(root) = &self.root else { return u64::MAX };
        if root.standby.is_some() && self.log.last() > root.acked {
            root.acked_ns.saturating_add(ns(self.config.standby_ms))
        } else if root.skipped.is_some() && root.standby.is_none() && root.heir.is_none() {
            root.skip_until_ns
        } else {
            u64::MAX
        }
    }

    /// The next piece of the log for a child that copies it.
    pub(super) fn poll_feed(&mut self, link: LinkId, bytes_max: usize) -> Option<Frame> {
        let epoch = self.lineage.head();
        let (evicted, committed) = (self.log.evicted(), self.consumed);
        let child = self.children.get_mut(&link)?;
        let feed = child.feed.as_mut()?;
        if feed.start.is_none() && feed.cursor < evicted {
            // It was outrun: its copy has a hole. Begin again.
            self.stop_feed(link);
            self.standby_gone(link);
            self.choose_standby();
            return None;
        }
        feed.next(&self.log, epoch, committed, bytes_max)
    }

    /// Appended entries: whoever copies the log is to be sent them.
    pub(super) fn wake_feeds(&mut self) {
        let Some(root) = &self.root else { return };
        for link in [root.standby, root.heir].into_iter().flatten() {
            self.wake(link);
        }
    }

    /// The standby holds the log up to an index.
    pub(super) fn replica_acked(&mut self, link: LinkId, epoch: Epoch, index: u64) {
        let last = self.log.last();
        let Some(root) = &mut self.root else { return };
        if epoch != self.lineage.head() || index > last {
            self.counters.stale += 1;
            return;
        }
        let feed = self.children.get(&link).and_then(|child| child.feed.as_ref());
        let Some(complete_at) = feed.and_then(|feed| feed.complete_at) else { return };
        if root.standby == Some(link) {
            root.acked = root.acked.max(index);
            root.acked_ns = self.now.mono_ns;
        } else if root.heir == Some(link) && index >= complete_at {
            let old = root.standby.replace(link);
            root.heir = None;
            root.skipped = None;
            root.acked = index;
            root.acked_ns = self.now.mono_ns;
            if let Some(old) = old {
                self.stop_feed(old);
            }
            let host = self.children.get(&link).map(|c| c.host.clone()).unwrap_or_default();
            self.transition("standby", &host, "copying", "synced", "it holds the whole log");
            self.tell_standing();
        }
    }

    // What a standby does.

    pub(super) fn replica_start(&mut self, start: ReplicaStart) {
        self.held = None;
        if start.lineage.is_empty() {
            self.replica = None;
            return;
        }
        self.replica = Some(Replica {
            lineage: start.lineage,
            log: Log::new(start.after),
            published: PublisherRanges::new(self.config.publishers_max),
            complete: false,
        });
    }

    pub(super) fn replica_marks(&mut self, marks: &Marks) {
        if let Some(replica) = &mut self.replica {
            replica.mark(marks);
        }
    }

    pub(super) fn replicate(&mut self, batch: Replicate) {
        let bytes_max = self.config.log_bytes;
        let Some(replica) = &mut self.replica else { return };
        if replica.lineage.head() != batch.epoch {
            self.counters.stale += 1;
            return;
        }
        let committed = batch.committed;
        replica.add(batch);
        while replica.log.bytes() > bytes_max {
            if replica.log.evict(committed).is_none() {
                break;
            }
        }
        if let Some(parent) = self.uplink.parent_mut() {
            parent.ack_due = true;
            let link = parent.link;
            self.wake(link);
        }
    }

    /// The copy is of use only in the reign that it was made in, and for the standby.
    pub(super) fn check_replica(&mut self) {
        let head = self.lineage.head();
        if self.replica.as_ref().is_some_and(|replica| replica.lineage.head() != head) {
            self.replica = None;
        }
    }
}
