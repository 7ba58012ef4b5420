//! The session against a real BMC implementation over RMCP+ and IPMI 1.5, and against a network
//! that loses, repeats, delays and damages packets.
#![allow(clippy::unwrap_used)]

use ftb_ipmi::bmc::{Bmc, CipherSuite, LanConfig, Protocol, Target};
use ftb_ipmi::inventory;
use ftb_ipmi::watch::read_once;
use ftb_tests::bmc::{Names, PASSWORD, SENSORS, SimulatedBmc, USER};
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
        timeout: Duration::from_millis(500),
        retries: 5,
    })
}

const SUITE_3: Protocol = Protocol::RmcpPlus([Some(CipherSuite::Three), None]);

#[tokio::test]
async fn every_sensor_of_the_tables_reads_as_in_the_tables() {
    let simulated = SimulatedBmc::start().unwrap();
    let mut bmc = Bmc::connect(&target(simulated.port(), SUITE_3)).await.unwrap();
    let inventory = inventory::read(&mut bmc, &[]).await.unwrap();
    assert_eq!(inventory.watched.len(), SENSORS);
    let rows = read_once(&mut bmc, inventory.watched).await.unwrap();
    let reading = |name: &str| {
        let (watched, reading) = rows.iter().find(|(w, _)| w.sensor.name == name).unwrap();
        (reading.unwrap(), watched.sensor.entity.to_string(), watched.sensor.unit.clone())
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
async fn names_packed_in_six_bits_are_read() {
    let simulated = SimulatedBmc::start_with(Names::SixBit).unwrap();
    let mut bmc = Bmc::connect(&target(simulated.port(), SUITE_3)).await.unwrap();
    let inventory = inventory::read(&mut bmc, &[]).await.unwrap();
    let names: Vec<_> = inventory.watched.iter().map(|w| w.sensor.name.as_str()).collect();
    assert!(names.contains(&"CPU 1 FAN"), "{names:?}");
}

#[tokio::test]
async fn ipmi_1_5_reads_the_same() {
    let simulated = SimulatedBmc::start().unwrap();
    let mut bmc = Bmc::connect(&target(simulated.port(), Protocol::Ipmi15)).await.unwrap();
    let inventory = inventory::read(&mut bmc, &[]).await.unwrap();
    let rows = read_once(&mut bmc, inventory.watched).await.unwrap();
    let fan = rows.iter().find(|(w, _)| w.sensor.name == "CPU 1 FAN").unwrap();
    assert_eq!(fan.1.unwrap().value, Some(2244.0));
    bmc.close().await;
}

#[tokio::test]
async fn auto_settles_for_what_the_bmc_has() {
    let simulated = SimulatedBmc::start().unwrap();
    let mut bmc = Bmc::connect(&target(simulated.port(), Protocol::Auto)).await.unwrap();
    assert_eq!(inventory::read(&mut bmc, &[]).await.unwrap().watched.len(), SENSORS);
}

#[tokio::test]
async fn a_wrong_password_and_an_unknown_user_are_named_and_permanent() {
    let simulated = SimulatedBmc::start().unwrap();
    for protocol in [SUITE_3, Protocol::Ipmi15] {
        let Target::Lan(right) = target(simulated.port(), protocol) else { unreachable!() };
        let wrong = LanConfig {
            password: "wrong".to_owned(),
            timeout: Duration::from_millis(100),
            retries: 2,
            ..right.clone()
        };
        let error = Bmc::connect(&Target::Lan(wrong)).await.err().unwrap();
        assert!(error.is_permanent(), "{error}");
        assert!(error.to_string().contains("password"), "{protocol:?}: {error}");
        let nobody = LanConfig { user: "nobody".to_owned(), ..right };
        let error = Bmc::connect(&Target::Lan(nobody)).await.err().unwrap();
        assert!(error.is_permanent(), "{error}");
        assert!(error.to_string().contains("no such user"), "{protocol:?}: {error}");
    }
}

#[tokio::test]
async fn suite_17_alone_is_refused_by_a_bmc_without_it() {
    let simulated = SimulatedBmc::start().unwrap();
    let suites = Protocol::RmcpPlus([Some(CipherSuite::Seventeen), None]);
    let error = Bmc::connect(&target(simulated.port(), suites)).await.err().unwrap();
    assert!(error.to_string().contains("cipher suite"), "{error}");
}
