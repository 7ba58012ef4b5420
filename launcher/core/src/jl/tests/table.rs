//! Renders `phases.md`: what a JL does in each phase, found by trying every input in every
//! reachable state.
//!
//! All asked nodes answer together. A state is the phase with the known nodes and ranks, without
//! numbers that only grow.

#![allow(clippy::unwrap_used)]

mod page;

use super::{BOOT_S, S};
use crate::jl::*;
use crate::manner::{Manner, Moves, Saver};
use crate::message::{
    ExitCause, FromNla, FromRank, Launch, NlaMessage, Part, Placement, RankMessage,
};
use crate::names::{JobId, Ranks, SetId};
use crate::progress::HangTimes;
use crate::warm::ParkedProcesses;
use crate::wire;
use page::Found;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/jl/phases.md");
/// Most states tried for each phase; those with the shortest paths come first.
const STATES_MAX: usize = 80;
/// Most rows of a readable table.
const ROWS_MAX: usize = 60;

const CRIU: Manner = Manner { saver: Saver::Agent, moves: Moves::Alone };
const COMMAND: Manner = Manner { saver: Saver::Agent, moves: Moves::Anew };

const STORED: &str = "the set is in the store";
const NOT_STORED: &str = "the set cannot be stored";
const DEADLINE: &str = "the deadline";
const BARRIER: &str = "all are in the barrier";
const DIES: &str = "a rank dies";
const ENDS: &str = "a rank comes to its end";
const ALL_END: &str = "all ranks have come to their end";
const REFUSES: &str = "a rank refuses its image";
const SOURCE: &str = "the source is lost";
const TARGET: &str = "the target is lost";
const BEARER: &str = "a node with ranks is lost";
const IDLE: &str = "a node without ranks is lost";
const MIGRATE: &str = "a migration is wanted";
const SAVE: &str = "a checkpoint is wanted";
const KILL: &str = "the end is wanted";
const LEFT: &str = "some have left, the others are in the barrier";

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

#[derive(Clone)]
struct World {
    jl: Jl,
    now_ns: u64,
}

impl World {
    fn new(manner: Manner, restore: bool) -> Self {
        let placement: Placement =
            [(node("a"), Ranks::from_iter([0, 1])), (node("b"), Ranks::from_iter([2]))].into();
        let mut jl = Jl::new(JlConfig {
            job: JobId::new("job").unwrap(),
            size: 3,
            placement,
            spares: vec![node("s"), node("t")],
            restore: restore.then(|| SetId::new("set-000000").unwrap()),
            deadlines: Deadlines::default(),
            on_death: OnDeath::Rollback,
            restarts_max: 2,
            interval: Interval::Never,
            disk_interval: Interval::Never,
            mtbf: MTBF,
            wait_for_nodes: Duration::ZERO,
            sets_max: 2,
            manner,
            on_hang: OnHang::Report,
            hang_times: HangTimes::default(),
            memory: None,
        });
        jl.handle(Now::default(), JlInput::Started, &mut Vec::new());
        // Alive signals and questions belong to no phase.
        (jl.alive_ns, jl.ask_ns) = (u64::MAX, u64::MAX);
        Self { jl, now_ns: 1 }
    }

    fn place(&self) -> String {
        match (&self.jl.exit, &self.jl.open) {
            (Some(_), _) => "over".to_owned(),
            (None, Some(open)) => format!("{} {}", open.workflow.kind(), open.phase),
            (None, None) if self.jl.job.met => "running".to_owned(),
            (None, None) => "running, not all have met".to_owned(),
        }
    }

    /// What decides the next step, without numbers that only grow.
    fn key(&self) -> String {
        let job = &self.jl.job;
        let mut key = format!("{} {} {}", self.place(), job.met, job.sets.len());
        if self.jl.ends() {
            return key;
        }
        for (name, node) in &job.nodes {
            let _ = write!(key, " {name} {:?} {} {}", node.state, node.lost, node.avoid);
        }
        for row in &job.ranks {
            let now = row.incarnation == job.incarnation;
            let _ = write!(
                key,
                " {} {now} {:?} {}",
                row.node,
                row.ended,
                job.barrier.arrived(&row.node)
            );
        }
        let _ = write!(key, " {:?} {}", job.held, job.restarts);
        if let Some(open) = &self.jl.open {
            let _ = write!(key, " {:?}", open.workflow);
        }
        without_numbers(&key)
    }

    fn open_phase(&self) -> Option<(Episode, &str)> {
        self.jl.open.as_ref().map(|open| (open.episode, open.phase.as_str()))
    }

    fn handle(&mut self, input: JlInput) {
        self.now_ns += 1;
        self.jl.handle(
            Now { mono_ns: self.now_ns, wall_ns: BOOT_S * S + self.now_ns },
            input,
            &mut Vec::new(),
        );
    }

    /// Feeds these inputs in order while the phase stays.
    fn comes(&mut self, inputs: Vec<JlInput>) {
        let started = self.clone();
        for input in inputs {
            self.handle(input);
            if self.open_phase() != started.open_phase() {
                break;
            }
        }
    }

    /// The deadline of the phase passes.
    fn runs_out(&mut self) {
        if let Some(open) = &self.jl.open {
            self.now_ns = open.deadline_ns;
            self.handle(JlInput::Tick);
        }
    }

    /// Every possible input.
    fn can_happen(&self) -> Vec<(&'static str, Vec<JlInput>)> {
        let mut all = self.answers();
        if let Some((episode, "store")) = self.open_phase() {
            let stored = |result| JlInput::Stored { episode, result };
            all.push((STORED, vec![stored(Ok(1))]));
            all.push((NOT_STORED, vec![stored(Err("disk full".to_owned()))]));
        }
        all.extend(self.losses());
        all.extend(self.ends());
        all.extend(self.barrier());
        let want = |want| vec![JlInput::Request { want, by: Initiator::Internal }];
        let reason = || "a test".to_owned();
        all.push((KILL, want(Request::Kill { code: 143, reason: reason() })));
        if self.jl.open.is_none() && self.jl.job.met {
            let node = self.jl.job.ranks[0].node.clone();
            all.push((MIGRATE, want(Request::Migrate { node, reason: reason(), fails_ns: None })));
            all.push((SAVE, want(Request::Checkpoint { reason: reason() })));
        }
        all
    }

    fn nla(node: &NodeName, message: FromNla) -> JlInput {
        JlInput::Nla(NlaMessage { node: node.clone(), message })
    }

    /// All nodes send this message.
    fn each(&self, says: impl Fn(&NodeName) -> FromNla) -> Vec<JlInput> {
        self.jl.job.alive().iter().map(|node| Self::nla(node, says(node))).collect()
    }

    fn is_now(&self, node: &NodeName, to: MigrationState) -> JlInput {
        let from = MigrationState::Ready;
        Self::nla(node, FromNla::State { episode: self.jl.job.episode, from, to, changes: 0 })
    }

    /// The launch agent reports again.
    fn ready(&self, node: &NodeName) -> JlInput {
        let state = self.jl.job.nodes[node].state.unwrap();
        let (changes, none) = (0, Ranks::default());
        let (ranks, pmi, joined) = (none.clone(), none.clone(), none);
        let parked = ParkedProcesses::default();
        Self::nla(node, FromNla::Ready { state, changes, ranks, pmi, joined, parked })
    }

    /// Answers of nodes and ranks.
    fn answers(&self) -> Vec<(&'static str, Vec<JlInput>)> {
        let Some(open) = &self.jl.open else {
            return Vec::new();
        };
        let (job, episode) = (&self.jl.job, open.episode);
        let rank = |rank, message| JlInput::Rank(RankMessage { episode, rank, message });
        let ranks = || 0..u32::try_from(job.ranks.len()).unwrap();
        let reason = || "a test".to_owned();
        let mut all = Vec::new();
        let mut copied = Vec::new();
        let mut restarted = Vec::new();
        for request in &open.requests {
            match request {
                FromJl::Ask => {
                    let ready = |node: &NodeName| {
                        let spare = job.config.spares.contains(node);
                        let state =
                            if spare { MigrationState::Spare } else { MigrationState::Ready };
                        let (changes, none) = (0, Ranks::default());
                        let (ranks, pmi, joined) = (none.clone(), none.clone(), none);
                        let parked = ParkedProcesses::default();
                        FromNla::Ready { state, changes, ranks, pmi, joined, parked }
                    };
                    all.push(("FTB_NLA_READY", self.each(ready)));
                }
                FromJl::Reset { .. } => {
                    all.push(("FTB_NLA_RESET", self.each(|_| FromNla::Reset { episode })));
                }
                FromJl::Prepare { .. } => {
                    all.push((
                        "FTB_NLA_PREPARED",
                        self.each(|_| FromNla::Prepared { episode, loop_id: None }),
                    ));
                }
                FromJl::Kill { .. } => {
                    all.push(("FTB_NLA_STOPPED", self.each(|_| FromNla::Stopped { episode })));
                }
                FromJl::Copy { target, set, ranks, .. } => {
                    let (set, ranks) = (set.clone(), ranks.clone());
                    let (of, whose) = (set.clone(), ranks.clone());
                    let done = FromNla::Copied { episode, set, ranks, bytes: 1 };
                    copied.push(Self::nla(target, done));
                    let failed =
                        FromNla::CopyFailed { episode, set: of, ranks: whose, reason: reason() };
                    all.push(("FTB_NLA_COPY_FAILED", vec![Self::nla(target, failed)]));
                }
                FromJl::Launch(launch) => all.extend(self.launched(launch)),
                FromJl::Checkpoint { set, .. } => all.extend(self.saved(episode, set)),
                FromJl::Migrate { source, set, ranks, .. } => {
                    all.extend(self.leaves(source, set, ranks));
                }
                FromJl::MigrateIpt(ipt) => {
                    let (incarnation, ranks) = (ipt.incarnation, ipt.ranks.clone());
                    restarted.push(self.is_now(&ipt.target, MigrationState::Ready));
                    let done = FromNla::Restarted { episode, incarnation, ranks: ranks.clone() };
                    restarted.push(Self::nla(&ipt.target, done));
                    let failed =
                        FromNla::LaunchFailed { episode, incarnation, ranks, reason: reason() };
                    all.push(("FTB_NLA_LAUNCH_FAILED", vec![Self::nla(&ipt.target, failed)]));
                }
                FromJl::Rollback { set, ranks: dead, .. } => {
                    let failed = FromRank::RollbackFailed { set: set.clone(), reason: reason() };
                    let lives =
                        |of: &u32| !dead.has(*of) && job.ranks[*of as usize].ended.is_none();
                    if let Some(survivor) = ranks().find(lives) {
                        let node = &job.ranks[survivor as usize].node;
                        let said = vec![rank(survivor, failed), self.ready(node)];
                        all.push(("FTB_ROLLBACK_FAILED", said));
                    }
                }
                _ => {}
            }
        }
        if !copied.is_empty() {
            all.push(("FTB_NLA_COPIED", copied));
        }
        if !restarted.is_empty() {
            all.push(("FTB_NLA_RESTARTED", restarted));
        }
        if open.phase == "resume" {
            let resumed = ranks().map(|of| rank(of, FromRank::Resumed)).collect();
            all.push(("FTB_MPI_RESUMED", resumed));
        }
        all
    }

    fn saved(&self, episode: Episode, set: &SetId) -> [(&'static str, Vec<JlInput>); 2] {
        let say = |rank, message| JlInput::Rank(RankMessage { episode, rank, message });
        let message = FromRank::CheckpointDone { set: set.clone(), bytes: 1, activity: None };
        let done = |rank| say(rank, message.clone());
        let ranks = 0..u32::try_from(self.jl.job.ranks.len()).unwrap();
        let failed = FromRank::CheckpointFailed { set: set.clone(), reason: "a test".to_owned() };
        [
            ("FTB_CHECKPOINT_DONE", ranks.map(done).collect()),
            ("FTB_CHECKPOINT_FAILED", vec![say(0, failed)]),
        ]
    }

    fn launched(&self, launch: &Launch) -> Vec<(&'static str, Vec<JlInput>)> {
        let (episode, incarnation) = (launch.episode, launch.incarnation);
        let mut done = Vec::new();
        for node in self.jl.job.alive() {
            let ranks = launch.placement.get(&node).cloned().unwrap_or_default();
            let out = self.jl.job.nodes[&node].state == Some(MigrationState::Inactive);
            let state = match ranks.is_empty() {
                false => MigrationState::Ready,
                true if out => MigrationState::Inactive,
                true => MigrationState::Spare,
            };
            done.push(self.is_now(&node, state));
            done.push(Self::nla(&node, FromNla::Launched { episode, incarnation, ranks }));
        }
        let (node, ranks) = launch.placement.first_key_value().unwrap();
        let (ranks, reason) = (ranks.clone(), "a test".to_owned());
        let failed = FromNla::LaunchFailed { episode, incarnation, ranks, reason };
        vec![("FTB_NLA_LAUNCHED", done), ("FTB_NLA_LAUNCH_FAILED", vec![Self::nla(node, failed)])]
    }

    /// Answers of the source of a migration and its ranks in the first phases.
    fn leaves(
        &self,
        source: &NodeName,
        set: &SetId,
        ranks: &Ranks,
    ) -> Vec<(&'static str, Vec<JlInput>)> {
        let Some((episode, "leave" | "abort")) = self.open_phase() else {
            return Vec::new();
        };
        let reason = "a test".to_owned();
        let failed = FromRank::CheckpointFailed { set: set.clone(), reason };
        let rank = ranks.iter().next().unwrap();
        let failed = JlInput::Rank(RankMessage { episode, rank, message: failed });
        let left = |rank| self.exit(rank, ExitCause::Left);
        let mut gone: Vec<JlInput> = ranks.iter().map(left).collect();
        gone.push(self.is_now(source, MigrationState::Inactive));
        let (ranks, set) = (ranks.clone(), set.clone());
        gone.push(Self::nla(source, FromNla::Pic { episode, ranks: ranks.clone(), set }));
        let mut all = vec![("FTB_CHECKPOINT_FAILED", vec![failed]), ("FTB_MIGRATE_PIC", gone)];
        let mut stay = ranks;
        stay.0.remove(&rank);
        if !stay.is_empty() && self.open_phase().is_some_and(|(_, phase)| phase == "abort") {
            all.push((LEFT, vec![left(rank), self.arrived(source, stay)]));
        }
        all
    }

    fn exit(&self, rank: u32, how: ExitCause) -> JlInput {
        let row = &self.jl.job.ranks[rank as usize];
        let (episode, incarnation) = (self.jl.job.episode, row.incarnation);
        Self::nla(&row.node, FromNla::Exited { episode, rank, incarnation, how })
    }

    fn arrived(&self, node: &NodeName, ranks: Ranks) -> JlInput {
        let barrier = self.jl.job.barrier.number();
        let part = Part { barrier, part: 0, parts: 1, lines: String::new() };
        let episode = self.jl.job.episode;
        let joined = ranks.clone();
        Self::nla(node, FromNla::Pmi { episode, ranks, joined, part })
    }

    /// Loss of each live node.
    fn losses(&self) -> Vec<(&'static str, Vec<JlInput>)> {
        let (source, target) = match self.jl.open.as_ref().map(|open| &open.workflow) {
            Some(Workflow::Migration(migration)) => {
                (Some(migration.source().clone()), migration.target().cloned())
            }
            _ => (None, None),
        };
        let lost = |node: NodeName| {
            let what = match () {
                () if source.as_ref() == Some(&node) => SOURCE,
                () if target.as_ref() == Some(&node) => TARGET,
                () if self.jl.job.ranks_on(&node).is_empty() => IDLE,
                () => BEARER,
            };
            (what, vec![JlInput::Gone { node, reason: "a test".to_owned() }])
        };
        self.jl.job.alive().into_iter().map(lost).collect()
    }

    /// Ends of started ranks.
    fn ends(&self) -> Vec<(&'static str, Vec<JlInput>)> {
        let job = &self.jl.job;
        if matches!(self.place().as_str(), "start gather" | "start reset" | "start copy") {
            return Vec::new();
        }
        let lives = |rank: &u32| {
            let row = &job.ranks[*rank as usize];
            row.ended.is_none() && !job.nodes[&row.node].lost
        };
        let all: Vec<u32> = (0..u32::try_from(job.ranks.len()).unwrap()).collect();
        let alive: Vec<u32> = all.iter().copied().filter(lives).collect();
        // The first rank, and one that has a node for itself.
        let some = [alive.first(), alive.iter().rev().find(|rank| **rank == 2)];
        let some: BTreeSet<u32> = some.into_iter().flatten().copied().collect();
        let mut ends = Vec::new();
        for rank in some {
            ends.push((DIES, vec![self.exit(rank, ExitCause::Signal(9))]));
            if alive.len() > 1 {
                ends.push((ENDS, vec![self.exit(rank, ExitCause::Exit(0))]));
            }
            if matches!(self.open_phase(), Some((_, "launch" | "restart" | "join"))) {
                ends.push((
                    REFUSES,
                    vec![self.exit(rank, ExitCause::Exit(start::EXIT_TORN_IMAGE))],
                ));
            }
        }
        if self.jl.open.is_none() && alive.len() == all.len() {
            ends.push((
                ALL_END,
                all.iter().map(|rank| self.exit(*rank, ExitCause::Exit(0))).collect(),
            ));
        }
        ends
    }

    /// All ranks arrive at the barrier, if they are on their way.
    fn barrier(&self) -> Option<(&'static str, Vec<JlInput>)> {
        let job = &self.jl.job;
        let awaited = match self.place().as_str() {
            "running" => false,
            "running, not all have met" | "start launch" | "start join" | "migration abort" => true,
            place => place.ends_with(" restart") || place.ends_with(" join"),
        };
        let lives = |row: &Rank| row.ended.is_none() && !job.nodes[&row.node].lost;
        if !awaited || !job.ranks.iter().all(lives) {
            return None;
        }
        let arrived = |(node, ranks): (NodeName, Ranks)| self.arrived(&node, ranks);
        Some((BARRIER, job.placement().into_iter().map(arrived).collect()))
    }
}

/// Removes numbers of sets, episodes and starts; they are longer than those of ranks.
fn without_numbers(text: &str) -> String {
    let mut short = String::with_capacity(text.len());
    for word in text.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits = word.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = word.split_at(digits);
        short.push_str(if number.len() > 3 { "#" } else { number });
        short.push_str(rest);
    }
    short
}

impl Found {
    /// Tries every input in every state.
    fn explore(&mut self, first: World) {
        let mut seen = BTreeSet::from([first.key()]);
        let mut counts = BTreeMap::<String, usize>::new();
        let mut todo = VecDeque::from([first]);
        while let Some(world) = todo.pop_front() {
            self.asked(&world);
            for (what, next) in followers(&world) {
                self.edges.entry((world.place(), what)).or_default().insert(next.place());
                let tried = counts.entry(next.place()).or_default();
                if next.jl.exit.is_none() && *tried < STATES_MAX && seen.insert(next.key()) {
                    *tried += 1;
                    todo.push_back(next);
                }
            }
        }
    }

    fn asked(&mut self, world: &World) {
        let Some(open) = &world.jl.open else {
            return;
        };
        let events = open.requests.iter().filter_map(wire::to_jl);
        let names = events.map(|event| event.name.to_string());
        self.asks.entry(world.place()).or_default().extend(names);
    }
}

fn followers(world: &World) -> Vec<(&'static str, World)> {
    let mut all = Vec::new();
    for (what, inputs) in world.can_happen() {
        // Each node in turn is silent until the deadline.
        let node_of = |input: &JlInput| match input {
            JlInput::Nla(says) => Some(says.node.clone()),
            _ => None,
        };
        if let Some(silent) = inputs.last().and_then(node_of) {
            let mut next = world.clone();
            let others = inputs.iter().filter(|input| node_of(input).as_ref() != Some(&silent));
            next.comes(others.cloned().collect());
            if next.open_phase() == world.open_phase() {
                next.runs_out();
                all.push((DEADLINE, next));
            }
        }
        let mut next = world.clone();
        next.comes(inputs);
        all.push((what, next));
    }
    if world.jl.open.is_some() {
        let mut next = world.clone();
        next.runs_out();
        all.push((DEADLINE, next));
    }
    all
}

#[test]
fn the_docs_show_what_the_launcher_does_in_each_phase() {
    let mut found = Found::default();
    for manner in [Manner::default(), CRIU, COMMAND] {
        for restore in [false, true] {
            found.explore(World::new(manner, restore));
        }
    }
    let rows = found.rows();
    assert!(rows.len() <= ROWS_MAX, "{} rows are too many to read", rows.len());
    let page = found.page(&rows);
    ftb_fuzz::kept::assert_file_is_current(PAGE, page);
}
