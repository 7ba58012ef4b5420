//! The one thread of the process that drives sockets and timers, and waiting for what it does.
//!
//! Responsible for: that no signal of the program is handled on a thread of the library (a broken
//! socket must not raise SIGPIPE in a program that did not ask for one), and that every wait ends.

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use nix::sys::signal::{SigSet, SigmaskHow};
use std::io;
use std::sync::Arc;
use std::task::Wake;
use std::thread::{Builder, Thread};
use std::time::{Duration, Instant};
use tokio::runtime;
use tokio::task::AbortHandle;

/// A handle to the thread. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct Engine(runtime::Handle);

impl Engine {
    /// Starts the thread. It lives as long as the process.
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        spawn_deaf("ftb", move || runtime.block_on(core::future::pending::<()>()))?;
        Ok(Self(handle))
    }

    /// Runs a task.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.0.spawn(task).abort_handle()
    }

    /// Runs what needs the thread around it, on the caller's thread and without waiting.
    pub(crate) fn within<T>(&self, what: impl FnOnce() -> T) -> T {
        let _entered = self.0.enter();
        what()
    }

    /// Waits on the caller's thread, whatever thread that is; `None` after `deadline`.
    pub(crate) fn wait<T>(&self, deadline: Duration, future: impl Future<Output = T>) -> Option<T> {
        let _entered = self.0.enter();
        let mut future = pin!(future);
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let start = Instant::now();
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Some(output);
            }
            let left = deadline.checked_sub(start.elapsed()).filter(|left| !left.is_zero())?;
            std::thread::park_timeout(left);
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Starts a thread that no signal is delivered to.
pub(crate) fn spawn_deaf(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // A new thread begins with the mask of the one that starts it.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let started = Builder::new().name(name.to_owned()).spawn(body);
    mask.thread_set_mask()?;
    started.map(drop)
}
