//! Older events than what is here: asked for above, piece by piece, until the reader has reached
//! what its agent's own store has completely. The acting root looks deeper ([`super::deep`]).
//!
//! One question, one answer of at most one frame; the next is asked when the reader has taken the
//! last: nothing piles up. An answer that does not come (the way up has changed) is asked for again.

use super::Node;
use super::api::{ClientId, Gap, GapReason, LinkId, SubscriptionId};
use super::config::ns;
use super::deep::Search;
use super::reader::{Cut, Reader};
use crate::filter::FilterSet;
use crate::frame::{Content, Fetch, Fetched, Frame, Item};
use crate::limits::{BATCH_BYTES_TARGET, BATCH_EVENTS_MAX};
use crate::spaces::Spaces;

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// The reader of a child link.
    Child(LinkId),
    /// The reader of a subscription.
    Subscription(ClientId, SubscriptionId),
    /// A child that asked us; with its number of the question.
    Below(LinkId, u64),
    /// The acting root above; with its number of the question.
    Above(u64),
}

impl Asker {
    /// Whether it is that child, or below it.
    pub(super) fn is_on(self, child: LinkId) -> bool {
        match self {
            Self::Child(link) | Self::Below(link, _) => link == child,
            Self::Subscription(..) | Self::Above(_) => false,
        }
    }
}

/// A question that was passed on, or is being looked into here.
#[derive(Clone, Debug)]
pub(super) struct Question {
    asker: Asker,
    asked_ns: u64,
    search: Option<Search>,
}

impl Question {
    /// What is being looked into here.
    pub(super) fn search(&mut self) -> Option<&mut Search> {
        self.search.as_mut()
    }

    pub(super) fn is_for(&self, asker: Asker) -> bool {
        self.asker == asker
    }

    /// Whether a child has to do with it.
    pub(super) fn is_of(&self, child: LinkId) -> bool {
        self.asker.is_on(child)
    }

    /// Whether it waits for a child's answer.
    fn waits_for(&self, child: LinkId) -> bool {
        self.search.as_ref().is_some_and(|search| search.waits_for(child))
    }

    /// Whether its answer may fail to come.
    fn may_be_late(&self) -> bool {
        self.search.as_ref().is_none_or(Search::may_be_late)
    }
}

/// Most questions that wait for answers; one more waits until it is asked again.
const QUESTIONS_MAX: usize = 65_536;

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
    pub(super) fn complete_since(&self, filters: &FilterSet) -> Option<u64> {
        let known = self.interests.complete_since(filters);
        let since = match self.root {
            Some(_) => Some(known.unwrap_or(u64::MAX).min(self.full_since)),
            None => known,
        };
        since.map(|since| since.max(self.log.evicted()))
    }

    fn reader_of(&mut self, asker: Asker) -> Option<(&mut Reader, FilterSet)> {
        match asker {
            Asker::Child(link) => {
                let child = self.children.get_mut(&link)?;
                Some((&mut child.reader, child.filters.clone()))
            }
            Asker::Subscription(client, id) => {
                let found = self.clients.get_mut(&client)?.subscriptions.get_mut(&id)?;
                Some((&mut found.reader, FilterSet::merge([&found.filter])))
            }
            Asker::Below(..) | Asker::Above(_) => None,
        }
    }

    /// Lets a reader go on from its cursor: out of the log, or by asking above.
    pub(super) fn catch_up(&mut self, asker: Asker) {
        let Some((reader, filters)) = self.reader_of(asker) else { return };
        let (cursor, since_ns, drained) = (reader.cursor, reader.since_ns, reader.is_drained());
        let complete = self.complete_since(&filters);
        let is_root = self.root.is_some();
        let fetch = || Fetch {
            id: 0,
            epoch: self.lineage.head(),
            after: cursor,
            since_ns,
            filters: filters.filters().to_vec(),
        };
        if is_root && since_ns > 0 {
            if drained && self.is_older(since_ns) && self.look_deeper(asker, fetch()) {
                return self.wait_deeper(asker);
            }
            let (begin, gap) = self.look_back(since_ns);
            let Some((reader, _)) = self.reader_of(asker) else { return };
            reader.since_ns = 0;
            match gap {
                Some(gap) => reader.fetched(vec![gap], begin.max(cursor)),
                None => reader.seek(begin.max(cursor)),
            }
            return self.catch_up(asker);
        }
        let here = complete.is_some_and(|since| since <= cursor) && since_ns == 0;
        let lost = complete.filter(|since| is_root && *since > cursor);
        let lost = lost.map(|since| self.whole_since(since));
        if lost.is_some() {
            // What is kept for the reader is read first.
            if !drained || self.look_deeper(asker, fetch()) {
                return self.wait_deeper(asker);
            }
        }
        if let Some(since) = lost {
            return self.read_retained(asker, since, &filters);
        }
        let Some((reader, _)) = self.reader_of(asker) else { return };
        reader.catching_up = !here;
        if reader.catching_up && drained {
            return self.ask(asker, cursor, since_ns, &filters);
        }
        self.wake_asker(asker);
    }

    /// A reader at the acting root wants what no log has as a whole any more: it gets what is left of
    /// it, a piece at a time, with a gap for each hole.
    fn read_retained(&mut self, asker: Asker, since: u64, filters: &FilterSet) {
        let Some((reader, _)) = self.reader_of(asker) else { return };
        let (cursor, all) = (reader.cursor, reader.reads_repeated);
        let (mut items, covered) = self.retained(cursor, since, filters);
        if let Asker::Subscription(..) = asker {
            items = self.note_fetched(items, all);
        }
        let Some((reader, _)) = self.reader_of(asker) else { return };
        reader.fetched(items, covered);
        reader.catching_up = covered < since;
        self.wake_asker(asker);
    }

    /// What the log retains of a range that it does not have as a whole, as much as one answer takes,
    /// and up to which index that reaches.
    pub(super) fn retained(&self, after: u64, until: u64, filters: &FilterSet) -> (Vec<Item>, u64) {
        let begin = if self.root.is_some() { self.known_after() } else { self.log.known_after() };
        let mut items = Vec::new();
        if after < begin {
            items.push(self.retention_gap(after, begin.min(until)));
        }
        let (mut bytes, mut count) = (0, 0);
        let told = self.log.with_gaps(after.max(begin), &self.lineage);
        for item in told.map_while(|item| item.up_to(until)) {
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
        let known_after = if self.root.is_some() { self.known_after() } else { begin };
        let begin = begin.max(known_after);
        let reached = reached && begin > known_after || begin == 0;
        (begin, (!reached).then(|| self.unknown_gap(0, begin)))
    }

    /// Where a reader goes on that misses something of what lies before an index: with a root that has
    /// no copy, behind all that is sent again, or it would come behind what is newer.
    fn whole_since(&self, since: u64) -> u64 {
        if self.root.is_some() { since.max(self.full_since) } else { since }
    }

    /// A reader waits for what is looked for.
    fn wait_deeper(&mut self, asker: Asker) {
        if let Some((reader, _)) = self.reader_of(asker) {
            reader.catching_up = true;
        }
        self.wake_asker(asker);
    }

    /// Whether something that memory has given up may not be older than a Unix time.
    fn is_older(&self, since_ns: u64) -> bool {
        self.log.evicted() > 0 && self.log.before(since_ns) <= self.log.evicted()
    }

    /// Behind which index the log is in memory.
    pub(super) fn memory_after(&self) -> u64 {
        match &self.replica {
            Some(replica) if self.root.is_none() => replica.log.evicted(),
            _ => self.full_after(),
        }
    }

    fn wake_asker(&mut self, asker: Asker) {
        match asker {
            Asker::Child(link) => self.wake(link),
            Asker::Subscription(client, id) => self.wake_subscription(client, id),
            Asker::Below(..) | Asker::Above(_) => {}
        }
    }

    /// What says that the log does not go back that far. Where the log has lost nothing but by
    /// retention, each index was an event.
    pub(super) fn retention_gap(&self, after: u64, until: u64) -> Item {
        let mut item = self.unknown_gap(after, until);
        let torn = self.lineage.is_torn_behind(after) || self.full_since > after;
        if let Content::Gap(gap) = &mut item.content
            && !torn
        {
            gap.count = until - after;
        }
        item
    }

    /// The same where it is not known how much is missing.
    pub(super) fn unknown_gap(&self, after: u64, until: u64) -> Item {
        let gap = Gap {
            after: self.lineage.position(after),
            until: self.lineage.position(until),
            reason: GapReason::Retention,
            count: 0,
            severity_max: None,
            spaces: Spaces::ANY,
        };
        Item { index: until, content: Content::Gap(gap) }
    }

    fn ask(&mut self, asker: Asker, after: u64, since_ns: u64, filters: &FilterSet) {
        let Some(parent) = self.uplink.parent().filter(|parent| parent.resumed.is_some()) else {
            return;
        };
        let link = parent.link;
        if self.is_asking(asker) {
            return;
        }
        let fetch = Fetch {
            id: 0,
            epoch: self.lineage.head(),
            after,
            since_ns,
            filters: filters.filters().to_vec(),
        };
        self.pass_up(link, asker, fetch);
    }

    /// Whether a question of that asker is under way.
    pub(super) fn is_asking(&self, asker: Asker) -> bool {
        self.questions.values().any(|question| question.asker == asker)
    }

    /// Notes a question; gives its number, unless there are too many.
    pub(super) fn question(&mut self, asker: Asker, search: Option<Search>) -> Option<u64> {
        if self.questions.len() >= QUESTIONS_MAX {
            return None;
        }
        self.next_question += 1;
        let question = Question { asker, asked_ns: self.now.mono_ns, search };
        self.questions.insert(self.next_question, question);
        Some(self.next_question)
    }

    /// Somebody else is asked: the time to wait for an answer begins.
    pub(super) fn asked_again(&mut self, id: u64) {
        if let Some(question) = self.questions.get_mut(&id) {
            question.asked_ns = self.now.mono_ns;
        }
    }

    fn pass_up(&mut self, parent: LinkId, asker: Asker, mut fetch: Fetch) {
        let Some(id) = self.question(asker, None) else { return };
        fetch.id = id;
        self.counters.fetches += 1;
        // One that finds no room is asked again as one that was not answered.
        self.say_if_room(parent, Frame::Fetch(fetch));
    }

    /// A child asks for older events.
    pub(super) fn fetch(&mut self, link: LinkId, fetch: Fetch) {
        let filters = FilterSet::merge(&fetch.filters);
        if fetch.epoch != self.lineage.head() {
            // It will ask again in the lineage that it is being told.
            self.counters.stale += 1;
            return;
        }
        let complete = self.complete_since(&filters);
        let here = complete.is_some_and(|since| since <= fetch.after) && fetch.since_ns == 0;
        let asker = Asker::Below(link, fetch.id);
        if self.root.is_some() {
            let older = match fetch.since_ns {
                0 => !here,
                since_ns => self.is_older(since_ns),
            };
            if older && self.look_deeper(asker, fetch.clone()) {
                return;
            }
        }
        if here || self.root.is_some() {
            let answer = self.answer(&fetch);
            return self.say_if_room(link, Frame::Fetched(answer));
        }
        if let Some(parent) = self.uplink.parent().map(|parent| parent.link) {
            self.pass_up(parent, asker, fetch);
        }
    }

    /// The next events behind the index that was asked for, out of the log here.
    pub(super) fn answer(&self, fetch: &Fetch) -> Fetched {
        let filters = &FilterSet::merge(&fetch.filters);
        let until = self.consumed;
        let mut items = Vec::new();
        let mut after = fetch.after;
        if fetch.since_ns > 0 {
            let (begin, gap) = self.look_back(fetch.since_ns);
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
                return Fetched { id: fetch.id, items, covered, last: false };
            }
            after = since;
        }
        let mut reader = Reader::new(after);
        let cut = Cut {
            bytes: BATCH_BYTES_TARGET,
            items: BATCH_EVENTS_MAX - items.len(),
            until,
            skip_repeated: false,
        };
        items.extend(reader.read(&self.log, cut, filters));
        let covered = reader.cursor;
        Fetched { id: fetch.id, items, covered, last: covered >= until }
    }

    /// An answer has come down.
    pub(super) fn fetched(&mut self, fetched: Fetched) {
        match self.questions.get(&fetched.id) {
            Some(question) if question.search.is_none() => self.answered(fetched),
            _ => self.counters.stale += 1,
        }
    }

    /// A question is answered, from wherever.
    pub(super) fn answered(&mut self, fetched: Fetched) {
        let Some(question) = self.questions.remove(&fetched.id) else { return };
        match question.asker {
            Asker::Below(link, id) => {
                return self.say_if_room(link, Frame::Fetched(Fetched { id, ..fetched }));
            }
            Asker::Above(id) => return self.tell_above(Fetched { id, ..fetched }),
            Asker::Child(_) | Asker::Subscription(..) => {}
        }
        let Fetched { mut items, covered, .. } = fetched;
        let Some((reader, _)) = self.reader_of(question.asker) else { return };
        let all = reader.reads_repeated;
        if let Asker::Subscription(..) = question.asker {
            items = self.note_fetched(items, all);
        }
        let Some((reader, _)) = self.reader_of(question.asker) else { return };
        let (moved, held) = (covered > reader.cursor, reader.held_bytes());
        reader.since_ns = 0;
        reader.fetched(items, covered);
        let grown = reader.held_bytes().saturating_sub(held);
        if let Asker::Subscription(client, _) = question.asker {
            self.subscription_grew(client, grown);
        }
        match moved {
            true => self.catch_up(question.asker),
            false => self.end_catching_up(question.asker),
        }
        self.wake_asker(question.asker);
        if self.had.is_some() && !self.anybody_catches_up() {
            self.had = None;
        }
    }

    /// An answer has nothing new. A reader that lacks nothing goes on with the log: an empty log has no
    /// entry that could move it. Any other asks again when the log moves.
    fn end_catching_up(&mut self, asker: Asker) {
        let Some((reader, filters)) = self.reader_of(asker) else { return };
        let cursor = reader.cursor;
        if self.complete_since(&filters).is_some_and(|since| since <= cursor)
            && let Some((reader, _)) = self.reader_of(asker)
        {
            reader.catching_up = false;
        }
    }

    /// All readers that wait for answers.
    fn catching_up(&self) -> Vec<Asker> {
        let children = self.children.iter().filter(|(_, c)| c.attached && c.reader.catching_up);
        let children = children.map(|(link, _)| Asker::Child(*link));
        let subscriptions = self.clients.iter().flat_map(|(client, found)| {
            let catching = found.subscriptions.iter().filter(|(_, s)| s.reader.catching_up);
            catching.map(|(id, _)| Asker::Subscription(*client, *id))
        });
        children.chain(subscriptions).collect()
    }

    /// Whether any reader waits for older events.
    pub(super) fn anybody_catches_up(&self) -> bool {
        self.children.values().any(|child| child.reader.catching_up)
            || self
                .clients
                .values()
                .any(|client| client.subscriptions.values().any(|s| s.reader.catching_up))
    }

    /// Lets all readers that catch up try again; `again`: their questions are void.
    pub(super) fn catch_up_all(&mut self, again: bool) {
        if again {
            self.questions.clear();
        }
        for asker in self.catching_up() {
            self.catch_up(asker);
        }
    }

    pub(super) fn fetch_deadline_ns(&self) -> u64 {
        let open = self.questions.values().filter(|question| question.may_be_late());
        let oldest = open.map(|question| question.asked_ns).min();
        oldest.map_or(u64::MAX, |oldest| oldest.saturating_add(ns(self.config.detection_ms)))
    }

    /// Questions that were not answered are asked again, or somebody else is.
    pub(super) fn fetch_tick(&mut self) {
        let before = self.now.mono_ns.saturating_sub(ns(self.config.detection_ms));
        let late = |question: &Question| question.may_be_late() && question.asked_ns <= before;
        let late: Vec<u64> =
            self.questions.iter().filter(|(_, q)| late(q)).map(|(id, _)| *id).collect();
        if late.is_empty() {
            return;
        }
        for id in late {
            match self.questions.get_mut(&id).map(Question::search) {
                Some(Some(_)) => self.look_on(id),
                _ => drop(self.questions.remove(&id)),
            }
        }
        self.catch_up_all(false);
    }

    /// A child that was asked is gone: the next is.
    pub(super) fn asked_child_gone(&mut self, child: LinkId) {
        let waiting = self.questions.iter().filter(|(_, question)| question.waits_for(child));
        for id in waiting.map(|(id, _)| *id).collect::<Vec<u64>>() {
            self.look_on(id);
        }
    }
}
