//! Slurm as the bridge needs it: reads all nodes, drains some, ends a drain.

use crate::bridge::{Node, Order};
use ftb_core::hostlist;
use serde::Deserialize;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::time::timeout;

/// Most bytes that are read of an answer: some 30,000 nodes. A longer one is an error.
const ANSWER_BYTES_MAX: u64 = 128 << 20;
/// How Slurm prints a time, at least this long.
const TIME: &str = "2026-11-29T17:21:11";
/// The first release, as year and month, that may leave the reason of a drain or of a node that was
/// down after its end: 24.11 does, 22.05 does not. And the first that certainly does not again.
const KEEPS_REASONS: [(u32, u32); 2] = [(23, 2), (26, 5)];
/// How long one call may take. It is killed then.
const CALL_MAX: Duration = Duration::from_secs(30);

/// Why Slurm was not read or changed.
#[derive(Debug, thiserror::Error)]
pub enum SlurmError {
    /// The program cannot be started or read.
    #[error("cannot run {0}: {1}")]
    Run(String, io::Error),
    /// It did not end in time.
    #[error("{0} did not end within {CALL_MAX:?}")]
    Late(String),
    /// It printed too much.
    #[error("{0} printed more than {ANSWER_BYTES_MAX} bytes")]
    Long(String),
    /// It reported an error.
    #[error("{0}: {1}: {2}")]
    Failed(String, ExitStatus, String),
    /// What it printed cannot be understood.
    #[error("the nodes that Slurm shows cannot be read: {0}")]
    Answer(serde_json::Error),
}

impl SlurmError {
    /// The program lacks what it needs to print JSON: its option, or Slurm's serializer.
    fn is_about_json(&self) -> bool {
        let Self::Failed(_, _, text) = self else { return false };
        ["json", "serializer"].iter().any(|word| text.to_ascii_lowercase().contains(word))
    }
}

/// How the nodes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// JSON of `scontrol`.
    Scontrol,
    /// JSON of `sinfo`: `scontrol` prints none before Slurm 23.02.
    Sinfo,
    /// Text of `scontrol`: this Slurm was built without JSON.
    Text,
}

/// The commands of a Slurm.
#[derive(Clone, Debug)]
pub struct Slurm {
    /// The program `scontrol`.
    scontrol: PathBuf,
    /// The program `sinfo`.
    sinfo: PathBuf,
    form: Form,
}

impl Slurm {
    /// With these programs.
    pub fn new(scontrol: PathBuf, sinfo: PathBuf) -> Self {
        Self { scontrol, sinfo, form: Form::Scontrol }
    }

    /// All nodes. Where Slurm prints no JSON they are read as text.
    ///
    /// # Errors
    /// [`SlurmError`].
    pub async fn nodes(&mut self) -> Result<Vec<Node>, SlurmError> {
        loop {
            let answer = match self.form {
                Form::Scontrol => run(&self.scontrol, &["show", "nodes", "--json"]).await,
                Form::Sinfo => run(&self.sinfo, &["--json"]).await,
                Form::Text => return self.nodes_as_text(None).await,
            };
            match answer {
                Ok(answer) => {
                    let nodes = nodes_of(&answer).map_err(SlurmError::Answer)?;
                    return self.without_old_reasons(nodes).await;
                }
                Err(error) if error.is_about_json() => self.form = self.simpler(&error),
                Err(error) => return Err(error),
            }
        }
    }

    fn simpler(&self, error: &SlurmError) -> Form {
        if self.form == Form::Scontrol {
            return Form::Sinfo;
        }
        tracing::warn!(%error, "Slurm has no serializer/json: its nodes are read as text");
        Form::Text
    }

    /// These nodes as they are at this moment. A node that Slurm does not know is left out.
    ///
    /// # Errors
    /// [`SlurmError`].
    pub async fn some_nodes(&self, hosts: &[String]) -> Result<Vec<Node>, SlurmError> {
        let hosts = hostlist::fold(hosts.iter().map(String::as_str));
        self.nodes_as_text(Some(&hosts)).await
    }

    async fn nodes_as_text(&self, hosts: Option<&str>) -> Result<Vec<Node>, SlurmError> {
        let words: Vec<&str> = ["-o", "show", "nodes"].into_iter().chain(hosts).collect();
        let answer = run(&self.scontrol, &words).await?;
        self.without_old_reasons(nodes_of_text(&String::from_utf8_lossy(&answer))).await
    }

    /// Leaves out the reasons of nodes in service if this release keeps those that are over.
    async fn without_old_reasons(&self, mut nodes: Vec<Node>) -> Result<Vec<Node>, SlurmError> {
        let is_out = |node: &Node| node.is_drained || node.is_down || node.is_marked;
        let may_be_old = |node: &Node| !is_out(node) && !node.reason.is_empty();
        if nodes.iter().any(may_be_old) && self.keeps_reasons().await? {
            for node in nodes.iter_mut().filter(|node| may_be_old(node)) {
                node.reason.clear();
                node.user.clear();
            }
        }
        Ok(nodes)
    }

    async fn keeps_reasons(&self) -> Result<bool, SlurmError> {
        // Each time: Slurm may be upgraded meanwhile.
        let version = run(&self.scontrol, &["--version"]).await?;
        Ok(keeps_reasons(&String::from_utf8_lossy(&version)))
    }

    /// Carries out an order.
    ///
    /// # Errors
    /// [`SlurmError`].
    pub async fn execute(&self, order: &Order) -> Result<(), SlurmError> {
        let words = words(order);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        run(&self.scontrol, &words).await.map(drop)
    }
}

/// Whether a release may keep the reason of a drain after its end. `version` is what
/// `scontrol --version` prints, such as `slurm-wlm 24.11.5`.
fn keeps_reasons(version: &str) -> bool {
    let number = version.split_whitespace().next_back().unwrap_or_default();
    let mut parts = number.split('.').map(|part| part.parse::<u32>().ok());
    let release = parts.next().flatten().zip(parts.next().flatten());
    let [first, end] = KEEPS_REASONS;
    release.is_some_and(|release| first <= release && release < end)
}

async fn run(program: &Path, arguments: &[&str]) -> Result<Vec<u8>, SlurmError> {
    let name = format!("{} {}", program.display(), arguments.join(" "));
    let failed = |error| SlurmError::Run(name.clone(), error);
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let (out, errors) = (child.stdout.take(), child.stderr.take());
    let done = async {
        let (out, errors) = tokio::try_join!(read(out), read(errors))?;
        Ok((out, errors, child.wait().await?))
    };
    let done = timeout(CALL_MAX, done).await.map_err(|_| SlurmError::Late(name.clone()))?;
    let (out, errors, status) = done.map_err(failed)?;
    if out.len() as u64 > ANSWER_BYTES_MAX {
        return Err(SlurmError::Long(name));
    }
    if !status.success() {
        let errors = String::from_utf8_lossy(&errors).trim().replace('\n', "; ");
        return Err(SlurmError::Failed(name, status, errors));
    }
    Ok(out)
}

async fn read(stream: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(ANSWER_BYTES_MAX + 1).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// The words of a call. `undrain` leaves a node that is down as it is; `resume` would not.
fn words(order: &Order) -> Vec<String> {
    let reason = match order {
        Order::Drain { reason, .. } => Some(reason),
        Order::Undrain { .. } => None,
    };
    let (hosts, state) = (hostlist::fold(order.hosts().iter().map(String::as_str)), order.word());
    let mut words = vec!["update".into(), format!("nodename={hosts}"), format!("state={state}")];
    words.extend(reason.map(|reason| format!("reason={reason}")));
    words
}

/// What matters of the nodes as JSON. Slurm 22.05 and its successors name the fields alike.
#[derive(Deserialize)]
struct Inventory {
    nodes: Vec<JsonNode>,
}

#[derive(Deserialize)]
struct JsonNode {
    name: String,
    #[serde(default)]
    state: Words,
    /// Until 23.02 they stand apart.
    #[serde(default)]
    state_flags: Vec<String>,
    reason: Option<String>,
    reason_set_by_user: Option<String>,
}

/// One word until 23.02, a list of words since.
#[derive(Deserialize)]
#[serde(untagged)]
enum Words {
    One(String),
    Many(Vec<String>),
}

impl Default for Words {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

/// The nodes in an answer of `scontrol show nodes --json` or `sinfo --json`.
///
/// # Errors
/// It is no such answer.
pub fn nodes_of(answer: &[u8]) -> Result<Vec<Node>, serde_json::Error> {
    let answer: Inventory = serde_json::from_slice(answer)?;
    let node = |node: JsonNode| {
        let state = match node.state {
            Words::One(word) => vec![word],
            Words::Many(words) => words,
        };
        let has = |word: &str| {
            let mut all = state.iter().chain(&node.state_flags);
            all.any(|flag| flag.eq_ignore_ascii_case(word))
        };
        let (is_drained, is_down) = (has("drain"), has("down"));
        let reason = node.reason.unwrap_or_default();
        let user = node.reason_set_by_user.unwrap_or_default();
        let is_marked = MARKS.iter().any(|mark| has(mark));
        Node { name: node.name, is_drained, is_down, is_marked, reason, user }
    };
    Ok(answer.nodes.into_iter().map(node).collect())
}

/// States other than drained and down that people set with a reason, and what Slurm makes of them.
const MARKS: [&str; 6] =
    ["FAIL", "FAILING", "REBOOT", "REBOOT_REQUESTED", "REBOOT_ISSUED", "MAINTENANCE"];

/// The nodes in an answer of `scontrol -o show nodes`: a line for each.
pub fn nodes_of_text(answer: &str) -> Vec<Node> {
    answer.lines().filter_map(node_of_line).collect()
}

fn node_of_line(line: &str) -> Option<Node> {
    let (name, rest) = line.trim().strip_prefix("NodeName=")?.split_once(' ')?;
    let (_, rest) = rest.split_once(" State=")?;
    let (state, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let is = |word: &str| {
        let mut flags = state.split('+');
        flags.any(|flag| flag.trim_end_matches(|c: char| !c.is_alphabetic()).starts_with(word))
    };
    let (reason, user) = rest.split_once(" Reason=").map_or(("", ""), |(_, tail)| reason_in(tail));
    let (reason, user) = (reason.to_owned(), user.to_owned());
    let (is_drained, is_down) = (is("DRAIN"), is("DOWN"));
    let is_marked = MARKS.iter().any(|mark| is(mark));
    Some(Node { name: name.to_owned(), is_drained, is_down, is_marked, reason, user })
}

/// Reason and user of `REASON [USER@TIME]`, which other fields may follow. People choose the text
/// of both: with a second such end all of it is the reason, of no known user.
fn reason_in(tail: &str) -> (&str, &str) {
    let ends: Vec<usize> = tail.match_indices(" [").map(|(at, _)| at).collect();
    let stamped = ends.into_iter().filter_map(|at| {
        let (user, time) = tail[at + 2..].split_once(']')?.0.split_once('@')?;
        (!user.contains(' ') && time.len() >= TIME.len() && time.contains('T'))
            .then_some((at, user))
    });
    match stamped.collect::<Vec<_>>()[..] {
        [(at, user)] => (&tail[..at], user),
        _ => (tail, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_text_is_read_and_an_ambiguous_reason_has_no_user() {
        let head = "NodeName=node01 Arch=x86_64 OS=Linux 6.1 #1 SMP @0  Boards=1";
        let of = |rest: &str| nodes_of_text(&format!("{head} {rest}\n")).remove(0);
        let free = of("State=IDLE+NOT_RESPONDING ThreadsPerCore=1 BootTime=None");
        assert!(!free.is_drained && !free.is_down && free.reason.is_empty());
        let stamp = "[root@2026-11-29T17:21:11]";
        for state in ["FAIL", "ALLOCATED+FAIL", "IDLE+REBOOT_REQUESTED", "IDLE+MAINTENANCE"] {
            assert!(of(&format!("State={state} N=1 Reason=bad disk [ann@x]")).is_marked, "{state}");
        }
        assert!(!free.is_marked);
        let ours = of(&format!("State=IDLE+DRAIN N=1 Reason=ftb:FANFAIL CPU 1 FAN {stamp}"));
        assert!(ours.is_drained && ours.name == "node01");
        assert_eq!((&ours.reason[..], &ours.user[..]), ("ftb:FANFAIL CPU 1 FAN", "root"));
        let with = of(&format!("State=DOWN*+DRAIN N=1 Reason=ftb:X {stamp} Comment=new disk"));
        assert!(with.is_down && with.is_drained);
        assert_eq!((&with.reason[..], &with.user[..]), ("ftb:X", "root"));
        for text in
            [format!("ftb:X {stamp}, wait {stamp}"), format!("ftb:X {stamp} Comment=x {stamp}")]
        {
            let node = of(&format!("State=IDLE+DRAIN N=1 Reason={text}"));
            assert_eq!((&node.reason, &node.user[..]), (&text, ""));
        }
        assert!(nodes_of_text("Node nosuch not found\n").is_empty());
    }

    #[test]
    fn both_forms_of_the_state_are_read() {
        let old = br#"{"meta":{"Slurm":{}},"errors":[],"nodes":[{"name":"node01","state":"idle",
            "state_flags":["DRAIN"],"reason":"new disk","reason_set_by_user":"ann"}]}"#;
        let new = br#"{"nodes":[{"name":"node01","state":["IDLE","DRAIN"],"reason":"new disk",
            "reason_set_by_user":"ann"},{"name":"node02","state":["DOWN","NOT_RESPONDING"]}]}"#;
        let nodes = nodes_of(new).expect("it can be read");
        assert_eq!(nodes_of(old).expect("it can be read"), nodes[..1]);
        assert!(nodes[0].is_drained && !nodes[0].is_down && nodes[0].user == "ann");
        assert!(nodes[1].is_down && nodes[1].reason.is_empty());
        assert!(nodes_of(b"[]").is_err());
    }

    #[test]
    fn releases_that_keep_the_reason_of_an_ended_drain_are_known() {
        let kept = ["slurm 23.02.0", "slurm-wlm 24.11.5\n", "slurm 25.11.1"];
        assert!(kept.into_iter().all(keeps_reasons));
        let not = ["slurm-wlm 22.05.8", "slurm-wlm 26.05.5", "slurm 27.11.0-rc1", "slurm", ""];
        assert!(!not.into_iter().any(keeps_reasons));
    }

    #[test]
    fn an_order_is_one_call_with_folded_hosts() {
        let hosts: Vec<_> = (1..=1000).map(|number| format!("node{number:04}")).collect();
        let order = Order::Drain { hosts: hosts.clone(), reason: "ftb:FANFAIL FAN 1".into() };
        let drain =
            ["update", "nodename=node[0001-1000]", "state=drain", "reason=ftb:FANFAIL FAN 1"];
        assert_eq!(words(&order), drain);
        let undrain = ["update", "nodename=node[0001-1000]", "state=undrain"];
        assert_eq!(words(&Order::Undrain { hosts }), undrain);
    }
}
