//! The demonstration to its end, also when one of its daemons is killed while the job moves.
#![allow(clippy::unwrap_used, missing_docs)]

use ftb_tests::cluster::{binary, outside_cargo};
use std::process::Command;

/// Far more than a run needs; a hang is what this is about.
const DEADLINE_S: u32 = 900;

#[track_caller]
fn ends_with_the_same_bits(arguments: &[&str]) {
    let mut demo = Command::new("timeout");
    demo.args(["--kill-after=10", &DEADLINE_S.to_string(), env!("CARGO_BIN_EXE_ftb-demo")]);
    let done = outside_cargo(&mut demo).args(arguments).output().unwrap();
    let (said, complaints) =
        (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    let code = done.status.code();
    assert_eq!(code, Some(0), "ftb-demo {arguments:?} (124: it hangs)\n{said}\n{complaints}");
    // With a daemon killed the job may have been started again from a set instead of moved.
    assert!(said.contains("\nthe same to the bit\n"), "ftb-demo {arguments:?}\n{said}");
}

#[test]
fn the_result_is_the_same_after_each_kill() {
    // The demonstration takes what lies beside it: that must be of today.
    for (package, name) in [
        ("ftb-agent", "ftb-agent"),
        ("ftb-ipmi", "ftb-ipmi"),
        ("ftb-launcher", "ftb-launch"),
        ("ftb-launcher", "ftb-nla"),
    ] {
        binary(package, name).unwrap();
    }
    for killed in ["agent:node01", "nla:node03", "ipmi:node03"] {
        ends_with_the_same_bits(&["--kill", killed]);
    }
}
