//! What an NLA is handed on its standard input by whoever starts it: one JSON object. It has what is too large or too
//! secret for an event: the program, its environment, the key of the job; and the nodes that this NLA is to start
//! itself.

use core::time::Duration;
use ftb_launcher_core::names::{JobId, NodeName};
use ftb_launcher_pods::backend::Choice;
use ftb_launcher_pods::pod::net::PodNet;
use ftb_launcher_pods::spec::NodeSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Largest spec in bytes that is read.
pub const SPEC_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NlaSpec {
    /// The job.
    pub job: JobId,
    /// The node that the NLA stands for.
    pub node: NodeName,
    /// Starts as a hot spare.
    pub spare: bool,
    /// Socket of the node's agent.
    pub agent: PathBuf,
    /// The node's directory for images of this job.
    pub image_dir: PathBuf,
    /// The address that the image server listens on (port 0: any).
    pub listen: String,
    /// How other nodes reach this one: a host name or an address.
    #[serde(default)]
    pub address: String,
    /// `host:port` where the JL takes the ranks' output and gives standard input. A JL that takes over tells its own.
    #[serde(default)]
    pub streams: String,
    /// Rank 0 gets the JL's standard input; else its input is empty, as that of all others.
    #[serde(default)]
    pub stdin: bool,
    /// Key to the images of the job: whoever asks an image server must show it.
    pub token: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The environment, without what the launcher sets itself.
    pub env: Vec<(String, String)>,
    /// Working directory.
    pub cwd: PathBuf,
    /// `MASTER_ADDR`: the address of the node of rank 0.
    pub master_addr: String,
    /// `MASTER_PORT`.
    pub master_port: u16,
    /// How many ranks the job has.
    pub size: u32,
    /// How ranks are saved, moved and brought back.
    #[serde(default)]
    pub backend: Choice,
    /// Where pods are joined, for a backend that has them.
    #[serde(default)]
    pub pod: Option<PodNet>,
    /// See [`ftb_launcher_core::nla::NlaConfig`].
    #[serde(with = "humantime_serde")]
    pub orphan_grace: Duration,
    /// See [`ftb_launcher_core::nla::NlaConfig`].
    #[serde(with = "humantime_serde")]
    pub kill_grace: Duration,
}

/// What differs from node to node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodePart {
    /// See [`NlaSpec::node`].
    pub node: NodeName,
    /// See [`NlaSpec::spare`].
    pub spare: bool,
    /// See [`NlaSpec::agent`].
    pub agent: PathBuf,
    /// See [`NlaSpec::image_dir`].
    pub image_dir: PathBuf,
    /// See [`NlaSpec::listen`].
    pub listen: String,
    /// See [`NlaSpec::address`].
    pub address: String,
    /// See [`NlaSpec::pod`].
    #[serde(default)]
    pub pod: Option<PodNet>,
}

impl NlaSpec {
    /// What is this node's own.
    pub fn part(&self) -> NodePart {
        NodePart {
            node: self.node.clone(),
            spare: self.spare,
            agent: self.agent.clone(),
            image_dir: self.image_dir.clone(),
            listen: self.listen.clone(),
            address: self.address.clone(),
            pod: self.pod.clone(),
        }
    }

    /// What of it is for saving the ranks of the node.
    pub fn site(&self) -> NodeSpec {
        NodeSpec {
            job: self.job.clone(),
            node: self.node.clone(),
            size: self.size,
            image_dir: self.image_dir.clone(),
            cwd: self.cwd.clone(),
            stdin: self.stdin,
            backend: self.backend.clone(),
            pod: self.pod.clone(),
        }
    }

    /// The same for another node.
    #[must_use]
    pub fn for_node(&self, part: &NodePart) -> Self {
        let NodePart { node, spare, agent, image_dir, listen, address, pod } = part.clone();
        Self { node, spare, agent, image_dir, listen, address, pod, ..self.clone() }
    }
}

/// By what an NLA is started on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Means {
    /// As a child: all nodes are this host.
    Local,
    /// Over ssh, in a tree.
    Ssh,
    /// By one `srun`, which has a tree of its own.
    Slurm,
}

/// How NLAs are started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Starting {
    /// By what.
    pub means: Means,
    /// The words before the host's name (ssh) or before the program (srun).
    pub command: Vec<String>,
    /// Path of `ftb-nla` on the nodes.
    pub program: PathBuf,
    /// Most branches of one starter.
    pub fanout: usize,
    /// How long an NLA may take to come up.
    #[serde(with = "humantime_serde")]
    pub deadline: Duration,
}

/// What an NLA is handed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handed {
    /// Its own.
    pub spec: NlaSpec,
    /// The nodes that this NLA starts.
    pub behind: Vec<NodePart>,
    /// How it starts them.
    pub starting: Starting,
}

impl Handed {
    /// The specification of the NLA that was started on `node`, where all were started with the same hand-over:
    /// it starts nobody.
    ///
    /// # Errors
    /// One line: the node is not among them.
    pub fn for_one_of_all(mut self, node: &NodeName) -> Result<Self, String> {
        if self.spec.node != *node {
            let parts: BTreeMap<_, _> = self.behind.iter().map(|part| (&part.node, part)).collect();
            let part = parts.get(node).ok_or_else(|| format!("node {node} is not of this job"))?;
            self.spec = self.spec.for_node(part);
        }
        self.behind.clear();
        Ok(self)
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    pub(crate) fn spec(node: &str) -> NlaSpec {
        NlaSpec {
            job: JobId::new("job").unwrap(),
            node: NodeName::new(node).unwrap(),
            spare: false,
            agent: "/run/a.sock".into(),
            image_dir: "/images".into(),
            listen: "127.0.0.1:0".to_owned(),
            address: "127.0.0.1".to_owned(),
            streams: String::new(),
            stdin: false,
            token: "key".to_owned(),
            argv: vec!["true".to_owned()],
            env: Vec::new(),
            cwd: "/".into(),
            master_addr: "127.0.0.1".to_owned(),
            master_port: 29_500,
            size: 1,
            backend: Choice::default(),
            pod: None,
            orphan_grace: Duration::from_secs(1),
            kill_grace: Duration::from_secs(1),
        }
    }

    #[test]
    fn each_of_all_finds_its_own_part() {
        let first = spec("node01");
        let mut part = spec("node02").part();
        part.spare = true;
        let starting = Starting {
            means: Means::Slurm,
            command: Vec::new(),
            program: "ftb-nla".into(),
            fanout: 1,
            deadline: Duration::from_secs(1),
        };
        let handed = Handed { spec: first, behind: vec![part.clone()], starting };
        let own = handed.clone().for_one_of_all(&part.node).unwrap();
        assert_eq!(own.spec.part(), part);
        assert!(own.behind.is_empty());
        let stranger = NodeName::new("node03").unwrap();
        assert!(handed.for_one_of_all(&stranger).unwrap_err().contains("node03"));
    }
}
