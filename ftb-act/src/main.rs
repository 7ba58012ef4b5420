//! `ftb-act`: reads arguments and configuration, then acts until a signal, or answers one question.

use clap::Parser as _;
use ftb_act::cli::{Cli, Command, ConfigArgs, RunArgs, StatusArgs};
use ftb_act::config::Config;
use ftb_act::{program, replay, status, store, watch};
use ftb_client::Client;
use ftb_client::daemon::{self, Failure, LogSettings, Signals};
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

/// How long the end waits until the agent confirms the last events.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);
/// How long a command waits for the agent.
const ANSWER_MAX: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => run(&args),
        Command::Check(args) => check(&args),
        Command::Status(args) => show(&args),
        Command::Resume(args) => resume(&args),
        Command::Tied { parent, program } => {
            Err(Failure::failed(program::become_tied(parent, &program)))
        }
    };
    daemon::exit("ftb-act", result)
}

fn load(args: &ConfigArgs) -> Result<Config, Failure> {
    Config::load(&args.config).map_err(Failure::bad_input)
}

fn client_of(config: &Config) -> Result<Client, Failure> {
    let mut builder = Client::builder("ftb-act");
    if let Some(socket) = &config.agent {
        builder = builder.agent(socket);
    }
    builder.build().map_err(Failure::bad_input)
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(2).enable_all().build()?)
}

fn run(args: &RunArgs) -> Result<(), Failure> {
    let config = load(&args.config)?;
    LogSettings::from_env()?.install()?;
    if let Some(since) = args.since {
        return runtime()?.block_on(async {
            let client = client_of(&config)?;
            client.wait_connected(ANSWER_MAX).await.map_err(Failure::no_answer)?;
            replay::run(config, &client, since, ANSWER_MAX).await
        });
    }
    runtime()?.block_on(async {
        let mut signals = Signals::listen()?;
        let client = client_of(&config)?;
        let stop = async {
            signals.stop().await;
            daemon::notify_stopping();
        };
        watch::run(config, &client, stop).await?;
        if let Err(error) = client.close(CLOSE_DEADLINE).await {
            tracing::warn!(%error, "the agent did not confirm the last events");
        }
        Ok(())
    })
}

fn check(args: &ConfigArgs) -> Result<(), Failure> {
    let config = load(args)?;
    let rules = config.rules.rules.len();
    let what = if rules == 1 { "rule" } else { "rules" };
    writeln!(std::io::stdout(), "configuration is good: {rules} {what}")?;
    Ok(())
}

fn show(args: &StatusArgs) -> Result<(), Failure> {
    let config = load(&args.config)?;
    let saved = store::read(&config.state)?.unwrap_or_default();
    match args.json {
        true => writeln!(std::io::stdout(), "{}", status::json(&saved))?,
        false => write!(std::io::stdout(), "{}", status::text(&saved))?,
    }
    Ok(())
}

fn resume(args: &ConfigArgs) -> Result<(), Failure> {
    let config = load(args)?;
    let closed = runtime()?.block_on(async {
        let client = client_of(&config)?;
        client.wait_connected(ANSWER_MAX).await.map_err(Failure::no_answer)?;
        watch::resume(&client, ANSWER_MAX).await
    })?;
    match closed {
        0 => Err(Failure::failed("no breaker is open")),
        _ => Ok(writeln!(std::io::stdout(), "the breaker is closed")?),
    }
}
