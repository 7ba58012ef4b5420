//! Agents that do not belong, as real processes: each is refused or reported by name, on both
//! sides, and the tree and its events go on without noticing.

use crate::{plan, turn};
use ftb_proto::v1::link_client::LinkClient;
use ftb_proto::v1::{self, MemberState, link_frame};
use ftb_tests::cluster::{Cluster, wait_for};
use ftb_tests::load::{Load, LoadPlan, ensure_perfect};
use ftb_tests::reported::Reported;
use std::path::{Path, PathBuf};
use tokio_stream::StreamExt as _;

/// The stranger is the last of five.
const STRANGER: usize = 4;

/// Replaces one line of an agent's configuration.
fn change(config: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(config).unwrap();
    assert!(text.contains(from), "{from} is not in {text}");
    std::fs::write(config, text.replacen(from, to, 1)).unwrap();
}

/// Five agents, of which the last has that one change in its configuration and is started last;
/// meanwhile events flow between the others. Gives who listens to what agents say.
async fn with_stranger(from: &str, to: &str) -> (Cluster, Reported, Load) {
    let mut cluster = plan(STRANGER + 1).prepare().unwrap();
    change(cluster.config(STRANGER), from, to);
    for rank in 0..STRANGER {
        cluster.run(rank).unwrap();
    }
    cluster.wait_safe().await.unwrap();
    let reported = Reported::listen(cluster.socket(0)).await.unwrap();
    let sockets: Vec<_> = (0..STRANGER).map(|rank| cluster.socket(rank).to_owned()).collect();
    let load = LoadPlan { publishers: sockets.clone(), per_s: 50, subscribers: sockets };
    let load = Load::start(load).await.unwrap();
    cluster.run(STRANGER).unwrap();
    (cluster, reported, load)
}

/// The four others are one tree and have lost nothing.
async fn assert_unharmed(cluster: &Cluster, load: Load) {
    cluster.must(load.wait_flow(20, |_| true, |_| true).await).await;
    let account = load.finish().await.unwrap();
    ensure_perfect(&account).unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
    let tree = cluster.tree(0).await.unwrap();
    let up = tree.nodes.iter().filter(|node| node.state() == MemberState::Up).count();
    assert!(up >= STRANGER, "{tree:?}");
}

/// The event says both names, and so does the stranger's own log.
async fn reported_on_both_sides(
    cluster: &Cluster,
    reported: &Reported,
    host: &str,
    words: &[&str],
) {
    let refused = reported.wait("FTB_AGENT_REFUSED", host).await;
    let refused = refused.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
    let why = String::from_utf8_lossy(&refused.payload).into_owned();
    for word in words {
        assert!(why.contains(word), "{word:?} is not in {why:?}");
    }
    let logged = wait_for("the stranger's log to say it", async || {
        let log = cluster.log(STRANGER);
        let said = |line: &str| words.iter().all(|word| line.contains(word));
        Ok(log.lines().map(|line| line.replace('\\', "")).any(|line| said(&line)).then_some(()))
    });
    logged.await.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_of_another_cluster_is_refused_by_name() {
    let _turn = turn().await;
    let (cluster, reported, load) =
        with_stranger("cluster = \"test\"", "cluster = \"elsewhere\"").await;
    reported_on_both_sides(&cluster, &reported, "node05", &["node05", "\"elsewhere\"", "\"test\""])
        .await;
    let status = cluster.status(STRANGER).await.unwrap();
    assert_eq!(status.parent, None, "it has found its way in");
    assert_unharmed(&cluster, load).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_agents_with_one_rank_do_not_take_turns() {
    let _turn = turn().await;
    let (mut cluster, reported, load) =
        with_stranger("host = \"node05\"", "host = \"node04\"").await;
    let refused = reported.wait("FTB_AGENT_REFUSED", "node04").await;
    let refused = refused.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
    let why = String::from_utf8_lossy(&refused.payload).into_owned();
    for word in ["two agents of host node04 and rank 3", "stop one of them"] {
        assert!(why.contains(word), "{why}");
    }
    let outside = wait_for("one of the two to be outside", async || {
        let parents = [cluster.status(3).await?.parent, cluster.status(STRANGER).await?.parent];
        Ok(match [parents[0].is_none(), parents[1].is_none()] {
            [true, false] => Some(3),
            [false, true] => Some(STRANGER),
            _ => None,
        })
    });
    let outside = outside.await.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
    // Those that hang together lose nothing; the clients of the other one wait.
    let inside = if outside == 3 { STRANGER } else { 3 };
    cluster.must(load.wait_flow(20, |client| client != 3, |client| client != 3).await).await;
    cluster.crash(inside).unwrap();
    let follows = wait_for("the other one to have the place", async || {
        Ok(cluster.status(outside).await?.parent.map(drop))
    });
    follows.await.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
    if inside == 3 {
        cluster.crash(STRANGER).unwrap();
        cluster.run(3).unwrap();
    }
    assert_unharmed(&cluster, load).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_longer_member_list_is_reported_and_does_no_harm() {
    let _turn = turn().await;
    let (mut cluster, reported, load) =
        with_stranger("node05\"\nhost", "node05,node06\"\nhost").await;
    let differ = reported.wait("FTB_MEMBERS_DIFFER", "node05").await;
    let differ = differ.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
    let why = String::from_utf8_lossy(&differ.payload).into_owned();
    assert!(why.contains("node05 and node0"), "{why}");
    cluster.wait_wanted().await.unwrap();
    assert_unharmed(&cluster, load).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_gives_a_rank_to_another_is_refused_by_name() {
    let _turn = turn().await;
    let (from, to) = ("node04,node05\"\nhost", "node05,node04\"\nhost");
    let (cluster, reported, load) = with_stranger(from, to).await;
    let words = ["node05 says it has rank 3", "which is node04"];
    reported_on_both_sides(&cluster, &reported, "node05", &words).await;
    assert_unharmed(&cluster, load).await;
}

/// What an agent answers to a hello.
async fn answer_to(
    address: &str,
    hello: v1::LinkHello,
) -> Result<link_frame::Frame, tonic::Status> {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client = LinkClient::new(endpoint.connect().await.unwrap());
    let frame = v1::LinkFrame { frame: Some(link_frame::Frame::Hello(hello)) };
    let frames = tokio_stream::iter([frame]).chain(tokio_stream::pending());
    let mut answers = client.exchange(frames).await.unwrap().into_inner();
    // Behind the answer the connection is closed.
    answers.next().await.unwrap().map(|answer| answer.frame.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_and_newer_protocols_are_refused_in_words_that_name_both() {
    let _turn = turn().await;
    let mut cluster = plan(2).start().await.unwrap();
    cluster.wait_wanted().await.unwrap();
    let address = cluster.address(0).unwrap();
    let ours = ftb_core::protocol::PROTOCOL.max;
    for (theirs, host) in [(ours - 1, "node02"), (ours + 1, "node03")] {
        let reported = Reported::listen(cluster.socket(1)).await.unwrap();
        let hello = v1::LinkHello {
            protocol: theirs,
            cluster: "test".to_owned(),
            host: host.to_owned(),
            rank: Some(1),
            origin: 7,
            ..v1::LinkHello::default()
        };
        let answer = answer_to(&address, hello).await;
        let Ok(link_frame::Frame::HelloNack(reject)) = answer else {
            panic!("{answer:?}\n{}", cluster.logs());
        };
        assert_eq!(reject.code(), v1::NackCode::Protocol);
        let words = [
            format!("{host} speaks protocol {theirs}"),
            format!("node01 speaks {ours}"),
            "upgrade both to the same release".to_owned(),
        ];
        let event = reported.wait("FTB_AGENT_REFUSED", host).await.unwrap();
        let event = String::from_utf8_lossy(&event.payload).into_owned();
        for word in &words {
            assert!(reject.message.contains(word), "{word:?} is not in {:?}", reject.message);
            assert!(event.contains(word), "{word:?} is not in {event:?}");
        }
    }
    cluster.wait_wanted().await.unwrap();
}

/// What gives an agent a wrong clock when it is preloaded.
pub(crate) fn clock_library(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    std::fs::write(&source, include_str!("../../src/clock_apart.c")).unwrap();
    let built = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status();
    assert!(built.expect("a C compiler, as for the build").success());
    library
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_hours_off_is_reported_and_does_no_harm() {
    let _turn = turn().await;
    let mut cluster = plan(5).prepare().unwrap();
    let library = clock_library(cluster.dir());
    cluster.through(
        STRANGER,
        &[
            "env".to_owned(),
            format!("LD_PRELOAD={}", library.display()),
            "FTB_TEST_CLOCK_APART=-7200".to_owned(),
        ],
    );
    for rank in 0..STRANGER {
        cluster.run(rank).unwrap();
    }
    cluster.wait_safe().await.unwrap();
    let reported = Reported::listen(cluster.socket(0)).await.unwrap();
    cluster.run(STRANGER).unwrap();
    let differ = reported.wait("FTB_CLOCKS_DIFFER", "node05").await;
    let differ = differ.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
    let why = String::from_utf8_lossy(&differ.payload).into_owned();
    assert!(why.contains("node05 and node0") && why.contains("7200 s apart"), "{why}");
    cluster.wait_wanted().await.unwrap();
    let load = Load::start(crate::everywhere(&cluster, 5, 50)).await.unwrap();
    assert_unharmed(&cluster, load).await;
}
