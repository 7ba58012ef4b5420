//! What flows up: own events and those of the agents below, forwarded under the parent's credit,
//! sent again when the way up has changed; and the confirmations that come back.

use crate::frame::{Confirm, Frame, UpBatch};
use crate::ident::OriginId;
use crate::limits::{BATCH_EVENTS_MAX, FRAME_BYTES_MAX};
use crate::node::api::LinkId;
use crate::node::config::ns;
use crate::node::cx::Cx;
use crate::node::publishing::Publishing;
use crate::node::timers::Timer;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

/// The way back to an origin below.
pub(crate) struct Route {
    pub(crate) link: LinkId,
    /// The run of the origin that came that way; 0 before it published anything.
    pub(crate) run: u64,
}

/// Where events go.
#[derive(Clone, Copy)]
pub(crate) enum WayUp {
    /// To the own log: this agent is acting root.
    Log,
    Parent(LinkId),
    /// Nowhere: the next parent gets them.
    None,
}

/// The events of one child on their way up, and what goes back to it.
#[derive(Default)]
pub(super) struct ChildFlow {
    up: VecDeque<UpBatch>,
    up_bytes: u64,
    /// Credit that it has used and may use again.
    credit_due: u64,
    /// How many batches of events have come from it.
    batches: u64,
    /// It sent events before it knew our epoch history: it is asked for them when it does.
    missed: bool,
    confirms: BTreeMap<OriginId, Confirm>,
}

impl ChildFlow {
    pub(super) fn bytes(&self) -> u64 {
        self.up_bytes
    }
}

/// Most origins below one agent whose way back it remembers.
const ROUTES_MAX: usize = 262_144;

/// Unconfirmed events are sent again after this time: a confirmation may be lost with the agent
/// that was to forward it.
const RESEND_MS: u64 = 10_000;

/// Confirmed events are kept at most this much longer than their grace time: so an agent at rest
/// does not wake up for each batch.
const EXPIRE_GRAIN_MS: u64 = 5_000;

/// One batch may go beyond the credit: it is sent while any is left.
const FRAME_SLACK: u64 = FRAME_BYTES_MAX as u64;

/// A child is given credit when more than this part of its window has left: half. It has the other
/// half to send meanwhile, and gets few frames.
fn credit_due_max(window_bytes: u64) -> u64 {
    window_bytes / 2
}

impl Publishing {
    pub(crate) fn attach_child(&mut self, link: LinkId) {
        self.children.insert(link, ChildFlow::default());
    }

    pub(crate) fn detach_child(&mut self, link: LinkId) {
        self.children.remove(&link);
        self.routes.retain(|_, route| route.link != link);
    }

    /// A child has said where it resumes. Says whether it must send its events again.
    pub(crate) fn take_missed(&mut self, link: LinkId) -> bool {
        self.children.get_mut(&link).is_some_and(|child| std::mem::take(&mut child.missed))
    }

    /// How many batches of events have come from a child.
    pub(crate) fn batches_of(&self, link: LinkId) -> u64 {
        self.children.get(&link).map_or(0, |child| child.batches)
    }

    /// Events have come up from an attached child. Gives those that go to the own log.
    ///
    /// # Errors
    /// What the child must not do.
    pub(crate) fn on_up(
        &mut self,
        cx: &mut Cx,
        link: LinkId,
        batch: UpBatch,
        way: WayUp,
    ) -> Result<Option<UpBatch>, &'static str> {
        self.learn_route(batch.origin, Route { link, run: batch.run });
        let bytes = batch.bytes();
        cx.counters.events_up += batch.count();
        let window = cx.config.window_bytes;
        let Some(child) = self.children.get_mut(&link) else {
            cx.impossible("ChildHasFlow");
            return Ok(None);
        };
        child.batches += 1;
        match way {
            WayUp::Parent(parent) => {
                child.up_bytes += bytes;
                child.up.push_back(batch);
                cx.wake(parent);
                let over = child.up_bytes > 2 * window + FRAME_SLACK;
                return if over { Err("more events than it had credit for") } else { Ok(None) };
            }
            WayUp::Log | WayUp::None => child.credit_due += bytes,
        }
        if !matches!(way, WayUp::Log) {
            return Ok(None);
        }
        if child.credit_due > credit_due_max(window) {
            cx.wake(link);
        }
        Ok(Some(batch))
    }

    /// Events of a child are dropped: it may send as many others. Those that it sent before it was
    /// attached come again: it may have to requeue older events first.
    pub(crate) fn drop_batch(
        &mut self,
        cx: &mut Cx,
        link: LinkId,
        batch: &UpBatch,
        attached: bool,
    ) {
        let Some(child) = self.children.get_mut(&link) else {
            return cx.impossible("ChildHasFlow");
        };
        child.batches += 1;
        child.credit_due += batch.bytes();
        child.missed |= !attached;
        if child.credit_due > credit_due_max(cx.config.window_bytes) {
            cx.wake(link);
        }
    }

    /// An origin has sent something: what is for it goes back the same way. What it sent before it
    /// moved may arrive after what it sends at its new place, and does not count.
    pub(crate) fn learn_route(&mut self, origin: OriginId, route: Route) {
        let full = self.routes.len() >= ROUTES_MAX;
        match self.routes.get_mut(&origin) {
            Some(known) if known.run <= route.run => *known = route,
            None if !full => {
                self.routes.insert(origin, route);
            }
            Some(_) | None => {}
        }
    }

    /// The link that leads to an origin below.
    pub(crate) fn route(&self, origin: OriginId) -> Option<LinkId> {
        self.routes.get(&origin).map(|route| route.link)
    }

    /// Whether own events are to be sent.
    pub(crate) fn has_unsent(&self) -> bool {
        self.outbox.has_unsent()
    }

    /// The next own events.
    pub(crate) fn next_own(&mut self, cx: &Cx, bytes_max: usize) -> Option<UpBatch> {
        self.outbox.take(cx.config.origin, bytes_max, BATCH_EVENTS_MAX)
    }

    /// Own events are on their way: the time to wait for a confirmation begins.
    pub(crate) fn await_confirmation(&self, cx: &mut Cx) {
        if !cx.timers.is_set(Timer::Resend) {
            self.plan_resend(cx);
        }
    }

    /// The time to wait for the next confirmation begins, if one is waited for.
    fn plan_resend(&self, cx: &mut Cx) {
        match self.outbox.waiting_bytes() > 0 {
            true => cx.timers.set(Timer::Resend, cx.after_ms(RESEND_MS)),
            false => cx.timers.stop(Timer::Resend),
        }
    }

    /// What was sent and never confirmed goes up again, if there is a parent.
    pub(crate) fn on_resend_timer(&mut self, cx: &mut Cx, has_parent: bool) {
        if has_parent {
            cx.counters.resent += 1;
            self.outbox.rewind();
        }
        self.plan_resend(cx);
    }

    /// The way up is another one: what is on its way is void, everything unconfirmed below is sent
    /// again.
    pub(crate) fn on_uplink_change(&mut self, cx: &mut Cx) {
        for (link, child) in &mut self.children {
            child.up.clear();
            child.credit_due += std::mem::take(&mut child.up_bytes);
            cx.send(*link, Frame::Resend);
        }
        self.outbox.rewind();
    }

    /// Own clients and the children take turns.
    pub(crate) fn next_batch(&mut self, cx: &mut Cx, bytes_max: usize) -> Option<UpBatch> {
        let waiting = |(_, child): &(&LinkId, &ChildFlow)| !child.up.is_empty();
        let links: Vec<LinkId> =
            self.children.iter().filter(waiting).map(|(link, _)| *link).collect();
        let next = links.iter().find(|link| Some(**link) > self.turn).copied();
        if next.is_none()
            && let Some(batch) = self.next_own(cx, bytes_max)
        {
            self.turn = None;
            return Some(batch);
        }
        self.turn = next.or_else(|| links.first().copied());
        let link = self.turn?;
        let child = self.children.get_mut(&link)?;
        let batch = child.up.pop_front()?;
        child.up_bytes = child.up_bytes.saturating_sub(batch.bytes());
        child.credit_due += batch.bytes();
        if child.credit_due > credit_due_max(cx.config.window_bytes) {
            cx.wake(link);
        }
        Some(batch)
    }

    /// Credit or a confirmation for a child.
    pub(crate) fn poll_child(&mut self, cx: &Cx, link: LinkId) -> Option<Frame> {
        let child = self.children.get_mut(&link)?;
        if child.credit_due > credit_due_max(cx.config.window_bytes) {
            let bytes = std::mem::take(&mut child.credit_due);
            return Some(Frame::Credit { bytes });
        }
        child.confirms.pop_first().map(|(_, confirm)| Frame::Confirm(confirm))
    }

    /// A confirmation on its way to an origin.
    pub(crate) fn on_confirm(&mut self, cx: &mut Cx, confirm: Confirm) {
        if confirm.origin == cx.config.origin {
            return self.on_own_confirm(cx, &confirm);
        }
        let link = self.route(confirm.origin);
        let child = link.and_then(|link| Some((link, self.children.get_mut(&link)?)));
        let Some((link, child)) = child else {
            // The origin has moved, or its agent is lost.
            cx.counters.stale += 1;
            return;
        };
        match child.confirms.entry(confirm.origin) {
            Entry::Occupied(mut pending) => pending.get_mut().join(confirm),
            Entry::Vacant(none) => drop(none.insert(confirm)),
        }
        cx.wake(link);
    }

    fn on_own_confirm(&mut self, cx: &mut Cx, confirm: &Confirm) {
        let news = self.outbox.confirm(confirm.seq, confirm.position, cx.now.mono_ns);
        if !news.is_empty() {
            self.plan_resend(cx);
        }
        for id in news {
            // The client may have detached.
            let Some(of) = self.by_publisher.get(&id.publisher).copied() else { continue };
            let until = match self.storms.is_off() {
                true => id.seq,
                false => self.storms.acked_up_to(of, id.seq),
            };
            if let Some(publisher) = self.publishers.get_mut(&of) {
                publisher.acks.up_to(until);
                self.notify_acked(cx, of);
            }
        }
        if let Some(settled) = confirm.settled {
            self.on_settled(cx, settled);
        }
        self.on_outbox_change(cx);
    }

    /// Less may be waiting: paused clients go on.
    pub(super) fn on_outbox_change(&mut self, cx: &mut Cx) {
        if self.outbox.waiting_bytes() <= cx.config.outbox_bytes / 2 {
            for client in std::mem::take(&mut self.paused) {
                self.read_again(cx, client);
            }
        }
        self.expire_outbox(cx);
    }

    /// Forgets own events whose grace time is over.
    pub(super) fn expire_outbox(&mut self, cx: &Cx) {
        let before_ns = cx.now.mono_ns.saturating_sub(ns(cx.config.grace_ms));
        self.outbox.expire(before_ns, cx.config.outbox_bytes);
    }

    /// When [`Publishing::expire_outbox`] is due.
    pub(super) fn expire_ns(&self, cx: &Cx) -> Option<u64> {
        let after_ms = cx.config.grace_ms.saturating_add(EXPIRE_GRAIN_MS);
        self.outbox.oldest_confirmed_ns().map(|since| since.saturating_add(ns(after_ms)))
    }

    /// A run of an origin has a hole. Says whether the own one begins again.
    pub(crate) fn on_nak(&mut self, cx: &mut Cx, origin: OriginId, run: u64) -> bool {
        let is_own = origin == cx.config.origin;
        if is_own && run == self.outbox.run() {
            self.outbox.rewind();
            return true;
        }
        if let Some(link) = self.route(origin).filter(|_| !is_own) {
            cx.send(link, Frame::Nak { origin, run });
        }
        false
    }
}
