#![allow(clippy::unwrap_used)]

use super::*;
use ftb_client::{Condition, GapReason, event};
use ftb_core::OriginId;
use ftb_core::condition::Provenance;

fn received(space: &str, severity: Severity, truth: Option<Truth>) -> Received {
    let stated = truth.map(|truth| ftb_client::Stated {
        condition: Condition { host: "node07".to_owned(), ..Condition::new("LEAK", truth) },
        provenance: Provenance::direct(OriginId(1)),
    });
    Received {
        position: "1-0:5".parse().unwrap(),
        id: "00000000000000010000000000000002.3".parse().unwrap(),
        host: "node01".to_owned(),
        uid: 0,
        pid: 1,
        event: event(space, "DISK_FULL").unwrap().severity(severity).payload("full").build(),
        folded: None,
        stated,
        is_verified: false,
        is_counted: false,
    }
}

fn body(message: &Message) -> Value {
    serde_json::from_slice(&message.body).unwrap()
}

#[test]
fn an_event_is_a_cloud_event_with_the_fields_of_ftbctl() {
    let encoder = Encoder::new("my.cluster>", 1 << 20);
    let message = encoder.event(&received("My.Disks", Severity::Error, None)).unwrap();
    assert_eq!(message.subject, "ftb.my%2Ecluster%3E.my.disks.DISK_FULL");
    let id = "node01/00000000000000010000000000000002.3";
    assert_eq!(message.id, format!("/ftb/my%2Ecluster%3E/{id}"));
    let body = body(&message);
    for (key, value) in [
        ("specversion", "1.0"),
        ("id", id),
        ("source", "/ftb/my%2Ecluster%3E"),
        ("type", "ftb.event"),
        ("subject", "node01"),
        ("ftbseverity", "ERROR"),
        ("ftbposition", "1-0000000000000000:5"),
    ] {
        assert_eq!(body[key], value, "{key}");
    }
    assert_eq!((&body["data"]["payload"], &body["data"]["uid"]), (&"full".into(), &0.into()));
}

#[test]
fn a_condition_and_a_gap_have_types_of_their_own() {
    let encoder = Encoder::new("c", 1 << 20);
    let stated = received("ftb.ipmi", Severity::Error, Some(Truth::True));
    let condition = body(&encoder.event(&stated).unwrap());
    assert_eq!(
        (&condition["type"], &condition["subject"]),
        (&"ftb.condition".into(), &"node07".into())
    );
    assert_eq!(condition["data"]["condition"]["key"], "LEAK");
    let range = ("1-0:5".parse().unwrap(), "1-0:9".parse().unwrap());
    let message = encoder.gap(&Gap::unknown(range, GapReason::Retention)).unwrap();
    assert_eq!((message.subject.as_str(), message.position), ("ftb.c.gap", range.1));
    let gap = body(&message);
    assert_eq!(
        (&gap["type"], &gap["id"]),
        (&"ftb.gap".into(), &format!("gap/{}/{}", range.0, range.1).into())
    );
    assert_eq!(gap["data"]["reason"], "retention");
}

#[test]
fn of_an_event_that_is_too_large_for_the_server_the_payload_is_left_out() {
    let encoder = Encoder::new("c", 8_192);
    let mut large = received("site", Severity::Error, None);
    large.event.payload = vec![0xff; 5_000].into();
    let message = encoder.event(&large).unwrap();
    assert!(message.body.len() < 4_096);
    let data = &body(&message)["data"];
    assert_eq!((&data["payload_omitted"], data.get("payload_hex")), (&5_000.into(), None));
}

#[test]
fn the_end_of_a_condition_is_exported_whatever_its_severity() {
    let spaces =
        [("ftb", Some(Severity::Error)), ("ftb.ib", Some(Severity::Info)), ("ftb.slurm", None)];
    let spaces = spaces.map(|(space, least)| (space.to_owned(), least)).to_vec();
    let choice = Choice { spaces, elsewhere: None };
    for (space, severity, truth, is_wanted) in [
        ("ftb.ipmi", Severity::Error, None, true),
        ("ftb.ipmi", Severity::Warning, None, false),
        ("FTB.ib.port", Severity::Info, None, true),
        ("ftbx", Severity::Fatal, None, false),
        ("ftb.slurm", Severity::Fatal, None, false),
        ("ftb.slurm", Severity::Info, Some(Truth::False), false),
        ("ftb.ipmi", Severity::Info, Some(Truth::True), false),
        ("ftb.ipmi", Severity::Info, Some(Truth::False), true),
        ("ftb.ipmi", Severity::Info, Some(Truth::Unknown), true),
        ("site", Severity::Info, Some(Truth::False), false),
    ] {
        let received = received(space, severity, truth);
        assert_eq!(choice.wants(&received), is_wanted, "{space} {severity} {truth:?}");
    }
}
