//! Moves messages from the core to the transports. Each transport has a short channel and is filled
//! only while it has room, so that waiting events stay in the core, where they are limited and
//! shed.
//!
//! Not responsible for: what is sent.

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use std::collections::BTreeMap;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// Messages that wait in one transport's channel; each is a batch of up to
/// [`ftb_core::limits::LINK_BYTES_TARGET`] or, to a client,
/// [`ftb_core::limits::BATCH_BYTES_TARGET`]. Full: the rest waits in the core.
pub const DEPTH: usize = 4;

/// The channels of all transports of one kind.
pub struct TransportQueues<K, T> {
    all: BTreeMap<K, Outbox<T>>,
    /// Waits for room, one future for each full channel.
    room: FuturesUnordered<BoxFuture<'static, K>>,
}

struct Outbox<T> {
    sender: mpsc::Sender<T>,
    /// A future in `room` waits for it.
    full: bool,
    /// To be closed once the core has nothing more for it.
    closing: bool,
}

impl<K, T> Default for TransportQueues<K, T> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), room: FuturesUnordered::new() }
    }
}

impl<K: Ord + Copy + Send + 'static, T: Send + 'static> TransportQueues<K, T> {
    /// Adds a transport.
    pub fn open(&mut self, key: K, sender: mpsc::Sender<T>) {
        self.all.insert(key, Outbox { sender, full: false, closing: false });
    }

    /// Whether a transport exists, even if it is closing.
    pub fn is_known(&self, key: K) -> bool {
        self.all.contains_key(&key)
    }

    /// Removes a transport.
    pub fn remove(&mut self, key: K) {
        self.all.remove(&key);
    }

    /// Closes a transport once the core has nothing more for it.
    pub fn close(&mut self, key: K) {
        if let Some(outbox) = self.all.get_mut(&key) {
            outbox.closing = true;
        }
    }

    /// Closes all of them once the core has nothing more for them; returns their keys.
    pub fn close_all(&mut self) -> Vec<K> {
        self.all.values_mut().for_each(|outbox| outbox.closing = true);
        self.all.keys().copied().collect()
    }

    /// Whether there are no transports.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Fills one transport's channel from `poll`.
    pub fn pump(&mut self, key: K, mut poll: impl FnMut(K) -> Option<T>) {
        let Some(outbox) = self.all.get_mut(&key) else { return };
        let mut over = false;
        while !outbox.full && !over {
            match outbox.sender.try_reserve() {
                Ok(permit) => match poll(key) {
                    Some(message) => permit.send(message),
                    None if outbox.closing => over = true,
                    None => return,
                },
                Err(TrySendError::Full(())) => {
                    outbox.full = true;
                    let sender = outbox.sender.clone();
                    self.room.push(Box::pin(async move {
                        // An error means that the transport is gone: the next pump finds out.
                        let _ = sender.reserve().await;
                        key
                    }));
                }
                Err(TrySendError::Closed(())) => over = true,
            }
        }
        if over {
            self.all.remove(&key);
        }
    }

    /// Waits until a channel that was full has room; never ends when none is full. Cancel safe.
    pub async fn room(&mut self) -> K {
        loop {
            match self.room.next().await {
                Some(key) => {
                    if let Some(outbox) = self.all.get_mut(&key) {
                        outbox.full = false;
                    }
                    return key;
                }
                None => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_full_transport_is_filled_again_when_it_has_room_and_closes_when_drained() {
        let mut outboxes = TransportQueues::default();
        let (sender, mut receiver) = mpsc::channel(DEPTH);
        outboxes.open(1_u64, sender);
        let mut queue: Vec<u32> = (0..10).rev().collect();
        outboxes.pump(1, |_| queue.pop());
        assert_eq!(queue.len(), 10 - DEPTH);
        outboxes.close(1);
        let mut got = Vec::new();
        while !outboxes.is_empty() {
            got.push(receiver.recv().await.unwrap());
            let key = outboxes.room().await;
            outboxes.pump(key, |_| queue.pop());
        }
        while let Some(number) = receiver.recv().await {
            got.push(number);
        }
        assert_eq!(got, (0..10).collect::<Vec<u32>>());
    }

    #[tokio::test]
    async fn a_transport_that_is_gone_is_forgotten_without_a_poll() {
        let mut outboxes: TransportQueues<u64, u32> = TransportQueues::default();
        let (sender, receiver) = mpsc::channel(DEPTH);
        outboxes.open(1, sender);
        drop(receiver);
        outboxes.pump(1, |_| panic!("no link wants a frame"));
        assert!(outboxes.is_empty());
    }
}
