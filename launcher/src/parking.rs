//! Processes of the program that wait for a rank to replace. Each is started as a rank without
//! number, environment of a rank and output; it parks in the initialization of ftb-job
//! (`launcher/job/src/park.rs`) and gets them when a rank adopts it.
//!
//! What it prints before that stays in its pipes, and follows as the output of the rank.

use super::guard::Guard;
use super::memory::NodeMemory;
use super::rank_server::RankServer;
use super::ranks::{self, RankOutput, RankStart, Running};
use super::spec::NlaSpec;
use ftb_job::park::PARKED;
use ftb_job::rank_socket::{AgentPacket, RankSocket};
use ftb_launcher_core::message::ExitCause;
use ftb_launcher_core::nla::NlaInput;
use ftb_launcher_pods::counter::StepCounter;
use ftb_launcher_pods::output::Frame;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Most characters of the last line of a process that has ended.
const SAID_CHARS_MAX: usize = 200;
/// Most bytes in a pipe.
const PIPE_BYTES_MAX: u64 = 1 << 20;

/// The processes of this node that are no ranks.
#[derive(Debug, Default)]
pub(crate) struct ParkingLot(BTreeMap<u32, ParkedProcess>);

/// Reports what becomes of a rank.
type Tell = Box<dyn Fn(RankOutput) -> JoinHandle<()> + Send + Sync>;

/// What a process has become.
#[derive(Default)]
struct Fate {
    /// Its id may be that of another one.
    ended: bool,
    /// The rank that has adopted it.
    rank: Option<AdoptedRank>,
}

/// Hears what the process of a rank says on its PMI socket, and then of its end.
struct AdoptedRank {
    tell: Tell,
    texts: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl AdoptedRank {
    fn new(
        reader: OwnedReadHalf,
        tell: impl Fn(RankOutput) -> JoinHandle<()> + Send + Sync + Clone + 'static,
    ) -> Self {
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _ = stopped.await;
        };
        let texts = tokio::spawn(ranks::read_pmi(reader, tell.clone(), stopped));
        Self { tell: Box::new(tell), texts, stop }
    }

    /// The process has ended. Its last text comes first: the next process of the rank, which is of
    /// the same start, would be taken for its author.
    async fn end(self, how: ExitCause) {
        let Self { tell, texts, stop } = self;
        let _ = stop.send(());
        let _ = texts.await;
        let _ = tell(RankOutput::Ended(how)).await;
    }
}

/// Shared with the task that waits for its end.
#[derive(Clone, Default)]
struct FateSlot(Arc<Mutex<Fate>>);

impl FateSlot {
    fn lock(&self) -> MutexGuard<'_, Fate> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills the process group, unless the process has ended.
    fn kill(&self, pid: Pid) {
        let fate = self.lock();
        if !fate.ended {
            let _ = killpg(pid, Signal::SIGKILL);
        }
    }
}

#[derive(Debug)]
struct ParkedProcess {
    pid: Pid,
    /// A parked process exits when it is closed.
    socket: Arc<RankSocket>,
    /// Of the thread that serves it.
    rank: Arc<OnceLock<u32>>,
    pmi: StdStream,
    steps: StepCounter,
    stdin: Option<ChildStdin>,
    pipes: [OwnedFd; 2],
    fate: FateSlot,
}

/// `dyn Fn` has no `Debug`.
impl core::fmt::Debug for FateSlot {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("FateSlot")
    }
}

impl ParkedProcess {
    /// Becomes a rank. The process gets its environment last: it goes on only if nothing fails.
    fn becomes(
        self,
        spec: &NlaSpec,
        start: &RankStart,
        tell: impl Fn(RankOutput) -> JoinHandle<()> + Send + Sync + Clone + 'static,
        frames: &mpsc::Sender<Frame>,
    ) -> io::Result<Running> {
        let (reader, writer) = tokio_stream(self.pmi)?.into_split();
        self.fate.lock().rank = Some(AdoptedRank::new(reader, tell));
        ranks::read_output(start.spawn.rank, self.pipes, frames)?;
        // Its thread knows the rank before the first request.
        let _ = self.rank.set(start.spawn.rank);
        self.socket.try_send(&AgentPacket::Adopt(ranks::environment_of_rank(spec, start)))?;
        let (running, waiting) = Running::new(self.pid, self.steps, self.stdin);
        tokio::spawn(ranks::write_replies(writer, waiting));
        Ok(running)
    }
}

impl ParkingLot {
    /// Starts a process that parks. `inputs` learn when it is parked, and when it has ended.
    ///
    /// # Errors
    /// The program is missing, or the system cannot make a process.
    pub(crate) fn park(
        &mut self,
        spec: &NlaSpec,
        guard: &Guard,
        memory: Option<&NodeMemory>,
        inputs: &mpsc::Sender<NlaInput>,
    ) -> io::Result<u32> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (pmi, to_pmi) = socketpair(AddressFamily::Unix, SockType::Stream, None, flags)?;
        let (socket, to_agent) = RankSocket::pair()?;
        let (socket, rank) = (Arc::new(socket), Arc::default());
        let (steps, counter) = StepCounter::new()?;
        let mut command = command(spec, &to_pmi)?;
        ranks::inherit(&mut command, Some(&to_agent), &counter)?;
        let mut child = command.spawn()?;
        drop((to_agent, to_pmi, counter));
        let pid = ranks::pid_of(&child)?;
        let number = pid.as_raw().unsigned_abs();
        let server = RankServer {
            rank: Arc::clone(&rank),
            memory: memory.cloned(),
            loops: None,
            parked: Some((number, inputs.clone())),
        };
        let stdin = child.stdin.take();
        // The core does not know of a process that is refused here.
        let pipes = ranks::pipes_of(&mut child).and_then(|pipes| {
            server.serve(Arc::clone(&socket))?;
            Ok((pipes[1].try_clone()?, pipes))
        });
        let (last_words, pipes) = pipes.inspect_err(|_| {
            let _ = killpg(pid, Signal::SIGKILL);
        })?;
        guard.add(pid);
        let fate = FateSlot::default();
        let watched = Watched { child, pid, guard: guard.clone(), last_words };
        tokio::spawn(watch(watched, fate.clone(), inputs.clone()));
        let pmi = pmi.into();
        let parked = ParkedProcess { pid, socket, rank, pmi, steps, stdin, pipes, fate };
        self.0.insert(number, parked);
        Ok(number)
    }

    /// Lets a parked process become a rank. `None`: it is not there any more, which its end
    /// reports.
    ///
    /// # Errors
    /// It cannot be reached, or the system's. It is killed, and its end is reported.
    pub(crate) fn adopt(
        &mut self,
        pid: u32,
        spec: &NlaSpec,
        start: &RankStart,
        tell: impl Fn(RankOutput) -> JoinHandle<()> + Send + Sync + Clone + 'static,
        frames: &mpsc::Sender<Frame>,
    ) -> io::Result<Option<Running>> {
        let Some(parked) = self.0.remove(&pid) else { return Ok(None) };
        let (pid, fate) = (parked.pid, parked.fate.clone());
        let running = parked.becomes(spec, start, tell, frames);
        running.inspect_err(|_| fate.kill(pid)).map(Some)
    }

    /// Closes the socket of a process, on which a parked one exits, or kills it.
    pub(crate) fn end(&mut self, pid: u32, kill: bool) {
        if let Some(parked) = self.0.get_mut(&pid) {
            parked.socket.close();
            if kill {
                parked.fate.kill(parked.pid);
            }
        }
    }

    /// A process has ended.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.0.remove(&pid);
    }
}

fn tokio_stream(socket: StdStream) -> io::Result<UnixStream> {
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

/// The command of a process without a rank. A version of ftb-job that does not park refuses a job
/// of no ranks.
fn command(spec: &NlaSpec, pmi: &OwnedFd) -> io::Result<Command> {
    let mut command = ranks::step(&spec.argv, spec);
    let stdin = if spec.stdin { Stdio::piped() } else { Stdio::null() };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.envs(spec.env.clone()).envs(ranks::environment_of_job(spec));
    command.env("FTB_SIZE", "0").env("PMI_SIZE", "0");
    command.env("PMI_FD", ranks::inherited(pmi)?).env(PARKED, "1");
    Ok(command)
}

/// A process, and what is to be done at its end.
struct Watched {
    child: Child,
    pid: Pid,
    guard: Guard,
    last_words: OwnedFd,
}

/// Waits for the end of a process.
async fn watch(watched: Watched, fate: FateSlot, inputs: mpsc::Sender<NlaInput>) {
    let Watched { mut child, pid, guard, last_words } = watched;
    let how = ranks::ended(&mut child, pid, &guard).await;
    let rank = {
        let mut fate = fate.lock();
        fate.ended = true;
        fate.rank.take()
    };
    match rank {
        Some(rank) => rank.end(how).await,
        None => {
            let (pid, said) = (pid.as_raw().unsigned_abs(), said(last_words));
            let _ = inputs.send(NlaInput::ParkedEnded { pid, how, said }).await;
        }
    }
}

/// The last line in a pipe.
fn said(pipe: OwnedFd) -> String {
    if fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).is_err() {
        return String::new();
    }
    let mut bytes = Vec::new();
    // It ends with an error if another process has the pipe open.
    let _ = File::from(pipe).take(PIPE_BYTES_MAX).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    line.chars().take(SAID_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::spec::tests::spec;
    use ftb_launcher_core::names::Episode;
    use ftb_launcher_core::nla::Spawn;
    use std::os::unix::process::ExitStatusExt as _;

    /// A process whose socket is closed, in the lot.
    fn parked(lot: &mut ParkingLot) -> (Child, u32, FateSlot) {
        let mut command = Command::new("sleep");
        command.arg("1000").process_group(0).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (pid, fate) = (ranks::pid_of(&child).unwrap(), FateSlot::default());
        let socket = Arc::new(RankSocket::pair().unwrap().0);
        socket.close();
        let process = ParkedProcess {
            pid,
            socket,
            rank: Arc::default(),
            pmi: StdStream::pair().unwrap().0,
            steps: StepCounter::new().unwrap().0,
            stdin: None,
            pipes: ranks::pipes_of(&mut child).unwrap(),
            fate: fate.clone(),
        };
        let number = pid.as_raw().unsigned_abs();
        lot.0.insert(number, process);
        (child, number, fate)
    }

    #[tokio::test]
    async fn a_process_that_cannot_be_adopted_is_killed_and_one_that_has_ended_is_not() {
        let mut lot = ParkingLot::default();
        let (mut other, number, fate) = parked(&mut lot);
        fate.lock().ended = true;
        lot.end(number, true);
        killpg(ranks::pid_of(&other).unwrap(), Signal::SIGTERM).unwrap();
        let status = other.wait().await.unwrap();
        assert_eq!(status.signal(), Some(15), "its id was that of another process");
        let (mut child, number, _) = parked(&mut lot);
        let spawn = Spawn {
            rank: 0,
            local_rank: 0,
            local_size: 1,
            incarnation: 1,
            episode: Episode(1),
            restore: None,
            size: 1,
            set_size: None,
        };
        let start = RankStart { spawn, argv: None };
        let (frames, _output) = mpsc::channel(1);
        let tell = |_: RankOutput| tokio::spawn(async {});
        assert!(lot.adopt(number, &spec("node01"), &start, tell, &frames).is_err());
        assert_eq!(child.wait().await.unwrap().signal(), Some(9));
    }

    /// The text waits for room in the queue of the launch agent.
    #[tokio::test]
    async fn the_last_text_of_a_process_comes_before_its_end() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (say, mut said) = mpsc::channel(4);
        let new = || Arc::new(tokio::sync::Notify::new());
        let (room, begun) = (new(), new());
        let tell = {
            let (room, begun) = (Arc::clone(&room), Arc::clone(&begun));
            move |output| {
                let (say, room, begun) = (say.clone(), Arc::clone(&room), Arc::clone(&begun));
                tokio::spawn(async move {
                    if matches!(output, RankOutput::Pmi(_)) {
                        begun.notify_one();
                        room.notified().await;
                    }
                    let _ = say.send(matches!(output, RankOutput::Ended(_))).await;
                })
            }
        };
        let rank = AdoptedRank::new(ours.into_split().0, tell);
        tokio::io::AsyncWriteExt::write_all(&mut theirs, b"cmd=get_maxes\n").await.unwrap();
        begun.notified().await;
        let ending = tokio::spawn(rank.end(ExitCause::Signal(9)));
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        room.notify_one();
        ending.await.unwrap();
        assert_eq!([said.recv().await, said.recv().await], [Some(false), Some(true)]);
    }
}
