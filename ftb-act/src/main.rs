//! `ftb-act`: reads arguments and configuration, then acts until a signal, or answers one question.

use ftb_act::cli::{Cli, Command, ConfigArgs, RunArgs, StatusArgs};
use ftb_act::config::Config;
use ftb_act::{program, replay, status, store, watch};
use ftb_client::daemon::{self, Failure, LogSettings};
use ftb_client::{Agent, Client};
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

/// The name of the program and of its client.
const NAME: &str = "ftb-act";
/// How long a command waits for the agent.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long `check` waits for it: it is right without an agent too.
const CHECK_MAX: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let result = match ftb_cli::parse::<Cli>().command {
        Command::Run(args) => run(&args),
        Command::Check(args) => check(&args),
        Command::Status(args) => show(&args),
        Command::Resume(args) => resume(&args),
        Command::Tied { parent, program } => {
            Err(Failure::failed(program::become_tied(parent, &program)))
        }
    };
    daemon::exit(NAME, result)
}

fn client_of(config: &Config) -> Result<Client, Failure> {
    daemon::client(NAME, config.agent.as_deref())
}

/// The local agent, if one answers at once.
async fn agent_of(config: &Config) -> Option<Agent> {
    let client = client_of(config).ok()?;
    client.wait_connected(CHECK_MAX).await.ok()?;
    client.agent()
}

fn run(args: &RunArgs) -> Result<(), Failure> {
    let config = Config::load(&args.config.config)?;
    LogSettings::from_env()?.install()?;
    if let Some(since) = args.since {
        return daemon::runtime()?.block_on(async {
            let client = client_of(&config)?;
            client.wait_connected(ANSWER_MAX).await.map_err(Failure::no_answer)?;
            replay::run(config, &client, since, ANSWER_MAX).await
        });
    }
    let socket = config.agent.clone();
    daemon::serve(NAME, socket.as_deref(), async |client, stop| {
        watch::run(config, client, stop).await
    })
}

fn check(args: &ConfigArgs) -> Result<(), Failure> {
    let config = Config::load(&args.config)?;
    let rules = config.rules.rules.len();
    let what = if rules == 1 { "rule" } else { "rules" };
    writeln!(std::io::stdout(), "configuration is good: {rules} {what}")?;
    if !config.rules.states_conditions_of_others() {
        return Ok(());
    }
    match daemon::runtime()?.block_on(agent_of(&config)) {
        Some(agent) => watch::check_monitors(&agent).map_err(Failure::failed),
        None => {
            let line = "no agent answers here: whether `monitors` names this host is not known";
            Ok(writeln!(std::io::stdout(), "{line}")?)
        }
    }
}

fn show(args: &StatusArgs) -> Result<(), Failure> {
    let config = Config::load(&args.config.config)?;
    let saved = store::read(&config.state)?.unwrap_or_default();
    match args.json {
        true => writeln!(std::io::stdout(), "{}", status::json(&saved))?,
        false => write!(std::io::stdout(), "{}", status::text(&saved))?,
    }
    Ok(())
}

fn resume(args: &ConfigArgs) -> Result<(), Failure> {
    let config = Config::load(&args.config)?;
    let closed = daemon::runtime()?.block_on(async {
        let client = client_of(&config)?;
        client.wait_connected(ANSWER_MAX).await.map_err(Failure::no_answer)?;
        watch::resume(&client, ANSWER_MAX).await
    })?;
    match closed {
        0 => Err(Failure::failed(status::no_breaker(store::read(&config.state).ok().flatten()))),
        _ => Ok(writeln!(std::io::stdout(), "the breaker is closed")?),
    }
}
