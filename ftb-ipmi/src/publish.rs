//! Publishes findings: to the agent of this host, or to standard output.

use crate::conditions::{self, Inbox};
use crate::config::Config;
use crate::event::to_event;
use crate::watch::{Report, Undecided};
use ftb_client::daemon::{self, Failure};
use ftb_client::json::EventObject;
use ftb_client::{Client, Delivery, Event, Receipt, Start, Unconfirmed};
use ftb_core::catalog::names::{FTB_NODE_QUIET, FTB_NODE_SUSPECT};
use ftb_core::condition::pairs::ConditionPairs;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use tokio::sync::Notify;

/// Client name at the agent.
const CLIENT_NAME: &str = "ftb-ipmi";

/// The destination of events.
pub enum Outlet {
    /// The agent of this host. Without a connection, the client library keeps events. If its
    /// buffer is full, it sheds the lowest severity first.
    Agent(Client),
    /// Standard output, one JSON object per line.
    Print,
}

impl Outlet {
    /// Opens the destination.
    ///
    /// # Errors
    /// Bad settings of the client.
    pub fn open(config: &Config, is_print: bool) -> Result<Self, Failure> {
        if is_print {
            return Ok(Self::Print);
        }
        daemon::client(CLIENT_NAME, config.agent_socket.as_deref()).map(Self::Agent)
    }

    /// Publishes a finding.
    ///
    /// # Errors
    /// Standard output is closed or full.
    pub fn publish(&self, report: &Report) -> io::Result<()> {
        let mut event = to_event(&report.node, &report.bmc, report.time_ns, &report.finding);
        event.client_name = CLIENT_NAME.to_owned();
        let condition = ConditionPairs::built_in().stated_by(&event);
        tracing::info!(
            node = %report.node,
            event = %event.name,
            condition = condition.as_ref().map(|condition| &condition.key[..]),
            severity = %event.severity,
            sensor = event.tag("sensor"),
            cause = event.tag("cause"),
            reading = event.tag("reading"),
            "publish"
        );
        match self {
            Self::Agent(client) => {
                let kept = report.kept.clone().map(|kept| (kept, event.clone()));
                match (client.publish(event), kept) {
                    (Ok(receipt), Some((kept, event))) => {
                        let client = client.clone();
                        drop(tokio::spawn(replace_refused(client, kept, event, receipt)));
                    }
                    (Ok(_), None) => {}
                    (Err(error), _) => {
                        tracing::error!(node = %report.node, %error, "an event is not published");
                    }
                }
                Ok(())
            }
            Self::Print => {
                let mut out = io::stdout().lock();
                serde_json::to_writer(&mut out, &EventObject::from(&event))?;
                writeln!(out)?;
                out.flush()
            }
        }
    }

    /// Asks for the power of each node that an agent misses. Ends with the client.
    pub fn follow_missed(
        &self,
        nodes: BTreeMap<String, Arc<Notify>>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let client = match self {
            Self::Agent(client) => Some(client.clone()),
            Self::Print => None,
        };
        async move {
            let Some(client) = client else { return };
            let filter = format!(
                "event_space=ftb.agent, event_name={FTB_NODE_QUIET}|{FTB_NODE_SUSPECT}, folds=no"
            );
            let mut suspects = match client.subscribe(&filter, Start::Now).await {
                Ok(suspects) => suspects,
                Err(error) => return tracing::error!(%error, "lost nodes are not asked for power"),
            };
            while let Some(delivery) = suspects.next().await {
                let Delivery::Event(received) = delivery else { continue };
                let host = received.event.tag("host").map(str::to_ascii_lowercase);
                if let Some(missed) = host.and_then(|host| nodes.get(&host)) {
                    missed.notify_one();
                }
            }
        }
    }

    /// Brings the nodes news of the table of conditions. Ends with the client.
    pub fn follow_table(
        &self,
        inboxes: BTreeMap<String, Arc<Inbox>>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let client = match self {
            Self::Agent(client) => Some(client.clone()),
            Self::Print => None,
        };
        async move {
            if let Some(client) = client {
                conditions::follow(client, inboxes).await;
            }
        }
    }

    /// Sends the remaining events.
    pub async fn close(self) {
        if let Self::Agent(client) = self {
            daemon::close(&client).await;
        }
    }
}

/// An agent that names this user by a group only refuses conditions that outlive their publisher.
/// The error is published then without its condition.
async fn replace_refused(client: Client, kept: Undecided, event: Event, receipt: Receipt) {
    let Err(Unconfirmed::Refused { message, .. }) = receipt.confirmed().await else { return };
    let advice = "let an [[access]] rule of ftb.ipmi name the user of ftb-ipmi";
    let name = &event.name;
    tracing::error!(%name, message, advice, "an error is published without its condition");
    if let Some(condition) = &event.condition {
        kept.refuse(&condition.component, &condition.key);
    }
    match client.publish(Event { condition: None, ..event }) {
        // `kept` lives until then.
        Ok(receipt) => drop(receipt.confirmed().await),
        Err(error) => tracing::error!(%error, "an event is not published"),
    }
}
