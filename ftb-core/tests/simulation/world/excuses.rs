//! What a cluster need not have any more, because everybody who had it, or could know of it, is gone.
//!
//! An event that was confirmed is excused when an agent dies, or its disk, only if nobody who lives has
//! it in a log, a copy, a ring or an outbox, no disk has it, its publisher's agent is dead, and
//! - nobody who lives is of the reign that the dead agent was of: there is nobody who could tell; or
//! - all of them who live were cut off from it when the event was published: nobody has heard that a root
//!   went on alone; or
//! - it was in two memories only, on its way to two disks, and both are dead: see [`UNWRITTEN`].

use super::{MS, World};
use ftb_core::ident::EventId;
use ftb_core::node::Node;
use ftb_core::position::Epoch;
use std::collections::BTreeSet;

/// Root and standby confirm what both hold in memory. So much later it is on their disks.
const UNWRITTEN: u64 = 20 * MS;
/// The same where a disk was full or was damaged: until it has been written again.
const UNWRITTEN_AFTER_DAMAGE: u64 = 5_000 * MS;
/// What was published so shortly before a cut was still on its way when that began.
const ON_ITS_WAY: u64 = MS;

impl World {
    /// An agent has died, or a dead agent's disk.
    pub(super) fn disown(&mut self, killed: usize) {
        let dead = &self.agents[killed];
        let reign = dead.epoch;
        let moment = if dead.disk.is_whole() { UNWRITTEN } else { UNWRITTEN_AFTER_DAMAGE };
        let unwritten = self.setup.disks.then(|| self.now_ns.saturating_sub(moment));
        let unheard = self.unheard_since(killed, reign);
        let Some(since_ns) = unwritten.into_iter().chain(unheard).min() else { return };
        let orphans: BTreeSet<_> = self
            .publishers
            .iter()
            .filter(|publisher| self.agents[publisher.agent].node.is_none())
            .map(|publisher| publisher.id)
            .collect();
        let confirmed = self.books.published.iter().filter(|(id, published)| {
            published.confirmed && published.at_ns >= since_ns && orphans.contains(&id.publisher)
        });
        let lost: Vec<EventId> =
            confirmed.map(|(id, _)| *id).filter(|id| !self.is_held(*id)).collect();
        for id in lost {
            if let Some(published) = self.books.published.get_mut(&id) {
                published.confirmed = false;
            }
        }
    }

    /// Since when nobody who lives and is of that reign hears the dead agent; `None` if anybody did.
    fn unheard_since(&self, dead: usize, reign: Epoch) -> Option<u64> {
        let others = self.agents.iter().enumerate();
        let others = others
            .filter(|(_, other)| other.node.as_ref().is_some_and(|node| node.epoch() == reign));
        let mut cuts = others.map(|(at, _)| self.cuts.get(&(dead, at)).copied());
        cuts.try_fold(0, |latest, since| Some(latest.max(since?.saturating_sub(ON_ITS_WAY))))
    }

    fn live(&self) -> impl Iterator<Item = &Node> {
        self.agents.iter().filter_map(|agent| agent.node.as_ref())
    }

    fn is_held(&self, id: EventId) -> bool {
        self.live().any(|node| node.holds(id))
            || self.setup.disks && self.agents.iter().any(|agent| agent.disk.holds(id))
    }
}
