//! The configuration of a node: its cluster, and its limits.

use crate::frame::members_digest;
use crate::group::Grouper;
use crate::ident::{OriginId, Rank};
use crate::log::conditions::ConditionLimits;
use crate::log::retained::Reserve;
use crate::protocol::{PROTOCOL, Versions};
use crate::sealed::CountedMark;
use crate::space::EventSpace;
use crate::storm::{Folder, StormRule};
use std::collections::HashMap;
use std::sync::Arc;

/// Most agents of one component that are in no member list. With more, the one that has been away
/// longest loses its rank; while all are up, one more is refused.
pub const UNLISTED_MAX: usize = 4_096;

/// One line of the member list; its index is the rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its host name, as its certificate and its events say it.
    pub host: String,
    /// Where it listens, for the shell to dial.
    pub address: String,
}

/// The member list, made once and shared: a simulation of many agents has it once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberList(Arc<Listed>);

#[derive(Debug, PartialEq, Eq)]
struct Listed {
    members: Vec<Member>,
    /// By host in lower case.
    ranks: HashMap<String, Rank>,
    digest: u64,
}

impl From<Vec<Member>> for MemberList {
    fn from(members: Vec<Member>) -> Self {
        let mut ranks = HashMap::with_capacity(members.len());
        for (rank, member) in (0..).map(Rank).zip(&members) {
            // A host that is listed twice has the first of its ranks.
            ranks.entry(member.host.to_ascii_lowercase()).or_insert(rank);
        }
        let digest = members_digest(members.iter().map(|member| member.host.as_str()));
        Self(Arc::new(Listed { members, ranks, digest }))
    }
}

impl MemberList {
    /// All of them, in rank order.
    pub fn all(&self) -> &[Member] {
        &self.0.members
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.members.len()
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.members.is_empty()
    }

    /// Who has a rank.
    pub fn get(&self, rank: Rank) -> Option<&Member> {
        self.0.members.get(rank.0 as usize)
    }

    /// The rank of a host, whose name is compared without case.
    pub fn rank_of(&self, host: &str) -> Option<Rank> {
        self.0.ranks.get(&host.to_ascii_lowercase()).copied()
    }

    /// The number by which two agents see whether they have the same list.
    pub fn digest(&self) -> u64 {
        self.0.digest
    }
}

/// Everything a node must know before it starts. [`NodeConfig::new`] fills in the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// The versions of the protocol that this agent speaks. Default [`PROTOCOL`].
    pub versions: Versions,
    /// Agents of other clusters are refused.
    pub cluster: String,
    /// This agent's host.
    pub host: String,
    /// The release of the agent, for its report.
    pub version: String,
    /// The shell accepts agents with certificates only, for the report.
    pub is_secured: bool,
    /// Where this agent listens. An agent outside the list sends it to its parent.
    pub address: String,
    /// This incarnation; drawn by the shell, never 0, never used before.
    pub origin: OriginId,
    /// The member list; the same on every agent.
    pub members: MemberList,
    /// This agent's place in the list; `None`: not listed.
    pub rank: Option<Rank>,
    /// Agents that are in no list may join: below this one, and, while it is acting root, at all.
    /// Default true.
    pub allow_unlisted: bool,
    /// Children that the wanted tree gives one agent. Default 16.
    pub fanout: u32,
    /// Children that an agent takes before it redirects. Default four times the fan-out: room for
    /// the children of dead neighbours.
    pub children_max: usize,
    /// A link that was idle for this time gets a heartbeat. Default 1,000 ms, which is about 50
    /// bytes/s on an idle link.
    pub heartbeat_ms: u64,
    /// A link that was silent for this time is lost. Default 2,000 ms; at least two heartbeats.
    pub detection_ms: u64,
    /// Deadline of a dial, and of the answer to a hello. Default 1,000 ms.
    pub dial_ms: u64,
    /// Dials and hellos under way at once. Default 8.
    pub dials_max: usize,
    /// An agent that has found no parent in this time becomes acting root, and continues to search.
    /// Default 2,000 ms.
    pub search_ms: u64,
    /// The pause between two searches for a better parent, jittered by half: at an acting root, or
    /// an agent that is not below its wanted parent. Default 1,000 ms.
    pub probe_ms: u64,
    /// The longest pause between two such searches, when they fail repeatedly. Default 10,000 ms.
    pub probe_ms_max: u64,
    /// The least time below a parent before the agent moves to a better one. Default 1,000 ms,
    /// doubled with every move (up to `probe_ms_max`), so that agents do not follow a flapping
    /// parent.
    pub settle_ms: u64,
    /// How long an origin keeps confirmed events of its own clients, and how long the acting root
    /// waits until other epochs are re-proposed. Default 30,000 ms.
    pub grace_ms: u64,
    /// Bytes of the log that acting root and standby keep in memory. Default 16 MiB. Of entries
    /// that no longer fit, severe events may use half of that: a quarter is reserved for protected
    /// spaces, a quarter for ERROR and FATAL of all others. The copy at the standby takes at most
    /// twice as much, while entries are on their way down to its own readers.
    pub log_bytes: usize,
    /// Event spaces, each with all below it, in which ordinary users may not publish: a flood in
    /// other spaces does not replace their events in the log. Default: `ftb.agent`, `ftb.ipmi`,
    /// `ftb.ib`.
    pub protected: Arc<[EventSpace]>,
    /// Bytes of passing events that any other agent keeps. Default 8 MiB.
    pub ring_bytes: usize,
    /// Bytes that a reader (child or subscription) that has fallen behind log or ring may pin;
    /// beyond, the mildest events are shed. FATAL may use a quarter more. Default 4 MiB.
    pub lag_bytes: usize,
    /// Bytes that the clients of one user may make this agent hold: clients, subscriptions,
    /// filters, and events for slow subscriptions. Default 64 MiB.
    pub user_bytes: usize,
    /// The same for all such users together: beyond it those that hold the most lose events first.
    /// Default 512 MiB.
    pub users_bytes: usize,
    /// Subscriptions of all clients of one user. Default 2,048.
    pub user_subscriptions: usize,
    /// Bytes of their filters. Default 512 KiB.
    pub user_filter_bytes: usize,
    /// How fast the clients of one user publish, together, before they are read more slowly: a
    /// message counts once, each event in it once, each KiB once. Default 10,000 a second.
    pub user_events_per_s: u32,
    /// Users without these bounds. Default: root.
    pub unbounded_uids: Vec<u32>,
    /// Bytes of unconfirmed events of own clients; with more, clients are paused. Default 8 MiB.
    pub outbox_bytes: usize,
    /// Bytes of events that may be under way on one link to a parent. Default 1 MiB.
    pub window_bytes: u64,
    /// Bytes appended and not yet acknowledged by the standby; with more, it is skipped. Default
    /// 16 MiB.
    pub uncommitted_bytes: usize,
    /// A standby that acknowledges nothing for this time is skipped: the acting root confirms alone
    /// and offers the log again after a pause. Default 200 ms.
    pub standby_ms: u64,
    /// A journal that acknowledges nothing in this time, while a lone root waits for it, is
    /// skipped: the log continues in memory. Default 5,000 ms: a disk may stall for a while.
    pub journal_ms: u64,
    /// Publishers whose events an agent remembers to know copies. Default 65,536.
    pub publishers_max: usize,
    /// Links that have not yet said who they are. Default 256; beyond, the newest is refused.
    pub handshaking_max: usize,
    /// Subscriptions of one client. Default 1,024.
    pub subscriptions_max: usize,
    /// Storm control of what own clients publish. Default: none.
    pub storm: Vec<StormRule>,
    /// Bounds of the table of conditions. Default 131,072 rows, 192 MiB.
    pub conditions: ConditionLimits,
    /// How long a publisher or its agent may be away before its conditions become unknown. Default
    /// 10,000 ms.
    pub condition_grace_ms: u64,
    /// How often an agent repeats the conditions of its clients. Default 600,000 ms.
    pub condition_repeat_ms: u64,
    /// How long an agent is in a tree before it declares that it watches its host. Default `None`:
    /// it never does.
    pub declare_after_ms: Option<u64>,
    /// How folds are encoded; `None`: nothing is folded.
    pub folder: Option<Folder>,
    /// How members and folds of groups are encoded; `None`: nothing is grouped.
    pub grouper: Option<Grouper>,
    /// How statements that counted are marked; `None`: they are not.
    pub counted_mark: Option<CountedMark>,
}

impl NodeConfig {
    /// An agent of that cluster and host, with the defaults for everything else.
    pub fn new(
        cluster: &str,
        host: &str,
        origin: OriginId,
        members: impl Into<MemberList>,
    ) -> Self {
        let members = members.into();
        let rank = members.rank_of(host);
        let listed = rank.and_then(|rank| members.get(rank));
        let address = listed.map(|member| member.address.clone()).unwrap_or_default();
        let fanout = 16;
        Self {
            versions: PROTOCOL,
            cluster: cluster.to_owned(),
            host: host.to_owned(),
            version: String::new(),
            is_secured: false,
            address,
            origin,
            members,
            rank,
            allow_unlisted: true,
            fanout,
            children_max: 4 * fanout as usize,
            heartbeat_ms: 1_000,
            detection_ms: 2_000,
            dial_ms: 1_000,
            dials_max: 8,
            search_ms: 2_000,
            probe_ms: 1_000,
            probe_ms_max: 10_000,
            settle_ms: 1_000,
            grace_ms: 30_000,
            log_bytes: 16 << 20,
            protected: protected_by_default(),
            ring_bytes: 8 << 20,
            lag_bytes: 4 << 20,
            user_bytes: 64 << 20,
            users_bytes: 512 << 20,
            user_subscriptions: 2_048,
            user_filter_bytes: 512 << 10,
            user_events_per_s: 10_000,
            unbounded_uids: vec![0],
            outbox_bytes: 8 << 20,
            window_bytes: 1 << 20,
            uncommitted_bytes: 16 << 20,
            standby_ms: 200,
            journal_ms: 5_000,
            publishers_max: 65_536,
            handshaking_max: 256,
            subscriptions_max: 1_024,
            storm: Vec::new(),
            conditions: ConditionLimits::default(),
            condition_grace_ms: 10_000,
            condition_repeat_ms: 600_000,
            declare_after_ms: None,
            folder: None,
            grouper: None,
            counted_mark: None,
        }
    }
}

impl NodeConfig {
    /// What acting root and standby retain of the entries that their log gives up.
    pub(super) fn reserve(&self) -> Reserve {
        Reserve::of(self.log_bytes, &self.protected, self.conditions, self.counted_mark)
    }
}

/// The spaces of the agents and of the hardware publishers.
pub fn protected_by_default() -> Arc<[EventSpace]> {
    let spaces = ["ftb.agent", "ftb.ipmi", "ftb.ib"];
    spaces.into_iter().filter_map(|space| EventSpace::new(space).ok()).collect()
}

/// Milliseconds as nanoseconds.
pub(super) const fn ns(ms: u64) -> u64 {
    ms.saturating_mul(1_000_000)
}
