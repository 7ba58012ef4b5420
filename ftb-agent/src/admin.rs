//! The admin service on the Unix socket: read-only status of the agent and the tree.
//!
//! It serves `ftbctl status` and `ftbctl tree` from the core's data.

use crate::access::{Access, ReadRight};
use crate::clients::Terms;
use crate::handle::{self, Handle};
use crate::journal::Statistics;
use crate::queries::{Pending, Queries, QueryReach, ask};
use arc_swap::ArcSwap;
use ftb_core::node::api::{MemberState, TreeNode};
use ftb_core::node::{ChildStatus, ClientStatus, JournalState, TreeRole};
use ftb_core::trace::EventTrace;
use ftb_core::{EventId, PublisherId};
use ftb_proto::event::core_id;
use ftb_proto::link::{wire_member_state, wire_report, wire_trace};
use ftb_proto::v1;
use ftb_proto::v1::AgentRole;
use ftb_transport::Credentials;
use ftb_transport::limiter::{Full, Peer};
use ftb_transport::peer_errors::PeerErrors;
use std::sync::Arc;
use std::time::Duration;
use tonic::{Request, Response, Status};

/// Default time for the acting root to describe the tree.
const TREE_DEFAULT: Duration = Duration::from_secs(2);
/// Longest time in a request.
const TREE_MAX: Duration = Duration::from_secs(60);

/// The service.
#[derive(Clone)]
pub struct AdminService {
    /// The driver.
    pub handle: Handle,
    /// Counters of peer errors.
    pub errors: Arc<PeerErrors>,
    /// Names and limits of this agent.
    pub terms: Arc<Terms>,
    /// How much is on disk; `None` without a journal.
    pub journal: Option<Arc<Statistics>>,
    /// The rules by which users read events.
    pub access: Arc<ArcSwap<Access>>,
    /// How much each user asks.
    pub queries: Queries,
}

#[tonic::async_trait]
impl v1::admin_server::Admin for AdminService {
    async fn status(
        &self,
        request: Request<v1::StatusRequest>,
    ) -> Result<Response<v1::StatusReply>, Status> {
        let (who, _pending) = self.admit(&request, QueryReach::One).await?;
        let mut status = self.handle.status().await.map_err(stopping)?;
        self.hide_others(&mut status, who);
        Ok(Response::new(self.describe(status)))
    }

    async fn tree(
        &self,
        request: Request<v1::TreeRequest>,
    ) -> Result<Response<v1::TreeReply>, Status> {
        let (_, pending) = self.admit(&request, QueryReach::One).await?;
        let (within, handle) = (within(request.get_ref().timeout_ms), self.handle.clone());
        let tree =
            ask(pending, async move { handle.tree(within).await }).await.map_err(stopping)?;
        let nodes = tree_nodes(tree.nodes);
        Ok(Response::new(v1::TreeReply { nodes, complete: tree.complete }))
    }

    async fn trace(
        &self,
        request: Request<v1::EventTraceRequest>,
    ) -> Result<Response<v1::EventTraceReply>, Status> {
        let (who, pending) = self.admit(&request, QueryReach::All).await?;
        let who = who.ok_or_else(|| Status::permission_denied("the agent does not know you"))?;
        let v1::EventTraceRequest { event, timeout_ms } = request.into_inner();
        let event = event.ok_or_else(|| Status::invalid_argument("which event?"))?;
        let (within, id, handle) = (within(timeout_ms), core_id(event), self.handle.clone());
        let asked = ask(pending, async move { handle.trace(id, within).await });
        let trace = asked.await.map_err(stopping)?;
        self.check_readable(id, &trace, who)?;
        Ok(Response::new(v1::EventTraceReply { trace: Some(wire_trace(&trace)) }))
    }

    async fn reports(
        &self,
        request: Request<v1::ReportsRequest>,
    ) -> Result<Response<v1::ReportsReply>, Status> {
        let (_, pending) = self.admit(&request, QueryReach::All).await?;
        let (within, handle) = (within(request.get_ref().timeout_ms), self.handle.clone());
        let asked = ask(pending, async move { handle.reports(within).await });
        let answer = asked.await.map_err(stopping)?;
        Ok(Response::new(v1::ReportsReply {
            reports: answer.reports.iter().map(wire_report).collect(),
            omitted: answer.omitted,
            silent: answer.silent,
            silent_more: answer.silent_more,
        }))
    }
}

/// Whether that user has published the event, at one of the agents that remember it.
fn is_of(id: EventId, trace: &EventTrace, who: Credentials) -> bool {
    let account = |host: &str| PublisherId::account_of(host, who.uid);
    trace.agents.iter().any(|agent| account(&agent.host) == id.publisher.account)
}

fn within(timeout_ms: Option<u32>) -> Duration {
    timeout_ms.map_or(TREE_DEFAULT, |ms| Duration::from_millis(ms.into())).min(TREE_MAX)
}

fn stopping(error: handle::Stopping) -> Status {
    Status::unavailable(error.to_string())
}

impl AdminService {
    /// A path is as private as its event. Where no agent has the event any more, root and the
    /// agent's user may read the path.
    #[allow(clippy::result_large_err)] // As tonic has it.
    fn check_readable(
        &self,
        id: EventId,
        trace: &EventTrace,
        who: Credentials,
    ) -> Result<(), Status> {
        let access = self.access.load();
        let denied = |why: String| Err(Status::permission_denied(why));
        match &trace.event {
            Some(event) => match access.of(who).reading(event.space.as_bytes()) {
                ReadRight::All => Ok(()),
                ReadRight::Own if is_of(id, trace, who) => Ok(()),
                ReadRight::Own => denied(format!(
                    "your user may read only its own events of event space {}",
                    event.space
                )),
                ReadRight::None => {
                    denied(format!("your user may not read events of event space {}", event.space))
                }
            },
            None if trace.agents.is_empty() || access.is_trusted(who.uid) => Ok(()),
            None => denied(
                "no agent has the event in memory, so that none can say whether you may read it; \
                 root may"
                    .to_owned(),
            ),
        }
    }

    /// Counts a request; gives its requester.
    #[allow(clippy::result_large_err)] // As tonic has it.
    pub(crate) async fn admit<T: Sync>(
        &self,
        request: &Request<T>,
        asked: QueryReach,
    ) -> Result<(Option<Credentials>, Option<Pending>), Status> {
        let peer = request.extensions().get::<Peer>();
        let peer = peer.ok_or_else(|| Status::internal("the connection has no peer"))?;
        let full = |full: Full| Status::resource_exhausted(full.to_string());
        peer.on_request().map_err(full)?;
        let who = peer.credentials();
        let limited = {
            let access = self.access.load();
            let limited = who.filter(|who| !access.is_trusted(who.uid));
            limited.map(|who| access.payer(who.uid))
        };
        let pending = match limited {
            Some(uid) => Some(self.queries.admit(uid, asked).await),
            None => None,
        };
        let pending = pending.transpose();
        let pending = pending.inspect_err(|_| self.errors.count_quietly("queries_refused"))?;
        Ok((who, pending))
    }

    /// What other users subscribe to, and for which jobs, is for root and the agent's user.
    fn hide_others(&self, status: &mut handle::Status, who: Option<Credentials>) {
        let access = self.access.load();
        if who.is_some_and(|who| access.is_trusted(who.uid)) {
            return;
        }
        let uid = who.map(|who| access.payer(who.uid));
        for client in status.node.clients.iter_mut().filter(|client| Some(client.uid) != uid) {
            client.job_id.clear();
            client.filters.clear();
        }
    }

    fn describe(&self, status: handle::Status) -> v1::StatusReply {
        let node = status.node;
        let shell = self.errors.counters().into_iter();
        let counters = node.counters.into_iter().chain(shell);
        let journal = self.journal.as_ref().zip(node.journal);
        let journal = journal.map(|(statistics, state)| v1::JournalStatus {
            state: wire_journal_state(state).into(),
            bytes: statistics.bytes(),
            oldest_ns: statistics.oldest_ns(),
        });
        v1::StatusReply {
            cluster: self.terms.cluster.clone(),
            host: self.terms.host.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            rank: node.rank.map(|rank| rank.0),
            origin: node.origin.0,
            role: wire_role(node.role).into(),
            parent: node.parent,
            epoch: node.position.epoch.number,
            epoch_root: node.position.epoch.root.0,
            index: node.position.index.get(),
            uptime_ms: millis(status.now_ns.saturating_sub(status.started_ns)),
            children: node.children.into_iter().map(|c| peer(c, status.now_ns)).collect(),
            clients: node.clients.into_iter().map(client).collect(),
            counters: counters.map(|(name, count)| (name.to_owned(), count)).collect(),
            journal,
        }
    }
}

fn wire_role(role: TreeRole) -> AgentRole {
    match role {
        TreeRole::Root => AgentRole::Root,
        TreeRole::Standby => AgentRole::Standby,
        TreeRole::Member => AgentRole::Member,
        TreeRole::Searching => AgentRole::Searching,
    }
}

fn wire_journal_state(state: JournalState) -> v1::JournalState {
    match state {
        JournalState::Ok => v1::JournalState::Ok,
        JournalState::Degraded => v1::JournalState::Degraded,
    }
}

fn millis(ns: u64) -> u64 {
    ns / 1_000_000
}

fn peer(child: ChildStatus, now_ns: u64) -> v1::Peer {
    v1::Peer {
        host: child.host,
        rank: child.rank.0,
        queued_bytes: child.queued_bytes as u64,
        connected_ms: millis(now_ns.saturating_sub(child.since_ns)),
    }
}

fn client(client: ClientStatus) -> v1::ClientStatus {
    v1::ClientStatus {
        name: client.name,
        job_id: client.job_id,
        uid: client.uid,
        pid: client.pid,
        published: client.published,
        delivered: client.delivered,
        shed: client.shed,
        queued_bytes: client.queued_bytes as u64,
        filters: client.filters,
    }
}

/// The members with their roles: an agent that is up and has no parent is an acting root, its
/// lowest-ranked child is the standby.
pub(crate) fn tree_nodes(nodes: Vec<TreeNode>) -> Vec<v1::TreeNode> {
    let is_up = |node: &&TreeNode| node.state == MemberState::Up;
    let root = nodes.iter().filter(is_up).find(|node| node.parent.is_none()).map(|n| n.rank);
    let below_root =
        nodes.iter().filter(is_up).filter(|node| root.is_some() && node.parent == root);
    let standby = below_root.map(|node| node.rank).min();
    let role = |node: &TreeNode| match node.state {
        MemberState::Up if node.parent.is_none() => Some(AgentRole::Root),
        MemberState::Up if Some(node.rank) == standby => Some(AgentRole::Standby),
        MemberState::Up => Some(AgentRole::Member),
        _ => None,
    };
    let wire = |node: TreeNode| v1::TreeNode {
        rank: node.rank.0,
        role: role(&node).map(AgentRole::into),
        host: node.host,
        state: wire_member_state(node.state).into(),
        parent: node.parent.map(|rank| rank.0),
        origin: (node.origin != 0).then_some(node.origin),
        since_ns: (node.since_ns != 0).then_some(node.since_ns),
    };
    nodes.into_iter().map(wire).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftb_core::Rank;

    #[test]
    fn roles_follow_from_the_shape_of_the_tree() {
        let node = |rank, state, parent: Option<u32>| TreeNode {
            rank: Rank(rank),
            host: format!("node{rank}"),
            state,
            parent: parent.map(Rank),
            origin: 1,
            since_ns: 0,
        };
        let nodes = vec![
            node(0, MemberState::Dead, None),
            node(1, MemberState::Up, None),
            node(2, MemberState::Suspect, None),
            node(3, MemberState::Up, Some(1)),
            node(4, MemberState::Up, Some(1)),
            node(5, MemberState::Up, Some(3)),
        ];
        let nodes = tree_nodes(nodes);
        let (root, standby) = (Some(AgentRole::Root), Some(AgentRole::Standby));
        let member = Some(AgentRole::Member);
        let roles: Vec<_> = nodes.iter().map(|node| node.role.map(|_| node.role())).collect();
        assert_eq!(roles, [None, root, None, standby, member, member]);
        let parents: Vec<_> = nodes.iter().map(|node| node.parent).collect();
        assert_eq!(parents, [None, None, None, Some(1), Some(1), Some(3)]);
        assert_eq!(nodes[2].state(), v1::MemberState::Suspect);
    }
}
