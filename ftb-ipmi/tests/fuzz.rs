//! Hostile datagrams, sensor records, log entries, and files of ftb-ipmi (`ftb_fuzz` says how
//! targets run).
#![allow(clippy::unwrap_used)]

use ftb_fuzz::Target;
use ftb_ipmi::bmc::command::RawReading;
use ftb_ipmi::config::Config;
use ftb_ipmi::rules::Policy;
use ftb_ipmi::sdr::Record;
use ftb_ipmi::sel::{Bookmark, SensorEvent};
use ftb_rmcp::{LanConfig, Protocol, hostile};
use std::time::Duration;

/// From a host that reaches the console's port, or from a BMC that was taken over.
#[test]
fn no_datagram_panics_a_session_or_passes_without_the_password() {
    let config = LanConfig {
        host: "127.0.0.1".to_owned(),
        port: 623,
        user: "ftb".to_owned(),
        password: "a good password".to_owned(),
        group_key: None,
        privilege: 2,
        protocol: Protocol::RMCP_PLUS,
        timeout: Duration::from_secs(1),
        retries: 0,
    };
    let old = [0x06, 0, 0xff, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0x81, 0x1c, 0x63, 0x20, 0, 1, 0, 0];
    let seeds = hostile::seeds().into_iter().chain([old.to_vec()]);
    Target::new("rmcp").seeds(seeds).check(move |bytes| hostile::read(&config, bytes));
}

/// A full record of a fan (IPMI 2.0, section 43.1).
fn fan() -> Vec<u8> {
    let mut record = vec![1, 0, 0x51, 1, 0, 0x20, 0, 0x30, 29, 1, 0x7f, 0x68, 4, 1];
    record.extend([0x95, 0x7a, 0x95, 0x7a, 0x3f, 0x3f, 0, 18, 0, 0, 100, 0, 0, 0, 0, 0, 7]);
    record.extend([60, 0, 0, 0xff, 0, 0, 0, 0, 0, 5, 3, 0, 2, 2, 0, 0, 0, 0xc4]);
    record.extend(b"FAN1");
    record[4] = u8::try_from(record.len() - 5).unwrap();
    record
}

#[test]
fn no_sensor_record_panics_and_values_are_finite() {
    let compact =
        [&[2, 0, 0x51, 2, 0x1f][..], &fan()[5..20], &[0x43, 7, 0, 0, 0xc2], b"PS"].concat();
    let entities = vec![4, 0, 0x51, 8, 11, 3, 1, 0, 29, 1, 29, 2, 0, 0, 0, 0];
    Target::new("sensor_record").seeds([fan(), compact, entities]).check(|bytes| {
        let _ = RawReading::parse(bytes);
        let Ok(Record::Sensors(sensors)) = Record::parse(bytes) else { return };
        for sensor in &sensors {
            let _ = (Policy::default_for(sensor), sensor.class(), sensor.is_threshold());
            for raw in 0..=255 {
                let value = sensor.factors.and_then(|factors| factors.value(raw));
                assert!(value.is_none_or(f64::is_finite), "{raw}: {value:?}");
            }
        }
    });
}

#[test]
fn no_log_entry_panics_and_bookmarks_survive_their_text() {
    let entry = [1, 0, 2, 9, 8, 7, 6, 0x20, 0, 4, 4, 0x30, 1, 0x50, 20, 18];
    Target::new("log_entry").seeds([entry.to_vec(), b"17 1700000000\n".to_vec()]).check(|bytes| {
        if let Some(record) = bytes.first_chunk() {
            let _ = SensorEvent::parse(record).map(|event| event.is_threshold());
            let bookmark = Bookmark::of(record);
            assert_eq!(Bookmark::parse(&bookmark.to_text()), Some(bookmark));
        }
        let _ = str::from_utf8(bytes).ok().and_then(Bookmark::parse);
    });
}

#[test]
fn a_configuration_is_good_or_says_in_one_line_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ipmi.toml");
    let target = Target::new("ipmi_config").files("deploy/config", "toml").rounds(1_000);
    target.files("deploy/config/ipmi-rules", "toml").check(move |bytes| {
        std::fs::write(&path, bytes).unwrap();
        if let Err(error) = Config::load(&path) {
            let words = error.to_string();
            assert!(words.contains("ipmi.toml") && words.lines().count() == 1, "{words}");
        }
        let _ = &folder;
    });
}
