//! Launch agents on other hosts: a real sshd for each "host", on a loopback address of its own,
//! with its own keys; each host has its own agent. Also input, signals, environment and end of a
//! job.
//!
//! Tests wait for lines and files, never for time. They are skipped without sshd, or without the
//! rights to run it.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result, ensure};
use ftb_tests::cluster::{Part, wait_for};
use ftb_tests::skip::skip;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use site::bridge::Bridge;
use site::fixture::{Fixture, criu_file, results};
use site::{Site, nothing_left, result, run, start, text};
use std::fmt::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const SSHD: &str = "/usr/sbin/sshd";
/// Where every sshd listens, on its own loopback address; no port that the system gives to others.
const SSH_PORT: u16 = 14022;

/// Hosts that are reached by ssh: `node01`, `node02`, ... on 127.x.y.1, 127.x.y.2, ...
struct Hosts {
    site: Site,
    dir: PathBuf,
    part: Part,
    daemons: Vec<Option<Child>>,
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for child in self.daemons.iter_mut().flatten() {
            // It may have ended by itself; there is nothing to do then.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Why these tests cannot run here.
fn cannot() -> Option<&'static str> {
    if !Path::new(SSHD).exists() || Command::new("ssh").arg("-V").output().is_err() {
        return Some("sshd is not installed (apt-get install openssh-server)");
    }
    let root = nix::unistd::Uid::effective().is_root();
    (!root).then_some("only root can run an sshd that lets root in")
}

impl Hosts {
    /// `n` hosts, of which those in `silent` have no sshd.
    async fn new(n: usize, silent: &[usize]) -> Result<Self> {
        let site = Site::new(n).await?;
        let dir = site.cluster.dir().to_owned();
        let key = |name: &str| -> Result<()> {
            let path = dir.join(name);
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(path)
                .status()?;
            ensure!(made.success(), "ssh-keygen failed");
            Ok(())
        };
        key("host_key")?;
        key("user_key")?;
        // sshd requires a directory that no other user can write to.
        std::fs::create_dir_all("/run/sshd")?;
        let part = Part::claim(SSH_PORT, n)?;
        let mut hosts = Self { site, dir, part, daemons: Vec::new() };
        hosts.write_config(n)?;
        for index in 0..n {
            let child = if silent.contains(&index) { None } else { Some(hosts.sshd(index)?) };
            hosts.daemons.push(child);
        }
        for index in (0..n).filter(|index| !silent.contains(index)) {
            let address = (hosts.address(index), SSH_PORT);
            wait_for("sshd", async || {
                Ok(std::net::TcpStream::connect(&address).is_ok().then_some(()))
            })
            .await?;
        }
        Ok(hosts)
    }

    fn address(&self, index: usize) -> String {
        self.part.address(index)
    }

    fn write_config(&self, n: usize) -> Result<()> {
        let (mut ssh, mut nodes) = (String::new(), String::new());
        for index in 0..n {
            let (name, address) = (self.site.cluster.host(index), self.address(index));
            writeln!(ssh, "Host {name}\n  HostName {address}")?;
            let agent = self.site.cluster.socket(index).display();
            let images = self.dir.join("images");
            writeln!(nodes, "[[node]]\nname = \"{name}\"\naddress = \"{address}\"")?;
            writeln!(nodes, "agent = \"{agent}\"\nimages = \"{}\"", images.display())?;
        }
        let dir = self.dir.display();
        writeln!(ssh, "Host *\n  Port {SSH_PORT}\n  User root\n  IdentityFile {dir}/user_key")?;
        writeln!(ssh, "  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null")?;
        writeln!(ssh, "  IdentitiesOnly yes\n  BatchMode yes\n  LogLevel ERROR")?;
        std::fs::write(self.dir.join("ssh_config"), ssh)?;
        std::fs::write(self.dir.join("nodes.toml"), nodes)?;
        Ok(())
    }

    /// The directory of a job on a host: all share one place here, as on a parallel file system.
    fn images(&self, job: &str, index: usize) -> PathBuf {
        self.dir.join("images").join(format!("{job}.{}", self.site.cluster.host(index)))
    }

    fn sshd(&self, index: usize) -> Result<Child> {
        let config = self.dir.join(format!("sshd-{index}"));
        let dir = self.dir.display();
        let text = format!(
            "ListenAddress {}\nPort {SSH_PORT}\nHostKey {dir}/host_key\nAuthorizedKeysFile \
             {dir}/user_key.pub\n\
             PermitRootLogin yes\nStrictModes no\nUsePAM no\nPidFile none\nMaxStartups 100\n",
            self.address(index),
        );
        std::fs::write(&config, text)?;
        std::fs::set_permissions(self.dir.join("host_key"), PermissionsExt::from_mode(0o600))?;
        let log = std::fs::File::create(self.dir.join(format!("sshd-{index}.log")))?;
        let child = Command::new(SSHD).args(["-D", "-e", "-f"]).arg(&config).stderr(log).spawn()?;
        Ok(child)
    }

    /// A launch on these hosts.
    fn launch(&self, arguments: &[&str], program: &[&str]) -> Command {
        let agent = self.site.cluster.socket(0).display().to_string();
        let nodes = self.dir.join("nodes.toml").display().to_string();
        let ssh = format!("ssh -F {}/ssh_config", self.dir.display());
        let address = self.address(0);
        let mut command = self.site.command(&["run", "--start", "ssh", "--nodes", &nodes]);
        command.args(["--ssh-command", &ssh, "--agent", &agent, "--address", &address]);
        command.args(arguments).arg("--").args(program);
        command
    }

    fn counting(&self, job: &str, arguments: &[&str]) -> Command {
        let (count, gate) = (self.site.count.display().to_string(), self.site.gate());
        let mut all = vec!["-n", "4", "--job", job];
        all.extend(arguments);
        self.launch(&all, &[&count, site::STEPS, site::PAUSE_US, &gate.display().to_string()])
    }

    /// Nothing of the job is left on any host: no process, no directory.
    async fn nothing_left(&self, job: &str) -> Result<()> {
        nothing_left(&format!("FTB_JOB_ID={job}")).await?;
        for index in 0..self.daemons.len() {
            let dir = self.images(job, index);
            wait_for("its directory to be gone", async || Ok((!dir.exists()).then_some(())))
                .await?;
        }
        Ok(())
    }

    /// The launch agent of a job on a node: the one that holds the lock of its directory.
    async fn nla(&self, job: &str, index: usize) -> Result<Pid> {
        let lock = self.images(job, index).join("lock");
        wait_for("the launch agent", async || Ok(pause(&lock, "ftb-nla"))).await
    }
}

/// The process of that name that has a file open.
fn pause(path: &Path, name: &str) -> Option<Pid> {
    let pids = std::fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let found = pids.find(|pid| {
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let files = std::fs::read_dir(format!("/proc/{pid}/fd"));
        let mut files = files.into_iter().flatten().filter_map(Result::ok);
        comm.trim_end() == name
            && files.any(|file| std::fs::read_link(file.path()).is_ok_and(|to| to == path))
    });
    found.map(Pid::from_raw)
}

/// The parent of a process, by name.
fn parent(pid: Pid) -> Result<(Pid, String)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = stat.rsplit_once(')').context("a stat line without a name")?.1;
    let parent: i32 = rest.split_ascii_whitespace().nth(1).context("no parent")?.parse()?;
    let name = std::fs::read_to_string(format!("/proc/{parent}/comm"))?;
    Ok((Pid::from_raw(parent), name.trim_end().to_owned()))
}

/// The launch agents of the tree that have started an ssh to another host of ours.
fn starters(config: &Path) -> Result<usize> {
    let mut found = 0;
    for entry in std::fs::read_dir("/proc")?.filter_map(Result::ok) {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let line = text(&std::fs::read(entry.path().join("cmdline")).unwrap_or_default());
        let ours = line.starts_with("ssh\0") && line.contains(&config.display().to_string());
        found += usize::from(ours && parent(Pid::from_raw(pid)).is_ok_and(|(_, n)| n == "ftb-nla"));
    }
    Ok(found)
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_are_reached_in_a_tree_and_a_node_moves_between_them() -> Result<()> {
    if let Some(why) = cannot() {
        skip(why);
        return Ok(());
    }
    let hosts = Hosts::new(4, &[]).await?;
    let expected = hosts.site.undisturbed().await?;
    let spares = ["--spares", "node[03-04]", "--fanout", "1"];
    let job = start(hosts.counting("tree", &spares));
    hosts.site.wait_met("tree").await?;
    // The launcher has reached one host; each of three agents has reached the next.
    assert_eq!(starters(&hosts.dir.join("ssh_config"))?, 3);
    let moved = hosts.site.ask(&["migrate", "tree", "node01"]).await?;
    assert_eq!(moved, "ranks 0,1 moved from node01 to node03");
    hosts.site.ask(&["checkpoint", "tree"]).await?;
    // An agent in the middle of the tree dies: its starter sees it through ssh, the rest of the
    // tree goes on.
    kill(hosts.nla("tree", 1).await?, Signal::SIGKILL)?;
    wait_for("the restart on the last spare", async || {
        let status = hosts.site.ask(&["status", "tree", "--json"]).await?;
        let status: serde_json::Value = serde_json::from_str(&status)?;
        let lost = status["nodes"]["node02"]["state"] == "LOST";
        Ok((lost && status["doing"] == "").then_some(()))
    })
    .await?;
    hosts.site.release()?;
    let output = job.await??;
    assert_eq!(result(&output)?, expected);
    let reported = text(&output.stderr);
    assert!(reported.contains("node02 is lost: ssh ended: exit status: 137"), "{reported}");
    hosts.nothing_left("tree").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_cannot_be_reached_is_named_and_the_rest_goes_on_or_nothing_runs() -> Result<()>
{
    if let Some(why) = cannot() {
        skip(why);
        return Ok(());
    }
    // The second host refuses connections; the third accepts and never answers.
    let hosts = Hosts::new(5, &[1, 2]).await?;
    let _mute = TcpListener::bind((hosts.address(2), SSH_PORT))?;
    let limits = ["--start-deadline", "12s", "--fanout", "1"];
    let mut with_spare = vec!["-n", "2", "--hosts", "node[01-02]", "--spares", "node[03-04]"];
    with_spare.extend(limits);
    let output = run(hosts.launch(&with_spare, &["sh", "-c", "echo on $FTB_NODE"])).await?;
    let (out, reported) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{reported}");
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["on node01", "on node04"], "{reported}");
    assert!(reported.contains("node02 is lost: ssh ended: exit status: 255"), "{reported}");
    assert!(reported.contains("Connection refused"), "{reported}");
    assert!(
        reported.contains("node03 is lost: its launch agent did not come up within 12s"),
        "{reported}"
    );

    let ran = hosts.dir.join("ran");
    let script = format!("touch {}", ran.display());
    let mut without = vec!["-n", "2", "--hosts", "node[01-02]"];
    without.extend(limits);
    let output = run(hosts.launch(&without, &["sh", "-c", &script])).await?;
    let reported = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{reported}");
    assert!(reported.contains("node02 is not usable and no hot spare is left"), "{reported}");
    assert!(!ran.exists(), "nothing runs: {reported}");
    hosts.nothing_left("none").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_over_ssh_outlives_its_launcher_and_its_output_finds_the_next() -> Result<()> {
    if let Some(why) = cannot() {
        skip(why);
        return Ok(());
    }
    let hosts = Hosts::new(2, &[]).await?;
    let (gate, go) = (hosts.site.gate(), hosts.dir.join("go"));
    let wait = |path: &Path| format!("until [ -e {} ]; do sleep 0.05; done", path.display());
    let script = format!(
        "echo first $FTB_RANK; {}; echo alone $FTB_RANK; touch {}.$FTB_RANK; {}; echo last \
         $FTB_RANK",
        wait(&go),
        go.display(),
        wait(&gate)
    );
    let arguments = ["-n", "2", "--job", "handover", "--prefix"];
    let mut first = hosts.launch(&arguments, &["sh", "-c", &script]);
    let mut launcher = first.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let stdout = launcher.stdout.take().context("no output")?;
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stdout));
    let mut seen = [lines.next().context("no line")??, lines.next().context("no line")??];
    seen.sort();
    assert_eq!(seen, ["[0] first 0", "[1] first 1"]);
    launcher.kill()?;
    launcher.wait()?;
    std::fs::write(&go, "")?;
    for rank in 0..2 {
        let said = PathBuf::from(format!("{}.{rank}", go.display()));
        wait_for("the ranks to go on alone", async || Ok(said.exists().then_some(()))).await?;
    }
    let second = start(hosts.site.command(&["attach", "handover"]));
    for index in 0..2 {
        let kept = hosts.images("handover", index).join("output");
        wait_for("the kept output to be taken", async || Ok((!kept.exists()).then_some(())))
            .await?;
    }
    hosts.site.release()?;
    let output = second.await??;
    let (out, reported) = (text(&output.stdout), text(&output.stderr));
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    // Kept output has no rank names; later output has them.
    assert_eq!(lines, ["[0] last 0", "[1] last 1", "alone 0", "alone 1"], "{reported}");
    assert!(output.status.success(), "{reported}");
    hosts.nothing_left("handover").await
}

/// Without a launcher and a takeover the nodes end the job after the grace: nothing stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_launcher_leaves_nothing_behind() -> Result<()> {
    if let Some(why) = cannot() {
        skip(why);
        return Ok(());
    }
    let hosts = Hosts::new(3, &[]).await?;
    let arguments = ["-n", "3", "--job", "orphan", "--orphan-grace", "4s", "--fanout", "1"];
    let script = "echo there; sleep 1009 & wait";
    let mut command = hosts.launch(&arguments, &["sh", "-c", script]);
    let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let stdout = launcher.stdout.take().context("no output")?;
    let lines = std::io::BufRead::lines(std::io::BufReader::new(stdout));
    assert_eq!(lines.take(3).filter(Result::is_ok).count(), 3);
    launcher.kill()?;
    launcher.wait()?;
    hosts.nothing_left("orphan").await
}

/// An agent that does not go when the job ends is killed on its host, with all that it has started.
#[tokio::test(flavor = "multi_thread")]
async fn a_launch_agent_that_does_not_go_is_killed_on_its_host() -> Result<()> {
    if let Some(why) = cannot() {
        skip(why);
        return Ok(());
    }
    let hosts = Hosts::new(2, &[]).await?;
    let deadlines = hosts.dir.join("deadlines.toml");
    std::fs::write(&deadlines, "end = \"1s\"\n")?;
    let deadlines = deadlines.display().to_string();
    let arguments = ["-n", "2", "--job", "stays", "--deadlines", &deadlines];
    let there = hosts.dir.join("there");
    let script = format!("sleep 1008 & touch {}.$FTB_RANK; wait", there.display());
    let job = start(hosts.launch(&arguments, &["sh", "-c", &script]));
    for rank in 0..2 {
        let path = format!("{}.{rank}", there.display());
        wait_for("the ranks", async || Ok(std::fs::exists(&path)?.then_some(()))).await?;
    }
    kill(hosts.nla("stays", 1).await?, Signal::SIGSTOP)?;
    hosts.site.ask(&["kill", "stays"]).await?;
    let output = job.await??;
    let reported = text(&output.stderr);
    assert_eq!(output.status.code(), Some(143), "{reported}");
    assert!(reported.contains("no answer from node02: killed"), "{reported}");
    hosts.nothing_left("stays").await
}

/// Pods of agents that were started over ssh, joined by a bridge that is not the job's own: a rank
/// moves between hosts, the bridge stays.
#[tokio::test(flavor = "multi_thread")]
async fn pods_on_several_hosts_meet_on_one_bridge() -> Result<()> {
    if let Some(why) = cannot() {
        skip(why);
        return Ok(());
    }
    let hosts = Hosts::new(3, &[]).await?;
    let Some(stencil) = Fixture::stencil(&hosts.site)? else { return Ok(()) };
    hosts.site.release()?;
    let plain = run(hosts.site.launch(&["-n", "2", "-q"], &stencil.words())).await?;
    std::fs::remove_file(hosts.site.gate())?;
    let bridge = Bridge::new("far")?;
    let more = bridge.backend("10.197.0.0", 16);
    let Some(backend) = criu_file(&hosts.site, &more)? else { return Ok(()) };
    let arguments = ["-n", "2", "--job", "far", "--backend", &backend];
    let arguments = [&arguments[..], &["--hosts", "node[01-02]", "--spares", "node03"]].concat();
    let job = start(hosts.launch(&arguments, &stencil.words()));
    hosts.site.wait_met("far").await?;
    let moved = hosts.site.ask(&["migrate", "far", "node02"]).await?;
    assert_eq!(moved, "ranks 1 moved from node02 to node03");
    hosts.site.release()?;
    assert_eq!(results(&job.await??)?, results(&plain)?);
    hosts.nothing_left("far").await?;
    assert_eq!(bridge.ports()?, 0, "the pods' links are gone, the bridge is not the job's");
    Ok(())
}

/// CRIU works on the launcher's host and not on the others: nothing runs, and the reason is the
/// host's own.
#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_does_not_work_on_a_host_keeps_everything_from_starting() -> Result<()> {
    if let Some(why) = cannot() {
        skip(why);
        return Ok(());
    }
    let hosts = Hosts::new(2, &[]).await?;
    let picky = hosts.dir.join("picky-criu");
    let script = "#!/bin/sh\n[ -z \"$SSH_CONNECTION\" ] || { echo too old here >&2; exit 1; }\n";
    std::fs::write(&picky, script)?;
    std::fs::set_permissions(&picky, PermissionsExt::from_mode(0o755))?;
    let file = hosts.dir.join("picky.toml");
    std::fs::write(&file, format!("[backend.criu]\nprogram = {picky:?}\nbridge = \"none0\"\n"))?;
    let (backend, ran) = (file.display().to_string(), hosts.dir.join("ran"));
    let arguments = ["-n", "2", "--job", "picky", "--backend", &backend];
    let output = run(hosts.launch(&arguments, &["touch", &ran.display().to_string()])).await?;
    let reported = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{reported}");
    assert!(reported.contains("does not work on this kernel (too old here)"), "{reported}");
    assert!(reported.contains("is lost: ssh ended: exit status: 1"), "{reported}");
    assert!(!ran.exists(), "{reported}");
    hosts.nothing_left("picky").await
}
