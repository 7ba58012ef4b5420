//! When a client learns that its events are acknowledged.
//!
//! At once, while the client may wait for it. A client that does not wait says so: it gets one
//! acknowledgement for many events, or with the next message. So a frequent publisher does not wake
//! up twice for each event.
//!
//! Responsible for: that choice. Not responsible for: what is acknowledged
//! ([`crate::node::publishing::upward`]), the order of messages
//! ([`crate::node::delivery::clients`]).

use crate::node::Node;
use crate::node::api::ClientId;
use crate::node::config::ns;
use std::collections::VecDeque;

/// The longest delay of an acknowledgement. After a pause of this length the next one goes at once.
pub const ACK_DELAY_MS: u64 = 200;

/// Most events without an acknowledgement: the client keeps them.
pub const ACK_DELAY_EVENTS_MAX: u64 = 1_024;

/// What of a client's events is held, and what it knows of that.
#[derive(Debug, Default)]
pub(in crate::node) struct AckState {
    /// The last sequence that acting root and standby hold.
    until: u64,
    /// The last sequence that the client knows of, and when it learned it.
    reported: u64,
    reported_ns: u64,
    delayed: bool,
    /// It is in the queue of delayed acknowledgements.
    queued: bool,
    /// It is not to wait any longer.
    late: bool,
}

impl AckState {
    /// Everything up to that sequence is held.
    pub(in crate::node) fn up_to(&mut self, seq: u64) {
        self.until = self.until.max(seq);
    }

    /// The client gets the acknowledgement again, at once. Says whether there is one.
    pub(in crate::node) fn repeat_ack(&mut self) -> bool {
        self.reported = 0;
        self.late = self.until > 0;
        self.late
    }

    fn is_due(&self) -> bool {
        let pending = self.until - self.reported;
        pending > 0 && (!self.delayed || self.late || pending >= ACK_DELAY_EVENTS_MAX)
    }

    /// The acknowledgement that goes before deliveries.
    pub(in crate::node) fn take_due(&mut self, now_ns: u64) -> Option<u64> {
        self.is_due().then(|| self.tell(now_ns))?
    }

    /// The acknowledgement that goes when there is nothing else.
    pub(in crate::node) fn tell(&mut self, now_ns: u64) -> Option<u64> {
        self.late = false;
        (self.until > self.reported).then(|| {
            (self.reported, self.reported_ns) = (self.until, now_ns);
            self.until
        })
    }
}

/// Delayed acknowledgements, in the order in which they are due.
#[derive(Default)]
pub(in crate::node) struct DelayedAcks(VecDeque<(u64, ClientId)>);

impl DelayedAcks {
    /// When the first is due.
    pub(in crate::node) fn deadline_ns(&self) -> Option<u64> {
        self.0.front().map(|(due_ns, _)| *due_ns)
    }
}

impl Node {
    /// How a client wants to hear that its events are held.
    pub(in crate::node) fn on_delay_acks(&mut self, id: ClientId, delayed: bool) {
        let Some(client) = self.clients.get_mut(&id) else {
            self.counters.stale += 1;
            return;
        };
        client.acks.delayed = delayed;
        self.notify_acked(id);
    }

    /// More events of a client are acknowledged: it learns it now or later. Under storm rules it
    /// learns it at once: it publishes again what it has not heard of, and that counts.
    pub(in crate::node) fn notify_acked(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let (held, now_ns) = (&mut client.acks, self.now.mono_ns);
        if held.until > held.reported {
            let long_ago = now_ns.saturating_sub(held.reported_ns) >= ns(ACK_DELAY_MS);
            held.late |= long_ago || !self.storms.is_off();
        }
        if held.is_due() {
            self.wake_client(id);
        } else if held.until > held.reported && !held.queued {
            held.queued = true;
            self.delayed_acks.0.push_back((now_ns.saturating_add(ns(ACK_DELAY_MS)), id));
        }
    }

    /// Acknowledgements are due.
    pub(in crate::node) fn on_delayed_ack_timer(&mut self) {
        while self.delayed_acks.deadline_ns().is_some_and(|due_ns| due_ns <= self.now.mono_ns) {
            let Some((_, id)) = self.delayed_acks.0.pop_front() else { return };
            // One that has gone in the meantime has nothing to hear.
            let Some(client) = self.clients.get_mut(&id) else { continue };
            client.acks.queued = false;
            client.acks.late = client.acks.until > client.acks.reported;
            self.notify_acked(id);
        }
    }
}
