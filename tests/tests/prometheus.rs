//! Real Prometheus and Alertmanager: metrics, rules and dashboard are right, and an alert fires
//! when an agent is killed and is resolved when it is back.
#![allow(clippy::unwrap_used)]

use anyhow::{Context as _, Result, ensure};
use ftb_tests::cluster::{Cluster, Plan, wait_for};
use ftb_tests::http;
use ftb_tests::skip::skip;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

const PROGRAMS: [&str; 3] = ["prometheus", "promtool", "prometheus-alertmanager"];

fn deployed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/monitoring").join(name)
}

/// Whether the programs are here.
fn can_run() -> bool {
    let works = |program: &str| {
        let asked = Command::new(program).arg("--version").output();
        asked.is_ok_and(|output| output.status.success())
    };
    match PROGRAMS.iter().find(|program| !works(program)) {
        None => true,
        Some(program) => {
            skip(&format!("no {program} (Debian: prometheus, prometheus-alertmanager)"));
            false
        }
    }
}

/// A server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(program: &str, arguments: &[String], log: &Path) -> Server {
    let log = std::fs::File::create(log).unwrap();
    let mut command = Command::new(program);
    let child = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    Server(child.spawn().unwrap())
}

fn promtool(arguments: &[&str]) {
    let output = Command::new("promtool").args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "promtool {arguments:?}: {text}");
}

#[test]
fn promtool_takes_the_rules_and_the_sample_configuration() {
    if !can_run() {
        return;
    }
    promtool(&["check", "rules", deployed("alerts.yml").to_str().unwrap()]);
    promtool(&["check", "config", deployed("prometheus.yml").to_str().unwrap()]);
}

fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// Asks Prometheus; gives the results.
fn query(prometheus: &str, expression: &str) -> Result<Vec<Value>> {
    let answer = http::ask(
        prometheus,
        &format!(
            "GET /api/v1/query?query={} HTTP/1.0\r\nHost: {prometheus}\r\n\r\n",
            percent(expression)
        ),
    )?;
    ensure!(answer.status == 200, "{expression}: {}", answer.body);
    let answer: Value = serde_json::from_str(&answer.body)?;
    Ok(answer["data"]["result"].as_array().context("no result")?.clone())
}

/// The expressions of the dashboard.
fn expressions() -> Vec<String> {
    let text = std::fs::read_to_string(deployed("dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

/// Receives what Alertmanager sends: `firing` or `resolved`, and the name of the alert.
fn receiver(listener: TcpListener) -> mpsc::Receiver<(String, String)> {
    let (sender, received) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                let header = line.to_lowercase();
                if let Some(value) = header.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            reader.into_inner().write_all(answer).unwrap();
            let message: Value = serde_json::from_slice(&body).unwrap();
            for alert in message["alerts"].as_array().unwrap() {
                let word = |value: &Value| value.as_str().unwrap().to_owned();
                let pair = (word(&alert["status"]), word(&alert["labels"]["alertname"]));
                if sender.send(pair).is_err() {
                    return;
                }
            }
        }
    });
    received
}

/// Prometheus and Alertmanager for the agents of a cluster.
struct Watchers {
    prometheus: String,
    received: mpsc::Receiver<(String, String)>,
    _servers: [Server; 2],
}

/// Starts both. The rules are those of the deployment, without their waiting times.
fn watch(cluster: &Cluster) -> Watchers {
    let address = cluster.metrics_address(0).unwrap();
    let host = address.rsplit_once(':').unwrap().0.to_owned();
    let (prometheus, alertmanager) = (format!("{host}:9090"), format!("{host}:9093"));
    let listener = TcpListener::bind((&host[..], 0)).unwrap();
    let webhook = listener.local_addr().unwrap();
    let dir = cluster.dir().join("watchers");
    std::fs::create_dir_all(dir.join("data")).unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(dir.join(name), text).unwrap();
        dir.join(name).display().to_string()
    };
    let rules = std::fs::read_to_string(deployed("alerts.yml")).unwrap();
    let is_wait = |line: &&str| line.trim_start().starts_with("for: ");
    let lines: Vec<&str> = rules.lines().filter(|line| !is_wait(line)).collect();
    let rules = write("rules.yml", &lines.join("\n"));
    let targets: Vec<String> = (0..cluster.len())
        .map(|rank| format!("\"{}\"", cluster.metrics_address(rank).unwrap()))
        .collect();
    let config = write(
        "prometheus.yml",
        &format!(
            "global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}\nscrape_configs: \
             [{{job_name: ftb, static_configs: [{{targets: [{}]}}]}}]\nrule_files: [{rules}]\n\
             alerting: {{alertmanagers: [{{static_configs: \
             [{{targets: [\"{alertmanager}\"]}}]}}]}}\n",
            targets.join(", ")
        ),
    );
    let manager = write(
        "alertmanager.yml",
        &format!(
            "route: {{receiver: test, group_by: [alertname], group_wait: 0s, group_interval: 1s}}\n\
             receivers: [{{name: test, webhook_configs: [{{url: \"http://{webhook}/\"}}]}}]\n"
        ),
    );
    let folder = |name: &str| dir.join("data").join(name).display().to_string();
    let managing = start(
        "prometheus-alertmanager",
        &[
            format!("--config.file={manager}"),
            format!("--storage.path={}", folder("alertmanager")),
            format!("--web.listen-address={alertmanager}"),
            "--cluster.listen-address=".to_owned(),
        ],
        &dir.join("alertmanager.log"),
    );
    let watching = start(
        "prometheus",
        &[
            format!("--config.file={config}"),
            format!("--storage.tsdb.path={}", folder("prometheus")),
            format!("--web.listen-address={prometheus}"),
        ],
        &dir.join("prometheus.log"),
    );
    Watchers { prometheus, received: receiver(listener), _servers: [watching, managing] }
}

impl Watchers {
    /// Waits for a notification.
    async fn notified(&self, status: &str, alert: &str) -> Result<()> {
        wait_for(&format!("{alert} to be {status}"), async || {
            let mut pairs = self.received.try_iter();
            Ok(pairs.any(|(is, name)| is == status && name == alert).then_some(()))
        })
        .await
    }
}

#[tokio::test]
async fn an_agent_that_is_killed_fires_alerts_that_are_resolved_when_it_is_back() {
    if !can_run() {
        return;
    }
    let mut cluster = Plan::new(3, 2).monitored().start().await.unwrap();
    let watchers = watch(&cluster);
    let scraped = wait_for("all agents to be scraped", async || {
        let up = query(&watchers.prometheus, "sum(up{job=\"ftb\"} and on(instance) ftb_role)");
        let up = up.ok().and_then(|found| found.first().map(|one| one["value"][1].clone()));
        Ok((up == Some("3".into())).then_some(()))
    });
    cluster.must(scraped.await).await;
    for expression in expressions() {
        let found = wait_for(&expression, async || {
            let found = query(&watchers.prometheus, &expression)?;
            // There is no journal here, and nothing was rejected.
            let may_be_empty = ["journal", "peer_errors"].iter().any(|w| expression.contains(w));
            Ok((may_be_empty || !found.is_empty()).then_some(()))
        });
        cluster.must(found.await).await;
    }

    cluster.crash(2).unwrap();
    let fired = watchers.notified("firing", "FtbAgentDown").await;
    cluster.must(fired).await;
    let fired = watchers.notified("firing", "FtbMembersMissing").await;
    cluster.must(fired).await;
    cluster.run(2).unwrap();
    cluster.wait_whole().await.unwrap();
    let resolved = watchers.notified("resolved", "FtbAgentDown").await;
    cluster.must(resolved).await;
}
