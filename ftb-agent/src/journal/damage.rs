//! Damage of the journal that is to be reported: each text once, even if the store is opened again.

use std::collections::VecDeque;

/// Remembered texts; further damage is only mentioned.
const DAMAGE_MAX: usize = 8;

/// Damage found in all openings.
#[derive(Default)]
pub struct Damage {
    /// To be reported.
    pending: Vec<String>,
    /// There was more, which only the agent's log has.
    more: bool,
    /// Reported before.
    reported: VecDeque<String>,
}

impl Damage {
    /// Notes and logs new damage.
    pub fn found(&mut self, damage: String) {
        if self.reported.contains(&damage) || self.pending.contains(&damage) {
            return;
        }
        tracing::error!(damage, "journal damaged");
        match self.pending.len() < DAMAGE_MAX {
            true => self.pending.push(damage),
            false => self.more = true,
        }
    }

    /// Whether there is damage to report.
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns the damage to report, once.
    pub fn take_pending(&mut self) -> Option<String> {
        if self.pending.is_empty() {
            return None;
        }
        let mut text = self.pending.join("; ");
        if std::mem::take(&mut self.more) {
            text.push_str("; and more, which the agent's log has");
        }
        self.reported.extend(self.pending.drain(..));
        let forgotten = self.reported.len().saturating_sub(DAMAGE_MAX);
        self.reported.drain(..forgotten);
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Each kind of damage is reported, and once, in whatever turn they are found.
    #[test]
    fn each_kind_of_damage_is_reported_once() {
        let mut damage = Damage::default();
        damage.found("one".to_owned());
        damage.found("two".to_owned());
        assert_eq!(damage.take_pending().unwrap(), "one; two");
        for kind in ["one", "two", "one", "two"] {
            damage.found(kind.to_owned());
            assert_eq!((damage.is_pending(), damage.take_pending()), (false, None), "{kind} again");
        }
        damage.found("three".to_owned());
        damage.found("one".to_owned());
        assert_eq!(damage.take_pending().unwrap(), "three");
        assert_eq!(damage.take_pending(), None);
    }

    /// Of more than is remembered it is said that there was more, and what is remembered is
    /// bounded.
    #[test]
    fn damage_without_end_takes_no_memory_without_end() {
        let mut damage = Damage::default();
        (0..100).for_each(|kind| damage.found(format!("kind {kind}")));
        let reported = damage.take_pending().unwrap();
        assert!(
            reported.starts_with("kind 0; ") && reported.ends_with("agent's log has"),
            "{reported}"
        );
        assert!(!reported.contains(&format!("kind {DAMAGE_MAX}")), "{reported}");
        for kind in 0..100 {
            damage.found(format!("kind {kind}"));
            damage.take_pending();
        }
        assert_eq!(damage.reported.len(), DAMAGE_MAX);
    }
}
