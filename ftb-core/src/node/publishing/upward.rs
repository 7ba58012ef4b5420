//! What flows up: own events and those of the agents below, forwarded under the parent's credit,
//! sent again when the way has changed; and the confirmations that come back.

use crate::frame::{Confirm, Frame, Heartbeat, UpBatch};
use crate::ident::OriginId;
use crate::limits::{BATCH_EVENTS_MAX, LINK_BYTES_TARGET};
use crate::node::Node;
use crate::node::api::{LinkId, Output};
use crate::node::config::ns;
use crate::node::role::Role;
use crate::node::timers::Timer;

/// The way back to an origin below.
pub(in crate::node) struct Route {
    pub(in crate::node) link: LinkId,
    /// The run of the origin that came that way; 0 before it published anything.
    pub(in crate::node) run: u64,
}

/// Most origins below one agent whose way back it remembers.
const ROUTES_MAX: usize = 262_144;

/// Unconfirmed events are sent again after this time: a confirmation may be lost with the agent
/// that was to forward it.
const RESEND_MS: u64 = 10_000;

impl Node {
    /// Events have come up from a child.
    pub(in crate::node) fn on_up(&mut self, link: LinkId, batch: UpBatch) {
        self.learn_route(batch.origin, Route { link, run: batch.run });
        let bytes = batch.bytes();
        self.counters.events_up += batch.count();
        let window = self.config.window_bytes;
        let Some(child) = self.children.get_mut(&link) else { return };
        child.batches += 1;
        if !child.attached {
            // Sent before it knew our epoch history: it may still have to put older events back
            // first.
            child.credit_due += bytes;
            child.missed = true;
            return;
        }
        match (&self.role, self.role.parent()) {
            (Role::Root(_), _) => {
                child.credit_due += bytes;
                if child.credit_due > credit_due_max(window) {
                    self.wake(link);
                }
                if self.is_kept_by_follower(link) {
                    let mut places = Vec::new();
                    self.root_accept(batch, Some(&mut places));
                    self.note_entry_refs(link, places);
                } else {
                    self.root_accept(batch, None);
                }
            }
            (_, Some(parent)) => {
                let parent = parent.link;
                child.up_bytes += bytes;
                child.up.push_back(batch);
                self.wake(parent);
            }
            // The next parent gets all of it again.
            _ => child.credit_due += bytes,
        }
        let child = self.children.get(&link);
        let over = child.is_some_and(|child| child.up_bytes > 2 * window + FRAME_SLACK);
        if over {
            self.misbehaved(link, "more events than it had credit for");
        }
    }

    /// An origin has spoken: what is for it goes back the same way. What it said before it moved
    /// may arrive after what it says at its new place, and teaches nothing.
    pub(in crate::node) fn learn_route(&mut self, origin: OriginId, route: Route) {
        let full = self.routes.len() >= ROUTES_MAX;
        match self.routes.get_mut(&origin) {
            Some(known) if known.run <= route.run => *known = route,
            None if !full => {
                self.routes.insert(origin, route);
            }
            Some(_) | None => {}
        }
    }

    /// Own events have been added: they go to the log, or up.
    pub(in crate::node) fn flush_outbox(&mut self) {
        match (&self.role, self.role.parent()) {
            (Role::Root(_), _) => {
                while let Some(batch) = self.outbox.take(usize::MAX, BATCH_EVENTS_MAX) {
                    let origin = self.config.origin;
                    let batch = UpBatch {
                        origin,
                        run: batch.run,
                        base: batch.base,
                        first: batch.first,
                        items: batch.items,
                    };
                    self.root_accept(batch, None);
                }
            }
            (_, Some(parent)) => {
                let link = parent.link;
                self.wake(link);
            }
            _ => {}
        }
        if !self.timers.is_set(Timer::Resend) {
            self.plan_resend();
        }
    }

    /// The time to wait for the next confirmation begins, if one is waited for.
    fn plan_resend(&mut self) {
        let waiting = self.outbox.waiting_bytes() > 0;
        let at_ns = self.now.mono_ns.saturating_add(crate::node::config::ns(RESEND_MS));
        match waiting {
            true => self.timers.set(Timer::Resend, at_ns),
            false => self.timers.stop(Timer::Resend),
        }
    }

    /// Time has passed: what was sent and never confirmed is sent again.
    pub(in crate::node) fn on_resend_timer(&mut self) {
        if self.role.parent().is_some() {
            self.counters.resent += 1;
            self.outbox.rewind();
            self.flush_outbox();
        }
        self.plan_resend();
    }

    /// The way up is another one: what is on its way is void, everything unconfirmed below is sent
    /// again.
    pub(in crate::node) fn on_uplink_change(&mut self) {
        let links: Vec<LinkId> = self.children.keys().copied().collect();
        for link in links {
            if let Some(child) = self.children.get_mut(&link) {
                child.up.clear();
                child.credit_due += std::mem::take(&mut child.up_bytes);
            }
            self.send(link, Frame::Resend);
        }
        self.outbox.rewind();
        self.flush_outbox();
    }

    /// A run of ours has a hole: begin another, unless that has happened.
    pub(in crate::node) fn begin_run(&mut self, run: u64) {
        if run == self.outbox.run() {
            self.outbox.rewind();
            self.flush_outbox();
        }
    }

    /// The next frame for the parent; control frames have gone already.
    pub(in crate::node) fn poll_parent(&mut self, bytes_max: usize) -> Option<Frame> {
        if let Some(frame) = self.next_members() {
            return Some(frame);
        }
        let parent = self.role.parent_mut()?;
        if std::mem::take(&mut parent.subscribe_due) {
            return Some(Frame::Subscribe(self.interests.reported()));
        }
        let ack_due = std::mem::take(&mut parent.ack_due);
        let may_send = parent.credit > 0 && parent.resumed.is_some();
        if let Some(ack) = self.replica_ack().filter(|_| ack_due) {
            return Some(ack);
        }
        if matches!(self.role, Role::Offering(..)) {
            return self.poll_offer(bytes_max);
        }
        let kept = self.role.replica().map_or(0, |replica| replica.kept.bytes());
        if !may_send || kept >= KEPT_WINDOWS * self.config.window_bytes {
            return None;
        }
        let batch = self.next_batch(bytes_max.min(LINK_BYTES_TARGET))?;
        let parent = self.role.parent_mut()?;
        parent.credit -= i64::try_from(batch.bytes()).unwrap_or(i64::MAX);
        parent.batches += 1;
        if let Some(replica) = self.role.replica_mut() {
            replica.kept.push(&batch);
        }
        Some(Frame::Up(batch))
    }

    /// Own clients and the children take turns.
    fn next_batch(&mut self, bytes_max: usize) -> Option<UpBatch> {
        let after = self.up_turn;
        let links: Vec<LinkId> = self
            .children
            .iter()
            .filter(|(_, child)| !child.up.is_empty())
            .map(|(link, _)| *link)
            .collect();
        let next = links.iter().find(|link| Some(**link) > after).copied();
        let own_turn = next.is_none();
        if own_turn && let Some(batch) = self.outbox.take(bytes_max, BATCH_EVENTS_MAX) {
            self.up_turn = None;
            return Some(UpBatch {
                origin: self.config.origin,
                run: batch.run,
                base: batch.base,
                first: batch.first,
                items: batch.items,
            });
        }
        let Some(link) = next.or_else(|| links.first().copied()) else {
            self.up_turn = None;
            return None;
        };
        self.up_turn = Some(link);
        let window = self.config.window_bytes;
        let child = self.children.get_mut(&link)?;
        let batch = child.up.pop_front()?;
        child.up_bytes = child.up_bytes.saturating_sub(batch.bytes());
        child.credit_due += batch.bytes();
        if child.credit_due > credit_due_max(window) {
            self.wake(link);
        }
        Some(batch)
    }

    /// The link that leads to an origin below.
    pub(in crate::node) fn route(&self, origin: OriginId) -> Option<LinkId> {
        self.routes.get(&origin).map(|route| route.link)
    }

    /// A confirmation on its way to an origin.
    pub(in crate::node) fn on_confirm(&mut self, confirm: Confirm) {
        if confirm.origin == self.config.origin {
            return self.own_confirmed(&confirm);
        }
        let Some(link) = self.route(confirm.origin) else {
            self.counters.stale += 1;
            return;
        };
        if let Some(child) = self.children.get_mut(&link) {
            let pending = child.confirms.entry(confirm.origin).or_insert(confirm);
            if confirm.seq >= pending.seq {
                *pending = confirm;
            }
            self.wake(link);
        }
    }

    fn own_confirmed(&mut self, confirm: &Confirm) {
        let now_ns = self.now.mono_ns;
        let news = self.outbox.confirm(confirm.seq, confirm.position, now_ns);
        if !news.is_empty() {
            self.plan_resend();
        }
        for id in news {
            let Some(of) = self.publishers.get(&id.publisher).copied() else { continue };
            let Some(client) = self.clients.get_mut(&of) else { continue };
            let held =
                if self.storms.is_off() { id.seq } else { self.storms.acked_up_to(of, id.seq) };
            client.acks.up_to(held);
            self.notify_acked(of);
        }
        if self.outbox.waiting_bytes() <= self.config.outbox_bytes / 2 {
            for client in std::mem::take(&mut self.paused) {
                self.out.push(Output::ResumeClient(client));
            }
        }
        self.expire_outbox();
    }

    /// Forgets own events whose grace time is over.
    pub(in crate::node) fn expire_outbox(&mut self) {
        let before_ns = self.now.mono_ns.saturating_sub(ns(self.config.grace_ms));
        self.outbox.expire(before_ns, self.config.outbox_bytes);
    }

    /// When [`Node::expire_outbox`] is worth it: looked after so rarely that an agent at rest does
    /// not wake up for each batch.
    pub(in crate::node) fn outbox_deadline_ns(&self) -> Option<u64> {
        let since = self.outbox.oldest_confirmed_ns();
        since.map(|since| {
            since.saturating_add(ns(self.config.grace_ms.saturating_add(EXPIRE_GRAIN_MS)))
        })
    }

    /// The parent has room for more.
    pub(in crate::node) fn on_credit(&mut self, bytes: u64) {
        let Some(parent) = self.role.parent_mut() else { return };
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        parent.credit = parent.credit.saturating_add(bytes);
        let link = parent.link;
        self.wake(link);
    }

    /// A refusal on its way to an origin.
    pub(in crate::node) fn on_nak(&mut self, origin: OriginId, run: u64) {
        if origin == self.config.origin {
            return self.begin_run(run);
        }
        if let Some(link) = self.route(origin) {
            self.send(link, Frame::Nak { origin, run });
        }
    }

    /// What a heartbeat to the parent says.
    pub(in crate::node) fn parent_heartbeat(&self) -> Heartbeat {
        Heartbeat { covered: 0, epoch: None, epoch_seen: self.epoch_seen }
    }
}

/// Most windows of batches that a standby keeps until the acting root refers to them.
pub(in crate::node) const KEPT_WINDOWS: u64 = 2;

/// Confirmed events are kept at most so much longer than their grace time.
const EXPIRE_GRAIN_MS: u64 = 5_000;

/// A child is given credit when more than this part of its window has left: half, so that it has
/// the other half to send meanwhile, and is not spoken to more often than it needs.
pub(in crate::node) fn credit_due_max(window_bytes: u64) -> u64 {
    window_bytes / 2
}

/// One batch may go beyond the credit: it is sent while any is left.
const FRAME_SLACK: u64 = crate::limits::FRAME_BYTES_MAX as u64;
