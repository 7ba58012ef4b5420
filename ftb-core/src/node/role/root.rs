//! The acting root: appends what comes up to the one log, commits what its standby holds, confirms
//! it to the origins, opens epochs.

use crate::epochs::EpochHistory;
use crate::frame::{Confirm, Content, EntryRef, Item, SyncedRange, UpBatch, UpItem};
use crate::ident::OriginId;
use crate::log::entries::cost_of;
use crate::node::Node;
use crate::node::api::{Gap, LinkId};
use crate::node::config::ns;
use crate::node::publishing::LosingLog;
use crate::node::role::forks::PendingForks;
use crate::node::role::grouping::{Grouping, without_folds};
use crate::node::role::journal::Past;
use crate::node::role::offered::OfferedLog;
use crate::node::role::on_disk::{DiskWait, DiskWaits};
use crate::node::role::re_proposal::{items_after_fork, unfilled};
use crate::node::role::standby::{CopyAck, LogShipper, Replica};
use crate::node::role::{KeptLog, Role, RoleCause};
use crate::numbers::{LogIndex, OriginSeq};
use crate::position::{Epoch, Position};
use crate::ranges::PublisherRanges;
use crate::run::Run;
use crate::trace::TraceStep;
use std::collections::{BTreeMap, VecDeque};

/// What only an acting root has.
pub(in crate::node) struct Root {
    pub(in crate::node) published: PublisherRanges,
    /// Groups whose folds are not in the log yet.
    pub(in crate::node) grouping: Grouping,
    origins: BTreeMap<OriginId, OriginRun>,
    /// What is appended and not yet confirmed, in order.
    unconfirmed: VecDeque<Unconfirmed>,
    /// Holds everything that is committed.
    pub(in crate::node) standby: Option<LinkId>,
    /// Copies the log, to be standby next.
    pub(in crate::node) syncing: Option<LinkId>,
    /// The log on its way to the two.
    pub(in crate::node) shippers: BTreeMap<LinkId, LogShipper>,
    /// The highest index that the standby has acknowledged, and when its last acknowledgement came.
    pub(in crate::node) acked: LogIndex,
    pub(in crate::node) last_ack_ns: u64,
    /// The range of the log that the standby has on disk, by its last acknowledgement.
    pub(in crate::node) standby_synced: Option<SyncedRange>,
    /// What is committed and is to be on disk before it is settled.
    pub(in crate::node) disk_waits: DiskWaits,
    /// How many copies of the log were begun.
    pub(in crate::node) copies: u64,
    /// A child that was too slow to be standby, and until when it is left alone.
    pub(in crate::node) skipped: Option<LinkId>,
    pub(in crate::node) skip_until_ns: u64,
    /// How often standbys were skipped in a row; each time the pause is longer.
    pub(in crate::node) skips: u32,
    pub(in crate::node) phase: RootPhase,
    /// The child whose log it has taken: that child may have more of it.
    pub(in crate::node) log_source: Option<LinkId>,
    /// Epochs that are no part of this log.
    pub(in crate::node) forks: PendingForks,
    /// What the disk of this agent has lost of the log, and until when another agent may bring it.
    pub(in crate::node) unreadable: Option<(Gap, u64)>,
}

/// How far an acting root is with the log of its component.
pub(in crate::node) enum RootPhase {
    /// It has just started: until then an agent may bring the log, and nothing is active.
    AwaitingLog { until_ns: u64 },
    /// It receives the log of a child. `awaits`: it waited for a log before.
    Installing {
        from: LinkId,
        offered: OfferedLog,
        replica: Option<Box<Replica>>,
        awaits: Option<u64>,
    },
    /// It appends to the log.
    Leading,
}

/// Where an origin's run stands: its next item.
struct OriginRun {
    run: u64,
    next: OriginSeq,
    refused: bool,
}

struct Unconfirmed {
    index: LogIndex,
    origin: OriginId,
    seq: OriginSeq,
    /// Its new entries begin after this index, if they are to be on disk.
    disk_after: Option<LogIndex>,
}

/// A gap is one entry, not a range of this log.
fn placed(gap: Gap, index: LogIndex) -> Gap {
    let item = Item { index, content: Content::Gap(gap.clone()) };
    if item.is_range() { Gap { after: gap.until, ..gap } } else { gap }
}

/// Adds a place, to the one before where it follows.
fn push_entry_ref(entry_refs: &mut Vec<EntryRef>, entry_ref: EntryRef) {
    match entry_refs.last_mut() {
        Some(last)
            if last.last().next() == entry_ref.index
                && last.skip + u64::from(last.count) == entry_ref.skip =>
        {
            last.count += entry_ref.count;
        }
        _ => entry_refs.push(entry_ref),
    }
}

/// Most origins whose runs are remembered; a forgotten one is asked to begin another run.
const ORIGINS_MAX: usize = 262_144;

impl Root {
    fn new(phase: RootPhase, published: PublisherRanges) -> Self {
        Self {
            published,
            grouping: Grouping::default(),
            origins: BTreeMap::new(),
            unconfirmed: VecDeque::new(),
            standby: None,
            syncing: None,
            shippers: BTreeMap::new(),
            acked: LogIndex::ZERO,
            last_ack_ns: 0,
            standby_synced: None,
            disk_waits: DiskWaits::default(),
            copies: 0,
            skipped: None,
            skip_until_ns: 0,
            skips: 0,
            phase,
            log_source: None,
            forks: PendingForks::default(),
            unreadable: None,
        }
    }
}

impl Root {
    /// Another agent has brought some of what the disk has lost: `left` gives what is still missing
    /// of it.
    pub(in crate::node) fn note_filled(&mut self, left: impl FnOnce(Gap) -> Option<Gap>) {
        let unreadable = self.unreadable.take();
        self.unreadable = unreadable.and_then(|(gap, until_ns)| Some((left(gap)?, until_ns)));
    }

    /// The child that is to be standby, and what it says, once it holds the whole log.
    pub(in crate::node) fn whole_copy(&self) -> Option<(LinkId, CopyAck)> {
        let link = self.syncing?;
        Some((link, self.shippers.get(&link)?.whole()?))
    }

    /// What is unconfirmed will come up again.
    pub(in crate::node) fn forget_unconfirmed(&mut self) {
        self.unconfirmed.clear();
        self.disk_waits = DiskWaits::default();
        self.origins.clear();
    }
}

impl Node {
    /// Takes the log over, or begins one.
    pub(in crate::node) fn become_root(&mut self, why: &str) {
        let head = self.log.head();
        let past = self.past.take();
        let unreadable = past.as_ref().and_then(Past::lost);
        let phase = match self.log_wait_until_ns {
            Some(until_ns) if self.cx.now.mono_ns < until_ns => RootPhase::AwaitingLog { until_ns },
            _ => RootPhase::Leading,
        };
        self.log_wait_until_ns = None;
        let nothing = PublisherRanges::new(self.cx.config.publishers_max);
        let mut kept = KeptLog::None;
        self.change_role(RoleCause::NoParent, why, |role| {
            kept = role.into_log();
            Role::Root(Box::new(Root::new(phase, nothing)))
        });
        let (offered, replica) = match kept {
            KeptLog::Whole(published) => (Some(published), None),
            KeptLog::Copy(replica) => (None, Some(*replica)),
            KeptLog::None => (None, None),
        };
        let replica = replica.or(past.map(|past| past.replica));
        let mut lost = false;
        let published = match (offered, replica) {
            (Some(published), _) => published,
            (None, Some(replica))
                if replica.complete
                    && replica.epochs.head() == head
                    && replica.log.last() >= self.log.commit_index() =>
            {
                self.take_copy(replica.log);
                replica.published
            }
            _ => {
                // The entries that passed by count as unknown, too: each origin sends all that it
                // keeps again, so that it is in the log in order.
                lost = !self.log.epochs().is_empty();
                self.log.set_incomplete();
                PublisherRanges::new(self.cx.config.publishers_max)
            }
        };
        let wait_ns = if self.log_wait_ns() > 0 { ns(self.cx.config.grace_ms) } else { 0 };
        let wait_until_ns = self.cx.now.mono_ns.saturating_add(wait_ns);
        let grace_until_ns = self.cx.after_ms(self.cx.config.grace_ms);
        let Some(root) = self.role.root_mut() else { return self.cx.impossible("RootIsRoot") };
        root.published = published;
        root.unreadable = unreadable.map(|gap| (gap, wait_until_ns));
        if lost {
            // More may have been confirmed than is here. One more index stands for that: up to the
            // commit index the entries are part of this log, and no root would wait for them.
            root.forks.expect(head, self.log.commit_index().next(), grace_until_ns);
            self.cx.counters.logs_lost += 1;
        }
        self.cx.transition("root", "", "searching", "acting root", why);
        self.open_epoch(lost);
        self.log_unreadable();
        self.publishing.requeue(self.log.epochs());
        self.on_uplink_change();
        self.tree.plan_probe_from_start(&mut self.cx);
        self.reading(|delivery, cx| delivery.begin_active(cx));
        self.membership.answer_all_joins(&mut self.cx);
        self.reading(|delivery, cx| delivery.catch_up_all(cx, true));
        self.membership.begin_reconciliation(&mut self.cx);
        self.membership.suspect_lost_root(&mut self.cx, why);
    }

    /// Begins an epoch with a number above all that are known here. `incomplete`: this root lacks
    /// part of the log before it.
    pub(in crate::node) fn open_epoch(&mut self, incomplete: bool) {
        self.epoch_seen += 1;
        let epoch = Epoch { number: self.epoch_seen, root: self.cx.config.origin };
        self.log.open_epoch(epoch, incomplete);
        // What subscriptions had read further on, of an epoch before, is no part of this log.
        self.delivery.rewind_subscribers(Some(self.log.last()), self.log.epochs());
        self.cx.counters.epochs += 1;
        self.count_waiting();
        if let Some(root) = self.role.root_mut() {
            root.standby = None;
            root.syncing = None;
            root.shippers.clear();
        }
        self.regroup(incomplete);
        self.send_tree_state();
    }

    /// An agent of the component knows a higher epoch: it would not follow a lower one.
    pub(in crate::node) fn raise_epoch(&mut self) {
        if self.role.is_root() && self.log.head().number < self.epoch_seen {
            self.open_epoch(false);
        }
    }

    /// Events have come up to the root. Where the sender keeps them, `entry_refs` gets their
    /// positions in the log.
    pub(in crate::node) fn root_accept(
        &mut self,
        batch: UpBatch,
        mut entry_refs: Option<&mut Vec<EntryRef>>,
    ) {
        let Some(root) = self.role.root_mut() else { return self.cx.impossible("AcceptAtRoot") };
        if root.origins.len() > ORIGINS_MAX {
            root.origins.clear();
        }
        let fresh = OriginRun { run: batch.run, next: batch.base, refused: false };
        let run = root.origins.entry(batch.origin).or_insert(fresh);
        if batch.run < run.run {
            self.cx.counters.stale += 1;
            return;
        }
        if batch.run > run.run {
            *run = OriginRun { run: batch.run, next: batch.base, refused: false };
        }
        if batch.first > run.next {
            // Its beginning was lost on the way, or went to another root.
            let reported = std::mem::replace(&mut run.refused, true);
            if !reported {
                self.cx.counters.naks += 1;
                self.on_nak(batch.origin, batch.run);
            }
            return;
        }
        let next = batch.first + batch.count();
        let mut known = usize::try_from(run.next - batch.first).unwrap_or(usize::MAX);
        run.next = run.next.max(next);
        let mut passed = 0;
        let disk_after = batch.wants_disk.then_some(self.log.last());
        for item in batch.items {
            passed += item.count();
            let new = item.behind(known);
            known = known.saturating_sub(item.count());
            let Some(new) = new else { continue };
            let (before, count, events) =
                (self.log.last(), new.count(), matches!(new, UpItem::Events(_)));
            let is_verbatim = self.append(new);
            if let Some(entry_refs) = &mut entry_refs
                && events
                && is_verbatim
                && self.log.last() - before == count as u64
            {
                let (index, skip) = (before.next(), (passed - count) as u64);
                push_entry_ref(entry_refs, EntryRef { index, batch: 0, skip, count: count as u32 });
            }
        }
        let index = self.log.last();
        if let Some(root) = self.role.root_mut() {
            root.unconfirmed.push_back(Unconfirmed {
                index,
                origin: batch.origin,
                seq: next.before(),
                disk_after,
            });
        }
    }

    /// Appends what is not in the log. Says whether nothing was added or changed.
    pub(in crate::node) fn append(&mut self, item: UpItem) -> bool {
        match item {
            UpItem::Events(run) => return self.append_events(run),
            UpItem::Gap(gap) => {
                let gap = placed(gap, self.log.last().next());
                self.log_entry(Content::Gap(gap));
            }
            UpItem::Loss(loss) => {
                let (last, epochs) = (self.log.last(), self.log.epochs());
                let gap = loss.between((epochs.position(last), epochs.position(last.next())));
                self.log_entry(Content::Gap(gap));
            }
            UpItem::Fork { epoch, until, re_proposed } => {
                let Some(root) = self.role.root_mut() else {
                    self.cx.impossible("AppendAtRoot");
                    return false;
                };
                let deadline_ns = self.cx.after_ms(self.cx.config.grace_ms);
                if re_proposed {
                    root.forks.re_proposed(epoch, until);
                    root.note_filled(|gap| match gap.until.epoch == epoch {
                        true => unfilled(gap, until),
                        false => Some(gap),
                    });
                } else if !self.log.epochs().contains(Position { epoch, index: until }) {
                    root.forks.expect(epoch, until, deadline_ns);
                }
            }
        }
        true
    }

    /// Folds come up where a log has lost: this root makes its own of the members.
    fn append_events(&mut self, run: Run) -> bool {
        let mut is_verbatim = true;
        for run in without_folds(run) {
            let Some(root) = self.role.root_mut() else {
                self.cx.impossible("AppendAtRoot");
                return false;
            };
            let known = root.published.insert_run(&run);
            self.cx.counters.copies += known.len() as u64;
            for event in known.iter().filter_map(|place| run.get(*place)) {
                self.cx.trace.note(self.cx.now.wall_ns, event, TraceStep::Duplicate, 0);
            }
            for run in run.without(&known) {
                // What counted in another log may not count in this one.
                let unmarked = run.without_marks(self.cx.config.counted_mark);
                is_verbatim &= unmarked.is_none();
                let run = unmarked.unwrap_or(run);
                self.note_unset(&run);
                is_verbatim &= self.log_events(run);
            }
        }
        is_verbatim
    }

    pub(in crate::node) fn log_entry(&mut self, content: Content) {
        let Some(root) = self.role.root_mut() else { return self.cx.impossible("AppendAtRoot") };
        self.cx.counters.appended += content.count() as u64;
        if self.log.last() <= root.acked {
            // The standby had acknowledged everything: its time to answer begins now.
            root.last_ack_ns = self.cx.now.mono_ns;
        }
        if let Content::Events(run) = &content {
            let first = self.log.last().next();
            self.cx.trace.note_indexed(self.cx.now.wall_ns, first, run, TraceStep::Logged);
            self.cx.trace.note_folds(self.cx.now.wall_ns, first, run);
        }
        self.journal.appended(content.len());
        root.grouping.note_appended(cost_of(&content));
        self.log.append(content);
    }

    /// Commits what may be, makes it visible and confirms it. Called once after each input.
    pub(in crate::node) fn commit(&mut self) {
        self.skip_slow_standby();
        self.take_standby();
        let last = self.log.last();
        // Only an acting root commits. Another agent waits for no disk, also if it did as root.
        let Some(root) = self.role.root_mut() else { return self.journal.hold_up_nothing() };
        let until = match root.standby {
            Some(_) => root.acked.min(last),
            None => self.journal.commit_limit(self.log.head(), last),
        };
        let mut confirmed = Vec::new();
        while root.unconfirmed.front().is_some_and(|first| first.index <= until) {
            confirmed.extend(root.unconfirmed.pop_front());
        }
        if let Some(from) = self.log.commit(until) {
            self.journal_committed(from);
            self.became_visible(from);
            self.wake_followers();
        } else if last > until {
            self.wake_followers();
        }
        for Unconfirmed { index, origin, seq, disk_after } in confirmed {
            let position = self.log.epochs().position(index);
            let confirm = Confirm { origin, seq, position, settled: None };
            self.publishing.on_confirm(&mut self.cx, confirm);
            if let Some(after) = disk_after {
                self.await_disk(DiskWait { after, index, origin, seq });
            }
        }
        self.settle();
        if self.skip_slow_journal(until) {
            self.commit();
        }
    }

    /// Another root goes on with its log: the entries beyond the fork are re-proposed, in order, as
    /// if they had been published here.
    pub(in crate::node) fn step_down(&mut self, root: &Root, winning: &EpochHistory) {
        let items = items_after_fork(
            self.log.entries(),
            self.log.epochs(),
            self.log.memory_after(),
            winning,
        );
        let waiting = root.forks.waiting();
        let unreadable = root.unreadable.iter().filter(|(gap, _)| !winning.keeps(gap.until));
        let unreadable = unreadable.map(|(gap, _)| UpItem::Gap(gap.clone()));
        let items: Vec<UpItem> = items.into_iter().chain(unreadable).chain(waiting).collect();
        let losing = LosingLog { items, has_all: true, hole_until: self.log.complete_after() };
        self.publishing.re_propose(&mut self.cx, losing, winning);
    }
}
