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
use prost::Message as _;

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

/// To a client, from index 40 on.
fn delivery(run: Run) -> Outgoing {
    let items = vec![(40, run)];
    Outgoing::Core(ToClient::Deliver { subscription: SubscriptionId(1), epoch: EPOCH, items })
}

/// The events of a frame.
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
        let FromAgent::Deliver { events: delivered, .. } =
            FromAgent::decode(delivery(arrived).to_bytes()).unwrap()
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
            for run in events_of(&frame) {
                for event in run.iter() {
                    let alone = decode_sealed(event.to_sealed().bytes().clone());
                    prop_assert_eq!(alone.as_ref(), Ok(&event.to_sealed()));
                }
                // What an agent has taken its clients take.
                let count = run.count();
                let FromAgent::Deliver { events, .. } =
                    FromAgent::decode(delivery(run.clone()).to_bytes()).unwrap()
                else {
                    return Err(TestCaseError::fail("no delivery"));
                };
                prop_assert_eq!(events.len(), count);
                for (view, alone) in events.iter().zip(run.iter()) {
                    let alone = unseal(view.position(), &alone.to_sealed()).unwrap();
                    prop_assert_eq!(view.to_received(), alone);
                }
            }
        }
    }

    /// The same of a delivery.
    #[test]
    fn a_damaged_delivery_is_refused_or_read_but_never_panics(
        said in said(), first in 1..300_u64,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..3),
    ) {
        let (run, _) = sealed(&encoded(&said), first);
        let mut bytes = delivery(run).to_bytes().to_vec();
        for (at, byte) in &damage {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        let Ok(FromAgent::Deliver { events, .. }) = FromAgent::decode(bytes.into()) else {
            return Ok(());
        };
        for view in events.iter() {
            prop_assert_eq!(view.to_received().event.payload, view.payload());
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

/// Of 30 KB, nearly all of it before its payload.
fn large_event() -> Bytes {
    let mut event = Event::new("ftb.test".parse().unwrap(), "X".parse().unwrap());
    event.time_ns = 1;
    event.tags =
        (0..30).map(|place| Tag { key: format!("key{place}"), value: "v".repeat(1000) }).collect();
    event.payload = Bytes::from_static(b"x");
    encode_event(&event)
}

/// Few bytes must not stand for many: rows of large events with small payloads.
#[test]
fn few_bytes_do_not_stand_for_many() {
    let events: Vec<Bytes> = (0..900).map(|_| large_event()).collect();
    let (run, _) = sealed(&events, 1000);
    // Two of which none is too large.
    let parts = [run.slice(0..100).unwrap(), run.slice(100..200).unwrap()];
    let [one, both] = [1, 2].map(|count| {
        let items = parts[..count].iter().map(|run| UpItem::Events(run.clone())).collect();
        Frame::Up(UpBatch { origin: OriginId(5), run: 2, base: 3, first: 4, items })
    });
    assert_eq!(events_of(&link::decode(one.to_bytes()).unwrap()), parts[..1]);
    let bytes = both.to_bytes();
    assert!(bytes.len() < 200_000, "{}", bytes.len());
    assert!(link::decode(bytes).unwrap_err().to_string().contains("each whole"));
}

/// A frame of events that came up, as bytes: fields of its one item.
fn frame_of(fields: &[(u8, &[u8])]) -> Bytes {
    use prost::encoding::encode_varint;
    let put = |bytes: &mut Vec<u8>, number: u8, content: &[u8]| {
        bytes.push(number << 3 | 2);
        encode_varint(content.len() as u64, bytes);
        bytes.extend_from_slice(content);
    };
    let (mut item, mut batch, mut frame) = (Vec::new(), vec![16, 2, 24, 3, 32, 4], Vec::new());
    fields.iter().for_each(|(number, content)| put(&mut item, *number, content));
    put(&mut batch, 5, &item);
    put(&mut frame, 9, &batch);
    frame.into()
}

#[test]
fn what_cannot_be_packed_behind_an_event_is_refused_on_a_link() {
    let said = |payload: usize| vec![(0, vec![7; payload], 5)];
    let one = |seq, payload| sealed(&encoded(&said(payload)), seq).1.remove(0).into_bytes();
    let (known, own) = (one(130, 5), [&8_u64.to_le_bytes()[..], b"other"].concat());
    let taken = link::decode(frame_of(&[(2, &known), (6, &own.repeat(2))])).unwrap();
    assert_eq!(events_of(&taken)[0].iter().map(|event| event.time_ns()).sum::<u64>(), 5 + 8 + 8);
    let mut fold = crate::v1::Sealed::decode(known.clone()).unwrap();
    fold.folded = Some(crate::v1::Folded { covers: 0, count: 3, first_ns: 1, last_ns: 2 });
    let fold = fold.encode_to_vec();
    assert!(link::decode(frame_of(&[(2, &fold)])).is_ok(), "it is good alone");
    let many = own.repeat(ftb_core::limits::BATCH_EVENTS_MAX);
    for fields in [
        &[(6, &own[..])][..],
        &[(2, &known), (6, &own), (6, &own)],
        &[(2, &known), (6, &own), (2, &known)],
        &[(2, &known), (6, &own[1..])],
        &[(2, &known), (6, &[])],
        &[(2, &known), (6, &many)],
        &[(2, &one(127, 5)), (6, &own)],
        &[(2, &one(u64::MAX - 1, 5)), (6, &own.repeat(2))],
        &[(2, &one(130, 0)), (6, &8_u64.to_le_bytes())],
        &[(2, &fold), (6, &own)],
    ] {
        let refused = link::decode(frame_of(fields));
        assert!(refused.is_err(), "{refused:?}");
    }
}
