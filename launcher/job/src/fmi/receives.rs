//! The receives of a rank: posted, and complete but not waited for. Pure.
//!
//! Each has a number that is never used again. A recovery cancels all of them.

use super::FmiError;
use crate::frame::Class;
use crate::inbox::{Matched, Pattern};
use crate::limits;
use std::collections::BTreeMap;

/// A message that a receive has taken; `from` is a rank of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) from: u32,
    pub(super) tag: u32,
    pub(super) payload: Vec<u8>,
}

#[derive(Debug)]
enum Receive {
    Posted(Pattern),
    Complete(Class, Received),
}

#[derive(Debug, Default)]
pub(super) struct Receives {
    last: u64,
    /// The highest that was ever given: the numbers of a prologue that is replayed are below it.
    highest: u64,
    open: BTreeMap<u64, Receive>,
}

/// The state of a receive that the program waits for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Complete(Received),
    /// All that are posted, in order, and which of them it is.
    Posted(Vec<Pattern>, usize),
}

impl Receives {
    /// A number for a receive that needs no posting.
    pub(super) fn number(&mut self) -> u64 {
        self.last += 1;
        self.highest = self.highest.max(self.last);
        self.last
    }

    pub(super) fn post(&mut self, pattern: Pattern) -> Result<u64, FmiError> {
        if self.open.len() >= limits::RECEIVES_MAX {
            let max = limits::RECEIVES_MAX;
            return Err(FmiError::Full(format!("{max} receives wait: wait for them first")));
        }
        let number = self.number();
        self.open.insert(number, Receive::Posted(pattern));
        Ok(number)
    }

    /// What the program that waits for a receive does; it takes one that is complete.
    pub(super) fn want(&mut self, number: u64) -> Result<Wanted, FmiError> {
        match self.open.get(&number) {
            None if number <= self.highest && number > 0 => return Err(FmiError::Cancelled),
            None => return Err(FmiError::Invalid(format!("there is no request {number}"))),
            Some(Receive::Complete(..)) => {}
            Some(Receive::Posted(_)) => {
                let posted = self.posted();
                let at = posted.iter().position(|(open, _)| *open == number).unwrap_or_default();
                return Ok(Wanted::Posted(posted.into_iter().map(|(_, p)| p).collect(), at));
            }
        }
        match self.open.remove(&number) {
            Some(Receive::Complete(_, received)) => Ok(Wanted::Complete(received)),
            _ => Err(FmiError::Cancelled),
        }
    }

    /// All that are posted, in order, and which of them these are.
    pub(super) fn places(&self, numbers: &[u64]) -> (Vec<Pattern>, Vec<usize>) {
        let posted = self.posted();
        let place = |number: &u64| posted.binary_search_by_key(number, |(open, _)| *open).ok();
        let places = numbers.iter().filter_map(place).collect();
        (posted.into_iter().map(|(_, pattern)| pattern).collect(), places)
    }

    /// Whether the message of a receive is there.
    pub(super) fn is_complete(&self, number: u64) -> bool {
        matches!(self.open.get(&number), Some(Receive::Complete(..)))
    }

    /// Messages for the posted receives, as [`Receives::want`] gave them.
    pub(super) fn complete(&mut self, matched: Vec<Matched>) {
        let posted = self.posted();
        for Matched { posted: at, from, tag, payload } in matched {
            if let Some((number, pattern)) = posted.get(at) {
                let received = Received { from, tag, payload };
                self.open.insert(*number, Receive::Complete(pattern.class, received));
            }
        }
    }

    /// A receive that a log has answered, or that the program takes back.
    pub(super) fn forget(&mut self, number: u64) {
        self.open.remove(&number);
    }

    /// The number of the last one.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    pub(super) fn is_open(&self, number: u64) -> bool {
        self.open.contains_key(&number)
    }

    /// Whether a receive of that class is posted, or complete and not waited for.
    pub(super) fn has(&self, class: Class) -> bool {
        self.open.values().any(|receive| match receive {
            Receive::Posted(pattern) => pattern.class == class,
            Receive::Complete(of, _) => *of == class,
        })
    }

    /// The program begins again where this was the last number.
    pub(super) fn rewind(&mut self, last: u64) {
        self.open.clear();
        self.last = last;
    }

    /// Nothing that was posted will come. `last` is the last number that the program may know from
    /// its image.
    pub(super) fn cancel(&mut self, last: u64) {
        self.open.clear();
        self.highest = self.highest.max(last);
        self.last = self.highest;
    }

    fn posted(&self) -> Vec<(u64, Pattern)> {
        let posted = self.open.iter().filter_map(|(number, receive)| match receive {
            Receive::Posted(pattern) => Some((*number, *pattern)),
            Receive::Complete(..) => None,
        });
        posted.collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ANY: Pattern = Pattern { from: None, class: Class::Within(0), tag: None };

    #[test]
    fn a_receive_is_taken_once_and_the_others_keep_their_messages() {
        let mut receives = Receives::default();
        let (first, second) = (receives.post(ANY).unwrap(), receives.post(ANY).unwrap());
        assert_eq!(receives.want(second).unwrap(), Wanted::Posted(vec![ANY; 2], 1));
        let matched = |posted, byte| Matched { posted, from: 3, tag: 4, payload: vec![byte] };
        receives.complete(vec![matched(0, 1), matched(1, 2)]);
        let took = |byte| Wanted::Complete(Received { from: 3, tag: 4, payload: vec![byte] });
        assert_eq!(receives.want(second).unwrap(), took(2));
        assert_eq!(receives.want(first).unwrap(), took(1));
        assert!(matches!(receives.want(first), Err(FmiError::Cancelled)));
        assert!(matches!(receives.want(9), Err(FmiError::Invalid(_))));
    }

    #[test]
    fn a_recovery_cancels_what_was_posted_and_what_was_complete() {
        let mut receives = Receives::default();
        let (one, other) = (receives.post(ANY).unwrap(), receives.post(ANY).unwrap());
        receives.complete(vec![Matched { posted: 0, from: 0, tag: 0, payload: Vec::new() }]);
        receives.cancel(7);
        for number in [one, other] {
            assert!(matches!(receives.want(number), Err(FmiError::Cancelled)));
        }
        assert!(matches!(receives.want(7), Err(FmiError::Cancelled)), "of the process before");
        assert_eq!(receives.post(ANY).unwrap(), 8, "numbers are not used again");
    }

    #[test]
    fn numbers_are_not_used_again_behind_a_point_of_restart() {
        let mut receives = Receives::default();
        let (_, before) = (receives.number(), receives.post(ANY).unwrap());
        receives.rewind(0);
        assert_eq!(receives.number(), 1, "the numbers of the log");
        receives.cancel(1);
        assert!(matches!(receives.want(before), Err(FmiError::Cancelled)));
        assert_eq!(receives.post(ANY).unwrap(), before + 1);
    }

    #[test]
    fn a_communicator_has_receives_until_they_are_waited_for_or_taken_back() {
        let mut receives = Receives::default();
        let (one, other) = (receives.post(ANY).unwrap(), receives.post(ANY).unwrap());
        assert!(receives.has(ANY.class) && !receives.has(Class::Within(1)));
        receives.complete(vec![Matched { posted: 0, from: 0, tag: 0, payload: Vec::new() }]);
        receives.forget(other);
        assert!(receives.has(ANY.class), "it is complete");
        receives.want(one).unwrap();
        assert!(!receives.has(ANY.class));
    }

    #[test]
    fn a_receive_beyond_the_limit_is_refused() {
        let mut receives = Receives::default();
        for _ in 0..limits::RECEIVES_MAX {
            receives.post(ANY).unwrap();
        }
        assert!(matches!(receives.post(ANY), Err(FmiError::Full(_))));
    }
}
