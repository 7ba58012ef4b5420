//! An agent for one job, on a host where none runs: `ftb-launch run -n 2 -- PROGRAM` works at once.
//!
//! It is the only member of a cluster of its own, listens on a loopback port and on a socket in a
//! folder of this user, has no journal, and ends with the launcher, however that ends. So such a
//! job cannot be taken over by `attach`. Not responsible for: jobs on several nodes, which need
//! agents that run.

use crate::cli::Place;
use core::time::Duration;
use ftb_client::config::SOCKET_ENV;
use ftb_client::daemon::Failure;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, gethostname};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// How long the agent may take until its socket is open.
const START_MAX: Duration = Duration::from_secs(20);
/// How long it may take to end.
const STOP_MAX: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The agent; it ends when this is dropped.
pub struct OwnAgent {
    child: Child,
    folder: PathBuf,
}

/// Starts an agent if the job needs one on this host only, and none runs here. The place names its
/// socket then.
///
/// # Errors
/// It does not start: no agent answers.
pub fn start_if_missing(place: &mut Place) -> Result<Option<OwnAgent>, Failure> {
    let is_elsewhere = place.nodes.is_some()
        || place.local_nodes.is_some()
        || place.hosts.is_some()
        || place.spares.is_some()
        || place.start.is_some()
        || place.agent.is_some()
        || place.agent_socket.is_some()
        || std::env::var_os(SOCKET_ENV).is_some()
        || std::env::var_os("SLURM_JOB_ID").is_some();
    if is_elsewhere || !is_missing(&ftb_client::default_socket()) {
        return Ok(None);
    }
    let agent = OwnAgent::start()?;
    place.agent = Some(agent.socket());
    place.agent_socket = Some(agent.socket());
    Ok(Some(agent))
}

/// Whether no agent listens there. One that may not be asked is there.
fn is_missing(socket: &Path) -> bool {
    let absent = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
    UnixStream::connect(socket).is_err_and(|error| absent.contains(&error.kind()))
}

impl OwnAgent {
    fn start() -> Result<Self, Failure> {
        let folder = new_folder()?;
        let socket = folder.join("agent.sock");
        let config = folder.join("agent.toml");
        let host = gethostname()?.to_string_lossy().into_owned();
        let text = format!(
            "cluster = \"job\"\nmembers = {host:?}\nhost = {host:?}\ninsecure = true\n\
             allow_unlisted = false\nlisten = \"127.0.0.1:0\"\nthreads = 1\nsocket = {:?}\n\
             [journal]\nenabled = false\n[log]\nlevel = \"warn\"\n",
            socket.display().to_string()
        );
        let started = fs::write(&config, text).and_then(|()| spawn(&config));
        let child = match started {
            Ok(child) => child,
            Err(error) => {
                let _ = fs::remove_dir_all(&folder);
                return Err(Failure::no_answer(format!(
                    "no agent runs on this host, and none can be started: {error}"
                )));
            }
        };
        let mut agent = Self { child, folder };
        let started = Instant::now();
        while is_missing(&socket) {
            if let Some(status) = agent.child.try_wait()? {
                return Err(Failure::no_answer(format!(
                    "no agent runs on this host, and the one of this job ended: {status}"
                )));
            }
            if started.elapsed() > START_MAX {
                return Err(Failure::no_answer(
                    "no agent runs on this host, and the one of this job does not open its socket",
                ));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(agent)
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("agent.sock")
    }
}

impl Drop for OwnAgent {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let started = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if started.elapsed() > STOP_MAX {
                let _ = self.child.kill();
                let _ = self.child.wait();
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A folder that only this user can read, with a path that is short enough for a socket.
fn new_folder() -> Result<PathBuf, Failure> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| Failure::failed(error.to_string()))?;
    let name = format!("ftb-launch-{:016x}", u64::from_ne_bytes(random));
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let base = runtime.filter(|path| path.is_dir()).unwrap_or_else(std::env::temp_dir);
    let folder = base.join(name);
    DirBuilder::new()
        .mode(0o700)
        .create(&folder)
        .map_err(|error| Failure::failed(format!("{}: {error}", folder.display())))?;
    Ok(folder)
}

/// Starts the agent beside this program, else the one on the PATH. The kernel ends it when the
/// launcher ends. It is in a process group of its own: Ctrl-C is for the job.
fn spawn(config: &Path) -> io::Result<Child> {
    let beside = std::env::current_exe()?.with_file_name("ftb-agent");
    let program = if beside.is_file() { beside } else { "ftb-agent".into() };
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "--"]).arg(program).arg("--config").arg(config);
    command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0).spawn()
}
