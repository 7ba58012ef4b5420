//! The functions of `fmi.h` that repair communicators after deaths. Pointers are the promise of the
//! caller, as that file has it.

use super::calls::put;
use super::{ERR_RANK_DIED, Running, SUCCESS, UNDEFINED, invalid, running};
use crate::fail;
use core::ffi::c_int;
use ftb_job::fmi::FmiError;
use std::collections::BTreeMap;

/// Most groups of a program at once. At the limit a new one is refused.
const GROUPS_MAX: usize = 4096;
/// `FMI_GROUP_NULL`
const GROUP_NULL: c_int = -1;

/// Ranks of the job, by the number of their group.
#[derive(Default)]
pub(super) struct Groups {
    last: c_int,
    by_number: BTreeMap<c_int, Vec<u32>>,
}

impl Groups {
    fn make(&mut self, ranks: Vec<u32>) -> Result<c_int, FmiError> {
        let next = self.last.checked_add(1).filter(|_| self.by_number.len() < GROUPS_MAX);
        let problem = || FmiError::Full(format!("the program has {GROUPS_MAX} groups: free some"));
        self.last = next.ok_or_else(problem)?;
        self.by_number.insert(self.last, ranks);
        Ok(self.last)
    }

    fn get(&self, group: c_int) -> Result<&[u32], FmiError> {
        let found = self.by_number.get(&group).map(Vec::as_slice);
        found.ok_or_else(|| FmiError::Invalid(format!("there is no group {group}")))
    }
}

fn number(value: usize) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

#[unsafe(no_mangle)]
extern "C" fn FMI_Comm_revoke(comm: c_int) -> c_int {
    running("FMI_Comm_revoke", |running| running.fmi.revoke(Running::comm(comm)?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Comm_is_revoked(comm: c_int, flag: *mut c_int) -> c_int {
    running("FMI_Comm_is_revoked", |running| {
        let found = running.fmi.is_revoked(Running::comm(comm)?)?;
        // SAFETY: fmi.h.
        unsafe { put(flag, found.into()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Comm_agree(comm: c_int, flag: *mut c_int) -> c_int {
    let mut died = Vec::new();
    let result = running("FMI_Comm_agree", |running| {
        if flag.is_null() {
            return invalid("there is no flag at NULL");
        }
        // SAFETY: fmi.h.
        let own = unsafe { flag.read() };
        let agreed = running.fmi.agree(Running::comm(comm)?, own.cast_unsigned())?;
        // SAFETY: fmi.h.
        unsafe { put(flag, agreed.flag.cast_signed()) };
        died = agreed.unacknowledged;
        Ok(())
    });
    if result != SUCCESS || died.is_empty() {
        return result;
    }
    fail(&format!("FMI_Comm_agree: members {died:?} have died"), ERR_RANK_DIED)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Comm_shrink(comm: c_int, made: *mut c_int) -> c_int {
    running("FMI_Comm_shrink", |running| {
        let found = running.fmi.shrink(Running::comm(comm)?)?;
        // SAFETY: fmi.h.
        unsafe { put(made, found.into()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn FMI_Comm_failure_ack(comm: c_int) -> c_int {
    running("FMI_Comm_failure_ack", |running| running.fmi.acknowledge(Running::comm(comm)?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Comm_failure_get_acked(comm: c_int, group: *mut c_int) -> c_int {
    running("FMI_Comm_failure_get_acked", |running| {
        let comm = Running::comm(comm)?;
        let members = running.fmi.members(comm)?;
        let acked = running.fmi.acknowledged(comm)?.into_iter();
        let acked = acked.filter_map(|place| members.get(place as usize).copied()).collect();
        let made = running.groups.make(acked)?;
        // SAFETY: fmi.h.
        unsafe { put(group, made) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Comm_group(comm: c_int, group: *mut c_int) -> c_int {
    running("FMI_Comm_group", |running| {
        let members = running.fmi.members(Running::comm(comm)?)?.to_vec();
        let made = running.groups.make(members)?;
        // SAFETY: fmi.h.
        unsafe { put(group, made) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Group_size(group: c_int, size: *mut c_int) -> c_int {
    running("FMI_Group_size", |running| {
        let found = number(running.groups.get(group)?.len());
        // SAFETY: fmi.h.
        unsafe { put(size, found) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Group_translate_ranks(
    from: c_int,
    count: c_int,
    ranks: *const c_int,
    to: c_int,
    found: *mut c_int,
) -> c_int {
    running("FMI_Group_translate_ranks", |running| {
        let (from, to) = (running.groups.get(from)?, running.groups.get(to)?);
        let count = usize::try_from(count).or_else(|_| invalid(format!("{count} ranks")))?;
        if count > 0 && (ranks.is_null() || found.is_null()) {
            return invalid("there are no ranks at NULL");
        }
        for at in 0..count {
            // SAFETY: fmi.h: both have `count` elements.
            let rank = unsafe { ranks.add(at).read() };
            let of = usize::try_from(rank).ok().and_then(|rank| from.get(rank));
            let Some(of) = of else { return invalid(format!("there is no rank {rank}")) };
            let place = to.iter().position(|other| other == of);
            // SAFETY: as above.
            unsafe { found.add(at).write(place.map_or(UNDEFINED, number)) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Group_free(group: *mut c_int) -> c_int {
    running("FMI_Group_free", |running| {
        if group.is_null() {
            return invalid("there is no group at NULL");
        }
        // SAFETY: fmi.h.
        let made = unsafe { group.read() };
        running.groups.get(made)?;
        running.groups.by_number.remove(&made);
        // SAFETY: fmi.h.
        unsafe { put(group, GROUP_NULL) };
        Ok(())
    })
}
