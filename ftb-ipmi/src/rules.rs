//! Rules: how sensors, selected by name, class and entity, are judged. Pure data and matching.
//!
//! Every rule that matches a sensor applies, in the order of the file. If two rules set the same
//! key, the later one wins. Keys without a rule come from the sensor record, then from the defaults
//! of [`Policy`].

use crate::sdr::{Entity, Sensor, SensorClass};
use ftb_core::Severity;
use serde::Deserialize;
use std::time::Duration;

/// Most rules of a configuration.
pub const RULES_MAX: usize = 1024;

/// One `[[rule]]` of a file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rule {
    /// Pattern for the sensor name, with `*` and `?`; ignores case.
    pub name: Option<String>,
    /// Class of the sensor by its type.
    #[serde(rename = "type")]
    pub class: Option<SensorClass>,
    /// Pattern for the entity: `29.1`, `29.*`, or by name: `fan`, `processor`.
    pub entity: Option<String>,
    /// For rules of several boards: the rule may match no sensor.
    pub optional: bool,

    /// Do not read the sensor.
    pub ignore: Option<bool>,
    /// Judge the sensor as this class.
    pub treat_as: Option<SensorClass>,
    /// Whether this temperature is a thermal margin: it counts up to zero, the limit.
    pub margin: Option<bool>,
    /// Replaces the lower critical threshold.
    pub lower_critical: Option<f64>,
    /// Replaces the upper critical threshold.
    pub upper_critical: Option<f64>,
    /// Replaces the hysteresis, in units of the value.
    pub hysteresis: Option<f64>,
    /// Bad readings in a row before an event.
    pub debounce: Option<u32>,
    /// Good readings in a row before the fault ends.
    pub clear_after: Option<u32>,
    /// Severity of the fault event.
    pub severity: Option<SeverityWord>,
    /// A standing fan has not failed.
    pub zero_is_good: Option<bool>,
    /// Bad states of a discrete sensor, by their offsets.
    pub bad_states: Option<Vec<u8>>,
    /// Longest time before a predicted overheating; "0s" disables prediction.
    #[serde(with = "humantime_serde::option")]
    pub predict: Option<Duration>,
    /// Shortest duration of a rise for a prediction.
    #[serde(with = "humantime_serde::option")]
    pub predict_over: Option<Duration>,
    /// The part that the fan cools, if the records lack it.
    pub cools: Option<String>,
}

/// A severity in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeverityWord(pub Severity);

impl<'de> Deserialize<'de> for SeverityWord {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        word.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

impl Rule {
    /// The first invalid value, in one line.
    pub fn problem(&self) -> Option<String> {
        let numbers = [self.lower_critical, self.upper_critical, self.hysteresis];
        if numbers.into_iter().flatten().any(|number| !number.is_finite()) {
            return Some("a threshold must be a finite number".to_owned());
        }
        if self.hysteresis.is_some_and(|value| value < 0.0) {
            return Some("hysteresis must not be negative".to_owned());
        }
        if self.debounce == Some(0) || self.clear_after == Some(0) {
            return Some("debounce and clear_after count readings: at least 1".to_owned());
        }
        if let Some(state) = self.bad_states.iter().flatten().find(|state| **state > 14) {
            return Some(format!("bad_states: a sensor has states 0 to 14, not {state}"));
        }
        let selects = self.name.is_some() || self.class.is_some() || self.entity.is_some();
        (!selects).then(|| "a rule needs name, type or entity: which sensors?".to_owned())
    }

    /// Whether the rule applies to this sensor.
    pub fn matches(&self, sensor: &Sensor) -> bool {
        self.name.as_ref().is_none_or(|pattern| glob(pattern, &sensor.name))
            && self.class.is_none_or(|class| class == sensor.class())
            && self.entity.as_ref().is_none_or(|pattern| is_entity(pattern, sensor.entity))
    }

    /// The selection of the rule, for messages.
    pub fn describe(&self) -> String {
        let mut words = Vec::new();
        if let Some(name) = &self.name {
            words.push(format!("name = {name:?}"));
        }
        if let Some(class) = self.class {
            words.push(format!("type = {:?}", class.as_str()));
        }
        if let Some(entity) = &self.entity {
            words.push(format!("entity = {entity:?}"));
        }
        words.join(", ")
    }
}

fn is_entity(pattern: &str, entity: Entity) -> bool {
    glob(pattern, &entity.to_string()) || glob(pattern, entity.name())
}

/// `*` matches any characters, `?` one; ignores case.
fn glob(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().flat_map(char::to_lowercase).collect();
    let text: Vec<char> = text.chars().flat_map(char::to_lowercase).collect();
    // Where to continue if the text after the last star does not match.
    let (mut at, mut next, mut star) = (0, 0, None);
    while at < text.len() {
        match pattern.get(next) {
            Some('*') => {
                star = Some((next + 1, at));
                next += 1;
            }
            Some(c) if *c == '?' || *c == text[at] => {
                at += 1;
                next += 1;
            }
            _ => {
                let Some((after, from)) = star else { return false };
                star = Some((after, from + 1));
                (next, at) = (after, from + 1);
            }
        }
    }
    pattern[next..].iter().all(|c| *c == '*')
}

/// How a sensor is judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The sensor is not read.
    pub is_ignored: bool,
    /// Class of the sensor.
    pub class: SensorClass,
    /// Replaces the lower critical threshold of the record.
    pub lower_critical: Option<f64>,
    /// Replaces the upper critical threshold of the record.
    pub upper_critical: Option<f64>,
    /// Whether it is a thermal margin; `None`: the readings decide.
    pub margin: Option<bool>,
    /// Replaces the hysteresis of the record.
    pub hysteresis: Option<f64>,
    /// Bad readings in a row before an event, at least 1.
    pub debounce: u32,
    /// Good readings in a row before the fault ends, at least 1.
    pub clear_after: u32,
    /// Replaces the severity of the event.
    pub severity: Option<Severity>,
    /// A standing fan has not failed.
    pub zero_is_good: bool,
    /// Replaces the bad states of the standard.
    pub bad_states: Option<u16>,
    /// Longest time before a predicted overheating; zero means no prediction.
    pub predict: Duration,
    /// Shortest duration of a rise for a prediction.
    pub predict_over: Duration,
    /// The part that the fan cools.
    pub cools: Option<String>,
}

/// Spellings of "margin" in sensor names.
const MARGIN_WORDS: [&str; 4] = ["margin", "margn", "mrg", "mgn"];

/// Whether the name and unit of a temperature are those of a thermal margin ("P1 DTS Therm Mgn").
fn is_named_margin(sensor: &Sensor) -> bool {
    let name = sensor.name.to_lowercase();
    (sensor.unit.is_empty() || sensor.unit.starts_with("degrees"))
        && MARGIN_WORDS.iter().any(|word| name.contains(word))
}

impl Policy {
    /// The defaults for a sensor.
    pub fn default_for(sensor: &Sensor) -> Self {
        let class = sensor.class();
        let is_temperature = class == SensorClass::Temperature && sensor.is_threshold();
        let is_margin = is_temperature && is_named_margin(sensor);
        Self {
            is_ignored: false,
            class,
            lower_critical: None,
            upper_critical: None,
            margin: is_margin.then_some(true),
            hysteresis: None,
            debounce: 2,
            clear_after: 3,
            severity: None,
            zero_is_good: false,
            bad_states: None,
            predict: Duration::from_secs(if is_temperature { 60 } else { 0 }),
            predict_over: Duration::from_secs(20),
            cools: None,
        }
    }

    /// The policy that the rules make for a sensor.
    pub fn of(sensor: &Sensor, rules: &[Rule]) -> Self {
        let mut policy = Self::default_for(sensor);
        for rule in rules.iter().filter(|rule| rule.matches(sensor)) {
            policy.apply(rule);
        }
        policy
    }

    fn apply(&mut self, rule: &Rule) {
        fn set<T: Clone>(slot: &mut T, value: Option<&T>) {
            if let Some(value) = value {
                *slot = value.clone();
            }
        }
        set(&mut self.is_ignored, rule.ignore.as_ref());
        set(&mut self.class, rule.treat_as.as_ref());
        set(&mut self.debounce, rule.debounce.as_ref());
        set(&mut self.clear_after, rule.clear_after.as_ref());
        set(&mut self.zero_is_good, rule.zero_is_good.as_ref());
        set(&mut self.predict, rule.predict.as_ref());
        set(&mut self.predict_over, rule.predict_over.as_ref());
        self.lower_critical = rule.lower_critical.or(self.lower_critical);
        self.upper_critical = rule.upper_critical.or(self.upper_critical);
        self.hysteresis = rule.hysteresis.or(self.hysteresis);
        self.margin = rule.margin.or(self.margin);
        self.severity = rule.severity.map(|word| word.0).or(self.severity);
        self.cools = rule.cools.clone().or_else(|| self.cools.take());
        if let Some(states) = &rule.bad_states {
            self.bad_states = Some(states.iter().fold(0, |mask, state| mask | 1 << (state & 0xF)));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn sensor(name: &str, sensor_type: u8) -> Sensor {
        let (name, unit) = (name.to_owned(), String::new());
        Sensor { name, sensor_type, unit, ..crate::sdr::tests::fan() }
    }

    fn rules(text: &str) -> Vec<Rule> {
        #[derive(Deserialize)]
        struct File {
            rule: Vec<Rule>,
        }
        toml::from_str::<File>(text).unwrap().rule
    }

    #[test]
    fn the_later_of_two_rules_wins() {
        let rules = rules(
            r#"
            [[rule]]
            type = "fan"
            lower_critical = 500.0
            debounce = 4
            [[rule]]
            name = "cpu ? *"
            debounce = 1
            severity = "fatal"
            cools = "processor 1"
            [[rule]]
            entity = "30.*"
            ignore = true
            "#,
        );
        let policy = Policy::of(&sensor("CPU 1 FAN", 4), &rules);
        assert_eq!((policy.lower_critical, policy.debounce), (Some(500.0), 1));
        assert_eq!(policy.severity, Some(Severity::Fatal));
        assert_eq!(policy.cools.as_deref(), Some("processor 1"));
        assert!(!policy.is_ignored);
        assert_eq!(Policy::of(&sensor("SYS FAN", 4), &rules).debounce, 4);
        let by_name = Rule { entity: Some("FAN".into()), ..Rule::default() };
        assert!(by_name.matches(&sensor("x", 4)));
    }

    #[test]
    fn a_margin_is_recognized_by_its_name_in_every_spelling() {
        let of = |name: &str| Policy::default_for(&sensor(name, 1)).margin;
        for name in [
            "P1 Therm Margin",
            "DIMM Thrm Mrgn 1",
            "P1 DTS Therm Mgn",
            "MEM P0 THRM MRGN",
            "CPU1_DTS_Margin",
            "Agg Therm Mgn 1",
            "CPU0 Thrm Mrg",
        ] {
            assert_eq!(of(name), Some(true), "{name}");
        }
        for name in ["Inlet Temp", "CPU1 DTS", "P1 Therm", "PCH Temp", "Mem Temp"] {
            assert_eq!(of(name), None, "{name}");
        }
        assert_eq!(Policy::default_for(&sensor("margin fan", 4)).margin, None);
        let percent = Sensor { unit: "%".to_owned(), ..sensor("P1 Therm Mgn", 1) };
        assert_eq!(Policy::default_for(&percent).margin, None);
        let rules = rules("[[rule]]\nname = 'P1 *'\nmargin = false\n");
        assert_eq!(Policy::of(&sensor("P1 Therm Mgn", 1), &rules).margin, Some(false));
    }

    #[test]
    fn every_invalid_rule_has_its_own_message() {
        let problem = |text: &str| rules(text)[0].problem();
        assert!(problem("[[rule]]\ndebounce = 2").unwrap().contains("which sensors"));
        assert!(problem("[[rule]]\nname='x'\ndebounce = 0").unwrap().contains("at least 1"));
        assert!(problem("[[rule]]\nname='x'\nbad_states = [15]").unwrap().contains("15"));
        assert!(problem("[[rule]]\nname='x'\nupper_critical = nan").unwrap().contains("finite"));
        assert_eq!(problem("[[rule]]\nname='x'\nhysteresis = 2.0"), None);
    }

    proptest! {
        #[test]
        fn a_pattern_without_wildcards_matches_only_itself(a in "[a-c]{0,4}", b in "[a-c]{0,4}") {
            prop_assert_eq!(glob(&a, &b), a == b);
            let begins = format!("{a}*");
            let contains = format!("*{a}*");
            prop_assert_eq!(glob(&begins, &b), b.starts_with(&a));
            prop_assert_eq!(glob(&contains, &b), b.contains(&a));
        }
    }
}
