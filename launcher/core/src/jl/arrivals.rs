//! Nodes that join a running job, and a job that waits for them.
//!
//! A node that joins is a lost one ([`Node::lost`]) that is [`Node::arriving`], until its launch
//! agent reports itself as a spare. So no request, deadline or recovery waits for it. Its report
//! counts only between episodes, or while the job waits: a recovery must not take a rank of a lost
//! node for one that lives. The agent reports again with each question.
//!
//! A job with `wait_for_nodes` whose lost node has no spare stays in phase [`WAIT`] of its restart.
//! After each input it looks for a placement. Meanwhile lost nodes are tried again.

use super::job::{Node, NodeFaults};
use super::node_wait::{NodeWait, WAIT};
use super::{Initiator, Jl, JlOutput, Open, Outcome, Workflow};
use crate::message::{FromJl, Waiting};
use crate::migration_state::MigrationState;
use crate::names::{NODES_MAX, NodeName};
use core::time::Duration;
use ftb_core::{Now, hostlist};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Interval at which a job that waits tries lost nodes again. Longer than the kill of an agent on
/// another host, which must not meet its successor.
pub const RETURN_EVERY: Duration = Duration::from_secs(15);
/// Most requests whose nodes are still arriving; further ones are refused.
pub const ADDING_MAX: usize = 16;

/// A request whose nodes are arriving.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Adding {
    pub(super) by: Initiator,
    all: usize,
    missing: BTreeSet<NodeName>,
    failed: BTreeMap<NodeName, String>,
}

impl Adding {
    fn arrived(&self) -> usize {
        self.all - self.missing.len() - self.failed.len()
    }

    /// When no node is missing any more.
    fn result(&self) -> (Outcome, String) {
        let all = self.all;
        if self.failed.is_empty() {
            let nodes = if all == 1 { "node is a spare" } else { "nodes are spares" };
            return (Outcome::Done, format!("{all} {nodes} of the job"));
        }
        let why: Vec<String> =
            self.failed.iter().map(|(node, why)| format!("{node}: {why}")).collect();
        (Outcome::Failed, format!("{} of {all} nodes added; {}", self.arrived(), why.join("; ")))
    }
}

fn words_of<'a>(nodes: impl IntoIterator<Item = &'a NodeName>) -> String {
    hostlist::fold(nodes.into_iter().map(NodeName::as_str))
}

impl Jl {
    /// Adds nodes as spares. Nodes of the job that are not lost are there already.
    pub(super) fn add(
        &mut self,
        now: Now,
        nodes: &BTreeSet<NodeName>,
        racks: BTreeMap<NodeName, String>,
        by: Initiator,
    ) {
        if let Err(why) = self.check_add(nodes) {
            self.job.tell(format!("node {} is not added: {why}", words_of(nodes)));
            return self.settle(by, Outcome::Refused, &why);
        }
        if let Some(memory) = &mut self.job.config.memory {
            memory.racks.extend(racks);
        }
        let (mut missing, mut start) = (BTreeSet::new(), Vec::new());
        for name in nodes {
            let row = self.job.nodes.entry(name.clone());
            let row = row.or_insert_with(|| Node { lost: true, ..Node::new() });
            if row.lost {
                missing.insert(name.clone());
                if !core::mem::replace(&mut row.arriving, true) {
                    start.push(name.clone());
                }
                if !self.job.config.spares.contains(name) {
                    self.job.config.spares.push(name.clone());
                }
            }
        }
        if missing.is_empty() {
            let words = format!("{} is part of the job already", words_of(nodes));
            return self.settle(by, Outcome::Done, &words);
        }
        let words = format!("launch agents are being started on {}", words_of(&missing));
        self.job.tell(words.clone());
        self.reply(by, Outcome::Accepted, &words);
        let (all, failed) = (missing.len(), BTreeMap::new());
        self.adding.push(Adding { by, all, missing, failed });
        self.start_arriving(now, start);
    }

    /// Whether these nodes can be added now.
    ///
    /// # Errors
    /// Why not.
    pub fn check_add(&self, nodes: &BTreeSet<NodeName>) -> Result<(), String> {
        let known = |name: &&NodeName| self.job.nodes.contains_key(*name);
        let faulty = |name: &NodeName| {
            let why = self.job.nodes.get(name)?.unusable.as_ref()?;
            Some(format!("node {name} is not usable ({})", why.why))
        };
        let faulty: Vec<String> = nodes.iter().filter_map(faulty).collect();
        match () {
            () if self.ends() => Err("the job is ending".to_owned()),
            () if self.is_unsaved() => Err("the state of the job cannot be saved".to_owned()),
            () if nodes.is_empty() => Err("no node is named".to_owned()),
            () if !faulty.is_empty() => Err(faulty.join("; ")),
            () if self.adding.len() >= ADDING_MAX => {
                Err(format!("{ADDING_MAX} requests wait for nodes already"))
            }
            () if self.job.nodes.len() + nodes.iter().filter(|name| !known(name)).count()
                > NODES_MAX =>
            {
                Err(format!("at most {NODES_MAX} nodes are allowed"))
            }
            () => Ok(()),
        }
    }

    fn start_arriving(&mut self, now: Now, nodes: Vec<NodeName>) {
        self.job.out.push(JlOutput::Save);
        if !nodes.is_empty() {
            for node in &nodes {
                self.await_arrival(now, node);
            }
            self.job.out.push(JlOutput::StartNlas(nodes));
        }
    }

    /// From now on the node has the full time to arrive.
    fn await_arrival(&mut self, now: Now, node: &NodeName) {
        let until_ns = now.deadline_ns(self.job.config.deadlines.gather);
        if let Some(row) = self.job.nodes.get_mut(node) {
            row.arrive_ns = until_ns;
        }
    }

    /// Starts the agents of all arriving nodes again: this launcher is new, or could not save that
    /// they were to be started. A second agent of a node leaves the first one alone.
    pub(super) fn restart_arriving(&mut self, now: Now) {
        let nodes = self.job.arriving();
        if !nodes.is_empty() {
            self.start_arriving(now, nodes);
        }
    }

    /// A lost node that is arriving reports. An agent with ranks is one from before the loss.
    pub(super) fn on_arriving(
        &mut self,
        now: Now,
        node: &NodeName,
        state: MigrationState,
        changes: u64,
    ) {
        if state != MigrationState::Spare {
            let (episode, target) = (self.job.episode, node.clone());
            return self.job.publish(FromJl::Evict { episode, target });
        }
        let may_arrive = self.waits_for_nodes() || self.open.is_none();
        if !may_arrive || self.is_unsaved() || self.recovery.is_some() {
            // It lives, and is to report again.
            return self.await_arrival(now, node);
        }
        self.job.arrive(node, changes);
        self.job.tell(format!("node {node} is a spare of the job"));
        self.job.out.push(JlOutput::Save);
        self.answer_adding(node, None);
    }

    /// Whether the launch agent of this node has ever reported.
    pub fn has_reported(&self, node: &NodeName) -> bool {
        self.job.nodes.get(node).is_some_and(|row| !row.lost || row.state.is_some())
    }

    /// The launch agent of an arriving node cannot be started, or has ended.
    pub(super) fn does_not_arrive(&mut self, node: &NodeName, reason: &str) {
        let row = self.job.nodes.get_mut(node).filter(|row| row.lost && row.arriving);
        let Some(row) = row else { return };
        row.arriving = false;
        self.job.out.push(JlOutput::Save);
        if self.adding.iter().any(|adding| adding.missing.contains(node)) {
            self.job.tell(format!("node {node} cannot be added: {reason}"));
        }
        self.answer_adding(node, Some(reason));
    }

    /// Answers the requests for this node: how far they are, or the end. `failed`: why it does not
    /// arrive.
    fn answer_adding(&mut self, node: &NodeName, failed: Option<&str>) {
        for mut adding in core::mem::take(&mut self.adding) {
            if !adding.missing.remove(node) {
                self.adding.push(adding);
                continue;
            }
            if let Some(why) = failed {
                adding.failed.insert(node.clone(), why.to_owned());
            }
            if adding.missing.is_empty() {
                let (outcome, words) = adding.result();
                self.settle(adding.by, outcome, &words);
                continue;
            }
            let what = if failed.is_some() { "cannot be added" } else { "is a spare" };
            let words = format!("node {node} {what} ({} of {})", adding.arrived(), adding.all);
            self.reply(adding.by, Outcome::Accepted, &words);
            self.adding.push(adding);
        }
    }

    /// The job ends: no node joins it any more.
    pub(super) fn refuse_adding(&mut self) {
        self.job.waits = None;
        for adding in core::mem::take(&mut self.adding) {
            self.settle(adding.by, Outcome::Refused, "the job ends");
        }
    }

    /// Whether the job waits for nodes now.
    pub fn waits_for_nodes(&self) -> bool {
        let waits = |open: &Open| matches!(&open.workflow, Workflow::Start(of) if of.waits());
        self.open.as_ref().is_some_and(waits)
    }

    /// For which node the job waits now, since when and until when.
    pub fn node_wait(&self) -> Option<&NodeWait> {
        self.job.waits.as_ref().filter(|_| self.waits_for_nodes())
    }

    /// There is no replacement for this node.
    pub(super) fn wait_for_nodes(&mut self, now: Now, node: &NodeName) {
        let length = self.job.config.wait_for_nodes;
        let started = NodeWait {
            node: node.clone(),
            since_ns: now.wall_ns,
            until_ns: now.wall_ns.saturating_add(ns(length)),
        };
        let wait = self.job.waits.get_or_insert(started);
        wait.node.clone_from(node);
        let rest = rest(now, wait);
        self.enter(now, WAIT, rest, Vec::new());
        self.tell_wait(now);
    }

    fn tell_wait(&mut self, now: Now) {
        let Some(wait) = self.job.waits.clone() else { return };
        self.return_ns = Some(now.deadline_ns(RETURN_EVERY));
        // Whole seconds.
        let rest = Duration::from_secs(rest(now, &wait).as_secs_f64().round() as u64);
        let words = format!(
            "node {} is lost or not usable{} and no hot spare is left: the job waits up to {} for \
             a node (ftb-launch add {} NODES)",
            wait.node,
            self.job.why_lost(&wait.node),
            humantime::format_duration(rest),
            self.job.config.job
        );
        self.tell_of_open(&words);
        let NodeWait { node, since_ns, until_ns } = wait;
        let episode = self.job.episode;
        self.job.publish(FromJl::Waiting(Waiting { episode, node, since_ns, until_ns, words }));
    }

    /// Another launcher had begun to wait. The clock of the wall goes on.
    pub(super) fn adopt_arrivals(&mut self, now: Now) {
        self.restart_arriving(now);
        if !self.waits_for_nodes() {
            return;
        }
        if let (Some(wait), Some(open)) = (&self.job.waits, &mut self.open) {
            open.deadline_ns = now.deadline_ns(rest(now, wait));
        }
        self.tell_wait(now);
    }

    /// When the next look at arriving and lost nodes is due, in monotonic nanoseconds.
    pub(super) fn arrivals_ns(&self) -> u64 {
        let returns = self.return_ns.filter(|_| self.waits_for_nodes());
        let arriving = self.job.nodes.values().filter(|row| row.lost && row.arriving);
        let given_up = arriving.map(|row| row.arrive_ns).min();
        returns.unwrap_or(u64::MAX).min(given_up.unwrap_or(u64::MAX))
    }

    /// Tries lost nodes again while the job waits. Nodes that do not arrive in time are given up.
    pub(super) fn arrivals_tick(&mut self, now: Now) {
        for node in self.job.arriving() {
            if self.job.nodes.get(&node).is_some_and(|row| now.mono_ns >= row.arrive_ns) {
                self.does_not_arrive(&node, "its launch agent did not report in time");
            }
        }
        if self.waits_for_nodes() && self.return_ns.is_some_and(|at| now.mono_ns >= at) {
            self.return_ns = Some(now.deadline_ns(RETURN_EVERY));
            let gone = |(_, row): &(&NodeName, &mut Node)| row.lost && !row.arriving;
            let mut start = Vec::new();
            for (name, row) in self.job.nodes.iter_mut().filter(gone) {
                row.arriving = true;
                start.push(name.clone());
            }
            if !start.is_empty() {
                self.start_arriving(now, start);
            }
        }
    }

    /// Ends the wait when all ranks have a place again.
    pub(super) fn end_wait(&mut self, now: Now) {
        let is_held = self.is_unsaved() || !self.unheard.is_empty();
        if !self.waits_for_nodes() || is_held || self.job.replan(NodeFaults::Avoid).is_err() {
            return;
        }
        self.tell_of_open("the ranks have nodes again: the job goes on");
        let Some(open) = &mut self.open else { return };
        let Workflow::Start(start) = &mut open.workflow else { return };
        let transition = start.has_nodes(&self.job, open.episode);
        self.transition(now, transition);
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn rest(now: Now, wait: &NodeWait) -> Duration {
    Duration::from_nanos(wait.until_ns.saturating_sub(now.wall_ns))
}
