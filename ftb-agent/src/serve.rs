//! Listening sockets: accept, connection limiter, TLS handshake, gRPC.
//!
//! Handshakes run concurrently, so that no connection delays another; the limiter bounds their
//! number. Not responsible for: the services.

use crate::clients::Clients;
use crate::links::{self, LinkService};
use crate::nvhcd::HealthService;
use crate::world::Listener;
use ftb_proto::nvhcd::health_check_service_server::HealthCheckServiceServer;
use ftb_proto::v1::admin_server::AdminServer;
use ftb_transport::limiter::{ConnectionLimiter, InspectedIo, LimitedIo};
use ftb_transport::stream::Windows;
use ftb_transport::stream::server::{Server, StreamService};
use ftb_transport::tls::Tls;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::codegen::http::Extensions;
use tonic::service::Routes;

/// Connections of users that connect too often, which are dropped in a row; then a pause, so that
/// they cost a part of a processor only.
const DROPPED_IN_A_ROW: u32 = 32;
const DROPPED_PAUSE: Duration = Duration::from_millis(1);
/// Pause after a failed accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Bytes that a client may send before the agent reads them.
const CLIENT_WINDOW_BYTES: u32 = 512 * 1024;
/// Bytes that the socket has not taken, for each connection of a user with many connections.
const CROWDED_UNSENT_BYTES: usize = 32 * 1024;

/// The next connection, admitted by its limiter; `None` when the agent closes. A failed accept is
/// counted and repeated after a pause.
pub(crate) async fn next_connection(
    listener: &mut dyn Listener,
    limiter: &Arc<ConnectionLimiter>,
    closing: &CancellationToken,
) -> Option<LimitedIo> {
    // A user that connects without end does not keep the driver waiting.
    tokio::task::yield_now().await;
    let mut dropped = 0;
    loop {
        match closing.run_until_cancelled(listener.accept()).await? {
            Ok(connection) if limiter.is_too_often(&connection) => {
                dropped += 1;
                if dropped % DROPPED_IN_A_ROW == 0 {
                    tokio::time::sleep(DROPPED_PAUSE).await;
                }
            }
            Ok(connection) => return Some(limiter.admit(connection)),
            Err(error) => {
                let address = listener.address();
                limiter.errors().count("accept_failed", &address, &error.to_string());
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Shared parts of the serving tasks.
pub struct Sockets {
    /// The tasks.
    pub tasks: TaskTracker,
    /// Cancelled: accept no more connections.
    pub closing: CancellationToken,
    /// Cancelled: end at once.
    pub ended: CancellationToken,
}

impl Sockets {
    /// Serves other agents.
    pub fn serve_links(
        &self,
        listener: Box<dyn Listener>,
        limiter: Arc<ConnectionLimiter>,
        tls: Option<Arc<Tls>>,
        service: LinkService,
    ) {
        let server = Server::new(service, Routes::default(), links::WINDOWS);
        self.accept(listener, limiter, tls, server);
    }

    /// Serves clients, administrators and health checks of this host.
    pub fn serve_clients(
        &self,
        listener: Box<dyn Listener>,
        limiter: Arc<ConnectionLimiter>,
        clients: Clients,
        health: HealthService,
    ) {
        let windows = Windows {
            stream_bytes: CLIENT_WINDOW_BYTES,
            connection_bytes: CLIENT_WINDOW_BYTES,
            ..links::WINDOWS
        };
        let routes = Routes::new(AdminServer::new(health.admin().clone()))
            .add_service(HealthCheckServiceServer::new(health));
        self.accept(listener, limiter, None, Server::new(clients, routes, windows));
    }

    /// Accepts until the agent closes, then drops the listener. Each connection is a task of its
    /// own, because a handshake waits for its peer. The limiter bounds their number.
    fn accept<S: StreamService>(
        &self,
        mut listener: Box<dyn Listener>,
        limiter: Arc<ConnectionLimiter>,
        tls: Option<Arc<Tls>>,
        server: Server<S>,
    ) {
        let (closing, tasks, ended) =
            (self.closing.clone(), self.tasks.clone(), self.ended.clone());
        self.spawn(async move {
            while let Some(limited) = next_connection(&mut *listener, &limiter, &closing).await {
                let (tls, limiter, closing) = (tls.clone(), Arc::clone(&limiter), closing.clone());
                let (mut server, ended) = (server.clone(), ended.clone());
                if limiter.is_crowded(limited.peer()) {
                    server = server.with_unsent_bytes(CROWDED_UNSENT_BYTES);
                }
                tasks.spawn(async move {
                    let address = Arc::clone(limited.peer().address());
                    let io = match tls {
                        None => InspectedIo::plain(limited),
                        Some(tls) => {
                            // Boxed: `run_until_cancelled` would hold two copies of the large
                            // future.
                            let accepting = Box::pin(tls.accept(limited));
                            match ended.run_until_cancelled(accepting).await {
                                None => return,
                                Some(Ok(io)) => io,
                                Some(Err(error)) => {
                                    let error = error.to_string();
                                    let errors = limiter.errors();
                                    return errors.count("handshake_failed", &address, &error);
                                }
                            }
                        }
                    };
                    let mut known = Extensions::new();
                    known.insert(io.peer().clone());
                    let closing = closing.cancelled_owned();
                    let serve = Box::pin(async move {
                        let served = server.serve(TokioIo::new(io), known, closing);
                        if let Some(Err(error)) = ended.run_until_cancelled(served).await {
                            tracing::debug!(%address, %error, "a connection was lost");
                        }
                    });
                    serve.await;
                });
            }
        });
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let ended = self.ended.clone();
        self.tasks.spawn(async move {
            ended.run_until_cancelled(task).await;
        });
    }
}
