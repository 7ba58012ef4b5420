//! As many ranks as a job may have, as threads of this process with real sockets.
#![allow(clippy::unwrap_used)]

mod harness;

use ftb_job::{Job, Op, limits};
use ftb_tests::skip::skip;
use harness::{Ended, Harness, checkpoint, finish_all, is_resumed, migrate};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Files of this process for each rank: two listeners, two of epoll, four of PMI, two ends of three
/// links.
const FILES_PER_RANK: u64 = 14;

/// One test at a time: they count threads of the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// Raises the limit of open files; false where that is not possible.
fn has_files(size: u32) -> bool {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let needed = FILES_PER_RANK * u64::from(size) + 1000;
    if soft < needed.min(hard) {
        setrlimit(Resource::RLIMIT_NOFILE, needed.min(hard), hard).unwrap();
    }
    hard >= needed
}

/// Threads of this process with that name.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.map(|task| task.unwrap().path().join("comm"));
    // It may end meanwhile.
    names.filter(|path| std::fs::read_to_string(path).is_ok_and(|comm| comm.trim() == name)).count()
}

/// Rank 0 has a link to each other one. They compute, are saved, and make all links again.
fn computes_with_links_to_all(size: u32) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let enough = Arc::new(AtomicBool::new(false));
    let harness = Harness::new(size);
    let program = {
        let enough = Arc::clone(&enough);
        move |mut job: Job| {
            let (mut rounds, mut done) = (0, [0]);
            while done == [0] {
                let mine = [job.rank().to_le_bytes(), [rounds as u8; 4]].concat();
                for (rank, theirs) in (0_u32..).zip(job.gather(0, &mine)?) {
                    assert_eq!(theirs, [rank.to_le_bytes(), [rounds as u8; 4]].concat());
                }
                let mut sum = [u64::from(job.rank())];
                job.allreduce(Op::Sum, &mut sum)?;
                assert_eq!(sum[0], (0..u64::from(size)).sum::<u64>());
                let _ = job.safe_point(&())?;
                rounds += 1;
                done = [u64::from(enough.load(Ordering::Relaxed))];
                job.allreduce(Op::Max, &mut done)?;
            }
            job.finalize()?;
            Ok(Ended::Finished(rounds))
        }
    };
    let running = harness.spawn_all(|rank| format!("n{}", rank % 3), program);
    let count = size as usize;
    harness.bus.request(&checkpoint(2, "s"), count, is_resumed);
    // No rank leaves: all channels are closed and opened.
    harness.bus.request(&migrate(3, "m", &[size]), 2 * count, is_resumed);
    assert_eq!(threads("ftb-read"), count, "one reads all links of a rank");
    enough.store(true, Ordering::Relaxed);
    let rounds = finish_all(running);
    assert!(rounds.iter().all(|more| *more == rounds[0]) && rounds[0] >= 3, "{rounds:?}");
}

#[test]
fn one_thread_reads_all_links_of_a_rank() {
    const SIZE: u32 = 96;
    match has_files(SIZE) {
        true => computes_with_links_to_all(SIZE),
        false => skip("too few open files are allowed"),
    }
}

#[test]
#[ignore = "gigabytes and a minute: make test-long"]
fn a_job_may_have_as_many_ranks_as_documented() {
    match has_files(limits::RANKS_MAX) {
        true => computes_with_links_to_all(limits::RANKS_MAX),
        false => skip("too few open files are allowed"),
    }
}
