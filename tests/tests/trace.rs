//! The path of an event, as real agents remember it.
#![allow(clippy::unwrap_used, missing_docs)]

use ftb_client::{Client, Delivery, EventId, Severity, Start, Unconfirmed, event};
use ftb_tests::cluster::{Cluster, PATIENCE, Plan, binary, wait_for};
use ftb_tests::skip::skip;
use ftb_tests::user::{ORDINARY, impossible};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

fn ftbctl(cluster: &Cluster, rank: usize) -> Command {
    let mut command = Command::new(binary("ftbctl", "ftbctl").unwrap());
    command.arg("--agent").arg(cluster.socket(rank));
    command
}

fn run(command: &mut Command) -> (i32, String) {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap_or(-1), text.into_owned())
}

fn publish(cluster: &Cluster, rank: usize, words: &[&str]) -> String {
    let (code, text) = run(ftbctl(cluster, rank).arg("publish").args(words));
    assert_eq!(code, 0, "{text}");
    text.trim().to_owned()
}

fn trace(cluster: &Cluster, rank: usize, id: &str) -> (i32, String) {
    run(ftbctl(cluster, rank).args(["trace", id]))
}

/// Host, step and what it names, in the order in which `ftbctl trace` shows them.
fn steps(cluster: &Cluster, rank: usize, id: &str) -> Vec<(String, String, String)> {
    let (_, text) = run(ftbctl(cluster, rank).args(["trace", "--json", id]));
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
    let steps = lines.filter(|line| line["type"] == "step");
    steps.map(|line| (of(&line, "host"), of(&line, "step"), of(&line, "what"))).collect()
}

#[tokio::test]
async fn each_step_of_an_event_is_shown_with_its_host_from_anywhere() {
    let mut cluster = Plan::new(7, 2).start().await.unwrap();
    cluster.wait_wanted().await.unwrap();
    cluster.wait_safe().await.unwrap();
    // 5 is below 2, and 3 below 1.
    let subscriber = Client::builder("watcher").agent(cluster.socket(3)).build().unwrap();
    let filter = "event_space=ftb.x, severity>=info";
    let mut events = subscriber.subscribe(filter, Start::Now).await.unwrap();
    let id = publish(&cluster, 5, &["ftb.x", "BROKEN", "-s", "error"]);
    events.next().await.unwrap();
    let host = |rank: usize| cluster.host(rank).to_owned();
    for from in [0, 4, 6] {
        let found = steps(&cluster, from, &id);
        let at = |rank: usize, step: &str, what: &str| {
            let wanted = (host(rank), step.to_owned(), what.to_owned());
            let place = found.iter().position(|known| *known == wanted);
            place.unwrap_or_else(|| panic!("no {wanted:?}: {found:#?}"))
        };
        let path = [
            at(5, "published", "ftbctl"),
            at(5, "sent-up", &host(2)),
            at(2, "from-below", &host(5)),
            at(0, "logged", ""),
            at(0, "committed", ""),
            at(0, "sent-down", &host(1)),
            at(3, "from-above", ""),
            at(3, "delivered", "watcher"),
        ];
        // A standby that is slow for a moment is passed over.
        assert!(path.is_sorted(), "{path:?}: {found:#?}");
    }
    let (code, text) = trace(&cluster, 4, &id);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("BROKEN") && text.contains("it went to 1 subscriptions"), "{text}");
    // A milder event only where its publisher wants that.
    let mild = publish(&cluster, 5, &["ftb.x", "MILD"]);
    let (code, text) = trace(&cluster, 4, &mild);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("none of 7 agents remember this event"), "{text}");
    let wanted = publish(&cluster, 5, &["ftb.x", "MILD", "--trace"]);
    assert_eq!(trace(&cluster, 4, &wanted).0, 0);
    // A milder event that states a condition too: by itself, or by a pair.
    let stating = ["ftb.x", "WORN", "-s", "warning", "--condition", "DISK_WORN"];
    let paired = ["ftb.ib", "FTB_IB_PORT_DEGRADED", "-s", "warning", "--tag", "adapter=mlx5_0"];
    for words in [&stating[..], &paired[..]] {
        let stated = publish(&cluster, 5, words);
        let found = steps(&cluster, 4, &stated);
        for (rank, step, what) in [(5, "sent-up", host(2)), (0, "committed", String::new())] {
            assert!(found.contains(&(host(rank), step.to_owned(), what)), "{words:?}: {found:#?}");
        }
    }
    let cleared = publish(&cluster, 5, &["ftb.x", "MENDED", "--condition", "DISK_WORN=clear"]);
    assert_eq!(trace(&cluster, 4, &cleared).0, 1);
    // An unknown id, and none.
    assert_eq!(trace(&cluster, 4, "000000000000000000000000000000ff.1").0, 1);
    assert_eq!(trace(&cluster, 4, "nonsense").0, 64);
}

#[tokio::test]
async fn an_agent_that_does_not_answer_is_named() {
    // The default silence would let the tree heal before the deadline.
    let times = "[detection]\nsilence = \"30s\"\n";
    let mut cluster = Plan::new(5, 2).extra(times).start().await.unwrap();
    cluster.wait_wanted().await.unwrap();
    cluster.wait_safe().await.unwrap();
    let id = publish(&cluster, 4, &["ftb.x", "BROKEN", "-s", "fatal"]);
    cluster.signal(3, Signal::SIGSTOP).unwrap();
    let (code, text) = run(ftbctl(&cluster, 2).args(["--timeout", "8s", "trace", &id]));
    cluster.signal(3, Signal::SIGCONT).unwrap();
    assert_eq!(code, 3, "{text}");
    assert!(text.contains(&format!("no answer from {}", cluster.host(3))), "{text}");
    assert!(text.contains("published by ftbctl"), "the others have answered: {text}");
    assert_eq!(text.matches("no answer from").count(), 1, "{text}");
}

#[tokio::test]
async fn a_full_ring_forgets_the_oldest_event_and_says_so() {
    let mut cluster = Plan::new(3, 2).start().await.unwrap();
    cluster.wait_wanted().await.unwrap();
    cluster.wait_safe().await.unwrap();
    let old = publish(&cluster, 2, &["ftb.x", "OLD", "-s", "error"]);
    assert_eq!(trace(&cluster, 0, &old).0, 0);
    let client = Client::builder("storm").agent(cluster.socket(2)).build().unwrap();
    let mut last = None;
    for _ in 0..4_100 {
        let event = event("ftb.x", "NEW").unwrap().severity(Severity::Error);
        last = Some(client.publish(event).unwrap());
    }
    let newest: EventId = last.unwrap().confirmed().await.unwrap();
    let forgotten = async || Ok((trace(&cluster, 0, &old).0 == 1).then_some(()));
    wait_for("the old event is forgotten", forgotten).await.unwrap();
    assert!(trace(&cluster, 0, &old).1.contains("4,096 later steps"));
    assert_eq!(trace(&cluster, 0, &newest.to_string()).0, 0);
    client.close(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn a_user_sees_the_paths_of_readable_events_only() {
    if let Some(why) = impossible() {
        return skip(&why);
    }
    let access = "[[access]]\nspace = \"site.secret\"\npublish = [\"root\"]\n\
                  subscribe = [\"root\"]\n";
    let mut cluster = Plan::new(3, 2).extra(access).start().await.unwrap();
    cluster.wait_wanted().await.unwrap();
    cluster.wait_safe().await.unwrap();
    std::fs::set_permissions(cluster.dir(), Permissions::from_mode(0o755)).unwrap();
    let program = cluster.dir().join("ftbctl");
    std::fs::copy(binary("ftbctl", "ftbctl").unwrap(), &program).unwrap();
    let as_user = |id: &str| {
        let mut command = Command::new(&program);
        command.arg("--agent").arg(cluster.socket(2)).args(["trace", id]);
        run(command.uid(ORDINARY[0]))
    };
    let secret = publish(&cluster, 1, &["site.secret", "SECRET", "-s", "error"]);
    let (code, text) = as_user(&secret);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("may not read events of event space site.secret"), "{text}");
    assert_eq!(trace(&cluster, 2, &secret).0, 0, "root may");
    let open = publish(&cluster, 1, &["ftb.x", "OPEN", "-s", "error"]);
    assert_eq!(as_user(&open).0, 0);
}

/// The hosts where an event was folded or limited, with the step.
fn ends(cluster: &Cluster, id: EventId) -> Vec<(String, String)> {
    let all = steps(cluster, 2, &id.to_string()).into_iter();
    let ends = all.filter(|(_, step, _)| ["folded", "limited"].contains(&&**step));
    ends.map(|(host, step, _)| (host, step)).collect()
}

/// The hosts where an event had a step.
fn hosts_with(cluster: &Cluster, id: EventId, wanted: &str) -> Vec<String> {
    let all = steps(cluster, 2, &id.to_string()).into_iter();
    all.filter(|(_, step, _)| step == wanted).map(|(host, ..)| host).collect()
}

/// An event that a rule folds, one that a rule limits, and one that a group takes.
#[tokio::test]
async fn the_path_shows_where_an_event_was_folded_or_limited() {
    let rules = "[[storm]]\nspace = \"ftb.x.noise\"\nseverity_max = \"error\"\nfold = \"2s\"\n\
                 [[storm]]\nspace = \"ftb.x.loud\"\nseverity_max = \"error\"\n\
                 events_per_s = 1\nburst = 1\n\
                 [[storm]]\nspace = \"ftb.x.ports\"\nseverity_max = \"error\"\n\
                 fold = \"500ms\"\ngroup_by = [\"neighbour\"]\n";
    let mut cluster = Plan::new(3, 2).extra(rules).start().await.unwrap();
    cluster.wait_wanted().await.unwrap();
    cluster.wait_safe().await.unwrap();
    let client = Client::builder("storm").agent(cluster.socket(1)).build().unwrap();
    // At once: no window ends between them, and no budget grows.
    let publish = async |space: &str, count: usize| {
        let error = || event(space, "FLAPS").unwrap().severity(Severity::Error);
        let all = (0..count).map(|_| client.publish(error().tag("neighbour", "leaf1")).unwrap());
        let mut outcomes = Vec::new();
        for receipt in all.collect::<Vec<_>>() {
            outcomes.push(receipt.confirmed().await);
        }
        outcomes
    };
    let at = |rank: usize, step: &str| vec![(cluster.host(rank).to_owned(), step.to_owned())];
    let flaps = publish("ftb.x.noise", 2).await;
    let [Ok(first), Ok(second)] = flaps[..] else { panic!("{flaps:?}") };
    assert_eq!((ends(&cluster, first), ends(&cluster, second)), (vec![], at(1, "folded")));
    let (_, text) = trace(&cluster, 0, &second.to_string());
    assert!(text.contains("folded into a later event (storm control)"), "{text}");

    let cries = publish("ftb.x.loud", 20).await;
    let Ok(first) = cries[0] else { panic!("{cries:?}") };
    let limited = cries.iter().position(|end| matches!(end, Err(Unconfirmed::Refused { .. })));
    let limited = EventId { seq: first.seq + limited.unwrap() as u64, ..first };
    assert_eq!((ends(&cluster, first), ends(&cluster, limited)), (vec![], at(1, "limited")));

    let subscriber = Client::builder("watcher").agent(cluster.socket(2)).build().unwrap();
    let mut folds = subscriber.subscribe("event_space=ftb.x.ports", Start::Now).await.unwrap();
    let ports = publish("ftb.x.ports", 2).await;
    let Ok(port) = ports[0] else { panic!("{ports:?}") };
    let Some(Delivery::Event(fold)) = folds.next().await else { panic!("no fold") };
    assert_eq!(fold.folded.as_ref().map(|folded| folded.count), Some(2));
    let found = steps(&cluster, 2, &port.to_string());
    let group = (cluster.host(0).to_owned(), "folded".to_owned(), fold.id.to_string());
    assert!(found.contains(&group), "{found:#?}");
}

/// A reader that is stopped: its agent sheds for it what its own log has dropped.
#[tokio::test]
async fn the_path_shows_for_whom_an_event_was_shed() {
    let limits = "[limits]\nring_bytes = 262144\nlag_bytes = 131072\n";
    let mut cluster = Plan::new(3, 2).extra(limits).start().await.unwrap();
    cluster.wait_wanted().await.unwrap();
    cluster.wait_safe().await.unwrap();
    let mut tail = ftbctl(&cluster, 2);
    let mut tail = tail.args(["tail", "event_space=ftb.x"]).stdout(Stdio::piped()).spawn().unwrap();
    let client = Client::builder("flood").agent(cluster.socket(1)).build().unwrap();
    let publish = async |payload: usize| {
        let error = event("ftb.x", "BROKEN").unwrap().severity(Severity::Error);
        let error = error.payload("x".repeat(payload));
        client.publish_wait(error).await.unwrap().confirmed().await.unwrap()
    };
    let is_subscribed = async || {
        let steps = hosts_with(&cluster, publish(1).await, "delivered");
        Ok((!steps.is_empty()).then_some(()))
    };
    wait_for("the subscription", is_subscribed).await.unwrap();
    let reader = Pid::from_raw(tail.id().try_into().unwrap());
    kill(reader, Signal::SIGSTOP).unwrap();
    let mut ids = Vec::new();
    for _ in 0..200 {
        ids.push(publish(32 * 1024).await);
    }
    // The socket takes the first of them; the last are still in the log.
    let shed = hosts_with(&cluster, ids[100], "shed");
    let (_, text) = trace(&cluster, 0, &ids[100].to_string());
    kill(reader, Signal::SIGKILL).unwrap();
    tail.wait().unwrap();
    assert_eq!(shed, [cluster.host(2)], "{text}");
    assert!(text.contains("shed for ftbctl, which is too slow"), "{text}");
}
