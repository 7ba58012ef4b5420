//! What the backplane reports of nodes: the conditions that hold now, what changes, and events.
//!
//! Reports that state a condition come from one subscription, which begins with the table. After a
//! gap the table is read again; the policy knows what it has seen before. Others come from one
//! subscription for each event space of the policy. It goes on where the launcher before was, and
//! after a gap where the gap began, as far as a log still has it. What no log has is reported.
//!
//! Not responsible for: what a report means (the policy).

use crate::backplane;
use crate::refused::Reason;
use core::time::Duration;
use ftb_client::{
    Client, ConditionState, Delivery, Gap, Received, Start, SubscribeError, Subscription,
};
use ftb_core::limits::FILTER_BYTES_MAX;
use ftb_core::{Position, hostlist};
use ftb_launcher_core::names::NodeName;
use ftb_launcher_core::policy::{EventSource, HandledEvents, Proof, Report, Statement};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// Most reports that wait for the policy.
const REPORTS_MAX: usize = 4096;
/// Time between a gap, or a refused subscription, and the next reading.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How often a space without reports says how far it is read.
const POSITION_EVERY: Duration = Duration::from_secs(60);

/// News of the backplane about nodes.
#[derive(Debug)]
pub enum ReportNews {
    Report(Box<Report>),
    /// An event space is read up to this position.
    Position(String, Position),
}

/// Whether the local agent demands signatures of events that move jobs: what it said when it was
/// attached last.
#[derive(Clone)]
struct Proofs {
    client: Client,
    are_required: Arc<AtomicBool>,
}

impl Proofs {
    fn new(client: &Client) -> Self {
        let proofs = Self { client: client.clone(), are_required: Arc::default() };
        if !proofs.are_required() {
            tracing::warn!(
                "the agent does not demand signatures: the holder of one agent can report \
                 faults of every node"
            );
        }
        proofs
    }

    fn are_required(&self) -> bool {
        if let Some(agent) = self.client.agent() {
            self.are_required.store(agent.requires_signatures, Ordering::Relaxed);
        }
        self.are_required.load(Ordering::Relaxed)
    }

    fn of(&self, received: &Received) -> Proof {
        match received.is_verified {
            true => Proof::Signed,
            false if self.are_required() => Proof::Missing,
            false => Proof::Unchecked,
        }
    }
}

/// What every reader needs.
#[derive(Clone)]
struct Readers {
    proofs: Proofs,
    gate: backplane::EventGate,
    to: mpsc::Sender<ReportNews>,
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
                () = tokio::time::sleep(READ_AGAIN_AFTER) => {}
            }
            match backplane::subscribe(&self.proofs.client, filter, start).await {
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
) -> Result<(Vec<Report>, mpsc::Receiver<ReportNews>), String> {
    let (to, reports) = mpsc::channel(REPORTS_MAX);
    let readers = Readers { proofs: Proofs::new(client), gate: gate.clone(), to };
    for space in spaces {
        let start = handled.after(&space).map_or(Start::Now, Start::After);
        let events = backplane::subscribe(client, &filter_of(&space), start).await?;
        handled.begin(&space, events.position());
        tokio::spawn(follow_events(events, space, readers.clone()));
    }
    let all = "condition=*";
    let filter = format!("{all}, subject={}", hostlist::fold(nodes.map(NodeName::as_str)));
    let filter = if filter.len() <= FILTER_BYTES_MAX { filter } else { all.to_owned() };
    let mut conditions = backplane::subscribe(client, &filter, Start::Conditions).await?;
    let mut rows = Vec::new();
    while let Some(report) = next_row(&mut conditions, &readers.proofs).await {
        rows.push(Report { is_initial: true, ..report });
    }
    tokio::spawn(follow_conditions(readers, filter, conditions));
    Ok((rows, reports))
}

fn filter_of(space: &str) -> String {
    format!("event_space={space}")
}

/// The next row of the table; `None`: it is read.
async fn next_row(conditions: &mut Subscription, proofs: &Proofs) -> Option<Report> {
    loop {
        match conditions.next_of_past().await? {
            Delivery::Event(received) => return Some(report(*received, proofs)),
            // What the log has lost is not in its table.
            Delivery::Gap(_) => {}
        }
    }
}

async fn follow_conditions(readers: Readers, filter: String, mut conditions: Subscription) {
    loop {
        match conditions.next().await {
            Some(Delivery::Event(received)) => {
                match readers.send(report(*received, &readers.proofs)).await {
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
            Some(again) => conditions = again,
            None => return,
        }
    }
}

async fn follow_events(mut events: Subscription, space: String, readers: Readers) {
    // How far gaps were read again.
    let mut refilled = None;
    loop {
        let next = match tokio::time::timeout(POSITION_EVERY, events.next()).await {
            Ok(next) => next,
            Err(_) => {
                let news = ReportNews::Position(space.clone(), events.position());
                match readers.to.send(news).await {
                    Ok(()) => continue,
                    Err(_) => return,
                }
            }
        };
        let after = match next {
            // It comes with the conditions.
            Some(Delivery::Event(received)) if received.stated.is_some() => continue,
            Some(Delivery::Event(received)) => {
                let (id, position) = (received.id, received.position);
                let source = Some(EventSource { space: space.clone(), id, position });
                let report = Report { source, ..report(*received, &readers.proofs) };
                match readers.send(report).await {
                    Ok(()) => continue,
                    Err(_) => return,
                }
            }
            Some(Delivery::Gap(gap)) if refilled.is_some_and(|until| gap.until <= until) => {
                readers.miss(&gap, &format!("events of {space}"));
                continue;
            }
            Some(Delivery::Gap(gap)) => {
                refilled = Some(gap.until);
                gap.after
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

fn report(received: Received, proofs: &Proofs) -> Report {
    let proof = proofs.of(&received);
    let claim = ConditionState::of(&received).map(|state| state.claim);
    let stated = received.stated.zip(claim);
    let stated = stated.map(|(stated, claim)| Statement { condition: stated.condition, claim });
    let (event, host, uid) = (received.event, received.host, received.uid);
    Report { event, host, uid, stated, proof, is_initial: false, source: None }
}
