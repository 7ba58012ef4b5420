//! The job launcher.

use ftb_client::daemon::{Failure, LogSettings};
use ftb_launcher::cli::{Ask, AskNode, Cli, Command, PolicyCommand};
use ftb_launcher::commands;
use ftb_launcher::console;
use ftb_launcher::own_agent;
use ftb_launcher_core::message::JobRequest;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = ftb_cli::parse::<Cli>();
    let code = match run(cli.command) {
        Ok(code) => u8::try_from(code & 0xff).unwrap_or(1),
        Err(failure) => {
            let line = failure.to_string().replace('\n', " ");
            console::err().line(&format!("ftb-launch: {line}"));
            failure.exit_code()
        }
    };
    console::err().finish(console::FINISH_WAIT);
    // The exit code of the program takes precedence over lost output.
    ExitCode::from(if code == 0 { console::exit_code() } else { code })
}

fn run(mut command: Command) -> Result<i32, Failure> {
    LogSettings { filter: "warn".to_owned(), ..LogSettings::default() }
        .overridden_by_env()?
        .install_to(console::log_writer)?;
    let agent = match &mut command {
        Command::Run(run) => own_agent::start_if_missing(&mut run.place)?,
        _ => None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(dispatch(command));
    // Do not wait for running copies.
    runtime.shutdown_background();
    drop(agent);
    result
}

async fn dispatch(command: Command) -> Result<i32, Failure> {
    match command {
        Command::Run(run) => return commands::run(*run).await,
        Command::Restart(restart) => return commands::restart(&restart).await,
        Command::Attach { job } => return commands::attach(&job).await,
        Command::Ps { json } => commands::ps(json)?,
        Command::Status { job, what_if, json } => commands::status(&job, what_if.as_ref(), json)?,
        Command::Checkpoint(asked) => ask(asked, JobRequest::Checkpoint).await?,
        Command::Kill(asked) => commands::kill(&asked.job, asked.timeout, asked.json).await?,
        Command::Migrate(asked) => ask_node(asked, JobRequest::Migrate).await?,
        Command::Drain(asked) => {
            let (job, node) = asked.names().map_err(Failure::bad_input)?;
            commands::drain(job.as_ref(), &node, asked.timeout, asked.json).await?;
        }
        Command::Add(asked) => commands::add(&asked).await?,
        Command::Usable(asked) => ask_node(asked, JobRequest::Usable).await?,
        Command::Policy { command } => policy(command).await?,
    }
    Ok(0)
}

async fn policy(command: PolicyCommand) -> Result<(), Failure> {
    match command {
        PolicyCommand::Check { file } => commands::policy_check(&file),
        PolicyCommand::Test { events, policy, nodes, json } => {
            commands::policy_test(&events, policy.as_deref(), nodes.as_deref(), json)
        }
        PolicyCommand::Reset(asked) => ask(asked, JobRequest::ResetBreaker).await,
    }
}

async fn ask(asked: Ask, what: JobRequest) -> Result<(), Failure> {
    commands::ask(&asked.job, what, asked.timeout, asked.json).await
}

async fn ask_node(
    asked: AskNode,
    what: fn(ftb_launcher_core::names::NodeName) -> JobRequest,
) -> Result<(), Failure> {
    commands::ask(&asked.job, what(asked.node), asked.timeout, asked.json).await
}
