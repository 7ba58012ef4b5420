//! Bans: a rule keeps a node out although no condition does, as it counts, or as its event states
//! no condition. Its key `until` says what ends the ban.

use super::conditions::Standing;
use super::rules::{Until, nanos};
use super::{Action, Policy};
use crate::jl::Unusable;
use crate::names::NodeName;
use ftb_core::Now;
use std::collections::BTreeSet;

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
    pub fn adopt_ban(&mut self, now: Now, node: &NodeName, name: &str) -> Vec<Action> {
        if self.conditions.lasting(node).next().is_some() {
            return Vec::new();
        }
        self.adopt_bans_of(now, [(node.clone(), name.to_owned())])
    }

    /// Continues with the bans among the orders. The quiet time of their rules begins anew.
    pub(super) fn adopt_bans(&mut self, now: Now) -> Vec<Action> {
        let bans = self.orders.bans().map(|(node, name)| (node.clone(), name.to_owned()));
        let bans: Vec<(NodeName, String)> = bans.collect();
        if !self.config.shadow {
            self.orders.drop_bans();
        }
        self.adopt_bans_of(now, bans)
    }

    /// Bans of rules that the policy does not have are reported: any recovery ends them.
    fn adopt_bans_of(
        &mut self,
        now: Now,
        bans: impl IntoIterator<Item = (NodeName, String)>,
    ) -> Vec<Action> {
        let mut out = Vec::new();
        for (node, name) in bans {
            let was = self.conditions.out(&node);
            match self.config.rule.iter().position(|rule| rule.name == name) {
                Some(rule) => self.ban(now, &node, rule),
                None => {
                    out.push(Action::Notify(format!(
                        "policy: rule {name:?} has banned node {node}, and is in the policy no \
                         more: only a recovery or a person ends this ban (ftb-launch usable)"
                    )));
                    if !self.config.shadow {
                        let (node, why) = (node.clone(), Unusable { why: name, lasts: true });
                        out.push(Action::Unusable { node, why });
                    }
                }
            }
            self.notify_out(&node, was.as_ref(), &mut out);
        }
        out
    }

    /// A rule of recovery matches: what it may end has passed, unless a condition holds. Returns
    /// the rules that nothing matches any more.
    pub(super) fn end_faults(&mut self, node: &NodeName, recovery: usize) -> BTreeSet<usize> {
        let rules = &self.config.rule;
        let ends = |rule: usize| rule == recovery || rules[recovery].ends(&rules[rule]);
        self.conditions.recovered(node, ends);
        let conditions = &self.conditions;
        let is_ended = |rule: usize| ends(rule) && !conditions.matches(node, rule);
        self.settling.retain(|settling| settling.node != *node || !is_ended(settling.rule));
        let ended = (0..rules.len()).filter(|rule| is_ended(*rule)).collect();
        self.forget_bans(node);
        ended
    }

    /// Drops what is noted about bans that have ended.
    pub(super) fn forget_bans(&mut self, node: &NodeName) {
        let (conditions, rules) = (&self.conditions, &self.config.rule);
        let lasts = |rule: usize| conditions.lasting(node).any(|lasting| lasting == rule);
        self.quiet_since.retain(|(of, rule), _| of != node || lasts(*rule));
        let names = || conditions.lasting(node).map(|rule| rules[rule].name.as_str());
        self.orders.retain_bans(node, |name| names().any(|lasting| lasting == name));
    }

    /// A report that matches these rules, or a change of the node's conditions: the quiet time of a
    /// rule begins when nothing has matched it, and no condition disturbed it, since then.
    pub(super) fn disturb(&mut self, now: Now, node: &NodeName, was: &Standing, news: &[usize]) {
        for ((of, rule), since_ns) in &mut self.quiet_since {
            if of == node && (news.contains(rule) || was.disturbed.contains(rule)) {
                *since_ns = now.mono_ns;
            }
        }
    }

    /// When the next ban ends, in monotonic nanoseconds, if its node stays quiet.
    pub(super) fn next_quiet_ns(&self) -> u64 {
        let all = self.quiet_since.iter();
        let ends = all.map(|((node, rule), since_ns)| self.quiet_ns(node, *rule, *since_ns));
        ends.min().unwrap_or(u64::MAX)
    }

    /// While a condition of the rule holds or is unknown, nothing is quiet.
    fn quiet_ns(&self, node: &NodeName, index: usize, since_ns: u64) -> u64 {
        match self.config.rule[index].until {
            Until::Quiet(quiet) if !self.conditions.disturbs(node, index) => {
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
