//! Receipts: what a program has of a published event, and what says its outcome.
//!
//! Not responsible for: when an outcome is known (`completion.rs`).

use crate::completion::Completion;
use crate::error::Unconfirmed;
use core::ops::Range;
use ftb_core::{ConfirmLevel, EventId};
use std::sync::Arc;

/// The receipt of an accepted event: resolves with its outcome.
#[derive(Debug)]
#[must_use = "an event is published without it, but only the receipt says what became of it; \
              drop it with `let _ =` where that does not matter"]
pub struct Receipt {
    /// Shared with other events.
    completion: Arc<Completion>,
    place: u32,
}

impl Receipt {
    pub(crate) fn new(completion: Arc<Completion>, place: u32) -> Self {
        Self { completion, place }
    }

    /// Resolves with the event's id when it is committed: from then on it will be delivered. Costs
    /// nothing until it is polled.
    ///
    /// # Errors
    /// [`Unconfirmed`]: it will not be confirmed.
    pub async fn confirmed(self) -> Result<EventId, Unconfirmed> {
        self.completion.ended(self.place).await
    }

    /// As [`Receipt::confirmed`]; gives also what the event survives. An event that was to be on
    /// disk and cannot be gets a lower level than [`ConfirmLevel::Disk`]. Events that travelled
    /// together share the lowest of their levels.
    ///
    /// # Errors
    /// As there.
    pub async fn confirmed_level(self) -> Result<(EventId, ConfirmLevel), Unconfirmed> {
        let id = self.completion.ended(self.place).await?;
        Ok((id, self.completion.level()))
    }

    /// As [`Receipt::confirmed`], without waiting; `None`: not known yet.
    pub fn outcome(&self) -> Option<Result<EventId, Unconfirmed>> {
        self.completion.outcome(self.place)
    }
}

/// The outcomes of the events of a batch, in their order.
#[derive(Clone, Debug)]
#[must_use = "the events are published without them, but only the receipts have the outcomes; \
              drop them with `let _ =` where that does not matter"]
pub struct Receipts {
    completion: Arc<Completion>,
    places: Range<u32>,
}

impl Receipts {
    pub(crate) fn new(completion: Arc<Completion>, places: Range<u32>) -> Self {
        Self { completion, places }
    }

    /// The number of events.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there were none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Resolves when all are committed. Cancel-safe.
    ///
    /// # Errors
    /// [`Unconfirmed`] as soon as one event is known to fail. The single receipts have the outcome
    /// of each.
    pub async fn confirmed(&self) -> Result<(), Unconfirmed> {
        self.completion.all_ended_well(self.places.clone()).await
    }

    /// As [`Receipts::confirmed`]; gives the lowest level of all.
    ///
    /// # Errors
    /// As there.
    pub async fn confirmed_level(&self) -> Result<ConfirmLevel, Unconfirmed> {
        self.confirmed().await?;
        Ok(self.completion.level())
    }
}

/// Yields the receipt of each event.
impl Iterator for Receipts {
    type Item = Receipt;

    fn next(&mut self) -> Option<Receipt> {
        let place = self.places.next()?;
        Some(Receipt::new(Arc::clone(&self.completion), place))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.places.size_hint()
    }
}
