//! Logs, signals, systemd and exit codes for the `main` of daemons that are clients of an agent.
//! `ftb-agent` has its own; launcher and launch agent use logs and exit codes only.
//!
//! A daemon's `main.rs` then reads as its table of contents:
//!
//! ```no_run
//! use ftb_client::daemon::{self, Failure, LogSettings};
//!
//! fn main() -> std::process::ExitCode {
//!     daemon::exit("ftb-example", run())
//! }
//!
//! fn run() -> Result<(), Failure> {
//!     LogSettings::from_env()?.install()?;
//!     daemon::serve("ftb-example", None, async |client, stop| {
//!         daemon::notify_ready("watching");
//!         stop.await;
//!         Ok(())
//!     })
//! }
//! ```
//!
//! Responsible for: process-wide plumbing, and the beginning and end of the one client of a daemon.
//! Not responsible for: what the daemon does, the keys of its configuration file.

use crate::client::Client;
use core::fmt;
use core::pin::Pin;
use core::str::FromStr;
use core::time::Duration;
use sd_notify::NotifyState;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt as lines};

/// Environment variable with the format of the log: `text` (the default) or `json`.
pub const LOG_FORMAT_ENV: &str = "FTB_LOG_FORMAT";
/// Environment variable with what is logged, in the syntax of `tracing_subscriber::EnvFilter`
/// (`info`, `warn,ftb::transition=info`); the default is `info`.
pub const LOG_FILTER_ENV: &str = "FTB_LOG";
/// How long the end of a daemon waits until the agent confirms its last events.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);

/// Why a daemon ends: one line for people, and the exit code that tells programs whose fault it
/// was.
#[derive(Debug)]
pub struct Failure {
    exit_code: u8,
    message: String,
}

impl Failure {
    /// Wrong input: exit code [`ftb_cli::USAGE`].
    pub fn bad_input(message: impl fmt::Display) -> Self {
        Self { exit_code: ftb_cli::USAGE, message: message.to_string() }
    }

    /// It could not do its work: exit code [`ftb_cli::FAILED`].
    pub fn failed(message: impl fmt::Display) -> Self {
        Self { exit_code: ftb_cli::FAILED, message: message.to_string() }
    }

    /// No answer came: exit code [`ftb_cli::NO_ANSWER`].
    pub fn no_answer(message: impl fmt::Display) -> Self {
        Self { exit_code: ftb_cli::NO_ANSWER, message: message.to_string() }
    }

    /// The process' exit code.
    pub fn exit_code(&self) -> u8 {
        self.exit_code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Any error is a failure of the daemon's, unless it says that the input was bad. The message
/// names the causes.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            if !message.ends_with(&cause_text) {
                message = format!("{message}: {cause_text}");
            }
            source = cause.source();
        }
        Self::failed(message)
    }
}

/// Prints a failure as one line behind the program's name and gives the exit code.
pub fn exit(program: &str, result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let line = failure.message.replace('\n', " ");
            // A closed or full standard error is no reason to panic: the exit code says the rest.
            let _ = writeln!(std::io::stderr(), "{program}: {line}");
            ExitCode::from(failure.exit_code)
        }
    }
}

/// The configuration file to read: the named one, else the default one if it exists.
pub fn config_path<'a>(named: Option<&'a Path>, default: &'a str) -> Option<&'a Path> {
    named.or_else(|| Some(Path::new(default)).filter(|path| path.exists()))
}

/// Reads a configuration file.
///
/// # Errors
/// Bad input: the file, and what the system or `parse` says is wrong.
pub fn load_config<T>(
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            let sample = path.file_name().unwrap_or_default().display();
            format!("no such file: copy {sample}.sample, which explains each key, or name another")
        }
        _ => error.to_string(),
    });
    let parsed = text.and_then(|text| parse(&text));
    parsed.map_err(|problem| Failure::bad_input(format!("{}: {problem}", path.display())))
}

/// The runtime of a daemon: two threads, for what it does and for its client.
///
/// # Errors
/// The system's.
pub fn runtime() -> Result<Runtime, Failure> {
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// A client of this name of the agent at that socket; without one, of the default agent.
///
/// # Errors
/// Bad input: a limit is broken.
pub fn client(name: &str, socket: Option<&Path>) -> Result<Client, Failure> {
    let builder = Client::builder(name);
    let builder = match socket {
        Some(socket) => builder.agent(socket),
        None => builder,
    };
    builder.build().map_err(Failure::bad_input)
}

/// Ends a client. Waits up to 2 s until the agent has confirmed the last events.
pub async fn close(client: &Client) {
    if let Err(error) = client.close(CLOSE_DEADLINE).await {
        tracing::warn!(%error, "the agent did not confirm the last events");
    }
}

/// Resolves when the daemon is to stop; the service manager is notified.
pub type Stop<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Runs a daemon with its client until it ends by itself or by a signal, and closes the client.
///
/// # Errors
/// Those of `work`, [`client`] and [`runtime`].
pub fn serve(
    name: &str,
    socket: Option<&Path>,
    work: impl AsyncFnOnce(&Client, Stop<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let client = client(name, socket)?;
        let stop = async {
            signals.stop().await;
            notify_stopping();
        };
        let ended = work(&client, Box::pin(stop)).await;
        close(&client).await;
        ended
    });
    // A name server that does not answer must not hold the end up.
    runtime.shutdown_background();
    ended
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl FromStr for LogFormat {
    type Err = Failure;

    fn from_str(word: &str) -> Result<Self, Failure> {
        match word {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(Failure::bad_input(format_args!(
                "unknown log format {word:?}: expected text or json"
            ))),
        }
    }
}

/// What is logged and how. Logs go to standard error. If that is the systemd journal, text goes
/// into it with [fields](ftb_log).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// How lines look.
    pub format: LogFormat,
    /// What is logged, in the syntax of `tracing_subscriber::EnvFilter`.
    pub filter: String,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { format: LogFormat::Text, filter: "info".to_owned() }
    }
}

impl LogSettings {
    /// The defaults, changed by [`LOG_FORMAT_ENV`] and [`LOG_FILTER_ENV`].
    ///
    /// # Errors
    /// Bad input when the format is unknown.
    pub fn from_env() -> Result<Self, Failure> {
        Self::default().overridden_by_env()
    }

    /// These settings (from a configuration file), changed by the environment.
    ///
    /// # Errors
    /// Bad input when the format is unknown.
    pub fn overridden_by_env(mut self) -> Result<Self, Failure> {
        if let Ok(word) = std::env::var(LOG_FORMAT_ENV) {
            self.format = word
                .parse()
                .map_err(|why| Failure::bad_input(format_args!("{LOG_FORMAT_ENV}: {why}")))?;
        }
        if let Ok(filter) = std::env::var(LOG_FILTER_ENV) {
            self.filter = filter;
        }
        Ok(self)
    }

    /// Makes these the settings of the process. Lines for the systemd journal have no time of their
    /// own, it adds one; colours are for terminals.
    ///
    /// # Errors
    /// Bad input when the filter cannot be read; a failure when the process has logging already.
    pub fn install(&self) -> Result<(), Failure> {
        self.install_to(std::io::stderr)
    }

    /// The same for a process that writes its log itself: `writer` gives what takes one line.
    ///
    /// # Errors
    /// See [`LogSettings::install`].
    pub fn install_to<W: std::io::Write + 'static>(
        &self,
        writer: fn() -> W,
    ) -> Result<(), Failure> {
        let filter = EnvFilter::try_new(&self.filter).map_err(|why| {
            Failure::bad_input(format_args!("log filter {:?}: {why}", self.filter))
        })?;
        let registry = tracing_subscriber::registry().with(filter);
        let layer = lines::layer()
            .with_writer(writer)
            // A log that cannot be written is no reason to panic.
            .log_internal_errors(false)
            .with_ansi(std::io::stderr().is_terminal());
        let is_text = self.format == LogFormat::Text;
        let journal = is_text.then(|| ftb_log::journal_layers(&host())).flatten();
        let installed = match (journal, self.format, ftb_log::is_journal()) {
            (Some(journal), ..) => registry.with(journal).try_init(),
            (None, LogFormat::Json, _) => {
                registry.with(layer.json().flatten_event(true)).try_init()
            }
            (None, LogFormat::Text, true) => registry.with(layer.without_time()).try_init(),
            (None, LogFormat::Text, false) => registry.with(layer).try_init(),
        };
        installed.map_err(|why| Failure::failed(format_args!("logging cannot start: {why}")))
    }
}

/// The name of this host, as agents have it without a configured one.
fn host() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The signals that a daemon obeys.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Listens from now on: none of these signals kills the process any more.
    ///
    /// # Errors
    /// The system's, when no handler can be installed.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Resolves with SIGTERM or SIGINT: stop. Cancel-safe.
    pub async fn stop(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// Resolves with the next signal of any kind. Cancel-safe.
    pub async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.hangup.recv() => Asked::Reload,
        }
    }
}

/// What a signal asks of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP: read the configuration again.
    Reload,
}

/// Tells systemd that the service is up, with a line for `systemctl status`. Without systemd
/// nothing happens; what goes wrong is logged.
pub fn notify_ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Changes the line in `systemctl status`.
pub fn notify_status(status: &str) {
    notify(&[NotifyState::Status(status)]);
}

/// Tells systemd that the service is about to end.
pub fn notify_stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Feeds systemd's watchdog as often as it asks for, for as long as it is polled; pending for ever
/// where there is none. To be polled in the same task that does the daemon's work: a watchdog that
/// a task of its own feeds would not notice that the work hangs.
pub async fn feed_watchdog() {
    let Some(period) = sd_notify::watchdog_enabled() else {
        return core::future::pending().await;
    };
    let mut ticks = tokio::time::interval((period / 2).max(Duration::from_millis(1)));
    loop {
        ticks.tick().await;
        notify(&[NotifyState::Watchdog]);
    }
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "systemd cannot be notified");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_failure_is_one_line_with_its_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot read the sensor")]
        struct Outer(#[source] std::io::Error);
        let failure = Failure::from(Outer(std::io::Error::other("bus is stuck")));
        assert_eq!(failure.to_string(), "cannot read the sensor: bus is stuck");
        assert_eq!(failure.exit_code(), ftb_cli::FAILED);
    }

    #[test]
    fn a_file_that_is_not_there_says_where_to_begin() {
        let failure = load_config(Path::new("/none/act.toml"), |_| Ok(())).unwrap_err();
        let said = "/none/act.toml: no such file: copy act.toml.sample, which explains each key";
        assert!(failure.to_string().starts_with(said), "{failure}");
        assert_eq!(failure.exit_code(), ftb_cli::USAGE);
    }

    #[test]
    fn wrong_log_settings_are_bad_input() {
        let failure = "xml".parse::<LogFormat>().unwrap_err();
        assert_eq!(failure.exit_code(), ftb_cli::USAGE);
        assert!(failure.to_string().contains("text or json"));
        let settings = LogSettings { filter: "ftb=loudest".to_owned(), ..LogSettings::default() };
        let failure = settings.install().unwrap_err();
        assert_eq!(failure.exit_code(), ftb_cli::USAGE);
    }
}
