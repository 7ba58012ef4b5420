//! An agent as a process of its own, in a folder of its own.

use super::{PATIENCE, TestClient, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::net::UnixStream;

/// A process that runs; killed when it is dropped.
pub struct Process {
    pub child: Child,
    dir: PathBuf,
}

impl Process {
    /// Starts a command of [`agent`]; what it logs is added to the file `log` of the folder.
    pub fn start(dir: &Path, command: &mut Command) -> Self {
        let log = File::options().create(true).append(true).open(dir.join("log")).unwrap();
        Self::of(dir, command.stderr(log).spawn().unwrap())
    }

    /// A process that was started in that folder.
    pub fn of(dir: &Path, child: Child) -> Self {
        Self { child, dir: dir.to_owned() }
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join("agent.sock")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Waits until it has logged something.
    pub async fn logged(&self, what: &str) {
        until(what, async || self.log().contains(what)).await;
    }

    /// A client of it, as soon as it listens.
    pub async fn client(&self) -> TestClient {
        let socket = self.socket();
        until("the socket", async || UnixStream::connect(&socket).await.is_ok()).await;
        let stream = UnixStream::connect(&socket).await.unwrap();
        TestClient::attach(Box::new(stream), "test").await
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        kill(pid, signal).unwrap();
    }

    /// Kills it and waits for its end.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end; gives its exit code.
    pub fn ended(&mut self) -> Option<i32> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the agent does not end");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program with that configuration.
pub fn agent(config: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ftb-agent"));
    command.arg("--config").arg(config).env_remove("FTB_LOG").env_remove("NOTIFY_SOCKET");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Writes the configuration of node01, its socket in the folder: six lines, then `extra`.
pub fn write_config(dir: &Path, cluster: &str, members: &str, extra: &str) -> PathBuf {
    let path = dir.join("agent.toml");
    let text = format!(
        "cluster = \"{cluster}\"\nmembers = \"{members}\"\nhost = \"node01\"\ninsecure = true\n\
         listen = \"127.0.0.1:0\"\nsocket = \"{}\"\n{extra}",
        dir.join("agent.sock").display()
    );
    std::fs::write(&path, text).unwrap();
    path
}
