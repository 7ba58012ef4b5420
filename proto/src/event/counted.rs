//! The mark of a statement that counted, in an envelope.
//!
//! Not responsible for: which statements get it, and what it means (`ftb_core::log`).

use super::signature::{COUNTED, parts_without};
use super::{SEALED_BYTES_MAX, decode_sealed};
use bytes::{BufMut as _, BytesMut};
use ftb_core::sealed::{COUNTED_BYTES, CountedMark, Head};
use ftb_core::{Sealed, SealedRef};

/// The encoding for the core.
pub fn counted_mark() -> CountedMark {
    CountedMark { put, remove }
}

/// The same bytes with one field more.
fn put(event: SealedRef<'_>) -> Option<Sealed> {
    if event.is_counted() || event.len() + COUNTED_BYTES > SEALED_BYTES_MAX {
        return None;
    }
    let mut bytes = BytesMut::with_capacity(event.len() + COUNTED_BYTES);
    bytes.extend_from_slice(event.bytes());
    bytes.put_slice(&[(COUNTED as u8) << 3, 1]);
    Sealed::new(Head { is_counted: true, ..event.head() }, bytes.freeze()).ok()
}

fn remove(event: SealedRef<'_>) -> Option<Sealed> {
    if !event.is_counted() {
        return None;
    }
    decode_sealed(parts_without(event.bytes(), &[COUNTED]).ok()?.concat().into()).ok()
}
