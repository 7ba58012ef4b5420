//! What alarms that were imported before have set, and the table of conditions does not have.
//!
//! The stream of the facility keeps the alarms. The last one of each subject says what holds.

use super::jetstream::BoxError;
use crate::import::{Alarm, Import, SPACE};
use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::pull::Config as PullConfig;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, Info};
use async_nats::jetstream::stream::Stream;
use ftb_client::{Client, Conditions, Event};
use futures_util::StreamExt as _;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::timeout;

/// Most subjects whose last alarm is read: further ones are not restated.
const SUBJECTS_MAX: usize = 65_536;
/// Longest pause between two alarms that are read.
const NEXT_MAX: Duration = Duration::from_secs(10);

/// The alarms that a consumer of the stream has imported.
pub struct Former<'a> {
    stream: &'a Stream,
    /// Name of the stream, and when it was made, in Unix seconds.
    named: (&'a str, i64),
    subject: String,
    /// When the consumer was made. What came before was never imported, or by a former one.
    since_ns: i128,
    /// The sequence of the last alarm that was imported.
    imported: u64,
}

impl<'a> Former<'a> {
    /// Of a consumer.
    pub fn of(stream: &'a Stream, named: (&'a str, i64), consumer: &Info) -> Self {
        Self {
            stream,
            named,
            subject: consumer.config.filter_subject.clone(),
            since_ns: consumer.created.unix_timestamp_nanos(),
            imported: consumer.ack_floor.stream_sequence,
        }
    }

    /// The events that state again what the table has lost.
    ///
    /// # Errors
    /// NATS or the agent does not answer.
    pub async fn lost(&self, client: &Client, import: &Import) -> Result<Vec<Event>, BoxError> {
        let mut messages = self.last_of_each().await?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        messages.sort_by_key(|(sequence, ..)| *sequence);
        let (name, created) = self.named;
        let id = |sequence: &u64| format!("{name}.{created}.{sequence}");
        let ids: Vec<String> = messages.iter().map(|(sequence, ..)| id(sequence)).collect();
        let alarms = messages.iter().zip(&ids).map(|((_, time_ns, message), id)| Alarm {
            id,
            subject: &message.subject,
            payload: &message.payload,
            time_ns: *time_ns,
        });
        let filter = format!("condition=*, event_space={SPACE}");
        let mut conditions = Conditions::open(client, &filter).await?;
        conditions.load().await?;
        let known: BTreeSet<_> = conditions.states().map(|state| state.subject.clone()).collect();
        Ok(import.lost(alarms, &known))
    }

    /// The last alarm of each subject, if it was imported: sequence, Unix nanoseconds, message.
    async fn last_of_each(&self) -> Result<Vec<(u64, u64, Message)>, BoxError> {
        let config = PullConfig {
            deliver_policy: DeliverPolicy::LastPerSubject,
            ack_policy: AckPolicy::None,
            filter_subject: self.subject.clone(),
            inactive_threshold: NEXT_MAX * 3,
            ..PullConfig::default()
        };
        let consumer = self.stream.create_consumer(config).await?;
        let mut left = consumer.cached_info().num_pending;
        let mut found = Vec::new();
        let mut messages = consumer.messages().await?;
        while left > 0 && found.len() < SUBJECTS_MAX {
            let Some(message) = timeout(NEXT_MAX, messages.next()).await? else { break };
            let message = message?;
            let info = message.info()?;
            left = info.pending;
            let (sequence, time_ns) = (info.stream_sequence, info.published.unix_timestamp_nanos());
            if sequence <= self.imported && time_ns >= self.since_ns {
                found.push((sequence, u64::try_from(time_ns).unwrap_or(0), message));
            }
        }
        let name = consumer.cached_info().name.clone();
        self.stream.delete_consumer(&name).await?;
        Ok(found)
    }
}
