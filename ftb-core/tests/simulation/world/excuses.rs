//! What a cluster need not have any more, because everybody who could have kept it is gone.

use super::{MS, World};
use ftb_core::ident::PublisherId;
use std::collections::BTreeSet;

impl World {
    /// Root and standby confirm what both hold in memory; a moment later it is on their disks. What they
    /// take with them in that moment is lost, if its origin dies too.
    fn disown_unwritten(&mut self, killed: usize) {
        let moment = if self.agents[killed].disk.is_whole() { 20 * MS } else { 5_000 * MS };
        for (id, published) in &mut self.books.published {
            let publisher = self.publishers.iter().find(|publisher| publisher.id == id.publisher);
            let dead = publisher.is_some_and(|p| self.agents[p.agent].node.is_none());
            if dead
                && published.confirmed
                && published.at_ns + moment >= self.now_ns
                && !self.agents.iter().any(|agent| agent.disk.holds(*id))
            {
                published.confirmed = false;
            }
        }
    }

    /// What a root confirmed that dies with everybody who could have kept it is lost: only a log on
    /// disk could hold it, and these nodes have none.
    pub(super) fn disown(&mut self, root: usize) {
        if self.setup.disks {
            return self.disown_unwritten(root);
        }
        let Some(since) = self.agents[root].root_since_ns.take() else { return };
        let dead: BTreeSet<PublisherId> = self
            .publishers
            .iter()
            .filter(|publisher| self.agents[publisher.agent].node.is_none())
            .map(|publisher| publisher.id)
            .collect();
        for (id, published) in &mut self.books.published {
            if dead.contains(&id.publisher) && published.at_ns + 5_000 * MS >= since {
                published.confirmed = false;
            }
        }
    }
}
