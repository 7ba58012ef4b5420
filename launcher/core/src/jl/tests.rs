//! Decisions of the JL that the simulation does not isolate.

#![allow(clippy::unwrap_used)]

mod arrivals;
mod disks;
mod drill;
mod hangs;
mod looping;
mod memory;
mod repair;
mod replaced;
mod requests;
mod saving;
mod sooner;
mod table;
mod words;

use super::*;
use crate::manner::{Manner, Moves, Saver};
use crate::memory::Scheme;
use crate::message::{
    ExitCause, FromNla, FromRank, NlaMessage, Part, Placement, Protocol, RankMessage,
};
use crate::names::{FaultId, JobId, Ranks, SetId};
use crate::progress::{Activity, HangTimes};
use crate::warm::ParkedProcesses;

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn jl() -> Jl {
    let placement: Placement =
        [(node("a"), Ranks::from_iter([0])), (node("b"), Ranks::from_iter([1]))].into();
    Jl::new(JlConfig {
        job: JobId::new("job").unwrap(),
        size: 2,
        placement,
        spares: vec![node("s")],
        restore: None,
        deadlines: Deadlines::default(),
        on_death: OnDeath::Rollback,
        restarts_max: 3,
        interval: Interval::Never,
        disk_interval: Interval::Never,
        mtbf: MTBF,
        wait_for_nodes: Duration::ZERO,
        sets_max: 2,
        manner: Manner::default(),
        on_hang: OnHang::Report,
        hang_times: HangTimes::default(),
        memory: None,
    })
}

fn feed(jl: &mut Jl, input: JlInput) -> Vec<JlOutput> {
    let mut out = Vec::new();
    jl.handle(Now::default(), input, &mut out);
    out
}

fn want(jl: &mut Jl, want: Request) -> Outcome {
    let out = feed(jl, JlInput::Request { want, by: Initiator::Request(1) });
    let answer = out.into_iter().find_map(|output| match output {
        JlOutput::Answer(answer) => Some(answer.outcome),
        _ => None,
    });
    answer.unwrap()
}

fn migrate(name: &str) -> Request {
    Request::Migrate { node: node(name), reason: "test".to_owned(), fails_ns: None }
}

#[test]
fn state_is_saved_before_what_it_leads_to_is_published() {
    let mut jl = jl();
    let out = feed(&mut jl, JlInput::Started);
    let save = out.iter().position(|o| *o == JlOutput::Save).unwrap();
    let ask = out.iter().position(|o| *o == JlOutput::Publish(FromJl::Ask)).unwrap();
    assert!(save < ask);
}

fn wanted_by(jl: &mut Jl, fault: u64, want: Request) -> Vec<JlOutput> {
    feed(jl, JlInput::Request { want, by: Initiator::Fault(FaultId(fault)) })
}

fn cancel(jl: &mut Jl, fault: u64) -> Vec<JlOutput> {
    let faults = [FaultId(fault)].into();
    feed(jl, JlInput::Cancel { faults, reason: "cooling has failed".to_owned() })
}

#[test]
fn a_workflow_that_has_ended_closes_its_fault_and_names_it() {
    let mut jl = jl();
    feed(&mut jl, JlInput::Started);
    jl.open = None;
    jl.job.met = true;
    jl.job.hear_protocol(&node("a"), &Ranks::from_iter([0]), Protocol::FtbJob);
    jl.job.hear_protocol(&node("b"), &Ranks::from_iter([1]), Protocol::FtbJob);
    wanted_by(&mut jl, 5, Request::Checkpoint { reason: "heat".to_owned() });
    let (episode, set) = (jl.job.episode, SetId::of_checkpoint(jl.job.episode));
    let failed = FromRank::CheckpointFailed { set, reason: "disk full".to_owned() };
    let out = feed(&mut jl, JlInput::Rank(RankMessage { episode, rank: 0, message: failed }));
    let named = |output: &JlOutput| match output {
        JlOutput::Publish(FromJl::Closed(closed)) => closed.fault == Some(FaultId(5)),
        _ => false,
    };
    assert!(out.iter().any(named), "{out:?}");
    assert!(jl.job.faults.is_closed(FaultId(5)));
}

/// The silence may be noticed before the deadline of the end is over.
#[test]
fn an_agent_that_hangs_while_the_job_ends_is_killed() {
    let mut jl = jl();
    jl.job.config.deadlines.silence = Duration::from_secs(5);
    feed(&mut jl, JlInput::Started);
    jl.job.nodes.get_mut(&node("b")).unwrap().state = Some(MigrationState::Ready);
    let kill = Request::Kill { code: 143, reason: String::new() };
    feed(&mut jl, JlInput::Request { want: kill, by: Initiator::Internal });
    let mut killed = Vec::new();
    for second in 1..=7 {
        let now = Now { mono_ns: second * 1_000_000_000, wall_ns: 0 };
        let mut out = Vec::new();
        jl.handle(now, JlInput::Tick, &mut out);
        killed.extend(out.into_iter().filter(|output| matches!(output, JlOutput::KillNla(_))));
    }
    assert_eq!(killed, [JlOutput::KillNla(node("b"))]);
    assert!(!jl.over(), "the others have not left yet");
}

#[test]
fn a_launcher_that_takes_an_ended_job_over_says_only_its_code() {
    let mut jl = jl();
    feed(&mut jl, JlInput::Started);
    feed(
        &mut jl,
        JlInput::Request {
            want: Request::Kill { code: 143, reason: String::new() },
            by: Initiator::Internal,
        },
    );
    for name in ["a", "b", "s"] {
        feed(&mut jl, JlInput::Gone { node: node(name), reason: String::new() });
    }
    assert!(jl.over());
    let text = serde_json::to_string(&jl).unwrap();
    let mut next: Jl = serde_json::from_str(&text).unwrap();
    assert_eq!(feed(&mut next, JlInput::Tick), []);
    assert_eq!(feed(&mut next, JlInput::Adopted), [JlOutput::Exit(143)]);
}

/// Commits a set in which the two ranks have this activity; returns the kept sets.
fn commit(job: &mut Job, number: u64, done: [(u64, u64); 2]) -> Vec<u64> {
    let set = |number| SetId::of_checkpoint(Episode(number));
    let activity = (0..).zip(done.map(|(cpu_ms, sent)| Activity { cpu_ms, sent })).collect();
    job.prove_sets(&set(number), &activity);
    job.sets.push(set(number));
    job.drop_old_sets();
    (0..100).filter(|number| job.sets.contains(&set(*number))).collect()
}

fn reported(job: &mut Job) -> Vec<String> {
    let tell = |output| match output {
        JlOutput::Notify(words) => Some(words),
        _ => None,
    };
    core::mem::take(&mut job.out).into_iter().filter_map(tell).collect()
}

#[test]
fn sets_of_a_hanging_job_do_not_replace_the_last_good_one() {
    let mut jl = jl();
    let job = &mut jl.job;
    assert_eq!(commit(job, 1, [(10, 10), (10, 10)]), [1]);
    assert_eq!(commit(job, 2, [(20, 20), (20, 20)]), [1, 2]);
    assert_eq!(commit(job, 3, [(30, 30), (30, 30)]), [2, 3]);
    assert_eq!(reported(job), [""; 0]);
    // Rank 1 loops, perhaps already in set 3. Rank 0 sends until it waits.
    assert_eq!(commit(job, 4, [(40, 40), (99, 30)]), [2, 3, 4]);
    assert_eq!(commit(job, 5, [(50, 50), (199, 30)]), [2, 4, 5]);
    assert_eq!(commit(job, 6, [(60, 50), (299, 30)]), [2, 5, 6]);
    // A stopped rank makes no progress either, whatever its pod sends.
    assert_eq!(commit(job, 7, [(60, 60), (399, 30)]), [2, 6, 7]);
    let reported = reported(job);
    assert_eq!(reported.len(), 2, "each change once: {reported:?}");
    assert!(
        reported[0].contains("ranks 1 have made no progress since set set-000003"),
        "{reported:?}"
    );
    assert!(reported[0].ends_with("set set-000002 stays in the store"), "{reported:?}");
    // Both go on. Earlier sets may contain the hang.
    assert_eq!(commit(job, 8, [(70, 70), (400, 40)]), [7, 8]);
    assert_eq!(commit(job, 9, [(80, 80), (410, 50)]), [8, 9]);
    // They go back to set 8 and its activity.
    assert_eq!(commit(job, 10, [(75, 75), (405, 45)]), [8, 9, 10]);
    assert_eq!(commit(job, 11, [(85, 85), (415, 55)]), [10, 11]);
}

#[test]
fn ranks_that_save_themselves_prove_their_set() {
    let mut jl = jl();
    jl.job.config.sets_max = 1;
    for number in 1..4 {
        let set = SetId::of_checkpoint(Episode(number));
        jl.job.prove_sets(&set, &std::collections::BTreeMap::new());
        jl.job.sets.push(set.clone());
        jl.job.drop_old_sets();
        assert_eq!(jl.job.sets, [set]);
    }
}

#[test]
fn a_checkpoint_waits_for_ranks_in_a_barrier_and_is_then_refused() {
    let mut jl = jl();
    jl.job.config.manner = Manner { saver: Saver::Agent, moves: Moves::Alone };
    feed(&mut jl, JlInput::Started);
    (jl.open, jl.job.met) = (None, true);
    let part = Part { barrier: 1, part: 0, parts: 1, lines: String::new() };
    let arrived = |jl: &mut Jl| {
        let message = FromNla::Pmi {
            episode: Episode(1),
            ranks: Ranks::from_iter([0]),
            joined: Ranks::default(),
            part: part.clone(),
        };
        feed(jl, JlInput::Nla(NlaMessage { node: node("a"), message }));
    };
    arrived(&mut jl);
    let save = || Request::Checkpoint { reason: "test".to_owned() };
    assert_eq!(want(&mut jl, save()), Outcome::Accepted);
    assert!(jl.open.is_none() && jl.wanted.len() == 1, "it waits");
    assert_eq!(jl.barrier_until_ns, Some(Now::default().deadline_ns(BARRIER_PATIENCE)));
    let mut out = Vec::new();
    let late = Now { mono_ns: Now::default().deadline_ns(BARRIER_PATIENCE), wall_ns: 0 };
    jl.handle(late, JlInput::Tick, &mut out);
    let refused = |output: &JlOutput| match output {
        JlOutput::Answer(answer) => answer.words.contains("PMI barrier"),
        _ => false,
    };
    assert!(out.iter().any(refused), "{out:?}");
    // The barrier opens in time; the checkpoint follows.
    assert_eq!(want(&mut jl, save()), Outcome::Accepted);
    assert!(jl.open.is_none());
    let message = FromNla::Pmi {
        episode: Episode(1),
        ranks: Ranks::from_iter([1]),
        joined: Ranks::default(),
        part: part.clone(),
    };
    feed(&mut jl, JlInput::Nla(NlaMessage { node: node("b"), message }));
    assert!(matches!(jl.open.as_ref().map(|open| &open.workflow), Some(Workflow::Checkpoint(_))));
}

/// A job with a clock and its messages.
struct Clocked {
    jl: Jl,
    seconds: u64,
    /// The Unix time at which its clock was 0, in seconds.
    boot_s: u64,
    out: Vec<JlOutput>,
}

const S: u64 = 1_000_000_000;
const BOOT_S: u64 = 1_700_000_000;

impl Clocked {
    fn new(interval: Interval) -> Self {
        let mut jl = jl();
        jl.checkpoint_timer = CheckpointTimer::new(interval, MTBF);
        Self { jl, seconds: 0, boot_s: BOOT_S, out: Vec::new() }
    }

    /// All ranks were started on `a` and `b`; `s` may be a spare.
    fn started(interval: Interval, spare: bool) -> Self {
        let mut job = Self::new(interval);
        job.start(spare);
        job
    }

    fn start(&mut self, spare: bool) {
        let job = self;
        job.feed(JlInput::Started);
        for name in ["a", "b", "s"] {
            let inactive = name == "s" && !spare;
            let state = match (name, inactive) {
                (_, true) => MigrationState::Inactive,
                ("s", false) => MigrationState::Spare,
                _ => MigrationState::Ready,
            };
            job.ready(name, state);
        }
        for name in ["a", "b", "s"] {
            let (episode, incarnation) = (Episode(1), 0);
            let ranks = job.jl.job.ranks_on(&node(name));
            job.says(name, FromNla::Launched { episode, incarnation, ranks });
        }
    }

    fn is_unusable(&mut self, name: &str) {
        let why = Unusable { why: "fan failed: FAN 1 FANFAIL".to_owned(), lasts: false };
        self.feed(JlInput::Unusable { node: node(name), why });
    }

    fn now(&self) -> Now {
        Now { mono_ns: self.seconds * S, wall_ns: (self.boot_s + self.seconds) * S }
    }

    fn feed(&mut self, input: JlInput) {
        let now = self.now();
        self.jl.handle(now, input, &mut self.out);
    }

    /// Another launcher goes on with the saved state after this time. Its clock is another one.
    fn replace_launcher(&mut self, after_s: u64) {
        self.jl = serde_json::from_str(&serde_json::to_string(&self.jl).unwrap()).unwrap();
        let wall_s = self.boot_s + self.seconds + after_s;
        self.seconds = 3;
        self.boot_s = wall_s - self.seconds;
        self.out.clear();
        self.feed(JlInput::Adopted);
    }

    fn says(&mut self, name: &str, message: FromNla) {
        self.feed(JlInput::Nla(NlaMessage { node: node(name), message }));
    }

    fn ready(&mut self, name: &str, state: MigrationState) {
        let (changes, none) = (0, Ranks::default());
        let (ranks, pmi, joined) = (none.clone(), none.clone(), none);
        let parked = ParkedProcesses::default();
        self.says(name, FromNla::Ready { state, changes, ranks, pmi, joined, parked });
    }

    /// All ranks arrive at the barrier; ranks of ftb-job have put their addresses.
    fn meet(&mut self, joined: bool) {
        let barrier = self.jl.job.barrier.number();
        for name in ["a", "b"] {
            let part = Part { barrier, part: 0, parts: 1, lines: String::new() };
            let (episode, ranks) = (Episode(1), self.jl.job.ranks_on(&node(name)));
            let joined = if joined { ranks.clone() } else { Ranks::default() };
            self.says(name, FromNla::Pmi { episode, ranks, joined, part });
        }
    }

    fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.seconds += 1;
            // The agents answer.
            for (name, state) in self.jl.job.nodes.clone() {
                self.ready(name.as_str(), state.state.unwrap());
            }
            self.feed(JlInput::Tick);
        }
    }

    fn fails(&mut self, fault: u64, name: &str) {
        self.fails_at(fault, name, None);
    }

    fn fails_at(&mut self, fault: u64, name: &str, fails_ns: Option<u64>) {
        let reason = "fan failed".to_owned();
        let want = Request::Migrate { node: node(name), reason, fails_ns };
        self.feed(JlInput::Request { want, by: Initiator::Fault(FaultId(fault)) });
    }

    fn asks(&mut self, want: Request) -> Vec<Outcome> {
        self.out.clear();
        self.feed(JlInput::Request { want, by: Initiator::Request(1) });
        self.answers()
    }

    fn answers(&self) -> Vec<Outcome> {
        let outcome = |output: &JlOutput| match output {
            JlOutput::Answer(answer) => Some(answer.outcome),
            _ => None,
        };
        self.out.iter().filter_map(outcome).collect()
    }

    fn reported(&self, words: &str) -> bool {
        self.out
            .iter()
            .any(|output| matches!(output, JlOutput::Notify(line) if line.contains(words)))
    }

    fn asked_of_ranks(&self) -> bool {
        let asks = |output: &JlOutput| {
            matches!(
                output,
                JlOutput::Publish(
                    FromJl::Migrate { .. } | FromJl::Checkpoint { .. } | FromJl::Prepare { .. }
                )
            )
        };
        self.out.iter().any(asks)
    }

    fn checkpoint() -> Request {
        Request::Checkpoint { reason: "asked for".to_owned() }
    }
}

/// MPI programs meet without addresses; other programs never meet.
#[test]
fn programs_that_have_not_joined_are_asked_nothing() {
    for speaks_pmi in [true, false] {
        let interval = Interval::Every(Duration::from_secs(7));
        let mut job = Clocked::started(interval, true);
        if speaks_pmi {
            job.meet(false);
        } else {
            // They may still join: an early request waits.
            assert_eq!(job.asks(Clocked::checkpoint()), [Outcome::Accepted]);
            job.fails(1, "b");
            assert!(!job.reported("have not joined"));
            job.wait(JOIN_GRACE.as_secs());
            assert_eq!(job.answers(), [Outcome::Accepted, Outcome::Refused]);
        }
        assert!(job.reported("can neither be saved nor moved"), "{:?}", job.out);
        assert!(job.reported("run with --backend criu, or link ftb-job"), "{:?}", job.out);
        assert_eq!(job.reported("speak PMI only"), speaks_pmi);
        for want in [migrate("a"), Clocked::checkpoint()] {
            assert_eq!(job.asks(want), [Outcome::Refused], "at once");
        }
        job.fails(2, "a");
        assert!(
            job.reported("the ranks of a stay (fan failed) (fault 2): ranks 0,1 have not joined")
        );
        job.wait(300);
        assert!(!job.asked_of_ranks() && job.jl.open.is_none(), "{:?}", job.out);
        assert_eq!(job.jl.exit, None);
    }
}

#[test]
fn ranks_that_join_late_move_because_of_a_fault_of_before() {
    let mut job = Clocked::started(Interval::Never, true);
    job.wait(60);
    job.fails(1, "a");
    assert!(!job.asked_of_ranks());
    job.meet(true);
    assert!(job.reported("all ranks have joined ftb-job"), "{:?}", job.out);
    assert!(job.reported("the ranks of a move: fan failed (fault 1)"), "{:?}", job.out);
    assert!(job.asked_of_ranks());
}

/// Completes the open checkpoint.
fn save(job: &mut Clocked) {
    let episode = job.jl.open.as_ref().unwrap().episode;
    let set = SetId::of_checkpoint(episode);
    for rank in 0..2 {
        let message = FromRank::CheckpointDone { set: set.clone(), bytes: 1, activity: None };
        job.feed(JlInput::Rank(RankMessage { episode, rank, message }));
    }
    job.feed(JlInput::Stored { episode, result: Ok(2) });
}

#[test]
fn a_fault_without_a_spare_stays_open_until_there_is_one() {
    let mut job = Clocked::started(Interval::Never, false);
    job.meet(true);
    job.fails(1, "a");
    assert!(job.reported("no hot spare is left"), "{:?}", job.out);
    save(&mut job);
    assert!(!job.jl.job.faults.is_closed(FaultId(1)), "it waits");
    // A launcher that takes over knows it.
    job.jl = serde_json::from_str(&serde_json::to_string(&job.jl).unwrap()).unwrap();
    job.wait(100);
    let migrates = |job: &Clocked| {
        let is = |output: &JlOutput| match output {
            JlOutput::Publish(FromJl::Migrate { source, .. }) => *source == node("a"),
            _ => false,
        };
        job.out.iter().any(is)
    };
    assert!(!migrates(&job));
    let from = MigrationState::Inactive;
    let to = MigrationState::Spare;
    job.says("s", FromNla::State { episode: job.jl.job.episode, from, to, changes: 0 });
    assert!(migrates(&job), "{:?}", job.out);
    assert!(job.reported("the ranks of a can move now (fan failed) (fault 1)"));
}

#[test]
fn a_fault_that_waits_is_closed_when_its_node_is_well_again() {
    for well in [true, false] {
        let mut job = Clocked::started(Interval::Never, false);
        job.meet(true);
        job.fails(1, "a");
        save(&mut job);
        if well {
            job.feed(JlInput::Request {
                want: Request::Usable { node: node("a") },
                by: Initiator::Internal,
            });
        } else {
            cancel(&mut job.jl, 1);
        }
        assert!(job.jl.job.faults.is_closed(FaultId(1)) && job.jl.pending.is_empty());
        job.ready("s", MigrationState::Spare);
        job.wait(5);
        assert!(!job.reported("can move now"), "{:?}", job.out);
    }
}

#[test]
fn ranks_that_do_not_react_in_time_are_waited_for() {
    let mut job = Clocked::started(Interval::Never, true);
    job.meet(true);
    job.fails(1, "a");
    job.wait(1000);
    assert!(job.reported("the ranks did not leave in time"), "{:?}", job.out);
    assert!(job.reported("the job goes on, and the launcher waits for them"), "{:?}", job.out);
    assert!(!job.reported("the job ends") && job.jl.exit.is_none(), "{:?}", job.out);
    // They react late and stay.
    let barrier = job.jl.job.barrier.number();
    job.meet(true);
    assert_eq!(job.jl.job.barrier.number(), barrier + 1);
    let episode = job.jl.open.as_ref().unwrap().episode;
    for rank in 0..2 {
        job.feed(JlInput::Rank(RankMessage { episode, rank, message: FromRank::Resumed }));
    }
    assert!(job.jl.open.is_none() && job.reported("ranks 0 stayed on a"), "{:?}", job.out);
}

#[test]
fn moved_ranks_that_are_late_do_not_end_a_job_without_a_set() {
    let mut job = Clocked::started(Interval::Never, true);
    job.meet(true);
    job.fails(1, "a");
    let (episode, set) = (job.jl.job.episode, SetId::of_migration(job.jl.job.episode));
    let ranks = Ranks::from_iter([0]);
    let (incarnation, how) = (0, ExitCause::Left);
    job.says("a", FromNla::Exited { episode, rank: 0, incarnation, how });
    job.says("a", FromNla::Pic { episode, ranks: ranks.clone(), set: set.clone() });
    job.says("s", FromNla::Copied { episode, set, ranks: ranks.clone(), bytes: 1 });
    let incarnation = job.jl.job.incarnation;
    job.says("s", FromNla::Restarted { episode, incarnation, ranks });
    job.wait(300);
    assert!(job.reported("not all ranks have met in time"), "{:?}", job.out);
    assert!(!job.reported("the job ends"), "{:?}", job.out);
}

#[test]
fn a_node_with_a_fault_gets_no_ranks_at_the_start() {
    let mut job = Clocked::new(Interval::Never);
    job.is_unusable("a");
    job.start(true);
    assert_eq!(job.jl.job.ranks_on(&node("s")), Ranks::from_iter([0]));
    assert!(job.reported("node a gets no ranks: fan failed: FAN 1 FANFAIL"), "{:?}", job.out);
    assert!(job.reported("node s takes the place of a (fan failed: FAN 1 FANFAIL)"));

    let mut job = Clocked::new(Interval::Never);
    job.is_unusable("a");
    job.is_unusable("s");
    job.start(true);
    let words = "node a is not usable (fan failed: FAN 1 FANFAIL) and no hot spare is left";
    assert!(job.reported(words) && job.reported("--ignore-conditions"), "{:?}", job.out);
    assert!(!job.out.iter().any(|o| matches!(o, JlOutput::Publish(FromJl::Launch(_)))));
}

#[test]
fn a_spare_with_a_fault_is_none_until_it_may_be_used_again() {
    let mut job = Clocked::started(Interval::Never, true);
    job.meet(true);
    job.is_unusable("s");
    job.jl = serde_json::from_str(&serde_json::to_string(&job.jl).unwrap()).unwrap();
    job.fails(1, "a");
    assert!(job.reported("no hot spare is left"), "{:?}", job.out);
    save(&mut job);
    let want = Request::Usable { node: node("s") };
    job.feed(JlInput::Request { want, by: Initiator::Internal });
    assert!(job.reported("node s may get ranks again"));
    assert!(job.reported("the ranks of a can move now (fan failed) (fault 1)"), "{:?}", job.out);
}

#[test]
fn with_enough_time_left_the_job_is_saved_before_its_ranks_move() {
    let mut job = Clocked::started(Interval::Never, true);
    job.meet(true);
    job.jl.remedies.has_saved(SavePlace::Store, Duration::from_secs(10));
    job.fails_at(1, "a", Some(60_000_000_000));
    let words = "a fails in 60.0s or later (fault 1): checkpoint 10.0s (p95), migration 10.0s";
    assert!(job.reported(words) && job.reported("the job is saved, then"), "{:?}", job.out);
    let open = |job: &Clocked| job.jl.open().unwrap().workflow.kind();
    assert_eq!(open(&job), "checkpoint");
    save(&mut job);
    let episode = job.jl.open.as_ref().unwrap().episode;
    for rank in 0..2 {
        job.feed(JlInput::Rank(RankMessage { episode, rank, message: FromRank::Resumed }));
    }
    job.wait(1);
    assert_eq!(open(&job), "migration");
    // The events of both episodes show the numbers.
    let numbers = job.jl.open.as_ref().unwrap().left.unwrap();
    assert_eq!((numbers.left_ms, numbers.checkpoint_p95_ms), (60_000, Some(10_000)));
    let shows = |o: &JlOutput| match o {
        JlOutput::Publish(FromJl::Closed(closed)) => closed.left == Some(numbers),
        _ => false,
    };
    assert!(job.out.iter().any(shows), "{:?}", job.out);
    // Less time: it moves at once.
    let mut job = Clocked::started(Interval::Never, true);
    job.meet(true);
    job.jl.remedies.has_saved(SavePlace::Store, Duration::from_secs(10));
    job.fails_at(1, "a", Some(19_000_000_000));
    assert_eq!(open(&job), "migration");
}

#[test]
fn the_job_is_saved_in_memory_before_a_failure_for_which_the_store_is_too_slow() {
    let with_memory = |spare: bool| {
        let mut job = Clocked::started(Interval::Never, spare);
        job.meet(true);
        let (scheme, racks) = (Scheme::Buddy(1), std::collections::BTreeMap::new());
        let memory = MemoryConfig { scheme, interval: Interval::Never, first: false, racks };
        job.jl.job.config.memory = Some(memory);
        for (place, seconds) in [(SavePlace::Store, 40), (SavePlace::Memory, 2)] {
            job.jl.remedies.has_saved(place, Duration::from_secs(seconds));
        }
        job.jl.remedies.has_moved(Duration::from_secs(12));
        job
    };
    let wait = Duration::from_secs(600);
    for (spare, on_death, wait) in [
        (true, OnDeath::Rollback, Duration::ZERO),
        (true, OnDeath::Restart, Duration::ZERO),
        (false, OnDeath::Shrink, Duration::ZERO),
        (false, OnDeath::Rollback, wait),
    ] {
        let mut job = with_memory(spare);
        (job.jl.job.config.on_death, job.jl.job.config.wait_for_nodes) = (on_death, wait);
        job.fails_at(1, "a", Some(20_000_000_000));
        let open = job.jl.open().unwrap();
        let Workflow::Checkpoint(checkpoint) = &open.workflow else { panic!("{open:?}") };
        assert!(checkpoint.set().is_in_memory(), "{:?}", job.out);
        assert_eq!(open.left.unwrap().memory_p95_ms, Some(2000));
        assert_eq!(open.fault(), Some(FaultId(1)));
        assert!(job.reported("the job is saved in memory"), "{:?}", job.out);
        // The ranks move afterwards, or when there is a spare.
        let waiting: Vec<FaultId> = job.jl.waiting_faults().map(|(fault, ..)| fault).collect();
        assert_eq!(waiting, [FaultId(1)]);
    }
    // A job that ends with the node takes its memory with it; and some cannot be protected there.
    for (spare, on_death, scheme) in [
        (false, OnDeath::Rollback, Scheme::Buddy(1)),
        (false, OnDeath::Restart, Scheme::Buddy(1)),
        (false, OnDeath::Stop, Scheme::Buddy(1)),
        (false, OnDeath::Shrink, Scheme::Buddy(2)),
    ] {
        let mut job = with_memory(spare);
        job.jl.job.config.on_death = on_death;
        job.jl.job.config.memory.as_mut().unwrap().scheme = scheme;
        job.fails_at(1, "a", Some(20_000_000_000));
        let open = job.jl.open().unwrap();
        let Workflow::Checkpoint(checkpoint) = &open.workflow else { panic!("{open:?}") };
        assert!(!checkpoint.set().is_in_memory(), "{on_death:?} {scheme:?}: {:?}", job.out);
        assert_eq!(open.left.unwrap().memory_p95_ms, None);
        assert!(job.reported("nothing fits: the job is saved, the fastest"), "{:?}", job.out);
    }
    // With a spare the ranks move then.
    let mut job = with_memory(true);
    job.jl.job.config.memory.as_mut().unwrap().scheme = Scheme::Buddy(2);
    job.fails_at(1, "a", Some(20_000_000_000));
    assert_eq!(job.jl.open().unwrap().workflow.kind(), "migration");
}

/// A large job would otherwise fill the sessions of all nodes with results that they have.
#[test]
fn only_the_node_that_reports_a_barrier_again_gets_its_result_again() {
    let mut job = Clocked::started(Interval::Never, true);
    job.meet(true);
    job.out.clear();
    for part in 0..3 {
        let (episode, ranks) = (Episode(1), job.jl.job.ranks_on(&node("b")));
        let part = Part { barrier: 1, part, parts: 3, lines: String::new() };
        job.says("b", FromNla::Pmi { episode, joined: ranks.clone(), ranks, part });
    }
    let result = |output: &&JlOutput| match output {
        JlOutput::Repeat { node: to, message: FromJl::Pmi { .. } } => *to == node("b"),
        JlOutput::Publish(FromJl::Pmi { .. }) => panic!("{output:?}"),
        _ => false,
    };
    assert_eq!(job.out.iter().filter(result).count(), 1);
}
