//! Statements of conditions that no signature proves, at an agent that demands signatures and at
//! one that does not.

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
use tokio::sync::oneshot;

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

/// Delivers statements, each marked as verified or not. `required`: whether the agent says that it
/// demands signatures.
async fn deliver(
    attachment: &mut Attachment,
    subscription: SubscriptionId,
    statements: &[(u64, Truth, bool)],
    required: Option<bool>,
) {
    let items = statements
        .iter()
        .map(|(seq, truth, _)| ((*seq).into(), fan(*seq, *truth).into()))
        .collect();
    let message = ToClient::Deliver { subscription, epoch: at(0).epoch, items };
    let Some(to_client::Message::Deliver(mut deliver)) = encode_to_client(message).message else {
        panic!("another message");
    };
    deliver.requires_signatures = required;
    let marks = statements.iter().zip(0..);
    deliver.verified = marks.filter(|((.., mark), _)| *mark).map(|(_, place)| place).collect();
    let message = Some(to_client::Message::Deliver(deliver));
    attachment.say(v1::ToClient { message }).await;
}

/// What counts of a table with these two statements and of changes behind it, before which the
/// agent may have said anew whether it demands signatures.
async fn followed(features: Features, required: Option<bool>) -> (Vec<Truth>, u64) {
    let (_dir, socket) = place();
    let client = client(&socket);
    let mut agent = Agent::start(&socket);
    let (loaded, is_loaded) = oneshot::channel();
    let opened = tokio::spawn(async move {
        let mut conditions = Conditions::open(&client, "").await.unwrap();
        conditions.load().await.unwrap();
        let state = |all: &Conditions| all.states().next().map(|state| state.truth);
        let mut truths = vec![state(&conditions).unwrap()];
        loaded.send(()).unwrap();
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
    deliver(&mut attachment, subscription, &table, None).await;
    let position = at(2);
    let end = ToClient::Covered { subscription, position, history_ended: true };
    attachment.say(encode_to_client(end)).await;
    // What the agent demands counts when the program reads the statement.
    soon(is_loaded).await.unwrap();
    let changes = [(3, Truth::False, false), (4, Truth::Unknown, true)];
    deliver(&mut attachment, subscription, &changes, required).await;
    soon(opened).await.unwrap()
}

#[tokio::test]
async fn a_statement_without_proof_counts_only_where_the_agent_demands_none() {
    let lenient = CLIENT_FEATURES.without(Features::SIGNED);
    let strict = followed(CLIENT_FEATURES, None).await;
    assert_eq!(strict, (vec![Truth::True, Truth::Unknown], 2));
    assert_eq!(followed(lenient, None).await, (vec![Truth::False, Truth::False], 0));
}

/// The configuration of the agent changes while the client is attached.
#[tokio::test]
async fn a_changed_demand_counts_from_the_delivery_on_that_states_it() {
    let lenient = CLIENT_FEATURES.without(Features::SIGNED);
    let stricter = followed(lenient, Some(true)).await;
    assert_eq!(stricter, (vec![Truth::False, Truth::Unknown], 1));
    let laxer = followed(CLIENT_FEATURES, Some(false)).await;
    assert_eq!(laxer, (vec![Truth::True, Truth::False], 1));
}
