//! `ftbctl init` and `ftbctl doctor` with real agents.
#![allow(clippy::unwrap_used)]

use ftb_tests::cluster::{Cluster, Plan, binary, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn ftbctl(words: &[&str]) -> Output {
    Command::new(binary("ftbctl", "ftbctl").unwrap()).args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Exit code, findings, and the last line.
fn doctor(cluster: &Cluster, rank: usize) -> (Option<i32>, Vec<Value>, Value) {
    let (socket, config) = (cluster.socket(rank), cluster.config(rank));
    let (socket, config) = (socket.to_str().unwrap(), config.to_str().unwrap());
    let output = ftbctl(&["doctor", "--json", "--agent", socket, "--config", config]);
    let lines = text(&output.stdout);
    let mut all: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = all.pop().unwrap_or_else(|| panic!("{output:?}"));
    (output.status.code(), all, last)
}

fn about<'a>(findings: &'a [Value], area: &str, hosts: &str) -> Option<&'a Value> {
    findings.iter().find(|finding| finding["area"] == area && finding["hosts"] == hosts)
}

#[tokio::test]
async fn a_healthy_tree_has_no_finding_and_each_lost_agent_is_one_with_a_fix() {
    let mut cluster = Plan::new(4, 2).certified().start().await.unwrap();
    let healthy = wait_for("all agents to report", async || {
        let (code, findings, last) = doctor(&cluster, 3);
        Ok((code == Some(0) && findings.is_empty() && last["agents"] == 4).then_some(()))
    });
    cluster.must(healthy.await).await;

    cluster.wait_wanted().await.unwrap();
    // One node, from another one: its place, its release, its health.
    let socket = cluster.socket(3).to_str().unwrap();
    let shown = ftbctl(&["node", "NODE02", "--json", "--agent-socket", socket]);
    let node: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let place = ["host", "state", "parent", "children"].map(|key| node[key].clone());
    assert_eq!(place, ["node02", "up", "node01", "node04"].map(Value::from));
    assert_eq!(node["version"], env!("CARGO_PKG_VERSION"));
    let shown = text(&ftbctl(&["node", "node02", "--agent-socket", socket]).stdout);
    assert!(shown.starts_with("node02  up for ") && shown.contains("health"), "{shown}");
    assert_eq!(ftbctl(&["node", "nowhere", "--agent-socket", socket]).status.code(), Some(1));

    // A stopped agent is in the tree until its silence is noticed, and never reports.
    cluster.signal(3, Signal::SIGSTOP).unwrap();
    let silent = wait_for("the stopped agent to be found", async || {
        let (code, findings, _) = doctor(&cluster, 0);
        let found = about(&findings, "tree", "node04");
        Ok((code == Some(1)).then_some(()).and(found.map(|found| found["fix"].clone())))
    });
    assert!(!cluster.must(silent.await).await.as_str().unwrap().is_empty());
    cluster.signal(3, Signal::SIGCONT).unwrap();

    cluster.crash(2).unwrap();
    let lost = wait_for("the crashed agent to be found", async || {
        let (_, findings, _) = doctor(&cluster, 0);
        let found = about(&findings, "tree", "node03").filter(|found| found["severity"] == "error");
        Ok(found.map(|_| ()))
    });
    cluster.must(lost.await).await;
    // Where no agent answers, the socket is the finding, and what to start.
    let (code, findings, last) = doctor(&cluster, 2);
    let socket = about(&findings, "socket", "").unwrap_or_else(|| panic!("{findings:?}"));
    assert_eq!((code, &last["agents"]), (Some(1), &0.into()));
    assert!(socket["fix"].as_str().unwrap().contains("start ftb-agent"), "{socket}");
}

/// An agent that ends with the test.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(config: &Path) -> Agent {
    let mut command = Command::new(binary("ftb-agent", "ftb-agent").unwrap());
    command.arg("--config").arg(config).stdin(Stdio::null()).stderr(Stdio::null());
    Agent(command.spawn().unwrap())
}

#[tokio::test]
async fn init_writes_a_configuration_with_which_the_agent_works_and_replaces_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (dir, ca, socket) = (path("etc"), path("ca"), path("agent.sock"));
    let here = nix::unistd::gethostname().unwrap().to_string_lossy().into_owned();
    let here = here.split('.').next().unwrap();
    let list = format!("{here},other[1-2]");
    let words = ["init", "trial", &list, "--dir", &dir, "--ca-dir", &ca, "--agent-socket", &socket];
    let written = ftbctl(&words);
    let said = text(&written.stdout);
    assert!(written.status.success(), "{}", text(&written.stderr));
    for step in ["systemctl enable --now ftb-agent", "hosts expand", "ftbctl doctor", "other1"] {
        let others = path("ca/hosts/other1/agent.key");
        assert!(said.contains(step) || Path::new(&others).exists(), "{step}: {said}");
    }
    let config = folder.path().join("etc/agent.toml");
    let before = std::fs::read_to_string(&config).unwrap();
    let again = ftbctl(&words);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("exists"), "{}", text(&again.stderr));
    assert_eq!(std::fs::read_to_string(&config).unwrap(), before);

    // The port of the default may be in use on this machine.
    std::fs::write(&config, before.replacen('\n', "\nlisten = \"127.0.0.1:0\"\n", 1)).unwrap();
    let _agent = start(&config);
    let up = wait_for("the agent to answer", async || {
        let status = ftbctl(&["status", "--json", "--agent", &socket]);
        let status: Option<Value> = serde_json::from_slice(&status.stdout).ok();
        Ok(status.filter(|status| status["rank"] == 0 && status["cluster"] == "trial").map(|_| ()))
    });
    up.await.unwrap();
    let wrong = ftbctl(&["init", "other", "--dir", &path("more"), "--ca-dir", &ca]);
    assert!(text(&wrong.stderr).contains("of cluster trial"), "{}", text(&wrong.stderr));
}
