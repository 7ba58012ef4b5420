//! The pure heart of ftb: the event model and the state machines that decide.
//!
//! Nothing here does I/O, reads a clock, draws a random number or awaits. A state machine is fed
//! with `handle(now, input, outputs)` and tells what it wants done; a shell (the agent, or the
//! simulation) does it. So a cluster of thousands of agents runs in one thread from one seed, the
//! same way every time.
//!
//! Responsible for: what an event, a filter, a host list, a position is; the tree, the log, the
//! routing and the shedding of one agent; the text of rack files ([`racks`]) and where a
//! configuration file is wrong ([`text`]). Not responsible for: sockets, files, processes, encoding
//! (`ftb-proto`; only the members of a fold are encoded here, in [`group`]).
#![forbid(unsafe_code)]

pub mod frame;
pub mod log;
pub mod model;
pub mod node;

#[cfg(test)]
pub(crate) use model::testing;

pub use log::{epochs, position, ranges};
pub use model::{
    catalog, condition, confirm_level, event, filter, group, hostlist, ident, latest, limits,
    member, numbers, protocol, racks, run, sealed, severity, space, spaces, storm, text, time,
    trace, tree,
};

pub use confirm_level::ConfirmLevel;
pub use event::{Event, EventKind, EventRef, Tag};
pub use ident::{EventId, OriginId, PublisherId, Rank};
pub use position::{Epoch, Position, Trail};
pub use run::Run;
pub use sealed::{Head, Sealed, SealedRef};
pub use severity::Severity;
pub use space::{EventName, EventSpace};
pub use spaces::Spaces;
pub use time::Now;
