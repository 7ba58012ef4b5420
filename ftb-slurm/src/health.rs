//! `ftb-slurm health`: the health of one node, for HealthCheckProgram, prolog and epilog.
//!
//! It never blocks a job because it cannot know: an agent that does not answer is unknown, and
//! unknown is no failure unless the caller wants it to be one. It decides as the bridge does, which
//! alone knows how many nodes are drained and what people have done: so it drains the node itself
//! only if no bridge is there, or if it is asked to.

use crate::bridge::Order;
use crate::cli::{DrainWhen, HealthArgs};
use crate::config::Config;
use crate::notices::SPACE;
use crate::reason::reason_of;
use crate::rules::{Rules, Verdict};
use crate::service::UNREACHABLE;
use crate::slurm::Slurm;
use ftb_client::daemon::Failure;
use ftb_client::{Client, ConditionState, Conditions, Silence, Truth, now_ns, silences};
use ftb_core::condition::WATCHED;
use std::fmt;
use tokio::time::timeout;

/// The answer: its line and its exit code.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// No condition that counts holds.
    Healthy,
    /// One holds: the reason, as the bridge would write it.
    Unhealthy(String),
    /// The same, and the node would be drained, but the configuration has `observe = true`.
    Observed(String),
    /// It cannot be known: why.
    Unknown(String),
}

impl Answer {
    /// The exit code of the program.
    pub fn exit_code(&self, strict: bool) -> u8 {
        match self {
            Self::Healthy | Self::Observed(_) => 0,
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

    /// The answer for the conditions of one host while these silences are active.
    pub fn of<'a>(
        rules: &Rules,
        states: impl Iterator<Item = &'a ConditionState>,
        silences: &[Silence],
    ) -> Self {
        let stated = states.map(|state| (&state.subject, state.truth, state.severity));
        match rules.verdict(silences, stated) {
            Verdict::Sound => Self::Healthy,
            Verdict::Unfit(_, subject) => Self::Unhealthy(reason_of(subject)),
            Verdict::Unknown(subject) => Self::Unknown(format!("{subject} is unknown")),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Healthy => f.write_str("healthy"),
            Self::Unhealthy(reason) => write!(f, "unhealthy: {reason}"),
            Self::Observed(reason) => write!(f, "unhealthy, but observe = true: {reason}"),
            Self::Unknown(why) => write!(f, "unknown: {why}"),
        }
    }
}

/// What the agent says.
struct Finding {
    answer: Answer,
    node: String,
    /// A bridge watches Slurm and reaches it, as far as was asked.
    has_bridge: bool,
}

/// Asks the agent, and drains the node if that is wanted.
pub async fn ask(args: &HealthArgs) -> Answer {
    let config = match args.rules.config() {
        Ok(config) => config,
        Err(failure) => return Answer::Unknown(failure.to_string()),
    };
    let finding = match timeout(args.timeout, find(args, &config.rules)).await {
        Ok(Ok(finding)) => finding,
        Ok(Err(why)) => return Answer::Unknown(why.to_string()),
        Err(_) => {
            return Answer::Unknown(format!("no answer within {} ms", args.timeout.as_millis()));
        }
    };
    let is_wanted = match args.drain {
        DrainWhen::Never => false,
        DrainWhen::Alone => !finding.has_bridge,
        DrainWhen::Always => true,
    };
    match finding.answer {
        // A prolog that fails would drain the node too.
        Answer::Unhealthy(reason) if config.is_observer && args.drain != DrainWhen::Never => {
            Answer::Observed(reason)
        }
        Answer::Unhealthy(reason) if is_wanted => {
            if let Err(error) = drain(&config, &finding.node, &reason).await {
                // The answer stays what it is: the caller knows it from the exit code.
                eprintln!("ftb-slurm: the node is not drained: {error}");
            }
            Answer::Unhealthy(reason)
        }
        answer => answer,
    }
}

async fn find(args: &HealthArgs, rules: &Rules) -> Result<Finding, Failure> {
    let mut builder = Client::builder("ftb-slurm-health");
    if let Some(socket) = &args.agent {
        builder = builder.agent(socket);
    }
    let client = builder.build()?;
    client.wait_connected(args.timeout).await.map_err(Failure::no_answer)?;
    let own = client.agent().map(|agent| agent.host).unwrap_or_default();
    let node = args.node.clone().unwrap_or(own);
    if !ftb_core::condition::is_host_name(&node) {
        return Err(Failure::bad_input("the node is no host name"));
    }
    let all = table(&client, &format!("condition=*, subject={node}")).await?;
    let of_node = || all.states().filter(|state| state.subject.host().eq_ignore_ascii_case(&node));
    let mut answer = Answer::of(rules, of_node(), &[]);
    let mut has_bridge = true;
    if answer != Answer::Healthy {
        let (stated, now_ns) = (table(&client, silences::FILTER).await?, now_ns());
        let active = stated.states().filter_map(Silence::of);
        let active: Vec<_> = active.filter(|silence| silence.is_active(now_ns)).collect();
        answer = Answer::of(rules, of_node(), &active);
    }
    if matches!(answer, Answer::Unhealthy(_)) && args.drain == DrainWhen::Alone {
        let stated = table(&client, &format!("condition=*, event_space={SPACE}")).await?;
        has_bridge = is_bridged(&stated.states().collect::<Vec<_>>());
    }
    Ok(Finding { answer, node, has_bridge })
}

/// Whether some host has a bridge that reaches Slurm, by what bridges state.
fn is_bridged(states: &[&ConditionState]) -> bool {
    let is_cut_off = |host: &str| {
        let mut of_host = states.iter().filter(|state| state.subject.host() == host);
        of_host.any(|state| state.subject.key() == UNREACHABLE && state.truth != Truth::False)
    };
    let is_watch =
        |state: &&&ConditionState| state.subject.key() == WATCHED && state.truth == Truth::True;
    let mut watches = states.iter().filter(is_watch);
    watches.any(|state| !is_cut_off(state.subject.host()))
}

async fn table(client: &Client, filter: &str) -> Result<Conditions, Failure> {
    let mut conditions = Conditions::open(client, filter).await?;
    conditions.load().await?;
    Ok(conditions)
}

/// Drains a node, unless it is drained or has a reason.
async fn drain(config: &Config, node: &str, reason: &str) -> Result<(), Failure> {
    let slurm = Slurm::new(config.scontrol.clone(), config.sinfo.clone());
    let hosts = vec![node.to_owned()];
    let nodes = slurm.some_nodes(&hosts).await?;
    let Some(known) = nodes.first() else {
        return Err(Failure::failed(format!("Slurm has no node {node}")));
    };
    if known.is_drained || !known.reason.is_empty() {
        return Ok(());
    }
    slurm.execute(&Order::Drain { hosts, reason: reason.to_owned() }).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftb_client::{EventId, PublisherId, Severity};
    use ftb_core::condition::Subject;
    use ftb_core::numbers::PublisherSeq;

    fn state(host: &str, key: &str, truth: Truth) -> ConditionState {
        let publisher = PublisherId { account: 1, token: 1 };
        let source = EventId { publisher, seq: PublisherSeq::new(1) };
        let subject = Subject::new(host, SPACE, key);
        ConditionState::new(subject, truth, Severity::Info, source, 1)
    }

    #[test]
    fn a_bridge_that_does_not_reach_slurm_drains_nothing_and_another_one_does() {
        let bridged = |states: &[ConditionState]| is_bridged(&states.iter().collect::<Vec<_>>());
        let (lives, cut) = (|host| state(host, WATCHED, Truth::True), UNREACHABLE);
        assert!(bridged(&[lives("a")]));
        assert!(!bridged(&[state("a", WATCHED, Truth::Unknown)]));
        assert!(!bridged(&[lives("a"), state("a", cut, Truth::True)]));
        assert!(!bridged(&[lives("a"), state("a", cut, Truth::Unknown)]));
        assert!(bridged(&[lives("a"), state("a", cut, Truth::False)]));
        assert!(bridged(&[lives("a"), state("a", cut, Truth::True), lives("b")]));
    }

    #[test]
    fn a_trial_fails_no_prolog_and_says_why_the_node_would_be_drained() {
        let answer = Answer::Observed("ftb:FANFAIL FAN 1".to_owned());
        assert_eq!(answer.exit_code(true), 0);
        assert_eq!(answer.to_string(), "unhealthy, but observe = true: ftb:FANFAIL FAN 1");
    }
}
