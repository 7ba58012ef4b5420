//! The frames of a link between two agents, as values.
//!
//! The child opens a link with [`Hello`], the parent answers [`HelloAck`] or [`HelloNack`]. Most
//! frames flow in one direction only, and an agent rejects them in the other.
//!
//! Not responsible for: the encoding (`ftb-proto`), and the rules (docs/protocol.md; the code is
//! [`crate::node`]).

use crate::confirm_level::ConfirmLevel;
use crate::epochs::EpochHistory;
use crate::filter::Filter;
use crate::ident::{OriginId, PublisherId, Rank};
use crate::log::gap::{GAP_BYTES, Gap, Loss};
use crate::member::MemberState;
use crate::numbers::LogIndex;
use crate::numbers::OriginSeq;
use crate::position::{Epoch, Position};
use crate::protocol::{Features, Versions};
use crate::ranges::RangeSet;
use crate::run::Run;
use crate::trace::{EventTrace, TraceRequest};
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
/// Most ranges of ranks in one [`Frame::MembershipSnapshot`]; further ranges are left out.
pub const SNAPSHOT_RANGES_MAX: usize = 32_768;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Child to parent, first: its identity and its log.
    Hello(Box<Hello>),
    /// Parent to child: accepted.
    HelloAck(Box<HelloAck>),
    /// Parent to child: rejected. The link ends.
    HelloNack(HelloNack),
    /// Both ways, last. A link that ends without it is a suspected loss.
    Close(Close),
    /// Both ways, on an idle link.
    Heartbeat(Heartbeat),
    /// Parent to child: the epoch history or the path to the root has changed.
    TreeState(Box<TreeState>),
    /// Child to parent: continue after this index of the last epoch history.
    Resume {
        /// The newest epoch of that history.
        epoch: Epoch,
        /// The last index that the child has.
        after: LogIndex,
    },
    /// Child to parent: the interest of its subtree, which replaces the one before.
    Subscribe(Interest),
    /// Parent to child: the interest of that version is active up to the acting root.
    FilterActive {
        /// Which [`Interest::version`].
        version: u64,
        /// Every matching event after this index comes down.
        index: LogIndex,
    },
    /// Child to parent, on to the acting root: events.
    Up(UpBatch),
    /// Parent to child: it may send that many more bytes of [`Frame::Up`].
    Credit {
        /// Bytes of events.
        bytes: u64,
    },
    /// Parent to child, on to the origin: events are confirmed.
    Confirm(Confirm),
    /// Parent to child, on to the origin: that run has a hole, begin another.
    Nak {
        /// The origin of the events.
        origin: OriginId,
        /// Which of its runs.
        run: u64,
    },
    /// Parent to child, on to all origins below: the path to the root has changed, send unconfirmed
    /// events again.
    Resend,
    /// Parent to child: committed events that match its interest, in log order.
    Down(Down),
    /// Child to parent: a request for older events.
    HistoryRequest(HistoryRequest),
    /// Parent to child: the answer.
    HistoryReply(HistoryReply),
    /// Acting root to its standby, and an agent to a new root that installs its log: the replica
    /// begins here.
    ReplicaStart(ReplicaStart),
    /// Likewise: the ids of events in the log.
    DedupRanges(DedupRanges),
    /// Likewise: entries of the log, committed or not.
    Replicate(Replicate),
    /// Standby to acting root: it has the log up to this index.
    ReplicaAck {
        /// The epoch that it replicates.
        epoch: Epoch,
        /// The last index that it has.
        index: LogIndex,
        /// Which [`ReplicaStart::copy`] it is.
        copy: u64,
        /// It keeps its own batches since this [`Frame::Up`] of the link, counted from 1, so that
        /// an [`EntryRef`] suffices. `None`: it keeps none.
        kept_from: Option<u64>,
        /// What of the log its journal has synced; `None`: it has no journal that works.
        synced: Option<SyncedRange>,
    },
    /// Child to parent, on to the acting root: states of members.
    Members(Vec<MemberReport>),
    /// Child to parent, on to the acting root: dynamic members, with the ranks that they have or
    /// (`None`) request. Parent to child, on to the requesters: the assigned ranks, or (`None`)
    /// that there is none.
    DynamicMembers(Vec<DynamicMember>),
    /// Parent to child, from the acting root to all: the ranks of all agents that are in the tree,
    /// or missing. The next acting root probes those of them that do not come.
    MembershipSnapshot(Arc<RangeSet>),
    /// Child to parent, on to the acting root: a request for the tree.
    TreeQuery {
        /// The requester.
        origin: OriginId,
        /// The requester's number of the request.
        query: u64,
    },
    /// Parent to child, on to the requester: part of the tree.
    TreeAnswer {
        /// The requester.
        origin: OriginId,
        /// The requester's number of the request.
        query: u64,
        /// Some of the members.
        members: Vec<MemberReport>,
        /// Whether this is the last part.
        last: bool,
    },
    /// Both ways through the tree: an indirect probe.
    Probe(Probe),
    /// The answer, back on the same path.
    ProbeAnswer(ProbeAnswer),
    /// Both ways, to neighbours with [`Features::TRACE`]: a request for the path of an event.
    TraceRequest(TraceRequest),
    /// The answer of an agent and all behind it.
    TraceAnswer(Box<TraceAnswer>),
}

/// The first frame of a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The versions of the protocol that it speaks.
    pub versions: Versions,
    /// The features that it supports.
    pub features: Features,
    /// Its cluster; agents of different clusters reject each other.
    pub cluster: String,
    /// Its host.
    pub host: String,
    /// Its rank; `None`: a dynamic member without one.
    pub rank: Option<Rank>,
    /// Where it listens; required of a dynamic member.
    pub address: String,
    /// Its incarnation.
    pub origin: OriginId,
    /// [`members_digest`] of its member list.
    pub members_digest: u64,
    /// The epoch history of its log.
    pub epochs: EpochHistory,
    /// It has consumed the log up to this index.
    pub commit_index: LogIndex,
    /// The part of the log that it holds, where it was acting root or standby.
    pub log_range: Option<LogRange>,
    /// The highest epoch number that it knows.
    pub epoch_seen: u64,
    /// The interest of its subtree.
    pub interest: Interest,
    /// Its clock, Unix nanoseconds.
    pub wall_ns: u64,
    /// Rises with each hello, so that reports about it can be ordered.
    pub attempt: u64,
}

/// A part of a log that an agent has completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRange {
    /// All entries after this index,
    pub after: LogIndex,
    /// up to this one.
    pub until: LogIndex,
}

/// The first frame of a parent that accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloAck {
    /// The version of the protocol that both use.
    pub protocol: u32,
    /// The features that both use.
    pub features: Features,
    /// Its host.
    pub host: String,
    /// Its rank.
    pub rank: Rank,
    /// Its incarnation.
    pub origin: OriginId,
    /// The rank assigned to a dynamic member.
    pub assigned: Option<Rank>,
    /// The parent's log and its path to the root.
    pub tree_state: TreeState,
    /// Bytes of [`Frame::Up`] that may be in flight.
    pub window_bytes: u64,
    /// The new root installs the child's log: send all of it.
    pub send_log: bool,
    /// Its clock, Unix nanoseconds.
    pub wall_ns: u64,
}

/// The log that an agent serves, and its path to the root.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TreeState {
    /// The epoch history of the log.
    pub epochs: EpochHistory,
    /// The index where an agent without a log begins.
    pub head: LogIndex,
    /// Ranks from the acting root to the sender, both included; empty while it searches a parent.
    pub path: Vec<Rank>,
    /// The acting root's standby.
    pub standby: Option<Rank>,
}

/// Why a parent rejects a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NackCode {
    /// Another cluster.
    Cluster,
    /// No common version of the protocol.
    Protocol,
    /// The rank does not fit.
    Rank,
    /// The certificate is for another host.
    Host,
    /// No room for a child.
    Full,
    /// The member lists differ.
    Members,
    /// The parent waits for a log: try again later.
    Busy,
    /// Another incarnation of the same host and rank is in the tree.
    Duplicate,
    /// A number is out of range.
    Epoch,
    /// A code of a later version.
    Other,
}

impl NackCode {
    /// The stable word for logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Protocol => "protocol",
            Self::Rank => "rank",
            Self::Host => "host",
            Self::Full => "full",
            Self::Members => "members",
            Self::Busy => "busy",
            Self::Duplicate => "duplicate",
            Self::Epoch => "epoch",
            Self::Other => "other",
        }
    }
}

/// A parent rejects a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloNack {
    /// Why, for programs.
    pub code: NackCode,
    /// For people; it names both sides.
    pub message: String,
    /// Ranks to try instead.
    pub redirect: Vec<Rank>,
}

/// The last frame of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// The agent stops; otherwise it leaves only this link.
    pub stopping: bool,
    /// For the log.
    pub reason: String,
}

/// The frame of an idle link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Heartbeat {
    /// To a child: all matching events up to here were sent. `None`: some are on their way, or the
    /// frame goes to a parent.
    pub covered: Option<Position>,
    /// To a parent: the highest epoch number known in the subtree.
    pub epoch_seen: u64,
    /// To a parent: the clock, Unix nanoseconds; 0: an older agent does not say it.
    pub wall_ns: u64,
    /// To a parent: [`members_digest`] of the member list; 0: an older agent does not say it.
    pub members_digest: u64,
}

/// The filters of a subtree.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Interest {
    /// Rises with every change.
    pub version: u64,
    /// The filters, merged.
    pub filters: Vec<Filter>,
}

impl Interest {
    /// For a peer that may not know folds of groups: such a peer gets and gives all events.
    #[must_use]
    pub fn for_any(self, features: Features) -> Self {
        Self { filters: filters_for(self.filters, features), ..self }
    }
}

/// Filters for a peer with these features.
fn filters_for(filters: Vec<Filter>, features: Features) -> Vec<Filter> {
    let is_known = features.contains(Features::FOLDS);
    let known = |filter: Filter| if is_known { filter } else { filter.with_single(false) };
    filters.into_iter().map(known).collect()
}

impl HistoryRequest {
    /// As [`Interest::for_any`].
    #[must_use]
    pub fn for_any(self, features: Features) -> Self {
        Self { filters: filters_for(self.filters, features), ..self }
    }
}

/// Events of one origin on their way up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpBatch {
    /// Their origin.
    pub origin: OriginId,
    /// The origin's run; it begins another each time it sends again.
    pub run: u64,
    /// The first sequence number of the run.
    pub base: OriginSeq,
    /// The sequence number of the first item; the others follow without a hole.
    pub first: OriginSeq,
    /// A publisher of some of them wants them on disk: the acting root says when they are settled.
    pub wants_disk: bool,
    /// The events.
    pub items: Vec<UpItem>,
}

/// Items of an [`UpBatch`]; each has one or more sequence numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpItem {
    /// Events, with one sequence number each.
    Events(Run),
    /// A gap of a log.
    Gap(Gap),
    /// Events that are missing where the acting root logs it.
    Loss(Loss),
    /// An epoch that is not part of the component's log has assigned indices.
    Fork {
        /// The epoch.
        epoch: Epoch,
        /// At least up to that index.
        until: LogIndex,
        /// Its entries came up before this item; otherwise the root waits for them.
        re_proposed: bool,
    },
}

impl UpItem {
    /// Size in bytes, as queues count it.
    pub fn len(&self) -> usize {
        match self {
            Self::Events(run) => run.len(),
            Self::Gap(gap) => GAP_BYTES + gap.spaces.len(),
            Self::Loss(loss) => GAP_BYTES + loss.spaces.len(),
            Self::Fork { .. } => GAP_BYTES,
        }
    }

    /// Number of its sequence numbers.
    pub fn count(&self) -> usize {
        match self {
            Self::Events(run) => run.count(),
            Self::Gap(_) | Self::Loss(_) | Self::Fork { .. } => 1,
        }
    }

    /// The rest after the first `count` sequence numbers; `None` without a rest.
    pub fn behind(&self, count: usize) -> Option<Self> {
        match self {
            _ if count == 0 => Some(self.clone()),
            Self::Events(run) => run.slice(count..run.count()).map(Self::Events),
            Self::Gap(_) | Self::Loss(_) | Self::Fork { .. } => None,
        }
    }

    /// The first `count` sequence numbers; `None` without any.
    pub fn front(&self, count: usize) -> Option<Self> {
        match self {
            _ if count == 0 => None,
            Self::Events(run) => run.slice(0..count).map(Self::Events),
            Self::Gap(_) | Self::Loss(_) | Self::Fork { .. } => Some(self.clone()),
        }
    }

    /// Always false: an item has a size.
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
    /// Size in bytes, as credit counts it.
    pub fn bytes(&self) -> u64 {
        self.items.iter().map(|item| item.len() as u64).sum()
    }

    /// Number of its sequence numbers.
    pub fn count(&self) -> u64 {
        self.items.iter().map(|item| item.count() as u64).sum()
    }
}

/// The events of an origin up to `seq` are confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirm {
    /// The origin.
    pub origin: OriginId,
    /// Its last confirmed sequence number.
    pub seq: OriginSeq,
    /// The last of them is at this position or before.
    pub position: Position,
    /// Batches with [`UpBatch::wants_disk`] that are settled.
    pub settled: Option<Settled>,
}

/// Events whose publishers want them on disk have reached the level that they can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The last of them.
    pub seq: OriginSeq,
    /// The lowest level of those that were not settled before.
    pub level: ConfirmLevel,
}

/// A part of a log that a journal has synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncedRange {
    /// All entries after this index,
    pub after: LogIndex,
    /// up to this one.
    pub until: LogIndex,
}

impl Confirm {
    /// Joins a later confirmation of the same origin. What both settle has the lower level.
    pub fn join(&mut self, later: Self) {
        let settled = match (self.settled, later.settled) {
            (Some(Settled { seq, level }), Some(last)) => {
                Some(Settled { seq: seq.max(last.seq), level: level.min(last.level) })
            }
            (first, last) => last.or(first),
        };
        if later.seq >= self.seq {
            *self = later;
        }
        self.settled = settled;
    }
}

/// Committed events for a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Down {
    /// The newest epoch of the history that the indices belong to. A child ignores any other.
    pub epoch: Epoch,
    /// The events, rising.
    pub items: Vec<Item>,
    /// All matching events up to here were sent.
    pub covered: LogIndex,
}

/// A request for older events. The answer is one [`HistoryReply`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRequest {
    /// The requester's number of the request.
    pub id: u64,
    /// The newest epoch of the history that the index belongs to.
    pub epoch: Epoch,
    /// Events after this index.
    pub after: LogIndex,
    /// Events from the first one on that is not older than this Unix time; `None`: all.
    pub since_ns: Option<u64>,
    /// They must match one of these.
    pub filters: Vec<Filter>,
    /// Only the rows of the table of conditions, each as its event. The acting root answers.
    pub conditions: bool,
}

/// The answer to a [`HistoryRequest`]: the next events, as many as one frame takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryReply {
    /// The requester's number of the request.
    pub id: u64,
    /// The events, rising.
    pub items: Vec<Item>,
    /// It has all matching events up to here.
    pub covered: LogIndex,
    /// There are no more for now.
    pub last: bool,
}

/// The beginning of a log that is copied as a whole; with an empty epoch history: it is not copied
/// any more, and what was copied is void.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaStart {
    /// Its epoch history.
    pub epochs: EpochHistory,
    /// It is complete after this index.
    pub after: LogIndex,
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
    /// The epoch of the acting root.
    pub epoch: Epoch,
    /// The entries, rising.
    pub items: Vec<Item>,
    /// Entries that the receiver has, since it sent them up, rising, between `items`.
    pub entry_refs: Vec<EntryRef>,
    /// Everything up to here was sent.
    pub until: LogIndex,
    /// The commit index.
    pub committed: LogIndex,
    /// The copy is complete: the receiver counts as standby, or takes the log over.
    pub complete: bool,
    /// The receiver may forget what it has sent up, up to this [`Frame::Up`] of the link.
    pub refs_until: u64,
}

/// A reference to entries that the receiver already has, since it sent them up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRef {
    /// The index of the first.
    pub index: LogIndex,
    /// The [`Frame::Up`] of the link that had them, counted from 1.
    pub batch: u64,
    /// Sequence numbers of that batch before them.
    pub skip: u64,
    /// Number of events.
    pub count: u32,
}

impl EntryRef {
    /// The last index.
    pub fn last(&self) -> LogIndex {
        self.index + u64::from(self.count.saturating_sub(1))
    }
}

/// The state of a member, reported by itself or by its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberReport {
    /// Its rank.
    pub rank: Rank,
    /// Its host.
    pub host: String,
    /// Where it listens; empty if the member list has it.
    pub address: String,
    /// Its incarnation; 0: not known.
    pub origin: u64,
    /// The [`Hello::attempt`] of its attachment.
    pub attempt: u64,
    /// Its state.
    pub state: MemberState,
    /// Its parent.
    pub parent: Option<Rank>,
    /// Unix nanoseconds since when.
    pub since_ns: u64,
    /// The features that it shares with its parent.
    pub features: Features,
}

/// An agent that is in no member list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicMember {
    /// Its host.
    pub host: String,
    /// Its rank.
    pub rank: Option<Rank>,
}

/// A request to find out whether a host answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The origin of the request.
    pub requester: OriginId,
    /// The requester's number of the request.
    pub probe: u64,
    /// The agent that tries.
    pub prober: Rank,
    /// The suspect.
    pub target: Rank,
    /// The suspect's host and where it listens; empty if the member list has them.
    pub host: String,
    /// Where its agent listens.
    pub address: String,
}

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeAnswer {
    /// The origin of the request.
    pub requester: OriginId,
    /// The requester's number of the request.
    pub probe: u64,
    /// The agent that tried.
    pub prober: Rank,
    /// The host answered, even if its agent did not.
    pub alive: bool,
}

/// What an agent and those behind it remember of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceAnswer {
    /// The agent that asked first.
    pub requester: OriginId,
    /// Its number of the request.
    pub request: u64,
    /// What they remember.
    pub trace: EventTrace,
}

/// A hash by which two agents compare their member lists: FNV-1a over the hosts in order.
pub fn members_digest<'a>(hosts: impl Iterator<Item = &'a str>) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in hosts.flat_map(|host| host.bytes().map(|b| b.to_ascii_lowercase()).chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}
