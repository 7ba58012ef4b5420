//! The policy: rules from events to actions (`policy.toml`), with brakes. Pure: events and the
//! clock go in, actions come out.
//!
//! Rules are tried in order; the first whose condition holds acts. A rule may wait (`settle`), so
//! that an earlier rule can still see a larger picture. A node is left alone for `hold_down` after
//! an action on it; faults within that time count afterwards, unless they pass. Too many actions
//! open a circuit breaker, which a person closes. In shadow mode actions are only reported. Every
//! fault has a number ([`FaultId`]); a rule about the whole job cancels what waits for the same
//! faults. The defaults are section 3.4.3 of the thesis.
//!
//! A node whose condition holds gets no ranks until the condition clears. A rule that counts, or an
//! event without a condition, bans the node until what the rule says (`until`).

mod bans;
mod conditions;
mod fault_numbers;
mod handled;
mod orders;
mod reactions;
mod report;
mod rules;
mod settling;
#[cfg(test)]
mod tests;

pub use handled::HandledEvents;
pub use orders::Orders;
pub use reactions::Reaction;
pub use report::{EventSource, Proof, Report, Statement};
pub use rules::{ActionKind, Config, PolicyError, Rule, Until};

use crate::jl::{Interval, OnDeath, OnHang, Request, Unusable};
use crate::message::FaultCause;
use crate::names::{FaultId, NodeName};
use crate::progress::HangTimes;
use conditions::{Change, Concerned, ConditionsByNode};
use core::time::Duration;
use fault_numbers::FaultTable;
use ftb_core::log::table_view::ReadPlace;
use ftb_core::space::lies_in;
use ftb_core::{EventId, Now};
use settling::Settling;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The built-in policy; also the commented sample.
pub const DEFAULT: &str = include_str!("../policy.toml");
/// Most occurrences that one rule remembers; the oldest go first.
pub const HISTORY_MAX: usize = 4096;
/// Most actions that wait for their settle time or the end of the hold-down. Beyond, settling
/// actions are taken at once, and held actions are dropped.
pub const SETTLING_MAX: usize = 1024;
/// A settle time takes at most this part of the time until a predicted failure.
const SETTLE_SHARE: u32 = 4;
/// What a person does about an open circuit breaker.
const CLOSE_IT: &str = "close it with ftb-launch policy reset JOB";
/// Why a node is used again.
const CLEARED: &str = "its conditions have cleared";

/// Facts of the job that the policy needs.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The nodes that have ranks.
    pub nodes: BTreeSet<NodeName>,
    /// The user who owns the job.
    pub owner: u32,
}

/// Why an action is only reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brake {
    Shadow,
    /// The circuit breaker is open.
    Breaker,
}

impl Brake {
    const ALL: [Self; 2] = [Self::Shadow, Self::Breaker];

    /// The word in events and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Shadow => "shadow",
            Self::Breaker => "breaker",
        }
    }

    /// The brake of that name.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|brake| brake.as_str() == word)
    }
}

/// An action of the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Notify(String),
    /// A request for the JL.
    Request {
        want: Request,
        /// `None`: a fault has passed.
        fault: Option<(FaultId, FaultCause)>,
    },
    /// A node is predicted to fail earlier than the request for this fault says.
    Sooner {
        fault: FaultId,
        node: NodeName,
        /// In monotonic nanoseconds.
        fails_ns: u64,
    },
    /// The node gets no ranks until it may be used again.
    Unusable {
        node: NodeName,
        why: Unusable,
    },
    /// The node is gone.
    Gone {
        node: NodeName,
        fault: FaultId,
        cause: FaultCause,
    },
    /// Requests for these faults are obsolete.
    Cancel {
        faults: BTreeSet<FaultId>,
        /// The other action.
        reason: String,
    },
}

#[derive(Clone, Debug)]
pub struct Policy {
    config: Config,
    /// The host of the launcher.
    host: Option<String>,
    /// For each rule, when it matched on which node, in monotonic nanoseconds; negative: before
    /// this launcher.
    seen: Vec<VecDeque<(i128, NodeName)>>,
    /// When each rule acted last on the job as a whole.
    acted: BTreeMap<usize, u64>,
    /// When a node was acted on last.
    held: BTreeMap<NodeName, u64>,
    settling: Vec<Settling>,
    actions: VecDeque<u64>,
    /// Why the last action was only reported.
    braked: Option<Brake>,
    orders: Orders,
    faults: FaultTable,
    conditions: ConditionsByNode,
    /// Since when the rule of a ban has not matched on its node, in monotonic nanoseconds. Only of
    /// rules that a quiet time ends.
    quiet_since: BTreeMap<(NodeName, usize), u64>,
    /// The table of conditions was read.
    has_read: bool,
}

fn who(fault: Option<FaultId>) -> String {
    fault.map_or_else(|| "policy".to_owned(), |fault| format!("fault {fault}"))
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
            host: None,
            acted: BTreeMap::new(),
            held: BTreeMap::new(),
            settling: Vec::new(),
            actions: VecDeque::new(),
            braked: None,
            orders: Orders::default(),
            faults: FaultTable::default(),
            conditions: ConditionsByNode::default(),
            quiet_since: BTreeMap::new(),
            has_read: false,
        })
    }

    /// A copy that a drill may ask: nothing waits in it for its time.
    pub fn for_drill(&self) -> Self {
        let (settling, quiet_since, braked) = (Vec::new(), BTreeMap::new(), None);
        Self { settling, quiet_since, braked, ..self.clone() }
    }

    pub fn spaces(&self) -> BTreeSet<String> {
        let rules = self.config.rule.iter().filter(|rule| !rule.events.is_empty());
        rules.map(|rule| rule.space.clone()).collect()
    }

    /// The configured reaction to a death.
    pub fn on_death(&self) -> OnDeath {
        self.config.on_death
    }

    /// The configured reaction to a hung rank; in shadow mode it is only reported.
    pub fn on_hang(&self) -> OnHang {
        if self.config.shadow { OnHang::Report } else { self.config.on_hang }
    }

    /// When a rank counts as hung.
    pub fn hang_times(&self) -> HangTimes {
        self.config.hang_times()
    }

    /// The configured checkpoint interval and mean time between failures.
    pub fn checkpoint_timer(&self) -> (Interval, Duration) {
        (self.config.interval, self.config.mtbf)
    }

    /// Whether the circuit breaker is open.
    pub fn is_open(&self) -> bool {
        self.orders.is_breaker_open
    }

    /// Why the last action was only reported, since it was copied for a drill.
    pub fn braked(&self) -> Option<Brake> {
        self.braked
    }

    /// Continues after the fault numbers of an earlier policy of the job.
    pub fn follow(&mut self, newest: FaultId) {
        self.faults.follow(newest);
    }

    /// Adopts a waiting fault of an earlier policy. `reason` is the name of its rule; unknown rules
    /// are ignored. The hold-down begins anew, so the table of conditions causes no second action.
    pub fn adopt(&mut self, now: Now, fault: FaultId, node: Option<&NodeName>, reason: &str) {
        if let Some(rule) = self.config.rule.iter().position(|rule| rule.name == reason) {
            self.faults.adopt(fault, rule, node.cloned(), now);
            self.hold(now, rule, node);
        }
    }

    /// Closes the circuit breaker.
    pub fn reset(&mut self) {
        self.orders.is_breaker_open = false;
        self.actions.clear();
    }

    /// Takes the node out; no event makes it usable again.
    pub fn drain(&mut self, node: &NodeName) {
        self.orders.drain(node);
    }

    /// A person puts the node back, whatever its conditions are.
    pub fn usable(&mut self, now: Now, node: &NodeName) {
        self.orders.usable(node, now.wall_ns);
        self.conditions.overrule(node);
        self.forget_bans(node);
        self.drop_settlings_of(node);
        self.faults.close_node(node);
    }

    /// What the next launcher must know.
    pub fn orders(&self) -> &Orders {
        &self.orders
    }

    /// Continues with the orders of an earlier launcher: banned nodes get no ranks, and an open
    /// circuit breaker stays open.
    pub fn adopt_orders(&mut self, now: Now, orders: Orders) -> Vec<Action> {
        self.orders = orders;
        let mut out = Vec::new();
        if self.is_open() {
            out.push(Action::Notify(format!(
                "policy: the circuit breaker is open since an earlier launcher: {CLOSE_IT}"
            )));
        }
        out.extend(self.adopt_bans(now));
        out
    }

    /// Whether the action on this event is put off, for its settle time or a hold-down.
    pub fn waits_for(&self, event: EventId) -> bool {
        self.settling.iter().any(|settling| settling.event == Some(event))
    }

    /// Whether an action is put off.
    pub fn is_waiting(&self) -> bool {
        !self.settling.is_empty()
    }

    /// When [`Policy::tick`] is due, in monotonic nanoseconds.
    pub fn next_deadline_ns(&self) -> u64 {
        self.next_settled_ns().min(self.next_quiet_ns())
    }

    /// When the next action has settled, in monotonic nanoseconds.
    pub fn next_settled_ns(&self) -> u64 {
        self.settling.iter().map(|settling| settling.at_ns).min().unwrap_or(u64::MAX)
    }

    /// The host of the launcher: there its agent knows who publishes.
    pub fn set_host(&mut self, host: String) {
        self.host = Some(host);
    }

    /// Whether a report counts: it is signed where events are, and about another host only if its
    /// publisher may speak about that. A host vouches for its own users: where agents demand
    /// signatures, none can claim on any host to be root or the owner.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, report: &Report, node: &NodeName, owner: u32) -> Result<(), String> {
        let (space, name) = report.name();
        let (uid, host) = (report.uid, &report.host);
        let is_signed = report.stated.is_some() || self.protects(report);
        if is_signed && report.proof == Proof::Missing {
            return Err(format!("{name} about {node} is not signed with the key of {host}"));
        }
        if !report.is_about_another(node) {
            return Ok(());
        }
        if !self.trusts(report, owner) {
            return Err(format!(
                "{name} of uid {uid} on {host} is about {node}; {space} is not among the \
                 trusted_spaces of the policy"
            ));
        }
        let monitors = &self.config.monitors;
        let may_speak = match monitors {
            None => report.proof == Proof::Unchecked,
            Some(monitors) => monitors.contains(host),
        };
        let is_here = self.host.as_ref() == Some(host);
        let may_command = !is_signed && (report.proof == Proof::Unchecked || is_here);
        if may_command || may_speak || report.is_verdict() {
            return Ok(());
        }
        let who = match is_signed {
            true => "not among the monitors of the policy",
            false => "neither the host of the launcher nor among the monitors of the policy",
        };
        Err(format!("{name} is about {node}, and {host} is {who}"))
    }

    /// The host of the publisher that watches what an event space says about a node, as it was
    /// known last.
    pub fn watcher(&self, node: &NodeName, space: &str) -> Option<&str> {
        self.conditions.watcher(node, space)
    }

    /// A report that was refused ([`Policy::check`]). If it is a row of the table, it ends nothing.
    pub fn on_refused(&mut self, report: &Report, node: &NodeName) {
        if report.place.is_row {
            self.conditions.keep(node, report);
        }
    }

    fn trusts(&self, report: &Report, owner: u32) -> bool {
        report.uid == 0 || report.uid == owner || self.protects(report)
    }

    /// Whether agents let only root and their own user publish in its event space.
    fn protects(&self, report: &Report) -> bool {
        let space = report.event.space.as_str().as_bytes();
        self.config.trusted_spaces.iter().any(|known| lies_in(space, known))
    }

    /// A report about a node of the job.
    pub fn event(
        &mut self,
        now: Now,
        report: &Report,
        node: &NodeName,
        facts: &Facts,
    ) -> Vec<Action> {
        let mut out = self.tick(now, facts);
        let is_trusted = self.trusts(report, facts.owner);
        let matches = |rule: &Rule| rule.matches(report) && (is_trusted || !rule.trusted_only);
        let rules = self.config.rule.iter().enumerate().filter(|(_, rule)| matches(rule));
        let rules: Vec<usize> = rules.map(|(index, _)| index).collect();
        let concerned = self.concerned(report, &rules, is_trusted);
        let holds = report.holding().is_some();
        let before = self.conditions.standing(node);
        let is_overruled = self.orders.overrules(node, report);
        let change = self.conditions.take(node, report, concerned, is_overruled);
        let news: &[usize] = if change == Change::Known { &[] } else { &rules };
        self.disturb(now, node, &before, news);
        let passed = self.drop_passed(node, &before, &rules, &mut out);
        if change == Change::Known {
            self.cancel_passed(node, &passed, &mut out);
            return out;
        }
        let at_ns = report.at_ns(now);
        for index in &rules {
            let seen = &mut self.seen[*index];
            seen.push_back((at_ns, node.clone()));
            if seen.len() > HISTORY_MAX {
                seen.pop_front();
            }
        }
        let index = rules.iter().find(|index| self.fulfilled(at_ns, **index, node, facts)).copied();
        // A row of the table, or a repetition, is no news of a recovery.
        let is_old = report.is_initial() || report.is_repeat();
        let index = index.filter(|index| !(is_old && self.recovers(*index)));
        if let Some(index) = index {
            let rule = &self.config.rule[index];
            if rule.action.keeps_out() && !(holds && rule.takes_each()) {
                self.ban(now, node, index);
            }
        }
        self.notify_out(node, before.out.as_ref(), &mut out);
        if let Some(index) = index {
            self.decide(now, index, node, report, facts, &mut out);
        }
        if change == Change::Recovered && !index.is_some_and(|index| self.recovers(index)) {
            self.recover(now, node, CLEARED, &mut out);
        }
        self.cancel_passed(node, &passed, &mut out);
        out
    }

    /// What the rules that match a report, and others, have to do with its condition.
    fn concerned(&self, report: &Report, rules: &[usize], is_trusted: bool) -> Concerned {
        let Some(stated) = &report.stated else { return Concerned::default() };
        let (all, (space, _)) = (&self.config.rule, report.name());
        let is_timed = |rule: &Rule| {
            let is_about = rule.is_about(space, "", &[stated.condition.key.as_str()]);
            is_about && matches!(rule.until, Until::Quiet(_)) && (is_trusted || !rule.trusted_only)
        };
        let timed = all.iter().enumerate().filter(|(_, rule)| is_timed(rule));
        let timed = timed.map(|(index, _)| index).collect();
        if report.holding().is_none() {
            return Concerned { timed, ..Concerned::default() };
        }
        let keeps_out = |index: &&usize| all[**index].action.keeps_out();
        // A rule that only reports leaves nothing for those behind it.
        let is_left = |index: &&usize| {
            let rule = &all[**index];
            !(rule.takes_each() && rule.action == ActionKind::Notify)
        };
        let by = rules.iter().take_while(is_left).find(keeps_out).copied();
        Concerned { by, matches: rules.to_vec(), timed }
    }

    /// A reading of the table by this subscription, after a gap, has ended. What held before, and
    /// is not in the table any more, is not known to hold.
    pub fn end_reading(&mut self, now: Now, place: ReadPlace, facts: &Facts) -> Vec<Action> {
        let mut out = self.tick(now, facts);
        for (node, gone) in self.conditions.stale(place) {
            let before = self.conditions.standing(&node);
            self.conditions.forget(&gone);
            self.disturb(now, &node, &before, &[]);
            let passed = self.drop_passed(&node, &before, &[], &mut out);
            self.notify_out(&node, before.out.as_ref(), &mut out);
            if before.out.is_some() && self.conditions.out(&node).is_none() {
                self.recover(now, &node, "the table has its conditions no more", &mut out);
            }
            self.cancel_passed(&node, &passed, &mut out);
        }
        out
    }

    fn recovers(&self, index: usize) -> bool {
        self.config.rule[index].action == ActionKind::Usable
    }

    /// Why a node gets no ranks.
    fn why(&self, node: &NodeName) -> Option<Unusable> {
        let out = self.conditions.out(node)?;
        let rule = &self.config.rule[out.rule].name;
        Some(match out.condition {
            Some(condition) => Unusable { why: format!("{rule}: {condition}"), lasts: false },
            None => Unusable { why: rule.clone(), lasts: true },
        })
    }

    /// Reports that a node gets no ranks from now on, or another reason for it.
    fn notify_out(&self, node: &NodeName, was: Option<&conditions::Out>, out: &mut Vec<Action>) {
        if self.conditions.out(node).as_ref() == was {
            return;
        }
        match self.why(node) {
            Some(Unusable { why, .. }) if self.config.shadow => out.push(Action::Notify(format!(
                "shadow mode: node {node} would get no ranks ({why})"
            ))),
            Some(why) => out.push(Action::Unusable { node: node.clone(), why }),
            None => {}
        }
    }

    /// A node that an earlier launcher did not use recovers if no condition holds any more.
    pub fn adopt_unusable(&mut self, now: Now, node: &NodeName) -> Vec<Action> {
        let mut out = Vec::new();
        if self.conditions.out(node).is_none() {
            self.recover(now, node, CLEARED, &mut out);
        }
        out
    }

    /// Nothing keeps the node out any more. A rule of recovery has the delay.
    fn recover(&mut self, now: Now, node: &NodeName, why: &str, out: &mut Vec<Action>) {
        // The delay begins anew.
        self.settling.retain(|settling| settling.fault.is_some() || settling.node != *node);
        let rules = &self.config.rule;
        match rules.iter().position(|rule| rule.action == ActionKind::Usable) {
            Some(rule) if !rules[rule].settle.is_zero() => {
                let at_ns = now.deadline_ns(rules[rule].settle);
                self.settling.push(Settling::new(rule, node.clone(), at_ns));
            }
            _ => self.put_back(node, why, out),
        }
    }

    /// The node may be used again, unless a condition holds or a person has drained it.
    fn put_back(&mut self, node: &NodeName, reason: &str, out: &mut Vec<Action>) {
        if self.conditions.out(node).is_some() {
            return;
        }
        self.faults.close_node(node);
        if !self.orders.is_drained(node) {
            let what = ActionKind::Usable.words();
            out.push(Action::Notify(format!("policy: {what} ({reason}, node {node})")));
            let want = Request::Usable { node: node.clone() };
            out.push(Action::Request { want, fault: None });
        }
    }

    /// Whether the counting condition of the rule holds at a time. Of the next launcher that is
    /// the time of the event, which it may read long after: what lay far apart does not count.
    fn fulfilled(&self, at_ns: i128, index: usize, node: &NodeName, facts: &Facts) -> bool {
        let rule = &self.config.rule[index];
        if let Some(share) = rule.nodes_over {
            let struck = self.struck(at_ns, index, facts);
            #[expect(
                clippy::cast_precision_loss,
                reason = "a job has at most thousands of nodes"
            )]
            return struck.len() > 1 && struck.len() as f64 > share * facts.nodes.len() as f64;
        }
        self.recent(at_ns, index).filter(|other| *other == node).count() >= rule.count as usize
    }

    /// The nodes on which the rule has matched lately.
    fn recent(&self, at_ns: i128, index: usize) -> impl Iterator<Item = &NodeName> {
        let within = u128::from(rules::nanos(self.config.rule[index].within));
        let is_recent = move |at: i128| at.abs_diff(at_ns) <= within;
        self.seen[index].iter().filter(move |(at, _)| is_recent(*at)).map(|(_, node)| node)
    }

    /// Those with ranks.
    fn struck(&self, at_ns: i128, index: usize, facts: &Facts) -> BTreeSet<&NodeName> {
        self.recent(at_ns, index).filter(|node| facts.nodes.contains(*node)).collect()
    }

    /// Whether a rule about the whole job of the launcher before has acted for the conditions that
    /// this one reads first. Later the hold-down decides: what was asked for may have failed.
    fn has_answered(&self, now: Now, index: usize, node: &NodeName, facts: &Facts) -> bool {
        let rule = &self.config.rule[index];
        if self.has_read || !rule.action.is_about_the_job() {
            return false;
        }
        let is_answered = |of: &NodeName| {
            self.orders.has_answered(&rule.name, of, self.conditions.onset_ns(of, index))
        };
        let struck = match rule.nodes_over {
            Some(_) => self.struck(now.mono_ns.into(), index, facts),
            None => [node].into(),
        };
        !struck.is_empty() && struck.into_iter().all(is_answered)
    }

    /// The table of conditions was read by a launcher that begins: what does not hold any more may
    /// be acted on again.
    pub fn end_first_reading(&mut self) {
        self.has_read = true;
        let (rules, conditions) = (&self.config.rule, &self.conditions);
        let index = |name: &str| rules.iter().position(|rule| rule.name == name);
        self.orders.retain_answered(|rule, node| {
            index(rule).is_some_and(|index| conditions.matches(node, index))
        });
    }

    fn decide(
        &mut self,
        now: Now,
        index: usize,
        node: &NodeName,
        report: &Report,
        facts: &Facts,
        out: &mut Vec<Action>,
    ) {
        let action = self.config.rule[index].action;
        if action == ActionKind::Usable && self.stays_out(node, index, out) {
            return;
        }
        let is_stated = report.holding().is_some() && self.conditions.matches(node, index);
        if is_stated && self.has_answered(now, index, node, facts) {
            return;
        }
        // It gets no ranks; there is nothing to move, and nothing more to say.
        let is_of_ranks = matches!(action, ActionKind::Migrate | ActionKind::Avoid);
        if is_of_ranks && !facts.nodes.contains(node) {
            return;
        }
        let fault = self.fault_of(now, index, node);
        let fails_ns = report.fails_ns(now);
        self.look_for_sooner(now, fault, node, fails_ns, out);
        let rules = &self.config.rule;
        let rule = &rules[index];
        match rule.action {
            // This rule replaces what single nodes were about to do for the same events. What it is
            // about to do itself because of other nodes stays.
            ActionKind::Checkpoint | ActionKind::Stop => {
                self.settling.retain(|settling| {
                    settling.rule == index || !rules[settling.rule].shares_triggers(rule)
                });
            }
            // The fault is back before its recovery has settled.
            action if action.keeps_out() => {
                self.settling.retain(|settling| settling.fault.is_some() || settling.node != *node);
            }
            _ => {}
        }
        // A node that fails soon does not wait for the larger picture.
        let left = fails_ns.map(|at_ns| Duration::from_nanos(at_ns.saturating_sub(now.mono_ns)));
        let settle = left.map_or(rule.settle, |left| rule.settle.min(left / SETTLE_SHARE));
        let (what, event) = (report.words(), report.source.as_ref().map(|source| source.id));
        let (at_ns, is_at_limit) = (now.deadline_ns(settle), report.is_at_limit());
        let rest = Settling::new(index, node.clone(), at_ns);
        let settling = Settling { fault, fails_ns, is_at_limit, what, event, is_stated, ..rest };
        if settle.is_zero() || self.settling.len() >= SETTLING_MAX {
            return self.act(now, settling, facts, out);
        }
        let is_same = |known: &&mut Settling| known.rule == index && known.node == settling.node;
        match self.settling.iter_mut().find(is_same) {
            // It was to wait for the end of a hold-down, and the node fails before that.
            Some(known) if fails_ns.is_some() && settling.at_ns < known.at_ns => *known = settling,
            Some(known) => known.joins(&settling),
            None => {
                let Settling { node, what, .. } = &settling;
                let (words, name, who) = (rule.action.words(), &rule.name, who(fault));
                out.push(Action::Notify(format!(
                    "{who}: {what} on {node}: {words} in {settle:?} unless it passes ({name})"
                )));
                self.settling.push(settling);
            }
        }
    }

    /// A rule of recovery ends what it may end. Says whether the node stays out all the same.
    fn stays_out(&mut self, node: &NodeName, index: usize, out: &mut Vec<Action>) -> bool {
        let ended = self.end_faults(node, index);
        let is_out = self.conditions.out(node).is_some();
        if is_out || !self.config.rule[index].settle.is_zero() {
            self.cancel_passed(node, &ended, out);
        }
        is_out
    }

    /// A fault that was acted on: its node may fail sooner than was predicted then, or its limit is
    /// reached.
    fn look_for_sooner(
        &mut self,
        now: Now,
        fault: Option<FaultId>,
        node: &NodeName,
        predicted_ns: Option<u64>,
        out: &mut Vec<Action>,
    ) {
        let is_sooner = |fault: &FaultId| self.faults.fails_sooner(now, *fault, predicted_ns);
        if let Some(fault) = fault.filter(is_sooner) {
            let fails_ns = predicted_ns.unwrap_or(now.mono_ns);
            self.faults.expect(fault, Some(fails_ns));
            out.push(Action::Sooner { fault, node: node.clone(), fails_ns });
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
        self.end_quiet(now, &mut out);
        let (due, rest) = core::mem::take(&mut self.settling)
            .into_iter()
            .partition(|settling: &Settling| settling.at_ns <= now.mono_ns);
        self.settling = rest;
        for mut settling in due {
            let (rule, node) = (settling.rule, &settling.node);
            // The node has no ranks any more.
            let moves = self.config.rule[rule].action == ActionKind::Migrate;
            if (settling.held || moves) && !facts.nodes.contains(node) {
                continue;
            }
            // An earlier rule may hold by now.
            let superseded = (0..rule).any(|index| {
                let before = &self.config.rule[index];
                let same = before.shares_triggers(&self.config.rule[rule]);
                same && before.nodes_over.is_some()
                    && self.fulfilled(now.mono_ns.into(), index, node, facts)
            });
            if !superseded {
                if settling.held {
                    settling.fault = self.fault_of(now, rule, node);
                }
                self.act(now, settling, facts, &mut out);
            }
        }
        out
    }

    fn act(&mut self, now: Now, settled: Settling, facts: &Facts, out: &mut Vec<Action>) {
        let rule = &self.config.rule[settled.rule];
        let (kind, reason) = (rule.action, rule.name.clone());
        // Where no rank moves, nothing is to be braked.
        let has_effect = kind.is_about_the_job() || facts.nodes.contains(&settled.node);
        let has_power = kind.has_power() && (has_effect || self.config.shadow);
        if kind == ActionKind::Usable {
            return self.put_back(&settled.node, &reason, out);
        }
        let (node, fault) = (&settled.node, settled.fault);
        let what = format!("{} ({reason}, node {node}): {}", kind.words(), settled.what);
        if let Some(fault) = fault.filter(|_| has_power) {
            if !self.may_act(now, &settled, fault, &what, out) {
                return;
            }
            self.faults.acted(fault, now);
            self.faults.expect(fault, settled.fails_ns(now));
            if kind.is_about_the_job() && settled.is_stated {
                self.orders.answer(&reason, self.conditions.onsets(settled.rule));
            }
            let is_about_the_job = kind.is_about_the_job();
            self.settling.retain(|s| {
                s.rule != settled.rule || (!is_about_the_job && s.node != settled.node)
            });
            self.take_over(settled.rule, &reason, out);
        } else if let Some(fault) = fault.filter(|_| kind.has_power()) {
            // A drain of a node without ranks, once for each fault.
            if self.faults.has_acted(fault) {
                return;
            }
            self.faults.acted(fault, now);
        }
        out.push(Action::Notify(format!("{}: {what}", who(fault))));
        let cause =
            FaultCause { what: format!("{} on {node}", settled.what), rule: reason.clone() };
        let (fails_ns, node) = (settled.fails_ns(now), settled.node);
        let want = match kind {
            ActionKind::Migrate => Request::Migrate { node, reason, fails_ns },
            ActionKind::Drain => {
                self.orders.drain(&node);
                Request::Drain { node, reason }
            }
            ActionKind::Checkpoint => Request::Checkpoint { reason },
            ActionKind::Stop => Request::Kill { code: 1, reason },
            ActionKind::Lost => {
                out.extend(fault.map(|fault| Action::Gone { node, fault, cause }));
                return;
            }
            ActionKind::Notify | ActionKind::Avoid | ActionKind::Usable => return,
        };
        out.push(Action::Request { want, fault: fault.map(|fault| (fault, cause)) });
    }

    /// Whether the brakes allow the action now.
    fn may_act(
        &mut self,
        now: Now,
        settled: &Settling,
        fault: FaultId,
        what: &str,
        out: &mut Vec<Action>,
    ) -> bool {
        let (index, node) = (settled.rule, &settled.node);
        // Later it is too late. What was acted on already is a repetition.
        let fails_before = |until_ns: &u64| {
            let is_too_late = settled.fails_ns.is_some_and(|fails_ns| fails_ns < *until_ns);
            is_too_late && !self.faults.has_acted(fault)
        };
        let until_ns = self.held_until(now, index, node);
        let is_urgent = until_ns.as_ref().is_some_and(fails_before);
        if let Some(until_ns) = until_ns.filter(|_| !is_urgent) {
            self.put_off(now, until_ns, settled, fault, out);
            return false;
        }
        if is_urgent {
            self.faults.acted(fault, now);
        }
        if self.config.shadow {
            out.push(Action::Notify(format!("fault {fault}, shadow mode: would {what}")));
            self.braked = Some(Brake::Shadow);
            self.hold(now, index, Some(node));
            return false;
        }
        let state = if self.is_open() { "is open" } else { "opens" };
        if !self.breaker_allows(now) {
            out.push(Action::Notify(format!(
                "fault {fault}: the circuit breaker {state}, nothing is done: would {what}; \
                 {CLOSE_IT}"
            )));
            self.braked = Some(Brake::Breaker);
            return false;
        }
        self.hold(now, index, Some(node));
        true
    }

    /// A rule about the whole job acts: what single nodes requested for the same events is
    /// cancelled.
    fn take_over(&mut self, index: usize, reason: &str, out: &mut Vec<Action>) {
        let rules = &self.config.rule;
        if !rules[index].action.is_about_the_job() {
            return;
        }
        let faults = self.faults.close_rules(|other| rules[other].shares_triggers(&rules[index]));
        if !faults.is_empty() {
            out.push(Action::Cancel { faults, reason: reason.to_owned() });
        }
    }

    /// Keeps the fault until the end of the hold-down, unless it passes.
    fn put_off(
        &mut self,
        now: Now,
        until_ns: u64,
        settled: &Settling,
        fault: FaultId,
        out: &mut Vec<Action>,
    ) {
        let Settling { rule: index, node, what, fails_ns, .. } = settled;
        let rule = &self.config.rule[*index];
        let is_same = |known: &&mut Settling| known.rule == *index && known.node == *node;
        if let Some(known) = self.settling.iter_mut().find(is_same) {
            known.fails_ns = fails_ns.or(known.fails_ns);
            known.joins(settled);
            return;
        }
        if rule.action.is_about_the_job() || self.settling.len() >= SETTLING_MAX {
            return;
        }
        // The fault was acted on; this is a repetition.
        if !self.faults.has_acted(fault) {
            let wait = Duration::from_nanos(until_ns.saturating_sub(now.mono_ns));
            let (name, action) = (&rule.name, rule.action.words());
            out.push(Action::Notify(format!(
                "fault {fault}: {name} on {node} ({what}) within the hold-down: {action} in \
                 {wait:.0?} unless it passes"
            )));
        }
        let (fault, at_ns, held) = (Some(fault), until_ns, true);
        self.settling.push(Settling { fault, at_ns, held, ..settled.clone() });
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

    fn hold(&mut self, now: Now, index: usize, node: Option<&NodeName>) {
        self.acted.insert(index, now.mono_ns);
        let is_about_the_job = self.config.rule[index].action.is_about_the_job();
        if let Some(node) = node.filter(|_| !is_about_the_job) {
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
            self.orders.is_breaker_open = true;
        }
        if self.is_open() {
            return false;
        }
        self.actions.push_back(now.mono_ns);
        true
    }
}
