//! Which events a subscription has had: lately by their ids, of each publisher the newest.
//!
//! When a subscription goes on after an interruption in which two parts of the cluster became one,
//! events that it had can come again at other positions: these it knows by their ids. And events that it
//! has not had can come behind newer ones of their publishers: they are not given, a gap tells them. It
//! is held here, in the program, and not at its agent: an agent that starts again has forgotten it.

use ftb_core::latest::Latest;
use ftb_core::node::api::{Gap, GapReason};
use ftb_core::{EventId, Position, PublisherId, Spaces};
use ftb_proto::event::{EventBatch, EventView};
use std::collections::{HashSet, VecDeque};

/// How many ids of delivered events are remembered.
const RECENT_IDS_MAX: usize = 16 * 1024;

/// Ids of one publisher that follow each other.
#[derive(Clone, Copy, Debug)]
struct Run {
    publisher: PublisherId,
    first_seq: u64,
    count: usize,
}

/// The ids of the last deliveries.
#[derive(Default)]
pub(crate) struct Recent {
    /// Publishers mostly come in runs, so this is far shorter than the ids are many.
    runs: VecDeque<Run>,
    count: usize,
    /// What may come again: what was delivered before the last interruption, and since. Empty as
    /// long as nothing was interrupted.
    suspects: HashSet<EventId>,
    /// For how many more events that is looked at.
    checks_left: usize,
    /// The newest of each publisher.
    latest: Latest,
}

/// What was taken out of a delivery.
#[derive(Debug, Default)]
pub(crate) struct Sifted {
    /// How many had come before.
    pub(crate) copies: usize,
    /// Those that came behind newer ones of their publishers.
    pub(crate) late: Option<Gap>,
}

impl Recent {
    /// An interruption: what was delivered before may come again.
    pub(crate) fn suspect(&mut self) {
        let ids = |run: &Run| {
            let Run { publisher, first_seq, count } = *run;
            let seqs = (0..count as u64).map(move |offset| first_seq.wrapping_add(offset));
            seqs.map(move |seq| EventId { publisher, seq })
        };
        self.suspects = self.runs.iter().flat_map(ids).collect();
        self.checks_left = RECENT_IDS_MAX;
    }

    /// Takes out what was delivered before and, unless all is wanted `as_logged`, what comes behind
    /// newer events of its publisher. Remembers the rest.
    pub(crate) fn sift(&mut self, events: &mut EventBatch, as_logged: bool) -> Sifted {
        let before = events.len();
        if self.checks_left > 0 {
            events.retain(|id| self.is_new(id));
        }
        let copies = before - events.len();
        let mut late = None;
        let mut late_ids = HashSet::new();
        let mut place = 0;
        for (first, count) in events.id_runs() {
            self.note(first, count);
            let newest = EventId { seq: first.seq + (count as u64 - 1), ..first };
            // Behind the first all are newer.
            if self.latest.advance(first) || as_logged {
                self.latest.advance(newest);
            } else {
                for event in events.iter().skip(place).take(count) {
                    if event.id() == first || !self.latest.advance(event.id()) {
                        add_late(&mut late, &event);
                        late_ids.insert(event.id());
                    }
                }
            }
            place += count;
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

    /// So many ids that follow each other, from the first on.
    fn note(&mut self, first: EventId, count: usize) {
        match self.runs.back_mut() {
            Some(run)
                if run.publisher == first.publisher
                    && run.first_seq.checked_add(run.count as u64) == Some(first.seq) =>
            {
                run.count += count;
            }
            _ => {
                let run = Run { publisher: first.publisher, first_seq: first.seq, count };
                self.runs.push_back(run);
            }
        }
        self.count += count;
        self.forget(self.count.saturating_sub(RECENT_IDS_MAX));
    }

    /// Forgets the oldest.
    fn forget(&mut self, mut count: usize) {
        self.count -= count;
        while count > 0 {
            let Some(oldest) = self.runs.front_mut() else { return };
            let forgotten = oldest.count.min(count);
            oldest.first_seq = oldest.first_seq.wrapping_add(forgotten as u64);
            oldest.count -= forgotten;
            count -= forgotten;
            if oldest.count == 0 {
                self.runs.pop_front();
            }
        }
    }
}

/// Adds an event to the hole that tells of late ones.
fn add_late(late: &mut Option<Gap>, event: &EventView<'_>) {
    let spaces = Spaces::of(event.space());
    let (until, severity) = (event.position(), event.severity());
    let gap = late.get_or_insert_with(|| Gap {
        after: Position { index: until.index.saturating_sub(1), ..until },
        until,
        reason: GapReason::Late,
        count: 0,
        severity_max: None,
        spaces: spaces.clone(),
    });
    gap.until = until;
    gap.count += 1;
    gap.severity_max = gap.severity_max.max(Some(severity));
    gap.spaces = gap.spaces.joined(&spaces);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(token: u64, seq: u64) -> EventId {
        EventId { publisher: PublisherId { account: 1, token }, seq }
    }

    #[test]
    fn the_last_ids_are_known_and_no_others() {
        let mut recent = Recent::default();
        let many = RECENT_IDS_MAX as u64;
        recent.note(id(1, 1), 1);
        for seq in 1..=many - 1 {
            recent.note(id(2, seq), 1);
        }
        assert_eq!((recent.count, recent.runs.len()), (RECENT_IDS_MAX, 2));
        recent.note(id(3, 9), 1);
        recent.note(id(3, u64::MAX), 1);
        recent.note(id(3, 0), 1);
        assert_eq!((recent.count, recent.runs.len()), (RECENT_IDS_MAX, 4));
        recent.suspect();
        assert!(recent.is_new(id(1, 1)) && recent.is_new(id(2, 2)));
        assert!(!recent.is_new(id(2, 3)) && !recent.is_new(id(3, 9)));
        assert!(!recent.is_new(id(1, 1)), "it has come since");
    }

    #[test]
    fn an_interruption_is_forgotten_after_as_many_events() {
        let mut recent = Recent::default();
        recent.note(id(1, 1), 1);
        recent.suspect();
        for seq in 0..RECENT_IDS_MAX as u64 {
            assert!(recent.is_new(id(2, seq)));
        }
        assert!(recent.is_new(id(1, 1)));
        assert!(recent.suspects.is_empty());
    }
}
