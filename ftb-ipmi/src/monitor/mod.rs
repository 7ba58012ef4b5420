//! The state machine of one node: turns readings and events of its BMC into findings.
//!
//! Responsible for: debounce in both directions, prediction, the match of polls and events so that
//! no fault is reported twice, and the health of the node. Not for: commands to the BMC, clocks, or
//! the form of events. The only entry is `handle(now, input, &mut findings)`.

mod finding;
mod former;
mod judge;
mod kept;
mod limits;
mod log;
mod repeats;
mod slope;
mod track;

pub use finding::{
    CONTROLLER_LOST, Finding, FindingKind, FormerCondition, LOG_FULL, Statement,
    condition_of_class, kept_condition,
};
pub use judge::{Cause, Judgement, Reading, Watched, judge};
pub use limits::THRESHOLD_NAMES;
pub use slope::Forecast;

use crate::sdr::{READING_TYPE_SENSOR_SPECIFIC, SensorClass, SensorKey};
use crate::sel::{LogState, SensorEvent};
use finding::Fault;
use former::FormerConditions;
use ftb_core::Severity;
use ftb_rmcp::Controller;
use kept::KeptErrors;
use log::EventLog;
use repeats::{Momentary, Pairs};
use std::collections::HashMap;
use std::time::Duration;
use track::{Track, severity_of};

/// Most sources of events without a sensor record. Further ones share one source.
const UNRECORDED_SOURCES_MAX: usize = 256;

/// Most removed sensors whose fault goes on.
const REMOVED_MAX: usize = 64;

/// An input of the state machine.
#[derive(Clone, Debug)]
pub enum Input {
    /// The sensors of this node, after its records were read. Unchanged sensors keep their state.
    Inventory(Vec<Watched>),
    /// Readings, by index into the inventory, without sensors whose reading failed.
    Samples {
        /// The readings.
        samples: Vec<(usize, Reading)>,
        /// Every readable sensor was read.
        is_whole: bool,
        /// Whether the machine is powered on. Fans of a machine without power may stand.
        is_powered: bool,
    },
    /// An event of the BMC.
    Event {
        /// The event.
        event: SensorEvent,
        /// Its source. Most events come from both sources.
        source: EventSource,
    },
    /// Whether the event log of the BMC accepts another entry.
    Log(LogState),
    /// The number of sensors without a reading in the pass whose samples follow.
    Unread(usize),
    /// A controller behind the BMC is lost, or is back.
    Controller {
        /// The controller.
        controller: Controller,
        /// Why it is lost; `None` if it answers again.
        reason: Option<String>,
    },
    /// The BMC does not answer.
    Lost(String),
    /// The BMC answers again.
    Back,
    /// What an earlier life of this program has stated about the node, and is not over.
    Former(Vec<FormerCondition>),
    /// A person has cleared a condition that this program states.
    ClearedByHand {
        /// The component.
        component: String,
        /// The key.
        key: String,
    },
    /// An agent has refused a kept condition.
    KeptRefused {
        /// The component.
        component: String,
        /// The key.
        key: String,
    },
}

/// The source of an event of the BMC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSource {
    /// The BMC pushed it.
    Pushed,
    /// It was read from the log.
    Logged,
}

/// The health of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Not read yet, or the BMC is lost.
    Unknown,
    /// No fault.
    Healthy,
    /// At least one fault of severity ERROR or worse.
    Failing,
}

impl Health {
    fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Healthy => "healthy",
            Self::Failing => "failing",
        }
    }
}

/// The state machine of one node.
pub struct Monitor {
    restate_ms: u64,
    watched: Vec<Watched>,
    tracks: Vec<Track>,
    health: Health,
    is_lost: bool,
    has_whole_pass: bool,
    unread: usize,
    /// Events of sensors without a record, by class and number.
    unrecorded: HashMap<(SensorClass, u8), Momentary>,
    /// Sensors to read at once, because of an event.
    reread: Vec<usize>,
    /// Sensors of [`Monitor::take_rereads`] without a new reading.
    awaited: Vec<usize>,
    pairs: Pairs,
    log: EventLog,
    former: FormerConditions,
    kept: KeptErrors,
}

impl Monitor {
    /// A node of unknown health. A lasting fault is published again after each `restate`; zero
    /// means never.
    pub fn new(restate: Duration) -> Self {
        Self {
            restate_ms: u64::try_from(restate.as_millis()).unwrap_or(u64::MAX),
            watched: Vec::new(),
            tracks: Vec::new(),
            health: Health::Unknown,
            is_lost: false,
            has_whole_pass: false,
            unread: 0,
            unrecorded: HashMap::new(),
            reread: Vec::new(),
            awaited: Vec::new(),
            pairs: Pairs::default(),
            log: EventLog::default(),
            former: FormerConditions::default(),
            kept: KeptErrors::default(),
        }
    }

    /// The same, of unknown health until [`Input::Former`].
    #[must_use]
    pub fn awaiting_former(mut self) -> Self {
        self.former.is_awaited = true;
        self
    }

    /// The health of the node.
    pub fn health(&self) -> Health {
        self.health
    }

    /// The sensors of the last inventory.
    pub fn watched(&self) -> &[Watched] {
        &self.watched
    }

    /// Takes the sensors to read now, without waiting for the next poll.
    pub fn take_rereads(&mut self) -> Vec<usize> {
        self.awaited.extend(&self.reread);
        std::mem::take(&mut self.reread)
    }

    /// Whether these readings are faults only if the machine is powered on. In this case the caller
    /// must read the power state before it passes them in. A machine with a turning fan is on.
    pub fn needs_power(&self, samples: &[(usize, Reading)]) -> bool {
        let is_of = |index: usize, classes: &[SensorClass]| {
            self.watched.get(index).is_some_and(|watched| {
                watched.sensor.is_threshold() && classes.contains(&watched.policy.class)
            })
        };
        let is_running = |reading: &Reading| reading.value.is_some_and(|value| value > 0.0);
        let is_stopped = samples.iter().any(|(index, reading)| {
            is_of(*index, &[SensorClass::Fan, SensorClass::Voltage]) && !is_running(reading)
        });
        let turns_now = samples
            .iter()
            .any(|(index, reading)| is_of(*index, &[SensorClass::Fan]) && is_running(reading));
        let turned_before = self.tracks.iter().enumerate().any(|(index, track)| {
            track.is_turning && !samples.iter().any(|(sampled, _)| *sampled == index)
        });
        is_stopped && !turns_now && !turned_before
    }

    /// Handles an input and appends findings. The time in milliseconds must not decrease.
    pub fn handle(&mut self, now_ms: u64, input: Input, findings: &mut Vec<Finding>) {
        let before = findings.len();
        self.take(now_ms, input, findings);
        findings.iter_mut().skip(before).for_each(|finding| self.kept.decide(finding));
    }

    fn take(&mut self, now_ms: u64, input: Input, findings: &mut Vec<Finding>) {
        match input {
            Input::Inventory(watched) => {
                self.on_inventory(watched, findings);
                self.settle_former(now_ms, findings);
            }
            Input::Samples { samples, is_whole, is_powered } => {
                for (index, reading) in &samples {
                    self.on_sample(now_ms, *index, reading, is_powered, findings);
                }
                self.accept_events_of_unread(&samples);
                // The health of a machine without power is unknown.
                self.has_whole_pass |= is_whole && is_powered;
                self.settle_former(now_ms, findings);
                self.publish_counted(now_ms, findings);
                self.repeat_open_faults(now_ms, findings);
                self.update_health(findings);
            }
            Input::Event { event, source } => {
                if self.pairs.is_first(&event, source) {
                    findings.extend(self.log.on_event(now_ms, &event));
                    self.on_event(now_ms, &event, findings);
                    self.publish_counted(now_ms, findings);
                }
            }
            Input::Log(state) => {
                findings.extend(self.log.on_state(now_ms, state));
                self.settle_former(now_ms, findings);
            }
            Input::Unread(count) => self.unread = count,
            Input::Controller { controller, reason } => {
                self.on_controller(controller, reason, findings);
            }
            Input::Lost(reason) => self.on_lost(reason, findings),
            Input::Back => {
                if std::mem::take(&mut self.is_lost) {
                    findings.push(Finding::node(FindingKind::BmcBack, None));
                }
            }
            Input::Former(rows) => {
                self.former.replace(rows);
                self.settle_former(now_ms, findings);
                self.update_health(findings);
            }
            Input::ClearedByHand { component, key } => {
                self.on_cleared_by_hand(&component, &key, findings);
            }
            Input::KeptRefused { component, key } => {
                findings.extend(self.kept.on_refused(&component, &key));
            }
        }
    }

    fn on_inventory(&mut self, watched: Vec<Watched>, findings: &mut Vec<Finding>) {
        let mut old: HashMap<(SensorKey, String), (Watched, Track)> = self
            .watched
            .drain(..)
            .zip(self.tracks.drain(..))
            .map(|(watched, track)| {
                ((watched.sensor.key, watched.sensor.name.clone()), (watched, track))
            })
            .collect();
        self.tracks = watched
            .iter()
            .map(|watched| {
                let key = (watched.sensor.key, watched.sensor.name.clone());
                old.remove(&key).map(|(_, track)| track).unwrap_or_default()
            })
            .collect();
        self.watched = watched;
        for (watched, track) in self.watched.iter_mut().zip(&self.tracks) {
            // A rule, which may be new, has priority.
            if track.is_margin && watched.policy.margin.is_none() {
                watched.judge_as_margin();
            }
        }
        self.reread.clear();
        self.awaited.clear();
        // A BMC that starts may have no sensors yet, so the health is unknown.
        self.has_whole_pass = false;
        // The fault of a removed sensor ends. One that only events report goes on until a person
        // clears it: firmware may have renamed the sensor, or the BMC may have no record of it yet.
        let mut removed = 0;
        for (watched, track) in old.into_values() {
            if track.open.is_none() {
                continue;
            }
            if watched.sensor.event_only && removed < REMOVED_MAX {
                removed += 1;
                self.watched.push(watched);
                self.tracks.push(track);
            } else {
                let note = Some("sensor removed".to_owned());
                let cleared = Finding::of_sensor(FindingKind::Cleared, &watched);
                findings.push(Finding { note, ..cleared });
            }
        }
    }

    fn on_lost(&mut self, reason: String, findings: &mut Vec<Finding>) {
        if std::mem::replace(&mut self.is_lost, true) {
            return;
        }
        self.health = Health::Unknown;
        self.has_whole_pass = false;
        self.tracks.iter_mut().for_each(Track::forget_readings);
        findings.push(Finding::node(FindingKind::BmcLost, Some(reason)));
    }

    /// While a controller is lost, the state of its sensors and the health of the node are unknown.
    fn on_controller(
        &mut self,
        controller: Controller,
        reason: Option<String>,
        findings: &mut Vec<Finding>,
    ) {
        let kind = match reason {
            Some(_) => FindingKind::ControllerLost,
            None => FindingKind::ControllerBack,
        };
        if kind == FindingKind::ControllerLost {
            self.has_whole_pass = false;
            if self.health == Health::Healthy {
                self.health = Health::Unknown;
            }
            for (watched, track) in self.watched.iter().zip(&mut self.tracks) {
                if watched.sensor.key.owner == controller {
                    track.forget_readings();
                }
            }
        }
        findings.push(Finding { controller: Some(controller), ..Finding::node(kind, reason) });
    }

    fn on_sample(
        &mut self,
        now_ms: u64,
        index: usize,
        reading: &Reading,
        is_powered: bool,
        findings: &mut Vec<Finding>,
    ) {
        let (Some(watched), Some(track)) =
            (self.watched.get_mut(index), self.tracks.get_mut(index))
        else {
            return;
        };
        let class = watched.policy.class;
        track.is_read = true;
        track.is_turning =
            class == SensorClass::Fan && reading.value.is_some_and(|value| value > 0.0);
        let needs_power =
            matches!(class, SensorClass::Fan | SensorClass::Voltage | SensorClass::Temperature);
        if needs_power && !is_powered {
            return track.on_power_off();
        }
        if reading.value.is_some_and(|value| watched.reads_as_margin(value)) {
            watched.judge_as_margin();
            track.is_margin = true;
        }
        let watched = &*watched;
        let mut judgement = judge(watched, reading, track.open.is_some(), track.was_present);
        let is_there = reading.raw.is_some() && judge::is_present(watched, reading);
        track.was_present |= is_there;
        track.empty_streak = match reading.raw {
            Some(_) => 0,
            None => track.empty_streak.saturating_add(1),
        };
        if let Some(forecast) = track.predict(now_ms, watched, reading)
            && matches!(judgement, Judgement::Good | Judgement::Warning)
        {
            judgement = Judgement::Bad(Cause::Predicted(forecast));
        }
        let events = std::mem::take(&mut track.unconfirmed);
        if !watched.sensor.is_threshold() {
            track.count_unexplained(&events, reading);
        }
        match judgement {
            Judgement::Unknown => {}
            Judgement::Bad(cause) => {
                let is_confirmed = match watched.sensor.is_threshold() {
                    true => events.is_asserted(),
                    false => events.has_one_of(reading.states),
                };
                findings.extend(track.on_bad(now_ms, watched, reading, cause, is_confirmed));
            }
            Judgement::Good | Judgement::Warning => {
                findings.extend(track.on_good(watched, reading, events.is_deasserted()));
            }
        }
    }

    /// Counts events of sensors without a reading, which would confirm them.
    fn accept_events_of_unread(&mut self, samples: &[(usize, Reading)]) {
        for index in std::mem::take(&mut self.awaited) {
            let is_read = samples.iter().any(|(sampled, _)| *sampled == index);
            if let (false, Some(watched), Some(track)) =
                (is_read, self.watched.get(index), self.tracks.get_mut(index))
                && !watched.sensor.is_threshold()
            {
                let events = std::mem::take(&mut track.unconfirmed);
                let nothing = Reading { raw: None, value: None, states: 0 };
                track.count_unexplained(&events, &nothing);
            }
        }
    }

    fn on_event(&mut self, now_ms: u64, event: &SensorEvent, findings: &mut Vec<Finding>) {
        let found = event.sensor.and_then(|key| {
            // On some boards, events and records have different channels.
            let part = |key: SensorKey| (key.owner.slave & 0xFE, key.lun, key.number);
            self.watched.iter().position(|watched| part(watched.sensor.key) == part(key))
        });
        let Some(index) = found else {
            self.on_unrecorded_event(event);
            return;
        };
        let (watched, track) = (&self.watched[index], &mut self.tracks[index]);
        let bad = match event.is_threshold() {
            // Offsets 2 to 5 and 8 to 11: a critical or non-recoverable threshold.
            true => 0b1111_0011_1100,
            false => judge::bad_states(watched, event.reading_type),
        };
        if bad & (1 << event.offset) == 0 {
            return;
        }
        let cause = Cause::State(event.offset);
        let Some(kind) = judge::kind_of(watched, cause) else { return };
        if !watched.sensor.event_only {
            track.unconfirmed.on_event(event, watched.policy.class.has_final_events());
            if !self.reread.contains(&index) {
                self.reread.push(index);
            }
            return;
        }
        // No event cancels a memory error.
        if watched.policy.class.is_momentary() {
            if event.is_asserted {
                track.momentary.count(event.offset, 1);
            }
            return;
        }
        track.states.on_event(event);
        let severity = severity_of(watched, kind, cause);
        let (kind, severity) = match event.is_asserted {
            true if track.severity() < Some(severity) => (kind, severity),
            false if track.open.is_some() && track.states.is_over() => {
                (FindingKind::Cleared, FindingKind::Cleared.severity())
            }
            _ => return,
        };
        let finding = Finding {
            severity,
            cause: Some(cause),
            is_from_event: true,
            ..Finding::of_sensor(kind, watched)
                .since(now_ms, track.open.as_ref().filter(|_| event.is_asserted))
        };
        track.open = event.is_asserted.then(|| Fault::new(now_ms, &finding));
        findings.push(finding);
        self.update_health(findings);
    }

    /// Firmware reports errors of memory, processors and buses under sensor numbers without a
    /// record.
    fn on_unrecorded_event(&mut self, event: &SensorEvent) {
        let class = SensorClass::of(event.sensor_type);
        let bad = judge::specific_bad_states(event.sensor_type) & (1 << event.offset);
        let is_error = event.is_asserted && event.is_sensor_specific() && bad != 0;
        if !is_error || !class.has_final_events() {
            return;
        }
        let source = match self.unrecorded.len() < UNRECORDED_SOURCES_MAX {
            true => (class, event.number),
            false => (class, 0),
        };
        self.unrecorded.entry(source).or_default().count(event.offset, 1);
    }

    /// Publishes counted events that are due.
    fn publish_counted(&mut self, now_ms: u64, findings: &mut Vec<Finding>) {
        for (watched, track) in self.watched.iter().zip(&mut self.tracks) {
            for (offset, count) in track.momentary.take_due(now_ms) {
                findings.extend(momentary(watched, offset, count));
            }
        }
        for ((class, number), counted) in &mut self.unrecorded {
            for (offset, count) in counted.take_due(now_ms) {
                findings.extend(momentary_of_firmware(*class, *number, offset, count));
            }
        }
    }

    /// Publishes open faults again, for new subscribers.
    fn repeat_open_faults(&mut self, now_ms: u64, findings: &mut Vec<Finding>) {
        let faults = self.tracks.iter_mut().filter_map(|track| track.open.as_mut());
        findings.extend(faults.filter_map(|fault| fault.repeat(now_ms, self.restate_ms)));
        findings.extend(self.log.repeat(now_ms, self.restate_ms));
    }

    /// Updates the health of the node, after all sensors are handled.
    fn update_health(&mut self, findings: &mut Vec<Finding>) {
        let is_failing = self.tracks.iter().any(|track| track.severity() >= Some(Severity::Error));
        if is_failing {
            self.health = Health::Failing;
            return;
        }
        // The node is not healthy while a bad reading is unconfirmed.
        let is_pending =
            self.tracks.iter().any(|track| track.bad_streak > 0 && track.open.is_none());
        let is_unknown = !self.has_whole_pass || self.is_lost || self.former.is_awaited;
        if is_pending || is_unknown || self.health == Health::Healthy {
            return;
        }
        let before = std::mem::replace(&mut self.health, Health::Healthy);
        let normal = Finding::node(FindingKind::Normal, Some(before.as_str().to_owned()));
        findings.push(Finding { unread: self.unread, ..normal });
    }
}

fn momentary(watched: &Watched, offset: u8, count: u32) -> Option<Finding> {
    let cause = Cause::State(offset);
    let kind = judge::kind_of(watched, cause)?;
    Some(Finding {
        severity: severity_of(watched, kind, cause),
        cause: Some(cause),
        count,
        is_from_event: true,
        is_momentary: true,
        ..Finding::of_sensor(kind, watched)
    })
}

fn momentary_of_firmware(
    class: SensorClass,
    number: u8,
    offset: u8,
    count: u32,
) -> Option<Finding> {
    let note = Some(format!("firmware, sensor {number:#04x}"));
    Some(Finding {
        severity: judge::state_severity(class, READING_TYPE_SENSOR_SPECIFIC, offset),
        cause: Some(Cause::State(offset)),
        count,
        is_from_event: true,
        is_momentary: true,
        firmware: Some(number),
        ..Finding::node(judge::kind_without_record(class, offset)?, note)
    })
}

#[cfg(test)]
mod tests;
