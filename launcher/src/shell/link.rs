//! The launcher's attachment to the backplane: events in and out, with the check that they come from the job's own
//! user.

use core::time::Duration;
use ftb_client::{Client, Delivery, Event, Start, Subscription};
use ftb_core::Event as CoreEvent;
use std::path::Path;
use tokio::sync::mpsc;

/// How long to wait for an agent at the start.
pub const AGENT_WAIT: Duration = Duration::from_secs(20);
/// How long to wait until what was said is confirmed at the end.
pub const CLOSE_WAIT: Duration = Duration::from_secs(3);

/// What comes in.
#[derive(Debug)]
pub enum Heard {
    /// An event of the job's own user; with the host that its agent vouches for.
    Event {
        /// The event.
        event: Box<CoreEvent>,
        /// Where it was published.
        host: String,
    },
    /// An event of somebody else.
    Stranger {
        /// Its name.
        name: String,
        /// Who.
        uid: u32,
    },
    /// Something was missed.
    Gap,
}

/// Attaches to an agent and waits until it is there.
///
/// # Errors
/// One line: no agent behind that socket, and what to do.
pub async fn attach(name: &str, socket: &Path, job: &str) -> Result<Client, String> {
    let built = Client::builder(name).agent(socket).job_id(job).build();
    let client = built.map_err(|error| error.to_string())?;
    client.wait_connected(AGENT_WAIT).await.map_err(|error| error.to_string())?;
    Ok(client)
}

/// What is wrong where the agent of a node is that of another host: what happens to hosts is told by their names.
pub fn misnamed(node: &str, host: &str) -> Option<String> {
    (!node.eq_ignore_ascii_case(host)).then(|| {
        format!(
            "its agent is that of host {host}: give the node that name, or faults of the host are \
             not known as its own"
        )
    })
}

/// Subscribes; `any_user` for events that others may publish (faults), else only the own user's count.
///
/// # Errors
/// What the agent says.
pub async fn subscribe(client: &Client, filter: &str) -> Result<Subscription, String> {
    let subscribed = client.subscribe(filter, Start::Now).await;
    subscribed.map_err(|error| format!("cannot subscribe to {filter:?}: {error}"))
}

/// Forwards what a subscription gives until it ends or nobody listens. `own`: only events of this user count.
pub async fn forward(mut from: Subscription, own: bool, to: mpsc::Sender<Heard>) {
    let uid = nix::unistd::Uid::effective().as_raw();
    while let Some(delivery) = from.next().await {
        let heard = match delivery {
            Delivery::Event(received) if own && received.uid != uid => {
                let name = received.event.name.to_string();
                Heard::Stranger { name, uid: received.uid }
            }
            Delivery::Event(received) => {
                Heard::Event { event: Box::new(received.event), host: received.host }
            }
            Delivery::Gap(_) => Heard::Gap,
        };
        if to.send(heard).await.is_err() {
            return;
        }
    }
}

/// Publishes; what cannot be is logged, since every message of the protocol is repeated or asked for.
pub async fn publish(client: &Client, event: Event) {
    let name = event.name.clone();
    if let Err(error) = client.publish_wait(event).await {
        tracing::warn!(%name, %error, "an event cannot be published");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_not_called_as_its_host_is_told_of() {
        assert_eq!(misnamed("node01", "NODE01"), None);
        assert!(
            misnamed("node01.cluster", "node01").is_some_and(|words| words.contains("host node01"))
        );
    }
}
