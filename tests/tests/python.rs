//! Python programs against a real agent: the module as an operator gets it, a wheel, installed; a
//! plain gRPC client; and the health check of NVIDIA's Resiliency Extension.
#![allow(clippy::unwrap_used)]

use ftb_tests::cluster::{Cluster, binary, outside_cargo};
use ftb_tests::python::{pip, python_with, run, target};
use ftb_tests::skip::skip;
use std::path::{Path, PathBuf};
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

#[tokio::test]
async fn a_grpc_client_of_another_language_needs_no_options_on_the_unix_socket() {
    let python = match python_with("grpcio", "grpc", &["grpcio>=1.60,<2"]) {
        Ok(python) => python,
        Err(why) => return skip(why.trim()),
    };
    let cluster = Cluster::start(1, 1).await.unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/grpcio.py");
    let mut command = Command::new(python);
    command.arg(script).arg(cluster.socket(0)).arg(ftb_core::protocol::PROTOCOL.max.to_string());
    let output = command.arg(cluster.host(0)).output().unwrap();
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success(), "{text}\n{}", cluster.logs());
    assert!(text.contains("attached and subscribed"), "{text}");
}

/// The folders with the unpacked wheels of two versions of the extension. Its client is Python
/// alone, but the wheel has libraries for one version of Python: pip would refuse others.
fn resiliency_extensions(python: &Path) -> Result<Vec<PathBuf>, String> {
    let platform = format!("manylinux_2_39_{}", std::env::consts::ARCH);
    let unpacked = |version: &str| {
        let folder = target().join("nvrx").join(version);
        let wheel = folder.join("unpacked");
        if wheel.join("nvidia_resiliency_ext").exists() {
            return Ok(wheel);
        }
        let package = format!("nvidia-resiliency-ext=={version}");
        let hint = format!("pip cannot download {package}");
        let mut download = pip(python, "download");
        download.args(["--no-deps", "--only-binary=:all:", "--python-version", "3.12"]);
        download.args(["--platform", &platform, &package, "--dest"]).arg(&folder);
        run(&mut download, &hint)?;
        let found = std::fs::read_dir(&folder).map_err(|error| format!("{hint}: {error}"))?;
        let archive = found.filter_map(|entry| Some(entry.ok()?.path()));
        let archive = archive.filter(|path| path.extension().is_some_and(|end| end == "whl")).max();
        let archive = archive.ok_or(hint)?;
        let mut unpack = Command::new(python);
        unpack.args(["-m", "zipfile", "-e"]).arg(archive).arg(&wheel);
        run(&mut unpack, "the wheel cannot be unpacked")?;
        Ok(wheel)
    };
    // The first reads `fail_count` strictly, the second only what is above zero.
    ["0.6.0", "0.7.0"].into_iter().map(unpacked).collect()
}

/// What each version of the extension decides about a host.
fn verdicts(python: &Path, wheels: &[PathBuf], socket: &Path) -> Vec<serde_json::Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvhcd.py");
    let verdict = |wheel: &PathBuf| {
        let output = Command::new(python).arg(&script).arg(socket).arg(wheel).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    wheels.iter().map(verdict).collect()
}

/// The verdicts once each has this many failed checks.
async fn verdicts_with(
    failed: usize,
    (python, wheels): (&Path, &[PathBuf]),
    cluster: &Cluster,
    rank: usize,
) -> Vec<serde_json::Value> {
    let deadline = tokio::time::Instant::now() + ftb_tests::cluster::PATIENCE;
    loop {
        let verdicts = verdicts(python, wheels, cluster.socket(rank));
        if verdicts.iter().all(|verdict| verdict["fail_count"] == failed) {
            return verdicts;
        }
        assert!(tokio::time::Instant::now() < deadline, "{verdicts:?}\n{}", cluster.logs());
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

fn publish(cluster: &Cluster, severity: &str, key: &str) {
    let mut ftbctl = Command::new(binary("ftbctl", "ftbctl").unwrap());
    ftbctl.env("FTB_AGENT_SOCKET", cluster.socket(0)).args(["publish", "site.check", "BAD"]);
    ftbctl.args(["--severity", severity, "--component", "FAN 1", "--condition", key]);
    run(&mut ftbctl, "ftbctl publish").unwrap();
}

#[tokio::test]
async fn the_resiliency_extension_leaves_out_a_node_with_a_fault() {
    let packages = ["grpcio>=1.60,<2", "protobuf", "defusedxml", "httpx"];
    let modules = "grpc, google.protobuf, defusedxml, httpx";
    let python = python_with("nvrx", modules, &packages);
    let found = python.and_then(|python| Ok((resiliency_extensions(&python)?, python)));
    let (wheels, python) = match found {
        Ok(found) => found,
        Err(why) => return skip(why.trim()),
    };
    let cluster = Cluster::start(2, 2).await.unwrap();
    let client = (python.as_path(), &wheels[..]);
    let healthy = |verdict: &serde_json::Value| {
        assert_eq!(verdict["healthy"], true, "{verdict}");
        assert_eq!((&verdict["success"], &verdict["exit_code"]), (&true.into(), &0.into()));
        assert_eq!(verdict["failed_checks"], serde_json::json!([]), "{verdict}");
        assert_eq!(verdict["error"], "", "{verdict}");
    };
    verdicts_with(0, client, &cluster, 0).await.iter().for_each(healthy);
    // Neither a warning nor a certificate that must be renewed keeps a node out of a job.
    publish(&cluster, "warning", "FANWARN");
    publish(&cluster, "error", "CERTIFICATE_EXPIRES");
    publish(&cluster, "error", "FANFAIL");
    for verdict in verdicts_with(1, client, &cluster, 0).await {
        assert_eq!(verdict["healthy"], false, "{verdict}");
        assert_eq!((&verdict["success"], &verdict["exit_code"]), (&false.into(), &1.into()));
        assert_eq!(verdict["failed_checks"], serde_json::json!(["site.check FANFAIL FAN 1"]));
    }
    verdicts_with(0, client, &cluster, 1).await.iter().for_each(healthy);
    publish(&cluster, "error", "FANFAIL=clear");
    verdicts_with(0, client, &cluster, 0).await.iter().for_each(healthy);
}
