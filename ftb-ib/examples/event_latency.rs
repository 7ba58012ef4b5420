//! Latency from an asynchronous event of an adapter to a subscriber on the same node.
//!
//! `event_latency ADAPTER COUNT` repeats: the module `ibinject` of `tests/hardware/mod` injects
//! SM_CHANGE on port 1 of the adapter, and a subscriber waits for the event of `ftb-ib`. It needs
//! an agent, and an `ftb-ib` with `debounce = "0s"`. It prints one JSON object: the time until
//! `ftb-ib` saw the event, and until the subscriber received it.

use anyhow::{Context as _, Result, bail};
use ftb_client::{Client, Delivery, Start, Subscription};
use serde_json::json;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const INJECT: &str = "/sys/module/ibinject/parameters/event";
/// `IBV_EVENT_SM_CHANGE`.
const SM_CHANGE: u32 = 13;
const NAME: &str = "FTB_IB_EVENT_SM_CHANGE";

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: event_latency ADAPTER COUNT";
    let adapter = arguments.next().context(usage)?;
    let count: usize = arguments.next().context(usage)?.parse().context(usage)?;

    let client = Client::builder("event_latency").build()?;
    let mut events = client.subscribe(&format!("event_name={NAME}"), Start::Now).await?;
    let (mut seen, mut got) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for _ in 0..count {
        let (start, start_wall) = (Instant::now(), SystemTime::now());
        std::fs::write(INJECT, format!("{adapter} 1 {SM_CHANGE}")).context(INJECT)?;
        let event_wall = UNIX_EPOCH + Duration::from_nanos(one_event(&mut events).await?);
        got.push(start.elapsed());
        seen.push(event_wall.duration_since(start_wall).unwrap_or_default());
    }
    seen.sort();
    got.sort();
    println!(
        "{}",
        json!({
            "events": got.len(),
            "seen_p50_us": at(&seen, 50),
            "seen_p99_us": at(&seen, 99),
            "got_p50_us": at(&got, 50),
            "got_p99_us": at(&got, 99),
        })
    );
    Ok(())
}

/// The time of the next event in Unix nanoseconds, as `ftb-ib` set it.
async fn one_event(events: &mut Subscription) -> Result<u64> {
    match events.next().await {
        Some(Delivery::Event(received)) => Ok(received.event.time_ns),
        Some(Delivery::Gap(gap)) => bail!("events were lost: {gap:?}"),
        None => bail!("the subscription has ended"),
    }
}

/// Percentile of sorted times.
fn at(sorted: &[Duration], percent: usize) -> Option<u128> {
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(index).map(Duration::as_micros)
}
