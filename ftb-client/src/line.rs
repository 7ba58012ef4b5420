//! Who waits for room in the buffer, and how many others may go before.
//!
//! Whoever finds room takes it, the first that looks: so nobody who publishes one event after the other is made to wait for
//! each, and all that wait look when room has come. But before the one that is first among them no more of what waits goes
//! than the buffer holds; then it is its turn, and all others wait for it, else one that needs much of the buffer would wait
//! as long as others come who need little.
//!
//! Publishing that never waits stands in no line, and may take all the room that comes. Where it does, the turn is in vain:
//! all that the buffer held when it began has gone, and there is still no room. Then the others go again, as much as before.
//!
//! No I/O, no clock.

use std::collections::VecDeque;

/// Those who wait for room in one client's buffer: as many as the program has futures that do.
#[derive(Debug)]
pub(crate) struct Line {
    next: Place,
    /// The places rise; with what each needs.
    waiting: VecDeque<(Place, usize)>,
    bytes_max: usize,
    /// Bytes that have gone before the first of them since it is that, or its last turn was in vain.
    passed: usize,
    /// While it is its turn: bytes that came meanwhile and stood in no line.
    overtaken: Option<usize>,
    /// Somebody did not go because it was the first one's turn.
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
            bytes_max,
            passed: 0,
            overtaken: None,
            gives_way: false,
        }
    }

    /// Waits from now on for so much.
    pub(crate) fn wait(&mut self, cost: usize) -> Place {
        let place = self.next;
        self.next += 1;
        self.waiting.push_back((place, cost));
        place
    }

    /// Whether one that needs so much may go now, where there is room in a buffer that holds so much: from that place, or
    /// from none.
    pub(crate) fn lets(&mut self, place: Option<Place>, cost: usize, held: usize) -> bool {
        let Some((first, needed)) = self.waiting.front() else { return true };
        if place == Some(*first) || self.passed + cost <= self.bytes_max {
            return true;
        }
        let overtaken = *self.overtaken.get_or_insert(0);
        // What is older goes first: as much has come since the turn began as there is, so nothing is left of what was there
        // then. Where there is room for the first all the same, it has only not looked yet.
        let in_vain = overtaken >= held && held > 0 && held + needed > self.bytes_max;
        if in_vain {
            (self.passed, self.overtaken) = (0, None);
        }
        self.gives_way |= !in_vain;
        in_vain
    }

    /// So much goes that stands in no line.
    pub(crate) fn overtake(&mut self, cost: usize) {
        if let Some(overtaken) = &mut self.overtaken {
            *overtaken = overtaken.saturating_add(cost);
        }
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
        let Ok(index) = self.waiting.binary_search_by_key(&place, |(place, _)| *place) else {
            return false;
        };
        self.waiting.remove(index);
        if index > 0 {
            return false;
        }
        (self.passed, self.overtaken) = (0, None);
        core::mem::take(&mut self.gives_way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_goes_before_each_first_one_than_the_buffer_holds() {
        let mut line = Line::new(100);
        assert!(line.lets(None, 1000, 50), "nobody waits");
        line.went(None, 1000);
        let places = [(); 3].map(|()| line.wait(100));
        assert!(!line.went(None, 60));
        assert!(line.lets(None, 40, 50) && line.lets(Some(places[1]), 40, 50));
        assert!(!line.lets(None, 41, 50) && !line.lets(Some(places[1]), 41, 50));
        assert!(!line.went(Some(places[1]), 40), "it was not the first");
        assert!(!line.lets(None, 1, 50) && !line.lets(Some(places[2]), 1, 50));
        assert!(line.lets(Some(places[0]), 1000, 50), "it is its turn");
        assert!(!line.leave(places[1]) && !line.lets(None, 1, 50), "it has gone already");
        assert!(line.went(Some(places[0]), 90), "others gave way to it");
        assert!(line.lets(None, 100, 50));
        line.went(None, 100);
        assert!(!line.leave(places[2]), "nobody gave way to it");
        assert!(line.lets(None, 1000, 50), "nobody waits");
    }

    #[test]
    fn a_turn_ends_when_only_what_stands_in_no_line_is_in_its_way() {
        let mut line = Line::new(100);
        let [first, other] = [80, 10].map(|cost| line.wait(cost));
        let others = Some(other);
        line.went(None, 100);
        line.overtake(1000);
        assert!(
            !line.lets(others, 10, 50),
            "what came before the turn is nobody's who goes before it"
        );
        line.overtake(20);
        assert!(!line.lets(others, 10, 30), "10 are left of what was there");
        assert!(!line.lets(others, 10, 20), "there is room for the first");
        assert!(!line.lets(others, 10, 0), "there is room for the first");
        line.overtake(10);
        assert!(line.lets(others, 10, 30), "it is in vain");
        assert!(!line.went(others, 10), "it was not the first");
        assert!(line.lets(None, 90, 30) && !line.lets(None, 91, 30), "the next turn");
        line.overtake(20);
        assert!(!line.lets(None, 91, 30), "it has just begun");
        line.overtake(10);
        assert!(line.lets(None, 91, 30), "it is in vain");
        assert!(line.leave(first), "others gave way to it");
    }
}
