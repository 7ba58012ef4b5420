//! Unmodified MPI programs that are saved in the memory of their nodes, with real processes: ranks
//! and nodes are killed, and no image is ever on a disk. The result is always the same.
//!
//! Tests wait for lines of output and for states, never for time.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use site::fixture::{Fixture, results};
use site::memory::{images_on_disk, state_of, wait_protected, wait_recovered};
use site::{Site, nothing_left, run, start, text};
use std::path::PathBuf;

const NODES: [&str; 4] = ["--hosts", "node[01-04]", "--spares", "node[05-06]"];

/// A process of that rank.
fn rank_process(job: &str, rank: u32, program: &str) -> Result<Pid> {
    for entry in std::fs::read_dir("/proc")?.filter_map(Result::ok) {
        let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let environ = text(&read("environ"));
        if text(&read("cmdline")).starts_with(program)
            && environ.contains(&format!("FTB_JOB_ID={job}\0"))
            && environ.contains(&format!("FTB_RANK={rank}\0"))
        {
            return Ok(Pid::from_raw(entry.file_name().to_string_lossy().parse()?));
        }
    }
    anyhow::bail!("rank {rank} of job {job} does not run")
}

/// Six nodes, the stencil on four of them, and its result.
async fn undisturbed(ranks: u32) -> Result<Option<(Site, Fixture, Vec<String>)>> {
    let site = Site::new(6).await?;
    let Some(stencil) = Fixture::stencil(&site)? else { return Ok(None) };
    let stencil = Fixture { ranks, ..stencil };
    site.release()?;
    let alone = ["-q", "--hosts", "node[01-04]"];
    let expected = results(&run(stencil.command(&site, &alone)).await?)?;
    std::fs::remove_file(site.gate())?;
    Ok(Some((site, stencil, expected)))
}

async fn ended(
    job: tokio::task::JoinHandle<Result<std::process::Output>>,
    expected: &[String],
) -> Result<String> {
    let output = job.await??;
    let reported = text(&output.stderr);
    ensure!(results(&output)? == expected, "{reported}");
    Ok(reported)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_rank_and_a_dead_node_of_an_mpi_program_come_back_from_memory_without_a_file()
-> Result<()> {
    let Some((site, stencil, expected)) = undisturbed(4).await? else { return Ok(()) };
    for (job, scheme) in [("ring", "xor:4"), ("pair", "buddy:1")] {
        let _ = std::fs::remove_file(site.gate());
        let options = ["--job", job, "--memory", scheme, "--memory-every", "never"];
        let running = start(stencil.command(&site, &[&NODES[..], &options].concat()));
        let set = wait_protected(&site, job, "").await?;
        let lost = site.ask(&["status", job, "--what-if", "node03"]).await?;
        let back = format!(
            "rank 2 dies, node05 takes its place, and all ranks start again from set {set} (memory)"
        );
        assert_eq!(lost, back);
        kill(rank_process(job, 1, &stencil.process)?, Signal::SIGKILL)?;
        wait_recovered(&site, job, 1).await?;
        kill(site.nla_of(job, "node03")?, Signal::SIGKILL)?;
        wait_recovered(&site, job, 2).await?;
        // The spare computed what its group needs: it may die too.
        kill(site.nla_of(job, "node05")?, Signal::SIGKILL)?;
        wait_recovered(&site, job, 3).await?;
        assert_eq!(images_on_disk(&site), Vec::<PathBuf>::new());
        site.release()?;
        let reported = ended(running, &expected).await?;
        let back = format!("the job restarts from set {set} (memory)");
        assert_eq!(reported.matches(&back).count(), 3, "{scheme}: {reported}");
        nothing_left(&format!("FTB_JOB_ID={job}\0")).await?;
    }
    Ok(())
}

/// Two ranks in each pod. The next generation is protected while the ranks work.
#[tokio::test(flavor = "multi_thread")]
async fn pods_that_are_saved_in_memory_by_the_clock_go_back_to_the_newest_generation() -> Result<()>
{
    let Some((site, stencil, expected)) = undisturbed(8).await? else { return Ok(()) };
    let options = ["--job", "often", "--memory", "xor:2", "--memory-every", "500ms"];
    let running = start(stencil.command(&site, &[&NODES[..], &options].concat()));
    let mut set = String::new();
    for _ in 0..3 {
        set = wait_protected(&site, "often", &set).await?;
    }
    let first = set.clone();
    kill(site.nla_of("often", "node01")?, Signal::SIGKILL)?;
    wait_protected(&site, "often", &set).await?;
    assert_eq!(images_on_disk(&site), Vec::<PathBuf>::new());
    site.release()?;
    let reported = ended(running, &expected).await?;
    let line = reported.lines().find(|line| line.contains("restarts from set mem-"));
    let line = line.with_context(|| reported.clone())?;
    let back = line.split("from set ").nth(1).and_then(|rest| rest.split(' ').next());
    assert!(back >= Some(&first), "{first}: {line}");
    nothing_left("FTB_JOB_ID=often\0").await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_lost_nodes_of_one_group_of_pods_lead_to_the_store() -> Result<()> {
    let Some((site, stencil, expected)) = undisturbed(4).await? else { return Ok(()) };
    let options = ["--job", "both", "--memory", "xor:4", "--memory-every", "1s"];
    let running = start(stencil.command(&site, &[&NODES[..], &options].concat()));
    let first = wait_protected(&site, "both", "").await?;
    site.checkpoint("both").await?;
    let second = wait_protected(&site, "both", &first).await?;
    wait_protected(&site, "both", &second).await?;
    for node in [site.nla_of("both", "node02")?, site.nla_of("both", "node04")?] {
        kill(node, Signal::SIGKILL)?;
    }
    wait_recovered(&site, "both", 0).await?;
    site.release()?;
    let reported = ended(running, &expected).await?;
    // The second loss may be noticed while the job goes back because of the first.
    let words = ["in memory is lost: of its group", "in memory are lost"];
    assert!(words.iter().any(|words| reported.contains(words)), "{reported}");
    assert!(reported.contains("restarts from set set-"), "{reported}");
    nothing_left("FTB_JOB_ID=both\0").await
}

/// It is known before the dump. The ranks go on without.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_does_not_fit_into_memory_goes_on_and_both_numbers_are_reported() -> Result<()> {
    let Some((site, stencil, expected)) = undisturbed(4).await? else { return Ok(()) };
    let options = ["--job", "tight", "--memory", "xor:4", "--memory-bytes", "65536"];
    let running = start(stencil.command(&site, &[&NODES[..], &options].concat()));
    site.wait("the first attempt", async || {
        // The attempt is the first episode after the start.
        let state = state_of(&site, "tight").unwrap_or_default();
        let tried = state["job"]["episode"].as_u64() >= Some(2) && state["open"].is_null();
        Ok(tried.then_some(()))
    })
    .await?;
    site.release()?;
    let reported = ended(running, &expected).await?;
    assert!(reported.contains("bytes to save, 65536 are left (--memory-bytes)"), "{reported}");
    nothing_left("FTB_JOB_ID=tight\0").await
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_that_write_files_are_not_combined_with_memory() -> Result<()> {
    let site = Site::without_examples(2).await?;
    let file = site.cluster.dir().join("hooks.toml");
    std::fs::write(&file, "[backend.command]\ncheckpoint = [\"true\"]\n")?;
    let backend = file.display().to_string();
    let options = ["-n", "2", "--backend", &backend, "--memory", "xor:2"];
    let output = run(site.launch(&options, &["true"])).await?;
    let reported = text(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{reported}");
    assert!(reported.contains("backend command saves to files: use --backend criu"), "{reported}");
    Ok(())
}
