//! What the rules of a policy do about an event or a condition, in words: `ftbctl explain`.

use super::{Policy, Rule};

/// What a rule does about an event or a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reaction {
    /// The name of the rule.
    pub rule: String,
    /// What it does.
    pub action: &'static str,
    /// When, in words; empty: each time, at once.
    pub when: String,
}

impl Policy {
    /// The rules about an event, and about conditions with these keys, in order; without those for
    /// which rules before them leave nothing.
    pub fn reactions(&self, space: &str, name: &str, keys: &[&str]) -> Vec<Reaction> {
        let rules = self.config.rule.iter();
        let about: Vec<&Rule> = rules.filter(|rule| rule.is_about(space, name, keys)).collect();
        let reaction = |rule: &Rule| Reaction {
            rule: rule.name.clone(),
            action: rule.action.words(),
            when: rule.when(),
        };
        let acts = |at: usize| !about[..at].iter().any(|rule| rule.leaves_nothing_for(about[at]));
        (0..about.len()).filter(|at| acts(*at)).map(|at| reaction(about[at])).collect()
    }

    /// Whether its rules only report.
    pub fn is_shadow(&self) -> bool {
        self.config.shadow
    }
}
