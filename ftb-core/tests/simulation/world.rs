//! The simulated world: agents, their hosts, the network between them, and virtual time.

mod invariants;
mod network;
mod run;

pub use run::{boot, must_hold};

use crate::clients::{Books, Published, Publisher, Subscriber, Violation, broken};
use crate::disk::Disk;
use crate::events::{AGENT_SPACE, SPACE, Said, seal};
use crate::ops::Op;
use ftb_core::filter::Filter;
use ftb_core::frame::Frame;
use ftb_core::ident::{OriginId, PublisherId, Rank};
use ftb_core::node::api::{
    ClientId, ClientInfo, DialId, Input, JournalWrite, LinkId, MemberState, Output, QueryId,
    RefusedWhat, Start, SubscriptionId, ToClient, TreeNode,
};
use ftb_core::node::{Member, MemberList, Node, NodeConfig};
use ftb_core::position::Epoch;
use ftb_core::run::Run;
use ftb_core::sealed::Sealed;
use ftb_core::severity::Severity;
use ftb_core::time::Now;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

const MS: u64 = 1_000_000;
const POLL_BYTES: usize = 64 * 1024;

/// What a cluster is made of.
#[derive(Clone)]
pub struct Setup {
    pub agents: u32,
    pub fanout: u32,
    /// One publisher and one subscriber at every so many agents.
    pub clients_every: u32,
    pub payload: usize,
    pub tune: fn(&mut NodeConfig),
    /// Gaps may be told; otherwise none at all is allowed.
    pub gaps_allowed: bool,
    /// Events may be lost where it is told (double faults, retention outrun, shedding).
    pub losses_allowed: bool,
    /// Agents start so long after each other.
    pub start_apart_ns: u64,
    /// Whether agents publish what they announce.
    pub announcements: bool,
    /// Whether agents have journals.
    pub disks: bool,
}

impl Setup {
    pub fn new(agents: u32, fanout: u32) -> Self {
        Self {
            agents,
            fanout,
            clients_every: 1,
            payload: 100,
            tune: |_| {},
            gaps_allowed: false,
            losses_allowed: false,
            start_apart_ns: 0,
            announcements: true,
            disks: false,
        }
    }

    /// The same with journals.
    pub fn on_disk(self) -> Self {
        Self { disks: true, ..self }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Host {
    Up,
    /// The process is gone, the host answers.
    Refuses,
    /// Nothing answers.
    Down,
}

struct Agent {
    node: Option<Node>,
    host: Host,
    life: u64,
    paused: bool,
    waiting: Vec<Input>,
    tick_ns: u64,
    skew_ns: i64,
    epoch: Epoch,
    deaf: bool,
    announced: u64,
    origin: OriginId,
    deaf_ready: BTreeSet<ClientId>,
    root_since_ns: Option<u64>,
    disk: Disk,
    /// When the last write is on disk: writes keep their order.
    written_ns: u64,
}

/// One end of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct End {
    agent: usize,
    life: u64,
    link: LinkId,
}

enum Happening {
    Tick { agent: usize, life: u64 },
    Connect { from: usize, life: u64, dial: DialId, to: usize, deadline_ns: u64 },
    DialFailed { agent: usize, life: u64, dial: DialId, refused: bool },
    Arrive { end: End, from: usize, frame: Box<Frame> },
    Close { end: End, from: usize },
    Written { agent: usize, life: u64, write: Box<JournalWrite> },
    Op(Op),
}

struct Scheduled {
    at_ns: u64,
    order: u64,
    what: Happening,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at_ns, other.order).cmp(&(self.at_ns, self.order))
    }
}

pub struct World {
    setup: Setup,
    seed: u64,
    random: u64,
    pub now_ns: u64,
    order: u64,
    queue: BinaryHeap<Scheduled>,
    agents: Vec<Agent>,
    members: MemberList,
    /// The other end of each end of a link.
    peers: BTreeMap<End, End>,
    /// When the last thing on a link arrives: links keep order.
    arrivals: BTreeMap<End, u64>,
    next_link: u64,
    next_client: u64,
    cuts: BTreeSet<(usize, usize)>,
    /// What is stuck in a cut, in order.
    stuck: Vec<Happening>,
    pub publishers: Vec<Publisher>,
    pub subscribers: Vec<Subscriber>,
    pub books: Books,
    pub happenings: u64,
    /// What agents said about members: the name of the event and whose host.
    pub announced: Vec<(&'static str, String)>,
    /// The tree as an agent last described it.
    pub trees: BTreeMap<usize, Vec<TreeNode>>,
    /// Frames that get lost although nothing is wrong with the link.
    pub loses: fn(&Frame) -> bool,
    pub trace: bool,
}

impl World {
    pub fn new(setup: Setup, seed: u64) -> Self {
        let members: Vec<Member> = (0..setup.agents)
            .map(|rank| Member { host: format!("node{rank}"), address: format!("node{rank}:1") })
            .collect();
        let members = MemberList::from(members);
        let mut world = Self {
            seed,
            random: seed ^ 0x5eed,
            now_ns: 1_000 * MS,
            order: 0,
            queue: BinaryHeap::new(),
            agents: Vec::new(),
            members,
            peers: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            next_link: 0,
            next_client: 0,
            cuts: BTreeSet::new(),
            stuck: Vec::new(),
            publishers: Vec::new(),
            subscribers: Vec::new(),
            books: Books::default(),
            happenings: 0,
            announced: Vec::new(),
            trees: BTreeMap::new(),
            loses: |_| false,
            trace: std::env::var_os("FTB_SIM_TRACE").is_some(),
            setup,
        };
        for _ in 0..world.setup.agents {
            world.agents.push(Agent {
                node: None,
                host: Host::Down,
                life: 0,
                paused: false,
                waiting: Vec::new(),
                tick_ns: u64::MAX,
                skew_ns: 0,
                epoch: Epoch::ZERO,
                deaf: false,
                announced: 0,
                origin: OriginId(0),
                deaf_ready: BTreeSet::new(),
                root_since_ns: None,
                disk: Disk::default(),
                written_ns: 0,
            });
        }
        world
    }

    fn random_below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % bound.max(1)
    }

    fn schedule(&mut self, at_ns: u64, what: Happening) {
        self.order += 1;
        self.queue.push(Scheduled { at_ns, order: self.order, what });
    }

    fn now(&self, agent: usize) -> Now {
        let skew = self.agents[agent].skew_ns;
        let wall = (1_700_000_000_000_000_000_u64 + self.now_ns).saturating_add_signed(skew);
        Now { mono_ns: self.now_ns, wall_ns: wall }
    }

    fn rank(agent: usize) -> u32 {
        u32::try_from(agent).unwrap()
    }

    // Life and death.

    fn config(&self, agent: usize, life: u64) -> NodeConfig {
        let origin = OriginId((agent as u64 + 1) << 32 | life);
        let host = format!("node{agent}");
        let mut config = NodeConfig::new("sim", &host, origin, self.members.clone());
        config.fanout = self.setup.fanout;
        config.children_max = 4 * self.setup.fanout as usize;
        (self.setup.tune)(&mut config);
        config
    }

    pub fn start(&mut self, agent: usize) -> Result<(), Violation> {
        if self.agents[agent].node.is_some() {
            return Ok(());
        }
        self.agents[agent].life += 1;
        let life = self.agents[agent].life;
        let config = self.config(agent, life);
        let seed = self.seed ^ (agent as u64) << 20 ^ life;
        let origin = config.origin;
        let disk = &mut self.agents[agent].disk;
        let restored = (self.setup.disks && !disk.full).then(|| disk.read());
        disk.unread = self.setup.disks && disk.full;
        let node = Node::with_journal(self.now(agent), config, seed, restored);
        let state = &mut self.agents[agent];
        state.node = Some(node);
        state.host = Host::Up;
        state.paused = false;
        state.waiting.clear();
        state.tick_ns = u64::MAX;
        state.epoch = Epoch::ZERO;
        state.origin = origin;
        state.announced = 0;
        self.feed(agent, Input::Tick)?;
        self.attach_clients(agent)
    }

    fn kill(&mut self, agent: usize, host: Host) {
        if self.agents[agent].node.take().is_none() {
            if host == Host::Down {
                self.agents[agent].host = host;
            }
            return;
        }
        self.agents[agent].host = host;
        self.disown(agent);
        let ends: Vec<(End, End)> = self
            .peers
            .iter()
            .filter(|(end, _)| end.agent == agent)
            .map(|(end, peer)| (*end, *peer))
            .collect();
        for (end, peer) in ends {
            if host == Host::Refuses {
                self.send(agent, peer, Happening::Close { end: peer, from: agent });
            }
            self.peers.remove(&end);
        }
    }

    /// Root and standby confirm what both hold in memory; a moment later it is on their disks. What they
    /// take with them in that moment is lost, if its origin dies too.
    fn disown_unwritten(&mut self, killed: usize) {
        let moment = if self.agents[killed].disk.is_whole() { 20 * MS } else { 5_000 * MS };
        for (id, published) in &mut self.books.published {
            let publisher = self.publishers.iter().find(|publisher| publisher.id == id.publisher);
            let dead = publisher.is_some_and(|p| self.agents[p.agent].node.is_none());
            if dead
                && published.confirmed
                && published.at_ns + moment >= self.now_ns
                && !self.agents.iter().any(|agent| agent.disk.holds(*id))
            {
                published.confirmed = false;
            }
        }
    }

    /// What a root confirmed that dies with everybody who could have kept it is lost: only a log on
    /// disk could hold it, and these nodes have none.
    fn disown(&mut self, root: usize) {
        if self.setup.disks {
            return self.disown_unwritten(root);
        }
        let Some(since) = self.agents[root].root_since_ns.take() else { return };
        let dead: BTreeSet<PublisherId> = self
            .publishers
            .iter()
            .filter(|publisher| self.agents[publisher.agent].node.is_none())
            .map(|publisher| publisher.id)
            .collect();
        for (id, published) in &mut self.books.published {
            if dead.contains(&id.publisher) && published.at_ns + 5_000 * MS >= since {
                published.confirmed = false;
            }
        }
    }

    fn attach_clients(&mut self, agent: usize) -> Result<(), Violation> {
        for at in 0..self.publishers.len() {
            if self.publishers[at].agent != agent {
                continue;
            }
            let client = self.new_client();
            self.publishers[at].client = client;
            self.publishers[at].paused = false;
            let publisher = self.publishers[at].id;
            self.feed(agent, Input::ClientAttached { client, info: info(publisher) })?;
            if self.setup.losses_allowed {
                let next = self.publishers[at].published + 1;
                let first = self.publishers[at].unconfirmed.keys().next().copied();
                self.books.lives.entry(publisher).or_default().push(first.unwrap_or(next));
            }
            let again = Run::collect(self.publishers[at].unconfirmed.values().map(Sealed::as_ref));
            if let Some(events) = again {
                self.feed(agent, Input::Publish { client, events })?;
            }
        }
        for at in 0..self.subscribers.len() {
            if self.subscribers[at].agent == agent {
                self.attach_subscriber(at)?;
            }
        }
        Ok(())
    }

    fn new_client(&mut self) -> ClientId {
        self.next_client += 1;
        ClientId(self.next_client)
    }

    fn attach_subscriber(&mut self, at: usize) -> Result<(), Violation> {
        let client = self.new_client();
        let subscriber = &mut self.subscribers[at];
        subscriber.resumed |= subscriber.active_at.is_some();
        subscriber.client = client;
        let agent = subscriber.agent;
        let publisher = PublisherId { account: 7_000, token: client.0 };
        let (filter, start) = (subscriber.filter.clone(), subscriber.start());
        let subscription = subscriber.subscription;
        subscriber.in_past = start != Start::Now;
        self.feed(agent, Input::ClientAttached { client, info: info(publisher) })?;
        self.feed(agent, Input::Subscribe { client, subscription, filter, start })
    }

    pub fn add_publisher(&mut self, agent: usize) -> Result<(), Violation> {
        let client = self.new_client();
        let id = PublisherId { account: 1_000 + agent as u64, token: client.0 };
        self.publishers.push(Publisher {
            agent,
            client,
            id,
            unconfirmed: BTreeMap::new(),
            published: 0,
            refused: 0,
            paused: false,
        });
        if self.agents[agent].node.is_some() {
            self.feed(agent, Input::ClientAttached { client, info: info(id) })?;
        }
        Ok(())
    }

    pub fn add_subscriber(&mut self, agent: usize, filter: &str) -> Result<(), Violation> {
        self.subscribers.push(Subscriber {
            agent,
            client: ClientId(0),
            subscription: SubscriptionId(1),
            filter: Filter::parse(filter).unwrap(),
            active_at: None,
            last: None,
            by_epoch: BTreeMap::new(),
            got: BTreeSet::new(),
            by_publisher: BTreeMap::new(),
            gaps: Vec::new(),
            folded: 0,
            resumed: false,
            in_past: false,
        });
        if self.agents[agent].node.is_some() {
            self.attach_subscriber(self.subscribers.len() - 1)?;
        }
        Ok(())
    }

    pub fn publish(&mut self, at: usize, count: u32, severity: Severity) -> Result<(), Violation> {
        let mut events = Vec::new();
        for _ in 0..count {
            let publisher = &mut self.publishers[at];
            publisher.published += 1;
            let seq = publisher.published;
            let host = format!("node{}", publisher.agent);
            let name = if seq.is_multiple_of(2) { "EVEN" } else { "ODD" };
            let payload = self.setup.payload;
            let sealed = seal(
                publisher.id,
                seq,
                &Said { severity, space: SPACE, name, host: &host, payload },
            );
            publisher.unconfirmed.insert(seq, sealed.clone());
            let published =
                Published { at_ns: self.now_ns, sealed: sealed.clone(), confirmed: false };
            self.books.published.insert(sealed.id(), published);
            events.push(sealed);
        }
        let (agent, client) = (self.publishers[at].agent, self.publishers[at].client);
        if self.agents[agent].node.is_some()
            && let Some(events) = Run::collect(events.iter().map(Sealed::as_ref))
        {
            self.feed(agent, Input::Publish { client, events })?;
        }
        Ok(())
    }

    // Time.

    /// Runs everything that happens until then.
    pub fn run_until(&mut self, until_ns: u64) -> Result<(), Violation> {
        while self.queue.peek().is_some_and(|next| next.at_ns <= until_ns) {
            let Some(next) = self.queue.pop() else { break };
            self.now_ns = self.now_ns.max(next.at_ns);
            self.happenings += 1;
            self.happen(next.what)?;
        }
        self.now_ns = until_ns;
        Ok(())
    }

    pub fn run_ms(&mut self, ms: u64) -> Result<(), Violation> {
        self.run_until(self.now_ns + ms * MS)
    }

    fn happen(&mut self, what: Happening) -> Result<(), Violation> {
        match what {
            Happening::Tick { agent, life } => {
                let state = &mut self.agents[agent];
                if state.life != life || state.node.is_none() || state.tick_ns > self.now_ns {
                    return Ok(());
                }
                state.tick_ns = u64::MAX;
                if state.paused {
                    return Ok(());
                }
                self.feed(agent, Input::Tick)
            }
            Happening::Connect { from, life, dial, to, deadline_ns } => {
                self.connect(from, life, dial, to, deadline_ns)
            }
            Happening::DialFailed { agent, life, dial, refused } => {
                if self.agents[agent].life == life && self.agents[agent].node.is_some() {
                    let error = "no answer".to_owned();
                    self.feed(agent, Input::DialFailed { dial, error, refused })?;
                }
                Ok(())
            }
            Happening::Arrive { end, from, frame } => {
                if !self.alive(end) {
                    // A host that is up answers a dead link with a reset.
                    if self.agents[end.agent].host != Host::Down {
                        self.reset(end, from);
                    }
                    return Ok(());
                }
                self.feed(end.agent, Input::Frame { link: end.link, frame: *frame })
            }
            Happening::Close { end, .. } => {
                if !self.alive(end) {
                    return Ok(());
                }
                self.peers.remove(&end);
                self.arrivals.remove(&end);
                let error = "closed".to_owned();
                self.feed(end.agent, Input::LinkClosed { link: end.link, error })
            }
            Happening::Written { agent, life, write } => self.written(agent, life, *write),
            Happening::Op(op) => self.operate(op),
        }
    }

    fn alive(&self, end: End) -> bool {
        let agent = &self.agents[end.agent];
        agent.node.is_some() && agent.life == end.life && self.peers.contains_key(&end)
    }

    /// The peer of an end that is gone learns so.
    fn reset(&mut self, gone: End, peer_agent: usize) {
        let peer = self.peers.iter().find(|(_, other)| **other == gone).map(|(end, _)| *end);
        if let Some(peer) = peer
            && peer.agent == peer_agent
        {
            self.send(gone.agent, peer, Happening::Close { end: peer, from: gone.agent });
        }
    }

    // Feeding a node and doing what it says.

    fn feed(&mut self, agent: usize, input: Input) -> Result<(), Violation> {
        if self.agents[agent].paused {
            self.agents[agent].waiting.push(input);
            return Ok(());
        }
        let now = self.now(agent);
        let mut out = Vec::new();
        let Some(node) = self.agents[agent].node.as_mut() else { return Ok(()) };
        node.handle(now, input, &mut out);
        self.carry_out(agent, out)?;
        // Polling may have left something to do: the deadline is then at once.
        loop {
            let Some(node) = self.agents[agent].node.as_mut() else { return Ok(()) };
            let due = node.next_deadline_ns().unwrap_or(u64::MAX);
            if due > self.now_ns {
                break;
            }
            let mut out = Vec::new();
            node.handle(now, Input::Tick, &mut out);
            self.carry_out(agent, out)?;
        }
        self.check_step(agent)?;
        let state = &self.agents[agent];
        let due = state.node.as_ref().and_then(Node::next_deadline_ns).unwrap_or(u64::MAX);
        if due < state.tick_ns {
            let life = state.life;
            self.agents[agent].tick_ns = due;
            self.schedule(due, Happening::Tick { agent, life });
        }
        Ok(())
    }

    fn carry_out(&mut self, agent: usize, out: Vec<Output>) -> Result<(), Violation> {
        let life = self.agents[agent].life;
        for output in out {
            match output {
                Output::Dial { dial, rank, deadline_ns, .. } => {
                    let to = rank.0 as usize;
                    let at = self.now_ns + 50_000;
                    let from = agent;
                    self.schedule(at, Happening::Connect { from, life, dial, to, deadline_ns });
                }
                Output::LinkReady(link) => self.pump_link(agent, link),
                Output::CloseLink { link, .. } => {
                    self.pump_link(agent, link);
                    let end = End { agent, life, link };
                    if let Some(peer) = self.peers.remove(&end) {
                        self.send(agent, peer, Happening::Close { end: peer, from: agent });
                    }
                }
                Output::JournalReady => self.pump_journal(agent)?,
                Output::ClientReady(client) => self.pump_client(agent, client)?,
                Output::PauseClient(client) => self.set_paused(client, true),
                Output::ResumeClient(client) => self.set_paused(client, false),
                Output::Tree { nodes, .. } => {
                    self.trees.insert(agent, nodes);
                }
                Output::Transition(transition) => {
                    if self.trace {
                        println!("{:>9.4} {agent:>4} {transition:?}", self.seconds());
                    }
                }
                Output::Announce(announcement) => {
                    let host = announcement.tags.iter().find(|(key, _)| *key == "host");
                    let host = host.map(|(_, host)| host.clone()).unwrap_or_default();
                    self.announced.push((announcement.name, host));
                    if !self.setup.announcements {
                        continue;
                    }
                    let state = &mut self.agents[agent];
                    state.announced += 1;
                    let publisher = PublisherId { account: agent as u64, token: state.origin.0 };
                    let host = format!("node{agent}");
                    let (name, severity) = (announcement.name, announcement.severity);
                    let seq = state.announced;
                    let said =
                        Said { severity, space: AGENT_SPACE, name, host: &host, payload: 50 };
                    let own = seal(publisher, seq, &said);
                    // Not owed to anybody, but told in order like all others.
                    let (at_ns, sealed) = (self.now_ns, own.clone());
                    let published = Published { at_ns, sealed, confirmed: false };
                    self.books.published.insert(own.id(), published);
                    let events = Run::from(own);
                    self.feed(agent, Input::Publish { client: ClientId::AGENT, events })?;
                }
                Output::Stopped => {}
            }
        }
        Ok(())
    }

    /// What an acting root knows of everybody.
    pub fn states_at(&mut self, agent: usize) -> Vec<(Rank, MemberState)> {
        let deadline_ns = self.now_ns + 1_000 * MS;
        self.feed(agent, Input::QueryTree { query: QueryId(1), deadline_ns }).unwrap();
        self.trees[&agent].iter().map(|node| (node.rank, node.state)).collect()
    }

    fn seconds(&self) -> f64 {
        self.now_ns as f64 / 1e9
    }

    fn set_paused(&mut self, client: ClientId, paused: bool) {
        if let Some(publisher) = self.publishers.iter_mut().find(|p| p.client == client) {
            publisher.paused = paused;
        }
    }

    fn pump_link(&mut self, agent: usize, link: LinkId) {
        let now = self.now(agent);
        let life = self.agents[agent].life;
        let peer = self.peers.get(&End { agent, life, link }).copied();
        while let Some(frame) =
            self.agents[agent].node.as_mut().and_then(|n| n.poll_link(now, link, POLL_BYTES))
        {
            let Some(peer) = peer.filter(|_| !(self.loses)(&frame)) else { continue };
            if self.trace && !matches!(frame, Frame::Heartbeat(_)) {
                let text = format!("{frame:?}");
                let text: String = text.chars().take(160).collect();
                println!("{:>9.4} {agent:>4} -> {} {text}", self.seconds(), peer.agent);
            }
            let frame = Box::new(frame);
            self.send(agent, peer, Happening::Arrive { end: peer, from: agent, frame });
        }
    }

    /// Takes what is to be written; it is on disk a little later, or never.
    fn pump_journal(&mut self, agent: usize) -> Result<(), Violation> {
        let now = self.now(agent);
        let life = self.agents[agent].life;
        while let Some(write) =
            self.agents[agent].node.as_mut().and_then(|n| n.poll_journal(now, POLL_BYTES))
        {
            let latency = 100_000 + self.random_below(1_500_000);
            let state = &mut self.agents[agent];
            state.written_ns = (self.now_ns + latency).max(state.written_ns + 1);
            let at_ns = state.written_ns;
            let write = Box::new(write);
            self.schedule(at_ns, Happening::Written { agent, life, write });
        }
        Ok(())
    }

    fn written(&mut self, agent: usize, life: u64, write: JournalWrite) -> Result<(), Violation> {
        let state = &mut self.agents[agent];
        if state.life != life || state.node.is_none() {
            return Ok(());
        }
        if state.disk.full {
            let error = "no space is left".to_owned();
            return self.feed(agent, Input::JournalFailed { error });
        }
        let (generation, until) = (write.generation, write.until);
        state.disk.write(write);
        self.feed(agent, Input::Journaled { generation, until })
    }

    /// A disk dies with what only it held: its agent's process is killed.
    fn damage(&mut self, agent: usize, how: impl FnOnce(&mut Disk)) {
        self.kill(agent, Host::Refuses);
        how(&mut self.agents[agent].disk);
        self.disown(agent);
    }

    fn pump_client(&mut self, agent: usize, client: ClientId) -> Result<(), Violation> {
        if self.agents[agent].deaf {
            self.agents[agent].deaf_ready.insert(client);
            return Ok(());
        }
        let now = self.now(agent);
        while let Some(message) =
            self.agents[agent].node.as_mut().and_then(|n| n.poll_client(now, client, POLL_BYTES))
        {
            self.tell(client, message)?;
        }
        Ok(())
    }

    fn tell(&mut self, client: ClientId, message: ToClient) -> Result<(), Violation> {
        if let ToClient::Refused { what: RefusedWhat::PublishRange { first, last }, .. } = message {
            let publisher = self.publishers.iter_mut().find(|p| p.client == client);
            let Some(publisher) = publisher else { return Ok(()) };
            publisher.unconfirmed.retain(|seq, _| !(first..=last).contains(seq));
            publisher.refused += last - first + 1;
            return Ok(());
        }
        if let ToClient::Confirmed { seq } = message {
            let publisher = self.publishers.iter_mut().find(|p| p.client == client);
            let Some(publisher) = publisher else { return Ok(()) };
            let unconfirmed = publisher.unconfirmed.split_off(&(seq + 1));
            let confirmed = std::mem::replace(&mut publisher.unconfirmed, unconfirmed);
            for sealed in confirmed.values() {
                if let Some(published) = self.books.published.get_mut(&sealed.id()) {
                    published.confirmed = true;
                }
            }
            return Ok(());
        }
        let subscriber = self.subscribers.iter_mut().find(|s| s.client == client);
        let Some(subscriber) = subscriber else { return Ok(()) };
        match message {
            ToClient::Subscribed { active_after, .. } => {
                if subscriber.active_at.is_none() {
                    subscriber.active_at = Some(self.now_ns);
                    subscriber.last = Some(active_after);
                }
            }
            ToClient::Deliver { epoch, items, .. } => {
                let events = items.iter().flat_map(|(first, run)| (*first..).zip(run.iter()));
                for (index, sealed) in events {
                    let position = ftb_core::position::Position { epoch, index };
                    subscriber.deliver(&mut self.books, position, sealed)?;
                }
            }
            ToClient::Gap { gap, .. } => {
                if self.trace {
                    println!(
                        "{:>9.4} gap at {} {gap:?}",
                        self.now_ns as f64 / 1e9,
                        subscriber.agent
                    );
                }
                if !self.setup.gaps_allowed {
                    let what =
                        format!("agent {} told {gap:?}, nothing may be lost", subscriber.agent);
                    return broken("GaplessOrTold", what);
                }
                if gap.reason != ftb_core::node::api::GapReason::Shed {
                    // Of what lies in such a hole some may still be handed over: late, after it.
                    subscriber.by_publisher.clear();
                }
                subscriber.gaps.push(gap);
            }
            ToClient::Covered { position, history_ended, .. } => {
                subscriber.cover(position, history_ended)?;
            }
            ToClient::Refused { message, .. } => return broken("Active", message),
            ToClient::Confirmed { .. } => {}
        }
        Ok(())
    }

    // Operations.

    fn pick(&self, rank: u32) -> usize {
        rank as usize % self.agents.len()
    }

    pub fn operate(&mut self, op: Op) -> Result<(), Violation> {
        if self.trace {
            println!("{:>9.4} ==== {op}", self.seconds());
        }
        match op {
            Op::Kill(rank) => self.kill(self.pick(rank), Host::Refuses),
            Op::LoseDisk(rank) => self.damage(self.pick(rank), Disk::wipe),
            Op::TearDisk(rank, count) => {
                self.damage(self.pick(rank), |disk| disk.tear(count.into(), false));
            }
            Op::RotDisk(rank, count) => {
                self.damage(self.pick(rank), |disk| disk.tear(count.into(), true));
            }
            Op::FillDisk(rank) => {
                let agent = self.pick(rank);
                self.agents[agent].disk.full = true;
            }
            Op::FreeDisk(rank) => self.free_disk(self.pick(rank))?,
            Op::HostDown(rank) => self.kill(self.pick(rank), Host::Down),
            Op::Start(rank) => self.start(self.pick(rank))?,
            Op::Pause(rank) => {
                let agent = self.pick(rank);
                self.agents[agent].paused = self.agents[agent].node.is_some();
            }
            Op::Continue(rank) => self.resume(self.pick(rank))?,
            Op::CutOneWay(from, to) => {
                self.cuts.insert((self.pick(from), self.pick(to)));
            }
            Op::Split(below) => {
                let below = below as usize;
                for low in 0..self.agents.len().min(below) {
                    for high in below..self.agents.len() {
                        self.cuts.insert((low, high));
                        self.cuts.insert((high, low));
                    }
                }
            }
            Op::Heal => self.heal(),
            Op::ClockJump(rank, seconds) => {
                let agent = self.pick(rank);
                self.agents[agent].skew_ns = i64::from(seconds) * 1_000_000_000;
            }
            Op::Publish(count) => {
                for at in 0..self.publishers.len() {
                    if !self.publishers[at].paused {
                        let severity = Severity::ALL[at % 4];
                        self.publish(at, count, severity)?;
                    }
                }
            }
            Op::Storm(rank, count) => {
                let agent = self.pick(rank);
                let at = self.publishers.iter().position(|p| p.agent == agent && !p.paused);
                if let Some(at) = at {
                    self.publish(at, count, Severity::Info)?;
                }
            }
            Op::Subscribe(rank, kind) => {
                let filter = FILTERS[kind as usize % FILTERS.len()];
                self.add_subscriber(self.pick(rank), filter)?;
            }
            Op::Deaf(rank) => {
                let agent = self.pick(rank);
                self.agents[agent].deaf = true;
            }
            Op::Hear(rank) => self.hear(self.pick(rank))?,
            Op::Stop(rank) => {
                let agent = self.pick(rank);
                self.feed(agent, Input::Stop)?;
                self.kill(agent, Host::Refuses);
            }
        }
        Ok(())
    }

    fn free_disk(&mut self, agent: usize) -> Result<(), Violation> {
        let state = &mut self.agents[agent];
        if !std::mem::take(&mut state.disk.full) {
            return Ok(());
        }
        let read = state.disk.read();
        let stored = read.stored.clone();
        let restored = std::mem::take(&mut state.disk.unread).then(|| Box::new(read));
        self.feed(agent, Input::JournalOpened { stored, restored })
    }

    fn hear(&mut self, agent: usize) -> Result<(), Violation> {
        self.agents[agent].deaf = false;
        for client in std::mem::take(&mut self.agents[agent].deaf_ready) {
            self.pump_client(agent, client)?;
        }
        Ok(())
    }

    fn resume(&mut self, agent: usize) -> Result<(), Violation> {
        if !std::mem::replace(&mut self.agents[agent].paused, false) {
            return Ok(());
        }
        let waiting = std::mem::take(&mut self.agents[agent].waiting);
        for input in waiting {
            self.feed(agent, input)?;
        }
        self.feed(agent, Input::Tick)
    }
}

pub const FILTERS: [&str; 4] =
    ["event_space=ftb.sim", "event_name=ODD", "", "severity>=error, event_space=ftb.sim"];

fn info(publisher: PublisherId) -> ClientInfo {
    ClientInfo {
        uid: 1000,
        gid: 1000,
        pid: 1,
        name: "sim".to_owned(),
        job_id: String::new(),
        publisher,
    }
}
