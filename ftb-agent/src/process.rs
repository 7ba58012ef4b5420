//! The agent as a process: arguments, signals, systemd, exit codes.
//!
//! Responsible for: SIGTERM and SIGINT (graceful stop), SIGHUP (reload), readiness, status and
//! watchdog by `sd_notify`. Not responsible for: the agent itself ([`crate::agent`]).

use crate::agent::Agent;
use crate::config::Config;
use crate::logging::{self, LogHandle};
use crate::system;
use ftb_transport::tls::{self, Tls};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{geteuid, gethostname};
use sd_notify::NotifyState;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Interval, MissedTickBehavior, interval};

const SIGNALS_AND_CODES: &str = "\
Signals: TERM and INT stop it gracefully, HUP makes it read members, fan-out, allow_unlisted,
certificates, access and storm rules and log level again.
Exit codes: 0 stopped by a signal, 1 failed, 64 wrong arguments or configuration (nothing was
started).";

/// The agent of one node of an ftb cluster: carries events between the programs of its node and
/// the agents of the other nodes.
#[derive(Debug, clap::Parser)]
#[command(
    name = "ftb-agent",
    version,
    after_help = SIGNALS_AND_CODES,
    after_long_help = format!("\
{SIGNALS_AND_CODES}

Examples:
  ftb-agent --check-config --config /etc/ftb/agent.toml
  ftb-agent --config /etc/ftb/agent.toml")
)]
pub struct Args {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = "/etc/ftb/agent.toml")]
    pub config: PathBuf,
    /// Check the configuration and its certificates, show the settings of this host, and exit
    #[arg(long)]
    pub check_config: bool,
}

/// Reads the configuration and the certificates that it names.
///
/// # Errors
/// One line that says what is wrong and where.
pub fn read_config(args: &Args) -> Result<Config, String> {
    let config = Config::read(&args.config).map_err(|error| error.to_string())?;
    if let Some(files) = &config.tls {
        Tls::load(files, &config.cluster.0)
            .map_err(|error| format!("{}: [tls]: {error}", args.config.display()))?;
    }
    Ok(config)
}

/// Checks that the journal has a folder.
///
/// # Errors
/// One line that says what is wrong and where.
pub fn check_folder(args: &Args, config: &Config) -> Result<(), String> {
    let checked = config.journal.check_folder();
    checked.map_err(|error| format!("{}: {error}", args.config.display()))
}

/// Reports wrong input.
pub fn refuse(error: &str) -> ExitCode {
    eprintln!("ftb-agent: {error}");
    ExitCode::from(ftb_cli::USAGE)
}

/// Reports a failure of the agent.
pub fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("ftb-agent: {error:#}");
    ExitCode::from(ftb_cli::FAILED)
}

/// Shows what the configuration means on this host, and checks the certificate.
pub fn describe(args: &Args, config: &Config) -> ExitCode {
    let host = config.host(&system_host());
    if let Some(files) = &config.tls {
        match tls::examine(files, &config.cluster.0, &host) {
            Err(error) => return refuse(&format!("{}: [tls]: {error}", args.config.display())),
            Ok(Some(doubt)) => eprintln!("ftb-agent: {}: [tls]: {doubt}", args.config.display()),
            Ok(None) => {}
        }
    }
    if let Err(doubt) = check_folder(args, config) {
        eprintln!("ftb-agent: {doubt}: an agent that is started here would refuse it");
    }
    let place = match config.members.0.position(&host) {
        Some(rank) => format!("has rank {rank}"),
        None if config.allow_unlisted => {
            "is not in the list, and joins if the others allow it".to_owned()
        }
        None => "is not in the list, and allow_unlisted is false: the others refuse it".to_owned(),
    };
    println!(
        "configuration is good: cluster {}, {} members, {host} {place}",
        config.cluster.0,
        config.members.0.len()
    );
    ExitCode::SUCCESS
}

/// Raises the limit on open files: each client needs one.
pub fn raise_file_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        eprintln!("ftb-agent: cannot raise the limit of open files: {error}");
    }
}

fn system_host() -> String {
    gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Runs the agent until a signal stops it.
///
/// # Errors
/// It could not start, or its driver has ended by itself.
pub fn serve(args: &Args, config: Config) -> anyhow::Result<()> {
    let log = logging::start(&config.log, &config.host(&system_host()))?;
    // With one thread, tasks wake each other without a system call.
    let mut builder = match config.threads.get() {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(config.threads.get()).enable_all().build()?;
    let result = runtime
        .block_on(Service::start(args, config, log))
        .and_then(|service| runtime.block_on(service.run()));
    // A name lookup that hangs in the system's resolver must not hold up the exit.
    runtime.shutdown_timeout(Duration::from_millis(100));
    result
}

/// The running agent and its signals.
struct Service {
    agent: Agent,
    log: LogHandle,
    config: PathBuf,
    stop: [Signal; 2],
    reload: Signal,
    watchdog: Option<Interval>,
}

enum Wakeup {
    Stop,
    Reload,
    Watchdog,
    Role,
    Failed,
}

impl Service {
    async fn start(args: &Args, config: Config, log: LogHandle) -> anyhow::Result<Self> {
        let stop = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
        let reload = signal(SignalKind::hangup())?;
        let agent =
            Agent::start(config, &system_host(), geteuid().as_raw(), system::world()).await?;
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            host = agent.host,
            address = agent.address,
            "started"
        );
        // Twice in each period that systemd allows.
        let watchdog = sd_notify::watchdog_enabled().map(|period| {
            let mut watchdog = interval((period / 2).max(Duration::from_millis(1)));
            watchdog.set_missed_tick_behavior(MissedTickBehavior::Delay);
            watchdog
        });
        notify(&[NotifyState::Ready]);
        Ok(Self { agent, log, config: args.config.clone(), stop, reload, watchdog })
    }

    async fn run(mut self) -> anyhow::Result<()> {
        let mut role = self.agent.role();
        loop {
            let [term, int] = &mut self.stop;
            let turn = tokio::select! {
                _ = term.recv() => Wakeup::Stop,
                _ = int.recv() => Wakeup::Stop,
                _ = self.reload.recv() => Wakeup::Reload,
                () = tick(self.watchdog.as_mut()) => Wakeup::Watchdog,
                Ok(()) = role.changed() => Wakeup::Role,
                () = self.agent.failed() => Wakeup::Failed,
            };
            match turn {
                Wakeup::Reload => self.reload().await,
                // The driver itself must answer, or systemd restarts the agent.
                Wakeup::Watchdog => {
                    if self.agent.handle().status().await.is_ok() {
                        notify(&[NotifyState::Watchdog]);
                    }
                }
                Wakeup::Role => {
                    let status = one_line(&role.borrow_and_update());
                    notify(&[NotifyState::Status(&status)]);
                }
                Wakeup::Failed => anyhow::bail!("the driver has ended; see the log"),
                Wakeup::Stop => {
                    tracing::info!("stopping");
                    notify(&[NotifyState::Stopping]);
                    self.agent.stop().await;
                    return Ok(());
                }
            }
        }
    }

    /// A configuration with a mistake changes nothing.
    async fn reload(&mut self) {
        match Config::read(&self.config) {
            Ok(config) => {
                self.log.apply(&config.log);
                self.agent.reload(config, geteuid().as_raw()).await;
                tracing::info!("configuration read again");
            }
            Err(error) => {
                tracing::error!(%error, "configuration not read: the old one stays in use");
            }
        }
    }
}

async fn tick(watchdog: Option<&mut Interval>) {
    match watchdog {
        Some(watchdog) => drop(watchdog.tick().await),
        None => std::future::pending().await,
    }
}

/// A status line for systemd. Newlines go, because a peer's name could contain an assignment.
fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Notifies systemd; does nothing without it.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "cannot notify the service manager");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_peer_tells_systemd_nothing() {
        let role = "parent node01\nMAINPID=1\nX: joined";
        assert_eq!(one_line(role), "parent node01 MAINPID=1 X: joined");
    }
}
