//! What the backplane reports of nodes: the conditions that hold now, what changes, and events.
//!
//! Reports that state a condition come from one subscription, which begins with the table. After a
//! gap the table is read again: its rows say so, because the policy knows what it has seen before,
//! and the end of the reading is reported, because the table may lack what it had before.
//! Nodes that join the job have another such subscription. Other reports come from one
//! subscription for each event space of the policy. It goes on where the launcher before was, and
//! after a gap that a log can fill where the gap began (`Refill`). Other gaps are reported.
//!
//! Not responsible for: what a report means (the policy).

use crate::backplane;
use crate::refused::Reason;
use core::time::Duration;
use ftb_client::{
    Client, ConditionState, Delivery, Gap, GapReason, Proofs, Received, Start, SubscribeError,
    Subscription,
};
use ftb_core::limits::FILTER_BYTES_MAX;
use ftb_core::log::table_view::ReadPlace;
use ftb_core::{Position, hostlist};
use ftb_launcher_core::names::NodeName;
use ftb_launcher_core::policy::{EventSource, HandledEvents, Proof, Report, Statement};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

/// Most reports that wait for the policy.
const REPORTS_MAX: usize = 4096;
/// Time between a gap, or a refused subscription, and the next reading.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How often a space says how far it is read.
const POSITION_EVERY: Duration = Duration::from_secs(60);

/// News of the backplane about nodes.
#[derive(Debug)]
pub enum ReportNews {
    Report(Box<Report>),
    /// The table was read again, up to its end. What it does not have is not known to hold.
    Reading(ReadPlace),
    /// An event space is read up to this position.
    Position(String, Position),
}

/// What the local agent knows about the publisher of an event.
pub fn proof_of(received: &Received, proofs: &Proofs) -> Proof {
    match received.is_verified {
        true => Proof::Signed,
        false if proofs.are_required() => Proof::Missing,
        false => Proof::Unchecked,
    }
}

/// What every reader needs.
#[derive(Clone)]
pub struct Readers {
    proofs: Proofs,
    gate: backplane::EventGate,
    to: mpsc::Sender<ReportNews>,
    /// How many subscriptions have read the table.
    tables: Arc<AtomicU32>,
}

impl Readers {
    async fn send(&self, report: Report) -> Result<(), mpsc::error::SendError<ReportNews>> {
        self.to.send(ReportNews::Report(Box::new(report))).await
    }

    fn miss(&self, gap: &Gap, what: &str) {
        let count = gap.count.map_or_else(|| "an unknown number of".to_owned(), |n| n.to_string());
        let reason = gap.reason;
        self.gate.refuse(Reason::Missed, format_args!("{count} {what} ({reason:?})"));
    }

    /// Subscribes until the agent takes it; `None`: the job is over.
    async fn subscribe_again(&self, filter: &str, start: Start) -> Option<Subscription> {
        loop {
            tokio::select! {
                () = self.to.closed() => return None,
                () = sleep(READ_AGAIN_AFTER) => {}
            }
            match backplane::subscribe(self.proofs.client(), filter, start).await {
                Ok(subscription) => return Some(subscription),
                Err(error) => self.gate.refuse(Reason::Missed, error),
            }
        }
    }
}

/// The conditions of these nodes that hold now, and a receiver of all further reports. Events are
/// read on from where `handled` is; a space that was not read yet begins now.
///
/// # Errors
/// The agent refuses a subscription.
pub async fn begin<'a>(
    client: &Client,
    spaces: BTreeSet<String>,
    nodes: impl Iterator<Item = &'a NodeName>,
    gate: &backplane::EventGate,
    handled: &mut HandledEvents,
) -> Result<(Vec<Report>, mpsc::Receiver<ReportNews>, Readers), String> {
    let (to, reports) = mpsc::channel(REPORTS_MAX);
    let proofs = Proofs::new(client);
    let nodes: Vec<&NodeName> = nodes.collect();
    let is_here = |host: &str| nodes.iter().all(|node| node.as_str().eq_ignore_ascii_case(host));
    // A job on this host alone hears of no other one.
    if !client.agent().is_some_and(|agent| is_here(&agent.host)) {
        proofs.warn_without("report faults of every node");
    }
    let readers = Readers { proofs, gate: gate.clone(), to, tables: Arc::default() };
    for space in spaces {
        let start = handled.after(&space).map_or(Start::Now, Start::After);
        let events = backplane::subscribe(client, &filter_of(&space), start).await?;
        handled.begin(&space, events.position());
        tokio::spawn(follow_events(events, space, readers.clone()));
    }
    let conditions = readers.conditions_of(nodes.into_iter()).await?;
    let rows = readers.follow(conditions);
    Ok((rows, reports, readers))
}

/// The conditions of some nodes.
pub struct ConditionTable {
    /// Those that hold now.
    pub rows: Vec<Report>,
    filter: String,
    conditions: Subscription,
    place: ReadPlace,
}

impl Readers {
    /// Reads the conditions of these nodes.
    ///
    /// # Errors
    /// The agent refuses the subscription.
    pub async fn conditions_of<'a>(
        &self,
        nodes: impl Iterator<Item = &'a NodeName>,
    ) -> Result<ConditionTable, String> {
        let all = "condition=*";
        let filter = format!("{all}, subject={}", hostlist::fold(nodes.map(NodeName::as_str)));
        let filter = if filter.len() <= FILTER_BYTES_MAX { filter } else { all.to_owned() };
        let client = self.proofs.client();
        let mut conditions = backplane::subscribe(client, &filter, Start::Conditions).await?;
        let subscription = self.tables.fetch_add(1, Ordering::Relaxed);
        let place = ReadPlace { subscription, reading: 0, is_row: true };
        let mut rows = Vec::new();
        loop {
            match conditions.next_of_past().await {
                Some(Delivery::Event(received)) => {
                    rows.push(Report { place, ..report(&self.proofs, *received) });
                    continue;
                }
                // A statement that was made since the rows were read may be missing.
                Some(Delivery::Gap(gap)) => {
                    self.miss(&gap, "conditions: the table is read again");
                }
                None if conditions.ended().is_none() => break,
                // Rows may be missing.
                None => drop(is_over(&conditions, self, "conditions")),
            }
            sleep(READ_AGAIN_AFTER).await;
            conditions = backplane::subscribe(client, &filter, Start::Conditions).await?;
            rows.clear();
        }
        Ok(ConditionTable { rows, filter, conditions, place })
    }

    /// Reports what changes from now on; returns what holds now.
    pub fn follow(&self, table: ConditionTable) -> Vec<Report> {
        let ConditionTable { rows, filter, conditions, place } = table;
        let place = ReadPlace { is_row: false, ..place };
        tokio::spawn(follow_conditions(self.clone(), filter, conditions, place));
        rows
    }
}

fn filter_of(space: &str) -> String {
    format!("event_space={space}")
}

async fn follow_conditions(
    readers: Readers,
    filter: String,
    mut conditions: Subscription,
    mut place: ReadPlace,
) {
    loop {
        let next = match place.is_row {
            true => conditions.next_of_past().await,
            false => conditions.next().await,
        };
        match next {
            Some(Delivery::Event(received)) => {
                let report = Report { place, ..report(&readers.proofs, *received) };
                match readers.send(report).await {
                    Ok(()) => continue,
                    Err(_) => return,
                }
            }
            None if place.is_row && conditions.ended().is_none() => {
                place.is_row = false;
                match readers.to.send(ReportNews::Reading(place)).await {
                    Ok(()) => continue,
                    Err(_) => return,
                }
            }
            Some(Delivery::Gap(gap)) => {
                readers.miss(&gap, "conditions: the table is read again");
            }
            None if is_over(&conditions, &readers, "conditions") => return,
            None => {}
        }
        match readers.subscribe_again(&filter, Start::Conditions).await {
            Some(again) => (conditions, place) = (again, place.next_reading()),
            None => return,
        }
    }
}

/// Which gaps are read again: those that a queue has made, each once. What a log has lost, it does
/// not get back. Each reading begins behind the one before, so none repeats itself.
#[derive(Debug, Default)]
struct Refill {
    /// Where the last reading began, and where its gap ended.
    last: Option<(Position, Position)>,
}

impl Refill {
    fn takes(&mut self, gap: &Gap) -> bool {
        let is_kept = matches!(gap.reason, GapReason::Shed | GapReason::Late);
        let is_new = self.last.is_none_or(|(after, until)| gap.after > after && gap.until > until);
        if is_kept && is_new {
            self.last = Some((gap.after, gap.until));
        }
        is_kept && is_new
    }
}

async fn follow_events(mut events: Subscription, space: String, readers: Readers) {
    let mut refill = Refill::default();
    let mut position_due = Instant::now() + POSITION_EVERY;
    loop {
        let Ok(next) = timeout_at(position_due, events.next()).await else {
            position_due = Instant::now() + POSITION_EVERY;
            let news = ReportNews::Position(space.clone(), events.position());
            match readers.to.send(news).await {
                Ok(()) => continue,
                Err(_) => return,
            }
        };
        let after = match next {
            // It comes with the conditions.
            Some(Delivery::Event(received)) if received.stated.is_some() => continue,
            Some(Delivery::Event(received)) => {
                let (id, position) = (received.id, received.position);
                let source = Some(EventSource { space: space.clone(), id, position });
                let report = Report { source, ..report(&readers.proofs, *received) };
                match readers.send(report).await {
                    Ok(()) => continue,
                    Err(_) => return,
                }
            }
            Some(Delivery::Gap(gap)) if refill.takes(&gap) => gap.after,
            Some(Delivery::Gap(gap)) => {
                readers.miss(&gap, &format!("events of {space}"));
                continue;
            }
            None if is_over(&events, &readers, &format!("events of {space}")) => return,
            None => events.position(),
        };
        match readers.subscribe_again(&filter_of(&space), Start::After(after)).await {
            Some(again) => events = again,
            None => return,
        }
    }
}

/// Whether a subscription has ended with the job, which closes its client. Else the agent has ended
/// it.
fn is_over(subscription: &Subscription, readers: &Readers, to: &str) -> bool {
    let why = subscription.ended().filter(|why| *why != SubscribeError::Closed);
    if let Some(why) = &why {
        let words = format_args!("{to}: the agent has ended the subscription: {why}");
        readers.gate.refuse(Reason::Missed, words);
    }
    why.is_none()
}

fn report(proofs: &Proofs, received: Received) -> Report {
    let proof = proof_of(&received, proofs);
    report_of(received, proof)
}

fn report_of(received: Received, proof: Proof) -> Report {
    let state = ConditionState::of(&received);
    // An agent repeats statements of others: their users count, not its own.
    let uid = state.as_ref().map_or(received.uid, |state| state.publisher_uid);
    let stated = received.stated.zip(state);
    let stated =
        stated.map(|(stated, state)| Statement { condition: stated.condition, claim: state.claim });
    let (event, host) = (received.event, received.host);
    Report { event, host, uid, stated, proof, place: ReadPlace::default(), source: None }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ftb_client::Stated;
    use ftb_core::condition::{Condition, Provenance, Truth};
    use ftb_core::event::Tag;
    use ftb_core::{Epoch, Event, EventId, OriginId, PublisherId};

    /// Else an ordinary user could speak about other hosts as soon as its agent repeats it.
    #[test]
    fn a_repeated_statement_is_of_its_publishers_user() {
        let id = EventId { publisher: PublisherId { account: 1, token: 2 }, seq: 3.into() };
        let mut event = Event::new("site".parse().unwrap(), "FTB_CONDITION".parse().unwrap());
        let tag = |key: &str, value: &str| Tag { key: key.into(), value: value.into() };
        event.tags = vec![tag("publisher_uid", "1000")];
        let source = Some(id);
        let provenance = Provenance { source, ..Provenance::direct(OriginId(7)) };
        let condition = Condition::new("DISK_BAD", Truth::True);
        let received = Received {
            position: Position::ZERO,
            id,
            host: "node01".to_owned(),
            uid: 0,
            pid: 1,
            event,
            folded: None,
            stated: Some(Stated { condition, provenance }),
            is_verified: false,
            is_counted: false,
        };
        assert_eq!(report_of(received, Proof::Unchecked).uid, 1000);
    }

    fn gap(reason: GapReason, after: u64, until: u64) -> Gap {
        let at = |index: u64| Position {
            epoch: Epoch { number: 1, root: OriginId(7) },
            index: index.into(),
        };
        Gap::unknown((at(after), at(until)), reason)
    }

    #[test]
    fn what_a_log_has_lost_is_not_asked_for_again() {
        let mut refill = Refill::default();
        assert!(!refill.takes(&gap(GapReason::Retention, 1, 5)));
        assert!(!refill.takes(&gap(GapReason::LogLost, 5, 6)));
        assert!(refill.takes(&gap(GapReason::Shed, 6, 9)));
        assert!(!refill.takes(&gap(GapReason::Retention, 6, 12)), "it has aged meanwhile");
    }

    #[test]
    fn a_gap_is_read_again_once_though_its_end_grows() {
        let mut refill = Refill::default();
        assert!(refill.takes(&gap(GapReason::Late, 6, 9)));
        assert!(!refill.takes(&gap(GapReason::Shed, 6, 12)), "nothing came in between");
        assert!(!refill.takes(&gap(GapReason::Shed, 7, 9)));
        assert!(refill.takes(&gap(GapReason::Shed, 9, 12)), "it has progressed");
    }
}
