//! Inside a pod. Two processes of ours run there:
//!
//! - the *holder* is its first process. It keeps the namespaces alive, collects whatever is orphaned, and ends when
//!   its standard input does: the kernel then kills everything in the pod. It is never part of an image.
//! - the *tender* is the parent of the ranks: it starts them, passes on their output and PMI lines, and tells their
//!   ends. Image and tender go together: what is dumped is the tender with all that it has started. So each
//!   descriptor of a rank ends in the pod, and only the tender's two pipes lead out.
//!
//! Both are single-threaded and do nothing that CRIU would have to know more about than pipes, sockets and signals.

use super::words::{BODY_BYTES_MAX, LINE_BYTES_MAX, Said, ToTender};
use super::{activity, stop};
use crate::output::Stream;
use ftb_launcher_core::message::{Activity, How};
use ftb_launcher_core::nla::limits::PMI_LINE_BYTES_MAX;
use ftb_launcher_core::nla::pmi::wire::Decoder;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, read, setsid, write};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

/// Process ids of a new pod begin above this one, so that what enters a pod to restore an image does not take one
/// of the image's.
const FIRST_PID: u32 = 1000;

/// TCP of a pod asks again soon after another pod is back, instead of after up to as long as that one was away, where the
/// kernel can. The first setting is for pauses of about a second. The second (Linux 6.15) bounds the time between two
/// attempts, in milliseconds; with it the third lets there be so many of them that a connection outlives any time
/// that a pod may be held ([`ftb_launcher_core::nla::limits::PREPARED_MAX`]).
fn settle_tcp() {
    let set = |name: &str, value: &str| {
        std::fs::write(format!("/proc/sys/net/ipv4/{name}"), value).is_ok()
    };
    set("tcp_thin_linear_timeouts", "1");
    if set("tcp_rto_max_ms", "3000") {
        set("tcp_retries2", "255");
    }
}

/// Makes the namespaces of a pod, prints the process id of its holder, and waits for its end.
///
/// # Errors
/// The system's: most often, that this is not root.
pub fn make(fresh: bool) -> io::Result<()> {
    let all = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWPID;
    unshare(all)?;
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    let mut holder = Command::new(std::env::current_exe()?);
    holder.arg("hold-pod").stdout(Stdio::piped());
    if fresh {
        holder.arg("--fresh");
    }
    let mut child = holder.spawn()?;
    let mut ready = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut ready)?;
    }
    if ready.trim() != "ready" {
        return Err(io::Error::other("the pod's first process did not begin"));
    }
    // Not println!: that nobody listens any more is an ordinary end.
    let mut said = io::stdout();
    writeln!(said, "{}", child.id())?;
    said.flush()?;
    child.wait()?;
    Ok(())
}

/// The first process of a pod. Returns when its standard input ends.
///
/// # Errors
/// The system's.
pub fn hold(fresh: bool) -> io::Result<()> {
    let children = caught()?;
    let none: Option<&str> = None;
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), none)?;
    // The system's /sys shows the network of the system; programs find their network devices there.
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

/// SIGCHLD as something to be read.
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

/// A rank, as its tender holds it.
struct Tended {
    pid: Pid,
    out: Option<OwnedFd>,
    err: Option<OwnedFd>,
    pmi: Option<OwnedFd>,
    /// What it says there.
    pmi_texts: Decoder,
    input: Option<OwnedFd>,
    /// What it has not taken yet. The agent never sends more than its window.
    waiting: Vec<u8>,
    /// Nothing follows what waits.
    input_ends: bool,
    /// What it has done while it was not stopped. The image of the pod has it too.
    done: Activity,
    /// What the kernel had counted for it when it last went on.
    since: Activity,
}

struct Tender {
    ranks: BTreeMap<u32, Tended>,
    commands: Vec<u8>,
    held: bool,
    /// The agent is gone.
    over: bool,
}

/// Which descriptor of which rank is ready.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Commands,
    Children,
    Out(u32),
    Err(u32),
    Pmi(u32),
    In(u32),
}

/// The tender. Returns when its standard input ends; nothing that it has started lives then.
///
/// # Errors
/// The system's.
pub fn tend() -> io::Result<()> {
    // Its own IPC namespace is part of the image; no terminal is; and /dev/null is that of the pod's mounts.
    unshare(CloneFlags::CLONE_NEWIPC)?;
    let _ = setsid();
    close_strangers()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stderr(&null)?;
    drop(null);
    std::env::set_current_dir("/")?;
    let children = caught()?;
    let mut tender =
        Tender { ranks: BTreeMap::new(), commands: Vec::new(), held: false, over: false };
    say(&Said::Begun(std::process::id()))?;
    while !tender.over {
        for which in tender.ready(&children)? {
            tender.serve(which, &children)?;
        }
    }
    tender.signal_all(Signal::SIGKILL);
    Ok(())
}

/// Closes what was inherited from whoever started the launcher: it is of other mounts, and cannot be saved.
fn close_strangers() -> io::Result<()> {
    let entries = std::fs::read_dir("/proc/self/fd")?;
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    for fd in numbers.filter(|fd: &i32| *fd > 2).collect::<Vec<_>>() {
        // That of the list itself is closed already.
        let _ = nix::unistd::close(fd);
    }
    Ok(())
}

/// Tells the agent, in one piece. Waits where the pipe is full: so do the ranks then.
fn say(said: &Said) -> io::Result<()> {
    let frame = said.frame();
    loop {
        match write(io::stdout(), &frame) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

impl Tender {
    fn ready(&self, children: &SignalFd) -> io::Result<Vec<Which>> {
        let stdin = io::stdin();
        let mut all: Vec<(Which, BorrowedFd<'_>)> =
            vec![(Which::Commands, stdin.as_fd()), (Which::Children, children.as_fd())];
        for (rank, tended) in &self.ranks {
            all.extend(tended.out.as_ref().map(|fd| (Which::Out(*rank), fd.as_fd())));
            all.extend(tended.err.as_ref().map(|fd| (Which::Err(*rank), fd.as_fd())));
            if !self.held {
                all.extend(tended.pmi.as_ref().map(|fd| (Which::Pmi(*rank), fd.as_fd())));
            }
            let input = tended.input.as_ref().filter(|_| !tended.waiting.is_empty());
            all.extend(input.map(|fd| (Which::In(*rank), fd.as_fd())));
        }
        let flags = |which: &Which| match which {
            Which::In(_) => PollFlags::POLLOUT,
            _ => PollFlags::POLLIN,
        };
        let mut polled: Vec<PollFd<'_>> =
            all.iter().map(|(which, fd)| PollFd::new(*fd, flags(which))).collect();
        wait(&mut polled)?;
        let hot = all.iter().zip(&polled).filter(|(_, fd)| fd.any().unwrap_or(true));
        Ok(hot.map(|((which, _), _)| *which).collect())
    }

    fn serve(&mut self, which: Which, children: &SignalFd) -> io::Result<()> {
        match which {
            Which::Commands => self.take_commands(),
            Which::Children => {
                children.read_signal()?;
                self.collect()
            }
            Which::Out(rank) => self.pass(rank, Stream::Out),
            Which::Err(rank) => self.pass(rank, Stream::Err),
            // A command of this round may have put everybody on hold.
            Which::Pmi(rank) if !self.held => self.pass_pmi(rank),
            Which::Pmi(_) => Ok(()),
            Which::In(rank) => self.give(rank),
        }
    }

    fn take_commands(&mut self) -> io::Result<()> {
        let mut chunk = [0; 16 * 1024];
        let got = read(io::stdin(), &mut chunk)?;
        self.over = got == 0;
        self.commands.extend_from_slice(&chunk[..got]);
        while let Some(end) = self.commands.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.commands.drain(..=end).collect();
            let word = serde_json::from_slice(&line).map_err(io::Error::other)?;
            self.command(word)?;
        }
        if self.commands.len() > LINE_BYTES_MAX {
            return Err(io::Error::other("a command without an end"));
        }
        Ok(())
    }

    fn command(&mut self, word: ToTender) -> io::Result<()> {
        match word {
            ToTender::Spawn { rank, argv, env, cwd, fed } => match spawn(&argv, &env, &cwd, fed) {
                Ok(tended) => {
                    self.ranks.insert(rank, tended);
                }
                Err(error) => say(&Said::Failed(rank, error.to_string()))?,
            },
            ToTender::Input { rank, bytes } => {
                if let Some(tended) = self.ranks.get_mut(&rank) {
                    tended.input_ends = bytes.is_empty();
                    tended.waiting.extend(bytes);
                    self.give(rank)?;
                }
            }
            ToTender::Pmi { rank, line } => {
                let tended = self.ranks.get(&rank).and_then(|tended| tended.pmi.as_ref());
                // A rank that does not read its answers breaks the protocol: it loses them.
                let _ = tended.map(|fd| write(fd, line.as_bytes()));
            }
            ToTender::Signal { rank, signal } => {
                if let (Some(tended), Ok(signal)) =
                    (self.ranks.get(&rank), Signal::try_from(signal))
                {
                    let _ = killpg(tended.pid, signal);
                }
            }
            ToTender::Hold(number) => {
                self.held = true;
                stop::stop(&self.ranks.values().map(|rank| rank.pid.as_raw()).collect());
                self.add_activity();
                for (rank, tended) in &self.ranks {
                    say(&Said::Worked(*rank, tended.done))?;
                }
                say(&Said::Held(number))?;
            }
            ToTender::Sync => say(&Said::Synced)?,
            ToTender::Go => {
                if core::mem::take(&mut self.held) {
                    self.forget_activity();
                    self.signal_all(Signal::SIGCONT);
                }
            }
        }
        Ok(())
    }

    /// The ranks have just been stopped: adds what they have done since they went on.
    fn add_activity(&mut self) {
        let all = self.counted();
        for tended in self.ranks.values_mut() {
            let now = all.get(&tended.pid.as_raw()).copied().unwrap_or_default();
            let (done, since) = (&mut tended.done, tended.since);
            done.cpu_ms += now.cpu_ms.saturating_sub(since.cpu_ms);
            done.sent += now.sent.saturating_sub(since.sent);
        }
    }

    /// The ranks are about to go on. What the kernel has counted while they were saved is not theirs: a dump runs code in
    /// their processes, and processes that come from an image are counted anew.
    fn forget_activity(&mut self) {
        let all = self.counted();
        for tended in self.ranks.values_mut() {
            tended.since = all.get(&tended.pid.as_raw()).copied().unwrap_or_default();
        }
    }

    fn counted(&self) -> BTreeMap<i32, Activity> {
        activity::of(&self.ranks.values().map(|rank| rank.pid.as_raw()).collect())
    }

    fn signal_all(&self, signal: Signal) {
        for rank in self.ranks.values() {
            // One that has just ended is collected by and by.
            let _ = killpg(rank.pid, signal);
        }
    }

    /// Hands a rank what waits for it, as much as it takes. What nobody reads any more is done with.
    fn give(&mut self, rank: u32) -> io::Result<()> {
        let Some(tended) = self.ranks.get_mut(&rank) else {
            return Ok(());
        };
        let given = match tended.input.as_ref().map(|fd| write(fd, &tended.waiting)) {
            Some(Ok(given)) => given,
            Some(Err(Errno::EAGAIN | Errno::EINTR)) => 0,
            Some(Err(_)) | None => {
                tended.input = None;
                tended.waiting.len()
            }
        };
        tended.waiting.drain(..given);
        if tended.waiting.is_empty() && tended.input_ends {
            tended.input = None;
        }
        match u32::try_from(given) {
            Ok(0) | Err(_) => Ok(()),
            Ok(given) => say(&Said::Took(given)),
        }
    }

    /// Passes on what a rank has written, as much as one frame takes. `false`: there was nothing.
    fn pass_some(&mut self, rank: u32, stream: Stream) -> io::Result<bool> {
        let Some(tended) = self.ranks.get_mut(&rank) else {
            return Ok(false);
        };
        let pipe = if stream == Stream::Out { &mut tended.out } else { &mut tended.err };
        let Some(fd) = pipe.as_ref() else {
            return Ok(false);
        };
        let mut chunk = [0; BODY_BYTES_MAX];
        match read(fd, &mut chunk) {
            Ok(got @ 1..) => {
                say(&Said::Output(rank, stream, chunk[..got].to_vec()))?;
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
        let Some(tended) = self.ranks.get_mut(&rank) else {
            return Ok(());
        };
        let mut chunk = [0; PMI_LINE_BYTES_MAX];
        let got = match tended.pmi.as_ref().map(|fd| read(fd, &mut chunk)) {
            Some(Ok(got @ 1..)) => got,
            Some(Err(Errno::EAGAIN | Errno::EINTR)) => return Ok(()),
            _ => {
                tended.pmi = None;
                return Ok(());
            }
        };
        tended.pmi_texts.push(&chunk[..got]);
        loop {
            let text = match tended.pmi_texts.next_text() {
                Ok(Some(text)) if text.len() <= BODY_BYTES_MAX => text,
                Ok(None) => return Ok(()),
                // Nothing sensible can follow.
                Ok(Some(_)) | Err(_) => {
                    let _ = killpg(tended.pid, Signal::SIGKILL);
                    tended.pmi = None;
                    return Ok(());
                }
            };
            say(&Said::Pmi(rank, text))?;
        }
    }

    /// Collects everybody who has ended: ranks are told, with all their output before.
    fn collect(&mut self) -> io::Result<()> {
        loop {
            let (pid, how) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, How::Exit(code)),
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, How::Signal(signal as i32)),
                Ok(WaitStatus::StillAlive) | Err(_) => return Ok(()),
                Ok(_) => continue,
            };
            let rank = self.ranks.iter().find(|(_, tended)| tended.pid == pid);
            let Some(rank) = rank.map(|(rank, _)| *rank) else {
                continue;
            };
            // What the rank has started must not outlive it.
            let _ = killpg(pid, Signal::SIGKILL);
            self.pass_pmi(rank)?;
            for stream in [Stream::Out, Stream::Err] {
                while self.pass_some(rank, stream)? {}
            }
            self.ranks.remove(&rank);
            say(&Said::Ended(rank, how))?;
        }
    }
}

fn spawn(
    argv: &[String],
    env: &[(String, String)],
    cwd: &std::path::Path,
    fed: bool,
) -> io::Result<Tended> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::Stream, None, flags)?;
    fcntl(theirs.as_fd(), FcntlArg::F_SETFD(FdFlag::empty()))?;
    let mut command = Command::new("/proc/self/exe");
    command.arg("exec-rank").arg(std::process::id().to_string()).arg("--").args(argv);
    command.env_clear().envs(env.iter().cloned());
    command.env("PMI_FD", theirs.as_raw_fd().to_string());
    command.current_dir(cwd).process_group(0);
    command.stdin(if fed { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    drop(theirs);
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    let out = child.stdout.take().map(OwnedFd::from);
    let err = child.stderr.take().map(OwnedFd::from);
    let input = child.stdin.take().map(OwnedFd::from);
    for fd in [out.as_ref(), err.as_ref(), Some(&ours), input.as_ref()].into_iter().flatten() {
        fcntl(fd.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    }
    Ok(Tended {
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
    })
}
