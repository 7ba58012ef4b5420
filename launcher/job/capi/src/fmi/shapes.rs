//! The functions of `fmi.h` for derived types and grids of ranks. Pointers are the promise of the
//! caller, as that file has it.

use super::calls::put;
use super::{COMM_NULL, PROC_NULL, Running, invalid, running};
use core::ffi::c_int;
use ftb_job::fmi::{FmiError, Grid};

/// Most dimensions of a grid.
const DIMS_MAX: c_int = 16;

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Type_contiguous(count: c_int, of: c_int, made: *mut c_int) -> c_int {
    running("FMI_Type_contiguous", |running| {
        let found = running.types.vector((1, count, count), of)?;
        // SAFETY: fmi.h.
        unsafe { put(made, found) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Type_vector(
    count: c_int,
    len: c_int,
    stride: c_int,
    of: c_int,
    made: *mut c_int,
) -> c_int {
    running("FMI_Type_vector", |running| {
        let found = running.types.vector((count, len, stride), of)?;
        // SAFETY: fmi.h.
        unsafe { put(made, found) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn FMI_Type_commit(_of: *mut c_int) -> c_int {
    running("FMI_Type_commit", |_| Ok(()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Type_size(of: c_int, bytes: *mut c_int) -> c_int {
    running("FMI_Type_size", |running| {
        let found = running.types.layout(of)?.bytes();
        // SAFETY: fmi.h.
        unsafe { put(bytes, c_int::try_from(found).unwrap_or(c_int::MAX)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Type_free(of: *mut c_int) -> c_int {
    running("FMI_Type_free", |running| {
        if of.is_null() {
            return invalid("there is no type at NULL");
        }
        // SAFETY: fmi.h.
        running.types.free(unsafe { of.replace(-1) })
    })
}

/// The number of dimensions, if there can be that number of them.
fn dims_of(count: c_int, at: *const c_int) -> Result<usize, FmiError> {
    let wrong = !(1..=DIMS_MAX).contains(&count) || at.is_null();
    match usize::try_from(count) {
        Ok(count) if !wrong => Ok(count),
        _ => invalid(format!("{count} dimensions: there can be 1 to {DIMS_MAX}")),
    }
}

/// Values of the program.
///
/// # Safety
/// There are that many.
unsafe fn values(at: *const c_int, count: usize) -> Vec<c_int> {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(at, count) }.to_vec()
}

/// Writes values, as many as there is room for; none to NULL.
///
/// # Safety
/// There is room for `max`, or it is NULL.
unsafe fn put_all(to: *mut c_int, max: c_int, values: impl Iterator<Item = c_int>) {
    for (at, value) in (0..max).zip(values) {
        if !to.is_null() {
            // SAFETY: the caller's promise.
            unsafe { to.add(at.unsigned_abs() as usize).write(value) };
        }
    }
}

/// Shares ranks out among the dimensions that are 0, as evenly as it can, the largest first.
fn dims_create(ranks: c_int, dims: &mut [c_int]) -> Result<(), FmiError> {
    let mut given = dims.iter().copied().filter(|len| *len > 0);
    let fixed = given.try_fold(1, c_int::checked_mul).filter(|fixed| ranks % fixed == 0);
    let Some(fixed) = fixed.filter(|_| ranks >= 1 && dims.iter().all(|len| *len >= 0)) else {
        return invalid(format!("{ranks} ranks cannot be shared out among {dims:?}"));
    };
    let mut rest = ranks / fixed;
    let free = dims.iter().filter(|len| **len == 0).count();
    if free == 0 && rest > 1 {
        return invalid(format!("{dims:?} are not {ranks} ranks"));
    }
    let mut factors = Vec::new();
    let mut factor: c_int = 2;
    while rest > 1 {
        match factor.checked_mul(factor).is_none_or(|square| square > rest) {
            true => factor = rest,
            false if rest % factor != 0 => {
                factor += 1;
                continue;
            }
            false => {}
        }
        factors.push(factor);
        rest /= factor;
    }
    let mut shares = vec![1; free];
    for factor in factors.into_iter().rev() {
        if let Some(least) = shares.iter_mut().min() {
            *least *= factor;
        }
    }
    shares.sort_unstable_by(|a, b| b.cmp(a));
    for (len, share) in dims.iter_mut().filter(|len| **len == 0).zip(shares) {
        *len = share;
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Dims_create(ranks: c_int, count: c_int, dims: *mut c_int) -> c_int {
    running("FMI_Dims_create", |_| {
        let len = dims_of(count, dims)?;
        // SAFETY: fmi.h: there are `count` of them.
        let mut found = unsafe { values(dims, len) };
        dims_create(ranks, &mut found)?;
        // SAFETY: as above.
        unsafe { put_all(dims, count, found.into_iter()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Cart_create(
    comm: c_int,
    count: c_int,
    dims: *const c_int,
    periods: *const c_int,
    _reorder: c_int,
    made: *mut c_int,
) -> c_int {
    running("FMI_Cart_create", |running| {
        let (len, _) = (dims_of(count, dims)?, dims_of(count, periods)?);
        // SAFETY: fmi.h: there are `count` of both.
        let (dims, periods) = unsafe { (values(dims, len), values(periods, len)) };
        let dims: Result<Vec<u32>, FmiError> = dims.into_iter().map(Running::rank).collect();
        let dims = dims?.into_iter().zip(periods).map(|(len, wraps)| (len, wraps != 0));
        let grid = Grid { dims: dims.collect() };
        let found = running.fmi.lay_out(Running::comm(comm)?, grid)?;
        // SAFETY: fmi.h.
        unsafe { put(made, found.map_or(COMM_NULL, c_int::from)) };
        Ok(())
    })
}

fn number(value: u32) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Cart_get(
    comm: c_int,
    max: c_int,
    dims: *mut c_int,
    periods: *mut c_int,
    coords: *mut c_int,
) -> c_int {
    running("FMI_Cart_get", |running| {
        let comm = Running::comm(comm)?;
        let grid = running.fmi.grid(comm)?;
        let here = grid.coords(running.fmi.rank(comm)?);
        // SAFETY: fmi.h: there is room for `max` in each.
        unsafe {
            put_all(dims, max, grid.dims.iter().map(|(len, _)| number(*len)));
            put_all(periods, max, grid.dims.iter().map(|(_, wraps)| c_int::from(*wraps)));
            put_all(coords, max, here.into_iter().map(number));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Cart_coords(
    comm: c_int,
    rank: c_int,
    max: c_int,
    coords: *mut c_int,
) -> c_int {
    running("FMI_Cart_coords", |running| {
        let grid = running.fmi.grid(Running::comm(comm)?)?;
        let found = grid.coords(Running::rank(rank)?);
        // SAFETY: fmi.h: there is room for `max`.
        unsafe { put_all(coords, max, found.into_iter().map(number)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Cart_rank(comm: c_int, coords: *const c_int, rank: *mut c_int) -> c_int {
    running("FMI_Cart_rank", |running| {
        let grid = running.fmi.grid(Running::comm(comm)?)?;
        let len = dims_of(number(grid.dims.len() as u32), coords)?;
        // SAFETY: fmi.h: there is one for each dimension.
        let coords = unsafe { values(coords, len) };
        let coords: Vec<i64> = coords.into_iter().map(i64::from).collect();
        let Some(found) = grid.rank_at(&coords) else {
            return invalid(format!("{coords:?} are beyond the grid"));
        };
        // SAFETY: fmi.h.
        unsafe { put(rank, number(found)) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn FMI_Cart_shift(
    comm: c_int,
    dim: c_int,
    steps: c_int,
    from: *mut c_int,
    to: *mut c_int,
) -> c_int {
    running("FMI_Cart_shift", |running| {
        let comm = Running::comm(comm)?;
        let grid = running.fmi.grid(comm)?;
        let dim = usize::try_from(dim).ok().filter(|dim| *dim < grid.dims.len());
        let Some(dim) = dim else { return invalid("the grid has no such dimension") };
        let (source, target) = grid.shift(running.fmi.rank(comm)?, dim, steps);
        // SAFETY: fmi.h.
        unsafe {
            put(from, source.map_or(PROC_NULL, number));
            put(to, target.map_or(PROC_NULL, number));
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ranks_are_shared_out_evenly_the_largest_first() {
        for (ranks, given, expected) in [
            (4, vec![0, 0], vec![2, 2]),
            (6, vec![0, 0], vec![3, 2]),
            (12, vec![0, 0, 0], vec![3, 2, 2]),
            (8, vec![0, 4], vec![2, 4]),
            (7, vec![0, 0], vec![7, 1]),
            (1, vec![0, 0, 0], vec![1, 1, 1]),
            (4, vec![2, 2], vec![2, 2]),
            (c_int::MAX, vec![0, 0], vec![c_int::MAX, 1]),
            (1 << 30, vec![0, 0, 0], vec![1 << 10; 3]),
        ] {
            let mut dims = given.clone();
            dims_create(ranks, &mut dims).unwrap();
            assert_eq!(dims, expected, "{ranks} {given:?}");
        }
        let huge = vec![c_int::MAX; 16];
        for (ranks, mut dims) in [
            (4, vec![3, 0]),
            (0, vec![0]),
            (4, vec![-1, 0]),
            (8, vec![2, 2]),
            (1, vec![1 << 16, 1 << 16]),
            (c_int::MIN, vec![1, 0]),
            (7, huge),
        ] {
            assert!(dims_create(ranks, &mut dims).is_err(), "{ranks} {dims:?}");
        }
    }
}
