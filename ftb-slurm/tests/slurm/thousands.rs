//! The bridge and a real slurmctld with thousands of nodes: a rack at a time.

use super::{REASON, Site};
use anyhow::Result;
use ftb_client::Truth;
use ftb_tests::cluster::Cluster;
use ftb_tests::slurm::{self, Slurm};
use std::time::Instant;

const NODES: usize = 4_096;
const ALL: &str = "n[0001-4096]";

fn hosts(from: usize, to: usize) -> Vec<String> {
    (from..=to).map(|number| format!("n{number:04}")).collect()
}

async fn state(site: &Site, hosts: &[String], truth: Truth) -> Result<()> {
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    site.state(&hosts, truth).await
}

/// Nodes that are drained, for each reason and the user who set it.
fn drained(site: &Site) -> Result<Vec<String>> {
    let shown = site.slurm.ask("sinfo", &["-h", "-t", "drain", "-o", "%N %E, %u"])?;
    let mut lines: Vec<String> = shown.lines().map(|line| line.trim().to_owned()).collect();
    lines.sort();
    Ok(lines)
}

async fn wait_drained(site: &Site, wanted: &[String]) -> Result<()> {
    site.wait("the drains", async || Ok((drained(site)? == wanted).then_some(()))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_thousands_of_nodes_a_rack_is_one_call_and_only_its_own_drains_end() -> Result<()> {
    if !slurm::can_run() {
        return Ok(());
    }
    let cluster = Cluster::start(2, 2).await?;
    let slurm = Slurm::start_large(&cluster.dir().join("slurm"), ALL, NODES).await?;
    let mut site = Site::of(cluster, slurm)?;
    // All of them are in the first table of the bridge, however slow this machine is.
    let rack = hosts(65, 128);
    state(&site, &rack, Truth::True).await?;
    site.start_bridge().await?;
    wait_drained(&site, &[format!("n[0065-0128] {REASON}, root")]).await?;
    let drain = format!("scontrol update nodename=n[0065-0128] state=drain reason={REASON}");
    assert_eq!(site.calls("scontrol update"), std::slice::from_ref(&drain));

    // People drain one more node and reword one reason.
    site.kill_bridge();
    let reworded = format!("{REASON}, waits for a part");
    site.person(&["nodename=n0100", &format!("reason={reworded}")])?;
    site.person(&["nodename=n0200", "state=drain", "reason=new disk"])?;
    let mut ended = rack.clone();
    ended.push("n0200".to_owned());
    state(&site, &ended[63..], Truth::True).await?;
    state(&site, &ended, Truth::False).await?;
    site.start_bridge().await?;
    let people = [format!("n0100 {reworded}, root"), "n0200 new disk, root".to_owned()];
    wait_drained(&site, &people).await?;
    let undrain = "scontrol update nodename=n[0065-0099,0101-0128] state=undrain".to_owned();
    assert_eq!(site.calls("scontrol update"), [drain, undrain]);

    // How long it takes while the bridge runs.
    let start = Instant::now();
    state(&site, &hosts(1025, 1088), Truth::True).await?;
    let third = format!("n[1025-1088] {REASON}, root");
    wait_drained(&site, &[&people[..], &[third]].concat()).await?;
    println!("64 of {NODES} nodes, from their events to the drain: {:?}", start.elapsed());
    Ok(())
}
