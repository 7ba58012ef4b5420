//! ftb-job: what a parallel program links to be checkpointed and moved between nodes by
//! `ftb-launch`.
//!
//! Ranks send each other messages and reduce values over them; once per iteration each calls
//! [`Job::progress`], and there, when the launcher asks, all of them suspend their communication at
//! the same safe point, save themselves, or let some ranks go on elsewhere. See docs/job.md.
//!
//! ```
//! use ftb_job::{Job, Op};
//!
//! # fn main() -> Result<(), ftb_job::Error> {
//! let mut job = Job::init()?; // a job of one rank, without a launcher
//! let mut sum = [f64::from(job.rank())];
//! job.allreduce(Op::Sum, &mut sum)?;
//! job.progress(&())?;
//! job.finalize()
//! # }
//! ```
//!
//! Responsible for the rank's side of launcher/core/protocol.md. Not responsible for starting
//! processes, for which images count, nor for when to checkpoint or move: the launcher decides.

mod agreement;
mod backplane;
mod channel;
mod config;
mod control;
mod descriptor;
mod error;
mod events;
pub mod fmi;
mod frame;
mod hello;
mod image;
mod inbox;
mod job;
pub mod limits;
mod looping;
pub mod memory;
pub mod park;
mod pmi;
mod progress;
pub mod rank_socket;
mod repair;
mod request;
mod router;
mod state;

pub use backplane::{Backplane, Connect, Notice, RequestSink};
pub use channel::{Channel, Endpoint, Opening, Registry, StreamChannel};
pub use config::Config;
pub use error::{Error, Result};
pub use frame::{Class, Frame, Incoming, RENEWAL_BYTES, read_frame, renewal_payload};
pub use image::{
    Header, ImageError, ImageReader, ImageSize, Outlives, Reader, Writer, write_image,
    write_image_to,
};
pub use inbox::Inbox;
pub use job::collectives::{Number, Op};
pub use job::{Job, SafePoint, Sender, Setup};
pub use looping::{JobPlace, LoopError, Looping};
pub use repair::{CommId, RepairCall, RepairKind, RepairNews, RoundResult};
pub use request::{Request, RequestKind};
pub use state::{Part, StartState, State};

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// In every program that links this library. The launcher looks for these bytes in a program's file
/// before it starts anything: such a program saves itself and needs no pod
/// (launcher/core/protocol.md).
pub static MARK: [u8; 29] = *b"ftb-job.mark.5e2b7c41d0a9f386";

/// A poisoned lock is harmless: every critical section here is a few assignments.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn spawn_helper(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let builder = Builder::new().name(name.to_owned());
    builder.stack_size(limits::HELPER_STACK_BYTES).spawn(work)
}
