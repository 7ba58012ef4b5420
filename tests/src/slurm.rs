//! A real Slurm on this machine: munged, slurmctld, and a slurmd for each node, with a
//! configuration of its own in a folder of the test.

use crate::cluster::wait_for;
use crate::skip::skip;
use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// How often is looked for what is left at the end.
const LOOKS_MAX: usize = 100;
const KEY_BYTES: u64 = 128;

/// The daemons; they end with it, and all that they have started.
pub struct Slurm {
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
        // Step daemons and what they started are not our children, but all have our configuration
        // in their environment. A process may start another one while it is being killed.
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

/// Whether Slurm can run here; a line says why not.
pub fn can_run() -> bool {
    let there = |name: &str| Path::new("/usr/sbin").join(name).exists();
    if !["munged", "slurmctld", "slurmd"].into_iter().all(there) {
        skip(
            "Slurm is not installed (apt-get install munge slurmctld slurmd slurm-client \
             slurm-wlm-basic-plugins)",
        );
        return false;
    }
    let is_root = nix::unistd::Uid::effective().is_root();
    if !is_root {
        skip("only root can run slurmd");
    }
    is_root
}

/// The name by which Slurm knows this host.
fn short_host_name() -> Result<String> {
    let host = nix::unistd::gethostname()?.into_string().ok().context("no host name")?;
    Ok(host.split('.').next().unwrap_or_default().to_owned())
}

impl Slurm {
    /// Starts it in this folder, with a slurmd for each host, and waits until all are idle.
    ///
    /// # Errors
    /// A daemon cannot be started, or the nodes do not become idle; with all logs.
    pub async fn start(dir: &Path, hosts: &[&str]) -> Result<Self> {
        Self::start_with(dir, hosts, "").await
    }

    /// The same with further lines of slurm.conf.
    ///
    /// # Errors
    /// As [`Slurm::start`].
    pub async fn start_with(dir: &Path, hosts: &[&str], lines: &str) -> Result<Self> {
        // Ports that were free a moment ago: Slurm wants to know them before.
        let free: Vec<TcpListener> =
            hosts.iter().map(|_| TcpListener::bind("127.0.0.1:0")).collect::<io::Result<_>>()?;
        let (mut nodes, host) = (lines.to_owned(), short_host_name()?);
        for (name, listener) in hosts.iter().zip(&free) {
            let port = listener.local_addr()?.port();
            writeln!(
                nodes,
                "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 \
                 State=UNKNOWN"
            )?;
        }
        let mut slurm = Self::start_controller(dir, &nodes)?;
        drop(free);
        for host in hosts {
            slurm.run("slurmd", &["-D".to_owned(), "-N".to_owned(), (*host).to_owned()])?;
        }
        slurm.wait_nodes(&format!("{} idle", hosts.len())).await?;
        Ok(slurm)
    }

    /// Starts a controller alone with many nodes, which are powered down as those of a cloud are.
    /// They can be drained and resumed. The emulator of Debian 12 cannot: its controller demands
    /// front ends, and the library that it is linked with rejects them.
    ///
    /// # Errors
    /// As [`Slurm::start`].
    pub async fn start_large(dir: &Path, hosts: &str, count: usize) -> Result<Self> {
        let nodes = format!(
            "SuspendProgram=/bin/true\nResumeProgram=/bin/true\nSuspendTime=-1\n\
             PrivateData=cloud\nNodeName={hosts} CPUs=1 State=CLOUD\n"
        );
        let slurm = Self::start_controller(dir, &nodes)?;
        slurm.wait_nodes(&format!("{count} idle~")).await?;
        Ok(slurm)
    }

    fn start_controller(dir: &Path, nodes: &str) -> Result<Self> {
        fs::create_dir_all(dir.join("state"))?;
        let mut slurm = Self { dir: dir.to_owned(), daemons: Vec::new() };
        slurm.write_config(nodes)?;
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
        Ok(slurm)
    }

    /// Waits until all nodes are as `sinfo -o '%D %T'` prints it.
    async fn wait_nodes(&self, state: &str) -> Result<()> {
        wait_for("idle nodes", async || {
            let output = self.command("sinfo", &["-h", "-o", "%D %T"]).output()?;
            Ok((String::from_utf8_lossy(&output.stdout).trim() == state).then_some(()))
        })
        .await
        .with_context(|| self.logs())
    }

    fn write_config(&self, nodes: &str) -> Result<()> {
        let host = short_host_name()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let dir = self.dir.display();
        let config = format!(
            "ClusterName=ftb\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={port}\n\
             AuthType=auth/munge\nAuthInfo=socket={dir}/munge.sock\nSlurmUser=root\n\
             SlurmdUser=root\n\
             StateSaveLocation={dir}/state\nSlurmdSpoolDir={dir}/spool.%n\n\
             SlurmctldPidFile={dir}/ctld.pid\nSlurmdPidFile={dir}/slurmd.%n.pid\n\
             SlurmctldLogFile={dir}/ctld.log\nSlurmdLogFile={dir}/slurmd.%n.log\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\n\
             SelectTypeParameters=CR_Core\nReturnToService=2\nMpiDefault=none\n\
             {nodes}PartitionName=main Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:4\n"
        );
        fs::write(self.config(), config)?;
        let mut key = Vec::new();
        fs::File::open("/dev/urandom")?.take(KEY_BYTES).read_to_end(&mut key)?;
        fs::write(self.dir.join("key"), key)?;
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(self.dir.join("key"), private)?;
        Ok(())
    }

    fn run(&mut self, program: &str, arguments: &[String]) -> Result<()> {
        let log = fs::File::create(self.dir.join(format!("{program}-{}", self.daemons.len())))?;
        let child = Command::new(Path::new("/usr/sbin").join(program))
            .args(arguments)
            .env("SLURM_CONF", self.config())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        self.daemons.push(child);
        Ok(())
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its configuration file, for `SLURM_CONF`.
    pub fn config(&self) -> PathBuf {
        self.dir.join("slurm.conf")
    }

    /// A command of Slurm.
    pub fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).env("SLURM_CONF", self.config()).stdin(Stdio::null());
        command
    }

    /// Runs a command of Slurm, which must succeed: what it prints.
    ///
    /// # Errors
    /// It fails; with what it says.
    pub fn ask(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let Output { status, stdout, stderr } = self.command(program, arguments).output()?;
        let errors = String::from_utf8_lossy(&stderr);
        ensure!(status.success(), "{program} {arguments:?}: {errors}");
        Ok(String::from_utf8_lossy(&stdout).trim().to_owned())
    }

    /// Its release, such as `22.05.8`.
    ///
    /// # Errors
    /// As [`Slurm::ask`].
    pub fn version(&self) -> Result<String> {
        let text = self.ask("scontrol", &["--version"])?;
        Ok(text.split_whitespace().next_back().unwrap_or_default().to_owned())
    }

    /// Every live process that this Slurm or a command for it has started.
    pub fn processes(&self) -> Vec<Pid> {
        let word = format!("SLURM_CONF={}\0", self.config().display());
        let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
        let ours = entries.filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let environment = fs::read(entry.path().join("environ")).ok()?;
            String::from_utf8_lossy(&environment).contains(&word).then_some(Pid::from_raw(pid))
        });
        ours.filter(|pid| *pid != Pid::this()).collect()
    }

    /// What all daemons have logged.
    pub fn logs(&self) -> String {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().filter_map(Result::ok);
        let logs = entries.filter(|entry| entry.path().extension().is_some_and(|e| e == "log"));
        logs.map(|entry| fs::read_to_string(entry.path()).unwrap_or_default()).collect()
    }
}
