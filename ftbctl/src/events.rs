//! `ftbctl subscribe` and `ftbctl events`: events as they arrive, and events of the past.

use crate::cli::{Events, Subscribe};
use crate::common::Common;
use crate::failure::Failure;
use crate::output::{BAD, FAINT, Output, STRONG, style_of, styled};
use crate::text;
use ftb_client::json::{EventObject, GapObject};
use ftb_client::{
    Client, Delivery, Filter, FilterError, Gap, GapReason, Received, Start, Subscription,
};
use std::io::IsTerminal as _;
use tokio::time::{Instant, timeout, timeout_at};

/// Prints events as they arrive.
pub(crate) async fn subscribe(
    common: &Common,
    args: Subscribe,
    output: Output,
) -> Result<(), Failure> {
    let start = match (args.since, args.after) {
        (Some(since), _) => Start::SinceNs(since.as_ns(common.utc)),
        (None, Some(position)) => Start::After(position),
        (None, None) => Start::Now,
    };
    check(args.which.filter())?;
    let deadline = common.timeout_given().map(|timeout| Instant::now() + timeout);
    let client = common.client().build().map_err(Failure::failed)?;
    let subscription = open(common, &client, args.which.filter(), start).await?;
    let mut shown = Shown { output, left: args.count.unwrap_or(u64::MAX) };
    let follow = follow(subscription, &mut shown);
    let Some(deadline) = deadline else {
        return follow.await;
    };
    match timeout_at(deadline, follow).await {
        Ok(done) => done,
        Err(_) if args.count.is_none() => shown.output.flush(),
        Err(_) => {
            shown.output.flush()?;
            let left = shown.left;
            Err(Failure::no_answer(format_args!(
                "the deadline passed before {left} more events arrived"
            )))
        }
    }
}

/// Rejects a wrong filter before anything is started, in one line. At a terminal, a caret marks the
/// column.
pub(crate) fn check(filter: &str) -> Result<(), Failure> {
    Filter::parse(filter).map(drop).map_err(|error| {
        let FilterError { column, reason } = error;
        let place = match std::io::stderr().is_terminal() {
            true => format!("\n{}\n{:>column$}", text::printable(filter), "^"),
            false => String::new(),
        };
        Failure::usage(format_args!("the filter is wrong, column {column}: {reason}{place}"))
    })
}

async fn open(
    common: &Common,
    client: &Client,
    filter: &str,
    start: Start,
) -> Result<Subscription, Failure> {
    client.wait_connected(common.timeout()).await?;
    let subscribed = timeout(common.timeout(), client.subscribe(filter, start)).await;
    subscribed
        .map_err(|_| {
            let waited = text::exact(common.timeout());
            Failure::no_answer(format_args!("the subscription was not active within {waited}"))
        })?
        .map_err(Failure::from)
}

struct Shown {
    output: Output,
    /// Events that may still be printed.
    left: u64,
}

async fn follow(mut subscription: Subscription, shown: &mut Shown) -> Result<(), Failure> {
    while shown.left > 0 {
        let next = match subscription.try_next() {
            Some(delivery) => Some(delivery),
            None => {
                // What arrived is visible before the command waits.
                shown.output.flush()?;
                subscription.next().await
            }
        };
        match next {
            Some(delivery) => show(shown, &delivery)?,
            None => return Err(ended(&subscription)),
        }
    }
    shown.output.flush()
}

fn ended(subscription: &Subscription) -> Failure {
    match subscription.ended() {
        Some(why) => why.into(),
        None => Failure::failed("the subscription has ended"),
    }
}

/// Prints the events of the past, up to the time of the call.
pub(crate) async fn history(common: &Common, args: Events, output: Output) -> Result<(), Failure> {
    check(args.which.filter())?;
    let client = common.client().build().map_err(Failure::failed)?;
    let since = Start::SinceNs(args.since.as_ns(common.utc));
    let mut subscription = open(common, &client, args.which.filter(), since).await?;
    let mut shown = Shown { output, left: args.count.unwrap_or(u64::MAX) };
    let mut is_empty = true;
    while shown.left > 0 {
        let Ok(next) = timeout(common.timeout(), subscription.next_of_past()).await else {
            shown.output.flush()?;
            let waited = text::exact(common.timeout());
            return Err(Failure::no_answer(format_args!("no answer within {waited}")));
        };
        match next {
            Some(delivery) => {
                is_empty = false;
                show(&mut shown, &delivery)?;
            }
            None if subscription.ended().is_some() => return Err(ended(&subscription)),
            None => break,
        }
    }
    if is_empty && !shown.output.is_json() {
        shown.output.line("no events")?;
    }
    shown.output.flush()
}

fn show(shown: &mut Shown, delivery: &Delivery) -> Result<(), Failure> {
    let output = &mut shown.output;
    match delivery {
        Delivery::Event(received) => {
            shown.left -= 1;
            if output.is_json() {
                output.json(&EventObject::from(&**received))
            } else {
                output.line(&event_line(received, output.utc))
            }
        }
        Delivery::Gap(gap) if output.is_json() => output.json(&GapObject::from(gap)),
        Delivery::Gap(gap) => output.line(&styled(BAD, &gap_line(gap))),
    }
}

/// Payload, tags and how many were folded.
pub(crate) fn details_of(received: &Received) -> String {
    let event = &received.event;
    let mut details = text::payload(&event.payload);
    for tag in &event.tags {
        if !details.is_empty() {
            details.push_str("  ");
        }
        details.push_str(&format!(
            "{}={}",
            text::printable(&tag.key),
            text::payload(tag.value.as_bytes())
        ));
    }
    if let Some(folded) = &received.folded {
        let seconds = folded.last_ns.saturating_sub(folded.first_ns) as f64 / 1e9;
        details.push_str(&format!("  ({} such events in {seconds:.1} s)", folded.count));
    }
    details
}

fn event_line(received: &Received, utc: bool) -> String {
    let event = &received.event;
    let details = details_of(received);
    let time = styled(FAINT, &text::time(event.time_ns, utc));
    let severity = styled(style_of(event.severity), &format!("{:<7}", event.severity));
    let name = styled(STRONG, &format!("{:<22}", event.name));
    let hosts = received.folded.as_ref().and_then(|folded| folded.hosts.as_deref());
    let host = text::printable(hosts.unwrap_or(&received.host));
    format!("{time}  {severity}  {host:<10}  {:<12}  {name}  {details}", event.space)
        .trim_end()
        .to_owned()
}

pub(crate) fn gap_line(gap: &Gap) -> String {
    let count = match gap.count {
        None => "an unknown number of".to_owned(),
        Some(count) => count.to_string(),
    };
    let reason = match gap.reason {
        GapReason::Shed => "overload",
        other => other.as_str(),
    };
    let highest =
        gap.severity_max.map_or("unknown".to_owned(), |severity| severity.as_str().to_lowercase());
    format!("GAP: {count} events lost ({reason}), highest severity {highest}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftb_client::Position;

    #[test]
    fn what_is_unknown_of_a_gap_is_shown_as_unknown() {
        let gap = Gap {
            after: Position::ZERO,
            until: Position::ZERO,
            reason: GapReason::Retention,
            count: None,
            severity_max: None,
            spaces: Default::default(),
        };
        let line = "GAP: an unknown number of events lost (retention), highest severity unknown";
        assert_eq!(gap_line(&gap), line);
        let json = serde_json::to_value(GapObject::from(&gap)).unwrap_or_default();
        let unknown = ["after", "until", "count", "severity_max"];
        assert!(unknown.iter().all(|key| json.get(key).is_some_and(|value| value.is_null())));
        let severity_max = Some(ftb_client::Severity::Error);
        let known = Gap { count: Some(7), severity_max, reason: GapReason::Shed, ..gap };
        assert_eq!(gap_line(&known), "GAP: 7 events lost (overload), highest severity error");
    }
}
