//! What `ftbctl` says and how it exits when no agent is needed, or none is there.
#![allow(clippy::unwrap_used, missing_docs)]

use std::process::{Command, Output};

fn ftbctl(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ftbctl"));
    command.args(args).env("FTB_AGENT_SOCKET", "/nonexistent/agent.sock").output().unwrap()
}

fn refused(args: &[&str], code: i32) -> String {
    let output = ftbctl(args);
    let shown = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {shown}");
    assert!(output.stdout.is_empty(), "{args:?} printed something");
    shown
}

#[test]
fn a_wrong_filter_is_rejected_in_one_line_before_anything_is_started() {
    for command in ["subscribe", "tail", "events"] {
        let shown = refused(&[command, "severity>=error, colour=red"], 64);
        assert_eq!(shown.lines().count(), 1, "one line outside a terminal: {shown}");
        assert!(shown.contains("column 18: ") && shown.contains("colour"), "{shown}");
    }
}

#[test]
fn wrong_usage_is_exit_code_64_and_says_what_was_meant() {
    assert!(refused(&["publish", "ftb..x", "X"], 64).contains("column 5"));
    assert!(refused(&["publish", "ftb.x", "X Y"], 64).contains("column 2"));
    assert!(refused(&["publish", "ftb.x", "X", "-s", "loud"], 64).contains("expected info"));
    let shown = refused(&["publish", "ftb.x", "X", "--payload-file", "/dev/zero"], 64);
    assert!(shown.contains("/dev/zero: it has more than the 1048576 bytes"), "{shown}");
    assert!(refused(&["tail", "--timeout", "5"], 64).contains("--timeout"));
    assert!(refused(&["tail", "--since", "someday"], 64).contains("10m"));
    let long = "x".repeat(2000);
    let tag = format!("key={long}");
    let shown = refused(&["publish", "ftb.x", "X", "--tag", &tag], 64);
    assert!(shown.contains("2000 bytes: at most 1024"), "{shown}");
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
        let shown = refused(args, 3);
        assert!(shown.contains("no agent at /nonexistent/agent.sock"), "{shown}");
        assert_eq!(shown.lines().count(), 1, "{shown}");
    }
}

#[test]
fn an_event_is_explained_with_the_rules_of_the_users_own_policies() {
    let folder = tempfile::tempdir().unwrap();
    let explain = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ftbctl"));
        let command = command.arg("explain").args(args).env("FTB_JOBS_DIR", folder.path());
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), output.stderr)
    };
    let (code, text, _) = explain(&["FTB_IPMI_FANFAIL"]);
    assert_eq!(code, Some(0));
    for part in ["A fan is below", "ERROR", "sets        FANFAIL", "migrate  rule \"fan failed\""] {
        assert!(text.contains(part), "no {part:?}: {text}");
    }
    let job = folder.path().join("mine");
    std::fs::create_dir(&job).unwrap();
    let policy = r#"
        hold_down = "60s"
        breaker = { actions = 1, within = "1m" }
        [[rule]]
        name = "ours"
        conditions = ["FANFAIL"]
        settle = "9s"
        action = "drain"
    "#;
    let file = serde_json::json!({ "job": "mine", "policy": policy });
    std::fs::write(job.join("job.json"), file.to_string()).unwrap();
    let (_, text, _) = explain(&["fan"]);
    assert!(text.contains("policy of job mine"), "{text}");
    assert!(text.contains("drain  rule \"ours\"  (after 9s, unless it passes)"), "{text}");
    let (_, lines, _) = explain(&["--json", "FANFAIL"]);
    let entry: serde_json::Value = serde_json::from_str(&lines).unwrap();
    assert_eq!(entry["reactions"][1]["rule"], "ours");
    assert_eq!(explain(&[]).1.lines().count(), explain(&["--json"]).1.lines().count());
    let (code, text, error) = explain(&["FTB_IPMI_FANFIAL"]);
    assert_eq!((code, text.as_str()), (Some(64), ""));
    assert!(String::from_utf8(error).unwrap().contains("did you mean FTB_IPMI_FANFAIL"));
}

#[test]
fn an_event_is_explained_with_what_ftb_act_and_ftb_slurm_do_about_its_condition() {
    let folder = tempfile::tempdir().unwrap();
    let (act, slurm) = (folder.path().join("act.toml"), folder.path().join("slurm.toml"));
    let rules = "[[profile]]\nhosts = \"node[01-08]\"\nmode = \"drain\"\n\
                 [[rule]]\nname = \"dead-node\"\nconditions = [\"NODE_DEAD\"]\nthen = \"drain\"\n\
                 [[rule]]\nname = \"power\"\nconditions = [\"NODE_DEAD\"]\nthen = \"exec\"\n\
                 program = [\"/sbin/off\"]\n";
    std::fs::write(&act, rules).unwrap();
    std::fs::write(&slurm, "observe = true\n").unwrap();
    let explain = |name: &str, args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ftbctl"));
        let command = command.args(["explain", name]).env("FTB_JOBS_DIR", folder.path());
        let output = command.arg("--act").arg(&act).arg("--slurm").arg(&slurm).args(args).output();
        let output = output.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    for name in ["FTB_NODE_DEAD", "NODE_DEAD"] {
        let (code, text, error) = explain(name, &[]);
        assert_eq!(code, Some(0), "{error}");
        for part in [
            "count as lost  rule \"node is dead\"",
            "drain, until the condition clears  rule \"dead-node\"  (severity error or worse; on n",
            "run /sbin/off, only logged  rule \"power\"  (severity error or worse; no host has a p",
            "drain the node (reason ftb:NODE_DEAD) until it clears, only logged  (severity error",
        ] {
            assert!(text.contains(part), "{name}: no {part:?}: {text}");
        }
        let (_, lines, _) = explain(name, &["--json"]);
        let entry: serde_json::Value = serde_json::from_str(&lines).unwrap();
        let by = |at: usize| {
            let of = &entry["reactions"][at];
            (of["program"].as_str().unwrap(), of["rule"].as_str().unwrap(), of["shadow"].as_bool())
        };
        assert_eq!(by(0), ("ftb-launch", "node is dead", Some(false)));
        assert_eq!(by(1), ("ftb-act", "dead-node", Some(false)));
        assert_eq!(by(2), ("ftb-act", "power", Some(true)));
        assert_eq!(by(3), ("ftb-slurm", "", Some(true)));
    }
    // An event without a condition is no matter of theirs.
    let (_, text, _) = explain("FTB_NODE_SUSPECT", &[]);
    assert!(text.contains("act.toml): does nothing") && text.contains("slurm.toml): does nothing"));
    std::fs::write(&act, "[[rule]]\nname = 1\n").unwrap();
    let (code, text, error) = explain("NODE_DEAD", &[]);
    assert_eq!((code, text.as_str()), (Some(64), ""));
    assert!(error.contains("act.toml: line 2, column 8"), "{error}");
}

#[test]
fn help_man_page_and_completion_come_from_one_source() {
    let text = |args: &[&str]| {
        let output = ftbctl(args);
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(text(&["--help"]).contains("Exit codes"));
    let example = "Examples:\n  ftbctl conditions node[001-032]\n";
    assert!(text(&["conditions", "--help"]).contains(example));
    assert!(!text(&["conditions", "-h"]).contains("Examples"));
    assert!(text(&["generate", "man"]).contains(".TH ftbctl"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(&["generate", "completion", shell]).contains("subscribe"));
    }
}

#[test]
fn the_demonstration_that_is_not_installed_says_how_to_get_it() {
    // A second name and not a copy: one that is just being written, while another test starts a
    // program, cannot be started.
    let alone = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let ours = alone.path().join("ftbctl");
    std::fs::hard_link(env!("CARGO_BIN_EXE_ftbctl"), &ours).unwrap();
    let output = Command::new(&ours).arg("demo").env("PATH", alone.path()).output().unwrap();
    let shown = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains("make demo"), "{shown}");
}
