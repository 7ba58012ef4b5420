//! What the clients of this agent state about conditions, for as long as they live.
//!
//! The agent repeats their statements after each change of its log, and when it is due. It states
//! *unknown* for a publisher that stays away for the grace time.
//!
//! Responsible for: which statements those are, their bounds, and when. Not responsible for: the
//! table ([`crate::log::conditions`]), the encoding of events.

use crate::condition::{Subject, Truth};
use crate::ident::EventId;
use crate::node::api::ClientId;
use crate::sealed::{Sealed, SealedRef};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of all statements that an agent keeps.
pub const STATEMENT_BYTES_MAX: usize = 8 << 20;
/// The same for one user without privileges.
pub const STATEMENT_USER_BYTES_MAX: usize = 256 << 10;
/// Statements that an agent repeats at once; further ones follow after [`BATCH_NS`].
const BATCH_MAX: usize = 256;
/// The pause between two batches.
const BATCH_NS: u64 = 10_000_000;
/// Memory of a statement beside its event, near enough.
const STATEMENT_BYTES: usize = 256;

/// A statement of a client, the last about its subject.
#[derive(Debug)]
struct Statement {
    event: Sealed,
    /// The newest event with it in the log: its own, or a repetition by this agent.
    logged: EventId,
    /// Its client; `None`: it is gone.
    client: Option<ClientId>,
    /// When it becomes unknown, because its client is gone.
    unknown_at_ns: Option<u64>,
    uid: u32,
}

impl Statement {
    fn bytes(&self) -> usize {
        STATEMENT_BYTES + self.event.len()
    }
}

/// The statements of all clients of an agent.
#[derive(Debug, Default)]
pub(crate) struct Statements {
    all: BTreeMap<Subject, Statement>,
    bytes: usize,
    by_user: BTreeMap<u32, usize>,
    /// No statement becomes unknown before that.
    lost_at_ns: Option<u64>,
    /// When the next batch is repeated, and behind which subject.
    repeat: Option<(u64, Option<Subject>)>,
    /// What clients brought from other agents: it is repeated at once.
    brought: BTreeSet<Subject>,
}

/// A statement is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StatementError {
    #[error(
        "the conditions that are stated here take more than {} KiB: clear some first",
        .bytes_max / 1024
    )]
    TooMany { bytes_max: usize },
    #[error("only root and the agent's user may state conditions that outlive their publisher")]
    Kept,
}

impl Statements {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a statement of a client. A kept one is known by the log alone.
    pub(crate) fn on_statement(
        &mut self,
        client: ClientId,
        bounded_uid: Option<u32>,
        event: SealedRef<'_>,
    ) -> Result<(), StatementError> {
        let Some(condition) = event.condition() else { return Ok(()) };
        let subject = condition.subject();
        let provenance = condition.head().provenance;
        if let Some(source) = provenance.source.or(provenance.replaces) {
            // This agent repeats it, or gives it up.
            let known = self.all.get_mut(&subject);
            if let Some(known) = known.filter(|known| known.event.id() == source) {
                known.logged = event.id();
            }
            return Ok(());
        }
        if condition.head().is_kept && bounded_uid.is_some() {
            return Err(StatementError::Kept);
        }
        let known = self.remove(&subject);
        if condition.head().is_kept {
            return Ok(());
        }
        let uid = bounded_uid.unwrap_or(0);
        let (event, logged) = (event.to_sealed(), event.id());
        let statement = Statement { event, logged, client: Some(client), unknown_at_ns: None, uid };
        let used = self.by_user.get(&uid).copied().unwrap_or(0);
        let over = |bytes: usize, bytes_max| match bytes + statement.bytes() > bytes_max {
            true => Err(StatementError::TooMany { bytes_max }),
            false => Ok(()),
        };
        let room = over(self.bytes, STATEMENT_BYTES_MAX).and_then(|()| match bounded_uid {
            Some(_) => over(used, STATEMENT_USER_BYTES_MAX),
            None => Ok(()),
        });
        match (room, known) {
            (Ok(()), _) => self.insert(subject, statement),
            // What is cleared needs no room.
            (Err(_), _) if condition.head().truth == Truth::False => {}
            (Err(error), known) => {
                known.into_iter().for_each(|known| self.insert(subject.clone(), known));
                return Err(error);
            }
        }
        Ok(())
    }

    /// As [`Self::on_statement`], for a statement that a client has made at another agent. It is
    /// repeated if it was not known here. `is_published`: it is in an event that the client
    /// publishes again, which the root may have; then the row names the agent before.
    pub(crate) fn on_brought(
        &mut self,
        client: ClientId,
        bounded_uid: Option<u32>,
        event: SealedRef<'_>,
        is_published: bool,
    ) -> Result<(), StatementError> {
        let Some(condition) = event.condition() else { return Ok(()) };
        let subject = condition.subject();
        // Another client states here that it holds. Which was stated last is not known: the clock
        // may have been set back between two lives of the agent. So what holds stays.
        let is_clear = condition.head().truth == Truth::False && !condition.head().is_kept;
        let holds_for_another = |known: &Statement| {
            known.client.is_some_and(|other| other != client)
                && truth(&known.event) == Some(Truth::True)
        };
        if is_clear && self.all.get(&subject).is_some_and(holds_for_another) {
            return Ok(());
        }
        let is_due = is_published || self.brought.contains(&subject);
        let is_new = self.all.get(&subject).is_none_or(|known| known.event.id() != event.id());
        self.on_statement(client, bounded_uid, event)?;
        if (is_new || is_due) && self.all.contains_key(&subject) {
            self.brought.insert(subject);
        }
        Ok(())
    }

    fn insert(&mut self, subject: Subject, statement: Statement) {
        self.bytes += statement.bytes();
        *self.by_user.entry(statement.uid).or_default() += statement.bytes();
        self.all.insert(subject, statement);
    }

    fn remove(&mut self, subject: &Subject) -> Option<Statement> {
        let statement = self.all.remove(subject)?;
        self.brought.remove(subject);
        self.bytes -= statement.bytes();
        if let Some(bytes) = self.by_user.get_mut(&statement.uid) {
            *bytes = bytes.saturating_sub(statement.bytes());
            if *bytes == 0 {
                self.by_user.remove(&statement.uid);
            }
        }
        Some(statement)
    }

    /// A client is gone. Its statements become unknown then.
    pub(crate) fn client_gone(&mut self, client: ClientId, unknown_at_ns: u64) {
        for statement in self.all.values_mut().filter(|s| s.client == Some(client)) {
            (statement.client, statement.unknown_at_ns) = (None, Some(unknown_at_ns));
            self.lost_at_ns =
                Some(self.lost_at_ns.map_or(unknown_at_ns, |at| at.min(unknown_at_ns)));
        }
    }

    /// The log has changed: all statements are repeated then.
    pub(crate) fn repeat_at(&mut self, at_ns: u64) {
        self.repeat = Some((at_ns, None));
    }

    /// Statements are repeated at the latest then. Returns whether no earlier time was set.
    pub(crate) fn arm(&mut self, at_ns: u64) -> bool {
        if self.all.is_empty() {
            self.repeat = None;
        }
        let is_new = self.repeat.is_none() && !self.all.is_empty();
        if is_new {
            self.repeat = Some((at_ns, None));
        }
        is_new
    }

    /// When something is due.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let brought = (!self.brought.is_empty()).then_some(0);
        [self.lost_at_ns, brought, self.repeat.as_ref().map(|(at_ns, _)| *at_ns)]
            .into_iter()
            .flatten()
            .min()
    }

    /// Statements of lost publishers, with the events that they made last. They are forgotten.
    pub(crate) fn take_lost(&mut self, now_ns: u64) -> Vec<(Sealed, EventId)> {
        if self.lost_at_ns.is_none_or(|at_ns| at_ns > now_ns) {
            return Vec::new();
        }
        let is_due = |s: &Statement| s.unknown_at_ns.is_some_and(|at_ns| at_ns <= now_ns);
        let due = self.all.iter().filter(|(_, statement)| is_due(statement));
        let due: Vec<Subject> = due.map(|(subject, _)| subject.clone()).collect();
        let lost: Vec<Statement> = due.iter().filter_map(|subject| self.remove(subject)).collect();
        self.lost_at_ns = self.all.values().filter_map(|s| s.unknown_at_ns).min();
        let lost = lost.into_iter().filter(|s| truth(&s.event) != Some(Truth::Unknown));
        lost.map(|statement| (statement.event, statement.logged)).collect()
    }

    /// The next statements to be repeated now.
    pub(crate) fn take_repeats(&mut self, now_ns: u64) -> Vec<Sealed> {
        let brought = std::iter::from_fn(|| self.brought.pop_first()).take(BATCH_MAX);
        let brought: Vec<Subject> = brought.collect();
        if !brought.is_empty() {
            let events = brought.iter().filter_map(|subject| self.all.get(subject));
            return events.map(|statement| statement.event.clone()).collect();
        }
        let due = self.repeat.take_if(|(at_ns, _)| *at_ns <= now_ns);
        let Some((_, after)) = due else { return Vec::new() };
        let bound = match &after {
            Some(after) => std::ops::Bound::Excluded(after.clone()),
            None => std::ops::Bound::Unbounded,
        };
        let rest = self.all.range((bound, std::ops::Bound::Unbounded)).take(BATCH_MAX);
        let batch: Vec<(&Subject, &Statement)> = rest.collect();
        if batch.len() == BATCH_MAX {
            let last = batch.last().map(|(subject, _)| (*subject).clone());
            self.repeat = Some((now_ns.saturating_add(BATCH_NS), last));
        }
        batch.into_iter().map(|(_, statement)| statement.event.clone()).collect()
    }
}

fn truth(event: &Sealed) -> Option<Truth> {
    Some(event.as_ref().condition()?.head().truth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::Provenance;
    use crate::testing::{Stated, stated};

    const CLIENT: ClientId = ClientId(5);

    fn fan(seq: u64, component: &str) -> Sealed {
        stated(&Stated { seq, component, ..Stated::default() })
    }

    #[test]
    fn a_lost_publisher_is_given_up_after_the_grace_time_unless_it_returns() {
        let mut statements = Statements::default();
        for (seq, component) in [(1, "fan/1"), (2, "fan/2")] {
            assert!(statements.on_statement(CLIENT, None, fan(seq, component).as_ref()).is_ok());
        }
        statements.client_gone(CLIENT, 100);
        let again = fan(3, "fan/1");
        assert!(statements.on_statement(ClientId(6), None, again.as_ref()).is_ok());
        assert_eq!(statements.deadline_ns(), Some(100));
        assert!(statements.take_lost(99).is_empty());
        let lost: Vec<u64> =
            statements.take_lost(100).iter().map(|(e, _)| e.id().seq.get()).collect();
        assert_eq!((lost, statements.len()), (vec![2], 1));
    }

    #[test]
    fn a_repeated_statement_is_given_up_by_its_last_event() {
        let mut statements = Statements::default();
        let first = fan(1, "fan/1");
        assert!(statements.on_statement(CLIENT, None, first.as_ref()).is_ok());
        statements.repeat_at(7);
        assert_eq!(statements.take_repeats(7), std::slice::from_ref(&first));
        let source = Provenance { source: Some(first.id()), ..Stated::default().provenance };
        let repeated = Stated {
            token: 9,
            seq: 8,
            component: "fan/1",
            provenance: source,
            ..Stated::default()
        };
        let repeated = stated(&repeated);
        assert!(statements.on_statement(ClientId::AGENT, None, repeated.as_ref()).is_ok());
        statements.client_gone(CLIENT, 9);
        assert_eq!(statements.take_lost(9), [(first, repeated.id())]);
    }

    #[test]
    fn a_user_has_a_budget_and_what_is_stated_stays() {
        let mut statements = Statements::default();
        let mut refused = 0;
        for seq in 1..=2_000 {
            let event = fan(seq, &format!("fan/{seq}"));
            let taken = statements.on_statement(CLIENT, Some(1000), event.as_ref());
            refused += u64::from(taken.is_err());
        }
        assert!(refused > 0 && statements.bytes() <= STATEMENT_USER_BYTES_MAX);
        let kept = statements.len();
        assert!(statements.on_statement(CLIENT, Some(1000), fan(3_000, "fan/1").as_ref()).is_ok());
        assert!(statements.on_statement(CLIENT, None, fan(3_001, "fan/x").as_ref()).is_ok());
        assert_eq!(statements.len(), kept + 1);
    }

    #[test]
    fn only_what_a_client_newly_brings_is_repeated_for_it() {
        let mut statements = Statements::default();
        let (old, new) = (fan(1, "fan/1"), fan(2, "fan/2"));
        assert!(statements.on_statement(CLIENT, None, old.as_ref()).is_ok());
        for event in [&old, &new] {
            assert!(statements.on_brought(CLIENT, None, event.as_ref(), false).is_ok());
        }
        assert_eq!(statements.take_repeats(1), [new]);
        assert!(statements.on_brought(CLIENT, None, old.as_ref(), false).is_ok());
        assert_eq!((statements.deadline_ns(), statements.take_repeats(1)), (None, Vec::new()));
        // Published again: the root may drop it as known, in either order.
        for published in [[true, false], [false, true]] {
            for is_published in published {
                let taken = statements.on_brought(CLIENT, None, old.as_ref(), is_published);
                assert!(taken.is_ok());
            }
            assert_eq!(statements.take_repeats(1), std::slice::from_ref(&old));
        }
    }

    /// The clock was set back before the agent started again: the clear of its earlier life is the
    /// later one by its time.
    #[test]
    fn a_clear_that_a_client_brings_does_not_end_what_another_states_here() {
        let mut statements = Statements::default();
        let other = ClientId(6);
        let clear = |token, is_kept| {
            let (truth, component) = (Truth::False, "fan/1");
            stated(&Stated { token, seq: 9, truth, component, is_kept, ..Stated::default() })
        };
        let holds = fan(1, "fan/1");
        assert!(statements.on_brought(other, None, clear(2, false).as_ref(), false).is_ok());
        assert_eq!(statements.take_repeats(1), [clear(2, false)], "nothing holds here");
        assert!(statements.on_statement(CLIENT, None, holds.as_ref()).is_ok());
        for is_published in [false, true] {
            let brought = clear(2, false);
            assert!(statements.on_brought(other, None, brought.as_ref(), is_published).is_ok());
            assert_eq!(statements.take_repeats(1), []);
        }
        statements.repeat_at(2);
        assert_eq!(statements.take_repeats(2), [holds]);
        assert!(statements.on_brought(CLIENT, None, clear(1, false).as_ref(), false).is_ok());
        assert_eq!(statements.take_repeats(3), [clear(1, false)], "of the client itself");
        assert!(statements.on_statement(CLIENT, None, fan(10, "fan/1").as_ref()).is_ok());
        assert!(statements.on_brought(other, None, clear(2, true).as_ref(), false).is_ok());
        assert_eq!(statements.len(), 0, "by hand");
    }

    #[test]
    fn many_statements_are_repeated_in_batches() {
        let mut statements = Statements::default();
        for seq in 1..=600 {
            let event = fan(seq, &format!("fan/{seq}"));
            assert!(statements.on_statement(CLIENT, None, event.as_ref()).is_ok());
        }
        statements.repeat_at(0);
        let mut sizes = Vec::new();
        while let Some(at_ns) = statements.deadline_ns() {
            sizes.push(statements.take_repeats(at_ns).len());
        }
        assert_eq!(sizes, [256, 256, 88]);
    }
}
