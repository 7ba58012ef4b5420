//! The shell of the export: reads the log, sends, awaits answers.

use super::jetstream::{Answer, JetStream};
use super::state::SharedState;
use crate::cloud_event::{Choice, Encoder};
use crate::export::{Export, Input, Output};
use crate::service::Part;
use ftb_client::daemon::Failure;
use ftb_client::{Client, Delivery, Start, Subscription};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep_until};

/// The export of one cluster.
pub struct Exporter<'a> {
    client: &'a Client,
    stream: JetStream,
    /// Woken by each new connection.
    connected: Arc<Notify>,
    choice: Choice,
    state: &'a SharedState,
    export: Export,
    encoder: Encoder,
    began: Instant,
    subscription: Option<Subscription>,
    answers: FuturesOrdered<Answer>,
    /// When the end of the stream must be read.
    tail_at: Option<Instant>,
    /// Messages that were not appended, since the last one that was.
    failed_messages: u32,
}

impl<'a> Exporter<'a> {
    /// Goes on from the state.
    pub fn new(
        client: &'a Client,
        stream: JetStream,
        connected: Arc<Notify>,
        choice: Choice,
        state: &'a SharedState,
    ) -> Self {
        let saved = state.get();
        let encoder = Encoder::new(&saved.cluster, stream.message_bytes_max());
        Self {
            client,
            stream,
            connected,
            choice,
            state,
            export: Export::new(saved.place),
            encoder,
            began: Instant::now(),
            subscription: None,
            answers: FuturesOrdered::new(),
            tail_at: Some(Instant::now()),
            failed_messages: 0,
        }
    }

    /// Exports until the subscription ends.
    ///
    /// # Errors
    /// The agent refuses the subscription.
    pub async fn run(mut self) -> Result<(), Failure> {
        loop {
            let was_sending = self.export.is_sending();
            let input = self.next().await?;
            let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
            let mut outputs = Vec::new();
            self.export.handle(now_ms, input, &mut outputs);
            for output in outputs {
                self.carry_out(output).await?;
            }
            let (place, counts) = (self.export.place(), self.export.counts());
            let is_active = self.export.is_sending();
            if is_active != was_sending {
                tracing::info!(is_active, sequence = place.sequence, "export");
            }
            self.state.change(|state| {
                (state.place, state.export, state.is_active) = (place, counts, is_active);
            });
        }
    }

    async fn carry_out(&mut self, output: Output) -> Result<(), Failure> {
        match output {
            Output::ReadTail { at_ms } => {
                self.answers = FuturesOrdered::new();
                self.tail_at = Some(self.began + Duration::from_millis(at_ms));
            }
            Output::Subscribe(position) => {
                self.answers = FuturesOrdered::new();
                let start = position.map_or(Start::SinceNs(0), Start::After);
                tracing::info!(?start, "reading the log");
                self.subscription = None;
                self.subscription = Some(self.client.subscribe("", start).await?);
                self.encoder =
                    Encoder::new(&self.state.get().cluster, self.stream.message_bytes_max());
            }
            Output::Publish(message, after) => {
                let answer = self.stream.send(message, after).await;
                self.answers.push_back(answer);
            }
        }
        Ok(())
    }

    async fn next(&mut self) -> Result<Input, Failure> {
        if let Some(at) = self.tail_at {
            sleep_until(at).await;
            self.tail_at = None;
            return Ok(match self.stream.tail().await {
                Ok(tail) => {
                    // A message that failed before may fail again.
                    if self.failed_messages == 0 {
                        self.state.succeeded(Part::Export);
                    }
                    Input::Tail(tail)
                }
                Err(error) => {
                    tracing::warn!(error, "the end of the stream cannot be read");
                    self.state.failed(Part::Export, &error.to_string());
                    Input::Failed
                }
            });
        }
        let subscription = self.subscription.as_mut().filter(|_| self.export.wants_more());
        let delivery = async {
            match subscription {
                Some(subscription) => (subscription.next().await, subscription.ended()),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.connected.notified() => Ok(Input::Reconnected),
            Some(answer) = self.answers.next() => Ok(match answer {
                Ok(ack) => {
                    self.failed_messages = 0;
                    self.state.succeeded(Part::Export);
                    Input::Acked { sequence: ack.sequence, is_duplicate: ack.duplicate }
                }
                Err(error) => {
                    tracing::info!(%error, "a message was not appended");
                    self.failed_messages = self.failed_messages.saturating_add(1);
                    self.state.failed(Part::Export, &error.to_string());
                    Input::Failed
                }
            }),
            (delivery, ended) = delivery => match delivery {
                Some(delivery) => self.read(&delivery),
                None => Err(match ended {
                    Some(why) => why.into(),
                    None => Failure::failed("the subscription has ended"),
                }),
            },
        }
    }

    fn read(&self, delivery: &Delivery) -> Result<Input, Failure> {
        Ok(match delivery {
            Delivery::Event(received) => {
                let wanted = self.choice.wants(received);
                let message = wanted.then(|| self.encoder.event(received)).transpose()?;
                Input::Read(received.position, message)
            }
            Delivery::Gap(gap) => Input::Read(gap.until, Some(self.encoder.gap(gap)?)),
        })
    }
}
