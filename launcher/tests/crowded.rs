//! Nodes with hundreds of ranks, as real processes.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Result, ensure};
use nix::sys::signal::{Signal, kill};
use site::memory::{wait_protected, wait_recovered};
use site::{Site, nothing_left, ranks_of, run, start, text};

/// The sum of all ranks after that number of steps.
async fn undisturbed(site: &Site, size: u32, steps: &str) -> Result<String> {
    let count = site.count.display().to_string();
    let size = size.to_string();
    let output =
        run(site.launch(&["-n", &size, "--hosts", "node[01-02]"], &[&count, steps])).await?;
    site::result(&output)
}

/// A node with half of the ranks is lost, and then a rank dies. All come back.
async fn half_of_them_die(size: u32, steps: &str) -> Result<()> {
    let site = Site::new(3).await?;
    let expected = undisturbed(&site, size, steps).await?;
    let (job, count) = ("crowd", site.count.display().to_string());
    let (gate, number) = (site.gate().display().to_string(), size.to_string());
    let options = ["-n", &number, "--job", job, "--hosts", "node[01-02]", "--spares", "node03"];
    let options = [&options[..], &["--memory", "buddy:1", "--memory-every", "never"]].concat();
    let running = start(site.launch(&options, &[&count, steps, "500", &gate]));
    let set = wait_protected(&site, job, "").await?;
    let lost = site.ask(&["status", job, "--what-if", "node02"]).await?;
    let ranks = format!("{}-{}", size / 2, size - 1);
    assert!(lost.starts_with(&format!("rank {ranks} dies, node03 takes its place")), "{lost}");
    kill(site.nla_of(job, "node02")?, Signal::SIGKILL)?;
    wait_recovered(&site, job, 1).await?;
    kill(ranks_of(job)?[&7].0, Signal::SIGKILL)?;
    wait_recovered(&site, job, 2).await?;
    site.release()?;
    let output = running.await??;
    let reported = text(&output.stderr);
    ensure!(site::result(&output)? == expected, "{reported}");
    let back = format!("{} ranks went back to set {set} (memory) in place", size / 2);
    assert!(reported.contains(&back), "{reported}");
    assert!(reported.contains(&format!("{} ranks went back to set", size - 1)), "{reported}");
    assert!(!reported.contains("restarts from set"), "{reported}");
    nothing_left(&format!("FTB_JOB_ID={job}")).await
}

/// More on a node than a launcher of before allowed.
#[tokio::test(flavor = "multi_thread")]
async fn half_of_the_ranks_die_with_their_node_and_come_back_from_the_memory_of_the_other()
-> Result<()> {
    half_of_them_die(360, "60").await
}
