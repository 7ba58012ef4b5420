//! The shell: connections to the agent, to NATS and to a collector of traces, the state file, and
//! time.

pub mod exporting;
pub mod importing;
pub mod jetstream;
pub mod restating;
pub mod state;
pub mod traces;

use crate::config::{Config, NatsConfig};
use crate::service::{self, Part, ServiceNotice};
use async_nats::connection::State;
use exporting::Exporter;
use ftb_client::daemon::{self, Failure};
use ftb_client::{Agent, Client, ConditionState, Conditions, SubscribeError, Truth};
use importing::Importer;
use jetstream::{JetStream, JetStreamContext};
use state::SharedState;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;
use traces::Tracer;

/// How long one attempt to reach the agent lasts before the log has a line.
const ATTACH_LOG: Duration = Duration::from_secs(10);
/// How often it is looked whether the bridge does its work.
const TICK: Duration = Duration::from_secs(1);

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
        let connection = nats.as_ref().map(|nats| nats.context.client());
        let stating = state_itself(client, &state, connection);
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
            () = stating => Ok(()),
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

/// States again and again how the bridge is, as far as that changes.
async fn state_itself(client: &Client, state: &SharedState, nats: Option<async_nats::Client>) {
    let publish = |notice: &ServiceNotice| {
        let published = service::event_of(notice).map(|event| client.publish(event).map(drop));
        if let Ok(Err(error)) = published {
            tracing::warn!(%error, ?notice, "an event is not published");
        }
    };
    publish(&ServiceNotice::Watching);
    match was_stated(client).await {
        Ok(true) => state.set_stated(),
        Ok(false) => {}
        Err(error) => tracing::warn!(%error, "the conditions of a former bridge are not known"),
    }
    loop {
        sleep(TICK).await;
        match nats.as_ref().map(async_nats::Client::connection_state) {
            None => {}
            Some(State::Connected) => state.succeeded(Part::Connection),
            Some(_) => state.failed(Part::Connection, "no connection to NATS"),
        }
        if let Some(notice) = state.tick() {
            match &notice {
                ServiceNotice::Unreachable(why) => tracing::error!("for a minute: {why}"),
                notice => tracing::info!(?notice, "service"),
            }
            publish(&notice);
        }
    }
}

/// Whether a bridge of this host has stated that it does not reach NATS.
async fn was_stated(client: &Client) -> Result<bool, SubscribeError> {
    let host = attached(client).await.host;
    let filter = format!("condition={}", service::UNREACHABLE);
    let mut conditions = Conditions::open(client, &filter).await?;
    conditions.load().await?;
    let is_own = |state: &ConditionState| {
        state.truth != Truth::False
            && state.subject.component() == service::COMPONENT
            && state.subject.host().eq_ignore_ascii_case(&host)
    };
    Ok(conditions.states().any(is_own))
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
