//! Storm rules as a site would set them: a program that repeats itself, and one that is too loud,
//! beside events that no rule touches. Every event is accounted for at both ends.
#![allow(clippy::unwrap_used, missing_docs)]

use ftb_client::{Client, Delivery, EventBuilder, Receipt, Severity, Start, Unconfirmed, event};
use ftb_tests::cluster::{Cluster, PATIENCE, Plan};
use tokio::time::timeout;

const RULES: &str = "[detection]\nsearch = \"300ms\"\nprobe = \"200ms\"\n\
     [[storm]]\nspace = \"ftb.test.noise\"\nfold = \"500ms\"\n\
     [[storm]]\nspace = \"ftb.test.loud\"\nevents_per_s = 100\nburst = 100\n";

async fn cluster() -> (Cluster, Client, Client) {
    let cluster = Plan::new(3, 2).extra(RULES).start().await.unwrap();
    let attach = |rank| Client::builder("test").agent(cluster.socket(rank)).build().unwrap();
    let (publisher, subscriber) = (attach(1), attach(2));
    (cluster, publisher, subscriber)
}

async fn publish(publisher: &Client, event: EventBuilder) -> Receipt {
    timeout(PATIENCE, publisher.publish_wait(event)).await.unwrap().unwrap()
}

async fn outcome(receipt: Receipt) -> Result<(), Unconfirmed> {
    timeout(PATIENCE, receipt.confirmed()).await.unwrap().map(drop)
}

#[tokio::test]
async fn a_program_that_repeats_itself_becomes_few_events_that_say_how_many() {
    const REPEATS: u64 = 5_000;
    let (_cluster, publisher, subscriber) = cluster().await;
    let mut heard = subscriber.subscribe("event_space=ftb.test.noise", Start::Now).await.unwrap();
    let mut receipts = Vec::new();
    for number in 1..=REPEATS {
        let flap = event("ftb.test.noise", "LINK_FLAPS").unwrap().severity(Severity::Warning);
        receipts.push(publish(&publisher, flap.payload(number.to_string())).await);
        if number % 1_000 == 0 {
            let lost = event("ftb.test.noise", "LINK_LOST").unwrap().severity(Severity::Error);
            receipts.push(publish(&publisher, lost.payload(number.to_string())).await);
        }
    }
    let (mut flaps, mut deliveries, mut errors) = (0, 0, 0);
    while flaps < REPEATS || errors < REPEATS / 1_000 {
        let next = timeout(PATIENCE, heard.next()).await.unwrap();
        let Some(Delivery::Event(received)) = next else { panic!("{next:?} is no event") };
        let payload: u64 = String::from_utf8_lossy(&received.event.payload).parse().unwrap();
        if received.event.severity == Severity::Error {
            assert_eq!(received.folded, None, "no rule touches an ERROR");
            errors += 1;
            assert_eq!(flaps, payload, "what was said before it comes before it");
            continue;
        }
        deliveries += 1;
        flaps += received.folded.as_ref().map_or(1, |folded| folded.count);
        assert_eq!(flaps, payload, "a fold is the last event in it and counts all");
    }
    assert_eq!((flaps, errors), (REPEATS, REPEATS / 1_000));
    // The first alone, then folds of 512 at the most, each cut where an ERROR or a window ends.
    assert!(deliveries < REPEATS / 20, "{deliveries} deliveries for {REPEATS} events");
    for receipt in receipts {
        assert_eq!(outcome(receipt).await, Ok(()));
    }
}

#[tokio::test]
async fn each_rate_limited_event_is_rejected_and_subscribers_get_their_number() {
    const EVENTS: u64 = 2_000;
    let (_cluster, publisher, subscriber) = cluster().await;
    let filter = "event_space=ftb.test.loud";
    let mut heard = subscriber.subscribe(filter, Start::Now).await.unwrap();
    let limited = "event_name=FTB_PUBLISHER_LIMITED";
    let mut limited = subscriber.subscribe(limited, Start::Now).await.unwrap();
    let mut receipts = Vec::new();
    for number in 1..=EVENTS {
        let cry = event("ftb.test.loud", "CRY").unwrap().payload(number.to_string());
        receipts.push(publish(&publisher, cry).await);
    }
    let fatal = event("ftb.test.loud", "END").unwrap().severity(Severity::Fatal);
    assert_eq!(outcome(publish(&publisher, fatal).await).await, Ok(()), "no rule touches it");
    let mut refused = 0;
    for receipt in receipts {
        match outcome(receipt).await {
            Ok(()) => {}
            Err(Unconfirmed::Refused { code, .. }) if code == "rate" => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(0 < refused && refused < EVENTS, "{refused} of {EVENTS} were refused");
    let (mut came, mut missing, mut fatals) = (0, 0, 0);
    while came + missing < EVENTS || fatals == 0 {
        match timeout(PATIENCE, heard.next()).await.unwrap().unwrap() {
            Delivery::Event(event) if event.event.severity == Severity::Fatal => fatals += 1,
            Delivery::Event(_) => came += 1,
            Delivery::Gap(gap) => {
                assert_eq!(gap.severity_max, Some(Severity::Info), "{gap:?}");
                missing += gap.count.unwrap_or(0);
            }
        }
    }
    assert_eq!((came, missing), (EVENTS - refused, refused));
    let who = timeout(PATIENCE, limited.next()).await.unwrap();
    assert!(
        matches!(&who, Some(Delivery::Event(event)) if event.event.severity == Severity::Warning),
        "{who:?}"
    );
}
