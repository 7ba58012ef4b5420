//! Drills and answers as events, and back. Input is hostile until it is parsed.

use super::{
    Choice, Drill, DrillAnswer, DrillCheck, DrillId, SPACE, SPACE_OF_ANSWERS, SPACE_OF_JOB,
};
use crate::names::NodeName;
use crate::policy::Brake;
use core::fmt::Display;
use core::str::FromStr;
use ftb_core::catalog::{TRACE_TAG, names};
use ftb_core::condition::Condition;
use ftb_core::condition::Truth;
use ftb_core::limits::TAG_VALUE_BYTES_MAX;
use ftb_core::{Event, EventId, EventKind, EventName, EventSpace, Tag};

fn event(space: &str, name: &str) -> Event {
    let space = EventSpace::new(space).expect("the spaces of drills are well formed");
    let name = EventName::new(name).expect("the names of drills are well formed");
    Event::new(space, name)
}

fn tag(event: &mut Event, key: &str, value: impl ToString) {
    let mut value = value.to_string();
    while value.len() > TAG_VALUE_BYTES_MAX {
        value.pop();
    }
    event.tags.push(Tag { key: key.to_owned(), value });
}

fn parsed<T: FromStr<Err: Display>>(event: &Event, key: &str) -> Result<Option<T>, String> {
    let read = |text: &str| text.parse().map_err(|error| format!("tag {key}: {error}"));
    event.tag(key).map(read).transpose()
}

fn needed<T: FromStr<Err: Display>>(event: &Event, key: &str) -> Result<T, String> {
    parsed(event, key)?.ok_or_else(|| format!("tag {key} is missing"))
}

/// A drill as an event of INFO. Its path is remembered whatever its severity is. `own`: of the
/// owner of the job.
pub fn to_drill(drill: &Drill, own: bool) -> Event {
    let mut event = event(if own { SPACE_OF_JOB } else { SPACE }, names::FTB_DRILL);
    let (space, name) = &drill.fault;
    event.job_id.clone_from(&drill.job);
    event.payload = drill.node.as_ref().map(ToString::to_string).unwrap_or_default().into();
    tag(&mut event, "drill", drill.number);
    tag(&mut event, "fault", format_args!("{space} {name}"));
    tag(&mut event, "severity", drill.severity);
    if let Some(condition) = &drill.condition {
        tag(&mut event, "condition", condition);
    }
    if let Some(node) = &drill.node {
        tag(&mut event, "node", node);
    }
    if let Some(host) = &drill.from {
        tag(&mut event, "from", host);
    }
    tag(&mut event, TRACE_TAG, true);
    event
}

/// Reads a drill.
///
/// # Errors
/// What is wrong with it.
pub fn from_drill(event: &Event) -> Result<Drill, String> {
    let fault: String = needed(event, "fault")?;
    let (space, name) = fault.split_once(' ').ok_or("tag fault is no event space and name")?;
    let condition: Option<String> = parsed(event, "condition")?;
    if let Some(key) = &condition {
        Condition::new(key, Truth::True).check().map_err(|error| error.to_string())?;
    }
    Ok(Drill {
        number: needed(event, "drill")?,
        fault: (
            EventSpace::new(space).map_err(|error| error.to_string())?,
            EventName::new(name).map_err(|error| error.to_string())?,
        ),
        severity: needed(event, "severity")?,
        condition,
        node: parsed::<NodeName>(event, "node")?,
        from: parsed::<NodeName>(event, "from")?,
        job: event.job_id.clone(),
    })
}

/// The answer to the drill with that id.
pub fn answer(answer: &DrillAnswer, drill: EventId) -> Event {
    let mut event = event(SPACE_OF_ANSWERS, names::FTB_DRILL_ANSWER);
    event.kind = EventKind::Response(Some(drill));
    event.payload = answer.words.clone().into();
    tag(&mut event, "drill", answer.number);
    tag(&mut event, "choice", answer.choice.as_str());
    let checked: Vec<&str> = answer.checked.iter().map(|check| check.as_str()).collect();
    let checked = checked.join(" ");
    let texts = [
        ("node", answer.node.as_ref().map(NodeName::as_str)),
        ("rule", answer.rule.as_deref()),
        ("target", answer.target.as_ref().map(NodeName::as_str)),
        ("checked", Some(checked.as_str()).filter(|words| !words.is_empty())),
        ("unchecked", answer.unchecked.as_deref()),
        ("braked", answer.braked.map(Brake::as_str)),
    ];
    for (key, value) in texts {
        if let Some(value) = value {
            tag(&mut event, key, value);
        }
    }
    event
}

/// Reads an answer. One of another release may have checked less, or choose what is not known here.
///
/// # Errors
/// What is wrong with it.
pub fn from_answer(event: &Event) -> Result<DrillAnswer, String> {
    let words = core::str::from_utf8(&event.payload).map_err(|error| error.to_string())?;
    let choice: String = needed(event, "choice")?;
    let checked: Vec<&str> = event.tag("checked").unwrap_or_default().split(' ').collect();
    let is_checked = |check: &DrillCheck| checked.contains(&check.as_str());
    Ok(DrillAnswer {
        number: needed::<DrillId>(event, "drill")?,
        node: parsed(event, "node")?,
        choice: Choice::from(choice.as_str()),
        rule: parsed(event, "rule")?,
        target: parsed(event, "target")?,
        words: words.to_owned(),
        checked: DrillCheck::ALL.into_iter().filter(is_checked).collect(),
        unchecked: parsed(event, "unchecked")?,
        braked: event.tag("braked").and_then(Brake::of_word),
    })
}
