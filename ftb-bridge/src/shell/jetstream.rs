//! Connections to NATS, and the stream of the export. Only the bridges of its cluster write to
//! that stream.

use crate::cloud_event::{CONTENT_TYPE, Message, subject_of};
use crate::config::{ExportConfig, NatsConfig};
use crate::export::Tail;
use async_nats::jetstream::context::{ContextBuilder, PublishError};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::stream::{self, LastRawMessageErrorKind};
use async_nats::jetstream::{self, Context};
use async_nats::{ConnectOptions, Event};
use ftb_client::Position;
use futures_util::future::BoxFuture;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The header with the position of a message in the log of the cluster.
pub const POSITION: &str = "Ftb-Position";
/// How long the server may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Largest message before the server has said what it takes, in bytes: its default.
const MESSAGE_BYTES_DEFAULT: usize = 1 << 20;
/// Longest pause between two attempts to reach a server.
const RECONNECT_MAX: Duration = Duration::from_secs(2);

/// What the server says, and why something was not done.
pub type BoxError = Box<dyn Error + Send + Sync>;
/// The answer to a message.
pub type Answer = BoxFuture<'static, Result<PublishAck, PublishError>>;

/// Connects in the background, again and again. Each connection wakes `connected`.
///
/// # Errors
/// A file of the configuration cannot be used.
pub async fn connect(config: &NatsConfig, connected: Arc<Notify>) -> Result<Context, BoxError> {
    let mut options = ConnectOptions::new()
        .name("ftb-bridge")
        .retry_on_initial_connect()
        .reconnect_delay_callback(|attempts| {
            let attempts = u32::try_from(attempts).unwrap_or(u32::MAX).min(8);
            (Duration::from_millis(20) * 2_u32.pow(attempts)).min(RECONNECT_MAX)
        })
        .event_callback(move |event| {
            if event == Event::Connected {
                connected.notify_one();
            }
            async move { tracing::info!(%event, "NATS") }
        });
    if let Some(ca) = &config.ca {
        options = options.add_root_certificates(ca.clone()).require_tls(true);
    }
    if let Some((cert, key)) = &config.identity {
        options = options.add_client_certificate(cert.clone(), key.clone()).require_tls(true);
    }
    if let Some(credentials) = &config.credentials {
        let named = |error| format!("{}: {error}", credentials.display());
        options = options.credentials_file(credentials).await.map_err(named)?;
    }
    let client = options.connect(&config.servers).await?;
    Ok(ContextBuilder::new().timeout(ANSWER_MAX).ack_timeout(ANSWER_MAX).build(client))
}

/// The stream of the export.
#[derive(Clone, Debug)]
pub struct JetStream {
    context: Context,
    config: stream::Config,
}

impl JetStream {
    /// That of a cluster.
    pub fn new(context: Context, cluster: &str, config: &ExportConfig) -> Self {
        let is_good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let of_cluster = || {
            let name = cluster.chars().map(|c| if is_good(c) { c } else { '_' });
            format!("FTB_{}", name.collect::<String>())
        };
        let config = stream::Config {
            name: config.stream.clone().unwrap_or_else(of_cluster),
            subjects: vec![format!("{}.>", subject_of(cluster))],
            num_replicas: config.replicas,
            max_bytes: config.max_bytes,
            max_age: config.max_age,
            storage: stream::StorageType::File,
            ..stream::Config::default()
        };
        Self { context, config }
    }

    /// The largest message that the server takes, in bytes.
    pub fn message_bytes_max(&self) -> usize {
        match self.context.client().server_info().max_payload {
            0 => MESSAGE_BYTES_DEFAULT,
            max => max,
        }
    }

    /// The end of the stream. A stream that is missing is created.
    ///
    /// # Errors
    /// The server does not answer, or the stream has other subjects.
    pub async fn tail(&self) -> Result<Tail, BoxError> {
        let mut stream = self.context.get_or_create_stream(self.config.clone()).await?;
        let info = stream.info().await?;
        if info.config.subjects != self.config.subjects {
            let (name, wanted) = (&self.config.name, &self.config.subjects);
            let found = &info.config.subjects;
            return Err(
                format!("stream {name} must have subjects {wanted:?}, not {found:?}").into()
            );
        }
        let sequence = info.state.last_sequence;
        let last = match stream.get_last_raw_message_by_subject(&self.config.subjects[0]).await {
            Ok(last) => last,
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => {
                return Ok(Tail { sequence, last: None });
            }
            Err(error) => return Err(error.into()),
        };
        let header = |name: &str| {
            let value = last.headers.get(name).map(|value| value.as_str().to_owned());
            value.ok_or_else(|| format!("the last message of {} has no {name}", self.config.name))
        };
        let (id, position) = (header("Nats-Msg-Id")?, header(POSITION)?.parse::<Position>()?);
        Ok(Tail { sequence: sequence.max(last.sequence), last: Some((id, position)) })
    }

    /// Sends a message that the server appends only behind that sequence.
    pub async fn send(&self, message: Message, after: u64) -> Answer {
        let publish = PublishMessage::build()
            .message_id(&message.id)
            .header("content-type", CONTENT_TYPE)
            .header(POSITION, message.position.to_string())
            .expected_stream(&self.config.name)
            .expected_last_sequence(after)
            .payload(message.body);
        match self.context.send_publish(message.subject, publish).await {
            Ok(answer) => Box::pin(answer.into_future()),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}

/// The contexts of JetStream's clients.
pub type JetStreamContext = jetstream::Context;
