//! Agents that start and die, and the clients that they get.

use super::{End, Happening, Host, World};
use crate::clients::{Published, Publisher, Subscriber, Violation};
use crate::events::{KEY, SPACE, Said, counted_mark, seal_stated};
use ftb_core::ConfirmLevel;
use ftb_core::condition::{Condition, Provenance, Truth};
use ftb_core::filter::Filter;
use ftb_core::ident::{OriginId, PublisherId};
use ftb_core::latest::Latest;
use ftb_core::node::api::{ClientId, ClientInfo, Input, Start, SubscriptionId};
use ftb_core::node::{Node, NodeConfig};
use ftb_core::position::Epoch;
use ftb_core::run::Run;
use ftb_core::sealed::{Head, Sealed};
use ftb_core::severity::Severity;
use std::collections::{BTreeMap, BTreeSet};

impl World {
    pub(super) fn config(&self, agent: usize, life: u64) -> NodeConfig {
        let origin = OriginId((agent as u64 + 1) << 32 | life);
        let host = format!("node{agent}");
        let mut config = NodeConfig::new("sim", &host, origin, self.members.clone());
        config.address = format!("{host}:1");
        config.fanout = self.setup.fanout;
        config.children_max = 4 * self.setup.fanout as usize;
        config.declare_after_ms = self.setup.conditions.then_some(1_000);
        config.counted_mark = Some(counted_mark());
        if let Some(rows) = self.setup.condition_rows {
            config.conditions.rows = rows;
            config.unbounded_uids.push(info(PublisherId { account: 0, token: 0 }).uid);
        }
        (self.setup.tune)(&mut config);
        config
    }

    pub fn start(&mut self, agent: usize) -> Result<(), Violation> {
        if self.agents[agent].node.is_some() {
            return Ok(());
        }
        self.agents[agent].life += 1;
        let life = self.agents[agent].life;
        let config = self.config(agent, life);
        let seed = self.seed ^ (agent as u64) << 20 ^ life;
        let origin = config.origin;
        let log_bytes = config.log_bytes;
        let disk = &mut self.agents[agent].disk;
        let restored = (self.setup.disks && !disk.full).then(|| disk.read(log_bytes));
        disk.unread = self.setup.disks && disk.full;
        disk.sync_due = false;
        let node = Node::with_journal(self.now(agent), config, seed, restored);
        let state = &mut self.agents[agent];
        state.node = Some(node);
        state.host = Host::Up;
        state.paused = false;
        state.waiting.clear();
        state.tick_ns = u64::MAX;
        state.epoch = Epoch::ZERO;
        state.heard.clear();
        state.origin = origin;
        state.announced = 0;
        self.feed(agent, Input::Tick)?;
        self.attach_clients(agent)
    }

    /// Adds the counters of all agents that are up.
    pub(super) fn count_all(&mut self) {
        for at in 0..self.agents.len() {
            let counters = self.agents[at].node.as_ref().map(|node| node.status().counters);
            for (name, count) in counters.into_iter().flatten() {
                *self.counted.entry(name).or_default() += count;
            }
        }
    }

    /// Adds what an agent counted in its life.
    pub(super) fn add_counters(&mut self, node: &Node) {
        for (name, count) in node.status().counters {
            *self.counted.entry(name).or_default() += count;
        }
    }

    pub(super) fn kill(&mut self, agent: usize, host: Host) {
        let Some(dead) = self.agents[agent].node.take() else {
            if host == Host::Down {
                self.agents[agent].host = host;
            }
            return;
        };
        self.agents[agent].host = host;
        self.note_places(&dead);
        self.add_counters(&dead);
        self.disown();
        let ends: Vec<(End, End)> = self
            .peers
            .iter()
            .filter(|(end, _)| end.agent == agent)
            .map(|(end, peer)| (*end, *peer))
            .collect();
        for (end, peer) in ends {
            if host == Host::Refuses {
                self.send(agent, peer, Happening::Close { end: peer, from: agent });
            }
            self.peers.remove(&end);
        }
    }

    fn attach_clients(&mut self, agent: usize) -> Result<(), Violation> {
        for at in 0..self.publishers.len() {
            if self.publishers[at].agent != agent {
                continue;
            }
            let client = self.new_client();
            self.publishers[at].client = client;
            self.publishers[at].paused = false;
            let publisher = self.publishers[at].id;
            self.attach_publisher(agent, client, publisher)?;
            if self.setup.losses_allowed {
                self.books.restarted.insert(publisher);
            }
            // As the shell stamps what an agent may have had already.
            let again: Vec<Sealed> =
                self.publishers[at].unconfirmed.values().map(republished).collect();
            if let Some(events) = Run::collect(again.iter().map(Sealed::as_ref)) {
                let confirm = self.confirm_at(agent);
                self.feed(agent, Input::Publish { client, events, confirm })?;
            }
            if let Some((stated, _)) = self.publishers[at].stated.clone() {
                // As the shell seals it: the new agent owns it.
                let events = Run::from(self.owned_by(agent, &stated));
                self.feed(agent, Input::Restate { client, events })?;
            }
        }
        self.attach_stater(agent)?;
        for at in 0..self.subscribers.len() {
            if self.subscribers[at].agent == agent {
                self.attach_subscriber(at)?;
            }
        }
        self.attach_readers(agent)
    }

    /// Where agents have journals, a third of the publishers want their events on disk.
    pub(super) fn confirm_at(&self, agent: usize) -> ConfirmLevel {
        match self.setup.disks && agent.is_multiple_of(3) {
            true => ConfirmLevel::Disk,
            false => ConfirmLevel::Memory,
        }
    }

    pub(super) fn new_client(&mut self) -> ClientId {
        self.next_client += 1;
        ClientId(self.next_client)
    }

    /// Half of the publishers do not wait to hear that their events are held.
    fn attach_publisher(
        &mut self,
        agent: usize,
        client: ClientId,
        id: PublisherId,
    ) -> Result<(), Violation> {
        self.feed(agent, Input::ClientAttached { client, info: info(id) })?;
        if agent % 2 == 1 {
            self.feed(agent, Input::DelayAcks { client, delayed: true })?;
        }
        Ok(())
    }

    fn attach_subscriber(&mut self, at: usize) -> Result<(), Violation> {
        let client = self.new_client();
        let subscriber = &mut self.subscribers[at];
        subscriber.resumed |= subscriber.active_at.is_some();
        subscriber.client = client;
        let agent = subscriber.agent;
        let publisher = PublisherId { account: 7_000, token: client.0 };
        let (filter, start) = (subscriber.filter.clone(), subscriber.start());
        let subscription = subscriber.subscription;
        subscriber.in_past = start != Start::Now;
        self.feed(agent, Input::ClientAttached { client, info: info(publisher) })?;
        self.feed(agent, Input::Subscribe { client, subscription, filter: filter.into(), start })
    }

    /// The subscriptions at an agent go on by position, under other numbers.
    pub(super) fn subscribe_again(&mut self, agent: usize) -> Result<(), Violation> {
        if self.agents[agent].node.is_none() {
            return Ok(());
        }
        for at in 0..self.subscribers.len() {
            let subscriber = &mut self.subscribers[at];
            let start = subscriber.start();
            if subscriber.agent != agent || start == Start::Now {
                continue;
            }
            let (client, filter) = (subscriber.client, subscriber.filter.clone());
            let old = subscriber.subscription;
            let subscription = SubscriptionId(old.0 + 1);
            subscriber.subscription = subscription;
            subscriber.resumed = true;
            subscriber.in_past = true;
            self.feed(agent, Input::Unsubscribe { client, subscription: old })?;
            self.feed(
                agent,
                Input::Subscribe { client, subscription, filter: filter.into(), start },
            )?;
        }
        Ok(())
    }

    pub fn add_publisher(&mut self, agent: usize) -> Result<(), Violation> {
        let client = self.new_client();
        let id = PublisherId { account: 1_000 + agent as u64, token: client.0 };
        self.publishers.push(Publisher {
            agent,
            client,
            id,
            unconfirmed: BTreeMap::new(),
            published: 0,
            refused: 0,
            paused: false,
            stated: None,
            below: None,
        });
        if self.agents[agent].node.is_some() {
            self.attach_publisher(agent, client, id)?;
        }
        Ok(())
    }

    pub fn add_subscriber(&mut self, agent: usize, filter: &str) -> Result<(), Violation> {
        self.add_reader(agent, filter, None)
    }

    /// A subscriber that reads the past first, if `since_ns` is given.
    pub fn add_reader(
        &mut self,
        agent: usize,
        filter: &str,
        since_ns: Option<u64>,
    ) -> Result<(), Violation> {
        self.subscribers.push(Subscriber {
            agent,
            client: ClientId(0),
            subscription: SubscriptionId(1),
            filter: Filter::parse(filter).unwrap(),
            since_ns,
            active_at: None,
            trail: None,
            by_epoch: BTreeMap::new(),
            got: BTreeSet::new(),
            latest: Latest::default(),
            late: BTreeSet::new(),
            gaps: Vec::new(),
            hole_reported_ns: 0,
            gap_reported_ns: 0,
            folded: 0,
            group_folds: 0,
            resumed: false,
            in_past: false,
        });
        if self.agents[agent].node.is_some() {
            self.attach_subscriber(self.subscribers.len() - 1)?;
        }
        Ok(())
    }

    pub fn publish(&mut self, at: usize, count: u32, severity: Severity) -> Result<(), Violation> {
        let mut events = Vec::new();
        for _ in 0..count {
            let publisher = &mut self.publishers[at];
            publisher.published += 1;
            let seq = publisher.published;
            let host = format!("node{}", publisher.agent);
            let name = if seq.is_multiple_of(2) { "EVEN" } else { "ODD" };
            let payload = self.setup.payload;
            let said = Said { severity, space: SPACE, name, host: &host, payload };
            let owner = self.agents[publisher.agent].origin;
            let stated = (self.setup.conditions && seq.is_multiple_of(5))
                .then(|| (statement(seq), Provenance::direct(owner)));
            let states = stated.is_some();
            let sealed = seal_stated(publisher.id, seq, &said, stated);
            if states {
                publisher.stated = Some((sealed.clone(), self.now_ns));
            }
            publisher.unconfirmed.insert(seq, sealed.clone());
            let published = Published::new(self.now_ns, sealed.clone());
            self.books.published.insert(sealed.id(), published);
            events.push(sealed);
        }
        let (agent, client) = (self.publishers[at].agent, self.publishers[at].client);
        if self.agents[agent].node.is_some()
            && let Some(events) = Run::collect(events.iter().map(Sealed::as_ref))
        {
            let confirm = self.confirm_at(agent);
            self.feed(agent, Input::Publish { client, events, confirm })?;
        }
        Ok(())
    }
}

/// What the event of that number states: now that its condition holds, now that it does not.
fn statement(seq: u64) -> Condition {
    let truth = if seq.is_multiple_of(10) { Truth::False } else { Truth::True };
    Condition::new(KEY, truth)
}

fn republished(sealed: &Sealed) -> Sealed {
    let head = Head { republished: true, ..*sealed.head() };
    Sealed::new(head, sealed.bytes().clone()).unwrap()
}

pub(super) fn reader_info(client: ClientId) -> ClientInfo {
    info(PublisherId { account: 8_000, token: client.0 })
}

pub(super) fn info(publisher: PublisherId) -> ClientInfo {
    ClientInfo {
        uid: 1000,
        gid: 1000,
        pid: 1,
        name: "sim".to_owned(),
        job_id: String::new(),
        publisher,
    }
}
