//! Images of pods in memory: a file system (tmpfs) of the launch agent's own, of a fixed size.
//!
//! A *holder* process keeps it in a mount namespace, and pods are made inside that namespace. So
//! CRIU in a pod finds the images, and the launch agent reads them through `/proc`. The kernel
//! frees them with the launch agent, however that ends. Not responsible for what is kept there.

use crate::owner;
use core::time::Duration;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// The subcommand of the launch agent for [`hold`].
pub const HOLD: &str = "hold-memory";
/// Where it is mounted, in the node's directory for the job.
pub const FOLDER: &str = "memory";
/// How long the holder may take.
const HOLD_WAIT: Duration = Duration::from_secs(10);

/// The file system. It ends with the last clone, apart from pods that live.
#[derive(Clone, Debug)]
pub struct MemoryRoot {
    /// Ends with its standard input.
    _holder: Arc<Child>,
    pid: u32,
    dir: PathBuf,
}

impl MemoryRoot {
    /// Makes it below the node's directory for the job, for this many bytes. `user`: the holder of
    /// an ordinary user's namespaces.
    ///
    /// # Errors
    /// One line; most often the user may not mount.
    pub async fn make(below: &Path, bytes: u64, user: Option<u32>) -> Result<Self, String> {
        let dir = below.join(FOLDER);
        let fail = |error: io::Error| format!("cannot hold images in memory: {error}");
        fs::create_dir_all(&dir).map_err(fail)?;
        let mut command = Command::from(owner::command(user, "/proc/self/exe"));
        command.arg(HOLD).arg(&dir).arg(bytes.to_string()).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = command.spawn().map_err(fail)?;
        let (pid, mut ready) = (process.id().unwrap_or_default(), String::new());
        if let Some(stdout) = process.stdout.take() {
            let mut stdout = BufReader::new(stdout);
            let read = tokio::time::timeout(HOLD_WAIT, stdout.read_line(&mut ready)).await;
            read.map_err(|_| "the memory for images was not there in time".to_owned())?
                .map_err(fail)?;
        }
        if ready.trim() != "ready" {
            return Err("cannot hold images in memory: no file system could be mounted".to_owned());
        }
        Ok(Self { _holder: Arc::new(process), pid, dir })
    }

    /// The process in whose mount namespace pods must be made.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// As commands in pods see it.
    pub fn inside(&self) -> &Path {
        &self.dir
    }

    /// As the launch agent sees it.
    pub fn here(&self) -> PathBuf {
        let below = self.dir.strip_prefix("/").unwrap_or(&self.dir);
        Path::new("/proc").join(self.pid.to_string()).join("root").join(below)
    }
}

/// The holder process: mounts the file system and waits for the end of its standard input.
///
/// # Errors
/// The system's.
pub fn hold(dir: &Path, bytes: u64) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    let options = format!("size={bytes},mode=0700");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), dir, Some("tmpfs"), flags, Some(options.as_str()))?;
    let mut said = io::stdout();
    writeln!(said, "ready")?;
    said.flush()?;
    io::copy(&mut io::stdin().lock(), &mut io::sink()).map(drop)
}
