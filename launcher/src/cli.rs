//! The command line of `ftb-launch`. [`crate::commands`] executes it.

use clap::{Args, Parser, Subcommand, ValueEnum};
use core::time::Duration;
use ftb_launcher_core::jl::Interval;
use ftb_launcher_core::memory::Scheme;
use ftb_launcher_core::names::{JobId, NodeName};
use std::path::PathBuf;

const EXIT_CODES: &str = "\
Exit codes: of run, restart and attach the program's (128 + signal where it was killed), 1 failed,
64 bad input (nothing was started), 74 the program ended well but output was lost (standard output
or standard error could not be written), 75 no node became usable within --wait-for-nodes, 127 the
program cannot be started. Of the others: 0 ok, 1 failed or refused, 3 no agent or no answer, 64 bad
input, 74 messages were lost.
Jobs are kept in $FTB_JOBS_DIR, else in the user's state directory.";

/// Start a parallel program on its nodes and keep it running when nodes fail
#[derive(Parser, Debug)]
#[command(
    name = "ftb-launch",
    version,
    after_help = EXIT_CODES,
    after_long_help = format!("\
{EXIT_CODES}

Examples:
  ftb-launch run -n 2 -- hostname
  ftb-launch ps")
)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// See [`Cli`].
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a program
    ///
    /// Without nodes it runs on this host. If no agent runs there, one is started for this job, and
    /// ends with it; such a job cannot be taken over by `attach`.
    #[command(after_long_help = "\
Examples:
  ftb-launch run -n 2 -- hostname
  ftb-launch run -n 256 --hosts node[01-16] --spares node[17-18] -- ./solver
  salloc -N 18 ftb-launch run -n 256 --spares node[17-18] -- ./solver
  ftb-launch run -n 64 --hosts node[01-04] --wait-for-nodes 10m -- ./solver")]
    Run(Box<Run>),
    /// Start a job again from one of its sets (JOBDIR/sets/SET), on other nodes if you like
    #[command(after_long_help = "\
Examples:
  ftb-launch restart ~/.local/state/ftb/jobs/job-1/sets/set-000003 --hosts node[01-16]")]
    Restart(Box<Restart>),
    /// Take over a job whose launcher is gone
    ///
    /// The ranks keep running meanwhile. This launcher completes or undoes the open phase and stays
    /// until the job ends, as `run` does. `ps` shows such jobs as orphaned.
    #[command(after_long_help = "\
Examples:
  ftb-launch attach job-1")]
    Attach {
        /// Name of the job
        job: JobId,
    },
    /// List your jobs on this host with their state
    ///
    /// STATE is running, orphaned (its launcher is gone: use `attach`), done, or unreadable.
    #[command(after_long_help = "\
Examples:
  ftb-launch ps
  ftb-launch ps --json")]
    Ps {
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Show a job: its phase, sets, checkpoint interval, and the ranks of each node
    #[command(after_long_help = "\
Examples:
  ftb-launch status job-1
  ftb-launch status job-1 --what-if node03
  ftb-launch status job-1 --json")]
    Status {
        /// Name of the job
        job: JobId,
        /// Show instead what the death of this node would cost now
        #[arg(long, value_name = "NODE")]
        what_if: Option<NodeName>,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Save a running job as a set and wait until it is done
    ///
    /// The job goes on in either case. A running migration or restart is finished first.
    #[command(after_long_help = "\
Examples:
  ftb-launch checkpoint job-1
  ftb-launch checkpoint job-1 --timeout 30m")]
    Checkpoint(Ask),
    /// Move the ranks of a node to a hot spare and wait until it is done
    ///
    /// The other ranks wait meanwhile. Without a spare no rank moves: the job is saved instead, and
    /// the command fails. The node becomes a spare after an event of recovery, or after `usable`.
    #[command(after_long_help = "\
Examples:
  ftb-launch migrate job-1 node03")]
    Migrate(AskNode),
    /// Move the ranks of a node to a hot spare, and leave the node out until `usable`
    ///
    /// For maintenance: as `migrate`, but events do not bring the node back. Without JOB the node
    /// is taken out of all your running jobs that use it, one after the other.
    #[command(after_long_help = "\
Examples:
  ftb-launch drain node03
  ftb-launch drain job-1 node03")]
    Drain(Drain),
    /// Let a job use a node again that was left or drained: it becomes a hot spare
    #[command(after_long_help = "\
Examples:
  ftb-launch usable job-1 node03")]
    Usable(AskNode),
    /// Add nodes to a running job as hot spares and wait until they are there
    ///
    /// A job that waits for nodes uses them at once. All are refused if one has a condition for
    /// which the job's policy leaves a node. Nodes that the job has stay as they are; a lost node
    /// is started again.
    #[command(after_long_help = "\
Examples:
  ftb-launch add job-1 node[19-20]
  ftb-launch add job-1 node19 --json")]
    Add(Add),
    /// End a job: SIGTERM to all ranks, SIGKILL after its --kill-grace; `run` exits with code 143
    ///
    /// A job whose launcher is gone is ended too. Its kept output goes to standard error.
    #[command(after_long_help = "\
Examples:
  ftb-launch kill job-1")]
    Kill(Ask),
    /// Check and try policies, close the circuit breaker
    #[command(after_long_help = "\
Examples:
  ftb-launch policy check policy.toml")]
    Policy {
        /// What to do
        #[command(subcommand)]
        command: PolicyCommand,
    },
}

/// See [`Command::Policy`].
#[derive(Subcommand, Debug)]
pub enum PolicyCommand {
    /// Read a policy file and report errors
    #[command(after_long_help = "\
Examples:
  ftb-launch policy check policy.toml")]
    Check {
        /// The file
        file: PathBuf,
    },
    /// Show what a policy would have done with recorded events: one JSON object a line with space,
    /// name and host, and time_ns or `time_s`
    #[command(after_long_help = "\
Examples:
  ftbctl events 'severity>=error' --json > events.json
  ftb-launch policy test events.json --policy policy.toml")]
    Test {
        /// The file of events
        events: PathBuf,
        /// The policy (default: the built-in one)
        #[arg(long)]
        policy: Option<PathBuf>,
        /// The nodes of the job, as a host list; events about other hosts are ignored (default: all
        /// hosts of the events)
        #[arg(long)]
        nodes: Option<String>,
        /// One JSON object a line: `time_s` (since the first event), action, node, faults, words
        #[arg(long)]
        json: bool,
    },
    /// Close the circuit breaker of a running job's policy
    #[command(after_long_help = "\
Examples:
  ftb-launch policy reset job-1")]
    Reset(Ask),
}

/// A request to a job
#[derive(Args, Debug)]
pub struct Ask {
    /// Name of the job (`ftb-launch ps` lists them)
    pub job: JobId,
    /// How long to wait for the result
    #[arg(long, default_value = "10m", value_name = "TIME", value_parser = duration)]
    pub timeout: Duration,
    /// Answers as one JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// A request about a node of a job
#[derive(Args, Debug)]
pub struct AskNode {
    /// Name of the job (`ftb-launch ps` lists them)
    pub job: JobId,
    /// Name of the node, as `ftb-launch status JOB` shows it
    pub node: NodeName,
    /// How long to wait for the result
    #[arg(long, default_value = "10m", value_name = "TIME", value_parser = duration)]
    pub timeout: Duration,
    /// Answers as one JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// See [`Command::Add`].
#[derive(Args, Debug)]
pub struct Add {
    /// Name of the job (`ftb-launch ps` lists them)
    pub job: JobId,
    /// The nodes, as a host list
    pub nodes: String,
    /// What is known of them: a nodes file as of `run`
    #[arg(long = "nodes", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Their agents, where they are this host: NODE=SOCKET,...
    #[arg(long, value_name = "LIST", conflicts_with = "file")]
    pub local_nodes: Option<String>,
    /// Socket of the agents of nodes given by name alone; %n is the name of the node [default:
    /// FTB_AGENT_SOCKET, else /run/ftb/agent.sock]
    #[arg(long, value_name = "PATH")]
    pub agent_socket: Option<PathBuf>,
    /// How long to wait for the result
    #[arg(long, default_value = "10m", value_name = "TIME", value_parser = duration)]
    pub timeout: Duration,
    /// Answers as one JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// See [`Command::Drain`].
#[derive(Args, Debug)]
pub struct Drain {
    /// Name of the job (default: all your jobs), then the node
    #[arg(value_name = "[JOB] NODE", num_args = 1..=2, required = true)]
    pub words: Vec<String>,
    /// How long to wait for the result of each job
    #[arg(long, default_value = "10m", value_name = "TIME", value_parser = duration)]
    pub timeout: Duration,
    /// Answers as one JSON object a line
    #[arg(long)]
    pub json: bool,
}

impl Drain {
    /// The job, if given, and the node.
    ///
    /// # Errors
    /// A word that is not a name.
    pub fn names(&self) -> Result<(Option<JobId>, NodeName), String> {
        let (job, node) = match &self.words[..] {
            [job, node] => (Some(JobId::new(job).map_err(|error| error.to_string())?), node),
            [node, ..] => (None, node),
            [] => return Err("which node?".to_owned()),
        };
        Ok((job, NodeName::new(node).map_err(|error| error.to_string())?))
    }
}

/// Where a job runs
#[derive(Args, Debug)]
pub struct Place {
    /// The nodes: a TOML file of `[[node]]` tables with name and optionally agent (its socket),
    /// images, listen, address
    #[arg(long, value_name = "FILE")]
    pub nodes: Option<PathBuf>,
    /// The nodes on this host: NODE=SOCKET,...
    #[arg(long, value_name = "LIST", conflicts_with = "nodes")]
    pub local_nodes: Option<String>,
    /// Primary nodes, as a host list (default: all that are not spares; in a Slurm allocation its
    /// nodes; without any node, this host)
    #[arg(long, value_name = "HOSTS")]
    pub hosts: Option<String>,
    /// Hot spares, as a host list
    #[arg(long, value_name = "HOSTS")]
    pub spares: Option<String>,
    /// Ranks on each node (default: as few as possible)
    #[arg(long, value_name = "N")]
    pub ppn: Option<u32>,
    /// Placement of ranks: a file with lines `rank N=HOST` or `rank N-M=HOST`
    #[arg(long, value_name = "FILE", conflicts_with = "ppn")]
    pub rank_file: Option<PathBuf>,
    /// How to start launch agents (default: local for nodes of --local-nodes or --nodes and without
    /// hosts, slurm in a Slurm allocation, else ssh)
    #[arg(long, value_enum)]
    pub start: Option<StartOption>,
    /// The ssh command, before the name of the host
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "ssh -x -o BatchMode=yes -o ConnectTimeout=10"
    )]
    pub ssh_command: String,
    /// Extra options passed to srun
    #[arg(
        long,
        value_name = "WORDS",
        allow_hyphen_values = true,
        default_value = "--overlap --mpi=none --kill-on-bad-exit=0 --quiet"
    )]
    pub srun_options: String,
    /// Path of ftb-nla on the nodes (default: as on this host)
    #[arg(long, value_name = "PATH")]
    pub nla: Option<PathBuf>,
    /// Launch agents that the launcher and each launch agent start over ssh
    #[arg(long, value_name = "N", default_value_t = ftb_launcher_core::tree::FANOUT)]
    pub fanout: usize,
    /// How long a launch agent may take to come up before its node counts as lost
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub start_deadline: Duration,
    /// How the nodes reach this host: a name or an address (default: its host name)
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<String>,
    /// Socket of the agents, of this host and of the nodes given by name alone; %n is the name of
    /// the node [default: FTB_AGENT_SOCKET, else /run/ftb/agent.sock]
    #[arg(long, value_name = "PATH")]
    pub agent_socket: Option<PathBuf>,
    /// Socket of the launcher's own agent, where it is another one
    #[arg(long, env = "FTB_LAUNCH_AGENT_SOCKET", value_name = "PATH", hide = true)]
    pub agent: Option<PathBuf>,
}

/// How to start launch agents
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartOption {
    /// As children: all nodes are this host
    Local,
    /// In a tree, over ssh
    Ssh,
    /// By srun, in this Slurm allocation
    Slurm,
}

/// Reaction to the death of a rank or a node
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDeath {
    /// Survivors go back to the last set in place, dead ranks start again; otherwise as restart
    Rollback,
    /// The job goes on without dead ranks, in place; a spare takes the place of a lost node
    Shrink,
    /// End all ranks and start again from the last set; without one, stop
    Restart,
    /// End the job
    Stop,
    /// The others go on without dead ranks, and repair their communicators (ftb-job programs)
    Continue,
}

/// What is done about a hung rank
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnHang {
    /// Only report it
    Report,
    /// End all ranks and start again from the last set
    Restart,
    /// Kill the hung rank; survivors go back to the last set in place, otherwise as restart
    #[value(alias = "roll-back")]
    Rollback,
    /// End the job (exit code 137)
    Kill,
}

/// How a job runs
#[derive(Args, Debug)]
pub struct RunOptions {
    /// The policy (default: the built-in one, see deploy/config/policy.toml)
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// How ranks are saved and moved: auto (the default), app (programs that link ftb-job), loop
    /// (programs that call ftb_loop), criu (any program), or a TOML file with a table
    /// [backend.criu] or [backend.command]
    ///
    /// auto selects loop for a program with ftb_job.h or the Python module ftb.job, which it finds
    /// on the command line. It selects criu for another without ftb-job, if the job has spares,
    /// several nodes (unless with --checkpoint-every never), --memory or a named interval, if all
    /// nodes are this host, and pods can be made (CRIU); otherwise app. For restart the default is
    /// the backend of the job.
    #[arg(long, value_name = "NAME|FILE")]
    pub backend: Option<String>,
    /// Deadlines of the protocol's phases, as a TOML file
    #[arg(long, value_name = "FILE")]
    pub deadlines: Option<PathBuf>,
    /// Place ranks also on nodes with conditions that hold at the start (`ftbctl conditions`)
    #[arg(long)]
    pub ignore_conditions: bool,
    /// Reaction to the death of a rank or a node (default: of the policy; the built-in one says
    /// rollback)
    #[arg(long, value_enum)]
    pub on_death: Option<OnDeath>,
    /// Wait this long for a node, if a lost one has no spare, instead of ending the job (exit code
    /// 75 when the time is over)
    ///
    /// The job goes back to its last set as soon as a node is usable: a condition clears, a lost
    /// node returns, or `add` brings one. Its ranks end meanwhile; their images in memory stay.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub wait_for_nodes: Option<Duration>,
    /// Start N more processes of the program on each spare, which wait in the initialization of
    /// ftb-job and become the ranks of another node without being started (programs that link
    /// ftb-job)
    ///
    /// `status` shows which are parked. One that ends is started again. Where none is parked a rank
    /// is started as without this option. The program must not use its rank before it initializes
    /// ftb-job (`Job::init`, `FMI_Init`, `MPI_Init`).
    #[arg(long, value_name = "N")]
    pub warm_spares: Option<u32>,
    /// Start N more processes on each node with ranks, which become ranks that die there
    #[arg(long, value_name = "N")]
    pub warm_local: Option<u32>,
    /// What is done about a hung rank; without a set to go back to it is only reported, unless kill
    /// is chosen (default: of the policy; the built-in one says report)
    #[arg(long, value_enum)]
    pub on_hang: Option<OnHang>,
    /// A rank that is stopped counts as hung after this time (default: of the policy; the built-in
    /// one says 20s)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub hang_after: Option<Duration>,
    /// A rank that makes no progress counts as hung after this time (default: of the policy; the
    /// built-in one says 10m)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub stall_after: Option<Duration>,
    /// Checkpoint interval: a time, never, or auto, the optimum for the cost of a checkpoint and
    /// the rate of failures (default: of the policy; the built-in one says auto)
    #[arg(long, value_name = "TIME|auto")]
    pub checkpoint_every: Option<Interval>,
    /// Interval of checkpoints on the disks of the nodes, which bear the death of ranks and of the
    /// launcher, not the loss of a node: a time, never, or auto
    #[arg(long, value_name = "TIME|auto", default_value = "never")]
    pub disk_every: Interval,
    /// Save the job in the memory of its nodes too: buddy:K, with K copies of each node's images on
    /// others, or xor:N, with parity in groups of N nodes, which bears the loss of one of each
    ///
    /// For programs that link ftb-job or call ftb_loop, and for pods (criu). The first checkpoint
    /// in memory precedes the first step; that of pods follows soon after the start.
    #[arg(long, value_name = "SCHEME")]
    pub memory: Option<Scheme>,
    /// Interval of checkpoints in memory: a time, never, or auto
    #[arg(long, value_name = "TIME|auto", default_value = "auto", requires = "memory")]
    pub memory_every: Interval,
    /// Most bytes that a node holds in memory, for two generations with their protection, as 8GiB
    /// (default: a quarter of its available memory); a node with less available memory is not used
    #[arg(long, value_name = "BYTES", value_parser = bytes, requires = "memory")]
    pub memory_bytes: Option<u64>,
    /// Do not save the job in memory before its first step
    #[arg(long, requires = "memory")]
    pub no_memory_first: bool,
    /// Mean time between failures of the job's nodes, for auto (default: of the policy); observed
    /// failures correct it
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub mtbf: Option<Duration>,
    /// How many sets are kept; with pods one more from before a hang
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub keep_sets: usize,
    /// End the job after this time (exit code 124)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub time_limit: Option<Duration>,
    /// How long nodes go on without a launcher before they end the job
    #[arg(long, default_value = "10m", value_name = "TIME", value_parser = duration)]
    pub orphan_grace: Duration,
    /// Time between SIGTERM and SIGKILL
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = duration)]
    pub kill_grace: Duration,
    /// No standard input for any rank (default: rank 0 gets it)
    #[arg(long)]
    pub no_stdin: bool,
    /// Print each line with the rank that wrote it
    #[arg(long)]
    pub prefix: bool,
    /// Print only the output of the ranks
    #[arg(long, short)]
    pub quiet: bool,
    /// Keep the job's directory after a good end too
    #[arg(long)]
    pub keep: bool,
}

/// See [`Command::Restart`].
#[derive(Args, Debug)]
pub struct Restart {
    /// Directory of the set
    pub set: PathBuf,
    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    pub how: RunOptions,
}

/// See [`Command::Run`].
#[derive(Args, Debug)]
pub struct Run {
    /// Number of ranks
    #[arg(short, long, value_name = "N")]
    pub n: u32,
    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    pub how: RunOptions,
    /// Name of the job (default: generated)
    #[arg(long)]
    pub job: Option<JobId>,
    /// Working directory of the ranks (default: this one)
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Set an environment variable of the ranks, in addition to this process' environment
    #[arg(long = "env", value_name = "KEY=VALUE", value_parser = key_value)]
    pub env: Vec<(String, String)>,
    /// Program and arguments
    #[arg(last = true, required = true)]
    pub argv: Vec<String>,
}

/// A number of bytes, with a unit or without.
fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return Err("expected a number and B, KiB, MiB, GiB or TiB (as in 8GiB)".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "expected a number (as in 8GiB)".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "this is too large".to_owned())
}

fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error} (as in 30s, 5m)"))
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{Cli, Command, OnHang, bytes};
    use clap::{CommandFactory as _, Parser as _};
    use ftb_launcher_core::jl;
    use ftb_launcher_core::policy::{DEFAULT, Policy};

    #[test]
    fn a_number_of_bytes_has_a_unit_or_none() {
        assert_eq!(bytes("8GiB"), Ok(8 << 30));
        assert_eq!(bytes("512"), Ok(512));
        for bad in ["", "GiB", "8GB", "-1", "99999999TiB"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_rollback_is_spelled_as_for_deaths_and_as_in_earlier_releases() {
        for word in ["rollback", "roll-back"] {
            let cli =
                Cli::parse_from(["ftb-launch", "run", "-n", "1", "--on-hang", word, "--", "a"]);
            let Command::Run(run) = cli.command else { panic!("{cli:?}") };
            assert_eq!(run.how.on_hang, Some(OnHang::Rollback));
            let text =
                DEFAULT.replacen("on_hang = \"report\"", &format!("on_hang = \"{word}\""), 1);
            assert_eq!(Policy::parse(&text).unwrap().on_hang(), jl::OnHang::RollBack);
        }
    }

    #[test]
    fn the_man_pages_say_the_same() {
        ftb_tests::man::assert_page_is_current(Cli::command(), "1");
    }
}
