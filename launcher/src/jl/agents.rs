//! The node launch agents of the job as processes: started through the launch tree, found and
//! watched after a takeover, killed at the end.

use super::{INPUTS_MAX, JobLauncher, KILLED, LOOK_EVERY};
use crate::spec::{NlaSpec, NodePart, StartMethod, Starting};
use crate::{nodedir, starter};
use ftb_launcher_core::jl::{Initiator, JlInput, Request};
use ftb_launcher_core::link::router::LinkInput;
use ftb_launcher_core::names::NodeName;
use ftb_launcher_core::tree::TreeMessage;
use ftb_launcher_pods::pod::{self, net::PodNet};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::sync::mpsc;

/// Most checks of the network of an ended job.
const NETWORK_LOOKS_MAX: u32 = 20;

impl JobLauncher {
    pub(super) fn start_nlas(&mut self, starting: Starting) {
        self.local = starting.means == StartMethod::Local;
        let Some(any) = self.file.specs.values().next().cloned() else {
            return;
        };
        let any = NlaSpec { uplinks: vec![self.links.address.clone()], ..any };
        let nodes: Vec<NodePart> = self.file.specs.values().map(NlaSpec::part).collect();
        self.run_starter(starting, any, nodes);
    }

    /// Starts launch agents, after the kills of former ones on the same nodes.
    fn run_starter(&mut self, starting: Starting, any: NlaSpec, nodes: Vec<NodePart>) {
        let names: Vec<NodeName> = nodes.iter().map(|part| part.node.clone()).collect();
        let start = self.adding.starts.begin(&names);
        let killed = self.remote_kill.ended(&names);
        let dying: Vec<u32> =
            names.iter().filter_map(|node| self.adding.dying.remove(node)).collect();
        let (clock, to) = (self.clock, self.adding.say.clone());
        let (say, mut words) = mpsc::channel(INPUTS_MAX);
        tokio::spawn(async move {
            killed.await;
            for pid in dying {
                while nodedir::is_agent(pid) {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            }
            starter::run(starting, any, nodes, clock, say).await;
        });
        tokio::spawn(async move {
            while let Some(word) = words.recv().await {
                if to.send((start, word)).await.is_err() {
                    return;
                }
            }
        });
    }

    /// Starts launch agents of nodes that join the running job, as those of spares.
    pub(super) async fn start_more(&mut self, nodes: Vec<NodeName>) {
        let known =
            |node: &NodeName| Some(NodePart { spare: true, ..self.file.specs.get(node)?.part() });
        let parts: Vec<NodePart> = nodes.iter().filter_map(known).collect();
        let any = self.file.specs.values().next().cloned();
        let (Some(starting), Some(any)) = (self.file.starting.clone(), any) else { return };
        for node in &nodes {
            // Nothing for its earlier agent reaches the new one.
            let _ = self.links.to_nodes.send(LinkInput::Forget(node.clone())).await;
            let _ = self.links.to_nodes.send(LinkInput::Know(node.clone())).await;
        }
        let (uplinks, size) = (vec![self.links.address.clone()], self.state.jl.job().config.size);
        self.run_starter(starting.on(&nodes), NlaSpec { uplinks, size, ..any }, parts);
    }

    /// Handles a message of the launch tree of this start.
    pub(super) async fn on_tree_message(&mut self, start: u64, word: TreeMessage) {
        let (TreeMessage::Up { node, .. } | TreeMessage::Lost { node, .. }) = &word;
        if !self.adding.starts.is_last(node, start) {
            return tracing::debug!(%node, "an earlier start has ended: {word:?}");
        }
        match word {
            TreeMessage::Up { node, pid } if self.local => {
                self.state.nlas.insert(node, pid);
            }
            TreeMessage::Up { node, .. } => tracing::debug!(%node, "its launch agent is up"),
            TreeMessage::Lost { node, reason } => self.handle(JlInput::Gone { node, reason }).await,
        }
    }

    /// Continues the work of an earlier JL. If that one was killed before all launch agents were
    /// up, all are started again; an agent that exists reports in place of the second one.
    pub(super) async fn take_over(&mut self, end: bool) {
        let starting = self.file.starting.clone();
        self.local = starting.as_ref().is_some_and(|starting| starting.means == StartMethod::Local);
        if self.local {
            self.find_nlas();
        }
        self.watch_nlas();
        self.handle(JlInput::Adopted).await;
        let gathers = self.state.jl.gathers();
        match starting.filter(|_| gathers && !end) {
            Some(starting) => self.start_nlas(starting),
            None if self.local => self.miss_nlas().await,
            None => {}
        }
        if end {
            let reason = "it was asked to".to_owned();
            let want = Request::Kill { code: KILLED, reason };
            self.handle(JlInput::Request { want, by: Initiator::Internal }).await;
        }
    }

    /// Finds local launch agents that the earlier JL has started but not recorded.
    pub(super) fn find_nlas(&mut self) {
        for (node, spec) in &self.file.specs {
            if !self.state.nlas.contains_key(node)
                && let Some(pid) = nodedir::agent_of(&spec.image_dir)
            {
                self.state.nlas.insert(node.clone(), pid);
            }
        }
    }

    /// Reports local nodes without a launch agent as gone.
    pub(super) async fn miss_nlas(&mut self) {
        let known = &self.state.nlas;
        // A node that is lost already may be about to join again.
        let lives =
            |node: &NodeName| self.state.jl.job().nodes.get(node).is_some_and(|row| !row.lost);
        let missing = self.file.specs.keys();
        let missing = missing.filter(|node| lives(node) && !known.contains_key(*node));
        for node in missing.cloned().collect::<Vec<_>>() {
            let reason = "its launch agent is not there".to_owned();
            self.handle(JlInput::Gone { node, reason }).await;
        }
    }

    /// NLAs of an earlier JL are not children of this process, so it polls for their ends.
    pub(super) fn watch_nlas(&self) {
        for (node, pid) in self.state.nlas.clone() {
            let inputs = self.inputs.clone();
            tokio::spawn(async move {
                while nodedir::is_agent(pid) {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                let reason = "its launch agent has ended".to_owned();
                let _ = inputs.send(JlInput::Gone { node, reason }).await;
            });
        }
    }

    pub(super) fn kill_all_nlas(&mut self) {
        for node in self.state.nlas.keys().cloned().collect::<Vec<_>>() {
            self.kill_own_nla(&node);
        }
    }

    /// Removes the job's own bridge if the launch agents could not.
    pub(super) async fn clear_networks(&self) {
        let nets: Vec<PodNet> =
            self.file.specs.values().filter_map(|spec| spec.pod.clone()).collect();
        let Some(net) = nets.into_iter().find(|net| net.own) else {
            return;
        };
        // Links disappear a moment after their processes.
        for _ in 0..NETWORK_LOOKS_MAX {
            let net = net.clone();
            let gone = tokio::task::spawn_blocking(move || pod::net::remove_bridge(&net)).await;
            if gone.unwrap_or(true) {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        tracing::warn!(bridge = net.bridge, "the job's bridge stays: something hangs on it");
    }

    pub(super) fn kill_nla(&mut self, node: &NodeName) {
        if let Some(spec) = self.file.specs.get(node) {
            self.remote_kill.kill(node, &spec.image_dir);
        }
        self.kill_own_nla(node);
    }

    pub(super) fn kill_own_nla(&mut self, node: &NodeName) {
        let Some(pid) = self.state.nlas.remove(node).filter(|pid| nodedir::is_agent(*pid)) else {
            return;
        };
        if let Ok(of) = i32::try_from(pid) {
            let _ = kill(Pid::from_raw(of), Signal::SIGKILL);
            self.adding.dying.insert(node.clone(), pid);
        }
    }

    /// Whether the launch agent of a node is a live process on this host.
    pub(super) fn lives(&self, node: &NodeName) -> bool {
        self.state.nlas.get(node).is_some_and(|pid| nodedir::is_agent(*pid))
    }
}
