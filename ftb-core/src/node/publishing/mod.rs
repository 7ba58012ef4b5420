//! What the clients of this agent and the agents below publish, on its way to the acting root.
//!
//! Responsible for: unconfirmed events, storm control, the queues of the children on the way up,
//! confirmations on the way down, and what publishers learn. Not responsible for: whether the way
//! up leads to a parent or to the own log.

mod delayed_acks;
mod outbox;
mod publish;
mod storm;
mod upward;

pub use delayed_acks::{ACK_DELAY_EVENTS_MAX, ACK_DELAY_MS};
pub(in crate::node) use outbox::LosingLog;
pub(in crate::node) use storm::FOLD_BYTES_MAX;
pub(in crate::node) use upward::{Route, WayUp};

use crate::epochs::EpochHistory;
use crate::frame::UpItem;
use crate::ident::{EventId, OriginId, PublisherId};
use crate::node::api::{ClientId, LinkId};
use crate::node::config::NodeConfig;
use crate::node::cx::Cx;
use delayed_acks::DelayedAcks;
use outbox::Outbox;
use publish::{Publisher, StormShed};
use std::collections::{BTreeMap, BTreeSet};
use storm::StormControl;
use upward::ChildFlow;

/// The part of an agent that brings events to the acting root.
pub(in crate::node) struct Publishing {
    /// Own clients' events.
    outbox: Outbox,
    publishers: BTreeMap<ClientId, Publisher>,
    by_publisher: BTreeMap<PublisherId, ClientId>,
    /// Clients that must not publish now.
    paused: BTreeSet<ClientId>,
    /// What of own clients' events passes, and what is folded or shed.
    storms: StormControl,
    storm_shed: Option<StormShed>,
    delayed_acks: DelayedAcks,
    children: BTreeMap<LinkId, ChildFlow>,
    /// By which child an origin's confirmations go down.
    routes: BTreeMap<OriginId, Route>,
    /// The child that sent up last; `None`: this agent.
    turn: Option<LinkId>,
}

impl Publishing {
    pub(in crate::node) fn new(config: &NodeConfig) -> Self {
        Self {
            outbox: Outbox::new(),
            publishers: BTreeMap::new(),
            by_publisher: BTreeMap::new(),
            paused: BTreeSet::new(),
            storms: StormControl::new(config.storm.clone(), config.folder),
            storm_shed: None,
            delayed_acks: DelayedAcks::default(),
            children: BTreeMap::new(),
            routes: BTreeMap::new(),
            turn: None,
        }
    }

    /// Adds an item of the agent's own to what goes up.
    pub(in crate::node) fn push(&mut self, item: UpItem) {
        self.outbox.push(item);
    }

    /// The log has another epoch history: what it may miss goes up again. Says whether that is any.
    pub(in crate::node) fn requeue(&mut self, epochs: &EpochHistory) -> bool {
        let any = self.outbox.requeue(epochs);
        if any {
            self.outbox.rewind();
        }
        any
    }

    /// A log has lost: its entries behind the fork go up before what waits.
    pub(in crate::node) fn re_propose(
        &mut self,
        cx: &mut Cx,
        losing: LosingLog,
        winning: &EpochHistory,
    ) {
        cx.counters.re_proposed += losing.items.iter().map(|item| item.count() as u64).sum::<u64>();
        self.outbox.re_propose(losing, winning);
        self.outbox.rewind();
    }

    /// Whether an event is kept for its publisher.
    pub(in crate::node) fn holds(&self, id: EventId) -> bool {
        self.outbox.holds(id)
    }

    /// Bytes of own clients' events that are not confirmed.
    pub(in crate::node) fn waiting_bytes(&self) -> usize {
        self.outbox.waiting_bytes()
    }

    /// Bytes of events that are held here.
    pub(in crate::node) fn bytes(&self) -> usize {
        let up: u64 = self.children.values().map(ChildFlow::bytes).sum();
        let up = usize::try_from(up).unwrap_or(usize::MAX);
        self.outbox.bytes() + self.storms.bytes() + up
    }

    /// When a fold leaves.
    pub(in crate::node) fn fold_ns(&self) -> Option<u64> {
        self.storms.deadline_ns()
    }

    /// When subscribers learn of events that storm control shed.
    pub(in crate::node) fn storm_gap_ns(&self) -> Option<u64> {
        self.storm_shed.as_ref().map(StormShed::due_ns)
    }

    /// When a delayed acknowledgement is due.
    pub(in crate::node) fn delayed_ack_ns(&self) -> Option<u64> {
        self.delayed_acks.deadline_ns()
    }
}
