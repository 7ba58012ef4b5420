//! `ftb_loop`: programs in any language, with any communication of their own, that are saved in the
//! memory of the nodes. `launcher/job/capi` is the C library, `ftb.job` the Python module.
//!
//! A program protects regions of its memory and calls [`Looping::pass`] at the beginning of each
//! step, as FMI_Loop. The launch agent asks for a save over the socket of the rank
//! ([`crate::rank_socket`]), at which a call only looks; a rank has no thread, no connection to
//! other ranks, and waits for none of them. After a death all ranks start again, and their first
//! call restores the regions.

mod regions;
mod stage;

use crate::config::LoopConfig;
use crate::error::Error;
use crate::image::{Header, ImageError, Outlives, Writer, write_image};
use crate::job::images::{open_set, save_to_memory};
use crate::limits;
use crate::memory::is_memory_set;
use crate::progress::Progress;
use crate::rank_socket::{AgentLink, RankPacket, RankSocket, reason};
pub(crate) use regions::Regions;
use stage::{Due, LoopStep, Stage};
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the first call, while it waits, asks whether to go on.
const FIRST_LOOK: Duration = Duration::from_millis(100);

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum LoopError {
    /// The environment is wrong, or an image is refused.
    #[error(transparent)]
    Job(#[from] Error),
    /// A wrong argument, or a call at the wrong time; nothing has changed.
    #[error("{0}")]
    Invalid(String),
    /// The launch agent ends, and this process with it.
    #[error("the launch agent does not answer: {0}")]
    Agent(#[from] io::Error),
}

impl From<ImageError> for LoopError {
    fn from(error: ImageError) -> Self {
        Self::Job(error.into())
    }
}

impl LoopError {
    /// Negative: the exit code of a program that ends because of it (65: the launcher takes another
    /// set), 3 for a wrong call.
    pub fn code(&self) -> i32 {
        match self {
            Self::Job(error) => -i32::from(error.exit_code()),
            Self::Invalid(_) => -3,
            Self::Agent(_) => -1,
        }
    }
}

/// The place of this process in the job, and its steps. It never waits for a loop.
#[derive(Clone, Debug)]
pub struct JobPlace {
    rank: u32,
    size: u32,
    progress: Arc<Progress>,
}

impl JobPlace {
    /// The number of this process, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// A step of a long iteration, for the detection of hung ranks; false without a launcher.
    pub fn progress(&self) -> bool {
        self.progress.step();
        self.progress.counts()
    }
}

/// The protected memory of this process, and its loop.
#[derive(Debug)]
pub struct Looping {
    config: LoopConfig,
    /// `None`: nothing saves this program.
    agent: Option<AgentLink>,
    progress: Arc<Progress>,
    regions: Regions,
    stage: Stage,
    has_started: bool,
    next: u64,
    pid: u32,
}

impl Looping {
    /// From the environment; without a launcher a loop that only counts.
    ///
    /// # Errors
    /// [`Error::Environment`].
    pub fn from_env() -> Result<Self, LoopError> {
        let config = LoopConfig::from_lookup(&|name| std::env::var(name).ok())?;
        let agent = if config.is_saved { RankSocket::from_env()? } else { None };
        Ok(Self::new(config, agent))
    }

    fn new(config: LoopConfig, agent: Option<RankSocket>) -> Self {
        Self {
            agent: agent.map(AgentLink::new),
            progress: Arc::new(Progress::new(config.progress_fd)),
            regions: Regions::default(),
            stage: Stage::default(),
            has_started: false,
            next: 0,
            pid: std::process::id(),
            config,
        }
    }

    /// For other threads, while this one loops.
    pub fn place(&self) -> JobPlace {
        let LoopConfig { rank, size, .. } = self.config;
        JobPlace { rank, size, progress: self.progress.clone() }
    }

    /// Protects memory. Before the first [`Looping::pass`]; after a restart in the same order, with
    /// the same names and sizes.
    ///
    /// # Safety
    /// The memory must stay mapped until the process ends, and no other thread may write to it
    /// during [`Looping::pass`].
    ///
    /// # Errors
    /// [`LoopError::Invalid`].
    #[expect(unsafe_code, reason = "a promise of the program about its memory")]
    pub unsafe fn protect(
        &mut self,
        name: &str,
        start: *mut u8,
        bytes: usize,
    ) -> Result<(), LoopError> {
        if self.has_started {
            return Err(LoopError::Invalid(format!(
                "{name:.64?}: memory is protected before the first ftb_loop"
            )));
        }
        // SAFETY: the caller's promise.
        unsafe { self.regions.add(name, start, bytes) }
    }

    /// The next loop id: 0, 1, ...; in a process that was started from a set first that of the set,
    /// when the regions are restored. Where the launcher asks for it, the regions are saved.
    ///
    /// All ranks call it equally often. No message crosses a call: what one rank sends before its
    /// call of an id, the other has received before its own.
    ///
    /// # Errors
    /// An image that does not fit, or a lost launch agent. A failed save is no error.
    pub fn pass(&mut self) -> Result<u64, LoopError> {
        self.pass_while(&mut || true)
    }

    /// The same. The first call, which may wait for the first save, asks every 100 ms whether to go
    /// on.
    ///
    /// # Errors
    /// As [`Looping::pass`]. [`io::ErrorKind::Interrupted`]: it is not to go on; the next call is
    /// the first one again.
    pub fn pass_while(&mut self, goes_on: &mut dyn FnMut() -> bool) -> Result<u64, LoopError> {
        if std::process::id() != self.pid {
            let problem = "ftb_loop in a forked child: only the process that protects may call it";
            return Err(LoopError::Invalid(problem.to_owned()));
        }
        self.progress.step();
        if !self.has_started {
            self.begin(goes_on)?;
            self.has_started = true;
        }
        let here = self.next;
        self.serve(here)?;
        self.next += 1;
        Ok(here)
    }

    /// Restores the regions, or waits for the first save.
    fn begin(&mut self, goes_on: &mut dyn FnMut() -> bool) -> Result<(), LoopError> {
        let LoopConfig { job_id, rank, size, restore, .. } = &self.config;
        let Some(agent) = &self.agent else {
            if !job_id.is_empty() && *rank == 0 {
                eprintln!(
                    "ftb_loop: this job is not saved: ftb-launch run --backend loop saves it"
                );
            }
            return Ok(());
        };
        if let Some(set_dir) = restore {
            let of = (job_id.as_str(), *rank, *size);
            let (header, mut reader) = open_set(set_dir, of, Some(agent))?;
            self.regions.restore(&mut reader)?;
            self.next = header.safe_point;
        }
        self.stage.begin(self.next);
        if !self.config.memory_first || restore.is_some() {
            return Ok(());
        }
        let until = Instant::now() + limits::FIRST_SAVE_MAX;
        while !agent.wait(FIRST_LOOK.min(until.saturating_duration_since(Instant::now())))? {
            if !goes_on() {
                return Err(io::Error::from(ErrorKind::Interrupted).into());
            }
            if Instant::now() >= until {
                eprintln!("ftb_loop: rank {rank} begins unprotected: no request came");
                break;
            }
        }
        Ok(())
    }

    /// Takes the orders of the launch agent at this loop id, and saves where one is due.
    fn serve(&mut self, here: u64) -> Result<(), LoopError> {
        let Some(agent) = &self.agent else { return Ok(()) };
        self.stage.called(Instant::now());
        while let Some(order) = agent.order()? {
            if !self.stage.execute(order) {
                return Err(io::Error::other("the launch agent sends no order").into());
            }
        }
        if let Some(report) = self.stage.report(here) {
            agent.report(&report)?;
        }
        let answer = match self.stage.step(here) {
            LoopStep::GoOn => return Ok(()),
            LoopStep::Missed(Due { set, .. }) => RankPacket::Missed { set },
            LoopStep::Save(due) => match self.save(&due, here) {
                Ok(bytes) => RankPacket::Saved { set: due.set, bytes },
                Err(error) => RankPacket::Failed { set: due.set, reason: reason(&error) },
            },
        };
        Ok(agent.report(&answer)?)
    }

    /// Writes the image; returns its size in bytes.
    fn save(&self, due: &Due, here: u64) -> Result<u64, ImageError> {
        let LoopConfig { job_id, rank, size, image_dir, .. } = &self.config;
        let header = Header {
            job: job_id.clone(),
            rank: *rank,
            size: *size,
            set: due.set.clone(),
            episode: due.episode,
            safe_point: here,
        };
        let mut save = |writer: &mut Writer| self.regions.save(writer);
        if is_memory_set(&due.set) {
            return save_to_memory(self.agent.as_ref(), &header, &mut save);
        }
        let image_dir = image_dir.as_ref().ok_or_else(|| ImageError::Write {
            path: PathBuf::from(Header::file_name(*rank)),
            source: io::Error::other("FTB_IMAGE_DIR is not set"),
        })?;
        let set_dir = image_dir.join(&due.set);
        Ok(write_image(&set_dir, &header, Outlives::Host, &mut save)?.bytes)
    }
}

#[cfg(test)]
mod tests;
