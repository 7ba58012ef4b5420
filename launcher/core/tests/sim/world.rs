//! One job in one thread: the real cores of the JL and the NLAs, model ranks that keep the contract
//! of `launcher/core/protocol.md`, and a backplane that loses, doubles and delays messages.

use super::happens::{At, Copy, Fate, Faults, Happens, LOOKS_MAX, Rng, Times};
use super::parked::ParkedWorld;
use super::proc::{Phase, Proc};
use ftb_core::Now;
use ftb_core::limits::PAYLOAD_BYTES_DEFAULT;
use ftb_launcher_core::jl::{self, Jl, JlConfig};
use ftb_launcher_core::manner::Manner;
use ftb_launcher_core::message::{ExitCause, FromJl, FromNla, FromRank, NlaMessage, RankMessage};
use ftb_launcher_core::migration_state::MigrationState;
use ftb_launcher_core::names::{Episode, JobId, NodeName, SetId};
use ftb_launcher_core::nla::{self, Nla, NlaConfig, Spawn};
use ftb_launcher_core::warm::WarmProcesses;
use ftb_launcher_core::wire;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

/// How far a rank has to count by default.
const WORK: u64 = 400;
const MS: u64 = 1_000_000;
/// Time until a dead launcher is replaced.
const REPLACED_MS: u64 = 2500;

pub struct World {
    pub now_ms: u64,
    pub rng: Rng,
    pub faults: Faults,
    pub jl: Option<Jl>,
    saved: String,
    /// The state of the launcher cannot be saved.
    is_full: bool,
    pub nlas: BTreeMap<NodeName, Nla>,
    /// By a number of their own: two processes of one rank are a bug that must be visible.
    pub procs: BTreeMap<u64, Proc>,
    pub images: BTreeMap<(NodeName, SetId, u32), u64>,
    /// What each rank has saved in a set.
    pub saved_states: BTreeMap<(SetId, u32), u64>,
    /// Images in memory on a node that belong to the share of a member: node, set, owner, rank.
    pub shares: BTreeSet<(NodeName, SetId, NodeName, u32)>,
    /// Most bytes that a node holds in memory.
    pub budget: Option<u64>,
    /// The next protections of shares, this number of them, break.
    pub breaks: u32,
    /// Parity on a node, by the member of the group whose it is.
    pub parity: BTreeMap<(NodeName, SetId, NodeName), Vec<u8>>,
    pub store: BTreeMap<(SetId, u32), u64>,
    pub reported: Vec<String>,
    pub exit: Option<i32>,
    queue: BinaryHeap<At>,
    last_to: BTreeMap<String, u64>,
    counter: u64,
    pub closed: Vec<(String, bool)>,
    pub left: BTreeSet<NodeName>,
    pub manner: Manner,
    /// Nodes on which no launch agent starts.
    down: BTreeSet<NodeName>,
    size: u32,
    /// Nodes from and to which nothing passes.
    pub cut: BTreeSet<NodeName>,
    /// Sets of more than one moment.
    pub torn: BTreeSet<SetId>,
    /// A starting process needs the images of this number of ranks.
    divided: Option<u32>,
    /// Processes started so far.
    pub spawned: u32,
    /// Whether the program can go back in place.
    pub recovers: bool,
    /// Whether programs divide their state among fewer ranks in place.
    pub divides: bool,
    /// Every process of this rank that comes from an image dies at once.
    pub dies_at_start: Option<u32>,
    /// Messages sent so far.
    pub messages: u64,
    /// The message of that number has that fate.
    pub fate: Option<(u64, Fate)>,
    /// Messages sent when each episode was closed.
    pub closed_at: Vec<u64>,
    /// Outputs of the job launchers so far.
    pub steps: u64,
    /// The job launcher dies after this number of outputs and is replaced. The test's inputs are
    /// delayed by the same time.
    pub dies_after: Option<u64>,
    replacing: bool,
    /// How far a rank has to count.
    pub work: u64,
    pub times: Times,
    pub parked: ParkedWorld,
    /// Whether messages are encoded and read again.
    pub checks_wire: bool,
    /// The next restore on this node takes a minute, unless it is cancelled, and fails.
    pub slow_restore: Option<NodeName>,
    /// Such restores, by incarnation.
    pub slow: BTreeMap<NodeName, u64>,
}

fn nla_config(name: &NodeName, size: u32, manner: Manner) -> NlaConfig {
    NlaConfig {
        size,
        job: JobId::new("job").expect("good"),
        node: name.clone(),
        orphan_grace: nla::limits::ORPHAN_GRACE,
        kill_grace: nla::limits::KILL_GRACE,
        manner,
        sample_every: core::time::Duration::ZERO,
        warm: WarmProcesses::default(),
    }
}

pub fn node(name: &str) -> NodeName {
    name.parse().expect("a good name")
}

impl World {
    pub fn new(seed: u64, config: JlConfig, faults: Faults) -> Self {
        let (now, manner, size) = (Now::default(), config.manner, config.size);
        let nla = |name: &NodeName, spare| {
            (name.clone(), Nla::new(now, nla_config(name, size, manner), spare))
        };
        let primaries = config.placement.keys().map(|name| nla(name, false));
        let spares = config.spares.iter().map(|name| nla(name, true));
        let mut world = Self {
            now_ms: 0,
            rng: Rng(seed),
            faults,
            nlas: primaries.chain(spares).collect(),
            jl: Some(Jl::new(config)),
            saved: String::new(),
            is_full: false,
            procs: BTreeMap::new(),
            images: BTreeMap::new(),
            saved_states: BTreeMap::new(),
            shares: BTreeSet::new(),
            budget: None,
            breaks: 0,
            parity: BTreeMap::new(),
            store: BTreeMap::new(),
            reported: Vec::new(),
            exit: None,
            queue: BinaryHeap::new(),
            last_to: BTreeMap::new(),
            counter: 0,
            closed: Vec::new(),
            left: BTreeSet::new(),
            manner,
            down: BTreeSet::new(),
            size,
            cut: BTreeSet::new(),
            torn: BTreeSet::new(),
            divided: None,
            spawned: 0,
            recovers: true,
            divides: true,
            dies_at_start: None,
            messages: 0,
            fate: None,
            closed_at: Vec::new(),
            steps: 0,
            dies_after: None,
            replacing: false,
            work: WORK,
            times: Times::default(),
            parked: ParkedWorld::default(),
            checks_wire: false,
            slow_restore: None,
            slow: BTreeMap::new(),
        };
        // The launcher writes it before it does anything.
        world.saved = serde_json::to_string(&world.jl).expect("a state is text");
        world.at(0, Happens::ToJl(Box::new(jl::JlInput::Started)));
        for name in world.nlas.keys().cloned().collect::<Vec<_>>() {
            let start = 10 + world.rng.below(50);
            world.at(start, Happens::ToNla(name, Box::new(nla::NlaInput::Started)));
        }
        world.at(10, Happens::Work);
        world
    }

    pub fn at(&mut self, after_ms: u64, what: Happens) {
        self.counter += 1;
        self.queue.push(At(self.now_ms + after_ms, self.counter, what));
    }

    fn now(&self) -> Now {
        Now { mono_ns: self.now_ms * MS, wall_ns: self.now_ms * MS }
    }

    /// Sends over the backplane: in order for each receiver, as the log is.
    fn send(&mut self, to: &str, what: Happens) {
        let lost = self.rng.chance(self.faults.lost);
        let copies = 1 + u64::from(self.rng.chance(self.faults.doubled));
        let delay = 1 + self.rng.below(self.faults.delay_ms_max + 1);
        let last = self.last_to.get(to).copied().unwrap_or(0);
        let when = (self.now_ms + delay).max(last);
        self.last_to.insert(to.to_owned(), when);
        let after = when - self.now_ms;
        self.messages += 1;
        let number = self.messages;
        let fate = self.fate.take_if(|(of, _)| *of == number).map(|(_, fate)| fate);
        let (lost, copies, after) = match &fate {
            Some(Fate::Lost) => (true, copies, after),
            Some(Fate::Doubled) => (lost, 2, after),
            // Later than everything after it: the order of the log is kept, so all of it waits.
            Some(Fate::Late) => {
                self.last_to.insert(to.to_owned(), when + 1500);
                (lost, copies, after + 1500)
            }
            Some(Fate::Before(what)) => {
                self.at(after.saturating_sub(1), what.clone());
                (lost, copies, after)
            }
            Some(Fate::After(_)) | None => (lost, copies, after),
        };
        if let Some(Fate::After(what)) = fate {
            self.at(after + 1, what);
        }
        if lost {
            // A loss is reported: the subscriber gets a gap marker.
            if to == "jl" {
                self.at(after, Happens::ToJl(Box::new(jl::JlInput::Gap)));
            }
            return;
        }
        for _ in 0..copies {
            self.at(after, what.clone());
        }
    }

    /// A message is read again as it was written, within the limits of an event.
    fn check_wire(&self, message: &FromJl) {
        // What an episode was is in words for people.
        if !self.checks_wire || matches!(message, FromJl::Closed(_)) {
            return;
        }
        let Some(event) = wire::to_jl(message) else { return };
        event.check(PAYLOAD_BYTES_DEFAULT).expect("an event within its limits");
        assert_eq!(wire::from_jl(&event).as_ref(), Ok(message));
    }

    fn check_nla_wire(&self, name: &NodeName, message: &FromNla) {
        let says = NlaMessage { node: name.clone(), message: message.clone() };
        let Some(event) = wire::to_nla(&says).filter(|_| self.checks_wire) else { return };
        event.check(PAYLOAD_BYTES_DEFAULT).expect("an event within its limits");
        assert_eq!(wire::from_nla(&event), Ok(says));
    }

    fn jl_says(&mut self, message: &FromJl) {
        self.check_wire(message);
        let nodes: Vec<NodeName> = self.nlas.keys().cloned().collect();
        for name in nodes {
            let input = Box::new(nla::NlaInput::Jl(message.clone()));
            self.send(&format!("nla {name}"), Happens::ToNla(name, input));
        }
        let procs: Vec<u64> = self.procs.keys().copied().collect();
        for id in procs {
            self.send(&format!("proc {id}"), Happens::ToProc(id, message.clone()));
        }
        if let FromJl::Closed(closed) = message {
            self.closed.push((closed.kind.clone(), closed.done));
            self.closed_at.push(self.messages);
        }
    }

    pub fn rank_says(&mut self, rank: u32, episode: Episode, message: FromRank) {
        let says = RankMessage { episode, rank, message };
        self.send("jl", Happens::ToJl(Box::new(jl::JlInput::Rank(says))));
    }

    fn jl_input(&mut self, input: jl::JlInput) {
        let now = self.now();
        let Some(jl) = &mut self.jl else {
            return;
        };
        let asked = match &input {
            jl::JlInput::Request { want, .. } => Some(want.clone()),
            _ => None,
        };
        let mut out = Vec::new();
        jl.handle(now, input, &mut out);
        let mut out = VecDeque::from(out);
        while let Some(output) = out.pop_front() {
            if self.dies_after == Some(self.steps) {
                self.dies_after = None;
                self.jl = None;
                self.replacing = true;
                // A requester without an answer asks again.
                if let Some(want) = asked {
                    self.at(REPLACED_MS + 1, Happens::Request(want));
                }
                return self.at(REPLACED_MS, Happens::ReviveJl);
            }
            self.steps += 1;
            match output {
                jl::JlOutput::Save => self.save(&mut out),
                output => self.jl_output(output),
            }
        }
    }

    /// As the shell does.
    fn save(&mut self, batch: &mut VecDeque<jl::JlOutput>) {
        let now = self.now();
        let jl = self.jl.as_mut().expect("it just spoke");
        let mut more = Vec::new();
        if self.is_full {
            jl.handle(now, jl::JlInput::SaveFailed { why: "no space".to_owned() }, &mut more);
            batch.retain(|output| !jl.is_taken_back(output));
        } else {
            self.saved = serde_json::to_string(jl).expect("a state is text");
            if jl.is_unsaved() {
                jl.handle(now, jl::JlInput::Saved, &mut more);
            }
        }
        batch.extend(more);
    }

    fn jl_output(&mut self, output: jl::JlOutput) {
        match output {
            // Before all others of its batch.
            jl::JlOutput::Save => {}
            jl::JlOutput::Publish(message) => self.jl_says(&message),
            jl::JlOutput::Repeat { node, message } => {
                let input = Box::new(nla::NlaInput::Jl(message));
                self.send(&format!("nla {node}"), Happens::ToNla(node, input));
            }
            jl::JlOutput::Store { episode, set, from } => {
                let mut result = Ok(0);
                for (name, ranks) in from {
                    for rank in ranks.iter() {
                        match self.images.get(&(name.clone(), set.clone(), rank)) {
                            Some(state) if !self.rng.chance(self.faults.copy) => {
                                self.store.insert((set.clone(), rank), *state);
                            }
                            _ => result = Err(format!("no image of rank {rank}")),
                        }
                    }
                }
                if result.is_err() {
                    self.store.retain(|(other, _), _| *other != set);
                }
                assert!(
                    result.is_err() || !self.torn.contains(&set),
                    "{set} is of more than one moment"
                );
                let input = jl::JlInput::Stored { episode, result };
                self.at(self.times.store_ms, Happens::ToJl(Box::new(input)));
            }
            jl::JlOutput::DropStored(set) => self.store.retain(|(other, _), _| *other != set),
            jl::JlOutput::KillNla(name) => self.kill_node(&name, false),
            jl::JlOutput::StartNlas(names) => {
                names.into_iter().for_each(|name| self.start_node(name));
            }
            jl::JlOutput::Answer(_) => {}
            jl::JlOutput::Notify(words) => self.reported.push(format!("{} {words}", self.now_ms)),
            jl::JlOutput::Exit(code) => self.exit = Some(code),
        }
    }

    pub fn nla_input(&mut self, name: &NodeName, input: nla::NlaInput) {
        let now = self.now();
        let Some(nla) = self.nlas.get_mut(name) else {
            return;
        };
        let mut out = Vec::new();
        nla.handle(now, input, &mut out);
        for output in out {
            self.nla_output(name, output);
        }
    }

    fn nla_output(&mut self, name: &NodeName, output: nla::NlaOutput) {
        match output {
            nla::NlaOutput::Publish(message) => {
                self.check_nla_wire(name, &message);
                // Of a migration that was given up the images are gone.
                let newest = self.jl.as_ref().map(|jl| jl.job().episode);
                if let FromNla::Pic { episode, ranks, set } = &message
                    && newest == Some(*episode)
                {
                    for rank in ranks.iter() {
                        let image = (name.clone(), set.clone(), rank);
                        assert!(self.images.contains_key(&image), "PIC without image");
                    }
                }
                let node = name.clone();
                let says = NlaMessage { node, message };
                self.send("jl", Happens::ToJl(Box::new(jl::JlInput::Nla(says))));
            }
            nla::NlaOutput::Spawn(spawn) => self.spawn_rank(name, spawn),
            output @ (nla::NlaOutput::Park
            | nla::NlaOutput::Adopt { .. }
            | nla::NlaOutput::EndParked { .. }) => self.park_output(name, output),
            nla::NlaOutput::Sample => {}
            nla::NlaOutput::Signal { rank, signal } => self.signal(name, rank, signal),
            nla::NlaOutput::PmiReply { rank, line } => self.pmi_reply(name, rank, &line),
            nla::NlaOutput::Copy { episode, from, set, ranks } => {
                self.copy(name, Copy { episode, from, set, ranks, looks: 0 });
            }
            output @ (nla::NlaOutput::Prepare { .. }
            | nla::NlaOutput::Save { .. }
            | nla::NlaOutput::Release { .. }
            | nla::NlaOutput::Restore { .. }
            | nla::NlaOutput::CancelRestore { .. }
            | nla::NlaOutput::PublishFor(_)) => self.agent(name, output),
            nla::NlaOutput::Protect(task) => {
                let after = 5 + self.rng.below(60);
                self.at(after, Happens::Protect(name.clone(), Box::new(task)));
            }
            nla::NlaOutput::Gather(task) => {
                let after = 5 + self.rng.below(60);
                self.at(after, Happens::Gather(name.clone(), Box::new(task)));
            }
            nla::NlaOutput::DropSet(set) => {
                self.free_sets(name, &|of| *of != set);
            }
            nla::NlaOutput::Note(words) => self.reported.push(format!("{name}: {words}")),
            nla::NlaOutput::Leave => {
                self.left.insert(name.clone());
                self.nlas.remove(name);
            }
        }
    }

    /// Images arrive, as long as they are where they are looked for. Those of ranks that move alone
    /// may be asked for before they are there.
    fn copy(&mut self, name: &NodeName, copy: Copy) {
        let source = &copy.from;
        let lives = source.as_ref().is_none_or(|source| self.nlas.contains_key(source));
        let find = |rank| match source {
            None => self.store.get(&(copy.set.clone(), rank)).copied(),
            Some(source) => self.images.get(&(source.clone(), copy.set.clone(), rank)).copied(),
        };
        let found: Vec<_> = copy.ranks.iter().map(|rank| (rank, find(rank))).collect();
        let whole = found.iter().all(|(_, state)| state.is_some());
        if !whole && lives && !self.ranks_save() && copy.looks < LOOKS_MAX {
            let again = Copy { looks: copy.looks + 1, ..copy };
            return self.at(20, Happens::Copy(name.clone(), Box::new(again)));
        }
        let mut result = Ok(1);
        for (rank, state) in found {
            match state.filter(|_| lives) {
                Some(state) if !self.rng.chance(self.faults.copy) => {
                    self.images.insert((name.clone(), copy.set.clone(), rank), state);
                }
                _ => result = Err("the copy broke".to_owned()),
            }
        }
        let input = nla::NlaInput::CopyEnded { episode: copy.episode, result };
        self.at(60, Happens::ToNla(name.clone(), Box::new(input)));
    }

    pub fn spawn_rank(&mut self, name: &NodeName, spawn: Spawn) {
        self.divided = spawn.set_size;
        self.spawn(name, spawn.rank, spawn.incarnation, spawn.episode, spawn.restore);
        self.divided = None;
    }

    fn spawn(
        &mut self,
        name: &NodeName,
        rank: u32,
        incarnation: u64,
        episode: Episode,
        restore: Option<SetId>,
    ) {
        let bad = restore.is_some() && self.dies_at_start == Some(rank);
        let id = self.new_proc(name, rank, incarnation, episode, restore);
        self.barrier_in(id, episode, true);
        if bad {
            self.at(10, Happens::KillRank(rank));
        }
    }

    pub fn new_proc(
        &mut self,
        name: &NodeName,
        rank: u32,
        incarnation: u64,
        episode: Episode,
        restore: Option<SetId>,
    ) -> u64 {
        let twin = self.procs.values().find(|p| p.rank == rank && !p.zombie);
        assert!(twin.is_none(), "rank {rank} runs twice: {twin:?}");
        let state = restore.as_ref().map(|set| {
            // All that a rank of a smaller job needs, or its own.
            let needed = self.divided.map_or(rank..rank + 1, |size| 0..size);
            let image = |rank| self.images.get(&(name.clone(), set.clone(), rank));
            let states = needed.map(|rank| {
                let state = image(rank).expect("a rank is started where its images are");
                self.check_state(set, rank, *state);
                state
            });
            *states.min().expect("there is one")
        });
        self.counter += 1;
        let id = self.counter;
        let mut proc = Proc::new(name.clone(), rank, incarnation, episode, state, restore);
        proc.recovers = self.recovers;
        proc.divides = self.divides;
        self.spawned += 1;
        self.procs.insert(id, proc);
        id
    }

    /// The rank puts its address, where it has a new one, and enters the barrier.
    pub fn barrier_in(&mut self, id: u64, episode: Episode, publishes: bool) {
        let Some(proc) = self.procs.get_mut(&id) else {
            return;
        };
        proc.phase = Phase::Barrier(episode);
        let (name, rank, incarnation) = (proc.node.clone(), proc.rank, proc.incarnation);
        if publishes {
            proc.published = episode;
        }
        let put = format!("cmd=put kvsname=job key=ftb-addr-{rank} value={name}:{id}:{rank}");
        // Its agent may hear of what made it do so before the first line, between them, or after
        // the second.
        let between = 2 + self.rng.below(6);
        let put = publishes.then_some((1, put));
        for (after, line) in put.into_iter().chain([(between, "cmd=barrier_in".to_owned())]) {
            let input = nla::NlaInput::PmiLine { rank, incarnation, line };
            self.at(after, Happens::ToNla(name.clone(), Box::new(input)));
        }
    }

    fn signal(&mut self, name: &NodeName, rank: u32, signal: i32) {
        let found = self.procs.iter().find(|(_, p)| p.rank == rank && p.node == *name);
        if let Some((id, _)) = found
            && matches!(signal, 9 | 15)
        {
            self.end_proc(*id, ExitCause::Signal(signal));
        }
        self.signal_hung(name, rank, signal);
    }

    /// A process ends; its NLA sees it.
    pub fn end_proc(&mut self, id: u64, how: ExitCause) {
        let Some(proc) = self.procs.remove(&id) else {
            return;
        };
        let here = |key: &&(NodeName, SetId, u32)| key.0 == proc.node && key.2 == proc.rank;
        let sets = self.images.keys().filter(here);
        let image = sets.filter_map(|(_, set, _)| set.migration()).max();
        let input =
            nla::NlaInput::Ended { rank: proc.rank, incarnation: proc.incarnation, how, image };
        self.at(1, Happens::ToNla(proc.node, Box::new(input)));
    }

    /// The node is gone with all that ran there; the JL hears of it when the backplane or the shell
    /// says so.
    fn kill_node(&mut self, name: &NodeName, reported: bool) {
        self.nlas.remove(name);
        self.lose_parked(name);
        self.cut.remove(name);
        self.procs.retain(|_, proc| proc.node != *name);
        self.free_sets(name, &|_| false);
        if reported {
            let input =
                jl::JlInput::Gone { node: name.clone(), reason: "killed by the test".to_owned() };
            let after = 1 + self.rng.below(2000);
            self.at(after, Happens::ToJl(Box::new(input)));
        }
    }

    pub fn nla_config(&self, name: &NodeName) -> NlaConfig {
        NlaConfig {
            job: JobId::new("job").expect("good"),
            size: self.size,
            node: name.clone(),
            orphan_grace: nla::limits::ORPHAN_GRACE,
            kill_grace: nla::limits::KILL_GRACE,
            manner: self.manner,
            sample_every: core::time::Duration::ZERO,
            warm: self.parked.config,
        }
    }

    /// Its launch agent starts as one of a spare, unless the node is down or has one.
    fn start_node(&mut self, name: NodeName) {
        if self.down.contains(&name) {
            let reason = "no route to host".to_owned();
            let gone = jl::JlInput::Gone { node: name, reason };
            return self.at(100, Happens::ToJl(Box::new(gone)));
        }
        if self.nlas.contains_key(&name) {
            return;
        }
        let config = self.nla_config(&name);
        self.nlas.insert(name.clone(), Nla::new(self.now(), config, true));
        let start = 10 + self.rng.below(50);
        self.at(start, Happens::ToNla(name, Box::new(nla::NlaInput::Started)));
    }

    fn revive_jl(&mut self) {
        if self.jl.is_some() {
            return;
        }
        let jl: Jl = serde_json::from_str(&self.saved).expect("a state reads back");
        self.jl = Some(jl);
        self.replacing = false;
        self.jl_input(jl::JlInput::Adopted);
    }

    /// All ranks work; when the last has counted to the end they end together.
    fn work(&mut self) {
        for proc in self.procs.values_mut() {
            if proc.phase == Phase::Running && proc.done < self.work {
                proc.done += 1;
            }
        }
        let size = self.jl.as_ref().map_or(usize::MAX, |jl| jl.job().count());
        let done = |p: &Proc| p.done >= self.work && p.phase == Phase::Running;
        if self.procs.len() == size && self.procs.values().all(done) {
            for id in self.procs.keys().copied().collect::<Vec<_>>() {
                self.end_proc(id, ExitCause::Exit(0));
            }
        }
        self.at(self.times.step_ms, Happens::Work);
    }

    fn deadlines(&self) -> u64 {
        let jl = self.jl.as_ref().map_or(u64::MAX, Jl::next_deadline_ns);
        let nlas = self.nlas.values().map(Nla::next_deadline_ns).min();
        jl.min(nlas.unwrap_or(u64::MAX)).div_ceil(MS)
    }

    /// Runs until the launcher exits; panics when it does not within `limit_ms`.
    pub fn run(&mut self, limit_ms: u64) -> i32 {
        loop {
            if let Some(code) = self.exit {
                return code;
            }
            self.step();
            assert!(self.counter < 3_000_000, "a storm: {:#?}", self.reported);
            assert!(self.now_ms < limit_ms, "the job hangs: {:#?}", self.reported);
        }
    }

    /// The next input.
    fn step(&mut self) {
        let next = self.queue.peek().map_or(u64::MAX, |at| at.0);
        let deadline = self.deadlines().max(self.now_ms);
        if deadline < next {
            self.now_ms = deadline + u64::from(deadline == self.now_ms);
            self.jl_input(jl::JlInput::Tick);
            for name in self.nlas.keys().cloned().collect::<Vec<_>>() {
                self.nla_input(&name, nla::NlaInput::Tick);
            }
        } else if let Some(At(when, _, what)) = self.queue.pop() {
            self.now_ms = self.now_ms.max(when);
            self.happen(what);
        }
    }

    /// Runs until that time, or until the launcher exits.
    pub fn run_until(&mut self, end_ms: u64) {
        self.at(end_ms.saturating_sub(self.now_ms), Happens::Nothing);
        while self.exit.is_none() && self.now_ms < end_ms {
            self.step();
        }
    }

    fn happen(&mut self, what: Happens) {
        match what {
            Happens::Request(_)
            | Happens::Add(_)
            | Happens::Down(_)
            | Happens::KillRank(_)
            | Happens::Full(_)
                if self.replacing =>
            {
                self.at(REPLACED_MS, what);
            }
            Happens::ToJl(input) => self.jl_input(*input),
            Happens::ToNla(name, input) => self.nla_input(&name, *input),
            Happens::ToProc(id, message) => self.proc_hears(id, &message),
            Happens::Written(id, episode, set) => self.image_written(id, episode, &set),
            Happens::Copy(name, copy) => {
                if self.nlas.contains_key(&name) {
                    self.copy(&name, *copy);
                }
            }
            Happens::Protect(name, task) => self.protect(&name, &task),
            Happens::Gather(name, task) => self.gather(&name, &task),
            Happens::Work => self.work(),
            Happens::Nothing => {}
            Happens::Full(is_full) => self.is_full = is_full,
            Happens::Request(want) => {
                self.jl_input(jl::JlInput::Request { want, by: jl::Initiator::Internal })
            }
            Happens::Add(names) => {
                let nodes = names.iter().cloned().collect();
                let (racks, by) = (BTreeMap::new(), jl::Initiator::Internal);
                self.jl_input(jl::JlInput::Add { nodes, racks, by });
                if self.jl.is_none() {
                    // The command repeats a request that has no answer.
                    self.at(REPLACED_MS, Happens::Add(names));
                }
            }
            Happens::Down(name) => {
                self.kill_node(&name, true);
                self.down.insert(name);
            }
            Happens::Up(name) => drop(self.down.remove(&name)),
            Happens::KillNode(name) => self.kill_node(&name, true),
            Happens::Gone(name) => {
                self.kill_node(&name, false);
                let reason = "killed by the test".to_owned();
                self.jl_input(jl::JlInput::Gone { node: name, reason });
            }
            Happens::Silence(name) => self.kill_node(&name, false),
            Happens::KillJl => self.jl = None,
            Happens::ReviveJl => self.revive_jl(),
            Happens::KillRank(rank) => self.kill_rank(rank),
            Happens::Parks(name, pid) => self.has_parked(&name, pid),
            Happens::ParkedDies(name, pid) => {
                self.parked_dies(&name, pid, ExitCause::Signal(11));
            }
        }
    }

    /// Runs until an episode of that kind was closed well.
    pub fn run_until_closed(&mut self, kind: &str) {
        let closed = |world: &Self| world.closed.iter().any(|(of, done)| of == kind && *done);
        while !closed(self) {
            assert!(self.exit.is_none(), "{kind}: {:#?}", self.reported);
            self.step();
        }
    }

    pub fn has_reported(&self, words: &str) -> bool {
        self.reported.iter().any(|line| line.contains(words))
    }

    pub fn state_of(&self, name: &str) -> Option<MigrationState> {
        self.nlas.get(&node(name)).map(Nla::state)
    }
}
