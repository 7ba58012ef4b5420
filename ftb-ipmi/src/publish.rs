//! Where findings go: to the agent of this host, or to standard output.

use crate::config::Config;
use crate::finding::to_event;
use crate::watch::Report;
use ftb_client::Client;
use ftb_client::daemon::Failure;
use ftb_client::json::EventObject;
use std::io::{self, Write};
use std::time::Duration;

/// Name by which the agent knows this program.
const CLIENT_NAME: &str = "ftb-ipmi";
/// How long the last events may take to reach the agent at the end.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);

/// A way out for events.
pub enum Outlet {
    /// The agent of this host. While it is away the client library keeps events, and sheds the
    /// least severe ones first when its buffer is full.
    Agent(Client),
    /// Standard output, one JSON object a line.
    Print,
}

impl Outlet {
    /// Opens the way out that was asked for.
    ///
    /// # Errors
    /// When the client of the agent cannot be made.
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
    /// When standard output is closed.
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

    /// Sends what is still under way.
    pub async fn close(self) {
        if let Self::Agent(client) = self
            && let Err(error) = client.close(CLOSE_DEADLINE).await
        {
            tracing::warn!(%error, "the last events may not have reached the agent");
        }
    }
}
