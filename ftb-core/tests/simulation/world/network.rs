//! The network between simulated agents: order on a link, latency, cuts, resets.

use super::{End, Happening, Host, World};
use crate::clients::Violation;
use ftb_core::node::api::{DialId, HostAnswer, Input, LinkId};

impl World {
    pub(super) fn cut(&self, from: usize, to: usize) -> bool {
        self.cuts.contains(&(from, to))
    }

    pub(super) fn cut_off(&mut self, from: usize, to: usize) {
        self.cuts.insert((from, to));
    }

    /// Sends something over a link, in order, unless a cut holds it.
    pub(super) fn send(&mut self, from: usize, to: End, what: Happening) {
        if self.cut(from, to.agent) {
            self.stuck.push(what);
            return;
        }
        let latency = 50_000 + self.random_below(100_000);
        let earliest = self.arrivals.get(&to).copied().unwrap_or(0);
        let at_ns = (self.now_ns + latency).max(earliest + 1);
        self.arrivals.insert(to, at_ns);
        self.schedule(at_ns, what);
    }

    pub(super) fn heal(&mut self) {
        self.cuts.clear();
        for what in std::mem::take(&mut self.stuck) {
            let (to, from) = match &what {
                Happening::Arrive { end, from, .. } | Happening::Close { end, from } => {
                    (*end, *from)
                }
                _ => continue,
            };
            self.send(from, to, what);
        }
    }

    pub(super) fn connect(
        &mut self,
        from: usize,
        life: u64,
        dial: DialId,
        to: usize,
        deadline_ns: u64,
    ) -> Result<(), Violation> {
        if self.agents[from].life != life || self.agents[from].node.is_none() {
            return Ok(());
        }
        let reachable = !self.cut(from, to) && !self.cut(to, from);
        let failed = |answer| Happening::DialFailed { agent: from, life, dial, answer };
        match (reachable, self.agents[to].host) {
            // The kernel takes the connection for it, and none answers.
            (true, Host::Up) if self.agents[to].paused => {
                self.schedule(deadline_ns, failed(HostAnswer::Taken));
                Ok(())
            }
            (true, Host::Up) => {
                self.next_link += 2;
                let here = End { agent: from, life, link: LinkId(self.next_link) };
                let there =
                    End { agent: to, life: self.agents[to].life, link: LinkId(self.next_link + 1) };
                self.peers.insert(here, there);
                self.peers.insert(there, here);
                self.feed(to, Input::Accepted { link: there.link, certified_hosts: None })?;
                self.feed(from, Input::Dialed { dial, link: here.link })
            }
            (true, Host::Refuses) => {
                self.schedule(self.now_ns + 50_000, failed(HostAnswer::Refused));
                Ok(())
            }
            _ => {
                self.schedule(deadline_ns, failed(HostAnswer::Nothing));
                Ok(())
            }
        }
    }
}
