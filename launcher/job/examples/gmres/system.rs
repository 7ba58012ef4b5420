//! The system: -div grad u + c du/dx on a square with five points, whose right side is made so that
//! u is known. And which rows of points a rank has.

use ftb_job::{Job, Result};
use std::ops::Range;

/// The strength of the convection, for one spacing of the grid.
const CONVECTION: f64 = 0.4;

/// The rows of points of a rank, each of `grid` points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) grid: usize,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) range: Range<usize>,
}

impl Rows {
    /// Those of a rank: as equal as can be, in order.
    pub(crate) fn of(grid: usize, rank: u32, size: u32) -> Self {
        let begin = |rank: u32| grid * rank as usize / size as usize;
        Self { grid, rank, size, range: begin(rank)..begin(rank + 1) }
    }

    /// Points of this rank.
    pub(crate) fn points(&self) -> usize {
        self.range.len() * self.grid
    }

    /// The solution in this rank's points.
    pub(crate) fn solution(&self) -> Vec<f64> {
        self.range.clone().flat_map(|row| self.known(row)).collect()
    }

    /// The right side in this rank's points. Made without a message: a process that takes the place
    /// of a dead one makes it while the others have it.
    pub(crate) fn right_side(&self) -> Vec<f64> {
        let above = self.range.start.checked_sub(1);
        let below = (self.range.end < self.grid).then_some(self.range.end);
        let edge = |row: Option<usize>| row.map_or(vec![0.0; self.grid], |row| self.known(row));
        self.five_points(&[edge(above), self.solution(), edge(below)].concat())
    }

    /// The solution in a row of points.
    fn known(&self, row: usize) -> Vec<f64> {
        let step = 1.0 / (self.grid + 1) as f64;
        let y = (row + 1) as f64 * step;
        let value = |x: f64| x * (1.0 - x) * (1.0 + y) * (6.0 * y).sin();
        (0..self.grid).map(|column| value((column + 1) as f64 * step)).collect()
    }

    /// The product of the matrix and a vector. Neighbours exchange the rows at their edges; each
    /// sends first, because a message is taken in even if no call waits for it.
    pub(crate) fn product(&self, job: &mut Job, vector: &[f64]) -> Result<Vec<f64>> {
        const UP: u32 = 1;
        const DOWN: u32 = 2;
        let grid = self.grid;
        let above = (self.rank > 0).then(|| self.rank - 1);
        let below = (self.rank + 1 < self.size).then_some(self.rank + 1);
        if let Some(above) = above {
            job.send(above, UP, &bytes(&vector[..grid]))?;
        }
        if let Some(below) = below {
            job.send(below, DOWN, &bytes(&vector[vector.len() - grid..]))?;
        }
        let mut edge = |from: Option<u32>, tag: u32| -> Result<Vec<f64>> {
            match from {
                Some(from) => Ok(values(&job.recv(from, tag)?)),
                None => Ok(vec![0.0; grid]),
            }
        };
        let (first, last) = (edge(above, DOWN)?, edge(below, UP)?);
        let whole = [&first[..], vector, &last[..]].concat();
        Ok(self.five_points(&whole))
    }

    /// The product with a vector that has the rows above and below beside it.
    fn five_points(&self, whole: &[f64]) -> Vec<f64> {
        let grid = self.grid;
        let product = (grid..whole.len() - grid).map(|at| {
            let column = at % grid;
            let west = if column > 0 { whole[at - 1] } else { 0.0 };
            let east = if column + 1 < grid { whole[at + 1] } else { 0.0 };
            4.0 * whole[at]
                - whole[at - grid]
                - whole[at + grid]
                - (1.0 + CONVECTION) * west
                - (1.0 - CONVECTION) * east
        });
        product.collect()
    }
}

fn bytes(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn values(bytes: &[u8]) -> Vec<f64> {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|word| f64::from_le_bytes(*word)).collect()
}
