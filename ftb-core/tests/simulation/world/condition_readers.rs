//! Programs that follow the table of conditions.

use super::{Happening, World};
use crate::clients::{ConditionReader, Violation, broken};
use ftb_core::condition::{Subject, Truth};
use ftb_core::filter::Filter;
use ftb_core::log::conditions::Claim;
use ftb_core::log::table_view::{ReadPlace, TableView};
use ftb_core::node::Node;
use ftb_core::node::api::{ClientId, Input, Start, SubscriptionId, ToClient};
use ftb_core::run::Run;
use std::collections::BTreeMap;

/// Time between a gap and the next reading.
const READ_AGAIN_AFTER_NS: u64 = 1_000_000_000;

impl World {
    /// A program at an agent that begins with the table.
    pub fn read_conditions(&mut self, agent: usize, filter: &str) -> Result<(), Violation> {
        let client = self.new_client();
        self.condition_readers.push(ConditionReader {
            agent,
            client,
            filter: Filter::parse(filter).unwrap(),
            subscription: None,
            view: TableView::default(),
            place: ReadPlace { is_row: true, ..ReadPlace::default() },
            gaps: 0,
        });
        self.attach_reader(self.condition_readers.len() - 1)
    }

    /// An agent has started: its readers read the table again.
    pub(super) fn attach_readers(&mut self, agent: usize) -> Result<(), Violation> {
        for at in 0..self.condition_readers.len() {
            if self.condition_readers[at].agent == agent {
                let client = self.new_client();
                let reader = &mut self.condition_readers[at];
                (reader.client, reader.subscription) = (client, None);
                reader.place = reader.place.next_reading();
                self.attach_reader(at)?;
            }
        }
        Ok(())
    }

    fn attach_reader(&mut self, at: usize) -> Result<(), Violation> {
        let ConditionReader { agent, client, .. } = self.condition_readers[at];
        let info = super::life::reader_info(client);
        self.feed(agent, Input::ClientAttached { client, info })?;
        self.subscribe_reader(at)
    }

    /// After a gap, if its agent has not started again.
    pub(super) fn read_again(&mut self, client: ClientId) -> Result<(), Violation> {
        match self.condition_readers.iter().position(|reader| reader.client == client) {
            Some(at) => self.subscribe_reader(at),
            None => Ok(()),
        }
    }

    fn subscribe_reader(&mut self, at: usize) -> Result<(), Violation> {
        let reader = &mut self.condition_readers[at];
        let subscription = SubscriptionId(reader.place.reading + 1);
        reader.subscription = Some(subscription);
        let (agent, client, filter) = (reader.agent, reader.client, reader.filter.clone());
        let start = Start::Conditions;
        self.feed(agent, Input::Subscribe { client, subscription, filter: filter.into(), start })
    }

    /// A message for a reader of conditions; gives it back if it is for another client.
    pub(super) fn tell_reader(&mut self, client: ClientId, message: ToClient) -> Option<ToClient> {
        let Some(reader) = self.condition_readers.iter_mut().find(|r| r.client == client) else {
            return Some(message);
        };
        match message {
            ToClient::Deliver { subscription, items, .. }
                if reader.subscription == Some(subscription) =>
            {
                items.iter().for_each(|(_, run)| reader.take(run));
            }
            ToClient::Covered { subscription, history_ended: true, .. }
                if reader.subscription == Some(subscription) =>
            {
                reader.place.is_row = false;
            }
            ToClient::Gap { subscription, .. } if reader.subscription == Some(subscription) => {
                reader.subscription = None;
                reader.place = reader.place.next_reading();
                reader.gaps += 1;
                let at_ns = self.now_ns + READ_AGAIN_AFTER_NS;
                self.schedule(at_ns, Happening::ReadAgain { client });
            }
            _ => {}
        }
        None
    }

    /// *ConditionsConverge* for readers: each has the truths of the table. What the table has lost
    /// a reader may still know.
    pub(super) fn check_readers(&self, root: usize, node: &Node) -> Result<(), Violation> {
        let rows = node.conditions().iter().map(|(subject, row)| (subject, row.truth));
        let rows: BTreeMap<&Subject, Truth> = rows.collect();
        for reader in &self.condition_readers {
            let known = reader.view.iter().map(|(subject, claim)| (subject, claim.truth));
            let mut known: BTreeMap<&Subject, Truth> = known.collect();
            if reader.place.reading > 0 {
                known.retain(|subject, _| rows.contains_key(subject));
            }
            if reader.place.is_row || known != rows {
                let (at, place, gaps) = (reader.agent, reader.place, reader.gaps);
                let what = format!(
                    "root {root} has {rows:?}, a reader at {at} ({place:?}, {gaps} gaps) has \
                     {known:?}"
                );
                return broken("ConditionsConverge", what);
            }
        }
        Ok(())
    }
}

impl ConditionReader {
    fn take(&mut self, run: &Run) {
        for event in run.iter() {
            if let Some(condition) = event.condition() {
                let claim = Claim::of(event, condition);
                self.view.take(condition.subject(), self.place, claim);
            }
        }
    }
}
