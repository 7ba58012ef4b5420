//! The traps of the design, each by name, and the plain cases before them.

use crate::ops::{Op, Script};
use crate::world::{Setup, boot, must_hold};
use ftb_core::frame::Frame;
use ftb_core::ident::{EventId, Rank};

const MS: u64 = 1_000;
const S: u64 = 1_000_000;

/// Every publisher publishes `count` events every `every` microseconds.
fn load(until: u64, every: u64, count: u32) -> Script {
    (0..until / every).map(|at| (at * every, Op::Publish(count))).collect()
}

fn with(mut script: Script, more: &[(u64, Op)]) -> Script {
    script.extend_from_slice(more);
    script
}

#[test]
fn a_quiet_cluster_delivers_every_event_to_every_subscriber() {
    let world = must_hold("quiet", &Setup::new(7, 2), 1, &load(S, 100 * MS, 5));
    assert!(world.delivered() > 7 * 100);
}

#[test]
fn an_inner_agent_dies_under_load_and_nothing_is_lost() {
    let script = with(load(400 * MS, 10 * MS, 5), &[(205 * MS, Op::Kill(1))]);
    for seed in 0..20 {
        must_hold("inner death", &Setup::new(7, 2), seed, &script);
    }
}

/// Trap (a): the root dies between any two of append, replicate, confirm, distribute.
#[test]
fn a_dead_roots_word_stands() {
    for step in 0..60 {
        let at = 200 * MS + step * 20;
        let script = with(load(400 * MS, 10 * MS, 5), &[(at, Op::Kill(0))]);
        must_hold("(a) a dead root's word", &Setup::new(7, 2), step, &script);
    }
}

/// Trap (b): root and standby die together; what is kept comes back, the rest is reported.
#[test]
fn root_and_standby_die_together() {
    let setup = Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(9, 2) };
    for step in 0..30 {
        let at = 200 * MS + step * 50;
        let dead = [(at, Op::Kill(0)), (at, Op::Kill(1)), (8 * S, Op::Publish(1))];
        let script = with(load(400 * MS, 10 * MS, 5), &dead);
        must_hold("(b) root and standby die together", &setup, step, &script);
    }
}

/// Trap (c): the root is stopped for 10 s and goes on: it is fenced, and nothing comes twice.
#[test]
fn a_paused_root_is_fenced() {
    for seed in 0..10 {
        let paused = [(205 * MS, Op::Pause(0)), (10_205 * MS, Op::Continue(0))];
        let script = with(load(12 * S, 100 * MS, 2), &paused);
        must_hold("(c) paused root", &Setup::new(7, 2), seed, &script);
    }
}

/// Trap (d): rank 0 returns under load and takes the log over without a hole.
#[test]
fn rank_0_returns() {
    for step in 0..20 {
        let back = 3 * S + step * 7 * MS;
        let script =
            with(load(6 * S, 20 * MS, 2), &[(205 * MS, Op::Kill(0)), (back, Op::Start(0))]);
        must_hold("(d) rank 0 returns", &Setup::new(7, 2), step, &script);
    }
}

/// A log is offered to a root that has just come back, which dies before it has all of it: the
/// agent that offered it offers it to the next, or hands it over. What only that log had is in the
/// log that goes on.
#[test]
fn a_log_that_was_offered_and_not_taken_is_not_lost() {
    for seed in 0..10 {
        let setup = Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(7, 2) };
        let mut world = boot(setup, seed).unwrap();
        for op in [Op::Publish(5), Op::Kill(0), Op::Publish(5), Op::Kill(1), Op::Publish(5)] {
            world.operate(op).unwrap();
            world.run_ms(2_500).unwrap();
        }
        assert!(world.parent_of(2).is_none(), "it is acting root");
        let published = world.books.published.iter().filter(|(_, one)| one.confirmed);
        let confirmed: Vec<EventId> = published.map(|(id, _)| *id).collect();
        world.loses = |frame| matches!(frame, Frame::Replicate(_));
        world.operate(Op::Start(0)).unwrap();
        world.operate(Op::Start(1)).unwrap();
        world.run_ms(3_000).unwrap();
        assert_eq!(world.parent_of(2), Some(Rank(0)), "it offers its log there");
        world.operate(Op::Kill(0)).unwrap();
        world.loses = |_| false;
        world.run_ms(5_000).unwrap();
        world.operate(Op::Start(0)).unwrap();
        world.run_ms(60_000).unwrap();
        world.check_tree().unwrap();
        let missing = confirmed.iter().filter(|id| !world.holds(0, **id)).count();
        assert_eq!(missing, 0, "seed {seed}: events that are not in the log that goes on");
    }
}

/// The log is larger than what other agents keep of passing events: the next root has all of it.
#[test]
fn a_log_is_taken_over_as_a_whole() {
    fn small(config: &mut ftb_core::node::NodeConfig) {
        config.ring_bytes = 16 << 10;
    }
    let returns = [(205 * MS, Op::Kill(0)), (3 * S, Op::Start(0))];
    let script = with(load(4 * S, 20 * MS, 2), &returns);
    let setup = Setup { tune: small, ..Setup::new(7, 2) };
    let world = must_hold("taken over", &setup, 1, &script);
    let published = world.books.published.keys();
    let missing = published.filter(|id| !world.holds(0, **id)).count();
    assert_eq!(missing, 0, "of {} events", world.books.published.len());
}

/// Trap (d) again: its own clients have said much before it hears of the log that it shall take
/// over.
#[test]
fn rank_0_returns_with_much_to_say() {
    for step in 0..6 {
        let back = 3 * S + step * 7 * MS;
        let said = [
            (205 * MS, Op::Kill(0)),
            (back, Op::Start(0)),
            (back + 1, Op::Storm(0, 1_500)),
            (back + MS, Op::Storm(0, 1_500)),
        ];
        let setup = Setup { payload: 10, ..Setup::new(7, 2) };
        must_hold(
            "(d) rank 0 returns with much to say",
            &setup,
            step,
            &with(load(4 * S, 4 * MS, 2), &said),
        );
    }
}

/// Trap (e): a filter widens while its agent moves.
#[test]
fn a_filter_widens_while_its_agent_moves() {
    for step in 0..40 {
        let at = 200 * MS + step * 50;
        let moves = [
            (200 * MS, Op::Kill(2)),
            (at, Op::Subscribe(5, 0)),
            (at, Op::Subscribe(6, 2)),
            (at + 100, Op::Subscribe(5, 1)),
        ];
        let setup = Setup { clients_every: 3, ..Setup::new(7, 2) };
        let script = with(load(400 * MS, MS, 1), &moves);
        must_hold("(e) a filter widens while its agent moves", &setup, step, &script);
    }
}

/// Trap (f): an origin restarts while its old events are under way.
#[test]
fn an_origin_restarts_while_its_events_are_under_way() {
    for step in 0..40 {
        let at = 200 * MS + step * 20;
        let restart = [(at, Op::Kill(5)), (at + step * 10, Op::Start(5))];
        let script = with(load(400 * MS, 5 * MS, 5), &restart);
        must_hold("(f) an origin restarts", &Setup::new(7, 2), step, &script);
    }
}

/// Trap (g): two roots for an hour, then one; the retention of one side is outrun, and reported.
#[test]
fn two_roots_for_an_hour_then_one() {
    fn small(config: &mut ftb_core::node::NodeConfig) {
        config.log_bytes = 64 << 10;
        config.ring_bytes = 32 << 10;
        config.lag_bytes = 32 << 10;
    }
    for seed in 0..4 {
        let setup =
            Setup { gaps_allowed: true, losses_allowed: true, tune: small, ..Setup::new(6, 2) };
        let parted = [(100 * MS, Op::Split(3)), (3_600 * S, Op::Heal)];
        let script = with(load(3_600 * S, 20 * S, 2), &parted);
        must_hold("(g) two roots for an hour, retention outrun", &setup, seed, &script);
    }
    // With room for all of it nothing is missing on either side.
    for seed in 0..4 {
        let parted = [(100 * MS, Op::Split(3)), (600 * S, Op::Heal)];
        let script = with(load(600 * S, 10 * S, 2), &parted);
        let setup = Setup { gaps_allowed: true, ..Setup::new(6, 2) };
        must_hold("(g) two roots, all retained", &setup, seed, &script);
    }
}

/// Two components become one while subscribers of the losing side have not read all that their own
/// side had made visible: it is delivered nonetheless, once.
#[test]
fn a_merge_finds_subscribers_that_have_not_read_everything() {
    for step in 0..20 {
        let deaf = 8 * S + step * 31 * MS;
        let cut = [
            (S, Op::Split(3)),
            (deaf, Op::Deaf(4)),
            (deaf, Op::Deaf(5)),
            (9 * S, Op::Heal),
            (14 * S, Op::Hear(4)),
            (16 * S, Op::Hear(5)),
        ];
        let script = with(load(16 * S, 20 * MS, 1), &cut);
        let setup = Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(7, 2) };
        must_hold("a merge with unread events", &setup, step, &script);
    }
}

/// Trap (h): shedding makes reported holes, and the root passes over a slow standby.
#[test]
fn shedding_makes_holes_and_a_slow_standby_is_passed_over() {
    fn small(config: &mut ftb_core::node::NodeConfig) {
        config.log_bytes = 256 << 10;
        config.ring_bytes = 64 << 10;
        config.lag_bytes = 16 << 10;
    }
    for seed in 0..6 {
        let setup =
            Setup { gaps_allowed: true, losses_allowed: true, tune: small, ..Setup::new(7, 2) };
        let mut script = vec![(100 * MS, Op::Deaf(3)), (2 * S, Op::Hear(3))];
        script.extend((0..20).map(|at| (200 * MS + at * 20 * MS, Op::Storm(4, 200))));
        script.extend([(300 * MS, Op::Pause(1)), (1_900 * MS, Op::Continue(1))]);
        must_hold("(h) shedding and a slow standby", &setup, seed, &script);
    }
}
