//! Runs the commands of a backend, each in its own process group, with a deadline and captured
//! output.

use crate::backend::Step;
use core::time::Duration;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

/// Most bytes of a command's output that are kept, the last ones.
pub const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// Longest line of output in a message.
const LINE_BYTES_MAX: usize = 300;
/// Most characters of a command in a message: the reason follows, and messages are cut at their
/// end.
const COMMAND_CHARS_MAX: usize = 120;
/// How long to wait for output after the end of a command; its children may hold the pipe.
const OUTPUT_WAIT: Duration = Duration::from_millis(200);

/// Runs a command to its end, or kills it when the future is dropped. `pipes`: its standard input
/// and output.
///
/// # Errors
/// The step, its end, and the last line of its output.
pub async fn run(
    step: &Step,
    env: &[(String, String)],
    cwd: &Path,
    pipes: Option<(OwnedFd, OwnedFd)>,
) -> Result<(), String> {
    let fail = |what: String| format!("{} ({}): {what}", step.name, abridged(&step.argv.join(" ")));
    let (program, arguments) =
        step.argv.split_first().ok_or_else(|| fail("no command".to_owned()))?;
    let mut command = Command::new(program);
    command.args(arguments).envs(env.iter().cloned()).current_dir(cwd).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some((input, output)) = pipes {
        command.stdin(Stdio::from(input)).stdout(Stdio::from(output));
    }
    let mut child = command.spawn().map_err(|error| fail(error.to_string()))?;
    drop(command);
    let mut group = Group(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw));
    let said = [
        child.stdout.take().map(|pipe| tokio::spawn(tail(pipe))),
        child.stderr.take().map(|pipe| tokio::spawn(tail(pipe))),
    ];
    let ended = tokio::time::timeout(step.deadline, child.wait()).await;
    let status = match ended {
        Ok(status) => {
            group.0 = None;
            status.map_err(|error| fail(error.to_string()))?
        }
        Err(_) => {
            drop(group);
            let _ = child.wait().await;
            return Err(fail(format!("not done in {:?}: killed", step.deadline)));
        }
    };
    if status.success() {
        return Ok(());
    }
    let mut last = String::new();
    for task in said.into_iter().flatten() {
        let text = tokio::time::timeout(OUTPUT_WAIT, task).await.ok().and_then(Result::ok);
        last = text.as_deref().map(last_line).filter(|line| !line.is_empty()).unwrap_or(last);
    }
    let colon = if last.is_empty() { "" } else { ": " };
    Err(fail(format!("{status}{colon}{last}")))
}

/// The process group of a command. It is killed if the command is given up before its end.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.0.map(|group| killpg(group, Signal::SIGKILL));
    }
}

fn abridged(command: &str) -> String {
    match command.char_indices().nth(COMMAND_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &command[..end]),
        None => command.to_owned(),
    }
}

async fn tail(mut from: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(got @ 1..) = from.read(&mut chunk).await {
        kept.extend_from_slice(&chunk[..got]);
        let over = kept.len().saturating_sub(OUTPUT_BYTES_MAX);
        kept.drain(..over);
    }
    kept
}

fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    line.trim().chars().take(LINE_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    async fn shell(script: &str, deadline: Duration) -> Result<(), String> {
        let argv = ["sh", "-c", script].iter().map(|&word| word.to_owned()).collect();
        let step = Step { name: "try", argv, deadline, piped: false };
        let env = [("FTB_RANK".to_owned(), "7".to_owned())];
        run(&step, &env, Path::new("/"), None).await
    }

    #[tokio::test]
    async fn a_step_succeeds_or_says_in_one_line_why_not() {
        let long = Duration::from_secs(60);
        shell("test $FTB_RANK = 7", long).await.unwrap();
        let error = shell("echo early >&2; echo disk full >&2; exit 3", long).await.unwrap_err();
        assert!(error.contains("try") && error.contains("exit status: 3: disk full"), "{error}");
        // Output beyond the size of a pipe does not block it.
        shell("head -c 1000000 /dev/zero", long).await.unwrap();
        let error = shell("sleep 1002", Duration::from_millis(50)).await.unwrap_err();
        assert!(error.contains("not done in 50ms"), "{error}");
    }

    #[tokio::test]
    async fn a_command_that_is_given_up_leaves_no_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        let script =
            format!("sleep 1002 & echo $! > {0}.new; mv {0}.new {0}; wait", path.display());
        let command = shell(&script, Duration::from_secs(60));
        let read = async {
            loop {
                match std::fs::read_to_string(&path) {
                    Ok(pid) => break pid.trim().parse::<i32>().unwrap(),
                    Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        };
        let pid = tokio::select! {
            done = command => panic!("{done:?}"),
            pid = read => pid,
        };
        let state = format!("/proc/{pid}/stat");
        let is_dead = |text: String| text.contains(") Z ") || text.contains(") X ");
        while !std::fs::read_to_string(&state).map_or(true, is_dead) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn a_missing_program_is_reported() {
        let argv = vec!["/no/such/hook".to_owned()];
        let step = Step { name: "try", argv, deadline: Duration::from_secs(1), piped: false };
        let error = run(&step, &[], Path::new("/"), None).await.unwrap_err();
        assert!(error.contains("/no/such/hook"), "{error}");
        let argv = vec!["/no/such/hook".to_owned(), "x".repeat(4000)];
        let step = Step { name: "try", argv, deadline: Duration::from_secs(1), piped: false };
        let error = run(&step, &[], Path::new("/"), None).await.unwrap_err();
        assert!(error.ends_with("x...): No such file or directory (os error 2)"), "{error}");
    }
}
