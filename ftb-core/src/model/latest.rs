//! How far a program has read of each publisher. This keeps the events of a publisher in order at
//! the last hop.
//!
//! A publisher numbers its events. Every agent sends them in that order, and so does the log. One
//! case breaks the order: a part of the cluster brings back events that were lost to the others
//! (docs/protocol.md, "Order"). Such events come behind newer ones of their publisher, and a
//! program that asks here drops them.
//!
//! Responsible for: whether an event is newer than all events of its publisher that were delivered.
//! Not responsible for: reporting one that is not.

use crate::ident::{EventId, PublisherId};
use crate::numbers::PublisherSeq;
use std::collections::BTreeMap;

/// Publishers that are remembered for certain, the latest first; at most twice as many, about 50
/// bytes each.
pub const PUBLISHERS_MAX: usize = 16_384;

/// The newest event of each publisher that was given. Nothing yet by default.
#[derive(Clone, Debug, Default)]
pub struct Latest {
    /// The last event: most follow one of their own publisher.
    last: Option<EventId>,
    /// Those that were heard of since the others grew old.
    young: BTreeMap<PublisherId, PublisherSeq>,
    old: BTreeMap<PublisherId, PublisherSeq>,
}

impl Latest {
    /// Notes an event that is to be given; false where it, or a newer one of its publisher, was
    /// given before: then it is not to be.
    pub fn advance(&mut self, id: EventId) -> bool {
        if let Some(last) = &mut self.last
            && last.publisher == id.publisher
        {
            let newer = id.seq > last.seq;
            last.seq = last.seq.max(id.seq);
            return newer;
        }
        let known = self.young.get(&id.publisher).or_else(|| self.old.get(&id.publisher)).copied();
        let newest = EventId { seq: known.unwrap_or(id.seq).max(id.seq), ..id };
        if let Some(EventId { publisher, seq }) = self.last.replace(newest) {
            self.young.insert(publisher, seq);
        }
        if self.young.len() >= PUBLISHERS_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        known.is_none_or(|known| id.seq > known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(token: u64, seq: u64) -> EventId {
        EventId { publisher: PublisherId { account: 1, token }, seq: seq.into() }
    }

    #[test]
    fn each_publisher_only_goes_forward() {
        let mut latest = Latest::default();
        for (token, seq, newer) in [
            (1, 5, true),
            (1, 5, false),
            (2, 1, true),
            (1, 4, false),
            (1, 5, false),
            (1, 6, true),
            (2, 2, true),
            (1, 6, false),
            (2, 1, false),
            (2, 3, true),
        ] {
            assert_eq!(latest.advance(id(token, seq)), newer, "{seq} of {token}");
        }
    }

    #[test]
    fn those_heard_of_last_are_remembered_and_no_more_than_the_bound() {
        let mut latest = Latest::default();
        let many = 3 * PUBLISHERS_MAX as u64;
        for token in 0..many {
            assert!(latest.advance(id(token, 9)));
            assert!(!latest.advance(id(0, 9)), "who speaks all the time is never forgotten");
        }
        assert!(latest.young.len() + latest.old.len() <= 2 * PUBLISHERS_MAX);
        for token in many - PUBLISHERS_MAX as u64 / 2..many {
            assert!(!latest.advance(id(token, 8)));
        }
        assert!(latest.advance(id(1, 1)), "long silent");
    }
}
