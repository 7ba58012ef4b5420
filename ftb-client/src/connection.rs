//! The task that keeps a client attached: connects, sends, receives, and attempts again.
//!
//! Responsible for: the socket, deadlines, and the pauses between attempts. Not responsible for:
//! the messages ([`Session`]).

use crate::config::ClientConfig;
use crate::session::{Session, SessionError, Trouble};
use crate::shared::{Shared, random};
use crate::socket_watch::{Change, SocketWatch};
use crate::stream::{Outgoing, open};
use core::future::ready;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;
use ftb_proto::client::{ClientWireError, FromAgent};
use ftb_transport::executor::Executor;
use ftb_transport::stream::{InboundStream, StreamError};
use futures_core::Stream;
use hyper_util::rt::TokioIo;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};
use tonic::transport::{Channel, Endpoint};

/// Deadline of connecting. A healthy agent on the same host answers within milliseconds.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Deadline of the agent's answer to the hello.
const WELCOME_MAX: Duration = Duration::from_secs(10);
/// Deadline of the agent's answer to the Close message.
const LEAVE_MAX: Duration = Duration::from_secs(2);
/// The shortest pause between two attempts.
const RETRY_MIN: Duration = Duration::from_millis(20);
/// Why an attachment ended or failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error("{0}: {ask}", ask = unreachable(.0))]
    Unreachable(io::Error),
    #[error("it does not answer")]
    Silent,
    #[error("the agent ended the stream without a close message")]
    Lost,
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error(transparent)]
    Wire(#[from] ClientWireError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("closed")]
    Closed,
}

impl From<Ended> for Trouble {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Unreachable(_) => Self::NoAgent(ended.to_string()),
            Ended::Session(SessionError::Refused { code, message }) => {
                Self::Refused { code, message }
            }
            other => Self::Detached(other.to_string()),
        }
    }
}

/// What to do about a socket that cannot be connected.
fn unreachable(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "this user may not open the socket, or a folder on the way to it: mend their modes"
        }
        _ => "is ftb-agent running there?",
    }
}

/// Ends the session, also when the runtime drops the task.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.update(Session::end);
    }
}

/// Keeps the client attached until it is closed.
pub(crate) async fn run(shared: Arc<Shared>) {
    let _end = End(Arc::clone(&shared));
    let mut retry = Retry::new(&shared.config);
    let mut reported = String::new();
    loop {
        let attachments = shared.lock().attachments();
        let executor = Executor::default();
        // A client that has left has heard that its Close message was read: nothing is on its way.
        let attached = executor.run(attach(&shared, &executor), ready(()));
        let ended = attached.await;
        let why = ended.to_string();
        let attached = shared.lock().attachments() > attachments;
        if attached {
            retry.reset();
        }
        // One line per change, not per attempt.
        if attached || why != reported {
            tracing::info!(
                target: "ftb::transition",
                machine = "attachment",
                from = if attached { "attached" } else { "connecting" },
                to = "detached",
                why,
                "lost"
            );
            reported.clone_from(&why);
        }
        let unreachable = matches!(ended, Ended::Unreachable(_));
        shared.update(|session| session.detached(ended.into()));
        if shared.lock().is_closed() {
            break;
        }
        tokio::select! {
            () = shared.left() => break,
            () = retry.wait(unreachable) => {}
        }
    }
}

/// One attachment from connect to end; its connection runs in `executor`.
async fn attach(shared: &Arc<Shared>, executor: &Executor) -> Ended {
    let attached = async {
        let socket = socket(&shared.config.socket).await?;
        let generation = shared.lock().connected();
        let sender = OutgoingStream { shared: Arc::clone(shared), generation };
        let answer = timeout(WELCOME_MAX, open(executor, socket, sender)).await;
        let mut stream = answer.map_err(|_| Ended::Silent)?.map_err(StreamError::from)?;
        timeout(WELCOME_MAX, receive_once(shared, &mut stream))
            .await
            .map_err(|_| Ended::Silent)??;
        log_attached(shared);
        Ok::<_, Ended>(stream)
    };
    let leaving = || async {
        shared.left().await;
        sleep(LEAVE_MAX).await;
    };
    let mut stream = tokio::select! {
        attached = attached => match attached {
            Ok(stream) => stream,
            Err(ended) => return ended,
        },
        () = leaving() => return Ended::Closed,
    };
    let listen = async {
        loop {
            if let Err(ended) = receive_once(shared, &mut stream).await {
                return ended;
            }
        }
    };
    tokio::select! {
        ended = listen => ended,
        () = leaving() => Ended::Closed,
    }
}

fn log_attached(shared: &Shared) {
    if let Some(hello_ack) = shared.lock().hello_ack() {
        tracing::info!(
            target: "ftb::transition",
            machine = "attachment",
            from = "connecting",
            to = "attached",
            host = hello_ack.host,
            cluster = hello_ack.cluster,
            "attached"
        );
    }
}

async fn socket(path: &Path) -> Result<UnixStream, Ended> {
    let connected = match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => queued(path).await,
        connected => connected,
    };
    connected.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => Ended::Silent,
        _ => Ended::Unreachable(error),
    })
}

/// Connects to a socket whose queue is full, for example because another user connects without end.
/// The kernel queues only those that wait, so a thread waits, at most [`CONNECT_MAX`].
async fn queued(path: &Path) -> io::Result<UnixStream> {
    let address = SockAddr::unix(path)?;
    let waiting = tokio::task::spawn_blocking(move || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_write_timeout(Some(CONNECT_MAX))?;
        socket.connect(&address)?;
        socket.set_write_timeout(None)?;
        socket.set_nonblocking(true)?;
        io::Result::Ok(socket)
    });
    let socket = waiting.await.map_err(io::Error::other)??;
    UnixStream::from_std(socket.into())
}

/// A connection to the agent at that socket, for questions.
pub(crate) async fn connect(path: &Path) -> Result<Channel, Ended> {
    let mut socket = Some(TokioIo::new(socket(path).await?));
    // The address is not used: the socket is connected already.
    let endpoint = Endpoint::from_static("http://agent.invalid");
    let connector = tower::service_fn(move |_| {
        let socket = socket.take().ok_or_else(|| io::Error::other("the connection was lost"));
        ready(socket)
    });
    let channel = endpoint.connect_with_connector(connector);
    timeout(CONNECT_MAX, channel)
        .await
        .map_err(|_| Ended::Silent)?
        .map_err(|error| Ended::Unreachable(io::Error::other(error)))
}

/// Receives one message of the agent.
async fn receive_once(shared: &Shared, stream: &mut InboundStream) -> Result<(), Ended> {
    let message = stream.message().await?.ok_or(Ended::Lost)?;
    let message = FromAgent::decode(message)?;
    shared.try_update(|session| session.handle(message))?;
    Ok(())
}

/// The outgoing messages. The transport polls for the next message when it can send, so batches
/// grow while it cannot.
struct OutgoingStream {
    shared: Arc<Shared>,
    generation: u64,
}

impl Stream for OutgoingStream {
    type Item = Outgoing;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut session = self.shared.lock();
        // A stream of an earlier attachment must not replace the waker of the current one.
        if session.generation() != self.generation {
            return Poll::Ready(None);
        }
        // Polled for another reason, as after each message: there is nothing to send.
        if session.is_idle(context.waker()) {
            return Poll::Pending;
        }
        loop {
            match session.next_message() {
                Some(say) => return Poll::Ready(Some(say)),
                None if session.has_left() => return Poll::Ready(None),
                None if !session.watch_ack_interest(context.waker()) => {}
                None => {
                    session.sender = Some(context.waker().clone());
                    return Poll::Pending;
                }
            }
        }
    }
}

/// Decides when to attempt again.
struct Retry<'a> {
    socket: &'a Path,
    pauses: Pauses,
    /// Set while no agent listens at the socket.
    watch: Option<SocketWatch>,
}

impl<'a> Retry<'a> {
    fn new(config: &'a ClientConfig) -> Self {
        Self { socket: &config.socket, pauses: Pauses::new(config.retry_max), watch: None }
    }

    /// The last attempt attached.
    fn reset(&mut self) {
        self.pauses.reset();
        self.watch = None;
    }

    /// Waits until the next attempt is due: a pause, or less when the socket appears or changes.
    async fn wait(&mut self, unreachable: bool) {
        let Some(watch) = self.watch.as_mut().filter(|_| unreachable) else {
            self.watch = unreachable.then(|| SocketWatch::new(self.socket).ok()).flatten();
            if self.watch.is_none() {
                return sleep(self.pauses.next()).await;
            }
            // The watch reports an agent that comes from now on. One that came before it was set
            // is found by an attempt at once.
            return self.pauses.relax();
        };
        match timeout(self.pauses.next(), watch.changed()).await {
            Ok(Ok(Change::Socket)) => self.pauses.reset(),
            Ok(Ok(Change::Path)) => self.watch = None,
            Ok(Err(_)) => {
                self.watch = None;
                sleep(self.pauses.next()).await;
            }
            Err(_) => {}
        }
    }
}

/// The pauses between attempts: each up to twice the one before, jittered so that the clients of
/// one host do not come back all at once.
struct Pauses {
    next: Duration,
    max: Duration,
}

impl Pauses {
    fn new(max: Duration) -> Self {
        let max = max.max(RETRY_MIN);
        Self { next: RETRY_MIN, max }
    }

    fn reset(&mut self) {
        self.next = RETRY_MIN;
    }

    fn relax(&mut self) {
        self.next = self.max;
    }

    fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        // Between half and the whole of it.
        pause.mul_f64(0.5 + (random() >> 11) as f64 / (1_u64 << 54) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClientConfig;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Wake, Waker};

    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_stream_of_a_lost_attachment_does_not_deafen_the_present_one() {
        let shared = Arc::new(Shared::new(ClientConfig::new("test")));
        let sender = || {
            let generation = shared.lock().connected();
            OutgoingStream { shared: Arc::clone(&shared), generation }
        };
        let (mut old, mut new) = (sender(), sender());
        let woken = Arc::new(Flag(AtomicBool::new(false)));
        let waker = Arc::clone(&woken).into();
        let mut listening = Context::from_waker(&waker);
        let mut elsewhere = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut new).poll_next(&mut listening).is_ready(), "the hello");
        assert!(Pin::new(&mut new).poll_next(&mut listening).is_pending());
        assert!(matches!(Pin::new(&mut old).poll_next(&mut elsewhere), Poll::Ready(None)));
        shared.wake_sender();
        assert!(woken.0.load(Ordering::Relaxed));
    }

    #[test]
    fn a_socket_that_may_not_be_opened_is_not_taken_for_a_missing_agent() {
        let text = |kind: io::ErrorKind| Ended::Unreachable(kind.into()).to_string();
        assert!(
            text(io::ErrorKind::PermissionDenied).contains("this user may not open the socket")
        );
        assert!(text(io::ErrorKind::NotFound).ends_with("is ftb-agent running there?"));
    }

    #[test]
    fn pauses_grow_to_their_bound_and_begin_again() {
        let max = Duration::from_millis(100);
        let mut pauses = Pauses::new(max);
        assert!(pauses.next() <= RETRY_MIN);
        for _ in 0..10 {
            let pause = pauses.next();
            assert!(pause <= max && pause >= RETRY_MIN / 2);
        }
        assert!(pauses.next() >= max / 2);
        pauses.reset();
        assert!(pauses.next() <= RETRY_MIN);
    }
}
