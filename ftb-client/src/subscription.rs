//! Subscriptions: what a program reads.

use crate::error::SubscribeError;
use crate::inbox::{Key, Queued};
use crate::shared::Handles;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, Waker, ready};
use ftb_core::Position;
use ftb_core::node::api::{Gap, Start};
use ftb_proto::event::{EventBatch, Received};
use futures_core::Stream;
use std::sync::Arc;

/// A delivery of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// An event: each exactly once, in log order.
    Event(Box<Received>),
    /// Events that are lost for this subscription: number, highest severity, reason.
    Gap(Gap),
}

/// Deliveries that are read at once: cheaper for many events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deliveries {
    /// Events in log order, at least one.
    Events(EventBatch),
    /// Events that are lost for this subscription.
    Gap(Gap),
}

/// A [`Stream`] of deliveries, active in the whole tree since [`Client::subscribe`] returned it.
///
/// It continues after a restart of its agent. With a slow reader it is paused and catches up from
/// the log: see [`ClientConfig::queue_bytes`]. It ends (returns `None`) when the client is closed
/// or the agent refuses it: [`Subscription::ended`] has the reason. Dropping it unsubscribes.
///
/// [`Client::subscribe`]: crate::Client::subscribe
/// [`ClientConfig::queue_bytes`]: crate::ClientConfig::queue_bytes
pub struct Subscription {
    client: Arc<Handles>,
    key: Key,
    /// The batch that is read now: taken from the client's queue, so that reading needs no lock.
    batch: Option<EventBatch>,
    /// After the last returned delivery.
    given: Option<Position>,
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Subscription {
    pub(crate) fn new(
        client: Arc<Handles>,
        filter: &str,
        start: Start,
    ) -> Result<Self, SubscribeError> {
        let mut session = client.shared.lock();
        if session.is_closed() {
            return Err(SubscribeError::Closed);
        }
        let key = session.inbox.add(filter.to_owned(), start)?;
        drop(session);
        client.shared.wake_sender();
        Ok(Self { client, key, batch: None, given: None })
    }

    /// Resolves with the agent's answer.
    pub(crate) async fn activated(&self) -> Result<(), SubscribeError> {
        let key = self.key;
        let answered = self.client.shared.wait_for(|session| {
            let Some(entry) = session.inbox.entry(key) else {
                return Some(Err(SubscribeError::Closed));
            };
            match (entry.began(), entry.ended()) {
                (Some(_), _) => Some(Ok(())),
                (None, Some(why)) => Some(Err(why.clone())),
                (None, None) => None,
            }
        });
        answered.await
    }

    /// The position of its reader: [`Start::After`] resumes here without loss. After the last
    /// returned delivery, or where it begins ([`Position::ZERO`] for a time in the past); with an
    /// empty queue, after the last entry that the agent examined for it.
    pub fn position(&self) -> Position {
        let mut session = self.client.shared.lock();
        let entry = session.inbox.entry(self.key);
        let all_given = self.batch.as_ref().is_none_or(EventBatch::is_empty)
            && entry.as_ref().is_some_and(|entry| entry.is_drained());
        let arrived = entry.as_ref().and_then(|entry| entry.position()).filter(|_| all_given);
        let began = || entry.as_ref().and_then(|entry| entry.began());
        arrived.or(self.given).or_else(began).unwrap_or(Position::ZERO)
    }

    /// Why it ended; `None` while it is active.
    pub fn ended(&self) -> Option<SubscribeError> {
        let mut session = self.client.shared.lock();
        session.inbox.entry(self.key).and_then(|entry| entry.ended().cloned())
    }

    /// Statements of conditions that hold or are unknown in the past in which it began, and that
    /// the user may not read; 0 before the end of that past.
    pub fn hidden(&self) -> u32 {
        self.client.shared.lock().inbox.entry(self.key).map_or(0, |entry| entry.hidden())
    }

    /// The next delivery; `None` when the subscription has ended. Cancel-safe.
    pub async fn next(&mut self) -> Option<Delivery> {
        core::future::poll_fn(|context| self.poll(Some(context.waker()), false)).await
    }

    /// As [`Subscription::next`], but returns `None` also at the end of the past in which it began
    /// ([`Start::After`], [`Start::SinceNs`]): all entries that were in the log when it became
    /// active are delivered then. New events follow. Returns that `None` once. Cancel-safe.
    pub async fn next_of_past(&mut self) -> Option<Delivery> {
        core::future::poll_fn(|context| self.poll(Some(context.waker()), true)).await
    }

    /// The next delivery that has arrived, without waiting.
    pub fn try_next(&mut self) -> Option<Delivery> {
        match self.poll(None, false) {
            Poll::Ready(next) => next,
            Poll::Pending => None,
        }
    }

    /// As [`Subscription::next`], but a whole batch of events, read in place: several times
    /// cheaper. Both can be called in turn without loss or repetition. Cancel-safe.
    pub async fn next_batch(&mut self) -> Option<Deliveries> {
        core::future::poll_fn(|context| self.poll_batch(Some(context.waker()))).await
    }

    /// As [`Subscription::next_batch`], without waiting.
    pub fn try_next_batch(&mut self) -> Option<Deliveries> {
        match self.poll_batch(None) {
            Poll::Ready(next) => next,
            Poll::Pending => None,
        }
    }

    /// The next delivery. Without one, `waker` is woken at the next; `None` keeps the waker of a
    /// waiting reader.
    fn poll(&mut self, waker: Option<&Waker>, past_only: bool) -> Poll<Option<Delivery>> {
        loop {
            if let Some(received) = self.batch.as_mut().and_then(EventBatch::take_first) {
                self.given = Some(received.position);
                return Poll::Ready(Some(Delivery::Event(Box::new(received))));
            }
            self.batch = None;
            match ready!(self.poll_queue(waker)) {
                Some(Queued::Events(events)) => self.batch = Some(events),
                Some(Queued::Gap(gap)) => return Poll::Ready(Some(Delivery::Gap(gap))),
                Some(Queued::HistoryEnd) if past_only => return Poll::Ready(None),
                Some(Queued::HistoryEnd) => {}
                None => return Poll::Ready(None),
            }
        }
    }

    fn poll_batch(&mut self, waker: Option<&Waker>) -> Poll<Option<Deliveries>> {
        let found = match self.batch.take().filter(|batch| !batch.is_empty()) {
            Some(rest) => Some(Queued::Events(rest)),
            None => ready!(self.poll_queue(waker)),
        };
        Poll::Ready(match found {
            Some(Queued::Events(events)) => {
                self.given = events.last_position();
                Some(Deliveries::Events(events))
            }
            Some(Queued::Gap(gap)) => Some(Deliveries::Gap(gap)),
            // It is returned once.
            Some(Queued::HistoryEnd) => return self.poll_batch(waker),
            None => None,
        })
    }

    /// The next queued delivery.
    fn poll_queue(&mut self, waker: Option<&Waker>) -> Poll<Option<Queued>> {
        let mut session = self.client.shared.lock();
        let (next, speak) = session.inbox.pop(self.key);
        if next.is_none()
            && let Some(entry) = session.inbox.entry(self.key)
            && entry.ended().is_none()
        {
            if let Some(waker) = waker {
                entry.wake_with(waker);
            }
            return Poll::Pending;
        }
        let sender = if speak { session.sender.take() } else { None };
        drop(session);
        sender.into_iter().for_each(Waker::wake);
        if let Some(Queued::Gap(gap)) = &next {
            self.given = Some(gap.until);
        }
        Poll::Ready(next)
    }
}

impl Stream for Subscription {
    type Item = Delivery;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Delivery>> {
        self.poll(Some(context.waker()), false)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.client.shared.lock().inbox.remove(self.key);
        self.client.shared.wake_sender();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::ClientConfig;
    use crate::session::Session;
    use crate::shared::Shared;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Wake;

    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_look_in_between_does_not_deafen_the_one_that_waits() {
        let shared = Arc::new(Shared::new(ClientConfig::new("test")));
        let client = Arc::new(Handles { shared: Arc::clone(&shared) });
        let mut subscription = Subscription::new(client, "", Start::Now).unwrap();
        let woken = Arc::new(Flag(AtomicBool::new(false)));
        let waker = Arc::clone(&woken).into();
        let mut waiting = Context::from_waker(&waker);
        assert!(Pin::new(&mut subscription).poll_next(&mut waiting).is_pending());
        assert!(subscription.try_next().is_none() && subscription.try_next_batch().is_none());
        shared.update(Session::leave);
        assert!(woken.0.load(Ordering::Relaxed));
    }
}
