//! What a client has published and nobody else holds yet.
//!
//! An event *waits* until an attached agent can take it, then it gets its sequence number and is
//! *in flight* until it is confirmed; what is in flight is handed to the next agent again when the
//! attachment is lost. Both together are bounded in bytes. Only what waits can be shed, so the
//! numbers that agents see have no holes: mildest severity first, within one severity the oldest,
//! since the newest says how things are now. An event that finds only worse ones in its way is not
//! taken.
//!
//! No I/O, no clock.

use crate::error::{PublishError, Unconfirmed};
use bytes::Bytes;
use ftb_core::{EventId, PublisherId, Severity, limits};
use std::collections::VecDeque;
use tokio::sync::oneshot;

/// What an event costs beside its bytes: its place in a queue and its receipt.
const ENTRY_BYTES: usize = 128;

/// How a publication ended.
pub(crate) type Outcome = Result<EventId, Unconfirmed>;

struct Waiting {
    ticket: u64,
    bytes: Bytes,
    receipt: oneshot::Sender<Outcome>,
}

struct InFlight {
    bytes: Bytes,
    /// Gone once the publisher has been told how it ended.
    receipt: Option<oneshot::Sender<Outcome>>,
}

/// Encoded events whose sequences follow each other.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) first_seq: u64,
    pub(crate) events: Vec<Bytes>,
    pub(crate) again: bool,
}

/// Totals since the client was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) accepted: u64,
    pub(crate) confirmed: u64,
    pub(crate) refused: u64,
    pub(crate) shed: [u64; 4],
}

pub(crate) struct Outbox {
    bytes_max: usize,
    in_flight_bytes_max: usize,
    /// By severity, mildest first; tickets tell the order between them.
    waiting: [VecDeque<Waiting>; 4],
    waiting_bytes: [usize; 4],
    next_ticket: u64,
    /// The sequences are dense; the last is `next_seq - 1`.
    in_flight: VecDeque<InFlight>,
    in_flight_bytes: usize,
    next_seq: u64,
    /// How many of those in flight the present attachment has been handed.
    handed: usize,
    counts: Counts,
}

fn cost(bytes: &Bytes) -> usize {
    bytes.len() + ENTRY_BYTES
}

fn class(severity: Severity) -> usize {
    severity as usize - 1
}

impl Outbox {
    /// At most half of the bytes may be in flight: the rest stays sheddable by severity.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            in_flight_bytes_max: bytes_max / 2,
            waiting: Default::default(),
            waiting_bytes: [0; 4],
            next_ticket: 0,
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            next_seq: 1,
            handed: 0,
            counts: Counts::default(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes.iter().sum()
    }

    pub(crate) fn in_flight_bytes(&self) -> usize {
        self.in_flight_bytes
    }

    fn held_bytes(&self) -> usize {
        self.waiting_bytes() + self.in_flight_bytes
    }

    /// Whether everything that was accepted has ended.
    pub(crate) fn is_empty(&self) -> bool {
        self.in_flight.is_empty() && self.waiting.iter().all(VecDeque::is_empty)
    }

    /// Whether these bytes can be taken without shedding any.
    pub(crate) fn has_room(&self, bytes: &Bytes) -> bool {
        self.held_bytes() + cost(bytes) <= self.bytes_max
    }

    /// Takes an event, sheds milder ones (or older ones as mild) when there is no room.
    pub(crate) fn push(
        &mut self,
        bytes: Bytes,
        severity: Severity,
    ) -> Result<oneshot::Receiver<Outcome>, PublishError> {
        let class = class(severity);
        let cost = cost(&bytes);
        let sheddable: usize = self.waiting_bytes[..=class].iter().sum();
        if self.held_bytes() - sheddable + cost > self.bytes_max {
            self.counts.shed[class] += 1;
            return Err(PublishError::Full {
                held_bytes: self.held_bytes(),
                bytes_max: self.bytes_max,
            });
        }
        while self.held_bytes() + cost > self.bytes_max {
            self.shed_one();
        }
        let (receipt, outcome) = oneshot::channel();
        self.waiting[class].push_back(Waiting { ticket: self.next_ticket, bytes, receipt });
        self.waiting_bytes[class] += cost;
        self.next_ticket += 1;
        self.counts.accepted += 1;
        Ok(outcome)
    }

    /// The oldest of the mildest.
    fn shed_one(&mut self) {
        for (class, queue) in self.waiting.iter_mut().enumerate() {
            if let Some(shed) = queue.pop_front() {
                self.waiting_bytes[class] -= cost(&shed.bytes);
                self.counts.shed[class] += 1;
                // A publisher that has dropped its receipt does not want to know.
                let _ = shed.receipt.send(Err(Unconfirmed::Shed));
                return;
            }
        }
    }

    /// A new attachment has seen nothing yet.
    pub(crate) fn attached(&mut self) {
        self.handed = 0;
    }

    /// The next events for the agent: first those that an earlier attachment was handed.
    pub(crate) fn take(&mut self) -> Option<Batch> {
        if self.handed < self.in_flight.len() {
            return Some(self.take_again());
        }
        let mut batch = Batch { first_seq: self.next_seq, events: Vec::new(), again: false };
        let mut bytes = 0;
        while batch.events.len() < limits::BATCH_EVENTS_MAX {
            let Some(class) = self.oldest_waiting() else {
                break;
            };
            let Some(next) = self.waiting[class].front() else {
                break;
            };
            let (len, cost) = (next.bytes.len(), cost(&next.bytes));
            let too_much = bytes + len > limits::BATCH_BYTES_TARGET && bytes > 0;
            let full = self.in_flight_bytes + cost > self.in_flight_bytes_max;
            if too_much || (full && !self.in_flight.is_empty()) {
                break;
            }
            let Some(next) = self.waiting[class].pop_front() else {
                break;
            };
            bytes += len;
            self.waiting_bytes[class] -= cost;
            self.in_flight_bytes += cost;
            self.next_seq += 1;
            batch.events.push(next.bytes.clone());
            self.in_flight.push_back(InFlight { bytes: next.bytes, receipt: Some(next.receipt) });
        }
        self.handed = self.in_flight.len();
        (!batch.events.is_empty()).then_some(batch)
    }

    fn oldest_waiting(&self) -> Option<usize> {
        let fronts = self.waiting.iter().enumerate();
        fronts
            .filter_map(|(class, queue)| Some((queue.front()?.ticket, class)))
            .min()
            .map(|(_, class)| class)
    }

    fn take_again(&mut self) -> Batch {
        let first_seq = self.first_seq() + self.handed as u64;
        let mut bytes = 0;
        let mut events = Vec::new();
        for event in self.in_flight.iter().skip(self.handed) {
            bytes += event.bytes.len();
            let enough = bytes > limits::BATCH_BYTES_TARGET && !events.is_empty();
            if enough || events.len() == limits::BATCH_EVENTS_MAX {
                break;
            }
            events.push(event.bytes.clone());
        }
        self.handed += events.len();
        Batch { first_seq, events, again: true }
    }

    fn first_seq(&self) -> u64 {
        self.next_seq - self.in_flight.len() as u64
    }

    /// Everything up to `seq` is safe.
    pub(crate) fn confirm(&mut self, seq: u64, publisher: PublisherId) {
        let seq = seq.min(self.next_seq - 1);
        while self.first_seq() <= seq && !self.in_flight.is_empty() {
            let id = EventId { publisher, seq: self.first_seq() };
            if let Some(receipt) = self.pop_in_flight() {
                self.counts.confirmed += 1;
                let _ = receipt.send(Ok(id));
            }
        }
        self.drop_settled();
    }

    /// The agent will never take that one. It keeps its number, and its place until it is the
    /// oldest: a number must not be missing when the run is handed over again.
    pub(crate) fn refuse(&mut self, seq: u64, code: String, message: String) {
        let index = seq.checked_sub(self.first_seq());
        let index = index.and_then(|index| usize::try_from(index).ok());
        let Some(refused) = index.and_then(|index| self.in_flight.get_mut(index)) else {
            return;
        };
        if let Some(receipt) = refused.receipt.take() {
            self.counts.refused += 1;
            let _ = receipt.send(Err(Unconfirmed::Refused { code, message }));
        }
        self.drop_settled();
    }

    fn drop_settled(&mut self) {
        while self.in_flight.front().is_some_and(|e| e.receipt.is_none()) {
            self.pop_in_flight();
        }
    }

    fn pop_in_flight(&mut self) -> Option<oneshot::Sender<Outcome>> {
        let oldest = self.in_flight.pop_front()?;
        self.in_flight_bytes -= cost(&oldest.bytes);
        self.handed = self.handed.saturating_sub(1);
        oldest.receipt
    }

    /// Gives up everything: whoever holds a receipt learns that the client was closed.
    pub(crate) fn abandon(&mut self) {
        self.waiting = Default::default();
        self.waiting_bytes = [0; 4];
        // Their numbers are used up, in case an agent should ever speak of them.
        self.in_flight.clear();
        self.in_flight_bytes = 0;
        self.handed = 0;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const PUBLISHER: PublisherId = PublisherId { account: 1, token: 2 };

    fn bytes(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn texts(batch: &Batch) -> Vec<&str> {
        let texts = batch.events.iter().map(|b| std::str::from_utf8(b).unwrap());
        texts.collect()
    }

    #[test]
    fn what_is_handed_over_again_keeps_its_numbers() {
        let mut outbox = Outbox::new(1 << 20);
        let first = outbox.push(bytes("a"), Severity::Info).unwrap();
        let second = outbox.push(bytes("b"), Severity::Fatal).unwrap();
        let batch = outbox.take().unwrap();
        assert_eq!((batch.first_seq, batch.again, texts(&batch)), (1, false, vec!["a", "b"]));
        assert_eq!(outbox.take(), None);
        outbox.confirm(1, PUBLISHER);
        let id = first.blocking_recv().unwrap().unwrap();
        assert_eq!(id.seq, 1);
        outbox.push(bytes("c"), Severity::Info).unwrap();
        outbox.attached();
        let again = outbox.take().unwrap();
        assert_eq!((again.first_seq, again.again, texts(&again)), (2, true, vec!["b"]));
        let new = outbox.take().unwrap();
        assert_eq!((new.first_seq, new.again, texts(&new)), (3, false, vec!["c"]));
        outbox.confirm(u64::MAX, PUBLISHER);
        assert!(second.blocking_recv().unwrap().is_ok());
        assert!(outbox.is_empty());
        assert_eq!(outbox.held_bytes(), 0);
    }

    #[test]
    fn the_mildest_and_oldest_is_shed_first_and_nothing_for_a_milder_one() {
        let mut outbox = Outbox::new(2 * (ENTRY_BYTES + 1));
        let warning = outbox.push(bytes("w"), Severity::Warning).unwrap();
        let info = outbox.push(bytes("i"), Severity::Info).unwrap();
        let newer = outbox.push(bytes("j"), Severity::Info).unwrap();
        assert_eq!(info.blocking_recv().unwrap(), Err(Unconfirmed::Shed));
        let fatal = outbox.push(bytes("f"), Severity::Fatal).unwrap();
        assert_eq!(newer.blocking_recv().unwrap(), Err(Unconfirmed::Shed));
        assert!(matches!(outbox.push(bytes("k"), Severity::Info), Err(PublishError::Full { .. })));
        assert_eq!(outbox.counts().shed, [3, 0, 0, 0]);
        // Half of the buffer may be in flight, but never less than one event.
        assert_eq!(texts(&outbox.take().unwrap()), ["w"]);
        assert_eq!(outbox.take(), None);
        outbox.confirm(1, PUBLISHER);
        assert_eq!(texts(&outbox.take().unwrap()), ["f"]);
        outbox.confirm(2, PUBLISHER);
        assert!(warning.blocking_recv().unwrap().is_ok());
        assert!(fatal.blocking_recv().unwrap().is_ok());
    }

    #[test]
    fn a_refused_event_ends_alone_and_leaves_no_hole() {
        let mut outbox = Outbox::new(1 << 20);
        let mut receipts: Vec<_> = ["a", "b", "c"]
            .into_iter()
            .map(|text| outbox.push(bytes(text), Severity::Info).unwrap())
            .collect();
        outbox.take().unwrap();
        outbox.refuse(2, "denied".to_owned(), "no".to_owned());
        outbox.attached();
        assert_eq!(texts(&outbox.take().unwrap()), ["a", "b", "c"]);
        outbox.confirm(1, PUBLISHER);
        outbox.refuse(3, "denied".to_owned(), "no".to_owned());
        assert!(outbox.is_empty());
        let last = receipts.pop().unwrap().blocking_recv().unwrap();
        assert!(matches!(last, Err(Unconfirmed::Refused { .. })));
        assert_eq!(outbox.counts().refused, 2);
        outbox.refuse(77, String::new(), String::new());
    }

    proptest! {
        /// Whatever happens, numbers handed to one attachment follow each other, the bound holds,
        /// and every receipt comes to an end exactly as counted.
        #[test]
        fn numbers_stay_dense_and_bytes_bounded(
            ops in proptest::collection::vec((0..6_u8, 0..4_usize, 0..40_usize), 1..200),
        ) {
            let bytes_max = 1500;
            let mut outbox = Outbox::new(bytes_max);
            let mut receipts = Vec::new();
            let mut expected: Option<u64> = None;
            for (op, class, number) in ops {
                match op {
                    0..=2 => {
                        let bytes = Bytes::from(vec![0; number]);
                        receipts.extend(outbox.push(bytes, Severity::ALL[class]));
                    }
                    3 => {
                        if let Some(batch) = outbox.take() {
                            if let Some(expected) = expected {
                                prop_assert_eq!(batch.first_seq, expected);
                            }
                            expected = Some(batch.first_seq + batch.events.len() as u64);
                        }
                    }
                    4 => outbox.confirm(number as u64, PUBLISHER),
                    _ => {
                        outbox.attached();
                        expected = None;
                    }
                }
                prop_assert!(outbox.held_bytes() <= bytes_max);
            }
            outbox.attached();
            while outbox.take().is_some() {
                outbox.confirm(u64::MAX, PUBLISHER);
            }
            prop_assert!(outbox.is_empty());
            let counts = outbox.counts();
            let confirmed = receipts
                .into_iter()
                .filter_map(|receipt| receipt.blocking_recv().unwrap().ok())
                .count() as u64;
            prop_assert_eq!(counts.confirmed, confirmed);
        }
    }
}
