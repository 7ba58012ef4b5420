//! Nodes that join the running job: what is known of them, their conditions, their specifications.
//! The core decides what becomes of them ([`ftb_launcher_core::jl`]).

use super::JobLauncher;
use crate::commands::place;
use crate::jobdir::added;
use crate::plan::NodeEntry;
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
    pub(super) say: mpsc::Sender<TreeMessage>,
}

/// A request whose conditions are read.
pub(super) struct JoinRequest {
    request: u64,
    entries: Vec<NodeEntry>,
    conditions: Result<ConditionTable, String>,
}

impl JobLauncher {
    /// Reads what is known of the nodes, and their conditions.
    pub(super) async fn begin_join(&self, request: u64, nodes: &BTreeSet<NodeName>) {
        let file = added(request);
        let entries = self.dir.read::<Vec<NodeEntry>>(&file);
        let entries: Vec<NodeEntry> = entries.unwrap_or_else(|error| {
            tracing::info!(error, "only the names of the nodes are known");
            let named =
                |name: &NodeName| NodeEntry::new(name.clone(), ftb_client::default_socket());
            nodes.iter().map(named).collect()
        });
        let (readers, to) = (self.adding.readers.clone(), self.adding.joining.clone());
        tokio::spawn(async move {
            let conditions = readers.conditions_of(entries.iter().map(|entry| &entry.name)).await;
            let _ = to.send(JoinRequest { request, entries, conditions }).await;
        });
    }

    /// The conditions of the nodes are known: they are refused, or their agents are started.
    pub(super) async fn on_join(&mut self, join: JoinRequest) {
        let JoinRequest { request, entries, conditions } = join;
        let checked = match conditions {
            Err(why) => Err(why),
            Ok(table) => self.judge(&table.rows).and_then(|policy| {
                let specs = self.specs_of(&entries)?;
                Ok((policy, specs, table))
            }),
        };
        let (policy, specs, table) = match checked {
            Ok(checked) => checked,
            Err(why) => return self.refuse_join(request, why).await,
        };
        let mut file = self.file.clone();
        file.specs.extend(specs);
        if let Err(why) = self.dir.write("job.json", &file) {
            return self.refuse_join(request, why).await;
        }
        (self.file, self.policy) = (file, policy);
        self.adding.readers.follow(table);
        for entry in &entries {
            let _ = self.links.to_nodes.send(LinkInput::Know(entry.name.clone())).await;
        }
        let racks = entries.iter().filter_map(|of| Some((of.name.clone(), of.rack.clone()?)));
        let racks: BTreeMap<NodeName, String> = racks.collect();
        let nodes = entries.into_iter().map(|entry| entry.name).collect();
        self.handle(JlInput::Add { nodes, racks, by: Initiator::Request(request) }).await;
        self.dir.forget(&added(request));
    }

    async fn refuse_join(&self, request: u64, words: String) {
        self.tell(&format!("nodes are not added: {words}"));
        let answer = Answer { request, outcome: Outcome::Refused, words };
        self.publish(wire::answer(&answer)).await;
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

    /// The specifications of nodes that have none.
    fn specs_of(&self, entries: &[NodeEntry]) -> Result<BTreeMap<NodeName, NlaSpec>, String> {
        let specs = &self.file.specs;
        let any = specs.values().next().ok_or("the job has no nodes")?;
        let means = self.file.starting.as_ref().map_or(StartMethod::Local, |of| of.means);
        let mut nets = Vec::new();
        let mut specs_of = BTreeMap::new();
        for entry in entries.iter().filter(|entry| !specs.contains_key(&entry.name)) {
            let pod = self.next_net(any, &nets)?;
            nets.extend(pod.clone());
            let part = place::part(means, true, entry, &self.file.job, &self.dir);
            let spec = any.for_node(&NodePart { pod, ..part });
            specs_of.insert(entry.name.clone(), spec);
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
