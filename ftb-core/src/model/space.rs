//! Event spaces (namespaces) and event names: checked text, compared without case as in CIFTS FTB.

use crate::limits;
use core::fmt;
use core::str::FromStr;

/// Why a text is no event space or event name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing there.
    #[error("{what} is empty: expected {expected}")]
    Empty {
        /// Which kind of name.
        what: &'static str,
        /// What one looks like.
        expected: &'static str,
    },
    /// Over the bound.
    #[error("{what} {text:?} has {bytes} bytes: at most {max} are allowed")]
    TooLong {
        /// Which kind of name.
        what: &'static str,
        /// Its beginning.
        text: String,
        /// Its length.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// More parts than [`limits::SPACE_PARTS_MAX`].
    #[error(
        "event space {text:?} has {parts} parts: at most {} are allowed",
        limits::SPACE_PARTS_MAX
    )]
    TooManyParts {
        /// The text.
        text: String,
        /// How many it has.
        parts: usize,
    },
    /// Two dots in a row, or one at an end.
    #[error("event space {text:?} has an empty part at column {column}")]
    EmptyPart {
        /// The text.
        text: String,
        /// Where, counted from 1.
        column: usize,
    },
    /// A character outside letters, digits, `_` and `-`.
    #[error(
        "{what} {text:?} has {character:?} at column {column}: only letters, digits, '_' and '-' \
         are allowed"
    )]
    Character {
        /// Which kind of name.
        what: &'static str,
        /// The text.
        text: String,
        /// The culprit.
        character: char,
        /// Where, counted from 1.
        column: usize,
    },
}

/// The bytes that may stand in a name.
const GOOD: [bool; 256] = {
    let mut good = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        good[byte] = b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        byte += 1;
    }
    good
};

fn is_good(byte: u8) -> bool {
    GOOD[byte as usize]
}

fn check_characters(what: &'static str, text: &str, dots: bool) -> Result<(), NameError> {
    let bad = text
        .chars()
        .enumerate()
        .find(|(_, c)| !(u8::try_from(*c).is_ok_and(is_good) || (dots && *c == '.')));
    match bad {
        None => Ok(()),
        Some((index, character)) => {
            Err(NameError::Character { what, text: text.to_owned(), character, column: index + 1 })
        }
    }
}

fn check_length(what: &'static str, text: &str, max: usize) -> Result<(), NameError> {
    if text.len() <= max {
        return Ok(());
    }
    let start = text.chars().take(32).collect();
    Err(NameError::TooLong { what, text: start, bytes: text.len(), max })
}

/// The namespace of an event: one to eight dot-separated parts, `ftb.ib.hca`. Case is kept and
/// ignored in comparison. (CIFTS demands exactly three parts: that is the C library's own rule.)
#[derive(Clone)]
pub struct EventSpace(Box<str>);

impl EventSpace {
    /// Checks a text.
    ///
    /// # Errors
    /// [`NameError`] says what is wrong and at which column.
    pub fn new(text: &str) -> Result<Self, NameError> {
        Self::check(text)?;
        Ok(Self(text.into()))
    }

    /// Checks a text without keeping it.
    ///
    /// # Errors
    /// As [`EventSpace::new`].
    pub fn check(text: &str) -> Result<(), NameError> {
        const WHAT: &str = "event space";
        // Every event is checked several times on its way: a good one in one pass.
        if Self::is_valid(text.as_bytes()) {
            return Ok(());
        }
        if text.is_empty() {
            return Err(NameError::Empty { what: WHAT, expected: "something like ftb.ib.hca" });
        }
        check_length(WHAT, text, limits::SPACE_BYTES_MAX)?;
        check_characters(WHAT, text, true)?;
        let mut column = 1;
        for part in text.split('.') {
            if part.is_empty() {
                return Err(NameError::EmptyPart { text: text.to_owned(), column });
            }
            column += part.len() + 1;
        }
        let parts = text.split('.').count();
        if parts > limits::SPACE_PARTS_MAX {
            return Err(NameError::TooManyParts { text: text.to_owned(), parts });
        }
        Ok(())
    }

    /// Whether these bytes are an event space. It must be true for each text that
    /// [`EventSpace::check`] accepts, and for no other.
    pub fn is_valid(text: &[u8]) -> bool {
        let (mut parts, mut part_bytes) = (1, 0);
        for byte in text {
            match *byte {
                b'.' if part_bytes > 0 => (parts, part_bytes) = (parts + 1, 0),
                byte if is_good(byte) => part_bytes += 1,
                _ => return false,
            }
        }
        part_bytes > 0 && parts <= limits::SPACE_PARTS_MAX && text.len() <= limits::SPACE_BYTES_MAX
    }

    /// The text as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether an event space, as an event names it, is that one or lies below it.
pub fn lies_in(space: &[u8], above: &str) -> bool {
    let whole_parts = matches!(space.get(above.len()), None | Some(b'.'));
    let head = space.get(..above.len());
    whole_parts && head.is_some_and(|head| head.eq_ignore_ascii_case(above.as_bytes()))
}

/// What happened, within its event space: `FTB_IPMI_FANFAIL`. Case is kept and ignored in
/// comparison.
#[derive(Clone)]
pub struct EventName(Box<str>);

impl EventName {
    /// Checks a text.
    ///
    /// # Errors
    /// [`NameError`] says what is wrong and at which column.
    pub fn new(text: &str) -> Result<Self, NameError> {
        Self::check(text)?;
        Ok(Self(text.into()))
    }

    /// Checks a text without keeping it.
    ///
    /// # Errors
    /// As [`EventName::new`].
    pub fn check(text: &str) -> Result<(), NameError> {
        const WHAT: &str = "event name";
        if Self::is_valid(text.as_bytes()) {
            return Ok(());
        }
        if text.is_empty() {
            return Err(NameError::Empty { what: WHAT, expected: "something like FAN_FAILED" });
        }
        check_length(WHAT, text, limits::NAME_BYTES_MAX)?;
        check_characters(WHAT, text, false)
    }

    /// Whether these bytes are an event name.
    pub fn is_valid(text: &[u8]) -> bool {
        (1..=limits::NAME_BYTES_MAX).contains(&text.len()) && text.iter().all(|b| is_good(*b))
    }

    /// The text as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! caseless {
    ($name:ident) => {
        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.0.eq_ignore_ascii_case(&other.0)
            }
        }
        impl Eq for $name {}
        impl core::hash::Hash for $name {
            fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
                for byte in self.0.bytes() {
                    state.write_u8(byte.to_ascii_lowercase());
                }
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }
    };
}
caseless!(EventSpace);
caseless!(EventName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_space_has_one_to_eight_parts_and_errors_name_the_column() {
        for good in ["ftb", "ftb.jl", "FTB-IPMI", "a.b.c.d.e.f.g.h", "ftb.mpi.mvapich2"] {
            assert_eq!(EventSpace::new(good).map(|s| s.to_string()), Ok(good.to_owned()));
        }
        let message = |text: &str| EventSpace::new(text).expect_err("bad").to_string();
        assert!(message("").contains("empty"));
        assert!(message("ftb..x").contains("column 5"), "{}", message("ftb..x"));
        assert!(message("ftb.i b").contains("column 6"));
        assert!(message("a.b.c.d.e.f.g.h.i").contains("at most 8"));
        assert!(message(&"x".repeat(64)).contains("at most 63"));
    }

    #[test]
    fn a_space_lies_in_itself_and_in_its_whole_parts() {
        for (space, inside) in [
            ("ftb.ib", true),
            ("FTB.IB.hca", true),
            ("ftb.ibx", false),
            ("ftb", false),
            ("ftb.i", false),
            ("", false),
        ] {
            assert_eq!(lies_in(space.as_bytes(), "ftb.ib"), inside, "{space:?}");
        }
    }

    #[test]
    fn names_compare_without_case() {
        assert_eq!(EventSpace::new("FTB.JL"), EventSpace::new("ftb.jl"));
        assert_eq!(EventName::new("Fan_Fail"), EventName::new("FAN_FAIL"));
        assert!(EventName::new("a.b").is_err());
    }
}
