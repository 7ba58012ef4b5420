//! The rank as a client of its node's agent: requests come from `ftb.jl`, notices go to `ftb.mpi`.
//!
//! Only requests of the user of this process count. Not responsible for their meaning
//! ([`crate::request`]).

use crate::backplane::{Backplane, Connect, Notice, RequestSink};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::request::Request;
use crate::{limits, spawn_helper};
use ftb_client::blocking::{BlockingClient, BlockingSubscription};
use ftb_client::{
    ClientConfig, Delivery, Event, NameError, Received, Severity, Start, SubscribeError, event,
};
use ftb_launcher_core::wire::{SPACE_JL, SPACE_MPI};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a finalized rank waits for its client to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Between two attempts to subscribe that the client library gave up on.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The connection to the launcher over the backplane; `None` without an agent or a job.
pub(crate) fn connect_from(config: &Config) -> Option<Connect> {
    let socket = config.agent_socket.clone()?;
    if config.job_id.is_empty() {
        return None;
    }
    let client = ClientConfig {
        job_id: config.job_id.clone(),
        socket,
        ..ClientConfig::new(format!("rank-{}", config.rank))
    };
    let rank = config.rank;
    Some(Box::new(move |sink| Ok(Box::new(Events::connect(client, rank, sink)?))))
}

/// One rank's client.
struct Events {
    rank: u32,
    client: BlockingClient,
    stopping: Arc<AtomicBool>,
    listener: Option<JoinHandle<()>>,
    unpublished: AtomicU64,
}

impl Events {
    fn connect(config: ClientConfig, rank: u32, sink: RequestSink) -> Result<Self> {
        // A storm rule must not fold decisions.
        let filter = format!("event_space={SPACE_JL}, jobid={}, folds=no", config.job_id);
        let failed = |error: &dyn std::fmt::Display| Error::Backplane(error.to_string());
        let client = BlockingClient::connect(config).map_err(|error| failed(&error))?;
        let stopping = Arc::new(AtomicBool::new(false));
        let (active, activated) = mpsc::channel();
        let listener = Listener {
            rank,
            client: client.clone(),
            filter,
            sink,
            stopping: Arc::clone(&stopping),
        };
        let listen = move || listener.run(&active);
        let events = Self {
            rank,
            client,
            stopping,
            listener: Some(spawn_helper("ftb-events", listen).map_err(Error::Thread)?),
            unpublished: AtomicU64::new(0),
        };
        match activated.recv_timeout(limits::SUBSCRIBE_TIMEOUT) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(failed(&error)),
            // The program can compute without: another subscribed rank is enough.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                tracing::warn!(rank, "no agent yet: this rank does not hear the launcher");
            }
        }
        Ok(events)
    }
}

impl Backplane for Events {
    fn publish(&self, notice: &Notice) {
        let published = match event_of(self.rank, notice) {
            Ok(event) => self.client.publish(event).map(drop).map_err(|e| e.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = published {
            let count = self.unpublished.fetch_add(1, Ordering::Relaxed) + 1;
            tracing::warn!(rank = self.rank, ?notice, error, count, "event not published");
        }
    }

    fn confirm(&self, timeout: Duration) -> bool {
        self.client.flush(timeout).is_ok()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        if let Err(error) = self.client.close(CLOSE_TIMEOUT) {
            tracing::debug!(rank = self.rank, %error, "closed with events under way");
        }
        if let Some(listener) = self.listener.take() {
            // One that panicked has nothing left to release.
            listener.join().ok();
        }
    }
}

struct Listener {
    rank: u32,
    client: BlockingClient,
    filter: String,
    sink: RequestSink,
    stopping: Arc<AtomicBool>,
}

impl Listener {
    /// Subscribes, reports it (or the error), and passes requests on until the client is closed.
    fn run(&self, active: &Sender<Result<(), SubscribeError>>) {
        while !self.stopping.load(Ordering::Acquire) {
            let timeout = limits::SUBSCRIBE_TIMEOUT;
            match self.client.subscribe(&self.filter, Start::Now, timeout) {
                Ok(subscription) => {
                    // Only the first report is waited for.
                    active.send(Ok(())).ok();
                    if !self.listen(subscription) {
                        return;
                    }
                }
                Err(SubscribeError::Timeout) => {}
                Err(error) => {
                    tracing::error!(rank = self.rank, %error, "this rank hears no launcher");
                    active.send(Err(error)).ok();
                    return;
                }
            }
            thread::sleep(RETRY_PAUSE);
        }
    }

    /// Runs until the subscription ends; false when no more requests are wanted.
    fn listen(&self, mut subscription: BlockingSubscription) -> bool {
        while let Ok(Some(delivery)) = subscription.next(Duration::MAX) {
            match delivery {
                Delivery::Event(received) => {
                    if let Some(request) = self.request_in(&received)
                        && !self.sink.send(request)
                    {
                        return false;
                    }
                }
                // The launcher repeats each request until it is answered.
                Delivery::Gap(gap) => {
                    tracing::warn!(rank = self.rank, ?gap, "events of the launcher are missing");
                }
            }
        }
        true
    }

    fn request_in(&self, received: &Received) -> Option<Request> {
        match Request::from_event(&received.event) {
            Ok(Some(request)) if is_own_user(received.uid) => Some(request),
            Ok(Some(request)) => {
                let (uid, host) = (received.uid, &received.host);
                tracing::warn!(rank = self.rank, uid, host, ?request, "request of another user");
                None
            }
            Ok(None) => None,
            Err(error) => {
                tracing::warn!(rank = self.rank, %error, "malformed request");
                None
            }
        }
    }
}

fn is_own_user(uid: u32) -> bool {
    nix::unistd::getuid().as_raw() == uid
}

fn event_of(rank: u32, notice: &Notice) -> Result<Event, NameError> {
    let severity = match notice.is_error() {
        true => Severity::Error,
        false => Severity::Info,
    };
    let mut builder = event(SPACE_MPI, notice.event_name())?
        .severity(severity)
        .tag("rank", rank)
        .payload(notice.payload(rank));
    for (key, value) in notice.tags() {
        builder = builder.tag(key, shortened(value));
    }
    Ok(builder.build())
}

/// A reason may be longer than a tag.
fn shortened(mut value: String) -> String {
    let mut len = value.len().min(ftb_client::limits::TAG_VALUE_BYTES_MAX);
    while !value.is_char_boundary(len) {
        len -= 1;
    }
    value.truncate(len);
    value
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_notice_becomes_an_event_within_all_bounds() {
        let notice =
            Notice::CheckpointFailed { episode: 7, set: "s7".into(), reason: "ü".repeat(5000) };
        let event = event_of(3, &notice).unwrap();
        event.check(1024).unwrap();
        assert_eq!(event.payload, "3");
        assert_eq!(event.severity, Severity::Error);
        assert_eq!(event.tag("episode"), Some("7"));
        assert_eq!(event.tag("rank"), Some("3"));
        assert!(event.tag("reason").unwrap().starts_with("üü"));
    }
}
