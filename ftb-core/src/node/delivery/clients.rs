//! The clients of this agent: who they are, and what each gets next.
//!
//! Responsible for: attaching, detaching, and the order of the messages to a client. Not
//! responsible for: what clients publish ([`crate::node::publishing::publish`]), acknowledgements
//! ([`crate::node::publishing::delayed_acks`]), subscriptions
//! ([`crate::node::delivery::subscriptions`]), deliveries ([`crate::node::delivery::deliver`]).

use crate::node::Node;
use crate::node::api::{
    ClientId, ClientInfo, Gap, Output, RefusedWhat, RejectCode, SubscriptionId, ToClient,
};
use crate::node::delivery::subscriptions::Subscription;
use crate::node::publishing::delayed_acks::AckState;
use crate::sealed::SealedRef;
use std::collections::{BTreeMap, VecDeque};

/// One client.
pub(in crate::node) struct Client {
    pub(in crate::node) info: ClientInfo,
    pub(in crate::node) control: VecDeque<ToClient>,
    /// Most have few: a node of the map has room for eleven.
    pub(in crate::node) subscriptions: BTreeMap<SubscriptionId, Box<Subscription>>,
    /// Subscriptions that may have a message.
    pub(in crate::node) due: Due,
    /// The last sequence that was taken from it.
    pub(in crate::node) taken: u64,
    /// Which of its events are acknowledged, and what it knows of that.
    pub(in crate::node) acks: AckState,
    pub(in crate::node) ready: bool,
    pub(in crate::node) turn: Option<SubscriptionId>,
    pub(in crate::node) published: u64,
    pub(in crate::node) delivered: u64,
    /// Its quiet subscriptions get their position.
    pub(in crate::node) cover_due: bool,
    /// Sequences of events that storm control shed and the client does not know of.
    pub(in crate::node) refused: VecDeque<(u64, u64)>,
    pub(in crate::node) limit_announced_ns: u64,
}

/// Most answers (refusals, new subscriptions) that wait for one client. Further answers are dropped
/// until the client reads.
pub(in crate::node) const CONTROL_MAX: usize = 4_096;

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
    fn new(info: ClientInfo) -> Self {
        Self {
            info,
            control: VecDeque::new(),
            subscriptions: BTreeMap::new(),
            due: Due::default(),
            taken: 0,
            acks: AckState::default(),
            ready: false,
            turn: None,
            published: 0,
            delivered: 0,
            cover_due: false,
            refused: VecDeque::new(),
            limit_announced_ns: 0,
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
    pub(in crate::node) fn on_client_attached(&mut self, client: ClientId, info: ClientInfo) {
        self.publishers.insert(info.publisher, client);
        self.budgets.attached(info.uid);
        self.clients.insert(client, Client::new(info));
    }

    pub(in crate::node) fn on_client_detached(&mut self, client: ClientId) {
        let Some(gone) = self.clients.remove(&client) else {
            self.counters.stale += 1;
            return;
        };
        self.budgets.detached(&gone);
        self.histories.retain(|(of, _)| *of != client);
        self.waiting.retain(|(of, _)| *of != client);
        let mut left = Vec::new();
        self.storms.forget(client, &mut left);
        self.send_up(left);
        if self.publishers.get(&gone.info.publisher) == Some(&client) {
            self.publishers.remove(&gone.info.publisher);
        }
        self.paused.remove(&client);
        for (id, subscription) in &gone.subscriptions {
            self.index.remove(client, *id, &subscription.filter);
        }
        if !gone.subscriptions.is_empty() {
            self.interest_narrowed();
        }
    }

    pub(in crate::node) fn wake_client(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(&id)
            && !client.ready
        {
            client.ready = true;
            self.out.push(Output::ClientReady(id));
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
        let Some(client) = self.clients.get_mut(&id) else { return };
        if client.control.len() >= CONTROL_MAX {
            self.counters.control_dropped += 1;
            return;
        }
        client.control.push_back(message);
        self.wake_client(id);
    }

    /// What goes to a client next; `None` when there is nothing more.
    pub(in crate::node) fn next_to_client(
        &mut self,
        id: ClientId,
        bytes_max: usize,
    ) -> Option<ToClient> {
        let now_ns = self.now.mono_ns;
        let client = self.clients.get_mut(&id)?;
        if let Some(message) = client.control.pop_front() {
            return Some(message);
        }
        if let Some((first, last)) = client.refused.pop_front() {
            return Some(ToClient::Refused {
                what: RefusedWhat::Events { first, last },
                code: RejectCode::Rate,
                message: "more events than the storm rules allow one publisher".to_owned(),
            });
        }
        if let Some(seq) = client.acks.take_due(now_ns) {
            return Some(ToClient::Confirmed { seq });
        }
        // Subscriptions take turns: one with much to read does not starve the others.
        while let Some(subscription) = self.next_due(id) {
            let message = self.read_subscription(id, subscription, bytes_max);
            if let Some(message) = message.or_else(|| self.cover(id, subscription)) {
                if let Some(client) = self.clients.get_mut(&id) {
                    client.due.insert(subscription);
                }
                return Some(message);
            }
        }
        let client = self.clients.get_mut(&id)?;
        if let Some(seq) = client.acks.tell(now_ns) {
            return Some(ToClient::Confirmed { seq });
        }
        client.ready = false;
        client.cover_due = false;
        None
    }

    /// Takes out whose turn it is among the subscriptions that may have something.
    fn next_due(&mut self, id: ClientId) -> Option<SubscriptionId> {
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
