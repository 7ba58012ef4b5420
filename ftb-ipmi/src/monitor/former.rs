//! What an earlier life of this program has stated, until this life knows better.
//!
//! A sensor with readings: its condition is over when this life first reads it as good. A sensor
//! that has only events: this life states its condition again, unless an event in the log has ended
//! it since. So neither a restart nor a fault of another sensor decides what is wrong now.
//!
//! A sensor that the BMC lost: only a measured value ends with its sensor. Other conditions may
//! come from events, and no reading has shown that they are over: they stay unknown. Which states a
//! fault had that only events report, and that they do, the earlier life has saved.

use super::finding::Fault;
use super::track::Track;
use super::{
    CONTROLLER_LOST, Cause, Finding, FindingKind, FormerCondition, LOG_FULL, Monitor, Watched,
    condition_of_class, judge,
};
use crate::sdr::SensorClass;
use ftb_core::condition::CHASSIS_OFF;
use std::collections::BTreeMap;

/// Most conditions of one node. Further ones stay unknown until they are cleared by hand.
const FORMER_MAX: usize = 4096;

/// The conditions of the earlier life that this life has neither cleared nor stated again.
#[derive(Debug, Default)]
pub(super) struct FormerConditions {
    rows: Vec<FormerCondition>,
    /// They are not read yet.
    pub(super) is_awaited: bool,
}

impl FormerConditions {
    /// They are read, or read again.
    pub(super) fn replace(&mut self, mut rows: Vec<FormerCondition>) {
        rows.truncate(FORMER_MAX);
        (self.rows, self.is_awaited) = (rows, false);
    }
}

/// What this life knows about a former condition.
enum FormerState {
    /// Nothing yet.
    Unknown,
    /// It states the condition itself, of the sensor with this index.
    Replaced(Option<usize>),
    /// It is over.
    Over(Box<Finding>),
    /// Only events report the state of the sensor with this index.
    OfEvents(usize),
    /// The part of the sensor with this index is gone: the fault goes on.
    Absent(usize),
}

/// Classes of sensors that measure a value: their conditions come from readings.
const MEASURED: [SensorClass; 3] =
    [SensorClass::Fan, SensorClass::Temperature, SensorClass::Voltage];

/// The states in which a sensor may have stated a former condition, one bit each: those of its
/// event. The table has no more.
fn states_of(row: &FormerCondition, watched: &Watched) -> u16 {
    let bad = judge::bad_states(watched, watched.sensor.reading_type);
    let is_of_row = |state: &u8| {
        let kind = judge::kind_of(watched, Cause::State(*state));
        bad & (1 << state) != 0 && kind == Some(row.kind)
    };
    (0..16).filter(is_of_row).fold(0, |states, state: u8| states | 1 << state)
}

fn over(finding: Finding) -> FormerState {
    FormerState::Over(Box::new(finding))
}

impl Monitor {
    /// Clears former conditions that are over, and states those again that go on.
    pub(super) fn settle_former(&mut self, now_ms: u64, findings: &mut Vec<Finding>) {
        for row in std::mem::take(&mut self.former.rows) {
            match self.state_of(&row) {
                FormerState::Unknown => self.former.rows.push(row),
                FormerState::Replaced(index) => {
                    self.continue_former(now_ms, index, row, findings);
                }
                FormerState::Over(finding) => {
                    findings.push(Finding { former: Some(Box::new(row)), ..*finding });
                }
                FormerState::OfEvents(index) => {
                    let (watched, track) = (&self.watched[index], &mut self.tracks[index]);
                    // The loss of this program made unknown also what was over.
                    let is_over = row.kind == FindingKind::Cleared
                        || match row.event_states.filter(|states| *states != 0) {
                            Some(states) => track.states.on_known(states),
                            None => track.states.on_former(states_of(&row, watched)),
                        };
                    match (track.open.is_some(), is_over) {
                        (true, _) => {}
                        (false, true) => {
                            let over = Finding::of_sensor(FindingKind::Cleared, watched);
                            findings.push(Finding { former: Some(Box::new(row)), ..over });
                        }
                        (false, false) => self.go_on(now_ms, index, None, row, findings),
                    }
                }
                FormerState::Absent(index) => {
                    self.go_on(now_ms, index, Some(Cause::Absent), row, findings);
                }
            }
        }
    }

    /// This life has found the fault again: it goes on since the earlier life.
    fn continue_former(
        &mut self,
        now_ms: u64,
        index: Option<usize>,
        row: FormerCondition,
        findings: &mut Vec<Finding>,
    ) {
        // What was over is not the same fault.
        let is_same = row.kind != FindingKind::Cleared;
        let Some(index) = index.filter(|_| is_same) else { return };
        let Some(fault) = &mut self.tracks[index].open else { return };
        fault.continue_former(row.clone());
        let sensor = self.watched[index].sensor.key;
        let is_it = |finding: &&mut Finding| {
            let of = finding.sensor.as_ref().map(|watched| watched.sensor.key);
            of == Some(sensor) && !finding.is_momentary && finding.kind != FindingKind::Cleared
        };
        match findings.iter_mut().find(is_it) {
            Some(finding) => finding.former = Some(Box::new(row)),
            None => findings.push(fault.again(now_ms)),
        }
    }

    /// States a former condition again.
    fn go_on(
        &mut self,
        now_ms: u64,
        index: usize,
        cause: Option<Cause>,
        row: FormerCondition,
        findings: &mut Vec<Finding>,
    ) {
        let (watched, track) = (&self.watched[index], &mut self.tracks[index]);
        let finding = Finding {
            severity: row.severity,
            cause,
            is_from_event: cause.is_none(),
            is_repeat: true,
            note: Some("reported before a restart of ftb-ipmi".to_owned()),
            ..Finding::of_sensor(row.kind, watched)
        };
        let finding = Finding { former: Some(Box::new(row)), ..finding };
        track.open = Some(Fault::new(now_ms, &finding));
        findings.push(finding);
        self.update_health(findings);
    }

    fn state_of(&self, row: &FormerCondition) -> FormerState {
        match &*row.key {
            LOG_FULL if self.log.has_room() => {
                return over(Finding::node(FindingKind::LogCleared, None));
            }
            LOG_FULL => return FormerState::Unknown,
            CONTROLLER_LOST => return self.state_of_controller(row),
            // The caller reads the power and states it again.
            CHASSIS_OFF => return FormerState::Replaced(None),
            _ => {}
        }
        let is_of_row = |watched: &Watched| {
            let key = condition_of_class(watched.policy.class).0;
            watched.sensor.name == row.component && key == row.key
        };
        let has_events_only =
            |watched: &Watched| watched.sensor.event_only && !watched.policy.class.is_momentary();
        let sensors = || {
            let all = self.watched.iter().zip(&self.tracks).enumerate();
            all.filter(|(_, (watched, _))| is_of_row(watched))
        };
        if let Some((index, _)) = sensors().find(|(_, (watched, _))| has_events_only(watched)) {
            return FormerState::OfEvents(index);
        }
        if let Some((index, _)) = sensors().find(|(_, (_, track))| track.open.is_some()) {
            return FormerState::Replaced(Some(index));
        }
        let is_over = |watched| over(Finding::of_sensor(FindingKind::Cleared, watched));
        // The part may have been taken out while no life of this program ran.
        let is_gone = |(_, (watched, track)): &(usize, (&Watched, &Track))| {
            let class = watched.policy.class;
            matches!(class, SensorClass::Fan | SensorClass::PowerSupply)
                && row.kind != FindingKind::Cleared
                && track.empty_streak >= watched.policy.debounce
        };
        if let Some((index, _)) = sensors().find(is_gone) {
            return FormerState::Absent(index);
        }
        let mut read = sensors().filter(|(_, (watched, _))| watched.is_polled()).peekable();
        match read.peek() {
            Some((_, (watched, _))) => {
                let watched = *watched;
                match read.all(|(_, (_, track))| track.is_good()) {
                    true => is_over(watched),
                    false => FormerState::Unknown,
                }
            }
            // Before a whole pass, the BMC may not have all records yet.
            None if self.has_whole_pass
                && row.event_states.is_none()
                && MEASURED.iter().any(|class| condition_of_class(*class).0 == row.key) =>
            {
                let note = Some("sensor removed".to_owned());
                over(Finding::node(FindingKind::Cleared, note))
            }
            None => FormerState::Unknown,
        }
    }

    /// A controller is back when one of its sensors was read. It is taken out if it has none.
    fn state_of_controller(&self, row: &FormerCondition) -> FormerState {
        let all = self.watched.iter().zip(&self.tracks);
        let mut sensors = all
            .filter(|(watched, _)| {
                watched.is_polled() && watched.sensor.key.owner.to_string() == row.component
            })
            .peekable();
        if sensors.peek().is_none() && self.has_whole_pass {
            let note = Some("controller removed".to_owned());
            return over(Finding::node(FindingKind::ControllerBack, note));
        }
        match sensors.find(|(_, track)| track.is_read) {
            Some((watched, _)) => over(Finding {
                controller: Some(watched.sensor.key.owner),
                ..Finding::node(FindingKind::ControllerBack, None)
            }),
            None => FormerState::Unknown,
        }
    }

    /// The open faults that only events report, by component and key, with the states that hold:
    /// for the next life. `None` before it is known what the earlier life has stated.
    pub fn event_faults(&self) -> Option<BTreeMap<(String, String), u16>> {
        if self.former.is_awaited || self.watched.is_empty() {
            return None;
        }
        let open = self
            .watched
            .iter()
            .zip(&self.tracks)
            .filter(|(watched, track)| watched.sensor.event_only && track.open.is_some());
        let open = open.map(|(watched, track)| {
            let key = condition_of_class(watched.policy.class).0;
            ((watched.sensor.name.clone(), key.to_owned()), track.states.known())
        });
        let waiting =
            self.former.rows.iter().filter_map(|row| {
                Some(((row.component.clone(), row.key.clone()), row.event_states?))
            });
        Some(waiting.chain(open).collect())
    }

    /// A person has cleared a condition. A sensor that is read decides by itself; the fault of one
    /// that has only events is over.
    pub(super) fn on_cleared_by_hand(
        &mut self,
        component: &str,
        key: &str,
        findings: &mut Vec<Finding>,
    ) {
        self.kept.on_cleared(component, key);
        self.former.rows.retain(|row| row.component != component || row.key != key);
        for (watched, track) in self.watched.iter().zip(&mut self.tracks) {
            let is_it = watched.sensor.event_only
                && watched.sensor.name == component
                && condition_of_class(watched.policy.class).0 == key;
            if is_it && track.open.take().is_some() {
                track.states.end();
                let note = Some("cleared by hand".to_owned());
                let cleared = Finding::of_sensor(FindingKind::Cleared, watched);
                findings.push(Finding { note, ..cleared });
            }
        }
        self.update_health(findings);
    }
}
