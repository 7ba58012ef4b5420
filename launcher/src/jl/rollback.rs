//! Recovery in place: ranks have died, the others stay. Those that live take back their own state of the last set,
//! the dead ones are started again from their images (those of a lost node on a spare), and all meet in one fence.
//! Nothing is killed and nothing but the dead is started.
//!
//! It is the short way and has one way back: whatever goes wrong in it, a further death included, ends in the
//! restart of the whole job from the set ([`super::start`]), which starts from nothing but the store.

use super::episode::Flow;
use super::job::Job;
use super::start::copies;
use crate::message::{FromJl, FromNla, FromRank, How, Ipt, Placement};
use crate::names::{Episode, NodeName, RANKS_PER_NODE_MAX, Ranks, SetId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rollback {
    set: SetId,
    /// Who is started again.
    dead: Ranks,
    /// Where.
    starts: Placement,
    placement: Placement,
    stage: Stage,
    /// Nodes that have still to answer.
    waiting: BTreeSet<NodeName>,
    resumed: BTreeSet<u32>,
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
        let (dead, placement) = losses(job)?;
        let on = |(node, ranks): (&NodeName, &Ranks)| {
            let here: Ranks = ranks.iter().filter(|rank| dead.has(*rank)).collect();
            (!here.is_empty()).then(|| (node.clone(), here))
        };
        let starts = placement.iter().filter_map(on).collect();
        job.met = false;
        let missing = job.without_images(&set, &placement);
        let mut rollback = Self {
            set,
            dead,
            starts,
            placement,
            stage: Stage::Copy,
            waiting: missing.keys().cloned().collect(),
            resumed: BTreeSet::new(),
        };
        if missing.is_empty() {
            let flow = rollback.restart(job, episode);
            return Ok((rollback, flow));
        }
        let requests = copies(job, episode, &rollback.set, &missing);
        Ok((rollback, Flow::next("copy", job.config.deadlines.copy, requests)))
    }

    /// A phase before the fence opens: the survivors are told again and again, since one that missed it would keep
    /// all others waiting. So are lost nodes that live on, that nothing of them stands in the way of its successor.
    fn next(
        &self,
        job: &Job,
        episode: Episode,
        phase: &'static str,
        deadline: core::time::Duration,
        more: Vec<FromJl>,
    ) -> Flow {
        let rollback =
            FromJl::Rollback { episode, set: self.set.clone(), ranks: self.dead.clone() };
        let lost = job.nodes.iter().filter(|(_, node)| node.lost);
        let evicts = lost.map(|(target, _)| FromJl::Evict { episode, target: target.clone() });
        let requests = core::iter::once(rollback).chain(evicts).chain(more).collect();
        Flow::next(phase, deadline, requests)
    }

    fn restart(&mut self, job: &mut Job, episode: Episode) -> Flow {
        self.stage = Stage::Restart;
        self.waiting = self.starts.keys().cloned().collect();
        job.hold(&self.set, &self.placement);
        job.incarnation += 1;
        for (node, ranks) in &self.starts {
            job.start_on(node, ranks);
        }
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

    /// Who has answered, of how many.
    pub(super) fn progress(&self, job: &Job) -> Option<(usize, usize)> {
        match self.stage {
            Stage::Copy | Stage::Join => None,
            Stage::Restart => Some((self.starts.len() - self.waiting.len(), self.starts.len())),
            Stage::Resume => Some((self.resumed.len(), job.ranks.len())),
        }
    }

    pub(super) fn on_nla(
        &mut self,
        job: &mut Job,
        episode: Episode,
        node: &NodeName,
        message: &FromNla,
    ) -> Flow {
        match (self.stage, message) {
            (Stage::Copy, FromNla::Copied { .. }) => {
                if self.waiting.remove(node) && self.waiting.is_empty() {
                    return self.restart(job, episode);
                }
                Flow::Stay
            }
            (Stage::Restart, FromNla::Restarted { .. }) => {
                if self.waiting.remove(node) && self.waiting.is_empty() {
                    self.stage = Stage::Join;
                    let deadline = job.config.deadlines.join;
                    return self.next(job, episode, "join", deadline, Vec::new());
                }
                Flow::Stay
            }
            (_, FromNla::CopyFailed { reason, .. } | FromNla::LaunchFailed { reason, .. }) => {
                Flow::restart(format!(
                    "node {node} cannot start rank {}: {reason}",
                    self.dead.join(",")
                ))
            }
            _ => Flow::Stay,
        }
    }

    pub(super) fn on_rank(&mut self, job: &Job, rank: u32, message: &FromRank) -> Flow {
        match message {
            FromRank::Resumed => {
                self.resumed.insert(rank);
                self.check_resumed(job)
            }
            FromRank::RollbackFailed { reason, .. } => {
                Flow::restart(format!("rank {rank} cannot go back in place: {reason}"))
            }
            _ => Flow::Stay,
        }
    }

    pub(super) fn on_fence(&mut self, job: &Job) -> Flow {
        match self.stage {
            Stage::Restart | Stage::Join => {
                self.stage = Stage::Resume;
                Flow::next("resume", job.config.deadlines.resume, Vec::new())
            }
            Stage::Copy | Stage::Resume => Flow::Stay,
        }
    }

    fn check_resumed(&self, job: &Job) -> Flow {
        if self.stage != Stage::Resume || self.resumed.len() < job.ranks.len() {
            return Flow::Stay;
        }
        self.close(job, "")
    }

    fn close(&self, job: &Job, but: &str) -> Flow {
        let survivors = job.ranks.len() - self.dead.len();
        let again: Vec<String> = self
            .starts
            .iter()
            .map(|(node, ranks)| format!("{} on {node}", ranks.join(",")))
            .collect();
        Flow::done(format!(
            "{survivors} ranks went back to set {} in place, started again were {}{but}",
            self.set,
            again.join(", ")
        ))
    }

    pub(super) fn on_exit(&self, rank: u32, how: How) -> Flow {
        match how {
            How::Exit(0) | How::Left if self.stage == Stage::Resume => Flow::Stay,
            how => Flow::Restart {
                code: how.code(),
                reason: format!("rank {rank} ended while the job went back in place: {how}"),
            },
        }
    }

    pub(super) fn on_lost(&mut self, job: &Job, node: &NodeName) -> Flow {
        if self.placement.contains_key(node) || !job.ranks_on(node).is_empty() {
            return Flow::restart(format!("node {node} was lost while the job went back in place"));
        }
        Flow::Stay
    }

    pub(super) fn on_deadline(&self, job: &Job) -> Flow {
        match self.stage {
            Stage::Copy => Flow::restart("the images were not copied in time"),
            Stage::Restart => Flow::Lost(self.waiting.iter().cloned().collect()),
            Stage::Join => Flow::restart("not all ranks met in time after they went back"),
            Stage::Resume => self.close(job, ", but not every rank said that it goes on"),
        }
    }
}

/// Who has died, and who runs where from now on.
fn losses(job: &Job) -> Result<(Ranks, Placement), &'static str> {
    let placement = job.replan().map_err(|_| "no hot spare is left")?;
    let mut dead = Ranks::default();
    for (rank, row) in (0..).zip(&job.ranks) {
        let stays = placement.get(&row.node).is_some_and(|ranks| ranks.has(rank));
        let lost = job.nodes.get(&row.node).is_none_or(|node| node.lost);
        match row.ended {
            Some(How::Exit(0) | How::Left) => return Err("ranks have come to their end already"),
            Some(_) => {
                dead.0.insert(rank);
            }
            None if lost => {
                dead.0.insert(rank);
            }
            None if stays => {}
            None => return Err("a living rank must go to another node"),
        }
    }
    if dead.len() == job.ranks.len() {
        return Err("nobody has survived");
    }
    // Their list is one tag.
    if dead.len() > RANKS_PER_NODE_MAX {
        return Err("too many ranks have died");
    }
    Ok((dead, placement))
}
