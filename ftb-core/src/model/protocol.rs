//! Versions of the protocol, for links and for clients.
//!
//! Each side names the lowest and the highest version that it speaks and the optional features that
//! it supports. Both then use the highest common version and the common features. The rule for
//! releases is in docs/protocol.md, "Versions".

use core::fmt;

/// The versions that this release speaks.
pub const PROTOCOL: Versions = Versions { min: 7, max: 7 };
/// The optional features of links that this release supports.
pub const FEATURES: Features = Features(Features::TRACE.0 | Features::REPORT.0 | Features::FOLDS.0);
/// The same between a client and its agent.
pub const CLIENT_FEATURES: Features = Features(
    Features::TRACE.0 | Features::SIGNED.0 | Features::FOLDS.0 | Features::OWN_HOST_ONLY.0,
);

/// A range of protocol versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The lowest.
    pub min: u32,
    /// The highest.
    pub max: u32,
}

impl Versions {
    /// The highest version that both speak; `None` without any.
    pub fn common(self, other: Self) -> Option<u32> {
        let highest = self.max.min(other.max);
        (highest >= self.min.max(other.min)).then_some(highest)
    }

    /// Whether a version is in the range.
    pub fn contains(self, version: u32) -> bool {
        (self.min..=self.max).contains(&version)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { min, max } if min == max => write!(f, "{max}"),
            Self { min, max } => write!(f, "{min} to {max}"),
        }
    }
}

/// Optional features, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Features(pub u64);

impl Features {
    /// Requests for the path of an event, and their answers.
    pub const TRACE: Self = Self(1);
    /// The agent marks each event that moves jobs if its signature is valid. Clients must not act
    /// on those without the mark.
    pub const SIGNED: Self = Self(2);
    /// Between agents: requests for the reports of all agents.
    pub const REPORT: Self = Self(4);
    /// Folds of groups, and filters that want the single events instead.
    pub const FOLDS: Self = Self(8);
    /// Of an agent to a client: no condition counts that a program of this host states of another
    /// host (`monitors`).
    pub const OWN_HOST_ONLY: Self = Self(16);

    /// Whether all of these are among them.
    pub fn contains(self, features: Self) -> bool {
        self.0 & features.0 == features.0
    }

    /// With these too.
    #[must_use]
    pub fn with(self, features: Self) -> Self {
        Self(self.0 | features.0)
    }

    /// Without these.
    #[must_use]
    pub fn without(self, features: Self) -> Self {
        Self(self.0 & !features.0)
    }

    /// The features that both support.
    #[must_use]
    pub fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_releases_use_the_highest_common_version() {
        let versions = |min, max| Versions { min, max };
        let (old, new) = (versions(6, 7), versions(7, 8));
        assert_eq!((old.common(new), new.common(old)), (Some(7), Some(7)));
        assert_eq!(versions(6, 8).common(new), Some(8));
        assert_eq!(new.common(new), Some(8));
        assert_eq!(versions(5, 6).common(new), None);
        assert_eq!(new.common(versions(5, 6)), None);
        assert_eq!(new.common(versions(9, 7)), None, "an empty range");
        assert_eq!((new.to_string(), versions(7, 7).to_string()), ("7 to 8".into(), "7".into()));
    }

    #[test]
    fn two_releases_use_the_features_that_both_support() {
        assert_eq!(Features(0b110).common(Features(0b011)), Features(0b010));
    }
}
