//! Clients are publishers and subscribers: both parts know them.

use crate::node::Node;
use crate::node::api::{ClientId, ClientInfo, Output, ToClient};

impl Node {
    pub(crate) fn on_client_attached(&mut self, client: ClientId, info: ClientInfo) {
        self.attach_subscriber(client, info.uid);
        self.publishing.attach_client(client, info);
    }

    pub(crate) fn on_client_detached(&mut self, client: ClientId) {
        if !self.clients.contains_key(&client) {
            self.cx.counters.stale += 1;
            return;
        }
        self.publishing.detach_client(&mut self.cx, client);
        self.flush_outbox();
        self.detach_subscriber(client);
        let unknown_at_ns = self.cx.after_ms(self.cx.config.condition_grace_ms);
        self.conditions.statements().client_gone(client, unknown_at_ns);
    }

    /// Clients for which publishing has a message.
    pub(crate) fn wake_clients(&mut self) {
        while let Some(client) = self.cx.next_woken() {
            self.wake_client(client);
        }
    }

    /// What goes to a client next; `None` when there is nothing more.
    pub(crate) fn next_to_client(&mut self, id: ClientId, bytes_max: usize) -> Option<ToClient> {
        let now_ns = self.cx.now.mono_ns;
        let answer = self.clients.get_mut(&id)?.control.pop_front();
        if let Some(message) = answer.or_else(|| self.publishing.next_due(id, now_ns)) {
            return Some(message);
        }
        // Subscriptions take turns: one with much to read does not starve the others.
        while let Some(subscription) = self.next_due_subscription(id) {
            let message = self.read_subscription(id, subscription, bytes_max);
            if let Some(message) = message.or_else(|| self.cover(id, subscription)) {
                if let Some(client) = self.clients.get_mut(&id) {
                    client.due.insert(subscription);
                }
                return Some(message);
            }
        }
        if let Some(message) = self.publishing.next_ack(id, now_ns) {
            return Some(message);
        }
        let client = self.clients.get_mut(&id)?;
        client.ready = false;
        client.cover_due = false;
        None
    }

    pub(crate) fn wake_client(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(&id)
            && !client.ready
        {
            client.ready = true;
            self.cx.push(Output::ClientReady(id));
        }
    }
}
