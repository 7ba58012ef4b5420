//! What this client has stated about conditions: it states it again when it attaches again.
//!
//! Events count when they are sent: then they have their sequence numbers. Not responsible for:
//! what the agent makes of a statement.

use bytes::Bytes;
use ftb_core::EventRef;
use ftb_core::condition::Subject;
#[cfg(test)]
use ftb_core::condition::Truth;
use ftb_core::condition::pairs::{ConditionPairs, has_built_in_pairs};
use ftb_proto::client::{FromClient, published_events};
use ftb_proto::event::stated_condition;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Bytes of the events that are kept; a further statement about a new subject is not repeated.
const BYTES_MAX: usize = 4 << 20;
/// Most events of one message.
const RESTATED_MAX: usize = 512;

/// Whether an event may state a condition.
pub(crate) fn may_state(event: &EventRef<'_>) -> bool {
    event.condition.is_some() || has_built_in_pairs(event.space)
}

/// The last statement about each subject.
#[derive(Debug, Default)]
pub(crate) struct Statements {
    by_subject: BTreeMap<Subject, (u64, Bytes)>,
    bytes: usize,
    /// An event that may state a condition was published: from then on all that is sent is read.
    is_active: bool,
    pairs: Option<ConditionPairs>,
    /// An agent has accepted this client before.
    was_attached: bool,
    /// What is to be sent to the agent: the statements behind this subject.
    due: Option<Option<Subject>>,
}

impl Statements {
    /// An event is published.
    pub(crate) fn on_publish(&mut self, event: &EventRef<'_>) {
        self.is_active = self.is_active || may_state(event);
    }

    /// Events of a batch are published, of which one may state a condition.
    pub(crate) fn on_publish_batch(&mut self) {
        self.is_active = true;
    }

    /// Events are sent, in this order.
    pub(crate) fn on_sent(&mut self, first_seq: u64, events: &Bytes) {
        if !self.is_active {
            return;
        }
        let pairs = self.pairs.get_or_insert_with(ConditionPairs::built_in);
        for (seq, event) in (first_seq..).zip(published_events(events)) {
            let Some(condition) = stated_condition(&event, pairs) else { continue };
            let subject = condition.subject("");
            if let Some((_, old)) = self.by_subject.remove(&subject) {
                self.bytes -= old.len();
            }
            let has_room = self.bytes + event.len() <= BYTES_MAX;
            if !condition.is_kept && has_room {
                self.bytes += event.len();
                self.by_subject.insert(subject, (seq, Bytes::copy_from_slice(&event)));
            }
        }
    }

    /// The agent has refused events.
    pub(crate) fn on_refused(&mut self, first: u64, last: u64) {
        self.by_subject.retain(|_, (seq, event)| {
            let is_refused = (first..=last).contains(seq);
            self.bytes -= if is_refused { event.len() } else { 0 };
            !is_refused
        });
    }

    /// An agent has accepted the client. After another attachment it may be another incarnation, or
    /// take the client for a lost publisher.
    pub(crate) fn on_attached(&mut self) {
        let again = std::mem::replace(&mut self.was_attached, true);
        self.due = (again && !self.by_subject.is_empty()).then_some(None);
    }

    /// The next message of those that state everything again, once.
    pub(crate) fn take_due(&mut self) -> Option<FromClient> {
        let after = self.due.take()?.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.by_subject.range((after, Bound::Unbounded)).peekable();
        let (mut events, mut bytes, mut last) = (Vec::new(), 0, None);
        while let Some((subject, (seq, event))) = rest.next_if(|_| {
            events.len() < RESTATED_MAX && bytes < ftb_core::limits::CHUNK_BYTES_TARGET
        }) {
            bytes += event.len();
            events.push((*seq, event.clone()));
            last = Some(subject.clone());
        }
        self.due = rest.peek().is_some().then_some(last);
        (!events.is_empty()).then_some(FromClient::Restate { events })
    }

    /// Conditions that hold, as far as this client has stated them.
    #[cfg(test)]
    fn holding(&self) -> usize {
        let pairs = ConditionPairs::built_in();
        let holds =
            |event: &Bytes| stated_condition(event, &pairs).is_some_and(|c| c.truth == Truth::True);
        self.by_subject.values().filter(|(_, event)| holds(event)).count()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::event;
    use ftb_core::{Event, condition::Condition};
    use ftb_proto::client::put_published;
    use ftb_proto::event::event_len;

    fn fan(truth: Truth) -> Event {
        let condition = Condition::new("FANFAIL", truth);
        event("ftb.ipmi", "FTB_TEST").unwrap().condition(condition).build()
    }

    fn sent(statements: &mut Statements, first_seq: u64, events: &[Event]) {
        let mut bytes = Vec::new();
        for event in events {
            let event = EventRef::from(event);
            statements.on_publish(&event);
            put_published(&event, event_len(&event), &mut bytes);
        }
        statements.on_sent(first_seq, &bytes.into());
    }

    #[test]
    fn the_last_statement_about_each_subject_goes_to_a_new_agent_once() {
        let mut statements = Statements::default();
        statements.on_attached();
        let plain = event("app.x", "STEP").unwrap().build();
        sent(&mut statements, 1, &[plain.clone(), fan(Truth::False), plain]);
        sent(&mut statements, 4, &[fan(Truth::True)]);
        statements.on_attached();
        let Some(FromClient::Restate { events }) = statements.take_due() else { panic!("due") };
        assert_eq!(events.iter().map(|(seq, _)| *seq).collect::<Vec<u64>>(), [4]);
        assert_eq!((statements.take_due(), statements.holding()), (None, 1));
        statements.on_refused(4, 4);
        statements.on_attached();
        assert_eq!((statements.take_due(), statements.bytes), (None, 0));
    }

    #[test]
    fn many_statements_go_to_a_new_agent_in_several_messages() {
        let mut statements = Statements::default();
        statements.on_attached();
        let watches = (0..1_200).map(|host| {
            let condition = Condition::watch(&format!("node{host:04}"), "ftb.ipmi");
            event("ftb.ipmi", "FTB_TEST").unwrap().condition(condition).build()
        });
        sent(&mut statements, 1, &watches.collect::<Vec<Event>>());
        statements.on_attached();
        let sizes = std::iter::from_fn(|| match statements.take_due()? {
            FromClient::Restate { events } => Some(events.len()),
            _ => None,
        });
        let sizes: Vec<usize> = sizes.collect();
        assert!(sizes.len() > 2 && sizes.iter().all(|size| *size <= RESTATED_MAX), "{sizes:?}");
        assert_eq!(sizes.iter().sum::<usize>(), 1_200);
    }

    #[test]
    fn events_of_known_pairs_are_stated_again_too() {
        let mut statements = Statements::default();
        statements.on_attached();
        let failed = event("ftb.ipmi", "FTB_IPMI_FANFAIL").unwrap().payload("node01").build();
        sent(&mut statements, 1, &[failed]);
        assert_eq!(statements.holding(), 1);
    }
}
