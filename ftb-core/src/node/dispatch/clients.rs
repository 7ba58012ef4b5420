//! Clients are publishers and subscribers: both parts know them.

use crate::node::Node;
use crate::node::api::{ClientId, ClientInfo, Input, ToClient};
use crate::node::delivery::{Delivery, ReadCx};

impl Node {
    pub(crate) fn on_client_attached(&mut self, client: ClientId, info: ClientInfo) {
        self.delivery.attach_client(&self.cx, client, info.uid);
        self.publishing.attach_client(&self.cx, client, info);
    }

    /// What a client asks for beside what it publishes counts for the rate of its user.
    pub(crate) fn charge_request(&mut self, input: &Input) {
        let (client, size) = match input {
            Input::Subscribe { client, filter, .. } => (*client, (0, filter.weight())),
            Input::Unsubscribe { client, .. } | Input::DelayAcks { client, .. } => {
                (*client, (0, 0))
            }
            Input::Restate { client, events } => (*client, (events.count(), events.len())),
            _ => return,
        };
        self.publishing.charge_request(&mut self.cx, client, size);
    }

    pub(crate) fn on_client_detached(&mut self, client: ClientId) {
        if !self.delivery.has_client(client) {
            self.cx.counters.stale += 1;
            return;
        }
        self.publishing.detach_client(&mut self.cx, client);
        self.flush_outbox();
        self.delivery.detach_client(&mut self.cx, client);
        let unknown_at_ns = self.cx.after_ms(self.cx.config.condition_grace_ms);
        self.conditions.statements().client_gone(client, unknown_at_ns);
    }

    /// Clients for which publishing has a message.
    pub(crate) fn wake_clients(&mut self) {
        while let Some(client) = self.cx.next_woken() {
            self.delivery.wake_client(&mut self.cx, client);
        }
    }

    /// What goes to a client next; `None` when there is nothing more.
    pub(crate) fn next_to_client(&mut self, id: ClientId, bytes_max: usize) -> Option<ToClient> {
        let now_ns = self.cx.now.mono_ns;
        if !self.delivery.has_client(id) {
            return None;
        }
        let answer = self.delivery.next_answer(id);
        let message = answer.or_else(|| self.publishing.next_due(id, now_ns));
        let message = message
            .or_else(|| self.reading(|delivery, cx| delivery.next_events(cx, id, bytes_max)));
        let message = message.or_else(|| self.publishing.next_ack(id, now_ns));
        if message.is_none() {
            self.delivery.drained(id);
        }
        message
    }

    /// Delivery works with the log that is followed here.
    pub(crate) fn reading<T>(
        &mut self,
        work: impl FnOnce(&mut Delivery, &mut ReadCx<'_>) -> T,
    ) -> T {
        let source = self.role.journal_source(&self.log);
        let replica = self.role.replica();
        let mut cx = ReadCx {
            cx: &mut self.cx,
            log: &self.log,
            journal: &self.journal,
            written: source.map_or(self.log.epochs(), |source| source.epochs),
            memory_after: replica.map_or(self.log.memory_after(), |copy| copy.log.evicted()),
        };
        work(&mut self.delivery, &mut cx)
    }
}
