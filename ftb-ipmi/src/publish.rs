//! Publishes findings: to the agent of this host, or to standard output.

use crate::config::Config;
use crate::finding::to_event;
use crate::watch::Report;
use ftb_client::Client;
use ftb_client::daemon::Failure;
use ftb_client::json::EventObject;
use std::io::{self, Write};
use std::time::Duration;

/// Client name at the agent.
const CLIENT_NAME: &str = "ftb-ipmi";
/// How long the end waits until the agent confirms the last events.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);

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
        let builder = Client::builder(CLIENT_NAME);
        let builder = match &config.agent_socket {
            Some(socket) => builder.agent(socket),
            None => builder,
        };
        builder.build().map(Self::Agent).map_err(Failure::bad_input)
    }

    /// Publishes a finding.
    ///
    /// # Errors
    /// Standard output is closed or full.
    pub fn publish(&self, report: &Report) -> io::Result<()> {
        let mut event = to_event(&report.node, &report.bmc, report.time_ns, &report.finding);
        event.client_name = CLIENT_NAME.to_owned();
        tracing::info!(
            node = %report.node,
            event = %event.name,
            severity = %event.severity,
            sensor = event.tag("sensor"),
            cause = event.tag("cause"),
            reading = event.tag("reading"),
            "publish"
        );
        match self {
            Self::Agent(client) => {
                if let Err(error) = client.publish(event) {
                    tracing::error!(node = %report.node, %error, "an event is not published");
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

    /// Sends the remaining events.
    pub async fn close(self) {
        if let Self::Agent(client) = self
            && let Err(error) = client.close(CLOSE_DEADLINE).await
        {
            tracing::warn!(%error, "the agent did not confirm the last events");
        }
    }
}
