//! The clients of this agent: what they publish, what they subscribe to, what is delivered.

use super::Node;
use super::api::{
    ClientId, ClientInfo, Gap, GapReason, Output, RefusedWhat, Start, SubscriptionId, ToClient,
};
use super::config::ns;
use super::fetch::Asker;
use super::reader::{Cut, Reader};
use super::storm::{Fate, StormRule};
use crate::filter::{Filter, FilterSet};
use crate::frame::{Content, Item, UpItem};
use crate::limits::BATCH_EVENTS_MAX;
use crate::position::Position;
use crate::run::Run;
use crate::sealed::{Sealed, SealedRef};
use crate::severity::Severity;
use std::collections::{BTreeMap, VecDeque};

/// One client.
pub(super) struct Client {
    pub(super) info: ClientInfo,
    control: VecDeque<ToClient>,
    pub(super) subscriptions: BTreeMap<SubscriptionId, Subscription>,
    /// The last sequence that was taken from it.
    pub(super) taken: u64,
    /// The last sequence that acting root and standby hold, and the last that it was told.
    pub(super) confirmed: u64,
    pub(super) told_confirmed: u64,
    ready: bool,
    turn: Option<SubscriptionId>,
    pub(super) published: u64,
    pub(super) delivered: u64,
    /// Its quiet subscriptions are to be told how far they are.
    cover_due: bool,
    /// Sequences of events that were refused because it says too much, not told yet.
    refused: VecDeque<(u64, u64)>,
    limited_told_ns: u64,
}

/// One subscription.
pub(super) struct Subscription {
    pub(super) filter: Filter,
    pub(super) reader: Reader,
    state: SubscriptionState,
    start: Start,
    /// The last index that its client knows to be covered.
    told: u64,
    /// It began in the past, which ends at this index.
    history_until: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SubscriptionState {
    /// Until our interest of that version is active up to the root.
    Waiting(u64),
    Active,
}

/// Most answers (refusals, confirmations of subscriptions) that wait for one client; a client that
/// does not read so many is told nothing more of the kind until it reads.
const CONTROL_MAX: usize = 4_096;

/// How far back a subscription reads again that resumes in another log than it stood in. Half of
/// the event ids that the client library remembers, by which it drops what it had.
const READ_AGAIN_MAX: u64 = 8_192;

/// What storm rules have shed is told to subscribers as one gap so long after the first of it.
const SHED_TOLD_MS: u64 = 1_000;

/// That a client says more than it may is announced at most so often.
const LIMITED_TOLD_MS: u64 = 60_000;

/// What storm rules have shed and subscribers were not told yet.
pub(super) struct StormShed {
    count: u64,
    severity: Severity,
    due_ns: u64,
}

/// Quiet subscriptions are told so often how far they are, while the log moves.
const COVERED_MS: u64 = 5_000;

impl Subscription {
    fn is_active(&self) -> bool {
        self.state == SubscriptionState::Active
    }
}

impl Client {
    fn new(info: ClientInfo) -> Self {
        Self {
            info,
            control: VecDeque::new(),
            subscriptions: BTreeMap::new(),
            taken: 0,
            confirmed: 0,
            told_confirmed: 0,
            ready: false,
            turn: None,
            published: 0,
            delivered: 0,
            cover_due: false,
            refused: VecDeque::new(),
            limited_told_ns: 0,
        }
    }

    /// Whether one of its subscriptions is active and wants an event.
    fn wants(&self, id: SubscriptionId, event: SealedRef<'_>) -> bool {
        let found = self.subscriptions.get(&id);
        found.is_some_and(|found| found.is_active() && found.filter.matches(event))
    }
}

impl Node {
    pub(super) fn client_attached(&mut self, client: ClientId, info: ClientInfo) {
        self.publishers.insert(info.publisher, client);
        self.clients.insert(client, Client::new(info));
    }

    pub(super) fn client_detached(&mut self, client: ClientId) {
        let Some(gone) = self.clients.remove(&client) else {
            self.counters.stale += 1;
            return;
        };
        self.histories.retain(|(of, _)| *of != client);
        let mut left = Vec::new();
        self.storms.forget(client, &mut left);
        self.send_up(left);
        if self.publishers.get(&gone.info.publisher) == Some(&client) {
            self.publishers.remove(&gone.info.publisher);
        }
        self.paused.remove(&client);
        for (id, subscription) in &gone.subscriptions {
            self.index.remove(client, *id, &subscription.filter);
        }
        if !gone.subscriptions.is_empty() {
            self.interest_changed();
        }
    }

    /// Takes a client's events in.
    pub(super) fn publish(&mut self, client: ClientId, events: Run) {
        if client == ClientId::AGENT {
            self.outbox.push(UpItem::Events(events));
            return self.flush_outbox();
        }
        let Some(publisher) = self.clients.get_mut(&client) else {
            self.counters.stale += 1;
            return;
        };
        let mut controlled = None;
        let taken = publisher.taken;
        let known = events.iter().take_while(|event| event.id().seq <= taken).count();
        let again = known > 0;
        if let Some(new) = events.slice(known..events.count()) {
            let count = new.count() as u64;
            publisher.taken = new.iter().next_back().map_or(taken, |last| last.id().seq);
            publisher.published += count;
            self.counters.published += count;
            if self.storms.is_off() {
                self.outbox.push(UpItem::Events(new));
            } else {
                controlled = Some(new);
            }
        }
        if again && publisher.confirmed > 0 {
            // It did not hear of the confirmation: say it again.
            publisher.told_confirmed = 0;
            self.wake_client(client);
        }
        if let Some(events) = controlled {
            self.control(client, &events);
        }
        if self.outbox.waiting_bytes() > self.config.outbox_bytes && self.paused.insert(client) {
            self.counters.pauses += 1;
            self.out.push(Output::PauseClient(client));
        }
        self.flush_outbox();
    }

    /// Events of a client under the storm rules.
    fn control(&mut self, client: ClientId, events: &Run) {
        let now_ns = self.now.mono_ns;
        let mut left = Vec::new();
        for event in events.iter() {
            let (seq, severity) = (event.id().seq, event.severity());
            match self.storms.take(now_ns, client, event.to_sealed(), &mut left) {
                Fate::Passed => {}
                Fate::Folded => self.counters.folded += 1,
                Fate::Shed { begins } => self.shed_publication(client, seq, severity, begins),
            }
        }
        self.send_up(left);
    }

    /// An event of a client that says too much: told to the client at once, to all subscribers soon.
    fn shed_publication(&mut self, id: ClientId, seq: u64, severity: Severity, begins: bool) {
        self.counters.rate_shed += 1;
        let due_ns = self.now.mono_ns.saturating_add(ns(SHED_TOLD_MS));
        let shed = self.storm_shed.get_or_insert(StormShed { count: 0, severity, due_ns });
        shed.count += 1;
        shed.severity = shed.severity.max(severity);
        let Some(client) = self.clients.get_mut(&id) else { return };
        let full = client.refused.len() >= CONTROL_MAX;
        match client.refused.back_mut() {
            Some((_, last)) if *last + 1 == seq => *last = seq,
            _ if full => self.counters.control_dropped += 1,
            _ => client.refused.push_back((seq, seq)),
        }
        self.wake_client(id);
        if begins {
            self.tell_limited(id);
        }
    }

    /// One line, and now and then an event, that a client says more than it may.
    fn tell_limited(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let now_ns = self.now.mono_ns;
        if now_ns < client.limited_told_ns {
            return;
        }
        client.limited_told_ns = now_ns.saturating_add(ns(LIMITED_TOLD_MS));
        let info = client.info.clone();
        let why = "it publishes more than the storm rules allow".to_owned();
        self.transition("client", &info.name, "heard", "limited", &why);
        let tags = vec![
            ("client", info.name),
            ("job_id", info.job_id),
            ("uid", info.uid.to_string()),
            ("pid", info.pid.to_string()),
        ];
        self.announce("FTB_PUBLISHER_LIMITED", Severity::Warning, tags, why);
    }

    /// Own clients' events on their way to the log.
    fn send_up(&mut self, events: Vec<Sealed>) {
        if let Some(run) = Run::collect(events.iter().map(Sealed::as_ref)) {
            self.outbox.push(UpItem::Events(run));
        }
        self.flush_outbox();
    }

    /// Other storm rules: what is being folded under the old ones leaves.
    pub(super) fn set_storm_rules(&mut self, rules: Vec<StormRule>) {
        let mut left = Vec::new();
        self.storms.set_rules(rules, &mut left);
        self.send_up(left);
    }

    /// When a fold is due, or a gap that tells what was shed.
    pub(super) fn storm_deadline_ns(&self) -> u64 {
        let shed = self.storm_shed.as_ref().map_or(u64::MAX, |shed| shed.due_ns);
        self.storms.deadline_ns().min(shed)
    }

    /// Time has passed: folds leave, and what was shed is told to all subscribers.
    pub(super) fn storm_tick(&mut self) {
        let now_ns = self.now.mono_ns;
        let mut left = Vec::new();
        self.storms.tick(now_ns, &mut left);
        if !left.is_empty() {
            self.send_up(left);
        }
        if let Some(shed) = self.storm_shed.take_if(|shed| shed.due_ns <= now_ns) {
            let gap = Gap {
                // Its place is where the acting root logs it.
                after: Position::ZERO,
                until: Position::ZERO,
                reason: GapReason::Shed,
                count: shed.count,
                severity_max: Some(shed.severity),
            };
            self.outbox.push(UpItem::Gap(gap));
            self.flush_outbox();
        }
    }

    /// A client wants events.
    pub(super) fn subscribe(
        &mut self,
        client: ClientId,
        id: SubscriptionId,
        filter: Filter,
        start: Start,
    ) {
        let max = self.config.subscriptions_max;
        let Some(subscriber) = self.clients.get_mut(&client) else {
            self.counters.stale += 1;
            return;
        };
        let refuse = |code, message| ToClient::Refused {
            what: RefusedWhat::Subscription(id),
            code,
            message,
        };
        if subscriber.subscriptions.contains_key(&id) {
            let message = format!("subscription {} exists: end it first", id.0);
            return self.tell_client(client, refuse("limit", message));
        }
        if subscriber.subscriptions.len() >= max {
            let message = format!("a client may have {max} subscriptions: end one first");
            return self.tell_client(client, refuse("limit", message));
        }
        self.index.insert(client, id, &filter);
        let is_told = self.interests.told().filters.iter().any(|told| told.covers(&filter));
        let subscription = Subscription {
            filter,
            reader: Reader::new(self.consumed),
            state: SubscriptionState::Waiting(u64::MAX),
            start,
            told: self.consumed,
            history_until: None,
        };
        subscriber.subscriptions.insert(id, subscription);
        // To merge all filters anew for each of many would take quadratic time.
        if !is_told {
            self.interest_changed();
        }
        let version = self.interests.version();
        if let Some(subscriber) = self.clients.get_mut(&client)
            && let Some(subscription) = subscriber.subscriptions.get_mut(&id)
        {
            subscription.state = SubscriptionState::Waiting(version);
        }
        self.subscriptions_active();
    }

    pub(super) fn unsubscribe(&mut self, client: ClientId, id: SubscriptionId) {
        let removed = self.clients.get_mut(&client).and_then(|c| c.subscriptions.remove(&id));
        self.histories.remove(&(client, id));
        if let Some(removed) = removed {
            self.index.remove(client, id, &removed.filter);
            self.interest_changed();
        } else {
            self.counters.stale += 1;
        }
    }

    /// What the subtree wants may have changed: merges it anew and tells the parent.
    pub(super) fn interest_changed(&mut self) {
        let own = self.clients.values().flat_map(|client| client.subscriptions.values());
        let own = own.map(|subscription| &subscription.filter);
        let below = self.children.values().flat_map(|child| child.filters.filters());
        let wanted = FilterSet::merge(own.chain(below));
        if self.interests.want(wanted)
            && let Some(parent) = self.uplink.parent_mut()
        {
            parent.subscribe_due = true;
            let link = parent.link;
            self.wake(link);
        }
    }

    /// Begins the subscriptions whose interest is active up to the root by now.
    pub(super) fn subscriptions_active(&mut self) {
        let is_root = self.root.is_some();
        let young = self.is_young_root();
        let mut begun = Vec::new();
        for (client, subscriber) in &mut self.clients {
            for (id, subscription) in &mut subscriber.subscriptions {
                let SubscriptionState::Waiting(_) = subscription.state else { continue };
                if young || !is_root && !self.interests.covers(&subscription.filter) {
                    continue;
                }
                let index =
                    if is_root { self.log.last() } else { self.active_index.max(self.consumed) };
                subscription.state = SubscriptionState::Active;
                subscription.reader = Reader::new(index);
                subscription.told = index;
                begun.push((*client, *id, index, subscription.start));
            }
        }
        for (client, id, index, start) in begun {
            let position = self.lineage.position(index);
            let active = ToClient::Subscribed { subscription: id, active_after: position };
            self.tell_client(client, active);
            self.begin_in_the_past(client, id, start, index);
        }
    }

    /// A subscription that begins in the past reads on from there: out of the log here, or from
    /// above.
    fn begin_in_the_past(
        &mut self,
        client: ClientId,
        id: SubscriptionId,
        start: Start,
        active: u64,
    ) {
        let (begin, since_ns) = match start {
            Start::Now => return,
            Start::After(position) => {
                let known = self.resume_index(position);
                (known.unwrap_or_else(|| self.resume_elsewhere(client, id, position, active)), 0)
            }
            Start::SinceNs(since_ns) => (0, since_ns),
        };
        let found = self.clients.get_mut(&client);
        if let Some(found) = found.and_then(|found| found.subscriptions.get_mut(&id)) {
            found.reader = Reader::new(begin);
            found.reader.since_ns = since_ns;
            found.history_until = Some(active);
            self.histories.insert((client, id));
        }
        self.catch_up(Asker::Subscription(client, id));
    }

    /// Behind which index of the log a reader at a position (of any log) resumes.
    fn resume_index(&self, position: Position) -> Option<u64> {
        self.lineage
            .resume_after(position)
            .or_else(|| self.forks.get(&position.epoch).map(|fork| position.index.min(*fork)))
    }

    /// Where a subscription resumes that stood in a log that nobody here knows. The rest of that log
    /// may never come: that is told. What it has in common with ours is not known either, so the
    /// subscription reads some of ours again: the logs may be about to meet, and what it passed over
    /// here would then come behind what is newer.
    fn resume_elsewhere(
        &mut self,
        client: ClientId,
        id: SubscriptionId,
        after: Position,
        active: u64,
    ) -> u64 {
        let begin = active.saturating_sub(READ_AGAIN_MAX);
        let gap = Gap {
            after,
            until: self.lineage.position(begin),
            reason: GapReason::LogLost,
            count: 0,
            severity_max: None,
        };
        self.tell_client(client, ToClient::Gap { subscription: id, gap });
        begin
    }

    /// Committed entries behind `from` can be delivered here.
    pub(super) fn wake_subscribers(&mut self, from: u64) {
        let mut wake = Vec::new();
        let mut repeated = Vec::new();
        for item in self.log.after(from) {
            let Some(item) = item.up_to(self.consumed) else { break };
            let Content::Events(run) = &item.content else {
                for (id, client) in &mut self.clients {
                    if !std::mem::replace(&mut client.ready, true) {
                        wake.push(*id);
                    }
                }
                continue;
            };
            for (places, event) in run.groups() {
                let mut wanted = false;
                for (id, subscription) in self.index.candidates(event) {
                    let Some(client) = self.clients.get_mut(&id) else { continue };
                    if wanted && client.ready {
                        continue;
                    }
                    if client.wants(subscription, event) {
                        wanted = true;
                        if !client.ready {
                            client.ready = true;
                            wake.push(id);
                        }
                    }
                }
                let first = item.index + places.start as u64;
                if wanted && let Some(group) = run.slice(places) {
                    let known = self.seen.insert_run(&group);
                    repeated.extend(known.into_iter().map(|place| first + place as u64));
                }
            }
        }
        self.counters.repeated += repeated.len() as u64;
        for index in repeated {
            self.log.mark_repeated(index);
        }
        self.out.extend(wake.into_iter().map(Output::ClientReady));
        if self.cover_ns == u64::MAX && self.clients.values().any(|c| !c.subscriptions.is_empty()) {
            self.cover_ns = self.now.mono_ns.saturating_add(ns(COVERED_MS));
        }
        for (id, _) in self.histories.clone() {
            self.wake_client(id);
        }
    }

    pub(super) fn wake_client(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(&id)
            && !client.ready
        {
            client.ready = true;
            self.out.push(Output::ClientReady(id));
        }
    }

    fn tell_client(&mut self, id: ClientId, message: ToClient) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if client.control.len() >= CONTROL_MAX {
            self.counters.control_dropped += 1;
            return;
        }
        client.control.push_back(message);
        self.wake_client(id);
    }

    /// What goes to a client next; `None` when there is nothing more.
    pub(super) fn next_to_client(&mut self, id: ClientId, bytes_max: usize) -> Option<ToClient> {
        let client = self.clients.get_mut(&id)?;
        if let Some(message) = client.control.pop_front() {
            return Some(message);
        }
        if let Some((first, last)) = client.refused.pop_front() {
            return Some(ToClient::Refused {
                what: RefusedWhat::PublishRange { first, last },
                code: "rate",
                message: "more events than the storm rules allow one publisher".to_owned(),
            });
        }
        if client.confirmed > client.told_confirmed {
            client.told_confirmed = client.confirmed;
            return Some(ToClient::Confirmed { seq: client.confirmed });
        }
        // Subscriptions take turns: one with much to read does not starve the others.
        let after = client.turn;
        let order = client.subscriptions.keys().copied();
        let (first, second): (Vec<_>, Vec<_>) = order.partition(|id| Some(*id) > after);
        for subscription in first.into_iter().chain(second) {
            let message = self.read_subscription(id, subscription, bytes_max);
            if let Some(message) = message.or_else(|| self.cover(id, subscription)) {
                return Some(message);
            }
        }
        let client = self.clients.get_mut(&id)?;
        client.ready = false;
        client.cover_due = false;
        None
    }

    /// How far a subscription is that has nothing (more) to read: when its past ends here, and now
    /// and then.
    fn cover(&mut self, id: ClientId, subscription: SubscriptionId) -> Option<ToClient> {
        let client = self.clients.get_mut(&id)?;
        let due = client.cover_due;
        let found = client.subscriptions.get_mut(&subscription)?;
        let index = found.reader.cursor;
        let idle = found.is_active() && !found.reader.catching_up && found.reader.is_drained();
        let history_ended = idle && found.history_until.is_some_and(|until| until <= index);
        let told_now = idle && due && index > found.told;
        if !(history_ended || told_now) {
            return None;
        }
        found.told = index;
        if history_ended {
            found.history_until = None;
            self.histories.remove(&(id, subscription));
        }
        let position = self.lineage.position(index);
        Some(ToClient::Covered { subscription, position, history_ended })
    }

    /// When quiet subscriptions are told next how far they are.
    pub(super) fn cover_deadline_ns(&self) -> u64 {
        self.cover_ns
    }

    /// Time has passed: quiet subscriptions are told how far they are.
    pub(super) fn cover_tick(&mut self) {
        if self.cover_ns > self.now.mono_ns {
            return;
        }
        self.cover_ns = u64::MAX;
        let until = self.consumed;
        let mut wake = Vec::new();
        for (id, client) in &mut self.clients {
            let active = client.subscriptions.values().filter(|found| found.is_active());
            client.cover_due = active.into_iter().any(|found| found.told < until);
            if client.cover_due {
                wake.push(*id);
            }
        }
        for id in wake {
            self.wake_client(id);
        }
    }

    /// The next events of one subscription.
    fn read_subscription(
        &mut self,
        client: ClientId,
        id: SubscriptionId,
        bytes_max: usize,
    ) -> Option<ToClient> {
        let until = self.consumed;
        let reader_client = self.clients.get_mut(&client)?;
        let found = reader_client.subscriptions.get_mut(&id)?;
        if found.state != SubscriptionState::Active || found.reader.is_at(until) {
            return None;
        }
        let filter = &found.filter;
        let cut = Cut { bytes: bytes_max, items: BATCH_EVENTS_MAX, until, skip_repeated: true };
        let items = found.reader.read(&self.log, cut, |event| filter.matches(event));
        let catch_up = found.reader.catching_up && found.reader.is_drained();
        let mut first = None;
        if let Some(last) = items.last() {
            found.told = last.index;
            reader_client.turn = Some(id);
            let mut messages = to_messages(id, items, |index| self.lineage.position(index));
            let count: u64 = messages.iter().map(delivered).sum();
            reader_client.delivered += count;
            self.counters.delivered += count;
            first = messages.pop_front();
            reader_client.control.append(&mut messages);
        }
        if catch_up {
            self.catch_up(Asker::Subscription(client, id));
        }
        first
    }

    /// The log gives an entry up: subscriptions that have not read it keep it within their bound.
    pub(super) fn keep_for_subscribers(&mut self, item: &Item) {
        let lag_bytes = self.config.lag_bytes;
        let all = match &item.content {
            Content::Events(_) => Vec::new(),
            Content::Gap(_) => self.active_subscriptions(),
        };
        let (clients, lineage) = (&mut self.clients, &self.lineage);
        let mut keep = |(client, id): (ClientId, SubscriptionId), item: &Item| {
            let found = clients.get_mut(&client);
            let Some(found) = found.and_then(|found| found.subscriptions.get_mut(&id)) else {
                return 0;
            };
            if !found.is_active() {
                return 0;
            }
            let before = found.reader.shed;
            let filter = &found.filter;
            found.reader.keep(item, lag_bytes, lineage, |event| filter.matches(event));
            found.reader.shed - before
        };
        let mut shed: u64 = all.into_iter().map(|subscription| keep(subscription, item)).sum();
        if let Content::Events(run) = &item.content {
            for (places, event) in run.groups() {
                let index = item.index + places.start as u64;
                let Some(group) = run.slice(places) else { continue };
                let group = Item { index, content: Content::Events(group) };
                shed += self.index.candidates(event).map(|wants| keep(wants, &group)).sum::<u64>();
            }
        }
        self.counters.shed += shed;
    }

    fn active_subscriptions(&self) -> Vec<(ClientId, SubscriptionId)> {
        let active = self.clients.iter().flat_map(|(client, found)| {
            let active = found.subscriptions.iter().filter(|(_, s)| s.is_active());
            active.map(|(id, _)| (*client, *id))
        });
        active.collect()
    }

    /// Tells every subscription that has begun of a hole.
    pub(super) fn tell_subscribers(&mut self, gap: Gap) {
        for (client, subscription) in self.active_subscriptions() {
            self.tell_client(client, ToClient::Gap { subscription, gap });
        }
    }

    /// All subscriptions go on behind an index of a log that has nothing to do with the last.
    pub(super) fn move_subscribers(&mut self, index: u64) {
        for client in self.clients.values_mut() {
            for subscription in client.subscriptions.values_mut() {
                subscription.reader = Reader::new(index);
                subscription.told = index;
                // Where the past ends is a place in the log that was left.
                let history_until = &mut subscription.history_until;
                *history_until = history_until.map(|_| index);
            }
        }
    }

    /// The log has gone back to an index: so do the subscriptions.
    pub(super) fn rewind_subscribers(&mut self, index: u64) {
        for client in self.clients.values_mut() {
            for subscription in client.subscriptions.values_mut() {
                if subscription.reader.cursor > index {
                    subscription.reader.seek(index);
                }
                subscription.told = subscription.told.min(index);
                let history_until = &mut subscription.history_until;
                *history_until = history_until.map(|until| until.min(index));
            }
        }
    }
}

fn delivered(message: &ToClient) -> u64 {
    match message {
        ToClient::Deliver { items, .. } => items.iter().map(|(_, run)| run.count() as u64).sum(),
        _ => 0,
    }
}

/// Cuts what was read into messages: events of one epoch together, holes in their places.
fn to_messages(
    subscription: SubscriptionId,
    items: Vec<Item>,
    position: impl Fn(u64) -> Position,
) -> VecDeque<ToClient> {
    let mut messages = VecDeque::new();
    for item in items {
        let (mut index, last) = (item.index, item.last());
        let run = match item.content {
            Content::Gap(gap) => {
                messages.push_back(ToClient::Gap { subscription, gap });
                continue;
            }
            Content::Events(run) => run,
        };
        let mut rest = Some(run);
        while let Some(run) = rest.take() {
            let epoch = position(index).epoch;
            // Events of two reigns in one run are rare: only where old ones were asked for.
            let count = if position(last).epoch == epoch {
                run.count()
            } else {
                (index..=last).take_while(|index| position(*index).epoch == epoch).count()
            };
            let Some(part) = run.slice(0..count) else { break };
            match messages.back_mut() {
                Some(ToClient::Deliver { epoch: last, items, .. }) if *last == epoch => {
                    items.push((index, part));
                }
                _ => messages.push_back(ToClient::Deliver {
                    subscription,
                    epoch,
                    items: vec![(index, part)],
                }),
            }
            rest = run.slice(count..run.count());
            index += count as u64;
        }
    }
    messages
}
