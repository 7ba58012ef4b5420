//! `ftbctl hosts` says the same as ClusterShell's `nodeset` and Slurm's `scontrol show hostnames`.
#![allow(clippy::unwrap_used)]

use ftb_fuzz::random::SplitMix;
use ftb_tests::cluster::binary;
use ftb_tests::skip::skip;
use std::collections::BTreeSet;
use std::process::Command;

/// Random lists that are compared.
const CASES: u64 = 12;

fn output(program: &mut Command) -> String {
    let output = program.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn ftbctl(words: &[&str]) -> String {
    let mut command = Command::new(binary("ftbctl", "ftbctl").unwrap());
    output(command.arg("hosts").args(words))
}

fn nodeset(words: &[&str]) -> String {
    output(Command::new("nodeset").args(words))
}

fn set(lines: &str) -> BTreeSet<&str> {
    lines.split_whitespace().collect()
}

/// A list of hosts of all shapes: plain, padded, with two dimensions, overlapping.
fn list(numbers: &mut SplitMix) -> String {
    let part = |numbers: &mut SplitMix| {
        let (from, more) = (numbers.below(30), numbers.below(40));
        let rack = 1 + numbers.below(3);
        match numbers.below(5) {
            0 => format!("node[{from}-{}]", from + more),
            1 => format!("node[{from:03}-{:03}]", from + more),
            2 => format!("r{rack}n[{from}-{},{}]", from + more, from + more + 7),
            3 => format!("rack[1-{rack}]-gpu[{from:02}-{:02}]", from + more),
            _ => format!("login{from}"),
        }
    };
    let count = 1 + numbers.below(5);
    (0..count).map(|_| part(numbers)).collect::<Vec<String>>().join(",")
}

#[test]
fn sets_of_hosts_are_those_of_nodeset() {
    if !Command::new("nodeset").arg("--version").output().is_ok_and(|o| o.status.success()) {
        return skip("no nodeset (Debian: clustershell)");
    }
    for seed in 0..CASES {
        let mut numbers = SplitMix(seed);
        let (one, two) = (list(&mut numbers), list(&mut numbers));
        let expected = nodeset(&["-e", &one]);
        assert_eq!(set(&ftbctl(&["expand", &one])), set(&expected), "{one}");
        assert_eq!(ftbctl(&["count", &one]).trim(), nodeset(&["-c", &one]).trim(), "{one}");
        let folded = ftbctl(&["fold", &one]);
        assert_eq!(set(&nodeset(&["-e", folded.trim()])), set(&expected), "{one}: {folded}");
        for (ours, theirs) in [("diff", "-x"), ("intersect", "-i")] {
            let found = ftbctl(&[ours, &one, &two]);
            let expected = nodeset(&["-e", &one, theirs, &two]);
            let found = if found.trim().is_empty() { found } else { ftbctl(&["expand", &found]) };
            assert_eq!(set(&found), set(&expected), "{ours} {one} {two}");
        }
    }
}

/// Slurm reads what `ftbctl` folds, and the other way round. Slurm does not merge lists: its
/// answers are compared as sets.
#[test]
fn sets_of_hosts_are_those_of_scontrol() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("slurm.conf");
    let text = "ClusterName=test\nSlurmctldHost=localhost\nNodeName=localhost\n\
                PartitionName=all Nodes=ALL\n";
    std::fs::write(&config, text).unwrap();
    let scontrol = |words: &[&str]| {
        let mut command = Command::new("scontrol");
        command.arg("show").args(words).env("SLURM_CONF", &config);
        command
    };
    if !scontrol(&["hostnames", "n1"]).output().is_ok_and(|o| o.status.success()) {
        return skip("no scontrol (Debian: slurm-client)");
    }
    for seed in 0..CASES {
        let one = list(&mut SplitMix(seed));
        let expected = output(&mut scontrol(&["hostnames", &one]));
        assert_eq!(set(&ftbctl(&["expand", &one])), set(&expected), "{one}");
        let folded = ftbctl(&["fold", &one]);
        let read = output(&mut scontrol(&["hostnames", folded.trim()]));
        assert_eq!(set(&read), set(&expected), "{one}: {folded}");
        let joined = set(&expected).into_iter().collect::<Vec<_>>().join(",");
        let theirs = output(&mut scontrol(&["hostlistsorted", &joined]));
        assert_eq!(set(&ftbctl(&["expand", theirs.trim()])), set(&expected), "{theirs}");
    }
}
