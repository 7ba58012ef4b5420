//! A model of a parallel program: steps of work with a collective operation at their end, and
//! everything that may hold up a rank without a fault.

use crate::sim::happens::Rng;
use ftb_launcher_core::progress::{RunState, Sample};

/// Steps that a rank counts come at least this often: the contract of `ftb_progress`.
const CONTRACT_MS: u64 = 540_000;
const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

/// What a rank does until a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Works,
    /// It waits in a collective operation for the others.
    Waits,
    /// It waits uninterruptibly for a file system.
    Io,
    /// It sleeps, or waits for something outside of the job. It reads nothing meanwhile.
    Sleeps,
    /// A signal has stopped it for a while.
    Stopped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Stop,
    Debugger,
    /// It computes without end.
    Loop,
    /// It sleeps without end, and nothing arrives for it.
    Sleep,
    /// The same while messages arrive.
    Deaf,
    /// Its file system does not answer.
    Io,
}

#[derive(Clone, Debug)]
struct Rank {
    does: Does,
    until_ms: u64,
    after: Does,
    fault: Option<Fault>,
    sample: Sample,
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) waits: u64,
    pub(crate) long: u64,
    pub(crate) io: u64,
    pub(crate) shared_io: u64,
    pub(crate) idle: u64,
    pub(crate) stops: u64,
    pub(crate) longest_h: u64,
    /// Tasks of programs without collective operations.
    pub(crate) tasks: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, other: Self) {
        self.waits += other.waits;
        self.long += other.long;
        self.io += other.io;
        self.shared_io += other.shared_io;
        self.idle += other.idle;
        self.stops += other.stops;
        self.longest_h = self.longest_h.max(other.longest_h);
        self.tasks += other.tasks;
    }
}

#[derive(Debug)]
pub(crate) struct Program {
    rng: Rng,
    now_ms: u64,
    ranks: Vec<Rank>,
    /// Ranks count steps.
    counts: bool,
    /// Ranks that wait for others keep their processor busy.
    spins: bool,
    /// One rank waits while the others compute.
    has_master: bool,
    /// Each rank gets tasks over its sockets and waits for the next one; no step has all ranks.
    is_farm: bool,
    step_ms: u64,
    seen: Seen,
}

impl Program {
    pub(crate) fn new(seed: u64, ranks: usize) -> Self {
        let mut rng = Rng(seed.wrapping_mul(0x1234_5678_9abc_def1));
        let (counts, spins, has_master) = (rng.chance(50), rng.chance(50), rng.chance(20));
        let step_ms = [50, 1000, 20_000, 120_000][usize::try_from(rng.below(4)).unwrap()];
        let idle = Rank {
            does: Does::Waits,
            until_ms: 0,
            after: Does::Waits,
            fault: None,
            sample: Sample { pid: 1, ..Sample::default() },
        };
        let ranks = vec![idle; ranks];
        let (seen, is_farm, now_ms) = (Seen::default(), false, 0);
        let mut program =
            Self { rng, now_ms, ranks, counts, spins, has_master, is_farm, step_ms, seen };
        program.begin_step();
        program
    }

    /// Ranks work on tasks, one after the other, and know nothing of each other.
    pub(crate) fn farms(&mut self) {
        (self.counts, self.spins, self.has_master, self.is_farm) = (false, false, false, true);
        for index in 0..self.ranks.len() {
            self.begin_task(index);
        }
    }

    /// The rank gets a task, or waits for one: most often for seconds, sometimes for minutes.
    fn begin_task(&mut self, index: usize) {
        let (rng, now_ms) = (&mut self.rng, self.now_ms);
        let is_long = rng.below(2000) == 0;
        let (waits, task_ms) = match self.ranks[index].does {
            Does::Works => (true, if rng.below(50) == 0 { 120_000 } else { 20_000 }),
            _ => (false, 60_000),
        };
        let ms = rng.below(if is_long && !waits { HOUR_MS } else { task_ms });
        let io = !waits && rng.below(500) == 0;
        self.seen.long += u64::from(is_long);
        self.seen.io += u64::from(io);
        self.seen.tasks += 1;
        let rank = &mut self.ranks[index];
        rank.does = match (waits, io) {
            (true, _) => Does::Waits,
            (false, true) => Does::Io,
            (false, false) => Does::Works,
        };
        (rank.until_ms, rank.after) = (now_ms + ms, Does::Works);
        rank.sample.switches += 1;
        rank.sample.exchanged += 100;
    }

    fn run_farm(&mut self) {
        for index in 0..self.ranks.len() {
            let rank = &self.ranks[index];
            if rank.fault.is_none() && self.now_ms >= rank.until_ms {
                self.begin_task(index);
            }
        }
    }

    pub(crate) fn counts_steps(&mut self, counts: bool) {
        self.counts = counts;
        self.has_master = false;
        self.begin_step();
    }

    pub(crate) fn waits_busily(&mut self, spins: bool) {
        self.spins = spins;
    }

    pub(crate) fn fail(&mut self, rank: usize, fault: Fault) {
        self.ranks[rank].fault = Some(fault);
    }

    pub(crate) fn mend(&mut self, rank: usize) {
        self.ranks[rank].fault = None;
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen
    }

    pub(crate) fn samples(&self) -> Vec<Sample> {
        self.ranks.iter().map(|rank| rank.sample).collect()
    }

    /// Work with imbalance and stragglers, in seconds to hours; a few ranks do I/O, sleep or are
    /// stopped.
    fn begin_step(&mut self) {
        let now_ms = self.now_ms;
        let (rng, seen) = (&mut self.rng, &mut self.seen);
        // The program may be slow for many samples; fast steps are one long row of them.
        let base_ms = self.step_ms.max(4000) + rng.below(self.step_ms);
        let longest_ms = if self.counts { CONTRACT_MS } else { 3 * HOUR_MS };
        let all_long = rng.below(400) == 0;
        let shared_io = rng.below(300) == 0;
        let all_idle = rng.below(600) == 0;
        let io_ms = MINUTE_MS + rng.below(24 * MINUTE_MS);
        seen.shared_io += u64::from(shared_io);
        seen.idle += u64::from(all_idle);
        for (index, rank) in self.ranks.iter_mut().enumerate() {
            let mut work_ms = base_ms + rng.below(base_ms / 2);
            if rng.below(100) == 0 {
                work_ms *= 10;
            }
            if all_long || rng.below(1500) == 0 {
                work_ms = rng.below(longest_ms);
                seen.long += 1;
                seen.longest_h = seen.longest_h.max(work_ms / HOUR_MS);
            }
            (rank.does, rank.after) = (Does::Works, Does::Waits);
            rank.until_ms = now_ms + work_ms.min(longest_ms);
            let short_ms = rng.below(CONTRACT_MS - work_ms.min(CONTRACT_MS - 1));
            match () {
                () if self.has_master && index == 0 => rank.does = Does::Waits,
                () if shared_io => (rank.does, rank.until_ms) = (Does::Io, now_ms + io_ms),
                () if all_idle => (rank.does, rank.until_ms) = (Does::Sleeps, now_ms + short_ms),
                () if rng.below(1500) == 0 => {
                    seen.io += 1;
                    let does = if rng.chance(50) { Does::Io } else { Does::Sleeps };
                    (rank.does, rank.until_ms) = (does, now_ms + short_ms);
                }
                () if rng.below(1500) == 0 => {
                    seen.stops += 1;
                    let stop_ms = rng.below(14_000);
                    (rank.does, rank.after) = (Does::Stopped, Does::Works);
                    rank.until_ms = now_ms + stop_ms;
                }
                () => {}
            }
        }
    }

    /// The time passes; samples show what was last.
    pub(crate) fn run_until(&mut self, to_ms: u64) {
        let passed_ms = to_ms - self.now_ms;
        self.now_ms = to_ms;
        match self.is_farm {
            true => self.run_farm(),
            false => self.run_steps(to_ms),
        }
        for rank in &mut self.ranks {
            rank.advance(passed_ms, self.spins, self.rng.below(100));
        }
    }

    fn run_steps(&mut self, to_ms: u64) {
        for rank in &mut self.ranks {
            let is_done = rank.fault.is_none() && to_ms >= rank.until_ms;
            if is_done && rank.does != Does::Waits {
                let ends_stop = rank.does == Does::Stopped;
                (rank.does, rank.after) = (rank.after, Does::Waits);
                rank.until_ms = if ends_stop { to_ms + 4000 } else { rank.until_ms };
                rank.sample.switches += 1;
                self.seen.waits += u64::from(rank.does == Does::Waits);
            }
        }
        if self.ranks.iter().all(|rank| rank.does == Does::Waits && rank.fault.is_none()) {
            for rank in &mut self.ranks {
                rank.sample.switches += 1;
                rank.sample.done.sent += 100;
                rank.sample.exchanged += 100;
                rank.sample.steps += u64::from(self.counts);
            }
            self.begin_step();
        }
    }
}

impl Rank {
    fn advance(&mut self, passed_ms: u64, spins: bool, draw: u64) {
        let sample = &mut self.sample;
        let does = match self.fault {
            None => self.does,
            Some(Fault::Stop | Fault::Debugger) => Does::Stopped,
            Some(Fault::Loop) => Does::Works,
            Some(Fault::Sleep | Fault::Deaf) => Does::Sleeps,
            Some(Fault::Io) => Does::Io,
        };
        let works = does == Does::Works || (does == Does::Waits && spins);
        // Helper threads use a little in any case, unless the process is stopped.
        let helpers = if does == Does::Stopped { 0 } else { draw % 20 };
        sample.done.cpu_ms += if works { passed_ms * (80 + draw / 5) / 100 } else { helpers };
        sample.switches += if works { 1 + draw } else { 0 };
        sample.state = match (does, self.fault) {
            (_, Some(Fault::Debugger)) => RunState::Traced,
            (Does::Stopped, _) => RunState::Stopped,
            (Does::Io, _) => RunState::WaitsForIo,
            _ => RunState::Runs,
        };
        let arrives = match self.fault {
            None => matches!(does, Does::Io | Does::Sleeps | Does::Works) && draw < 50,
            Some(fault) => fault == Fault::Deaf,
        };
        sample.unread = match does {
            // Unread data stays until it is read.
            Does::Io | Does::Sleeps | Does::Stopped => sample.unread.max(u64::from(arrives)),
            Does::Works | Does::Waits => u64::from(arrives && does == Does::Works),
        };
        if self.fault == Some(Fault::Sleep) {
            sample.unread = 0;
        }
    }
}
