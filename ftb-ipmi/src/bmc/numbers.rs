//! Which answer may be believed: request numbers that are not used again while an answer to them is
//! still owed, and the sliding window that drops packets seen before. No I/O.

use super::ipmb::REQUEST_NUMBERS;

/// A number that is used again has rested for so many requests at the least. By then an answer has come
/// that nobody counts: a request that the network has doubled is answered twice.
const REST: usize = 32;

/// Hands out request numbers. An answer carries no more than this number, the command, and the
/// logical unit: the readings of two sensors look alike. So a number that was sent twice rests
/// until both answers have come.
pub(crate) struct RequestNumbers {
    last: u8,
    owed: [u8; REQUEST_NUMBERS as usize],
}

impl RequestNumbers {
    pub(crate) fn new() -> Self {
        Self { last: 0, owed: [0; REQUEST_NUMBERS as usize] }
    }

    /// A number to which no answer can be under way; `None` when too many numbers have answers owed
    /// (then only a new session tells old answers from new).
    pub(crate) fn take(&mut self) -> Option<u8> {
        // Those that are free now are all used before this one's turn comes again.
        if self.owed.iter().filter(|owed| **owed == 0).count() < REST {
            return None;
        }
        let free = (1..=REQUEST_NUMBERS)
            .map(|step| (self.last + step) % REQUEST_NUMBERS)
            .find(|number| self.owed[usize::from(*number)] == 0)?;
        self.last = free;
        Some(free)
    }

    /// A request with that number went out.
    pub(crate) fn sent(&mut self, number: u8) {
        let owed = &mut self.owed[usize::from(number % REQUEST_NUMBERS)];
        *owed = owed.saturating_add(1);
    }

    /// An answer to that number came in.
    pub(crate) fn answered(&mut self, number: u8) {
        let owed = &mut self.owed[usize::from(number % REQUEST_NUMBERS)];
        *owed = owed.saturating_sub(1);
    }
}

/// Packet numbers seen, of the last [`WINDOW`].
pub(crate) struct Window {
    highest: u32,
    seen: u32,
}

const WINDOW: u32 = 32;

impl Window {
    /// Nothing seen; the first packet may have any number.
    pub(crate) fn new() -> Self {
        Self { highest: 0, seen: 0 }
    }

    /// Notes a packet; `false` for one seen before or too old to tell.
    pub(crate) fn accept(&mut self, sequence: u32) -> bool {
        if self.seen == 0 {
            (self.highest, self.seen) = (sequence, 1);
            return true;
        }
        let ahead = sequence.wrapping_sub(self.highest).cast_signed();
        if ahead > 0 {
            self.seen = self.seen.checked_shl(ahead.cast_unsigned()).unwrap_or(0) | 1;
            self.highest = sequence;
            return true;
        }
        let behind = ahead.unsigned_abs();
        if behind >= WINDOW || self.seen & (1 << behind) != 0 {
            return false;
        }
        self.seen |= 1 << behind;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_rests_while_an_answer_to_it_is_owed() {
        let mut numbers = RequestNumbers::new();
        let first = numbers.take().expect("all are free");
        numbers.sent(first);
        numbers.sent(first);
        numbers.answered(first);
        let round: Vec<_> = (0..63).map(|_| numbers.take().expect("63 are free")).collect();
        assert!(!round.contains(&first), "an answer to {first} is still under way");
        numbers.answered(first);
        assert_eq!(numbers.take(), Some(first));
    }

    #[test]
    fn a_number_comes_again_only_after_its_rest_or_there_is_none() {
        let mut numbers = RequestNumbers::new();
        let mut used_at = [None; REQUEST_NUMBERS as usize];
        let mut requests = 0;
        // Each fifth is never answered.
        while let Some(number) = numbers.take() {
            if let Some(before) = used_at[usize::from(number)].replace(requests) {
                assert!(requests - before >= REST, "{number} again after {}", requests - before);
            }
            numbers.sent(number);
            if requests % 5 != 0 {
                numbers.answered(number);
            }
            requests += 1;
        }
        let owed = numbers.owed.iter().filter(|owed| **owed > 0).count();
        assert_eq!(owed, usize::from(REQUEST_NUMBERS) - REST + 1);
    }

    #[test]
    fn a_packet_counts_once_even_out_of_order() {
        let mut window = Window::new();
        assert!(window.accept(10) && window.accept(12) && window.accept(11));
        assert!(!window.accept(11) && !window.accept(12) && !window.accept(10));
        assert!(window.accept(60) && !window.accept(20), "too old to tell");
        assert!(window.accept(29) && !window.accept(28));
        let mut wrap = Window::new();
        assert!(wrap.accept(u32::MAX) && wrap.accept(1) && !wrap.accept(u32::MAX));
    }
}
