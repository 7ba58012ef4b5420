//! Who waits for room in the buffer, and how many others may go before.
//!
//! Whoever finds room takes it, the first that looks: so nobody who publishes one event after the other is made to wait for
//! each, and all that wait look when room has come. But before the one that has waited longest as much goes as the buffer
//! holds, not more; then it is its turn, and all others wait for it, else one that needs much of the buffer would wait as
//! long as others come who need little. Publishing that never waits stands in no line.
//!
//! No I/O, no clock.

use std::collections::VecDeque;

/// Those who wait for room in one client's buffer: as many as the program has futures that do.
#[derive(Debug)]
pub(crate) struct Line {
    next: Place,
    /// Rising.
    waiting: VecDeque<Place>,
    /// Bytes that have gone before the first of them since it is that, and most that may.
    passed: usize,
    passed_max: usize,
    /// Somebody did not go because it is the first one's turn.
    gives_way: bool,
}

/// Counts who has had to wait.
pub(crate) type Place = u64;

impl Line {
    /// Of a buffer of that size.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            next: 0,
            waiting: VecDeque::new(),
            passed: 0,
            passed_max: bytes_max,
            gives_way: false,
        }
    }

    /// Waits from now on.
    pub(crate) fn wait(&mut self) -> Place {
        let place = self.next;
        self.next += 1;
        self.waiting.push_back(place);
        place
    }

    /// Whether one that needs so much may go now, where there is room: from that place, or from none.
    pub(crate) fn lets(&mut self, place: Option<Place>, cost: usize) -> bool {
        let Some(first) = self.waiting.front() else { return true };
        let lets = place == Some(*first) || self.passed + cost <= self.passed_max;
        self.gives_way |= !lets;
        lets
    }

    /// It goes. Gives whether others gave way to it, who must look again.
    pub(crate) fn went(&mut self, place: Option<Place>, cost: usize) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        self.passed += cost;
        place.is_some_and(|place| self.leave(place))
    }

    /// Who has that place waits no more. Gives whether others gave way to it, who must look again.
    pub(crate) fn leave(&mut self, place: Place) -> bool {
        let Ok(index) = self.waiting.binary_search(&place) else { return false };
        self.waiting.remove(index);
        if index > 0 {
            return false;
        }
        self.passed = 0;
        core::mem::take(&mut self.gives_way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_goes_before_each_first_one_than_the_buffer_holds() {
        let mut line = Line::new(100);
        assert!(line.lets(None, 1000), "nobody waits");
        line.went(None, 1000);
        let places = [(); 3].map(|()| line.wait());
        assert!(!line.went(None, 60));
        assert!(line.lets(None, 40) && line.lets(Some(places[1]), 40));
        assert!(!line.lets(None, 41) && !line.lets(Some(places[1]), 41));
        assert!(!line.went(Some(places[1]), 40), "it was not the first");
        assert!(!line.lets(None, 1) && !line.lets(Some(places[2]), 1));
        assert!(line.lets(Some(places[0]), 1000), "it is its turn");
        assert!(!line.leave(places[1]) && !line.lets(None, 1), "it has gone already");
        assert!(line.went(Some(places[0]), 90), "others gave way to it");
        assert!(line.lets(None, 100));
        line.went(None, 100);
        assert!(!line.leave(places[2]), "nobody gave way to it");
        assert!(line.lets(None, 1000), "nobody waits");
    }
}
