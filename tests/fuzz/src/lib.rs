//! Runs a check of one parser or state machine on hostile bytes.
//!
//! A [`Target`] has seeds (valid inputs) and kept inputs (`tests/fuzz/corpus/NAME.txt`: what
//! libFuzzer found to reach new code, and regressions). Each test run checks all of them and a
//! fixed number of mutations, the same in each run. `make fuzz` builds the same tests with coverage
//! counters and lets libFuzzer look for more. With `FTB_BLESS=1` a target without kept inputs keeps
//! its seeds: what this release writes, later ones must read or refuse.
//!
//! As the one crate of tests without dependencies, which every other may link, it also has
//! [`random`] numbers from a seed and the comparison of [`kept`] files.

pub mod corpus;
#[cfg(feature = "libfuzzer")]
mod driver;
pub mod kept;
mod mutation;
pub mod random;

use mutation::Mutator;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Largest input, in bytes.
pub const INPUT_BYTES_MAX: usize = 16 * 1024;
/// Mutated inputs of each test run, unless [`Target::rounds`] says otherwise.
const ROUNDS: u32 = 4_000;
/// Set: mutated inputs of this run, for all targets.
const ROUNDS_ENV: &str = "FTB_FUZZ_ROUNDS";

/// A parser or a state machine, and inputs to begin with.
pub struct Target {
    name: &'static str,
    seeds: Vec<Vec<u8>>,
    rounds: u32,
}

impl Target {
    /// A target whose kept inputs are in `tests/fuzz/corpus/NAME.txt`.
    pub fn new(name: &'static str) -> Self {
        Self { name, seeds: Vec::new(), rounds: ROUNDS }
    }

    /// Adds valid inputs.
    #[must_use]
    pub fn seeds<S: Into<Vec<u8>>>(mut self, seeds: impl IntoIterator<Item = S>) -> Self {
        self.seeds.extend(seeds.into_iter().map(Into::into));
        self
    }

    /// Adds the files of a folder of the repository as valid inputs: those with this extension and
    /// at most [`INPUT_BYTES_MAX`] bytes.
    ///
    /// # Panics
    /// The folder cannot be read, or has none.
    #[must_use]
    pub fn files(self, folder: &str, extension: &str) -> Self {
        let files = corpus::files(folder, extension);
        assert!(!files.is_empty(), "{folder} has no .{extension} file");
        self.seeds(files)
    }

    /// Sets the number of mutated inputs of each test run, for slow targets.
    #[must_use]
    pub fn rounds(mut self, rounds: u32) -> Self {
        self.rounds = rounds;
        self
    }

    /// Checks all inputs.
    ///
    /// # Panics
    /// The check panics: the message has the input, as a line for the corpus.
    pub fn check(self, check: impl Fn(&[u8]) + Send + Sync + 'static) {
        let kept = corpus::read(self.name);
        #[cfg(feature = "libfuzzer")]
        return driver::run(self.name, [self.seeds, kept].concat(), check);
        #[cfg(not(feature = "libfuzzer"))]
        self.check_all(kept, check);
    }

    #[cfg_attr(feature = "libfuzzer", allow(dead_code, reason = "libFuzzer chooses the inputs"))]
    fn check_all(self, kept: Vec<Vec<u8>>, check: impl Fn(&[u8])) {
        if kept::is_blessing() && !corpus::path(self.name).exists() {
            corpus::begin(self.name, &self.seeds);
        }
        let inputs = [self.seeds, kept].concat();
        assert!(!inputs.is_empty(), "{} has neither seeds nor kept inputs", self.name);
        for input in &inputs {
            checked(self.name, input, &check);
        }
        let rounds = std::env::var(ROUNDS_ENV).ok().and_then(|rounds| rounds.parse().ok());
        let mut mutator = Mutator::new(self.name);
        for _ in 0..rounds.unwrap_or(self.rounds) {
            checked(self.name, &mutator.mutated(&inputs), &check);
        }
    }
}

fn checked(name: &str, input: &[u8], check: &impl Fn(&[u8])) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(input))) {
        eprintln!("{name} fails on this input, a line for its corpus:\n{}", corpus::line(input));
        resume_unwind(panic);
    }
}

/// Takes the parts of an input apart: numbers, and pieces with their lengths.
pub struct Parts<'a>(pub &'a [u8]);

impl<'a> Parts<'a> {
    /// The next byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next piece: two bytes with its length, lowest first, then as much of it as there is.
    pub fn piece(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.0.split_first_chunk()?;
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (piece, rest) = rest.split_at(length);
        self.0 = rest;
        Some(piece)
    }
}

/// A piece as [`Parts::piece`] reads it.
///
/// # Panics
/// The piece has more than 65,535 bytes.
pub fn piece(bytes: &[u8]) -> Vec<u8> {
    let Ok(length) = u16::try_from(bytes.len()) else { panic!("{} bytes", bytes.len()) };
    [&length.to_le_bytes(), bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn mutations_of_a_seed_reach_a_check_that_fails() {
        let found = AtomicU32::new(0);
        let target = Target::new("none").seeds(["severity=info"]);
        target.check_all(Vec::new(), |bytes| {
            let is_new = bytes.starts_with(b"severity=") && !bytes.ends_with(b"=info");
            found.fetch_add(u32::from(is_new), Ordering::Relaxed);
        });
        assert!(found.into_inner() > 100);
    }

    #[test]
    fn parts_come_back_as_they_were() {
        let bytes = [&[7][..], &piece(b"one"), &piece(b""), &piece(b"three")[..4]].concat();
        let mut parts = Parts(&bytes);
        assert_eq!(parts.byte(), Some(7));
        let pieces: Vec<_> = std::iter::from_fn(|| parts.piece()).collect();
        assert_eq!(pieces, [&b"one"[..], b"", b"th"]);
    }
}
