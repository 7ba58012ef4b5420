//! Processes of the program that wait for a rank to replace ([`crate::warm`]): how many are kept,
//! and which rank adopts one.
//!
//! A process is parked when it waits in the initialization of ftb-job. A rank that is to be started
//! adopts one. Until the process confirms, it is no rank: if it ends, or does not confirm in time
//! and is killed, the rank is started as without it.

use super::{MigrationState, Nla, NlaOutput, ProcessState, SIGKILL, Spawn, limits};
use crate::message::ExitCause;
use crate::warm::ParkedProcesses;
use core::time::Duration;
use ftb_core::Now;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub(super) struct Parking {
    /// By process id.
    processes: BTreeMap<u32, Parked>,
    /// Starts that the shell has not answered.
    starts: u32,
    /// Ranks whose process has not confirmed.
    adopting: BTreeMap<u32, Adoption>,
    /// Start and process id of each adopted rank.
    adopted: BTreeMap<u32, (u64, u32)>,
    /// No process is started before.
    start_ns: u64,
    /// Failures in a row, at most one per pause.
    failures: u32,
    problem: String,
    /// The JL has not been informed.
    changed: bool,
}

#[derive(Clone, Debug)]
struct Parked {
    stage: ParkingStage,
    since_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParkingStage {
    Starting,
    Waiting,
    Leaving,
    /// Killed because it was not parked in time.
    Late,
    /// Killed because it is no longer wanted.
    Dropped,
}

impl ParkingStage {
    /// Whether it is of no use any more, for no fault of its own.
    fn leaves(self) -> bool {
        matches!(self, Self::Leaving | Self::Dropped)
    }
}

/// A process that is to become a rank.
#[derive(Clone, Debug)]
struct Adoption {
    pid: u32,
    spawn: Spawn,
    until_ns: u64,
    /// It did not confirm in time. Only its end counts now.
    killed: bool,
}

fn deadline(since_ns: u64, wait: Duration) -> u64 {
    Now { mono_ns: since_ns, wall_ns: 0 }.deadline_ns(wait)
}

impl Parking {
    pub(super) fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.starts == 0
    }

    fn waiting(&self) -> impl Iterator<Item = u32> {
        let waits = |(_, parked): &(&u32, &Parked)| parked.stage == ParkingStage::Waiting;
        self.processes.iter().filter(waits).map(|(pid, _)| *pid)
    }

    /// How many there are, without those that leave. The end of a late one says when another one
    /// may be started.
    fn count(&self) -> u32 {
        let stays = |parked: &&Parked| !parked.stage.leaves();
        let count = u32::try_from(self.processes.values().filter(stays).count());
        count.unwrap_or(u32::MAX).saturating_add(self.starts)
    }

    /// Processes that were started together may fail together: that is one failure. A longer pause
    /// stays.
    fn failed(&mut self, now: Now, problem: String) {
        (self.problem, self.changed) = (problem, true);
        if now.mono_ns < self.start_ns {
            return;
        }
        if now.mono_ns >= deadline(self.start_ns, limits::PARK_CALM) {
            self.failures = 0;
        }
        let wait = limits::PARK_AGAIN.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        self.start_ns = now.deadline_ns(wait.min(limits::PARK_AGAIN_MAX));
    }
}

/// The words of a process or of the system, for a report that is kept and shown.
fn words(text: &str) -> String {
    let plain = text.chars().filter(|character| !character.is_control());
    plain.take(limits::PROBLEM_CHARS_MAX).collect()
}

impl Nla {
    pub(super) fn parked_report(&self) -> ParkedProcesses {
        let Parking { adopted, problem, .. } = &self.parking;
        let is_it = |(rank, (incarnation, _)): &(&u32, &(u64, u32))| {
            self.processes.get(rank).is_some_and(|process| {
                process.incarnation == *incarnation && process.life == ProcessState::Running
            })
        };
        ParkedProcesses {
            wanted: self.wanted(),
            waiting: self.parking.waiting().collect(),
            adopted: adopted.iter().filter(is_it).map(|(rank, (_, pid))| (*rank, *pid)).collect(),
            problem: problem.clone(),
        }
    }

    /// How many processes this node keeps parked. Further ones stay.
    fn wanted(&self) -> u32 {
        match self.state {
            MigrationState::Spare => self.config.warm.spare,
            MigrationState::Ready | MigrationState::Arm => self.config.warm.local,
            MigrationState::Inactive => 0,
        }
    }

    /// Processes that are missing. None is started before the ranks, nor while they end.
    fn missing(&self) -> u32 {
        let has_begun = self.state == MigrationState::Spare || !self.running().is_empty();
        if !self.heard || !has_begun || self.ending.is_some() {
            return 0;
        }
        self.wanted().saturating_sub(self.parking.count())
    }

    pub(super) fn parking_deadline_ns(&self) -> u64 {
        if self.config.warm.is_none() {
            return u64::MAX;
        }
        let start = if self.missing() > 0 { self.parking.start_ns } else { u64::MAX };
        let ends = self.parking.processes.values().map(|parked| self.kill_ns_of(parked));
        let open = self.parking.adopting.values().filter(|adoption| !adoption.killed);
        ends.chain(open.map(|adoption| adoption.until_ns)).fold(start, u64::min)
    }

    /// When a process is killed.
    fn kill_ns_of(&self, parked: &Parked) -> u64 {
        match parked.stage {
            ParkingStage::Starting => deadline(parked.since_ns, limits::PARK_MAX),
            ParkingStage::Leaving => deadline(parked.since_ns, self.config.kill_grace),
            ParkingStage::Waiting | ParkingStage::Late | ParkingStage::Dropped => u64::MAX,
        }
    }

    pub(super) fn parking_tick(&mut self, now: Now, out: &mut Vec<NlaOutput>) {
        if self.config.warm.is_none() {
            return;
        }
        for (rank, adoption) in &mut self.parking.adopting {
            if !adoption.killed && now.mono_ns >= adoption.until_ns {
                adoption.killed = true;
                out.push(NlaOutput::Signal { rank: *rank, signal: SIGKILL });
            }
        }
        let is_late = |(_, parked): &(&u32, &Parked)| now.mono_ns >= self.kill_ns_of(parked);
        let late: Vec<u32> =
            self.parking.processes.iter().filter(is_late).map(|(pid, _)| *pid).collect();
        for pid in late {
            self.end_parked(pid, out);
        }
        if self.state == MigrationState::Inactive {
            self.release_parked(now, out);
        }
        let missing = self.missing();
        if missing > 0 && now.mono_ns >= self.parking.start_ns {
            self.parking.starts += missing;
            out.extend((0..missing).map(|_| NlaOutput::Park));
        }
        // One report of all ranks that were adopted together.
        if self.parking.adopting.is_empty() && core::mem::take(&mut self.parking.changed) {
            out.push(self.ready());
        }
    }

    /// Kills a process that was started for a rank to replace.
    fn end_parked(&mut self, pid: u32, out: &mut Vec<NlaOutput>) {
        if let Some(parked) = self.parking.processes.get_mut(&pid) {
            parked.stage = match parked.stage {
                ParkingStage::Starting => ParkingStage::Late,
                _ => ParkingStage::Dropped,
            };
            out.push(NlaOutput::EndParked { pid, kill: true });
        }
    }

    /// Ends all of them: parked ones by themselves with code 0.
    pub(super) fn release_parked(&mut self, now: Now, out: &mut Vec<NlaOutput>) {
        for (pid, parked) in &mut self.parking.processes {
            let kill = match parked.stage {
                ParkingStage::Starting => true,
                ParkingStage::Waiting => false,
                ParkingStage::Leaving | ParkingStage::Late | ParkingStage::Dropped => continue,
            };
            parked.stage = if kill { ParkingStage::Dropped } else { ParkingStage::Leaving };
            parked.since_ns = now.mono_ns;
            out.push(NlaOutput::EndParked { pid: *pid, kill });
        }
    }

    pub(super) fn on_park_started(
        &mut self,
        now: Now,
        result: Result<u32, String>,
        out: &mut Vec<NlaOutput>,
    ) {
        self.parking.starts = self.parking.starts.saturating_sub(1);
        match result {
            Ok(pid) => {
                let parked = Parked { stage: ParkingStage::Starting, since_ns: now.mono_ns };
                self.parking.processes.insert(pid, parked);
                if self.ending.as_ref().is_some_and(|ending| ending.leave) {
                    self.end_parked(pid, out);
                }
            }
            Err(reason) => {
                let problem = format!("cannot start a process: {}", words(&reason));
                self.parking.failed(now, problem);
            }
        }
    }

    pub(super) fn on_parked(&mut self, now: Now, pid: u32) {
        if let Some(parked) = self.parking.processes.get_mut(&pid)
            && parked.stage == ParkingStage::Starting
        {
            *parked = Parked { stage: ParkingStage::Waiting, since_ns: now.mono_ns };
            self.parking.changed = true;
            if self.parking.waiting().count() >= self.wanted() as usize {
                self.parking.problem.clear();
            }
        }
    }

    /// `said`: its last line, may be empty.
    pub(super) fn on_parked_ended(
        &mut self,
        now: Now,
        pid: u32,
        (how, said): (ExitCause, String),
        out: &mut Vec<NlaOutput>,
    ) {
        let adopting = self.parking.adopting.iter().find(|(_, adoption)| adoption.pid == pid);
        if let Some((rank, adoption)) = adopting {
            let (rank, incarnation) = (*rank, adoption.spawn.incarnation);
            return self.on_ended(now, rank, incarnation, how, None, out);
        }
        let Some(parked) = self.parking.processes.remove(&pid) else {
            return;
        };
        let said = words(&said);
        let said = if said.is_empty() { said } else { format!(": {said}") };
        let problem = match parked.stage {
            ParkingStage::Leaving => {
                if how != ExitCause::Exit(0) {
                    out.push(NlaOutput::Note(format!(
                        "a parked process did not leave: {how}{said}"
                    )));
                }
                return;
            }
            ParkingStage::Dropped => return,
            ParkingStage::Late if self.ending.is_some() || self.wanted() == 0 => return,
            ParkingStage::Late => {
                let within = limits::PARK_MAX.as_secs();
                format!("a process did not reach the initialization of ftb-job in {within} s{said}")
            }
            ParkingStage::Starting => {
                format!("a process ended before it was parked ({how}){said}")
            }
            ParkingStage::Waiting => {
                if now.mono_ns >= deadline(parked.since_ns, limits::PARK_AGAIN_MAX) {
                    self.parking.failures = 0;
                }
                format!("a parked process ended ({how}){said}")
            }
        };
        self.parking.failed(now, problem);
    }

    /// Starts a rank: a parked process becomes it, if there is one.
    pub(super) fn start_rank(&mut self, now: Now, spawn: Spawn) -> NlaOutput {
        // That of an earlier start would be about this one.
        self.parking.adopting.remove(&spawn.rank);
        let Some(pid) = self.parking.waiting().next() else {
            return NlaOutput::Spawn(spawn);
        };
        self.parking.processes.remove(&pid);
        // Others are started when the job is well again.
        let pause = now.deadline_ns(limits::PARK_AFTER_ADOPTION);
        self.parking.start_ns = self.parking.start_ns.max(pause);
        let until_ns = now.deadline_ns(limits::ADOPTION_MAX);
        let adoption = Adoption { pid, spawn: spawn.clone(), until_ns, killed: false };
        self.parking.adopting.insert(spawn.rank, adoption);
        NlaOutput::Adopt { pid, spawn }
    }

    pub(super) fn on_adopted(&mut self, pid: u32) {
        let adopting = self.parking.adopting.iter().find(|(_, adoption)| adoption.pid == pid);
        if let Some(rank) = adopting.map(|(rank, _)| *rank) {
            self.has_adopted(rank);
        }
    }

    /// Whether the process of that rank has not confirmed. It may fail, so nothing that cannot be
    /// taken back goes to it, such as standard input.
    pub fn is_adopting(&self, rank: u32) -> bool {
        self.parking.adopting.contains_key(&rank)
    }

    /// Whether the process of that rank has not confirmed in time, and its end is awaited.
    pub(super) fn is_refused(&self, rank: u32) -> bool {
        self.parking.adopting.get(&rank).is_some_and(|adoption| adoption.killed)
    }

    /// The process has confirmed, or speaks PMI as the rank. A word of one that was killed comes
    /// too late: the rank is started at its end.
    pub(super) fn has_adopted(&mut self, rank: u32) {
        if self.is_refused(rank) {
            return;
        }
        if let Some(Adoption { pid, spawn, .. }) = self.parking.adopting.remove(&rank) {
            self.parking.adopted.insert(rank, (spawn.incarnation, pid));
            (self.parking.failures, self.parking.changed) = (0, true);
        }
    }

    /// Starts the rank whose process has ended before it confirmed; false if there is none.
    pub(super) fn starts_cold(
        &mut self,
        now: Now,
        (rank, incarnation): (u32, u64),
        how: ExitCause,
        out: &mut Vec<NlaOutput>,
    ) -> bool {
        let is_it = |adoption: &Adoption| adoption.spawn.incarnation == incarnation;
        if !self.parking.adopting.get(&rank).is_some_and(is_it) {
            return false;
        }
        let Some(Adoption { pid, spawn, .. }) = self.parking.adopting.remove(&rank) else {
            return false;
        };
        if self.ending.is_some() {
            return false;
        }
        let problem = format!("parked process {pid} ended ({how}) when rank {rank} adopted it");
        self.parking.failed(now, problem);
        self.pmi.gone(rank);
        out.push(NlaOutput::Spawn(spawn));
        true
    }
}
