//! What a cluster need not have any more, because no agent is left that could know of it.
//!
//! An event that was confirmed is excused when an agent dies, or its disk, only if
//! - no living agent has it in a log, a copy, a ring or an outbox, and no disk has it;
//! - its publisher's agent is dead; and
//! - no living agent has heard that a log went as far as any place at which it was: none could
//!   report the loss.
//!
//! docs/protocol.md has the three ways to come to that ("What it does not promise").

use super::World;
use ftb_core::ident::EventId;
use ftb_core::node::Node;
use ftb_core::position::Position;
use std::collections::BTreeSet;

impl World {
    /// Where the events were that an agent takes with it.
    pub(super) fn note_places(&mut self, dead: &Node) {
        for (id, place) in dead.places() {
            if let Some(published) = self.books.published.get_mut(&id) {
                published.places.insert(place);
            }
        }
    }

    /// An agent has died, or a dead agent's disk.
    pub(super) fn disown(&mut self) {
        let orphans: BTreeSet<_> = self
            .publishers
            .iter()
            .filter(|publisher| self.agents[publisher.agent].node.is_none())
            .map(|publisher| publisher.id)
            .collect();
        let confirmed = self
            .books
            .published
            .iter()
            .filter(|(id, published)| published.confirmed && orphans.contains(&id.publisher));
        let unheard = confirmed.filter(|(_, published)| {
            !published.places.is_empty()
                && !published.places.iter().any(|place| self.is_heard(*place))
        });
        let lost: Vec<EventId> =
            unheard.map(|(id, _)| *id).filter(|id| !self.is_held(*id)).collect();
        for id in lost {
            if let Some(published) = self.books.published.get_mut(&id) {
                published.confirmed = false;
            }
        }
    }

    /// Whether a living agent has heard that the log of that epoch went so far.
    fn is_heard(&self, place: Position) -> bool {
        self.agents.iter().any(|agent| {
            let furthest = agent.heard.get(&place.epoch);
            agent.node.as_ref().is_some_and(|node| {
                node.has_heard(place) || furthest.is_some_and(|index| *index >= place.index)
            })
        })
    }

    pub(super) fn is_held(&self, id: EventId) -> bool {
        self.agents.iter().filter_map(|agent| agent.node.as_ref()).any(|node| node.holds(id))
            || self.setup.disks && self.agents.iter().any(|agent| agent.disk.holds(id))
    }
}
