//! A host that falls silent: its cable is pulled. Agents, launch agents and ranks live on hosts of
//! their own (network namespaces); the launcher finds out by what the other agents say.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result, ensure};
use ftb_tests::cluster::{Plan, binary, wait_for};
use ftb_tests::netns::{Net, Way, impossible};
use ftb_tests::skip::skip;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use site::{LAUNCH, PAUSE_US, STEPS, Site, nothing_left, result, start, text};
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

const HOSTS: usize = 4;
/// The one whose cable is pulled; no agent is below it in the tree.
const VICTIM: usize = 3;

/// Hosts that are reached by something that does what ssh does.
struct Hosts {
    site: Site,
    net: Net,
}

impl Hosts {
    async fn new() -> Result<Self> {
        let net = Net::new(HOSTS)?;
        let site = Site::planned(Plan::new(HOSTS, 2).on(&net)).await?;
        ensure!(site.count.exists(), "{} is not built", site.count.display());
        let hosts = Self { site, net };
        let mut script = "#!/bin/sh\n[ -e \"$0-without-$1\" ] && exit 255\ncase $1 in\n".to_owned();
        let mut nodes = String::new();
        for host in 0..HOSTS {
            let name = hosts.site.cluster.host(host);
            writeln!(
                script,
                "{name}) shift; exec {} sh -c \"$*\";;",
                hosts.net.enter(host).join(" ")
            )?;
            let (agent, images) = (hosts.site.cluster.socket(host), hosts.file("images"));
            writeln!(
                nodes,
                "[[node]]\nname = \"{name}\"\naddress = \"{}\"",
                hosts.net.address(host)
            )?;
            writeln!(nodes, "agent = {agent:?}\nimages = {images:?}")?;
        }
        script.push_str("esac\n");
        std::fs::write(hosts.file("reach"), script)?;
        std::fs::set_permissions(hosts.file("reach"), PermissionsExt::from_mode(0o700))?;
        std::fs::write(hosts.file("nodes.toml"), nodes)?;
        Ok(hosts)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.site.cluster.dir().join(name)
    }

    /// `count`, by a launcher on the first host.
    fn counting(&self, job: &str) -> Result<Command> {
        let enter = self.net.enter(0);
        let path = |path: PathBuf| path.display().to_string();
        let mut command = Command::new(&enter[0]);
        command.args(&enter[1..]).args([LAUNCH, "run", "--start", "ssh", "--job", job, "-n", "4"]);
        command.args(["--ssh-command", &path(self.file("reach"))]);
        command.args(["--nodes", &path(self.file("nodes.toml"))]);
        command.args(["--nla", &path(binary("ftb-launcher", "ftb-nla")?)]);
        command.arg("--agent").arg(self.site.cluster.socket(0));
        command.args(["--address", &self.net.address(0), "--hosts", "node01,node04"]);
        command.args(["--spares", "node[02-03]", "--"]).arg(&self.site.count);
        command.args([STEPS, PAUSE_US, &path(self.site.gate())]);
        command.env("FTB_JOBS_DIR", self.site.jobs.path()).stdin(Stdio::null());
        Ok(command)
    }

    /// Cuts the host off.
    fn pull_the_cable(&mut self, host: usize) -> Result<()> {
        let name = self.site.cluster.host(host);
        std::fs::write(self.file(&format!("reach-without-{name}")), "")?;
        self.net.isolate(host, Way::Both)
    }
}

/// Processes of a job that have this in their environment or their command line.
fn processes(job: &str, word: &str) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let of = |entry: std::fs::DirEntry| {
        let read = |name: &str| std::fs::read(entry.path().join(name)).ok();
        let all = text(&[read("environ")?, read("cmdline")?].concat());
        let is = all.contains(&format!("FTB_JOB_ID={job}\0")) && all.contains(word);
        Some(Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)).filter(|_| is)
    };
    entries.filter_map(of).collect()
}

/// Its agent is declared dead by the others, its ranks go on from the last set on a spare, those
/// that live go back to it in place, and the result is the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_falls_silent_is_declared_dead_and_its_ranks_go_on_elsewhere() -> Result<()> {
    if let Some(why) = impossible() {
        skip(&why);
        return Ok(());
    }
    let mut hosts = Hosts::new().await?;
    let expected = hosts.site.undisturbed().await?;
    let job = start(hosts.counting("silent")?);
    hosts.site.wait_met("silent").await?;
    hosts.site.ask(&["checkpoint", "silent"]).await?;
    let lost = processes("silent", "FTB_NODE=node04\0");
    ensure!(lost.len() == 2, "{lost:?}");

    let silence = Instant::now();
    hosts.pull_the_cable(VICTIM)?;
    let path = hosts.site.jobs.path().join("silent/state.json");
    wait_for("the job to be whole again", async || {
        let state: serde_json::Value = serde_json::from_slice(&std::fs::read(&path)?)?;
        let jl = &state["jl"];
        let over = jl["open"].is_null() && jl["job"]["met"] == true;
        Ok((over && jl["job"]["restarts"] == 1).then_some(()))
    })
    .await?;
    println!("from silence to work: {} ms", silence.elapsed().as_millis());
    assert_eq!(processes("silent", "FTB_NODE=node02\0").len(), 2);
    // Processes over there would notice in ten minutes that they are alone.
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", lost[0]))?;
    let after = stat.rsplit_once(')').context("a stat line without a name")?.1;
    let agent: i32 = after.split_ascii_whitespace().nth(1).context("no parent")?.parse()?;
    kill(Pid::from_raw(agent), Signal::SIGKILL)?;
    hosts.site.release()?;
    let output = job.await??;
    let reported = text(&output.stderr);
    assert_eq!(result(&output)?, expected, "{reported}");
    assert!(
        reported.contains("node node04 is lost") && reported.contains("went back to set"),
        "{reported}"
    );
    assert!(!reported.contains("does not answer"), "no probe was needed: {reported}");
    nothing_left("FTB_JOB_ID=silent\0").await
}
