//! The guard of a node: a small process beside the NLA that is told each rank's process group, and kills them all
//! when the NLA dies without a word. The kernel kills the ranks themselves then; the guard gets what the ranks
//! have started. It also removes what the job has on the node: its directory, and a bridge of its own on which nothing
//! hangs any more.

use core::time::Duration;
use ftb_launcher_pods::pod::net::{self, PodNet};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

/// How often a bridge is looked at before it is left to the agents whose pods hang on it.
const BRIDGE_LOOKS_MAX: u32 = 20;
/// How long between two looks: links go a moment after the processes that they belonged to.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The first argument of a guard; the node's directory follows, and then the bridge where there is one.
const WORD: &str = "guard";

/// Whether a guard on this host watches over that bridge: then a job uses it, whether anything hangs on it now or not.
pub fn watches(bridge: &str) -> bool {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.into_iter().any(|line| is_guard_of(&line, bridge))
}

fn is_guard_of(command_line: &[u8], bridge: &str) -> bool {
    let words: Vec<&[u8]> = command_line.split(|byte| *byte == 0).collect();
    matches!(words[..], [_, word, _, last, ..] if word == WORD.as_bytes() && last == bridge.as_bytes())
}

/// The NLA's end.
#[derive(Clone, Debug)]
pub struct Guard(Arc<Mutex<ChildStdin>>);

impl Guard {
    /// Starts the guard; `dir` is the node's directory for the job, `pod` the network of its pod.
    ///
    /// # Errors
    /// The system's.
    pub fn start(dir: &Path, pod: Option<&PodNet>) -> io::Result<Self> {
        let bridge = pod.filter(|pod| pod.own).map(|pod| &pod.bridge);
        let mut child = Command::new("/proc/self/exe")
            .arg(WORD)
            .arg(dir)
            .args(bridge)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        let stdin = child.stdin.take().ok_or_else(|| io::Error::other("the guard has no input"))?;
        Ok(Self(Arc::new(Mutex::new(stdin))))
    }

    /// This process group has begun.
    pub fn add(&self, group: Pid) {
        self.say('+', group);
    }

    /// It is gone: its number may be another's.
    pub fn remove(&self, group: Pid) {
        self.say('-', group);
    }

    fn say(&self, word: char, group: Pid) {
        let mut stdin = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = stdin.write_all(format!("{word}{group}\n").as_bytes()) {
            tracing::warn!(%error, "the guard of the ranks is gone");
        }
    }
}

/// The guard's end: until its input ends, then it kills what is left and clears the node's directory, and a bridge of the
/// job's own, where the NLA has not done so itself.
pub fn run(input: impl BufRead, dir: &Path, bridge: Option<&str>) {
    for group in left(input) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    if dir.exists() {
        super::nodedir::clear(dir);
    }
    // Whoever has started the agent waits for the end of its errors, to tell that it is gone.
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stderr(null);
    }
    for _ in 0..BRIDGE_LOOKS_MAX {
        if bridge.is_none_or(net::remove_empty) {
            return;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The groups that have begun and are not gone when the input ends.
fn left(input: impl BufRead) -> BTreeSet<i32> {
    let mut groups = BTreeSet::new();
    for line in input.lines().map_while(Result::ok) {
        // 0 would be the guard's own group, 1 everybody's first process.
        let group = line.get(1..).and_then(|text| text.parse().ok()).filter(|group| *group > 1);
        match (line.chars().next(), group) {
            (Some('+'), Some(group)) => groups.insert(group),
            (Some('-'), Some(group)) => groups.remove(&group),
            _ => false,
        };
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_is_known_by_its_words() {
        assert!(is_guard_of(b"/proc/self/exe\0guard\0/tmp/a.node01\0ftb00000001\0", "ftb00000001"));
        let others: [&[u8]; 4] = [
            b"",
            b"/proc/self/exe\0guard\0/tmp/a.node01\0",
            b"/proc/self/exe\0guard\0/tmp/a.node01\0ftb00000002\0",
            b"ip\0link\0show\0ftb00000001\0",
        ];
        assert!(others.iter().all(|line| !is_guard_of(line, "ftb00000001")));
    }

    #[test]
    fn what_is_not_gone_is_left_and_nonsense_is_nobody() {
        let words: &[u8] = "+20\n+21\n-20\n+1\n+-5\n+0\nx\n\u{e9}\n+30\n".as_bytes();
        assert_eq!(left(words), BTreeSet::from([21, 30]));
    }
}
