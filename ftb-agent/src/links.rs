//! Links: gRPC streams between two agents, dialed or accepted.
//!
//! Responsible for: reaching an agent within a deadline, decoding what comes (hostile until then),
//! and telling the driver when a transport is there and when it is gone. Not responsible for: what
//! the frames mean, and when to dial.

use crate::egress::Egress;
use crate::gate::Peer;
use crate::handle::{Command, Handle, LinkOrigin};
use crate::hostile::Hostile;
use crate::outbox;
use crate::tls::Tls;
use crate::world::{BoxIo, Net};
use bytes::Bytes;
use ftb_core::frame::Frame;
use ftb_core::limits;
use ftb_core::node::api::{DialId, Input, LinkId};
use ftb_proto::link::decode;
use ftb_proto::raw::link_client::LinkClient;
use ftb_proto::raw::link_server;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status, Streaming};

/// Largest HTTP/2 frame on a link, in bytes: fewer, larger frames cost a third less.
pub const HTTP2_FRAME_BYTES: u32 = 64 * 1024;
/// What a link may have under way without being read, in bytes: enough for a batch per round trip.
pub const HTTP2_STREAM_BYTES: u32 = 4 * 1024 * 1024;
/// The same for the connection below it.
pub const HTTP2_CONNECTION_BYTES: u32 = 8 * 1024 * 1024;
/// Largest message of a link, in bytes: a frame and what its encoding adds.
pub const MESSAGE_BYTES_MAX: usize = limits::FRAME_BYTES_MAX + 64 * 1024;

/// What every link needs.
#[derive(Clone)]
pub struct Links {
    /// The driver.
    pub handle: Handle,
    /// Where misbehaviour is counted.
    pub hostile: Arc<Hostile>,
    /// The network.
    pub net: Arc<dyn Net>,
    /// Mutual TLS; `None` where the configuration says `insecure`.
    pub tls: Option<Arc<Tls>>,
    /// The tasks of all links.
    pub tasks: TaskTracker,
    /// Cancelled when the agent ends.
    pub ended: CancellationToken,
}

/// Whom to dial.
pub struct Dial {
    /// The core's attempt.
    pub id: DialId,
    /// Who should answer.
    pub host: String,
    /// Where.
    pub address: String,
    /// When to give up.
    pub deadline: Instant,
}

impl Links {
    /// Dials in a task of its own and tells the driver how it ended.
    pub fn dial(&self, dial: Dial) {
        let links = self.clone();
        let task = async move {
            let id = dial.id;
            let answered = AtomicBool::new(false);
            let connect = links.connect(&dial, &answered);
            let connected = tokio::time::timeout_at(dial.deadline, connect).await;
            let error = match connected {
                Ok(Ok(transport)) => return links.open_dialed(id, &dial.address, transport).await,
                Ok(Err(error)) => error,
                Err(_) => io::Error::new(io::ErrorKind::TimedOut, "no answer before the deadline"),
            };
            // A stopped agent's host still takes the connection: it must not pass for a dead one.
            let refused = error.kind() == io::ErrorKind::ConnectionRefused
                || answered.load(Ordering::Relaxed);
            let error = format!("{}: {error}", dial.address);
            let failed = Input::DialFailed { dial: id, error, refused };
            let _ = links.handle.link_input(failed, 0).await;
        };
        self.spawn(task);
    }

    /// Opens a link; `answered` is set as soon as the host has taken the connection.
    async fn connect(&self, dial: &Dial, answered: &AtomicBool) -> io::Result<Transport> {
        let mut io = self.net.dial(&dial.address).await?.io;
        answered.store(true, Ordering::Relaxed);
        if let Some(tls) = &self.tls {
            io = tls.connect(io, &dial.host).await?;
        }
        let channel = channel_over(io).await?;
        let mut client = LinkClient::new(channel.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let (outbox, receiver) = mpsc::channel(outbox::DEPTH);
        let cancel = self.ended.child_token();
        let frames = frames(receiver, cancel.clone());
        let response = client.exchange(Request::new(frames)).await;
        let inbound = response.map_err(|status| io::Error::other(words(&status)))?.into_inner();
        Ok(Transport { inbound, outbox, cancel, channel: Some(channel) })
    }

    async fn open_dialed(&self, dial: DialId, address: &str, transport: Transport) {
        let link = LinkId(self.handle.next_id());
        let Transport { inbound, outbox, cancel, channel } = transport;
        let opened = Command::LinkOpened {
            link,
            origin: LinkOrigin::Dialed(dial),
            outbox,
            cancel: cancel.clone(),
        };
        if self.handle.command(opened).await.is_ok() {
            self.receive(link, address, inbound, cancel, || true).await;
        }
        drop(channel);
    }

    /// Reads a link until it ends; `heard` is asked after each good frame whether the link may stay.
    async fn receive(
        &self,
        link: LinkId,
        peer: &str,
        mut inbound: Streaming<Bytes>,
        cancel: CancellationToken,
        heard: impl Fn() -> bool,
    ) {
        let error = loop {
            let message = tokio::select! {
                biased;
                () = cancel.cancelled() => break "closed here, or the connection broke".to_owned(),
                message = inbound.message() => message,
            };
            let message = match message {
                Ok(Some(message)) => message,
                Ok(None) => break "the peer ended the stream".to_owned(),
                Err(status) => break words(&status),
            };
            let bytes = message.len();
            let frame = match decode(message) {
                Ok(frame) => frame,
                Err(error) => {
                    self.hostile.count("link_malformed", peer, &error.to_string());
                    break format!("malformed frame: {error}");
                }
            };
            if !heard() {
                break "too many links".to_owned();
            }
            if self.handle.link_input(Input::Frame { link, frame }, bytes).await.is_err() {
                break "the agent is stopping".to_owned();
            }
        };
        cancel.cancel();
        let _ = self.handle.link_input(Input::LinkClosed { link, error }, 0).await;
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let ended = self.ended.clone();
        self.tasks.spawn(async move {
            ended.run_until_cancelled(task).await;
        });
    }
}

struct Transport {
    inbound: Streaming<Bytes>,
    outbox: mpsc::Sender<Frame>,
    cancel: CancellationToken,
    /// Holds the connection below the stream.
    channel: Option<Channel>,
}

fn frames(
    receiver: mpsc::Receiver<Frame>,
    cancel: CancellationToken,
) -> impl futures_util::Stream<Item = Frame> + Unpin + Send + 'static {
    Egress::new(receiver, Some, || None, cancel)
}

/// A gRPC channel over a stream that is there already; it never connects a second time.
pub async fn channel_over(io: BoxIo) -> io::Result<Channel> {
    let mut once = Some(TokioIo::new(io));
    let connector = tower::service_fn(move |_: tonic::codegen::http::Uri| {
        let io = once.take().ok_or(io::Error::from(io::ErrorKind::NotConnected));
        std::future::ready(io)
    });
    Endpoint::from_static("http://agent")
        .max_frame_size(HTTP2_FRAME_BYTES)
        .initial_stream_window_size(HTTP2_STREAM_BYTES)
        .initial_connection_window_size(HTTP2_CONNECTION_BYTES)
        .connect_with_connector(connector)
        .await
        .map_err(io::Error::other)
}

/// A status in one line: what it says, or what lies below it.
fn words(status: &Status) -> String {
    match status.message() {
        "" => status.code().description().to_owned(),
        message => message.replace('\n', " "),
    }
}

/// The server's half: other agents connect to it.
#[derive(Clone)]
pub struct LinkService(pub Links);

#[tonic::async_trait]
impl link_server::Link for LinkService {
    type ExchangeStream = BoxStream<'static, Result<Frame, Status>>;

    async fn exchange(
        &self,
        request: Request<Streaming<Bytes>>,
    ) -> Result<Response<Self::ExchangeStream>, Status> {
        let Some(peer) = request.extensions().get::<Peer>().cloned() else {
            return Err(Status::internal("the connection has no peer"));
        };
        peer.attach_once().map_err(|error| Status::already_exists(error.to_string()))?;
        let (outbox, receiver) = mpsc::channel(outbox::DEPTH);
        let cancel = self.0.ended.child_token();
        let egress = frames(receiver, cancel.clone());
        let (links, inbound) = (self.0.clone(), request.into_inner());
        self.0.spawn(async move {
            let link = LinkId(links.handle.next_id());
            let certified_hosts = peer.certified_hosts.as_ref().map(|hosts| hosts.to_vec());
            let opened = Command::LinkOpened {
                link,
                origin: LinkOrigin::Accepted { certified_hosts },
                outbox,
                cancel: cancel.clone(),
            };
            if links.handle.command(opened).await.is_err() {
                return;
            }
            let heard = || match peer.heard() {
                Ok(()) => true,
                Err(full) => {
                    links.hostile.count("links_refused", &peer.address, &full.to_string());
                    false
                }
            };
            links.receive(link, &peer.address, inbound, cancel, heard).await;
            peer.close();
        });
        Ok(Response::new(egress.map(Ok).boxed()))
    }
}
