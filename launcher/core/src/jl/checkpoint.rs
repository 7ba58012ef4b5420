//! The checkpoint of the job (thesis, 3.4.1): every rank saves itself, the images go to the store, the set is
//! committed there. A set that is not complete and verified never counts; the job goes on either way.

use super::Output;
use super::episode::{At, Flow, Steps};
use super::job::Job;
use crate::message::{Activity, FromJl, FromNla, FromRank, How};
use crate::names::{Episode, NodeName, Ranks, SetId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Checkpoint {
    set: SetId,
    saved: BTreeMap<u32, u64>,
    /// What ranks had done when they were saved, where that is measured.
    #[serde(default)]
    activity: BTreeMap<u32, Activity>,
    /// Node agents that have still to make their ranks ready.
    preparing: BTreeSet<NodeName>,
    storing: bool,
    /// The ranks of this node are to be elsewhere afterwards.
    leaving: Option<NodeName>,
}

impl Checkpoint {
    pub(super) fn open(job: &Job, episode: Episode, leaving: Option<NodeName>) -> (Self, Flow) {
        let set = SetId::of_checkpoint(episode);
        let mut checkpoint = Self {
            set,
            saved: BTreeMap::new(),
            activity: BTreeMap::new(),
            preparing: BTreeSet::new(),
            storing: false,
            leaving,
        };
        if !job.agents_save() {
            let flow = checkpoint.save(job, episode);
            return (checkpoint, flow);
        }
        checkpoint.preparing = job.placement().into_keys().collect();
        let request = FromJl::Prepare { episode, set: checkpoint.set.clone() };
        let flow = Flow::next("prepare", job.config.deadlines.prepare, vec![request]);
        (checkpoint, flow)
    }

    fn save(&self, job: &Job, episode: Episode) -> Flow {
        let request = FromJl::Checkpoint { episode, set: self.set.clone() };
        Flow::next("save", job.config.deadlines.save, vec![request])
    }

    /// What node agents have prepared is undone.
    fn release(job: &Job, episode: Episode) -> Vec<FromJl> {
        if job.agents_save() { vec![FromJl::Release { episode }] } else { Vec::new() }
    }

    fn store(&self, job: &mut Job, episode: Episode) {
        let from: BTreeMap<NodeName, (String, Ranks)> = job
            .placement()
            .into_iter()
            .map(|(name, ranks)| {
                let images = job.nodes.get(&name).map(|node| node.images.clone());
                (name, (images.unwrap_or_default(), ranks))
            })
            .collect();
        let output = Output::Store { episode, set: self.set.clone(), from };
        job.out.push(output);
    }

    /// What it makes.
    pub(super) fn set(&self) -> &SetId {
        &self.set
    }

    fn failed(reason: String) -> Flow {
        Flow::Close { done: false, words: format!("no checkpoint, the job goes on: {reason}") }
    }

    /// The set counts: older ones go, and a node that is to be left is left.
    fn committed(&self, job: &mut Job, episode: Episode, bytes: u64) -> Flow {
        job.prove_sets(&self.set, &self.activity);
        job.sets.push(self.set.clone());
        job.set_sizes.insert(self.set.clone(), job.config.size);
        job.restarts = 0;
        // The store has them. The nodes keep their own copies where ranks may go back in place.
        if job.keeps_images() {
            job.hold(&self.set, &job.placement());
        } else {
            let set = self.set.clone();
            job.publish(FromJl::Drop { episode, set });
        }
        job.drop_old_sets();
        if let Some(leaving) = &self.leaving
            && let Some(node) = job.nodes.get_mut(leaving)
        {
            node.avoid = true;
            let words = format!("the job starts again without node {leaving}");
            return Flow::Again { words };
        }
        let ranks = job.ranks.len();
        Flow::done(format!("set {} is committed: {ranks} ranks, {bytes} bytes", self.set))
    }
}

impl Steps for Checkpoint {
    fn on_nla(&mut self, at: &mut At<'_>, node: &NodeName, message: &FromNla) -> Flow {
        let prepared = matches!(message, FromNla::Prepared { .. });
        if prepared && self.preparing.remove(node) && self.preparing.is_empty() {
            return self.save(at.job, at.episode);
        }
        Flow::Stay
    }

    fn on_rank(&mut self, at: &mut At<'_>, rank: u32, message: &FromRank) -> Flow {
        match message {
            FromRank::CheckpointDone { set, bytes, activity }
                if *set == self.set && !self.storing =>
            {
                self.saved.insert(rank, *bytes);
                self.activity.extend(activity.map(|done| (rank, done)));
                if self.saved.len() < at.job.ranks.len() {
                    return Flow::Stay;
                }
                self.storing = true;
                self.store(at.job, at.episode);
                let requests = Self::release(at.job, at.episode);
                Flow::next("store", at.job.config.deadlines.store, requests)
            }
            FromRank::CheckpointFailed { set, reason } if *set == self.set && !self.storing => {
                Self::failed(format!("rank {rank} is not saved: {reason}"))
            }
            _ => Flow::Stay,
        }
    }

    fn on_exit(&mut self, _: &mut At<'_>, rank: u32, how: How) -> Flow {
        match how {
            How::Exit(0) | How::Left if self.storing => Flow::Stay,
            How::Exit(0) | How::Left => {
                Self::failed(format!("rank {rank} ended before it was saved"))
            }
            how => Flow::died(rank, how),
        }
    }

    fn on_lost(&mut self, at: &mut At<'_>, node: &NodeName) -> Flow {
        if at.job.ranks_on(node).is_empty() {
            return Flow::Stay;
        }
        Flow::Died { code: 1, reason: format!("node {node} was lost during a checkpoint") }
    }

    fn on_stored(&mut self, at: &mut At<'_>, result: Result<u64, String>) -> Flow {
        match result {
            Err(reason) => Self::failed(reason),
            Ok(bytes) => self.committed(at.job, at.episode, bytes),
        }
    }

    /// What the old one was fetching is fetched again.
    fn on_adopted(&mut self, at: &mut At<'_>) -> Flow {
        if self.storing {
            self.store(at.job, at.episode);
        }
        Flow::Stay
    }

    fn on_deadline(&mut self, at: &mut At<'_>) -> Flow {
        let missing = at.job.ranks.len() - self.saved.len();
        let reason = if !self.preparing.is_empty() {
            let nodes: Vec<&str> = self.preparing.iter().map(NodeName::as_str).take(8).collect();
            format!("not ready to be saved in time: {}", nodes.join(" "))
        } else if self.storing {
            "the images were not in the store in time".to_owned()
        } else {
            format!("{missing} ranks were not saved in time")
        };
        Self::failed(reason)
    }

    /// Ranks that are saved, of how many.
    fn progress(&self, job: &Job) -> Option<(usize, usize)> {
        (!self.storing).then_some((self.saved.len(), job.ranks.len()))
    }
}
