//! The daemon on a real kernel driver: a guest under QEMU with a simulated BMC behind `/dev/ipmi0`
//! (`tests/hardware/ipmi/scenario.sh`), and the events that a subscriber receives.
#![allow(clippy::unwrap_used)]

use ftb_tests::bmc::{SENSORS, Setup, SimulatedBmc};
use ftb_tests::cluster::binary;
use ftb_tests::guest::{Guest, hardware};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const DEADLINE_S: u32 = 240;

/// Performs the step of the scenario at each mark of the guest.
fn play(bmc: &SimulatedBmc, share: &Path, is_over: &AtomicBool) {
    type Step = (&'static str, fn(&SimulatedBmc) -> std::io::Result<()>);
    const STEPS: [Step; 6] = [
        ("fan-fails", |bmc| bmc.set("cpu1_fan", 528)),
        ("fan-recovers", |bmc| bmc.set("cpu1_fan", 2244)),
        ("bmc-hangs", SimulatedBmc::pause),
        ("bmc-returns", SimulatedBmc::resume),
        ("node-overheats", |bmc| {
            bmc.set("p2_margin", -2)?;
            bmc.set("baseboard_temp", 70)
        }),
        ("node-cools", |bmc| {
            bmc.set("p2_margin", -41)?;
            bmc.set("baseboard_temp", 29)
        }),
    ];
    for (mark, step) in STEPS {
        let path = share.join(format!("mark.{mark}"));
        while !path.exists() {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        step(bmc).unwrap();
    }
}

#[test]
fn a_subscriber_receives_every_event_of_a_bmc_behind_the_kernel_driver() {
    let bmc = SimulatedBmc::start_with(Setup { satellite: true, ..Setup::default() }).unwrap();
    let ours = hardware().join("ipmi");
    let chardev = format!("socket,id=bmc0c,host=127.0.0.1,port={},reconnect=1", bmc.machine_port());
    let mut guest = Guest::new(&ours.join("scenario.sh"))
        .unwrap()
        .modules(&["ipmi_msghandler", "ipmi_devintf", "ipmi_si"])
        .program(env!("CARGO_BIN_EXE_ftb-ipmi"))
        .program(binary("ftb-agent", "ftb-agent").unwrap())
        .program(binary("ftbctl", "ftbctl").unwrap())
        .qemu(&["-chardev", &chardev])
        .qemu(&["-device", "ipmi-bmc-extern,id=bmc0,chardev=bmc0c"])
        .qemu(&["-device", "isa-ipmi-kcs,bmc=bmc0,irq=5"]);
    for name in ["agent.toml", "fast.toml", "slow.toml"] {
        guest = guest.file(&ours.join(name), &format!("/etc/ftb/{name}"));
    }
    let is_over = AtomicBool::new(false);
    let share = guest.share();
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| play(&bmc, &share, &is_over));
        let ran = guest.run(DEADLINE_S);
        is_over.store(true, Ordering::Relaxed);
        ran
    });
    if ran.unwrap().is_none() {
        return;
    }
    let lines = |name: &str| -> Vec<Value> {
        let text = fs::read_to_string(share.join(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let sensors = lines("once.jsonl");
    assert_eq!(sensors.len(), SENSORS + 1);
    // The second belongs to another controller: the kernel relays.
    for (name, reading) in [("CPU 1 FAN", 2244.0), ("REAR FAN", 3300.0)] {
        let fan = sensors.iter().find(|sensor| sensor["sensor"] == name).unwrap();
        assert_eq!((&fan["reading"], &fan["verdict"]), (&reading.into(), &"ok".into()));
    }

    let mut names: Vec<_> = lines("events.jsonl")
        .iter()
        .map(|event| event["name"].as_str().unwrap().trim_start_matches("FTB_IPMI_").to_owned())
        // A publisher that an overloaded machine made an agent lose states its conditions again.
        .filter(|name| name != "TRIAL" && name != "FTB_CONDITION")
        .collect();
    let expected = [
        "NORMAL",
        "FANFAIL",
        "SENSOR_CLEARED",
        "NORMAL",
        "BMC_LOST",
        "BMC_BACK",
        "NORMAL",
        "NORMAL",
        "OVERTEMP",
        "OVERTEMP",
        "SENSOR_CLEARED",
        "SENSOR_CLEARED",
        "NORMAL",
    ];
    names.truncate(expected.len() + 1);
    assert_eq!(names, expected, "once each, in the order of the scenario");
}
