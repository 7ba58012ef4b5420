//! What ftb-act publishes: events and conditions, each until it is confirmed.

use crate::act::{BREAKER_OPEN, COMPONENT, Notice, Order, PAGE_FAILED, SPACE, Stage, Then, Work};
use crate::pages::PageNotice;
use ftb_client::{Client, Condition, Event, NameError, PublishError, Severity, Truth, event};
use ftb_core::catalog::names;
use ftb_core::condition::RecommendedAction;
use ftb_core::text::cut;
use serde_json::json;
use std::time::Duration;
use tokio::time::sleep;

/// The pause before an event that was not confirmed is published again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Most bytes of a tag: what is longer is cut.
const TAG_BYTES_MAX: usize = 256;
/// Most bytes of a payload with a condition.
const TEXT_BYTES_MAX: usize = 1_024;

/// Publishes a notice again and again until it is confirmed. It is logged once why it is not.
pub async fn until_confirmed(client: Client, mut notice: Notice) {
    let mut is_logged = false;
    loop {
        let why = match event_of(&notice) {
            // Names come from a checked configuration.
            Err(error) => error.to_string(),
            Ok(event) => match client.publish(event) {
                Err(PublishError::Event(_)) if shorten(&mut notice) => continue,
                Err(error) => error.to_string(),
                Ok(receipt) => match receipt.confirmed().await {
                    Ok(_) => return,
                    Err(error) => error.to_string(),
                },
            },
        };
        if !std::mem::replace(&mut is_logged, true) {
            tracing::error!(why, "an event is not confirmed; it is published again");
        }
        sleep(AGAIN_AFTER).await;
    }
}

/// Leaves half of the conditions of an event that is too long; false: there are none. How many
/// there are, and the hosts, stay whole.
fn shorten(notice: &mut Notice) -> bool {
    let Notice::Event { work, .. } = notice else { return false };
    let count = work.conditions.len();
    work.conditions.truncate(count / 2);
    count > 0
}

/// The event of a notice.
///
/// # Errors
/// A name is none.
pub fn event_of(notice: &Notice) -> Result<Event, NameError> {
    match notice {
        Notice::Event { then, work } => {
            let Then::Publish { space, name, severity } = then else {
                return event_of(&Notice::Report(work.order.clone()));
            };
            let made = event(space.as_str(), name.as_str())?.severity(*severity);
            let made = made.tag("order", &work.key).tag("rule", &work.order.rule);
            Ok(made.payload(json_of(work)).build())
        }
        Notice::Service { subject, truth, text } => {
            let (name, severity) = match truth {
                Truth::True => (names::FTB_ACT_OUT_OF_SERVICE, Severity::Error),
                _ => (names::FTB_ACT_IN_SERVICE, Severity::Info),
            };
            let condition = Condition {
                host: subject.host().to_owned(),
                component: subject.component().to_owned(),
                action: RecommendedAction::Migrate,
                is_kept: true,
                ..Condition::new(subject.key(), *truth)
            };
            let made = event(SPACE, name)?.severity(severity).tag("node", subject.host());
            Ok(made.payload(cut(text, TEXT_BYTES_MAX).to_owned()).condition(condition).build())
        }
        Notice::Report(order) => report(order),
        Notice::Breaker { reason } => {
            let text = format!("{reason}: nothing is drained, no program runs (ftb-act resume)");
            let condition = breaker("", Truth::True);
            let made = event(SPACE, names::FTB_ACT_BREAKER)?.severity(Severity::Error);
            Ok(made.payload(text).condition(condition).build())
        }
    }
}

/// The event by which ftb-act states that it watches. Its agent states the watch as unknown when
/// ftb-act has gone.
///
/// # Errors
/// None: its names are constants.
pub fn watching() -> Result<Event, NameError> {
    let made = event(SPACE, names::FTB_ACT_WATCHING)?.payload("ftb-act watches conditions");
    Ok(made.condition(Condition::watch("", SPACE)).build())
}

/// The event by which ftb-act states whether web servers take the requests of a rule. It is lost
/// with ftb-act, which states it again after a start.
///
/// # Errors
/// None: its names are constants.
pub fn of_pages(notice: &PageNotice) -> Result<Event, NameError> {
    let (name, severity, truth) = match notice.is_failing {
        true => (names::FTB_ACT_PAGE_FAILED, Severity::Error, Truth::True),
        false => (names::FTB_ACT_PAGE_SENT, Severity::Info, Truth::False),
    };
    let condition = Condition {
        component: notice.rule.clone(),
        action: RecommendedAction::Watch,
        ..Condition::new(PAGE_FAILED, truth)
    };
    let made = event(SPACE, name)?.severity(severity).tag("rule", &notice.rule);
    Ok(made.payload(cut(&notice.text, TEXT_BYTES_MAX).to_owned()).condition(condition).build())
}

/// The condition of the breaker of the ftb-act on a host; empty: this one.
fn breaker(host: &str, truth: Truth) -> Condition {
    Condition {
        host: host.to_owned(),
        component: COMPONENT.to_owned(),
        is_kept: true,
        ..Condition::new(BREAKER_OPEN, truth)
    }
}

/// The event by which a person closes the breaker of the ftb-act on a host.
///
/// # Errors
/// None: its names are constants.
pub fn resume(host: &str) -> Result<Event, NameError> {
    let made = event(SPACE, names::FTB_ACT_RESUME)?.payload("a person has closed the breaker");
    Ok(made.condition(breaker(host, Truth::False)).build())
}

fn report(order: &Order) -> Result<Event, NameError> {
    let (is_done, text) = match &order.stage {
        Stage::Reporting { is_done, text } => (*is_done, &text[..]),
        _ => (true, ""),
    };
    let (name, severity) = match is_done {
        true => (names::FTB_ACT_DONE, Severity::Info),
        false => (names::FTB_ACT_FAILED, Severity::Error),
    };
    let made = event(SPACE, name)?.severity(severity).payload(order.host_list());
    let made = made.tag("order", order.id.to_string()).tag("rule", &order.rule);
    let made =
        made.tag("action", order.kind.as_str()).tag("group", cut(&order.group, TAG_BYTES_MAX));
    Ok(made.tag("result", cut(text, TAG_BYTES_MAX)).build())
}

/// An order as programs and web servers get it.
pub fn json_of(work: &Work) -> String {
    let spelled = |host: &str| {
        let found = work.order.hosts.iter().find(|known| known.eq_ignore_ascii_case(host));
        found.cloned().unwrap_or_else(|| host.to_owned())
    };
    let conditions: Vec<_> = work
        .conditions
        .iter()
        .map(|row| {
            json!({
                "host": spelled(row.subject.host()),
                "component": row.subject.component(),
                "key": row.subject.key(),
                "severity": row.severity.as_str(),
                "action": row.action.as_str(),
                "onset_ns": row.onset_ns,
                "message": row.message,
            })
        })
        .collect();
    let order = &work.order;
    json!({
        "type": "order",
        "id": work.key,
        "rule": order.rule,
        "group": order.group,
        "hosts": order.host_list(),
        "host_count": order.hosts.len(),
        "condition_count": order.causes.len(),
        "conditions": conditions,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::act::{Cause, Kind, Row};
    use ftb_client::Subject;

    #[test]
    fn an_event_that_is_too_long_shows_fewer_conditions_and_counts_all() {
        let subject = Subject::new("n1", "", "GPU");
        let row = Row {
            subject: subject.clone(),
            truth: Truth::True,
            severity: Severity::Error,
            action: RecommendedAction::Replace,
            onset_ns: 5,
            space: "ftb.agent".to_owned(),
            message: String::new(),
            silence: None,
        };
        let order = Order {
            id: 1,
            rule: "page".to_owned(),
            kind: Kind::Publish,
            group: "r1".to_owned(),
            causes: vec![Cause { subject, onset_ns: 5 }; 64],
            hosts: vec!["n1".to_owned()],
            stage: Stage::Live,
            changes_hosts: false,
            is_persons: false,
            passes: false,
        };
        let work = Work { order, key: "7-1".to_owned(), conditions: vec![row; 64] };
        let then = Then::Publish {
            space: ftb_core::EventSpace::new("site").unwrap(),
            name: ftb_core::EventName::new("X").unwrap(),
            severity: Severity::Info,
        };
        let mut notice = Notice::Event { then, work };
        for count in [32, 16, 8, 4, 2, 1, 0] {
            assert!(shorten(&mut notice));
            let payload = event_of(&notice).unwrap().payload;
            let json: serde_json::Value = serde_json::from_slice(&payload).unwrap();
            assert_eq!(json["conditions"].as_array().unwrap().len(), count);
            assert_eq!((&json["condition_count"], &json["hosts"]), (&json!(64), &json!("n1")));
        }
        assert!(!shorten(&mut notice), "there is nothing left to leave out");
    }
}
