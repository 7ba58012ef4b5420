//! The node launch agent. `ftb-launch` starts one on each node of a job and hands it its specification on standard
//! input; nobody starts it by hand.

use clap::{Parser, Subcommand};
use core::time::Duration;
use ftb_client::daemon::{Failure, LogSettings, exit};
use ftb_launcher::{console, guard, nla, ranks, waiting};
use ftb_launcher_pods::pod::tend;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// How long the last lines of the log may take at the end.
const LOG_WAIT: Duration = Duration::from_secs(1);

/// The node launch agent of ftb: started by ftb-launch, once for each node of a job.
#[derive(Parser)]
#[command(
    name = "ftb-nla",
    version,
    after_help = "Exit codes: 0 the job ended here, 1 failed, 2 bad input."
)]
struct Arguments {
    #[command(subcommand)]
    step: Step,
}

#[derive(Subcommand)]
enum Step {
    /// Serve one job on this node; its specification comes on standard input.
    Serve {
        /// Environment variable with this node's name, where all agents are handed the same.
        #[arg(long, value_name = "VARIABLE")]
        node_from: Option<String>,
    },
    /// Kill what the ranks have started when the launch agent is gone.
    #[command(hide = true)]
    Guard {
        /// The node's directory for the job.
        dir: PathBuf,
        /// A bridge of the job's own.
        bridge: Option<String>,
    },
    /// Make the namespaces of a pod.
    #[command(hide = true)]
    MakePod {
        /// For ranks that start in it, not for ranks that come back.
        #[arg(long)]
        fresh: bool,
    },
    /// Be the first process of a pod.
    #[command(hide = true)]
    HoldPod {
        /// See make-pod.
        #[arg(long)]
        fresh: bool,
    },
    /// Start the ranks of a pod and pass on what they say.
    #[command(hide = true)]
    Tend,
}

/// `exec-rank PARENT -- PROGRAM ARGUMENTS...`: the step between the launch agent PARENT and a rank. It is taken for every
/// rank, so it costs no more than it must, and no command line is parsed for it.
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
        return ExitCode::from(127);
    }
    match Arguments::parse().step {
        Step::Serve { node_from } => exit("ftb-nla", serve(node_from.as_deref())),
        Step::Guard { dir, bridge } => {
            guard::run(std::io::stdin().lock(), &dir, bridge.as_deref());
            ExitCode::SUCCESS
        }
        Step::MakePod { fresh } => exit("ftb-nla", tend::make(fresh).map_err(Failure::from)),
        Step::HoldPod { fresh } => exit("ftb-nla", tend::hold(fresh).map_err(Failure::from)),
        Step::Tend => exit("ftb-nla", tend::tend().map_err(Failure::from)),
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
        let handed = nla::read_handed(node.transpose()?.as_deref()).await;
        nla::run(handed.map_err(Failure::bad_input)?).await.map_err(Failure::failed)
    });
    // A copy that is still under way holds nobody up.
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
