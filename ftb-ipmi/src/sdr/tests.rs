//! Records of boards, and malformed or hostile records.
#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;

/// A full record of a fan: 66 RPM a step, lower critical 10, lower non-critical 16.
pub(crate) fn fan_record() -> Vec<u8> {
    let mut bytes = vec![
        0x21, 0x00, 0x51, 0x01, 0, 0x20, 0x00, 0x30, 29, 1, 0x7F, 0x68, 0x04, 0x01, 0x05, 0x72,
        0x05, 0x72, 0x03, 0x03, 0x00, 18, 0, 0, 66, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0, 0, 0, 0,
        10, 16, 1, 2, 0, 0, 0, 0xC9,
    ];
    bytes.extend_from_slice(b"CPU 1 FAN");
    let length = u8::try_from(bytes.len() - 5).unwrap();
    bytes[4] = length;
    bytes
}

/// The sensor of that record.
pub(crate) fn fan() -> Sensor {
    one(&fan_record())
}

fn one(bytes: &[u8]) -> Sensor {
    match Record::parse(bytes).unwrap() {
        Record::Sensors(sensors) => sensors.into_iter().next().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_full_record_has_name_thresholds_hysteresis_and_factors() {
    let fan = one(&fan_record());
    assert_eq!(fan.name, "CPU 1 FAN");
    assert_eq!(fan.key, SensorKey::bmc(0x30));
    assert_eq!(fan.entity, Entity { id: 29, instance: 1 });
    assert_eq!((fan.class(), fan.unit.as_str()), (SensorClass::Fan, "RPM"));
    assert_eq!(fan.thresholds.values, [Some(16), Some(10), None, None, None, None]);
    assert_eq!((fan.hysteresis_up, fan.hysteresis_down), (1, 2));
    assert!(fan.thresholds_readable);
    assert_eq!(fan.factors.unwrap().value(34), Some(2244.0));
}

#[test]
fn a_compact_record_may_describe_several_sensors() {
    let mut bytes = vec![
        0x05, 0x00, 0x51, 0x02, 0, 0x20, 0x00, 0x60, 32, 1, 0x7F, 0x40, 0x0C, 0x6F, 0xFF, 0x01,
        0xFF, 0x01, 0xFF, 0x01, 0xC0, 0, 0, 0x13, 0x81, 0, 0, 0, 0, 0, 0, 0xC5,
    ];
    bytes.extend_from_slice(b"DIMM ");
    bytes[4] = u8::try_from(bytes.len() - 5).unwrap();
    let Record::Sensors(sensors) = Record::parse(&bytes).unwrap() else { panic!() };
    let names: Vec<_> = sensors.iter().map(|s| (s.key.number, s.name.as_str())).collect();
    assert_eq!(names, [(0x60, "DIMMB"), (0x61, "DIMMC"), (0x62, "DIMMD")]);
    assert_eq!(sensors[2].entity.instance, 3);
    assert_eq!(sensors[0].states_mask, 0x1FF);
    assert!(!sensors[0].is_threshold() && sensors[0].factors.is_none());
}

#[test]
fn event_only_records_and_associations_are_parsed() {
    let bytes =
        [7, 0, 0x51, 3, 14, 0x20, 0, 0x23, 6, 1, 0x0C, 0x6F, 1, 0, 0, 0, 0xC2, b'E', b'C', 0];
    let sensor = one(&bytes);
    assert!(sensor.event_only);
    assert_eq!((sensor.name.as_str(), sensor.class()), ("EC", SensorClass::Memory));

    let list = [8, 0, 0x51, 8, 11, 3, 1, 0x00, 29, 1, 29, 4, 0, 0, 0, 0];
    let Record::Association(list) = Record::parse(&list).unwrap() else { panic!() };
    assert!(list.has(Entity { id: 29, instance: 1 }) && list.has(Entity { id: 29, instance: 4 }));
    assert!(!list.has(Entity { id: 29, instance: 2 }));

    let range = [8, 0, 0x51, 8, 11, 3, 1, 0x80, 29, 1, 29, 4, 0, 0, 0, 0];
    let Record::Association(range) = Record::parse(&range).unwrap() else { panic!() };
    assert!(range.has(Entity { id: 29, instance: 2 }));
    assert!(!range.has(Entity { id: 29, instance: 5 }));
}

#[test]
fn every_truncated_record_is_an_error_or_has_a_shorter_name() {
    let whole = fan_record();
    for end in 0..whole.len() {
        match Record::parse(&whole[..end]) {
            Err(error) => assert!(error.to_string().contains("before its"), "{error}"),
            Ok(_) => assert!(end >= 48, "a record cut at {end} was taken for whole"),
        }
    }
}

#[test]
fn a_threshold_outside_the_mask_is_ignored() {
    let mut bytes = fan_record();
    bytes[18] = 0;
    assert_eq!(one(&bytes).thresholds, RawThresholds::default());
    bytes[20] = 0xC0;
    assert_eq!(one(&bytes).factors, None);
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = Record::parse(&bytes);
    }

    #[test]
    fn damaged_records_never_panic_and_keep_their_bounds(
        at in 0_usize..57,
        to in any::<u8>(),
        end in 0_usize..60,
        raw in any::<u8>(),
    ) {
        let mut bytes = fan_record();
        bytes[at] = to;
        bytes.truncate(end);
        if let Ok(Record::Sensors(sensors)) = Record::parse(&bytes) {
            prop_assert!(sensors.len() <= usize::from(SHARED_SENSORS_MAX));
            for factors in sensors.iter().filter_map(|sensor| sensor.factors) {
                if let Some(value) = factors.value(raw) {
                    prop_assert!(value.is_finite());
                }
            }
        }
    }
}
