//! A subscription of the launcher begins again after its agent has ended it, as one with another
//! configuration does.

#![allow(clippy::unwrap_used, missing_docs)]

use anyhow::{Context as _, Result, bail};
use ftb_client::{Client, Delivery, Event, Start, Subscription};
use ftb_launcher::backplane::{EventGate, StandingSubscription};
use ftb_launcher::clock::Clock;
use ftb_launcher::refused::{Reason, Refusals};
use ftb_tests::cluster::{Cluster, PATIENCE};
use std::time::Duration;

async fn restart(cluster: &mut Cluster, config: &str) -> Result<()> {
    std::fs::write(cluster.config(0), config)?;
    cluster.stop(0).await?;
    cluster.run(0)?;
    cluster.wait_whole().await
}

/// A launcher whose subscription the agent has ended, and refuses to begin again.
struct Deaf {
    cluster: Cluster,
    client: Client,
    /// It takes the only place.
    first: Subscription,
    following: tokio::task::JoinHandle<Vec<bool>>,
    /// The configuration in which there is another place.
    config: String,
}

/// Follows with a subscription; says of each delivery whether it is an event, up to the first one.
async fn deafened() -> Result<Deaf> {
    let mut cluster = Cluster::start(1, 2).await?;
    let client = Client::builder("launcher").agent(cluster.socket(0)).build()?;
    client.wait_connected(PATIENCE).await?;
    let first = client.subscribe("event_name=OTHER", Start::Now).await?;
    let gate = EventGate { refusals: Refusals::default(), clock: Clock::start() };
    let filter = "event_name=HEARD".to_owned();
    let heard = StandingSubscription::begin(&client, filter, false, &gate).await;
    let mut heard = heard.map_err(anyhow::Error::msg)?;
    let following = tokio::spawn(async move {
        let mut all = Vec::new();
        while let Some(delivery) = heard.next().await {
            let is_event = matches!(delivery, Delivery::Event(_));
            all.push(is_event);
            if is_event {
                break;
            }
        }
        all
    });
    let config = std::fs::read_to_string(cluster.config(0))?;
    let narrow = format!("{config}\n[limits]\nsubscriptions_per_client_max = 1\n");
    restart(&mut cluster, &narrow).await?;
    let is_refused = || gate.refusals.total(Reason::Missed) > 0;
    let refused = async {
        while !is_refused() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.context("it was not refused")?;
    Ok(Deaf { cluster, client, first, following, config })
}

#[tokio::test]
async fn a_subscription_that_begins_again_ends_with_its_client() -> Result<()> {
    let Deaf { cluster, client, first, following, .. } = deafened().await?;
    let _ = client.close(PATIENCE).await;
    let all = tokio::time::timeout(PATIENCE, following).await.context("it goes on")??;
    assert_eq!(all, [false; 0]);
    drop((first, cluster));
    Ok(())
}

#[tokio::test]
async fn a_subscription_that_the_agent_has_ended_begins_again_with_a_gap() -> Result<()> {
    let Deaf { mut cluster, client, first, following, config } = deafened().await?;
    restart(&mut cluster, &config).await?;
    let publish = async {
        loop {
            let _ = client.publish(Event::new("site".parse()?, "HEARD".parse()?))?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        #[expect(unreachable_code, reason = "it says the type of errors")]
        Ok::<_, anyhow::Error>(())
    };
    let all = tokio::select! {
        done = publish => bail!("{done:?}"),
        all = tokio::time::timeout(PATIENCE, following) => all.context("it stays deaf")??,
    };
    assert_eq!((all.first(), all.last()), (Some(&false), Some(&true)), "{all:?}");
    drop(first);
    Ok(())
}
