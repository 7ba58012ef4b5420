//! Hung ranks in 1,000 simulated hours: programs that only compute, wait and do I/O are never
//! called hung, and each real hang is found in time and named.
//!
//! Seeds are 1 to the number of jobs. Every sample passes the code of node and launcher.

#![allow(clippy::unwrap_used, unreachable_pub)]

#[path = "hangs/program.rs"]
mod program;
mod sim;

use core::time::Duration;
use ftb_core::Now;
use ftb_launcher_core::progress::{
    Finding, HangChange, HangJudge, HangKind, HangTimes, NodeWatch, RankSample,
};
use program::{Fault, Program};
use sim::happens::Rng;

const TIMES: HangTimes =
    HangTimes { hang_after: Duration::from_secs(20), stall_after: Duration::from_secs(600) };
const RANKS: usize = 6;
/// The ranks of each simulated node.
const PER_NODE: usize = 2;

/// A job under the watch of two nodes and a launcher.
struct Job {
    program: Program,
    nodes: Vec<NodeWatch>,
    judge: HangJudge,
    now_ms: u64,
    /// Until then a node takes no samples: its launch agent is stopped.
    deaf_ms: Vec<u64>,
}

impl Job {
    fn new(seed: u64, ranks: usize) -> Self {
        let nodes = ranks.div_ceil(PER_NODE);
        Self {
            program: Program::new(seed, ranks),
            nodes: vec![NodeWatch::default(); nodes],
            judge: HangJudge::default(),
            now_ms: 0,
            deaf_ms: vec![0; nodes],
        }
    }

    /// One interval.
    fn step(&mut self) -> Vec<HangChange> {
        let every = TIMES.sample_every();
        self.now_ms += u64::try_from(every.as_millis()).unwrap();
        self.program.run_until(self.now_ms);
        let ns = self.now_ms * 1_000_000;
        let now = Now { mono_ns: ns, wall_ns: ns };
        let samples = self.program.samples();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            if self.deaf_ms[index] > self.now_ms {
                continue;
            }
            let first = index * PER_NODE;
            let own = samples.iter().enumerate().skip(first).take(PER_NODE);
            let own = own.map(|(rank, sample)| RankSample {
                rank: u32::try_from(rank).unwrap(),
                incarnation: 1,
                sample: *sample,
            });
            let report = node.on_samples(now, every, &own.collect::<Vec<_>>());
            self.judge.on_report(now, &report);
        }
        self.judge.look(now, &TIMES, &vec![Some(1); samples.len()])
    }

    /// The first finding within this time, and when it came.
    fn first(&mut self, within: Duration) -> Option<(Finding, Duration)> {
        let begun_ms = self.now_ms;
        let end_ms = begun_ms + u64::try_from(within.as_millis()).unwrap();
        while self.now_ms < end_ms {
            if let Some(HangChange::Hung(finding)) = self.step().first() {
                return Some((*finding, Duration::from_millis(self.now_ms - begun_ms)));
            }
        }
        None
    }
}

#[test]
fn a_thousand_hours_of_work_waits_and_io_cause_no_false_alarm() {
    const HOURS: u64 = 1000;
    const JOBS: u64 = 50;
    let mut seen = program::Seen::default();
    for seed in 1..=JOBS {
        let mut job = Job::new(seed, RANKS);
        if seed % 4 == 0 {
            job.program.farms();
        }
        let mut rng = Rng(seed ^ 0xdeaf);
        while job.now_ms < HOURS / JOBS * 3_600_000 {
            if rng.below(4000) == 0 {
                let node = usize::try_from(rng.below(3)).unwrap();
                job.deaf_ms[node] = job.now_ms + rng.below(120_000);
            }
            let changes = job.step();
            assert!(changes.is_empty(), "seed {seed}: {changes:?} in {:?}", job.program);
        }
        seen.add(job.program.seen());
    }
    // The hours contain what they are about.
    assert!(seen.waits > 10_000 && seen.long > 100, "{seen:?}");
    assert!(seen.io > 100 && seen.shared_io > 100 && seen.idle > 50, "{seen:?}");
    assert!(seen.stops > 100 && seen.longest_h > 1 && seen.tasks > 10_000, "{seen:?}");
}

#[test]
fn one_stopped_rank_of_64_is_found_within_30_seconds_and_named() {
    for seed in 1..=40 {
        let mut job = Job::new(seed, 64);
        let mut rng = Rng(seed);
        for _ in 0..100 + rng.below(300) {
            assert!(job.step().is_empty());
        }
        let rank = usize::try_from(rng.below(64)).unwrap();
        job.program.fail(rank, Fault::Stop);
        let (finding, after) = job.first(Duration::from_secs(60)).unwrap();
        assert_eq!((finding.rank, finding.kind), (u32::try_from(rank).ok(), HangKind::Stopped));
        assert!(after <= Duration::from_secs(30), "seed {seed}: {after:?}");
        // Its peers wait for it. They are not hung.
        assert_eq!(job.first(Duration::from_secs(3600)), None, "seed {seed}");
        job.program.mend(rank);
        let over = (0..3).flat_map(|_| job.step()).collect::<Vec<_>>();
        assert_eq!(over, [HangChange::Over(finding)], "seed {seed}");
    }
}

/// Runs until a rank fails in the middle of a step; returns the first finding.
fn after_fault(seed: u64, fault: Fault, counts: bool, spins: bool) -> (Finding, Duration, u32) {
    let mut job = Job::new(seed, 8);
    job.program.counts_steps(counts);
    job.program.waits_busily(spins);
    let mut rng = Rng(seed ^ 7);
    let mut looks = 50 + rng.below(300);
    // Ranks that have not counted any step are not known to do so.
    while looks > 0 || (counts && job.program.samples()[0].steps < 2) {
        assert!(job.step().is_empty());
        looks = looks.saturating_sub(1);
    }
    let rank = usize::try_from(rng.below(8)).unwrap();
    job.program.fail(rank, fault);
    let found = job.first(Duration::from_secs(8 * 3600));
    let (finding, after) = found.unwrap_or_else(|| panic!("seed {seed}: {fault:?} is not found"));
    (finding, after, u32::try_from(rank).unwrap())
}

#[test]
fn a_rank_that_loops_or_sleeps_is_found_by_its_steps() {
    for seed in 1..=20 {
        for (fault, spins) in [(Fault::Loop, false), (Fault::Sleep, true)] {
            let (finding, after, rank) = after_fault(seed, fault, true, spins);
            assert_eq!((finding.rank, finding.kind), (Some(rank), HangKind::Steps), "{fault:?}");
            assert!(after < Duration::from_secs(3 * 3600), "seed {seed} {fault:?}: {after:?}");
        }
        // A loop among peers that wait busily, too: no rank differs.
        let (finding, _, _) = after_fault(seed, Fault::Loop, true, true);
        assert_eq!((finding.rank, finding.kind), (None, HangKind::All));
    }
}

#[test]
fn a_rank_that_reads_nothing_or_waits_for_a_file_system_is_found_without_steps() {
    for seed in 1..=20 {
        for spins in [false, true] {
            let (finding, after, rank) = after_fault(seed, Fault::Deaf, false, spins);
            assert_eq!((finding.rank, finding.kind), (Some(rank), HangKind::Unread));
            assert!(after < Duration::from_secs(1860), "seed {seed}: {after:?}");
            let (finding, after, rank) = after_fault(seed, Fault::Io, false, spins);
            assert_eq!((finding.rank, finding.kind), (Some(rank), HangKind::Io));
            assert!(after < Duration::from_secs(1860), "seed {seed}: {after:?}");
        }
    }
}

/// Its peers go on without it. A rank that they wait for is not found that way: see the next test.
#[test]
fn a_rank_that_its_peers_leave_behind_is_found_without_steps() {
    for seed in 1..=20 {
        let mut job = Job::new(seed, 8);
        job.program.farms();
        let mut rng = Rng(seed);
        let learns = Duration::from_secs(3600 * (4 + rng.below(8)));
        assert_eq!(job.first(learns), None, "seed {seed}");
        let rank = usize::try_from(rng.below(8)).unwrap();
        job.program.fail(rank, Fault::Sleep);
        let (finding, after) = job.first(Duration::from_secs(12 * 3600)).unwrap();
        assert_eq!((finding.rank, finding.kind), (u32::try_from(rank).ok(), HangKind::Peers));
        assert!(after >= TIMES.stall_after, "seed {seed}: {after:?}");
        assert!(after < Duration::from_secs(3 * 3600), "seed {seed}: {after:?}");
        job.program.mend(rank);
        let over = (0..3).flat_map(|_| job.step()).collect::<Vec<_>>();
        assert_eq!(over, [HangChange::Over(finding)], "seed {seed}");
    }
}

#[test]
fn ranks_that_all_wait_for_each_other_are_found_and_none_is_blamed() {
    for seed in 1..=20 {
        let (finding, after, _) = after_fault(seed, Fault::Sleep, false, false);
        assert_eq!((finding.rank, finding.kind), (None, HangKind::All), "seed {seed}");
        assert!(after < Duration::from_secs(4 * 3600), "seed {seed}: {after:?}");
    }
}

#[test]
fn a_rank_under_a_debugger_is_recognised() {
    for seed in 1..=20 {
        let (finding, after, rank) = after_fault(seed, Fault::Debugger, seed % 2 == 0, false);
        assert_eq!((finding.rank, finding.kind), (Some(rank), HangKind::Debugger));
        assert!(after <= Duration::from_secs(30), "seed {seed}: {after:?}");
    }
}

/// The launcher must not act a second time on what its predecessor has found.
#[test]
fn a_launcher_that_takes_over_finds_nothing_anew() {
    let mut job = Job::new(1, 8);
    for _ in 0..50 {
        job.step();
    }
    job.program.fail(3, Fault::Stop);
    let (finding, _) = job.first(Duration::from_secs(60)).unwrap();
    let text = serde_json::to_string(&job.judge).unwrap();
    job.judge = serde_json::from_str(&text).unwrap();
    job.deaf_ms[1] = job.now_ms + 60_000;
    assert_eq!(job.first(Duration::from_secs(120)), None, "its node reports later");
    assert_eq!(job.judge.found(), [finding]);
}

#[test]
fn ranks_that_the_launcher_holds_are_not_hung() {
    let mut job = Job::new(2, 8);
    for _ in 0..50 {
        job.step();
    }
    job.program.fail(3, Fault::Stop);
    for _ in 0..100 {
        let now = Now { mono_ns: job.now_ms * 1_000_000, wall_ns: 0 };
        job.judge.pause(now, &TIMES);
        assert!(job.step().is_empty());
    }
    let (_, after) = job.first(Duration::from_secs(60)).unwrap();
    assert!(after >= Duration::from_secs(16), "its time begins now: {after:?}");
}
