//! What the clients of this agent and the agents below publish, on its way to the acting root.
//!
//! Responsible for: unconfirmed events, storm control, the queues of the children on the way up,
//! confirmations on the way down, and what publishers learn. Not responsible for: whether the way
//! up leads to a parent or to the own log.

mod delayed_acks;
mod on_disk;
mod outbox;
mod publish;
mod storm;
mod upward;
mod user_rate;

pub use delayed_acks::{ACK_DELAY_EVENTS_MAX, ACK_DELAY_MS};
pub(crate) use outbox::LosingLog;
pub(crate) use storm::FOLD_BYTES_MAX;
pub(crate) use upward::{Route, WayUp};

use crate::epochs::EpochHistory;
use crate::frame::UpItem;
use crate::ident::{EventId, OriginId, PublisherId};
use crate::node::api::{ClientId, LinkId};
use crate::node::config::NodeConfig;
use crate::node::cx::Cx;
use crate::node::timers::Timer;
use delayed_acks::DelayedAcks;
use on_disk::Wanting;
use outbox::Outbox;
use publish::{Publisher, StormShed};
use std::collections::{BTreeMap, BTreeSet};
use storm::StormControl;
use upward::ChildFlow;
use user_rate::UserRates;

/// The part of an agent that brings events to the acting root.
pub(crate) struct Publishing {
    /// Own clients' events.
    outbox: Outbox,
    publishers: BTreeMap<ClientId, Publisher>,
    by_publisher: BTreeMap<PublisherId, ClientId>,
    /// A client has wanted events on disk.
    any_wants_disk: bool,
    /// Clients that are not read until less is unconfirmed.
    paused: BTreeSet<ClientId>,
    /// How fast users publish, and clients that are not read because of that.
    rates: UserRates,
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
    pub(crate) fn new(config: &NodeConfig) -> Self {
        Self {
            outbox: Outbox::new(),
            publishers: BTreeMap::new(),
            by_publisher: BTreeMap::new(),
            any_wants_disk: false,
            paused: BTreeSet::new(),
            rates: UserRates::default(),
            storms: StormControl::new(config.storm.clone(), config.folder),
            storm_shed: None,
            delayed_acks: DelayedAcks::default(),
            children: BTreeMap::new(),
            routes: BTreeMap::new(),
            turn: None,
        }
    }

    /// Adds an item of the agent's own to what goes up.
    pub(crate) fn push(&mut self, item: UpItem) {
        self.outbox.push(item);
    }

    /// The log has another epoch history: what it may miss goes up again. Says whether that is any.
    pub(crate) fn requeue(&mut self, epochs: &EpochHistory) -> bool {
        let any = self.outbox.requeue(epochs);
        if any {
            self.outbox.rewind();
        }
        any
    }

    /// A log has lost: its entries after the fork go up before what waits.
    pub(crate) fn re_propose(&mut self, cx: &mut Cx, losing: LosingLog, winning: &EpochHistory) {
        cx.counters.re_proposed += losing.items.iter().map(|item| item.count() as u64).sum::<u64>();
        let wanting = Wanting { clients: &self.by_publisher, publishers: &self.publishers };
        self.outbox.re_propose(losing, winning, |item| wanting.wants_item(item));
        self.outbox.rewind();
    }

    /// Whether an event is kept for its publisher.
    pub(crate) fn holds(&self, id: EventId) -> bool {
        self.outbox.holds(id)
    }

    /// Bytes of own clients' events that are not confirmed.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.outbox.waiting_bytes()
    }

    /// Bytes of events that are held here.
    pub(crate) fn bytes(&self) -> usize {
        let up: u64 = self.children.values().map(ChildFlow::bytes).sum();
        let up = usize::try_from(up).unwrap_or(usize::MAX);
        self.outbox.bytes() + self.storms.bytes() + up
    }

    /// When a timer of this part expires.
    pub(crate) fn deadline_ns(&self, cx: &Cx, timer: Timer) -> Option<u64> {
        match timer {
            Timer::Fold => self.storms.deadline_ns(),
            Timer::StormGap => self.storm_shed.as_ref().map(StormShed::due_ns),
            Timer::DelayedAck => self.delayed_acks.deadline_ns(),
            Timer::OutboxGrace => self.expire_ns(cx),
            Timer::UserRate => self.rates.deadline_ns(cx.config.user_events_per_s),
            Timer::Settle => self.settle_ns(),
            _ => None,
        }
    }

    pub(crate) fn on_timer(&mut self, cx: &mut Cx, timer: Timer) {
        match timer {
            Timer::Fold => self.on_fold_timer(cx),
            Timer::StormGap => self.on_storm_gap_timer(),
            Timer::DelayedAck => self.on_delayed_ack_timer(cx),
            Timer::OutboxGrace => self.expire_outbox(cx),
            Timer::UserRate => self.on_user_rate_timer(cx),
            Timer::Settle => self.on_settle_timer(cx),
            _ => cx.impossible("TimerOfPublishing"),
        }
    }
}
