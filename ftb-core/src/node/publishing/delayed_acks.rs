//! When a client learns that its events are acknowledged.
//!
//! At once, while the client may wait for it. A client that does not wait says so: it gets one
//! acknowledgement for many events, or with the next message. So a frequent publisher does not wake
//! up twice for each event.
//!
//! Responsible for: that choice. Not responsible for: what is acknowledged
//! ([`crate::node::publishing::upward`]), the order of messages
//! ([`crate::node::delivery::clients`]).

use crate::confirm_level::ConfirmLevel;
use crate::node::api::{ClientId, ToClient};
use crate::node::config::ns;
use crate::node::cx::Cx;
use crate::node::publishing::Publishing;
use crate::numbers::PublisherSeq;
use std::collections::VecDeque;

/// The longest delay of an acknowledgement. After a pause of this length the next one goes at once.
pub const ACK_DELAY_MS: u64 = 200;

/// Most events without an acknowledgement: the client keeps them.
pub const ACK_DELAY_EVENTS_MAX: u64 = 1_024;

/// What of a client's events is held, and what it knows of that.
#[derive(Debug, Default)]
pub(super) struct AckState {
    /// The last sequence that is committed.
    until: PublisherSeq,
    /// First and last sequences of events that are to be on disk and are not settled, rising.
    unsettled: VecDeque<(PublisherSeq, PublisherSeq)>,
    /// The lowest level of settled events that the client has not learned.
    level: Option<ConfirmLevel>,
    /// The level that it learned last.
    reported_level: Option<ConfirmLevel>,
    /// The last sequence that the client knows of, and when it learned it.
    reported: PublisherSeq,
    reported_ns: u64,
    delayed: bool,
    /// It is in the queue of delayed acknowledgements.
    queued: bool,
    /// It is not to wait any longer.
    late: bool,
}

impl AckState {
    /// Everything up to that sequence is held.
    pub(super) fn up_to(&mut self, seq: PublisherSeq) {
        self.until = self.until.max(seq);
    }

    /// These are to be on disk before they are acknowledged.
    pub(super) fn await_disk(&mut self, first: PublisherSeq, last: PublisherSeq) {
        match self.unsettled.back_mut() {
            Some((_, before)) if before.next() == first => *before = last,
            _ => self.unsettled.push_back((first, last)),
        }
    }

    /// Everything up to that sequence that is to be on disk has reached a level.
    pub(super) fn settle(&mut self, until: PublisherSeq, level: ConfirmLevel) {
        while let Some((first, last)) = self.unsettled.front_mut().filter(|(f, _)| *f <= until) {
            self.level = Some(self.level.map_or(level, |lowest| lowest.min(level)));
            if *last > until {
                *first = until.next();
                return;
            }
            self.unsettled.pop_front();
        }
    }

    /// The last sequence that is acknowledged: committed, and settled.
    fn acked(&self) -> PublisherSeq {
        let first = self.unsettled.front().map(|(first, _)| first.before());
        first.map_or(self.until, |before| before.min(self.until))
    }

    /// The client gets the acknowledgement again, at once. Says whether there is one.
    pub(super) fn repeat_ack(&mut self) -> bool {
        self.reported = PublisherSeq::ZERO;
        self.level = [self.level, self.reported_level].into_iter().flatten().min();
        self.late = self.acked() > PublisherSeq::ZERO;
        self.late
    }

    fn has_news(&self) -> bool {
        self.acked() > self.reported
    }

    fn is_due(&self) -> bool {
        let pending = self.acked() - self.reported;
        pending > 0 && (!self.delayed || self.late || pending >= ACK_DELAY_EVENTS_MAX)
    }

    /// The acknowledgement that goes before deliveries.
    pub(super) fn take_due(&mut self, now_ns: u64) -> Option<ToClient> {
        self.is_due().then(|| self.tell(now_ns))?
    }

    /// The acknowledgement that goes when there is nothing else.
    pub(super) fn tell(&mut self, now_ns: u64) -> Option<ToClient> {
        self.late = false;
        let seq = self.acked();
        (seq > self.reported).then(|| {
            (self.reported, self.reported_ns) = (seq, now_ns);
            let level = self.level.take();
            self.reported_level = level.or(self.reported_level);
            ToClient::Confirmed { seq, level }
        })
    }
}

/// Delayed acknowledgements, in the order in which they are due.
#[derive(Default)]
pub(super) struct DelayedAcks(VecDeque<(u64, ClientId)>);

impl DelayedAcks {
    /// When the first is due.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.0.front().map(|(due_ns, _)| *due_ns)
    }
}

impl Publishing {
    /// How a client wants to learn that its events are acknowledged.
    pub(crate) fn on_delay_acks(&mut self, cx: &mut Cx, id: ClientId, delayed: bool) {
        let Some(publisher) = self.publishers.get_mut(&id) else {
            cx.counters.stale += 1;
            return;
        };
        publisher.acks.delayed = delayed;
        self.notify_acked(cx, id);
    }

    /// More events of a client are acknowledged: it learns it now or later. Under storm rules it
    /// learns it at once: it publishes again what it has not heard of, and that counts.
    pub(super) fn notify_acked(&mut self, cx: &mut Cx, id: ClientId) {
        // The client may have detached.
        let Some(publisher) = self.publishers.get_mut(&id) else { return };
        let (acks, now_ns) = (&mut publisher.acks, cx.now.mono_ns);
        if acks.has_news() {
            let long_ago = now_ns.saturating_sub(acks.reported_ns) >= ns(ACK_DELAY_MS);
            acks.late |= long_ago || !self.storms.is_off();
        }
        if acks.is_due() {
            cx.wake_client(id);
        } else if acks.has_news() && !acks.queued {
            acks.queued = true;
            self.delayed_acks.0.push_back((cx.after_ms(ACK_DELAY_MS), id));
        }
    }

    /// Acknowledgements are due.
    pub(super) fn on_delayed_ack_timer(&mut self, cx: &mut Cx) {
        while self.delayed_acks.deadline_ns().is_some_and(|due_ns| due_ns <= cx.now.mono_ns) {
            let Some((_, id)) = self.delayed_acks.0.pop_front() else { return };
            // The client may have detached.
            let Some(publisher) = self.publishers.get_mut(&id) else { continue };
            publisher.acks.queued = false;
            publisher.acks.late = publisher.acks.has_news();
            self.notify_acked(cx, id);
        }
    }
}
