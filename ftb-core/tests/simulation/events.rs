//! Events as the shell would seal them, small.

use bytes::Bytes;
use ftb_core::condition::{Condition, Provenance};
use ftb_core::group::{GroupFold, Grouper};
use ftb_core::ident::{EventId, PublisherId};
use ftb_core::node::Fold;
use ftb_core::sealed::{
    COUNTED_BYTES, ConditionHead, CountedMark, GroupHead, Head, Sealed, SealedRef, Span,
};
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

/// The key of the conditions that publishers of the simulation state.
pub const KEY: &str = "FAULT";

pub fn seal(publisher: PublisherId, seq: u64, said: &Said<'_>) -> Sealed {
    seal_stated(publisher, seq, said, None)
}

/// The same with a condition. Its texts stand behind the others.
pub fn seal_stated(
    publisher: PublisherId,
    seq: u64,
    said: &Said<'_>,
    stated: Option<(Condition, Provenance)>,
) -> Sealed {
    let Said { severity, space, name, host, payload } = *said;
    let mut text = format!("{space}{name}{host}");
    let texts = stated.as_ref().map(|(c, _)| [&c.host, &c.component, &c.key].map(String::clone));
    texts.iter().flatten().for_each(|part| text.push_str(part));
    text.push_str(&".".repeat(payload));
    let mut at = 0;
    let mut span = |part: &str| {
        let len = u32::try_from(part.len()).unwrap();
        at += len;
        Span { start: at - len, len }
    };
    let (space, name, host) = (span(space), span(name), span(host));
    let condition = stated.map(|(condition, provenance)| ConditionHead {
        host: span(&condition.host),
        component: span(&condition.component),
        key: span(&condition.key),
        truth: condition.truth,
        action: condition.action,
        severity: condition.severity,
        onset_ns: condition.onset_ns,
        expires_ms: condition.expires_ms,
        is_kept: condition.is_kept,
        provenance,
    });
    let head = Head {
        id: EventId { publisher, seq: seq.into() },
        severity,
        uid: 1000,
        pid: 1,
        republished: false,
        covers: 0,
        is_traced: severity >= Severity::Error,
        time_ns: 1,
        space,
        name,
        host,
        job_id: Span::default(),
        client_name: Span::default(),
        condition,
        is_member: false,
        group: None,
        is_counted: false,
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

/// The mark of a statement that counted, as a shell would encode it.
pub fn counted_mark() -> CountedMark {
    let put = |event: SealedRef<'_>| {
        let bytes = [event.bytes(), &[b'!'; COUNTED_BYTES]].concat();
        let head = Head { is_counted: true, ..event.head() };
        (!event.is_counted()).then(|| Sealed::new(head, bytes.into()).unwrap())
    };
    let remove = |event: SealedRef<'_>| {
        let bytes = event.bytes().strip_suffix(&[b'!'; COUNTED_BYTES])?;
        let head = Head { is_counted: false, ..event.head() };
        event.is_counted().then(|| Sealed::new(head, Bytes::copy_from_slice(bytes)).unwrap())
    };
    CountedMark { put, remove }
}

/// Members and folds of groups, as a shell would encode them. Events have no tags here.
pub fn grouper() -> Grouper {
    Grouper { values: |_, tags| Some(vec![""; tags.len()]), member, fold: group_fold }
}

fn member(event: SealedRef<'_>) -> Option<Sealed> {
    let head = Head { is_member: true, ..event.head() };
    Sealed::new(head, Bytes::copy_from_slice(event.bytes())).ok()
}

fn group_fold(carrier: &Sealed, fold: &GroupFold) -> Option<Sealed> {
    let mut bytes = carrier.bytes().to_vec();
    let mut put = |part: &[u8]| {
        let start = u32::try_from(bytes.len()).unwrap();
        bytes.extend_from_slice(part);
        Span { start, len: u32::try_from(part.len()).unwrap() }
    };
    let (hosts, members) = (put(fold.hosts.as_bytes()), put(&fold.members));
    let group = Some(GroupHead { count: fold.count, hosts, members });
    let head = Head { is_member: false, condition: None, group, ..*carrier.head() };
    Sealed::new(head, Bytes::from(bytes)).ok()
}
