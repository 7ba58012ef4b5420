//! The configuration file: format, defaults and checks.

use crate::counter::{Limit, Width};
use crate::kind::Kind;
use crate::port::STEADY;
use ftb_core::Severity;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most rules for counters. Each rule reads one file per port and sample.
pub const RULES_MAX: usize = 64;
/// Most entries of `[neighbours]`.
pub const NEIGHBOURS_MAX: usize = 1024;

/// Why a configuration is rejected.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// Malformed TOML, or an unknown key.
    #[error("{path}: {message}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line and problem.
        message: String,
    },
    /// An invalid value.
    #[error("{path}: {key}: {problem}")]
    Value {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// The problem and the valid values.
        problem: String,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    /// `agent` is its name in older releases.
    #[serde(alias = "agent")]
    agent_socket: Option<PathBuf>,
    sysfs: PathBuf,
    #[serde(with = "humantime_serde")]
    rescan: Duration,
    #[serde(with = "humantime_serde")]
    debounce: Duration,
    #[serde(with = "humantime_serde")]
    release: Duration,
    severity: BTreeMap<String, String>,
    prediction: FilePrediction,
    neighbours: BTreeMap<String, String>,
}

impl Default for File {
    fn default() -> Self {
        Self {
            agent_socket: None,
            sysfs: PathBuf::from("/sys"),
            rescan: Duration::from_secs(10),
            debounce: Duration::from_secs(1),
            release: Duration::from_secs(30),
            severity: BTreeMap::new(),
            prediction: FilePrediction::default(),
            neighbours: BTreeMap::new(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FilePrediction {
    enabled: bool,
    #[serde(with = "humantime_serde")]
    interval: Duration,
    defaults: bool,
    rules: Vec<FileRule>,
}

impl Default for FilePrediction {
    fn default() -> Self {
        Self { enabled: true, interval: Duration::from_secs(10), defaults: true, rules: Vec::new() }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRule {
    counter: String,
    #[serde(default)]
    means: Meaning,
    limit: u64,
    #[serde(with = "humantime_serde")]
    window: Duration,
    surge: Option<f64>,
    /// The name of the counter is not checked.
    #[serde(default)]
    optional: bool,
}

/// The meaning of a counter that rises too fast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Meaning {
    /// The link may fail: `FTB_IB_PORT_DEGRADED`.
    #[default]
    Degraded,
    /// The fabric is congested: `FTB_IB_PORT_CONGESTED`.
    Congested,
}

/// A watched counter and its limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// File name below `ports/N/counters` or `ports/N/hw_counters`.
    pub counter: String,
    /// Meaning of a fast increase.
    pub means: Meaning,
    /// Largest increase.
    pub limit: Limit,
}

/// A checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Socket of the agent; `None` for the default.
    pub agent: Option<PathBuf>,
    /// Where sysfs is mounted.
    pub sysfs: PathBuf,
    /// Interval of listings without a kernel event.
    pub rescan: Duration,
    /// Time in which further changes of a port are only counted.
    pub debounce: Duration,
    /// Time that adapters stay closed after SIGHUP.
    pub release: Duration,
    /// Severities that replace the defaults.
    pub severities: BTreeMap<Kind, Severity>,
    /// Interval of counter readings; `None`: never.
    pub sample_interval: Option<Duration>,
    /// Rules for counters.
    pub rules: Vec<Rule>,
    /// `adapter/port` to the other end of the cable.
    pub neighbours: BTreeMap<String, String>,
    /// Unknown counters of rules that are not optional: mistakes, with which nothing starts.
    pub unknown_counters: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self::from_file(File::default(), Path::new("the defaults"))
            .expect("a test checks the defaults")
    }
}

impl Config {
    /// After this time every port and counter has been judged.
    pub fn longest_window(&self) -> Duration {
        let windows = self.rules.iter().map(|rule| rule.limit.window);
        windows.chain([self.debounce * STEADY]).max().unwrap_or_default()
    }

    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`ConfigError`] with the file, the line or key, and the problem.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
        Self::parse(&text, path)
    }

    /// Reads and checks a text; `path` is for errors.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let file = toml::from_str(text).map_err(|error| ConfigError::Syntax {
            path: path.to_owned(),
            message: one_line(text, &error),
        })?;
        Self::from_file(file, path)
    }

    fn from_file(file: File, path: &Path) -> Result<Self, ConfigError> {
        let wrong = |key: &str, problem: String| ConfigError::Value {
            path: path.to_owned(),
            key: key.to_owned(),
            problem,
        };
        for (key, value) in
            [("rescan", file.rescan), ("prediction.interval", file.prediction.interval)]
        {
            if value < Duration::from_millis(100) {
                return Err(wrong(key, "must be at least 100ms".into()));
            }
        }
        if file.debounce > Duration::from_secs(3600) {
            return Err(wrong("debounce", "must be at most 1h".into()));
        }
        if file.release > Duration::from_secs(3600) {
            return Err(wrong("release", "must be at most 1h".into()));
        }
        let severities = severities(&file.severity)
            .map_err(|(name, problem)| wrong(&format!("severity.{name}"), problem))?;
        let unknown_counters = unknown_counters(&file.prediction.rules);
        let rules = rules(file.prediction.defaults, file.prediction.rules)
            .map_err(|problem| wrong("prediction.rules", problem))?;
        if file.neighbours.len() > NEIGHBOURS_MAX {
            let problem = format!("at most {NEIGHBOURS_MAX} entries are allowed");
            return Err(wrong("neighbours", problem));
        }
        if let Some(key) = file.neighbours.keys().find(|key| !is_port(key)) {
            let problem = "expected ADAPTER/PORT, such as \"mlx5_0/1\"".into();
            return Err(wrong(&format!("neighbours.{key:?}"), problem));
        }
        Ok(Self {
            agent: file.agent_socket,
            sysfs: file.sysfs,
            rescan: file.rescan,
            debounce: file.debounce,
            release: file.release,
            severities,
            sample_interval: file.prediction.enabled.then_some(file.prediction.interval),
            rules,
            neighbours: file.neighbours,
            unknown_counters,
        })
    }
}

/// Line and message of an error of the TOML parser, in one line.
fn one_line(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().replace('\n', " ");
    match error.span() {
        Some(span) => format!("line {}: {message}", ftb_core::text::line(text, span.start)),
        None => message,
    }
}

fn is_port(key: &str) -> bool {
    key.split_once('/')
        .is_some_and(|(name, port)| !name.is_empty() && port.parse::<u8>().is_ok_and(|p| p > 0))
}

fn severities(
    table: &BTreeMap<String, String>,
) -> Result<BTreeMap<Kind, Severity>, (String, String)> {
    let mut severities = BTreeMap::new();
    for (name, word) in table {
        let Some(kind) = Kind::from_name(name) else {
            let problem = "no event has this name: see the list in docs/events.md".into();
            return Err((name.clone(), problem));
        };
        let severity = word.parse().map_err(|error: ftb_core::severity::SeverityError| {
            (name.clone(), error.to_string())
        })?;
        severities.insert(kind, severity);
    }
    Ok(severities)
}

fn rules(defaults: bool, own: Vec<FileRule>) -> Result<Vec<Rule>, String> {
    let mut rules = if defaults { default_rules() } else { Vec::new() };
    for rule in own {
        let name = &rule.counter;
        if name.is_empty() || name.contains(['/', '\0']) || name.starts_with('.') {
            return Err(format!("counter {name:?} is not a file name"));
        }
        if rule.limit == 0 {
            return Err(format!("counter {name:?}: limit must be at least 1"));
        }
        if rule.window < Duration::from_secs(1) {
            return Err(format!("counter {name:?}: window must be at least 1s"));
        }
        if rule.surge.is_some_and(|factor| !(factor > 1.0 && factor.is_finite())) {
            return Err(format!("counter {name:?}: surge must be above 1"));
        }
        rules.retain(|other| other.counter != rule.counter);
        rules.push(Rule {
            counter: rule.counter,
            means: rule.means,
            limit: Limit { increase: rule.limit, window: rule.window, surge: rule.surge },
        });
    }
    if rules.len() > RULES_MAX {
        return Err(format!("{} rules: at most {RULES_MAX} are allowed", rules.len()));
    }
    Ok(rules)
}

/// Counter, limit, window in seconds, surge. The InfiniBand specification allows 120 symbol errors
/// an hour, for a bit error rate of 1e-12. Operators of large fabrics act on the other limits.
#[rustfmt::skip]
const DEGRADED: &[(&str, u64, u64, Option<f64>)] = &[
    ("symbol_error",                     20, 600,  Some(8.0)),
    ("link_error_recovery",               3, 3600, None),
    ("link_downed",                       3, 3600, None),
    ("port_rcv_errors",                  20, 600,  Some(8.0)),
    ("port_rcv_remote_physical_errors", 100, 600,  None),
    ("local_link_integrity_errors",       3, 3600, None),
    ("excessive_buffer_overrun_errors",   3, 3600, None),
    ("VL15_dropped",                    100, 600,  Some(8.0)),
    // RoCE (mlx5, bnxt_re, irdma) and soft-RoCE.
    ("rx_icrc_encapsulated",             10, 600,  None),
    ("local_ack_timeout_err",           100, 600,  Some(8.0)),
    ("packet_seq_err",                 1000, 600,  Some(8.0)),
    ("retry_exceeded_err",                5, 600,  None),
    ("rcvd_seq_err",                   1000, 600,  Some(8.0)),
];
#[rustfmt::skip]
const CONGESTED: &[(&str, u64, u64, Option<f64>)] = &[
    // Ticks in which data had to wait. Ticks differ between adapters, so the past counts too.
    ("port_xmit_wait",      100_000_000, 60, Some(10.0)),
    ("port_xmit_discards",          100, 60, Some(10.0)),
    ("np_cnp_sent",             100_000, 60, Some(10.0)),
    ("rp_cnp_handled",          100_000, 60, Some(10.0)),
];

fn default_rules() -> Vec<Rule> {
    let rule = |means| {
        move |&(counter, increase, window_s, surge): &(&str, u64, u64, Option<f64>)| Rule {
            counter: counter.to_owned(),
            means,
            limit: Limit { increase, window: Duration::from_secs(window_s), surge },
        }
    };
    let degraded = DEGRADED.iter().map(rule(Meaning::Degraded));
    let congested = CONGESTED.iter().map(rule(Meaning::Congested));
    degraded.chain(congested).collect()
}

fn unknown_counters(rules: &[FileRule]) -> Vec<String> {
    let is_unknown = |rule: &&FileRule| !rule.optional && !is_known(&rule.counter);
    rules.iter().filter(is_unknown).map(|rule| rule.counter.clone()).collect()
}

/// Whether the kernel or a driver has a counter of this name.
fn is_known(counter: &str) -> bool {
    let mut built_in = DEGRADED.iter().chain(CONGESTED).map(|rule| rule.0);
    built_in.any(|name| name == counter) || KNOWN.contains(&counter)
}

/// Counters of the kernel and its drivers, beside those of the built-in rules.
const KNOWN: &[&str] = &[
    // InfiniBand's port counters, in `counters`.
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_rcv_constraint_errors",
    "port_xmit_data",
    "port_rcv_data",
    "port_xmit_packets",
    "port_rcv_packets",
    "unicast_xmit_packets",
    "unicast_rcv_packets",
    "multicast_xmit_packets",
    "multicast_rcv_packets",
    // mlx5 and mlx4, in `hw_counters`.
    "duplicate_request",
    "implied_nak_seq_err",
    "np_ecn_marked_roce_packets",
    "out_of_buffer",
    "out_of_sequence",
    "req_cqe_error",
    "req_cqe_flush_error",
    "req_remote_access_errors",
    "req_remote_invalid_request",
    "req_rnr_retries_exceeded",
    "req_transport_retries_exceeded",
    "resp_cqe_error",
    "resp_cqe_flush_error",
    "resp_local_length_error",
    "resp_remote_access_errors",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "roce_slow_restart",
    "roce_slow_restart_cnps",
    "roce_slow_restart_trans",
    "rp_cnp_ignored",
    "rx_atomic_requests",
    "rx_dct_connect",
    "rx_read_requests",
    "rx_write_requests",
    "lifespan",
    // Soft-RoCE.
    "ack_deferred",
    "completer_retry_err",
    "rcvd_pkts",
    "rcvd_rnr_err",
    "rdma_recvs",
    "rdma_sends",
    "retry_rnr_exceeded_err",
    "send_err",
    "send_rnr_err",
    "sent_pkts",
    // bnxt_re.
    "active_qps",
    "bad_resp_err",
    "local_protection_err",
    "local_qp_op_err",
    "max_retry_exceeded",
    "mem_mgmt_op_err",
    "missing_resp",
    "oos_drop_count",
    "recoverable_errors",
    "remote_access_err",
    "remote_invalid_req_err",
    "remote_op_err",
    "resp_cq_load_err",
    "res_exceed_max",
    "rx_cnp_pkts",
    "rx_ecn_marked_pkts",
    "rx_good_bytes",
    "rx_good_pkts",
    "rx_out_of_buffer",
    "rx_pkts",
    "rx_roce_discards",
    "rx_roce_errors",
    "seq_err_naks_rcvd",
    "to_retransmits",
    "tx_cnp_pkts",
    "tx_pkts",
    "tx_roce_discards",
    "tx_roce_errors",
    "unrecoverable_err",
    // irdma.
    "cnpHandled",
    "cnpIgnored",
    "cnpSent",
    "ip4InDiscards",
    "ip4OutNoRoutes",
    "ip6InDiscards",
    "ip6OutNoRoutes",
    "iwInRdmaReads",
    "iwInRdmaSends",
    "iwInRdmaWrites",
    "iwOutRdmaReads",
    "iwOutRdmaSends",
    "iwOutRdmaWrites",
    "RxECNMrkd",
    "RxUDP",
    "tcpInOptErrors",
    "tcpInProtoErrors",
    "tcpRetransSegs",
    "TxUDP",
    // EFA.
    "cmds_err",
    "completed_cmds",
    "keep_alive_rcvd",
    "no_completion_cmds",
    "rdma_read_wr_err",
    "rdma_write_wr_err",
    "recv_wrs",
    "rx_bytes",
    "rx_drops",
    "send_wrs",
    "submitted_cmds",
    "tx_bytes",
];

/// How the hardware counts. The counters of InfiniBand's PortCounters attribute stop at their
/// maximum (InfiniBand specification, PortCounters); all others wrap.
pub fn width_of(counter: &str) -> Width {
    match counter {
        "symbol_error"
        | "port_rcv_errors"
        | "port_rcv_remote_physical_errors"
        | "port_rcv_switch_relay_errors"
        | "port_xmit_discards"
        | "VL15_dropped" => Width::Sticky(16),
        "link_error_recovery"
        | "link_downed"
        | "port_xmit_constraint_errors"
        | "port_rcv_constraint_errors" => Width::Sticky(8),
        "local_link_integrity_errors" | "excessive_buffer_overrun_errors" => Width::Sticky(4),
        "port_xmit_wait" => Width::Sticky(32),
        _ => Width::Wrapping,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Config::parse(text, Path::new("ib.toml")).expect_err(text).to_string()
    }

    #[test]
    fn an_empty_file_gives_the_defaults() {
        let config = Config::parse("", Path::new("ib.toml")).expect("good");
        assert_eq!(config, Config::default());
        assert_eq!(config.debounce, Duration::from_secs(1));
        assert!(config.rules.len() <= RULES_MAX);
    }

    #[test]
    fn the_sample_gives_the_defaults() {
        let text = include_str!("../../deploy/config/ib.toml");
        let config = Config::parse(text, Path::new("ib.toml")).expect("good");
        assert_eq!(config, Config::default());
        // Every commented key of the sample exists.
        let uncommented = ftb_tests::samples::with_all_keys(text);
        let config = Config::parse(&uncommented, Path::new("ib.toml")).expect("good");
        assert_ne!(config, Config::default());
    }

    #[test]
    fn an_error_names_the_line_or_the_key() {
        assert!(
            error("rescan = \"1s\"\nrescann = 1\n").contains("line 2: unknown field `rescann`")
        );
        assert!(error("rescan = 5\n").contains("line 1"));
        assert!(error("rescan = \"1ms\"\n").contains("rescan: must be at least 100ms"));
        let text = error("[severity]\nFTB_IB_PORT_EER = \"info\"\n");
        assert!(text.contains("severity.FTB_IB_PORT_EER"), "{text}");
        let text = error("[severity]\nFTB_IB_PORT_ERR = \"loud\"\n");
        assert!(text.contains("expected info, warning, error or fatal"), "{text}");
        for rule in [
            "limit = 0\nwindow = \"1m\"",
            "limit = 1\nwindow = \"1ms\"",
            "limit = 1\nwindow = \"1m\"\nsurge = 0.5",
        ] {
            let text = error(&format!("[[prediction.rules]]\ncounter = \"x\"\n{rule}\n"));
            assert!(text.contains("prediction.rules: counter \"x\""), "{text}");
        }
        let text = error("[[prediction.rules]]\ncounter = \"../x\"\nlimit = 1\nwindow = \"1m\"");
        assert!(text.contains("not a file name"), "{text}");
        assert!(error("[neighbours]\nmlx5_0 = \"leaf\"\n").contains("ADAPTER/PORT"));
    }

    #[test]
    fn a_rule_replaces_the_default_rule_for_its_counter() {
        let text = "[[prediction.rules]]\ncounter = \"link_downed\"\nlimit = 9\nwindow = \"1m\"\n";
        let config = Config::parse(text, Path::new("ib.toml")).expect("good");
        let rules: Vec<_> = config.rules.iter().filter(|r| r.counter == "link_downed").collect();
        assert_eq!(rules.len(), 1);
        assert_eq!(rules[0].limit.increase, 9);
        let text = format!("[prediction]\ndefaults = false\n{text}");
        let config = Config::parse(&text, Path::new("ib.toml")).expect("good");
        assert_eq!(config.rules.len(), 1);
    }

    #[test]
    fn a_misspelt_counter_is_unknown_unless_its_rule_is_optional() {
        let unknown = |counter: &str, more: &str| {
            let rule = format!("counter = {counter:?}\nlimit = 1\nwindow = \"1m\"\n{more}");
            let text = format!("[[prediction.rules]]\n{rule}\n");
            Config::parse(&text, Path::new("ib.toml")).expect("good").unknown_counters
        };
        assert_eq!(unknown("symbol_eror", ""), ["symbol_eror"]);
        assert_eq!(unknown("symbol_eror", "optional = true"), [""; 0]);
        for counter in ["symbol_error", "VL15_dropped", "port_rcv_data", "out_of_sequence"] {
            assert_eq!(unknown(counter, ""), [""; 0]);
        }
    }

    #[test]
    fn the_sample_lists_every_built_in_rule() {
        let sample = include_str!("../../deploy/config/ib.toml");
        let is_listed = |row: &str| {
            let words = |line: &str| line.split_whitespace().eq(row.split_whitespace());
            sample.lines().any(words)
        };
        for Rule { counter, means, limit } in Config::default().rules {
            let means = format!("{means:?}").to_lowercase();
            let window = humantime_serde::re::humantime::format_duration(limit.window);
            let surge = limit.surge.map_or(String::new(), |factor| factor.to_string());
            let row = format!("# {counter} {means} {} {window} {surge}", limit.increase);
            assert!(is_listed(&row), "deploy/config/ib.toml lacks {row}");
        }
    }

    proptest::proptest! {
        /// Any text is a configuration or an error of one line.
        #[test]
        fn any_text_is_a_configuration_or_one_line_of_error(
            lines in proptest::collection::vec(
                "(rescan|debounce|release|agent|limit|window|surge|counter|x) = \
                 (\"[0-9a-z./-]{0,8}\"|-?[0-9]{0,20}|[0-9.e]{0,9}|true|\\[\\])|\
                 \\[(severity|prediction|neighbours|\\[prediction.rules\\])\\]|.{0,30}",
                0..12,
            )
        ) {
            if let Err(error) = Config::parse(&lines.join("\n"), Path::new("ib.toml")) {
                let message = error.to_string();
                proptest::prop_assert!(message.starts_with("ib.toml: "));
                proptest::prop_assert_eq!(message.lines().count(), 1, "{}", message);
            }
        }
    }

    #[test]
    fn the_default_limit_of_a_sticky_counter_is_below_its_maximum() {
        for rule in Config::default().rules {
            if let Width::Sticky(bits) = width_of(&rule.counter) {
                assert!(rule.limit.increase < (1 << bits) - 1, "{}", rule.counter);
            }
        }
    }
}
