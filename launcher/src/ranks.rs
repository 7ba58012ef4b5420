//! The processes of ranks: started with their environment, PMI socket and output pipes, watched,
//! killed.
//!
//! A rank starts through this program's `exec-rank` step, which asks the kernel to kill the rank
//! with the NLA and then becomes the rank. Each rank leads its own process group, so that its
//! children are killed with it.

use super::guard::Guard;
use super::loops::Loops;
use super::memory::NodeMemory;
use super::rank_server::RankServer;
use super::spec::NlaSpec;
use ftb_job::rank_socket::{RANK_FD, RankSocket};
use ftb_launcher_core::message::ExitCause;
use ftb_launcher_core::nla::Spawn;
use ftb_launcher_core::nla::limits::PMI_LINE_BYTES_MAX;
use ftb_launcher_core::nla::pmi::wire::Decoder;
use ftb_launcher_pods::counter::{PROGRESS_FD, StepCounter};
use ftb_launcher_pods::images;
use ftb_launcher_pods::output::{self, Frame, Stream};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::Pid;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;

/// Most PMI answers that wait for a rank. A rank has one open request, so more break the protocol.
const REPLIES_MAX: usize = 16;

/// What a rank is started with.
#[derive(Clone, Debug)]
pub struct RankStart {
    pub spawn: Spawn,
    /// Its command line, if not the job's program.
    pub argv: Option<Vec<String>>,
}

/// A running rank.
#[derive(Debug)]
pub struct Running {
    /// Its standard input, if the job gives it one.
    pub stdin: Option<ChildStdin>,
    pid: Pid,
    replies: mpsc::Sender<String>,
    steps: StepCounter,
}

impl Running {
    /// A process of a rank, and the PMI answers that are to be written to it.
    pub(super) fn new(
        pid: Pid,
        steps: StepCounter,
        stdin: Option<ChildStdin>,
    ) -> (Self, mpsc::Receiver<String>) {
        let (replies, waiting) = mpsc::channel(REPLIES_MAX);
        (Self { stdin, pid, replies, steps }, waiting)
    }

    /// Sends a signal to its process group. An ended group is ignored.
    pub fn signal(&self, signal: i32) {
        if let Ok(signal) = Signal::try_from(signal) {
            let _ = killpg(self.pid, signal);
        }
    }

    pub fn pid(&self) -> u32 {
        self.pid.as_raw().unsigned_abs()
    }

    /// Calls of `ftb_progress`, safe points and messages of ftb-job so far.
    pub fn steps(&self) -> u64 {
        self.steps.total()
    }

    /// Sends a PMI answer. A rank that does not read its answers loses them.
    pub fn reply(&self, line: String) {
        if self.replies.try_send(line).is_err() {
            tracing::warn!(pid = self.pid.as_raw(), "a rank does not read its PMI answers");
        }
    }
}

/// A message of a rank.
#[derive(Debug)]
pub enum RankOutput {
    /// A PMI line or message.
    Pmi(String),
    Ended(ExitCause),
}

/// Starts a rank. Its messages go through `tell`, its output to `frames`.
///
/// # Errors
/// The program is missing, or the system cannot make a process.
pub fn start(
    spec: &NlaSpec,
    start: &RankStart,
    tell: impl Fn(RankOutput) -> tokio::task::JoinHandle<()> + Send + Sync + Clone + 'static,
    frames: &mpsc::Sender<Frame>,
    (guard, memory, loops): (&Guard, Option<&NodeMemory>, Option<&Loops>),
) -> io::Result<Running> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::Stream, None, flags)?;
    let (steps, counter) = StepCounter::new()?;
    let (rank, incarnation) = (start.spawn.rank, start.spawn.incarnation);
    let mut command = command(spec, start, &theirs)?;
    let mut to_agent = None;
    if memory.is_some() || loops.is_some() {
        let (socket, end) = RankSocket::pair()?;
        let loops = loops.map(|loops| (loops.clone(), incarnation));
        let (rank, memory) = (Arc::new(rank.into()), memory.cloned());
        RankServer { rank, memory, loops, parked: None }.serve(Arc::new(socket))?;
        to_agent = Some(end);
    }
    if loops.is_some() {
        command.env("FTB_LOOP", "1");
    }
    inherit(&mut command, to_agent.as_ref(), &counter)?;
    let mut child = command.spawn()?;
    drop((theirs, counter, to_agent));
    let pid = pid_of(&child)?;
    guard.add(pid);
    read_output(rank, pipes_of(&mut child)?, frames)?;
    let (running, waiting) = Running::new(pid, steps, child.stdin.take());
    let ours = std::os::unix::net::UnixStream::from(ours);
    ours.set_nonblocking(true)?;
    let (reader, writer) = UnixStream::from_std(ours)?.into_split();
    tokio::spawn(write_replies(writer, waiting));
    tokio::spawn(watch(child, pid, reader, tell, guard.clone()));
    Ok(running)
}

pub(super) fn pid_of(child: &Child) -> io::Result<Pid> {
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    pid.ok_or_else(|| io::Error::other("a process without an id"))
}

/// The ends of the pipes with its output: standard output, standard error.
pub(super) fn pipes_of(child: &mut Child) -> io::Result<[OwnedFd; 2]> {
    let none = || io::Error::other("a process without output");
    let out = child.stdout.take().ok_or_else(none)?.into_owned_fd()?;
    Ok([out, child.stderr.take().ok_or_else(none)?.into_owned_fd()?])
}

/// Passes on the output of a rank.
pub(super) fn read_output(
    rank: u32,
    pipes: [OwnedFd; 2],
    frames: &mpsc::Sender<Frame>,
) -> io::Result<()> {
    for (stream, pipe) in [Stream::Out, Stream::Err].into_iter().zip(pipes) {
        let pipe = tokio::net::unix::pipe::Receiver::from_owned_fd(pipe)?;
        tokio::spawn(output::read(rank, stream, pipe, frames.clone()));
    }
    Ok(())
}

/// Gives the process these descriptors.
pub(super) fn inherit(
    command: &mut Command,
    to_agent: Option<&OwnedFd>,
    counter: &OwnedFd,
) -> io::Result<()> {
    if let Some(to_agent) = to_agent {
        command.env(RANK_FD, inherited(to_agent)?);
    }
    command.env(PROGRESS_FD, counter.as_raw_fd().to_string());
    Ok(())
}

/// The step between this agent and the program, without environment and files.
pub(super) fn step(argv: &[String], spec: &NlaSpec) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("exec-rank").arg(std::process::id().to_string()).arg("--").args(argv);
    command.env_clear().current_dir(&spec.cwd).process_group(0);
    command
}

fn command(spec: &NlaSpec, start: &RankStart, pmi: &OwnedFd) -> io::Result<Command> {
    let pmi = inherited(pmi)?;
    let mut command = step(start.argv.as_ref().unwrap_or(&spec.argv), spec);
    command.envs(environment(spec, start)).env("PMI_FD", pmi);
    let fed = spec.stdin && start.spawn.rank == 0;
    command.stdin(if fed { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// The number of a descriptor that the child inherits. One thread starts all processes and closes
/// its copy before the next one, so no other rank inherits it.
pub(super) fn inherited(descriptor: &OwnedFd) -> io::Result<String> {
    fcntl(descriptor.as_fd(), FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(descriptor.as_raw_fd().to_string())
}

/// The environment of a rank, without the number of its PMI descriptor.
pub(super) fn environment(spec: &NlaSpec, start: &RankStart) -> Vec<(String, String)> {
    let mut env = spec.env.clone();
    env.extend(environment_of_job(spec));
    env.extend(environment_of_rank(spec, start));
    env
}

/// What all processes of the job on this node get.
pub(super) fn environment_of_job(spec: &NlaSpec) -> Vec<(String, String)> {
    let env = [
        ("FTB_JOB_ID", spec.job.to_string()),
        ("FTB_NODE", spec.node.to_string()),
        ("PMI_SPAWNED", "0".to_owned()),
        ("PMI_JOBID", spec.job.to_string()),
        ("MASTER_ADDR", spec.master_addr.clone()),
        ("MASTER_PORT", spec.master_port.to_string()),
        ("FTB_AGENT_SOCKET", spec.agent.display().to_string()),
        ("FTB_IMAGE_DIR", spec.image_dir.display().to_string()),
    ];
    env.map(|(key, value)| (key.to_owned(), value)).into()
}

/// What a rank gets beside it.
pub(super) fn environment_of_rank(spec: &NlaSpec, start: &RankStart) -> Vec<(String, String)> {
    let (rank, size) = (start.spawn.rank.to_string(), start.spawn.size.to_string());
    let own = [
        ("FTB_RANK", rank.clone()),
        ("FTB_SIZE", size.clone()),
        ("FTB_LOCAL_RANK", start.spawn.local_rank.to_string()),
        ("FTB_EPISODE", start.spawn.episode.to_string()),
        ("FTB_INCARNATION", start.spawn.incarnation.to_string()),
        ("PMI_RANK", rank.clone()),
        ("PMI_SIZE", size.clone()),
        ("RANK", rank),
        ("WORLD_SIZE", size),
        ("LOCAL_RANK", start.spawn.local_rank.to_string()),
        ("LOCAL_WORLD_SIZE", start.spawn.local_size.to_string()),
    ];
    let mut env: Vec<_> = own.map(|(key, value)| (key.to_owned(), value)).into();
    let first = spec.memory.as_ref().is_some_and(|memory| memory.first);
    if first && start.spawn.restore.is_none() {
        env.push(("FTB_MEMORY_FIRST".to_owned(), "1".to_owned()));
    }
    if let Some(set) = &start.spawn.restore {
        let image = images::path(&spec.image_dir, set, start.spawn.rank);
        env.push((
            "FTB_RESTORE".to_owned(),
            spec.image_dir.join(set.as_str()).display().to_string(),
        ));
        if let Some(size) = start.spawn.set_size {
            env.push(("FTB_RESTORE_SIZE".to_owned(), size.to_string()));
        }
        env.push(("FTB_IMAGE".to_owned(), image.display().to_string()));
    }
    env
}

pub(super) async fn write_replies(
    mut writer: tokio::net::unix::OwnedWriteHalf,
    mut waiting: mpsc::Receiver<String>,
) {
    while let Some(line) = waiting.recv().await {
        if writer.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Reads the PMI socket of a rank. An endless text is passed on as its error.
/// Until `stop`, which interrupts no text.
pub(super) async fn read_pmi(
    mut reader: tokio::net::unix::OwnedReadHalf,
    tell: impl Fn(RankOutput) -> tokio::task::JoinHandle<()>,
    stop: impl Future<Output = ()>,
) {
    let mut stop = core::pin::pin!(stop);
    let mut decoder = Decoder::default();
    let mut chunk = vec![0; PMI_LINE_BYTES_MAX];
    loop {
        let (text, last) = match decoder.next_text() {
            Ok(Some(text)) => (text, false),
            Ok(None) => {
                let got = tokio::select! {
                    got = reader.read(&mut chunk) => got,
                    () = &mut stop => return,
                };
                match got {
                    Ok(0) | Err(_) => return,
                    Ok(got) => decoder.push(&chunk[..got]),
                }
                continue;
            }
            Err(problem) => (problem, true),
        };
        if tell(RankOutput::Pmi(text)).await.is_err() || last {
            return;
        }
    }
}

/// Waits for the end of a rank.
async fn watch(
    mut child: Child,
    pid: Pid,
    reader: tokio::net::unix::OwnedReadHalf,
    tell: impl Fn(RankOutput) -> tokio::task::JoinHandle<()> + Send + Sync + Clone + 'static,
    guard: Guard,
) {
    let texts = tokio::spawn(read_pmi(reader, tell.clone(), core::future::pending()));
    let how = ended(&mut child, pid, &guard).await;
    texts.abort();
    let _ = tell(RankOutput::Ended(how)).await;
}

/// Waits for the end of a process. Those that it has started end with it.
pub(super) async fn ended(child: &mut Child, pid: Pid, guard: &Guard) -> ExitCause {
    let how = match child.wait().await {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => ExitCause::Exit(code),
            (None, Some(signal)) => ExitCause::Signal(signal),
            (None, None) => ExitCause::Exit(1),
        },
        Err(_) => ExitCause::Exit(1),
    };
    // Processes that the rank has started must not outlive it.
    let _ = killpg(pid, Signal::SIGKILL);
    guard.remove(pid);
    how
}

/// The step between the NLA and the program: dies with the NLA, becomes the program. Returns only
/// on failure.
///
/// # Errors
/// Why the program cannot start.
pub fn exec(parent: u32, argv: &[String]) -> String {
    use std::os::unix::process::CommandExt;
    let Some((program, arguments)) = argv.split_first() else {
        return "no program was given".to_owned();
    };
    // A supervisor blocks SIGCHLD, which its children inherit.
    let mut set = SigSet::empty();
    set.add(Signal::SIGCHLD);
    let _ = set.thread_unblock();
    if let Err(error) = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL) {
        return format!("cannot ask to die with the launch agent: {error}");
    }
    // The agent may have died before the request.
    if Pid::parent().as_raw().unsigned_abs() != parent {
        let _ = kill(Pid::this(), Signal::SIGKILL);
    }
    let error = std::process::Command::new(program).args(arguments).exec();
    format!("cannot start {program}: {error}")
}
