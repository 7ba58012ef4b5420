//! The state machine of one node: from readings and events of its BMC to what is published.
//!
//! Responsible for: debounce in both directions, prediction, agreeing polls with events so that
//! nothing is reported twice, and the health of the node as a whole. Not for: asking the BMC, clocks,
//! or the form of an event on the wire. `handle(now, input, &mut findings)` is all there is.

mod judge;
mod limits;
mod log;
mod repeats;
mod slope;
mod told;

pub use judge::{Cause, Judgement, Reading, THRESHOLD_NAMES, Watched, judge};
pub use slope::Forecast;
pub use told::{Finding, FindingKind};

use crate::sdr::{READING_TYPE_SENSOR_SPECIFIC, SensorClass, SensorKey};
use crate::sel::{LogState, SensorEvent};
use ftb_core::Severity;
use ftb_rmcp::Controller;
use log::EventLog;
use repeats::{Momentary, Pairs, Unconfirmed};
use slope::Slope;
use std::collections::HashMap;
use std::time::Duration;
use told::Fault;

/// Most sources of such events that have no sensor record; beyond it they share one.
const FOREIGN_SOURCES_MAX: usize = 256;

/// What happens.
#[derive(Clone, Debug)]
pub enum Input {
    /// The sensors of this node, after (re)reading its records. State is kept where a sensor is
    /// still the same.
    Inventory(Vec<Watched>),
    /// Readings, by index into the inventory. Sensors whose reading failed are not among them.
    Samples {
        /// The readings.
        samples: Vec<(usize, Reading)>,
        /// Set when every readable sensor was asked and has answered.
        is_whole: bool,
        /// Whether the machine is powered on; fans of one that is off stand still rightly.
        is_powered: bool,
    },
    /// The BMC tells an event.
    Event {
        /// The event.
        event: SensorEvent,
        /// How it came. The same event mostly comes both ways.
        way: Way,
    },
    /// Whether the BMC's event log takes another entry.
    Log(LogState),
    /// How many sensors no reading could be got of in the pass whose samples follow.
    Unread(usize),
    /// A controller behind the BMC does not answer, for this reason; `None`: it answers again.
    Controller {
        /// Which.
        controller: Controller,
        /// Why.
        reason: Option<String>,
    },
    /// The BMC does not answer.
    Lost(String),
    /// The BMC answers again.
    Back,
}

/// How an event came from the BMC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Pushed by the BMC when it happened.
    Pushed,
    /// Read in its log.
    Logged,
}

/// What is known of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Not read yet, or not any more.
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

#[derive(Clone, Debug, Default)]
struct Track {
    was_present: bool,
    /// A fan that turned when it was read last.
    is_turning: bool,
    bad_streak: u32,
    good_streak: u32,
    /// The fault that is open.
    open: Option<Fault>,
    unconfirmed: Unconfirmed,
    /// Its readings show that it is a thermal margin.
    is_margin: bool,
    slope: Slope,
    momentary: Momentary,
}

/// One node.
pub struct Monitor {
    restate_ms: u64,
    watched: Vec<Watched>,
    tracks: Vec<Track>,
    health: Health,
    is_lost: bool,
    has_whole_pass: bool,
    unread: usize,
    /// Events from sources without a record, by class.
    foreign: HashMap<(SensorClass, u8), Momentary>,
    /// Sensors to read at once, since an event named them.
    reread: Vec<usize>,
    /// Those of them that are being read.
    awaited: Vec<usize>,
    pairs: Pairs,
    log: EventLog,
}

impl Monitor {
    /// A node of which nothing is known. A fault that lasts is told again every `restate`; zero is
    /// never.
    pub fn new(restate: Duration) -> Self {
        Self {
            restate_ms: u64::try_from(restate.as_millis()).unwrap_or(u64::MAX),
            watched: Vec::new(),
            tracks: Vec::new(),
            health: Health::Unknown,
            is_lost: false,
            has_whole_pass: false,
            unread: 0,
            foreign: HashMap::new(),
            reread: Vec::new(),
            awaited: Vec::new(),
            pairs: Pairs::default(),
            log: EventLog::default(),
        }
    }

    /// What is known of the node.
    pub fn health(&self) -> Health {
        self.health
    }

    /// The sensors.
    pub fn watched(&self) -> &[Watched] {
        &self.watched
    }

    /// Takes the sensors that should be read now, without waiting for the next poll.
    pub fn take_rereads(&mut self) -> Vec<usize> {
        self.awaited.extend(&self.reread);
        std::mem::take(&mut self.reread)
    }

    /// Whether these readings mean a failure only if the machine is powered on: then ask for its
    /// power before handing them in. A machine of which any fan turns is on, whatever it says.
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

    /// Takes an input at a moment (milliseconds on a clock that never goes back) and appends what
    /// is to be published.
    pub fn handle(&mut self, now_ms: u64, input: Input, findings: &mut Vec<Finding>) {
        match input {
            Input::Inventory(watched) => self.on_inventory(watched, findings),
            Input::Samples { samples, is_whole, is_powered } => {
                for (index, reading) in &samples {
                    self.note_turning(*index, reading);
                    if is_powered || !self.depends_on_power(*index) {
                        self.on_sample(now_ms, *index, reading, findings);
                    } else if let Some(track) = self.tracks.get_mut(*index) {
                        track.bad_streak = 0;
                        track.slope.clear();
                    }
                }
                self.believe_events_of_unread(&samples);
                // Of a machine that is off nothing is known.
                self.has_whole_pass |= is_whole && is_powered;
                self.publish_counted(now_ms, findings);
                self.tell_again(now_ms, findings);
                self.settle(findings);
            }
            Input::Event { event, way } => {
                if self.pairs.is_first(&event, way) {
                    findings.extend(self.log.on_event(now_ms, &event));
                    self.on_event(now_ms, &event, findings);
                    self.publish_counted(now_ms, findings);
                }
            }
            Input::Log(state) => findings.extend(self.log.on_state(now_ms, state)),
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
        }
    }

    fn note_turning(&mut self, index: usize, reading: &Reading) {
        if let (Some(watched), Some(track)) = (self.watched.get(index), self.tracks.get_mut(index))
        {
            let is_fan = watched.policy.class == SensorClass::Fan;
            track.is_turning = is_fan && reading.value.is_some_and(|value| value > 0.0);
        }
    }

    fn depends_on_power(&self, index: usize) -> bool {
        self.watched.get(index).is_some_and(|watched| {
            matches!(
                watched.policy.class,
                SensorClass::Fan | SensorClass::Voltage | SensorClass::Temperature
            )
        })
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
            // A rule that was changed meanwhile holds.
            if track.is_margin && watched.policy.margin.is_none() {
                watched.judge_as_margin();
            }
        }
        self.reread.clear();
        self.awaited.clear();
        // A BMC that is starting may have no sensors yet: that is no sign of health.
        self.has_whole_pass = false;
        // A sensor that is gone from the records cannot be judged any more: its fault ends.
        for (watched, track) in old.into_values() {
            if track.open.is_some() {
                let mut finding =
                    Finding::node(FindingKind::Cleared, Some("sensor removed".to_owned()));
                finding.sensor = Some(Box::new(watched));
                findings.push(finding);
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

    /// Nothing is known of the sensors of a lost controller: then the node is not healthy either.
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
        findings: &mut Vec<Finding>,
    ) {
        let (Some(watched), Some(track)) =
            (self.watched.get_mut(index), self.tracks.get_mut(index))
        else {
            return;
        };
        if reading.value.is_some_and(|value| watched.reads_as_margin(value)) {
            watched.judge_as_margin();
            track.is_margin = true;
        }
        let watched = &*watched;
        let mut judgement = judge(watched, reading, track.open.is_some(), track.was_present);
        let is_there = reading.raw.is_some() && judge::is_present(watched, reading);
        track.was_present |= is_there;
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

    /// Takes events at their word where the sensor that they name gave no reading.
    fn believe_events_of_unread(&mut self, samples: &[(usize, Reading)]) {
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
            // Whether an event names the channel that the record names depends on the board.
            let part = |key: SensorKey| (key.owner.slave & 0xFE, key.lun, key.number);
            self.watched.iter().position(|watched| part(watched.sensor.key) == part(key))
        });
        let Some(index) = found else {
            self.on_foreign_event(event);
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
            track.unconfirmed.note(event, watched.policy.class.has_final_events());
            if !self.reread.contains(&index) {
                self.reread.push(index);
            }
            return;
        }
        // No event ever takes a memory error back.
        if watched.policy.class.is_momentary() {
            if event.is_asserted {
                track.momentary.note(event.offset, 1);
            }
            return;
        }
        let mut finding = Finding::node(kind, None);
        finding.sensor = Some(Box::new(watched.clone()));
        finding.cause = Some(cause);
        finding.is_from_event = true;
        let severity = severity_of(watched, kind, cause);
        match (event.is_asserted, &track.open) {
            (true, open) if open.as_ref().is_none_or(|open| open.severity() < severity) => {
                finding.severity = severity;
                track.open = Some(Fault::new(now_ms, &finding));
                findings.push(finding);
            }
            (false, Some(_)) => {
                track.open = None;
                finding.kind = FindingKind::Cleared;
                finding.severity = FindingKind::Cleared.severity();
                findings.push(finding);
            }
            _ => return,
        }
        self.settle(findings);
    }

    /// Firmware reports errors of memory, processors and buses under sensor numbers that no record
    /// explains.
    fn on_foreign_event(&mut self, event: &SensorEvent) {
        let class = SensorClass::of(event.sensor_type);
        let bad = judge::specific_bad_states(event.sensor_type) & (1 << event.offset);
        if !class.has_final_events() || !event.is_sensor_specific() || bad == 0 {
            return;
        }
        if !event.is_asserted {
            return;
        }
        let source = match self.foreign.len() < FOREIGN_SOURCES_MAX {
            true => (class, event.number),
            false => (class, 0),
        };
        self.foreign.entry(source).or_default().note(event.offset, 1);
    }

    /// Publishes the events that were counted, once their time has come.
    fn publish_counted(&mut self, now_ms: u64, findings: &mut Vec<Finding>) {
        for (watched, track) in self.watched.iter().zip(&mut self.tracks) {
            for (offset, count) in track.momentary.take_due(now_ms) {
                findings.extend(momentary(watched, offset, count));
            }
        }
        for ((class, number), counted) in &mut self.foreign {
            for (offset, count) in counted.take_due(now_ms) {
                findings.extend(momentary_of_firmware(*class, *number, offset, count));
            }
        }
    }

    /// Tells open faults again from time to time, for those who were not there the first time.
    fn tell_again(&mut self, now_ms: u64, findings: &mut Vec<Finding>) {
        let faults = self.tracks.iter_mut().filter_map(|track| track.open.as_mut());
        findings.extend(faults.filter_map(|fault| fault.again(now_ms, self.restate_ms)));
        findings.extend(self.log.again(now_ms, self.restate_ms));
    }

    /// Decides the health of the node after all sensors have had their say.
    fn settle(&mut self, findings: &mut Vec<Finding>) {
        let is_failing = self.tracks.iter().any(|track| track.severity() >= Some(Severity::Error));
        if is_failing {
            self.health = Health::Failing;
            return;
        }
        // While a bad reading waits for its confirmation the node is not called healthy.
        let is_pending =
            self.tracks.iter().any(|track| track.bad_streak > 0 && track.open.is_none());
        if is_pending || !self.has_whole_pass || self.is_lost || self.health == Health::Healthy {
            return;
        }
        let before = std::mem::replace(&mut self.health, Health::Healthy);
        let normal = Finding::node(FindingKind::Normal, Some(before.as_str().to_owned()));
        findings.push(Finding { unread: self.unread, ..normal });
    }
}

impl Track {
    /// How bad the fault is that is open.
    fn severity(&self) -> Option<Severity> {
        self.open.as_ref().map(Fault::severity)
    }

    /// What was read is no longer what is.
    fn forget_readings(&mut self) {
        (self.bad_streak, self.good_streak) = (0, 0);
        self.unconfirmed.forget_last();
        self.is_turning = false;
        self.slope.clear();
    }

    /// Counts the events of states that neither the reading nor the open fault explains.
    fn count_unexplained(&mut self, events: &Unconfirmed, reading: &Reading) {
        let told = self.open.as_ref().map_or(0, Fault::states);
        for (offset, count) in events.without(reading.states | told) {
            self.momentary.note(offset, count);
        }
    }

    /// A bad reading: the fault to publish, if it is new or has become worse.
    fn on_bad(
        &mut self,
        now_ms: u64,
        watched: &Watched,
        reading: &Reading,
        cause: Cause,
        is_confirmed: bool,
    ) -> Option<Finding> {
        let kind = judge::kind_of(watched, cause)?;
        self.good_streak = 0;
        self.bad_streak = self.bad_streak.saturating_add(1);
        let severity = severity_of(watched, kind, cause);
        if let Some(fault) = &mut self.open
            && fault.severity() >= severity
        {
            fault.update(kind, cause, reading.value, self.bad_streak);
            return None;
        }
        if self.bad_streak < watched.policy.debounce && !is_confirmed {
            return None;
        }
        let mut finding = Finding::node(kind, None);
        finding.severity = severity;
        finding.sensor = Some(Box::new(watched.clone()));
        finding.cause = Some(cause);
        finding.value = reading.value;
        finding.readings = self.bad_streak;
        finding.is_from_event = is_confirmed;
        self.open = Some(Fault::new(now_ms, &finding));
        Some(finding)
    }

    /// A good reading: the end of the open fault, if there is one and it is over.
    fn on_good(
        &mut self,
        watched: &Watched,
        reading: &Reading,
        is_confirmed: bool,
    ) -> Option<Finding> {
        self.bad_streak = 0;
        self.good_streak = self.good_streak.saturating_add(1);
        self.open.as_ref()?;
        if self.good_streak < watched.policy.clear_after && !is_confirmed {
            return None;
        }
        self.open = None;
        let mut finding = Finding::node(FindingKind::Cleared, None);
        finding.sensor = Some(Box::new(watched.clone()));
        finding.value = reading.value;
        finding.readings = self.good_streak;
        finding.is_from_event = is_confirmed;
        Some(finding)
    }

    fn predict(&mut self, now_ms: u64, watched: &Watched, reading: &Reading) -> Option<Forecast> {
        let policy = &watched.policy;
        let is_heat = policy.class == SensorClass::Temperature && !policy.predict.is_zero();
        let (Some(value), Some(limit), true) = (reading.value, watched.upper_limit(), is_heat)
        else {
            return None;
        };
        self.slope.note(now_ms, value, policy.predict_over);
        let forecast = self.slope.forecast(limit, policy.predict_over)?;
        // Once announced it stands until the limit is clearly farther away again.
        let horizon = policy.predict.as_secs_f64() * if self.open.is_some() { 2.0 } else { 1.0 };
        (forecast.seconds_left <= horizon).then_some(forecast)
    }
}

fn severity_of(watched: &Watched, kind: FindingKind, cause: Cause) -> Severity {
    watched.policy.severity.unwrap_or(match cause {
        Cause::State(state) => {
            let sensor = &watched.sensor;
            judge::state_severity(watched.policy.class, sensor.reading_type, state)
        }
        _ => kind.severity(),
    })
}

fn momentary(watched: &Watched, offset: u8, count: u32) -> Option<Finding> {
    let cause = Cause::State(offset);
    let kind = judge::kind_of(watched, cause)?;
    let mut finding = Finding::node(kind, None);
    finding.severity = severity_of(watched, kind, cause);
    finding.sensor = Some(Box::new(watched.clone()));
    finding.cause = Some(cause);
    finding.count = count;
    finding.is_from_event = true;
    finding.is_momentary = true;
    Some(finding)
}

fn momentary_of_firmware(
    class: SensorClass,
    number: u8,
    offset: u8,
    count: u32,
) -> Option<Finding> {
    let mut finding = Finding::node(judge::kind_of_foreign(class, offset)?, None);
    finding.severity = judge::state_severity(class, READING_TYPE_SENSOR_SPECIFIC, offset);
    finding.cause = Some(Cause::State(offset));
    finding.is_from_event = true;
    finding.is_momentary = true;
    finding.count = count;
    finding.note = Some(format!("firmware, sensor {number:#04x}"));
    Some(finding)
}

#[cfg(test)]
mod tests;
