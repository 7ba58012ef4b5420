//! `ftb-slurm health`: the health of one node, for HealthCheckProgram, prolog and epilog.
//!
//! It never blocks a job because it cannot know: an agent that does not answer is unknown, and
//! unknown is no failure unless the caller wants it to be one.

use crate::cli::HealthArgs;
use crate::reason::reason_of;
use ftb_client::{Client, ConditionState, Conditions, Severity, Truth};
use std::fmt;
use tokio::time::timeout;

/// The answer: its line and its exit code.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// No condition that counts holds.
    Healthy,
    /// One holds: the reason, as the bridge would write it.
    Unhealthy(String),
    /// It cannot be known: why.
    Unknown(String),
}

impl Answer {
    /// The exit code of the program.
    pub fn exit_code(&self, strict: bool) -> u8 {
        match self {
            Self::Healthy => 0,
            Self::Unhealthy(_) => ftb_cli::FAILED,
            Self::Unknown(_) => {
                if strict {
                    ftb_cli::UNKNOWN
                } else {
                    0
                }
            }
        }
    }

    /// The answer for the conditions of one host.
    fn of<'a>(states: impl Iterator<Item = &'a ConditionState>, severity: Severity) -> Self {
        let counted = states.filter(|state| !state.is_watch() && state.severity >= severity);
        let mut unknown = None;
        let mut worst: Option<&ConditionState> = None;
        for state in counted {
            match state.truth {
                Truth::True if worst.is_none_or(|w| state.severity > w.severity) => {
                    worst = Some(state);
                }
                Truth::Unknown => unknown = Some(state),
                Truth::True | Truth::False => {}
            }
        }
        match (worst, unknown) {
            (Some(state), _) => Self::Unhealthy(reason_of(&state.subject)),
            (None, Some(state)) => Self::Unknown(format!("{} is unknown", state.subject)),
            (None, None) => Self::Healthy,
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Healthy => f.write_str("healthy"),
            Self::Unhealthy(reason) => write!(f, "unhealthy: {reason}"),
            Self::Unknown(why) => write!(f, "unknown: {why}"),
        }
    }
}

/// Asks the agent.
pub async fn ask(args: &HealthArgs) -> Answer {
    match timeout(args.timeout, answer(args)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(why)) => Answer::Unknown(why),
        Err(_) => Answer::Unknown(format!("no answer within {} ms", args.timeout.as_millis())),
    }
}

async fn answer(args: &HealthArgs) -> Result<Answer, String> {
    let mut builder = Client::builder("ftb-slurm-health");
    if let Some(socket) = &args.agent {
        builder = builder.agent(socket);
    }
    let client = builder.build().map_err(|error| error.to_string())?;
    client.wait_connected(args.timeout).await.map_err(|error| error.to_string())?;
    let own = client.agent().map(|agent| agent.host).unwrap_or_default();
    let node = args.node.as_deref().unwrap_or(&own);
    if !ftb_core::condition::is_host_name(node) {
        return Err("the node is no host name".to_owned());
    }
    let filter = format!("condition=*, subject={node}");
    let mut conditions =
        Conditions::open(&client, &filter).await.map_err(|error| error.to_string())?;
    conditions.load().await.map_err(|error| error.to_string())?;
    let of_node =
        conditions.states().filter(|state| state.subject.host().eq_ignore_ascii_case(node));
    Ok(Answer::of(of_node, args.severity))
}
