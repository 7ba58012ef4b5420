//! A real Slurm on this machine (munged, slurmctld and four slurmd), in whose allocation the
//! launcher finds its hosts and starts its launch agents.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result, ensure};
use ftb_tests::cluster::wait_for;
use ftb_tests::skip::skip;
use nix::sys::signal::{Signal, kill};
use site::{Site, nothing_left, result, run, start, text};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const NODES: usize = 4;
/// How often is looked for what is left at the end.
const LOOKS_MAX: usize = 100;

/// The daemons; they end with it.
struct Slurm {
    dir: PathBuf,
    daemons: Vec<Child>,
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for child in &mut self.daemons {
            // It may have ended by itself; there is nothing to do then.
            let _ = child.kill();
            let _ = child.wait();
        }
        // Step daemons, launch agents and ranks are not our children, but all have our
        // configuration in their environment. A process may start another one while it is being
        // killed.
        for _ in 0..LOOKS_MAX {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            for pid in left {
                let _ = kill(pid, Signal::SIGKILL);
            }
            std::thread::sleep(core::time::Duration::from_millis(20));
        }
    }
}

/// Why this test cannot run here.
fn cannot() -> Option<&'static str> {
    let there = |name: &str| Path::new("/usr/sbin").join(name).exists();
    if !["munged", "slurmctld", "slurmd"].into_iter().all(there) {
        return Some(
            "Slurm is not installed (apt-get install munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins)",
        );
    }
    let root = nix::unistd::Uid::effective().is_root();
    (!root).then_some("only root can run slurmd")
}

impl Slurm {
    async fn start(site: &Site) -> Result<Self> {
        let dir = site.cluster.dir().join("slurm");
        std::fs::create_dir_all(dir.join("state"))?;
        let mut slurm = Self { dir, daemons: Vec::new() };
        slurm.write_config(site)?;
        let at = |name: &str| slurm.dir.join(name).display().to_string();
        let munged = [
            "--foreground".to_owned(),
            "--force".to_owned(),
            format!("--key-file={}", at("key")),
            format!("--socket={}", at("munge.sock")),
            format!("--pid-file={}", at("munged.pid")),
            format!("--log-file={}", at("munged.log")),
            format!("--seed-file={}", at("seed")),
        ];
        slurm.run("munged", &munged)?;
        slurm.run("slurmctld", &["-D".to_owned()])?;
        for index in 0..NODES {
            let name = site.cluster.host(index).to_owned();
            slurm.run("slurmd", &["-D".to_owned(), "-N".to_owned(), name])?;
        }
        wait_for("four idle nodes", async || {
            let output = run(slurm.command("sinfo", &["-h", "-o", "%D %T"])).await?;
            Ok((text(&output.stdout).trim() == "4 idle").then_some(()))
        })
        .await
        .with_context(|| slurm.logs())?;
        Ok(slurm)
    }

    /// Ports that were free a moment ago: Slurm wants to know them before.
    fn write_config(&self, site: &Site) -> Result<()> {
        let host = nix::unistd::gethostname()?.into_string().ok().context("no host name")?;
        let host = host.split('.').next().unwrap_or_default();
        let free: Vec<TcpListener> = (0..=NODES)
            .map(|_| TcpListener::bind("127.0.0.1:0"))
            .collect::<std::io::Result<_>>()?;
        let port = |index: usize| free[index].local_addr().map(|address| address.port());
        let dir = self.dir.display();
        let mut config = format!(
            "ClusterName=ftb\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}\n\
             AuthType=auth/munge\nAuthInfo=socket={dir}/munge.sock\nSlurmUser=root\nSlurmdUser=root\n\
             StateSaveLocation={dir}/state\nSlurmdSpoolDir={dir}/spool.%n\n\
             SlurmctldPidFile={dir}/ctld.pid\nSlurmdPidFile={dir}/slurmd.%n.pid\n\
             SlurmctldLogFile={dir}/ctld.log\nSlurmdLogFile={dir}/slurmd.%n.log\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\n\
             SelectTypeParameters=CR_Core\nReturnToService=2\nMpiDefault=none\n\
             PartitionName=main Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:4\n",
            port(NODES)?
        );
        for index in 0..NODES {
            let name = site.cluster.host(index);
            let port = port(index)?;
            config.push_str(&format!(
                "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 State=UNKNOWN\n"
            ));
        }
        std::fs::write(self.dir.join("slurm.conf"), config)?;
        let key: Vec<u8> = (0..128).map(|_| ftb_launcher::control::random() as u8).collect();
        std::fs::write(self.dir.join("key"), key)?;
        use std::os::unix::fs::PermissionsExt as _;
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(self.dir.join("key"), private)?;
        Ok(())
    }

    fn run(&mut self, program: &str, arguments: &[String]) -> Result<()> {
        let log =
            std::fs::File::create(self.dir.join(format!("{program}-{}", self.daemons.len())))?;
        let child = Command::new(Path::new("/usr/sbin").join(program))
            .args(arguments)
            .env("SLURM_CONF", self.dir.join("slurm.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        self.daemons.push(child);
        Ok(())
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).env("SLURM_CONF", self.dir.join("slurm.conf")).stdin(Stdio::null());
        command
    }

    /// Every live process that this Slurm or a command for it has started.
    fn processes(&self) -> Vec<nix::unistd::Pid> {
        let word = format!("SLURM_CONF={}\0", self.dir.join("slurm.conf").display());
        let entries = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
        let ours = entries.filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            text(&environment).contains(&word).then_some(nix::unistd::Pid::from_raw(pid))
        });
        ours.filter(|pid| *pid != nix::unistd::Pid::this()).collect()
    }

    fn logs(&self) -> String {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().filter_map(Result::ok);
        let logs = entries.filter(|entry| entry.path().extension().is_some_and(|e| e == "log"));
        logs.map(|entry| std::fs::read_to_string(entry.path()).unwrap_or_default()).collect()
    }

    /// A launch in an allocation of all nodes: the hosts are Slurm's, only the agents' sockets are
    /// given.
    fn launch(&self, site: &Site, arguments: &[&str], program: &[&str]) -> Command {
        let sockets = site.cluster.dir().join("%n.sock").display().to_string();
        let agent = site.cluster.socket(0).display().to_string();
        let mut command = self.command("salloc", &["--quiet", "-N4", site::LAUNCH, "run"]);
        command.env("FTB_JOBS_DIR", site.jobs.path());
        command.args(["--agent-socket", &sockets, "--agent", &agent, "--address", "127.0.0.1"]);
        command.args(arguments).arg("--").args(program);
        command
    }
}

/// A launch agent that does not go when the job ends is killed on its node, by another `srun`.
async fn one_that_does_not_go_is_killed(site: &Site, slurm: &Slurm) -> Result<()> {
    let deadlines = slurm.dir.join("deadlines.toml");
    std::fs::write(&deadlines, "end = \"1s\"\n")?;
    let (deadlines, name) =
        (deadlines.display().to_string(), format!("stays-{}", std::process::id()));
    let arguments = ["-n", "2", "--job", &name, "--hosts", "node[01-02]"];
    let all = [&arguments[..], &["--deadlines", &deadlines]].concat();
    let there = slurm.dir.join("there").display().to_string();
    let script = format!("touch {there}.$FTB_RANK; exec sleep 1009");
    let job = start(slurm.launch(site, &all, &["sh", "-c", &script]));
    for rank in 0..2 {
        let path = format!("{there}.{rank}");
        wait_for("the ranks", async || Ok(std::fs::exists(&path)?.then_some(()))).await?;
    }
    let agent = slurm.processes().into_iter().find(|pid| {
        let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let on_node = text(&read("environ")).contains("SLURMD_NODENAME=node02\0");
        on_node && text(&read("cmdline")).contains("ftb-nla\0serve\0")
    });
    kill(agent.context("no launch agent on node02")?, Signal::SIGSTOP)?;
    site.ask(&["kill", &name]).await?;
    let output = job.await??;
    let reported = text(&output.stderr);
    assert_eq!(output.status.code(), Some(143), "{reported}");
    assert!(reported.contains("no answer from node02: killed"), "{reported}");
    nothing_left(&format!("FTB_JOB_ID={name}\0")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allocation_says_where_and_srun_starts_the_launch_agents() -> Result<()> {
    if let Some(why) = cannot() {
        skip(why);
        return Ok(());
    }
    let site = Site::new(NODES).await?;
    let expected = site.undisturbed().await?;
    let slurm = Slurm::start(&site).await?;

    let script = "echo $FTB_RANK on $FTB_NODE $GREETING";
    let arguments = ["-n", "8", "--env", "GREETING=hello"];
    let output = run(slurm.launch(&site, &arguments, &["sh", "-c", script])).await?;
    let (out, reported) = (text(&output.stdout), text(&output.stderr));
    ensure!(output.status.success(), "{reported}\n{}", slurm.logs());
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    let all: Vec<String> =
        (0..8).map(|rank| format!("{rank} on node0{} hello", 1 + rank / 2)).collect();
    assert_eq!(lines, all, "{reported}");

    let count = site.count.display().to_string();
    let gate = site.gate().display().to_string();
    // Images lie where all jobs of the host have them: another run may be under way.
    let name = format!("slurm-{}", std::process::id());
    // Names of nodes that cannot be looked up: images are fetched from their addresses.
    let entry = |index| {
        format!(
            "[[node]]\nname = {:?}\nagent = {:?}\naddress = \"127.0.0.1\"\n",
            site.cluster.host(index),
            site.cluster.socket(index)
        )
    };
    let nodes = slurm.dir.join("nodes.toml");
    std::fs::write(&nodes, (0..NODES).map(entry).collect::<String>())?;
    let nodes = nodes.display().to_string();
    let arguments = [
        "-n",
        "4",
        "--job",
        &name,
        "--spares",
        "node[03-04]",
        "--start",
        "slurm",
        "--nodes",
        &nodes,
    ];
    let program = [count.as_str(), site::STEPS, site::PAUSE_US, &gate];
    let job = start(slurm.launch(&site, &arguments, &program));
    site.wait_met(&name).await?;
    let moved = site.ask(&["migrate", &name, "node01"]).await?;
    assert_eq!(moved, "ranks 0,1 moved from node01 to node03");
    site.release()?;
    assert_eq!(result(&job.await??)?, expected);
    nothing_left(&format!("FTB_JOB_ID={name}\0")).await?;

    one_that_does_not_go_is_killed(&site, &slurm).await?;

    let elsewhere = ["-n", "1", "--hosts", "node09"];
    let output = run(slurm.launch(&site, &elsewhere, &["true"])).await?;
    let reported = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{reported}");
    assert!(reported.contains("node09 is not in this allocation (node[01-04])"), "{reported}");
    Ok(())
}
