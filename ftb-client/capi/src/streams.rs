//! The subscriptions at the agent that feed one client.
//!
//! However many subscriptions a client has, one stream from the agent feeds them all, so that their
//! events stay in one order. When what is wanted changes, a stream with the new filter is opened
//! first; the one before goes on up to where the new one begins. What both bring in between is
//! recognised by its id. No I/O.

use ftb_client::{EventId, Position};
use std::collections::{HashSet, VecDeque};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// With more open ones than these, nothing is gained by one more that brings less. An agent allows
/// a client some hundreds, and a stream that is replaced may stay for seconds.
const MANY: usize = 8;
/// How many ids are remembered while more than one stream is open.
const IDS_MAX: usize = 16 * 1024;

/// What the agent said to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nothing yet.
    Waiting,
    /// Everything that matches from here on is delivered.
    Active,
    /// It will not have it.
    Refused,
}

/// A stream's own end of what it and its client say to each other.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) number: u64,
    pub(crate) filter: String,
    pub(crate) answer: watch::Sender<Answer>,
    /// Set: it ends behind this.
    pub(crate) until: watch::Receiver<Option<Position>>,
}

#[derive(Debug)]
struct Open {
    number: u64,
    filter: String,
    answer: watch::Receiver<Answer>,
    until: watch::Sender<Option<Position>>,
    task: AbortHandle,
    active: bool,
}

/// The open ones, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    open: Vec<Open>,
    last_number: u64,
    /// What was brought while more than one was open: another may bring it again.
    ids: HashSet<EventId>,
    ids_in_order: VecDeque<EventId>,
    /// The last position among them.
    ids_until: Option<Position>,
}

impl Streams {
    /// Sees to it that a stream with this filter is open, or none. `start` starts its task.
    pub(crate) fn want(&mut self, filter: Option<String>, start: impl FnOnce(Ends) -> AbortHandle) {
        let Some(filter) = filter else { return self.close() };
        if self.open.last().is_some_and(|last| last.filter == filter) {
            return;
        }
        self.last_number += 1;
        let number = self.last_number;
        let (answer, answered) = watch::channel(Answer::Waiting);
        let (until, ends) = watch::channel(None);
        let task = start(Ends { number, filter: filter.clone(), answer, until: ends });
        self.open.push(Open { number, filter, answer: answered, until, task, active: false });
    }

    /// Whether another stream should be opened only for more events.
    pub(crate) fn are_many(&self) -> bool {
        self.open.len() > MANY
    }

    /// What was said to the newest stream.
    pub(crate) fn answer(&self) -> Option<watch::Receiver<Answer>> {
        self.open.last().map(|last| last.answer.clone())
    }

    /// A stream is active, and brings everything behind that position. Whether it is still wanted.
    pub(crate) fn active(&mut self, number: u64, position: Position) -> bool {
        if self.open.iter().any(|other| other.number > number && other.active) {
            self.ended(number);
            return false;
        }
        self.open.retain(|older| {
            let keep = older.number >= number || older.active;
            if !keep {
                older.task.abort();
            }
            keep
        });
        for open in &mut self.open {
            if open.number < number {
                // An earlier end stands.
                open.until.send_if_modified(|until| {
                    let first = until.is_none();
                    if first {
                        *until = Some(position);
                    }
                    first
                });
            }
            open.active |= open.number == number;
        }
        true
    }

    /// A stream is over.
    pub(crate) fn ended(&mut self, number: u64) {
        self.open.retain(|open| open.number != number);
    }

    /// Whether an event that a stream brings was not brought by another already.
    pub(crate) fn is_new(&mut self, id: EventId, position: Position) -> bool {
        if self.open.len() <= 1 && self.ids.is_empty() {
            return true;
        }
        if self.ids.contains(&id) {
            return false;
        }
        if self.open.len() > 1 {
            self.remember(id, position);
        } else if self.ids_until.is_some_and(|until| position > until) {
            // The one that is left is in order: no copy comes any more.
            self.forget();
        }
        true
    }

    fn remember(&mut self, id: EventId, position: Position) {
        if self.ids_in_order.len() == IDS_MAX
            && let Some(oldest) = self.ids_in_order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        self.ids.insert(id);
        self.ids_in_order.push_back(id);
        self.ids_until = self.ids_until.max(Some(position));
    }

    fn forget(&mut self) {
        self.ids = HashSet::new();
        self.ids_in_order = VecDeque::new();
        self.ids_until = None;
    }

    /// Ends all.
    pub(crate) fn close(&mut self) {
        for open in self.open.drain(..) {
            open.task.abort();
        }
        self.forget();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ftb_client::PublisherId;

    fn id(seq: u64) -> EventId {
        EventId { publisher: PublisherId { account: 1, token: 1 }, seq: seq.into() }
    }

    fn at(index: u64) -> Position {
        Position { index: index.into(), ..Position::ZERO }
    }

    struct Fixture {
        runtime: tokio::runtime::Runtime,
        streams: Streams,
        ends: Vec<Ends>,
    }

    impl Fixture {
        fn new() -> Self {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            Self { runtime, streams: Streams::default(), ends: Vec::new() }
        }

        fn want(&mut self, filter: &str) {
            let (runtime, ends) = (&self.runtime, &mut self.ends);
            self.streams.want(Some(filter.to_owned()), |new| {
                ends.push(new);
                runtime.spawn(core::future::pending::<()>()).abort_handle()
            });
        }
    }

    #[test]
    fn the_old_stream_ends_where_the_new_one_begins() {
        let mut fixture = Fixture::new();
        fixture.want("a");
        fixture.want("a");
        assert_eq!(fixture.ends.len(), 1, "the same filter needs no new stream");
        assert!(fixture.streams.active(1, at(5)));
        fixture.want("a|b");
        for index in [8, 10, 11] {
            assert!(fixture.streams.is_new(id(index), at(index)));
        }
        assert_eq!(*fixture.ends[0].until.borrow(), None);
        // Active behind 9, and the old one has gone further already.
        assert!(fixture.streams.active(2, at(9)));
        assert_eq!(*fixture.ends[0].until.borrow(), Some(at(9)));
        assert!(fixture.streams.is_new(id(9), at(9)), "the first");
        assert!(!fixture.streams.is_new(id(9), at(9)));
        fixture.streams.ended(1);
        for index in [10, 11] {
            assert!(!fixture.streams.is_new(id(index), at(index)), "the old one brought it");
        }
        assert!(fixture.streams.is_new(id(12), at(12)));
        assert!(fixture.streams.ids.is_empty(), "the new one is past what the old one brought");
    }

    #[test]
    fn a_stream_that_waits_is_dropped_for_a_newer_one_that_is_active() {
        let mut fixture = Fixture::new();
        fixture.want("a");
        fixture.want("b");
        fixture.want("c");
        assert!(fixture.streams.active(2, at(1)));
        assert_eq!(fixture.streams.open.len(), 2, "the first never was active");
        assert!(fixture.streams.active(3, at(2)));
        assert!(!fixture.streams.active(2, at(3)), "too late");
        assert_eq!(fixture.streams.open.len(), 1);
        fixture.streams.want(None, |_| unreachable!("nothing is wanted"));
        assert!(fixture.streams.answer().is_none());
    }

    #[test]
    fn the_ids_are_bounded() {
        let mut fixture = Fixture::new();
        fixture.want("a");
        fixture.streams.active(1, at(1));
        fixture.want("b");
        for seq in 0..2 * IDS_MAX as u64 {
            assert!(fixture.streams.is_new(id(seq), at(seq)));
        }
        assert_eq!(
            (fixture.streams.ids.len(), fixture.streams.ids_in_order.len()),
            (IDS_MAX, IDS_MAX)
        );
    }
}
