//! `ftb-bridge`: reads arguments and configuration, then is the bridge until a signal.

use ftb_bridge::cli::{Cli, Command};
use ftb_bridge::config::Config;
use ftb_bridge::shell::{self, state};
use ftb_client::daemon::{self, Failure, LogSettings};
use ftb_client::now_ns;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// The default configuration file, if it exists.
const CONFIG: &str = "/etc/ftb/bridge.toml";

fn main() -> ExitCode {
    daemon::exit("ftb-bridge", run(&ftb_cli::parse::<Cli>()))
}

fn run(args: &Cli) -> Result<(), Failure> {
    let config = match daemon::config_path(args.config.as_deref(), CONFIG) {
        Some(path) => Config::load(path)?,
        None => Config::parse("", Path::new("/etc/ftb")).map_err(Failure::bad_input)?,
    };
    match args.command {
        Command::Check => print("configuration is good"),
        Command::Status { json } => {
            let state = state::read(&config.state_dir)?
                .ok_or_else(|| Failure::failed("no bridge has run with this configuration"))?;
            match json {
                true => print(&serde_json::to_string(&state)?)?,
                false => print(&state.to_string())?,
            }
            state.fault(now_ns()).map_or(Ok(()), |fault| Err(Failure::failed(fault)))
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
    let socket = config.agent.clone();
    daemon::serve("ftb-bridge", socket.as_deref(), async |client, stop| {
        shell::run(config, client, stop).await
    })
}
