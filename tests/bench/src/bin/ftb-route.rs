//! Routes events through one agent's state machine and says how often memory was allocated for
//! them. Runs by itself for allocations, and under `valgrind --tool=callgrind` for instructions:
//! the difference between two counts of batches is what the events cost (`instructions.sh`).

use anyhow::{Context as _, Result, ensure};
use ftb_bench::OneAgent;
use std::alloc::{GlobalAlloc, Layout, System};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

/// Events in one batch.
const BATCH: usize = 256;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, counting.
struct Counting;

#[expect(
    unsafe_code,
    reason = "an allocator is unsafe by its trait; every call goes to the system's"
)]
// SAFETY: all calls are handed to the system's allocator as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ftb-route: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// `ftb-route BATCHES [OTHER_SUBSCRIPTIONS]`.
fn run() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: ftb-route BATCHES [OTHER_SUBSCRIPTIONS]";
    let batches: usize = arguments.next().context(usage)?.parse().context(usage)?;
    let others = arguments.next().unwrap_or_else(|| "0".to_owned()).parse().context(usage)?;
    let mut agent = OneAgent::start(others)?;
    let mut routed = 0_u64;
    let mut spent = 0;
    for _ in 0..batches {
        // Made outside of what is counted: a publisher's events are sealed by the shell.
        let events = agent.next(BATCH)?;
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let delivered = agent.route(events)?;
        spent += ALLOCATIONS.load(Ordering::Relaxed) - before;
        ensure!(delivered == BATCH, "{delivered} of {BATCH} events came out");
        routed += BATCH as u64;
    }
    let each = spent as f64 / routed.max(1) as f64;
    println!("{routed} events routed, {spent} allocations: {each:.3} for each");
    Ok(())
}
