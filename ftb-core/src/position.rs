//! Where in the log: epochs and positions.

use crate::ident::OriginId;
use core::fmt;
use core::str::FromStr;

/// The reign of one acting root. A new one is higher than any that its agents knew; the root's
/// origin breaks ties between partitions that chose the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch {
    /// Counts up.
    pub number: u64,
    /// Whose reign.
    pub root: OriginId,
}

impl Epoch {
    /// Before the first: what an agent knows that has never been in a tree.
    pub const ZERO: Self = Self { number: 0, root: OriginId(0) };
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.number, self.root)
    }
}

/// One event's place in the log of its component: ordered by epoch, then index. Indices go on
/// counting when an epoch follows another, so that a hole can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// In whose reign it was logged.
    pub epoch: Epoch,
    /// The number in the log, from 1; 0 is before the first.
    pub index: u64,
}

impl Position {
    /// Before everything.
    pub const ZERO: Self = Self { epoch: Epoch::ZERO, index: 0 };
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch, self.index)
    }
}

/// A text that is no position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no position: expected EPOCH-ORIGIN:INDEX as ftbctl prints it")]
pub struct PositionError(pub String);

impl FromStr for Position {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (epoch, index) = text.split_once(':')?;
            let (number, root) = epoch.split_once('-')?;
            let root = OriginId(u64::from_str_radix(root, 16).ok()?);
            let epoch = Epoch { number: number.parse().ok()?, root };
            Some(Self { epoch, index: index.parse().ok()? })
        };
        parse().ok_or_else(|| PositionError(text.chars().take(64).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_ordered_by_epoch_first_and_survive_their_text() {
        let at =
            |number, root, index| Position { epoch: Epoch { number, root: OriginId(root) }, index };
        assert!(at(1, 9, 100) < at(2, 1, 1) && at(2, 1, 1) < at(2, 2, 1));
        let position = at(3, 0xab, 17);
        assert_eq!(position.to_string().parse(), Ok(position));
        assert!("3:17".parse::<Position>().is_err());
    }
}
