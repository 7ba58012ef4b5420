//! The published events of a client that are not confirmed.
//!
//! An event *waits* until it can be sent. Then it gets its sequence and is *in flight* until it is
//! confirmed. Events in flight are sent again after the attachment was lost. Both together are
//! bounded in bytes. Only waiting events can be shed, so that sequences stay dense: lowest severity
//! first, then oldest first, because the newest describes the current state. An event is rejected
//! if the buffer is full of higher severities.
//!
//! No I/O, no clock.

use crate::ack_interest::AckInterest;
use crate::chunk::{Chunk, InFlightBatch, Size, class};
use crate::completion::Completion;
use crate::error::{PublishError, Unconfirmed};
use bytes::Bytes;
use core::ops::Range;
use ftb_core::{ConfirmLevel, PublisherId, Severity};
use ftb_proto::client::published_len;
use std::collections::VecDeque;
use std::sync::Arc;

/// Encoded events with dense sequences.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OutgoingBatch {
    pub(crate) first_seq: u64,
    /// As [`ftb_proto::client::put_published`] wrote them.
    pub(crate) events: Bytes,
    pub(crate) again: bool,
    /// What they must survive before they are confirmed; `None`: the agent's default.
    pub(crate) confirm: Option<ConfirmLevel>,
}

/// Totals since the client was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutboxCounts {
    pub(crate) accepted: u64,
    pub(crate) confirmed: u64,
    pub(crate) refused: u64,
    pub(crate) shed: [u64; 4],
    /// Events that were not sent when the client ended.
    pub(crate) given_up: [u64; 4],
    /// Events that were sent and not confirmed when the client ended.
    pub(crate) in_doubt: u64,
}

pub(crate) struct Outbox {
    bytes_max: usize,
    in_flight_bytes_max: usize,
    /// In publish order; the last one grows.
    waiting: VecDeque<Chunk>,
    /// Waiting events by severity, lowest first.
    waiting_sizes: [Size; 4],
    /// The sequences are dense; the last is `next_seq - 1`.
    in_flight: VecDeque<InFlightBatch>,
    in_flight_size: Size,
    next_seq: u64,
    /// Number of batches in flight that the current attachment was sent.
    sent_chunks: usize,
    /// Size of the last sent chunk: the next one gets that capacity.
    last_sent: Size,
    counts: OutboxCounts,
    ack_interest: Arc<AckInterest>,
}

impl Outbox {
    /// At most half of the bytes may be in flight: the rest can be shed by severity.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            in_flight_bytes_max: bytes_max / 2,
            waiting: VecDeque::new(),
            waiting_sizes: [Size::default(); 4],
            in_flight: VecDeque::new(),
            in_flight_size: Size::default(),
            next_seq: 1,
            sent_chunks: 0,
            last_sent: Size::default(),
            counts: OutboxCounts::default(),
            ack_interest: Arc::default(),
        }
    }

    /// Tasks that wait for outcomes or for room.
    pub(crate) fn ack_interest(&self) -> &Arc<AckInterest> {
        &self.ack_interest
    }

    pub(crate) fn counts(&self) -> OutboxCounts {
        self.counts
    }

    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_sizes.iter().map(|size| size.cost()).sum()
    }

    pub(crate) fn in_flight_bytes(&self) -> usize {
        self.in_flight_size.cost()
    }

    /// Events that were not sent, by severity.
    pub(crate) fn waiting_events(&self) -> [u64; 4] {
        self.waiting_sizes.map(|size| size.events as u64)
    }

    /// Events that were sent and are not confirmed.
    pub(crate) fn in_flight_events(&self) -> u64 {
        self.in_flight_size.events as u64
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.waiting_bytes() + self.in_flight_bytes()
    }

    /// Whether each accepted event has an outcome.
    pub(crate) fn is_empty(&self) -> bool {
        self.in_flight.is_empty() && self.waiting.is_empty()
    }

    /// Whether events wait.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a full message waits, and an event of this length would begin the next one. Then the
    /// publisher must yield first, so that the full message is sent. Otherwise a message with only
    /// this event would follow it.
    pub(crate) fn has_full_one_before_event(&self, len: usize) -> bool {
        self.waiting.back().is_some_and(|open| !open.takes(published_len(len)))
    }

    /// The same for chunks: whether a message waits that they cannot join.
    pub(crate) fn has_full_one_before(&self, chunks: &[Chunk]) -> bool {
        let join = |open: &Chunk| matches!(chunks, [only] if open.takes_all_of(only));
        self.waiting.back().is_some_and(|open| !join(open))
    }

    /// Whether waiting events must wait for a confirmation, now or soon.
    pub(crate) fn is_crowded(&self) -> bool {
        let in_flight = self.in_flight_bytes();
        let room = self.in_flight_bytes_max.saturating_sub(in_flight);
        let held_up = |chunk: &Chunk| chunk.first_cost() > room;
        in_flight > self.in_flight_bytes_max / 4 || self.waiting.front().is_some_and(held_up)
    }

    /// Whether there is room for this cost without shedding.
    pub(crate) fn has_room_for(&self, cost: usize) -> bool {
        self.held_bytes() + cost <= self.bytes_max
    }

    /// Adds an event of `len` encoded bytes, which `put` writes as
    /// [`ftb_proto::client::put_published`] does. Without room it sheds events of lower severity,
    /// or older ones of the same. `confirm`: what it must survive before it is confirmed. Returns
    /// its completion and its index in it.
    pub(crate) fn push(
        &mut self,
        confirm: Option<ConfirmLevel>,
        severity: Severity,
        len: usize,
        put: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(Arc<Completion>, u32), PublishError> {
        if !self.has_room_for(cost(len)) {
            self.make_room(len, severity)?;
        }
        let bytes = published_len(len);
        let joins = |chunk: &&mut Chunk| chunk.takes(bytes) && chunk.confirm() == confirm;
        let open = self.waiting.back_mut().filter(joins);
        let receipt = if let Some(chunk) = open {
            let place = chunk.push(severity, put);
            (Arc::clone(chunk.completion()), place)
        } else {
            let mut chunk = Chunk::new(
                &self.ack_interest,
                bytes.max(self.last_sent.bytes),
                self.last_sent.events,
            );
            chunk.set_confirm(confirm);
            let place = chunk.push(severity, put);
            let completion = Arc::clone(chunk.completion());
            self.waiting.push_back(chunk);
            (completion, place)
        };
        self.waiting_sizes[class(severity)].add(Size { events: 1, bytes });
        self.counts.accepted += 1;
        Ok(receipt)
    }

    /// Adds encoded events, in chunks of one completion, which may join a waiting chunk. Without
    /// room it sheds waiting events, lowest severity first, then oldest first; these may be among
    /// them. Empties `chunks`; returns their completion and their indices in it.
    pub(crate) fn push_all(&mut self, chunks: &mut Vec<Chunk>) -> (Arc<Completion>, Range<u32>) {
        for chunk in &*chunks {
            self.counts.accepted += chunk.size().events as u64;
            for (class, size) in self.waiting_sizes.iter_mut().enumerate() {
                size.add(chunk.size_of(class));
            }
        }
        let joined = match (self.waiting.back_mut(), &chunks[..]) {
            (Some(open), [only]) if open.takes_all_of(only) => {
                let joined = (Arc::clone(open.completion()), open.append(only));
                chunks.clear();
                Some(joined)
            }
            _ => None,
        };
        let receipts = joined.unwrap_or_else(|| {
            let completion =
                chunks.first().map(|first| Arc::clone(first.completion())).unwrap_or_default();
            let end = chunks.last().map_or(0, |last| last.places().end);
            self.waiting.extend(chunks.drain(..));
            (completion, 0..end)
        });
        while self.held_bytes() > self.bytes_max && self.shed_one() {}
        receipts
    }

    fn make_room(&mut self, len: usize, severity: Severity) -> Result<(), PublishError> {
        let class = class(severity);
        let sheddable: usize = self.waiting_sizes[..=class].iter().map(|size| size.cost()).sum();
        if self.held_bytes() - sheddable + cost(len) > self.bytes_max {
            self.counts.shed[class] += 1;
            return Err(PublishError::Full {
                held_bytes: self.held_bytes(),
                bytes_max: self.bytes_max,
            });
        }
        while !self.has_room_for(cost(len)) && self.shed_one() {}
        Ok(())
    }

    /// Sheds the oldest event of the lowest severity.
    fn shed_one(&mut self) -> bool {
        let Some(class) = self.waiting_sizes.iter().position(|size| size.events > 0) else {
            return false;
        };
        let has_some = |chunk: &Chunk| chunk.size_of(class).events > 0;
        let Some(index) = self.waiting.iter().position(has_some) else { return false };
        let Some(shed) = self.waiting[index].shed_oldest(class) else { return false };
        self.waiting_sizes[class].take(shed);
        self.counts.shed[class] += 1;
        if self.waiting[index].size().events == 0
            && let Some(gone) = self.waiting.remove(index)
            && let Some(before) = index.checked_sub(1)
        {
            // New events may join this chunk: not at the indices of the shed ones.
            self.waiting[before].skip_places_of(&gone);
        }
        true
    }

    /// A new attachment was sent nothing yet.
    pub(crate) fn attached(&mut self) {
        self.sent_chunks = 0;
    }

    /// Whether the next batch was sent over an earlier attachment.
    pub(crate) fn sends_again(&self) -> bool {
        self.sent_chunks < self.in_flight.len()
    }

    /// The next batch for the agent: first those that an earlier attachment was sent.
    pub(crate) fn take(&mut self) -> Option<OutgoingBatch> {
        if let Some(sent) = self.in_flight.get(self.sent_chunks) {
            self.sent_chunks += 1;
            let first_seq = sent.next_seq();
            let (events, confirm) = (sent.events(), sent.confirm());
            return Some(OutgoingBatch { first_seq, events, again: true, confirm });
        }
        let room = self.in_flight_bytes_max.saturating_sub(self.in_flight_bytes());
        let alone = self.in_flight.is_empty();
        // Called at each publication: do not split a chunk that cannot be sent.
        if !alone && self.waiting.front()?.first_cost() > room {
            return None;
        }
        let mut chunk = self.waiting.pop_front()?;
        for (class, size) in self.waiting_sizes.iter_mut().enumerate() {
            size.take(chunk.size_of(class));
        }
        if let Some(rest) = chunk.split_where_full(room, alone) {
            for (class, size) in self.waiting_sizes.iter_mut().enumerate() {
                size.add(rest.size_of(class));
            }
            self.waiting.push_front(rest);
        }
        let sent = chunk.go(self.next_seq)?;
        let (first_seq, events, confirm) = (self.next_seq, sent.events(), sent.confirm());
        let batch = OutgoingBatch { first_seq, events, again: false, confirm };
        self.last_sent = sent.size();
        self.in_flight_size.add(self.last_sent);
        self.next_seq = sent.end_seq();
        self.in_flight.push_back(sent);
        self.sent_chunks = self.in_flight.len();
        Some(batch)
    }

    /// Everything up to `seq` is confirmed; `level`: the lowest of what is to be on disk.
    pub(crate) fn confirm(
        &mut self,
        seq: u64,
        level: Option<ConfirmLevel>,
        publisher: PublisherId,
    ) {
        let below = seq.saturating_add(1).min(self.next_seq);
        while let Some(sent) = self.in_flight.front_mut() {
            let (ended, confirmed) = sent.settle(below, level, publisher);
            self.in_flight_size.take(ended);
            self.counts.confirmed += confirmed as u64;
            if !sent.is_over() {
                break;
            }
            self.in_flight.pop_front();
            self.sent_chunks = self.sent_chunks.saturating_sub(1);
        }
    }

    /// The agent refused these: see [`InFlightBatch::refuse`].
    pub(crate) fn refuse(
        &mut self,
        first: u64,
        last: u64,
        why: Unconfirmed,
        publisher: PublisherId,
    ) {
        for sent in &mut self.in_flight {
            let from = first.max(sent.next_seq());
            for seq in from..last.saturating_add(1).min(sent.end_seq()) {
                self.counts.refused += u64::from(sent.refuse(seq, why.clone()));
            }
        }
        // The oldest may be among them.
        self.confirm(0, None, publisher);
    }

    /// Drops everything: receipts resolve with [`Unconfirmed::Closed`].
    pub(crate) fn abandon(&mut self) {
        let waiting = self.waiting_events();
        self.counts.given_up.iter_mut().zip(waiting).for_each(|(sum, more)| *sum += more);
        self.counts.in_doubt += self.in_flight_events();
        self.waiting.drain(..).for_each(|chunk| chunk.close());
        self.waiting_sizes = [Size::default(); 4];
        // Their sequences are not used again.
        self.in_flight.drain(..).for_each(|sent| sent.close());
        self.in_flight_size = Size::default();
        self.sent_chunks = 0;
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// Cost of an event of this encoded length, against the limit.
pub(crate) fn cost(len: usize) -> usize {
    Size { events: 1, bytes: published_len(len) }.cost()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::completion::Outcome;
    use ftb_core::{Event, EventRef};
    use ftb_proto::client::{FromClient, put_publish, put_published};
    use ftb_proto::event::{decode_event, event_len};
    use proptest::prelude::*;

    const PUBLISHER: PublisherId = PublisherId { account: 1, token: 2 };

    /// Receipt of an event with that payload.
    struct Receipt(Arc<Completion>, u32);

    impl Receipt {
        fn outcome(&self) -> Option<Outcome> {
            self.0.outcome(self.1)
        }
    }

    fn event(payload: &[u8], severity: Severity) -> Event {
        let mut event = Event::new("ftb.test".parse().unwrap(), "X".parse().unwrap());
        event.severity = severity;
        event.payload = Bytes::copy_from_slice(payload);
        event
    }

    fn push(outbox: &mut Outbox, text: &str, severity: Severity) -> Result<Receipt, PublishError> {
        push_bytes(outbox, text.as_bytes(), severity)
    }

    fn push_bytes(
        outbox: &mut Outbox,
        payload: &[u8],
        severity: Severity,
    ) -> Result<Receipt, PublishError> {
        let event = event(payload, severity);
        let event = EventRef::from(&event);
        let len = event_len(&event);
        let put = |bytes: &mut Vec<u8>| put_published(&event, len, bytes);
        let (completion, place) = outbox.push(None, event.severity, len, put)?;
        Ok(Receipt(completion, place))
    }

    /// Events of a batch with those payloads.
    fn batch<'a>(said: impl IntoIterator<Item = (&'a [u8], Severity)>) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        for (payload, severity) in said {
            let event = event(payload, severity);
            let event = EventRef::from(&event);
            let len = event_len(&event);
            let put = |bytes: &mut Vec<u8>| put_published(&event, len, bytes);
            let ack_interest = Arc::default();
            let size = Size::default();
            Chunk::open(&mut chunks, &ack_interest, published_len(len), size).push(severity, put);
        }
        chunks
    }

    fn push_batch<'a>(
        outbox: &mut Outbox,
        said: impl IntoIterator<Item = (&'a [u8], Severity)>,
    ) -> Vec<Receipt> {
        let (completion, places) = outbox.push_all(&mut batch(said));
        places.map(|place| Receipt(Arc::clone(&completion), place)).collect()
    }

    /// Cost of an event with a payload of this size.
    fn cost_of(payload: usize) -> usize {
        cost(event_len(&EventRef::from(&event(&vec![0; payload], Severity::Info))))
    }

    fn denied() -> Unconfirmed {
        Unconfirmed::Refused { code: "denied".to_owned(), message: "no".to_owned() }
    }

    fn events(batch: &OutgoingBatch) -> Vec<Bytes> {
        let mut bytes = Vec::new();
        put_publish(batch.first_seq, batch.again, batch.confirm, batch.events.len(), &mut bytes);
        bytes.extend_from_slice(&batch.events);
        match FromClient::decode(bytes.into()).unwrap() {
            FromClient::Publish { first_seq, events, again, .. } => {
                assert_eq!((first_seq, again), (batch.first_seq, batch.again));
                events
            }
            other => panic!("{other:?} publishes nothing"),
        }
    }

    fn texts(batch: &OutgoingBatch) -> Vec<String> {
        let payload = |bytes: Bytes| decode_event(&bytes).unwrap().payload;
        let text = |bytes| String::from_utf8(payload(bytes).to_vec()).unwrap();
        events(batch).into_iter().map(text).collect()
    }

    #[test]
    fn what_is_handed_over_again_keeps_its_numbers() {
        let mut outbox = Outbox::new(1 << 20);
        let first = push(&mut outbox, "a", Severity::Info).unwrap();
        let second = push(&mut outbox, "b", Severity::Fatal).unwrap();
        let batch = outbox.take().unwrap();
        assert_eq!(
            (batch.first_seq, batch.again, texts(&batch)),
            (1, false, vec!["a".to_owned(), "b".to_owned()])
        );
        assert_eq!(outbox.take(), None);
        outbox.confirm(1, None, PUBLISHER);
        let id = first.outcome().unwrap().unwrap();
        assert_eq!(id.seq, 1.into());
        push(&mut outbox, "c", Severity::Info).unwrap();
        outbox.attached();
        let again = outbox.take().unwrap();
        assert_eq!((again.first_seq, again.again, texts(&again)), (2, true, vec!["b".to_owned()]));
        let new = outbox.take().unwrap();
        assert_eq!((new.first_seq, new.again, texts(&new)), (3, false, vec!["c".to_owned()]));
        outbox.confirm(u64::MAX, None, PUBLISHER);
        assert!(second.outcome().unwrap().is_ok());
        assert!(outbox.is_empty());
        assert_eq!(outbox.held_bytes(), 0);
    }

    #[test]
    fn the_mildest_and_oldest_is_shed_first_and_nothing_for_a_milder_one() {
        let mut outbox = Outbox::new(2 * cost_of(1));
        let warning = push(&mut outbox, "w", Severity::Warning).unwrap();
        let info = push(&mut outbox, "i", Severity::Info).unwrap();
        let newer = push(&mut outbox, "j", Severity::Info).unwrap();
        assert_eq!(info.outcome().unwrap(), Err(Unconfirmed::Shed));
        let fatal = push(&mut outbox, "f", Severity::Fatal).unwrap();
        assert_eq!(newer.outcome().unwrap(), Err(Unconfirmed::Shed));
        assert!(matches!(push(&mut outbox, "k", Severity::Info), Err(PublishError::Full { .. })));
        assert_eq!(outbox.counts().shed, [3, 0, 0, 0]);
        // Half of the buffer may be in flight, but never less than one event.
        assert_eq!(texts(&outbox.take().unwrap()), ["w"]);
        assert_eq!(outbox.take(), None);
        outbox.confirm(1, None, PUBLISHER);
        assert_eq!(texts(&outbox.take().unwrap()), ["f"]);
        outbox.confirm(2, None, PUBLISHER);
        assert!(warning.outcome().unwrap().is_ok());
        assert!(fatal.outcome().unwrap().is_ok());
    }

    /// A chunk of a batch that is shed as a whole leaves the one before it to be filled.
    #[test]
    fn the_room_of_shed_events_stays_free() {
        let (worse, mild) = ([7; 40_000], [8; 30_000]);
        let cost = cost_of(worse.len()) + cost_of(mild.len());
        let mut outbox = Outbox::new(cost);
        let said = [(&worse[..], Severity::Error), (&mild[..], Severity::Info)];
        assert_eq!(batch(said).len(), 2);
        let receipts = push_batch(&mut outbox, said);
        let fatal = push(&mut outbox, "f", Severity::Fatal).unwrap();
        let small = [(&b"g"[..], Severity::Error)];
        let later = push_batch(&mut outbox, small);
        assert_eq!(receipts[1].outcome(), Some(Err(Unconfirmed::Shed)));
        assert_eq!(fatal.outcome(), None, "it waits");
        while outbox.take().is_some() {
            outbox.confirm(outbox.next_seq - 1, None, PUBLISHER);
        }
        let numbers =
            [&receipts[0], &fatal, &later[0]].map(|r| r.outcome().unwrap().unwrap().seq.get());
        assert_eq!(numbers, [1, 2, 3]);
    }

    #[test]
    fn a_refused_event_ends_alone_and_leaves_no_hole() {
        let mut outbox = Outbox::new(1 << 20);
        let mut receipts: Vec<_> = ["a", "b", "c"]
            .into_iter()
            .map(|text| push(&mut outbox, text, Severity::Info).unwrap())
            .collect();
        outbox.take().unwrap();
        outbox.refuse(2, 2, denied(), PUBLISHER);
        outbox.attached();
        assert_eq!(texts(&outbox.take().unwrap()), ["a", "b", "c"]);
        outbox.confirm(1, None, PUBLISHER);
        outbox.refuse(3, 3, denied(), PUBLISHER);
        assert!(outbox.is_empty());
        let last = receipts.pop().unwrap().outcome().unwrap();
        assert!(matches!(last, Err(Unconfirmed::Refused { .. })));
        assert_eq!(outbox.counts().refused, 2);
        outbox.refuse(77, 99, denied(), PUBLISHER);
    }

    #[test]
    fn a_small_batch_joins_what_waits_and_a_large_one_goes_as_it_is() {
        let mut outbox = Outbox::new(1 << 21);
        let alone = push(&mut outbox, "a", Severity::Info).unwrap();
        let small = [(&b"b"[..], Severity::Info), (b"c", Severity::Fatal)];
        assert!(!outbox.has_full_one_before(&batch(small)));
        let small = push_batch(&mut outbox, small);
        assert_eq!((small.len(), outbox.counts().accepted), (2, 3));
        let payload = [7; 100];
        let large = || vec![(&payload[..], Severity::Error); 2000];
        assert!(outbox.has_full_one_before(&batch(large())));
        let held = outbox.held_bytes() + 2000 * cost_of(100);
        let large = push_batch(&mut outbox, large());
        assert_eq!(outbox.held_bytes(), held);
        let late = push(&mut outbox, "d", Severity::Info).unwrap();
        let first = outbox.take().unwrap();
        assert_eq!(texts(&first), ["a", "b", "c"]);
        let (mut next, mut messages) = (4, 0);
        while let Some(message) = outbox.take() {
            assert_eq!(message.first_seq, next);
            assert!(message.events.len() <= ftb_core::limits::CHUNK_BYTES_TARGET);
            next += events(&message).len() as u64;
            messages += 1;
        }
        assert_eq!((next, outbox.in_flight.len()), (2005, messages + 1));
        assert!(messages > 2, "{messages}");
        outbox.confirm(u64::MAX, None, PUBLISHER);
        let seqs = [alone].into_iter().chain(small).chain(large).chain([late]);
        let seqs: Vec<u64> =
            seqs.map(|receipt| receipt.outcome().unwrap().unwrap().seq.get()).collect();
        assert_eq!(seqs, (1..=2004).collect::<Vec<u64>>());
        assert!(outbox.is_empty() && outbox.held_bytes() == 0);
        assert!(push_batch(&mut outbox, []).is_empty() && outbox.is_empty());
    }

    #[test]
    fn where_a_batch_finds_no_room_the_mildest_of_all_are_shed() {
        let mut outbox = Outbox::new(3 * cost_of(1));
        let warning = push(&mut outbox, "w", Severity::Warning).unwrap();
        let info = push(&mut outbox, "i", Severity::Info).unwrap();
        let said = [(&b"j"[..], Severity::Info), (b"f", Severity::Fatal), (b"k", Severity::Info)];
        let receipts = push_batch(&mut outbox, said);
        let is_shed = |receipt: &Receipt| receipt.outcome() == Some(Err(Unconfirmed::Shed));
        assert!(is_shed(&info) && !is_shed(&warning));
        assert_eq!(receipts.iter().map(is_shed).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!((outbox.counts().accepted, outbox.counts().shed), (5, [2, 0, 0, 0]));
        assert_eq!(outbox.held_bytes(), 3 * cost_of(1));
    }

    proptest! {
        /// Whatever happens, numbers handed to one attachment follow each other, the bound holds,
        /// and every receipt comes to an end exactly as counted.
        #[test]
        fn numbers_stay_dense_and_bytes_bounded(
            ops in proptest::collection::vec((0..7_u8, 0..4_usize, 0..40_usize), 1..200),
        ) {
            let bytes_max = 1500;
            let mut outbox = Outbox::new(bytes_max);
            let mut receipts = Vec::new();
            let mut expected: Option<u64> = None;
            for (op, class, number) in ops {
                match op {
                    0..=2 => {
                        let payload = vec![0; number];
                        receipts.push(push_bytes(&mut outbox, &payload, Severity::ALL[class]));
                    }
                    6 => {
                        let payload = vec![0; number];
                        let severity = |place| Severity::ALL[(class + place) % 4];
                        let said = (0..class * 3).map(|place| (&payload[..], severity(place)));
                        receipts.extend(push_batch(&mut outbox, said).into_iter().map(Ok));
                    }
                    3 => {
                        if let Some(batch) = outbox.take() {
                            if let Some(expected) = expected {
                                prop_assert_eq!(batch.first_seq, expected);
                            }
                            expected = Some(batch.first_seq + events(&batch).len() as u64);
                        }
                    }
                    4 => {
                        outbox.confirm(number as u64, None, PUBLISHER);
                        // What an earlier attachment was handed may be confirmed before it is
                        // handed over again: then it is not.
                        let below = (number as u64 + 1).min(outbox.next_seq);
                        expected = expected.map(|expected: u64| expected.max(below));
                    }
                    _ => {
                        outbox.attached();
                        expected = None;
                    }
                }
                prop_assert!(outbox.held_bytes() <= bytes_max);
            }
            outbox.attached();
            while outbox.take().is_some() {
                outbox.confirm(u64::MAX, None, PUBLISHER);
            }
            prop_assert!(outbox.is_empty());
            let counts = outbox.counts();
            let confirmed = receipts
                .into_iter()
                .flatten()
                .filter_map(|receipt| receipt.outcome().unwrap().ok())
                .count() as u64;
            prop_assert_eq!(counts.confirmed, confirmed);
        }
    }
}
