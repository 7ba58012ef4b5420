//! Real Prometheus and Alertmanager with the files of the deployment: a Prometheus in agent mode on
//! each node, a central one with the rules. Metrics, rules and dashboard are right; an alert fires
//! when a host dies, and is resolved when it is back.
#![allow(clippy::unwrap_used)]

use anyhow::{Context as _, Result, ensure};
use ftb_tests::cluster::{Cluster, Plan, wait_for};
use ftb_tests::http;
use ftb_tests::skip::skip;
use serde_json::Value;
use std::collections::BTreeSet;
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

/// The option for agent mode, as the head of node.yml has it.
fn agent_mode() -> String {
    let output = Command::new("prometheus").arg("--version").output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let is_2 = text.contains("version 2.");
    let option = if is_2 { "--enable-feature=agent,expand-external-labels" } else { "--agent" };
    let head = std::fs::read_to_string(deployed("node.yml")).unwrap();
    assert!(head.contains(&format!("{option} ")) || head.contains(&format!("`{option}`")));
    option.to_owned()
}

/// A server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(command: &mut Command, log: &Path) -> Server {
    let log = std::fs::File::create(log).unwrap();
    Server(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap())
}

fn promtool(arguments: &[&str]) {
    let output = Command::new("promtool").args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "promtool {arguments:?}: {text}");
}

/// A file of the deployment with other places in it, each of which it must have.
fn replaced(name: &str, places: &[(&str, &str)]) -> String {
    let mut text = std::fs::read_to_string(deployed(name)).unwrap();
    for (old, new) in places {
        assert!(text.contains(old), "{name}: no {old}");
        text = text.replace(old, new);
    }
    text
}

#[test]
fn promtool_takes_the_rules_and_the_configurations() {
    if !can_run() {
        return;
    }
    let rules = deployed("alerts.yml").display().to_string();
    promtool(&["check", "rules", &rules]);
    promtool(&["check", "config", "--agent", deployed("node.yml").to_str().unwrap()]);
    let dir = tempfile::tempdir().unwrap();
    let central = dir.path().join("prometheus.yml");
    let text = replaced("prometheus.yml", &[("/usr/share/ftb/monitoring/alerts.yml", &rules)]);
    std::fs::write(&central, text).unwrap();
    promtool(&["check", "config", central.to_str().unwrap()]);
}

/// Histories of a cluster, a sample each 15 s, and the alerts that fire at some times.
const HISTORIES: &str = r#"
evaluation_interval: 15s
tests:
  # The host of the acting root dies at 5:00, and sends nothing more; another agent takes over.
  - interval: 15s
    input_series:
      - {series: 'up{job="ftb", instance="n1"}', values: '1x20 _x60'}
      - {series: 'ftb_role{job="ftb", instance="n1", role="root"}', values: '1x20 _x60'}
      - {series: 'ftb_members{job="ftb", instance="n1", state="dead"}', values: '0x20 _x60'}
      - {series: 'up{job="ftb", instance="n2"}', values: '1x80'}
      - {series: 'ftb_role{job="ftb", instance="n2", role="root"}', values: '0x20 1x60'}
      - {series: 'ftb_members{job="ftb", instance="n2", state="dead"}', values: '_x24 1x60'}
    promql_expr_test:
      - {eval_time: 5m, expr: FIRING, exp_samples: []}
      - {eval_time: 6m, expr: FIRING, exp_samples: []}
      - eval_time: 7m
        expr: FIRING
        exp_samples: &down [{labels: '{alertname="FtbAgentDown"}', value: 1}]
      - {eval_time: 8m, expr: FIRING, exp_samples: *down}
      - {eval_time: 9m, expr: FIRING, exp_samples: *down}
  # Nothing comes from any host.
  - interval: 15s
    input_series:
      - {series: 'ftb_role{job="ftb", instance="n1", role="root"}', values: '1x20 _x60'}
    promql_expr_test:
      - {eval_time: 5m, expr: FIRING, exp_samples: []}
      - eval_time: 8m
        expr: FIRING
        exp_samples: [{labels: '{alertname="FtbNoSamples"}', value: 1}]
  # Agents search for each other.
  - interval: 15s
    input_series:
      - {series: 'ftb_role{job="ftb", instance="n1", role="root"}', values: '1x20 0x60'}
      - {series: 'ftb_role{job="ftb", instance="n1", role="searching"}', values: '0x20 0x60'}
    promql_expr_test:
      - {eval_time: 8m, expr: FIRING, exp_samples: [{labels: '{alertname="FtbNoRoot"}', value: 1}]}
  # Two parts, of which each has a root; the agent of a third host was stopped.
  - interval: 15s
    input_series:
      - {series: 'ftb_role{job="ftb", instance="n1", role="root"}', values: '1x80'}
      - {series: 'ftb_role{job="ftb", instance="n2", role="root"}', values: '0x20 1x60'}
      - {series: 'up{job="ftb", instance="n3"}', values: '1x20 0x60'}
    promql_expr_test:
      - {eval_time: 5m, expr: FIRING, exp_samples: []}
      - eval_time: 12m
        expr: FIRING
        exp_samples:
          - {labels: '{alertname="FtbAgentSilent"}', value: 1}
          - {labels: '{alertname="FtbSeveralRoots"}', value: 1}
  # Of two clusters, one has no root, and an agent that does not answer.
  - interval: 15s
    input_series:
      - {series: 'ftb_role{job="ftb", instance="n1", role="root"}', values: '1x80'}
      - {series: 'ftb_role{job="ftb-blue", instance="b1", role="root"}', values: '1x20 0x60'}
      - {series: 'up{job="ftb-blue", instance="b2"}', values: '1x20 0x60'}
    promql_expr_test:
      - {eval_time: 5m, expr: FIRING, exp_samples: []}
      - eval_time: 12m
        expr: FIRING
        exp_samples:
          - {labels: '{alertname="FtbAgentSilent"}', value: 1}
          - {labels: '{alertname="FtbNoRoot"}', value: 1}
  # A fault that waits for its repair hides no other one. Silenced ones do not count, except those
  # of an agent of a release that does not say which they are.
  - interval: 15s
    input_series:
      - {series: 'ftb_role{job="ftb", instance="n1", role="root"}', values: '1x200'}
      - series: 'ftb_conditions{job="ftb", instance="n1", severity="error"}'
        values: '0x20 1x60 2x120'
      - series: 'ftb_conditions_silenced{job="ftb", instance="n1", severity="error"}'
        values: '0x100 1x20 2x80'
      - {series: 'ftb_role{job="ftb-blue", instance="b1", role="root"}', values: '1x200'}
      - series: 'ftb_conditions{job="ftb-blue", instance="b1", severity="fatal"}'
        values: '0x160 1x40'
    promql_expr_test:
      - {eval_time: 5m, expr: FIRING, exp_samples: []}
      - eval_time: 6m
        expr: FIRING
        exp_samples: &holds [{labels: '{alertname="FtbConditionHolds"}', value: 1}]
      - {eval_time: 12m, expr: FIRING, exp_samples: *holds}
      - eval_time: 22m
        expr: FIRING
        exp_samples:
          - {labels: '{alertname="FtbConditionHolds"}', value: 1}
          - {labels: '{alertname="FtbConditionNew"}', value: 1}
      - {eval_time: 28m, expr: FIRING, exp_samples: *holds}
      - {eval_time: 35m, expr: FIRING, exp_samples: []}
      - {eval_time: 42m, expr: FIRING, exp_samples: *holds}
  # A second one within the first minutes is reported when these are over, not lost.
  - interval: 15s
    input_series:
      - {series: 'ftb_role{job="ftb", instance="n1", role="root"}', values: '1x80'}
      - series: 'ftb_conditions{job="ftb", instance="n1", severity="error"}'
        values: '0x20 1x8 2x52'
    promql_expr_test:
      - {eval_time: 8m, expr: FIRING, exp_samples: *holds}
      - eval_time: 11m
        expr: FIRING
        exp_samples:
          - {labels: '{alertname="FtbConditionHolds"}', value: 1}
          - {labels: '{alertname="FtbConditionNew"}', value: 1}
      - {eval_time: 15m, expr: FIRING, exp_samples: *holds}
  # Another one 45 s after the end of the last: for Alertmanager FtbConditionHolds never ended.
  - interval: 15s
    input_series:
      - {series: 'ftb_role{job="ftb", instance="n1", role="root"}', values: '1x160'}
      - series: 'ftb_conditions{job="ftb", instance="n1", severity="error"}'
        values: '0x20 1x60 0x2 1x80'
    promql_expr_test:
      - {eval_time: 6m, expr: FIRING, exp_samples: *holds}
      - {eval_time: 20m, expr: FIRING, exp_samples: *holds}
      - eval_time: 22m
        expr: FIRING
        exp_samples:
          - {labels: '{alertname="FtbConditionHolds"}', value: 1}
          - {labels: '{alertname="FtbConditionNew"}', value: 1}
      - {eval_time: 27m, expr: FIRING, exp_samples: *holds}
  # Certificates of one agent end in 14 days and 2 minutes, of another one much later; those of the
  # second cluster in 3 days and 2 minutes. Time begins at 0.
  - interval: 15s
    input_series:
      - {series: 'ftb_role{job="ftb", instance="n1", role="root"}', values: '1x40'}
      - series: 'ftb_certificate_end_timestamp_seconds{job="ftb", instance="n1"}'
        values: '1209720x40'
      - series: 'ftb_certificate_end_timestamp_seconds{job="ftb", instance="n2"}'
        values: '8640000x40'
    promql_expr_test:
      - {eval_time: 1m, expr: FIRING, exp_samples: []}
      - eval_time: 4m
        expr: FIRING
        exp_samples: &ends [{labels: '{alertname="FtbCertificateEnds"}', value: 1}]
  - interval: 15s
    input_series:
      - {series: 'ftb_role{job="ftb", instance="n1", role="root"}', values: '1x40'}
      - series: 'ftb_certificate_end_timestamp_seconds{job="ftb", instance="n1"}'
        values: '259320x40'
    promql_expr_test:
      - {eval_time: 1m, expr: FIRING, exp_samples: *ends}
      - eval_time: 4m
        expr: FIRING
        exp_samples:
          - {labels: '{alertname="FtbCertificateEnds"}', value: 1}
          - {labels: '{alertname="FtbCertificateEndsSoon"}', value: 1}
  # Services of ftb do not act.
  - interval: 15s
    input_series:
      - {series: 'ftb_role{job="ftb", instance="n1", role="root"}', values: '1x80'}
      - {series: 'ftb_service_faults{job="ftb", service="ftb-act"}', values: '0x20 1x60'}
      - {series: 'ftb_service_faults{job="ftb", service="ftb-slurm"}', values: '0x40 2x40'}
      - {series: 'ftb_service_faults{job="ftb", service="ftb-bridge"}', values: '0x40 1x40'}
      - {series: 'ftb_service_faults{job="ftb", service="ftb-act-watch"}', values: '0x40 1x40'}
      - {series: 'ftb_service_faults{job="ftb", service="ftb-act-page"}', values: '0x40 1x40'}
    promql_expr_test:
      - eval_time: 6m
        expr: FIRING
        exp_samples: [{labels: '{alertname="FtbBreakerOpen"}', value: 1}]
      - eval_time: 12m
        expr: FIRING
        exp_samples:
          - {labels: '{alertname="FtbActDown"}', value: 1}
          - {labels: '{alertname="FtbBreakerOpen"}', value: 1}
          - {labels: '{alertname="FtbBridgeDown"}', value: 1}
          - {labels: '{alertname="FtbPageFailed"}', value: 1}
          - {labels: '{alertname="FtbSlurmBridgeDown"}', value: 1}
"#;

#[test]
fn alerts_fire_for_what_the_other_hosts_see_and_for_no_root_that_has_died() {
    if !can_run() {
        return;
    }
    let firing = "'count by (alertname) (ALERTS{alertstate=\"firing\"})'";
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("histories.yml");
    let rules = format!("rule_files: [{}]\n", deployed("alerts.yml").display());
    std::fs::write(&file, rules + &HISTORIES.replace("FIRING", firing)).unwrap();
    promtool(&["test", "rules", file.to_str().unwrap()]);
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

/// The expressions of the dashboard, for the job of node.yml.
fn expressions() -> Vec<String> {
    let text = std::fs::read_to_string(deployed("dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap().replace("$job", "ftb")).collect()
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

/// A port that is free, of a host whose addresses no other process claims.
fn free_port(host: &str) -> String {
    let listener = TcpListener::bind((host, 0)).unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Prometheus and Alertmanager for the agents of a cluster.
struct Watchers {
    dir: PathBuf,
    prometheus: String,
    received: mpsc::Receiver<(String, String)>,
    /// The Prometheus of each node.
    collectors: Vec<Server>,
    _central: [Server; 2],
}

/// Starts all with the files of the deployment. Only addresses, places and times are others.
fn watch(cluster: &Cluster) -> Watchers {
    let address = cluster.metrics_address(0).unwrap();
    let host = address.rsplit_once(':').unwrap().0.to_owned();
    let (prometheus, alertmanager) = (free_port(&host), free_port(&host));
    let listener = TcpListener::bind((&host[..], 0)).unwrap();
    let webhook = listener.local_addr().unwrap();
    let dir = cluster.dir().join("watchers");
    std::fs::create_dir_all(dir.join("data")).unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(dir.join(name), text).unwrap();
        dir.join(name).display().to_string()
    };
    let rules = replaced("alerts.yml", &[("[45s]", "[5s]")]);
    let is_wait = |line: &&str| line.trim_start().starts_with("for: ");
    let lines: Vec<&str> = rules.lines().filter(|line| !is_wait(line)).collect();
    let rules = write("rules.yml", &lines.join("\n"));
    let central = [
        ("evaluation_interval: 15s", "evaluation_interval: 500ms"),
        ("/usr/share/ftb/monitoring/alerts.yml", &rules),
        ("127.0.0.1:9093", &alertmanager),
    ];
    let config = write("prometheus.yml", &replaced("prometheus.yml", &central));
    let manager = write(
        "alertmanager.yml",
        &format!(
            "route: {{receiver: test, group_by: [alertname], group_wait: 0s, group_interval: 1s}}\n\
             receivers: [{{name: test, webhook_configs: [{{url: \"http://{webhook}/\"}}]}}]\n"
        ),
    );
    let folder = |name: &str| dir.join("data").join(name).display().to_string();
    let managing = start(
        Command::new("prometheus-alertmanager").args([
            format!("--config.file={manager}"),
            format!("--storage.path={}", folder("alertmanager")),
            format!("--web.listen-address={alertmanager}"),
            "--cluster.listen-address=".to_owned(),
        ]),
        &dir.join("alertmanager.log"),
    );
    let watching = start(
        Command::new("prometheus").args([
            format!("--config.file={config}"),
            format!("--storage.tsdb.path={}", folder("prometheus")),
            format!("--web.listen-address={prometheus}"),
            "--web.enable-remote-write-receiver".to_owned(),
        ]),
        &dir.join("prometheus.log"),
    );
    let received = receiver(listener);
    let central = [watching, managing];
    let mut watchers =
        Watchers { dir, prometheus, received, collectors: Vec::new(), _central: central };
    for rank in 0..cluster.len() {
        let collector = watchers.collect(cluster, rank);
        watchers.collectors.push(collector);
    }
    watchers
}

impl Watchers {
    /// The Prometheus of a node.
    fn collect(&self, cluster: &Cluster, rank: usize) -> Server {
        let agent = cluster.metrics_address(rank).unwrap();
        let places = [
            ("scrape_interval: 15s", "scrape_interval: 500ms"),
            ("127.0.0.1:9464", &agent),
            ("monitor.example.org:9090", &self.prometheus),
        ];
        let config = self.dir.join(format!("node-{rank}.yml"));
        std::fs::write(&config, replaced("node.yml", &places)).unwrap();
        let data = self.dir.join(format!("data/node-{rank}"));
        let listen = free_port(agent.rsplit_once(':').unwrap().0);
        let mut command = Command::new("prometheus");
        command.env("HOSTNAME", cluster.host(rank)).args([
            agent_mode(),
            format!("--config.file={}", config.display()),
            format!("--storage.agent.path={}", data.display()),
            format!("--web.listen-address={listen}"),
        ]);
        start(&mut command, &self.dir.join(format!("node-{rank}.log")))
    }

    /// Whether this alert fires.
    fn is_firing(&self, alert: &str) -> Result<bool> {
        let expression = format!("ALERTS{{alertname=\"{alert}\", alertstate=\"firing\"}}");
        Ok(!query(&self.prometheus, &expression)?.is_empty())
    }

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
async fn a_host_that_dies_fires_alerts_that_are_resolved_when_it_is_back() {
    if !can_run() {
        return;
    }
    let mut cluster = Plan::new(3, 2).monitored().start().await.unwrap();
    let mut watchers = watch(&cluster);
    let hosts: BTreeSet<String> = (0..3).map(|rank| cluster.host(rank).to_owned()).collect();
    let scraped = wait_for("all agents to be scraped, each under its host", async || {
        let up = query(&watchers.prometheus, "up{job=\"ftb\"} == 1 and on(instance) ftb_role");
        let name = |one: &Value| Some(one["metric"]["instance"].as_str()?.to_owned());
        let names: BTreeSet<String> = up.unwrap_or_default().iter().filter_map(name).collect();
        Ok((names == hosts).then_some(()))
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

    // With its host, its collector dies: nothing says up == 0.
    drop(watchers.collectors.pop());
    cluster.crash(2).unwrap();
    let fired = watchers.notified("firing", "FtbAgentDown").await;
    cluster.must(fired).await;
    cluster.run(2).unwrap();
    cluster.wait_whole().await.unwrap();
    let collector = watchers.collect(&cluster, 2);
    watchers.collectors.push(collector);
    let resolved = watchers.notified("resolved", "FtbAgentDown").await;
    cluster.must(resolved).await;

    for alert in ["FtbNoRoot", "FtbNoSamples"] {
        let quiet = wait_for(alert, async || Ok((!watchers.is_firing(alert)?).then_some(())));
        cluster.must(quiet.await).await;
    }
    watchers.collectors.clear();
    let alarm =
        wait_for("FtbNoSamples", async || Ok(watchers.is_firing("FtbNoSamples")?.then_some(())));
    cluster.must(alarm.await).await;
}
