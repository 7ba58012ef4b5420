//! The agent as a process: exit codes, signals, its socket file, systemd.
#![allow(clippy::unwrap_used)]

mod common;

use common::PATIENCE;
use common::process::{Process, agent};
use nix::sys::signal::Signal;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Output;
use tempfile::TempDir;

fn write_config(dir: &Path, extra: &str) -> PathBuf {
    common::process::write_config(dir, "test", "node[01-03]", extra)
}

fn start(dir: &Path) -> Process {
    Process::start(dir, &mut agent(&write_config(dir, "")))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(dir: &TempDir, extra: &str, check: bool) -> Output {
    let mut command = agent(&write_config(dir.path(), extra));
    if check {
        command.arg("--check-config");
    }
    command.output().unwrap()
}

#[test]
fn a_wrong_configuration_is_one_line_exit_code_64_and_nothing_is_started() {
    let dir = tempfile::tempdir().unwrap();
    for check in [true, false] {
        let output = run(&dir, "fan_out = 3\n", check);
        assert_eq!(output.status.code(), Some(64));
        let error = text(&output.stderr);
        let place = format!(
            "ftb-agent: {}:7:1: unknown key `fan_out`",
            dir.path().join("agent.toml").display()
        );
        assert!(error.starts_with(&place), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(!dir.path().join("agent.sock").exists());
    }
    let missing = agent(Path::new("/nonexistent/agent.toml")).output().unwrap();
    assert_eq!(missing.status.code(), Some(64));
    assert!(text(&missing.stderr).contains("/nonexistent/agent.toml: "));
    let flag = agent(&dir.path().join("agent.toml")).arg("--no-such-flag").output().unwrap();
    assert_eq!(flag.status.code(), Some(64));
}

/// systemd gives a unit its folder, and the check runs without.
#[test]
fn a_journal_without_a_folder_is_refused_by_a_start_and_not_by_a_check() {
    let dir = tempfile::tempdir().unwrap();
    for (check, code) in [(true, 0), (false, 64)] {
        let output = run(&dir, "[journal]\nenabled = true\n", check);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains("journal.enabled is true, and neither"), "{said}");
    }
}

/// Whatever lies where the configuration should be.
#[test]
fn what_is_no_configuration_is_exit_code_64_and_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let file = |name: &str, bytes: &[u8]| {
        std::fs::write(path(name), bytes).unwrap();
        path(name)
    };
    std::fs::create_dir(path("folder")).unwrap();
    nix::unistd::mkfifo(&path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::fs::File::create(path("huge")).unwrap().set_len(33 << 20).unwrap();
    let list =
        |members: &str| format!("cluster = \"c\"\ninsecure = true\nmembers = \"{members}\"\n");
    let cases = [
        (file("empty", b""), "missing key `cluster`"),
        (file("binary", b"\x7fELF\x02\x01\xff\xfe"), "byte 6 is no text"),
        (file("zeros", &[0; 4096]), "zeros:1:"),
        (path("folder"), "it is no file"),
        (path("pipe"), "it is no file"),
        ("/dev/zero".into(), "it is no file"),
        (path("huge"), "at most 33554432 bytes"),
        (file("twice", list("node[1-3],node2").as_bytes()), "\"node2\" stands in the list twice"),
        (file("many", list("node[1-300000]").as_bytes()), "more than 262144 hosts"),
        (file("hostless", list("").as_bytes()), "hostless:3:11: "),
    ];
    for (config, expected) in cases {
        let output = agent(&config).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{}: {error}", config.display());
        assert!(error.contains(expected), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

/// A list of a hundred thousand hosts, without this one: the agent is there and takes clients.
#[tokio::test]
async fn a_hundred_thousand_members_are_a_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let extra = "[detection]\nsearch = \"100ms\"\n";
    let config = common::process::write_config(dir.path(), "test", "node[000001-100000]", extra);
    let mut process = Process::start(dir.path(), &mut agent(&config));
    let mut client = process.client().await;
    let last = client.publish("site", &["here"]).await;
    client.confirmed(last).await;
    drop(client);
    process.signal(Signal::SIGTERM);
    assert_eq!(process.ended(), Some(0), "{}", process.log());
}

#[test]
fn a_good_configuration_says_who_this_host_is_and_starts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(&dir, "", true);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("cluster test, 3 members, node01 has rank 0"));
    assert!(!dir.path().join("agent.sock").exists());
}

/// Holds a port of an address that no other test process has: once it is dropped, none takes it.
fn own_port() -> TcpListener {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    TcpListener::bind((Ipv4Addr::new(127, 128 | high, middle, low), 0)).unwrap()
}

/// Two agents of one host with the same file but for their names: events are worth more than
/// metrics. When the other program has ended, there are metrics too.
#[tokio::test]
async fn an_agent_whose_address_for_metrics_is_taken_runs_without_until_it_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let taken = own_port();
    let address = taken.local_addr().unwrap();
    let config = write_config(dir.path(), &format!("[metrics]\nlisten = \"{address}\"\n"));
    let mut process = Process::start(dir.path(), &mut agent(&config));
    process.logged(&format!("cannot listen for metrics on {address}: Address already")).await;
    drop(process.client().await);
    drop(taken);
    process.logged(&format!("listens for metrics on {address}")).await;
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(" 200 "), "{answer}");
    process.signal(Signal::SIGTERM);
    assert_eq!(process.ended(), Some(0), "{}", process.log());
}

/// An agent that still tries stops as fast as any other: its drain deadline does not pass.
#[tokio::test]
async fn an_agent_that_waits_for_its_address_for_metrics_stops_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let taken = own_port();
    let listen = format!("[metrics]\nlisten = \"{}\"\n", taken.local_addr().unwrap());
    let config = write_config(dir.path(), &listen);
    let mut process = Process::start(dir.path(), &mut agent(&config));
    process.logged("cannot listen for metrics").await;
    drop(process.client().await);
    process.signal(Signal::SIGTERM);
    assert_eq!(process.ended(), Some(0), "{}", process.log());
    assert!(!process.log().contains("drain deadline"), "{}", process.log());
}

#[test]
fn a_port_that_is_taken_is_exit_code_1_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("listen = \"{}\"", taken.local_addr().unwrap());
    let config = write_config(dir.path(), "");
    let changed = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, changed.replace("listen = \"127.0.0.1:0\"", &listen)).unwrap();
    let output = agent(&config).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot listen for agents on 127.0.0.1:"));
}

#[tokio::test]
async fn sigterm_says_goodbye_to_clients_and_removes_the_socket() {
    let dir = tempfile::tempdir().unwrap();
    let mut process = start(dir.path());
    let mut client = process.client().await;
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(process.socket()).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o666, "every user may attach; the rules decide what they may do");
    process.signal(Signal::SIGTERM);
    let goodbye = async {
        while let Some(message) = client.hear().await {
            if let ftb_proto::v1::to_client::Message::Close(_) = message {
                return true;
            }
        }
        false
    };
    assert!(goodbye.await, "the stream ended without a goodbye");
    drop(client);
    assert_eq!(process.ended(), Some(0));
    assert!(!process.socket().exists());
}

#[tokio::test]
async fn a_second_agent_is_refused_and_the_first_lives_on() {
    let dir = tempfile::tempdir().unwrap();
    let first = start(dir.path());
    let _client = first.client().await;
    let second = agent(&dir.path().join("agent.toml")).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("another agent is running"), "{}", text(&second.stderr));
    let _another = first.client().await;
}

#[tokio::test]
async fn the_socket_of_a_crashed_agent_is_replaced_but_no_other_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut crashed = start(dir.path());
    let _client = crashed.client().await;
    crashed.signal(Signal::SIGKILL);
    crashed.ended();
    assert!(crashed.socket().exists());
    let mut next = start(dir.path());
    let _client = next.client().await;
    next.signal(Signal::SIGTERM);
    assert_eq!(next.ended(), Some(0));

    std::fs::write(next.socket(), "precious").unwrap();
    let output = agent(&dir.path().join("agent.toml")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("is no socket"), "{}", text(&output.stderr));
    assert_eq!(std::fs::read(next.socket()).unwrap(), b"precious");

    std::fs::remove_file(next.socket()).unwrap();
    std::fs::create_dir(next.socket()).unwrap();
    let output = agent(&dir.path().join("agent.toml")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("is no socket"), "{}", text(&output.stderr));
    assert!(next.socket().is_dir());

    let lock = dir.path().join("agent.lock");
    std::fs::remove_file(&lock).unwrap();
    std::fs::create_dir(&lock).unwrap();
    let output = agent(&dir.path().join("agent.toml")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("agent.lock") && error.contains("set another socket"), "{error}");
}

/// Killed while it stops, again and again, at another moment each time: the next one starts, with
/// all that was confirmed.
#[tokio::test]
async fn an_agent_that_is_killed_while_it_stops_leaves_nothing_in_the_way() {
    let dir = tempfile::tempdir().unwrap();
    let journal = format!("[journal]\npath = \"{}\"\n", dir.path().join("journal").display());
    let config = write_config(dir.path(), &journal);
    let mut texts = Vec::new();
    for life in 0..6 {
        let mut process = Process::start(dir.path(), &mut agent(&config));
        let mut client = process.client().await;
        // It is one publisher: what it says has one count.
        client.next_seq = life + 1;
        let said = format!("life {life}");
        let last = client.publish("site", &[&said]).await;
        client.confirmed(last).await;
        texts.push(said);
        process.signal(Signal::SIGTERM);
        if life % 2 == 1 {
            // It has begun: the client got a Close.
            while client.hear().await.is_some() {}
        }
        process.signal(Signal::SIGKILL);
        process.ended();
    }
    let process = Process::start(dir.path(), &mut agent(&config));
    let mut client = process.client().await;
    client.subscribe_from_the_beginning(1, "event_space=site").await;
    assert_eq!(client.payloads(texts.len()).await, texts);
}

#[tokio::test]
async fn sighup_reads_rules_again_and_a_mistake_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let process = start(dir.path());
    let mut client = process.client().await;
    let first = client.publish("site", &["allowed"]).await;
    client.confirmed(first).await;
    write_config(dir.path(), "[[access]]\nspace = \"site\"\npublish = []\n");
    process.signal(Signal::SIGHUP);
    process.logged("configuration read again").await;
    client.publish("site", &["denied"]).await;
    let refused = async {
        loop {
            match client.hear().await {
                Some(ftb_proto::v1::to_client::Message::Rejected(rejected)) => {
                    return rejected.code();
                }
                Some(_) => {}
                None => panic!("the stream ended"),
            }
        }
    };
    assert_eq!(refused.await, ftb_proto::v1::RejectCode::Denied);
    write_config(dir.path(), "nonsense = 1\n");
    process.signal(Signal::SIGHUP);
    process.logged("configuration not read").await;
    let other = client.publish("elsewhere", &["allowed"]).await;
    client.confirmed(other).await;
}

#[tokio::test]
async fn systemd_gets_ready_watchdog_and_stopping() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    systemd.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = agent(&write_config(dir.path(), ""));
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
    let mut process = Process::start(dir.path(), &mut command);
    let wait = |word: &str| {
        let mut bytes = [0; 512];
        loop {
            let len = systemd.recv(&mut bytes).unwrap();
            if text(&bytes[..len]).contains(word) {
                return;
            }
        }
    };
    wait("READY=1");
    assert!(process.socket().exists(), "ready means that clients can attach");
    wait("WATCHDOG=1");
    process.signal(Signal::SIGTERM);
    wait("STOPPING=1");
    assert_eq!(process.ended(), Some(0));
}

#[tokio::test]
async fn json_logs_are_one_object_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = agent(&write_config(dir.path(), "[log]\nformat = \"json\"\n"));
    let mut child = command.spawn().unwrap();
    let mut log = child.stderr.take().unwrap();
    let mut process = Process::of(dir.path(), child);
    drop(process.client().await);
    process.signal(Signal::SIGINT);
    assert_eq!(process.ended(), Some(0));
    let mut lines = String::new();
    log.read_to_string(&mut lines).unwrap();
    assert!(lines.lines().all(|line| line.starts_with('{') && line.ends_with('}')), "{lines}");
    let transition = |line: &str| {
        line.contains("\"target\":\"ftb::transition\"") && line.contains("\"to\":\"acting root\"")
    };
    assert!(lines.lines().any(transition), "{lines}");
}
