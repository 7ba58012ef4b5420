//! `ftbctl tree`.

use crate::cli::{TreeArgs, TreeState};
use crate::common::Common;
use crate::failure::Failure;
use crate::output::{BAD, FAINT, GOOD, Output, PLAIN, STRONG, WARN, styled};
use crate::text;
use ftb_client::admin::Admin;
use ftb_client::json::{AgentObject, state_word};
use ftb_core::hostlist::Hostlist;
use ftb_proto::v1::{AgentRole, MemberState, TreeNode, TreeReply};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// The pause between two looks of `--wait`.
const LOOK: Duration = Duration::from_millis(200);

/// Shows the tree of agents.
pub(crate) async fn run(
    common: &Common,
    args: &TreeArgs,
    mut output: Output,
) -> Result<(), Failure> {
    let (tree, is_reached) = match args.wait {
        None => (ask(common).await?, true),
        Some(state) => wait(common, state).await?,
    };
    match (output.is_json(), args) {
        (true, TreeArgs { summary: true, .. }) => json_summary(&mut output, &tree)?,
        (true, TreeArgs { down, .. }) => json(&mut output, &tree, *down)?,
        (false, TreeArgs { summary: true, .. }) => output.line(&summary(&tree))?,
        (false, TreeArgs { down: true, .. }) => missing_hosts(&mut output, &tree)?,
        (false, _) => people(&mut output, &tree)?,
    }
    output.flush()?;
    match is_reached {
        true => Ok(()),
        false => Err(Failure::no_answer(not_reached(&tree))),
    }
}

async fn ask(common: &Common) -> Result<TreeReply, Failure> {
    Ok(Admin::connect(&common.socket(), common.timeout()).await?.tree().await?)
}

/// Asks until the state is reached or the deadline has passed; false: it was not reached.
async fn wait(common: &Common, state: TreeState) -> Result<(TreeReply, bool), Failure> {
    let deadline = tokio::time::Instant::now() + common.timeout();
    loop {
        let answer = ask(common).await;
        let is_over = tokio::time::Instant::now() >= deadline;
        match answer {
            Ok(tree) if is_over || has_reached(&tree, state) => {
                let is_reached = has_reached(&tree, state);
                return Ok((tree, is_reached));
            }
            Err(failure) if is_over => return Err(failure),
            _ => tokio::time::sleep_until(deadline.min(tokio::time::Instant::now() + LOOK)).await,
        }
    }
}

fn has_reached(tree: &TreeReply, state: TreeState) -> bool {
    let is_up = |node: &TreeNode| node.state() == MemberState::Up;
    tree.complete && (state == TreeState::Tree || tree.nodes.iter().all(is_up))
}

fn not_reached(tree: &TreeReply) -> String {
    match tree.complete {
        true => format!("not all agents are up: {}", summary(tree)),
        false => "the acting root did not answer in time".to_owned(),
    }
}

/// One line: states with their numbers, acting root, standby, depth.
fn summary(tree: &TreeReply) -> String {
    let mut counts: BTreeMap<MemberState, usize> = BTreeMap::new();
    for node in &tree.nodes {
        *counts.entry(node.state()).or_default() += 1;
    }
    let states: Vec<String> =
        counts.iter().map(|(state, count)| format!("{count} {}", state_word(*state))).collect();
    let with_role = |role| {
        let node = tree.nodes.iter().find(|node| is_drawn(node) && node.role() == role);
        node.map_or("none".to_owned(), |node| text::printable(&node.host))
    };
    format!(
        "agents {}: {}; acting root {}, standby {}; levels {}{}",
        tree.nodes.len(),
        states.join(", "),
        with_role(AgentRole::Root),
        with_role(AgentRole::Standby),
        levels(&tree.nodes),
        if tree.complete { "" } else { "; view of the local agent only" },
    )
}

/// How many agents are on the longest way to a root, both ends counted.
fn levels(nodes: &[TreeNode]) -> usize {
    let depth = |line: &Line<'_>| line.branches.chars().count() / BRANCH_COLUMNS + 1;
    draw(nodes).iter().map(depth).max().unwrap_or(0)
}

/// Whether an agent is drawn in the tree. The others are listed below it.
fn is_drawn(node: &TreeNode) -> bool {
    matches!(node.state(), MemberState::Up | MemberState::Moved | MemberState::Suspect)
}

/// Columns that one level of the drawing takes.
const BRANCH_COLUMNS: usize = 3;

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
    report_partial(tree);
    Ok(())
}

/// Only the hosts that are not up.
fn missing_hosts(output: &mut Output, tree: &TreeReply) -> Result<(), Failure> {
    let states = [
        (MemberState::Dead, BAD),
        (MemberState::Lost, BAD),
        (MemberState::Suspect, WARN),
        (MemberState::Moved, WARN),
        (MemberState::Absent, FAINT),
    ];
    for (state, style) in states {
        missing(output, tree, state, style)?;
    }
    if tree.nodes.iter().all(|node| node.state() == MemberState::Up) {
        output.line("all agents are up")?;
    }
    report_partial(tree);
    Ok(())
}

fn report_partial(tree: &TreeReply) {
    if !tree.complete {
        let note = "the acting root did not answer in time: this is the view of the local agent";
        eprintln!("ftbctl: {note}");
    }
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

fn json(output: &mut Output, tree: &TreeReply, only_down: bool) -> Result<(), Failure> {
    let is_shown = |node: &&TreeNode| !only_down || node.state() != MemberState::Up;
    for node in tree.nodes.iter().filter(is_shown) {
        output.json(&AgentObject::from(node))?;
    }
    json_summary(output, tree)
}

fn json_summary(output: &mut Output, tree: &TreeReply) -> Result<(), Failure> {
    output.json(&json!({
        "type": "tree",
        "levels": levels(&tree.nodes),
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
    fn a_summary_counts_states_and_names_root_and_standby() {
        let with = |node: TreeNode, role: AgentRole| TreeNode { role: Some(role.into()), ..node };
        let nodes = vec![
            with(node(0, None, MemberState::Up), AgentRole::Root),
            with(node(1, Some(0), MemberState::Up), AgentRole::Standby),
            node(2, Some(1), MemberState::Suspect),
            node(3, None, MemberState::Dead),
        ];
        let tree = TreeReply { nodes, complete: true };
        let line = summary(&tree);
        for part in ["agents 4: ", "2 up", "1 suspect", "1 dead", "acting root n0", "standby n1"] {
            assert!(line.contains(part), "{line}");
        }
        assert!(line.ends_with("levels 3"), "{line}");
        assert!(has_reached(&tree, TreeState::Tree) && !has_reached(&tree, TreeState::Full));
    }

    #[test]
    fn missing_hosts_are_shown_as_a_host_list() {
        assert_eq!(fold(&["node001", "node002", "node003"]), "node[001-003]");
    }
}
