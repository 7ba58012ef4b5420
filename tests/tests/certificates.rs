//! `ftbctl ca`: its certificates and the checks of real agents; the example of docs/agent.md.
#![allow(clippy::unwrap_used, missing_docs)]

use ftb_tests::cluster::{PATIENCE, binary};
use ftb_transport::tls::{self, Tls, TlsFiles};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const DAY_NS: u64 = 86_400 * 1_000_000_000;

fn ca_output(dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(binary("ftbctl", "ftbctl").unwrap());
    command.args(["ca", "--dir"]).arg(dir.join("ca")).args(words).output().unwrap()
}

fn ca(dir: &Path, words: &[&str]) -> String {
    let output = ca_output(dir, words);
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {shown}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(dir: &Path, words: &[&str]) -> String {
    let output = ca_output(dir, words);
    assert_eq!(output.status.code(), Some(1), "{words:?}");
    let shown = String::from_utf8(output.stderr).unwrap();
    assert_eq!(shown.lines().count(), 1, "{shown}");
    shown
}

fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The states of the certificates of a host, the oldest first.
fn states(dir: &Path, host: &str) -> Vec<String> {
    let shown = objects(&ca(dir, &["show", host, "--json"]));
    assert_eq!(shown[0]["type"], "ca");
    shown[1..].iter().map(|object| object["state"].as_str().unwrap().to_owned()).collect()
}

fn files(dir: &Path, host: &str) -> TlsFiles {
    let path = |name: &str| dir.join("ca").join(name);
    TlsFiles {
        ca: path("ca.pem"),
        crl: Some(path("crl.pem")),
        cert: path(&format!("hosts/{host}/agent.pem")),
        key: path(&format!("hosts/{host}/agent.key")),
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn agents_accept_what_is_issued_and_refuse_what_is_revoked() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ca(dir, &["init", "test"]);
    ca(dir, &["issue", "node[01-02]"]);
    for host in ["node01", "node02"] {
        assert!(Tls::load(&files(dir, host), "test").is_ok());
        assert_eq!(tls::examine(&files(dir, host), "test", host).unwrap(), None);
    }
    // It counts for its cluster and its host only.
    let refusal = |host, cluster, claimed| {
        tls::examine(&files(dir, host), cluster, claimed).unwrap_err().to_string()
    };
    assert!(refusal("node01", "other", "node01").contains("for cluster \"test\""));
    assert!(refusal("node01", "test", "node02").contains("it is for node01"));
    assert_eq!(mode(&dir.join("ca/ca.key")), 0o600);
    assert_eq!(mode(&dir.join("ca/hosts/node01/agent.key")), 0o600);
    assert_eq!(mode(&dir.join("ca")), 0o700);
    // What is revoked stays revoked, and the next certificate of the host counts.
    let old =
        TlsFiles { cert: dir.join("old.pem"), key: dir.join("old.key"), ..files(dir, "node02") };
    fs::copy(files(dir, "node02").cert, &old.cert).unwrap();
    fs::copy(files(dir, "node02").key, &old.key).unwrap();
    ca(dir, &["revoke", "node02"]);
    assert!(!files(dir, "node02").key.exists(), "it is not installed by mistake");
    ca(dir, &["issue", "node[01-02]"]);
    assert_eq!(states(dir, "node02"), ["revoked", "valid"]);
    assert_eq!(states(dir, "node01"), ["valid"]);
    assert_eq!(tls::examine(&files(dir, "node02"), "test", "node02").unwrap(), None);
    let doubt = tls::examine(&old, "test", "node02").unwrap().unwrap();
    assert!(doubt.contains("Revoked"), "{doubt}");
    assert!(refused(dir, &["revoke", "node01,node99"]).contains("node99 has no certificate"));
    assert_eq!(states(dir, "node01"), ["valid"]);
}

#[test]
fn certificates_are_renewed_in_time_and_nothing_is_overwritten_without_force() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert!(refused(dir, &["show"]).contains("ftbctl ca init"));
    ca(dir, &["init", "test", "--days", "100"]);
    assert!(refused(dir, &["init", "test"]).contains("--force"));
    ca(dir, &["issue", "node01", "--days", "20"]);
    let key = || fs::read_to_string(files(dir, "node01").key).unwrap();
    let first = key();
    assert!(ca(dir, &["issue", "node01"]).contains("new certificates: 0"));
    assert_eq!(key(), first);
    ca(dir, &["issue", "node01", "--force"]);
    assert_ne!(key(), first);
    assert_eq!(states(dir, "node01"), ["renewed", "valid"]);
    let shown = objects(&ca(dir, &["show", "--json"]));
    let of = |index: usize, key: &str| shown[index][key].as_u64().unwrap();
    assert_eq!(of(2, "until_ns"), of(0, "until_ns"), "it ends with the CA");
    assert_eq!(of(1, "until_ns") - of(1, "from_ns"), 20 * DAY_NS);
    assert_ne!(shown[1]["serial"], shown[2]["serial"]);
    // Files that this CA has not made, and links, are left alone.
    let foreign = files(dir, "node02").key;
    fs::create_dir(foreign.parent().unwrap()).unwrap();
    symlink("/dev/null", &foreign).unwrap();
    assert!(refused(dir, &["issue", "node02"]).contains("is not of this CA"));
    ca(dir, &["issue", "node02", "--force"]);
    assert!(fs::symlink_metadata(&foreign).unwrap().is_file());
    for name in ["node[1", "..", "a/b"] {
        assert_eq!(ca_output(dir, &["issue", name]).status.code(), Some(64), "{name}");
    }
    let people = ca(dir, &["show", "--color", "never"]);
    assert!(people.contains("node01") && people.contains("renewed"), "{people}");
}

/// As many as the largest clusters have; the debug build is ten times slower than the other.
#[test]
fn ten_thousand_hosts_get_certificates_in_one_call() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ca(dir, &["init", "test"]);
    let start = Instant::now();
    ca(dir, &["issue", "node[00001-10000]"]);
    ca(dir, &["revoke", "node[00001-05000]"]);
    let shown = objects(&ca(dir, &["show", "--json"]));
    println!("10,000 certificates, 5,000 revoked, shown: {:?}", start.elapsed());
    let revoked = shown.iter().filter(|object| object["state"] == "revoked").count();
    assert_eq!((shown.len(), revoked), (10_001, 5_000));
    assert_eq!(tls::examine(&files(dir, "node10000"), "test", "node10000").unwrap(), None);
}

#[test]
fn two_commands_in_one_folder_take_turns() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ca(dir, &["init", "test"]);
    let issue = |i: usize| {
        let mut command = Command::new(binary("ftbctl", "ftbctl").unwrap());
        command.args(["ca", "--dir"]).arg(dir.join("ca")).arg("issue").arg(format!("node{i}"));
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let children: Vec<Child> = (0..8).map(issue).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let shown = objects(&ca(dir, &["show", "--json"]));
    assert_eq!((shown.len(), &shown[0]["crl_number"]), (9, &Value::from(9)));
}

/// Processes that end with the test.
struct Processes(Vec<Child>);

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = kill(pid(child), Signal::SIGTERM);
            let _ = child.wait();
        }
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap())
}

/// Where `ftbctl` and `ftb-agent` are, before everything else.
fn path() -> String {
    let folder = |name| binary(name, name).unwrap().parent().unwrap().to_path_buf();
    let own = std::env::join_paths([folder("ftbctl"), folder("ftb-agent")]).unwrap();
    format!("{}:{}", own.to_str().unwrap(), std::env::var("PATH").unwrap())
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A part of the loopback network that no other test uses.
fn loopback() -> String {
    let id = std::process::id();
    format!("127.{}.{}", 100 + id / 250 % 150, id % 250)
}

/// The lines of docs/agent.md between "three agents with TLS" and the end of the block.
fn example() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/agent.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("Three agents with TLS").unwrap();
    let block = rest.split("```").nth(1).unwrap();
    let lines = block.lines().filter_map(|line| line.strip_prefix("$ "));
    lines.map(str::to_owned).collect()
}

#[test]
fn the_five_commands_of_the_documentation_start_three_agents_with_tls() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let commands = example();
    assert_eq!(commands.len(), 5, "{commands:?}");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/dev/three-agents.sh");
    let try_folder = dir.join("try");
    let run = |command: &str| {
        let command = command.replace("deploy/dev/three-agents.sh", script.to_str().unwrap());
        let command = command.replace("/tmp/try", try_folder.to_str().unwrap());
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(command).current_dir(dir).env("PATH", path());
        shell.env("FTB_LOOPBACK", loopback());
        shell
    };
    for command in &commands[..2] {
        assert!(run(command).status().unwrap().success(), "{command}");
    }
    let agents = commands[2].strip_suffix(" &").unwrap();
    let agents = run(&format!("exec {agents}")).stdout(Stdio::null()).spawn().unwrap();
    let _agents = Processes(vec![agents]);
    let tree = format!("{}; {}", commands[3].clone(), commands[4].clone());
    let tree = until("the tree", || {
        let output = run(&tree).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        (output.status.success() && text.lines().count() == 3).then_some(text)
    });
    assert!(tree.contains("node1") && tree.contains("standby"), "{tree}");
    let config = fs::read_to_string(try_folder.join("1.toml")).unwrap();
    assert!(config.contains("[tls]") && config.contains("\n#insecure"), "{config}");
}

/// An agent that runs with certificates of [`ca`].
fn agent(dir: &Path, host: &str) -> Child {
    let TlsFiles { ca, crl, cert, key } = files(dir, host);
    let config = format!(
        "cluster = \"test\"\nmembers = \"{host}\"\nhost = \"{host}\"\nlisten = \"127.0.0.1:0\"\n\
         socket = {:?}\n[tls]\nca = {ca:?}\ncrl = {:?}\ncert = {cert:?}\nkey = {key:?}\n\
         [detection]\nsearch = \"300ms\"\npublisher = \"1s\"\n",
        dir.join("agent.sock"),
        crl.unwrap(),
    );
    fs::write(dir.join("agent.toml"), config).unwrap();
    let mut command = Command::new(binary("ftb-agent", "ftb-agent").unwrap());
    command.arg("--config").arg(dir.join("agent.toml"));
    command.stderr(fs::File::create(dir.join("agent.log")).unwrap()).spawn().unwrap()
}

/// What `ftbctl conditions` shows of the certificates.
fn conditions(socket: &PathBuf) -> Option<Vec<Value>> {
    let mut command = Command::new(binary("ftbctl", "ftbctl").unwrap());
    command.arg("--agent").arg(socket).args(["conditions", "--all", "--json"]);
    let output = command.args(["--key", "CERTIFICATE_EXPIRES"]).output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    output.status.success().then(|| objects(&lines))
}

#[test]
fn an_agent_whose_certificate_ends_in_20_days_warns_until_a_reload_with_a_newer_one() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ca(dir, &["init", "test"]);
    ca(dir, &["issue", "node01", "--days", "20"]);
    let socket = dir.join("agent.sock");
    let holds = |state: &str, severity: &str| {
        let rows = conditions(&socket)?;
        let row = rows.iter().find(|row| row["key"] == "CERTIFICATE_EXPIRES")?;
        (row["state"] == state && (state != "true" || row["severity"] == severity)).then_some(())
    };
    let processes = Processes(vec![agent(dir, "node01")]);
    until("the warning", || holds("true", "WARNING"));
    // A day is left after this reload: it is worse.
    ca(dir, &["issue", "node01", "--days", "1", "--force"]);
    kill(pid(&processes.0[0]), Signal::SIGHUP).unwrap();
    until("the error", || holds("true", "ERROR"));
    ca(dir, &["issue", "node01", "--days", "400", "--force"]);
    kill(pid(&processes.0[0]), Signal::SIGHUP).unwrap();
    until("the end of the condition", || holds("false", ""));
    drop(processes);
    // A restart with a certificate that ends soon states it again, and one with a newer ends it.
    ca(dir, &["issue", "node01", "--days", "5", "--force"]);
    let _processes = Processes(vec![agent(dir, "node01")]);
    until("the warning", || holds("true", "WARNING"));
}
