//! Links: gRPC streams between two agents, dialed or accepted.
//!
//! A link dials an agent within a deadline, decodes and checks received frames, and reports to the
//! driver when its transport opens and closes. Not responsible for: the meaning of frames, and when
//! to dial.

use crate::handle::{Command, Handle, LinkOrigin};
use crate::signing::{Neighbour, Signing, brought};
use crate::transports;
use crate::world::Net;
use ftb_core::PublisherId;
use ftb_core::frame::Frame;
use ftb_core::limits;
use ftb_core::node::api::{DialId, HostAnswer, Input, LinkId};
use ftb_proto::link::{EXCHANGE_METHOD, decode};
use ftb_proto::wire::Outbound as _;
use ftb_transport::executor::Executor;
use ftb_transport::frame_body::FrameBody;
use ftb_transport::limiter::Peer;
use ftb_transport::outbound::OutboundStream;
use ftb_transport::peer_errors::PeerErrors;
use ftb_transport::stream::client::open_stream;
use ftb_transport::stream::server::StreamService;
use ftb_transport::stream::{InboundStream, StreamError, Windows};
use ftb_transport::tls::trust::PeerTrust;
use ftb_transport::tls::{Tls, is_distrust};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::Status;
use tonic::codegen::http::Extensions;

/// A batch of full size fits into one frame, and the windows hold enough of them for a round trip.
pub const WINDOWS: Windows = Windows {
    stream_bytes: 4 * 1024 * 1024,
    connection_bytes: 8 * 1024 * 1024,
    frame_bytes: 512 * 1024,
    unsent_bytes: UNSENT_BYTES,
};
/// Bytes that the socket has not taken; more waits in the core.
pub const UNSENT_BYTES: usize = 256 * 1024;
/// Largest message of a link, in bytes: a frame and its encoding.
pub const MESSAGE_BYTES_MAX: usize = limits::FRAME_BYTES_MAX + 64 * 1024;

/// Time for the last frames of an ended link.
const LINGER: Duration = Duration::from_secs(1);

/// Shared parts of all links.
#[derive(Clone)]
pub struct Links {
    /// The driver.
    pub handle: Handle,
    /// Counters of peer errors.
    pub errors: Arc<PeerErrors>,
    /// The network.
    pub net: Arc<dyn Net>,
    /// Mutual TLS; `None` with `insecure`.
    pub tls: Option<Arc<Tls>>,
    /// Verifies events of other agents.
    pub signing: Arc<Signing>,
    /// The tasks, one for each link.
    pub tasks: TaskTracker,
    /// Cancelled when the agent ends.
    pub ended: CancellationToken,
}

/// An agent to dial.
pub struct Dial {
    /// The core's attempt.
    pub id: DialId,
    /// The expected host.
    pub host: String,
    /// Its address.
    pub address: String,
    /// The dial fails at this time.
    pub deadline: Instant,
}

impl Links {
    /// Dials in a task of its own and reports the result to the driver.
    pub fn dial(&self, dial: Dial) {
        let (links, executor) = (self.clone(), Executor::default());
        // The last frames may still be in the connection.
        let linger = async { tokio::time::sleep(LINGER).await };
        self.spawn(
            async move { executor.run(links.dial_and_receive(&dial, &executor), linger).await },
        );
    }

    /// A link from its dial to its end. Its connection runs in `executor`.
    async fn dial_and_receive(&self, dial: &Dial, executor: &Executor) {
        let answered = AtomicBool::new(false);
        let connect = self.connect(dial, &answered, executor);
        let error = match tokio::time::timeout_at(dial.deadline, connect).await {
            Ok(Ok(transport)) => return self.open_dialed(dial, transport).await,
            Ok(Err(error)) => error,
            Err(_) => io::Error::new(io::ErrorKind::TimedOut, "no answer before the deadline"),
        };
        // The host of a stopped agent refuses the connection, and a stopping agent may reset it:
        // the host is alive.
        let refusals = [io::ErrorKind::ConnectionRefused, io::ErrorKind::ConnectionReset];
        let answer = match refusals.contains(&error.kind()) {
            true => HostAnswer::Refused,
            false if answered.load(Ordering::Relaxed) => HostAnswer::Taken,
            false => HostAnswer::Nothing,
        };
        let error = format!("{}: {error}", dial.address);
        let failed = Input::DialFailed { dial: dial.id, error, answer };
        let _ = self.handle.link_input(failed, 0).await;
    }

    /// Opens a link; sets `answered` once the host has accepted the connection.
    async fn connect(
        &self,
        dial: &Dial,
        answered: &AtomicBool,
        executor: &Executor,
    ) -> io::Result<Transport> {
        let mut io = self.net.dial(&dial.address).await?.io;
        answered.store(true, Ordering::Relaxed);
        let mut trust = None;
        if let Some(tls) = &self.tls {
            let distrusted = |error: &io::Error| self.distrusted(dial, error);
            let (encrypted, peer) = tls.connect(io, &dial.host).await.inspect_err(distrusted)?;
            (io, trust) = (encrypted, Some(peer));
        }
        let (outbox, receiver) = mpsc::channel(transports::DEPTH);
        let cancel = self.ended.child_token();
        let frames = frames(receiver, cancel.clone());
        let answer =
            open_stream(executor, io, WINDOWS, EXCHANGE_METHOD, frames, MESSAGE_BYTES_MAX).await;
        let inbound = answer.map_err(|status| io::Error::other(StreamError::from(status)))?;
        if let Some(trust) = &trust {
            trust.bind(&cancel);
        }
        Ok(Transport { inbound, outbox, cancel, trust })
    }

    /// Logs a rejected certificate: for the core it looks like a silent host.
    fn distrusted(&self, dial: &Dial, error: &io::Error) {
        if is_distrust(error) {
            let peer = format!("{} at {}", dial.host, dial.address);
            self.errors.count("handshake_failed", &peer, &error.to_string());
        }
    }

    async fn open_dialed(&self, dial: &Dial, transport: Transport) {
        let link = LinkId(self.handle.next_id());
        let Transport { inbound, outbox, cancel, trust } = transport;
        let opened = Command::LinkOpened {
            link,
            origin: LinkOrigin::Dialed(dial.id),
            outbox,
            cancel: cancel.clone(),
        };
        if self.handle.command(opened).await.is_ok() {
            let peer = format!("{} at {}", dial.host, dial.address);
            let from = (Neighbour::Above, &peer[..]);
            self.receive(link, from, inbound, cancel, || true, trust.as_deref()).await;
        }
    }

    /// Reads a link until it ends; `heard` decides after each valid frame whether it may stay.
    async fn receive(
        &self,
        link: LinkId,
        (from, peer): (Neighbour, &str),
        mut inbound: InboundStream,
        cancel: CancellationToken,
        heard: impl Fn() -> bool,
        trust: Option<&PeerTrust>,
    ) {
        // One future for all frames: a new one for each frame is slower than the rest of its path.
        let mut cancelled = pin!(cancel.cancelled());
        let error = loop {
            let message = tokio::select! {
                biased;
                () = &mut cancelled => break match trust.and_then(PeerTrust::distrust) {
                    None => "closed here, or the connection broke".to_owned(),
                    Some(why) => {
                        self.errors.count("link_distrusted", peer, &why);
                        why
                    }
                },
                message = inbound.message() => message,
            };
            let message = match message {
                Ok(Some(message)) => message,
                Ok(None) => break "the peer ended the stream".to_owned(),
                Err(StreamError::Malformed(what)) => {
                    self.errors.count("link_malformed", peer, &what);
                    break what;
                }
                Err(torn) => break torn.to_string(),
            };
            let bytes = message.len();
            let mut frame = match decode(message) {
                Ok(frame) => frame,
                Err(error) => {
                    self.errors.count("link_malformed", peer, &error.to_string());
                    break format!("malformed frame: {error}");
                }
            };
            if !heard() {
                break "too many links".to_owned();
            }
            if let Some(what) = foreign_publisher(&mut frame, from) {
                self.errors.count("publishers_foreign", peer, &what);
                break what;
            }
            let frame = self.signing.admit(frame, peer, from);
            if self.handle.link_input(Input::Frame { link, frame }, bytes).await.is_err() {
                break "the agent is stopping".to_owned();
            }
        };
        cancel.cancel();
        let _ = self.handle.link_input(Input::LinkClosed { link, error }, 0).await;
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let ended = self.ended.clone();
        let task = async move {
            ended.run_until_cancelled(task).await;
        };
        self.tasks.spawn(task);
    }
}

/// An event on its way up, or in a log that a child brings, whose publisher id is not of its host
/// and user: it would use up the sequence numbers of another publisher.
fn foreign_publisher(frame: &mut Frame, from: Neighbour) -> Option<String> {
    let mut runs = brought(frame, from);
    runs.find_map(|run| {
        let mut events = run.groups().map(|(_, event)| event);
        let foreign = events.find(|event| {
            let account = PublisherId::account_of(event.host(), event.head().uid);
            event.id().publisher.account != account
        })?;
        let (host, uid) = (foreign.host(), foreign.head().uid);
        Some(format!("an event of user {uid} of {host} has the publisher id of another account"))
    })
}

struct Transport {
    inbound: InboundStream,
    outbox: mpsc::Sender<Frame>,
    cancel: CancellationToken,
    trust: Option<Arc<PeerTrust>>,
}

fn frames(receiver: mpsc::Receiver<Frame>, cancel: CancellationToken) -> Frames {
    let encode = |frame: Frame| Some(FrameBody::message(frame.into_slices()));
    OutboundStream::new(receiver, encode, None, cancel)
}

/// The frames sent on a link.
type Frames = OutboundStream<Frame>;

/// The accepting side of links.
#[derive(Clone)]
pub struct LinkService(pub Links);

impl StreamService for LinkService {
    const METHOD: &'static str = EXCHANGE_METHOD;
    const MESSAGE_BYTES_MAX: usize = MESSAGE_BYTES_MAX;
    type Messages = Frames;

    fn accept(
        &self,
        connection: &Extensions,
        inbound: InboundStream,
        executor: &Executor,
    ) -> Result<Frames, Status> {
        let Some(peer) = connection.get::<Peer>().cloned() else {
            return Err(Status::internal("the connection has no peer"));
        };
        peer.claim_stream().map_err(|error| Status::already_exists(error.to_string()))?;
        let (outbox, receiver) = mpsc::channel(transports::DEPTH);
        let cancel = self.0.ended.child_token();
        let outbound = frames(receiver, cancel.clone());
        let links = self.0.clone();
        executor.spawn(async move {
            if let Some(trust) = peer.trust() {
                trust.bind(&cancel);
            }
            let link = LinkId(links.handle.next_id());
            let certified_hosts = peer.certified_hosts().map(<[String]>::to_vec);
            let opened = Command::LinkOpened {
                link,
                origin: LinkOrigin::Accepted { certified_hosts },
                outbox,
                cancel: cancel.clone(),
            };
            if links.handle.command(opened).await.is_err() {
                return;
            }
            let heard = || match peer.on_hello() {
                Ok(()) => true,
                Err(full) => {
                    links.errors.count("links_refused", peer.address(), &full.to_string());
                    false
                }
            };
            let from = (Neighbour::Below, &**peer.address());
            links.receive(link, from, inbound, cancel, heard, peer.trust()).await;
            peer.close();
        });
        Ok(outbound)
    }
}
