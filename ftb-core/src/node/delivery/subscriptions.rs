//! What the clients of this agent want: subscriptions, and from where in the log each begins.
//!
//! Responsible for: a subscription until it is active up to the root, and where it then stands. Not
//! responsible for: what comes ([`crate::node::delivery::deliver`]).

use crate::filter::{Filter, FilterSet};
use crate::log::reader::Reader;
use crate::node::Node;
use crate::node::api::{
    ClientId, Gap, GapReason, RefusedWhat, RejectCode, Start, SubscriptionId, ToClient,
};
use crate::node::delivery::history::Requester;
use crate::node::timers::Timer;
use crate::position::{Position, Trail};
use crate::spaces::Spaces;

/// One subscription.
pub(in crate::node) struct Subscription {
    pub(in crate::node) filter: Filter,
    pub(in crate::node) reader: Reader,
    /// What it wants is active up to the root; else it is among those that wait for that.
    active: bool,
    start: Start,
    /// The last index that its client knows to be covered.
    pub(in crate::node) reported: u64,
    /// It began in the past, which ends at this index.
    pub(in crate::node) history_until: Option<u64>,
}

/// How far back a subscription reads again that resumes in a log that it has nothing in common
/// with. Half of the event ids that the client library remembers, by which it drops what it had.
const READ_AGAIN_MAX: u64 = 8_192;

/// The longest delay before filters that ended are withdrawn at the parent. Merging all filters for
/// each of many would take quadratic time.
const NARROW_MS: u64 = 100;

impl Subscription {
    pub(in crate::node) fn is_active(&self) -> bool {
        self.active
    }
}

impl Node {
    /// A client wants events.
    pub(in crate::node) fn on_subscribe(
        &mut self,
        client: ClientId,
        id: SubscriptionId,
        filter: Filter,
        start: Start,
    ) {
        let max = self.cx.config.subscriptions_max;
        let Some(subscriber) = self.clients.get_mut(&client) else {
            self.cx.counters.stale += 1;
            return;
        };
        let refuse = |message| ToClient::Refused {
            what: RefusedWhat::Subscription(id),
            code: RejectCode::Limit,
            message,
        };
        if subscriber.subscriptions.contains_key(&id) {
            let message = format!("subscription {} exists: end it first", id.0);
            return self.send_to_client(client, refuse(message));
        }
        if subscriber.subscriptions.len() >= max {
            let message = format!("a client may have {max} subscriptions: end one first");
            return self.send_to_client(client, refuse(message));
        }
        let uid = subscriber.uid;
        if let Err(message) = self.count_subscription(uid, &filter) {
            return self.send_to_client(client, refuse(message));
        }
        let Some(subscriber) = self.clients.get_mut(&client) else {
            return self.cx.impossible("SubscriberIsAttached");
        };
        self.index.insert(client, id, &filter);
        let is_announced =
            self.interests.reported().filters.iter().any(|reported| reported.covers(&filter));
        let subscription = Subscription {
            filter,
            reader: Reader::new(self.commit_index),
            active: false,
            start,
            reported: self.commit_index,
            history_until: None,
        };
        subscriber.subscriptions.insert(id, Box::new(subscription));
        self.waiting.insert((client, id));
        // To merge all filters anew for each of many would take quadratic time.
        if !is_announced {
            self.interest_changed();
        }
        self.subscriptions_active();
    }

    pub(in crate::node) fn on_unsubscribe(&mut self, client: ClientId, id: SubscriptionId) {
        let found = self.clients.get_mut(&client);
        let removed = found.and_then(|c| Some((c.uid, c.subscriptions.remove(&id)?)));
        self.histories.remove(&(client, id));
        self.waiting.remove(&(client, id));
        if let Some(found) = self.clients.get_mut(&client) {
            found.due.remove(id);
        }
        if let Some((uid, removed)) = removed {
            self.budgets.unsubscribed(uid, &removed.filter);
            self.index.remove(client, id, &removed.filter);
            self.interest_narrowed();
        } else {
            self.cx.counters.stale += 1;
        }
    }

    /// The subtree may want less: it is merged soon, once for many changes. Unwanted events that
    /// come down until then are dropped here.
    pub(in crate::node) fn interest_narrowed(&mut self) {
        let due_ns = self.cx.after_ms(NARROW_MS);
        self.cx.timers.set_earlier(Timer::NarrowInterest, due_ns);
    }

    /// What the subtree wants may have changed: merges it anew and tells the parent.
    pub(in crate::node) fn interest_changed(&mut self) {
        self.cx.timers.stop(Timer::NarrowInterest);
        self.cx.counters.merges += 1;
        let own = self.clients.values().flat_map(|client| client.subscriptions.values());
        let own = own.map(|subscription| &subscription.filter);
        let below = self.children.values().flat_map(|child| child.filters.filters());
        let wanted = FilterSet::merge(own.chain(below));
        if self.interests.want(wanted)
            && let Some(parent) = self.role.parent_mut()
        {
            parent.subscribe_due = true;
            let link = parent.link;
            self.cx.wake(link);
        }
    }

    /// Begins the subscriptions whose interest is active up to the root by now.
    pub(in crate::node) fn subscriptions_active(&mut self) {
        if self.awaits_log() {
            return;
        }
        let is_root = self.role.is_root();
        let index =
            if is_root { self.log.last() } else { self.active_index.max(self.commit_index) };
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
            let position = self.epochs.position(index);
            let active = ToClient::Subscribed { subscription: id, active_after: position };
            self.send_to_client(client, active);
            self.begin_in_the_past(client, id, start, index);
        }
    }

    /// A subscription that begins in the past reads on from there: out of the log here, or from
    /// above.
    fn begin_in_the_past(
        &mut self,
        client: ClientId,
        id: SubscriptionId,
        start: Start,
        active: u64,
    ) {
        let (begin, since_ns) = match start {
            Start::Now => return,
            Start::After(position) => {
                (self.resume_index(client, id, &Trail::at(position), active), 0)
            }
            Start::Behind(trail) => (self.resume_index(client, id, &trail, active), 0),
            Start::SinceNs(since_ns) => (0, since_ns),
            Start::Conditions => (0, 0),
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
        self.catch_up(Requester::Subscription(client, id));
    }

    /// After which index of the log a subscription resumes that has been at those positions (of any
    /// log). Where no agent here knows its log, the rest of that log may never come: the
    /// subscription gets a gap. It resumes after the furthest position that both logs have. Without
    /// one it reads some of this log again: the logs may be about to meet, and skipped events would
    /// then come behind newer ones.
    fn resume_index(
        &mut self,
        client: ClientId,
        id: SubscriptionId,
        trail: &Trail,
        active: u64,
    ) -> u64 {
        let after = trail.newest();
        let newest = self.place_here(after);
        let common = trail.places().iter().filter_map(|place| self.place_here(*place)).max();
        let begin = common.unwrap_or_else(|| active.saturating_sub(READ_AGAIN_MAX));
        if newest.is_none() {
            let gap = Gap {
                after,
                until: self.epochs.position(begin),
                reason: GapReason::LogLost,
                count: 0,
                severity_max: None,
                spaces: Spaces::ANY,
            };
            self.send_to_client(client, ToClient::Gap { subscription: id, gap });
        }
        begin
    }

    /// Up to which index of the log a reader has read that has been at a position (of any log).
    fn place_here(&self, position: Position) -> Option<u64> {
        self.epochs
            .resume_after(position)
            .or_else(|| self.forks.get(&position.epoch).map(|fork| position.index.min(*fork)))
    }
}
