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
use ftb_proto::stream::{Answer, Serving, Windows};
use ftb_proto::v1;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::codegen::http::Extensions;
use tonic::service::Routes;

/// After a failed accept (no file descriptors left, for example) the next one waits so long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Streams that a connection may have open at once: one long one and a few questions.
const STREAMS_MAX: u32 = 8;
/// What a client may send ahead of what the agent reads, in bytes.
const CLIENT_WINDOW_BYTES: u32 = 512 * 1024;
/// What was said on one of very many connections of a user and its socket did not take yet, in bytes.
const CROWDED_UNSENT_BYTES: usize = 32 * 1024;
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
        let serving = serving(service, Routes::default(), links::WINDOWS);
        self.accept(listener, gate, tls, serving);
    }

    /// Serves clients and administrators of this host.
    pub fn serve_clients(
        &self,
        listener: Box<dyn Listener>,
        gate: Arc<Gate>,
        clients: Clients,
        admin: AdminService,
    ) {
        let windows = Windows {
            stream_bytes: CLIENT_WINDOW_BYTES,
            connection_bytes: CLIENT_WINDOW_BYTES,
            ..links::WINDOWS
        };
        let questions = Routes::new(v1::admin_server::AdminServer::new(admin));
        self.accept(listener, gate, None, serving(clients, questions, windows));
    }

    /// Accepts until the agent closes, then drops the listener. Each connection is a task of its own,
    /// because a handshake waits for its peer. The gate bounds their number.
    fn accept<A: Answer>(
        &self,
        mut listener: Box<dyn Listener>,
        gate: Arc<Gate>,
        tls: Option<Arc<Tls>>,
        serving: Serving<A>,
    ) {
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
                let (tls, gate, closing) = (tls.clone(), Arc::clone(&gate), closing.clone());
                let (mut serving, ended) = (serving.clone(), ended.clone());
                if gate.is_crowded(guarded.peer()) {
                    serving.windows.unsent_bytes = CROWDED_UNSENT_BYTES;
                }
                tasks.spawn(async move {
                    let address = Arc::clone(&guarded.peer().address);
                    let served = match tls {
                        None => Served::plain(guarded),
                        Some(tls) => {
                            // Boxed: `run_until_cancelled` would hold two copies of the large future.
                            let accepting = Box::pin(tls.accept(guarded));
                            match ended.run_until_cancelled(accepting).await {
                                None => return,
                                Some(Ok(served)) => served,
                                Some(Err(error)) => {
                                    let error = error.to_string();
                                    let hostile = gate.hostile();
                                    return hostile.count("handshake_failed", &address, &error);
                                }
                            }
                        }
                    };
                    let mut known = Extensions::new();
                    known.insert(served.peer().clone());
                    let closing = closing.cancelled_owned();
                    let serve = Box::pin(async move {
                        let served = serving.serve(TokioIo::new(served), known, closing);
                        if let Some(Err(error)) = ended.run_until_cancelled(served).await {
                            tracing::debug!(%address, %error, "a connection was torn");
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

fn serving<A: Answer>(answer: A, others: Routes, windows: Windows) -> Serving<A> {
    let (streams_max, headers_bytes_max) = (STREAMS_MAX, HEADERS_BYTES_MAX);
    Serving { answer, others, windows, streams_max, headers_bytes_max }
}
