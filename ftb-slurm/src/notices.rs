//! The events of the bridge: what happens to nodes, and what it states of itself.

use crate::bridge::Notice;
use crate::service::{COMPONENT, REFUSES, ServiceNotice, UNREACHABLE};
use ftb_client::{Condition, Event, EventBuilder, NameError, Severity, Truth, event};
use ftb_core::catalog::names;
use ftb_core::condition::RecommendedAction;
use ftb_core::hostlist;
use ftb_core::text::cut;

/// The event space of the bridge.
pub const SPACE: &str = "ftb.slurm";
/// Most bytes of a tag: what is longer is cut.
const TAG_BYTES_MAX: usize = 256;
/// Most bytes of a payload with a condition.
const TEXT_BYTES_MAX: usize = 1_024;

fn tag(builder: EventBuilder, key: &str, text: &str) -> EventBuilder {
    match text {
        "" => builder,
        text => builder.tag(key, cut(text, TAG_BYTES_MAX)),
    }
}

/// The event of a change: the payload is the host list.
///
/// # Errors
/// None: its names are constants.
pub fn event_of(notice: &Notice) -> Result<Event, NameError> {
    let (name, severity, hosts) = match notice {
        Notice::Drained { hosts, .. } => (names::FTB_SLURM_DRAINED, Severity::Warning, hosts),
        Notice::Resumed { hosts } => (names::FTB_SLURM_RESUMED, Severity::Info, hosts),
        Notice::Down { hosts, .. } => (names::FTB_SLURM_DOWN, Severity::Warning, hosts),
        Notice::Up { hosts } => (names::FTB_SLURM_UP, Severity::Info, hosts),
        Notice::Limited { hosts } => (names::FTB_SLURM_LIMITED, Severity::Error, hosts),
    };
    let folded = hostlist::fold(hosts.iter().map(String::as_str));
    let builder = event(SPACE, name)?.severity(severity).payload(folded);
    let builder = match notice {
        Notice::Drained { reason, user, .. } => tag(tag(builder, "reason", reason), "user", user),
        Notice::Down { reason, .. } => tag(builder, "reason", reason),
        _ => builder,
    };
    Ok(builder.build())
}

/// The event by which the bridge states something of itself.
///
/// # Errors
/// None: its names are constants.
pub fn event_of_service(notice: &ServiceNotice) -> Result<Event, NameError> {
    let of_service = |key: &str, truth| Condition {
        component: COMPONENT.to_owned(),
        action: RecommendedAction::Watch,
        ..Condition::new(key, truth)
    };
    let (name, severity, text, condition) = match notice {
        ServiceNotice::Watching => {
            let text = "ftb-slurm watches the nodes of Slurm".to_owned();
            (names::FTB_SLURM_WATCHING, Severity::Info, text, Condition::watch("", SPACE))
        }
        ServiceNotice::Unreachable(problem) => {
            let condition = of_service(UNREACHABLE, Truth::True);
            (names::FTB_SLURM_UNREACHABLE, Severity::Error, problem.clone(), condition)
        }
        ServiceNotice::Reachable => {
            let (text, truth) = ("Slurm answers again".to_owned(), Truth::False);
            let condition = of_service(UNREACHABLE, truth);
            (names::FTB_SLURM_REACHABLE, Severity::Info, text, condition)
        }
        ServiceNotice::Refused(refusals) => {
            let hosts = hostlist::fold(refusals.hosts.iter().map(String::as_str));
            let condition = of_service(REFUSES, Truth::True);
            (names::FTB_SLURM_REFUSED, Severity::Error, hosts, condition)
        }
        ServiceNotice::Obeyed => {
            let (text, truth) = ("Slurm refuses no order".to_owned(), Truth::False);
            (names::FTB_SLURM_OBEYED, Severity::Info, text, of_service(REFUSES, truth))
        }
    };
    let builder = event(SPACE, name)?.severity(severity).condition(condition);
    let builder = builder.payload(cut(&text, TEXT_BYTES_MAX).to_owned());
    let builder = match notice {
        ServiceNotice::Refused(refusals) => {
            let orders: Vec<&str> = refusals.orders.iter().copied().collect();
            tag(tag(builder, "order", &orders.join(" ")), "problem", &refusals.problem)
        }
        _ => builder,
    };
    Ok(builder.build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_folded_hosts_reason_and_user() {
        let hosts = vec!["node01".to_owned(), "node02".to_owned()];
        let (reason, user) = ("\u{e9}".repeat(200), "ann".to_owned());
        let event = event_of(&Notice::Drained { hosts, reason, user }).expect("it has a name");
        assert_eq!(&event.payload[..], b"node[01-02]");
        assert_eq!((event.name.as_str(), event.tag("user")), ("FTB_SLURM_DRAINED", Some("ann")));
        assert_eq!(event.tag("reason").map(str::len), Some(TAG_BYTES_MAX));
    }
}
