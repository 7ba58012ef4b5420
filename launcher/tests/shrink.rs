//! A job that goes on with fewer ranks, or with others in their place, with real processes: GMRES
//! loses ranks in four rounds and reaches the residual of the undisturbed run.
//!
//! Tests wait for lines of output and for states, never for time.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use site::memory::{images_on_disk, state_of, wait_protected};
use site::{Site, nothing_left, ranks_of, start, text};
use std::collections::BTreeMap;
use std::process::Output;
use tokio::task::JoinHandle;

/// What fewer ranks may change in the residual, in parts of it: they add in another order.
const TOLERANCE: f64 = 1e-6;
const CYCLES: &str = "12";

/// The last line of a run.
#[derive(Debug, PartialEq)]
struct Solved {
    ranks: u64,
    cycles: u64,
    residual: f64,
    bits: String,
}

fn solved(output: &Output) -> Result<Solved> {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    ensure!(output.status.success(), "{:?}\n{out}\n{err}", output.status);
    let line = out.lines().find_map(|line| line.strip_prefix("result: "));
    let line = line.with_context(|| format!("no result\n{out}\n{err}"))?;
    let words: Vec<&str> = line.split(' ').collect();
    let after = |key: &str| {
        let at = words.iter().position(|word| *word == key).context("a key is missing")?;
        words.get(at + 1).copied().context("a value is missing")
    };
    let bits = words.iter().find(|word| word.starts_with('(')).context("no bits")?;
    Ok(Solved {
        ranks: after("ranks")?.parse()?,
        cycles: after("cycles")?.parse()?,
        residual: after("residual")?.parse()?,
        bits: (*bits).to_owned(),
    })
}

struct Gmres {
    site: Site,
    program: Vec<String>,
}

impl Gmres {
    async fn new(nodes: usize) -> Result<Self> {
        let site = Site::without_examples(nodes).await?;
        let gmres = ftb_tests::cluster::example("ftb-job", "gmres")?.display().to_string();
        let gate = site.gate().display().to_string();
        let options = ["--grid", "12", "--cycles", CYCLES, "--restart", "4", "--gate", &gate];
        let program = [&[gmres.as_str()][..], &options].concat();
        Ok(Self { site, program: program.iter().map(|word| (*word).to_owned()).collect() })
    }

    fn run(&self, arguments: &[&str]) -> JoinHandle<Result<Output>> {
        let program: Vec<&str> = self.program.iter().map(String::as_str).collect();
        start(self.site.launch(arguments, &program))
    }

    /// Without a fault.
    async fn undisturbed(&self, ranks: &str) -> Result<Solved> {
        self.site.release()?;
        let calm = solved(&self.run(&["-n", ranks, "-q"]).await??)?;
        std::fs::remove_file(self.site.gate())?;
        Ok(calm)
    }

    /// Waits until the job has this many ranks and a set in memory of all of them.
    async fn wait_ranks(&self, job: &str, ranks: usize) -> Result<BTreeMap<u32, Pid>> {
        self.site
            .wait("the ranks that are left", async || {
                let state = state_of(&self.site, job)?;
                let memory = &state["job"]["memory"]["groups"];
                let groups = memory.as_array().into_iter().flatten();
                let members = groups.flat_map(|group| group["members"].as_array()).flatten();
                let images = members.filter_map(|of| of["images"].as_object());
                let protected: usize = images.map(|images| images.len()).sum();
                let idle = state["open"].is_null() && state["job"]["met"] == true;
                let alive = ranks_of(job)?;
                let whole = idle && protected == ranks && alive.len() == ranks;
                Ok(whole.then(|| alive.into_iter().map(|(rank, (pid, _))| (rank, pid)).collect()))
            })
            .await
    }

    async fn end(&self, job: JoinHandle<Result<Output>>) -> Result<(Solved, String)> {
        self.site.release()?;
        let output = job.await??;
        Ok((solved(&output)?, text(&output.stderr)))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn four_times_a_rank_is_killed_and_the_others_go_on_in_their_processes() -> Result<()> {
    let gmres = Gmres::new(4).await?;
    let calm = gmres.undisturbed("8").await?;
    for (job, scheme) in [("pairs", "buddy:1"), ("parity", "xor:4")] {
        let memory = ["--memory", scheme, "--memory-every", "never"];
        let options = ["-n", "8", "--job", job, "--on-death", "shrink"];
        let running = gmres.run(&[&options[..], &memory].concat());
        wait_protected(&gmres.site, job, "").await?;
        let mut pids = gmres.wait_ranks(job, 8).await?;
        // The last one, the one that coordinates, two neighbours.
        for (round, rank) in [7, 0, 3, 4].into_iter().enumerate() {
            kill(pids.remove(&rank).context("no such rank")?, Signal::SIGKILL)?;
            let left = gmres.wait_ranks(job, 7 - round).await?;
            ensure!(left == pids, "other processes go on: {left:?}, not {pids:?}");
        }
        assert_eq!(images_on_disk(&gmres.site), Vec::<std::path::PathBuf>::new());
        let (ended, reported) = gmres.end(running).await?;
        assert_eq!((ended.ranks, ended.cycles), (4, calm.cycles), "{reported}");
        let apart = (ended.residual - calm.residual).abs() / calm.residual;
        ensure!(apart < TOLERANCE, "{ended:?} {calm:?}: {apart:e}");
        assert!(!reported.contains("restarts from set"), "{reported}");
        std::fs::remove_file(gmres.site.gate())?;
        nothing_left(&format!("FTB_JOB_ID={job}")).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn four_times_a_rank_is_killed_and_another_process_takes_its_place_to_the_same_bits()
-> Result<()> {
    let gmres = Gmres::new(4).await?;
    let calm = gmres.undisturbed("8").await?;
    let options = ["-n", "8", "--job", "same", "--on-death", "rollback"];
    let memory = ["--memory", "buddy:1", "--memory-every", "100ms"];
    let running = gmres.run(&[&options[..], &memory].concat());
    wait_protected(&gmres.site, "same", "").await?;
    let mut pids = gmres.wait_ranks("same", 8).await?;
    for rank in [7, 0, 3, 4] {
        let dead = pids.remove(&rank).context("no such rank")?;
        kill(dead, Signal::SIGKILL)?;
        let after = gmres.site.wait("another process", async || {
            let after = gmres.wait_ranks("same", 8).await?;
            Ok((after.get(&rank) != Some(&dead)).then_some(after))
        });
        let mut after = after.await?;
        let new = after.remove(&rank).context("no such rank")?;
        ensure!(after == pids, "other processes go on: {after:?}, not {pids:?}");
        pids.insert(rank, new);
        // Old and new processes make the next set together.
        let of = state_of(&gmres.site, "same")?["job"]["memory"]["set"].clone();
        let before = of.as_str().context("no set")?;
        wait_protected(&gmres.site, "same", before).await?;
    }
    let (ended, reported) = gmres.end(running).await?;
    assert_eq!(ended, calm, "{reported}");
    nothing_left("FTB_JOB_ID=same").await
}

/// The dead node's share is computed from those of the others; a spare comes first.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_node_is_replaced_by_the_spare_and_the_next_one_is_left_out() -> Result<()> {
    let gmres = Gmres::new(5).await?;
    let calm = gmres.undisturbed("8").await?;
    let options = ["-n", "8", "--job", "nodes", "--on-death", "shrink", "--spares", "node05"];
    let memory = ["--memory", "xor:4", "--memory-every", "never"];
    let running = gmres.run(&[&options[..], &memory].concat());
    let first = wait_protected(&gmres.site, "nodes", "").await?;
    let before = gmres.wait_ranks("nodes", 8).await?;
    kill(gmres.site.nla_of("nodes", "node02")?, Signal::SIGKILL)?;
    let replaced = gmres.site.wait("the spare", async || {
        let after = gmres.wait_ranks("nodes", 8).await?;
        Ok((after != before).then_some(after))
    });
    let replaced = replaced.await?;
    let same = |rank: &u32| replaced.get(rank) == before.get(rank);
    ensure!([0, 1, 4, 5, 6, 7].iter().all(same), "{before:?} {replaced:?}");
    kill(gmres.site.nla_of("nodes", "node03")?, Signal::SIGKILL)?;
    let left = gmres.wait_ranks("nodes", 6).await?;
    let mut expected = replaced.clone();
    expected.retain(|rank, _| left.contains_key(rank));
    ensure!(left == expected, "{replaced:?} {left:?}");
    wait_protected(&gmres.site, "nodes", &first).await?;
    let (ended, reported) = gmres.end(running).await?;
    assert_eq!((ended.ranks, ended.cycles), (6, calm.cycles), "{reported}");
    let apart = (ended.residual - calm.residual).abs() / calm.residual;
    ensure!(apart < TOLERANCE, "{ended:?} {calm:?}: {apart:e}");
    assert!(reported.contains("(memory) in place, without rank 4,5"), "{reported}");
    nothing_left("FTB_JOB_ID=nodes").await
}

/// Without memory: each rank that dies is left out, and the set that follows is stored without it.
#[tokio::test(flavor = "multi_thread")]
async fn sets_of_fewer_ranks_are_stored_and_the_job_goes_on_from_them() -> Result<()> {
    let gmres = Gmres::new(2).await?;
    let calm = gmres.undisturbed("4").await?;
    let running = gmres.run(&["-n", "4", "--job", "stored", "--on-death", "shrink"]);
    gmres.site.wait_met("stored").await?;
    gmres.site.ask(&["checkpoint", "stored"]).await?;
    let mut pids = ranks_of("stored")?;
    for rank in [1, 3] {
        let (dead, _) = pids.remove(&rank).context("no such rank")?;
        kill(dead, Signal::SIGKILL)?;
        let left = gmres.site.wait("the ranks that are left", async || {
            let state = state_of(&gmres.site, "stored")?;
            let idle = state["open"].is_null() && state["job"]["met"] == true;
            let is_out = state["job"]["ranks"][rank as usize]["left_out"] == true;
            Ok((idle && is_out).then_some(ranks_of("stored")?))
        });
        let left = left.await?;
        ensure!(left == pids, "other processes go on: {left:?}, not {pids:?}");
        gmres.site.ask(&["checkpoint", "stored"]).await?;
    }
    let (ended, reported) = gmres.end(running).await?;
    assert_eq!((ended.ranks, ended.cycles), (2, calm.cycles), "{reported}");
    let apart = (ended.residual - calm.residual).abs() / calm.residual;
    ensure!(apart < TOLERANCE, "{ended:?} {calm:?}: {apart:e}");
    assert!(!reported.contains("restarts from set"), "{reported}");
    nothing_left("FTB_JOB_ID=stored").await
}
