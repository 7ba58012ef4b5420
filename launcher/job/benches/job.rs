//! How fast the library is: messages, reductions, suspensions, images. Prints one line per number;
//! see docs/job.md. `cargo bench -p ftb-job`
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../tests/harness/mod.rs"]
mod harness;

use ftb_job::{Header, ImageReader, Job, Notice, Op, Outlives, Result, write_image};
use harness::{Ended, Harness, checkpoint, finish_all, is_resumed, migrate};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn main() {
    for (size, nodes) in [(2, 1), (2, 2), (8, 1), (8, 8), (64, 8)] {
        collectives(size, nodes);
    }
    for nodes in [1, 2] {
        messages(nodes);
    }
    for size in [64, 256] {
        crowd(size);
    }
    for size in [2, 8, 32] {
        suspensions(size);
    }
    images();
}

/// Median and 99th percentile, in microseconds.
fn percentiles(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort_unstable();
    let at = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1e6;
    (at(50), at(99))
}

fn node(nodes: u32) -> impl Fn(u32) -> String {
    move |rank| format!("n{}", rank % nodes)
}

fn collectives(size: u32, nodes: u32) {
    const ROUNDS: usize = 500;
    let program = |mut job: Job| {
        let mut times = Vec::new();
        job.barrier()?;
        for _ in 0..ROUNDS {
            let started = Instant::now();
            job.allreduce(Op::Sum, &mut [1.0])?;
            times.push(started.elapsed());
        }
        job.finalize()?;
        Ok(Ended::Finished(times))
    };
    let times = finish_all(Harness::new(size).spawn_all(node(nodes), program)).swap_remove(0);
    let (median, p99) = percentiles(times);
    println!("allreduce, {size} ranks on {nodes} nodes: p50 {median:.0} us, p99 {p99:.0} us");
}

fn messages(nodes: u32) {
    const ROUNDS: usize = 5000;
    const LARGE_BYTES: usize = 1 << 20;
    const LARGE_COUNT: usize = 500;
    let program = |mut job: Job| {
        let peer = 1 - job.rank();
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let started = Instant::now();
            if job.rank() == 0 {
                job.send(peer, 1, &[0; 8])?;
                job.recv(peer, 1)?;
                times.push(started.elapsed());
            } else {
                let message = job.recv(peer, 1)?;
                job.send(peer, 1, &message)?;
            }
        }
        job.barrier()?;
        let large = vec![1; LARGE_BYTES];
        let started = Instant::now();
        for _ in 0..LARGE_COUNT {
            if job.rank() == 0 {
                job.send(peer, 2, &large)?;
            } else {
                job.recv(peer, 2)?;
            }
        }
        job.barrier()?;
        let large_time = started.elapsed();
        let channel = job.channel_to(peer);
        job.finalize()?;
        Ok(Ended::Finished((times, large_time, channel)))
    };
    let mut results = finish_all(Harness::new(2).spawn_all(node(nodes), program));
    let (times, large_time, channel) = results.swap_remove(0);
    let (median, p99) = percentiles(times);
    let rate = (LARGE_BYTES * LARGE_COUNT) as f64 / large_time.as_secs_f64() / 1e6;
    let channel = channel.unwrap_or("none");
    println!("message there and back, {channel}: p50 {median:.0} us, p99 {p99:.0} us");
    println!("messages of 1 MiB one way, {channel}: {rate:.0} MB/s");
}

/// Rank 0 has links to all others, which are threads of this process too.
fn crowd(size: u32) {
    const ROUNDS: u32 = 20;
    let before = (status("Threads:"), status("VmRSS:"));
    let program = |mut job: Job| {
        job.gather(0, &[0; 8])?;
        let started = Instant::now();
        for _ in 0..ROUNDS {
            job.gather(0, &[0; 1024])?;
            job.barrier()?;
        }
        let took = started.elapsed() / ROUNDS;
        let linked = (status("Threads:"), status("VmRSS:"));
        job.barrier()?;
        job.finalize()?;
        Ok(Ended::Finished((linked, took)))
    };
    let ended = finish_all(Harness::new(size).spawn_all(node(8), program)).swap_remove(0);
    let ((threads, kib), took) = ended;
    let each = |now: u64, before: u64| (now.saturating_sub(before)) as f64 / f64::from(size);
    println!(
        "{size} ranks, one with links to all: {:.1} threads and {:.0} KiB a rank, gather and \
         barrier {:.0} us",
        each(threads, before.0),
        each(kib, before.1),
        took.as_secs_f64() * 1e6
    );
}

/// A number of this process.
fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// A program that does nothing but safe points and reductions, checkpointed without state and with
/// all connections made again.
fn suspensions(size: u32) {
    const ROUNDS: u64 = 20;
    let enough = Arc::new(AtomicBool::new(false));
    let harness = Harness::new(size);
    let program = {
        let enough = Arc::clone(&enough);
        move |job: Job| compute_until(job, &enough)
    };
    let running = harness.spawn_all(node(4), program);
    for round in 0..ROUNDS {
        let resumed = |kind: u64| {
            move |notice: &Notice| is_resumed(notice) && notice.episode() == Some(2 * round + kind)
        };
        harness.bus.request(&checkpoint(2 * round + 1, "s"), size as usize, resumed(1));
        harness.bus.request(&migrate(2 * round + 2, "m", &[511]), size as usize, resumed(2));
    }
    enough.store(true, Ordering::Relaxed);
    finish_all(running);
    let notices = harness.bus.notices();
    let report = |what: &str, took: &dyn Fn(&Notice) -> Option<u64>| {
        let took = notices.iter().filter_map(|(_, notice)| took(notice));
        let (median, p99) = percentiles(took.map(Duration::from_micros).collect());
        println!("{what}, {size} ranks: p50 {median:.0} us, p99 {p99:.0} us");
    };
    let is_checkpoint = |episode: u64| episode % 2 == 1;
    report("all channels drained", &|notice| match notice {
        Notice::Suspended { took_us, .. } => Some(*took_us),
        _ => None,
    });
    report("checkpoint of an empty state, suspended to running", &|notice| match notice {
        Notice::Resumed { episode, took_us } if is_checkpoint(*episode) => Some(*took_us),
        _ => None,
    });
    report("all connections torn down and made again", &|notice| match notice {
        Notice::Resumed { episode, took_us } if !is_checkpoint(*episode) => Some(*took_us),
        _ => None,
    });
}

fn compute_until(mut job: Job, enough: &AtomicBool) -> Result<Ended<()>> {
    let mut done = [0];
    while done == [0] {
        let _ = job.safe_point(&())?;
        done = [u64::from(enough.load(Ordering::Relaxed))];
        job.allreduce(Op::Max, &mut done)?;
    }
    job.finalize()?;
    Ok(Ended::Finished(()))
}

fn images() {
    const BYTES: usize = 256 << 20;
    let directory = tempfile::tempdir().unwrap();
    let field = vec![1.5; BYTES / 8];
    let header = Header {
        job: "bench".into(),
        rank: 0,
        size: 1,
        set: "s1".into(),
        episode: 1,
        safe_point: 1,
    };
    let rate = |took: Duration| BYTES as f64 / took.as_secs_f64() / 1e6;
    let started = Instant::now();
    write_image(directory.path(), &header, Outlives::Host, &mut |writer| {
        writer.f64s("field", &field)
    })
    .unwrap();
    println!("image of 256 MiB written and synced: {:.0} MB/s", rate(started.elapsed()));
    let started = Instant::now();
    let image = ImageReader::open(&directory.path().join(Header::file_name(0))).unwrap();
    println!("image of 256 MiB verified: {:.0} MB/s", rate(started.elapsed()));
    let started = Instant::now();
    assert_eq!(image.into_reader().f64s("field").unwrap().len(), field.len());
    println!("image of 256 MiB read back: {:.0} MB/s", rate(started.elapsed()));
}
