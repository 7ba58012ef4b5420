//! The job connection with hostile peers, and with any interruption.

#![allow(clippy::unwrap_used)]

use super::LinkError;
use super::cipher::{BODY_BYTES_MAX, HELLO_BYTES, Handshake, Opener, Sealer, Secret, Side};
use super::packet::{FromNode, Packet, PacketBody, PathId, Stream, ToNode};
use super::router::{LinkId, LinkInput, LinkOutput, RETURN_WAIT, Router};
use super::session::{Session, UNACKED_BYTES_MAX};
use crate::message::{FromJl, FromNla, Part};
use crate::migration_state::MigrationState;
use crate::names::{Episode, NodeName, RANKS_MAX, RANKS_PER_NODE_MAX, Ranks};
use crate::packet::{PacketError, PacketHead as _};
use crate::progress::{NodeReport, RankReport, StepReport};
use crate::warm::ParkedProcesses;
use bytes::Bytes;
use core::time::Duration;
use ftb_core::Now;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

fn hand(key: &str, side: Side, nonce: u8) -> Handshake {
    Handshake::new(Secret::new(key), side, [nonce; 32])
}

/// Both ends of a connection.
fn connected() -> ((Sealer, Opener), (Sealer, Opener)) {
    let (dialer, listener) = (hand("key", Side::Dialer, 1), hand("key", Side::Listener, 2));
    let (one, two) = (dialer.hello(), listener.hello());
    let (dialer, listener) = (dialer.on_hello(&two).unwrap(), listener.on_hello(&one).unwrap());
    let (one, two) = (dialer.proof(), listener.proof());
    (dialer.on_proof(&two).unwrap(), listener.on_proof(&one).unwrap())
}

#[test]
fn only_a_peer_with_the_secret_is_accepted_and_a_proof_counts_once() {
    let (dialer, listener) = (hand("key", Side::Dialer, 1), hand("other", Side::Listener, 2));
    let (one, two) = (dialer.hello(), listener.hello());
    assert!(!one.windows(3).any(|bytes| bytes == b"key"), "the secret does not travel");
    let (dialer, listener) = (dialer.on_hello(&two).unwrap(), listener.on_hello(&one).unwrap());
    let proof = dialer.proof();
    assert!(listener.on_proof(&proof).is_err_and(|error| error == LinkError::Key));
    // The own proof, sent back, is that of the wrong side.
    assert!(dialer.on_proof(&proof).is_err_and(|error| error == LinkError::Key));
    // A proof of an earlier connection has other nonces.
    let again = hand("key", Side::Listener, 3).on_hello(&one).unwrap();
    assert!(again.on_proof(&proof).is_err_and(|error| error == LinkError::Key));
    let mut foreign = [0; HELLO_BYTES];
    foreign[..7].copy_from_slice(b"SSH-2.0");
    let refused = hand("key", Side::Dialer, 1).on_hello(&foreign);
    assert!(refused.is_err_and(|error| error == LinkError::Protocol));
}

/// Splits the head from a frame.
fn opened(opener: &mut Opener, frame: &[u8]) -> Result<Vec<u8>, LinkError> {
    let length = Opener::length(frame[..4].try_into().unwrap())?;
    let mut body = frame[4..4 + length].to_vec();
    opener.open(&mut body).map(|()| body)
}

fn sealed(sealer: &mut Sealer, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    sealer.seal(body, &mut frame).unwrap();
    frame
}

#[test]
fn a_changed_repeated_missing_or_reflected_frame_is_refused() {
    let frames = || {
        let ((mut sealer, reflected), (_, opener)) = connected();
        let frames = [b"one", b"two"].map(|body| sealed(&mut sealer, body));
        assert!(!frames[0].windows(3).any(|bytes| bytes == b"one"));
        (frames, opener, reflected)
    };
    let ([one, two], mut opener, mut reflected) = frames();
    assert_eq!(opened(&mut opener, &one).unwrap(), b"one");
    assert_eq!(opened(&mut opener, &one), Err(LinkError::Forged), "repeated");
    assert_eq!(opened(&mut reflected, &two), Err(LinkError::Forged), "reflected");
    let ([_, two], mut opener, _) = frames();
    assert_eq!(opened(&mut opener, &two), Err(LinkError::Forged), "the first is missing");
    for at in 4..one.len() {
        let ([mut one, _], mut opener, _) = frames();
        one[at] ^= 1;
        assert_eq!(opened(&mut opener, &one), Err(LinkError::Forged), "byte {at}");
    }
}

#[test]
fn a_frame_has_at_most_its_largest_length() {
    let ((mut sealer, _), (_, mut opener)) = connected();
    let largest = vec![7; BODY_BYTES_MAX];
    assert_eq!(opened(&mut opener, &sealed(&mut sealer, &largest)).unwrap(), largest);
    let longer = vec![7; BODY_BYTES_MAX + 1];
    assert_eq!(sealer.seal(&longer, &mut Vec::new()), Err(LinkError::Length));
    for head in [0_u32, 15, u32::try_from(BODY_BYTES_MAX).unwrap() + 17, u32::MAX] {
        assert_eq!(Opener::length(head.to_be_bytes()), Err(LinkError::Length), "{head}");
    }
}

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn path(process: u64, number: u64) -> PathId {
    PathId { process, number }
}

/// As a node at `10.0.0.7:1` sends it.
fn resume(path: PathId, session: u64, expected: u64) -> PacketBody {
    PacketBody::Resume { path, session, expected, address: "10.0.0.7:1".to_owned() }
}

fn part(lines: &str) -> Part {
    Part { barrier: 2, part: 0, parts: 1, lines: lines.to_owned() }
}

#[test]
fn packets_and_messages_read_back() {
    let bodies = [
        resume(path(u64::MAX, 2), 7, 9),
        PacketBody::Message { number: u64::MAX, message: Bytes::from_static(b"hello") },
        PacketBody::Ack { expected: 3 },
    ];
    for body in bodies {
        let packet = Packet { node: node("node01"), body };
        assert_eq!(Packet::decode(packet.clone().encode()), Ok(packet));
    }
    let (episode, bytes) = (Episode(3), Bytes::from_static(b"x\n"));
    for message in [
        ToNode::Jl(FromJl::Pmi { episode, part: part("a=1\n") }),
        ToNode::Jl(FromJl::Alive),
        ToNode::Address { node: node("node02"), address: "10.0.0.7:1".to_owned() },
        ToNode::Taken(70_000),
        ToNode::Input { request: 4, bytes: bytes.clone() },
    ] {
        assert_eq!(ToNode::decode(message.clone().encode()), Ok(message));
    }
    let (ranks, joined) = (Ranks::from_iter([2]), Ranks::default());
    let stream = Stream::Kept;
    for message in [
        FromNode::Nla(FromNla::Pmi { episode, ranks, joined, part: part("") }),
        FromNode::Output { rank: 7, stream, bytes },
        FromNode::OutputLost(7),
        FromNode::WantInput { request: 1 },
        FromNode::InputTaken { request: 1, bytes: 9 },
        FromNode::InputDone { request: 1 },
    ] {
        assert_eq!(FromNode::decode(message.clone().encode()), Ok(message));
    }
    let many = Part { parts: 5000, ..part("") };
    let many = ToNode::Jl(FromJl::Pmi { episode, part: many }).encode();
    assert!(matches!(ToNode::decode(many), Err(PacketError::Head(_))));
}

/// Without parked processes it is as launch agents of earlier versions write and read it.
#[test]
fn the_report_of_parked_processes_is_an_optional_field() {
    let parked = ParkedProcesses {
        wanted: 2,
        waiting: vec![71],
        adopted: [(3, 70)].into(),
        problem: "a parked process ended (exit 1)".to_owned(),
    };
    for (parked, field) in [
        (ParkedProcesses::default(), String::new()),
        (
            parked,
            concat!(
                r#","parked":{"wanted":2,"waiting":[71],"adopted":{"3":70},"#,
                r#""problem":"a parked process ended (exit 1)"}"#
            )
            .to_owned(),
        ),
    ] {
        let (state, changes, none) = (MigrationState::Spare, 4, Ranks::default());
        let (ranks, pmi, joined) = (Ranks::from_iter([2]), none.clone(), none);
        let message = FromNode::Nla(FromNla::Ready { state, changes, ranks, pmi, joined, parked });
        let fields = r#""state":"Spare","changes":4,"ranks":[2],"pmi":[],"joined":[]"#;
        let golden = format!("{{\"Nla\":{{\"Ready\":{{{fields}{field}}}}}}}\n");
        assert_eq!(message.clone().encode(), golden.as_bytes());
        assert_eq!(FromNode::decode(golden.into_bytes().into()), Ok(message));
    }
}

/// As many ranks as a node may have stand still for weeks, and were started very often.
#[test]
fn the_largest_report_of_a_node_fits_into_a_frame() {
    let ms = 1_u64 << 32;
    let still = |rank| RankReport {
        rank,
        incarnation: 1 << 16,
        pid: 1 << 22,
        state_ms: ms,
        still_ms: ms,
        unread_ms: ms,
        steps: Some(StepReport { still_ms: ms, longest_ms: ms }),
        ..RankReport::default()
    };
    let all: Ranks = (RANKS_MAX - RANKS_PER_NODE_MAX as u32..RANKS_MAX).collect();
    let mut report =
        NodeReport { longest_ms: ms, exchanging: all.clone(), ..NodeReport::default() };
    report.still = all.iter().map(still).collect();
    let message = FromNode::Nla(FromNla::Progress(report)).encode();
    let node = NodeName::new(&"n".repeat(255)).unwrap();
    let packet = Packet { node, body: PacketBody::Message { number: u64::MAX, message } };
    let bytes = packet.encode().len();
    assert!(bytes <= BODY_BYTES_MAX, "{bytes}");
}

#[test]
fn a_session_refuses_gaps_false_acknowledgements_and_more_than_its_room() {
    let mut session = Session::default();
    let text = Bytes::from_static(b"x");
    assert_eq!(session.on_message(1, text.clone()), Err(LinkError::Sequence));
    assert_eq!(session.on_message(0, text.clone()), Ok(Some(text.clone())));
    assert_eq!(session.on_message(0, text.clone()), Ok(None), "once");
    assert_eq!(session.on_ack(1), Err(LinkError::Sequence));
    let large = Bytes::from(vec![0; UNACKED_BYTES_MAX]);
    session.send(large, false).unwrap();
    assert_eq!(session.send(text.clone(), false), Err(LinkError::Full));
    // No other message repairs the loss of a kept one.
    assert!(session.send(text.clone(), true).is_ok());
    session.on_ack(2).unwrap();
    assert!(session.is_idle() && session.send(text, false).is_ok());
}

/// A JL and NLAs with their connections. Process 0 is the JL; the address of a process is its
/// number.
struct World {
    now: Now,
    seed: u64,
    routers: BTreeMap<usize, Router>,
    /// The ends of each connection, and the packets to each end. `None`: closed, and this end does
    /// not know it yet.
    links: BTreeMap<(usize, LinkId), Option<(usize, LinkId)>>,
    on_the_way: BTreeMap<(usize, LinkId), VecDeque<Packet>>,
    count: u64,
    /// Dead processes.
    dead: BTreeSet<usize>,
    /// Delivered at the JL and at the nodes, by node.
    at_jl: BTreeMap<NodeName, Vec<u64>>,
    at_node: BTreeMap<NodeName, Vec<u64>>,
    joined: BTreeSet<NodeName>,
}

fn name(process: usize) -> NodeName {
    node(&format!("n{process}"))
}

impl World {
    /// `parents[p - 1]`: that of NLA `p`.
    fn new(seed: u64, parents: &[usize]) -> Self {
        let jl = Router::of_jl(1, (1..=parents.len()).map(name));
        let mut routers = BTreeMap::from([(0, jl)]);
        for process in 1..=parents.len() {
            let mut addresses = vec![parents[process - 1]];
            while let Some(above) = addresses.last().filter(|above| **above != 0) {
                addresses.push(parents[*above - 1]);
            }
            let addresses = addresses.iter().map(usize::to_string).collect();
            let number = process as u64;
            let router = Router::of_nla(name(process), number, process.to_string(), addresses);
            routers.insert(process, router);
        }
        Self {
            now: Now::default(),
            seed,
            routers,
            links: BTreeMap::new(),
            on_the_way: BTreeMap::new(),
            count: 0,
            dead: BTreeSet::new(),
            at_jl: BTreeMap::new(),
            at_node: BTreeMap::new(),
            joined: BTreeSet::new(),
        }
    }

    fn random(&mut self, below: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.seed >> 33).unwrap() % below
    }

    fn input(&mut self, process: usize, input: LinkInput) {
        let Some(router) = self.routers.get_mut(&process) else { return };
        let mut out = Vec::new();
        router.handle(self.now, input, &mut out);
        for output in out {
            self.output(process, output);
        }
    }

    fn output(&mut self, process: usize, output: LinkOutput) {
        match output {
            LinkOutput::Write { link, packet } => {
                if let Some(Some(peer)) = self.links.get(&(process, link)) {
                    let packet = Packet::decode(packet.encode()).unwrap();
                    self.on_the_way.entry(*peer).or_default().push_back(packet);
                }
            }
            LinkOutput::Close { link, reason } => {
                assert_eq!(reason, None, "process {process}");
                self.close((process, link));
                self.links.remove(&(process, link));
            }
            LinkOutput::Dial(address) => {
                let to: usize = address.parse().unwrap();
                if self.dead.contains(&to) {
                    return self.input(process, LinkInput::DialFailed);
                }
                let (own, peer) = ((process, self.count), (to, self.count + 1));
                self.count += 2;
                self.links.insert(own, Some(peer));
                self.links.insert(peer, Some(own));
                self.input(process, LinkInput::Dialed(own.1));
            }
            LinkOutput::Deliver { node, message } => {
                let number = u64::from_be_bytes(message[..].try_into().unwrap());
                let at = if process == 0 { &mut self.at_jl } else { &mut self.at_node };
                at.entry(node).or_default().push(number);
            }
            LinkOutput::Joined { node, .. } if process == 0 => {
                self.joined.insert(node);
            }
            LinkOutput::Parted(node) if process == 0 => {
                self.joined.remove(&node);
            }
            LinkOutput::Joined { .. } | LinkOutput::Parted(_) => {}
            LinkOutput::Left(node) => panic!("{node}"),
        }
    }

    /// The other end notices it later. Until then it reads some of the packets on the way.
    fn close(&mut self, end: (usize, LinkId)) {
        if let Some(Some(peer)) = self.links.get(&end).copied() {
            self.links.insert(peer, None);
            let waiting = self.on_the_way.get(&peer).map_or(0, VecDeque::len);
            let read = self.random(waiting + 1);
            self.on_the_way.entry(peer).or_default().truncate(read);
        }
        self.on_the_way.remove(&end);
    }

    fn kill(&mut self, process: usize) {
        self.dead.insert(process);
        self.routers.remove(&process);
        let ends: Vec<_> = self.links.keys().filter(|(of, _)| *of == process).copied().collect();
        for end in ends {
            self.close(end);
            self.links.remove(&end);
        }
    }

    /// One packet, one noticed end, or one deadline.
    fn step(&mut self) {
        let ends: Vec<_> = self.links.iter().map(|(end, peer)| (*end, *peer)).collect();
        let which = self.random(ends.len() + 1);
        let Some(((process, link), peer)) = ends.get(which).copied() else {
            let later = self.now.mono_ns + 50_000_000;
            self.now = Now { mono_ns: later, wall_ns: later };
            for process in self.routers.keys().copied().collect::<Vec<_>>() {
                if self.routers[&process].next_deadline_ns() <= later {
                    self.input(process, LinkInput::Tick);
                }
            }
            return;
        };
        let packets = self.on_the_way.get_mut(&(process, link));
        if let Some(packet) = packets.and_then(VecDeque::pop_front) {
            self.input(process, LinkInput::Packet { link, packet });
        } else if peer.is_none() {
            self.links.remove(&(process, link));
            self.input(process, LinkInput::Closed(link));
        }
    }

    fn send(&mut self, process: usize, number: u64) {
        let message = Bytes::copy_from_slice(&number.to_be_bytes());
        let node = None;
        self.input(process, LinkInput::Send { node, message, keep: true });
    }

    /// Runs until every live node has a path and everything has arrived.
    fn settle(&mut self, each: u64) {
        let nodes: Vec<_> = self.routers.keys().copied().filter(|p| *p != 0).map(name).collect();
        for _ in 0..200_000 {
            let whole = |at: &BTreeMap<NodeName, Vec<u64>>, node| {
                at.get(node).is_some_and(|all| all.len() as u64 == each)
            };
            if nodes.iter().all(|node| {
                let there = whole(&self.at_jl, node) && whole(&self.at_node, node);
                there && self.joined.contains(node)
            }) {
                break;
            }
            self.step();
        }
        let all: Vec<u64> = (0..each).collect();
        for node in &nodes {
            assert_eq!(self.at_jl.get(node), Some(&all), "from {node}");
            assert_eq!(self.at_node.get(node), Some(&all), "to {node}");
        }
    }
}

/// A chain with branches: 1 and 5 below the JL; 2 and 3 below 1; 4 below 3.
const PARENTS: [usize; 5] = [0, 1, 1, 3, 0];

#[test]
fn each_message_arrives_once_and_in_order_whatever_connection_breaks() {
    for seed in 0..300 {
        let mut world = World::new(seed, &PARENTS);
        for number in 0..40 {
            for process in 0..=PARENTS.len() {
                world.send(process, number);
            }
            for _ in 0..40 {
                world.step();
            }
            let ends: Vec<_> = world.links.keys().copied().collect();
            if !ends.is_empty() && world.random(3) == 0 {
                let end = ends[world.random(ends.len())];
                world.close(end);
                world.links.insert(end, None);
            }
        }
        world.settle(40);
    }
}

#[test]
fn nodes_behind_a_dead_launch_agent_connect_to_its_parent() {
    for seed in 0..100 {
        let mut world = World::new(seed, &PARENTS);
        for number in 0..20 {
            if number == 10 {
                world.kill(1);
                world.kill(3);
            }
            for process in 0..=PARENTS.len() {
                world.send(process, number);
            }
            for _ in 0..60 {
                world.step();
            }
        }
        world.settle(20);
    }
}

#[test]
fn a_silent_path_is_given_up() {
    let mut world = World::new(1, &[0, 1]);
    while world.joined.len() < 2 {
        world.step();
    }
    // Node 1 hangs: it reads nothing and closes nothing.
    let stopped = world.routers.remove(&1).unwrap();
    world.joined.clear();
    while !world.joined.contains(&name(2)) {
        world.step();
    }
    assert!(world.now.mono_ns >= u64::try_from(super::router::SILENCE.as_nanos()).unwrap());
    assert!(world.now.mono_ns < u64::try_from(Duration::from_secs(30).as_nanos()).unwrap());
    drop(stopped);
}

#[test]
fn another_launcher_gets_what_the_earlier_one_has_not_acknowledged() {
    let mut world = World::new(1, &PARENTS);
    for process in 0..=PARENTS.len() {
        world.send(process, 0);
    }
    world.settle(1);
    for _ in 0..1000 {
        world.step();
    }
    world.kill(0);
    for process in 1..=PARENTS.len() {
        world.send(process, 0);
    }
    for _ in 0..1000 {
        world.step();
    }
    world.dead.remove(&0);
    world.routers.insert(0, Router::of_jl(2, (1..=PARENTS.len()).map(name)));
    (world.joined, world.at_jl, world.at_node) = Default::default();
    for process in 0..=PARENTS.len() {
        world.send(process, u64::from(process != 0));
    }
    for number in 1..3 {
        world.send(0, number);
    }
    for process in 1..=PARENTS.len() {
        world.send(process, 2);
    }
    world.settle(3);
}

#[test]
fn an_announced_launcher_replaces_the_last_address_only() {
    let mut router = nla("n1");
    let mut out = Vec::new();
    router.handle(Now::default(), LinkInput::Launcher("jl".to_owned()), &mut out);
    assert_eq!(out, [], "it is the known one");
    router.handle(Now::default(), LinkInput::Launcher("next".to_owned()), &mut out);
    assert_eq!(out, [LinkOutput::Close { link: 1, reason: None }]);
}

/// The NLA of a node with process 1, whose connection 1 leads up.
fn nla(name: &str) -> Router {
    let addresses = vec!["up".to_owned(), "jl".to_owned()];
    let mut router = Router::of_nla(node(name), 1, "own".to_owned(), addresses);
    handled(&mut router, LinkInput::Tick);
    handled(&mut router, LinkInput::Dialed(1));
    router
}

fn handled(router: &mut Router, input: LinkInput) -> Vec<LinkOutput> {
    let mut out = Vec::new();
    router.handle(Now::default(), input, &mut out);
    out
}

/// A packet of `n1`.
fn packet(link: LinkId, body: PacketBody) -> LinkInput {
    LinkInput::Packet { link, packet: Packet { node: node("n1"), body } }
}

fn written(link: LinkId, body: PacketBody) -> LinkOutput {
    LinkOutput::Write { link, packet: Packet { node: node("n1"), body } }
}

#[test]
fn a_message_that_is_repeated_anyway_does_not_wait_for_a_path() {
    let mut router = Router::of_jl(1, [node("n1")]);
    let message = Bytes::from_static(b"x");
    handled(&mut router, LinkInput::Send { node: None, message, keep: false });
    let (path, address) = (path(7, 1), "10.0.0.7:1".to_owned());
    let out = handled(&mut router, packet(4, resume(path, 0, 0)));
    let answer = PacketBody::Resume { path, session: 1, expected: 0, address: String::new() };
    let joined = LinkOutput::Joined { node: node("n1"), address, first: true };
    assert_eq!(out, [written(4, answer), joined]);
}

/// An NLA hangs while it passes on a packet; meanwhile the node behind it connects elsewhere.
#[test]
fn a_packet_of_an_earlier_path_neither_restarts_the_session_nor_turns_the_route_back() {
    let mut jl = Router::of_jl(1, [node("n1")]);
    let message = |number| PacketBody::Message { number, message: Bytes::from_static(b"x") };
    handled(&mut jl, packet(5, resume(path(7, 2), 0, 0)));
    assert_eq!(handled(&mut jl, packet(5, message(0))).len(), 2, "an Ack and the message");
    for late in [resume(path(7, 1), 0, 0), message(1), PacketBody::Ack { expected: 9 }] {
        assert_eq!(handled(&mut jl, packet(4, late)), []);
    }
    let input = LinkInput::Send { node: None, message: Bytes::from_static(b"y"), keep: true };
    let out = handled(&mut jl, input);
    assert!(matches!(out[..], [LinkOutput::Write { link: 5, .. }]), "{out:?}");
    assert_eq!(handled(&mut jl, packet(5, message(1))).len(), 2, "the session goes on");
    // A process that replaces the earlier one counts its paths anew.
    let out = handled(&mut jl, packet(6, resume(path(8, 1), 0, 0)));
    assert!(out.iter().any(|output| matches!(output, LinkOutput::Joined { first: true, .. })));

    // The same at an NLA on the way.
    let mut above = nla("n2");
    assert_eq!(handled(&mut above, packet(5, resume(path(7, 2), 0, 0))).len(), 1);
    assert_eq!(handled(&mut above, packet(4, resume(path(7, 1), 0, 0))), []);
    assert_eq!(handled(&mut above, packet(4, message(0))), []);
    let ack = PacketBody::Ack { expected: 1 };
    assert_eq!(handled(&mut above, packet(1, ack.clone())), [written(5, ack)]);
}

#[test]
fn an_answer_to_an_earlier_path_does_not_count() {
    let mut router = nla("n1");
    handled(&mut router, LinkInput::Closed(1));
    handled(&mut router, LinkInput::Tick);
    handled(&mut router, LinkInput::Dialed(2));
    assert_eq!(handled(&mut router, packet(2, resume(path(1, 1), 9, 0))), []);
    let out = handled(&mut router, packet(2, resume(path(1, 2), 9, 0)));
    assert!(matches!(out[..], [LinkOutput::Joined { first: true, .. }]), "{out:?}");
}

/// A proof names no process, so an NLA may connect to itself or to one behind it.
#[test]
fn a_loop_of_connections_is_closed() {
    let mut router = nla("n1");
    let reason = Some(LinkError::Loop);
    let out = handled(&mut router, packet(3, resume(path(1, 1), 0, 0)));
    assert_eq!(out, [LinkOutput::Close { link: 3, reason }]);
}

/// Its last output may come over the next path.
#[test]
fn a_launcher_that_leaves_waits_for_a_node_between_two_paths() {
    let (last, now) = (Bytes::new(), Now::default());
    let message = |number, message| PacketBody::Message { number, message };
    let mut jl = Router::of_jl(1, [node("n1"), node("n2")]);
    handled(&mut jl, packet(1, resume(path(7, 1), 0, 0)));
    handled(&mut jl, LinkInput::Leave);
    handled(&mut jl, LinkInput::Closed(1));
    assert!(!jl.is_over() && jl.next_deadline_ns() == now.deadline_ns(RETURN_WAIT));
    handled(&mut jl, LinkInput::Tick);
    assert!(!jl.is_over(), "too early");
    handled(&mut jl, packet(2, resume(path(7, 2), 1, 0)));
    let out = handled(&mut jl, packet(2, message(0, Bytes::from_static(b"late"))));
    assert!(out.iter().any(|output| matches!(output, LinkOutput::Deliver { .. })));
    let out = handled(&mut jl, packet(2, message(1, last)));
    assert_eq!(out.last(), Some(&LinkOutput::Left(node("n1"))));
    assert!(!jl.is_over(), "it is still connected");
    handled(&mut jl, LinkInput::Closed(2));
    assert!(jl.is_over());

    // A node that died says nothing more.
    let mut jl = Router::of_jl(1, [node("n1")]);
    handled(&mut jl, packet(1, resume(path(7, 1), 0, 0)));
    handled(&mut jl, LinkInput::Leave);
    handled(&mut jl, LinkInput::Closed(1));
    let mono_ns = jl.next_deadline_ns();
    jl.handle(Now { mono_ns, wall_ns: mono_ns }, LinkInput::Tick, &mut Vec::new());
    assert!(jl.is_over());
}
