//! `ftbctl drill` with real agents and a real job: the launcher answers what it would do, and
//! nothing happens.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result, ensure};
use ftb_client::{Client, Delivery, Start};
use ftb_tests::cluster::binary;
use ftb_tests::skip::skip;
use ftb_tests::user::{ORDINARY, impossible};
use serde_json::{Value, json};
use site::{Site, nothing_left, result, start, text};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Exit code and JSON lines of a drill at the agent of node01.
fn drill(site: &Site, arguments: &[&str]) -> Result<(Option<i32>, Vec<Value>)> {
    let mut command = Command::new(binary("ftbctl", "ftbctl")?);
    command.arg("--agent").arg(site.cluster.socket(0)).args(["--json", "--timeout", "20s"]);
    let output = command.arg("drill").args(arguments).output()?;
    let lines = text(&output.stdout);
    let lines = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>();
    Ok((output.status.code(), lines.with_context(|| text(&output.stderr))?))
}

fn answer_of<'a>(lines: &'a [Value], job: &str) -> Result<&'a Value> {
    let found = lines.iter().find(|line| line["type"] == "answer" && line["job"] == job);
    found.with_context(|| format!("no answer of {job}: {lines:?}"))
}

fn conditions(site: &Site) -> Result<String> {
    let mut command = Command::new(binary("ftbctl", "ftbctl")?);
    command.arg("--agent").arg(site.cluster.socket(0)).arg("conditions");
    Ok(text(&command.output()?.stdout))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drill_asks_the_running_job_and_moves_no_rank() -> Result<()> {
    let site = Site::new(3).await?;
    let expected = site.undisturbed().await?;
    let watcher = Client::builder("watcher").agent(site.cluster.socket(2)).build()?;
    let mut results = watcher.subscribe("event_name=FTB_DRILL_DONE", Start::Now).await?;
    // No job: the path is tested up to the delivery.
    let (code, lines) = drill(&site, &[])?;
    let last = lines.last().context("no result")?;
    ensure!(code == Some(0) && last["passed"] == json!(true), "{lines:?}");
    for stage in ["published_ms", "committed_ms", "delivered_ms"] {
        ensure!(last[stage].is_f64(), "{stage}: {last}");
    }
    ensure!(last["decided_ms"].is_null() && last["node"] == "node01", "{last}");

    let job = start(site.counting("drilled", &["--hosts", "node[01-02]", "--spares", "node03"]));
    site.wait_met("drilled").await?;
    let (code, lines) = drill(&site, &["--node", "node02"])?;
    ensure!(code == Some(0), "{lines:?}");
    let answer = answer_of(&lines, "drilled")?;
    let seen = (&answer["choice"], &answer["rule"], &answer["target"]);
    ensure!(seen == (&json!("migrate"), &json!("fan failed"), &json!("node03")), "{answer}");
    ensure!(lines.last().context("no result")?["decided_ms"].is_f64(), "{lines:?}");
    // Only that job, about a node that it does not have.
    let (code, lines) = drill(&site, &["--job", "drilled", "--node", "elsewhere"])?;
    ensure!(code == Some(0), "{lines:?}");
    ensure!(answer_of(&lines, "drilled")?["choice"] == "not-of-job", "{lines:?}");
    // A job that does not run.
    let (code, lines) = drill(&site, &["--job", "nothing"])?;
    ensure!(code == Some(1), "{lines:?}");
    let mut severities = Vec::new();
    while severities.len() < 4 {
        if let Some(Delivery::Event(done)) = results.next().await {
            severities.push(done.event.severity.as_str());
        }
    }
    ensure!(severities == ["INFO", "INFO", "INFO", "ERROR"], "{severities:?}");

    ensure!(!conditions(&site)?.contains("FANFAIL"), "a drill states no condition");
    let status: Value = serde_json::from_str(&site.ask(&["status", "drilled", "--json"]).await?)?;
    ensure!(status["nodes"]["node02"]["ranks"] == json!([2, 3]), "{status}");
    ensure!(status["nodes"]["node02"]["unusable"].is_null(), "{status}");
    site.release()?;
    let output = job.await??;
    ensure!(result(&output)? == expected);
    ensure!(!text(&output.stderr).contains("fault 1"), "{}", text(&output.stderr));
    nothing_left("FTB_JOB_ID=drilled").await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordinary_user_drills_no_job_of_another_user() -> Result<()> {
    if let Some(why) = impossible() {
        skip(&why);
        return Ok(());
    }
    let site = Site::new(2).await?;
    let job = start(site.counting("roots", &["--hosts", "node01", "--spares", "node02"]));
    site.wait_met("roots").await?;
    std::fs::set_permissions(site.cluster.dir(), Permissions::from_mode(0o755))?;
    let program = site.cluster.dir().join("ftbctl");
    std::fs::copy(binary("ftbctl", "ftbctl")?, &program)?;
    let as_user = |arguments: &[&str]| -> Result<(Option<i32>, String)> {
        let mut command = Command::new(&program);
        command.arg("--agent").arg(site.cluster.socket(0)).arg("drill").args(arguments);
        let output = command.uid(ORDINARY[0]).output()?;
        Ok((output.status.code(), text(&output.stdout) + &text(&output.stderr)))
    };
    let (code, reported) = as_user(&[])?;
    ensure!(code == Some(1) && reported.contains("--job JOB"), "{reported}");
    let (code, reported) = as_user(&["--job", "roots"])?;
    // The user does not even see that the job runs.
    ensure!(code == Some(1) && reported.contains("no launcher of job roots"), "{reported}");
    site.release()?;
    job.await??;
    nothing_left("FTB_JOB_ID=roots").await
}
