//! The state machine of a node, with readings and events of a simulated board. One file per
//! subject.
#![allow(clippy::unwrap_used)]

mod any_input;
mod events;
mod former;
mod judging;
mod kept;
mod losses;
mod momentary;
mod polls;
mod power;

use super::*;
use crate::bmc::command::RawReading;
use crate::rules::Policy;
use crate::sdr::{AnalogFormat, Entity, Factors, Linearization, RawThresholds, Sensor};

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

/// A node with a fan, a temperature, a DIMM and a power supply. Each poll takes one second.
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
                let answer = RawReading { value: raw[index], states: states[index] };
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
        self.take_findings().iter().map(|finding| crate::event::event_name(finding.kind)).collect()
    }

    fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    fn event(
        &mut self,
        number: u8,
        reading_type: u8,
        offset: u8,
        is_asserted: bool,
        source: EventSource,
    ) {
        let sensor_type = match number {
            FAN => 4,
            TEMPERATURE => 1,
            PSU => 8,
            0xF3 => 7,
            _ => 0x0C,
        };
        let time_s = u32::try_from(self.now_ms / 1000).unwrap();
        let sensor = Some(SensorKey::bmc(number));
        let record = if source == EventSource::Logged { 7 } else { 0 };
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
        self.give(Input::Event { event, source });
    }

    /// Reads the sensors of events, as the shell does.
    fn reread(&mut self) -> Vec<&'static str> {
        let findings = self.reread_findings();
        findings.iter().map(|finding| crate::event::event_name(finding.kind)).collect()
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
