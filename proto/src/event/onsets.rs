//! Since when conditions hold that a client states again, without an onset: programs of the C API,
//! and events of pairs. Their onset would move to the last statement.
//!
//! Not responsible for: what agents and client libraries repeat, which keeps its onset.

use ftb_core::condition::{Condition, Subject, Truth, WATCHED};
use std::collections::BTreeMap;

/// Most conditions of one client; the onsets of further ones move.
const SUBJECTS_MAX: usize = 1_024;

/// The onsets of what one client has stated.
#[derive(Debug, Default)]
pub struct Onsets(BTreeMap<Subject, u64>);

impl Onsets {
    /// Gives a statement the onset of the same one before it. `time_ns`: of its event.
    pub(super) fn keep(&mut self, condition: &mut Condition, own_host: &str, time_ns: u64) {
        if condition.key.eq_ignore_ascii_case(WATCHED) {
            return;
        }
        let subject = condition.subject(own_host);
        if condition.truth == Truth::False {
            self.0.remove(&subject);
            return;
        }
        if condition.onset_ns == 0
            && let Some(onset_ns) = self.0.get(&subject)
        {
            condition.onset_ns = *onset_ns;
            return;
        }
        let onset_ns = if condition.onset_ns == 0 { time_ns } else { condition.onset_ns };
        if self.0.len() < SUBJECTS_MAX || self.0.contains_key(&subject) {
            self.0.insert(subject, onset_ns);
        }
    }
}
