//! The decisions of ftb-act: which rule acts on which conditions, when, and what is refused.
//!
//! A state machine without I/O and clock: rows of the table of conditions and the ends of actions
//! go in, changes of the saved state and actions come out. The shell saves the changes of a
//! [`Turn`] before it does what the turn asks for. What it cannot save it does not do.
//!
//! Rules:
//! - A rule acts once on each onset of a condition: rule, subject, since when it holds.
//! - A program that may have begun before a crash is not run again, but reported. What its receiver
//!   knows by id (a request, an event, a drain) is done again until it is confirmed.
//! - Before its turn comes, an order is checked again: is it silenced, does its cause still hold?
//! - A host has one live order that changes it; others wait.
//! - An open breaker refuses orders that change hosts until a person clears its condition.

mod breaker;
mod lanes;
mod order;
mod reactions;
mod rules;
mod steps;
#[cfg(test)]
mod tests;

pub use lanes::{LaneLimit, limit};
pub use order::{BreakerState, Cause, Delta, Kind, Order, Saved, Stage};
pub use reactions::{Reaction, reactions};
pub use rules::{GroupBy, Mode, Rule, Rules, Then};

use breaker::Breaker;
use ftb_client::Silence;
use ftb_core::Severity;
use ftb_core::condition::{RecommendedAction, SILENCED, Subject, Truth, WATCHED};
use lanes::Lanes;
use rules::ns;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The key of a host that ftb-act has taken out of service.
pub const OUT_OF_SERVICE: &str = "OUT_OF_SERVICE";
/// The key of an open breaker. A person who clears it resumes.
pub const BREAKER_OPEN: &str = "BREAKER_OPEN";
/// The key of a rule whose requests no web server takes. Its component is the rule.
pub const PAGE_FAILED: &str = "PAGE_FAILED";
/// The component of the condition of the breaker.
pub const COMPONENT: &str = "ftb-act";
/// The event space of ftb-act.
pub const SPACE: &str = "ftb.act";
/// Most orders at a time. Beyond, conditions lead to nothing until orders are over: it is logged.
pub const ORDERS_MAX: usize = 65_536;
/// Most conditions of one order. Further ones make another order.
pub const CAUSES_MAX: usize = 1_024;
/// Most conditions that an action is given; it is given the list of all hosts.
pub const CONDITIONS_SHOWN_MAX: usize = 64;
/// The id by which the condition of the breaker is confirmed.
pub const BREAKER_ID: u64 = 0;

/// A row of the table of conditions.
#[derive(Clone, Debug)]
pub struct Row {
    /// What it is about.
    pub subject: Subject,
    /// Whether it holds.
    pub truth: Truth,
    /// How bad it is.
    pub severity: Severity,
    /// What its publisher recommends.
    pub action: RecommendedAction,
    /// Since when, in Unix nanoseconds.
    pub onset_ns: u64,
    /// The event space of the statement.
    pub space: String,
    /// Text for people.
    pub message: String,
    /// The silence that it states.
    pub silence: Option<Silence>,
}

/// What the core learns.
#[derive(Clone, Debug)]
pub enum Input {
    /// The whole table: at the start, and after a gap.
    Table(Vec<Row>),
    /// One row has changed.
    Row(Box<Row>),
    /// A program or request has ended.
    Ended {
        /// The order.
        id: u64,
        /// It did what it should.
        is_done: bool,
        /// What happened.
        text: String,
    },
    /// What was published for an order is confirmed.
    Confirmed(u64),
    /// Time has passed.
    Tick,
}

/// What an action is given.
#[derive(Clone, Debug)]
pub struct Work {
    /// The order, with its hosts.
    pub order: Order,
    /// Unique over all lives of ftb-act: receivers know a repetition by it.
    pub key: String,
    /// Its conditions, the first [`CONDITIONS_SHOWN_MAX`].
    pub conditions: Vec<Row>,
}

/// What is published until it is confirmed.
#[derive(Clone, Debug)]
pub enum Notice {
    /// The event of a rule.
    Event {
        /// Space, name and severity.
        then: Then,
        /// What it is about.
        work: Work,
    },
    /// A host is out of service, or in service again.
    Service {
        /// The condition.
        subject: Subject,
        /// True: it is out of service.
        truth: Truth,
        /// Why.
        text: String,
    },
    /// How an order has ended.
    Report(Order),
    /// The breaker is open.
    Breaker {
        /// Why.
        reason: String,
    },
}

/// What the shell does.
#[derive(Clone, Debug)]
pub enum Output {
    /// Run a program; [`Input::Ended`] follows.
    Run {
        /// What it is given.
        work: Work,
        /// Program and arguments.
        program: Vec<String>,
        /// It is ended after this time.
        time_limit: Duration,
    },
    /// Send a request; [`Input::Ended`] follows.
    Post {
        /// What it is given.
        work: Work,
        /// The address.
        url: String,
        /// It is given up after this time.
        time_limit: Duration,
    },
    /// Publish until it is confirmed; [`Input::Confirmed`] follows.
    Publish {
        /// The order, or [`BREAKER_ID`].
        id: u64,
        /// What.
        notice: Box<Notice>,
    },
    /// Log a line.
    Log(String),
}

/// What follows from an input.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    /// What is saved first.
    pub deltas: Vec<Delta>,
    /// What is done then, in this order.
    pub outputs: Vec<Output>,
}

impl Turn {
    /// Adds a later turn.
    pub fn extend(&mut self, later: Self) {
        self.deltas.extend(later.deltas);
        self.outputs.extend(later.outputs);
    }
}

/// What is known of a condition for which there are orders.
#[derive(Debug, Default)]
struct Tracked {
    /// `None`: known from disk only.
    row: Option<Row>,
    /// Rule and order.
    orders: Vec<(String, u64)>,
}

/// See the module.
#[derive(Debug)]
pub struct Act {
    rules: Rules,
    life: u64,
    /// The host of our breaker. `None`: any, in a replay.
    host: Option<String>,
    next_id: u64,
    orders: BTreeMap<u64, Order>,
    tracked: BTreeMap<Subject, Tracked>,
    /// Settling orders that further conditions may join: rule, group, observed.
    open: BTreeMap<(String, String, bool), u64>,
    /// When settling orders are due.
    due: BTreeSet<(u64, u64)>,
    /// Orders that wait for the end of a silence.
    parked: BTreeSet<u64>,
    silences: BTreeMap<Subject, Silence>,
    lanes: Lanes,
    /// Hosts with a live order that changes them.
    busy: BTreeMap<String, u64>,
    /// Hosts out of service, by their condition.
    drained: BTreeMap<Subject, u64>,
    breaker: Breaker,
    /// The table says that the breaker is open.
    is_breaker_seen: bool,
    is_started: bool,
    /// A turn may have come.
    is_dirty: bool,
    turn: Turn,
}

impl Act {
    /// With what is on disk.
    pub fn new(rules: Rules, saved: Saved) -> Self {
        let mut tracked: BTreeMap<Subject, Tracked> = BTreeMap::new();
        let mut drained = BTreeMap::new();
        for order in &saved.orders {
            for cause in &order.causes {
                let entry = tracked.entry(cause.subject.clone()).or_default();
                entry.orders.push((order.rule.clone(), order.id));
            }
            if let Some(subject) = steps::service_of(order) {
                drained.insert(subject, order.id);
            }
        }
        Self {
            rules,
            life: saved.life,
            host: None,
            next_id: saved.next_id.max(BREAKER_ID + 1),
            orders: saved.orders.into_iter().map(|order| (order.id, order)).collect(),
            tracked,
            open: BTreeMap::new(),
            due: BTreeSet::new(),
            parked: BTreeSet::new(),
            silences: BTreeMap::new(),
            lanes: Lanes::default(),
            busy: BTreeMap::new(),
            drained,
            breaker: Breaker::new(saved.breaker),
            is_breaker_seen: false,
            is_started: false,
            is_dirty: false,
            turn: Turn::default(),
        }
    }

    /// Only the breaker of this host is ours: before the first input. Its name may have capital
    /// letters; subjects have none.
    pub fn set_host(&mut self, host: &str) {
        self.host = Some(host.to_ascii_lowercase());
    }

    /// Takes an input at this time, in Unix nanoseconds.
    pub fn handle(&mut self, now_ns: u64, input: Input) -> Turn {
        match input {
            Input::Table(rows) => self.on_table(now_ns, rows),
            Input::Row(row) => self.on_row(now_ns, *row),
            Input::Ended { id, is_done, text } => self.on_ended(id, is_done, text),
            Input::Confirmed(id) => self.on_confirmed(now_ns, id),
            Input::Tick => {}
        }
        self.unpark(now_ns);
        while let Some((_, id)) = self.due.first().copied().filter(|(at_ns, _)| *at_ns <= now_ns) {
            self.due.pop_first();
            self.fire(now_ns, id);
        }
        if std::mem::take(&mut self.is_dirty) {
            self.advance(now_ns);
        }
        std::mem::take(&mut self.turn)
    }

    /// When [`Input::Tick`] is wanted, in Unix nanoseconds.
    pub fn deadline_ns(&self) -> Option<u64> {
        let due = self.due.first().map(|(at_ns, _)| *at_ns);
        let ends = self.silences.values().map(|silence| silence.until_ns);
        let end = ends.min().filter(|_| !self.parked.is_empty());
        [due, end].into_iter().flatten().min()
    }

    /// All orders, by number.
    pub fn orders(&self) -> impl Iterator<Item = &Order> {
        self.orders.values()
    }

    /// The breaker.
    pub fn breaker(&self) -> &BreakerState {
        &self.breaker.state
    }

    fn on_table(&mut self, now_ns: u64, rows: Vec<Row>) {
        // What changed in a gap is not known: an onset that differs is a new one.
        self.tracked.values_mut().for_each(|tracked| tracked.row = None);
        let known: BTreeSet<Subject> = rows.iter().map(|row| row.subject.clone()).collect();
        self.silences.retain(|subject, _| known.contains(subject));
        let is_breaker = |row: &Row| row.subject.key() == BREAKER_OPEN && self.is_own_breaker(row);
        let has_breaker = rows.iter().any(is_breaker);
        let is_silence = |row: &Row| row.subject.key() == SILENCED;
        let (silences, others): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(is_silence);
        // Silences count for the first row already, and some may have ended in a gap.
        silences.into_iter().for_each(|row| self.on_silence(row));
        self.unpark_all(now_ns);
        for row in others {
            self.on_row(now_ns, row);
        }
        let gone: Vec<Subject> =
            self.tracked.keys().filter(|subject| !known.contains(subject)).cloned().collect();
        for subject in gone {
            // A row that has left the table is not known to be over: a drain stays.
            let ids: Vec<u64> = self.ids_of(&subject);
            for id in ids {
                if !self.is_draining(id) {
                    self.detach(&subject, id);
                }
            }
        }
        if !std::mem::replace(&mut self.is_started, true) {
            self.recover(now_ns);
        }
        self.restate(&known, has_breaker);
    }

    fn on_row(&mut self, now_ns: u64, row: Row) {
        match row.subject.key() {
            SILENCED => {
                self.on_silence(row);
                self.unpark_all(now_ns);
            }
            WATCHED => {}
            OUT_OF_SERVICE => {
                if row.truth == Truth::False && row.space == SPACE {
                    self.on_returned(&row.subject);
                }
            }
            BREAKER_OPEN if !self.is_own_breaker(&row) => {}
            BREAKER_OPEN => {
                let is_stated = self.breaker.state.is_confirmed || self.is_breaker_seen;
                match row.truth {
                    Truth::False if self.breaker.state.is_open && is_stated => self.resume(now_ns),
                    truth => self.is_breaker_seen = truth == Truth::True,
                }
            }
            _ => match row.truth {
                Truth::True => self.on_true(now_ns, row),
                Truth::False => self.on_false(now_ns, row),
                Truth::Unknown => {
                    if let Some(tracked) = self.tracked.get_mut(&row.subject) {
                        tracked.row = Some(row);
                    }
                }
            },
        }
    }

    fn on_silence(&mut self, row: Row) {
        match row.silence {
            Some(silence) => self.silences.insert(row.subject, silence),
            None => self.silences.remove(&row.subject),
        };
    }

    /// Others may state the same key: of another host, component or space.
    fn is_own_breaker(&self, row: &Row) -> bool {
        let is_here = self.host.as_ref().is_none_or(|host| host == row.subject.host());
        is_here && row.subject.component() == COMPONENT && row.space == SPACE
    }

    fn on_true(&mut self, now_ns: u64, row: Row) {
        let matching: Vec<usize> = (0..self.rules.rules.len())
            .filter(|index| self.rules.rules[*index].matches(&row))
            .collect();
        if matching.is_empty() && !self.tracked.contains_key(&row.subject) {
            return;
        }
        let (subject, onset_ns) = (row.subject.clone(), row.onset_ns);
        let tracked = self.tracked.entry(subject.clone()).or_default();
        let was_known = tracked.row.as_ref().is_some_and(|before| before.truth != Truth::False);
        tracked.row = Some(row);
        for index in matching {
            match self.newest_order(index, &subject) {
                Some(id) => self.continue_order(now_ns, index, id, &subject, onset_ns, was_known),
                None => self.onset(now_ns, index, &subject, onset_ns),
            }
        }
        self.forget_untracked(&subject);
    }

    /// The order of a rule for a condition. Further causes keep an older order alive, which still
    /// has this one on disk: after a start it is known twice.
    fn newest_order(&mut self, rule: usize, subject: &Subject) -> Option<u64> {
        let name = &self.rules.rules[rule].name;
        let orders = self.tracked.get(subject).into_iter().flat_map(|tracked| &tracked.orders);
        let ids: Vec<u64> = orders.filter(|(rule, _)| rule == name).map(|(_, id)| *id).collect();
        let newest = ids.iter().copied().max();
        for id in ids {
            if Some(id) != newest && !self.is_draining(id) {
                self.detach(subject, id);
            }
        }
        newest
    }

    /// A condition holds for which the rule has an order: is it the same onset?
    fn continue_order(
        &mut self,
        now_ns: u64,
        rule: usize,
        id: u64,
        subject: &Subject,
        onset_ns: u64,
        was_known: bool,
    ) {
        let is_draining = self.is_draining(id);
        let Some(order) = self.orders.get_mut(&id) else { return };
        let Some(cause) = order.causes.iter_mut().find(|cause| cause.subject == *subject) else {
            return;
        };
        if cause.onset_ns == onset_ns {
            return;
        }
        // It has held all the time, nothing was done yet, or its host is out of service anyway.
        if was_known || is_draining || !order.stage.is_saved() {
            cause.onset_ns = onset_ns;
            self.save(id);
            return;
        }
        self.onset(now_ns, rule, subject, onset_ns);
        self.detach(subject, id);
    }

    /// A condition has begun to hold: it joins an order, or makes one.
    fn onset(&mut self, now_ns: u64, rule: usize, subject: &Subject, onset_ns: u64) {
        let rule = &self.rules.rules[rule];
        let (name, kind, changes_hosts) = (rule.name.clone(), rule.then.kind(), rule.changes_hosts);
        let is_observed = !self.rules.mode(subject.host()).allows(kind, changes_hosts);
        let group = match kind {
            Kind::Drain => subject.to_string(),
            _ => self.rules.group(rule.group_by, subject.host()),
        };
        let cause = Cause { subject: subject.clone(), onset_ns };
        let place = (name.clone(), group.clone(), is_observed);
        let joined =
            self.open.get(&place).copied().filter(|id| {
                self.orders.get(id).is_some_and(|order| order.causes.len() < CAUSES_MAX)
            });
        if joined.is_none() && self.orders.len() >= ORDERS_MAX {
            self.log(format!("{name}: {subject}: there are {ORDERS_MAX} orders: nothing is done"));
            return;
        }
        let id = joined.unwrap_or(self.next_id);
        if joined.is_none() {
            let is_persons = matches!(rule.then, Then::Drain { is_persons: true });
            self.due.insert((now_ns.saturating_add(ns(rule.within)), id));
            self.next_id += 1;
            self.open.insert(place, id);
            let order = Order {
                id,
                rule: name.clone(),
                kind,
                group,
                causes: Vec::new(),
                hosts: Vec::new(),
                stage: Stage::Settling,
                changes_hosts,
                is_persons,
                passes: false,
            };
            self.orders.insert(id, order);
        }
        if let Some(order) = self.orders.get_mut(&id) {
            order.causes.push(cause);
        }
        self.tracked.entry(subject.clone()).or_default().orders.push((name, id));
        if changes_hosts && !is_observed && !self.is_silenced(now_ns, subject) {
            self.breaker.on_wish(now_ns, subject.host());
        }
    }

    /// A condition does not hold any more.
    fn on_false(&mut self, now_ns: u64, row: Row) {
        let subject = row.subject.clone();
        let Some(tracked) = self.tracked.get_mut(&subject) else { return };
        tracked.row = Some(row);
        for id in self.ids_of(&subject) {
            match self.is_draining(id) {
                true => self.settle_drain(now_ns, id),
                false => self.detach(&subject, id),
            }
        }
        self.forget_untracked(&subject);
    }

    /// The hosts of an order as the site writes them: names in subjects are in lower case, and
    /// other programs may care.
    fn hosts_of(&self, order: &Order) -> Vec<String> {
        order.hosts_of_causes().iter().map(|host| self.rules.spelled(host)).collect()
    }

    fn ids_of(&self, subject: &Subject) -> Vec<u64> {
        let tracked = self.tracked.get(subject);
        tracked
            .map(|tracked| tracked.orders.iter().map(|(_, id)| *id).collect())
            .unwrap_or_default()
    }

    /// A condition is no cause of an order any more.
    fn detach(&mut self, subject: &Subject, id: u64) {
        if let Some(tracked) = self.tracked.get_mut(subject) {
            tracked.orders.retain(|(_, other)| *other != id);
        }
        self.forget_untracked(subject);
        let Some(order) = self.orders.get_mut(&id) else { return };
        order.causes.retain(|cause| cause.subject != *subject);
        let may_end = !matches!(order.stage, Stage::Live | Stage::Reporting { .. });
        if order.causes.is_empty() && may_end {
            self.forget(id);
        }
    }

    fn forget_untracked(&mut self, subject: &Subject) {
        if self.tracked.get(subject).is_some_and(|tracked| tracked.orders.is_empty()) {
            self.tracked.remove(subject);
        }
    }

    /// An order is gone.
    fn forget(&mut self, id: u64) {
        let Some(order) = self.orders.remove(&id) else { return };
        for cause in &order.causes {
            if let Some(tracked) = self.tracked.get_mut(&cause.subject) {
                tracked.orders.retain(|(_, other)| *other != id);
            }
            self.forget_untracked(&cause.subject);
        }
        self.close(&order);
        self.parked.remove(&id);
        if let Some(service) = steps::service_subject(&order)
            && self.drained.get(&service) == Some(&id)
        {
            self.drained.remove(&service);
        }
        // What passes a breaker was saved when it was refused.
        if order.stage.is_saved() || order.passes {
            self.turn.deltas.push(Delta::Drop(id));
        }
    }

    /// No further condition joins an order.
    fn close(&mut self, order: &Order) {
        for is_observed in [false, true] {
            let place = (order.rule.clone(), order.group.clone(), is_observed);
            if self.open.get(&place) == Some(&order.id) {
                self.open.remove(&place);
            }
        }
    }

    fn save(&mut self, id: u64) {
        if let Some(order) = self.orders.get(&id).filter(|order| order.stage.is_saved()) {
            self.turn.deltas.push(Delta::Put(order.clone()));
        }
    }

    fn log(&mut self, line: String) {
        self.turn.outputs.push(Output::Log(line));
    }

    fn is_silenced(&self, now_ns: u64, subject: &Subject) -> bool {
        let mut active = self.silences.values().filter(|silence| silence.is_active(now_ns));
        active.any(|silence| silence.covers(subject))
    }
}
