//! The seconds that a node has left: a simulated BMC grows hot, ftb-ipmi predicts its failure, and
//! the launcher of a job chooses the safest remedy that fits by what it has measured.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result, ensure};
use ftb_client::{Client, Delivery, Event, Start, Subscription};
use ftb_tests::bmc::SimulatedBmc;
use ftb_tests::cluster::PATIENCE;
use nix::sys::signal::{Signal, kill};
use site::sensors::Publisher;
use site::{Site, nothing_left, result, start, text};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// The critical threshold of the sensor.
const LIMIT: i32 = 60;
/// How long the checkpoint takes by which the launcher judges: its node is stopped that long.
const CHECKPOINT: Duration = Duration::from_millis(6500);

struct Ramp {
    /// From the prediction to the failure.
    seconds: u32,
    /// From the first rise to the prediction.
    lead: u32,
    /// Of ftb-ipmi: the duration of a rise for a prediction, in seconds.
    over: u32,
}

const RAMPS: [Ramp; 2] =
    [Ramp { seconds: 5, lead: 6, over: 2 }, Ramp { seconds: 20, lead: 6, over: 2 }];
/// A slower rise needs a longer view: the sensor shows whole degrees.
const LONG_RAMPS: [Ramp; 2] =
    [Ramp { seconds: 60, lead: 15, over: 10 }, Ramp { seconds: 300, lead: 75, over: 50 }];

/// The rule by which ftb-ipmi predicts the failure of that ramp.
fn rule(ramp: &Ramp) -> String {
    // A line through few degrees is uncertain: the longest ramp may be known earlier.
    let predict = if ramp.seconds < 100 { ramp.seconds } else { ramp.seconds * 5 / 4 };
    let over = ramp.over;
    format!("[[rule]]\nname = 'Baseboard Temp'\npredict = '{predict}s'\npredict_over = '{over}s'\n")
}

/// The temperature rises in step with the clock and stays above the limit.
async fn heat(bmc: Arc<SimulatedBmc>, seconds: u32) {
    let began = Instant::now();
    loop {
        let share = began.elapsed().as_secs_f64() / f64::from(seconds);
        let degrees = (f64::from(LIMIT) * share.min(1.05)) as i32;
        bmc.set("baseboard_temp", degrees).unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The next episode that was chosen by the time left.
async fn episode(events: &mut Subscription) -> Result<Event> {
    while let Some(delivery) = events.next().await {
        if let Delivery::Event(received) = delivery
            && received.event.name.as_str() == "FTB_JL_EPISODE"
            && received.event.tag("left_ms").is_some()
        {
            return Ok(received.event);
        }
    }
    anyhow::bail!("the agent has ended the subscription")
}

fn number(event: &Event, tag: &str) -> Result<u64> {
    Ok(event.tag(tag).with_context(|| format!("no {tag}: {event:?}"))?.parse()?)
}

/// A job that has measured one checkpoint and one migration, and is on the node that grows hot.
async fn measured(site: &Site, job: &str, hot: &str) -> Result<()> {
    site.wait_met(job).await?;
    let agent = site.nla_of(job, "node05")?;
    kill(agent, Signal::SIGSTOP)?;
    let goes_on = async {
        tokio::time::sleep(CHECKPOINT).await;
        kill(agent, Signal::SIGCONT)
    };
    let (saved, went_on) = tokio::join!(site.checkpoint(job), goes_on);
    saved?;
    went_on?;
    site.ask(&["migrate", job, "node05"]).await?;
    site.ask(&["usable", job, "node05"]).await?;
    let is_spare = |status: &serde_json::Value| {
        let is_hot = status["nodes"][hot]["ranks"] == serde_json::json!([0, 1, 2, 3]);
        is_hot && status["nodes"]["node05"]["state"] == "MIGRATION_SPARE"
    };
    site.wait_status(job, "the ranks to be on the node", is_spare).await
}

async fn climb(site: &Site, ramp: &Ramp, job: &str, hot: &str) -> Result<()> {
    measured(site, job, hot).await?;
    let client = Client::builder("test").agent(site.cluster.socket(0)).build()?;
    let filter = format!("jobid={job}");
    let mut events = client.subscribe(&filter, Start::Now).await?;
    let bmc = Arc::new(SimulatedBmc::start()?);
    bmc.set("baseboard_temp", 0)?;
    let _publisher = Publisher::start(site, (0, hot), &bmc, &rule(ramp))?;
    let total = ramp.seconds + ramp.lead;
    let patience = PATIENCE + Duration::from_secs(total.into());
    let began = Instant::now();
    let heater = tokio::spawn(heat(bmc, total));
    let first =
        timeout(patience, episode(&mut events)).await.context("no prediction was acted on")??;
    let took = began.elapsed();
    println!("{} s: after {took:.1?} {:?}", ramp.seconds, first.tags);
    let (saving, moving) =
        (number(&first, "checkpoint_p95_ms")?, number(&first, "migration_p95_ms")?);
    ensure!(saving >= 6000 && moving < 6000, "{first:?}");
    let left_ms = number(&first, "left_ms")?;
    let whole_ms = u64::from(ramp.seconds) * 1000;
    ensure!((whole_ms / 5..whole_ms * 5 / 4).contains(&left_ms), "{first:?}");
    // A busy machine predicts late: then there is less time than the ramp has, and none to save.
    let is_saved_first = left_ms >= saving + moving;
    let safest = if is_saved_first { "checkpoint" } else { "migration" };
    ensure!(first.tag("kind") == Some(safest), "{first:?}");
    if is_saved_first {
        let moved = timeout(patience, episode(&mut events)).await.context("it was not moved")??;
        ensure!(moved.tag("kind") == Some("migration"), "{moved:?}");
    }
    let took = began.elapsed();
    println!("{} s: left after {took:.1?} of {total} s", ramp.seconds);
    ensure!(took < Duration::from_secs(total.into()), "the ranks left after {took:?}");
    let end = Duration::from_secs(u64::from(total) + 1);
    tokio::time::sleep(end.saturating_sub(took)).await;
    heater.abort();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_safest_remedy_is_chosen_on_real_ramps_of_5_and_20_seconds() -> Result<()> {
    climb_all(&RAMPS).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "seven minutes: make test-long"]
async fn the_safest_remedy_is_chosen_on_real_ramps_of_60_and_300_seconds() -> Result<()> {
    climb_all(&LONG_RAMPS).await
}

async fn climb_all(ramps: &[Ramp]) -> Result<()> {
    let site = Site::new(5).await?;
    let expected = site.undisturbed_on("node05").await?;
    // A stopped launch agent is not lost.
    let deadlines = site.jobs.path().join("deadlines.toml");
    std::fs::write(&deadlines, "silence = \"10m\"\n")?;
    let deadlines = deadlines.display().to_string();
    let jobs: Vec<_> = ramps
        .iter()
        .zip(1..)
        .map(|(ramp, number)| {
            let (job, hot) = (format!("ramp{}", ramp.seconds), format!("node{number:02}"));
            let options = ["--hosts", "node05", "--spares", &hot, "--deadlines", &deadlines];
            let running = start(site.counting(&job, &options));
            (ramp, job, hot, running)
        })
        .collect();
    let climbs = jobs.iter().map(|(ramp, job, hot, _)| climb(&site, ramp, job, hot));
    futures_util::future::try_join_all(climbs).await.with_context(|| site.evidence())?;
    site.release()?;
    for (_, _, _, running) in jobs {
        let output = running.await??;
        assert_eq!(result(&output)?, expected);
        let reported = text(&output.stderr);
        assert!(reported.contains("fails in ") && reported.contains("(p95)"), "{reported}");
    }
    nothing_left("FTB_JOB_ID=ramp").await
}
