//! The shell of the import: reads alarms, looks what was published of them, publishes the rest,
//! acknowledges.
//!
//! One durable consumer has all subjects, because two would not keep the order of an alarm and its
//! end. The server delivers one alarm at a time, also to two bridges.

use super::jetstream::{BoxError, JetStreamContext};
use super::restating::Former;
use super::state::SharedState;
use crate::config::ImportConfig;
use crate::import::{ALARM, Alarm, Import, Retries, SPACE, Verdict};
use crate::service::Part;
use async_nats::jetstream::consumer::pull::Config as PullConfig;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer};
use async_nats::jetstream::stream::Stream;
use async_nats::jetstream::{AckKind, Message};
use ftb_client::{Client, Delivery, Event, Start, Unconfirmed};
use futures_util::StreamExt as _;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, interval, sleep};

/// After this time without an acknowledgement the server delivers an alarm again.
const ACK_WAIT: Duration = Duration::from_secs(30);
/// How often it hears that an alarm is in work.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);
/// How often the server shows that it is there.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Clocks of the server of NATS and of this host may differ by this much.
const CLOCKS_APART_NS: u64 = 600 * 1_000_000_000;

/// The import of one cluster.
pub struct Importer<'a> {
    client: &'a Client,
    context: JetStreamContext,
    stream: String,
    subject: String,
    /// What the names of the consumers of this cluster begin with.
    prefix: String,
    import: Import,
    state: &'a SharedState,
    began: Instant,
    retries: Retries,
    /// Why conditions were not stated again the last time; empty: they were.
    not_restated: String,
}

impl<'a> Importer<'a> {
    /// With the rules of the configuration.
    pub fn new(
        client: &'a Client,
        context: JetStreamContext,
        cluster: &str,
        config: ImportConfig,
        state: &'a SharedState,
    ) -> Self {
        Self {
            client,
            context,
            prefix: format!("ftb-{:016x}-", hash(cluster)),
            stream: config.stream,
            subject: config.subject,
            import: Import::new(config.rules, config.racks),
            state,
            began: Instant::now(),
            retries: Retries::default(),
            not_restated: String::new(),
        }
    }

    /// Imports for ever.
    pub async fn run(mut self) {
        loop {
            if let Err(error) = self.follow().await {
                let problem = format!("the import of {}: {error}", self.stream);
                self.state.failed(Part::Import, &problem);
                if self.retries.on_failure(&problem) {
                    tracing::warn!("{problem}; it begins again");
                }
            }
            sleep(self.retries.pause()).await;
        }
    }

    async fn follow(&mut self) -> Result<(), BoxError> {
        let mut stream = self.context.get_stream(&self.stream).await?;
        let created = stream.info().await?.created.unix_timestamp();
        let mut consumer = self.consumer(&stream).await?;
        let name = self.stream.clone();
        let former = Former::of(&stream, (&name, created), consumer.info().await?);
        self.restate(&former).await;
        let messages = consumer.stream().max_messages_per_batch(1).heartbeat(HEARTBEAT);
        let mut messages = messages.messages().await?;
        while let Some(message) = messages.next().await {
            self.import_one(&message?, created).await?;
        }
        Err("the consumer has ended".into())
    }

    /// The durable consumer. Those of former subjects of this cluster are deleted; a new one begins
    /// behind what they have imported, else with the next alarm. So nothing is imported again.
    async fn consumer(&self, stream: &Stream) -> Result<PullConsumer, BoxError> {
        let name = format!("{}{:016x}", self.prefix, hash(&self.subject));
        let (mut stale, mut exists, mut imported) = (Vec::new(), false, None);
        let mut consumers = stream.consumers();
        while let Some(info) = consumers.next().await {
            let info = info?;
            if info.name == name {
                exists = true;
            } else if info.name.starts_with(&self.prefix) {
                imported = imported.max(Some(info.ack_floor.stream_sequence));
                stale.push(info.name);
            }
        }
        let consumer = if exists {
            stream.get_consumer(&name).await?
        } else {
            let deliver_policy = match imported {
                Some(done) => DeliverPolicy::ByStartSequence { start_sequence: done + 1 },
                None => DeliverPolicy::New,
            };
            let config = PullConfig {
                durable_name: Some(name),
                deliver_policy,
                ack_policy: AckPolicy::Explicit,
                ack_wait: ACK_WAIT,
                filter_subject: self.subject.clone(),
                max_ack_pending: 1,
                ..PullConfig::default()
            };
            stream.create_consumer(config).await?
        };
        for name in stale {
            tracing::info!(name, "a consumer of former rules is deleted");
            stream.delete_consumer(&name).await?;
        }
        Ok(consumer)
    }

    async fn import_one(&mut self, message: &Message, created: i64) -> Result<(), BoxError> {
        let info = message.info()?;
        let id = format!("{}.{created}.{}", self.stream, info.stream_sequence);
        let time_ns = u64::try_from(info.published.unix_timestamp_nanos()).unwrap_or(0);
        let alarm =
            Alarm { id: &id, subject: &message.subject, payload: &message.payload, time_ns };
        let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let acknowledgement = match self.import.handle(now_ms, alarm) {
            Verdict::Terminate { log } => {
                if let Some(line) = log {
                    tracing::warn!("{line}");
                }
                AckKind::Term
            }
            Verdict::Publish(events) => {
                let publishing = self.publish_missing(events, &id, time_ns);
                let published = keep_in_work(message, self.state, publishing).await;
                self.acknowledgement(published, &id, &message.subject)?
            }
        };
        let counts = self.import.counts;
        self.state.change(|state| state.import = counts);
        message.double_ack_with(acknowledgement).await?;
        self.retries.on_success();
        self.state.succeeded(Part::Import);
        Ok(())
    }

    /// How an alarm is acknowledged whose events are published, or refused for good.
    fn acknowledgement(
        &mut self,
        published: Result<bool, BoxError>,
        id: &str,
        subject: &str,
    ) -> Result<AckKind, BoxError> {
        let counts = &mut self.import.counts;
        match published {
            Ok(true) => counts.imported += 1,
            Ok(false) => counts.repeated += 1,
            Err(error) if is_for_good(&error) && self.retries.on_refused(id) => {
                counts.refused += 1;
                tracing::error!(%error, subject, "an alarm is lost: its events are refused");
                return Ok(AckKind::Term);
            }
            Err(error) => return Err(error),
        }
        Ok(AckKind::Ack)
    }

    /// Publishes the events that the log does not have; false: it has all.
    async fn publish_missing(
        &self,
        mut events: Vec<Event>,
        id: &str,
        time_ns: u64,
    ) -> Result<bool, BoxError> {
        let filter = format!("event_space={SPACE}");
        let start = Start::SinceNs(time_ns.saturating_sub(CLOCKS_APART_NS));
        let mut past = self.client.subscribe(&filter, start).await?;
        let mut published = BTreeSet::new();
        while let Some(delivery) = past.next_of_past().await {
            if let Delivery::Event(received) = delivery
                && received.event.tag(ALARM) == Some(id)
            {
                published.extend(received.event.tag("node").map(str::to_owned));
            }
        }
        if let Some(why) = past.ended() {
            return Err(why.into());
        }
        events.retain(|event| event.tag("node").is_none_or(|node| !published.contains(node)));
        let is_new = !events.is_empty();
        self.publish(events).await?;
        Ok(is_new)
    }

    /// Publishes events, and waits until the agent has confirmed all.
    async fn publish(&self, events: Vec<Event>) -> Result<(), BoxError> {
        let mut receipts = Vec::with_capacity(events.len());
        for event in events {
            receipts.push(self.client.publish_wait(event).await?);
        }
        for receipt in receipts {
            receipt.confirmed().await?;
        }
        Ok(())
    }

    /// States again what the table has lost. A failure must not hold up the alarms that follow.
    async fn restate(&mut self, former: &Former<'_>) {
        let restated = async {
            let lost = former.lost(self.client, &self.import).await?;
            if !lost.is_empty() {
                tracing::warn!(count = lost.len(), "conditions of alarms were lost: stated again");
                let publishing = self.publish(lost);
                while_reported(self.state, async || Ok(()), publishing).await?;
                self.state.succeeded(Part::Import);
            }
            Ok::<(), BoxError>(())
        };
        let problem = restated.await.err().map(|error| error.to_string()).unwrap_or_default();
        if !problem.is_empty() && self.not_restated != problem {
            tracing::error!("conditions of alarms that the table lacks are not stated: {problem}");
        }
        self.not_restated = problem;
    }
}

/// Whether the agent will refuse it again: a rule or a limit is against it.
fn is_for_good(error: &BoxError) -> bool {
    let refused = error.downcast_ref::<Unconfirmed>();
    matches!(refused, Some(Unconfirmed::Refused { code, .. }) if code != "rate" && code != "other")
}

/// Tells the server that an alarm is in work, until it is done.
async fn keep_in_work(
    message: &Message,
    state: &SharedState,
    work: impl Future<Output = Result<bool, BoxError>>,
) -> Result<bool, BoxError> {
    while_reported(state, async || Ok(message.ack_with(AckKind::Progress).await?), work).await
}

/// Says until some work is done that events wait, also by `progress`.
async fn while_reported<T>(
    state: &SharedState,
    progress: impl AsyncFn() -> Result<(), BoxError>,
    work: impl Future<Output = Result<T, BoxError>>,
) -> Result<T, BoxError> {
    let mut work = core::pin::pin!(work);
    let mut ticks = interval(PROGRESS_EVERY);
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = ticks.tick() => {
                // The first one comes at once: an alarm that is done soon is no failure.
                state.failed(Part::Import, "the events of an alarm wait to be confirmed");
                progress().await?;
            }
        }
    }
}

/// FNV-1a: the same in every release.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
