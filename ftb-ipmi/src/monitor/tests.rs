//! The node's state machine against readings and events as a BMC gives them.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::rules::Policy;
use crate::sdr::{AnalogFormat, Entity, Factors, Linearization, RawThresholds, Sensor};
use proptest::prelude::*;

fn watched(name: &str, number: u8, sensor_type: u8, reading_type: u8) -> Watched {
    let is_analog = reading_type == 1;
    let factors = Factors {
        format: if sensor_type == 1 {
            AnalogFormat::TwosComplement
        } else {
            AnalogFormat::Unsigned
        },
        linearization: Linearization::Linear,
        m: if sensor_type == 4 { 66 } else { 1 },
        b: 0,
        b_exponent: 0,
        result_exponent: 0,
    };
    let sensor = Sensor {
        record_id: 1,
        key: SensorKey::bmc(number),
        entity: Entity { id: 29, instance: 1 },
        sensor_type,
        reading_type,
        name: name.to_owned(),
        event_only: false,
        factors: is_analog.then_some(factors),
        unit: String::new(),
        thresholds: RawThresholds::default(),
        thresholds_readable: false,
        hysteresis_up: 1,
        hysteresis_down: 1,
        states_mask: 0x7FFF,
    };
    let thresholds = match (is_analog, sensor_type) {
        (true, 4) => RawThresholds::from_mask(0b0011, [16, 10, 0, 0, 0, 0]),
        (true, 1) => RawThresholds::from_mask(0b01_1000, [0, 0, 0, 80, 90, 0]),
        (true, 2) => RawThresholds::from_mask(0b01_0010, [0, 100, 0, 0, 140, 0]),
        _ => RawThresholds::default(),
    };
    let policy = Policy::default_for(&sensor);
    Watched::new(sensor, policy, thresholds)
}

const FAN: u8 = 0x30;
const TEMPERATURE: u8 = 0x20;
const DIMM: u8 = 0x60;
const PSU: u8 = 0xC0;

/// A node with a fan, a temperature, a DIMM and a power supply, and a clock of one second a poll.
struct Node {
    monitor: Monitor,
    now_ms: u64,
    raw: [Option<u8>; 2],
    states: [u16; 2],
    findings: Vec<Finding>,
}

impl Node {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl Fn(&mut Vec<Watched>)) -> Self {
        let mut sensors = vec![
            watched("CPU 1 FAN", FAN, 4, 1),
            watched("Inlet Temp", TEMPERATURE, 1, 1),
            watched("DIMM A1", DIMM, 0x0C, 0x6F),
            watched("PS1 Status", PSU, 0x08, 0x6F),
        ];
        change(&mut sensors);
        let mut node = Self {
            monitor: Monitor::new(Duration::from_secs(600)),
            now_ms: 0,
            raw: [Some(34), Some(40)],
            states: [0x40, 0x01],
            findings: Vec::new(),
        };
        node.give(Input::Inventory(sensors));
        node
    }

    fn give(&mut self, input: Input) {
        self.monitor.handle(self.now_ms, input, &mut self.findings);
    }

    fn samples(&self) -> Vec<(usize, Reading)> {
        let raw = [self.raw[0], self.raw[1], Some(0), Some(0)];
        let states = [0, 0, self.states[0], self.states[1]];
        (0..self.monitor.watched().len().min(4))
            .map(|index| {
                let answer =
                    crate::bmc::command::RawReading { value: raw[index], states: states[index] };
                (index, self.monitor.watched()[index].reading(answer, None))
            })
            .collect()
    }

    fn poll_powered(&mut self, is_powered: bool) {
        self.now_ms += 1000;
        let samples = self.samples();
        self.give(Input::Samples { samples, is_whole: true, is_powered });
    }

    fn poll(&mut self) -> Vec<&'static str> {
        self.poll_powered(true);
        self.take()
    }

    fn polls(&mut self, count: u32) -> Vec<&'static str> {
        (0..count).flat_map(|_| self.poll()).collect()
    }

    fn take(&mut self) -> Vec<&'static str> {
        self.take_findings()
            .iter()
            .map(|finding| crate::finding::event_name(finding.kind))
            .collect()
    }

    fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    fn event(&mut self, number: u8, reading_type: u8, offset: u8, is_asserted: bool, way: Way) {
        let sensor_type = match number {
            FAN => 4,
            TEMPERATURE => 1,
            PSU => 8,
            _ => 0x0C,
        };
        let time_s = u32::try_from(self.now_ms / 1000).unwrap();
        let sensor = Some(SensorKey::bmc(number));
        let record = if way == Way::Logged { 7 } else { 0 };
        let event = SensorEvent {
            record,
            time_s,
            sensor,
            number,
            sensor_type,
            reading_type,
            is_asserted,
            offset,
        };
        self.give(Input::Event { event, way });
    }

    /// What the shell does after an event: reads the sensors that it is about.
    fn reread(&mut self) -> Vec<&'static str> {
        let findings = self.reread_findings();
        findings.iter().map(|finding| crate::finding::event_name(finding.kind)).collect()
    }

    fn reread_findings(&mut self) -> Vec<Finding> {
        let wanted = self.monitor.take_rereads();
        let samples = self.samples().into_iter().filter(|(i, _)| wanted.contains(i)).collect();
        self.give(Input::Samples { samples, is_whole: false, is_powered: true });
        self.take_findings()
    }
}

const FANFAIL: &str = "FTB_IPMI_FANFAIL";
const OVERTEMP: &str = "FTB_IPMI_OVERTEMP";
const NORMAL: &str = "FTB_IPMI_NORMAL";
const CLEARED: &str = "FTB_IPMI_SENSOR_CLEARED";
const MEMERR: &str = "FTB_IPMI_MEMERR";
const PSUFAIL: &str = "FTB_IPMI_PSUFAIL";

#[test]
fn a_node_is_unknown_until_it_was_read_and_then_normal_once() {
    let mut node = Node::new();
    assert_eq!(node.monitor.health(), Health::Unknown);
    assert_eq!(node.polls(5), [NORMAL]);
    assert_eq!(node.monitor.health(), Health::Healthy);
}

#[test]
fn one_bad_reading_is_nothing_and_two_are_one_failure_until_three_good_ones() {
    let mut node = Node::new();
    assert_eq!(node.poll(), [NORMAL]);
    node.raw[0] = Some(8);
    assert_eq!(node.poll(), [""; 0]);
    node.raw[0] = Some(34);
    assert_eq!(node.poll(), [""; 0], "a single bad reading is told to nobody");
    node.raw[0] = Some(8);
    assert_eq!(node.polls(6), [FANFAIL]);
    node.raw[0] = Some(34);
    assert_eq!(node.polls(2), [""; 0]);
    assert_eq!(node.polls(3), [CLEARED, NORMAL]);
}

#[test]
fn a_failing_node_at_the_start_is_never_called_normal() {
    let mut node = Node::new();
    node.raw[0] = Some(8);
    assert_eq!(node.polls(4), [FANFAIL]);
    assert_eq!(node.monitor.health(), Health::Failing);
}

#[test]
fn hysteresis_keeps_a_fault_open_near_its_limit() {
    let mut node = Node::new();
    node.raw[0] = Some(10);
    assert_eq!(node.polls(3), [FANFAIL], "at the threshold is below it");
    node.raw[0] = Some(11);
    assert_eq!(node.polls(10), [""; 0], "one step above is inside the hysteresis");
    node.raw[0] = Some(12);
    assert_eq!(node.polls(4), [CLEARED, NORMAL]);
}

#[test]
fn a_fan_at_zero_or_gone_has_failed_and_one_that_was_never_there_has_not() {
    for raw in [Some(0), None] {
        let mut node = Node::new();
        node.poll();
        node.take();
        node.raw[0] = raw;
        assert_eq!(node.polls(3), [FANFAIL]);
    }
    let mut empty_slot = Node::new();
    empty_slot.raw[0] = None;
    assert_eq!(empty_slot.polls(4), [NORMAL], "with the power on");
    let mut resting = Node::with(|sensors| sensors[0].policy.zero_is_good = true);
    resting.raw[0] = Some(0);
    assert_eq!(resting.polls(4), [NORMAL]);
}

#[test]
fn a_machine_that_is_off_has_no_failed_fan() {
    let mut node = Node::new();
    node.poll();
    node.take();
    node.raw[0] = Some(0);
    assert!(node.monitor.needs_power(&node.samples()));
    for _ in 0..5 {
        node.poll_powered(false);
    }
    assert_eq!(node.take(), [""; 0]);
    node.raw[0] = Some(34);
    assert!(!node.monitor.needs_power(&node.samples()));
}

#[test]
fn a_machine_that_is_off_from_the_start_is_not_called_normal() {
    let mut node = Node::new();
    node.raw[0] = Some(0);
    for _ in 0..5 {
        node.poll_powered(false);
    }
    assert_eq!((node.take(), node.monitor.health()), (vec![], Health::Unknown));
    node.raw[0] = Some(34);
    assert_eq!(node.poll(), [NORMAL]);
}

#[test]
fn a_machine_of_which_a_fan_turns_is_on() {
    let mut node = Node::with(|sensors| sensors.push(watched("SYS FAN", 0x31, 4, 1)));
    let with_second = |node: &Node, raw: u8| {
        let answer = crate::bmc::command::RawReading { value: Some(raw), states: 0 };
        let mut samples = node.samples();
        samples.push((4, node.monitor.watched()[4].reading(answer, None)));
        samples
    };
    node.raw[0] = Some(0);
    assert!(!node.monitor.needs_power(&with_second(&node, 30)));
    assert!(node.monitor.needs_power(&with_second(&node, 0)));
    let samples = with_second(&node, 30);
    node.give(Input::Samples { samples, is_whole: true, is_powered: true });
    let alone = &node.samples()[..1];
    assert!(!node.monitor.needs_power(alone), "the other one turned when it was read last");
}

#[test]
fn normal_comes_only_when_the_last_fault_is_over() {
    let mut node = Node::new();
    node.raw = [Some(5), Some(95)];
    assert_eq!(node.polls(3), [FANFAIL, OVERTEMP]);
    node.raw[0] = Some(34);
    assert_eq!(node.polls(5), [CLEARED]);
    node.raw[1] = Some(40);
    assert_eq!(node.polls(5), [CLEARED, NORMAL]);
}

#[test]
fn an_overheating_that_is_coming_is_told_with_the_seconds_left() {
    let mut node = Node::new();
    node.polls(30);
    for step in 0..35_u8 {
        node.raw[1] = Some(40 + step);
        node.poll_powered(true);
    }
    let told = node.take_findings();
    let heat = told.iter().find(|f| f.kind == FindingKind::OverTemp).expect("a prediction");
    let Some(Cause::Predicted(forecast)) = heat.cause else { panic!("{heat:?}") };
    // One degree a second.
    let left = 90.0 - heat.value.unwrap();
    assert!((forecast.seconds_left / left - 1.0).abs() < 0.2, "{left} s: {forecast:?}");
    assert!(forecast.sure_percent > 90.0);
    for step in 35..60_u8 {
        node.raw[1] = Some((40 + step).min(95));
        node.poll_powered(true);
    }
    assert_eq!(node.take(), [""; 0], "reaching the limit is no second event");
}

#[test]
fn an_event_and_its_polls_are_one_report() {
    let mut node = Node::new();
    node.poll();
    node.take();
    node.raw[0] = Some(8);
    node.event(FAN, 1, 2, true, Way::Pushed);
    assert_eq!(node.reread(), [FANFAIL], "event and reading agree: no debounce");
    node.event(FAN, 1, 2, true, Way::Logged);
    assert_eq!(node.reread(), [""; 0], "the same event from the log");
    assert_eq!(node.polls(3), [""; 0]);
    node.raw[0] = Some(34);
    node.now_ms += 5000;
    node.event(FAN, 1, 2, false, Way::Logged);
    assert_eq!(node.reread(), [CLEARED, NORMAL]);
    assert_eq!(node.polls(5), [""; 0]);
}

#[test]
fn an_event_that_the_reading_denies_is_not_believed() {
    let mut node = Node::new();
    node.poll();
    node.take();
    node.event(FAN, 1, 2, true, Way::Pushed);
    assert_eq!(node.reread(), [""; 0]);
    assert_eq!(node.polls(3), [""; 0]);
    node.event(FAN, 1, 0, true, Way::Pushed);
    assert!(node.monitor.take_rereads().is_empty(), "a non-critical threshold asks for nothing");
}

#[test]
fn memory_errors_that_leave_no_state_are_told_and_counted() {
    let mut node = Node::new();
    node.poll();
    node.take();
    node.event(DIMM, 0x6F, 0, true, Way::Logged);
    node.monitor.take_rereads();
    let samples = node.samples();
    node.give(Input::Samples { samples, is_whole: false, is_powered: true });
    let told = node.take_findings();
    assert_eq!((told.len(), told[0].kind, told[0].count), (1, FindingKind::MemErr, 1));
    assert_eq!(told[0].severity, Severity::Warning, "a corrected error");
    assert!(told[0].is_momentary);
    for _ in 0..40 {
        node.now_ms += 1000;
        node.event(DIMM, 0x6F, 0, true, Way::Logged);
        assert_eq!(node.reread(), [""; 0], "told once a minute");
    }
    node.now_ms += 60_000;
    node.poll_powered(true);
    let told = node.take_findings();
    assert_eq!((told.len(), told[0].count), (1, 40));
    assert_eq!(node.monitor.health(), Health::Healthy);
}

/// Severity, state and count of each finding.
fn states(findings: &[Finding]) -> Vec<(Severity, u8, u32)> {
    let state = |finding: &Finding| match finding.cause {
        Some(Cause::State(offset)) => (finding.severity, offset, finding.count),
        _ => panic!("{finding:?}"),
    };
    findings.iter().map(state).collect()
}

fn from_firmware(offset: u8) -> SensorEvent {
    SensorEvent {
        record: 9,
        time_s: 5,
        sensor: None,
        number: 0x87,
        sensor_type: 0x0C,
        reading_type: 0x6F,
        is_asserted: true,
        offset,
    }
}

#[test]
fn an_uncorrectable_error_is_published_at_once_after_a_corrected_one() {
    let mut node = Node::new();
    node.poll();
    node.take();
    node.event(DIMM, 0x6F, 0, true, Way::Logged);
    node.reread_findings();
    node.now_ms += 4000;
    node.event(DIMM, 0x6F, 1, true, Way::Logged);
    assert_eq!(states(&node.reread_findings()), [(Severity::Error, 1, 1)]);
    for offset in [0, 1] {
        node.now_ms += 1000;
        node.give(Input::Event { event: from_firmware(offset), way: Way::Logged });
    }
    let expected = [(Severity::Warning, 0, 1), (Severity::Error, 1, 1)];
    assert_eq!(states(&node.take_findings()), expected);
}

#[test]
fn events_of_one_look_at_the_log_are_all_published_whatever_their_order() {
    for offsets in [[0, 1, 0], [1, 0, 0], [0, 0, 1]] {
        let mut node = Node::new();
        node.poll();
        node.take();
        for offset in offsets {
            node.now_ms += 1;
            node.event(DIMM, 0x6F, offset, true, Way::Logged);
        }
        node.event(DIMM, 0x6F, 1, false, Way::Logged);
        let expected = [(Severity::Warning, 0, 2), (Severity::Error, 1, 1)];
        assert_eq!(states(&node.reread_findings()), expected, "{offsets:?}");
    }
}

#[test]
fn held_back_events_are_published_with_their_own_state_and_count() {
    let mut node = Node::new();
    node.poll();
    for _ in 0..4 {
        node.now_ms += 1;
        node.event(DIMM, 0x6F, 1, true, Way::Logged);
        node.reread_findings();
        node.give(Input::Event { event: from_firmware(5), way: Way::Logged });
    }
    node.take();
    node.now_ms += 60_000;
    node.poll_powered(true);
    let expected = [(Severity::Error, 1, 3), (Severity::Warning, 5, 3)];
    assert_eq!(states(&node.take_findings()), expected);
}

#[test]
fn a_momentary_error_is_published_beside_an_open_fault_of_another_state() {
    let mut node = Node::new();
    node.poll();
    node.states[0] = 0x41;
    node.polls(3);
    node.event(DIMM, 0x6F, 1, true, Way::Logged);
    assert_eq!(states(&node.reread_findings()), [(Severity::Error, 1, 1)]);
}

#[test]
fn an_event_is_believed_where_its_sensor_gives_no_reading() {
    let mut node = Node::new();
    node.poll();
    node.take();
    node.event(DIMM, 0x6F, 1, true, Way::Logged);
    assert_eq!(node.monitor.take_rereads(), [2]);
    node.give(Input::Lost("no answer".to_owned()));
    node.give(Input::Back);
    node.take();
    let samples = node.samples().into_iter().filter(|(index, _)| *index != 2).collect();
    node.give(Input::Samples { samples, is_whole: false, is_powered: true });
    assert_eq!(states(&node.take_findings()), [(Severity::Error, 1, 1)]);
}

#[test]
fn an_uncorrectable_memory_error_and_a_power_supply_are_faults() {
    let mut node = Node::new();
    node.poll();
    node.take();
    node.states = [0x42, 0x03];
    node.polls(1);
    assert_eq!(node.poll(), [MEMERR, PSUFAIL]);
    node.states = [0x40, 0x01];
    assert_eq!(node.polls(5), [CLEARED, CLEARED, NORMAL]);
    node.states[1] = 0x00;
    assert_eq!(node.polls(3), [PSUFAIL], "pulled out");
}

#[test]
fn a_fault_that_becomes_worse_is_told_again() {
    let mut node = Node::new();
    node.poll();
    node.take();
    node.states[0] = 0x41;
    assert_eq!(node.polls(3), [MEMERR]);
    assert_eq!(node.monitor.health(), Health::Healthy, "corrected errors only warn");
    node.states[0] = 0x43;
    assert_eq!(node.polls(3), [MEMERR]);
    assert_eq!(node.monitor.health(), Health::Failing);
}

#[test]
fn firmware_events_without_a_record_are_published_for_errors_only() {
    let mut node = Node::new();
    node.poll();
    node.take();
    let event = from_firmware(1);
    node.give(Input::Event { event, way: Way::Logged });
    let told = node.take_findings();
    assert_eq!(
        (told.len(), told[0].kind, told[0].severity),
        (1, FindingKind::MemErr, Severity::Error)
    );
    node.give(Input::Event { event: SensorEvent { sensor_type: 0x12, ..event }, way: Way::Logged });
    assert_eq!(node.take(), [""; 0]);
}

#[test]
fn a_lost_bmc_makes_the_node_unknown_and_its_return_tells_what_holds() {
    let mut node = Node::new();
    node.raw[0] = Some(8);
    assert_eq!(node.polls(3), [FANFAIL]);
    node.give(Input::Lost("no answer".to_owned()));
    node.give(Input::Lost("no answer".to_owned()));
    assert_eq!(node.take(), ["FTB_IPMI_BMC_LOST"]);
    assert_eq!(node.monitor.health(), Health::Unknown);
    node.give(Input::Back);
    assert_eq!(node.take(), ["FTB_IPMI_BMC_BACK"]);
    assert_eq!(node.polls(3), [""; 0], "the fault that still holds was told");
    assert_eq!(node.monitor.health(), Health::Failing);

    let mut healed = Node::new();
    healed.raw[0] = Some(8);
    healed.polls(3);
    healed.give(Input::Lost("no answer".to_owned()));
    healed.give(Input::Back);
    healed.raw[0] = Some(34);
    healed.take();
    assert_eq!(healed.polls(4), [CLEARED, NORMAL]);
}

#[test]
fn a_new_inventory_keeps_what_is_known_and_ends_what_is_gone() {
    let mut node = Node::new();
    node.raw[0] = Some(8);
    node.polls(3);
    node.give(Input::Inventory(node.monitor.watched().to_vec()));
    assert_eq!(node.polls(3), [""; 0]);
    let without_fan = node.monitor.watched()[1..].to_vec();
    node.give(Input::Inventory(without_fan));
    assert_eq!(node.take(), [CLEARED]);
    assert_eq!(node.monitor.health(), Health::Failing, "until all that is left was read");

    let mut starting = Node::new();
    starting.raw[0] = Some(8);
    starting.polls(3);
    starting.give(Input::Inventory(Vec::new()));
    starting.take();
    starting.give(Input::Samples { samples: Vec::new(), is_whole: false, is_powered: true });
    assert_eq!(starting.take(), [""; 0], "a BMC without sensors is not a healthy node");
}

#[test]
fn an_event_only_sensor_opens_and_closes_by_events() {
    let mut node = Node::with(|sensors| {
        let mut psu = watched("PS2 Status", 0xC1, 0x08, 0x6F);
        psu.sensor.event_only = true;
        sensors.push(psu);
    });
    node.poll();
    node.take();
    let failed = SensorEvent {
        record: 1,
        time_s: 77,
        sensor: Some(SensorKey::bmc(0xC1)),
        number: 0xC1,
        sensor_type: 8,
        reading_type: 0x6F,
        is_asserted: true,
        offset: 1,
    };
    node.give(Input::Event { event: failed, way: Way::Logged });
    assert_eq!(node.take(), [PSUFAIL]);
    let mended = SensorEvent { is_asserted: false, time_s: 99, ..failed };
    node.give(Input::Event { event: mended, way: Way::Logged });
    assert_eq!(node.take(), [CLEARED, NORMAL]);
}

#[test]
fn a_fault_that_lasts_is_told_again_with_the_reading_of_now() {
    let mut node = Node::new();
    node.polls(2);
    node.raw[0] = Some(5);
    assert_eq!(node.polls(2), ["FTB_IPMI_FANFAIL"]);
    node.raw[0] = Some(3);
    assert!(node.polls(599).is_empty());
    node.poll_powered(true);
    let told = node.take_findings();
    assert_eq!((told.len(), told[0].kind), (1, FindingKind::FanFail));
    assert_eq!((told[0].is_again, told[0].value), (true, Some(198.0)));
    assert!(node.polls(599).is_empty());
    assert_eq!(node.poll(), ["FTB_IPMI_FANFAIL"]);
}

#[test]
fn a_node_is_not_healthy_while_a_controller_behind_its_bmc_is_lost() {
    let backplane = Controller { channel: 0, slave: 0xC0 };
    let mut node = Node::with(|sensors| sensors[0].sensor.key.owner = backplane);
    node.poll_powered(true);
    let lost = Input::Controller { controller: backplane, reason: Some("silent".to_owned()) };
    node.give(lost);
    assert_eq!(node.monitor.health(), Health::Unknown);
    node.give(Input::Unread(1));
    let samples = Vec::new();
    node.give(Input::Samples { samples, is_whole: false, is_powered: true });
    assert_eq!(node.monitor.health(), Health::Unknown);
    node.give(Input::Controller { controller: backplane, reason: None });
    node.poll_powered(true);
    let kinds: Vec<_> = node.findings.iter().map(|finding| finding.kind).collect();
    use FindingKind::{ControllerBack, ControllerLost, Normal};
    assert_eq!(kinds, [Normal, ControllerLost, ControllerBack, Normal]);
    let unread: Vec<_> = node.findings.iter().map(|finding| finding.unread).collect();
    assert_eq!(unread, [0, 0, 0, 1]);
}

#[test]
fn a_sensor_whose_factors_only_the_bmc_knows_is_judged_by_its_comparison() {
    let mut sensor = watched("VRM Temp", TEMPERATURE, 1, 1).sensor;
    let record = sensor.factors.as_mut().unwrap();
    record.linearization = Linearization::PerReading;
    let asked = record.with_reading_factors([2, 0, 0, 0, 0, 0]);
    let policy = Policy::default_for(&sensor);
    let thresholds = RawThresholds::from_mask(0b01_1000, [0, 0, 0, 80, 90, 0]);
    let watched = Watched::new(sensor, policy, thresholds);
    assert_eq!(watched.limits, [None; 6]);
    let answer = |states| crate::bmc::command::RawReading { value: Some(40), states };
    let unknown = watched.reading(answer(0b1_0000), None);
    assert_eq!(unknown.value, None, "the record's factors are not those of this reading");
    assert_eq!(judge(&watched, &unknown, false, true), Judgement::Unknown);
    let calm = watched.reading(answer(0), Some(&asked));
    assert_eq!((calm.value, judge(&watched, &calm, false, true)), (Some(80.0), Judgement::Good));
    let hot = watched.reading(answer(0b1_0000), Some(&asked));
    assert!(matches!(judge(&watched, &hot, false, true), Judgement::Bad(Cause::Above { .. })));
}

#[test]
fn a_processor_or_memory_that_reads_far_below_zero_is_a_thermal_margin() {
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
    // An ordinary temperature never reads that cold, and an air inlet is no processor.
    assert_eq!(readings(&mut with(3, |_| {}), [45, 3]), [vec![NORMAL], vec![]]);
    assert_eq!(readings(&mut with(55, |_| {}), [-20, -1]), [vec![NORMAL], vec![]]);
    let denied = |watched: &mut Watched| watched.policy.margin = Some(false);
    assert_eq!(readings(&mut with(3, denied), [-40, -1]), [vec![NORMAL], vec![]]);
    let mut node = with(3, |_| {});
    let fresh = node.monitor.watched().to_vec();
    readings(&mut node, [-40, -40]);
    node.give(Input::Inventory(fresh));
    assert_eq!(readings(&mut node, [-1, -1])[0], overtemp(), "known after new records too");
}

#[test]
fn an_asserted_state_is_a_fault_unless_its_name_says_that_all_is_well() {
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
fn an_internal_error_that_a_reset_takes_back_at_once_is_published() {
    let mut node = Node::with(|sensors| sensors[2] = watched("P1 Status", DIMM, 0x07, 0x6F));
    node.states[0] = 0x80;
    node.poll();
    node.take();
    node.event(DIMM, 0x6F, 0, true, Way::Logged);
    node.event(DIMM, 0x6F, 0, false, Way::Logged);
    let told = node.reread_findings();
    assert_eq!((told.len(), told[0].kind), (1, FindingKind::CpuFail));
    assert_eq!(states(&told), [(Severity::Fatal, 0, 1)]);
}

#[test]
fn an_event_only_processor_that_becomes_worse_is_published_again() {
    let mut node = Node::with(|sensors| {
        sensors[2] = watched("P1 Status", DIMM, 0x07, 0x6F);
        sensors[2].sensor.event_only = true;
    });
    for (offset, severity) in [(1, Severity::Error), (0, Severity::Fatal)] {
        node.event(DIMM, 0x6F, offset, true, Way::Logged);
        assert_eq!(states(&node.take_findings()), [(severity, offset, 1)]);
    }
}

#[test]
fn a_full_log_is_published_once_and_again_when_it_drops_events() {
    let mut node = Node::new();
    node.poll();
    node.take();
    let (full, cleared) = ("FTB_IPMI_SEL_FULL", "FTB_IPMI_SEL_CLEARED");
    let by_sensor = SensorEvent { sensor_type: 0x10, offset: 4, ..from_firmware(0) };
    node.give(Input::Event { event: by_sensor, way: Way::Logged });
    assert_eq!(node.take(), [full]);
    node.give(Input::Log(LogState::Full));
    assert_eq!(node.take(), [""; 0], "the sensor has said so");
    node.give(Input::Log(LogState::Overflowed));
    assert_eq!(node.take(), [full]);
    assert_eq!(node.monitor.health(), Health::Healthy, "the node itself has no fault");
    assert_eq!(node.polls(601), [full], "again, for those who started later");
    for _ in 0..2 {
        node.give(Input::Log(LogState::HasRoom));
    }
    assert_eq!(node.take(), [cleared]);
    assert_eq!(node.polls(700), [""; 0]);
}

#[test]
fn thresholds_of_zero_are_left_to_the_bmcs_own_comparison() {
    let answer = |value, states| crate::bmc::command::RawReading { value: Some(value), states };
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

proptest! {
    /// Whatever a BMC says: every fault is closed at most once, nothing is opened twice, NORMAL
    /// comes only with no fault open, and nothing panics.
    #[test]
    fn faults_open_and_close_in_turns(steps in proptest::collection::vec(any::<(u8, u8, u8, bool)>(), 0..120)) {
        let mut node = Node::new();
        let mut open = HashMap::new();
        for (kind, a, b, flag) in steps {
            match kind % 6 {
                0 => node.raw[0] = flag.then_some(a),
                1 => node.raw[1] = flag.then_some(a),
                2 => node.states = [u16::from_le_bytes([a, b]) & 0x7FFF, u16::from(b)],
                3 => node.event([FAN, TEMPERATURE, DIMM, PSU][usize::from(a % 4)], if a % 2 == 0 { 1 } else { 0x6F }, b & 0xF, flag, Way::Logged),
                4 => node.give(if flag { Input::Lost(String::new()) } else { Input::Back }),
                _ => {}
            }
            node.poll_powered(flag || a > 10);
            for finding in node.take_findings() {
                let name = finding.sensor.as_ref().map(|watched| watched.sensor.name.clone());
                match finding.kind {
                    FindingKind::Normal => {
                        prop_assert!(open.values().all(|s| *s < Severity::Error), "{open:?}");
                    }
                    FindingKind::Cleared => prop_assert!(open.remove(&name.unwrap()).is_some()),
                    FindingKind::BmcBack | FindingKind::BmcLost => {}
                    _ if finding.is_momentary => {}
                    // Told again only when it has become worse.
                    _ => prop_assert!(
                        open.insert(name.unwrap(), finding.severity) < Some(finding.severity)
                    ),
                }
                let event = crate::finding::to_event("node001", "bmc", 1, &finding);
                prop_assert_eq!(event.check(0x1000), Ok(()));
                prop_assert_eq!(&event.payload[..], b"node001");
            }
        }
    }
}
