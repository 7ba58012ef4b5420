//! Turns the user's nodes, spares and number of ranks into a placement. Refuses bad input before
//! anything starts.

use super::rankfile::RankFile;
use ftb_core::hostlist::Hostlist;
use ftb_launcher_core::message::Placement;
use ftb_launcher_core::names::{NODES_MAX, NodeName, RANKS_MAX, RANKS_PER_NODE_MAX, Ranks};
use ftb_launcher_pods::document::Document;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A node of the nodes file or of `--local-nodes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeEntry {
    /// Its name: the host name of its agent.
    pub name: NodeName,
    /// Socket of its agent; `%n` becomes the node's name. `agent` is its name in older releases.
    #[serde(default = "ftb_client::default_socket", rename = "agent_socket", alias = "agent")]
    pub agent: PathBuf,
    /// Directory for images of all jobs there; default: the user's own.
    #[serde(default)]
    pub images: Option<PathBuf>,
    /// Where its launch agent listens; default: any.
    #[serde(default)]
    pub listen: Option<String>,
    /// How other nodes reach it; default: its name.
    #[serde(default)]
    pub address: Option<String>,
    /// What fails together with other nodes of this rack.
    #[serde(default)]
    pub rack: Option<String>,
}

impl NodeEntry {
    /// A node with only a name and an agent's socket.
    pub fn new(name: NodeName, agent: PathBuf) -> Self {
        Self { name, agent, images: None, listen: None, address: None, rack: None }
    }

    /// Whether nothing is said of it but its name, and where it fails.
    pub fn is_name_only(&self) -> bool {
        let Self { agent, images, listen, address, .. } = self;
        *agent == ftb_client::default_socket()
            && images.is_none()
            && listen.is_none()
            && address.is_none()
    }

    /// The socket of its agent.
    pub fn agent(&self) -> PathBuf {
        match self.agent.to_str() {
            Some(text) => text.replace("%n", self.name.as_str()).into(),
            None => self.agent.clone(),
        }
    }
}

/// Nodes as a person writes them, or a command that adds them.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodesFile {
    pub(crate) node: Vec<NodeEntry>,
}

impl Document for NodesFile {}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Every node of the job, by name.
    pub nodes: BTreeMap<NodeName, NodeEntry>,
    pub placement: Placement,
    /// Hot spares in order.
    pub spares: Vec<NodeName>,
}

impl Plan {
    /// Whether ranks that are restored together are placed together and apart from others.
    ///
    /// # Errors
    /// Which are not, and how they must be placed.
    pub fn keeps(&self, pods: &[Ranks]) -> Result<(), String> {
        let placed = |pod: &Ranks| self.placement.values().any(|ranks| ranks == pod);
        if pods.iter().all(placed) {
            return Ok(());
        }
        let pods: Vec<String> = pods.iter().map(Ranks::brief).collect();
        Err(format!(
            "the ranks of this set were saved in pods ({}): place each pod on a node of its own \
             (--hosts, --ppn)",
            pods.join(" | ")
        ))
    }
}

/// Reads a nodes file; `deploy/config/nodes.toml` explains its keys.
///
/// # Errors
/// The file, the line, and the problem.
pub fn read_nodes(path: &Path) -> Result<Vec<NodeEntry>, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read the nodes file {}: {error}", path.display()))?;
    let file: NodesFile = toml::from_str(&text).map_err(|error| {
        let line = ftb_core::text::line(&text, error.span().map_or(0, |span| span.start));
        let message = error.message().replace('\n', " ");
        format!("nodes file {} line {line}: {message}", path.display())
    })?;
    Ok(file.node)
}

/// Reads `node01=/path/agent.sock,node02=...`.
///
/// # Errors
/// The wrong word.
pub fn parse_local(text: &str) -> Result<Vec<NodeEntry>, String> {
    let entry = |word: &str| {
        let (name, agent) = word.split_once('=').ok_or_else(|| {
            format!("{word:?} is not NODE=SOCKET (as in node01=/run/ftb/agent.sock)")
        })?;
        let name = NodeName::new(name).map_err(|error| error.to_string())?;
        Ok(NodeEntry::new(name, agent.into()))
    };
    text.split(',').filter(|word| !word.is_empty()).map(entry).collect()
}

/// The nodes of a host list that are to join a job. `known`: what is known of some; then of all.
///
/// # Errors
/// The list is wrong, or a node is not known.
pub fn joining(
    text: &str,
    known: Option<Vec<NodeEntry>>,
    socket: &Path,
) -> Result<Vec<NodeEntry>, String> {
    let mut names = hosts(text, "NODES")?;
    names.sort();
    names.dedup();
    let Some(known) = known else {
        let named = |name| NodeEntry::new(name, socket.to_owned());
        return Ok(names.into_iter().map(named).collect());
    };
    let known: BTreeMap<_, _> =
        known.into_iter().map(|entry| (entry.name.clone(), entry)).collect();
    let of = |name: NodeName| {
        let entry = known.get(&name).cloned();
        entry.ok_or_else(|| format!("host {name} is not among the nodes"))
    };
    names.into_iter().map(of).collect()
}

/// Reads a host list of the option `what`.
///
/// # Errors
/// The option and the problem.
pub fn hosts(text: &str, what: &str) -> Result<Vec<NodeName>, String> {
    let list = Hostlist::parse(text).map_err(|error| format!("{what}: {error}"))?;
    let name = |host: String| NodeName::new(&host).map_err(|error| format!("{what}: {error}"));
    list.iter().map(name).collect()
}

/// How ranks are spread over the primary nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spread {
    /// In blocks of this size; default: the smallest possible.
    Blocks(Option<u32>),
    /// As a rank file says.
    File(RankFile),
}

/// Places `size` ranks on the hosts (default: every node that is not a spare).
///
/// # Errors
/// An unknown host, a spare that is also primary, or more ranks than places.
pub fn place(
    entries: Vec<NodeEntry>,
    size: u32,
    spread: &Spread,
    primaries: Option<&str>,
    spares: Option<&str>,
) -> Result<Plan, String> {
    let order: Vec<NodeName> = entries.iter().map(|entry| entry.name.clone()).collect();
    let mut nodes = BTreeMap::new();
    for entry in entries {
        let name = entry.name.clone();
        if nodes.insert(name.clone(), entry).is_some() {
            return Err(format!("node {name} is named twice"));
        }
    }
    if nodes.len() > NODES_MAX {
        return Err(format!("{} nodes: at most {NODES_MAX} are allowed", nodes.len()));
    }
    let spares = spares.map_or_else(|| Ok(Vec::new()), |text| hosts(text, "--spares"))?;
    let primaries = match primaries {
        Some(text) => hosts(text, "--hosts")?,
        None => order.into_iter().filter(|name| !spares.contains(name)).collect(),
    };
    for name in primaries.iter().chain(&spares) {
        if !nodes.contains_key(name) {
            let known: Vec<&str> = nodes.keys().map(NodeName::as_str).take(8).collect();
            return Err(format!("host {name} is not among the nodes ({})", known.join(" ")));
        }
    }
    if let Some(both) = primaries.iter().find(|name| spares.contains(name)) {
        return Err(format!(
            "host {both} is a spare and a primary node: leave it out of one of them"
        ));
    }
    if size == 0 || size > RANKS_MAX {
        return Err(format!("{size} ranks: 1 to {RANKS_MAX} are allowed"));
    }
    let placement = match spread {
        Spread::Blocks(per_node) => blocks(&primaries, size, *per_node)?,
        Spread::File(file) => file.place(&primaries, &spares, size)?,
    };
    if let Some((name, ranks)) = placement.iter().find(|(_, r)| r.len() > RANKS_PER_NODE_MAX) {
        let count = ranks.len();
        return Err(format!(
            "{count} ranks on node {name}: at most {RANKS_PER_NODE_MAX} are allowed"
        ));
    }
    let used = |name: &NodeName| placement.contains_key(name) || spares.contains(name);
    nodes.retain(|name, _| used(name));
    Ok(Plan { nodes, placement, spares })
}

fn blocks(primaries: &[NodeName], size: u32, per_node: Option<u32>) -> Result<Placement, String> {
    let hosts = u32::try_from(primaries.len()).unwrap_or(u32::MAX);
    if hosts == 0 {
        return Err("there is no host to run on: no node is named that is no spare".to_owned());
    }
    let per_node = per_node.unwrap_or_else(|| size.div_ceil(hosts));
    let places = hosts.saturating_mul(per_node);
    if places < size {
        return Err(format!(
            "{size} ranks do not fit: {hosts} hosts with {per_node} ranks each have {places} \
             places: \
             name more hosts, or a larger --ppn"
        ));
    }
    let mut placement = Placement::new();
    let mut next = 0;
    for name in primaries {
        let end = (next + per_node).min(size);
        if next < end {
            let ranks: Ranks = (next..end).collect();
            if placement.insert(name.clone(), ranks).is_some() {
                return Err(format!("host {name} is named twice"));
            }
        }
        next = end;
    }
    Ok(placement)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn entries() -> Vec<NodeEntry> {
        parse_local("node01=/a,node02=/b,node03=/c").unwrap()
    }

    #[test]
    fn ranks_are_placed_in_blocks_and_spares_have_none() {
        let plan = place(entries(), 4, &Spread::Blocks(None), None, Some("node03")).unwrap();
        let node = |name: &str| NodeName::new(name).unwrap();
        assert_eq!(plan.placement[&node("node01")], Ranks::from_iter([0, 1]));
        assert_eq!(plan.placement[&node("node02")], Ranks::from_iter([2, 3]));
        assert_eq!(plan.spares, [node("node03")]);
    }

    #[test]
    fn an_impossible_placement_is_refused_with_the_reason() {
        let why = |size, per_node, hosts, spares| {
            place(entries(), size, &Spread::Blocks(per_node), hosts, spares).unwrap_err()
        };
        assert!(why(4, Some(1), None, None).contains("3 places"));
        assert!(why(4, None, Some("node01,node09"), None).contains("node09 is not among"));
        assert!(why(4, None, Some("node01"), Some("node01")).contains("spare and a primary"));
        assert!(why(0, None, None, None).contains("0 ranks"));
        assert!(why(1025, Some(1025), Some("node01"), None).contains("at most 1024"));
        assert!(why(2, None, None, Some("node[01-03]")).contains("no spare"));
        assert!(parse_local("node01").unwrap_err().contains("NODE=SOCKET"));
    }

    #[test]
    fn every_key_of_the_sample_nodes_file_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nodes.toml");
        let sample = include_str!("../../deploy/config/nodes.toml");
        std::fs::write(&path, ftb_tests::samples::with_all_keys(sample)).unwrap();
        let nodes = read_nodes(&path).unwrap();
        assert!(nodes[0].listen.is_some() && nodes[0].rack.is_some(), "{nodes:?}");
        assert_eq!(toml::from_str::<NodesFile>(sample).unwrap().node.len(), 1);
    }

    #[test]
    fn a_wrong_key_in_the_nodes_file_is_named_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nodes.toml");
        std::fs::write(&path, "[[node]]\nname = \"a\"\nagent = \"/x\"\nport = 3\n").unwrap();
        let error = read_nodes(&path).unwrap_err();
        assert!(error.contains("line 4") && error.contains("port"), "{error}");
    }
}
