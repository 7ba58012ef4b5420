//! What agents say of each other: the events of the space `ftb.agent`, kept for a test to ask.

use crate::cluster::{PATIENCE, wait_for};
use anyhow::{Context as _, Result};
use ftb_client::{Client, Delivery, Event, Start, Subscription};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::JoinHandle;

/// An event and the host of the agent that published it.
#[derive(Debug)]
struct Heard {
    host: String,
    event: Event,
}

/// A subscriber to the agents' own events.
#[derive(Debug)]
pub struct Reported {
    _client: Client,
    events: Arc<Mutex<Vec<Heard>>>,
    task: JoinHandle<()>,
}

impl Reported {
    /// Listens at that agent, to all that is said from now on.
    ///
    /// # Errors
    /// The subscription does not become active.
    pub async fn listen(socket: &Path) -> Result<Self> {
        let client = Client::builder("reported").agent(socket).build()?;
        let subscribed = client.subscribe("event_space=ftb.agent", Start::Now);
        let subscribed = tokio::time::timeout(PATIENCE, subscribed).await;
        let subscription = subscribed.context("the subscription does not become active")??;
        let events = Arc::default();
        let task = tokio::spawn(keep(subscription, Arc::clone(&events)));
        Ok(Self { _client: client, events, task })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Heard>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All events so far that have this name and are about this host.
    pub fn about(&self, name: &str, host: &str) -> Vec<Event> {
        let of = |event: &&Event| event.name.as_str() == name && event.tag("host") == Some(host);
        self.lock().iter().map(|heard| &heard.event).filter(of).cloned().collect()
    }

    /// All events so far that have this name and were published by the agent of this host.
    pub fn published_by(&self, name: &str, host: &str) -> Vec<Event> {
        let by = |heard: &&Heard| heard.event.name.as_str() == name && heard.host == host;
        self.lock().iter().filter(by).map(|heard| heard.event.clone()).collect()
    }

    /// All hosts about which an event of this name was reported, sorted, each once.
    pub fn hosts(&self, name: &str) -> Vec<String> {
        let events = self.lock();
        let named = events.iter().map(|heard| &heard.event);
        let named = named.filter(|event| event.name.as_str() == name);
        let mut hosts: Vec<String> =
            named.filter_map(|event| event.tag("host")).map(str::to_owned).collect();
        hosts.sort();
        hosts.dedup();
        hosts
    }

    /// Waits until there is an event of this name about this host, and gives the first.
    ///
    /// # Errors
    /// There is none in time: the error has what was reported instead.
    pub async fn wait(&self, name: &str, host: &str) -> Result<Event> {
        let what = format!("{name} about {host}");
        let found = wait_for(&what, async || Ok(self.about(name, host).into_iter().next()));
        found.await.with_context(|| format!("reported was: {self}"))
    }

    /// What is reported from now on is all there is.
    pub fn forget(&self) {
        self.lock().clear();
    }
}

impl std::fmt::Display for Reported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for Heard { event, .. } in self.lock().iter() {
            let payload = String::from_utf8_lossy(&event.payload);
            write!(f, "{} {}: {payload}; ", event.name, event.tag("host").unwrap_or("-"))?;
        }
        Ok(())
    }
}

impl Drop for Reported {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep(mut subscription: Subscription, events: Arc<Mutex<Vec<Heard>>>) {
    while let Some(delivery) = subscription.next().await {
        if let Delivery::Event(received) = delivery {
            let heard = Heard { host: received.host.to_string(), event: received.event };
            events.lock().unwrap_or_else(PoisonError::into_inner).push(heard);
        }
    }
}
