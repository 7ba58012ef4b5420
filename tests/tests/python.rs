//! Python programs against a real agent: the module as an operator gets it, a wheel, installed; and
//! a plain gRPC client.
#![allow(clippy::unwrap_used)]

use ftb_tests::cluster::{Cluster, binary, outside_cargo};
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

/// A Python with the package index's gRPC client, in the target folder; why there is none
/// otherwise.
fn python_with_grpc() -> Result<PathBuf, String> {
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().nth(3).unwrap();
    let python = target.join("grpcio/bin/python");
    let has_grpc = |python: &Path| {
        let output = Command::new(python).args(["-c", "import grpc"]).output();
        output.is_ok_and(|output| output.status.success())
    };
    if has_grpc(&python) {
        return Ok(python);
    }
    let run = |command: &mut Command, hint: &str| {
        let output = command.output().map_err(|error| format!("{hint}: {error}"))?;
        let text = String::from_utf8_lossy(&output.stderr);
        output.status.success().then_some(()).ok_or_else(|| format!("{hint}: {text}"))
    };
    let mut venv = Command::new("python3");
    run(venv.args(["-m", "venv", "--clear"]).arg(target.join("grpcio")), "install python3-venv")?;
    let mut pip = Command::new(&python);
    let arguments = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run(pip.args(arguments).arg("grpcio>=1.60,<2"), "pip cannot install grpcio")?;
    Ok(python)
}

#[tokio::test]
async fn a_grpc_client_of_another_language_needs_no_options_on_the_unix_socket() {
    let python = match python_with_grpc() {
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
