//! Conditions: statements on their way, and the table that readers begin with.

use crate::catalog::names;
use crate::condition::{AGENT_SPACE, Condition, EVENT_NAME, Provenance, Truth};
use crate::confirm_level::ConfirmLevel;
use crate::frame::Content;
use crate::ident::{EventId, OriginId};
use crate::log::conditions::ConditionTable;
use crate::node::Node;
use crate::node::api::{Announcement, ClientId, Output, RefusedWhat, RejectCode, ToClient};
use crate::node::config::ns;
use crate::numbers::LogIndex;
use crate::run::Run;
use crate::sealed::Sealed;
use crate::severity::Severity;
use std::collections::BTreeSet;

/// Agents do not repeat their statements all at once: each waits up to this time.
const REPEAT_SPREAD_MS: u64 = 250;
/// They repeat them once more after this many grace times. By then the acting root has made unknown
/// what a merge brought back of publishers that are gone.
const REPEAT_AGAIN_GRACES: u64 = 3;

impl Node {
    /// The table of conditions, as far as the log here is committed. Acting root and standby have
    /// the whole table.
    pub fn conditions(&self) -> &ConditionTable {
        self.log.entries().conditions()
    }

    /// The table of the copy of the log, if this is the standby, and up to which index of that it
    /// goes: as far as the standby knows that entries are committed.
    pub fn replica_conditions(&self) -> Option<(&ConditionTable, LogIndex)> {
        let log = &self.role.replica().filter(|replica| replica.complete)?.log;
        Some((log.conditions(), log.applied()))
    }

    /// Takes the statements in what a client publishes. Gives the events without those that are
    /// refused.
    pub(crate) fn take_statements(
        &mut self,
        client: ClientId,
        events: Run,
        is_brought: bool,
    ) -> Vec<Run> {
        let mut refused = Vec::new();
        if client != ClientId::AGENT && !self.delivery.has_client(client) {
            return vec![events];
        }
        for (places, event) in events.groups().filter(|(_, e)| e.condition().is_some()) {
            let uid = event.head().uid;
            let is_bounded =
                client != ClientId::AGENT && !self.cx.config.unbounded_uids.contains(&uid);
            let bounded_uid = is_bounded.then_some(uid);
            let statements = self.conditions.statements();
            let is_again = event.head().republished;
            let taken = match is_brought || is_again {
                true => statements.on_brought(client, bounded_uid, event, !is_brought),
                false => statements.on_statement(client, bounded_uid, event),
            };
            if let Err(error) = taken {
                refused.push((places.start, event.id().seq, error.to_string()));
            }
        }
        if refused.is_empty() {
            return vec![events];
        }
        let places: Vec<usize> = refused.iter().map(|(place, ..)| *place).collect();
        for (_, seq, message) in refused {
            self.cx.counters.conditions_refused += 1;
            let what = RefusedWhat::Events { first: seq, last: seq };
            let code = RejectCode::Limit;
            if client != ClientId::AGENT {
                let refusal = ToClient::Refused { what, code, message };
                self.delivery.send_to_client(&mut self.cx, client, refusal);
            }
        }
        events.without(&places)
    }

    /// A client publishes: what it states is known before it goes up.
    pub(crate) fn on_publish(&mut self, client: ClientId, events: Run, confirm: ConfirmLevel) {
        for events in self.take_statements(client, events, false) {
            self.publishing.on_publish(&mut self.cx, client, events, confirm);
        }
        self.flush_outbox();
    }

    /// A client has come from an agent that knew its statements.
    pub(crate) fn on_restate(&mut self, client: ClientId, events: Run) {
        if !self.delivery.has_client(client) {
            self.cx.counters.stale += 1;
            return;
        }
        self.take_statements(client, events, true);
    }

    /// The acting root takes events. Clearing a condition that was never stated may be a mistake,
    /// such as a misspelt subject: it is reported by name.
    pub(crate) fn note_unset(&mut self, run: &Run) {
        for (_, event) in run.groups() {
            let Some(condition) = event.condition() else { continue };
            let Provenance { source, replaces, is_paired, .. } = condition.head().provenance;
            let is_plain = source.is_none() && replaces.is_none() && !is_paired;
            if !is_plain || condition.head().truth != Truth::False {
                continue;
            }
            let subject = condition.subject();
            let log = self.log.entries();
            if log.conditions().get(&subject).is_some() || log.is_pending(&subject) {
                continue;
            }
            self.cx.counters.conditions_unset += 1;
            let Some(count) = self.conditions.on_unset(self.cx.now.mono_ns) else { continue };
            let tags = vec![
                ("host", subject.host().to_owned()),
                ("component", subject.component().to_owned()),
                ("condition", subject.key().to_owned()),
                ("id", event.id().to_string()),
                ("count", count.to_string()),
            ];
            let text = format!("{subject} was cleared and had never been stated: check its names");
            self.cx.announce(names::FTB_CONDITION_UNSET, Severity::Warning, tags, text);
        }
    }

    /// The agent watches its host and the tree: without that the host is not watched at all.
    fn declare_watch(&mut self) {
        let condition = Condition::watch("", AGENT_SPACE);
        let payload = format!("the agent of {} watches its host", self.cx.config.host);
        self.announce_condition(EVENT_NAME, condition, payload);
    }

    fn announce_condition(&mut self, name: &'static str, condition: Condition, payload: String) {
        let host = match condition.host.is_empty() {
            true => self.cx.config.host.clone(),
            false => condition.host.clone(),
        };
        let announcement = Announcement {
            name,
            severity: Severity::Info,
            tags: vec![("host", host)],
            payload,
            condition: Some((condition, Provenance::direct(self.cx.config.origin))),
            about: None,
        };
        self.cx.push(Output::Announce(announcement.into()));
    }

    /// Called after each input: the log may be another.
    pub(crate) fn follow_conditions(&mut self) {
        let log = (!self.log.epochs().is_empty()).then(|| self.log.head());
        let here = (log, self.role.parent().map(|parent| parent.link));
        let has_moved = !self.role.is_searching() && self.conditions.has_moved(here.0, here.1);
        if has_moved && self.conditions.statements().len() > 0 {
            let wait_ns = self.cx.random_below(ns(REPEAT_SPREAD_MS));
            self.conditions.statements().repeat_at(self.cx.now.mono_ns.saturating_add(wait_ns));
        }
        if let Some(after_ms) =
            self.cx.config.declare_after_ms.filter(|_| !self.role.is_searching())
        {
            self.conditions.plan_declaration(self.cx.after_ms(after_ms));
        }
        let later_ns = ns(self.cx.config.condition_repeat_ms);
        let again_ns = ns(self.cx.config.condition_grace_ms).saturating_mul(REPEAT_AGAIN_GRACES);
        self.conditions.arm_repeats(self.cx.now.mono_ns, again_ns.min(later_ns), later_ns);
        if self.role.is_root() {
            self.log.apply_conditions();
        }
        let is_wanted = self.role.is_root() && !self.log.entries().conditions().is_empty();
        self.conditions.owners().arm(self.cx.now.mono_ns, is_wanted);
    }

    pub(crate) fn on_conditions_timer(&mut self) {
        let now = self.cx.now;
        if self.conditions.take_declaration(now.mono_ns) {
            self.declare_watch();
        }
        for (event, logged) in self.conditions.statements().take_lost(now.mono_ns) {
            self.state_unknown(&event, logged);
        }
        let repeats = self.conditions.statements().take_repeats(now.mono_ns);
        self.cx.counters.conditions_repeated += repeats.len() as u64;
        for event in repeats {
            self.repeat_statement(event);
        }
        if self.conditions.owners().deadline_ns().is_some_and(|at_ns| at_ns <= now.mono_ns) {
            self.check_owners();
        }
    }

    fn check_owners(&mut self) {
        let present: BTreeSet<OriginId> = self.membership.origins_up().collect();
        let present: BTreeSet<OriginId> =
            present.into_iter().chain([self.cx.config.origin]).collect();
        let grace_ns = ns(self.cx.config.condition_grace_ms);
        let table = self.log.entries().conditions();
        let due = self.conditions.owners().check(self.cx.now, grace_ns, table, &present);
        let dropped = table.dropped();
        let now_ns = self.cx.now.mono_ns;
        let over = self.conditions.owners().over(now_ns, grace_ns, table, &present);
        for (_, row) in due {
            let event = self.log.entries().condition_event(row.index);
            let event = event.and_then(|item| match item.content {
                Content::Events(run) => Some(run.first().to_sealed()),
                Content::Gap(_) => None,
            });
            match event {
                Some(event) => self.state_unknown(&event, row.event),
                None => self.cx.impossible("ConditionIsInLog"),
            }
        }
        for (subject, name) in over {
            let payload =
                format!("{subject} is over: the agent of its host or of its publisher is back");
            let host = subject.host().to_owned();
            let component = subject.component().to_owned();
            let condition = Condition::new(subject.key(), Truth::False);
            let condition = Condition { host, component, is_kept: true, ..condition };
            self.announce_condition(name, condition, payload);
        }
        let count = self.conditions.take_dropped(dropped);
        if count > 0 {
            let tags = vec![("dropped", count.to_string())];
            let text = format!("the table of conditions is full: {count} rows were dropped");
            self.cx.announce(names::FTB_CONDITIONS_FULL, Severity::Error, tags, text);
        }
    }

    /// The publisher of a statement is lost. `logged`: the event in the log that said so last.
    fn state_unknown(&mut self, event: &Sealed, logged: EventId) {
        let Some(condition) = event.as_ref().condition() else { return };
        let provenance = Provenance {
            owner: self.cx.config.origin,
            source: Some(condition.source()),
            replaces: Some(logged),
            is_paired: false,
        };
        let statement = Condition {
            truth: Truth::Unknown,
            expires_ms: 0,
            is_kept: false,
            ..condition.to_condition()
        };
        self.cx.counters.conditions_unknown += 1;
        self.state(statement, provenance, event.clone());
    }

    fn repeat_statement(&mut self, event: Sealed) {
        let Some(condition) = event.as_ref().condition() else { return };
        let provenance = Provenance {
            owner: self.cx.config.origin,
            source: Some(condition.source()),
            replaces: None,
            is_paired: false,
        };
        // The time to expiry counts from the repetition.
        let left_ms = |at_ns: u64| at_ns.saturating_sub(self.cx.now.wall_ns).div_ceil(1_000_000);
        let expires_ms = match condition.expires_at_ns().map(left_ms) {
            // It becomes unknown.
            Some(0) => return,
            Some(left_ms) => u32::try_from(left_ms).unwrap_or(u32::MAX),
            None => 0,
        };
        let statement = Condition { expires_ms, ..condition.to_condition() };
        self.state(statement, provenance, event);
    }

    fn state(&mut self, condition: Condition, provenance: Provenance, about: Sealed) {
        let announcement = Announcement {
            name: EVENT_NAME,
            severity: Severity::Info,
            tags: Vec::new(),
            payload: String::new(),
            condition: Some((condition, provenance)),
            about: Some(about),
        };
        self.cx.push(Output::Announce(announcement.into()));
    }
}
