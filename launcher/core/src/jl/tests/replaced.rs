//! Answers about a start that a newer one has replaced.

use super::saving::saved;
use super::*;

/// The job starts anew from its set, because rank 1 has died.
fn restarting() -> Clocked {
    let mut job = saved();
    job.jl.job.config.on_death = OnDeath::Restart;
    let (episode, incarnation) = (job.jl.job.episode, job.jl.job.ranks[1].incarnation);
    let how = ExitCause::Signal(9);
    job.says("b", FromNla::Exited { episode, rank: 1, incarnation, how });
    job
}

fn fails_to_start(job: &mut Clocked, incarnation: u64) {
    fails_in(job, job.jl.job.episode, incarnation);
}

fn fails_in(job: &mut Clocked, episode: Episode, incarnation: u64) {
    let ranks = job.jl.job.ranks_on(&node("a"));
    let reason = "the image is torn".to_owned();
    job.says("a", FromNla::LaunchFailed { episode, incarnation, ranks, reason });
}

fn phase(job: &Clocked) -> String {
    job.jl.open().unwrap().words()
}

#[test]
fn the_failure_of_a_replaced_start_costs_no_set() {
    let mut job = restarting();
    let phase_before = phase(&job);
    assert!(phase_before.ends_with("reset"), "{phase_before}");
    // It comes at last, although its start was closed as done.
    for episode in 1..job.jl.job.episode.0 {
        fails_in(&mut job, Episode(episode), 0);
        assert_eq!((phase(&job), job.jl.job.sets.len()), (phase_before.clone(), 1));
    }
    for incarnation in [0, job.jl.job.incarnation] {
        fails_to_start(&mut job, incarnation);
        assert_eq!((phase(&job), job.jl.job.sets.len()), (phase_before.clone(), 1));
    }
    let episode = job.jl.job.episode;
    for name in ["a", "b", "s"] {
        job.says(name, FromNla::Reset { episode });
    }
    let set = job.jl.job.sets[0].clone();
    for (name, rank) in [("a", 0), ("b", 1)] {
        let ranks = Ranks::from_iter([rank]);
        job.says(name, FromNla::Copied { episode, set: set.clone(), ranks, bytes: 1 });
    }
    assert!(phase(&job).ends_with("launch"), "{}", phase(&job));
    fails_to_start(&mut job, 0);
    assert!(phase(&job).ends_with("launch") && job.jl.job.sets.len() == 1, "{:?}", job.out);
    let incarnation = job.jl.job.incarnation;
    fails_to_start(&mut job, incarnation);
    assert!(job.reported("is put aside: node a: the image is torn"), "{:?}", job.out);
}
