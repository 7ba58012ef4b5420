//! The native half of the Python package `ftb`: the client library, as objects that never wait.
//!
//! Whatever takes time is a `Pending` with a descriptor that becomes readable when
//! there is something to look at. The Python half waits for descriptors with `select` or in an
//! asyncio loop: there the interpreter's lock is free, signals are heard, and no thread of ours
//! ever needs the interpreter, neither while it runs nor while it ends.
//!
//! Responsible for: handing values over, and refusing to be used in a forked child, where the
//! thread behind a client does not exist. Not responsible for: waiting, types and manners of
//! Python; those are in `python/ftb`.
#![allow(unsafe_code, reason = "what pyo3's macros expand to")]

mod alarm;
mod client;
mod convert;
mod error;
mod job;
mod own;
mod pending;
mod subscription;

use pyo3::prelude::*;

/// The module `ftb._native`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<client::Client>()?;
    module.add_class::<client::Receipt>()?;
    module.add_class::<client::Receipts>()?;
    module.add_class::<pending::Pending>()?;
    module.add_class::<subscription::Subscription>()?;
    job::add_to(module)?;
    module.add("NativeError", module.py().get_type::<error::NativeError>())
}
