//! What a standby has sent up is not sent back to it, and it has it all the same.

use crate::ops::Op;
use crate::world::{Setup, World, boot};
use ftb_core::Severity;
use ftb_core::frame::{Content, Frame};
use std::cell::Cell;

thread_local! {
    /// Events that were sent to a copy of the log, and those of which only the place was sent.
    static COPIED: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Counts; loses nothing.
fn count(frame: &Frame) -> bool {
    if let Frame::Replicate(batch) = frame {
        let sent = batch.items.iter().map(|item| match &item.content {
            Content::Events(run) => run.count() as u64,
            Content::Gap(_) => 0,
        });
        let named = batch.entry_refs.iter().map(|echo| u64::from(echo.count));
        let (sent, named) = (sent.sum::<u64>(), named.sum::<u64>());
        COPIED.set((COPIED.get().0 + sent, COPIED.get().1 + named));
    }
    false
}

/// Three agents in a row, a publisher at each, in this order.
fn chain(setup: Setup) -> World {
    let setup = Setup { clients_every: 3, announcements: false, ..setup };
    let mut world = boot(setup, 1).unwrap();
    world.add_publisher(1).unwrap();
    world.add_publisher(2).unwrap();
    world.run_ms(5_000).unwrap();
    world
}

#[test]
fn what_a_standby_has_sent_up_does_not_come_back() {
    let mut world = chain(Setup { losses_allowed: true, gaps_allowed: true, ..Setup::new(3, 1) });
    COPIED.set((0, 0));
    world.loses = count;
    for _ in 0..20 {
        world.publish(1, 30, Severity::Info).unwrap();
        world.publish(0, 1, Severity::Info).unwrap();
        world.publish(2, 50, Severity::Info).unwrap();
        world.run_ms(3).unwrap();
    }
    world.run_ms(2_000).unwrap();
    world.check_events().unwrap();
    assert_eq!(COPIED.get(), (20, 20 * 80), "what the root's own client has said, and all other");
    let published: Vec<_> = world.books.published.keys().copied().collect();
    world.operate(Op::Kill(0)).unwrap();
    world.run_ms(5_000).unwrap();
    let missing = published.iter().filter(|id| !world.holds(1, **id)).count();
    assert_eq!(missing, 0, "of {} events", published.len());
}

/// What comes up twice is logged once, and has no second place that could be sent to the standby.
#[test]
fn a_batch_that_comes_up_twice_delays_no_commit() {
    fn small(config: &mut ftb_core::node::NodeConfig) {
        config.window_bytes = 2 << 10;
    }
    let mut world = chain(Setup { tune: small, ..Setup::new(3, 1) });
    world.loses = |frame| matches!(frame, Frame::Confirm(_));
    for _ in 0..50 {
        world.publish(1, 2, Severity::Info).unwrap();
        world.publish(2, 2, Severity::Info).unwrap();
        world.run_ms(5).unwrap();
    }
    world.run_ms(2_000).unwrap();
    world.loses = |_| false;
    assert!(world.check_events().is_err(), "no publisher has heard of a confirmation");
    world.run_ms(12_000).unwrap();
    world.check_events().unwrap();
    let resent = |world: &World| world.counters(2).into_iter().find(|(name, _)| *name == "resent");
    assert!(resent(&world).is_some_and(|(_, times)| times > 0), "they came up once");
    world.publish(2, 50, Severity::Info).unwrap();
    world.run_ms(2_000).unwrap();
    world.check_events().unwrap();
}
