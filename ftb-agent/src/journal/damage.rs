//! Damage of the journal that is to be reported: each text once, even if the store is opened again.

use std::collections::VecDeque;

/// Remembered texts; further damage is only mentioned.
const DAMAGE_MAX: usize = 8;

/// Damage found in all openings.
#[derive(Default)]
pub struct Damage {
    /// To be reported.
    untold: Vec<String>,
    /// There was more, which only the agent's log has.
    more: bool,
    /// Reported before.
    told: VecDeque<String>,
}

impl Damage {
    /// Notes and logs new damage.
    pub fn found(&mut self, damage: String) {
        if self.told.contains(&damage) || self.untold.contains(&damage) {
            return;
        }
        tracing::error!(damage, "journal damaged");
        match self.untold.len() < DAMAGE_MAX {
            true => self.untold.push(damage),
            false => self.more = true,
        }
    }

    /// Whether there is damage to report.
    pub fn is_untold(&self) -> bool {
        !self.untold.is_empty()
    }

    /// Returns the damage to report, once.
    pub fn take_untold(&mut self) -> Option<String> {
        if self.untold.is_empty() {
            return None;
        }
        let mut text = self.untold.join("; ");
        if std::mem::take(&mut self.more) {
            text.push_str("; and more, which the agent's log has");
        }
        self.told.extend(self.untold.drain(..));
        let forgotten = self.told.len().saturating_sub(DAMAGE_MAX);
        self.told.drain(..forgotten);
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Each kind of damage is told, and once, in whatever turn they are found.
    #[test]
    fn kinds_of_damage_in_turn_are_each_told_once() {
        let mut damage = Damage::default();
        damage.found("one".to_owned());
        damage.found("two".to_owned());
        assert_eq!(damage.take_untold().unwrap(), "one; two");
        for kind in ["one", "two", "one", "two"] {
            damage.found(kind.to_owned());
            assert_eq!((damage.is_untold(), damage.take_untold()), (false, None), "{kind} again");
        }
        damage.found("three".to_owned());
        damage.found("one".to_owned());
        assert_eq!(damage.take_untold().unwrap(), "three");
        assert_eq!(damage.take_untold(), None);
    }

    /// Of more than is remembered it is said that there was more, and what is remembered is bounded.
    #[test]
    fn damage_without_end_takes_no_memory_without_end() {
        let mut damage = Damage::default();
        (0..100).for_each(|kind| damage.found(format!("kind {kind}")));
        let told = damage.take_untold().unwrap();
        assert!(told.starts_with("kind 0; ") && told.ends_with("agent's log has"), "{told}");
        assert!(!told.contains(&format!("kind {DAMAGE_MAX}")), "{told}");
        for kind in 0..100 {
            damage.found(format!("kind {kind}"));
            damage.take_untold();
        }
        assert_eq!(damage.told.len(), DAMAGE_MAX);
    }
}
