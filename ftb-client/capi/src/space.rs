//! Event spaces of exactly three parts, `region.category.component`, and how others look in C.
//!
//! The event spaces of the backplane have one to eight parts. A missing part reads [`NONE`]; parts
//! beyond the third belong to the component, joined with `_`: `ftb.ipmi` is `ftb.ipmi.none`,
//! `a.b.c.d` is `a.b.c_d`.

use crate::abi::MAX_EVENTSPACE;
use crate::text::is_word_byte;
use std::borrow::Cow;

/// What a part reads that the event space does not have.
pub(crate) const NONE: &str = "none";

/// Splits an event space of three parts of letters, digits and `_`.
pub(crate) fn split(space: &[u8]) -> Option<[&[u8]; 3]> {
    if space.len() >= MAX_EVENTSPACE {
        return None;
    }
    let parts = split_loosely(space)?;
    parts.iter().all(|part| part.iter().copied().all(is_word_byte)).then_some(parts)
}

/// Splits at the first two dots, whatever the parts are made of. None of them may be empty.
pub(crate) fn split_loosely(space: &[u8]) -> Option<[&[u8]; 3]> {
    let mut parts = space.splitn(3, |byte| *byte == b'.');
    let parts = [parts.next()?, parts.next()?, parts.next()?];
    (!parts.iter().any(|part| part.is_empty())).then_some(parts)
}

/// Any event space with three parts.
pub(crate) fn three_parts(space: &str) -> Cow<'_, str> {
    if space.bytes().filter(|byte| *byte == b'.').count() == 2 {
        return Cow::Borrowed(space);
    }
    let mut parts = space.splitn(3, '.');
    let mut part = || parts.next().unwrap_or(NONE);
    let (region, category, component) = (part(), part(), part());
    Cow::Owned(format!("{region}.{category}.{}", component.replace('.', "_")))
}

/// Whether a part can stand for one that the event space does not have.
pub(crate) fn is_none(part: &str) -> bool {
    part.eq_ignore_ascii_case(NONE)
}

/// Whether a component can be that of an event space that has not three parts.
pub(crate) fn may_be_foreign(component: &str) -> bool {
    is_none(component) || component.contains('_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_three_parts_of_letters_digits_and_underscores() {
        assert_eq!(split(b"FTB.a_1.x"), Some([&b"FTB"[..], b"a_1", b"x"]));
        for bad in ["", "a", "a.b", "a.b.", ".b.c", "a..c", "a.b.c.d", "a.b-c.d", "a.b.c d"] {
            assert_eq!(split(bad.as_bytes()), None, "{bad:?}");
        }
        let longest = format!("a.b.{}", "c".repeat(59));
        assert!(split(longest.as_bytes()).is_some());
        assert!(split(format!("{longest}c").as_bytes()).is_none());
    }

    #[test]
    fn other_numbers_of_parts_become_three() {
        for (space, three) in [
            ("ftb", "ftb.none.none"),
            ("ftb.ipmi", "ftb.ipmi.none"),
            ("ftb.ib.hca", "ftb.ib.hca"),
            ("a.b.c.d.e", "a.b.c_d_e"),
        ] {
            assert_eq!(three_parts(space), three);
        }
        assert!(may_be_foreign("None") && may_be_foreign("c_d") && !may_be_foreign("hca"));
    }
}
