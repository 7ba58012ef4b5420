//! The migration of a node's ranks to a hot spare (thesis, 3.4.2), with the ways back that the thesis leaves
//! out. Whatever happens, each FTB_MIGRATE leads every rank through one suspension and one fence: either with
//! the moved ranks, or with those that stayed or came back; if that cannot be, the job restarts from its
//! last set.

use super::episode::{At, Flow, Steps, UNHEARD};
use super::job::Job;
use crate::manner::Moves;
use crate::message::{FromJl, FromNla, FromRank, How, Ipt};
use crate::names::{Episode, NodeName, Ranks, SetId};
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Migration {
    source: NodeName,
    target: Option<NodeName>,
    set: SetId,
    ranks: Ranks,
    tried: Vec<NodeName>,
    /// The target was chosen, and asked for a copy, before the ranks had left.
    #[serde(default)]
    early: bool,
    /// The target has all images.
    #[serde(default)]
    copied: bool,
    stage: Stage,
    resumed: BTreeSet<u32>,
    /// Why phase I was called off.
    aborted: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Stage {
    /// Phase I: the ranks of the source write their images and leave.
    Leave,
    /// Phase I was called off: those that have not left stay.
    Abort,
    /// The images move.
    Copy,
    /// Phase II: the target starts the ranks.
    Restart,
    /// All ranks meet in the migration barrier.
    Join,
    /// They rebuild their endpoints and go on.
    Resume,
}

impl Migration {
    pub(super) fn open(job: &Job, episode: Episode, source: NodeName) -> (Self, Flow) {
        let set = SetId::of_migration(episode);
        let ranks = job.ranks_on(&source);
        let mut migration = Self {
            source,
            target: None,
            set,
            ranks,
            tried: Vec::new(),
            early: false,
            copied: false,
            stage: Stage::Leave,
            resumed: BTreeSet::new(),
            aborted: None,
        };
        let flow = migration.leave(job, episode);
        (migration, flow)
    }

    /// Phase I. Ranks that move alone are on their way as soon as their image begins to be: the target is chosen now.
    fn leave(&mut self, job: &Job, episode: Episode) -> Flow {
        let target = job.spare(&self.tried).filter(|_| job.moves() == Moves::Alone);
        self.early = target.is_some();
        let copy = target.map(|target| self.copy_to(job, episode, target));
        self.next(episode, "leave", job.config.deadlines.leave, copy)
    }

    /// The request that has this node copy the images.
    fn copy_to(&mut self, job: &Job, episode: Episode, target: NodeName) -> FromJl {
        self.tried.push(target.clone());
        self.target = Some(target.clone());
        self.copied = false;
        self.copy(job, episode, target)
    }

    fn copy(&self, job: &Job, episode: Episode, target: NodeName) -> FromJl {
        let source = job.nodes.get(&self.source);
        let from = source.map(|node| node.images.clone()).unwrap_or_default();
        FromJl::Copy { episode, from, target, set: self.set.clone(), ranks: self.ranks.clone() }
    }

    /// A phase before the barrier opens: FTB_MIGRATE is repeated in each of them, since a rank that missed it
    /// would keep all others waiting; who has it already does nothing.
    fn next(
        &self,
        episode: Episode,
        phase: &'static str,
        deadline: Duration,
        request: Option<FromJl>,
    ) -> Flow {
        let migrate = FromJl::Migrate {
            episode,
            source: self.source.clone(),
            set: self.set.clone(),
            ranks: self.ranks.clone(),
        };
        let abort = self.aborted.as_ref().map(|reason| FromJl::MigrateAbort {
            episode,
            source: self.source.clone(),
            reason: reason.clone(),
        });
        let requests = [Some(migrate), abort, request];
        Flow::next(phase, deadline, requests.into_iter().flatten().collect())
    }

    /// The node that is being left.
    pub(super) fn source(&self) -> &NodeName {
        &self.source
    }

    /// Whether no spare could take the ranks, so that the source has taken them back.
    pub(super) fn found_no_spare(&self) -> bool {
        self.aborted.is_none() && self.target.as_ref() == Some(&self.source)
    }

    /// The spares that were to take them.
    pub(super) fn tried(&self) -> &[NodeName] {
        &self.tried
    }

    /// The node that is to take its ranks, once it is chosen.
    #[cfg(test)]
    pub(super) fn target(&self) -> Option<&NodeName> {
        self.target.as_ref()
    }

    /// Its images.
    pub(super) fn set(&self) -> &SetId {
        &self.set
    }

    /// The first spare that was not tried; when there is none, the source takes its ranks back.
    fn choose_target(&mut self, job: &mut Job, episode: Episode) -> Flow {
        let Some(target) = job.spare(&self.tried) else {
            if job.nodes.get(&self.source).is_none_or(|node| node.lost) {
                return Flow::restart(format!("source {} was lost", self.source));
            }
            job.tell(format!("no hot spare is left: node {} takes its ranks back", self.source));
            let (source, ranks) = (self.source.clone(), self.ranks.clone());
            return self.restart_on(job, episode, source, ranks);
        };
        self.stage = Stage::Copy;
        self.early = false;
        let copy = self.copy_to(job, episode, target);
        self.next(episode, "copy", job.config.deadlines.copy, Some(copy))
    }

    /// Phase I is complete. A target that was chosen before is still one, or there is another.
    fn have_left(&mut self, job: &mut Job, episode: Episode) -> Flow {
        match self.target.clone().filter(|target| job.is_spare(target)) {
            Some(target) if self.copied => {
                let ranks = self.ranks.clone();
                self.restart_on(job, episode, target, ranks)
            }
            Some(target) => {
                self.stage = Stage::Copy;
                let copy = self.copy(job, episode, target);
                self.next(episode, "copy", job.config.deadlines.copy, Some(copy))
            }
            None => self.choose_target(job, episode),
        }
    }

    fn restart_on(
        &mut self,
        job: &mut Job,
        episode: Episode,
        target: NodeName,
        ranks: Ranks,
    ) -> Flow {
        self.stage = Stage::Restart;
        self.target = Some(target.clone());
        job.incarnation += 1;
        job.start_on(&target, &ranks);
        let ipt = FromJl::MigrateIpt(Ipt {
            episode,
            target,
            ranks,
            set: self.set.clone(),
            incarnation: job.incarnation,
            fence: job.fence.number(),
        });
        self.next(episode, "restart", job.config.deadlines.restart, Some(ipt))
    }

    fn abort(&mut self, job: &mut Job, episode: Episode, reason: &str) -> Flow {
        self.stage = Stage::Abort;
        self.aborted = Some(reason.to_owned());
        let source = &self.source;
        job.tell(format!("the migration from {source} is called off: {reason}"));
        self.next(episode, "abort", job.config.deadlines.leave, None)
    }

    /// Called off: when each rank of the source has either left or waits in the fence, those that left are
    /// started again where they were.
    fn check_aborted(&mut self, job: &mut Job, episode: Episode) -> Flow {
        let stayed = job.fence.inside(&self.source);
        let left = |rank: u32| {
            let row = job.ranks.get(rank as usize);
            row.is_some_and(|row| row.ended == Some(How::Left))
        };
        let gone: Ranks = self.ranks.iter().filter(|rank| left(*rank)).collect();
        let known = self.ranks.iter().all(|rank| gone.has(rank) || stayed.has(rank));
        if job.moves() != Moves::Meeting || !known || gone.is_empty() || stayed.is_empty() {
            // All gone: FTB_MIGRATE_PIC follows. None gone: the fence follows.
            return Flow::Stay;
        }
        let source = self.source.clone();
        self.restart_on(job, episode, source, gone)
    }

    fn moved(&self) -> bool {
        let begun = matches!(self.stage, Stage::Restart | Stage::Join | Stage::Resume);
        begun && self.target.as_ref().is_some_and(|t| *t != self.source)
    }

    fn check_resumed(&mut self, job: &mut Job) -> Flow {
        if self.stage != Stage::Resume || self.resumed.len() < job.ranks.len() {
            return Flow::Stay;
        }
        self.close("")
    }

    fn close(&self, but: &str) -> Flow {
        let (source, ranks) = (&self.source, self.ranks.join(","));
        let words = match &self.target {
            Some(target) if self.moved() => {
                format!("ranks {ranks} moved from {source} to {target}{but}")
            }
            _ => format!("ranks {ranks} stayed on {source}{but}"),
        };
        Flow::Close { done: self.moved(), words }
    }
}

impl Steps for Migration {
    fn on_nla(&mut self, at: &mut At<'_>, node: &NodeName, message: &FromNla) -> Flow {
        let source = *node == self.source;
        let target = self.target.as_ref() == Some(node);
        match (self.stage, message) {
            (Stage::Leave | Stage::Abort, FromNla::Pic { .. }) if source => {
                self.have_left(at.job, at.episode)
            }
            (Stage::Leave | Stage::Abort, FromNla::Copied { .. }) if target => {
                self.copied = true;
                Flow::Stay
            }
            (Stage::Copy, FromNla::Copied { .. }) if target => {
                let ranks = self.ranks.clone();
                self.restart_on(at.job, at.episode, node.clone(), ranks)
            }
            // It may have failed before the ranks had left. It is asked again, once.
            (Stage::Copy, FromNla::CopyFailed { .. })
                if target && core::mem::take(&mut self.early) =>
            {
                let request = self.copy(at.job, at.episode, node.clone());
                self.next(at.episode, "copy", at.job.config.deadlines.copy, Some(request))
            }
            (Stage::Copy, FromNla::CopyFailed { reason, .. }) if target => {
                at.job.tell(format!("node {node} cannot take the images: {reason}"));
                self.choose_target(at.job, at.episode)
            }
            // The others have only seen a pause: there is no barrier to wait for.
            (Stage::Restart, FromNla::Restarted { .. })
                if target && at.job.moves() == Moves::Alone =>
            {
                self.close("")
            }
            (Stage::Restart, FromNla::Restarted { .. }) if target => {
                self.stage = Stage::Join;
                self.next(at.episode, "join", at.job.config.deadlines.join, None)
            }
            (Stage::Restart | Stage::Join, FromNla::LaunchFailed { reason, .. }) if target => {
                at.job.tell(format!("node {node} cannot start the ranks: {reason}"));
                if *node == self.source {
                    return Flow::restart(format!("node {node} cannot take its ranks back"));
                }
                self.choose_target(at.job, at.episode)
            }
            _ => Flow::Stay,
        }
    }

    fn on_rank(&mut self, at: &mut At<'_>, rank: u32, message: &FromRank) -> Flow {
        match (self.stage, message) {
            // All of them stay: an agent saves all ranks of its node or none.
            (Stage::Leave | Stage::Abort, FromRank::CheckpointFailed { reason, .. })
                if at.job.moves() == Moves::Alone && self.ranks.has(rank) =>
            {
                self.close(&format!(": {reason}"))
            }
            (Stage::Leave, FromRank::CheckpointFailed { reason, .. }) if self.ranks.has(rank) => {
                let reason = format!("rank {rank} is not saved: {reason}");
                self.abort(at.job, at.episode, &reason)
            }
            (Stage::Join | Stage::Resume, FromRank::Resumed) => {
                self.resumed.insert(rank);
                self.check_resumed(at.job)
            }
            _ => Flow::Stay,
        }
    }

    fn on_inside(&mut self, at: &mut At<'_>, node: &NodeName) -> Flow {
        if self.stage == Stage::Abort && *node == self.source {
            return self.check_aborted(at.job, at.episode);
        }
        Flow::Stay
    }

    fn on_fence(&mut self, at: &mut At<'_>) -> Flow {
        match self.stage {
            _ if at.job.moves() == Moves::Alone => Flow::Stay,
            Stage::Abort | Stage::Restart | Stage::Join => {
                self.stage = Stage::Resume;
                Flow::next("resume", at.job.config.deadlines.resume, Vec::new())
            }
            _ => Flow::Stay,
        }
    }

    fn on_exit(&mut self, at: &mut At<'_>, rank: u32, how: How) -> Flow {
        match how {
            How::Exit(0) | How::Left if self.stage == Stage::Abort && self.ranks.has(rank) => {
                self.check_aborted(at.job, at.episode)
            }
            How::Exit(0) | How::Left => Flow::Stay,
            how => Flow::died(rank, how),
        }
    }

    fn on_lost(&mut self, at: &mut At<'_>, node: &NodeName) -> Flow {
        let target = self.target.as_ref() == Some(node);
        match self.stage {
            // Nothing has left yet: another node can be the target.
            Stage::Leave if target => self.leave(at.job, at.episode),
            Stage::Abort if target => {
                self.target = None;
                Flow::Stay
            }
            // The images are still on the source: another target can have them.
            Stage::Copy | Stage::Restart | Stage::Join if target && *node != self.source => {
                self.choose_target(at.job, at.episode)
            }
            Stage::Leave | Stage::Abort | Stage::Copy if *node == self.source => {
                Flow::restart(format!("source {node} was lost during its migration"))
            }
            _ if at.job.ranks_on(node).is_empty() => Flow::Stay,
            _ if *node != self.source || !self.moved() => {
                Flow::restart(format!("node {node} was lost during a migration"))
            }
            _ => Flow::Stay,
        }
    }

    /// All have met. That they go on each rank says once.
    fn on_adopted(&mut self, _: &mut At<'_>) -> Flow {
        match self.stage {
            Stage::Resume => self.close(UNHEARD),
            _ => Flow::Stay,
        }
    }

    fn on_deadline(&mut self, at: &mut At<'_>) -> Flow {
        match self.stage {
            Stage::Leave => self.abort(at.job, at.episode, "the ranks did not leave in time"),
            // What was asked of ranks cannot be taken back, and a slow one reacts later: they go on
            // as before.
            Stage::Abort => {
                let source = &self.source;
                at.job.tell(format!(
                    "the ranks of {source} have neither left nor stayed yet: the job goes on, and \
                     the launcher waits for them"
                ));
                Flow::Stay
            }
            Stage::Copy => {
                at.job.tell("the images were not copied in time");
                self.choose_target(at.job, at.episode)
            }
            // Its agent lives, or it would count as lost: it takes its time to take the ranks back.
            Stage::Restart if self.target.as_ref() == Some(&self.source) => {
                let source = &self.source;
                at.job.tell(format!(
                    "node {source} has not taken its ranks back yet: the launcher waits"
                ));
                Flow::Stay
            }
            Stage::Restart => Flow::Lost(self.target.iter().cloned().collect()),
            Stage::Join => Flow::overdue("not all ranks have met in time after the migration"),
            Stage::Resume => self.close(", but not every rank said that it goes on"),
        }
    }

    /// Who leaves and who comes is told by the phases alone.
    fn progress(&self, _: &Job) -> Option<(usize, usize)> {
        None
    }
}
