//! Events for tests.

use crate::condition::{Provenance, RecommendedAction, Truth};
use crate::ident::{EventId, OriginId, PublisherId};
use crate::sealed::{COUNTED_BYTES, ConditionHead, CountedMark, Head, Sealed, SealedRef, Span};
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
        id: EventId { publisher: PublisherId { account: 1, token }, seq: seq.into() },
        severity,
        uid: 0,
        pid: 1,
        republished: false,
        covers: 0,
        time_ns: seq,
        is_traced: severity >= Severity::Error,
        space: span(0, 8),
        name: span(8, 5),
        host: span(13, 4),
        job_id: Span::default(),
        client_name: Span::default(),
        condition: None,
        is_member: false,
        group: None,
        is_counted: false,
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

/// An event that states a condition of the host `host`.
pub(crate) struct Stated<'a> {
    pub(crate) token: u64,
    pub(crate) seq: u64,
    /// Empty: `host`.
    pub(crate) publisher_host: &'a str,
    /// Empty: the host of the publisher.
    pub(crate) host: &'a str,
    pub(crate) component: &'a str,
    pub(crate) key: &'a str,
    pub(crate) truth: Truth,
    pub(crate) severity: Severity,
    pub(crate) provenance: Provenance,
    pub(crate) is_kept: bool,
    pub(crate) onset_ns: u64,
}

impl Default for Stated<'_> {
    fn default() -> Self {
        Self {
            token: 1,
            seq: 1,
            publisher_host: "",
            host: "",
            component: "",
            key: "FANFAIL",
            truth: Truth::True,
            severity: Severity::Error,
            provenance: Provenance::direct(OriginId(1)),
            is_kept: false,
            onset_ns: 0,
        }
    }
}

pub(crate) fn stated(stated: &Stated<'_>) -> Sealed {
    let Stated { token, seq, host, component, key, truth, severity, .. } = *stated;
    let Stated { provenance, is_kept, onset_ns, publisher_host, .. } = *stated;
    let plain = sealed_with(token, seq, severity);
    let mut bytes = plain.bytes().to_vec();
    let mut span = |text: &str| {
        let start = u32::try_from(bytes.len()).expect("a short text");
        bytes.extend_from_slice(text.as_bytes());
        Span { start, len: u32::try_from(text.len()).expect("a short text") }
    };
    let own_host = match publisher_host {
        "" => plain.head().host,
        _ => span(publisher_host),
    };
    let condition = ConditionHead {
        host: span(host),
        component: span(component),
        key: span(key),
        truth,
        action: RecommendedAction::None,
        severity: None,
        onset_ns,
        expires_ms: 0,
        is_kept,
        provenance,
    };
    let head = Head { condition: Some(condition), host: own_host, ..*plain.head() };
    Sealed::new(head, Bytes::from(bytes)).expect("the spans lie in the text")
}

/// The mark of a statement that counted, as an encoding would put it.
pub(crate) fn counted_mark() -> CountedMark {
    let put = |event: SealedRef<'_>| {
        let bytes = [event.bytes(), &[b'!'; COUNTED_BYTES]].concat();
        let head = Head { is_counted: true, ..event.head() };
        (!event.is_counted()).then(|| Sealed::new(head, bytes.into()).expect("the same spans"))
    };
    let remove = |event: SealedRef<'_>| {
        let bytes = Bytes::copy_from_slice(event.bytes().strip_suffix(&[b'!'; COUNTED_BYTES])?);
        let head = Head { is_counted: false, ..event.head() };
        event.is_counted().then(|| Sealed::new(head, bytes).expect("the same spans"))
    };
    CountedMark { put, remove }
}

/// A fold, as an encoding would make it.
pub(crate) fn folded(last: &Sealed, fold: &Fold) -> Sealed {
    let head = Head { covers: fold.covers, ..*last.head() };
    Sealed::new(head, last.bytes().clone()).expect("the spans lie in the text")
}

/// The same event, published again.
pub(crate) fn republished(event: &Sealed) -> Sealed {
    let head = Head { republished: true, ..*event.head() };
    Sealed::new(head, event.bytes().clone()).expect("the spans lie in the text")
}
