//! Statements of conditions that no signature proves, at an agent that demands signatures and at one
//! that does not.

use super::scripted::{ACCOUNT, Agent, Attachment, at, soon, welcome};
use super::{activate, asked, client, place};
use ftb_client::{Condition, Conditions, Event, EventId, PublisherId, Severity, Truth};
use ftb_core::condition::Provenance;
use ftb_core::node::api::{SubscriptionId, ToClient};
use ftb_core::protocol::{CLIENT_FEATURES, Features};
use ftb_core::{OriginId, Sealed};
use ftb_proto::client::encode_to_client;
use ftb_proto::event::{Stamps, Stated, encode_event, seal_with};
use ftb_proto::v1::{self, to_client};

/// A statement of node9 about its fan.
fn fan(seq: u64, truth: Truth) -> Sealed {
    let mut event = Event::new("ftb.ipmi".parse().unwrap(), "FTB_IPMI_FANFAIL".parse().unwrap());
    (event.severity, event.time_ns) = (Severity::Error, seq);
    let publisher = PublisherId { account: ACCOUNT, token: 9 };
    let id = EventId { publisher, seq: seq.into() };
    let stamps = Stamps { id, host: "node9", uid: 0, pid: 1, republished: false };
    let condition = Condition { host: "node9".to_owned(), ..Condition::new("FANFAIL", truth) };
    let stated = Stated { condition, provenance: Provenance::direct(OriginId(3)) };
    seal_with(&stamps, &encode_event(&event), 1000, Some(&stated)).unwrap()
}

/// Delivers statements, each marked as verified or not.
async fn deliver(
    attachment: &mut Attachment,
    subscription: SubscriptionId,
    statements: &[(u64, Truth, bool)],
) {
    let items = statements
        .iter()
        .map(|(seq, truth, _)| ((*seq).into(), fan(*seq, *truth).into()))
        .collect();
    let message = ToClient::Deliver { subscription, epoch: at(0).epoch, items };
    let Some(to_client::Message::Deliver(mut deliver)) = encode_to_client(message).message else {
        panic!("another message");
    };
    let marks = statements.iter().zip(0..);
    deliver.verified = marks.filter(|((.., mark), _)| *mark).map(|(_, place)| place).collect();
    let message = Some(to_client::Message::Deliver(deliver));
    attachment.say(v1::ToClient { message }).await;
}

/// What counts of a table with these two statements and of a change behind it.
async fn followed(features: Features) -> (Vec<Truth>, u64) {
    let (_dir, socket) = place();
    let client = client(&socket);
    let mut agent = Agent::start(&socket);
    let opened = tokio::spawn(async move {
        let mut conditions = Conditions::open(&client, "").await.unwrap();
        conditions.load().await.unwrap();
        let state = |all: &Conditions| all.states().next().map(|state| state.truth);
        let mut truths = vec![state(&conditions).unwrap()];
        soon(conditions.changed()).await.unwrap();
        truths.extend(state(&conditions));
        (truths, conditions.unproven())
    });
    let mut attachment = agent.attachment().await;
    attachment.hello().await;
    let mut ack = welcome(1000);
    ack.features = features;
    attachment.say(ack.encode()).await;
    let (subscription, ..) = asked(&mut attachment).await;
    activate(&mut attachment, subscription, 0).await;
    let table = [(1, Truth::True, true), (2, Truth::False, false)];
    deliver(&mut attachment, subscription, &table).await;
    let position = at(2);
    let end = ToClient::Covered { subscription, position, history_ended: true };
    attachment.say(encode_to_client(end)).await;
    let changes = [(3, Truth::False, false), (4, Truth::Unknown, true)];
    deliver(&mut attachment, subscription, &changes).await;
    soon(opened).await.unwrap()
}

#[tokio::test]
async fn a_statement_without_proof_counts_only_where_the_agent_demands_none() {
    let strict = followed(CLIENT_FEATURES).await;
    assert_eq!(strict, (vec![Truth::True, Truth::Unknown], 2));
    let lenient = followed(CLIENT_FEATURES.without(Features::SIGNED)).await;
    assert_eq!(lenient, (vec![Truth::False, Truth::False], 0));
}
