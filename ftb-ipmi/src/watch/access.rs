//! When to read the event log of a BMC again after a refusal. No I/O, no clock.

use std::time::Duration;

/// Longest pause after refusals, unless the interval of the log is longer.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Refusals in a row that cause a warning.
const LASTING: u32 = 3;
/// Completion codes of a BMC without an event log: invalid command, invalid for this unit.
const NOT_SUPPORTED: [u8; 2] = [0xC1, 0xC2];

/// The meaning of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The BMC has no event log. This session does not read it again.
    Unsupported,
    /// The first in a row. An erase in progress, for example, lasts some seconds.
    First,
    /// [`LASTING`] in a row: events may be missed.
    Lasting,
    /// Another one in a row.
    Repeated,
}

/// Access to the event log of one BMC.
#[derive(Debug, Default)]
pub(super) struct Access {
    is_unsupported: bool,
    /// Refusals in a row.
    refusals: u32,
}

impl Access {
    /// The log was read. `true` if it was refused before.
    pub(super) fn on_answer(&mut self) -> bool {
        std::mem::take(&mut self.refusals) > 0
    }

    /// The log was refused with this completion code, or with an answer that is too short.
    pub(super) fn on_refusal(&mut self, code: Option<u8>) -> Refusal {
        if code.is_some_and(|code| NOT_SUPPORTED.contains(&code)) {
            self.is_unsupported = true;
            return Refusal::Unsupported;
        }
        self.refusals = self.refusals.saturating_add(1);
        match self.refusals {
            1 => Refusal::First,
            LASTING => Refusal::Lasting,
            _ => Refusal::Repeated,
        }
    }

    /// Whether the BMC has no event log.
    pub(super) fn is_unsupported(&self) -> bool {
        self.is_unsupported
    }

    /// Pause before the next read: the interval, doubled by each refusal in a row. `None`: no read
    /// in this session.
    pub(super) fn pause(&self, interval: Duration) -> Option<Duration> {
        let factor = 1_u32.checked_shl(self.refusals).unwrap_or(u32::MAX);
        let pause = interval.saturating_mul(factor).min(PAUSE_MAX.max(interval));
        (!self.is_unsupported).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(5);
    const ERASE_IN_PROGRESS: Option<u8> = Some(0x81);

    #[test]
    fn pauses_double_after_refusals_until_the_log_answers() {
        let mut access = Access::default();
        let mut pauses = Vec::new();
        for _ in 0..40 {
            pauses.push(access.pause(INTERVAL).map_or(0, |pause| pause.as_secs()));
            access.on_refusal(ERASE_IN_PROGRESS);
        }
        assert_eq!(pauses[..6], [5, 10, 20, 40, 60, 60]);
        assert_eq!(pauses[39], 60);
        assert!(access.on_answer());
        assert_eq!(access.pause(INTERVAL), Some(INTERVAL));
        assert!(!access.on_answer());
    }

    #[test]
    fn an_interval_longer_than_the_longest_pause_is_kept() {
        let mut access = Access::default();
        access.on_refusal(None);
        assert_eq!(access.pause(PAUSE_MAX * 10), Some(PAUSE_MAX * 10));
    }

    #[test]
    fn only_a_missing_log_is_not_read_again() {
        let mut access = Access::default();
        for code in [Some(0x81), None, Some(0xC3), Some(0xD5), Some(0xFF)] {
            assert_ne!(access.on_refusal(code), Refusal::Unsupported);
            assert!(access.pause(INTERVAL).is_some(), "{code:?}");
        }
        assert_eq!(access.on_refusal(Some(0xC1)), Refusal::Unsupported);
        assert_eq!(access.pause(INTERVAL), None);
    }

    #[test]
    fn exactly_one_refusal_in_a_row_is_lasting() {
        let mut access = Access::default();
        let refusals: Vec<_> = (0..5).map(|_| access.on_refusal(ERASE_IN_PROGRESS)).collect();
        use Refusal::{First, Lasting, Repeated};
        assert_eq!(refusals, [First, Repeated, Lasting, Repeated, Repeated]);
    }
}
