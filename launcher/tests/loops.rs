//! Programs in C, in C with MPI, and in Python that keep their state in memory by `ftb_loop`: ranks
//! and nodes are killed, and the result is the same to the bit. No image is on a disk, unless a
//! test saves one there.
//!
//! Tests wait for states and results, never for time.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use site::fixture::{python_package, results, with_libftbjob};
use site::memory::{images_below, state_of, wait_protected};
use site::{Site, is_ours, nothing_left, run, start, text};
use std::path::PathBuf;
use std::process::{Command, Output};

/// A program with a loop.
struct Program {
    name: &'static str,
    words: Vec<String>,
    /// How its processes are known: by this in their command lines.
    process: String,
    env: Vec<String>,
}

impl Program {
    fn c(site: &Site) -> Result<Self> {
        let program = with_libftbjob(site, "cc", "looping", include_str!("looping.c"))?;
        let process = program.context("no C compiler")?;
        let words = vec![process.clone(), "200".into(), "2000".into()];
        Ok(Self { name: "plain", words, process, env: Vec::new() })
    }

    fn mpi(site: &Site) -> Result<Option<Self>> {
        let source = include_str!("looping_mpi.c");
        let program = with_libftbjob(site, "mpicc.mpich", "looping_mpi", source)?;
        Ok(program.map(|process| {
            let words = vec![process.clone(), "200".into(), "5000".into(), "2000".into()];
            Self { name: "mpi", words, process, env: Vec::new() }
        }))
    }

    fn python(site: &Site) -> Result<Self> {
        let dir = python_package(site)?;
        let script = dir.join("looping.py");
        std::fs::write(&script, include_str!("looping.py"))?;
        let process = script.display().to_string();
        let words = ["python3", &process, "200", "0.002"].map(str::to_owned).into();
        let env = vec![format!("PYTHONPATH={}", dir.display())];
        Ok(Self { name: "python", words, process, env })
    }

    /// A launch on the first nodes with the rest as spares, in the middle until the gate is there.
    fn command(&self, site: &Site, arguments: &[&str], gate: bool) -> Command {
        let mut all = vec!["-n", "4", "--job", self.name];
        all.extend(arguments);
        for pair in &self.env {
            all.extend(["--env", pair]);
        }
        let gate = gate.then(|| site.gate().display().to_string());
        let words: Vec<&str> = self.words.iter().chain(&gate).map(String::as_str).collect();
        site.launch(&all, &words)
    }

    async fn undisturbed(&self, site: &Site) -> Result<Vec<String>> {
        results(&run(self.command(site, &["-q"], false)).await?)
    }
}

/// Waits until the ranks were started again more than `before` times; how often.
async fn wait_restarted(site: &Site, job: &str, before: u64) -> Result<u64> {
    site.wait("the ranks to be started again", async || {
        let state = state_of(site, job)?;
        let started = state["job"]["incarnation"].as_u64().unwrap_or_default();
        Ok((state["job"]["met"] == true && started > before).then_some(started))
    })
    .await
}

/// The process of a rank of a job.
fn process_of(job: &str, rank: u32, words: &str) -> Result<Pid> {
    for entry in std::fs::read_dir("/proc")?.filter_map(Result::ok) {
        let read = |name: &str| text(&std::fs::read(entry.path().join(name)).unwrap_or_default());
        let (environ, command) = (read("environ"), read("cmdline"));
        let has = |pair: String| environ.split('\0').any(|of| of == pair);
        let is_it = has(format!("FTB_JOB_ID={job}")) && has(format!("FTB_RANK={rank}"));
        if is_it && is_ours(&environ) && command.contains(words) {
            return Ok(Pid::from_raw(entry.file_name().to_string_lossy().parse()?));
        }
    }
    anyhow::bail!("rank {rank} of {job} does not run")
}

/// Where restored ranks went on.
fn went_on_at(output: &Output) -> Vec<u64> {
    let printed = text(&output.stdout);
    let ids = printed.lines().filter_map(|line| line.strip_prefix("goes on at ")?.parse().ok());
    ids.collect()
}

/// A rank is killed with its newest state in memory, then a node.
async fn outlives_a_rank_and_a_node(program: &Program, site: &Site) -> Result<()> {
    let (job, expected) = (program.name, program.undisturbed(site).await?);
    let options = ["--spares", "node05", "--memory", "xor:4", "--memory-every", "100ms"];
    let running = start(program.command(site, &options, true));
    let mut set = wait_protected(site, job, "").await?;
    let mut started = 0;
    for node in [None, Some("node03")] {
        for _ in 0..3 {
            set = wait_protected(site, job, &set).await?;
        }
        let victim = match node {
            Some(node) => site.nla_of(job, node)?,
            None => process_of(job, 1, &program.process)?,
        };
        kill(victim, Signal::SIGKILL)?;
        started = wait_restarted(site, job, started).await?;
    }
    assert_eq!(images_below(site.jobs.path()), Vec::<PathBuf>::new());
    site.release()?;
    let output = running.await??;
    let reported = text(&output.stderr);
    assert_eq!(results(&output)?, expected, "{reported}");
    let back = reported.matches("the job restarts from set mem-").count();
    assert_eq!(back, 2, "{reported}");
    let ids = went_on_at(&output);
    assert!(ids.len() == 8 && ids.iter().all(|id| *id > 0), "{ids:?} {reported}");
    assert!(ids[..4].iter().all(|id| *id == ids[0]), "one moment: {ids:?}");
    nothing_left(&format!("FTB_JOB_ID={job}\0")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_c_program_without_mpi_comes_back_from_memory_without_a_file() -> Result<()> {
    let site = Site::without_examples(5).await?;
    outlives_a_rank_and_a_node(&Program::c(&site)?, &site).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_python_program_comes_back_from_memory_without_a_file() -> Result<()> {
    let site = Site::without_examples(5).await?;
    outlives_a_rank_and_a_node(&Program::python(&site)?, &site).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_mpi_program_comes_back_from_memory_without_a_file() -> Result<()> {
    let site = Site::without_examples(5).await?;
    match Program::mpi(&site)? {
        Some(program) => outlives_a_rank_and_a_node(&program, &site).await,
        None => Ok(()),
    }
}

/// The first set precedes the first step; a job without MPI is saved in the store too, leaves a
/// node with a fault, and starts again from the store elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_saved_in_the_store_and_leaves_a_node() -> Result<()> {
    let site = Site::without_examples(5).await?;
    let program = Program::c(&site)?;
    let expected = program.undisturbed(&site).await?;
    let options = ["--spares", "node05", "--memory", "buddy:1", "--memory-every", "never"];
    let running = start(program.command(&site, &options, true));
    wait_protected(&site, program.name, "").await?;
    let saved = site.ask(&["checkpoint", program.name]).await?;
    assert!(saved.contains("is committed: 4 ranks"), "{saved}");
    let sets = site.jobs.path().join(program.name).join("sets");
    assert_eq!(images_below(&sets).len(), 4);
    site.ask(&["migrate", program.name, "node02"]).await?;
    wait_restarted(&site, program.name, 0).await?;
    site.release()?;
    let output = running.await??;
    assert_eq!(results(&output)?, expected, "{}", text(&output.stderr));
    assert_eq!(went_on_at(&output).len(), 4, "{}", text(&output.stdout));
    nothing_left("FTB_JOB_ID=plain\0").await
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_of_another_size_is_refused_at_the_restart_with_names_and_sizes() -> Result<()> {
    let site = Site::without_examples(5).await?;
    let program = Program::c(&site)?;
    let gate = site.gate().display().to_string();
    let words = [&program.words[..], &[gate, "8".to_owned()]].concat();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let options = ["-n", "4", "--job", "plain", "--memory", "xor:2", "--memory-every", "never"];
    let running = start(site.launch(&options, &words));
    wait_protected(&site, "plain", "").await?;
    kill(process_of("plain", 1, words[0])?, Signal::SIGKILL)?;
    let output = running.await??;
    let reported = text(&output.stderr);
    ensure!(!output.status.success(), "{reported}");
    assert!(reported.contains("cells had 320000 bytes and has 320008 now"), "{reported}");
    assert!(reported.contains("is put aside: rank"), "{reported}");
    assert!(reported.contains("there is no set to restart from"), "{reported}");
    nothing_left("FTB_JOB_ID=plain\0").await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_programs_run_without_the_launcher() -> Result<()> {
    let site = Site::without_examples(1).await?;
    for program in [Program::c(&site)?, Program::python(&site)?] {
        let mut command = Command::new(&program.words[0]);
        command.args(&program.words[1..]);
        for (name, value) in program.env.iter().filter_map(|pair| pair.split_once('=')) {
            command.env(name, value);
        }
        let output = run(command).await?;
        assert_eq!(results(&output)?.len(), 1);
        assert_eq!(text(&output.stderr), "", "{}", program.name);
    }
    let program = Program::c(&site)?;
    let unsaved = run(program.command(&site, &["--backend", "app"], false)).await?;
    let reported = text(&unsaved.stderr);
    assert_eq!(results(&unsaved)?.len(), 4);
    assert_eq!(reported.matches("this job is not saved").count(), 1, "{reported}");
    Ok(())
}

/// Each wrong call of C and Python has its reason.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_calls_are_refused_with_the_reason() -> Result<()> {
    let site = Site::without_examples(1).await?;
    let source = include_str!("looping_wrong.c");
    let program = with_libftbjob(&site, "cc", "looping_wrong", source)?.context("no C compiler")?;
    let output = run(Command::new(program)).await?;
    assert!(output.status.success(), "{}", text(&output.stdout));
    python_succeeds(&Program::python(&site)?, include_str!("looping_wrong.py")).await
}

async fn python_succeeds(python: &Program, script: &str) -> Result<()> {
    let mut command = Command::new(&python.words[0]);
    command.args(["-c", script]);
    for (name, value) in python.env.iter().filter_map(|pair| pair.split_once('=')) {
        command.env(name, value);
    }
    let output = run(command).await?;
    assert!(output.status.success(), "{}", text(&output.stderr));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn other_threads_go_on_while_one_waits_in_the_loop() -> Result<()> {
    let site = Site::without_examples(1).await?;
    let source = include_str!("looping_thread.c");
    let program =
        with_libftbjob(&site, "cc", "looping_thread", source)?.context("no C compiler")?;
    let output = run(Command::new(program)).await?;
    assert!(output.status.success(), "{}", text(&output.stdout));
    let python = Program::python(&site)?;
    python_succeeds(&python, include_str!("looping_thread.py")).await?;
    python_succeeds(&python, include_str!("looping_interrupt.py")).await
}
