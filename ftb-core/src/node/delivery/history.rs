//! Events that are older than the log here: requested from the parent, piece by piece, until the
//! reader has reached the part that is complete here. The acting root uses further sources
//! ([`crate::node::delivery::history_sources`]).
//!
//! One request has one reply of at most one frame. The reader takes it before the next request. A
//! reply may be lost when the uplink changes: then the request is sent again.

use crate::filter::FilterSet;
use crate::frame::{Content, Frame, HistoryReply, HistoryRequest, Item};
use crate::limits::{BATCH_BYTES_TARGET, BATCH_EVENTS_MAX};
use crate::log::reader::{ReadLimit, Reader};
use crate::node::Node;
use crate::node::api::{ClientId, Gap, GapReason, LinkId, SubscriptionId};
use crate::node::config::ns;
use crate::node::delivery::history_sources::HistorySearch;
use crate::spaces::Spaces;

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) enum Requester {
    /// The reader of a child link.
    Child(LinkId),
    /// The reader of a subscription.
    Subscription(ClientId, SubscriptionId),
    /// A child that asked us; with its number of the question.
    Below(LinkId, u64),
    /// The acting root above; with its number of the question.
    Above(u64),
}

impl Requester {
    /// Whether it is that child, or below it.
    pub(in crate::node) fn is_on(self, child: LinkId) -> bool {
        match self {
            Self::Child(link) | Self::Below(link, _) => link == child,
            Self::Subscription(..) | Self::Above(_) => false,
        }
    }
}

/// A request that was forwarded, or that this agent searches for.
#[derive(Clone, Debug)]
pub(in crate::node) struct PendingRequest {
    requester: Requester,
    sent_ns: u64,
    search: Option<HistorySearch>,
}

impl PendingRequest {
    /// The search for it here.
    pub(in crate::node) fn search(&mut self) -> Option<&mut HistorySearch> {
        self.search.as_mut()
    }

    pub(in crate::node) fn is_for(&self, requester: Requester) -> bool {
        self.requester == requester
    }

    /// Whether a child has to do with it.
    pub(in crate::node) fn is_of(&self, child: LinkId) -> bool {
        self.requester.is_on(child)
    }

    /// Whether it waits for a child's answer.
    fn waits_for(&self, child: LinkId) -> bool {
        self.search.as_ref().is_some_and(|search| search.waits_for(child))
    }

    /// Whether its answer may fail to come.
    fn may_be_late(&self) -> bool {
        self.search.as_ref().is_none_or(HistorySearch::may_be_late)
    }
}

/// Most questions that wait for answers; one more waits until it is asked again.
const REQUESTS_MAX: usize = 65_536;

/// What filters want of an item.
fn wanted(item: Item, filters: &FilterSet) -> Vec<Item> {
    let run = match &item.content {
        Content::Gap(gap) if filters.may_want(gap.severity_max, &gap.spaces) => return vec![item],
        Content::Gap(_) => return Vec::new(),
        Content::Events(run) => run,
    };
    let groups = run.groups().filter(|(_, first)| filters.matches(*first));
    let parts = groups.filter_map(|(places, _)| {
        let index = item.index + places.start as u64;
        Some(Item { index, content: Content::Events(run.slice(places)?) })
    });
    parts.collect()
}

/// Adds an item. Two known holes become one: the filters want nothing of what lies between them.
fn join_holes(items: &mut Vec<Item>, item: Item) {
    if let Content::Gap(next) = &item.content
        && let Some(Item { index, content: Content::Gap(gap) }) = items.last_mut()
        && gap.reason == next.reason
        && gap.severity_max.is_some()
        && next.severity_max.is_some()
        && gap.count > 0
        && next.count > 0
    {
        *index = item.index;
        gap.until = next.until;
        gap.count += next.count;
        gap.severity_max = gap.severity_max.max(next.severity_max);
        gap.spaces = gap.spaces.joined(&next.spaces);
        return;
    }
    items.push(item);
}

impl Node {
    /// The index behind which everything that these filters match is in the log here; `None`: not
    /// yet known.
    pub(in crate::node) fn complete_since(&self, filters: &FilterSet) -> Option<u64> {
        let known = self.interests.complete_since(filters);
        let since = match self.role.is_root() {
            true => Some(known.unwrap_or(u64::MAX).min(self.complete_after)),
            false => known,
        };
        since.map(|since| since.max(self.log.evicted()))
    }

    fn reader_of(&mut self, requester: Requester) -> Option<(&mut Reader, FilterSet)> {
        match requester {
            Requester::Child(link) => {
                let child = self.children.get_mut(&link)?;
                Some((&mut child.reader, child.filters.clone()))
            }
            Requester::Subscription(client, id) => {
                let found = self.clients.get_mut(&client)?.subscriptions.get_mut(&id)?;
                Some((&mut found.reader, FilterSet::merge([&found.filter])))
            }
            Requester::Below(..) | Requester::Above(_) => None,
        }
    }

    /// Lets a reader go on from its cursor: out of the log, or by asking above.
    pub(in crate::node) fn catch_up(&mut self, requester: Requester) {
        // The reader is gone, or another agent asks, which catches up itself.
        let Some((reader, filters)) = self.reader_of(requester) else { return };
        let (cursor, since_ns, drained) = (reader.cursor, reader.since_ns, reader.is_drained());
        if reader.reads_conditions {
            return self.catch_up_conditions(requester, cursor, drained, &filters);
        }
        let complete = self.complete_since(&filters);
        let is_root = self.role.is_root();
        let query = || HistoryRequest {
            id: 0,
            epoch: self.epochs.head(),
            after: cursor,
            since_ns,
            filters: filters.filters().to_vec(),
            conditions: false,
        };
        if is_root && since_ns > 0 {
            if drained && self.is_older(since_ns) && self.search_history(requester, query()) {
                return self.wait_deeper(requester);
            }
            let (begin, gap) = self.look_back(since_ns);
            let Some((reader, _)) = self.reader_of(requester) else {
                return self.cx.impossible("ReaderStays");
            };
            reader.since_ns = 0;
            match gap {
                Some(gap) => reader.add_history(vec![gap], begin.max(cursor)),
                None => reader.resume_after(begin.max(cursor)),
            }
            return self.catch_up(requester);
        }
        let here = complete.is_some_and(|since| since <= cursor) && since_ns == 0;
        let lost = complete.filter(|since| is_root && *since > cursor);
        let lost = lost.map(|since| self.whole_since(since));
        if lost.is_some() {
            // What is kept for the reader is read first.
            if !drained || self.search_history(requester, query()) {
                return self.wait_deeper(requester);
            }
        }
        if let Some(since) = lost {
            return self.read_retained(requester, since, &filters);
        }
        let Some((reader, _)) = self.reader_of(requester) else {
            return self.cx.impossible("ReaderStays");
        };
        reader.catching_up = !here;
        if reader.catching_up && drained {
            return self.ask(requester, cursor, since_ns, &filters, false);
        }
        self.wake_requester(requester);
    }

    /// Lets a reader that begins with the table of conditions go on.
    fn catch_up_conditions(
        &mut self,
        requester: Requester,
        cursor: u64,
        drained: bool,
        filters: &FilterSet,
    ) {
        if drained && !self.role.is_root() {
            return self.ask(requester, cursor, 0, filters, true);
        }
        if drained {
            let reply = self.conditions_after(0, cursor, filters);
            return self.take_reply(requester, reply);
        }
        self.wake_requester(requester);
    }

    /// A reader at the acting root wants what no log has as a whole any more: it gets what is left
    /// of it, a piece at a time, with a gap for each hole.
    fn read_retained(&mut self, requester: Requester, since: u64, filters: &FilterSet) {
        let Some((reader, _)) = self.reader_of(requester) else {
            return self.cx.impossible("ReaderStays");
        };
        let (cursor, all) = (reader.cursor, reader.reads_repeated);
        let (mut items, covered) = self.retained(cursor, since, filters);
        if let Requester::Subscription(..) = requester {
            items = self.note_fetched(items, all);
        }
        let Some((reader, _)) = self.reader_of(requester) else {
            return self.cx.impossible("ReaderStays");
        };
        reader.add_history(items, covered);
        reader.catching_up = covered < since;
        self.wake_requester(requester);
    }

    /// What the log retains of a range that it does not have as a whole, as much as one answer
    /// takes, and up to which index that reaches.
    pub(in crate::node) fn retained(
        &self,
        after: u64,
        until: u64,
        filters: &FilterSet,
    ) -> (Vec<Item>, u64) {
        let begin = if self.role.is_root() { self.known_after() } else { self.log.known_after() };
        let mut items = Vec::new();
        if after < begin {
            items.push(self.retention_gap(after, begin.min(until)));
        }
        let (mut bytes, mut count) = (0, 0);
        let reported = self.log.with_gaps(after.max(begin), &self.epochs);
        for item in reported.map_while(|item| item.up_to(until)) {
            if bytes >= BATCH_BYTES_TARGET || count >= BATCH_EVENTS_MAX / 2 {
                return (items, item.covers_after());
            }
            for item in wanted(item, filters) {
                bytes += item.len();
                count += item.count();
                join_holes(&mut items, item);
            }
        }
        (items, until)
    }

    /// Where a look-back to a Unix time begins in memory; with a gap where the log may not go back
    /// that far.
    fn look_back(&self, since_ns: u64) -> (u64, Option<Item>) {
        let (begin, reached) = self.log.look_back(since_ns);
        let known_after = if self.role.is_root() { self.known_after() } else { begin };
        let begin = begin.max(known_after);
        let reached = reached && begin > known_after || begin == 0;
        (begin, (!reached).then(|| self.unknown_gap(0, begin)))
    }

    /// Where a reader goes on that misses something of what lies before an index: with a root that
    /// has no copy, behind all that is sent again, or it would come behind what is newer.
    fn whole_since(&self, since: u64) -> u64 {
        if self.role.is_root() { since.max(self.complete_after) } else { since }
    }

    /// A reader waits for a search.
    fn wait_deeper(&mut self, requester: Requester) {
        if let Some((reader, _)) = self.reader_of(requester) {
            reader.catching_up = true;
        }
        self.wake_requester(requester);
    }

    /// Whether something that memory has given up may not be older than a Unix time.
    fn is_older(&self, since_ns: u64) -> bool {
        self.log.evicted() > 0 && self.log.before(since_ns) <= self.log.evicted()
    }

    /// Behind which index the log is in memory.
    pub(in crate::node) fn memory_after(&self) -> u64 {
        match self.role.replica() {
            Some(replica) => replica.log.evicted(),
            _ => self.memory_after_root(),
        }
    }

    fn wake_requester(&mut self, requester: Requester) {
        match requester {
            Requester::Child(link) => self.cx.wake(link),
            Requester::Subscription(client, id) => self.wake_subscription(client, id),
            Requester::Below(..) | Requester::Above(_) => {}
        }
    }

    /// What says that the log does not go back that far. Where the log has lost nothing but by
    /// retention, each index was an event.
    pub(in crate::node) fn retention_gap(&self, after: u64, until: u64) -> Item {
        let mut item = self.unknown_gap(after, until);
        let incomplete = self.epochs.is_incomplete_after(after) || self.complete_after > after;
        if let Content::Gap(gap) = &mut item.content
            && !incomplete
        {
            gap.count = until - after;
        }
        item
    }

    /// The same where it is not known how much is missing.
    pub(in crate::node) fn unknown_gap(&self, after: u64, until: u64) -> Item {
        let gap = Gap {
            after: self.epochs.position(after),
            until: self.epochs.position(until),
            reason: GapReason::Retention,
            count: 0,
            severity_max: None,
            spaces: Spaces::ANY,
        };
        Item { index: until, content: Content::Gap(gap) }
    }

    fn ask(
        &mut self,
        requester: Requester,
        after: u64,
        since_ns: u64,
        filters: &FilterSet,
        conditions: bool,
    ) {
        let Some(parent) = self.role.parent().filter(|parent| parent.resumed.is_some()) else {
            return;
        };
        let link = parent.link;
        if self.is_requesting(requester) {
            return;
        }
        let query = HistoryRequest {
            id: 0,
            epoch: self.epochs.head(),
            after,
            since_ns,
            filters: filters.filters().to_vec(),
            conditions,
        };
        self.forward_request(link, requester, query);
    }

    /// Whether a question of that asker is under way.
    pub(in crate::node) fn is_requesting(&self, requester: Requester) -> bool {
        self.requests.values().any(|request| request.requester == requester)
    }

    /// Notes a question; gives its number, unless there are too many.
    pub(in crate::node) fn request(
        &mut self,
        requester: Requester,
        search: Option<HistorySearch>,
    ) -> Option<u64> {
        if self.requests.len() >= REQUESTS_MAX {
            return None;
        }
        self.next_request += 1;
        let request = PendingRequest { requester, sent_ns: self.cx.now.mono_ns, search };
        self.requests.insert(self.next_request, request);
        Some(self.next_request)
    }

    /// Another agent is asked: its time to answer begins.
    pub(in crate::node) fn restart_deadline(&mut self, id: u64) {
        if let Some(request) = self.requests.get_mut(&id) {
            request.sent_ns = self.cx.now.mono_ns;
        }
    }

    fn forward_request(&mut self, parent: LinkId, requester: Requester, mut query: HistoryRequest) {
        // There are too many: the requester asks again.
        let Some(id) = self.request(requester, None) else { return };
        query.id = id;
        self.cx.counters.history_requests += 1;
        // One that finds no room is asked again as one that was not answered.
        self.cx.send_if_room(parent, Frame::HistoryRequest(query));
    }

    /// A child asks for older events.
    pub(in crate::node) fn on_history_request(&mut self, link: LinkId, query: HistoryRequest) {
        let filters = FilterSet::merge(&query.filters);
        if query.epoch != self.epochs.head() {
            // The child asks again when it knows the new epoch history.
            self.cx.counters.stale += 1;
            return;
        }
        if query.conditions && self.role.is_root() {
            let answer = self.conditions_after(query.id, query.after, &filters);
            return self.cx.send_if_room(link, Frame::HistoryReply(answer));
        }
        let complete = self.complete_since(&filters);
        let here = complete.is_some_and(|since| since <= query.after)
            && query.since_ns == 0
            && !query.conditions;
        let requester = Requester::Below(link, query.id);
        if self.role.is_root() {
            let older = match query.since_ns {
                0 => !here,
                since_ns => self.is_older(since_ns),
            };
            if older && self.search_history(requester, query.clone()) {
                return;
            }
        }
        if here || self.role.is_root() {
            let answer = self.answer(&query);
            return self.cx.send_if_room(link, Frame::HistoryReply(answer));
        }
        if let Some(parent) = self.role.parent().map(|parent| parent.link) {
            self.forward_request(parent, requester, query);
        }
    }

    /// The next events behind the index that was asked for, out of the log here.
    pub(in crate::node) fn answer(&self, query: &HistoryRequest) -> HistoryReply {
        let filters = &FilterSet::merge(&query.filters);
        let until = self.commit_index;
        let mut items = Vec::new();
        let mut after = query.after;
        if query.since_ns > 0 {
            let (begin, gap) = self.look_back(query.since_ns);
            after = begin.max(after);
            items.extend(gap);
        }
        if let Some(since) = self.complete_since(filters)
            && since > after
        {
            let since = self.whole_since(since);
            let (retained, covered) = self.retained(after, since, filters);
            items.extend(retained);
            if covered < since || items.len() >= BATCH_EVENTS_MAX / 2 {
                return HistoryReply { id: query.id, items, covered, last: false };
            }
            after = since;
        }
        let mut reader = Reader::new(after);
        let cut = ReadLimit {
            bytes: BATCH_BYTES_TARGET,
            items: BATCH_EVENTS_MAX - items.len(),
            until,
            skip_repeated: false,
        };
        items.extend(reader.read(&self.log, cut, filters));
        let covered = reader.cursor;
        HistoryReply { id: query.id, items, covered, last: covered >= until }
    }

    /// An answer has come down.
    pub(in crate::node) fn on_history_reply(&mut self, reply: HistoryReply) {
        match self.requests.get(&reply.id) {
            Some(request) if request.search.is_none() => self.answered(reply),
            _ => self.cx.counters.stale += 1,
        }
    }

    /// A question is answered, from wherever.
    pub(in crate::node) fn answered(&mut self, reply: HistoryReply) {
        let Some(request) = self.requests.remove(&reply.id) else {
            return self.cx.impossible("RequestIsOpen");
        };
        match request.requester {
            Requester::Below(link, id) => {
                return self
                    .cx
                    .send_if_room(link, Frame::HistoryReply(HistoryReply { id, ..reply }));
            }
            Requester::Above(id) => return self.reply_to_root(HistoryReply { id, ..reply }),
            Requester::Child(_) | Requester::Subscription(..) => {}
        }
        self.take_reply(request.requester, reply);
    }

    /// A reader gets what it has asked for.
    fn take_reply(&mut self, requester: Requester, reply: HistoryReply) {
        let HistoryReply { mut items, covered, last, .. } = reply;
        // The reader is gone.
        let Some((reader, _)) = self.reader_of(requester) else { return };
        let all = reader.reads_repeated;
        if let Requester::Subscription(..) = requester {
            items = self.note_fetched(items, all);
        }
        let Some((reader, _)) = self.reader_of(requester) else {
            return self.cx.impossible("ReaderStays");
        };
        let (moved, held) = (covered > reader.cursor, reader.held_bytes());
        reader.since_ns = 0;
        reader.reads_conditions &= !last;
        reader.add_history(items, covered);
        let grown = reader.held_bytes().saturating_sub(held);
        if let Requester::Subscription(client, _) = requester {
            self.subscription_grew(client, grown);
        }
        match moved {
            true => self.catch_up(requester),
            false => self.end_catching_up(requester),
        }
        self.wake_requester(requester);
        if self.delivered_before.is_some() && !self.any_reader_catches_up() {
            self.delivered_before = None;
        }
    }

    /// An answer has nothing new. A reader that lacks nothing goes on with the log: an empty log
    /// has no entry that could move it. Any other asks again when the log moves.
    fn end_catching_up(&mut self, requester: Requester) {
        let Some((reader, filters)) = self.reader_of(requester) else {
            return self.cx.impossible("ReaderStays");
        };
        let cursor = reader.cursor;
        if self.complete_since(&filters).is_some_and(|since| since <= cursor)
            && let Some((reader, _)) = self.reader_of(requester)
        {
            reader.catching_up = false;
        }
    }

    /// All readers that wait for answers.
    fn catching_up(&self) -> Vec<Requester> {
        let children = self.children.iter().filter(|(_, c)| c.attached && c.reader.catching_up);
        let children = children.map(|(link, _)| Requester::Child(*link));
        let subscriptions = self.clients.iter().flat_map(|(client, found)| {
            let catching = found.subscriptions.iter().filter(|(_, s)| s.reader.catching_up);
            catching.map(|(id, _)| Requester::Subscription(*client, *id))
        });
        children.chain(subscriptions).collect()
    }

    /// Whether any reader waits for older events.
    pub(in crate::node) fn any_reader_catches_up(&self) -> bool {
        self.children.values().any(|child| child.reader.catching_up)
            || self
                .clients
                .values()
                .any(|client| client.subscriptions.values().any(|s| s.reader.catching_up))
    }

    /// Lets all readers that catch up try again; `again`: their questions are void.
    pub(in crate::node) fn catch_up_all(&mut self, again: bool) {
        if again {
            self.requests.clear();
        }
        for requester in self.catching_up() {
            self.catch_up(requester);
        }
    }

    pub(in crate::node) fn history_deadline_ns(&self) -> Option<u64> {
        let open = self.requests.values().filter(|request| request.may_be_late());
        let oldest = open.map(|request| request.sent_ns).min();
        oldest.map(|oldest| oldest.saturating_add(ns(self.cx.config.detection_ms)))
    }

    /// History requests without an answer are sent again, or another agent is asked.
    pub(in crate::node) fn on_history_timer(&mut self) {
        let before = self.cx.now.mono_ns.saturating_sub(ns(self.cx.config.detection_ms));
        let late = |request: &PendingRequest| request.may_be_late() && request.sent_ns <= before;
        let late: Vec<u64> =
            self.requests.iter().filter(|(_, q)| late(q)).map(|(id, _)| *id).collect();
        if late.is_empty() {
            return;
        }
        for id in late {
            match self.requests.get_mut(&id).map(PendingRequest::search) {
                Some(Some(_)) => self.search_next(id),
                _ => drop(self.requests.remove(&id)),
            }
        }
        self.catch_up_all(false);
    }

    /// A child that was asked is gone: the next is.
    pub(in crate::node) fn on_asked_child_gone(&mut self, child: LinkId) {
        let waiting = self.requests.iter().filter(|(_, request)| request.waits_for(child));
        for id in waiting.map(|(id, _)| *id).collect::<Vec<u64>>() {
            self.search_next(id);
        }
    }
}
