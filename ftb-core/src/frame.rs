//! What two agents say to each other over a link.
//!
//! Responsible for: the frames as values. Their encoding is `ftb-proto`'s, their meaning is
//! [`crate::node`]'s; docs/protocol.md tells the whole story. The child opens a link with
//! [`Hello`], the parent answers [`HelloAck`] or [`HelloNack`]; what flows up and what flows down
//! are different frames, and each is refused in the wrong direction.

use crate::epochs::EpochHistory;
use crate::filter::Filter;
use crate::ident::{OriginId, PublisherId, Rank};
use crate::log::gap::{GAP_BYTES, Gap};
use crate::member::MemberState;
use crate::position::{Epoch, Position};
use crate::ranges::RangeSet;
use crate::run::Run;
use std::sync::Arc;

pub use crate::log::item::{Content, Item};

/// Most ranks in a list of hints or redirects.
pub const RANKS_MAX: usize = 64;
/// Most publishers in one [`DedupRanges`].
pub const DEDUP_PUBLISHERS_MAX: usize = 1024;
/// Most members in one [`Frame::Members`].
pub const MEMBERS_MAX: usize = 512;
/// Most entries in one [`Frame::DynamicMembers`].
pub const DYNAMIC_MEMBERS_MAX: usize = 512;
/// Most ranges of ranks in one [`Frame::MembershipSnapshot`]; those behind them are not told.
pub const SNAPSHOT_RANGES_MAX: usize = 32_768;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Child to parent, first: who it is and what it has.
    Hello(Box<Hello>),
    /// Parent to child: you may be my child.
    HelloAck(Box<HelloAck>),
    /// Parent to child: you may not. The link ends.
    HelloNack(HelloNack),
    /// Either way, last: a link that ends without it is a suspected loss.
    Close(Close),
    /// Either way, when nothing else was said for a while.
    Heartbeat(Heartbeat),
    /// Parent to child: the log that is consumed here has changed, or the way to its root.
    TreeState(Box<TreeState>),
    /// Child to parent: in the epoch history last told, begin behind this index.
    Resume {
        /// Of the epoch that the child answers to.
        epoch: Epoch,
        /// The last index that the child has.
        after: u64,
    },
    /// Child to parent: what its whole subtree wants, replacing what it said before.
    Subscribe(Interest),
    /// Parent to child: the interest of that version is active up to the acting root.
    FilterActive {
        /// Which [`Interest::version`].
        version: u64,
        /// Every matching event behind this index comes down.
        index: u64,
    },
    /// Child to parent: events on their way to the acting root.
    Up(UpBatch),
    /// Parent to child: that many bytes of [`Frame::Up`] have left; as many more may come.
    Credit {
        /// Bytes of events.
        bytes: u64,
    },
    /// Parent to child, on to the origin: held by acting root and standby.
    Confirm(Confirm),
    /// Parent to child, on to the origin: that run has a hole; begin another.
    Nak {
        /// Whose events.
        origin: OriginId,
        /// Which of its runs.
        run: u64,
    },
    /// Parent to child, on to all below: the way up has changed, send again what is unconfirmed.
    Resend,
    /// Parent to child: committed events that the child wants, in log order.
    Down(Down),
    /// Child to parent: events that the parent's own store may not have.
    HistoryRequest(HistoryRequest),
    /// Parent to child: the answer.
    HistoryReply(HistoryReply),
    /// Acting root to its standby, and an agent with a log to a new root that has none: the log
    /// begins here.
    ReplicaStart(ReplicaStart),
    /// Likewise: publishers' events that are in the log.
    DedupRanges(DedupRanges),
    /// Likewise: entries of the log, committed or not.
    Replicate(Replicate),
    /// Standby to acting root: it holds the log up to this index.
    ReplicaAck {
        /// Of the epoch that it replicates.
        epoch: Epoch,
        /// The last index it holds.
        index: u64,
        /// Which [`ReplicaStart::copy`] it is.
        copy: u64,
        /// It keeps what it has sent up since that [`Frame::Up`] of the link, which count from 1:
        /// an [`EntryRef`] will do for that. 0: it does not.
        kept_from: u64,
    },
    /// Child to parent, on to the acting root: where members stand.
    Members(Vec<MemberReport>),
    /// Child to parent, on to the acting root: agents that are in no member list, and the ranks
    /// that they have or (`None`) want. Parent to child, on to those who asked: the ranks that they
    /// have, or (`None`) that they get none.
    DynamicMembers(Vec<DynamicMember>),
    /// Parent to child, from the acting root to all: the ranks of all agents that are in the tree,
    /// or missing. The next acting root probes those of them that do not come.
    MembershipSnapshot(Arc<RangeSet>),
    /// Child to parent, on to the acting root: somebody wants to see the tree.
    TreeQuery {
        /// The asker.
        origin: OriginId,
        /// Its own number of the question.
        query: u64,
    },
    /// Parent to child, on to the asker: part of the tree.
    TreeAnswer {
        /// The asker.
        origin: OriginId,
        /// Its own number of the question.
        query: u64,
        /// Some of the members.
        members: Vec<MemberReport>,
        /// Whether this is the last part.
        last: bool,
    },
    /// Either way through the tree: does that host answer? (indirect probe)
    Probe(Probe),
    /// The answer, back the way it came.
    ProbeAnswer(ProbeAnswer),
}

/// How a child introduces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Version of the link protocol that it speaks.
    pub protocol: u32,
    /// Its cluster: agents of different clusters refuse each other.
    pub cluster: String,
    /// Its host.
    pub host: String,
    /// Its place; `None`: not listed, give it one.
    pub rank: Option<Rank>,
    /// Where it listens; needed of an agent that is not listed.
    pub address: String,
    /// Its incarnation.
    pub origin: OriginId,
    /// [`members_digest`] of its member list.
    pub members_digest: u64,
    /// The log that it has consumed.
    pub epochs: EpochHistory,
    /// Up to which index.
    pub commit_index: u64,
    /// The part of the log that it holds, where it was acting root or standby.
    pub log_range: Option<LogRange>,
    /// Highest epoch number that it has heard of.
    pub epoch_seen: u64,
    /// What its subtree wants.
    pub interest: Interest,
    /// Its clock, Unix nanoseconds.
    pub wall_ns: u64,
    /// Which of its hellos this is: later ones are higher, so that what parents report of it can
    /// be put in order.
    pub attempt: u64,
}

/// What part of a log somebody holds completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRange {
    /// Everything behind this index,
    pub after: u64,
    /// up to this one.
    pub until: u64,
}

/// How a parent accepts a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloAck {
    /// Version of the link protocol that it speaks.
    pub protocol: u32,
    /// Its host.
    pub host: String,
    /// Its place.
    pub rank: Rank,
    /// Its incarnation.
    pub origin: OriginId,
    /// The child's place, where it is not listed.
    pub assigned: Option<Rank>,
    /// Where the parent stands.
    pub tree_state: TreeState,
    /// How many bytes of [`Frame::Up`] may be under way to it.
    pub window_bytes: u64,
    /// The new root has no log worth keeping: hand yours over as a whole, and it goes on with it.
    pub send_log: bool,
    /// Its clock, Unix nanoseconds.
    pub wall_ns: u64,
}

/// Where an agent stands: the log that it serves and the way to its root.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TreeState {
    /// The log.
    pub epochs: EpochHistory,
    /// The index where an agent without a past begins.
    pub head: u64,
    /// Ranks from the acting root down to the sender, itself included; empty while it looks for a
    /// parent.
    pub path: Vec<Rank>,
    /// The acting root's standby.
    pub standby: Option<Rank>,
}

/// Why a parent refuses a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloNack {
    /// Stable word: "cluster", "protocol", "rank", "host", "full", "members", "busy", "twin".
    pub code: String,
    /// For people; names both sides.
    pub message: String,
    /// Whom to try instead.
    pub redirect: Vec<Rank>,
}

/// The last word on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// The agent stops; otherwise it only leaves this link.
    pub stopping: bool,
    /// For the log.
    pub reason: String,
}

/// Says that the sender lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Heartbeat {
    /// To a child: everything it wants up to here was sent. To a parent: 0.
    pub covered: u64,
    /// Of the epoch of `covered`; `None` to a parent.
    pub epoch: Option<Epoch>,
    /// To a parent: highest epoch number known in the subtree.
    pub epoch_seen: u64,
}

/// What a subtree wants.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Interest {
    /// Counts up with every change.
    pub version: u64,
    /// The filters, merged.
    pub filters: Vec<Filter>,
}

/// Events of one origin on their way up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpBatch {
    /// Whose.
    pub origin: OriginId,
    /// Which of its runs; it begins another each time it has to send again.
    pub run: u64,
    /// The first sequence of this run.
    pub base: u64,
    /// The sequence of the first item; the rest follow without a hole.
    pub first: u64,
    /// The events.
    pub items: Vec<UpItem>,
}

/// What an [`UpBatch`] is made of: one sequence each, or many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpItem {
    /// Events, one sequence each.
    Events(Run),
    /// A hole that is told, where an origin had to shed, or a log was lost or outrun.
    Gap(Gap),
    /// An epoch that is no part of the log of the component has given out indices.
    Fork {
        /// The epoch.
        epoch: Epoch,
        /// At least up to that index.
        until: u64,
        /// What it had logged has come up before this item; otherwise it is to be waited for.
        re_proposed: bool,
    },
}

impl UpItem {
    /// Its size in bytes, as queues count it.
    pub fn len(&self) -> usize {
        match self {
            Self::Events(run) => run.len(),
            Self::Gap(gap) => GAP_BYTES + gap.spaces.len(),
            Self::Fork { .. } => GAP_BYTES,
        }
    }

    /// How many sequences it takes.
    pub fn count(&self) -> usize {
        match self {
            Self::Events(run) => run.count(),
            Self::Gap(_) | Self::Fork { .. } => 1,
        }
    }

    /// What is left behind the first `count` sequences; `None` where that is nothing.
    pub fn behind(&self, count: usize) -> Option<Self> {
        match self {
            _ if count == 0 => Some(self.clone()),
            Self::Events(run) => run.slice(count..run.count()).map(Self::Events),
            Self::Gap(_) | Self::Fork { .. } => None,
        }
    }

    /// The first `count` sequences of it; `None` where that is nothing.
    pub fn front(&self, count: usize) -> Option<Self> {
        match self {
            _ if count == 0 => None,
            Self::Events(run) => run.slice(0..count).map(Self::Events),
            Self::Gap(_) | Self::Fork { .. } => Some(self.clone()),
        }
    }

    /// Never: an item has a size.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Content> for UpItem {
    fn from(content: Content) -> Self {
        match content {
            Content::Events(run) => Self::Events(run),
            Content::Gap(gap) => Self::Gap(gap),
        }
    }
}

impl UpBatch {
    /// Its size in bytes, as credit counts it.
    pub fn bytes(&self) -> u64 {
        self.items.iter().map(|item| item.len() as u64).sum()
    }

    /// How many sequences it takes.
    pub fn count(&self) -> u64 {
        self.items.iter().map(|item| item.count() as u64).sum()
    }
}

/// An origin's events up to `seq` are held by acting root and standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirm {
    /// Whose.
    pub origin: OriginId,
    /// Up to which of its sequences.
    pub seq: u64,
    /// Where the last of them is in the log at the latest.
    pub position: Position,
}

/// Committed events on their way down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Down {
    /// The newest epoch of the epoch history in which the indices count: a child ignores any other.
    pub epoch: Epoch,
    /// The events, rising.
    pub items: Vec<Item>,
    /// Everything the child wants up to here was sent.
    pub covered: u64,
}

/// A question for older events. It is answered with one [`HistoryReply`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRequest {
    /// The asker's own number for it.
    pub id: u64,
    /// In this epoch history.
    pub epoch: Epoch,
    /// Behind this index.
    pub after: u64,
    /// With the first event not older than this Unix time; 0: by index alone.
    pub since_ns: u64,
    /// What is wanted.
    pub filters: Vec<Filter>,
}

/// The answer to a [`HistoryRequest`]: the next events, as many as one frame takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryReply {
    /// The asker's number.
    pub id: u64,
    /// The events, rising.
    pub items: Vec<Item>,
    /// Everything wanted up to here is in it.
    pub covered: u64,
    /// There is no more for now.
    pub last: bool,
}

/// The beginning of a log that is copied as a whole; with an empty epoch history: it is not copied
/// any more, and what was copied is void.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStart {
    /// Its epoch history.
    pub epochs: EpochHistory,
    /// It is complete behind this index.
    pub after: u64,
    /// Which copy of the sender's epoch it is; acknowledgements say it again.
    pub copy: u64,
}

/// Events that are in a log, without the events.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DedupRanges {
    /// By publisher: first and last sequence of each range.
    pub publishers: Vec<(PublisherId, Vec<(u64, u64)>)>,
}

/// Entries of a log that is copied as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicate {
    /// Of this epoch.
    pub epoch: Epoch,
    /// The entries, rising.
    pub items: Vec<Item>,
    /// Those that the receiver has sent up itself, rising, between `items`.
    pub entry_refs: Vec<EntryRef>,
    /// Everything up to here was sent.
    pub until: u64,
    /// Up to here the log is committed.
    pub committed: u64,
    /// The copy is complete: the receiver counts as standby, or takes the log over.
    pub complete: bool,
    /// The receiver may forget what it has sent up, up to this [`Frame::Up`] of the link.
    pub refs_until: u64,
}

/// Entries of the log that the receiver has sent up itself: where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef {
    /// The index of the first.
    pub index: u64,
    /// In which [`Frame::Up`] of the link they came, counted from 1.
    pub batch: u64,
    /// Behind so many sequences of it.
    pub skip: u64,
    /// How many events.
    pub count: u32,
}

impl EntryRef {
    /// The last index.
    pub fn last(&self) -> u64 {
        self.index + u64::from(self.count.max(1)) - 1
    }
}

/// Where one member stands, as its parent or it itself reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberReport {
    /// Its place.
    pub rank: Rank,
    /// Its host.
    pub host: String,
    /// Where it listens; empty where the member list says it.
    pub address: String,
    /// Its incarnation; 0 where it is not known.
    pub origin: u64,
    /// The [`Hello::attempt`] with which it came there.
    pub attempt: u64,
    /// Where it stands.
    pub state: MemberState,
    /// Below whom.
    pub parent: Option<Rank>,
    /// Since when, Unix nanoseconds.
    pub since_ns: u64,
}

/// An agent that is in no member list, and its rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicMember {
    /// Its host.
    pub host: String,
    /// Its place.
    pub rank: Option<Rank>,
}

/// A question whether a host answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Who asks.
    pub requester: OriginId,
    /// The asker's number of the question.
    pub probe: u64,
    /// Who shall try.
    pub prober: Rank,
    /// Whose host is in question.
    pub target: Rank,
    /// The host and where its agent listens; both empty where the member list says it.
    pub host: String,
    /// Where its agent listens.
    pub address: String,
}

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeAnswer {
    /// Who asked.
    pub requester: OriginId,
    /// The asker's number of the question.
    pub probe: u64,
    /// Who tried.
    pub prober: Rank,
    /// The host answered (its agent need not be there).
    pub alive: bool,
}

/// A number by which two agents see whether their member lists are the same (FNV-1a over the
/// hosts in order).
pub fn members_digest<'a>(hosts: impl Iterator<Item = &'a str>) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in hosts.flat_map(|host| host.bytes().map(|b| b.to_ascii_lowercase()).chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}
