//! Numbers with types of their own, so that one is not taken for another.

use core::fmt;
use core::ops::{Add, Sub};

/// Defines a number that counts up from 1; 0 is before the first.
macro_rules! counting {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// Before the first.
            pub const ZERO: Self = Self(0);

            /// The highest number.
            pub const LAST: Self = Self(u64::MAX);

            /// This number.
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// The number.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The next number.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }

            /// The number that many others before; 0 where there is none.
            #[must_use]
            pub const fn back(self, count: u64) -> Self {
                Self(self.0.saturating_sub(count))
            }

            /// The number before; of 0 it is 0.
            #[must_use]
            pub const fn before(self) -> Self {
                self.back(1)
            }
        }

        /// The number after that many others; the highest one where there is none.
        impl Add<u64> for $name {
            type Output = Self;

            fn add(self, count: u64) -> Self {
                Self(self.0.saturating_add(count))
            }
        }

        /// How many numbers lie from the other on before this one.
        impl Sub for $name {
            type Output = u64;

            fn sub(self, first: Self) -> u64 {
                self.0.saturating_sub(first.0)
            }
        }

        impl From<u64> for $name {
            fn from(number: u64) -> Self {
                Self(number)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

counting! {
    /// The number of an item of an origin, without a hole, across its runs.
    OriginSeq
}

counting! {
    /// The number of an entry of the log. It goes on counting when an epoch follows another.
    LogIndex
}

counting! {
    /// The number of an event of a publisher.
    PublisherSeq
}
