//! What a node and the journal of its shell give each other.

use crate::epochs::EpochHistory;
use crate::filter::FilterSet;
use crate::frame::{Content, DedupRanges, Item};
use crate::ident::Rank;
use crate::limits::{BATCH_BYTES_TARGET, BATCH_EVENTS_MAX};
use crate::log::conditions::ConditionLimits;
use crate::log::entries::Log;
use crate::log::reader::{ReadLimit, Reader};
use crate::numbers::LogIndex;

/// Which part of which log a journal holds.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Stored {
    /// Its epoch history; empty for a journal that holds nothing.
    pub epochs: EpochHistory,
    /// It is complete after this index,
    pub after: LogIndex,
    /// up to this one.
    pub last: LogIndex,
}

/// What an earlier life of an agent has left in its journal.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Restored {
    /// Which log it is.
    pub stored: Stored,
    /// Its newest entries, rising.
    pub items: Vec<Item>,
    /// They are complete after this index.
    pub items_after: LogIndex,
    /// Events before that which state what still counts about conditions, rising.
    pub conditions: Vec<Item>,
    /// Events that were logged before the first of them.
    pub dedup: DedupRanges,
    /// Agents that are in no member list, and their ranks.
    pub dynamic_members: Vec<(String, Rank)>,
    /// Entries behind `stored.last` were there up to this index and could not be read.
    pub lost_until: Option<LogIndex>,
    /// More entries may have been there: nothing says how far the log went.
    pub end_unknown: bool,
    /// What is wrong with the journal; the agent announces it.
    pub damage: Option<String>,
    /// Why the end of the log may be missing after a power failure; the agent announces it, and
    /// unless another agent has more, its log goes on with a gap of unknown count.
    pub unclean: Option<String>,
}

/// A piece of the log for the journal.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct JournalWrite {
    /// Counts up with each `begin`, and each change of the mark.
    pub generation: u64,
    /// To be done first, and together with the rest.
    pub begin: Option<JournalBegin>,
    /// The entries, rising.
    pub items: Vec<Item>,
    /// With this the journal holds the log up to this index.
    pub until: LogIndex,
    /// Agents that are in no member list, and their ranks, in the place of what was written of
    /// them.
    pub dynamic_members: Option<Vec<(String, Rank)>>,
    /// The mark: entries that this disk does not have yet may be confirmed.
    pub is_replicated: bool,
    /// The write before had another mark: the shell acknowledges this one, also without entries.
    pub changes_mark: bool,
}

/// The journal is to hold this log from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalBegin {
    /// Its epoch history.
    pub epochs: EpochHistory,
    /// What the journal holds after this index is void.
    pub after: LogIndex,
    /// What it holds up to there is void too, and the log begins there: with the events that were
    /// logged before. `None`: what it holds up to there is part of this log.
    pub anew: Option<DedupRanges>,
}

/// Which page of the journal is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalRead {
    /// The node's number of it.
    pub read: u64,
    /// What follows this index,
    pub after: LogIndex,
    /// up to this one.
    pub until: LogIndex,
    /// From what was written at this Unix time on; `None`: from `after` on.
    pub since_ns: Option<u64>,
    /// Only what these want.
    pub filters: FilterSet,
}

/// A page of the journal: all that is wanted of a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct JournalPage {
    /// The part begins after this index: what was asked for before that is not there.
    pub after: LogIndex,
    /// What is wanted of it, rising.
    pub items: Vec<Item>,
    /// It ends with this index.
    pub until: LogIndex,
}

impl JournalPage {
    /// What of some entries of a log is to be in the page that a read is answered with. The entries
    /// follow each other and begin behind `after`.
    pub fn pick(
        read: &JournalRead,
        after: LogIndex,
        entries: impl IntoIterator<Item = Item>,
    ) -> Self {
        let mut log = Log::new(after, ConditionLimits::default());
        entries.into_iter().for_each(|entry| log.push(entry));
        // One more item may be the gap before them.
        let (bytes, items) = (BATCH_BYTES_TARGET, BATCH_EVENTS_MAX - 1);
        let until = log.last().min(read.until).max(after);
        let mut reader = Reader::new(after);
        let picked = reader.read(
            &log,
            ReadLimit { bytes, items, until, skip_repeated: false },
            &read.filters,
        );
        let items = picked.into_iter().map(|item| match item.content {
            Content::Events(run) => {
                Item { index: item.index, content: Content::Events(run.detached()) }
            }
            Content::Gap(_) => item,
        });
        Self { after, items: items.collect(), until: reader.cursor }
    }
}

/// Whether the log on disk is kept up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalState {
    /// It is, or there is nothing to write.
    Ok,
    /// It can not be written, or is too slow: the log goes on in memory.
    Degraded,
}
