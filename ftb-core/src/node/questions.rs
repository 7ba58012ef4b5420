//! Requests to all agents, for the path of an event or their reports, on their way through the
//! tree.
//!
//! An agent passes a request on to its other neighbours, waits for their answers, and adds its own.
//! So each link carries one request and one answer. Each agent gives its neighbours less time than
//! it has, so that it can name those that do not answer. Not responsible for: what this agent
//! remembers ([`crate::node::trace_ring`]).

use crate::frame::{Frame, TraceAnswer};
use crate::ident::OriginId;
use crate::node::api::{LinkId, Output, QueryId};
use crate::node::cx::Cx;
use crate::protocol::Features;
use crate::trace::{EventTrace, TraceRequest, TraceSubject};
use std::collections::BTreeMap;

/// Most requests that an agent waits for. Further ones get what it remembers itself.
const REQUESTS_MAX: usize = 64;
/// The same for those of one neighbour, and for those of the clients here.
const REQUESTS_EACH_MAX: usize = 16;
/// The part of its time that an agent keeps for its own answer, at least [`OWN_MS_MIN`].
const OWN_SHARE: u32 = 8;
const OWN_MS_MIN: u32 = 20;

/// Whom the answer goes to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TraceRequester {
    Shell(QueryId),
    Link(LinkId),
}

struct PendingTrace {
    requester: TraceRequester,
    /// Neighbours that have not answered, with their hosts.
    waiting: BTreeMap<LinkId, String>,
    trace: EventTrace,
    deadline_ns: u64,
}

/// The requests that wait for answers.
#[derive(Default)]
pub(crate) struct Questions {
    pending: BTreeMap<(OriginId, u64), PendingTrace>,
}

impl Questions {
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.pending.values().map(|pending| pending.deadline_ns).min()
    }

    /// A client of this agent asks. `own`: what this agent remembers.
    pub(crate) fn on_query(
        &mut self,
        cx: &mut Cx,
        query: QueryId,
        request: TraceRequest,
        own: EventTrace,
    ) {
        self.begin(cx, TraceRequester::Shell(query), request, own);
    }

    /// A neighbour asks.
    pub(crate) fn on_request(
        &mut self,
        cx: &mut Cx,
        link: LinkId,
        request: TraceRequest,
        own: EventTrace,
    ) {
        if self.pending.contains_key(&(request.requester, request.request)) {
            // The tree has changed on the way: this agent answers another neighbour.
            return self.answer_nothing(cx, link, request);
        }
        self.begin(cx, TraceRequester::Link(link), request, own);
    }

    /// A neighbour gets an empty answer.
    pub(crate) fn answer_nothing(&self, cx: &mut Cx, link: LinkId, request: TraceRequest) {
        let key = (request.requester, request.request);
        answer(cx, TraceRequester::Link(link), key, EventTrace::default());
    }

    /// Whether there are as many requests of a requester as may wait.
    fn is_full(&self, requester: TraceRequester) -> bool {
        let alike = |other: TraceRequester| match requester {
            TraceRequester::Shell(_) => matches!(other, TraceRequester::Shell(_)),
            TraceRequester::Link(_) => other == requester,
        };
        let waiting = self.pending.values().filter(|pending| alike(pending.requester));
        self.pending.len() >= REQUESTS_MAX || waiting.count() >= REQUESTS_EACH_MAX
    }

    fn begin(
        &mut self,
        cx: &mut Cx,
        requester: TraceRequester,
        request: TraceRequest,
        mut own: EventTrace,
    ) {
        let key = (request.requester, request.request);
        let kept_ms = (request.within_ms / OWN_SHARE).max(OWN_MS_MIN);
        let within_ms = request.within_ms.saturating_sub(kept_ms);
        let parent = cx.around.parent.iter().map(|parent| (parent.link, parent.host.clone()));
        let children = cx.around.children.iter().map(|child| (child.link, child.host.clone()));
        let others =
            parent.chain(children).filter(|(link, _)| requester != TraceRequester::Link(*link));
        let others: Vec<(LinkId, String)> = others.collect();
        let is_full = self.is_full(requester);
        let mut waiting = BTreeMap::new();
        let needed = match request.subject {
            TraceSubject::Event(_) => Features::TRACE,
            TraceSubject::Reports => Features::REPORT,
        };
        for (link, host) in others {
            if is_full || within_ms == 0 || !cx.links.features(link).contains(needed) {
                own.add_silent(host);
                continue;
            }
            cx.send_if_room(link, Frame::TraceRequest(TraceRequest { within_ms, ..request }));
            waiting.insert(link, host);
        }
        if waiting.is_empty() {
            return answer(cx, requester, key, own);
        }
        let deadline_ns = cx.after_ms(request.within_ms.saturating_sub(kept_ms / 2).into());
        self.pending.insert(key, PendingTrace { requester, waiting, trace: own, deadline_ns });
    }

    /// A neighbour answers.
    pub(crate) fn on_answer(&mut self, cx: &mut Cx, link: LinkId, answered: TraceAnswer) {
        let key = (answered.requester, answered.request);
        let Some(pending) = self.pending.get_mut(&key) else {
            cx.counters.stale += 1;
            return;
        };
        if pending.waiting.remove(&link).is_none() {
            cx.counters.stale += 1;
            return;
        }
        pending.trace.merge(answered.trace);
        if pending.waiting.is_empty() {
            self.finish(cx, key);
        }
    }

    /// A neighbour is gone.
    pub(crate) fn on_link_gone(&mut self, cx: &mut Cx, link: LinkId) {
        let mut over = Vec::new();
        for (key, pending) in &mut self.pending {
            if let Some(host) = pending.waiting.remove(&link) {
                pending.trace.add_silent(host);
                if pending.waiting.is_empty() {
                    over.push(*key);
                }
            }
        }
        over.into_iter().for_each(|key| self.finish(cx, key));
    }

    /// Neighbours that have not answered in time are named.
    pub(crate) fn on_timer(&mut self, cx: &mut Cx) {
        let now_ns = cx.now.mono_ns;
        let late = self.pending.iter().filter(|(_, pending)| pending.deadline_ns <= now_ns);
        for key in late.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.finish(cx, key);
        }
    }

    fn finish(&mut self, cx: &mut Cx, key: (OriginId, u64)) {
        let Some(mut pending) = self.pending.remove(&key) else { return };
        pending.waiting.into_values().for_each(|host| pending.trace.add_silent(host));
        answer(cx, pending.requester, key, pending.trace);
    }
}

fn answer(
    cx: &mut Cx,
    to: TraceRequester,
    (requester, request): (OriginId, u64),
    trace: EventTrace,
) {
    match to {
        TraceRequester::Shell(query) => cx.push(Output::Trace { query, trace: Box::new(trace) }),
        TraceRequester::Link(link) => {
            let answer = TraceAnswer { requester, request, trace };
            cx.send_if_room(link, Frame::TraceAnswer(Box::new(answer)));
        }
    }
}
