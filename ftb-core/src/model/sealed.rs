//! An event as agents carry it: the publisher's bytes with the envelope of its agent around them.
//!
//! The publisher encodes an event once, its agent adds the envelope once. Every agent forwards the
//! same bytes and reads only the [`Head`], which says where the routing fields lie.
//!
//! Not responsible for: the encoding. To this crate the bytes are opaque; `ftb-proto` fills the
//! head.

use crate::condition::{Condition, Provenance, RecommendedAction, Subject, Truth};
use crate::group;
use crate::hostlist::Hostlist;
use crate::ident::EventId;
use crate::numbers::PublisherSeq;
use crate::severity::Severity;
use bytes::Bytes;
use std::fmt;

/// A range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// Length in bytes.
    pub len: u32,
}

impl Span {
    /// The byte behind the last.
    pub(crate) fn end(self) -> u64 {
        u64::from(self.start) + u64::from(self.len)
    }

    /// Its bytes; `None` if it is not within `bytes`.
    pub fn slice(self, bytes: &[u8]) -> Option<&[u8]> {
        let start = self.start as usize;
        bytes.get(start..start.checked_add(self.len as usize)?)
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
    /// It also stands for that number of sequences right before its own (a fold, see
    /// [`crate::node::Fold`]); 0 for every other event.
    pub covers: u32,
    /// When, in Unix nanoseconds on the publisher's clock.
    pub time_ns: u64,
    /// Agents remember its path: it is of ERROR or FATAL, it states a condition with WARNING, or
    /// its publisher wants that.
    pub is_traced: bool,
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
    /// The condition that the event states, verified by its agent.
    pub condition: Option<ConditionHead>,
    /// The acting root reports it in a fold of its group ([`crate::group`]).
    pub is_member: bool,
    /// It is the fold of a group.
    pub group: Option<GroupHead>,
    /// Its statement counted when the log retained it ([`CountedMark`]).
    pub is_counted: bool,
}

/// How the mark of a statement that counted is put into an event, and removed: the shell's, as all
/// encodings are. A log drops statements, and those that are left must count again where they are
/// copied or read from disk, whatever is missing before them.
#[derive(Clone, Copy)]
pub struct CountedMark {
    /// The event with the mark, longer by [`COUNTED_BYTES`]. `None`: it has it, or is over a bound.
    pub put: fn(SealedRef<'_>) -> Option<Sealed>,
    /// The event without it. `None`: it has none.
    pub remove: fn(SealedRef<'_>) -> Option<Sealed>,
}

/// Bytes of a mark.
pub const COUNTED_BYTES: usize = 2;

impl fmt::Debug for CountedMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CountedMark")
    }
}

/// There is one encoding.
impl PartialEq for CountedMark {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for CountedMark {}

/// The fold in a head; [`group::GroupFold`] describes the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHead {
    /// How many events are in it.
    pub count: u64,
    /// The host list.
    pub hosts: Span,
    /// The ids: no text.
    pub members: Span,
}

/// The condition in a head; [`Condition`] describes the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConditionHead {
    /// The host; empty: the publisher's host.
    pub host: Span,
    /// The component.
    pub component: Span,
    /// The key.
    pub key: Span,
    /// Whether it holds.
    pub truth: Truth,
    /// What is recommended.
    pub action: RecommendedAction,
    /// How bad it is; `None`: as bad as the event.
    pub severity: Option<Severity>,
    /// Since when; 0: since the event.
    pub onset_ns: u64,
    /// Milliseconds after the event when it becomes unknown; 0: never.
    pub expires_ms: u32,
    /// It outlives its publisher.
    pub is_kept: bool,
    /// What the agent adds.
    pub provenance: Provenance,
}

impl Head {
    /// With the verified statement of the event.
    pub fn with_condition(self, condition: Option<ConditionHead>) -> Self {
        let states = condition.is_some() && self.severity >= Severity::Warning;
        Self { condition, is_traced: self.is_traced || states, ..self }
    }

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

    /// The same of its condition.
    pub(crate) fn condition_texts(&self) -> impl Iterator<Item = (&'static str, Span)> {
        let texts = self.condition.map(|condition| {
            [
                ("host of the condition", condition.host),
                ("component of the condition", condition.component),
                ("key of the condition", condition.key),
            ]
        });
        texts.into_iter().flatten()
    }

    /// The same of its fold.
    pub(crate) fn group_texts(&self) -> impl Iterator<Item = (&'static str, Span)> {
        self.group.map(|group| ("host list", group.hosts)).into_iter()
    }

    /// Whether groups are about it: it is a member, or the fold of some.
    pub fn is_of_group(&self) -> bool {
        self.is_member || self.group.is_some()
    }

    /// The same of another event.
    pub(crate) fn of(&self, seq: PublisherSeq, time_ns: u64) -> Self {
        Self { id: EventId { seq, ..self.id }, time_ns, ..*self }
    }
}

/// An event as agents carry it. Cloning copies no bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    head: Head,
    bytes: Bytes,
}

/// An event in a buffer: alone ([`Sealed`]) or with others ([`crate::run::Run`]).
#[derive(Clone, Copy, Debug)]
pub struct SealedRef<'a> {
    /// Sequence number and time in it may be those of another event.
    head: &'a Head,
    seq: PublisherSeq,
    time_ns: u64,
    bytes: &'a [u8],
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
        let texts = head.texts().into_iter().chain(head.condition_texts());
        for (field, span) in texts.chain(head.group_texts()) {
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
        SealedRef { head: &self.head, seq: id.seq, time_ns, bytes: &self.bytes }
    }

    /// The same event in bytes of its own: what is kept for long must not pin the frame that it
    /// came in.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self { head: self.head, bytes: Bytes::copy_from_slice(&self.bytes) }
    }
}

impl<'a> SealedRef<'a> {
    /// The spans of the head lie in these bytes; number and time replace those of the head.
    pub(crate) fn of(head: &'a Head, seq: PublisherSeq, time_ns: u64, bytes: &'a [u8]) -> Self {
        Self { head, seq, time_ns, bytes }
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

    /// The user that published it; its agent vouches for it.
    pub fn uid(self) -> u32 {
        self.head.uid
    }

    /// Whether agents remember its path.
    pub fn is_traced(self) -> bool {
        self.head.is_traced
    }

    /// How bad it is.
    pub fn severity(self) -> Severity {
        self.head.severity
    }

    /// The encoded event with its envelope.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
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

    /// Whether the acting root reports it in the fold of its group.
    pub fn is_member(self) -> bool {
        self.head.is_member
    }

    /// The fold, if it is that of a group.
    pub fn group(self) -> Option<GroupRef<'a>> {
        self.head.group.as_ref().map(|head| GroupRef { event: self, head })
    }

    /// How many events it stands for in reports of what is missing.
    pub(crate) fn weight(self) -> u64 {
        self.head.group.map_or(1, |group| group.count)
    }

    /// Whether its statement counted when a log retained it.
    pub fn is_counted(self) -> bool {
        self.head.is_counted
    }

    /// The same event without the mark of that.
    pub(crate) fn unmarked(self, mark: Option<CountedMark>) -> Sealed {
        let head = Head { is_counted: false, ..self.head() };
        let plain = mark.and_then(|mark| (mark.remove)(self));
        plain.unwrap_or_else(|| Sealed { head, bytes: Bytes::copy_from_slice(self.bytes) })
    }

    /// Its size without the mark of that.
    pub(crate) fn unmarked_len(self) -> usize {
        self.len() - if self.is_counted() { COUNTED_BYTES.min(self.len()) } else { 0 }
    }

    /// The condition that it states.
    pub fn condition(self) -> Option<ConditionRef<'a>> {
        self.head.condition.as_ref().map(|head| ConditionRef { event: self, head })
    }

    /// The same event in bytes of its own.
    pub fn to_sealed(self) -> Sealed {
        Sealed { head: self.head(), bytes: Bytes::copy_from_slice(self.bytes) }
    }

    /// Whether no filter can distinguish it from another.
    pub(crate) fn routes_like(self, other: Self) -> bool {
        let same = |((_, ours), (_, theirs)): ((_, Span), (_, Span))| {
            ours.slice(self.bytes) == theirs.slice(other.bytes)
        };
        self.head.severity == other.head.severity
            && self.head.condition.is_none()
            && other.head.condition.is_none()
            && self.head.group.is_none()
            && other.head.group.is_none()
            && self.head.is_member == other.head.is_member
            && self.head.texts().into_iter().zip(other.head.texts()).all(same)
    }

    fn text(self, span: Span) -> &'a str {
        // Checked when it came in; an empty text is the harmless answer to the impossible.
        text(self.bytes, span).unwrap_or_default()
    }
}

/// The fold of a group.
#[derive(Clone, Copy, Debug)]
pub struct GroupRef<'a> {
    event: SealedRef<'a>,
    head: &'a GroupHead,
}

impl<'a> GroupRef<'a> {
    /// The hosts of its members, as ranges.
    pub fn hosts(self) -> &'a str {
        self.event.text(self.head.hosts)
    }

    /// Whether a host of its list is one of these.
    pub(crate) fn any_host(self, wanted: impl FnMut(&str) -> bool) -> bool {
        let mut wanted = wanted;
        Hostlist::parse(self.hosts()).is_ok_and(|hosts| hosts.iter().any(|host| wanted(&host)))
    }

    /// The events that are in it. It was checked when it came in.
    pub fn members(self) -> Vec<group::MemberIds> {
        let bytes = self.head.members.slice(self.event.bytes).unwrap_or_default();
        group::read_members(bytes).unwrap_or_default()
    }
}

/// The condition that an event states.
#[derive(Clone, Copy, Debug)]
pub struct ConditionRef<'a> {
    event: SealedRef<'a>,
    head: &'a ConditionHead,
}

impl<'a> ConditionRef<'a> {
    /// The host that it is about.
    pub fn host(self) -> &'a str {
        match self.head.host.len {
            0 => self.event.host(),
            _ => self.event.text(self.head.host),
        }
    }

    /// The component of the host; may be empty.
    pub fn component(self) -> &'a str {
        self.event.text(self.head.component)
    }

    /// The key.
    pub fn key(self) -> &'a str {
        self.event.text(self.head.key)
    }

    /// Whether it is about that.
    pub fn is_about(self, subject: &Subject) -> bool {
        self.component() == subject.component()
            && self.host().eq_ignore_ascii_case(subject.host())
            && self.key().eq_ignore_ascii_case(subject.key())
    }

    /// What it is about.
    pub fn subject(self) -> Subject {
        Subject::new(self.host(), self.component(), self.key())
    }

    /// Numbers and flags.
    pub fn head(self) -> &'a ConditionHead {
        self.head
    }

    /// How bad it is.
    pub fn severity(self) -> Severity {
        self.head.severity.unwrap_or(self.event.severity())
    }

    /// Since when, in Unix nanoseconds.
    pub fn onset_ns(self) -> u64 {
        match self.head.onset_ns {
            0 => self.event.time_ns(),
            onset_ns => onset_ns,
        }
    }

    /// When it becomes unknown, in Unix nanoseconds; `None`: never.
    pub fn expires_at_ns(self) -> Option<u64> {
        let expires_ns = u64::from(self.head.expires_ms).saturating_mul(1_000_000);
        (expires_ns > 0).then(|| self.event.time_ns().saturating_add(expires_ns))
    }

    /// The publisher's statement: this event, or the one that it repeats.
    pub fn source(self) -> EventId {
        self.head.provenance.source.unwrap_or(self.event.id())
    }

    /// The statement with texts of its own, which names its host, severity and onset.
    pub fn to_condition(self) -> Condition {
        let ConditionHead { truth, action, expires_ms, is_kept, .. } = *self.head;
        Condition {
            host: self.host().to_owned(),
            component: self.component().to_owned(),
            key: self.key().to_owned(),
            truth,
            action,
            severity: Some(self.severity()),
            onset_ns: self.onset_ns(),
            expires_ms,
            is_kept,
        }
    }
}

impl<'a> From<&'a Sealed> for SealedRef<'a> {
    fn from(sealed: &'a Sealed) -> Self {
        sealed.as_ref()
    }
}

fn text(bytes: &[u8], span: Span) -> Option<&str> {
    core::str::from_utf8(span.slice(bytes)?).ok()
}
