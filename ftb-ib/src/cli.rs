//! The command line.

use clap::Parser;
use std::path::PathBuf;

/// Publishes what happens to the InfiniBand and RoCE adapters of this node.
///
/// SIGHUP closes all adapters for a while, so that their drivers can be unloaded.
///
/// Exit codes: 0 stopped by a signal, 1 failed, 64 bad arguments or configuration.
#[derive(Debug, Parser)]
#[command(name = "ftb-ib", version)]
#[command(after_long_help = "\
Examples:
  ftb-ib --check-config --config /etc/ftb/ib.toml
  ftb-ib --print")]
pub struct Cli {
    /// Configuration file [default: /etc/ftb/ib.toml if it exists, else built-in defaults]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check the configuration and exit. An unknown counter is bad input
    #[arg(long)]
    pub check_config: bool,
    /// Print events as JSON lines instead of publishing them; needs no agent
    #[arg(long)]
    pub print: bool,
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
