//! When a client hears that its events are held.
//!
//! At once, as long as somebody may wait for it. A client where nobody does says so: it hears it
//! once in a while for all events together, or with whatever else it is told. So who publishes
//! often, and does not ask, is not woken for each event a second time.
//!
//! Responsible for: that choice. Not responsible for: what is held
//! ([`crate::node::publishing::upward`]), nor for the order in which a client is told things
//! ([`crate::node::delivery::clients`]).

use crate::node::Node;
use crate::node::api::ClientId;
use crate::node::config::ns;
use std::collections::VecDeque;

/// A client that is told lazily hears at the latest so long after an event is held that it is, and
/// at once where it was told nothing for so long.
pub const ACK_DELAY_MS: u64 = 200;

/// A client that is told lazily is not left without so many confirmations: it keeps those events.
pub const ACK_DELAY_EVENTS_MAX: u64 = 1_024;

/// What of a client's events is held, and what it knows of that.
#[derive(Debug, Default)]
pub(in crate::node) struct AckState {
    /// The last sequence that acting root and standby hold.
    until: u64,
    /// The last that it was told, and when.
    reported: u64,
    told_ns: u64,
    delayed: bool,
    /// It has an entry in the queue of those that are told later.
    queued: bool,
    /// It is not to wait any longer.
    late: bool,
}

impl AckState {
    /// Everything up to that sequence is held.
    pub(in crate::node) fn up_to(&mut self, seq: u64) {
        self.until = self.until.max(seq);
    }

    /// It is to be told again, at once. Gives whether there is anything to tell.
    pub(in crate::node) fn repeat_ack(&mut self) -> bool {
        self.reported = 0;
        self.late = self.until > 0;
        self.late
    }

    fn is_due(&self) -> bool {
        let pending = self.until - self.reported;
        pending > 0 && (!self.delayed || self.late || pending >= ACK_DELAY_EVENTS_MAX)
    }

    /// What it is told now, before anything that was published by others.
    pub(in crate::node) fn take_due(&mut self, now_ns: u64) -> Option<u64> {
        self.is_due().then(|| self.tell(now_ns))?
    }

    /// What it is told when there is nothing else.
    pub(in crate::node) fn tell(&mut self, now_ns: u64) -> Option<u64> {
        self.late = false;
        (self.until > self.reported).then(|| {
            (self.reported, self.told_ns) = (self.until, now_ns);
            self.until
        })
    }
}

/// Who is told later that its events are held, in the order in which it is due.
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

    /// More of a client's events are held: it is told, now or later. Where rules limit what it says
    /// it is told at once: what it has not heard of it says again, and that counts.
    pub(in crate::node) fn notify_acked(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let (held, now_ns) = (&mut client.acks, self.now.mono_ns);
        if held.until > held.reported {
            let long_ago = now_ns.saturating_sub(held.told_ns) >= ns(ACK_DELAY_MS);
            held.late |= long_ago || !self.storms.is_off();
        }
        if held.is_due() {
            self.wake_client(id);
        } else if held.until > held.reported && !held.queued {
            held.queued = true;
            self.delayed_acks.0.push_back((now_ns.saturating_add(ns(ACK_DELAY_MS)), id));
        }
    }

    /// Time has passed: who has waited for long enough is told.
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
