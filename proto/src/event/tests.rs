#![allow(clippy::unwrap_used)]

use super::*;
use ftb_core::OriginId;
use ftb_core::condition::pairs::ConditionPairs;
use ftb_core::condition::{RecommendedAction, Truth};
use ftb_core::group::{GroupFold, GroupHosts};
use ftb_core::sealed::COUNTED_BYTES;
use proptest::prelude::*;
use std::cell::RefCell;

const PAYLOAD_MAX: usize = 300;

fn any_id() -> impl Strategy<Value = EventId> {
    (any::<u64>(), any::<u64>(), 1..u64::MAX).prop_map(|(account, token, seq)| EventId {
        publisher: PublisherId { account, token },
        seq: seq.into(),
    })
}

fn any_event() -> impl Strategy<Value = Event> {
    let names = ("[a-z]{1,9}(\\.[a-z0-9_-]{1,9}){0,4}", "[A-Za-z0-9_-]{1,63}");
    let texts = ("\\PC{0,15}", "[a-z0-9.]{0,63}");
    let kind = prop_oneof![
        Just(EventKind::Normal),
        proptest::option::of(any_id()).prop_map(EventKind::Response)
    ];
    let tag = ("\\PC{0,15}", "\\PC{0,60}").prop_map(|(key, value)| Tag { key, value });
    let tags = proptest::collection::vec(tag, 0..=limits::TAGS_MAX);
    let payload = proptest::collection::vec(any::<u8>(), 0..PAYLOAD_MAX);
    let condition = proptest::option::of(any_condition());
    (names, 1..5_i32, any::<u64>(), texts, kind, tags, payload, condition).prop_map(
        |(names, severity, time_ns, texts, kind, tags, payload, condition)| Event {
            space: names.0.parse().unwrap(),
            name: names.1.parse().unwrap(),
            severity: Severity::from_wire(severity).unwrap(),
            time_ns,
            client_name: texts.0,
            job_id: texts.1,
            kind,
            tags,
            condition,
            payload: payload.into(),
        },
    )
}

fn any_condition() -> impl Strategy<Value = Condition> {
    let texts = ("([a-z][a-z0-9]{0,9})?", "[a-zA-Z0-9/ ]{0,20}", "[A-Z_]{1,20}");
    let numbers = (0..3_usize, 0..7_usize, proptest::option::of(1..5_i32));
    (texts, numbers, any::<u64>(), any::<u32>(), any::<bool>()).prop_map(
        |((host, component, key), (truth, action, severity), onset_ns, expires_ms, is_kept)| {
            Condition {
                host,
                component,
                key,
                truth: Truth::ALL[truth],
                action: RecommendedAction::ALL[action],
                severity: severity.and_then(Severity::from_wire),
                onset_ns,
                expires_ms,
                is_kept,
            }
        },
    )
}

fn stamps(id: EventId) -> Stamps<'static> {
    Stamps {
        id,
        host: "node017",
        uid: 1000,
        pid: 4711,
        republished: id.seq.get().is_multiple_of(2),
    }
}

fn example() -> Event {
    let mut event = Event::new("ftb.ipmi".parse().unwrap(), "FAN_FAIL".parse().unwrap());
    event.tags.push(Tag { key: "sensor".to_owned(), value: "FAN1".to_owned() });
    event.payload = Bytes::from_static(b"speed 0");
    event
}

fn first_id() -> EventId {
    EventId { publisher: PublisherId { account: 1, token: 2 }, seq: 3.into() }
}

proptest! {
    #[test]
    fn an_event_survives_its_whole_journey(event in any_event(), id in any_id()) {
        prop_assert_eq!(event.check(PAYLOAD_MAX), Ok(()));
        let sealed = seal(&stamps(id), &encode_event(&event), PAYLOAD_MAX).unwrap();
        let arrived = decode_sealed(sealed.bytes().clone()).unwrap();
        prop_assert_eq!(&arrived, &sealed);
        prop_assert_eq!(arrived.space(), event.space.as_str());
        prop_assert_eq!(arrived.name(), event.name.as_str());
        prop_assert_eq!(arrived.host(), "node017");
        prop_assert_eq!(arrived.job_id(), &event.job_id);
        prop_assert_eq!(arrived.client_name(), &event.client_name);
        let head = arrived.head();
        prop_assert_eq!(head.time_ns, event.time_ns);
        prop_assert_eq!(head.severity, event.severity);
        prop_assert_eq!((head.id, head.uid, head.pid), (id, 1000, 4711));
        prop_assert_eq!(head.republished, id.seq.get().is_multiple_of(2));
        let epoch = ftb_core::Epoch { number: 1, root: OriginId(9) };
        let position = Position { epoch, index: 5.into() };
        let received = unseal(position, &arrived).unwrap();
        prop_assert_eq!(received.event, event);
        prop_assert_eq!((received.position, received.id), (position, id));
        prop_assert_eq!((received.uid, received.pid), (1000, 4711));
    }

    #[test]
    fn an_event_is_encoded_as_prost_would(event in any_event()) {
        let bytes = encode_event(&event);
        let message = v1::Event::decode(bytes.clone()).unwrap();
        prop_assert_eq!(message.encode_to_vec(), bytes);
    }

    #[test]
    fn a_batch_seals_as_one_by_one_and_as_prost_would(
        events in proptest::collection::vec(any_event(), 0..5),
    ) {
        let bytes: Vec<_> = events.iter().map(encode_event).collect();
        let first = first_id();
        let slices = bytes.iter().map(|event| &event[..]);
        let rules = SealRules::plain(PAYLOAD_MAX);
        let batch = seal_batch(&stamps(first), slices, &rules, |_| Rights::StateAnyHost).unwrap();
        prop_assert_eq!(batch.refused, []);
        let run: Vec<_> = batch.run.iter().flat_map(ftb_core::Run::iter).collect();
        prop_assert_eq!(run.len(), bytes.len());
        for (offset, (sealed, bytes)) in (0_u64..).zip(run.into_iter().zip(&bytes)) {
            let id = EventId { seq: first.seq + offset, ..first };
            let stamps = Stamps { id, ..stamps(first) };
            let condition = decode_event(bytes).unwrap().condition;
            let provenance = Provenance::direct(OriginId(0));
            let stated = condition.map(|condition| Stated { condition, provenance });
            let alone = seal_with(&stamps, bytes, PAYLOAD_MAX, stated.as_ref()).unwrap();
            prop_assert_eq!(sealed, alone.as_ref());
            prop_assert_eq!(&decode_sealed(alone.bytes().clone()), &Ok(alone));
            let message = v1::Sealed::decode(sealed.bytes()).unwrap();
            prop_assert_eq!(&message.encode_to_vec(), sealed.bytes());
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = check_event(&bytes, PAYLOAD_MAX);
        let _ = decode_sealed(bytes.into());
    }

    /// Whatever the walk accepts, the full decoder accepts too, and both see the same event.
    #[test]
    fn walk_and_decoder_agree_on_damaged_bytes(
        event in any_event(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let sealed = seal(&stamps(first_id()), &encode_event(&event), PAYLOAD_MAX).unwrap();
        let mut bytes = sealed.bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(damaged) = decode_sealed(bytes.into()) {
            let received = unseal(Position::ZERO, &damaged).unwrap();
            prop_assert_eq!(received.event.space.as_str(), damaged.space());
            prop_assert_eq!(received.event.name.as_str(), damaged.name());
            prop_assert_eq!(received.event.severity, damaged.severity());
            prop_assert_eq!(received.event.time_ns, damaged.head().time_ns);
            prop_assert_eq!(&received.event.job_id, damaged.job_id());
            prop_assert_eq!(&received.host, damaged.host());
            prop_assert_eq!(received.event.check(limits::PAYLOAD_BYTES_MAX), Ok(()));
        }
    }
}

/// The envelope has the verified statement; what the publisher's bytes say beside it is hostile.
#[test]
fn a_statement_with_a_bad_key_is_dropped_from_a_sealed_event() {
    let mut event = example();
    event.condition = Some(Condition::new("FAN_FAIL_1", Truth::True));
    let sealed = seal(&stamps(first_id()), &encode_event(&event), PAYLOAD_MAX).unwrap();
    let mut bytes = sealed.bytes().to_vec();
    let at = bytes.windows(10).position(|window| window == b"FAN_FAIL_1").unwrap();
    bytes[at + 9] = b'\r';
    let received = unseal(Position::ZERO, &decode_sealed(bytes.into()).unwrap()).unwrap();
    assert_eq!(received.event.condition, None);
}

#[test]
fn every_truncation_is_refused() {
    let event = encode_event(&example());
    // The payload is the last field, so no cut leaves a whole message with all that must be there.
    let sealed = seal(&stamps(first_id()), &event, PAYLOAD_MAX).unwrap();
    for end in 0..sealed.len() {
        assert!(decode_sealed(sealed.bytes().slice(..end)).is_err(), "{end} bytes");
    }
}

fn message_of(event: &Event, payload_bytes_max: usize) -> String {
    check_event(&encode_event(event), payload_bytes_max).unwrap_err().to_string()
}

#[test]
fn every_bound_is_checked_and_named() {
    let with = |change: fn(&mut Event)| {
        let mut event = example();
        change(&mut event);
        message_of(&event, 64)
    };
    assert_eq!(
        with(|event| event.payload = Bytes::from(vec![0; 65])),
        "the payload has 65 bytes: at most 64 are allowed"
    );
    assert!(with(|event| event.payload = vec![0; 1 << 20].into()).starts_with("the payload has"));
    assert!(with(|event| event.client_name = "x".repeat(64)).contains("client name"));
    assert!(with(|event| event.job_id = "x".repeat(64)).contains("job id"));
    assert!(with(|event| event.tags[0].key = "x".repeat(64)).contains("key of a tag"));
    assert!(with(|event| event.tags[0].value = "x".repeat(1025)).contains("value of a tag"));
    assert!(with(|event| event.tags = vec![event.tags[0].clone(); 33]).contains("33 tags"));
    let mut many = encode_event(&example()).to_vec();
    // Field 100, unknown here: skipped, but not without a bound.
    many.extend([0xa2, 0x06, 0x80, 0x80, 0x04]);
    many.extend([0; 0x1_0000]);
    assert!(check_event(&many, 64).unwrap_err().to_string().contains("beside"));
}

#[test]
fn bytes_that_are_no_event_are_rejected() {
    let base = v1::Event {
        space: "ftb.test".to_owned(),
        name: "X".to_owned(),
        severity: 1,
        ..v1::Event::default()
    };
    let check = |change: fn(&mut v1::Event)| {
        let mut message = base.clone();
        change(&mut message);
        check_event(&message.encode_to_vec(), 64)
    };
    assert!(check(|_| ()).is_ok());
    assert_eq!(check(|event| event.severity = 0), Err(EventWireError::Severity(0)));
    assert!(matches!(check(|event| event.severity = -1), Err(EventWireError::Severity(_))));
    assert!(matches!(check(|event| event.space.clear()), Err(EventWireError::Name(_))));
    assert!(matches!(check(|event| event.name.push(' ')), Err(EventWireError::Name(_))));
    assert_eq!(
        check(|event| event.in_response_to = Some(v1::EventId::default())),
        Err(EventWireError::NoResponse)
    );
    let plain = base.encode_to_vec();
    let malformed = |extra: &[u8]| {
        let bytes = [plain.as_slice(), extra].concat();
        matches!(check_event(&bytes, 64), Err(EventWireError::Malformed { .. }))
    };
    assert!(malformed(&[0x0a, 1, b'z']), "a second event space");
    assert!(malformed(&[0x28, 1]), "a client name that is a number");
    assert!(malformed(&[0x5b]), "a group");
    assert!(malformed(&[0x00, 0]), "field number 0");
    assert!(malformed(&[0x58, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2]), "65 bits");
    assert!(!malformed(&[0x58, 1, 0x65, 0, 0, 0, 0]), "unknown fields");
    let text = [plain.as_slice(), &[0x2a, 1, 0xff]].concat();
    assert_eq!(check_event(&text, 64), Err(EventWireError::Text("client name")));
}

#[test]
fn a_bad_event_of_a_batch_is_refused_alone() {
    let good = encode_event(&example());
    let mut other = example();
    other.space = "ftb.other".parse().unwrap();
    let other = encode_event(&other);
    let events = [&good[..], b"none", &other, &good];
    let id = EventId { seq: 10.into(), ..first_id() };
    let may = |space: &[u8]| match space {
        b"ftb.ipmi" => Rights::Publish,
        _ => Rights::None,
    };
    let batch = seal_batch(&stamps(id), events, &SealRules::plain(PAYLOAD_MAX), may).unwrap();
    let seqs: Vec<u64> =
        batch.run.iter().flat_map(ftb_core::Run::iter).map(|e| e.id().seq.get()).collect();
    assert_eq!(seqs, [10, 13]);
    let refused: Vec<_> = batch.refused.iter().map(|(seq, _)| seq.get()).collect();
    assert_eq!(refused, [11, 12]);
    assert!(matches!(batch.refused[0].1, SealError::Event(_)));
    assert_eq!(batch.refused[1].1, SealError::Denied("ftb.other".to_owned()));
    let rules = SealRules::plain(PAYLOAD_MAX);
    let none = seal_batch(&stamps(id), [&good[..]], &rules, |_| Rights::None).unwrap();
    assert!(none.run.is_none());
}

#[test]
fn a_severity_beyond_what_its_publisher_may_say_is_lowered_and_the_tag_has_what_it_was() {
    let tag = |key: &str| Tag { key: key.to_owned(), value: String::new() };
    let fatal = Event { severity: Severity::Fatal, ..example() };
    let full = Event { tags: vec![tag("k"); limits::TAGS_MAX], ..fatal.clone() };
    let error = Event { severity: Severity::Error, ..example() };
    let events: Vec<Bytes> = [&fatal, &full, &error].map(encode_event).to_vec();
    let rules = SealRules::plain(PAYLOAD_MAX);
    let permission = Permission { rights: Rights::Publish, severity_max: Severity::Error };
    let slices = events.iter().map(|event| &event[..]);
    let batch = seal_batch(&stamps(first_id()), slices, &rules, |_| permission).unwrap();
    assert_eq!((batch.lowered, batch.refused.len()), (2, 0));
    let run = batch.run.unwrap();
    let read: Vec<Received> =
        run.iter().map(|event| unseal(Position::ZERO, &event.to_sealed()).unwrap()).collect();
    let mut tags = fatal.tags.clone();
    tags.push(Tag { key: "ftb.severity".to_owned(), value: "fatal".to_owned() });
    assert_eq!(read[0].event, Event { severity: Severity::Error, tags, ..fatal });
    assert_eq!(read[1].event, Event { severity: Severity::Error, ..full }, "no room for a tag");
    assert_eq!(read[2].event, error);
    for event in run.iter() {
        assert_eq!(event.severity(), Severity::Error);
        let again = decode_sealed(Bytes::copy_from_slice(event.bytes())).unwrap();
        assert_eq!(again.as_ref(), event);
    }
}

#[test]
fn the_events_of_a_batch_are_what_they_are_alone_at_every_length_of_a_number() {
    let event = |payload: usize, time_ns: u64| {
        encode_event(&Event { payload: vec![7; payload].into(), time_ns, ..example() })
    };
    let lengths = [9, 9, 9, 9, 127, 127, 128, 128, 128, 9, 100, 9, 9, 9];
    let events: Vec<Bytes> =
        (0..).zip(lengths).map(|(time, payload)| event(payload, time)).collect();
    for seq in [1, 120, 125, 127, 128, 16_380, (1 << 35) - 3, u64::MAX - 20] {
        let first = EventId { seq: seq.into(), ..first_id() };
        let stamps = Stamps { republished: false, ..stamps(first) };
        let slices = events.iter().map(|event| &event[..]);
        let rules = SealRules::plain(PAYLOAD_MAX);
        let batch = seal_batch(&stamps, slices, &rules, |_| Rights::Publish).unwrap();
        let run = batch.run.unwrap();
        assert_eq!(run.count(), events.len());
        for (offset, (sealed, event)) in (0..).zip(run.iter().zip(&events)) {
            let id = EventId { seq: (seq + offset).into(), ..first };
            let alone = seal(&Stamps { id, ..stamps }, event, PAYLOAD_MAX).unwrap();
            assert_eq!(sealed, alone.as_ref(), "{seq} and {offset}");
        }
    }
}

#[test]
fn stamps_that_make_no_sense_are_refused() {
    let event = encode_event(&example());
    let no_seq = EventId { seq: 0.into(), ..first_id() };
    assert_eq!(seal(&stamps(no_seq), &event, 64), Err(EventWireError::Sequence));
    let host = "x".repeat(256);
    let long = Stamps { host: &host, ..stamps(first_id()) };
    assert!(matches!(seal(&long, &event, 64), Err(EventWireError::Bound(_))));
    let mut message = v1::Sealed { id: Some(wire_id(first_id())), event, ..v1::Sealed::default() };
    assert!(decode_sealed(message.encode_to_vec().into()).is_ok());
    message.id = None;
    assert_eq!(decode_sealed(message.encode_to_vec().into()), Err(EventWireError::Missing("id")));
}

#[test]
fn a_fold_is_the_last_event_with_a_stamp_that_travels() {
    let id = EventId { seq: 9.into(), ..first_id() };
    let last = seal(&stamps(id), &encode_event(&example()), PAYLOAD_MAX).unwrap();
    let stamp = Fold { count: 5, covers: 7, first_ns: 11, last_ns: 22 };
    let folded = fold(&last, &stamp);
    assert_eq!((folded.id(), folded.head().covers), (last.id(), 7));
    let travelled = decode_sealed(folded.bytes().clone()).unwrap();
    assert_eq!(travelled, folded);
    let received = unseal(Position::ZERO, &travelled).unwrap();
    assert_eq!(received.folded, Some(Folded { hosts: None, count: 5, first_ns: 11, last_ns: 22 }));
    assert_eq!(received.event, unseal(Position::ZERO, &last).unwrap().event);
    assert_eq!(unseal(Position::ZERO, &last).unwrap().folded, None);
    // It cannot stand for sequences that do not exist, nor be stamped twice.
    let too_many = fold(&last, &Fold { covers: 9, ..stamp });
    assert_eq!(decode_sealed(too_many.bytes().clone()), Err(EventWireError::Sequence));
    assert!(decode_sealed(fold(&folded, &stamp).bytes().clone()).is_err());
}

#[test]
fn an_event_and_its_envelope_are_encoded_as_in_their_golden_files() {
    let event = Event {
        severity: Severity::Error,
        time_ns: 1_700_000_000_000_000_000,
        client_name: "monitor".to_owned(),
        job_id: "4711".to_owned(),
        kind: EventKind::Response(Some(first_id())),
        ..example()
    };
    let bytes = encode_event(&event);
    let golden = crate::golden::check("event", "event", &bytes);
    assert_eq!(decode_event(&golden), Ok(event.clone()));
    let id = EventId { seq: 300.into(), ..first_id() };
    let last = seal(&stamps(id), &bytes, PAYLOAD_MAX).unwrap();
    let folded = fold(&last, &Fold { count: 5, covers: 4, first_ns: 11, last_ns: 22 });
    let golden = crate::golden::check("event", "sealed", folded.bytes());
    let received = unseal(Position::ZERO, &decode_sealed(golden).unwrap()).unwrap();
    assert_eq!((received.id, received.event), (id, event));
    assert_eq!(received.folded, Some(Folded { hosts: None, count: 5, first_ns: 11, last_ns: 22 }));
}

/// A statement about a fan of another host.
fn fan(truth: Truth) -> Condition {
    Condition {
        host: "node018".to_owned(),
        component: "FAN 1".to_owned(),
        action: RecommendedAction::Migrate,
        severity: Some(Severity::Fatal),
        onset_ns: 77,
        expires_ms: 600_000,
        is_kept: true,
        ..Condition::new("FANFAIL", truth)
    }
}

#[test]
fn a_verified_statement_is_encoded_as_in_its_golden_file() {
    let provenance = Provenance {
        owner: OriginId(9),
        source: Some(EventId { seq: 5.into(), ..first_id() }),
        replaces: Some(EventId { seq: 6.into(), ..first_id() }),
        is_paired: false,
    };
    let stated = Stated { condition: fan(Truth::Unknown), provenance };
    let event = Event { condition: Some(fan(Truth::True)), ..example() };
    let bytes = encode_event(&event);
    let sealed = seal_with(&stamps(first_id()), &bytes, PAYLOAD_MAX, Some(&stated)).unwrap();
    let golden = crate::golden::check("event", "stated", sealed.bytes());
    let received = unseal(Position::ZERO, &decode_sealed(golden).unwrap()).unwrap();
    assert_eq!((received.stated, received.event), (Some(stated), event));
}

#[test]
fn a_signature_is_encoded_as_in_its_golden_file_and_leaves_the_signed_bytes_as_they_are() {
    use super::signature::{HASH_BYTES, signature_of, signed_parts, with_signature};
    let sealed = seal(&stamps(first_id()), &encode_event(&example()), PAYLOAD_MAX).unwrap();
    let signature = v1::Signature {
        scheme: 0x0403,
        signature: Bytes::from_static(b"signature"),
        chain: vec![Bytes::from_static(b"own"), Bytes::from_static(b"above")],
        place: 2,
        path: vec![vec![7; HASH_BYTES].into(), vec![8; HASH_BYTES].into()],
    };
    let signed = with_signature(sealed.as_ref(), &signature).unwrap();
    let golden = crate::golden::check("event", "signed", signed.bytes());
    let decoded = decode_sealed(golden).unwrap();
    assert_eq!(decoded, signed);
    assert_eq!(signature_of(decoded.bytes()).unwrap(), Some(signature.clone()));
    assert_eq!(signature_of(sealed.bytes()).unwrap(), None);
    let stamped = fold(&decoded, &Fold { count: 2, covers: 1, first_ns: 1, last_ns: 2 });
    for event in [&signed, &stamped] {
        assert_eq!(signed_parts(event.bytes()).unwrap().concat(), sealed.bytes()[..]);
    }
    assert_eq!(with_signature(signed.as_ref(), &signature), None, "it has one");
    let unbounded = [
        v1::Signature { place: 4, ..signature.clone() },
        v1::Signature { path: vec![Bytes::from_static(b"short")], ..signature.clone() },
        v1::Signature { path: vec![vec![7; HASH_BYTES].into(); 7], ..signature.clone() },
        v1::Signature { chain: vec![Bytes::new(); 5], ..signature.clone() },
    ];
    for signature in unbounded {
        let event = with_signature(sealed.as_ref(), &signature).unwrap();
        assert!(signature_of(event.bytes()).is_err(), "{signature:?}");
    }
    let large = v1::Signature { chain: vec![vec![0; 9_000].into()], ..signature };
    assert_eq!(with_signature(sealed.as_ref(), &large), None, "no room");
}

#[test]
fn an_event_without_its_condition_is_what_remains() {
    let condition = fan(Truth::True);
    let stated = Stated { condition, provenance: Provenance::direct(OriginId(9)) };
    let bytes = encode_event(&example());
    let plain = seal(&stamps(first_id()), &bytes, PAYLOAD_MAX).unwrap();
    let full = seal_with(&stamps(first_id()), &bytes, PAYLOAD_MAX, Some(&stated)).unwrap();
    assert_eq!(super::signature::without_condition(full.as_ref()), Ok(plain.clone()));
    assert_eq!(super::signature::without_condition(plain.as_ref()), Ok(plain));
}

#[test]
fn statements_are_checked_and_pairs_are_resolved_at_the_publishers_agent() {
    let pairs = ConditionPairs::built_in();
    let rules = SealRules { pairs: Some(&pairs), ..SealRules::plain(PAYLOAD_MAX) };
    let take = |event: &Event, rights| {
        let bytes = encode_event(event);
        let batch = seal_batch(&stamps(first_id()), [&bytes[..]], &rules, |_| rights).unwrap();
        match batch.refused.into_iter().next() {
            Some((_, error)) => Err(error.to_string()),
            None => {
                let first = batch.run.unwrap().first().to_sealed();
                let subject = first.as_ref().condition().map(|c| c.subject().to_string());
                Ok((subject, batch.ignored.len()))
            }
        }
    };
    let explicit = Event { condition: Some(fan(Truth::True)), ..example() };
    let ok = Ok((Some("node018 FAN 1 FANFAIL".to_owned()), 0));
    assert_eq!(take(&explicit, Rights::StateAnyHost), ok);
    let refused = |event: &Event, rights| take(event, rights).unwrap_err();
    assert!(refused(&explicit, Rights::Publish).contains("may not state conditions"));
    assert!(refused(&explicit, Rights::StateOwnHost).contains("another host, node018"));
    let no_host = Condition { host: "no host".to_owned(), ..fan(Truth::True) };
    let no_host = Event { condition: Some(no_host), ..example() };
    assert!(refused(&no_host, Rights::StateAnyHost).contains("\"no host\""));

    let mut failed = Event { name: "FTB_IPMI_FANFAIL".parse().unwrap(), ..example() };
    failed.payload = Bytes::from_static(b"node019");
    assert_eq!(take(&failed, Rights::Publish), Ok((None, 0)), "no right to state it");
    let by_payload = Some("node019 HARDWARE".to_owned());
    assert_eq!(take(&failed, Rights::StateAnyHost), Ok((by_payload, 0)));
    failed.tags.push(Tag { key: "node".to_owned(), value: "no host".to_owned() });
    assert_eq!(take(&failed, Rights::StateAnyHost), Ok((None, 1)), "the event is not lost");
}

/// As programs of the C API do, which know no onset.
#[test]
fn a_condition_that_is_stated_again_keeps_its_onset_until_it_is_cleared() {
    let (pairs, onsets) = (ConditionPairs::built_in(), RefCell::default());
    let rules =
        SealRules { pairs: Some(&pairs), onsets: Some(&onsets), ..SealRules::plain(PAYLOAD_MAX) };
    let stated = |time_ns: u64, name: &str, onset_ns: u64| {
        let mut event = Event { name: name.parse().unwrap(), time_ns, ..example() };
        event.payload = Bytes::from_static(b"node019");
        if onset_ns > 0 {
            event.condition = Some(Condition { onset_ns, ..fan(Truth::True) });
        }
        encode_event(&event)
    };
    let onset = |event: &[u8]| {
        let batch = seal_batch(&stamps(first_id()), [event], &rules, |_| Rights::StateAnyHost);
        let first = batch.unwrap().run.unwrap().first().to_sealed();
        first.as_ref().condition().unwrap().onset_ns()
    };
    let (failed, normal) = ("FTB_IPMI_FANFAIL", "FTB_IPMI_NORMAL");
    assert_eq!([10, 70, 130].map(|time_ns| onset(&stated(time_ns, failed, 0))), [10; 3]);
    assert_eq!(onset(&stated(190, normal, 0)), 190);
    assert_eq!([250, 310].map(|time_ns| onset(&stated(time_ns, failed, 0))), [250; 2]);
    // Who says it is believed.
    assert_eq!([5, 7].map(|onset_ns| onset(&stated(400, failed, onset_ns))), [5, 7]);
}

#[test]
fn the_mark_of_a_statement_that_counted_travels_unsigned_and_goes() {
    let mark = counted_mark();
    let bytes = encode_event(&example());
    let plain = seal(&stamps(first_id()), &bytes, PAYLOAD_MAX).unwrap();
    let marked = (mark.put)(plain.as_ref()).unwrap();
    assert_eq!(marked.len(), plain.len() + COUNTED_BYTES);
    assert_eq!(decode_sealed(marked.bytes().clone()).as_ref(), Ok(&marked));
    let is_counted = |event: &Sealed| event.as_ref().is_counted();
    assert_eq!((is_counted(&plain), is_counted(&marked)), (false, true));
    assert_eq!((mark.put)(marked.as_ref()), None, "it has it");
    assert_eq!((mark.remove)(plain.as_ref()), None, "it has none");
    assert_eq!((mark.remove)(marked.as_ref()).as_ref(), Some(&plain));
    let signed = |event: &Sealed| super::signature::signed_parts(event.bytes()).unwrap().concat();
    assert_eq!(signed(&marked), signed(&plain));
}

#[test]
fn the_fold_of_a_group_travels_with_tags_for_old_readers() {
    let grouper = grouper();
    let mut hosts = GroupHosts::default();
    let sealed = |seq: u64, host: &str| {
        let id = EventId { seq: seq.into(), ..first_id() };
        seal(&Stamps { host, ..stamps(id) }, &encode_event(&example()), PAYLOAD_MAX).unwrap()
    };
    for at in 1..=40_u64 {
        let host = format!("node{at:02}");
        let event = sealed(at, &host);
        let member = (grouper.member)(event.as_ref()).unwrap();
        assert!(member.as_ref().is_member() && member.id() == event.id());
        assert_eq!(decode_sealed(member.bytes().clone()).as_ref(), Ok(&member));
        assert_eq!((grouper.member)(member.as_ref()), None, "it is one");
        hosts.insert(&host, event.id());
    }
    let carrier = (grouper.member)(sealed(40, "node40").as_ref()).unwrap();
    let stamp = GroupFold::of(&hosts, (11, 22));
    let fold = (grouper.fold)(&carrier, &stamp).unwrap();
    assert_eq!(decode_sealed(fold.bytes().clone()).as_ref(), Ok(&fold));
    let group = fold.as_ref().group().unwrap();
    assert_eq!((group.hosts(), group.members().len()), ("node[01-40]", 40));
    assert!(!fold.as_ref().is_member());
    let received = unseal(Position::ZERO, &fold).unwrap();
    let hosts = Some("node[01-40]".to_owned());
    assert_eq!(received.folded, Some(Folded { hosts, count: 40, first_ns: 11, last_ns: 22 }));
    assert_eq!(received.event.tag("hosts"), Some("node[01-40]"));
    assert_eq!(received.event.tag("count"), Some("40"));
    let golden = crate::golden::check("event", "group", fold.bytes());
    assert_eq!(decode_sealed(golden).as_ref(), Ok(&fold));
    let wrong = [
        GroupFold { count: 41, ..stamp.clone() },
        GroupFold { hosts: "node[01-39]".to_owned(), ..stamp.clone() },
        GroupFold { members: stamp.members[1..].to_vec(), ..stamp },
    ];
    assert!(wrong.iter().all(|wrong| (grouper.fold)(&carrier, wrong).is_none()));
}

#[test]
fn groups_know_tags_of_events_that_answer_no_other() {
    let values = grouper().values;
    let keys = ["neighbour".to_owned(), "slot".to_owned()];
    let tag = Tag { key: "slot".to_owned(), value: "7".to_owned() };
    let event = Event { tags: vec![tag], ..example() };
    let sealed = |event: &Event| seal(&stamps(first_id()), &encode_event(event), 64).unwrap();
    assert_eq!(values(sealed(&event).as_ref(), &keys), Some(vec!["", "7"]));
    let answer = Event { kind: EventKind::Response(None), ..event };
    assert_eq!(values(sealed(&answer).as_ref(), &keys), None);
}
