//! `ftbctl init` and `ftbctl doctor` with real agents.
#![allow(clippy::unwrap_used)]

use ftb_tests::cluster::{Cluster, Plan, binary, wait_for};
use ftb_tests::http;
use ftb_tests::skip::skip;
use ftb_tests::user::{ORDINARY, impossible};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

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
    let plan = Plan::new(4, 2).certified().without_monitors();
    let mut cluster = plan.start().await.unwrap();
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

/// An upgrade that holds services back: the new release rejects their files.
#[tokio::test]
async fn a_service_that_runs_an_older_program_than_the_installed_one_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let install = |package: &str, name: &str| {
        // Beside, then in its place: as a package manager does it.
        std::fs::copy(binary(package, name).unwrap(), at("new")).unwrap();
        std::fs::rename(at("new"), at(name)).unwrap();
    };
    install("ftb-agent", "ftb-agent");
    install("ftb-act", "ftb-act");
    let (socket, state) = (at("agent.sock"), at("state"));
    let text_of = |more: &str| format!("agent_socket = {socket:?}\n{more}");
    let members = "cluster = \"test\"\nmembers = \"n1\"\nhost = \"n1\"\n";
    let agent = text_of(&format!("{members}listen = \"127.0.0.1:0\"\ninsecure = true\n"));
    std::fs::write(at("agent.toml"), agent).unwrap();
    std::fs::write(at("act.toml"), text_of(&format!("state = {state:?}\n"))).unwrap();
    let run = |name: &str, words: &[&str], file: &str| {
        let mut command = Command::new(at(name));
        command.args(words).arg("--config").arg(at(file));
        Agent(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    };
    let old = |wanted: &[&str]| {
        let words = ["doctor", "--json", "--agent", socket.to_str().unwrap()];
        let lines = text(&ftbctl(&words).stdout);
        let all = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let old = all.filter(|line| line["area"] == "versions");
        let mut fixes: Vec<String> =
            old.map(|line| line["fix"].as_str().unwrap().to_owned()).collect();
        fixes.sort();
        let name = |fix: &String| fix.rsplit(' ').next().unwrap().to_owned();
        assert_eq!(fixes.iter().map(name).collect::<Vec<_>>(), wanted, "{lines}");
    };
    let attached = async || {
        let status = ftbctl(&["status", "--agent", socket.to_str().unwrap()]);
        Ok(text(&status.stdout).contains("ftb-act").then_some(()))
    };
    let agent = run("ftb-agent", &[], "agent.toml");
    let _act = run("ftb-act", &["run"], "act.toml");
    wait_for("ftb-act", attached).await.unwrap();
    old(&[]);
    install("ftb-agent", "ftb-agent");
    old(&["ftb-agent"]);
    install("ftb-act", "ftb-act");
    old(&["ftb-act", "ftb-agent"]);
    drop(agent);
    let _agent = run("ftb-agent", &[], "agent.toml");
    wait_for("ftb-act", attached).await.unwrap();
    old(&["ftb-act"]);
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

/// Programs that stand for those of a cluster. Each host has a folder for what is copied to it;
/// what is run there is logged.
const STANDS_FOR: [(&str, &str); 4] = [
    (
        "ssh",
        "host=$1; shift\necho \"$host: $*\" >>\"$HOSTS/log\"\n\
         sh -c \"$(printf '%s' \"$*\" | sed \"s|$ETC|$HOSTS/$host$ETC|g\")\"\n",
    ),
    (
        "scp",
        "for last in \"$@\"; do :; done\nwhile [ $# -gt 1 ]; do\n\
         cp \"$1\" \"$HOSTS/${last%%:*}${last#*:}\" || exit 1\nshift; done\n",
    ),
    ("systemctl", "exit 0\n"),
    ("chown", "exit 0\n"),
];

/// Runs the loop over the other hosts that `ftbctl init` has printed.
fn run_loop(said: &str, folder: &Path) -> String {
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    let begin = lines.iter().position(|line| line.starts_with("for h in")).unwrap();
    let end = lines.iter().position(|line| *line == "done").unwrap();
    let programs = folder.join("programs");
    std::fs::create_dir_all(&programs).unwrap();
    for (name, text) in STANDS_FOR {
        std::fs::write(programs.join(name), format!("#!/bin/sh\n{text}")).unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(programs.join(name), mode).unwrap();
    }
    let ftbctl = binary("ftbctl", "ftbctl").unwrap();
    let mut path = programs.into_os_string();
    path.push(format!(":{}:/usr/bin:/bin", ftbctl.parent().unwrap().display()));
    let mut shell = Command::new("sh");
    shell.args(["-ec", &lines[begin..=end].join("\n")]).env("PATH", path);
    let output =
        shell.env("HOSTS", folder.join("hosts")).env("ETC", folder.join("etc")).output().unwrap();
    assert!(output.status.success(), "{}{said}", text(&output.stderr));
    std::fs::read_to_string(folder.join("hosts/log")).unwrap()
}

#[test]
fn the_lines_that_init_prints_give_the_other_hosts_their_own_files() {
    for words in [&["--host", "login1"][..], &["--host", "login1", "--insecure"]] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let path = |name: &str| root.join(name).display().to_string();
        std::fs::create_dir(root.join("hosts")).unwrap();
        // Each is one word of the shell here, and of that on the other host.
        let (dir, ca) = (path("etc of ftb"), path("ca of ftb"));
        let init = ["init", "trial", "login1,node[1-2]", "--dir", &dir, "--ca-dir", &ca];
        let output = ftbctl(&[&init[..], words].concat());
        let said = text(&output.stdout);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let read = |name: &str| std::fs::read_to_string(name).unwrap();
        let own = read(&format!("{dir}/agent.toml"));
        assert!(own.contains("host = \"login1\"\n"), "{own}");
        assert!(own.contains("[metrics]\nlisten = \"127.0.0.1:9464\"\n"), "{own}");

        let log = run_loop(&said, &root);
        assert!(!log.contains("login1") && !Path::new(&path("hosts/login1")).exists(), "{log}");
        for host in ["node1", "node2"] {
            assert!(log.contains(&format!("{host}: systemctl enable --now ftb-agent")), "{log}");
            let there = |name: &str| format!("{}{dir}/{name}", path(&format!("hosts/{host}")));
            // No other host has the name of this one.
            assert_eq!(read(&there("agent.toml")), own.replace("host = \"login1\"\n", ""));
            if !words.contains(&"--insecure") {
                let key = read(&format!("{ca}/hosts/{host}/agent.key"));
                assert_eq!(read(&there("tls/agent.key")), key);
                assert_eq!(read(&there("tls/ca.pem")), read(&format!("{ca}/ca.pem")));
            }
        }
    }
}

/// The key of the agent is closed to ordinary users. They see a healthy tree all the same.
#[tokio::test]
async fn an_ordinary_user_hears_what_was_not_examined_and_that_the_tree_is_healthy() {
    if let Some(reason) = impossible() {
        return skip(&reason);
    }
    let folder = tempfile::tempdir().unwrap();
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), all).unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (dir, ca, socket) = (path("etc"), path("ca"), path("agent.sock"));
    let words = ["init", "trial", "--dir", &dir, "--ca-dir", &ca, "--agent-socket", &socket];
    assert!(ftbctl(&words).status.success());
    let config = folder.path().join("etc/agent.toml");
    let text_of_it = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text_of_it.replacen('\n', "\nlisten = \"127.0.0.1:0\"\n", 1)).unwrap();
    let agent = start(&config);
    let config = config.display().to_string();
    let doctor = |user: Option<u32>, more: &[&str]| {
        let mut command = Command::new(binary("ftbctl", "ftbctl").unwrap());
        command.args(["doctor", "--agent-socket", &socket, "--config", &config]).args(more);
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        command.output().unwrap()
    };
    let healthy = wait_for("root to find nothing", async || {
        Ok(doctor(None, &[]).status.success().then_some(()))
    });
    healthy.await.unwrap();
    let output = doctor(Some(ORDINARY[0]), &[]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.starts_with("note     configuration: ") && said.contains("Permission"), "{said}");
    assert!(said.contains("healthy: 1 agents reported; socket, tree, "), "{said}");
    // What is wrong is wrong for all users.
    drop(agent);
    let output = doctor(Some(ORDINARY[0]), &["--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
}

/// What `ftbctl doctor` may take, in the middle of some calls.
const DOCTOR_MAX: Duration = Duration::from_secs(2);
/// The same for a scrape: half of them take a fiftieth of it.
const SCRAPE_MAX: Duration = Duration::from_millis(5);

/// `FTB_DOCTOR_AGENTS` is the number of agents (64).
#[tokio::test]
#[ignore = "many agents: `make test-long` runs it and prints figures"]
async fn numbers_of_the_doctor_and_of_scrapes() {
    const ROUNDS: usize = 11;
    let agents = std::env::var("FTB_DOCTOR_AGENTS").map_or(64, |text| text.parse().unwrap());
    // With the times of a real cluster; and not `start`, which asks every agent again and again.
    let mut cluster = Plan::new(agents, 16).extra("").monitored().prepare().unwrap();
    (0..agents).for_each(|rank| cluster.run(rank).unwrap());
    let healthy = wait_for("all agents to report", async || {
        let (code, _, last) = doctor(&cluster, agents - 1);
        Ok((code == Some(0) && last["agents"] == agents).then_some(()))
    });
    cluster.must(healthy.await).await;
    let root = cluster.metrics_address(0).unwrap();
    let times = |what: &str, call: &dyn Fn()| {
        let time = |_| {
            let begun = Instant::now();
            call();
            begun.elapsed()
        };
        let mut times: Vec<Duration> = (0..ROUNDS).map(time).collect();
        times.sort();
        println!("{what}: median {:?}, worst {:?}", times[ROUNDS / 2], times[ROUNDS - 1]);
        times[ROUNDS / 2]
    };
    let examined = times("ftbctl doctor at a leaf", &|| {
        let (code, _, last) = doctor(&cluster, agents - 1);
        assert_eq!((code, &last["agents"]), (Some(0), &agents.into()));
    });
    let scraped = times("a scrape of the acting root", &|| {
        let page = http::get(&root, "/metrics").unwrap().body;
        assert!(page.contains(&format!("ftb_members{{state=\"up\"}} {agents}")), "{page}");
    });
    assert!(examined < DOCTOR_MAX, "{examined:?}");
    assert!(scraped < SCRAPE_MAX, "{scraped:?}");
}
