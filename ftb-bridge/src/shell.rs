//! The shell: connections to the agent and to NATS, the state file, and time.

pub mod exporting;
pub mod importing;
pub mod jetstream;
pub mod state;

use crate::config::Config;
use exporting::Exporter;
use ftb_client::daemon::{self, Failure};
use ftb_client::{Agent, Client};
use importing::Importer;
use jetstream::JetStream;
use state::SharedState;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How long one attempt to reach the agent lasts before the log has a line.
const ATTACH_LOG: Duration = Duration::from_secs(10);

/// Runs until `stop` resolves.
///
/// # Errors
/// Files of the configuration cannot be read, the state cannot be written, or the agent refuses the
/// subscription.
pub async fn run(
    config: Config,
    client: &Client,
    stop: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let connected = Arc::new(Notify::new());
    let context = jetstream::connect(&config.nats, Arc::clone(&connected));
    let context = context.await.map_err(Failure::bad_input)?;
    // An alarm that the client of NATS cannot read ends its connection: not that of the export.
    let facility = match config.import {
        None => None,
        Some(_) => {
            let facility = jetstream::connect(&config.nats, Arc::default());
            Some(facility.await.map_err(Failure::bad_input)?)
        }
    };
    let work = async {
        let cluster = attached(client).await.cluster;
        let state = SharedState::load(&config.state_dir, &cluster)?;
        let stream = JetStream::new(context, &cluster, &config.export);
        let choice = config.export.choice.clone();
        let exporter = Exporter::new(client, stream, connected, choice, &state);
        let importing = async {
            match config.import.zip(facility) {
                None => std::future::pending().await,
                Some((import, context)) => {
                    Importer::new(client, context, &cluster, import, &state).run().await
                }
            }
        };
        daemon::notify_ready("exporting");
        let ended = tokio::select! {
            ended = exporter.run() => ended,
            ended = state.keep() => ended,
            () = importing => Ok(()),
        };
        state.save().and(ended)
    };
    // What is acknowledged after the last save is read from the stream at the next start.
    tokio::select! {
        () = stop => Ok(()),
        () = daemon::feed_watchdog() => Ok(()),
        ended = work => ended,
    }
}

/// Waits for the agent.
async fn attached(client: &Client) -> Agent {
    loop {
        if let Err(error) = client.wait_connected(ATTACH_LOG).await {
            tracing::warn!(%error, "waiting for the agent");
        }
        if let Some(agent) = client.agent() {
            return agent;
        }
    }
}
