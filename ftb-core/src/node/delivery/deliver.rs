//! What comes for the clients of this agent: who wants it, what each reads next, and how far it is.
//!
//! Responsible for: the last match, batches, and that a subscription that is slow keeps what it
//! wants within its bound. Not responsible for: the log that is read ([`crate::log::entries`]).

use crate::epochs::EpochHistory;
use crate::frame::{Content, Item};
use crate::limits::{BATCH_BYTES_TARGET, BATCH_EVENTS_MAX};
use crate::log::gap::GapReason;
use crate::log::reader::{ReadLimit, Reader};
use crate::node::api::{ClientId, Gap, Output, SubscriptionId, ToClient};
use crate::node::cx::Cx;
use crate::node::delivery::history_turns::Requester;
use crate::node::delivery::{Delivery, ReadCx};
use crate::node::timers::Timer;
use crate::numbers::LogIndex;
use crate::position::Position;
use crate::spaces::Spaces;
use crate::trace::TraceStep;
use core::cell::OnceCell;
use std::collections::{BTreeSet, VecDeque};

/// How often quiet subscriptions learn their position while the log moves.
const COVERED_MS: u64 = 5_000;

impl Delivery {
    /// Committed entries after `from` are visible. Gives the indices of those that were delivered
    /// here before.
    #[must_use]
    pub(crate) fn became_visible(&mut self, cx: &mut ReadCx<'_>, from: LogIndex) -> Vec<LogIndex> {
        let repeated = self.wake_subscribers(cx, from);
        self.wake_children(cx, from);
        repeated
    }

    /// Committed entries after `from` can be delivered here.
    pub(super) fn wake_subscribers(
        &mut self,
        cx: &mut ReadCx<'_>,
        from: LogIndex,
    ) -> Vec<LogIndex> {
        let mut wake = Vec::new();
        let mut repeated = Vec::new();
        for item in cx.log.entries().after(from) {
            let Some(item) = item.up_to(cx.log.commit_index()) else { break };
            let run = match &item.content {
                Content::Events(run) => run,
                Content::Gap(gap) => {
                    for (id, client) in &mut self.clients {
                        if client.note_gap(gap) && !std::mem::replace(&mut client.ready, true) {
                            wake.push(*id);
                        }
                    }
                    continue;
                }
            };
            let step = if cx.around.is_root { TraceStep::Committed } else { TraceStep::FromAbove };
            let now_ns = cx.now.wall_ns;
            cx.trace.note_indexed(now_ns, item.index, run, step);
            for (places, event) in run.groups() {
                let mut wanted = false;
                for (id, subscription) in self.index.candidates(event) {
                    let Some(client) = self.clients.get_mut(&id) else { continue };
                    if wanted && client.ready && client.due.contains(subscription) {
                        continue;
                    }
                    if client.wants(subscription, event) {
                        wanted = true;
                        client.due.insert(subscription);
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
        cx.counters.repeated += repeated.len() as u64;
        wake.into_iter().for_each(|id| cx.push(Output::ClientReady(id)));
        let any = self.clients.values().any(|client| !client.subscriptions.is_empty());
        if any && !cx.timers.is_set(Timer::Covered) {
            let at_ns = cx.after_ms(COVERED_MS);
            cx.timers.set(Timer::Covered, at_ns);
        }
        self.wake_histories(cx);
        repeated
    }

    /// Wakes subscriptions whose history has ended: they learn it when nothing is left to read. A
    /// subscription that waits for a history request is woken by the reply.
    fn wake_histories(&mut self, cx: &mut ReadCx<'_>) {
        let passed = |(client, id): &&(ClientId, SubscriptionId)| {
            let found = self.clients.get(client).and_then(|found| found.subscriptions.get(id));
            found.is_some_and(|found| {
                let until = found.history_until.unwrap_or_default();
                until <= cx.log.commit_index() && !found.reader.catching_up
            })
        };
        let passed: Vec<(ClientId, SubscriptionId)> =
            self.histories.iter().filter(passed).copied().collect();
        passed.into_iter().for_each(|(client, id)| self.wake_subscription(cx, client, id));
    }

    /// How far a subscription is that has nothing (more) to read: when its past ends here, and now
    /// and then.
    pub(super) fn cover(
        &mut self,
        cx: &ReadCx<'_>,
        id: ClientId,
        subscription: SubscriptionId,
    ) -> Option<ToClient> {
        let client = self.clients.get_mut(&id)?;
        let due = client.cover_due;
        let found = client.subscriptions.get_mut(&subscription)?;
        let index = found.reader.cursor;
        let idle = found.is_active() && !found.reader.catching_up && found.reader.is_drained();
        let history_ended = idle && found.history_until.is_some_and(|until| until <= index);
        let due_now = idle && due && index > found.reported;
        if !(history_ended || due_now) {
            return None;
        }
        found.reported = index;
        if history_ended {
            found.history_until = None;
            self.histories.remove(&(id, subscription));
        }
        let position = cx.log.epochs().position(index);
        Some(ToClient::Covered { subscription, position, history_ended })
    }

    /// Quiet subscriptions learn their position.
    pub(super) fn on_covered_timer(&mut self, cx: &mut ReadCx<'_>) {
        cx.timers.stop(Timer::Covered);
        let until = cx.log.commit_index();
        let mut wake = Vec::new();
        for (id, client) in &mut self.clients {
            let active = client.subscriptions.iter().filter(|(_, found)| found.is_active());
            let pending = active.filter(|(_, found)| found.reported < until);
            client.cover_due = false;
            for (subscription, _) in pending {
                client.due.insert(*subscription);
                client.cover_due = true;
            }
            if client.cover_due {
                wake.push(*id);
            }
        }
        for id in wake {
            self.wake_client(cx, id);
        }
    }

    /// The next events of one subscription.
    pub(super) fn read_subscription(
        &mut self,
        cx: &mut ReadCx<'_>,
        client: ClientId,
        id: SubscriptionId,
        bytes_max: usize,
    ) -> Option<ToClient> {
        let until = cx.log.commit_index();
        let (bytes, copied) = self.batch_bytes(cx, client, bytes_max);
        let reader_client = self.clients.get_mut(&client)?;
        let found = reader_client.subscriptions.get_mut(&id)?;
        if !found.is_active() || found.reader.is_at(until) {
            return None;
        }
        let filter = &found.filter;
        let cut = ReadLimit { bytes, items: BATCH_EVENTS_MAX, until, skip_repeated: true };
        let mut items = found.reader.read(cx.log.entries(), cut, filter);
        if copied {
            items = items.into_iter().map(detached).collect();
        }
        let catch_up = found.reader.catching_up && found.reader.is_drained();
        let mut first = None;
        if let Some(last) = items.last() {
            found.reported = last.last();
            let now_ns = cx.now.wall_ns;
            cx.trace.note_items(now_ns, &items, TraceStep::Delivered, client.0);
            reader_client.turn = Some(id);
            let mut messages = to_messages(id, items, |index| cx.log.epochs().position(index));
            let count: u64 = messages.iter().map(delivered).sum();
            reader_client.delivered += count;
            cx.counters.delivered += count;
            first = messages.pop_front();
            reader_client.control.append(&mut messages);
        }
        if catch_up {
            self.catch_up(cx, Requester::Subscription(client, id));
        }
        first
    }

    /// The log gives an entry up: subscriptions that have not read it keep it within their bound.
    /// `is_repeated`: it was delivered here before, to others than those that read repeated events.
    pub(super) fn keep_for_subscribers(
        &mut self,
        cx: &mut ReadCx<'_>,
        item: &Item,
        is_repeated: bool,
    ) {
        let lag_bytes = cx.config.lag_bytes;
        let all = match &item.content {
            Content::Events(_) => Vec::new(),
            Content::Gap(_) => self.active_subscriptions(),
        };
        let (clients, epochs, budgets) = (&mut self.clients, cx.log.epochs(), &mut self.budgets);
        let (mut over, mut lost) = (BTreeSet::new(), Vec::new());
        let mut keep = |(of, id): (ClientId, SubscriptionId), entry: &dyn Fn() -> Item| {
            let Some(client) = clients.get_mut(&of) else { return 0 };
            let uid = client.uid;
            let Some(found) = client.subscriptions.get_mut(&id) else { return 0 };
            let had = found.reader.cursor >= item.last();
            if !found.is_active() || had || is_repeated && !found.reader.reads_repeated {
                return 0;
            }
            let (before, held) = (found.reader.shed, found.reader.held_bytes());
            found.reader.keep(&entry(), lag_bytes, epochs, &found.filter);
            if budgets.grew(uid, found.reader.held_bytes().saturating_sub(held)) {
                over.insert(uid);
            }
            lost.extend(found.reader.take_shed_traced().into_iter().map(|run| (of, run)));
            found.reader.shed - before
        };
        let all = all.into_iter().map(|subscription| keep(subscription, &|| item.clone()));
        let mut shed: u64 = all.sum();
        if let Content::Events(run) = &item.content {
            for (places, event) in run.groups() {
                let index = item.index + places.start as u64;
                let Some(group) = run.slice(places) else { continue };
                // Copied once for all subscriptions, if one is behind.
                let copy = OnceCell::new();
                let entry = || {
                    let copy = copy.get_or_init(|| group.clone().detached());
                    Item { index, content: Content::Events(copy.clone()) }
                };
                let candidates = self.index.candidates(event);
                shed += candidates.map(|wants| keep(wants, &entry)).sum::<u64>();
            }
        }
        cx.counters.shed += shed;
        let now_ns = cx.now.wall_ns;
        for (client, run) in lost {
            cx.trace.note_run(now_ns, &run, TraceStep::Shed, client.0);
        }
        over.into_iter().for_each(|uid| self.enforce_budget(cx, uid));
        self.enforce_total(cx);
    }

    fn active_subscriptions(&self) -> Vec<(ClientId, SubscriptionId)> {
        let active = self.clients.iter().flat_map(|(client, found)| {
            let active = found.subscriptions.iter().filter(|(_, s)| s.is_active());
            active.map(|(id, _)| (*client, *id))
        });
        active.collect()
    }

    /// The agent is about to leave its log for another one. The entries that were visible here
    /// count as delivered, and are left out where they come again. So the unread ones become
    /// messages now, with their positions in this log. Events over the bound become a gap.
    pub(crate) fn flush_subscribers(&mut self, cx: &mut ReadCx<'_>) {
        self.count_budgets(cx);
        for (client, subscription) in self.active_subscriptions() {
            for piece in self.take_unread(cx, client, subscription) {
                let position = |index| cx.log.epochs().position(index);
                let messages = to_messages(subscription, piece, position);
                let count: u64 = messages.iter().map(delivered).sum();
                let Some(found) = self.clients.get_mut(&client) else { continue };
                found.delivered += count;
                cx.counters.delivered += count;
                found.control.extend(messages);
            }
            self.wake_subscription(cx, client, subscription);
        }
    }

    /// All that a subscription has not read, in pieces that each fit into a message.
    fn take_unread(
        &mut self,
        cx: &mut ReadCx<'_>,
        client: ClientId,
        id: SubscriptionId,
    ) -> Vec<Vec<Item>> {
        let until = cx.log.commit_index();
        let uid = self.clients.get(&client).map(|client| client.uid);
        let budget = uid.map_or(0, |uid| self.lag_left(cx, uid));
        let Some(subscriber) = self.clients.get_mut(&client) else { return Vec::new() };
        // What an earlier change of logs has left it counts too.
        let left = subscriber.control.iter().map(|message| match message {
            ToClient::Deliver { items, .. } => items.iter().map(|(_, run)| run.len()).sum(),
            _ => 0,
        });
        let room = cx.config.lag_bytes.saturating_sub(left.sum());
        let (uid, mut room) = (subscriber.uid, room.min(budget));
        let Some(found) = subscriber.subscriptions.get_mut(&id) else { return Vec::new() };
        let filter = &found.filter;
        let mut unread = Vec::new();
        while !found.reader.is_at(until) {
            let bytes = room.min(BATCH_BYTES_TARGET);
            let cut = ReadLimit { bytes, items: BATCH_EVENTS_MAX, until, skip_repeated: true };
            let items = match room {
                0 => found.reader.skip_with_gap(cx.log.entries(), cut, cx.log.epochs(), filter),
                _ => found.reader.read(cx.log.entries(), cut, filter),
            };
            if items.is_empty() {
                break;
            }
            let bytes = items.iter().map(Item::len).sum();
            self.budgets.grew(uid, bytes);
            room = room.saturating_sub(bytes);
            unread.push(items);
        }
        found.reader.reads_repeated = found.reader.catching_up;
        unread
    }

    /// Tells every subscription that has begun of a hole.
    pub(crate) fn send_gap_to_subscribers(&mut self, cx: &mut Cx, gap: &Gap) {
        for (client, subscription) in self.active_subscriptions() {
            self.send_to_client(cx, client, ToClient::Gap { subscription, gap: gap.clone() });
        }
    }

    /// All subscriptions go on after an index of a log that has nothing to do with the last.
    pub(crate) fn move_subscribers(&mut self, index: LogIndex) {
        for client in self.clients.values_mut() {
            for (id, subscription) in &mut client.subscriptions {
                client.due.insert(*id);
                subscription.reader = match subscription.reader.reads_conditions {
                    true => Reader::of_conditions(),
                    false => Reader::new(index),
                };
                subscription.reported = index;
                // Where the past ends is a place in the log that was left.
                let history_until = &mut subscription.history_until;
                *history_until = history_until.map(|_| index);
            }
        }
    }

    /// The log has gone back to an index: so do the subscriptions. `None`: none has read too far.
    /// Readers of the table of conditions may have taken statements that are not in the log any
    /// more: each gets a gap, and reads the table again.
    pub(crate) fn rewind_subscribers(&mut self, index: Option<LogIndex>, epochs: &EpochHistory) {
        let rewound = |at: LogIndex| index.map_or(at, |index| at.min(index));
        for client in self.clients.values_mut() {
            for (id, subscription) in &mut client.subscriptions {
                client.due.insert(*id);
                let cursor = subscription.reader.cursor;
                if subscription.reader.reads_conditions {
                    subscription.reader = Reader::of_conditions();
                } else if cursor > rewound(cursor) {
                    subscription.reader.resume_after(rewound(cursor));
                    if subscription.began_with_conditions() {
                        let at = epochs.position(rewound(cursor));
                        let (reason, spaces) = (GapReason::LogLost, Spaces::ANY);
                        let (after, until, severity_max) = (at, at, None);
                        let gap = Gap { after, until, reason, count: None, severity_max, spaces };
                        client.control.push_back(ToClient::Gap { subscription: *id, gap });
                    }
                }
                subscription.reported = rewound(subscription.reported);
                subscription.history_until = subscription.history_until.map(rewound);
            }
        }
    }

    /// The log begins after an index: subscriptions that stand before it get what is missing, or
    /// hear of it, when all catch up.
    pub(crate) fn subscribers_catch_up(&mut self, oldest: LogIndex) {
        let mut any = false;
        for client in self.clients.values_mut() {
            for (id, subscription) in &mut client.subscriptions {
                client.due.insert(*id);
                let before = subscription.is_active() && subscription.reader.cursor < oldest;
                subscription.reader.catching_up |= before;
                any |= before;
            }
        }
        self.delivered_before = any.then(|| self.seen.clone());
    }

    /// The log has given up what was not visible here yet, after `from` up to `until`. All before
    /// that is read or kept.
    pub(crate) fn subscribers_missed(&mut self, from: LogIndex, until: LogIndex) {
        let mut any = false;
        for client in self.clients.values_mut() {
            for (id, subscription) in &mut client.subscriptions {
                if subscription.reader.catching_up || !subscription.is_active() {
                    continue;
                }
                let reader = &mut subscription.reader;
                client.due.insert(*id);
                reader.cursor = reader.cursor.max(from);
                reader.catching_up = reader.cursor < until;
                any |= reader.catching_up;
            }
        }
        if any {
            self.delivered_before.get_or_insert_with(|| self.seen.clone());
        }
    }

    /// Events come for a subscription from elsewhere: they count as delivered here. Gives those
    /// that it has not had already, at other places of a log that was left; `all`: it was not there
    /// then.
    pub(super) fn note_fetched(&mut self, cx: &mut Cx, items: Vec<Item>, all: bool) -> Vec<Item> {
        let delivered_before = self.delivered_before.as_ref().filter(|_| !all);
        let mut fresh = Vec::with_capacity(items.len());
        for item in items {
            let Content::Events(run) = &item.content else {
                fresh.push(item);
                continue;
            };
            self.seen.insert_run(run);
            let again = run.iter().enumerate().filter(|(_, event)| {
                delivered_before.is_some_and(|delivered_before| delivered_before.contains(*event))
            });
            let again: Vec<usize> = again.map(|(place, _)| place).collect();
            cx.counters.repeated += again.len() as u64;
            let mut start = 0;
            for place in again.into_iter().chain([run.count()]) {
                let index = item.index + start as u64;
                let part = run.slice(start..place);
                fresh.extend(part.map(|part| Item { index, content: Content::Events(part) }));
                start = place + 1;
            }
        }
        fresh
    }
}

/// The same item, which does not pin what its events are a part of.
fn detached(item: Item) -> Item {
    match item.content {
        Content::Events(run) => Item { content: Content::Events(run.detached()), ..item },
        Content::Gap(_) => item,
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
    position: impl Fn(LogIndex) -> Position,
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
            // Events of two epochs in one run are rare: only where old ones were asked for.
            let count = if position(last).epoch == epoch {
                run.count()
            } else {
                (0..run.count())
                    .take_while(|at| position(index + *at as u64).epoch == epoch)
                    .count()
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
            index = index + count as u64;
        }
    }
    messages
}
