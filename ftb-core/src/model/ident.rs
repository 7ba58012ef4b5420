//! Identities: ranks, origins, publishers, event ids.

use crate::limits;
use crate::numbers::PublisherSeq;
use core::fmt;

/// An agent's place in the ordered member list. Lower ranks are nearer to the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

impl Rank {
    /// The first rank of agents that are in no member list: behind all that a list can have.
    pub const UNLISTED_FIRST: Self = Self(262_144);

    /// Whether it was given to an agent that is in no member list.
    pub const fn is_unlisted(self) -> bool {
        self.0 >= Self::UNLISTED_FIRST.0
    }
}

const _: () = assert!(Rank::UNLISTED_FIRST.0 as usize == limits::HOSTLIST_HOSTS_MAX);

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Checks the name of a cluster: short printable text without blanks.
///
/// # Errors
/// What is expected, in words.
pub fn check_cluster(name: &str) -> Result<(), String> {
    let max = limits::CLUSTER_BYTES_MAX;
    let is_good = (1..=max).contains(&name.len()) && name.bytes().all(|c| c.is_ascii_graphic());
    is_good.then_some(()).ok_or_else(|| {
        format!("a cluster's name has 1 to {max} printable ASCII characters without blanks")
    })
}

/// One incarnation of one agent: drawn at random (never 0) each time an agent starts, so that a
/// restarted agent is never taken for the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OriginId(pub u64);

impl fmt::Display for OriginId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// One publishing client; the id survives restarts of the agent. The agent computes `account` from
/// host and uid, so that no client can publish under the id of another user or host. The client
/// draws `token` at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublisherId {
    /// Stable hash of the host name and the uid, from [`PublisherId::account_of`].
    pub account: u64,
    /// Drawn by the client once in its life.
    pub token: u64,
}

impl PublisherId {
    /// The account of a user on a host: FNV-1a, the same on every machine and in every release.
    pub fn account_of(host: &str, uid: u32) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in host.bytes().map(|b| b.to_ascii_lowercase()).chain([0]).chain(uid.to_le_bytes())
        {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        hash
    }
}

impl fmt::Display for PublisherId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.account, self.token)
    }
}

/// The name of one event, unique in the cluster and across restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    /// Its publisher.
    pub publisher: PublisherId,
    /// The publisher's own count, from 1.
    pub seq: PublisherSeq,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.publisher, self.seq)
    }
}

/// A text that is no event id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no event id: expected 32 hexadecimal digits, a dot and a number")]
pub struct EventIdError(pub String);

impl core::str::FromStr for EventId {
    type Err = EventIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || EventIdError(text.chars().take(64).collect());
        let (publisher, seq) = text.split_once('.').ok_or_else(bad)?;
        if publisher.len() != 32 || !publisher.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(bad());
        }
        let half = |part: &str| u64::from_str_radix(part, 16).map_err(|_| bad());
        Ok(Self {
            publisher: PublisherId {
                account: half(&publisher[..16])?,
                token: half(&publisher[16..])?,
            },
            seq: PublisherSeq::new(seq.parse().map_err(|_| bad())?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_id_survives_its_text() {
        let account = PublisherId::account_of("node001", 1000);
        let id = EventId { publisher: PublisherId { account, token: 7 }, seq: 42.into() };
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("é".repeat(16).parse::<EventId>().is_err());
        assert!("12.3".parse::<EventId>().is_err());
    }

    #[test]
    fn accounts_differ_by_host_and_by_user() {
        let a = PublisherId::account_of("node001", 1000);
        assert_ne!(a, PublisherId::account_of("node001", 1001));
        assert_ne!(a, PublisherId::account_of("node002", 1000));
        assert_eq!(a, PublisherId::account_of("NODE001", 1000));
    }
}
