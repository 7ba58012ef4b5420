//! The node launch agent (NLA) as a pure state machine. Inputs are events, ends of processes, PMI
//! lines and the clock. Outputs are starts, signals, answers and events. Not responsible for
//! processes, sockets and files.
//!
//! The JL repeats each request until it is answered. The NLA answers a duplicate from memory. It
//! refuses and counts requests of an older episode.

mod barrier;
mod hangs;
mod io;
pub mod limits;
mod memory;
mod parking;
pub mod pmi;
mod ranks;
mod requests;
mod saving;

pub use hangs::{HUNG, hung_component};
pub use io::{NlaConfig, NlaInput, NlaOutput, Spawn, StatedHang};

use crate::message::{ExitCause, FromNla, Placement, Protocol};
use crate::migration_state::{Cause, MigrationState};
use crate::names::{Episode, Ranks, SetId};
use barrier::{Incoming, LastBarrier};
use core::time::Duration;
use ftb_core::Now;
use hangs::Hangs;
use parking::Parking;
use pmi::PmiServer;
use ranks::{Process, ProcessState};
use requests::Answers;
use saving::{Restoring, Saving};
use std::collections::BTreeMap;

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// The open or last migration with this node as source.
#[derive(Clone, Debug)]
struct ArmedMigration {
    episode: Episode,
    set: SetId,
    ranks: Ranks,
}

/// Refused requests by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Requests of an older episode.
    pub stale: u64,
    /// Requests without an edge from the present state.
    pub state: u64,
}

#[derive(Clone, Debug)]
pub struct Nla {
    config: NlaConfig,
    state: MigrationState,
    /// How often the state has changed.
    changes: u64,
    episode: Episode,
    /// Ranks of the job, as of the last start of all.
    size: u32,
    /// Ranks that made the set of that start, if not `size`.
    set_size: Option<u32>,
    processes: BTreeMap<u32, Process>,
    armed: Option<ArmedMigration>,
    answers: Answers,
    pmi: PmiServer,
    /// The barrier of the next `barrier_in`.
    barrier: u64,
    barrier_repeat_ns: Option<u64>,
    incoming: Incoming,
    last_barrier: LastBarrier,
    signal_episode: Episode,
    heard_ns: u64,
    /// Whether a JL was ever received.
    heard: bool,
    ending: Option<Ending>,
    saving: Option<Saving>,
    restoring: Option<Restoring>,
    parking: Parking,
    hangs: Hangs,
    refused: Refused,
}

#[derive(Clone, Debug)]
struct Ending {
    episode: Episode,
    kill_ns: u64,
    killed: bool,
    /// An end terminates ranks gracefully, and the NLA leaves. A reset kills them, and the NLA
    /// stays.
    leave: bool,
}

impl Nla {
    /// An NLA on a primary node ([`MigrationState::Ready`]) or on a hot spare
    /// ([`MigrationState::Spare`]).
    pub fn new(now: Now, config: NlaConfig, spare: bool) -> Self {
        let state = if spare { MigrationState::Spare } else { MigrationState::Ready };
        Self {
            pmi: PmiServer::new(config.job.as_str(), config.size, String::new()),
            size: config.size,
            config,
            state,
            changes: 0,
            episode: Episode(0),
            set_size: None,
            processes: BTreeMap::new(),
            armed: None,
            answers: Answers::default(),
            barrier: 1,
            barrier_repeat_ns: None,
            incoming: Incoming::default(),
            last_barrier: LastBarrier::default(),
            signal_episode: Episode(0),
            heard_ns: now.mono_ns,
            heard: false,
            ending: None,
            saving: None,
            restoring: None,
            parking: Parking::default(),
            hangs: Hangs::default(),
            refused: Refused::default(),
        }
    }

    pub fn state(&self) -> MigrationState {
        self.state
    }

    pub fn refused(&self) -> Refused {
        self.refused
    }

    /// When [`NlaInput::Tick`] is due, in monotonic nanoseconds.
    pub fn next_deadline_ns(&self) -> u64 {
        let orphan = self.orphan_ns();
        let barrier = self.barrier_repeat_ns.unwrap_or(u64::MAX);
        let ending = self.ending.as_ref().filter(|ending| !ending.killed);
        let kill = ending.map_or(u64::MAX, |ending| ending.kill_ns);
        let last = self.last_barrier_ns();
        let saving = self.saving_deadline_ns().min(self.hangs.next_deadline_ns());
        let parking = self.parking_deadline_ns();
        orphan.min(barrier).min(kill).min(last).min(saving).min(parking)
    }

    pub fn handle(&mut self, now: Now, input: NlaInput, out: &mut Vec<NlaOutput>) {
        match input {
            NlaInput::Started => out.push(self.ready()),
            NlaInput::Jl(message) => {
                self.heard_ns = now.mono_ns;
                self.heard = true;
                self.on_jl(now, message, out);
            }
            NlaInput::Ended { rank, incarnation, how, image } => {
                self.on_ended(now, rank, incarnation, how, image, out)
            }
            NlaInput::SpawnFailed { rank, incarnation, reason } => {
                self.on_spawn_failed(rank, incarnation, reason, out)
            }
            NlaInput::PmiLine { rank, incarnation, line } => {
                self.on_pmi_line(now, rank, incarnation, &line, out)
            }
            NlaInput::CopyEnded { episode, result } => self.on_copy_ended(episode, result, out),
            NlaInput::ProtectEnded { episode, result } => {
                self.on_protect_ended(episode, result, out);
            }
            NlaInput::Prepared { episode, result } => self.on_prepared(now, episode, result, out),
            NlaInput::Looping { episode, loop_id } => {
                self.on_looping(now, episode, loop_id, out);
            }
            NlaInput::Worked { rank, incarnation, activity } => {
                self.on_worked(rank, incarnation, activity);
            }
            NlaInput::Sampled(samples) => self.on_sampled(now, &samples, out),
            NlaInput::Stated(stated) => self.on_stated(&stated, out),
            NlaInput::Saved { episode, result } => self.on_saved(episode, result, out),
            NlaInput::Restored { incarnation, result } => {
                self.on_restored(now, incarnation, result, out);
            }
            NlaInput::ParkStarted(result) => self.on_park_started(now, result, out),
            NlaInput::Parked { pid } => self.on_parked(now, pid),
            NlaInput::Adopted { pid } => self.on_adopted(pid),
            NlaInput::ParkedEnded { pid, how, said } => {
                self.on_parked_ended(now, pid, (how, said), out);
            }
            NlaInput::Tick => {}
        }
        self.on_tick(now, out);
    }

    /// How long it waits for a JL.
    fn grace(&self) -> Duration {
        let grace = self.config.orphan_grace;
        if self.heard { grace } else { grace.min(limits::FIRST_GRACE) }
    }

    fn orphan_ns(&self) -> u64 {
        let heard = Now { mono_ns: self.heard_ns, wall_ns: 0 };
        heard.deadline_ns(self.grace())
    }

    fn on_tick(&mut self, now: Now, out: &mut Vec<NlaOutput>) {
        if now.mono_ns >= self.orphan_ns() && self.ending.is_none() {
            out.push(NlaOutput::Note(format!(
                "no message of the job launcher for {:?}: the ranks of this node are ended",
                self.grace()
            )));
            self.end(now, self.episode, out);
        }
        if self.barrier_repeat_ns.is_some_and(|at| now.mono_ns >= at) {
            self.enter_barrier(now, out);
        }
        if let Some(ending) = &mut self.ending
            && !ending.killed
            && now.mono_ns >= ending.kill_ns
        {
            ending.killed = true;
            self.signal_all(SIGKILL, out);
        }
        self.last_barrier_tick(now, out);
        self.saving_tick(now, out);
        self.sample_tick(now, out);
        self.parking_tick(now, out);
        self.check_ended(out);
    }

    fn ready(&self) -> NlaOutput {
        NlaOutput::Publish(FromNla::Ready {
            state: self.state,
            changes: self.changes,
            ranks: self.running(),
            pmi: self.speaking(Protocol::Pmi),
            joined: self.speaking(Protocol::FtbJob),
            parked: self.parked_report(),
        })
    }

    /// Follows the edge of `cause`. Without an edge the request is refused, counted and logged.
    fn go(&mut self, episode: Episode, cause: Cause, out: &mut Vec<NlaOutput>) -> bool {
        let Some(to) = self.state.next(cause) else {
            self.refused.state += 1;
            out.push(NlaOutput::Note(format!(
                "episode {episode}: {cause:?} has no edge from {}: refused",
                self.state
            )));
            return false;
        };
        let from = core::mem::replace(&mut self.state, to);
        if from != to {
            self.changes += 1;
            let changes = self.changes;
            out.push(NlaOutput::Publish(FromNla::State { episode, from, to, changes }));
        }
        true
    }

    fn on_pmi_line(
        &mut self,
        now: Now,
        rank: u32,
        incarnation: u64,
        line: &str,
        out: &mut Vec<NlaOutput>,
    ) {
        if self.is_refused(rank) {
            return;
        }
        let is_it =
            |p: &&mut Process| p.incarnation == incarnation && p.life == ProcessState::Running;
        let Some(process) = self.processes.get_mut(&rank).filter(is_it) else {
            return;
        };
        process.protocol = process.protocol.max(pmi::protocol_of(rank, line));
        self.has_adopted(rank);
        // A rank that is being ended must not arrive at the barrier of its successors.
        if self.ending.is_some() {
            return;
        }
        match self.pmi.line(rank, line) {
            pmi::PmiResult::Reply(line) => out.push(NlaOutput::PmiReply { rank, line }),
            pmi::PmiResult::Waits => {}
            pmi::PmiResult::Entered => {
                self.last_barrier.entered(now);
                self.enter_barrier(now, out);
            }
            pmi::PmiResult::Abort(code) => {
                self.force_exit(now, rank, incarnation, ExitCause::Exit(code.max(1)), out);
            }
            pmi::PmiResult::Nonsense(why) => {
                out.push(NlaOutput::Note(format!("rank {rank}: {why}: it is killed")));
                self.force_exit(now, rank, incarnation, ExitCause::Signal(SIGKILL), out);
            }
        }
        let serve = |(rank, line)| NlaOutput::PmiReply { rank, line };
        out.extend(self.pmi.served().into_iter().map(serve));
    }

    /// A new start of the job: a fresh key-value space.
    fn new_space(&mut self, size: u32, placement: &Placement, barrier: u64) {
        let mut nodes_of_ranks = vec![0; size as usize];
        for (index, ranks) in placement.values().enumerate() {
            for rank in ranks.iter().filter(|rank| *rank < size) {
                nodes_of_ranks[rank as usize] = index;
            }
        }
        let mapping = pmi::process_mapping(&nodes_of_ranks);
        self.pmi = PmiServer::new(self.config.job.as_str(), size, mapping);
        self.barrier = barrier;
        self.barrier_repeat_ns = None;
        self.incoming = Incoming::default();
        self.last_barrier = LastBarrier::default();
    }

    fn end(&mut self, now: Now, episode: Episode, out: &mut Vec<NlaOutput>) {
        self.ending = Some(Ending {
            episode,
            kill_ns: now.deadline_ns(self.config.kill_grace),
            killed: false,
            leave: true,
        });
        self.cancel_restore(out);
        self.signal_all(SIGTERM, out);
        self.release_parked(now, out);
    }

    fn check_ended(&mut self, out: &mut Vec<NlaOutput>) {
        let Some(ending) = &self.ending else {
            return;
        };
        let parked = ending.leave && !self.parking.is_empty();
        if parked || !self.running().is_empty() {
            return;
        }
        let episode = ending.episode;
        if ending.leave {
            out.push(NlaOutput::Publish(FromNla::Stopped { episode }));
            out.push(NlaOutput::Leave);
        } else {
            self.processes.clear();
            self.armed = None;
            let answer = FromNla::Reset { episode };
            self.answers.keep_reset(episode, answer.clone());
            out.push(NlaOutput::Publish(answer));
        }
        self.ending = None;
    }
}

#[cfg(test)]
mod tests;
