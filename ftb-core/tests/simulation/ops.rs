//! What can happen to a simulated cluster, as a list that can be printed, shortened and run again.

use std::fmt;

/// One operation. Agents are named by their rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The process of an agent dies (kill -9): its sockets close.
    Kill(u32),
    /// The power fails: the process dies, and what its disk has not synced is gone.
    PowerLoss(u32),
    /// The process dies, and its disk is gone when it starts again.
    LoseDisk(u32),
    /// The process dies, and the last entries on its disk are missing.
    TearDisk(u32, u32),
    /// The process dies, and the last entries on its disk cannot be read.
    RotDisk(u32, u32),
    /// Nothing can be written to an agent's disk any more.
    FillDisk(u32),
    /// And it can again.
    FreeDisk(u32),
    /// An agent's disk takes nothing for a while, and says nothing.
    StallDisk(u32),
    /// And goes on.
    ResumeDisk(u32),
    /// A host dies: nothing of it is heard any more.
    HostDown(u32),
    /// The agent (and its host) starts again, with nothing in memory.
    Start(u32),
    /// The agent is stopped (SIGSTOP).
    Pause(u32),
    /// And goes on (SIGCONT).
    Continue(u32),
    /// Nothing passes from the first to the second any more.
    CutOneWay(u32, u32),
    /// Nothing passes between ranks below the number and the others.
    Split(u32),
    /// All cuts are gone.
    Heal,
    /// The wall clock of an agent jumps by that number of seconds.
    ClockJump(u32, i32),
    /// All publishers publish that many events.
    Publish(u32),
    /// A client of that agent publishes that many INFO events at once.
    Storm(u32, u32),
    /// A new subscription at that agent, with the narrow (odd) or the wide filter (even).
    Subscribe(u32, u32),
    /// Programs that only state conditions state the next.
    State,
    /// The program of that agent that states conditions dies.
    ClientDies(u32),
    /// And begins another life.
    ClientReturns(u32),
    /// Clients of that agent stop reading.
    Deaf(u32),
    /// And read again.
    Hear(u32),
    /// Subscriptions of that agent are taken back and asked for again, as the client library does
    /// where a program lags behind.
    Resubscribe(u32),
    /// The agent gets SIGTERM.
    Stop(u32),
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Operations and when they happen, in microseconds from the start.
pub type Script = Vec<(u64, Op)>;

pub fn show(script: &Script) -> String {
    script.iter().map(|(at, op)| format!("    ({at}, Op::{op}),\n")).collect()
}

/// Leaves out of a failing script what it fails without.
pub fn shorten(script: &Script, fails: impl Fn(&Script) -> bool) -> Script {
    let mut short = script.clone();
    let mut size = short.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < short.len() {
            let mut without = short.clone();
            without.drain(at..(at + size).min(short.len()));
            if fails(&without) {
                short = without;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    short
}
