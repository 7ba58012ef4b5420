//! Processes under measurement: started, ended without fail, and what `/proc` says they cost.

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take until it answers.
const READY_DEADLINE: Duration = Duration::from_secs(15);
/// Pause between two tries to reach it.
const READY_RETRY: Duration = Duration::from_millis(5);

/// A server process; killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    name: String,
    log: PathBuf,
}

/// Where a server shows that it is ready.
#[derive(Debug)]
pub(crate) enum Ready<'a> {
    /// It accepts on this loopback port.
    Port(u16),
    /// It accepts on this Unix socket.
    Socket(&'a Path),
}

/// The same command, to be killed by the kernel when the bench is: nothing outlives a bench that
/// was killed itself. Only for the bench's own thread: the end of the thread that starts it counts.
pub(crate) fn tied(command: &Command) -> Command {
    let mut tied = Command::new("setpriv");
    tied.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
    tied
}

impl Server {
    /// Starts a server, [`tied`] to the bench, whose output goes to a file in `dir`, and waits
    /// until it accepts.
    ///
    /// # Errors
    /// It cannot be started, ends at once, or does not accept in time: the error has its last
    /// output.
    pub(crate) fn start(
        name: &str,
        command: &Command,
        dir: &Path,
        ready: &Ready<'_>,
    ) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let out = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = tied(command)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let mut server = Self { child, name: name.to_owned(), log };
        server.wait_ready(ready)?;
        Ok(server)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_ready(&mut self, ready: &Ready<'_>) -> Result<()> {
        let begun = Instant::now();
        loop {
            let accepted = match ready {
                Ready::Port(port) => {
                    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, *port));
                    TcpStream::connect_timeout(&address, READY_DEADLINE).is_ok()
                }
                Ready::Socket(path) => UnixStream::connect(path).is_ok(),
            };
            if accepted {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended at once ({status}): {}", self.name, self.last_words());
            }
            if begun.elapsed() > READY_DEADLINE {
                bail!("{} does not accept: {}", self.name, self.last_words());
            }
            std::thread::sleep(READY_RETRY);
        }
    }

    /// The last line that it wrote.
    pub(crate) fn last_words(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        text.lines().last().unwrap_or("it said nothing").to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; either way nothing is left to do about an error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A loopback port that was free a moment ago.
///
/// # Errors
/// None can be bound.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
    Ok(listener.local_addr()?.port())
}

/// Where ports for many servers are looked for: below those that the system gives to outgoing
/// connections, one of which could else take a port before its server has come to listen.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// Different loopback ports that were free a moment ago.
///
/// # Errors
/// There are too few.
pub(crate) fn free_ports(count: usize) -> Result<Vec<u16>> {
    // Two benches at once begin at different places.
    let first = usize::try_from(std::process::id())? * 977 % PORTS.len();
    let candidates = PORTS.cycle().skip(first).take(PORTS.len());
    let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok();
    // All are held until the last is found.
    let listeners: Vec<TcpListener> = candidates.filter_map(bind).take(count).collect();
    if listeners.len() < count {
        bail!("{count} servers need as many ports, and only {} are free", listeners.len());
    }
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// What processes have used so far, summed over them.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// Time on a processor, all threads, in nanoseconds.
    pub(crate) cpu_ns: u64,
    /// Times that a thread went to sleep by itself.
    pub(crate) sleeps: u64,
    /// Resident memory now, in KiB.
    pub(crate) rss_kib: u64,
    /// The most that was ever resident, in KiB.
    pub(crate) rss_peak_kib: u64,
}

impl Usage {
    /// Reads `/proc` for all of them.
    ///
    /// # Errors
    /// One of them is gone.
    pub(crate) fn of(pids: &[u32]) -> Result<Self> {
        let mut sum = Self::default();
        for pid in pids {
            sum.add_process(*pid).with_context(|| format!("process {pid} is gone"))?;
        }
        Ok(sum)
    }

    fn add_process(&mut self, pid: u32) -> Result<()> {
        let dir = PathBuf::from(format!("/proc/{pid}"));
        let status = fs::read_to_string(dir.join("status"))?;
        self.rss_kib += number_after(&status, "VmRSS:");
        self.rss_peak_kib += number_after(&status, "VmHWM:");
        for task in fs::read_dir(dir.join("task"))? {
            let task = task?.path();
            // A thread may end between listing and reading.
            let schedstat = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
            self.cpu_ns += schedstat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
            let status = fs::read_to_string(task.join("status")).unwrap_or_default();
            self.sleeps += number_after(&status, "\nvoluntary_ctxt_switches:");
        }
        Ok(())
    }
}

/// Time that all processors have worked since the machine started, in nanoseconds.
pub(crate) fn machine_busy_ns() -> u64 {
    /// `/proc/stat` counts in hundredths of a second on Linux whatever its own tick is.
    const NS_PER_COUNT: u64 = 10_000_000;
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let counts: Vec<u64> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .map_while(|count| count.parse().ok())
        .collect();
    // user, nice, system; then idle and waiting, which are no work; then interrupts.
    [0, 1, 2, 5, 6].iter().filter_map(|place| counts.get(*place)).sum::<u64>() * NS_PER_COUNT
}

/// The first number behind a word of a `/proc` file; 0 when it is not there.
fn number_after(text: &str, word: &str) -> u64 {
    let rest = text.split_once(word).map(|(_, rest)| rest).unwrap_or_default();
    rest.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn this_process_has_a_size_and_used_time() {
        let pid = std::process::id();
        let before = Usage::of(&[pid]).unwrap();
        let begun = Instant::now();
        // Until the clock of the scheduler has moved: a condition, not a time.
        while Usage::of(&[pid]).unwrap().cpu_ns == before.cpu_ns {
            assert!(begun.elapsed() < Duration::from_secs(60), "no time was used");
        }
        assert!(machine_busy_ns() > 0);
        assert!(before.rss_kib > 100 && before.rss_peak_kib >= before.rss_kib);
    }

    #[test]
    fn a_server_that_ends_at_once_is_reported_with_its_last_lines() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo first; echo no such key >&2; exit 3"]);
        let port = free_port().unwrap();
        let error = Server::start("sh", &command, dir.path(), &Ready::Port(port)).unwrap_err();
        assert!(error.to_string().contains("no such key"), "{error}");
    }

    #[test]
    fn a_server_ends_with_the_thread_that_started_it() {
        let start = || {
            let mut command = Command::new("sleep");
            let child = tied(command.arg("600")).stdin(Stdio::null()).spawn().unwrap();
            // It is tied once it is what it was to be.
            let name = format!("/proc/{}/comm", child.id());
            while fs::read_to_string(&name).unwrap() != "sleep\n" {
                std::thread::yield_now();
            }
            child
        };
        let mut child = std::thread::spawn(start).join().unwrap();
        assert!(child.wait().unwrap().code().is_none(), "it ended by itself");
    }

    #[test]
    fn many_ports_are_different_ones() {
        let mut ports = free_ports(40).unwrap();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 40);
    }

    #[test]
    fn numbers_are_found_behind_their_word() {
        assert_eq!(number_after("VmRSS:\t  123 kB\nVmHWM:  456 kB", "VmHWM:"), 456);
        assert_eq!(number_after("VmRSS:\t  123 kB", "VmSwap:"), 0);
    }
}
