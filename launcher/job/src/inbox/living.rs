//! Which ranks are dead, and which communicators are revoked, in a job that goes on without dead
//! ranks: what waits for them fails.

use super::{Inbox, InboxState, Link, Peer};
use crate::error::{Error, Result};
use crate::frame::Class;
use crate::lock;
use crate::repair::CommId;
use std::collections::{BTreeMap, BTreeSet};

/// Revoked communicators, and those of this rank: two without a common member may have the same
/// number.
#[derive(Default)]
pub(super) struct Revocations {
    joined: BTreeMap<u16, u32>,
    revoked: BTreeSet<CommId>,
}

impl Revocations {
    /// Fails if the communicator of that class is revoked.
    pub(super) fn check(&self, class: Class) -> Result<()> {
        let comm = match class {
            Class::Within(comm) | Class::CollectiveWithin(comm) => comm,
            Class::User | Class::Collective => return Ok(()),
        };
        let is_revoked = |first: &u32| self.revoked.contains(&(comm, *first));
        if self.joined.get(&comm).is_some_and(is_revoked) { Err(Error::Revoked) } else { Ok(()) }
    }
}

impl Inbox {
    /// Fails if one of these ranks is lost, or the communicator is revoked.
    pub(crate) fn check_living(&self, ranks: &[u32], class: Class) -> Result<()> {
        let state = lock(&self.state);
        state.revocations.check(class)?;
        state.check_living(ranks)
    }

    /// These ranks are dead: what waits for them fails, behind the messages that are there.
    pub(crate) fn mark_dead(&self, ranks: &BTreeSet<u32>) {
        let mut state = lock(&self.state);
        for rank in ranks {
            if let Some(peer) = state.peers.get_mut(*rank as usize) {
                peer.is_dead = true;
            }
        }
        self.changed.notify_all();
    }

    /// The ranks that are dead, or that this one has lost.
    pub(crate) fn dead(&self) -> BTreeSet<u32> {
        let state = lock(&self.state);
        let peers = (0_u32..).zip(&state.peers);
        peers.filter(|(_, peer)| peer.is_lost()).map(|(rank, _)| rank).collect()
    }

    /// The ranks whose links have broken, and that are not known to be dead.
    pub(crate) fn lost(&self) -> BTreeSet<u32> {
        let state = lock(&self.state);
        let peers = (0_u32..).zip(&state.peers);
        let is_lost = |peer: &Peer| matches!(peer.link, Link::Lost(_)) && !peer.is_dead;
        peers.filter(|(_, peer)| is_lost(peer)).map(|(rank, _)| rank).collect()
    }

    /// This rank is in that communicator.
    pub(crate) fn joins(&self, comm: CommId) {
        let mut state = lock(&self.state);
        state.revocations.joined.insert(comm.0, comm.1);
        state.drop_revoked();
        state.call_room();
    }

    /// These communicators are revoked: their messages are dropped, and what waits for one fails.
    pub(crate) fn revoke(&self, comms: &[CommId]) {
        let mut state = lock(&self.state);
        state.revocations.revoked.extend(comms);
        state.drop_revoked();
        state.call_room();
        self.changed.notify_all();
    }
}

impl InboxState {
    pub(super) fn check_living(&self, ranks: &[u32]) -> Result<()> {
        let peers = ranks.iter().filter_map(|rank| Some((*rank, self.peers.get(*rank as usize)?)));
        peers.filter(|(_, peer)| peer.is_lost()).try_for_each(|(rank, peer)| peer.check(rank))
    }

    fn drop_revoked(&mut self) {
        let Self { peers, revocations, .. } = self;
        for peer in peers {
            let queues = peer.queues.keys().filter(|(class, _)| revocations.check(*class).is_err());
            for (class, tag) in queues.copied().collect::<Vec<_>>() {
                while peer.pop(class, tag).is_some() {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::frame::Incoming;

    const CLASS: Class = Class::CollectiveWithin(3);

    fn inbox() -> Inbox {
        let inbox = Inbox::new(3, 100, Box::new(|_, _| None));
        inbox.link_up(1, 0);
        inbox.joins((3, 0));
        inbox
    }

    fn arrive(inbox: &Inbox, seq: u64) -> Result<(), String> {
        inbox.accept(1, 0, Incoming::Data { class: CLASS, tag: 7, seq, payload: vec![0; 90] })
    }

    #[test]
    fn a_message_that_is_there_is_taken_before_the_death_of_its_sender_counts() {
        let inbox = inbox();
        arrive(&inbox, 1).unwrap();
        inbox.mark_dead(&[1].into());
        inbox.take_linked((1, &[]), CLASS, 7).unwrap();
        let error = inbox.take_linked((1, &[]), CLASS, 7).unwrap_err();
        assert!(matches!(error, Error::PeerLost { rank: 1, .. }), "{error}");
        assert_eq!(inbox.dead(), [1].into());
    }

    #[test]
    fn a_broken_link_shows_until_the_launcher_reports_a_death() {
        let inbox = inbox();
        inbox.link_ended(1, 0, None);
        assert_eq!((inbox.lost(), inbox.dead()), ([1].into(), [1].into()));
        inbox.mark_dead(&[1].into());
        assert_eq!((inbox.lost(), inbox.dead()), ([].into(), [1].into()));
    }

    #[test]
    fn a_collective_operation_fails_with_a_dead_member_that_sends_nothing_here() {
        let inbox = inbox();
        inbox.mark_dead(&[2].into());
        let error = inbox.take_linked((1, &[0, 1, 2]), CLASS, 7).unwrap_err();
        assert!(matches!(error, Error::PeerLost { rank: 2, .. }), "{error}");
    }

    #[test]
    fn a_revoked_communicator_holds_no_message_and_no_sender_back() {
        let inbox = inbox();
        arrive(&inbox, 1).unwrap();
        // Another communicator of that number.
        inbox.revoke(&[(3, 1)]);
        inbox.check_living(&[], CLASS).unwrap();
        inbox.revoke(&[(3, 0)]);
        // It would wait for room.
        arrive(&inbox, 2).unwrap();
        let error = inbox.take_linked((1, &[]), CLASS, 7).unwrap_err();
        assert!(matches!(error, Error::Revoked), "{error}");
        assert_eq!(lock(&inbox.state).peers[1].bytes, 0);
        inbox.check_living(&[], Class::Within(4)).unwrap();
    }

    #[test]
    fn a_revocation_may_come_before_this_rank_has_made_the_communicator() {
        let inbox = inbox();
        inbox.revoke(&[(4, 0)]);
        inbox.check_living(&[], Class::Within(4)).unwrap();
        inbox.joins((4, 0));
        inbox.check_living(&[], Class::Within(4)).unwrap_err();
    }
}
