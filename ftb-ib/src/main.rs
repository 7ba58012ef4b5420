//! `ftb-ib`: reads arguments and configuration, then watches until a signal.

use ftb_client::daemon::{self, Asked, Failure, LogSettings, Signals};
use ftb_client::json::EventObject;
use ftb_client::{Client, ConditionState, Event, clear_former, now_ns};
use ftb_ib::cli::Cli;
use ftb_ib::config::Config;
use ftb_ib::finding::{Finding, SPACE};
use ftb_ib::kind::Kind;
use ftb_ib::watch;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::Notify;

/// The default configuration file, if it exists.
const CONFIG: &str = "/etc/ftb/ib.toml";

fn main() -> ExitCode {
    daemon::exit("ftb-ib", run(&ftb_cli::parse::<Cli>()))
}

fn run(args: &Cli) -> Result<(), Failure> {
    let config = configuration(args.config.as_deref())?;
    if let Some(counter) = config.unknown_counters.first() {
        return Err(Failure::bad_input(unknown(counter)));
    }
    if args.check_config {
        println!("configuration is good");
        return Ok(());
    }
    LogSettings::from_env()?.install()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let release = Notify::new();
        let stop = async {
            while signals.next().await == Asked::Reload {
                release.notify_one();
            }
            daemon::notify_stopping();
        };
        if args.print {
            print_events(config, &release, stop).await
        } else {
            publish_events(config, &release, stop).await
        }
    });
    // A thread may hang in the firmware of an adapter: do not wait for it.
    runtime.shutdown_background();
    outcome
}

fn unknown(counter: &str) -> String {
    format!(
        "prediction.rules: counter {counter:?} is unknown: correct its name, or set \
         optional = true if the driver of your adapter has it \
         (/sys/class/infiniband/*/ports/*/hw_counters)"
    )
}

fn configuration(named: Option<&Path>) -> Result<Config, Failure> {
    match daemon::config_path(named, CONFIG) {
        Some(path) => Config::load(path).map_err(Failure::bad_input),
        None => Ok(Config::default()),
    }
}

/// Prints one JSON object in one line.
fn print_line(event: &Event) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, &EventObject::from(event))?;
    writeln!(out)
}

async fn print_events(
    config: Config,
    release: &Notify,
    stop: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let gone = Notify::new();
    let mut outcome = Ok(());
    let print = |event: Event| {
        if let Err(error) = print_line(&event) {
            outcome = Err(error);
            gone.notify_one();
        }
    };
    let stop = async {
        tokio::select! {
            () = stop => {}
            () = gone.notified() => {}
        }
    };
    watch::run(config, print, release, stop).await;
    match outcome {
        // The reader of the events has ended.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        outcome => Ok(outcome?),
    }
}

async fn publish_events(
    config: Config,
    release: &Notify,
    stop: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let client = daemon::client("ftb-ib", config.agent.as_deref())?;
    let publish = |event: Event| {
        // The client keeps the event until the agent confirms it.
        if let Err(error) = client.publish(event).map(drop) {
            tracing::warn!(%error, "an event is not published");
        }
    };
    let former = tokio::spawn(clear_former_life(client.clone(), config.longest_window()));
    watch::run(config, publish, release, stop).await;
    former.abort();
    daemon::close(&client).await;
    Ok(())
}

/// After the longest window this life has judged every port: what an earlier life of this program
/// has stated, and this one has not, is over.
async fn clear_former_life(client: Client, window: Duration) {
    tokio::time::sleep(window).await;
    let Some(agent) = client.agent() else { return };
    let keys = "PORT_DEGRADED|PORT_CONGESTED|PORT_FLAPPING";
    let filter = format!("subject={}, condition={keys}", agent.host);
    let event = |state: &ConditionState| {
        let kind = match state.subject.key() {
            "PORT_FLAPPING" => Kind::PortSteady,
            _ => Kind::PortRecovered,
        };
        let finding = Finding::new(kind, state.subject.component().to_owned());
        finding.to_event(&BTreeMap::new(), now_ns())
    };
    let is_own = |state: &ConditionState| state.event.split(' ').next() == Some(SPACE);
    if let Err(error) = clear_former(&client, &filter, is_own, event).await {
        tracing::warn!(%error, "conditions of an earlier life of ftb-ib may remain");
    }
}
