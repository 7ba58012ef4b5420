//! The command line: the one source of help, man pages and completion.

use crate::ca::{self, CaArgs};
use crate::failure::Failure;
use crate::output::Output;
use crate::text::{Moment, parse_duration};
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use core::time::Duration;
use ftb_client::config::SOCKET_ENV;
use ftb_client::{
    ClientBuilder, Condition, ConfirmLevel, EventId, Position, RecommendedAction, Severity, Truth,
};
use ftb_core::hostlist::Hostlist;
use ftb_launcher_core::names::{JobId, NodeName};
use std::path::PathBuf;

/// Default deadline of one answer.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

const EXIT_CODES: &str = "\
Exit codes:
  0    success, also when the reader of the output closed it
  1    failure
  2    wrong usage: an option, filter, event space, time... Nothing was started
  3    no answer of an agent within the deadline
  130  interrupted with Ctrl-C";

/// Publish fault events, watch the events of the cluster, show its tree.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// Unix socket of the local agent [default: /run/ftb/agent.sock]
    #[arg(long = "agent-socket", visible_alias = "agent", global = true, value_name = "PATH")]
    #[arg(env = SOCKET_ENV)]
    pub(crate) agent: Option<PathBuf>,
    /// Deadline of one answer, like 500ms or 1m; of subscribe: of the whole command
    /// [default: 5s; none for subscribe once it is active]
    #[arg(long, global = true, value_name = "DURATION", value_parser = parse_duration)]
    timeout: Option<Duration>,
    /// Print one JSON object a line, for programs
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to use colours
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
    /// Show times in UTC, and read times without a zone as UTC [default: local time]
    #[arg(long, global = true)]
    pub(crate) utc: bool,
}

impl Common {
    /// Deadline of one answer.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(TIMEOUT_DEFAULT)
    }

    /// The deadline that the user gave.
    pub(crate) fn timeout_given(&self) -> Option<Duration> {
        self.timeout
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.agent.clone().unwrap_or_else(ftb_client::default_socket)
    }

    pub(crate) fn client(&self) -> ClientBuilder {
        ftb_client::Client::builder("ftbctl").agent(self.socket()).retry_max(RETRY_MAX)
    }
}

/// Short: a user waits for the answer.
const RETRY_MAX: Duration = Duration::from_millis(200);

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// At a terminal, unless NO_COLOR is set
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Publish one event, and wait until it is committed
    Publish(Publish),
    /// Print events as they arrive
    #[command(visible_alias = "tail", after_help = FILTERS)]
    Subscribe(Subscribe),
    /// Print the events that the cluster still stores
    #[command(after_help = FILTERS)]
    Events(Events),
    /// Show the tree of agents
    #[command(after_help = TREE)]
    Tree(TreeArgs),
    /// Fold, expand, count and compare host lists
    ///
    /// Needs no agent. Hosts are sorted by name and number, and stand in a result once.
    #[command(subcommand, after_help = HOSTS)]
    Hosts(HostsCommand),
    /// Show what is wrong now: the conditions of the cluster
    #[command(after_help = CONDITIONS)]
    Conditions(ConditionsArgs),
    /// Show the health of one node, in one line and as the exit code
    #[command(after_help = HEALTH_CODES)]
    Health(HealthArgs),
    /// Silence conditions of hosts during maintenance: no program drains, pages or runs for them
    ///
    /// Conditions stay true: conditions and health show them as before, and mark them. Metrics and
    /// alerts do not change: Alertmanager has silences of its own. Root, the agent's user and users
    /// whom an access rule of ftb.silence names may silence.
    #[command(subcommand, after_help = SILENCE)]
    Silence(SilenceCommand),
    /// Explain an event or a condition: cause, severity, what a job launcher does about it
    ///
    /// Needs no agent. The reactions are those of the built-in policy, and of the policies of your
    /// jobs on this host that differ from it.
    #[command(after_help = EXPLAIN)]
    Explain(ExplainArgs),
    /// Show the path of an event: each step of each agent, with its delay
    ///
    /// Agents remember the steps of events of ERROR and FATAL, and of those published with --trace,
    /// in a ring of 192 KiB. You see the paths of events that you may read.
    #[command(after_help = TRACE)]
    Trace(TraceArgs),
    /// Suppose that a fan of a node has failed: test the path of a fault up to the decisions
    ///
    /// The event takes the path of a real fault: agent, acting root, commit, subscriptions. Each
    /// launcher answers what it would do, and does nothing. No condition is set. Root and the
    /// agent's user drill all jobs, others their own with --job.
    #[command(after_help = DRILL)]
    Drill(DrillArgs),
    /// Demonstrate on this machine: a fan fails, the job moves, the result is right
    ///
    /// Runs ftb-demo with these arguments: the one beside ftbctl, else the one on the PATH (make
    /// demo builds both). It needs no agent: it starts five.
    Demo {
        /// Arguments of ftb-demo (ftb-demo --help shows them)
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Show one node: state, place in the tree, version, health, conditions
    Node(NodeArgs),
    /// Show the cluster live: acting root, agents, event rate, conditions, newest events
    ///
    /// Conditions are shown by severity, with the hosts of each as a host list.
    #[command(after_help = TOP)]
    Top(Top),
    /// Show the status of the local agent
    Status,
    /// Examine ftb itself: configuration, socket, tree, versions, clocks, certificates, journals
    ///
    /// Asks all agents. Each finding names its fix. Faults of the hardware are shown by ftbctl
    /// conditions.
    #[command(after_help = DOCTOR)]
    Doctor(DoctorArgs),
    /// Write a configuration of the agent with certificates, and say what to do next
    ///
    /// Writes DIR/agent.toml and the files of this host in DIR/tls; the certificates of all hosts
    /// are in the folder of the CA (ftbctl ca). Replaces no file. Needs no agent.
    Init(InitArgs),
    /// Create, renew and revoke the certificates of agents
    #[command(after_help = CA)]
    Ca(CaArgs),
    /// Write a man page or shell completion to standard output
    #[command(hide = true)]
    Generate(Generate),
}

const CA: &str = "\
The folder has ca.pem and crl.pem for every host, hosts/HOST/agent.pem and agent.key for one host,
and ca.key, which never leaves it. Keys are ECDSA P-256. Needs no agent.";

const TREE: &str = "\
Exit codes with --wait: 0 when the state is reached, 3 when it is not within --timeout. Without
--wait: 0. JSON: objects `node`, then one `tree`; with --summary the `tree` only.";

const HOSTS: &str = "\
Examples:
  squeue -h -t R -o %N | ftbctl hosts fold        node[001-016]
  ftbctl hosts diff node[1-9] node[3-4],node9     node[1-2,5-8]
  for host in $(ftbctl hosts expand node[1-3]); do ...";

const CONDITIONS: &str = "\
Watches (key WATCHED), silences and conditions that do not hold are shown with --all. With
--wait-clear the command ends when no shown condition holds or is unknown.";

const SILENCE: &str = "\
Examples:
  ftbctl silence add node[001-016] --for 2h --reason 'new power supplies in rack 3'
  ftbctl silence add node07 --key FANFAIL --for 24h --reason 'fan is ordered'
At most 1024 at a time, each for at most 30 days. Users other than root remove a silence on the host
where it was added.";

const EXPLAIN: &str = "\
NAME is a name (FTB_IPMI_FANFAIL), a key of a condition (FANFAIL), an event space (ftb.ib), or the
beginning of a word (fan). More than two matches become a list.";

const TRACE: &str = "\
Delays count from the first step. Between hosts they contain the difference of the clocks; a step
before the first one shows as negative. Exit code 1: no agent remembers the event. Exit code 3:
some agents did not answer (a line for each).";

const DRILL: &str = "\
Times count from the publish: the local agent took the event, it was committed, a subscription here
got it, the last launcher answered. Exit code 0: passed; without a job that runs the path is tested
up to the delivery. Exit code 1: a stage was missing, a launcher that runs did not answer, or you
may not drill. Exit code 3: no agent answered. FTB_DRILL_DONE has the result (ERROR if it failed).";

const TOP: &str = "\
Keys: q quits, Tab goes to the other part, arrows and page keys scroll, / searches hosts, names and
texts, s sorts the conditions by severity, age or hosts. The rate counts all events.";

const DOCTOR: &str = "\
Exit codes: 0: nothing was found; 1: something was. JSON: objects `finding`, then one `doctor`.";

const HEALTH_CODES: &str = "\
Exit codes:
  0    healthy: a publisher watches the node, and no condition of WARNING or worse holds
  1    unhealthy
  2    unknown: a publisher is lost, none watches the node, the agent does not answer, or the
       command line is wrong";

const FILTERS: &str = "\
Filters: conditions separated by commas, all must hold.
  event_space=ftb.ipmi.*          severity>=error        event_name=FTB_IPMI_*
  hostname=node[001-032]          jobid=4711             client_name=ftb-ib|ftb-ipmi
  uid=1000                        (the user that published, by number)
  condition=FANFAIL|PORT_*        subject=node[001-032]  (events that state a condition)";

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

/// The commands of `ftbctl hosts`. A list is like `node[001-032],login1`; standard input is read
/// where no list is given.
#[derive(Debug, Subcommand)]
pub(crate) enum HostsCommand {
    /// Write all hosts as one list
    Fold {
        /// Host lists, or names [default: standard input]
        #[arg(value_name = "HOSTLIST")]
        lists: Vec<String>,
    },
    /// Write one host a line
    Expand {
        /// Host lists, or names [default: standard input]
        #[arg(value_name = "HOSTLIST")]
        lists: Vec<String>,
    },
    /// Write how many hosts there are
    Count {
        /// Host lists, or names [default: standard input]
        #[arg(value_name = "HOSTLIST")]
        lists: Vec<String>,
    },
    /// Write the hosts of the first list that are in none of the others
    Diff {
        /// The hosts
        #[arg(value_name = "HOSTLIST")]
        list: String,
        /// Hosts to leave out
        #[arg(value_name = "OTHER", required = true)]
        others: Vec<String>,
    },
    /// Write the hosts that are in all lists
    Intersect {
        /// The hosts
        #[arg(value_name = "HOSTLIST")]
        list: String,
        /// Further lists
        #[arg(value_name = "OTHER", required = true)]
        others: Vec<String>,
    },
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

/// The commands of `ftbctl silence`.
#[derive(Debug, Subcommand)]
pub(crate) enum SilenceCommand {
    /// Begin a silence, and write its id
    Add(SilenceAdd),
    /// List the silences that have not ended
    List,
    /// End a silence
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
    /// How long, like 2h; at most 30 days
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) lasts: Duration,
    /// Why
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,
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
    /// How often the agents are asked, like 500ms
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = look_interval)]
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
    /// Show what this policy of ftb-launch does, instead
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
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
    /// Where programs of a host find the agent [default: /run/ftb/agent.sock]
    #[arg(long, value_name = "PATH")]
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
