//! The command line.

use crate::config::Config;
use clap::{Parser, Subcommand};
use ftb_client::daemon::Failure;
use ftb_core::hostlist::{Hostlist, HostlistError};
use std::path::PathBuf;
use std::time::Duration;

/// Drains Slurm's nodes while a condition of ftb holds, and publishes what happens to them.
///
/// Run one for each site, beside slurmctld. Its reasons are `ftb:CONDITION COMPONENT`. It changes
/// no node with another reason, and resumes only nodes that it has drained.
///
/// Exit codes: 0 stopped by a signal, 1 failed, 64 bad arguments or configuration.
#[derive(Debug, Parser)]
#[command(name = "ftb-slurm", version, args_conflicts_with_subcommands = true)]
#[command(after_long_help = "\
Examples:
  ftb-slurm --check-config --config /etc/ftb/slurm.toml")]
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
    /// Unhealthy is a node that the bridge drains: conditions count as its configuration says, and
    /// a silenced one does not (`ftbctl silence`). Slurm runs a HealthCheckProgram without
    /// arguments and ignores its exit code; for slurm.conf there are slurm-health and slurm-prolog
    /// in /usr/libexec/ftb.
    ///
    /// Exit codes: 0 healthy or unknown, 1 a condition drains the node, 64 bad arguments. With
    /// --strict, unknown is 2.
    #[command(after_long_help = "\
Examples:
  ftb-slurm health
  ftb-slurm health --node node07 --strict
  ftb-slurm health --drain alone")]
    Health(HealthArgs),
    /// Say which nodes a job should not get: those with a condition that holds.
    ///
    /// Without a job, prints `--exclude=HOSTLIST` for sbatch and srun, or nothing:
    /// `sbatch $(ftb-slurm advice --nodes "$(sinfo -h -o %N)") job.sh`. With a job, prints the
    /// commands that requeue it without these nodes:
    /// `ftb-slurm advice --nodes "$(sinfo -h -o %N)" 4711 | sh -e`. Only the local agent is asked.
    ///
    /// Exit codes: 0 advised, also if there is no such node, 1 failed, 3 no agent, or no
    /// answer in time, 64 bad arguments.
    #[command(after_long_help = "\
Examples:
  sbatch $(ftb-slurm advice --nodes node[01-16]) job.sh
  ftb-slurm advice 4711")]
    Advice(AdviceArgs),
}

/// Which conditions count.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct RuleArgs {
    /// Configuration whose severity, conditions and ignore count [default: /etc/ftb/slurm.toml if
    /// it exists, else built-in defaults]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The mildest condition that counts [default: that of the configuration, else error]
    #[arg(long, value_name = "SEVERITY")]
    pub severity: Option<ftb_core::Severity>,
    /// The only keys of conditions that count [default: those of the configuration, else all]
    #[arg(long, value_name = "KEYS", value_delimiter = ',')]
    pub conditions: Option<Vec<String>>,
    /// Keys of conditions that do not count [default: those of the configuration, else
    /// CERTIFICATE_EXPIRES]
    #[arg(long, value_name = "KEYS", value_delimiter = ',')]
    pub ignore: Option<Vec<String>>,
}

impl RuleArgs {
    /// The configuration with these rules.
    ///
    /// # Errors
    /// The file and what is wrong with it.
    pub fn config(&self) -> Result<Config, Failure> {
        let mut config = Config::load_or_default(self.config.as_deref())?;
        let upper = |keys: &Vec<String>| keys.iter().map(|key| key.to_ascii_uppercase()).collect();
        let rules = &mut config.rules;
        rules.severity = self.severity.unwrap_or(rules.severity);
        if let Some(keys) = &self.conditions {
            rules.conditions = upper(keys);
        }
        if let Some(keys) = &self.ignore {
            rules.ignored = upper(keys);
        }
        Ok(config)
    }
}

/// When `health` drains an unhealthy node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DrainWhen {
    /// Never: the bridge does
    Never,
    /// If no bridge watches Slurm
    Alone,
    /// Always
    Always,
}

/// Arguments of `advice`.
#[derive(Debug, clap::Args)]
pub struct AdviceArgs {
    /// The job to requeue, like 4711 or 4711_3
    #[arg(value_name = "JOB", value_parser = job)]
    pub job: Option<String>,
    /// Name only these nodes, as Slurm rejects hosts that are not its nodes: "$(sinfo -h -o %N)"
    /// [default: all hosts]
    #[arg(long, value_name = "HOSTLIST", value_parser = Hostlist::parse)]
    pub nodes: Option<Hostlist>,
    /// Exclude these nodes too, such as those that the job excludes already:
    /// "$(squeue -h -j JOB -o %x)"
    #[arg(long, value_name = "HOSTLIST", value_parser = hosts)]
    pub also: Option<Hostlist>,
    /// Which conditions count.
    #[command(flatten)]
    pub rules: RuleArgs,
    /// Print one JSON object with the reasons
    #[arg(long)]
    pub json: bool,
    /// Socket of the agent [default: FTB_AGENT_SOCKET, else /run/ftb/agent.sock]
    #[arg(long = "agent-socket", alias = "agent", value_name = "PATH")]
    pub agent: Option<PathBuf>,
    /// How long to wait for the agent, in milliseconds
    #[arg(long, value_name = "MS", default_value = "1000", value_parser = milliseconds)]
    pub timeout: Duration,
}

/// Arguments of `health`.
#[derive(Debug, clap::Args)]
pub struct HealthArgs {
    /// The node [default: the host of the agent]
    #[arg(long, value_name = "NODE", env = "SLURMD_NODENAME")]
    pub node: Option<String>,
    /// Socket of the agent [default: FTB_AGENT_SOCKET, else /run/ftb/agent.sock]
    #[arg(long = "agent-socket", alias = "agent", value_name = "PATH")]
    pub agent: Option<PathBuf>,
    /// Which conditions count.
    #[command(flatten)]
    pub rules: RuleArgs,
    /// Drain the node if it is unhealthy, with the reason of the bridge, unless it is drained or
    /// has a reason already. The bridge resumes it later
    #[arg(long, value_name = "WHEN", value_enum, default_value = "never")]
    pub drain: DrainWhen,
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

/// Empty and `(null)`, as Slurm prints it for a job that excludes none, are no hosts.
fn hosts(text: &str) -> Result<Hostlist, HostlistError> {
    match text.trim() {
        "" | "(null)" => Ok(Hostlist::default()),
        list => Hostlist::parse(list),
    }
}

/// A shell may read the answer: nothing but numbers.
fn job(text: &str) -> Result<String, String> {
    let mut parts = text.splitn(2, ['_', '+']);
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
    match parts.all(is_number) {
        true => Ok(text.to_owned()),
        false => Err("must be a number, like 4711 or 4711_3".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::{CommandFactory as _, Parser as _};

    #[test]
    fn a_job_is_a_number_and_no_command() {
        let reads = |job: &str| Cli::try_parse_from(["ftb-slurm", "advice", job]).is_ok();
        assert!(["4711", "4711_3", "4711+1"].into_iter().all(reads));
        assert!(!["4711;reboot", "_1", "", "4711_", "1_2_3"].into_iter().any(reads));
    }

    #[test]
    fn a_job_may_exclude_no_hosts_but_slurm_has_nodes() {
        let reads = |option: &str, list: &str| {
            Cli::try_parse_from(["ftb-slurm", "advice", option, list]).map_err(|e| e.exit_code())
        };
        assert!(["", "(null)", "node01"].iter().all(|list| reads("--also", list).is_ok()));
        assert!(reads("--nodes", "node[01-16],login1").is_ok());
        assert_eq!(["", "(null)"].map(|list| reads("--nodes", list).err()), [Some(2), Some(2)]);
    }

    #[test]
    fn the_man_page_matches_the_command_line() {
        ftb_tests::man::assert_page_is_current(Cli::command(), "8");
    }
}
