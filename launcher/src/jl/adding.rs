//! Nodes that join the running job: what is known of them, their conditions, their specifications.
//! The core decides what becomes of them ([`ftb_launcher_core::jl`]).

use super::JobLauncher;
use crate::commands::place;
use crate::jobdir::added;
use crate::nodedir;
use crate::plan::{NodeEntry, NodesFile};
use crate::reports::{ConditionTable, Readers};
use crate::spec::{NlaSpec, NodePart, StartMethod};
use ftb_launcher_core::jl::{Initiator, JlInput};
use ftb_launcher_core::link::router::LinkInput;
use ftb_launcher_core::message::{Answer, Outcome};
use ftb_launcher_core::names::NodeName;
use ftb_launcher_core::policy::{Action, Policy, Report};
use ftb_launcher_core::tree::TreeMessage;
use ftb_launcher_core::wire;
use ftb_launcher_pods::pod::net::PodNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use tokio::sync::mpsc;

/// What nodes need to join the running job.
pub(super) struct Adding {
    pub(super) readers: Readers,
    pub(super) joining: mpsc::Sender<JoinRequest>,
    pub(super) say: mpsc::Sender<(u64, TreeMessage)>,
    pub(super) starts: Starts,
    /// Killed launch agents of this host, which may have their directory still.
    pub(super) dying: BTreeMap<NodeName, u32>,
}

/// Which start of launch agents was the last one of each node: an earlier one says nothing about
/// the agent that lives now.
#[derive(Debug, Default)]
pub(super) struct Starts {
    count: u64,
    last: BTreeMap<NodeName, u64>,
}

impl Starts {
    /// The number of one more start, of these nodes.
    pub(super) fn begin(&mut self, nodes: &[NodeName]) -> u64 {
        self.count += 1;
        self.last.extend(nodes.iter().map(|node| (node.clone(), self.count)));
        self.count
    }

    pub(super) fn is_last(&self, node: &NodeName, start: u64) -> bool {
        self.last.get(node).is_none_or(|last| *last == start)
    }
}

/// A request whose conditions are read.
pub(super) struct JoinRequest {
    request: u64,
    entries: Vec<NodeEntry>,
    /// Those of new nodes, if there are any.
    conditions: Result<Option<ConditionTable>, String>,
}

impl JobLauncher {
    /// Reads what is known of the nodes, and their conditions.
    pub(super) async fn begin_join(&self, request: u64, nodes: &BTreeSet<NodeName>) {
        let file = added(request);
        let entries = self.dir.read(&file).map(|NodesFile { node }| node);
        let entries = entries.unwrap_or_else(|error| {
            tracing::info!(error, "only the names of the nodes are known");
            let named =
                |name: &NodeName| NodeEntry::new(name.clone(), ftb_client::default_socket());
            nodes.iter().map(named).collect()
        });
        let new: Vec<NodeName> = entries.iter().map(|entry| entry.name.clone()).collect();
        let new: Vec<NodeName> =
            new.into_iter().filter(|node| !self.file.specs.contains_key(node)).collect();
        let (readers, to) = (self.adding.readers.clone(), self.adding.joining.clone());
        tokio::spawn(async move {
            let conditions = match new.is_empty() {
                true => Ok(None),
                false => readers.conditions_of(new.iter()).await.map(Some),
            };
            let _ = to.send(JoinRequest { request, entries, conditions }).await;
        });
    }

    /// The conditions of the nodes are known: they are refused, or their agents are started.
    pub(super) async fn on_join(&mut self, join: JoinRequest) {
        let JoinRequest { request, entries, conditions } = join;
        let nodes: BTreeSet<NodeName> = entries.iter().map(|entry| entry.name.clone()).collect();
        self.learn_host();
        let checked = conditions.and_then(|table| {
            let policy = self.judge(table.as_ref().map_or(&[], |table| &table.rows))?;
            self.state.jl.check_add(&nodes)?;
            Ok((policy, self.specs_of(&entries)?, table))
        });
        let (policy, specs, table) = match checked {
            Ok(checked) => checked,
            Err(why) => return self.refuse_join(request, why).await,
        };
        let mut file = self.file.clone();
        file.specs.extend(specs.clone());
        if let Err(why) = self.dir.write("job.json", &file) {
            return self.refuse_join(request, why).await;
        }
        for node in specs.keys() {
            self.stop_arriving(node).await;
        }
        (self.file, self.policy) = (file, policy);
        if let Some(table) = table {
            self.adding.readers.follow(table);
        }
        for node in &nodes {
            let _ = self.links.to_nodes.send(LinkInput::Know(node.clone())).await;
        }
        let racks = entries.iter().filter_map(|of| Some((of.name.clone(), of.rack.clone()?)));
        let racks: BTreeMap<NodeName, String> = racks.collect();
        self.handle(JlInput::Add { nodes, racks, by: Initiator::Request(request) }).await;
        self.dir.forget(&added(request));
    }

    /// A node that has a specification gets another one: what was started with the former one ends.
    async fn stop_arriving(&mut self, node: &NodeName) {
        if let Some(former) = self.file.specs.get(node) {
            // One that has not reached its agent has its directory already.
            if self.local
                && let Some(pid) = nodedir::agent_of(&former.image_dir)
            {
                self.state.nlas.insert(node.clone(), pid);
            }
            self.kill_nla(node);
            let reason = "it was added again with other data".to_owned();
            self.handle(JlInput::Gone { node: node.clone(), reason }).await;
        }
    }

    async fn refuse_join(&self, request: u64, words: String) {
        self.tell(&format!("nodes are not added: {words}"));
        let answer = Answer { request, outcome: Outcome::Refused, words };
        self.publish(wire::answer(&answer)).await;
        self.dir.forget(&added(request));
    }

    /// The policy with these conditions of nodes that are not of the job yet.
    ///
    /// # Errors
    /// The nodes that get no ranks, and why.
    fn judge(&self, rows: &[Report]) -> Result<Policy, String> {
        let (now, facts) = (self.clock.now(), self.facts());
        let mut policy = self.policy.clone();
        let mut faulty = Vec::new();
        for report in rows {
            let is_new = |node: &NodeName| !self.state.jl.job().nodes.contains_key(node);
            let Some(node) = report.node().filter(is_new) else { continue };
            if policy.check(report, &node, facts.owner).is_err() {
                continue;
            }
            for action in policy.event(now, report, &node, &facts) {
                if let Action::Unusable { node, why } = action {
                    faulty.push(format!("node {node} is not usable ({})", why.why));
                }
            }
        }
        if faulty.is_empty() { Ok(policy) } else { Err(faulty.join("; ")) }
    }

    /// The specifications of nodes that have none, and of those that have never reported and get
    /// another one: the former one may be wrong. An entry with only a name changes nothing.
    fn specs_of(&self, entries: &[NodeEntry]) -> Result<BTreeMap<NodeName, NlaSpec>, String> {
        let specs = &self.file.specs;
        let any = specs.values().next().ok_or("the job has no nodes")?;
        let means = self.file.starting.as_ref().map_or(StartMethod::Local, |of| of.means);
        let mut nets = Vec::new();
        let mut specs_of = BTreeMap::new();
        for entry in entries {
            let part = place::part(means, true, entry, &self.file.job, &self.dir);
            let part = match specs.get(&entry.name).map(NlaSpec::part) {
                None => {
                    let pod = self.next_net(any, &nets)?;
                    nets.extend(pod.clone());
                    NodePart { pod, ..part }
                }
                Some(_) if entry.is_name_only() || self.state.jl.has_reported(&entry.name) => {
                    continue;
                }
                Some(former) => {
                    let part = NodePart { pod: former.pod.clone(), ..part };
                    if part == (NodePart { spare: true, ..former }) {
                        continue;
                    }
                    part
                }
            };
            specs_of.insert(entry.name.clone(), any.for_node(&part));
        }
        Ok(specs_of)
    }

    /// The network of one more pod, if the ranks live in pods.
    fn next_net(&self, any: &NlaSpec, more: &[PodNet]) -> Result<Option<PodNet>, String> {
        let (Some(net), Some(criu)) = (&any.pod, any.backend.pods()) else { return Ok(None) };
        if !net.own {
            return Err(format!(
                "the pods share bridge {} with other jobs, and have no more addresses there: name \
                 enough spares when the job starts",
                net.bridge
            ));
        }
        let known = self.file.specs.values().filter_map(|spec| spec.pod.as_ref()).chain(more);
        let last = known.map(|net| u32::from(net.address)).max().unwrap_or(0);
        let count = self.file.specs.len() + more.len() + 1;
        criu.addresses(count, net.mark)?;
        Ok(Some(PodNet { address: Ipv4Addr::from(last + 1), ..net.clone() }))
    }
}
