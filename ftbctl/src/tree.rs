//! `ftbctl tree`.

use crate::cli::Common;
use crate::failure::Failure;
use crate::output::{Output, Style};
use crate::text;
use ftb_client::admin::Admin;
use ftb_core::hostlist::Hostlist;
use ftb_proto::v1::{TreeNode, TreeReply};
use serde::Serialize;
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

/// An agent that stands in the tree, as opposed to one that is listed as missing.
fn stands(node: &TreeNode) -> bool {
    matches!(node.state.as_str(), "up" | "moved" | "suspect")
}

/// One line of the drawing: the branches, the node, what is said of it.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    branches: String,
    node: &'a TreeNode,
}

/// The lines of all trees. Every standing node is drawn exactly once, also one whose parent is not
/// there, and those that claim to be each other's ancestors (a view taken while it was changing).
fn draw(nodes: &[TreeNode]) -> Vec<Line<'_>> {
    let mut undrawn: BTreeMap<i64, &TreeNode> =
        nodes.iter().filter(|n| stands(n)).map(|n| (i64::from(n.rank), n)).collect();
    let mut children: BTreeMap<i64, Vec<&TreeNode>> = BTreeMap::new();
    for node in undrawn.values() {
        children.entry(node.parent).or_default().push(node);
    }
    let is_root = |node: &&TreeNode| !undrawn.contains_key(&node.parent);
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
    children: &BTreeMap<i64, Vec<&'a TreeNode>>,
    undrawn: &mut BTreeMap<i64, &'a TreeNode>,
    lines: &mut Vec<Line<'a>>,
) {
    let mut stack = vec![(root, String::new(), String::new())];
    while let Some((node, branches, below)) = stack.pop() {
        let rank = i64::from(node.rank);
        if undrawn.remove(&rank).is_none() {
            continue;
        }
        lines.push(Line { branches, node });
        let own = children.get(&rank).map_or(&[][..], Vec::as_slice);
        // The first child must come off the stack first.
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
        let (words, style) = match (line.node.state.as_str(), line.node.role.as_str()) {
            ("suspect", _) => ("suspect", Style::Warn),
            ("moved", _) => ("moved", Style::Warn),
            (_, "root") => ("root", Style::Strong),
            (_, "standby") => ("standby", Style::Good),
            _ => ("", Style::Plain),
        };
        let since = text::since(line.node.since_ns);
        let facts = format!("{padding}  {:<7}  {since}", words);
        let facts = output.styled(style, facts.trim_end());
        let branches = output.styled(Style::Faint, &line.branches);
        output.line(&format!("{branches}{host}{facts}"))?;
    }
    for (state, style) in [("dead", Style::Bad), ("lost", Style::Bad), ("absent", Style::Faint)] {
        missing(output, tree, state, style)?;
    }
    if !tree.complete {
        let note = "the acting root did not answer in time: this is what the agent here knows";
        eprintln!("ftbctl: {note}");
    }
    Ok(())
}

/// The hosts in a state, folded.
fn missing(
    output: &mut Output,
    tree: &TreeReply,
    state: &str,
    style: Style,
) -> Result<(), Failure> {
    let hosts: Vec<_> =
        tree.nodes.iter().filter(|n| n.state == state).map(|n| n.host.as_str()).collect();
    if hosts.is_empty() {
        return Ok(());
    }
    let folded = fold(&hosts);
    let word = output.styled(style, state);
    output.line(&format!("{word}: {folded}"))
}

/// As a host list, where they are hosts; in rank order else.
fn fold(hosts: &[&str]) -> String {
    let joined = hosts.join(",");
    match Hostlist::parse(&joined) {
        Ok(list) => list.to_string(),
        Err(_) => text::printable(&joined),
    }
}

#[derive(Serialize)]
struct Node<'a> {
    r#type: &'static str,
    rank: u32,
    host: &'a str,
    state: &'a str,
    role: &'a str,
    parent: Option<i64>,
    origin: Option<String>,
    since_ns: Option<u64>,
}

#[derive(Serialize)]
struct Summary {
    r#type: &'static str,
    nodes: usize,
    up: usize,
    complete: bool,
}

fn json(output: &mut Output, tree: &TreeReply) -> Result<(), Failure> {
    for node in &tree.nodes {
        output.json(&Node {
            r#type: "node",
            rank: node.rank,
            host: &node.host,
            state: &node.state,
            role: &node.role,
            parent: (node.parent >= 0).then_some(node.parent),
            origin: (node.origin != 0).then(|| format!("{:016x}", node.origin)),
            since_ns: (node.since_ns != 0).then_some(node.since_ns),
        })?;
    }
    output.json(&Summary {
        r#type: "tree",
        nodes: tree.nodes.len(),
        up: tree.nodes.iter().filter(|node| node.state == "up").count(),
        complete: tree.complete,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(rank: u32, parent: i64, state: &str) -> TreeNode {
        TreeNode {
            rank,
            host: format!("n{rank}"),
            state: state.to_owned(),
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
            node(0, -1, "up"),
            node(1, 0, "up"),
            node(2, 0, "suspect"),
            node(3, 1, "up"),
            node(4, 1, "up"),
            node(5, 2, "up"),
            node(6, -1, "dead"),
        ];
        assert_eq!(drawing(&nodes), ["n0", "├─ n1", "│  ├─ n3", "│  └─ n4", "└─ n2", "   └─ n5"]);
    }

    #[test]
    fn every_standing_node_is_drawn_once_whatever_they_claim() {
        let nodes = [node(1, 2, "up"), node(2, 1, "up"), node(3, 3, "up"), node(4, 99, "up")];
        let mut drawn = drawing(&nodes);
        drawn.sort();
        assert_eq!(drawn, ["n1", "n3", "n4", "└─ n2"]);
    }

    #[test]
    fn missing_hosts_are_folded() {
        assert_eq!(fold(&["node001", "node002", "node003"]), "node[001-003]");
    }
}
