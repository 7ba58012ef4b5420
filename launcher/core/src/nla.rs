//! The node launch agent as a pure state machine: events, ends of processes, PMI lines and the clock go in;
//! starts, signals, answers and events come out. Processes, sockets and files are the shell's
//! ([`crate::shell`]).
//!
//! Everything that the JL asks is repeated until it is answered, so each request may come twice: one that
//! is done is answered again from memory. A request of an older episode than one already acted on is
//! refused and counted.

mod fence;
mod io;
pub mod limits;
pub mod pmi;
mod ranks;
mod requests;
mod saving;
pub mod state;

pub use io::{Input, NlaConfig, Output, Spawn};
pub use state::{Cause, MigrationState};

use crate::message::{FromNla, How, Placement, Protocol};
use crate::names::{Episode, Ranks, SetId};
use core::time::Duration;
use fence::{Incoming, Last};
use ftb_core::Now;
use pmi::PmiServer;
use ranks::{Life, Process};
use requests::Answers;
use saving::{Restoring, Saving};
use std::collections::BTreeMap;

/// A signal number that the core itself sends.
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// The migration that this node is, or was last, the source of.
#[derive(Clone, Debug)]
struct Armed {
    episode: Episode,
    set: SetId,
    ranks: Ranks,
}

/// What the NLA refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Requests of an older episode.
    pub stale: u64,
    /// Requests that have no edge from the present state.
    pub state: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Nla {
    config: NlaConfig,
    state: MigrationState,
    /// The newest episode that was acted on.
    episode: Episode,
    /// Ranks of the job, as the last start of all of them has told.
    size: u32,
    /// Ranks that have made the set of that start, where their number was another.
    set_size: Option<u32>,
    processes: BTreeMap<u32, Process>,
    armed: Option<Armed>,
    answers: Answers,
    pmi: PmiServer,
    /// The fence that the next `barrier_in` belongs to.
    fence: u64,
    fence_repeat_ns: Option<u64>,
    incoming: Incoming,
    last_fence: Last,
    signal_episode: Episode,
    heard_ns: u64,
    /// Whether a JL was ever heard.
    heard: bool,
    ending: Option<Ending>,
    saving: Option<Saving>,
    restoring: Option<Restoring>,
    refused: Refused,
}

#[derive(Clone, Debug)]
struct Ending {
    episode: Episode,
    kill_ns: u64,
    killed: bool,
    /// A reset kills at once and the NLA stays; an end is graceful and it leaves.
    leave: bool,
}

impl Nla {
    /// An NLA on a primary node ([`MigrationState::Ready`]) or on a hot spare
    /// ([`MigrationState::Spare`]).
    pub fn new(now: Now, config: NlaConfig, spare: bool) -> Self {
        let state = if spare { MigrationState::Spare } else { MigrationState::Ready };
        Self {
            pmi: PmiServer::new(config.job.as_str(), 0, String::new()),
            config,
            state,
            episode: Episode(0),
            size: 0,
            set_size: None,
            processes: BTreeMap::new(),
            armed: None,
            answers: Answers::default(),
            fence: 1,
            fence_repeat_ns: None,
            incoming: Incoming::default(),
            last_fence: Last::default(),
            signal_episode: Episode(0),
            heard_ns: now.mono_ns,
            heard: false,
            ending: None,
            saving: None,
            restoring: None,
            refused: Refused::default(),
        }
    }

    /// Where the node stands.
    pub fn state(&self) -> MigrationState {
        self.state
    }

    /// What was refused so far.
    pub fn refused(&self) -> Refused {
        self.refused
    }

    /// The next moment at which [`Input::Tick`] is wanted, in monotonic nanoseconds.
    pub fn next_deadline_ns(&self) -> u64 {
        let orphan = self.orphan_ns();
        let fence = self.fence_repeat_ns.unwrap_or(u64::MAX);
        let ending = self.ending.as_ref().filter(|ending| !ending.killed);
        let kill = ending.map_or(u64::MAX, |ending| ending.kill_ns);
        let last = self.last_fence_ns();
        orphan.min(fence).min(kill).min(last).min(self.saving_deadline_ns())
    }

    /// One input.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Started => out.push(self.ready()),
            Input::Jl(message) => {
                self.heard_ns = now.mono_ns;
                self.heard = true;
                self.jl(now, message, out);
            }
            Input::Ended { rank, incarnation, how, image } => {
                self.ended(now, rank, incarnation, how, image, out)
            }
            Input::SpawnFailed { rank, incarnation, reason } => {
                self.spawn_failed(rank, incarnation, reason, out)
            }
            Input::PmiLine { rank, incarnation, line } => {
                self.pmi_line(now, rank, incarnation, &line, out)
            }
            Input::CopyEnded { episode, result } => self.copy_ended(episode, result, out),
            Input::Prepared { episode, result } => self.prepared(now, episode, result, out),
            Input::Worked { rank, incarnation, activity } => {
                self.worked(rank, incarnation, activity);
            }
            Input::Saved { episode, result } => self.saved(episode, result, out),
            Input::Restored { incarnation, result } => {
                self.restored(now, incarnation, result, out);
            }
            Input::Tick => {}
        }
        self.tick(now, out);
    }

    /// How long it waits for a sign of a JL.
    fn grace(&self) -> Duration {
        let grace = self.config.orphan_grace;
        if self.heard { grace } else { grace.min(limits::FIRST_GRACE) }
    }

    fn orphan_ns(&self) -> u64 {
        let heard = Now { mono_ns: self.heard_ns, wall_ns: 0 };
        heard.deadline_ns(self.grace())
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Output>) {
        if now.mono_ns >= self.orphan_ns() && self.ending.is_none() {
            out.push(Output::Note(format!(
                "no sign of the job launcher for {:?}: the ranks of this node are ended",
                self.grace()
            )));
            self.end(now, self.episode, out);
        }
        if self.fence_repeat_ns.is_some_and(|at| now.mono_ns >= at) {
            self.enter_fence(now, out);
        }
        if let Some(ending) = &mut self.ending
            && !ending.killed
            && now.mono_ns >= ending.kill_ns
        {
            ending.killed = true;
            self.signal_all(SIGKILL, out);
        }
        self.last_fence_tick(now, out);
        self.saving_tick(now, out);
        self.check_ended(out);
    }

    fn ready(&self) -> Output {
        Output::Publish(FromNla::Ready {
            state: self.state,
            images: self.config.images.clone(),
            ranks: self.running(),
            pmi: self.speaking(Protocol::Pmi),
            joined: self.speaking(Protocol::FtbJob),
        })
    }

    /// Moves along the edge of `cause`; without one the request is refused, counted and noted.
    fn go(&mut self, episode: Episode, cause: Cause, out: &mut Vec<Output>) -> bool {
        let Some(to) = self.state.next(cause) else {
            self.refused.state += 1;
            out.push(Output::Note(format!(
                "episode {episode}: {cause:?} has no edge from {}: refused",
                self.state
            )));
            return false;
        };
        let from = core::mem::replace(&mut self.state, to);
        if from != to {
            out.push(Output::Publish(FromNla::State { episode, from, to }));
        }
        true
    }

    fn pmi_line(
        &mut self,
        now: Now,
        rank: u32,
        incarnation: u64,
        line: &str,
        out: &mut Vec<Output>,
    ) {
        let is_it = |p: &&mut Process| p.incarnation == incarnation && p.life == Life::Running;
        let Some(process) = self.processes.get_mut(&rank).filter(is_it) else {
            return;
        };
        process.protocol = process.protocol.max(pmi::protocol_of(rank, line));
        // One that is being ended must not get into the fence of its successors.
        if self.ending.is_some() {
            return;
        }
        match self.pmi.line(rank, line) {
            pmi::Asked::Reply(line) => out.push(Output::PmiReply { rank, line }),
            pmi::Asked::Waits => {}
            pmi::Asked::Entered => {
                self.last_fence.entered(now);
                self.enter_fence(now, out);
            }
            pmi::Asked::Abort(code) => {
                self.force_exit(now, rank, incarnation, How::Exit(code.max(1)), out);
            }
            pmi::Asked::Nonsense(why) => {
                out.push(Output::Note(format!("rank {rank}: {why}: it is killed")));
                self.force_exit(now, rank, incarnation, How::Signal(SIGKILL), out);
            }
        }
        let serve = |(rank, line)| Output::PmiReply { rank, line };
        out.extend(self.pmi.served().into_iter().map(serve));
    }

    /// A new start of the job: a fresh key-value space.
    fn new_space(&mut self, size: u32, placement: &Placement, fence: u64) {
        let mut nodes_of_ranks = vec![0; size as usize];
        for (index, ranks) in placement.values().enumerate() {
            for rank in ranks.iter().filter(|rank| *rank < size) {
                nodes_of_ranks[rank as usize] = index;
            }
        }
        let mapping = pmi::process_mapping(&nodes_of_ranks);
        self.pmi = PmiServer::new(self.config.job.as_str(), size, mapping);
        self.fence = fence;
        self.fence_repeat_ns = None;
        self.incoming = Incoming::default();
        self.last_fence = Last::default();
    }

    /// The job ends here.
    fn end(&mut self, now: Now, episode: Episode, out: &mut Vec<Output>) {
        self.ending = Some(Ending {
            episode,
            kill_ns: now.deadline_ns(self.config.kill_grace),
            killed: false,
            leave: true,
        });
        self.signal_all(SIGTERM, out);
    }

    fn check_ended(&mut self, out: &mut Vec<Output>) {
        let Some(ending) = &self.ending else {
            return;
        };
        if !self.running().is_empty() {
            return;
        }
        let episode = ending.episode;
        if ending.leave {
            out.push(Output::Publish(FromNla::Stopped { episode }));
            out.push(Output::Leave);
        } else {
            self.processes.clear();
            self.armed = None;
            let answer = FromNla::Reset { episode };
            self.answers.keep_reset(episode, answer.clone());
            out.push(Output::Publish(answer));
        }
        self.ending = None;
    }
}

#[cfg(test)]
mod tests;
