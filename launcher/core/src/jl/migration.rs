//! The migration workflow (thesis, 3.4.2) with the ways back that the thesis leaves out. Each
//! FTB_MIGRATE leads every rank through exactly one suspension and one barrier, with the moved
//! ranks or with those that stayed or came back. Otherwise the job restarts from its last set.

use super::episode::{Context, Handler, Transition, UNHEARD};
use super::job::Job;
use crate::manner::Moves;
use crate::message::{ExitCause, FromJl, FromNla, FromRank, Ipt};
use crate::names::{Episode, NodeName, Ranks, SetId};
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Migration {
    source: NodeName,
    target: Option<NodeName>,
    set: SetId,
    ranks: Ranks,
    tried: Vec<NodeName>,
    /// The target was chosen, and asked for a copy, before the ranks left.
    #[serde(default)]
    early: bool,
    /// The target has all images.
    #[serde(default)]
    copied: bool,
    stage: MigrationStage,
    resumed: BTreeSet<u32>,
    /// Why phase I was cancelled.
    aborted: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum MigrationStage {
    /// Phase I: the ranks of the source write their images and leave.
    Leave,
    /// Phase I is cancelled: ranks that have not left stay.
    Abort,
    Copy,
    /// Phase II: the target starts the ranks.
    Restart,
    /// All ranks meet in the migration barrier.
    Join,
    /// Ranks rebuild their endpoints and go on.
    Resume,
}

impl Migration {
    pub(super) fn open(job: &Job, episode: Episode, source: NodeName) -> (Self, Transition) {
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
            stage: MigrationStage::Leave,
            resumed: BTreeSet::new(),
            aborted: None,
        };
        let transition = migration.leave(job, episode);
        (migration, transition)
    }

    /// Phase I. For ranks in pods the target is chosen now and copies the image while it is
    /// written.
    fn leave(&mut self, job: &Job, episode: Episode) -> Transition {
        let target = job.spare(&self.tried).filter(|_| job.moves() == Moves::Alone);
        self.early = target.is_some();
        let copy = target.map(|target| self.copy_to(episode, target));
        self.next(episode, "leave", job.config.deadlines.leave, copy)
    }

    /// The request to copy the images to this node.
    fn copy_to(&mut self, episode: Episode, target: NodeName) -> FromJl {
        self.tried.push(target.clone());
        self.target = Some(target.clone());
        self.copied = false;
        self.copy(episode, target)
    }

    fn copy(&self, episode: Episode, target: NodeName) -> FromJl {
        let from = Some(self.source.clone());
        FromJl::Copy { episode, from, target, set: self.set.clone(), ranks: self.ranks.clone() }
    }

    /// A phase before the barrier opens. FTB_MIGRATE is repeated in each, because a rank that
    /// missed it would block all others.
    fn next(
        &self,
        episode: Episode,
        phase: &'static str,
        deadline: Duration,
        request: Option<FromJl>,
    ) -> Transition {
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
        Transition::next(phase, deadline, requests.into_iter().flatten().collect())
    }

    pub(super) fn choice(&self) -> String {
        let (ranks, source) = (self.ranks.brief(), &self.source);
        let target = self.target.as_ref().map_or("a spare", NodeName::as_str);
        format!("move ranks {ranks} from {source} to {target}")
    }

    pub(super) fn source(&self) -> &NodeName {
        &self.source
    }

    /// Whether no spare could take the ranks, so that the source took them back.
    pub(super) fn found_no_spare(&self) -> bool {
        self.aborted.is_none() && self.target.as_ref() == Some(&self.source)
    }

    pub(super) fn tried(&self) -> &[NodeName] {
        &self.tried
    }

    /// The target, once chosen.
    pub(super) fn target(&self) -> Option<&NodeName> {
        self.target.as_ref()
    }

    pub(super) fn set(&self) -> &SetId {
        &self.set
    }

    /// The first spare that was not tried; without one, the source takes its ranks back.
    fn choose_target(&mut self, job: &mut Job, episode: Episode) -> Transition {
        let Some(target) = job.spare(&self.tried) else {
            if job.nodes.get(&self.source).is_none_or(|node| node.lost) {
                let (source, why) = (&self.source, job.why_lost(&self.source));
                return Transition::restart(format!("source {source} was lost{why}"));
            }
            let why = job.spares_words(&self.tried);
            let source = &self.source;
            job.tell(format!("no hot spare is left: node {source} takes its ranks back: {why}"));
            let (source, ranks) = (self.source.clone(), self.ranks.clone());
            return self.restart_on(job, episode, source, ranks);
        };
        self.stage = MigrationStage::Copy;
        self.early = false;
        let copy = self.copy_to(episode, target);
        self.next(episode, "copy", job.config.deadlines.copy, Some(copy))
    }

    /// Phase I is complete. The chosen target is used if it is still a spare, otherwise another
    /// one.
    fn have_left(&mut self, job: &mut Job, episode: Episode) -> Transition {
        match self.target.clone().filter(|target| job.is_spare(target)) {
            Some(target) if self.copied => {
                let ranks = self.ranks.clone();
                self.restart_on(job, episode, target, ranks)
            }
            Some(target) => {
                self.stage = MigrationStage::Copy;
                let copy = self.copy(episode, target);
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
    ) -> Transition {
        self.stage = MigrationStage::Restart;
        self.target = Some(target.clone());
        job.incarnation += 1;
        job.start_on(&target, &ranks);
        let ipt = FromJl::MigrateIpt(Ipt {
            episode,
            target,
            ranks,
            set: self.set.clone(),
            incarnation: job.incarnation,
            barrier: job.barrier.number(),
        });
        self.next(episode, "restart", job.config.deadlines.restart, Some(ipt))
    }

    fn abort(&mut self, job: &mut Job, episode: Episode, reason: &str) -> Transition {
        self.stage = MigrationStage::Abort;
        self.aborted = Some(reason.to_owned());
        let source = &self.source;
        job.tell(format!("the migration from {source} is cancelled: {reason}"));
        self.next(episode, "abort", job.config.deadlines.leave, None)
    }

    /// After a cancelled phase I: when each rank of the source has left or arrived at the barrier,
    /// those that left start again on the source.
    fn check_aborted(&mut self, job: &mut Job, episode: Episode) -> Transition {
        let stayed = job.barrier.arrived(&self.source);
        let left = |rank: u32| {
            let row = job.ranks.get(rank as usize);
            row.is_some_and(|row| row.ended == Some(ExitCause::Left))
        };
        let gone: Ranks = self.ranks.iter().filter(|rank| left(*rank)).collect();
        let known = self.ranks.iter().all(|rank| gone.has(rank) || stayed.has(rank));
        if job.moves() != Moves::Meeting || !known || gone.is_empty() || stayed.is_empty() {
            // All have left: FTB_MIGRATE_PIC follows. None has left: the barrier follows.
            return Transition::Stay;
        }
        let source = self.source.clone();
        self.restart_on(job, episode, source, gone)
    }

    fn moved(&self) -> bool {
        let started = matches!(
            self.stage,
            MigrationStage::Restart | MigrationStage::Join | MigrationStage::Resume
        );
        started && self.target.as_ref().is_some_and(|t| *t != self.source)
    }

    fn check_resumed(&mut self, job: &mut Job) -> Transition {
        if self.stage != MigrationStage::Resume || self.resumed.len() < job.count() {
            return Transition::Stay;
        }
        self.close("")
    }

    fn close(&self, but: &str) -> Transition {
        let (source, ranks) = (&self.source, self.ranks.brief());
        let words = match &self.target {
            Some(target) if self.moved() => {
                format!("ranks {ranks} moved from {source} to {target}{but}")
            }
            _ => format!("ranks {ranks} stayed on {source}{but}"),
        };
        Transition::Close { done: self.moved(), words }
    }
}

impl Handler for Migration {
    fn on_nla(
        &mut self,
        context: &mut Context<'_>,
        node: &NodeName,
        message: &FromNla,
    ) -> Transition {
        let source = *node == self.source;
        let target = self.target.as_ref() == Some(node);
        match (self.stage, message) {
            (MigrationStage::Leave | MigrationStage::Abort, FromNla::Pic { .. }) if source => {
                self.have_left(context.job, context.episode)
            }
            (MigrationStage::Leave | MigrationStage::Abort, FromNla::Copied { .. }) if target => {
                self.copied = true;
                Transition::Stay
            }
            (MigrationStage::Copy, FromNla::Copied { .. }) if target => {
                let ranks = self.ranks.clone();
                self.restart_on(context.job, context.episode, node.clone(), ranks)
            }
            // The copy may have failed before the ranks left. It is tried once more.
            (MigrationStage::Copy, FromNla::CopyFailed { .. })
                if target && core::mem::take(&mut self.early) =>
            {
                let request = self.copy(context.episode, node.clone());
                self.next(context.episode, "copy", context.job.config.deadlines.copy, Some(request))
            }
            (MigrationStage::Copy, FromNla::CopyFailed { reason, .. }) if target => {
                context.job.tell(format!("node {node} cannot take the images: {reason}"));
                self.choose_target(context.job, context.episode)
            }
            // Other ranks only saw a pause; there is no barrier.
            (MigrationStage::Restart, FromNla::Restarted { .. })
                if target && context.job.moves() == Moves::Alone =>
            {
                self.close("")
            }
            (MigrationStage::Restart, FromNla::Restarted { .. }) if target => {
                self.stage = MigrationStage::Join;
                self.next(context.episode, "join", context.job.config.deadlines.join, None)
            }
            (
                MigrationStage::Restart | MigrationStage::Join,
                FromNla::LaunchFailed { reason, .. },
            ) if target => {
                context.job.tell(format!("node {node} cannot start the ranks: {reason}"));
                if *node == self.source {
                    return Transition::restart(format!("node {node} cannot take its ranks back"));
                }
                self.choose_target(context.job, context.episode)
            }
            _ => Transition::Stay,
        }
    }

    fn on_rank(&mut self, context: &mut Context<'_>, rank: u32, message: &FromRank) -> Transition {
        match (self.stage, message) {
            // An agent saves all ranks of its node or none, so all stay.
            (
                MigrationStage::Leave | MigrationStage::Abort,
                FromRank::CheckpointFailed { reason, .. },
            ) if context.job.moves() == Moves::Alone && self.ranks.has(rank) => {
                self.close(&format!(": {reason}"))
            }
            (MigrationStage::Leave, FromRank::CheckpointFailed { reason, .. })
                if self.ranks.has(rank) =>
            {
                let reason = format!("rank {rank} is not saved: {reason}");
                self.abort(context.job, context.episode, &reason)
            }
            (MigrationStage::Join | MigrationStage::Resume, FromRank::Resumed) => {
                self.resumed.insert(rank);
                self.check_resumed(context.job)
            }
            _ => Transition::Stay,
        }
    }

    fn on_arrived(&mut self, context: &mut Context<'_>, node: &NodeName) -> Transition {
        if self.stage == MigrationStage::Abort && *node == self.source {
            return self.check_aborted(context.job, context.episode);
        }
        Transition::Stay
    }

    fn on_barrier(&mut self, context: &mut Context<'_>) -> Transition {
        match self.stage {
            _ if context.job.moves() == Moves::Alone => Transition::Stay,
            MigrationStage::Abort | MigrationStage::Restart | MigrationStage::Join => {
                self.stage = MigrationStage::Resume;
                Transition::next("resume", context.job.config.deadlines.resume, Vec::new())
            }
            _ => Transition::Stay,
        }
    }

    fn on_exit(&mut self, context: &mut Context<'_>, rank: u32, how: ExitCause) -> Transition {
        match how {
            ExitCause::Exit(0) | ExitCause::Left
                if self.stage == MigrationStage::Abort && self.ranks.has(rank) =>
            {
                self.check_aborted(context.job, context.episode)
            }
            ExitCause::Exit(0) | ExitCause::Left => Transition::Stay,
            how => Transition::died(context.job, rank, how),
        }
    }

    fn on_lost(&mut self, context: &mut Context<'_>, node: &NodeName) -> Transition {
        let target = self.target.as_ref() == Some(node);
        let why = context.job.why_lost(node);
        match self.stage {
            // No rank has left: another node can be the target.
            MigrationStage::Leave if target => self.leave(context.job, context.episode),
            MigrationStage::Abort if target => {
                self.target = None;
                Transition::Stay
            }
            // The source still has the images: another target can fetch them.
            MigrationStage::Copy | MigrationStage::Restart | MigrationStage::Join
                if target && *node != self.source =>
            {
                self.choose_target(context.job, context.episode)
            }
            MigrationStage::Leave | MigrationStage::Abort | MigrationStage::Copy
                if *node == self.source =>
            {
                Transition::restart(format!("source {node} was lost during its migration{why}"))
            }
            _ if context.job.ranks_on(node).is_empty() => Transition::Stay,
            _ if *node != self.source || !self.moved() => {
                Transition::restart(format!("node {node} was lost during a migration{why}"))
            }
            _ => Transition::Stay,
        }
    }

    /// The source still has the images: another target can fetch them.
    fn on_unusable(&mut self, context: &mut Context<'_>, node: &NodeName) -> Transition {
        let is_target = self.target.as_ref() == Some(node);
        let another = context.job.spare(&self.tried).is_some();
        match self.stage {
            MigrationStage::Copy if is_target && another => {
                self.choose_target(context.job, context.episode)
            }
            _ => Transition::Stay,
        }
    }

    /// The ranks have met; each reports only once that it resumed.
    fn on_adopted(&mut self, _: &mut Context<'_>) -> Transition {
        match self.stage {
            MigrationStage::Resume => self.close(UNHEARD),
            _ => Transition::Stay,
        }
    }

    fn on_deadline(&mut self, context: &mut Context<'_>) -> Transition {
        match self.stage {
            MigrationStage::Leave => {
                self.abort(context.job, context.episode, "the ranks did not leave in time")
            }
            // Ranks cannot undo a request, and a slow rank reacts later.
            MigrationStage::Abort => {
                let source = &self.source;
                context.job.tell(format!(
                    "the ranks of {source} have neither left nor stayed yet: the job goes on, and \
                     the launcher waits for them"
                ));
                Transition::Stay
            }
            MigrationStage::Copy => {
                context.job.tell("the images were not copied in time");
                self.choose_target(context.job, context.episode)
            }
            // Its agent lives, otherwise it would count as lost; it needs time.
            MigrationStage::Restart if self.target.as_ref() == Some(&self.source) => {
                let source = &self.source;
                context.job.tell(format!(
                    "node {source} has not taken its ranks back yet: the launcher waits"
                ));
                Transition::Stay
            }
            MigrationStage::Restart => Transition::Lost(self.target.iter().cloned().collect()),
            MigrationStage::Join => {
                Transition::overdue("not all ranks have met in time after the migration")
            }
            MigrationStage::Resume => self.close(", but not every rank reported that it goes on"),
        }
    }

    fn progress(&self, _: &Job) -> Option<(usize, usize)> {
        None
    }
}
