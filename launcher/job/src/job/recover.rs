//! How a program goes on from an image: in its own loop, in place after deaths, or from the images
//! of another number of ranks.

use super::images::open_image;
use super::role::RoleEvent;
use super::{Job, Restoring, Source};
use crate::agreement::Agreement;
use crate::backplane::Notice;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::image::{ImageError, Reader};
use crate::inbox::Recall;
use crate::state::{Communication, Part, StartState, State};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

impl Job {
    /// Runs a program that is a loop of steps, with a safe point behind each: where the launcher
    /// saves the job, moves ranks, or after a death has all of them go back to the last set in
    /// place, `state` is what the next step finds. `step` does one step, or finds that all are
    /// done, at the same step on all ranks.
    ///
    /// It takes the state from the image where this process was started from one. Ends the process
    /// with exit code 0 where it is to go on elsewhere.
    ///
    /// ```
    /// use ftb_job::{Job, Op, State};
    /// # use ftb_job::{Error, ImageError, Reader, Writer};
    /// # struct Count(u64);
    /// # impl State for Count {
    /// #     fn save(&self, writer: &mut Writer) -> Result<(), ImageError> {
    /// #         writer.u64("count", self.0)
    /// #     }
    /// #     fn restore(&mut self, reader: &mut Reader) -> Result<(), ImageError> {
    /// #         self.0 = reader.u64("count")?;
    /// #         Ok(())
    /// #     }
    /// # }
    /// use std::ops::ControlFlow::{Break, Continue};
    ///
    /// # fn main() -> Result<(), Error> {
    /// let mut job = Job::init()?;
    /// let mut count = Count(0);
    /// job.run(&mut count, |job, count| {
    ///     if count.0 == 10 {
    ///         return Ok(Break(()));
    ///     }
    ///     job.allreduce(Op::Max, &mut [count.0])?;
    ///     count.0 += 1;
    ///     Ok(Continue(()))
    /// })?;
    /// job.finalize()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Of the steps and the safe points; never [`Error::RolledBack`].
    pub fn run<S: State>(
        &mut self,
        state: &mut S,
        mut step: impl FnMut(&mut Self, &mut S) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        loop {
            self.can_divide(state.divides());
            self.can_roll_back(true);
            let mut run = || {
                if !self.restore(state)? {
                    self.protect_first(state)?;
                }
                while step(self, state)?.is_continue() {
                    self.progress(state)?;
                }
                // A rank that is called back now goes back as the others.
                self.can_roll_back(false);
                let recalled = self.inbox.check_recall();
                self.settle(recalled)
            };
            match run() {
                Err(Error::RolledBack) => {}
                ended => return ended,
            }
        }
    }

    /// Runs a program from a point at which it begins again when other ranks have died
    /// (EReinit): `point` learns what the process is there, takes the state with
    /// [`Job::restore`], and has safe points of its own. It passes [`Error::RolledBack`] on.
    ///
    /// Survivors keep their processes.
    ///
    /// # Errors
    /// Of `point`; never [`Error::RolledBack`].
    pub fn reinit<T>(
        &mut self,
        mut point: impl FnMut(&mut Self, StartState) -> Result<T>,
    ) -> Result<T> {
        let mut start = if self.must_restore() { StartState::Added } else { StartState::New };
        loop {
            self.can_roll_back(true);
            let ended = point(self, start).and_then(|value| {
                // A rank that is called back now goes back as the others.
                self.can_roll_back(false);
                let recalled = self.inbox.check_recall();
                self.settle(recalled).map(|()| value)
            });
            match ended {
                Err(Error::RolledBack) => start = StartState::Restarted,
                ended => return ended,
            }
        }
    }

    /// Reads the first sections of the state that this process must take, once; they are not in
    /// [`Job::restore`] then.
    pub(crate) fn peek<T>(
        &mut self,
        read: impl FnOnce(&mut Reader) -> Result<T, ImageError>,
    ) -> Result<Option<T>> {
        let Some(Restoring { source: Source::Own(reader), peeked, .. }) = &mut self.restore else {
            return Ok(None);
        };
        *peeked = true;
        Ok(Some(read(reader)?))
    }

    /// Whether [`Job::peek`] has read from what [`Job::restore`] gives.
    pub(crate) fn has_peeked(&self) -> bool {
        self.restore.as_ref().is_some_and(|restoring| restoring.peeked)
    }

    /// Whether this program handles [`Error::RolledBack`] from any call: it restores its state and
    /// goes on. Then the death of other ranks costs this process only its work since the last set;
    /// otherwise it is ended and started again. Call it before the first communication and the
    /// first safe point. [`Job::run`] does it.
    pub fn can_roll_back(&mut self, able: bool) {
        self.decided = true;
        self.control.can_roll_back(able);
    }

    /// Whether this program divides its state anew where the job goes on with fewer ranks in the
    /// same processes: [`crate::State::restore_part`] in [`Job::restore`], and another
    /// [`Job::rank`] and [`Job::size`] from then on. [`Job::run`] asks [`State::divides`]. Call it
    /// before [`Job::can_roll_back`] and [`Job::reinit`], which may answer an earlier recall.
    pub fn can_divide(&mut self, able: bool) {
        self.control.can_divide(able);
    }

    /// Restores the communication from this rank's image of the set and meets all others again.
    /// [`Job::restore`] returns the program's own state.
    pub(super) fn go_back(&mut self, recall: &Recall) -> Result<()> {
        let since = Instant::now();
        let gone = self.try_go_back(recall, since);
        if let Err(error) = &gone {
            let (episode, set, reason) = (recall.episode, recall.set.clone(), error.to_string());
            tracing::warn!(rank = self.config.rank, episode, %reason, "cannot go back in place");
            // If its launch agent has died, another process replaces this one; the others need no
            // restart.
            if !matches!(error, Error::LaunchAgentLost { .. }) {
                self.backplane.publish(&Notice::RollbackFailed { episode, set, reason });
            }
            // The launcher ends this process.
            std::thread::sleep(self.config.peer_grace);
        }
        gone
    }

    fn try_go_back(&mut self, recall: &Recall, since: Instant) -> Result<()> {
        self.turn(RoleEvent::CalledBack);
        let restore = self.config.image_dir.as_ref().map(|dir| dir.join(&recall.set));
        let of_set = Config { restore, ..self.config.clone() };
        let Some((header, mut reader)) = open_image(&of_set, self.agent.as_ref())? else {
            return Err(Error::Environment {
                variable: "FTB_IMAGE_DIR",
                value: String::new(),
                problem: "not set: there is no image to go back to".to_owned(),
            });
        };
        let (rank, size, episode) = (self.config.rank, self.config.size, recall.episode);
        let communication = Communication::restore(size, &mut reader)?;
        self.collectives = communication.collectives;
        self.members = communication.members;
        self.router.go_back(communication.sending);
        self.inbox.go_back(recall.episode, communication.receiving);
        let numbers = self.members.numbers();
        self.control.go_back(Agreement::new(rank, numbers, episode, header.safe_point));
        self.reported_unreachable.clear();
        let (source, set) = (Source::Own(reader), recall.set.clone());
        self.restore = Some(Restoring { source, set, episode, since, peeked: false });
        self.meet(episode)?;
        tracing::info!(rank, episode, set = recall.set, "went back in place");
        Ok(())
    }

    /// From the images of another number of ranks.
    pub(super) fn restore_parts(
        &self,
        state: &mut dyn State,
        size: u32,
        set_dir: &Path,
    ) -> Result<()> {
        state.begin_parts(Part { rank: self.rank(), size: self.size() });
        for rank in 0..size {
            if !state.needs_part(Part { rank, size }) {
                continue;
            }
            let of =
                Config { rank, size, restore: Some(set_dir.to_owned()), ..self.config.clone() };
            let Some((_, mut reader)) = open_image(&of, None)? else {
                continue;
            };
            if Communication::restore(size, &mut reader)?.has_messages() {
                let problem = "messages were under way: they cannot be given to fewer ranks";
                return Err(reader.refuse(problem).into());
            }
            state.restore_part(Part { rank, size }, &mut reader)?;
        }
        Ok(())
    }
}
