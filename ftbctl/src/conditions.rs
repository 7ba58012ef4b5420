//! `ftbctl conditions` and `ftbctl health`: what is wrong now.

use crate::cli::{ConditionsArgs, HealthArgs};
use crate::common::{Common, conditions_of};
use crate::failure::Failure;
use crate::output::{FAINT, GOOD, Output, STRONG, WARN, style_of, styled};
use crate::silence::Silences;
use crate::text;
use core::time::Duration;
use ftb_client::json::ConditionObject;
use ftb_client::{ConditionState, Conditions, Health, RecommendedAction, Silence, Truth, Watchers};
use serde::Serialize;
use std::collections::BTreeSet;
use tokio::time::{Instant, timeout_at};

/// Shows the conditions of the cluster.
pub(crate) async fn run(
    common: &Common,
    args: ConditionsArgs,
    mut output: Output,
) -> Result<(), Failure> {
    let subject = args.hosts.as_ref().map(|hosts| format!(", subject={hosts}")).unwrap_or_default();
    let filter = format!("condition={}{subject}", args.key);
    let client = common.client().build().map_err(Failure::failed)?;
    let deadline = Instant::now() + common.timeout();
    let mut conditions = conditions_of(common, &client, &filter, deadline).await?;
    let is_wrong = |state: &&ConditionState| is_fault(state) && state.truth != Truth::False;
    if args.wait_clear {
        // A row that has gone is not known to be well.
        let mut wrong = BTreeSet::new();
        loop {
            for state in conditions.states().filter(|state| is_fault(state)) {
                match state.truth {
                    Truth::False => wrong.remove(&state.subject),
                    Truth::True | Truth::Unknown => wrong.insert(state.subject.clone()),
                };
            }
            if wrong.is_empty() {
                break;
            }
            let changed = conditions.changed();
            let Some(deadline) = common.timeout_given().map(|_| deadline) else {
                changed.await?;
                continue;
            };
            let changed = timeout_at(deadline, changed).await;
            changed.map_err(|_| Failure::no_answer("a condition still holds or is unknown"))??;
        }
    }
    let mut shown = conditions.states().filter(|state| args.all || is_wrong(state)).peekable();
    if shown.peek().is_none() && conditions.hidden() == 0 && !output.is_json() {
        output.line("no conditions")?;
    }
    let silences = Silences::read(common, &client).await?;
    for state in shown {
        show(&mut output, state, silences.of(state))?;
    }
    output.flush()?;
    match conditions.hidden() {
        0 => Ok(()),
        count => Err(Failure::failed(format_args!(
            "{count} conditions that hold or are unknown are in event spaces that you may not read"
        ))),
    }
}

/// Whether a row is about what may be wrong: neither a watch nor a silence.
pub(crate) fn is_fault(state: &ConditionState) -> bool {
    !state.is_watch() && !state.is_silence()
}

pub(crate) fn show(
    output: &mut Output,
    state: &ConditionState,
    silence: Option<&Silence>,
) -> Result<(), Failure> {
    if output.is_json() {
        return output.json(&MarkedObject::new(state, silence));
    }
    let (style, word) = match state.truth {
        Truth::True => (style_of(state.severity), state.severity.as_str()),
        Truth::False => (GOOD, "clear"),
        Truth::Unknown => (WARN, "unknown"),
    };
    let since = styled(FAINT, &format!("since {}", text::time(state.onset_ns, output.utc)));
    let key = styled(STRONG, &format!("{:<14}", state.subject.key()));
    let host = text::printable(state.subject.host());
    let component = text::printable(state.subject.component());
    let word = styled(style, &format!("{word:<7}"));
    let action = match state.action {
        RecommendedAction::None => String::new(),
        action => format!("  recommended: {action}"),
    };
    let message = text::payload(state.message.as_bytes());
    let silenced =
        silence.map(|silence| styled(FAINT, &format!("  {}", mark(silence, output.utc))));
    let silenced = silenced.unwrap_or_default();
    let line =
        format!("{host:<10}  {component:<14}  {key}  {word}  {since}  {message}{action}{silenced}");
    output.line(line.trim_end())
}

/// What a line says about a silence.
pub(crate) fn mark(silence: &Silence, utc: bool) -> String {
    let (id, until) = (text::printable(&silence.id), text::time(silence.until_ns, utc));
    format!("silenced until {until} ({id}: {})", text::printable(&silence.reason))
}

/// A condition, and the id of the silence that covers it.
#[derive(Serialize)]
pub(crate) struct MarkedObject<'a> {
    #[serde(flatten)]
    condition: ConditionObject<'a>,
    silenced: Option<&'a str>,
}

impl<'a> MarkedObject<'a> {
    pub(crate) fn new(state: &'a ConditionState, silence: Option<&'a Silence>) -> Self {
        let silenced = silence.map(|silence| &silence.id[..]);
        Self { condition: ConditionObject::from(state), silenced }
    }
}

/// Shows the health of a node.
pub(crate) async fn health(
    common: &Common,
    args: HealthArgs,
    mut output: Output,
) -> Result<(), Failure> {
    let node = text::printable(&args.node);
    let (code, health, watchers, silences) = match health_of(common, &args.node).await {
        Ok((health, watchers, silences)) => {
            let missing = args.watched_by.iter().find(|wanted| !watchers.present.contains(wanted));
            match (code_of(&health), missing) {
                (0, Some(missing)) => {
                    (ftb_cli::UNKNOWN, format!("unknown: {missing} is missing"), watchers, silences)
                }
                (code, _) => (code, health.to_string(), watchers, silences),
            }
        }
        Err(Failure::Reported { code, message }) if code != ftb_cli::USAGE => {
            let health = format!("unknown: {message}");
            (ftb_cli::UNKNOWN, health, Watchers::default(), Silences::default())
        }
        Err(other) => return Err(other),
    };
    let shown = if output.is_json() {
        let word = ["healthy", "unhealthy", "unknown"][usize::from(code)];
        let watched_by = &watchers.present;
        let silenced = silences.of_host(&args.node).map(|silence| &silence.id[..]).collect();
        let (r#type, node, why) = ("health", &node[..], &health[..]);
        output.json(&HealthObject { r#type, node, health: word, why, watched_by, silenced })
    } else {
        let watchers = watchers.to_string();
        let ending = if watchers.is_empty() { String::new() } else { format!("; {watchers}") };
        let silenced = silenced(&silences, &args.node, output.utc);
        output.line(&format!("{node} {health}{ending}{silenced}"))
    };
    // The exit code is the answer, also when the reader has closed its pipe.
    let written = shown.and_then(|()| output.flush());
    if code == 0 { written } else { Err(Failure::Code(code)) }
}

/// The silences of a host, for the end of a line.
pub(crate) fn silenced(silences: &Silences, host: &str, utc: bool) -> String {
    let what = |silence: &Silence| match &silence.key {
        Some(key) => format!("; {key} {}", mark(silence, utc)),
        None => format!("; {}", mark(silence, utc)),
    };
    silences.of_host(host).map(what).collect()
}

async fn health_of(common: &Common, node: &str) -> Result<(Health, Watchers, Silences), Failure> {
    let (conditions, silences) = of_node(common, node).await?;
    Ok((conditions.health(node), conditions.watchers(node), silences))
}

/// Reads the conditions of one node, and the silences.
pub(crate) async fn of_node(
    common: &Common,
    node: &str,
) -> Result<(Conditions, Silences), Failure> {
    if !ftb_core::condition::is_host_name(node) {
        return Err(Failure::usage(format_args!("{node:?} is no host name")));
    }
    let client = common.client().build().map_err(Failure::failed)?;
    let deadline = Instant::now() + common.timeout().max(Duration::from_millis(1));
    let filter = format!("condition=*, subject={node}");
    let conditions = conditions_of(common, &client, &filter, deadline).await?;
    Ok((conditions, Silences::read(common, &client).await?))
}

fn code_of(health: &Health) -> u8 {
    match health {
        Health::Healthy { .. } => 0,
        Health::Unhealthy { .. } => ftb_cli::FAILED,
        Health::Unknown { .. } | Health::NotWatched | Health::Hidden { .. } => ftb_cli::UNKNOWN,
    }
}

#[derive(Serialize)]
struct HealthObject<'a> {
    r#type: &'static str,
    node: &'a str,
    health: &'static str,
    why: &'a str,
    watched_by: &'a [String],
    /// Ids of silences.
    silenced: Vec<&'a str>,
}
