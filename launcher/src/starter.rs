//! The shell of the launch tree: starts launch agents on other nodes (ssh), on this host, or on all nodes of a Slurm
//! allocation at once, hands them their specification, and carries their words ([`ftb_launcher_core::tree`]) up.
//!
//! The process that starts an agent gets the specification on its standard input; the agent says its words on its
//! standard output. Whatever it or ssh says on standard error is passed on, and the last line of it is the reason
//! when the start fails.

use super::console;
use super::spec::{Handed, Means, NlaSpec, NodePart, Starting};
use crate::clock::Clock;
use core::time::Duration;
use ftb_launcher_core::names::NodeName;
use ftb_launcher_core::tree::{Input, Output, Tree, Word};
use std::collections::{BTreeMap, BTreeSet};
use std::process::{ExitStatus, Stdio};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};

/// Words that wait to go up: beyond, the branches are held.
const WORDS_MAX: usize = 1024;
/// Longest line that is read from a branch.
const LINE_BYTES_MAX: u64 = 1024;
/// How long to wait for the last lines of a process that has ended.
const LAST_LINES_WAIT: Duration = Duration::from_secs(1);
/// What ssh exits with when it has no connection (any more); everything else is the remote command's.
const SSH_FAILED: i32 = 255;

/// What comes from a branch.
enum FromBranch {
    Line(String),
    Ended { reason: String, certain: bool },
}

/// Starts the launch agents of all `nodes` and carries their words to `say`, until nobody listens there.
///
/// `spec` is that of any node: what is not in its part is common to all.
pub async fn run(
    starting: Starting,
    spec: NlaSpec,
    nodes: Vec<NodePart>,
    clock: Clock,
    say: mpsc::Sender<Word>,
) {
    if starting.means == Means::Slurm {
        return all_at_once(&starting, spec, nodes, &say).await;
    }
    let names = nodes.iter().map(|part| part.node.clone()).collect();
    let (tell, mut from_branches) = mpsc::channel(WORDS_MAX);
    let mut branches = Branches {
        tree: Tree::new(names, starting.fanout, starting.deadline),
        parts: nodes.into_iter().map(|part| (part.node.clone(), part)).collect(),
        starting,
        spec,
        stops: BTreeMap::new(),
        tell,
    };
    let mut input = Input::Begin;
    loop {
        let mut out = Vec::new();
        branches.tree.handle(clock.now(), input, &mut out);
        for output in out {
            match output {
                Output::Start { head, behind } => branches.start(head, &behind),
                Output::GiveUp(head) => {
                    if let Some(stop) = branches.stops.remove(&head) {
                        let _ = stop.send(());
                    }
                }
                Output::Say(word) => {
                    if say.send(word).await.is_err() {
                        return;
                    }
                }
            }
        }
        input = tokio::select! {
            Some((head, from)) = from_branches.recv() => branches.heard(head, from),
            () = clock.sleep_until(branches.tree.next_deadline_ns()) => Input::Tick,
        };
    }
}

struct Branches {
    tree: Tree,
    parts: BTreeMap<NodeName, NodePart>,
    starting: Starting,
    spec: NlaSpec,
    stops: BTreeMap<NodeName, oneshot::Sender<()>>,
    tell: mpsc::Sender<(NodeName, FromBranch)>,
}

impl Branches {
    fn start(&mut self, head: NodeName, behind: &[NodeName]) {
        let (stop, stopped) = oneshot::channel();
        self.stops.insert(head.clone(), stop);
        let part = |node: &NodeName| self.parts.get(node).cloned();
        let handed = Handed {
            spec: part(&head).map_or_else(|| self.spec.clone(), |part| self.spec.for_node(&part)),
            behind: behind.iter().filter_map(part).collect(),
            starting: self.starting.clone(),
        };
        let words = argv(&self.starting, &head);
        let means = self.starting.means;
        let (tell, of) = (self.tell.clone(), head.clone());
        let (lines, mut from) = mpsc::channel(WORDS_MAX);
        tokio::spawn(branch(words, means, handed, lines, stopped));
        tokio::spawn(async move {
            while let Some(word) = from.recv().await {
                if tell.send((of.clone(), word)).await.is_err() {
                    return;
                }
            }
        });
    }

    fn heard(&mut self, head: NodeName, from: FromBranch) -> Input {
        match from {
            FromBranch::Line(line) => match line.parse() {
                Ok(word) => Input::Heard { head, word },
                Err(error) => {
                    tracing::warn!(%head, %error, "a line of a launch agent was refused");
                    Input::Tick
                }
            },
            FromBranch::Ended { reason, certain } => {
                self.stops.remove(&head);
                Input::Ended { head, reason, certain }
            }
        }
    }
}

/// The command that starts the launch agent of `head`.
fn argv(starting: &Starting, head: &NodeName) -> Vec<String> {
    let program = starting.program.display().to_string();
    let mut words = starting.command.clone();
    match starting.means {
        Means::Local => words.extend([program, "serve".to_owned()]),
        // ssh gives one text to a shell over there. The inner shell outlives the agent and tells its end: ssh itself
        // says the same of an agent that was killed and of a connection that broke.
        Means::Ssh => {
            let inner = format!("{} serve; exit $?", quoted(&program));
            words.extend([head.to_string(), format!("exec sh -c {}", quoted(&inner))]);
        }
        Means::Slurm => {
            let rest = [&program, "serve", "--node-from", "SLURMD_NODENAME"];
            words.extend(rest.map(ToOwned::to_owned));
        }
    }
    words
}

/// The command that runs a script on another host, by the means by which agents are started there.
pub(super) fn on_host(starting: &Starting, host: &NodeName, script: &str) -> Vec<String> {
    let text = |word: &str| word.to_owned();
    match starting.means {
        Means::Ssh => {
            let mut words = starting.command.clone();
            words.extend([host.to_string(), format!("exec sh -c {}", quoted(script))]);
            words
        }
        // Beside what runs there already.
        Means::Slurm => {
            let mut words = vec![text("srun"), text("--overlap"), text("--nodes=1")];
            words.extend([text("--ntasks=1"), format!("--nodelist={host}")]);
            words.extend([text("sh"), text("-c"), text(script)]);
            words
        }
        Means::Local => vec![text("sh"), text("-c"), text(script)],
    }
}

/// A word for a POSIX shell.
pub(super) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// One branch: a process, what it is handed, what it says, its end.
async fn branch(
    words: Vec<String>,
    means: Means,
    handed: Handed,
    tell: mpsc::Sender<FromBranch>,
    stopped: oneshot::Receiver<()>,
) {
    let (reason, certain) = match supervise(&words, &handed, &tell, stopped).await {
        Ok((status, last)) => {
            let what = if means == Means::Local { "its launch agent" } else { words[0].as_str() };
            let certain = means == Means::Local
                || status.code().is_some_and(|code| means != Means::Ssh || code != SSH_FAILED);
            let last = if last.is_empty() { String::new() } else { format!(": {last}") };
            (format!("{what} ended: {status}{last}"), certain)
        }
        Err(error) => (format!("cannot start {}: {error}", words[0]), true),
    };
    let _ = tell.send(FromBranch::Ended { reason, certain }).await;
}

/// Starts the process and stays with it to its end: its status, and the last line that it has said on standard error.
async fn supervise(
    words: &[String],
    handed: &Handed,
    tell: &mpsc::Sender<FromBranch>,
    stopped: oneshot::Receiver<()>,
) -> std::io::Result<(ExitStatus, String)> {
    let mut child = spawn(words)?;
    let text = serde_json::to_vec(handed)?;
    if let Some(mut stdin) = child.stdin.take() {
        tokio::spawn(async move {
            // One that has ended before it has read all says so by its end.
            let _ = stdin.write_all(&text).await;
        });
    }
    let said = child.stdout.take().map(|out| tokio::spawn(lines(out, tell.clone())));
    let last = child.stderr.take().map(|err| tokio::spawn(pass_on(err)));
    let status = tokio::select! {
        status = child.wait() => status?,
        Ok(()) = stopped => {
            child.start_kill()?;
            child.wait().await?
        }
    };
    if let Some(said) = said {
        let _ = tokio::time::timeout(LAST_LINES_WAIT, said).await;
    }
    let last = match last {
        Some(last) => tokio::time::timeout(LAST_LINES_WAIT, last).await,
        None => return Ok((status, String::new())),
    };
    Ok((status, last.ok().and_then(Result::ok).unwrap_or_default()))
}

fn spawn(words: &[String]) -> std::io::Result<Child> {
    let Some((program, arguments)) = words.split_first() else {
        return Err(std::io::Error::other("no command"));
    };
    let mut command = Command::new(program);
    command.args(arguments).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn()
}

async fn lines(from: impl AsyncRead + Unpin, tell: mpsc::Sender<FromBranch>) {
    let mut from = BufReader::new(from);
    loop {
        let mut line = String::new();
        match (&mut from).take(LINE_BYTES_MAX).read_line(&mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if tell.send(FromBranch::Line(line)).await.is_err() {
            return;
        }
    }
}

/// Passes standard error on; the last line of it, without what a log line has before its words.
async fn pass_on(from: impl AsyncRead + Unpin) -> String {
    let mut from = BufReader::new(from);
    let mut last = String::new();
    loop {
        let mut line = Vec::new();
        match (&mut from).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return last,
            Ok(_) => {}
        }
        console::err().queue(&line);
        let text = String::from_utf8_lossy(&line);
        if !text.trim().is_empty() {
            text.trim().clone_into(&mut last);
        }
    }
}

/// One `srun` starts all agents with the same hand-over; each finds its own part by the name that Slurm gives its
/// node. When `srun` ends, those that were not up are lost; of the others their silence tells.
async fn all_at_once(
    starting: &Starting,
    spec: NlaSpec,
    nodes: Vec<NodePart>,
    say: &mpsc::Sender<Word>,
) {
    let mut missing: BTreeSet<NodeName> = nodes.iter().map(|part| part.node.clone()).collect();
    let words = argv(starting, &spec.node);
    let handed = Handed { spec, behind: nodes, starting: starting.clone() };
    let (tell, mut from) = mpsc::channel(WORDS_MAX);
    // Given up by nobody: the job launcher's own deadline names who is missing.
    let (_stop, stopped) = oneshot::channel();
    tokio::spawn(branch(words, Means::Slurm, handed, tell, stopped));
    while let Some(from) = from.recv().await {
        let said: Vec<Word> = match from {
            FromBranch::Line(line) => match line.parse() {
                Ok(word @ (Word::Up { .. } | Word::Lost { .. })) => vec![word],
                Err(error) => {
                    tracing::warn!(%error, "a line of a launch agent was refused");
                    Vec::new()
                }
            },
            FromBranch::Ended { reason, .. } => {
                let lost = |node| Word::Lost { node, reason: reason.clone() };
                core::mem::take(&mut missing).into_iter().map(lost).collect()
            }
        };
        for word in said {
            let (Word::Up { node, .. } | Word::Lost { node, .. }) = &word;
            missing.remove(node);
            if say.send(word).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_path_survives_the_shell_over_there() {
        assert_eq!(quoted("/opt/my tools/it's"), r"'/opt/my tools/it'\''s'");
        let starting = Starting {
            means: Means::Ssh,
            command: vec!["ssh".to_owned(), "-q".to_owned()],
            program: "/opt/ftb-nla".into(),
            fanout: 2,
            deadline: Duration::from_secs(1),
        };
        let words = argv(&starting, &NodeName::new("node01").unwrap());
        let remote = r"exec sh -c ''\''/opt/ftb-nla'\'' serve; exit $?'";
        assert_eq!(words, ["ssh", "-q", "node01", remote]);
    }

    #[tokio::test]
    async fn the_last_words_of_a_start_that_fails_are_its_reason() {
        let spec = super::super::spec::tests::spec("node01");
        let starting = Starting {
            means: Means::Ssh,
            command: ["sh", "-c", "echo hello >&2; echo no route to host >&2; exit 255"]
                .map(ToOwned::to_owned)
                .to_vec(),
            program: "ftb-nla".into(),
            fanout: 2,
            deadline: Duration::from_secs(60),
        };
        let (say, mut said) = mpsc::channel(4);
        let nodes = vec![spec.part()];
        let starter = tokio::spawn(run(starting, spec, nodes, Clock::start(), say));
        let Some(Word::Lost { node, reason }) = said.recv().await else { panic!("no word") };
        assert_eq!(node.as_str(), "node01");
        assert!(reason.contains("exit status: 255: no route to host"), "{reason}");
        starter.abort();
    }
}
