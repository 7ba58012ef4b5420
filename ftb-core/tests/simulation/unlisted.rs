//! Agents that are in no member list: they join, keep their ranks whichever agents die, and two
//! never have one.

use crate::ops::{Op, Script};
use crate::world::{Setup, World, boot, must_hold};
use ftb_core::ident::Rank;
use ftb_core::node::NodeConfig;

const MS: u64 = 1_000;

/// Of seven agents the last two are in no list.
fn seven() -> Setup {
    let setup = Setup { unlisted: 2, ..Setup::new(7, 2) };
    Setup { gaps_allowed: true, losses_allowed: true, ..setup }
}

fn said(world: &World, name: &str, host: &str) -> usize {
    world.announced.iter().filter(|(n, h)| *n == name && h == host).count()
}

fn ranks(world: &World) -> [Option<Rank>; 2] {
    [world.rank_of(5), world.rank_of(6)]
}

fn after(world: &mut World, operations: &[Op]) {
    for op in operations {
        world.operate(*op).unwrap();
        world.run_ms(300).unwrap();
    }
    world.run_ms(20_000).unwrap();
    world.check_tree().unwrap();
}

/// They are leaves behind the listed agents, and events reach them and come from them.
#[test]
fn agents_that_are_not_listed_join_and_carry_events() {
    let script: Script = (0..20).map(|at| (at * 50 * MS, Op::Publish(3))).collect();
    let world = must_hold("join", &Setup { unlisted: 2, ..Setup::new(7, 2) }, 1, &script);
    let mut given = ranks(&world).map(|rank| rank.unwrap().0);
    given.sort_unstable();
    assert_eq!(given, [Rank::UNLISTED_FIRST.0, Rank::UNLISTED_FIRST.0 + 1]);
    for host in ["node5", "node6"] {
        assert_eq!(said(&world, "FTB_AGENT_ENROLLED", host), 1, "{:?}", world.announced);
    }
}

#[test]
fn they_keep_their_ranks_across_restarts_and_the_death_of_the_root() {
    for seed in 0..5 {
        let mut world = boot(seven(), seed).unwrap();
        let before = ranks(&world);
        let other_order = [Op::Kill(5), Op::Kill(6), Op::Start(6), Op::Start(5)];
        after(&mut world, &other_order);
        assert_eq!(ranks(&world), before, "both were restarted");
        let standby = [Op::Kill(6), Op::Kill(5), Op::Kill(0), Op::Start(6), Op::Start(5)];
        after(&mut world, &standby);
        assert_eq!(ranks(&world), before, "the standby knows");
        // The root comes back and knows nothing; they restart below it.
        after(&mut world, &[Op::Start(0)]);
        after(&mut world, &[Op::Kill(6), Op::Kill(5), Op::Start(6), Op::Start(5)]);
        assert_eq!(ranks(&world), before, "the root that came back heard them");
        // The agent that gave them out is gone: they state themselves what they have.
        after(
            &mut world,
            &[Op::Kill(0), Op::Kill(1), Op::Kill(2), Op::Kill(3), Op::Kill(4)]
                .into_iter()
                .chain((0..5).map(Op::Start))
                .collect::<Vec<Op>>(),
        );
        assert_eq!(ranks(&world), before, "they live on");
        assert_eq!(said(&world, "FTB_AGENT_RENUMBERED", "node5"), 0);
        assert_eq!(said(&world, "FTB_AGENT_RENUMBERED", "node6"), 0);
    }
}

/// All lose power: what root and standby had written down, and each its own rank, is there again.
#[test]
fn journals_remember_who_has_which_rank() {
    let mut world = boot(seven().on_disk(), 3).unwrap();
    let before = ranks(&world);
    for rank in 0..7 {
        world.operate(Op::Kill(rank)).unwrap();
    }
    world.run_ms(1_000).unwrap();
    after(&mut world, &[Op::Start(6), Op::Start(0), Op::Start(1), Op::Start(2)]);
    after(&mut world, &[Op::Start(5), Op::Start(3), Op::Start(4)]);
    assert_eq!(ranks(&world), before);
}

/// Two components each give the first rank to another host. When they meet, the one that was given
/// by the root that goes on stays; the other host gets another rank, and says so.
#[test]
fn two_components_that_gave_one_rank_to_two_hosts_become_one_tree() {
    for seed in 0..10 {
        let mut world = World::new(seven(), seed);
        let (one, other) = ([0, 1, 3, 5], [2, 4, 6]);
        for a in one {
            for b in other {
                world.operate(Op::CutOneWay(a, b)).unwrap();
                world.operate(Op::CutOneWay(b, a)).unwrap();
            }
        }
        for agent in 0..7 {
            world.start(agent).unwrap();
        }
        world.run_ms(20_000).unwrap();
        assert_eq!(ranks(&world), [Some(Rank::UNLISTED_FIRST); 2], "seed {seed}");
        for agent in [5, 6] {
            world.add_publisher(agent).unwrap();
            world.add_subscriber(agent, "event_space=ftb.sim").unwrap();
        }
        world.run_ms(2_000).unwrap();
        world.operate(Op::Publish(5)).unwrap();
        world.run_ms(1_000).unwrap();
        after(&mut world, &[Op::Heal, Op::Publish(5)]);
        assert_eq!(world.rank_of(5), Some(Rank::UNLISTED_FIRST), "seed {seed}");
        assert_eq!(said(&world, "FTB_AGENT_RENUMBERED", "node6"), 1, "seed {seed}");
        assert_eq!(said(&world, "FTB_AGENT_RENUMBERED", "node5"), 0, "seed {seed}");
        world.check_events().unwrap();
        // The root knows both, each in its place.
        let states = world.states_at(0);
        let up = states.iter().filter(|(rank, _)| rank.is_unlisted()).count();
        assert_eq!((up, states.len()), (2, 7), "{states:?}");
    }
}

/// A dead host is found dead although no list says where it is.
#[test]
fn a_silent_host_that_is_not_listed_is_called_dead_and_a_crashed_agent_is_not() {
    let mut world = boot(seven(), 1).unwrap();
    after(&mut world, &[Op::HostDown(5), Op::Kill(6)]);
    assert_eq!(said(&world, "FTB_NODE_DEAD", "node5"), 1, "{:?}", world.announced);
    assert_eq!(said(&world, "FTB_NODE_DEAD", "node6"), 0, "{:?}", world.announced);
    assert_eq!(said(&world, "FTB_AGENT_LOST", "node6"), 1, "{:?}", world.announced);
    after(&mut world, &[Op::Start(5), Op::Start(6)]);
    assert_eq!(said(&world, "FTB_NODE_BACK", "node5"), 1, "{:?}", world.announced);
}

#[test]
fn an_agent_that_admits_no_one_says_so() {
    fn closed(config: &mut NodeConfig) {
        config.allow_unlisted = false;
    }
    let mut world = World::new(Setup { tune: closed, ..seven() }, 1);
    for agent in 0..7 {
        world.start(agent).unwrap();
    }
    world.run_ms(20_000).unwrap();
    assert_eq!(world.outside_the_tree(), 2);
    assert!(said(&world, "FTB_AGENT_REFUSED", "node6") >= 1, "{:?}", world.announced);
    assert_eq!(ranks(&world), [None; 2]);
}

/// More want to join than one agent takes: the others find a place elsewhere.
#[test]
fn many_are_spread_over_the_listed_agents() {
    let setup = Setup { unlisted: 20, fanout: 2, clients_every: 5, ..Setup::new(24, 2) };
    let mut world = boot(Setup { gaps_allowed: true, ..setup }, 1).unwrap();
    world.operate(Op::Publish(3)).unwrap();
    world.run_ms(5_000).unwrap();
    world.check_events().unwrap();
    for listed in 0..4 {
        let below = (4..24).filter(|at| world.parent_of(*at) == Some(Rank(listed))).count();
        assert!(below <= 8, "{below} below {listed}");
    }
}
