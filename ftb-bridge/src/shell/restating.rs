//! What alarms that were imported before have set, and the table of conditions does not have.
//!
//! The stream of the facility keeps the alarms. The last one of each subject says what holds.

use super::jetstream::BoxError;
use crate::import::{Alarm, Import};
use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::pull::Config as PullConfig;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, Info};
use async_nats::jetstream::stream::Stream;
use ftb_client::{Client, Conditions, Event};
use futures_util::{Stream as Items, StreamExt as _};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::timeout;

/// Most subjects whose last alarm is read. Of more, nothing is stated again.
const SUBJECTS_MAX: u64 = 65_536;
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
    /// NATS or the agent does not answer, or not all alarms can be read.
    pub async fn lost(&self, client: &Client, import: &Import) -> Result<Vec<Event>, BoxError> {
        let mut messages = self.last_of_each().await?;
        messages.sort_by_key(|(sequence, ..)| *sequence);
        if !messages.iter().any(|(sequence, time_ns, _)| self.is_imported(*sequence, *time_ns)) {
            return Ok(Vec::new());
        }
        let (name, created) = self.named;
        let id = |sequence: &u64| format!("{name}.{created}.{sequence}");
        let ids: Vec<String> = messages.iter().map(|(sequence, ..)| id(sequence)).collect();
        let alarms = messages.iter().zip(&ids).map(|((sequence, time_ns, message), id)| {
            let (subject, payload) = (&message.subject, &message.payload);
            let is_imported = self.is_imported(*sequence, *time_ns);
            let time_ns = u64::try_from(*time_ns).unwrap_or(0);
            (Alarm { id, subject, payload, time_ns }, is_imported)
        });
        // A person may clear what an alarm has set in any event space.
        let mut conditions = Conditions::open(client, "condition=*").await?;
        conditions.load().await?;
        let known: BTreeSet<_> = conditions.states().map(|state| state.subject.clone()).collect();
        Ok(import.lost(alarms, &known))
    }

    fn is_imported(&self, sequence: u64, time_ns: i128) -> bool {
        sequence <= self.imported && time_ns >= self.since_ns
    }

    /// The last alarm of each subject: sequence, Unix nanoseconds, message.
    async fn last_of_each(&self) -> Result<Vec<(u64, i128, Message)>, BoxError> {
        let config = PullConfig {
            deliver_policy: DeliverPolicy::LastPerSubject,
            ack_policy: AckPolicy::None,
            filter_subject: self.subject.clone(),
            inactive_threshold: NEXT_MAX * 3,
            ..PullConfig::default()
        };
        let consumer = self.stream.create_consumer(config).await?;
        let waiting = consumer.cached_info().num_pending;
        let messages = consumer.messages().await?.map(|message| {
            let message = message?;
            let info = message.info()?;
            let (sequence, left) = (info.stream_sequence, info.pending);
            Ok((left, (sequence, info.published.unix_timestamp_nanos(), message)))
        });
        let found = all_of(waiting, messages).await;
        let name = consumer.cached_info().name.clone();
        if let Err(error) = self.stream.delete_consumer(&name).await {
            tracing::debug!(%error, name, "the server deletes a consumer later by itself");
        }
        found
    }
}

/// All of `left` items, each of which comes with the number that is left behind it. A part of them
/// would say that alarms hold whose end is in the rest.
async fn all_of<T>(
    mut left: u64,
    items: impl Items<Item = Result<(u64, T), BoxError>>,
) -> Result<Vec<T>, BoxError> {
    if left > SUBJECTS_MAX {
        return Err(format!("{left} subjects are more than {SUBJECTS_MAX}").into());
    }
    let mut items = core::pin::pin!(items);
    let mut found = Vec::new();
    while left > 0 {
        let next = timeout(NEXT_MAX, items.next()).await?;
        let (behind, item) = next.ok_or_else(|| format!("{left} subjects are not read"))??;
        found.push(item);
        left = behind;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use futures_util::stream;

    #[tokio::test]
    async fn all_alarms_are_read_or_none() {
        let alarms = || stream::iter((0..3_u64).map(|place| Ok((2 - place, place))));
        assert_eq!(all_of(3, alarms()).await.unwrap(), [0, 1, 2]);
        assert_eq!(all_of(0, alarms()).await.unwrap(), [0; 0]);
        let error = all_of(3, alarms().take(2)).await.unwrap_err();
        assert_eq!(error.to_string(), "1 subjects are not read");
        let error = all_of(SUBJECTS_MAX + 1, alarms()).await.unwrap_err();
        assert_eq!(error.to_string(), "65537 subjects are more than 65536");
    }
}
