//! Sequence numbers with types of their own, so that one is not taken for another.

/// The number of an item of an origin, from 1 on, without a hole, across its runs. 0 stands before
/// the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct OriginSeq(u64);

impl OriginSeq {
    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number after that many items.
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }

    /// The next number.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// The number before.
    #[must_use]
    pub const fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// How many numbers lie from `first` on before this one.
    pub const fn since(self, first: Self) -> u64 {
        self.0.saturating_sub(first.0)
    }
}

impl From<u64> for OriginSeq {
    fn from(number: u64) -> Self {
        Self(number)
    }
}
