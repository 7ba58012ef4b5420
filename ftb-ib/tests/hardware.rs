//! The daemon on a real kernel: soft-RoCE adapters in a guest under QEMU, with everything that
//! can happen to them (`tests/hardware/ib/scenario.sh`), and what a subscriber got of it.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Exit status of the guest's scripts where there is no QEMU and none can be installed.
const SKIPPED: i32 = 77;
const DEADLINE_S: &str = "240";
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

fn hardware() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/hardware").canonicalize().unwrap()
}

/// Runs a script; its output, or `None` where it says that it cannot run here.
fn script(path: &Path, arguments: &[&str]) -> Option<Result<String, String>> {
    let output = Command::new(path).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output.status.code() {
        Some(0) => Some(Ok(String::from_utf8(output.stdout).unwrap().trim().to_owned())),
        Some(SKIPPED) => {
            skipped(&errors);
            None
        }
        code => Some(Err(format!("{} ended with {code:?}: {errors}", path.display()))),
    }
}

#[expect(clippy::explicit_write, reason = "the test harness hides what eprintln! prints")]
fn skipped(line: &str) {
    writeln!(std::io::stderr(), "{line}").unwrap();
}

/// Boots the guest with the daemon in it; the events that the subscriber got.
fn run_guest(share: &Path, initramfs: &Path) -> Option<Vec<Value>> {
    let hardware = hardware();
    let injector = hardware.join("mod/ibinject");
    let module = script(&hardware.join("guest/module.sh"), &[injector.to_str().unwrap()])?.unwrap();
    let provider = format!("{LIBRARIES}/libibverbs/librxe-rdmav34.so");
    let pair = |from: &str, to: &str| format!("{from}:{to}");
    let files = [
        pair(&format!("{LIBRARIES}/libibverbs.so.1"), &format!("{LIBRARIES}/libibverbs.so.1")),
        pair(&provider, &provider),
        pair("/etc/libibverbs.d/rxe.driver", "/etc/libibverbs.d/rxe.driver"),
        pair(hardware.join("ib/ib.toml").to_str().unwrap(), "/etc/ftb/ib.toml"),
        pair(hardware.join("ib/start.sh").to_str().unwrap(), "/start.sh"),
        pair(hardware.join("ib/stop.sh").to_str().unwrap(), "/stop.sh"),
    ];
    let scenario = hardware.join("ib/scenario.sh");
    let mut arguments = vec!["--out", initramfs.to_str().unwrap()];
    arguments.extend(["--script", scenario.to_str().unwrap(), "--ko", &module]);
    for module in ["veth", "crc32_generic", "ib_uverbs", "rdma_rxe"] {
        arguments.extend(["--module", module]);
    }
    for program in ["ip", "rdma", env!("CARGO_BIN_EXE_ftb-ib")] {
        arguments.extend(["--program", program]);
    }
    for file in &files {
        arguments.extend(["--file", file]);
    }
    script(&hardware.join("guest/initramfs.sh"), &arguments)?.unwrap();
    let boot = ["--initramfs", initramfs.to_str().unwrap(), "--share", share.to_str().unwrap()];
    let boot = [&boot[..], &["--deadline-s", DEADLINE_S]].concat();
    let result = script(&hardware.join("guest/run.sh"), &boot)?;
    let read = |name: &str| fs::read_to_string(share.join(name)).unwrap_or_default();
    if let Err(problem) = result {
        let (console, log) = (read("console.log"), read("ftb-ib.log"));
        panic!("{problem}\nconsole:\n{console}\nftb-ib:\n{log}\nevents:\n{}", read("events.jsonl"));
    }
    Some(read("events.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn is(event: &Value, name: &str) -> bool {
    event["name"] == format!("FTB_IB_{name}")
}

/// Events whose moment is not the scenario's to choose.
const ANY_TIME: [&str; 4] =
    ["EVENT_GID_CHANGE", "PORT_FLAPPING", "PORT_DEGRADED", "PORT_RECOVERED"];

/// What the scenario must cause, in its order, but for [`ANY_TIME`] and the flapping.
const STORY: &[&str] = &[
    "ADAPTER_UNAVAILABLE ",
    "ADAPTER_AVAILABLE NUM_ADAPTERS:1",
    "ADAPTER_INFO ADAPTER:0::NAME:rxe0::PORTS:1",
    "PORT_INFO ADAPTER:0::PORT:1::STATE:ACTIVE",
    // Link, then carrier; the driver says PORT_ACTIVE twice for the first.
    "PORT_ERR ADAPTER:0::PORT:1",
    "PORT_ACTIVE ADAPTER:0::PORT:1",
    "PORT_ERR ADAPTER:0::PORT:1",
    "PORT_ACTIVE ADAPTER:0::PORT:1",
    "EVENT_LID_CHANGE ADAPTER:0::PORT:1",
    "EVENT_PKEY_CHANGE ADAPTER:0::PORT:1",
    "EVENT_SM_CHANGE ADAPTER:0::PORT:1",
    "EVENT_CLIENT_REREGISTER ADAPTER:0::PORT:1",
    "EVENT_DEVICE_FATAL ADAPTER:0",
    // Here it flaps.
    "ADAPTER_AVAILABLE NUM_ADAPTERS:2",
    "ADAPTER_INFO ADAPTER:1::NAME:rxe1::PORTS:1",
    "PORT_INFO ADAPTER:1::PORT:1::STATE:ACTIVE",
    "ADAPTER_REMOVED ADAPTER:0::NAME:rxe0",
    "ADAPTER_AVAILABLE NUM_ADAPTERS:2",
    "ADAPTER_INFO ADAPTER:0::NAME:rxe0::PORTS:1",
    "PORT_INFO ADAPTER:0::PORT:1::STATE:ACTIVE",
    "ADAPTER_REMOVED ADAPTER:0::NAME:rxe0",
    "ADAPTER_REMOVED ADAPTER:1::NAME:rxe1",
    "ADAPTER_UNAVAILABLE ",
    "ADAPTER_AVAILABLE NUM_ADAPTERS:1",
    "ADAPTER_INFO ADAPTER:0::NAME:rxe0::PORTS:1",
    "PORT_INFO ADAPTER:0::PORT:1::STATE:ACTIVE",
    "PORT_ERR ADAPTER:0::PORT:1",
];

/// While the port flaps, what is told of it alternates and ends well; how often is not fixed.
fn check_and_cut_flapping(told: &mut Vec<String>) {
    let start = told.iter().position(|line| line.contains("DEVICE_FATAL")).unwrap() + 1;
    let length = told[start..].iter().position(|line| line.contains("ADAPTER_AVAIL")).unwrap();
    let lines: Vec<_> = told.drain(start..start + length).collect();
    assert!(length >= 2 && length % 2 == 0, "{lines:?}");
    for pair in lines.chunks(2) {
        assert_eq!(pair, ["PORT_ERR ADAPTER:0::PORT:1", "PORT_ACTIVE ADAPTER:0::PORT:1"]);
    }
}

#[test]
fn a_subscriber_gets_all_that_happens_to_soft_roce_adapters() {
    let folder = tempfile::tempdir().unwrap();
    let share = folder.path().join("share");
    fs::create_dir(&share).unwrap();
    let Some(events) = run_guest(&share, &folder.path().join("initramfs.gz")) else {
        return;
    };
    let (free, story): (Vec<_>, Vec<_>) =
        events.iter().partition(|event| ANY_TIME.iter().any(|name| is(event, name)));
    let mut told: Vec<_> = story
        .iter()
        .map(|event| {
            let name = event["name"].as_str().unwrap().trim_start_matches("FTB_IB_");
            format!("{name} {}", event["payload"].as_str().unwrap())
        })
        .collect();
    check_and_cut_flapping(&mut told);
    assert_eq!(told, STORY);

    assert!(free.iter().any(|event| is(event, "EVENT_GID_CHANGE")));
    let one = |name| *free.iter().find(|event| is(event, name)).unwrap();
    assert_eq!(one("PORT_DEGRADED")["tags"]["counter"], "link_downed");
    let flaps: u32 = one("PORT_FLAPPING")["tags"]["flaps"].as_str().unwrap().parse().unwrap();
    assert!(flaps > 1);

    let first = |name| events.iter().find(|event| is(event, name)).unwrap();
    assert_eq!(first("EVENT_DEVICE_FATAL")["severity"], "FATAL");
    let tags = &first("PORT_ERR")["tags"];
    for (key, value) in [
        ("adapter", "rxe0"),
        ("port", "1"),
        ("state", "DOWN"),
        ("link_layer", "Ethernet"),
        ("netdev", "ve0"),
        ("lid", "0"),
    ] {
        assert_eq!(tags[key], value, "{tags}");
    }
    assert!(tags["guid"].as_str().unwrap().len() == 19, "{tags}");
}
