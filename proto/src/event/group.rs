//! Members and folds of groups ([`ftb_core::group`]) as bytes.

use super::walk::{Once, Value, Walker};
use super::{EventWireError, Folded, decode_sealed, parts_of, text, walk_tag, within};
use crate::v1;
use bytes::{BufMut as _, BytesMut};
use ftb_core::group::{GroupFold, Grouper, check_fold};
use ftb_core::sealed::{GroupHead, Head, Span};
use ftb_core::{Sealed, SealedRef, Tag, limits};
use prost::Message as _;

const WHAT: &str = "fold of a group";
/// The tags of a fold for readers that know no groups.
const HOSTS: &str = "hosts";
const COUNT: &str = "count";

/// The encoding for the core.
pub fn grouper() -> Grouper {
    Grouper { values, member, fold }
}

/// Reads and checks a fold that lies at `at`.
pub(super) fn read(at: Span, bytes: &[u8]) -> Result<GroupHead, EventWireError> {
    let (fold, [hosts, members]) = walk(bytes)?;
    let malformed = |what| EventWireError::Malformed { message: WHAT, offset: 0, what };
    let list = text("host list", hosts.slice(bytes).unwrap_or_default())?;
    let ids = members.slice(bytes).unwrap_or_default();
    check_fold(list, ids, fold.count).map_err(malformed)?;
    Ok(GroupHead { count: fold.count, hosts: within(at, hosts), members: within(at, members) })
}

/// What a checked fold says to readers.
pub(super) fn folded(bytes: &[u8]) -> Result<Folded, EventWireError> {
    let (fold, [hosts, _]) = walk(bytes)?;
    let hosts = text("host list", hosts.slice(bytes).unwrap_or_default())?.to_owned();
    let v1::GroupFold { count, first_ns, last_ns, .. } = fold;
    Ok(Folded { hosts: Some(hosts), count, first_ns, last_ns })
}

/// Numbers, and where host list and members lie.
fn walk(bytes: &[u8]) -> Result<(v1::GroupFold, [Span; 2]), EventWireError> {
    let mut walker = Walker::new(WHAT, bytes);
    let mut once = Once::default();
    let mut fold = v1::GroupFold::default();
    let mut spans = [Span::default(); 2];
    while let Some(field) = walker.next()? {
        match (field.number, field.value) {
            (1, Value::Varint(number)) => fold.count = number,
            (2, Value::Bytes(span)) => spans[0] = span,
            (3, Value::Fixed64(number)) => fold.first_ns = number,
            (4, Value::Fixed64(number)) => fold.last_ns = number,
            (5, Value::Bytes(span)) => spans[1] = span,
            (1..=5, _) => return Err(field.wrong_type(WHAT)),
            _ => continue,
        }
        once.check(WHAT, &field)?;
    }
    Ok((fold, spans))
}

/// Tags of an event that answers no other.
fn values<'a>(event: SealedRef<'a>, keys: &[String]) -> Option<Vec<&'a str>> {
    let (event, _) = parts_of(event.bytes()).ok()?;
    let mut found = vec![None; keys.len()];
    let mut walker = Walker::new("event", event);
    while let Some(field) = walker.next().ok()? {
        match (field.number, field.value) {
            (7, Value::Varint(number)) if number != 0 => return None,
            (9, Value::Bytes(span)) => {
                let [key, value] = walk_tag(walker.slice(span)).ok()?;
                for (wanted, found) in keys.iter().zip(&mut found) {
                    if key == wanted {
                        found.get_or_insert(value);
                    }
                }
            }
            _ => {}
        }
    }
    Some(found.into_iter().map(Option::unwrap_or_default).collect())
}

/// The same bytes with one field more.
fn member(event: SealedRef<'_>) -> Option<Sealed> {
    if event.head().is_of_group() {
        return None;
    }
    let mut bytes = BytesMut::with_capacity(event.len() + 2);
    bytes.extend_from_slice(event.bytes());
    bytes.put_slice(&[9 << 3, 1]);
    let head = Head { is_member: true, ..event.head() };
    Sealed::new(head, bytes.freeze()).ok()
}

/// The carrier without its condition, which the members state, and without its signature: no host
/// signs what the acting root says of others.
fn fold(carrier: &Sealed, fold: &GroupFold) -> Option<Sealed> {
    let GroupFold { count, hosts, first_ns, last_ns, members } = fold.clone();
    let mut wire = v1::Sealed::decode(carrier.bytes().clone()).ok()?;
    (wire.condition, wire.signature) = (None, None);
    (wire.member, wire.counted) = (false, false);
    let tags = [(HOSTS, hosts.clone()), (COUNT, count.to_string())];
    let event = v1::Event::decode(wire.event.clone()).ok()?;
    let has_room = event.tags.len() + tags.len() <= limits::TAGS_MAX;
    let mut event = BytesMut::from(&wire.event[..]);
    for (key, value) in tags {
        if has_room && value.len() <= limits::TAG_VALUE_BYTES_MAX {
            prost::encoding::message::encode(
                9,
                &v1::Tag { key: key.to_owned(), value },
                &mut event,
            );
        }
    }
    wire.event = event.freeze();
    wire.group = Some(v1::GroupFold { count, hosts, first_ns, last_ns, members: members.into() });
    decode_sealed(wire.encode_to_vec().into()).ok()
}

/// The tags of a fold that has lost members.
pub(super) fn retag(tags: &mut [Tag], folded: &Folded) {
    let hosts = folded.hosts.clone().unwrap_or_default();
    for (key, value) in [(HOSTS, hosts), (COUNT, folded.count.to_string())] {
        if let Some(tag) = tags.iter_mut().rev().find(|tag| tag.key == key) {
            tag.value = value;
        }
    }
}
