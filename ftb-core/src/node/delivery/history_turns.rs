//! Turns of requests for older events: no user takes the places of others.
//!
//! Each page of history is one question. An agent has at most [`PER_USER_MAX`] questions of one
//! user under way, the acting root searches for at most [`SEARCHES_MAX`], and for at most
//! [`SEARCHES_PER_LINK_MAX`] of one link. When all places are taken:
//! - a subscription here waits for its turn; users take turns;
//! - a question from below gets no answer, and its agent asks again after `detection_ms`. An answer
//!   without what is on a disk would be a gap that is none.
//!
//! Not responsible for: questions and answers ([`crate::node::delivery::history`]).

use crate::node::api::{ClientId, LinkId, SubscriptionId};
use crate::node::cx::Cx;
use crate::node::delivery::{Delivery, ReadCx};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The reader that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Requester {
    /// The reader of a child link.
    Child(LinkId),
    /// The reader of a subscription.
    Subscription(ClientId, SubscriptionId),
    /// A child that asked us; with its number of the question.
    Below(LinkId, u64),
    /// The acting root above; with its number of the question.
    Above(u64),
    /// A subscription that has ended since.
    Ended,
}

impl Requester {
    /// The link to the child that it is, or is below.
    pub(super) fn link(self) -> Option<LinkId> {
        match self {
            Self::Child(link) | Self::Below(link, _) => Some(link),
            Self::Subscription(..) | Self::Above(_) | Self::Ended => None,
        }
    }

    /// Whether it is a subscription of that client.
    pub(super) fn is_of_client(self, client: ClientId) -> bool {
        matches!(self, Self::Subscription(of, _) if of == client)
    }

    /// Whether it is that child, or below it.
    pub(super) fn is_on(self, child: LinkId) -> bool {
        self.link() == Some(child)
    }
}

/// Most questions of one user that are under way at an agent; root and the ftb users have no limit.
const PER_USER_MAX: usize = 8;
/// Most questions for which the acting root searches at once, and of one link among them. Readers
/// of links, of which there are few, have a place always.
const SEARCHES_MAX: usize = 512;
const SEARCHES_PER_LINK_MAX: usize = 128;

/// Subscriptions that wait for a place.
#[derive(Default)]
pub(super) struct HistoryTurns {
    waiting: BTreeMap<u32, BTreeSet<(ClientId, SubscriptionId)>>,
    /// Whose turn it was last.
    last: u32,
}

impl HistoryTurns {
    fn wait(&mut self, uid: u32, of: (ClientId, SubscriptionId)) {
        self.waiting.entry(uid).or_default().insert(of);
    }

    /// A subscription waits no more: it may ask, or it has ended.
    pub(super) fn remove(&mut self, uid: u32, of: (ClientId, SubscriptionId)) {
        if let Some(waiting) = self.waiting.get_mut(&uid) {
            waiting.remove(&of);
            if waiting.is_empty() {
                self.waiting.remove(&uid);
            }
        }
    }

    pub(super) fn contains(&self, requester: Requester) -> bool {
        let Requester::Subscription(client, id) = requester else { return false };
        self.waiting.values().any(|waiting| waiting.contains(&(client, id)))
    }

    /// The users that wait: those after the one whose turn it was come first.
    fn users(&self) -> Vec<u32> {
        let (before, after): (Vec<u32>, Vec<u32>) =
            self.waiting.keys().partition(|uid| **uid <= self.last);
        [after, before].concat()
    }

    fn take(&mut self, uid: u32) -> Option<(ClientId, SubscriptionId)> {
        let first = *self.waiting.get(&uid)?.first()?;
        self.remove(uid, first);
        self.last = uid;
        Some(first)
    }
}

/// Questions that wait for the disk: links take turns, and the subscriptions here are one of them.
#[derive(Default)]
pub(super) struct DiskTurns {
    waiting: BTreeMap<Option<LinkId>, VecDeque<u64>>,
    last: Option<LinkId>,
}

impl DiskTurns {
    pub(super) fn len(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum()
    }

    pub(super) fn push(&mut self, of: Option<LinkId>, id: u64) {
        self.waiting.entry(of).or_default().push_back(id);
    }

    pub(super) fn pop(&mut self) -> Option<u64> {
        let after = self.waiting.keys().find(|of| **of > self.last);
        let of = *after.or_else(|| self.waiting.keys().next())?;
        let waiting = self.waiting.get_mut(&of)?;
        let id = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&of);
        }
        self.last = of;
        id
    }
}

impl Delivery {
    /// The user of a subscription here.
    pub(super) fn uid_of(&self, requester: Requester) -> Option<u32> {
        let Requester::Subscription(client, _) = requester else { return None };
        self.clients.get(&client).map(|client| client.uid)
    }

    fn has_place(&self, cx: &Cx, uid: u32) -> bool {
        let is_full = cx.around.is_root && self.searches(None) >= SEARCHES_MAX;
        if is_full || self.has_too_many_requests() {
            return false;
        }
        cx.config.unbounded_uids.contains(&uid)
            || self.requests.values().filter(|request| request.uid() == Some(uid)).count()
                < PER_USER_MAX
    }

    /// Questions for which this agent searches, of one link or of all.
    fn searches(&self, link: Option<LinkId>) -> usize {
        let searches = self.requests.values().filter(|request| request.is_search());
        searches.filter(|request| link.is_none_or(|link| request.is_of(link))).count()
    }

    /// Whether a requester may ask now. A subscription that may not waits for its turn.
    pub(super) fn may_ask(&mut self, cx: &mut Cx, requester: Requester) -> bool {
        let may = match requester {
            Requester::Child(_) | Requester::Above(_) | Requester::Ended => true,
            Requester::Below(link, _) => {
                !cx.around.is_root
                    || self.searches(None) < SEARCHES_MAX
                        && self.searches(Some(link)) < SEARCHES_PER_LINK_MAX
            }
            Requester::Subscription(client, id) => {
                let Some(uid) = self.uid_of(requester) else { return true };
                let may = self.has_place(cx, uid);
                match may {
                    true => self.turns.remove(uid, (client, id)),
                    false => self.turns.wait(uid, (client, id)),
                }
                may
            }
        };
        cx.counters.history_waits += u64::from(!may);
        may
    }

    /// A question has been answered, or is void: the next may be asked. A subscription that need
    /// not ask any more takes no place.
    pub(super) fn next_turn(&mut self, cx: &mut ReadCx<'_>) {
        while let Some(uid) = self.turns.users().into_iter().find(|uid| self.has_place(cx, *uid))
            && let Some((client, id)) = self.turns.take(uid)
        {
            self.catch_up_again(cx, Requester::Subscription(client, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_take_turns() {
        let mut turns = HistoryTurns::default();
        let of = |client, id| (ClientId(client), SubscriptionId(id));
        for id in 0..100 {
            turns.wait(1000, of(1, id));
            turns.wait(1000, of(1, id));
        }
        turns.wait(1001, of(2, 0));
        turns.wait(1002, of(3, 0));
        turns.remove(1002, of(3, 0));
        let mut order = Vec::new();
        while let Some(uid) = turns.users().first().copied() {
            order.extend(turns.take(uid).map(|_| uid));
        }
        assert_eq!(order[..3], [1000, 1001, 1000]);
        assert_eq!((order.len(), turns.waiting.len()), (101, 0));
    }

    #[test]
    fn links_take_turns_at_the_disk() {
        let mut turns = DiskTurns::default();
        for id in 0..100 {
            turns.push(Some(LinkId(1)), id);
        }
        turns.push(Some(LinkId(2)), 100);
        turns.push(None, 101);
        assert_eq!(turns.len(), 102);
        let order: Vec<u64> = std::iter::from_fn(|| turns.pop()).collect();
        assert_eq!((&order[..5], order.len()), (&[0, 100, 101, 1, 2][..], 102));
    }
}
