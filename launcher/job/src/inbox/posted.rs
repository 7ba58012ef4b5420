//! Receives that wait together: each message goes to the first of them that it fits, as MPI has it.

use super::{Inbox, InboxState, Link, Peer};
use crate::error::{Error, Result};
use crate::frame::Class;
use std::time::{Duration, Instant};

/// What a receive waits for: the first message of that class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// From that rank; `None`: from any.
    pub from: Option<u32>,
    pub class: Class,
    /// `None`: with any.
    pub tag: Option<u32>,
}

/// Which receive the program waits for, and the ranks whose loss fails it if it takes from any;
/// `None`: all ranks.
pub(crate) type Waited<'a> = (usize, Option<&'a [u32]>);

/// A message for one of several receives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Matched {
    /// Which of them.
    pub posted: usize,
    pub from: u32,
    pub tag: u32,
    pub payload: Vec<u8>,
}

impl Inbox {
    /// Waits for messages for the receives `posted`, in their order, of which the program waits for
    /// one of `wanted`. Empty if there was no link to a sender of these for `unlinked_max`. It
    /// fails if no message can come for one of them.
    pub(crate) fn take_posted(
        &self,
        posted: &[Pattern],
        wanted: &[Waited<'_>],
        unlinked_max: Duration,
    ) -> Result<Vec<Matched>> {
        let deadline = Instant::now() + unlinked_max;
        let wanted = wanted.iter().filter_map(|(at, any)| Some((posted.get(*at)?, *any)));
        let mut state = crate::lock(&self.state);
        loop {
            state.check_recall()?;
            for (pattern, _) in wanted.clone() {
                state.revocations.check(pattern.class)?;
            }
            let matched = state.match_posted(posted);
            if !matched.is_empty() {
                self.changed.notify_all();
                return Ok(matched);
            }
            for (pattern, any) in wanted.clone() {
                self.check_hopeful(&state, pattern.from, any)?;
            }
            let is_linked = |from: u32| state.peers[from as usize].link != Link::Down;
            if wanted.clone().filter_map(|(pattern, _)| pattern.from).all(is_linked) {
                state = self.wait(state);
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Vec::new());
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    /// The same without waiting: empty if there is no message yet.
    pub(crate) fn look_posted(
        &self,
        posted: &[Pattern],
        (wanted, any): Waited<'_>,
    ) -> Result<Vec<Matched>> {
        let mut state = crate::lock(&self.state);
        state.check_recall()?;
        let pattern = posted.get(wanted);
        pattern.map_or(Ok(()), |pattern| state.revocations.check(pattern.class))?;
        let matched = state.match_posted(posted);
        match matched.is_empty() {
            true => self.check_hopeful(&state, pattern.and_then(|of| of.from), any)?,
            false => self.changed.notify_all(),
        }
        Ok(matched)
    }

    /// Fails if no message can come from that rank. From any it fails if one is lost, or if the
    /// queues of all that have not finished are full. Of `any` it fails too if only lost ranks are
    /// left beside this one, acknowledged or not.
    fn check_hopeful(
        &self,
        state: &InboxState,
        from: Option<u32>,
        any: Option<&[u32]>,
    ) -> Result<()> {
        let max = self.bytes_max;
        let check = |rank: u32, peer: &Peer| {
            if peer.stalled {
                return Err(Error::ReceiveQueueFull { rank, bytes: peer.bytes, max });
            }
            peer.check(rank)
        };
        if let Some(rank) = from {
            return check(rank, &state.peers[rank as usize]);
        }
        // Made from a u32.
        let all: Vec<u32> = (0..state.peers.len() as u32).collect();
        let peers = (0_u32..).zip(&state.peers);
        let peers = peers.filter(|(rank, _)| any.is_none_or(|any| any.contains(rank)));
        let problems: Vec<Error> =
            peers.filter_map(|(rank, peer)| check(rank, peer).err()).collect();
        // No problem is known of this rank itself.
        let is_alone = problems.len() + 1 >= any.map_or(state.peers.len(), <[u32]>::len);
        let is_fatal = |error: &Error| match error {
            Error::PeerFinished { .. } => false,
            Error::ReceiveQueueFull { .. } => is_alone,
            _ => true,
        };
        if let Some(error) = problems.into_iter().find(is_fatal) {
            return Err(error);
        }
        match any.is_some() && is_alone {
            true => state.check_living(&all),
            false => Ok(()),
        }
    }
}

impl InboxState {
    fn match_posted(&mut self, posted: &[Pattern]) -> Vec<Matched> {
        let mut matched = Vec::new();
        for (at, pattern) in posted.iter().enumerate() {
            let ranks = match pattern.from {
                Some(from) => from as usize..from as usize + 1,
                None => 0..self.peers.len(),
            };
            let taken = ranks.into_iter().find_map(|rank| {
                let peer = self.peers.get_mut(rank)?;
                let tag = pattern.tag.or_else(|| peer.oldest_tag(pattern.class))?;
                // Made from a u32.
                Some((rank as u32, peer.pop(pattern.class, tag)?))
            });
            if let Some((from, message)) = taken {
                let (tag, payload) = (message.tag, message.payload);
                matched.push(Matched { posted: at, from, tag, payload });
            }
        }
        matched
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::frame::Incoming;
    use crate::inbox::Message;

    const CLASS: Class = Class::Within(3);

    fn inbox() -> Inbox {
        let inbox = Inbox::new(3, 1000, Box::new(|_, _| None));
        inbox.link_up(1, 0);
        inbox.link_up(2, 0);
        inbox
    }

    fn arrive(inbox: &Inbox, from: u32, class: Class, (tag, seq): (u32, u64)) {
        let payload = vec![seq as u8];
        inbox.accept(from, 0, Incoming::Data { class, tag, seq, payload }).unwrap();
    }

    fn taken(inbox: &Inbox, posted: &[Pattern], wanted: usize) -> Vec<(usize, u32, u32, u8)> {
        let matched = inbox.take_posted(posted, &[(wanted, None)], Duration::ZERO).unwrap();
        matched.iter().map(|m| (m.posted, m.from, m.tag, m.payload[0])).collect()
    }

    fn from(from: u32, tag: u32) -> Pattern {
        Pattern { from: Some(from), class: CLASS, tag: Some(tag) }
    }

    #[test]
    fn a_message_goes_to_the_first_receive_that_it_fits_whichever_is_waited_for() {
        let inbox = inbox();
        let any = Pattern { from: None, class: CLASS, tag: None };
        let posted = [from(1, 7), any, from(1, 7)];
        for numbered in [(7, 1), (7, 2), (7, 3)] {
            arrive(&inbox, 1, CLASS, numbered);
        }
        assert_eq!(taken(&inbox, &posted, 2), [(0, 1, 7, 1), (1, 1, 7, 2), (2, 1, 7, 3)]);
    }

    #[test]
    fn any_tag_takes_the_oldest_message_of_its_communicator_alone() {
        let inbox = inbox();
        arrive(&inbox, 1, Class::Within(4), (1, 1));
        arrive(&inbox, 1, CLASS, (9, 2));
        arrive(&inbox, 1, CLASS, (2, 3));
        let any = Pattern { from: Some(1), class: CLASS, tag: None };
        assert_eq!(taken(&inbox, &[any], 0), [(0, 1, 9, 2)]);
        assert_eq!(taken(&inbox, &[any], 0), [(0, 1, 2, 3)]);
        assert_eq!(taken(&inbox, &[Pattern { class: Class::Within(4), ..any }], 0).len(), 1);
    }

    #[test]
    fn a_receive_fails_if_its_sender_is_lost_and_one_from_any_if_any_is() {
        let inbox = inbox();
        let any = Pattern { from: None, class: CLASS, tag: None };
        inbox.link_ended(2, 0, None);
        arrive(&inbox, 1, CLASS, (7, 1));
        assert_eq!(taken(&inbox, &[from(1, 7)], 0).len(), 1);
        for pattern in [from(2, 7), any] {
            let error = inbox.take_posted(&[pattern], &[(0, None)], Duration::ZERO).unwrap_err();
            assert!(matches!(error, Error::PeerLost { rank: 2, .. }), "{error}");
        }
        let unlinked = inbox.take_posted(&[from(0, 7)], &[(0, None)], Duration::ZERO).unwrap();
        assert_eq!(unlinked, []);
    }

    /// While it waits for the first of them.
    #[test]
    fn a_wait_for_one_of_several_receives_ends_when_the_sender_of_any_of_them_dies() {
        let inbox = inbox();
        let posted = [from(1, 7), from(2, 7)];
        let wanted = [(0, None), (1, None)];
        std::thread::scope(|threads| {
            let waits =
                threads.spawn(|| inbox.take_posted(&posted, &wanted, Duration::from_secs(600)));
            inbox.mark_dead(&[2].into());
            let error = waits.join().unwrap().unwrap_err();
            assert!(matches!(error, Error::PeerLost { rank: 2, .. }), "{error}");
        });
    }

    #[test]
    fn a_receive_from_any_goes_on_without_the_dead_that_are_acknowledged() {
        let inbox = inbox();
        let any = Pattern { from: None, class: CLASS, tag: None };
        inbox.mark_dead(&[2].into());
        let take = |living: &[u32]| inbox.take_posted(&[any], &[(0, Some(living))], Duration::ZERO);
        assert!(matches!(take(&[0, 1, 2]), Err(Error::PeerLost { rank: 2, .. })));
        arrive(&inbox, 1, CLASS, (7, 1));
        assert_eq!(take(&[0, 1]).unwrap().len(), 1);
        assert!(matches!(take(&[0, 1, 2]), Err(Error::PeerLost { rank: 2, .. })));
    }

    #[test]
    fn a_receive_from_any_ends_if_only_acknowledged_dead_ranks_are_left() {
        let inbox = inbox();
        let hopeful =
            |any: &[u32]| inbox.check_hopeful(&crate::lock(&inbox.state), None, Some(any));
        inbox.mark_dead(&[2].into());
        hopeful(&[0, 1]).unwrap();
        inbox.mark_dead(&[1, 2].into());
        assert!(matches!(hopeful(&[0]), Err(Error::PeerLost { rank: 1, .. })));
        // A message of this rank to itself.
        let message = Message { class: CLASS, tag: 7, seq: 1, payload: vec![1] };
        inbox.push_own(0, message).unwrap();
        let any = Pattern { from: None, class: CLASS, tag: None };
        let take = || inbox.take_posted(&[any], &[(0, Some(&[0]))], Duration::ZERO);
        assert_eq!(take().unwrap().len(), 1);
        assert!(matches!(take(), Err(Error::PeerLost { rank: 1, .. })));
    }

    #[test]
    fn a_full_queue_ends_a_receive_from_any_only_if_no_other_rank_can_send() {
        let inbox = inbox();
        let stall = |rank: usize| crate::lock(&inbox.state).peers[rank].stalled = true;
        let any = Pattern { from: None, class: CLASS, tag: Some(7) };
        let hopeful = |from| inbox.check_hopeful(&crate::lock(&inbox.state), from, None);
        stall(1);
        let error = inbox.take_posted(&[from(1, 7)], &[(0, None)], Duration::ZERO).unwrap_err();
        assert!(matches!(error, Error::ReceiveQueueFull { rank: 1, .. }), "{error}");
        hopeful(None).unwrap();
        arrive(&inbox, 2, CLASS, (7, 1));
        assert_eq!(taken(&inbox, &[any], 0), [(0, 2, 7, 1)]);
        stall(2);
        let error = inbox.take_posted(&[any], &[(0, None)], Duration::ZERO).unwrap_err();
        assert!(matches!(error, Error::ReceiveQueueFull { .. }), "{error}");
    }
}
