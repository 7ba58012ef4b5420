//! Proves for one subscriber that it got every message of every publisher once and in order.

use crate::message::Head;
use serde::{Deserialize, Serialize};

/// What one subscriber has seen.
#[derive(Debug)]
pub(crate) struct Checker {
    /// For each publisher the highest sequence seen.
    last: Vec<u64>,
    faults: Faults,
}

/// What went wrong in a run. A rate counts only when all of these are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Faults {
    /// Messages that never came.
    pub(crate) missing: u64,
    /// Messages that came twice or behind a later one.
    pub(crate) disordered: u64,
    /// Messages that no publisher of this run sent.
    pub(crate) foreign: u64,
}

impl Faults {
    /// Nothing went wrong.
    pub(crate) fn is_clean(&self) -> bool {
        *self == Self::default()
    }

    /// Adds what another subscriber found.
    pub(crate) fn add(&mut self, other: Self) {
        self.missing += other.missing;
        self.disordered += other.disordered;
        self.foreign += other.foreign;
    }
}

impl Checker {
    /// Nothing seen yet of that many publishers.
    pub(crate) fn new(publishers: usize) -> Self {
        Self { last: vec![0; publishers], faults: Faults::default() }
    }

    /// Notes one message and gives its head; `None` for one that is not of this run.
    pub(crate) fn see(&mut self, message: &[u8]) -> Option<Head> {
        let head = Head::read(message);
        let known = head.and_then(|head| {
            let last = self.last.get_mut(usize::try_from(head.publisher).ok()?)?;
            Some((head, last))
        });
        let Some((head, last)) = known else {
            self.faults.foreign += 1;
            return None;
        };
        if head.seq > *last {
            self.faults.missing += head.seq - *last - 1;
            *last = head.seq;
        } else {
            self.faults.disordered += 1;
        }
        Some(head)
    }

    /// The verdict, once it is known how much each publisher sent.
    pub(crate) fn finish(mut self, sent: &[u64]) -> Faults {
        for (last, sent) in self.last.iter().zip(sent) {
            self.faults.missing += sent.saturating_sub(*last);
        }
        self.faults
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn faults(publishers: usize, seen: &[(u32, u64)], sent: &[u64]) -> Faults {
        let mut checker = Checker::new(publishers);
        for &(publisher, seq) in seen {
            let mut message = [0; 20];
            Head { publisher, seq, stamp_ns: 0 }.write(&mut message);
            checker.see(&message);
        }
        checker.finish(sent)
    }

    #[test]
    fn a_full_run_is_clean() {
        assert!(faults(2, &[(0, 1), (1, 1), (0, 2), (1, 2)], &[2, 2]).is_clean());
    }

    #[test]
    fn a_hole_and_a_lost_tail_are_missing() {
        assert_eq!(faults(1, &[(0, 1), (0, 4)], &[6]).missing, 4);
    }

    #[test]
    fn a_copy_and_a_late_message_are_disorder() {
        let faults = faults(1, &[(0, 1), (0, 1), (0, 3), (0, 2)], &[3]);
        assert_eq!((faults.disordered, faults.missing), (2, 1));
    }

    #[test]
    fn a_stranger_is_foreign() {
        assert_eq!(faults(1, &[(0, 1), (5, 1)], &[1]).foreign, 1);
        let mut checker = Checker::new(1);
        assert_eq!(checker.see(b"short"), None);
        assert_eq!(checker.finish(&[0]).foreign, 1);
    }
}
