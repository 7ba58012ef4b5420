//! The processes of the ranks on one node: their starts, their ends, and when all have left.

use super::{Cause, MigrationState, Nla, NlaOutput, SIGKILL, Spawn};
use crate::manner::Saver;
use crate::message::{ExitCause, FromNla, Protocol};
use crate::names::{Episode, Ranks, SetId};
use crate::progress::Activity;
use ftb_core::Now;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProcessState {
    Running,
    Ended(ExitCause),
}

#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) incarnation: u64,
    pub(super) born: Episode,
    pub(super) life: ProcessState,
    /// What it had done when it was last stopped.
    pub(super) activity: Option<Activity>,
    pub(super) protocol: Protocol,
}

impl Nla {
    pub(super) fn running(&self) -> Ranks {
        let alive = self.processes.iter().filter(|(_, p)| p.life == ProcessState::Running);
        alive.map(|(rank, _)| *rank).collect()
    }

    /// Running ranks that speak at least that protocol.
    pub(super) fn speaking(&self, least: Protocol) -> Ranks {
        let speaks = |p: &Process| p.life == ProcessState::Running && p.protocol >= least;
        self.processes.iter().filter(|(_, p)| speaks(p)).map(|(rank, _)| *rank).collect()
    }

    pub(super) fn signal_all(&self, signal: i32, out: &mut Vec<NlaOutput>) {
        let ranks = self.running();
        out.extend(ranks.iter().map(|rank| NlaOutput::Signal { rank, signal }));
    }

    pub(super) fn start(
        &mut self,
        now: Now,
        (episode, incarnation): (Episode, u64),
        ranks: &Ranks,
        restore: Option<&SetId>,
        out: &mut Vec<NlaOutput>,
    ) {
        let others = self.running();
        let local: Ranks = others.iter().chain(ranks.iter()).collect();
        let restored = restore.filter(|_| self.restores() && !ranks.is_empty());
        if let Some(set) = restored.cloned() {
            let ranks = ranks.clone();
            out.push(NlaOutput::Restore { episode, incarnation, set, ranks });
        }
        for rank in ranks.iter() {
            let (life, protocol, activity) = (ProcessState::Running, Protocol::default(), None);
            let process = Process { incarnation, born: episode, life, protocol, activity };
            self.processes.insert(rank, process);
            if restored.is_some() {
                continue;
            }
            let place = local.iter().position(|other| other == rank);
            let spawn = Spawn {
                rank,
                local_rank: place.and_then(|p| u32::try_from(p).ok()).unwrap_or(0),
                local_size: u32::try_from(local.len()).unwrap_or(u32::MAX),
                incarnation,
                episode,
                restore: restore.cloned(),
                size: self.size,
                set_size: self.set_size.filter(|_| restore.is_some()),
            };
            out.push(self.start_rank(now, spawn));
        }
    }

    pub(super) fn on_spawn_failed(
        &mut self,
        rank: u32,
        incarnation: u64,
        reason: String,
        out: &mut Vec<NlaOutput>,
    ) {
        let Some(process) = self.processes.get(&rank) else {
            return;
        };
        if process.incarnation != incarnation {
            return;
        }
        let episode = process.born;
        self.processes.remove(&rank);
        self.answers.forget_starts();
        out.push(NlaOutput::Publish(FromNla::LaunchFailed {
            episode,
            incarnation,
            ranks: Ranks::from_iter([rank]),
            reason,
        }));
    }

    pub(super) fn on_ended(
        &mut self,
        now: Now,
        rank: u32,
        incarnation: u64,
        how: ExitCause,
        image: Option<Episode>,
        out: &mut Vec<NlaOutput>,
    ) {
        let Some(process) = self.processes.get(&rank) else {
            return;
        };
        if process.incarnation != incarnation || process.life != ProcessState::Running {
            return;
        }
        if self.starts_cold(now, (rank, incarnation), how, out) {
            return;
        }
        let Some(process) = self.processes.get_mut(&rank) else {
            return;
        };
        // An image of a migration younger than the process was written by it, so the rank has left.
        // The rank may receive FTB_MIGRATE before this agent.
        let how = match how {
            ExitCause::Exit(0)
                if self.config.manner.saver == Saver::Ranks
                    && image.is_some_and(|of| of > process.born) =>
            {
                ExitCause::Left
            }
            other => other,
        };
        process.life = ProcessState::Ended(how);
        self.pmi.gone(rank);
        self.hang_over(rank, "the rank has ended", out);
        out.push(NlaOutput::Publish(FromNla::Exited {
            episode: self.episode,
            rank,
            incarnation,
            how,
        }));
        self.check_left(out);
        // The ended rank may have been the last one outside the barrier; the earlier report is
        // void.
        if !self.pmi.arrived().is_empty() {
            self.enter_barrier(now, out);
        }
    }

    pub(super) fn on_worked(&mut self, rank: u32, incarnation: u64, activity: Activity) {
        let process = self.processes.get_mut(&rank).filter(|p| p.incarnation == incarnation);
        if let Some(process) = process {
            process.activity = Some(activity);
        }
    }

    /// Phase I is complete when every rank of the source has left with its image written.
    pub(super) fn check_left(&mut self, out: &mut Vec<NlaOutput>) {
        let Some(armed) = self.armed.clone() else {
            return;
        };
        let left = |rank| {
            let process = self.processes.get(&rank);
            process.is_some_and(|p| p.life == ProcessState::Ended(ExitCause::Left))
        };
        if self.state != MigrationState::Arm || !armed.ranks.iter().all(left) {
            return;
        }
        if self.go(armed.episode, Cause::AllLeft, out) {
            let pic = FromNla::Pic { episode: armed.episode, ranks: armed.ranks, set: armed.set };
            self.answers.keep_migrate(armed.episode, pic.clone());
            out.push(NlaOutput::Publish(pic));
        }
    }

    /// Reports the rank as ended this way, and kills it.
    pub(super) fn force_exit(
        &mut self,
        now: Now,
        rank: u32,
        incarnation: u64,
        how: ExitCause,
        out: &mut Vec<NlaOutput>,
    ) {
        out.push(NlaOutput::Signal { rank, signal: SIGKILL });
        self.on_ended(now, rank, incarnation, how, None, out);
    }
}
