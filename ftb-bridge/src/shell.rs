//! The shell: connections to the agent, to NATS and to a collector of traces, the state file, and
//! time.

pub mod exporting;
pub mod importing;
pub mod jetstream;
pub mod state;
pub mod traces;

use crate::config::{Config, NatsConfig};
use exporting::Exporter;
use ftb_client::daemon::{self, Failure};
use ftb_client::{Agent, Client};
use importing::Importer;
use jetstream::{JetStream, JetStreamContext};
use state::SharedState;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use traces::Tracer;

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
    let nats = match &config.nats {
        None => None,
        Some(nats) => Some(Nats::connect(nats, config.import.is_some()).await?),
    };
    let work = async {
        let cluster = attached(client).await.cluster;
        let state = SharedState::load(&config.state_dir, &cluster)?;
        let tracing = async {
            match config.otlp.clone() {
                None => std::future::pending().await,
                Some(otlp) => Tracer::new(client, otlp, &state)?.run().await,
            }
        };
        let bridging = async {
            match nats {
                None => std::future::pending().await,
                Some(nats) => nats.serve(client, &config, &cluster, &state).await,
            }
        };
        daemon::notify_ready("exporting");
        let ended = tokio::select! {
            ended = bridging => ended,
            ended = tracing => ended,
            ended = state.keep() => ended,
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

/// The connections to NATS.
struct Nats {
    context: JetStreamContext,
    /// Woken by each new connection.
    connected: Arc<Notify>,
    /// An alarm that the client of NATS cannot read ends its connection: not that of the export.
    facility: Option<JetStreamContext>,
}

impl Nats {
    async fn connect(config: &NatsConfig, imports: bool) -> Result<Self, Failure> {
        let connected = Arc::new(Notify::new());
        let context = jetstream::connect(config, Arc::clone(&connected));
        let context = context.await.map_err(Failure::bad_input)?;
        let facility = match imports {
            false => None,
            true => {
                let facility = jetstream::connect(config, Arc::default());
                Some(facility.await.map_err(Failure::bad_input)?)
            }
        };
        Ok(Self { context, connected, facility })
    }

    /// Exports and imports until the subscription ends.
    async fn serve(
        self,
        client: &Client,
        config: &Config,
        cluster: &str,
        state: &SharedState,
    ) -> Result<(), Failure> {
        let stream = JetStream::new(self.context, cluster, &config.export);
        let choice = config.export.choice.clone();
        let exporter = Exporter::new(client, stream, self.connected, choice, state);
        let importing = async {
            match config.import.clone().zip(self.facility) {
                None => std::future::pending().await,
                Some((import, context)) => {
                    Importer::new(client, context, cluster, import, state).run().await
                }
            }
        };
        tokio::select! {
            ended = exporter.run() => ended,
            () = importing => Ok(()),
        }
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
