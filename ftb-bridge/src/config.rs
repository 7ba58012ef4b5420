//! The configuration file and the file of racks: format, defaults and checks.

use crate::cloud_event::Choice;
use crate::import::{Pattern, Rule};
use ftb_client::daemon::{self, Failure};
use ftb_client::{EventName, EventSpace, RecommendedAction, Severity, Truth};
use ftb_core::hostlist::Hostlist;
use ftb_core::racks;
use http::Uri;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most hosts of one rack: an alarm has an event for each.
const RACK_HOSTS_MAX: usize = 1_024;
/// Most rules of the import.
const RULES_MAX: usize = 256;

/// Where a collector takes traces, if the address has no path.
const TRACES_PATH: &str = "/v1/traces";

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    agent_socket: Option<PathBuf>,
    state_dir: Option<PathBuf>,
    nats: NatsFile,
    export: ExportFile,
    import: Option<ImportFile>,
    otlp: Option<OtlpFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct NatsFile {
    servers: Vec<String>,
    credentials: Option<PathBuf>,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl Default for NatsFile {
    fn default() -> Self {
        let servers = vec!["nats://127.0.0.1:4222".to_owned()];
        Self { servers, credentials: None, ca: None, cert: None, key: None }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ExportFile {
    stream: Option<String>,
    replicas: usize,
    max_bytes: i64,
    #[serde(with = "humantime_serde")]
    max_age: Duration,
    severity: String,
    space: Vec<SpaceFile>,
}

impl Default for ExportFile {
    fn default() -> Self {
        Self {
            stream: None,
            replicas: 1,
            max_bytes: 1 << 30,
            max_age: Duration::ZERO,
            severity: "info".to_owned(),
            space: Vec::new(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpaceFile {
    space: String,
    severity: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ImportFile {
    stream: String,
    subject: String,
    racks: PathBuf,
    #[serde(default)]
    insecure: bool,
    #[serde(default)]
    rule: Vec<RuleFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    subject: String,
    event: String,
    severity: String,
    condition: Option<String>,
    #[serde(default)]
    clear: bool,
    action: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OtlpFile {
    url: String,
    ca: Option<PathBuf>,
}

/// How NATS is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsConfig {
    /// URLs of servers.
    pub servers: Vec<String>,
    /// File with the credentials of a user.
    pub credentials: Option<PathBuf>,
    /// Certificates that vouch for servers.
    pub ca: Option<PathBuf>,
    /// Certificate and key of the bridge.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// What is exported, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportConfig {
    /// The stream; `None`: by the name of the cluster.
    pub stream: Option<String>,
    /// Copies of a new stream.
    pub replicas: usize,
    /// Bytes of a new stream; beyond, the server deletes the oldest messages.
    pub max_bytes: i64,
    /// Age of the oldest message of a new stream; 0: any.
    pub max_age: Duration,
    /// Which events.
    pub choice: Choice,
}

/// What is imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportConfig {
    /// The stream of the facility.
    pub stream: String,
    /// The subjects that are read.
    pub subject: String,
    /// What alarms mean.
    pub rules: Vec<Rule>,
    /// The hosts of each rack.
    pub racks: BTreeMap<String, Vec<String>>,
}

/// Where traces are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpConfig {
    /// The address of the collector.
    pub url: Uri,
    /// Certificates that vouch for a collector with https; `None`: those of the system.
    pub ca: Option<PathBuf>,
}

/// A checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Socket of the agent; `None` for the default.
    pub agent: Option<PathBuf>,
    /// Where the state is kept.
    pub state_dir: PathBuf,
    /// How NATS is reached; `None`: only traces are sent.
    pub nats: Option<NatsConfig>,
    /// What is exported.
    pub export: ExportConfig,
    /// What is imported.
    pub import: Option<ImportConfig>,
    /// Where traces of episodes are sent.
    pub otlp: Option<OtlpConfig>,
}

impl Config {
    /// Reads and checks a file and those that it names.
    ///
    /// # Errors
    /// Bad input: the file and the problem.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        let folder = path.parent().unwrap_or(Path::new(""));
        daemon::load_config(path, |text| Self::parse(text, folder))
    }

    /// Reads and checks a text. Relative paths are below `folder`.
    ///
    /// # Errors
    /// The problem, with its line or key.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, String> {
        let file: File = read_toml(text)?;
        let needs_tls = file.import.as_ref().is_some_and(|import| !import.insecure);
        let import = file.import.map(|import| import.check(folder)).transpose()?;
        let otlp = file.otlp.map(|otlp| otlp.check(folder)).transpose()?;
        let nats = match file.nats.servers.is_empty() && otlp.is_some() && import.is_none() {
            true => None,
            false => Some(file.nats.check(folder)?),
        };
        let in_the_clear = nats.as_ref().and_then(NatsConfig::in_the_clear);
        if let Some(server) = in_the_clear.filter(|_| needs_tls) {
            return Err(format!(
                "import: alarms would come from {server} without TLS, and a host on the way could \
                 invent them: set nats.ca or a tls:// address, or import.insecure = true"
            ));
        }
        Ok(Self {
            agent: file.agent_socket,
            state_dir: file.state_dir.unwrap_or_else(|| "/var/lib/ftb-bridge".into()),
            nats,
            export: file.export.check()?,
            import,
            otlp,
        })
    }
}

fn read_toml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|error| {
        let line = ftb_core::text::line(text, error.span().map_or(0, |span| span.start));
        format!("line {line}: {}", error.message().replace('\n', " "))
    })
}

impl NatsConfig {
    /// A server on another host that is reached without TLS; without its user and password.
    fn in_the_clear(&self) -> Option<&str> {
        let is_tls = self.ca.is_some() || self.identity.is_some();
        let mut servers = self.servers.iter().filter(|_| !is_tls).map(String::as_str);
        servers.find_map(|server| {
            let (scheme, rest) = server.split_once("://").unwrap_or(("nats", server));
            let place = rest.rsplit('@').next().unwrap_or_default();
            let host = match place.strip_prefix('[') {
                Some(rest) => rest.split(']').next().unwrap_or_default(),
                None => place.split([':', '/']).next().unwrap_or_default(),
            };
            let address: Option<std::net::IpAddr> = host.parse().ok();
            let is_local = host == "localhost" || address.is_some_and(|a| a.is_loopback());
            (!is_local && scheme != "tls" && scheme != "wss").then_some(place)
        })
    }
}

impl NatsFile {
    fn check(self, folder: &Path) -> Result<NatsConfig, String> {
        if self.servers.is_empty() {
            return Err("nats.servers: must name a server".to_owned());
        }
        let place = |path: PathBuf| folder.join(path);
        let identity = match (self.cert.map(place), self.key.map(place)) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((cert, key)),
            _ => return Err("nats.cert and nats.key: one needs the other".to_owned()),
        };
        let (credentials, ca) = (self.credentials.map(place), self.ca.map(place));
        let key = identity.as_ref().map(|(_, key)| key);
        for secret in credentials.iter().chain(key) {
            check_private(secret)?;
        }
        for file in ca.iter().chain(identity.iter().map(|(cert, _)| cert)) {
            fs::metadata(file).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        Ok(NatsConfig { servers: self.servers, credentials, ca, identity })
    }
}

/// A file with a secret is there, and other users cannot read it.
fn check_private(path: &Path) -> Result<(), String> {
    const OTHERS: u32 = 0o077;
    let place = path.display();
    let about = fs::metadata(path).map_err(|error| format!("{place}: {error}"))?;
    let mode = about.permissions().mode() & 0o777;
    match mode & OTHERS {
        0 => Ok(()),
        _ => Err(format!(
            "{place}: contains a secret that other users can reach (mode {mode:04o}): change its \
             owner to the user of the service (chown) and run: chmod 600 {place}"
        )),
    }
}

fn severity(key: &str, text: &str) -> Result<Severity, String> {
    text.parse().map_err(|error| format!("{key}: {error}"))
}

/// The mildest severity that is exported; `None`: nothing is.
fn least(key: &str, text: &str) -> Result<Option<Severity>, String> {
    match text {
        "none" => Ok(None),
        text => severity(key, text).map(Some),
    }
}

fn stream_name(key: &str, name: &str) -> Result<(), String> {
    let is_good = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || c == b'-';
    match (1..=64).contains(&name.len()) && name.bytes().all(is_good) {
        true => Ok(()),
        false => Err(format!("{key}: must have 1 to 64 letters, digits, '_' or '-'")),
    }
}

impl ExportFile {
    fn check(self) -> Result<ExportConfig, String> {
        if let Some(stream) = &self.stream {
            stream_name("export.stream", stream)?;
        }
        if !(1..=5).contains(&self.replicas) {
            return Err("export.replicas: must be 1 to 5".to_owned());
        }
        if self.max_bytes < 1 << 20 {
            return Err("export.max_bytes: must be at least 1048576".to_owned());
        }
        let elsewhere = least("export.severity", &self.severity)?;
        let space = |entry: SpaceFile| {
            let key = "export.space";
            let space = EventSpace::new(&entry.space).map_err(|error| format!("{key}: {error}"))?;
            Ok((space.as_str().to_owned(), least(key, &entry.severity)?))
        };
        let spaces = self.space.into_iter().map(space).collect::<Result<_, String>>()?;
        Ok(ExportConfig {
            stream: self.stream,
            replicas: self.replicas,
            max_bytes: self.max_bytes,
            max_age: self.max_age,
            choice: Choice { spaces, elsewhere },
        })
    }
}

impl ImportFile {
    fn check(self, folder: &Path) -> Result<ImportConfig, String> {
        stream_name("import.stream", &self.stream)?;
        let first = self.subject.split('.').next().unwrap_or_default();
        if ["", "*", ">", "ftb"].contains(&first) || self.subject.contains([' ', '{']) {
            return Err("import.subject: must be a subject that does not begin with ftb or a \
                        wildcard"
                .to_owned());
        }
        if self.rule.is_empty() || self.rule.len() > RULES_MAX {
            return Err(format!("import.rule: 1 to {RULES_MAX} rules are needed"));
        }
        let rules = self.rule.into_iter().map(RuleFile::check).collect::<Result<_, _>>()?;
        let path = folder.join(&self.racks);
        let racks =
            read_racks(&path).map_err(|problem| format!("{}: {problem}", path.display()))?;
        Ok(ImportConfig { stream: self.stream, subject: self.subject, rules, racks })
    }
}

impl OtlpFile {
    fn check(self, folder: &Path) -> Result<OtlpConfig, String> {
        let wrong = || "otlp.url: expected an address like http://127.0.0.1:4318".to_owned();
        let url: Uri = self.url.parse().map_err(|_| wrong())?;
        let Some(authority) = url.authority() else { return Err(wrong()) };
        if authority.as_str().contains('@') {
            return Err("otlp.url: no user or password may be in it".to_owned());
        }
        let Some(scheme @ ("http" | "https")) = url.scheme_str() else { return Err(wrong()) };
        let ca = self.ca.map(|path| folder.join(path));
        if ca.is_some() && scheme == "http" {
            return Err("otlp.ca: needs an address with https".to_owned());
        }
        if let Some(file) = &ca {
            fs::metadata(file).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        match url.path() {
            "" | "/" => {
                let place = format!("{scheme}://{authority}{TRACES_PATH}");
                Ok(OtlpConfig { url: place.parse().map_err(|_| wrong())?, ca })
            }
            _ => Ok(OtlpConfig { url, ca }),
        }
    }
}

impl RuleFile {
    fn check(self) -> Result<Rule, String> {
        let wrong = |why: String| format!("import.rule of {:?}: {why}", self.subject);
        let pattern =
            Pattern::parse(&self.subject).map_err(|why| wrong(format!("subject {why}")))?;
        let name = |text: &str| EventName::new(text).map_err(|error| wrong(error.to_string()));
        let key = self.condition.as_deref().map(name).transpose()?;
        if self.clear && key.is_none() {
            return Err(wrong("clear needs a condition".to_owned()));
        }
        let action = match &self.action {
            None => RecommendedAction::None,
            Some(word) => word
                .parse()
                .map_err(|error: ftb_client::ConditionError| wrong(error.to_string()))?,
        };
        Ok(Rule {
            pattern,
            event: name(&self.event)?,
            severity: severity("severity", &self.severity).map_err(wrong)?,
            key,
            truth: if self.clear { Truth::False } else { Truth::True },
            action,
        })
    }
}

/// The file of racks: `rack = "host list"`.
fn read_racks(path: &Path) -> Result<BTreeMap<String, Vec<String>>, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let file: BTreeMap<String, String> = read_toml(&text)?;
    if file.is_empty() {
        return Err("must have at least one rack".to_owned());
    }
    let hosts_of = |(rack, list): (String, Hostlist)| match list.len() {
        1..=RACK_HOSTS_MAX => Ok((rack, list.iter().collect())),
        _ => Err(format!("rack {rack}: must have 1 to {RACK_HOSTS_MAX} hosts")),
    };
    racks::check(&file)?.into_iter().map(hosts_of).collect()
}

#[cfg(test)]
mod tests;
