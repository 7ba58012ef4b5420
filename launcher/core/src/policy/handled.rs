//! How far the events of each event space are handled, for the launcher that comes next: it reads
//! on from there, and acts on nothing that was handled.
//!
//! A position is passed when nothing before it waits in the policy. Meanwhile later events are
//! known by their ids.

use super::report::EventSource;
use ftb_core::{EventId, Position};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Most events of a space that are known by their ids. If more are handled while one waits, the
/// position passes it: a launcher that is killed in that time loses what waits.
const IDS_MAX: usize = 1024;

/// What the policy has handled, by event space.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandledEvents(BTreeMap<String, OfSpace>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct OfSpace {
    /// Everything up to here is handled.
    #[serde(with = "as_text")]
    after: Position,
    /// What has been read.
    #[serde(with = "as_text")]
    newest: Position,
    /// The last events that were handled; the oldest first.
    ids: VecDeque<HandledId>,
    /// How many of them are behind `after`.
    beyond: usize,
    /// Events whose actions are put off, as many as the policy puts off at most. The next launcher
    /// reads them again.
    #[serde(skip)]
    waiting: Vec<HandledId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct HandledId(#[serde(with = "as_text")] EventId);

/// Positions and ids as texts, as everywhere else.
mod as_text {
    use core::fmt::Display;
    use core::str::FromStr;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        value: &impl Display,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl HandledEvents {
    /// Where to read on; `None`: nothing was read.
    pub fn after(&self, space: &str) -> Option<Position> {
        self.0.get(space).map(|of| of.after)
    }

    /// The events of a space are read from here on, or again from where it is handled.
    pub fn begin(&mut self, space: &str, position: Position) {
        let of = self.of(space, position);
        of.newest = of.after;
    }

    fn of(&mut self, space: &str, position: Position) -> &mut OfSpace {
        self.0.entry(space.to_owned()).or_insert_with(|| {
            let (ids, waiting) = (VecDeque::new(), Vec::new());
            OfSpace { after: position, newest: position, ids, beyond: 0, waiting }
        })
    }

    /// Whether the event was handled before.
    pub fn has(&self, event: &EventSource) -> bool {
        self.0.get(&event.space).is_some_and(|of| of.ids.contains(&HandledId(event.id)))
    }

    /// An event was given to the policy. `waits`: its action is put off. `all_done`: nothing waits.
    pub fn on_event(&mut self, event: &EventSource, waits: bool, all_done: bool) {
        let of = self.of(&event.space, event.position);
        of.newest = event.position;
        match waits {
            true => of.waiting.push(HandledId(event.id)),
            false => of.know(HandledId(event.id)),
        }
        if all_done || of.beyond > IDS_MAX {
            of.pass();
        }
    }

    /// Some actions that were put off are taken, or not needed any more. `waits`: which still wait.
    pub fn look(&mut self, waits: impl Fn(EventId) -> bool) {
        for of in self.0.values_mut() {
            let (waiting, done) =
                core::mem::take(&mut of.waiting).into_iter().partition(|of| waits(of.0));
            of.waiting = waiting;
            let done: Vec<HandledId> = done;
            done.into_iter().for_each(|id| of.know(id));
            if of.beyond > IDS_MAX {
                of.pass();
            }
        }
    }

    /// No event of the space follows up to this position.
    pub fn on_position(&mut self, space: &str, position: Position, all_done: bool) {
        let of = self.of(space, position);
        of.newest = position;
        if all_done {
            of.pass();
        }
    }

    /// Nothing waits in the policy any more.
    pub fn settle(&mut self) {
        self.0.values_mut().for_each(OfSpace::pass);
    }
}

impl OfSpace {
    fn know(&mut self, id: HandledId) {
        self.ids.push_back(id);
        self.beyond += 1;
        if self.ids.len() > IDS_MAX {
            self.ids.pop_front();
        }
    }

    fn pass(&mut self) {
        (self.after, self.beyond) = (self.newest, 0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ftb_core::{Epoch, OriginId, PublisherId};

    const SPACE: &str = "ftb.mpi.mig_trigger";

    fn at(index: u64) -> Position {
        Position { epoch: Epoch { number: 3, root: OriginId(7) }, index: index.into() }
    }

    fn event(number: u64) -> EventSource {
        let id = EventId { publisher: PublisherId { account: 1, token: 2 }, seq: number.into() };
        EventSource { space: SPACE.to_owned(), id, position: at(number) }
    }

    #[test]
    fn the_next_launcher_reads_on_after_what_was_handled_and_not_after_what_waits() {
        let mut handled = HandledEvents::default();
        assert_eq!(handled.after(SPACE), None);
        handled.begin(SPACE, at(4));
        handled.on_event(&event(5), false, true);
        handled.on_event(&event(6), true, false);
        handled.on_event(&event(7), false, false);
        handled.on_position(SPACE, at(9), false);
        let text = serde_json::to_string(&handled).unwrap();
        let mut next: HandledEvents = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&next).unwrap(), text);
        assert_eq!(next.after(SPACE), Some(at(5)), "event 6 waits");
        next.begin(SPACE, at(100));
        next.settle();
        assert_eq!(next.after(SPACE), Some(at(5)), "event 6 is read again");
        let known = [5, 6, 7].map(|number| next.has(&event(number)));
        assert_eq!(known, [true, false, true]);
        handled.settle();
        assert_eq!(handled.after(SPACE), Some(at(9)));
    }

    #[test]
    fn an_action_that_was_put_off_and_taken_is_known_while_another_waits() {
        let mut handled = HandledEvents::default();
        handled.begin(SPACE, at(4));
        handled.on_event(&event(5), true, false);
        handled.on_event(&event(6), true, false);
        handled.look(|id| id == event(6).id);
        let mut next: HandledEvents =
            serde_json::from_str(&serde_json::to_string(&handled).unwrap()).unwrap();
        assert_eq!(next.after(SPACE), Some(at(4)), "event 6 waits");
        next.look(|_| false);
        let known = [5, 6].map(|number| next.has(&event(number)));
        assert_eq!(known, [true, false]);
        handled.look(|_| false);
        assert!(handled.has(&event(6)));
    }

    /// As many actions are put off at once, and all but the first are taken together.
    #[test]
    fn actions_that_were_put_off_and_taken_at_once_stay_within_the_limit() {
        let mut handled = HandledEvents::default();
        handled.begin(SPACE, at(0));
        let last = 2 + IDS_MAX as u64;
        (1..=last).for_each(|number| handled.on_event(&event(number), true, false));
        handled.look(|id| id == event(1).id);
        assert_eq!(handled.after(SPACE), Some(at(last)));
        assert_eq!((handled.0[SPACE].ids.len(), handled.0[SPACE].beyond), (IDS_MAX, 0));
        assert_eq!(handled.0[SPACE].waiting, [HandledId(event(1).id)]);
        assert!(handled.has(&event(last)) && !handled.has(&event(1)));
    }

    #[test]
    fn one_event_that_waits_makes_it_remember_no_more_than_its_limit() {
        let mut handled = HandledEvents::default();
        handled.begin(SPACE, at(0));
        handled.on_event(&event(1), true, false);
        let last = 2 + IDS_MAX as u64;
        for number in 2..last {
            handled.on_event(&event(number), false, false);
            assert_eq!(handled.after(SPACE), Some(at(0)));
        }
        handled.on_event(&event(last), false, false);
        assert_eq!(handled.after(SPACE), Some(at(last)));
        assert_eq!(handled.0[SPACE].ids.len(), IDS_MAX);
    }
}
