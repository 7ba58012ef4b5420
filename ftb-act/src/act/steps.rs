//! The steps of an order: due, refused, live, ended, reported; out of service and back.

use super::order::{BreakerState, Delta, Kind, Order, Stage};
use super::{Act, BREAKER_ID, CONDITIONS_SHOWN_MAX, Notice, OUT_OF_SERVICE, Output, Then, Work};
use super::{Rule, lanes};
use ftb_core::condition::{Subject, Truth};
use ftb_core::limits;
use ftb_core::text::cut;
use std::collections::{BTreeSet, VecDeque};

/// What became of the causes of an order.
enum Checked {
    /// It may be done.
    Good,
    /// It waits for the end of a silence, or is gone.
    Done,
}

impl Act {
    pub(super) fn rule(&self, name: &str) -> Option<&Rule> {
        self.rules.rules.iter().find(|rule| rule.name == name)
    }

    /// The host of a drain is out of service, or on its way there or back.
    pub(super) fn is_draining(&self, id: u64) -> bool {
        self.orders.get(&id).is_some_and(|order| service_of(order).is_some())
    }

    /// A settling order is due.
    pub(super) fn fire(&mut self, now_ns: u64, id: u64) {
        let Some(order) = self.orders.get(&id) else { return };
        if order.stage != Stage::Settling && order.stage != Stage::Refused {
            return;
        }
        let order = order.clone();
        self.close(&order);
        if matches!(self.check(now_ns, id), Checked::Done) {
            return;
        }
        let Some(order) = self.orders.get(&id) else { return };
        let hosts = order.hosts_of_causes();
        let (kind, changes_hosts, passes) = (order.kind, order.changes_hosts, order.passes);
        let allows = |host: &String| self.rules.mode(host).allows(kind, changes_hosts);
        if !hosts.iter().all(allows) {
            let line = format!("would {} for {}: {}", kind.as_str(), order.rule, order.group);
            self.log(line);
            self.set(id, Stage::Observed);
            return;
        }
        self.wish(now_ns, id);
        if changes_hosts && !passes && self.must_refuse(now_ns) {
            self.refuse(id);
            return;
        }
        if self.lanes.push(kind, id) {
            self.set(id, Stage::Waiting);
            self.is_dirty = true;
        } else {
            let rule = self.orders.get(&id).map(|order| order.rule.clone()).unwrap_or_default();
            let most = lanes::limit(kind).waiting;
            self.log(format!("{rule}: {most} orders to {} wait: not done", kind.as_str()));
            self.set(id, Stage::Observed);
        }
    }

    /// Takes causes that are over from an order, and those that are silenced for a later one.
    fn check(&mut self, now_ns: u64, id: u64) -> Checked {
        let Some(order) = self.orders.get(&id) else { return Checked::Done };
        let Some(rule) = self.rule(&order.rule) else {
            self.forget(id);
            return Checked::Done;
        };
        let (mut gone, mut silenced) = (Vec::new(), Vec::new());
        for cause in &order.causes {
            let row = self.tracked.get(&cause.subject).and_then(|tracked| tracked.row.as_ref());
            if !row.is_some_and(|row| rule.matches(row)) {
                gone.push(cause.subject.clone());
            } else if self.is_silenced(now_ns, &cause.subject) {
                silenced.push(cause.clone());
            }
        }
        let count = order.causes.len();
        for subject in &gone {
            self.detach(subject, id);
        }
        if gone.len() == count {
            return Checked::Done;
        }
        if silenced.len() + gone.len() == count {
            // A refused order was saved; while it is parked it is not.
            let is_on_disk = |order: &Order| order.stage.is_saved() || order.passes;
            if self.orders.get(&id).is_some_and(is_on_disk) {
                self.turn.deltas.push(Delta::Drop(id));
            }
            self.set(id, Stage::Silenced);
            self.parked.insert(id);
            return Checked::Done;
        }
        self.split(id, silenced);
        Checked::Good
    }

    /// The silenced causes of an order get one of their own, which waits.
    fn split(&mut self, id: u64, silenced: Vec<super::Cause>) {
        let Some(order) = self.orders.get_mut(&id).filter(|_| !silenced.is_empty()) else { return };
        order.causes.retain(|cause| !silenced.contains(cause));
        let later = self.next_id;
        let stage = Stage::Silenced;
        let order = Order { id: later, causes: silenced, stage, passes: false, ..order.clone() };
        self.next_id += 1;
        for cause in &order.causes {
            let Some(tracked) = self.tracked.get_mut(&cause.subject) else { continue };
            for (_, other) in tracked.orders.iter_mut().filter(|(_, other)| *other == id) {
                *other = later;
            }
        }
        self.orders.insert(later, order);
        self.parked.insert(later);
    }

    fn set(&mut self, id: u64, stage: Stage) {
        if let Some(order) = self.orders.get_mut(&id) {
            order.stage = stage;
        }
        self.save(id);
    }

    /// Whether the breaker is open, or must be now.
    fn must_refuse(&mut self, now_ns: u64) -> bool {
        if self.breaker.state.is_open {
            return true;
        }
        let drained: BTreeSet<String> =
            self.drained.keys().map(|subject| subject.host().to_owned()).collect();
        let known = self.rules.hosts_in_reach();
        let Some(reason) = self.breaker.problem(now_ns, &self.rules, &drained, known) else {
            return false;
        };
        self.log(format!("the breaker opens: {reason}"));
        self.breaker.state = BreakerState { is_open: true, is_confirmed: false, reason };
        self.turn.deltas.push(Delta::Breaker(self.breaker.state.clone()));
        self.publish_breaker();
        true
    }

    fn publish_breaker(&mut self) {
        let reason = self.breaker.state.reason.clone();
        let notice = Box::new(Notice::Breaker { reason });
        self.turn.outputs.push(Output::Publish { id: BREAKER_ID, notice });
    }

    fn refuse(&mut self, id: u64) {
        let hosts = self.orders.get(&id).map(|order| self.hosts_of(order)).unwrap_or_default();
        if let Some(order) = self.orders.get_mut(&id) {
            order.hosts = hosts;
        }
        self.set(id, Stage::Refused);
    }

    /// A person has closed the breaker: what it refused passes once.
    pub(super) fn resume(&mut self, now_ns: u64) {
        self.breaker.resume();
        self.turn.deltas.push(Delta::Breaker(self.breaker.state.clone()));
        self.log("a person has closed the breaker".to_owned());
        self.pass_refused(now_ns);
    }

    fn pass_refused(&mut self, now_ns: u64) {
        let refused = self.orders.values_mut().filter(|order| order.stage == Stage::Refused);
        for order in refused {
            order.passes = true;
            self.due.insert((now_ns, order.id));
        }
    }

    /// Orders whose turn has come begin.
    pub(super) fn advance(&mut self, now_ns: u64) {
        if !self.lanes.is_waiting() {
            return;
        }
        for kind in lanes::KINDS {
            let mut waiting = self.lanes.take_waiting(kind);
            let mut later = VecDeque::new();
            while let Some(id) = waiting.pop_front() {
                let order = self.orders.get(&id).filter(|order| order.stage == Stage::Waiting);
                let Some(order) = order else { continue };
                let must_wait = order.changes_hosts
                    && order.causes.iter().any(|c| self.busy.contains_key(c.subject.host()));
                let is_refused = order.changes_hosts && !order.passes && self.breaker.state.is_open;
                if is_refused {
                    self.refuse(id);
                } else if must_wait || !self.lanes.has_room(kind) {
                    later.push_back(id);
                } else if matches!(self.check(now_ns, id), Checked::Good) {
                    self.begin(id);
                }
            }
            self.lanes.put_back(kind, later);
        }
    }

    /// An order is done now: it is saved first.
    fn begin(&mut self, id: u64) {
        let hosts = self.orders.get(&id).map(|order| self.hosts_of(order)).unwrap_or_default();
        let Some(order) = self.orders.get_mut(&id) else { return };
        order.hosts = hosts;
        order.stage = Stage::Live;
        self.save(id);
        self.act(id);
    }

    /// Does what a live order says, or does it again.
    fn act(&mut self, id: u64) {
        let Some(order) = self.orders.get(&id) else { return };
        let (kind, changes_hosts, hosts) = (order.kind, order.changes_hosts, order.hosts.clone());
        let Some(then) = self.rule(&order.rule).map(|rule| rule.then.clone()) else { return };
        let work = self.work(order);
        let service = service_of(order);
        self.lanes.begin(kind);
        if changes_hosts {
            self.busy.extend(hosts.into_iter().map(|host| (host.to_ascii_lowercase(), id)));
        }
        let output = match then {
            Then::Exec { program, time_limit } => Output::Run { work, program, time_limit },
            Then::Webhook { url, time_limit } => Output::Post { work, url, time_limit },
            Then::Publish { .. } => {
                Output::Publish { id, notice: Box::new(Notice::Event { then, work }) }
            }
            Then::Drain { .. } => {
                let Some(subject) = service else { return };
                self.drained.insert(subject.clone(), id);
                let text = drain_text(&work);
                let notice = Notice::Service { subject, truth: Truth::True, text };
                Output::Publish { id, notice: Box::new(notice) }
            }
        };
        self.turn.outputs.push(output);
    }

    fn work(&self, order: &Order) -> Work {
        let rows = order.causes.iter().filter_map(|cause| {
            self.tracked.get(&cause.subject).and_then(|tracked| tracked.row.clone())
        });
        Work {
            key: format!("{:x}-{}", self.life, order.id),
            conditions: rows.take(CONDITIONS_SHOWN_MAX).collect(),
            order: order.clone(),
        }
    }

    /// A live order has ended.
    fn free(&mut self, id: u64) {
        let Some(kind) = self.orders.get(&id).map(|order| order.kind) else { return };
        self.lanes.end(kind);
        self.busy.retain(|_, other| *other != id);
        self.is_dirty = true;
    }

    pub(super) fn on_ended(&mut self, id: u64, is_done: bool, text: String) {
        if self.orders.get(&id).is_none_or(|order| order.stage != Stage::Live) {
            return;
        }
        self.free(id);
        self.report(id, is_done, text);
    }

    fn report(&mut self, id: u64, is_done: bool, text: String) {
        self.set(id, Stage::Reporting { is_done, text });
        self.publish_report(id);
    }

    fn publish_report(&mut self, id: u64) {
        let Some(order) = self.orders.get(&id).cloned() else { return };
        let notice = Box::new(Notice::Report(order));
        self.turn.outputs.push(Output::Publish { id, notice });
    }

    pub(super) fn on_confirmed(&mut self, now_ns: u64, id: u64) {
        if id == BREAKER_ID {
            self.breaker.state.is_confirmed = self.breaker.state.is_open;
            self.turn.deltas.push(Delta::Breaker(self.breaker.state.clone()));
            return;
        }
        let Some(order) = self.orders.get(&id) else { return };
        match (&order.stage, order.kind) {
            (Stage::Live, Kind::Publish) => {
                self.free(id);
                self.finish(id);
            }
            (Stage::Live, Kind::Drain) => {
                self.free(id);
                self.set(id, Stage::Drained);
                self.settle_drain(now_ns, id);
            }
            (Stage::Reporting { .. }, _) => self.finish(id),
            (Stage::Releasing, _) => self.on_released(now_ns, id),
            _ => {}
        }
    }

    /// An order was done. Its onsets are remembered while they last.
    fn finish(&mut self, id: u64) {
        self.set(id, Stage::Over);
        if self.orders.get(&id).is_some_and(|order| order.causes.is_empty()) {
            self.forget(id);
        }
    }

    /// Returns a host to service if its cause is over and not silenced.
    pub(super) fn settle_drain(&mut self, now_ns: u64, id: u64) {
        let Some(order) = self.orders.get(&id) else { return };
        if order.stage != Stage::Drained || order.is_persons {
            return;
        }
        let Some(cause) = order.causes.first() else { return };
        let row = self.tracked.get(&cause.subject).and_then(|tracked| tracked.row.as_ref());
        if row.is_none_or(|row| row.truth != Truth::False) {
            return;
        }
        if self.is_silenced(now_ns, &cause.subject) {
            self.parked.insert(id);
            return;
        }
        self.set(id, Stage::Releasing);
        self.release(id);
    }

    fn release(&mut self, id: u64) {
        let Some(order) = self.orders.get(&id) else { return };
        let Some(subject) = service_of(order) else { return };
        let text = format!("{}: its cause is over", order.rule);
        let notice = Box::new(Notice::Service { subject, truth: Truth::False, text });
        self.turn.outputs.push(Output::Publish { id, notice });
    }

    /// A host is in service again. Its condition may have begun again meanwhile.
    fn on_released(&mut self, now_ns: u64, id: u64) {
        let cause = self.orders.get(&id).and_then(|order| order.causes.first().cloned());
        let rows = cause.and_then(|cause| self.tracked.get(&cause.subject)?.row.clone());
        self.forget(id);
        if let Some(row) = rows.filter(|row| row.truth == Truth::True) {
            self.on_true(now_ns, row);
        }
    }

    /// The condition of a host out of service was cleared: by a person, or by us.
    pub(super) fn on_returned(&mut self, service: &Subject) {
        let Some(id) = self.drained.get(service).copied() else { return };
        let Some(order) = self.orders.get(&id).filter(|order| order.stage == Stage::Drained) else {
            return;
        };
        let row = |subject| self.tracked.get(subject).and_then(|tracked| tracked.row.as_ref());
        let is_over = order
            .causes
            .iter()
            .all(|cause| row(&cause.subject).is_some_and(|row| row.truth == Truth::False));
        self.drained.remove(service);
        match is_over {
            true => self.forget(id),
            false => self.set(id, Stage::Over),
        }
    }

    /// Silences have changed: what waited for their end is looked at again.
    pub(super) fn unpark_all(&mut self, now_ns: u64) {
        for id in std::mem::take(&mut self.parked) {
            let Some(order) = self.orders.get_mut(&id) else { continue };
            match order.stage {
                Stage::Silenced => {
                    order.stage = Stage::Settling;
                    self.due.insert((now_ns, id));
                    self.wish(now_ns, id);
                }
                _ => self.settle_drain(now_ns, id),
            }
        }
    }

    /// A rule wants to change the hosts of an order, as far as they are not silenced.
    fn wish(&mut self, now_ns: u64, id: u64) {
        let Some(order) = self.orders.get(&id).filter(|order| order.changes_hosts) else { return };
        let subjects = order.causes.iter().map(|cause| &cause.subject);
        let wanted = subjects.filter(|subject| !self.is_silenced(now_ns, subject));
        let hosts: BTreeSet<String> = wanted.map(|subject| subject.host().to_owned()).collect();
        for host in hosts {
            self.breaker.on_wish(now_ns, &host);
        }
    }

    pub(super) fn unpark(&mut self, now_ns: u64) {
        let is_over = |silence: &ftb_client::Silence| silence.has_ended(now_ns);
        if self.parked.is_empty() || !self.silences.values().any(is_over) {
            return;
        }
        self.silences.retain(|_, silence| !silence.has_ended(now_ns));
        self.unpark_all(now_ns);
    }

    /// States again what is on disk and not in the table: nothing else repeats a kept condition
    /// that the table has lost, or that nothing proves after a change of the CA.
    pub(super) fn restate(&mut self, known: &BTreeSet<Subject>, has_breaker: bool) {
        let lost = self.drained.iter().filter(|(service, _)| !known.contains(*service));
        let lost: Vec<(Subject, u64)> = lost.map(|(service, id)| (service.clone(), *id)).collect();
        for (subject, id) in lost {
            let order = self.orders.get_mut(&id).filter(|order| order.stage == Stage::Drained);
            let Some(order) = order else { continue };
            // Live until it is confirmed, so that a return is published after it. On disk it stays
            // drained.
            order.stage = Stage::Live;
            let text = format!("{}: stated again", order.rule);
            self.lanes.begin(Kind::Drain);
            self.log(format!("{subject} was lost: it is stated again"));
            let notice = Notice::Service { subject, truth: Truth::True, text };
            self.turn.outputs.push(Output::Publish { id, notice: Box::new(notice) });
        }
        let state = &self.breaker.state;
        if state.is_open && state.is_confirmed && !has_breaker {
            self.log("the condition of the open breaker was lost: it is stated again".to_owned());
            self.publish_breaker();
        }
    }

    /// After a start: what a crash interrupted is reported, or done again.
    pub(super) fn recover(&mut self, now_ns: u64) {
        let all: Vec<u64> = self.orders.keys().copied().collect();
        for id in all {
            let Some(order) = self.orders.get(&id) else { continue };
            let has_rule = self.rule(&order.rule).is_some();
            match &order.stage {
                Stage::Live if !order.kind.may_repeat() => {
                    let text = "interrupted: ftb-act ended while it ran; it is not run again";
                    self.report(id, false, text.to_owned());
                }
                Stage::Live if !has_rule => {
                    self.report(id, false, "interrupted: its rule is gone".to_owned());
                }
                Stage::Live => self.act(id),
                Stage::Reporting { .. } => self.publish_report(id),
                Stage::Releasing => self.release(id),
                Stage::Drained => self.settle_drain(now_ns, id),
                _ => {}
            }
        }
        let state = &self.breaker.state;
        match (state.is_open, state.is_confirmed) {
            (true, false) => self.publish_breaker(),
            (true, true) => {}
            // It was closed, and a crash came before what it had refused passed.
            (false, _) => self.pass_refused(now_ns),
        }
    }
}

/// The condition of the host of a drain that was begun.
pub(super) fn service_of(order: &Order) -> Option<Subject> {
    let is_begun = matches!(order.stage, Stage::Live | Stage::Drained | Stage::Releasing);
    service_subject(order).filter(|_| is_begun)
}

/// The condition by which a drain takes its host out of service.
pub(super) fn service_subject(order: &Order) -> Option<Subject> {
    let cause = order.causes.first().filter(|_| order.kind == Kind::Drain)?;
    let subject = &cause.subject;
    let text = format!("{} {} {}", order.rule, subject.key(), subject.component());
    let component = cut(&text, limits::COMPONENT_BYTES_MAX).trim_end();
    Some(Subject::new(subject.host(), component, OUT_OF_SERVICE))
}

fn drain_text(work: &Work) -> String {
    let cause = work.order.causes.first().map(|cause| cause.subject.to_string());
    format!("{}: {}", work.order.rule, cause.unwrap_or_default())
}
