//! The command line.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// The default configuration file.
pub const CONFIG: &str = "/etc/ftb/act.toml";

/// Acts on the conditions of a cluster: drains hosts, runs programs, notifies web servers.
///
/// Run one for each site. Rules, profiles and the breaker are in its configuration. It acts once on
/// each condition that begins to hold, also when it is killed meanwhile, and on none that is
/// silenced (`ftbctl silence`).
///
/// Exit codes: 0 stopped by a signal or done, 1 failed, 3 no answer of the agent, 64 bad
/// arguments or configuration.
#[derive(Debug, Parser)]
#[command(name = "ftb-act", version)]
#[command(after_long_help = "\
Examples:
  ftb-act check
  ftb-act run --dry-run --since 7d")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Act until a signal
    #[command(after_long_help = "\
Examples:
  ftb-act run
  ftb-act run --dry-run --since 7d")]
    Run(RunArgs),
    /// Check the configuration: a mistake is named with line and column.
    ///
    /// If rules drain and an agent answers, asks it whether drains of other hosts count (`monitors`
    /// of agent.toml); code 1 if not.
    #[command(after_long_help = "\
Examples:
  ftb-act check
  ftb-act check --config /etc/ftb/act.toml")]
    Check(ConfigArgs),
    /// Show the breaker, and the orders that are saved
    #[command(after_long_help = "\
Examples:
  ftb-act status
  ftb-act status --json")]
    Status(StatusArgs),
    /// Close the breaker: what it refused passes once, if its conditions still hold
    #[command(after_long_help = "\
Examples:
  ftb-act resume")]
    Resume(ConfigArgs),
    /// Become a program that ends with its parent
    #[command(hide = true)]
    Tied {
        /// The process id of the parent.
        parent: i32,
        /// Program and arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        program: Vec<std::ffi::OsString>,
    },
}

/// The configuration.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// Configuration file
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub config: PathBuf,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Do nothing: read the log of the cluster since then, print what would have been done, end
    #[arg(long, requires = "since")]
    pub dry_run: bool,
    /// How far to go back, like 7d
    #[arg(long, value_name = "DURATION", requires = "dry_run", value_parser = duration)]
    pub since: Option<Duration>,
}

/// Arguments of `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory as _;

    #[test]
    fn the_man_page_matches_the_command_line() {
        ftb_tests::man::assert_page_is_current(Cli::command(), "8");
    }
}
