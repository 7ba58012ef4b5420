//! Which answers are accepted: request numbers that are not reused while an answer to them may
//! still come, and a sliding window that drops packets seen before. No I/O.

use crate::ipmb::REQUEST_NUMBERS;

/// A number is reused after this many other requests at the earliest. A request that the network
/// duplicated is answered twice; the second answer, which is not counted, has arrived by then.
const REST: usize = 32;

/// Assigns request numbers. Only number, command and logical unit of an answer identify its
/// request, so the readings of two sensors look alike. A number that was sent twice is reused only
/// after two answers.
pub(crate) struct RequestNumbers {
    last: u8,
    /// Answers that may still come, for each number.
    pending: [u8; REQUEST_NUMBERS as usize],
}

impl RequestNumbers {
    pub(crate) fn new() -> Self {
        Self { last: 0, pending: [0; REQUEST_NUMBERS as usize] }
    }

    /// A number without pending answers. `None` if too many numbers have pending answers: then only
    /// a new session separates old answers from new ones.
    pub(crate) fn take(&mut self) -> Option<u8> {
        // All numbers that are free now are used before the next one is reused.
        if self.pending.iter().filter(|pending| **pending == 0).count() < REST {
            return None;
        }
        let free = (1..=REQUEST_NUMBERS)
            .map(|step| (self.last + step) % REQUEST_NUMBERS)
            .find(|number| self.pending[usize::from(*number)] == 0)?;
        self.last = free;
        Some(free)
    }

    /// A request with this number was sent.
    pub(crate) fn on_sent(&mut self, number: u8) {
        let pending = &mut self.pending[usize::from(number % REQUEST_NUMBERS)];
        *pending = pending.saturating_add(1);
    }

    /// An answer with this number was received.
    pub(crate) fn on_answer(&mut self, number: u8) {
        let pending = &mut self.pending[usize::from(number % REQUEST_NUMBERS)];
        *pending = pending.saturating_sub(1);
    }
}

/// Which of the last [`WINDOW`] packet numbers were seen.
pub(crate) struct ReplayWindow {
    highest: u32,
    seen: u32,
}

const WINDOW: u32 = 32;

impl ReplayWindow {
    /// The first packet may have any number.
    pub(crate) fn new() -> Self {
        Self { highest: 0, seen: 0 }
    }

    /// Records a packet; `false` if it was seen before, or is older than the window.
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
    fn a_number_with_a_pending_answer_is_not_reused() {
        let mut numbers = RequestNumbers::new();
        let first = numbers.take().expect("all are free");
        numbers.on_sent(first);
        numbers.on_sent(first);
        numbers.on_answer(first);
        let round: Vec<_> = (0..63).map(|_| numbers.take().expect("63 are free")).collect();
        assert!(!round.contains(&first), "an answer to {first} is still pending");
        numbers.on_answer(first);
        assert_eq!(numbers.take(), Some(first));
    }

    #[test]
    fn a_number_is_reused_only_after_its_rest() {
        let mut numbers = RequestNumbers::new();
        let mut used_at = [None; REQUEST_NUMBERS as usize];
        let mut requests = 0;
        // Every fifth request stays unanswered.
        while let Some(number) = numbers.take() {
            if let Some(before) = used_at[usize::from(number)].replace(requests) {
                assert!(requests - before >= REST, "{number} again after {}", requests - before);
            }
            numbers.on_sent(number);
            if requests % 5 != 0 {
                numbers.on_answer(number);
            }
            requests += 1;
        }
        let pending = numbers.pending.iter().filter(|pending| **pending > 0).count();
        assert_eq!(pending, usize::from(REQUEST_NUMBERS) - REST + 1);
    }

    #[test]
    fn a_packet_is_accepted_once_even_out_of_order() {
        let mut window = ReplayWindow::new();
        assert!(window.accept(10) && window.accept(12) && window.accept(11));
        assert!(!window.accept(11) && !window.accept(12) && !window.accept(10));
        assert!(window.accept(60) && !window.accept(20), "older than the window");
        assert!(window.accept(29) && !window.accept(28));
        let mut wrap = ReplayWindow::new();
        assert!(wrap.accept(u32::MAX) && wrap.accept(1) && !wrap.accept(u32::MAX));
    }
}
