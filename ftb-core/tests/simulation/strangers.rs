//! Agents that do not belong: another cluster, another list, another version, another clock, a rank
//! that is taken. Each is rejected or reported by name, and never makes a wrong tree.

use crate::neighbour::{START, hello_of_b};
use crate::ops::Op;
use crate::world::{Setup, World, boot};
use ftb_core::epochs::EpochHistory;
use ftb_core::frame::{Frame, Heartbeat, Hello, NackCode};
use ftb_core::ident::{OriginId, Rank};
use ftb_core::node::api::{Input, LinkId, Output};
use ftb_core::node::{Member, Node, NodeConfig};
use ftb_core::position::Epoch;
use ftb_core::protocol::Versions;

/// Starts all agents of a setup and lets them find each other.
fn started(tune: fn(&mut NodeConfig)) -> World {
    let mut world = World::new(Setup { tune, ..Setup::new(6, 2) }, 1);
    for agent in 0..6 {
        world.start(agent).unwrap();
    }
    world.run_ms(30_000).unwrap();
    world
}

fn said(world: &World, name: &str, host: &str) -> usize {
    world.announced.iter().filter(|(n, h)| *n == name && h == host).count()
}

#[test]
fn an_agent_of_another_cluster_stays_alone() {
    let world = started(|config| {
        if config.host == "node5" {
            config.cluster = "other".to_owned();
        }
    });
    assert_eq!(world.outside_the_tree(), 1);
    assert!(said(&world, "FTB_AGENT_REFUSED", "node5") >= 1, "{:?}", world.announced);
    // It tries again and again: not every try is reported.
    assert!(said(&world, "FTB_AGENT_REFUSED", "node5") <= 5, "{:?}", world.announced);
}

#[test]
fn member_lists_that_differ_at_their_end_are_reported() {
    let world = started(|config| {
        if config.host == "node4" {
            let mut members = config.members.all().to_vec();
            members.push(Member { host: "node6".into(), address: "node6:1".into() });
            config.members = members.into();
        }
    });
    assert_eq!(world.outside_the_tree(), 0);
    assert_eq!(said(&world, "FTB_MEMBERS_DIFFER", "node4"), 1, "{:?}", world.announced);
}

#[test]
fn an_agent_with_another_list_is_refused_where_it_claims_anothers_rank() {
    let world = started(|config| {
        if config.host == "node4" {
            let mut members = config.members.all().to_vec();
            members.swap(4, 5);
            config.members = members.into();
            config.rank = Some(Rank(5));
        }
    });
    assert!(said(&world, "FTB_AGENT_REFUSED", "node4") >= 1, "{:?}", world.announced);
    assert_eq!(world.outside_the_tree(), 1);
}

#[test]
fn two_agents_with_one_rank_do_not_take_turns() {
    let mut world = started(|config| {
        if config.host == "node5" {
            config.host = "node4".to_owned();
            config.rank = Some(Rank(4));
        }
    });
    assert!(said(&world, "FTB_AGENT_REFUSED", "node4") >= 1, "{:?}", world.announced);
    assert_eq!(world.outside_the_tree(), 1);
    let restarted = said(&world, "FTB_AGENT_RESTARTED", "node4");
    world.run_ms(60_000).unwrap();
    assert_eq!(said(&world, "FTB_AGENT_RESTARTED", "node4"), restarted, "they take turns");
    // One of them ends: the other has the place.
    let inside = if world.parent_of(4).is_some() { 4 } else { 5 };
    world.operate(Op::Kill(inside)).unwrap();
    world.run_ms(30_000).unwrap();
    assert_eq!(world.outside_the_tree(), 0);
}

#[test]
fn a_clock_that_is_hours_off_is_reported_and_does_no_harm() {
    let mut world = boot(Setup { gaps_allowed: true, ..Setup::new(6, 2) }, 1).unwrap();
    world.operate(Op::Kill(4)).unwrap();
    world.operate(Op::ClockJump(4, -7_200)).unwrap();
    world.operate(Op::Start(4)).unwrap();
    world.operate(Op::Publish(3)).unwrap();
    world.run_ms(15_000).unwrap();
    assert_eq!(said(&world, "FTB_CLOCKS_DIFFER", "node4"), 1, "{:?}", world.announced);
    world.check_tree().unwrap();
    world.check_events().unwrap();
}

const LINK: LinkId = LinkId(9);

/// The answer of agent `a`, which speaks `ours`, to agent `b`, which speaks `theirs`, and its
/// outputs.
fn answer(ours: Versions, theirs: Versions) -> (Option<Frame>, Vec<Output>) {
    let members = ["a", "b"].map(|host| Member { host: host.into(), address: host.into() });
    let mut config = NodeConfig::new("c", "a", OriginId(1), members.to_vec());
    config.versions = ours;
    let (mut now, mut node, mut out) = (START, Node::new(START, config, 1), Vec::new());
    node.handle(now, Input::Accepted { link: LINK, certified_hosts: None }, &mut out);
    let hello = Hello { versions: theirs, ..hello_of_b() };
    now.mono_ns += 1;
    node.handle(now, Input::Frame { link: LINK, frame: Frame::Hello(Box::new(hello)) }, &mut out);
    let answer = node.poll_link(now, LINK, 1 << 16, &mut out);
    (answer, out)
}

#[test]
fn releases_without_a_common_version_are_rejected() {
    let (ours, theirs) = (Versions { min: 6, max: 7 }, Versions { min: 8, max: 9 });
    let (answer, out) = answer(ours, theirs);
    let reported = out.iter().any(|output| match output {
        Output::Announce(event) => {
            event.name == "FTB_AGENT_REFUSED" && event.payload.contains("b speaks protocol 8 to 9")
        }
        _ => false,
    });
    assert!(reported, "{out:?}");
    let Some(Frame::HelloNack(nack)) = answer else { panic!("{answer:?}") };
    assert_eq!(nack.code, NackCode::Protocol);
    for word in ["a speaks 6 to 7", "b speaks protocol 8 to 9", "upgrade both to the same release"]
    {
        assert!(nack.message.contains(word), "{word:?} is not in {:?}", nack.message);
    }
}

#[test]
fn neighbouring_releases_use_a_common_version() {
    let (old, new) = (Versions { min: 6, max: 7 }, Versions { min: 7, max: 8 });
    for (ours, theirs) in [(old, new), (new, old)] {
        let (answer, _) = answer(ours, theirs);
        let Some(Frame::HelloAck(ack)) = answer else { panic!("{answer:?}") };
        assert_eq!(ack.protocol, 7);
    }
}

/// Confirmations get lost with the agents that carry them: what was never confirmed is sent again.
#[test]
fn a_confirmation_that_is_lost_is_asked_for_again() {
    let mut world = boot(Setup::new(6, 2), 1).unwrap();
    world.loses = |frame| matches!(frame, Frame::Confirm(_));
    world.operate(Op::Publish(2)).unwrap();
    world.run_ms(2_000).unwrap();
    world.loses = |_| false;
    assert!(world.check_events().is_err(), "no publisher has heard of a confirmation");
    world.run_ms(12_000).unwrap();
    world.check_events().unwrap();
}

/// A parent that dies again and again is moved back to after longer and longer times.
#[test]
fn a_parent_that_flaps_is_not_followed() {
    let mut world = boot(Setup { gaps_allowed: true, ..Setup::new(7, 2) }, 1).unwrap();
    let mut stayed_ms = Vec::new();
    for _ in 0..5 {
        world.operate(Op::Kill(2)).unwrap();
        world.run_ms(500).unwrap();
        world.operate(Op::Start(2)).unwrap();
        let mut waited_ms = 0;
        while world.parent_of(5) != Some(Rank(2)) {
            world.run_ms(100).unwrap();
            waited_ms += 100;
            assert!(waited_ms < 60_000, "it never goes back");
        }
        stayed_ms.push(waited_ms);
    }
    assert!(stayed_ms[4] >= 14_000 && stayed_ms[0] <= 5_000, "{stayed_ms:?}");
}

/// What the host of an agent that is away says first, with an epoch.
fn hello_of_node6(epoch_seen: u64, epochs: EpochHistory) -> Hello {
    let (cluster, host, rank) = ("sim".to_owned(), "node6".to_owned(), Some(Rank(6)));
    Hello { cluster, host, rank, origin: OriginId(66), epoch_seen, epochs, ..hello_of_b() }
}

fn counted(world: &World, agent: usize, name: &str) -> u64 {
    world.counters(agent).iter().find(|(counter, _)| *counter == name).unwrap().1
}

/// One frame with an epoch or an index that no cluster can have come to, at any agent, in each
/// frame that agents go on from: it is refused by name, and the tree goes on.
#[test]
fn a_number_that_is_out_of_range_does_not_split_the_tree() {
    const FAR: u64 = 1 << 62;
    let opened = |number, first: u64| {
        let mut epochs = EpochHistory::new();
        epochs.open(Epoch { number, root: OriginId(66) }, first.into(), false);
        epochs
    };
    let hello = |seen, epochs| Frame::Hello(Box::new(hello_of_node6(seen, epochs)));
    let beat = Heartbeat { epoch_seen: FAR, ..Heartbeat::default() };
    let hellos = [
        vec![hello(FAR, EpochHistory::new())],
        vec![hello(0, opened(FAR, 1))],
        vec![hello(0, opened(1, FAR))],
        vec![hello(0, EpochHistory::new()), Frame::Heartbeat(beat)],
    ];
    for (case, frames) in hellos.into_iter().enumerate() {
        for agent in [0, 1, 2, 5] {
            let setup = Setup { gaps_allowed: true, ..Setup::new(7, 2) }.on_disk();
            let mut world = boot(setup, 1).unwrap();
            world.operate(Op::Kill(6)).unwrap();
            world.run_ms(5_000).unwrap();
            world.stranger_says(agent, frames.clone()).unwrap();
            assert_eq!(counted(&world, agent, "implausible"), 1, "case {case} at {agent}");
            world.run_ms(1_000).unwrap();
            for restarted in [0, 1, 6] {
                world.operate(Op::Kill(restarted)).unwrap();
                world.operate(Op::Start(restarted)).unwrap();
                world.run_ms(15_000).unwrap();
            }
            world
                .check_tree()
                .unwrap_or_else(|broken| panic!("case {case} at {agent}: {broken:?}"));
            world.operate(Op::Publish(2)).unwrap();
            world.run_ms(1_000).unwrap();
            world.check_events().unwrap();
        }
    }
}

/// The highest accepted epoch lifts all others to it and takes no agent out of the tree: the bound
/// has risen by the time another agent states it.
#[test]
fn the_highest_epoch_that_is_accepted_does_not_split_the_tree() {
    const HOUR_MS: u64 = 3_600_000;
    let setup = Setup { gaps_allowed: true, ..Setup::new(7, 2) }.on_disk();
    let mut world = boot(setup, 1).unwrap();
    world.operate(Op::Kill(6)).unwrap();
    world.run_ms(5_000).unwrap();
    let epoch = 1_700_000_000_000 + world.now_ns / 1_000_000 + HOUR_MS;
    let frames = vec![Frame::Hello(Box::new(hello_of_node6(epoch, EpochHistory::new())))];
    world.stranger_says(1, frames).unwrap();
    assert_eq!(counted(&world, 1, "implausible"), 0);
    world.run_ms(1_000).unwrap();
    for restarted in [0, 1, 6] {
        world.operate(Op::Kill(restarted)).unwrap();
        world.operate(Op::Start(restarted)).unwrap();
        world.run_ms(15_000).unwrap();
    }
    world.check_tree().unwrap();
    world.operate(Op::Publish(2)).unwrap();
    world.run_ms(1_000).unwrap();
    world.check_events().unwrap();
}
