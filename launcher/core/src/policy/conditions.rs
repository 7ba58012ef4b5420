//! The conditions of the job's nodes, and which of them keep a node from being used.
//!
//! A condition keeps its node out while it holds, if a rule would leave the node for it. Its
//! counts, delays and brakes do not matter for that. A rule that counts, or an event without a
//! condition, keeps the node out until it recovers.

use super::report::Report;
use crate::names::NodeName;
use ftb_core::Severity;
use ftb_core::condition::{Truth, WATCHED};
use ftb_core::log::conditions::Claim;
use std::collections::{BTreeMap, BTreeSet};

/// Most conditions of all nodes together; events about further ones count as events only.
pub(super) const CONDITIONS_MAX: usize = 131_072;

#[derive(Clone, Debug)]
struct HeldCondition {
    claim: Claim,
    truth: Truth,
    severity: Severity,
    /// The rule that it keeps the node out by.
    rule: Option<usize>,
    /// A person wants the node to be used although it holds.
    is_overruled: bool,
    /// The host of its publisher; `None`: it was lost before this launcher.
    host: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct NodeConditions {
    /// By component and key.
    rows: BTreeMap<(String, String), HeldCondition>,
    /// Rules that keep the node out until it recovers.
    lasting: BTreeSet<usize>,
}

impl NodeConditions {
    fn is_out(&self) -> bool {
        !self.lasting.is_empty() || self.rows.values().any(|row| row.rule.is_some())
    }
}

/// What a report changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It repeats what is known.
    Known,
    /// Rules may match it.
    News,
    /// It also ends the last condition that kept its node out.
    Recovered,
}

/// Why a node is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Out {
    pub rule: usize,
    /// The condition; without one the node is out until it recovers.
    pub condition: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ConditionsByNode {
    nodes: BTreeMap<NodeName, NodeConditions>,
    rows: usize,
}

impl ConditionsByNode {
    /// Takes a report. `rule` is the one that would leave the node while the condition holds.
    /// `is_overruled`: a person has said so to an earlier launcher.
    pub(super) fn take(
        &mut self,
        node: &NodeName,
        report: &Report,
        rule: Option<usize>,
        is_overruled: bool,
    ) -> Change {
        let Some(stated) = &report.stated else {
            return Change::News;
        };
        let condition = &stated.condition;
        let (claim, truth) = (stated.claim, condition.truth);
        let subject = (condition.component.clone(), condition.key.to_ascii_uppercase());
        let known = self.nodes.get(node).and_then(|known| known.rows.get(&subject));
        if known.is_none() && self.rows >= CONDITIONS_MAX {
            return Change::News;
        }
        // A lost publisher has been followed by another one, or a stolen key invents a loss.
        let severity = report.severity();
        let is_last = |replaced| match known {
            Some(known) => replaced == known.claim.event && severity <= known.severity,
            None => report.is_initial,
        };
        if !claim.replaces.is_none_or(is_last) {
            return Change::Known;
        }
        let of_node = self.nodes.entry(node.clone()).or_default();
        let was_out = of_node.is_out();
        let old = of_node.rows.get(&subject).cloned();
        let is_known = old.as_ref().is_some_and(|old| old.claim.source == claim.source);
        let ends = truth == Truth::False;
        let was_overruled = old.as_ref().is_some_and(|old| old.is_overruled);
        let is_overruled = !ends && (is_overruled || was_overruled);
        let rule = match &old {
            _ if ends || is_overruled => None,
            Some(old) if is_known || truth == Truth::Unknown => old.rule.or(rule),
            _ => rule,
        };
        self.rows += usize::from(old.is_none());
        // Another host finds that a publisher is lost.
        let host = claim.replaces.is_none().then(|| report.host.clone());
        let host = host.or_else(|| old.as_ref().and_then(|old| old.host.clone()));
        let held = HeldCondition { claim, truth, severity, rule, is_overruled, host };
        of_node.rows.insert(subject, held);
        let is_repeat = is_known && old.is_some_and(|old| old.truth == truth);
        let is_loss = truth == Truth::Unknown && !report.is_initial;
        match was_out && !of_node.is_out() {
            true => Change::Recovered,
            false if is_overruled || is_repeat || is_loss => Change::Known,
            false => Change::News,
        }
    }

    /// The node is out until it recovers.
    pub(super) fn keep_out(&mut self, node: &NodeName, rule: usize) {
        self.nodes.entry(node.clone()).or_default().lasting.insert(rule);
    }

    /// These rules keep the node out no longer. Conditions that hold still do.
    pub(super) fn recovered(&mut self, node: &NodeName, ends: impl Fn(usize) -> bool) {
        if let Some(known) = self.nodes.get_mut(node) {
            known.lasting.retain(|rule| !ends(*rule));
        }
    }

    /// The rules that keep the node out until it recovers.
    pub(super) fn lasting(&self, node: &NodeName) -> impl Iterator<Item = usize> {
        self.nodes.get(node).into_iter().flat_map(|known| known.lasting.iter().copied())
    }

    /// Whether a condition keeps the node out by this rule.
    pub(super) fn holds_by(&self, node: &NodeName, rule: usize) -> bool {
        let known = self.nodes.get(node);
        known.is_some_and(|known| known.rows.values().any(|row| row.rule == Some(rule)))
    }

    /// Whether each condition of the node with such a key, in upper case, is known not to hold.
    pub(super) fn are_clear(&self, node: &NodeName, is: impl Fn(&str) -> bool) -> bool {
        let Some(known) = self.nodes.get(node) else { return true };
        known.rows.iter().all(|((_, key), row)| row.truth == Truth::False || !is(key))
    }

    /// The host of the publisher that watches the node in an event space.
    pub(super) fn watcher(&self, node: &NodeName, space: &str) -> Option<&str> {
        let watch = (space.to_ascii_lowercase(), WATCHED.to_owned());
        self.nodes.get(node)?.rows.get(&watch)?.host.as_deref()
    }

    /// A person wants the node to be used: what holds now does not matter.
    pub(super) fn overrule(&mut self, node: &NodeName) {
        self.recovered(node, |_| true);
        if let Some(known) = self.nodes.get_mut(node) {
            let held = known.rows.values_mut().filter(|row| row.truth != Truth::False);
            held.for_each(|row| (row.rule, row.is_overruled) = (None, true));
        }
    }

    /// Why the node is not used.
    pub(super) fn out(&self, node: &NodeName) -> Option<Out> {
        let known = self.nodes.get(node)?;
        let held = known.rows.iter().find_map(|((component, key), row)| {
            let lost = if row.truth == Truth::Unknown { ", its publisher is lost" } else { "" };
            let words = match component.is_empty() {
                true => format!("{key}{lost}"),
                false => format!("{component} {key}{lost}"),
            };
            Some(Out { rule: row.rule?, condition: Some(words) })
        });
        let lasting = || known.lasting.first().map(|rule| Out { rule: *rule, condition: None });
        held.or_else(lasting)
    }
}
