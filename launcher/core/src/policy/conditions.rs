//! The conditions of the job's nodes, and which of them keep a node from being used.
//!
//! A condition keeps its node out while it holds, if a rule would leave the node for it. Its
//! counts, delays and brakes do not matter for that. A rule that counts, or an event without a
//! condition, keeps the node out until it recovers.

use super::report::Report;
use crate::names::NodeName;
use ftb_core::condition::{Subject, Truth, WATCHED};
use ftb_core::log::conditions::Claim;
use ftb_core::log::table_view::TableView;
use std::collections::{BTreeMap, BTreeSet};

/// Most conditions of all nodes together; events about further ones count as events only.
pub(super) const CONDITIONS_MAX: usize = 131_072;

#[derive(Clone, Debug)]
struct HeldCondition {
    claim: Claim,
    /// The rule that it keeps the node out by.
    rule: Option<usize>,
    /// A person wants the node to be used although it holds.
    is_overruled: bool,
    /// The host of its publisher; `None`: it was lost before this launcher.
    host: Option<String>,
}

impl AsRef<Claim> for HeldCondition {
    fn as_ref(&self) -> &Claim {
        &self.claim
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
    view: TableView<HeldCondition>,
    /// Rules that keep a node out until it recovers.
    lasting: BTreeMap<NodeName, BTreeSet<usize>>,
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
        let (truth, place) = (condition.truth, report.place);
        let claim = Claim { truth, severity: report.severity(), ..stated.claim };
        let subject = Subject::new(node.as_str(), &condition.component, &condition.key);
        // The log also delivers what its table has rejected.
        if !self.view.counts(&subject, &claim, place) {
            return Change::Known;
        }
        let old = self.view.get(&subject).cloned();
        if old.is_none() && self.view.len() >= CONDITIONS_MAX {
            return Change::News;
        }
        let was_out = self.is_out(node);
        let is_known = old.as_ref().is_some_and(|old| old.claim.source == claim.source);
        let ends = truth == Truth::False;
        let was_overruled = old.as_ref().is_some_and(|old| old.is_overruled);
        let is_overruled = !ends && (is_overruled || was_overruled);
        let rule = match &old {
            _ if ends || is_overruled => None,
            Some(old) if is_known || truth == Truth::Unknown => old.rule.or(rule),
            _ => rule,
        };
        let is_repeat = is_known && old.as_ref().is_some_and(|old| old.claim.truth == truth);
        let was_held = is_known && old.as_ref().is_some_and(|old| old.claim.truth != Truth::False);
        // That a publisher is lost is no news, unless the statement itself was not delivered.
        let is_loss = truth == Truth::Unknown && (was_held || !place.is_row);
        // Another host finds that a publisher is lost.
        let host = claim.replaces.is_none().then(|| report.host.clone());
        let host = host.or_else(|| old.and_then(|old| old.host));
        self.view.take(subject, place, HeldCondition { claim, rule, is_overruled, host });
        match was_out && !self.is_out(node) {
            true => Change::Recovered,
            false if is_overruled || is_repeat || is_loss => Change::Known,
            false => Change::News,
        }
    }

    fn is_out(&self, node: &NodeName) -> bool {
        self.lasting.contains_key(node)
            || self.view.of_host(node.as_str()).any(|(_, row)| row.rule.is_some())
    }

    /// The node is out until it recovers.
    pub(super) fn keep_out(&mut self, node: &NodeName, rule: usize) {
        self.lasting.entry(node.clone()).or_default().insert(rule);
    }

    /// These rules keep the node out no longer. Conditions that hold still do.
    pub(super) fn recovered(&mut self, node: &NodeName, ends: impl Fn(usize) -> bool) {
        let Some(lasting) = self.lasting.get_mut(node) else { return };
        lasting.retain(|rule| !ends(*rule));
        if lasting.is_empty() {
            self.lasting.remove(node);
        }
    }

    /// The rules that keep the node out until it recovers.
    pub(super) fn lasting(&self, node: &NodeName) -> impl Iterator<Item = usize> {
        self.lasting.get(node).into_iter().flatten().copied()
    }

    /// Whether a condition keeps the node out by this rule.
    pub(super) fn holds_by(&self, node: &NodeName, rule: usize) -> bool {
        self.view.of_host(node.as_str()).any(|(_, row)| row.rule == Some(rule))
    }

    /// Whether each condition of the node with such a key, in upper case, is known not to hold.
    pub(super) fn are_clear(&self, node: &NodeName, is: impl Fn(&str) -> bool) -> bool {
        let mut rows = self.view.of_host(node.as_str());
        rows.all(|(subject, row)| row.claim.truth == Truth::False || !is(subject.key()))
    }

    /// The host of the publisher that watches the node in an event space.
    pub(super) fn watcher(&self, node: &NodeName, space: &str) -> Option<&str> {
        let watch = Subject::new(node.as_str(), &space.to_ascii_lowercase(), WATCHED);
        self.view.get(&watch)?.host.as_deref()
    }

    /// A person wants the node to be used: what holds now does not matter.
    pub(super) fn overrule(&mut self, node: &NodeName) {
        self.recovered(node, |_| true);
        let rows = self.view.of_host_mut(node.as_str());
        let held = rows.filter(|row| row.claim.truth != Truth::False);
        held.for_each(|row| (row.rule, row.is_overruled) = (None, true));
    }

    /// Why the node is not used.
    pub(super) fn out(&self, node: &NodeName) -> Option<Out> {
        let held = self.view.of_host(node.as_str()).find_map(|(subject, row)| {
            let (component, key) = (subject.component(), subject.key());
            let lost =
                if row.claim.truth == Truth::Unknown { ", its publisher is lost" } else { "" };
            let words = match component.is_empty() {
                true => format!("{key}{lost}"),
                false => format!("{component} {key}{lost}"),
            };
            Some(Out { rule: row.rule?, condition: Some(words) })
        });
        let lasting = || self.lasting.get(node)?.first().copied();
        held.or_else(|| Some(Out { rule: lasting()?, condition: None }))
    }
}
