//! The program of the tests: one that shows every lost, doubled or exchanged message in its result.

use super::*;
use ftb_job::{ImageError, Op, Reader, SafePoint, State, Writer};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A program whose result depends on every message, in order, and on every reduction to the bit:
/// each rank sends to its right neighbour more than is taken at once, so that messages are always
/// under way at the safe points.
#[derive(Clone, Default)]
pub struct Chain {
    iteration: u64,
    hash: u64,
    value: f64,
    until: Until,
    /// This rank ends without a word when the test wants it.
    pub dies: Arc<AtomicU32>,
}

/// When a program ends.
#[derive(Clone)]
pub enum Until {
    /// After that number of iterations.
    Iterations(u64),
    /// Soon after the test has seen enough; the ranks agree.
    Enough(Arc<AtomicBool>),
}

impl Default for Until {
    fn default() -> Self {
        Self::Iterations(0)
    }
}

/// What a rank came to: iterations, a hash of all messages, the bits of the last value.
pub type Outcome = (u64, u64, u64);

pub const TAG: u32 = 7;
/// How many messages each rank is behind its left neighbour.
pub const UNDER_WAY: u64 = 3;

impl Chain {
    pub fn new(until: Until) -> Self {
        Self { until, ..Self::default() }
    }

    pub fn run(mut self, mut job: Job) -> Result<Ended<Outcome>> {
        job.can_roll_back(true);
        loop {
            match self.compute(&mut job) {
                Ok(Some(())) => break,
                Ok(None) => return Ok(Ended::MovedAway),
                Err(Error::RolledBack) => {}
                Err(error) => return Err(error),
            }
        }
        job.finalize()?;
        Ok(Ended::Finished((self.iteration, self.hash, self.value.to_bits())))
    }

    /// `None`: the rank is gone.
    fn compute(&mut self, job: &mut Job) -> Result<Option<()>> {
        if !job.restore(self)? {
            for number in 0..UNDER_WAY {
                self.send(job, number)?;
            }
            self.value = f64::from(job.rank()) + 0.1;
        }
        while !self.is_over(job)? {
            self.iterate(job)?;
            let dies = self.dies.load(Ordering::Relaxed) == job.rank() + 1;
            if dies || job.safe_point(self)? == SafePoint::MovedAway {
                return Ok(None);
            }
        }
        let left = (job.rank() + job.size() - 1) % job.size();
        for _ in 0..UNDER_WAY {
            self.mix(&job.recv(left, TAG)?);
        }
        Ok(Some(()))
    }

    fn is_over(&self, job: &mut Job) -> Result<bool> {
        let mut over = [match &self.until {
            Until::Iterations(count) => u64::from(self.iteration >= *count),
            Until::Enough(enough) => u64::from(enough.load(Ordering::Relaxed)),
        }];
        job.allreduce(Op::Max, &mut over)?;
        Ok(over == [1])
    }

    fn iterate(&mut self, job: &mut Job) -> Result<()> {
        let left = (job.rank() + job.size() - 1) % job.size();
        self.send(job, self.iteration + UNDER_WAY)?;
        let message = job.recv(left, TAG)?;
        self.mix(&message);
        let mut sum = [self.value, self.value.sin()];
        job.allreduce(Op::Sum, &mut sum)?;
        self.value = (sum[0] * 0.37 + sum[1]) / f64::from(job.size());
        self.iteration += 1;
        Ok(())
    }

    fn send(&self, job: &mut Job, number: u64) -> Result<()> {
        let right = (job.rank() + 1) % job.size();
        // Sizes differ, some over what a socket holds.
        let len = 8 + (number % 7) as usize * 30_000;
        let mut message = vec![job.rank() as u8; len];
        message[..8].copy_from_slice(&number.to_le_bytes());
        job.send(right, TAG, &message)
    }

    fn mix(&mut self, message: &[u8]) {
        for byte in message.iter().take(16).copied().chain([message.len() as u8]) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl State for Chain {
    fn save(&self, writer: &mut Writer) -> Result<(), ImageError> {
        writer.u64s("progress", &[self.iteration, self.hash])?;
        writer.f64s("value", &[self.value])
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<(), ImageError> {
        let progress = reader.u64s("progress")?;
        let [iteration, hash] = progress[..] else {
            return Err(reader.refuse("two numbers were expected"));
        };
        (self.iteration, self.hash) = (iteration, hash);
        self.value = reader.f64s("value")?[0];
        Ok(())
    }
}

pub fn undisturbed(size: u32, iterations: u64) -> Vec<Outcome> {
    let harness = Harness::new(size);
    let program = Chain::new(Until::Iterations(iterations));
    let results = finish_all(harness.spawn_all(|_| "n1".into(), move |job| program.run(job)));
    assert_eq!(harness.pmi.finalized(), (0..size).collect::<Vec<_>>());
    results
}

/// A program that runs until the test has seen enough.
pub struct Endless {
    pub program: Chain,
    pub enough: Arc<AtomicBool>,
}

impl Endless {
    pub fn new() -> Self {
        let enough = Arc::new(AtomicBool::new(false));
        let program = Chain::new(Until::Enough(Arc::clone(&enough)));
        Self { program, enough }
    }

    pub fn start(&self, harness: &Harness) -> Vec<Running<Outcome>> {
        let program = self.program.clone();
        harness.spawn_all(two_nodes, move |job| program.run(job))
    }

    /// Lets it end; the result must be that of an undisturbed run of as many iterations.
    pub fn finish(&self, running: Vec<Running<Outcome>>) -> Vec<Outcome> {
        self.enough.store(true, Ordering::Relaxed);
        let results = finish_all(running);
        assert_eq!(results, undisturbed(results.len() as u32, results[0].0));
        results
    }
}

pub fn two_nodes(rank: u32) -> String {
    format!("n{}", rank / 2)
}
