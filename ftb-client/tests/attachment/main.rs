//! A client and the other end of its socket: everything that the two say to each other, and what
//! happens when one of them stops in the middle.
#![allow(clippy::unwrap_used, missing_docs)]

mod proofs;
mod room;
mod scripted;

use ftb_client::{
    Client, Delivery, Event, EventBuilder, EventRef, Gap, GapReason, PublishError, Severity, Start,
    SubscribeError, Unconfirmed, WaitError, blocking, event,
};
use ftb_core::node::api::RejectCode;
use ftb_core::node::api::{RefusedWhat, SubscriptionId, ToClient};
use ftb_proto::client::{FromClient, encode_close, encode_nack, encode_to_client};
use ftb_proto::event::decode_event;
use scripted::{ACCOUNT, Agent, Attachment, PATIENCE, at, sealed, soon, welcome};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("agent.sock");
    (dir, socket)
}

fn client(socket: &PathBuf) -> Client {
    Client::builder("test").agent(socket).job_id("j7").build().unwrap()
}

fn said(text: &str) -> EventBuilder {
    event("ftb.test", "SAID").unwrap().payload(text.to_owned())
}

fn confirmed(seq: u64) -> ftb_proto::v1::ToClient {
    encode_to_client(ToClient::Confirmed { seq: seq.into(), level: None })
}

fn deliver(subscription: SubscriptionId, indices: &[u64]) -> ftb_proto::v1::ToClient {
    let items = indices.iter().map(|index| ((*index).into(), sealed(*index).into())).collect();
    encode_to_client(ToClient::Deliver { subscription, epoch: at(0).epoch, items })
}

async fn asked(attachment: &mut Attachment) -> (SubscriptionId, String, Start) {
    match attachment.next().await {
        Some(FromClient::Subscribe { subscription, filter, start }) => {
            (subscription, filter, start)
        }
        other => panic!("{other:?} subscribes to nothing"),
    }
}

async fn activate(attachment: &mut Attachment, subscription: SubscriptionId, index: u64) {
    let active = ToClient::Subscribed { subscription, active_after: at(index) };
    attachment.say(encode_to_client(active)).await;
}

fn text_of(delivery: Option<Delivery>) -> String {
    match delivery {
        Some(Delivery::Event(received)) => String::from_utf8_lossy(&received.event.payload).into(),
        other => panic!("{other:?} is no event"),
    }
}

#[tokio::test]
async fn what_is_published_before_an_agent_is_there_arrives_in_order_and_is_confirmed() {
    let (_dir, socket) = place();
    let client = client(&socket);
    let first = client.publish(said("a")).unwrap();
    let second = client.publish(said("b").severity(Severity::Fatal)).unwrap();
    let mut agent = Agent::start(&socket);
    let mut attachment = agent.attachment().await;
    let hello = attachment.hello().await;
    assert_eq!((hello.client_name.as_str(), hello.job_id.as_str()), ("test", "j7"));
    attachment.say(welcome(1000).encode()).await;
    let expected = [(1, false, "a".to_owned()), (2, false, "b".to_owned())];
    assert_eq!(attachment.published(2).await, expected);
    attachment.say(confirmed(2)).await;
    let id = soon(first.confirmed()).await.unwrap();
    assert_eq!((id.publisher.account, id.publisher.token, id.seq.get()), (ACCOUNT, hello.token, 1));
    assert_eq!(soon(second.confirmed()).await.unwrap().seq, 2.into());
    assert_eq!(client.stats().confirmed, 2);
}

#[tokio::test]
async fn a_client_that_is_turned_away_learns_why_and_goes_on_trying() {
    let (_dir, socket) = place();
    let client = client(&socket);
    let refused = tokio::spawn(client.refused());
    let mut agent = Agent::start(&socket);
    let mut attachment = agent.attachment().await;
    attachment.hello().await;
    attachment.say(encode_nack(RejectCode::Limit, "it is full")).await;
    let why = soon(refused).await.unwrap().unwrap();
    assert!(why.contains("(limit): it is full"), "{why}");
    assert_eq!(soon(client.refused()).await.unwrap(), why, "that stands");
    drop(attachment);
    let _attachment = agent.welcomed().await;
    client.wait_connected(PATIENCE).await.unwrap();
    let never = tokio::spawn(client.refused());
    drop(client);
    agent.kill().await;
    assert_eq!(soon(never).await.unwrap(), None);
}

#[tokio::test]
async fn what_was_not_confirmed_is_handed_to_the_next_agent_again() {
    let (_dir, socket) = place();
    let client = client(&socket);
    let mut agent = Agent::start(&socket);
    let mut attachment = agent.welcomed().await;
    let receipts = ["a", "b", "c"].map(|text| client.publish(said(text)).unwrap());
    attachment.published(3).await;
    attachment.say(confirmed(1)).await;
    let [first, _, last] = receipts;
    assert!(soon(first.confirmed()).await.is_ok());
    agent.kill().await;
    drop(attachment);
    let mut agent = Agent::start(&socket);
    let mut attachment = agent.welcomed().await;
    let expected = [(2, true, "b".to_owned()), (3, true, "c".to_owned())];
    assert_eq!(attachment.published(2).await, expected);
    let newer = client.publish(said("d")).unwrap();
    assert_eq!(attachment.published(1).await, [(4, false, "d".to_owned())]);
    attachment.say(confirmed(4)).await;
    assert_eq!(soon(last.confirmed()).await.unwrap().seq, 3.into());
    assert_eq!(soon(newer.confirmed()).await.unwrap().seq, 4.into());
    assert_eq!(client.stats().attachments, 2);
}

#[tokio::test]
async fn a_subscription_is_there_when_it_is_active_and_goes_on_after_a_restart() {
    let (_dir, socket) = place();
    let client = client(&socket);
    let mut agent = Agent::start(&socket);
    let mut attachment = agent.welcomed().await;
    let subscribing = tokio::spawn({
        let client = client.clone();
        async move { client.subscribe("severity>=info", Start::Now).await }
    });
    let (id, filter, start) = asked(&mut attachment).await;
    assert_eq!((filter.as_str(), start), ("severity>=info", Start::Now));
    assert!(!subscribing.is_finished());
    activate(&mut attachment, id, 3).await;
    let mut subscription = soon(subscribing).await.unwrap().unwrap();
    assert_eq!(subscription.position(), at(3));
    assert_eq!(subscription.try_next(), None);
    attachment.say(deliver(id, &[4, 6])).await;
    assert_eq!(text_of(soon(subscription.next()).await), "event 4");
    assert_eq!(subscription.position(), at(4), "the other one was not given yet");
    agent.kill().await;
    drop(attachment);
    let mut agent = Agent::start(&socket);
    let mut attachment = agent.welcomed().await;
    let (id, _, start) = asked(&mut attachment).await;
    assert_eq!(start, Start::After(at(6)));
    activate(&mut attachment, id, 6).await;
    let gap = Gap {
        after: at(6),
        until: at(8),
        reason: GapReason::Retention,
        count: Some(2),
        severity_max: Some(Severity::Error),
        spaces: ftb_core::Spaces::of("ftb.test"),
    };
    attachment.say(encode_to_client(ToClient::Gap { subscription: id, gap: gap.clone() })).await;
    attachment.say(deliver(id, &[9])).await;
    assert_eq!(text_of(soon(subscription.next()).await), "event 6");
    assert_eq!(soon(subscription.next()).await, Some(Delivery::Gap(gap)));
    assert_eq!(text_of(soon(subscription.next()).await), "event 9");
    drop(subscription);
    assert_eq!(attachment.next().await, Some(FromClient::Unsubscribe(id)));
}

#[tokio::test]
async fn a_wrong_filter_never_leaves_the_client_and_a_refusal_says_why() {
    let (_dir, socket) = place();
    let client = client(&socket);
    let wrong = client.subscribe("severity>>error", Start::Now).await.unwrap_err();
    assert!(matches!(&wrong, SubscribeError::Filter(error) if error.column > 1), "{wrong}");
    let mut agent = Agent::start(&socket);
    let mut attachment = agent.welcomed().await;
    let agent_side = async {
        let (id, ..) = asked(&mut attachment).await;
        let what = RefusedWhat::Subscription(id);
        let message = "not yours".to_owned();
        let refused = ToClient::Refused { what, code: RejectCode::Denied, message };
        attachment.say(encode_to_client(refused)).await;
    };
    let subscribing = client.subscribe("event_space=ftb.secret", Start::Now);
    let (refused, ()) = soon(async { tokio::join!(subscribing, agent_side) }).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("denied") && refused.contains("not yours"), "{refused}");
}

#[tokio::test]
async fn an_event_over_a_bound_is_refused_before_it_is_sent() {
    let (_dir, socket) = place();
    let client = client(&socket);
    let mut agent = Agent::start(&socket);
    let mut attachment = agent.attachment().await;
    attachment.hello().await;
    attachment.say(welcome(10).encode()).await;
    soon(client.wait_connected(PATIENCE)).await.unwrap();
    let error = client.publish(said("eleven long")).unwrap_err();
    assert_eq!(error.to_string(), "the payload has 11 bytes: at most 10 are allowed");
    let refused = client.publish(said("denied")).unwrap();
    attachment.published(1).await;
    let what = RefusedWhat::Events { first: 1.into(), last: 1.into() };
    let message = "not yours".to_owned();
    let reported = ToClient::Refused { what, code: RejectCode::Denied, message };
    attachment.say(encode_to_client(reported)).await;
    let outcome = soon(refused.confirmed()).await;
    assert!(matches!(outcome, Err(Unconfirmed::Refused { code, .. }) if code == "denied"));
    soon(client.flush(PATIENCE)).await.unwrap();
}

#[tokio::test]
async fn without_an_agent_waiting_says_where_and_why() {
    let (_dir, socket) = place();
    let client = client(&socket);
    let shortly = Duration::from_millis(50);
    let error = client.wait_connected(shortly).await.unwrap_err().to_string();
    assert!(error.starts_with("no agent at ") && error.contains("agent.sock"), "{error}");
    let _ = client.publish(said("kept")).unwrap();
    assert!(matches!(client.flush(shortly).await, Err(WaitError::NoAgent { .. })));
    let mut agent = Agent::start(&socket);
    let mut attachment = agent.attachment().await;
    attachment.hello().await;
    attachment.say(encode_nack(RejectCode::Protocol, "speak version 9")).await;
    drop(attachment);
    let mut attachment = agent.attachment().await;
    let refused = client.wait_connected(Duration::ZERO).await.unwrap_err();
    assert!(matches!(&refused, WaitError::Refused { code, .. } if code == "protocol"));
    let error = refused.to_string();
    assert!(error.starts_with("the agent at ") && error.contains("speak version 9"), "{error}");
    attachment.hello().await;
    attachment.say(welcome(10).encode()).await;
    soon(client.wait_connected(PATIENCE)).await.unwrap();
}

#[tokio::test]
async fn an_agent_that_talks_nonsense_or_leaves_is_left_and_found_again() {
    let (_dir, socket) = place();
    let client = client(&socket);
    let mut agent = Agent::start(&socket);
    let mut attachment = agent.welcomed().await;
    let receipt = client.publish(said("a")).unwrap();
    attachment.published(1).await;
    let mut nonsense = deliver(SubscriptionId(1), &[1]);
    if let Some(ftb_proto::v1::to_client::Message::Deliver(deliver)) = &mut nonsense.message {
        deliver.items[0].sealed = vec![vec![0xff; 9].into()];
    }
    attachment.say(nonsense).await;
    let mut attachment = agent.welcomed().await;
    assert_eq!(attachment.published(1).await, [(1, true, "a".to_owned())]);
    attachment.say(encode_close("restarting")).await;
    let mut attachment = agent.welcomed().await;
    assert_eq!(attachment.published(1).await, [(1, true, "a".to_owned())]);
    attachment.say(confirmed(1)).await;
    assert!(soon(receipt.confirmed()).await.is_ok());
}

#[tokio::test]
async fn who_asks_what_became_of_an_event_has_the_agent_say_it_at_once() {
    let (_dir, socket) = place();
    let client = client(&socket);
    let mut agent = Agent::start(&socket);
    let mut attachment = agent.welcomed().await;
    let asked = |delayed| Some(FromClient::DelayAcks { delayed });
    let mut published = 0;
    // The program does not ask for confirmations: the client reports that to the agent, once.
    let delayed = loop {
        published += 1;
        let _ = client.publish(said("x")).unwrap();
        match attachment.next().await {
            Some(FromClient::Publish { .. }) => assert!(published < 1_000),
            other => break other,
        }
    };
    assert_eq!(delayed, asked(true));
    assert_eq!(attachment.published(1).await.len(), 1);
    // A flush waits, and so does who holds a receipt.
    {
        let flush = client.flush(PATIENCE);
        tokio::pin!(flush);
        let hurried = tokio::select! {
            _ = &mut flush => panic!("nothing is confirmed"),
            message = attachment.next() => message,
        };
        assert_eq!(hurried, asked(false));
        attachment.say(confirmed(published)).await;
        soon(flush).await.unwrap();
    }
    let receipt = client.publish(said("y")).unwrap();
    assert_eq!(attachment.published(1).await.len(), 1, "it hurries still");
    attachment.say(confirmed(published + 1)).await;
    assert!(soon(receipt.confirmed()).await.is_ok());
}

/// The agent's side of publishing, as long as it is polled.
async fn confirm_all(attachment: &mut Attachment) {
    loop {
        for (seq, ..) in attachment.published(1).await {
            attachment.say(confirmed(seq)).await;
        }
    }
}

#[tokio::test]
async fn closing_hands_everything_over_and_says_goodbye() {
    let (_dir, socket) = place();
    let closing = client(&socket);
    let mut agent = Agent::start(&socket);
    let mut attachment = agent.welcomed().await;
    let agent_side = async {
        attachment.published(1).await;
        attachment.say(confirmed(1)).await;
        let goodbye = attachment.next().await;
        assert!(matches!(goodbye, Some(FromClient::Close { .. })), "{goodbye:?}");
        assert_eq!(attachment.next().await, None);
        drop(attachment);
    };
    let _ = closing.publish(said("last")).unwrap();
    let (closed, ()) = soon(async { tokio::join!(closing.close(PATIENCE), agent_side) }).await;
    closed.unwrap();
    assert!(matches!(closing.publish(said("late")), Err(PublishError::Closed)));
    let late = closing.subscribe("", Start::Now).await;
    assert!(matches!(late, Err(SubscribeError::Closed)));

    let dropped = client(&socket);
    let _ = dropped.publish(said("dropped")).unwrap();
    drop(dropped);
    let mut attachment = agent.welcomed().await;
    assert_eq!(attachment.published(1).await, [(1, false, "dropped".to_owned())]);
    assert!(matches!(attachment.next().await, Some(FromClient::Close { .. })));
}

#[test]
fn a_program_without_a_runtime_uses_the_blocking_client() {
    let (_dir, socket) = place();
    assert!(Client::builder("test").agent(&socket).build().is_err(), "there is no runtime");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let agent_side = runtime.spawn({
        let mut agent = {
            let _entered = runtime.enter();
            Agent::start(&socket)
        };
        async move {
            let mut attachment = agent.welcomed().await;
            let (id, ..) = asked(&mut attachment).await;
            activate(&mut attachment, id, 0).await;
            attachment.say(deliver(id, &[1])).await;
            attachment.published(1).await;
            attachment.say(confirmed(1)).await;
            attachment.published(2).await;
            attachment.say(confirmed(3)).await;
            assert_eq!(attachment.next().await, Some(FromClient::Unsubscribe(id)));
            assert!(matches!(attachment.next().await, Some(FromClient::Close { .. })));
            drop(attachment);
            let mut attachment = agent.welcomed().await;
            assert_eq!(attachment.published(1).await, [(1, false, "dropped".to_owned())]);
            assert!(matches!(attachment.next().await, Some(FromClient::Close { .. })));
        }
    });
    let config = Client::builder("test").agent(&socket).config();
    let client = blocking::BlockingClient::connect(config.clone()).unwrap();
    client.wait_connected(PATIENCE).unwrap();
    let mut subscription = client.subscribe("", Start::Now, PATIENCE).unwrap();
    assert_eq!(text_of(subscription.next(PATIENCE).unwrap()), "event 1");
    assert_eq!(subscription.next(Duration::from_millis(1)), Err(WaitError::Timeout));
    assert_eq!(subscription.try_next(), None);
    let receipt = client.publish(said("a")).unwrap();
    assert_eq!(client.confirmed(receipt, PATIENCE).unwrap().unwrap().seq, 1.into());
    let mut batch = client.batch();
    for text in ["b", "c"] {
        batch.push(EventRef::from(&Event::from(said(text)))).unwrap();
    }
    let receipts = batch.publish_wait(PATIENCE).unwrap().unwrap();
    assert_eq!((receipts.len(), batch.len()), (2, 0));
    client.all_confirmed(&receipts, PATIENCE).unwrap().unwrap();
    drop((subscription, batch));
    client.close(PATIENCE).unwrap();
    assert!(matches!(client.publish(said("late")), Err(PublishError::Closed)));
    assert_eq!(client.flush(PATIENCE), Ok(()));
    let dropped = blocking::BlockingClient::connect(config).unwrap();
    let _ = dropped.publish(said("dropped")).unwrap();
    drop(dropped);
    runtime.block_on(agent_side).unwrap();
}
