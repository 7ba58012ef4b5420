//! Hosts that are cut off from each other, in every way in which a network can do that: silently,
//! in one direction, in halves, a rack at a time. Skipped with a line where there can be no network
//! namespaces.

use crate::{everywhere, plan, turn};
use ftb_proto::v1::AgentRole;
use ftb_tests::cluster::Cluster;
use ftb_tests::load::{Account, Load, ensure_perfect};
use ftb_tests::netns::{Net, Way, impossible};
use ftb_tests::reported::Reported;
use ftb_tests::skip::skip;

/// Events of each publisher in a second.
pub(crate) const PER_S: u32 = 100;
/// Events of each publisher that pass before and after each change.
pub(crate) const PASSING: u64 = 20;

/// Whether there can be hosts here; says why not.
pub(crate) fn hosts_are_possible() -> bool {
    let why = impossible();
    if let Some(why) = &why {
        skip(why);
    }
    why.is_none()
}

/// Seven agents, each on a host of its own: 0; 1, 2 below it; 3, 4 below 1; 5, 6 below 2.
async fn seven() -> (Net, Cluster) {
    let net = Net::new(7).unwrap();
    let mut cluster = plan(7).on(&net).start().await.unwrap();
    cluster.wait_wanted().await.unwrap();
    (net, cluster)
}

/// Everything once and in its order at every subscriber.
fn assert_perfect(account: &Account, cluster: &Cluster) {
    if let Err(error) = ensure_perfect(account) {
        panic!("{error}\n{}", cluster.logs());
    }
}

/// The network is whole again: one tree, and every event that was published on either side
/// has reached all subscribers.
async fn heals(net: &mut Net, cluster: &mut Cluster, load: Load) {
    net.heal().unwrap();
    cluster.wait_wanted().await.unwrap();
    cluster.must(load.wait_flow(PASSING, |_| true, |_| true).await).await;
    match load.finish().await {
        Ok(account) => assert_perfect(&account, cluster),
        Err(error) => panic!("{error:?}\n{}", cluster.logs()),
    }
}

async fn host_is_cut_off(way: Way, host: usize) {
    if !hosts_are_possible() {
        return;
    }
    let _turn = turn().await;
    let (mut net, mut cluster) = seven().await;
    let name = cluster.host(host).to_owned();
    // On the other side of the tree.
    let reported = Reported::listen(cluster.socket(if host == 1 { 2 } else { 1 })).await.unwrap();
    let load = Load::start(everywhere(&cluster, 7, PER_S)).await.unwrap();
    cluster.must(load.wait_flow(PASSING, |_| true, |_| true).await).await;
    net.isolate(host, way).unwrap();
    let suspected = reported.wait("FTB_NODE_SUSPECT", &name).await;
    suspected.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
    let dead = reported.wait("FTB_NODE_DEAD", &name).await;
    let dead = dead.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
    let votes = dead.tag("votes").unwrap_or_default();
    assert!(votes.contains("=silent") && !votes.contains("=answers"), "{votes:?}");
    assert_eq!(reported.hosts("FTB_NODE_DEAD"), std::slice::from_ref(&name), "{reported}");
    let elsewhere = |client: usize| client != host;
    cluster.must(load.wait_flow(PASSING, elsewhere, elsewhere).await).await;
    heals(&mut net, &mut cluster, load).await;
    let back = reported.wait("FTB_NODE_BACK", &name).await;
    back.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
    assert_eq!(reported.about("FTB_NODE_DEAD", &name).len(), 1, "{reported}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_is_cut_off_is_dead_and_comes_back_with_all_its_events() {
    host_is_cut_off(Way::Both, 5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_receives_nothing_is_dead_and_returns_with_all_its_events() {
    host_is_cut_off(Way::In, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_cannot_send_is_dead_and_returns_with_all_its_events() {
    host_is_cut_off(Way::Out, 1).await;
}

/// The root on its own, and all others: two components that both go on, then one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_root_that_is_cut_off_has_its_place_again() {
    host_is_cut_off(Way::Both, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_halves_become_one_tree_and_no_subscriber_misses_an_event() {
    if !hosts_are_possible() {
        return;
    }
    let _turn = turn().await;
    let (mut net, mut cluster) = seven().await;
    let load = Load::start(everywhere(&cluster, 7, PER_S)).await.unwrap();
    cluster.must(load.wait_flow(PASSING, |_| true, |_| true).await).await;
    let half = [1, 3, 4];
    net.split(&half).unwrap();
    // Each half goes on by itself.
    let here = |client: usize| half.contains(&client);
    let there = |client: usize| !half.contains(&client);
    cluster.must(load.wait_flow(PASSING, here, here).await).await;
    cluster.must(load.wait_flow(PASSING, there, there).await).await;
    assert_eq!(cluster.status(1).await.unwrap().role(), AgentRole::Root);
    assert_eq!(cluster.status(0).await.unwrap().role(), AgentRole::Root);
    heals(&mut net, &mut cluster, load).await;
}

/// All hosts of a rack lose power: each of them is dead, the root knows it, and all come back.
async fn rack_loses_power(rack: &[usize], listener: usize) {
    if !hosts_are_possible() {
        return;
    }
    let _turn = turn().await;
    let (mut net, mut cluster) = seven().await;
    let reported = Reported::listen(cluster.socket(listener)).await.unwrap();
    let names: Vec<String> = rack.iter().map(|rank| cluster.host(*rank).to_owned()).collect();
    let mut load = everywhere(&cluster, 7, PER_S);
    for clients in [&mut load.publishers, &mut load.subscribers] {
        clients.retain(|socket| rack.iter().all(|rank| socket != cluster.socket(*rank)));
    }
    let load = Load::start(load).await.unwrap();
    cluster.must(load.wait_flow(PASSING, |_| true, |_| true).await).await;
    for rank in rack {
        net.isolate(*rank, Way::Both).unwrap();
    }
    for rank in rack {
        cluster.crash(*rank).unwrap();
    }
    for name in &names {
        let dead = reported.wait("FTB_NODE_DEAD", name).await;
        dead.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
    }
    assert_eq!(reported.hosts("FTB_NODE_DEAD"), names);
    cluster.must(load.wait_flow(PASSING, |_| true, |_| true).await).await;
    for rank in rack {
        cluster.run(*rank).unwrap();
    }
    heals(&mut net, &mut cluster, load).await;
    for name in &names {
        let back = reported.wait("FTB_NODE_BACK", name).await;
        back.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
        assert_eq!(reported.about("FTB_NODE_DEAD", name).len(), 1, "{reported}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rack_that_loses_power_is_dead_and_comes_back() {
    rack_loses_power(&[2, 5, 6], 1).await;
}

/// The root and a leaf of which only dead agents know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rack_that_loses_power_with_the_root_is_dead() {
    rack_loses_power(&[0, 2, 5], 1).await;
}

/// The agent is gone, the host answers: no agent declares the node dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crashed_agent_on_a_live_host_is_no_dead_node() {
    if !hosts_are_possible() {
        return;
    }
    let _turn = turn().await;
    let (_net, mut cluster) = seven().await;
    for crashed in [2, 5] {
        let reported = Reported::listen(cluster.socket(1)).await.unwrap();
        let name = cluster.host(crashed).to_owned();
        cluster.crash(crashed).unwrap();
        let lost = reported.wait("FTB_AGENT_LOST", &name).await;
        lost.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
        cluster.run(crashed).unwrap();
        let back = reported.wait("FTB_AGENT_RESTARTED", &name).await;
        back.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
        cluster.wait_wanted().await.unwrap();
        assert_eq!(reported.hosts("FTB_NODE_DEAD"), [""; 0], "{reported}");
    }
}
