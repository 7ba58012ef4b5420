//! When a client hears that its events are held.
//!
//! At once, as long as somebody may wait for it. A client where nobody does says so: it hears it with
//! whatever else it is told, or when much has come together, or a little later. So who publishes now and
//! then, and does not ask, is not woken for each event a second time, nor is its agent.
//!
//! Responsible for: that choice. Not responsible for: what is held ([`super::upward`]), nor for the
//! order in which a client is told things ([`super::clients`]).

use super::Node;
use super::api::ClientId;
use super::config::ns;
use std::collections::VecDeque;

/// A client that is told lazily hears at the latest so long after an event is held that it is.
pub const LAZY_MS: u64 = 200;

/// A client that is told lazily is not left without so many confirmations: it keeps those events.
pub const LAZY_EVENTS_MAX: u64 = 1_024;

/// What of a client's events is held, and what it knows of that.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// The last sequence that acting root and standby hold.
    until: u64,
    /// The last that it was told.
    told: u64,
    lazily: bool,
    /// It has an entry in the queue of those that are told later.
    queued: bool,
    /// It has waited for long enough.
    late: bool,
}

impl Held {
    /// Everything up to that sequence is held.
    pub(super) fn up_to(&mut self, seq: u64) {
        self.until = self.until.max(seq);
    }

    /// It is to be told again. Gives whether there is anything to tell.
    pub(super) fn forget_told(&mut self) -> bool {
        self.told = 0;
        self.until > 0
    }

    fn is_due(&self) -> bool {
        let untold = self.until - self.told;
        untold > 0 && (!self.lazily || self.late || untold >= LAZY_EVENTS_MAX)
    }

    /// What it is told now, before anything that was published by others.
    pub(super) fn tell_if_due(&mut self) -> Option<u64> {
        self.is_due().then(|| self.tell())?
    }

    /// What it is told when there is nothing else.
    pub(super) fn tell(&mut self) -> Option<u64> {
        let news = self.until > self.told;
        (self.told, self.late) = (self.until, false);
        news.then_some(self.until)
    }
}

/// Who is told later that its events are held, in the order in which it is due.
#[derive(Default)]
pub(super) struct Later(VecDeque<(u64, ClientId)>);

impl Later {
    /// When the first is due.
    pub(super) fn deadline_ns(&self) -> u64 {
        self.0.front().map_or(u64::MAX, |(due_ns, _)| *due_ns)
    }
}

impl Node {
    /// How a client wants to hear that its events are held.
    pub(super) fn set_confirmations(&mut self, id: ClientId, lazily: bool) {
        let Some(client) = self.clients.get_mut(&id) else {
            self.counters.stale += 1;
            return;
        };
        client.held.lazily = lazily;
        self.tell_held(id);
    }

    /// More of a client's events are held: it is told, now or later.
    pub(super) fn tell_held(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let held = &mut client.held;
        if held.is_due() {
            self.wake_client(id);
        } else if held.until > held.told && !held.queued {
            held.queued = true;
            let due_ns = self.now.mono_ns.saturating_add(ns(LAZY_MS));
            self.told_later.0.push_back((due_ns, id));
        }
    }

    /// Time has passed: who has waited for long enough is told.
    pub(super) fn confirmations_tick(&mut self) {
        while self.told_later.deadline_ns() <= self.now.mono_ns {
            let Some((_, id)) = self.told_later.0.pop_front() else { return };
            // One that has gone in the meantime has nothing to hear.
            let Some(client) = self.clients.get_mut(&id) else { continue };
            client.held.queued = false;
            client.held.late = client.held.until > client.held.told;
            self.tell_held(id);
        }
    }
}
