//! The field, one Jacobi step of it, and its saved state.

use crate::{Axis, Domain};
use ftb_job::{ImageError, Job, Op, Part, Reader, Result, State, Writer};
use std::f64::consts::PI;

/// The unknowns of this rank with a halo of one point on each side, which holds the neighbours'
/// points or the boundary's zeros.
pub(crate) struct Solver {
    domain: Domain,
    /// Points along each direction, halo included.
    extents: [usize; 3],
    field: Vec<f64>,
    next: Vec<f64>,
    /// The right side of the equation is a product of one factor for each direction.
    factors: [Vec<f64>; 3],
    iteration: u64,
    residual: f64,
    padding: Vec<u8>,
}

impl Solver {
    /// Everything zero, before the first step.
    pub(crate) fn new(domain: Domain, padding_mib: u32) -> Self {
        let extents = domain.axes.map(|axis| axis.len + 2);
        let points = extents.iter().product();
        let factors = domain.axes.map(|axis| {
            let factor = |point| (PI * (point + 1) as f64 / (domain.grid + 1) as f64).sin();
            (axis.first..axis.first + axis.len).map(factor).collect()
        });
        Self {
            domain,
            extents,
            field: vec![0.0; points],
            next: vec![0.0; points],
            factors,
            iteration: 0,
            residual: 0.0,
            padding: padding(padding_mib),
        }
    }

    /// Steps done.
    pub(crate) fn iteration(&self) -> u64 {
        self.iteration
    }

    /// The root of the sum of the squared changes of the last step.
    pub(crate) fn residual(&self) -> f64 {
        self.residual
    }

    /// One step: all points from their neighbours, then the halos, then the residual.
    pub(crate) fn step(&mut self, job: &mut Job) -> Result<()> {
        let mut change = [self.relax()];
        std::mem::swap(&mut self.field, &mut self.next);
        for direction in 0..3 {
            self.exchange(job, direction)?;
        }
        job.allreduce(Op::Sum, &mut change)?;
        self.residual = change[0].sqrt();
        self.iteration += 1;
        Ok(())
    }

    /// A hash of all points that does not depend on how they are divided among ranks.
    pub(crate) fn field_hash(&self, job: &mut Job) -> Result<u64> {
        let grid = self.domain.grid;
        let [x, y, z] = self.domain.axes;
        let mut hash = [0_u64];
        for i in 0..x.len {
            for j in 0..y.len {
                let row = self.index(i + 1, j + 1, 1);
                for (k, value) in self.field[row..row + z.len].iter().enumerate() {
                    let place = ((x.first + i) * grid + y.first + j) * grid + z.first + k;
                    let mixed = mix(mix(place as u64) ^ value.to_bits());
                    hash[0] = hash[0].wrapping_add(mixed);
                }
            }
        }
        job.allreduce(Op::Sum, &mut hash)?;
        Ok(hash[0])
    }

    fn index(&self, i: usize, j: usize, k: usize) -> usize {
        (i * self.extents[1] + j) * self.extents[2] + k
    }

    /// The compact 19-point Laplacian: six faces weigh 2, twelve edges 1, the centre -24, over 6
    /// h^2. The order of the additions is fixed: the result must not depend on where the point is.
    fn relax(&mut self) -> f64 {
        let [x, y, z] = self.domain.axes;
        let spacing = 1.0 / (self.domain.grid + 1) as f64;
        let weight = 6.0 * spacing * spacing * 3.0 * PI * PI;
        let (slab, row) = (self.extents[1] * self.extents[2], self.extents[2]);
        let field = &self.field;
        let mut change = 0.0;
        for i in 0..x.len {
            for j in 0..y.len {
                let start = self.index(i + 1, j + 1, 1);
                let source = weight * self.factors[0][i] * self.factors[1][j];
                for k in 0..z.len {
                    let p = start + k;
                    let faces = (field[p - slab] + field[p + slab])
                        + (field[p - row] + field[p + row])
                        + (field[p - 1] + field[p + 1]);
                    let edges = (field[p - slab - row] + field[p - slab + row])
                        + (field[p + slab - row] + field[p + slab + row])
                        + (field[p - slab - 1] + field[p - slab + 1])
                        + (field[p + slab - 1] + field[p + slab + 1])
                        + (field[p - row - 1] + field[p - row + 1])
                        + (field[p + row - 1] + field[p + row + 1]);
                    let value = (2.0 * faces + edges + source * self.factors[2][k]) / 24.0;
                    let difference = value - field[p];
                    change += difference * difference;
                    self.next[p] = value;
                }
            }
        }
        change
    }

    /// Gives both neighbours in that direction the points next to them, halos included: so the
    /// edges come over in two steps. Sends first: a message is taken in even if no call waits for
    /// it.
    fn exchange(&mut self, job: &mut Job, direction: usize) -> Result<()> {
        let Axis { len, before, behind, .. } = self.domain.axes[direction];
        let tag = |towards: u32| 2 * direction as u32 + towards;
        if let Some(rank) = before {
            job.send(rank, tag(0), &self.plane(direction, 1))?;
        }
        if let Some(rank) = behind {
            job.send(rank, tag(1), &self.plane(direction, len))?;
        }
        if let Some(rank) = before {
            let plane = job.recv(rank, tag(1))?;
            self.set_plane(direction, 0, &plane);
        }
        if let Some(rank) = behind {
            let plane = job.recv(rank, tag(0))?;
            self.set_plane(direction, len + 1, &plane);
        }
        Ok(())
    }

    fn plane(&self, direction: usize, at: usize) -> Vec<u8> {
        self.plane_indices(direction, at)
            .flat_map(|index| self.field[index].to_le_bytes())
            .collect()
    }

    fn set_plane(&mut self, direction: usize, at: usize, plane: &[u8]) {
        let indices = self.plane_indices(direction, at);
        for (index, bytes) in indices.zip(plane.as_chunks().0) {
            self.field[index] = f64::from_le_bytes(*bytes);
        }
    }

    fn plane_indices(&self, direction: usize, at: usize) -> impl Iterator<Item = usize> + use<> {
        let strides = [self.extents[1] * self.extents[2], self.extents[2], 1];
        let (outer, inner) = match direction {
            0 => (1, 2),
            1 => (0, 2),
            _ => (0, 1),
        };
        let (outer_len, inner_len) = (self.extents[outer], self.extents[inner]);
        let start = at * strides[direction];
        (0..outer_len).flat_map(move |a| {
            (0..inner_len).map(move |b| start + a * strides[outer] + b * strides[inner])
        })
    }
}

impl State for Solver {
    fn save(&self, writer: &mut Writer) -> Result<(), ImageError> {
        writer.u64("iteration", self.iteration)?;
        writer.f64s("residual", &[self.residual])?;
        writer.f64s("field", &self.field)?;
        writer.bytes("padding", &self.padding)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<(), ImageError> {
        self.iteration = reader.u64("iteration")?;
        let residual = reader.f64s("residual")?;
        let field = reader.f64s("field")?;
        let padding = reader.bytes("padding")?;
        if residual.len() != 1 || field.len() != self.field.len() || padding != self.padding {
            return Err(reader.refuse("it was written with other options"));
        }
        self.residual = residual[0];
        self.field = field;
        self.say();
        Ok(())
    }

    /// The part of this rank, halo included, is put together of the parts of the ranks of before.
    fn restore_part(&mut self, part: Part, reader: &mut Reader) -> Result<(), ImageError> {
        self.iteration = reader.u64("iteration")?;
        let residual = reader.f64s("residual")?;
        let field = reader.f64s("field")?;
        let padding = reader.bytes("padding")?;
        let grid = u32::try_from(self.domain.grid).unwrap_or(u32::MAX);
        let other = Self::new(Domain::new(part.rank, part.size, grid), 0);
        if residual.len() != 1 || field.len() != other.field.len() || padding != self.padding {
            return Err(reader.refuse("it was written with other options"));
        }
        self.residual = residual[0];
        // Where a point of the other's, counted from 0 in the whole grid, is here: with the halo,
        // counted from 1.
        let here = |direction: usize, point: usize| {
            let Axis { first, len, .. } = self.domain.axes[direction];
            (point + 1).checked_sub(first).filter(|at| *at <= len + 1)
        };
        let [x, y, z] = other.domain.axes;
        for i in 0..x.len {
            let Some(a) = here(0, x.first + i) else { continue };
            for j in 0..y.len {
                let Some(b) = here(1, y.first + j) else { continue };
                for k in 0..z.len {
                    let Some(c) = here(2, z.first + k) else { continue };
                    let to = self.index(a, b, c);
                    self.field[to] = field[other.index(i + 1, j + 1, k + 1)];
                }
            }
        }
        if part.rank + 1 == part.size {
            self.say();
        }
        Ok(())
    }
}

impl Solver {
    fn say(&self) {
        println!("poisson: goes on behind iteration {}", self.iteration);
    }
}

/// Not zeros, which file systems and networks may make disappear.
fn padding(mib: u32) -> Vec<u8> {
    let words = u64::from(mib) * (1 << 20) / 8;
    (0..words).flat_map(|word| mix(word).to_le_bytes()).collect()
}

/// The finaliser of SplitMix64: every bit of the result depends on every bit of the argument.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
