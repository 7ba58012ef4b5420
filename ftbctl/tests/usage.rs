//! What `ftbctl` says and how it exits when no agent is needed, or none is there.
#![allow(clippy::unwrap_used, missing_docs)]

use std::process::{Command, Output};

fn ftbctl(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ftbctl"));
    command.args(args).env("FTB_AGENT_SOCKET", "/nonexistent/agent.sock").output().unwrap()
}

fn refused(args: &[&str], code: i32) -> String {
    let output = ftbctl(args);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {told}");
    assert!(output.stdout.is_empty(), "{args:?} printed something");
    told
}

#[test]
fn a_wrong_filter_is_told_in_one_line_before_anything_is_asked() {
    for command in ["subscribe", "tail", "events"] {
        let told = refused(&[command, "severity>=error, colour=red"], 2);
        assert_eq!(told.lines().count(), 1, "one line where nobody looks: {told}");
        assert!(told.contains("column 18: ") && told.contains("colour"), "{told}");
    }
}

#[test]
fn wrong_usage_is_exit_code_2_and_says_what_was_meant() {
    assert!(refused(&["publish", "ftb..x", "X"], 2).contains("column 5"));
    assert!(refused(&["publish", "ftb.x", "X Y"], 2).contains("column 2"));
    assert!(refused(&["publish", "ftb.x", "X", "-s", "loud"], 2).contains("expected info"));
    let told = refused(&["publish", "ftb.x", "X", "--payload-file", "/dev/zero"], 2);
    assert!(told.contains("/dev/zero: it has more than the 1048576 bytes"), "{told}");
    assert!(refused(&["tail", "--timeout", "5"], 2).contains("--timeout"));
    assert!(refused(&["tail", "--since", "someday"], 2).contains("10m"));
    let long = "x".repeat(2000);
    let tag = format!("key={long}");
    let told = refused(&["publish", "ftb.x", "X", "--tag", &tag], 2);
    assert!(told.contains("2000 bytes: at most 1024"), "{told}");
}

#[test]
fn without_an_agent_it_is_exit_code_3_and_says_where() {
    for args in [
        ["status", "--timeout", "100ms"].as_slice(),
        &["tree", "--timeout", "100ms"],
        &["tail", "--timeout", "100ms"],
        &["events", "--timeout", "100ms"],
        &["publish", "ftb.x", "X", "--timeout", "100ms"],
    ] {
        let told = refused(args, 3);
        assert!(told.contains("no agent at /nonexistent/agent.sock"), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
}

#[test]
fn help_man_page_and_completion_come_from_one_source() {
    let text = |args: &[&str]| {
        let output = ftbctl(args);
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(text(&["--help"]).contains("Exit codes"));
    assert!(text(&["generate", "man"]).contains(".TH ftbctl"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(&["generate", "completion", shell]).contains("subscribe"));
    }
}

#[test]
fn the_demonstration_that_is_not_installed_says_how_to_get_it() {
    // A second name and not a copy: one that is just being written, while another test starts a program, cannot be started.
    let alone = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let ours = alone.path().join("ftbctl");
    std::fs::hard_link(env!("CARGO_BIN_EXE_ftbctl"), &ours).unwrap();
    let output = Command::new(&ours).arg("demo").env("PATH", alone.path()).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("make demo"), "{told}");
}
