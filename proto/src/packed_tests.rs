//! Events that are told by what is their own, on every way that they take: they are what they are alone.
#![allow(clippy::unwrap_used)]

use crate::client::{FromAgent, Outgoing};
use crate::event::{Stamps, decode_sealed, encode_event, seal, seal_batch, unseal};
use crate::link;
use crate::wire::Outbound as _;
use bytes::Bytes;
use ftb_core::frame::{Content, Down, Frame, Item, UpBatch, UpItem};
use ftb_core::ident::OriginId;
use ftb_core::node::api::{SubscriptionId, ToClient};
use ftb_core::{Epoch, Event, EventId, Position, PublisherId, Run, Sealed, Tag};
use proptest::prelude::*;

const EPOCH: Epoch = Epoch { number: 3, root: OriginId(9) };

/// What a publisher says: runs of events of one length, with whatever times.
fn said() -> impl Strategy<Value = Vec<(u8, Vec<u8>, u64)>> {
    let event = |(kind, payload): (u8, usize)| {
        let payload = proptest::collection::vec(any::<u8>(), payload);
        (Just(kind), payload, any::<u64>())
    };
    let alike = (0..2_u8, 0..200_usize, 1..6_usize).prop_flat_map(move |(kind, payload, count)| {
        proptest::collection::vec(Just((kind, payload)).prop_flat_map(event), count)
    });
    proptest::collection::vec(alike, 1..5).prop_map(|parts| parts.concat())
}

/// The same as a publisher encodes it.
fn encoded(said: &[(u8, Vec<u8>, u64)]) -> Vec<Bytes> {
    let event = |(kind, payload, time_ns): &(u8, Vec<u8>, u64)| {
        let mut event = Event::new("ftb.test".parse().unwrap(), "X".parse().unwrap());
        event.time_ns = *time_ns;
        event.client_name = "some".to_owned();
        event.payload = payload.clone().into();
        if *kind > 0 {
            event.tags = vec![Tag { key: "fan".to_owned(), value: "7".to_owned() }];
        }
        encode_event(&event)
    };
    said.iter().map(event).collect()
}

fn stamps(seq: u64) -> Stamps<'static> {
    let publisher = PublisherId { account: 1, token: 2 };
    Stamps { id: EventId { publisher, seq }, host: "node17", uid: 5, pid: 7, republished: false }
}

/// Sealed as a message, and one by one.
fn sealed(events: &[Bytes], first: u64) -> (Run, Vec<Sealed>) {
    let slices = events.iter().map(|event| &event[..]);
    let batch = seal_batch(&stamps(first), slices, 300, |_| true).unwrap();
    assert_eq!(batch.refused, []);
    let alone = (first..).zip(events).map(|(seq, event)| seal(&stamps(seq), event, 300).unwrap());
    (batch.run.unwrap(), alone.collect())
}

fn up(run: Run) -> Frame {
    let items = vec![UpItem::Events(run)];
    Frame::Up(UpBatch { origin: OriginId(5), run: 2, base: 3, first: 4, items })
}

/// All events of a frame as one value each.
fn events_of(frame: &Frame) -> Vec<Run> {
    let of_item = |item: &Item| match &item.content {
        Content::Events(run) => Some(run.clone()),
        Content::Gap(_) => None,
    };
    match frame {
        Frame::Down(down) => down.items.iter().filter_map(of_item).collect(),
        Frame::Up(batch) => {
            let of_item = |item: &UpItem| match item {
                UpItem::Events(run) => Some(run.clone()),
                _ => None,
            };
            batch.items.iter().filter_map(of_item).collect()
        }
        _ => Vec::new(),
    }
}

proptest! {
    /// Sealed, sent up, sent down, cut anywhere on the way, and delivered.
    #[test]
    fn what_is_packed_is_what_it_is_alone(
        said in said(),
        first in prop_oneof![1..300_u64, Just(16_380), Just((1 << 35) - 3)],
        cut in any::<[prop::sample::Index; 2]>(),
    ) {
        let events = encoded(&said);
        let (run, alone) = sealed(&events, first);
        prop_assert!(run.iter().eq(alone.iter().map(Sealed::as_ref)));
        let mut ends = cut.map(|cut| cut.index(events.len() + 1));
        ends.sort_unstable();
        let [from, to] = ends;
        let Some(part) = run.slice(from..to) else { return Ok(()) };
        // Up, and of that a part down.
        let Frame::Up(batch) = link::decode(up(run.clone()).to_bytes()).unwrap() else {
            return Err(TestCaseError::fail("no batch"));
        };
        let [UpItem::Events(arrived)] = &batch.items[..] else {
            return Err(TestCaseError::fail("not one item"));
        };
        prop_assert_eq!(arrived, &run);
        let arrived = arrived.slice(from..to).unwrap();
        prop_assert_eq!(&arrived, &part);
        prop_assert_eq!(arrived.len(), part.len());
        prop_assert!(arrived.stretches().eq(part.stretches()));
        let item = Item { index: 40, content: Content::Events(arrived.clone()) };
        let down = Frame::Down(Down { epoch: EPOCH, items: vec![item], covered: 99 });
        prop_assert_eq!(link::decode(down.clone().to_bytes()), Ok(down));
        // And to a client.
        let items = vec![(40, arrived)];
        let deliver = ToClient::Deliver { subscription: SubscriptionId(1), epoch: EPOCH, items };
        let FromAgent::Deliver { events: delivered, .. } =
            FromAgent::decode(Outgoing::Core(deliver).to_bytes()).unwrap()
        else {
            return Err(TestCaseError::fail("no delivery"));
        };
        prop_assert_eq!(delivered.len(), to - from);
        for (place, (view, alone)) in delivered.iter().zip(&alone[from..]).enumerate() {
            let position = Position { epoch: EPOCH, index: 40 + place as u64 };
            let expected = unseal(position, alone).unwrap();
            prop_assert_eq!(view.payload(), &expected.event.payload);
            prop_assert_eq!(view.tags().count(), expected.event.tags.len());
            prop_assert_eq!((view.id(), view.time_ns()), (alone.id(), alone.head().time_ns));
            prop_assert_eq!(view.to_received(), expected);
        }
    }

    /// Whatever bytes of a frame are other ones: every event that is taken is one that would be taken alone.
    #[test]
    fn what_is_taken_of_a_damaged_frame_would_be_taken_alone(
        said in said(), first in 1..300_u64,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..3),
        truncated in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let (run, _) = sealed(&encoded(&said), first);
        let item = Item { index: 40, content: Content::Events(run.clone()) };
        let down = Frame::Down(Down { epoch: EPOCH, items: vec![item], covered: 99 });
        for frame in [up(run), down] {
            let mut bytes = frame.to_bytes().to_vec();
            for (at, byte) in &damage {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            if let Some(end) = &truncated {
                bytes.truncate(end.index(bytes.len()));
            }
            let Ok(frame) = link::decode(bytes.into()) else { continue };
            for event in events_of(&frame).iter().flat_map(Run::iter) {
                let alone = decode_sealed(event.to_sealed().bytes().clone());
                prop_assert_eq!(alone.as_ref(), Ok(&event.to_sealed()));
            }
        }
    }
}

/// The number takes a byte more and the length of the content one less: the publisher's bytes lie where
/// those of the event before lie, the host does not.
#[test]
fn a_text_that_lies_elsewhere_is_found_there() {
    let said: Vec<_> = [100, 100, 46].map(|len| (0, vec![7; len], 1)).to_vec();
    let (run, alone) = sealed(&encoded(&said), (1 << 35) - 2);
    assert!(run.iter().eq(alone.iter().map(Sealed::as_ref)));
    assert!(run.iter().all(|event| event.host() == "node17"));
}

/// A delivery of rows as large as they get, and what a row has of its own is small.
#[test]
fn a_row_is_told_once() {
    let said: Vec<_> = (0..256).map(|place| (1, vec![7; 100], place)).collect();
    let events = encoded(&said);
    let (run, _) = sealed(&events, 1000);
    let portions: Vec<_> = run.portions().collect();
    // The first is the first of its kind, and the next has its shape.
    assert_eq!(portions.len(), 2, "{portions:?}");
    let bytes = up(run.clone()).to_bytes();
    assert!(bytes.len() < 256 * 110, "{} bytes of {}", bytes.len(), run.len());
}

/// Few bytes must not stand for many: a row of large events without payloads.
#[test]
fn few_bytes_do_not_stand_for_many() {
    let mut event = Event::new("ftb.test".parse().unwrap(), "X".parse().unwrap());
    event.time_ns = 1;
    event.tags =
        (0..30).map(|place| Tag { key: format!("key{place}"), value: "v".repeat(1000) }).collect();
    event.payload = Bytes::from_static(b"x");
    let event = encode_event(&event);
    let slices = (0..900).map(|_| &event[..]).collect::<Vec<_>>();
    let batch = seal_batch(&stamps(1000), slices, 300, |_| true).unwrap();
    let run = batch.run.unwrap();
    let bytes = up(run.clone()).to_bytes();
    assert!(bytes.len() < 100_000, "{}", bytes.len());
    assert!(link::decode(bytes).unwrap_err().to_string().contains("packed"));
    let few = up(run.slice(0..100).unwrap());
    assert_eq!(link::decode(few.clone().to_bytes()), Ok(few));
}
