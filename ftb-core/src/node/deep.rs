//! Older events than what acting root (or standby) has in memory: from its own disk, or from a child
//! that has them.
//!
//! The disk goes back further than memory, and is read a page at a time, by the shell, while everything
//! else goes on. A child may go back further too: the standby has a disk of its own, and where a root
//! took over without a copy of the log, others may have had more pass by than it. They are asked one
//! after the other. Only when nobody has them, that is told as a gap.
//!
//! Responsible for: who is asked next, and what a page means. Not responsible for: who wanted it
//! ([`super::fetch`]), how a page is read ([`JournalPage::pick`] says what is to be in it).

use super::Node;
use super::api::{JournalPage, JournalRead, LinkId, Output};
use super::fetch::{Asker, Question};
use super::log::Log;
use super::reader::{Cut, Reader};
use crate::filter::FilterSet;
use crate::frame::{Content, Fetch, Fetched, Frame, Item};
use crate::limits::{BATCH_BYTES_TARGET, BATCH_EVENTS_MAX};
use crate::run::Run;
use std::collections::{BTreeSet, VecDeque};

/// Pages that are read from the disk at once; the rest waits for its turn.
pub const JOURNAL_READS_MAX: usize = 8;
/// Most questions that wait for the disk; one more is answered without it.
const WAITING_MAX: usize = 1_024;
/// Children that are asked for what is in no other place.
const CHILDREN_ASKED_MAX: usize = 16;

/// What is being read from the disk.
#[derive(Default)]
pub(super) struct Deep {
    /// Pages that the shell has not given yet, wanted still or not.
    reads: BTreeSet<u64>,
    waiting: VecDeque<u64>,
}

/// A question that is being looked into here.
#[derive(Clone, Debug)]
pub(super) struct Search {
    fetch: Fetch,
    from: Source,
    /// Who is to be asked next.
    children: VecDeque<LinkId>,
    /// A page of the disk that does not begin where it should: for want of anything better.
    page: Option<Fetched>,
}

/// Who has been asked last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Disk,
    Child(LinkId),
}

impl Search {
    pub(super) fn waits_for(&self, child: LinkId) -> bool {
        self.from == Source::Child(child)
    }

    /// A disk answers for certain, a child may not.
    pub(super) fn may_be_late(&self) -> bool {
        self.from != Source::Disk
    }
}

impl JournalPage {
    /// What of some entries of a log is to be in the page that a read is answered with. The entries
    /// follow each other and begin behind `after`.
    pub fn pick(read: &JournalRead, after: u64, entries: impl IntoIterator<Item = Item>) -> Self {
        let mut log = Log::new(after);
        entries.into_iter().for_each(|entry| log.push(entry));
        // One more item may be the gap before them.
        let (bytes, items) = (BATCH_BYTES_TARGET, BATCH_EVENTS_MAX - 1);
        let until = log.last().min(read.until).max(after);
        let mut reader = Reader::new(after);
        let picked =
            reader.read(&log, Cut { bytes, items, until, skip_repeated: false }, &read.filters);
        let items = picked.into_iter().map(|item| match item.content {
            Content::Events(run) => {
                Item { index: item.index, content: Content::Events(Run::detached(run)) }
            }
            Content::Gap(_) => item,
        });
        Self { after, items: items.collect(), until: reader.cursor }
    }
}

impl Node {
    /// Looks for events that are not in memory here any more. Says whether anybody is asked.
    pub(super) fn look_deeper(&mut self, asker: Asker, fetch: Fetch) -> bool {
        let disk = self.disk_may_have(&fetch);
        let children =
            if self.root.is_some() { self.who_may_have(asker, &fetch) } else { [].into() };
        if self.is_asking(asker) {
            return true;
        }
        if !disk && children.is_empty() {
            return false;
        }
        let search = Search { fetch, from: Source::Disk, children, page: None };
        let Some(id) = self.question(asker, Some(search)) else { return false };
        match disk {
            true => self.read_disk(id),
            false => self.look_on(id),
        }
        true
    }

    /// Children that may have more than is here: the standby, which has a disk; where a root has taken
    /// over without a copy, all.
    fn who_may_have(&self, asker: Asker, fetch: &Fetch) -> VecDeque<LinkId> {
        // Who has just given its log away is not standby yet.
        let standby = self.root.as_ref().and_then(|root| root.standby.or(root.giver));
        let torn = !self.lineage.keeps(self.lineage.position(fetch.after + 1));
        let attached = self.children.iter().filter(|(_, child)| child.attached);
        let others = attached.map(|(link, _)| *link).filter(|link| torn && Some(*link) != standby);
        let all = standby.into_iter().chain(others).filter(|link| !asker.is_on(*link));
        all.take(CHILDREN_ASKED_MAX).collect()
    }

    /// Whether the disk may go back further than memory: it retains severe events from before what it
    /// has as a whole.
    fn disk_may_have(&self, fetch: &Fetch) -> bool {
        self.deep.waiting.len() < WAITING_MAX
            && self.disk_range().is_some_and(|(_, until)| fetch.after < until)
    }

    fn read_disk(&mut self, id: u64) {
        self.deep.waiting.push_back(id);
        self.read_waiting();
    }

    /// Hands out what may be read at once.
    fn read_waiting(&mut self) {
        while self.deep.reads.len() < JOURNAL_READS_MAX {
            let Some(id) = self.deep.waiting.pop_front() else { return };
            let Some(fetch) = self.searched(id).map(|search| search.fetch.clone()) else {
                continue;
            };
            let Some((_, until)) = self.disk_range() else {
                self.look_on(id);
                continue;
            };
            // What memory has is read there.
            let until = until.min(self.memory_after());
            let filters = FilterSet::merge(&fetch.filters);
            let (after, since_ns) = (fetch.after, fetch.since_ns);
            self.deep.reads.insert(id);
            self.counters.deep_reads += 1;
            let read = JournalRead { read: id, after, until, since_ns, filters };
            self.out.push(Output::ReadJournal(read));
        }
    }

    /// The shell has read a page, or could not.
    pub(super) fn journal_read(&mut self, id: u64, page: Option<JournalPage>) {
        self.deep.reads.remove(&id);
        self.page_read(id, page);
        self.read_waiting();
    }

    fn page_read(&mut self, id: u64, page: Option<JournalPage>) {
        let Some(search) = self.searched(id) else { return };
        let fetch = search.fetch.clone();
        let Some(page) = page.filter(|page| page.until > fetch.after) else {
            return self.look_on(id);
        };
        let JournalPage { after, mut items, mut until } = page;
        // Another disk may have what is missing here: it is asked where a hole comes first.
        let hole = items.iter().position(Item::is_range);
        if let Some(hole) = hole.filter(|hole| *hole > 0) {
            until = items.get(hole).map_or(until, Item::covers_after);
            items.truncate(hole);
        }
        // A time is not a place that anything is missing behind.
        let begins = (after <= fetch.after || fetch.since_ns > 0) && hole != Some(0);
        let answer = match begins {
            true => Fetched { id, items, covered: until, last: false },
            false => self.with_retained(id, &fetch, JournalPage { after, items, until }),
        };
        match begins {
            true => self.answered(answer),
            false => {
                if let Some(search) = self.searched(id) {
                    search.page = Some(answer);
                }
                self.look_on(id);
            }
        }
    }

    /// A page that begins too late, with what memory retains of what lies before it. Where that is
    /// much, it comes first: the page is read again.
    fn with_retained(&self, id: u64, fetch: &Fetch, page: JournalPage) -> Fetched {
        let filters = FilterSet::merge(&fetch.filters);
        if page.after <= fetch.after || fetch.since_ns > 0 {
            return Fetched { id, items: page.items, covered: page.until, last: false };
        }
        let (mut items, covered) = self.retained(fetch.after, page.after, &filters);
        if covered < page.after || items.len() > 1 {
            return Fetched { id, items, covered, last: false };
        }
        items.extend(page.items);
        Fetched { id, items, covered: page.until, last: false }
    }

    /// Asks the next who may have it, or gives up.
    pub(super) fn look_on(&mut self, id: u64) {
        loop {
            let Some(search) = self.searched(id) else { return };
            let Some(link) = search.children.pop_front() else {
                let (fetch, page) = (search.fetch.clone(), search.page.take());
                let of_root = self.root.is_some();
                return self.answered(match page.filter(|_| of_root) {
                    Some(page) => page,
                    None if of_root => self.answer(&Fetch { id, ..fetch }),
                    // Whoever asks knows best what to tell then.
                    None => Fetched { id, items: Vec::new(), covered: fetch.after, last: false },
                });
            };
            if self.children.contains_key(&link)
                && let Some(search) = self.searched(id)
            {
                search.from = Source::Child(link);
                let fetch = Fetch { id, ..search.fetch.clone() };
                self.asked_again(id);
                self.counters.fetches += 1;
                return self.say_if_room(
                    link,
                    Frame::Fetch(Fetch { epoch: self.lineage.head(), ..fetch }),
                );
            }
        }
    }

    /// A child answers what it was asked for.
    pub(super) fn fetched_below(&mut self, link: LinkId, fetched: Fetched) {
        let Some(search) = self.searched(fetched.id).filter(|search| search.waits_for(link)) else {
            self.counters.stale += 1;
            return;
        };
        if fetched.covered > search.fetch.after {
            return self.answered(fetched);
        }
        self.look_on(fetched.id);
    }

    /// The acting root above asks for what it does not have (any more).
    pub(super) fn fetch_from_above(&mut self, fetch: Fetch) {
        let filters = FilterSet::merge(&fetch.filters);
        let complete = self.complete_since(&filters);
        let of_now = fetch.epoch == self.lineage.head();
        if of_now && fetch.since_ns == 0 && complete.is_some_and(|since| since <= fetch.after) {
            let answer = self.answer(&fetch);
            return self.tell_above(answer);
        }
        let (id, after) = (fetch.id, fetch.after);
        if !of_now || !self.look_deeper(Asker::Above(id), fetch) {
            self.tell_above(Fetched { id, items: Vec::new(), covered: after, last: false });
        }
    }

    pub(super) fn tell_above(&mut self, fetched: Fetched) {
        if let Some(parent) = self.uplink.parent().map(|parent| parent.link) {
            self.say_if_room(parent, Frame::Fetched(fetched));
        }
    }

    fn searched(&mut self, id: u64) -> Option<&mut Search> {
        self.questions.get_mut(&id).and_then(Question::search)
    }
}
