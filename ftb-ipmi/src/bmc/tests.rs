//! Commands to a BMC for tests: errors, busy BMCs, records in pieces.
#![allow(clippy::unwrap_used)]

use super::command::GetReading;
use super::*;
use crate::sdr::SensorKey;
use ftb_rmcp::fake::{self, ABSENT, Behavior, CHANNEL, Request, SILENT, own_numbers, patient};
use ipmi_rs::app::GetDeviceId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::JoinHandle;

/// Most bytes of its record that the BMC returns at once.
const PIECE_BYTES_MAX: usize = 7;
/// The read of the record, counted from 1, before which the BMC cancels the reservation.
const RESERVATION_LOST_AT: u32 = 5;
/// Entries of its log: uncorrectable memory errors, numbered from 1. Each second has one.
const LOG_ENTRIES: u16 = 3;

/// Starts a BMC with one sensor record and a log. Its sensors read as their own number.
pub(crate) async fn fake_bmc(
    behavior: impl Fn(usize) -> Behavior + Send + 'static,
) -> (LanConfig, JoinHandle<()>) {
    let (mut reservation, mut reads) = (0, 0);
    let respond = move |request: Request<'_>| {
        let data = request.data;
        match (request.netfn, request.command) {
            // Powered on.
            (0x00, 0x01) => (0, vec![1, 0, 0]),
            (0x0A, 0x22) => {
                reservation += 1;
                (0, vec![reservation, 0])
            }
            (0x0A, 0x23) => {
                reads += 1;
                reservation += u8::from(reads == RESERVATION_LOST_AT);
                read_record(data, reservation)
            }
            (0x0A, 0x40) => (0, log_information()),
            (0x0A, 0x43) => log_entry(u16::from_le_bytes([data[2], data[3]])),
            _ => own_numbers(request),
        }
    };
    fake::start(CipherSuite::Three, behavior, respond).await
}

/// The same BMC; it answers nothing while the flag is set.
pub(crate) async fn losable_bmc() -> (LanConfig, JoinHandle<()>, Arc<AtomicBool>) {
    let is_lost = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_lost);
    let behavior = move |_| match flag.load(Ordering::Relaxed) {
        true => Behavior::Lose,
        false => Behavior::Answer,
    };
    let (config, task) = fake_bmc(behavior).await;
    (config, task, is_lost)
}

/// Get SDR: the one record, in small pieces.
fn read_record(data: &[u8], reservation: u8) -> (u8, Vec<u8>) {
    const TOO_MANY_BYTES: u8 = 0xCA;
    const RESERVATION_CANCELLED: u8 = 0xC5;
    let record = crate::sdr::tests::fan_record();
    let (start, count) = (usize::from(data[4]), usize::from(data[5]));
    if data[0] != reservation {
        return (RESERVATION_CANCELLED, Vec::new());
    }
    if count > PIECE_BYTES_MAX {
        return (TOO_MANY_BYTES, Vec::new());
    }
    let piece = record.get(start..(start + count).min(record.len())).unwrap_or_default();
    (0, [&[0xFF, 0xFF], piece].concat())
}

/// Get SEL Info: version, entries, free bytes, times of addition and erasure, support.
fn log_information() -> Vec<u8> {
    let [low, high] = LOG_ENTRIES.to_le_bytes();
    vec![0x51, low, high, 0xFF, 0xFF, 1, 0, 0, 0, 1, 0, 0, 0, 0]
}

/// Get SEL Entry, the whole entry.
fn log_entry(requested: u16) -> (u8, Vec<u8>) {
    const NOT_PRESENT: u8 = 0xCB;
    let number = match requested {
        0 => 1,
        0xFFFF => LOG_ENTRIES,
        number => number,
    };
    if number > LOG_ENTRIES {
        return (NOT_PRESENT, Vec::new());
    }
    let next = if number == LOG_ENTRIES { 0xFFFF } else { number + 1 };
    let mut data = [next, number].map(u16::to_le_bytes).concat();
    let [low, high] = number.to_le_bytes();
    data.extend_from_slice(&[2, low, high, 0, 0x20, 0x21, 0, 4, 0x0C, 0x87, 0x6F, 1, 0, 0xFF]);
    (0, data)
}

async fn connect(config: LanConfig) -> Bmc {
    Bmc::connect(&Target::Lan(config)).await.unwrap()
}

#[tokio::test]
async fn a_command_returns_the_parsed_answer() {
    let (config, task) = fake_bmc(|_| Behavior::Answer).await;
    let mut bmc = connect(config).await;
    assert_eq!(bmc.run(GetDeviceId).await.unwrap().device_id, 0x20);
    assert_eq!(bmc.run(GetReading(SensorKey::bmc(9))).await.unwrap().value, Some(9));
    assert_eq!(bmc.commands(), 2);
    bmc.close().await;
    task.abort();
}

#[tokio::test]
async fn a_busy_bmc_gets_the_command_again() {
    let each_second = |n| if n % 2 == 0 { Behavior::Refuse(0xC0) } else { Behavior::Answer };
    let (config, task) = fake_bmc(each_second).await;
    let mut bmc = connect(patient(config)).await;
    for number in 1..=5 {
        let reading = bmc.run(GetReading(SensorKey::bmc(number))).await.unwrap();
        assert_eq!(reading.value, Some(number));
    }
    task.abort();
}

#[tokio::test]
async fn only_a_timeout_counts_as_a_lost_bmc() {
    let behavior = |n| match n {
        0 => Behavior::Refuse(0xCB),
        1 => Behavior::Short,
        2 => Behavior::Lose,
        _ => Behavior::Answer,
    };
    let (config, task) = fake_bmc(behavior).await;
    let mut bmc = connect(LanConfig { retries: 0, ..config }).await;
    let refused = bmc.run(GetReading(SensorKey::bmc(1))).await.unwrap_err();
    assert_eq!((refused.code(), refused.is_lost()), (Some(0xCB), false), "{refused}");
    let short = bmc.run(GetReading(SensorKey::bmc(1))).await.unwrap_err();
    assert!(matches!(short, BmcError::Short { .. }) && !short.is_lost(), "{short}");
    for (slave, code) in [(SILENT, None), (ABSENT, Some(0x83))] {
        let owner = Controller { channel: CHANNEL, slave };
        let error = bmc.run(GetReading(SensorKey { owner, lun: 1, number: 7 })).await.unwrap_err();
        assert_eq!((error.code(), error.is_lost()), (code, false), "{error}");
    }
    let lost = bmc.run(GetReading(SensorKey::bmc(1))).await.unwrap_err();
    assert!(lost.is_lost() && lost.to_string().contains("no answer"), "{lost}");
    task.abort();
}

#[test]
fn the_error_of_a_device_that_does_not_open_is_one_line_with_advice() {
    for (kind, advice) in [
        (io::ErrorKind::PermissionDenied, "give the group of the service access"),
        (io::ErrorKind::NotFound, "load the module ipmi_devintf"),
    ] {
        let error = BmcError::Open { path: "/dev/ipmi0".into(), source: kind.into() };
        let line = error.to_string();
        assert!(error.is_permanent() && line.starts_with("/dev/ipmi0: "), "{line}");
        assert!(line.contains(advice) && !line.contains('\n'), "{line}");
    }
}

#[tokio::test]
async fn a_record_is_read_in_small_pieces_and_again_after_a_cancelled_reservation() {
    let (config, task) = fake_bmc(|_| Behavior::Answer).await;
    let mut bmc = connect(patient(config)).await;
    let inventory = crate::inventory::read(&mut bmc, &[], &mut None).await.unwrap();
    let sensors: Vec<_> = inventory.watched.into_iter().map(|watched| watched.sensor).collect();
    assert_eq!(sensors, [crate::sdr::tests::fan()]);
    task.abort();
}
