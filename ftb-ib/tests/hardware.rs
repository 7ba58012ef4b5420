//! The daemon on a real kernel: soft-RoCE adapters in a guest under QEMU, all events of adapters
//! (`tests/hardware/ib/scenario.sh`), and the events that a subscriber receives.
#![allow(clippy::unwrap_used)]

use ftb_tests::cluster::{binary, outside_cargo};
use ftb_tests::guest::{Guest, hardware};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Deadline of a guest that hangs.
const DEADLINE_S: u32 = 600;
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

/// A guest with agent, daemon and soft-RoCE for this script. `None` if no guest can run.
fn guest(script: &str) -> anyhow::Result<Option<Guest>> {
    let ours = hardware().join("ib");
    let guest = Guest::new(&ours.join(script))?;
    let Some(mut guest) = guest.built_module(&hardware().join("mod/ibinject"))? else {
        return Ok(None);
    };
    guest = guest
        .modules(&["veth", "crc32_generic", "ib_uverbs", "rdma_rxe"])
        .program("ip")
        .program("rdma")
        .program(env!("CARGO_BIN_EXE_ftb-ib"))
        .program(binary("ftb-agent", "ftb-agent")?)
        .program(binary("ftbctl", "ftbctl")?)
        .program(example("event_latency")?);
    let same = [
        format!("{LIBRARIES}/libibverbs.so.1"),
        format!("{LIBRARIES}/libibverbs/librxe-rdmav34.so"),
        "/etc/libibverbs.d/rxe.driver".to_owned(),
    ];
    for path in &same {
        guest = guest.file(Path::new(path), path);
    }
    for name in ["ib.toml", "quick.toml", "agent.toml"] {
        guest = guest.file(&ours.join(name), &format!("/etc/ftb/{name}"));
    }
    for name in ["start.sh", "stop.sh"] {
        guest = guest.file(&ours.join(name), &format!("/{name}"));
    }
    Ok(Some(guest))
}

/// The events that the subscriber receives in the scenario.
fn run_scenario() -> anyhow::Result<Option<Vec<Value>>> {
    // The clock of the guest does not depend on the load of this machine.
    let Some(guest) = guest("scenario.sh")?.map(Guest::instruction_clock) else { return Ok(None) };
    if guest.run(DEADLINE_S)?.is_none() {
        return Ok(None);
    }
    let text = fs::read_to_string(guest.share().join("events.jsonl"))?;
    let events: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    Ok(Some(events?.into_iter().filter(|event| !is(event, "TRIAL")).collect()))
}

/// Builds an example of this crate, which `cargo test --test hardware` alone does not. Like
/// [`binary`], takes it from `FTB_BIN_DIR` if that is set.
fn example(name: &str) -> anyhow::Result<PathBuf> {
    if let Some(dir) = std::env::var_os("FTB_BIN_DIR") {
        return Ok(Path::new(&dir).join("examples").join(name));
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let daemon = Path::new(env!("CARGO_BIN_EXE_ftb-ib"));
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "-p", "ftb-ib", "--example", name]);
    let profile = daemon.parent().unwrap();
    if profile.ends_with("release") {
        build.arg("--release");
    }
    let built = outside_cargo(&mut build).status()?;
    anyhow::ensure!(built.success(), "cannot build the example {name}");
    Ok(profile.join("examples").join(name))
}

fn is(event: &Value, name: &str) -> bool {
    event["name"].as_str().is_some_and(|full| full.trim_start_matches("FTB_IB_") == name)
}

/// Events whose time the scenario does not control.
const ANY_TIME: [&str; 4] =
    ["EVENT_GID_CHANGE", "PORT_FLAPPING", "PORT_DEGRADED", "PORT_RECOVERED"];

/// The events of the scenario in order, without [`ANY_TIME`] and the flapping.
const EXPECTED: &[&str] = &[
    "ADAPTER_UNAVAILABLE ",
    "ADAPTER_AVAILABLE NUM_ADAPTERS:1",
    "ADAPTER_INFO ADAPTER:0::NAME:rxe0::PORTS:1",
    "PORT_INFO ADAPTER:0::PORT:1::STATE:ACTIVE",
    // Link, then carrier. The driver reports PORT_ACTIVE twice for the first.
    "PORT_ERR ADAPTER:0::PORT:1",
    "PORT_ACTIVE ADAPTER:0::PORT:1",
    "PORT_ERR ADAPTER:0::PORT:1",
    "PORT_ACTIVE ADAPTER:0::PORT:1",
    "EVENT_LID_CHANGE ADAPTER:0::PORT:1",
    "EVENT_PKEY_CHANGE ADAPTER:0::PORT:1",
    "EVENT_SM_CHANGE ADAPTER:0::PORT:1",
    "EVENT_CLIENT_REREGISTER ADAPTER:0::PORT:1",
    "EVENT_DEVICE_FATAL ADAPTER:0",
    // The port flaps here.
    "ADAPTER_AVAILABLE NUM_ADAPTERS:2",
    "ADAPTER_INFO ADAPTER:1::NAME:rxe1::PORTS:1",
    "PORT_INFO ADAPTER:1::PORT:1::STATE:ACTIVE",
    "ADAPTER_REMOVED ADAPTER:0::NAME:rxe0",
    "ADAPTER_AVAILABLE NUM_ADAPTERS:2",
    "ADAPTER_INFO ADAPTER:0::NAME:rxe0::PORTS:1",
    "PORT_INFO ADAPTER:0::PORT:1::STATE:ACTIVE",
    "ADAPTER_REMOVED ADAPTER:1::NAME:rxe1",
    "ADAPTER_REMOVED ADAPTER:0::NAME:rxe0",
    "ADAPTER_UNAVAILABLE ",
    "ADAPTER_AVAILABLE NUM_ADAPTERS:1",
    "ADAPTER_INFO ADAPTER:0::NAME:rxe0::PORTS:1",
    "PORT_INFO ADAPTER:0::PORT:1::STATE:ACTIVE",
    "PORT_ERR ADAPTER:0::PORT:1",
    // Without the library.
    "ADAPTER_AVAILABLE NUM_ADAPTERS:1",
    "ADAPTER_INFO ADAPTER:0::NAME:rxe0::PORTS:1",
    "PORT_INFO ADAPTER:0::PORT:1::STATE:DOWN",
    "PORT_ACTIVE ADAPTER:0::PORT:1",
    "EVENT_LID_CHANGE ADAPTER:0::PORT:1",
];

/// Removes the events of the flapping port. They alternate and end with an active port; their
/// number is not fixed.
fn check_and_cut_flapping(events: &mut Vec<String>) {
    let start = events.iter().position(|line| line.contains("DEVICE_FATAL")).unwrap() + 1;
    let length = events[start..].iter().position(|line| line.contains("ADAPTER_AVAIL")).unwrap();
    let lines: Vec<_> = events.drain(start..start + length).collect();
    assert!(length >= 2 && length % 2 == 0, "{lines:?}");
    for pair in lines.chunks(2) {
        assert_eq!(pair, ["PORT_ERR ADAPTER:0::PORT:1", "PORT_ACTIVE ADAPTER:0::PORT:1"]);
    }
}

#[test]
fn a_subscriber_receives_every_event_of_soft_roce_adapters() {
    let Some(events) = run_scenario().unwrap() else {
        return;
    };
    let (free, ordered): (Vec<_>, Vec<_>) =
        events.iter().partition(|event| ANY_TIME.iter().any(|name| is(event, name)));
    let mut ordered: Vec<_> = ordered
        .iter()
        .map(|event| {
            let name = event["name"].as_str().unwrap().trim_start_matches("FTB_IB_");
            format!("{name} {}", event["payload"].as_str().unwrap())
        })
        .collect();
    check_and_cut_flapping(&mut ordered);
    assert_eq!(ordered.get(..EXPECTED.len()).unwrap_or(&ordered), EXPECTED);

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

/// The clock counts the instructions of the whole guest, one nanosecond each. The load of this
/// machine does not change the result.
#[test]
#[ignore = "takes minutes, needs programs built with --release: `make test-long` runs it"]
fn a_subscriber_receives_an_event_within_five_milliseconds() {
    const LIMIT_US: u64 = 5_000;
    let Some(guest) = guest("latency.sh").unwrap().map(Guest::instruction_clock) else { return };
    if guest.run(2 * DEADLINE_S).unwrap().is_none() {
        return;
    }
    let latency = fs::read_to_string(guest.share().join("latency.json")).unwrap();
    println!("event to subscriber, a nanosecond an instruction: {latency}");
    let latency: Value = serde_json::from_str(&latency).unwrap();
    assert_eq!(latency["events"], 300, "{latency}");
    assert!(latency["got_p99_us"].as_u64().is_some_and(|us| us < LIMIT_US), "{latency}");
}
