//! The ring of steps that this agent remembers of traced events.
//!
//! Untraced events cost one comparison for each batch. Not responsible for: which events are traced
//! ([`Head::is_traced`](crate::sealed::Head)), and who may read a path.

use crate::frame::{Content, Item};
use crate::group::MemberIds;
use crate::ident::{EventId, PublisherId};
use crate::numbers::LogIndex;
use crate::run::Run;
use crate::sealed::SealedRef;
use crate::trace::{Hop, TraceStep};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Bytes of the ring when it is full; the oldest steps go first.
pub const TRACE_BYTES_MAX: usize = 192 * 1024;
/// Most steps in the ring.
const STEPS_MAX: usize = TRACE_BYTES_MAX / size_of::<(EventId, Hop)>();

/// The steps of traced events, oldest first.
#[derive(Default)]
pub(crate) struct TraceRing {
    steps: VecDeque<(EventId, Hop)>,
    /// The time of the newest step that was dropped; 0: none was.
    dropped_ns: u64,
}

impl TraceRing {
    /// A step of one event.
    pub(crate) fn note(&mut self, at_ns: u64, event: SealedRef<'_>, step: TraceStep, number: u64) {
        if !event.is_traced() {
            return;
        }
        self.push(event.id(), Hop { step, at_ns, number });
    }

    fn push(&mut self, id: EventId, hop: Hop) {
        if self.steps.len() >= STEPS_MAX
            && let Some((_, oldest)) = self.steps.pop_front()
        {
            self.dropped_ns = oldest.at_ns;
        }
        self.steps.push_back((id, hop));
    }

    /// A step of all events of a run.
    pub(crate) fn note_run(&mut self, at_ns: u64, run: &Run, step: TraceStep, number: u64) {
        if run.may_be_traced() {
            run.iter().for_each(|event| self.note(at_ns, event, step, number));
        }
    }

    /// A step of all events of an item of the log; the number is the index of each.
    pub(crate) fn note_indexed(&mut self, at_ns: u64, first: LogIndex, run: &Run, step: TraceStep) {
        if run.may_be_traced() {
            let events = run.iter().zip(first.get()..);
            events.for_each(|(event, index)| self.note(at_ns, event, step, index));
        }
    }

    /// A step of all events of these items.
    pub(crate) fn note_items(&mut self, at_ns: u64, items: &[Item], step: TraceStep, number: u64) {
        for item in items {
            if let Content::Events(run) = &item.content {
                self.note_run(at_ns, run, step, number);
            }
        }
    }

    /// Folds of groups were appended, the first of the run at this index: a step of each member
    /// that is remembered.
    pub(crate) fn note_folds(&mut self, at_ns: u64, first: LogIndex, run: &Run) {
        if !run.may_be_of_group() || self.steps.is_empty() {
            return;
        }
        for (event, index) in run.iter().zip(first.get()..) {
            let members = event.group().map(|group| group.members());
            let Some(members) = members else { continue };
            let mut ranges: BTreeMap<PublisherId, Vec<MemberIds>> = BTreeMap::new();
            members.into_iter().for_each(|of| ranges.entry(of.publisher).or_default().push(of));
            let is_member = |id: &EventId| {
                let of = ranges.get(&id.publisher);
                of.is_some_and(|of| of.iter().any(|ids| (ids.first..=ids.last).contains(&id.seq)))
            };
            let known = self.steps.iter().filter(|(_, hop)| hop.step == TraceStep::Logged);
            let known = known.map(|(id, _)| *id).filter(is_member);
            for id in known.collect::<BTreeSet<EventId>>() {
                self.push(id, Hop { step: TraceStep::Folded, at_ns, number: index });
            }
        }
    }

    /// The steps of an event, in order.
    pub(crate) fn of(&self, id: EventId) -> Vec<Hop> {
        self.steps.iter().filter(|(known, _)| *known == id).map(|(_, hop)| *hop).collect()
    }

    /// Since when no step was dropped, in Unix nanoseconds; 0: ever.
    pub(crate) fn since_ns(&self) -> u64 {
        self.dropped_ns
    }
}
