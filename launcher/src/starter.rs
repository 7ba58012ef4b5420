//! Executes the launch tree: starts launch agents on other nodes (ssh), on this host, or on all
//! nodes of a Slurm allocation at once. Passes their specification down and their messages up
//! ([`ftb_launcher_core::tree`]).
//!
//! The specification goes to standard input of the starting process; messages come from its
//! standard output. Its standard error is passed on; the last line is the reason of a failed start.

use super::console;
use super::spec::{Handover, NlaSpec, NodePart, StartMethod, Starting};
use crate::clock::Clock;
use core::time::Duration;
use ftb_launcher_core::names::NodeName;
use ftb_launcher_core::packet::{PacketError, PacketHead as _};
use ftb_launcher_core::tree::{PACKET_BYTES_MAX, Tree, TreeInput, TreeMessage, TreeOutput};
use ftb_launcher_pods::packets::PacketReader;
use std::collections::{BTreeMap, BTreeSet};
use std::process::{ExitStatus, Stdio};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};

/// Most messages that wait to go up; further ones block the branches.
const WORDS_MAX: usize = 1024;
/// Longest line of a branch on standard error in bytes.
const LINE_BYTES_MAX: u64 = 1024;
/// Time for the last lines of an ended process.
const LAST_LINES_WAIT: Duration = Duration::from_secs(1);
/// Exit code of ssh without a connection; other codes come from the remote command.
const SSH_FAILED: i32 = 255;

/// A message of a branch.
enum FromBranch {
    Said(Result<TreeMessage, PacketError>),
    Ended { reason: String, certain: bool },
}

/// Starts the launch agents of all `nodes` and passes their messages to `say` until its receiver is
/// gone.
///
/// `spec` is that of any node; the parts of `nodes` replace what differs.
pub async fn run(
    starting: Starting,
    spec: NlaSpec,
    nodes: Vec<NodePart>,
    clock: Clock,
    say: mpsc::Sender<TreeMessage>,
) {
    if starting.means == StartMethod::Slurm {
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
    let mut input = TreeInput::Begin;
    loop {
        let mut out = Vec::new();
        branches.tree.handle(clock.now(), input, &mut out);
        for output in out {
            match output {
                TreeOutput::Start { head, behind } => branches.start(head, &behind),
                TreeOutput::GiveUp(head) => {
                    if let Some(stop) = branches.stops.remove(&head) {
                        let _ = stop.send(());
                    }
                }
                TreeOutput::Say(word) => {
                    if say.send(word).await.is_err() {
                        return;
                    }
                }
            }
        }
        input = tokio::select! {
            Some((head, from)) = from_branches.recv() => branches.heard(head, from),
            () = clock.sleep_until(branches.tree.next_deadline_ns()) => TreeInput::Tick,
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
        let handover = Handover {
            spec: part(&head).map_or_else(|| self.spec.clone(), |part| self.spec.for_node(&part)),
            behind: behind.iter().filter_map(part).collect(),
            starting: self.starting.clone(),
        };
        let words = argv(&self.starting, &head);
        let means = self.starting.means;
        let (tell, of) = (self.tell.clone(), head.clone());
        let (lines, mut from) = mpsc::channel(WORDS_MAX);
        tokio::spawn(branch(words, means, handover, lines, stopped));
        tokio::spawn(async move {
            while let Some(word) = from.recv().await {
                if tell.send((of.clone(), word)).await.is_err() {
                    return;
                }
            }
        });
    }

    fn heard(&mut self, head: NodeName, from: FromBranch) -> TreeInput {
        match from {
            FromBranch::Said(Ok(word)) => TreeInput::Heard { head, word },
            FromBranch::Said(Err(error)) => {
                tracing::warn!(%head, %error, "a message of a launch agent was refused");
                TreeInput::Tick
            }
            FromBranch::Ended { reason, certain } => {
                self.stops.remove(&head);
                TreeInput::Ended { head, reason, certain }
            }
        }
    }
}

/// The command that starts the launch agent of `head`.
fn argv(starting: &Starting, head: &NodeName) -> Vec<String> {
    let program = starting.program.display().to_string();
    let mut words = starting.command.clone();
    match starting.means {
        StartMethod::Local => words.extend([program, "serve".to_owned()]),
        // ssh passes one text to a remote shell. The inner shell outlives the agent and reports its
        // end: ssh itself does not distinguish a killed agent from a broken connection.
        StartMethod::Ssh => {
            let inner = format!("{} serve; exit $?", quoted(&program));
            words.extend([head.to_string(), format!("exec sh -c {}", quoted(&inner))]);
        }
        StartMethod::Slurm => {
            let rest = [&program, "serve", "--node-from", "SLURMD_NODENAME"];
            words.extend(rest.map(ToOwned::to_owned));
        }
    }
    words
}

/// The command that runs a script on another host, the way agents are started there.
pub(super) fn on_host(starting: &Starting, host: &NodeName, script: &str) -> Vec<String> {
    let text = |word: &str| word.to_owned();
    match starting.means {
        StartMethod::Ssh => {
            let mut words = starting.command.clone();
            words.extend([host.to_string(), format!("exec sh -c {}", quoted(script))]);
            words
        }
        // Beside the running steps.
        StartMethod::Slurm => {
            let mut words = vec![text("srun"), text("--overlap"), text("--nodes=1")];
            words.extend([text("--ntasks=1"), format!("--nodelist={host}")]);
            words.extend([text("sh"), text("-c"), text(script)]);
            words
        }
        StartMethod::Local => vec![text("sh"), text("-c"), text(script)],
    }
}

/// A word for a POSIX shell.
pub(super) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// One branch: a process, its input, its messages, its end.
async fn branch(
    words: Vec<String>,
    means: StartMethod,
    handover: Handover,
    tell: mpsc::Sender<FromBranch>,
    stopped: oneshot::Receiver<()>,
) {
    let (reason, certain) = match supervise(&words, &handover, &tell, stopped).await {
        Ok((status, last)) => {
            let what =
                if means == StartMethod::Local { "its launch agent" } else { words[0].as_str() };
            let certain = means == StartMethod::Local
                || status
                    .code()
                    .is_some_and(|code| means != StartMethod::Ssh || code != SSH_FAILED);
            let last = if last.is_empty() { String::new() } else { format!(": {last}") };
            (format!("{what} ended: {status}{last}"), certain)
        }
        Err(error) => (format!("cannot start {}: {error}", words[0]), true),
    };
    let _ = tell.send(FromBranch::Ended { reason, certain }).await;
}

/// Runs the process to its end; returns its status and its last line on standard error.
async fn supervise(
    words: &[String],
    handover: &Handover,
    tell: &mpsc::Sender<FromBranch>,
    stopped: oneshot::Receiver<()>,
) -> std::io::Result<(ExitStatus, String)> {
    let mut child = spawn(words)?;
    let packet = handover.clone().encode();
    if let Some(mut stdin) = child.stdin.take() {
        tokio::spawn(async move {
            // A process that ended early reports by its end.
            let _ = stdin.write_all(&packet).await;
        });
    }
    let said = child.stdout.take().map(|out| tokio::spawn(listen(out, tell.clone())));
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

/// Passes messages on. Programs on the way may write something else there.
async fn listen(from: impl AsyncRead + Unpin, tell: mpsc::Sender<FromBranch>) {
    let mut packets = PacketReader::new(from, PACKET_BYTES_MAX);
    while let Some(packet) = packets.next().await {
        if tell.send(FromBranch::Said(packet)).await.is_err() {
            return;
        }
    }
}

/// Passes standard error on; returns its last line without the prefix of a log line.
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

/// One `srun` starts all agents with the same specification; each finds its part by the node name
/// from Slurm. When `srun` ends, agents that were not up are lost. The silence of the others shows.
async fn all_at_once(
    starting: &Starting,
    spec: NlaSpec,
    nodes: Vec<NodePart>,
    say: &mpsc::Sender<TreeMessage>,
) {
    let mut missing: BTreeSet<NodeName> = nodes.iter().map(|part| part.node.clone()).collect();
    let words = argv(starting, &spec.node);
    let handover = Handover { spec, behind: nodes, starting: starting.clone() };
    let (tell, mut from) = mpsc::channel(WORDS_MAX);
    // Never given up: the launcher's own deadline names missing nodes.
    let (_stop, stopped) = oneshot::channel();
    tokio::spawn(branch(words, StartMethod::Slurm, handover, tell, stopped));
    while let Some(from) = from.recv().await {
        let said: Vec<TreeMessage> = match from {
            FromBranch::Said(Ok(word)) => vec![word],
            FromBranch::Said(Err(error)) => {
                tracing::warn!(%error, "a message of a launch agent was refused");
                Vec::new()
            }
            FromBranch::Ended { reason, .. } => {
                let lost = |node| TreeMessage::Lost { node, reason: reason.clone() };
                core::mem::take(&mut missing).into_iter().map(lost).collect()
            }
        };
        for word in said {
            let (TreeMessage::Up { node, .. } | TreeMessage::Lost { node, .. }) = &word;
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
            means: StartMethod::Ssh,
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
            means: StartMethod::Ssh,
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
        let Some(TreeMessage::Lost { node, reason }) = said.recv().await else { panic!("no word") };
        assert_eq!(node.as_str(), "node01");
        assert!(reason.contains("exit status: 255: no route to host"), "{reason}");
        starter.abort();
    }
}
