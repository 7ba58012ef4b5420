//! The attachment to the backplane: events in and out. Only events of the job's own user are
//! accepted.

use super::refused::{Reason, Refusals};
use crate::clock::Clock;
use crate::waiting;
use core::fmt::Display;
use core::time::Duration;
use ftb_client::{Client, Delivery, Event, Gap, GapReason, Start, SubscribeError, Subscription};
use ftb_core::Event as CoreEvent;
use std::path::Path;
use tokio::sync::mpsc;

/// How long to wait for an agent at the start.
pub const AGENT_WAIT: Duration = Duration::from_secs(20);
/// How long to wait for confirmations at the end.
pub const CLOSE_WAIT: Duration = Duration::from_secs(3);

/// Time before a subscription that the agent has ended begins again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub enum Received {
    /// An event of the job's own user.
    Event(Box<CoreEvent>),
    Gap,
}

/// Accepts events of the job's own user. Counts the others.
#[derive(Clone, Debug)]
pub struct EventGate {
    pub refusals: Refusals,
    pub clock: Clock,
}

impl EventGate {
    pub fn refuse(&self, reason: Reason, detail: impl Display) {
        if let Some(line) = self.refusals.count(self.clock.now(), reason, detail) {
            tracing::warn!("{line}");
        }
    }

    /// Reports refusals since the last report, if it is time.
    pub fn look(&self) {
        if let Some(line) = self.refusals.due(self.clock.now()) {
            tracing::warn!("{line}");
        }
    }

    /// Reports the remaining refusals at the end.
    pub fn close(&self) {
        if let Some(line) = self.refusals.rest() {
            tracing::warn!("{line}");
        }
    }

    /// The event, if it is accepted.
    fn admit(&self, uid: u32, event: CoreEvent) -> Option<CoreEvent> {
        if uid != nix::unistd::Uid::effective().as_raw() {
            self.refuse(Reason::Foreign, format_args!("{} of uid {uid}", event.name));
            return None;
        }
        Some(event)
    }
}

/// Attaches to an agent.
///
/// # Errors
/// No agent listens on that socket, and what to do.
pub async fn attach(name: &str, socket: &Path, job: &str) -> Result<Client, String> {
    let built = Client::builder(name).agent(socket).job_id(job).build();
    let client = built.map_err(|error| error.to_string())?;
    let what = format!("the agent at {}", socket.display());
    let connected = waiting::on(&what, client.wait_connected(AGENT_WAIT)).await;
    connected.map_err(|error| error.to_string())?;
    Ok(client)
}

/// A warning if the agent of a node belongs to another host: faults carry host names.
pub fn misnamed(node: &str, host: &str) -> Option<String> {
    (!node.eq_ignore_ascii_case(host)).then(|| {
        format!(
            "its agent is that of host {host}: give the node that name, or faults of the host are \
             not known as its own"
        )
    })
}

/// Subscribes.
///
/// # Errors
/// The agent's answer.
pub async fn subscribe(
    client: &Client,
    filter: &str,
    start: Start,
) -> Result<Subscription, String> {
    let subscribed = try_subscribe(client, filter, start).await;
    subscribed.map_err(|error| cannot_subscribe(filter, &error))
}

fn cannot_subscribe(filter: &str, error: &SubscribeError) -> String {
    format!("cannot subscribe to {filter:?}: {error}")
}

async fn try_subscribe(
    client: &Client,
    filter: &str,
    start: Start,
) -> Result<Subscription, SubscribeError> {
    let what = format!("its agent to subscribe to {filter:?}");
    // Each event has a node of its own, also where a storm rule folds many.
    // One for conditions wants the single events in any case.
    let single = match filter.contains("condition=") {
        true => filter.to_owned(),
        false => format!("{filter}, folds=no"),
    };
    waiting::on(&what, client.subscribe(&single, start)).await
}

/// Subscribes to the events of this user only: what other users publish with the id of a job does
/// not reach its programs. An agent of an earlier release knows no users in filters; then
/// [`EventGate`] alone keeps the events of others out.
///
/// # Errors
/// As [`subscribe`].
pub async fn subscribe_own(
    client: &Client,
    filter: &str,
    start: Start,
) -> Result<Subscription, String> {
    let subscribed = try_subscribe_own(client, filter, start).await;
    subscribed.map_err(|error| cannot_subscribe(filter, &error))
}

async fn try_subscribe_own(
    client: &Client,
    filter: &str,
    start: Start,
) -> Result<Subscription, SubscribeError> {
    let uid = nix::unistd::Uid::effective();
    let own = try_subscribe(client, &format!("{filter}, uid={uid}"), start).await;
    match own {
        Err(error) if error.to_string().contains(UNKNOWN_KEY) => {
            try_subscribe(client, filter, start).await
        }
        own => own,
    }
}

/// What an agent says of a key of filters that it does not know.
const UNKNOWN_KEY: &str = "unknown key \"uid\"";

/// A subscription to what happens from now on. It begins again when the agent has ended it, as one
/// may do whose access rules or limits have changed.
#[derive(Debug)]
pub struct StandingSubscription {
    client: Client,
    filter: String,
    /// To the events of this user only.
    is_own: bool,
    gate: EventGate,
    subscription: Subscription,
}

impl StandingSubscription {
    /// As [`subscribe_own`] if `is_own`, else as [`subscribe`].
    ///
    /// # Errors
    /// The agent's answer.
    pub async fn begin(
        client: &Client,
        filter: String,
        is_own: bool,
        gate: &EventGate,
    ) -> Result<Self, String> {
        let subscription = begun(client, &filter, is_own).await;
        let subscription = subscription.map_err(|error| cannot_subscribe(&filter, &error))?;
        Ok(Self { client: client.clone(), filter, is_own, gate: gate.clone(), subscription })
    }

    /// The next event or gap; `None`: this client is closed.
    pub async fn next(&mut self) -> Option<Delivery> {
        if let Some(delivery) = self.subscription.next().await {
            return Some(delivery);
        }
        let why = self.subscription.ended().filter(|why| *why != SubscribeError::Closed)?;
        let words = format!("{}: the agent has ended the subscription: {why}", self.filter);
        self.gate.refuse(Reason::Missed, words);
        let after = self.subscription.position();
        self.subscription = self.again().await?;
        let until = self.subscription.position();
        Some(Delivery::Gap(Gap::unknown((after, until), GapReason::Late)))
    }

    /// `None`: this client is closed.
    async fn again(&self) -> Option<Subscription> {
        loop {
            tokio::time::sleep(AGAIN_AFTER).await;
            match begun(&self.client, &self.filter, self.is_own).await {
                Ok(subscription) => return Some(subscription),
                Err(SubscribeError::Closed) => return None,
                Err(error) => {
                    self.gate.refuse(Reason::Missed, cannot_subscribe(&self.filter, &error));
                }
            }
        }
    }
}

async fn begun(
    client: &Client,
    filter: &str,
    is_own: bool,
) -> Result<Subscription, SubscribeError> {
    match is_own {
        true => try_subscribe_own(client, filter, Start::Now).await,
        false => try_subscribe(client, filter, Start::Now).await,
    }
}

/// Forwards events of this user until the client is closed or the receiver ends.
pub async fn forward(mut from: StandingSubscription, to: mpsc::Sender<Received>) {
    let gate = from.gate.clone();
    loop {
        let next = tokio::select! {
            next = from.next() => next,
            () = to.closed() => return,
        };
        let heard = match next {
            None => return,
            Some(Delivery::Gap(_)) => Received::Gap,
            Some(Delivery::Event(received)) => {
                let Some(event) = gate.admit(received.uid, received.event) else { continue };
                Received::Event(Box::new(event))
            }
        };
        if to.send(heard).await.is_err() {
            return;
        }
    }
}

/// Publishes. A failure is only logged: every message is repeated or asked for.
pub async fn publish(client: &Client, event: Event) {
    let name = event.name.clone();
    let what = format!("its agent to take {name}");
    if let Err(error) = waiting::on(&what, client.publish_wait(event)).await {
        tracing::warn!(%name, %error, "an event cannot be published");
    }
}

/// Ends an attachment after confirmation of everything published.
pub async fn close(client: Client) {
    let _ = waiting::on("events to be confirmed", client.close(CLOSE_WAIT)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_with_another_name_than_its_host_is_reported() {
        assert_eq!(misnamed("node01", "NODE01"), None);
        assert!(
            misnamed("node01.cluster", "node01").is_some_and(|words| words.contains("host node01"))
        );
    }
}
