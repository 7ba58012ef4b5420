//! The configuration of the agent: one TOML file. Unknown keys are errors.
//!
//! Errors name file, line and key. `deploy/config/agent.toml` explains every key. Not responsible
//! for: the syntax of single values (`value`), and the tables of other modules.

pub mod conditions;
pub mod storms;
mod value;

use conditions::ConditionTable;
use storms::StormTable;
pub use value::{Address, AddressPattern, ClusterName, Members, PayloadBytes};

use crate::access::{self, Access, AccessRule};
use crate::host_lists::Monitors;
use crate::journal::config::JournalConfig;
use crate::logging::LogConfig;
use crate::monitor::MetricsConfig;
use crate::monitor::page::PageConfig;
use crate::nvhcd::HealthConfig;
use crate::signing::Demands;
use ftb_core::hostlist::Hostlist;
use ftb_core::node::{Folder, Member, NodeConfig};
use ftb_core::text::place;
use ftb_core::{ConfirmLevel, OriginId, limits};
use ftb_transport::tls::TlsFiles;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Default port for links.
pub const PORT: u16 = 14451;
/// Default socket for clients.
pub const SOCKET: &str = "/run/ftb/agent.sock";
/// Largest configuration file, in bytes: a quarter of a million addresses fit.
const FILE_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// The longest time that may be given for anything but the age of the journal: more is a mistake in
/// the unit, and nothing counts beyond it.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// Longest path of a Unix socket, in bytes (unix(7)).
const SOCKET_BYTES_MAX: usize = 107;
/// Most threads.
const THREADS_MAX: usize = 256;

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The cluster's name; agents of other clusters are rejected.
    pub cluster: ClusterName,
    /// Every host of the cluster, in rank order; the same list on every host.
    pub members: Members,
    /// This host's name in `members`; the system's host name if not given.
    pub host: Option<String>,
    /// Agents of hosts that are not in `members` may join.
    #[serde(default = "allow_unlisted")]
    pub allow_unlisted: bool,
    /// Most children of an agent in the tree.
    #[serde(default = "fanout")]
    pub fanout: NonZeroU32,
    /// The port in `address`.
    #[serde(default = "port")]
    pub port: u16,
    /// The address of a member; `{host}` and `{port}` are replaced.
    #[serde(default)]
    pub address: AddressPattern,
    /// Members with other addresses.
    #[serde(default)]
    pub addresses: BTreeMap<String, Address>,
    /// The address for links; default: all interfaces with `port`.
    pub listen: Option<SocketAddr>,
    /// The socket for clients.
    #[serde(rename = "agent_socket", alias = "socket", default = "socket")]
    pub socket: PathBuf,
    /// Links without TLS: any host that reaches the port can forge faults.
    #[serde(default)]
    pub insecure: bool,
    /// With TLS: an event without a valid signature moves no job.
    #[serde(default = "require_signatures")]
    pub require_signatures: bool,
    /// With TLS: the hosts whose programs may state conditions of other hosts. Not given: those of
    /// any host.
    pub monitors: Option<Monitors>,
    /// Mutual TLS between agents.
    pub tls: Option<TlsFiles>,
    /// Threads of the agent.
    #[serde(default = "threads")]
    pub threads: NonZeroUsize,
    /// What events of clients must survive before they are confirmed, unless the client says.
    #[serde(default, deserialize_with = "confirm_level")]
    pub confirm: ConfirmLevel,
    /// Limits.
    #[serde(default)]
    pub limits: Limits,
    /// Times of failure detection.
    #[serde(default)]
    pub detection: Detection,
    /// The log of events on disk.
    #[serde(default)]
    pub journal: JournalConfig,
    /// The log of the agent.
    #[serde(default)]
    pub log: LogConfig,
    /// Where monitoring systems read.
    #[serde(default)]
    pub metrics: MetricsConfig,
    /// The web page.
    #[serde(default)]
    pub page: PageConfig,
    /// What makes this host unhealthy for programs that ask.
    #[serde(default)]
    pub health: HealthConfig,
    /// Access rules.
    #[serde(default)]
    pub access: Vec<AccessRule>,
    /// Storm control.
    #[serde(default)]
    pub storm: Vec<StormTable>,
    /// Pairs of events that set and clear a condition, beside the built-in ones.
    #[serde(default)]
    pub condition: Vec<ConditionTable>,
}

/// Limits of the agent (`None`: the core's default).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Largest payload of an event published here, in bytes.
    pub payload_bytes_max: PayloadBytes,
    /// Most clients attached.
    pub clients_max: usize,
    /// Most clients of one user; root is not counted.
    pub clients_per_user_max: usize,
    /// Most subscriptions of one client.
    pub subscriptions_per_client_max: usize,
    /// Most other agents connected to this one.
    pub links_max: usize,
    /// Most connections before their hello, on each socket; a further one closes the oldest.
    pub waiting_max: usize,
    /// Time for the hello of a connection.
    #[serde(with = "humantime_serde")]
    pub hello: Duration,
    /// Time for a stopping agent to send its queues.
    #[serde(with = "humantime_serde")]
    pub drain: Duration,
    /// Bytes that wait for one slow child or subscription; more is shed.
    pub lag_bytes: Option<usize>,
    /// Memory for the clients of one user, in bytes.
    pub user_bytes: Option<usize>,
    /// The same for the clients of all users.
    pub users_bytes: Option<usize>,
    /// Subscriptions of all clients of one user.
    pub user_subscriptions: Option<usize>,
    /// The filters of these, in bytes.
    pub user_filter_bytes: Option<usize>,
    /// How fast one user publishes before its clients are read more slowly.
    pub user_events_per_s: Option<NonZeroU32>,
    /// Unconfirmed bytes of this agent's clients; publishers wait beyond it.
    pub unconfirmed_bytes: Option<usize>,
    /// The log in memory of acting root and standby, in bytes.
    pub log_bytes: Option<usize>,
    /// Recent events in memory of other agents, in bytes.
    pub ring_bytes: Option<usize>,
    /// Rows of the table of conditions; the same on all agents.
    pub conditions: Option<usize>,
    /// Its bytes.
    pub condition_bytes: Option<usize>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_bytes_max: PayloadBytes(limits::PAYLOAD_BYTES_DEFAULT),
            clients_max: 4096,
            clients_per_user_max: 1024,
            subscriptions_per_client_max: 256,
            links_max: 1024,
            waiting_max: 512,
            hello: Duration::from_secs(5),
            drain: Duration::from_secs(3),
            lag_bytes: None,
            user_bytes: None,
            users_bytes: None,
            user_subscriptions: None,
            user_filter_bytes: None,
            user_events_per_s: None,
            unconfirmed_bytes: None,
            log_bytes: None,
            ring_bytes: None,
            conditions: None,
            condition_bytes: None,
        }
    }
}

/// Times of failure detection (`None`: the core's default).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Detection {
    /// A silent link is dead after this time.
    #[serde(with = "humantime_serde")]
    pub silence: Option<Duration>,
    /// Interval of heartbeats on an idle link.
    #[serde(with = "humantime_serde")]
    pub heartbeat: Option<Duration>,
    /// Time for one dial.
    #[serde(with = "humantime_serde")]
    pub dial: Option<Duration>,
    /// Time for the parent search before an agent becomes acting root.
    #[serde(with = "humantime_serde")]
    pub search: Option<Duration>,
    /// Interval of the search for a better parent.
    #[serde(with = "humantime_serde")]
    pub probe: Option<Duration>,
    /// Time for which agents keep confirmed events of their clients, in case acting root and
    /// standby fail together.
    #[serde(with = "humantime_serde")]
    pub grace: Option<Duration>,
    /// How long a publisher or its agent may be away before its conditions become unknown.
    #[serde(with = "humantime_serde")]
    pub publisher: Option<Duration>,
}

fn confirm_level<'de, D: serde::Deserializer<'de>>(source: D) -> Result<ConfirmLevel, D::Error> {
    let text = String::deserialize(source)?;
    text.parse().map_err(serde::de::Error::custom)
}

fn fanout() -> NonZeroU32 {
    const { NonZeroU32::new(16).expect("16 is not zero") }
}

fn allow_unlisted() -> bool {
    true
}

fn require_signatures() -> bool {
    true
}

fn port() -> u16 {
    PORT
}

fn socket() -> PathBuf {
    SOCKET.into()
}

/// With one thread, input waits while an event is written to its subscribers. A second thread
/// costs an idle agent nothing.
fn threads() -> NonZeroUsize {
    const { NonZeroUsize::new(2).expect("two is not zero") }
}

/// A configuration error: one line with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    file: String,
    /// Line and column, counted from 1.
    place: Option<(usize, usize)>,
    reason: String,
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some((line, column)) => write!(f, "{}:{line}:{column}: {}", self.file, self.reason),
            None => write!(f, "{}: {}", self.file, self.reason),
        }
    }
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let file = path.display().to_string();
        let fail = |reason: String| ConfigError { file: file.clone(), place: None, reason };
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => {
                fail("no such file: write one with ftbctl init, or name another".to_owned())
            }
            _ => fail(error.to_string()),
        };
        // Checked before opening: reading a pipe without a writer would block a reload.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(fail("it is no file: a configuration is a file of text".to_owned()));
        }
        let mut bytes = Vec::new();
        let opened = File::open(path).map_err(failed)?;
        opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(fail(format!("a configuration has at most {FILE_BYTES_MAX} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            fail(format!("byte {at} is no text: expected UTF-8"))
        })?;
        Self::parse(&file, &text)
    }

    /// Checks a text; `file` is for the errors.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn parse(file: &str, text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text).map_err(|error| ConfigError {
            file: file.to_owned(),
            place: error.span().map(|span| place(text, span.start)),
            reason: value::in_words(error.message()),
        })?;
        let fail = |reason: String| ConfigError { file: file.to_owned(), place: None, reason };
        config.check().map_err(fail)?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        match (&self.tls, self.insecure) {
            (None, false) => {
                return Err("agents authenticate each other: give ca, cert and key in [tls], or \
                            set insecure = true to accept every peer on the network as an agent"
                    .to_owned());
            }
            (Some(_), true) => {
                return Err("there is a [tls] and insecure = true: remove one of them".to_owned());
            }
            _ => {}
        }
        let own = self.host.as_deref();
        // The name is sent to other agents and stands in certificates.
        if let Some(host) = own
            && !Hostlist::parse(host).is_ok_and(|list| list.len() == 1)
        {
            return Err(format!(
                "host is {host:?}: expected one host name, as it stands in members"
            ));
        }
        let known = |host: &String| self.members.0.contains(host) || own == Some(host.as_str());
        if let Some(host) = self.addresses.keys().find(|host| !known(host)) {
            return Err(format!("[addresses] has {host:?}, which is not in members"));
        }
        let positive = [
            ("limits.clients_max", self.limits.clients_max),
            ("limits.clients_per_user_max", self.limits.clients_per_user_max),
            ("limits.subscriptions_per_client_max", self.limits.subscriptions_per_client_max),
            ("limits.links_max", self.limits.links_max),
            ("limits.waiting_max", self.limits.waiting_max),
        ];
        if let Some((key, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(format!("{key} is 0: no client could connect"));
        }
        if self.socket.as_os_str().len() > SOCKET_BYTES_MAX {
            let socket = self.socket.display();
            return Err(format!(
                "agent_socket {socket}: a path of at most {SOCKET_BYTES_MAX} bytes"
            ));
        }
        if self.threads.get() > THREADS_MAX {
            return Err(format!("threads is {}: at most {THREADS_MAX}", self.threads));
        }
        self.metrics.check()?;
        if self.page.token.is_some() && self.metrics.listen.is_none() {
            return Err("[page] has a token, but the page is served at metrics.listen: give \
                        listen in [metrics], such as 127.0.0.1:9464"
                .to_owned());
        }
        if self.page.racks.is_some() && self.page.token.is_none() {
            return Err("[page] has racks, but no token: without one there is no page".to_owned());
        }
        self.journal.check()?;
        self.check_times()?;
        access::check(&self.access)?;
        conditions::pairs(&self.condition)?;
        storms::check(&self.storm)
    }

    fn check_times(&self) -> Result<(), String> {
        let Detection { silence, heartbeat, dial, search, probe, grace, publisher } =
            self.detection;
        let given = [
            ("limits.hello", Some(self.limits.hello)),
            ("limits.drain", Some(self.limits.drain)),
            ("detection.silence", silence),
            ("detection.heartbeat", heartbeat),
            ("detection.dial", dial),
            ("detection.search", search),
            ("detection.probe", probe),
            ("detection.grace", grace),
            ("detection.publisher", publisher),
        ];
        if let Some((key, _)) = given.iter().find(|(_, time)| time.is_some_and(|t| t > TIME_MAX)) {
            return Err(format!("{key} is longer than 24h"));
        }
        if self.limits.hello.is_zero() {
            return Err("limits.hello is 0s: every hello would be late".to_owned());
        }
        // A missing value has the core's default.
        let usual = NodeConfig::new("", "", OriginId(0), Vec::<Member>::new());
        let silence = silence.unwrap_or(Duration::from_millis(usual.detection_ms));
        if silence.is_zero() || heartbeat.is_some_and(|heartbeat| heartbeat * 2 > silence) {
            return Err(format!(
                "detection.silence ({silence:?}) must be at least twice detection.heartbeat, or a \
                 late heartbeat is a dead link"
            ));
        }
        Ok(())
    }

    /// What it demands of events that move jobs.
    pub fn demands(&self) -> Demands {
        Demands { is_required: self.require_signatures, monitors: self.monitors.clone() }
    }

    /// This host's name: as configured, else the system's name, else its short form, whichever
    /// stands in `members`. A host that is not in the list has its short name, and joins unlisted.
    pub fn host(&self, system_name: &str) -> String {
        let name = self.host.as_deref().unwrap_or(system_name);
        let short = name.split('.').next().unwrap_or(name);
        let members = &self.members.0;
        let listed = |name| members.position(name).and_then(|rank| members.get(rank));
        listed(name).or_else(|| listed(short)).unwrap_or_else(|| short.to_owned())
    }

    /// The address of a member.
    pub fn address_of(&self, host: &str) -> String {
        match self.addresses.get(host) {
            Some(address) => address.0.clone(),
            None => self.address.of(host, self.port),
        }
    }

    /// The configuration of the core.
    pub fn node(&self, host: &str, origin: OriginId) -> NodeConfig {
        let members = self.members.0.iter();
        let members: Vec<Member> =
            members.map(|host| Member { address: self.address_of(&host), host }).collect();
        let mut node = NodeConfig::new(&self.cluster.0, host, origin, members);
        if node.rank.is_none() {
            node.address = self.address_of(host);
        }
        node.version = env!("CARGO_PKG_VERSION").to_owned();
        node.is_secured = self.tls.is_some();
        node.allow_unlisted = self.allow_unlisted;
        node.fanout = self.fanout.get();
        node.children_max = node.children_max.max(4 * self.fanout.get() as usize);
        node.subscriptions_max = self.limits.subscriptions_per_client_max;
        let ms = |value: &mut u64, given: Option<Duration>| {
            if let Some(given) = given {
                *value = u64::try_from(given.as_millis()).unwrap_or(u64::MAX).max(1);
            }
        };
        ms(&mut node.detection_ms, self.detection.silence);
        node.heartbeat_ms = node.heartbeat_ms.min(node.detection_ms.div_ceil(2));
        ms(&mut node.heartbeat_ms, self.detection.heartbeat);
        ms(&mut node.dial_ms, self.detection.dial);
        ms(&mut node.search_ms, self.detection.search);
        ms(&mut node.probe_ms, self.detection.probe);
        ms(&mut node.grace_ms, self.detection.grace);
        ms(&mut node.condition_grace_ms, self.detection.publisher);
        // A cluster that starts has other work first.
        node.declare_after_ms = Some(node.condition_grace_ms.saturating_mul(3));
        let bytes = |value: &mut usize, given: Option<usize>| *value = given.unwrap_or(*value);
        bytes(&mut node.lag_bytes, self.limits.lag_bytes);
        bytes(&mut node.user_bytes, self.limits.user_bytes);
        bytes(&mut node.users_bytes, self.limits.users_bytes);
        bytes(&mut node.user_subscriptions, self.limits.user_subscriptions);
        bytes(&mut node.user_filter_bytes, self.limits.user_filter_bytes);
        if let Some(rate) = self.limits.user_events_per_s {
            node.user_events_per_s = rate.get();
        }
        bytes(&mut node.outbox_bytes, self.limits.unconfirmed_bytes);
        bytes(&mut node.log_bytes, self.limits.log_bytes);
        bytes(&mut node.ring_bytes, self.limits.ring_bytes);
        bytes(&mut node.conditions.rows, self.limits.conditions);
        bytes(&mut node.conditions.bytes, self.limits.condition_bytes);
        // The result depends only on the spaces that are open to all users.
        node.protected = Access::new(&self.access, 0).protected();
        node.storm = storms::rules(&self.storm);
        node.folder = Some(Folder(ftb_proto::event::fold));
        node.grouper = Some(ftb_proto::event::grouper());
        node.counted_mark = Some(ftb_proto::event::counted_mark());
        node
    }

    /// The changed keys that need a restart.
    pub fn differs_for_good(&self, start: &Self) -> Vec<&'static str> {
        let differs = [
            ("cluster", self.cluster != start.cluster),
            ("host", self.host != start.host),
            ("listen", self.listen() != start.listen()),
            ("agent_socket", self.socket != start.socket),
            ("threads", self.threads != start.threads),
            ("[limits]", self.limits != start.limits),
            ("[detection]", self.detection != start.detection),
            ("[journal]", self.journal != start.journal),
            ("log.format", self.log.format != start.log.format),
            ("[metrics]", self.metrics != start.metrics),
            ("[page]", self.page != start.page),
            ("[health]", self.health != start.health),
        ];
        differs.into_iter().filter_map(|(key, differs)| differs.then_some(key)).collect()
    }

    /// The address for links.
    pub fn listen(&self) -> String {
        self.listen.map_or_else(|| format!("0.0.0.0:{}", self.port), |address| address.to_string())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SMALL: &str = "cluster = \"c\"\nmembers = \"login1,node[01-03]\"\ninsecure = true\n";

    fn with(rest: &str) -> Result<Config, String> {
        Config::parse("agent.toml", &format!("{SMALL}{rest}")).map_err(|error| error.to_string())
    }

    #[test]
    fn three_lines_are_a_configuration() {
        let config = with("").unwrap();
        assert_eq!(config.members.0.len(), 4);
        assert_eq!(config.address_of("node02"), "node02:14451");
        assert_eq!(config.listen(), "0.0.0.0:14451");
        assert_eq!(config.socket, Path::new("/run/ftb/agent.sock"));
        assert_eq!(config.host("node02.example.org"), "node02");
        assert_eq!(config.host("elsewhere.example.org"), "elsewhere");
    }

    #[test]
    fn what_needs_a_restart_is_known_by_name() {
        let start = with("").unwrap();
        let live = "fanout = 3\n[log]\nlevel = \"warn\"\n[[access]]\nspace = \"site\"\n";
        assert_eq!(with(live).unwrap().differs_for_good(&start), [""; 0]);
        let changed = "port = 99\nthreads = 3\n[limits]\nhello = \"1s\"\n[journal]\nage = \"1d\"\n\
                       [detection]\ngrace = \"1s\"\n[log]\nformat = \"json\"\n";
        assert_eq!(
            with(changed).unwrap().differs_for_good(&start),
            ["listen", "threads", "[limits]", "[detection]", "[journal]", "log.format"]
        );
    }

    #[test]
    fn addresses_follow_the_pattern_unless_overridden() {
        let config = with(
            "address = \"{host}.lan:{port}\"\nport = 99\n[addresses]\nnode02 = \"127.0.0.1:5\"\n",
        )
        .unwrap();
        assert_eq!(config.address_of("node01"), "node01.lan:99");
        assert_eq!(config.address_of("node02"), "127.0.0.1:5");
    }

    #[test]
    fn mistakes_are_one_line_with_file_line_and_what_was_meant() {
        let long_socket = format!("socket = \"/run/{}\"\n", "x".repeat(103));
        let cases = [
            ("fan_out = 3\n", "agent.toml:4:1: unknown key `fan_out`"),
            ("[limits]\nclients = 3\n", "agent.toml:5:1: unknown key `clients`"),
            ("[detection]\nsilence = 2\n", "agent.toml:5:11: "),
            ("[detection]\nsilence = \"2\"\n", "expected a time with its unit"),
            ("[detection]\nsilence = \"2 parsecs\"\n", "agent.toml:5:11: "),
            ("[detection]\nsilence = \"2s\"\nheartbeat = \"1500ms\"\n", "at least twice"),
            ("[detection]\nheartbeat = \"10s\"\n", "detection.silence (2s) must be at least twice"),
            ("[detection]\nsilence = \"0s\"\n", "at least twice"),
            ("[detection]\nsilence = \"9y\"\nheartbeat = \"4y\"\n", "detection.silence is longer"),
            ("[limits]\ndrain = \"500000000000y\"\n", "limits.drain is longer than 24h"),
            ("[journal]\nfsync = \"interval:2h\"\n", "agent.toml:5:9: "),
            (&long_socket, "a path of at most 107 bytes"),
            ("threads = 100000\n", "threads is 100000: at most 256"),
            (
                "fanout = 0\n",
                "agent.toml:4:10: invalid value: integer `0`, expected a whole number from 1",
            ),
            ("port = 70000\n", "expected a whole number up to 65535"),
            ("listen = \"everywhere\"\n", "agent.toml:4:10: expected ADDRESS:PORT"),
            ("host = \"node 01\"\n", "host is \"node 01\": expected one host name"),
            ("host = \"node[01-02]\"\n", "expected one host name"),
            ("address = \"10.0.0.1:1\"\n", "no pattern of addresses"),
            ("[addresses]\nnode09 = \"a:1\"\n", "\"node09\", which is not in members"),
            ("[addresses]\nnode02 = \"a\"\n", "expected HOST:PORT"),
            ("[[access]]\nspace = \"ftb..x\"\n", "agent.toml:5:9: "),
            ("[[access]]\nspace = \"x\"\npublish = [\"role:x\"]\n", "is no user"),
            ("[log]\nlevel = \"=,=\"\n", "agent.toml:5:9: "),
            ("[journal]\nfsync = \"sometimes\"\n", "agent.toml:5:9: "),
            ("[journal]\nbytes = 5\n", "journal.bytes must be at least"),
            ("[log]\nformat = \"xml\"\n", "expected `text` or `json`"),
            ("[[storm]]\nspace = \"ftb.x\"\n", "give it fold or events_per_s"),
            ("[[storm]]\nspace = \"x\"\nfold = \"2h\"\n", "1ms to 60s"),
            ("[[storm]]\nspace = \"x\"\nfold = \"1s\"\nburst = 3\n", "burst without events_per_s"),
            (
                "[[storm]]\nspace = \"x\"\nfold = \"1s\"\nseverity_max = \"bad\"\n",
                "agent.toml:7:16: ",
            ),
            ("[[storm]]\nspace = \"x\"\nevents_per_s = 0\n", "agent.toml:6:16: "),
            (
                "[[condition]]\nspace = \"x\"\nset = \"A\"\nclear = [\"A\"]\n",
                "contradictory pairs: x A sets A by the pair of A, and clears A",
            ),
            (
                "[[condition]]\nspace = \"x\"\nset = \"A\"\naction = \"explode\"\n",
                "\"explode\" is no recommended action",
            ),
            ("[[condition]]\nspace = \"x\"\nset = \"A B\"\n", "is set by \"A B\""),
            ("[limits]\npayload_bytes_max = 99999999\n", "at most 1048576 bytes"),
            ("[limits]\nlinks_max = 0\n", "no client could connect"),
            ("[metrics]\nlisten = \"0.0.0.0:9464\"\n", "expected a loopback address"),
            ("[page]\ntoken = \"t\"\n", "give listen in [metrics]"),
            ("[page]\nracks = \"r\"\n", "without one there is no page"),
            ("[tls]\nca = \"a\"\ncert = \"b\"\nkey = \"c\"\n", "remove one of them"),
        ];
        for (text, expected) in cases {
            let error = with(text).unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn neither_certificates_nor_insecure_is_refused() {
        let text = "cluster = \"c\"\nmembers = \"a\"\n";
        let error = Config::parse("f", text).unwrap_err().to_string();
        assert!(error.contains("insecure = true"), "{error}");
        let error = Config::parse("f", "cluster = \"c\"\nmembers = \"a[3-1]\"\n").unwrap_err();
        assert!(error.to_string().starts_with("f:2:11: host list, column 3: "), "{error}");
    }
}
