//! The shell of the traces: reads closed episodes, looks for their faults, posts to a collector.

use super::state::SharedState;
use crate::config::OtlpConfig;
use crate::otlp::{Closed, EPISODES, Fault, FaultSearch, Reply, TraceEncoder, pause_ms};
use ftb_client::daemon::Failure;
use ftb_client::{Client, Delivery, Received, Start};
use ftb_transport::web::WebClient;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Longest attempt to send a trace.
const ATTEMPT_MAX: Duration = Duration::from_secs(10);
/// Longest search for the fault of an episode; without it the trace begins with the first phase.
const SEARCH_MAX: Duration = Duration::from_secs(5);

/// Sends the traces of one cluster.
pub struct Tracer<'a> {
    client: &'a Client,
    config: OtlpConfig,
    web: WebClient,
    encoder: TraceEncoder,
    state: &'a SharedState,
    /// Until then no fault is looked for: the cause of an episode is what its user says, and
    /// searches take at most half of the time.
    rest_until: Instant,
}

impl<'a> Tracer<'a> {
    /// Goes on from the state.
    ///
    /// # Errors
    /// Bad input: the file of the collector's CA cannot be read.
    pub fn new(
        client: &'a Client,
        config: OtlpConfig,
        state: &'a SharedState,
    ) -> Result<Self, Failure> {
        let web = WebClient::new(config.ca.as_deref()).map_err(Failure::bad_input)?;
        let encoder = TraceEncoder::new(&state.get().cluster);
        Ok(Self { client, config, web, encoder, state, rest_until: Instant::now() })
    }

    /// Sends one trace after the other until the subscription ends. While the collector is away,
    /// episodes wait in the log of the cluster.
    ///
    /// # Errors
    /// The agent refuses the subscription.
    pub async fn run(mut self) -> Result<(), Failure> {
        let start = self.state.get().traces.position.map_or(Start::Now, Start::After);
        let mut episodes = self.client.subscribe(EPISODES, start).await?;
        let begin = episodes.position();
        self.state.change(|state| state.traces.position = Some(begin));
        // From here on nothing is missed: the next start goes on from this position.
        tokio::task::block_in_place(|| self.state.save())?;
        while let Some(delivery) = episodes.next().await {
            let position = match &delivery {
                Delivery::Event(received) => {
                    self.trace(received).await?;
                    received.position
                }
                Delivery::Gap(gap) => {
                    self.state.change(|state| state.traces.gaps += 1);
                    gap.until
                }
            };
            self.state.change(|state| state.traces.position = Some(position));
        }
        Err(match episodes.ended() {
            Some(why) => why.into(),
            None => Failure::failed("the subscription of episodes has ended"),
        })
    }

    async fn trace(&mut self, received: &Received) -> Result<(), Failure> {
        let Some(closed) = Closed::read(received) else { return Ok(()) };
        let fault = match closed.fault() {
            Some(search) if Instant::now() >= self.rest_until => self.fault(search).await,
            _ => None,
        };
        let body = self.encoder.request(&closed, fault.as_ref())?;
        let mut failures = 0;
        loop {
            let problem = match timeout(ATTEMPT_MAX, self.post(&body)).await {
                Ok(Ok(status)) => match Reply::of(status) {
                    Reply::Taken => {
                        self.state.change(|state| state.traces.sent += 1);
                        return Ok(());
                    }
                    Reply::Rejected => {
                        tracing::warn!(status, episode = %received.id, "a trace was rejected");
                        self.state.change(|state| state.traces.rejected += 1);
                        return Ok(());
                    }
                    Reply::Again => format!("status {status}"),
                },
                Ok(Err(problem)) => problem,
                Err(_) => "no answer".to_owned(),
            };
            failures += 1;
            if failures == 1 {
                tracing::warn!(problem, "the collector takes no trace now");
            }
            self.state.change(|state| state.traces.failures += 1);
            sleep(Duration::from_millis(pause_ms(failures))).await;
        }
    }

    /// Posts a trace; gives the status code.
    async fn post(&self, body: &str) -> Result<u16, String> {
        let agent = concat!("ftb-bridge/", env!("CARGO_PKG_VERSION"));
        let headers = http::Request::builder().header("user-agent", agent);
        self.web.post(&self.config.url, headers, body.to_owned()).await
    }

    /// The fault, if the log still has it and tells in time.
    async fn fault(&mut self, mut search: FaultSearch) -> Option<Fault> {
        let (begun, start) = (Instant::now(), Start::SinceNs(search.since_ns()));
        let look = async {
            let mut past = self.client.subscribe(&search.filter(), start).await.ok()?;
            while let Some(delivery) = past.next_of_past().await {
                if let Delivery::Event(received) = delivery {
                    search.look(&received);
                }
            }
            search.found()
        };
        let found = timeout(SEARCH_MAX, look).await.ok().flatten();
        self.rest_until = Instant::now() + begun.elapsed();
        found
    }
}
