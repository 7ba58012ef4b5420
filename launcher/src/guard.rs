//! The guard of a node: a small process beside the NLA that knows each rank's process group, and
//! which ranks were found hung. When the NLA dies, the kernel kills the ranks, and the guard kills
//! processes that they started. It also removes the job's directory on the node, and the job's own
//! bridge once it has no ports, and ends the conditions of the hung ranks.

use super::backplane;
use super::hang_conditions;
use super::spec::NlaSpec;
use core::fmt::Display;
use core::time::Duration;
use ftb_launcher_core::message::{FromNla, NlaMessage};
use ftb_launcher_core::names::{JobId, NodeName};
use ftb_launcher_core::wire;
use ftb_launcher_pods::pod::net;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

/// Most checks of a bridge before it is left to the agents whose pods use it.
const BRIDGE_LOOKS_MAX: u32 = 20;
/// Interval of the checks; links disappear a moment after their processes.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The first argument of a guard. The node's directory follows, then the bridge, if any, then
/// [`GuardClient`].
const WORD: &str = "guard";

/// Whether a guard on this host watches that bridge: a live job uses it, even without ports.
pub fn watches(bridge: &str) -> bool {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.into_iter().any(|line| is_guard_of(&line, bridge))
}

fn is_guard_of(command_line: &[u8], bridge: &str) -> bool {
    let words: Vec<&[u8]> = command_line.split(|byte| *byte == 0).collect();
    let (guard, bridge) = (WORD.as_bytes(), bridge.as_bytes());
    matches!(words[..], [_, word, _, last, ..] if word == guard && last == bridge)
}

#[derive(Clone, Debug)]
pub struct Guard(Arc<Mutex<ChildStdin>>);

/// For whom and where the guard publishes.
#[derive(Clone, Debug, clap::Args)]
pub struct GuardClient {
    /// The socket of the agent.
    #[arg(long)]
    agent: PathBuf,
    #[arg(long)]
    job: JobId,
    #[arg(long)]
    node: NodeName,
}

impl Guard {
    /// Starts the guard.
    pub fn start(spec: &NlaSpec) -> io::Result<Self> {
        let pod = spec.pod.as_ref().filter(|pod| pod.own && pod.holder.is_none());
        let mut child = Command::new("/proc/self/exe")
            .arg(WORD)
            .arg(&spec.image_dir)
            .args(pod.map(|pod| &pod.bridge))
            .arg("--agent")
            .arg(&spec.agent)
            .args(["--job", spec.job.as_str(), "--node", spec.node.as_str()])
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

    /// A rank was found hung.
    pub fn hung(&self, rank: u32) {
        self.say('!', rank);
    }

    pub fn hung_no_more(&self, rank: u32) {
        self.say('.', rank);
    }

    fn say(&self, word: char, number: impl Display) {
        let mut stdin = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = stdin.write_all(format!("{word}{number}\n").as_bytes()) {
            tracing::warn!(%error, "the guard of the ranks is gone");
        }
    }
}

/// The guard process: waits for the end of its input, kills the remaining groups, and does the rest
/// if the NLA has not done so.
pub fn run(input: impl BufRead, dir: &Path, bridge: Option<&str>, client: &GuardClient) {
    let left = left(input);
    for group in left.groups {
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
            break;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    if !left.hung.is_empty() && hang_conditions::are_stated() {
        client.end_hangs(left.hung);
    }
}

impl GuardClient {
    /// Publishes that these ranks are hung no more. Without an agent the next launch agent of the
    /// node does that.
    fn end_hangs(&self, ranks: BTreeSet<u32>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            let name = format!("guard-{}", self.node);
            let attached = backplane::attach(&name, &self.agent, self.job.as_str()).await;
            let Ok(client) = attached else { return };
            for rank in ranks {
                let message = FromNla::HangLeft { job: self.job.clone(), rank };
                let says = NlaMessage { node: self.node.clone(), message };
                if let Some(event) = wire::to_nla(&says) {
                    backplane::publish(&client, event).await;
                }
            }
            backplane::close(client).await;
        });
    }
}

/// What was added and not removed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Left {
    groups: BTreeSet<i32>,
    hung: BTreeSet<u32>,
}

fn left(input: impl BufRead) -> Left {
    let mut left = Left::default();
    for line in input.lines().map_while(Result::ok) {
        let number = line.get(1..).unwrap_or_default();
        // 0 would be the guard's own group; 1 is the init process.
        let group = number.parse().ok().filter(|group| *group > 1);
        let rank = number.parse().ok();
        match (line.chars().next(), group, rank) {
            (Some('+'), Some(group), _) => left.groups.insert(group),
            (Some('-'), Some(group), _) => left.groups.remove(&group),
            (Some('!'), _, Some(rank)) => left.hung.insert(rank),
            (Some('.'), _, Some(rank)) => left.hung.remove(&rank),
            _ => false,
        };
    }
    left
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
    fn what_is_not_removed_remains_and_bad_lines_are_ignored() {
        let words: &[u8] =
            "+20\n+21\n!0\n!7\n-20\n.7\n+1\n+-5\n+0\nx\n!\n!-1\n\u{e9}\n+30\n".as_bytes();
        let hung = BTreeSet::from([0]);
        assert_eq!(left(words), Left { groups: BTreeSet::from([21, 30]), hung });
    }
}
