//! The functions of `fmi.h` for messages and for the loop. Pointers are the promise of the caller,
//! as that file has it: NULL, where it is allowed, or memory of that type and length.

use super::types::operation;
use super::{
    COMM_NULL, ERR_RECOVERY, MOVED, REQUEST_DONE, REQUEST_NULL, Running, SUCCESS, Stage, Status,
    UNDEFINED, finalize, init, invalid, running, stage,
};
use crate::fail;
use core::ffi::{c_char, c_int, c_void};
use ftb_job::StartState;
use ftb_job::fmi::{Comm, Fmi, FmiError};
use ftb_job::limits::MESSAGE_BYTES_MAX;
use std::time::Instant;

/// Writes a result.
///
/// # Safety
/// `to` is NULL or memory of one value.
pub(super) unsafe fn put<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: the caller's promise.
        unsafe { to.write(value) };
    }
}

fn number(value: u32) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

#[unsafe(no_mangle)]
extern "C" fn FMI_Init(_argc: *mut c_int, _argv: *mut *mut *mut c_char) -> c_int {
    init()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Initialized(flag: *mut c_int) -> c_int {
    // SAFETY: fmi.h.
    unsafe { put(flag, c_int::from(!matches!(&*stage(), Stage::Before))) };
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Finalized(flag: *mut c_int) -> c_int {
    // SAFETY: fmi.h.
    unsafe { put(flag, c_int::from(matches!(&*stage(), Stage::Over))) };
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn FMI_Finalize() -> c_int {
    finalize()
}

#[unsafe(no_mangle)]
extern "C" fn FMI_Abort(_comm: c_int, code: c_int) -> c_int {
    let running = std::mem::replace(&mut *stage(), Stage::Over);
    // An end with code 0 would look like success.
    let code = u8::try_from(code).ok().filter(|code| *code > 0).unwrap_or(1);
    match running {
        Stage::Running(running) => running.fmi.abort(code),
        Stage::Before | Stage::Over => std::process::exit(code.into()),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Loop(ckpts: *mut *mut c_void, sizes: *mut usize, len: c_int) -> c_int {
    let (mut id, mut exit_code) = (0, 3);
    let result = running("FMI_Loop", |running| {
        let are_there = len == 0 || !(ckpts.is_null() || sizes.is_null());
        let Some(len) = usize::try_from(len).ok().filter(|_| are_there) else {
            return invalid(format!("{len} pieces of memory"));
        };
        // SAFETY: fmi.h: both have `len` elements.
        let memory = (0..len).map(|at| unsafe { ((*ckpts.add(at)).cast(), *sizes.add(at)) });
        let memory: Vec<(*mut u8, usize)> = memory.collect();
        // SAFETY: fmi.h: the program owns this memory, and is in this call.
        let passed = unsafe { running.fmi.pass(&memory) };
        let Running { fmi, pending, .. } = running;
        pending.retain(|_, pending| fmi.is_open(pending.posted));
        id = passed.inspect_err(|error| exit_code = error.exit_code().into())?;
        Ok(())
    });
    match result {
        SUCCESS => return c_int::try_from(id).unwrap_or(c_int::MAX),
        // The program goes back to its point of restart.
        ERR_RECOVERY => return -1,
        MOVED => {
            // The other process has the place of this rank: nothing is said to other ranks here.
            std::mem::forget(std::mem::replace(&mut *stage(), Stage::Over));
            std::process::exit(0)
        }
        _ => {}
    }
    // A loop does not end by a negative id.
    eprintln!("{}", crate::reason());
    std::process::exit(exit_code)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Restart_point(state: *mut c_int) -> c_int {
    running("FMI_Restart_point", |running| {
        let found = match running.fmi.restart_point() {
            StartState::New => 0,
            StartState::Restarted => 1,
            StartState::Added => 2,
        };
        if found == 1 {
            running.pending.clear();
        }
        // SAFETY: fmi.h.
        unsafe { put(state, found) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Comm_rank(comm: c_int, rank: *mut c_int) -> c_int {
    running("FMI_Comm_rank", |running| {
        let found = running.fmi.rank(Running::comm(comm)?)?;
        // SAFETY: fmi.h.
        unsafe { put(rank, number(found)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Comm_size(comm: c_int, size: *mut c_int) -> c_int {
    running("FMI_Comm_size", |running| {
        let found = running.fmi.size(Running::comm(comm)?)?;
        // SAFETY: fmi.h.
        unsafe { put(size, number(found)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Comm_dup(comm: c_int, made: *mut c_int) -> c_int {
    running("FMI_Comm_dup", |running| {
        let found = running.fmi.duplicate(Running::comm(comm)?)?;
        // SAFETY: fmi.h.
        unsafe { put(made, found.into()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Comm_split(
    comm: c_int,
    color: c_int,
    key: c_int,
    made: *mut c_int,
) -> c_int {
    running("FMI_Comm_split", |running| {
        let color = match u32::try_from(color) {
            Ok(color) => Some(color),
            Err(_) if color == UNDEFINED => None,
            Err(_) => return invalid(format!("{color} is no colour")),
        };
        let found = running.fmi.split(Running::comm(comm)?, color, key)?;
        // SAFETY: fmi.h.
        unsafe { put(made, found.map_or(COMM_NULL, c_int::from)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Comm_free(comm: *mut c_int) -> c_int {
    running("FMI_Comm_free", |running| {
        if comm.is_null() {
            return invalid("there is no communicator at NULL");
        }
        // SAFETY: fmi.h.
        let number = unsafe { comm.read() };
        running.fmi.free(Running::comm(number)?)?;
        // SAFETY: fmi.h.
        unsafe { put(comm, COMM_NULL) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Send(
    data: *const c_void,
    count: c_int,
    of: c_int,
    to: c_int,
    tag: c_int,
    comm: c_int,
) -> c_int {
    running("FMI_Send", |running| {
        let buffer = running.buffer(data, count, of)?;
        // SAFETY: fmi.h: the values may be read.
        unsafe { running.send(&buffer, (to, tag, comm)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Isend(
    data: *const c_void,
    count: c_int,
    of: c_int,
    to: c_int,
    tag: c_int,
    comm: c_int,
    request: *mut i64,
) -> c_int {
    // SAFETY: fmi.h.
    unsafe { put(request, REQUEST_NULL) };
    running("FMI_Isend", |running| {
        let buffer = running.buffer(data, count, of)?;
        // SAFETY: fmi.h: the values may be read.
        unsafe { running.send(&buffer, (to, tag, comm)) }?;
        // SAFETY: fmi.h.
        unsafe { put(request, REQUEST_DONE) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Recv(
    data: *mut c_void,
    count: c_int,
    of: c_int,
    from: c_int,
    tag: c_int,
    comm: c_int,
    status: *mut Status,
) -> c_int {
    running("FMI_Recv", |running| {
        let buffer = running.buffer(data, count, of)?;
        let request = running.post(buffer, (from, tag, comm))?;
        // SAFETY: fmi.h: the values may be written.
        let found = unsafe { running.wait(request) }?;
        // SAFETY: fmi.h.
        unsafe { put(status, found) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Irecv(
    data: *mut c_void,
    count: c_int,
    of: c_int,
    from: c_int,
    tag: c_int,
    comm: c_int,
    request: *mut i64,
) -> c_int {
    // SAFETY: fmi.h.
    unsafe { put(request, REQUEST_NULL) };
    running("FMI_Irecv", |running| {
        let buffer = running.buffer(data, count, of)?;
        let posted = running.post(buffer, (from, tag, comm))?;
        // SAFETY: fmi.h.
        unsafe { put(request, posted) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Wait(request: *mut i64, status: *mut Status) -> c_int {
    running("FMI_Wait", |running| {
        // SAFETY: fmi.h.
        unsafe { wait_one(running, request, status) }
    })
}

/// # Safety
/// As for `FMI_Wait`.
unsafe fn wait_one(
    running: &mut Running,
    request: *mut i64,
    status: *mut Status,
) -> Result<(), FmiError> {
    if request.is_null() {
        return invalid("there is no request at NULL");
    }
    // SAFETY: the caller's promise.
    let number = unsafe { request.replace(REQUEST_NULL) };
    // SAFETY: fmi.h: the memory of a receive may be written until it is waited for.
    let found = unsafe { running.wait(number) }?;
    // SAFETY: the caller's promise.
    unsafe { put(status, found) };
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Waitall(count: c_int, requests: *mut i64, statuses: *mut Status) -> c_int {
    running("FMI_Waitall", |running| {
        // SAFETY: fmi.h.
        unsafe { wait_all(running, count, requests, statuses) }
    })
}

/// # Safety
/// As for `FMI_Waitall`.
unsafe fn wait_all(
    running: &mut Running,
    count: c_int,
    requests: *mut i64,
    statuses: *mut Status,
) -> Result<(), FmiError> {
    let count = counted(count, requests)?;
    let mut result = Ok(());
    for at in 0..count {
        let one = match statuses.is_null() {
            true => std::ptr::null_mut(),
            // SAFETY: fmi.h: there are `count` of them.
            false => unsafe { statuses.add(at) },
        };
        // SAFETY: fmi.h: there are `count` of them.
        let waited = unsafe { wait_one(running, requests.wrapping_add(at), one) };
        result = result.and(waited);
    }
    result
}

/// How many requests a call has.
fn counted(count: c_int, requests: *const i64) -> Result<usize, FmiError> {
    let count = usize::try_from(count).or_else(|_| invalid(format!("{count} requests")))?;
    if count > 0 && requests.is_null() {
        return invalid("there are no requests at NULL");
    }
    Ok(count)
}

/// The requests of a call.
///
/// # Safety
/// There are `count` of them.
unsafe fn numbers(count: c_int, requests: *const i64) -> Result<Vec<i64>, FmiError> {
    let count = counted(count, requests)?;
    // SAFETY: the caller's promise.
    Ok((0..count).map(|at| unsafe { requests.add(at).read() }).collect())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Test(request: *mut i64, flag: *mut c_int, status: *mut Status) -> c_int {
    running("FMI_Test", |running| {
        // SAFETY: fmi.h.
        unsafe { put(flag, 0) };
        // SAFETY: fmi.h.
        if running.is_ready(unsafe { numbers(1, request)? }[0])? {
            // SAFETY: fmi.h.
            unsafe { put(flag, 1) };
            // SAFETY: fmi.h.
            unsafe { wait_one(running, request, status)? };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Testall(
    count: c_int,
    requests: *mut i64,
    flag: *mut c_int,
    statuses: *mut Status,
) -> c_int {
    running("FMI_Testall", |running| {
        // SAFETY: fmi.h.
        unsafe { put(flag, 0) };
        // SAFETY: fmi.h: there are `count` of them.
        for request in unsafe { numbers(count, requests)? } {
            if !running.is_ready(request)? {
                return Ok(());
            }
        }
        // SAFETY: fmi.h.
        unsafe { put(flag, 1) };
        // SAFETY: fmi.h: there are `count` of both.
        unsafe { wait_all(running, count, requests, statuses) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Waitany(
    count: c_int,
    requests: *mut i64,
    index: *mut c_int,
    status: *mut Status,
) -> c_int {
    running("FMI_Waitany", |running| {
        // SAFETY: fmi.h: there are `count` of them.
        let open = unsafe { numbers(count, requests)? };
        let open: Vec<(usize, i64)> =
            open.into_iter().enumerate().filter(|(_, request)| *request != REQUEST_NULL).collect();
        let numbers: Vec<i64> = open.iter().map(|(_, request)| *request).collect();
        let Some(first) = running.wait_ready(&numbers)? else {
            // SAFETY: fmi.h.
            unsafe { put(index, UNDEFINED) };
            return Ok(());
        };
        let at = open[first].0;
        // SAFETY: fmi.h.
        unsafe { put(index, c_int::try_from(at).unwrap_or(UNDEFINED)) };
        // SAFETY: fmi.h.
        unsafe { wait_one(running, requests.wrapping_add(at), status) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Sendrecv(
    data: *const c_void,
    count: c_int,
    of: c_int,
    to: c_int,
    tag: c_int,
    other: *mut c_void,
    other_count: c_int,
    other_of: c_int,
    from: c_int,
    other_tag: c_int,
    comm: c_int,
    status: *mut Status,
) -> c_int {
    running("FMI_Sendrecv", |running| {
        let buffer = running.buffer(data, count, of)?;
        let into = running.buffer(other, other_count, other_of)?;
        let request = running.post(into, (from, other_tag, comm))?;
        // SAFETY: fmi.h: the values may be read.
        let sent = unsafe { running.send(&buffer, (to, tag, comm)) };
        if let Err(error) = sent {
            if let Some(pending) = running.pending.remove(&request) {
                running.fmi.withdraw(pending.posted);
            }
            return Err(error);
        }
        // SAFETY: fmi.h: the values may be written.
        let found = unsafe { running.wait(request) }?;
        // SAFETY: fmi.h.
        unsafe { put(status, found) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Get_count(status: *const Status, of: c_int, count: *mut c_int) -> c_int {
    running("FMI_Get_count", |running| {
        let size = running.types.layout(of)?.bytes().max(1);
        if status.is_null() {
            return invalid("there is no status at NULL");
        }
        // SAFETY: fmi.h.
        let bytes = unsafe { (*status).bytes };
        let whole = (bytes % size == 0).then(|| c_int::try_from(bytes / size).ok()).flatten();
        // SAFETY: fmi.h.
        unsafe { put(count, whole.unwrap_or(UNDEFINED)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn FMI_Barrier(comm: c_int) -> c_int {
    running("FMI_Barrier", |running| running.fmi.barrier(Running::comm(comm)?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Bcast(
    data: *mut c_void,
    count: c_int,
    of: c_int,
    root: c_int,
    comm: c_int,
) -> c_int {
    running("FMI_Bcast", |running| {
        let (comm, root) = (Running::comm(comm)?, Running::rank(root)?);
        let buffer = running.buffer(data, count, of)?;
        let is_root = running.fmi.rank(comm)? == root;
        // All ranks refuse alike.
        buffer.fits()?;
        // SAFETY: fmi.h: the values may be read and written.
        let mut message = if is_root { unsafe { buffer.pack()? } } else { Vec::new() };
        running.fmi.broadcast(comm, root, &mut message)?;
        // SAFETY: as above.
        if is_root { Ok(()) } else { unsafe { buffer.unpack(&message) } }
    })
}

/// Values to combine and where the result goes: those are there already, or in `data`.
///
/// # Safety
/// As for `FMI_Allreduce`.
unsafe fn combined(
    running: &mut Running,
    (data, result): (*const c_void, *mut c_void),
    (count, of, op): (c_int, c_int, c_int),
    (root, comm): (Option<c_int>, c_int),
) -> Result<(), FmiError> {
    let (comm, op) = (Running::comm(comm)?, operation(op)?);
    let in_place = data.addr() == usize::MAX;
    let from = running.buffer(if in_place { result } else { data }, count, of)?;
    // SAFETY: the caller's promise.
    let mut values = unsafe { from.pack()? };
    let of_values = from.layout.primitive();
    let is_here = match root {
        None => running.fmi.allreduce(comm, op, of_values, &mut values).map(|()| true),
        Some(root) => running.fmi.reduce(comm, Running::rank(root)?, (op, of_values), &mut values),
    }?;
    if !is_here {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    unsafe { running.buffer(result, count, of)?.unpack(&values) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Reduce(
    data: *const c_void,
    result: *mut c_void,
    count: c_int,
    of: c_int,
    op: c_int,
    root: c_int,
    comm: c_int,
) -> c_int {
    running("FMI_Reduce", |running| {
        // SAFETY: fmi.h.
        unsafe { combined(running, (data, result), (count, of, op), (Some(root), comm)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Allreduce(
    data: *const c_void,
    result: *mut c_void,
    count: c_int,
    of: c_int,
    op: c_int,
    comm: c_int,
) -> c_int {
    running("FMI_Allreduce", |running| {
        // SAFETY: fmi.h.
        unsafe { combined(running, (data, result), (count, of, op), (None, comm)) }
    })
}

/// Puts the messages of all members behind each other.
///
/// # Safety
/// `result` has room for `count` values of each member.
unsafe fn spread(
    running: &Running,
    messages: &[Vec<u8>],
    (result, count, of): (*mut c_void, c_int, c_int),
) -> Result<(), FmiError> {
    let one = running.buffer(result, count, of)?;
    let step = one.count.saturating_mul(one.layout.extent());
    for (at, message) in messages.iter().enumerate() {
        let there = result.cast::<u8>().wrapping_add(at.wrapping_mul(step));
        // SAFETY: the caller's promise.
        unsafe { running.buffer(there.cast(), count, of)?.unpack(message)? };
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Gather(
    data: *const c_void,
    count: c_int,
    of: c_int,
    result: *mut c_void,
    result_count: c_int,
    result_of: c_int,
    root: c_int,
    comm: c_int,
) -> c_int {
    running("FMI_Gather", |running| {
        // SAFETY: fmi.h: the values may be read.
        let message = unsafe { running.buffer(data, count, of)?.pack()? };
        let (comm, root) = (Running::comm(comm)?, Running::rank(root)?);
        let all = running.fmi.gather(comm, root, &message)?;
        if running.fmi.rank(comm)? != root {
            return Ok(());
        }
        // SAFETY: fmi.h: the root has room for those of all.
        unsafe { spread(running, &all, (result, result_count, result_of)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Allgather(
    data: *const c_void,
    count: c_int,
    of: c_int,
    result: *mut c_void,
    result_count: c_int,
    result_of: c_int,
    comm: c_int,
) -> c_int {
    running("FMI_Allgather", |running| {
        // SAFETY: fmi.h: the values may be read.
        let message = unsafe { running.buffer(data, count, of)?.pack()? };
        let all = running.fmi.allgather(Running::comm(comm)?, &message)?;
        // SAFETY: fmi.h: all have room for those of all.
        unsafe { spread(running, &all, (result, result_count, result_of)) }
    })
}

/// The messages for all members, one behind the other in the memory of the program.
///
/// # Safety
/// `data` has `count` values for each member.
unsafe fn parted(
    running: &Running,
    comm: Comm,
    (data, count, of): (*const c_void, c_int, c_int),
) -> Result<Vec<Vec<u8>>, FmiError> {
    let one = running.buffer(data, count, of)?;
    let members = running.fmi.size(comm)? as usize;
    let (step, max) = (one.count.saturating_mul(one.layout.extent()), MESSAGE_BYTES_MAX);
    if one.bytes().saturating_mul(members) > max {
        let problem =
            format!("{} bytes for each of {members} ranks are more than {max}", one.bytes());
        return Err(FmiError::Full(problem));
    }
    let part = |at: usize| {
        let there = data.cast::<u8>().wrapping_add(at.wrapping_mul(step));
        // SAFETY: the caller's promise.
        unsafe { running.buffer(there.cast(), count, of)?.pack() }
    };
    (0..members).map(part).collect()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Scatter(
    data: *const c_void,
    count: c_int,
    of: c_int,
    result: *mut c_void,
    result_count: c_int,
    result_of: c_int,
    root: c_int,
    comm: c_int,
) -> c_int {
    running("FMI_Scatter", |running| {
        let (comm, root) = (Running::comm(comm)?, Running::rank(root)?);
        let into = running.buffer(result, result_count, result_of)?;
        let messages = match running.fmi.rank(comm)? == root {
            // SAFETY: fmi.h: the root has values for all.
            true => unsafe { parted(running, comm, (data, count, of))? },
            false => Vec::new(),
        };
        let message = running.fmi.scatter(comm, root, &messages)?;
        // SAFETY: fmi.h: the values may be written.
        unsafe { into.unpack(&message) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Alltoall(
    data: *const c_void,
    count: c_int,
    of: c_int,
    result: *mut c_void,
    result_count: c_int,
    result_of: c_int,
    comm: c_int,
) -> c_int {
    running("FMI_Alltoall", |running| {
        let comm = Running::comm(comm)?;
        // SAFETY: fmi.h: there are values for all.
        let messages = unsafe { parted(running, comm, (data, count, of))? };
        let all = running.fmi.alltoall(comm, &messages)?;
        // SAFETY: fmi.h: there is room for those of all.
        unsafe { spread(running, &all, (result, result_count, result_of)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn FMI_Wtime() -> f64 {
    static BEGUN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    BEGUN.get_or_init(Instant::now).elapsed().as_secs_f64()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Get_processor_name(name: *mut c_char, len: *mut c_int) -> c_int {
    let Ok(found) = nix::unistd::gethostname() else {
        return fail("FMI_Get_processor_name: the host has no name", 7);
    };
    let found = found.to_string_lossy().into_owned();
    if name.is_null() {
        return fail("FMI_Get_processor_name: the buffer is NULL", 3);
    }
    let shown = &found.as_bytes()[..found.len().min(255)];
    for (at, byte) in shown.iter().chain(&[0]).enumerate() {
        // SAFETY: fmi.h: it has room for 256 bytes.
        unsafe { name.add(at).write(byte.cast_signed() as c_char) };
    }
    // SAFETY: fmi.h.
    unsafe { put(len, c_int::try_from(shown.len()).unwrap_or_default()) };
    SUCCESS
}

/// The values are constants of `fmi.h`.
const _: () = assert!(Fmi::WORLD == 0 && Fmi::ALONE == 1);
