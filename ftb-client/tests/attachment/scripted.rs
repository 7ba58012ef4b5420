//! The other end of the socket, played line by line by a test: what a client says comes out of
//! [`Attachment::next`], what the test wants said goes in with [`Attachment::say`].

use ftb_core::protocol::{FEATURES, PROTOCOL};
use ftb_core::{Epoch, Event, EventId, OriginId, Position, PublisherId, Sealed};
use ftb_proto::client::{FromClient, Hello, HelloAck};
use ftb_proto::event::{Stamps, encode_event, seal};
use ftb_proto::v1;
use ftb_proto::v1::clients_server::{Clients, ClientsServer};
use prost::Message as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status, Streaming};

/// Long enough that only a hang reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
pub(crate) const ACCOUNT: u64 = 77;

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it must happen, and did not")
}

pub(crate) struct Agent {
    attachments: mpsc::Receiver<Attachment>,
    stop: Option<oneshot::Sender<()>>,
    server: tokio::task::JoinHandle<()>,
    socket: PathBuf,
}

pub(crate) struct Attachment {
    inbound: Streaming<v1::ToAgent>,
    outbound: mpsc::Sender<Result<v1::ToClient, Status>>,
}

struct Service(mpsc::Sender<Attachment>);

#[tonic::async_trait]
impl Clients for Service {
    type AttachStream = ReceiverStream<Result<v1::ToClient, Status>>;

    async fn attach(
        &self,
        request: Request<Streaming<v1::ToAgent>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let (outbound, stream) = mpsc::channel(64);
        let attachment = Attachment { inbound: request.into_inner(), outbound };
        self.0.send(attachment).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

impl Agent {
    pub(crate) fn start(socket: &Path) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let (sender, attachments) = mpsc::channel(8);
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tonic::transport::Server::builder()
            .add_service(ClientsServer::new(Service(sender)))
            .serve_with_incoming_shutdown(UnixListenerStream::new(listener), async {
                let _ = stopped.await;
            });
        let server = tokio::spawn(async { server.await.unwrap() });
        Self { attachments, stop: Some(stop), server, socket: socket.to_owned() }
    }

    /// The next client that attaches, before its hello.
    pub(crate) async fn attachment(&mut self) -> Attachment {
        soon(self.attachments.recv()).await.unwrap()
    }

    /// The next client that attaches, greeted.
    pub(crate) async fn welcomed(&mut self) -> Attachment {
        let mut attachment = self.attachment().await;
        attachment.hello().await;
        attachment.say(welcome(1000).encode()).await;
        attachment
    }

    /// Dies without a goodbye.
    pub(crate) async fn kill(mut self) {
        drop(self.stop.take());
        self.server.abort();
        drop(self.attachments);
        std::fs::remove_file(&self.socket).unwrap();
    }
}

pub(crate) fn welcome(payload_bytes_max: usize) -> HelloAck {
    HelloAck {
        protocol: PROTOCOL.max,
        features: FEATURES,
        cluster: "test".to_owned(),
        host: "node1".to_owned(),
        origin: OriginId(5),
        account: ACCOUNT,
        payload_bytes_max,
    }
}

impl Attachment {
    pub(crate) async fn next(&mut self) -> Option<FromClient> {
        let message = soon(self.inbound.message()).await.ok()??;
        Some(FromClient::decode(message.encode_to_vec().into()).unwrap())
    }

    pub(crate) async fn hello(&mut self) -> Hello {
        match self.next().await {
            Some(FromClient::Hello(hello)) => hello,
            other => panic!("{other:?} is no hello"),
        }
    }

    pub(crate) async fn say(&mut self, message: v1::ToClient) {
        soon(self.outbound.send(Ok(message))).await.unwrap();
    }

    /// The next `count` events that the client publishes: sequence, whether again, payload.
    pub(crate) async fn published(&mut self, count: usize) -> Vec<(u64, bool, String)> {
        let mut published = Vec::new();
        while published.len() < count {
            match self.next().await {
                Some(FromClient::Publish { first_seq, events, again, .. }) => {
                    published.extend((first_seq..).zip(events).map(|(seq, bytes)| {
                        let event = ftb_proto::event::decode_event(&bytes).unwrap();
                        let text = String::from_utf8(event.payload.to_vec()).unwrap();
                        (seq, again, text)
                    }));
                }
                other => panic!("{other:?} publishes nothing"),
            }
        }
        published
    }
}

pub(crate) fn at(index: u64) -> Position {
    Position { epoch: Epoch { number: 1, root: OriginId(5) }, index: index.into() }
}

/// An event as it comes from somewhere in the cluster.
pub(crate) fn sealed(seq: u64) -> Sealed {
    let mut event = Event::new("ftb.test".parse().unwrap(), "X".parse().unwrap());
    event.payload = format!("event {seq}").into();
    let publisher = PublisherId { account: 8, token: 9 };
    let id = EventId { publisher, seq: seq.into() };
    let stamps = Stamps { id, host: "node9", uid: 0, pid: 1, republished: false };
    seal(&stamps, &encode_event(&event), 1000).unwrap()
}
