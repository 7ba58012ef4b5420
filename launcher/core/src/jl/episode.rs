//! What each workflow of an episode implements ([`Handler`]), and what an input does to it
//! ([`Transition`]). Not responsible for: the open episode itself ([`super::workflow`]).

use super::job::Job;
use crate::message::{ExitCause, FromJl, FromNla, FromRank};
use crate::names::{Episode, NodeName};
use core::time::Duration;

/// What a JL cannot know about ranks that resumed while it took over.
pub(super) const UNHEARD: &str = ", this launcher cannot know whether every rank goes on";

/// The effect of an input on a workflow.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Transition {
    Stay,
    /// A new phase. Its requests are published now and repeated until the next phase.
    Next {
        phase: &'static str,
        deadline: Duration,
        requests: Vec<FromJl>,
    },
    /// The episode is closed.
    Close {
        done: bool,
        words: String,
    },
    /// A rank, or a node with ranks, has died: `on_death` decides.
    Died {
        code: i32,
        reason: String,
    },
    /// The episode is closed; the job restarts from the set that it has made.
    Again {
        words: String,
    },
    /// The workflow has failed. The job restarts from its last set, or ends with this code.
    Restart {
        code: i32,
        reason: String,
    },
    /// Ranks missed a deadline and may only be slow. The job does not end because of it.
    Overdue {
        reason: String,
    },
    /// There is no node in the place of this one: the job waits for one.
    Wait {
        node: NodeName,
    },
    /// These nodes count as lost.
    Lost(Vec<NodeName>),
    /// The job ends with this code.
    End {
        code: i32,
        words: String,
    },
}

impl Transition {
    pub(super) fn next(phase: &'static str, deadline: Duration, requests: Vec<FromJl>) -> Self {
        Self::Next { phase, deadline, requests }
    }

    pub(super) fn done(words: impl Into<String>) -> Self {
        Self::Close { done: true, words: words.into() }
    }

    pub(super) fn restart(reason: impl Into<String>) -> Self {
        Self::Restart { code: 1, reason: reason.into() }
    }

    pub(super) fn overdue(reason: impl Into<String>) -> Self {
        Self::Overdue { reason: reason.into() }
    }

    pub(super) fn died(job: &Job, rank: u32, how: ExitCause) -> Self {
        let row = job.ranks.get(rank as usize);
        let on = row.map(|row| format!(" on {}", row.node)).unwrap_or_default();
        Self::Died { code: how.code(), reason: format!("rank {rank}{on} died: {how}") }
    }
}

/// What a workflow works on.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub job: &'a mut Job,
    pub episode: Episode,
}

/// The inputs of a workflow. The JL has checked episode, start and sender before.
pub(super) trait Handler {
    /// An NLA has answered.
    fn on_nla(&mut self, _: &mut Context<'_>, _node: &NodeName, _message: &FromNla) -> Transition {
        Transition::Stay
    }

    /// A rank has spoken.
    fn on_rank(&mut self, _: &mut Context<'_>, _rank: u32, _message: &FromRank) -> Transition {
        Transition::Stay
    }

    /// All ranks of the node have arrived at the barrier, other ranks of the job have not.
    fn on_arrived(&mut self, _: &mut Context<'_>, _node: &NodeName) -> Transition {
        Transition::Stay
    }

    /// All ranks of the job have arrived: the barrier opens.
    fn on_barrier(&mut self, _: &mut Context<'_>) -> Transition {
        Transition::Stay
    }

    /// A rank has ended.
    fn on_exit(&mut self, context: &mut Context<'_>, rank: u32, how: ExitCause) -> Transition;

    /// A node is lost.
    fn on_lost(&mut self, context: &mut Context<'_>, node: &NodeName) -> Transition;

    /// A node has a fault and takes no more ranks.
    fn on_unusable(&mut self, _: &mut Context<'_>, _node: &NodeName) -> Transition {
        Transition::Stay
    }

    /// The set is in the store, or failed to get there.
    fn on_stored(&mut self, _: &mut Context<'_>, _result: Result<u64, String>) -> Transition {
        Transition::Stay
    }

    /// Another JL has taken over. Messages that are sent only once, and running work of the shell,
    /// are lost.
    fn on_adopted(&mut self, _: &mut Context<'_>) -> Transition {
        Transition::Stay
    }

    fn on_deadline(&mut self, context: &mut Context<'_>) -> Transition;

    /// Nodes whose answers the phase waits for, if known.
    fn missing(&self) -> Vec<NodeName> {
        Vec::new()
    }

    /// Answers received and expected, if known.
    fn progress(&self, job: &Job) -> Option<(usize, usize)>;
}
