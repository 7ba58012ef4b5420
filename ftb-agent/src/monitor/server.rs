//! HTTP/1.1: one request a connection, GET and HEAD only.
//!
//! Responsible for: connections and their limits, paths, status codes. Not responsible for: what
//! the resources say.

use super::Monitor;
use super::stream::EventStream;
use crate::serve::next_connection;
use crate::world::Listener;
use bytes::Bytes;
use ftb_core::Position;
use ftb_core::node::api::Start;
use ftb_transport::limiter::{ConnectionLimiter, Peer};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use std::convert::Infallible;
use std::fmt::Display;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Bytes of a request's head. A longer one gets status 431.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// Header lines of a request; more get status 431.
const HEADERS_MAX: usize = 32;
/// How long a connection may take, unless it streams events.
const ANSWER_MAX: Duration = Duration::from_secs(10);

pub(super) const JSON: &str = "application/json";
const PLAIN: &str = "text/plain; charset=utf-8";
const EVENTS: &str = "text/event-stream";
/// Says the place behind which a stream of events resumes, as browsers and libraries send it.
const LAST_EVENT_ID: &str = "last-event-id";

const INDEX: &str = "\
/metrics          counters and gauges, as OpenMetrics
/healthz          200 while the agent works
/readyz           200 while it has a place in the tree and its journal works
/tree.json        the tree, as ftbctl tree --json
/conditions.json  what is wrong now, as ftbctl conditions --json
/events           events as server-sent events; ?filter=FILTER
";

/// What serves.
pub(super) struct Server {
    pub(super) listener: Box<dyn Listener>,
    pub(super) limiter: Arc<ConnectionLimiter>,
    pub(super) monitor: Arc<Monitor>,
    pub(super) tasks: TaskTracker,
    pub(super) closing: CancellationToken,
    pub(super) ended: CancellationToken,
}

/// Accepts until the agent closes.
pub(super) fn serve(server: Server) {
    let Server { mut listener, limiter, monitor, tasks, closing, ended } = server;
    let connections = tasks.clone();
    tasks.spawn(async move {
        while let Some(io) = next_connection(&mut *listener, &limiter, &closing).await {
            let (monitor, ended) = (Arc::clone(&monitor), ended.clone());
            connections.spawn(async move {
                let (peer, streams) = (io.peer().clone(), Arc::new(AtomicBool::new(false)));
                let is_stream = Arc::clone(&streams);
                let service = service_fn(move |request: Request<Incoming>| {
                    let (monitor, peer) = (Arc::clone(&monitor), peer.clone());
                    let is_stream = Arc::clone(&is_stream);
                    async move {
                        let answer = monitor.answer(&peer, request).await;
                        let is_events = matches!(answer.body(), Content::Stream(_));
                        is_stream.store(is_events, Ordering::Release);
                        Ok::<_, Infallible>(answer)
                    }
                });
                let mut http = http1::Builder::new();
                // The limiter has a deadline for the head of the request.
                http.header_read_timeout(None).keep_alive(false);
                http.max_headers(HEADERS_MAX).max_buf_size(HEAD_BYTES_MAX);
                let served = http.serve_connection(TokioIo::new(io), service);
                tokio::select! {
                    () = ended.cancelled() => {}
                    () = too_late(&streams) => {}
                    // A reader that is gone is no failure.
                    _ = served => {}
                }
            });
        }
    });
}

/// Ends when a connection that streams no events has taken too much time.
async fn too_late(streams: &AtomicBool) {
    loop {
        sleep(ANSWER_MAX).await;
        if !streams.load(Ordering::Acquire) {
            return;
        }
    }
}

/// The body of an answer.
pub(super) enum Content {
    Whole(Option<Bytes>),
    Stream(Box<EventStream>),
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = |bytes| Ok(Frame::data(bytes));
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(frame)),
            Self::Stream(stream) => stream.poll_text(cx).map(|bytes| bytes.map(frame)),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// An answer with status 200.
pub(super) struct Answer {
    content_type: &'static str,
    content: Content,
}

impl Answer {
    pub(super) fn text(content_type: &'static str, text: Bytes) -> Self {
        Self { content_type, content: Content::Whole(Some(text)) }
    }

    pub(super) fn plain(text: &'static str) -> Self {
        Self::text(PLAIN, Bytes::from_static(text.as_bytes()))
    }

    pub(super) fn stream(stream: EventStream) -> Self {
        Self { content_type: EVENTS, content: Content::Stream(Box::new(stream)) }
    }
}

/// Why there is no such answer: a status and a line for people.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    line: String,
}

impl Problem {
    fn new(status: StatusCode, line: impl Display) -> Self {
        Self { status, line: line.to_string() }
    }

    /// The request is wrong.
    pub(super) fn wrong(line: impl Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, line)
    }

    /// Not every user may read that.
    pub(super) fn denied(line: impl Display) -> Self {
        Self::new(StatusCode::FORBIDDEN, line)
    }

    /// The agent cannot answer now.
    pub(super) fn not_ready(line: impl Display) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, line)
    }

    /// A limit is reached.
    pub(super) fn full(line: impl Display) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, line)
    }

    /// A defect of the agent.
    pub(super) fn failed(line: impl Display) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, line)
    }
}

impl Monitor {
    async fn answer(&self, peer: &Peer, request: Request<Incoming>) -> Response<Content> {
        let answer = match peer.on_hello() {
            Err(full) => Err(Problem::full(full)),
            Ok(()) => self.resource(&request).await,
        };
        match answer {
            Ok(Answer { content_type, content }) => response(StatusCode::OK, content_type, content),
            Err(Problem { status, line }) => {
                let text = Content::Whole(Some(format!("{line}\n").into()));
                response(status, PLAIN, text)
            }
        }
    }

    async fn resource(&self, request: &Request<Incoming>) -> Result<Answer, Problem> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "GET and HEAD only"));
        }
        check_host(request.headers())?;
        match request.uri().path() {
            "/" => Ok(Answer::plain(INDEX)),
            "/metrics" => self.metrics().await,
            "/healthz" => self.health().await,
            "/readyz" => self.readiness().await,
            "/tree.json" => self.tree().await,
            "/conditions.json" => self.conditions().await,
            "/events" => {
                let filter = filter_of(request.uri().query().unwrap_or_default())?;
                self.events(&filter, start_of(request.headers())?).await
            }
            _ => Err(Problem::new(StatusCode::NOT_FOUND, "no such resource; / lists all")),
        }
    }
}

fn response(status: StatusCode, content_type: &'static str, content: Content) -> Response<Content> {
    let mut response = Response::new(content);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    match status {
        StatusCode::METHOD_NOT_ALLOWED => {
            headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        _ => {}
    }
    response
}

/// A page of another site whose name leads to this address (DNS rebinding) gets nothing.
fn check_host(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(host) = headers.get(HOST) else { return Ok(()) };
    let text = host.to_str().unwrap_or_default();
    let name = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(address, _)| address),
        None => text.split_once(':').map_or(text, |(name, _)| name),
    };
    let is_loopback = name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    match is_loopback || name.eq_ignore_ascii_case("localhost") {
        true => Ok(()),
        false => Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "expected localhost or a loopback address as the host",
        )),
    }
}

/// The filter in a query; empty: every event.
fn filter_of(query: &str) -> Result<String, Problem> {
    let mut filter = String::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("filter", value)) => {
                let spaces = value.replace('+', " ");
                let text = percent_decode_str(&spaces).decode_utf8();
                filter = text.map_err(|_| Problem::wrong("the filter is no UTF-8"))?.into_owned();
            }
            _ => return Err(Problem::wrong("the only parameter is filter=FILTER")),
        }
    }
    Ok(filter)
}

fn start_of(headers: &HeaderMap) -> Result<Start, Problem> {
    let Some(id) = headers.get(LAST_EVENT_ID) else { return Ok(Start::Now) };
    let position = id.to_str().unwrap_or_default().parse::<Position>();
    position.map(Start::After).map_err(Problem::wrong)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_host_that_is_not_this_one_gets_nothing() {
        let check = |host: &'static str| {
            let host = HeaderValue::from_static(host);
            check_host(&HeaderMap::from_iter([(HOST, host)])).is_ok()
        };
        for ours in ["localhost:9464", "127.0.0.1:9464", "127.3.2.1", "[::1]:9464", "LOCALHOST"] {
            assert!(check(ours), "{ours}");
        }
        for foreign in ["evil.example:9464", "10.0.0.1", "localhost.evil.example", "[::2]:1", ""] {
            assert!(!check(foreign), "{foreign}");
        }
    }

    #[test]
    fn a_filter_is_decoded_from_the_query() {
        assert_eq!(
            filter_of("filter=severity%3E%3Derror,+event_space=a.*").unwrap(),
            "severity>=error, event_space=a.*"
        );
        assert_eq!(filter_of("").unwrap(), "");
        assert!(filter_of("filter=%ff").is_err());
        assert!(filter_of("since=1h").is_err());
    }
}
