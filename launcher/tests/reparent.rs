//! A fault that a BMC shows while the launcher's agent changes its parent: with real agents,
//! ftb-ipmi and a simulated BMC.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Result, ensure};
use ftb_tests::bmc::SimulatedBmc;
use ftb_tests::cluster::{Plan, binary};
use ftb_tests::skip::skip;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use site::sensors::Publisher;
use site::{Site, nothing_left, result, run, start, text};
use std::process::Command;

/// The agent beside the launcher, its first parent, and the agent of ftb-ipmi below another one.
const LAUNCHER: usize = 6;
const PARENT: usize = 2;
const PUBLISHER: usize = 3;
/// Long enough for the fault to be published meanwhile, and shorter than what the launcher endures.
const SILENCE: &str = "[detection]\nsilence = \"10s\"\n";

/// What the agent of that rank knows of a condition of a node: `true`, `false`, `unknown`, or null.
fn known(site: &Site, rank: usize, node: &str, key: &str) -> Result<Value> {
    let mut command = Command::new(binary("ftbctl", "ftbctl")?);
    command.arg("--agent").arg(site.cluster.socket(rank));
    let output = command.args(["conditions", node, "--key", key, "--all", "--json"]).output()?;
    let rows = text(&output.stdout);
    let rows = rows.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let states: Vec<Value> = rows.map(|row| row["state"].clone()).collect();
    Ok(states.into_iter().find(|state| *state == "true").unwrap_or_default())
}

async fn becomes_true(site: &Site, rank: usize, node: &str, key: &str) -> Result<()> {
    site.wait(&format!("agent {rank} to know {key} of {node}"), async || {
        Ok((known(site, rank, node, key)? == "true").then_some(()))
    })
    .await
}

/// One job runs on the node meanwhile and leaves it; the next one gets no rank there.
#[tokio::test(flavor = "multi_thread")]
async fn a_fault_while_the_launchers_agent_changes_its_parent_is_not_missed() -> Result<()> {
    if Command::new("ipmi_sim").arg("-?").output().is_err() {
        skip("ipmi_sim is not installed (apt-get install openipmi)");
        return Ok(());
    }
    let mut site = Site::planned(Plan::new(7, 2).extra(SILENCE)).await?;
    site.cluster.wait_wanted().await?;
    let expected = site.undisturbed_on("node04").await?;
    let bmc = SimulatedBmc::start()?;
    let _ipmi = Publisher::start(&site, (PUBLISHER, "node05"), &bmc, "")?;
    becomes_true(&site, LAUNCHER, "node05", "WATCHED").await?;
    let agent = site.cluster.socket(LAUNCHER).display().to_string();
    let nodes = ["--agent", &agent, "--hosts", "node[04-05]", "--spares", "node06"];
    let first = start(site.counting("first", &nodes));
    site.wait_met("first").await?;

    site.cluster.signal(PARENT, Signal::SIGSTOP)?;
    bmc.set("cpu1_fan", 0)?;
    becomes_true(&site, PUBLISHER, "node05", "FANFAIL").await?;
    let tree = site.cluster.tree(0).await?;
    ensure!(known(&site, LAUNCHER, "node05", "FANFAIL")?.is_null(), "{tree:?}");
    let moved = |status: &Value| status["nodes"]["node06"]["ranks"] == json!([2, 3]);
    site.wait_status("first", "the ranks of node05 to move", moved).await?;
    let tree = site.cluster.tree(0).await?;
    let parent = tree.nodes.iter().find(|node| node.rank as usize == LAUNCHER).unwrap().parent;
    ensure!(parent.is_some_and(|parent| parent as usize != PARENT), "{tree:?}");

    let second = start(site.counting("second", &nodes));
    site.wait_met("second").await?;
    let shown = site.ask(&["status", "second", "--json"]).await?;
    let shown: Value = serde_json::from_str(&shown)?;
    let ranks = |node: &str| shown["nodes"][node]["ranks"].clone();
    assert_eq!([ranks("node05"), ranks("node06")], [json!([]), json!([2, 3])], "{shown}");
    let alone = site.launch(&["--agent", &agent, "-n", "2", "--hosts", "node05"], &["true"]);
    let refused = text(&run(alone).await?.stderr);
    assert!(refused.contains("node node05 is not usable (fan failed: "), "{refused}");

    site.release()?;
    for (job, word, count) in [(first, "moved from node05 to node06", 1), (second, " moved ", 0)] {
        let output = job.await??;
        let reported = text(&output.stderr);
        assert_eq!(result(&output)?, expected, "{reported}");
        assert_eq!(reported.matches(word).count(), count, "{reported}");
    }
    site.cluster.signal(PARENT, Signal::SIGCONT)?;
    nothing_left("FTB_JOB_ID=second").await
}
