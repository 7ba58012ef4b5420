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
//!
//! Not responsible for: signatures of conditions, which the shell checks, and whether the agent was
//! ever acting root or standby: no other agent can prove that to a root that has just started.

use crate::frame::{DedupRanges, Hello, ReplicaStart, Replicate};
use crate::ident::PublisherId;
use crate::node::cx::Cx;
use crate::node::role::standby::Replica;
use crate::numbers::LogIndex;
use crate::position::Epoch;
use crate::ranges::RANGES_PER_PUBLISHER_MAX;

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
}

impl OfferedLog {
    /// The log of an agent that wants to be a child.
    pub(in crate::node) fn of(hello: &Hello) -> Self {
        let until = hello.log_range.map_or(LogIndex::ZERO, |range| range.until);
        Self { head: hello.epochs.head(), until, progress: Progress::Hello }
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
