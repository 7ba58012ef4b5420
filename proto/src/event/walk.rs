//! A walk over the fields of one protobuf message: no allocation, no recursion, no panic.

use super::{EventWireError, span_number};
use core::ops::Range;
use ftb_core::sealed::Span;

/// What a field holds.
#[derive(Clone, Copy)]
pub(super) enum Value {
    Varint(u64),
    Fixed64(u64),
    /// Where its bytes lie in the message.
    Bytes(Span),
    /// Of no message here; only to be skipped.
    Fixed32,
}

/// One field.
#[derive(Clone, Copy)]
pub(super) struct Field {
    pub(super) number: u32,
    pub(super) value: Value,
    /// Where its key begins.
    offset: usize,
}

impl Field {
    pub(super) fn wrong_type(&self, message: &'static str) -> EventWireError {
        self.malformed(message, "a field has the wrong wire type")
    }

    /// A varint that must fit in 32 bits.
    pub(super) fn u32(&self, message: &'static str, number: u64) -> Result<u32, EventWireError> {
        u32::try_from(number).map_err(|_| self.malformed(message, "a number is too large"))
    }

    pub(super) fn malformed(&self, message: &'static str, what: &'static str) -> EventWireError {
        EventWireError::Malformed { message, offset: self.offset, what }
    }
}

/// Refuses the second occurrence of a field that may occur once: readers that take the first and
/// readers that take the last must not see different events.
#[derive(Default)]
pub(super) struct Once(u32);

impl Once {
    /// Known field numbers are below 32.
    #[inline]
    pub(super) fn check(
        &mut self,
        message: &'static str,
        field: &Field,
    ) -> Result<(), EventWireError> {
        let bit = 1_u32.checked_shl(field.number).unwrap_or_default();
        if self.0 & bit != 0 {
            return Err(field.malformed(message, "a field occurs twice"));
        }
        self.0 |= bit;
        Ok(())
    }
}

#[derive(Clone, Debug)]
pub(super) struct Walker<'a> {
    message: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Walker<'a> {
    pub(super) fn new(message: &'static str, bytes: &'a [u8]) -> Self {
        Self { message, bytes, at: 0 }
    }

    /// Where the next field begins.
    pub(super) fn offset(&self) -> usize {
        self.at
    }

    /// The bytes of a span that this walk gave; empty for any other.
    #[inline(always)]
    pub(super) fn slice(&self, span: Span) -> &'a [u8] {
        span.slice(self.bytes).unwrap_or_default()
    }

    /// The next field; `None` at the end of the message.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Result<Option<Field>, EventWireError> {
        if self.at == self.bytes.len() {
            return Ok(None);
        }
        let offset = self.at;
        let key = self.varint()?;
        let number = u32::try_from(key >> 3)
            .ok()
            .filter(|number| *number != 0 && *number < 1 << 29)
            .ok_or_else(|| self.malformed(offset, "no field has this number"))?;
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => Value::Bytes(self.span()?),
            5 => {
                self.array::<4>()?;
                Value::Fixed32
            }
            _ => return Err(self.malformed(offset, "this wire type is not allowed")),
        };
        Ok(Some(Field { number, value, offset }))
    }

    /// Where the field that was given last lies.
    pub(super) fn range_of(&self, last: &Field) -> Range<usize> {
        last.offset..self.at
    }

    #[inline(always)]
    fn span(&mut self) -> Result<Span, EventWireError> {
        let len = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
        let start = self.at;
        self.advance(len)?;
        Ok(Span { start: span_number(start), len: span_number(len) })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], EventWireError> {
        let start = self.at;
        self.advance(N)?;
        let mut array = [0; N];
        array.copy_from_slice(&self.bytes[start..start + N]);
        Ok(array)
    }

    #[inline(always)]
    fn advance(&mut self, len: usize) -> Result<(), EventWireError> {
        if len > self.bytes.len() - self.at {
            return Err(self.malformed(self.at, "it ends in the middle of a field"));
        }
        self.at += len;
        Ok(())
    }

    #[inline(always)]
    fn varint(&mut self) -> Result<u64, EventWireError> {
        // Keys and most numbers have one byte.
        if let Some(byte) = self.bytes.get(self.at).filter(|byte| **byte < 0x80) {
            self.at += 1;
            return Ok(u64::from(*byte));
        }
        self.long_varint()
    }

    #[inline(never)]
    fn long_varint(&mut self) -> Result<u64, EventWireError> {
        let start = self.at;
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let Some(byte) = self.bytes.get(self.at) else {
                return Err(self.malformed(start, "it ends in the middle of a number"));
            };
            self.at += 1;
            if shift == 63 && *byte > 1 {
                break;
            }
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.malformed(start, "a number has more than 64 bits"))
    }

    #[cold]
    fn malformed(&self, offset: usize, what: &'static str) -> EventWireError {
        EventWireError::Malformed { message: self.message, offset, what }
    }
}
