//! Texts in fixed C arrays: reading with a bound, writing with a NUL.

use core::ffi::CStr;

/// The bytes before the NUL; `None` when there is none in the field: then the text is too long.
pub(crate) fn text(field: &[u8]) -> Option<&[u8]> {
    CStr::from_bytes_until_nul(field).ok().map(CStr::to_bytes)
}

/// The bytes before the NUL, or all of them.
pub(crate) fn bounded(field: &[u8]) -> &[u8] {
    text(field).unwrap_or(field)
}

/// A field with that text and zeros behind it. What does not fit beside the NUL is cut off, not
/// within a UTF-8 character.
pub(crate) fn field<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut field = [0; N];
    let room = N.saturating_sub(1);
    let mut end = text.len().min(room);
    if end < text.len() {
        while end > 0 && text[end] & 0b1100_0000 == 0b1000_0000 {
            end -= 1;
        }
    }
    field[..end].copy_from_slice(&text[..end]);
    field
}

/// As text: what is no UTF-8 becomes U+FFFD.
pub(crate) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether it may stand in an event space or in the name of a declared event.
pub(crate) fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_read_with_its_bound_and_written_with_a_nul() {
        assert_eq!(text(b"ab\0c"), Some(&b"ab"[..]));
        assert_eq!(text(b"abcd"), None);
        assert_eq!(bounded(b"abcd"), b"abcd");
        assert_eq!(field::<4>(b"abcdef"), *b"abc\0");
        assert_eq!(field::<4>(b"ab"), *b"ab\0\0");
        assert_eq!(field::<4>("ab\u{e9}".as_bytes()), *b"ab\0\0", "no half of a character");
        assert_eq!(field::<5>("ab\u{e9}".as_bytes()), *b"ab\xc3\xa9\0");
    }
}
