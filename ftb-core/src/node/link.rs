//! What every link has, whatever it is for: a queue of control frames, and when something was last
//! said and heard.

use crate::frame::Frame;
use std::collections::VecDeque;

/// Most control frames that wait for one link. A peer that does not read so many is let go.
pub(super) const CONTROL_FRAMES_MAX: usize = 4_096;

/// What a link is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Accepted; it has not said hello.
    Stranger,
    /// It said hello to us and was welcomed.
    Child,
    /// We said hello; no answer yet, or not one we could take.
    Caller,
    /// Our parent.
    Parent,
    /// Only what is queued is still sent.
    Closing,
}

/// One link.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) role: Role,
    pub(super) control: VecDeque<Frame>,
    /// The shell was told that there is something to pull, and has not yet pulled everything.
    pub(super) ready: bool,
    pub(super) heartbeat_due: bool,
    pub(super) opened_ns: u64,
    pub(super) heard_ns: u64,
    pub(super) said_ns: u64,
    pub(super) certified_hosts: Option<Vec<String>>,
}

impl Link {
    pub(super) fn new(role: Role, now_ns: u64) -> Self {
        Self {
            role,
            control: VecDeque::new(),
            ready: false,
            heartbeat_due: false,
            opened_ns: now_ns,
            heard_ns: now_ns,
            said_ns: now_ns,
            certified_hosts: None,
        }
    }
}
