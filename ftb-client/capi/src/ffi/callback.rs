//! The program's own function, called when an event comes.

use crate::abi::ReceiveEvent;
use core::ffi::{c_int, c_void};

/// `int (*)(FTB_receive_event_t *, void *)`.
pub type Function = unsafe extern "C" fn(*mut ReceiveEvent, *mut c_void) -> c_int;

/// A function of the program and what it wants to be given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callback {
    function: Function,
    argument: *mut c_void,
}

// SAFETY: the pointer is only handed back to the program's function, on the library's thread: that
// is what the program asked for when it subscribed.
unsafe impl Send for Callback {}

impl Callback {
    pub(super) fn new(function: Function, argument: *mut c_void) -> Self {
        Self { function, argument }
    }

    /// Calls it. What it returns means nothing, as in the original.
    pub(crate) fn call(&self, event: &mut ReceiveEvent) {
        // SAFETY: the program gave this function for this purpose, and the event outlives the call.
        let _ = unsafe { (self.function)(event, self.argument) };
    }
}
