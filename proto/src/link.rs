//! Frames between agents as messages.
