//! Which events were delivered here: by themselves, and in folds of groups. A subscription gets
//! either the members of groups or the folds, so each has dedup ranges of its own.

use crate::ranges::PublisherRanges;
use crate::run::Run;
use crate::sealed::SealedRef;

/// What was delivered.
#[derive(Clone)]
pub(super) struct Seen {
    events: PublisherRanges,
    folded: PublisherRanges,
}

impl Seen {
    /// Nothing yet; at most that many publishers are remembered, of each kind.
    pub(super) fn new(publishers_max: usize) -> Self {
        let nothing = PublisherRanges::new(publishers_max);
        Self { events: nothing.clone(), folded: nothing }
    }

    /// Notes events; gives the places of those that were noted before. A fold was if all its
    /// members were; the client library knows a part of it.
    pub(super) fn insert_run(&mut self, run: &Run) -> Vec<usize> {
        if !run.may_be_of_group() {
            return self.events.insert_run(run);
        }
        let mut known = Vec::new();
        for (place, event) in run.iter().enumerate() {
            if !self.insert(event) {
                known.push(place);
            }
        }
        known
    }

    fn insert(&mut self, event: SealedRef<'_>) -> bool {
        let Some(group) = event.group() else {
            return self.events.mark(event.id(), event.head().covers);
        };
        let mut is_new = false;
        for members in group.members() {
            is_new |= self.folded.insert_range(members.publisher, members.first, members.last);
        }
        is_new
    }

    /// Whether an event was noted.
    pub(super) fn contains(&self, event: SealedRef<'_>) -> bool {
        match event.group() {
            None => self.events.contains(event.id()),
            Some(group) => {
                let mut ids = group.members().into_iter().flat_map(|members| members.ids());
                ids.all(|id| self.folded.contains(id))
            }
        }
    }
}
