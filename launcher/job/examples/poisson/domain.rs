//! Which part of the grid a rank has, and who its neighbours are.

/// The part of one rank along one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    /// The first point of the whole grid that is this rank's.
    pub(crate) first: usize,
    /// How many points it has.
    pub(crate) len: usize,
    /// The rank that has the points before them.
    pub(crate) before: Option<u32>,
    /// The rank that has the points behind them.
    pub(crate) behind: Option<u32>,
}

/// The part of one rank: a box of the cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Domain {
    /// Points of the whole grid in each direction.
    pub(crate) grid: usize,
    /// The three directions, the last one contiguous in memory.
    pub(crate) axes: [Axis; 3],
}

impl Domain {
    /// The part of that rank.
    pub(crate) fn new(rank: u32, size: u32, grid: u32) -> Self {
        let parts = divide(size);
        let strides = [parts[1] * parts[2], parts[2], 1];
        let axis = |direction: usize| {
            let (parts, stride) = (parts[direction], strides[direction]);
            let part = rank / stride % parts;
            let start = |part: u32| (u64::from(grid) * u64::from(part) / u64::from(parts)) as usize;
            Axis {
                first: start(part),
                len: start(part + 1) - start(part),
                before: (part > 0).then(|| rank - stride),
                behind: (part + 1 < parts).then(|| rank + stride),
            }
        };
        Self { grid: grid as usize, axes: [axis(0), axis(1), axis(2)] }
    }
}

/// Whether every rank gets a point.
pub(crate) fn is_divisible(grid: u32, size: u32) -> bool {
    divide(size).iter().all(|parts| *parts <= grid)
}

/// How many parts in each direction: as near to a cube as the number allows, most parts first.
pub(crate) fn divide(size: u32) -> [u32; 3] {
    let mut best = [size, 1, 1];
    for x in (1..=size).filter(|x| size.is_multiple_of(*x)) {
        for y in (1..=size / x).filter(|y| (size / x).is_multiple_of(*y)) {
            let parts = [x, y, size / x / y];
            if parts.is_sorted_by(|a, b| a >= b) && parts[0] < best[0] {
                best = parts;
            }
        }
    }
    best
}
