//! Warm spares with real processes: ranks and nodes are killed, and processes that were there
//! before become their ranks. The result is always the same.
//!
//! Tests wait for lines of output and for states, never for time.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result, ensure};
use ftb_launcher_core::warm::ParkedProcesses;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use site::fixture::{results, with_ftb_mpi};
use site::memory::wait_recovered;
use site::{Site, nothing_left, ranks_of, result, run, start, text};
use std::collections::BTreeSet;

const SPARES: [&str; 4] = ["--spares", "node03", "--warm-spares", "2"];

/// What `status` shows of the parked processes of a node.
async fn parked(site: &Site, job: &str, node: &str) -> Result<ParkedProcesses> {
    let status = site.ask(&["status", job, "--json"]).await?;
    let status: serde_json::Value = serde_json::from_str(&status)?;
    let parked = status["nodes"][node]["parked"].clone();
    Ok(serde_json::from_value::<Option<_>>(parked)?.unwrap_or_default())
}

/// Waits until the parked processes of a node are as `is` wants them.
async fn wait_parked(
    site: &Site,
    (job, node): (&str, &str),
    is: impl Fn(&ParkedProcesses) -> bool,
) -> Result<ParkedProcesses> {
    site.wait("parked processes", async || {
        Ok(Some(parked(site, job, node).await?).filter(|parked| is(parked)))
    })
    .await
}

/// Waits until as many are parked as the node wants.
async fn wait_full(site: &Site, job: &str, node: &str) -> Result<Vec<u32>> {
    let is_full = |of: &ParkedProcesses| of.wanted > 0 && of.waiting.len() == of.wanted as usize;
    Ok(wait_parked(site, (job, node), is_full).await?.waiting)
}

fn kill_pid(pid: u32, signal: Signal) -> Result<()> {
    kill(Pid::from_raw(i32::try_from(pid)?), signal)?;
    Ok(())
}

/// Whether a process runs the program of the tests.
fn counts(pid: u32) -> bool {
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    comm.trim_end() == "count"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_rank_and_a_dead_node_go_on_in_processes_that_were_there_before() -> Result<()> {
    let site = Site::new(3).await?;
    let expected = site.undisturbed().await?;
    let options = [&SPARES[..], &["--warm-local", "1"]].concat();
    let job = start(site.counting("warm", &options));
    site.wait_met("warm").await?;
    let (local, spare) =
        (wait_full(&site, "warm", "node01").await?, wait_full(&site, "warm", "node03").await?);
    ensure!(local.len() == 1 && spare.len() == 2, "{local:?} {spare:?}");
    ensure!(local.iter().chain(&spare).all(|pid| counts(*pid)), "{local:?} {spare:?}");
    let shown = text(&run(site.command(&["status", "warm"])).await?.stdout);
    ensure!(shown.contains("parked  node03           2 of 2 processes"), "{shown}");
    site.checkpoint("warm").await?;
    let before = ranks_of("warm")?;
    ensure!(before.len() == 4, "parked processes are no ranks: {before:?}");
    kill(before[&1].0, Signal::SIGKILL)?;
    wait_recovered(&site, "warm", 1).await?;
    let adopted = |of: &ParkedProcesses| !of.adopted.is_empty();
    let first = wait_parked(&site, ("warm", "node01"), adopted).await?.adopted;
    assert_eq!(first, [(1, local[0])].into());
    kill(site.nla_of("warm", "node02")?, Signal::SIGKILL)?;
    wait_recovered(&site, "warm", 2).await?;
    let second = wait_parked(&site, ("warm", "node03"), adopted).await?.adopted;
    let became: BTreeSet<u32> = second.values().copied().collect();
    assert_eq!(second.keys().copied().collect::<Vec<_>>(), [2, 3]);
    assert_eq!(became, spare.iter().copied().collect());
    ensure!(second.values().all(|pid| counts(*pid)), "{second:?}");
    // Survivors keep their processes, and an adopted one dies as any rank.
    ensure!(ranks_of("warm")?.get(&0) == before.get(&0), "{before:?}");
    kill_pid(second[&3], Signal::SIGKILL)?;
    wait_recovered(&site, "warm", 3).await?;
    site.release()?;
    let output = job.await??;
    let reported = text(&output.stderr);
    assert_eq!(result(&output)?, expected, "{reported}");
    for words in [
        "node node01: parked processes have become rank 1",
        "node node03: parked processes have become rank 2,3",
    ] {
        assert!(reported.contains(words), "{words}: {reported}");
    }
    assert!(!reported.contains("restarts from set"), "{reported}");
    assert!(!reported.contains("did not leave"), "parked ones exit with 0: {reported}");
    nothing_left("FTB_JOB_ID=warm\0").await
}

/// One dies and is replaced; one is stopped and cannot become a rank, which is started then; at
/// last none is left in the moment of the death.
#[tokio::test(flavor = "multi_thread")]
async fn where_a_parked_process_has_died_or_hangs_the_rank_is_started() -> Result<()> {
    let site = Site::new(4).await?;
    let expected = site.undisturbed_on("node[03-04]").await?;
    let options = ["--hosts", "node[01-02]", "--spares", "node[03-04]", "--warm-spares", "2"];
    let job = start(site.counting("mixed", &options));
    site.wait_met("mixed").await?;
    let first = wait_full(&site, "mixed", "node03").await?;
    kill_pid(first[0], Signal::SIGKILL)?;
    let is_other = |of: &ParkedProcesses| of.waiting.len() == 2 && !of.waiting.contains(&first[0]);
    let second = wait_parked(&site, ("mixed", "node03"), is_other).await?.waiting;
    ensure!(second.contains(&first[1]), "{first:?} {second:?}");
    site.checkpoint("mixed").await?;
    kill_pid(second[0], Signal::SIGSTOP)?;
    kill(site.nla_of("mixed", "node02")?, Signal::SIGKILL)?;
    wait_recovered(&site, "mixed", 1).await?;
    let adopted = |of: &ParkedProcesses| !of.adopted.is_empty();
    let here = wait_parked(&site, ("mixed", "node03"), adopted).await?.adopted;
    assert_eq!(here, [(3, second[1])].into(), "the other one is started");
    ensure!(ranks_of("mixed")?.contains_key(&2) && !counts(second[0]), "{here:?}");
    for pid in wait_full(&site, "mixed", "node04").await? {
        kill_pid(pid, Signal::SIGKILL)?;
    }
    kill(site.nla_of("mixed", "node03")?, Signal::SIGKILL)?;
    wait_recovered(&site, "mixed", 2).await?;
    site.release()?;
    let output = job.await??;
    let reported = text(&output.stderr);
    assert_eq!(result(&output)?, expected, "{reported}");
    assert!(
        reported.contains("a parked process ended (signal 9); 1 of 2 are parked"),
        "{reported}"
    );
    let words = format!("parked process {} ended (signal 9) when rank 2 adopted it", second[0]);
    assert!(reported.contains(&words), "{reported}");
    assert!(!reported.contains("restarts from set"), "{reported}");
    nothing_left("FTB_JOB_ID=mixed\0").await
}

/// `MPI_Init` parks, and what follows is as in a process that was started.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_in_c_with_mpi_is_parked_in_its_initialization() -> Result<()> {
    let site = Site::without_examples(3).await?;
    let source = include_str!("fmi_reinit.c");
    let program = with_ftb_mpi(&site, "fmi_reinit", source)?.context("no C compiler")?;
    let gate = site.gate().display().to_string();
    let options = ["-n", "2", "--hosts", "node[01-02]", "--job", "warmc", "--memory", "buddy:1"];
    let warm = ["--spares", "node03", "--warm-spares", "1", "--memory-every", "never"];
    let words = [program.as_str(), "40", &gate];
    let job = start(site.launch(&[&options[..], &warm].concat(), &words));
    site::memory::wait_protected(&site, "warmc", "").await?;
    let spare = wait_full(&site, "warmc", "node03").await?;
    kill(site.nla_of("warmc", "node02")?, Signal::SIGKILL)?;
    wait_recovered(&site, "warmc", 1).await?;
    let adopted = |of: &ParkedProcesses| !of.adopted.is_empty();
    let here = wait_parked(&site, ("warmc", "node03"), adopted).await?.adopted;
    assert_eq!(here, [(1, spare[0])].into());
    site.release()?;
    let output = job.await??;
    let printed = text(&output.stdout);
    let ended = results(&output)?;
    assert!(printed.lines().any(|line| line == "1 is added"), "{printed}");
    let calm = ["-n", "2", "--hosts", "node[01-02]", "--job", "calm", "-q"];
    assert_eq!(results(&run(site.launch(&calm, &words)).await?)?, ended);
    nothing_left("FTB_JOB_ID=warmc\0").await
}

/// Nothing is started where no process could wait, and the reason is in the message.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_cannot_have_parked_processes_is_refused_with_the_reason() -> Result<()> {
    let site = Site::new(2).await?;
    let count = site.count.display().to_string();
    let warm = ["--spares", "node02", "--warm-spares", "1"];
    for (options, program, words) in [
        (&["--warm-spares", "1"][..], &*count, "the job has no spares"),
        (&["--spares", "node02", "--warm-spares", "1025"], &count, "at most 1024"),
        (&[&warm[..], &["--backend", "loop"]].concat(), &count, "link ftb-job"),
        (&[&warm[..], &["--on-death", "continue"]].concat(), &count, "no process takes the place"),
        (&["--warm-local", "1", "--checkpoint-every", "never"], "true", "ftb-job is not found"),
    ] {
        let output = run(site.launch(&[&["-n", "1"], options].concat(), &[program])).await?;
        let reported = text(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{options:?}: {reported}");
        assert!(reported.contains(words), "{options:?}: {reported}");
    }
    Ok(())
}
