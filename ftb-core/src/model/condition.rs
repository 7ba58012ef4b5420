//! Conditions: lasting states of a subject. An event reports that something happened; a condition
//! says what is true now.
//!
//! Responsible for: what a statement about a condition is, and its limits. Not responsible for: the
//! current state of all conditions ([`crate::log::conditions`]), statements that follow from event
//! names ([`pairs`]).

pub mod pairs;

use crate::catalog::names;
use crate::ident::{EventId, OriginId};
use crate::limits;
use crate::severity::Severity;
use crate::space::{EventName, NameError};
use core::fmt;
use core::str::FromStr;

/// The key of a watch: its publisher watches the component, an event space, on the host.
pub const WATCHED: &str = "WATCHED";
/// The key of a silence: maintenance, in which ftb-act and ftb-slurm do nothing about some hosts.
pub const SILENCED: &str = "SILENCED";
/// The event space of silences.
pub const SILENCE_SPACE: &str = "ftb.silence";
/// The key of a host that its BMC says is powered off.
pub const CHASSIS_OFF: &str = "CHASSIS_OFF";
/// The event space of agents; the component of their watches.
pub const AGENT_SPACE: &str = "ftb.agent";
/// The tag with space and name of the event whose statement an agent repeats.
pub const ORIGINAL: &str = "event";
/// The tag with the host of its publisher.
pub const PUBLISHER_HOST: &str = "publisher_host";
/// The tag with the user of its publisher.
pub const PUBLISHER_UID: &str = "publisher_uid";
/// The name of the events by which agents state conditions.
pub const EVENT_NAME: &str = names::FTB_CONDITION;

macro_rules! words {
    (
        $(#[$doc:meta])* $name:ident, $what:literal:
        $($(#[$of:meta])* $variant:ident = $number:literal $word:literal,)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$of])* $variant = $number,)* }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word in commands and JSON.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The number on the wire; `None` for an unknown number.
            pub fn from_wire(number: u64) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| *known as u64 == number)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = ConditionError;

            fn from_str(word: &str) -> Result<Self, ConditionError> {
                let found = Self::ALL.iter().find(|known| known.as_str() == word);
                found.copied().ok_or_else(|| ConditionError::Word {
                    what: $what,
                    word: word.chars().take(32).collect(),
                    known: [$($word,)*].join(", "),
                })
            }
        }
    };
}

words! {
    /// Whether a condition holds.
    Truth, "state of a condition":
    /// It holds.
    True = 1 "true",
    /// It does not hold.
    False = 2 "false",
    /// Its publisher is lost, or does not know it.
    Unknown = 3 "unknown",
}

words! {
    /// What the publisher recommends.
    RecommendedAction, "recommended action":
    /// Nothing.
    None = 1 "none",
    /// Look at it when there is time.
    Watch = 2 "watch",
    /// Reset the component.
    ResetComponent = 3 "reset-component",
    /// Restart the process.
    RestartProcess = 4 "restart-process",
    /// Move jobs to another node.
    Migrate = 5 "migrate",
    /// Reboot the node.
    Reboot = 6 "reboot",
    /// Replace the part.
    Replace = 7 "replace",
}

/// What a condition is about. Host and key compare without case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    host: Box<str>,
    component: Box<str>,
    key: Box<str>,
}

impl Subject {
    /// A condition of a component of a host; an empty component means the host itself.
    pub fn new(host: &str, component: &str, key: &str) -> Self {
        Self {
            host: host.to_ascii_lowercase().into(),
            component: component.into(),
            key: key.to_ascii_uppercase().into(),
        }
    }

    /// The host, in lower case.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The component; empty: the host itself.
    pub fn component(&self) -> &str {
        &self.component
    }

    /// The key, in upper case.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Bytes of its texts.
    pub fn len(&self) -> usize {
        self.host.len() + self.component.len() + self.key.len()
    }

    /// Never for a checked subject: it has a key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.component.is_empty() {
            true => write!(f, "{} {}", self.host, self.key),
            false => write!(f, "{} {} {}", self.host, self.component, self.key),
        }
    }
}

/// A statement about a condition, as its publisher makes it. It travels in an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The host; empty: the publisher's host.
    pub host: String,
    /// The component of the host, such as a sensor; empty: the host itself.
    pub component: String,
    /// What holds or does not hold, such as `FANFAIL`.
    pub key: String,
    /// Whether it holds.
    pub truth: Truth,
    /// What to do about it.
    pub action: RecommendedAction,
    /// How bad it is; `None`: as bad as the event.
    pub severity: Option<Severity>,
    /// Since when, in Unix nanoseconds; 0: since the event.
    pub onset_ns: u64,
    /// Milliseconds after the event when it becomes unknown; 0: never.
    pub expires_ms: u32,
    /// It outlives its publisher: it stays until it is cleared or expires.
    pub is_kept: bool,
}

/// What the agent adds to a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// The agent of the publisher.
    pub owner: OriginId,
    /// The statement that an agent repeats for its publisher.
    pub source: Option<EventId>,
    /// The only event that this one may replace: an agent found its publisher lost.
    pub replaces: Option<EventId>,
    /// It follows from the name of the event ([`pairs`]).
    pub is_paired: bool,
}

impl Provenance {
    /// Of a publisher's own statement at that agent.
    pub const fn direct(owner: OriginId) -> Self {
        Self { owner, source: None, replaces: None, is_paired: false }
    }
}

impl Condition {
    /// A condition of the publisher's host with that key.
    pub fn new(key: &str, truth: Truth) -> Self {
        Self {
            host: String::new(),
            component: String::new(),
            key: key.to_owned(),
            truth,
            action: RecommendedAction::None,
            severity: None,
            onset_ns: 0,
            expires_ms: 0,
            is_kept: false,
        }
    }

    /// A watch over what an event space says about a host: without it the host is not watched,
    /// which differs from healthy.
    pub fn watch(host: &str, space: &str) -> Self {
        let host = host.to_owned();
        Self { host, component: space.to_owned(), ..Self::new(WATCHED, Truth::True) }
    }

    /// What it is about, where the publisher is on `own_host`.
    pub fn subject(&self, own_host: &str) -> Subject {
        let host = if self.host.is_empty() { own_host } else { &self.host };
        Subject::new(host, &self.component, &self.key)
    }

    /// Checks the texts.
    ///
    /// # Errors
    /// [`ConditionError`] names the field.
    pub fn check(&self) -> Result<(), ConditionError> {
        check_texts(&self.host, &self.component, &self.key)
    }
}

/// Checks the texts of a statement; an empty host is the publisher's.
///
/// # Errors
/// [`ConditionError`] names the field.
pub fn check_texts(host: &str, component: &str, key: &str) -> Result<(), ConditionError> {
    if !host.is_empty() && !is_host_name(host) {
        return Err(ConditionError::Host(host.chars().take(64).collect()));
    }
    let max = limits::COMPONENT_BYTES_MAX;
    if component.len() > max || component.chars().any(char::is_control) {
        return Err(ConditionError::Component { bytes: component.len() });
    }
    EventName::check(key).map_err(ConditionError::Key)
}

/// Whether a text can be a host name (RFC 1123, and `_`).
pub fn is_host_name(text: &str) -> bool {
    let good = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
    let label = |label: &str| {
        (1..=63).contains(&label.len()) && !label.starts_with('-') && label.bytes().all(good)
    };
    text.len() <= limits::HOST_BYTES_MAX && text.split('.').all(label)
}

/// Why a statement is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// The host is no host name.
    #[error("the subject {0:?} of the condition is no host name")]
    Host(String),
    /// The component is too long or has control characters.
    #[error(
        "the component of the condition has {bytes} bytes or control characters: at most {} bytes \
         of text are allowed",
        limits::COMPONENT_BYTES_MAX
    )]
    Component {
        /// Its size.
        bytes: usize,
    },
    /// The key is no name.
    #[error("the key of the condition: {0}")]
    Key(NameError),
    /// A word or number that is unknown.
    #[error("{word:?} is no {what}: expected one of {known}")]
    Word {
        /// What was expected.
        what: &'static str,
        /// What was given.
        word: String,
        /// The known words.
        known: String,
    },
    /// The event is too large to be retained with the condition.
    #[error(
        "the event with a condition has {bytes} bytes: at most {} are allowed",
        limits::CONDITION_BYTES_MAX
    )]
    TooLong {
        /// Its size.
        bytes: usize,
    },
    /// Conditions of another host need more rights.
    #[error(
        "conditions of another host, {host}, may be stated by root and the agent's user only, in a \
         protected event space: {space}"
    )]
    OtherHost {
        /// The other host.
        host: String,
        /// The event space.
        space: String,
    },
    /// Ordinary users may not state conditions.
    #[error(
        "your user may not state conditions in event space {0}: only root, and publishers of \
         protected event spaces may"
    )]
    Denied(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_compare_hosts_and_keys_without_case() {
        let subject = Subject::new("Node01", "FAN 1", "FanFail");
        assert_eq!(subject, Subject::new("node01", "FAN 1", "FANFAIL"));
        assert_ne!(subject, Subject::new("node01", "fan 1", "FANFAIL"));
        assert_eq!(subject.to_string(), "node01 FAN 1 FANFAIL");
        let own = Condition::new("HEAT", Truth::True);
        assert_eq!(own.subject("node02"), Subject::new("node02", "", "HEAT"));
    }

    #[test]
    fn bad_statements_are_rejected_by_name() {
        let message = |host: &str, component: &str, key: &str| {
            check_texts(host, component, key).expect_err("bad").to_string()
        };
        assert!(message("no host", "", "HEAT").contains("no host name"));
        assert!(message("a..b", "", "HEAT").contains("no host name"));
        assert!(message("node01", "a\nb", "HEAT").contains("component"));
        assert!(message("node01", &"x".repeat(200), "HEAT").contains("200 bytes"));
        assert!(message("node01", "", "no key").contains("column 3"));
        assert!(check_texts("node-01.site_a.org", "DIMM 3", "MEMERR").is_ok());
        let unknown = "explode".parse::<RecommendedAction>().expect_err("unknown").to_string();
        assert!(unknown.contains("\"explode\" is no recommended action"), "{unknown}");
        assert!(unknown.contains("none, watch, reset-component"), "{unknown}");
    }

    #[test]
    fn words_and_numbers_name_the_same() {
        for action in RecommendedAction::ALL {
            assert_eq!(action.as_str().parse(), Ok(*action));
            assert_eq!(RecommendedAction::from_wire(*action as u64), Some(*action));
        }
        assert_eq!((Truth::from_wire(0), Truth::from_wire(4)), (None, None));
    }
}
