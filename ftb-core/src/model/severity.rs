//! How bad an event is.

use core::fmt;
use core::str::FromStr;

/// INFO < WARNING < ERROR < FATAL, as in the CIFTS API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Severity {
    /// For the record: nothing is wrong.
    Info = 1,
    /// Something may go wrong.
    Warning = 2,
    /// Something is wrong.
    Error = 3,
    /// Something is lost.
    Fatal = 4,
}

impl Severity {
    /// All of them, mildest first.
    pub const ALL: [Self; 4] = [Self::Info, Self::Warning, Self::Error, Self::Fatal];

    /// Upper case, as people write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "INFO",
            Self::Warning => "WARNING",
            Self::Error => "ERROR",
            Self::Fatal => "FATAL",
        }
    }

    /// The number on the wire; `None` for a number that is no severity.
    pub const fn from_wire(number: i32) -> Option<Self> {
        match number {
            1 => Some(Self::Info),
            2 => Some(Self::Warning),
            3 => Some(Self::Error),
            4 => Some(Self::Fatal),
            _ => None,
        }
    }

    /// The number on the wire.
    pub const fn to_wire(self) -> i32 {
        self as i32
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A word that is no severity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown severity {0:?}: expected info, warning, error or fatal")]
pub struct SeverityError(pub String);

impl FromStr for Severity {
    type Err = SeverityError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|severity| word.eq_ignore_ascii_case(severity.as_str()))
            .ok_or_else(|| SeverityError(word.chars().take(32).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn severities_are_ordered_and_parse_in_any_case() {
        assert!(Severity::Info < Severity::Warning && Severity::Error < Severity::Fatal);
        for severity in Severity::ALL {
            assert_eq!(severity.as_str().to_lowercase().parse(), Ok(severity));
            assert_eq!(Severity::from_wire(severity.to_wire()), Some(severity));
        }
        assert!("loud".parse::<Severity>().is_err());
        assert_eq!(Severity::from_wire(0), None);
    }
}
