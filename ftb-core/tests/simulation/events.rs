//! Events as the shell would seal them, small.

use bytes::Bytes;
use ftb_core::ident::{EventId, PublisherId};
use ftb_core::node::Fold;
use ftb_core::sealed::{Head, Sealed, SealedRef, Span};
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
        covers: 0,
        time_ns: 1,
        space: span(space),
        name: span(name),
        host: span(host),
        job_id: Span::default(),
        client_name: Span::default(),
    };
    Sealed::new(head, Bytes::from(text)).unwrap()
}

/// A fold, as a shell would stamp it.
pub fn fold(last: &Sealed, fold: &Fold) -> Sealed {
    let mut bytes = last.bytes().to_vec();
    bytes.extend_from_slice(format!("#{}", fold.count).as_bytes());
    let head = Head { covers: fold.covers, ..*last.head() };
    Sealed::new(head, Bytes::from(bytes)).unwrap()
}

/// How many events one stands for.
pub fn count_of(sealed: SealedRef<'_>) -> u64 {
    let bytes = sealed.bytes();
    let text = std::str::from_utf8(bytes).unwrap();
    text.rsplit_once('#').map_or(1, |(_, count)| count.parse().unwrap())
}
