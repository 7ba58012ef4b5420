//! The launcher acts on what is true: conditions from before a job, on spares, and while its
//! launcher is dead; with real agents, `ftbctl publish` and jobs.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::Result;
use ftb_client::{Client, Condition, Severity, Truth, event};
use ftb_tests::cluster::{Plan, binary};
use ftb_tests::skip::skip;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use site::fixture::with_libftb;
use site::{Site, fan, nothing_left, result, run, start, text};
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A log in which the flood below has room for a part only.
const LITTLE_LOG: &str = "[detection]\nsearch = \"300ms\"\nprobe = \"200ms\"\n\
                          [limits]\nlog_bytes = 2097152\n";
const FLOOD: u64 = 30_000;

/// Another publisher states a condition of the node again and again; no rule is about it.
async fn flood(site: &Site, node: &str) -> Result<()> {
    let client = Client::builder("flood").agent(site.cluster.socket(0)).build()?;
    for number in 0..FLOOD {
        let truth = if number % 2 == 0 { Truth::True } else { Truth::False };
        let condition = Condition { host: node.to_owned(), ..Condition::new("SITE_LOAD", truth) };
        let event = event("ftb.ipmi", "SITE_LOAD")?.severity(Severity::Info);
        let event = event.payload("x".repeat(200)).condition(condition);
        drop(client.publish_wait(event).await?);
    }
    client.flush(Duration::from_secs(60)).await?;
    Ok(())
}

async fn status(site: &Site, job: &str) -> Result<Value> {
    Ok(serde_json::from_str(&site.ask(&["status", job, "--json"]).await?)?)
}

/// The acceptance: also the default configuration saves the job soon.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_gets_no_rank_on_a_node_whose_fan_failed_before_it_and_is_saved_soon() -> Result<()> {
    let site = Site::new(3).await?;
    let expected = site.undisturbed().await?;
    fan(&site, "node02", "FANFAIL")?;
    // Without a spare the job does not start, unless the user wants it to.
    let hosts = ["--hosts", "node[01-02]"];
    let refused = run(site.counting("few", &hosts)).await?;
    let reported = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{reported}");
    for words in ["node node02 is not usable (fan failed: FAN 1 FANFAIL)", "--ignore-conditions"] {
        assert!(reported.contains(words), "{words}: {reported}");
    }
    let wanted = site.launch(&["-n", "2", "--hosts", "node02", "--ignore-conditions"], &["true"]);
    let wanted = run(wanted).await?;
    assert!(wanted.status.success(), "{}", text(&wanted.stderr));

    let job = start(site.counting("avoids", &["--spares", "node03", "--checkpoint-every", "auto"]));
    site.wait_met("avoids").await?;
    let shown = status(&site, "avoids").await?;
    assert_eq!(shown["nodes"]["node02"]["ranks"], serde_json::json!([]), "{shown}");
    assert_eq!(shown["nodes"]["node03"]["ranks"], serde_json::json!([2, 3]), "{shown}");
    assert_eq!(shown["nodes"]["node02"]["unusable"], "fan failed: FAN 1 FANFAIL", "{shown}");
    let saved = |status: &Value| status["sets"].as_array().is_some_and(|sets| !sets.is_empty());
    site.wait_status("avoids", "the first set", saved).await?;
    // The fan is replaced: the node may be used again.
    fan(&site, "node02", "FANFAIL=clear")?;
    let usable = |status: &Value| status["nodes"]["node02"]["unusable"].is_null();
    site.wait_status("avoids", "node02 to be usable", usable).await?;
    site.release()?;
    let output = job.await??;
    assert_eq!(result(&output)?, expected);
    let reported = text(&output.stderr);
    assert!(reported.contains("node node03 takes the place of node02"), "{reported}");
    assert!(reported.contains("node node02 may get ranks again"), "{reported}");
    nothing_left("FTB_JOB_ID=avoids").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_spare_is_no_target_and_a_fault_is_seen_by_the_next_launcher() -> Result<()> {
    let site = Site::new(4).await?;
    let expected = site.undisturbed().await?;
    let mut first = site.counting("dead", &["--hosts", "node[01-02]", "--spares", "node[03-04]"]);
    let mut launcher = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    site.wait_met("dead").await?;
    // The first spare fails: the second one is taken.
    fan(&site, "node03", "FANFAIL")?;
    let unusable = |status: &Value| status["nodes"]["node03"]["unusable"].is_string();
    site.wait_status("dead", "node03 to be unusable", unusable).await?;
    let moved = site.ask(&["migrate", "dead", "node02"]).await?;
    assert_eq!(moved, "ranks 2,3 moved from node02 to node04");
    launcher.kill()?;
    launcher.wait()?;
    // While there is no launcher, the spare recovers and another node fails.
    fan(&site, "node03", "FANFAIL=clear")?;
    fan(&site, "node01", "FANFAIL")?;
    let second = start(site.command(&["attach", "dead"]));
    let has_left = |status: &Value| status["nodes"]["node03"]["ranks"] == serde_json::json!([0, 1]);
    site.wait_status("dead", "the ranks of node01 to move", has_left).await?;
    site.release()?;
    let output = second.await??;
    assert_eq!(result(&output)?, expected);
    let reported = text(&output.stderr);
    assert_eq!(reported.matches("moved from node01 to node03").count(), 1, "{reported}");
    nothing_left("FTB_JOB_ID=dead").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_on_one_node_leaves_it_when_mvapich2s_trigger_names_it() -> Result<()> {
    let site = Site::new(2).await?;
    let expected = site.undisturbed_on("node02").await?;
    let job = start(site.counting("one", &["--hosts", "node01", "--spares", "node02"]));
    site.wait_met("one").await?;
    let client = ftb_client::Client::builder("mv2").agent(site.cluster.socket(1)).build()?;
    let trigger = ftb_client::event("FTB.MPI.MIG_TRIGGER", "FTB_MIGRATE_TRIGGER")?;
    client.publish(trigger.payload(&b"node01\0"[..]))?.confirmed().await?;
    let has_left = |status: &Value| status["nodes"]["node02"]["ranks"] != serde_json::json!([]);
    site.wait_status("one", "the ranks to move", has_left).await?;
    site.release()?;
    assert_eq!(result(&job.await??)?, expected);
    nothing_left("FTB_JOB_ID=one").await
}

/// The program of MVAPICH2, linked with libftb. Another user of the host may publish there too, and
/// moves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn mvapich2s_trigger_program_migrates_a_node_when_the_owner_of_the_job_runs_it() -> Result<()>
{
    let site = Site::new(3).await?;
    let source = include_str!("mv2_trigger.c");
    let Some(program) = with_libftb(&site, "mv2_trigger", source)? else { return Ok(()) };
    let expected = site.undisturbed().await?;
    let job = start(site.counting("mv2", &["--hosts", "node[01-02]", "--spares", "node03"]));
    site.wait_met("mv2").await?;
    let trigger = |host: &str, uid: Option<u32>| {
        let mut command = Command::new(&program);
        // node03 is another host than the one that is named.
        command.arg(host).env("FTB_AGENT_SOCKET", site.cluster.socket(2));
        command.env("FTB_CONNECT_WAIT", "30s");
        if let Some(uid) = uid {
            command.uid(uid);
        }
        command.output()
    };
    match ftb_tests::user::impossible() {
        Some(why) => skip(&why),
        None => {
            std::fs::set_permissions(site.cluster.dir(), Permissions::from_mode(0o755))?;
            let done = trigger("node01", Some(ftb_tests::user::ORDINARY[0]))?;
            assert!(done.status.success(), "{done:?}");
        }
    }
    let done = trigger("node02", None)?;
    assert!(done.status.success(), "{done:?}");
    let moved = |status: &Value| status["nodes"]["node03"]["ranks"] == serde_json::json!([2, 3]);
    site.wait_status("mv2", "the ranks of node02 to move", moved).await?;
    site.release()?;
    let output = job.await??;
    assert_eq!(result(&output)?, expected);
    let reported = text(&output.stderr);
    let words = "FTB_MIGRATE_TRIGGER on node02, rule FTB_MIGRATE_TRIGGER): ranks 2,3 moved";
    assert_eq!(reported.matches(words).count(), 1, "{reported}");
    assert_eq!(reported.matches(" moved from ").count(), 1, "{reported}");
    nothing_left("FTB_JOB_ID=mv2").await
}

/// MVAPICH2's trigger, by the owner of the job.
async fn trigger(site: &Site, node: &str) -> Result<()> {
    let client = Client::builder("mv2").agent(site.cluster.socket(1)).build()?;
    let trigger = event("FTB.MPI.MIG_TRIGGER", "FTB_MIGRATE_TRIGGER")?.payload(node.to_owned());
    client.publish(trigger)?.confirmed().await?;
    Ok(())
}

/// An event without a condition is in no table: the next launcher reads it in the log, once.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_without_a_condition_waits_for_the_next_launcher_which_acts_once() -> Result<()> {
    let site = Site::new(3).await?;
    let expected = site.undisturbed().await?;
    let mut command = site.counting("away", &["--hosts", "node[01-02]", "--spares", "node03"]);
    let mut launcher = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let on = |node: &'static str, ranks: [u32; 2]| {
        move |status: &Value| status["nodes"][node]["ranks"] == serde_json::json!(ranks)
    };
    site.wait_met("away").await?;
    trigger(&site, "node01").await?;
    site.wait_status("away", "the ranks of node01 to move", on("node03", [0, 1])).await?;
    // They go back: the trigger counts no second time.
    site.ask(&["usable", "away", "node01"]).await?;
    site.wait_spare("away", "node01").await?;
    site.ask(&["migrate", "away", "node03"]).await?;
    site.ask(&["usable", "away", "node03"]).await?;
    site.wait_spare("away", "node03").await?;
    launcher.kill()?;
    launcher.wait()?;
    trigger(&site, "node02").await?;
    let second = start(site.command(&["attach", "away"]));
    site.wait_status("away", "the ranks of node02 to move", on("node03", [2, 3])).await?;
    let shown = status(&site, "away").await?;
    assert_eq!(shown["nodes"]["node01"]["ranks"], serde_json::json!([0, 1]), "{shown}");
    site.release()?;
    let output = second.await??;
    assert_eq!(result(&output)?, expected);
    let reported = text(&output.stderr);
    assert_eq!(reported.matches("moved from node02 to node03").count(), 1, "{reported}");
    assert_eq!(reported.matches(": migrate (").count(), 1, "{reported}");
    assert!(!reported.contains("on node01"), "{reported}");
    nothing_left("FTB_JOB_ID=away").await
}

/// The log has lost what was published without a launcher: the next one says so.
#[tokio::test(flavor = "multi_thread")]
async fn the_next_launcher_reports_events_that_no_log_has_any_more() -> Result<()> {
    let site = Site::planned(Plan::new(3, 2).extra(LITTLE_LOG)).await?;
    let expected = site.undisturbed().await?;
    let mut command = site.counting("flood", &["--hosts", "node[01-02]", "--spares", "node03"]);
    let mut launcher = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    site.wait_met("flood").await?;
    launcher.kill()?;
    launcher.wait()?;
    flood(&site, "node03").await?;
    let second = start(site.command(&["attach", "flood"]));
    site.checkpoint("flood").await?;
    site.release()?;
    let output = second.await??;
    assert_eq!(result(&output)?, expected);
    let reported = text(&output.stderr);
    assert!(reported.contains("events of ftb.ipmi"), "{reported}");
    nothing_left("FTB_JOB_ID=flood").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launcher_with_a_gap_reads_again_misses_no_fault_and_acts_once() -> Result<()> {
    let site = Site::planned(Plan::new(4, 2).extra(LITTLE_LOG)).await?;
    let expected = site.undisturbed().await?;
    let reported = site.jobs.path().join("reported");
    let printed = site.jobs.path().join("printed");
    let mut command = site.counting("gap", &["--hosts", "node[01-02]", "--spares", "node[03-04]"]);
    let (out, err) = (File::create(&printed)?, File::create(&reported)?);
    let mut launcher = command.stdout(out).stderr(err).spawn()?;
    site.wait_met("gap").await?;
    fan(&site, "node01", "FANFAIL")?;
    let on = |node: &'static str, ranks: [u32; 2]| {
        move |status: &Value| status["nodes"][node]["ranks"] == serde_json::json!(ranks)
    };
    site.wait_status("gap", "the ranks of node01 to move", on("node03", [0, 1])).await?;
    let pid = Pid::from_raw(i32::try_from(launcher.id())?);
    kill(pid, Signal::SIGSTOP)?;
    fan(&site, "node02", "FANFAIL")?;
    flood(&site, "node02").await?;
    kill(pid, Signal::SIGCONT)?;
    site.wait_status("gap", "the ranks of node02 to move", on("node04", [2, 3])).await?;
    site.release()?;
    let status = tokio::task::spawn_blocking(move || launcher.wait()).await??;
    let (stdout, stderr) = (std::fs::read(&printed)?, std::fs::read(&reported)?);
    let reported = text(&stderr);
    assert_eq!(result(&std::process::Output { status, stdout, stderr })?, expected);
    assert!(reported.contains("the table is read again"), "{reported}");
    for words in ["moved from node01 to node03", "moved from node02 to node04"] {
        assert_eq!(reported.matches(words).count(), 1, "{words}: {reported}");
    }
    assert!(!reported.contains("fault 3"), "{reported}");
    nothing_left("FTB_JOB_ID=gap").await
}

/// All agents restart without journals, and the publisher is gone: no table has the fault any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_fault_that_no_table_has_any_more_keeps_no_node_out() -> Result<()> {
    let mut site = Site::new(3).await?;
    let expected = site.undisturbed().await?;
    let job = start(site.counting("forgets", &["--hosts", "node[01-02]", "--spares", "node03"]));
    site.wait_met("forgets").await?;
    fan(&site, "node03", "FANFAIL")?;
    let is_out = |status: &Value| status["nodes"]["node03"]["unusable"].is_string();
    site.wait_status("forgets", "node03 to be unusable", is_out).await?;
    (0..3).try_for_each(|rank| site.cluster.crash(rank))?;
    (0..3).try_for_each(|rank| site.cluster.run(rank))?;
    site.cluster.wait_whole().await?;
    let is_back = |status: &Value| status["nodes"]["node03"]["unusable"].is_null();
    site.wait_status("forgets", "node03 to be usable", is_back).await?;
    site.release()?;
    let output = job.await??;
    assert_eq!(result(&output)?, expected);
    let reported = text(&output.stderr);
    assert!(reported.contains("the table has its conditions no more"), "{reported}");
    nothing_left("FTB_JOB_ID=forgets").await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_launcher_uses_the_nodes_that_a_person_wants_to_be_used() -> Result<()> {
    let site = Site::new(3).await?;
    let expected = site.undisturbed().await?;
    fan(&site, "node02", "FANFAIL")?;
    let hosts = ["--hosts", "node[01-02]", "--spares", "node03", "--ignore-conditions"];
    let mut first = site.counting("keeps", &hosts);
    let mut launcher = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    site.wait_met("keeps").await?;
    fan(&site, "node03", "FANFAIL")?;
    let unusable = |status: &Value| status["nodes"]["node03"]["unusable"].is_string();
    site.wait_status("keeps", "node03 to be unusable", unusable).await?;
    site.ask(&["usable", "keeps", "node03"]).await?;
    launcher.kill()?;
    launcher.wait()?;
    let second = start(site.command(&["attach", "keeps"]));
    site.wait_spare("keeps", "node03").await?;
    site.checkpoint("keeps").await?;
    let shown = status(&site, "keeps").await?;
    assert_eq!(shown["nodes"]["node02"]["ranks"], serde_json::json!([2, 3]), "{shown}");
    assert!(shown["nodes"]["node03"]["unusable"].is_null(), "{shown}");
    // A fan that fails anew counts.
    fan(&site, "node02", "FANFAIL=clear")?;
    fan(&site, "node02", "FANFAIL")?;
    let has_left = |status: &Value| status["nodes"]["node03"]["ranks"] == serde_json::json!([2, 3]);
    site.wait_status("keeps", "the ranks of node02 to move", has_left).await?;
    site.release()?;
    let output = second.await??;
    assert_eq!(result(&output)?, expected);
    let reported = text(&output.stderr);
    assert_eq!(reported.matches("moved from node02 to node03").count(), 1, "{reported}");
    nothing_left("FTB_JOB_ID=keeps").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_stream_with_conditions_is_replayed() -> Result<()> {
    let site = Site::without_examples(1).await?;
    for condition in ["FANFAIL", "FANFAIL=clear"] {
        fan(&site, "node01", condition)?;
    }
    let mut command = Command::new(binary("ftbctl", "ftbctl")?);
    command.arg("--agent").arg(site.cluster.socket(0));
    let words = ["events", "condition=FANFAIL", "--since", "1h", "--json"];
    let recorded = command.args(words).output()?.stdout;
    let first = text(&recorded).lines().next().unwrap_or_default().to_owned();
    let first: Value = serde_json::from_str(&first)?;
    let stated = &first["condition"];
    for (field, value) in [("host", "node01"), ("component", "FAN 1"), ("state", "true")] {
        assert_eq!(stated[field], value, "{first}");
    }
    let file = site.jobs.path().join("events.json");
    std::fs::write(&file, recorded)?;
    let replayed = run(site.command(&["policy", "test", &file.display().to_string()])).await?;
    let shown = text(&replayed.stdout);
    assert!(replayed.status.success(), "{}", text(&replayed.stderr));
    let done: Vec<&str> = shown.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(done, ["unusable", "tell", "migrate", "tell", "usable"], "{shown}");
    Ok(())
}
