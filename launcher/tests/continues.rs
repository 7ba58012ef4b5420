//! Jobs that go on without dead ranks (`--on-death continue`), with real processes: the others
//! revoke, shrink and agree, in C with names of ULFM and in Rust, and reach the right answer.
//!
//! Tests wait for states, files and results, never for time.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use site::fixture::{results, with_ftb_mpi};
use site::memory::state_of;
use site::{Site, nothing_left, processes_of, run, start, text};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};
use tokio::task::JoinHandle;

const SOURCE: &str = include_str!("fmi_repair.c");
const STEPS: &str = "40";
const CONTINUE: [&str; 2] = ["--on-death", "continue"];

/// The sum that any number of ranks reaches.
fn expected() -> i64 {
    let items = |step: i64| (0..60).map(move |item| (step * 60 + item) * (item + 1)).sum::<i64>();
    (0..STEPS.parse().unwrap()).map(items).sum()
}

struct Repairing {
    site: Site,
    program: String,
}

impl Repairing {
    async fn new() -> Result<Self> {
        let site = Site::without_examples(4).await?;
        let program = with_ftb_mpi(&site, "fmi_repair", SOURCE)?.context("no C compiler")?;
        Ok(Self { site, program })
    }

    fn launch(&self, job: &str, ranks: &str, words: &[&str]) -> Command {
        let options = [&["-n", ranks, "--job", job], &CONTINUE[..]].concat();
        self.site.launch(&options, &[&[self.program.as_str()], words].concat())
    }

    fn start(&self, job: &str, ranks: &str, words: &[&str]) -> JoinHandle<Result<Output>> {
        start(self.launch(job, ranks, words))
    }

    fn gate(&self) -> String {
        self.site.gate().display().to_string()
    }

    /// The living processes of the job, by rank, when all have met.
    async fn ranks(&self, job: &str, count: usize) -> Result<BTreeMap<u32, Pid>> {
        self.site
            .wait("the ranks", async || {
                let Ok(state) = state_of(&self.site, job) else { return Ok(None) };
                let ranks = processes_of(job, &self.program)?;
                let is_there = state["job"]["met"] == true && state["open"].is_null();
                Ok((is_there && ranks.len() == count).then_some(ranks))
            })
            .await
    }

    async fn wait_file(&self, path: PathBuf) -> Result<()> {
        self.site.wait("a rank to be there", async || Ok(path.exists().then_some(()))).await
    }
}

/// The results of these ranks.
fn of_ranks(ranks: &[u32]) -> Vec<String> {
    let (sum, size) = (expected(), ranks.len());
    ranks.iter().map(|rank| format!("result {rank} {sum} of {size}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn survivors_of_an_allreduce_shrink_and_reach_the_right_sum() -> Result<()> {
    let repairing = Repairing::new().await?;
    let job = repairing.start("sums", "8", &["add", STEPS, &repairing.gate()]);
    let mut pids = repairing.ranks("sums", 8).await?;
    // One alone, then two at once, the first rank among them.
    for dead in [&[5][..], &[0, 3]] {
        for rank in dead {
            kill(pids.remove(rank).context("no such rank")?, Signal::SIGKILL)?;
        }
        let left = repairing.ranks("sums", pids.len()).await?;
        ensure!(left == pids, "other processes go on: {left:?}, not {pids:?}");
    }
    // A node with its two ranks.
    kill(repairing.site.nla_of("sums", "node04")?, Signal::SIGKILL)?;
    repairing.ranks("sums", 3).await?;
    repairing.site.release()?;
    let output = job.await??;
    assert_eq!(results(&output)?, of_ranks(&[1, 2, 4]), "{}", text(&output.stderr));
    let reported = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{reported}");
    assert!(reported.contains("the others go on without it"), "{reported}");
    nothing_left("FTB_JOB_ID=sums\0").await
}

/// The others are in `shrink` and wait for the rank that dies.
#[tokio::test(flavor = "multi_thread")]
async fn a_death_within_a_shrink_leaves_both_ranks_out() -> Result<()> {
    let repairing = Repairing::new().await?;
    let late = repairing.site.cluster.dir().join("late");
    let words = ["add", STEPS, &repairing.gate(), &late.display().to_string()];
    let job = repairing.start("late", "4", &words);
    let pids = repairing.ranks("late", 4).await?;
    kill(pids[&1], Signal::SIGKILL)?;
    repairing.wait_file(late.with_extension("reached")).await?;
    kill(pids[&2], Signal::SIGKILL)?;
    repairing.ranks("late", 2).await?;
    repairing.site.release()?;
    let output = job.await??;
    assert_eq!(results(&output)?, of_ranks(&[0, 3]), "{}", text(&output.stderr));
    nothing_left("FTB_JOB_ID=late\0").await
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_involve_a_dead_rank_fail_and_others_go_on() -> Result<()> {
    let repairing = Repairing::new().await?;
    let job = repairing.start("calls", "4", &["calls"]);
    let pids = repairing.ranks("calls", 4).await?;
    kill(pids[&3], Signal::SIGKILL)?;
    let output = job.await??;
    let expected = ["result 0 3 of 3", "result 1 3 of 3", "result 2 3 of 3"];
    assert_eq!(results(&output)?, expected, "{}", text(&output.stderr));
    nothing_left("FTB_JOB_ID=calls\0").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_does_not_repair_gets_an_error_and_not_a_hang() -> Result<()> {
    let repairing = Repairing::new().await?;
    let job = repairing.start("fatal", "4", &["fatal", STEPS, &repairing.gate()]);
    let pids = repairing.ranks("fatal", 4).await?;
    kill(pids[&2], Signal::SIGKILL)?;
    let output = job.await??;
    let reported = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{reported}");
    assert!(reported.contains("has died"), "{reported}");
    nothing_left("FTB_JOB_ID=fatal\0").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_last_rank_dies_ends_with_the_code_of_that_death() -> Result<()> {
    let repairing = Repairing::new().await?;
    let job = repairing.start("none", "2", &["add", STEPS, &repairing.gate()]);
    for pid in repairing.ranks("none", 2).await?.values() {
        kill(*pid, Signal::SIGKILL)?;
    }
    let output = job.await??;
    assert_eq!(output.status.code(), Some(128 + 9), "{}", text(&output.stderr));
    nothing_left("FTB_JOB_ID=none\0").await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_such_a_job_cannot_do_is_refused() -> Result<()> {
    let repairing = Repairing::new().await?;
    let words = ["add", "1", "/"];
    for (options, reason) in [
        (&["--memory", "buddy:1"][..], "leave --memory and --disk-every out"),
        (&["--disk-every", "5s"], "leave --memory and --disk-every out"),
        (&["--backend", "loop"], "backend loop knows no calls"),
        (&["--on-hang", "restart"], "report or --on-hang kill"),
        (&["--on-hang", "roll-back"], "report or --on-hang kill"),
    ] {
        let options = [&["-n", "2"], &CONTINUE[..], options].concat();
        let program = [&[repairing.program.as_str()], &words[..]].concat();
        let output = run(repairing.site.launch(&options, &program)).await?;
        let reported = text(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{reported}");
        assert!(reported.contains(reason), "{reported}");
    }
    // Not a program of ftb-job: the others could not learn of the death.
    let options = [&["-n", "2", "--job", "plain"], &CONTINUE[..]].concat();
    let program = ["sh", "-c", "[ $FTB_RANK = 0 ] && exec sleep 600; kill -9 $$"];
    let output = run(repairing.site.launch(&options, &program)).await?;
    let reported = text(&output.stderr);
    assert_eq!(output.status.code(), Some(128 + 9), "{reported}");
    nothing_left("FTB_JOB_ID=plain\0").await
}
