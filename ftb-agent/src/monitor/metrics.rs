//! The metrics of an agent: names, types, labels, meaning, and their samples.
//!
//! Names begin with `ftb_` and end with a base unit. Labels have few values: no host, client, job
//! or event space is one. Responsible for: the list, of which `deploy/monitoring/metrics.md` is a
//! rendering, and OpenMetrics text. Not responsible for: counting.

use super::usage::Usage;
use ftb_core::Severity;
use ftb_core::node::api::MemberState;
use ftb_core::node::{Census, JournalState, NodeStatus, SERVICES, TreeRole, counter_meanings};
use ftb_core::protocol::PROTOCOL;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The type of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A number for each severity, INFO first.
pub type BySeverity = [u64; Severity::ALL.len()];

/// What the samples are taken from.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// This host.
    pub host: String,
    /// The cluster.
    pub cluster: String,
    /// Time since the start.
    pub uptime: Duration,
    /// Status of the core.
    pub node: Option<NodeStatus>,
    /// When the first certificate or revocation list ends, in Unix nanoseconds.
    pub certificate_end_ns: Option<u64>,
    /// Numbers of the cluster; on the acting root only.
    pub census: Option<Census>,
    /// How many of its conditions that hold are silenced, by severity, INFO first.
    pub silenced: Option<BySeverity>,
    /// Bytes of the journal, and the time of its oldest entry; `None` without one.
    pub journal: Option<(u64, Option<u64>)>,
    /// Connections of other agents, and of clients.
    pub connections: [usize; 2],
    /// Rejected and dropped input, by counter.
    pub peer_errors: Vec<(&'static str, u64)>,
    /// What the process uses.
    pub usage: Usage,
}

/// The labels of one sample, and its value.
type Sample = (Vec<(&'static str, String)>, f64);

/// One metric.
#[derive(Clone, Debug)]
pub struct Metric {
    kind: MetricType,
    /// Without the ending that its type adds.
    name: String,
    meaning: String,
    labels: &'static [&'static str],
    samples: Vec<Sample>,
}

impl Metric {
    fn new(kind: MetricType, name: &str, meaning: &str) -> Self {
        let (name, meaning) = (format!("ftb_{name}"), meaning.to_owned());
        Self { kind, name, meaning, labels: &[], samples: Vec::new() }
    }

    fn gauge(name: &str, meaning: &str, value: impl Into<Option<f64>>) -> Self {
        Self::new(MetricType::Gauge, name, meaning).with(value.into())
    }

    fn counter(name: &str, meaning: &str, value: impl Into<Option<f64>>) -> Self {
        Self::new(MetricType::Counter, name, meaning).with(value.into())
    }

    fn with(mut self, value: Option<f64>) -> Self {
        self.samples.extend(value.map(|value| (Vec::new(), value)));
        self
    }

    /// With one sample for each value of one label.
    fn by<T: Into<String>>(
        mut self,
        label: &'static [&'static str; 1],
        samples: impl IntoIterator<Item = (T, f64)>,
    ) -> Self {
        self.labels = label;
        let sample = |(value, number): (T, f64)| (vec![(label[0], value.into())], number);
        self.samples.extend(samples.into_iter().map(sample));
        self
    }

    /// What it is, for people.
    pub fn meaning(&self) -> &str {
        &self.meaning
    }

    /// The name of its samples.
    pub fn sample_name(&self) -> String {
        let ending = match self.kind {
            MetricType::Counter => "_total",
            MetricType::Info => "_info",
            _ => "",
        };
        format!("{}{ending}", self.name)
    }

    fn encode(&self, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        for (labels, value) in &self.samples {
            match self.kind {
                MetricType::Info => encoder.encode_info(labels)?,
                _ if labels.is_empty() => put(encoder, self.kind, *value)?,
                _ => put(&mut encoder.encode_family(labels)?, self.kind, *value)?,
            }
        }
        Ok(())
    }
}

fn put(encoder: &mut MetricEncoder<'_>, kind: MetricType, value: f64) -> fmt::Result {
    match kind {
        MetricType::Counter => encoder.encode_counter::<NoLabelSet, f64, f64>(&value, None),
        _ => encoder.encode_gauge(&value),
    }
}

/// A row for each metric, as `deploy/monitoring/metrics.md` has it.
pub fn table() -> String {
    let mut page = String::from("| metric | type | labels | meaning |\n|---|---|---|---|\n");
    for metric in metrics(&Snapshot::default()) {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind) = (metric.sample_name(), metric.kind.as_str());
        let (labels, meaning) = (labels.join(", "), metric.meaning);
        page.push_str(&format!("| `{name}` | {kind} | {labels} | {meaning} |\n"));
    }
    page
}

/// As OpenMetrics text.
///
/// # Errors
/// None that is known: the text is in memory.
pub fn encode(snapshot: Snapshot) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Collected(snapshot)));
    let mut page = String::new();
    text::encode(&mut page, &registry)?;
    Ok(page)
}

#[derive(Debug)]
struct Collected(Snapshot);

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in metrics(&self.0) {
            if !metric.samples.is_empty() {
                let (name, meaning) = (&metric.name, &metric.meaning);
                let mut encoder = encoder.encode_descriptor(name, meaning, None, metric.kind)?;
                metric.encode(&mut encoder)?;
            }
        }
        Ok(())
    }
}

/// All metrics, also those without a sample.
pub fn metrics(snapshot: &Snapshot) -> Vec<Metric> {
    let mut all = of_the_agent(snapshot);
    all.extend(of_the_log(snapshot));
    all.extend(of_the_cluster(snapshot.census));
    all.push(silenced(snapshot.silenced));
    all.extend(of_the_process(snapshot.usage));
    all.extend(counters(snapshot));
    all
}

fn number(count: usize) -> f64 {
    count as f64
}

fn of_the_agent(snapshot: &Snapshot) -> Vec<Metric> {
    let node = snapshot.node.as_ref();
    let [links, clients] = snapshot.connections.map(number);
    let mut info = Metric::new(MetricType::Info, "agent", "Cluster, host, version, protocol");
    info.labels = &["cluster", "host", "version", "protocol"];
    if node.is_some() {
        let labels = vec![
            ("cluster", snapshot.cluster.clone()),
            ("host", snapshot.host.clone()),
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("protocol", PROTOCOL.max.to_string()),
        ];
        info.samples.push((labels, 1.0));
    }
    let roles = [
        ("root", TreeRole::Root),
        ("standby", TreeRole::Standby),
        ("member", TreeRole::Member),
        ("searching", TreeRole::Searching),
    ];
    let has_role = |(word, role)| node.map(|node| (word, f64::from(node.role == role)));
    let queued = |queues: &dyn Fn(&NodeStatus) -> Option<usize>| {
        node.map(|node| number(queues(node).unwrap_or(0)))
    };
    let of_children = queued(&|node| node.children.iter().map(|child| child.queued_bytes).max());
    let of_clients = queued(&|node| node.clients.iter().map(|client| client.queued_bytes).max());
    let slowest = [("children", of_children), ("clients", of_clients)];
    let slowest = slowest.into_iter().filter_map(|(whose, bytes)| Some((whose, bytes?)));
    vec![
        info,
        Metric::gauge(
            "uptime_seconds",
            "Time since the agent started",
            snapshot.uptime.as_secs_f64(),
        ),
        Metric::new(MetricType::Gauge, "role", "1 for the role of the agent, 0 for the others")
            .by(&["role"], roles.into_iter().filter_map(has_role)),
        Metric::gauge(
            "children",
            "Agents below this one",
            node.map(|node| number(node.children.len())),
        ),
        Metric::gauge(
            "clients",
            "Programs that are attached",
            node.map(|node| number(node.clients.len())),
        ),
        Metric::new(MetricType::Gauge, "connections", "Open connections by socket")
            .by(&["socket"], [("links", links), ("clients", clients)]),
        Metric::new(
            MetricType::Gauge,
            "slowest_queue_bytes",
            "What the slowest child or client has not been sent (up to all of the log)",
        )
        .by(&["reader"], slowest),
        Metric::gauge(
            "certificate_end_timestamp_seconds",
            "Unix time at which the first certificate or revocation list of this agent ends",
            snapshot.certificate_end_ns.map(|ns| ns as f64 / 1e9),
        ),
    ]
}

/// By severity, in words.
fn by_severity(counts: BySeverity) -> impl Iterator<Item = (String, f64)> {
    let words = Severity::ALL.map(|severity| severity.as_str().to_lowercase());
    words.into_iter().zip(counts.map(|count| count as f64))
}

fn silenced(counts: Option<BySeverity>) -> Metric {
    Metric::new(
        MetricType::Gauge,
        "conditions_silenced",
        "Those of ftb_conditions for which a silence holds, as far as all users may read them; \
         only the acting root has it",
    )
    .by(&["severity"], counts.into_iter().flat_map(by_severity))
}

fn of_the_log(snapshot: &Snapshot) -> Vec<Metric> {
    let node = snapshot.node.as_ref();
    let journal = node.and_then(|node| node.journal).zip(snapshot.journal);
    let oldest_ns = journal.and_then(|(_, (_, oldest_ns))| oldest_ns);
    vec![
        Metric::gauge(
            "log_epoch",
            "Number of the epoch of the log",
            node.map(|node| node.position.epoch.number as f64),
        ),
        Metric::gauge(
            "log_index",
            "Index up to which the log is known to be committed",
            node.map(|node| node.position.index.get() as f64),
        ),
        Metric::gauge(
            "log_bytes",
            "Log, or recent events, in memory",
            node.map(|node| number(node.log_bytes)),
        ),
        Metric::gauge(
            "unconfirmed_bytes",
            "Events of clients here that are not confirmed",
            node.map(|node| number(node.outbox_bytes)),
        ),
        Metric::gauge(
            "journal_healthy",
            "1: the journal works; 0: it failed, and the log is in memory only",
            journal.map(|(state, _)| f64::from(state == JournalState::Ok)),
        ),
        Metric::gauge(
            "journal_bytes",
            "Journal on disk",
            journal.map(|(_, (bytes, _))| bytes as f64),
        ),
        Metric::gauge(
            "journal_oldest_timestamp_seconds",
            "Unix time of the oldest entry of the journal",
            oldest_ns.map(|ns| ns as f64 / 1e9),
        ),
    ]
}

fn of_the_cluster(census: Option<Census>) -> Vec<Metric> {
    let members = census.into_iter().flat_map(|census| {
        let words = MemberState::ALL.map(MemberState::as_str);
        words.into_iter().zip(census.members.map(|count| count as f64))
    });
    let conditions = census.into_iter().flat_map(|census| {
        by_severity(census.holding).chain([("unknown".to_owned(), census.unknown as f64)])
    });
    let services = census
        .into_iter()
        .flat_map(|census| SERVICES.into_iter().zip(census.services.map(|count| count as f64)));
    vec![
        Metric::new(
            MetricType::Gauge,
            "members",
            "Members of the cluster by state; only the acting root has it",
        )
        .by(&["state"], members),
        Metric::new(
            MetricType::Gauge,
            "conditions",
            "Conditions that hold, by severity, and unknown ones; only the acting root has it",
        )
        .by(&["severity"], conditions),
        Metric::new(
            MetricType::Gauge,
            "service_faults",
            "Conditions by which a service says that it does not act, and its unknown watches; \
             only the acting root has it",
        )
        .by(&["service"], services),
        Metric::gauge(
            "condition_rows",
            "Rows of the table of conditions; only the acting root has it",
            census.map(|census| census.rows as f64),
        ),
    ]
}

fn of_the_process(usage: Usage) -> Vec<Metric> {
    vec![
        Metric::counter("process_cpu_seconds", "Processor time of the agent", usage.cpu_s),
        Metric::gauge(
            "process_resident_memory_bytes",
            "Resident memory of the agent",
            usage.resident_bytes as f64,
        ),
        Metric::gauge("process_open_fds", "Open descriptors of the agent", usage.open_fds as f64),
    ]
}

/// The counters of `ftbctl status`: those of the core under their names, those of rejected and
/// dropped input as one metric.
fn counters(snapshot: &Snapshot) -> Vec<Metric> {
    let node = snapshot.node.as_ref();
    let counted: BTreeMap<&str, u64> =
        node.into_iter().flat_map(|node| node.counters.iter().copied()).collect();
    let of_core = counter_meanings().into_iter().map(|(name, meaning)| {
        let meaning = meaning.trim_end_matches('.');
        Metric::counter(name, meaning, counted.get(name).map(|count| *count as f64))
    });
    let errors = snapshot.peer_errors.iter().map(|(kind, count)| (*kind, *count as f64));
    let errors = Metric::new(
        MetricType::Counter,
        "peer_errors",
        "Rejected and dropped input of clients and other agents, by counter of ftbctl status",
    )
    .by(&["kind"], errors);
    [errors].into_iter().chain(of_core).collect()
}
