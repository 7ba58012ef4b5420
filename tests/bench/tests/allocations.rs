//! The router allocates for a batch, not for an event: counted by the allocator itself. One test
//! in this file, since the count is the whole process's.
#![allow(clippy::unwrap_used)]

use ftb_bench::{Counting, OneAgent};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Most allocations for one batch on its way from publisher to subscriber and back as a
/// confirmation, however many events it has: the lists of outputs and messages, and the places of
/// the batch in log and outbox. The tenth is for queues that still grow.
const BATCH_ALLOCATIONS_MAX: f64 = 14.1;
/// Batches that are routed before the count begins: queues reach their size.
const WARM_UP: usize = 400;
/// Batches that are counted; what grows step by step for all of them hardly counts for one.
const COUNTED: usize = 400;

fn allocations_for_a_batch(events: usize) -> f64 {
    let mut agent = OneAgent::start(100).unwrap();
    let mut spent = 0;
    for batch in 0..WARM_UP + COUNTED {
        let run = agent.next(events).unwrap();
        let before = Counting::allocations();
        assert_eq!(agent.route(run).unwrap(), events);
        if batch >= WARM_UP {
            spent += Counting::allocations() - before;
        }
    }
    spent as f64 / COUNTED as f64
}

#[test]
fn a_batch_of_any_size_costs_the_router_the_same_few_allocations() {
    for events in [1, 16, 200] {
        let each = allocations_for_a_batch(events);
        assert!(each > 0.0, "nothing was counted");
        assert!(
            each <= BATCH_ALLOCATIONS_MAX,
            "{each:.2} allocations for a batch of {events} events: at most \
             {BATCH_ALLOCATIONS_MAX} are allowed"
        );
    }
}
