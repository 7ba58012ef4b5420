//! The activity of ranks as counted by the kernel: whether a rank makes progress shows at its next
//! checkpoint.
//!
//! A rank in an endless loop uses its processor, so processor time alone says little. The kernel of
//! a blocked rank may still answer its peers, so packets alone say little. Progress needs both:
//! processor time and output. Written bytes count for each rank, TCP and UDP for the whole pod.

use ftb_launcher_core::message::Activity;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// The activity of these process groups. Processes that the kernel hides count as 0.
pub(super) fn of(groups: &BTreeSet<i32>) -> BTreeMap<i32, Activity> {
    let net = |name: &str| fs::read_to_string(format!("/proc/self/net/{name}")).unwrap_or_default();
    let pod = counter(&net("netstat"), "TcpExt", "TCPOrigDataSent")
        + counter(&net("snmp"), "Udp", "OutDatagrams");
    let none = Activity { cpu_ms: 0, sent: pod };
    let mut all: BTreeMap<i32, Activity> = groups.iter().map(|group| (*group, none)).collect();
    for entry in fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok) {
        let read = |name: &str| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        let Some((group, ticks)) = processor(&read("stat")) else {
            continue;
        };
        if let Some(done) = all.get_mut(&group) {
            done.cpu_ms += ticks.saturating_mul(1000) / ticks_per_second();
            done.sent = done.sent.saturating_add(written(&read("io")));
        }
    }
    all
}

fn ticks_per_second() -> u64 {
    let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
    ticks.and_then(|ticks| u64::try_from(ticks).ok()).filter(|ticks| *ticks > 0).unwrap_or(100)
}

/// The process group, and the ticks of the process and its collected children, in a line of `stat`
/// (proc_pid_stat(5)).
fn processor(stat: &str) -> Option<(i32, u64)> {
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().filter_map(|field| field.parse::<u64>().ok());
    Some((fields.get(2)?.parse().ok()?, ticks.sum()))
}

/// Bytes given to `write` and similar calls, in the text of `io` (proc_pid_io(5)).
fn written(io: &str) -> u64 {
    let line = io.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
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
        assert_eq!(processor(&format!("12 (a) R 3 (b) {rest}")), Some((7, 26)));
        assert_eq!(processor("12 (a) S 1"), None);
        assert_eq!(written("rchar: 1\nwchar: 22\nsyscr: 3\n"), 22);
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
            written(&io)
        };
        let begun = [works, loops].map(bytes);
        let busy = |of: &BTreeMap<i32, Activity>| of.values().all(|done| done.cpu_ms > 50);
        let mut seen = of(&groups);
        while !busy(&seen) {
            std::thread::yield_now();
            seen = of(&groups);
        }
        assert!(bytes(works) > begun[0]);
        assert_eq!(bytes(loops), begun[1]);
    }
}
