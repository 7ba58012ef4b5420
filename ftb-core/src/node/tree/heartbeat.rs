//! Heartbeats: when one is due, and that they go through a quiet tree as one wave.
//!
//! Responsible for: when a link must say something. Not responsible for: what a heartbeat says
//! ([`crate::node::Node::poll_link`]), and what silence means
//! ([`crate::node::membership::suspicion`]).

use crate::frame::Frame;
use crate::node::Node;
use crate::node::api::LinkId;
use crate::node::config::ns;
use crate::node::tree::link::{Link, LinkRole};

impl Node {
    /// A heartbeat is answered at once if ours is due within half a period, and all others that are
    /// go with it. So the root's timer is the only one of a quiet tree: heartbeats go from it to
    /// the leaves and back as one wave, which wakes an agent once for each of its links.
    pub(in crate::node) fn answer_heartbeat(&mut self, link: LinkId, frame: &Frame) {
        if let (Frame::Heartbeat(_), Some(found)) = (frame, self.links.get(&link))
            && self.is_heartbeat_due_soon(found)
        {
            self.send_due_heartbeats();
        }
    }

    /// Heartbeats on all links on which one is due within half a period.
    pub(in crate::node) fn send_due_heartbeats(&mut self) {
        let due = self.links.iter().filter(|(_, link)| self.is_heartbeat_due_soon(link));
        let due: Vec<LinkId> = due.map(|(id, _)| *id).collect();
        due.into_iter().for_each(|link| self.heartbeat(link));
    }

    /// When a heartbeat on a link is due if nothing else is said. Who has a parent waits a little
    /// longer, for that of the parent, and longer for what it says to the parent than for what its
    /// own children wait for.
    pub(in crate::node) fn heartbeat_due_ns(&self, link: &Link) -> u64 {
        let period = ns(self.config.heartbeat_ms);
        let longer = match link.role {
            LinkRole::Parent => period / 4,
            _ if self.role.parent().is_some() => period / 8,
            _ => 0,
        };
        link.sent_at_ns.saturating_add(period + longer)
    }

    /// Whether the next heartbeat on a link is due within half a period.
    pub(in crate::node) fn is_heartbeat_due_soon(&self, link: &Link) -> bool {
        let speaks = matches!(link.role, LinkRole::Child | LinkRole::Parent);
        speaks
            && link.sent_at_ns.saturating_add(ns(self.config.heartbeat_ms) / 2) <= self.now.mono_ns
    }

    pub(in crate::node) fn heartbeat(&mut self, link: LinkId) {
        if let Some(found) = self.links.get_mut(&link) {
            found.heartbeat_due = true;
            self.wake(link);
        }
    }
}
