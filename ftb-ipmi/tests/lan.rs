//! Sessions with a real BMC implementation over RMCP+ and IPMI 1.5.
#![allow(clippy::unwrap_used)]

mod common;

use common::proxy::Proxy;
use ftb_ipmi::bmc::{Bmc, CipherSuite, LanConfig, Protocol, Target};
use ftb_ipmi::inventory;
use ftb_ipmi::watch::read_once;
use ftb_tests::bmc::{Names, PASSWORD, SATELLITE, SENSORS, Setup, SimulatedBmc, USER};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

fn target(port: u16, protocol: Protocol) -> Target {
    Target::Lan(LanConfig {
        host: "127.0.0.1".to_owned(),
        port,
        user: USER.to_owned(),
        password: PASSWORD.to_owned(),
        group_key: None,
        privilege: 2,
        protocol,
        // Only failing tests reach these limits.
        timeout: Duration::from_secs(1),
        retries: 20,
    })
}

const SUITE_3: Protocol = Protocol::RmcpPlus([Some(CipherSuite::Three), None]);

#[tokio::test]
async fn every_sensor_has_the_reading_of_the_tables() {
    let simulated = SimulatedBmc::start().unwrap();
    let mut bmc = Bmc::connect(&target(simulated.port(), SUITE_3)).await.unwrap();
    let inventory = inventory::read(&mut bmc, &[], &mut None).await.unwrap();
    assert_eq!(inventory.watched.len(), SENSORS);
    let rows = read_once(&mut bmc, inventory.watched).await.unwrap();
    let reading = |name: &str| {
        let (watched, reading) = rows.iter().find(|(w, _)| w.sensor.name == name).unwrap();
        (*reading.as_ref().unwrap(), watched.sensor.entity.to_string(), watched.sensor.unit.clone())
    };
    let value = |name: &str| reading(name).0.value.unwrap();
    for (name, expected) in [
        ("BB +1.2V Vtt", 1.20),
        ("BB +12V AUX", 12.033),
        ("Baseboard Temp", 29.0),
        ("P1 Therm Margin", -40.0),
        ("P2 Therm Margin", -41.0),
        ("CPU 1 FAN", 2244.0),
        ("SYS FAN 2 TACH", 17850.0),
        ("SYS FAN 5 TACH", 4000.0),
    ] {
        assert!((value(name) - expected).abs() < 1e-6, "{name}: {}", value(name));
    }
    assert_eq!(reading("CPU 2 FAN").1, "29.3");
    assert_eq!(reading("P2 Therm Margin").2, "degrees C");
    assert_eq!(reading("DIMM A1").0.states, 0x40);
    let tachometer = rows.iter().find(|(w, _)| w.sensor.name == "SYS FAN 5 TACH").unwrap();
    let low = tachometer.0.limits[1].unwrap();
    assert!((low - 751.88).abs() < 0.1, "a period's upper threshold is a lower limit: {low}");
    bmc.close().await;
}

#[tokio::test]
async fn six_bit_names_are_decoded() {
    let simulated =
        SimulatedBmc::start_with(Setup { names: Names::SixBit, ..Setup::default() }).unwrap();
    let mut bmc = Bmc::connect(&target(simulated.port(), SUITE_3)).await.unwrap();
    let inventory = inventory::read(&mut bmc, &[], &mut None).await.unwrap();
    let names: Vec<_> = inventory.watched.iter().map(|w| w.sensor.name.as_str()).collect();
    assert!(names.contains(&"CPU 1 FAN"), "{names:?}");
}

#[tokio::test]
async fn ipmi_1_5_reads_the_same_with_every_authentication() {
    for auths in ["md5", "md2", "straight"] {
        let simulated = SimulatedBmc::start_with(Setup { auths, ..Setup::default() }).unwrap();
        let mut bmc = Bmc::connect(&target(simulated.port(), Protocol::Ipmi15)).await.unwrap();
        let inventory = inventory::read(&mut bmc, &[], &mut None).await.unwrap();
        let rows = read_once(&mut bmc, inventory.watched).await.unwrap();
        let fan = rows.iter().find(|(w, _)| w.sensor.name == "CPU 1 FAN").unwrap();
        assert_eq!(fan.1.as_ref().unwrap().value, Some(2244.0), "{auths}");
        bmc.close().await;
    }
}

/// Add SDR with an event-only record, as the update program of a board sends it.
fn add_record(simulated: &SimulatedBmc) {
    let record = "0 0 0x51 3 14 0x20 0 0x23 6 1 0x0c 0x6f 1 0 0 0 0xc2 0x45 0x43";
    // The simulator takes the sixth byte, the owner, for the length.
    let filling = ["0"; 0x20 + 6 - 19];
    let arguments =
        format!("-I lanplus -C 3 -H 127.0.0.1 -U {USER} -P {PASSWORD} -p {}", simulated.port());
    let output = Command::new("ipmitool")
        .args(arguments.split(' '))
        .args(["raw", "0x0a", "0x24"])
        .args(record.split(' '))
        .args(filling)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn a_new_session_reads_the_records_again_only_if_they_have_changed() {
    let simulated = SimulatedBmc::start().unwrap();
    let (mut known, mut fingerprints) = (None, Vec::new());
    for session in 0..3 {
        if session == 2 {
            add_record(&simulated);
        }
        let mut bmc = Bmc::connect(&target(simulated.port(), SUITE_3)).await.unwrap();
        let inventory = inventory::read(&mut bmc, &[], &mut known).await.unwrap();
        assert_eq!(inventory.watched.len(), if session == 2 { SENSORS + 1 } else { SENSORS });
        fingerprints.push((bmc.commands(), known.is_some()));
        bmc.close().await;
    }
    let [first, second, third] = fingerprints[..] else { unreachable!() };
    assert!(first.1 && second.0 + 100 < first.0, "{first:?}, {second:?}");
    assert!(third.0 >= first.0, "{first:?}, {third:?}");
}

#[tokio::test]
async fn a_sensor_behind_the_bmc_is_read_or_unavailable() {
    let simulated =
        SimulatedBmc::start_with(Setup { satellite: true, ..Setup::default() }).unwrap();
    let mut bmc = Bmc::connect(&target(simulated.port(), SUITE_3)).await.unwrap();
    let inventory = inventory::read(&mut bmc, &[], &mut None).await.unwrap();
    let rows = read_once(&mut bmc, inventory.watched.clone()).await.unwrap();
    let (fan, reading) = rows.iter().find(|(w, _)| w.sensor.name == "REAR FAN").unwrap();
    assert_eq!(reading.as_ref().unwrap().value, Some(3300.0));
    assert_eq!(fan.limits[1], Some(660.0), "the BMC relays its thresholds too");

    simulated.console(&format!("mc_disable {SATELLITE}")).unwrap();
    let rows = read_once(&mut bmc, inventory.watched).await.unwrap();
    let reading = |name: &str| &rows.iter().find(|(w, _)| w.sensor.name == name).unwrap().1;
    let why = reading("REAR FAN").as_ref().unwrap_err();
    assert_eq!(why, "the controller 0x2c behind the BMC does not answer");
    assert!(reading("CPU 1 FAN").is_ok());
}

#[tokio::test]
async fn the_default_is_the_best_suite_of_the_bmc() {
    let simulated = SimulatedBmc::start().unwrap();
    let mut bmc = Bmc::connect(&target(simulated.port(), Protocol::RMCP_PLUS)).await.unwrap();
    assert_eq!(inventory::read(&mut bmc, &[], &mut None).await.unwrap().watched.len(), SENSORS);
}

/// The proxy acts as an attacker on the network: it drops RMCP+ and denies that the BMC has it.
#[tokio::test]
async fn no_forged_answer_forces_a_login_of_ipmi_1_5() {
    let simulated = SimulatedBmc::start().unwrap();
    let proxy = Proxy::start(simulated.port());
    proxy.hide_rmcp_plus();
    let address: SocketAddr = proxy.address().parse().unwrap();
    for protocol in [Protocol::RMCP_PLUS, SUITE_3] {
        let Target::Lan(config) = target(address.port(), protocol) else { unreachable!() };
        let impatient = LanConfig { timeout: Duration::from_millis(300), retries: 3, ..config };
        let error = Bmc::connect(&Target::Lan(impatient)).await.err().unwrap();
        assert!(error.is_permanent(), "{error}");
        assert!(error.to_string().contains("does not offer RMCP+"), "{error}");
    }
    assert!(proxy.logins() >= 2, "the BMC was asked for RMCP+");
    assert_eq!(proxy.challenges(), 0, "no login of IPMI 1.5 began");
    // On request it works, so the proxy forwards such a login.
    let mut bmc = Bmc::connect(&target(address.port(), Protocol::Ipmi15)).await.unwrap();
    assert_eq!(inventory::read(&mut bmc, &[], &mut None).await.unwrap().watched.len(), SENSORS);
    assert!(proxy.challenges() > 0);
}

#[tokio::test]
async fn a_wrong_password_and_an_unknown_user_are_named_and_permanent() {
    let simulated = SimulatedBmc::start().unwrap();
    for protocol in [SUITE_3, Protocol::Ipmi15] {
        let Target::Lan(right) = target(simulated.port(), protocol) else { unreachable!() };
        let wrong = LanConfig {
            password: "wrong".to_owned(),
            // A BMC with IPMI 1.5 does not answer that.
            timeout: Duration::from_millis(500),
            retries: 8,
            ..right.clone()
        };
        let error = Bmc::connect(&Target::Lan(wrong)).await.err().unwrap();
        assert!(error.is_permanent(), "{error}");
        assert!(error.to_string().contains("password"), "{protocol:?}: {error}");
        let unknown = LanConfig { user: "unknown".to_owned(), ..right };
        let error = Bmc::connect(&Target::Lan(unknown)).await.err().unwrap();
        assert!(error.is_permanent(), "{error}");
        assert!(error.to_string().contains("no such user"), "{protocol:?}: {error}");
    }
}

#[tokio::test]
async fn a_password_too_long_for_ipmi_1_5_is_reported() {
    let auths = "md5";
    let simulated = SimulatedBmc::start_with(Setup { auths, ..Setup::default() }).unwrap();
    let Target::Lan(config) = target(simulated.port(), Protocol::Ipmi15) else { unreachable!() };
    let password = "x".repeat(17);
    let error = Bmc::connect(&Target::Lan(LanConfig { password, ..config })).await.err().unwrap();
    assert!(error.is_permanent() && error.to_string().contains("at most 16 bytes"), "{error}");
}

#[tokio::test]
async fn a_bmc_without_suite_17_refuses_it() {
    let simulated = SimulatedBmc::start().unwrap();
    let suites = Protocol::RmcpPlus([Some(CipherSuite::Seventeen), None]);
    let error = Bmc::connect(&target(simulated.port(), suites)).await.err().unwrap();
    assert!(error.to_string().contains("cipher suite"), "{error}");
}
