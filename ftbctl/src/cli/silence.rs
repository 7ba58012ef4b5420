//! The words of `ftbctl silence`.

use crate::text::{Moment, parse_duration};
use clap::{Args, Subcommand};
use core::time::Duration;

/// The commands of `ftbctl silence`.
#[derive(Debug, Subcommand)]
pub(crate) enum SilenceCommand {
    /// Begin a silence, and write its id
    #[command(after_long_help = "\
Examples:
  ftbctl silence add node[01-16] --for 2h --reason 'new fans' --key FANFAIL
  ftbctl silence add node[01-16] --from '2026-12-01 06:00' --for 4h --reason 'new racks'")]
    Add(SilenceAdd),
    /// List the silences that have not ended
    #[command(after_long_help = "\
Examples:
  ftbctl silence list
  ftbctl silence list --json")]
    List,
    /// End a silence
    #[command(after_long_help = "\
Examples:
  ftbctl silence remove 139af0937b29092e250242bf247ca784.1")]
    Remove {
        /// Its id, as add and list print it
        #[arg(value_name = "ID")]
        id: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SilenceAdd {
    /// The hosts, like node[001-032]
    #[arg(value_name = "HOSTLIST")]
    pub(crate) hosts: String,
    /// Only conditions with this key, like FANFAIL [default: all]
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// When it begins: a time, or a duration from now, like 14h; at most 30 days ahead
    /// [default: now]
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Option<Moment>,
    /// How long, like 2h; at most 30 days
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) lasts: Duration,
    /// Why
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
}
