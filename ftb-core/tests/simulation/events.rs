//! Events as the shell would seal them, small.

use bytes::Bytes;
use ftb_core::ident::{EventId, PublisherId};
use ftb_core::sealed::{Head, Sealed, Span};
use ftb_core::severity::Severity;

/// The space of the publishers in the simulation, and of the agents' own events.
pub const SPACE: &str = "ftb.sim";
pub const AGENT_SPACE: &str = "ftb.agent";

/// What an event says.
pub struct Said<'a> {
    pub severity: Severity,
    pub space: &'a str,
    pub name: &'a str,
    pub host: &'a str,
    pub payload: usize,
}

pub fn seal(publisher: PublisherId, seq: u64, said: &Said<'_>) -> Sealed {
    let Said { severity, space, name, host, payload } = *said;
    let text = format!("{space}{name}{host}{}", ".".repeat(payload));
    let mut at = 0;
    let mut span = |part: &str| {
        let len = u32::try_from(part.len()).unwrap();
        at += len;
        Span { start: at - len, len }
    };
    let head = Head {
        id: EventId { publisher, seq },
        severity,
        uid: 1000,
        pid: 1,
        republished: false,
        time_ns: 1,
        space: span(space),
        name: span(name),
        host: span(host),
        job_id: Span::default(),
        client_name: Span::default(),
    };
    Sealed::new(head, Bytes::from(text)).unwrap()
}
