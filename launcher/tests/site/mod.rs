//! Agents, launchers, jobs: what the tests with real processes share.

#![allow(missing_docs, unreachable_pub, dead_code)]

pub mod bridge;
pub mod fixture;
pub mod memory;
pub mod sensors;
pub mod traces;

use anyhow::{Context as _, Error, Result, ensure};
use ftb_launcher::jobdir::{self, JobDir, JobFile};
use ftb_launcher::sets::Manifest;
use ftb_launcher_core::names::JobId;
use ftb_tests::cluster::{Cluster, Plan, binary, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use tempfile::TempDir;

pub const LAUNCH: &str = env!("CARGO_BIN_EXE_ftb-launch");
pub const STEPS: &str = "600";
pub const PAUSE_US: &str = "500";

/// Directories of the clusters of this test program. Jobs of this run name the socket of an agent
/// in one of them; jobs of the same name of another run do not.
static CLUSTERS: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// Files with what the jobs that run have said.
static OUTPUTS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
/// How much of a file and of a command line a failed test shows.
const LINES_SHOWN: usize = 60;
const WORDS_SHOWN: usize = 120;

/// Whether a process with this command line or environment belongs to a job of this test program.
pub fn is_ours(text: &str) -> bool {
    let clusters = CLUSTERS.lock().unwrap_or_else(PoisonError::into_inner);
    clusters.iter().any(|dir| text.contains(dir))
}

/// Agents, a directory of jobs, and the program to run.
pub struct Site {
    pub cluster: Cluster,
    pub jobs: TempDir,
    pub count: PathBuf,
}

/// A test that fails leaves launchers and launch agents that would wait for each other for minutes:
/// they are known by the files below the site's directories that they have open. Their ranks go
/// with them.
impl Drop for Site {
    fn drop(&mut self) {
        let dirs = [self.cluster.dir(), self.jobs.path()];
        let entries = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
        for entry in entries {
            let read = |name: &str| std::fs::read_to_string(entry.path().join(name));
            let name = read("comm").unwrap_or_default();
            let files = std::fs::read_dir(entry.path().join("fd")).into_iter().flatten();
            let mut files = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
            let pid = entry.file_name().to_str().and_then(|pid| pid.parse().ok());
            if ["ftb-launch", "ftb-nla"].contains(&name.trim_end())
                && files.any(|file| dirs.iter().any(|dir| file.starts_with(dir)))
                && let Some(pid) = pid
            {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }
}

impl Site {
    /// As [`wait_for`]; a failure says what all jobs of the site were at.
    pub async fn wait<T>(
        &self,
        what: &str,
        condition: impl AsyncFnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        wait_for(what, condition).await.with_context(|| self.evidence())
    }

    /// For the message of a failed test: the state of each job, its processes, the ends of all
    /// logs.
    pub fn evidence(&self) -> String {
        let mut text = String::from("\n");
        for job in std::fs::read_dir(self.jobs.path()).into_iter().flatten().filter_map(Result::ok)
        {
            let state = std::fs::read(job.path().join("state.json")).unwrap_or_default();
            let state: serde_json::Value = serde_json::from_slice(&state).unwrap_or_default();
            let jl = &state["jl"];
            for (what, part) in [
                ("open", &jl["open"]),
                ("wanted", &jl["wanted"]),
                ("nodes", &jl["job"]["nodes"]),
                ("ranks", &jl["job"]["ranks"]),
                ("barrier", &jl["job"]["barrier"]),
            ] {
                text.push_str(&format!("--- job {:?} {what}: {part}\n", job.file_name()));
            }
        }
        text.push_str(&processes());
        for file in outputs().iter() {
            let all = std::fs::read_to_string(file).unwrap_or_default();
            let lines: Vec<&str> = all.lines().collect();
            let end = lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n");
            text.push_str(&format!("--- {}\n{end}\n", file.display()));
        }
        text + &self.cluster.logs()
    }

    pub async fn new(nodes: usize) -> Result<Self> {
        let site = Self::without_examples(nodes).await?;
        ensure!(site.count.exists(), "{} is not built", site.count.display());
        Ok(site)
    }

    /// Where the examples of the package are not wanted: `count` may be missing.
    pub async fn without_examples(nodes: usize) -> Result<Self> {
        Self::planned(Plan::new(nodes, 2)).await
    }

    /// With agents of this plan.
    pub async fn planned(plan: Plan) -> Result<Self> {
        Self::around(plan.start().await?)
    }

    /// On a cluster in which nothing was ever published.
    pub async fn fresh(nodes: usize) -> Result<Self> {
        Self::around(Plan::new(nodes, 2).start_quietly().await?)
    }

    fn around(cluster: Cluster) -> Result<Self> {
        let mut clusters = CLUSTERS.lock().unwrap_or_else(PoisonError::into_inner);
        clusters.push(cluster.dir().display().to_string());
        drop(clusters);
        // .../target/PROFILE/deps/TEST: examples are built with the tests of their package.
        let test = std::env::current_exe()?;
        let profile = test.ancestors().nth(2).context("the test runs outside a target folder")?;
        let count = profile.join("examples/count");
        binary("ftb-launcher", "ftb-nla")?;
        Ok(Self { cluster, jobs: TempDir::new()?, count })
    }

    pub fn local_nodes(&self) -> String {
        let pair =
            |rank| format!("{}={}", self.cluster.host(rank), self.cluster.socket(rank).display());
        (0..self.cluster.len()).map(pair).collect::<Vec<_>>().join(",")
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(LAUNCH);
        command.env("FTB_JOBS_DIR", self.jobs.path()).args(arguments).stdin(Stdio::null());
        command
    }

    /// A job that is saved on request only, unless `arguments` say otherwise.
    pub fn launch(&self, arguments: &[&str], program: &[&str]) -> Command {
        let mut command = self.command(&["run", "--local-nodes", &self.local_nodes()]);
        if !arguments.iter().any(|word| word.starts_with("--checkpoint-every")) {
            command.args(["--checkpoint-every", "never"]);
        }
        command.args(arguments).arg("--").args(program);
        command
    }

    pub fn counting(&self, job: &str, arguments: &[&str]) -> Command {
        let count = self.count.display().to_string();
        let mut all = vec!["-n", "4", "--job", job];
        all.extend(arguments);
        self.launch(&all, &[&count, STEPS, PAUSE_US, &self.gate().display().to_string()])
    }

    /// Jobs stay in their middle until it is there.
    pub fn gate(&self) -> PathBuf {
        self.cluster.dir().join("gate")
    }

    /// Lets the jobs go on to their end.
    pub fn release(&self) -> Result<()> {
        std::fs::write(self.gate(), "")?;
        Ok(())
    }

    /// Verifies a set of a job, as a restart does.
    pub fn verify(&self, job: &str, set: &std::path::Path) -> Result<Manifest> {
        let job = JobId::new(job)?;
        let file: JobFile =
            JobDir::new(self.jobs.path(), &job).read("job.json").map_err(Error::msg)?;
        jobdir::verify(set, &job, &file.set_key).map_err(Error::msg)
    }

    /// Asks a job for something; the words of the last answer.
    pub async fn ask(&self, arguments: &[&str]) -> Result<String> {
        let output = run(self.command(arguments)).await?;
        ensure!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        Ok(text(&output.stdout).lines().last().unwrap_or_default().to_owned())
    }

    /// Waits until all ranks of a job have met, so that it can be asked anything.
    pub async fn wait_met(&self, job: &str) -> Result<()> {
        let path = self.jobs.path().join(job).join("state.json");
        self.wait("the ranks to meet", async || {
            let Ok(bytes) = std::fs::read(&path) else { return Ok(None) };
            let state: serde_json::Value = serde_json::from_slice(&bytes)?;
            Ok((state["jl"]["job"]["met"] == true).then_some(()))
        })
        .await
    }

    /// Waits until the open workflow of a job is in that phase.
    pub async fn wait_phase(&self, job: &str, phase: &str) -> Result<()> {
        let path = self.jobs.path().join(job).join("state.json");
        self.wait(&format!("the phase {phase}"), async || {
            let state: serde_json::Value = serde_json::from_slice(&std::fs::read(&path)?)?;
            Ok((state["jl"]["open"]["phase"] == phase).then_some(()))
        })
        .await
    }

    /// Waits until this number of requests is queued behind the open workflow.
    pub async fn wait_wanted(&self, job: &str, count: usize) -> Result<()> {
        let path = self.jobs.path().join(job).join("state.json");
        self.wait("the remedy to be queued", async || {
            let state: serde_json::Value = serde_json::from_slice(&std::fs::read(&path)?)?;
            let wanted = state["jl"]["wanted"].as_array().map(Vec::len);
            Ok((wanted == Some(count)).then_some(()))
        })
        .await
    }

    /// Waits until a node is a spare. The state on disk is as old as the last step: a step brings
    /// it up to date.
    pub async fn wait_spare(&self, job: &str, node: &str) -> Result<()> {
        self.wait(&format!("{node} to be a spare"), async || {
            let status = self.ask(&["status", job, "--json"]).await?;
            let status: serde_json::Value = serde_json::from_str(&status)?;
            if status["nodes"][node]["state"] == "MIGRATION_SPARE" {
                return Ok(Some(()));
            }
            self.checkpoint(job).await?;
            Ok(None)
        })
        .await
    }

    /// Waits until the launcher knows that a node may be used again, and has written that down.
    pub async fn wait_asked_usable(&self, job: &str, node: &str) -> Result<()> {
        let path = self.jobs.path().join(job).join("state.json");
        self.wait(&format!("the launcher to know that {node} is usable"), async || {
            let state: serde_json::Value = serde_json::from_slice(&std::fs::read(&path)?)?;
            let asked = &state["jl"]["job"]["nodes"][node];
            let is_known = asked["usable"] == true
                || asked["asked_usable"].as_array().is_some_and(|asked| !asked.is_empty());
            Ok(is_known.then_some(()))
        })
        .await
    }

    /// A checkpoint, as soon as no rank waits for others in a PMI barrier: until then it is
    /// refused.
    pub async fn checkpoint(&self, job: &str) -> Result<()> {
        self.wait("a checkpoint", async || {
            let output = run(self.command(&["checkpoint", job])).await?;
            let reported = text(&output.stderr);
            ensure!(
                output.status.success() || reported.contains("PMI barrier"),
                "checkpoint: {reported}"
            );
            Ok(output.status.success().then_some(()))
        })
        .await
    }

    pub fn nla_of(&self, job: &str, node: &str) -> Result<Pid> {
        let path = self.jobs.path().join(job).join("state.json");
        let state: serde_json::Value = serde_json::from_slice(&std::fs::read(path)?)?;
        let pid = state["nlas"][node].as_i64().context("no such launch agent")?;
        Ok(Pid::from_raw(i32::try_from(pid)?))
    }

    /// Waits until a job does nothing but work, and its status is as `is` wants it.
    pub async fn wait_status(
        &self,
        job: &str,
        what: &str,
        is: impl Fn(&serde_json::Value) -> bool,
    ) -> Result<()> {
        self.wait(what, async || {
            let status = self.ask(&["status", job, "--json"]).await?;
            let status: serde_json::Value = serde_json::from_str(&status)?;
            Ok((status["doing"] == "" && is(&status)).then_some(()))
        })
        .await
    }

    /// The result of an undisturbed run.
    pub async fn undisturbed(&self) -> Result<String> {
        self.undisturbed_on("node03").await
    }

    pub async fn undisturbed_on(&self, spare: &str) -> Result<String> {
        let count = self.count.display().to_string();
        let command = self.launch(&["-n", "4", "-q", "--spares", spare], &[&count, STEPS, "0"]);
        result(&run(command).await?)
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command without blocking the runtime.
pub async fn run(mut command: Command) -> Result<Output> {
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    Ok(output)
}

/// Starts a job in the background. Its output is in files while it runs: a failing test shows them.
pub fn start(mut command: Command) -> tokio::task::JoinHandle<Result<Output>> {
    tokio::spawn(async move {
        let files = [tempfile::NamedTempFile::new()?, tempfile::NamedTempFile::new()?];
        let paths = files.each_ref().map(|file| file.path().to_owned());
        outputs().extend(paths.clone());
        command.stdout(files[0].reopen()?).stderr(files[1].reopen()?);
        let status = tokio::task::spawn_blocking(move || command.status()).await?;
        outputs().retain(|path| !paths.contains(path));
        let [stdout, stderr] = paths.map(std::fs::read);
        Ok(Output { status: status?, stdout: stdout?, stderr: stderr? })
    })
}

fn outputs() -> std::sync::MutexGuard<'static, Vec<PathBuf>> {
    OUTPUTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The processes of jobs of this test program, a line each: number, name, state, what it waits for,
/// command line.
fn processes() -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok) {
        let read = |name: &str| {
            let bytes = std::fs::read(entry.path().join(name)).unwrap_or_default();
            self::text(&bytes).replace('\0', " ")
        };
        let own = entry.file_name().to_str() == Some(&std::process::id().to_string());
        if own || !is_ours(&(read("cmdline") + &read("environ"))) {
            continue;
        }
        let status = read("status");
        let state = status.lines().find(|line| line.starts_with("State:")).unwrap_or_default();
        let (pid, waits) = (entry.file_name(), read("wchan"));
        let words: String = read("cmdline").chars().take(WORDS_SHOWN).collect();
        text.push_str(&format!("--- {pid:?} {} {state} {waits} {words}\n", read("comm").trim()));
    }
    text
}

/// The processes of a job by rank, with their incarnations.
pub fn ranks_of(job: &str) -> Result<BTreeMap<u32, (Pid, u64)>> {
    let mut ranks = BTreeMap::new();
    for entry in std::fs::read_dir("/proc")?.filter_map(Result::ok) {
        let Ok(environ) = std::fs::read(entry.path().join("environ")) else { continue };
        let environ = text(&environ);
        if !is_ours(&environ) {
            continue;
        }
        let var = |key: &str| environ.split('\0').find_map(|pair| pair.strip_prefix(key));
        let comm = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        // The environment of one that was parked does not say which rank it is.
        if var("FTB_PARKED=").is_some() {
            continue;
        }
        if var("FTB_JOB_ID=") == Some(job) && matches!(comm.trim_end(), "count" | "gmres") {
            let pid = Pid::from_raw(entry.file_name().to_string_lossy().parse()?);
            let rank = var("FTB_RANK=").context("a rank without a number")?.parse()?;
            let incarnation = var("FTB_INCARNATION=").context("no incarnation")?.parse()?;
            ranks.insert(rank, (pid, incarnation));
        }
    }
    Ok(ranks)
}

/// The processes of a job that run a program, by rank.
pub fn processes_of(job: &str, program: &str) -> Result<BTreeMap<u32, Pid>> {
    let mut ranks = BTreeMap::new();
    for entry in std::fs::read_dir("/proc")?.filter_map(Result::ok) {
        let read = |name: &str| text(&std::fs::read(entry.path().join(name)).unwrap_or_default());
        let environ = read("environ");
        let var = |key: &str| environ.split('\0').find_map(|pair| pair.strip_prefix(key));
        let runs = read("cmdline").split('\0').next() == Some(program);
        if runs && is_ours(&environ) && var("FTB_JOB_ID=") == Some(job) {
            let rank = var("FTB_RANK=").context("a rank without a number")?.parse()?;
            ranks.insert(rank, Pid::from_raw(entry.file_name().to_string_lossy().parse()?));
        }
    }
    Ok(ranks)
}

/// The line with the result, of a job that ended well.
pub fn result(output: &Output) -> Result<String> {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    ensure!(output.status.success(), "{:?}\n{out}\n{err}", output.status);
    let line = out.lines().find(|line| line.starts_with("result "));
    Ok(line.with_context(|| format!("no result\n{out}\n{err}"))?.to_owned())
}

/// States a condition of a sensor, as root does.
pub fn fan(site: &Site, node: &str, condition: &str) -> Result<()> {
    let mut command = Command::new(binary("ftbctl", "ftbctl")?);
    command.arg("--agent").arg(site.cluster.socket(0));
    command.args(["publish", "ftb.ipmi", "FTB_TEST", "-s", "error", "--host", node]);
    let output = command.args(["--component", "FAN 1", "--condition", condition]).output()?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    Ok(())
}

/// Nothing of the job is left: no process of ours that has `word` in its command line or
/// environment.
pub async fn nothing_left(word: &str) -> Result<()> {
    wait_for(&format!("everything of {word} to be gone"), async || {
        let mut left = false;
        for entry in std::fs::read_dir("/proc")?.filter_map(Result::ok) {
            let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
            let own = entry.file_name().to_str() == Some(&std::process::id().to_string());
            let all = text(&[read("cmdline"), read("environ")].concat());
            left |= !own && all.contains(word) && is_ours(&all);
        }
        Ok((!left).then_some(()))
    })
    .await
}
