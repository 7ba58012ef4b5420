//! What an agent serves for monitoring systems, over a real socket.
#![allow(clippy::unwrap_used)]

use ftb_tests::cluster::{Cluster, Plan, binary, wait_for};
use ftb_tests::http::{self, Lines};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Only root reads site.closed.
const CLOSED: &str = "[detection]\nsearch = \"300ms\"\nprobe = \"200ms\"\n[[access]]\n\
                      space = \"site.closed\"\npublish = [\"user:root\"]\n\
                      subscribe = [\"user:root\"]\n";

fn ftbctl(socket: &Path, words: &[&str]) -> String {
    let mut command = Command::new(binary("ftbctl", "ftbctl").unwrap());
    let output = command.args(words).arg("--agent").arg(socket).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ftbctl {words:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The value of a sample.
fn sample(page: &str, name: &str) -> Option<f64> {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.parse().ok()
}

async fn cluster(n: usize) -> Cluster {
    Plan::new(n, 1).extra(CLOSED).monitored().start().await.unwrap()
}

#[tokio::test]
async fn metrics_show_the_counters_of_status_and_the_cluster_at_the_acting_root() {
    let mut cluster = cluster(3).await;
    let (root, leaf) = (cluster.metrics_address(0).unwrap(), cluster.metrics_address(2).unwrap());
    ftbctl(cluster.socket(2), &["publish", "ftb.test", "X"]);
    let published = wait_for("the event to be counted", async || {
        let page = http::get(&leaf, "/metrics")?;
        assert_eq!(page.status, 200);
        let content_type = page.header("content-type").unwrap();
        assert!(content_type.starts_with("application/openmetrics-text"), "{content_type}");
        let status = cluster.status(2).await?;
        let counted = status.counters["published"] as f64;
        let is_shown = sample(&page.body, "ftb_published_total") == Some(counted) && counted >= 1.0;
        Ok(is_shown.then_some(page.body))
    });
    let page = cluster.must(published.await).await;
    assert!(page.ends_with("# EOF\n"));
    assert_eq!(sample(&page, "ftb_role{role=\"member\"}"), Some(1.0));
    assert_eq!(sample(&page, "ftb_role{role=\"root\"}"), Some(0.0));
    assert_eq!(sample(&page, "ftb_members{state=\"up\"}"), None, "only the root has it");
    assert!(sample(&page, "ftb_process_resident_memory_bytes").unwrap() > 1e6);
    assert!(page.contains("ftb_agent_info{cluster=\"test\",host=\"node03\",version="), "{page}");

    cluster.crash(2).unwrap();
    let lost = wait_for("the root to miss one", async || {
        let page = http::get(&root, "/metrics")?.body;
        let members = |state| sample(&page, &format!("ftb_members{{state=\"{state}\"}}"));
        let missing: f64 = ["lost", "dead", "suspect"].into_iter().filter_map(members).sum();
        Ok((members("up") == Some(2.0) && missing == 1.0).then_some(()))
    });
    cluster.must(lost.await).await;
}

#[tokio::test]
async fn health_readiness_and_tree_are_served_until_the_agent_finds_no_parent() {
    let mut cluster = cluster(2).await;
    let (root, leaf) = (cluster.metrics_address(0).unwrap(), cluster.metrics_address(1).unwrap());
    for path in ["/healthz", "/readyz"] {
        let answer = http::get(&leaf, path).unwrap();
        assert_eq!((answer.status, &answer.body[..]), (200, "ok\n"), "{path}");
    }
    let tree = json(&http::get(&leaf, "/tree.json").unwrap().body);
    assert_eq!(tree["complete"], true);
    let hosts: Vec<_> = tree["nodes"].as_array().unwrap().iter().map(|n| &n["host"]).collect();
    assert_eq!(hosts, ["node01", "node02"]);
    assert_eq!(tree["nodes"][0]["role"], "root");
    assert!(http::get(&root, "/").unwrap().body.contains("/conditions.json"));
    assert_eq!(http::get(&root, "/secret").unwrap().status, 404);

    // An agent that is stopped does not answer; one whose parent is gone is acting root.
    cluster.crash(0).unwrap();
    let alone = wait_for("the other agent to be ready alone", async || {
        let is_root = cluster.status(1).await?.parent.is_none();
        Ok((is_root && http::get(&leaf, "/readyz")?.status == 200).then_some(()))
    });
    cluster.must(alone.await).await;
    assert!(http::get(&root, "/healthz").is_err());
}

#[tokio::test]
async fn conditions_show_what_all_users_may_read_and_count_the_others() {
    let cluster = cluster(2).await;
    let socket = cluster.socket(0);
    let state = |space: &str, key: &str| {
        ftbctl(socket, &["publish", space, "BAD", "broken", "-s", "error", "--condition", key]);
    };
    state("ftb.ipmi", "FANFAIL");
    state("site.closed", "SECRET");
    let address = cluster.metrics_address(1).unwrap();
    let shown = wait_for("both to be in the table", async || {
        let answer = http::get(&address, "/conditions.json")?;
        let table = json(&answer.body);
        let has_both = table["hidden"] == 1 && !table["conditions"].as_array().unwrap().is_empty();
        Ok((answer.status == 200 && has_both).then_some(table))
    });
    let table = cluster.must(shown.await).await;
    assert_eq!(table["complete"], true);
    let rows = table["conditions"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!((&rows[0]["key"], &rows[0]["state"]), (&"FANFAIL".into(), &"true".into()));
    let counted = wait_for("the root to count both", async || {
        let page = http::get(&cluster.metrics_address(0)?, "/metrics")?.body;
        Ok((sample(&page, "ftb_conditions{severity=\"error\"}") == Some(2.0)).then_some(()))
    });
    cluster.must(counted.await).await;
    let silenced = async |count: f64| {
        let shown = wait_for("the number of silenced ones", async || {
            let page = http::get(&cluster.metrics_address(0)?, "/metrics")?.body;
            let found = sample(&page, "ftb_conditions_silenced{severity=\"error\"}");
            Ok((found == Some(count)).then_some(()))
        });
        cluster.must(shown.await).await;
    };
    // All users may read that of FANFAIL alone; a silence that begins later does not count.
    let add = |more: &[&str]| {
        let words = ["silence", "add", "node[01-02]", "--for", "1h", "--reason", "new: fans"];
        ftbctl(socket, &[&words, more].concat()).trim().to_owned()
    };
    add(&["--from", "2h"]);
    add(&["--key", "OVERTEMP"]);
    silenced(0.0).await;
    let id = add(&["--key", "fanfail"]);
    silenced(1.0).await;
    ftbctl(socket, &["silence", "remove", &id]);
    silenced(0.0).await;
    add(&[]);
    silenced(1.0).await;
}

/// The next event or gap of a stream: kind, id, data.
fn next_event(lines: &mut Lines) -> (String, String, Value) {
    let (mut kind, mut id) = (String::new(), String::new());
    loop {
        let line = lines.next_line().unwrap();
        match line.split_once(": ") {
            Some(("event", text)) => text.clone_into(&mut kind),
            Some(("id", text)) => text.clone_into(&mut id),
            Some(("data", text)) => return (kind, id, json(text)),
            _ => {}
        }
    }
}

#[tokio::test]
async fn events_stream_by_filter_without_private_ones_and_resume_behind_an_id() {
    let cluster = cluster(2).await;
    let (near, far) = (cluster.socket(0), cluster.metrics_address(1).unwrap());
    let path = "/events?filter=severity%3E%3Dwarning";
    let mut live = Lines::open(&far, path, "").unwrap();
    let say = |space: &str, name: &str, severity: &str| {
        ftbctl(near, &["publish", space, name, "-s", severity]);
    };
    // The subscription may not be active in the whole tree yet.
    let first = std::thread::spawn(move || (next_event(&mut live), live));
    let seen = wait_for("a first event", async || {
        say("ftb.test", "FIRST", "warning");
        Ok(first.is_finished().then_some(()))
    });
    cluster.must(seen.await).await;
    let ((kind, id, event), mut live) = first.join().unwrap();
    assert_eq!((&kind[..], &event["name"]), ("event", &"FIRST".into()));
    assert_eq!(event["position"], id);
    say("ftb.job", "PRIVATE", "error");
    say("site.closed", "CLOSED", "error");
    say("ftb.test", "MILD", "info");
    say("ftb.test", "LAST", "error");
    let names = |lines: &mut Lines| {
        let mut names = Vec::new();
        loop {
            let (kind, _, event) = next_event(lines);
            assert_eq!(kind, "event", "{event}");
            let name = event["name"].as_str().unwrap().to_owned();
            let is_last = name == "LAST";
            if name != "FIRST" && event["space"] != "ftb.agent" {
                names.push(name);
            }
            if is_last {
                return names;
            }
        }
    };
    assert_eq!(names(&mut live), ["LAST"]);
    let mut again = Lines::open(&far, path, &format!("Last-Event-ID: {id}\r\n")).unwrap();
    assert_eq!(names(&mut again), ["LAST"]);
    // An own subscription to private events gives none of them, and says so where it can.
    assert_eq!(http::get(&far, "/events?filter=event_space%3Dsite.closed").unwrap().status, 403);
    let wrong = http::get(&far, "/events?filter=severity%3E%3Dloud").unwrap();
    assert_eq!(wrong.status, 400);
    assert!(wrong.body.contains("column"), "{}", wrong.body);
}

#[tokio::test]
async fn requests_are_limited_in_number_size_and_time_and_come_from_this_host() {
    let extra = format!("{CLOSED}[limits]\nhello = \"1s\"\n");
    let cluster = Plan::new(1, 1).extra(&extra).monitored().start().await.unwrap();
    let address = cluster.metrics_address(0).unwrap();
    let ask = |head: &str| http::ask(&address, head).unwrap().status;
    assert_eq!(ask("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"), 405);
    assert_eq!(ask("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n"), 421);
    let long = "x".repeat(20_000);
    assert_eq!(ask(&format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n")), 431);
    let many: String = (0..100).map(|n| format!("X{n}: y\r\n")).collect();
    assert_eq!(ask(&format!("GET / HTTP/1.1\r\nHost: localhost\r\n{many}\r\n")), 431);

    let streams: Vec<Lines> = (0..ftb_agent::monitor::STREAMS_MAX)
        .map(|_| Lines::open(&address, "/events", "").unwrap())
        .collect();
    assert_eq!(http::get(&address, "/events").unwrap().status, 503);
    assert_eq!(http::get(&address, "/metrics").unwrap().status, 200, "others are served");
    drop(streams);
    let free = wait_for("a stream to be free again", async || {
        Ok(Lines::open(&address, "/events", "").is_ok().then_some(()))
    });
    cluster.must(free.await).await;

    // Connections without a request are closed, the oldest first when there are too many.
    let mut silent: Vec<TcpStream> = (0..ftb_agent::monitor::CONNECTIONS_MAX + 8)
        .map(|_| TcpStream::connect(&address).unwrap())
        .collect();
    assert_eq!(http::get(&address, "/healthz").unwrap().status, 200);
    for stream in &mut silent {
        let _ = stream.write_all(b"GET /");
        stream.set_read_timeout(Some(ftb_tests::cluster::PATIENCE)).unwrap();
        let mut rest = Vec::new();
        // It ends, in order or not.
        let ended = stream.read_to_end(&mut rest);
        assert!(!matches!(&ended, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock));
    }
}

/// Prints how long a scrape takes; the goal of the design is 5 ms.
#[tokio::test]
async fn a_scrape_is_made_once_a_second_however_many_ask() {
    let cluster = cluster(1).await;
    let address = cluster.metrics_address(0).unwrap();
    let mut times = Vec::new();
    let mut pages = Vec::new();
    for _ in 0..50 {
        let begun = Instant::now();
        pages.push(http::get(&address, "/metrics").unwrap().body);
        times.push(begun.elapsed());
    }
    pages.dedup();
    times.sort();
    eprintln!("a scrape: median {:?}, slowest {:?}", times[25], times[49]);
    assert!(pages.len() < 50, "the kept answer is given again");
}
