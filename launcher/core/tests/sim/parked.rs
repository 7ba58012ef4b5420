//! Parked processes in the model: they start, wait, fail, and become ranks.

use super::happens::Happens;
use super::world::World;
use ftb_core::Now;
use ftb_launcher_core::message::ExitCause;
use ftb_launcher_core::names::NodeName;
use ftb_launcher_core::nla::{Nla, NlaInput, NlaOutput, Spawn};
use ftb_launcher_core::warm::WarmProcesses;
use std::collections::{BTreeMap, BTreeSet};

/// The processes of the nodes that are no ranks.
#[derive(Default)]
pub struct ParkedWorld {
    pub config: WarmProcesses,
    /// How many in a hundred fail before they are parked, while they are, or when they are adopted.
    pub fails: u64,
    next: u32,
    alive: BTreeSet<(NodeName, u32)>,
    /// Adopted processes that hang, by node and rank, with their start.
    hung: BTreeMap<(NodeName, u32), u64>,
    /// How many have become ranks.
    pub adopted: u32,
    /// How many have failed when they were adopted.
    pub failed: u32,
}

impl World {
    /// The launch agents park processes.
    pub fn parks(&mut self, config: WarmProcesses, fails: u64) {
        self.parked = ParkedWorld { config, fails, ..ParkedWorld::default() };
        let jl = self.jl.as_ref().expect("it is the beginning");
        let spares = jl.job().config.spares.clone();
        for name in self.nlas.keys().cloned().collect::<Vec<_>>() {
            let nla = Nla::new(Now::default(), self.nla_config(&name), spares.contains(&name));
            self.nlas.insert(name, nla);
        }
    }

    fn tell_nla(&mut self, after: u64, name: &NodeName, input: NlaInput) {
        self.at(after, Happens::ToNla(name.clone(), Box::new(input)));
    }

    pub fn park_output(&mut self, name: &NodeName, output: NlaOutput) {
        match output {
            NlaOutput::Park => self.park(name),
            NlaOutput::Adopt { pid, spawn } => self.adopt(name, pid, spawn),
            NlaOutput::EndParked { pid, kill } => {
                let how = if kill { ExitCause::Signal(9) } else { ExitCause::Exit(0) };
                self.parked_dies(name, pid, how);
            }
            other => panic!("not about parked processes: {other:?}"),
        }
    }

    fn park(&mut self, name: &NodeName) {
        if self.rng.chance(self.parked.fails) {
            let reason = "no process is left".to_owned();
            return self.tell_nla(0, name, NlaInput::ParkStarted(Err(reason)));
        }
        self.parked.next += 1;
        let pid = self.parked.next;
        self.parked.alive.insert((name.clone(), pid));
        self.tell_nla(0, name, NlaInput::ParkStarted(Ok(pid)));
        let parked = 5 + self.rng.below(200);
        self.at(parked, Happens::Parks(name.clone(), pid));
        if self.rng.chance(self.parked.fails) {
            let dies = self.rng.below(3000);
            self.at(dies, Happens::ParkedDies(name.clone(), pid));
        }
    }

    pub fn has_parked(&mut self, name: &NodeName, pid: u32) {
        if self.parked.alive.contains(&(name.clone(), pid)) {
            self.tell_nla(0, name, NlaInput::Parked { pid });
        }
    }

    pub fn parked_dies(&mut self, name: &NodeName, pid: u32, how: ExitCause) {
        if self.parked.alive.remove(&(name.clone(), pid)) {
            let input = NlaInput::ParkedEnded { pid, how, said: String::new() };
            self.tell_nla(1, name, input);
        }
    }

    fn adopt(&mut self, name: &NodeName, pid: u32, spawn: Spawn) {
        // The report of its end may be on its way.
        if !self.parked.alive.remove(&(name.clone(), pid)) {
            self.parked.failed += 1;
            return;
        }
        let (rank, incarnation) = (spawn.rank, spawn.incarnation);
        if self.rng.chance(self.parked.fails) {
            self.parked.failed += 1;
            if self.rng.chance(50) {
                self.parked.hung.insert((name.clone(), rank), incarnation);
            } else {
                self.adopted_ends(name, rank, incarnation, ExitCause::Signal(11));
            }
            return;
        }
        self.parked.adopted += 1;
        self.tell_nla(1, name, NlaInput::Adopted { pid });
        self.spawn_rank(name, spawn);
    }

    fn adopted_ends(&mut self, name: &NodeName, rank: u32, incarnation: u64, how: ExitCause) {
        self.tell_nla(1, name, NlaInput::Ended { rank, incarnation, how, image: None });
    }

    /// A signal to a rank whose process hangs.
    pub fn signal_hung(&mut self, name: &NodeName, rank: u32, signal: i32) {
        if let Some(incarnation) = self.parked.hung.remove(&(name.clone(), rank)) {
            self.adopted_ends(name, rank, incarnation, ExitCause::Signal(signal));
        }
    }

    /// The node is gone with all its processes.
    pub fn lose_parked(&mut self, name: &NodeName) {
        self.parked.alive.retain(|(node, _)| node != name);
        self.parked.hung.retain(|(node, _), _| node != name);
    }

    /// Parked processes that live.
    pub fn parked_alive(&self) -> usize {
        self.parked.alive.len()
    }
}
