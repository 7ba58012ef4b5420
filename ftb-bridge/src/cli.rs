//! The command line.

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Exports events to NATS JetStream, imports alarms of the facility, and sends traces of jobs.
///
/// Every event, condition and gap of the cluster becomes one CloudEvent in a stream. Alarms become
/// events and conditions of the hosts of a rack. A second bridge of the cluster is on standby.
/// Episodes of jobs become traces (OTLP), if it is configured.
///
/// Exit codes: 0 stopped by a signal, 1 failed, or no status, 64 bad arguments or
/// configuration.
#[derive(Debug, Parser)]
#[command(name = "ftb-bridge", version)]
#[command(after_long_help = "\
Examples:
  ftb-bridge check
  ftb-bridge status")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Configuration file [default: /etc/ftb/bridge.toml if it exists, else built-in defaults]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// What to do.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum Command {
    /// Be the bridge until SIGTERM or SIGINT
    #[command(after_long_help = "\
Examples:
  ftb-bridge run --config /etc/ftb/bridge.toml")]
    Run,
    /// Check the configuration and exit
    #[command(after_long_help = "\
Examples:
  ftb-bridge check
  ftb-bridge check --config /etc/ftb/bridge.toml")]
    Check,
    /// Show how far the bridge of this host is.
    ///
    /// Exit codes: 0 it runs, also on standby, 1 it does not run, or has not reached NATS or
    /// imported a waiting alarm for a minute, 64 bad arguments or configuration.
    #[command(after_long_help = "\
Examples:
  ftb-bridge status
  ftb-bridge status --json")]
    Status {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
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
