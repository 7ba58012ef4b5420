//! Programs of rules: each in a process group of its own, with a time limit, ended with ftb-act.

use crate::act::Work;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// How long a program may take to end after SIGTERM; SIGKILL follows.
pub const KILL_AFTER: Duration = Duration::from_secs(5);
/// How long the output of a program that has ended is waited for.
const OUTPUT_AFTER: Duration = Duration::from_secs(1);
/// Most bytes of its output that are kept: the first ones.
const OUTPUT_BYTES_MAX: u64 = 512;

/// Replaces `{hosts}`, `{group}`, `{rule}`, `{conditions}` and `{order}` in an argument. None of
/// them has texts that publishers choose freely.
fn replaced(argument: &str, work: &Work) -> String {
    let mut keys: Vec<&str> = work.order.causes.iter().map(|cause| cause.subject.key()).collect();
    keys.sort_unstable();
    keys.dedup();
    let order = &work.order;
    argument
        .replace("{hosts}", &order.host_list())
        .replace("{group}", &order.group)
        .replace("{rule}", &order.rule)
        .replace("{conditions}", &keys.join(","))
        .replace("{order}", &work.key)
}

/// Runs a program with the order as JSON on its standard input. Gives whether it did what it
/// should, and what happened; its output goes to the log, since what happened is published. At
/// `stop` it is ended. When the future is dropped, or the program has ended, the rest of its group
/// is killed.
pub async fn run(
    work: &Work,
    program: &[String],
    time_limit: Duration,
    stop: watch::Receiver<bool>,
) -> (bool, String) {
    let arguments: Vec<String> = program.iter().map(|argument| replaced(argument, work)).collect();
    match start(&arguments) {
        Err(error) => (false, format!("cannot run {}: {error}", arguments.join(" "))),
        Ok(child) => {
            let group = Group { pid: child.id(), child };
            follow(group, crate::publish::json_of(work), time_limit, stop).await
        }
    }
}

/// Through this program itself, which asks for a signal when its parent ends: a program does not
/// outlive an ftb-act that is killed.
fn start(arguments: &[String]) -> std::io::Result<Child> {
    let parent = std::process::id().to_string();
    // This file also when an upgrade has put another one in its place.
    let mut command = Command::new("/proc/self/exe");
    command.arg("tied").arg(parent).arg("--").args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(0).spawn()
}

/// A process group; it is killed when it is dropped.
struct Group {
    child: Child,
    /// Of the program, and so of its group.
    pid: Option<u32>,
}

impl Drop for Group {
    fn drop(&mut self) {
        signal_group(self.pid, Signal::SIGKILL);
    }
}

fn signal_group(pid: Option<u32>, signal: Signal) {
    if let Some(pid) = pid.and_then(|pid| i32::try_from(pid).ok()) {
        // All of it may have ended by itself.
        let _ = killpg(Pid::from_raw(pid), signal);
    }
}

async fn follow(
    mut group: Group,
    input: String,
    time_limit: Duration,
    mut stop: watch::Receiver<bool>,
) -> (bool, String) {
    let (stdin, out, errors) =
        (group.child.stdin.take(), group.child.stdout.take(), group.child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A program need not read it.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
    };
    let talk = async {
        let ((), out, errors) = tokio::join!(write, read(out), read(errors));
        if errors.is_empty() { out } else { errors }
    };
    let limit = sleep(time_limit);
    tokio::pin!(talk, limit);
    let mut said = None;
    let ended = loop {
        tokio::select! {
            status = group.child.wait() => break Ok(status),
            text = &mut talk, if said.is_none() => said = Some(text),
            () = &mut limit => break Err(format!("it was ended after {time_limit:?}")),
            // The sender lives as long as the shell.
            _ = stop.wait_for(|is_stopped| *is_stopped) => {
                break Err("ftb-act has ended".to_owned());
            }
        }
    };
    let status = match ended {
        Ok(status) => status,
        Err(why) => {
            signal_group(group.pid, Signal::SIGTERM);
            // SIGKILL follows when the group is dropped.
            let _ = timeout(KILL_AFTER, group.child.wait()).await;
            return (false, why);
        }
    };
    // What it has left in its group would keep its output open. Then the number may be another's.
    signal_group(group.pid.take(), Signal::SIGKILL);
    if said.is_none() {
        // What has left the group may keep it open still.
        said = timeout(OUTPUT_AFTER, &mut talk).await.ok();
    }
    let text = said.unwrap_or_default();
    match status {
        Err(error) => (false, error.to_string()),
        Ok(status) => {
            let how = match (status.code(), status.signal()) {
                (Some(code), _) => format!("exit code {code}"),
                (None, signal) => format!("signal {}", signal.unwrap_or_default()),
            };
            if !text.is_empty() {
                tracing::info!(text, how, "a program has ended and said this");
            }
            (status.success(), how)
        }
    }
}

/// The first bytes of a stream as one line; the rest is read and dropped.
async fn read(stream: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut stream) = stream else { return String::new() };
    let mut bytes = Vec::new();
    // What was read so far counts.
    let _ = (&mut stream).take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes).await;
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    let text = String::from_utf8_lossy(&bytes);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}

/// Becomes a program that the kernel kills when its parent ends.
///
/// # Errors
/// It cannot be started.
pub fn become_tied(parent: i32, program: &[OsString]) -> std::io::Error {
    if let Err(error) = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL) {
        return error.into();
    }
    // The parent may have ended before.
    if nix::unistd::getppid().as_raw() != parent {
        return std::io::Error::other("ftb-act has ended");
    }
    let Some((first, rest)) = program.split_first() else {
        return std::io::Error::other("no program");
    };
    std::process::Command::new(first).args(rest).exec()
}
