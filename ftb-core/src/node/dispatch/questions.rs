//! What this agent remembers of an event, and how it is, with the names that the other parts know.

use crate::frame::{Content, TraceAnswer};
use crate::ident::{EventId, Rank};
use crate::node::Node;
use crate::node::api::{ClientId, JournalState, LinkId, QueryId};
use crate::node::links::LinkRole;
use crate::numbers::LogIndex;
use crate::trace::{
    AgentReport, AgentTrace, EventTrace, Hop, TraceRequest, TraceStep, TraceSubject, TracedEvent,
    TrustReport,
};

impl Node {
    /// A client of this agent asks all agents.
    pub(crate) fn on_query_trace(&mut self, query: QueryId, subject: TraceSubject, within_ms: u32) {
        let requester = self.cx.config.origin;
        let request = TraceRequest { requester, request: query.0, subject, within_ms };
        let own = self.own_answer(subject);
        self.questions.on_query(&mut self.cx, query, request, own);
    }

    /// A neighbour asks.
    pub(super) fn on_trace_request(&mut self, link: LinkId, request: TraceRequest) {
        // In the name of another agent it would take that one's answers.
        let is_child = self.cx.links.role(link) == Some(LinkRole::Child);
        if is_child && !self.membership.is_below(&self.cx, link, request.requester) {
            self.cx.counters.stale += 1;
            return self.questions.answer_nothing(&mut self.cx, link, request);
        }
        let own = self.own_answer(request.subject);
        self.questions.on_request(&mut self.cx, link, request, own);
    }

    fn own_answer(&self, subject: TraceSubject) -> EventTrace {
        match subject {
            TraceSubject::Event(event) => self.own_trace(event),
            TraceSubject::Reports => EventTrace {
                answered: 1,
                reports: vec![self.own_report()],
                ..EventTrace::default()
            },
        }
    }

    fn own_report(&self) -> AgentReport {
        let config = &self.cx.config;
        AgentReport {
            host: config.host.clone(),
            rank: self.cx.rank,
            version: config.version.clone(),
            wall_ns: self.cx.now.wall_ns,
            certificates_end_ns: self.certificates_end_ns,
            is_secured: config.is_secured,
            has_journal: self.journal.state().map(|state| state == JournalState::Ok),
            members_digest: config.members.digest(),
            impossible: self.cx.counters.impossible,
            trust: self.trust.as_deref().cloned(),
        }
    }

    /// The shell proves statements in another way, or has found one that nothing proves.
    pub(in crate::node) fn on_trust(&mut self, mut trust: Box<TrustReport>) {
        let before = self.trust.as_ref().map_or((0, 0), |old| (old.unproven, old.unproven_ns));
        trust.unproven_ns = match trust.unproven > before.0 {
            true => self.cx.now.wall_ns,
            false => before.1,
        };
        self.trust = Some(trust);
    }

    /// A neighbour answers.
    pub(super) fn on_trace_answer(&mut self, link: LinkId, answer: TraceAnswer) {
        self.questions.on_answer(&mut self.cx, link, answer);
    }

    fn own_trace(&self, event: EventId) -> EventTrace {
        let hops = self.cx.trace.of(event);
        let known = hops.iter().find_map(|hop| self.logged_event(event, hop));
        let since_ns = self.cx.trace.since_ns().max(self.cx.started.wall_ns);
        let named = hops.into_iter().map(|hop| (hop, self.name_of(&hop)));
        let hops: Vec<(Hop, String)> = named.collect();
        let (host, rank) = (self.cx.config.host.clone(), self.cx.rank);
        let agents = match hops.is_empty() {
            true => Vec::new(),
            false => vec![AgentTrace { host, rank, hops }],
        };
        EventTrace { answered: 1, event: known, agents, since_ns, ..EventTrace::default() }
    }

    /// The event itself, if the log has it at the index of a step.
    fn logged_event(&self, id: EventId, hop: &Hop) -> Option<TracedEvent> {
        let before = hop.number.checked_sub(1).filter(|_| hop.step.has_index())?;
        let item = self.log.entries().after(LogIndex::new(before)).next()?;
        let Content::Events(run) = &item.content else { return None };
        let place = usize::try_from(hop.number.checked_sub(item.index.get())?).ok()?;
        let event = run.get(place).filter(|event| event.id() == id)?;
        let (space, name) = (event.space().to_owned(), event.name().to_owned());
        let (severity, client) = (event.severity(), event.client_name().to_owned());
        Some(TracedEvent { space, name, severity, client })
    }

    /// The host or client that the number of a step stands for; empty: a client that has gone.
    fn name_of(&self, hop: &Hop) -> String {
        match hop.step {
            TraceStep::SentUp
            | TraceStep::FromBelow
            | TraceStep::SentDown
            | TraceStep::ShedBelow => {
                let rank = Rank(u32::try_from(hop.number).unwrap_or(u32::MAX));
                match self.host_of_rank(rank) {
                    host if host.is_empty() => format!("rank {rank}"),
                    host => host,
                }
            }
            TraceStep::Published | TraceStep::Delivered | TraceStep::Shed => {
                let client = ClientId(hop.number);
                if client == ClientId::AGENT {
                    return "the agent itself".to_owned();
                }
                match self.publishing.client(client) {
                    Some((info, _)) if info.job_id.is_empty() => info.name.clone(),
                    Some((info, _)) => format!("{} (job {})", info.name, info.job_id),
                    None => String::new(),
                }
            }
            TraceStep::Folded => self.fold_at(hop.number).unwrap_or_default(),
            _ => String::new(),
        }
    }

    /// The id of the fold of a group at an index of the log, if it is still there.
    fn fold_at(&self, index: u64) -> Option<String> {
        let before = LogIndex::new(index.checked_sub(1)?);
        let item = self.log.entries().after(before).next()?;
        let Content::Events(run) = &item.content else { return None };
        let place = usize::try_from(index.checked_sub(item.index.get())?).ok()?;
        run.get(place).filter(|event| event.group().is_some()).map(|event| event.id().to_string())
    }
}
