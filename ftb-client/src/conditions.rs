//! Conditions: what is true now, and what changes.
//!
//! [`Conditions`] begins with the table of conditions of the cluster and follows it. After a gap it
//! reads the table again. Statements that no signature proves do not count, where the agent demands
//! signatures ([`crate::proofs`]).
//!
//! Not responsible for: who may state a condition, and when one becomes unknown (the agents).

use crate::client::Client;
use crate::error::SubscribeError;
use crate::proofs::Proofs;
use crate::subscription::{Delivery, Subscription};
use ftb_core::condition::{AGENT_SPACE, Condition, RecommendedAction, Subject, Truth};
use ftb_core::log::table_view::{ReadPlace, TableView};
use ftb_core::node::api::Start;
use ftb_core::{Event, Severity};
pub use ftb_proto::condition_state::ConditionState;
use ftb_proto::event::Received;
use std::fmt;
use std::time::Duration;
use tokio::sync::mpsc;

/// Event spaces whose publishers watch hosts.
const WATCHERS: [&str; 3] = [AGENT_SPACE, "ftb.ipmi", "ftb.ib"];

/// What a follower of the table gets ([`Conditions::follow`]).
#[derive(Clone, Copy)]
pub enum ConditionUpdate<'a> {
    /// The whole table: at the beginning, and after a gap. What it does not have is not known.
    Table(&'a Conditions),
    /// What is known of one condition has changed.
    Row(&'a ConditionState),
}

/// Pause before a reading that follows one with a gap.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The table of conditions, as far as a filter wants it.
pub struct Conditions {
    proofs: Proofs,
    filter: String,
    subscription: Subscription,
    view: TableView<ConditionState>,
    /// Its row flag says that the whole table is not here yet.
    place: ReadPlace,
    /// A gap says that the table must be read again.
    is_stale: bool,
    hidden: u32,
    unproven: u64,
}

impl Conditions {
    /// Subscribes to the conditions that a filter wants, such as `subject=node[01-32]`. The keys
    /// `condition` and `subject` select by key and host.
    ///
    /// # Errors
    /// [`SubscribeError`], as [`Client::subscribe`].
    pub async fn open(client: &Client, filter: &str) -> Result<Self, SubscribeError> {
        let filter = match filter.contains("condition") {
            true => filter.to_owned(),
            false if filter.trim().is_empty() => "condition=*".to_owned(),
            false => format!("{filter}, condition=*"),
        };
        Ok(Self {
            proofs: Proofs::new(client),
            subscription: client.subscribe(&filter, Start::Conditions).await?,
            filter,
            view: TableView::default(),
            place: ReadPlace { is_row: true, ..ReadPlace::default() },
            is_stale: false,
            hidden: 0,
            unproven: 0,
        })
    }

    /// Waits until the whole table is here. May be cancelled: the next call goes on.
    ///
    /// # Errors
    /// The subscription has ended.
    pub async fn load(&mut self) -> Result<(), SubscribeError> {
        while self.place.is_row || self.is_stale {
            if self.is_stale {
                self.read_again().await?;
            }
            match self.subscription.next_of_past().await {
                Some(Delivery::Event(received)) => drop(self.apply(&received)),
                // No row is missing, but a statement that was made since the rows were read may be.
                Some(Delivery::Gap(_)) => self.is_stale = true,
                None => match self.subscription.ended() {
                    Some(why) => return Err(why),
                    None => {
                        (self.place.is_row, self.hidden) = (false, self.subscription.hidden());
                    }
                },
            }
        }
        Ok(())
    }

    async fn read_again(&mut self) -> Result<(), SubscribeError> {
        // An agent that sheds for want of room needs a pause more than another reading.
        if self.place.is_row {
            tokio::time::sleep(READ_AGAIN_AFTER).await;
        }
        let client = self.proofs.client();
        self.subscription = client.subscribe(&self.filter, Start::Conditions).await?;
        self.view.clear();
        self.place = self.place.next_reading();
        self.is_stale = false;
        Ok(())
    }

    /// Waits for the next statement; gives its subject. `None`: the whole table was read again,
    /// after a gap.
    ///
    /// # Errors
    /// The subscription has ended.
    pub async fn changed(&mut self) -> Result<Option<Subject>, SubscribeError> {
        loop {
            if self.place.is_row || self.is_stale {
                self.load().await?;
                return Ok(None);
            }
            match self.subscription.next().await {
                Some(Delivery::Event(received)) => {
                    if let Some(subject) = self.apply(&received) {
                        return Ok(Some(subject));
                    }
                }
                // A statement may be missing: the table is read again.
                Some(Delivery::Gap(_)) => self.is_stale = true,
                None => return Err(self.subscription.ended().unwrap_or(SubscribeError::Closed)),
            }
        }
    }

    /// Follows the table: sends what `message` makes of it, then of each change, and of the whole
    /// table again after a gap. While the channel is full, the subscription waits. Gives the reason
    /// of the end; [`SubscribeError::Closed`] if the receiver is gone.
    pub async fn follow<T>(
        client: &Client,
        filter: &str,
        sender: mpsc::Sender<T>,
        message: impl Fn(ConditionUpdate<'_>) -> T,
    ) -> SubscribeError {
        match Self::follow_on(client, filter, sender, message).await {
            Ok(()) => SubscribeError::Closed,
            Err(error) => error,
        }
    }

    async fn follow_on<T>(
        client: &Client,
        filter: &str,
        sender: mpsc::Sender<T>,
        message: impl Fn(ConditionUpdate<'_>) -> T,
    ) -> Result<(), SubscribeError> {
        let mut conditions = Self::open(client, filter).await?;
        conditions.load().await?;
        let mut next = message(ConditionUpdate::Table(&conditions));
        while sender.send(next).await.is_ok() {
            next = loop {
                match conditions.changed().await? {
                    None => break message(ConditionUpdate::Table(&conditions)),
                    Some(subject) => {
                        if let Some(state) = conditions.state(&subject) {
                            break message(ConditionUpdate::Row(state));
                        }
                    }
                }
            };
        }
        Ok(())
    }

    /// The subject of the statement, if it is proven.
    fn apply(&mut self, received: &Received) -> Option<Subject> {
        let state = ConditionState::of(received)?;
        if self.proofs.is_missing(received) {
            self.unproven += 1;
            if self.unproven.is_power_of_two() {
                let (subject, count) = (&state.subject, self.unproven);
                let host = &received.host;
                tracing::warn!(%subject, host, count, "no signature proves a condition: ignored");
            }
            return None;
        }
        let subject = state.subject.clone();
        self.view.take(subject.clone(), self.place, state);
        Some(subject)
    }

    /// All that is known, by host, component and key. Conditions that do not hold are among them.
    pub fn states(&self) -> impl Iterator<Item = &ConditionState> {
        self.view.iter().map(|(_, state)| state)
    }

    /// What is known of one condition.
    pub fn state(&self, subject: &Subject) -> Option<&ConditionState> {
        self.view.get(subject)
    }

    /// Conditions that may make a host unhealthy and that the user may not read, when the table was
    /// read.
    pub fn hidden(&self) -> u32 {
        self.hidden
    }

    /// Statements that did not count because no signature proves them.
    pub fn unproven(&self) -> u64 {
        self.unproven
    }

    /// The health of a host. Hidden conditions may be about it, unless the filter wants no other
    /// host.
    pub fn health(&self, host: &str) -> Health {
        match Health::of(self.of_host(host)) {
            Health::Healthy { .. } | Health::NotWatched if self.hidden > 0 => {
                Health::Hidden { count: self.hidden }
            }
            health => health,
        }
    }

    /// The publishers that watch a host.
    pub fn watchers(&self, host: &str) -> Watchers {
        Watchers::of(self.of_host(host))
    }

    fn of_host(&self, host: &str) -> impl Iterator<Item = &ConditionState> {
        self.view.of_host(host).map(|(_, state)| state)
    }
}

/// States as *false* what an earlier life of this publisher has stated and left, as far as
/// `is_over` says so: nothing else clears it. `event` makes the event for a condition.
///
/// # Errors
/// The table cannot be read.
pub async fn clear_former(
    client: &Client,
    filter: &str,
    is_over: impl Fn(&ConditionState) -> bool,
    event: impl Fn(&ConditionState) -> Event,
) -> Result<usize, SubscribeError> {
    let mut conditions = Conditions::open(client, filter).await?;
    conditions.load().await?;
    let Some(own) = client.publisher() else { return Ok(0) };
    let mut cleared = 0;
    for state in conditions.states() {
        let former = state.source.publisher;
        let is_former = former.account == own.account && former != own;
        if is_former && state.truth != Truth::False && !state.is_watch() && is_over(state) {
            let condition = Condition {
                host: state.subject.host().to_owned(),
                component: state.subject.component().to_owned(),
                ..Condition::new(state.subject.key(), Truth::False)
            };
            let event = Event { condition: Some(condition), ..event(state) };
            cleared += usize::from(client.publish(event).is_ok());
        }
    }
    Ok(cleared)
}

/// The publishers that watch a host, by event space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watchers {
    /// They watch it.
    pub present: Vec<String>,
    /// They have watched it; whether they still do is unknown.
    pub lost: Vec<String>,
    /// Usual watchers that do not watch it.
    pub absent: Vec<String>,
}

impl Watchers {
    /// The watchers of a host with these conditions.
    pub fn of<'a>(states: impl Iterator<Item = &'a ConditionState>) -> Self {
        let mut found = Self::default();
        for state in states.filter(|state| state.is_watch()) {
            let watcher = state.subject.component().to_owned();
            match state.truth {
                Truth::True => found.present.push(watcher),
                Truth::Unknown => found.lost.push(watcher),
                Truth::False => {}
            }
        }
        let is_absent = |usual: &str| found.present.iter().chain(&found.lost).all(|w| w != usual);
        let absent = WATCHERS.into_iter().filter(|usual| is_absent(usual));
        found.absent = absent.map(str::to_owned).collect();
        found
    }
}

impl fmt::Display for Watchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts =
            [("watched by", &self.present), ("lost", &self.lost), ("not watched by", &self.absent)];
        let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
        let texts = parts.map(|(what, names)| format!("{what} {}", names.join(", ")));
        f.write_str(&texts.collect::<Vec<String>>().join("; "))
    }
}

/// The health of a host, as its conditions say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It is watched, and nothing is wrong.
    Healthy {
        /// The event spaces that watch it.
        watched_by: Vec<String>,
    },
    /// At least one condition of WARNING or worse holds.
    Unhealthy {
        /// The worst.
        worst: Box<ConditionState>,
        /// How many hold.
        count: usize,
    },
    /// A condition is unknown.
    Unknown {
        /// One of them.
        condition: Box<ConditionState>,
    },
    /// No publisher watches it.
    NotWatched,
    /// Nothing that the user may read is wrong; conditions that hold or are unknown are hidden.
    Hidden {
        /// How many.
        count: u32,
    },
}

impl Health {
    /// The health of a host with these conditions.
    pub fn of<'a>(states: impl Iterator<Item = &'a ConditionState>) -> Self {
        let states: Vec<&ConditionState> = states.collect();
        let holds = |state: &&&ConditionState| {
            state.truth == Truth::True && !state.is_watch() && state.severity >= Severity::Warning
        };
        let worst = states.iter().filter(holds).max_by_key(|state| state.severity);
        if let Some(worst) = worst {
            let count = states.iter().filter(holds).count();
            return Self::Unhealthy { worst: Box::new((*worst).clone()), count };
        }
        if let Some(unknown) = states.iter().find(|state| state.truth == Truth::Unknown) {
            return Self::Unknown { condition: Box::new((*unknown).clone()) };
        }
        let watches = states.iter().filter(|s| s.is_watch() && s.truth == Truth::True);
        let watched_by: Vec<String> =
            watches.map(|state| state.subject.component().to_owned()).collect();
        match watched_by.is_empty() {
            true => Self::NotWatched,
            false => Self::Healthy { watched_by },
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Healthy { .. } => f.write_str("healthy: nothing is wrong"),
            Self::Unhealthy { worst, count } => {
                write!(f, "unhealthy: {} ({})", worst.subject, worst.severity)?;
                if worst.action != RecommendedAction::None {
                    write!(f, ", recommended: {}", worst.action)?;
                }
                match count {
                    1 => Ok(()),
                    count => write!(f, ", and {} more", count - 1),
                }
            }
            Self::Unknown { condition } => {
                write!(f, "unknown: {} has expired, or ", condition.subject)?;
                f.write_str("its publisher is lost or does not know")
            }
            Self::NotWatched => f.write_str("unknown: no publisher watches it"),
            Self::Hidden { count } => {
                write!(f, "unknown: {count} conditions in event spaces that you may not read")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftb_core::condition::WATCHED;
    use ftb_core::numbers::PublisherSeq;
    use ftb_core::{EventId, PublisherId};

    const SOURCE: EventId =
        EventId { publisher: PublisherId { account: 1, token: 1 }, seq: PublisherSeq::new(1) };

    fn state(component: &str, key: &str, truth: Truth, severity: Severity) -> ConditionState {
        let subject = Subject::new("node01", component, key);
        let stated = ConditionState::new(subject, truth, severity, SOURCE, 1);
        ConditionState { action: RecommendedAction::Migrate, ..stated }
    }

    #[test]
    fn a_host_is_healthy_only_if_it_is_watched() {
        use Severity::{Error, Info, Warning};
        let watch = |truth| state("ftb.ipmi", WATCHED, truth, Info);
        let health = |states: &[ConditionState]| Health::of(states.iter()).to_string();
        assert_eq!(health(&[]), "unknown: no publisher watches it");
        let cleared = state("FAN 1", "FANFAIL", Truth::False, Error);
        assert_eq!(health(std::slice::from_ref(&cleared)), "unknown: no publisher watches it");
        assert_eq!(health(&[watch(Truth::True), cleared]), "healthy: nothing is wrong");
        let lost = "unknown: node01 ftb.ipmi WATCHED has expired, or its publisher is lost or \
                    does not know";
        assert_eq!(health(&[watch(Truth::Unknown)]), lost);
        let bad = [
            watch(Truth::Unknown),
            state("FAN 1", "FANFAIL", Truth::True, Error),
            state("P1", "PORT_DEGRADED", Truth::True, Warning),
        ];
        let line = "unhealthy: node01 FAN 1 FANFAIL (ERROR), recommended: migrate, and 1 more";
        assert_eq!(health(&bad), line);
        let agent = state("ftb.agent", WATCHED, Truth::True, Info);
        let text = Watchers::of([agent, watch(Truth::Unknown)].iter()).to_string();
        assert_eq!(text, "watched by ftb.agent; lost ftb.ipmi; not watched by ftb.ib");
    }
}
