//! Which events a subscription had: the last ones by their ids, and the newest of each publisher.
//!
//! Two parts of the cluster may become one during an interruption. Then events that the
//! subscription had can arrive again at other positions: their ids identify them. Events that it
//! did not have can arrive behind newer ones of their publishers: they are dropped, and a gap
//! reports them. The program holds this state, because an agent that starts again has lost it.

use ftb_core::latest::Latest;
use ftb_core::node::api::{Gap, GapReason};
use ftb_core::{EventId, Position, PublisherId, Spaces};
use ftb_proto::event::{EventBatch, EventView};
use std::collections::{HashSet, VecDeque};

/// Most ids of delivered events that are kept.
const RECENT_IDS_MAX: usize = 16 * 1024;

/// Consecutive ids of one publisher.
#[derive(Clone, Copy, Debug)]
struct IdRange {
    publisher: PublisherId,
    first_seq: u64,
    count: u64,
}

/// The ids of the last deliveries.
#[derive(Default)]
pub(crate) struct Recent {
    ranges: VecDeque<IdRange>,
    count: usize,
    /// What may arrive again: what was delivered before the last interruption, and since. Empty
    /// without an interruption.
    suspects: HashSet<EventId>,
    /// How many more events are compared with them.
    checks_left: usize,
    /// The newest of each publisher.
    latest: Latest,
}

/// What was removed from a delivery.
#[derive(Debug, Default)]
pub(crate) struct Sifted {
    /// Number of events that had arrived before.
    pub(crate) copies: usize,
    /// Events that arrived behind newer ones of their publishers.
    pub(crate) late: Option<Gap>,
}

impl Recent {
    /// After an interruption: what was delivered before may arrive again.
    pub(crate) fn suspect(&mut self) {
        let ids = |range: &IdRange| {
            let IdRange { publisher, first_seq, count } = *range;
            let seqs = (0..count).map(move |offset| first_seq.wrapping_add(offset));
            seqs.map(move |seq| EventId { publisher, seq: seq.into() })
        };
        self.suspects = self.ranges.iter().flat_map(ids).collect();
        self.checks_left = RECENT_IDS_MAX;
    }

    /// Removes what was delivered before and, unless `as_logged`, what arrives behind newer events
    /// of its publisher. Notes the rest.
    pub(crate) fn sift(&mut self, events: &mut EventBatch, as_logged: bool) -> Sifted {
        let before = events.len();
        if self.checks_left > 0 {
            events.retain(|id| self.is_new(id));
        }
        let copies = before - events.len();
        let mut late = None;
        let mut late_ids = HashSet::new();
        for event in events.iter() {
            for id in event.ids() {
                self.note(id);
                if !self.latest.advance(id) && !as_logged {
                    add_late(&mut late, &event);
                    late_ids.insert(id);
                }
            }
        }
        if late.is_some() {
            events.retain(|id| !late_ids.contains(&id));
        }
        Sifted { copies, late }
    }

    fn is_new(&mut self, id: EventId) -> bool {
        if self.checks_left == 0 {
            return true;
        }
        if !self.suspects.insert(id) {
            return false;
        }
        self.checks_left -= 1;
        if self.checks_left == 0 {
            self.suspects = HashSet::new();
        }
        true
    }

    /// Notes an id and drops the oldest one beyond the limit.
    fn note(&mut self, id: EventId) {
        match self.ranges.back_mut() {
            Some(range)
                if range.publisher == id.publisher
                    && range.first_seq.checked_add(range.count) == Some(id.seq.get()) =>
            {
                range.count += 1;
            }
            _ => {
                let EventId { publisher, seq } = id;
                self.ranges.push_back(IdRange { publisher, first_seq: seq.get(), count: 1 });
            }
        }
        self.count += 1;
        if self.count > RECENT_IDS_MAX
            && let Some(oldest) = self.ranges.front_mut()
        {
            self.count -= 1;
            oldest.first_seq = oldest.first_seq.wrapping_add(1);
            oldest.count -= 1;
            if oldest.count == 0 {
                self.ranges.pop_front();
            }
        }
    }
}

/// Adds an event to the gap that reports late ones.
fn add_late(late: &mut Option<Gap>, event: &EventView<'_>) {
    let spaces = Spaces::of(event.space());
    let (until, severity) = (event.position(), event.severity());
    let gap = late.get_or_insert_with(|| Gap {
        after: Position { index: until.index.before(), ..until },
        until,
        reason: GapReason::Late,
        count: Some(0),
        severity_max: None,
        spaces: spaces.clone(),
    });
    gap.until = until;
    gap.count = gap.count.map(|count| count + 1);
    gap.severity_max = gap.severity_max.max(Some(severity));
    gap.spaces = gap.spaces.joined(&spaces);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(token: u64, seq: u64) -> EventId {
        EventId { publisher: PublisherId { account: 1, token }, seq: seq.into() }
    }

    #[test]
    fn the_last_ids_are_known_and_no_others() {
        let mut recent = Recent::default();
        let many = RECENT_IDS_MAX as u64;
        recent.note(id(1, 1));
        for seq in 1..=many - 1 {
            recent.note(id(2, seq));
        }
        assert_eq!((recent.count, recent.ranges.len()), (RECENT_IDS_MAX, 2));
        recent.note(id(3, 9));
        recent.note(id(3, u64::MAX));
        recent.note(id(3, 0));
        assert_eq!((recent.count, recent.ranges.len()), (RECENT_IDS_MAX, 4));
        recent.suspect();
        assert!(recent.is_new(id(1, 1)) && recent.is_new(id(2, 2)));
        assert!(!recent.is_new(id(2, 3)) && !recent.is_new(id(3, 9)));
        assert!(!recent.is_new(id(1, 1)), "it has come since");
    }

    #[test]
    fn an_interruption_is_forgotten_after_as_many_events() {
        let mut recent = Recent::default();
        recent.note(id(1, 1));
        recent.suspect();
        for seq in 0..RECENT_IDS_MAX as u64 {
            assert!(recent.is_new(id(2, seq)));
        }
        assert!(recent.is_new(id(1, 1)));
        assert!(recent.suspects.is_empty());
    }
}
