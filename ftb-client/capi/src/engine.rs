//! The one thread of the process that drives sockets and timers, and waiting for what it does.
//!
//! Responsible for: that no signal of the program is handled on a thread of the library (a broken
//! socket must not raise SIGPIPE in a program that did not ask for one), and that every wait ends.

use core::future::Future;
use core::time::Duration;
use nix::sys::signal::{SigSet, SigmaskHow};
use std::io;
use std::sync::mpsc;
use std::thread::Builder;
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

    /// Waits on the caller's thread for what runs on the engine's; `None` after `deadline`, and
    /// then it is dropped. Works on any thread at any time, also in the program's `atexit`
    /// functions, when the thread's own variables are gone: so nothing of the runtime is used on
    /// the caller's side.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        deadline: Duration,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (done, waiting) = mpsc::sync_channel(1);
        let task = self.spawn(async move {
            // An error says that the caller does not wait any more.
            let _ = done.send(future.await);
        });
        let output = waiting.recv_timeout(deadline).ok();
        task.abort();
        output
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
