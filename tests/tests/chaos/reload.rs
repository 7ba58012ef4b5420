//! Configurations that change under load, in the middle of a heal.

use crate::{plan, turn};
use ftb_proto::v1::MemberState;
use ftb_tests::cluster::{Cluster, wait_for};
use ftb_tests::load::{Load, LoadPlan, ensure_perfect};
use ftb_tests::reported::Reported;
use nix::sys::signal::Signal;
use std::path::Path;

/// Rewrites a configuration for other members; addresses of those that are none any more go.
fn list(config: &Path, members: &[&str], all: &str) {
    let mut text = String::new();
    for line in all.lines() {
        let host = line.strip_prefix('"').and_then(|line| line.split('"').next());
        if line.starts_with("members = ") {
            text.push_str(&format!("members = \"{}\"\n", members.join(",")));
        } else if host.is_none_or(|host| members.contains(&host)) {
            text.push_str(&format!("{line}\n"));
        }
    }
    std::fs::write(config, text).unwrap();
}

/// Waits until the tree is these hosts, in this order, each below the one that is wanted.
async fn wait_tree(cluster: &Cluster, at: usize, hosts: &[&str]) {
    let parents = [None, Some(0), Some(0), Some(1), Some(1)];
    let whole = wait_for("the tree of the new list", async || {
        let Ok(tree) = cluster.tree(at).await else { return Ok(None) };
        let found: Vec<(&str, Option<u32>)> = tree
            .nodes
            .iter()
            .filter(|node| node.state() == MemberState::Up)
            .map(|node| (node.host.as_str(), node.parent))
            .collect();
        let wanted: Vec<(&str, Option<u32>)> = hosts.iter().copied().zip(parents).collect();
        Ok((tree.complete && found == wanted).then_some(()))
    });
    whole.await.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
}

/// The standby dies, and while its children look for another parent all others read a list without
/// one host, with another one, and with other ranks for most: one tree of the new list, no event
/// lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_come_and_go_in_the_middle_of_a_heal_cost_no_event() {
    let _turn = turn().await;
    let mut cluster = plan(6).prepare().unwrap();
    let texts: Vec<String> =
        (0..6).map(|rank| std::fs::read_to_string(cluster.config(rank)).unwrap()).collect();
    let before = ["node01", "node02", "node03", "node04", "node05"];
    let after = ["node01", "node02", "node04", "node05", "node06"];
    for (rank, text) in texts.iter().enumerate().take(5) {
        list(cluster.config(rank), &before, text);
        cluster.run(rank).unwrap();
    }
    wait_tree(&cluster, 0, &before).await;
    let reported = Reported::listen(cluster.socket(0)).await.unwrap();
    let sockets: Vec<_> = [0, 3, 4].map(|rank| cluster.socket(rank).to_owned()).into();
    let load = LoadPlan { publishers: sockets.clone(), per_s: 100, subscribers: sockets };
    let load = Load::start(load).await.unwrap();
    cluster.must(load.wait_flow(20, |_| true, |_| true).await).await;
    for (rank, text) in texts.iter().enumerate() {
        list(cluster.config(rank), &after, text);
    }
    cluster.stop(2).await.unwrap();
    cluster.crash(1).unwrap();
    for rank in [4, 0, 3] {
        cluster.signal(rank, Signal::SIGHUP).unwrap();
    }
    cluster.must(load.wait_flow(20, |_| true, |_| true).await).await;
    cluster.run(1).unwrap();
    cluster.run(5).unwrap();
    wait_tree(&cluster, 5, &after).await;
    cluster.must(load.wait_flow(20, |_| true, |_| true).await).await;
    let account = load.finish().await;
    let account = account.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
    ensure_perfect(&account).unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
    assert_eq!(reported.hosts("FTB_NODE_DEAD"), [""; 0], "{reported}");
}
