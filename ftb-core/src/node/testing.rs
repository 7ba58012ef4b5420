//! Events for tests.

use crate::ident::{EventId, PublisherId};
use crate::sealed::{Head, Sealed, Span};
use crate::severity::Severity;
use crate::storm::Fold;
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
        covers: 0,
        time_ns: seq,
        space: span(0, 8),
        name: span(8, 5),
        host: span(13, 4),
        job_id: Span::default(),
        client_name: Span::default(),
    };
    Sealed::new(head, Bytes::from_static(TEXT)).expect("the spans lie in the text")
}

/// An event of the publisher with token 1 that says something.
pub(crate) fn said(space: &str, name: &str, seq: u64, severity: Severity) -> Sealed {
    let text = format!("{space}{name}{}", ".".repeat(2_000));
    let number = |text: &str| u32::try_from(text.len()).expect("a short text");
    let mut head = *sealed_with(1, seq, severity).head();
    head.space = Span { start: 0, len: number(space) };
    head.name = Span { start: number(space), len: number(name) };
    head.host = Span::default();
    Sealed::new(head, Bytes::from(text)).expect("the spans lie in the text")
}

/// A fold, as an encoding would make it.
pub(crate) fn folded(last: &Sealed, fold: &Fold) -> Sealed {
    let head = Head { covers: fold.covers, ..*last.head() };
    Sealed::new(head, last.bytes().clone()).expect("the spans lie in the text")
}

impl Sealed {
    pub(crate) fn republished(&self) -> Self {
        let head = Head { republished: true, ..*self.head() };
        Self::new(head, self.bytes().clone()).expect("the spans lie in the text")
    }
}
