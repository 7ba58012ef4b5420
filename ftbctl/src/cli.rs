//! What can be typed: the one source of help, man page and completion.

use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use core::time::Duration;
use ftb_client::config::SOCKET_ENV;
use ftb_client::{ClientBuilder, EventId, Position, Severity};
use std::path::PathBuf;

/// How long an agent may take for its answer when nothing else is said.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

const EXIT_CODES: &str = "\
Exit codes:
  0    it worked; also when the reader of the output has gone
  1    it failed
  2    wrong usage: an option, filter, event space, time... Nothing was started
  3    no agent answers, or not in time
  130  interrupted with Ctrl-C";

/// Publish fault events, watch those of the cluster, look at its tree.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command understands.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// The Unix socket of this node's agent [default: /run/ftb/agent.sock]
    #[arg(long, global = true, value_name = "PATH", env = SOCKET_ENV)]
    pub(crate) agent: Option<PathBuf>,
    /// How long to wait before giving up, like 500ms or 1m [default: 5s; of subscribe, once it is
    /// active: for ever]
    #[arg(long, global = true, value_name = "TIME", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
    /// One JSON object a line, for programs
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to colour
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
}

impl Common {
    /// How long one answer may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(TIMEOUT_DEFAULT)
    }

    /// What was asked for, if anything was.
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

/// People wait for the answer.
const RETRY_MAX: Duration = Duration::from_millis(200);

/// When to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// At a terminal, unless NO_COLOR is set
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Publish one event, and wait until the cluster holds it
    Publish(Publish),
    /// Watch events as they come
    #[command(visible_alias = "tail", after_help = FILTERS)]
    Subscribe(Subscribe),
    /// Look back: the events that the cluster remembers
    #[command(after_help = FILTERS)]
    Events(Events),
    /// Show the tree of agents
    Tree,
    /// Show the whole path on this machine: a fan fails, the job moves, the answer is right
    ///
    /// Runs ftb-demo, which stands beside ftbctl or on the PATH (make demo builds both); what
    /// follows is handed to it. Needs no agent: it starts five of its own.
    Demo {
        /// Arguments of ftb-demo (ftb-demo --help shows them)
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Show how this node's agent is
    Status,
    /// Write a man page or shell completion to standard output
    #[command(hide = true)]
    Generate(Generate),
}

const FILTERS: &str = "\
Filters: conditions separated by commas, all must hold.
  event_space=ftb.ipmi.*          severity>=error        event_name=FTB_IPMI_*
  hostname=node[001-032]          jobid=4711             client_name=ftb-ib|ftb-ipmi";

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
    /// A fact; can be given more than once
    #[arg(long = "tag", short, value_name = "KEY=VALUE", value_parser = tag)]
    pub(crate) tags: Vec<(String, String)>,
    /// The payload from a file, - for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "payload")]
    pub(crate) payload_file: Option<PathBuf>,
    /// The job it belongs to
    #[arg(long, value_name = "ID", default_value = "")]
    pub(crate) job_id: String,
    /// The id of the event that it answers
    #[arg(long, value_name = "EVENT_ID", value_parser = parse::<EventId>)]
    pub(crate) response_to: Option<EventId>,
}

#[derive(Debug, Args)]
pub(crate) struct Subscribe {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Begin with what happened since then: 10m ago, or a time like 2026-11-21T13:00:00Z
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub(crate) since: Option<u64>,
    /// Begin behind a position, as --json prints it
    #[arg(long, value_name = "POSITION", conflicts_with = "since", value_parser = parse::<Position>)]
    pub(crate) after: Option<Position>,
    /// Stop after that many events; with --timeout, exit code 3 when there were fewer
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct Events {
    #[command(flatten)]
    pub(crate) which: Which,
    /// How far back: 10m, or a time like 2026-11-21T13:00:00Z
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = since)]
    pub(crate) since: u64,
    /// Stop after that many events
    #[arg(long, short = 'n', value_name = "N")]
    pub(crate) count: Option<u64>,
}

/// Which events.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Which events; all when it is not given
    #[arg(value_name = "FILTER", default_value = "")]
    words: String,
    /// The same as an option
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

/// Reads a value by its own rules; its error names the column.
fn parse<T: core::str::FromStr<Err: core::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn tag(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    if key.is_empty() {
        return Err("the key before = is empty".to_owned());
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// A moment: how long ago, or when; in Unix nanoseconds.
fn since(text: &str) -> Result<u64, String> {
    if let Ok(ago) = humantime::parse_duration(text) {
        let ago = u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX);
        return Ok(ftb_client::now_ns().saturating_sub(ago));
    }
    let moment = humantime::parse_rfc3339_weak(text)
        .map_err(|_| "expected how long ago (10m, 2h) or a time (2026-11-21T13:00:00Z)")?;
    let since = moment.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Ok(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
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
    fn a_moment_is_how_long_ago_or_when() {
        assert_eq!(since("1970-01-01T00:00:02Z"), Ok(2_000_000_000));
        let hour_ago = since("1h").unwrap();
        let expected = ftb_client::now_ns() - 3_600_000_000_000;
        assert!(hour_ago <= expected && expected - hour_ago < 60_000_000_000);
        assert!(since("yesterday").is_err());
    }

    #[test]
    fn wrong_words_are_refused_where_they_stand() {
        let refused = |words: &[&str]| {
            let words = ["ftbctl"].iter().chain(words);
            Cli::try_parse_from(words).unwrap_err().to_string()
        };
        assert!(refused(&["publish", "ftb..x", "X"]).contains("column 5"));
        assert!(refused(&["publish", "ftb.x", "X", "-s", "loud"]).contains("info, warning"));
        assert!(refused(&["publish", "ftb.x", "X", "-t", "fan"]).contains("KEY=VALUE"));
        assert!(refused(&["tail", "--after", "17"]).contains("no position"));
    }
}
