//! What one ordinary user reads of another's events, and how severe its own may be.
#![allow(clippy::unwrap_used, missing_docs)]

use ftb_client::{Client, Delivery, Received, Severity, Start, event};
use ftb_tests::cluster::{Cluster, PATIENCE, Plan, binary};
use ftb_tests::skip::skip;
use ftb_tests::user::{ORDINARY, as_user, impossible};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use tokio::sync::oneshot;

const JOB: &str = "job-1";
const LAST: &str = "LAST";
const FOREIGN: &str = "FOREIGN";
/// Reads: on the first host. The other publishes on the second one.
const ANN: u32 = ORDINARY[0];
const BEN: u32 = ORDINARY[1];

async fn cluster(extra: &str) -> Option<Cluster> {
    if let Some(why) = impossible() {
        skip(&why);
        return None;
    }
    let cluster = Plan::new(2, 1).extra(extra).start().await.unwrap();
    std::fs::set_permissions(cluster.dir(), Permissions::from_mode(0o755)).unwrap();
    Some(cluster)
}

fn client(socket: &Path) -> Client {
    Client::builder("test").agent(socket).job_id(JOB).build().unwrap()
}

/// Publishes events, each with space, name and severity; gives their ids.
async fn say(socket: &Path, events: &[(&str, &str, Severity)]) -> Vec<String> {
    let client = client(socket);
    let mut ids = Vec::new();
    for (space, name, severity) in events {
        let event = event(space, name).unwrap().severity(*severity);
        let receipt = client.publish(event.build()).unwrap();
        ids.push(receipt.confirmed().await.unwrap().to_string());
    }
    client.close(PATIENCE).await.unwrap();
    ids
}

async fn say_as(uid: u32, socket: &Path, events: &[(&'static str, &'static str)]) -> Vec<String> {
    let socket = socket.to_owned();
    // Agents remember the path of an ERROR.
    let severity = |name| if name == FOREIGN { Severity::Error } else { Severity::Info };
    let events: Vec<_> =
        events.iter().map(|(space, name)| (*space, *name, severity(*name))).collect();
    let said = as_user(uid, async move || say(&socket, &events).await);
    tokio::task::spawn_blocking(|| said.join().unwrap()).await.unwrap()
}

/// Reads up to the event [`LAST`]; gives the names of those before it, without those of agents.
async fn names(
    socket: &Path,
    filter: &str,
    start: Start,
    ready: oneshot::Sender<()>,
) -> Vec<String> {
    let client = client(socket);
    let mut subscription = client.subscribe(filter, start).await.unwrap();
    ready.send(()).unwrap();
    let mut names = Vec::new();
    loop {
        match tokio::time::timeout(PATIENCE, subscription.next()).await.unwrap().unwrap() {
            Delivery::Event(received) if received.event.name.as_str() == LAST => return names,
            Delivery::Event(received) if received.event.space.as_str() == "ftb.agent" => {}
            Delivery::Event(received) => names.push(received.event.name.as_str().to_owned()),
            Delivery::Gap(gap) => panic!("{filter}: {gap:?}"),
        }
    }
}

/// Begins to read as a user.
async fn read_as(
    uid: u32,
    socket: &Path,
    filter: &'static str,
    start: Start,
) -> std::thread::JoinHandle<Vec<String>> {
    let socket: PathBuf = socket.to_owned();
    let (ready, is_ready) = oneshot::channel();
    let reading = as_user(uid, async move || names(&socket, filter, start, ready).await);
    is_ready.await.unwrap();
    reading
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_jobs_a_user_reads_its_own_events_only_live_and_past_and_root_reads_all() {
    let Some(cluster) = cluster("").await else { return };
    let (near, far) = (cluster.socket(0), cluster.socket(1));
    let filters = ["", "jobid=job-1", "event_space=ftb.*", "severity=info"];
    let mut live = Vec::new();
    for filter in filters {
        live.push(read_as(ANN, near, filter, Start::Now).await);
    }
    let named = read_as(ANN, near, "event_space=ftb.jl|ftb.mpi", Start::Now).await;
    let root = read_as(0, near, "", Start::Now).await;
    let root_own = read_as(0, near, "jobid=job-1, uid=64001", Start::Now).await;

    let foreign = ["ftb.jl", "ftb.mpi.code", "ftb.nla"].map(|space| (space, FOREIGN));
    let ids = say_as(BEN, far, &foreign).await;
    say_as(ANN, far, &[("ftb.jl", "OWN"), ("ftb.mpi", "OWN"), ("ftb.jl", LAST)]).await;
    for (filter, reading) in filters.into_iter().zip(live) {
        assert_eq!(reading.join().unwrap(), ["OWN", "OWN"], "{filter:?}");
    }
    assert_eq!(named.join().unwrap(), ["OWN", "OWN"]);
    assert_eq!(root.join().unwrap(), [FOREIGN, FOREIGN, FOREIGN, "OWN", "OWN"]);
    assert_eq!(root_own.join().unwrap(), ["OWN", "OWN"], "the filter of root's launcher");
    for filter in filters {
        let past = read_as(ANN, near, filter, Start::SinceNs(0)).await;
        assert_eq!(past.join().unwrap(), ["OWN", "OWN"], "the past of {filter:?}");
    }

    // The path of an event is as private as the event.
    let ftbctl = cluster.dir().join("ftbctl");
    std::fs::copy(binary("ftbctl", "ftbctl").unwrap(), &ftbctl).unwrap();
    let trace = |uid: u32, id: &str| {
        let mut command = Command::new(&ftbctl);
        command.arg("--agent").arg(near).args(["trace", id]).uid(uid).gid(uid).current_dir("/");
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = trace(ANN, &ids[0]);
    assert!(said.contains("only its own events of event space ftb.jl"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_ordinary_user_says_with_fatal_comes_as_error_unless_a_rule_allows_it() {
    let rule = "[[access]]\nspace = \"site.free\"\nseverity_max = \"fatal\"\n";
    let Some(cluster) = cluster(rule).await else { return };
    let (near, far) = (cluster.socket(0).to_owned(), cluster.socket(1).to_owned());
    let reader = client(&near);
    let mut subscription = reader.subscribe("event_space=site.*", Start::Now).await.unwrap();
    let said = as_user(ANN, async move || {
        let fatal = ["site.app", "site.free"].map(|space| (space, "DEAD", Severity::Fatal));
        say(&far, &fatal).await;
    });
    tokio::task::spawn_blocking(|| said.join().unwrap()).await.unwrap();
    say(&near, &[("site.app", "DEAD", Severity::Fatal)]).await;
    let mut next = async || -> Box<Received> {
        match tokio::time::timeout(PATIENCE, subscription.next()).await.unwrap().unwrap() {
            Delivery::Event(received) => received,
            Delivery::Gap(gap) => panic!("{gap:?}"),
        }
    };
    let lowered = next().await;
    assert_eq!((lowered.uid, lowered.event.severity), (ANN, Severity::Error));
    assert_eq!(lowered.event.tag("ftb.severity"), Some("fatal"));
    for uid in [ANN, 0] {
        let free = next().await;
        assert_eq!((free.uid, free.event.severity), (uid, Severity::Fatal));
        assert_eq!(free.event.tag("ftb.severity"), None);
    }
    let counters = cluster.status(1).await.unwrap().counters;
    assert_eq!(counters.get("severity_lowered"), Some(&1));
}
