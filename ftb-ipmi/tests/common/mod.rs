//! Helpers of the integration tests: the daemon as a process.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

pub mod proxy;

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Longest wait before a test fails. Only failing tests reach it.
const DEADLINE: Duration = Duration::from_secs(180);

/// A running `ftb-ipmi --print`.
pub struct Daemon {
    child: Child,
    lines: Receiver<String>,
    events: Vec<Value>,
    /// Index of the next event for [`Daemon::await_event`].
    next: usize,
    _config: tempfile::TempDir,
}

fn write_config(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("ipmi.toml");
    ftb_tests::bmc::write_private(&path, text).expect("a configuration");
    (dir, path)
}

impl Daemon {
    /// Starts the daemon with this configuration.
    pub fn start(text: &str) -> Self {
        let (dir, path) = write_config(text);
        let mut child = Command::new(env!("CARGO_BIN_EXE_ftb-ipmi"))
            .arg("--config")
            .arg(path)
            .arg("--print")
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the daemon starts");
        let stdout = child.stdout.take().expect("it was piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines, events: Vec::new(), next: 0, _config: dir }
    }

    /// The next event of this name. Skipped events remain in [`Daemon::names`].
    pub fn await_event(&mut self, name: &str) -> Value {
        let deadline = Instant::now() + DEADLINE;
        loop {
            while let Some(event) = self.events.get(self.next) {
                self.next += 1;
                if event["name"] == name {
                    return event.clone();
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.events.push(serde_json::from_str(&line).expect("a JSON line")),
                Err(error) => panic!("no {name} ({error}) among {:?}", self.names()),
            }
        }
    }

    /// Waits until a file exists.
    pub fn await_file(&self, path: &Path) {
        until_some(&path.display().to_string(), || path.exists().then_some(()));
    }

    /// Names of all events so far.
    pub fn names(&mut self) -> Vec<String> {
        while let Ok(line) = self.lines.try_recv() {
            self.events.push(serde_json::from_str(&line).expect("a JSON line"));
        }
        let name = |event: &Value| event["name"].as_str().unwrap_or_default().to_owned();
        self.events.iter().map(name).collect()
    }

    /// Ends the daemon as systemd does.
    pub fn stop(mut self) -> ExitStatus {
        let script = format!("kill -TERM {}", self.child.id());
        let sent = Command::new("sh").arg("-c").arg(script).status().expect("a shell");
        assert!(sent.success(), "the daemon has already ended");
        self.child.wait().expect("it is our child")
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Polls until `look` returns a value.
pub fn until_some<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "no {what} before the deadline");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs the daemon until it ends; exit code and last line of standard error.
pub fn run_to_end(text: &str, flag: &str) -> (Option<i32>, String) {
    let output = output_of(text, flag);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), errors.lines().last().unwrap_or_default().to_owned())
}

/// Runs the daemon until it ends.
pub fn output_of(text: &str, flag: &str) -> Output {
    let (_dir, path) = write_config(text);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ftb-ipmi"));
    command.arg("--config").arg(path).arg(flag).env_remove("FTB_IPMI_PASSWORD");
    command.output().expect("the daemon starts")
}
