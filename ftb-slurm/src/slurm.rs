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

/// The commands of a Slurm.
#[derive(Clone, Debug)]
pub struct Slurm {
    /// The program `scontrol`.
    scontrol: PathBuf,
    /// The program `sinfo`.
    sinfo: PathBuf,
    /// `scontrol` prints no JSON: that of a Slurm before 23.02. Then `sinfo` prints the same.
    is_old: bool,
}

impl Slurm {
    /// With these programs.
    pub fn new(scontrol: PathBuf, sinfo: PathBuf) -> Self {
        Self { scontrol, sinfo, is_old: false }
    }

    /// All nodes.
    ///
    /// # Errors
    /// [`SlurmError`].
    pub async fn nodes(&mut self) -> Result<Vec<Node>, SlurmError> {
        let answer = match self.is_old {
            true => run(&self.sinfo, &["--json"]).await?,
            false => match run(&self.scontrol, &["show", "nodes", "--json"]).await {
                Err(SlurmError::Failed(_, _, text)) if text.contains("--json") => {
                    self.is_old = true;
                    run(&self.sinfo, &["--json"]).await?
                }
                answer => answer?,
            },
        };
        nodes_of(&answer).map_err(SlurmError::Answer)
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
    let (hosts, state, reason) = match order {
        Order::Drain { hosts, reason } => (hosts, "drain", Some(reason)),
        Order::Undrain { hosts } => (hosts, "undrain", None),
    };
    let hosts = hostlist::fold(hosts.iter().map(String::as_str));
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
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
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
        Node { name: node.name, is_drained, is_down, reason, user }
    };
    Ok(answer.nodes.into_iter().map(node).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

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
