//! The children of this agent as readers of the log: what each wants, and where it stands.

use crate::filter::{Filter, FilterSet};
use crate::frame::{Content, Down, Frame, Interest, Item};
use crate::limits::BATCH_EVENTS_MAX;
use crate::log::entries::Evicted;
use crate::log::followed::FollowedLog;
use crate::log::reader::{ReadLimit, Reader};
use crate::node::api::LinkId;
use crate::node::delivery::history_turns::Requester;
use crate::node::delivery::{Delivery, ReadCx};
use crate::numbers::LogIndex;
use crate::protocol::Features;
use crate::trace::TraceStep;

/// A child as a reader.
pub(super) struct ChildReader {
    /// What its subtree wants.
    pub(super) filters: FilterSet,
    /// The version of that which is not yet reported as active.
    inactive_version: Option<u64>,
    interest_version: u64,
    pub(super) reader: Reader,
    /// It has said in this epoch history where it resumes.
    pub(super) attached: bool,
}

/// What a child wants: one of the release before knows no folds of groups.
pub(super) fn filters_of(features: Features, filters: Vec<Filter>) -> FilterSet {
    let is_new = features.contains(Features::FOLDS);
    let known = |filter: Filter| {
        let is_single = filter.wants_single() || !is_new;
        filter.with_single(is_single)
    };
    let filters: Vec<Filter> = filters.into_iter().map(known).collect();
    FilterSet::merge(&filters)
}

impl Delivery {
    /// An agent is a child now, and has read up to an index.
    pub(crate) fn attach_child(&mut self, link: LinkId, index: LogIndex) {
        let child = ChildReader {
            filters: FilterSet::new(),
            inactive_version: None,
            interest_version: 0,
            reader: Reader::new(index),
            attached: false,
        };
        self.children.insert(link, child);
    }

    /// A child is gone, and what was asked for it or of it.
    pub(crate) fn detach_child(&mut self, cx: &mut ReadCx<'_>, link: LinkId) {
        self.children.remove(&link);
        self.stalled.remove(&Requester::Child(link));
        self.requests.retain(|_, request| !request.is_of(link));
        self.on_asked_child_gone(cx, link);
        self.next_turn(cx);
        self.interest_narrowed(cx);
    }

    /// A child must say again where it resumes.
    pub(crate) fn unsettle_child(&mut self, link: LinkId) {
        if let Some(child) = self.children.get_mut(&link) {
            child.attached = false;
        }
    }

    /// A child says where it resumes.
    pub(crate) fn on_resume(&mut self, cx: &mut ReadCx<'_>, link: LinkId, after: LogIndex) {
        let Some(child) = self.children.get_mut(&link) else {
            return cx.impossible("ChildIsKnown");
        };
        child.attached = true;
        child.reader.resume_after(after);
        child.reader.catching_up = false;
        self.requests.retain(|_, request| !request.is_for(Requester::Child(link)));
        self.catch_up(cx, Requester::Child(link));
        self.next_turn(cx);
    }

    /// A child's subtree wants something else now.
    pub(crate) fn on_interest(&mut self, cx: &mut ReadCx<'_>, link: LinkId, interest: Interest) {
        let Some(child) = self.children.get_mut(&link) else {
            return cx.impossible("ChildIsKnown");
        };
        if interest.version < child.interest_version {
            return;
        }
        child.interest_version = interest.version;
        let wanted = filters_of(cx.links.features(link), interest.filters);
        for filter in wanted.filters() {
            self.unmerged.insert(filter);
        }
        let before = std::mem::replace(&mut child.filters, wanted);
        child.inactive_version = Some(interest.version);
        match child.filters.covers_set(&before) {
            true => self.widen_interest(cx),
            false => self.interest_changed(cx),
        }
        self.answer_children(cx);
        cx.wake(link);
    }

    /// Tells children whose interest has become active.
    pub(crate) fn answer_children(&mut self, cx: &mut ReadCx<'_>) {
        if cx.awaits_log() {
            return;
        }
        let index = self.active_after(cx);
        for (link, child) in &mut self.children {
            let Some(version) = child.inactive_version else { continue };
            let is_active = || child.filters.filters().iter().all(|f| self.interests.covers(f));
            if cx.around.is_root || is_active() {
                child.inactive_version = None;
                cx.send(*link, Frame::FilterActive { version, index });
            }
        }
    }

    /// The next entries for a child.
    pub(crate) fn poll_down(
        &mut self,
        cx: &mut ReadCx<'_>,
        link: LinkId,
        bytes_max: usize,
    ) -> Option<Frame> {
        let until = cx.log.commit_index();
        let child = self.children.get_mut(&link)?;
        if !child.attached || child.reader.is_at(until) {
            return None;
        }
        let cut =
            ReadLimit { bytes: bytes_max, items: BATCH_EVENTS_MAX, until, skip_repeated: false };
        let items = child.reader.read(cx.log.entries(), cut, &child.filters);
        let reader = &child.reader;
        let covered = if reader.is_drained() {
            reader.cursor
        } else {
            items.last().map_or(LogIndex::ZERO, Item::last)
        };
        if reader.catching_up && reader.is_drained() {
            self.catch_up(cx, Requester::Child(link));
        }
        if items.is_empty() {
            return None;
        }
        let rank = cx.around.child(link).map_or(0, |child| child.sighting.rank.0);
        let now_ns = cx.now.wall_ns;
        cx.trace.note_items(now_ns, &items, TraceStep::SentDown, rank.into());
        cx.counters.events_down += items.iter().map(|item| item.count() as u64).sum::<u64>();
        Some(Frame::Down(Down { epoch: cx.log.head(), items, covered }))
    }

    /// Whether a child has read all that is committed.
    pub(crate) fn is_child_idle(&self, log: &FollowedLog, link: LinkId) -> bool {
        self.children.get(&link).is_some_and(|child| {
            let reader = &child.reader;
            child.attached && !reader.catching_up && reader.is_at(log.commit_index())
        })
    }

    /// Committed entries after `from` have become visible: wakes the children that want any, and
    /// moves those on that want none.
    pub(super) fn wake_children(&mut self, cx: &mut ReadCx<'_>, from: LogIndex) {
        for (link, child) in &mut self.children {
            if !child.attached || child.reader.catching_up || cx.links.is_ready(*link) {
                continue;
            }
            let wants = |content: &Content| match content {
                Content::Events(run) => run.groups().any(|(_, event)| child.filters.matches(event)),
                Content::Gap(gap) => child.filters.may_want(gap.severity_max, &gap.spaces),
            };
            let mut news = cx.log.entries().after(from.max(child.reader.cursor));
            if !child.reader.is_at(from) || news.any(|item| wants(&item.content)) {
                cx.wake(*link);
            } else {
                child.reader.cursor = child.reader.cursor.max(cx.log.commit_index());
            }
        }
    }

    /// The log gives an entry up: readers that have not read it keep it within their bound.
    pub(crate) fn on_evicted(&mut self, cx: &mut ReadCx<'_>, evicted: &Evicted) {
        for (item, is_repeated) in evicted.parts() {
            self.keep_for_subscribers(cx, &item, is_repeated);
        }
        let now_ns = cx.now.wall_ns;
        for (link, child) in self.children.iter_mut().filter(|(_, child)| child.attached) {
            let before = child.reader.shed;
            let (lag_bytes, filters) = (cx.config.lag_bytes, &child.filters);
            child.reader.keep(&evicted.item, lag_bytes, cx.log.epochs(), filters);
            cx.counters.shed += child.reader.shed - before;
            for run in child.reader.take_shed_traced() {
                let rank = cx.around.child(*link).map_or(0, |child| child.sighting.rank.0);
                cx.trace.note_run(now_ns, &run, TraceStep::ShedBelow, rank.into());
            }
        }
    }

    /// Bytes that a child has not read.
    pub(crate) fn queued_for_child(&self, log: &FollowedLog, link: LinkId) -> usize {
        self.children.get(&link).map_or(0, |child| log.queued(&child.reader))
    }

    /// Bytes that are kept for readers beside the log.
    pub(crate) fn held_bytes(&self) -> usize {
        let below = self.children.values().map(|child| child.reader.kept_bytes());
        let own = self.clients.values().flat_map(|client| client.subscriptions.values());
        below.chain(own.map(|found| found.reader.kept_bytes())).sum()
    }

    /// How many readers there are.
    pub(crate) fn readers(&self) -> usize {
        let own = self.clients.values().map(|client| client.subscriptions.len());
        self.children.len() + own.sum::<usize>()
    }
}
