//! Events whose publishers want them on disk before they are confirmed.
//!
//! The acting root says how far such events are *settled*: they have reached the level that they
//! can reach ([`ConfirmLevel`]). Until then the outbox keeps them. If another root takes over, a
//! copy of them goes up, and that root settles it. If no agent settles an event in [`SETTLE_MS`],
//! for example because the path leads through an agent of an older release, it is confirmed at
//! level `memory`, and the publisher learns that.
//!
//! Responsible for: which events wait, and what their publishers learn. Not responsible for: how
//! far the journals are ([`crate::node::role::on_disk`]).

use crate::confirm_level::ConfirmLevel;
use crate::frame::{Settled, UpItem};
use crate::ident::PublisherId;
use crate::node::api::ClientId;
use crate::node::config::ns;
use crate::node::cx::Cx;
use crate::node::publishing::Publishing;
use crate::node::publishing::publish::Publisher;
use crate::run::Run;
use std::collections::BTreeMap;

/// The longest time between the commit of an event and its confirmation. An event that is not on
/// disk by then is confirmed at level `memory`.
const SETTLE_MS: u64 = 10_000;

/// Which events the clients of this agent want on disk.
pub(super) struct Wanting<'a> {
    pub(super) clients: &'a BTreeMap<PublisherId, ClientId>,
    pub(super) publishers: &'a BTreeMap<ClientId, Publisher>,
}

impl Wanting<'_> {
    /// Whether a publisher waits until one of these events is on disk.
    fn wants(&self, run: &Run) -> bool {
        run.stretches().any(|stretch| {
            let client = self.clients.get(&stretch.publisher);
            let publisher = client.and_then(|client| self.publishers.get(client));
            publisher.is_some_and(|publisher| stretch.first <= publisher.disk_until)
        })
    }

    /// The same for any item.
    pub(super) fn wants_item(&self, item: &UpItem) -> bool {
        match item {
            UpItem::Events(run) => self.wants(run),
            UpItem::Gap(_) | UpItem::Loss(_) | UpItem::Fork { .. } => false,
        }
    }
}

impl Publishing {
    /// Adds events of clients to what goes up.
    pub(super) fn push_run(&mut self, run: Run) {
        let wanting = Wanting { clients: &self.by_publisher, publishers: &self.publishers };
        let wants_disk = self.any_wants_disk && wanting.wants(&run);
        if wants_disk {
            for stretch in run.stretches() {
                let client = self.by_publisher.get(&stretch.publisher);
                let publisher = client.and_then(|client| self.publishers.get_mut(client));
                if let Some(publisher) = publisher {
                    // A fold stands for the events before it, too.
                    let first = stretch.first.back(stretch.covers.into());
                    publisher.acks.await_disk(first, stretch.last);
                }
            }
        }
        self.outbox.push_wanted(UpItem::Events(run), wants_disk);
    }

    /// Own events are settled.
    pub(super) fn on_settled(&mut self, cx: &mut Cx, settled: Settled) {
        let Settled { seq, level } = settled;
        let news = self.outbox.settle(seq);
        if level == ConfirmLevel::Memory && !news.is_empty() {
            cx.counters.confirmed_off_disk += 1;
        }
        for id in news {
            // The client may have detached.
            let Some(of) = self.by_publisher.get(&id.publisher).copied() else { continue };
            if let Some(publisher) = self.publishers.get_mut(&of) {
                publisher.acks.settle(id.seq, level);
                self.notify_acked(cx, of);
            }
        }
    }

    /// When [`Publishing::on_settle_timer`] is due.
    pub(super) fn settle_ns(&self) -> Option<u64> {
        self.outbox.oldest_unsettled_ns().map(|since| since.saturating_add(ns(SETTLE_MS)))
    }

    /// Committed events have waited too long.
    pub(super) fn on_settle_timer(&mut self, cx: &mut Cx) {
        let before_ns = cx.now.mono_ns.saturating_sub(ns(SETTLE_MS));
        if let Some(seq) = self.outbox.unsettled_since(before_ns) {
            self.on_settled(cx, Settled { seq, level: ConfirmLevel::Memory });
            self.on_outbox_change(cx);
        }
    }
}
