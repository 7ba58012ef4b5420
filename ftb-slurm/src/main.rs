//! `ftb-slurm`: reads arguments and configuration, then is the bridge until a signal.

use clap::Parser;
use ftb_client::Client;
use ftb_client::daemon::{self, Failure, LogSettings, Signals};
use ftb_slurm::cli::{AdviceArgs, Cli, Command, HealthArgs};
use ftb_slurm::config::Config;
use ftb_slurm::{advice, health, watch};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// The default configuration file, if it exists.
const CONFIG: &str = "/etc/ftb/slurm.toml";
/// How long the end waits until the agent confirms the last events.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let args = Cli::parse();
    match &args.command {
        Some(Command::Health(health)) => say_health(health),
        Some(Command::Advice(args)) => daemon::exit("ftb-slurm", advise(args)),
        None => daemon::exit("ftb-slurm", run(&args)),
    }
}

fn say_health(args: &HealthArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let answer = match runtime {
        Ok(runtime) => runtime.block_on(health::ask(args)),
        Err(error) => health::Answer::Unknown(error.to_string()),
    };
    // The exit code is the answer, also when the reader has closed its pipe.
    let _ = writeln!(std::io::stdout(), "{answer}");
    ExitCode::from(answer.exit_code(args.strict))
}

fn advise(args: &AdviceArgs) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let advice = runtime.block_on(advice::ask(args))?;
    if args.json {
        return writeln!(std::io::stdout(), "{}", serde_json::to_string(&advice)?)
            .map_err(Failure::failed);
    }
    write!(std::io::stdout(), "{}", advice.text())?;
    if let Some(remark) = advice.remark() {
        let _ = writeln!(std::io::stderr(), "ftb-slurm: {remark}");
    }
    Ok(())
}

fn run(args: &Cli) -> Result<(), Failure> {
    let path = args.config.as_deref().or_else(|| {
        let default = Path::new(CONFIG);
        default.exists().then_some(default)
    });
    let config = match path {
        Some(path) => Config::load(path).map_err(Failure::bad_input)?,
        None => Config::parse("").map_err(Failure::bad_input)?,
    };
    if args.check_config {
        println!("configuration is good");
        return Ok(());
    }
    LogSettings::from_env()?.install()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let mut builder = Client::builder("ftb-slurm");
        if let Some(socket) = &config.agent {
            builder = builder.agent(socket);
        }
        let client = builder.build().map_err(Failure::bad_input)?;
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
