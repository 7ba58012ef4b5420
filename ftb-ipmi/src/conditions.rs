//! Follows the conditions of the watched nodes in the table of the cluster: what an earlier life of
//! this program has stated, and what people clear by hand.
//!
//! Not responsible for: what follows from that ([`crate::monitor`]).

use crate::event::{EVENT_SPACE, kind_of_event};
use crate::monitor::{CONTROLLER_LOST, FormerCondition, LOG_FULL, condition_of_class};
use crate::sdr::SensorClass;
use ftb_client::{Client, ConditionState, Conditions, SubscribeError};
use ftb_core::condition::{CHASSIS_OFF, Subject, Truth};
use ftb_core::{PublisherId, hostlist};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Longest list of hosts in the filter, in bytes. A longer one is left out: then the agent sends
/// the conditions of all hosts.
const HOSTS_BYTES_MAX: usize = 2048;
/// Most cleared, and most refused, conditions of one node that wait for its BMC.
const CLEARED_MAX: usize = 1024;
/// Pause before the table is read again after a refusal.
const PAUSE: Duration = Duration::from_secs(60);

/// News about one node, for its task.
#[derive(Debug, Default)]
pub struct Inbox {
    news: Mutex<News>,
    changed: Notify,
}

/// What is new about one node.
#[derive(Debug, Default)]
pub struct News {
    /// The conditions of an earlier life that are not over; `None`: not read again.
    pub former: Option<Vec<FormerCondition>>,
    /// Conditions of this life that a person has cleared: component and key.
    pub cleared: BTreeSet<(String, String)>,
    /// Kept conditions that an agent has refused: component and key.
    pub refused: BTreeSet<(String, String)>,
}

impl Inbox {
    /// Resolves when there are news. Cancel-safe.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Takes the news.
    pub fn take(&self) -> News {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// An agent has refused a kept condition.
    pub(crate) fn on_refused(&self, component: &str, key: &str) {
        self.put(|news| {
            if news.refused.len() < CLEARED_MAX {
                news.refused.insert((component.to_owned(), key.to_owned()));
            }
        });
    }

    pub(crate) fn put(&self, change: impl FnOnce(&mut News)) {
        change(&mut self.news.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
    }
}

/// Brings news to the inboxes, by node in lower case. Ends with the client.
pub(crate) async fn follow(client: Client, inboxes: BTreeMap<String, Arc<Inbox>>) {
    let filter = filter_for(&inboxes);
    let mut follower = Follower { client, inboxes, held: BTreeSet::new() };
    loop {
        let error = match follower.run(&filter).await {
            Ok(()) | Err(SubscribeError::Closed) => return,
            Err(error) => error,
        };
        tracing::warn!(%error, "conditions of an earlier life of ftb-ipmi may remain");
        for inbox in follower.inboxes.values() {
            inbox.put(|news| news.former = Some(Vec::new()));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The conditions that this program states, of these nodes.
fn filter_for(inboxes: &BTreeMap<String, Arc<Inbox>>) -> String {
    let classes = SensorClass::ALL.map(|class| condition_of_class(class).0);
    let keys: Vec<&str> =
        classes.into_iter().chain([CHASSIS_OFF, CONTROLLER_LOST, LOG_FULL]).collect();
    let keys = keys.join("|");
    let hosts = hostlist::fold(inboxes.keys().map(String::as_str));
    match hosts.len() > HOSTS_BYTES_MAX {
        true => format!("condition={keys}"),
        false => format!("condition={keys}, subject={hosts}"),
    }
}

struct Follower {
    client: Client,
    inboxes: BTreeMap<String, Arc<Inbox>>,
    /// Conditions of this program, of this life or an earlier one, that are not over. As many as
    /// the table has.
    held: BTreeSet<Subject>,
}

impl Follower {
    async fn run(&mut self, filter: &str) -> Result<(), SubscribeError> {
        let mut conditions = Conditions::open(&self.client, filter).await?;
        conditions.load().await?;
        loop {
            let Some(own) = self.client.publisher() else { return Ok(()) };
            self.on_table(own, &conditions);
            while let Some(subject) = conditions.changed().await? {
                if let Some(state) = conditions.state(&subject) {
                    self.on_state(own, state);
                }
            }
        }
    }

    /// The whole table is read.
    fn on_table(&mut self, own: PublisherId, conditions: &Conditions) {
        let mut former: BTreeMap<&str, Vec<FormerCondition>> = BTreeMap::new();
        for state in conditions.states() {
            self.on_state(own, state);
            if let Some(row) = former_of(own, state) {
                former.entry(state.subject.host()).or_default().push(row);
            }
        }
        for (node, inbox) in &self.inboxes {
            let rows = former.remove(&**node).unwrap_or_default();
            inbox.put(|news| news.former = Some(rows));
        }
    }

    /// Another publisher than this life states that a condition of this program is over: a person
    /// has cleared it.
    fn on_state(&mut self, own: PublisherId, state: &ConditionState) {
        let Some(inbox) = self.inboxes.get(state.subject.host()) else { return };
        let by = state.source.publisher;
        if state.truth != Truth::False {
            if by.account == own.account {
                self.held.insert(state.subject.clone());
            }
            return;
        }
        if self.held.remove(&state.subject) && by != own {
            let cleared = (state.subject.component().to_owned(), state.subject.key().to_owned());
            inbox.put(|news| {
                if news.cleared.len() < CLEARED_MAX {
                    news.cleared.insert(cleared);
                }
            });
        }
    }
}

/// A condition that an earlier life of this program has stated, and that is not over. One that
/// people clear is theirs.
fn former_of(own: PublisherId, state: &ConditionState) -> Option<FormerCondition> {
    let by = state.source.publisher;
    let is_former = by.account == own.account && by != own;
    if !is_former || state.truth == Truth::False || state.claim.is_kept {
        return None;
    }
    let (space, name) = state.event.split_once(' ')?;
    let kind = kind_of_event(name).filter(|_| space.eq_ignore_ascii_case(EVENT_SPACE))?;
    Some(FormerCondition {
        component: state.subject.component().to_owned(),
        key: state.subject.key().to_owned(),
        severity: state.severity,
        onset_ns: state.onset_ns,
        kind,
        event_states: None,
    })
}
