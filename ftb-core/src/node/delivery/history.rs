//! Events that are older than the log here: requested from the parent, piece by piece, until the
//! reader has reached the part that is complete here. The acting root uses further sources
//! ([`crate::node::delivery::history_sources`]).
//!
//! One request has one reply of at most one frame. The reader takes it before the next request. A
//! reply may be lost when the uplink changes: then the request is sent again.

use crate::filter::FilterSet;
use crate::frame::{Frame, HistoryReply, HistoryRequest};
use crate::limits::{BATCH_BYTES_TARGET, BATCH_EVENTS_MAX};
use crate::log::followed::FollowedLog;
use crate::log::reader::{ReadLimit, Reader};
use crate::node::api::LinkId;
use crate::node::config::ns;
use crate::node::cx::Cx;
use crate::node::delivery::children::filters_of;
use crate::node::delivery::history_sources::HistorySearch;
use crate::node::delivery::history_turns::Requester;
use crate::node::delivery::{Delivery, ReadCx};
use crate::node::timers::Timer;
use crate::numbers::LogIndex;
use std::collections::BTreeSet;

/// A request that was forwarded, or that this agent searches for.
#[derive(Clone, Debug)]
pub(super) struct PendingRequest {
    requester: Requester,
    /// The user of a subscription here, which may have ended.
    uid: Option<u32>,
    sent_ns: u64,
    search: Option<HistorySearch>,
}

impl PendingRequest {
    pub(super) fn is_search(&self) -> bool {
        self.search.is_some()
    }

    pub(super) fn uid(&self) -> Option<u32> {
        self.uid
    }

    pub(super) fn is_for(&self, requester: Requester) -> bool {
        self.requester == requester
    }

    /// Whether a child has to do with it.
    pub(super) fn is_of(&self, child: LinkId) -> bool {
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

/// A request for the events after an index.
fn request_after(
    log: &FollowedLog,
    (after, since_ns): (LogIndex, Option<u64>),
    filters: &FilterSet,
) -> HistoryRequest {
    let filters = filters.filters().to_vec();
    HistoryRequest { id: 0, epoch: log.head(), after, since_ns, filters, conditions: false }
}

/// The next rows of the table of conditions.
fn conditions_reply(
    cx: &ReadCx<'_>,
    id: u64,
    after: LogIndex,
    filters: &FilterSet,
) -> HistoryReply {
    let (items, covered, last) = cx.log.conditions_after(after, filters);
    HistoryReply { id, items, covered, last }
}

impl Delivery {
    /// The index behind which everything that these filters match is in the log here; `None`: not
    /// yet known.
    pub(super) fn complete_since(&self, cx: &ReadCx<'_>, filters: &FilterSet) -> Option<LogIndex> {
        let known = self.interests.complete_since(filters);
        let since = match cx.around.is_root {
            true => Some(known.map_or(cx.log.complete_after(), |k| k.min(cx.log.complete_after()))),
            false => known,
        };
        since.map(|since| since.max(cx.log.entries().evicted()))
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
            Requester::Below(..) | Requester::Above(_) | Requester::Ended => None,
        }
    }

    /// Lets a reader go on from its cursor: out of the log, or by asking above.
    pub(super) fn catch_up(&mut self, cx: &mut ReadCx<'_>, requester: Requester) {
        // The reader is gone, or another agent asks, which catches up itself.
        let Some((reader, filters)) = self.reader_of(requester) else { return };
        let (cursor, since_ns, drained) = (reader.cursor, reader.since_ns, reader.is_drained());
        if reader.reads_conditions {
            return match drained {
                true => self.catch_up_conditions(cx, (requester, cursor), &filters),
                false => self.wake_requester(cx, requester),
            };
        }
        let complete = self.complete_since(cx, &filters);
        let is_root = cx.around.is_root;
        let log = cx.log;
        let query = || request_after(log, (cursor, since_ns), &filters);
        if let Some(since_ns) = since_ns.filter(|_| is_root) {
            if drained && cx.log.is_older(since_ns) && self.search_history(cx, requester, query()) {
                return self.wait_deeper(cx, requester);
            }
            let (begin, gap) = cx.log.look_back(since_ns, true);
            let Some((reader, _)) = self.reader_of(requester) else {
                return cx.impossible("ReaderStays");
            };
            reader.since_ns = None;
            match gap {
                Some(gap) => reader.add_history(vec![gap], begin.max(cursor)),
                None => reader.resume_after(begin.max(cursor)),
            }
            return self.catch_up(cx, requester);
        }
        let is_here = complete.is_some_and(|since| since <= cursor) && since_ns.is_none();
        let lost = complete.filter(|since| is_root && *since > cursor);
        let lost = lost.map(|since| since.max(cx.log.complete_after()));
        if lost.is_some() {
            // What is kept for the reader is read first.
            if !drained || self.search_history(cx, requester, query()) {
                return self.wait_deeper(cx, requester);
            }
        }
        if let Some(since) = lost {
            return self.read_retained(cx, requester, since, &filters);
        }
        let Some((reader, _)) = self.reader_of(requester) else {
            return cx.impossible("ReaderStays");
        };
        reader.catching_up = !is_here;
        if reader.catching_up && drained {
            return self.ask(cx, requester, query());
        }
        self.wake_requester(cx, requester);
    }

    /// Lets a reader that begins with the table of conditions go on.
    fn catch_up_conditions(
        &mut self,
        cx: &mut ReadCx<'_>,
        (requester, cursor): (Requester, LogIndex),
        filters: &FilterSet,
    ) {
        if !cx.around.is_root {
            let query = request_after(cx.log, (cursor, None), filters);
            return self.ask(cx, requester, HistoryRequest { conditions: true, ..query });
        }
        self.take_reply(cx, requester, conditions_reply(cx, 0, cursor, filters));
    }

    /// A reader at the acting root wants what no log has as a whole any more: it gets what is left
    /// of it, a piece at a time, with a gap for each hole.
    fn read_retained(
        &mut self,
        cx: &mut ReadCx<'_>,
        requester: Requester,
        since: LogIndex,
        filters: &FilterSet,
    ) {
        let Some((reader, _)) = self.reader_of(requester) else {
            return cx.impossible("ReaderStays");
        };
        let (cursor, all) = (reader.cursor, reader.reads_repeated);
        let (mut items, covered) = cx.log.retained((cursor, since), filters, true);
        if let Requester::Subscription(..) = requester {
            items = self.note_fetched(cx, items, all);
        }
        let Some((reader, _)) = self.reader_of(requester) else {
            return cx.impossible("ReaderStays");
        };
        reader.add_history(items, covered);
        reader.catching_up = covered < since;
        if reader.catching_up && reader.is_drained() {
            self.stall(requester);
        }
        self.wake_requester(cx, requester);
    }

    /// A reader waits for a search.
    fn wait_deeper(&mut self, cx: &mut Cx, requester: Requester) {
        if let Some((reader, _)) = self.reader_of(requester) {
            reader.catching_up = true;
        }
        self.wake_requester(cx, requester);
    }

    fn wake_requester(&mut self, cx: &mut Cx, requester: Requester) {
        match requester {
            Requester::Child(link) => cx.wake(link),
            Requester::Subscription(client, id) => self.wake_subscription(cx, client, id),
            Requester::Below(..) | Requester::Above(_) | Requester::Ended => {}
        }
    }

    fn ask(&mut self, cx: &mut Cx, requester: Requester, query: HistoryRequest) {
        let parent = cx.around.parent.as_ref().filter(|parent| parent.has_resumed);
        let Some(link) = parent.map(|parent| parent.link) else { return self.stall(requester) };
        if !self.is_requesting(requester) && self.may_ask(cx, requester) {
            self.forward_request(cx, link, requester, query);
        }
    }

    /// A reader cannot ask now: it asks again when the log moves, or when all do.
    fn stall(&mut self, requester: Requester) {
        if let Requester::Child(_) | Requester::Subscription(..) = requester {
            self.stalled.insert(requester);
        }
    }

    /// The log has moved: readers that could not ask do. Those that wait for an answer, or for
    /// their turn to ask, cost nothing here.
    pub(crate) fn catch_up_stalled(&mut self, cx: &mut ReadCx<'_>) {
        for requester in std::mem::take(&mut self.stalled) {
            self.catch_up_again(cx, requester);
        }
        debug_assert_eq!(self.forgotten(), None, "NoReaderIsForgotten");
    }

    /// Lets a reader try again, unless it has gone on since.
    pub(super) fn catch_up_again(&mut self, cx: &mut ReadCx<'_>, requester: Requester) {
        if self.reader_of(requester).is_some_and(|(reader, _)| reader.catching_up) {
            self.catch_up(cx, requester);
        }
    }

    /// A reader that waits for older events, and that nothing will let go on.
    fn forgotten(&self) -> Option<Requester> {
        let asked: BTreeSet<Requester> =
            self.requests.values().map(|request| request.requester).collect();
        let waits = |requester: Requester| {
            asked.contains(&requester)
                || self.stalled.contains(&requester)
                || self.turns.contains(requester)
        };
        let drained = self.catching_up().filter(|(_, reader)| reader.is_drained());
        drained.map(|(requester, _)| requester).find(|requester| !waits(*requester))
    }

    /// Subscriptions have ended. Their questions count until they are answered; for another
    /// subscription that may get the same number the answer is none.
    pub(super) fn end_requests(&mut self, has_ended: impl Fn(Requester) -> bool) {
        self.stalled.retain(|requester| !has_ended(*requester));
        for request in self.requests.values_mut().filter(|request| has_ended(request.requester)) {
            request.requester = Requester::Ended;
        }
    }

    /// Whether a question of that requester is under way.
    pub(super) fn is_requesting(&self, requester: Requester) -> bool {
        self.requests.values().any(|request| request.requester == requester)
    }

    pub(super) fn has_too_many_requests(&self) -> bool {
        self.requests.len() >= REQUESTS_MAX
    }

    /// Notes a question; gives its number, unless there are too many.
    pub(super) fn request(
        &mut self,
        cx: &Cx,
        requester: Requester,
        search: Option<HistorySearch>,
    ) -> Option<u64> {
        if self.has_too_many_requests() {
            return None;
        }
        self.next_request += 1;
        let uid = self.uid_of(requester);
        let request = PendingRequest { requester, uid, sent_ns: cx.now.mono_ns, search };
        self.requests.insert(self.next_request, request);
        Some(self.next_request)
    }

    /// The search for a question here.
    pub(super) fn search_of(&mut self, id: u64) -> Option<&mut HistorySearch> {
        self.requests.get_mut(&id)?.search.as_mut()
    }

    /// Another agent is asked: its time to answer begins.
    pub(super) fn restart_deadline(&mut self, cx: &Cx, id: u64) {
        if let Some(request) = self.requests.get_mut(&id) {
            request.sent_ns = cx.now.mono_ns;
        }
    }

    fn forward_request(
        &mut self,
        cx: &mut Cx,
        parent: LinkId,
        requester: Requester,
        mut query: HistoryRequest,
    ) {
        // There are too many: the requester asks again.
        let Some(id) = self.request(cx, requester, None) else { return self.stall(requester) };
        query.id = id;
        cx.counters.history_requests += 1;
        // One that finds no room is asked again as one that was not answered.
        let query = query.for_any(cx.links.features(parent));
        cx.send_if_room(parent, Frame::HistoryRequest(query));
    }

    /// A child asks for older events.
    pub(crate) fn on_history_request(
        &mut self,
        cx: &mut ReadCx<'_>,
        link: LinkId,
        query: HistoryRequest,
    ) {
        let filters = filters_of(cx.links.features(link), query.filters);
        let query = HistoryRequest { filters: filters.filters().to_vec(), ..query };
        if query.epoch != cx.log.epochs().head() {
            // The child asks again when it knows the new epoch history.
            cx.counters.stale += 1;
            return;
        }
        if query.conditions && cx.around.is_root {
            let answer = conditions_reply(cx, query.id, query.after, &filters);
            return cx.send_if_room(link, Frame::HistoryReply(answer));
        }
        let complete = self.complete_since(cx, &filters);
        let is_here = complete.is_some_and(|since| since <= query.after)
            && query.since_ns.is_none()
            && !query.conditions;
        let requester = Requester::Below(link, query.id);
        if cx.around.is_root {
            let older = match query.since_ns {
                None => !is_here,
                Some(since_ns) => cx.log.is_older(since_ns),
            };
            if older && self.search_history(cx, requester, query.clone()) {
                return;
            }
        }
        if is_here || cx.around.is_root {
            let answer = self.answer(cx, &query);
            return cx.send_if_room(link, Frame::HistoryReply(answer));
        }
        if let Some(parent) = cx.around.parent_link() {
            self.forward_request(cx, parent, requester, query);
        }
    }

    /// The next events behind the index that was asked for, out of the log here.
    pub(super) fn answer(&self, cx: &mut ReadCx<'_>, query: &HistoryRequest) -> HistoryReply {
        let filters = &FilterSet::merge(&query.filters);
        let until = cx.log.commit_index();
        let mut items = Vec::new();
        let mut after = query.after;
        if let Some(since_ns) = query.since_ns {
            let (begin, gap) = cx.log.look_back(since_ns, cx.around.is_root);
            after = begin.max(after);
            items.extend(gap);
        }
        if let Some(since) = self.complete_since(cx, filters)
            && since > after
        {
            let is_root = cx.around.is_root;
            let since = if is_root { since.max(cx.log.complete_after()) } else { since };
            let (retained, covered) = cx.log.retained((after, since), filters, is_root);
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
        items.extend(reader.read(cx.log.entries(), cut, filters));
        let covered = reader.cursor;
        HistoryReply { id: query.id, items, covered, last: covered >= until }
    }

    /// An answer has come down.
    pub(crate) fn on_history_reply(&mut self, cx: &mut ReadCx<'_>, reply: HistoryReply) {
        match self.requests.get(&reply.id) {
            Some(request) if request.search.is_none() => self.answered(cx, reply),
            _ => cx.counters.stale += 1,
        }
    }

    /// Passes the answer to a history request on to its requester.
    pub(super) fn answered(&mut self, cx: &mut ReadCx<'_>, reply: HistoryReply) {
        let Some(request) = self.requests.remove(&reply.id) else {
            return cx.impossible("RequestIsOpen");
        };
        match request.requester {
            Requester::Below(link, id) => {
                cx.send_if_room(link, Frame::HistoryReply(HistoryReply { id, ..reply }));
            }
            Requester::Above(id) => self.reply_to_root(cx, HistoryReply { id, ..reply }),
            Requester::Child(_) | Requester::Subscription(..) => {
                self.take_reply(cx, request.requester, reply);
            }
            Requester::Ended => {}
        }
        self.next_turn(cx);
    }

    /// A reader gets what it has asked for.
    fn take_reply(&mut self, cx: &mut ReadCx<'_>, requester: Requester, reply: HistoryReply) {
        let HistoryReply { mut items, covered, last, .. } = reply;
        // The reader is gone.
        let Some((reader, _)) = self.reader_of(requester) else { return };
        let all = reader.reads_repeated;
        if let Requester::Subscription(..) = requester {
            items = self.note_fetched(cx, items, all);
        }
        let Some((reader, _)) = self.reader_of(requester) else {
            return cx.impossible("ReaderStays");
        };
        let (moved, held) = (covered > reader.cursor, reader.held_bytes());
        reader.since_ns = None;
        reader.reads_conditions &= !last;
        reader.add_history(items, covered);
        let grown = reader.held_bytes().saturating_sub(held);
        if let Requester::Subscription(client, _) = requester {
            self.subscription_grew(cx, client, grown);
        }
        match moved {
            true => self.catch_up(cx, requester),
            false => self.end_catching_up(cx, requester),
        }
        self.wake_requester(cx, requester);
        if self.delivered_before.is_some() && !self.any_reader_catches_up() {
            self.delivered_before = None;
        }
    }

    /// An answer has nothing new. A reader that lacks nothing goes on with the log: an empty log
    /// has no entry that could move it. Any other asks again when the log moves.
    fn end_catching_up(&mut self, cx: &mut ReadCx<'_>, requester: Requester) {
        let Some((reader, filters)) = self.reader_of(requester) else {
            return cx.impossible("ReaderStays");
        };
        let cursor = reader.cursor;
        let is_here = self.complete_since(cx, &filters).is_some_and(|since| since <= cursor);
        match self.reader_of(requester) {
            Some((reader, _)) if is_here => reader.catching_up = false,
            _ => self.stall(requester),
        }
    }

    /// All readers that wait for answers.
    fn catching_up(&self) -> impl Iterator<Item = (Requester, &Reader)> {
        let children = self.children.iter().filter(|(_, child)| child.attached);
        let children = children.map(|(link, child)| (Requester::Child(*link), &child.reader));
        let subscriptions = self.clients.iter().flat_map(|(client, found)| {
            let readers = found.subscriptions.iter().map(|(id, found)| (id, &found.reader));
            readers.map(|(id, reader)| (Requester::Subscription(*client, *id), reader))
        });
        children.chain(subscriptions).filter(|(_, reader)| reader.catching_up)
    }

    /// Whether any reader waits for older events.
    fn any_reader_catches_up(&self) -> bool {
        self.children.values().any(|child| child.reader.catching_up)
            || self
                .clients
                .values()
                .any(|client| client.subscriptions.values().any(|s| s.reader.catching_up))
    }

    /// Lets all readers that catch up try again; `again`: their questions are void.
    pub(crate) fn catch_up_all(&mut self, cx: &mut ReadCx<'_>, again: bool) {
        if again {
            self.requests.clear();
        }
        self.stalled.clear();
        let all: Vec<Requester> = self.catching_up().map(|(requester, _)| requester).collect();
        all.into_iter().for_each(|requester| self.catch_up(cx, requester));
    }

    /// A timer of this part expires.
    pub(crate) fn on_timer(&mut self, cx: &mut ReadCx<'_>, timer: Timer) {
        match timer {
            Timer::HistoryRequest => self.on_history_timer(cx),
            Timer::Covered => self.on_covered_timer(cx),
            Timer::MergeInterest => self.on_merge_timer(cx),
            _ => cx.impossible("TimerOfDelivery"),
        }
    }

    pub(crate) fn history_deadline_ns(&self, cx: &Cx) -> Option<u64> {
        let open = self.requests.values().filter(|request| request.may_be_late());
        let oldest = open.map(|request| request.sent_ns).min();
        oldest.map(|oldest| oldest.saturating_add(ns(cx.config.detection_ms)))
    }

    /// History requests without an answer are sent again, or another agent is asked.
    pub(super) fn on_history_timer(&mut self, cx: &mut ReadCx<'_>) {
        let before = cx.now.mono_ns.saturating_sub(ns(cx.config.detection_ms));
        let late = |request: &PendingRequest| request.may_be_late() && request.sent_ns <= before;
        let late: Vec<u64> =
            self.requests.iter().filter(|(_, q)| late(q)).map(|(id, _)| *id).collect();
        if late.is_empty() {
            return;
        }
        for id in late {
            match self.search_of(id) {
                Some(_) => self.search_next(cx, id),
                None => drop(self.requests.remove(&id)),
            }
        }
        self.catch_up_all(cx, false);
    }

    /// A child that was asked is gone: the next is.
    pub(super) fn on_asked_child_gone(&mut self, cx: &mut ReadCx<'_>, child: LinkId) {
        let waiting = self.requests.iter().filter(|(_, request)| request.waits_for(child));
        for id in waiting.map(|(id, _)| *id).collect::<Vec<u64>>() {
            self.search_next(cx, id);
        }
    }
}
