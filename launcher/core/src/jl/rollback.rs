//! Recovery in place: ranks have died, the others stay. Those that live take back their own state of the last set,
//! the dead ones are started again from their images (those of a lost node on a spare), and all meet in one fence.
//! Nothing is killed and nothing but the dead is started.
//!
//! **Somebody else dies before the fence is open:** that joins the recovery under way, as a further round of the
//! same episode. Who waits in the fence already has its state of the set and has done nothing since, so it stays there; the
//! newly dead are started as a newer incarnation, and the list of those that are not to go back grows. A round begins when
//! what the one before has asked of nodes is answered, so that no node has two starts open. Survivors can die
//! once each; where one dies that this recovery has started, that counts as a recovery of its own, without which
//! it could go on for ever.
//!
//! **After the fence is open** a death is that of a job which is whole: another episode.
//!
//! **A rank says that it cannot go back:** that counts when its launch agent has been heard after it, and until then is no
//! more than a sign. Where the agent has died, or the rank, another takes its place, whichever was heard first.
//!
//! There is one way back: whatever else goes wrong ends in the restart of the whole job from the set
//! ([`super::start`]), which starts from nothing but the store.

use super::Output;
use super::episode::{At, Flow, Steps, UNHEARD};
use super::job::Job;
use super::start::{EXIT_TORN_IMAGE, copies};
use crate::message::{FromJl, FromNla, FromRank, How, Ipt, Placement};
use crate::names::{Episode, NodeName, RANKS_PER_NODE_MAX, Ranks, SetId};
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rollback {
    set: SetId,
    /// Who was started again: nobody of them goes back.
    dead: Ranks,
    /// Who is to be started in this round, where.
    starts: Placement,
    stage: Stage,
    /// Nodes that have still to answer.
    waiting: BTreeSet<NodeName>,
    /// Somebody has died in this round: the next follows it.
    #[serde(default)]
    again: bool,
    resumed: BTreeSet<u32>,
    /// Who has said that it cannot go back, and why, and whose launch agent has not been heard since.
    #[serde(default)]
    refusals: BTreeMap<u32, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Stage {
    /// Nodes that have not the images of their ranks fetch them.
    Copy,
    /// The survivors go back, the dead ranks are started.
    Restart,
    /// All of them meet.
    Join,
    /// They connect and go on.
    Resume,
}

/// Who has died since somebody looked last, and where all ranks are to be.
struct Losses {
    dead: Ranks,
    placement: Placement,
}

impl Rollback {
    /// Opens the recovery to `set`.
    ///
    /// # Errors
    /// Why the job cannot go back in place: it must be started anew.
    pub(super) fn open(
        job: &mut Job,
        episode: Episode,
        set: SetId,
    ) -> Result<(Self, Flow), &'static str> {
        if !job.met {
            return Err("not all ranks have met since they were started");
        }
        if job.other_size(&set).is_some() {
            return Err("its set is of another number of ranks");
        }
        let losses = losses(job)?;
        if losses.dead.len() == job.ranks.len() {
            return Err("nobody has survived");
        }
        job.met = false;
        let mut rollback = Self {
            set,
            dead: Ranks::default(),
            starts: Placement::new(),
            stage: Stage::Copy,
            waiting: BTreeSet::new(),
            again: false,
            resumed: BTreeSet::new(),
            refusals: BTreeMap::new(),
        };
        let flow = rollback.round(job, episode, losses);
        Ok((rollback, flow))
    }

    /// Whether all have met: what happens from then on happens to a job that is whole.
    pub(super) fn has_met(&self) -> bool {
        self.stage == Stage::Resume
    }

    /// The dead get their places, and these the images that they lack; then the dead are started.
    fn round(&mut self, job: &mut Job, episode: Episode, losses: Losses) -> Flow {
        let Losses { dead, placement } = losses;
        self.again = false;
        self.stage = Stage::Copy;
        job.incarnation += 1;
        let on = |(node, ranks): (&NodeName, &Ranks)| {
            let here: Ranks = ranks.iter().filter(|rank| dead.has(*rank)).collect();
            (!here.is_empty()).then(|| (node.clone(), here))
        };
        self.starts = placement.iter().filter_map(on).collect();
        for (node, ranks) in &self.starts {
            job.start_on(node, ranks);
        }
        let missing = job.without_images(&self.set, &placement);
        self.waiting = missing.keys().cloned().collect();
        if missing.is_empty() {
            return self.restart(job, episode);
        }
        let requests = copies(job, episode, &self.set, &missing);
        self.next(job, episode, "copy", job.config.deadlines.copy, requests)
    }

    /// Somebody has died: the next round, when this one has its answers.
    fn further(&mut self, job: &mut Job, episode: Episode) -> Flow {
        self.again = true;
        match self.stage {
            Stage::Copy | Stage::Restart if !self.waiting.is_empty() => Flow::Stay,
            _ => self.answered(job, episode),
        }
    }

    /// All nodes that were asked have answered, or are lost.
    fn answered(&mut self, job: &mut Job, episode: Episode) -> Flow {
        if self.stage == Stage::Copy {
            job.hold(&self.set, &job.placement());
        }
        if !self.again {
            return match self.stage {
                Stage::Copy => self.restart(job, episode),
                _ => self.join(job, episode),
            };
        }
        let mut losses = match losses(job) {
            Ok(losses) => losses,
            Err(why) => return Flow::restart(format!("the job cannot go back in place: {why}")),
        };
        if losses.dead.iter().any(|rank| self.dead.has(rank)) {
            let (restarts, max) = (job.restarts, job.config.restarts_max);
            if restarts >= max {
                let words = format!("{restarts} recoveries without a new set in between");
                return Flow::End { code: 1, words };
            }
            job.restarts += 1;
        }
        let ranks = losses.dead.join(",");
        job.tell(format!("rank {ranks} died while the job went back in place: it is started too"));
        if self.stage == Stage::Copy {
            losses.dead.0.extend(self.due().0);
        }
        self.round(job, episode, losses)
    }

    /// Who is to be started in this round.
    fn due(&self) -> Ranks {
        self.starts.values().flat_map(Ranks::iter).collect()
    }

    /// A phase before the fence opens: the survivors are told again and again, since one that missed it would keep
    /// all others waiting. So are lost nodes that live on, that nothing of them stands in the way of its successor.
    fn next(
        &self,
        job: &Job,
        episode: Episode,
        phase: &'static str,
        deadline: Duration,
        more: Vec<FromJl>,
    ) -> Flow {
        let rollback =
            FromJl::Rollback { episode, set: self.set.clone(), ranks: self.dead.clone() };
        // Who has its image beside it may go back; the others hear of it when they have.
        let told = (self.stage != Stage::Copy).then_some(rollback);
        let lost = job.nodes.iter().filter(|(_, node)| node.lost);
        let evicts = lost.map(|(target, _)| FromJl::Evict { episode, target: target.clone() });
        let requests = told.into_iter().chain(evicts).chain(more).collect();
        Flow::next(phase, deadline, requests)
    }

    fn restart(&mut self, job: &mut Job, episode: Episode) -> Flow {
        self.stage = Stage::Restart;
        self.dead.0.extend(self.due().0);
        self.waiting = self.starts.keys().cloned().collect();
        let ipt = |(target, ranks): (&NodeName, &Ranks)| {
            FromJl::MigrateIpt(Ipt {
                episode,
                target: target.clone(),
                ranks: ranks.clone(),
                set: self.set.clone(),
                incarnation: job.incarnation,
                fence: job.fence.number(),
            })
        };
        let starts = self.starts.iter().map(ipt).collect();
        self.next(job, episode, "restart", job.config.deadlines.restart, starts)
    }

    fn join(&mut self, job: &Job, episode: Episode) -> Flow {
        self.stage = Stage::Join;
        self.next(job, episode, "join", job.config.deadlines.join, Vec::new())
    }

    /// Whether another process takes the place of the one that was that rank, or is going to.
    fn is_replaced(&self, job: &Job, rank: u32) -> bool {
        self.dead.has(rank) || self.due().has(rank) || job.has_died(rank)
    }

    /// The launch agent of that node lives: whoever has refused there has done so by itself.
    fn refused_on(&self, job: &Job, node: &NodeName) -> Option<Flow> {
        let here = |rank: u32| job.ranks.get(rank as usize).is_some_and(|row| row.node == *node);
        let (rank, reason) = self.refusals.iter().find(|(rank, _)| here(**rank))?;
        Some(Flow::restart(format!("rank {rank} cannot go back in place: {reason}")))
    }

    fn check_resumed(&self, job: &Job) -> Flow {
        if self.stage != Stage::Resume || self.resumed.len() < job.ranks.len() {
            return Flow::Stay;
        }
        self.close(job, "")
    }

    fn close(&self, job: &Job, but: &str) -> Flow {
        let survivors = job.ranks.len() - self.dead.len();
        let starts = job.placement().into_iter().filter_map(|(node, ranks)| {
            let again: Ranks = ranks.iter().filter(|rank| self.dead.has(*rank)).collect();
            (!again.is_empty()).then(|| format!("{} on {node}", again.join(",")))
        });
        let again: Vec<String> = starts.collect();
        Flow::done(format!(
            "{survivors} ranks went back to set {} in place, started again were {}{but}",
            self.set,
            again.join(", ")
        ))
    }
}

impl Steps for Rollback {
    fn on_nla(&mut self, at: &mut At<'_>, node: &NodeName, message: &FromNla) -> Flow {
        let awaited = match message {
            FromNla::Ready { .. } => {
                return self.refused_on(at.job, node).unwrap_or(Flow::Stay);
            }
            FromNla::Copied { .. } => self.stage == Stage::Copy,
            // It may be the answer to an earlier round, said once more.
            FromNla::Restarted { incarnation, .. } => {
                self.stage == Stage::Restart && *incarnation == at.job.incarnation
            }
            FromNla::CopyFailed { reason, .. } | FromNla::LaunchFailed { reason, .. } => {
                let ranks = self.due().join(",");
                return Flow::restart(format!("node {node} cannot start rank {ranks}: {reason}"));
            }
            _ => false,
        };
        if awaited && self.waiting.remove(node) && self.waiting.is_empty() {
            return self.answered(at.job, at.episode);
        }
        Flow::Stay
    }

    fn on_rank(&mut self, at: &mut At<'_>, rank: u32, message: &FromRank) -> Flow {
        match message {
            FromRank::Resumed => {
                self.resumed.insert(rank);
                self.check_resumed(at.job)
            }
            // The last words of one whose place another takes: its launch agent died before it did.
            FromRank::RollbackFailed { .. } if self.is_replaced(at.job, rank) => Flow::Stay,
            FromRank::RollbackFailed { reason, .. } => {
                if self.refusals.is_empty() {
                    at.job.publish(FromJl::Ask);
                }
                self.refusals.entry(rank).or_insert_with(|| reason.clone());
                at.job.out.push(Output::Save);
                Flow::Stay
            }
            _ => Flow::Stay,
        }
    }

    fn on_fence(&mut self, at: &mut At<'_>) -> Flow {
        match self.stage {
            Stage::Restart | Stage::Join => {
                self.stage = Stage::Resume;
                Flow::next("resume", at.job.config.deadlines.resume, Vec::new())
            }
            Stage::Copy | Stage::Resume => Flow::Stay,
        }
    }

    fn on_exit(&mut self, at: &mut At<'_>, rank: u32, how: How) -> Flow {
        self.refusals.remove(&rank);
        let well = matches!(how, How::Exit(0) | How::Left);
        match self.stage {
            Stage::Resume if well => Flow::Stay,
            Stage::Resume => Flow::died(rank, how),
            _ if well || how == How::Exit(EXIT_TORN_IMAGE) => Flow::Restart {
                code: how.code(),
                reason: format!("rank {rank} ended while the job went back in place: {how}"),
            },
            _ => self.further(at.job, at.episode),
        }
    }

    fn on_lost(&mut self, at: &mut At<'_>, node: &NodeName) -> Flow {
        self.refusals.retain(|rank, _| !at.job.has_died(*rank));
        // Whoever is asked for something has ranks from then on.
        self.waiting.remove(node);
        if at.job.ranks_on(node).is_empty() {
            return Flow::Stay;
        }
        if self.has_met() {
            return Flow::Died { code: 1, reason: format!("node {node} was lost with its ranks") };
        }
        self.further(at.job, at.episode)
    }

    /// All have met. That they go on each rank says once.
    fn on_adopted(&mut self, at: &mut At<'_>) -> Flow {
        match self.stage {
            Stage::Resume => self.close(at.job, UNHEARD),
            _ => Flow::Stay,
        }
    }

    fn on_deadline(&mut self, at: &mut At<'_>) -> Flow {
        match self.stage {
            Stage::Copy => Flow::restart("the images were not copied in time"),
            Stage::Restart => Flow::Lost(self.waiting.iter().cloned().collect()),
            Stage::Join => Flow::overdue("not all ranks have met in time after they went back"),
            Stage::Resume => self.close(at.job, ", but not every rank said that it goes on"),
        }
    }

    fn progress(&self, job: &Job) -> Option<(usize, usize)> {
        match self.stage {
            Stage::Copy | Stage::Join => None,
            Stage::Restart => Some((self.starts.len() - self.waiting.len(), self.starts.len())),
            Stage::Resume => Some((self.resumed.len(), job.ranks.len())),
        }
    }
}

/// Who has died, and who runs where from now on.
fn losses(job: &Job) -> Result<Losses, &'static str> {
    let placement = job.replan().map_err(|_| "no hot spare is left")?;
    let mut dead = Ranks::default();
    for (rank, row) in (0..).zip(&job.ranks) {
        let stays = placement.get(&row.node).is_some_and(|ranks| ranks.has(rank));
        match row.ended {
            Some(How::Exit(0) | How::Left) => return Err("ranks have come to their end already"),
            _ if job.has_died(rank) => {
                dead.0.insert(rank);
            }
            _ if stays => {}
            _ => return Err("a living rank must go to another node"),
        }
    }
    // Their list is one tag.
    if dead.len() > RANKS_PER_NODE_MAX {
        return Err("too many ranks have died");
    }
    Ok(Losses { dead, placement })
}
