//! The policy: rules from events to actions (`policy.toml`), with brakes. Pure: events and the
//! clock go in, actions come out.
//!
//! Rules are tried in order; the first whose condition holds acts. A rule may wait (`settle`), so
//! that an earlier rule can still see a larger picture. A node is left alone for `hold_down` after
//! an action on it; faults within that time count afterwards, unless they pass. Too many actions
//! open a circuit breaker, which a person closes. In shadow mode actions are only reported. Every
//! fault has a number ([`FaultId`]); a rule about the whole job cancels what waits for the same
//! faults. The defaults are section 3.4.3 of the thesis.

mod faults;
mod rules;
#[cfg(test)]
mod tests;

pub use rules::{ActionKind, Config, PolicyError, Rule};

use crate::jl::{Interval, OnDeath, Request};
use crate::names::{FaultId, NodeName};
use core::time::Duration;
use faults::FaultTable;
use ftb_core::{Event, Now};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The built-in policy; also the commented sample.
pub const DEFAULT: &str = include_str!("../../../deploy/config/policy.toml");
/// Most occurrences that one rule remembers; the oldest go first.
pub const HISTORY_MAX: usize = 4096;
/// Most actions that wait for their settle time or the end of the hold-down. Beyond, settling
/// actions are taken at once, and held actions are dropped.
pub const SETTLING_MAX: usize = 1024;

/// Facts of the job that the policy needs.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The nodes that have ranks.
    pub nodes: BTreeSet<NodeName>,
}

/// An action of the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Tell(String),
    /// A request for the JL.
    Request {
        want: Request,
        /// `None`: a fault has passed.
        fault: Option<FaultId>,
    },
    /// The node is gone.
    Gone {
        node: NodeName,
        reason: String,
    },
    /// Requests for these faults are obsolete.
    Cancel {
        faults: BTreeSet<FaultId>,
        /// The other action.
        reason: String,
    },
}

/// A decision that waits for its settle time.
#[derive(Clone, Debug)]
struct Settling {
    rule: usize,
    node: NodeName,
    /// `None`: the node has recovered.
    fault: Option<FaultId>,
    at_ns: u64,
    /// It waits for the end of the hold-down and then counts as a fault of its own.
    held: bool,
}

#[derive(Clone, Debug)]
pub struct Policy {
    config: Config,
    /// For each rule, when it matched on which node.
    seen: Vec<VecDeque<(u64, NodeName)>>,
    /// When each rule acted last on the job as a whole.
    acted: BTreeMap<usize, u64>,
    /// When a node was acted on last.
    held: BTreeMap<NodeName, u64>,
    settling: Vec<Settling>,
    actions: VecDeque<u64>,
    open: bool,
    drained: BTreeSet<NodeName>,
    faults: FaultTable,
}

fn who(fault: Option<FaultId>) -> String {
    fault.map_or_else(|| "policy".to_owned(), |fault| format!("fault {fault}"))
}

/// The node that an event is about: its tag `node` or `host`, else where it was published.
pub fn node_of(event: &Event, host: &str) -> Option<NodeName> {
    let named = event.tag("node").or_else(|| event.tag("host"));
    NodeName::new(named.unwrap_or(host)).ok()
}

impl Policy {
    /// Reads a policy file.
    ///
    /// # Errors
    /// [`PolicyError`] says at which line what is wrong.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let config = Config::parse(text)?;
        Ok(Self {
            seen: vec![VecDeque::new(); config.rule.len()],
            config,
            acted: BTreeMap::new(),
            held: BTreeMap::new(),
            settling: Vec::new(),
            actions: VecDeque::new(),
            open: false,
            drained: BTreeSet::new(),
            faults: FaultTable::default(),
        })
    }

    pub fn spaces(&self) -> BTreeSet<String> {
        self.config.rule.iter().map(|rule| rule.space.clone()).collect()
    }

    /// The configured reaction to a death.
    pub fn on_death(&self) -> OnDeath {
        self.config.on_death
    }

    /// The configured checkpoint interval and mean time between failures.
    pub fn checkpoint_timer(&self) -> (Interval, Duration) {
        (self.config.interval, self.config.mtbf)
    }

    /// Whether the circuit breaker is open.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Continues after the fault numbers of an earlier policy of the job.
    pub fn follow(&mut self, newest: FaultId) {
        self.faults.follow(newest);
    }

    /// Adopts a waiting fault of an earlier policy. `reason` is the name of its rule; unknown rules
    /// are ignored.
    pub fn adopt(&mut self, now: Now, fault: FaultId, node: Option<&NodeName>, reason: &str) {
        if let Some(rule) = self.config.rule.iter().position(|rule| rule.name == reason) {
            self.faults.adopt(fault, rule, node.cloned(), now);
        }
    }

    /// Closes the circuit breaker.
    pub fn reset(&mut self) {
        self.open = false;
        self.actions.clear();
    }

    /// Takes the node out; no event makes it usable again.
    pub fn drain(&mut self, node: &NodeName) {
        self.drained.insert(node.clone());
    }

    /// Puts the node back.
    pub fn usable(&mut self, node: &NodeName) {
        self.drained.remove(node);
    }

    /// When [`Policy::tick`] is due, in monotonic nanoseconds.
    pub fn next_deadline_ns(&self) -> u64 {
        self.settling.iter().map(|settling| settling.at_ns).min().unwrap_or(u64::MAX)
    }

    /// An event about a node of the job.
    pub fn event(
        &mut self,
        now: Now,
        event: &Event,
        node: &NodeName,
        facts: &Facts,
    ) -> Vec<Action> {
        let mut out = self.tick(now, facts);
        let rules: Vec<usize> = (0..self.config.rule.len())
            .filter(|index| self.config.rule[*index].matches(event))
            .collect();
        for index in &rules {
            let seen = &mut self.seen[*index];
            seen.push_back((now.mono_ns, node.clone()));
            if seen.len() > HISTORY_MAX {
                seen.pop_front();
            }
        }
        if let Some(index) = rules.iter().find(|index| self.fulfilled(now, **index, node, facts)) {
            self.decide(now, *index, node, event, &mut out);
        }
        out
    }

    /// Whether the counting condition of the rule holds now.
    fn fulfilled(&self, now: Now, index: usize, node: &NodeName, facts: &Facts) -> bool {
        let rule = &self.config.rule[index];
        let since = now.mono_ns.saturating_sub(rules::nanos(rule.within));
        let recent = || self.seen[index].iter().filter(|(at, _)| *at >= since);
        if let Some(share) = rule.nodes_over {
            let struck: BTreeSet<&NodeName> =
                recent().map(|(_, node)| node).filter(|node| facts.nodes.contains(*node)).collect();
            #[expect(
                clippy::cast_precision_loss,
                reason = "a job has at most thousands of nodes"
            )]
            return struck.len() as f64 > share * facts.nodes.len() as f64;
        }
        recent().filter(|(_, other)| other == node).count() >= rule.count as usize
    }

    fn decide(
        &mut self,
        now: Now,
        index: usize,
        node: &NodeName,
        event: &Event,
        out: &mut Vec<Action>,
    ) {
        let fault = self.fault_of(now, index, node);
        let rules = &self.config.rule;
        let rule = &rules[index];
        match rule.action {
            // The fault has passed.
            ActionKind::Usable => self.settling.retain(|settling| settling.node != *node),
            // This rule replaces what single nodes were about to do for the same events.
            ActionKind::Checkpoint | ActionKind::Stop => {
                self.settling.retain(|settling| !rules[settling.rule].shares_events(rule));
            }
            // The fault is back before its recovery has settled.
            _ => {
                self.settling.retain(|settling| settling.fault.is_some() || settling.node != *node)
            }
        }
        let waits = !rule.settle.is_zero() && self.settling.len() < SETTLING_MAX;
        if !waits {
            return self.act(now, index, node, fault, out);
        }
        if !self.settling.iter().any(|s| s.rule == index && s.node == *node) {
            let at_ns = now.deadline_ns(rule.settle);
            out.push(Action::Tell(format!(
                "{}: {} on {node}: {} in {:?} unless it passes",
                who(fault),
                event.name,
                rule.action.words(),
                rule.settle
            )));
            self.settling.push(Settling {
                rule: index,
                node: node.clone(),
                fault,
                at_ns,
                held: false,
            });
        }
    }

    /// The number of the fault; recovery is not a fault.
    fn fault_of(&mut self, now: Now, index: usize, node: &NodeName) -> Option<FaultId> {
        let action = self.config.rule[index].action;
        if action == ActionKind::Usable {
            return None;
        }
        let of_node = Some(node).filter(|_| !action.is_about_the_job());
        Some(self.faults.of(now, index, of_node, self.config.hold_down))
    }

    /// Takes settled actions.
    pub fn tick(&mut self, now: Now, facts: &Facts) -> Vec<Action> {
        let mut out = Vec::new();
        let (due, rest) = core::mem::take(&mut self.settling)
            .into_iter()
            .partition(|settling: &Settling| settling.at_ns <= now.mono_ns);
        self.settling = rest;
        for Settling { rule, node, fault, held, .. } in due {
            // An earlier action has helped: the node has no ranks.
            if held && !facts.nodes.contains(&node) {
                continue;
            }
            // An earlier rule may hold by now.
            let superseded = (0..rule).any(|index| {
                let before = &self.config.rule[index];
                let same = before.shares_events(&self.config.rule[rule]);
                same && before.nodes_over.is_some() && self.fulfilled(now, index, &node, facts)
            });
            if !superseded {
                let fault = if held { self.fault_of(now, rule, &node) } else { fault };
                self.act(now, rule, &node, fault, &mut out);
            }
        }
        out
    }

    fn act(
        &mut self,
        now: Now,
        index: usize,
        node: &NodeName,
        fault: Option<FaultId>,
        out: &mut Vec<Action>,
    ) {
        let rule = &self.config.rule[index];
        let (kind, reason) = (rule.action, rule.name.clone());
        let what = format!("{} ({reason}, node {node})", kind.words());
        match (kind, fault) {
            (ActionKind::Usable, _) => {
                self.faults.close_node(node);
                if self.drained.contains(node) {
                    return;
                }
            }
            (_, Some(fault)) if kind.has_power() => {
                if !self.may_act(now, index, node, fault, &what, out) {
                    return;
                }
                self.faults.acted(fault, now);
                self.take_over(index, &reason, out);
            }
            _ => {}
        }
        out.push(Action::Tell(format!("{}: {what}", who(fault))));
        let node = node.clone();
        let want = match kind {
            ActionKind::Migrate => Request::Migrate { node, reason },
            ActionKind::Drain => {
                self.drained.insert(node.clone());
                Request::Drain { node, reason }
            }
            ActionKind::Checkpoint => Request::Checkpoint { reason },
            ActionKind::Stop => Request::Kill { code: 1, reason },
            ActionKind::Usable => Request::Usable { node },
            ActionKind::Lost => return out.push(Action::Gone { node, reason }),
            ActionKind::Notify => return,
        };
        out.push(Action::Request { want, fault });
    }

    /// Whether the brakes allow the action now.
    fn may_act(
        &mut self,
        now: Now,
        index: usize,
        node: &NodeName,
        fault: FaultId,
        what: &str,
        out: &mut Vec<Action>,
    ) -> bool {
        if let Some(until_ns) = self.held_until(now, index, node) {
            self.put_off(now, until_ns, index, node, fault, out);
            return false;
        }
        if self.config.shadow {
            out.push(Action::Tell(format!("fault {fault}, shadow mode: would {what}")));
            self.hold(now, index, node);
            return false;
        }
        if !self.breaker_allows(now) {
            out.push(Action::Tell(format!(
                "fault {fault}: the circuit breaker is open, nothing is done: would {what}; \
                 close it with ftb-launch policy reset JOB"
            )));
            return false;
        }
        self.hold(now, index, node);
        true
    }

    /// A rule about the whole job acts: what single nodes requested for the same events is
    /// cancelled.
    fn take_over(&mut self, index: usize, reason: &str, out: &mut Vec<Action>) {
        let rules = &self.config.rule;
        if !rules[index].action.is_about_the_job() {
            return;
        }
        let faults = self.faults.close_rules(|other| rules[other].shares_events(&rules[index]));
        if !faults.is_empty() {
            out.push(Action::Cancel { faults, reason: reason.to_owned() });
        }
    }

    /// Keeps the fault until the end of the hold-down, unless it passes.
    fn put_off(
        &mut self,
        now: Now,
        until_ns: u64,
        index: usize,
        node: &NodeName,
        fault: FaultId,
        out: &mut Vec<Action>,
    ) {
        let rule = &self.config.rule[index];
        let known = self.settling.iter().any(|s| s.rule == index && s.node == *node);
        if rule.action.is_about_the_job() || known || self.settling.len() >= SETTLING_MAX {
            return;
        }
        // The fault was acted on; this is a repetition.
        if !self.faults.has_acted(fault) {
            let wait = Duration::from_nanos(until_ns.saturating_sub(now.mono_ns));
            out.push(Action::Tell(format!(
                "fault {fault}: {} on {node} within the hold-down: {} in {wait:.0?} unless it passes",
                rule.name,
                rule.action.words()
            )));
        }
        let (rule, node, fault) = (index, node.clone(), Some(fault));
        self.settling.push(Settling { rule, node, fault, at_ns: until_ns, held: true });
    }

    /// End of the hold-down of this node, or of the job for a checkpoint.
    fn held_until(&self, now: Now, index: usize, node: &NodeName) -> Option<u64> {
        let last = match self.config.rule[index].action.is_about_the_job() {
            true => self.acted.get(&index),
            false => self.held.get(node),
        };
        let hold = rules::nanos(self.config.hold_down);
        last.map(|at| at.saturating_add(hold)).filter(|until| now.mono_ns < *until)
    }

    fn hold(&mut self, now: Now, index: usize, node: &NodeName) {
        self.acted.insert(index, now.mono_ns);
        if !self.config.rule[index].action.is_about_the_job() {
            self.held.insert(node.clone(), now.mono_ns);
        }
    }

    fn breaker_allows(&mut self, now: Now) -> bool {
        let breaker = &self.config.breaker;
        let since = now.mono_ns.saturating_sub(rules::nanos(breaker.within));
        while self.actions.front().is_some_and(|at| *at < since) {
            self.actions.pop_front();
        }
        if self.actions.len() >= breaker.actions as usize {
            self.open = true;
        }
        if self.open {
            return false;
        }
        self.actions.push_back(now.mono_ns);
        true
    }
}
