//! What outlives a launcher: which nodes are drained or banned, which are used although conditions
//! hold, and that the circuit breaker is open.

use super::Report;
use crate::names::NodeName;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The orders about the nodes of a job: at most two for each, and one for each rule that bans it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// No event makes these usable again.
    drained: BTreeSet<NodeName>,
    /// When the order came, in Unix nanoseconds. Conditions that began later count.
    overruled: BTreeMap<NodeName, u64>,
    /// By which rules nodes get no ranks although no condition holds.
    #[serde(default)]
    banned: BTreeMap<NodeName, BTreeSet<String>>,
    /// The circuit breaker is open until a person closes it.
    #[serde(default)]
    pub(super) is_breaker_open: bool,
    /// The nodes for whose conditions a rule about the whole job has acted, by its name. It does
    /// not act again for what has begun until then, in Unix nanoseconds of its publishers.
    #[serde(default)]
    answered_until: BTreeMap<String, BTreeMap<NodeName, u64>>,
}

impl Orders {
    pub(super) fn drain(&mut self, node: &NodeName) {
        self.drained.insert(node.clone());
    }

    pub(super) fn is_drained(&self, node: &NodeName) -> bool {
        self.drained.contains(node)
    }

    /// The node is used, whatever holds at this time.
    pub(super) fn usable(&mut self, node: &NodeName, wall_ns: u64) {
        self.drained.remove(node);
        self.banned.remove(node);
        self.overruled.insert(node.clone(), wall_ns);
        self.retain_answered(|_, of| of != node);
    }

    /// A rule about the whole job acts for conditions of these nodes that have begun then.
    pub(super) fn answer(&mut self, rule: &str, onsets: BTreeMap<NodeName, u64>) {
        self.answered_until.entry(rule.to_owned()).or_default().extend(onsets);
    }

    /// Whether the rule has acted for what began at the node then; `None`: it states no condition.
    pub(super) fn has_answered(&self, rule: &str, node: &NodeName, onset_ns: Option<u64>) -> bool {
        let until = self.answered_until.get(rule).and_then(|nodes| nodes.get(node));
        until.is_some_and(|until| onset_ns.is_none_or(|onset_ns| onset_ns <= *until))
    }

    /// Keeps only these nodes, by the name of the rule.
    pub(super) fn retain_answered(&mut self, keeps: impl Fn(&str, &NodeName) -> bool) {
        self.answered_until.retain(|rule, nodes| {
            nodes.retain(|node, _| keeps(rule, node));
            !nodes.is_empty()
        });
    }

    /// Whether a rule bans the node.
    pub fn is_banned(&self, node: &NodeName) -> bool {
        self.banned.contains_key(node)
    }

    pub(super) fn ban(&mut self, node: &NodeName, rule: &str) {
        self.banned.entry(node.clone()).or_default().insert(rule.to_owned());
    }

    pub(super) fn drop_bans(&mut self) {
        self.banned.clear();
    }

    /// Keeps only these bans of the node.
    pub(super) fn retain_bans(&mut self, node: &NodeName, keeps: impl Fn(&str) -> bool) {
        let Some(rules) = self.banned.get_mut(node) else { return };
        rules.retain(|rule| keeps(rule));
        if rules.is_empty() {
            self.banned.remove(node);
        }
    }

    pub(super) fn bans(&self) -> impl Iterator<Item = (&NodeName, &str)> {
        let all = self.banned.iter();
        all.flat_map(|(node, rules)| rules.iter().map(move |rule| (node, rule.as_str())))
    }

    /// Whether the row of the table holds since before the order to use the node.
    pub(super) fn overrules(&self, node: &NodeName, row: &Report) -> bool {
        let ordered_ns = self.overruled.get(node);
        let is_before = |(onset, order): (u64, &u64)| onset <= *order;
        row.place.is_row && row.onset_ns().zip(ordered_ns).is_some_and(is_before)
    }
}
