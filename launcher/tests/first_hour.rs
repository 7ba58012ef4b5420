//! A first job on a host without an agent.
#![allow(clippy::unwrap_used, missing_docs)]

use ftb_tests::cluster::binary;
use ftb_tests::skip::skip;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};

/// What a user does first, with folders of the test.
fn launch(folder: &Path, words: &[&str]) -> Output {
    launch_with(&binary("ftb-launcher", "ftb-launch").unwrap(), folder, words)
}

fn launch_with(program: &Path, folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(words).env("FTB_JOBS_DIR", folder.join("jobs"));
    for name in ["FTB_AGENT_SOCKET", "FTB_LAUNCH_AGENT_SOCKET", "SLURM_JOB_ID"] {
        command.env_remove(name);
    }
    command.env("XDG_RUNTIME_DIR", folder).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_job_on_a_host_without_an_agent_gets_one_that_ends_with_it() {
    if UnixStream::connect(ftb_client::default_socket()).is_ok() {
        return skip("an agent runs on this host");
    }
    for program in ["ftb-agent", "ftb-nla"] {
        binary(if program == "ftb-nla" { "ftb-launcher" } else { program }, program).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let ran = launch(folder.path(), &["run", "-n", "2", "--", "hostname"]);
    let errors = text(&ran.stderr);
    assert!(ran.status.success(), "{:?}: {errors}", ran.status);
    let host = nix::unistd::gethostname().unwrap().to_string_lossy().into_owned();
    assert_eq!(text(&ran.stdout).lines().collect::<Vec<_>>(), [&host[..], &host[..]]);
    let is_quiet = !errors.contains("ERROR") && !errors.contains("WARN");
    assert!(is_quiet, "nothing went wrong: {errors}");
    let failed = launch(folder.path(), &["run", "-n", "1", "--", "sh", "-c", "exit 7"]);
    assert_eq!(failed.status.code(), Some(7), "{}", text(&failed.stderr));
    assert_eq!(text(&launch(folder.path(), &["ps"]).stdout), "no jobs\n");

    let left: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name != "jobs")
        .collect();
    assert!(left.is_empty(), "the folder of the agent is left: {left:?}");
    let own = format!("{}/ftb-launch-", folder.path().display());
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        assert!(!text(&line).contains(&own), "an agent is left: {:?}", text(&line));
    }
}

#[test]
fn a_job_for_which_no_agent_can_be_started_ends_with_the_code_for_no_answer() {
    if UnixStream::connect(ftb_client::default_socket()).is_ok() {
        return skip("an agent runs on this host");
    }
    let folder = tempfile::tempdir().unwrap();
    // What stands beside the launcher is no agent.
    let launcher = folder.path().join("ftb-launch");
    std::fs::copy(binary("ftb-launcher", "ftb-launch").unwrap(), &launcher).unwrap();
    let agent = folder.path().join("ftb-agent");
    let job = ["run", "-n", "1", "--", "true"];
    for content in ["#!/bin/sh\nexit 1\n", "no program"] {
        std::fs::write(&agent, content).unwrap();
        std::fs::set_permissions(&agent, Permissions::from_mode(0o755)).unwrap();
        let failed = launch_with(&launcher, folder.path(), &job);
        let errors = text(&failed.stderr);
        assert_eq!(failed.status.code(), Some(3), "{errors}");
        assert!(errors.contains("no agent runs on this host"), "{errors}");
    }
}
