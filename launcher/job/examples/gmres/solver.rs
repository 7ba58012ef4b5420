//! A cycle of GMRES(m) and the state between cycles.

use crate::system::Rows;
use ftb_job::{ImageError, Job, Op, Part, Reader, Result, State, Writer};

pub(crate) struct Solver {
    rows: Rows,
    restart: usize,
    /// The same in every process of a rank, so no image has it.
    right: Vec<f64>,
    solution: Vec<f64>,
    cycle: u64,
    residual: f64,
}

impl Solver {
    /// Nothing is known of the solution.
    pub(crate) fn new(rows: Rows, restart: usize) -> Self {
        let (right, solution) = (rows.right_side(), vec![0.0; rows.points()]);
        Self { rows, restart, right, solution, cycle: 0, residual: f64::INFINITY }
    }

    /// Cycles done.
    pub(crate) fn cycle(&self) -> u64 {
        self.cycle
    }

    /// The norm of the residual at the beginning of the last cycle.
    pub(crate) fn residual(&self) -> f64 {
        self.residual
    }

    /// The norm of the present residual, and the largest error.
    pub(crate) fn quality(&self, job: &mut Job) -> Result<(f64, f64)> {
        let residual = self.defect(job)?;
        let norm = norm(job, &residual)?;
        let known = self.rows.solution();
        let errors = known.iter().zip(&self.solution).map(|(known, found)| (known - found).abs());
        let mut error = [errors.fold(0.0, f64::max)];
        job.allreduce(Op::Max, &mut error)?;
        Ok((norm, error[0]))
    }

    /// Right side minus the product with the solution.
    fn defect(&self, job: &mut Job) -> Result<Vec<f64>> {
        let product = self.rows.product(job, &self.solution)?;
        Ok(self.right.iter().zip(&product).map(|(right, product)| right - product).collect())
    }

    /// One cycle: m steps of Arnoldi with modified Gram-Schmidt, rotations, and the new solution.
    pub(crate) fn improve(&mut self, job: &mut Job) -> Result<()> {
        let defect = self.defect(job)?;
        let length = norm(job, &defect)?;
        self.residual = length;
        self.cycle += 1;
        if length <= f64::MIN_POSITIVE {
            return Ok(());
        }
        let mut basis = vec![scaled(&defect, 1.0 / length)];
        let (mut columns, mut turns): (Vec<Vec<f64>>, Vec<(f64, f64)>) = Default::default();
        let mut target = vec![length];
        for step in 0..self.restart {
            let mut next = self.rows.product(job, &basis[step])?;
            let mut column = Vec::with_capacity(step + 2);
            for vector in &basis {
                let part = dot(job, vector, &next)?;
                add(&mut next, -part, vector);
                column.push(part);
            }
            let rest = norm(job, &next)?;
            for (at, (cosine, sine)) in turns.iter().enumerate() {
                let (one, other) = (column[at], column[at + 1]);
                column[at] = cosine * one + sine * other;
                column[at + 1] = cosine * other - sine * one;
            }
            let diagonal = column[step].hypot(rest);
            let (cosine, sine) = (column[step] / diagonal, rest / diagonal);
            column[step] = diagonal;
            turns.push((cosine, sine));
            columns.push(column);
            target.push(-sine * target[step]);
            target[step] *= cosine;
            if rest <= f64::EPSILON * length {
                break;
            }
            basis.push(scaled(&next, 1.0 / rest));
        }
        let weights = solved(&columns, &target);
        for (weight, vector) in weights.iter().zip(&basis) {
            add(&mut self.solution, *weight, vector);
        }
        Ok(())
    }
}

/// Solves the upper triangular system of these columns.
fn solved(columns: &[Vec<f64>], target: &[f64]) -> Vec<f64> {
    let mut weights = target[..columns.len()].to_vec();
    for row in (0..columns.len()).rev() {
        let known: f64 = (row + 1..columns.len()).map(|at| columns[at][row] * weights[at]).sum();
        weights[row] = (weights[row] - known) / columns[row][row];
    }
    weights
}

fn scaled(vector: &[f64], factor: f64) -> Vec<f64> {
    vector.iter().map(|value| value * factor).collect()
}

fn add(to: &mut [f64], factor: f64, vector: &[f64]) {
    to.iter_mut().zip(vector).for_each(|(value, other)| *value += factor * other);
}

fn dot(job: &mut Job, one: &[f64], other: &[f64]) -> Result<f64> {
    let mut sum = [one.iter().zip(other).map(|(a, b)| a * b).sum::<f64>()];
    job.allreduce(Op::Sum, &mut sum)?;
    Ok(sum[0])
}

fn norm(job: &mut Job, vector: &[f64]) -> Result<f64> {
    Ok(dot(job, vector, vector)?.sqrt())
}

impl State for Solver {
    fn save(&self, writer: &mut Writer) -> Result<(), ImageError> {
        writer.u64("cycle", self.cycle)?;
        writer.f64s("residual", &[self.residual])?;
        writer.f64s("solution", &self.solution)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<(), ImageError> {
        let part = Part { rank: self.rows.rank, size: self.rows.size };
        self.restore_part(part, reader)
    }

    fn divides(&self) -> bool {
        true
    }

    fn begin_parts(&mut self, now: Part) {
        let rows = Rows::of(self.rows.grid, now.rank, now.size);
        *self = Self::new(rows, self.restart);
    }

    fn needs_part(&self, part: Part) -> bool {
        let (theirs, own) =
            (Rows::of(self.rows.grid, part.rank, part.size).range, &self.rows.range);
        theirs.start < own.end && own.start < theirs.end
    }

    fn restore_part(&mut self, part: Part, reader: &mut Reader) -> Result<(), ImageError> {
        self.cycle = reader.u64("cycle")?;
        let residual = reader.f64s("residual")?;
        self.residual = residual.first().copied().unwrap_or(f64::INFINITY);
        let solution = reader.f64s("solution")?;
        let theirs = Rows::of(self.rows.grid, part.rank, part.size);
        if solution.len() != theirs.points() {
            return Err(reader.refuse(format!("its solution has {} points", solution.len())));
        }
        let (grid, own) = (self.rows.grid, &self.rows.range);
        for row in theirs.range.start.max(own.start)..theirs.range.end.min(own.end) {
            let from = (row - theirs.range.start) * grid;
            let to = (row - own.start) * grid;
            self.solution[to..to + grid].copy_from_slice(&solution[from..from + grid]);
        }
        Ok(())
    }
}
