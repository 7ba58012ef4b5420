//! The `[[condition]]` tables of the configuration: pairs of events that set and clear a condition.
//!
//! Not responsible for: applying them ([`ftb_core::condition::pairs`]).

use ftb_core::EventSpace;
use ftb_core::condition::RecommendedAction;
use ftb_core::condition::pairs::{ConditionPair, ConditionPairs, HostOf};
use ftb_core::limits;
use serde::Deserialize;

/// Most pairs: each event of a privileged publisher is compared with all of them.
const PAIRS_MAX: usize = 256;

/// One configured pair.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConditionTable {
    /// The event space and all below it.
    #[serde(deserialize_with = "text")]
    space: EventSpace,
    /// The event that sets the condition.
    set: String,
    /// The events that clear it.
    #[serde(default)]
    clear: Vec<String>,
    /// The key; default: the name of the event that sets it.
    key: Option<String>,
    /// The tag that names the host; default: the publisher's host.
    host: Option<String>,
    /// Without that tag a payload that is a host name names it (Appendix B of the thesis).
    #[serde(default)]
    host_in_payload: bool,
    /// The tags that name the component.
    #[serde(default)]
    component: Vec<String>,
    /// What is recommended.
    #[serde(default, deserialize_with = "some_text")]
    action: Option<RecommendedAction>,
    /// The condition outlives its publisher.
    #[serde(default)]
    kept: bool,
}

fn text<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: core::str::FromStr<Err: core::fmt::Display>,
{
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

fn some_text<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: core::str::FromStr<Err: core::fmt::Display>,
{
    text(deserializer).map(Some)
}

/// The pairs of an agent.
///
/// # Errors
/// The first mistake.
pub fn pairs(tables: &[ConditionTable]) -> Result<ConditionPairs, String> {
    if tables.len() > PAIRS_MAX {
        return Err(format!("{} [[condition]] tables: at most {PAIRS_MAX}", tables.len()));
    }
    let pairs = tables.iter().map(pair).collect::<Result<Vec<ConditionPair>, String>>()?;
    ConditionPairs::new(pairs).map_err(|error| format!("[[condition]]: {error}"))
}

fn pair(table: &ConditionTable) -> Result<ConditionPair, String> {
    let mistake = |error: &dyn core::fmt::Display| {
        format!("the [[condition]] table that is set by {:?}: {error}", table.set)
    };
    let clear: Vec<&str> = table.clear.iter().map(String::as_str).collect();
    let pair = ConditionPair::new(table.space.as_str(), &table.set, &clear);
    let mut pair = pair.map_err(|error| mistake(&error))?;
    if let Some(key) = &table.key {
        pair.key = key.parse().map_err(|error: ftb_core::space::NameError| mistake(&error))?;
    }
    let tags = table.host.iter().chain(&table.component);
    if let Some(tag) = tags.into_iter().find(|tag| tag.len() > limits::TAG_KEY_BYTES_MAX) {
        return Err(mistake(&format_args!("no event has the tag {tag:?}")));
    }
    pair.host = match (table.host.clone(), table.host_in_payload) {
        (tag, true) => HostOf::TagOrPayload(tag.unwrap_or_default()),
        (Some(tag), false) => HostOf::Tag(tag),
        (None, false) => HostOf::Publisher,
    };
    pair.component = table.component.clone();
    pair.action = table.action.unwrap_or(RecommendedAction::None);
    pair.is_kept = table.kept;
    Ok(pair)
}
