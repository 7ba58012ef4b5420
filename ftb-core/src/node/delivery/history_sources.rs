//! Events that are older than the memory of acting root or standby: from its own disk, or from a
//! child.
//!
//! The disk goes back further than memory. The shell reads it page by page, beside everything else.
//! A child may go back further too. The standby has a disk. Where a root took over without a copy
//! of the log, more entries may have passed by at others. They are asked one after the other. If
//! none has the events, the root reports a gap.
//!
//! Responsible for: which source is asked next, and the meaning of a page. Not responsible for: the
//! requester ([`crate::node::delivery::history`]), the content of a page ([`JournalPage::pick`]).

use crate::filter::FilterSet;
use crate::frame::{Frame, HistoryReply, HistoryRequest, Item};
use crate::node::api::{JournalPage, JournalRead, LinkId, Output};
use crate::node::cx::Cx;
use crate::node::delivery::history_turns::{DiskTurns, Requester};
use crate::node::delivery::{Delivery, ReadCx};
use crate::numbers::LogIndex;
use std::collections::{BTreeSet, VecDeque};

/// Pages that are read from the disk at once; the rest waits for its turn.
pub const JOURNAL_READS_MAX: usize = 8;
/// Most questions that wait for the disk; one more is answered without it.
const WAITING_MAX: usize = 1_024;
/// Children that are asked for what is in no other place.
const CHILDREN_ASKED_MAX: usize = 16;

/// What is being read from the disk.
#[derive(Default)]
pub(super) struct DiskReads {
    /// Pages that the shell has not given yet, wanted still or not.
    reads: BTreeSet<u64>,
    waiting: DiskTurns,
}

/// A request that this agent searches for.
#[derive(Clone, Debug)]
pub(super) struct HistorySearch {
    query: HistoryRequest,
    from: HistorySource,
    /// The next children that get the request.
    children: VecDeque<LinkId>,
    /// A page of the disk that does not begin where it should: for want of anything better.
    page: Option<HistoryReply>,
}

/// The source that got the request last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HistorySource {
    Disk,
    Child(LinkId),
}

/// Whether an answer can be one of the log here, which ends at that index: readers go on behind
/// what it covers. A log that was taken over may be committed at the child first.
fn check_reply(
    query: &HistoryRequest,
    reply: &HistoryReply,
    last: LogIndex,
) -> Result<(), &'static str> {
    if reply.covered > last {
        return Err("it covers more than the log has");
    }
    // What is asked for by its time begins anywhere.
    let mut before = if query.since_ns.is_some() { LogIndex::ZERO } else { query.after };
    for item in &reply.items {
        if item.index <= before {
            return Err("its entries do not rise");
        }
        before = item.last();
    }
    match before > reply.covered.max(query.after) {
        true => Err("its entries end elsewhere than it says"),
        false => Ok(()),
    }
}

impl HistorySearch {
    pub(super) fn waits_for(&self, child: LinkId) -> bool {
        self.from == HistorySource::Child(child)
    }

    /// A disk answers for certain, a child may not.
    pub(super) fn may_be_late(&self) -> bool {
        self.from != HistorySource::Disk
    }
}

impl Delivery {
    /// Looks for events that are not in memory any more. Says whether a source is asked, now or
    /// when it is the requester's turn.
    pub(super) fn search_history(
        &mut self,
        cx: &mut ReadCx<'_>,
        requester: Requester,
        query: HistoryRequest,
    ) -> bool {
        let disk = self.disk_may_hold(cx, &query);
        let children =
            if cx.around.is_root { self.history_holders(cx, requester, &query) } else { [].into() };
        if self.is_requesting(requester) {
            return true;
        }
        if !disk && children.is_empty() {
            return false;
        }
        if !self.may_ask(cx, requester) {
            return true;
        }
        let search = HistorySearch { query, from: HistorySource::Disk, children, page: None };
        // There are too many: memory must do.
        let Some(id) = self.request(cx, requester, Some(search)) else { return false };
        match disk {
            true => self.read_disk(cx, requester, id),
            false => self.search_next(cx, id),
        }
        true
    }

    /// Children that may have more than is here: the standby, which has a disk; where a root has
    /// taken over without a copy, all.
    fn history_holders(
        &self,
        cx: &ReadCx<'_>,
        requester: Requester,
        query: &HistoryRequest,
    ) -> VecDeque<LinkId> {
        // Who has just given its log away is not standby yet.
        let standby = cx.around.log_holder;
        let incomplete = !cx.log.epochs().keeps(cx.log.epochs().position(query.after + 1));
        let attached = self.children.iter().filter(|(_, child)| child.attached);
        let others =
            attached.map(|(link, _)| *link).filter(|link| incomplete && Some(*link) != standby);
        let all = standby.into_iter().chain(others).filter(|link| !requester.is_on(*link));
        all.take(CHILDREN_ASKED_MAX).collect()
    }

    /// Whether the disk may go back further than memory: it retains severe events from before what
    /// it has as a whole.
    fn disk_may_hold(&self, cx: &ReadCx<'_>, query: &HistoryRequest) -> bool {
        self.disk_reads.waiting.len() < WAITING_MAX
            && cx.disk_range().is_some_and(|(_, until)| query.after < until)
    }

    fn read_disk(&mut self, cx: &mut ReadCx<'_>, requester: Requester, id: u64) {
        self.disk_reads.waiting.push(requester.link(), id);
        self.read_waiting(cx);
    }

    /// Hands out what may be read at once.
    fn read_waiting(&mut self, cx: &mut ReadCx<'_>) {
        while self.disk_reads.reads.len() < JOURNAL_READS_MAX {
            let Some(id) = self.disk_reads.waiting.pop() else { return };
            let Some(query) = self.search_of(id).map(|search| search.query.clone()) else {
                continue;
            };
            let Some((_, until)) = cx.disk_range() else {
                self.search_next(cx, id);
                continue;
            };
            // What memory has is read there.
            let until = until.min(cx.memory_after);
            let filters = FilterSet::merge(&query.filters);
            let (after, since_ns) = (query.after, query.since_ns);
            self.disk_reads.reads.insert(id);
            cx.counters.history_reads += 1;
            let read = JournalRead { read: id, after, until, since_ns, filters };
            cx.push(Output::ReadJournal(read));
        }
    }

    /// The shell has read a page, or could not.
    pub(crate) fn on_journal_read(
        &mut self,
        cx: &mut ReadCx<'_>,
        id: u64,
        page: Option<JournalPage>,
    ) {
        self.disk_reads.reads.remove(&id);
        self.on_page(cx, id, page);
        self.read_waiting(cx);
    }

    fn on_page(&mut self, cx: &mut ReadCx<'_>, id: u64, page: Option<JournalPage>) {
        // The request is void, or was answered from elsewhere.
        let Some(search) = self.search_of(id) else { return };
        let query = search.query.clone();
        let Some(page) = page.filter(|page| page.until > query.after) else {
            return self.search_next(cx, id);
        };
        let JournalPage { after, mut items, mut until } = page;
        // Another disk may have what is missing here: it is asked where a hole comes first.
        let hole = items.iter().position(Item::is_range);
        if let Some(hole) = hole.filter(|hole| *hole > 0) {
            until = items.get(hole).map_or(until, Item::covers_after);
            items.truncate(hole);
        }
        // A time is not a place that anything is missing behind.
        let begins = (after <= query.after || query.since_ns.is_some()) && hole != Some(0);
        let answer = match begins {
            true => HistoryReply { id, items, covered: until, last: false },
            false => self.with_retained(cx, id, &query, JournalPage { after, items, until }),
        };
        match begins {
            true => self.answered(cx, answer),
            false => {
                if let Some(search) = self.search_of(id) {
                    search.page = Some(answer);
                }
                self.search_next(cx, id);
            }
        }
    }

    /// A page that begins too late, with what memory retains of what lies before it. Where that is
    /// much, it comes first: the page is read again.
    fn with_retained(
        &self,
        cx: &ReadCx<'_>,
        id: u64,
        query: &HistoryRequest,
        page: JournalPage,
    ) -> HistoryReply {
        let filters = FilterSet::merge(&query.filters);
        if page.after <= query.after || query.since_ns.is_some() {
            return HistoryReply { id, items: page.items, covered: page.until, last: false };
        }
        let range = (query.after, page.after);
        let (mut items, covered) = cx.log.retained(range, &filters, cx.around.is_root);
        if covered < page.after || items.len() > 1 {
            return HistoryReply { id, items, covered, last: false };
        }
        items.extend(page.items);
        HistoryReply { id, items, covered: page.until, last: false }
    }

    /// Asks the next who may have it, or gives up.
    pub(super) fn search_next(&mut self, cx: &mut ReadCx<'_>, id: u64) {
        loop {
            // The request became void while it waited for the disk.
            let Some(search) = self.search_of(id) else { return };
            let Some(link) = search.children.pop_front() else {
                let (query, page) = (search.query.clone(), search.page.take());
                let of_root = cx.around.is_root;
                let answer = match page.filter(|_| of_root) {
                    Some(page) => page,
                    None if of_root => self.answer(cx, &HistoryRequest { id, ..query }),
                    // The requester decides what to report.
                    None => {
                        HistoryReply { id, items: Vec::new(), covered: query.after, last: false }
                    }
                };
                return self.answered(cx, answer);
            };
            if self.children.contains_key(&link)
                && let Some(search) = self.search_of(id)
            {
                search.from = HistorySource::Child(link);
                let query = HistoryRequest { id, epoch: cx.log.head(), ..search.query.clone() };
                self.restart_deadline(cx, id);
                cx.counters.history_requests += 1;
                let query = query.for_any(cx.links.features(link));
                return cx.send_if_room(link, Frame::HistoryRequest(query));
            }
        }
    }

    /// A child answers what it was asked for.
    ///
    /// # Errors
    /// What no honest agent answers. Another child is asked.
    pub(crate) fn on_reply_from_child(
        &mut self,
        cx: &mut ReadCx<'_>,
        link: LinkId,
        reply: HistoryReply,
    ) -> Result<(), &'static str> {
        let Some(search) = self.search_of(reply.id).filter(|search| search.waits_for(link)) else {
            cx.counters.stale += 1;
            return Ok(());
        };
        let checked = check_reply(&search.query, &reply, cx.log.last());
        if checked.is_ok() && reply.covered > search.query.after {
            self.answered(cx, reply);
        } else {
            self.search_next(cx, reply.id);
        }
        checked
    }

    /// The acting root above asks for what it does not have (any more).
    pub(crate) fn on_request_from_root(&mut self, cx: &mut ReadCx<'_>, query: HistoryRequest) {
        let filters = FilterSet::merge(&query.filters);
        let complete = self.complete_since(cx, &filters);
        let of_now = query.epoch == cx.log.epochs().head();
        if of_now && query.since_ns.is_none() && complete.is_some_and(|since| since <= query.after)
        {
            let answer = self.answer(cx, &query);
            return self.reply_to_root(cx, answer);
        }
        let (id, after) = (query.id, query.after);
        if !of_now || !self.search_history(cx, Requester::Above(id), query) {
            self.reply_to_root(
                cx,
                HistoryReply { id, items: Vec::new(), covered: after, last: false },
            );
        }
    }

    pub(super) fn reply_to_root(&mut self, cx: &mut Cx, reply: HistoryReply) {
        if let Some(parent) = cx.around.parent_link() {
            cx.send_if_room(parent, Frame::HistoryReply(reply));
        }
    }
}
