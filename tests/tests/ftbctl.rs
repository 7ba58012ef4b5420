//! The command line against real agents.
#![allow(clippy::unwrap_used, missing_docs)]

use ftb_tests::cluster::{Cluster, Plan, binary, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn ftbctl(socket: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(binary("ftbctl", "ftbctl").unwrap());
    command.arg("--agent").arg(socket).args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(socket: &Path, args: &[&str]) -> Output {
    ftbctl(socket, args).output().unwrap()
}

fn succeed(socket: &Path, args: &[&str]) -> String {
    let output = run(socket, args);
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {shown}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

/// Starts `ftbctl tail` and waits until its filter is known to the agent. It ends by itself where a
/// test that has failed does not end it.
async fn tail(cluster: &Cluster, rank: usize, filter: &str, more: &[&str]) -> Child {
    let args = [&["tail", filter, "--timeout", "3m"], more].concat();
    let child = ftbctl(cluster.socket(rank), &args).spawn().unwrap();
    wait_for("the tail to be subscribed", async || {
        let status = cluster.status(rank).await?;
        let mut filters = status.clients.iter().filter(|c| c.pid == child.id());
        Ok(filters.any(|client| !client.filters.is_empty()).then_some(()))
    })
    .await
    .unwrap();
    child
}

#[tokio::test]
async fn what_is_published_at_one_node_is_seen_at_another() {
    let cluster = Cluster::start(3, 2).await.unwrap();
    let filter = "event_space=ftb.test, severity>=error";
    let mut people = tail(&cluster, 1, filter, &["-n", "1"]).await;
    let mut program = tail(&cluster, 2, filter, &["-n", "1", "--json"]).await;
    // The agent knows the filter before the whole tree does: the first may come too early.
    let published = wait_for("both to have seen one", async || {
        let shown = succeed(
            cluster.socket(0),
            &["publish", "ftb.test", "FAN", "stands \u{7}still", "-s", "error", "-t", "a=b"],
        );
        let ended = program.try_wait()?.is_some() && people.try_wait()?.is_some();
        Ok(ended.then_some(shown))
    });
    let published = published.await.unwrap();
    assert_eq!(published.trim().len(), "0123456789abcdef0123456789abcdef.1".len());
    let line = String::from_utf8(people.wait_with_output().unwrap().stdout).unwrap();
    for word in ["ERROR", "node01", "ftb.test", "FAN", "stands \\u{7}still", "a=b"] {
        assert!(line.contains(word), "{word:?} is not in {line:?}");
    }
    let event = json(&String::from_utf8(program.wait_with_output().unwrap().stdout).unwrap());
    assert_eq!(event["type"], "event");
    assert_eq!(event["severity"], "ERROR");
    assert_eq!(event["host"], "node01");
    assert_eq!(event["tags"]["a"], "b");
    assert_eq!(event["payload"], "stands \u{7}still");
    assert_eq!(event["client"], "ftbctl");
    assert!(event["position"].as_str().unwrap().contains(':'));
}

/// Asked at an agent that has never wanted these events: they come from above. The
/// command ends at the time of the call, also where nothing matches.
#[tokio::test]
async fn events_of_the_past_are_printed_at_another_node() {
    let cluster = Cluster::start(3, 1).await.unwrap();
    for name in ["ONE", "TWO", "THREE"] {
        succeed(cluster.socket(2), &["publish", "ftb.test", name, "x"]);
    }
    let shown = succeed(cluster.socket(2), &["events", "event_space=ftb.test", "--json"]);
    let names: Vec<_> = shown.lines().map(|line| json(line)["name"].clone()).collect();
    assert_eq!(names, ["ONE", "TWO", "THREE"]);
    let none = succeed(cluster.socket(1), &["events", "event_space=ftb.nothing", "--json"]);
    assert_eq!(none, "");
}

/// No event was ever published: there is nothing to read, and that is an answer, not a time-out.
#[tokio::test]
async fn looking_back_into_an_empty_log_ends_at_once_at_every_agent() {
    let cluster = Plan::new(3, 1).start_quietly().await.unwrap();
    for rank in [2, 1, 0] {
        let nothing = "no events\n";
        for (args, said) in [(vec!["events"], nothing), (vec!["events", "--json"], "")] {
            assert_eq!(succeed(cluster.socket(rank), &args), said, "{args:?} at rank {rank}");
        }
    }
    for rank in 0..3 {
        let status = cluster.status(rank).await.unwrap();
        assert_eq!(status.index, 0, "rank {rank}: something was published");
    }
}

/// A root that has just started may wait a minute for an older log. Where all agents are in its
/// tree there is none.
#[tokio::test]
async fn the_first_subscription_waits_for_no_timer() {
    let slow = Plan::new(3, 1).extra("[detection]\nsearch = \"60s\"\nprobe = \"200ms\"\n");
    let cluster = slow.start_quietly().await.unwrap();
    for rank in [2, 1, 0] {
        let said = succeed(cluster.socket(rank), &["events", "--since", "1h"]);
        assert_eq!(said, "no events\n", "rank {rank}");
    }
    let uptime_ms = cluster.status(0).await.unwrap().uptime_ms;
    assert!(uptime_ms < 60_000, "too slow to tell: the root is up for {uptime_ms} ms");
}

#[tokio::test]
async fn a_reader_that_has_gone_is_success_and_ctrl_c_is_130() {
    let cluster = Cluster::start(1, 2).await.unwrap();
    let mut piped = tail(&cluster, 0, "event_name=PIPED", &[]).await;
    let publish = || succeed(cluster.socket(0), &["publish", "ftb.test", "PIPED"]);
    publish();
    let mut reader = BufReader::new(piped.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.contains("PIPED"));
    drop(reader);
    let status = wait_for("the tail to notice", async || {
        publish();
        Ok(piped.try_wait()?)
    });
    assert_eq!(status.await.unwrap().code(), Some(0));

    let interrupted = tail(&cluster, 0, "event_name=NEVER", &[]).await;
    kill(Pid::from_raw(i32::try_from(interrupted.id()).unwrap()), Signal::SIGINT).unwrap();
    let output = interrupted.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(output.stderr.is_empty() && output.stdout.is_empty());
}

#[tokio::test]
async fn tree_and_status_show_the_cluster() {
    let mut cluster = Cluster::start(4, 2).await.unwrap();
    cluster.stop(3).await.unwrap();
    // The agents may still be on their way to the wanted shape.
    let drawn = async || {
        let tree = succeed(cluster.socket(2), &["tree"]);
        let wanted = ["├─ node02", "└─ node03", "absent: node04"];
        Ok(wanted.iter().all(|line| tree.contains(line)).then_some(tree))
    };
    let tree = wait_for("the wanted tree without node04", drawn).await.unwrap();
    let root = tree.lines().next().unwrap();
    assert!(root.starts_with("node01") && root.contains("root"), "{tree}");
    let objects = succeed(cluster.socket(2), &["tree", "--json"]);
    let objects: Vec<_> = objects.lines().map(json).collect();
    assert_eq!(objects.len(), 5);
    assert_eq!(objects[4]["type"], "tree");
    assert_eq!(objects[1]["parent"], 0);
    assert_eq!(objects[3]["state"], "absent");
    let status = json(&succeed(cluster.socket(2), &["status", "--json"]));
    assert_eq!(status["host"], "node03");
    assert_eq!(status["parent"], "node01");
    let people = succeed(cluster.socket(0), &["status"]);
    assert!(people.contains("root of cluster test"), "{people}");
}

#[tokio::test]
async fn what_the_agent_refuses_is_exit_code_1() {
    let cluster = Cluster::start(1, 2).await.unwrap();
    let output = run(cluster.socket(0), &["publish", "ftb.agent", "FTB_NODE_DEAD"]);
    assert_eq!(output.status.code(), Some(1));
    let shown = String::from_utf8(output.stderr).unwrap();
    assert!(shown.contains("denied") && shown.contains("ftb.agent"), "{shown}");
    let nothing = run(cluster.socket(0), &["tail", "-n", "1", "--timeout", "200ms"]);
    assert_eq!(nothing.status.code(), Some(3));
}
