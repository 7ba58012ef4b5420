//! Bans: a rule keeps a node out although no condition does, as it counts, or as its event states
//! no condition. Its key `until` says what ends the ban.

use super::rules::{Until, nanos};
use super::{Action, Policy};
use crate::names::NodeName;
use crate::policy::Report;
use ftb_core::Now;

impl Policy {
    /// The rule bans the node.
    pub(super) fn ban(&mut self, now: Now, node: &NodeName, rule: usize) {
        self.conditions.keep_out(node, rule);
        // What only would be done binds no later launcher.
        if !self.config.shadow {
            self.orders.ban(node, &self.config.rule[rule].name);
        }
        if matches!(self.config.rule[rule].until, Until::Quiet(_)) {
            self.quiet_since.insert((node.clone(), rule), now.mono_ns);
        }
    }

    /// A ban of a launcher of the release before, which noted the name of the rule only.
    pub fn adopt_ban(&mut self, now: Now, node: &NodeName, name: &str) {
        let rule = self.config.rule.iter().position(|rule| rule.name == name);
        if let Some(rule) = rule.filter(|_| self.conditions.lasting(node).next().is_none()) {
            self.ban(now, node, rule);
        }
    }

    /// Continues with the bans among the orders. Those of unknown rules are dropped; the quiet time
    /// of the others begins anew.
    pub(super) fn adopt_bans(&mut self, now: Now) {
        let rules = &self.config.rule;
        let known = self.orders.bans().filter_map(|(node, name)| {
            Some((node.clone(), rules.iter().position(|rule| rule.name == name)?))
        });
        let known: Vec<(NodeName, usize)> = known.collect();
        if !self.config.shadow {
            self.orders.drop_bans();
        }
        known.into_iter().for_each(|(node, rule)| self.ban(now, &node, rule));
    }

    /// A rule of recovery matches: what it may end has passed, unless a condition holds.
    pub(super) fn end_faults(&mut self, node: &NodeName, recovery: usize) {
        let rules = &self.config.rule;
        let ends = |rule: usize| rule == recovery || rules[recovery].ends(&rules[rule]);
        self.conditions.recovered(node, ends);
        let conditions = &self.conditions;
        self.settling.retain(|settling| {
            let rule = settling.rule;
            settling.node != *node || !ends(rule) || conditions.holds_by(node, rule)
        });
        self.forget_bans(node);
    }

    /// Drops what is noted about bans that have ended.
    pub(super) fn forget_bans(&mut self, node: &NodeName) {
        let (conditions, rules) = (&self.conditions, &self.config.rule);
        let lasts = |rule: usize| conditions.lasting(node).any(|lasting| lasting == rule);
        self.quiet_since.retain(|(of, rule), _| of != node || lasts(*rule));
        let names = || conditions.lasting(node).map(|rule| rules[rule].name.as_str());
        self.orders.retain_bans(node, |name| names().any(|lasting| lasting == name));
    }

    /// News of the node: the quiet time of the rules that are about it begins anew.
    pub(super) fn disturb(&mut self, now: Now, node: &NodeName, report: &Report) {
        let (space, name) = report.name();
        let key = report.stated.as_ref().map(|stated| stated.condition.key.as_str());
        let rules = &self.config.rule;
        let is_its = |(of, rule): &(NodeName, usize)| {
            of == node && rules[*rule].is_about(space, name, key.as_slice())
        };
        let disturbed = self.quiet_since.iter_mut().filter(|(ban, _)| is_its(ban));
        disturbed.for_each(|(_, since_ns)| *since_ns = now.mono_ns);
    }

    /// When the next ban ends, in monotonic nanoseconds, if its node stays quiet.
    pub(super) fn next_quiet_ns(&self) -> u64 {
        let all = self.quiet_since.iter();
        let ends = all.map(|((node, rule), since_ns)| self.quiet_ns(node, *rule, *since_ns));
        ends.min().unwrap_or(u64::MAX)
    }

    /// A condition of the rule that holds or is unknown is not quiet.
    fn quiet_ns(&self, node: &NodeName, rule: usize, since_ns: u64) -> u64 {
        let rule = &self.config.rule[rule];
        match rule.until {
            Until::Quiet(quiet) if self.conditions.are_clear(node, |key| rule.has((true, key))) => {
                since_ns.saturating_add(nanos(quiet))
            }
            _ => u64::MAX,
        }
    }

    /// Ends the bans of nodes that were quiet for their time.
    pub(super) fn end_quiet(&mut self, now: Now, out: &mut Vec<Action>) {
        let is_due = |((node, rule), since_ns): &(&(NodeName, usize), &u64)| {
            self.quiet_ns(node, *rule, **since_ns) <= now.mono_ns
        };
        let due = self.quiet_since.iter().filter(is_due).map(|(ban, _)| ban.clone());
        let due: Vec<(NodeName, usize)> = due.collect();
        for (node, rule) in due {
            let reason = format!("{}, which has not come again", self.config.rule[rule].name);
            self.conditions.recovered(&node, |ended| ended == rule);
            self.settling.retain(|settling| settling.node != node || settling.rule != rule);
            self.forget_bans(&node);
            self.put_back(&node, &reason, out);
        }
    }
}
