//! The command line: the one source of help, man pages and completion.

mod hosts;
mod silence;
mod texts;

use crate::ca::{self, CaArgs};
use crate::common::Common;
use crate::failure::Failure;
use crate::output::Output;
use crate::text::{Moment, parse_duration};
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use core::time::Duration;
use ftb_client::{Condition, ConfirmLevel, EventId, Position, RecommendedAction, Severity, Truth};
use ftb_core::hostlist::Hostlist;
use ftb_launcher_core::names::{JobId, NodeName};
pub(crate) use hosts::HostsCommand;
pub(crate) use silence::{SilenceAdd, SilenceCommand};
use std::path::PathBuf;
use texts::{
    CA, CONDITIONS, DOCTOR, DRILL, EXIT_CODES, EXPLAIN, FILTERS, HEALTH_CODES, SILENCE, TOP, TRACE,
    TREE,
};

/// Publish fault events, watch the events of the cluster, show its tree.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_CODES, max_term_width = 100)]
#[command(after_long_help = format!("\
{EXIT_CODES}

Examples:
  ftbctl tree
  ftbctl tail 'severity>=warning'
  ftbctl doctor"))]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Publish one event, and wait until it is committed
    #[command(after_long_help = "\
Examples:
  ftbctl publish my.health.check DISK_FULL '/scratch is full' --severity error
  ftbctl publish site.disk DISK_BAD -s error --condition DISK_BAD --component sda")]
    Publish(Publish),
    /// Print events as they arrive
    #[command(visible_alias = "tail", after_help = FILTERS)]
    #[command(after_long_help = format!("\
{FILTERS}

Examples:
  ftbctl subscribe 'severity>=warning, hostname=node[001-064]'
  ftbctl tail 'event_name=FTB_NODE_DEAD' --count 1 --timeout 10m"))]
    Subscribe(Subscribe),
    /// Print the events that the cluster still stores
    #[command(after_help = FILTERS)]
    #[command(after_long_help = format!("\
{FILTERS}

Examples:
  ftbctl events 'event_space=ftb.agent, severity>=error' --since 2h
  ftbctl events 'hostname=node[001-064]' --since '1 hour ago' --json"))]
    Events(Events),
    /// Show the tree of agents
    #[command(after_help = TREE)]
    #[command(after_long_help = format!("\
{TREE}

Examples:
  ftbctl tree --wait=full --timeout 1m
  ftbctl tree --down"))]
    Tree(TreeArgs),
    /// Fold, expand, count and compare host lists
    ///
    /// Needs no agent. Hosts are sorted by name and number, and stand in a result once.
    #[command(subcommand)]
    #[command(after_long_help = "\
Examples:
  squeue -h -t R -o %N | ftbctl hosts fold     # node[001-016]
  ftbctl hosts diff node[1-9] node[3-4],node9  # node[1-2,5-8]
  ftbctl hosts count node[001-032]             # 32")]
    Hosts(HostsCommand),
    /// Show what is wrong now: the conditions of the cluster
    #[command(after_help = CONDITIONS)]
    #[command(after_long_help = format!("\
{CONDITIONS}

Examples:
  ftbctl conditions node[001-032]
  ftbctl conditions node07 --wait-clear --timeout 1h"))]
    Conditions(ConditionsArgs),
    /// Show the health of one node, in one line and as the exit code
    #[command(after_help = HEALTH_CODES)]
    #[command(after_long_help = format!("\
{HEALTH_CODES}

Examples:
  ftbctl health node07 --watched-by ftb.agent,ftb.ipmi"))]
    Health(HealthArgs),
    /// Silence conditions of hosts during maintenance: no program drains, pages or runs for them
    ///
    /// Conditions stay true: conditions and health show them as before, and mark them. Metrics and
    /// alerts do not change: Alertmanager has silences of its own. Root, the agent's user and users
    /// whom an access rule of ftb.silence names may silence.
    #[command(subcommand, after_help = SILENCE)]
    #[command(after_long_help = format!("\
{SILENCE}

Examples:
  ftbctl silence add node[01-16] --for 2h --reason 'new power supplies in rack 3'
  ftbctl silence add node07 --key FANFAIL --for 24h --reason 'a fan is ordered'
  ftbctl silence list"))]
    Silence(SilenceCommand),
    /// Explain an event or a condition: cause, severity, what ftb's programs do about it
    ///
    /// Needs no agent. The reactions are those of job launchers, by the built-in policy and by the
    /// policies of your jobs on this host that differ from it, and of ftb-act and ftb-slurm, where
    /// their configuration is on this host.
    #[command(after_help = EXPLAIN)]
    #[command(after_long_help = format!("\
{EXPLAIN}

Examples:
  ftbctl explain FTB_IPMI_FANFAIL
  ftbctl explain FANFAIL --policy policy.toml
  ftbctl explain ftb.ib --act act.toml"))]
    Explain(ExplainArgs),
    /// Show the path of an event: each step of each agent, with its delay
    ///
    /// Agents remember the steps of events of ERROR and FATAL, of those of WARNING that state a
    /// condition, and of those published with --trace, in a ring of 192 KiB. You see the paths of
    /// events that you may read.
    #[command(after_help = TRACE)]
    #[command(after_long_help = format!("\
{TRACE}

Examples:
  ftbctl trace 139af0937b29092e250242bf247ca784.1"))]
    Trace(TraceArgs),
    /// Suppose that a fan of a node has failed: test the path of a fault up to the decisions
    ///
    /// The event takes the path of a real fault: agent, acting root, commit, subscriptions. Each
    /// launcher answers what it would do, and does nothing. No condition is set. Root and the
    /// agent's user drill all jobs, others their own with --job.
    #[command(after_help = DRILL)]
    #[command(after_long_help = format!("\
{DRILL}

Examples:
  ftbctl drill --node node07
  ftbctl drill --job job-1"))]
    Drill(DrillArgs),
    /// Demonstrate on this machine: a fan fails, the job moves, the result is right
    ///
    /// Runs ftb-demo with these arguments: the one beside ftbctl, else the one on the PATH (make
    /// demo builds both). It needs no agent: it starts five.
    #[command(after_long_help = "\
Examples:
  ftbctl demo
  ftbctl demo --iterations 300")]
    Demo {
        /// Arguments of ftb-demo (ftb-demo --help shows them)
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Show one node: state, place in the tree, version, health, conditions
    #[command(after_long_help = "\
Examples:
  ftbctl node node07
  ftbctl node node07 --json")]
    Node(NodeArgs),
    /// Show the cluster live: acting root, agents, event rate, conditions, newest events
    ///
    /// Conditions are shown by severity, with the hosts of each as a host list.
    #[command(after_help = TOP)]
    #[command(after_long_help = format!("\
{TOP}

Examples:
  ftbctl top
  ftbctl top --once 'severity>=warning'"))]
    Top(Top),
    /// Show the status of the local agent
    #[command(after_long_help = "\
Examples:
  ftbctl status
  ftbctl status --json")]
    Status,
    /// Examine ftb itself: configuration, socket, tree, versions, clocks, certificates, journals
    ///
    /// Asks all agents. Each finding names its fix. Faults of the hardware are shown by ftbctl
    /// conditions.
    #[command(after_help = DOCTOR)]
    #[command(after_long_help = format!("\
{DOCTOR}

Examples:
  ftbctl doctor
  ftbctl doctor --config /etc/ftb/agent.toml --json"))]
    Doctor(DoctorArgs),
    /// Write a configuration of the agent with certificates, and say what to do next
    ///
    /// Writes DIR/agent.toml and the files of this host in DIR/tls; the certificates of all hosts
    /// are in the folder of the CA (ftbctl ca). Replaces no file. Needs no agent.
    #[command(after_long_help = "\
Examples:
  ftbctl init my-cluster
  ftbctl init my-cluster 'login1,node[01-16]'")]
    Init(InitArgs),
    /// Create, renew and revoke the certificates of agents
    #[command(after_help = CA)]
    #[command(after_long_help = format!("\
{CA}

Examples:
  ftbctl ca init my-cluster
  ftbctl ca issue 'node[01-16]'"))]
    Ca(CaArgs),
    /// Write a man page or shell completion to standard output
    #[command(hide = true)]
    Generate(Generate),
}

#[derive(Debug, Args)]
pub(crate) struct Publish {
    /// The event space, like ftb.ipmi
    #[arg(value_parser = parse::<ftb_client::EventSpace>)]
    pub(crate) space: ftb_client::EventSpace,
    /// The event's name, like FTB_IPMI_FANFAIL
    #[arg(value_parser = parse::<ftb_client::EventName>)]
    pub(crate) name: ftb_client::EventName,
    /// The payload, as text
    pub(crate) payload: Option<String>,
    /// info, warning, error or fatal
    #[arg(long, short, default_value = "info", value_parser = parse::<Severity>)]
    pub(crate) severity: Severity,
    /// A tag; may be repeated
    #[arg(long = "tag", short, value_name = "KEY=VALUE", value_parser = tag)]
    pub(crate) tags: Vec<(String, String)>,
    /// The payload from a file, - for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "payload")]
    pub(crate) payload_file: Option<PathBuf>,
    /// The job of the event
    #[arg(long, value_name = "ID", default_value = "")]
    pub(crate) job_id: String,
    /// Agents remember the path of the event, whatever its severity is (ftbctl trace)
    #[arg(long)]
    pub(crate) trace: bool,
    /// What the event must survive before it is confirmed, if that can be had: memory or disk
    /// [default: that of the agent]
    #[arg(long, value_name = "LEVEL", value_parser = parse::<ConfirmLevel>)]
    pub(crate) confirm: Option<ConfirmLevel>,
    /// The id of the event that this event answers
    #[arg(long, value_name = "EVENT_ID", value_parser = parse::<EventId>)]
    pub(crate) response_to: Option<EventId>,
    /// The event sets this condition, or clears it; it stays so until another event changes it
    #[arg(long, value_name = "KEY[=clear]", value_parser = condition)]
    pub(crate) condition: Option<(String, Truth)>,
    /// The host of the condition [default: this host]
    #[arg(long, value_name = "HOST", default_value = "", requires = "condition")]
    pub(crate) host: String,
    /// The component of the condition, like a fan [default: the host itself]
    #[arg(long, value_name = "NAME", default_value = "", requires = "condition")]
    pub(crate) component: String,
    /// What to do: none, watch, reset-component, restart-process, migrate, reboot or replace
    #[arg(long, value_name = "ACTION", default_value = "none", requires = "condition",
          value_parser = parse::<RecommendedAction>)]
    pub(crate) action: RecommendedAction,
    /// The condition becomes unknown after this time, like 10m [default: never]
    #[arg(long, value_name = "DURATION", requires = "condition",
          value_parser = parse_duration)]
    pub(crate) expires: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct TreeArgs {
    /// Print one line: how many agents are in which state, acting root, standby, depth
    #[arg(long, conflicts_with = "down")]
    pub(crate) summary: bool,
    /// Print only the hosts that are not up, as a host list for each state
    #[arg(long)]
    pub(crate) down: bool,
    /// Wait, at most --timeout, until the acting root answers (tree) or all listed agents are up
    /// (full)
    #[arg(long, value_name = "STATE", num_args = 0..=1, require_equals = true,
          default_missing_value = "tree")]
    pub(crate) wait: Option<TreeState>,
}

/// What `tree --wait` waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TreeState {
    /// The acting root answers
    Tree,
    /// Every host of the member list is up
    Full,
}

#[derive(Debug, Args)]
pub(crate) struct ConditionsArgs {
    /// The hosts, like node[001-032] [default: all]
    #[arg(value_name = "HOSTLIST")]
    pub(crate) hosts: Option<String>,
    /// The key, like FANFAIL or PORT_*
    #[arg(long, value_name = "KEY", default_value = "*")]
    pub(crate) key: String,
    /// Show watches and conditions that do not hold too
    #[arg(long)]
    pub(crate) all: bool,
    /// Wait until no shown condition holds or is unknown, at most --timeout
    #[arg(long)]
    pub(crate) wait_clear: bool,
}

#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// The node
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
    /// Watchers that a healthy node must have, such as ftb.agent,ftb.ipmi
    #[arg(long, value_name = "SPACES", value_delimiter = ',')]
    pub(crate) watched_by: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// The node
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
}

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Which events are shown (ftbctl tail --help), beginning one hour ago
    #[arg(value_name = "FILTER", default_value = "severity>=warning")]
    pub(crate) filter: String,
    /// Print one frame and exit: for programs, and where there is no terminal
    #[arg(long)]
    pub(crate) once: bool,
    /// How often the agents are asked, like 5s. Below 2s the rate may lag: an agent that passes no
    /// event on learns with a heartbeat, once a second, how far the log is
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = look_interval)]
    pub(crate) interval: Duration,
}

/// The shortest interval of `top`: each look asks all agents.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// The longest: the screen shows a cluster, not its past.
const INTERVAL_MAX: Duration = Duration::from_secs(60);

fn look_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    match (INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) {
        true => Ok(interval),
        false => Err("must be 100ms to 60s".to_owned()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The event or condition [default: list all]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Show what this policy of ftb-launch does, instead of those of your jobs
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// The configuration of ftb-act [default: /etc/ftb/act.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    pub(crate) act: Option<PathBuf>,
    /// The configuration of ftb-slurm [default: /etc/ftb/slurm.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    pub(crate) slurm: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// The id of the event, as publish and events --json print it
    #[arg(value_name = "EVENT_ID", value_parser = parse::<EventId>)]
    pub(crate) event: EventId,
}

#[derive(Debug, Args)]
pub(crate) struct DrillArgs {
    /// The node [default: this host, with --job the first one with ranks]
    #[arg(long, value_name = "NODE", value_parser = parse::<NodeName>)]
    pub(crate) node: Option<NodeName>,
    /// The host that publishes the fault [default: the one whose ftb-ipmi watches the node, else
    /// the node]
    #[arg(long, value_name = "HOST", value_parser = parse::<NodeName>)]
    pub(crate) from: Option<NodeName>,
    /// Ask only the launcher of this job
    #[arg(long, value_name = "JOB", value_parser = parse::<JobId>)]
    pub(crate) job: Option<JobId>,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The name of the cluster
    #[arg(value_name = "CLUSTER", value_parser = ca::cluster)]
    pub(crate) cluster: String,
    /// Every host in rank order, like login1,node[001-032] [default: this host]
    #[arg(value_name = "HOSTLIST", value_parser = ca::hosts)]
    pub(crate) hosts: Option<Hostlist>,
    /// The folder of the configuration
    #[arg(long, value_name = "FOLDER", default_value = "/etc/ftb")]
    pub(crate) dir: PathBuf,
    /// The folder of the CA, which is made if there is none
    #[arg(long, value_name = "FOLDER", default_value = "ftb-ca", env = "FTB_CA_DIR")]
    pub(crate) ca_dir: PathBuf,
    /// This host as it stands in the list [default: its host name, long or short]
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// The name of `--agent-socket` in older releases
    #[arg(long, value_name = "PATH", hide = true)]
    pub(crate) socket: Option<PathBuf>,
    /// Without certificates, for a test: every process that reaches the port can act as an agent
    #[arg(long)]
    pub(crate) insecure: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// The configuration file of the local agent
    #[arg(long, value_name = "FILE", default_value = "/etc/ftb/agent.toml")]
    pub(crate) config: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Subscribe {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Begin in the past: "1 hour ago", 10m, 2026-11-21T13:00:00Z, or "2026-11-21 13:00"
    #[arg(long, value_name = "TIME", value_parser = parse::<Moment>)]
    pub(crate) since: Option<Moment>,
    /// Resume after this position (field `position` of `--json`)
    #[arg(long, value_name = "POSITION", conflicts_with = "since")]
    #[arg(value_parser = parse::<Position>)]
    pub(crate) after: Option<Position>,
    /// Stop after N events; fewer within --timeout: exit code 3
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct Events {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Begin at this time: "1 hour ago", 10m, 2026-11-21T13:00:00Z, or "2026-11-21 13:00"
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse::<Moment>)]
    pub(crate) since: Moment,
    /// Stop after N events
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) count: Option<u64>,
}

/// The events that a command prints.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Print events that match this filter [default: all]
    #[arg(value_name = "FILTER", default_value = "")]
    words: String,
    /// The filter, as an option
    #[arg(long = "filter", value_name = "FILTER", conflicts_with = "words")]
    option: Option<String>,
}

impl Which {
    pub(crate) fn filter(&self) -> &str {
        self.option.as_deref().unwrap_or(&self.words)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Generate {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The man page
    Man,
    /// Completion for a shell
    Completion { shell: clap_complete::Shell },
}

/// Writes the man page or a completion script.
pub(crate) fn generate(args: &Generate, mut output: Output) -> Result<(), Failure> {
    let mut command = Cli::command();
    let mut bytes = Vec::new();
    match args.what {
        What::Man => clap_mangen::Man::new(command).render(&mut bytes)?,
        What::Completion { shell } => {
            clap_complete::generate(shell, &mut command, "ftbctl", &mut bytes);
        }
    }
    output.raw(&bytes)
}

/// Parses a value. The error names the column.
fn parse<T: core::str::FromStr<Err: core::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// A condition that is set, or cleared.
fn condition(text: &str) -> Result<(String, Truth), String> {
    let (key, truth) = match text.split_once('=') {
        None => (text, Truth::True),
        Some((key, "clear")) => (key, Truth::False),
        Some((_, word)) => return Err(format!("{word:?}: expected KEY or KEY=clear")),
    };
    Condition::new(key, truth).check().map_err(|error| error.to_string())?;
    Ok((key.to_owned(), truth))
}

fn tag(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    if key.is_empty() {
        return Err("the key before = is empty".to_owned());
    }
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_man_pages_say_the_same() {
        ftb_tests::man::assert_page_is_current(Cli::command(), "1");
    }

    #[test]
    fn the_error_of_a_wrong_value_names_the_column() {
        let refused = |words: &[&str]| {
            let words = ["ftbctl"].iter().chain(words);
            Cli::try_parse_from(words).unwrap_err().to_string()
        };
        assert!(refused(&["publish", "ftb..x", "X"]).contains("column 5"));
        assert!(refused(&["publish", "ftb.x", "X", "-s", "loud"]).contains("info, warning"));
        assert!(refused(&["publish", "ftb.x", "X", "-t", "fan"]).contains("KEY=VALUE"));
        assert!(refused(&["tail", "--after", "17"]).contains("no position"));
        let publish = |words: &[&str]| refused(&[&["publish", "ftb.x", "X"], words].concat());
        assert!(publish(&["--condition", "FAN=off"]).contains("KEY=clear"));
        assert!(publish(&["--condition", "A B"]).contains("column 2"));
        let action = publish(&["--condition", "FAN", "--action", "explode"]);
        assert!(action.contains("no recommended action"), "{action}");
    }
}
