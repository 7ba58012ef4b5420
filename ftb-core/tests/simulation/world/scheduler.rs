//! Time: what happens next, what an agent is fed with it, and what it then wants done.

use super::{End, Happening, Host, MS, POLL_BYTES, SYNC_PAUSE_NS, World};
use crate::clients::{Published, Violation, broken};
use crate::events::{AGENT_SPACE, Said, seal_stated};
use ftb_core::ConfirmLevel;
use ftb_core::frame::{Frame, UpBatch, UpItem};
use ftb_core::ident::{PublisherId, Rank};
use ftb_core::node::Node;
use ftb_core::node::api::{
    ClientId, Input, JournalWrite, LinkId, MemberState, Output, QueryId, RefusedWhat,
    SubscriptionId, ToClient,
};
use ftb_core::numbers::PublisherSeq;
use ftb_core::run::Run;
use ftb_core::sealed::SealedRef;

/// An agent with more to do at one time would never sleep.
const TICKS_MAX: u32 = 10_000;

impl World {
    /// Runs everything that happens until then.
    pub fn run_until(&mut self, until_ns: u64) -> Result<(), Violation> {
        while self.queue.peek().is_some_and(|next| next.at_ns <= until_ns) {
            let Some(next) = self.queue.pop() else { break };
            self.now_ns = self.now_ns.max(next.at_ns);
            self.happenings += 1;
            self.happen(next.what)?;
        }
        self.now_ns = until_ns;
        Ok(())
    }

    pub fn run_ms(&mut self, ms: u64) -> Result<(), Violation> {
        self.run_until(self.now_ns + ms * MS)
    }

    fn happen(&mut self, what: Happening) -> Result<(), Violation> {
        match what {
            Happening::Tick { agent, life } => {
                let state = &mut self.agents[agent];
                if state.life != life || state.node.is_none() || state.tick_ns > self.now_ns {
                    return Ok(());
                }
                state.tick_ns = u64::MAX;
                if state.paused {
                    return Ok(());
                }
                let due_ns = state.node.as_ref().and_then(Node::next_deadline_ns);
                self.woken[agent] += u64::from(due_ns.is_some_and(|due| due <= self.now_ns));
                self.feed(agent, Input::Tick)
            }
            Happening::Connect { from, life, dial, to, deadline_ns } => {
                self.connect(from, life, dial, to, deadline_ns)
            }
            Happening::DialFailed { agent, life, dial, answer } => {
                if self.agents[agent].life == life && self.agents[agent].node.is_some() {
                    let error = "no answer".to_owned();
                    self.feed(agent, Input::DialFailed { dial, error, answer })?;
                }
                Ok(())
            }
            Happening::Arrive { end, from, frame } => {
                if !self.alive(end) {
                    // A host that is up answers a dead link with a reset.
                    if self.agents[end.agent].host != Host::Down {
                        self.reset(end, from);
                    }
                    return Ok(());
                }
                self.woken[end.agent] += 1;
                self.feed(end.agent, Input::Frame { link: end.link, frame: *frame })
            }
            Happening::Close { end, .. } => {
                if !self.alive(end) {
                    return Ok(());
                }
                self.peers.remove(&end);
                self.arrivals.remove(&end);
                let error = "closed".to_owned();
                self.feed(end.agent, Input::LinkClosed { link: end.link, error })
            }
            Happening::Read { agent, life, read, page } => {
                if self.agents[agent].life == life && self.agents[agent].node.is_some() {
                    self.feed(agent, Input::JournalRead { read, page: *page })?;
                }
                Ok(())
            }
            Happening::Written { agent, life, write } => self.written(agent, life, *write),
            Happening::Sync { agent, life } => self.sync(agent, life),
            Happening::ReadAgain { client } => self.read_again(client),
            Happening::Op(op) => self.operate(op),
        }
    }

    fn alive(&self, end: End) -> bool {
        let agent = &self.agents[end.agent];
        agent.node.is_some() && agent.life == end.life && self.peers.contains_key(&end)
    }

    /// The peer of an end that is gone learns so.
    fn reset(&mut self, gone: End, peer_agent: usize) {
        let peer = self.peers.iter().find(|(_, other)| **other == gone).map(|(end, _)| *end);
        if let Some(peer) = peer
            && peer.agent == peer_agent
        {
            self.send(gone.agent, peer, Happening::Close { end: peer, from: gone.agent });
        }
    }

    pub(super) fn feed(&mut self, agent: usize, input: Input) -> Result<(), Violation> {
        if self.agents[agent].paused {
            self.agents[agent].waiting.push(input);
            return Ok(());
        }
        let now = self.now(agent);
        let mut out = Vec::new();
        let Some(node) = self.agents[agent].node.as_mut() else { return Ok(()) };
        node.handle(now, input, &mut out);
        self.carry_out(agent, out)?;
        for ticks in 0.. {
            let Some(node) = self.agents[agent].node.as_mut() else { return Ok(()) };
            let due = node.next_deadline_ns().unwrap_or(u64::MAX);
            if due > self.now_ns {
                break;
            }
            if ticks == TICKS_MAX {
                return broken("Sleeps", format!("a timer of agent {agent} never stops"));
            }
            let mut out = Vec::new();
            node.handle(now, Input::Tick, &mut out);
            self.carry_out(agent, out)?;
        }
        self.check_step(agent)?;
        let state = &self.agents[agent];
        let due = state.node.as_ref().and_then(Node::next_deadline_ns).unwrap_or(u64::MAX);
        if due < state.tick_ns {
            let life = state.life;
            self.agents[agent].tick_ns = due;
            self.schedule(due, Happening::Tick { agent, life });
        }
        Ok(())
    }

    fn carry_out(&mut self, agent: usize, out: Vec<Output>) -> Result<(), Violation> {
        let life = self.agents[agent].life;
        for output in out {
            match output {
                Output::Dial { dial, host, deadline_ns, .. } => {
                    let to = host.trim_start_matches("node").parse().unwrap();
                    let at = self.now_ns + 50_000;
                    let from = agent;
                    self.schedule(at, Happening::Connect { from, life, dial, to, deadline_ns });
                }
                Output::LinkReady(link) => self.pump_link(agent, link)?,
                Output::CloseLink { link, .. } => {
                    self.pump_link(agent, link)?;
                    let end = End { agent, life, link };
                    if let Some(peer) = self.peers.remove(&end) {
                        self.send(agent, peer, Happening::Close { end: peer, from: agent });
                    }
                }
                Output::JournalReady => self.pump_journal(agent)?,
                Output::ReadJournal(read) => {
                    let at_ns = self.now_ns + 100_000 + self.random_below(1_500_000);
                    let page = self.agents[agent].disk.page(&read);
                    let (read, page) = (read.read, Box::new(page));
                    self.schedule(at_ns, Happening::Read { agent, life, read, page });
                }
                Output::ClientReady(client) => self.pump_client(agent, client)?,
                Output::PauseClient(client) => self.set_paused(client, true),
                Output::ResumeClient(client) => self.set_paused(client, false),
                Output::Trace { .. } => {}
                Output::Tree { nodes, .. } => drop(self.trees.insert(agent, nodes)),
                Output::Transition(transition) => {
                    if transition.machine == "role" {
                        let change = (transition.from, transition.to);
                        *self.role_changes.entry(change).or_default() += 1;
                        let (from, cause, to) = (change.0, &transition.subject, change.1);
                        self.role_rows.insert(format!("| {from} | {cause} | {to} |"));
                    }
                    if self.trace {
                        println!("{:>9.4} {agent:>4} {transition:?}", self.seconds());
                    }
                }
                Output::Announce(announcement) => {
                    let host = announcement.tags.iter().find(|(key, _)| *key == "host");
                    let host = host.map(|(_, host)| host.clone()).unwrap_or_default();
                    self.announced.push((announcement.name, host));
                    if !self.setup.announcements {
                        continue;
                    }
                    let state = &mut self.agents[agent];
                    state.announced += 1;
                    let publisher = PublisherId { account: agent as u64, token: state.origin.0 };
                    let host = format!("node{agent}");
                    let (name, severity) = (announcement.name, announcement.severity);
                    let seq = state.announced;
                    let said =
                        Said { severity, space: AGENT_SPACE, name, host: &host, payload: 50 };
                    let condition = self.stated_by(agent, &announcement);
                    let own = seal_stated(publisher, seq, &said, condition);
                    // Not owed to a subscriber, but delivered in order like all others.
                    let published = Published::new(self.now_ns, own.clone());
                    self.books.published.insert(own.id(), published);
                    let (events, confirm) = (Run::from(own), ConfirmLevel::Memory);
                    self.feed(agent, Input::Publish { client: ClientId::AGENT, events, confirm })?;
                }
                Output::Stopped => {}
            }
        }
        Ok(())
    }

    /// What an acting root knows of all agents.
    pub fn states_at(&mut self, agent: usize) -> Vec<(Rank, MemberState)> {
        let deadline_ns = self.now_ns + 1_000 * MS;
        self.feed(agent, Input::QueryTree { query: QueryId(1), deadline_ns }).unwrap();
        self.trees[&agent].iter().map(|node| (node.rank, node.state)).collect()
    }

    pub(super) fn seconds(&self) -> f64 {
        self.now_ns as f64 / 1e9
    }

    fn set_paused(&mut self, client: ClientId, paused: bool) {
        if let Some(publisher) = self.publishers.iter_mut().find(|p| p.client == client) {
            publisher.paused = paused;
        }
    }

    fn pump_link(&mut self, agent: usize, link: LinkId) -> Result<(), Violation> {
        let mut out = Vec::new();
        let now = self.now(agent);
        let life = self.agents[agent].life;
        let peer = self.peers.get(&End { agent, life, link }).copied();
        while let Some(frame) = self.agents[agent]
            .node
            .as_mut()
            .and_then(|n| n.poll_link(now, link, POLL_BYTES, &mut out))
        {
            self.note_re_proposed(agent, &frame);
            let Some(peer) = peer.filter(|_| !(self.loses)(&frame)) else { continue };
            if self.trace && !matches!(frame, Frame::Heartbeat(_)) {
                let text = format!("{frame:?}");
                let text: String = text.chars().take(160).collect();
                let text = text + &events_in(&frame);
                println!("{:>9.4} {agent:>4} -> {} {text}", self.seconds(), peer.agent);
            }
            let frame = Box::new(frame);
            self.frames += u64::from(!matches!(*frame, Frame::Heartbeat(_)));
            self.send(agent, peer, Happening::Arrive { end: peer, from: agent, frame });
        }
        self.carry_out(agent, out)
    }

    /// Notes the events of other hosts that an agent sends up as its own items.
    fn note_re_proposed(&mut self, agent: usize, frame: &Frame) {
        let Frame::Up(batch) = frame else { return };
        if batch.origin != self.agents[agent].origin {
            return;
        }
        let host = format!("node{agent}");
        let others = runs_in(batch).flat_map(Run::iter).filter(|event| event.host() != host);
        self.books.re_proposed.extend(others.map(SealedRef::id));
    }

    /// Takes what is to be written; it is on disk a little later, or never.
    pub(super) fn pump_journal(&mut self, agent: usize) -> Result<(), Violation> {
        if self.agents[agent].disk.stalled {
            return Ok(());
        }
        let now = self.now(agent);
        let life = self.agents[agent].life;
        let mut out = Vec::new();
        while let Some(write) =
            self.agents[agent].node.as_mut().and_then(|n| n.poll_journal(now, POLL_BYTES, &mut out))
        {
            let latency = 100_000 + self.random_below(1_500_000);
            let state = &mut self.agents[agent];
            state.written_ns = (self.now_ns + latency).max(state.written_ns + 1);
            let at_ns = state.written_ns;
            let write = Box::new(write);
            self.schedule(at_ns, Happening::Written { agent, life, write });
        }
        self.carry_out(agent, out)
    }

    fn written(&mut self, agent: usize, life: u64, write: JournalWrite) -> Result<(), Violation> {
        let state = &mut self.agents[agent];
        if state.life != life || state.node.is_none() {
            return Ok(());
        }
        if state.disk.full {
            let error = "no space is left".to_owned();
            return self.feed(agent, Input::JournalFailed { error });
        }
        let (generation, until) = (write.generation, write.until);
        let retired = state.disk.write(write);
        // Half of the disks sync each write, the others sync later.
        if agent.is_multiple_of(2) {
            state.disk.sync();
        } else if !std::mem::replace(&mut state.disk.sync_due, true) {
            let at_ns = self.now_ns + SYNC_PAUSE_NS;
            self.schedule(at_ns, Happening::Sync { agent, life });
        }
        let state = &mut self.agents[agent];
        state.disk.reported = (generation, until);
        let synced = state.disk.synced;
        self.note_lost_on_disk(&retired);
        self.feed(agent, Input::Journaled { generation, until, synced })
    }

    /// What was written is safe from a power failure from now on.
    fn sync(&mut self, agent: usize, life: u64) -> Result<(), Violation> {
        let state = &mut self.agents[agent];
        if state.life != life || state.node.is_none() || state.disk.full {
            return Ok(());
        }
        state.disk.sync();
        let ((generation, until), synced) = (state.disk.reported, state.disk.synced);
        self.feed(agent, Input::Journaled { generation, until, synced })
    }

    pub(super) fn pump_client(&mut self, agent: usize, client: ClientId) -> Result<(), Violation> {
        if self.agents[agent].deaf {
            self.agents[agent].deaf_ready.insert(client);
            return Ok(());
        }
        let now = self.now(agent);
        let mut out = Vec::new();
        while let Some(message) = self.agents[agent]
            .node
            .as_mut()
            .and_then(|n| n.poll_client(now, client, POLL_BYTES, &mut out))
        {
            self.tell(client, message)?;
        }
        self.carry_out(agent, out)
    }

    fn tell(&mut self, client: ClientId, message: ToClient) -> Result<(), Violation> {
        let Some(message) = self.tell_reader(client, message) else { return Ok(()) };
        if let ToClient::Refused { what: RefusedWhat::Events { first, last }, .. } = message {
            let publisher = self.publishers.iter_mut().find(|p| p.client == client);
            let Some(publisher) = publisher else { return Ok(()) };
            publisher.unconfirmed.retain(|seq, _| !(first.get()..=last.get()).contains(seq));
            publisher.refused += last - first + 1;
            return Ok(());
        }
        if let ToClient::Confirmed { seq, level } = message {
            return self.confirmed(client, seq, level);
        }
        let subscriber = self.subscribers.iter_mut().find(|s| s.client == client);
        // What comes for one that was taken back is dropped.
        let wanted = subscriber.filter(|s| subscription_of(&message) == Some(s.subscription));
        let Some(subscriber) = wanted else { return Ok(()) };
        match message {
            ToClient::Subscribed { active_after, .. } => {
                if subscriber.active_at.is_none() {
                    subscriber.active_at = Some(self.now_ns);
                    subscriber.stand(active_after);
                }
            }
            ToClient::Deliver { epoch, items, .. } => {
                let events = items.iter().flat_map(|(first, run)| {
                    run.iter().enumerate().map(|(at, sealed)| (*first + at as u64, sealed))
                });
                for (index, sealed) in events {
                    let position = ftb_core::position::Position { epoch, index };
                    subscriber.deliver(&mut self.books, position, sealed)?;
                }
            }
            ToClient::Gap { gap, .. } => {
                if self.trace {
                    println!(
                        "{:>9.4} gap at {} {gap:?}",
                        self.now_ns as f64 / 1e9,
                        subscriber.agent
                    );
                }
                if !self.setup.gaps_allowed {
                    let what =
                        format!("agent {} got {gap:?}, nothing may be lost", subscriber.agent);
                    return broken("GaplessOrTold", what);
                }
                subscriber.miss(gap, self.now_ns);
            }
            ToClient::Covered { position, history_ended, .. } => {
                subscriber.cover(position, history_ended)?;
            }
            ToClient::Refused { message, .. } => return broken("Active", message),
            ToClient::Confirmed { .. } => {}
        }
        Ok(())
    }

    fn confirmed(
        &mut self,
        client: ClientId,
        seq: PublisherSeq,
        level: Option<ConfirmLevel>,
    ) -> Result<(), Violation> {
        let publisher = self.publishers.iter_mut().find(|p| p.client == client);
        let Some(publisher) = publisher else { return Ok(()) };
        let unconfirmed = publisher.unconfirmed.split_off(&seq.next().get());
        let confirmed = std::mem::replace(&mut publisher.unconfirmed, unconfirmed);
        let agent = publisher.agent;
        for sealed in confirmed.values() {
            if let Some(published) = self.books.published.get_mut(&sealed.id()) {
                published.confirmed = true;
                published.level = published.level.max(level);
            }
        }
        let wants_disk = self.confirm_at(agent) > ConfirmLevel::Memory;
        if wants_disk && level.is_none() && !confirmed.is_empty() {
            return broken("LevelNamed", format!("agent {agent} names no level"));
        }
        if let Some(level) = level {
            *self.levels.entry(level).or_default() += confirmed.len() as u64;
        }
        Ok(())
    }
}

/// For which subscription a message is.
fn subscription_of(message: &ToClient) -> Option<SubscriptionId> {
    match message {
        ToClient::Subscribed { subscription, .. }
        | ToClient::Deliver { subscription, .. }
        | ToClient::Gap { subscription, .. }
        | ToClient::Covered { subscription, .. }
        | ToClient::Refused { what: RefusedWhat::Subscription(subscription), .. } => {
            Some(*subscription)
        }
        ToClient::Refused { .. } | ToClient::Confirmed { .. } => None,
    }
}

/// The events that go up in a frame, for a trace.
fn events_in(frame: &Frame) -> String {
    let Frame::Up(batch) = frame else { return String::new() };
    let ids = runs_in(batch).flat_map(|run| run.iter().map(|event| event.id().to_string()));
    format!(" {}", ids.collect::<Vec<String>>().join(" "))
}

fn runs_in(batch: &UpBatch) -> impl Iterator<Item = &Run> {
    batch.items.iter().filter_map(|item| match item {
        UpItem::Events(run) => Some(run),
        _ => None,
    })
}
