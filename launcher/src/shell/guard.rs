//! The guard of a node: a small process beside the NLA that is told each rank's process group, and kills them all
//! when the NLA dies without a word. The kernel kills the ranks themselves then; the guard gets what the ranks
//! have started. It also removes what the job has on the node.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

/// The NLA's end.
#[derive(Clone, Debug)]
pub struct Guard(Arc<Mutex<ChildStdin>>);

impl Guard {
    /// Starts the guard; `dir` is the node's directory for the job.
    ///
    /// # Errors
    /// The system's.
    pub fn start(dir: &Path) -> io::Result<Self> {
        let mut child = Command::new("/proc/self/exe")
            .arg("guard")
            .arg(dir)
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

/// The guard's end: until its input ends, then it kills what is left and clears the node's directory, where the NLA
/// has not done so itself.
pub fn run(input: impl BufRead, dir: &Path) {
    for group in left(input) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    if dir.exists() {
        super::nla::clear(dir);
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
    fn what_is_not_gone_is_left_and_nonsense_is_nobody() {
        let words: &[u8] = "+20\n+21\n-20\n+1\n+-5\n+0\nx\n\u{e9}\n+30\n".as_bytes();
        assert_eq!(left(words), BTreeSet::from([21, 30]));
    }
}
