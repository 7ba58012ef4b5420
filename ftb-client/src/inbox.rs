//! The subscriptions of a client and their queued deliveries.
//!
//! The queue of each is bounded in bytes. When its reader falls behind, the subscription is
//! *paused*: the client unsubscribes, and subscribes again from the last position once half of the
//! queue is read. A slow reader slows neither other subscriptions nor confirmations. It continues
//! from the log; the agent reports a gap for events that the log has lost. A lost attachment is
//! handled in the same way. Each time the subscription gets a new id, so that late events of the
//! old one are recognised and dropped.
//!
//! No I/O, no clock.

use crate::error::SubscribeError;
use crate::recent::{Recent, Sifted};
use ftb_core::node::api::{Gap, Start, SubscriptionId};
use ftb_core::numbers::LogIndex;
use ftb_core::{Position, Trail};
use ftb_proto::client::FromClient;
use ftb_proto::event::EventBatch;
use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

/// Most subscriptions of one client.
pub(crate) const SUBSCRIPTIONS_MAX: usize = 1024;
/// Cost of a queued delivery beside the bytes of its event.
const DELIVERY_BYTES: usize = 128;

/// Names a subscription within its client, never reused.
pub(crate) type Key = u64;

#[derive(Debug)]
pub(crate) enum Queued {
    Events(EventBatch),
    Gap(Gap),
    /// The end of the past in which it began.
    HistoryEnd,
}

impl Queued {
    fn cost(&self) -> usize {
        match self {
            Self::Events(events) => events.message_bytes() + events.len() * DELIVERY_BYTES,
            Self::Gap(_) | Self::HistoryEnd => DELIVERY_BYTES,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InboxState {
    /// To be sent when an agent is attached.
    Wanted,
    /// Sent; the agent has not answered.
    Asked(SubscriptionId),
    /// The agent delivers events.
    Active(SubscriptionId),
    /// Unsubscribed until its reader has caught up.
    Paused,
    /// The agent refused it, or the client was closed.
    Ended,
}

impl InboxState {
    fn id(self) -> Option<SubscriptionId> {
        match self {
            Self::Asked(id) | Self::Active(id) => Some(id),
            Self::Wanted | Self::Paused | Self::Ended => None,
        }
    }
}

/// One subscription.
pub(crate) struct InboxEntry {
    filter: String,
    start: Start,
    state: InboxState,
    /// Its first position, once it is active; before everything if it began at a time in the past.
    began: Option<Position>,
    /// After the last arrival; before the first, where it begins, unless that is a time.
    position: Option<Position>,
    /// Its position in each of the newest epochs.
    trail: Option<Trail>,
    ended: Option<SubscribeError>,
    queue: VecDeque<Queued>,
    queue_bytes: usize,
    waker: Option<Waker>,
    recent: Recent,
    /// Its reader got the end of history.
    history_ended: bool,
    /// It began at a time in the past: the past is delivered in log order, also events after newer
    /// ones of their publishers.
    looks_back: bool,
    /// Its reader keeps the table of conditions.
    keeps_table: bool,
    /// Conditions of its past that the user may not read.
    hidden: u32,
}

impl InboxEntry {
    /// Conditions of its past that the user may not read.
    pub(crate) fn hidden(&self) -> u32 {
        self.hidden
    }

    /// It reads the table of conditions: a part of it is no table.
    fn reads_conditions(&self) -> bool {
        self.start == Start::Conditions && !self.history_ended
    }

    /// After the last queued delivery, or where it begins.
    pub(crate) fn position(&self) -> Option<Position> {
        self.position
    }

    /// Its first position, once it is active.
    pub(crate) fn began(&self) -> Option<Position> {
        self.began
    }

    /// Whether its queue is empty.
    pub(crate) fn is_drained(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn ended(&self) -> Option<&SubscribeError> {
        self.ended.as_ref()
    }

    pub(crate) fn wake_with(&mut self, waker: &Waker) {
        if !self.waker.as_ref().is_some_and(|w| w.will_wake(waker)) {
            self.waker = Some(waker.clone());
        }
    }

    fn end(&mut self, why: SubscribeError) -> Option<Waker> {
        self.state = InboxState::Ended;
        self.ended = Some(why);
        self.waker.take()
    }

    /// Subscribes again, after the last delivery or where it was to begin.
    fn want_again(&mut self) {
        self.state = InboxState::Wanted;
        if self.reads_conditions() {
            return;
        }
        if let Some(trail) = self.trail {
            self.start = match trail.places() {
                [only] => Start::After(*only),
                _ => Start::AfterTrail(trail),
            };
            self.recent.suspect();
        }
    }

    /// Everything up to a position has arrived, or was reported as a gap.
    fn stand(&mut self, position: Position) {
        self.position = Some(position);
        self.trail.get_or_insert(Trail::at(position)).note(position);
    }
}

/// Totals since the client was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InboxCounts {
    pub(crate) delivered: u64,
    pub(crate) copies: u64,
    pub(crate) late: u64,
    pub(crate) overtaken: u64,
    pub(crate) gaps: u64,
    pub(crate) paused: u64,
}

pub(crate) struct Inbox {
    queue_bytes_max: usize,
    entries: BTreeMap<Key, InboxEntry>,
    next_key: Key,
    /// By the id in the current attachment.
    by_id: BTreeMap<u32, Key>,
    next_id: u32,
    /// To be unsubscribed.
    unwanted: VecDeque<SubscriptionId>,
    counts: InboxCounts,
}

impl Inbox {
    pub(crate) fn new(queue_bytes_max: usize) -> Self {
        Self {
            queue_bytes_max,
            entries: BTreeMap::new(),
            next_key: 0,
            by_id: BTreeMap::new(),
            next_id: 0,
            unwanted: VecDeque::new(),
            counts: InboxCounts::default(),
        }
    }

    pub(crate) fn counts(&self) -> InboxCounts {
        self.counts
    }

    pub(crate) fn entry(&mut self, key: Key) -> Option<&mut InboxEntry> {
        self.entries.get_mut(&key)
    }

    /// A new subscription, sent when an agent is attached.
    pub(crate) fn add(&mut self, filter: String, start: Start) -> Result<Key, SubscribeError> {
        if self.entries.len() >= SUBSCRIPTIONS_MAX {
            return Err(SubscribeError::TooMany(SUBSCRIPTIONS_MAX));
        }
        let key = self.next_key;
        self.next_key += 1;
        self.entries.insert(
            key,
            InboxEntry {
                filter,
                start,
                state: InboxState::Wanted,
                began: None,
                position: None,
                trail: None,
                ended: None,
                queue: VecDeque::new(),
                queue_bytes: 0,
                waker: None,
                recent: Recent::default(),
                history_ended: start == Start::Now,
                looks_back: matches!(start, Start::SinceNs(_) | Start::Conditions),
                keeps_table: start == Start::Conditions,
                hidden: 0,
            },
        );
        Ok(key)
    }

    /// Whether there is a subscription to unsubscribe.
    pub(crate) fn has_unsubscriptions(&self) -> bool {
        !self.unwanted.is_empty()
    }

    /// Its reader was dropped.
    pub(crate) fn remove(&mut self, key: Key) {
        if let Some(id) = self.entries.remove(&key).and_then(|entry| entry.state.id()) {
            self.retire(id);
        }
    }

    fn retire(&mut self, id: SubscriptionId) {
        self.by_id.remove(&id.0);
        self.unwanted.push_back(id);
    }

    /// A new attachment has no subscriptions yet.
    pub(crate) fn attached(&mut self) {
        self.unwanted.clear();
        self.by_id.clear();
        self.next_id = 0;
        for entry in self.entries.values_mut() {
            if entry.state.id().is_some() {
                entry.want_again();
            }
        }
    }

    /// The next message for the agent.
    pub(crate) fn take(&mut self) -> Option<FromClient> {
        if let Some(id) = self.unwanted.pop_front() {
            return Some(FromClient::Unsubscribe(id));
        }
        let (key, entry) =
            self.entries.iter_mut().find(|(_, entry)| entry.state == InboxState::Wanted)?;
        // Ids repeat only after 2^32 others.
        self.next_id = self.next_id.wrapping_add(1);
        let subscription = SubscriptionId(self.next_id);
        entry.state = InboxState::Asked(subscription);
        self.by_id.insert(subscription.0, *key);
        Some(FromClient::Subscribe {
            subscription,
            filter: entry.filter.clone(),
            start: entry.start,
        })
    }

    fn by_id(&mut self, id: SubscriptionId) -> Option<&mut InboxEntry> {
        self.entries.get_mut(self.by_id.get(&id.0)?)
    }

    /// The agent reports that it is active.
    pub(crate) fn subscribed(&mut self, id: SubscriptionId, active_after: Position) {
        if let Some(entry) = self.by_id(id) {
            entry.state = InboxState::Active(id);
            // A start in the past is before the position at which it became active.
            let begin = match entry.start {
                Start::Now => Some(active_after),
                Start::After(position) => Some(position),
                Start::AfterTrail(trail) => Some(trail.newest()),
                Start::SinceNs(_) | Start::Conditions => None,
            };
            entry.began.get_or_insert(begin.unwrap_or(Position::ZERO));
            entry.position = entry.position.or(begin);
            if let (None, Start::AfterTrail(trail)) = (entry.trail, entry.start) {
                entry.trail = Some(trail);
            }
            entry.trail = entry.trail.or(begin.map(Trail::at));
        }
    }

    /// The agent refused it.
    pub(crate) fn refused(&mut self, id: SubscriptionId, why: SubscribeError) -> Option<Waker> {
        let waker = self.by_id(id)?.end(why);
        self.by_id.remove(&id.0);
        waker
    }

    /// Queues events for a subscription. Returns the reader to wake.
    pub(crate) fn deliver(&mut self, id: SubscriptionId, mut events: EventBatch) -> Option<Waker> {
        let Some(entry) = self.by_id.get(&id.0).and_then(|key| self.entries.get_mut(key)) else {
            self.counts.late += events.len() as u64;
            return None;
        };
        let until = events.last_position()?;
        let before = events.len();
        // Up to this index, the epoch was delivered or reported, or precedes the start. It arrives
        // again after the agent went back in the log.
        let had = entry.trail.map_or(LogIndex::ZERO, |trail| trail.index_in(until.epoch));
        if events.first().is_some_and(|first| first.position().index <= had) {
            events.skip_until(had);
        }
        self.counts.copies += (before - events.len()) as u64;
        entry.stand(until);
        let as_logged = entry.looks_back && !entry.history_ended;
        let Sifted { copies, late } = entry.recent.sift(&mut events, as_logged);
        self.counts.copies += copies as u64;
        self.counts.delivered += events.len() as u64;
        // The gap ends after this batch: a reader that resumes there misses and repeats nothing.
        let late = late.map(|gap| Gap { until, ..gap });
        self.counts.overtaken += late.as_ref().and_then(|gap| gap.count).unwrap_or(0);
        self.counts.gaps += u64::from(late.is_some());
        let events = (!events.is_empty()).then_some(Queued::Events(events));
        self.queue(id, events.into_iter().chain(late.map(Queued::Gap)))
    }

    /// Queues deliveries, and pauses the subscription when its queue is full. Returns the reader to
    /// wake.
    fn queue(
        &mut self,
        id: SubscriptionId,
        deliveries: impl IntoIterator<Item = Queued>,
    ) -> Option<Waker> {
        let queue_bytes_max = self.queue_bytes_max;
        let entry = self.by_id(id)?;
        let before = entry.queue.len();
        entry.queue.extend(deliveries);
        if entry.queue.len() == before {
            return None;
        }
        entry.queue_bytes += entry.queue.range(before..).map(Queued::cost).sum::<usize>();
        let waker = entry.waker.take();
        // The table has bounds of its own; read in parts it would never end for a slow reader.
        if entry.queue_bytes > queue_bytes_max && !entry.reads_conditions() {
            entry.state = InboxState::Paused;
            self.counts.paused += 1;
            self.retire(id);
        }
        waker
    }

    /// Queues a gap. An empty one is ignored, unless it says to a reader of the table that the log
    /// has gone back: statements that it has taken are not in the log any more.
    pub(crate) fn gap(&mut self, id: SubscriptionId, gap: Gap) -> Option<Waker> {
        let entry = self.by_id(id)?;
        let is_empty = gap.after == gap.until && gap.count.unwrap_or(0) == 0;
        if is_empty && !(entry.keeps_table && gap.count.is_none()) {
            return None;
        }
        entry.stand(gap.until);
        self.counts.gaps += 1;
        self.queue(id, [Queued::Gap(gap)])
    }

    /// Everything up to a position was delivered or reported.
    pub(crate) fn covered(
        &mut self,
        id: SubscriptionId,
        position: Position,
        history_ended: bool,
        hidden: u32,
    ) -> Option<Waker> {
        let entry = self.by_id(id)?;
        entry.stand(position);
        if history_ended {
            entry.hidden = hidden;
        }
        if !history_ended || std::mem::replace(&mut entry.history_ended, true) {
            return None;
        }
        self.queue(id, [Queued::HistoryEnd])
    }

    /// The next delivery for its reader, and whether there is a message for the agent now.
    pub(crate) fn pop(&mut self, key: Key) -> (Option<Queued>, bool) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return (None, false);
        };
        let next = entry.queue.pop_front();
        if let Some(next) = &next {
            entry.queue_bytes -= next.cost();
        }
        let caught_up = entry.queue_bytes <= self.queue_bytes_max / 2;
        let resume = entry.state == InboxState::Paused && caught_up;
        if resume {
            entry.want_again();
        }
        (next, resume)
    }

    /// Ends all subscriptions. Queued deliveries can still be read.
    pub(crate) fn end_all(&mut self, why: &SubscribeError) -> Vec<Waker> {
        self.by_id.clear();
        let open = self.entries.values_mut().filter(|e| e.ended.is_none());
        open.filter_map(|entry| entry.end(why.clone())).collect()
    }
}

#[cfg(test)]
mod tests;
