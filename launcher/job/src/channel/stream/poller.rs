//! The thread that accepts all connections of a process and reads all its links.
//!
//! Level-triggered epoll. A link whose messages find no room in the inbox is not watched until the
//! inbox calls, so the others go on; nothing here waits for anything else. Responsible for when a
//! connection is read. Not responsible for what it says ([`Line`]), nor for sending: each thread of
//! the program writes by itself.

use super::line::{Line, reader_ended};
use super::reading::Next;
use super::socket::ListeningSocket;
use super::{Ends, files};
use crate::inbox::RoomCall;
use crate::{limits, lock, spawn_helper};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The number of the mail among what is polled.
const MAIL: u64 = 0;

/// The poller of the channels of a rank; its thread runs while one of them is open.
#[derive(Default)]
pub(super) struct Poller {
    running: Mutex<Option<Running>>,
}

struct Running {
    mail: Arc<Mail>,
    thread: JoinHandle<()>,
    /// Open ones.
    channels: usize,
}

/// What other threads want of the poller.
pub(super) struct Mail {
    waiting: Mutex<Commands>,
    wake: EventFd,
}

#[derive(Default)]
struct Commands {
    list: Vec<Command>,
    /// The thread has ended.
    is_over: bool,
}

pub(super) enum Command {
    /// A channel opens.
    Listen(Arc<Ends>, ListeningSocket, Sender<io::Result<()>>),
    /// A link that was dialled.
    Read(Line),
    /// There may be room for what that one holds.
    Look(u64),
    /// The barrier of a channel is in another state.
    Barrier,
    /// A channel is suspended.
    Leave(Arc<Ends>, Sender<()>),
    Stop,
}

impl Poller {
    /// A channel is about to open: starts the thread, if it does not run, or has ended.
    pub(super) fn enter(&self) -> io::Result<Arc<Mail>> {
        let mut running = lock(&self.running);
        if let Some(running) = &mut *running
            && !running.mail.is_over()
        {
            running.channels += 1;
            return Ok(Arc::clone(&running.mail));
        }
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = EventFd::from_value_and_flags(0, flags)?;
        let mail = Arc::new(Mail { waiting: Mutex::default(), wake });
        let polling = Polling::new(Arc::clone(&mail))?;
        let thread = spawn_helper("ftb-read", move || polling.run())?;
        let mut begun = Running { mail: Arc::clone(&mail), thread, channels: 1 };
        if let Some(over) = running.take() {
            // They leave as if they had entered this one.
            begun.channels += over.channels;
            over.thread.join().ok();
        }
        *running = Some(begun);
        Ok(mail)
    }

    /// A channel is suspended: nothing reads for it any more. `None`: it was never opened.
    pub(super) fn leave(&self, ends: Option<&Arc<Ends>>) {
        let mut running = lock(&self.running);
        let Some(left) = &mut *running else { return };
        if let Some(ends) = ends {
            let (sender, receiver) = channel();
            // One that has replaced theirs has nothing of theirs.
            left.mail.post(Command::Leave(Arc::clone(ends), sender)).ok();
            // The sender is dropped where the thread has ended.
            receiver.recv().ok();
        }
        left.channels -= 1;
        if left.channels == 0
            && let Some(last) = running.take()
        {
            last.mail.post(Command::Stop).ok();
            // A thread that panicked has nothing left to release.
            last.thread.join().ok();
        }
    }
}

impl Mail {
    /// Wakes the poller with that command.
    ///
    /// # Errors
    /// The thread has ended. The line of the command too, then.
    pub(super) fn post(&self, command: Command) -> io::Result<()> {
        let mut waiting = lock(&self.waiting);
        if waiting.is_over {
            drop(waiting);
            drop(command);
            return Err(reader_ended());
        }
        waiting.list.push(command);
        drop(waiting);
        // The counter is not full: it counts commands.
        self.wake.write(1)?;
        Ok(())
    }

    /// Whether the thread has ended.
    pub(super) fn is_over(&self) -> bool {
        lock(&self.waiting).is_over
    }

    /// No command is taken from now on.
    pub(super) fn close(&self) {
        let mut waiting = lock(&self.waiting);
        waiting.is_over = true;
        let commands = core::mem::take(&mut waiting.list);
        drop(waiting);
        drop(commands);
    }

    fn take(&self) -> Vec<Command> {
        // Nothing to read: an earlier call has read for this command too.
        self.wake.read().ok();
        core::mem::take(&mut lock(&self.waiting).list)
    }
}

/// The thread's own.
struct Polling {
    epoll: Epoll,
    mail: Arc<Mail>,
    polled: BTreeMap<u64, Polled>,
    number_last: u64,
    /// What goes on by itself at that time.
    due: BTreeSet<(Instant, u64)>,
    at_barrier: BTreeSet<u64>,
    /// For what has come; empty between two turns.
    buffer: Vec<u8>,
    /// A socket could not be watched: that is in the log.
    is_unable: bool,
}

struct Polled {
    what: What,
    is_watched: bool,
    due: Option<Instant>,
    /// Turns that came too early, one after the other.
    early: u32,
}

enum What {
    Listener(Arc<Ends>, ListeningSocket),
    Line(Line),
}

impl What {
    fn ends(&self) -> &Arc<Ends> {
        match self {
            Self::Listener(ends, _) => ends,
            Self::Line(line) => line.ends(),
        }
    }
}

impl AsFd for What {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Listener(_, socket) => socket.as_fd(),
            Self::Line(line) => line.socket().as_fd(),
        }
    }
}

impl Drop for Polling {
    /// After a panic: its lines end too.
    fn drop(&mut self) {
        self.mail.close();
    }
}

impl Polling {
    fn new(mail: Arc<Mail>) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&mail.wake, EpollEvent::new(EpollFlags::EPOLLIN, MAIL))?;
        Ok(Self {
            epoll,
            mail,
            polled: BTreeMap::new(),
            number_last: MAIL,
            due: BTreeSet::new(),
            at_barrier: BTreeSet::new(),
            buffer: vec![0; limits::READ_BYTES],
            is_unable: false,
        })
    }

    fn run(mut self) {
        const EVENTS_MAX: usize = 64;
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        loop {
            let count = match self.epoll.wait(&mut events, self.timeout()) {
                Ok(count) => count,
                Err(Errno::EINTR) => continue,
                Err(error) => {
                    tracing::error!(%error, "links are not read any more");
                    return;
                }
            };
            let mut has_mail = false;
            for event in &events[..count] {
                match event.data() {
                    MAIL => has_mail = true,
                    number => self.turn(number),
                }
            }
            if has_mail && !self.read_mail() {
                return;
            }
            self.turn_due();
        }
    }

    fn timeout(&self) -> EpollTimeout {
        let Some((first, _)) = self.due.first() else { return EpollTimeout::NONE };
        let left = first.saturating_duration_since(Instant::now());
        // Upwards: not before it is due.
        let millis = left.as_micros().div_ceil(1000);
        u16::try_from(millis).unwrap_or(u16::MAX).into()
    }

    fn turn_due(&mut self) {
        if self.due.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some((at, number)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, number));
            self.turn(number);
        }
    }

    /// False when the thread must end.
    fn read_mail(&mut self) -> bool {
        for command in self.mail.take() {
            match command {
                Command::Listen(ends, socket, answer) => {
                    // Who opens the channel waits for it.
                    answer.send(self.add_listener(ends, socket)).ok();
                }
                // It may have been suspended meanwhile.
                Command::Read(mut line) if lock(&line.ends().links).is_closed() => line.end(None),
                Command::Read(line) => self.add_line(line),
                Command::Look(number) => self.turn(number),
                Command::Barrier => {
                    for number in core::mem::take(&mut self.at_barrier) {
                        self.turn(number);
                    }
                }
                Command::Leave(ends, answer) => {
                    self.leave(&ends);
                    answer.send(()).ok();
                }
                Command::Stop => return false,
            }
        }
        true
    }

    fn leave(&mut self, ends: &Arc<Ends>) {
        let is_own = |(number, polled): (&u64, &Polled)| {
            Arc::ptr_eq(polled.what.ends(), ends).then_some(*number)
        };
        let own: Vec<u64> = self.polled.iter().filter_map(is_own).collect();
        for number in own {
            if let Some(Polled { what: What::Line(mut line), .. }) = self.remove(number) {
                line.finish(&mut self.buffer);
            }
        }
    }

    fn insert(&mut self, what: What) -> u64 {
        self.number_last += 1;
        let polled = Polled { what, is_watched: false, due: None, early: 0 };
        self.polled.insert(self.number_last, polled);
        self.number_last
    }

    fn add_listener(&mut self, ends: Arc<Ends>, socket: ListeningSocket) -> io::Result<()> {
        let number = self.insert(What::Listener(ends, socket));
        self.watch(number, true).inspect_err(|_| {
            self.remove(number);
        })
    }

    /// Something may have come already.
    fn add_line(&mut self, line: Line) {
        let number = self.insert(What::Line(line));
        self.turn(number);
    }

    fn remove(&mut self, number: u64) -> Option<Polled> {
        let polled = self.polled.remove(&number)?;
        if polled.is_watched {
            // Its end, not only that of the last descriptor.
            self.epoll.delete(&polled.what).ok();
        }
        self.at_barrier.remove(&number);
        if let Some(at) = polled.due {
            self.due.remove(&(at, number));
        }
        Some(polled)
    }

    fn watch(&mut self, number: u64, watch: bool) -> io::Result<()> {
        let Some(polled) = self.polled.get_mut(&number) else { return Ok(()) };
        if polled.is_watched != watch {
            // An end shows always where a socket is watched for nothing else.
            match watch {
                true => {
                    self.epoll.add(&polled.what, EpollEvent::new(EpollFlags::EPOLLIN, number))?;
                }
                false => self.epoll.delete(&polled.what)?,
            }
            polled.is_watched = watch;
        }
        Ok(())
    }

    fn turn(&mut self, number: u64) {
        let Some(polled) = self.polled.get_mut(&number) else { return };
        let next = match &mut polled.what {
            What::Listener(..) => self.accept(number),
            What::Line(line) => {
                let mail = &self.mail;
                line.turn(&mut self.buffer, &|| {
                    let mail = Arc::clone(mail);
                    // A poller that has ended reads nothing more.
                    let call: RoomCall = Box::new(move || drop(mail.post(Command::Look(number))));
                    call
                })
            }
        };
        self.schedule(number, next);
    }

    fn schedule(&mut self, number: u64, next: Next) {
        let Some(polled) = self.polled.get_mut(&number) else { return };
        if next == Next::Watch && polled.is_watched && polled.due.is_none() {
            return;
        }
        if next == Next::Over {
            self.remove(number);
            return;
        }
        polled.early = if next == Next::Soon { polled.early + 1 } else { 0 };
        let due = match next {
            Next::Until(at) | Next::Pause(at) => Some(at),
            Next::Soon => Some(Instant::now() + pause(polled.early)),
            Next::Watch | Next::Barrier | Next::Room | Next::Over => None,
        };
        if next == Next::Barrier {
            self.at_barrier.insert(number);
        }
        let watched = self.watch(number, matches!(next, Next::Watch | Next::Until(_)));
        // Without memory for it, say. It is healthy: it is looked at in intervals.
        let again = watched.as_ref().err().map(|_| Instant::now() + limits::ACCEPT_PAUSE);
        if let Err(error) = watched
            && !core::mem::replace(&mut self.is_unable, true)
        {
            tracing::warn!(%error, "a socket cannot be watched: it is looked at in intervals");
        }
        self.set_due(number, again.or(due));
    }

    fn set_due(&mut self, number: u64, due: Option<Instant>) {
        let Some(polled) = self.polled.get_mut(&number) else { return };
        if let Some(before) = core::mem::replace(&mut polled.due, due) {
            self.due.remove(&(before, number));
        }
        self.due.extend(due.map(|at| (at, number)));
    }

    /// Takes connections that have come; not all at once, so that links are read.
    fn accept(&mut self, number: u64) -> Next {
        let mut lines = Vec::new();
        let mut next = Next::Watch;
        if let Some(Polled { what: What::Listener(ends, socket), .. }) = self.polled.get(&number) {
            for _ in 0..limits::ACCEPTED_MAX {
                let made = match socket.accept() {
                    Ok(socket) => Line::accepted(ends, socket),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if is_passing(&error) => continue,
                    // Without a file the system does not say that there is none.
                    Err(error) if files::is_missing(&error) && !socket.is_waiting() => break,
                    Err(error) => {
                        if let Some(before) = Instant::now().checked_sub(limits::ACCEPT_PAUSE)
                            && files::is_missing(&error)
                        {
                            lock(&ends.links).turn_away(before);
                        }
                        // The connection is still there: it would be tried again at once.
                        next = Next::Pause(Instant::now() + limits::ACCEPT_PAUSE);
                        Err(files::explained(error))
                    }
                };
                match made {
                    Ok(line) => lines.push(line),
                    Err(error) => ends.report(&error),
                }
                if next != Next::Watch {
                    break;
                }
            }
        }
        lines.into_iter().for_each(|line| self.add_line(line));
        next
    }
}

/// Errors of one connection, not of the listener.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

/// Before the next turn, after `early` turns that came too early.
fn pause(early: u32) -> Duration {
    let pause = Duration::from_millis(1) * early;
    pause.min(limits::SEND_CHECK)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::connection::Connection;
    use super::super::socket::{Medium, Socket};
    use super::super::tests::opened;
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_cannot_be_watched_is_looked_at_again_and_then_watched() {
        let (channel, _) = opened(0);
        let ends = channel.ends().unwrap();
        let mail = Mail { waiting: Mutex::default(), wake: EventFd::new().unwrap() };
        let mut polling = Polling::new(Arc::new(mail)).unwrap();
        let medium = Medium::Tcp(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let (listening, _) = ListeningSocket::bind(medium, &ends.opening).unwrap();
        let (near, _far) = UnixStream::pair().unwrap();
        let link = Arc::new(Connection::new(Socket::Unix(near)));
        polling.add_listener(Arc::clone(&ends), listening).unwrap();
        polling.add_line(Line::dialled(&ends, &link, 1, 1));
        for number in [1, 2] {
            assert!(polling.polled[&number].is_watched);
            polling.schedule(number, Next::Pause(Instant::now()));
            // The system refuses what is watched already.
            let event = EpollEvent::new(EpollFlags::empty(), number);
            polling.epoll.add(&polling.polled[&number].what, event).unwrap();
            polling.schedule(number, Next::Watch);
            let again = polling.polled[&number].due.unwrap();
            assert!(!polling.polled[&number].is_watched && polling.due.contains(&(again, number)));
            polling.epoll.delete(&polling.polled[&number].what).unwrap();
            polling.turn(number);
            assert!(polling.polled[&number].is_watched && polling.due.is_empty());
        }
    }
}
