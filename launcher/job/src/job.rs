//! The job as one of its ranks sees it: start, messages, safe points, end.
//!
//! The CR layer of the thesis (section 2.2): at an agreed safe point it suspends the channels,
//! writes the image or lets the rank leave, and resumes. How the ranks agree is in
//! [`crate::agreement`], how channels are drained in [`crate::router`] and [`crate::inbox`].
//! Collective operations are in [`collectives`].

pub(crate) mod collectives;
mod divide;
pub(crate) mod images;
mod meeting;
pub(crate) mod members;
mod recover;
mod repair;
mod role;

use crate::agreement::Agreement;
use crate::backplane::{Backplane, Connect, NoBackplane, Notice};
use crate::channel::{Channel, Registry, StreamChannel};
use crate::config::Config;
use crate::control::{Control, Inputs};
use crate::descriptor::inherited;
use crate::error::{Error, Result};
use crate::frame::Class;
use crate::image::{Outlives, Reader};
use crate::inbox::{Inbox, Matched, Pattern, Waited};
use crate::pmi::Pmi;
use crate::progress::Progress;
use crate::rank_socket::{AgentLink, RankSocket};
use crate::request::{Request, RequestKind};
use crate::router::Router;
use crate::state::{Communication, State};
use crate::{events, limits, lock, park};
use divide::Divided;
use images::open_image;
use meeting::Addresses;
use members::Members;
use role::{Role, RoleEvent};
use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// One rank of a parallel job.
pub struct Job {
    config: Config,
    inbox: Arc<Inbox>,
    router: Arc<Router>,
    registry: Registry,
    addresses: Addresses,
    pmi: Option<Arc<Mutex<Pmi>>>,
    backplane: Arc<dyn Backplane>,
    control: Control,
    restore: Option<Restoring>,
    pub(crate) collectives: u32,
    progress: Progress,
    agent: Option<AgentLink>,
    reported_unreachable: BTreeSet<u32>,
    /// Whether it is known if the program can go back in place.
    decided: bool,
    role: Role,
    /// The ranks that are left.
    members: Members,
}

/// Images whose state the program has not taken.
struct Restoring {
    source: Source,
    set: String,
    /// In which episode.
    episode: u64,
    /// Start of the pause.
    since: Instant,
    /// [`Job::peek`] has read the first sections of the state.
    peeked: bool,
}

enum Source {
    /// Its own.
    Own(Reader),
    /// Those of all ranks of a set with this many, in this directory.
    Others { size: u32, set_dir: PathBuf },
    /// Those of more ranks, which give them to each other.
    Divided(Divided),
}

/// The result of a safe point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a rank that has moved away must end"]
pub enum SafePoint {
    /// There was no request.
    Passed,
    /// An image was written, or the launcher knows of the failure.
    Checkpointed,
    /// Other ranks have moved, or this one stayed.
    Stayed,
    /// This rank goes on elsewhere from its image: the process must end with exit code 0 and
    /// without [`Job::finalize`].
    MovedAway,
}

/// The parts of a job that is not started from the environment.
pub struct Setup {
    /// Names and numbers of this rank.
    pub config: Config,
    /// The connection to the PMI server; required for more than one rank.
    pub pmi: Option<UnixStream>,
    /// The channels, best first.
    pub channels: Vec<Arc<dyn Channel>>,
    /// The way to the launcher.
    pub connect: Option<Connect>,
    /// The socket to the launch agent.
    pub agent: Option<RankSocket>,
}

impl Setup {
    /// From the environment that the launcher gives. A process that is parked ([`crate::park`])
    /// waits here until a rank adopts it.
    ///
    /// # Errors
    /// [`Error::Environment`] names the variable.
    pub fn from_env() -> Result<Self> {
        let agent = RankSocket::from_env()?;
        park::wait(agent.as_ref())?;
        let config = Config::from_env()?;
        let pmi = config.pmi_fd.map(|fd| inherited("PMI_FD", fd)).transpose()?;
        Ok(Self {
            channels: Self::default_channels(&config),
            connect: events::connect_from(&config),
            pmi: pmi.map(UnixStream::from),
            agent,
            config,
        })
    }

    /// Unix sockets within a node, else TCP.
    pub fn default_channels(config: &Config) -> Vec<Arc<dyn Channel>> {
        let [unix, tcp] = StreamChannel::unix_and_tcp(config.address);
        vec![Arc::new(unix), Arc::new(tcp)]
    }
}

impl Job {
    /// Joins the job of this process; without a launcher a job of one rank.
    ///
    /// Returns when all ranks are there. A connection between two ranks is made by their first
    /// message. A process that starts from an image has its communication restored; take its state
    /// with [`Job::restore`].
    ///
    /// With `--warm-spares` and `--warm-local` processes wait in it until a rank adopts them. They
    /// get its environment only then: read none of its variables before. No other thread may read
    /// the environment during the call.
    ///
    /// # Errors
    /// A wrong environment, a refused image, or ranks that cannot connect. End the program with
    /// [`Error::exit_code`].
    pub fn init() -> Result<Self> {
        Self::start(Setup::from_env()?)
    }

    /// As [`Job::init`], with explicit parts.
    ///
    /// # Errors
    /// As [`Job::init`].
    pub fn start(setup: Setup) -> Result<Self> {
        let started = Instant::now();
        // A use that no compiler removes: the mark stays in the program.
        std::hint::black_box(&crate::MARK);
        let Setup { config, pmi, channels, connect, agent } = setup;
        let agent = agent.map(AgentLink::new);
        let (rank, size) = (config.rank, config.size);
        let others = config.restore.clone().zip(config.restore_size);
        let mut restore =
            if others.is_some() { None } else { open_image(&config, agent.as_ref())? };
        let passed = restore.as_ref().map_or(0, |(header, _)| header.safe_point);
        let inputs = Inputs::new();
        let inbox = Arc::new(Inbox::new(size, config.receive_bytes_max, inputs.control_sink()));
        let router = Arc::new(Router::new(rank, size, Arc::clone(&inbox)));
        let mut collectives = 0;
        let mut members = Members::all(size);
        if let Some((_, reader)) = &mut restore {
            let communication = Communication::restore(size, reader)?;
            collectives = communication.collectives;
            members = communication.members;
            router.restore(communication.sending);
            inbox.restore(communication.receiving);
        }
        let backplane: Arc<dyn Backplane> = match connect {
            Some(connect) => Arc::from(connect(inputs.request_sink())?),
            None => Arc::new(NoBackplane),
        };
        let agreement = Agreement::new(rank, members.numbers(), config.episode, passed);
        let registry = Registry::new(channels);
        let control = Control::new(
            inputs,
            rank,
            agreement,
            Arc::clone(&router),
            Arc::clone(&backplane),
            (Arc::clone(&inbox), registry.clone(), config.episode),
        );
        let episode = config.episode;
        let mut job = Self {
            pmi: pmi.map(Pmi::init).transpose()?.map(|pmi| Arc::new(Mutex::new(pmi))),
            registry,
            addresses: Addresses::default(),
            restore: restore
                .map(|(header, reader)| (Source::Own(reader), header.set))
                .or(others.map(|(set_dir, size)| (Source::Others { size, set_dir }, String::new())))
                .map(|(source, set)| Restoring {
                    source,
                    set,
                    episode,
                    since: started,
                    peeked: false,
                }),
            reported_unreachable: BTreeSet::new(),
            progress: Progress::new(config.progress_fd),
            agent,
            config,
            inbox,
            router,
            backplane,
            control,
            collectives,
            decided: false,
            role: Role::Bootstrapping,
            members,
        };
        let fenced = job.meet(episode);
        job.settle(fenced)?;
        job.control.listen()?;
        Ok(job)
    }

    /// The rank of this process, from 0. It changes where the job goes on with fewer ranks in the
    /// same processes: those that are left are numbered anew in the same order.
    pub fn rank(&self) -> u32 {
        self.members.rank_of(self.config.rank).unwrap_or(self.config.rank)
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.members.len()
    }

    /// The number by which launcher, images and links know a rank.
    fn number(&self, rank: u32) -> Result<u32> {
        let size = self.size();
        self.members.number_of(rank).ok_or(Error::NoSuchRank { rank, size })
    }

    /// The node's name; empty without a launcher.
    pub fn node(&self) -> &str {
        &self.config.node
    }

    /// The job's id; empty without a launcher.
    pub fn id(&self) -> &str {
        &self.config.job_id
    }

    /// The name of the present channel to that rank.
    pub fn channel_to(&self, rank: u32) -> Option<&'static str> {
        self.router.route_name(self.members.number_of(rank)?)
    }

    /// Whether the process was started from an image and has not taken its state.
    pub fn must_restore(&self) -> bool {
        self.restore.is_some()
    }

    /// Takes the state from the image of this process; false without one.
    ///
    /// # Errors
    /// [`Error::Image`] if the image is not of this program; the state may be partly restored.
    pub fn restore(&mut self, state: &mut dyn State) -> Result<bool> {
        let Some(Restoring { source, episode, since, .. }) = self.restore.take() else {
            return Ok(false);
        };
        match source {
            Source::Own(mut reader) => state.restore(&mut reader)?,
            Source::Others { size, set_dir } => self.restore_parts(state, size, &set_dir)?,
            Source::Divided(divided) => self.divide(state, &divided)?,
        }
        self.turn(RoleEvent::Taken);
        self.backplane.publish(&Notice::Resumed { episode, took_us: elapsed_us(since) });
        Ok(true)
    }

    /// Sends a message. Messages of a pair with the same tag arrive in order. May block while the
    /// receiver has too many waiting messages.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn send(&mut self, to: u32, tag: u32, message: &[u8]) -> Result<()> {
        self.give(to, Class::User, tag, message)
    }

    /// Waits for the next message with that tag from that rank.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn recv(&mut self, from: u32, tag: u32) -> Result<Vec<u8>> {
        self.take(from, Class::User, tag)
    }

    /// For other threads of the program, to send while this one computes.
    pub fn sender(&self) -> Sender {
        Sender {
            era: self.router.era(),
            router: Arc::clone(&self.router),
            members: self.members.clone(),
        }
    }

    /// A safe point: `state` and the messages under way are all that the program needs to go on.
    /// Executes the launcher's request, if any; ends the process with exit code 0 if the rank goes
    /// on elsewhere.
    ///
    /// All ranks pass the same number of safe points. Before its n-th, no rank needs a message that
    /// another sends after its n-th. At least one a second keeps the launcher from waiting.
    ///
    /// # Errors
    /// See [`Error`]. A failed checkpoint is reported to the launcher and is not an error.
    pub fn progress(&mut self, state: &dyn State) -> Result<()> {
        match self.safe_point(state)? {
            SafePoint::MovedAway => process::exit(0),
            SafePoint::Passed | SafePoint::Checkpointed | SafePoint::Stayed => Ok(()),
        }
    }

    /// As [`Job::progress`], for a program that ends by itself after it has moved away.
    ///
    /// # Errors
    /// As [`Job::progress`].
    pub fn safe_point(&mut self, state: &dyn State) -> Result<SafePoint> {
        self.safe_point_until(None, state)
    }

    /// Saves the job in memory before its first step, if the launcher is to do so: a safe point
    /// that waits for its request, at most [`limits::FIRST_SAVE_MAX`]. Call it once, before the
    /// first step of a program that was not restored. [`Job::run`] does it.
    ///
    /// # Errors
    /// As [`Job::progress`].
    pub fn protect_first(&mut self, state: &dyn State) -> Result<()> {
        match self.first_safe_point(state)? {
            SafePoint::MovedAway => process::exit(0),
            SafePoint::Passed | SafePoint::Checkpointed | SafePoint::Stayed => Ok(()),
        }
    }

    /// As [`Job::protect_first`], for a program that ends by itself after it has moved away.
    pub(crate) fn first_safe_point(&mut self, state: &dyn State) -> Result<SafePoint> {
        if !self.config.memory_first {
            return Ok(SafePoint::Passed);
        }
        let until = Instant::now() + limits::FIRST_SAVE_MAX;
        let passed = self.safe_point_until(Some(until), state)?;
        if passed == SafePoint::Passed {
            tracing::warn!(rank = self.config.rank, "the job begins unprotected: no request came");
        }
        Ok(passed)
    }

    fn safe_point_until(&mut self, until: Option<Instant>, state: &dyn State) -> Result<SafePoint> {
        self.decide();
        self.progress.step();
        let recalled = self.inbox.check_recall();
        self.settle(recalled)?;
        if let Some(restoring) = &self.restore {
            let path = match &restoring.source {
                Source::Own(reader) => reader.path().display().to_string(),
                Source::Others { set_dir, .. } => set_dir.display().to_string(),
                Source::Divided(divided) => divided.set.clone(),
            };
            return Err(Error::NotRestored { path });
        }
        let inbox = Arc::clone(&self.inbox);
        let hopeless = || {
            // A report may wait behind messages that wait for room.
            inbox.lift_bound();
            inbox.check_recall()?;
            inbox.check_all()
        };
        let arrived = self.control.arrive(until, &hopeless);
        let Some(request) = self.settle(arrived)? else {
            return Ok(SafePoint::Passed);
        };
        let acted = self.act(&request, state);
        self.settle(acted)
    }

    /// The end: waits for all ranks, then leaves.
    ///
    /// # Errors
    /// A rank that did not reach its end.
    pub fn finalize(mut self) -> Result<()> {
        // The program cannot go back from here.
        self.control.can_roll_back(false);
        if self.goes_on() {
            self.finish()?;
        } else {
            self.barrier()?;
            self.stop_control();
        }
        self.inbox.begin_finish();
        self.router.goodbye();
        self.inbox.wait_finished(self.config.rank, self.goes_on())?;
        // Of deaths until here the wait had to hear.
        self.stop_control();
        self.backplane.confirm(limits::LAST_WORD_TIMEOUT);
        if let Some(pmi) = &self.pmi {
            lock(pmi).finalize()?;
        }
        Ok(())
    }

    fn stop_control(&mut self) {
        for request in self.control.stop() {
            self.refuse(&request, "the program has come to its end");
        }
    }

    /// Ends the whole job with that exit code.
    pub fn abort(self, exit_code: u8) -> ! {
        if let Some(pmi) = &self.pmi
            && let Err(error) = lock(pmi).abort(exit_code)
        {
            tracing::warn!(rank = self.config.rank, %error, "abort not sent");
        }
        process::exit(exit_code.into())
    }

    pub(crate) fn take(&mut self, from: u32, class: Class, tag: u32) -> Result<Vec<u8>> {
        self.take_among((from, &[]), class, tag)
    }

    /// The same; it fails if one of the `involved` processes dies.
    pub(crate) fn take_among(
        &mut self,
        (from, involved): (u32, &[u32]),
        class: Class,
        tag: u32,
    ) -> Result<Vec<u8>> {
        self.decide();
        let (from, wait) = (self.number(from)?, limits::UNLINKED_MAX);
        let taken = self.inbox.take((from, involved), class, tag, wait).and_then(|taken| {
            match taken {
                Some(payload) => Ok(payload),
                // Only a link shows whether the other rank lives.
                None => {
                    self.router.reach(from)?;
                    self.inbox.take_linked((from, involved), class, tag)
                }
            }
        });
        self.progress.step();
        self.settle(taken)
    }

    /// A program that communicates without having declared that it can go back, cannot.
    fn decide(&mut self) {
        if !self.decided {
            self.can_roll_back(false);
        }
    }

    /// Waits for messages for posted receives, until there is one or one of `wanted` fails; none
    /// where only a link shows that a sender lives.
    pub(crate) fn take_posted(
        &mut self,
        posted: &[Pattern],
        wanted: &[Waited<'_>],
    ) -> Result<Vec<Matched>> {
        self.decide();
        let posted = self.numbered(posted)?;
        let taken = self.inbox.take_posted(&posted, wanted, limits::UNLINKED_MAX);
        let taken = taken.and_then(|matched| {
            if matched.is_empty() {
                let mut senders = wanted.iter().filter_map(|(at, _)| posted.get(*at)?.from);
                senders.try_for_each(|from| self.router.reach(from))?;
            }
            Ok(matched)
        });
        self.progress.step();
        self.matched(taken)
    }

    /// The messages for posted receives that are there. Fails if that receive does.
    pub(crate) fn look_posted(
        &mut self,
        posted: &[Pattern],
        wanted: Waited<'_>,
    ) -> Result<Vec<Matched>> {
        self.decide();
        let posted = self.numbered(posted)?;
        let taken = self.inbox.look_posted(&posted, wanted);
        // A rank that looks again and again makes no progress.
        if taken.as_ref().is_ok_and(|matched| !matched.is_empty()) {
            self.progress.step();
        }
        self.matched(taken)
    }

    /// With the processes of the ranks.
    fn numbered(&self, posted: &[Pattern]) -> Result<Vec<Pattern>> {
        let number = |pattern: &Pattern| {
            let from = pattern.from.map(|rank| self.number(rank)).transpose()?;
            Ok(Pattern { from, ..*pattern })
        };
        posted.iter().map(number).collect()
    }

    /// With the ranks of the processes.
    fn matched(&mut self, taken: Result<Vec<Matched>>) -> Result<Vec<Matched>> {
        let mut matched = self.settle(taken)?;
        for message in &mut matched {
            message.from = self.members.rank_of(message.from).unwrap_or(message.from);
        }
        Ok(matched)
    }

    pub(crate) fn give(&mut self, to: u32, class: Class, tag: u32, message: &[u8]) -> Result<()> {
        self.decide();
        let to = self.number(to)?;
        let lives = self.check_living(&[to], class);
        let sent = lives.and_then(|()| self.router.send(to, class, tag, message));
        self.progress.step();
        self.settle(sent)
    }

    /// After the loss of a peer the launcher gets time to call this rank back or to end it, before
    /// the program fails.
    fn settle<T>(&mut self, result: Result<T>) -> Result<T> {
        let is_remedied = self.config.agent_socket.is_some();
        if let Err(Error::PeerLost { rank, reason }) = &result
            && self.reported_unreachable.insert(*rank)
        {
            let (peer, reason) = (*rank, reason.clone());
            self.backplane.publish(&Notice::Unreachable { peer, reason });
        }
        if self.goes_on() {
            let result = result.map_err(Error::tolerated);
            return result.map_err(|error| error.named(|number| self.members.rank_of(number)));
        }
        let recalled = match &result {
            Err(Error::PeerLost { .. } | Error::Channel { .. }) if is_remedied => {
                self.inbox.wait_recall(self.config.peer_grace)
            }
            Err(Error::RolledBack) => true,
            _ => false,
        };
        if let Some(recall) = self.inbox.recall().filter(|_| recalled) {
            self.go_back(&recall)?;
            return Err(Error::RolledBack);
        }
        result.map_err(|error| error.named(|number| self.members.rank_of(number)))
    }

    fn act(&mut self, request: &Request, state: &dyn State) -> Result<SafePoint> {
        let episode = request.episode;
        let started = Instant::now();
        self.inbox.begin_drain();
        let sent = self.router.suspend();
        let inbox = Arc::clone(&self.inbox);
        let hopeless = || {
            inbox.check_recall()?;
            inbox.check_all()
        };
        let expected = self.control.exchange(sent, &hopeless)?;
        self.inbox.wait_drained(self.config.rank, &expected)?;
        self.backplane.publish(&Notice::Suspended { episode, took_us: elapsed_us(started) });
        tracing::info!(rank = self.config.rank, episode, "running->suspended");
        let outcome = match &request.kind {
            RequestKind::Migrate { set, ranks } => {
                self.inbox.links_down();
                self.registry.suspend();
                let leaves = ranks.contains(&self.config.rank);
                if leaves && self.leave(request, set, state) {
                    return Ok(SafePoint::MovedAway);
                }
                self.turn(RoleEvent::Moving);
                self.meet(episode)?;
                SafePoint::Stayed
            }
            RequestKind::Checkpoint { set } => {
                let notice = self.save(request, set, state, Outlives::Host);
                self.inbox.end_suspension();
                self.router.resume()?;
                self.control.answer(notice);
                SafePoint::Checkpointed
            }
            // These never begin a safe point.
            RequestKind::Abort | RequestKind::Rollback { .. } | RequestKind::Repair(_) => {
                SafePoint::Passed
            }
        };
        self.control.finished();
        self.backplane.publish(&Notice::Resumed { episode, took_us: elapsed_us(started) });
        tracing::info!(rank = self.config.rank, episode, "suspended->running");
        Ok(outcome)
    }

    fn turn(&mut self, event: RoleEvent) {
        let (rank, from) = (self.config.rank, self.role);
        let to = from.after(event);
        debug_assert!(to.is_some(), "{event:?} cannot happen in {from:?}");
        self.role = to.unwrap_or(from);
        tracing::debug!(rank, ?from, to = ?self.role, ?event, "role");
    }

    /// Answers a request that will not be executed.
    fn refuse(&self, request: &Request, reason: &str) {
        let awaited = match &request.kind {
            RequestKind::Checkpoint { .. } => true,
            RequestKind::Migrate { ranks, .. } => ranks.contains(&self.config.rank),
            RequestKind::Abort | RequestKind::Rollback { .. } | RequestKind::Repair(_) => false,
        };
        if let Some(set) = request.set().filter(|_| awaited) {
            self.backplane.publish(&Notice::CheckpointFailed {
                episode: request.episode,
                set: set.to_owned(),
                reason: reason.to_owned(),
            });
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Readers may wait for room, and the control thread for input: both end.
        self.inbox.lift_bound();
        self.control.stop();
        self.inbox.links_down();
        self.registry.suspend();
        self.router.set_directory(None);
    }
}

/// Sends messages from any thread of the program. Messages during a suspension follow when the
/// channels are resumed, here or in the process that goes on elsewhere.
#[derive(Clone)]
pub struct Sender {
    router: Arc<Router>,
    era: u64,
    members: Members,
}

impl Sender {
    /// As [`Job::send`]; a lost peer fails at once. After a rollback in place get a new sender from
    /// [`Job::sender`].
    ///
    /// # Errors
    /// See [`Error`].
    pub fn send(&self, to: u32, tag: u32, message: &[u8]) -> Result<()> {
        let size = self.members.len();
        let number = self.members.number_of(to).ok_or(Error::NoSuchRank { rank: to, size })?;
        self.router.send_in(self.era, number, Class::User, tag, message)
    }
}

fn elapsed_us(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX)
}
