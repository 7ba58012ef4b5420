//! `ftb-slurm`: reads arguments and configuration, then is the bridge until a signal.

use ftb_client::daemon::{self, Failure, LogSettings};
use ftb_slurm::cli::{AdviceArgs, Cli, Command, HealthArgs};
use ftb_slurm::config::Config;
use ftb_slurm::{advice, health, watch};
use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = ftb_cli::parse::<Cli>();
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
    let config = Config::load_or_default(args.config.as_deref())?;
    if args.check_config {
        println!("configuration is good");
        return Ok(());
    }
    LogSettings::from_env()?.install()?;
    let socket = config.agent.clone();
    daemon::serve("ftb-slurm", socket.as_deref(), async |client, stop| {
        watch::run(config, client, stop).await
    })
}
