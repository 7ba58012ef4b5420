//! Recovery with real processes: ranks and node launch agents are killed, survivors go back in
//! place.
//!
//! Tests wait for lines of output and for states, never for time. `FTB_FAULT_RUNS=n` sets the
//! number of broken jobs.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result, ensure};
use ftb_tests::cluster::wait_for;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use site::memory::wait_protected;
use site::{PAUSE_US, STEPS, Site, nothing_left, ranks_of, result, start, text};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Output;
use tokio::task::JoinHandle;

fn kill_rank(job: &str, rank: u32) -> Result<()> {
    let (pid, _) = *ranks_of(job)?.get(&rank).context("no such rank")?;
    kill(pid, Signal::SIGKILL)?;
    Ok(())
}

/// Waits until the last recovery is over and all ranks are there again.
async fn wait_whole(site: &Site, job: &str, recoveries: u64) -> Result<()> {
    let path = site.jobs.path().join(job).join("state.json");
    wait_for("the job to be whole again", async || {
        let state: serde_json::Value = serde_json::from_slice(&std::fs::read(&path)?)?;
        let jl = &state["jl"];
        let over = jl["open"].is_null() && jl["job"]["met"] == true;
        let counted = jl["job"]["restarts"].as_u64() >= Some(recoveries);
        Ok((over && counted && ranks_of(job)?.len() == 4).then_some(()))
    })
    .await
}

/// No option about checkpoints, no policy file: what a user has who gives neither.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_with_the_default_configuration_is_saved_soon_and_outlives_a_rank() -> Result<()> {
    let site = Site::new(3).await?;
    let expected = site.undisturbed().await?;
    let (nodes, count) = (site.local_nodes(), site.count.display().to_string());
    let gate = site.gate().display().to_string();
    let run = ["run", "--local-nodes", &nodes, "-n", "4", "--spares", "node03", "--job", "default"];
    let job = start(site.command(&[&run[..], &["--", &count, STEPS, PAUSE_US, &gate]].concat()));
    site.wait_met("default").await?;
    let saved =
        |status: &serde_json::Value| status["sets"].as_array().is_some_and(|sets| !sets.is_empty());
    // 20 s after the start: within the patience of all tests.
    site.wait_status("default", "the first set", saved).await?;
    kill_rank("default", 1)?;
    wait_whole(&site, "default", 1).await?;
    site.release()?;
    let output = job.await??;
    let reported = text(&output.stderr);
    ensure!(result(&output)? == expected, "{reported}");
    let words = "(on_death = rollback): the job goes back to set set-";
    let went_back = reported.lines().find(|line| line.contains(words));
    ensure!(went_back.is_some_and(|line| line.contains("in place")), "{reported}");
    nothing_left("FTB_JOB_ID=default").await
}

/// The TCP connections between ranks of a job: the two ranks, lower first, and the two addresses.
fn connections_of(job: &str) -> Result<BTreeMap<(u32, u32), BTreeSet<String>>> {
    let mut owners = BTreeMap::new();
    for (rank, (pid, _)) in ranks_of(job)? {
        for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))?.filter_map(Result::ok) {
            let Ok(target) = std::fs::read_link(entry.path()) else { continue };
            owners.insert(target.display().to_string(), rank);
        }
    }
    let mut ends = BTreeMap::new();
    for line in std::fs::read_to_string("/proc/net/tcp")?.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Number, local address, remote address, state (01: established), five others, inode.
        if let [_, local, remote, "01", _, _, _, _, _, inode, ..] = words[..]
            && let Some(rank) = owners.get(&format!("socket:[{inode}]"))
        {
            ends.insert((local.to_owned(), remote.to_owned()), *rank);
        }
    }
    let mut found: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for ((local, remote), rank) in &ends {
        if let Some(other) = ends.get(&(remote.clone(), local.clone())).filter(|o| *o > rank) {
            found.entry((*rank, *other)).or_default().insert(format!("{local} {remote}"));
        }
    }
    Ok(found)
}

/// What the launcher has of the last barrier.
fn barrier_of(site: &Site, job: &str) -> Result<serde_json::Value> {
    let path = site.jobs.path().join(job).join("state.json");
    let state: serde_json::Value = serde_json::from_slice(&std::fs::read(path)?)?;
    Ok(state["jl"]["job"]["barrier"].clone())
}

/// A rank dies, twice, and the second time the one that replaced it.
#[tokio::test(flavor = "multi_thread")]
async fn survivors_keep_their_connections_and_only_a_replacement_publishes_its_address()
-> Result<()> {
    let site = Site::new(3).await?;
    let expected = site.undisturbed().await?;
    let job = start(site.counting("kept", &["--spares", "node03"]));
    site.wait_met("kept").await?;
    // The agreement on it makes links between rank 0 and all others.
    site.checkpoint("kept").await?;
    let first = connections_of("kept")?;
    // Ranks 0 and 1 are on node01, 2 and 3 on node02.
    ensure!(first.contains_key(&(0, 2)) && first.contains_key(&(0, 3)), "{first:?}");
    let mut before = barrier_of(&site, "kept")?;
    for recovery in 1..=2 {
        kill_rank("kept", 3)?;
        wait_whole(&site, "kept", 1).await?;
        site.checkpoint("kept").await?;
        let now = connections_of("kept")?;
        ensure!(now[&(0, 2)] == first[&(0, 2)], "recovery {recovery}: {first:?} {now:?}");
        ensure!(now[&(0, 3)] != first[&(0, 3)], "recovery {recovery}: {first:?} {now:?}");
        let after = barrier_of(&site, "kept")?;
        for rank in 0..4 {
            let key = format!("ftb-addr-{rank}");
            let is_kept = before["addresses"][&key] == after["addresses"][&key];
            ensure!(is_kept == (rank != 3), "recovery {recovery}: {key} {before} {after}");
        }
        let lines = after["result"][0]["lines"].as_str().context("no result")?;
        ensure!(lines.contains("ftb-joined=3\n"), "recovery {recovery}: {lines}");
        ensure!(lines.matches("ftb-addr-").count() == 1, "recovery {recovery}: {lines}");
        before = after;
    }
    site.release()?;
    assert_eq!(result(&job.await??)?, expected);
    nothing_left("FTB_JOB_ID=kept").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_rank_and_a_dead_node_cost_the_others_nothing_but_work() -> Result<()> {
    let site = Site::new(3).await?;
    let expected = site.undisturbed().await?;
    let job = start(site.counting("inplace", &["--spares", "node03"]));
    site.wait_met("inplace").await?;
    site.ask(&["checkpoint", "inplace"]).await?;
    let before = ranks_of("inplace")?;
    kill_rank("inplace", 1)?;
    wait_whole(&site, "inplace", 1).await?;
    let after = ranks_of("inplace")?;
    let same = |rank: u32| before[&rank] == after[&rank];
    ensure!(same(0) && !same(1) && same(2) && same(3), "{before:?} {after:?}");
    // Of the node with ranks 2 and 3 nothing is left; they go on from the same set on the spare.
    kill(site.nla_of("inplace", "node02")?, Signal::SIGKILL)?;
    wait_whole(&site, "inplace", 2).await?;
    let last = ranks_of("inplace")?;
    ensure!(last[&0] == after[&0] && last[&1] == after[&1], "{after:?} {last:?}");
    // A set that is made after that is as good as any.
    site.ask(&["checkpoint", "inplace"]).await?;
    kill_rank("inplace", 0)?;
    wait_whole(&site, "inplace", 1).await?;
    site.release()?;
    let output = job.await??;
    assert_eq!(result(&output)?, expected);
    let reported = text(&output.stderr);
    assert_eq!(reported.matches("went back to set").count(), 3, "{reported}");
    assert!(!reported.contains("restarts from set"), "{reported}");
    nothing_left("FTB_JOB_ID=inplace").await
}

/// The image of a rank in a newer set is exchanged for its image of an older one: both are whole.
#[tokio::test(flavor = "multi_thread")]
async fn an_exchanged_image_is_refused_and_the_set_before_is_used() -> Result<()> {
    let site = Site::new(3).await?;
    let expected = site.undisturbed().await?;
    let job = start(site.counting("forged", &["--spares", "node03"]));
    site.wait_met("forged").await?;
    site.ask(&["checkpoint", "forged"]).await?;
    site.ask(&["checkpoint", "forged"]).await?;
    let store = site.jobs.path().join("forged/sets");
    let entries = std::fs::read_dir(&store)?.filter_map(Result::ok);
    let mut sets: Vec<_> = entries.map(|entry| entry.path()).collect();
    sets.sort();
    let [older, newer] = &sets[..] else { anyhow::bail!("{sets:?}") };
    std::fs::copy(older.join("rank-2.img"), newer.join("rank-2.img"))?;
    // The spare gets the images of ranks 2 and 3 from the store.
    kill(site.nla_of("forged", "node02")?, Signal::SIGKILL)?;
    wait_whole(&site, "forged", 1).await?;
    site.release()?;
    let output = job.await??;
    assert_eq!(result(&output)?, expected);
    let reported = text(&output.stderr);
    assert!(reported.contains("it was changed since its set was made"), "{reported}");
    let used = older.file_name().and_then(|name| name.to_str()).context("no name")?;
    assert!(reported.contains(&format!("set {used}")), "{reported}");
    nothing_left("FTB_JOB_ID=forged").await
}

/// Others die while the job goes back in place: a rank, and then the node of another. One rank of
/// each is stopped first, so that the recovery waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn further_deaths_join_the_recovery_under_way() -> Result<()> {
    let site = Site::new(3).await?;
    let expected = site.undisturbed().await?;
    let job = start(site.counting("joined", &["--spares", "node03"]));
    site.wait_met("joined").await?;
    site.ask(&["checkpoint", "joined"]).await?;
    let before = ranks_of("joined")?;
    kill(before[&3].0, Signal::SIGSTOP)?;
    kill_rank("joined", 1)?;
    // Rank 1 was started again and is in the barrier; rank 0 dies, and joins it.
    site.wait_phase("joined", "join").await?;
    kill_rank("joined", 0)?;
    wait_for("rank 0 to be started again", async || {
        let ranks = ranks_of("joined")?;
        Ok(ranks.get(&0).filter(|(pid, _)| *pid != before[&0].0).map(|_| ()))
    })
    .await?;
    site.wait_phase("joined", "join").await?;
    let between = ranks_of("joined")?;
    kill(site.nla_of("joined", "node02")?, Signal::SIGKILL)?;
    wait_whole(&site, "joined", 1).await?;
    let after = ranks_of("joined")?;
    ensure!(after[&0] == between[&0] && after[&1] == between[&1], "{between:?} {after:?}");
    site.release()?;
    let output = job.await??;
    assert_eq!(result(&output)?, expected);
    let reported = text(&output.stderr);
    assert_eq!(reported.matches("died while the job went back in place").count(), 2, "{reported}");
    assert_eq!(reported.matches("went back to set").count(), 1, "{reported}");
    assert!(!reported.contains("restarts from set"), "{reported}");
    nothing_left("FTB_JOB_ID=joined").await
}

/// A job on `node01` and `node04` that was saved, with the time for which a launch agent may be
/// silent.
async fn saved(site: &Site, job: &str, silence: &str) -> Result<JoinHandle<Result<Output>>> {
    let deadlines = site.jobs.path().join("deadlines.toml");
    std::fs::write(&deadlines, format!("silence = \"{silence}\"\n"))?;
    let deadlines = deadlines.display().to_string();
    let options =
        ["--hosts", "node01,node04", "--spares", "node[02-03]", "--deadlines", &deadlines];
    let running = start(site.counting(job, &options));
    site.wait_met(job).await?;
    site.ask(&["checkpoint", job]).await?;
    Ok(running)
}

/// The ranks of node04 have gone on elsewhere, those of node01 where they were, because of its
/// silence alone.
async fn goes_on(
    site: &Site,
    job: &str,
    before: &BTreeMap<u32, (Pid, u64)>,
    running: JoinHandle<Result<Output>>,
    expected: &str,
) -> Result<()> {
    let after = ranks_of(job)?;
    ensure!(after[&0] == before[&0] && after[&1] == before[&1], "{before:?} {after:?}");
    ensure!(after[&2] != before[&2] && after[&3] != before[&3], "{before:?} {after:?}");
    site.release()?;
    let output = running.await??;
    assert_eq!(result(&output)?, expected);
    let reported = text(&output.stderr);
    let silent = "node node04 is lost: its launch agent does not answer for";
    assert!(reported.contains(silent) && reported.contains("went back to set"), "{reported}");
    nothing_left(&format!("FTB_JOB_ID={job}\0")).await
}

/// Its host and its ranks live, but no message reaches them.
#[tokio::test(flavor = "multi_thread")]
async fn a_launch_agent_that_hangs_is_judged_by_the_launcher() -> Result<()> {
    let site = Site::new(4).await?;
    let expected = site.undisturbed().await?;
    let running = saved(&site, "hangs", "12s").await?;
    let before = ranks_of("hangs")?;
    kill(site.nla_of("hangs", "node04")?, Signal::SIGSTOP)?;
    wait_whole(&site, "hangs", 1).await?;
    goes_on(&site, "hangs", &before, running, &expected).await
}

/// The agent of its node, and not of the job.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_agent_hangs_is_judged_by_the_launcher() -> Result<()> {
    let site = Site::new(4).await?;
    let expected = site.undisturbed().await?;
    let running = saved(&site, "cutoff", "12s").await?;
    let before = ranks_of("cutoff")?;
    site.cluster.signal(3, Signal::SIGSTOP)?;
    wait_whole(&site, "cutoff", 1).await?;
    goes_on(&site, "cutoff", &before, running, &expected).await
}

/// Ways to hurt a job, and ranks to hurt: each way is tried with each rank.
const HURTS: u32 = 7;
const VICTIMS: u32 = 4;

/// Hurts a job that was saved and is running. Open requests may succeed or not.
async fn hurt(site: &Site, job: &str, how: u32, victim: u32) -> Result<()> {
    let kill_node =
        |node: &str| Ok::<_, anyhow::Error>(kill(site.nla_of(job, node)?, Signal::SIGKILL)?);
    let asked: &[&str] = match how {
        2 => &["checkpoint", job],
        3 | 6 => &["migrate", job, "node01"],
        _ => &["status", job],
    };
    let hurts = async {
        match how {
            1 => kill_node(["node01", "node02"][victim as usize % 2]),
            // Two at once, on two nodes.
            4 => kill_rank(job, victim).and_then(|()| kill_rank(job, (victim + 2) % VICTIMS)),
            // One while the job recovers from another.
            5 => kill_rank(job, victim).and_then(|()| kill_node("node02")),
            // The target of a migration.
            6 => kill_node("node03"),
            _ => kill_rank(job, victim),
        }
    };
    let (_, hurt) = tokio::join!(site.ask(asked), hurts);
    hurt
}

/// How many jobs are broken.
fn fault_runs(short: u32) -> Result<u32> {
    Ok(std::env::var("FTB_FAULT_RUNS").map_or(Ok(short), |text| text.parse())?)
}

/// Starts a job on two nodes with two spares, saves it, breaks it once and compares its result.
async fn broken(site: &Site, run: u32, memory: Option<&str>, expected: &str) -> Result<()> {
    let name = format!("broken-{run}");
    if site.gate().exists() {
        std::fs::remove_file(site.gate())?;
    }
    let level = memory.map(|scheme| ["--memory", scheme, "--memory-every", "500ms"]);
    let options = [&["--spares", "node[03-04]"][..], level.as_ref().map_or(&[], |of| &of[..])];
    let job = start(site.counting(&name, &options.concat()));
    site.wait_met(&name).await?;
    match memory {
        None => drop(site.ask(&["checkpoint", &name]).await?),
        Some(_) => drop(wait_protected(site, &name, "").await?),
    }
    hurt(site, &name, run % HURTS, run / HURTS % VICTIMS).await?;
    site.release()?;
    let output = job.await??;
    let ended = result(&output).with_context(|| format!("run {run}"))?;
    ensure!(ended == expected, "run {run}: {ended}, not {expected}: {}", text(&output.stderr));
    nothing_left(&format!("FTB_JOB_ID={name}\0")).await
}

/// Jobs that are broken once each, in ways and at moments that differ: the result is always the
/// same.
#[tokio::test(flavor = "multi_thread")]
async fn any_kill_leaves_the_result_the_same() -> Result<()> {
    let site = Site::new(4).await?;
    let expected = site.undisturbed().await?;
    for run in 0..fault_runs(HURTS * VICTIMS)? {
        broken(&site, run, None, &expected).await?;
    }
    Ok(())
}

/// The same from the memory of the nodes, with copies and with parity.
#[tokio::test(flavor = "multi_thread")]
async fn any_kill_leaves_the_result_the_same_from_memory() -> Result<()> {
    let site = Site::new(4).await?;
    let expected = site.undisturbed().await?;
    for run in 0..fault_runs(2 * HURTS)? {
        let scheme = ["xor:4", "buddy:1"][(run / HURTS % 2) as usize];
        broken(&site, run, Some(scheme), &expected).await?;
    }
    Ok(())
}

/// Two nodes of three are lost and there is no spare: what is left of the ranks does all the work,
/// to the same field.
#[tokio::test(flavor = "multi_thread")]
async fn fewer_ranks_come_to_the_same_field_when_no_spare_is_left() -> Result<()> {
    let site = Site::new(3).await?;
    let poisson = ftb_tests::cluster::example("ftb-job", "poisson")?.display().to_string();
    let options = [&poisson, "--grid", "24", "--report", "1"];
    let field = |output: &std::process::Output| -> Result<String> {
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        ensure!(output.status.success(), "{:?}\n{out}\n{err}", output.status);
        let line = out.lines().find(|line| line.starts_with("result: iterations 400 "));
        let line = line.with_context(|| format!("no result\n{out}\n{err}"))?;
        Ok(line.split(" field ").nth(1).context("no field")?.to_owned())
    };
    let all = |pause: &'static str| {
        [&options[..], &["--iterations", "400", "--sleep-us", pause]].concat()
    };
    let expected = field(&site::run(site.launch(&["-n", "6", "-q"], &all("0"))).await?)?;
    let arguments = ["-n", "6", "--job", "fewer", "--on-death", "shrink"];
    let job = start(site.launch(&arguments, &all("10000")));
    site.wait_met("fewer").await?;
    site.ask(&["checkpoint", "fewer"]).await?;
    for (node, size) in [("node02", 4), ("node03", 2)] {
        kill(site.nla_of("fewer", node)?, Signal::SIGKILL)?;
        let path = site.jobs.path().join("fewer/state.json");
        wait_for("fewer ranks", async || {
            let state: serde_json::Value = serde_json::from_slice(&std::fs::read(&path)?)?;
            let jl = &state["jl"];
            let whole = jl["open"].is_null() && jl["job"]["met"] == true;
            Ok((whole && jl["job"]["config"]["size"] == size).then_some(()))
        })
        .await?;
    }
    let output = job.await??;
    assert_eq!(field(&output)?, expected, "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("2 ranks take over what 4 have done"));
    nothing_left("FTB_JOB_ID=fewer").await
}
