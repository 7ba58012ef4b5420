//! A node fails sooner than was predicted.

use super::*;

const READY: MigrationState = MigrationState::Ready;

/// A job with a spare, in which a checkpoint takes 10 s and a migration 3 s.
fn measured() -> Clocked {
    let mut job = Clocked::started(Interval::Never, true);
    job.meet(true);
    job.jl.remedies.has_saved(SavePlace::Store, Duration::from_secs(10));
    job.jl.remedies.has_moved(Duration::from_secs(3));
    job.out.clear();
    job
}

fn kind(job: &Clocked) -> &'static str {
    job.jl.open().map_or("none", |open| open.workflow.kind())
}

fn sooner(job: &mut Clocked, fault: u64, name: &str, left_s: u64) {
    let fails_ns = (job.seconds + left_s) * S;
    job.feed(JlInput::Sooner { fault: FaultId(fault), node: node(name), fails_ns });
}

fn order(job: &Clocked) -> Vec<&str> {
    let node = |queued: &QueuedRequest| match &queued.want {
        Request::Migrate { node, .. } => Some(match node.as_str() {
            "a" => "a",
            "b" => "b",
            _ => "other",
        }),
        _ => Some("checkpoint"),
    };
    job.jl.wanted.iter().filter_map(node).collect()
}

#[test]
fn a_checkpoint_before_a_migration_is_called_off_when_it_does_not_fit_any_more() {
    let mut job = measured();
    job.fails_at(1, "a", Some(300 * S));
    assert_eq!(kind(&job), "checkpoint");
    job.seconds = 2;
    sooner(&mut job, 1, "a", 20);
    assert!(
        job.reported("a fails in 20.0s or later, which is sooner than was predicted (fault 1)")
    );
    assert_eq!(kind(&job), "checkpoint", "it fits: {:?}", job.out);
    sooner(&mut job, 1, "a", 8);
    assert_eq!(kind(&job), "migration", "8 s are left: {:?}", job.out);
    assert!(job.reported("no checkpoint, the job goes on: a fails in 8.0s or later"));
    let numbers = job.jl.open().unwrap().left.unwrap();
    assert_eq!(numbers.left_ms, 8000);
    // It is being left: nothing more can be done.
    job.out.clear();
    sooner(&mut job, 1, "a", 4);
    assert!(job.reported("which is sooner") && kind(&job) == "migration", "{:?}", job.out);
}

#[test]
fn another_fault_of_the_node_that_comes_sooner_calls_the_checkpoint_off_too() {
    let mut job = measured();
    job.fails_at(1, "a", Some(300 * S));
    job.seconds = 2;
    assert_eq!(kind(&job), "checkpoint");
    job.fails_at(2, "a", Some(10 * S));
    assert_eq!(kind(&job), "migration", "8 s are left: {:?}", job.out);
}

#[test]
fn a_checkpoint_goes_on_if_a_migration_without_it_does_not_fit_either() {
    let mut job = measured();
    job.fails_at(1, "a", Some(300 * S));
    sooner(&mut job, 1, "a", 2);
    assert_eq!(kind(&job), "checkpoint", "{:?}", job.out);
    // The remedy was chosen: the ranks move afterwards, and the job is not saved twice.
    save(&mut job);
    let episode = job.jl.job.episode;
    for rank in 0..2 {
        job.feed(JlInput::Rank(RankMessage { episode, rank, message: FromRank::Resumed }));
    }
    job.wait(1);
    assert_eq!(kind(&job), "migration", "{:?}", job.out);
}

#[test]
fn the_node_that_fails_first_is_left_first() {
    let mut job = measured();
    assert_eq!(job.asks(Clocked::checkpoint()), [Outcome::Accepted]);
    job.fails_at(1, "b", Some(200 * S));
    job.fails_at(2, "a", Some(100 * S));
    assert_eq!(order(&job), ["a", "b"]);
    sooner(&mut job, 1, "b", 50);
    assert_eq!(order(&job), ["b", "a"]);
    // Another fault of a node that waits without a known time, or with a later one.
    let mut job = measured();
    assert_eq!(job.asks(Clocked::checkpoint()), [Outcome::Accepted]);
    job.fails(1, "b");
    job.fails(2, "a");
    assert_eq!(order(&job), ["b", "a"]);
    job.fails_at(3, "a", Some(100 * S));
    assert_eq!(order(&job), ["a", "b"]);
    assert_eq!(kind(&job), "checkpoint", "a person asked for it");
    // The next launcher knows the time.
    let before = (job.jl.clone(), job.seconds, job.boot_s);
    job.replace_launcher(20);
    let fails_ns = job.jl.wanted.front().and_then(|queued| queued.want.fails_ns());
    assert_eq!(fails_ns, Some((job.seconds + 80) * S));
    (job.jl, job.seconds, job.boot_s) = before;
    // A fault that is closed changes nothing.
    cancel(&mut job.jl, 2);
    job.out.clear();
    sooner(&mut job, 2, "a", 5);
    assert_eq!((order(&job), job.out.len()), (vec!["b"], 0));
}

#[test]
fn a_node_that_waits_for_a_spare_keeps_its_time() {
    let mut job = Clocked::started(Interval::Never, false);
    job.meet(true);
    job.fails_at(1, "a", Some(300 * S));
    save(&mut job);
    sooner(&mut job, 1, "a", 100);
    job.replace_launcher(10);
    for (name, state) in [("a", READY), ("b", READY), ("s", MigrationState::Inactive)] {
        job.ready(name, state);
    }
    job.out.clear();
    let from = MigrationState::Inactive;
    let to = MigrationState::Spare;
    job.says("s", FromNla::State { episode: job.jl.job.episode, from, to, changes: 0 });
    job.wait(1);
    assert!(job.reported("a fails in 90.0s or later (fault 1)"), "{:?}", job.out);
}

#[test]
fn a_node_that_is_being_left_is_known_to_fail_sooner() {
    for anew in [false, true] {
        let mut job = measured();
        if anew {
            job.jl.job.config.manner = Manner { saver: Saver::Loop, moves: Moves::Anew };
        }
        job.fails_at(1, "a", Some(12 * S));
        let fails_ns = |job: &Clocked| job.jl.open().and_then(|open| open.fails_ns(job.now()));
        assert_eq!(fails_ns(&job), Some(12 * S), "{:?}", job.out);
        assert_eq!(kind(&job), if anew { "checkpoint" } else { "migration" });
        sooner(&mut job, 1, "a", 6);
        assert_eq!(fails_ns(&job), Some(6 * S));
        // Another fault of the node.
        job.fails_at(2, "a", Some(4 * S));
        assert_eq!(fails_ns(&job), Some(4 * S));
        sooner(&mut job, 1, "a", 9);
        assert_eq!(fails_ns(&job), Some(4 * S));
    }
}

#[test]
fn a_start_without_a_node_that_is_tried_again_keeps_time_reason_and_numbers() {
    let mut job = measured();
    job.jl.job.config.manner = Manner { saver: Saver::Loop, moves: Moves::Anew };
    job.fails_at(1, "a", Some(300 * S));
    let first = job.jl.open().unwrap().episode;
    for name in ["a", "b"] {
        job.says(name, FromNla::Prepared { episode: first, loop_id: Some(9) });
    }
    let reason = format!("rank 1: {}", crate::manner::LOOP_MISSED);
    let message = FromRank::CheckpointFailed { set: SetId::of_checkpoint(first), reason };
    job.seconds = 7;
    job.feed(JlInput::Rank(RankMessage { episode: first, rank: 1, message }));
    let open = job.jl.open().unwrap();
    assert_eq!((open.episode > first, open.leaves()), (true, Some(&node("a"))), "{:?}", job.out);
    assert_eq!((open.fails_ns(job.now()), &*open.reason), (Some(300 * S), "fan failed"));
    assert_eq!(open.left.unwrap().checkpoint_p95_ms, Some(10_000));
}
