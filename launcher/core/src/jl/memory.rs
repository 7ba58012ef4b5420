//! When the job is saved in the memory of its nodes besides the interval.
//!
//! Ranks that save themselves wait for the first set, in a barrier or in their first call of
//! `ftb_loop`. Ranks in pods do not know of it: they are saved a second after their start. In
//! `MPI_Init` they pass several PMI barriers, in which they cannot be saved.
//!
//! If that fails it is tried again at growing intervals, until there is a set. The same is done if
//! the set is that of more ranks, or if a group of it bears fewer losses than its scheme promises:
//! nodes that have images, but no ranks any more, are lost or may be taken away.

use super::{Initiator, Jl, Open, Request, Workflow};
use crate::manner::Saver;
use crate::message::FromJl;
use core::time::Duration;
use ftb_core::Now;

/// Until an attempt for which no rank waits; the interval doubles.
const FIRST_AFTER: Duration = Duration::from_secs(1);
/// Longest interval between attempts for the first set.
const FIRST_EVERY_MAX: Duration = Duration::from_secs(60);
/// The same while there is a set, if only a weak one: each attempt may stop all ranks.
const AGAIN_EVERY_MAX: Duration = Duration::from_secs(600);

/// The next attempt to protect ranks that do not wait for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstSet {
    due_ns: u64,
    wait: Duration,
}

impl Default for FirstSet {
    fn default() -> Self {
        Self { due_ns: u64::MAX, wait: FIRST_AFTER }
    }
}

impl Jl {
    /// All ranks have met.
    pub(super) fn on_met(&mut self, now: Now) {
        if self.job.saver() == Saver::Ranks {
            self.protect_first(now);
        }
    }

    /// A start has ended well.
    pub(super) fn on_started_well(&mut self, now: Now) {
        if self.job.saver() == Saver::Loop {
            self.protect_first(now);
        }
    }

    /// Without a set in memory the job is saved there before anything else.
    fn protect_first(&mut self, now: Now) {
        let Some(reason) = self.lacks() else { return };
        if self.job.is_movable() && self.saves_itself() {
            self.want(now, Request::MemoryCheckpoint { reason }, Initiator::Internal);
        }
    }

    /// Why the job is to be saved in memory now.
    fn lacks(&self) -> Option<String> {
        if self.lacks_first() {
            return Some("nothing of it is in memory yet".to_owned());
        }
        if self.lacks_members() {
            return Some("its set in memory is that of more ranks".to_owned());
        }
        let group = self.job.weakened()?;
        let nodes: Vec<&str> = group.members.iter().map(|of| of.host.as_str()).collect();
        let nodes = nodes.join(" ");
        Some(format!("the group {nodes} of its set in memory bears fewer losses than it should"))
    }

    fn lacks_first(&self) -> bool {
        let wanted = self.job.config.memory.as_ref().is_some_and(|memory| memory.first);
        wanted && self.job.memory.is_none()
    }

    /// Whether ranks that made the set in memory are left out: the others have more to lose now.
    fn lacks_members(&self) -> bool {
        self.job.memory.as_ref().is_some_and(|memory| memory.ranks() != self.job.members())
    }

    /// The ranks run.
    pub(super) fn expect_first(&mut self, now: Now) {
        self.first_set = FirstSet::default();
        self.expect_protection(now);
    }

    /// An episode is closed, or a node is lost: the job may have to be protected.
    pub(super) fn expect_protection(&mut self, now: Now) {
        if self.lacks().is_none() {
            // A later lack is another one: it does not wait for the pause of this one.
            self.first_set = FirstSet::default();
        } else if self.first_set.due_ns == u64::MAX {
            self.first_set.due_ns = now.deadline_ns(self.first_set.wait);
        }
    }

    /// An episode is closed: the nodes free the images that served it alone.
    pub(super) fn drop_images(&mut self, open: &Open, done: bool) {
        let served = match &open.workflow {
            Workflow::Migration(migration) => migration.set(),
            Workflow::Checkpoint(checkpoint) if !done => checkpoint.set(),
            _ => return,
        };
        let (episode, set) = (open.episode, served.clone());
        if !set.is_on_nodes() {
            return self.job.publish(FromJl::Drop { episode, set });
        }
        self.job.drop_again(&set);
        self.job.drop_from_nodes(set);
    }

    pub(super) fn first_set_ns(&self) -> u64 {
        self.first_set.due_ns
    }

    pub(super) fn first_set_tick(&mut self, now: Now) {
        if now.mono_ns < self.first_set.due_ns {
            return;
        }
        if self.lacks().is_none() {
            self.first_set = FirstSet::default();
            return;
        }
        let most = if self.job.memory.is_some() { AGAIN_EVERY_MAX } else { FIRST_EVERY_MAX };
        let FirstSet { due_ns, wait } = &mut self.first_set;
        *wait = (*wait * 2).min(most);
        *due_ns = now.deadline_ns(*wait);
        if self.job.met && self.job.can_protect() {
            self.protect_first(now);
        }
    }
}
