//! The configuration: BMCs, their nodes, and rules. All checks are made here, before any BMC is
//! opened.

use crate::bmc::{CipherSuite, DeviceConfig, LanConfig, Protocol, Target};
use crate::rules::{RULES_MAX, Rule};
use ftb_core::hostlist::Hostlist;
use serde::Deserialize;
use std::fmt;
use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Default interval of polls, and of reads of event logs.
const INTERVAL: Duration = Duration::from_secs(5);
/// Default interval after which a lasting fault is published again.
const RESTATE: Duration = Duration::from_secs(600);
/// Shortest poll interval. Shorter ones overload BMCs.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Most BMCs of one process.
const TARGETS_MAX: usize = 4096;
/// Largest configuration file in bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Environment variable with the password, for targets without one in the configuration.
pub const PASSWORD_ENV: &str = "FTB_IPMI_PASSWORD";
/// First number of the accounts of people.
const ORDINARY_UID_MIN: u32 = 1_000;
/// Accounts that systemd makes for services (`DynamicUser=`).
const DYNAMIC_UIDS: RangeInclusive<u32> = 61_184..=65_519;
/// UDP port of RMCP.
const PORT: u16 = 623;

/// Why a configuration is rejected: one line with place and problem.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

fn wrong(place: impl fmt::Display, problem: impl fmt::Display) -> ConfigError {
    ConfigError(format!("{place}: {problem}"))
}

/// A BMC and its node.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchedNode {
    /// Host name of the node.
    pub node: String,
    /// Address of the BMC.
    pub target: Target,
}

/// A checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Interval of polls of each BMC.
    pub interval: Duration,
    /// Interval of reads of the event log; zero means never.
    pub sel_interval: Duration,
    /// Interval after which a lasting fault is published again; zero means never.
    pub restate: Duration,
    /// Folder of bookmarks of event logs. Without it, entries during a restart are missed.
    pub state_dir: Option<PathBuf>,
    /// Socket of the agent; `None` for the default of the client library.
    pub agent_socket: Option<PathBuf>,
    /// The BMCs.
    pub nodes: Vec<WatchedNode>,
    /// The rules, those of included files first.
    pub rules: Vec<Rule>,
    /// Missing passwords, one line each. `--check-config` rejects them; the daemon only logs them.
    pub concerns: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    #[serde(with = "humantime_serde")]
    interval: Duration,
    #[serde(with = "humantime_serde")]
    sel_interval: Duration,
    #[serde(with = "humantime_serde")]
    restate: Duration,
    state_dir: Option<PathBuf>,
    agent_socket: Option<PathBuf>,
    /// Of older releases: `agent_socket` counts before it.
    agent: Agent,
    rules: Vec<PathBuf>,
    target: Vec<TargetFile>,
    rule: Vec<Rule>,
}

impl Default for File {
    fn default() -> Self {
        Self {
            interval: INTERVAL,
            sel_interval: INTERVAL,
            restate: RESTATE,
            state_dir: None,
            agent_socket: None,
            agent: Agent::default(),
            rules: Vec::new(),
            target: Vec::new(),
            rule: Vec::new(),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Agent {
    socket: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    #[serde(default)]
    rule: Vec<Rule>,
}

/// `[[target]]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetFile {
    /// Device file, or a host list of BMCs with an optional port (default: 623).
    pub bmc: String,
    /// Host list of the nodes, in the order of the BMCs; default: this host, for one BMC.
    pub node: Option<String>,
    /// User name.
    #[serde(default)]
    pub user: String,
    /// The password.
    pub password: Option<String>,
    /// File whose first line is the password.
    pub password_file: Option<PathBuf>,
    /// The key of the BMCs (K_G), if they have one.
    pub group_key: Option<String>,
    /// `rmcp+` (default) or `ipmi-1.5`.
    pub protocol: Option<String>,
    /// 3 or 17; default: 17, then 3.
    pub cipher_suite: Option<u8>,
    /// `user`, `operator` or `administrator`.
    pub privilege: Option<String>,
    /// Wait for an answer, before the request is sent again.
    #[serde(default, with = "humantime_serde::option")]
    pub timeout: Option<Duration>,
    /// How many times a request is sent again.
    pub retries: Option<u32>,
}

impl Config {
    /// Reads and checks a file and its rule files.
    ///
    /// # Errors
    /// [`ConfigError`], one line with file, line and problem.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = read(path)?;
        let file: File = parse(path, &text)?;
        let place = path.display();
        let mut rules = Vec::new();
        for included in &file.rules {
            let included = path.parent().unwrap_or(Path::new("")).join(included);
            let text = read(&included)?;
            let file: RuleFile = parse(&included, &text)?;
            check_rules(&included, &file.rule)?;
            rules.extend(file.rule);
        }
        check_rules(path, &file.rule)?;
        rules.extend(file.rule);
        if rules.len() > RULES_MAX {
            return Err(wrong(place, format!("more than {RULES_MAX} rules")));
        }
        if file.target.is_empty() {
            let problem = "no [[target]]: add at least one BMC, such as bmc = \"/dev/ipmi0\"";
            return Err(wrong(place, problem));
        }
        let (mut nodes, mut concerns) = (Vec::new(), Vec::new());
        for target in &file.target {
            if let Some(problem) = target.public_secret(path) {
                return Err(ConfigError(problem));
            }
            concerns.extend(target.missing_password(Some(path)));
            nodes.extend(target.expand().map_err(|problem| wrong(path.display(), problem))?);
        }
        let config = Self {
            interval: file.interval,
            sel_interval: file.sel_interval,
            restate: file.restate,
            state_dir: file.state_dir,
            agent_socket: file.agent_socket.or(file.agent.socket),
            nodes,
            rules,
            concerns,
        };
        config.check().map_err(|problem| wrong(path.display(), problem))?;
        Ok(config)
    }

    /// The configuration for one target of the command line.
    ///
    /// # Errors
    /// [`ConfigError`] with the option and the problem.
    pub fn of_target(target: &TargetFile) -> Result<Self, ConfigError> {
        let nodes = target.expand().map_err(|problem| wrong("--bmc", problem))?;
        let config = Self {
            interval: INTERVAL,
            sel_interval: INTERVAL,
            restate: RESTATE,
            state_dir: None,
            agent_socket: None,
            nodes,
            rules: Vec::new(),
            concerns: target.missing_password(None).into_iter().collect(),
        };
        config.check().map_err(|problem| wrong("--bmc", problem))?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        if self.interval < INTERVAL_MIN {
            return Err(format!("interval must be at least {} ms", INTERVAL_MIN.as_millis()));
        }
        if self.nodes.len() > TARGETS_MAX {
            return Err(format!("more than {TARGETS_MAX} BMCs"));
        }
        let mut names: Vec<_> = self.nodes.iter().map(|n| n.node.to_ascii_lowercase()).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("node {:?} has two BMCs", pair[0])),
            None => Ok(()),
        }
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let place = path.display();
    let metadata = fs::metadata(path).map_err(|error| wrong(&place, error))?;
    if metadata.len() > FILE_BYTES_MAX {
        return Err(wrong(place, format!("larger than {FILE_BYTES_MAX} bytes")));
    }
    fs::read_to_string(path).map_err(|error| wrong(place, error))
}

fn parse<T: serde::de::DeserializeOwned>(path: &Path, text: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| {
        let line = ftb_core::text::line(text, error.span().map_or(0, |span| span.start));
        let message = error.message().replace('\n', " ");
        wrong(format!("{}, line {line}", path.display()), message)
    })
}

fn check_rules(path: &Path, rules: &[Rule]) -> Result<(), ConfigError> {
    for (index, rule) in rules.iter().enumerate() {
        if let Some(problem) = rule.problem() {
            let place = format!("{}, rule {} ({})", path.display(), index + 1, rule.describe());
            return Err(wrong(place, problem));
        }
    }
    Ok(())
}

impl TargetFile {
    fn expand(&self) -> Result<Vec<WatchedNode>, String> {
        let bmc = self.bmc.trim();
        if bmc.is_empty() {
            return Err("bmc is empty: set a device or a host".to_owned());
        }
        if bmc.starts_with('/') {
            let node = self.nodes(1)?.remove(0);
            let timeout = self.timeout()?;
            let deadline = timeout * (self.retries()? + 1);
            let target = Target::Device(DeviceConfig { path: bmc.into(), deadline });
            return Ok(vec![WatchedNode { node, target }]);
        }
        let (hosts, port) = split_port(bmc)?;
        let lan = self.lan(port)?;
        let nodes = self.nodes(hosts.len())?;
        let pair = |(host, node)| WatchedNode {
            node,
            target: Target::Lan(LanConfig { host, ..lan.clone() }),
        };
        Ok(hosts.into_iter().zip(nodes).map(pair).collect())
    }

    fn nodes(&self, count: usize) -> Result<Vec<String>, String> {
        let Some(list) = &self.node else {
            if count > 1 {
                return Err(format!(
                    "{:?}: node is missing: set the host list of the nodes",
                    self.bmc
                ));
            }
            let host = nix::unistd::gethostname().map_err(|error| format!("host name: {error}"))?;
            return Ok(vec![host.to_string_lossy().into_owned()]);
        };
        let nodes = Hostlist::parse(list).map_err(|error| format!("node {list:?}: {error}"))?;
        if nodes.len() != count {
            return Err(format!(
                "bmc {:?} has {count} hosts, node {list:?} has {}: both need the same number",
                self.bmc,
                nodes.len()
            ));
        }
        Ok(nodes.iter().collect())
    }

    fn timeout(&self) -> Result<Duration, String> {
        let timeout = self.timeout.unwrap_or(Duration::from_secs(1));
        match timeout {
            t if t < Duration::from_millis(10) => Err("timeout must be at least 10ms".to_owned()),
            t if t > Duration::from_secs(60) => Err("timeout must be at most 60s".to_owned()),
            t => Ok(t),
        }
    }

    fn retries(&self) -> Result<u32, String> {
        match self.retries.unwrap_or(2) {
            retries if retries > 20 => Err("retries must be at most 20".to_owned()),
            retries => Ok(retries),
        }
    }

    fn lan(&self, port: u16) -> Result<LanConfig, String> {
        let protocol = self.protocol()?;
        let password = self.password()?;
        let bound = protocol.password_bytes_max();
        if password.len() > bound {
            return Err(format!("the password of {:?} has more than {bound} bytes", self.bmc));
        }
        if self.user.len() > ftb_rmcp::USER_BYTES_MAX {
            let max = ftb_rmcp::USER_BYTES_MAX;
            return Err(format!("user {:?} has more than {max} bytes", self.user));
        }
        let group_key = self.group_key.clone().map(String::into_bytes);
        if group_key.as_ref().is_some_and(|key| key.is_empty() || key.len() > 20) {
            return Err("group_key must have 1 to 20 bytes".to_owned());
        }
        let privilege = match self.privilege.as_deref() {
            None | Some("user") => 2,
            Some("operator") => 3,
            Some("administrator") => 4,
            Some(other) => {
                return Err(format!(
                    "unknown privilege {other:?}: expected user, operator or administrator"
                ));
            }
        };
        Ok(LanConfig {
            host: String::new(),
            port,
            user: self.user.clone(),
            password,
            group_key,
            privilege,
            protocol,
            timeout: self.timeout()?,
            retries: self.retries()?,
        })
    }

    fn protocol(&self) -> Result<Protocol, String> {
        let suite = match self.cipher_suite {
            None => None,
            Some(3) => Some(CipherSuite::Three),
            Some(17) => Some(CipherSuite::Seventeen),
            Some(other) => {
                return Err(format!("unsupported cipher_suite {other}: expected 3 or 17"));
            }
        };
        match (self.protocol.as_deref(), suite) {
            (Some("ipmi-1.5"), None) => Ok(Protocol::Ipmi15),
            (Some("ipmi-1.5"), Some(_)) => {
                Err("cipher_suite requires protocol = \"rmcp+\"".to_owned())
            }
            (None | Some("rmcp+"), Some(suite)) => Ok(Protocol::RmcpPlus([Some(suite), None])),
            (None | Some("rmcp+"), None) => Ok(Protocol::RMCP_PLUS),
            (Some(other), _) => {
                Err(format!("unknown protocol {other:?}: expected rmcp+ or ipmi-1.5"))
            }
        }
    }

    fn password(&self) -> Result<String, String> {
        match (&self.password, &self.password_file) {
            (Some(_), Some(_)) => Err("password and password_file: set only one".to_owned()),
            (Some(password), None) => Ok(password.clone()),
            (None, Some(path)) => {
                let text = fs::read_to_string(path)
                    .map_err(|error| format!("password_file {}: {error}", path.display()))?;
                Ok(text.lines().next().unwrap_or_default().to_owned())
            }
            (None, None) => Ok(std::env::var(PASSWORD_ENV).unwrap_or_default()),
        }
    }

    fn is_device(&self) -> bool {
        self.bmc.trim().starts_with('/')
    }

    /// The problem of a file with a secret that other users can read; `path` is the configuration.
    fn public_secret(&self, path: &Path) -> Option<String> {
        let is_secret = |secret: &Option<String>| secret.as_ref().is_some_and(|s| !s.is_empty());
        let holds_secret = is_secret(&self.password) || is_secret(&self.group_key);
        let files = [Some(path).filter(|_| holds_secret), self.password_file.as_deref()];
        let files = files.into_iter().filter(|_| !self.is_device());
        files.flatten().find_map(public_secret)
    }

    /// That no password is set; `path` is the configuration file.
    fn missing_password(&self, path: Option<&Path>) -> Option<String> {
        // The password "" is set on purpose.
        let is_missing = !self.is_device()
            && self.password.is_none()
            && self.password().is_ok_and(|password| password.is_empty());
        let place = self.password_file.as_deref().or(path);
        let place = place.map_or(String::new(), |place| format!("{}: ", place.display()));
        is_missing.then(|| {
            format!(
                "{place}no password for bmc {:?}: set password_file or {PASSWORD_ENV}, or \
                 password = \"\" if the BMC needs none",
                self.bmc
            )
        })
    }
}

/// The problem of a file with a secret that is not private: its owner alone may use it, and that is
/// root or the user of this process.
fn public_secret(path: &Path) -> Option<String> {
    const OTHERS: u32 = 0o077;
    let about = fs::metadata(path).ok()?;
    let (mode, owner) = (about.permissions().mode() & 0o777, about.uid());
    let own = nix::unistd::geteuid().as_raw();
    let place = path.display();
    if mode & OTHERS != 0 {
        return Some(format!(
            "{place}: contains a password that other users can read or change (mode {mode:04o}): \
             make the user of the service its owner (chown) and run: chmod 600 {place}"
        ));
    }
    (!may_own(owner, own)).then(|| {
        format!(
            "{place}: contains a password and belongs to user {owner} (mode {mode:04o}), who can \
             change it: make root or the user of the service its owner (chown), mode 600"
        )
    })
}

/// Whether a file with a secret may belong to a user. Root checks files of the service too.
fn may_own(owner: u32, own: u32) -> bool {
    let is_service = owner < ORDINARY_UID_MIN || DYNAMIC_UIDS.contains(&owner);
    owner == 0 || owner == own || own == 0 && is_service
}

/// Splits `host[1-3]:9001`. An IPv6 address with a port needs brackets.
fn split_port(bmc: &str) -> Result<(Vec<String>, u16), String> {
    if let Ok(address) = bmc.parse::<std::net::SocketAddr>() {
        return Ok((vec![address.ip().to_string()], address.port()));
    }
    if let Ok(address) = bmc.parse::<std::net::IpAddr>() {
        return Ok((vec![address.to_string()], PORT));
    }
    let (hosts, port) = match bmc.rsplit_once(':') {
        None => (bmc, PORT),
        Some((hosts, digits)) => match digits.parse() {
            Ok(port) if port > 0 => (hosts, port),
            _ => return Err(format!("bmc {bmc:?}: {digits:?} is not a port")),
        },
    };
    let list = Hostlist::parse(hosts).map_err(|error| format!("bmc {hosts:?}: {error}"))?;
    Ok((list.iter().collect(), port))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::rules::Policy;

    fn load(text: &str) -> Result<Config, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ipmi.toml");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(dir.path().join("board.toml"), "[[rule]]\nname = 'x*'\noptional = true\n")
            .unwrap();
        Config::load(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn two_host_lists_describe_a_rack() {
        let config = load(
            "interval = '2s'\nrules = ['board.toml']\n[[target]]\nbmc = 'bmc[001-064]:9001'\n\
             node = 'node[001-064]'\nuser = 'ftb'\npassword = 'secret'\ncipher_suite = 3\n\
             [[rule]]\ntype = 'fan'\ndebounce = 3\n",
        )
        .unwrap();
        assert_eq!((config.nodes.len(), config.rules.len()), (64, 2));
        assert_eq!(config.nodes[63].node, "node064");
        let Target::Lan(lan) = &config.nodes[63].target else { panic!() };
        assert_eq!((lan.host.as_str(), lan.port), ("bmc064", 9001));
        assert_eq!(lan.protocol, Protocol::RmcpPlus([Some(CipherSuite::Three), None]));
        assert!(!format!("{lan:?}").contains("secret"));
    }

    #[test]
    fn every_error_is_one_line_with_place_and_problem() {
        let rack = "[[target]]\nbmc = 'b[1-2]'\nnode = ";
        for (text, expected) in [
            ("intervall = '1s'\n", "line 1: unknown field `intervall`"),
            ("\n[[target]]\nbmc = 'b'\nuzer = 'x'\n", "line 4: unknown field `uzer`"),
            ("interval = '1 parsec'\n", "line 1"),
            ("interval = '1ms'\n[[target]]\nbmc = 'b'\n", "at least 100 ms"),
            ("", "no [[target]]"),
            (&format!("{rack}'n[1-3]'"), "has 2 hosts, node \"n[1-3]\" has 3"),
            (&format!("{rack}'n[1-'"), "column"),
            ("[[target]]\nbmc = 'b[1-2]'\n", "node is missing"),
            ("[[target]]\nbmc = 'b'\nnode='n'\n[[target]]\nbmc='c'\nnode='N'\n", "two BMCs"),
            ("[[target]]\nbmc = 'b'\ncipher_suite = 7\n", "unsupported cipher_suite 7"),
            ("[[target]]\nbmc = 'b'\nprotocol = 'x'\n", "expected rmcp+ or ipmi-1.5"),
            ("[[target]]\nbmc = 'b'\nprotocol = 'auto'\n", "unknown protocol \"auto\""),
            ("[[target]]\nbmc = 'b:x'\n", "is not a port"),
            ("[[target]]\nbmc = 'b'\npassword = '123456789012345678901'\n", "20 bytes"),
            ("[[target]]\nbmc = 'b'\n[[rule]]\nname='x'\ndebounce=0\n", "rule 1"),
            ("rules = ['none.toml']\n[[target]]\nbmc = 'b'\n", "none.toml"),
        ] {
            let error = load(text).unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error:?} lacks {expected:?}");
            assert!(!error.contains('\n'), "{error:?}");
        }
    }

    #[test]
    fn a_public_password_is_refused_and_a_missing_one_reported() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str, mode: u32, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        at("private", 0o600, "secret\n");
        at("shared", 0o640, "secret\n");
        at("public", 0o604, "secret\n");
        at("writable", 0o620, "secret\n");
        at("empty", 0o600, "\n");
        let file = |name: &str| format!("password_file = '{}'", dir.path().join(name).display());
        let open = "password = 'secret'".to_owned();
        for (mode, line, expected) in [
            (0o644, file("private"), None),
            (0o600, open.clone(), None),
            (0o644, "password = ''".to_owned(), None),
            (0o644, "group_key = 'x'\npassword = ''".to_owned(), Some("(mode 0644)")),
            (0o644, open.clone(), Some("ipmi.toml: contains a password that other users can read")),
            (0o640, open, Some("(mode 0640)")),
            (0o600, file("shared"), Some("shared: contains a password")),
            (0o600, file("public"), Some("chmod 600")),
            (0o600, file("writable"), Some("writable: contains a password")),
            (0o600, file("empty"), Some("empty: no password for bmc \"b\"")),
            (0o600, String::new(), Some("ipmi.toml: no password for bmc \"b\"")),
        ] {
            let path = at("ipmi.toml", mode, &format!("[[target]]\nbmc = 'b'\n{line}\n"));
            let is_public = expected.is_some_and(|text| !text.contains("no password"));
            let problems = match Config::load(&path) {
                Ok(config) if !is_public => config.concerns,
                Err(error) if is_public => vec![error.to_string()],
                other => panic!("{line} with mode {mode:o}: {other:?}"),
            };
            assert_eq!(problems.len(), usize::from(expected.is_some()), "{line}: {problems:?}");
            let found = problems.first().map_or("", String::as_str);
            assert!(found.contains(expected.unwrap_or_default()), "{line}: {found}");
        }
        let path = at("ipmi.toml", 0o644, "[[target]]\nbmc = '/dev/ipmi0'\n");
        assert_eq!(Config::load(&path).unwrap().concerns, [""; 0], "a device needs no password");
    }

    #[test]
    fn a_password_belongs_to_root_or_to_the_user_of_the_process() {
        let (own, other, dynamic) = (992, 1_001, 61_200);
        assert!(may_own(0, own) && may_own(own, own) && !may_own(other, own));
        assert!(!may_own(991, own), "another daemon");
        assert!(may_own(own, 0) && may_own(dynamic, 0) && !may_own(other, 0), "checked by root");
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (path, secret) = (dir.path().join("ipmi.toml"), dir.path().join("bmc.password"));
        fs::write(&secret, "secret\n").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let text = format!("[[target]]\nbmc = 'b'\npassword_file = '{}'\n", secret.display());
        fs::write(&path, text).unwrap();
        assert!(Config::load(&path).is_ok());
        std::os::unix::fs::chown(&secret, Some(other), None).unwrap();
        let error = Config::load(&path).unwrap_err().to_string();
        let place = secret.display();
        let expected = "belongs to user 1001 (mode 0600), who can change it";
        assert!(error.starts_with(&format!("{place}: ")) && error.contains(expected), "{error}");
    }

    #[test]
    fn the_samples_are_valid_with_and_without_their_examples() {
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/config");
        let config = Config::load(&deploy.join("ipmi.toml")).unwrap();
        assert_eq!(
            (config.interval, config.sel_interval, config.restate),
            (INTERVAL, INTERVAL, RESTATE)
        );
        for entry in fs::read_dir(deploy.join("ipmi-rules")).unwrap() {
            let path = entry.unwrap().path();
            let file: RuleFile = parse(&path, &fs::read_to_string(&path).unwrap()).unwrap();
            check_rules(&path, &file.rule).unwrap();
            assert!(file.rule.iter().all(|rule| rule.optional), "{}", path.display());
        }
        let sample = fs::read_to_string(deploy.join("ipmi.toml")).unwrap();
        let all = ftb_tests::samples::with_all_keys(&sample);
        let with_examples: String = all
            .lines()
            .filter(|line| !line.contains("rules = [") && !line.contains("password_file"))
            .map(|line| format!("{line}\n"))
            .collect();
        let with_examples = with_examples.replace("\"\"", "\"key\"");
        let config = load(&with_examples).unwrap();
        assert_eq!(config.nodes.len(), 65);
        // The key's name in older releases.
        let new = "agent_socket = \"/run/ftb/agent.sock\"\n";
        let old = format!("{}[agent]\nsocket = \"/a\"\n", with_examples.replace(new, ""));
        let sockets = [&config, &load(&old).unwrap()].map(|config| config.agent_socket.clone());
        assert_eq!(sockets, [Some("/run/ftb/agent.sock".into()), Some("/a".into())]);
    }

    proptest::proptest! {
        /// Any text is a valid configuration or an error of one line.
        #[test]
        fn any_text_is_a_configuration_or_one_line_of_error(
            lines in proptest::collection::vec(
                "(interval|restate|sel_interval) = \"[0-9]{1,9}(ms|s|h)\"|\
                 (bmc|node) = \"[a-z/]{0,3}(\\[[0-9,-]{0,5}\\])?(:[0-9]{0,6})?\"|\
                 (cipher_suite|retries|debounce|clear_after) = -?[0-9]{1,5}|\
                 (lower_critical|upper_critical|hysteresis) = (-?[0-9]{1,3}\\.[0-9]|nan|inf)|\
                 (name|entity|type|severity|treat_as) = \"([a-z?*.0-9]{0,6}|fan|error)\"|\
                 bad_states = \\[[0-9]{1,3}\\]|predict(_over)? = \"[0-9]{1,5}s\"|\
                 \\[\\[(rule|target)\\]\\]|\\[\\[rule\\]\\]\nname = \"[a-z*?]{1,4}\"|.{0,30}",
                0..8,
            ),
            has_head in proptest::bool::ANY,
        ) {
            let head = "[[target]]\nbmc = \"b\"\n[[rule]]\ntype = \"fan\"\n";
            let head = if has_head { head } else { "" };
            match load(&format!("{head}{}", lines.join("\n"))) {
                Err(error) => proptest::prop_assert_eq!(error.lines().count(), 1, "{}", error),
                Ok(config) => {
                    let policy = Policy::of(&crate::sdr::tests::fan(), &config.rules);
                    proptest::prop_assert!(policy.debounce > 0 && policy.clear_after > 0);
                    let limits = [policy.lower_critical, policy.upper_critical, policy.hysteresis];
                    proptest::prop_assert!(limits.iter().flatten().all(|limit| limit.is_finite()));
                }
            }
        }
    }

    #[test]
    fn a_device_belongs_to_this_host_and_hosts_may_have_ports() {
        let config = load("[[target]]\nbmc = '/dev/ipmi0'\n").unwrap();
        assert!(matches!(config.nodes[0].target, Target::Device(_)));
        assert!(!config.nodes[0].node.is_empty());
        assert_eq!(split_port("10.0.0.1:9001"), Ok((vec!["10.0.0.1".into()], 9001)));
        assert_eq!(split_port("[fe80::1]:9001"), Ok((vec!["fe80::1".into()], 9001)));
        assert_eq!(split_port("fe80::1"), Ok((vec!["fe80::1".into()], 623)));
        assert_eq!(split_port("b[1-2]"), Ok((vec!["b1".into(), "b2".into()], 623)));
    }
}
