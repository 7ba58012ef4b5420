//! An event on its way: the publisher's bytes with its agent's stamps beside them.
//!
//! The bytes are made once (event by the publisher, stamps by its agent) and never made again:
//! every agent forwards the same bytes and looks only at the [`Head`], offsets into them. The
//! encoding itself lives in `ftb-proto`, which fills the head when bytes come in; here they are
//! opaque. Where an event is told by what is its own ([`crate::own`]), its texts are read in the
//! one that it is like.

use crate::ident::EventId;
use crate::own::OwnParts;
use crate::severity::Severity;
use bytes::{BufMut, Bytes};
use std::borrow::Cow;

/// Where a text lies in the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// Length in bytes.
    pub len: u32,
}

impl Span {
    /// Where it ends.
    pub(crate) fn end(self) -> u64 {
        u64::from(self.start) + u64::from(self.len)
    }
}

/// What routing, matching, folding and dedupe need of an event, without decoding the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The event's id, stamped by the publisher's agent.
    pub id: EventId,
    /// How bad it is.
    pub severity: Severity,
    /// The publisher's uid on its host, stamped by its agent from the peer credentials.
    pub uid: u32,
    /// The publisher's process, stamped likewise.
    pub pid: u32,
    /// Set when a client published it a second time to a restarted agent: the acting root then
    /// looks the id up among those it has logged.
    pub republished: bool,
    /// It stands for so many sequences right before its own as well (a fold, see
    /// [`crate::node::Fold`]); 0 for every other event.
    pub covers: u32,
    /// When, in Unix nanoseconds on the publisher's clock.
    pub time_ns: u64,
    /// The event space.
    pub space: Span,
    /// The event name.
    pub name: Span,
    /// The publisher's host, stamped by its agent.
    pub host: Span,
    /// The job id.
    pub job_id: Span,
    /// The client's name.
    pub client_name: Span,
}

impl Head {
    /// Where its texts lie, by what they are called in errors.
    pub(crate) fn texts(&self) -> [(&'static str, Span); 5] {
        [
            ("event space", self.space),
            ("event name", self.name),
            ("host", self.host),
            ("job id", self.job_id),
            ("client name", self.client_name),
        ]
    }

    /// Behind the last of its texts.
    pub(crate) fn texts_end(&self) -> u64 {
        self.texts().into_iter().map(|(_, span)| span.end()).max().unwrap_or(0)
    }

    /// The same of another event.
    pub(crate) fn of(&self, seq: u64, time_ns: u64) -> Self {
        Self { id: EventId { seq, ..self.id }, time_ns, ..*self }
    }
}

/// An event as agents carry it. Cloning copies no bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    head: Head,
    bytes: Bytes,
}

/// An event where it lies: alone ([`Sealed`]) or among others ([`crate::run::Run`]).
#[derive(Clone, Copy, Debug)]
pub struct SealedRef<'a> {
    /// But for number and time, which may be another's in it.
    head: &'a Head,
    seq: u64,
    time_ns: u64,
    /// Its bytes, or those of one that it is like.
    bytes: &'a [u8],
    /// Where it is only like that one: what is its own.
    own: Option<Own<'a>>,
}

/// Time and payload of an event that is told by what is its own, and where the whole event has
/// them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own<'a> {
    pub(crate) parts: OwnParts,
    pub(crate) bytes: &'a [u8],
}

impl PartialEq for SealedRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.head(), self.bytes()) == (other.head(), other.bytes())
    }
}

impl Eq for SealedRef<'_> {}

/// A span of a head that does not lie in the bytes, or is no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {0} of an event lies outside its bytes or is no UTF-8 text")]
pub struct SpanError(pub &'static str);

impl Sealed {
    /// Binds a head to its bytes after checking that every span lies in them and is text.
    ///
    /// # Errors
    /// [`SpanError`] names the field; the event must be refused.
    pub fn new(head: Head, bytes: Bytes) -> Result<Self, SpanError> {
        for (field, span) in head.texts() {
            text(&bytes, span).ok_or(SpanError(field))?;
        }
        Ok(Self { head, bytes })
    }

    /// The routing fields.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The event's id.
    pub fn id(&self) -> EventId {
        self.head.id
    }

    /// How bad it is.
    pub fn severity(&self) -> Severity {
        self.head.severity
    }

    /// The encoded event, stamps included.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The same for who needs nothing else of it.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// Size in bytes, the measure of every queue that holds it.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are no bytes (never, for an event that was encoded).
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The event space.
    pub fn space(&self) -> &str {
        self.as_ref().space()
    }

    /// The event name.
    pub fn name(&self) -> &str {
        self.as_ref().name()
    }

    /// The publisher's host.
    pub fn host(&self) -> &str {
        self.as_ref().host()
    }

    /// The job id; may be empty.
    pub fn job_id(&self) -> &str {
        self.as_ref().job_id()
    }

    /// The client's name; may be empty.
    pub fn client_name(&self) -> &str {
        self.as_ref().client_name()
    }

    /// The same event, looked at.
    pub fn as_ref(&self) -> SealedRef<'_> {
        let Head { id, time_ns, .. } = self.head;
        SealedRef { head: &self.head, seq: id.seq, time_ns, bytes: &self.bytes, own: None }
    }

    /// The same event in bytes of its own: what is kept for long must not pin the frame that it
    /// came in.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self { head: self.head, bytes: Bytes::copy_from_slice(&self.bytes) }
    }
}

impl<'a> SealedRef<'a> {
    /// Of a head whose spans lie in these bytes, with this number and time in place of its own.
    pub(crate) fn of(head: &'a Head, seq: u64, time_ns: u64, bytes: &'a [u8]) -> Self {
        Self { head, seq, time_ns, bytes, own: None }
    }

    /// The event that is like this one but for its number and what is its own, whose parts fit.
    pub(crate) fn like(self, seq: u64, own: Own<'a>) -> Self {
        let time = own.bytes.first_chunk().map_or(0, |time| u64::from_le_bytes(*time));
        Self { seq, time_ns: time, own: Some(own), ..self }
    }

    /// The routing fields.
    pub fn head(self) -> Head {
        self.head.of(self.seq, self.time_ns)
    }

    /// The event's id.
    pub fn id(self) -> EventId {
        EventId { seq: self.seq, ..self.head.id }
    }

    /// When, in Unix nanoseconds on the publisher's clock.
    pub fn time_ns(self) -> u64 {
        self.time_ns
    }

    /// How bad it is.
    pub fn severity(self) -> Severity {
        self.head.severity
    }

    /// The encoded event, stamps included; a copy where it lies nowhere as a whole.
    pub fn bytes(self) -> Cow<'a, [u8]> {
        if self.own.is_none() {
            return Cow::Borrowed(self.bytes);
        }
        let mut whole = Vec::with_capacity(self.len());
        self.put(&mut whole);
        Cow::Owned(whole)
    }

    /// Appends the encoded event, stamps included.
    pub fn put(self, out: &mut impl BufMut) {
        match self.own {
            None => out.put_slice(self.bytes),
            Some(Own { parts, bytes }) => parts.put(self.bytes, self.seq, bytes, out),
        }
    }

    /// Size in bytes of the encoded event.
    #[allow(clippy::len_without_is_empty)] // None is empty.
    pub fn len(self) -> usize {
        self.bytes.len()
    }

    /// The event space.
    pub fn space(self) -> &'a str {
        self.text(self.head.space)
    }

    /// The event name.
    pub fn name(self) -> &'a str {
        self.text(self.head.name)
    }

    /// The publisher's host.
    pub fn host(self) -> &'a str {
        self.text(self.head.host)
    }

    /// The job id; may be empty.
    pub fn job_id(self) -> &'a str {
        self.text(self.head.job_id)
    }

    /// The client's name; may be empty.
    pub fn client_name(self) -> &'a str {
        self.text(self.head.client_name)
    }

    /// The same event in bytes of its own.
    pub fn to_sealed(self) -> Sealed {
        Sealed { head: self.head(), bytes: self.bytes().into_owned().into() }
    }

    /// Whether no filter can tell it from another.
    pub(crate) fn routes_like(self, other: Self) -> bool {
        let fields =
            |head: &Head| [head.space, head.name, head.host, head.job_id, head.client_name];
        self.head.severity == other.head.severity
            && fields(self.head)
                .into_iter()
                .zip(fields(other.head))
                .all(|(ours, theirs)| slice(self.bytes, ours) == slice(other.bytes, theirs))
    }

    fn text(self, span: Span) -> &'a str {
        // Checked when it came in; an empty text is the harmless answer to the impossible.
        text(self.bytes, span).unwrap_or_default()
    }
}

impl<'a> From<&'a Sealed> for SealedRef<'a> {
    fn from(sealed: &'a Sealed) -> Self {
        sealed.as_ref()
    }
}

fn slice(bytes: &[u8], span: Span) -> Option<&[u8]> {
    let start = span.start as usize;
    bytes.get(start..start.checked_add(span.len as usize)?)
}

fn text(bytes: &[u8], span: Span) -> Option<&str> {
    core::str::from_utf8(slice(bytes, span)?).ok()
}
