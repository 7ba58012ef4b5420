//! The events that begin and end a silence.
//!
//! Not responsible for: what a silence is, and how it is read ([`ftb_proto::silence`]).

use crate::event::event;
use ftb_core::Event;
use ftb_core::catalog::names;
use ftb_core::condition::{Condition, SILENCE_SPACE, SILENCED, Truth};
use ftb_core::space::NameError;
pub use ftb_proto::silence::{
    AHEAD_MAX, DURATION_MAX, FILTER, LIST_BYTES_MAX, REASON_BYTES_MAX, SILENCES_MAX, Silence,
    SilenceError,
};

/// The event space of silences.
pub const SPACE: &str = SILENCE_SPACE;

/// The event that begins a silence.
///
/// # Errors
/// None: its names are constants.
pub fn begin(silence: &Silence) -> Result<Event, NameError> {
    let condition = Condition {
        component: silence.id.clone(),
        is_kept: true,
        ..Condition::new(SILENCED, Truth::True)
    };
    let event = event(SPACE, names::FTB_SILENCE_BEGIN)?;
    Ok(event.payload(silence.text()).condition(condition).build())
}

/// The event that ends a silence.
///
/// # Errors
/// None: its names are constants.
pub fn end(silence: &Silence) -> Result<Event, NameError> {
    let condition = Condition {
        host: silence.host.clone(),
        component: silence.id.clone(),
        is_kept: true,
        ..Condition::new(SILENCED, Truth::False)
    };
    let text = format!("{}: {}", silence.list, silence.reason);
    let event = event(SPACE, names::FTB_SILENCE_END)?;
    Ok(event.payload(text).condition(condition).build())
}
