//! `ftb-bridge`: reads arguments and configuration, then is the bridge until a signal.

use clap::Parser as _;
use ftb_bridge::cli::{Cli, Command};
use ftb_bridge::config::Config;
use ftb_bridge::shell::{self, state};
use ftb_client::Client;
use ftb_client::daemon::{self, Failure, LogSettings, Signals};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// The default configuration file, if it exists.
const CONFIG: &str = "/etc/ftb/bridge.toml";
/// How long the end waits until the agent confirms the last events.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    daemon::exit("ftb-bridge", run(&Cli::parse()))
}

fn run(args: &Cli) -> Result<(), Failure> {
    let path = args.config.as_deref().or_else(|| {
        let default = Path::new(CONFIG);
        default.exists().then_some(default)
    });
    let config = match path {
        Some(path) => Config::load(path).map_err(Failure::bad_input)?,
        None => Config::parse("", Path::new("/etc/ftb")).map_err(Failure::bad_input)?,
    };
    match args.command {
        Command::Check => print("configuration is good"),
        Command::Status { json } => {
            let state = state::read(&config.state_dir)?
                .ok_or_else(|| Failure::no_answer("no bridge has run with this configuration"))?;
            match json {
                true => print(&serde_json::to_string(&state)?),
                false => print(&state.to_string()),
            }
        }
        Command::Run => serve(config),
    }
}

/// A reader that has closed its pipe is no failure.
fn print(line: &str) -> Result<(), Failure> {
    let _ = writeln!(std::io::stdout(), "{line}");
    Ok(())
}

fn serve(config: Config) -> Result<(), Failure> {
    LogSettings::from_env()?.install()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let mut builder = Client::builder("ftb-bridge");
        if let Some(socket) = &config.agent {
            builder = builder.agent(socket);
        }
        let client = builder.build().map_err(Failure::bad_input)?;
        let stop = async {
            signals.stop().await;
            daemon::notify_stopping();
        };
        shell::run(config, &client, stop).await?;
        if let Err(error) = client.close(CLOSE_DEADLINE).await {
            tracing::warn!(%error, "the agent did not confirm the last events");
        }
        Ok(())
    })
}
