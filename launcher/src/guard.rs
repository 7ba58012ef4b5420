//! The guard of a node: a small process beside the NLA that knows each rank's process group. When
//! the NLA dies, the kernel kills the ranks, and the guard kills processes that they started. It
//! also removes the job's directory on the node, and the job's own bridge once it has no ports.

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

/// Most checks of a bridge before it is left to the agents whose pods use it.
const BRIDGE_LOOKS_MAX: u32 = 20;
/// Interval of the checks; links disappear a moment after their processes.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The first argument of a guard. The node's directory follows, then the bridge, if any.
const WORD: &str = "guard";

/// Whether a guard on this host watches that bridge: a live job uses it, even without ports.
pub fn watches(bridge: &str) -> bool {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.into_iter().any(|line| is_guard_of(&line, bridge))
}

fn is_guard_of(command_line: &[u8], bridge: &str) -> bool {
    let words: Vec<&[u8]> = command_line.split(|byte| *byte == 0).collect();
    matches!(words[..], [_, word, _, last, ..] if word == WORD.as_bytes() && last == bridge.as_bytes())
}

#[derive(Clone, Debug)]
pub struct Guard(Arc<Mutex<ChildStdin>>);

impl Guard {
    /// Starts the guard. `dir` is the node's directory for the job.
    pub fn start(dir: &Path, pod: Option<&PodNet>) -> io::Result<Self> {
        let bridge = pod.filter(|pod| pod.own && pod.holder.is_none()).map(|pod| &pod.bridge);
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

    pub fn add(&self, group: Pid) {
        self.say('+', group);
    }

    /// The group is gone; its number may be reused.
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

/// The guard process: waits for the end of its input, kills the remaining groups, and removes the
/// node's directory and bridge if the NLA has not done so.
pub fn run(input: impl BufRead, dir: &Path, bridge: Option<&str>) {
    for group in left(input) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    if dir.exists() {
        super::nodedir::clear(dir);
    }
    // The starter of the agent waits for the end of its standard error.
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

/// Groups that were added and not removed.
fn left(input: impl BufRead) -> BTreeSet<i32> {
    let mut groups = BTreeSet::new();
    for line in input.lines().map_while(Result::ok) {
        // 0 would be the guard's own group; 1 is the init process.
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
    fn groups_that_are_not_removed_remain_and_bad_lines_are_ignored() {
        let words: &[u8] = "+20\n+21\n-20\n+1\n+-5\n+0\nx\n\u{e9}\n+30\n".as_bytes();
        assert_eq!(left(words), BTreeSet::from([21, 30]));
    }
}
