//! The node launch agent as a pure state machine: events, ends of processes, PMI lines and the clock go in;
//! starts, signals, answers and events come out. Processes, sockets and files are the shell's
//! ([`crate::shell`]).
//!
//! Everything that the JL asks is repeated until it is answered, so each request may come twice: one that
//! is done is answered again from memory. A request of an older episode than one already acted on is
//! refused and counted.

mod fence;
pub mod limits;
pub mod pmi;
mod requests;
mod saving;
pub mod state;

pub use state::{Cause, MigrationState};

use crate::backend::{Manner, Saver};
use crate::message::{FromJl, FromNla, How, Placement, RankSays};
use crate::names::{Episode, JobId, NodeName, Ranks, SetId};
use core::time::Duration;
use fence::{Incoming, Last};
use ftb_core::Now;
use pmi::PmiServer;
use requests::Answers;
use saving::{Restoring, Saving};
use std::collections::BTreeMap;

/// What an NLA is told at its start.
#[derive(Clone, Debug)]
pub struct NlaConfig {
    /// The job.
    pub job: JobId,
    /// Its node.
    pub node: NodeName,
    /// `host:port` of its image server.
    pub images: String,
    /// Without a sign of a JL for so long, it ends its ranks and itself.
    pub orphan_grace: Duration,
    /// Between SIGTERM and SIGKILL when the job ends.
    pub kill_grace: Duration,
    /// Who saves the ranks, and how they move.
    pub manner: Manner,
}

/// What happens to an NLA.
#[derive(Clone, Debug)]
pub enum Input {
    /// Its subscription is active: it may speak.
    Started,
    /// The JL says something.
    Jl(FromJl),
    /// A process that it started has ended.
    Ended {
        /// Which.
        rank: u32,
        /// Of which start.
        incarnation: u64,
        /// By itself or by a signal; never [`How::Left`], that is found out here.
        how: How,
        /// The newest migration for which this rank's image is on this node's disk.
        image: Option<Episode>,
    },
    /// A process could not be started.
    SpawnFailed {
        /// Which.
        rank: u32,
        /// Of which start.
        incarnation: u64,
        /// Why.
        reason: String,
    },
    /// A rank wrote a line, or a message, to its PMI socket.
    PmiLine {
        /// Which.
        rank: u32,
        /// Of which start.
        incarnation: u64,
        /// Without the newline.
        line: String,
    },
    /// A copy ended.
    CopyEnded {
        /// For which remedy.
        episode: Episode,
        /// Bytes copied and verified, or why not.
        result: Result<u64, String>,
    },
    /// The ranks are ready to be saved, and every word of theirs has been told before; or they are not.
    Prepared {
        /// For which episode.
        episode: Episode,
        /// Why not.
        result: Result<(), String>,
    },
    /// The ranks are saved, or go on unsaved.
    Saved {
        /// In which episode.
        episode: Episode,
        /// Each rank with the bytes of its image, or why not.
        result: Result<Vec<(u32, u64)>, String>,
    },
    /// The ranks of [`Output::Restore`] live, or none of them does.
    Restored {
        /// Of which start.
        incarnation: u64,
        /// The key-value space that was saved with them, or why not.
        result: Result<String, String>,
    },
    /// A deadline may have passed.
    Tick,
}

/// What the shell is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Publish.
    Publish(FromNla),
    /// Start a process.
    Spawn {
        /// Which.
        rank: u32,
        /// Its place among the ranks of this node.
        local_rank: u32,
        /// How many ranks this node has.
        local_size: u32,
        /// Of which start.
        incarnation: u64,
        /// The episode that starts it.
        episode: Episode,
        /// The set to restore from.
        restore: Option<SetId>,
        /// How many ranks the job has.
        size: u32,
        /// How many ranks have made the set, where that is another number.
        set_size: Option<u32>,
    },
    /// Send a signal to the process group of a rank.
    Signal {
        /// Which.
        rank: u32,
        /// Which signal.
        signal: i32,
    },
    /// Write to the PMI socket of a rank.
    PmiReply {
        /// Which.
        rank: u32,
        /// As it is.
        line: String,
    },
    /// Fetch images.
    Copy {
        /// For which remedy.
        episode: Episode,
        /// `host:port` of the server.
        from: String,
        /// Which set.
        set: SetId,
        /// Whose.
        ranks: Ranks,
    },
    /// Make the ranks ready to be saved: answered by [`Input::Prepared`].
    Prepare {
        /// The episode.
        episode: Episode,
        /// Name of the images.
        set: SetId,
        /// All ranks of the node.
        ranks: Ranks,
    },
    /// Save them: answered by [`Input::Saved`].
    Save {
        /// The episode.
        episode: Episode,
        /// Name of the images.
        set: SetId,
        /// All ranks of the node.
        ranks: Ranks,
        /// They are gone afterwards, without a word of their end.
        leave: bool,
        /// The PMI key-value space, saved with them.
        space: String,
    },
    /// Undo what was prepared: the ranks go on.
    Release {
        /// The episode.
        episode: Episode,
    },
    /// Bring ranks to life from their images, all of them or none: answered by [`Input::Restored`].
    Restore {
        /// The episode that starts them.
        episode: Episode,
        /// Of which start.
        incarnation: u64,
        /// From which set.
        set: SetId,
        /// Which.
        ranks: Ranks,
    },
    /// Publish on behalf of a rank that cannot.
    PublishFor(RankSays),
    /// Delete the images of a set.
    DropSet(SetId),
    /// For the log: something was refused, or goes wrong.
    Note(String),
    /// Leave.
    Leave,
}

/// A signal number that the core itself sends.
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Life {
    Running,
    Ended(How),
}

#[derive(Clone, Debug)]
struct Process {
    incarnation: u64,
    born: Episode,
    life: Life,
}

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
    /// The checkpoint for which a rank in a fence has no time, and how long that may be.
    put_off: Option<(Episode, u64)>,
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
            put_off: None,
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
            Input::Prepared { episode, result } => self.prepared(episode, result, out),
            Input::Saved { episode, result } => self.saved(episode, result, out),
            Input::Restored { incarnation, result } => self.restored(incarnation, result, out),
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
        })
    }

    fn running(&self) -> Ranks {
        let alive = self.processes.iter().filter(|(_, p)| p.life == Life::Running);
        alive.map(|(rank, _)| *rank).collect()
    }

    fn signal_all(&self, signal: i32, out: &mut Vec<Output>) {
        let ranks = self.running();
        out.extend(ranks.iter().map(|rank| Output::Signal { rank, signal }));
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

    fn start(
        &mut self,
        episode: Episode,
        incarnation: u64,
        ranks: &Ranks,
        restore: Option<&SetId>,
        out: &mut Vec<Output>,
    ) {
        let others = self.running();
        let local: Ranks = others.iter().chain(ranks.iter()).collect();
        let restored = restore.filter(|_| self.restores() && !ranks.is_empty());
        if let Some(set) = restored.cloned() {
            let ranks = ranks.clone();
            out.push(Output::Restore { episode, incarnation, set, ranks });
        }
        for rank in ranks.iter() {
            let process = Process { incarnation, born: episode, life: Life::Running };
            self.processes.insert(rank, process);
            if restored.is_some() {
                continue;
            }
            let place = local.iter().position(|other| other == rank);
            out.push(Output::Spawn {
                rank,
                local_rank: place.and_then(|p| u32::try_from(p).ok()).unwrap_or(0),
                local_size: u32::try_from(local.len()).unwrap_or(u32::MAX),
                incarnation,
                episode,
                restore: restore.cloned(),
                size: self.size,
                set_size: self.set_size.filter(|_| restore.is_some()),
            });
        }
    }

    fn spawn_failed(&mut self, rank: u32, incarnation: u64, reason: String, out: &mut Vec<Output>) {
        let Some(process) = self.processes.get(&rank) else {
            return;
        };
        if process.incarnation != incarnation {
            return;
        }
        self.processes.remove(&rank);
        self.answers.forget_starts();
        out.push(Output::Publish(FromNla::LaunchFailed {
            episode: self.episode,
            incarnation,
            ranks: Ranks::from_iter([rank]),
            reason,
        }));
    }

    fn ended(
        &mut self,
        now: Now,
        rank: u32,
        incarnation: u64,
        how: How,
        image: Option<Episode>,
        out: &mut Vec<Output>,
    ) {
        let Some(process) = self.processes.get_mut(&rank) else {
            return;
        };
        if process.incarnation != incarnation || process.life != Life::Running {
            return;
        }
        // An image of a migration younger than the process was written by it: it has left. The rank may
        // hear of the migration before this agent does, so whether this node is armed says nothing.
        let how = match how {
            How::Exit(0)
                if self.config.manner.saver == Saver::Ranks
                    && image.is_some_and(|of| of > process.born) =>
            {
                How::Left
            }
            other => other,
        };
        process.life = Life::Ended(how);
        self.pmi.gone(rank);
        out.push(Output::Publish(FromNla::Exited {
            episode: self.episode,
            rank,
            incarnation,
            how,
        }));
        self.check_left(out);
        // The last rank outside the fence may have been this one.
        if !self.pmi.inside().is_empty() && self.fence_repeat_ns.is_none() {
            self.enter_fence(now, out);
        }
    }

    /// Phase I is complete when every rank of the armed node has left with its image written.
    fn check_left(&mut self, out: &mut Vec<Output>) {
        let Some(armed) = self.armed.clone() else {
            return;
        };
        let left = |rank| {
            let process = self.processes.get(&rank);
            process.is_some_and(|p| p.life == Life::Ended(How::Left))
        };
        if self.state != MigrationState::Arm || !armed.ranks.iter().all(left) {
            return;
        }
        if self.go(armed.episode, Cause::AllLeft, out) {
            let pic = FromNla::Pic { episode: armed.episode, ranks: armed.ranks, set: armed.set };
            self.answers.keep_migrate(armed.episode, pic.clone());
            out.push(Output::Publish(pic));
        }
    }

    fn pmi_line(
        &mut self,
        now: Now,
        rank: u32,
        incarnation: u64,
        line: &str,
        out: &mut Vec<Output>,
    ) {
        let process = self.processes.get(&rank);
        if !process.is_some_and(|p| p.incarnation == incarnation && p.life == Life::Running) {
            return;
        }
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

    /// The rank has said its last word: it is told as ended so and killed.
    fn force_exit(
        &mut self,
        now: Now,
        rank: u32,
        incarnation: u64,
        how: How,
        out: &mut Vec<Output>,
    ) {
        out.push(Output::Signal { rank, signal: SIGKILL });
        self.ended(now, rank, incarnation, how, None, out);
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
