//! What a confirmed event survives.

use std::fmt;
use std::str::FromStr;

/// What holds a confirmed event, from weak to strong. As a request: [`Memory`](Self::Memory) or
/// [`Disk`](Self::Disk).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfirmLevel {
    /// It is committed: acting root and standby have it in memory. It survives the loss of either.
    #[default]
    Memory,
    /// It is also synced to the only journal of the two: there is no standby, or one of them has no
    /// journal that works. It survives a power failure, and no loss of that disk.
    OneDisk,
    /// It is also synced to the journals of both. It survives a power failure of both, and the loss
    /// of either disk.
    Disk,
}

impl ConfirmLevel {
    /// The stable word for configuration, logs and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::OneDisk => "one-disk",
            Self::Disk => "disk",
        }
    }
}

impl fmt::Display for ConfirmLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text names no level that can be requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoConfirmLevel;

impl fmt::Display for NoConfirmLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected \"memory\" or \"disk\"")
    }
}

impl std::error::Error for NoConfirmLevel {}

/// Parses a request.
impl FromStr for ConfirmLevel {
    type Err = NoConfirmLevel;

    fn from_str(text: &str) -> Result<Self, NoConfirmLevel> {
        match text {
            "memory" => Ok(Self::Memory),
            "disk" => Ok(Self::Disk),
            _ => Err(NoConfirmLevel),
        }
    }
}
