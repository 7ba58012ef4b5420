//! The command line.

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// Drains Slurm's nodes while a condition of ftb holds, and publishes what happens to them.
///
/// Run one for each site, beside slurmctld. Its reasons are `ftb:CONDITION COMPONENT`. It changes
/// no node with another reason, and resumes only nodes that it has drained.
///
/// Exit codes: 0 stopped by a signal, 1 failed, 2 bad arguments or configuration.
#[derive(Debug, Parser)]
#[command(name = "ftb-slurm", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do instead.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Configuration file [default: /etc/ftb/slurm.toml if it exists, else built-in defaults]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check the configuration and exit
    #[arg(long)]
    pub check_config: bool,
}

/// What to do instead of being the bridge.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say whether this node is healthy, for HealthCheckProgram, prolog and epilog.
    ///
    /// Exit codes: 0 healthy or unknown, 1 a condition drains the node. With --strict, unknown is
    /// 2.
    Health(HealthArgs),
}

/// Arguments of `health`.
#[derive(Debug, clap::Args)]
pub struct HealthArgs {
    /// The node [default: the host of the agent]
    #[arg(long, value_name = "NODE", env = "SLURMD_NODENAME")]
    pub node: Option<String>,
    /// Socket of the agent [default: FTB_AGENT_SOCKET, else /run/ftb/agent.sock]
    #[arg(long, value_name = "PATH")]
    pub agent: Option<PathBuf>,
    /// The mildest condition that counts
    #[arg(long, value_name = "SEVERITY", default_value = "error")]
    pub severity: ftb_core::Severity,
    /// How long to wait for the agent, in milliseconds
    #[arg(long, value_name = "MS", default_value = "1000", value_parser = milliseconds)]
    pub timeout: Duration,
    /// End with code 2 if the health is unknown, such as without an agent
    #[arg(long)]
    pub strict: bool,
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    let number: u64 = text.parse().map_err(|_| "no number".to_owned())?;
    let range = 1..=60_000;
    match range.contains(&number) {
        true => Ok(Duration::from_millis(number)),
        false => Err("must be 1 to 60000".to_owned()),
    }
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
