//! An agent with hostile neighbours: any sequence of connections, frames and pauses.
//!
//! An input is a list of steps; [`Agent::step`] reads one. The seeds are conversations of two
//! honest agents, recorded here.

use bytes::Bytes;
use core::time::Duration;
use ftb_core::filter::Filter;
use ftb_core::frame::Frame;
use ftb_core::ident::{EventId, OriginId, PublisherId, Rank};
use ftb_core::limits;
use ftb_core::node::Node;
use ftb_core::node::api::{
    ClientId, ClientInfo, DialId, HostAnswer, Input, LinkId, Output, Start, SubscriptionId,
};
use ftb_core::node::{Member, NodeConfig};
use ftb_core::{ConfirmLevel, Event, Now, Run};
use ftb_fuzz::{Parts, Target, piece};
use ftb_proto::event::{Stamps, encode_event, seal};
use ftb_proto::link::decode;
use ftb_proto::wire::Outbound as _;

const CLUSTER: &str = "test";
const HOSTS: [&str; 4] = ["node1", "node2", "node3", "node4"];
const START_NS: u64 = 1_700_000_000_000_000_000;
/// One unit of a pause.
const PAUSE: Duration = Duration::from_millis(50);
/// Steps of one input; more are not read.
const STEPS_MAX: usize = 400;
/// Frames and messages that an agent may have for each step. It answers a frame with few.
const ANSWERS_MAX: usize = 2_000;

/// Kinds of steps.
const FRAME: u8 = 0;
const PAUSE_STEP: u8 = 1;
const ACCEPT: u8 = 2;
const DIALED: u8 = 3;
const DIAL_FAILED: u8 = 4;
const CLOSE: u8 = 5;
const PUBLISH: u8 = 6;
const SUBSCRIBE: u8 = 7;
const KINDS: u8 = 8;

/// An agent, and what it wants of its shell.
struct Agent {
    node: Node,
    rank: usize,
    mono_ns: u64,
    links: Vec<LinkId>,
    dials: Vec<(DialId, Rank)>,
    seq: u64,
    next_link: u64,
    /// What it has sent, for the other one of a conversation.
    sent: Vec<(LinkId, Frame)>,
}

const CLIENT: ClientId = ClientId(1);

impl Agent {
    fn new(rank: usize) -> Self {
        let member = |host: &&str| Member { host: (*host).to_owned(), address: (*host).to_owned() };
        let members: Vec<Member> = HOSTS.iter().map(member).collect();
        let origin = OriginId(100 + rank as u64);
        let config = NodeConfig::new(CLUSTER, HOSTS[rank], origin, members);
        let node = Node::new(Now { mono_ns: 0, wall_ns: START_NS }, config, 7);
        let (links, dials, sent) = (Vec::new(), Vec::new(), Vec::new());
        let mut agent = Self { node, rank, mono_ns: 0, links, dials, seq: 0, next_link: 0, sent };
        agent.feed(Input::ClientAttached { client: CLIENT, info: agent.client_info() });
        agent
    }

    fn publisher(&self) -> PublisherId {
        PublisherId { account: PublisherId::account_of(HOSTS[self.rank], 0), token: 1 }
    }

    fn client_info(&self) -> ClientInfo {
        let (name, job_id) = ("fuzz".to_owned(), String::new());
        ClientInfo { uid: 0, gid: 0, pid: 1, name, job_id, publisher: self.publisher() }
    }

    fn now(&self) -> Now {
        Now { mono_ns: self.mono_ns, wall_ns: START_NS + self.mono_ns }
    }

    /// Feeds an input, and takes everything that the agent has to say.
    fn feed(&mut self, input: Input) {
        let mut outputs = Vec::new();
        self.node.handle(self.now(), input, &mut outputs);
        let mut answers = 0;
        while !outputs.is_empty() {
            let mut more = Vec::new();
            for output in outputs.drain(..) {
                answers += self.on_output(output, &mut more);
            }
            assert!(answers < ANSWERS_MAX, "{answers} frames and messages for one step");
            outputs = more;
        }
    }

    fn on_output(&mut self, output: Output, more: &mut Vec<Output>) -> usize {
        let (now, mut count) = (self.now(), 1);
        match output {
            Output::Dial { dial, rank, .. } => self.dials.push((dial, rank)),
            Output::LinkReady(link) => {
                while count < ANSWERS_MAX
                    && let Some(frame) = self.node.poll_link(now, link, 1 << 16, more)
                {
                    self.sent.push((link, frame));
                    count += 1;
                }
            }
            Output::ClientReady(client) => {
                while count < ANSWERS_MAX
                    && self.node.poll_client(now, client, 1 << 16, more).is_some()
                {
                    count += 1;
                }
            }
            Output::CloseLink { link, .. } => self.links.retain(|open| *open != link),
            _ => {}
        }
        count
    }

    fn pause(&mut self, units: u8) {
        let until = self.mono_ns + PAUSE.as_nanos() as u64 * u64::from(units);
        let mut ticks = 0;
        while let Some(due_ns) = self.node.next_deadline_ns().filter(|due_ns| *due_ns <= until) {
            self.mono_ns = due_ns.max(self.mono_ns);
            self.feed(Input::Tick);
            ticks += 1;
            assert!(ticks < ANSWERS_MAX, "{ticks} timers within {units} pauses");
        }
        self.mono_ns = until;
        self.feed(Input::Tick);
    }

    fn link(&self, number: u8) -> Option<LinkId> {
        let count = self.links.len();
        (count > 0).then(|| self.links[usize::from(number) % count])
    }

    fn new_link(&mut self) -> LinkId {
        self.next_link += 1;
        let link = LinkId(self.next_link);
        self.links.push(link);
        link
    }

    /// Takes one step of an input; `None` at its end.
    fn step(&mut self, parts: &mut Parts<'_>) -> Option<()> {
        let (kind, number) = (parts.byte()?, parts.byte()?);
        match kind % KINDS {
            FRAME => {
                let bytes = Bytes::copy_from_slice(parts.piece()?);
                let Some(link) = self.link(number) else { return Some(()) };
                match decode(bytes) {
                    Ok(frame) => self.feed(Input::Frame { link, frame }),
                    // As the shell does with a malformed frame.
                    Err(error) => self.close(link, error.to_string()),
                }
            }
            PAUSE_STEP => self.pause(number),
            ACCEPT => {
                let link = self.new_link();
                self.feed(Input::Accepted { link, certified_hosts: None });
            }
            DIALED if !self.dials.is_empty() => {
                let (dial, _) = self.dials.remove(usize::from(number) % self.dials.len());
                let link = self.new_link();
                self.feed(Input::Dialed { dial, link });
            }
            DIAL_FAILED if !self.dials.is_empty() => {
                let (dial, _) = self.dials.remove(usize::from(number) % self.dials.len());
                let answers = [HostAnswer::Refused, HostAnswer::Taken, HostAnswer::Nothing];
                let answer = answers[usize::from(number) % answers.len()];
                self.feed(Input::DialFailed { dial, error: String::new(), answer });
            }
            CLOSE => {
                if let Some(link) = self.link(number) {
                    self.close(link, "closed".to_owned());
                }
            }
            PUBLISH => self.publish(),
            SUBSCRIBE => {
                let filter = if number % 2 == 0 { "" } else { "severity>=error" };
                self.feed(Input::Subscribe {
                    client: CLIENT,
                    subscription: SubscriptionId(u32::from(number)),
                    filter: Box::new(Filter::parse(filter).unwrap()),
                    start: if number < 128 { Start::Now } else { Start::SinceNs(0) },
                });
            }
            _ => {}
        }
        Some(())
    }

    fn close(&mut self, link: LinkId, error: String) {
        self.links.retain(|open| *open != link);
        self.feed(Input::LinkClosed { link, error });
    }

    fn publish(&mut self) {
        self.seq += 1;
        let id = EventId { publisher: self.publisher(), seq: self.seq.into() };
        let host = HOSTS[self.rank];
        let stamps = Stamps { id, host, uid: 0, pid: 1, republished: false };
        let event = Event::new("site.fuzz".parse().unwrap(), "X".parse().unwrap());
        let sealed = seal(&stamps, &encode_event(&event), limits::PAYLOAD_BYTES_MAX).unwrap();
        let (events, confirm) = (Run::from(sealed), ConfirmLevel::Memory);
        self.feed(Input::Publish { client: CLIENT, events, confirm });
    }

    fn run(&mut self, bytes: &[u8]) {
        let mut parts = Parts(bytes);
        for _ in 0..STEPS_MAX {
            if self.step(&mut parts).is_none() {
                break;
            }
        }
        // Whatever was said, it goes on: timers run, and its own client publishes.
        self.publish();
        self.pause(40);
    }
}

/// What an honest agent of that rank says to the agent of the other rank, as an input.
fn conversation(agent_rank: usize, other_rank: usize) -> Vec<u8> {
    let (mut agent, mut other) = (Agent::new(agent_rank), Agent::new(other_rank));
    let mut input = Vec::new();
    let mut step = |agent: &mut Agent, bytes: &[u8]| {
        input.extend_from_slice(bytes);
        agent.step(&mut Parts(bytes)).unwrap();
    };
    let is_above = agent_rank < other_rank;
    let mut is_linked = false;
    for round in 0..60_u8 {
        step(&mut agent, &[PAUSE_STEP, 2]);
        other.pause(2);
        // Only the two are there: each other dial fails.
        while let Some((_, rank)) = agent.dials.first() {
            let is_linking = !is_above && !is_linked && rank.0 == other_rank as u32;
            step(&mut agent, &[if is_linking { DIALED } else { DIAL_FAILED }, 0]);
            if is_linking {
                is_linked = true;
                other.step(&mut Parts(&[ACCEPT, 0])).unwrap();
            }
        }
        while let Some((_, rank)) = other.dials.first() {
            let is_linking = is_above && !is_linked && rank.0 == agent_rank as u32;
            other.step(&mut Parts(&[if is_linking { DIALED } else { DIAL_FAILED }, 0])).unwrap();
            if is_linking {
                is_linked = true;
                step(&mut agent, &[ACCEPT, 0]);
            }
        }
        match round {
            20 => step(&mut agent, &[SUBSCRIBE, 0]),
            25 | 40 => other.publish(),
            30 => other.step(&mut Parts(&[SUBSCRIBE, 129])).unwrap(),
            35 => step(&mut agent, &[PUBLISH, 0]),
            _ => {}
        }
        while !agent.sent.is_empty() || !other.sent.is_empty() {
            for (_, frame) in std::mem::take(&mut other.sent) {
                step(&mut agent, &[&[FRAME, 0][..], &piece(&frame.to_bytes())].concat());
            }
            for (_, frame) in std::mem::take(&mut agent.sent) {
                let link = other.links.last().copied();
                let link = link.unwrap_or_else(|| panic!("no link in round {round}: {frame:?}"));
                other.feed(Input::Frame { link, frame });
            }
        }
    }
    assert!(is_linked, "no link between {agent_rank} and {other_rank}");
    input
}

#[test]
fn no_sequence_of_frames_stops_an_agent() {
    // The first byte of an input is the rank of the agent.
    let pairs: [(usize, usize); 3] = [(0, 1), (1, 0), (1, 2)];
    let seeds =
        pairs.map(|(agent, other)| [&[agent as u8][..], &conversation(agent, other)].concat());
    Target::new("link_frames").seeds(seeds).rounds(1_500).check(|bytes| {
        let Some((rank, steps)) = bytes.split_first() else { return };
        Agent::new(usize::from(*rank) % HOSTS.len()).run(steps);
    });
}
