//! The clients of this agent as subscribers.
//!
//! Responsible for: attaching, detaching, and answers to a client. Not responsible for:
//! subscriptions ([`crate::node::delivery::subscriptions`]), deliveries
//! ([`crate::node::delivery::deliver`]).

use crate::node::Node;
use crate::node::api::{ClientId, Gap, SubscriptionId, ToClient};
use crate::node::delivery::subscriptions::Subscription;
use crate::sealed::SealedRef;
use std::collections::{BTreeMap, VecDeque};

/// One client.
pub(in crate::node) struct Client {
    pub(in crate::node) uid: u32,
    pub(in crate::node) control: VecDeque<ToClient>,
    /// Most have few: a node of the map has room for eleven.
    pub(in crate::node) subscriptions: BTreeMap<SubscriptionId, Box<Subscription>>,
    /// Subscriptions that may have a message.
    pub(in crate::node) due: Due,
    pub(in crate::node) ready: bool,
    pub(in crate::node) turn: Option<SubscriptionId>,
    pub(in crate::node) delivered: u64,
    /// Its quiet subscriptions get their position.
    pub(in crate::node) cover_due: bool,
}

/// Most answers (refusals, new subscriptions) that wait for one client. Further answers are dropped
/// until the client reads.
const CONTROL_MAX: usize = 4_096;

/// Some subscriptions of one client, by id; no more than it has, or had when they were noted.
#[derive(Debug, Default)]
pub(in crate::node) struct Due(Vec<SubscriptionId>);

impl Due {
    pub(in crate::node) fn contains(&self, id: SubscriptionId) -> bool {
        self.0.binary_search(&id).is_ok()
    }

    pub(in crate::node) fn insert(&mut self, id: SubscriptionId) {
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

    pub(in crate::node) fn remove(&mut self, id: SubscriptionId) {
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
    pub(in crate::node) fn note_gap(&mut self, gap: &Gap) -> bool {
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
    pub(in crate::node) fn wants(&self, id: SubscriptionId, event: SealedRef<'_>) -> bool {
        let found = self.subscriptions.get(&id);
        found.is_some_and(|found| found.is_active() && found.filter.matches(event))
    }
}

impl Node {
    pub(in crate::node) fn attach_subscriber(&mut self, client: ClientId, uid: u32) {
        self.budgets.attached(uid);
        self.clients.insert(client, Client::new(uid));
    }

    pub(in crate::node) fn detach_subscriber(&mut self, client: ClientId) {
        let Some(gone) = self.clients.remove(&client) else {
            return self.cx.impossible("SubscriberIsAttached");
        };
        self.budgets.detached(&gone);
        self.histories.retain(|(of, _)| *of != client);
        self.waiting.retain(|(of, _)| *of != client);
        for (id, subscription) in &gone.subscriptions {
            self.index.remove(client, *id, &subscription.filter);
        }
        if !gone.subscriptions.is_empty() {
            self.interest_narrowed();
        }
    }

    /// A subscription may have a message.
    pub(in crate::node) fn wake_subscription(&mut self, client: ClientId, id: SubscriptionId) {
        if let Some(found) = self.clients.get_mut(&client) {
            found.due.insert(id);
            self.wake_client(client);
        }
    }

    pub(in crate::node) fn send_to_client(&mut self, id: ClientId, message: ToClient) {
        let Some(client) = self.clients.get_mut(&id) else {
            return self.cx.impossible("SubscriberIsAttached");
        };
        if client.control.len() >= CONTROL_MAX {
            self.cx.counters.control_dropped += 1;
            return;
        }
        client.control.push_back(message);
        self.wake_client(id);
    }

    /// Takes out whose turn it is among the subscriptions that may have something.
    pub(in crate::node) fn next_due_subscription(
        &mut self,
        id: ClientId,
    ) -> Option<SubscriptionId> {
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
