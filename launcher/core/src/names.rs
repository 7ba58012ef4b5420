//! Names of the protocol: nodes, sets, jobs, rank lists, episodes. Each is checked at its
//! construction. A set id becomes part of a path.

use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Longest node name in bytes (RFC 1035).
pub const NODE_BYTES_MAX: usize = 255;
/// Longest set id in bytes.
pub const SET_BYTES_MAX: usize = 48;
/// Most ranks of one job: their placement must fit into one event.
pub const RANKS_MAX: u32 = 8192;
/// Most ranks of one node: what a launch agent reports of them must fit into one frame.
pub const RANKS_PER_NODE_MAX: usize = 1024;
/// Most nodes of one job.
pub const NODES_MAX: usize = 4096;

/// A text that is not a valid name, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?} {problem}")]
pub struct NameError {
    what: &'static str,
    text: String,
    problem: String,
}

impl NameError {
    fn new(what: &'static str, text: &str, problem: impl Into<String>) -> Self {
        Self { what, text: text.chars().take(64).collect(), problem: problem.into() }
    }
}

fn check(what: &'static str, text: &str, max: usize, extra: &str) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::new(what, text, "is empty"));
    }
    if text.len() > max {
        let problem = format!("has {} bytes: at most {max} are allowed", text.len());
        return Err(NameError::new(what, text, problem));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || extra.contains(c);
    if let Some(bad) = text.chars().find(|c| !allowed(*c)) {
        let problem = format!("has {bad:?}: only letters, digits and {extra:?} are allowed");
        return Err(NameError::new(what, text, problem));
    }
    if text.starts_with(['.', '-']) {
        return Err(NameError::new(what, text, "starts with '.' or '-'"));
    }
    Ok(())
}

/// A checked text of at most `$max` letters, digits and `$extra`, turned by `$fold`.
macro_rules! text_name {
    ($(#[$about:meta])* $name:ident, $what:literal, $max:expr, $extra:literal, $fold:expr) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks a text.
            ///
            /// # Errors
            /// [`NameError`] says what is wrong with it.
            pub fn new(text: &str) -> Result<Self, NameError> {
                check($what, text, $max, $extra)?;
                Ok(Self($fold(text)))
            }

            pub fn as_str(&self) -> &str {
                &self.0
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
        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(&text)
            }
        }
        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
    };
}

text_name!(
    /// The name of a node, in lower case; compared as a whole and without case.
    NodeName, "node name", NODE_BYTES_MAX, "-_.", str::to_ascii_lowercase
);
text_name!(
    /// The name of a set of images. It is one path component and not hidden.
    SetId, "set id", SET_BYTES_MAX, "-_", str::to_owned
);
text_name!(
    /// The name of a job: event field `job_id` and path component.
    JobId, "job id", SET_BYTES_MAX, "-_", str::to_owned
);

impl SetId {
    /// The set that a checkpoint episode makes.
    pub fn of_checkpoint(episode: Episode) -> Self {
        Self(format!("set-{:06}", episode.0))
    }

    /// The set that a migration episode makes: the images of one node's ranks.
    pub fn of_migration(episode: Episode) -> Self {
        Self(format!("mig-{:06}", episode.0))
    }

    /// The set that a checkpoint episode makes in the memory of the nodes.
    pub fn of_memory(episode: Episode) -> Self {
        Self(format!("mem-{:06}", episode.0))
    }

    /// The set that a checkpoint episode makes on the disks of the nodes.
    pub fn of_disks(episode: Episode) -> Self {
        Self(format!("disk-{:06}", episode.0))
    }

    /// Whether its images are on the disks of the nodes, and not in the store.
    pub fn is_on_disks(&self) -> bool {
        self.0.starts_with("disk-")
    }

    /// Whether its images are on the nodes alone: no other place has them.
    pub fn is_on_nodes(&self) -> bool {
        self.is_in_memory() || self.is_on_disks()
    }

    /// Whether its images are in the memory of the nodes.
    pub fn is_in_memory(&self) -> bool {
        self.0.starts_with("mem-")
    }

    /// Whether an episode could have given this name.
    pub fn is_ours(&self) -> bool {
        self.episode().is_some()
    }

    /// The episode that has made it.
    pub fn episode(&self) -> Option<Episode> {
        let prefixes = ["set-", "mig-", "mem-", "disk-"];
        let number = prefixes.iter().find_map(|prefix| self.0.strip_prefix(prefix))?;
        number.parse().ok().map(Episode)
    }

    /// The migration that makes this set, if one does.
    pub fn migration(&self) -> Option<Episode> {
        self.0.strip_prefix("mig-")?.parse().ok().map(Episode)
    }
}

/// A number that only grows; 0 precedes the first.
macro_rules! number {
    ($(#[$about:meta])* $name:ident) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(Serialize, Deserialize)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number!(
    /// Number of an episode within a job: a start, a workflow or the end. It only grows; 0 precedes
    /// the first.
    Episode
);
number!(
    /// Number of a fault within a job. A fault is trouble seen by the policy, until it has passed
    /// or was acted on. The number only grows; 0 precedes the first.
    FaultId
);

/// Ranks of the job in order: `0 1 5`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranks(pub BTreeSet<u32>);

impl Ranks {
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    pub fn has(&self, rank: u32) -> bool {
        self.0.contains(&rank)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The list with `separator` between the ranks.
    pub fn join(&self, separator: &str) -> String {
        let words: Vec<String> = self.0.iter().map(u32::to_string).collect();
        words.join(separator)
    }

    /// Reads ranks and ranges with `separator` between them: what [`Ranks::join`] and
    /// [`Ranks::ranges`] write. An empty text is no rank.
    ///
    /// # Errors
    /// [`NameError`] names the word that has no ranks below [`RANKS_MAX`].
    pub fn split(text: &str, separator: char) -> Result<Self, NameError> {
        let (mut ranks, mut named) = (BTreeSet::new(), 0);
        for word in text.split(separator).filter(|word| !word.is_empty()) {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            match (first.parse::<u32>(), last.parse::<u32>()) {
                // Ranges that overlap must not cost more than the longest list.
                (Ok(first), Ok(last)) if first <= last && last < RANKS_MAX && named < RANKS_MAX => {
                    named += last - first + 1;
                    ranks.extend(first..=last);
                }
                _ => return Err(NameError::new("rank", word, "is no rank")),
            }
        }
        Ok(Self(ranks))
    }

    /// The rank that takes over the image of another: the next of these, behind the highest the
    /// lowest.
    pub fn successor(&self, of: u32) -> Option<u32> {
        self.0.range(of..).next().or_else(|| self.0.first()).copied()
    }

    /// Reads what [`Ranks::ranges`] writes; an empty text is no rank.
    ///
    /// # Errors
    /// [`NameError`] names the range that has no ranks below [`RANKS_MAX`].
    pub fn from_ranges(text: &str) -> Result<Self, NameError> {
        Self::split(text, ',')
    }

    /// Ranks that follow each other: the first and the last of each run.
    fn runs(&self) -> Vec<(u32, u32)> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for rank in self.iter() {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == rank => *last = rank,
                _ => runs.push((rank, rank)),
            }
        }
        runs
    }

    /// As ranges: `0-2,5`.
    pub fn ranges(&self) -> String {
        self.join_ranges(",")
    }

    /// As ranges with `separator` between them: `0-2 5`.
    pub fn join_ranges(&self, separator: &str) -> String {
        let range = |(first, last): (u32, u32)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        self.runs().into_iter().map(range).collect::<Vec<_>>().join(separator)
    }

    /// For people: `0-255,300,301`.
    pub fn brief(&self) -> String {
        let words = |(first, last): (u32, u32)| match last - first {
            0 => first.to_string(),
            1 => format!("{first},{last}"),
            _ => format!("{first}-{last}"),
        };
        self.runs().into_iter().map(words).collect::<Vec<_>>().join(",")
    }
}

impl FromIterator<u32> for Ranks {
    fn from_iter<I: IntoIterator<Item = u32>>(ranks: I) -> Self {
        Self(ranks.into_iter().collect())
    }
}

impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.join(" "))
    }
}

impl FromStr for Ranks {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::split(text, ' ')
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_set_id_can_neither_climb_nor_hide() {
        for bad in ["", "..", "../x", "a/b", ".x", "-x", "a b", &"x".repeat(49)] {
            assert!(SetId::new(bad).is_err(), "{bad}");
        }
        assert_eq!(
            SetId::of_checkpoint(Episode(7)).to_string().parse(),
            Ok(SetId::of_checkpoint(Episode(7)))
        );
    }

    #[test]
    fn nodes_compare_without_case_and_as_a_whole() {
        assert_eq!(NodeName::new("Node1"), NodeName::new("node1"));
        assert_ne!(NodeName::new("node1"), NodeName::new("node10"));
        assert!(NodeName::new("a=b").is_err());
    }

    #[test]
    fn rank_lists_read_back() {
        let ranks: Ranks = "3 0 12".parse().unwrap();
        assert_eq!(ranks.to_string(), "0 3 12");
        assert!("1 x".parse::<Ranks>().is_err());
        assert!("99999".parse::<Ranks>().is_err());
        assert!("".parse::<Ranks>().unwrap().is_empty());
        for text in ["", "3", "0-2,5", "1,3-4"] {
            assert_eq!(Ranks::from_ranges(text).unwrap().ranges(), text);
        }
        for bad in ["x", "2-1", "8192", "0-4294967295", "-", "1-", "0-8191,0-8191"] {
            assert!(Ranks::from_ranges(bad).is_err(), "{bad}");
        }
        let mixed: Ranks = "0-2 5 7 8".parse().unwrap();
        assert_eq!(mixed, Ranks::from_iter([0, 1, 2, 5, 7, 8]));
        assert_eq!(
            (mixed.join_ranges(" "), mixed.brief()),
            ("0-2 5 7-8".into(), "0-2,5,7,8".into())
        );
    }
}
