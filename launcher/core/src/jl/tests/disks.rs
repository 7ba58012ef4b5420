//! Checkpoints on the disks of the nodes.

use super::*;
use std::collections::BTreeMap;

/// A job of pods that is saved in memory too, with a spare.
fn pods() -> Clocked {
    let mut job = Clocked::new(Interval::Never);
    job.jl.job.config.manner = Manner { saver: Saver::Agent, moves: Moves::Alone };
    let (scheme, racks) = (Scheme::Buddy(1), BTreeMap::new());
    let memory = MemoryConfig { scheme, interval: Interval::Never, first: false, racks };
    job.jl.job.config.memory = Some(memory);
    job.start(true);
    assert!(job.jl.open.is_none() && job.jl.job.met, "{:?}", job.out);
    job.out.clear();
    job
}

fn open_set(job: &Clocked) -> SetId {
    let open = job.jl.open().unwrap_or_else(|| panic!("nothing is open: {:?}", job.out));
    let Workflow::Checkpoint(checkpoint) = &open.workflow else { panic!("{open:?}") };
    checkpoint.set().clone()
}

/// Completes the open checkpoint; returns its set.
fn save_all(job: &mut Clocked) -> SetId {
    let (set, episode) = (open_set(job), job.jl.job.episode);
    for name in ["a", "b"] {
        job.says(name, FromNla::Prepared { episode, loop_id: None });
    }
    for rank in 0..2 {
        let message = FromRank::CheckpointDone { set: set.clone(), bytes: 1, activity: None };
        job.feed(JlInput::Rank(RankMessage { episode, rank, message }));
    }
    for name in ["a", "b"].into_iter().filter(|_| set.is_in_memory()) {
        job.says(name, FromNla::Protected { episode, set: set.clone(), bytes: 1 });
    }
    set
}

fn begin(job: &mut Clocked) {
    let want = Request::DiskCheckpoint { reason: "the test".to_owned() };
    job.feed(JlInput::Request { want, by: Initiator::Internal });
    assert!(open_set(job).is_on_disks());
}

fn released(job: &Clocked) -> Vec<Episode> {
    let episode = |out: &JlOutput| match out {
        JlOutput::Publish(FromJl::Release { episode }) => Some(*episode),
        _ => None,
    };
    job.out.iter().filter_map(episode).collect()
}

fn dropped(job: &Clocked) -> Vec<&SetId> {
    let set = |out| match out {
        &JlOutput::Publish(FromJl::Drop { ref set, .. }) => Some(set),
        _ => None,
    };
    job.out.iter().filter_map(set).collect()
}

#[test]
fn nodes_are_released_again_while_nothing_is_open_also_by_the_next_launcher() {
    let mut job = pods();
    let often = 2 * job.jl.job.ask_every().as_secs();
    begin(&mut job);
    job.wait(often);
    assert_eq!(released(&job), [], "they are being saved");
    save_all(&mut job);
    let episode = job.jl.job.episode;
    assert!(job.jl.open.is_none());
    job.out.clear();
    job.wait(often);
    assert!(released(&job).len() >= 2, "{:?}", job.out);
    job.replace_launcher(1);
    assert_eq!(released(&job), [episode], "at once");
    // Ranks that save themselves are stopped by nothing else.
    let mut job = Clocked::started(Interval::Never, true);
    job.meet(true);
    job.wait(often);
    assert_eq!(released(&job), []);
}

#[test]
fn dropped_sets_are_dropped_again_with_the_next_checkpoint_done_or_not() {
    let mut job = pods();
    let mut save = || {
        begin(&mut job);
        job.out.clear();
        save_all(&mut job)
    };
    let (first, second) = (save(), save());
    let third = save();
    assert_eq!(dropped(&job), [&first, &second], "the first one again");
    assert_eq!(job.jl.job.disk_set(), Some(&third));
    begin(&mut job);
    job.out.clear();
    let (set, episode) = (open_set(&job), job.jl.job.episode);
    let message = FromRank::CheckpointFailed { set: set.clone(), reason: "disk full".to_owned() };
    job.feed(JlInput::Rank(RankMessage { episode, rank: 0, message }));
    assert_eq!(dropped(&job), [&first, &second, &set]);
    // That of the failed checkpoint too; those of memory push none out, and are not named again.
    job.out.clear();
    (100..120).for_each(|of| job.jl.job.drop_from_nodes(SetId::of_memory(Episode(of))));
    job.jl.job.out.clear();
    begin(&mut job);
    save_all(&mut job);
    assert_eq!(dropped(&job), [&first, &second, &set, &third]);
}

#[test]
fn memory_goes_before_the_disks_and_the_disks_have_the_next_turn() {
    let mut job = pods();
    let every = Interval::Every(Duration::from_secs(10));
    job.jl.memory_timer = CheckpointTimer::new(every, MTBF);
    job.jl.disk_timer = CheckpointTimer::new(every, MTBF);
    job.jl.begin_timers(job.now());
    let mut levels = Vec::new();
    for _ in 0..3 {
        job.wait(10);
        // Both are due; the second follows at once.
        for _ in 0..2 {
            levels.push(save_all(&mut job).is_in_memory());
        }
        assert!(job.jl.open.is_none(), "{:?}", job.out);
    }
    assert_eq!(levels, [true, false, true, false, true, false]);
    // A checkpoint in memory that takes longer than the interval of either.
    levels.clear();
    for _ in 0..4 {
        job.wait(25);
        levels.push(save_all(&mut job).is_in_memory());
    }
    assert_eq!(levels.iter().filter(|is_in_memory| !**is_in_memory).count(), 2, "{levels:?}");
}

#[test]
fn a_checkpoint_on_disks_is_called_off_by_its_own_duration() {
    let seconds = Duration::from_secs;
    for (on_disks, store, goes_on) in [(10, None, false), (1, Some(40), true)] {
        let mut job = pods();
        job.jl.remedies.has_saved(SavePlace::Disks, seconds(on_disks));
        if let Some(store) = store {
            job.jl.remedies.has_saved(SavePlace::Store, seconds(store));
        }
        job.jl.remedies.has_moved(seconds(3));
        begin(&mut job);
        job.fails_at(1, "a", Some(8 * S));
        let kind = job.jl.open().map(|open| open.workflow.kind());
        let expected = if goes_on { "checkpoint" } else { "migration" };
        assert_eq!(kind, Some(expected), "{:?}", job.out);
    }
    let mut job = pods();
    begin(&mut job);
    job.seconds += 7;
    save_all(&mut job);
    begin(&mut job);
    job.jl.remedies.has_moved(seconds(3));
    job.fails_at(1, "a", Some((job.seconds + 8) * S));
    let kind = job.jl.open().map(|open| open.workflow.kind());
    assert_eq!(kind, Some("migration"), "it has taken 7 s before: {:?}", job.out);
}
