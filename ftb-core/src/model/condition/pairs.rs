//! Pairs of events that set and clear a condition. By them a publisher that knows nothing of
//! conditions, such as a program of the C API, states them.
//!
//! The agent of the publisher resolves a pair into a statement before the event goes up, so that
//! the log alone decides. Not responsible for: who may state a condition.

use super::{Condition, RecommendedAction, Truth, is_host_name};
use crate::event::{Event, Tag};
use crate::space::{EventName, EventSpace, NameError, lies_in};

/// A pair of events: one sets a condition, the others clear it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionPair {
    /// Their event space and all below it.
    pub space: EventSpace,
    /// The event that sets the condition.
    pub set: EventName,
    /// The events that clear it.
    pub clear: Vec<EventName>,
    /// The key.
    pub key: EventName,
    /// Where an event names the host.
    pub host: HostOf,
    /// Tags that name the component, joined by `/`.
    pub component: Vec<String>,
    /// Tag and value that an event must have to clear it.
    pub clears_if: Option<Tag>,
    /// What is recommended.
    pub action: RecommendedAction,
    /// The condition outlives its publisher.
    pub is_kept: bool,
}

/// Where an event names the host that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostOf {
    /// Nowhere: it is about the publisher's host.
    Publisher,
    /// In this tag; without the tag it is about the publisher's host.
    Tag(String),
    /// In this tag, else in the payload, as in Appendix B of the thesis. An event whose payload is
    /// another text states nothing.
    TagOrPayload(String),
}

/// Why a table of pairs is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairError {
    /// Two pairs contradict each other.
    #[error("contradictory pairs: {space} {event} {first}, and {second}")]
    Contradiction {
        /// The event space.
        space: String,
        /// The event.
        event: String,
        /// What it does by one pair.
        first: String,
        /// What it does by the other.
        second: String,
    },
    /// A space, a name or a key is none.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// All pairs of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConditionPairs {
    pairs: Vec<ConditionPair>,
}

/// An event of a publisher, as far as pairs need it.
pub struct PairEvent<'a, F> {
    /// Its event space.
    pub space: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its payload.
    pub payload: &'a [u8],
    /// The value of a tag.
    pub tag: F,
}

impl ConditionPair {
    /// A pair about the publisher's host, which recommends nothing.
    ///
    /// # Errors
    /// [`NameError`]: a space or a name is none.
    pub fn new(space: &str, set: &str, clear: &[&str]) -> Result<Self, NameError> {
        Ok(Self {
            space: EventSpace::new(space)?,
            set: EventName::new(set)?,
            clear: clear.iter().map(|name| EventName::new(name)).collect::<Result<_, _>>()?,
            key: EventName::new(set)?,
            host: HostOf::Publisher,
            component: Vec::new(),
            clears_if: None,
            action: RecommendedAction::None,
            is_kept: false,
        })
    }

    /// What an event of that name says; `None`: the pair is not about it.
    fn truth_of<'a>(&self, name: &str, tag: &impl Fn(&str) -> Option<&'a str>) -> Option<Truth> {
        let is = |known: &EventName| known.as_str().eq_ignore_ascii_case(name);
        let applies = |wanted: &Tag| tag(&wanted.key) == Some(&wanted.value[..]);
        match name {
            name if is(&self.set) && !name.is_empty() => Some(Truth::True),
            _ if self.clear.iter().any(is) && self.clears_if.as_ref().is_none_or(applies) => {
                Some(Truth::False)
            }
            _ => None,
        }
    }

    /// Whether an event space belongs to both.
    fn shares_space(&self, other: &Self) -> bool {
        let (ours, theirs) = (self.space.as_str(), other.space.as_str());
        lies_in(ours.as_bytes(), theirs) || lies_in(theirs.as_bytes(), ours)
    }
}

impl ConditionPairs {
    /// The pairs of a site, and the built-in ones. A pair of the site replaces the built-in pairs
    /// with the same event in its space.
    ///
    /// # Errors
    /// [`PairError::Contradiction`]: an event sets and clears a condition, or states two.
    pub fn new(site: Vec<ConditionPair>) -> Result<Self, PairError> {
        let is_replaced = |known: &ConditionPair| {
            site.iter().any(|pair| pair.set == known.set && pair.shares_space(known))
        };
        let kept = built_in()?.into_iter().filter(|known| !is_replaced(known));
        let kept: Vec<ConditionPair> = kept.collect();
        for (at, pair) in site.iter().enumerate() {
            for other in &site[at..] {
                contradiction(pair, other, std::ptr::eq(pair, other), "")?;
            }
            for other in &kept {
                contradiction(pair, other, false, "built-in ")?;
            }
        }
        Ok(Self { pairs: site.into_iter().chain(kept).collect() })
    }

    /// The built-in pairs.
    pub fn built_in() -> Self {
        Self { pairs: built_in().unwrap_or_default() }
    }

    /// The pairs.
    pub fn all(&self) -> &[ConditionPair] {
        &self.pairs
    }

    /// The statement of an event: its own, else the one that it makes by its name.
    pub fn stated_by(&self, event: &Event) -> Option<Condition> {
        let (space, name) = (event.space.as_str(), event.name.as_str());
        let tag = |key: &str| event.tag(key);
        let named = PairEvent { space, name, payload: &event.payload, tag };
        event.condition.clone().or_else(|| self.resolve(&named))
    }

    /// The statement that an event makes by its name; `None`: no pair is about it, or no host.
    pub fn resolve<'a, F>(&self, event: &PairEvent<'a, F>) -> Option<Condition>
    where
        F: Fn(&str) -> Option<&'a str>,
    {
        let PairEvent { space, name, payload, tag } = event;
        let mut known = self
            .pairs
            .iter()
            .filter(|pair| lies_in(space.as_bytes(), pair.space.as_str()))
            .filter_map(|pair| Some((pair, pair.truth_of(name, tag)?)));
        let (pair, truth) = known.next()?;
        let host = match &pair.host {
            HostOf::Publisher => "",
            HostOf::Tag(key) => tag(key).unwrap_or_default(),
            HostOf::TagOrPayload(key) => match tag(key) {
                Some(host) => host,
                None => payload_host(payload)?,
            },
        };
        let parts = pair.component.iter().filter_map(|key| tag(key));
        let component = parts.collect::<Vec<&str>>().join("/");
        Some(Condition {
            host: host.to_owned(),
            component,
            action: pair.action,
            is_kept: pair.is_kept,
            ..Condition::new(pair.key.as_str(), truth)
        })
    }
}

/// The host that a payload names: a C program leaves what its stack has behind the first NUL.
/// Empty: there is no text, so the event is about the publisher's host. `None`: another text.
fn payload_host(payload: &[u8]) -> Option<&str> {
    let text = payload.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = core::str::from_utf8(text).ok()?.trim();
    (text.is_empty() || is_host_name(text)).then_some(text)
}

/// Fails where an event sets and clears, or states two conditions.
fn contradiction(
    pair: &ConditionPair,
    other: &ConditionPair,
    same: bool,
    origin: &str,
) -> Result<(), PairError> {
    let fail = |event: &EventName, first: String, second: String| {
        let space = other.space.to_string();
        Err(PairError::Contradiction { space, event: event.to_string(), first, second })
    };
    let of = |p: &ConditionPair| match std::ptr::eq(p, other) && !same {
        true => format!("by the {origin}pair of {}", p.set),
        false => format!("by the pair of {}", p.set),
    };
    let sets = |p: &ConditionPair| format!("sets {} {}", p.key, of(p));
    let clears = |p: &ConditionPair| format!("clears {} {}", p.key, of(p));
    if !pair.shares_space(other) {
        return Ok(());
    }
    if !same && pair.set == other.set {
        return fail(&pair.set, sets(pair), sets(other));
    }
    if other.clear.contains(&pair.set) {
        return fail(&pair.set, sets(pair), clears(other));
    }
    if pair.clear.contains(&other.set) {
        return fail(&other.set, sets(other), clears(pair));
    }
    let twice = pair.clear.iter().find(|name| !same && other.clear.contains(name));
    match twice {
        Some(name) if pair.key != other.key && pair.clears_if == other.clears_if => {
            fail(name, clears(pair), clears(other))
        }
        _ => Ok(()),
    }
}

/// The event spaces of all built-in pairs.
const BUILT_IN_SPACES: [&str; 3] = ["ftb.agent", "ftb.ib", "ftb.ipmi"];

/// Whether a built-in pair can be about events of this space.
pub fn has_built_in_pairs(space: &EventSpace) -> bool {
    BUILT_IN_SPACES.iter().any(|known| lies_in(space.as_str().as_bytes(), known))
}

/// Space, setting event, clearing events, host, tags of the component, recommended action.
type Row<'a> = (&'a str, &'a str, &'a [&'a str], HostOf, &'a [&'a str], RecommendedAction);

/// The pairs that every agent knows.
fn built_in() -> Result<Vec<ConditionPair>, PairError> {
    use HostOf::{Publisher, Tag as InTag, TagOrPayload};
    use RecommendedAction::{Migrate, Replace, ResetComponent, Watch};
    let node = || TagOrPayload("node".to_owned());
    let host = || InTag("host".to_owned());
    let port = ["adapter", "port"];
    let counter = ["adapter", "port", "counter"];
    let rows: [Row<'_>; 18] = [
        ("ftb.agent", "FTB_NODE_DEAD", &["FTB_NODE_BACK"], host(), &[], Replace),
        (
            "ftb.agent",
            "FTB_AGENT_LOST",
            &["FTB_AGENT_BACK", "FTB_AGENT_RESTARTED"],
            host(),
            &[],
            Watch,
        ),
        ("ftb.agent", "FTB_NODE_UNREACHABLE", &["FTB_NODE_REACHABLE"], host(), &[], Watch),
        ("ftb.agent", "FTB_JOURNAL_FAILED", &["FTB_JOURNAL_BACK"], host(), &[], Replace),
        ("ftb.agent", "FTB_CERTIFICATE_EXPIRES", &["FTB_CERTIFICATE_RENEWED"], host(), &[], Watch),
        ("ftb.agent", "FTB_AGENT_REFUSED", &["FTB_AGENT_ACCEPTED"], host(), &["by"], Watch),
        ("ftb.agent", "FTB_MEMBERS_DIFFER", &["FTB_MEMBERS_AGREE"], host(), &["by"], Watch),
        ("ftb.agent", "FTB_CLOCKS_DIFFER", &["FTB_CLOCKS_AGREE"], host(), &["by"], Watch),
        ("ftb.ipmi", "FTB_IPMI_FANFAIL", &["FTB_IPMI_NORMAL"], node(), &[], Migrate),
        ("ftb.ipmi", "FTB_IPMI_OVERTEMP", &[], node(), &[], Migrate),
        ("ftb.ipmi", "FTB_IPMI_SEL_FULL", &["FTB_IPMI_SEL_CLEARED"], node(), &["bmc"], Watch),
        ("ftb.ib", "FTB_IB_PORT_ERR", &["FTB_IB_PORT_ACTIVE"], Publisher, &port, Migrate),
        // A publisher that starts again states ports that are well.
        ("ftb.ib", "FTB_IB_PORT_ERR", &["FTB_IB_PORT_INFO"], Publisher, &port, Migrate),
        ("ftb.ib", "FTB_IB_PORT_FLAPPING", &["FTB_IB_PORT_STEADY"], Publisher, &port, Watch),
        ("ftb.ib", "FTB_IB_PORT_DEGRADED", &["FTB_IB_PORT_RECOVERED"], Publisher, &counter, Watch),
        ("ftb.ib", "FTB_IB_PORT_CONGESTED", &["FTB_IB_PORT_RECOVERED"], Publisher, &counter, Watch),
        (
            "ftb.ib",
            "FTB_IB_EVENT_DEVICE_FATAL",
            &["FTB_IB_ADAPTER_INFO"],
            Publisher,
            &["adapter"],
            ResetComponent,
        ),
        ("ftb.ib", "FTB_IB_ADAPTER_REMOVED", &[], Publisher, &["adapter"], ResetComponent),
    ];
    let pair = |(space, set, clear, host, component, action): Row<'_>| {
        let keys = component.iter().map(|key| (*key).to_owned()).collect();
        let mut pair = ConditionPair::new(space, set, clear)?;
        let short = set.trim_start_matches("FTB_").trim_start_matches("IPMI_");
        let short = short.trim_start_matches("IB_").trim_start_matches("EVENT_");
        pair.key = EventName::new(match set {
            // The thesis has one state of a node: NORMAL ends a failed fan and heat.
            "FTB_IPMI_FANFAIL" | "FTB_IPMI_OVERTEMP" => "HARDWARE",
            // An adapter that comes back is well, however it was lost.
            "FTB_IB_EVENT_DEVICE_FATAL" | "FTB_IB_ADAPTER_REMOVED" => "ADAPTER_FAILED",
            _ => short,
        })?;
        (pair.host, pair.component, pair.action) = (host, keys, action);
        let found_by_others = ["FTB_NODE_DEAD", "FTB_AGENT_LOST", "FTB_NODE_UNREACHABLE"];
        pair.is_kept = found_by_others.contains(&set);
        pair.clears_if = match (set, clear) {
            ("FTB_IB_PORT_DEGRADED", _) => Some(tag("was", "degraded")),
            ("FTB_IB_PORT_CONGESTED", _) => Some(tag("was", "congested")),
            ("FTB_IB_EVENT_DEVICE_FATAL", _) => Some(tag("was", "removed")),
            (_, ["FTB_IB_PORT_INFO"]) => Some(tag("state", "ACTIVE")),
            _ => None,
        };
        Ok(pair)
    };
    rows.into_iter().map(pair).collect()
}

fn tag(key: &str, value: &str) -> Tag {
    Tag { key: key.to_owned(), value: value.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(name: &str, tags: &[(&str, &str)], payload: &str) -> Option<(String, Truth)> {
        resolved_bytes(name, tags, payload.as_bytes())
    }

    fn resolved_bytes(
        name: &str,
        tags: &[(&str, &str)],
        payload: &[u8],
    ) -> Option<(String, Truth)> {
        let tag = |key: &str| tags.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
        let space = if name.starts_with("FTB_IB") { "ftb.ib" } else { "ftb.ipmi" };
        let event = PairEvent { space, name, payload, tag };
        let condition = ConditionPairs::built_in().resolve(&event)?;
        Some((condition.subject("own").to_string(), condition.truth))
    }

    #[test]
    fn built_in_pairs_name_host_and_component() {
        let is = |text: &str, truth| Some((text.to_owned(), truth));
        assert_eq!(
            resolved("FTB_IPMI_FANFAIL", &[], "node07\0"),
            is("node07 HARDWARE", Truth::True)
        );
        assert_eq!(
            resolved("FTB_IPMI_NORMAL", &[("node", "node07")], "x y"),
            is("node07 HARDWARE", Truth::False)
        );
        let port = [("adapter", "mlx5_0"), ("port", "1")];
        assert_eq!(
            resolved("FTB_IB_PORT_ERR", &port, ""),
            is("own mlx5_0/1 PORT_ERR", Truth::True)
        );
        let counter = [("adapter", "mlx5_0"), ("port", "1"), ("counter", "symbol_error")];
        let recovered = [counter.as_slice(), &[("was", "congested")]].concat();
        assert_eq!(
            resolved("FTB_IB_PORT_RECOVERED", &recovered, ""),
            is("own mlx5_0/1/symbol_error PORT_CONGESTED", Truth::False)
        );
        assert_eq!(resolved("FTB_IPMI_SOMETHING", &[], ""), None);
        let all = ConditionPairs::built_in();
        assert!(all.all().iter().all(|pair| has_built_in_pairs(&pair.space)));
    }

    #[test]
    fn adapters_and_ports_are_well_again_only_when_that_is_known() {
        let is = |text: &str, truth| Some((text.to_owned(), truth));
        let adapter = ("adapter", "mlx5_0");
        let removed = [adapter, ("was", "removed")];
        let failed = is("own mlx5_0 ADAPTER_FAILED", Truth::True);
        assert_eq!(resolved("FTB_IB_EVENT_DEVICE_FATAL", &[adapter], ""), failed);
        assert_eq!(resolved("FTB_IB_ADAPTER_REMOVED", &[adapter], ""), failed);
        assert_eq!(resolved("FTB_IB_ADAPTER_INFO", &[adapter], ""), None, "only a restart");
        let back = is("own mlx5_0 ADAPTER_FAILED", Truth::False);
        assert_eq!(resolved("FTB_IB_ADAPTER_INFO", &removed, ""), back);
        let port = |state| [adapter, ("port", "1"), ("state", state)];
        let well = is("own mlx5_0/1 PORT_ERR", Truth::False);
        assert_eq!(resolved("FTB_IB_PORT_INFO", &port("ACTIVE"), ""), well);
        assert_eq!(resolved("FTB_IB_PORT_INFO", &port("DOWN"), ""), None);
    }

    /// A C program leaves what its stack has behind the text.
    #[test]
    fn a_payload_ends_at_its_first_nul_and_another_text_is_about_no_host() {
        let fan = |payload: &[u8]| resolved_bytes("FTB_IPMI_FANFAIL", &[], payload);
        let of = |host: &str| Some((format!("{host} HARDWARE"), Truth::True));
        assert_eq!(fan(b"node07\0\xff\xa5\0\x80"), of("node07"));
        assert_eq!(fan(b"node07\0garbage"), of("node07"));
        for no_host in [&b"\xff\xfe"[..], b"no host at all", b"node07\xff\0"] {
            assert_eq!(fan(no_host), None, "never the host of the publisher");
        }
        assert_eq!(fan(b""), of("own"));
        assert_eq!(fan(b"\0\xa5"), of("own"));
    }

    #[test]
    fn contradictory_pairs_are_rejected_by_name() {
        let pair =
            |set: &str, clear: &[&str]| ConditionPair::new("site", set, clear).expect("good");
        let error = |pairs| ConditionPairs::new(pairs).expect_err("contradictory").to_string();
        let same = error(vec![pair("A", &["A"])]);
        let whole =
            "contradictory pairs: site A sets A by the pair of A, and clears A by the pair of A";
        assert_eq!(same, whole);
        let second = error(vec![pair("A", &["B"]), pair("B", &[])]);
        assert!(second.contains("sets B by the pair of B, and clears A by the pair of A"));
        let twice = error(vec![pair("A", &["C"]), pair("B", &["C"])]);
        assert!(twice.contains("clears A by the pair of A, and clears B by the pair of B"));
        let ours = ConditionPair::new("ftb.ipmi", "FTB_IPMI_NORMAL", &[]).expect("good");
        let with_built_in = error(vec![ours]);
        let both = "sets FTB_IPMI_NORMAL by the pair of FTB_IPMI_NORMAL, and clears HARDWARE by \
                    the built-in pair of FTB_IPMI_FANFAIL";
        assert!(with_built_in.contains(both), "{with_built_in}");
        assert!(ConditionPairs::new(vec![pair("A", &["B"]), pair("C", &["D"])]).is_ok());
    }
}
