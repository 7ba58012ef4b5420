//! `ftbctl tree`.

use crate::cli::Common;
use crate::failure::Failure;
use crate::output::{BAD, FAINT, GOOD, Output, PLAIN, STRONG, WARN, styled};
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

/// Whether an agent is drawn in the tree. The others are listed below it.
fn is_drawn(node: &TreeNode) -> bool {
    matches!(node.state.as_str(), "up" | "moved" | "suspect")
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
    let mut undrawn: BTreeMap<i64, &TreeNode> =
        nodes.iter().filter(|n| is_drawn(n)).map(|n| (i64::from(n.rank), n)).collect();
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
        let (words, style) = match (line.node.state.as_str(), line.node.role.as_str()) {
            ("suspect", _) => ("suspect", WARN),
            ("moved", _) => ("moved", WARN),
            (_, "root") => ("root", STRONG),
            (_, "standby") => ("standby", GOOD),
            _ => ("", PLAIN),
        };
        let since = text::since(line.node.since_ns);
        let facts = format!("{padding}  {:<7}  {since}", words);
        let facts = styled(style, facts.trim_end());
        let branches = styled(FAINT, &line.branches);
        output.line(&format!("{branches}{host}{facts}"))?;
    }
    for (state, style) in [("dead", BAD), ("lost", BAD), ("absent", FAINT)] {
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
    state: &str,
    style: anstyle::Style,
) -> Result<(), Failure> {
    let hosts: Vec<_> =
        tree.nodes.iter().filter(|n| n.state == state).map(|n| n.host.as_str()).collect();
    if hosts.is_empty() {
        return Ok(());
    }
    let folded = fold(&hosts);
    let word = styled(style, state);
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
    fn every_live_node_is_drawn_once_also_in_a_cycle_of_parents() {
        let nodes = [node(1, 2, "up"), node(2, 1, "up"), node(3, 3, "up"), node(4, 99, "up")];
        let mut drawn = drawing(&nodes);
        drawn.sort();
        assert_eq!(drawn, ["n1", "n3", "n4", "└─ n2"]);
    }

    #[test]
    fn missing_hosts_are_shown_as_a_host_list() {
        assert_eq!(fold(&["node001", "node002", "node003"]), "node[001-003]");
    }
}
