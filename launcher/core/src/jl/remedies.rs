//! How long the remedies of this job take, and which one fits into the time that a node has left.
//!
//! A migration that was never measured counts as long as a checkpoint, which saves more ranks.

use crate::message::TimeLeft;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Most measured durations of each remedy; the oldest go first.
const SAMPLES_MAX: usize = 32;

/// What is done for a node that will fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Save the job, then move the ranks: a failing migration loses no work.
    SaveThenMove,
    Move,
    /// Save the job; the ranks move if the node still lives then.
    Save,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Remedies {
    migrations_ms: VecDeque<u64>,
    checkpoints_ms: VecDeque<u64>,
}

/// The duration that 95 % of the measured ones do not exceed.
fn p95(all: &VecDeque<u64>) -> Option<Duration> {
    let mut sorted: Vec<u64> = all.iter().copied().collect();
    sorted.sort_unstable();
    let at = (sorted.len() * 95).div_ceil(100).checked_sub(1)?;
    sorted.get(at).copied().map(Duration::from_millis)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn add(all: &mut VecDeque<u64>, took: Duration) {
    all.push_back(millis(took));
    if all.len() > SAMPLES_MAX {
        all.pop_front();
    }
}

impl Remedies {
    pub(super) fn has_moved(&mut self, took: Duration) {
        add(&mut self.migrations_ms, took);
    }

    pub(super) fn has_saved(&mut self, took: Duration) {
        add(&mut self.checkpoints_ms, took);
    }

    /// The safest remedy that fits into `left`; if none does, the fastest. Also its numbers and
    /// reason.
    pub(super) fn choose(&self, left: Duration) -> (Remedy, TimeLeft, String) {
        let numbers = TimeLeft {
            left_ms: millis(left),
            checkpoint_p95_ms: p95(&self.checkpoints_ms).map(millis),
            migration_p95_ms: p95(&self.migrations_ms).map(millis),
        };
        let (remedy, why) = self.fitting(left);
        (remedy, numbers, why)
    }

    fn fitting(&self, left: Duration) -> (Remedy, String) {
        let saving = p95(&self.checkpoints_ms);
        let (moving, how) = match p95(&self.migrations_ms) {
            Some(moving) => (Some(moving), "p95"),
            None => (saving, "as a checkpoint, not measured"),
        };
        let (Some(moving), saving) = (moving, saving.unwrap_or(Duration::MAX)) else {
            return (Remedy::Move, "no remedy has been measured yet: the ranks move".to_owned());
        };
        let both = saving.saturating_add(moving);
        let (remedy, words) = match () {
            () if both <= left => (Remedy::SaveThenMove, "the job is saved, then the ranks move"),
            () if moving <= left => (Remedy::Move, "the ranks move"),
            () if saving <= left => (Remedy::Save, "only a checkpoint fits: the job is saved"),
            () if moving <= saving => (Remedy::Move, "nothing fits: the ranks move, the fastest"),
            () => (Remedy::Save, "nothing fits: the job is saved, the fastest"),
        };
        let saving = match saving {
            Duration::MAX => "not measured".to_owned(),
            saving => format!("{saving:.1?} (p95)"),
        };
        (remedy, format!("checkpoint {saving}, migration {moving:.1?} ({how}): {words}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remedies(moves_s: &[u64], saves_s: &[u64]) -> Remedies {
        let mut remedies = Remedies::default();
        moves_s.iter().for_each(|s| remedies.has_moved(Duration::from_secs(*s)));
        saves_s.iter().for_each(|s| remedies.has_saved(Duration::from_secs(*s)));
        remedies
    }

    fn chosen(remedies: &Remedies, left_s: u64) -> Remedy {
        remedies.choose(Duration::from_secs(left_s)).0
    }

    #[test]
    fn the_safest_remedy_that_fits_is_chosen_on_ramps_of_5_20_60_and_300_seconds() {
        let job = remedies(&[3, 4, 12], &[40]);
        let ramps = [5, 20, 60, 300].map(|left_s| chosen(&job, left_s));
        assert_eq!(ramps, [Remedy::Move, Remedy::Move, Remedy::SaveThenMove, Remedy::SaveThenMove]);
        let slow_moves = remedies(&[90], &[4]);
        let ramps = [5, 20, 60, 300].map(|left_s| chosen(&slow_moves, left_s));
        assert_eq!(ramps, [Remedy::Save, Remedy::Save, Remedy::Save, Remedy::SaveThenMove]);
        assert_eq!(chosen(&slow_moves, 1), Remedy::Save, "nothing fits: the fastest");
        let (_, numbers, words) = job.choose(Duration::from_secs(20));
        let p95 = (numbers.checkpoint_p95_ms, numbers.migration_p95_ms);
        assert_eq!((numbers.left_ms, p95), (20_000, (Some(40_000), Some(12_000))));
        let expected = "checkpoint 40.0s (p95), migration 12.0s (p95): the ranks move";
        assert_eq!(words, expected);
    }

    #[test]
    fn what_was_never_measured_is_estimated_or_unknown() {
        assert_eq!(chosen(&remedies(&[], &[]), 1), Remedy::Move);
        assert_eq!(chosen(&remedies(&[], &[10]), 19), Remedy::Move);
        assert_eq!(chosen(&remedies(&[], &[10]), 20), Remedy::SaveThenMove);
        assert_eq!(chosen(&remedies(&[10], &[]), 300), Remedy::Move);
    }

    #[test]
    fn one_slow_migration_of_twenty_does_not_count() {
        let mut job = remedies(&[100], &[]);
        (0..19).for_each(|_| job.has_moved(Duration::from_secs(2)));
        assert_eq!(p95(&job.migrations_ms), Some(Duration::from_secs(2)));
        (0..200).for_each(|_| job.has_moved(Duration::from_secs(3)));
        assert_eq!(job.migrations_ms.len(), SAMPLES_MAX);
    }
}
