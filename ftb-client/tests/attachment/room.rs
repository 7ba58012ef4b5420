//! Room in a client's buffer: what is shed, who waits for it, and in which order.

use super::*;
use ftb_client::Batch;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

#[tokio::test]
async fn a_full_buffer_sheds_the_mildest_or_makes_the_publisher_wait() {
    let (_dir, socket) = place();
    let client = Client::builder("test").agent(&socket).buffer_bytes(1000).build().unwrap();
    let mut info = Vec::new();
    while client.stats().shed == [0; 4] {
        info.push(client.publish(said("info")).unwrap());
    }
    let first = info.remove(0);
    assert_eq!(soon(first.confirmed()).await, Err(Unconfirmed::Shed));
    let waiting = client.publish_wait(said("patient").severity(Severity::Error));
    tokio::pin!(waiting);
    let now = Duration::from_millis(20);
    assert!(tokio::time::timeout(now, waiting.as_mut()).await.is_err());
    let mut agent = Agent::start(&socket);
    let mut attachment = agent.welcomed().await;
    let agent_side = confirm_all(&mut attachment);
    tokio::pin!(agent_side);
    let taken = tokio::select! {
        receipt = soon(waiting) => receipt.unwrap(),
        () = &mut agent_side => unreachable!("it goes on for ever"),
    };
    tokio::select! {
        flushed = client.flush(PATIENCE) => flushed.unwrap(),
        () = &mut agent_side => unreachable!("it goes on for ever"),
    }
    assert!(soon(taken.confirmed()).await.is_ok());
    assert_eq!(client.stats().shed, [1, 0, 0, 0]);
}

/// Adds an event with that payload to a batch.
fn add(batch: &mut Batch, text: &str) -> Result<(), PublishError> {
    let event = Event::from(said(text));
    batch.push(EventRef::from(&event))
}

#[tokio::test]
async fn a_batch_goes_in_its_order_between_single_events() {
    let (_dir, socket) = place();
    let client = client(&socket);
    let mut batch = client.batch();
    let _ = client.publish(said("first")).unwrap();
    for text in ["a", "b"] {
        add(&mut batch, text).unwrap();
    }
    let too_large = add(&mut batch, &"x".repeat(65_537));
    assert!(matches!(too_large, Err(PublishError::Event(_))), "{too_large:?}");
    assert_eq!((batch.len(), client.stats().published), (2, 1), "not published yet");
    let receipts = batch.publish_wait().await.unwrap();
    assert!(batch.is_empty());
    add(&mut batch, "c").unwrap();
    let last = batch.publish().unwrap();
    let mut agent = Agent::start(&socket);
    let mut attachment = agent.welcomed().await;
    let sent = attachment.published(4).await;
    let expected = ["first", "a", "b", "c"].map(str::to_owned);
    assert_eq!(sent.iter().map(|(seq, ..)| *seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(sent.into_iter().map(|(.., text)| text).collect::<Vec<_>>(), expected);
    attachment.say(confirmed(2)).await;
    let mut each = receipts.clone();
    assert_eq!(soon(each.next().unwrap().confirmed()).await.unwrap().seq, 2.into());
    assert_eq!((each.len(), each.next().unwrap().outcome()), (1, None), "not all are confirmed");
    attachment.say(confirmed(3)).await;
    soon(receipts.confirmed()).await.unwrap();
    agent.kill().await;
    drop(attachment);
    client.close(Duration::ZERO).await.unwrap_err();
    assert_eq!(soon(last.confirmed()).await, Err(Unconfirmed::Closed));
    add(&mut batch, "late").unwrap();
    assert!(matches!(batch.publish(), Err(PublishError::Closed)));
    assert!(matches!(batch.publish_wait().await, Err(PublishError::Closed)));
    assert_eq!(batch.len(), 1, "it still holds what was not published");
}

#[tokio::test]
async fn a_batch_says_whose_it_is_and_when() {
    let (_dir, socket) = place();
    let client = client(&socket);
    let mut agent = Agent::start(&socket);
    let mut attachment = agent.welcomed().await;
    let mut batch = client.batch();
    let before = ftb_client::now_ns();
    let said = [Event::from(said("now")), said("then").time_ns(5).job_id("other").into()];
    for event in &said {
        batch.push(EventRef::from(event)).unwrap();
    }
    let _ = batch.publish().unwrap();
    let Some(FromClient::Publish { events, .. }) = attachment.next().await else {
        panic!("nothing was published");
    };
    let events: Vec<Event> =
        events.into_iter().map(|bytes| decode_event(&bytes).unwrap()).collect();
    let whose = |event: &Event| (event.client_name.clone(), event.job_id.clone());
    assert_eq!(whose(&events[0]), ("test".to_owned(), "j7".to_owned()));
    assert_eq!(whose(&events[1]), ("test".to_owned(), "other".to_owned()));
    assert!(events[0].time_ns >= before && events[0].time_ns <= ftb_client::now_ns());
    assert_eq!(events[1].time_ns, 5);
}

#[tokio::test]
async fn a_batch_is_bounded_and_waits_for_room_as_a_whole() {
    let (_dir, socket) = place();
    let client = Client::builder("test").agent(&socket).buffer_bytes(2000).build().unwrap();
    let mut batch = client.batch();
    while add(&mut batch, "many").is_ok() {}
    let count = batch.len();
    assert!(count > 1);
    let full = add(&mut batch, "many").unwrap_err();
    assert!(
        matches!(full, PublishError::BatchFull { held_bytes, bytes_max: 2000 } if held_bytes > 1500)
    );
    assert!(full.to_string().contains("publish the batch first"), "{full}");
    let _ = client.publish(said("before")).unwrap();
    let now = Duration::from_millis(20);
    assert!(tokio::time::timeout(now, batch.publish_wait()).await.is_err(), "there is no room");
    assert_eq!((batch.len(), client.stats().published), (count, 1), "a dropped wait did nothing");
    let waiting = batch.publish_wait();
    tokio::pin!(waiting);
    assert!(tokio::time::timeout(now, waiting.as_mut()).await.is_err());
    let mut agent = Agent::start(&socket);
    let mut attachment = agent.welcomed().await;
    let agent_side = confirm_all(&mut attachment);
    tokio::pin!(agent_side);
    let receipts = tokio::select! {
        receipts = soon(waiting) => receipts.unwrap(),
        () = &mut agent_side => unreachable!("it goes on for ever"),
    };
    tokio::select! {
        all = soon(receipts.confirmed()) => all.unwrap(),
        () = &mut agent_side => unreachable!("it goes on for ever"),
    }
    assert_eq!((receipts.len(), client.stats().shed), (count, [0; 4]));
}

#[tokio::test]
async fn events_that_are_published_one_after_the_other_fill_their_messages() {
    let (_dir, socket) = place();
    let client = client(&socket);
    let mut agent = Agent::start(&socket);
    let mut attachment = agent.welcomed().await;
    soon(client.wait_connected(PATIENCE)).await.unwrap();
    let (text, count) = ("x".repeat(900), 1000);
    let publish = async {
        for _ in 0..count {
            let _ = client.publish_wait(said(&text)).await.unwrap();
        }
    };
    let agent_side = async {
        let mut sizes = Vec::new();
        while sizes.iter().sum::<usize>() < count {
            sizes.push(attachment.published(1).await.len());
        }
        sizes
    };
    let ((), sizes) = soon(async { tokio::join!(publish, agent_side) }).await;
    let (last, full) = sizes.split_last().unwrap();
    assert!(full.len() > 10 && full.iter().all(|size| *size == full[0]), "{sizes:?}");
    assert!((1..=full[0]).contains(last), "{sizes:?}");
}

/// Lets a future get as far as it can alone: it must wait.
async fn begin<T>(mut future: Pin<&mut impl Future<Output = T>>) {
    // It lets others run first.
    for _ in 0..3 {
        let waits = poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending()));
        assert!(waits.await, "it did not wait");
    }
}

/// Events as said by the agent's side, each confirmed as it comes, until `enough` says so.
async fn confirmed_one_by_one(
    attachment: &mut Attachment,
    mut enough: impl FnMut(&[String]) -> bool,
) -> Vec<String> {
    let mut texts = Vec::new();
    while !enough(&texts) {
        for (seq, _, text) in attachment.published(1).await {
            texts.push(text);
            attachment.say(confirmed(seq)).await;
        }
    }
    texts
}

/// Single events fit into every gap, the batch only into an empty buffer: it does not wait as long
/// as they come.
#[tokio::test]
async fn a_large_batch_has_its_turn_beside_single_events() {
    let (_dir, socket) = place();
    let client = Client::builder("test").agent(&socket).buffer_bytes(2000).build().unwrap();
    let mut batch = client.batch();
    while add(&mut batch, "many").is_ok() {}
    let (count, at_least) = (batch.len(), 100 * batch.len());
    let _ = client.publish(said("before")).unwrap();
    let mut large = Box::pin(batch.publish_wait());
    begin(large.as_mut()).await;
    let whole = async { assert_eq!(large.await.unwrap().len(), count) };
    let singles = async {
        loop {
            let _ = client.publish_wait(said("one")).await.unwrap();
        }
    };
    let mut agent = Agent::start(&socket);
    let mut attachment = agent.welcomed().await;
    let is_large = |text: &String| text == "many";
    let enough = |texts: &[String]| texts.len() > at_least || texts.iter().any(is_large);
    let agent_side = confirmed_one_by_one(&mut attachment, enough);
    let texts = tokio::select! {
        texts = soon(agent_side) => texts,
        ((), ()) = async { tokio::join!(whole, singles) } => unreachable!("it goes on for ever"),
    };
    let before = texts.iter().position(is_large).unwrap_or(usize::MAX);
    assert!((1..=2 * count + 2).contains(&before), "{before} went before {count}");
}

#[tokio::test]
async fn a_publisher_that_gives_up_does_not_block_the_others() {
    let (_dir, socket) = place();
    let client = Client::builder("test").agent(&socket).buffer_bytes(2000).build().unwrap();
    let mut batch = client.batch();
    while add(&mut batch, "many").is_ok() {}
    let mut others = Vec::new();
    let mut large = Box::pin(batch.publish_wait());
    // Events that were published before do not count.
    let _ = client.publish(said("before")).unwrap();
    begin(large.as_mut()).await;
    while let Some(other) = client.publish_if_room((&Event::from(said("one"))).into()).unwrap() {
        others.push(other);
    }
    assert!(!others.is_empty());
    let mut small = Box::pin(client.publish_wait(said("behind")));
    begin(small.as_mut()).await;
    drop(large);
    let mut agent = Agent::start(&socket);
    let mut attachment = agent.welcomed().await;
    let is_behind = |texts: &[String]| texts.iter().any(|text| text == "behind");
    let agent_side = confirmed_one_by_one(&mut attachment, is_behind);
    let (receipt, texts) = soon(async { tokio::join!(small, agent_side) }).await;
    assert_eq!((receipt.is_ok(), texts.len()), (true, others.len() + 2));
}

/// Nothing else wakes it: all is confirmed, and the agent says no more.
#[tokio::test]
async fn who_gave_way_looks_again_when_the_first_goes_or_gives_up() {
    for goes in [true, false] {
        let (_dir, socket) = place();
        let client = Client::builder("test").agent(&socket).buffer_bytes(2000).build().unwrap();
        let mut agent = Agent::start(&socket);
        let mut attachment = agent.welcomed().await;
        let mut batch = client.batch();
        let half = "x".repeat(950);
        add(&mut batch, &half).unwrap();
        let _ = client.publish(said(&half)).unwrap();
        let mut large = Box::pin(batch.publish_wait());
        begin(large.as_mut()).await;
        // The first round ends with the room, the second with what may go before the large one.
        for round in 1..=2 {
            let one = Event::from(said("one"));
            while let Some(went) = client.publish_if_room((&one).into()).unwrap() {
                drop(went);
            }
            let stats = client.stats();
            let held = stats.waiting_bytes + stats.in_flight_bytes;
            assert_eq!(held < 1500, round == 2, "round {round}: {held} bytes are held");
            tokio::select! {
                flushed = client.flush(PATIENCE) => flushed.unwrap(),
                () = confirm_all(&mut attachment) => unreachable!("it goes on for ever"),
            }
        }
        let mut small = Box::pin(client.publish_wait(said("behind")));
        begin(small.as_mut()).await;
        if goes {
            assert!(soon(large).await.is_ok());
        } else {
            drop(large);
        }
        assert!(soon(small).await.is_ok());
    }
}

/// The large one never finds the buffer empty: another is published before each is confirmed.
#[tokio::test]
async fn publishing_without_waiting_does_not_block_waiting_publishers() {
    let (_dir, socket) = place();
    let client = Client::builder("test").agent(&socket).buffer_bytes(2000).build().unwrap();
    let mut batch = client.batch();
    while add(&mut batch, "many").is_ok() {}
    let count = batch.len();
    let steady = || drop(client.publish(said("steady")).unwrap());
    steady();
    let mut large = Box::pin(batch.publish_wait());
    begin(large.as_mut()).await;
    let mut agent = Agent::start(&socket);
    let mut attachment = agent.welcomed().await;
    let agent_side = async {
        loop {
            for (seq, _, text) in attachment.published(1).await {
                if text == "steady" {
                    steady();
                }
                attachment.say(confirmed(seq)).await;
            }
        }
    };
    let singles = async {
        for _ in 0..4 * count {
            let _ = client.publish_wait(said("one")).await.unwrap();
        }
    };
    tokio::select! {
        () = soon(singles) => {}
        _ = large => unreachable!("there is never room"),
        () = agent_side => unreachable!("it goes on for ever"),
    }
}

#[tokio::test]
async fn publishers_that_wait_for_room_end_when_the_client_is_closed() {
    let (_dir, socket) = place();
    let client = Client::builder("test").agent(&socket).buffer_bytes(2000).build().unwrap();
    let mut batch = client.batch();
    while add(&mut batch, "many").is_ok() {}
    let _ = client.publish(said("before")).unwrap();
    let mut large = Box::pin(batch.publish_wait());
    begin(large.as_mut()).await;
    let mut small = Box::pin(client.publish_wait(said(&"x".repeat(1900))));
    begin(small.as_mut()).await;
    let all = async { tokio::join!(client.close(Duration::ZERO), large, small) };
    let (_, large, small) = soon(all).await;
    assert!(matches!(large, Err(PublishError::Closed)));
    assert!(matches!(small, Err(PublishError::Closed)));
}
