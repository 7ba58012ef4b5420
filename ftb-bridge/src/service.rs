//! What the bridge states of itself: that it watches, and that it does not reach NATS or cannot
//! import.
//!
//! A state machine without I/O and clock. Who watches the bridge: its agent states the watch as
//! unknown 10 s after the bridge has gone.

use crate::import::SPACE;
use ftb_client::{Condition, Event, NameError, RecommendedAction, Severity, Truth, event};
use ftb_core::catalog::names;
use ftb_core::text::cut;
use std::collections::BTreeMap;

/// The component of its conditions.
pub const COMPONENT: &str = "ftb-bridge";
/// The component of its watch.
pub const WATCH: &str = "ftb.bridge";
/// The condition that NATS is not reached, or that an alarm cannot be imported.
pub const UNREACHABLE: &str = "NATS_UNREACHABLE";
/// How long that lasts before it is stated: a server may be restarted.
const PATIENCE_MS: u64 = 60_000;
/// After this time without a further failure there is none any more: longer than a pause between
/// two attempts.
const QUIET_MS: u64 = 50_000;
/// Most bytes of a payload with a condition.
const TEXT_BYTES_MAX: usize = 1_024;

/// What can fail by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The connection to NATS.
    Connection,
    /// The export.
    Export,
    /// The import.
    Import,
}

/// What is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceNotice {
    /// The bridge runs.
    Watching,
    /// Something fails: why.
    Unreachable(String),
    /// Nothing fails any more.
    Reachable,
}

/// A part that fails.
#[derive(Debug)]
struct Trouble {
    since_ms: u64,
    last_ms: u64,
    why: String,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Service {
    troubles: BTreeMap<Part, Trouble>,
    /// [`UNREACHABLE`] is stated, by this bridge or its former life.
    is_stated: bool,
    /// Some part has succeeded in this life.
    has_succeeded: bool,
}

impl Service {
    /// The former life of this bridge has stated [`UNREACHABLE`].
    pub fn set_stated(&mut self) {
        self.is_stated = true;
    }

    /// A part has failed at this time, in milliseconds of any clock.
    pub fn on_failure(&mut self, now_ms: u64, part: Part, why: &str) {
        let new = || Trouble { since_ms: now_ms, last_ms: now_ms, why: String::new() };
        let trouble = self.troubles.entry(part).or_insert_with(new);
        trouble.last_ms = now_ms;
        why.clone_into(&mut trouble.why);
    }

    /// A part has done what it should.
    pub fn on_success(&mut self, part: Part) {
        self.has_succeeded |= part != Part::Connection;
        self.troubles.remove(&part);
    }

    /// Time has passed.
    pub fn on_tick(&mut self, now_ms: u64) -> Option<ServiceNotice> {
        self.troubles.retain(|_, trouble| now_ms.saturating_sub(trouble.last_ms) <= QUIET_MS);
        if !self.is_stated {
            let mut all = self.troubles.values();
            let long = all.find(|one| now_ms.saturating_sub(one.since_ms) >= PATIENCE_MS)?;
            self.is_stated = true;
            return Some(ServiceNotice::Unreachable(long.why.clone()));
        }
        let is_over = self.troubles.is_empty() && self.has_succeeded;
        self.is_stated = !is_over;
        is_over.then_some(ServiceNotice::Reachable)
    }
}

/// The event by which the bridge states something of itself. The account of the bridge may publish
/// in the event space of the facility alone.
///
/// # Errors
/// None: its names are constants.
pub fn event_of(notice: &ServiceNotice) -> Result<Event, NameError> {
    let stated = |truth| Condition {
        component: COMPONENT.to_owned(),
        action: RecommendedAction::Watch,
        ..Condition::new(UNREACHABLE, truth)
    };
    let (name, severity, text, condition) = match notice {
        ServiceNotice::Watching => {
            let condition = Condition::watch("", WATCH);
            (names::FTB_BRIDGE_WATCHING, Severity::Info, "ftb-bridge has started", condition)
        }
        ServiceNotice::Unreachable(why) => {
            let condition = stated(Truth::True);
            (names::FTB_BRIDGE_UNREACHABLE, Severity::Error, &why[..], condition)
        }
        ServiceNotice::Reachable => {
            let text = "the bridge exports and imports again";
            (names::FTB_BRIDGE_REACHABLE, Severity::Info, text, stated(Truth::False))
        }
    };
    let text = cut(text, TEXT_BYTES_MAX).to_owned();
    Ok(event(SPACE, name)?.severity(severity).payload(text).condition(condition).build())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftb_client::limits;

    #[test]
    fn what_fails_for_a_minute_is_stated_once_and_its_end_too() {
        let mut service = Service::default();
        let down = || Some(ServiceNotice::Unreachable("no connection".to_owned()));
        for second in 0..200 {
            let now_ms = second * 1_000;
            service.on_failure(now_ms, Part::Connection, "no connection");
            let notice = service.on_tick(now_ms);
            assert_eq!(notice, if second == 60 { down() } else { None }, "{second}");
        }
        service.on_success(Part::Connection);
        assert_eq!(service.on_tick(200_000), None, "nothing was exported yet");
        service.on_success(Part::Export);
        assert_eq!(service.on_tick(200_000), Some(ServiceNotice::Reachable));
        assert_eq!(service.on_tick(201_000), None);
    }

    #[test]
    fn single_failures_state_nothing_and_an_alarm_that_is_refused_again_does() {
        let mut service = Service::default();
        service.on_failure(0, Part::Export, "a conflict");
        assert_eq!(service.on_tick(50_000), None);
        assert_eq!(service.on_tick(60_000), None);
        service.on_failure(61_000, Part::Export, "a conflict");
        assert_eq!(service.on_tick(110_000), None, "they are not one");
        let mut service = Service::default();
        for second in [0, 31, 62] {
            service.on_failure(second * 1_000, Part::Import, "denied");
            service.on_success(Part::Export);
        }
        let denied = ServiceNotice::Unreachable("denied".to_owned());
        assert_eq!(service.on_tick(62_000), Some(denied));
    }

    #[test]
    fn what_its_former_life_has_stated_is_cleared_when_something_succeeds() {
        let mut service = Service::default();
        service.set_stated();
        assert_eq!(service.on_tick(1_000), None);
        service.on_success(Part::Export);
        assert_eq!(service.on_tick(2_000), Some(ServiceNotice::Reachable));
    }

    #[test]
    fn its_watch_and_its_condition_are_those_that_alerts_count() {
        let condition = |notice| event_of(&notice).ok().and_then(|event| event.condition);
        let watch = condition(ServiceNotice::Watching).expect("a condition");
        assert_eq!((watch.key.as_str(), watch.component.as_str()), ("WATCHED", "ftb.bridge"));
        let why = "x".repeat(limits::PAYLOAD_BYTES_MAX);
        let stated = event_of(&ServiceNotice::Unreachable(why)).expect("an event");
        assert!(stated.check(limits::PAYLOAD_BYTES_MAX).is_ok());
        assert_eq!(stated.condition.expect("a condition").truth, Truth::True);
    }
}
