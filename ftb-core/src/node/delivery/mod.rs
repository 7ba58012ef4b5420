//! What the clients and the children of this agent want and read.
//!
//! Responsible for: subscriptions, interests, readers of the log, and where older events come from.
//! Not responsible for: the log ([`crate::log::followed`]), who is a child ([`crate::node::tree`]).

mod budget;
mod children;
mod clients;
mod deliver;
mod history;
mod history_sources;
mod history_turns;
mod index;
mod interest;
mod seen;
mod subscriptions;

pub use history_sources::JOURNAL_READS_MAX;

use crate::epochs::EpochHistory;
use crate::filter::{Filter, FilterSet};
use crate::log::followed::FollowedLog;
use crate::node::api::{ClientId, LinkId, SubscriptionId};
use crate::node::cx::Cx;
use crate::node::journal::Journal;
use crate::numbers::LogIndex;
use budget::Budgets;
use children::ChildReader;
use clients::Client;
pub(crate) use clients::ClientUse;
use core::ops::{Deref, DerefMut};
use history::PendingRequest;
use history_sources::DiskReads;
use history_turns::{HistoryTurns, Requester};
use index::SubscriptionIndex;
use interest::Interests;
use seen::Seen;
use std::collections::{BTreeMap, BTreeSet};

/// The part of an agent that brings events to clients and children.
pub(crate) struct Delivery {
    clients: BTreeMap<ClientId, Client>,
    children: BTreeMap<LinkId, ChildReader>,
    /// What the clients of each user make this agent hold.
    budgets: Budgets,
    /// Which subscriptions of the clients may want an event.
    index: SubscriptionIndex,
    /// Subscriptions that are not active yet.
    waiting: BTreeSet<(ClientId, SubscriptionId)>,
    /// Subscriptions that read the past.
    histories: BTreeSet<(ClientId, SubscriptionId)>,
    /// Events that were delivered to clients here.
    seen: Seen,
    /// What of them had been when the log was left for the one in which subscriptions catch up now.
    delivered_before: Option<Seen>,
    interests: Interests,
    /// Filters that are not among them yet.
    unmerged: FilterSet,
    /// When the filters here were merged last.
    merged_ns: Option<u64>,
    /// When all of them are merged anew, without those that have ended.
    narrow_ns: Option<u64>,
    /// Reports of hosts that are powered off, while a suspect may be.
    power: Option<Filter>,
    /// The parent must learn of another interest.
    subscribe_due: bool,
    /// The index behind which the parent said that our interest is active.
    active_index: LogIndex,
    /// Questions for older events that were passed up.
    requests: BTreeMap<u64, PendingRequest>,
    next_request: u64,
    turns: HistoryTurns,
    /// Readers that wait for older events, and have no agent to ask for them now.
    stalled: BTreeSet<Requester>,
    disk_reads: DiskReads,
}

/// What readers of the log work with: the context of all parts, and the log that is followed here.
pub(crate) struct ReadCx<'a> {
    pub(crate) cx: &'a mut Cx,
    pub(crate) log: &'a FollowedLog,
    pub(crate) journal: &'a Journal,
    /// The epoch history of the log that goes to the disk.
    pub(crate) written: &'a EpochHistory,
    /// Behind which index that log is in memory.
    pub(crate) memory_after: LogIndex,
}

impl Deref for ReadCx<'_> {
    type Target = Cx;

    fn deref(&self) -> &Cx {
        self.cx
    }
}

impl DerefMut for ReadCx<'_> {
    fn deref_mut(&mut self) -> &mut Cx {
        self.cx
    }
}

impl ReadCx<'_> {
    /// Which part of the log can be read from the disk.
    fn disk_range(&self) -> Option<(LogIndex, LogIndex)> {
        self.journal.range(self.written)
    }
}

impl Delivery {
    pub(crate) fn new(publishers_max: usize) -> Self {
        Self {
            clients: BTreeMap::new(),
            children: BTreeMap::new(),
            budgets: Budgets::default(),
            index: SubscriptionIndex::default(),
            waiting: BTreeSet::new(),
            histories: BTreeSet::new(),
            seen: Seen::new(publishers_max),
            delivered_before: None,
            interests: Interests::default(),
            unmerged: FilterSet::new(),
            merged_ns: None,
            narrow_ns: None,
            power: None,
            subscribe_due: false,
            active_index: LogIndex::ZERO,
            requests: BTreeMap::new(),
            next_request: 0,
            turns: HistoryTurns::default(),
            stalled: BTreeSet::new(),
            disk_reads: DiskReads::default(),
        }
    }
}
