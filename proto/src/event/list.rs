//! Reads the events of one message into a [`Run`] that shares the message's buffer.

use super::{EventWireError, check_sealed, span_number};
use bytes::Bytes;
use ftb_core::Run;
use ftb_core::run::RunBuilder;
use ftb_core::sealed::Span;

/// The events of one message.
pub(crate) struct EventReader {
    message: Bytes,
    builder: RunBuilder,
}

impl EventReader {
    /// Nothing read of this message yet.
    pub(crate) fn new(message: Bytes) -> Self {
        Self { message, builder: RunBuilder::default() }
    }

    /// Checks an event, a slice of the message, and adds it. Gives where its payload lies in the
    /// message.
    pub(crate) fn push(&mut self, event: &Bytes) -> Result<Span, EventWireError> {
        let (head, payload) = check_sealed(event)?;
        // Decoding gives slices of the message: the difference of the addresses is the offset.
        let start = (event.as_ptr() as usize).wrapping_sub(self.message.as_ptr() as usize);
        let at = Span { start: span_number(start), len: span_number(event.len()) };
        self.builder.push(&self.message, head, at)?;
        Ok(super::within(at, payload))
    }

    /// All events; `None` without any.
    pub(crate) fn finish(self) -> Result<Option<Run>, EventWireError> {
        Ok(self.builder.finish(self.message)?)
    }
}
