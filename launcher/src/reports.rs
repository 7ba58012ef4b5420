//! What the backplane reports of nodes: the conditions that hold now, what changes, and events.
//!
//! Reports that state a condition come from one subscription, which begins with the table; others
//! come from one subscription for each event space of the policy. After a gap the table is read
//! again; the policy knows what it has seen before.
//!
//! Not responsible for: what a report means (the policy).

use crate::backplane;
use crate::refused::Reason;
use core::time::Duration;
use ftb_client::{
    Client, ConditionState, Delivery, Gap, Received, Start, SubscribeError, Subscription,
};
use ftb_core::hostlist;
use ftb_core::limits::FILTER_BYTES_MAX;
use ftb_launcher_core::names::NodeName;
use ftb_launcher_core::policy::{Proof, Report, Statement};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// Most reports that wait for the policy.
const REPORTS_MAX: usize = 4096;
/// Time between a gap and the next reading of the table.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(1);

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

/// The conditions of these nodes that hold now, and a receiver of all further reports.
///
/// # Errors
/// The agent refuses a subscription.
pub async fn begin<'a>(
    client: &Client,
    spaces: BTreeSet<String>,
    nodes: impl Iterator<Item = &'a NodeName>,
    gate: &backplane::EventGate,
) -> Result<(Vec<Report>, mpsc::Receiver<Report>), String> {
    let (to, reports) = mpsc::channel(REPORTS_MAX);
    let proofs = Proofs::new(client);
    for space in spaces {
        let filter = format!("event_space={space}");
        let events = backplane::subscribe(client, &filter, Start::Now).await?;
        tokio::spawn(follow_events(events, space, proofs.clone(), gate.clone(), to.clone()));
    }
    let all = "condition=*";
    let filter = format!("{all}, subject={}", hostlist::fold(nodes.map(NodeName::as_str)));
    let filter = if filter.len() <= FILTER_BYTES_MAX { filter } else { all.to_owned() };
    let mut conditions = backplane::subscribe(client, &filter, Start::Conditions).await?;
    let mut rows = Vec::new();
    while let Some(report) = next_row(&mut conditions, &proofs).await {
        rows.push(Report { is_initial: true, ..report });
    }
    let follow = follow_conditions(proofs, filter, conditions, gate.clone(), to);
    tokio::spawn(follow);
    Ok((rows, reports))
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

async fn follow_conditions(
    proofs: Proofs,
    filter: String,
    mut conditions: Subscription,
    gate: backplane::EventGate,
    to: mpsc::Sender<Report>,
) {
    loop {
        match conditions.next().await {
            Some(Delivery::Event(received)) => match to.send(report(*received, &proofs)).await {
                Ok(()) => continue,
                Err(_) => return,
            },
            Some(Delivery::Gap(gap)) => {
                let (count, reason) = (lost(&gap), gap.reason);
                gate.refuse(
                    Reason::Missed,
                    format_args!("{count} conditions, {reason:?}: the table is read again"),
                );
            }
            None => return report_end(&conditions, "conditions"),
        }
        tokio::time::sleep(READ_AGAIN_AFTER).await;
        match backplane::subscribe(&proofs.client, &filter, Start::Conditions).await {
            Ok(again) => conditions = again,
            Err(error) => tracing::error!("{error}"),
        }
    }
}

async fn follow_events(
    mut events: Subscription,
    space: String,
    proofs: Proofs,
    gate: backplane::EventGate,
    to: mpsc::Sender<Report>,
) {
    while let Some(delivery) = events.next().await {
        match delivery {
            // It comes with the conditions.
            Delivery::Event(received) if received.stated.is_some() => {}
            Delivery::Event(received) => {
                if to.send(report(*received, &proofs)).await.is_err() {
                    return;
                }
            }
            Delivery::Gap(gap) => {
                let (count, reason) = (lost(&gap), gap.reason);
                gate.refuse(Reason::Missed, format_args!("{count} events of {space}, {reason:?}"));
            }
        }
    }
    report_end(&events, &format!("events of {space}"));
}

/// The job goes on without these reports. At its end its own client ends the subscription.
fn report_end(subscription: &Subscription, to: &str) {
    let why = subscription.ended().filter(|why| *why != SubscribeError::Closed);
    if let Some(why) = why {
        tracing::error!(%why, "the agent ended the subscription to {to}");
    }
}

/// How many events a gap stands for.
fn lost(gap: &Gap) -> String {
    gap.count.map_or_else(|| "an unknown number of".to_owned(), |count| count.to_string())
}

fn report(received: Received, proofs: &Proofs) -> Report {
    let proof = proofs.of(&received);
    let claim = ConditionState::of(&received).map(|state| state.claim);
    let stated = received.stated.zip(claim);
    let stated = stated.map(|(stated, claim)| Statement { condition: stated.condition, claim });
    let (event, host, uid) = (received.event, received.host, received.uid);
    Report { event, host, uid, stated, proof, is_initial: false }
}
