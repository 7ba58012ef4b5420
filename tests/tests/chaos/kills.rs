//! Any one agent is killed, or stopped for longer than the deadline, while events flow from
//! everywhere to everywhere: nothing is lost, nothing comes twice, the order is kept.

use crate::{ROOMY, everywhere, plan, turn};
use ftb_proto::v1::MemberState;
use ftb_tests::cluster::{Cluster, Plan};
use ftb_tests::load::{Load, ensure_perfect};
use ftb_tests::reported::Reported;
use nix::sys::signal::Signal;
use std::time::Instant;

/// Publishers, and what each publishes in a second: what six agents, their clients and the test can
/// carry on two cores, without optimisation far less.
const PUBLISHERS: usize = 16;
const PER_S: u32 = if cfg!(debug_assertions) { 150 } else { 1_000 };
/// Events of each publisher that pass before an agent is killed and after each change.
const PASSING: u64 = PER_S as u64 / 4;

/// How often an agent is killed; `FTB_CHAOS_RUNS=100` for a long look (`make test-long`).
fn runs() -> usize {
    let runs = std::env::var("FTB_CHAOS_RUNS").ok();
    runs.map_or(6, |runs| runs.parse().expect("FTB_CHAOS_RUNS is a number of runs"))
}

/// Kills one agent under load and starts it again; every subscriber, that of the killed agent too,
/// gets every event once and in order. Gives how many there were in a second, of all publishers.
async fn kill_under_load(cluster: &mut Cluster, killed: usize) -> anyhow::Result<f64> {
    let agents = cluster.len();
    let load = Load::start(everywhere(cluster, PUBLISHERS, PER_S)).await?;
    let start = Instant::now();
    let elsewhere = |client: usize| client % agents != killed;
    load.wait_flow(PASSING, |_| true, |_| true).await?;
    cluster.crash(killed)?;
    load.wait_flow(PASSING, elsewhere, elsewhere).await?;
    cluster.run(killed)?;
    load.wait_flow(PASSING, |_| true, |_| true).await?;
    cluster.wait_safe().await?;
    let rate = load.sent().iter().sum::<u64>() as f64 / start.elapsed().as_secs_f64();
    let account = load.finish().await?;
    ensure_perfect(&account)?;
    Ok(rate)
}

/// Rank 0 is the root, 1 the standby and a parent of leaves, 2 a parent too, the others are leaves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_agent_may_be_killed_under_load() {
    let _turn = turn().await;
    // No agent is silent here, so the deadline for that is the default.
    let extra = format!("[detection]\nsearch = \"600ms\"\nprobe = \"200ms\"\n{ROOMY}");
    let mut cluster = Plan::new(6, 2).extra(&extra).start().await.unwrap();
    cluster.wait_wanted().await.unwrap();
    for run in 0..runs() {
        let killed = run % cluster.len();
        match kill_under_load(&mut cluster, killed).await {
            Ok(rate) => println!(
                "run {run}: agent {killed} killed, nothing lost of {rate:.0} events a second"
            ),
            Err(error) => {
                panic!("run {run}, agent {killed} killed: {error:?}\n{}", cluster.logs())
            }
        }
    }
}

/// A stopped agent (SIGSTOP) is left by its children; when it goes on no other agent is lost, is no
/// dead node, and has its place again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_was_stopped_finds_the_wanted_tree_and_nothing_is_lost() {
    let _turn = turn().await;
    let mut cluster = plan(7).start().await.unwrap();
    cluster.wait_wanted().await.unwrap();
    for stopped in [1, 0] {
        let reported = Reported::listen(cluster.socket(5)).await.unwrap();
        let load = Load::start(everywhere(&cluster, 7, 100)).await.unwrap();
        let elsewhere = |client: usize| client != stopped;
        cluster.must(load.wait_flow(20, |_| true, |_| true).await).await;
        cluster.signal(stopped, Signal::SIGSTOP).unwrap();
        // Long enough that its children have left it and everything flows without it.
        cluster.wait_left(stopped).await.unwrap();
        cluster.must(load.wait_flow(20, elsewhere, elsewhere).await).await;
        cluster.signal(stopped, Signal::SIGCONT).unwrap();
        cluster.wait_wanted().await.unwrap();
        match load.finish().await {
            Ok(account) => ensure_perfect(&account).unwrap(),
            Err(error) => panic!("rank {stopped} stopped: {error:?}\n{}", cluster.logs()),
        }
        assert_eq!(reported.hosts("FTB_NODE_DEAD"), [""; 0], "{reported}");
        // Its children left it because it was silent. It must not suspect them.
        let suspicions = reported.published_by("FTB_NODE_SUSPECT", cluster.host(stopped));
        assert!(suspicions.is_empty(), "rank {stopped}: {reported}");
    }
}

/// An agent that is stopped and does not go on is lost, wherever it stands: that is reported with
/// the reporter, its host is not declared dead, and its return is reported.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_stopped_for_good_is_lost_and_its_host_lives() {
    let _turn = turn().await;
    let mut cluster = plan(7).start().await.unwrap();
    cluster.wait_wanted().await.unwrap();
    for stopped in [5, 1, 0] {
        let name = cluster.host(stopped).to_owned();
        let reported = Reported::listen(cluster.socket(6)).await.unwrap();
        let load = Load::start(everywhere(&cluster, 7, 50)).await.unwrap();
        let elsewhere = |client: usize| client != stopped;
        cluster.must(load.wait_flow(10, |_| true, |_| true).await).await;
        cluster.signal(stopped, Signal::SIGSTOP).unwrap();
        let lost = reported.wait("FTB_AGENT_LOST", &name).await;
        let lost = lost.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
        let votes = lost.tag("votes").unwrap_or_default();
        assert!(votes.contains('='), "{votes:?}");
        let words = String::from_utf8_lossy(&lost.payload).into_owned();
        assert!(words.contains("says nothing, the host is alive"), "{words}");
        cluster.must(load.wait_flow(10, elsewhere, elsewhere).await).await;
        let root = usize::from(stopped == 0);
        let tree = cluster.tree(root).await.unwrap();
        assert_eq!(tree.nodes[stopped].state(), MemberState::Lost, "{tree:?}");
        cluster.signal(stopped, Signal::SIGCONT).unwrap();
        let back = reported.wait("FTB_AGENT_BACK", &name).await;
        back.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
        cluster.wait_wanted().await.unwrap();
        match load.finish().await {
            Ok(account) => ensure_perfect(&account).unwrap(),
            Err(error) => panic!("rank {stopped} stopped: {error:?}\n{}", cluster.logs()),
        }
        assert_eq!(reported.about("FTB_AGENT_LOST", &name).len(), 1, "{reported}");
        assert_eq!(reported.hosts("FTB_NODE_DEAD"), [""; 0], "{reported}");
    }
}
