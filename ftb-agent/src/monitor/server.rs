//! HTTP/1.1: one request a connection, GET and HEAD only.
//!
//! Responsible for: connections and their limits, paths, status codes. Not responsible for: what
//! the resources say.

use super::page::{self, Page};
use super::stream::EventStream;
use super::{Monitor, unix_ns};
use crate::serve::next_connection;
use crate::world::Listener;
use bytes::Bytes;
use ftb_core::Position;
use ftb_core::node::api::Start;
use ftb_transport::limiter::{ConnectionLimiter, Peer};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, RETRY_AFTER, WWW_AUTHENTICATE};
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
/// How far back a stream of events begins at most, in seconds: 30 days.
const SINCE_S_MAX: u64 = 30 * 24 * 3600;
/// What the page shows needs its token; the same resources without it are below `/`.
const PAGE: &str = "/page";
/// Says the place behind which a stream of events resumes, as browsers and libraries send it.
const LAST_EVENT_ID: &str = "last-event-id";

const INDEX: &str = "\
/metrics          counters and gauges, as OpenMetrics
/healthz          200 while the agent works
/readyz           200 while it has a place in the tree and its journal works
/tree.json        the tree, as ftbctl tree --json
/conditions.json  what is wrong now, as ftbctl conditions --json
/events           events as server-sent events; ?filter=FILTER&since=SECONDS
/page/            the web page, if [page] has a token
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

    /// The token is missing or wrong.
    fn unauthorized() -> Self {
        let line = "expected Authorization: Bearer TOKEN, with the token of [page]";
        Self::new(StatusCode::UNAUTHORIZED, line)
    }

    fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "no such resource; / lists all")
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
            Ok(()) => self.checked(peer, &request).await,
        };
        match answer {
            Ok(Answer { content_type, content }) => response(StatusCode::OK, content_type, content),
            Err(Problem { status, line }) => {
                let text = Content::Whole(Some(format!("{line}\n").into()));
                response(status, PLAIN, text)
            }
        }
    }

    async fn checked(&self, peer: &Peer, request: &Request<Incoming>) -> Result<Answer, Problem> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "GET and HEAD only"));
        }
        check_host(request.headers())?;
        let path = request.uri().path();
        match path.strip_prefix(PAGE) {
            Some("" | "/") => self.page_file("/page/"),
            Some(rest) if rest.starts_with('/') => self.of_page(peer, rest, request).await,
            _ => self.resource(path, request).await,
        }
    }

    async fn resource(&self, path: &str, request: &Request<Incoming>) -> Result<Answer, Problem> {
        match path {
            "/" => Ok(Answer::plain(INDEX)),
            "/metrics" => self.metrics().await,
            "/healthz" => self.health().await,
            "/readyz" => self.readiness().await,
            "/tree.json" => self.tree().await,
            "/conditions.json" => self.conditions().await,
            "/events" => {
                let asked = Asked::of(request.uri().query().unwrap_or_default())?;
                self.events(&asked.filter, asked.start(request.headers())?).await
            }
            _ => Err(Problem::not_found()),
        }
    }

    fn page(&self) -> Result<&Page, Problem> {
        self.sources.page.as_ref().ok_or_else(Problem::not_found)
    }

    /// A file of the page. It has no data, and a browser sends no token for it.
    fn page_file(&self, path: &str) -> Result<Answer, Problem> {
        self.page()?;
        let (content_type, text) = page::file(path).ok_or_else(Problem::not_found)?;
        Ok(Answer::text(content_type, Bytes::from_static(text.as_bytes())))
    }

    /// What the page shows: with the token only.
    async fn of_page(
        &self,
        peer: &Peer,
        rest: &str,
        request: &Request<Incoming>,
    ) -> Result<Answer, Problem> {
        let page = self.page()?;
        if !matches!(rest, "/about.json" | "/tree.json" | "/conditions.json" | "/events") {
            return self.page_file(request.uri().path());
        }
        if !page.admits(request.headers()) {
            let what = "a request without the token of the page";
            self.sources.errors.count("page_unauthorized", peer.address(), what);
            return Err(Problem::unauthorized());
        }
        match rest {
            "/about.json" => self.about(page),
            _ => self.resource(rest, request).await,
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
    page::protect(headers);
    match status {
        StatusCode::METHOD_NOT_ALLOWED => {
            headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        StatusCode::UNAUTHORIZED => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
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

/// What the query of a stream asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    /// Empty: every event.
    filter: String,
    /// How far back, in seconds.
    since_s: Option<u64>,
}

impl Asked {
    fn of(query: &str) -> Result<Self, Problem> {
        let mut asked = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("filter", value)) => {
                    let spaces = value.replace('+', " ");
                    let text = percent_decode_str(&spaces).decode_utf8();
                    let text = text.map_err(|_| Problem::wrong("the filter is no UTF-8"))?;
                    asked.filter = text.into_owned();
                }
                Some(("since", value)) => {
                    let seconds = value.parse().ok().filter(|since| *since <= SINCE_S_MAX);
                    let range = format!("since: expected seconds, 0 to {SINCE_S_MAX}");
                    asked.since_s = Some(seconds.ok_or_else(|| Problem::wrong(range))?);
                }
                _ => {
                    let line = "the parameters are filter=FILTER and since=SECONDS";
                    return Err(Problem::wrong(line));
                }
            }
        }
        Ok(asked)
    }

    /// Where the stream begins. A reader that resumes goes on from its place.
    fn start(&self, headers: &HeaderMap) -> Result<Start, Problem> {
        if let Some(id) = headers.get(LAST_EVENT_ID) {
            let position = id.to_str().unwrap_or_default().parse::<Position>();
            return position.map(Start::After).map_err(Problem::wrong);
        }
        let since = self.since_s.map(|since| unix_ns().saturating_sub(since * 1_000_000_000));
        Ok(since.map_or(Start::Now, Start::SinceNs))
    }
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
    fn a_filter_and_a_time_are_decoded_from_the_query() {
        let asked = |query| Asked::of(query).map_err(|problem| problem.line);
        let of = |filter: &str, since_s| Ok(Asked { filter: filter.to_owned(), since_s });
        assert_eq!(
            asked("filter=severity%3E%3Derror,+event_space=a.*&since=60"),
            of("severity>=error, event_space=a.*", Some(60))
        );
        assert_eq!(asked(""), of("", None));
        for wrong in ["filter=%ff", "since=1h", "since=-1", "since=2592001", "until=3", "x"] {
            assert!(asked(wrong).is_err(), "{wrong}");
        }
        let start = Asked { filter: String::new(), since_s: Some(60) }.start(&HeaderMap::new());
        assert!(matches!(start.unwrap(), Start::SinceNs(_)));
    }
}
