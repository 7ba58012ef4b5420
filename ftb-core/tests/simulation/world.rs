//! The simulated world: agents, their hosts, the network between them, and virtual time.

mod condition_readers;
mod conditions;
mod excuses;
mod invariants;
mod life;
mod network;
mod operations;
mod run;
mod scheduler;
mod staters;

pub use run::{boot, must_hold};

use crate::clients::{Books, ConditionReader, Publisher, Subscriber};
use crate::disk::Disk;
use crate::ops::Op;
use ftb_core::ConfirmLevel;
use ftb_core::frame::Frame;
use ftb_core::ident::OriginId;
use ftb_core::node::api::{
    ClientId, DialId, HostAnswer, Input, JournalPage, JournalWrite, LinkId, TreeNode,
};
use ftb_core::node::{Member, MemberList, Node, NodeConfig};
use ftb_core::numbers::LogIndex;
use ftb_core::position::Epoch;
use ftb_core::time::Now;
use staters::Stater;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

const MS: u64 = 1_000_000;
const POLL_BYTES: usize = 64 * 1024;
/// The pause between a write and its sync, on half of the disks.
const SYNC_PAUSE_NS: u64 = 30 * MS;

/// What a cluster is made of.
#[derive(Clone)]
pub struct Setup {
    pub agents: u32,
    /// How many of the last agents are in no member list.
    pub unlisted: u32,
    pub fanout: u32,
    /// One publisher and one subscriber at every n-th agent.
    pub clients_every: u32,
    pub payload: usize,
    /// What the subscribers want, in turn.
    pub filters: &'static [&'static str],
    pub tune: fn(&mut NodeConfig),
    /// Gaps may be reported; otherwise none at all is allowed.
    pub gaps_allowed: bool,
    /// Events may be lost where it is reported (double faults, retention outrun, shedding).
    pub losses_allowed: bool,
    /// Time between the starts of two agents.
    pub start_apart_ns: u64,
    /// Whether agents publish what they announce.
    pub announcements: bool,
    /// Whether agents have journals.
    pub disks: bool,
    /// Whether publishers state conditions.
    pub conditions: bool,
    /// Whether programs follow the table of conditions all the time, one at each publisher's agent.
    pub condition_readers: bool,
    /// Most rows of the table; `None`: there is room for all. Without it programs state nothing
    /// that outlives them.
    pub condition_rows: Option<usize>,
}

impl Setup {
    pub fn new(agents: u32, fanout: u32) -> Self {
        Self {
            agents,
            unlisted: 0,
            fanout,
            clients_every: 1,
            payload: 100,
            filters: &FILTERS,
            tune: |_| {},
            gaps_allowed: false,
            losses_allowed: false,
            start_apart_ns: 0,
            announcements: true,
            disks: false,
            conditions: false,
            condition_readers: false,
            condition_rows: None,
        }
    }

    /// The same with conditions: every fifth event of a publisher states one.
    pub fn with_conditions(self) -> Self {
        Self { conditions: true, ..self }
    }

    /// The same with programs that follow the table of conditions.
    pub fn with_readers(self) -> Self {
        Self { condition_readers: true, ..self.with_conditions() }
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
    /// How far it has heard that the log of each epoch went, in this life.
    heard: BTreeMap<Epoch, LogIndex>,
    deaf: bool,
    announced: u64,
    origin: OriginId,
    deaf_ready: BTreeSet<ClientId>,
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
    Tick {
        agent: usize,
        life: u64,
    },
    Connect {
        from: usize,
        life: u64,
        dial: DialId,
        to: usize,
        deadline_ns: u64,
    },
    DialFailed {
        agent: usize,
        life: u64,
        dial: DialId,
        answer: HostAnswer,
    },
    Arrive {
        end: End,
        from: usize,
        frame: Box<Frame>,
    },
    Close {
        end: End,
        from: usize,
    },
    Written {
        agent: usize,
        life: u64,
        write: Box<JournalWrite>,
    },
    Sync {
        agent: usize,
        life: u64,
    },
    Read {
        agent: usize,
        life: u64,
        read: u64,
        page: Box<Option<JournalPage>>,
    },
    /// A reader of conditions has had a gap, and reads the table again.
    ReadAgain {
        client: ClientId,
    },
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
    /// From whom nothing arrives at whom.
    cuts: BTreeSet<(usize, usize)>,
    /// What is stuck in a cut, in order.
    stuck: Vec<Happening>,
    pub publishers: Vec<Publisher>,
    pub subscribers: Vec<Subscriber>,
    pub condition_readers: Vec<ConditionReader>,
    staters: Vec<Stater>,
    /// How often they have stated something.
    state_rounds: u32,
    pub books: Books,
    pub happenings: u64,
    /// Frames that agents have said, but for heartbeats.
    pub frames: u64,
    /// How often each agent had something to do: a timer that was due, a frame.
    pub woken: Vec<u64>,
    /// What agents said about members: the name of the event and whose host.
    pub announced: Vec<(&'static str, String)>,
    /// The tree as an agent last described it.
    pub trees: BTreeMap<usize, Vec<TreeNode>>,
    /// How often roles of agents changed, by the roles before and after.
    pub role_changes: BTreeMap<(&'static str, &'static str), u64>,
    /// The rows of the role table that agents have followed, without their meaning.
    pub role_rows: BTreeSet<String>,
    /// The counters of all agents in all their lives, at the end of a run.
    pub counted: BTreeMap<&'static str, u64>,
    /// Confirmed events of publishers that want them on disk, by level.
    pub levels: BTreeMap<ConfirmLevel, u64>,
    /// Frames that get lost although nothing is wrong with the link.
    pub loses: fn(&Frame) -> bool,
    pub trace: bool,
}

impl World {
    pub fn new(setup: Setup, seed: u64) -> Self {
        let members: Vec<Member> = (0..setup.agents - setup.unlisted)
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
            condition_readers: Vec::new(),
            staters: Vec::new(),
            state_rounds: 0,
            books: Books::default(),
            happenings: 0,
            frames: 0,
            woken: vec![0; setup.agents as usize],
            announced: Vec::new(),
            trees: BTreeMap::new(),
            role_changes: BTreeMap::new(),
            role_rows: BTreeSet::new(),
            counted: BTreeMap::new(),
            levels: BTreeMap::new(),
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
                heard: BTreeMap::new(),
                deaf: false,
                announced: 0,
                origin: OriginId(0),
                deaf_ready: BTreeSet::new(),
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
}

pub const FILTERS: [&str; 4] =
    ["event_space=ftb.sim", "event_name=ODD", "", "severity>=error, event_space=ftb.sim"];
