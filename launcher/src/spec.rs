//! The specification of an NLA: a packet on its standard input. It has what is too large or
//! too secret for events: program, environment, the key of the job, and the nodes that this NLA
//! starts in turn.

use crate::memory::MemorySpec;
use core::time::Duration;
use ftb_launcher_core::names::{JobId, NodeName};
use ftb_launcher_core::nla::NlaConfig;
use ftb_launcher_core::packet::PacketHead;
use ftb_launcher_core::warm::WarmProcesses;
use ftb_launcher_pods::backend::Choice;
use ftb_launcher_pods::pod::net::PodNet;
use ftb_launcher_pods::spec::NodeSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Largest specification in bytes.
pub const SPEC_BYTES_MAX: u64 = 16 * 1024 * 1024;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NlaSpec {
    pub job: JobId,
    pub node: NodeName,
    pub spare: bool,
    /// Socket of the node's agent.
    pub agent: PathBuf,
    /// The node's directory for images of this job.
    pub image_dir: PathBuf,
    /// Where it listens for processes of the job (port 0: any).
    pub listen: String,
    /// How other nodes reach this one: a host name or an address.
    #[serde(default)]
    pub address: String,
    /// The addresses of its parent in the launch tree, of the parent's parent, and so on to the JL.
    #[serde(default)]
    pub uplinks: Vec<String>,
    /// Rank 0 gets the JL's standard input; all other input is empty.
    #[serde(default)]
    pub stdin: bool,
    /// The secret of the job.
    pub token: String,
    pub argv: Vec<String>,
    /// The environment without the launcher's own variables.
    pub env: Vec<(String, String)>,
    pub cwd: PathBuf,
    /// `MASTER_ADDR`: the address of the node of rank 0.
    pub master_addr: String,
    /// `MASTER_PORT`.
    pub master_port: u16,
    pub size: u32,
    #[serde(default)]
    pub backend: Choice,
    /// The network of the node's pod, for a backend with pods.
    #[serde(default)]
    pub pod: Option<PodNet>,
    #[serde(with = "humantime_serde")]
    pub orphan_grace: Duration,
    #[serde(with = "humantime_serde")]
    pub kill_grace: Duration,
    /// Interval of the looks at the ranks; zero: none.
    #[serde(default, with = "humantime_serde")]
    pub sample_every: Duration,
    /// Checkpoints in memory, if the job has them.
    #[serde(default)]
    pub memory: Option<MemorySpec>,
    /// Processes that wait for a rank to replace. Left out if there are none, for launch agents of
    /// earlier versions.
    #[serde(default, skip_serializing_if = "WarmProcesses::is_none")]
    pub warm: WarmProcesses,
}

/// The part of a specification that differs from node to node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodePart {
    pub node: NodeName,
    pub spare: bool,
    pub agent: PathBuf,
    pub image_dir: PathBuf,
    pub listen: String,
    pub address: String,
    #[serde(default)]
    pub pod: Option<PodNet>,
}

impl NlaSpec {
    /// This node's part.
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

    /// What the core needs.
    pub fn config(&self) -> NlaConfig {
        NlaConfig {
            job: self.job.clone(),
            size: self.size,
            node: self.node.clone(),
            orphan_grace: self.orphan_grace,
            kill_grace: self.kill_grace,
            manner: self.backend.get().manner(),
            sample_every: self.sample_every,
            warm: self.warm,
        }
    }

    /// What the node needs to save its ranks.
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
            memory: None,
        }
    }

    /// The same for another node.
    #[must_use]
    pub fn for_node(&self, part: &NodePart) -> Self {
        let NodePart { node, spare, agent, image_dir, listen, address, pod } = part.clone();
        Self { node, spare, agent, image_dir, listen, address, pod, ..self.clone() }
    }
}

/// How an NLA is started on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartMethod {
    /// As a child: all nodes are this host.
    Local,
    /// Over ssh, in a tree.
    Ssh,
    /// By one `srun`.
    Slurm,
}

/// How NLAs are started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Starting {
    pub means: StartMethod,
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

impl Starting {
    /// The same for these nodes alone: srun names its nodes.
    #[must_use]
    pub fn on(&self, nodes: &[NodeName]) -> Self {
        if self.means != StartMethod::Slurm {
            return self.clone();
        }
        let count = nodes.len();
        let hosts = ftb_core::hostlist::fold(nodes.iter().map(NodeName::as_str));
        let word = |word: &String| match word.split_once('=').map(|(option, _)| option) {
            Some(option @ ("--nodes" | "--ntasks")) => format!("{option}={count}"),
            Some("--nodelist") => format!("--nodelist={hosts}"),
            _ => word.clone(),
        };
        Self { command: self.command.iter().map(word).collect(), ..self.clone() }
    }
}

/// The standard input of an NLA.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handover {
    pub spec: NlaSpec,
    /// The nodes that this NLA starts.
    pub behind: Vec<NodePart>,
    pub starting: Starting,
}

impl PacketHead for Handover {}

impl Handover {
    /// The specification for `node`, where all NLAs get the same object; this NLA starts no others.
    ///
    /// # Errors
    /// The node is not part of the job.
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
            uplinks: Vec::new(),
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
            sample_every: Duration::ZERO,
            memory: None,
            warm: WarmProcesses::default(),
        }
    }

    #[test]
    fn each_of_all_finds_its_own_part() {
        let first = spec("node01");
        let mut part = spec("node02").part();
        part.spare = true;
        let starting = Starting {
            means: StartMethod::Slurm,
            command: Vec::new(),
            program: "ftb-nla".into(),
            fanout: 1,
            deadline: Duration::from_secs(1),
        };
        let handover = Handover { spec: first, behind: vec![part.clone()], starting };
        let own = handover.clone().for_one_of_all(&part.node).unwrap();
        assert_eq!(own.spec.part(), part);
        assert!(own.behind.is_empty());
        let stranger = NodeName::new("node03").unwrap();
        assert!(handover.for_one_of_all(&stranger).unwrap_err().contains("node03"));
    }
}
