//! The configuration file: format, defaults and checks.

use crate::rules::Rules;
use ftb_client::daemon::{Failure, config_path, load_config};
use ftb_core::Severity;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The default configuration file, if it exists.
const PATH: &str = "/etc/ftb/slurm.toml";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    /// `agent` is its name in older releases.
    #[serde(alias = "agent")]
    agent_socket: Option<PathBuf>,
    state: PathBuf,
    scontrol: PathBuf,
    sinfo: PathBuf,
    #[serde(with = "humantime_serde")]
    poll: Duration,
    #[serde(with = "humantime_serde")]
    settle: Duration,
    severity: String,
    conditions: Vec<String>,
    ignore: Vec<String>,
    drained_percent_max: u32,
    observe: bool,
}

impl Default for File {
    fn default() -> Self {
        Self {
            agent_socket: None,
            state: "/var/lib/ftb-slurm".into(),
            scontrol: "scontrol".into(),
            sinfo: "sinfo".into(),
            poll: Duration::from_secs(10),
            settle: Duration::from_millis(100),
            severity: "error".to_owned(),
            conditions: Vec::new(),
            ignore: vec!["CERTIFICATE_EXPIRES".to_owned()],
            drained_percent_max: 25,
            observe: false,
        }
    }
}

/// A checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Socket of the agent; `None` for the default.
    pub agent: Option<PathBuf>,
    /// The folder of the state.
    pub state: PathBuf,
    /// The program that reads and changes nodes.
    pub scontrol: PathBuf,
    /// The program that reads them before Slurm 23.02.
    pub sinfo: PathBuf,
    /// Interval of readings without a changed condition.
    pub poll: Duration,
    /// How long further conditions are awaited before a call, so that one call has all hosts.
    pub settle: Duration,
    /// Which conditions drain.
    pub rules: Rules,
    /// Only log what would be done.
    pub is_observer: bool,
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// Bad input: the file and the problem.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        load_config(path, Self::parse)
    }

    /// Reads and checks a file, the default one, or none if there is none.
    ///
    /// # Errors
    /// Bad input: the file and the problem.
    pub fn load_or_default(named: Option<&Path>) -> Result<Self, Failure> {
        match config_path(named, PATH) {
            Some(path) => Self::load(path),
            None => Self::parse("").map_err(Failure::bad_input),
        }
    }

    /// Reads and checks a text.
    ///
    /// # Errors
    /// The problem, with its line or key.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| {
            let line = ftb_core::text::line(text, error.span().map_or(0, |span| span.start));
            format!("line {line}: {}", error.message().replace('\n', " "))
        })?;
        let severity: Severity =
            file.severity.parse().map_err(|error| format!("severity: {error}"))?;
        for (key, value, least_ms, most_s) in
            [("poll", file.poll, 1_000, 3_600), ("settle", file.settle, 1, 10)]
        {
            let range = Duration::from_millis(least_ms)..=Duration::from_secs(most_s);
            if !range.contains(&value) {
                return Err(format!("{key}: must be {least_ms}ms to {most_s}s"));
            }
        }
        if !(1..=100).contains(&file.drained_percent_max) {
            return Err("drained_percent_max: must be 1 to 100".to_owned());
        }
        let upper = |keys: &[String]| keys.iter().map(|key| key.to_ascii_uppercase()).collect();
        let (conditions, ignored) = (upper(&file.conditions), upper(&file.ignore));
        let drained_percent_max = file.drained_percent_max;
        Ok(Self {
            agent: file.agent_socket,
            state: file.state,
            scontrol: file.scontrol,
            sinfo: file.sinfo,
            poll: file.poll,
            settle: file.settle,
            rules: Rules { severity, conditions, ignored, drained_percent_max },
            is_observer: file.observe,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Config;

    #[test]
    fn the_sample_shows_the_defaults() {
        let sample = include_str!("../../deploy/config/slurm.toml");
        let defaults = Config::parse("");
        assert!(defaults.is_ok(), "{defaults:?}");
        assert_eq!(Config::parse(sample), defaults);
        let shown = ftb_tests::samples::with_all_keys(sample);
        let agent = Some("/run/ftb/agent.sock".into());
        assert_eq!(Config::parse(&shown), defaults.map(|config| Config { agent, ..config }));
        // The key's name in older releases.
        assert_eq!(Config::parse("agent = \"/a\""), Config::parse("agent_socket = \"/a\""));
    }

    #[test]
    fn a_mistake_is_named_with_its_place() {
        let problem = |text: &str| Config::parse(text).expect_err(text);
        assert!(problem("\npol = \"1s\"").starts_with("line 2: unknown field `pol`"));
        assert_eq!(problem("poll = \"1ms\""), "poll: must be 1000ms to 3600s");
        assert_eq!(problem("drained_percent_max = 0"), "drained_percent_max: must be 1 to 100");
        assert!(problem("severity = \"bad\"").starts_with("severity: "));
    }
}
