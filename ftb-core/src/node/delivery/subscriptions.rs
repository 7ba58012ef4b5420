//! What the clients of this agent want: subscriptions, and from where in the log each begins.
//!
//! Responsible for: a subscription until it is active up to the root, and where it then stands. Not
//! responsible for: what comes ([`crate::node::delivery::deliver`]).

use crate::condition::CHASSIS_OFF;
use crate::filter::{Filter, FilterSet};
use crate::frame::Interest;
use crate::log::reader::Reader;
use crate::node::api::{
    ClientId, Gap, GapReason, RefusedWhat, RejectCode, Start, SubscriptionId, ToClient,
};
use crate::node::config::ns;
use crate::node::cx::Cx;
use crate::node::delivery::history_turns::Requester;
use crate::node::delivery::{Delivery, ReadCx};
use crate::node::timers::Timer;
use crate::numbers::LogIndex;
use crate::position::Trail;

/// One subscription.
pub(super) struct Subscription {
    pub(super) filter: Filter,
    pub(super) reader: Reader,
    /// What it wants is active up to the root; else it is among those that wait for that.
    active: bool,
    start: Start,
    /// The last index that its client knows to be covered.
    pub(super) reported: LogIndex,
    /// It began in the past, which ends at this index.
    pub(super) history_until: Option<LogIndex>,
}

/// How far back a subscription reads again that resumes in a log that it has nothing in common
/// with. Half of the event ids that the client library remembers, by which it drops what it had.
const READ_AGAIN_MAX: u64 = 8_192;

/// The delay before filters that ended are withdrawn at the parent, and what each filter here adds
/// to it: all are merged anew then, which may take a part of the time only.
const NARROW_MS: u64 = 100;
const NARROW_FILTER_MS: u64 = 1;
/// The shortest time between two merges for new subscriptions of clients here. The first of many
/// does not wait.
const WIDEN_MS: u64 = 50;

impl Subscription {
    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    /// Whether its client keeps the table of conditions.
    pub(in crate::node) fn began_with_conditions(&self) -> bool {
        self.start == Start::Conditions
    }
}

impl Delivery {
    /// A client wants events.
    pub(crate) fn on_subscribe(
        &mut self,
        cx: &mut ReadCx<'_>,
        client: ClientId,
        (id, filter, start): (SubscriptionId, Filter, Start),
    ) {
        let max = cx.config.subscriptions_max;
        // A table of conditions needs each statement.
        let is_single = filter.wants_single() || start == Start::Conditions;
        let filter = filter.with_single(is_single);
        let Some(subscriber) = self.clients.get_mut(&client) else {
            cx.counters.stale += 1;
            return;
        };
        let refuse = |message| ToClient::Refused {
            what: RefusedWhat::Subscription(id),
            code: RejectCode::Limit,
            message,
        };
        if subscriber.subscriptions.contains_key(&id) {
            let message = format!("subscription {} exists: end it first", id.0);
            return self.send_to_client(cx, client, refuse(message));
        }
        if subscriber.subscriptions.len() >= max {
            let message = format!("a client may have {max} subscriptions: end one first");
            return self.send_to_client(cx, client, refuse(message));
        }
        let uid = subscriber.uid;
        if let Err(message) = self.count_subscription(cx, uid, &filter) {
            return self.send_to_client(cx, client, refuse(message));
        }
        let Some(subscriber) = self.clients.get_mut(&client) else {
            return cx.impossible("SubscriberIsAttached");
        };
        self.index.insert(client, id, &filter);
        let is_new = !self.interests.announces(&filter);
        if is_new {
            self.unmerged.insert(&filter);
        }
        let subscription = Subscription {
            filter,
            reader: Reader::new(cx.log.commit_index()),
            active: false,
            start,
            reported: cx.log.commit_index(),
            history_until: None,
        };
        subscriber.subscriptions.insert(id, Box::new(subscription));
        self.waiting.insert((client, id));
        if is_new {
            self.interest_widened(cx);
        }
        self.subscriptions_active(cx);
    }

    pub(crate) fn on_unsubscribe(&mut self, cx: &mut Cx, client: ClientId, id: SubscriptionId) {
        let found = self.clients.get_mut(&client);
        let removed = found.and_then(|c| Some((c.uid, c.subscriptions.remove(&id)?)));
        self.histories.remove(&(client, id));
        self.waiting.remove(&(client, id));
        self.end_requests(|requester| requester == Requester::Subscription(client, id));
        if let Some(found) = self.clients.get_mut(&client) {
            found.due.remove(id);
        }
        if let Some((uid, removed)) = removed {
            self.turns.remove(uid, (client, id));
            self.budgets.unsubscribed(uid, &removed.filter);
            self.index.remove(client, id, &removed.filter);
            self.interest_narrowed(cx);
        } else {
            cx.counters.stale += 1;
        }
    }

    /// The subtree may want less: it is merged anew later, once for many changes. Unwanted events
    /// that come down until then are dropped here.
    pub(super) fn interest_narrowed(&mut self, cx: &mut Cx) {
        let filters = u64::try_from(self.readers()).unwrap_or(u64::MAX);
        let delay_ms = NARROW_MS.saturating_add(filters.saturating_mul(NARROW_FILTER_MS));
        let due_ns = *self.narrow_ns.get_or_insert(cx.after_ms(delay_ms));
        cx.timers.set_earlier(Timer::MergeInterest, due_ns);
    }

    /// The subtree wants more: it is added at once, or for many together.
    fn interest_widened(&mut self, cx: &mut Cx) {
        let due_ns = self.merged_ns.map_or(0, |at_ns| at_ns.saturating_add(ns(WIDEN_MS)));
        match due_ns <= cx.now.mono_ns {
            true => self.widen_interest(cx),
            false => cx.timers.set_earlier(Timer::MergeInterest, due_ns),
        }
    }

    /// It is time to merge what the subtree wants.
    pub(super) fn on_merge_timer(&mut self, cx: &mut ReadCx<'_>) {
        match self.narrow_ns.is_some_and(|due_ns| due_ns <= cx.now.mono_ns) {
            true => self.interest_changed(cx),
            false => self.widen_interest(cx),
        }
        self.subscriptions_active(cx);
    }

    /// Adds the new filters to what the subtree wants: no others are looked at.
    pub(super) fn widen_interest(&mut self, cx: &mut Cx) {
        let mut wanted = self.interests.wanted().clone();
        for filter in std::mem::take(&mut self.unmerged).filters() {
            wanted.insert(filter);
        }
        self.merged(cx, wanted);
        if let Some(due_ns) = self.narrow_ns {
            cx.timers.set(Timer::MergeInterest, due_ns);
        }
    }

    /// What the subtree wants may have changed: merges it anew and tells the parent.
    pub(super) fn interest_changed(&mut self, cx: &mut Cx) {
        self.unmerged = FilterSet::new();
        self.narrow_ns = None;
        let own = self.clients.values().flat_map(|client| client.subscriptions.values());
        let own = own.map(|subscription| &subscription.filter);
        let below = self.children.values().flat_map(|child| child.filters.filters());
        let wanted = FilterSet::merge(own.chain(below).chain(&self.power));
        self.merged(cx, wanted);
    }

    fn merged(&mut self, cx: &mut Cx, wanted: FilterSet) {
        cx.timers.stop(Timer::MergeInterest);
        self.merged_ns = Some(cx.now.mono_ns);
        cx.counters.merges += 1;
        if self.interests.want(wanted)
            && let Some(link) = cx.around.parent_link()
        {
            self.subscribe_due = true;
            cx.wake(link);
        }
    }

    /// Whether this agent itself wants reports of hosts that are powered off.
    pub(crate) fn want_power(&mut self, cx: &mut Cx, is_wanted: bool) {
        if is_wanted != self.power.is_some() {
            let filter = || Filter::parse(&format!("condition={CHASSIS_OFF}")).ok();
            self.power = is_wanted.then(filter).flatten();
            self.interest_changed(cx);
        }
    }

    /// What the parent must learn of the interest.
    pub(crate) fn take_interest(&mut self) -> Option<Interest> {
        std::mem::take(&mut self.subscribe_due).then(|| self.interests.reported())
    }

    /// What the subtree wants.
    pub(crate) fn interest(&self) -> Interest {
        self.interests.reported()
    }

    /// On a new link nothing is known to be active up to the root.
    pub(crate) fn unsettle_interest(&mut self) -> Interest {
        self.interests.unsettle();
        self.subscribe_due = false;
        self.interests.reported()
    }

    /// The parent says that our interest is active up to the root.
    pub(crate) fn on_filter_active(&mut self, cx: &mut ReadCx<'_>, version: u64, index: LogIndex) {
        if version != self.interests.version() {
            return;
        }
        self.active_index = index;
        self.interests.activate(version, index);
        self.begin_active(cx);
    }

    /// What is active up to the root may have changed.
    pub(crate) fn begin_active(&mut self, cx: &mut ReadCx<'_>) {
        self.subscriptions_active(cx);
        self.answer_children(cx);
    }

    /// Another log is followed from the commit index on.
    pub(crate) fn restart_interest(&mut self, commit_index: LogIndex) {
        self.interests.restart(commit_index);
    }

    /// The log went back.
    pub(crate) fn rewind_interest(&mut self, commit_index: LogIndex) {
        self.active_index = self.active_index.min(commit_index);
    }

    /// Behind which index all matches of an active interest come.
    pub(super) fn active_after(&self, cx: &ReadCx<'_>) -> LogIndex {
        match cx.around.is_root {
            true => cx.log.last(),
            false => self.active_index.max(cx.log.commit_index()),
        }
    }

    /// Begins the subscriptions whose interest is active up to the root by now.
    pub(super) fn subscriptions_active(&mut self, cx: &mut ReadCx<'_>) {
        if cx.awaits_log() {
            return;
        }
        let is_root = cx.around.is_root;
        let index = self.active_after(cx);
        let mut begun = Vec::new();
        self.waiting.retain(|(client, id)| {
            let Some(subscriber) = self.clients.get_mut(client) else { return false };
            let found = subscriber.subscriptions.get_mut(id);
            let Some(subscription) = found else { return false };
            if !is_root && !self.interests.covers(&subscription.filter) {
                return true;
            }
            subscription.active = true;
            subscription.reader = Reader::new(index);
            subscription.reported = index;
            subscriber.due.insert(*id);
            begun.push((*client, *id, subscription.start));
            false
        });
        for (client, id, start) in begun {
            let position = cx.log.epochs().position(index);
            let active = ToClient::Subscribed { subscription: id, active_after: position };
            self.send_to_client(cx, client, active);
            self.begin_in_the_past(cx, (client, id), start, index);
        }
    }

    /// A subscription that begins in the past reads on from there: out of the log here, or from
    /// above.
    fn begin_in_the_past(
        &mut self,
        cx: &mut ReadCx<'_>,
        (client, id): (ClientId, SubscriptionId),
        start: Start,
        active: LogIndex,
    ) {
        let (begin, since_ns) = match start {
            Start::Now => return,
            Start::After(position) => {
                (self.resume_index(cx, (client, id), &Trail::at(position), active), None)
            }
            Start::AfterTrail(trail) => (self.resume_index(cx, (client, id), &trail, active), None),
            // From the beginning of time on is the whole log.
            Start::SinceNs(since_ns) => {
                (LogIndex::ZERO, Some(since_ns).filter(|since_ns| *since_ns > 0))
            }
            Start::Conditions => (LogIndex::ZERO, None),
        };
        let found = self.clients.get_mut(&client);
        if let Some(found) = found.and_then(|found| found.subscriptions.get_mut(&id)) {
            found.reader = match start {
                Start::Conditions => Reader::of_conditions(),
                _ => Reader::new(begin),
            };
            found.reader.since_ns = since_ns;
            // Its client knows by their ids those that it had.
            found.reader.reads_repeated = true;
            found.history_until = Some(active);
            self.histories.insert((client, id));
        }
        self.catch_up(cx, Requester::Subscription(client, id));
    }

    /// After which index of the log a subscription resumes that has been at those positions (of any
    /// log). Where no agent here knows its log, the rest of that log may never come: the
    /// subscription gets a gap. It resumes after the furthest position that both logs have. Without
    /// one it reads some of this log again: the logs may be about to meet, and skipped events would
    /// then come behind newer ones.
    fn resume_index(
        &mut self,
        cx: &mut ReadCx<'_>,
        (client, id): (ClientId, SubscriptionId),
        trail: &Trail,
        active: LogIndex,
    ) -> LogIndex {
        let after = trail.newest();
        let newest = cx.log.place_of(after);
        let common = trail.places().iter().filter_map(|place| cx.log.place_of(*place)).max();
        let begin = common.unwrap_or_else(|| active.back(READ_AGAIN_MAX));
        if newest.is_none() {
            let range = (after, cx.log.epochs().position(begin));
            let gap = Gap::unknown(range, GapReason::LogLost);
            self.send_to_client(cx, client, ToClient::Gap { subscription: id, gap });
        }
        begin
    }
}
