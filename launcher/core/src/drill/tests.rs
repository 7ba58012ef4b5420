//! Drills and answers survive their encoding; other events are refused with a reason.

#![allow(clippy::unwrap_used)]

use super::*;
use ftb_core::catalog::names;
use ftb_core::numbers::PublisherSeq;
use ftb_core::{EventKind, PublisherId, Tag};

const ID: EventId =
    EventId { publisher: PublisherId { account: 1, token: 2 }, seq: PublisherSeq::new(3) };

fn drill(node: Option<&str>, condition: Option<&str>) -> Drill {
    Drill {
        number: DrillId(42),
        fault: (EventSpace::new("ftb.ipmi").unwrap(), EventName::new("FTB_IPMI_FANFAIL").unwrap()),
        severity: Severity::Error,
        condition: condition.map(str::to_owned),
        node: node.map(|node| NodeName::new(node).unwrap()),
        from: node.map(|_| NodeName::new("mgmt1").unwrap()),
        job: "solver".to_owned(),
    }
}

#[test]
fn drills_survive_their_encoding_in_either_space() {
    for own in [true, false] {
        for drill in [drill(Some("node03"), Some("FANFAIL")), drill(None, None)] {
            let event = to_drill(&drill, own);
            assert_eq!(from_drill(&event), Ok(drill));
            assert_eq!(event.space.as_str(), if own { SPACE_OF_JOB } else { SPACE });
            assert!(event.check(1 << 16).is_ok());
        }
    }
}

#[test]
fn a_malformed_drill_is_refused_by_the_name_of_its_tag() {
    let whole = to_drill(&drill(Some("node03"), Some("FANFAIL")), false);
    let wrong = [
        ("drill", "no number"),
        ("fault", "FTB_IPMI_FANFAIL"),
        ("severity", "loud"),
        ("condition", "A B"),
        ("node", "../etc"),
        ("from", "a b"),
    ];
    for (key, value) in wrong {
        let mut event = whole.clone();
        event.tags.retain(|tag| tag.key != key);
        event.tags.push(Tag { key: key.to_owned(), value: value.to_owned() });
        assert!(from_drill(&event).is_err(), "{key}={value}");
    }
    let mut bare = whole;
    bare.tags.clear();
    assert_eq!(from_drill(&bare), Err("tag fault is missing".to_owned()));
}

#[test]
fn answers_survive_their_encoding_and_name_their_drill() {
    for choice in Choice::ALL {
        let of = |text: &str| Some(NodeName::new(text).unwrap());
        let whole = DrillAnswer {
            number: DrillId(42),
            node: of("node03"),
            choice,
            rule: Some("fan failed".to_owned()),
            target: of("node05"),
            words: "would migrate".to_owned(),
            checked: BTreeSet::from([DrillCheck::Publisher]),
            unchecked: Some("it is not signed".to_owned()),
            braked: Some(Brake::Breaker),
        };
        let bare = DrillAnswer::without_rule(whole.number, None, choice, String::new());
        for known in [whole, bare] {
            let event = answer(&known, ID);
            assert_eq!(from_answer(&event), Ok(known));
            assert_eq!(event.kind, EventKind::Response(Some(ID)));
            assert_eq!(event.name.as_str(), names::FTB_DRILL_ANSWER);
        }
    }
}

#[test]
fn answers_of_other_releases_are_read() {
    let words = "would migrate".to_owned();
    let known = DrillAnswer::without_rule(DrillId(42), None, Choice::Migrate, words);
    let mut later = answer(&known, ID);
    later.tags.retain(|tag| tag.key != "choice");
    assert!(from_answer(&later).is_err(), "there is none");
    let mut tag = |key: &str, value: &str| {
        later.tags.push(Tag { key: key.to_owned(), value: value.to_owned() });
    };
    tag("choice", "shrink");
    tag("checked", "weather publisher");
    let checked = BTreeSet::from([DrillCheck::Publisher]);
    assert_eq!(from_answer(&later), Ok(DrillAnswer { choice: Choice::Other, checked, ..known }));
}
