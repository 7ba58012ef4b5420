//! One run of the solver under the launcher: its output line by line, its exit, its answer.

use anyhow::{Context as _, Result, bail};
use ftb_tests::cluster::{Cluster, binary};
use std::path::PathBuf;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// What is computed, and where.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Primary nodes, as a host list.
    pub(crate) hosts: String,
    /// The hot spare.
    pub(crate) spare: String,
    /// How many ranks.
    pub(crate) ranks: u32,
    /// How many iterations.
    pub(crate) iterations: u32,
    /// Whether the job is saved every two seconds.
    pub(crate) checkpoints: bool,
}

/// A launcher that runs: its output, and the file with its messages.
pub(crate) struct Launched {
    pub(crate) child: Child,
    pub(crate) lines: Lines<BufReader<ChildStdout>>,
    pub(crate) log: PathBuf,
}

impl Launched {
    /// Its messages so far.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// Starts `ftb-launch run` on the hosts of a cluster; `rest` adds options and the program.
pub(crate) fn launch(
    cluster: &Cluster,
    job: &str,
    rest: impl FnOnce(&mut Command),
) -> Result<Launched> {
    let nodes: Vec<String> = (0..cluster.len())
        .map(|rank| format!("{}={}", cluster.host(rank), cluster.socket(rank).display()))
        .collect();
    let log = cluster.dir().join(format!("{job}.log"));
    let mut command = Command::new(binary("ftb-launcher", "ftb-launch")?);
    command.args(["run", "--job", job, "--local-nodes", &nodes.join(",")]);
    rest(&mut command);
    let mut child = command
        .env("XDG_STATE_HOME", cluster.dir())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&log)?)
        .kill_on_drop(true)
        .spawn()
        .context("cannot start ftb-launch")?;
    let output = child.stdout.take().context("the output of ftb-launch is not piped")?;
    Ok(Launched { child, lines: BufReader::new(output).lines(), log })
}

/// A job that runs.
pub(crate) struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    iterations: u32,
    answer: Option<String>,
    log: PathBuf,
    sets: PathBuf,
}

impl Job {
    /// Starts it under `ftb-launch`, attached to the first agent.
    pub(crate) fn start(&self, cluster: &Cluster, name: &str) -> Result<Running> {
        let solver = solver()?;
        let Launched { child, lines, log } = launch(cluster, name, |command| {
            command
                .args(["-n", &self.ranks.to_string(), "--hosts", &self.hosts])
                .args(["--spares", &self.spare])
                .args(if self.checkpoints { &["--checkpoint-every", "2s"] as &[_] } else { &[] })
                .arg("--")
                .arg(solver)
                .args(["--iterations", &self.iterations.to_string()])
                // A pace of its own, so that the fan stops in the middle on a fast machine too.
                .args(["--sleep-us", "8000"])
                .args(["--report", &(self.iterations / 50).max(1).to_string()]);
        })?;
        let sets = cluster.dir().join("ftb/jobs").join(name).join("sets");
        Ok(Running { child, lines, iterations: self.iterations, answer: None, log, sets })
    }
}

/// The solver is an example program of ftb-job: beside the other binaries in a build, beside this
/// program when installed.
fn solver() -> Result<PathBuf> {
    const NAME: &str = "poisson";
    let launch = binary("ftb-launcher", "ftb-launch")?;
    let built = launch.with_file_name("examples").join(NAME);
    let installed = std::env::current_exe()?.with_file_name(NAME);
    [&built, &installed].into_iter().find(|path| path.is_file()).cloned().with_context(|| {
        format!("{} and {} are missing: make demo builds it", built.display(), installed.display())
    })
}

impl Running {
    /// Waits for the next sign of progress: the part that is done (0 to 1), or `None` at the end.
    pub(crate) async fn progress(&mut self) -> Result<Option<f64>> {
        while let Some(line) = self.lines.next_line().await? {
            if let Some(answer) = line.strip_prefix("result: ") {
                self.answer = Some(answer.to_owned());
            } else if let Some(rest) = line.strip_prefix("poisson: iteration ")
                && let Some(done) =
                    rest.split([' ', '/']).next().and_then(|n| n.parse::<u32>().ok())
            {
                return Ok(Some(f64::from(done) / f64::from(self.iterations.max(1))));
            }
        }
        Ok(None)
    }

    /// Whether there is a set to start the job from again.
    pub(crate) fn has_a_set(&self) -> bool {
        std::fs::read_dir(&self.sets)
            .is_ok_and(|sets| sets.flatten().any(|set| set.path().join("set.json").is_file()))
    }

    /// Waits for the end and gives the answer.
    pub(crate) async fn finish(mut self) -> Result<String> {
        while self.progress().await?.is_some() {}
        let status = self.child.wait().await?;
        if !status.success() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            bail!("the job ended with {status}; ftb-launch said:\n{log}");
        }
        self.answer.context("the job ended without an answer")
    }
}
