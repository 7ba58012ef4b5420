//! Orders: what a rule does about conditions, how far it is, and what of it is on disk.

use ftb_core::condition::Subject;
use ftb_core::hostlist;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What an order does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Runs a program.
    Exec,
    /// Sends a request to a web server.
    Webhook,
    /// Publishes an event.
    Publish,
    /// Takes a host out of service.
    Drain,
}

impl Kind {
    /// The word in configuration and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Webhook => "webhook",
            Self::Publish => "publish",
            Self::Drain => "drain",
        }
    }

    /// It may be done again after a crash: its receiver knows it by its id.
    pub fn may_repeat(self) -> bool {
        self != Self::Exec
    }
}

/// How far an order is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Further causes may join it until it is due. Not on disk.
    Settling,
    /// All its causes are silenced. Not on disk.
    Silenced,
    /// It waits for its turn. Not on disk.
    Waiting,
    /// The breaker was open. A person lets it pass.
    Refused,
    /// It is being done: saved before.
    Live,
    /// It was done, or not: the event that says so is not confirmed.
    Reporting {
        /// It was done.
        is_done: bool,
        /// What happened.
        text: String,
    },
    /// Its host is out of service.
    Drained,
    /// Its host returns to service: not confirmed.
    Releasing,
    /// It was done, and its causes hold.
    Over,
    /// The profile of its hosts only observes. Not on disk.
    Observed,
}

impl Stage {
    /// It must survive a crash.
    pub fn is_saved(&self) -> bool {
        !matches!(self, Self::Settling | Self::Silenced | Self::Waiting | Self::Observed)
    }

    /// The word in output.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Settling => "settling",
            Self::Silenced => "silenced",
            Self::Waiting => "waiting",
            Self::Refused => "refused",
            Self::Live => "live",
            Self::Reporting { .. } => "reporting",
            Self::Drained => "drained",
            Self::Releasing => "releasing",
            Self::Over => "over",
            Self::Observed => "observed",
        }
    }
}

/// A condition for which an order is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// What it is about.
    #[serde(with = "subject_text")]
    pub subject: Subject,
    /// Since when it holds, in Unix nanoseconds.
    pub onset_ns: u64,
}

/// What a rule does about conditions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Its number, which is never used again.
    pub id: u64,
    /// The name of its rule.
    pub rule: String,
    /// What it does.
    pub kind: Kind,
    /// The host or rack.
    pub group: String,
    /// The conditions that hold.
    pub causes: Vec<Cause>,
    /// Its hosts when it was begun, in order.
    pub hosts: Vec<String>,
    /// How far it is.
    pub stage: Stage,
    /// It changes its hosts: breaker and "one live action for each host" count for it.
    pub changes_hosts: bool,
    /// A person ends the drain, not the end of its cause.
    pub is_persons: bool,
    /// A person let it pass an open breaker.
    #[serde(default)]
    pub passes: bool,
}

impl Order {
    /// Its hosts as a list.
    pub fn host_list(&self) -> String {
        hostlist::fold(self.hosts.iter().map(String::as_str))
    }

    /// The hosts of its causes, in order.
    pub(super) fn hosts_of_causes(&self) -> Vec<String> {
        let hosts: BTreeSet<&str> = self.causes.iter().map(|cause| cause.subject.host()).collect();
        hosts.into_iter().map(str::to_owned).collect()
    }
}

/// A change of what is on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delta {
    /// This order is so.
    Put(Order),
    /// This order is gone.
    Drop(u64),
    /// The breaker is so.
    Breaker(BreakerState),
}

/// The breaker, as it is on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerState {
    /// Orders that change hosts are refused until a person resumes.
    pub is_open: bool,
    /// The condition that says so is confirmed: a person who clears it resumes.
    pub is_confirmed: bool,
    /// Why it is open.
    pub reason: String,
}

/// What is on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// When the state was made, in Unix nanoseconds: with it the ids of orders are unique.
    pub life: u64,
    /// The next number of an order.
    pub next_id: u64,
    /// The breaker.
    pub breaker: BreakerState,
    /// The orders, by number.
    pub orders: Vec<Order>,
}

impl Saved {
    /// Applies a change.
    pub fn apply(&mut self, delta: Delta) {
        let place = |orders: &[Order], id| orders.binary_search_by_key(&id, |order| order.id);
        match delta {
            Delta::Put(order) => {
                self.next_id = self.next_id.max(order.id.saturating_add(1));
                match place(&self.orders, order.id) {
                    Ok(at) => self.orders[at] = order,
                    Err(at) => self.orders.insert(at, order),
                }
            }
            Delta::Drop(id) => {
                if let Ok(at) = place(&self.orders, id) {
                    self.orders.remove(at);
                }
            }
            Delta::Breaker(breaker) => self.breaker = breaker,
        }
    }
}

/// A subject as three texts.
mod subject_text {
    use super::{Deserialize, Serialize, Subject};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(subject: &Subject, to: S) -> Result<S::Ok, S::Error> {
        (subject.host(), subject.component(), subject.key()).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Subject, D::Error> {
        let (host, component, key) = <(String, String, String)>::deserialize(from)?;
        Ok(Subject::new(&host, &component, &key))
    }
}
