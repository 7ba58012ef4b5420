//! The command line of ftb.

mod ca;
mod cli;
mod common;
mod conditions;
mod demo;
mod doctor;
mod drill;
mod events;
mod explain;
mod failure;
mod hosts;
mod init;
mod local_rules;
mod node;
mod output;
mod publish;
mod silence;
mod status;
mod text;
mod top;
mod trace;
mod tree;

use cli::{Cli, Command};
use failure::Failure;
use output::Output;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = ftb_cli::parse::<Cli>();
    let output = Output::new(&cli.common);
    match run(cli, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.exit(),
    }
}

fn run(cli: Cli, output: Output) -> Result<(), Failure> {
    let common = cli.common;
    if let Command::Generate(what) = &cli.command {
        return cli::generate(what, output);
    }
    if let Command::Explain(args) = &cli.command {
        return explain::run(args, output);
    }
    if let Command::Ca(args) = &cli.command {
        return ca::run(args, output);
    }
    if let Command::Init(args) = &cli.command {
        return init::run(&common, args, output);
    }
    if let Command::Hosts(command) = &cli.command {
        return hosts::run(command, output);
    }
    if let Command::Demo { arguments } = &cli.command {
        return Err(demo::become_it(arguments));
    }
    let runtime = tokio::runtime::Runtime::new()?;
    let done = runtime.block_on(async {
        let work = async {
            match cli.command {
                Command::Publish(args) => publish::run(&common, args, output).await,
                Command::Subscribe(args) => events::subscribe(&common, args, output).await,
                Command::Events(args) => events::history(&common, args, output).await,
                Command::Tree(args) => tree::run(&common, &args, output).await,
                Command::Conditions(args) => conditions::run(&common, args, output).await,
                Command::Health(args) => conditions::health(&common, args, output).await,
                Command::Silence(command) => silence::run(&common, command, output).await,
                Command::Trace(args) => trace::run(&common, &args, output).await,
                Command::Drill(args) => drill::run(&common, args, output).await,
                Command::Doctor(args) => doctor::run(&common, &args, output).await,
                Command::Top(args) => top::run(&common, args, output).await,
                Command::Node(args) => node::run(&common, &args, output).await,
                Command::Status => status::run(&common, output).await,
                Command::Generate(_)
                | Command::Ca(_)
                | Command::Demo { .. }
                | Command::Explain(_)
                | Command::Init(_)
                | Command::Hosts(_) => Ok(()),
            }
        };
        tokio::select! {
            done = work => done,
            interrupted = tokio::signal::ctrl_c() => Err(Failure::interrupted(interrupted)),
        }
    });
    // Tasks that still run end with the process.
    runtime.shutdown_background();
    done
}
