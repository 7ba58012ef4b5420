//! Real agents on loopback: they become one tree, and heal it when one of them is killed.
#![allow(clippy::unwrap_used)]

use ftb_proto::v1::{AgentRole, MemberState};
use ftb_tests::cluster::{Cluster, Plan, wait_for};
use nix::sys::signal::Signal;

/// Parents of five agents with fanout 2.
const PARENTS: [Option<u32>; 5] = [None, Some(0), Some(0), Some(1), Some(1)];

#[tokio::test]
async fn five_agents_become_the_wanted_tree() {
    let cluster = Cluster::start(5, 2).await.unwrap();
    let parents = wait_for("the wanted tree", async || {
        let tree = cluster.tree(4).await?;
        let parents: Vec<_> = tree.nodes.iter().map(|node| node.parent).collect();
        Ok((parents == PARENTS).then_some(tree))
    })
    .await
    .unwrap();
    let roles: Vec<_> = parents.nodes.iter().map(|node| node.role()).collect();
    let member = AgentRole::Member;
    assert_eq!(roles, [AgentRole::Root, AgentRole::Standby, member, member, member]);
}

#[tokio::test]
async fn the_tree_heals_when_any_agent_is_killed_and_comes_back() {
    let mut cluster = Cluster::start(5, 2).await.unwrap();
    for rank in 0..cluster.len() {
        cluster.crash(rank).unwrap();
        cluster.wait_whole().await.unwrap();
        cluster.run(rank).unwrap();
        cluster.wait_whole().await.unwrap();
    }
}

#[tokio::test]
async fn agents_that_stop_leave_a_tree_and_stop_cleanly() {
    let mut cluster = Cluster::start(4, 2).await.unwrap();
    for rank in 0..3 {
        let status = cluster.stop(rank).await.unwrap();
        assert!(status.success(), "{status}: {}", cluster.log(rank));
        cluster.wait_whole().await.unwrap();
    }
}

#[tokio::test]
async fn a_paused_agent_that_goes_on_is_part_of_the_tree_again() {
    let plan = Plan::new(5, 2).extra(
        "[detection]\nsilence = \"600ms\"\nheartbeat = \"200ms\"\nsearch = \"300ms\"\n\
         probe = \"200ms\"\n",
    );
    let mut cluster = plan.start().await.unwrap();
    cluster.signal(1, Signal::SIGSTOP).unwrap();
    // Its children have found another parent.
    wait_for("a tree without the paused agent", async || {
        let tree = cluster.tree(0).await?;
        let is_up = |rank: usize| tree.nodes[rank].state() == MemberState::Up;
        let moved = |rank: usize| is_up(rank) && tree.nodes[rank].parent != Some(1);
        Ok((!is_up(1) && moved(3) && moved(4)).then_some(()))
    })
    .await
    .unwrap();
    cluster.signal(1, Signal::SIGCONT).unwrap();
    cluster.wait_whole().await.unwrap();
    wait_for("the wanted tree", async || {
        let parents: Vec<_> = cluster.tree(0).await?.nodes.iter().map(|n| n.parent).collect();
        Ok((parents == PARENTS).then_some(()))
    })
    .await
    .unwrap();
}

/// The members of rack a, then of rack b; ranks are a1, b1, a2, b2.
const BY_RACK: &str = "members = [\"a[1-2]\", \"b[1-2]\"]\n";

#[tokio::test]
async fn acting_root_and_standby_are_in_different_racks_also_after_a_failure() {
    let mut cluster = Plan::new(4, 4).hosts(["a1", "b1", "a2", "b2"]).prepare().unwrap();
    for rank in 0..cluster.len() {
        let text = std::fs::read_to_string(cluster.config(rank)).unwrap();
        let by_rack = text.replace("members = \"a1,b1,a2,b2\"\n", BY_RACK);
        assert_ne!(by_rack, text);
        std::fs::write(cluster.config(rank), by_rack).unwrap();
        cluster.run(rank).unwrap();
    }
    let with_role = async |cluster: &Cluster, at: usize, role| {
        let tree = cluster.tree(at).await?;
        let has = |place: &usize| tree.nodes[*place].role() == role;
        anyhow::Ok((0..tree.nodes.len()).find(has))
    };
    cluster.wait_safe().await.unwrap();
    assert_eq!(with_role(&cluster, 3, AgentRole::Root).await.unwrap(), Some(0), "a1");
    wait_for("a standby in rack b", async || {
        anyhow::Ok(with_role(&cluster, 3, AgentRole::Standby).await?.filter(|rank| *rank == 1))
    })
    .await
    .unwrap();
    cluster.crash(0).unwrap();
    wait_for("an acting root in rack b, and a standby in rack a", async || {
        let root = with_role(&cluster, 3, AgentRole::Root).await?;
        let standby = with_role(&cluster, 3, AgentRole::Standby).await?;
        anyhow::Ok(((root, standby) == (Some(1), Some(2))).then_some(()))
    })
    .await
    .unwrap();
}
