//! Judgements on single readings.

use super::*;

#[test]
fn a_sensor_with_unknown_factors_is_judged_by_the_comparison_of_the_bmc() {
    let mut sensor = watched("VRM Temp", TEMPERATURE, 1, 1).sensor;
    let record = sensor.factors.as_mut().unwrap();
    record.linearization = Linearization::PerReading;
    let asked = record.with_reading_factors([2, 0, 0, 0, 0, 0]);
    let policy = Policy::default_for(&sensor);
    let thresholds = RawThresholds::from_mask(0b01_1000, [0, 0, 0, 80, 90, 0]);
    let watched = Watched::new(sensor, policy, thresholds);
    assert_eq!(watched.limits, [None; 6]);
    let answer = |states| RawReading { value: Some(40), states };
    let unknown = watched.reading(answer(0b1_0000), None);
    assert_eq!(unknown.value, None, "the factors of the record are not those of this reading");
    assert_eq!(judge(&watched, &unknown, false, true), Judgement::Unknown);
    let calm = watched.reading(answer(0), Some(&asked));
    assert_eq!((calm.value, judge(&watched, &calm, false, true)), (Some(80.0), Judgement::Good));
    let hot = watched.reading(answer(0b1_0000), Some(&asked));
    assert!(matches!(judge(&watched, &hot, false, true), Judgement::Bad(Cause::Above { .. })));
}

#[test]
fn a_processor_far_below_zero_is_a_thermal_margin() {
    let with = |entity: u8, change: fn(&mut Watched)| {
        Node::with(move |sensors| {
            let mut sensor = watched("CPU2 DTS", TEMPERATURE, 1, 1).sensor;
            (sensor.unit, sensor.entity.id) = ("degrees C".to_owned(), entity);
            let policy = Policy::default_for(&sensor);
            sensors[1] = Watched::new(sensor, policy, RawThresholds::default());
            change(&mut sensors[1]);
        })
    };
    let readings = |node: &mut Node, values: [i8; 2]| {
        values.map(|value| {
            node.raw[1] = Some(value.cast_unsigned());
            node.polls(3)
        })
    };
    let overtemp = || vec!["FTB_IPMI_OVERTEMP"];
    assert_eq!(readings(&mut with(3, |_| {}), [-40, -1]), [vec![NORMAL], overtemp()]);
    assert_eq!(readings(&mut with(32, |_| {}), [-40, -1]), [vec![NORMAL], overtemp()]);
    // An ordinary temperature is never that cold, and an air inlet is not a processor.
    assert_eq!(readings(&mut with(3, |_| {}), [45, 3]), [vec![NORMAL], vec![]]);
    assert_eq!(readings(&mut with(55, |_| {}), [-20, -1]), [vec![NORMAL], vec![]]);
    let denied = |watched: &mut Watched| watched.policy.margin = Some(false);
    assert_eq!(readings(&mut with(3, denied), [-40, -1]), [vec![NORMAL], vec![]]);
    let mut node = with(3, |_| {});
    let fresh = node.monitor.watched().to_vec();
    readings(&mut node, [-40, -40]);
    node.give(Input::Inventory(fresh));
    assert_eq!(readings(&mut node, [-1, -1])[0], overtemp(), "still a margin after new records");
}

#[test]
fn an_asserted_state_is_a_fault_unless_its_name_is_that_of_a_status() {
    for (name, sensor_type, expected) in [
        ("CPU1 Overheat", 0x01, Some(FindingKind::OverTemp)),
        ("Thermal Trip0", 0x07, Some(FindingKind::OverTemp)),
        ("CATERR", 0x07, Some(FindingKind::CpuFail)),
        ("PS0/VINOK", 0x08, None),
        ("CPU1 Present", 0x07, None),
        ("PS1 Status", 0x08, None),
    ] {
        let watched = watched(name, 0xF1, sensor_type, 0x03);
        let asserted = Reading { raw: Some(0), value: None, states: 0b10 };
        let found = match judge(&watched, &asserted, false, true) {
            Judgement::Bad(cause) => judge::kind_of(&watched, cause),
            _ => None,
        };
        assert_eq!(found, expected, "{name}");
        let calm = Reading { states: 0b01, ..asserted };
        assert_eq!(judge(&watched, &calm, false, true), Judgement::Good, "{name}");
    }
}

#[test]
fn the_comparison_of_the_bmc_replaces_thresholds_of_zero() {
    let answer = |value, states| RawReading { value: Some(value), states };
    let judged = |class: u8, raw: [u8; 6], value: u8, states: u16| {
        let sensor = watched("VRM Temp", TEMPERATURE, class, 1).sensor;
        let policy = Policy::default_for(&sensor);
        let watched = Watched::new(sensor, policy, RawThresholds::from_mask(0b11_1111, raw));
        judge(&watched, &watched.reading(answer(value, states), None), false, true)
    };
    assert_eq!(judged(1, [0; 6], 40, 0), Judgement::Good);
    assert!(matches!(judged(1, [0; 6], 40, 0b1_0000), Judgement::Bad(Cause::Above { .. })));
    let upside_down = [0, 140, 0, 0, 100, 0];
    assert_eq!(judged(2, upside_down, 120, 0), Judgement::Good);
    assert!(matches!(judged(2, upside_down, 120, 0b10), Judgement::Bad(Cause::Below { .. })));
}
