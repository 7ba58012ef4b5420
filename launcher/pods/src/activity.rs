//! What the kernel shows of ranks: processor time, context switches, written bytes, bytes of their
//! TCP sockets, states of their processes, and data that they have not read. Whether a rank makes
//! progress follows from it ([`ftb_launcher_core::progress`]), and at a checkpoint whether the last
//! good set must stay.
//!
//! One look reads the head of each process on the host (about 10 µs), more of those of ranks, and
//! the sockets only of ranks that have stood still since the look before, and of all ranks every
//! `EXCHANGE_EVERY`.

use crate::sockets;
use core::time::Duration;
use ftb_launcher_core::progress::{Activity, RunState, Sample};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The state of a listening socket in `/proc/net/tcp`: its queue holds connections, not data.
const LISTENS: &str = "0A";

/// How often the bytes of all sockets are read.
const EXCHANGE_EVERY: Duration = Duration::from_secs(10);

/// Looks at process groups; it remembers the look before.
#[derive(Clone, Debug, Default)]
pub struct Sampler(Arc<Mutex<LastLook>>);

#[derive(Debug, Default)]
struct LastLook {
    samples: BTreeMap<i32, Sample>,
    /// When the bytes of sockets were read.
    exchange: Option<Instant>,
}

impl Sampler {
    /// Samples of these process groups, without their steps. Processes that the kernel hides count
    /// as idle.
    pub fn look(&self, groups: &BTreeSet<i32>) -> BTreeMap<i32, Sample> {
        let mut seen = look(groups);
        let mut before = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = before.exchange.is_none_or(|at| at.elapsed() >= EXCHANGE_EVERY);
        let carried = if is_due { sockets::carried() } else { BTreeMap::new() };
        let of_inode = |inode: &String| carried.get(&inode.parse().ok()?).copied();
        for (group, (sample, processes)) in &mut seen {
            let known = before.samples.get(group);
            if known.is_some_and(|known| known.switches == sample.switches) {
                sample.unread = processes.iter().map(|pid| unread(*pid)).sum();
            }
            sample.exchanged = known.map_or(0, |known| known.exchanged);
            if is_due {
                let own: BTreeSet<String> = processes.iter().flat_map(|pid| inodes(*pid)).collect();
                sample.exchanged = own.iter().filter_map(of_inode).sum();
            }
        }
        if is_due {
            before.exchange = Some(Instant::now());
        }
        before.samples = seen.into_iter().map(|(group, (sample, _))| (group, sample)).collect();
        before.samples.clone()
    }
}

/// What these process groups have done, with the packets of the whole pod.
pub(crate) fn done_in_pod(groups: &BTreeSet<i32>) -> BTreeMap<i32, Activity> {
    let net = |name: &str| fs::read_to_string(format!("/proc/self/net/{name}")).unwrap_or_default();
    let pod = counter(&net("netstat"), "TcpExt", "TCPOrigDataSent")
        + counter(&net("snmp"), "Udp", "OutDatagrams");
    let add = |(group, (sample, _)): (i32, (Sample, _))| {
        let done = Activity { sent: sample.done.sent.saturating_add(pod), ..sample.done };
        (group, done)
    };
    look(groups).into_iter().map(add).collect()
}

/// Each group with its processes.
fn look(groups: &BTreeSet<i32>) -> BTreeMap<i32, (Sample, Vec<i32>)> {
    let none = |group: &i32| (*group, (sample_of(*group), Vec::new()));
    let mut all: BTreeMap<i32, (Sample, Vec<i32>)> = groups.iter().map(none).collect();
    for entry in fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok) {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        let read = |name: &str| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        let Some((pid, stat)) = pid.and_then(|pid| Some((pid, process_stat(&read("stat"))?)))
        else {
            continue;
        };
        if let Some((sample, processes)) = all.get_mut(&stat.group) {
            let status = read("status");
            let field = |name: &str| number_after(&status, name);
            sample.done.cpu_ms += stat.ticks.saturating_mul(1000) / ticks_per_second();
            sample.done.sent = sample.done.sent.saturating_add(number_after(&read("io"), "wchar:"));
            sample.switches +=
                field("voluntary_ctxt_switches:") + field("nonvoluntary_ctxt_switches:");
            sample.state = worst(sample.state, stat.state, field("TracerPid:") != 0);
            processes.push(pid);
        }
    }
    all
}

fn sample_of(group: i32) -> Sample {
    Sample { pid: group.unsigned_abs(), ..Sample::default() }
}

/// The state of a group with another process: a debugger counts before a stop, a stop before I/O.
fn worst(of_group: RunState, letter: char, is_traced: bool) -> RunState {
    match (of_group, letter) {
        _ if is_traced => RunState::Traced,
        (RunState::Traced, _) => RunState::Traced,
        (_, 'T') | (RunState::Stopped, _) => RunState::Stopped,
        (_, 'D') | (RunState::WaitsForIo, _) => RunState::WaitsForIo,
        (RunState::Runs, _) => RunState::Runs,
    }
}

/// The inodes of a process' sockets.
fn inodes(pid: i32) -> BTreeSet<String> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
    let inode = |path: std::path::PathBuf| {
        path.to_str()?.strip_prefix("socket:[")?.strip_suffix(']').map(str::to_owned)
    };
    let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    links.filter_map(inode).collect()
}

/// Bytes in the receive queues of a process' TCP sockets.
fn unread(pid: i32) -> u64 {
    let of = Path::new("/proc").join(pid.to_string());
    let sockets = inodes(pid);
    if sockets.is_empty() {
        return 0;
    }
    let tables = ["net/tcp", "net/tcp6"].map(|name| fs::read_to_string(of.join(name)));
    tables.iter().flatten().map(|table| unread_in(table, &sockets)).sum()
}

/// Bytes that these sockets have received and not given to their program, in a text of
/// `/proc/net/tcp`.
fn unread_in(table: &str, sockets: &BTreeSet<String>) -> u64 {
    let bytes = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_one = fields.get(9).is_some_and(|inode| sockets.contains(*inode));
        let queue = fields.get(4).filter(|_| is_one && fields[3] != LISTENS)?;
        u64::from_str_radix(queue.split_once(':')?.1, 16).ok()
    };
    table.lines().filter_map(bytes).sum()
}

fn ticks_per_second() -> u64 {
    let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
    ticks.and_then(|ticks| u64::try_from(ticks).ok()).filter(|ticks| *ticks > 0).unwrap_or(100)
}

/// From a line of `stat` (proc_pid_stat(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StatLine {
    state: char,
    group: i32,
    /// Of the process and its collected children.
    ticks: u64,
}

fn process_stat(stat: &str) -> Option<StatLine> {
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum();
    let state = fields.first()?.chars().next()?;
    Some(StatLine { state, group: fields.get(2)?.parse().ok()?, ticks })
}

/// The number behind a name at the begin of a line; 0 without it.
fn number_after(text: &str, name: &str) -> u64 {
    let rest = text.lines().find_map(|line| line.strip_prefix(name));
    rest.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

/// A network counter, in a text of paired lines: names, then numbers.
fn counter(text: &str, table: &str, name: &str) -> u64 {
    let mut rows = text.lines().filter_map(|line| line.strip_prefix(table)?.strip_prefix(':'));
    let (Some(names), Some(numbers)) = (rows.next(), rows.next()) else {
        return 0;
    };
    let mut pairs = names.split_ascii_whitespace().zip(numbers.split_ascii_whitespace());
    let found = pairs.find(|(of, _)| *of == name);
    found.and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command};

    #[test]
    fn the_texts_of_the_kernel_are_read() {
        let rest = "S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 99 4096 12 x";
        let line = StatLine { state: 'S', group: 7, ticks: 26 };
        assert_eq!(process_stat(&format!("12 (a) R 3 (b) {rest}")), Some(line));
        assert_eq!(process_stat("12 (a) S 1"), None);
        assert_eq!(number_after("rchar: 1\nwchar: 22\nsyscr: 3\n", "wchar:"), 22);
        let tcp = "sl local rem st tx:rx tr:when retr uid timeout inode\n\
                   0: 0100:1 0200:2 01 00000000:0000001F 00:0 0 0 0 77 1\n\
                   1: 0100:1 0200:2 0A 00000000:00000003 00:0 0 0 0 78 1\n\
                   2: 0100:1 0200:2 01 00000000:00000005 00:0 0 0 0 79 1\n";
        let sockets = ["77", "78"].map(str::to_owned).into();
        assert_eq!(unread_in(tcp, &sockets), 31);
        let text = "TcpExt: A B\nTcpExt: 1 2\nIpExt: B\nIpExt: 3\n";
        assert_eq!((counter(text, "TcpExt", "B"), counter(text, "IpExt", "B")), (2, 3));
        assert_eq!((counter(text, "TcpExt", "C"), counter("", "TcpExt", "B")), (0, 0));
    }

    struct Rank(Child);

    impl Drop for Rank {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn rank(script: &str) -> (Rank, i32) {
        let child = Command::new("sh").args(["-c", script]).process_group(0).spawn().unwrap();
        let group = i32::try_from(child.id()).unwrap();
        (Rank(child), group)
    }

    #[test]
    fn a_rank_that_works_shows_both_and_one_that_loops_does_not() {
        let (_works, works) = rank("while :; do echo x; done >/dev/null");
        let (_loops, loops) = rank("while :; do :; done");
        let groups = BTreeSet::from([works, loops]);
        let bytes = |of: i32| {
            let io = fs::read_to_string(format!("/proc/{of}/io")).unwrap_or_default();
            number_after(&io, "wchar:")
        };
        let started = [works, loops].map(bytes);
        let busy = |of: &BTreeMap<i32, Activity>| of.values().all(|done| done.cpu_ms > 50);
        let mut seen = done_in_pod(&groups);
        while !busy(&seen) {
            std::thread::yield_now();
            seen = done_in_pod(&groups);
        }
        assert!(bytes(works) > started[0]);
        assert_eq!(bytes(loops), started[1]);
    }

    #[test]
    fn stopped_and_traced_ranks_differ() {
        assert_eq!(worst(RunState::Runs, 'T', false), RunState::Stopped);
        assert_eq!(worst(RunState::Stopped, 't', true), RunState::Traced);
        assert_eq!(worst(RunState::Traced, 'T', false), RunState::Traced);
        assert_eq!(worst(RunState::Stopped, 'D', false), RunState::Stopped);
        assert_eq!(worst(RunState::Runs, 'S', false), RunState::Runs);
    }

    /// A rank that reads nothing, and one that waits for a message.
    #[test]
    fn data_that_a_still_rank_does_not_read_is_seen() {
        use std::io::Write as _;
        use std::net::{TcpListener, TcpStream};
        use std::os::fd::OwnedFd;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        let mut command = Command::new("sleep");
        command
            .arg("1000")
            .process_group(0)
            .stdin(std::process::Stdio::from(OwnedFd::from(receiver)));
        let sleeps = Rank(command.spawn().unwrap());
        let group = i32::try_from(sleeps.0.id()).unwrap();
        sender.write_all(b"hello").unwrap();
        let sampler = Sampler::default();
        let mut looks = (0..1000).map(|_| {
            std::thread::sleep(core::time::Duration::from_millis(5));
            sampler.look(&BTreeSet::from([group]))[&group]
        });
        let seen = looks.find(|sample| sample.unread > 0).unwrap();
        assert_eq!(seen.exchanged, 5);
        assert_eq!((seen.unread, seen.state, seen.pid), (5, RunState::Runs, sleeps.0.id()));
        let pid = nix::unistd::Pid::from_raw(group);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
        assert!(looks.any(|sample| sample.state == RunState::Stopped));
    }
}
