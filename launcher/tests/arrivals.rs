//! Nodes that join a running job, and jobs that wait for nodes, with real processes.
//!
//! Tests wait for lines of output and for states, never for time.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result, ensure};
use ftb_launcher_core::jl::{NO_NODES, WAIT};
use ftb_tests::cluster::Plan;
use nix::sys::signal::{Signal, kill};
use serde_json::Value;
use site::memory::{state_of, wait_protected};
use site::{Site, fan, nothing_left, ranks_of, result, run, start, text};
use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Output, Stdio};
use std::time::Duration;

async fn status(site: &Site, job: &str) -> Result<Value> {
    Ok(serde_json::from_str(&site.ask(&["status", job, "--json"]).await?)?)
}

async fn wait_waiting(site: &Site, job: &str) -> Result<Value> {
    site.wait("the job to wait for a node", async || {
        let status = status(site, job).await?;
        Ok((status["state"] == "waiting").then_some(status))
    })
    .await
}

/// A host is gone with its agent and its launch agent.
fn lose(site: &mut Site, job: &str, node: usize) -> Result<()> {
    let name = site.cluster.host(node).to_owned();
    site.cluster.crash(node)?;
    kill(site.nla_of(job, &name)?, Signal::SIGKILL)?;
    Ok(())
}

fn unix_s(time: &Value) -> Result<u64> {
    let time = humantime::parse_rfc3339(time.as_str().context("no time")?)?;
    Ok(time.duration_since(std::time::UNIX_EPOCH)?.as_secs())
}

async fn add(site: &Site, job: &str, nodes: &str, more: &[&str]) -> Result<Output> {
    let local = site.local_nodes();
    let mut arguments = vec!["add", job, nodes, "--local-nodes", &local];
    arguments.extend(more);
    run(site.command(&arguments)).await
}

fn on(ranks: [u32; 2], node: &'static str) -> impl Fn(&Value) -> bool {
    move |status: &Value| status["nodes"][node]["ranks"] == serde_json::json!(ranks)
}

/// The acceptance: the launcher is killed while its job waits, the next one waits on; an added node
/// is used at once, and the images come from the memory of the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_waits_over_a_dead_launcher_and_goes_on_from_memory_on_an_added_node() -> Result<()> {
    let mut site = Site::new(4).await?;
    let expected = site.undisturbed_on("node04").await?;
    let options = ["--hosts", "node[01-03]", "--ppn", "2", "--memory", "xor:3"];
    let options = [&options[..], &["--memory-every", "never", "--wait-for-nodes", "10m"]].concat();
    let mut command = site.counting("waits", &options);
    let mut launcher = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let set = wait_protected(&site, "waits", "").await?;
    lose(&mut site, "waits", 1)?;
    let before = wait_waiting(&site, "waits").await?;
    assert!(before["doing"].as_str().is_some_and(|doing| doing.ends_with(WAIT)), "{before}");
    let wait = &before["waits"];
    assert_eq!(wait["node"], "node02", "{before}");
    assert_eq!(unix_s(&wait["until"])? - unix_s(&wait["since"])?, 600, "{before}");
    let shown = text(&run(site.command(&["status", "waits"])).await?.stdout);
    assert!(shown.contains("waits   for a node in place of node02, since 20"), "{shown}");
    launcher.kill()?;
    launcher.wait()?;
    let second = start(site.command(&["attach", "waits"]));
    let after = wait_waiting(&site, "waits").await?;
    assert_eq!(after["waits"], before["waits"], "the time goes on");
    let added = add(&site, "waits", "node04", &[]).await?;
    assert!(added.status.success(), "{}", text(&added.stderr));
    assert!(text(&added.stdout).contains("1 node is a spare of the job"), "{added:?}");
    site.wait_status("waits", "the ranks to be on node04", on([2, 3], "node04")).await?;
    site.release()?;
    let output = second.await??;
    let reported = text(&output.stderr);
    assert_eq!(result(&output)?, expected, "{reported}");
    assert!(reported.contains("the job waits up to"), "{reported}");
    ensure!(!reported.contains("is put aside"), "{set} was lost: {reported}");
    nothing_left("FTB_JOB_ID=waits").await
}

/// Its launch agent is started again, without a request, as soon as its agent is there. Its own
/// images are gone: those in the store are taken.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_returns_ends_the_wait() -> Result<()> {
    let mut site = Site::new(3).await?;
    let expected = site.undisturbed().await?;
    let hosts = ["--hosts", "node[01-02]", "--wait-for-nodes", "10m"];
    let job = start(site.counting("returns", &hosts));
    site.wait_met("returns").await?;
    site.ask(&["checkpoint", "returns"]).await?;
    lose(&mut site, "returns", 1)?;
    wait_waiting(&site, "returns").await?;
    site.cluster.run(1)?;
    site.wait_status("returns", "the ranks to be back", on([2, 3], "node02")).await?;
    site.release()?;
    let output = job.await??;
    assert_eq!(result(&output)?, expected, "{}", text(&output.stderr));
    nothing_left("FTB_JOB_ID=returns").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_that_clears_ends_the_wait() -> Result<()> {
    let site = Site::new(3).await?;
    let expected = site.undisturbed().await?;
    let options = ["--spares", "node03", "--wait-for-nodes", "10m"];
    let job = start(site.counting("clears", &options));
    site.wait_met("clears").await?;
    site.ask(&["checkpoint", "clears"]).await?;
    fan(&site, "node03", "FANFAIL")?;
    let unusable = |status: &Value| status["nodes"]["node03"]["unusable"].is_string();
    site.wait_status("clears", "node03 to be unusable", unusable).await?;
    fan(&site, "node02", "FANFAIL")?;
    let unusable = |status: &Value| status["nodes"]["node02"]["unusable"].is_string();
    site.wait_status("clears", "node02 to be unusable", unusable).await?;
    kill(site.nla_of("clears", "node02")?, Signal::SIGKILL)?;
    wait_waiting(&site, "clears").await?;
    fan(&site, "node03", "FANFAIL=clear")?;
    site.wait_status("clears", "the ranks to be on node03", on([2, 3], "node03")).await?;
    site.release()?;
    let output = job.await??;
    assert_eq!(result(&output)?, expected, "{}", text(&output.stderr));
    nothing_left("FTB_JOB_ID=clears").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits_too_long_ends_with_a_code_of_its_own() -> Result<()> {
    let mut site = Site::new(2).await?;
    let options = ["--wait-for-nodes", "3s", "--keep"];
    let job = start(site.counting("vain", &options));
    site.wait_met("vain").await?;
    site.ask(&["checkpoint", "vain"]).await?;
    lose(&mut site, "vain", 1)?;
    let output = job.await??;
    let reported = text(&output.stderr);
    assert_eq!(output.status.code(), Some(NO_NODES), "{reported}");
    for words in ["no node became usable within 3s", "to start again: ftb-launch restart"] {
        assert!(reported.contains(words), "{words}: {reported}");
    }
    nothing_left("FTB_JOB_ID=vain").await
}

/// Added while nothing is wrong: a spare like another. Again: nothing. Refused by name: all or
/// none. Of an agent that is not there: failed, with the reason.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_added_to_a_running_job_as_spares() -> Result<()> {
    let mut site = Site::new(5).await?;
    let expected = site.undisturbed().await?;
    let reported = site.jobs.path().join("reported");
    let mut command = site.counting("grows", &["--hosts", "node[01-02]"]);
    let printed = site.jobs.path().join("printed");
    let mut launcher =
        command.stdout(File::create(&printed)?).stderr(File::create(&reported)?).spawn()?;
    site.wait_met("grows").await?;
    fan(&site, "node04", "FANFAIL")?;
    let refused = add(&site, "grows", "node[03-04]", &[]).await?;
    let words = text(&refused.stderr);
    assert!(!refused.status.success(), "{words}");
    assert!(words.contains("refused: node node04 is not usable (fan failed: FAN 1"), "{words}");
    assert!(status(&site, "grows").await?["nodes"]["node03"].is_null(), "all or none");
    let unknown = add(&site, "grows", "node09", &[]).await?;
    assert_eq!(unknown.status.code(), Some(64), "{}", text(&unknown.stderr));

    let added = add(&site, "grows", "node03", &["--json"]).await?;
    let lines = text(&added.stdout);
    let lines: Vec<Value> = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let outcomes: Vec<&Value> = lines.iter().map(|line| &line["outcome"]).collect();
    assert_eq!(outcomes, ["Accepted", "Done"], "{lines:?}");
    let again = add(&site, "grows", "node[01,03]", &[]).await?;
    assert_eq!(text(&again.stdout).trim(), "node[01,03] is part of the job already");

    // What happens to an added node is known: its conditions too.
    fan(&site, "node03", "FANFAIL")?;
    let unusable = |status: &Value| status["nodes"]["node03"]["unusable"].is_string();
    site.wait_status("grows", "node03 to be unusable", unusable).await?;
    fan(&site, "node03", "FANFAIL=clear")?;
    let usable = |status: &Value| status["nodes"]["node03"]["unusable"].is_null();
    site.wait_status("grows", "node03 to be usable", usable).await?;
    let before = ranks_of("grows")?;
    let moved = site.ask(&["migrate", "grows", "node02"]).await?;
    assert_eq!(moved, "ranks 2,3 moved from node02 to node03");
    let after = ranks_of("grows")?;
    ensure!(before[&0] == after[&0] && before[&2] != after[&2], "{before:?} {after:?}");

    site.cluster.crash(4)?;
    let failed = add(&site, "grows", "node05", &[]).await?;
    let words = text(&failed.stderr);
    // Refused, if its loss is known by then, or failed.
    let names = words.contains("node05: ") || words.contains("node05 is not usable");
    assert!(!failed.status.success() && names, "{words}");
    site.release()?;
    let ended = tokio::task::spawn_blocking(move || launcher.wait()).await??;
    let (stdout, stderr) = (std::fs::read(&printed)?, std::fs::read(&reported)?);
    assert_eq!(result(&Output { status: ended, stdout, stderr })?, expected);
    nothing_left("FTB_JOB_ID=grows").await
}

/// The launcher that was asked dies at once: the command repeats its request to the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_to_add_a_node_outlives_the_launcher() -> Result<()> {
    let site = Site::new(3).await?;
    let expected = site.undisturbed().await?;
    let mut command = site.counting("asked", &["--hosts", "node[01-02]"]);
    let mut launcher = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    site.wait_met("asked").await?;
    let pid = nix::unistd::Pid::from_raw(i32::try_from(launcher.id())?);
    kill(pid, Signal::SIGSTOP)?;
    let local = site.local_nodes();
    let adding = start(site.command(&["add", "asked", "node03", "--local-nodes", &local]));
    let dir = site.jobs.path().join("asked");
    site.wait("the request to be written", async || {
        let names = std::fs::read_dir(&dir)?.filter_map(Result::ok).map(|entry| entry.file_name());
        Ok(names.into_iter().any(|name| name.to_string_lossy().starts_with("add-")).then_some(()))
    })
    .await?;
    launcher.kill()?;
    launcher.wait()?;
    let second = start(site.command(&["attach", "asked"]));
    let added = tokio::time::timeout(Duration::from_secs(120), adding).await???;
    assert!(added.status.success(), "{}", text(&added.stderr));
    site.wait_spare("asked", "node03").await?;
    site.release()?;
    let output = second.await??;
    assert_eq!(result(&output)?, expected, "{}", text(&output.stderr));
    nothing_left("FTB_JOB_ID=asked").await
}

/// Where it cannot listen, and where no agent is. What is under way then is given up for the right
/// data.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_wrong_data_is_added_again_with_the_right_data() -> Result<()> {
    let site = Site::new(3).await?;
    let expected = site.undisturbed().await?;
    let job = start(site.counting("wrong", &["--hosts", "node[01-02]"]));
    site.wait_met("wrong").await?;
    let file = site.cluster.dir().join("wrong.toml");
    let socket = site.cluster.socket(2).display();
    let text_of = |listen| {
        format!("[[node]]\nname = \"node03\"\nagent = \"{socket}\"\nlisten = \"{listen}\"\n")
    };
    std::fs::write(&file, text_of("203.0.113.1:0"))?;
    let nodes = file.display().to_string();
    let failed = run(site.command(&["add", "wrong", "node03", "--nodes", &nodes])).await?;
    let words = text(&failed.stderr);
    assert!(!failed.status.success() && words.contains("node03: "), "{words}");

    let nowhere = ["add", "wrong", "node03", "--local-nodes", "node03=/nowhere/agent.sock"];
    let first = start(site.command(&nowhere));
    site.wait("node03 to be arriving", async || {
        let state = state_of(&site, "wrong")?;
        Ok((state["job"]["nodes"]["node03"]["arriving"] == true).then_some(()))
    })
    .await?;
    let added = add(&site, "wrong", "node03", &[]).await?;
    assert!(added.status.success(), "{}", text(&added.stderr));
    assert!(text(&added.stdout).contains("1 node is a spare of the job"), "{added:?}");
    let words = text(&first.await??.stderr);
    assert!(words.contains("node03: it was added again with other data"), "{words}");
    assert_eq!(
        site.ask(&["migrate", "wrong", "node02"]).await?,
        "ranks 2,3 moved from node02 to node03"
    );
    site.release()?;
    let output = job.await??;
    assert_eq!(result(&output)?, expected, "{}", text(&output.stderr));
    nothing_left("FTB_JOB_ID=wrong").await
}

/// Subscriptions of the launcher when a job of two nodes with one spare begins, and some more.
const SUBSCRIPTIONS: usize = 14;

/// A node that is refused is not in the file of the job; a known one is not subscribed to again.
#[tokio::test(flavor = "multi_thread")]
async fn what_adds_no_node_leaves_nothing_behind() -> Result<()> {
    let limits = format!(
        "[detection]\nsearch = \"300ms\"\nprobe = \"200ms\"\n\
         [limits]\nsubscriptions_per_client_max = {SUBSCRIPTIONS}\n"
    );
    let site = Site::planned(Plan::new(4, 2).extra(&limits)).await?;
    let expected = site.undisturbed().await?;
    let job = start(site.counting("same", &["--hosts", "node[01-02]", "--spares", "node03"]));
    site.wait_met("same").await?;
    for _ in 0..SUBSCRIPTIONS {
        let again = add(&site, "same", "node03", &[]).await?;
        assert!(again.status.success(), "{}", text(&again.stderr));
    }
    fan(&site, "node03", "FANFAIL")?;
    let unusable = |status: &Value| status["nodes"]["node03"]["unusable"].is_string();
    site.wait_status("same", "node03 to be unusable", unusable).await?;
    let refused = add(&site, "same", "node[03-04]", &[]).await?;
    let words = text(&refused.stderr);
    assert!(words.contains("refused: node node03 is not usable"), "{words}");
    let file = std::fs::read(site.jobs.path().join("same/job.json"))?;
    let file: Value = serde_json::from_slice(&file)?;
    let specs = file["specs"].as_object().context("no specifications")?;
    assert_eq!(specs.keys().collect::<Vec<_>>(), ["node01", "node02", "node03"]);
    site.release()?;
    let output = job.await??;
    assert_eq!(result(&output)?, expected, "{}", text(&output.stderr));
    nothing_left("FTB_JOB_ID=same").await
}

/// Starts launch agents as ssh does, here. A kill on a "host" takes its time: until there is an
/// agent to kill, but for at most three seconds.
const SLOW_KILL: &str = r#"#!/bin/sh
case "$2" in *"kill -KILL"*)
    i=0
    until [ $i -ge 30 ] || kill -0 "$(cut -d' ' -f1 IMAGES/slow.$1/lock)" 2>/dev/null; do
        sleep 0.1
        i=$((i + 1))
    done ;;
esac
exec sh -c "$2"
"#;

/// The kill of the former agent of a node does not meet the new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_just_lost_is_added_after_the_kill_of_its_former_agent() -> Result<()> {
    let site = Site::new(3).await?;
    let expected = site.undisturbed().await?;
    let dir = site.cluster.dir().to_owned();
    let images = dir.join("images");
    let shown = images.display().to_string();
    let ssh = dir.join("slow-kill");
    std::fs::write(&ssh, SLOW_KILL.replace("IMAGES", &shown))?;
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755))?;
    let node = |rank: usize| {
        let (name, socket) = (site.cluster.host(rank), site.cluster.socket(rank).display());
        format!(
            "[[node]]\nname = \"{name}\"\nagent = \"{socket}\"\naddress = \"127.0.0.1\"\n\
             images = \"{shown}\"\n"
        )
    };
    let file = dir.join("nodes.toml");
    std::fs::write(&file, (0..3).map(node).collect::<String>())?;
    let (nodes, ssh) = (file.display().to_string(), ssh.display().to_string());
    let agent = site.cluster.socket(0).display().to_string();
    let (count, gate) = (site.count.display().to_string(), site.gate().display().to_string());
    let mut words = vec!["run", "--start", "ssh", "--ssh-command", &ssh, "--nodes", &nodes];
    words.extend(["--agent", &agent, "--address", "127.0.0.1", "--checkpoint-every", "never"]);
    words.extend(["-n", "4", "--job", "slow", "--hosts", "node[01-02]", "--spares", "node03"]);
    words.extend(["--", &count, site::STEPS, site::PAUSE_US, &gate]);
    let (reports, printed) = (site.jobs.path().join("reports"), site.jobs.path().join("printed"));
    let mut command = site.command(&words);
    let mut launcher =
        command.stdout(File::create(&printed)?).stderr(File::create(&reports)?).spawn()?;
    site.wait_met("slow").await?;
    let lock = std::fs::read_to_string(images.join("slow.node03/lock"))?;
    let pid = lock.split(' ').next().context("an empty lock")?.parse()?;
    kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL)?;
    let lost = "node node03 is lost";
    site.wait("node03 to be lost", async || {
        Ok(std::fs::read_to_string(&reports)?.contains(lost).then_some(()))
    })
    .await?;
    let added = run(site.command(&["add", "slow", "node03", "--nodes", &nodes])).await?;
    assert!(added.status.success(), "{}", text(&added.stderr));
    let moved = site.ask(&["migrate", "slow", "node02"]).await?;
    assert_eq!(moved, "ranks 2,3 moved from node02 to node03");
    site.release()?;
    let status = tokio::task::spawn_blocking(move || launcher.wait()).await??;
    let (stdout, stderr) = (std::fs::read(&printed)?, std::fs::read(&reports)?);
    let reported = text(&stderr);
    assert_eq!(result(&Output { status, stdout, stderr })?, expected, "{reported}");
    assert_eq!(reported.matches(lost).count(), 1, "{reported}");
    nothing_left("FTB_JOB_ID=slow").await
}
