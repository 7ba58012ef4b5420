//! The words of `ftbctl ca`.

use clap::{Args, Subcommand};
use ftb_core::hostlist::Hostlist;
use std::path::PathBuf;

/// The longest validity, in days.
const DAYS_MAX: u64 = 36_500;
/// Default validity of a CA, in days.
pub(super) const CA_DAYS: u64 = 3650;
/// Default time within which a revocation list should be renewed, in days.
pub(super) const CRL_DAYS: u64 = 365;
/// Default validity of a host's certificate, in days.
pub(super) const HOST_DAYS: u64 = 825;

#[derive(Debug, Args)]
pub(crate) struct CaArgs {
    #[command(subcommand)]
    pub(super) command: CaCommand,
    /// The folder of the CA: keep it on a machine that only you can read
    #[arg(
        long,
        visible_alias = "ca-dir",
        global = true,
        value_name = "FOLDER",
        default_value = "ftb-ca",
        env = "FTB_CA_DIR"
    )]
    pub(super) dir: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(super) enum CaCommand {
    /// Create a CA: its key, its certificate, and an empty revocation list
    #[command(after_long_help = "\
Examples:
  ftbctl ca init my-cluster")]
    Init(Init),
    /// Create keys and certificates of hosts; again: renew those that need it
    ///
    /// A host gets a new key and certificate if it has none, or a revoked one, or one that has less
    /// than a third of its time left. Others keep theirs. Every call renews the revocation list.
    #[command(after_long_help = "\
Examples:
  ftbctl ca issue 'login1,node[01-16]'")]
    Issue(Issue),
    /// Revoke all certificates of hosts, and write the revocation list
    ///
    /// Without a host only the list is written again, with a new time.
    #[command(after_long_help = "\
Examples:
  ftbctl ca revoke node07")]
    Revoke(Revoke),
    /// Show the certificates: host, serial number, end, state
    #[command(after_long_help = "\
Examples:
  ftbctl ca show")]
    Show(Show),
}

#[derive(Debug, Args)]
pub(super) struct Init {
    /// The cluster, as `cluster` in agent.toml
    #[arg(value_name = "CLUSTER", value_parser = cluster)]
    pub(super) cluster: String,
    /// The CA ends after this time
    #[arg(long, value_name = "DAYS", default_value_t = CA_DAYS,
          value_parser = clap::value_parser!(u64).range(1..=DAYS_MAX))]
    pub(super) days: u64,
    /// A revocation list should be renewed within this time
    #[arg(long, value_name = "DAYS", default_value_t = CRL_DAYS,
          value_parser = clap::value_parser!(u64).range(1..=DAYS_MAX))]
    pub(super) crl_days: u64,
    /// Replace the CA in the folder: its certificates end with it
    #[arg(long)]
    pub(super) force: bool,
}

#[derive(Debug, Args)]
pub(super) struct Issue {
    /// The hosts as in `members`, like node[001-032]
    #[arg(value_name = "HOSTLIST", value_parser = hosts)]
    pub(super) hosts: Hostlist,
    /// The certificates end after this time, at most with the CA
    #[arg(long, value_name = "DAYS", default_value_t = HOST_DAYS,
          value_parser = clap::value_parser!(u64).range(1..=DAYS_MAX))]
    pub(super) days: u64,
    /// Replace certificates that need no renewal, and files of unknown origin
    #[arg(long)]
    pub(super) force: bool,
}

#[derive(Debug, Args)]
pub(super) struct Revoke {
    /// The hosts
    #[arg(value_name = "HOSTLIST", value_parser = hosts)]
    pub(super) hosts: Option<Hostlist>,
}

#[derive(Debug, Args)]
pub(super) struct Show {
    /// The hosts [default: all]
    #[arg(value_name = "HOSTLIST", value_parser = hosts)]
    pub(super) hosts: Option<Hostlist>,
}

/// A host list.
pub(crate) fn hosts(text: &str) -> Result<Hostlist, String> {
    Hostlist::parse(text).map_err(|error| error.to_string())
}

/// As the agent checks it.
pub(crate) fn cluster(text: &str) -> Result<String, String> {
    ftb_core::ident::check_cluster(text).map(|()| text.to_owned())
}
