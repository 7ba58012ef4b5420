//! A descriptor that becomes readable when a future is worth polling again.

use crate::error::Trouble;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::future::Future;
use std::os::fd::AsRawFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// See the module.
pub(crate) struct Alarm(EventFd);

impl Alarm {
    pub(crate) fn new() -> Result<Arc<Self>, Trouble> {
        EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
            .map(|fd| Arc::new(Self(fd)))
            .map_err(|error| Trouble::new("config", format!("no more descriptors: {error}")))
    }

    pub(crate) fn fileno(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Polls a future once; it wakes this alarm when it is worth polling again.
    pub(crate) fn poll<T>(
        self: &Arc<Self>,
        future: Pin<&mut (impl Future<Output = T> + ?Sized)>,
    ) -> Poll<T> {
        // What woke it until now is polled now. That it was not woken is no error.
        let _ = self.0.read();
        future.poll(&mut Context::from_waker(&Waker::from(Arc::clone(self))))
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Full means readable already.
        let _ = self.0.write(1);
    }
}
