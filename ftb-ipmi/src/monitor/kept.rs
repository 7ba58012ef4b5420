//! Errors that hold until a person clears their conditions: the part is broken, and neither a
//! reading nor an event says that it is replaced.

use super::finding::{condition_of_class, kept_condition};
use super::judge::state_severity;
use super::{Cause, Finding, FindingKind, Statement};
use ftb_core::Severity;
use std::collections::BTreeMap;

/// Most kept conditions that are remembered. Further ones are stated all the same; a lesser fault
/// of the same sensor may replace them.
const KEPT_MAX: usize = 2048;

/// The kept conditions of sensors that this life has stated, by component and key: with the last
/// lasting fault of the sensor, or its end, that has not stated itself because of them.
#[derive(Debug, Default)]
pub(super) struct KeptErrors(BTreeMap<(String, &'static str), Option<Finding>>);

impl KeptErrors {
    /// Decides what a finding of a sensor states. A momentary error of severity ERROR or worse is
    /// kept. While it holds, a lasting fault of the same sensor states nothing if it is less severe
    /// or over: a corrected error never hides an uncorrectable one.
    pub(super) fn decide(&mut self, finding: &mut Finding) {
        let class = finding.sensor.as_ref().map(|watched| watched.policy.class);
        let of_kind = kept_condition(finding.kind).map(|(key, _)| key);
        if finding.is_momentary {
            let is_final = class.is_none_or(|class| class.has_final_events());
            // Also where a rule gives the sensor another severity, a corrected error is corrected.
            let by_state = match (&finding.sensor, finding.cause) {
                (Some(watched), Some(Cause::State(state))) => {
                    state_severity(watched.policy.class, watched.sensor.reading_type, state)
                }
                _ => finding.severity,
            };
            let is_severe = finding.severity.min(by_state) >= Severity::Error;
            let is_kept = is_final && is_severe && of_kind.is_some();
            finding.statement = if is_kept { Statement::Kept } else { Statement::Nothing };
            if let (true, Some(watched), Some(key)) = (is_kept, &finding.sensor, of_kind)
                && self.0.len() < KEPT_MAX
            {
                self.0.entry((watched.sensor.name.clone(), key)).or_default();
            }
            return;
        }
        let (Some(watched), Some(class)) = (&finding.sensor, class) else { return };
        let (key, _) = condition_of_class(class);
        let Some(unstated) = self.0.get_mut(&(watched.sensor.name.clone(), key)) else { return };
        *unstated = Some(finding.clone());
        let is_as_bad = finding.kind != FindingKind::Cleared
            && finding.severity >= Severity::Error
            && of_kind == Some(key);
        finding.statement = if is_as_bad { Statement::Kept } else { Statement::Nothing };
    }

    /// A person has cleared the condition of a component.
    pub(super) fn on_cleared(&mut self, component: &str, key: &str) {
        self.take(component, key);
    }

    /// An agent has refused the condition of a component. Returns what the sensor has not stated
    /// because of it.
    pub(super) fn on_refused(&mut self, component: &str, key: &str) -> Option<Finding> {
        let unstated = self.take(component, key)?;
        Some(Finding { is_repeat: true, statement: Statement::Lasting, ..unstated })
    }

    fn take(&mut self, component: &str, key: &str) -> Option<Finding> {
        let is_it =
            |(name, known): &(String, &str)| name == component && known.eq_ignore_ascii_case(key);
        let found = self.0.keys().find(|known| is_it(known)).cloned()?;
        self.0.remove(&found)?
    }
}
