//! How long the remedies of this job take, and which one fits into the time that a node has left.
//!
//! A migration that was never measured counts as long as a checkpoint, which saves more ranks.

use crate::message::TimeLeft;
use crate::names::SetId;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Most measured durations of each remedy; the oldest go first.
const SAMPLES_MAX: usize = 32;

/// Where a job is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SavePlace {
    Store,
    /// The memory of its nodes: the other nodes of each group bear the loss of one.
    Memory,
    /// The disks of its nodes, which bear no loss of a node: never a remedy.
    Disks,
}

impl SavePlace {
    pub(super) fn of(set: &SetId) -> Self {
        match set.is_in_memory() {
            true => Self::Memory,
            false if set.is_on_disks() => Self::Disks,
            false => Self::Store,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Store => "saved",
            Self::Memory => "saved in memory",
            Self::Disks => "saved on the disks of its nodes",
        }
    }
}

/// What is done for a node that will fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Save the job, then move the ranks: a failing migration loses no work.
    SaveThenMove(SavePlace),
    Move,
    /// Save the job; the ranks move if the node still lives then.
    Save(SavePlace),
}

impl Remedy {
    /// Where the job is saved before the ranks move.
    pub(super) fn saves(self) -> Option<SavePlace> {
        match self {
            Self::SaveThenMove(place) | Self::Save(place) => Some(place),
            Self::Move => None,
        }
    }

    fn words(self) -> String {
        match self {
            Self::SaveThenMove(place) => {
                format!("the job is {}, then the ranks move", place.words())
            }
            Self::Move => "the ranks move".to_owned(),
            Self::Save(place) => format!("the job is {}", place.words()),
        }
    }
}

/// The remedies that a job has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choices {
    /// There is a spare.
    pub moves: bool,
    /// It moves by a checkpoint and a new start of all ranks.
    pub anew: bool,
    /// It is saved in the memory of its nodes.
    pub in_memory: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Remedies {
    migrations_ms: VecDeque<u64>,
    checkpoints_ms: VecDeque<u64>,
    /// Checkpoints in memory, until they were protected.
    #[serde(default)]
    in_memory_ms: VecDeque<u64>,
    /// Checkpoints on the disks of the nodes.
    #[serde(default)]
    on_disks_ms: VecDeque<u64>,
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

/// For an event: at most 49 days.
fn short(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
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

    pub(super) fn has_saved(&mut self, place: SavePlace, took: Duration) {
        let all = match place {
            SavePlace::Store => &mut self.checkpoints_ms,
            SavePlace::Memory => &mut self.in_memory_ms,
            SavePlace::Disks => &mut self.on_disks_ms,
        };
        add(all, took);
    }

    /// The safest remedy that fits into `left`; if none does, the fastest. Also its numbers and
    /// reason.
    pub(super) fn choose(&self, left: Duration, of: Choices) -> (Remedy, TimeLeft, String) {
        let in_memory = p95(&self.in_memory_ms).filter(|_| of.in_memory);
        let numbers = TimeLeft {
            left_ms: millis(left),
            checkpoint_p95_ms: p95(&self.checkpoints_ms).map(short),
            memory_p95_ms: in_memory.map(short),
            migration_p95_ms: p95(&self.migrations_ms).map(short),
        };
        let (remedy, why) = self.fitting(left, of);
        (remedy, numbers, why)
    }

    /// How long a migration takes, and how that is known.
    fn moving(&self, of: Choices) -> Option<(Duration, &'static str)> {
        let saving = p95(&self.checkpoints_ms);
        if of.anew {
            return saving.map(|saving| (saving, "by a checkpoint, p95"));
        }
        let moving = p95(&self.migrations_ms).map(|moving| (moving, "p95"));
        let as_checkpoint = || saving.map(|saving| (saving, "as a checkpoint, not measured"));
        let as_memory = || {
            let in_memory = p95(&self.in_memory_ms).filter(|_| of.in_memory)?;
            Some((in_memory, "as a checkpoint in memory, not measured"))
        };
        moving.or_else(as_checkpoint).or_else(as_memory)
    }

    /// Whether the rest of a checkpoint with a migration behind it takes longer than `left`, and
    /// the migration alone does not.
    pub(super) fn takes_too_long(
        &self,
        place: SavePlace,
        elapsed: Duration,
        left: Duration,
        of: Choices,
    ) -> bool {
        let saving = match place {
            SavePlace::Store => p95(&self.checkpoints_ms),
            SavePlace::Memory => p95(&self.in_memory_ms),
            SavePlace::Disks => p95(&self.on_disks_ms),
        };
        let moving = self.moving(of).filter(|_| of.moves).map(|(moving, _)| moving);
        let Some((saving, moving)) = saving.zip(moving) else { return false };
        let both = saving.saturating_sub(elapsed).saturating_add(moving);
        both > left && moving <= left
    }

    fn fitting(&self, left: Duration, of: Choices) -> (Remedy, String) {
        let in_memory = p95(&self.in_memory_ms).filter(|_| of.in_memory);
        let store = p95(&self.checkpoints_ms);
        // The safer one first. A start anew saves the job itself.
        let saves = [
            (SavePlace::Store, store.filter(|_| !(of.anew && of.moves))),
            (SavePlace::Memory, in_memory),
        ];
        let saves = saves.into_iter().filter_map(|(place, saving)| Some((place, saving?)));
        let moving = self.moving(of).filter(|_| of.moves);
        let both = moving.into_iter().flat_map(|(moving, _)| {
            let both = move |saving: Duration| saving.saturating_add(moving);
            saves.clone().map(move |(place, time)| (Remedy::SaveThenMove(place), both(time)))
        });
        let moves = moving.map(|(moving, _)| (Remedy::Move, moving));
        let alone = saves.clone().map(|(place, saving)| (Remedy::Save(place), saving));
        let all: Vec<(Remedy, Duration)> = both.chain(moves).chain(alone).collect();
        let fits = all.iter().find(|(_, time)| *time <= left);
        let (remedy, words) = match (fits, all.iter().min_by_key(|(_, time)| *time)) {
            (Some((remedy @ Remedy::Save(_), _)), _) if of.moves => {
                (*remedy, format!("only a checkpoint fits: {}", remedy.words()))
            }
            (Some((remedy, _)), _) => (*remedy, remedy.words()),
            (None, Some((remedy, _))) => {
                (*remedy, format!("nothing fits: {}, the fastest", remedy.words()))
            }
            (None, None) => {
                let remedy = if of.moves { Remedy::Move } else { Remedy::Save(SavePlace::Store) };
                return (remedy, format!("no remedy has been measured yet: {}", remedy.words()));
            }
        };
        let mut times = vec![match store {
            None => "checkpoint not measured".to_owned(),
            Some(saving) => format!("checkpoint {saving:.1?} (p95)"),
        }];
        times.extend(in_memory.map(|saving| format!("in memory {saving:.1?} (p95)")));
        times.extend(moving.map(|(moving, how)| format!("migration {moving:.1?} ({how})")));
        (remedy, format!("{}: {words}", times.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remedies(moves_s: &[u64], saves_s: &[u64]) -> Remedies {
        let mut remedies = Remedies::default();
        moves_s.iter().for_each(|s| remedies.has_moved(Duration::from_secs(*s)));
        let save = |s: &u64| remedies.has_saved(SavePlace::Store, Duration::from_secs(*s));
        saves_s.iter().for_each(save);
        remedies
    }

    const ANY: Choices = Choices { moves: true, anew: false, in_memory: true };
    const SAVE_THEN_MOVE: Remedy = Remedy::SaveThenMove(SavePlace::Store);
    const SAVE: Remedy = Remedy::Save(SavePlace::Store);

    fn chosen(remedies: &Remedies, left_s: u64) -> Remedy {
        remedies.choose(Duration::from_secs(left_s), ANY).0
    }

    #[test]
    fn the_safest_remedy_that_fits_is_chosen_on_ramps_of_5_20_60_and_300_seconds() {
        let job = remedies(&[3, 4, 12], &[40]);
        let ramps = [5, 20, 60, 300].map(|left_s| chosen(&job, left_s));
        assert_eq!(ramps, [Remedy::Move, Remedy::Move, SAVE_THEN_MOVE, SAVE_THEN_MOVE]);
        let slow_moves = remedies(&[90], &[4]);
        let ramps = [5, 20, 60, 300].map(|left_s| chosen(&slow_moves, left_s));
        assert_eq!(ramps, [SAVE, SAVE, SAVE, SAVE_THEN_MOVE]);
        assert_eq!(chosen(&slow_moves, 1), SAVE, "nothing fits: the fastest");
        let (_, numbers, words) = job.choose(Duration::from_secs(20), ANY);
        let p95 = (numbers.checkpoint_p95_ms, numbers.migration_p95_ms);
        assert_eq!((numbers.left_ms, p95), (20_000, (Some(40_000), Some(12_000))));
        let expected = "checkpoint 40.0s (p95), migration 12.0s (p95): the ranks move";
        assert_eq!(words, expected);
    }

    /// A checkpoint in memory takes 2 s, one in the store 40 s, a migration 12 s.
    #[test]
    fn a_checkpoint_in_memory_is_chosen_where_one_in_the_store_does_not_fit() {
        let mut job = remedies(&[12], &[40]);
        job.has_saved(SavePlace::Memory, Duration::from_secs(2));
        let (in_memory_first, in_memory) =
            (Remedy::SaveThenMove(SavePlace::Memory), Remedy::Save(SavePlace::Memory));
        let ramps = [1, 5, 13, 20, 60].map(|left_s| chosen(&job, left_s));
        assert_eq!(ramps, [in_memory, in_memory, Remedy::Move, in_memory_first, SAVE_THEN_MOVE]);
        let (_, numbers, words) = job.choose(Duration::from_secs(20), ANY);
        assert_eq!(numbers.memory_p95_ms, Some(2000));
        assert_eq!(
            words,
            "checkpoint 40.0s (p95), in memory 2.0s (p95), migration 12.0s (p95): the job is saved \
             in memory, then the ranks move"
        );
        let (_, _, words) = job.choose(Duration::from_secs(1), ANY);
        assert!(
            words.ends_with("nothing fits: the job is saved in memory, the fastest"),
            "{words}"
        );
        // A job that is no more saved in memory.
        let without = Choices { in_memory: false, ..ANY };
        let (remedy, numbers, _) = job.choose(Duration::from_secs(20), without);
        assert_eq!((remedy, numbers.memory_p95_ms), (Remedy::Move, None));
    }

    #[test]
    fn without_a_spare_or_with_a_start_anew_the_checkpoint_that_fits_is_chosen() {
        let mut job = remedies(&[3], &[40]);
        job.has_saved(SavePlace::Memory, Duration::from_secs(2));
        let of = |choices: Choices, left_s| job.choose(Duration::from_secs(left_s), choices).0;
        let none = Choices { moves: false, ..ANY };
        assert_eq!([5, 40].map(|left| of(none, left)), [Remedy::Save(SavePlace::Memory), SAVE]);
        let anew = Choices { anew: true, ..ANY };
        let in_memory = [Remedy::Save, Remedy::SaveThenMove].map(|of| of(SavePlace::Memory));
        let ramps = [5, 41, 42].map(|left| of(anew, left));
        assert_eq!(ramps, [in_memory[0], Remedy::Move, in_memory[1]]);
        assert_eq!(Remedies::default().choose(Duration::ZERO, none).0, SAVE);
    }

    #[test]
    fn what_was_never_measured_is_estimated_or_unknown() {
        assert_eq!(chosen(&remedies(&[], &[]), 1), Remedy::Move);
        assert_eq!(chosen(&remedies(&[], &[10]), 19), Remedy::Move);
        assert_eq!(chosen(&remedies(&[], &[10]), 20), SAVE_THEN_MOVE);
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
