//! `ftb-ipmi`: reads arguments and configuration, then starts the dry run or the daemon.

use ftb_client::daemon::{self, Failure, LogSettings};
use ftb_ipmi::cli::Cli;
use ftb_ipmi::config::{Config, TargetFile};
use ftb_ipmi::service;
use std::process::ExitCode;

fn main() -> ExitCode {
    daemon::exit("ftb-ipmi", run(&ftb_cli::parse::<Cli>()))
}

fn run(cli: &Cli) -> Result<(), Failure> {
    LogSettings::from_env()?.install()?;
    let config = configure(cli).map_err(Failure::bad_input)?;
    if cli.check_config {
        if let Some(concern) = config.concerns.first() {
            return Err(Failure::bad_input(concern));
        }
        let of = |count: usize, what: &str| match count {
            1 => format!("1 {what}"),
            count => format!("{count} {what}s"),
        };
        let (bmcs, rules) = (of(config.nodes.len(), "BMC"), of(config.rules.len(), "rule"));
        println!("configuration is good: {bmcs}, {rules}");
        return Ok(());
    }
    for concern in &config.concerns {
        tracing::warn!("{concern}");
    }
    // One thread: the program mostly waits for BMCs.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match cli.once {
        true => runtime.block_on(service::once(&config, cli.json)),
        false => runtime.block_on(service::watch(&config, cli.print)),
    }
}

fn configure(cli: &Cli) -> Result<Config, ftb_ipmi::config::ConfigError> {
    let mut config = match &cli.bmc {
        None => Config::load(&cli.config)?,
        Some(bmc) => Config::of_target(&TargetFile {
            bmc: bmc.clone(),
            node: cli.node.clone(),
            user: cli.user.clone().unwrap_or_default(),
            ..TargetFile::default()
        })?,
    };
    config.agent_socket = cli.agent.clone().or(config.agent_socket);
    Ok(config)
}
