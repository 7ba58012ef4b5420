//! The two own processes inside a pod.
//!
//! - The *pause process* is process 1. It keeps the namespaces alive, collects orphans, and ends
//!   with its standard input; the kernel then kills everything in the pod. It is never part of an
//!   image.
//! - The *supervisor* is the parent of the ranks. It starts them, passes on their output and PMI
//!   lines, and reports their ends. The image contains the supervisor with all its children. So
//!   every descriptor of a rank ends in the pod, and only the supervisor's two pipes lead out.
//!
//! Both are single-threaded and use only pipes, sockets and signals, which CRIU can save.

use super::ipc::{FromSupervisor, PIECE_BYTES_MAX, TO_BYTES_MAX, ToSupervisor};
use super::{net, stop};
use crate::activity::{self, Sampler};
use crate::counter::{PROGRESS_FD, StepCounter};
use crate::output::Stream;
use crate::owner;
use bytes::Bytes;
use ftb_launcher_core::message::ExitCause;
use ftb_launcher_core::nla::limits::PMI_LINE_BYTES_MAX;
use ftb_launcher_core::nla::pmi::wire::Decoder;
use ftb_launcher_core::packet::{PacketDecoder, PacketHead as _};
use ftb_launcher_core::progress::{Activity, Sample};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, read, setsid, write};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

/// Process ids of a new pod start above this number, so that a process that enters the pod for a
/// restore does not take an id of the image.
const FIRST_PID: u32 = 1000;

/// Makes TCP of a pod repeat soon after a pause, where the kernel can. The first setting is for
/// pauses of about a second. The second (Linux 6.15) limits the retransmission interval in
/// milliseconds; with it the third allows enough attempts for the longest pause
/// ([`ftb_launcher_core::nla::limits::PREPARED_MAX`]).
fn settle_tcp() {
    let set = |name: &str, value: &str| {
        std::fs::write(format!("/proc/sys/net/ipv4/{name}"), value).is_ok()
    };
    set("tcp_thin_linear_timeouts", "1");
    if set("tcp_rto_max_ms", "3000") {
        set("tcp_retries2", "255");
    }
}

/// Makes the namespaces of a pod, prints the id of the pause process, and waits for its end.
/// `user`: for an ordinary user ([`crate::owner`]). `mounts`: the process whose mounts it begins
/// with ([`crate::memory`]).
///
/// # Errors
/// The system's; most often the user is not root.
pub fn make(fresh: bool, user: bool, mounts: Option<u32>) -> io::Result<()> {
    if let Some(pid) = mounts {
        setns(File::open(format!("/proc/{pid}/ns/mnt"))?, CloneFlags::CLONE_NEWNS)?;
    }
    let all = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWPID;
    unshare(if user { all | CloneFlags::CLONE_NEWIPC } else { all })?;
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    let mut pause = Command::new(std::env::current_exe()?);
    pause.arg("pause").stdout(Stdio::piped());
    if fresh {
        pause.arg("--fresh");
    }
    let mut child = pause.spawn()?;
    let mut ready = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut ready)?;
    }
    if ready.trim() != "ready" {
        return Err(io::Error::other("the pod's first process did not begin"));
    }
    // Not `println!`: a closed output is an ordinary end.
    let mut said = io::stdout();
    writeln!(said, "{}", child.id())?;
    said.flush()?;
    child.wait()?;
    // The pause process may have been killed.
    net::cut_off();
    Ok(())
}

/// The pause process. Returns when its standard input ends. It takes the pod off the network before
/// the kernel ends the ranks: what their connections still repeat would reset those of a pod that
/// is restored with the same address.
pub fn pause(fresh: bool) -> io::Result<()> {
    let children = caught()?;
    let none: Option<&str> = None;
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), none)?;
    // The host's /sys would show the host's network devices.
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none)?;
    mount(Some("tmpfs"), "/dev/shm", Some("tmpfs"), MsFlags::empty(), Some("mode=1777"))?;
    if fresh {
        std::fs::write("/proc/sys/kernel/ns_last_pid", FIRST_PID.to_string())?;
    }
    settle_tcp();
    let mut said = io::stdout();
    writeln!(said, "ready")?;
    said.flush()?;
    let stdin = io::stdin();
    loop {
        let mut ready = [
            PollFd::new(stdin.as_fd(), PollFlags::POLLIN),
            PollFd::new(children.as_fd(), PollFlags::POLLIN),
        ];
        wait(&mut ready)?;
        if ready[0].any().unwrap_or(true) && read(&stdin, &mut [0; 64])? == 0 {
            net::cut_off();
            return Ok(());
        }
        if ready[1].any().unwrap_or(false) {
            children.read_signal()?;
            while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                if status == WaitStatus::StillAlive {
                    break;
                }
            }
        }
    }
}

/// SIGCHLD as a descriptor.
fn caught() -> io::Result<SignalFd> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGCHLD);
    set.thread_block()?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)
}

fn wait(ready: &mut [PollFd<'_>]) -> io::Result<()> {
    loop {
        match poll(ready, PollTimeout::NONE) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

struct SupervisedRank {
    pid: Pid,
    out: Option<OwnedFd>,
    err: Option<OwnedFd>,
    pmi: Option<OwnedFd>,
    pmi_texts: Decoder,
    input: Option<OwnedFd>,
    /// Input that it has not taken yet; bounded by the agent's window.
    waiting: Vec<u8>,
    /// Nothing follows `waiting`.
    input_ends: bool,
    /// What it has done while it ran. It is part of the image.
    done: Activity,
    /// The kernel's counts when the rank last continued.
    since: Activity,
    steps: StepCounter,
}

struct Supervisor {
    ranks: BTreeMap<u32, SupervisedRank>,
    commands: PacketDecoder,
    held: bool,
    over: bool,
    sampler: Sampler,
}

/// A ready descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ready {
    Commands,
    Children,
    Out(u32),
    Err(u32),
    Pmi(u32),
    In(u32),
}

/// The supervisor. Returns when its standard input ends; its children are dead then. `user`: for an
/// ordinary user; it and the ranks have no rights.
pub fn supervise(user: bool) -> io::Result<()> {
    // The image contains its own IPC namespace, no terminal, and the /dev/null of the pod's mounts.
    if user {
        owner::drop_rights()?;
    } else {
        unshare(CloneFlags::CLONE_NEWIPC)?;
    }
    let _ = setsid();
    close_inherited_fds()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stderr(&null)?;
    drop(null);
    std::env::set_current_dir("/")?;
    let children = caught()?;
    let mut supervisor = Supervisor {
        ranks: BTreeMap::new(),
        commands: PacketDecoder::new(TO_BYTES_MAX),
        held: false,
        over: false,
        sampler: Sampler::default(),
    };
    say(FromSupervisor::Begun(std::process::id()))?;
    while !supervisor.over {
        for which in supervisor.ready(&children)? {
            supervisor.serve(which, &children)?;
        }
    }
    supervisor.signal_all(Signal::SIGKILL);
    Ok(())
}

/// Closes inherited descriptors: they belong to other mounts and cannot be saved.
fn close_inherited_fds() -> io::Result<()> {
    let entries = std::fs::read_dir("/proc/self/fd")?;
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    for fd in numbers.filter(|fd: &i32| *fd > 2).collect::<Vec<_>>() {
        // The descriptor of the list is closed already.
        let _ = nix::unistd::close(fd);
    }
    Ok(())
}

/// Sends a message at once. It waits while the pipe is full, and so do the ranks.
fn say(said: FromSupervisor) -> io::Result<()> {
    let packet = said.encode();
    loop {
        match write(io::stdout(), &packet) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

impl Supervisor {
    fn ready(&self, children: &SignalFd) -> io::Result<Vec<Ready>> {
        let stdin = io::stdin();
        let mut all: Vec<(Ready, BorrowedFd<'_>)> =
            vec![(Ready::Commands, stdin.as_fd()), (Ready::Children, children.as_fd())];
        for (rank, supervised) in &self.ranks {
            all.extend(supervised.out.as_ref().map(|fd| (Ready::Out(*rank), fd.as_fd())));
            all.extend(supervised.err.as_ref().map(|fd| (Ready::Err(*rank), fd.as_fd())));
            if !self.held {
                all.extend(supervised.pmi.as_ref().map(|fd| (Ready::Pmi(*rank), fd.as_fd())));
            }
            let input = supervised.input.as_ref().filter(|_| !supervised.waiting.is_empty());
            all.extend(input.map(|fd| (Ready::In(*rank), fd.as_fd())));
        }
        let flags = |which: &Ready| match which {
            Ready::In(_) => PollFlags::POLLOUT,
            _ => PollFlags::POLLIN,
        };
        let mut polled: Vec<PollFd<'_>> =
            all.iter().map(|(which, fd)| PollFd::new(*fd, flags(which))).collect();
        wait(&mut polled)?;
        let hot = all.iter().zip(&polled).filter(|(_, fd)| fd.any().unwrap_or(true));
        Ok(hot.map(|((which, _), _)| *which).collect())
    }

    fn serve(&mut self, which: Ready, children: &SignalFd) -> io::Result<()> {
        match which {
            Ready::Commands => self.take_commands(),
            Ready::Children => {
                children.read_signal()?;
                self.collect()
            }
            Ready::Out(rank) => self.pass(rank, Stream::Out),
            Ready::Err(rank) => self.pass(rank, Stream::Err),
            // An order of this round may have stopped the ranks.
            Ready::Pmi(rank) if !self.held => self.pass_pmi(rank),
            Ready::Pmi(_) => Ok(()),
            Ready::In(rank) => self.give(rank),
        }
    }

    fn take_commands(&mut self) -> io::Result<()> {
        let mut chunk = [0; 16 * 1024];
        let got = read(io::stdin(), &mut chunk)?;
        self.over = got == 0;
        self.commands.push(&chunk[..got]);
        while let Some(word) = self.commands.next_packet().map_err(io::Error::other)? {
            self.command(word)?;
        }
        Ok(())
    }

    fn command(&mut self, word: ToSupervisor) -> io::Result<()> {
        match word {
            ToSupervisor::Spawn { rank, argv, env, cwd, stdin } => {
                match spawn(&argv, &env, &cwd, stdin) {
                    Ok(supervised) => {
                        self.ranks.insert(rank, supervised);
                    }
                    Err(error) => say(FromSupervisor::failed(rank, &error))?,
                }
            }
            ToSupervisor::Input { rank, bytes } => {
                if let Some(supervised) = self.ranks.get_mut(&rank) {
                    supervised.input_ends = bytes.is_empty();
                    supervised.waiting.extend_from_slice(&bytes);
                    self.give(rank)?;
                }
            }
            ToSupervisor::Pmi { rank, line } => {
                let supervised =
                    self.ranks.get(&rank).and_then(|supervised| supervised.pmi.as_ref());
                // A rank that does not read its PMI answers loses them.
                let _ = supervised.map(|fd| write(fd, line.as_bytes()));
            }
            ToSupervisor::Signal { rank, signal } => {
                if let (Some(supervised), Ok(signal)) =
                    (self.ranks.get(&rank), Signal::try_from(signal))
                {
                    let _ = killpg(supervised.pid, signal);
                }
            }
            ToSupervisor::Hold(number) => {
                self.held = true;
                stop::stop(&self.groups());
                self.add_activity();
                for (rank, supervised) in &self.ranks {
                    say(FromSupervisor::Worked(*rank, supervised.done))?;
                }
                say(FromSupervisor::Held(number))?;
            }
            ToSupervisor::Sample => self.sample()?,
            ToSupervisor::Sync => say(FromSupervisor::Synced)?,
            ToSupervisor::Go => {
                if core::mem::take(&mut self.held) {
                    self.forget_activity();
                    self.signal_all(Signal::SIGCONT);
                }
            }
        }
        Ok(())
    }

    /// After a stop: adds what the ranks have done since they continued.
    fn add_activity(&mut self) {
        let all = self.counted();
        for supervised in self.ranks.values_mut() {
            let now = all.get(&supervised.pid.as_raw()).copied().unwrap_or_default();
            let (done, since) = (&mut supervised.done, supervised.since);
            done.cpu_ms += now.cpu_ms.saturating_sub(since.cpu_ms);
            done.sent += now.sent.saturating_sub(since.sent);
        }
    }

    /// Before the ranks continue: the kernel's counts during a save are not theirs. A dump runs
    /// code in their processes, and restored processes are counted from 0.
    fn forget_activity(&mut self) {
        let all = self.counted();
        for supervised in self.ranks.values_mut() {
            supervised.since = all.get(&supervised.pid.as_raw()).copied().unwrap_or_default();
        }
    }

    fn counted(&self) -> BTreeMap<i32, Activity> {
        activity::done_in_pod(&self.groups())
    }

    fn groups(&self) -> BTreeSet<i32> {
        self.ranks.values().map(|rank| rank.pid.as_raw()).collect()
    }

    fn sample(&self) -> io::Result<()> {
        let seen = self.sampler.look(&self.groups());
        for (rank, supervised) in &self.ranks {
            let sample = seen.get(&supervised.pid.as_raw()).copied().unwrap_or_default();
            let sample = Sample { steps: supervised.steps.total(), ..sample };
            say(FromSupervisor::Sampled(*rank, Box::new(sample)))?;
        }
        say(FromSupervisor::SampledAll)
    }

    fn signal_all(&self, signal: Signal) {
        for rank in self.ranks.values() {
            // Ended processes are collected later.
            let _ = killpg(rank.pid, signal);
        }
    }

    /// Passes waiting input to a rank, as much as it takes. Input for a closed stream is dropped.
    fn give(&mut self, rank: u32) -> io::Result<()> {
        let Some(supervised) = self.ranks.get_mut(&rank) else {
            return Ok(());
        };
        let given = match supervised.input.as_ref().map(|fd| write(fd, &supervised.waiting)) {
            Some(Ok(given)) => given,
            Some(Err(Errno::EAGAIN | Errno::EINTR)) => 0,
            Some(Err(_)) | None => {
                supervised.input = None;
                supervised.waiting.len()
            }
        };
        supervised.waiting.drain(..given);
        if supervised.waiting.is_empty() && supervised.input_ends {
            supervised.input = None;
        }
        match u32::try_from(given) {
            Ok(0) | Err(_) => Ok(()),
            Ok(given) => say(FromSupervisor::Took(given)),
        }
    }

    /// Passes on output of a rank, at most one packet. `false`: there was none.
    fn pass_some(&mut self, rank: u32, stream: Stream) -> io::Result<bool> {
        let Some(supervised) = self.ranks.get_mut(&rank) else {
            return Ok(false);
        };
        let pipe = if stream == Stream::Out { &mut supervised.out } else { &mut supervised.err };
        let Some(fd) = pipe.as_ref() else {
            return Ok(false);
        };
        let mut chunk = [0; PIECE_BYTES_MAX];
        match read(fd, &mut chunk) {
            Ok(got @ 1..) => {
                let bytes = Bytes::copy_from_slice(&chunk[..got]);
                say(FromSupervisor::Output { rank, stream, bytes })?;
                Ok(true)
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(false),
            Ok(_) | Err(_) => {
                *pipe = None;
                Ok(false)
            }
        }
    }

    fn pass(&mut self, rank: u32, stream: Stream) -> io::Result<()> {
        self.pass_some(rank, stream).map(drop)
    }

    fn pass_pmi(&mut self, rank: u32) -> io::Result<()> {
        let Some(supervised) = self.ranks.get_mut(&rank) else {
            return Ok(());
        };
        let mut chunk = [0; PMI_LINE_BYTES_MAX];
        let got = match supervised.pmi.as_ref().map(|fd| read(fd, &mut chunk)) {
            Some(Ok(got @ 1..)) => got,
            Some(Err(Errno::EAGAIN | Errno::EINTR)) => return Ok(()),
            _ => {
                supervised.pmi = None;
                return Ok(());
            }
        };
        supervised.pmi_texts.push(&chunk[..got]);
        loop {
            let text = match supervised.pmi_texts.next_text() {
                Ok(Some(text)) if text.len() <= PIECE_BYTES_MAX => text,
                Ok(None) => return Ok(()),
                // A protocol error: nothing valid can follow.
                Ok(Some(_)) | Err(_) => {
                    let _ = killpg(supervised.pid, Signal::SIGKILL);
                    supervised.pmi = None;
                    return Ok(());
                }
            };
            say(FromSupervisor::Pmi { rank, text: text.into() })?;
        }
    }

    /// Collects ended processes. A rank's end is reported after all its output.
    fn collect(&mut self) -> io::Result<()> {
        loop {
            let (pid, how) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, ExitCause::Exit(code)),
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, ExitCause::Signal(signal as i32)),
                Ok(WaitStatus::StillAlive) | Err(_) => return Ok(()),
                Ok(_) => continue,
            };
            let rank = self.ranks.iter().find(|(_, supervised)| supervised.pid == pid);
            let Some(rank) = rank.map(|(rank, _)| *rank) else {
                continue;
            };
            // Processes that the rank has started must not outlive it.
            let _ = killpg(pid, Signal::SIGKILL);
            self.pass_pmi(rank)?;
            for stream in [Stream::Out, Stream::Err] {
                while self.pass_some(rank, stream)? {}
            }
            self.ranks.remove(&rank);
            say(FromSupervisor::Ended(rank, how))?;
        }
    }
}

fn spawn(
    argv: &[String],
    env: &[(String, String)],
    cwd: &std::path::Path,
    stdin: bool,
) -> io::Result<SupervisedRank> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::Stream, None, flags)?;
    fcntl(theirs.as_fd(), FcntlArg::F_SETFD(FdFlag::empty()))?;
    let (steps, counter) = StepCounter::new()?;
    let mut command = Command::new("/proc/self/exe");
    command.arg("exec-rank").arg(std::process::id().to_string()).arg("--").args(argv);
    command.env_clear().envs(env.iter().cloned());
    command.env("PMI_FD", theirs.as_raw_fd().to_string());
    command.env(PROGRESS_FD, counter.as_raw_fd().to_string());
    command.current_dir(cwd).process_group(0);
    command.stdin(if stdin { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    drop((theirs, counter));
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    let out = child.stdout.take().map(OwnedFd::from);
    let err = child.stderr.take().map(OwnedFd::from);
    let input = child.stdin.take().map(OwnedFd::from);
    for fd in [out.as_ref(), err.as_ref(), Some(&ours), input.as_ref()].into_iter().flatten() {
        fcntl(fd.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    }
    Ok(SupervisedRank {
        pid: Pid::from_raw(pid),
        out,
        err,
        pmi: Some(ours),
        pmi_texts: Decoder::default(),
        input,
        waiting: Vec::new(),
        input_ends: false,
        done: Activity::default(),
        since: Activity::default(),
        steps,
    })
}
