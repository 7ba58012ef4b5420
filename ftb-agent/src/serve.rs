//! Listening sockets: accept, gate, handshake, gRPC.
//!
//! Responsible for: that no connection holds up another: handshakes run beside each other, their
//! number bounded by the gate. Not responsible for: what the services do.

use crate::admin::AdminService;
use crate::clients::Clients;
use crate::gate::{Gate, Served};
use crate::links::{self, LinkService};
use crate::tls::Tls;
use crate::world::Listener;
use ftb_proto::stream::Answering;
use ftb_proto::v1;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::Server;

/// Accepted connections that may wait for the gRPC server.
const SERVED_WAITING_MAX: usize = 64;
/// After a failed accept (no file descriptors left, for example) the next one waits so long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Streams that a connection may have open at once: one long one and a few questions.
const STREAMS_MAX: u32 = 8;
/// What a client may send ahead of what the agent reads, in bytes.
const CLIENT_WINDOW_BYTES: u32 = 512 * 1024;
/// Largest list of HTTP headers, in bytes.
const HEADERS_BYTES_MAX: u32 = 16 * 1024;

/// What serving tasks share.
pub struct Sockets {
    /// The tasks.
    pub tasks: TaskTracker,
    /// Cancelled: accept nobody any more.
    pub closing: CancellationToken,
    /// Cancelled: end at once.
    pub ended: CancellationToken,
}

impl Sockets {
    /// Serves other agents.
    pub fn serve_links(
        &self,
        listener: Box<dyn Listener>,
        gate: Arc<Gate>,
        tls: Option<Arc<Tls>>,
        service: LinkService,
    ) {
        let router = server(links::HTTP2_STREAM_BYTES, links::HTTP2_CONNECTION_BYTES)
            .add_service(Answering(service));
        let incoming = self.accept(listener, gate, tls);
        let closing = self.closing.clone().cancelled_owned();
        self.spawn(async move {
            served(router.serve_with_incoming_shutdown(incoming, closing).await);
        });
    }

    /// Serves clients and administrators of this host.
    pub fn serve_clients(
        &self,
        listener: Box<dyn Listener>,
        gate: Arc<Gate>,
        clients: Clients,
        admin: AdminService,
    ) {
        let router = server(CLIENT_WINDOW_BYTES, CLIENT_WINDOW_BYTES)
            .add_service(Answering(clients))
            .add_service(v1::admin_server::AdminServer::new(admin));
        let incoming = self.accept(listener, gate, None);
        let closing = self.closing.clone().cancelled_owned();
        self.spawn(async move {
            served(router.serve_with_incoming_shutdown(incoming, closing).await);
        });
    }

    /// Accepts until the agent closes; the listener is dropped then.
    fn accept(
        &self,
        mut listener: Box<dyn Listener>,
        gate: Arc<Gate>,
        tls: Option<Arc<Tls>>,
    ) -> ReceiverStream<io::Result<Served>> {
        let (sender, receiver) = mpsc::channel(SERVED_WAITING_MAX);
        let (closing, tasks, ended) =
            (self.closing.clone(), self.tasks.clone(), self.ended.clone());
        self.spawn(async move {
            while let Some(accepted) = closing.run_until_cancelled(listener.accept()).await {
                let conn = match accepted {
                    Ok(conn) => conn,
                    Err(error) => {
                        let address = listener.address();
                        gate.hostile().count("accept_failed", &address, &error.to_string());
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        continue;
                    }
                };
                let guarded = gate.admit(conn);
                let Some(tls) = tls.clone() else {
                    if sender.send(Ok(Served::plain(guarded))).await.is_err() {
                        return;
                    }
                    continue;
                };
                // A handshake waits for its peer, the others must not wait for it.
                let (sender, gate, ended) = (sender.clone(), Arc::clone(&gate), ended.clone());
                tasks.spawn(ended.run_until_cancelled_owned(async move {
                    let address = Arc::clone(&guarded.peer().address);
                    match tls.accept(guarded).await {
                        Ok(served) => drop(sender.send(Ok(served)).await),
                        Err(error) => {
                            gate.hostile().count("handshake_failed", &address, &error.to_string());
                        }
                    }
                }));
            }
        });
        ReceiverStream::new(receiver)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let ended = self.ended.clone();
        self.tasks.spawn(async move {
            ended.run_until_cancelled(task).await;
        });
    }
}

fn server(stream_bytes: u32, connection_bytes: u32) -> Server {
    Server::builder()
        .max_frame_size(links::HTTP2_FRAME_BYTES)
        .initial_stream_window_size(stream_bytes)
        .initial_connection_window_size(connection_bytes)
        .max_concurrent_streams(STREAMS_MAX)
        .http2_max_header_list_size(HEADERS_BYTES_MAX)
}

fn served(result: Result<(), tonic::transport::Error>) {
    if let Err(error) = result {
        tracing::error!(%error, "a listening socket is not served any more");
    }
}
