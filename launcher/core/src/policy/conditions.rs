//! The conditions of the job's nodes, and which of them keep a node from being used.
//!
//! A condition keeps its node out while it holds, if a rule would leave the node for it. Its
//! counts, delays and brakes do not matter for that. A rule that counts, or an event without a
//! condition, keeps the node out until it recovers.

use super::report::{Report, Statement};
use crate::names::NodeName;
use ftb_core::condition::{Subject, Truth, WATCHED};
use ftb_core::log::conditions::Claim;
use ftb_core::log::table_view::{ReadPlace, TableView};
use std::collections::{BTreeMap, BTreeSet};

/// Most conditions of all nodes together. When it is full, those that do not hold are forgotten; if
/// all hold, events about further ones count as events only.
pub(super) const CONDITIONS_MAX: usize = 131_072;

/// Most events of one condition; beyond, the oldest is forgotten.
const EVENTS_MAX: usize = 8;

/// An event by which a condition holds. Programs of the thesis state that their node is bad, as its
/// fan has failed and as it is hot: one condition, and neither event ends the other.
#[derive(Clone, Debug)]
struct StatedBy {
    /// Name of the event.
    name: String,
    /// The rule that would leave the node for it.
    rule: Option<usize>,
    /// The rules that it matches.
    matches: Vec<usize>,
    /// Since when, in Unix nanoseconds.
    onset_ns: u64,
}

#[derive(Clone, Debug)]
struct HeldCondition {
    claim: Claim,
    /// The events by which it holds, in order; none if it does not hold, or is overruled.
    events: Vec<StatedBy>,
    /// The rule that it keeps the node out by.
    rule: Option<usize>,
    /// The rules that it matches.
    matches: Vec<usize>,
    /// The rules whose quiet time ends if it may hold.
    timed: Vec<usize>,
    /// A person wants the node to be used although it holds.
    is_overruled: bool,
    /// The host of its publisher; `None`: it was lost before this launcher.
    host: Option<String>,
}

impl HeldCondition {
    /// Since when it matches a rule; of several events the last one.
    fn onset_ns(&self, rule: usize) -> Option<u64> {
        let matching = self.events.iter().filter(|event| event.matches.contains(&rule));
        matching.map(|event| event.onset_ns).max()
    }

    /// Whether it holds for a rule with a quiet time, or nothing is known of it.
    fn disturbs(&self, rule: usize) -> bool {
        let may_hold = self.claim.truth == Truth::Unknown || self.matches.contains(&rule);
        may_hold && self.timed.contains(&rule)
    }
}

impl AsRef<Claim> for HeldCondition {
    fn as_ref(&self) -> &Claim {
        &self.claim
    }
}

/// What rules have to do with a report.
#[derive(Clone, Debug, Default)]
pub(super) struct Concerned {
    /// The rule that would leave the node while the condition holds.
    pub by: Option<usize>,
    /// The rules that the condition matches while it holds.
    pub matches: Vec<usize>,
    /// The rules with a quiet time that are about conditions of this key.
    pub timed: Vec<usize>,
}

/// What the conditions of a node mean for the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// Why it is not used.
    pub out: Option<Out>,
    /// The rules that conditions match.
    pub matched: BTreeSet<usize>,
    /// The rules that are not quiet: a condition holds for them, or is unknown.
    pub disturbed: BTreeSet<usize>,
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

/// The events by which a condition holds, with a new one. Of the publisher's events the last one of
/// each name counts; other publishers say the whole.
fn joined(old: Option<&HeldCondition>, claim: &Claim, new: StatedBy) -> Vec<StatedBy> {
    let is_its = |old: &&HeldCondition| old.claim.source.publisher == claim.source.publisher;
    let known = old.filter(is_its).map(|old| old.events.as_slice()).unwrap_or_default();
    let is_other = |event: &&StatedBy| !event.name.eq_ignore_ascii_case(&new.name);
    let mut events: Vec<StatedBy> = known.iter().filter(is_other).cloned().collect();
    if events.len() >= EVENTS_MAX {
        events.remove(0);
    }
    events.push(new);
    events
}

#[derive(Clone, Debug, Default)]
pub(super) struct ConditionsByNode {
    view: TableView<HeldCondition>,
    /// Rules that keep a node out until it recovers.
    lasting: BTreeMap<NodeName, BTreeSet<usize>>,
}

impl ConditionsByNode {
    /// Takes a report. `is_overruled`: it is a row that holds since before a person wanted the node
    /// to be used.
    pub(super) fn take(
        &mut self,
        node: &NodeName,
        report: &Report,
        concerned: Concerned,
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
        if old.is_none() && self.view.len() >= CONDITIONS_MAX && !self.make_room() {
            return Change::News;
        }
        let was_out = self.is_out(node);
        let is_known = old.as_ref().is_some_and(|old| old.claim.source == claim.source);
        let ends = truth == Truth::False;
        // A row that is read after a gap may be of another fault: when it began decides.
        let is_same = is_known || !place.is_row;
        let was_overruled = is_same && old.as_ref().is_some_and(|old| old.is_overruled);
        let is_overruled = !ends && (is_overruled || was_overruled);
        let Concerned { by, matches, timed } = concerned;
        let (name, onset_ns) = (report.name().1.to_owned(), report.onset_ns().unwrap_or(0));
        let stated_by = StatedBy { name, rule: by, matches, onset_ns };
        let (rule, events) = match &old {
            _ if ends || is_overruled => (None, Vec::new()),
            // Who repeats a statement does not repeat its tags.
            Some(old) if is_known || truth == Truth::Unknown => {
                let is_kept = !old.matches.is_empty();
                let events = if is_kept { old.events.clone() } else { vec![stated_by] };
                (old.rule.or(by), events)
            }
            old => {
                let events = joined(old.as_ref(), &claim, stated_by);
                (events.iter().find_map(|event| event.rule), events)
            }
        };
        let matches: BTreeSet<usize> = events.iter().flat_map(|of| &of.matches).copied().collect();
        let matches = matches.into_iter().collect();
        let is_repeat = is_known && old.as_ref().is_some_and(|old| old.claim.truth == truth);
        let was_held = is_known && old.as_ref().is_some_and(|old| old.claim.truth != Truth::False);
        // That a publisher is lost is no news, unless the statement itself was not delivered.
        let is_loss = truth == Truth::Unknown && (was_held || !place.is_row);
        // Another host finds that a publisher is lost.
        let host = claim.replaces.is_none().then(|| report.host.clone());
        let host = host.or_else(|| old.and_then(|old| old.host));
        let row = HeldCondition { claim, events, rule, matches, timed, is_overruled, host };
        self.view.take(subject, place, row);
        match was_out && !self.is_out(node) {
            true => Change::Recovered,
            false if is_overruled || is_repeat || is_loss => Change::Known,
            false => Change::News,
        }
    }

    /// Forgets what does not hold: the table of the agents gives that up first, too. Says whether
    /// there is room.
    fn make_room(&mut self) -> bool {
        let rows = self.view.iter();
        let clear = rows.filter(|(_, row)| row.claim.truth == Truth::False);
        let clear: Vec<Subject> = clear.map(|(subject, _)| subject.clone()).collect();
        self.forget(&clear);
        self.view.len() < CONDITIONS_MAX
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

    /// The nodes of which a reading that has ended does not have all rows any more.
    pub(super) fn stale(&self, place: ReadPlace) -> BTreeMap<NodeName, Vec<Subject>> {
        let mut stale: BTreeMap<NodeName, Vec<Subject>> = BTreeMap::new();
        for subject in self.view.stale(place) {
            if let Ok(node) = NodeName::new(subject.host()) {
                stale.entry(node).or_default().push(subject.clone());
            }
        }
        stale
    }

    /// A row of the table whose publisher is not believed neither counts nor ends anything.
    pub(super) fn keep(&mut self, node: &NodeName, report: &Report) {
        if let Some(Statement { condition, .. }) = report.stated.as_ref() {
            let subject = Subject::new(node.as_str(), &condition.component, &condition.key);
            self.view.keep(&subject, report.place);
        }
    }

    pub(super) fn forget(&mut self, subjects: &[Subject]) {
        subjects.iter().for_each(|subject| self.view.forget(subject));
    }

    /// Whether a condition of the node matches this rule.
    pub(super) fn matches(&self, node: &NodeName, rule: usize) -> bool {
        self.view.of_host(node.as_str()).any(|(_, row)| row.matches.contains(&rule))
    }

    /// Since when a condition of the node matches this rule, in Unix nanoseconds; of several the
    /// last one.
    pub(super) fn onset_ns(&self, node: &NodeName, rule: usize) -> Option<u64> {
        let rows = self.view.of_host(node.as_str());
        rows.filter_map(|(_, row)| row.onset_ns(rule)).max()
    }

    /// The same of all nodes.
    pub(super) fn onsets(&self, rule: usize) -> BTreeMap<NodeName, u64> {
        let mut onsets = BTreeMap::new();
        for (subject, row) in self.view.iter() {
            if let Some(onset_ns) = row.onset_ns(rule)
                && let Ok(node) = NodeName::new(subject.host())
            {
                let last = onsets.entry(node).or_insert(onset_ns);
                *last = onset_ns.max(*last);
            }
        }
        onsets
    }

    /// Whether a condition of the node holds for this rule, or is unknown.
    pub(super) fn disturbs(&self, node: &NodeName, rule: usize) -> bool {
        self.view.of_host(node.as_str()).any(|(_, row)| row.disturbs(rule))
    }

    /// What the conditions of a node mean for the rules.
    pub(super) fn standing(&self, node: &NodeName) -> Standing {
        let rows = || self.view.of_host(node.as_str()).map(|(_, row)| row);
        let disturbed = rows().flat_map(|row| row.timed.iter().filter(|rule| row.disturbs(**rule)));
        Standing {
            out: self.out(node),
            matched: rows().flat_map(|row| &row.matches).copied().collect(),
            disturbed: disturbed.copied().collect(),
        }
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
        for row in held {
            (row.rule, row.is_overruled) = (None, true);
            row.matches.clear();
            row.events.clear();
        }
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
