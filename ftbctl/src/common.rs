//! Options that every command has, and what follows from them: socket, client, deadline, and the
//! table of conditions within the deadline.

use crate::failure::Failure;
use crate::text::{self, parse_duration};
use clap::{Args, ValueEnum};
use core::time::Duration;
use ftb_client::config::SOCKET_ENV;
use ftb_client::{Client, ClientBuilder, Conditions, Filter};
use std::path::PathBuf;
use tokio::time::{Instant, timeout_at};

/// Default deadline of one answer.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// Short: a user waits for the answer.
const RETRY_MAX: Duration = Duration::from_millis(200);

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// Unix socket of the local agent [default: /run/ftb/agent.sock]
    #[arg(long = "agent-socket", alias = "agent", global = true, value_name = "PATH")]
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

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// At a terminal, unless NO_COLOR is set
    Auto,
    Always,
    Never,
}

/// The conditions that a filter selects, once their table is complete.
pub(crate) async fn conditions_of(
    common: &Common,
    client: &Client,
    filter: &str,
    deadline: Instant,
) -> Result<Conditions, Failure> {
    Filter::parse(filter).map_err(|error| Failure::usage(error.reason))?;
    client.wait_connected(common.timeout()).await?;
    let loaded = timeout_at(deadline, async {
        let mut conditions = Conditions::open(client, filter).await?;
        conditions.load().await?;
        Ok(conditions)
    });
    let waited = text::exact(common.timeout());
    let late = |_| Failure::no_answer(format_args!("no answer within {waited}"));
    loaded.await.map_err(late)?
}
