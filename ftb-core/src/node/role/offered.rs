//! What the log that a child offers can be.
//!
//! A new root takes the whole log of the first agent that brings one, and with it the dedup ranges:
//! an event in them is never logged again. No member of the component is asked: so the holder of
//! one agent's key can invent a log. What no honest agent sends is refused:
//!
//! | part | it must |
//! |---|---|
//! | start | come once, with an epoch that is not lower than that of the hello |
//! | dedup ranges | come before the entries, publishers rising, ranges rising and apart |
//! | | be of at most [`crate::node::NodeConfig::publishers_max`] publishers |
//! | | have at most [`RANGES_PER_PUBLISHER_MAX`] ranges each |
//! | entries | rise, and end where their frame says |
//! | | be whole: the parent has sent nothing that they could refer to |
//! | the whole | reach as far as the hello says, and begin its last epoch no later |
//! | | go on coming, and be here in time: else the root would wait for ever ([`LogOffers`]) |
//!
//! Not responsible for: signatures of conditions, which the shell checks, and whether the agent was
//! ever acting root or standby: no other agent can prove that to a root that has just started.

use crate::frame::{DedupRanges, Hello, ReplicaStart, Replicate};
use crate::ident::{PublisherId, Rank};
use crate::node::config::{NodeConfig, ns};
use crate::node::cx::Cx;
use crate::node::role::standby::Replica;
use crate::numbers::LogIndex;
use crate::position::Epoch;
use crate::ranges::RANGES_PER_PUBLISHER_MAX;
use std::collections::BTreeMap;

/// The time that a log may take to come, beside that for its bytes.
const WHOLE_NS: u64 = 30_000_000_000;
/// The slowest rate at which a log comes: 1 MiB a second, as the time for one byte.
const BYTE_NS: u64 = 1_000_000_000 >> 20;
/// How long an agent that offered a log and did not send it offers none that counts.
const BARRED_NS: u64 = 600_000_000_000;
/// Most agents of which this is remembered. Beyond it that one goes whose time is over first.
const AGENTS_MAX: usize = 4_096;

/// How much of an offered log has come.
enum Progress {
    Hello,
    /// The start, and the dedup ranges up to that publisher; of how many publishers.
    Ranges(Option<PublisherId>, usize),
    Entries,
}

/// An offered log, as far as it has come.
pub(in crate::node) struct OfferedLog {
    /// The last epoch that the hello says.
    head: Epoch,
    /// As far as it goes by the hello.
    until: LogIndex,
    progress: Progress,
    pub(in crate::node) rank: Rank,
    /// When it was offered, and when its last part came.
    since_ns: u64,
    heard_ns: u64,
}

impl OfferedLog {
    /// The log of an agent that wants to be a child.
    pub(in crate::node) fn of(rank: Rank, hello: &Hello, now_ns: u64) -> Self {
        let until = hello.log_range.map_or(LogIndex::ZERO, |range| range.until);
        let (head, progress) = (hello.epochs.head(), Progress::Hello);
        Self { head, until, progress, rank, since_ns: now_ns, heard_ns: now_ns }
    }

    /// A part of it has come.
    pub(in crate::node) fn heard(&mut self, now_ns: u64) {
        self.heard_ns = now_ns;
    }

    /// This agent was stopped for a while: what has come waits in its sockets.
    pub(in crate::node) fn forgive(&mut self, now_ns: u64) {
        (self.since_ns, self.heard_ns) = (now_ns, now_ns);
    }

    /// When its next part, or all of it, must be here. An honest agent that sends nothing for that
    /// time is lost.
    pub(in crate::node) fn deadline_ns(&self, config: &NodeConfig) -> u64 {
        let silent_ns = ns(config.search_ms + config.detection_ms + config.dial_ms);
        let whole_ns = self.since_ns.saturating_add(whole_ns(config));
        whole_ns.min(self.heard_ns.saturating_add(silent_ns))
    }

    /// It begins.
    ///
    /// # Errors
    /// What no honest agent sends.
    pub(in crate::node) fn start(&mut self, start: &ReplicaStart) -> Result<(), &'static str> {
        if !matches!(self.progress, Progress::Hello) {
            return Err("a log that it offers begins twice");
        }
        if start.epochs.head().number < self.head.number {
            return Err("it offers a log of a lower epoch than its hello says");
        }
        self.progress = Progress::Ranges(None, 0);
        Ok(())
    }

    /// Dedup ranges come.
    ///
    /// # Errors
    /// What no honest agent sends.
    pub(in crate::node) fn ranges(
        &mut self,
        cx: &Cx,
        dedup: &DedupRanges,
    ) -> Result<(), &'static str> {
        let Progress::Ranges(last, count) = &mut self.progress else {
            return Err("dedup ranges of an offered log come before its start or behind entries");
        };
        for (publisher, ranges) in &dedup.publishers {
            *count += 1;
            if last.replace(*publisher).is_some_and(|last| last >= *publisher) {
                return Err("the publishers of dedup ranges do not rise");
            }
            let are_apart = ranges.windows(2).all(|two| two[0].1 < two[1].0.saturating_sub(1));
            if !are_apart || ranges.iter().any(|(first, last)| first > last) {
                return Err("dedup ranges do not rise");
            }
            if ranges.len() > RANGES_PER_PUBLISHER_MAX || *count > cx.config.publishers_max {
                return Err("more dedup ranges than an agent keeps");
            }
        }
        Ok(())
    }

    /// Entries come, behind those that are in `replica`.
    ///
    /// # Errors
    /// What no honest agent sends.
    pub(in crate::node) fn entries(
        &mut self,
        replica: &Replica,
        batch: &Replicate,
    ) -> Result<(), &'static str> {
        self.progress = Progress::Entries;
        if !batch.entry_refs.is_empty() {
            return Err("an entry reference names no batch");
        }
        let mut before = replica.log.last();
        for item in &batch.items {
            if item.index <= before {
                return Err("the entries of an offered log do not rise");
            }
            before = item.last();
        }
        if before > batch.until {
            return Err("the entries of an offered log end elsewhere than it says");
        }
        Ok(())
    }

    /// Whether a log that is here as a whole is as long as the hello said, for which it was taken.
    pub(in crate::node) fn is_kept_by(&self, replica: &Replica) -> bool {
        let last = replica.log.last();
        let head = replica.epochs.segments().last().map(|segment| segment.first);
        last >= self.until && head.is_none_or(|first| first <= last.next())
    }
}

/// How long a whole log may take to come.
fn whole_ns(config: &NodeConfig) -> u64 {
    (config.log_bytes as u64).saturating_mul(BYTE_NS).saturating_add(WHOLE_NS)
}

/// How long agents have kept this one waiting for logs that it did not get, by rank: while it waits
/// it takes no other. Each has the time for one log, and half of it again; it returns evenly within
/// ten minutes.
#[derive(Default)]
pub(in crate::node) struct LogOffers(BTreeMap<Rank, u64>);

impl LogOffers {
    /// Whether the offer of an agent counts.
    pub(in crate::node) fn counts(&self, rank: Rank, now_ns: u64) -> bool {
        let free_ns = self.0.get(&rank).copied().unwrap_or_default();
        free_ns <= now_ns.saturating_add(BARRED_NS / 2)
    }

    /// An offer has come to nothing.
    pub(in crate::node) fn failed(&mut self, offered: &OfferedLog, cx: &Cx) {
        let now_ns = cx.now.mono_ns;
        let kept_ns = u128::from(now_ns.saturating_sub(offered.since_ns));
        let part = kept_ns * u128::from(BARRED_NS) / u128::from(whole_ns(&cx.config));
        let cost_ns = u64::try_from(part).unwrap_or(u64::MAX);
        let free_ns = self.0.get(&offered.rank).copied().unwrap_or_default().max(now_ns);
        self.note(offered.rank, free_ns.saturating_add(cost_ns).min(barred_until(now_ns)));
    }

    /// An agent has offered what it did not send, or what cannot be.
    pub(in crate::node) fn refused(&mut self, rank: Rank, now_ns: u64) {
        self.note(rank, barred_until(now_ns));
    }

    fn note(&mut self, rank: Rank, free_ns: u64) {
        if self.0.len() >= AGENTS_MAX && !self.0.contains_key(&rank) {
            let first = self.0.iter().min_by_key(|(_, free_ns)| **free_ns);
            first.map(|(rank, _)| *rank).and_then(|rank| self.0.remove(&rank));
        }
        self.0.insert(rank, free_ns);
    }
}

/// Until then no offer of an agent counts for [`BARRED_NS`].
fn barred_until(now_ns: u64) -> u64 {
    now_ns.saturating_add(BARRED_NS + BARRED_NS / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_that_are_remembered_are_bounded() {
        let mut offers = LogOffers::default();
        for rank in 0..10_000 {
            offers.refused(Rank(rank), u64::from(rank));
        }
        assert_eq!(offers.0.len(), AGENTS_MAX);
        assert!(!offers.counts(Rank(9_999), 10_000), "the last to be over stay");
        assert!(offers.counts(Rank(9_999), 10_000 + BARRED_NS));
    }
}
