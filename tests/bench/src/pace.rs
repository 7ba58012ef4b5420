//! When a publisher of a given rate publishes, and which time its messages bear.
//!
//! A timer of the kernel's wakes it: tokio's own timers wake at whole milliseconds, now and then a
//! whole one late, and what is measured is not to be the measure's own clock. It goes on by itself:
//! were it set anew for each turn, that would be between a message and its way out of a client that
//! writes when its caller waits, and behind that of one that writes at once.

use anyhow::Result;
use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Turns at a fixed distance. None is left out: one that finds its publisher held up follows at
/// once.
pub(crate) struct Pace {
    timer: AsyncFd<Timer>,
    begun: Instant,
    period: Duration,
    turns: u32,
    /// When the timer last woke it.
    woken: Instant,
}

struct Timer(TimerFd);

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// One turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// When it was due, from the beginning.
    pub(crate) due: Duration,
    /// From when on what is published in it is under way.
    pub(crate) stamp: Instant,
}

impl Pace {
    /// Begins now; the first turn is one period away.
    ///
    /// # Errors
    /// The kernel has no timer, or it cannot be set.
    #[expect(unsafe_code, reason = "tokio cannot know that the timer keeps its descriptor")]
    pub(crate) fn new(period: Duration) -> Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = Timer(TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?);
        let begun = Instant::now();
        let each = Expiration::Interval(TimeSpec::from_duration(period));
        timer.0.set(each, TimerSetTimeFlags::empty())?;
        // SAFETY: the timer owns its descriptor, gives the same one each time, and is not given
        // away before the registration ends.
        let timer = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE)? };
        Ok(Self { timer, begun, period, turns: 0, woken: begun })
    }

    /// The next turn, when it is due.
    ///
    /// # Errors
    /// The timer cannot be waited for.
    pub(crate) async fn next(&mut self) -> Result<Turn> {
        self.turns += 1;
        let due = self.period * self.turns;
        let at = self.begun + due;
        while Instant::now() < at {
            self.timer.readable().await?.clear_ready();
            // It goes on when it is read.
            match self.timer.get_ref().0.wait() {
                Ok(()) | Err(Errno::EAGAIN) => self.woken = Instant::now(),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Turn { due, stamp: stamp(at, self.woken) })
    }
}

/// A turn that was due while the publisher was held up bears the time when it was due: what waits
/// in front of a slow system waits for it. A turn for which the timer woke too late, and those that
/// came due meanwhile, bear the time of waking: that was not the system's doing.
fn stamp(due: Instant, woken: Instant) -> Instant {
    due.max(woken)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn turns_follow_each_other_and_none_is_left_out() {
        let period = Duration::from_millis(1);
        let mut pace = Pace::new(period).unwrap();
        for turn in 1..=5 {
            let next = pace.next().await.unwrap();
            assert_eq!(next.due, period * turn);
            assert!(Instant::now() >= pace.begun + next.due, "it came before it was due");
            assert!(next.stamp >= pace.begun + next.due);
        }
        // Held up for some periods: they follow without another wait, and bear their own times.
        let held_until = pace.begun + period * 50;
        std::thread::sleep(held_until.saturating_duration_since(Instant::now()));
        let woken = pace.woken;
        for turn in 6..=50 {
            let next = pace.next().await.unwrap();
            let at = pace.begun + period * turn;
            assert_eq!((next.stamp, pace.woken), (at.max(woken), woken));
        }
    }

    #[test]
    fn only_a_late_timer_excuses() {
        let due = Instant::now();
        let later = due + Duration::from_millis(3);
        assert_eq!(stamp(due, later), later);
        assert_eq!(stamp(later, due), later);
    }
}
