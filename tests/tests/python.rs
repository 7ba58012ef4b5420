//! The Python module as an operator gets it: a wheel, installed, against a real agent.
#![allow(clippy::unwrap_used)]

use ftb_tests::cluster::{binary, outside_cargo};
use ftb_tests::skip::skip;
use std::path::Path;
use std::process::Command;

/// Exit status of the script where there can be no such test; its line says why.
const SKIPPED: i32 = 77;

#[test]
fn the_wheel_installs_and_its_tests_pass() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ftb-client/python/test.sh");
    let agent = binary("ftb-agent", "ftb-agent").unwrap();
    let mut command = Command::new(script);
    let output = outside_cargo(&mut command).env("FTB_AGENT_BIN", agent).output().unwrap();
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text);
    if output.status.code() == Some(SKIPPED) {
        return skip(text.trim());
    }
    assert!(output.status.success(), "{text}");
    assert!(text.contains("\nOK"), "no test ran: {text}");
}
