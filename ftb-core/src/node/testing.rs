//! Events for tests.

use crate::ident::{EventId, PublisherId};
use crate::sealed::{Head, Sealed, Span};
use crate::severity::Severity;
use bytes::Bytes;

pub(crate) fn sealed(token: u64, seq: u64) -> Sealed {
    sealed_with(token, seq, Severity::Info)
}

pub(crate) fn sealed_with(token: u64, seq: u64, severity: Severity) -> Sealed {
    const TEXT: &[u8; 200] = &{
        let mut text = [b'.'; 200];
        let (routing, _) = text.split_at_mut(17);
        routing.copy_from_slice(b"ftb.testEVENThost");
        text
    };
    let span = |start, len| Span { start, len };
    let head = Head {
        id: EventId { publisher: PublisherId { account: 1, token }, seq },
        severity,
        uid: 0,
        pid: 1,
        republished: false,
        time_ns: seq,
        space: span(0, 8),
        name: span(8, 5),
        host: span(13, 4),
        job_id: Span::default(),
        client_name: Span::default(),
    };
    Sealed::new(head, Bytes::from_static(TEXT)).expect("the spans lie in the text")
}
