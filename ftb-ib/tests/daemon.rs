//! The daemon: on a machine without adapters or verbs, with a bad configuration, with ports that
//! change.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

const FTB_IB: &str = env!("CARGO_BIN_EXE_ftb-ib");

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join("class").join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    // A reader must see the old text or the new one.
    let fresh = path.with_extension("new");
    fs::write(&fresh, text).unwrap();
    fs::rename(fresh, path).unwrap();
}

/// A running `ftb-ib --print` on a tree of its own.
struct Daemon {
    root: tempfile::TempDir,
    child: Child,
    lines: Option<Lines<BufReader<ChildStdout>>>,
}

impl Daemon {
    fn start(prepare: impl FnOnce(&Path)) -> Self {
        let root = tempfile::tempdir().unwrap();
        prepare(root.path());
        let config = root.path().join("ib.toml");
        let sysfs = root.path().display();
        let text = format!(
            "sysfs = \"{sysfs}\"\nrescan = \"100ms\"\ndebounce = \"0s\"\n\
             [prediction]\ninterval = \"100ms\"\n"
        );
        fs::write(&config, text).unwrap();
        let mut child = Command::new(FTB_IB)
            .arg("--print")
            .arg("--config")
            .arg(config)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = Some(BufReader::new(child.stdout.take().unwrap()).lines());
        Self { root, child, lines }
    }

    fn write(&self, path: &str, text: &str) {
        write(self.root.path(), path, text);
    }

    fn next(&mut self) -> Value {
        let line = self.lines.as_mut().unwrap().next().expect("it still runs");
        serde_json::from_str(&line.unwrap()).unwrap()
    }

    fn expect(&mut self, name: &str, payload: &str) -> Value {
        let event = self.next();
        assert_eq!((&event["name"], &event["payload"]), (&name.into(), &payload.into()), "{event}");
        assert_eq!(event["space"], "ftb.ib");
        event
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn adapter(root: &Path, name: &str, state: &str) {
    write(root, &format!("infiniband/{name}/node_guid"), "0002:c903:00a1:b2c3\n");
    write(root, &format!("infiniband/{name}/ports/1/state"), state);
}

#[test]
fn without_an_adapter_the_daemon_reports_that_once_and_waits() {
    let mut daemon = Daemon::start(|_| {});
    let event = daemon.expect("FTB_IB_ADAPTER_UNAVAILABLE", "");
    assert_eq!(event["severity"], "WARNING");
    adapter(daemon.root.path(), "mlx5_0", "4: ACTIVE\n");
    daemon.expect("FTB_IB_ADAPTER_AVAILABLE", "NUM_ADAPTERS:1");
    daemon.expect("FTB_IB_ADAPTER_INFO", "ADAPTER:0::NAME:mlx5_0::PORTS:1");
    daemon.expect("FTB_IB_PORT_INFO", "ADAPTER:0::PORT:1::STATE:ACTIVE");
}

#[test]
fn a_port_is_watched_even_if_verbs_cannot_open_its_adapter() {
    let mut daemon = Daemon::start(|root| adapter(root, "no_such_hca", "4: ACTIVE\n"));
    for _ in 0..3 {
        daemon.next();
    }
    daemon.write("infiniband/no_such_hca/ports/1/state", "1: DOWN\n");
    let event = daemon.expect("FTB_IB_PORT_ERR", "ADAPTER:0::PORT:1");
    assert_eq!(event["severity"], "ERROR");
    assert_eq!(event["tags"]["state"], "DOWN");
    daemon.write("infiniband/no_such_hca/ports/1/state", "2: INIT\n");
    daemon.expect("FTB_IB_PORT_INFO", "ADAPTER:0::PORT:1::STATE:INIT");
    daemon.write("infiniband/no_such_hca/ports/1/state", "4: ACTIVE\n");
    daemon.expect("FTB_IB_PORT_ACTIVE", "ADAPTER:0::PORT:1");
    fs::remove_dir_all(daemon.root.path().join("class/infiniband/no_such_hca")).unwrap();
    daemon.expect("FTB_IB_ADAPTER_REMOVED", "ADAPTER:0::NAME:no_such_hca");
    daemon.expect("FTB_IB_ADAPTER_UNAVAILABLE", "");
}

#[test]
fn a_counter_that_rises_too_fast_degrades_its_port() {
    let counter = "infiniband/mlx5_0/ports/1/counters/symbol_error";
    let mut daemon = Daemon::start(|root| {
        adapter(root, "mlx5_0", "4: ACTIVE\n");
        write(root, counter, "100\n");
    });
    for _ in 0..3 {
        daemon.next();
    }
    // It rises until the daemon reports it: the first reading is the start value.
    let mut value = 100;
    let root = daemon.root.path().to_owned();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let raiser = std::thread::spawn(move || {
        while stopped.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected) {
            value += 1;
            write(&root, counter, &format!("{value}\n"));
            std::thread::yield_now();
        }
    });
    let event = daemon.next();
    drop(stop);
    raiser.join().unwrap();
    assert_eq!(event["name"], "FTB_IB_PORT_DEGRADED", "{event}");
    assert_eq!(event["tags"]["counter"], "symbol_error");
    assert_eq!(event["tags"]["limit_per_minute"], "2.000");
}

#[test]
fn the_daemon_ends_without_error_when_the_reader_of_its_output_ends() {
    let mut daemon = Daemon::start(|_| {});
    daemon.next();
    daemon.lines = None;
    adapter(daemon.root.path(), "mlx5_0", "4: ACTIVE\n");
    assert!(daemon.child.wait().unwrap().success());
}

fn run(arguments: &[&str]) -> Output {
    Command::new(FTB_IB).args(arguments).output().unwrap()
}

#[test]
fn a_bad_configuration_gives_one_line_and_exit_code_64() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ib.toml");
    let path_text = path.to_str().unwrap();
    for (text, expected) in [
        ("debounze = \"1s\"\n", "line 1: unknown field `debounze`"),
        ("[severity]\nFTB_IB_NO = \"info\"\n", "severity.FTB_IB_NO: no event has this name"),
        ("rescan = \n", "line 1"),
    ] {
        fs::write(&path, text).unwrap();
        let output = run(&["--config", path_text]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.contains(expected) && message.contains(path_text), "{message}");
    }
    let output = run(&["--config", "/no/such/ib.toml"]);
    assert_eq!(output.status.code(), Some(64));
    fs::write(&path, "").unwrap();
    assert!(run(&["--check-config", "--config", path_text]).status.success());
}

#[test]
fn a_misspelt_counter_is_exit_code_64_at_the_check_and_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ib.toml");
    let check = |counter: &str, more: &str| {
        let rule = format!("counter = {counter:?}\nlimit = 1\nwindow = \"1m\"\n{more}");
        fs::write(&path, format!("[[prediction.rules]]\n{rule}\n")).unwrap();
        let output = run(&["--check-config", "--config", path.to_str().unwrap()]);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, message) = check("symbol_eror", "");
    assert_eq!((code, message.lines().count()), (Some(64), 1), "{message}");
    assert!(message.contains("counter \"symbol_eror\" is unknown"), "{message}");
    let output = run(&["--print", "--config", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(64));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), message);
    assert_eq!(check("symbol_eror", "optional = true").0, Some(0));
    assert_eq!(check("symbol_error", "").0, Some(0));
}

/// A binary that needs the library does not start on a machine without rdma-core.
#[test]
fn the_binary_starts_without_the_verbs_library() {
    let output = Command::new("readelf").args(["--dynamic", FTB_IB]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let needed: Vec<_> = text.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(!needed.is_empty(), "readelf did not understand the binary: {text}");
    for line in needed {
        assert!(!line.contains("ibverbs") && !line.contains("rdmacm"), "{line}");
    }
}
