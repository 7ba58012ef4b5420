//! Which hosts are declared dead, and which must not be.

use crate::ops::{Op, Script};
use crate::world::{Setup, World, boot, must_hold};
use ftb_core::Rank;
use ftb_core::frame::Frame;
use ftb_core::node::api::MemberState;
use ftb_core::severity::Severity;
use std::collections::BTreeSet;

const S: u64 = 1_000_000;

fn said(world: &World, name: &str, host: &str) -> usize {
    world.announced.iter().filter(|(n, h)| *n == name && h == host).count()
}

fn seven() -> Setup {
    Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(7, 2) }
}

#[test]
fn a_silent_host_is_called_dead_once_and_back_when_it_returns() {
    let script: Script = vec![(S, Op::HostDown(5)), (12 * S, Op::Start(5))];
    let world = must_hold("dead host", &seven(), 1, &script);
    assert_eq!(said(&world, "FTB_NODE_SUSPECT", "node5"), 1);
    assert_eq!(said(&world, "FTB_NODE_DEAD", "node5"), 1);
    assert_eq!(said(&world, "FTB_NODE_BACK", "node5"), 1);
    let others = world.announced.iter().filter(|(name, _)| *name == "FTB_NODE_DEAD").count();
    assert_eq!(others, 1, "{:?}", world.announced);
}

/// Runs until an event about a host is announced; gives the milliseconds, `None` after 5 s.
fn until_said(world: &mut World, name: &str, host: &str) -> Option<u64> {
    (0..500).find_map(|step| {
        world.run_ms(10).unwrap();
        (said(world, name, host) > 0).then_some(10 * (step + 1))
    })
}

/// A host is lost; its BMC is asked when it is quiet. Gives the time until it is declared dead.
fn verdict_ms(lost: u32, seed: u64, bmc_says_off: Option<bool>) -> u64 {
    let mut world = boot(seven(), seed).unwrap();
    let host = format!("node{lost}");
    for _ in 0..5 {
        world.operate(Op::Publish(1)).unwrap();
        world.run_ms(100).unwrap();
    }
    world.operate(Op::HostDown(lost)).unwrap();
    let quiet_ms = until_said(&mut world, "FTB_NODE_QUIET", &host).expect("it is quiet");
    if let Some(is_off) = bmc_says_off {
        world.state_power(3, &host, is_off).unwrap();
    }
    let dead_ms = until_said(&mut world, "FTB_NODE_DEAD", &host).expect("it is dead");
    world.run_ms(10_000).unwrap();
    assert_eq!(said(&world, "FTB_NODE_DEAD", &host), 1, "once");
    quiet_ms + dead_ms
}

#[test]
fn a_host_that_is_powered_off_is_dead_before_its_silence_counts() {
    // Below the root, and below another agent.
    for (lost, seed) in [(2, 1), (5, 1), (5, 2), (6, 3)] {
        let ms = verdict_ms(lost, seed, Some(true));
        assert!(ms < 2_000, "{lost}: {ms} ms");
        let without_bmc = verdict_ms(lost, seed, None);
        assert!(without_bmc > ms, "{lost}: {ms}, {without_bmc}");
        assert_eq!(verdict_ms(lost, seed, Some(false)), without_bmc, "a BMC says on: no vote");
    }
}

#[test]
fn a_live_host_wins_against_a_bmc_that_says_off() {
    let mut world = boot(seven(), 1).unwrap();
    world.state_power(3, "node5", true).unwrap();
    world.run_ms(5_000).unwrap();
    world.operate(Op::Pause(5)).unwrap();
    world.run_ms(1_900).unwrap();
    world.state_power(3, "node5", true).unwrap();
    world.run_ms(4_000).unwrap();
    world.operate(Op::Continue(5)).unwrap();
    // Its agent alone has died: its host refuses.
    world.operate(Op::Kill(6)).unwrap();
    world.state_power(3, "node6", true).unwrap();
    world.run_ms(6_000).unwrap();
    assert_eq!(said(&world, "FTB_AGENT_LOST", "node6"), 1, "{:?}", world.announced);
    // Only its parent does not reach it.
    for (from, to) in [(0, 2), (2, 0)] {
        world.operate(Op::CutOneWay(from, to)).unwrap();
    }
    world.run_ms(1_800).unwrap();
    world.state_power(3, "node2", true).unwrap();
    world.run_ms(6_000).unwrap();
    let dead = world.announced.iter().any(|(name, _)| *name == "FTB_NODE_DEAD");
    assert!(!dead, "{:?}", world.announced);
}

#[test]
fn a_crashed_agent_on_a_live_host_is_no_dead_node() {
    let script: Script = vec![(S, Op::Kill(5)), (12 * S, Op::Start(5))];
    let world = must_hold("crashed agent", &seven(), 1, &script);
    assert_eq!(said(&world, "FTB_AGENT_LOST", "node5"), 1, "{:?}", world.announced);
    assert_eq!(said(&world, "FTB_NODE_DEAD", "node5"), 0);
    assert_eq!(said(&world, "FTB_AGENT_RESTARTED", "node5"), 1);
}

#[test]
fn a_stopped_agent_is_no_dead_node() {
    let script: Script = vec![(S, Op::Pause(1)), (9 * S, Op::Continue(1))];
    let world = must_hold("stopped agent", &seven(), 1, &script);
    let dead = world.announced.iter().any(|(name, _)| *name == "FTB_NODE_DEAD");
    assert!(!dead, "{:?}", world.announced);
}

/// All agents below one that died with it are found dead too, and the root knows it.
#[test]
fn each_member_of_a_dead_rack_is_found_dead() {
    let rack = [2, 5, 6, 11, 12, 13];
    let script: Script = rack.iter().map(|rank| (S, Op::HostDown(*rank))).collect();
    let setup = Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(15, 2) };
    let mut world = boot(setup, 1).unwrap();
    for (_, op) in script {
        world.operate(op).unwrap();
    }
    world.run_ms(12_000).unwrap();
    let states = world.states_at(0);
    for rank in 0..15 {
        let wanted = if rack.contains(&rank) { MemberState::Dead } else { MemberState::Up };
        let found = states.iter().find(|(of, _)| of.0 == rank).map(|(_, state)| *state);
        assert_eq!(found, Some(wanted), "rank {rank}");
    }
    for rank in rack {
        assert_eq!(said(&world, "FTB_NODE_DEAD", &format!("node{rank}")), 1, "{rank}");
    }
}

/// The children of a silent host look at it too, from where they are then.
#[test]
fn children_of_a_lost_host_have_a_vote() {
    let setup = Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(7, 2) };
    let mut world = boot(setup, 1).unwrap();
    // The root alone has lost its way to node 2; node 5 and 6 still see it.
    world.operate(Op::CutOneWay(0, 2)).unwrap();
    world.operate(Op::CutOneWay(2, 0)).unwrap();
    world.operate(Op::CutOneWay(1, 2)).unwrap();
    world.operate(Op::CutOneWay(2, 1)).unwrap();
    world.operate(Op::Kill(2)).unwrap();
    world.run_ms(8_000).unwrap();
    let dead = said(&world, "FTB_NODE_DEAD", "node2");
    let unreachable = said(&world, "FTB_NODE_UNREACHABLE", "node2");
    assert_eq!((dead, unreachable), (0, 1), "{:?}", world.announced);
}

/// What a silent host is, is known when its silence counts, not only then begun to be asked.
#[test]
fn a_silent_host_is_called_dead_at_the_deadline() {
    let mut world = boot(seven(), 1).unwrap();
    world.operate(Op::HostDown(5)).unwrap();
    for _ in 0..60 {
        if said(&world, "FTB_NODE_SUSPECT", "node5") > 0 {
            break;
        }
        world.run_ms(50).unwrap();
    }
    assert_eq!(said(&world, "FTB_NODE_SUSPECT", "node5"), 1, "{:?}", world.announced);
    // The answers of neighbours have a way.
    world.run_ms(50).unwrap();
    assert_eq!(said(&world, "FTB_NODE_DEAD", "node5"), 1, "{:?}", world.announced);
}

/// The agent that takes a silent root's place has probed the root before.
#[test]
fn a_silent_root_is_called_dead_at_the_deadline() {
    for setup in [seven(), Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(4, 1) }] {
        let mut world = boot(setup, 1).unwrap();
        world.operate(Op::HostDown(0)).unwrap();
        // Its last word is not older than a heartbeat, and no agent waits longer than the deadline.
        world.run_ms(2_050).unwrap();
        assert_eq!(said(&world, "FTB_NODE_SUSPECT", "node0"), 1, "{:?}", world.announced);
        assert_eq!(said(&world, "FTB_NODE_DEAD", "node0"), 1, "{:?}", world.announced);
        assert!(world.parent_of(1).is_none(), "it is acting root");
    }
}

/// A root whose process hangs takes connections and says nothing. Its standby has probed it before
/// its silence counts, and does not wait for another dial.
#[test]
fn a_hung_root_is_replaced_at_the_deadline() {
    for setup in [seven(), Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(4, 1) }] {
        let mut world = boot(setup, 1).unwrap();
        world.operate(Op::Pause(0)).unwrap();
        world.run_ms(2_050).unwrap();
        assert!(world.parent_of(1).is_none(), "rank 1 still follows the hung root");
        assert_eq!(said(&world, "FTB_AGENT_LOST", "node0"), 1, "{:?}", world.announced);
        assert_eq!(said(&world, "FTB_NODE_DEAD", "node0"), 0, "{:?}", world.announced);
    }
}

/// The children of a stopped agent left it because it was silent. When it goes on, it finds their
/// links closed and must not suspect them.
#[test]
fn an_agent_that_was_stopped_suspects_none_of_its_former_children() {
    for (stopped, children) in [(0, ["node1", "node2"]), (1, ["node3", "node4"])] {
        let script: Script = vec![(S, Op::Pause(stopped)), (9 * S, Op::Continue(stopped))];
        let world = must_hold("stopped agent", &seven(), 1, &script);
        assert_eq!(said(&world, "FTB_AGENT_LOST", &format!("node{stopped}")), 1);
        for child in children {
            assert_eq!(said(&world, "FTB_NODE_SUSPECT", child), 0, "{:?}", world.announced);
        }
    }
}

/// Events wait for the acknowledgement of the standby, but not for long where it hangs.
#[test]
fn a_hung_standby_delays_a_confirmation_by_200_ms_at_most() {
    let mut world = boot(seven(), 1).unwrap();
    world.operate(Op::Pause(1)).unwrap();
    let at = world.publishers.iter().position(|publisher| publisher.agent == 0).unwrap();
    world.publish(at, 1, Severity::Error).unwrap();
    world.run_ms(50).unwrap();
    assert_eq!(world.publishers[at].unconfirmed.len(), 1, "the standby is not asked");
    world.run_ms(160).unwrap();
    assert!(world.publishers[at].unconfirmed.is_empty(), "the root still waits for the standby");
}

/// Root and standby die together: the next root has asked about both.
#[test]
fn a_root_and_a_standby_that_die_together_are_both_called_dead() {
    let mut world = boot(seven(), 1).unwrap();
    world.operate(Op::HostDown(0)).unwrap();
    world.operate(Op::HostDown(1)).unwrap();
    world.run_ms(2_100).unwrap();
    for host in ["node0", "node1"] {
        assert_eq!(said(&world, "FTB_NODE_SUSPECT", host), 1, "{host}: {:?}", world.announced);
        assert_eq!(said(&world, "FTB_NODE_DEAD", host), 1, "{host}: {:?}", world.announced);
    }
    world.operate(Op::Start(0)).unwrap();
    world.operate(Op::Start(1)).unwrap();
    world.run_ms(20_000).unwrap();
    for host in ["node0", "node1"] {
        assert_eq!(said(&world, "FTB_NODE_BACK", host), 1, "{host}: {:?}", world.announced);
    }
}

/// No agent is above the acting root: its successor probes it, and the root reports when it is
/// back.
#[test]
fn a_root_that_is_lost_is_looked_for_by_who_takes_its_place() {
    let script: Script = vec![(S, Op::HostDown(0)), (20 * S, Op::Start(0))];
    let world = must_hold("dead root", &seven(), 1, &script);
    assert_eq!(said(&world, "FTB_NODE_SUSPECT", "node0"), 1, "{:?}", world.announced);
    assert_eq!(said(&world, "FTB_NODE_DEAD", "node0"), 1, "{:?}", world.announced);
    assert_eq!(said(&world, "FTB_NODE_BACK", "node0"), 1, "{:?}", world.announced);

    let script: Script = vec![(S, Op::Kill(0)), (20 * S, Op::Start(0))];
    let world = must_hold("crashed root", &seven(), 1, &script);
    assert_eq!(said(&world, "FTB_AGENT_LOST", "node0"), 1, "{:?}", world.announced);
    assert_eq!(said(&world, "FTB_NODE_DEAD", "node0"), 0, "{:?}", world.announced);
    assert_eq!(said(&world, "FTB_AGENT_RESTARTED", "node0"), 1, "{:?}", world.announced);

    let script: Script = vec![(S, Op::Stop(0)), (20 * S, Op::Start(0))];
    let world = must_hold("planned stop of the root", &seven(), 1, &script);
    assert_eq!(said(&world, "FTB_NODE_SUSPECT", "node0"), 0, "{:?}", world.announced);
}

/// An agent that is cut off has none to ask, and must not declare all others dead.
#[test]
fn without_a_witness_no_member_is_dead() {
    for alone in [0, 2, 5] {
        let mut world = boot(seven(), 1).unwrap();
        for other in (0..7).filter(|other| *other != alone) {
            world.operate(Op::CutOneWay(alone, other)).unwrap();
            world.operate(Op::CutOneWay(other, alone)).unwrap();
        }
        world.run_ms(12_000).unwrap();
        let dead: Vec<_> =
            world.announced.iter().filter(|(name, _)| *name == "FTB_NODE_DEAD").collect();
        let wanted = ("FTB_NODE_DEAD", format!("node{alone}"));
        assert_eq!(dead, [&wanted], "{:?}", world.announced);
    }
}

#[test]
fn an_agent_that_stops_in_order_is_suspected_of_nothing() {
    let script: Script = vec![(S, Op::Stop(6)), (9 * S, Op::Start(6))];
    let world = must_hold("planned stop", &seven(), 1, &script);
    assert_eq!(said(&world, "FTB_NODE_SUSPECT", "node6"), 0, "{:?}", world.announced);
}

fn tolerant(agents: u32, fanout: u32) -> Setup {
    Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(agents, fanout) }
}

/// Of whom it was said, each as often as it was.
fn hosts_of(world: &World, name: &str) -> Vec<String> {
    let about = world.announced.iter().filter(|(n, _)| *n == name);
    let mut hosts: Vec<String> = about.map(|(_, host)| host.clone()).collect();
    hosts.sort();
    hosts
}

fn names(ranks: &[u32]) -> Vec<String> {
    let mut names: Vec<String> = ranks.iter().map(|rank| format!("node{rank}")).collect();
    names.sort();
    names
}

/// Its parent dies, it answers one look, and dies before it has found another parent.
#[test]
fn a_host_that_dies_right_after_it_answered_is_dead() {
    let mut world = boot(tolerant(15, 2), 1).unwrap();
    // What it says to a new parent is lost.
    world.loses = |frame| matches!(frame, Frame::Hello(hello) if hello.rank == Some(Rank(5)));
    world.operate(Op::HostDown(2)).unwrap();
    world.run_ms(6_000).unwrap();
    assert_eq!(hosts_of(&world, "FTB_NODE_DEAD"), names(&[2]), "{:?}", world.announced);
    world.operate(Op::HostDown(5)).unwrap();
    world.run_ms(20_000).unwrap();
    assert_eq!(hosts_of(&world, "FTB_NODE_DEAD"), names(&[2, 5]), "{:?}", world.announced);
    // So it is with one whose agent is gone before its host is.
    world.operate(Op::Kill(9)).unwrap();
    world.run_ms(30_000).unwrap();
    assert_eq!(hosts_of(&world, "FTB_AGENT_LOST"), names(&[9]), "{:?}", world.announced);
    world.operate(Op::HostDown(9)).unwrap();
    world.run_ms(150_000).unwrap();
    assert_eq!(hosts_of(&world, "FTB_NODE_DEAD"), names(&[2, 5, 9]), "{:?}", world.announced);
    assert_eq!(hosts_of(&world, "FTB_AGENT_LOST"), names(&[9]), "{:?}", world.announced);
    world.loses = |_| false;
    for rank in [2, 5, 9] {
        world.operate(Op::Start(rank)).unwrap();
    }
    world.run_ms(30_000).unwrap();
    assert_eq!(hosts_of(&world, "FTB_NODE_BACK"), names(&[2, 5, 9]), "{:?}", world.announced);
}

/// An agent whose parent is lost with it is reported as any other.
#[test]
fn an_agent_that_is_lost_with_its_parent_is_reported() {
    let mut world = boot(tolerant(15, 2), 1).unwrap();
    for rank in [2, 5] {
        world.operate(Op::Kill(rank)).unwrap();
    }
    world.run_ms(10_000).unwrap();
    assert_eq!(hosts_of(&world, "FTB_AGENT_LOST"), names(&[2, 5]), "{:?}", world.announced);
    assert_eq!(hosts_of(&world, "FTB_NODE_DEAD"), names(&[]), "{:?}", world.announced);
}

/// A rack dies, and the root with it: the next root declares all of them dead, also those that
/// only the dead agents knew.
#[test]
fn a_rack_that_dies_with_the_root_is_dead() {
    // Leaves beside the root; root and standby and their neighbours; a whole branch with all above
    // it.
    for (agents, fanout, rack) in [
        (17, 16, &[0, 5, 6][..]),
        (17, 16, &[0, 1, 2, 3, 4, 5, 6, 7]),
        (15, 2, &[0, 1, 3, 7, 8]),
        (40, 4, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
    ] {
        let mut world = boot(tolerant(agents, fanout), 1).unwrap();
        for rank in rack {
            world.operate(Op::HostDown(*rank)).unwrap();
        }
        world.run_ms(8_000).unwrap();
        assert_eq!(hosts_of(&world, "FTB_NODE_DEAD"), names(rack), "{:?}", world.announced);
        let lowest = (0..agents).find(|rank| !rack.contains(rank)).unwrap();
        let states = world.states_at(lowest as usize);
        let dead = states.iter().filter(|(_, state)| *state == MemberState::Dead);
        let dead: BTreeSet<u32> = dead.map(|(rank, _)| rank.0).collect();
        assert_eq!(dead, rack.iter().copied().collect());
        for rank in rack {
            world.operate(Op::Start(*rank)).unwrap();
        }
        world.run_ms(60_000).unwrap();
        world.check_tree().unwrap();
        assert_eq!(hosts_of(&world, "FTB_NODE_BACK"), names(rack), "{:?}", world.announced);
        assert_eq!(hosts_of(&world, "FTB_NODE_DEAD"), names(rack), "{:?}", world.announced);
    }
}

/// A child that went from the standby to the root before is missed by the standby when both die.
#[test]
fn who_moved_to_the_root_and_dies_with_it_is_dead() {
    let mut world = boot(tolerant(7, 2), 1).unwrap();
    world.operate(Op::Stop(0)).unwrap();
    world.run_ms(20_000).unwrap();
    world.operate(Op::Start(0)).unwrap();
    world.run_ms(60_000).unwrap();
    world.check_tree().unwrap();
    for rank in [0, 2, 5] {
        world.operate(Op::HostDown(rank)).unwrap();
    }
    world.run_ms(8_000).unwrap();
    assert_eq!(hosts_of(&world, "FTB_NODE_DEAD"), names(&[0, 2, 5]), "{:?}", world.announced);
}

/// Agent 5 lives below 4, which is below the standby, for it is cut off from those below which it
/// would be.
fn displaced(agents: u32, seed: u64) -> World {
    let mut world = boot(tolerant(agents, 2), seed).unwrap();
    for other in 0..4 {
        world.operate(Op::CutOneWay(5, other)).unwrap();
        world.operate(Op::CutOneWay(other, 5)).unwrap();
    }
    world.run_ms(20_000).unwrap();
    assert_eq!(world.parent_of(5), Some(Rank(4)));
    world
}

/// Agent 5 has moved back to the other side of the root, and no report of it has come yet.
fn just_moved(agents: u32, seed: u64, loses: fn(&Frame) -> bool) -> World {
    let mut world = displaced(agents, seed);
    world.loses = loses;
    world.operate(Op::Heal).unwrap();
    for _ in 0..2_000_000 {
        if world.parent_of(5) != Some(Rank(4)) {
            break;
        }
        world.run_until(world.now_ns + STEP_NS).unwrap();
    }
    assert!(world.parent_of(5).is_some_and(|parent| parent != Rank(4)));
    world.announced.clear();
    world
}

/// A part of the time that a frame takes from one agent to the next.
const STEP_NS: u64 = 25_000;

/// An agent moves and dies with its new parent and the root, whichever agents know by then that it
/// has left and joined; so do those below it.
#[test]
fn who_moves_and_dies_with_its_new_parent_and_the_root_is_dead() {
    for (agents, rack) in [(7, &[0, 2, 5][..]), (15, &[0, 2, 5, 11])] {
        for seed in 1..=10 {
            for steps in 0..30 {
                let mut world = just_moved(agents, seed, |_| false);
                world.run_until(world.now_ns + steps * STEP_NS).unwrap();
                for rank in rack {
                    world.operate(Op::HostDown(*rank)).unwrap();
                }
                world.run_ms(10_000).unwrap();
                let dead = hosts_of(&world, "FTB_NODE_DEAD");
                assert_eq!(dead, names(rack), "{seed} {steps}: {:?}", world.announced);
                let states = world.states_at(1);
                let found = states.iter().filter(|(_, state)| *state == MemberState::Dead);
                assert_eq!(found.count(), rack.len(), "{seed} {steps}: {states:?}");
            }
        }
    }
}

/// An agent moves and dies before its new parent could tell of it; all others live.
#[test]
fn a_member_that_dies_before_it_is_reported_is_dead() {
    for (agents, rack) in [(7, &[5][..]), (15, &[5, 11, 12])] {
        for seed in 1..=4 {
            let at_new_parent = |frame: &Frame| matches!(frame, Frame::Resume { .. });
            let mut world = just_moved(agents, seed, at_new_parent);
            // It has said goodbye, and is nowhere.
            world.run_ms(1_000).unwrap();
            let states = world.states_at(0);
            assert!(states.contains(&(Rank(5), MemberState::Moved)), "{seed}: {states:?}");
            for rank in rack {
                world.operate(Op::HostDown(*rank)).unwrap();
            }
            world.run_ms(20_000).unwrap();
            let dead = hosts_of(&world, "FTB_NODE_DEAD");
            assert_eq!(dead, names(rack), "{seed}: {:?}", world.announced);
            world.loses = |_| false;
            for rank in rack {
                world.operate(Op::Start(*rank)).unwrap();
            }
            world.run_ms(30_000).unwrap();
            assert_eq!(hosts_of(&world, "FTB_NODE_BACK"), names(rack), "{:?}", world.announced);
        }
    }
}

/// It stops in order below the standby, comes back on the other side of the root, and dies there
/// with it.
#[test]
fn who_comes_back_elsewhere_and_dies_with_the_root_is_dead() {
    for gone in [Op::Stop(5), Op::HostDown(5)] {
        let mut world = displaced(7, 1);
        world.operate(gone).unwrap();
        world.run_ms(20_000).unwrap();
        world.operate(Op::Heal).unwrap();
        world.operate(Op::Start(5)).unwrap();
        world.run_ms(30_000).unwrap();
        world.check_tree().unwrap();
        world.announced.clear();
        for rank in [0, 2, 5] {
            world.operate(Op::HostDown(rank)).unwrap();
        }
        world.run_ms(10_000).unwrap();
        let dead = hosts_of(&world, "FTB_NODE_DEAD");
        assert_eq!(dead, names(&[0, 2, 5]), "{gone}: {:?}", world.announced);
    }
}

/// An agent that is lost is reported once, also when its parent dies after it, and then the root.
#[test]
fn an_agent_that_was_lost_before_its_parent_is_not_lost_again_for_the_next_root() {
    for (agents, lost, parent) in [(15, 7, 3), (31, 15, 7)] {
        let mut world = boot(tolerant(agents, 2), 1).unwrap();
        world.operate(Op::Kill(lost)).unwrap();
        world.run_ms(10_000).unwrap();
        world.operate(Op::HostDown(parent)).unwrap();
        world.run_ms(10_000).unwrap();
        world.operate(Op::HostDown(0)).unwrap();
        world.run_ms(30_000).unwrap();
        assert_eq!(hosts_of(&world, "FTB_AGENT_LOST"), names(&[lost]), "{:?}", world.announced);
        let dead = hosts_of(&world, "FTB_NODE_DEAD");
        assert_eq!(dead, names(&[0, parent]), "{:?}", world.announced);
    }
}

/// An agent that moves, and lives, is suspected of nothing, and is where it went.
#[test]
fn who_moves_is_suspected_of_nothing() {
    for seed in 1..=4 {
        let mut world = just_moved(15, seed, |_| false);
        world.run_ms(60_000).unwrap();
        world.check_tree().unwrap();
        for name in ["FTB_NODE_SUSPECT", "FTB_AGENT_LOST", "FTB_NODE_DEAD", "FTB_AGENT_BACK"] {
            assert_eq!(hosts_of(&world, name), names(&[]), "{name}: {:?}", world.announced);
        }
        let states = world.states_at(0);
        assert!(states.iter().all(|(_, state)| *state == MemberState::Up), "{states:?}");
        // Nor is it later, when it has stopped in order and those take over that it had left.
        world.operate(Op::Stop(5)).unwrap();
        world.run_ms(10_000).unwrap();
        world.announced.clear();
        world.operate(Op::HostDown(0)).unwrap();
        world.run_ms(30_000).unwrap();
        assert_eq!(hosts_of(&world, "FTB_AGENT_LOST"), names(&[]), "{:?}", world.announced);
        assert_eq!(hosts_of(&world, "FTB_NODE_DEAD"), names(&[0]), "{:?}", world.announced);
    }
}

/// Those that are fewer than they miss are cut off, and call none of the others dead.
#[test]
fn a_minority_that_is_cut_off_declares_no_member_dead() {
    let mut world = boot(tolerant(15, 2), 1).unwrap();
    world.operate(Op::Split(11)).unwrap();
    world.run_ms(30_000).unwrap();
    let cut_off = names(&[11, 12, 13, 14]);
    assert_eq!(hosts_of(&world, "FTB_NODE_DEAD"), cut_off, "{:?}", world.announced);
    world.operate(Op::Heal).unwrap();
    world.run_ms(60_000).unwrap();
    world.check_tree().unwrap();
    assert_eq!(hosts_of(&world, "FTB_NODE_DEAD"), cut_off, "{:?}", world.announced);
    assert_eq!(hosts_of(&world, "FTB_NODE_BACK"), cut_off, "{:?}", world.announced);
}

/// An agent that is stopped for good is lost, at the deadline, wherever it stands; its host is not
/// dead.
#[test]
fn an_agent_that_is_stopped_for_good_is_lost_at_the_deadline() {
    for stopped in [0, 1, 5] {
        let mut world = boot(tolerant(7, 2), 1).unwrap();
        world.operate(Op::Pause(stopped)).unwrap();
        // Who is below a stopped root dials it first and fails.
        world.run_ms(3_100).unwrap();
        let lost = names(&[stopped]);
        assert_eq!(hosts_of(&world, "FTB_AGENT_LOST"), lost, "{:?}", world.announced);
        world.run_ms(600_000).unwrap();
        let states = world.states_at(if stopped == 0 { 1 } else { 0 });
        assert!(states.contains(&(Rank(stopped), MemberState::Lost)), "{states:?}");
        world.operate(Op::Continue(stopped)).unwrap();
        world.run_ms(60_000).unwrap();
        world.check_tree().unwrap();
        assert_eq!(hosts_of(&world, "FTB_AGENT_LOST"), lost, "{:?}", world.announced);
        assert_eq!(hosts_of(&world, "FTB_AGENT_BACK"), lost, "{:?}", world.announced);
        assert_eq!(hosts_of(&world, "FTB_NODE_DEAD"), names(&[]), "{:?}", world.announced);
    }
}

/// All that stop in order at once, the root too, are suspected of nothing.
#[test]
fn agents_that_stop_in_order_with_the_root_are_suspected_of_nothing() {
    let mut world = boot(tolerant(15, 2), 1).unwrap();
    for rank in [0, 1, 2, 5] {
        world.operate(Op::Stop(rank)).unwrap();
    }
    world.run_ms(60_000).unwrap();
    for name in ["FTB_NODE_SUSPECT", "FTB_AGENT_LOST", "FTB_NODE_DEAD"] {
        assert_eq!(hosts_of(&world, name), names(&[]), "{name}: {:?}", world.announced);
    }
    // Absent, and not dead.
    let states = world.states_at(3);
    for rank in [0, 1, 2, 5] {
        assert!(states.contains(&(Rank(rank), MemberState::Absent)), "{states:?}");
    }
}
