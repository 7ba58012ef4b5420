//! Where in the log: epochs and positions.

use crate::ident::OriginId;
use crate::numbers::LogIndex;
use core::fmt;
use core::str::FromStr;

/// The epoch of one acting root. A new one is higher than any that its agents knew; the root's
/// origin breaks ties between partitions that chose the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch {
    /// Counts up.
    pub number: u64,
    /// Whose epoch.
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
    /// In whose epoch it was logged.
    pub epoch: Epoch,
    /// The number in the log, from 1; 0 is before the first.
    pub index: LogIndex,
}

impl Position {
    /// Before everything.
    pub const ZERO: Self = Self { epoch: Epoch::ZERO, index: LogIndex::ZERO };
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch, self.index)
    }
}

/// Most epochs of which a reader remembers how far it was.
pub const TRAIL_MAX: usize = 6;

/// Where a reader has been: how far in each of the newest epochs that it has read of. By it an
/// agent finds the place in its own log behind which the reader has not read, also where the newest
/// epoch is none that it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trail {
    /// Rising; the first `len` of them.
    places: [Position; TRAIL_MAX],
    len: usize,
}

impl Trail {
    /// Of a reader that has been at one place only.
    pub const fn at(position: Position) -> Self {
        let mut places = [Position::ZERO; TRAIL_MAX];
        places[0] = position;
        Self { places, len: 1 }
    }

    /// The reader has come to a position. The oldest of too many epochs is forgotten.
    pub fn note(&mut self, position: Position) {
        let at = self.places().partition_point(|place| place.epoch < position.epoch);
        match self.places[..self.len].get_mut(at) {
            Some(place) if place.epoch == position.epoch => {
                place.index = place.index.max(position.index);
            }
            _ if self.len < TRAIL_MAX => {
                self.places.copy_within(at..self.len, at + 1);
                self.places[at] = position;
                self.len += 1;
            }
            _ if at > 0 => {
                self.places.copy_within(1..at, 0);
                self.places[at - 1] = position;
            }
            _ => {}
        }
    }

    /// The furthest place of each epoch, rising.
    pub fn places(&self) -> &[Position] {
        &self.places[..self.len]
    }

    /// How far it was in an epoch; 0 where it does not know.
    pub fn index_in(&self, epoch: Epoch) -> LogIndex {
        self.places()
            .iter()
            .find(|place| place.epoch == epoch)
            .map_or(LogIndex::ZERO, |place| place.index)
    }

    /// The furthest place of the newest epoch.
    pub const fn newest(&self) -> Position {
        self.places[self.len - 1]
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
            Some(Self { epoch, index: LogIndex::new(index.parse().ok()?) })
        };
        parse().ok_or_else(|| PositionError(text.chars().take(64).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trail_keeps_the_furthest_position_of_the_newest_epochs() {
        let at = |number, index: u64| Position {
            epoch: Epoch { number, root: OriginId(1) },
            index: index.into(),
        };
        let mut trail = Trail::at(at(5, 20));
        for place in [at(3, 7), at(5, 18), at(9, 30), at(3, 9), at(5, 25)] {
            trail.note(place);
        }
        assert_eq!(trail.places(), [at(3, 9), at(5, 25), at(9, 30)]);
        assert_eq!([3, 4, 5].map(|number| trail.index_in(at(number, 0).epoch).get()), [9, 0, 25]);
        for number in (10..13).chain([4, 1]) {
            trail.note(at(number, number));
        }
        let kept = [at(4, 4), at(5, 25), at(9, 30)].into_iter().chain((10..13).map(|n| at(n, n)));
        assert_eq!(trail.places(), kept.collect::<Vec<_>>(), "3 is forgotten, 1 was never known");
        assert_eq!(trail.newest(), at(12, 12));
    }

    #[test]
    fn positions_are_ordered_by_epoch_first_and_survive_their_text() {
        let at = |number, root, index: u64| Position {
            epoch: Epoch { number, root: OriginId(root) },
            index: index.into(),
        };
        assert!(at(1, 9, 100) < at(2, 1, 1) && at(2, 1, 1) < at(2, 2, 1));
        let position = at(3, 0xab, 17);
        assert_eq!(position.to_string().parse(), Ok(position));
        assert!("3:17".parse::<Position>().is_err());
    }
}
