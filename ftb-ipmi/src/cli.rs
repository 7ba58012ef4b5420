//! The command line.

use clap::Parser;
use std::path::PathBuf;

/// Watches fans, temperatures, voltages, power supplies, memory, processors and buses of nodes
/// through their BMCs and publishes their failures.
///
/// Exit codes: 0 ok (also after SIGTERM), 1 failed (with --once: a BMC is unreadable), 64 bad
/// input: a wrong option, file or rule, or BMCs that need a change by an administrator (no
/// permission, no device, wrong password, no such cipher suite).
#[derive(Debug, Parser)]
#[command(name = "ftb-ipmi", version)]
#[command(after_long_help = "\
Examples:
  ftb-ipmi --once --bmc 127.0.0.1:9001 --node node001 --user ftb
  ftb-ipmi --check-config --config /etc/ftb/ipmi.toml")]
pub struct Cli {
    /// Configuration file.
    #[arg(long, default_value = "/etc/ftb/ipmi.toml", value_name = "FILE")]
    pub config: PathBuf,
    /// Check the configuration and exit. A missing password is bad input.
    #[arg(long)]
    pub check_config: bool,
    /// Dry run: read every sensor once, print a table with the verdicts, publish nothing.
    #[arg(long)]
    pub once: bool,
    /// With --once: one JSON object per line instead of a table.
    #[arg(long, requires = "once")]
    pub json: bool,
    /// Print events as JSON lines instead of publishing them.
    #[arg(long, conflicts_with = "once")]
    pub print: bool,
    /// Socket of the agent [default: from the configuration, FTB_AGENT_SOCKET, or the client
    /// library].
    #[arg(long = "agent-socket", alias = "agent", value_name = "PATH")]
    pub agent: Option<PathBuf>,
    /// Watch this BMC without a configuration file: a device, or a host list with an optional port.
    /// Set the password in the environment variable FTB_IPMI_PASSWORD.
    #[arg(long, value_name = "BMC")]
    pub bmc: Option<String>,
    /// With --bmc: host list of the nodes [default: this host].
    #[arg(long, requires = "bmc", value_name = "HOSTS")]
    pub node: Option<String>,
    /// With --bmc: user name.
    #[arg(long, requires = "bmc", value_name = "NAME")]
    pub user: Option<String>,
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
