//! Ranks that save themselves in `ftb_loop`: all at one loop id, the first time before their first
//! step.

use super::*;
use crate::memory::Scheme;

fn config_of_memory(jl: &mut Jl) {
    jl.job.config.manner = Manner { saver: Saver::Loop, moves: Moves::Anew };
    let (interval, racks) = (Interval::Never, std::collections::BTreeMap::new());
    let scheme = Scheme::Xor(2);
    jl.job.config.memory = Some(MemoryConfig { scheme, interval, first: true, racks });
}

fn says(jl: &mut Jl, name: &str, message: FromNla) -> Vec<JlOutput> {
    feed(jl, JlInput::Nla(NlaMessage { node: node(name), message }))
}

#[test]
fn the_job_is_saved_at_its_highest_loop_id_before_its_first_step() {
    let mut jl = jl();
    config_of_memory(&mut jl);
    feed(&mut jl, JlInput::Started);
    let none = Ranks::default;
    for name in ["a", "b", "s"] {
        let (state, changes, parked) = (MigrationState::Ready, 0, ParkedProcesses::default());
        let (ranks, pmi, joined) = (none(), none(), none());
        says(&mut jl, name, FromNla::Ready { state, changes, ranks, pmi, joined, parked });
    }
    let mut out = Vec::new();
    for name in ["a", "b", "s"] {
        let (episode, incarnation, ranks) = (Episode(1), 0, none());
        out = says(&mut jl, name, FromNla::Launched { episode, incarnation, ranks });
    }
    let first = |out: &JlOutput| {
        matches!(out, JlOutput::Publish(FromJl::Checkpoint { loop_id: None, set, .. })
            if set.is_in_memory())
    };
    assert!(out.iter().any(first), "they wait in their first call: {out:?}");
    let (episode, set) = (jl.open.as_ref().unwrap().episode, SetId::of_memory(Episode(2)));
    let reason = "it does not fit".to_owned();
    let message = FromRank::CheckpointFailed { set, reason };
    feed(&mut jl, JlInput::Rank(RankMessage { episode, rank: 0, message }));
    assert!(jl.open.is_none());
    protected_later(jl.clone());
    // They do not wait any more.
    want(&mut jl, Request::MemoryCheckpoint { reason: "test".to_owned() });
    let open = jl.open.as_ref().unwrap();
    assert_eq!(open.phase, "prepare");
    let episode = open.episode;
    for (name, loop_id) in [("a", Some(5)), ("b", Some(3))] {
        out = says(&mut jl, name, FromNla::Prepared { episode, loop_id });
    }
    let at_five = |out: &JlOutput| {
        matches!(out, JlOutput::Publish(FromJl::Checkpoint { loop_id: Some(5), .. }))
    };
    assert!(out.iter().any(at_five), "{out:?}");
}

/// The first set is tried again without a request.
fn protected_later(mut jl: Jl) {
    let mut out = Vec::new();
    let now = Now { mono_ns: 2_000_000_000, wall_ns: 0 };
    jl.handle(now, JlInput::Tick, &mut out);
    let again = |out: &JlOutput| match out {
        JlOutput::Publish(FromJl::Prepare { set, .. }) => set.is_in_memory(),
        _ => false,
    };
    assert!(out.iter().any(again), "{out:?}");
}

#[test]
fn a_set_that_a_rank_refuses_after_a_restart_is_put_aside_for_the_one_before() {
    let mut jl = jl();
    config_of_memory(&mut jl);
    feed(&mut jl, JlInput::Started);
    (jl.open, jl.job.met, jl.job.restarts) = (None, true, 1);
    jl.job.sets = vec![SetId::of_checkpoint(Episode(1)), SetId::of_checkpoint(Episode(2))];
    jl.job.episode = Episode(3);
    let (episode, incarnation, how) = (Episode(3), 0, ExitCause::Exit(65));
    let out = says(&mut jl, "a", FromNla::Exited { episode, rank: 0, incarnation, how });
    assert_eq!(jl.job.sets, [SetId::of_checkpoint(Episode(1))], "{out:?}");
}

/// A person who asks for a checkpoint gets it, although a rank was faster than the order.
#[test]
fn a_save_that_a_rank_was_too_fast_for_is_tried_again_with_more_time_and_not_for_ever() {
    let mut jl = jl();
    config_of_memory(&mut jl);
    feed(&mut jl, JlInput::Started);
    (jl.open, jl.job.met) = (None, true);
    assert_eq!(want(&mut jl, Request::Checkpoint { reason: "test".to_owned() }), Outcome::Accepted);
    let mut answers = 0;
    for attempt in 0..7 {
        let episode = jl.open.as_ref().unwrap().episode;
        for name in ["a", "b"] {
            says(&mut jl, name, FromNla::Prepared { episode, loop_id: Some(9) });
        }
        let set = SetId::of_checkpoint(episode);
        let reason = format!("rank 1: {}", crate::manner::LOOP_MISSED);
        let message = FromRank::CheckpointFailed { set, reason };
        let out = feed(&mut jl, JlInput::Rank(RankMessage { episode, rank: 1, message }));
        answers += out.iter().filter(|out| matches!(out, JlOutput::Answer(_))).count();
        assert_eq!((answers > 0, jl.open.is_none()), (attempt == 6, attempt == 6), "{attempt}");
    }
}
