//! Standard output and standard error of the launcher and the launch agents. Writing never blocks
//! or ends the process.
//!
//! A thread writes each stream. The process' own lines wait in a queue of at most
//! [`QUEUE_BYTES_MAX`]; further lines are dropped and counted, and a line reports the count later.
//! Output of ranks waits for its turn ([`Console::write`]), so a reader that stops also stops the
//! ranks. Output that cannot be written (closed pipe, full disk) is lost; the process goes on and
//! counts it ([`Console::lost`]).

use core::time::Duration;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;
use tokio::sync::oneshot;

/// Most bytes of lines that wait to be written.
pub const QUEUE_BYTES_MAX: usize = 256 * 1024;
/// Longest own line; the rest is cut.
pub const LINE_BYTES_MAX: usize = 16 * 1024;

/// Time for the last lines at the end of the process.
pub const FINISH_WAIT: Duration = Duration::from_secs(5);
/// Exit code of a successful process with lost output (EX_IOERR of sysexits.h).
pub const OUTPUT_LOST: u8 = ftb_cli::OUTPUT_LOST;

static OUT: LazyLock<Console> = LazyLock::new(|| Console::of(io::stdout().as_fd()));
static ERR: LazyLock<Console> = LazyLock::new(|| Console::of(io::stderr().as_fd()));

/// Standard output of this process.
pub fn out() -> &'static Console {
    &OUT
}

/// Standard error of this process.
pub fn err() -> &'static Console {
    &ERR
}

/// [`OUTPUT_LOST`] if output was lost, else 0.
pub fn exit_code() -> u8 {
    if out().lost().is_some() || err().lost().is_some() { OUTPUT_LOST } else { 0 }
}

/// For the log: each call of `write` is one line.
pub fn log_writer() -> impl Write {
    LogWriter
}

struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        err().queue(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Lines and pieces of output.
    pub pieces: u64,
    /// The reason of the first loss.
    pub reason: String,
}

/// One of the two streams.
#[derive(Clone, Debug)]
pub struct Console(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<ConsoleState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ConsoleState {
    queue: VecDeque<Piece>,
    /// Bytes of the queued lines.
    bytes: usize,
    /// The thread is writing.
    busy: bool,
    /// Lines dropped since the last report.
    dropped: u64,
    lost: Lost,
}

#[derive(Debug)]
struct Piece {
    bytes: Vec<u8>,
    written: Option<oneshot::Sender<io::Result<()>>>,
}

impl Console {
    /// A stream of this process. A stream that cannot be duplicated accepts nothing.
    fn of(fd: BorrowedFd<'_>) -> Self {
        let console = Self(Arc::default());
        match fd.try_clone_to_owned() {
            Ok(fd) => console.serve(File::from(fd)),
            Err(error) => console.clone().serve(Broken(error.kind())),
        }
        console
    }

    /// Starts the thread. Without it nothing is written, which [`Console::finish`] reports.
    fn serve(&self, to: impl WriteAll + Send + 'static) {
        let shared = Arc::clone(&self.0);
        let started = thread::Builder::new().name("console".into()).spawn(move || shared.run(to));
        drop(started);
    }

    /// Queues an own line; adds the newline.
    pub fn line(&self, words: &str) {
        self.queue(format!("{words}\n").as_bytes());
    }

    /// Queues own bytes.
    pub fn queue(&self, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        if bytes.len() > LINE_BYTES_MAX {
            bytes.truncate(LINE_BYTES_MAX - 1);
            bytes.push(b'\n');
        }
        let mut state = self.0.lock();
        if state.bytes + bytes.len() > QUEUE_BYTES_MAX {
            state.dropped += 1;
            state.lose("it takes lines too slowly");
            return;
        }
        state.bytes += bytes.len();
        state.queue.push_back(Piece { bytes, written: None });
        self.0.changed.notify_all();
    }

    /// Queues bytes that are useful only now, unless others wait.
    pub fn draw(&self, bytes: &[u8]) {
        let idle = {
            let state = self.0.lock();
            state.queue.is_empty() && !state.busy
        };
        if idle {
            self.queue(bytes);
        }
    }

    /// Writes bytes in their turn and waits until they are written.
    ///
    /// # Errors
    /// The system's. The bytes are lost and counted.
    pub async fn write(&self, bytes: Vec<u8>) -> io::Result<()> {
        let (written, done) = oneshot::channel();
        self.0.lock().queue.push_back(Piece { bytes, written: Some(written) });
        self.0.changed.notify_all();
        done.await.unwrap_or_else(|_| Err(io::Error::other("the writer has ended")))
    }

    /// Records a loss for this stream.
    pub fn lose(&self, reason: &str) {
        self.0.lock().lose(reason);
    }

    /// Whether something is being written or waits.
    pub fn is_busy(&self) -> bool {
        self.0.lock().is_busy()
    }

    /// Waits at most `wait` until everything is written. The rest is lost. Blocks.
    pub fn finish(&self, wait: Duration) {
        let end = Instant::now() + wait;
        let mut state = self.0.lock();
        while state.is_busy() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.lose("it takes nothing any more");
                return;
            }
            let waited = self.0.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The losses so far.
    pub fn lost(&self) -> Option<Lost> {
        Some(self.0.lock().lost.clone()).filter(|lost| lost.pieces > 0)
    }
}

impl ConsoleState {
    fn is_busy(&self) -> bool {
        self.busy || !self.queue.is_empty() || self.dropped > 0
    }

    fn lose(&mut self, reason: &str) {
        self.lost.pieces += 1;
        if self.lost.reason.is_empty() {
            reason.clone_into(&mut self.lost.reason);
        }
    }

    /// The next piece to write. A report of dropped lines stands in their place.
    fn next(&mut self) -> Option<Piece> {
        if let Some(piece) = self.queue.pop_front() {
            if piece.written.is_none() {
                self.bytes -= piece.bytes.len();
            }
            return Some(piece);
        }
        let dropped = core::mem::take(&mut self.dropped);
        let report = || {
            let words =
                format!("{dropped} lines were dropped: standard error took them too slowly\n");
            Piece { bytes: words.into_bytes(), written: None }
        };
        (dropped > 0).then(report)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, ConsoleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, mut to: impl WriteAll) {
        let mut state = self.lock();
        loop {
            let Some(piece) = state.next() else {
                self.changed.notify_all();
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.busy = true;
            drop(state);
            let result = to.write_whole(&piece.bytes);
            state = self.lock();
            state.busy = false;
            if let Err(error) = &result {
                state.lose(&error.to_string());
            }
            if let Some(written) = piece.written {
                let _ = written.send(result);
            }
        }
    }
}

/// The target of a console.
trait WriteAll {
    fn write_whole(&mut self, bytes: &[u8]) -> io::Result<()>;
}

impl WriteAll for File {
    /// Waits for room even if another process has made the stream non-blocking.
    fn write_whole(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut fds = [PollFd::new(self.as_fd(), PollFlags::POLLOUT)];
                    poll(&mut fds, PollTimeout::NONE)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A stream that does not exist.
struct Broken(io::ErrorKind);

impl WriteAll for Broken {
    fn write_whole(&mut self, _: &[u8]) -> io::Result<()> {
        Err(self.0.into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::BufRead as _;

    fn console(to: File) -> Console {
        let console = Console(Arc::default());
        console.serve(to);
        console
    }

    fn pipe() -> (File, File) {
        let (from, to) = nix::unistd::pipe().unwrap();
        (File::from(from), File::from(to))
    }

    #[tokio::test]
    async fn a_stream_that_cannot_be_written_loses_its_output_and_nothing_else() {
        let full = console(File::options().write(true).open("/dev/full").unwrap());
        full.line("hello");
        assert!(full.write(b"output\n".to_vec()).await.is_err());
        full.finish(Duration::from_secs(60));
        let lost = full.lost().unwrap();
        assert!(lost.pieces == 2 && lost.reason.contains("No space left"), "{lost:?}");
    }

    #[tokio::test]
    async fn lines_never_wait_for_a_slow_reader_and_missing_ones_are_reported() {
        let (from, to) = pipe();
        let slow = console(to);
        // Far more than the pipe and the queue can hold.
        for number in 0..100_000 {
            slow.line(&format!("line {number}"));
        }
        let lost = slow.lost().unwrap();
        assert!(slow.is_busy() && lost.pieces > 0);
        let report = format!("{} lines were dropped", lost.pieces);
        let reader = std::thread::spawn(move || {
            let mut lines = io::BufReader::new(from).lines().map(Result::unwrap);
            lines.by_ref().take_while(|line| !line.starts_with(&report)).count() as u64
        });
        slow.finish(Duration::from_secs(60));
        assert_eq!(reader.join().unwrap() + lost.pieces, 100_000);
    }
}
