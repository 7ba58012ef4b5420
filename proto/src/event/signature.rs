//! The signature in an envelope: what it covers, reading and writing.
//!
//! An agent adds it behind the other fields, so that the rest of the bytes stay as they were
//! signed. Not responsible for: keys, hashes and what a signature proves.

use super::{EventWireError, SEALED, SEALED_BYTES_MAX, Value, Walker, check_sealed, parts_of};
use crate::v1;
use bytes::BytesMut;
use ftb_core::Sealed;
use ftb_core::sealed::SealedRef;
use prost::Message as _;

/// Largest signature with its certificates, in bytes.
pub const SIGNATURE_BYTES_MAX: usize = 8 * 1024;
/// Most certificates of a signature.
pub const CHAIN_MAX: usize = 4;
/// Most hashes of a path: up to 64 events are signed together.
pub const PATH_MAX: usize = 6;
/// Size of a hash, SHA-256, in bytes.
pub const HASH_BYTES: usize = 32;

const FOLDED: u32 = 6;
const CONDITION: u32 = 7;
const SIGNATURE: u32 = 8;
const MEMBER: u32 = 9;
pub(super) const COUNTED: u32 = 11;

/// The bytes that a signature covers, in parts: all fields except fold, signature, and the marks of
/// members of groups and of statements that counted.
///
/// # Errors
/// [`EventWireError`]; impossible for a checked event.
pub fn signed_parts(sealed: &[u8]) -> Result<Vec<&[u8]>, EventWireError> {
    parts_without(sealed, &[FOLDED, SIGNATURE, MEMBER, COUNTED])
}

pub(super) fn parts_without<'a>(
    sealed: &'a [u8],
    left_out: &[u32],
) -> Result<Vec<&'a [u8]>, EventWireError> {
    let mut walker = Walker::new(SEALED, sealed);
    let (mut parts, mut start) = (Vec::with_capacity(2), 0);
    loop {
        let begin = walker.offset();
        let Some(field) = walker.next()? else { break };
        if left_out.contains(&field.number) {
            parts.extend(sealed.get(start..begin).filter(|part| !part.is_empty()));
            start = walker.offset();
        }
    }
    parts.extend(sealed.get(start..).filter(|part| !part.is_empty()));
    Ok(parts)
}

/// The signature of a checked event; `None` without one.
///
/// # Errors
/// [`EventWireError`]: it is malformed or over a bound.
pub fn signature_of(sealed: &[u8]) -> Result<Option<v1::Signature>, EventWireError> {
    let mut walker = Walker::new(SEALED, sealed);
    while let Some(field) = walker.next()? {
        let (SIGNATURE, Value::Bytes(span)) = (field.number, field.value) else { continue };
        let malformed = |what| field.malformed("signature", what);
        let signature = v1::Signature::decode(walker.slice(span));
        let signature = signature.map_err(|_| malformed("it cannot be decoded"))?;
        let v1::Signature { chain, path, place, .. } = &signature;
        let is_bounded = chain.len() <= CHAIN_MAX
            && path.len() <= PATH_MAX
            && path.iter().all(|hash| hash.len() == HASH_BYTES)
            && u64::from(*place) < 1 << path.len();
        return match is_bounded {
            true => Ok(Some(signature)),
            false => Err(malformed("a part of it is over its bound")),
        };
    }
    Ok(None)
}

/// The event with a signature. `None`: it has one, or there is no room for it.
pub fn with_signature(event: SealedRef<'_>, signature: &v1::Signature) -> Option<Sealed> {
    let mut bytes = BytesMut::with_capacity(event.len() + signature.encoded_len() + 8);
    bytes.extend_from_slice(event.bytes());
    prost::encoding::message::encode(SIGNATURE, signature, &mut bytes);
    if bytes.len() > SEALED_BYTES_MAX || signature.encoded_len() > SIGNATURE_BYTES_MAX {
        return None;
    }
    matches!(signature_of(event.bytes()), Ok(None)).then_some(())?;
    Sealed::new(event.head(), bytes.freeze()).ok()
}

/// The event without the condition that it states.
///
/// # Errors
/// [`EventWireError`]; impossible for a checked event.
pub fn without_condition(event: SealedRef<'_>) -> Result<Sealed, EventWireError> {
    parts_of(event.bytes())?;
    let bytes = parts_without(event.bytes(), &[CONDITION])?.concat();
    let (head, _) = check_sealed(&bytes)?;
    Ok(Sealed::new(head, bytes.into())?)
}
