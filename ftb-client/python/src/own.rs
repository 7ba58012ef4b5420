//! What belongs to one process: the runtime behind all clients, and values that a forked child must
//! not touch.

use crate::error::Trouble;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::runtime::{Builder, Runtime};

/// The runtime of this process. Never dropped: its thread ends with the process, so that neither
/// the interpreter's end nor a dropped client waits for it. A forked child gets its own.
pub(crate) fn runtime() -> Result<&'static Runtime, Trouble> {
    static RUNTIME: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);
    let mut known = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = process::id();
    if let Some((owner, runtime)) = *known
        && owner == pid
    {
        return Ok(runtime);
    }
    let built = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("ftb-client")
        .enable_all()
        .build();
    let runtime: &'static Runtime = Box::leak(Box::new(built.map_err(|error| {
        Trouble::new("config", format!("the client's thread cannot be started: {error}"))
    })?));
    *known = Some((pid, runtime));
    Ok(runtime)
}

/// A value of the process that made it. In a forked child it can be neither used nor dropped: a
/// thread that held one of its locks at the fork does not exist there.
pub(crate) struct Own<T> {
    pid: u32,
    value: Mutex<Option<T>>,
}

impl<T> Own<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { pid: process::id(), value: Mutex::new(Some(value)) }
    }

    /// Works with the value; what it says must not wait.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Option<T>) -> R) -> Result<R, Trouble> {
        if self.pid != process::id() {
            return Err(Trouble::new(
                "forked",
                "this belongs to the process that forked: make a new client in the child",
            ));
        }
        Ok(work(&mut self.lock()))
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if self.pid != process::id() {
            // Leaked on purpose: see above. The interpreter's lock keeps other threads out of
            // this mutex while one forks.
            std::mem::forget(self.lock().take());
        }
    }
}
