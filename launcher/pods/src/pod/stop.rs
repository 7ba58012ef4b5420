//! Stops process groups so that every process really stands still.
//!
//! SIGSTOP alone is not enough. A process in `vfork` ignores every signal but SIGKILL until its
//! child runs its program. If the child is stopped before, the parent can be neither stopped nor
//! saved: CRIU gives up after ten seconds ("Unseizable non-zombie"). Such a child continues until
//! its parent is free, and is stopped again.

use core::time::Duration;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Instant;

/// How long to wait until all stand still. A process that waits for a file server may take longer;
/// then the dump reports it.
const STAND_WAIT: Duration = Duration::from_secs(2);
/// Interval of the looks at `/proc`.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A process in `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessStat {
    parent: i32,
    group: i32,
    stands: bool,
    /// A thread waits uninterruptibly.
    waits: bool,
    /// Size of its address space: a child in `vfork` has that of its parent.
    bytes: u64,
}

/// Stops all processes of these groups; returns when they stand still or after [`STAND_WAIT`].
pub(super) fn stop(groups: &BTreeSet<i32>) {
    for group in groups {
        // Ended processes are collected later.
        let _ = killpg(Pid::from_raw(*group), Signal::SIGSTOP);
    }
    let started = Instant::now();
    // A process with a pending stop starts nothing: the first look sees all of them.
    let mut stopping = Stopping::default();
    let mut seen = look(groups);
    stopping.reported.extend(seen.keys());
    while started.elapsed() < STAND_WAIT {
        for (pid, signal) in stopping.signals(&seen) {
            let _ = kill(Pid::from_raw(pid), signal);
        }
        if stopping.let_go.is_empty() && seen.values().all(|process| process.stands) {
            return;
        }
        std::thread::sleep(LOOK_EVERY);
        seen = look(groups);
    }
    for pid in stopping.let_go {
        let _ = kill(Pid::from_raw(pid), Signal::SIGSTOP);
    }
}

/// The signals sent so far.
#[derive(Default)]
struct Stopping {
    /// Processes that got SIGSTOP, once: a second one would stay pending, and CRIU could not save
    /// the process.
    reported: BTreeSet<i32>,
    /// Children that continue because their parents wait for them.
    let_go: BTreeSet<i32>,
}

impl Stopping {
    /// The signals to send after a look: SIGCONT to stopped children whose parents wait for them,
    /// SIGSTOP to children whose parents are free again, and to new processes.
    fn signals(&mut self, seen: &BTreeMap<i32, ProcessStat>) -> Vec<(i32, Signal)> {
        let holds_up = |child: &ProcessStat| {
            let parent = seen.get(&child.parent);
            parent.is_some_and(|parent| parent.waits && parent.bytes == child.bytes)
        };
        let mut signals = Vec::new();
        for (pid, process) in seen {
            let holds_up = holds_up(process);
            if holds_up && process.stands && self.let_go.insert(*pid) {
                signals.push((*pid, Signal::SIGCONT));
            } else if !holds_up && self.let_go.remove(pid) | self.reported.insert(*pid) {
                signals.push((*pid, Signal::SIGSTOP));
            }
        }
        self.let_go.retain(|pid| seen.contains_key(pid));
        signals
    }
}

/// All live processes of these groups.
fn look(groups: &BTreeSet<i32>) -> BTreeMap<i32, ProcessStat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let read = |pid: i32| {
        let (seen, state) = parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        let own = groups.contains(&seen.group) && !matches!(state, 'Z' | 'X');
        own.then(|| (pid, ProcessStat { waits: waits(pid), ..seen }))
    };
    pids.filter_map(read).collect()
}

/// Whether a thread of a process waits uninterruptibly.
fn waits(pid: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let stat = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("stat")).ok();
    let states = threads.filter_map(|thread| Some(parse(&stat(thread.ok()?)?)?.1));
    states.into_iter().any(|state| state == 'D')
}

/// Parses `stat` (proc_pid_stat(5)). The name may contain anything, so parsing starts after its
/// last bracket.
fn parse(stat: &str) -> Option<(ProcessStat, char)> {
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().collect();
    let state = fields.first()?.chars().next()?;
    let seen = ProcessStat {
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        stands: matches!(state, 'T' | 't'),
        waits: state == 'D',
        bytes: fields.get(20)?.parse().ok()?,
    };
    Some((seen, state))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    fn process(parent: i32, stands: bool, waits: bool, bytes: u64) -> ProcessStat {
        ProcessStat { parent, group: 7, stands, waits, bytes }
    }

    #[test]
    fn a_line_of_stat_is_read_with_any_name() {
        let rest = "T 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 99 4096 12 x";
        let (seen, state) = parse(&format!("12 (a) R 3 (b) {rest}")).unwrap();
        assert_eq!((seen, state), (process(1, true, false, 4096), 'T'));
        assert_eq!(parse("12 (a) T 1"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_child_that_blocks_its_parent_continues_until_the_parent_is_free() {
        let mut stopping = Stopping { reported: BTreeSet::from([10, 11]), ..Stopping::default() };
        let parent = process(1, false, true, 4096);
        let mut seen = BTreeMap::from([(10, parent), (11, process(10, true, false, 4096))]);
        assert_eq!(stopping.signals(&seen), [(11, Signal::SIGCONT)]);
        // The parent has not continued yet.
        assert_eq!(stopping.signals(&seen), Vec::new());
        seen.insert(11, process(10, false, false, 4096));
        assert_eq!(stopping.signals(&seen), Vec::new());
        // The child runs its program and has started another one.
        seen.insert(11, process(10, false, false, 512));
        seen.insert(10, process(1, true, false, 4096));
        seen.insert(12, process(11, false, false, 512));
        assert_eq!(stopping.signals(&seen), [(11, Signal::SIGSTOP), (12, Signal::SIGSTOP)]);
        assert_eq!(stopping.signals(&seen), Vec::new(), "no process gets a signal twice");
        assert_eq!(stopping.let_go, BTreeSet::new());
    }

    #[test]
    fn a_parent_that_waits_for_something_else_frees_no_child() {
        let mut stopping =
            Stopping { reported: BTreeSet::from([10, 11, 12]), ..Stopping::default() };
        let seen = BTreeMap::from([
            (10, process(1, false, true, 4096)),
            (11, process(10, true, false, 512)),
            (12, process(1, true, false, 4096)),
        ]);
        assert_eq!(stopping.signals(&seen), Vec::new());
    }

    /// Shells use `vfork` for each of their commands.
    #[test]
    fn a_shell_that_starts_programs_all_the_time_stands_still() {
        let script = "while :; do /bin/true; done";
        let mut child = Command::new("sh").args(["-c", script]).process_group(0).spawn().unwrap();
        let group = i32::try_from(child.id()).unwrap();
        let groups = BTreeSet::from([group]);
        for _ in 0..100 {
            stop(&groups);
            let seen = look(&groups);
            assert!(seen.contains_key(&group), "{seen:?}");
            assert!(seen.values().all(|process| process.stands && !process.waits), "{seen:?}");
            for pid in seen.keys() {
                let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
                let pending = status.lines().filter(|line| line.contains("Pnd:"));
                let pending = pending.map(|line| {
                    let mask = line.split_ascii_whitespace().nth(1).unwrap();
                    u64::from_str_radix(mask, 16).unwrap()
                });
                let stop = 1 << (Signal::SIGSTOP as i32 - 1);
                assert!(pending.into_iter().all(|mask| mask & stop == 0), "{status}");
            }
            killpg(Pid::from_raw(group), Signal::SIGCONT).unwrap();
        }
        killpg(Pid::from_raw(group), Signal::SIGKILL).unwrap();
        child.wait().unwrap();
    }
}
