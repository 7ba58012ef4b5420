//! A decision whose state cannot be saved is not executed; the ranks go on.

use super::*;

fn met() -> Clocked {
    let mut job = Clocked::started(Interval::Never, true);
    job.meet(true);
    job.out.clear();
    job
}

/// As the shell: a batch whose state cannot be saved, without what is taken back.
fn fail(job: &mut Clocked) {
    let mut batch = core::mem::take(&mut job.out);
    assert!(batch.contains(&JlOutput::Save), "{batch:?}");
    job.feed(JlInput::SaveFailed { why: "no space".to_owned() });
    assert!(!job.out.contains(&JlOutput::Save), "it would fail again at once");
    batch.retain(|output| !job.jl.is_taken_back(output));
    batch.append(&mut job.out);
    job.out = batch;
}

fn kind(job: &Clocked) -> Option<&'static str> {
    job.jl.open().map(|open| open.workflow.kind())
}

#[test]
fn a_migration_whose_state_cannot_be_saved_waits_until_it_can() {
    let mut job = met();
    job.fails(1, "a");
    fail(&mut job);
    assert!(!job.asked_of_ranks() && kind(&job).is_none(), "{:?}", job.out);
    let words = "the state of the job cannot be saved: no space: the ranks go on";
    assert!(job.reported(words), "{:?}", job.out);
    job.out.clear();
    // It is tried again, and reported once.
    job.wait(3);
    assert!(job.out.contains(&JlOutput::Save));
    fail(&mut job);
    assert!(!job.reported("cannot be saved") && !job.asked_of_ranks(), "{:?}", job.out);
    job.feed(JlInput::Saved);
    assert!(job.reported("the state of the job can be saved again"));
    assert!(job.asked_of_ranks() && kind(&job) == Some("migration"), "{:?}", job.out);
    assert!(!job.jl.job.faults.is_closed(FaultId(1)));
}

#[test]
fn a_request_is_refused_while_the_state_cannot_be_saved() {
    let mut job = met();
    assert_eq!(job.asks(Clocked::checkpoint()), [Outcome::Accepted]);
    fail(&mut job);
    assert_eq!(job.answers(), [Outcome::Accepted, Outcome::Refused]);
    assert!(!job.asked_of_ranks(), "{:?}", job.out);
    // The next request tries to save.
    assert_eq!(job.asks(Clocked::checkpoint()), [Outcome::Accepted]);
    assert!(job.out.contains(&JlOutput::Save) && !job.asked_of_ranks());
    job.feed(JlInput::Saved);
    assert!(job.asked_of_ranks(), "{:?}", job.out);
}

#[test]
fn an_episode_that_has_begun_goes_on() {
    let mut job = met();
    job.fails(1, "a");
    assert!(job.asked_of_ranks());
    job.out.clear();
    let episode = job.jl.open().unwrap().episode;
    let (set, ranks) = (SetId::of_migration(episode), Ranks::from_iter([0]));
    job.says("a", FromNla::Pic { episode, ranks, set });
    fail(&mut job);
    assert_eq!(kind(&job), Some("migration"));
    let copies = |output: &JlOutput| matches!(output, JlOutput::Publish(FromJl::Copy { .. }));
    assert!(job.out.iter().any(copies), "{:?}", job.out);
}

#[test]
fn a_recovery_waits_while_the_state_cannot_be_saved() {
    let mut job = saved();
    fail(&mut job);
    let episode = job.jl.job.episode;
    let how = ExitCause::Signal(9);
    job.says("b", FromNla::Exited { episode, rank: 1, incarnation: 0, how });
    assert!(job.reported("the recovery waits until the state can be saved"), "{:?}", job.out);
    assert_eq!(kind(&job), None);
    job.feed(JlInput::Saved);
    assert!(kind(&job).is_some_and(|kind| kind != "end"), "{:?}", job.out);
}

fn resumed(job: &mut Clocked) {
    let episode = job.jl.job.episode;
    for rank in 0..2 {
        job.feed(JlInput::Rank(RankMessage { episode, rank, message: FromRank::Resumed }));
    }
    job.wait(1);
    assert_eq!(kind(job), None);
}

/// A job with a set in which rank 1 dies while the disk is full.
fn died(mut job: Clocked) -> Clocked {
    job.out.clear();
    let (episode, incarnation) = (job.jl.job.episode, job.jl.job.ranks[1].incarnation);
    let how = ExitCause::Signal(9);
    job.says("b", FromNla::Exited { episode, rank: 1, incarnation, how });
    fail(&mut job);
    job
}

pub(super) fn saved() -> Clocked {
    let mut job = met();
    assert_eq!(job.asks(Clocked::checkpoint()), [Outcome::Accepted]);
    save(&mut job);
    resumed(&mut job);
    job
}

fn recovers(job: &Clocked) -> bool {
    let is = |output: &JlOutput| {
        use FromJl::{Launch, MigrateIpt, Reset, Rollback};
        let JlOutput::Publish(message) = output else { return false };
        matches!(message, Launch(_) | MigrateIpt(_) | Reset { .. } | Rollback { .. })
    };
    job.out.iter().any(is)
}

#[test]
fn a_recovery_whose_own_state_cannot_be_saved_waits_until_it_can() {
    let mut job = died(saved());
    for _ in 0..3 {
        assert!(!recovers(&job) && kind(&job).is_none(), "{:?}", job.out);
        assert!(!job.reported("goes back to set"), "{:?}", job.out);
        job.wait(1);
        fail(&mut job);
    }
    assert!(job.reported("the recovery waits until the state can be saved"), "{:?}", job.out);
    let ranks = &job.jl.job.ranks;
    assert!(ranks[0].ended.is_none() && ranks[1].ended == Some(ExitCause::Signal(9)));
    let taken_back = job.jl.taken_back.as_ref().map(|_| job.jl.job.episode);
    job.feed(JlInput::Saved);
    assert!(job.reported("goes back to set"), "{:?}", job.out);
    assert!(recovers(&job) && kind(&job) == Some("rollback"), "{:?}", job.out);
    assert_eq!(job.jl.job.restarts, 1, "it is one attempt");
    assert!(Some(job.jl.job.episode) > taken_back, "no number is used twice");
    // There is room for the state before it, but not for its own.
    fail(&mut job);
    assert!(!recovers(&job) && kind(&job).is_none(), "{:?}", job.out);
    job.feed(JlInput::Saved);
    assert_eq!((kind(&job), job.jl.job.restarts), (Some("rollback"), 1), "{:?}", job.out);
}

#[test]
fn a_recovery_that_waits_is_begun_by_the_next_launcher() {
    let mut job = died(saved());
    job.jl = serde_json::from_str(&serde_json::to_string(&job.jl).unwrap()).unwrap();
    job.out.clear();
    job.feed(JlInput::Adopted);
    assert!(recovers(&job) && kind(&job) == Some("rollback"), "{:?}", job.out);
}

#[test]
fn a_start_from_the_beginning_whose_state_cannot_be_saved_waits_until_it_can() {
    let mut job = met();
    (job.jl.job.config.on_hang, job.jl.job.config.on_death) = (OnHang::Restart, OnDeath::Restart);
    for seconds in 0..30 {
        job.seconds += 1;
        super::hangs::has_hung(&mut job, seconds);
        if job.jl.opened.is_some() {
            break;
        }
        for (name, state) in job.jl.job.nodes.clone() {
            job.ready(name.as_str(), state.state.unwrap());
        }
        job.out.clear();
    }
    fail(&mut job);
    assert!(!recovers(&job) && kind(&job).is_none(), "{:?}", job.out);
    job.feed(JlInput::Saved);
    assert!(recovers(&job) && kind(&job) == Some("start"), "{:?}", job.out);
}

/// The time of a predicted failure outlives the launcher: it is kept by the wall clock too.
#[test]
fn a_queued_migration_keeps_its_predicted_time_over_a_takeover() {
    let mut job = met();
    assert_eq!(job.asks(Clocked::checkpoint()), [Outcome::Accepted]);
    job.fails_at(1, "a", Some((job.seconds + 60) * S));
    job.replace_launcher(10);
    let fails_ns = job.jl.wanted.front().and_then(|queued| queued.want.fails_ns());
    assert_eq!(fails_ns, Some((job.seconds + 50) * S), "50 s are left");
}
