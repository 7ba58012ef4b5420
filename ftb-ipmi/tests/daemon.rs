//! The daemon as a process, with a real BMC implementation: its events and their order, and its
//! reaction to bad input.
#![allow(clippy::unwrap_used)]

mod common;

use common::Daemon;
use common::proxy::{Proxy, Treatment};
use ftb_tests::bmc::{PASSWORD, SATELLITE, Setup, SimulatedBmc, USER, write_private};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

fn config(targets: &str) -> String {
    format!("interval = '200ms'\nsel_interval = '200ms'\n{targets}")
}

/// Settings for a BMC that answers during the whole test. A slow machine does not lose it.
const PATIENTLY: &str = "timeout = '500ms'\nretries = 20\n";
/// Settings for a BMC that the test makes silent.
const BRIEFLY: &str = "timeout = '300ms'\nretries = 12\n";

fn target(bmc: &SimulatedBmc, node: &str, settings: &str) -> String {
    format!(
        "[[target]]\nbmc = '{}'\nnode = '{node}'\nuser = '{USER}'\npassword = '{PASSWORD}'\n\
         cipher_suite = 3\n{settings}",
        bmc.address()
    )
}

#[test]
fn a_fan_fails_and_recovers_once_with_the_node_as_payload() {
    let bmc = SimulatedBmc::start().unwrap();
    let mut daemon = Daemon::start(&config(&target(&bmc, "node001", PATIENTLY)));
    let first = daemon.await_event("FTB_IPMI_NORMAL");
    assert_eq!(first["payload"], "node001");
    assert_eq!(first["tags"]["previous"], "unknown");

    bmc.set("cpu1_fan", 528).unwrap();
    let failed = daemon.await_event("FTB_IPMI_FANFAIL");
    assert_eq!(failed["payload"], "node001");
    assert_eq!(failed["space"], "ftb.ipmi");
    assert_eq!(failed["severity"], "ERROR");
    assert_eq!(failed["tags"]["sensor"], "CPU 1 FAN");
    assert_eq!(failed["tags"]["reading"], "528");
    assert_eq!(failed["tags"]["threshold"], "660");
    assert_eq!(failed["tags"]["cause"], "below_threshold");

    bmc.set("p1_margin", -3).unwrap();
    let hot = daemon.await_event("FTB_IPMI_OVERTEMP");
    assert_eq!(hot["tags"]["sensor"], "P1 Therm Margin");
    assert_eq!(hot["tags"]["entity_name"], "processor");

    bmc.set("cpu1_fan", 2244).unwrap();
    assert_eq!(daemon.await_event("FTB_IPMI_SENSOR_CLEARED")["tags"]["sensor"], "CPU 1 FAN");
    bmc.set("p1_margin", -40).unwrap();
    let normal = daemon.await_event("FTB_IPMI_NORMAL");
    assert_eq!(normal["tags"]["previous"], "failing");
    let names = daemon.names();
    let count = |name: &str| names.iter().filter(|other| *other == name).count();
    assert_eq!((count("FTB_IPMI_FANFAIL"), count("FTB_IPMI_OVERTEMP")), (1, 1), "{names:?}");
    assert_eq!(count("FTB_IPMI_NORMAL"), 2, "{names:?}");
    assert!(daemon.stop().success());
}

#[test]
fn power_supply_memory_and_voltage_have_events_of_their_own() {
    let bmc = SimulatedBmc::start().unwrap();
    let mut daemon = Daemon::start(&config(&target(&bmc, "node001", PATIENTLY)));
    daemon.await_event("FTB_IPMI_NORMAL");
    bmc.set("ps1", 0b11).unwrap();
    assert_eq!(daemon.await_event("FTB_IPMI_PSUFAIL")["tags"]["state"], "1");
    bmc.set("dimm_b1", 0x42).unwrap();
    let memory = daemon.await_event("FTB_IPMI_MEMERR");
    assert_eq!(
        (&memory["tags"]["sensor"], &memory["severity"]),
        (&"DIMM B1".into(), &"ERROR".into())
    );
    bmc.set("v12_aux", 10_500).unwrap();
    assert_eq!(daemon.await_event("FTB_IPMI_VOLTAGE")["tags"]["sensor"], "BB +12V AUX");
    assert!(daemon.stop().success());
}

#[test]
fn a_hung_bmc_is_lost_and_delays_no_other() {
    let bmcs = [SimulatedBmc::start().unwrap(), SimulatedBmc::start().unwrap()];
    let targets = target(&bmcs[0], "node001", BRIEFLY) + &target(&bmcs[1], "node002", PATIENTLY);
    let mut daemon = Daemon::start(&config(&targets));
    let healthy = [daemon.await_event("FTB_IPMI_NORMAL"), daemon.await_event("FTB_IPMI_NORMAL")];
    assert_ne!(healthy[0]["payload"], healthy[1]["payload"]);

    bmcs[0].pause().unwrap();
    let lost = daemon.await_event("FTB_IPMI_BMC_LOST");
    assert_eq!((&lost["payload"], &lost["severity"]), (&"node001".into(), &"WARNING".into()));
    bmcs[1].set("cpu2_fan", 0).unwrap();
    let failed = daemon.await_event("FTB_IPMI_FANFAIL");
    assert_eq!(failed["payload"], "node002");
    assert_eq!(failed["tags"]["cause"], "zero");

    bmcs[0].resume().unwrap();
    assert_eq!(daemon.await_event("FTB_IPMI_BMC_BACK")["payload"], "node001");
    let normal = daemon.await_event("FTB_IPMI_NORMAL");
    assert_eq!(
        (&normal["payload"], &normal["tags"]["previous"]),
        (&"node001".into(), &"unknown".into())
    );
    assert!(daemon.stop().success());
}

#[test]
fn a_controller_behind_the_bmc_fails_is_lost_and_found() {
    let bmc = SimulatedBmc::start_with(Setup { satellite: true, ..Setup::default() }).unwrap();
    let mut daemon = Daemon::start(&config(&target(&bmc, "node001", PATIENTLY)));
    assert_eq!(daemon.await_event("FTB_IPMI_NORMAL")["tags"].get("unread"), None);
    bmc.set("rear_fan", 0).unwrap();
    assert_eq!(daemon.await_event("FTB_IPMI_FANFAIL")["tags"]["sensor"], "REAR FAN");
    bmc.set("rear_fan", 3300).unwrap();
    daemon.await_event("FTB_IPMI_NORMAL");

    bmc.console(&format!("mc_disable {SATELLITE}")).unwrap();
    let lost = daemon.await_event("FTB_IPMI_CONTROLLER_LOST");
    assert_eq!((&lost["payload"], &lost["severity"]), (&"node001".into(), &"WARNING".into()));
    assert_eq!(lost["tags"]["controller"], "0x2c");
    bmc.set("cpu1_fan", 0).unwrap();
    assert_eq!(daemon.await_event("FTB_IPMI_FANFAIL")["tags"]["sensor"], "CPU 1 FAN");
    bmc.set("cpu1_fan", 2244).unwrap();
    daemon.await_event("FTB_IPMI_SENSOR_CLEARED");

    bmc.console(&format!("mc_enable {SATELLITE}")).unwrap();
    daemon.await_event("FTB_IPMI_CONTROLLER_BACK");
    daemon.await_event("FTB_IPMI_NORMAL");
    let names = daemon.names();
    let normal = names.iter().filter(|name| *name == "FTB_IPMI_NORMAL").count();
    assert_eq!(normal, 3, "none while a controller is lost: {names:?}");
    assert!(daemon.stop().success());
}

#[test]
fn dead_and_hung_bmcs_of_a_rack_delay_no_other() {
    const COUNT: u8 = 6;
    let mut rack = SimulatedBmc::start_rack(11, COUNT).unwrap();
    let port = rack[0].port();
    // The last two do not exist.
    let text = config(&format!(
        "[[target]]\nbmc = '127.0.0.[11-18]:{port}'\nnode = 'node[001-008]'\nuser = '{USER}'\n\
         password = '{PASSWORD}'\ncipher_suite = 3\n{PATIENTLY}"
    ));
    let mut daemon = Daemon::start(&text);
    let mut normal: Vec<_> = (0..COUNT)
        .map(|_| daemon.await_event("FTB_IPMI_NORMAL")["payload"].as_str().unwrap().to_owned())
        .collect();
    normal.sort();
    let expected: Vec<_> = (1..=COUNT).map(|number| format!("node00{number}")).collect();
    assert_eq!(normal, expected);
    rack[0].pause().unwrap();
    rack[1].kill().unwrap();
    rack[5].set("cpu1_fan", 0).unwrap();
    assert_eq!(daemon.await_event("FTB_IPMI_FANFAIL")["payload"], "node006");
    rack[1].restart().unwrap();
    rack[0].resume().unwrap();
    rack[1].set("cpu1_fan", 0).unwrap();
    assert_eq!(daemon.await_event("FTB_IPMI_FANFAIL")["payload"], "node002");
    assert!(daemon.stop().success());
}

#[test]
fn a_bmc_that_restarts_is_logged_in_to_again_without_an_event() {
    let mut bmc = SimulatedBmc::start().unwrap();
    let mut daemon = Daemon::start(&config(&target(&bmc, "node001", PATIENTLY)));
    daemon.await_event("FTB_IPMI_NORMAL");
    bmc.kill().unwrap();
    bmc.restart().unwrap();
    bmc.set("cpu1_fan", 0).unwrap();
    daemon.await_event("FTB_IPMI_FANFAIL");
    let names = daemon.names();
    assert!(!names.iter().any(|name| name == "FTB_IPMI_BMC_LOST"), "{names:?}");
    assert!(daemon.stop().success());
}

#[test]
fn a_bmc_that_dies_is_lost_and_found() {
    let mut bmc = SimulatedBmc::start().unwrap();
    let mut daemon = Daemon::start(&config(&target(&bmc, "node001", BRIEFLY)));
    daemon.await_event("FTB_IPMI_NORMAL");
    bmc.kill().unwrap();
    let lost = daemon.await_event("FTB_IPMI_BMC_LOST");
    assert!(lost["tags"]["reason"].as_str().unwrap().contains("no answer"), "{lost}");
    bmc.restart().unwrap();
    daemon.await_event("FTB_IPMI_BMC_BACK");
    daemon.await_event("FTB_IPMI_NORMAL");
    assert!(daemon.stop().success());
}

/// A log entry of firmware about a corrected memory error.
fn memory_error(data: u8) -> String {
    log_entry(Origin::Firmware, [0x0C, 0x87, 0x6F, 0, data])
}

/// The author of a log entry.
#[derive(Clone, Copy, Debug)]
enum Origin {
    Bmc,
    Firmware,
}

/// The console command that adds an event to the log: type and number of the sensor, type of the
/// event, and two bytes of its data.
fn log_entry(origin: Origin, [kind, number, event, offset, data]: [u8; 5]) -> String {
    let generator = match origin {
        Origin::Bmc => 0x20,
        Origin::Firmware => 0x21,
    };
    format!("sel_add 0x20 2 0 0 0 0 {generator} 0 4 {kind} {number} {event} {offset} {data} 0xff")
}

#[test]
fn an_uncorrectable_memory_error_does_not_wait_behind_a_corrected_one() {
    let bmc = SimulatedBmc::start().unwrap();
    let mut daemon = Daemon::start(&config(&target(&bmc, "node001", PATIENTLY)));
    daemon.await_event("FTB_IPMI_NORMAL");
    for (origin, number) in [(Origin::Firmware, 0x87), (Origin::Bmc, 0xE0)] {
        for (offset, severity) in [(0, "WARNING"), (1, "ERROR")] {
            bmc.console(&log_entry(origin, [0x0C, number, 0x6F, offset, 7])).unwrap();
            let error = daemon.await_event("FTB_IPMI_MEMERR");
            let state = offset.to_string();
            assert_eq!(
                (&error["severity"], &error["tags"]["state"], &error["tags"]["count"]),
                (&severity.into(), &state.into(), &"1".into()),
                "{origin:?}: {error}"
            );
        }
    }
    assert!(daemon.stop().success());
}

#[test]
fn log_entries_during_a_restart_of_the_daemon_are_published() {
    let bmc = SimulatedBmc::start().unwrap();
    let state = tempfile::tempdir().unwrap();
    let text = format!(
        "state_dir = '{}'\n{}",
        state.path().display(),
        config(&target(&bmc, "node001", PATIENTLY))
    );
    bmc.console(&memory_error(1)).unwrap();
    let mut daemon = Daemon::start(&text);
    daemon.await_event("FTB_IPMI_NORMAL");
    daemon.await_file(&state.path().join("node001.sel"));
    assert!(
        !daemon.names().contains(&"FTB_IPMI_MEMERR".to_owned()),
        "entries before the first start are history"
    );
    assert!(daemon.stop().success());

    bmc.console(&memory_error(2)).unwrap();
    let mut daemon = Daemon::start(&text);
    let error = daemon.await_event("FTB_IPMI_MEMERR");
    assert_eq!(error["severity"], "WARNING");
    assert_eq!(error["tags"]["lasting"], "false");
    assert!(error["tags"]["reason"].as_str().unwrap().contains("0x87"));
    assert!(daemon.stop().success());
}

#[test]
fn the_first_log_entry_is_published_even_if_it_came_during_a_restart() {
    let bmc = SimulatedBmc::start().unwrap();
    let state = tempfile::tempdir().unwrap();
    let text = format!(
        "state_dir = '{}'\n{}",
        state.path().display(),
        config(&target(&bmc, "node001", PATIENTLY))
    );
    let mut daemon = Daemon::start(&text);
    daemon.await_event("FTB_IPMI_NORMAL");
    let bookmark = state.path().join("node001.sel");
    daemon.await_file(&bookmark);
    assert_eq!(std::fs::read_to_string(&bookmark).unwrap(), "0 0\n", "the log is empty");
    assert!(daemon.stop().success());

    bmc.console(&memory_error(1)).unwrap();
    let mut daemon = Daemon::start(&text);
    daemon.await_event("FTB_IPMI_MEMERR");
    assert!(daemon.stop().success());
}

#[test]
fn odd_names_and_thresholds_neither_hide_a_fault_nor_invent_one() {
    let bmc = SimulatedBmc::start_with(Setup { is_odd: true, ..Setup::default() }).unwrap();
    let mut daemon = Daemon::start(&config(&target(&bmc, "node001", PATIENTLY)));
    daemon.await_event("FTB_IPMI_NORMAL");
    for (file, sensor) in [
        ("dimm_margin", "DIMM Thrm Mrgn 1"),
        ("p1_dts_margin", "P1 DTS Therm Mgn"),
        ("cpu2_dts", "CPU2 DTS"),
    ] {
        bmc.set(file, -1).unwrap();
        let hot = daemon.await_event("FTB_IPMI_OVERTEMP");
        assert_eq!(
            (&hot["tags"]["sensor"], &hot["tags"]["threshold"]),
            (&sensor.into(), &"-5".into()),
            "{hot}"
        );
    }
    bmc.set("sys_fan6_period", 250).unwrap();
    let slow = daemon.await_event("FTB_IPMI_FANFAIL");
    assert_eq!(
        (&slow["tags"]["sensor"], &slow["tags"]["reading"], &slow["tags"]["threshold_name"]),
        (&"SYS FAN 6 TACH".into(), &"400".into(), &"lower_critical".into()),
        "{slow}"
    );
    let names = daemon.names();
    let hot = names.iter().filter(|name| *name == "FTB_IPMI_OVERTEMP").count();
    assert_eq!(hot, 3, "thresholds of 0 cause no fault: {names:?}");
    assert!(daemon.stop().success());
}

#[test]
fn failed_processors_hot_states_and_bus_errors_are_published() {
    let bmc = SimulatedBmc::start_with(Setup { is_odd: true, ..Setup::default() }).unwrap();
    let mut daemon = Daemon::start(&config(&target(&bmc, "node001", PATIENTLY)));
    daemon.await_event("FTB_IPMI_NORMAL");
    let mut expect = |name: &str, severity: &str, state: &str| {
        let event = daemon.await_event(name);
        let found = (&event["severity"], &event["tags"]["state"]);
        assert_eq!(found, (&severity.into(), &state.into()), "{event}");
    };
    bmc.set("cpu1_overheat", 0b10).unwrap();
    expect("FTB_IPMI_OVERTEMP", "ERROR", "1");
    // Presence, and the processor's internal error.
    bmc.set("p1_status", 0x81).unwrap();
    expect("FTB_IPMI_CPUFAIL", "FATAL", "0");
    for (origin, number) in [(Origin::Bmc, 0xF2), (Origin::Firmware, 0x05)] {
        for (state, severity) in [(5, "ERROR"), (7, "WARNING"), (10, "FATAL")] {
            bmc.console(&log_entry(origin, [0x13, number, 0x6F, state, 0xFF])).unwrap();
            expect("FTB_IPMI_CRITICAL_INTERRUPT", severity, &state.to_string());
        }
    }
    bmc.console(&log_entry(Origin::Firmware, [0x07, 0x90, 0x6F, 0, 0xFF])).unwrap();
    expect("FTB_IPMI_CPUFAIL", "FATAL", "0");
    assert!(daemon.stop().success());
}

#[test]
fn a_log_that_is_full_or_drops_events_is_published_until_it_is_cleared() {
    let bmc = SimulatedBmc::start_with(Setup { log_entries: 2, ..Setup::default() }).unwrap();
    let mut daemon = Daemon::start(&config(&target(&bmc, "node001", PATIENTLY)));
    daemon.await_event("FTB_IPMI_NORMAL");
    for (entries, cause) in [(2, "full"), (1, "overflow")] {
        for number in 0..entries {
            let _ = bmc.console(&memory_error(number));
        }
        let full = daemon.await_event("FTB_IPMI_SEL_FULL");
        assert_eq!(
            (&full["severity"], &full["tags"]["cause"]),
            (&"WARNING".into(), &cause.into()),
            "{full}"
        );
    }
    let login = format!("-I lanplus -C 3 -H 127.0.0.1 -U {USER} -P {PASSWORD} -p {}", bmc.port());
    let clear = Command::new("ipmitool").args(login.split(' ')).args(["sel", "clear"]).output();
    let clear = clear.unwrap();
    assert!(clear.status.success(), "{}", String::from_utf8_lossy(&clear.stderr));
    daemon.await_event("FTB_IPMI_SEL_CLEARED");
    assert!(daemon.stop().success());
}

#[test]
fn reading_of_a_refused_log_continues_when_the_bmc_answers() {
    const ERASE_IN_PROGRESS: Treatment = Treatment::Refuse(0x81);
    const INVALID_COMMAND: Treatment = Treatment::Refuse(0xC1);
    // Without encryption and signature, so that the proxy can change answers.
    let mut bmc = SimulatedBmc::start_with(Setup { auths: "none", ..Setup::default() }).unwrap();
    let proxy = Proxy::start(bmc.port());
    let mut daemon = Daemon::start(&config(&format!(
        "[[target]]\nbmc = '{}'\nnode = 'node001'\nuser = '{USER}'\nprotocol = 'ipmi-1.5'\n\
         {BRIEFLY}",
        proxy.address()
    )));
    daemon.await_event("FTB_IPMI_NORMAL");
    // The second reading of the log begins after the first one has found where the log ends.
    proxy.treat(Treatment::Pass, 2);
    let uncorrectable = |sensor| log_entry(Origin::Bmc, [0x0C, sensor, 0x6F, 1, 7]);
    for (treatment, sensor) in [(ERASE_IN_PROGRESS, 0xE0), (Treatment::Shorten, 0xE2)] {
        proxy.treat(treatment, 2);
        bmc.console(&uncorrectable(sensor)).unwrap();
        proxy.treat(Treatment::Pass, 0);
        let error = daemon.await_event("FTB_IPMI_MEMERR");
        let number = format!("{sensor:#04x}");
        assert_eq!(
            (&error["severity"], &error["tags"]["sensor_number"]),
            (&"ERROR".into(), &number.into()),
            "{treatment:?}"
        );
    }
    // After the answer "no event log", only a new session tries again.
    proxy.treat(INVALID_COMMAND, 1);
    proxy.treat(Treatment::Pass, 0);
    bmc.console(&uncorrectable(0xE4)).unwrap();
    bmc.kill().unwrap();
    bmc.restart().unwrap();
    let error = daemon.await_event("FTB_IPMI_MEMERR");
    assert_eq!(error["tags"]["sensor"], "DIMM C1");
    assert!(daemon.stop().success());
}

#[test]
fn the_dry_run_shows_every_sensor_with_its_verdict() {
    let bmc = SimulatedBmc::start_with(Setup { is_odd: true, ..Setup::default() }).unwrap();
    bmc.set("sys_fan3", 300).unwrap();
    bmc.set("cpu2_dts", 45).unwrap();
    let run = |flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ftb-ipmi"));
        command.args(["--bmc", &bmc.address(), "--node", "node001", "--user", USER, "--once"]);
        let output = command.args(flags).env("FTB_IPMI_PASSWORD", PASSWORD).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    // The simulator reads its files ten times per second.
    let is_ready = |table: &String| table.contains("BAD") && table.contains("45 degrees");
    let table = common::until_some("a bad fan", || Some(run(&[])).filter(is_ready));
    let line = |name: &str| {
        let line = table.lines().find(|line| line.contains(name)).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(line("SYS FAN 3 TACH").ends_with("BAD (below_threshold)"), "{table}");
    assert!(line("CPU 1 FAN").contains("2244 RPM <= 660 ok"), "{table}");
    assert!(line("CPU2 DTS").ends_with("45 degrees C no limits"), "{table}");
    assert!(line("DIMM A1").ends_with("ok"), "{table}");
    assert!(line("P1 Therm Margin").contains("-40 degrees C >= -5"), "{table}");
    let objects: Vec<serde_json::Value> =
        run(&["--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), ftb_tests::bmc::SENSORS + ftb_tests::bmc::ODD_SENSORS);
    let margin = objects.iter().find(|o| o["sensor"] == "P2 Therm Margin").unwrap();
    assert_eq!((&margin["reading"], &margin["entity"]), (&(-41.0).into(), &"3.2".into()));
    assert_eq!(margin["thresholds"]["upper_critical"], -5.0);
}

#[test]
fn a_closed_pipe_is_no_failure_and_a_full_disk_is_one() {
    let bmc = SimulatedBmc::start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ipmi.toml");
    write_private(&path, &config(&target(&bmc, "node001", PATIENTLY))).unwrap();
    for flag in ["--print", "--once"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ftb-ipmi"));
        command.arg("--config").arg(&path).arg(flag);
        let mut unread = command.stdout(Stdio::piped()).spawn().unwrap();
        drop(unread.stdout.take());
        assert!(unread.wait().unwrap().success(), "{flag}");
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let status = command.stdout(full).status().unwrap();
        assert_eq!(status.code(), Some(1), "{flag}");
    }
}

#[test]
fn bad_input_gives_one_line_and_exit_code_64() {
    let bmc = SimulatedBmc::start().unwrap();
    let good = target(&bmc, "node001", PATIENTLY);
    let wrong_password = good.replace(PASSWORD, "wrong");
    let no_suite = good.replace("cipher_suite = 3", "cipher_suite = 17");
    let rule = format!("{good}[[rule]]\nname = 'CHASSIS FAN'\n");
    let no_device = "[[target]]\nbmc = '/dev/no-ipmi'\nnode = 'n'\n";
    for (text, expected) in [
        (wrong_password.as_str(), "the password is wrong: correct password, password_file or"),
        (&no_suite, "cipher suite: set another cipher_suite, or none"),
        (&rule, "name = \"CHASSIS FAN\" matches no sensor"),
        (no_device, "/dev/no-ipmi"),
        ("[[target]]\nbmc = 'b'\ncipher_siute = 3\n", "line 5: unknown field `cipher_siute`"),
    ] {
        for flag in ["--print", "--once"] {
            let (code, line) = common::run_to_end(&config(text), flag);
            assert_eq!(code, Some(64), "{text}: {line}");
            assert!(line.contains(expected), "{line}");
        }
    }
}

#[test]
fn a_wrong_password_is_tried_once_and_reported_once_without_a_table() {
    let bmc = SimulatedBmc::start().unwrap();
    let proxy = Proxy::start(bmc.port());
    let wrong = target(&bmc, "node001", PATIENTLY).replace(PASSWORD, "wrong");
    let wrong = wrong.replace(&bmc.address(), &proxy.address());
    let output = common::output_of(&config(&wrong), "--once");
    let (text, errors) = (output.stdout, String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(64), "{errors}");
    assert_eq!(String::from_utf8(text).unwrap(), "", "no table");
    assert_eq!(errors.matches("the password is wrong").count(), 1, "{errors}");
    assert_eq!(proxy.logins(), 1, "BMCs count wrong passwords");
}

#[test]
fn a_missing_password_fails_the_check_and_a_public_one_every_start() {
    let good = "[[target]]\nbmc = 'b'\nnode = 'n'\nuser = 'ftb'\n";
    let (code, line) = common::run_to_end(good, "--check-config");
    assert_eq!(code, Some(64), "{line}");
    assert!(line.contains("no password for bmc \"b\""), "{line}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bmc.password");
    let with_file = format!("{good}password_file = '{}'\n", path.display());
    std::fs::write(&path, "secret\n").unwrap();
    for (mode, expected) in [(0o644, Some(64)), (0o640, Some(64)), (0o600, Some(0))] {
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let (code, line) = common::run_to_end(&with_file, "--check-config");
        assert_eq!(code, expected, "{mode:o}: {line}");
        assert_eq!(line.contains("other users can read"), expected == Some(64), "{line}");
        if expected == Some(64) {
            let (code, line) = common::run_to_end(&with_file, "--print");
            assert_eq!(code, Some(64), "{line}");
            assert!(line.contains("other users can read"), "{line}");
        }
    }
}

#[test]
fn a_missing_bmc_fails_the_dry_run_and_not_the_daemon() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let text = format!(
        "[[target]]\nbmc = '127.0.0.1:{port}'\nnode = 'n1'\ntimeout = '20ms'\nretries = 1\n"
    );
    let (code, line) = common::run_to_end(&text, "--once");
    assert_eq!(code, Some(1), "{line}");
    assert!(line.contains("no answer from 127.0.0.1"), "{line}");
    assert!(line.contains("check that it is up"), "{line}");
    let unknown = text.replace(&format!("127.0.0.1:{port}"), "bmc.invalid");
    let (code, line) = common::run_to_end(&unknown, "--once");
    assert_eq!(code, Some(1), "{line}");
    assert!(line.contains("bmc.invalid") && line.contains("check the name of the BMC"), "{line}");
    let mut daemon = Daemon::start(&text);
    daemon.await_event("FTB_IPMI_BMC_LOST");
    assert!(daemon.stop().success());
}
