//! `ftbctl tree`.

use crate::cli::Common;
use crate::failure::Failure;
use crate::output::{BAD, FAINT, GOOD, Output, PLAIN, STRONG, WARN, styled};
use crate::text;
use ftb_client::admin::Admin;
use ftb_core::hostlist::Hostlist;
use ftb_proto::v1::{AgentRole, MemberState, TreeNode, TreeReply};
use serde_json::json;
use std::collections::BTreeMap;

/// Shows the tree of agents.
pub(crate) async fn run(common: &Common, mut output: Output) -> Result<(), Failure> {
    let mut admin = Admin::connect(&common.socket(), common.timeout()).await?;
    let tree = admin.tree().await?;
    if output.is_json() {
        json(&mut output, &tree)?;
    } else {
        people(&mut output, &tree)?;
    }
    output.flush()
}

/// Whether an agent is drawn in the tree. The others are listed below it.
fn is_drawn(node: &TreeNode) -> bool {
    matches!(node.state(), MemberState::Up | MemberState::Moved | MemberState::Suspect)
}

/// One line of the drawing.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    branches: String,
    node: &'a TreeNode,
}

/// The lines of all trees. Every live node is drawn exactly once, also a node whose parent is
/// missing, and nodes in a cycle of parents (a view taken while the tree changed).
fn draw(nodes: &[TreeNode]) -> Vec<Line<'_>> {
    let mut undrawn: BTreeMap<u32, &TreeNode> =
        nodes.iter().filter(|n| is_drawn(n)).map(|n| (n.rank, n)).collect();
    let mut children: BTreeMap<Option<u32>, Vec<&TreeNode>> = BTreeMap::new();
    for node in undrawn.values() {
        children.entry(node.parent).or_default().push(node);
    }
    let is_live = |rank| undrawn.contains_key(&rank);
    let is_root = |node: &&TreeNode| !node.parent.is_some_and(is_live);
    let roots: Vec<_> = undrawn.values().copied().filter(is_root).collect();
    let mut lines = Vec::new();
    for root in roots {
        draw_from(root, &children, &mut undrawn, &mut lines);
    }
    while let Some((_, node)) = undrawn.first_key_value() {
        let node = *node;
        draw_from(node, &children, &mut undrawn, &mut lines);
    }
    lines
}

fn draw_from<'a>(
    root: &'a TreeNode,
    children: &BTreeMap<Option<u32>, Vec<&'a TreeNode>>,
    undrawn: &mut BTreeMap<u32, &'a TreeNode>,
    lines: &mut Vec<Line<'a>>,
) {
    let mut stack = vec![(root, String::new(), String::new())];
    while let Some((node, branches, below)) = stack.pop() {
        if undrawn.remove(&node.rank).is_none() {
            continue;
        }
        lines.push(Line { branches, node });
        let own = children.get(&Some(node.rank)).map_or(&[][..], Vec::as_slice);
        // The first child leaves the stack first.
        for (number, child) in own.iter().rev().enumerate() {
            let (branch, continued) =
                if number == 0 { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            stack.push((child, format!("{below}{branch}"), format!("{below}{continued}")));
        }
    }
}

fn people(output: &mut Output, tree: &TreeReply) -> Result<(), Failure> {
    let lines = draw(&tree.nodes);
    let width = |line: &Line<'_>| line.branches.chars().count() + line.node.host.chars().count();
    let widest = lines.iter().map(width).max().unwrap_or(0);
    for line in &lines {
        let host = text::printable(&line.node.host);
        let padding = " ".repeat(widest.saturating_sub(width(line)));
        let (words, style) = match (line.node.state(), line.node.role()) {
            (MemberState::Suspect, _) => ("suspect", WARN),
            (MemberState::Moved, _) => ("moved", WARN),
            (_, AgentRole::Root) => ("root", STRONG),
            (_, AgentRole::Standby) => ("standby", GOOD),
            _ => ("", PLAIN),
        };
        let since = line.node.since_ns.map(text::since).unwrap_or_default();
        let facts = format!("{padding}  {:<7}  {since}", words);
        let facts = styled(style, facts.trim_end());
        let branches = styled(FAINT, &line.branches);
        output.line(&format!("{branches}{host}{facts}"))?;
    }
    for (state, style) in
        [(MemberState::Dead, BAD), (MemberState::Lost, BAD), (MemberState::Absent, FAINT)]
    {
        missing(output, tree, state, style)?;
    }
    if !tree.complete {
        let note = "the acting root did not answer in time: this is the view of the local agent";
        eprintln!("ftbctl: {note}");
    }
    Ok(())
}

/// The hosts in a state, as a host list.
fn missing(
    output: &mut Output,
    tree: &TreeReply,
    state: MemberState,
    style: anstyle::Style,
) -> Result<(), Failure> {
    let hosts: Vec<_> =
        tree.nodes.iter().filter(|n| n.state() == state).map(|n| n.host.as_str()).collect();
    if hosts.is_empty() {
        return Ok(());
    }
    let folded = fold(&hosts);
    let word = styled(style, state_word(state));
    output.line(&format!("{word}: {folded}"))
}

/// As a host list; as names in rank order when they are none.
fn fold(hosts: &[&str]) -> String {
    let joined = hosts.join(",");
    match Hostlist::parse(&joined) {
        Ok(list) => list.to_string(),
        Err(_) => text::printable(&joined),
    }
}

fn state_word(state: MemberState) -> &'static str {
    match state {
        MemberState::Up => "up",
        MemberState::Moved => "moved",
        MemberState::Suspect => "suspect",
        MemberState::Lost => "lost",
        MemberState::Dead => "dead",
        MemberState::Absent => "absent",
        MemberState::Unspecified => "unknown",
    }
}

fn json(output: &mut Output, tree: &TreeReply) -> Result<(), Failure> {
    for node in &tree.nodes {
        output.json(&json!({
            "type": "node",
            "rank": node.rank,
            "host": node.host,
            "state": state_word(node.state()),
            "role": node.role.map(|_| text::role(node.role())),
            "parent": node.parent,
            "origin": node.origin.map(|origin| format!("{origin:016x}")),
            "since_ns": node.since_ns,
        }))?;
    }
    output.json(&json!({
        "type": "tree",
        "nodes": tree.nodes.len(),
        "up": tree.nodes.iter().filter(|node| node.state() == MemberState::Up).count(),
        "complete": tree.complete,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(rank: u32, parent: Option<u32>, state: MemberState) -> TreeNode {
        TreeNode {
            rank,
            host: format!("n{rank}"),
            state: state.into(),
            parent,
            ..TreeNode::default()
        }
    }

    fn drawing(nodes: &[TreeNode]) -> Vec<String> {
        draw(nodes).iter().map(|line| format!("{}{}", line.branches, line.node.host)).collect()
    }

    #[test]
    fn a_tree_is_drawn_with_its_branches() {
        let nodes = [
            node(0, None, MemberState::Up),
            node(1, Some(0), MemberState::Up),
            node(2, Some(0), MemberState::Suspect),
            node(3, Some(1), MemberState::Up),
            node(4, Some(1), MemberState::Up),
            node(5, Some(2), MemberState::Up),
            node(6, None, MemberState::Dead),
        ];
        assert_eq!(drawing(&nodes), ["n0", "├─ n1", "│  ├─ n3", "│  └─ n4", "└─ n2", "   └─ n5"]);
    }

    #[test]
    fn every_live_node_is_drawn_once_also_in_a_cycle_of_parents() {
        let nodes = [(1, 2), (2, 1), (3, 3), (4, 99)];
        let nodes = nodes.map(|(rank, parent)| node(rank, Some(parent), MemberState::Up));
        let mut drawn = drawing(&nodes);
        drawn.sort();
        assert_eq!(drawn, ["n1", "n3", "n4", "└─ n2"]);
    }

    #[test]
    fn missing_hosts_are_shown_as_a_host_list() {
        assert_eq!(fold(&["node001", "node002", "node003"]), "node[001-003]");
    }
}
