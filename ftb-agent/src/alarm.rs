//! A timer of the kernel's, for the one task that always waits for its next deadline.
//!
//! Tokio's own timers lie in wheels: one that is a second away wakes its thread two or three times
//! on the way, to be moved from wheel to wheel, and thrice that where agents wake for nothing else.
//! The kernel's wakes once.
//!
//! Responsible for: waking at the deadline and at no other time, for few system calls. Not
//! responsible for: what the deadline is.

use crate::world::{Alarm, Clock};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::net::unix::pipe::Receiver;

/// A deadline that has moved on by less than this needs no system call: the alarm then rings
/// that much too early, and is set anew. An agent that is busy moves its deadline with each
/// message.
const SLACK_NS: u64 = 125_000_000;

/// Size of what a read of a timer returns: how often it has rung.
const EXPIRATIONS_BYTES: usize = size_of::<u64>();

/// An alarm that is a `timerfd` of the monotonic clock.
pub(crate) struct KernelAlarm {
    clock: Arc<dyn Clock>,
    timer: TimerFd,
    /// The same timer: readable while it has rung unread. tokio has a safe type
    /// of a descriptor that is read for pipes only; this constructor does not ask what it is.
    rung: Receiver,
    /// For when it is set; `None`: it is not.
    set_ns: Option<u64>,
}

impl KernelAlarm {
    /// One that is not set.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        let rung = Receiver::from_owned_fd_unchecked(timer.as_fd().try_clone_to_owned()?)?;
        Ok(Self { clock, timer, rung, set_ns: None })
    }

    /// Sets it, unless it rings at the right time, or a little before, as it is.
    fn set(&mut self, now_ns: u64, at_ns: u64) {
        if self.set_ns.is_some_and(|set| set <= at_ns && at_ns - set <= SLACK_NS) {
            return;
        }
        let distance = Duration::from_nanos(at_ns.saturating_sub(now_ns).max(1));
        let expiration = Expiration::OneShot(TimeSpec::from_duration(distance));
        match self.timer.set(expiration, TimerSetTimeFlags::empty()) {
            Ok(()) => self.set_ns = Some(at_ns),
            // Only a time that is none is refused, and this one is.
            Err(error) => tracing::error!(%error, at_ns, "cannot set a timer"),
        }
    }
}

impl Alarm for KernelAlarm {
    fn poll_due(&mut self, context: &mut Context<'_>, at_ns: Option<u64>) -> Poll<()> {
        let Some(at_ns) = at_ns else { return Poll::Pending };
        loop {
            let now_ns = self.clock.now().mono_ns;
            if at_ns <= now_ns {
                return Poll::Ready(());
            }
            self.set(now_ns, at_ns);
            let Ok(()) = ready!(self.rung.poll_read_ready(context)) else {
                // The runtime is shutting down.
                return Poll::Pending;
            };
            // It has rung, now or for an earlier deadline that was moved since. A read that would
            // block makes the next poll wait.
            if self.rung.try_read(&mut [0; EXPIRATIONS_BYTES]).is_ok() {
                self.set_ns = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::system;
    use std::future::poll_fn;

    const MS: u64 = 1_000_000;

    /// Waits as the driver does; gives when it rang.
    async fn ring(clock: &dyn Clock, alarm: &mut dyn Alarm, after_ms: u64) -> (u64, u64) {
        let at_ns = clock.now().mono_ns + after_ms * MS;
        poll_fn(|context| alarm.poll_due(context, Some(at_ns))).await;
        (at_ns, clock.now().mono_ns)
    }

    #[tokio::test]
    async fn it_rings_at_the_deadline_however_that_has_moved() {
        let clock = system::clock();
        let mut alarm = clock.alarm().unwrap();
        let mut set = async |at_ns| {
            let first = poll_fn(|context| Poll::Ready(alarm.poll_due(context, at_ns))).await;
            assert!(first.is_pending());
        };
        let now_ns = clock.now().mono_ns;
        // Far away, later, a little later, earlier, never.
        for at_ns in [Some(900), Some(2_000), Some(2_050), Some(700), None] {
            set(at_ns.map(|ms| now_ns + (60_000 + ms) * MS)).await;
        }
        // Each sooner than the one before: none of the earlier settings may hold it up.
        for after_ms in [40, 20, 1, 0, 30] {
            let (at_ns, rang_ns) = ring(&clock, alarm.as_mut(), after_ms).await;
            assert!(rang_ns >= at_ns, "it rang {} ns too early", at_ns - rang_ns);
        }
    }

    #[tokio::test]
    async fn a_slightly_later_deadline_needs_no_system_call() {
        let clock: Arc<dyn Clock> = Arc::new(system::clock());
        let mut alarm = KernelAlarm::new(Arc::clone(&clock)).unwrap();
        let now_ns = clock.now().mono_ns;
        let first = now_ns + 60_000 * MS;
        for (at_ns, set_ns) in [
            (first, first),
            (first + SLACK_NS, first),
            (first + SLACK_NS + 1, first + SLACK_NS + 1),
            (first, first),
        ] {
            alarm.set(now_ns, at_ns);
            assert_eq!(alarm.set_ns, Some(set_ns));
        }
    }
}
