//! Routes events through one agent's state machine and says how often memory was allocated for
//! them. Runs by itself for allocations, and under `valgrind --tool=callgrind
//! '--toggle-collect=*OneAgent*route*'` for instructions: `tests/instructions.rs` holds those.

use anyhow::{Context as _, Result, ensure};
use ftb_bench::{Counting, OneAgent};
use std::process::ExitCode;

/// Events in one batch by default.
const BATCH: &str = "256";

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ftb-route: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// `ftb-route BATCHES [OTHER_SUBSCRIPTIONS [EVENTS_IN_A_BATCH]]`.
fn run() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: Option<&str>| {
        let usage = "usage: ftb-route BATCHES [OTHER_SUBSCRIPTIONS [EVENTS_IN_A_BATCH]]";
        let text = arguments.next().or(default.map(str::to_owned)).context(usage)?;
        text.parse::<usize>().context(usage)
    };
    let (batches, others, batch) = (number(None)?, number(Some("0"))?, number(Some(BATCH))?);
    let mut agent = OneAgent::start(others)?;
    let mut spent = 0;
    for _ in 0..batches {
        // Made outside of what is counted: a publisher's events are sealed by the shell.
        let events = agent.next(batch)?;
        let before = Counting::allocations();
        let delivered = agent.route(events)?;
        spent += Counting::allocations() - before;
        ensure!(delivered == batch, "{delivered} of {batch} events came out");
    }
    let routed = batches * batch;
    let each = spent as f64 / routed.max(1) as f64;
    println!("{routed} events routed, {spent} allocations: {each:.3} for each");
    Ok(())
}
