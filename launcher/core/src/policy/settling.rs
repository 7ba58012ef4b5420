//! Decisions that wait for their settle time, or for the end of a hold-down, and what cancels them.

use super::conditions::Standing;
use super::{Action, ActionKind, Policy, who};
use crate::names::{FaultId, NodeName};
use ftb_core::{EventId, Now};
use std::collections::BTreeSet;

/// A decision that waits for its settle time.
#[derive(Clone, Debug)]
pub(super) struct Settling {
    pub rule: usize,
    pub node: NodeName,
    /// `None`: the node has recovered.
    pub fault: Option<FaultId>,
    pub at_ns: u64,
    /// It waits for the end of the hold-down and then counts as a fault of its own.
    pub held: bool,
    /// When the node is predicted to fail, in monotonic nanoseconds.
    pub fails_ns: Option<u64>,
    /// What predictions announce has come ([`super::Report::is_at_limit`]).
    pub is_at_limit: bool,
    /// What was reported; empty: the node has recovered.
    pub what: String,
    /// The event that was reported, unless it is a statement of a condition.
    pub event: Option<EventId>,
    /// A condition that holds is its cause.
    pub is_stated: bool,
}

impl Settling {
    /// Without a fault the node may be used again when this time has come.
    pub(super) fn new(rule: usize, node: NodeName, at_ns: u64) -> Self {
        let (fault, fails_ns, event, what) = (None, None, None, String::new());
        let (held, is_at_limit, is_stated) = (false, false, false);
        Self { rule, node, fault, at_ns, held, fails_ns, is_at_limit, what, event, is_stated }
    }

    /// The same was reported again.
    pub(super) fn joins(&mut self, again: &Self) {
        self.is_stated &= again.is_stated;
        self.is_at_limit |= again.is_at_limit;
    }

    /// When its node fails, in monotonic nanoseconds; `None`: at no known time.
    pub(super) fn fails_ns(&self, now: Now) -> Option<u64> {
        if self.is_at_limit { Some(now.mono_ns) } else { self.fails_ns }
    }
}

impl Policy {
    /// The conditions of a node have changed: cancels what waits for those that hold no more.
    /// Returns the rules that nothing matches any more, `news` included. What a rule counts stays
    /// counted, and a drain is for good.
    pub(super) fn drop_passed(
        &mut self,
        node: &NodeName,
        before: &Standing,
        news: &[usize],
        out: &mut Vec<Action>,
    ) -> BTreeSet<usize> {
        let (conditions, rules, faults) = (&self.conditions, &self.config.rule, &self.faults);
        let is_over = |rule: &usize| {
            let is_banned = conditions.lasting(node).any(|lasting| lasting == *rule);
            let is_matched = news.contains(rule) || conditions.matches(node, *rule);
            let is_for_good = rules[*rule].action == ActionKind::Drain;
            rules[*rule].takes_each() && !is_for_good && !is_banned && !is_matched
        };
        let passed: BTreeSet<usize> = before.matched.iter().copied().filter(is_over).collect();
        // What holds no more may be acted on again.
        let ended = before.matched.iter().filter(|rule| !conditions.matches(node, **rule));
        let ended: BTreeSet<&str> = ended.map(|rule| rules[*rule].name.as_str()).collect();
        self.orders.retain_answered(|rule, of| of != node || !ended.contains(rule));
        let is_void = |settling: &Settling| {
            settling.is_stated && settling.node == *node && passed.contains(&settling.rule)
        };
        for settling in self.settling.extract_if(.., |settling| is_void(settling)) {
            // A repetition of what was acted on was not reported.
            if settling.fault.is_some_and(|fault| faults.has_acted(fault)) {
                continue;
            }
            let (rule, what) = (&rules[settling.rule], &settling.what);
            let (who, action, name) = (who(settling.fault), rule.action.words(), &rule.name);
            out.push(Action::Notify(format!(
                "{who}: {what} on {node} has passed; not done: {action} ({name})"
            )));
        }
        passed
    }

    /// Requests for faults that have passed are obsolete, although the node is not put back yet.
    pub(super) fn cancel_passed(
        &mut self,
        node: &NodeName,
        passed: &BTreeSet<usize>,
        out: &mut Vec<Action>,
    ) {
        let faults = self.faults.close_passed(node, |rule| passed.contains(&rule));
        if !faults.is_empty() {
            let reason = format!("the fault of {node} has passed");
            out.push(Action::Cancel { faults, reason });
        }
    }

    /// A person puts the node back: nothing that waits leaves it.
    pub(super) fn drop_settlings_of(&mut self, node: &NodeName) {
        let rules = &self.config.rule;
        self.settling.retain(|settling| {
            settling.node != *node || rules[settling.rule].action.is_about_the_job()
        });
    }
}
