//! The checkpoint workflow (thesis, 3.4.1): every rank is saved, the images go to the store, the
//! set is committed there. Images in memory stay on the nodes, which protect them in groups; the
//! set is committed when all groups have done so. Images on the disks of the nodes stay there, and
//! the set is committed when all are written. An incomplete or unverified set never counts. The
//! job goes on in either case.

use super::episode::{Context, Handler, Transition};
use super::job::Job;
use super::{JlOutput, Request};
use crate::manner::LOOP_MISSED;
use crate::memory::MemorySet;
use crate::message::{ExitCause, FromJl, FromNla, FromRank};
use crate::names::{Episode, NodeName, SetId};
use crate::progress::Activity;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Checkpoint {
    set: SetId,
    saved: BTreeMap<u32, u64>,
    /// What each rank had done when it was saved, if measured.
    #[serde(default)]
    activity: BTreeMap<u32, Activity>,
    /// Nodes that have not answered FTB_JL_PREPARE.
    preparing: BTreeSet<NodeName>,
    /// The lowest loop id at which all ranks of [`crate::manner::Saver::Loop`] can be saved.
    #[serde(default)]
    loop_id: Option<u64>,
    storing: bool,
    /// The set in memory that is being protected, and the nodes that have not done so.
    #[serde(default)]
    protecting: Option<(MemorySet, BTreeSet<NodeName>)>,
    /// The job restarts without this node afterwards.
    leaving: Option<NodeName>,
    /// A rank was behind the loop id.
    #[serde(default)]
    missed: bool,
}

impl Checkpoint {
    pub(super) fn open(
        job: &mut Job,
        episode: Episode,
        set: SetId,
        leaving: Option<NodeName>,
    ) -> (Self, Transition) {
        let mut checkpoint = Self {
            set,
            saved: BTreeMap::new(),
            activity: BTreeMap::new(),
            preparing: BTreeSet::new(),
            loop_id: None,
            storing: false,
            protecting: None,
            leaving,
            missed: false,
        };
        // Ranks that wait in their first `ftb_loop` need not be asked where they are.
        let they_wait = core::mem::take(&mut job.ranks_wait);
        if they_wait || !job.agents_save() {
            let transition = checkpoint.save(job, episode);
            return (checkpoint, transition);
        }
        checkpoint.preparing = job.placement().into_keys().collect();
        let request = FromJl::Prepare { episode, set: checkpoint.set.clone() };
        let transition = Transition::next("prepare", job.config.deadlines.prepare, vec![request]);
        (checkpoint, transition)
    }

    fn save(&self, job: &Job, episode: Episode) -> Transition {
        let (set, loop_id) = (self.set.clone(), self.loop_id);
        let request = FromJl::Checkpoint { episode, set, loop_id };
        Transition::next("save", job.config.deadlines.save, vec![request])
    }

    /// The request that undoes FTB_JL_PREPARE.
    fn release(job: &Job, episode: Episode) -> Vec<FromJl> {
        if job.agents_save() { vec![FromJl::Release { episode }] } else { Vec::new() }
    }

    fn store(&self, job: &mut Job, episode: Episode) {
        let output = JlOutput::Store { episode, set: self.set.clone(), from: job.placement() };
        job.out.push(output);
    }

    pub(super) fn choice(&self) -> String {
        match &self.leaving {
            Some(node) => format!("save the job and start it without {node}"),
            None if self.set.is_in_memory() => "save the job in memory".to_owned(),
            None if self.set.is_on_disks() => "save the job on the disks of its nodes".to_owned(),
            None => "save the job".to_owned(),
        }
    }

    /// The node without which the job starts anew afterwards.
    pub(super) fn leaving(&self) -> Option<&NodeName> {
        self.leaving.as_ref()
    }

    /// The request to try it again, if a rank was behind the loop id. `fails_ns`: when the node
    /// that is left fails.
    pub(super) fn again(&self, reason: &str, fails_ns: Option<u64>) -> Option<Request> {
        let reason = reason.to_owned();
        let want = match &self.leaving {
            Some(node) => Request::Migrate { node: node.clone(), reason, fails_ns },
            None if self.set.is_in_memory() => Request::MemoryCheckpoint { reason },
            None if self.set.is_on_disks() => Request::DiskCheckpoint { reason },
            None => Request::Checkpoint { reason },
        };
        self.missed.then_some(want)
    }

    pub(super) fn set(&self) -> &SetId {
        &self.set
    }

    fn failed(reason: String) -> Transition {
        Transition::Close {
            done: false,
            words: format!("no checkpoint, the job goes on: {reason}"),
        }
    }

    /// All images are on the nodes.
    fn saved(&mut self, job: &mut Job, episode: Episode) -> Transition {
        self.storing = true;
        if self.set.is_on_disks() {
            // The end of the episode says it too, and FTB_JL_RELEASE is repeated after it.
            Self::release(job, episode).into_iter().for_each(|release| job.publish(release));
            return self.kept(job);
        }
        if !self.set.is_in_memory() {
            self.store(job, episode);
            let requests = Self::release(job, episode);
            return Transition::next("store", job.config.deadlines.store, requests);
        }
        let memory = match job.memory_set(&self.set, &self.saved) {
            Ok(memory) => memory,
            Err(why) => return Self::failed(why),
        };
        let before = job.memory.as_ref().map(|memory| &memory.set);
        let tasks = memory.tasks(episode, before);
        let waiting = tasks.iter().map(|task| task.target.clone()).collect();
        self.protecting = Some((memory, waiting));
        // Ranks go on while their images are protected.
        let release = Self::release(job, episode).into_iter();
        let requests = release.chain(tasks.into_iter().map(FromJl::Protect)).collect();
        Transition::next("protect", job.config.deadlines.protect, requests)
    }

    /// Every image is on the disk of its node: the set counts.
    fn kept(&self, job: &mut Job) -> Transition {
        let (set, ranks, bytes) = (&self.set, job.count(), self.saved.values().sum::<u64>());
        job.keep_members(set);
        job.set_sizes.insert(set.clone(), job.config.size);
        (job.restarts, job.loop_misses) = (0, 0);
        job.drop_again(set);
        job.hold(set, &job.placement());
        Transition::done(format!("set {set} is on the nodes' disks: {ranks} ranks, {bytes} bytes"))
    }

    /// Every group has protected the set: it counts, and the generation before is freed.
    fn protected(&mut self, job: &mut Job) -> Transition {
        let Some((memory, _)) = self.protecting.take() else { return Transition::Stay };
        let ((images, beside), groups) = (memory.bytes(), memory.groups.len());
        job.set_sizes.insert(self.set.clone(), job.config.size);
        (job.restarts, job.loop_misses) = (0, 0);
        if let Some(MemorySet { set, .. }) = job.memory.replace(memory) {
            job.set_sizes.remove(&set);
            job.drop_from_nodes(set);
        }
        let (set, ranks) = (&self.set, job.count());
        Transition::done(format!(
            "set {set} is protected in memory: {ranks} ranks, {images} bytes and {beside} of \
             protection, {groups} groups"
        ))
    }

    /// The set counts. Older sets are dropped; a node to be left is marked.
    fn committed(&self, job: &mut Job, episode: Episode, bytes: u64) -> Transition {
        job.prove_sets(&self.set, &self.activity);
        job.sets.push(self.set.clone());
        job.keep_members(&self.set);
        job.set_sizes.insert(self.set.clone(), job.config.size);
        (job.restarts, job.loop_misses) = (0, 0);
        // The store has the images. Nodes keep their copies only where ranks may go back in place.
        if job.keeps_images() {
            job.hold(&self.set, &job.placement());
        } else {
            let set = self.set.clone();
            job.publish(FromJl::Drop { episode, set });
            job.release_held();
        }
        job.drop_old_sets();
        if let Some(leaving) = &self.leaving
            && let Some(node) = job.nodes.get_mut(leaving)
        {
            node.avoid = true;
            let words = format!("the job starts again without node {leaving}");
            return Transition::Again { words };
        }
        let ranks = job.count();
        Transition::done(format!("set {} is committed: {ranks} ranks, {bytes} bytes", self.set))
    }
}

impl Handler for Checkpoint {
    fn on_nla(
        &mut self,
        context: &mut Context<'_>,
        node: &NodeName,
        message: &FromNla,
    ) -> Transition {
        if let FromNla::Prepared { loop_id, .. } = message
            && self.preparing.remove(node)
        {
            self.loop_id = self.loop_id.max(*loop_id);
            if self.preparing.is_empty() {
                return self.save(context.job, context.episode);
            }
        }
        let Some((_, waiting)) = &mut self.protecting else { return Transition::Stay };
        match message {
            FromNla::Protected { set, .. } if *set == self.set => {
                if waiting.remove(node) && waiting.is_empty() {
                    return self.protected(context.job);
                }
                Transition::Stay
            }
            FromNla::ProtectFailed { set, reason, .. } if *set == self.set => {
                Self::failed(format!("node {node} cannot protect its images: {reason}"))
            }
            _ => Transition::Stay,
        }
    }

    fn on_rank(&mut self, context: &mut Context<'_>, rank: u32, message: &FromRank) -> Transition {
        match message {
            FromRank::CheckpointDone { set, bytes, activity }
                if *set == self.set && !self.storing =>
            {
                self.saved.insert(rank, *bytes);
                self.activity.extend(activity.map(|done| (rank, done)));
                if self.saved.len() < context.job.count() {
                    return Transition::Stay;
                }
                self.saved(context.job, context.episode)
            }
            FromRank::CheckpointFailed { set, reason } if *set == self.set && !self.storing => {
                self.missed = reason.contains(LOOP_MISSED);
                Self::failed(format!("rank {rank} is not saved: {reason}"))
            }
            _ => Transition::Stay,
        }
    }

    fn on_exit(&mut self, context: &mut Context<'_>, rank: u32, how: ExitCause) -> Transition {
        match how {
            ExitCause::Exit(0) | ExitCause::Left if self.storing => Transition::Stay,
            ExitCause::Exit(0) | ExitCause::Left => {
                Self::failed(format!("rank {rank} ended before it was saved"))
            }
            how => Transition::died(context.job, rank, how),
        }
    }

    fn on_lost(&mut self, context: &mut Context<'_>, node: &NodeName) -> Transition {
        if context.job.ranks_on(node).is_empty() {
            return Transition::Stay;
        }
        let why = context.job.why_lost(node);
        let reason = format!("node {node} was lost during a checkpoint{why}");
        Transition::Died { code: 1, reason }
    }

    fn on_stored(&mut self, context: &mut Context<'_>, result: Result<u64, String>) -> Transition {
        match result {
            Err(reason) => Self::failed(reason),
            Ok(bytes) => self.committed(context.job, context.episode, bytes),
        }
    }

    /// Fetches again what the earlier JL was fetching.
    fn on_adopted(&mut self, context: &mut Context<'_>) -> Transition {
        // The requests to protect images are repeated.
        if self.storing && self.protecting.is_none() {
            self.store(context.job, context.episode);
        }
        Transition::Stay
    }

    fn on_deadline(&mut self, context: &mut Context<'_>) -> Transition {
        let missing = context.job.count() - self.saved.len();
        let reason = if !self.preparing.is_empty() {
            let nodes: Vec<&str> = self.preparing.iter().map(NodeName::as_str).take(8).collect();
            format!("not ready to be saved in time: {}", nodes.join(" "))
        } else if let Some((_, waiting)) = &self.protecting {
            let nodes: Vec<&str> = waiting.iter().map(NodeName::as_str).take(8).collect();
            format!("images were not protected in time: {}", nodes.join(" "))
        } else if self.storing {
            "the images were not in the store in time".to_owned()
        } else {
            format!("{missing} ranks were not saved in time")
        };
        Self::failed(reason)
    }

    fn progress(&self, job: &Job) -> Option<(usize, usize)> {
        if let Some((memory, waiting)) = &self.protecting {
            let all = memory.groups.iter().map(|group| group.members.len()).sum();
            return Some((all - waiting.len(), all));
        }
        (!self.storing).then_some((self.saved.len(), job.count()))
    }
}
