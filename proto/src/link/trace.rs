//! Paths of events for the wire.

use super::{LinkWireError, Result, bound, need, text};
use crate::event::{core_id, wire_id};
use crate::v1;
use ftb_core::frame::TraceAnswer;
use ftb_core::trace::{
    AgentReport, AgentTrace, EventTrace, Hop, REPORTS_MAX, TRACE_SILENT_MAX, TRACE_STEPS_MAX,
    TraceRequest, TraceStep, TraceSubject, TracedEvent, TrustReport, VERSION_BYTES_MAX,
};
use ftb_core::{OriginId, Rank, Severity, limits};

/// Longest name of a client with its job, in bytes.
const WHAT_BYTES_MAX: usize = 2 * limits::CLIENT_NAME_BYTES_MAX + 16;

pub(super) fn wire_request(request: &TraceRequest) -> v1::TraceRequest {
    v1::TraceRequest {
        requester: request.requester.0,
        request: request.request,
        event: match request.subject {
            TraceSubject::Event(event) => Some(wire_id(event)),
            TraceSubject::Reports => None,
        },
        within_ms: request.within_ms,
        reports: request.subject == TraceSubject::Reports,
    }
}

pub(super) fn core_request(request: v1::TraceRequest) -> Result<TraceRequest> {
    Ok(TraceRequest {
        requester: OriginId(request.requester),
        request: request.request,
        subject: match request.reports {
            true => TraceSubject::Reports,
            false => TraceSubject::Event(core_id(need("trace request", "event", request.event)?)),
        },
        within_ms: request.within_ms,
    })
}

pub(super) fn wire_answer(answer: &TraceAnswer) -> v1::TraceAnswer {
    v1::TraceAnswer {
        requester: answer.requester.0,
        request: answer.request,
        trace: Some(wire_trace(&answer.trace)),
    }
}

pub(super) fn core_answer(answer: v1::TraceAnswer) -> Result<TraceAnswer> {
    Ok(TraceAnswer {
        requester: OriginId(answer.requester),
        request: answer.request,
        trace: core_trace(need("trace answer", "trace", answer.trace)?)?,
    })
}

/// A path for the wire.
pub fn wire_trace(trace: &EventTrace) -> v1::EventTrace {
    let hop = |(hop, what): &(Hop, String)| v1::TraceHop {
        step: hop.step as i32,
        at_ns: hop.at_ns,
        number: hop.number,
        what: what.clone(),
    };
    let agent = |agent: &AgentTrace| v1::AgentTrace {
        host: agent.host.clone(),
        rank: agent.rank.map(|rank| rank.0),
        hops: agent.hops.iter().map(hop).collect(),
    };
    v1::EventTrace {
        answered: trace.answered,
        event: trace.event.as_ref().map(|event| v1::TracedEvent {
            space: event.space.clone(),
            name: event.name.clone(),
            severity: event.severity.to_wire(),
            client: event.client.clone(),
        }),
        agents: trace.agents.iter().map(agent).collect(),
        omitted: trace.omitted,
        silent: trace.silent.clone(),
        silent_more: trace.silent_more,
        since_ns: trace.since_ns,
        reports: trace.reports.iter().map(wire_report).collect(),
    }
}

/// A report for the wire.
pub fn wire_report(report: &AgentReport) -> v1::AgentReport {
    v1::AgentReport {
        host: report.host.clone(),
        rank: report.rank.map(|rank| rank.0),
        version: report.version.clone(),
        wall_ns: report.wall_ns,
        certificates_end_ns: report.certificates_end_ns,
        secured: report.is_secured,
        journal: report.has_journal,
        members_digest: report.members_digest,
        impossible: report.impossible,
        trust: report.trust.as_ref().map(wire_trust),
    }
}

fn wire_trust(trust: &TrustReport) -> v1::TrustReport {
    v1::TrustReport {
        monitors_digest: trust.monitors_digest,
        unproven: trust.unproven,
        unproven_ns: trust.unproven_ns,
        unproven_host: trust.unproven_host.clone(),
    }
}

fn core_trust(trust: v1::TrustReport) -> Result<TrustReport> {
    let host = "host of an unproven statement";
    Ok(TrustReport {
        monitors_digest: trust.monitors_digest,
        unproven: trust.unproven,
        unproven_ns: trust.unproven_ns,
        unproven_host: text(host, trust.unproven_host, limits::HOST_BYTES_MAX)?,
    })
}

fn core_report(report: v1::AgentReport) -> Result<AgentReport> {
    Ok(AgentReport {
        host: text("host of an agent", report.host, limits::HOST_BYTES_MAX)?,
        rank: report.rank.map(Rank),
        version: text("version of an agent", report.version, VERSION_BYTES_MAX)?,
        wall_ns: report.wall_ns,
        certificates_end_ns: report.certificates_end_ns,
        is_secured: report.secured,
        has_journal: report.journal,
        members_digest: report.members_digest,
        impossible: report.impossible,
        trust: report.trust.map(core_trust).transpose()?,
    })
}

/// A path from the wire. A step of a later version is left out.
fn core_trace(trace: v1::EventTrace) -> Result<EventTrace> {
    let steps: usize = trace.agents.iter().map(|agent| agent.hops.len()).sum();
    bound("steps of an event", steps.max(trace.agents.len()), TRACE_STEPS_MAX)?;
    bound("reports of agents", trace.reports.len(), REPORTS_MAX)?;
    bound("silent agents", trace.silent.len(), TRACE_SILENT_MAX)?;
    let host = |name: String| text("host of an agent", name, limits::HOST_BYTES_MAX);
    let hop = |hop: v1::TraceHop| {
        let step = TraceStep::from_wire(hop.step)?;
        let what = text("client or host of a step", hop.what, WHAT_BYTES_MAX);
        Some(what.map(|what| (Hop { step, at_ns: hop.at_ns, number: hop.number }, what)))
    };
    let agent = |agent: v1::AgentTrace| {
        Ok(AgentTrace {
            host: host(agent.host)?,
            rank: agent.rank.map(Rank),
            hops: agent.hops.into_iter().filter_map(hop).collect::<Result<_>>()?,
        })
    };
    let event = trace.event.map(|event| -> Result<TracedEvent> {
        let severity = Severity::from_wire(event.severity);
        Ok(TracedEvent {
            space: text("event space", event.space, limits::SPACE_BYTES_MAX)?,
            name: text("event name", event.name, limits::NAME_BYTES_MAX)?,
            client: text("client of an event", event.client, limits::CLIENT_NAME_BYTES_MAX)?,
            severity: severity.ok_or(LinkWireError::Range { what: "a severity" })?,
        })
    });
    Ok(EventTrace {
        answered: trace.answered,
        event: event.transpose()?,
        agents: trace.agents.into_iter().map(agent).collect::<Result<_>>()?,
        omitted: trace.omitted,
        silent: trace.silent.into_iter().map(host).collect::<Result<_>>()?,
        silent_more: trace.silent_more,
        since_ns: trace.since_ns,
        reports: trace.reports.into_iter().map(core_report).collect::<Result<_>>()?,
    })
}
