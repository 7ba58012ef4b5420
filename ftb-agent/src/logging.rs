//! The log on standard error, as text or JSON; text has [fields](ftb_log) if standard error is the
//! systemd journal. One line of target `ftb::transition` is one state transition. A reload changes
//! the level.

use serde::Deserialize;
use std::io::IsTerminal as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

/// `[log]` of the configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// `text` (default; with fields in the systemd journal) or `json`.
    pub format: LogFormat,
    /// The level in tracing's filter syntax: `info` (default), `warn`, or for example
    /// `warn,ftb::transition=info`. The environment variable `FTB_LOG` overrides it.
    pub level: LogFilter,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: LogFilter("info".to_owned()) }
    }
}

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// A checked filter of the log.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct LogFilter(String);

impl TryFrom<String> for LogFilter {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.parse::<EnvFilter>() {
            Ok(_) => Ok(Self(text)),
            Err(error) => Err(format!("{text:?} is no log level: {error}")),
        }
    }
}

/// Changes the level of a running log.
pub struct LogHandle(reload::Handle<EnvFilter, Registry>);

impl LogHandle {
    /// Applies a changed configuration, except the format.
    pub fn apply(&self, config: &LogConfig) {
        if let Err(error) = self.0.reload(filter(config)) {
            tracing::error!(%error, "cannot change the log level");
        }
    }
}

fn filter(config: &LogConfig) -> EnvFilter {
    EnvFilter::try_from_env("FTB_LOG")
        .or_else(|_| EnvFilter::try_new(&config.level.0))
        .unwrap_or_else(|_| EnvFilter::new("info"))
}

/// Starts the log of the process of this host. A second call changes nothing and says so.
///
/// # Errors
/// There is a log already.
pub fn start(config: &LogConfig, host: &str) -> anyhow::Result<LogHandle> {
    let (level, handle) = reload::Layer::new(filter(config));
    let registry = tracing_subscriber::registry().with(level);
    let is_text = config.format == LogFormat::Text;
    if let Some(journal) = is_text.then(|| ftb_log::journal_layers(host)).flatten() {
        registry.with(journal).try_init()?;
        return Ok(LogHandle(handle));
    }
    match config.format {
        LogFormat::Text => {
            // Colours are for people at a terminal, never for files and journals.
            let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            let layer = fmt::layer().with_writer(std::io::stderr).with_ansi(colours);
            registry.with(layer).try_init()?;
        }
        LogFormat::Json => {
            registry.with(fmt::layer().json().with_writer(std::io::stderr)).try_init()?;
        }
    }
    Ok(LogHandle(handle))
}
