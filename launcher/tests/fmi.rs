//! Programs in C with FMI and with the `mpi.h` on it: ranks and nodes are killed, the others keep
//! their processes, and the result is the same to the bit, also that of MPICH. No image is in a
//! file.
//!
//! Tests wait for states, files and results, never for time.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use site::fixture::{compiled_with, results, with_ftb_mpi, with_libftbjob};
use site::memory::{images_on_disk, state_of, wait_protected};
use site::{Site, nothing_left, processes_of, run, start, text};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};

const STENCIL: &str = include_str!("fmi_stencil.c");
/// Steps and length of an edge.
const SIZE: [&str; 2] = ["60", "24"];
const MEMORY: [&str; 6] = ["--spares", "node05", "--memory", "xor:4", "--memory-every", "100ms"];

/// A launch of four ranks on four nodes.
fn launch(site: &Site, job: &str, options: &[&str], program: &[&str]) -> Command {
    site.launch(&[&["-n", "4", "--job", job], options].concat(), program)
}

fn stencil(site: &Site) -> Result<String> {
    with_ftb_mpi(site, "fmi_stencil", STENCIL)?.context("no C compiler")
}

async fn undisturbed(site: &Site, program: &str) -> Result<Vec<String>> {
    results(&run(launch(site, "calm", &["-q"], &[program, SIZE[0], SIZE[1]])).await?)
}

/// Waits until another process is this rank and all go on; the processes then. None of the others
/// is another one.
async fn wait_replaced(
    site: &Site,
    (job, program): (&str, &str),
    before: &BTreeMap<u32, Pid>,
    victim: u32,
) -> Result<BTreeMap<u32, Pid>> {
    let after = site
        .wait("the rank to be replaced", async || {
            let state = state_of(site, job)?;
            let whole = state["open"].is_null() && state["job"]["met"] == true;
            let ranks = processes_of(job, program)?;
            let replaced = ranks.get(&victim).is_some_and(|pid| *pid != before[&victim]);
            Ok((whole && replaced).then_some(ranks))
        })
        .await?;
    let kept = before.iter().all(|(rank, pid)| *rank == victim || after.get(rank) == Some(pid));
    ensure!(kept && after.len() == before.len(), "{before:?} {after:?}");
    Ok(after)
}

async fn wait_file(site: &Site, path: PathBuf) -> Result<()> {
    site.wait("a program to be there", async || Ok(path.exists().then_some(()))).await
}

fn went_back(output: &Output) -> usize {
    text(&output.stdout).matches("goes on at ").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stencil_has_the_bits_of_mpich_and_outlives_a_rank_and_a_node() -> Result<()> {
    let site = Site::without_examples(5).await?;
    let program = stencil(&site)?;
    let expected = undisturbed(&site, &program).await?;
    assert_eq!(expected.len(), 4);
    // Its header declares MPI_STATUSES_IGNORE so that the compiler takes it for an array.
    let quiet = ["-Wno-stringop-overflow"];
    let mpich = compiled_with(&site, "mpicc.mpich", "fmi_stencil_mpich", STENCIL, &quiet)?;
    if let Some(mpich) = mpich {
        let mut command = Command::new("mpirun.mpich");
        command.args(["-n", "4", &mpich, SIZE[0], SIZE[1]]);
        assert_eq!(results(&run(command).await?)?, expected);
    }
    let gate = site.gate().display().to_string();
    let running = start(launch(&site, "himeno", &MEMORY, &[&program, SIZE[0], SIZE[1], &gate]));
    let mut set = String::new();
    for (victim, node) in [(1, None), (2, Some("node03"))] {
        for _ in 0..3 {
            set = wait_protected(&site, "himeno", &set).await?;
        }
        let before = processes_of("himeno", &program)?;
        ensure!(before.len() == 4, "{before:?}");
        let pid = node.map_or(Ok(before[&victim]), |node| site.nla_of("himeno", node))?;
        kill(pid, Signal::SIGKILL)?;
        wait_replaced(&site, ("himeno", &program), &before, victim).await?;
    }
    assert_eq!(images_on_disk(&site), Vec::<PathBuf>::new());
    site.release()?;
    let output = running.await??;
    let reported = text(&output.stderr);
    assert_eq!(results(&output)?, expected, "{reported}");
    let back = reported.matches("3 ranks went back to set mem-").count();
    assert_eq!((back, went_back(&output)), (2, 8), "{reported}\n{}", text(&output.stdout));
    assert!(!reported.contains("restarts from set"), "{reported}");
    nothing_left("FTB_JOB_ID=himeno\0").await
}

/// Rank 1 dies behind its loop. The others wait for it there, and cannot go back to theirs.
#[tokio::test(flavor = "multi_thread")]
async fn a_death_behind_the_loop_costs_the_others_their_processes_and_no_result() -> Result<()> {
    let site = Site::without_examples(5).await?;
    let program = stencil(&site)?;
    let expected = undisturbed(&site, &program).await?;
    let gate = site.gate().display().to_string();
    site.release()?;
    let later = site.cluster.dir().join("later");
    let words = [&program, SIZE[0], SIZE[1], &gate, &later.display().to_string()];
    let running = start(launch(&site, "late", &MEMORY, &words));
    wait_file(&site, later.with_extension("reached")).await?;
    let before = processes_of("late", &program)?;
    kill(before[&1], Signal::SIGKILL)?;
    site.wait("all others to be replaced", async || {
        let ranks = processes_of("late", &program)?;
        let new = ranks.iter().filter(|(rank, pid)| before[rank] != **pid);
        Ok((new.count() == 4).then_some(()))
    })
    .await?;
    std::fs::write(&later, "")?;
    let output = running.await??;
    let reported = text(&output.stderr);
    assert_eq!(results(&output)?, expected, "{reported}");
    assert!(reported.contains("this one has left its loop"), "{reported}");
    nothing_left("FTB_JOB_ID=late\0").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_knows_whether_it_is_new_restarted_or_added() -> Result<()> {
    let site = Site::without_examples(5).await?;
    let source = include_str!("fmi_reinit.c");
    let program = with_ftb_mpi(&site, "fmi_reinit", source)?.context("no C compiler")?;
    let gate = site.gate().display().to_string();
    let running = start(launch(&site, "reinit", &MEMORY, &[&program, "40", &gate]));
    let mut set = String::new();
    for _ in 0..3 {
        set = wait_protected(&site, "reinit", &set).await?;
    }
    let before = processes_of("reinit", &program)?;
    kill(before[&0], Signal::SIGKILL)?;
    wait_replaced(&site, ("reinit", &program), &before, 0).await?;
    site.release()?;
    let output = running.await??;
    let ended = results(&output)?;
    let sums: Vec<_> = ended.iter().filter_map(|line| line.rsplit(' ').next()).collect();
    ensure!(sums.len() == 4 && sums.iter().all(|sum| *sum == sums[0]), "{ended:?}");
    let printed = text(&output.stdout);
    let mut states: Vec<&str> = printed.lines().filter(|line| line.contains(" is ")).collect();
    states.sort_unstable();
    let expected = [
        "0 is added",
        "0 is new",
        "1 is new",
        "1 is restarted",
        "2 is new",
        "2 is restarted",
        "3 is new",
        "3 is restarted",
    ];
    assert_eq!(states, expected, "{printed}");
    let calm = launch(&site, "calm", &["-q"], &[&program, "40", &gate]);
    assert_eq!(results(&run(calm).await?)?, ended);
    nothing_left("FTB_JOB_ID=reinit\0").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_send_to_a_rank_that_dies_fails_and_neither_blocks_nor_kills() -> Result<()> {
    let site = Site::without_examples(3).await?;
    let source = include_str!("fmi_flood.c");
    let program = with_libftbjob(&site, "cc", "fmi_flood", source)?.context("no C compiler")?;
    let gate = site.gate();
    let options = ["-n", "2", "--job", "flood", "--hosts", "node[01-02]", "--spares", "node03"];
    let more =
        ["--memory", "xor:2", "--memory-every", "never", "--env", "FTB_JOB_RECEIVE_BYTES=4194304"];
    let words = [program.as_str(), &gate.display().to_string()];
    let running = start(site.launch(&[&options[..], &more].concat(), &words));
    wait_protected(&site, "flood", "").await?;
    wait_file(&site, gate.with_extension("reached")).await?;
    let before = processes_of("flood", &program)?;
    kill(before[&1], Signal::SIGKILL)?;
    wait_replaced(&site, ("flood", &program), &before, 1).await?;
    site.release()?;
    let output = running.await??;
    // The count is not protected: it is of the process.
    assert_eq!(results(&output)?, ["result 0 1", "result 1 0"], "{}", text(&output.stderr));
    nothing_left("FTB_JOB_ID=flood\0").await
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_are_wrong_are_refused_with_a_code_and_the_reason() -> Result<()> {
    let site = Site::without_examples(1).await?;
    let source = include_str!("fmi_wrong.c");
    let program = with_libftbjob(&site, "cc", "fmi_wrong", source)?.context("no C compiler")?;
    let output = run(Command::new(program)).await?;
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_mpi_among_four_ranks_have_the_results_that_mpi_says() -> Result<()> {
    let site = Site::without_examples(4).await?;
    let source = include_str!("fmi_calls.c");
    let program = with_ftb_mpi(&site, "fmi_calls", source)?.context("no C compiler")?;
    let output = run(launch(&site, "calls", &["-q"], &[&program])).await?;
    let (found, reported) = (results(&output)?, text(&output.stderr));
    let expected: Vec<String> = (0..4).map(|rank| format!("result {rank} right")).collect();
    assert_eq!(found, expected, "{}{reported}", text(&output.stdout));
    nothing_left("FTB_JOB_ID=calls\0").await
}
