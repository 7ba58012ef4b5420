//! Findings as events: names and payloads of the thesis' Appendix B, other facts as tags.

use crate::monitor::{
    CONTROLLER_LOST, Cause, Finding, FindingKind, Statement, Watched, condition_of_class,
    kept_condition,
};
use ftb_core::catalog::names;
use ftb_core::condition::{CHASSIS_OFF, Condition, RecommendedAction, Truth};
use ftb_core::limits::TAG_VALUE_BYTES_MAX;
use ftb_core::text::cut;
use ftb_core::{Event, EventName, EventSpace, Tag};
use std::time::Duration;

/// The event space of this program.
pub const EVENT_SPACE: &str = "ftb.ipmi";

/// Name of the event.
pub fn event_name(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::FanFail => names::FTB_IPMI_FANFAIL,
        FindingKind::OverTemp => names::FTB_IPMI_OVERTEMP,
        FindingKind::Normal => names::FTB_IPMI_NORMAL,
        FindingKind::Cleared => names::FTB_IPMI_SENSOR_CLEARED,
        FindingKind::PsuFail => names::FTB_IPMI_PSUFAIL,
        FindingKind::MemErr => names::FTB_IPMI_MEMERR,
        FindingKind::Voltage => names::FTB_IPMI_VOLTAGE,
        FindingKind::CpuFail => names::FTB_IPMI_CPUFAIL,
        FindingKind::Interrupt => names::FTB_IPMI_CRITICAL_INTERRUPT,
        FindingKind::LogFull => names::FTB_IPMI_SEL_FULL,
        FindingKind::LogCleared => names::FTB_IPMI_SEL_CLEARED,
        FindingKind::ChassisOff => names::FTB_IPMI_CHASSIS_OFF,
        FindingKind::ChassisOn => names::FTB_IPMI_CHASSIS_ON,
        FindingKind::BmcLost => names::FTB_IPMI_BMC_LOST,
        FindingKind::BmcBack => names::FTB_IPMI_BMC_BACK,
        FindingKind::ControllerLost => names::FTB_IPMI_CONTROLLER_LOST,
        FindingKind::ControllerBack => names::FTB_IPMI_CONTROLLER_BACK,
    }
}

/// The finding of an event of this name.
pub fn kind_of_event(name: &str) -> Option<FindingKind> {
    FindingKind::ALL.into_iter().find(|kind| event_name(*kind).eq_ignore_ascii_case(name))
}

/// The event of a finding. `node` is the host name of the failed node, which is not always the
/// publishing host; `bmc` is the name of its BMC; `time_ns` is Unix time.
pub fn to_event(node: &str, bmc: &str, time_ns: u64, finding: &Finding) -> Event {
    let space = EventSpace::new(EVENT_SPACE).expect("a constant that a test checks");
    let name = EventName::new(event_name(finding.kind)).expect("a constant that a test checks");
    let mut event = Event::new(space, name);
    event.severity = finding.severity;
    event.time_ns = time_ns;
    event.payload = node.as_bytes().to_vec().into();
    let mut tags = Tags(Vec::new());
    tags.add("node", node);
    tags.add("bmc", bmc);
    if let Some(watched) = &finding.sensor {
        tags.sensor(watched);
        if let Some(value) = finding.value {
            tags.add("reading", &number(value));
            tags.add("unit", &watched.sensor.unit);
        }
    }
    match (finding.kind, &finding.sensor, finding.controller, &finding.former) {
        (FindingKind::Cleared, None, _, Some(former)) => tags.add("sensor", &former.component),
        (FindingKind::ControllerBack, _, None, Some(former)) => {
            tags.add("controller", &former.component);
        }
        _ => {}
    }
    if let Some(cause) = &finding.cause {
        tags.cause(cause, time_ns);
    }
    if finding.readings > 0 {
        tags.add("readings", &finding.readings.to_string());
    }
    if finding.sensor.is_some() {
        tags.add("source", if finding.is_from_event { "event" } else { "poll" });
    }
    if finding.is_momentary {
        tags.add("lasting", "false");
        tags.add("count", &finding.count.to_string());
    }
    if let Some(controller) = finding.controller {
        tags.add("controller", &controller.to_string());
    }
    if finding.is_repeat {
        tags.add("again", "true");
    }
    if finding.unread > 0 {
        tags.add("unread", &finding.unread.to_string());
    }
    match (finding.kind, &finding.note) {
        (FindingKind::Normal, Some(before)) => tags.add("previous", before),
        (_, Some(note)) => tags.add("reason", note),
        _ => {}
    }
    event.tags = tags.0;
    // A sensor may have any name: the event is published in any case.
    event.condition =
        condition_of(node, time_ns, finding).filter(|condition| condition.check().is_ok());
    event
}

/// The condition that a finding states. The watch over the node is unknown while the BMC is silent.
fn condition_of(node: &str, time_ns: u64, finding: &Finding) -> Option<Condition> {
    let watch = Condition::watch(node, EVENT_SPACE);
    let of_node = |component: String, key: &str, truth| {
        Some(Condition { host: node.to_owned(), component, ..Condition::new(key, truth) })
    };
    let controller = || finding.controller.map_or(String::new(), |number| number.to_string());
    let is_over = [FindingKind::Cleared, FindingKind::ControllerBack, FindingKind::LogCleared]
        .contains(&finding.kind);
    match (finding.kind, &finding.sensor, &finding.former) {
        _ if finding.statement == Statement::Nothing => None,
        _ if finding.statement == Statement::Kept => {
            let (key, action) = kept_condition(finding.kind)?;
            let kept = of_node(component_of(finding)?, key, Truth::True)?;
            Some(Condition { action, is_kept: true, ..kept })
        }
        (_, _, Some(former)) if is_over => {
            of_node(former.component.clone(), &former.key, Truth::False)
        }
        (FindingKind::Normal, ..) => Some(watch),
        (FindingKind::BmcLost, ..) => Some(Condition { truth: Truth::Unknown, ..watch }),
        (FindingKind::ChassisOff, ..) => {
            let off = of_node(String::new(), CHASSIS_OFF, Truth::True)?;
            Some(Condition { action: RecommendedAction::Reboot, ..off })
        }
        (FindingKind::ChassisOn, ..) => of_node(String::new(), CHASSIS_OFF, Truth::False),
        (FindingKind::ControllerLost, ..) => of_node(controller(), CONTROLLER_LOST, Truth::True),
        (FindingKind::ControllerBack, ..) => of_node(controller(), CONTROLLER_LOST, Truth::False),
        (kind, Some(watched), former) => {
            let truth = if kind == FindingKind::Cleared { Truth::False } else { Truth::True };
            let (key, action) = condition_of_class(watched.policy.class);
            let condition = of_node(watched.sensor.name.clone(), key, truth)?;
            let age_ns = finding.age_ms.saturating_mul(1_000_000);
            let onset_ns = match former {
                Some(former) => former.onset_ns,
                None if age_ns == 0 => 0,
                None => time_ns.saturating_sub(age_ns),
            };
            Some(Condition { action, onset_ns, ..condition })
        }
        (_, None, _) => None,
    }
}

/// The component of a kept condition: the sensor, or the sensor number of firmware.
fn component_of(finding: &Finding) -> Option<String> {
    match (&finding.sensor, finding.firmware) {
        (Some(watched), _) => Some(watched.sensor.name.clone()),
        (None, Some(number)) => Some(format!("firmware {number:#04x}")),
        (None, None) => None,
    }
}

struct Tags(Vec<Tag>);

impl Tags {
    /// Ignores empty values and truncates long ones (hostile names, error texts).
    fn add(&mut self, key: &str, value: &str) {
        if value.is_empty() {
            return;
        }
        let value = cut(value, TAG_VALUE_BYTES_MAX).to_owned();
        self.0.push(Tag { key: key.to_owned(), value });
    }

    fn sensor(&mut self, watched: &Watched) {
        let sensor = &watched.sensor;
        self.add("sensor", &sensor.name);
        self.add("sensor_number", &format!("{:#04x}", sensor.key.number));
        self.add("sensor_type", watched.policy.class.as_str());
        self.add("entity", &sensor.entity.to_string());
        self.add("entity_name", sensor.entity.name());
        if let Some(cools) = &watched.cools {
            self.add("cools", cools);
        }
    }

    fn cause(&mut self, cause: &Cause, time_ns: u64) {
        self.add("cause", cause.as_str());
        match cause {
            Cause::Below { threshold, limit } | Cause::Above { threshold, limit } => {
                self.add("threshold_name", threshold);
                if let Some(limit) = limit {
                    self.add("threshold", &number(*limit));
                }
            }
            Cause::State(state) => self.add("state", &state.to_string()),
            Cause::Predicted(forecast) => {
                self.add("threshold_name", "upper_critical");
                self.add("threshold", &number(forecast.limit));
                self.add("slope_per_s", &number(forecast.slope));
                self.add("seconds_left", &format!("{:.0}", forecast.seconds_left));
                self.add("seconds_left_min", &format!("{:.0}", forecast.seconds_left_min));
                self.add("seconds_left_max", &format!("{:.0}", forecast.seconds_left_max));
                let left = Duration::try_from_secs_f64(forecast.seconds_left_min);
                if let Some(at) =
                    left.ok().and_then(|left| Duration::from_nanos(time_ns).checked_add(left))
                {
                    self.add("fails_at_min", &at.as_secs().to_string());
                }
                self.add("sure_percent", &format!("{:.0}", forecast.sure_percent));
            }
            Cause::Zero | Cause::Absent | Cause::Full | Cause::Overflow => {}
        }
    }
}

/// A value with at most three decimals and no trailing zeros.
pub fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}
