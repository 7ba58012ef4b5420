//! A Slurm that refuses, does not answer, or prints no JSON; and a bridge that is gone.

use super::{NODES, REASON, Site, next};
use anyhow::Result;
use ftb_client::{Conditions, Start, Truth};
use ftb_tests::slurm;
use std::fs;

/// What is known of a condition in the event space of the bridge.
async fn truth(site: &Site, key: &str) -> Result<Option<Truth>> {
    let filter = format!("condition={key}, event_space=ftb.slurm");
    let mut conditions = Conditions::open(&site.client, &filter).await?;
    conditions.load().await?;
    Ok(conditions.states().next().map(|state| state.truth))
}

async fn wait_truth(site: &Site, key: &str, wanted: Truth) -> Result<()> {
    let is_so = async || Ok((truth(site, key).await? == Some(wanted)).then_some(()));
    site.wait(&format!("{key} to be {wanted:?}"), is_so).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_slurm_refuses_holds_up_no_other_and_the_bridge_says_what_is_wrong_with_it()
-> Result<()> {
    if !slurm::can_run() {
        return Ok(());
    }
    let mut site = Site::new().await?;
    let mut events = site.client.subscribe("event_space=ftb.slurm", Start::Now).await?;
    wait_truth(&site, "WATCHED", Truth::True).await?;
    let flag = |name: &str| site.cluster.dir().join(name);
    // One host of the order is refused.
    fs::write(flag("bad"), "node02\n")?;
    site.state(&["node02", "node03", "node04"], Truth::True).await?;
    site.wait_node("node03", "drained", REASON).await?;
    site.wait_node("node04", "drained", REASON).await?;
    assert_eq!(next(&mut events, "FTB_SLURM_REFUSED").await?[0], "node02");
    wait_truth(&site, "SLURM_REFUSES", Truth::True).await?;
    assert!(site.node("node02")?.starts_with("idle"));
    fs::remove_file(flag("bad"))?;
    site.wait_node("node02", "drained", REASON).await?;
    wait_truth(&site, "SLURM_REFUSES", Truth::False).await?;
    // The controller does not answer.
    fs::write(flag("down"), "")?;
    wait_truth(&site, "SLURM_UNREACHABLE", Truth::True).await?;
    fs::remove_file(flag("down"))?;
    wait_truth(&site, "SLURM_UNREACHABLE", Truth::False).await?;
    // Slurm prints no JSON: its nodes are read as text.
    fs::write(flag("nojson"), "")?;
    site.state(&["node02", "node03", "node04"], Truth::False).await?;
    for host in (1..NODES).map(|rank| site.cluster.host(rank)) {
        site.wait_node(host, "idle", "none").await?;
    }
    site.wait("the hint", async || Ok(site.log().contains("serializer/json").then_some(())))
        .await?;
    site.kill_bridge();
    wait_truth(&site, "WATCHED", Truth::Unknown).await
}

/// What an observer would do is complete, and said once.
#[tokio::test(flavor = "multi_thread")]
async fn an_observer_logs_every_order_once() -> Result<()> {
    if !slurm::can_run() {
        return Ok(());
    }
    let mut site = Site::new().await?;
    site.state(&["node02"], Truth::True).await?;
    site.wait_node("node02", "drained", REASON).await?;
    site.kill_bridge();
    site.configure("observe = true\n")?;
    site.state(&["node02"], Truth::False).await?;
    site.state(&["node03"], Truth::True).await?;
    site.state_of(&["node04"], "CPU 2 FAN", Truth::True).await?;
    site.start_bridge().await?;
    let count = |words: &str| site.log().lines().filter(|line| line.contains(words)).count();
    let counts = || ["would resume node02", "would drain node03", "would drain node04"].map(count);
    site.wait("all orders", async || Ok((counts() == [1, 1, 1]).then_some(()))).await?;
    let before = site.readings();
    let more = async || Ok((site.readings() >= before + 3).then_some(()));
    site.wait("further readings", more).await?;
    assert_eq!(counts(), [1, 1, 1], "{}", site.log());
    assert!(site.node("node02")?.starts_with("drained"));
    Ok(())
}
