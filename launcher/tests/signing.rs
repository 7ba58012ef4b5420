//! The launcher moves a job only for those who may speak about its nodes; agents have certificates.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Result, ensure};
use ftb_tests::cluster::{Plan, binary};
use serde_json::json;
use site::{Site, nothing_left, result, start, text};
use std::process::Command;

/// A statement of the agent's user at one agent about a fan of a node.
fn fan(site: &Site, rank: usize, node: &str) -> Result<()> {
    let mut command = Command::new(binary("ftbctl", "ftbctl")?);
    command.arg("--agent").arg(site.cluster.socket(rank));
    command.args(["publish", "ftb.ipmi", "FTB_TEST", "-s", "error", "--host", node]);
    let output = command.args(["--component", "FAN 1", "--condition", "FANFAIL"]).output()?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    Ok(())
}

/// What a drill of the agent's user about node02 prints, if a publisher on that host reports the
/// fault; and whether it has passed.
fn drill(site: &Site, from: &str) -> Result<(bool, String)> {
    let mut command = Command::new(binary("ftbctl", "ftbctl")?);
    command.arg("--agent").arg(site.cluster.socket(0)).args(["--timeout", "20s", "drill"]);
    let output = command.args(["--node", "node02", "--from", from]).output()?;
    Ok((output.status.success(), text(&output.stdout)))
}

/// The holder of a valid key of another host reports a fault, then the node itself does, and a
/// monitor of the policy.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_moves_for_the_node_itself_and_for_monitors_and_for_no_other_host() -> Result<()> {
    let site = Site::planned(Plan::new(5, 2).certified()).await?;
    let expected = site.undisturbed().await?;
    let policy = site.cluster.dir().join("policy.toml");
    let monitors = "monitors = [\"node05\"]";
    let sample = include_str!("../../deploy/config/policy.toml");
    std::fs::write(&policy, sample.replace("#monitors = []", monitors))?;
    let policy = policy.display().to_string();
    let hosts = ["--hosts", "node[01-02]", "--spares", "node[03-04]", "--policy", &policy];
    let job = start(site.counting("signed", &hosts));
    site.wait_met("signed").await?;
    let (passed, shown) = drill(&site, "node03")?;
    let refused = "would refuse the fault: FTB_IPMI_FANFAIL is about node02, and node03 is not \
                   among the monitors of the policy";
    ensure!(!passed && shown.contains(refused), "{shown}");
    for host in ["node02", "node05"] {
        let (passed, shown) = drill(&site, host)?;
        ensure!(passed && shown.contains("would migrate the ranks of node02"), "{shown}");
    }
    fan(&site, 2, "node02")?;
    fan(&site, 1, "node02")?;
    let on = |node: &'static str, ranks: [u32; 2]| {
        move |status: &serde_json::Value| status["nodes"][node]["ranks"] == json!(ranks)
    };
    site.wait_status("signed", "the ranks of node02 to move", on("node03", [2, 3])).await?;
    fan(&site, 4, "node01")?;
    site.wait_status("signed", "the ranks of node01 to move", on("node04", [0, 1])).await?;
    site.release()?;
    let output = job.await??;
    assert_eq!(result(&output)?, expected);
    let reported = text(&output.stderr);
    let refused = "FTB_TEST is about node02, and node03 is not among the monitors of the policy";
    assert!(reported.contains(refused), "{reported}");
    assert!(!reported.contains("does not demand signatures"), "{reported}");
    assert_eq!(reported.matches("moved from").count(), 2, "{reported}");
    assert!(!reported.contains("fault 3"), "{reported}");
    nothing_left("FTB_JOB_ID=signed").await
}
