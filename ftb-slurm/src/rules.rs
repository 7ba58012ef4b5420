//! Which conditions keep a node out of use: one decision for the bridge, `health` and `advice`.
//!
//! Pure. Not responsible for: what people have done to a node, and the share (the bridge).

use ftb_client::Silence;
use ftb_core::condition::{SILENCED, Subject, Truth, WATCHED};
use ftb_core::{Severity, catalog};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// What is known of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Whether it holds.
    pub truth: Truth,
    /// How bad it is.
    pub severity: Severity,
    /// Since when, in Unix nanoseconds.
    pub onset_ns: u64,
}

/// Which conditions drain, and how many nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The mildest that drains.
    pub severity: Severity,
    /// The only keys that do, in upper case; empty: every key.
    pub conditions: BTreeSet<String>,
    /// Keys that do not, in upper case.
    pub ignored: BTreeSet<String>,
    /// The largest share of all nodes that the bridge has drained at a time, in percent; one node
    /// always.
    pub drained_percent_max: u32,
}

/// What the conditions of a node mean for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// No condition that counts holds.
    Sound,
    /// This one holds: the worst, and the first of those.
    Unfit(Severity, &'a Subject),
    /// None holds, but it is not known of this one.
    Unknown(&'a Subject),
}

impl Rules {
    /// Whether a condition with this key and severity drains its node while it holds. Watches,
    /// silences and conditions of services never do.
    pub fn counts(&self, key: &str, severity: Severity) -> bool {
        let is_named = self.conditions.is_empty() || self.conditions.contains(key);
        let is_fault = ![WATCHED, SILENCED].contains(&key) && !catalog::is_of_service(key);
        severity >= self.severity && is_named && is_fault && !self.ignored.contains(key)
    }

    /// What the conditions of one node mean for it while these silences are active.
    pub fn verdict<'a>(
        &self,
        silences: &[Silence],
        stated: impl Iterator<Item = (&'a Subject, Truth, Severity)>,
    ) -> Verdict<'a> {
        let is_silenced = |subject| silences.iter().any(|silence| silence.covers(subject));
        let (mut worst, mut unknown) = (None, None);
        for (subject, truth, severity) in stated {
            if !self.counts(subject.key(), severity) || is_silenced(subject) {
                continue;
            }
            match truth {
                // The choice among those of one severity does not depend on their order.
                Truth::True => worst = worst.max(Some((severity, Reverse(subject)))),
                Truth::Unknown => unknown = Some(subject),
                Truth::False => {}
            }
        }
        match (worst, unknown) {
            (Some((severity, Reverse(subject))), _) => Verdict::Unfit(severity, subject),
            (None, Some(subject)) => Verdict::Unknown(subject),
            (None, None) => Verdict::Sound,
        }
    }

    /// What the bridge does about a condition with this key that is stated with at most this
    /// severity, and when, in words; `None`: nothing.
    pub fn reaction(&self, key: &str, worst: Severity) -> Option<(String, String)> {
        let action = format!("drain the node (reason ftb:{key}) until it clears");
        let when = format!(
            "severity {} or worse; at most {} % of all nodes",
            self.severity.as_str().to_ascii_lowercase(),
            self.drained_percent_max
        );
        self.counts(key, worst).then_some((action, when))
    }
}
