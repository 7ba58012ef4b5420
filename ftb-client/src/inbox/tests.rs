//! What a subscription gives its reader, through interruptions, slowness and merges.
#![allow(clippy::unwrap_used)]
use super::*;
use bytes::Bytes;
use ftb_core::Spaces;
use ftb_core::node::api::{GapReason, ToClient};
use ftb_core::{Epoch, Event, EventId, OriginId, PublisherId, Sealed, Severity};
use ftb_proto::client::{FromAgent, encode_to_client};
use ftb_proto::event::{Stamps, encode_event, seal};
use prost::Message as _;

fn at(index: u64) -> Position {
    let epoch = Epoch { number: 1, root: OriginId(1) };
    Position { epoch, index: index.into() }
}

/// As they come from an agent.
fn batch(items: Vec<(u64, Sealed)>) -> EventBatch {
    let (subscription, epoch) = (SubscriptionId(1), at(0).epoch);
    let items = items.into_iter().map(|(index, sealed)| (index.into(), sealed.into())).collect();
    let message = encode_to_client(ToClient::Deliver { subscription, epoch, items });
    match FromAgent::decode(message.encode_to_vec().into()).unwrap() {
        FromAgent::Deliver { events, .. } => events,
        other => panic!("{other:?} delivers nothing"),
    }
}

fn item(index: u64) -> (u64, Sealed) {
    let mut event = Event::new("ftb.test".parse().unwrap(), "X".parse().unwrap());
    event.payload = Bytes::from(vec![0; 100]);
    let publisher = PublisherId { account: 1, token: 2 };
    let stamps = Stamps {
        id: EventId { publisher, seq: index.into() },
        host: "node1",
        uid: 0,
        pid: 1,
        republished: false,
    };
    (index, seal(&stamps, &encode_event(&event), 100).unwrap())
}

fn asked(inbox: &mut Inbox) -> (SubscriptionId, Start) {
    match inbox.take() {
        Some(FromClient::Subscribe { subscription, start, .. }) => (subscription, start),
        other => panic!("{other:?} is no subscribe"),
    }
}

fn indices_of(delivery: Option<Queued>) -> Vec<u64> {
    match delivery {
        Some(Queued::Events(events)) => {
            events.iter().map(|event| event.position().index.get()).collect()
        }
        _ => Vec::new(),
    }
}

fn indices(inbox: &mut Inbox, key: Key) -> Vec<u64> {
    let mut indices = Vec::new();
    while let (Some(Queued::Events(events)), _) = inbox.pop(key) {
        indices.extend(events.iter().map(|event| event.position().index.get()));
    }
    indices
}

#[test]
fn it_goes_on_behind_its_last_position_without_copies() {
    let mut inbox = Inbox::new(1 << 20);
    let key = inbox.add(String::new(), Start::Now).unwrap();
    let (id, start) = asked(&mut inbox);
    assert_eq!(start, Start::Now);
    inbox.subscribed(id, at(4));
    inbox.deliver(id, batch(vec![item(5), item(7)]));
    inbox.attached();
    let (new, start) = asked(&mut inbox);
    assert_eq!(start, Start::After(at(7)));
    inbox.subscribed(new, at(6));
    // The log was cut back to before 7, which comes again at another place.
    let (_, seven) = item(7);
    inbox.deliver(new, batch(vec![(8, seven), item(9)]));
    // And once more, with what has come since.
    let (_, nine) = item(9);
    inbox.deliver(new, batch(vec![(12, nine), item(13)]));
    assert_eq!(indices(&mut inbox, key), [5, 7, 9, 13]);
    assert_eq!(inbox.counts().copies, 2);
}

#[test]
fn an_event_older_than_one_delivered_of_its_publisher_becomes_a_gap() {
    let come = |inbox: &mut Inbox, id, items: &[(u64, u64)]| {
        let items = items.iter().map(|(index, seq)| (*index, item(*seq).1));
        inbox.deliver(id, batch(items.collect()));
    };
    // The second event alone is more than the queue may hold: it is paused, and the gap not lost.
    for queue_bytes_max in [1 << 20, 1] {
        let mut inbox = Inbox::new(queue_bytes_max);
        let key = inbox.add(String::new(), Start::Now).unwrap();
        let (id, _) = asked(&mut inbox);
        inbox.subscribed(id, at(0));
        come(&mut inbox, id, &[(1, 7), (2, 5), (3, 8), (4, 6), (5, 9)]);
        assert_eq!(indices_of(inbox.pop(key).0), [1, 3, 5]);
        let Some(Queued::Gap(gap)) = inbox.pop(key).0 else { panic!("no gap") };
        assert_eq!((gap.after, gap.until, gap.reason), (at(1), at(5), GapReason::Late));
        assert_eq!((gap.count, gap.severity_max), (Some(2), Some(Severity::Info)));
        assert_eq!(gap.spaces, Spaces::of("ftb.test"));
        assert_eq!((inbox.counts().overtaken, inbox.counts().gaps), (2, 1));
        // A batch that is all late leaves the gap alone; a gap is reported once.
        inbox.attached();
        let (id, _) = asked(&mut inbox);
        inbox.subscribed(id, at(5));
        come(&mut inbox, id, &[(6, 5), (7, 4)]);
        let Some(Queued::Gap(gap)) = inbox.pop(key).0 else { panic!("no gap") };
        assert_eq!((gap.after, gap.until, gap.count), (at(6), at(7), Some(1)));
        assert_eq!(inbox.counts().copies, 1);
        assert!(inbox.pop(key).0.is_none());
    }
}

/// Events of one publisher whose numbers follow each other are noted together: here old ones lead
/// to new ones.
#[test]
fn of_a_run_that_begins_behind_newer_events_only_the_beginning_is_late() {
    let mut inbox = Inbox::new(1 << 20);
    let key = inbox.add(String::new(), Start::Now).unwrap();
    let (id, _) = asked(&mut inbox);
    inbox.subscribed(id, at(0));
    let come = |inbox: &mut Inbox, items: Vec<(u64, u64)>| {
        let items = items.into_iter().map(|(index, seq)| (index, item(seq).1));
        inbox.deliver(id, batch(items.collect()));
    };
    come(&mut inbox, vec![(1, 7), (2, 8), (3, 9)]);
    assert_eq!(indices(&mut inbox, key), [1, 2, 3]);
    come(&mut inbox, (4..=10).zip(7..).collect());
    assert_eq!(indices_of(inbox.pop(key).0), [7, 8, 9, 10]);
    let Some(Queued::Gap(gap)) = inbox.pop(key).0 else { panic!("no gap") };
    assert_eq!((gap.after, gap.until, gap.count), (at(3), at(10), Some(3)));
    come(&mut inbox, vec![(11, 13), (12, 14)]);
    assert_eq!(indices(&mut inbox, key), [12], "the newest was noted");
}

#[test]
fn events_before_the_position_in_an_epoch_are_not_repeated() {
    let mut inbox = Inbox::new(1 << 20);
    let key = inbox.add(String::new(), Start::Now).unwrap();
    let (id, _) = asked(&mut inbox);
    inbox.subscribed(id, at(4));
    inbox.deliver(id, batch(vec![item(5), item(8)]));
    // The agent went to another log and came back: to a place before the beginning.
    inbox.deliver(id, batch(vec![item(3), item(4), item(7)]));
    inbox.deliver(id, batch(vec![item(8), item(9)]));
    assert_eq!(indices(&mut inbox, key), [5, 8, 9]);
    assert_eq!((inbox.counts().copies, inbox.counts().gaps), (4, 0));
}

#[test]
fn who_looks_back_gets_the_past_as_it_was_logged() {
    let mut inbox = Inbox::new(1 << 20);
    let key = inbox.add(String::new(), Start::SinceNs(9)).unwrap();
    let (id, _) = asked(&mut inbox);
    inbox.subscribed(id, at(3));
    let logged = |index, seq| (index, item(seq).1);
    inbox.deliver(id, batch(vec![logged(1, 7), logged(2, 5), logged(3, 6)]));
    assert_eq!(indices(&mut inbox, key), [1, 2, 3]);
    inbox.covered(id, at(3), true, 0);
    inbox.deliver(id, batch(vec![logged(4, 4), logged(5, 8)]));
    let queued: Vec<Queued> = std::iter::from_fn(|| inbox.pop(key).0).collect();
    let [Queued::HistoryEnd, Queued::Events(events), Queued::Gap(gap)] = &queued[..] else {
        panic!("{queued:?}")
    };
    assert_eq!((events.len(), gap.count, gap.reason), (1, Some(1), GapReason::Late));
}

#[test]
fn before_it_was_active_it_begins_again_as_asked() {
    let mut inbox = Inbox::new(1 << 20);
    inbox.add(String::new(), Start::SinceNs(9)).unwrap();
    asked(&mut inbox);
    inbox.attached();
    assert_eq!(asked(&mut inbox).1, Start::SinceNs(9));
}

#[test]
fn a_past_that_has_not_come_yet_is_asked_for_again() {
    for start in [Start::SinceNs(9), Start::After(at(2))] {
        let mut inbox = Inbox::new(1 << 20);
        let key = inbox.add(String::new(), start).unwrap();
        let (id, _) = asked(&mut inbox);
        inbox.subscribed(id, at(4));
        inbox.attached();
        let (id, again) = asked(&mut inbox);
        assert_eq!(again, start, "active behind 4, and nothing of the past has come");
        inbox.subscribed(id, at(5));
        inbox.deliver(id, batch(vec![item(3)]));
        inbox.attached();
        assert_eq!(asked(&mut inbox).1, Start::After(at(3)));
        assert_eq!(indices(&mut inbox, key), [3]);
    }
}

#[test]
fn active_without_events_it_goes_on_from_there() {
    let mut inbox = Inbox::new(1 << 20);
    inbox.add(String::new(), Start::Now).unwrap();
    let (id, _) = asked(&mut inbox);
    inbox.subscribed(id, at(4));
    inbox.attached();
    assert_eq!(asked(&mut inbox).1, Start::After(at(4)));
}

#[test]
fn a_slow_reader_is_paused_and_resumed_where_it_was() {
    let cost = Queued::Events(batch(vec![item(1)])).cost();
    let mut inbox = Inbox::new(2 * cost);
    let key = inbox.add(String::new(), Start::Now).unwrap();
    let (old, _) = asked(&mut inbox);
    inbox.subscribed(old, at(0));
    assert!(inbox.take().is_none());
    for index in 1..=3 {
        inbox.deliver(old, batch(vec![item(index)]));
    }
    assert_eq!(inbox.take(), Some(FromClient::Unsubscribe(old)));
    // In sent when the client unsubscribed: the log delivers it again.
    inbox.deliver(old, batch(vec![item(4)]));
    assert!(inbox.take().is_none(), "nothing is asked while it is full");
    assert!(!inbox.pop(key).1);
    assert!(inbox.pop(key).1, "half empty: the client subscribes again");
    let (new, start) = asked(&mut inbox);
    assert!(new != old && start == Start::After(at(3)));
    inbox.subscribed(new, at(3));
    inbox.deliver(new, batch(vec![item(4)]));
    assert_eq!(indices(&mut inbox, key), [3, 4]);
    assert_eq!((inbox.counts().late, inbox.counts().paused), (1, 1));
}

#[test]
fn unread_gaps_are_bounded() {
    let mut inbox = Inbox::new(3 * DELIVERY_BYTES);
    let key = inbox.add(String::new(), Start::Now).unwrap();
    let (id, _) = asked(&mut inbox);
    inbox.subscribed(id, at(1));
    for index in 1..100 {
        let (after, until) = (at(index), at(index + 1));
        inbox.gap(
            id,
            Gap {
                after,
                until,
                reason: GapReason::Shed,
                count: Some(1),
                severity_max: None,
                spaces: Spaces::ANY,
            },
        );
    }
    assert_eq!(inbox.take(), Some(FromClient::Unsubscribe(id)));
    let queued: Vec<Queued> = std::iter::from_fn(|| inbox.pop(key).0).collect();
    assert_eq!(queued.len(), 4);
    assert_eq!(asked(&mut inbox).1, Start::After(at(5)));
}

#[test]
fn a_gap_moves_the_position_and_a_refusal_ends_it() {
    let mut inbox = Inbox::new(1 << 20);
    let key = inbox.add(String::new(), Start::Now).unwrap();
    let (id, _) = asked(&mut inbox);
    inbox.subscribed(id, at(1));
    let gap = Gap {
        after: at(1),
        until: at(9),
        reason: GapReason::Shed,
        count: Some(8),
        severity_max: None,
        spaces: Spaces::ANY,
    };
    let until = Position::ZERO;
    inbox.gap(id, Gap { after: Position::ZERO, until, count: None, ..gap.clone() });
    inbox.gap(id, gap.clone());
    assert!(matches!(inbox.pop(key).0, Some(Queued::Gap(queued)) if queued == gap));
    assert_eq!(inbox.take(), None);
    inbox.attached();
    let (id, start) = asked(&mut inbox);
    assert_eq!(start, Start::After(at(9)));
    inbox.refused(id, SubscribeError::Closed);
    inbox.attached();
    assert!(inbox.take().is_none(), "what was refused is not asked again");
    assert_eq!(inbox.entry(key).unwrap().ended(), Some(&SubscribeError::Closed));
}

/// The agent has gone back in its log: an empty gap, of unknown count.
#[test]
fn a_reader_of_the_table_learns_that_statements_have_left_the_log() {
    let mut inbox = Inbox::new(1 << 20);
    let key = inbox.add(String::new(), Start::Conditions).unwrap();
    let (id, _) = asked(&mut inbox);
    inbox.subscribed(id, at(1));
    inbox.covered(id, at(5), true, 0);
    assert!(matches!(inbox.pop(key).0, Some(Queued::HistoryEnd)));
    let back = Gap::unknown((at(3), at(3)), GapReason::LogLost);
    inbox.gap(id, Gap { count: Some(0), ..back.clone() });
    assert!(inbox.pop(key).0.is_none(), "nothing is missing");
    inbox.gap(id, back.clone());
    assert!(matches!(inbox.pop(key).0, Some(Queued::Gap(queued)) if queued == back));
}

#[test]
fn a_quiet_subscription_resumes_from_where_it_is_covered_and_its_past_ends_once() {
    let mut inbox = Inbox::new(1 << 20);
    let key = inbox.add(String::new(), Start::SinceNs(1)).unwrap();
    let (id, _) = asked(&mut inbox);
    inbox.subscribed(id, at(4));
    inbox.deliver(id, batch(vec![item(3)]));
    inbox.covered(id, at(4), true, 0);
    inbox.covered(id, at(900), false, 0);
    inbox.attached();
    let (id, start) = asked(&mut inbox);
    assert_eq!(start, Start::After(at(900)));
    // What it resumes over is a past too, but not the one that it was asked for.
    inbox.covered(id, at(901), true, 0);
    let queued: Vec<Queued> = std::iter::from_fn(|| inbox.pop(key).0).collect();
    assert!(matches!(queued[..], [Queued::Events(_), Queued::HistoryEnd]), "{queued:?}");
}

#[test]
fn a_dropped_reader_is_taken_back_and_bounds_hold() {
    let mut inbox = Inbox::new(1 << 20);
    let key = inbox.add(String::new(), Start::Now).unwrap();
    let (id, _) = asked(&mut inbox);
    inbox.remove(key);
    assert_eq!(inbox.take(), Some(FromClient::Unsubscribe(id)));
    inbox.deliver(id, batch(vec![item(1)]));
    assert_eq!(inbox.counts().late, 1);
    for _ in 0..SUBSCRIPTIONS_MAX {
        inbox.add(String::new(), Start::Now).unwrap();
    }
    assert!(inbox.add(String::new(), Start::Now).is_err());
}
