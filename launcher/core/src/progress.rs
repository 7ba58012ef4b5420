//! Hung ranks: which ranks make no progress although their processes live.
//!
//! - [`NodeWatch`], in each NLA, turns samples into how long each rank has stood still.
//! - [`HangJudge`], in the JL, compares the ranks with each other and finds the hung ones.
//!
//! A computing rank is never hung, nor is one that waits for it: without steps of its own
//! (`ftb_progress`, safe points, messages of ftb-job) the kernel shows no difference between an
//! endless loop and work. A rank that has counted steps must go on to do so. Of ranks without steps
//! only one is hung that its peers leave behind: it stands still as it never did, and they go on to
//! exchange data.
//!
//! Not responsible for: samples (`ftb-launcher-pods`), what follows from a finding ([`crate::jl`]).

mod judge;
mod watch;

pub use judge::{Finding, HangChange, HangJudge, HangKind, HangTimes};
pub use watch::NodeWatch;

use crate::names::Ranks;
use serde::{Deserialize, Serialize};

/// What the processes of a rank do, as the kernel shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunState {
    /// It computes or waits.
    #[default]
    Runs,
    /// It waits uninterruptibly: for a file system or a driver (state D).
    WaitsForIo,
    /// A signal has stopped it (state T).
    Stopped,
    /// A debugger traces it.
    Traced,
}

/// What a rank has done since its first start, before a move included. It makes progress when both
/// numbers grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// Processor time of its processes, in milliseconds.
    pub cpu_ms: u64,
    /// Bytes written by its processes, plus TCP data segments and UDP datagrams sent by its pod.
    pub sent: u64,
}

/// One look at a rank: its process group as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Its first process; in a pod as the pod numbers it.
    pub pid: u32,
    pub state: RunState,
    /// Processor time, and bytes written.
    pub done: Activity,
    /// How often the main threads of its processes have waited or were interrupted.
    pub switches: u64,
    /// Calls of `ftb_progress`, safe points and messages of ftb-job; 0: it counts none.
    pub steps: u64,
    /// Bytes that have arrived in its TCP sockets and that it has not read.
    pub unread: u64,
    /// Bytes that its TCP sockets have carried: while it moves, any change shows that it exchanges
    /// data.
    #[serde(default)]
    pub exchanged: u64,
}

/// The sample of one process of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankSample {
    pub rank: u32,
    /// Number of its start.
    pub incarnation: u64,
    pub sample: Sample,
}

/// How long a rank has stood still, as its node has measured it. Times in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankReport {
    pub rank: u32,
    /// Number of its start.
    pub incarnation: u64,
    pub pid: u32,
    pub state: RunState,
    /// Since its state is `state`.
    pub state_ms: u64,
    /// Since it used the processor, waited, wrote or counted a step.
    pub still_ms: u64,
    /// Since it last read all that had arrived, while it stood still.
    pub unread_ms: u64,
    /// Its steps, if it counts them.
    pub steps: Option<StepReport>,
}

/// The steps that a rank counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepReport {
    /// Since the last one.
    pub still_ms: u64,
    /// The longest time between two of them so far.
    pub longest_ms: u64,
}

/// All running ranks of a node. Those that move need no numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Ranks that move and count no steps.
    pub moving: Ranks,
    /// Ranks that have counted steps since the last report.
    pub stepping: Ranks,
    /// The longest step of a rank of this node so far, in milliseconds.
    pub longest_ms: u64,
    pub still: Vec<RankReport>,
    /// Ranks whose TCP sockets have carried data within the last minute.
    #[serde(default)]
    pub exchanging: Ranks,
}
