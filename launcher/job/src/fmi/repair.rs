//! Communicators after deaths, as ULFM has it: a member revokes one, the members that live agree
//! and make a smaller one. For jobs that go on without dead ranks (`--on-death continue`).

use super::{Comm, Fmi, FmiError};
use crate::frame::Class;
use crate::limits;
use crate::repair::{CommId, RepairCall, RepairKind, RoundResult};
use ftb_launcher_core::names::Ranks;

/// What the living members have agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "members may have died"]
pub struct Agreed {
    /// Their flags, bitwise and.
    pub flag: u32,
    /// Dead members, if a living one had not acknowledged all of them: their numbers in the
    /// communicator. All living members get the same.
    pub unacknowledged: Vec<u32>,
}

impl Fmi {
    /// Revokes a communicator: every call on it fails with [`FmiError::Revoked`] from now on, at
    /// all members, and calls that wait too. [`Fmi::agree`] and [`Fmi::shrink`] do not fail.
    ///
    /// # Errors
    /// [`FmiError::Full`] at [`limits::REVOCATIONS_MAX`]: it is not revoked. Else see [`FmiError`].
    pub fn revoke(&mut self, comm: Comm) -> Result<(), FmiError> {
        let id = self.comm_id(comm)?;
        // Another member was first: most of many that revoke at once ask nothing.
        if self.is_revoked(comm)? {
            return Ok(());
        }
        if self.call(comm, RepairKind::Revoke, 0, 0)?.kind.is_none() {
            let max = limits::REVOCATIONS_MAX;
            return Err(FmiError::Full(format!(
                "members have not heard of {max} revocations: they must call MPIX_Comm_agree or \
                 MPIX_Comm_shrink first"
            )));
        }
        self.job.revoke(id);
        Ok(())
    }

    /// Whether this rank knows that a communicator is revoked.
    ///
    /// # Errors
    /// [`FmiError::Invalid`].
    pub fn is_revoked(&self, comm: Comm) -> Result<bool, FmiError> {
        self.loops.communicators.get(comm)?;
        Ok(self.job.check_living(&[], Class::Within(comm)).is_err())
    }

    /// Agrees with all living members on the bitwise and of their flags. All of them call it; a
    /// member that dies meanwhile does not keep the others.
    ///
    /// # Errors
    /// See [`FmiError`].
    pub fn agree(&mut self, comm: Comm, flag: u32) -> Result<Agreed, FmiError> {
        let decision = self.round(comm, RepairKind::Agree, flag)?;
        let found = self.loops.communicators.get(comm)?;
        let dead = if decision.acked { Vec::new() } else { found.among(&decision.dead.0) };
        let unacknowledged = dead.into_iter().filter_map(|rank| found.place_of(rank)).collect();
        Ok(Agreed { flag: decision.flag, unacknowledged })
    }

    /// A communicator of the members that live, in their order, the same at all. All of them call
    /// it; a member that dies meanwhile does not keep the others, but may be in the communicator.
    ///
    /// # Errors
    /// See [`FmiError`].
    pub fn shrink(&mut self, comm: Comm) -> Result<Comm, FmiError> {
        let decision = self.round(comm, RepairKind::Shrink, 0)?;
        let made = self.loops.communicators.shrink(comm, &decision.dead.0, decision.next)?;
        self.join(made)?;
        Ok(made)
    }

    /// Acknowledges the dead members that this rank knows of: [`Fmi::agree`] does not report them
    /// again, and receives from any member go on without them.
    ///
    /// # Errors
    /// [`FmiError::Invalid`].
    pub fn acknowledge(&mut self, comm: Comm) -> Result<(), FmiError> {
        let dead = self.loops.communicators.get(comm)?.among(&self.job.dead());
        self.loops.communicators.acknowledge(comm, dead)
    }

    /// The acknowledged dead members, by their numbers in the communicator.
    ///
    /// # Errors
    /// [`FmiError::Invalid`].
    pub fn acknowledged(&self, comm: Comm) -> Result<Vec<u32>, FmiError> {
        let found = self.loops.communicators.get(comm)?;
        let acked = found.among(&found.acked).into_iter();
        Ok(acked.filter_map(|rank| found.place_of(rank)).collect())
    }

    /// The ranks of the job that are members, in their order.
    ///
    /// # Errors
    /// [`FmiError::Invalid`].
    pub fn members(&self, comm: Comm) -> Result<&[u32], FmiError> {
        Ok(&self.loops.communicators.get(comm)?.members)
    }

    /// Revocations of this communicator count from now on.
    pub(super) fn join(&self, comm: Comm) -> Result<(), FmiError> {
        self.job.joins(self.comm_id(comm)?);
        Ok(())
    }

    /// The members whose death fails a receive from any; `None`: those of the job.
    pub(super) fn unacknowledged(&self, comm: Comm) -> Result<Option<Vec<u32>>, FmiError> {
        if !self.job.goes_on() {
            return Ok(None);
        }
        let found = self.loops.communicators.get(comm)?;
        let counts = |member: &&u32| !found.acked.contains(member);
        Ok(Some(found.members.iter().filter(counts).copied().collect()))
    }

    fn comm_id(&self, comm: Comm) -> Result<CommId, FmiError> {
        let members = &self.loops.communicators.get(comm)?.members;
        Ok((comm, members.iter().min().copied().unwrap_or_default()))
    }

    fn round(&mut self, comm: Comm, kind: RepairKind, flag: u32) -> Result<RoundResult, FmiError> {
        let round = self.loops.communicators.next_round(comm)?;
        let decision = self.call(comm, kind, round, flag)?;
        if decision.kind == Some(kind) {
            return Ok(decision);
        }
        let problem = "the members of this communicator repair it by different calls at once";
        Err(FmiError::Invalid(problem.to_owned()))
    }

    fn call(
        &mut self,
        comm: Comm,
        kind: RepairKind,
        round: u32,
        flag: u32,
    ) -> Result<RoundResult, FmiError> {
        let found = self.loops.communicators.get(comm)?;
        let members = found.members.iter().copied().collect();
        let (acked, next) = (Ranks(found.acked.clone()), self.loops.communicators.next());
        // The job gives the call its number.
        let (call, seen, lost) = (0, 0, found.among(&self.job.lost()).into_iter().collect());
        let call = RepairCall { call, comm, round, kind, members, flag, acked, next, seen, lost };
        Ok(self.job.repair(call)?)
    }
}
