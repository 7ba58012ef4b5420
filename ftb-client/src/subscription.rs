//! A subscription: what a program reads from.

use crate::client::Inner;
use crate::error::SubscribeError;
use crate::inbox::{Key, Queued};
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};
use ftb_core::Position;
use ftb_core::node::api::{Gap, Start};
use ftb_proto::event::{Received, unseal};
use futures_core::Stream;
use std::sync::Arc;

/// What a subscription gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// An event, each exactly once, in the order of the log.
    Event(Box<Received>),
    /// Events that this subscription will not get: how many, how bad, why.
    Gap(Gap),
}

/// A [`Stream`] of deliveries, active in the whole tree since [`Client::subscribe`] gave it.
///
/// It goes on by itself after its agent was restarted. When its reader is slow it is paused and
/// catches up from the log: see [`ClientConfig::queue_bytes`]. It ends (gives `None`) when the
/// client is closed or the agent refuses to go on: [`Subscription::ended`] says why. Dropping it
/// unsubscribes.
///
/// [`Client::subscribe`]: crate::Client::subscribe
/// [`ClientConfig::queue_bytes`]: crate::ClientConfig::queue_bytes
pub struct Subscription {
    client: Arc<Inner>,
    key: Key,
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Subscription {
    pub(crate) fn new(
        client: Arc<Inner>,
        filter: &str,
        start: Start,
    ) -> Result<Self, SubscribeError> {
        let mut session = client.shared.lock();
        if session.is_closed() {
            return Err(SubscribeError::Closed);
        }
        let key = session.inbox.add(filter.to_owned(), start)?;
        drop(session);
        client.shared.speaker.wake();
        Ok(Self { client, key })
    }

    /// Resolves when the agent has said yes or no.
    pub(crate) async fn activated(&self) -> Result<(), SubscribeError> {
        let key = self.key;
        let answered = self.client.shared.wait_for(|session| {
            let Some(entry) = session.inbox.entry(key) else {
                return Some(Err(SubscribeError::Closed));
            };
            match (entry.position(), entry.ended()) {
                (Some(_), _) => Some(Ok(())),
                (None, Some(why)) => Some(Err(why.clone())),
                (None, None) => None,
            }
        });
        answered.await
    }

    /// Where it stands: behind the last delivery that has arrived, or where it became active.
    /// [`Start::After`] goes on from here.
    pub fn position(&self) -> Position {
        let mut session = self.client.shared.lock();
        let entry = session.inbox.entry(self.key);
        entry.and_then(|entry| entry.position()).unwrap_or(Position::ZERO)
    }

    /// Why nothing more will come; `None` while it is alive.
    pub fn ended(&self) -> Option<SubscribeError> {
        let mut session = self.client.shared.lock();
        session.inbox.entry(self.key).and_then(|entry| entry.ended().cloned())
    }

    /// The next delivery; `None` when the subscription has ended. Cancel-safe.
    pub async fn next(&mut self) -> Option<Delivery> {
        core::future::poll_fn(|context| self.take(context, false)).await
    }

    /// As [`Subscription::next`], but gives `None` also where the past ends that the subscription
    /// began in ([`Start::After`], [`Start::SinceNs`]): all that was in the log when it became
    /// active has been given then. What is new follows. Gives that `None` once. Cancel-safe.
    pub async fn next_of_past(&mut self) -> Option<Delivery> {
        core::future::poll_fn(|context| self.take(context, true)).await
    }

    /// What has arrived already, without waiting: poll style.
    pub fn try_next(&mut self) -> Option<Delivery> {
        let mut context = Context::from_waker(core::task::Waker::noop());
        match self.take(&mut context, false) {
            Poll::Ready(next) => next,
            Poll::Pending => None,
        }
    }

    fn take(&mut self, context: &mut Context<'_>, past_only: bool) -> Poll<Option<Delivery>> {
        loop {
            let mut session = self.client.shared.lock();
            let (next, speak) = session.inbox.pop(self.key);
            let entry = session.inbox.entry(self.key);
            let ended = entry.as_ref().is_none_or(|entry| entry.ended().is_some());
            if next.is_none() && !ended {
                if let Some(entry) = entry {
                    entry.wake_with(context.waker());
                }
                return Poll::Pending;
            }
            drop(session);
            if speak {
                self.client.shared.speaker.wake();
            }
            return Poll::Ready(match next {
                Some(Queued::Gap(gap)) => Some(Delivery::Gap(gap)),
                Some(Queued::HistoryEnd) if past_only => None,
                Some(Queued::HistoryEnd) => continue,
                Some(Queued::Event(position, sealed)) => match unseal(position, &sealed) {
                    Ok(received) => Some(Delivery::Event(Box::new(received))),
                    Err(error) => {
                        // It was checked when it arrived: only a defect leads here.
                        tracing::error!(%position, %error, "an event that passed the check is none");
                        continue;
                    }
                },
                None => None,
            });
        }
    }
}

impl Stream for Subscription {
    type Item = Delivery;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Delivery>> {
        self.take(context, false)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.client.shared.lock().inbox.remove(self.key);
        self.client.shared.speaker.wake();
    }
}
