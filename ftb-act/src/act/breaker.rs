//! The breaker: when so much fails at once that changing hosts would be worse than waiting.
//!
//! It counts the hosts for which rules want a change, not those that were changed: a rack that
//! loses power opens it before the first host is drained.

use super::order::BreakerState;
use super::rules::{Rules, ns};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Most wishes that are remembered; the oldest go first.
const WISHES_MAX: usize = 65_536;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    pub(super) state: BreakerState,
    /// When a rule wanted to change which host.
    wishes: VecDeque<(u64, String)>,
    counts: BTreeMap<String, usize>,
}

impl Breaker {
    pub(super) fn new(state: BreakerState) -> Self {
        Self { state, ..Self::default() }
    }

    /// A rule wants to change a host.
    pub(super) fn on_wish(&mut self, now_ns: u64, host: &str) {
        if self.wishes.len() >= WISHES_MAX {
            self.forget_oldest();
        }
        self.wishes.push_back((now_ns, host.to_owned()));
        *self.counts.entry(host.to_owned()).or_default() += 1;
    }

    fn forget_oldest(&mut self) {
        let Some((_, host)) = self.wishes.pop_front() else { return };
        if let Some(count) = self.counts.get_mut(&host) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&host);
            }
        }
    }

    /// Why it must open now. `drained`: hosts that are out of service; `known`: those that may be.
    pub(super) fn problem(
        &mut self,
        now_ns: u64,
        rules: &Rules,
        drained: &BTreeSet<String>,
        known: usize,
    ) -> Option<String> {
        let since_ns = now_ns.saturating_sub(ns(rules.breaker_within));
        while self.wishes.front().is_some_and(|(at_ns, _)| *at_ns < since_ns) {
            self.forget_oldest();
        }
        let wanted = self.counts.len();
        if wanted > rules.breaker_hosts {
            let within = rules.breaker_within.as_secs();
            return Some(format!("{wanted} hosts within {within} s"));
        }
        let others = drained.iter().filter(|host| !self.counts.contains_key(*host)).count();
        let all = wanted + others;
        let share = all.saturating_mul(100) > known.saturating_mul(rules.breaker_percent);
        (all > 1 && share).then(|| format!("{all} of {known} hosts"))
    }

    /// A person lets things pass.
    pub(super) fn resume(&mut self) {
        *self = Self::default();
    }
}
