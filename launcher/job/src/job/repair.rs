//! A job whose ranks go on without dead ones: calls that the launcher decides, and the end.

use super::Job;
use crate::backplane::Notice;
use crate::error::{Error, Result};
use crate::frame::Class;
use crate::limits;
use crate::repair::{CommId, RepairCall, RepairKind, RoundResult, alone};
use ftb_launcher_core::names::Ranks;
use std::collections::BTreeSet;

/// The round of the end, which no communicator reaches.
const LAST_ROUND: u32 = u32::MAX;

impl Job {
    /// Whether the ranks go on without dead ones.
    pub(crate) fn goes_on(&self) -> bool {
        self.config.goes_on
    }

    /// The processes that are dead.
    pub(crate) fn dead(&self) -> BTreeSet<u32> {
        self.inbox.dead()
    }

    /// The processes to which the link has broken; they may live.
    pub(crate) fn lost(&self) -> BTreeSet<u32> {
        self.inbox.lost()
    }

    /// This rank is in that communicator.
    pub(crate) fn joins(&self, comm: CommId) {
        if self.goes_on() {
            self.inbox.joins(comm);
        }
    }

    /// Fails if the ranks go on without dead ones and one of these processes is dead, or the
    /// communicator is revoked.
    pub(crate) fn check_living(&self, processes: &[u32], class: Class) -> Result<()> {
        match self.goes_on() {
            true => self.inbox.check_living(processes, class).map_err(Error::tolerated),
            false => Ok(()),
        }
    }

    /// Calls, and waits for what the launcher decides for all members; a rank alone decides itself.
    pub(crate) fn repair(&mut self, call: RepairCall) -> Result<RoundResult> {
        if call.members.len() == 1 {
            return Ok(alone(&call));
        }
        if !self.goes_on() || self.config.agent_socket.is_none() {
            return Err(Error::Environment {
                variable: "FTB_ON_DEATH",
                value: String::new(),
                problem: "expected continue: start the job with --on-death continue".to_owned(),
            });
        }
        let call = self.control.repairs().begin(call);
        let episode = self.config.episode;
        loop {
            let call = call.clone();
            self.backplane.publish(&Notice::Repair { episode, call });
            if let Some(decision) = self.control.repairs().wait(limits::REPAIR_REPEAT) {
                self.progress.step();
                return Ok(decision);
            }
        }
    }

    /// This rank knows that the communicator is revoked.
    pub(crate) fn revoke(&self, comm: CommId) {
        self.inbox.revoke(&[comm]);
    }

    /// Waits for the end of all living ranks.
    pub(super) fn finish(&mut self) -> Result<()> {
        let members = self.members.numbers().iter().copied().collect();
        let (call, round, kind, acked) = (0, LAST_ROUND, RepairKind::Finish, Ranks::default());
        let (comm, flag, next, seen, lost) = (0, 0, 0, 0, Ranks::default());
        self.repair(RepairCall {
            call,
            comm,
            round,
            kind,
            members,
            flag,
            acked,
            next,
            seen,
            lost,
        })?;
        Ok(())
    }
}
