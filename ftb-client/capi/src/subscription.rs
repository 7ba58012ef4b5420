//! Subscription strings: `severity=fatal, event_space=ftb.all.watchdog`.
//!
//! Pairs separated by commas, each key at most once, all of them must hold; `all` is the only
//! wildcard; an empty string wants everything. Responsible for: reading them with the codes of the
//! original, matching, and a filter for the agent that wants at least as much ([`coarse`]).

use crate::abi::{
    Code, EventMask, MAX_CLIENT_JOBID, MAX_CLIENT_NAME, MAX_EVENT_NAME, MAX_HOST_ADDR, ReceiveEvent,
};
use crate::space;
use crate::text::{bounded, field};
use ftb_client::{Filter, Gap, Severity};

/// Most pairs of one string: more is [`Code::SubscriptionStr`].
const PAIRS_MAX: usize = 10;
/// Longest subscription string, in bytes: more than all keys with their longest values.
pub(crate) const STRING_BYTES_MAX: usize = 4096;
const ALL: &[u8] = b"all";

/// How conditions work together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Matching {
    /// All must hold, as the guide of the original says.
    #[default]
    And,
    /// As the original did: where an event name is given, severity, category and component do not
    /// count.
    Cifts,
}

/// One key's condition; `None` is `all`.
type Wanted = Option<Vec<u8>>;

/// What a subscription wants.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Mask {
    region: Wanted,
    category: Wanted,
    component: Wanted,
    severity: Wanted,
    event_name: Wanted,
    jobid: Wanted,
    client_name: Wanted,
    host_name: Wanted,
    matching: Matching,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    Severity,
    EventSpace,
    Jobid,
    HostName,
    EventName,
    ClientName,
}

impl Key {
    const ALL: [(&'static str, Self); 6] = [
        ("severity", Self::Severity),
        ("event_space", Self::EventSpace),
        ("jobid", Self::Jobid),
        ("host_name", Self::HostName),
        ("event_name", Self::EventName),
        ("client_name", Self::ClientName),
    ];

    fn from_word(word: &[u8]) -> Option<Self> {
        let found = Self::ALL.iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|(_, key)| *key)
    }
}

impl Mask {
    /// Reads a subscription string.
    pub(crate) fn parse(string: &[u8], matching: Matching) -> Result<Self, Code> {
        let mut mask = Self { matching, ..Self::default() };
        if string.is_empty() {
            return Ok(mask);
        }
        let pairs: Vec<&[u8]> = string.split(|byte| *byte == b',').collect();
        if pairs.len() > PAIRS_MAX {
            return Err(Code::SubscriptionStr);
        }
        let mut seen = Vec::new();
        for pair in pairs {
            // What stands behind a second `=` is ignored.
            let mut words = pair.split(|byte| *byte == b'=').map(trimmed);
            let (key, value) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            if key.is_empty() || value.is_empty() {
                return Err(Code::SubscriptionStr);
            }
            let key = Key::from_word(key).ok_or(Code::FilterAttr)?;
            if seen.contains(&key) {
                return Err(Code::SubscriptionStr);
            }
            seen.push(key);
            mask.set(key, value)?;
        }
        Ok(mask)
    }

    fn set(&mut self, key: Key, value: &[u8]) -> Result<(), Code> {
        let text = |length: usize| {
            let good = value.len() < length && !value.iter().any(|byte| is_blank(*byte));
            if good { Ok(wanted(value)) } else { Err(Code::FilterValue) }
        };
        match key {
            Key::Severity => {
                let known = value.eq_ignore_ascii_case(ALL) || severity(value).is_some();
                self.severity = if known { wanted(value) } else { return Err(Code::FilterValue) };
            }
            Key::EventSpace => {
                let parts = space::split(value).ok_or(Code::EventspaceFormat)?;
                [self.region, self.category, self.component] = parts.map(wanted);
            }
            Key::Jobid => self.jobid = text(MAX_CLIENT_JOBID)?,
            Key::HostName => self.host_name = text(MAX_HOST_ADDR)?,
            Key::EventName => self.event_name = text(MAX_EVENT_NAME)?,
            Key::ClientName => self.client_name = text(MAX_CLIENT_NAME)?,
        }
        Ok(())
    }

    /// Whether it wants that event.
    pub(crate) fn matches(&self, event: &ReceiveEvent) -> bool {
        let by_name_only = self.matching == Matching::Cifts && self.event_name.is_some();
        holds(&self.event_name, &event.event_name)
            && holds(&self.jobid, &event.client_jobid)
            && holds(&self.client_name, &event.client_name)
            && holds(&self.host_name, &event.incoming_src.hostname)
            && (by_name_only || holds(&self.severity, &event.severity))
            && self.wants_space(&event.event_space, by_name_only)
    }

    /// Whether it wants events of that event space; of its region only, if `region_only`.
    fn wants_space(&self, event_space: &[u8], region_only: bool) -> bool {
        let wanted = [&self.region, &self.category, &self.component];
        if wanted.iter().all(|wanted| wanted.is_none()) {
            return true;
        }
        let parts = space::split_loosely(bounded(event_space)).unwrap_or_default();
        let mut parts = wanted.into_iter().zip(parts).take(if region_only { 1 } else { 3 });
        parts.all(|(wanted, part)| holds(wanted, part))
    }

    /// Whether it may have wanted events of a gap.
    pub(crate) fn may_want(&self, gap: &Gap) -> bool {
        let filter = Filter::parse(&coarse(core::iter::once(self)));
        filter.map_or(true, |filter| filter.may_want(gap.severity_max, &gap.spaces))
    }

    /// As programs find it in their handle.
    pub(crate) fn as_event(&self, number: u16) -> EventMask {
        fn part<const N: usize>(wanted: &Wanted) -> [u8; N] {
            field(wanted.as_deref().unwrap_or(ALL))
        }
        EventMask {
            region: part(&self.region),
            comp_cat: part(&self.category),
            comp: part(&self.component),
            event_name: part(&self.event_name),
            severity: part(&self.severity),
            client_jobid: part(&self.jobid),
            client_name: part(&self.client_name),
            hostname: part(&self.host_name),
            seqnum: number,
            event_type: 0,
            event_payload: [0; _],
            pad: 0,
        }
    }

    /// The event spaces that can match, as a pattern of the agent; `None` for any.
    fn space_pattern(&self) -> Option<String> {
        let by_name_only = self.matching == Matching::Cifts && self.event_name.is_some();
        let (category, component) = if by_name_only {
            (None, None)
        } else {
            (plain(&self.category), plain(&self.component))
        };
        let category = category.filter(|category| !space::is_none(category));
        let component = component.filter(|component| !space::may_be_foreign(component));
        let region = plain(&self.region);
        match (region, category, component) {
            (None, None, None) => None,
            (Some(region), None, None) => Some(format!("{region}.*")),
            (region, category, component) => {
                let part = |part: Option<String>| part.unwrap_or_else(|| "*".to_owned());
                Some(format!("{}.{}.{}", part(region), part(category), part(component)))
            }
        }
    }

    fn severity_word(&self) -> Option<String> {
        let by_name_only = self.matching == Matching::Cifts && self.event_name.is_some();
        plain(&self.severity).filter(|_| !by_name_only)
    }
}

/// Most alternatives of one key in a filter for the agent. More, and the key is left out: the agent
/// sends more, and the library sorts it out.
const ALTERNATIVES_MAX: usize = 24;

/// What a mask wants of one key, if the agent can be asked for it.
type Condition = fn(&Mask) -> Option<String>;

/// A filter for the agent that wants at least what any of the masks wants. Conditions that the
/// agent might understand otherwise are left to [`Mask::matches`].
pub(crate) fn coarse<'a>(masks: impl Iterator<Item = &'a Mask> + Clone) -> String {
    // What is cut off to fit its C field must not be asked for in full.
    fn short(wanted: &Wanted, length: usize) -> Option<String> {
        plain(wanted).filter(|word| word.len() + 1 < length)
    }
    let keys: [(&str, Condition); 5] = [
        ("event_space", Mask::space_pattern),
        ("severity", Mask::severity_word),
        ("event_name", |mask| short(&mask.event_name, MAX_EVENT_NAME)),
        ("jobid", |mask| short(&mask.jobid, MAX_CLIENT_JOBID)),
        ("client_name", |mask| short(&mask.client_name, MAX_CLIENT_NAME)),
    ];
    let mut conditions = Vec::new();
    for (key, condition) in keys {
        let words: Option<Vec<String>> = masks.clone().map(condition).collect();
        let Some(mut words) = words else { continue };
        words.sort();
        words.dedup();
        if !words.is_empty() && words.len() <= ALTERNATIVES_MAX {
            conditions.push(format!("{key}={}", words.join("|")));
        }
    }
    conditions.join(", ")
}

/// The word in lower case if it means the same to the agent.
fn plain(wanted: &Wanted) -> Option<String> {
    let word = wanted.as_deref()?;
    let good = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte);
    let text = String::from_utf8(word.to_ascii_lowercase()).ok()?;
    word.iter().all(good).then_some(text)
}

/// The severity with that name, in any case.
pub(crate) fn severity(word: &[u8]) -> Option<Severity> {
    let named = |severity: &Severity| word.eq_ignore_ascii_case(severity.as_str().as_bytes());
    Severity::ALL.into_iter().find(named)
}

fn wanted(value: &[u8]) -> Wanted {
    (!value.eq_ignore_ascii_case(ALL)).then(|| value.to_owned())
}

/// Whether a field, as far as its NUL, is what is wanted.
fn holds(wanted: &Wanted, field: &[u8]) -> bool {
    wanted.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(bounded(field)))
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

fn trimmed(word: &[u8]) -> &[u8] {
    let start = word.iter().position(|byte| !is_blank(*byte)).unwrap_or(word.len());
    let end = word.iter().rposition(|byte| !is_blank(*byte)).map_or(start, |last| last + 1);
    &word[start..end]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::convert::tests::event;
    use proptest::prelude::*;

    fn parse(string: &str) -> Result<Mask, Code> {
        Mask::parse(string.as_bytes(), Matching::And)
    }

    fn matches(string: &str, space: &str, name: &str, severity: &str) -> bool {
        parse(string).unwrap().matches(&event(space, name, severity))
    }

    #[test]
    fn codes_are_those_of_the_original() {
        let long = |key: &str, length: usize| format!("{key}={}", "x".repeat(length));
        for (string, code) in [
            ("severity", Code::SubscriptionStr),
            ("severity=", Code::SubscriptionStr),
            ("=info", Code::SubscriptionStr),
            ("a==b", Code::SubscriptionStr),
            ("  ", Code::SubscriptionStr),
            ("severity=info,severity=fatal", Code::SubscriptionStr),
            (",severity=info", Code::SubscriptionStr),
            ("severity=info,", Code::SubscriptionStr),
            ("severity=info,,jobid=1", Code::SubscriptionStr),
            ("a,b,c,d,e,f,g,h,i,j,k", Code::SubscriptionStr),
            ("foo=bar", Code::FilterAttr),
            ("hostname=h", Code::FilterAttr),
            ("uid=1000", Code::FilterAttr),
            ("event_type=1", Code::FilterAttr),
            ("sev erity=info", Code::FilterAttr),
            ("severity=bad", Code::FilterValue),
            ("severity=in fo", Code::FilterValue),
            ("severity=info jobid=1", Code::FilterValue),
            ("severity=info;jobid=1", Code::FilterValue),
            (&long("event_name", 32), Code::FilterValue),
            (&long("jobid", 16), Code::FilterValue),
            (&long("client_name", 16), Code::FilterValue),
            (&long("host_name", 64), Code::FilterValue),
            ("event_space=a.b.*", Code::EventspaceFormat),
            ("event_space=a.b", Code::EventspaceFormat),
            ("event_space=all", Code::EventspaceFormat),
        ] {
            assert_eq!(parse(string), Err(code), "{string:?}");
        }
        for string in [
            "",
            "severity=info=x",
            "event_name=bad-name!",
            " Severity =\tALL , JOBID= x ",
            &long("event_name", 31),
            &long("jobid", 15),
            &long("host_name", 63),
            "event_space=ftb.all.watchdog",
        ] {
            assert!(parse(string).is_ok(), "{string:?}");
        }
    }

    #[test]
    fn all_conditions_must_hold_and_case_does_not_count() {
        let space = "FTB.FTB_EXAMPLES.watchdog";
        assert!(matches("", space, "X", "info"));
        assert!(matches("event_space=ftb.all.WATCHDOG", space, "X", "INFO"));
        assert!(matches("event_space=all.ftb_examples.all,severity=Info", space, "X", "INFO"));
        assert!(!matches("event_space=ftb.all.other", space, "X", "info"));
        assert!(matches("event_name=evx", space, "EVX", "info"));
        assert!(!matches("event_name=evx,severity=fatal", space, "EVX", "warning"));
        assert!(!matches("severity=fatal", space, "X", "error"), "no order of severities");
        assert!(!matches("jobid=7", space, "X", "info"));
    }

    #[test]
    fn the_switch_brings_the_quirk_back() {
        let string = b"event_name=EVX,event_space=FTB.OTHER.COMP,severity=fatal";
        let event = event("FTB.T.PUBR", "EVX", "warning");
        assert!(Mask::parse(string, Matching::Cifts).unwrap().matches(&event));
        assert!(!Mask::parse(string, Matching::And).unwrap().matches(&event));
        let other_region = b"event_name=EVX,event_space=X.T.PUBR";
        assert!(!Mask::parse(other_region, Matching::Cifts).unwrap().matches(&event));
    }

    #[test]
    fn the_handle_shows_what_is_wanted() {
        let shown = parse("event_space=ftb.all.Watchdog, severity=fatal").unwrap().as_event(7);
        assert_eq!(bounded(&shown.region), b"ftb");
        assert_eq!(bounded(&shown.comp_cat), b"all");
        assert_eq!(bounded(&shown.comp), b"Watchdog");
        assert_eq!((bounded(&shown.severity), shown.seqnum), (&b"fatal"[..], 7));
    }

    #[test]
    fn one_filter_for_several_subscriptions() {
        let masks = [
            parse("event_space=ftb.mpi.mvapich2, severity=fatal").unwrap(),
            parse("event_space=FTB.ipmi.all, severity=error, jobid=4").unwrap(),
        ];
        let filter = coarse(masks.iter());
        assert_eq!(filter, "event_space=ftb.ipmi.*|ftb.mpi.mvapich2, severity=error|fatal");
        assert_eq!(coarse(masks[..1].iter().chain([&parse("").unwrap()])), "");
        let odd = parse("event_name=a|b, client_name=*, event_space=a.b.none").unwrap();
        assert_eq!(coarse([&odd].into_iter()), "event_space=a.b.*");
        let many: Vec<Mask> =
            (0..40).map(|i| parse(&format!("event_name=e{i}, severity=info")).unwrap()).collect();
        assert_eq!(coarse(many.iter()), "severity=info");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(string in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Mask::parse(&string, Matching::And);
        }

        #[test]
        fn a_coarse_filter_can_be_read_by_the_agent(
            strings in proptest::collection::vec(
                "(severity=(info|all|Fatal))?(,)?(event_name=[a-zA-Z|*!_-]{1,31})?(,)?\
                 (event_space=[a-z_]{1,6}\\.(all|b|none)\\.(all|c_d|e))?(,)?(jobid=[ -~]{1,15})?",
                1..30,
            )
        ) {
            let masks: Vec<Mask> = strings.iter().filter_map(|string| parse(string).ok()).collect();
            let filter = coarse(masks.iter());
            prop_assert!(Filter::parse(&filter).is_ok(), "{filter}");
        }
    }
}
