//! Ranks that make no progress, and what the job does about them.

use super::*;

/// A launch agent whose agent hangs gets no requests, whatever it reports by itself.
#[test]
fn progress_is_no_answer_to_a_question() {
    let mut job = Clocked::started(Interval::Never, true);
    job.meet(true);
    for _ in 0..120 {
        job.seconds += 1;
        job.feed(JlInput::Tick);
        let report = crate::progress::NodeReport::default();
        job.says("a", FromNla::Progress(report));
    }
    assert!(job.reported("node a is lost: its launch agent does not answer"), "{:?}", job.out);
}

/// A job with a set whose rank 0 is stopped.
fn stopped(on_hang: OnHang, on_death: OnDeath) -> Clocked {
    let mut job = started(on_hang, on_death);
    want(&mut job.jl, Request::Checkpoint { reason: "test".to_owned() });
    save(&mut job);
    hang(&mut job);
    job
}

fn started(on_hang: OnHang, on_death: OnDeath) -> Clocked {
    let mut job = Clocked::new(Interval::Never);
    (job.jl.job.config.on_hang, job.jl.job.config.on_death) = (on_hang, on_death);
    job.start(true);
    job.meet(true);
    job
}

/// Rank 0 is stopped; rank 1 moves.
fn hang(job: &mut Clocked) {
    for seconds in 0..30 {
        has_hung(job, seconds);
        job.wait(1);
    }
}

/// The reports after that time, up to the one that opens an episode.
pub(super) fn has_hung(job: &mut Clocked, seconds: u64) {
    use crate::progress::{NodeReport, RankReport, RunState};
    let ms = seconds * 1000;
    let (incarnation, state) = (job.jl.job.ranks[0].incarnation, RunState::Stopped);
    let still = RankReport { incarnation, state, state_ms: ms, still_ms: ms, ..Default::default() };
    let stopped = NodeReport { still: vec![still], ..NodeReport::default() };
    let moves = NodeReport { moving: Ranks::from_iter([1]), ..NodeReport::default() };
    job.says("a", FromNla::Progress(stopped));
    if job.jl.opened.is_none() {
        job.says("b", FromNla::Progress(moves));
    }
}

/// Ranks 0 and 1 are stopped, rank 1 by a debugger, until it goes on.
#[test]
fn a_rank_that_hung_beside_a_debugger_is_acted_on_when_the_debugger_has_gone() {
    use crate::progress::{NodeReport, RankReport, RunState};
    let mut job = started(OnHang::Kill, OnDeath::Rollback);
    let starts = [0, 1].map(|rank: usize| job.jl.job.ranks[rank].incarnation);
    let still = |rank: u32, state, seconds: u64, still_s: u64| {
        let (incarnation, ms) = (starts[rank as usize], seconds * 1000);
        let report = RankReport { rank, incarnation, state, state_ms: ms, ..Default::default() };
        let still = vec![RankReport { still_ms: still_s * 1000, ..report }];
        FromNla::Progress(NodeReport { still, ..NodeReport::default() })
    };
    for seconds in 0..40 {
        // The debugger lets its rank run in the end, and is attached still.
        let still_s = if seconds < 30 { seconds } else { 0 };
        job.says("a", still(0, RunState::Stopped, seconds, seconds));
        job.says("b", still(1, RunState::Traced, seconds, still_s));
        job.wait(1);
    }
    assert!(job.reported("rank 1 on b (pid 0) is hung no more"), "{:?}", job.out);
    assert!(job.reported("nothing is done while a debugger is attached"), "{:?}", job.out);
    assert!(!job.reported("on_hang = kill"), "{:?}", job.out);
    for seconds in 40..45 {
        has_hung(&mut job, seconds);
        job.wait(1);
    }
    assert!(job.reported("the job ends (on_hang = kill)"), "{:?}", job.out);
}

#[test]
fn a_job_that_hangs_before_its_first_set_starts_anew_where_its_owner_lets_it_restart() {
    for on_hang in [OnHang::Restart, OnHang::RollBack] {
        let mut job = started(on_hang, OnDeath::Restart);
        assert!(job.reported("before the first set the job starts anew"), "{:?}", job.out);
        hang(&mut job);
        let words = format!("hung: rank 0 (on_hang = {})", on_hang.as_str());
        let words = format!("{words}: the job starts anew from its beginning");
        assert!(job.reported(&words), "{:?}", job.out);
        for name in ["a", "b", "s"] {
            let episode = job.jl.open().unwrap().episode;
            job.says(name, FromNla::Reset { episode });
        }
        let afresh = |output: &JlOutput| match output {
            JlOutput::Publish(FromJl::Launch(launch)) => {
                launch.set.is_none() && launch.incarnation > 0
            }
            _ => false,
        };
        assert!(job.out.iter().any(afresh), "{:?}", job.out);
        // Otherwise the user knows from the start that it is only reported.
        let mut job = started(on_hang, OnDeath::Rollback);
        let words = "before the first set a hung rank is only reported; with --on-death restart";
        assert!(job.reported(words), "{:?}", job.out);
        hang(&mut job);
        assert!(job.reported("there is no set to go back to, so nothing is done"));
        assert!(job.jl.open().is_none(), "{:?}", job.out);
    }
}

#[test]
fn a_hung_rank_is_killed_to_go_back_whatever_follows_a_death() {
    let mut job = stopped(OnHang::RollBack, OnDeath::Stop);
    let kills = |output: &JlOutput| match output {
        JlOutput::Publish(FromJl::Hang(notice)) => notice.kill,
        _ => false,
    };
    assert!(job.out.iter().any(kills), "{:?}", job.out);
    let (episode, incarnation) = (job.jl.job.episode, job.jl.job.ranks[0].incarnation);
    let how = ExitCause::Signal(9);
    job.says("a", FromNla::Exited { episode, rank: 0, incarnation, how });
    assert!(!job.reported("the job ends"), "{:?}", job.out);
    let words = "rank 0 on a died: signal 9 (on_hang = rollback): the job restarts from set";
    assert!(job.reported(words), "{:?}", job.out);
}

#[test]
fn a_hung_rank_that_nothing_ends_makes_the_job_start_anew() {
    let mut job = stopped(OnHang::RollBack, OnDeath::Rollback);
    job.wait(30);
    assert!(job.reported("hung: rank 0, which SIGKILL does not end"), "{:?}", job.out);
}

#[test]
fn a_job_in_which_a_rank_hangs_ends_where_that_is_wanted() {
    let job = stopped(OnHang::Kill, OnDeath::Rollback);
    assert!(job.reported("the job ends: hung: rank 0"), "{:?}", job.out);
    let job = stopped(OnHang::Report, OnDeath::Rollback);
    assert!(job.reported("rank 0 on a (pid 0) is hung: is stopped by a signal for"));
    assert!(job.jl.open().is_none(), "{:?}", job.out);
}

#[test]
fn a_rank_that_its_peers_leave_behind_is_only_reported() {
    use crate::progress::{Finding, HangKind};
    let ends = |kind| {
        let mut job = started(OnHang::Kill, OnDeath::Rollback);
        let finding = Finding { rank: Some(0), incarnation: 0, pid: 7, kind, since_ns: 0 };
        job.jl.act_on_hang(Now { mono_ns: 1_000_000_000, wall_ns: 0 }, &[finding]);
        job.feed(JlInput::Tick);
        job.reported("the job ends: hung: rank 0")
    };
    assert!(!ends(HangKind::Peers));
    assert!(ends(HangKind::Stopped));
}

#[test]
fn what_is_said_of_a_dead_launch_agent_does_not_make_it_live() {
    let mut job = Clocked::started(Interval::Never, true);
    job.meet(true);
    for _ in 0..120 {
        job.seconds += 1;
        job.feed(JlInput::Tick);
        let left = FromNla::HangLeft { job: JobId::new("job").unwrap(), rank: 0 };
        job.says("a", left);
    }
    assert!(job.reported("node a is lost: its launch agent does not answer"), "{:?}", job.out);
    let evicts = |output: &&JlOutput| matches!(output, JlOutput::Publish(FromJl::Evict { .. }));
    let before = job.out.iter().filter(evicts).count();
    let left = FromNla::HangLeft { job: JobId::new("job").unwrap(), rank: 0 };
    job.says("a", left);
    assert_eq!(job.out.iter().filter(evicts).count(), before);
}
