//! The node launch agent. `ftb-launch` starts one on each node of a job and passes its
//! specification on standard input.

use clap::{Parser, Subcommand};
use core::time::Duration;
use ftb_client::daemon::{Failure, LogSettings, exit};
use ftb_launcher::{console, guard, nla, ranks, waiting};
use ftb_launcher_pods::pod::supervisor;
use ftb_launcher_pods::{memory, owner};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Time for the last lines of the log at the end.
const LOG_WAIT: Duration = Duration::from_secs(1);

/// Node launch agent of ftb; ftb-launch starts one on each node of a job
#[derive(Parser)]
#[command(
    name = "ftb-nla",
    version,
    after_help = "Exit codes: 0 the job ended here, 1 failed, 64 bad input."
)]
struct Arguments {
    #[command(subcommand)]
    step: NlaCommand,
}

#[derive(Subcommand)]
enum NlaCommand {
    /// Serve one job on this node; read its specification from standard input
    Serve {
        /// Environment variable with this node's name, if all agents get the same specification
        #[arg(long, value_name = "VARIABLE")]
        node_from: Option<String>,
    },
    /// Kill processes that the ranks have started when the launch agent is gone
    #[command(hide = true)]
    Guard {
        /// The node's directory for the job.
        dir: PathBuf,
        /// The job's own bridge.
        bridge: Option<String>,
        #[command(flatten)]
        client: guard::GuardClient,
    },
    /// Make the namespaces of a pod
    #[command(hide = true)]
    MakePod {
        /// For ranks that start, not for restored ones.
        #[arg(long)]
        fresh: bool,
        /// For an ordinary user.
        #[arg(long)]
        user: bool,
        /// The process whose mounts it begins with.
        #[arg(long)]
        mounts: Option<u32>,
    },
    /// Hold images of pods in memory
    #[command(hide = true, name = memory::HOLD)]
    HoldMemory {
        /// Where.
        dir: PathBuf,
        /// At most.
        bytes: u64,
    },
    /// Be the first process of a pod
    #[command(hide = true)]
    Pause {
        /// See make-pod.
        #[arg(long)]
        fresh: bool,
    },
    /// Start the ranks of a pod and pass on their output
    #[command(hide = true)]
    Supervise {
        /// For an ordinary user.
        #[arg(long)]
        user: bool,
    },
    /// Hold the user namespace of an ordinary user's pods
    #[command(hide = true, name = owner::HOLD)]
    HoldUser,
    /// Run a command in it
    #[command(hide = true, name = owner::ENTER)]
    EnterUser {
        /// The process that holds it.
        holder: u32,
        #[arg(last = true)]
        argv: Vec<String>,
    },
}

/// `exec-rank PARENT -- PROGRAM ARGUMENTS...`: the step between the launch agent PARENT and a rank.
/// Parsed by hand, because it runs for every rank.
fn rank_to_be() -> Option<(u32, Vec<String>)> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != "exec-rank" {
        return None;
    }
    let parent = arguments.next()?.to_str()?.parse().ok()?;
    let argv = arguments.skip(1).map(|word| word.into_string().ok()).collect::<Option<_>>()?;
    Some((parent, argv))
}

fn main() -> ExitCode {
    if let Some((parent, argv)) = rank_to_be() {
        let reason = ranks::exec(parent, &argv);
        let _ = writeln!(std::io::stderr(), "ftb-nla: {reason}");
        return ExitCode::from(ftb_cli::NOT_STARTED);
    }
    match ftb_cli::parse::<Arguments>().step {
        NlaCommand::Serve { node_from } => exit("ftb-nla", serve(node_from.as_deref())),
        NlaCommand::Guard { dir, bridge, client } => {
            guard::run(std::io::stdin().lock(), &dir, bridge.as_deref(), &client);
            ExitCode::SUCCESS
        }
        NlaCommand::MakePod { fresh, user, mounts } => {
            exit("ftb-nla", supervisor::make(fresh, user, mounts).map_err(Failure::from))
        }
        NlaCommand::HoldMemory { dir, bytes } => {
            exit("ftb-nla", memory::hold(&dir, bytes).map_err(Failure::from))
        }
        NlaCommand::HoldUser => exit("ftb-nla", owner::hold().map_err(Failure::from)),
        NlaCommand::EnterUser { holder, argv } => {
            exit("ftb-nla", Err(owner::enter(holder, &argv).into()))
        }
        NlaCommand::Pause { fresh } => {
            exit("ftb-nla", supervisor::pause(fresh).map_err(Failure::from))
        }
        NlaCommand::Supervise { user } => {
            exit("ftb-nla", supervisor::supervise(user).map_err(Failure::from))
        }
    }
}

fn serve(node_from: Option<&str>) -> Result<(), Failure> {
    waiting::reports_as("ftb-nla");
    LogSettings { filter: "warn".to_owned(), ..LogSettings::default() }
        .overridden_by_env()?
        .install_to(console::log_writer)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let node = node_from.map(|name| {
            std::env::var(name).map_err(|_| Failure::bad_input(format!("{name} is not set")))
        });
        let handover = nla::read_handover(node.transpose()?.as_deref()).await;
        nla::run(handover.map_err(Failure::bad_input)?).await.map_err(Failure::failed)
    });
    // Do not wait for running copies.
    runtime.shutdown_background();
    console::err().finish(LOG_WAIT);
    result
}

#[cfg(test)]
mod tests {
    use super::Arguments;
    use clap::CommandFactory as _;

    #[test]
    fn the_man_pages_say_the_same() {
        ftb_tests::man::assert_page_is_current(Arguments::command(), "8");
    }
}
