//! A client and its agent over a real socket: what it hears, and when.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::Lone;
use ftb_proto::v1::{self, to_agent::Message, to_client};

#[tokio::test]
async fn who_says_goodbye_still_hears_what_was_put_off() {
    let lone = Lone::start("").await;
    let mut client = lone.client("lazy").await;
    client.say(Message::DelayAcks(v1::DelayAcks { delayed: true })).await;
    // The first is confirmed at once: nothing was confirmed for long.
    let first = client.publish("ftb.test", &["a"]).await;
    client.confirmed(first).await;
    let last = client.publish("ftb.test", &["b", "c"]).await;
    client.say(Message::Close(v1::ClientClose { reason: String::new() })).await;
    let heard = client.hear().await;
    let confirmed = to_client::Message::Confirmed(v1::Confirmed { seq: last, level: 0 });
    assert_eq!(heard, Some(confirmed), "before the stream ends");
}
