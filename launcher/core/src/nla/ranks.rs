//! The processes of the ranks on one node: how they are started, how their ends are told, and when all of them have left.

use super::{Cause, MigrationState, Nla, Output, SIGKILL, Spawn};
use crate::manner::Saver;
use crate::message::{Activity, FromNla, How, Protocol};
use crate::names::{Episode, Ranks, SetId};
use ftb_core::Now;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Running,
    Ended(How),
}

#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) incarnation: u64,
    pub(super) born: Episode,
    pub(super) life: Life,
    /// What it had done when it was last stopped to be saved.
    pub(super) activity: Option<Activity>,
    pub(super) protocol: Protocol,
}

impl Nla {
    pub(super) fn running(&self) -> Ranks {
        let alive = self.processes.iter().filter(|(_, p)| p.life == Life::Running);
        alive.map(|(rank, _)| *rank).collect()
    }

    /// The running ranks that have spoken at least that.
    pub(super) fn speaking(&self, least: Protocol) -> Ranks {
        let speaks = |p: &Process| p.life == Life::Running && p.protocol >= least;
        self.processes.iter().filter(|(_, p)| speaks(p)).map(|(rank, _)| *rank).collect()
    }

    pub(super) fn signal_all(&self, signal: i32, out: &mut Vec<Output>) {
        let ranks = self.running();
        out.extend(ranks.iter().map(|rank| Output::Signal { rank, signal }));
    }

    pub(super) fn start(
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
            let (life, protocol, activity) = (Life::Running, Protocol::default(), None);
            let process = Process { incarnation, born: episode, life, protocol, activity };
            self.processes.insert(rank, process);
            if restored.is_some() {
                continue;
            }
            let place = local.iter().position(|other| other == rank);
            out.push(Output::Spawn(Spawn {
                rank,
                local_rank: place.and_then(|p| u32::try_from(p).ok()).unwrap_or(0),
                local_size: u32::try_from(local.len()).unwrap_or(u32::MAX),
                incarnation,
                episode,
                restore: restore.cloned(),
                size: self.size,
                set_size: self.set_size.filter(|_| restore.is_some()),
            }));
        }
    }

    pub(super) fn spawn_failed(
        &mut self,
        rank: u32,
        incarnation: u64,
        reason: String,
        out: &mut Vec<Output>,
    ) {
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

    pub(super) fn ended(
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
        // The last rank outside the fence may have been this one; and what was told of the fence counts no more.
        if !self.pmi.inside().is_empty() {
            self.enter_fence(now, out);
        }
    }

    pub(super) fn worked(&mut self, rank: u32, incarnation: u64, activity: Activity) {
        let process = self.processes.get_mut(&rank).filter(|p| p.incarnation == incarnation);
        if let Some(process) = process {
            process.activity = Some(activity);
        }
    }

    /// Phase I is complete when every rank of the armed node has left with its image written.
    pub(super) fn check_left(&mut self, out: &mut Vec<Output>) {
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

    /// The rank has said its last word: it is told as ended so and killed.
    pub(super) fn force_exit(
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
}
