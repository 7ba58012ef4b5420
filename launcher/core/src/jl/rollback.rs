//! Recovery in place. Survivors restore their own state of the last set. Dead ranks are started
//! from their images, those of a lost node on a spare, or are left out (`job/shrink.rs`). All
//! meet in one barrier. No survivor is killed.
//!
//! A further death before the barrier opens adds a round to the same episode. Ranks at the barrier
//! hold their state of the set and have done nothing since, so they stay. The newly dead start with
//! a newer incarnation. A round begins when the requests of the round before are answered, so no
//! node has two open starts. A survivor may die once; the death of a rank that this recovery
//! started counts as a recovery of its own, which bounds the rounds.
//!
//! A death after the barrier belongs to the next episode.
//!
//! A rank's FTB_ROLLBACK_FAILED counts when its launch agent answers after it. If the rank or the
//! agent has died, the death counts instead.
//!
//! On any other failure the whole job restarts from the set ([`super::start`]).

use super::JlOutput;
use super::episode::{Context, Handler, Transition, UNHEARD};
use super::job::{Job, NodeFaults};
use super::start::EXIT_TORN_IMAGE;
use crate::message::{ExitCause, FromJl, FromNla, FromRank, Ipt, Placement};
use crate::names::{Episode, NodeName, Ranks, SetId};
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rollback {
    set: SetId,
    /// Ranks that were started again; they do not go back.
    dead: Ranks,
    /// Ranks that this recovery has left out.
    #[serde(default)]
    left: Ranks,
    /// The images that nodes fetch.
    #[serde(default)]
    fetching: Placement,
    /// Ranks to start in this round.
    starts: Placement,
    stage: RollbackStage,
    /// Nodes that have not answered.
    waiting: BTreeSet<NodeName>,
    /// A rank died in this round; another round follows.
    #[serde(default)]
    again: bool,
    resumed: BTreeSet<u32>,
    /// Ranks that cannot go back, with the reason, whose launch agents have not answered since.
    #[serde(default)]
    refusals: BTreeMap<u32, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum RollbackStage {
    /// Nodes without the images of their ranks fetch them.
    Copy,
    /// Survivors go back; dead ranks start.
    Restart,
    /// All of them meet.
    Join,
    /// Ranks connect and go on.
    Resume,
}

/// Ranks that died since the last look, and the new placement.
struct Losses {
    dead: Ranks,
    /// Those that are not started again.
    left: Ranks,
    placement: Placement,
}

impl Rollback {
    /// Opens the recovery to `set`.
    ///
    /// # Errors
    /// Why recovery in place is impossible.
    pub(super) fn open(
        job: &mut Job,
        episode: Episode,
        set: SetId,
    ) -> Result<(Self, Transition), &'static str> {
        if !job.met {
            return Err("not all ranks have met since they were started");
        }
        if job.other_size(&set).is_some() {
            return Err("its set is of another number of ranks");
        }
        let losses = losses(job)?;
        job.met = false;
        let mut rollback = Self {
            set,
            dead: Ranks::default(),
            left: Ranks::default(),
            fetching: Placement::new(),
            starts: Placement::new(),
            stage: RollbackStage::Copy,
            waiting: BTreeSet::new(),
            again: false,
            resumed: BTreeSet::new(),
            refusals: BTreeMap::new(),
        };
        let transition = rollback.round(job, episode, losses);
        Ok((rollback, transition))
    }

    /// Whether all ranks have met. A later death belongs to the next episode.
    pub(super) fn has_met(&self) -> bool {
        self.stage == RollbackStage::Resume
    }

    /// Whether the barrier stays closed: successors of ranks that are left out fetch their images.
    pub(super) fn is_closed(&self) -> bool {
        self.stage == RollbackStage::Copy
    }

    /// Ranks that count again if the job cannot go back in place.
    pub(super) fn left(&self) -> &Ranks {
        &self.left
    }

    /// Places the dead ranks, copies missing images, then starts the ranks.
    fn round(&mut self, job: &mut Job, episode: Episode, losses: Losses) -> Transition {
        let Losses { dead, left, placement } = losses;
        self.again = false;
        self.stage = RollbackStage::Copy;
        job.incarnation += 1;
        job.leave_out(&left, true);
        self.left.0.extend(left.0);
        let on = |(node, ranks): (&NodeName, &Ranks)| {
            let here: Ranks = ranks.iter().filter(|rank| dead.has(*rank)).collect();
            (!here.is_empty()).then(|| (node.clone(), here))
        };
        self.starts = placement.iter().filter_map(on).collect();
        for (node, ranks) in &self.starts {
            job.start_on(node, ranks);
        }
        self.fetching.clear();
        self.fetch(job, episode)
    }

    /// Nodes without images that they need fetch them, those of one share at a time.
    fn fetch(&mut self, job: &mut Job, episode: Episode) -> Transition {
        let missing = job.missing(&self.set, &job.placement());
        if missing.is_empty() {
            return self.restart(job, episode);
        }
        if missing == self.fetching {
            return Transition::restart("images that were fetched are missing");
        }
        self.waiting = missing.keys().cloned().collect();
        let requests = job.fetches(episode, &self.set, &missing);
        self.fetching = missing;
        match requests {
            Ok(requests) => self.next(job, episode, "copy", job.config.deadlines.copy, requests),
            Err(why) => Transition::restart(format!("the images cannot be had: {why}")),
        }
    }

    /// A rank died: the next round starts when this one has its answers.
    fn further(&mut self, job: &mut Job, episode: Episode) -> Transition {
        self.again = true;
        match self.stage {
            RollbackStage::Copy | RollbackStage::Restart if !self.waiting.is_empty() => {
                Transition::Stay
            }
            _ => self.answered(job, episode),
        }
    }

    /// All nodes that were asked have answered or are lost.
    fn answered(&mut self, job: &mut Job, episode: Episode) -> Transition {
        if self.stage == RollbackStage::Copy {
            let lost = |node: &NodeName| job.nodes.get(node).is_none_or(|node| node.lost);
            let mut fetched = self.fetching.clone();
            fetched.retain(|node, _| !lost(node));
            // Of a set in the store the nodes hold what they need, or fetch it again.
            if !self.set.is_on_nodes() {
                fetched = job.needed(&self.set, &job.placement());
            }
            job.has_fetched(&self.set, &fetched);
        }
        if !self.again {
            return match self.stage {
                RollbackStage::Copy => self.fetch(job, episode),
                _ => self.join(job, episode),
            };
        }
        let mut losses = match losses(job) {
            Ok(losses) => losses,
            Err(why) => {
                return Transition::restart(format!("the job cannot go back in place: {why}"));
            }
        };
        if losses.dead.iter().any(|rank| self.dead.has(rank)) {
            let (restarts, max) = (job.restarts, job.config.restarts_max);
            if restarts >= max {
                let words = format!("{restarts} recoveries without a new set in between");
                return Transition::End { code: 1, words };
            }
            job.restarts += 1;
        }
        let (ranks, left) = (losses.dead.brief(), losses.left.brief());
        if !ranks.is_empty() {
            job.tell(format!(
                "rank {ranks} died while the job went back in place: it is started too"
            ));
        }
        if !left.is_empty() {
            job.tell(format!(
                "rank {left} died while the job went back in place: it is left out too"
            ));
        }
        if self.stage == RollbackStage::Copy {
            losses.dead.0.extend(self.due().0);
        }
        self.round(job, episode, losses)
    }

    /// Ranks to start in this round.
    fn due(&self) -> Ranks {
        self.starts.values().flat_map(Ranks::iter).collect()
    }

    /// A phase before the barrier opens. FTB_JL_ROLLBACK is repeated, because a survivor that
    /// missed it would block all others. Lost nodes that still live are evicted again.
    fn next(
        &self,
        job: &Job,
        episode: Episode,
        phase: &'static str,
        deadline: Duration,
        more: Vec<FromJl>,
    ) -> Transition {
        let ranks = self.dead.iter().chain(self.left.iter()).collect();
        let left = self.left.clone();
        let rollback = FromJl::Rollback { episode, set: self.set.clone(), ranks, left };
        // Survivors go back when the images are in place.
        let reported = (self.stage != RollbackStage::Copy).then_some(rollback);
        let lost = job.nodes.iter().filter(|(_, node)| node.lost && !node.arriving);
        let evicts = lost.map(|(target, _)| FromJl::Evict { episode, target: target.clone() });
        let requests = reported.into_iter().chain(evicts).chain(more).collect();
        Transition::next(phase, deadline, requests)
    }

    fn restart(&mut self, job: &mut Job, episode: Episode) -> Transition {
        self.stage = RollbackStage::Restart;
        self.dead.0.extend(self.due().0);
        self.waiting = self.starts.keys().cloned().collect();
        if self.starts.is_empty() {
            return self.join(job, episode);
        }
        let ipt = |(target, ranks): (&NodeName, &Ranks)| {
            FromJl::MigrateIpt(Ipt {
                episode,
                target: target.clone(),
                ranks: ranks.clone(),
                set: self.set.clone(),
                incarnation: job.incarnation,
                barrier: job.barrier.number(),
            })
        };
        let starts = self.starts.iter().map(ipt).collect();
        self.next(job, episode, "restart", job.config.deadlines.restart, starts)
    }

    fn join(&mut self, job: &Job, episode: Episode) -> Transition {
        self.stage = RollbackStage::Join;
        self.next(job, episode, "join", job.config.deadlines.join, Vec::new())
    }

    /// Whether another process replaces this rank's process, now or soon.
    fn is_replaced(&self, job: &Job, rank: u32) -> bool {
        self.dead.has(rank) || self.due().has(rank) || job.has_died(rank)
    }

    /// A launch agent that lives confirms the refusals of its ranks.
    fn refused_on(&self, job: &mut Job, node: &NodeName) -> Option<Transition> {
        let here = |rank: u32| job.ranks.get(rank as usize).is_some_and(|row| row.node == *node);
        let (rank, reason) = self.refusals.iter().find(|(rank, _)| here(**rank))?;
        job.undivided |= !self.left.is_empty();
        Some(Transition::restart(format!("rank {rank} cannot go back in place: {reason}")))
    }

    fn check_resumed(&self, job: &Job) -> Transition {
        if self.stage != RollbackStage::Resume || self.resumed.len() < job.count() {
            return Transition::Stay;
        }
        self.close(job, "")
    }

    fn close(&self, job: &Job, but: &str) -> Transition {
        let dead = self.dead.iter().filter(|rank| !self.left.has(*rank)).count();
        let survivors = job.count() - dead;
        let starts = job.placement().into_iter().filter_map(|(node, ranks)| {
            let again: Ranks = ranks.iter().filter(|rank| self.dead.has(*rank)).collect();
            (!again.is_empty()).then(|| format!("{} on {node}", again.brief()))
        });
        let again: Vec<String> = starts.collect();
        let mut words =
            format!("{survivors} ranks went back to set {} in place", Job::named(&self.set));
        if !again.is_empty() {
            words.push_str(&format!(", started again were {}", again.join(", ")));
        }
        if !self.left.is_empty() {
            words.push_str(&format!(", without rank {}", self.left.brief()));
        }
        Transition::done(words + but)
    }
}

impl Handler for Rollback {
    fn on_nla(
        &mut self,
        context: &mut Context<'_>,
        node: &NodeName,
        message: &FromNla,
    ) -> Transition {
        let awaited = match message {
            FromNla::Ready { .. } => {
                return self.refused_on(context.job, node).unwrap_or(Transition::Stay);
            }
            // It may be the repeated answer of an earlier request.
            FromNla::Copied { ranks, .. } => {
                let fetched = self.fetching.get(node);
                // The state of a former release does not say what is fetched.
                let all = self.fetching.is_empty()
                    || fetched.is_some_and(|asked| asked.iter().all(|rank| ranks.has(rank)));
                self.stage == RollbackStage::Copy && all
            }
            // It may be the repeated answer of an earlier round.
            FromNla::Restarted { incarnation, .. } => {
                self.stage == RollbackStage::Restart && *incarnation == context.job.incarnation
            }
            FromNla::CopyFailed { reason, .. } | FromNla::LaunchFailed { reason, .. } => {
                let ranks = self.due().brief();
                return Transition::restart(format!(
                    "node {node} cannot start rank {ranks}: {reason}"
                ));
            }
            _ => false,
        };
        if awaited && self.waiting.remove(node) && self.waiting.is_empty() {
            return self.answered(context.job, context.episode);
        }
        Transition::Stay
    }

    fn on_rank(&mut self, context: &mut Context<'_>, rank: u32, message: &FromRank) -> Transition {
        match message {
            FromRank::Resumed => {
                self.resumed.insert(rank);
                self.check_resumed(context.job)
            }
            // The last message of a rank that is being replaced.
            FromRank::RollbackFailed { .. } if self.is_replaced(context.job, rank) => {
                Transition::Stay
            }
            FromRank::RollbackFailed { reason, .. } => {
                if self.refusals.is_empty() {
                    context.job.publish(FromJl::Ask);
                }
                self.refusals.entry(rank).or_insert_with(|| reason.clone());
                context.job.out.push(JlOutput::Save);
                Transition::Stay
            }
            _ => Transition::Stay,
        }
    }

    fn on_barrier(&mut self, context: &mut Context<'_>) -> Transition {
        match self.stage {
            RollbackStage::Restart | RollbackStage::Join => {
                self.stage = RollbackStage::Resume;
                Transition::next("resume", context.job.config.deadlines.resume, Vec::new())
            }
            RollbackStage::Copy | RollbackStage::Resume => Transition::Stay,
        }
    }

    fn on_exit(&mut self, context: &mut Context<'_>, rank: u32, how: ExitCause) -> Transition {
        self.refusals.remove(&rank);
        let well = matches!(how, ExitCause::Exit(0) | ExitCause::Left);
        match self.stage {
            RollbackStage::Resume if well => Transition::Stay,
            RollbackStage::Resume => {
                // It found messages under way, and cannot go on with fewer ranks: all restart.
                if how == ExitCause::Exit(EXIT_TORN_IMAGE) && !self.left.is_empty() {
                    context.job.undivided = true;
                }
                Transition::died(context.job, rank, how)
            }
            _ if well || how == ExitCause::Exit(EXIT_TORN_IMAGE) => Transition::Restart {
                code: how.code(),
                reason: format!("rank {rank} ended while the job went back in place: {how}"),
            },
            _ => self.further(context.job, context.episode),
        }
    }

    fn on_lost(&mut self, context: &mut Context<'_>, node: &NodeName) -> Transition {
        self.refusals.retain(|rank, _| !context.job.has_died(*rank));
        // A node that is asked has ranks from then on.
        self.waiting.remove(node);
        if context.job.ranks_on(node).is_empty() {
            return Transition::Stay;
        }
        if self.has_met() {
            let why = context.job.why_lost(node);
            let reason = format!("node {node} was lost with its ranks{why}");
            return Transition::Died { code: 1, reason };
        }
        self.further(context.job, context.episode)
    }

    /// The ranks have met; each reports only once that it resumed.
    fn on_adopted(&mut self, context: &mut Context<'_>) -> Transition {
        match self.stage {
            RollbackStage::Resume => self.close(context.job, UNHEARD),
            _ => Transition::Stay,
        }
    }

    fn on_deadline(&mut self, context: &mut Context<'_>) -> Transition {
        match self.stage {
            RollbackStage::Copy => Transition::restart("the images were not copied in time"),
            RollbackStage::Restart => Transition::Lost(self.waiting.iter().cloned().collect()),
            RollbackStage::Join => {
                Transition::overdue("not all ranks have met in time after they went back")
            }
            RollbackStage::Resume => {
                self.close(context.job, ", but not every rank reported that it goes on")
            }
        }
    }

    fn progress(&self, job: &Job) -> Option<(usize, usize)> {
        match self.stage {
            RollbackStage::Copy => {
                let all = self.fetching.len();
                Some((all.saturating_sub(self.waiting.len()), all))
            }
            RollbackStage::Join => None,
            RollbackStage::Restart => {
                Some((self.starts.len() - self.waiting.len(), self.starts.len()))
            }
            RollbackStage::Resume => Some((self.resumed.len(), job.count())),
        }
    }
}

/// The dead ranks and the new placement.
fn losses(job: &Job) -> Result<Losses, &'static str> {
    let (placement, left) = match job.shrinks() {
        true => job.fewer()?,
        false => {
            let placement = job.replan(NodeFaults::Ignore).map_err(|_| "no hot spare is left")?;
            (placement, Ranks::default())
        }
    };
    let mut dead = Ranks::default();
    for (rank, row) in job.rows().filter(|(rank, _)| !left.has(*rank)) {
        let stays = placement.get(&row.node).is_some_and(|ranks| ranks.has(rank));
        match row.ended {
            Some(ExitCause::Exit(0) | ExitCause::Left) => {
                return Err("ranks have come to their end already");
            }
            _ if job.has_died(rank) => {
                dead.0.insert(rank);
            }
            _ if stays => {}
            _ => return Err("a living rank must go to another node"),
        }
    }
    if dead.len() + left.len() == job.count() {
        return Err("no rank has survived");
    }
    Ok(Losses { dead, left, placement })
}
