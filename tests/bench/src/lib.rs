//! What the micro-benches and the instruction counts work on: events as the wire carries them, and
//! one agent's state machine with clients, driven without a socket or a clock.

mod counting;
pub use counting::Counting;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use ftb_core::filter::Filter;
use ftb_core::node::api::{ClientId, ClientInfo, Input, Start, SubscriptionId, ToClient};
use ftb_core::node::{Member, Node, NodeConfig};
use ftb_core::time::Now;
use ftb_core::{ConfirmLevel, Event, EventId, EventName, EventSpace, OriginId, PublisherId, Run};
use ftb_proto::event::{Rights, SealRules, Stamps, encode_event, seal_batch};

/// What the publisher of the fixture is known by.
pub const PUBLISHER: PublisherId = PublisherId { account: 7, token: 9 };
/// The client that publishes.
const SOURCE: ClientId = ClientId(1);
/// The client that subscribes to what is published.
const READER: ClientId = ClientId(2);
/// The client that subscribes to other things.
const BYSTANDER: ClientId = ClientId(3);
/// Bytes that one poll may take, as the shell does it.
const POLL_BYTES: usize = 64 * 1024;
/// Largest payload, as an agent is configured by default.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024;

/// An event as a publisher encodes it, about 200 bytes with this payload.
///
/// # Errors
/// Never, as the names are good.
pub fn event(payload_bytes: usize) -> Result<Event> {
    let mut event = Event::new(EventSpace::new("ftb.bench.load")?, EventName::new("FTB_LOAD")?);
    event.client_name = "bench".to_owned();
    event.time_ns = 1_700_000_000_000_000_000;
    event.payload = Bytes::from(vec![0x2e; payload_bytes]);
    Ok(event)
}

/// `count` sealed events of the fixture's publisher, numbered from `first_seq` on.
///
/// # Errors
/// An event is not as it should be.
pub fn sealed(first_seq: u64, count: usize) -> Result<Run> {
    let encoded = encode_event(&event(150)?);
    let id = EventId { publisher: PUBLISHER, seq: first_seq.into() };
    let stamps = Stamps { id, host: "node001", uid: 1000, pid: 4242, republished: false };
    let events = vec![&encoded[..]; count];
    let batch =
        seal_batch(&stamps, events, &SealRules::plain(PAYLOAD_BYTES_MAX), |_| Rights::Publish)?;
    ensure!(batch.refused.is_empty(), "the fixture's event was refused");
    batch.run.context("no events")
}

/// One agent that is acting root, with a publisher and a subscriber.
pub struct OneAgent {
    node: Node,
    now: Now,
    next_seq: u64,
    outputs: Vec<ftb_core::node::api::Output>,
}

impl OneAgent {
    /// Starts it, with this number of subscriptions of a third client that match nothing.
    ///
    /// # Errors
    /// The subscriber's subscription does not become active.
    pub fn start(others: usize) -> Result<Self> {
        let member = Member { host: "node001".to_owned(), address: "127.0.0.1:1".to_owned() };
        let mut config = NodeConfig::new("bench", "node001", OriginId(1), vec![member]);
        config.subscriptions_max = config.subscriptions_max.max(others);
        // The user stays below its rate, as honest ones do: no time passes here.
        config.user_events_per_s = u32::MAX;
        let now = Now { mono_ns: 1, wall_ns: 1_700_000_000_000_000_000 };
        let node = Node::new(now, config, 1);
        let mut agent = Self { node, now, next_seq: 1, outputs: Vec::new() };
        for (client, token) in [(SOURCE, PUBLISHER.token), (READER, 10), (BYSTANDER, 11)] {
            let publisher = PublisherId { account: PUBLISHER.account, token };
            let (name, job_id) = ("bench".to_owned(), String::new());
            let info = ClientInfo { uid: 1000, gid: 1000, pid: 4242, name, job_id, publisher };
            agent.handle(Input::ClientAttached { client, info });
        }
        for number in 0..others {
            let filter = format!("event_space=other.s{number}, severity>=warning");
            agent.subscribe(BYSTANDER, u32::try_from(number)?, &filter)?;
        }
        agent.subscribe(READER, 0, "event_space=ftb.bench.*")?;
        for _ in 0..100 {
            agent.pass_time();
            while let Some(message) =
                agent.node.poll_client(agent.now, READER, POLL_BYTES, &mut agent.outputs)
            {
                if matches!(message, ToClient::Subscribed { .. }) {
                    return Ok(agent);
                }
            }
        }
        bail!("the subscription of the fixture does not become active")
    }

    /// Takes a batch from the publisher and hands it to the subscriber and its confirmation to the
    /// publisher, as the shell does; how many events were delivered.
    ///
    /// # Errors
    /// The subscriber was reported of a gap.
    // Never inline: callgrind counts what happens below this name.
    #[inline(never)]
    pub fn route(&mut self, events: Run) -> Result<usize> {
        self.handle(Input::Publish { client: SOURCE, events, confirm: ConfirmLevel::Memory });
        let mut delivered = 0;
        while let Some(message) =
            self.node.poll_client(self.now, READER, POLL_BYTES, &mut self.outputs)
        {
            match message {
                ToClient::Deliver { items, .. } => {
                    delivered += items.iter().map(|(_, run)| run.count()).sum::<usize>();
                }
                ToClient::Gap { gap, .. } => bail!("a gap: {gap:?}"),
                _ => {}
            }
        }
        while self.node.poll_client(self.now, SOURCE, POLL_BYTES, &mut self.outputs).is_some() {}
        Ok(delivered)
    }

    /// Reads everything that the log holds as a subscriber that begins in the past does; how many
    /// events it was given.
    ///
    /// # Errors
    /// The past does not end.
    pub fn replay(&mut self) -> Result<usize> {
        let (client, subscription) = (BYSTANDER, SubscriptionId(u32::MAX));
        let filter = Filter::parse("event_space=ftb.bench.*")?;
        let start = Start::SinceNs(1);
        self.handle(Input::Subscribe { client, subscription, filter: filter.into(), start });
        let mut replayed = 0;
        while let Some(message) =
            self.node.poll_client(self.now, client, POLL_BYTES, &mut self.outputs)
        {
            match message {
                ToClient::Deliver { items, .. } => {
                    replayed += items.iter().map(|(_, run)| run.count()).sum::<usize>();
                }
                ToClient::Covered { history_ended: true, .. } => {
                    self.handle(Input::Unsubscribe { client, subscription });
                    return Ok(replayed);
                }
                _ => {}
            }
        }
        bail!("the past of the fixture does not end")
    }

    /// The next events that the publisher has not published yet.
    ///
    /// # Errors
    /// See [`sealed`].
    pub fn next(&mut self, count: usize) -> Result<Run> {
        let first = self.next_seq;
        self.next_seq += count as u64;
        sealed(first, count)
    }

    fn subscribe(&mut self, client: ClientId, number: u32, filter: &str) -> Result<()> {
        let filter = Filter::parse(filter)?;
        let subscription = SubscriptionId(number);
        self.handle(Input::Subscribe {
            client,
            subscription,
            filter: filter.into(),
            start: Start::Now,
        });
        Ok(())
    }

    fn handle(&mut self, input: Input) {
        self.now.mono_ns += 1_000;
        self.node.handle(self.now, input, &mut self.outputs);
        self.outputs.clear();
    }

    /// To the next deadline, or a second on.
    fn pass_time(&mut self) {
        let deadline = self.node.next_deadline_ns();
        self.now.mono_ns =
            deadline.unwrap_or(self.now.mono_ns + 1_000_000_000).max(self.now.mono_ns);
        self.handle(Input::Tick);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn everything_that_goes_in_comes_out() {
        let mut agent = OneAgent::start(100).unwrap();
        for _ in 0..50 {
            let events = agent.next(300).unwrap();
            assert_eq!(agent.route(events).unwrap(), 300);
        }
    }
}
