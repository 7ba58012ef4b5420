//! The start workflow: of a new job, of a job from a set (`ftb-launch restart`), and of a running
//! job that restarts from its last set.

use super::config::OnDeath;
use super::episode::{Context, Handler, Transition};
use super::job::{Job, NodeFaults, Unusable};
use super::node_wait::NO_NODES;
use crate::message::{ExitCause, FromJl, FromNla, Launch, Placement};
use crate::names::{Episode, NodeName, Ranks, SetId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Exit code of a rank that rejects a damaged image.
pub(super) const EXIT_TORN_IMAGE: i32 = ftb_cli::DAMAGED_IMAGE as i32;

/// Exit code of a job with a rank that could not be started.
pub(super) const NOT_STARTED: i32 = ftb_cli::NOT_STARTED as i32;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    set: Option<SetId>,
    placement: Placement,
    stage: StartStage,
    waiting: BTreeSet<NodeName>,
    /// The images on nodes that other nodes fetch.
    #[serde(default)]
    fetching: Placement,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum StartStage {
    Gather,
    Reset,
    /// No placement: the job waits for nodes.
    Wait,
    Copy,
    Launch,
    Join,
}

/// The requests to copy images from the store to the nodes.
pub(super) fn copies(episode: Episode, set: &SetId, who: &Placement) -> Vec<FromJl> {
    let copy = |(target, ranks): (&NodeName, &Ranks)| FromJl::Copy {
        episode,
        from: None,
        target: target.clone(),
        set: set.clone(),
        ranks: ranks.clone(),
    };
    who.iter().map(copy).collect()
}

impl Start {
    pub(super) fn first(job: &mut Job) -> (Self, Transition) {
        let start = Self {
            set: job.config.restore.clone(),
            placement: job.placement(),
            stage: StartStage::Gather,
            waiting: job.nodes.keys().cloned().collect(),
            fetching: Placement::new(),
        };
        let transition = Transition::next("gather", job.config.deadlines.gather, vec![FromJl::Ask]);
        (start, transition)
    }

    /// Whether it waits for launch agents.
    pub(super) fn gathers(&self) -> bool {
        self.stage == StartStage::Gather
    }

    /// Whether it waits for nodes.
    pub(super) fn waits(&self) -> bool {
        self.stage == StartStage::Wait
    }

    /// All ranks have a place again. Nodes that joined meanwhile may have ranks from before their
    /// loss.
    pub(super) fn has_nodes(&mut self, job: &Job, episode: Episode) -> Transition {
        self.stage = StartStage::Reset;
        self.waiting = job.alive().into_iter().collect();
        let (barrier, reason) = (job.barrier.number(), "the job has nodes again".to_owned());
        let request = FromJl::Reset { episode, barrier, reason };
        Transition::next("reset", job.config.deadlines.reset, vec![request])
    }

    /// A start of ranks that have run before; without a set from their beginning.
    pub(super) fn again(
        job: &mut Job,
        episode: Episode,
        set: Option<SetId>,
        reason: &str,
    ) -> (Self, Transition) {
        job.met = false;
        // Ends of earlier processes and their barrier no longer count.
        job.incarnation += 1;
        for row in job.ranks.iter_mut().filter(|row| !row.left_out) {
            row.incarnation = job.incarnation;
            row.ended = None;
        }
        let mut start = Self {
            set,
            placement: job.placement(),
            stage: StartStage::Reset,
            waiting: job.alive().into_iter().collect(),
            fetching: Placement::new(),
        };
        if start.waiting.is_empty() {
            let transition = start.planned(job, episode);
            return (start, transition);
        }
        let request =
            FromJl::Reset { episode, barrier: job.barrier.void(), reason: reason.to_owned() };
        (start, Transition::next("reset", job.config.deadlines.reset, vec![request]))
    }

    /// All NLAs have answered or are lost: decide the placement, then copy or launch.
    fn planned(&mut self, job: &mut Job, episode: Episode) -> Transition {
        let faults = if self.gathers() { NodeFaults::Refuse } else { NodeFaults::Avoid };
        match job.replan(faults) {
            Ok(placement) => {
                job.keep_avoided(&placement);
                job.tell_replaced(&placement);
                self.placement = placement;
            }
            Err(node) => {
                let fault = job.nodes.get(&node).and_then(|node| node.unusable.clone());
                if let Some(Unusable { why, .. }) = fault.filter(|_| self.gathers()) {
                    let words = format!(
                        "node {node} is not usable ({why}) and no hot spare is left: repair it, \
                         name another host or spare, or say --ignore-conditions"
                    );
                    return Transition::End { code: 1, words };
                }
                if !job.has_left_out() && job.starts_fewer() {
                    self.leave_nodes(job);
                }
                if let Err(why) = self.shrink(job) {
                    if !self.gathers() && !job.config.wait_for_nodes.is_zero() {
                        self.stage = StartStage::Wait;
                        return Transition::Wait { node };
                    }
                    let words = format!("node {node} is not usable and no hot spare is left{why}");
                    return Transition::End { code: 1, words };
                }
            }
        }
        let Some(set) = self.set.clone() else {
            return self.launch(job, episode);
        };
        self.stage = StartStage::Copy;
        if set.is_on_nodes() {
            return self.fetch_from_nodes(job, episode, &set);
        }
        self.waiting = self.placement.keys().cloned().collect();
        let requests = match job.other_size(&set) {
            None => copies(episode, &set, &job.needed(&set, &self.placement)),
            // Only the program knows which rank needs which image.
            Some(size) => {
                let all: Ranks = (0..size).collect();
                let every = self.placement.keys().map(|node| (node.clone(), all.clone()));
                copies(episode, &set, &every.collect())
            }
        };
        Transition::next("copy", job.config.deadlines.copy, requests)
    }

    /// Nodes keep their images over a restart; only nodes without them get some.
    fn fetch_from_nodes(&mut self, job: &mut Job, episode: Episode, set: &SetId) -> Transition {
        let missing = job.missing(set, &self.placement);
        if missing.is_empty() {
            return self.launch(job, episode);
        }
        if missing == self.fetching {
            return self.bad_set(job, "images that were fetched are missing");
        }
        self.fetching = missing;
        match job.fetches(episode, set, &self.fetching) {
            Err(why) => self.bad_set(job, &why),
            Ok(requests) => {
                self.waiting = self.fetching.keys().cloned().collect();
                Transition::next("copy", job.config.deadlines.copy, requests)
            }
        }
    }

    /// All nodes that were asked for images have them.
    fn copied(&mut self, job: &mut Job, episode: Episode) -> Transition {
        match self.set.clone().filter(SetId::is_on_nodes) {
            Some(set) => {
                job.has_fetched(&set, &self.fetching);
                self.fetch_from_nodes(job, episode, &set)
            }
            None => self.launch(job, episode),
        }
    }

    /// Fewer ranks do not share a set on the nodes: the newest set of the store is taken.
    fn leave_nodes(&mut self, job: &mut Job) {
        if self.set.take_if(|set| set.is_on_nodes()).is_some() {
            self.set = job.sets.last().cloned();
        }
        job.drop_memory("fewer ranks cannot start from a set in memory: it is dropped");
        if job.disk_set().is_some() {
            job.release_held();
        }
    }

    fn shrink(&mut self, job: &mut Job) -> Result<(), String> {
        if !job.starts_fewer() {
            return Err(String::new());
        }
        if job.has_left_out() {
            // Their numbers stay: the ranks of lost nodes are left out as those before.
            let (placement, left) = job.fewer()?;
            if placement.is_empty() {
                return Err(": no node is left".to_owned());
            }
            job.leave_out(&left, true);
            self.placement = placement;
            job.tell(format!(
                "no hot spare is left: the job goes on without rank {}",
                left.brief()
            ));
            return Ok(());
        }
        let before = job.config.size;
        self.placement = job.shrink().map_err(|why| format!(": {why}"))?;
        let size = job.config.size;
        let set = self.set.as_ref().map(Job::named).unwrap_or_default();
        job.tell(format!(
            "no hot spare is left: {size} ranks take over what {before} have done, from set {set}"
        ));
        Ok(())
    }

    fn launch(&mut self, job: &mut Job, episode: Episode) -> Transition {
        self.stage = StartStage::Launch;
        job.waits = None;
        let kept = |set: &&SetId| {
            (job.keeps_images() || set.is_on_nodes()) && job.other_size(set).is_none()
        };
        if let Some(set) = self.set.clone().as_ref().filter(kept) {
            job.has_fetched(set, &job.needed(set, &self.placement));
        }
        self.waiting = job.alive().into_iter().collect();
        job.place(&self.placement);
        job.ranks_wait = self.set.is_none() && job.first_waits();
        job.incarnation += u64::from(episode > Episode(1));
        for row in job.ranks.iter_mut().filter(|row| !row.left_out) {
            row.incarnation = job.incarnation;
        }
        let launch = FromJl::Launch(Launch {
            episode,
            incarnation: job.incarnation,
            barrier: job.barrier.number(),
            size: job.config.size,
            set: self.set.clone(),
            set_size: self.set.as_ref().and_then(|set| job.other_size(set)),
            placement: self.placement.clone(),
        });
        Transition::next("launch", job.config.deadlines.launch, vec![launch])
    }

    fn launched(&mut self, job: &mut Job) -> Transition {
        // Ranks restored by their agents do not meet.
        if job.met || self.set.is_none() || job.agents_save() {
            job.met |= job.agents_save();
            return Transition::done("all ranks are started");
        }
        self.stage = StartStage::Join;
        Transition::next("join", job.config.deadlines.join, Vec::new())
    }

    /// Whether these ranks are all that a node was asked to fetch from others, if it was.
    fn has_asked_only(&self, node: &NodeName, ranks: &Ranks) -> bool {
        let asked = self.fetching.get(node);
        asked.is_none_or(|asked| asked.iter().all(|rank| ranks.has(rank)))
    }

    fn answered(&mut self, node: &NodeName, stage: StartStage) -> bool {
        self.stage == stage && self.waiting.remove(node) && self.waiting.is_empty()
    }

    /// The set cannot be restored: drop it and try the one before.
    fn bad_set(&mut self, job: &mut Job, reason: &str) -> Transition {
        let Some(set) = self.set.take() else {
            return Transition::Stay;
        };
        let words = format!("set {set} cannot be restored and is put aside: {reason}");
        if job.memory.as_ref().is_some_and(|memory| memory.set == set) {
            job.drop_memory(&words);
            return Transition::Restart { code: 1, reason: reason.to_owned() };
        }
        job.tell(words);
        job.sets.retain(|other| *other != set);
        job.activity.remove(&set);
        job.release(&set);
        Transition::Restart { code: 1, reason: reason.to_owned() }
    }
}

impl Handler for Start {
    fn on_nla(
        &mut self,
        context: &mut Context<'_>,
        node: &NodeName,
        message: &FromNla,
    ) -> Transition {
        match message {
            FromNla::Ready { .. } if self.answered(node, StartStage::Gather) => {
                self.planned(context.job, context.episode)
            }
            FromNla::Reset { .. } if self.answered(node, StartStage::Reset) => {
                self.planned(context.job, context.episode)
            }
            // It may be the repeated answer of an earlier round.
            FromNla::Copied { ranks, .. }
                if self.has_asked_only(node, ranks) && self.answered(node, StartStage::Copy) =>
            {
                self.copied(context.job, context.episode)
            }
            FromNla::CopyFailed { reason, .. } if self.stage == StartStage::Copy => {
                self.bad_set(context.job, &format!("node {node}: {reason}"))
            }
            FromNla::Launched { .. } if self.answered(node, StartStage::Launch) => {
                self.launched(context.job)
            }
            // An earlier start has failed, which this one replaces.
            FromNla::LaunchFailed { .. }
                if !matches!(self.stage, StartStage::Launch | StartStage::Join) =>
            {
                Transition::Stay
            }
            FromNla::LaunchFailed { reason, .. } if self.set.is_some() => {
                self.bad_set(context.job, &format!("node {node}: {reason}"))
            }
            FromNla::LaunchFailed { ranks, reason, .. } => Transition::End {
                code: NOT_STARTED,
                words: format!("node {node} cannot start rank {ranks}: {reason}"),
            },
            _ => Transition::Stay,
        }
    }

    fn on_barrier(&mut self, _: &mut Context<'_>) -> Transition {
        if self.stage == StartStage::Join {
            Transition::done("all ranks are restored and have met")
        } else {
            Transition::Stay
        }
    }

    fn on_exit(&mut self, context: &mut Context<'_>, rank: u32, how: ExitCause) -> Transition {
        if !matches!(self.stage, StartStage::Launch | StartStage::Join) || how == ExitCause::Exit(0)
        {
            return Transition::Stay;
        }
        if how == ExitCause::Exit(EXIT_TORN_IMAGE) && self.set.is_some() {
            return self.bad_set(context.job, &format!("rank {rank} refused its image"));
        }
        let reason = format!("rank {rank} ended during the start: {how}");
        let code = how.code();
        match context.job.config.on_death {
            OnDeath::Rollback | OnDeath::Restart | OnDeath::Shrink if self.set.is_some() => {
                Transition::Restart { code, reason }
            }
            _ => Transition::End { code, words: reason },
        }
    }

    fn on_lost(&mut self, context: &mut Context<'_>, node: &NodeName) -> Transition {
        let waited = self.waiting.remove(node);
        match self.stage {
            StartStage::Gather | StartStage::Reset if waited && self.waiting.is_empty() => {
                self.planned(context.job, context.episode)
            }
            StartStage::Gather | StartStage::Reset | StartStage::Wait => Transition::Stay,
            _ if self.placement.contains_key(node) => {
                let why = context.job.why_lost(node);
                Transition::restart(format!("node {node} was lost during the start{why}"))
            }
            StartStage::Launch if waited && self.waiting.is_empty() => self.launched(context.job),
            StartStage::Copy | StartStage::Launch | StartStage::Join => Transition::Stay,
        }
    }

    /// Nodes without an answer are lost; the start continues.
    fn on_deadline(&mut self, context: &mut Context<'_>) -> Transition {
        match self.stage {
            StartStage::Wait => {
                let length = humantime::format_duration(context.job.config.wait_for_nodes);
                let words = format!("no node became usable within {length}");
                Transition::End { code: NO_NODES, words }
            }
            StartStage::Join => {
                Transition::overdue("not all ranks have met in time after the restart")
            }
            _ => Transition::Lost(self.waiting.iter().cloned().collect()),
        }
    }

    fn missing(&self) -> Vec<NodeName> {
        self.waiting.iter().cloned().collect()
    }

    fn progress(&self, job: &Job) -> Option<(usize, usize)> {
        let all = match self.stage {
            StartStage::Gather => job.nodes.len(),
            StartStage::Reset | StartStage::Launch => job.alive().len(),
            // From memory only nodes without images fetch some.
            StartStage::Copy if !self.fetching.is_empty() => self.fetching.len(),
            StartStage::Copy => self.placement.len(),
            StartStage::Wait | StartStage::Join => return None,
        };
        Some((all.saturating_sub(self.waiting.len()), all))
    }
}
