//! The start of all ranks: of a new job, of a job from a set (`ftb-launch restart`), and of a running job
//! that restarts from its last set after a failure.

use super::episode::{At, Flow, Steps};
use super::job::{Job, OnDeath};
use crate::message::{FromJl, FromNla, How, Launch, Placement};
use crate::names::{Episode, NodeName, RANKS_PER_NODE_MAX, Ranks, SetId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The exit code of a rank that will not restore a torn image.
pub(super) const EXIT_TORN_IMAGE: i32 = 65;

/// The exit code of a job of which a rank could not be started.
pub(super) const NOT_STARTED: i32 = 127;

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    set: Option<SetId>,
    placement: Placement,
    stage: Stage,
    waiting: BTreeSet<NodeName>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Stage {
    Gather,
    Reset,
    Copy,
    Launch,
    Join,
}

/// The requests by which nodes fetch the images of their ranks from the store.
pub(super) fn copies(job: &Job, episode: Episode, set: &SetId, who: &Placement) -> Vec<FromJl> {
    let copy = |(target, ranks): (&NodeName, &Ranks)| FromJl::Copy {
        episode,
        from: job.store.clone(),
        target: target.clone(),
        set: set.clone(),
        ranks: ranks.clone(),
    };
    who.iter().map(copy).collect()
}

impl Start {
    /// The first start of a job.
    pub(super) fn first(job: &mut Job) -> (Self, Flow) {
        let start = Self {
            set: job.config.restore.clone(),
            placement: job.placement(),
            stage: Stage::Gather,
            waiting: job.nodes.keys().cloned().collect(),
        };
        let flow = Flow::next("gather", job.config.deadlines.gather, vec![FromJl::Ask]);
        (start, flow)
    }

    /// Whether the launch agents are still to come.
    pub(super) fn gathers(&self) -> bool {
        self.stage == Stage::Gather
    }

    /// The restart of a running job from `set`.
    pub(super) fn again(job: &mut Job, episode: Episode, set: SetId, reason: &str) -> (Self, Flow) {
        job.met = false;
        // Processes of before count no more: their ends and their fence are of another time.
        job.incarnation += 1;
        for row in &mut job.ranks {
            row.incarnation = job.incarnation;
            row.ended = None;
        }
        let mut start = Self {
            set: Some(set),
            placement: job.placement(),
            stage: Stage::Reset,
            waiting: job.alive().into_iter().collect(),
        };
        if start.waiting.is_empty() {
            let flow = start.planned(job, episode);
            return (start, flow);
        }
        let request = FromJl::Reset { episode, fence: job.fence.void(), reason: reason.to_owned() };
        (start, Flow::next("reset", job.config.deadlines.reset, vec![request]))
    }

    /// All NLAs that will ever answer have answered: decide who runs where, then copy or launch.
    fn planned(&mut self, job: &mut Job, episode: Episode) -> Flow {
        match job.replan() {
            Ok(placement) => {
                job.keep_avoided(&placement);
                self.placement = placement;
            }
            Err(node) => {
                if let Err(why) = self.shrink(job) {
                    let words = format!("node {node} is not usable and no hot spare is left{why}");
                    return Flow::End { code: 1, words };
                }
            }
        }
        let Some(set) = self.set.clone() else {
            return self.launch(job, episode);
        };
        self.stage = Stage::Copy;
        self.waiting = self.placement.keys().cloned().collect();
        let requests = match job.other_size(&set) {
            None => copies(job, episode, &set, &self.placement),
            // Who needs what of which image only the program knows.
            Some(size) => {
                let all: Ranks = (0..size).collect();
                let every = self.placement.keys().map(|node| (node.clone(), all.clone()));
                copies(job, episode, &set, &every.collect())
            }
        };
        Flow::next("copy", job.config.deadlines.copy, requests)
    }

    /// Fewer ranks, where that is wanted.
    fn shrink(&mut self, job: &mut Job) -> Result<(), String> {
        if job.config.on_death != OnDeath::Shrink || self.set.is_none() || !job.keeps_images() {
            return Err(String::new());
        }
        let before = job.config.size;
        // The list of all images that a node fetches is one tag.
        if before as usize > RANKS_PER_NODE_MAX {
            return Err(format!(", and more than {RANKS_PER_NODE_MAX} ranks are not divided anew"));
        }
        self.placement = job.shrink().map_err(|why| format!(": {why}"))?;
        let size = job.config.size;
        job.tell(format!("no hot spare is left: {size} ranks take over what {before} have done"));
        Ok(())
    }

    fn launch(&mut self, job: &mut Job, episode: Episode) -> Flow {
        self.stage = Stage::Launch;
        let kept = |set: &&SetId| job.keeps_images() && job.other_size(set).is_none();
        if let Some(set) = self.set.clone().as_ref().filter(kept) {
            job.hold(set, &self.placement);
        }
        self.waiting = job.alive().into_iter().collect();
        job.place(&self.placement);
        job.incarnation += u64::from(episode > Episode(1));
        for row in &mut job.ranks {
            row.incarnation = job.incarnation;
        }
        let launch = FromJl::Launch(Launch {
            episode,
            incarnation: job.incarnation,
            fence: job.fence.number(),
            size: job.config.size,
            set: self.set.clone(),
            set_size: self.set.as_ref().and_then(|set| job.other_size(set)),
            placement: self.placement.clone(),
        });
        Flow::next("launch", job.config.deadlines.launch, vec![launch])
    }

    fn launched(&mut self, job: &mut Job) -> Flow {
        // Ranks that are brought back by their agents are where they were: they do not meet.
        if job.met || self.set.is_none() || job.agents_save() {
            job.met |= job.agents_save();
            return Flow::done("all ranks are started");
        }
        self.stage = Stage::Join;
        Flow::next("join", job.config.deadlines.join, Vec::new())
    }

    fn answered(&mut self, node: &NodeName, stage: Stage) -> bool {
        self.stage == stage && self.waiting.remove(node) && self.waiting.is_empty()
    }

    /// The set cannot be restored: it is dropped, and the one before it is tried.
    fn bad_set(&mut self, job: &mut Job, reason: &str) -> Flow {
        let Some(set) = self.set.take() else {
            return Flow::Stay;
        };
        job.tell(format!("set {set} cannot be restored and is put aside: {reason}"));
        job.sets.retain(|other| *other != set);
        job.activity.remove(&set);
        job.release(&set);
        Flow::Restart { code: 1, reason: reason.to_owned() }
    }
}

impl Steps for Start {
    fn on_nla(&mut self, at: &mut At<'_>, node: &NodeName, message: &FromNla) -> Flow {
        match message {
            FromNla::Ready { .. } if self.answered(node, Stage::Gather) => {
                self.planned(at.job, at.episode)
            }
            FromNla::Reset { .. } if self.answered(node, Stage::Reset) => {
                self.planned(at.job, at.episode)
            }
            FromNla::Copied { .. } if self.answered(node, Stage::Copy) => {
                self.launch(at.job, at.episode)
            }
            FromNla::CopyFailed { reason, .. } if self.stage == Stage::Copy => {
                self.bad_set(at.job, &format!("node {node}: {reason}"))
            }
            FromNla::Launched { .. } if self.answered(node, Stage::Launch) => self.launched(at.job),
            FromNla::LaunchFailed { reason, .. } if self.set.is_some() => {
                self.bad_set(at.job, &format!("node {node}: {reason}"))
            }
            FromNla::LaunchFailed { ranks, reason, .. } => Flow::End {
                code: NOT_STARTED,
                words: format!("node {node} cannot start rank {ranks}: {reason}"),
            },
            _ => Flow::Stay,
        }
    }

    fn on_fence(&mut self, _: &mut At<'_>) -> Flow {
        if self.stage == Stage::Join {
            Flow::done("all ranks are restored and have met")
        } else {
            Flow::Stay
        }
    }

    fn on_exit(&mut self, at: &mut At<'_>, rank: u32, how: How) -> Flow {
        if !matches!(self.stage, Stage::Launch | Stage::Join) || how == How::Exit(0) {
            return Flow::Stay;
        }
        if how == How::Exit(EXIT_TORN_IMAGE) && self.set.is_some() {
            return self.bad_set(at.job, &format!("rank {rank} refused its image"));
        }
        let reason = format!("rank {rank} ended during the start: {how}");
        let code = how.code();
        match at.job.config.on_death {
            OnDeath::Rollback | OnDeath::Restart | OnDeath::Shrink if self.set.is_some() => {
                Flow::Restart { code, reason }
            }
            _ => Flow::End { code, words: reason },
        }
    }

    fn on_lost(&mut self, at: &mut At<'_>, node: &NodeName) -> Flow {
        let waited = self.waiting.remove(node);
        match self.stage {
            Stage::Gather | Stage::Reset if waited && self.waiting.is_empty() => {
                self.planned(at.job, at.episode)
            }
            Stage::Gather | Stage::Reset => Flow::Stay,
            _ if self.placement.contains_key(node) => {
                Flow::restart(format!("node {node} was lost during the start"))
            }
            Stage::Launch if waited && self.waiting.is_empty() => self.launched(at.job),
            Stage::Copy | Stage::Launch | Stage::Join => Flow::Stay,
        }
    }

    /// Nodes that have not answered in time are lost: the start goes on without them.
    fn on_deadline(&mut self, _: &mut At<'_>) -> Flow {
        match self.stage {
            Stage::Join => Flow::overdue("not all ranks have met in time after the restart"),
            _ => Flow::Lost(self.waiting.iter().cloned().collect()),
        }
    }

    fn missing(&self) -> Vec<NodeName> {
        self.waiting.iter().cloned().collect()
    }

    /// Who has answered, of how many.
    fn progress(&self, job: &Job) -> Option<(usize, usize)> {
        let all = match self.stage {
            Stage::Gather => job.nodes.len(),
            Stage::Reset | Stage::Launch => job.alive().len(),
            Stage::Copy => self.placement.len(),
            Stage::Join => return None,
        };
        Some((all.saturating_sub(self.waiting.len()), all))
    }
}
