//! `ftbctl trace`: the path of an event through the agents.

use crate::cli::TraceArgs;
use crate::common::Common;
use crate::failure::Failure;
use crate::output::{BAD, FAINT, GOOD, Output, PLAIN, STRONG, WARN, style_of, styled};
use crate::text::{self, printable};
use ftb_client::{EventId, Severity, admin::Admin};
use ftb_core::trace::TraceStep;
use ftb_proto::v1::{EventTrace, TraceHop};
use serde_json::json;

/// Shows the path of an event.
pub(crate) async fn run(
    common: &Common,
    args: &TraceArgs,
    mut output: Output,
) -> Result<(), Failure> {
    let mut admin = Admin::connect(&common.socket(), common.timeout()).await?;
    let trace = admin.trace(args.event).await?;
    if output.is_json() {
        json(&mut output, args.event, &trace)?;
    } else {
        people(&mut output, args.event, &trace)?;
    }
    output.flush()?;
    let silent = silent_count(&trace);
    match (trace.agents.is_empty(), silent) {
        (false, 0) => Ok(()),
        (true, 0) => Err(Failure::failed(nothing(&trace, output.utc))),
        (_, silent) => Err(Failure::no_answer(format_args!("{silent} agents did not answer"))),
    }
}

/// Why no agent remembers an event.
fn nothing(trace: &EventTrace, utc: bool) -> String {
    let since = text::time(trace.since_ns, utc);
    let (agents, count) = if trace.answered == 1 {
        ("agent remembers", 1)
    } else {
        ("agents remember", trace.answered)
    };
    format!(
        "none of {count} {agents} this event. Agents remember events of ERROR and FATAL, those of \
         WARNING that state a condition, and those published with --trace, until 4,096 later \
         steps; all of them since {since} at least"
    )
}

fn silent_count(trace: &EventTrace) -> usize {
    trace.silent.len().saturating_add(trace.silent_more as usize)
}

/// All steps with their hosts, in the order of time; steps of one time in their own order.
pub(crate) fn steps(trace: &EventTrace) -> Vec<(&str, &TraceHop)> {
    let agents = trace.agents.iter();
    let of = agents.flat_map(|agent| agent.hops.iter().map(|hop| (agent.host.as_str(), hop)));
    let mut steps: Vec<(&str, &TraceHop)> = of.collect();
    steps.sort_by_key(|(_, hop)| (hop.at_ns, hop.step));
    steps
}

/// Milliseconds from one time to another.
pub(crate) fn delay_ms(from_ns: u64, to_ns: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "shown with microseconds")]
    let ms = to_ns.abs_diff(from_ns) as f64 / 1e6;
    if to_ns < from_ns { -ms } else { ms }
}

/// Where the event began: the step of its publisher, else the first.
fn begin_ns(steps: &[(&str, &TraceHop)]) -> u64 {
    let published = |(_, hop): &&(&str, &TraceHop)| hop.step == TraceStep::Published as i32;
    let first = steps.iter().find(published).or(steps.first());
    first.map_or(0, |(_, hop)| hop.at_ns)
}

fn people(output: &mut Output, id: EventId, trace: &EventTrace) -> Result<(), Failure> {
    let steps = steps(trace);
    if let Some(event) = &trace.event {
        let severity = Severity::from_wire(event.severity).unwrap_or(Severity::Info);
        let (name, space) = (printable(&event.name), printable(&event.space));
        let word = styled(style_of(severity), severity.as_str());
        output.line(&format!("{}  {word}  event of {space}, {id}", styled(STRONG, &name)))?;
    } else if !steps.is_empty() {
        output.line(&format!("{id}  (no agent has the event itself in memory any more)"))?;
    }
    let begin_ns = begin_ns(&steps);
    let width = steps.iter().map(|(host, _)| host.chars().count()).max().unwrap_or(0);
    for (host, hop) in &steps {
        let delay = styled(FAINT, &format!("{:>+11.3} ms", delay_ms(begin_ns, hop.at_ns)));
        let (style, words) = words(hop, &what(trace, hop));
        output.line(&format!("{delay}  {:<width$}  {}", printable(host), styled(style, &words)))?;
    }
    if !steps.is_empty() {
        let delivered = |(_, hop): &&(&str, &TraceHop)| hop.step == TraceStep::Delivered as i32;
        let count = steps.iter().filter(delivered).count();
        let (agents, answered) = (trace.agents.len(), trace.answered);
        output.line(&format!(
            "{agents} of {answered} agents met it; it went to {count} subscriptions"
        ))?;
    }
    if trace.omitted > 0 {
        output.line(&format!("{} more agents met it (not shown)", trace.omitted))?;
    }
    for host in &trace.silent {
        output.line(&styled(WARN, &format!("no answer from {}", printable(host))))?;
    }
    if trace.silent_more > 0 {
        let more = format!("no answer from {} more agents", trace.silent_more);
        output.line(&styled(WARN, &more))?;
    }
    Ok(())
}

/// The host or client of a step. The event itself names a publisher that has gone.
fn what(trace: &EventTrace, hop: &TraceHop) -> String {
    let publisher = || match &trace.event {
        Some(event) if hop.step == TraceStep::Published as i32 => event.client.clone(),
        _ => String::new(),
    };
    match hop.what.is_empty() {
        true => publisher(),
        false => hop.what.clone(),
    }
}

/// What a step says to people.
fn words(hop: &TraceHop, what: &str) -> (anstyle::Style, String) {
    let gone = match TraceStep::from_wire(hop.step) {
        Some(TraceStep::Folded) => "that is not in memory any more",
        _ => "a client that has gone",
    };
    let what = if what.is_empty() { gone } else { what };
    let (what, number) = (printable(what), hop.number);
    let Some(step) = TraceStep::from_wire(hop.step) else {
        return (PLAIN, "a step that this version does not know".to_owned());
    };
    match step {
        TraceStep::Published => (PLAIN, format!("published by {what}")),
        TraceStep::Folded if number == 0 => {
            (WARN, "folded into a later event (storm control)".to_owned())
        }
        TraceStep::Folded => {
            (WARN, format!("acting root: folded into event {what}, index {number} (group_by)"))
        }
        TraceStep::Limited => (BAD, "rejected by storm control".to_owned()),
        TraceStep::SentUp => (PLAIN, format!("sent up to {what}")),
        TraceStep::FromBelow => (PLAIN, format!("came up from {what}")),
        TraceStep::Duplicate => (WARN, "known already: dropped the copy".to_owned()),
        TraceStep::Logged => (PLAIN, format!("acting root: logged at index {number}")),
        TraceStep::Replicated => (PLAIN, format!("standby: copied index {number}")),
        TraceStep::Committed => (GOOD, format!("acting root: committed index {number}")),
        TraceStep::SentDown => (PLAIN, format!("a filter below matches: sent down to {what}")),
        TraceStep::FromAbove => (PLAIN, format!("came down, index {number}")),
        TraceStep::Delivered => (GOOD, format!("a filter matches: delivered to {what}")),
        TraceStep::Shed | TraceStep::ShedBelow => {
            (BAD, format!("shed for {what}, which is too slow"))
        }
    }
}

fn json(output: &mut Output, id: EventId, trace: &EventTrace) -> Result<(), Failure> {
    let steps = steps(trace);
    let begin_ns = begin_ns(&steps);
    for (host, hop) in &steps {
        output.json(&json!({
            "type": "step",
            "id": id.to_string(),
            "host": host,
            "step": TraceStep::from_wire(hop.step).map(TraceStep::as_str),
            "time_ns": hop.at_ns,
            "delay_ms": delay_ms(begin_ns, hop.at_ns),
            "number": hop.number,
            "what": what(trace, hop),
        }))?;
    }
    let event = trace.event.as_ref();
    let severity = event.and_then(|event| Severity::from_wire(event.severity));
    output.json(&json!({
        "type": "trace",
        "id": id.to_string(),
        "space": event.map(|event| &event.space),
        "name": event.map(|event| &event.name),
        "severity": severity.map(Severity::as_str),
        "agents": trace.agents.len(),
        "answered": trace.answered,
        "omitted": trace.omitted,
        "silent": trace.silent,
        "silent_more": trace.silent_more,
        "since_ns": trace.since_ns,
    }))
}
