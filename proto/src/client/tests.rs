#![allow(clippy::unwrap_used)]

use super::*;
use crate::event::{Stamps, decode_sealed, encode_event, event_len, seal, unseal};
use crate::wire::Outbound as _;
use ftb_core::node::api::GapReason;
use ftb_core::{
    ConfirmLevel, Epoch, Event, EventId, EventRef, PublisherId, Sealed, Severity, Spaces,
};
use proptest::prelude::*;

fn position() -> impl Strategy<Value = Position> {
    any::<[u64; 3]>().prop_map(|[number, root, index]| Position {
        epoch: Epoch { number, root: OriginId(root) },
        index: index.into(),
    })
}

fn sealed(seq: u64) -> Sealed {
    let event = Event::new("ftb.test".parse().unwrap(), "X".parse().unwrap());
    let publisher = PublisherId { account: 1, token: 2 };
    let stamps = Stamps {
        id: EventId { publisher, seq: seq.into() },
        host: "node1",
        uid: 0,
        pid: 1,
        republished: false,
    };
    seal(&stamps, &encode_event(&event), 0).unwrap()
}

/// All levels, and none.
const LEVELS: [Option<ConfirmLevel>; 4] =
    [None, Some(ConfirmLevel::Memory), Some(ConfirmLevel::OneDisk), Some(ConfirmLevel::Disk)];

fn decode(message: v1::ToClient) -> Result<FromAgent, ClientWireError> {
    FromAgent::decode(message.encode_to_vec().into())
}

proptest! {
    /// The bytes that a client collects are the message that prost would write.
    #[test]
    fn a_publish_message_can_be_written_event_by_event(
        payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..9),
        first_seq in 1..limits::PUBLISHER_SEQ_MAX - 9, again in any::<bool>(), level in 0..4_usize,
    ) {
        let confirm = LEVELS[level];
        let mut event = Event::new("ftb.test".parse().unwrap(), "X".parse().unwrap());
        let (mut body, mut events) = (Vec::new(), Vec::new());
        for payload in payloads {
            event.payload = payload.into();
            let event_ref = EventRef::from(&event);
            put_published(&event_ref, event_len(&event_ref), &mut body);
            events.push(encode_event(&event));
        }
        let mut bytes = Vec::new();
        put_publish(first_seq, again, confirm, body.len(), &mut bytes);
        bytes.extend_from_slice(&body);
        let expected = FromClient::Publish { first_seq, events, again, confirm };
        prop_assert_eq!(FromClient::decode(bytes.into()), Ok(expected));
    }

    #[test]
    fn random_bytes_of_an_agent_never_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 1..200),
    ) {
        let _ = FromAgent::decode(bytes.clone().into());
        bytes[0] = 0x2a;
        let _ = FromAgent::decode(bytes.into());
    }

    /// A damaged delivery is refused, or all its events can be read.
    #[test]
    fn what_a_damaged_delivery_leaves_can_be_read(
        at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let items = (1..9).map(|seq| (seq.into(), sealed(seq).into())).collect();
        let epoch = Epoch { number: 1, root: OriginId(2) };
        let deliver = ToClient::Deliver { subscription: SubscriptionId(3), epoch, items };
        let mut bytes = encode_to_client(deliver).encode_to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(FromAgent::Deliver { events, .. }) = FromAgent::decode(bytes.into()) {
            for view in events.iter() {
                let received = view.to_received();
                prop_assert_eq!(received.event.space.as_str(), view.space());
                prop_assert_eq!(received.event.name.as_str(), view.name());
                prop_assert_eq!(&received.event.payload, view.payload());
                prop_assert_eq!(received.event.kind, view.kind());
                prop_assert_eq!(&received.host, view.host());
            }
        }
    }

    #[test]
    fn an_event_in_a_delivery_is_what_it_is_alone(
        events in proptest::collection::vec((0..2_u64, 0..200_usize, any::<u64>()), 1..12),
        damage in proptest::option::of((any::<[prop::sample::Index; 2]>(), any::<u8>())),
        first_seq in prop_oneof![1..200_u64, Just(u64::MAX - 20)],
    ) {
        let mut sealed: Vec<Vec<u8>> = Vec::new();
        for (seq, (token, payload, time_ns)) in (first_seq..).zip(events) {
            let mut event = Event::new("ftb.test".parse().unwrap(), "X".parse().unwrap());
            event.time_ns = time_ns;
            event.client_name = "some".to_owned();
            event.payload = vec![7; payload].into();
            let publisher = PublisherId { account: 1, token };
            let id = EventId { publisher, seq: seq.into() };
            let stamps = Stamps { id, host: "node1", uid: 5, pid: 1, republished: false };
            let bytes = encode_event(&event);
            sealed.push(seal(&stamps, &bytes, 300).unwrap().bytes().to_vec());
        }
        if let Some(([which, at], byte)) = damage {
            let which = which.index(sealed.len());
            let at = at.index(sealed[which].len());
            sealed[which][at] = byte;
        }
        let bytes = sealed.iter().map(|bytes| bytes.clone().into()).collect();
        let items = vec![v1::Item { index: 1, sealed: bytes }];
        let deliver = v1::Deliver { items, ..v1::Deliver::default() };
        let decoded = decode(to_client(ClientMessage::Deliver(deliver)));
        let alone: Vec<_> = sealed.into_iter().map(|bytes| decode_sealed(bytes.into())).collect();
        prop_assert_eq!(decoded.is_ok(), alone.iter().all(Result::is_ok));
        if let Ok(FromAgent::Deliver { events, .. }) = decoded {
            for (view, alone) in events.iter().zip(&alone) {
                let alone = unseal(view.position(), alone.as_ref().unwrap());
                prop_assert_eq!(Ok(view.to_received()), alone);
            }
        }
    }

    #[test]
    fn what_a_client_says_arrives(
        text in "\\PC{0,15}", seq in 1..limits::PUBLISHER_SEQ_MAX - 9, number in any::<u32>(),
        after in position(),
    ) {
        let subscription = SubscriptionId(number);
        let mut trail = Trail::at(after);
        trail.note(Position { epoch: Epoch { number: seq, root: OriginId(7) }, index: seq.into() });
        let behind = match trail.places() {
            [only] => Start::After(*only),
            _ => Start::AfterTrail(trail),
        };
        let starts = [Start::Now, Start::After(after), behind, Start::SinceNs(seq)];
        let (client_name, job_id) = (text.clone(), text.clone());
        let versions = Versions { min: number / 2, max: number };
        let features = Features(seq);
        let hello = Hello { versions, features, client_name, job_id, token: seq };
        let events = vec![Bytes::from(text.clone()); 3];
        let mut messages = vec![
            FromClient::Hello(hello),
            FromClient::Publish { first_seq: seq, events, again: number % 2 == 0, confirm: None },
            FromClient::Unsubscribe(subscription),
            FromClient::DelayAcks { delayed: number % 2 == 0 },
            FromClient::Close { reason: text.clone() },
        ];
        messages.extend(starts.map(|start| {
            FromClient::Subscribe { subscription, filter: text.clone(), start }
        }));
        for message in messages {
            prop_assert_eq!(FromClient::decode(message.clone().to_bytes()), Ok(message));
        }
    }

    #[test]
    fn what_an_agent_says_arrives(
        seq in 1..u64::MAX, id in any::<u32>(), after in position(), until in position(),
    ) {
        let subscription = SubscriptionId(id);
        let epoch = after.epoch;
        let items = vec![(after.index, sealed(seq).into())];
        let deliver = ToClient::Deliver { subscription, epoch, items };
        let message = encode_to_client(deliver.clone());
        let bytes = Outgoing::Core(deliver).to_bytes();
        prop_assert_eq!(message.encode_to_vec(), bytes, "as prost would write it");
        let Ok(FromAgent::Deliver { subscription: found, mut events, .. }) =
            decode(message)
        else {
            return Err(TestCaseError::fail("no delivery"));
        };
        prop_assert_eq!((found, events.len()), (subscription, 1));
        prop_assert_eq!(events.last_position(), Some(after));
        prop_assert_eq!(events.take_first(), unseal(after, &sealed(seq)).ok());
        prop_assert!(events.is_empty());
        for reason in GapReason::ALL {
            for severity_max in [None, Some(Severity::Fatal)] {
                let spaces = if seq % 2 == 0 { Spaces::ANY } else { Spaces::of("ftb.ib") };
                let gap = Gap { after, until, reason, count: Some(seq), severity_max, spaces };
                let bytes = encode_to_client(ToClient::Gap { subscription, gap: gap.clone() });
                prop_assert_eq!(
                    decode(bytes),
                    Ok(FromAgent::Gap { subscription, gap })
                );
            }
        }
        let message = ToClient::Subscribed { subscription, active_after: until };
        let expected = FromAgent::Subscribed { subscription, active_after: until };
        prop_assert_eq!(decode(encode_to_client(message)), Ok(expected));
        for level in LEVELS {
            let confirmed = encode_to_client(ToClient::Confirmed { seq: seq.into(), level });
            prop_assert_eq!(decode(confirmed), Ok(FromAgent::Confirmed { seq, level }));
        }
        let ack = HelloAck {
            protocol: PROTOCOL.max,
            features: Features(seq),
            cluster: "c".to_owned(),
            host: "node1".to_owned(),
            origin: OriginId(seq),
            account: after.index.get(),
            payload_bytes_max: 4096,
        };
        let sent = ack.clone().encode();
        prop_assert_eq!(decode(sent), Ok(FromAgent::HelloAck(ack)));
    }
}

#[test]
fn published_events_share_the_buffer_of_the_message() {
    let events = vec![Bytes::from_static(b"one"), Bytes::from(vec![7; 200])];
    let publish =
        FromClient::Publish { first_seq: 7, events: events.clone(), again: true, confirm: None };
    let message = publish.clone().to_bytes();
    let buffer = message.as_ptr_range();
    let decoded = FromClient::decode(message.clone()).unwrap();
    assert_eq!(decoded, publish);
    let FromClient::Publish { events, .. } = decoded else { panic!("no events") };
    assert!(events.iter().all(|event| buffer.contains(&event.as_ptr())));
    for end in 1..message.len() {
        assert!(FromClient::decode(message.slice(..end)).is_err(), "{end} bytes");
    }
}

#[test]
fn a_rejection_keeps_what_it_rejects_and_why() {
    let codes = [
        RejectCode::Filter,
        RejectCode::Limit,
        RejectCode::Denied,
        RejectCode::Protocol,
        RejectCode::Malformed,
        RejectCode::Rate,
        RejectCode::Other,
    ];
    let parts = [
        RefusedWhat::Subscription(SubscriptionId(3)),
        RefusedWhat::Events { first: 9.into(), last: 11.into() },
    ];
    for (code, what) in codes.into_iter().flat_map(|code| parts.map(|what| (code, what))) {
        let message = "why".to_owned();
        let sent = ToClient::Refused { what, code, message: message.clone() };
        let received = FromAgent::Rejected { what, code, message: message.clone() };
        assert_eq!(decode(encode_to_client(sent)), Ok(received));
        assert_eq!(decode(encode_nack(code, "why")), Ok(FromAgent::Nack { code, message }));
    }
    let mut later = encode_nack(RejectCode::Limit, "why");
    if let Some(ClientMessage::Nack(nack)) = &mut later.message {
        nack.code = 99;
    }
    let other = FromAgent::Nack { code: RejectCode::Other, message: "why".to_owned() };
    assert_eq!(decode(later), Ok(other), "a code of a later version");
}

#[test]
fn a_malformed_message_is_rejected() {
    let publish = |first_seq, count| FromClient::Publish {
        first_seq,
        events: vec![Bytes::new(); count],
        again: false,
        confirm: None,
    };
    let malformed = |message: Bytes| FromClient::decode(message).unwrap_err();
    let range = ClientWireError::Range("the first sequence number");
    assert_eq!(malformed(publish(0, 1).to_bytes()), range);
    for first in [limits::PUBLISHER_SEQ_MAX, u64::MAX] {
        assert_eq!(malformed(publish(first, 1).to_bytes()), range);
    }
    let many = malformed(publish(1, limits::BATCH_EVENTS_MAX + 1).to_bytes());
    assert!(matches!(many, ClientWireError::TooLong { .. }), "{many}");
    assert_eq!(malformed(Bytes::new()), ClientWireError::Empty("client"));
}

#[test]
fn a_version_that_this_release_does_not_speak_is_rejected_by_the_client() {
    let ack = v1::ClientHelloAck { protocol: PROTOCOL.max + 1, ..v1::ClientHelloAck::default() };
    let error = decode(to_client(ClientMessage::HelloAck(ack))).unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "the agent uses protocol {}, this program speaks {PROTOCOL}: upgrade both to the same \
             release",
            PROTOCOL.max + 1
        )
    );
}

fn golden_position() -> Position {
    Position { epoch: Epoch { number: 3, root: OriginId(9) }, index: 40.into() }
}

fn field_to_agent(message: &FromClient) -> &'static str {
    match message {
        FromClient::Hello(_) => "hello",
        FromClient::Publish { .. } => "publish",
        FromClient::Restate { .. } => "restate",
        FromClient::Subscribe { .. } => "subscribe",
        FromClient::Unsubscribe(_) => "unsubscribe",
        FromClient::DelayAcks { .. } => "delay_acks",
        FromClient::Close { .. } => "close",
    }
}

#[test]
fn every_message_of_a_client_is_encoded_as_in_its_golden_file() {
    let mut trail = Trail::at(golden_position());
    trail.note(Position { epoch: Epoch { number: 4, root: OriginId(8) }, index: 50.into() });
    let messages = [
        FromClient::Hello(Hello {
            versions: Versions { min: 7, max: 8 },
            features: Features(5),
            client_name: "monitor".into(),
            job_id: "4711".into(),
            token: 11,
        }),
        FromClient::Publish {
            first_seq: 300,
            events: vec![Bytes::from_static(b"one"), Bytes::from_static(b"two")],
            again: true,
            confirm: None,
        },
        FromClient::Restate { events: vec![(300, Bytes::from_static(b"one"))] },
        FromClient::Subscribe {
            subscription: SubscriptionId(2),
            filter: "severity>=error".into(),
            start: Start::AfterTrail(trail),
        },
        FromClient::Unsubscribe(SubscriptionId(2)),
        FromClient::DelayAcks { delayed: true },
        FromClient::Close { reason: "done".into() },
    ];
    let proto = include_str!("../../ftb/v1/client.proto");
    let mut fields = crate::golden::fields(proto, "ToAgent");
    for message in messages {
        let name = field_to_agent(&message);
        assert!(fields.remove(name), "{name} is no field of ToAgent, or comes twice");
        let golden = crate::golden::check("to_agent", name, &message.clone().to_bytes());
        assert_eq!(FromClient::decode(golden).as_ref(), Ok(&message), "{name}");
    }
    assert!(fields.is_empty(), "{fields:?} have no golden file");
}

/// Messages to a client, and the fields of a ToClient that they are encoded as.
fn golden_to_client() -> Vec<(&'static str, Outgoing)> {
    let (subscription, position) = (SubscriptionId(2), golden_position());
    let ack = HelloAck {
        protocol: 7,
        features: Features(4),
        cluster: "test".into(),
        host: "node1".into(),
        origin: OriginId(5),
        account: 6,
        payload_bytes_max: 4096,
    };
    let gap = Gap {
        after: golden_position(),
        until: Position { index: 45.into(), ..golden_position() },
        reason: GapReason::LogLost,
        count: Some(5),
        severity_max: Some(Severity::Fatal),
        spaces: Spaces::of("ftb.ib"),
    };
    let events: Vec<Sealed> = (1..4).map(sealed).collect();
    let run = ftb_core::Run::collect(events.iter().map(Sealed::as_ref)).unwrap();
    let what = RefusedWhat::Events { first: 3.into(), last: 5.into() };
    let rejected = ToClient::Refused { what, code: RejectCode::Rate, message: "slower".into() };
    let subscribed = ToClient::Subscribed { subscription, active_after: position };
    let deliver =
        ToClient::Deliver { subscription, epoch: position.epoch, items: vec![(40.into(), run)] };
    let covered = ToClient::Covered { subscription, position, history_ended: true };
    vec![
        ("hello_ack", Outgoing::Shell(ack.encode())),
        ("confirmed", Outgoing::Core(ToClient::Confirmed { seq: 300.into(), level: None })),
        ("subscribed", Outgoing::Core(subscribed)),
        ("rejected", Outgoing::Core(rejected)),
        ("deliver", Outgoing::Core(deliver)),
        ("gap", Outgoing::Core(ToClient::Gap { subscription, gap })),
        ("close", Outgoing::Shell(encode_close("restart"))),
        ("covered", Outgoing::Core(covered)),
        ("nack", Outgoing::Shell(encode_nack(RejectCode::Limit, "it is full"))),
    ]
}

#[test]
fn every_message_of_an_agent_is_encoded_as_in_its_golden_file() {
    let proto = include_str!("../../ftb/v1/client.proto");
    let mut fields = crate::golden::fields(proto, "ToClient");
    for (name, message) in golden_to_client() {
        assert!(fields.remove(name), "{name} is no field of ToClient, or comes twice");
        let bytes = message.to_bytes();
        let golden = crate::golden::check("to_client", name, &bytes);
        let known = FromAgent::decode(bytes).unwrap();
        assert_eq!(FromAgent::decode(golden).as_ref(), Ok(&known), "{name}");
        let decoded = format!("{known:?}").replace('_', "").to_lowercase();
        assert!(decoded.starts_with(&name.replace('_', "")), "{name} is decoded as {known:?}");
    }
    assert!(fields.is_empty(), "{fields:?} have no golden file");
}

#[test]
fn verified_events_are_marked_as_in_their_golden_file() {
    let events: Vec<Sealed> = (1..4).map(sealed).collect();
    let run = ftb_core::Run::collect(events.iter().map(Sealed::as_ref)).unwrap();
    let deliver = |verified, requires_signatures| Outgoing::Deliver {
        subscription: SubscriptionId(2),
        epoch: golden_position().epoch,
        items: vec![(40.into(), run.clone())],
        verified,
        requires_signatures,
    };
    let marked = deliver(vec![0, 2], None).to_bytes();
    let golden = crate::golden::check("to_client", "deliver_verified", &marked);
    let Ok(FromAgent::Deliver { mut events, .. }) = FromAgent::decode(golden) else { panic!() };
    let marks: Vec<bool> = events.iter().map(|event| event.is_verified()).collect();
    assert_eq!(marks, [true, false, true]);
    events.skip_until(41.into());
    assert!(events.take_first().is_some_and(|event| event.is_verified));
    let outside = FromAgent::decode(deliver(vec![3], None).to_bytes());
    assert!(outside.is_err(), "{outside:?}");
    let lenient = deliver(vec![0], Some(false)).to_bytes();
    let golden = crate::golden::check("to_client", "deliver_requires_signatures", &lenient);
    let decoded = FromAgent::decode(golden);
    let Ok(FromAgent::Deliver { requires_signatures, .. }) = decoded else { panic!() };
    assert_eq!(requires_signatures, Some(false));
}
