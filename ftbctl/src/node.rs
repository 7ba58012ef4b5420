//! `ftbctl node`: all that is known of one node, in one look.
//!
//! Responsible for: putting together what tree, reports and conditions say of it. Not responsible
//! for: an exit code for scripts (`ftbctl health`).

use crate::cli::NodeArgs;
use crate::common::Common;
use crate::conditions::{self, MarkedObject, is_fault};
use crate::failure::Failure;
use crate::output::{BAD, FAINT, GOOD, Output, STRONG, WARN, styled};
use crate::text;
use ftb_client::admin::Admin;
use ftb_client::json::{role_word, state_word};
use ftb_client::{ConditionState, Truth};
use ftb_proto::v1::{AgentReport, MemberState, TreeNode, TreeReply};
use serde_json::json;

/// Shows a node.
pub(crate) async fn run(
    common: &Common,
    args: &NodeArgs,
    mut output: Output,
) -> Result<(), Failure> {
    let admin = Admin::connect(&common.socket(), common.timeout()).await?;
    let (mut one, mut two) = (admin.clone(), admin);
    let (tree, reports) = tokio::join!(one.tree(), two.reports());
    let tree = tree?;
    let is_it = |host: &str| host.eq_ignore_ascii_case(&args.node);
    let Some(node) = tree.nodes.iter().find(|node| is_it(&node.host)) else {
        let node = text::printable(&args.node);
        return Err(Failure::failed(format_args!("no member is called {node} (ftbctl tree)")));
    };
    // An agent of an older release knows no reports.
    let reports = reports.map(|reply| reports_of(reply.reports, is_it)).unwrap_or_default();
    let (known, silences) = conditions::of_node(common, &node.host).await?;
    let (health, watchers) = (known.health(&node.host), known.watchers(&node.host));
    let is_wrong = |state: &&ConditionState| is_fault(state) && state.truth != Truth::False;
    let shown: Vec<&ConditionState> = known.states().filter(is_wrong).collect();
    if output.is_json() {
        let marked = shown.iter().map(|state| MarkedObject::new(state, silences.of(state)));
        let conditions: Vec<_> = marked.collect();
        output.json(&json!({
            "type": "node-state",
            "host": node.host,
            "rank": node.rank,
            "state": state_word(node.state()),
            "role": node.role.map(|_| role_word(node.role())),
            "parent": parent(&tree, node),
            "children": children(&tree, node),
            "since_ns": node.since_ns,
            "version": reports.as_ref().map(|report| &report.version),
            "health": health.to_string(),
            "watched_by": watchers.present,
            "conditions": conditions,
        }))?;
        return output.flush();
    }
    people(&mut output, &tree, node, reports.as_ref())?;
    let ending = watchers.to_string();
    let ending = if ending.is_empty() { ending } else { format!("; {ending}") };
    let silenced = conditions::silenced(&silences, &node.host, output.utc);
    output.line(&format!("  health     {health}{ending}{silenced}"))?;
    for state in shown {
        conditions::show(&mut output, state, silences.of(state))?;
    }
    output.flush()
}

fn reports_of(reports: Vec<AgentReport>, is_it: impl Fn(&str) -> bool) -> Option<AgentReport> {
    reports.into_iter().find(|report| is_it(&report.host))
}

fn parent(tree: &TreeReply, node: &TreeNode) -> Option<String> {
    let parent = tree.nodes.iter().find(|other| Some(other.rank) == node.parent)?;
    Some(parent.host.clone())
}

fn children(tree: &TreeReply, node: &TreeNode) -> String {
    let children = tree.nodes.iter().filter(|other| other.parent == Some(node.rank));
    let hosts: Vec<&str> = children.map(|child| &child.host[..]).collect();
    ftb_core::hostlist::fold(hosts)
}

fn people(
    output: &mut Output,
    tree: &TreeReply,
    node: &TreeNode,
    report: Option<&AgentReport>,
) -> Result<(), Failure> {
    let style = match node.state() {
        MemberState::Up => GOOD,
        MemberState::Dead | MemberState::Lost => BAD,
        _ => WARN,
    };
    let role = node.role.map(|_| format!(", {}", role_word(node.role()))).unwrap_or_default();
    let since = node.since_ns.map(|ns| format!(" for {}", text::since(ns))).unwrap_or_default();
    let (host, state) = (text::printable(&node.host), state_word(node.state()));
    output.line(&format!(
        "{}  {}{since}, rank {}{role}",
        styled(STRONG, &host),
        styled(style, state),
        node.rank
    ))?;
    let none = || "none".to_owned();
    let children = children(tree, node);
    let children = if children.is_empty() { none() } else { text::printable(&children) };
    let parent = parent(tree, node).map_or_else(none, |host| text::printable(&host));
    output.line(&format!("  parent     {parent}"))?;
    output.line(&format!("  children   {children}"))?;
    match report {
        Some(report) => output.line(&format!("  version    {}", text::printable(&report.version))),
        None => output.line(&styled(FAINT, "  version    unknown: the agent does not report")),
    }
}
