//! The clients of this agent as subscribers.
//!
//! Responsible for: attaching, detaching, and answers to a client. Not responsible for:
//! subscriptions ([`crate::node::delivery::subscriptions`]), deliveries
//! ([`crate::node::delivery::deliver`]).

use crate::log::followed::FollowedLog;
use crate::node::api::{ClientId, Gap, Output, SubscriptionId, ToClient};
use crate::node::cx::Cx;
use crate::node::delivery::subscriptions::Subscription;
use crate::node::delivery::{Delivery, ReadCx};
use crate::sealed::SealedRef;
use std::collections::{BTreeMap, VecDeque};

/// One client.
pub(super) struct Client {
    pub(super) uid: u32,
    pub(super) control: VecDeque<ToClient>,
    /// Most have few: a node of the map has room for eleven.
    pub(super) subscriptions: BTreeMap<SubscriptionId, Box<Subscription>>,
    /// Subscriptions that may have a message.
    pub(super) due: Due,
    pub(super) ready: bool,
    pub(super) turn: Option<SubscriptionId>,
    pub(super) delivered: u64,
    /// Its quiet subscriptions get their position.
    pub(super) cover_due: bool,
}

/// What an administrator wants to know of a client.
pub(crate) struct ClientUse {
    pub(crate) delivered: u64,
    pub(crate) shed: u64,
    /// Bytes that its slowest subscription has not read.
    pub(crate) queued_bytes: usize,
    pub(crate) filters: Vec<String>,
}

/// Most answers (refusals, new subscriptions) that wait for one client. Further answers are dropped
/// until the client reads.
const CONTROL_MAX: usize = 4_096;

/// Some subscriptions of one client, by id; no more than it has, or had when they were noted.
#[derive(Debug, Default)]
pub(super) struct Due(Vec<SubscriptionId>);

impl Due {
    pub(super) fn contains(&self, id: SubscriptionId) -> bool {
        self.0.binary_search(&id).is_ok()
    }

    pub(super) fn insert(&mut self, id: SubscriptionId) {
        if let Err(place) = self.0.binary_search(&id) {
            self.0.insert(place, id);
        }
    }

    /// Takes the next one behind another out; behind the last comes the first.
    fn take_after(&mut self, after: Option<SubscriptionId>) -> Option<SubscriptionId> {
        let behind = self.0.partition_point(|id| Some(*id) <= after);
        let place = if behind < self.0.len() { behind } else { 0 };
        (!self.0.is_empty()).then(|| self.0.remove(place))
    }

    pub(super) fn remove(&mut self, id: SubscriptionId) {
        if let Ok(place) = self.0.binary_search(&id) {
            self.0.remove(place);
        }
    }
}

impl Client {
    fn new(uid: u32) -> Self {
        Self {
            uid,
            control: VecDeque::new(),
            subscriptions: BTreeMap::new(),
            due: Due::default(),
            ready: false,
            turn: None,
            delivered: 0,
            cover_due: false,
        }
    }

    /// Whether a hole may be one for it; notes for which of its subscriptions.
    pub(super) fn note_gap(&mut self, gap: &Gap) -> bool {
        let mut concerned = false;
        for (id, found) in &self.subscriptions {
            if found.filter.may_want(gap.severity_max, &gap.spaces) {
                self.due.insert(*id);
                concerned = true;
            }
        }
        concerned
    }

    /// Whether one of its subscriptions is active and wants an event.
    pub(super) fn wants(&self, id: SubscriptionId, event: SealedRef<'_>) -> bool {
        let found = self.subscriptions.get(&id);
        found.is_some_and(|found| found.is_active() && found.filter.matches(event))
    }
}

impl Delivery {
    pub(crate) fn has_client(&self, client: ClientId) -> bool {
        self.clients.contains_key(&client)
    }

    pub(crate) fn attach_client(&mut self, cx: &Cx, client: ClientId, uid: u32) {
        self.budgets.attached(cx, uid);
        self.clients.insert(client, Client::new(uid));
    }

    pub(crate) fn detach_client(&mut self, cx: &mut Cx, client: ClientId) {
        let Some(gone) = self.clients.remove(&client) else {
            return cx.impossible("SubscriberIsAttached");
        };
        self.budgets.detached(&gone);
        self.histories.retain(|(of, _)| *of != client);
        self.waiting.retain(|(of, _)| *of != client);
        self.end_requests(|requester| requester.is_of_client(client));
        for (id, subscription) in &gone.subscriptions {
            self.index.remove(client, *id, &subscription.filter);
            self.turns.remove(gone.uid, (client, *id));
        }
        if !gone.subscriptions.is_empty() {
            self.interest_narrowed(cx);
        }
    }

    /// A subscription may have a message.
    pub(super) fn wake_subscription(&mut self, cx: &mut Cx, client: ClientId, id: SubscriptionId) {
        if let Some(found) = self.clients.get_mut(&client) {
            found.due.insert(id);
            self.wake_client(cx, client);
        }
    }

    pub(crate) fn send_to_client(&mut self, cx: &mut Cx, id: ClientId, message: ToClient) {
        let Some(client) = self.clients.get_mut(&id) else {
            return cx.impossible("SubscriberIsAttached");
        };
        if client.control.len() >= CONTROL_MAX {
            cx.counters.control_dropped += 1;
            return;
        }
        client.control.push_back(message);
        self.wake_client(cx, id);
    }

    pub(crate) fn wake_client(&mut self, cx: &mut Cx, id: ClientId) {
        if let Some(client) = self.clients.get_mut(&id)
            && !std::mem::replace(&mut client.ready, true)
        {
            cx.push(Output::ClientReady(id));
        }
    }

    /// The next answer to a client.
    pub(crate) fn next_answer(&mut self, id: ClientId) -> Option<ToClient> {
        self.clients.get_mut(&id)?.control.pop_front()
    }

    /// The next events for a client. Subscriptions take turns: one with much to read does not
    /// starve the others.
    pub(crate) fn next_events(
        &mut self,
        cx: &mut ReadCx<'_>,
        id: ClientId,
        bytes_max: usize,
    ) -> Option<ToClient> {
        while let Some(subscription) = self.next_due_subscription(id) {
            let message = self.read_subscription(cx, id, subscription, bytes_max);
            if let Some(message) = message.or_else(|| self.cover(cx, id, subscription)) {
                if let Some(client) = self.clients.get_mut(&id) {
                    client.due.insert(subscription);
                }
                return Some(message);
            }
        }
        None
    }

    /// There is nothing more for a client.
    pub(crate) fn drained(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.ready = false;
            client.cover_due = false;
        }
    }

    /// What an administrator wants to know of a client.
    pub(crate) fn client_use(&self, log: &FollowedLog, id: ClientId) -> Option<ClientUse> {
        let client = self.clients.get(&id)?;
        let subscriptions = client.subscriptions.values();
        let readers = subscriptions.clone().map(|found| &found.reader);
        Some(ClientUse {
            delivered: client.delivered,
            shed: readers.clone().map(|reader| reader.shed).sum(),
            queued_bytes: readers.map(|reader| log.queued(reader)).max().unwrap_or(0),
            filters: subscriptions.map(|found| found.filter.to_string()).collect(),
        })
    }

    pub(crate) fn client_ids(&self) -> impl Iterator<Item = ClientId> {
        self.clients.keys().copied()
    }

    /// Takes out whose turn it is among the subscriptions that may have something.
    pub(super) fn next_due_subscription(&mut self, id: ClientId) -> Option<SubscriptionId> {
        let client = self.clients.get_mut(&id)?;
        client.due.take_after(client.turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscriptions_that_may_have_something_take_turns() {
        let mut due = Due::default();
        for id in [5, 1, 9, 5] {
            due.insert(SubscriptionId(id));
        }
        assert!(due.contains(SubscriptionId(9)) && !due.contains(SubscriptionId(2)));
        let mut turn = Some(SubscriptionId(1));
        let mut order = Vec::new();
        while let Some(next) = due.take_after(turn) {
            order.push(next.0);
            turn = Some(next);
        }
        assert_eq!(order, [5, 9, 1], "behind the last comes the first");
        due.insert(SubscriptionId(3));
        due.remove(SubscriptionId(3));
        assert_eq!(due.take_after(None), None);
    }
}
