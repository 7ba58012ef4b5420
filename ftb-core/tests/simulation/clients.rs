//! Publishers and subscribers of the simulation: they behave as the client library does, and keep
//! the books that the invariants are checked against.

use crate::events::count_of;
use ftb_core::ConfirmLevel;
use ftb_core::filter::Filter;
use ftb_core::hostlist::Hostlist;
use ftb_core::ident::{EventId, PublisherId};
use ftb_core::latest::Latest;
use ftb_core::log::conditions::Claim;
use ftb_core::log::table_view::{ReadPlace, TableView};
use ftb_core::node::api::{ClientId, Gap, GapReason, Start, SubscriptionId};
use ftb_core::numbers::{LogIndex, PublisherSeq};
use ftb_core::position::{Epoch, Position, Trail};
use ftb_core::sealed::{Sealed, SealedRef};
use ftb_core::spaces::Spaces;
use std::collections::{BTreeMap, BTreeSet};

/// A publisher keeps what is not confirmed, and publishes it again to a restarted agent.
pub struct Publisher {
    pub agent: usize,
    pub client: ClientId,
    pub id: PublisherId,
    pub unconfirmed: BTreeMap<u64, Sealed>,
    pub published: u64,
    /// Of these: refused because it said too much.
    pub refused: u64,
    pub paused: bool,
    /// Its last statement about its condition, and when it was published.
    pub stated: Option<(Sealed, u64)>,
    /// Below which acting root (agent and life) its agent has been, and since when.
    pub below: Option<(usize, u64, u64)>,
}

/// A program that begins with the table of conditions, and follows it as the launcher does: it
/// forgets nothing when it reads the table again.
pub struct ConditionReader {
    pub agent: usize,
    pub client: ClientId,
    pub filter: Filter,
    /// `None`: it has had a gap, and reads nothing until it subscribes again.
    pub subscription: Option<SubscriptionId>,
    pub view: TableView<Claim>,
    /// Its row flag says that the table is not here yet.
    pub place: ReadPlace,
    /// How often it has had a gap.
    pub gaps: u32,
}

/// One subscription and all that it received.
pub struct Subscriber {
    pub agent: usize,
    pub client: ClientId,
    pub subscription: SubscriptionId,
    pub filter: Filter,
    /// It begins with what was published since then, Unix nanoseconds.
    pub since_ns: Option<u64>,
    /// Since when it is active, in simulated time.
    pub active_at: Option<u64>,
    pub trail: Option<Trail>,
    pub by_epoch: BTreeMap<Epoch, LogIndex>,
    pub got: BTreeSet<EventId>,
    /// As the client library has it: what comes behind newer events of its publisher is not given
    /// to the program, and reported as a gap.
    pub latest: Latest,
    /// What was reported so.
    pub late: BTreeSet<EventId>,
    pub gaps: Vec<Gap>,
    /// When it last got a gap of unknown count: that can
    /// concern only what was published before.
    pub hole_reported_ns: u64,
    /// The same of any hole.
    pub gap_reported_ns: u64,
    /// How many events came as part of another.
    pub folded: u64,
    /// How many folds of groups came.
    pub group_folds: u64,
    /// Its agent lost its memory: what it had not read by then it resumed by position.
    pub resumed: bool,
    /// It reads the past, and has not heard where that ends.
    pub in_past: bool,
}

/// What was published, when, and whether its publisher heard that it is safe.
pub struct Published {
    pub at_ns: u64,
    pub sealed: Sealed,
    pub confirmed: bool,
    /// The level at which it was confirmed, if its publisher wants it on disk.
    pub level: Option<ConfirmLevel>,
    /// How many disks have lost it, by damage or by retention.
    pub disks_lost: u32,
    /// Where in which log it was, as far as agents that died had it.
    pub places: BTreeSet<Position>,
}

impl Published {
    pub fn new(at_ns: u64, sealed: Sealed) -> Self {
        Self {
            at_ns,
            sealed,
            confirmed: false,
            level: None,
            disks_lost: 0,
            places: BTreeSet::new(),
        }
    }
}

/// The books of a run.
#[derive(Default)]
pub struct Books {
    pub published: BTreeMap<EventId, Published>,
    /// Which event every position holds: one order for all.
    pub order: BTreeMap<Position, EventId>,
    /// The positions of folds of groups. A fold has the id of one of its members, which is
    /// elsewhere.
    pub folds: BTreeSet<Position>,
    /// The positions of members of groups. Readers of folds pass over them: each is in a fold,
    /// which is elsewhere.
    pub members: BTreeSet<Position>,
    /// Publishers whose agents have started again, in runs of many faults: an agent that has
    /// forgotten what it had sent into a component that was cut off cannot put it before what it
    /// sends into another.
    pub restarted: BTreeSet<PublisherId>,
    /// Events that an agent re-proposed which is not their own. One that had followed a log has
    /// only what its subtree wanted of it, so older ones of the same publisher may be missing.
    pub re_proposed: BTreeSet<EventId>,
}

impl Books {
    /// Whether newer events of the publisher may have come before this one without a fault.
    fn may_be_late(&self, id: EventId) -> bool {
        let newest = EventId { seq: PublisherSeq::from(u64::MAX), ..id };
        self.restarted.contains(&id.publisher)
            || self.re_proposed.range(id..=newest).any(|newer| newer.seq > id.seq)
    }
}

/// A promise that was broken: the name of the invariant, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub invariant: &'static str,
    pub what: String,
}

pub fn broken<T>(invariant: &'static str, what: String) -> Result<T, Violation> {
    Err(Violation { invariant, what })
}

impl Subscriber {
    pub fn start(&self) -> Start {
        let first = self.since_ns.map_or(Start::Now, Start::SinceNs);
        self.trail.map_or(first, Start::AfterTrail)
    }

    /// Everything up to a position has come, or was reported lost.
    pub fn stand(&mut self, position: Position) {
        self.trail.get_or_insert(Trail::at(position)).note(position);
    }

    pub fn deliver(
        &mut self,
        books: &mut Books,
        position: Position,
        sealed: SealedRef<'_>,
    ) -> Result<(), Violation> {
        let id = sealed.id();
        let here = format!("subscriber at agent {} of {:?}", self.agent, self.filter.to_string());
        if !self.filter.matches(sealed) {
            return broken("Unique", format!("{here} got {id}, which it did not ask for"));
        }
        if let Some(other) = books.order.insert(position, id)
            && other != id
        {
            return broken("Ordered", format!("{position} is {other} for one, {id} for {here}"));
        }
        if sealed.group().is_some() {
            books.folds.insert(position);
        }
        if sealed.head().is_member {
            books.members.insert(position);
        }
        self.stand(position);
        let ids: Vec<EventId> = match sealed.group() {
            Some(group) => group.members().into_iter().flat_map(|members| members.ids()).collect(),
            None => vec![id],
        };
        if ids.iter().all(|id| self.got.contains(id) || self.late.contains(id)) {
            if self.resumed {
                // Its agent has forgotten what it had delivered; the client library has not.
                return Ok(());
            }
            return broken("Unique", format!("{here} got {id} twice, now as {position}"));
        }
        // One that began in a cut-off component may get, when that is healed, what was published
        // before: not owed.
        let published_at =
            |id: &EventId| books.published.get(id).map_or(u64::MAX, |published| published.at_ns);
        let published = ids.iter().map(published_at).max().unwrap_or(0);
        let owed = self.active_at.is_some_and(|active_at| published >= active_at);
        let last = self.by_epoch.entry(position.epoch).or_default();
        if *last >= position.index {
            if owed && published >= self.gap_reported_ns {
                return broken("Ordered", format!("{here} got {position} after index {last}"));
            }
            // The client library drops it: what was wanted of that epoch so far has come, or was
            // reported lost.
            return Ok(());
        }
        *last = position.index;
        if sealed.group().is_some() {
            return self.deliver_fold(books, position, sealed);
        }
        if self.latest.advance(id) {
            self.got.insert(id);
            self.folded += count_of(sealed) - 1;
            return Ok(());
        }
        self.overtaken(id, position, sealed);
        // Nothing comes late but what was reported to it as lost or missing, or what was sent into
        // two components.
        if owed && published >= self.gap_reported_ns && !books.may_be_late(id) {
            let what = format!("{here} got {id} at {position} behind newer ones of its publisher");
            return broken("Ordered", what);
        }
        Ok(())
    }

    /// The fold of a group has come. As the client library does, it leaves out what came before.
    fn deliver_fold(
        &mut self,
        books: &Books,
        position: Position,
        sealed: SealedRef<'_>,
    ) -> Result<(), Violation> {
        let Some(group) = sealed.group() else { return Ok(()) };
        self.group_folds += 1;
        let hosts = Hostlist::parse(group.hosts()).unwrap();
        for members in group.members() {
            for id in members.ids() {
                // Of an earlier life of an agent that says something itself.
                let Some(published) = books.published.get(&id) else { continue };
                let event = published.sealed.as_ref();
                let of = |event: SealedRef<'_>| (event.severity(), event.name().to_owned());
                let host = hosts.get(members.host as usize);
                if of(event) != of(sealed) || host.as_deref() != Some(event.host()) {
                    let what = format!("{id} of {} is in a fold of {hosts}", event.host());
                    return broken("Folded", what);
                }
                if self.got.contains(&id) || self.late.contains(&id) {
                    continue;
                }
                if self.latest.advance(id) {
                    self.got.insert(id);
                    continue;
                }
                self.overtaken(id, position, event);
                let owed = self.active_at.is_some_and(|at| published.at_ns >= at);
                if owed && published.at_ns >= self.gap_reported_ns && !books.may_be_late(id) {
                    let what = format!("{id} came in a fold behind newer ones of its publisher");
                    return broken("Ordered", what);
                }
            }
        }
        Ok(())
    }

    /// An event is not given to the program, since that has newer ones of its publisher.
    fn overtaken(&mut self, id: EventId, position: Position, sealed: SealedRef<'_>) {
        self.late.insert(id);
        self.gaps.push(Gap {
            after: Position { index: position.index.before(), ..position },
            until: position,
            reason: GapReason::Late,
            count: Some(count_of(sealed)),
            severity_max: Some(sealed.severity()),
            spaces: Spaces::of(sealed.space()),
        });
    }

    /// A gap was reported to it.
    pub fn miss(&mut self, gap: Gap, now_ns: u64) {
        self.stand(gap.until);
        self.gap_reported_ns = now_ns;
        if matches!(gap.reason, GapReason::Retention | GapReason::LogLost) {
            self.hole_reported_ns = now_ns;
        }
        self.gaps.push(gap);
    }

    /// It heard how far it is: from there it resumes.
    pub fn cover(&mut self, position: Position, history_ended: bool) -> Result<(), Violation> {
        if history_ended && !std::mem::take(&mut self.in_past) {
            let what = format!("agent {}: a past that never began ends at {position}", self.agent);
            return broken("Active", what);
        }
        self.stand(position);
        Ok(())
    }

    /// Everything confirmed that was published while it was active has come, or a gap says that it
    /// has not.
    pub fn check_complete(&self, books: &Books, lossless: bool) -> Result<(), Violation> {
        let Some(active_at) = self.active_at else {
            let what = format!("a subscription at agent {} never became active", self.agent);
            return broken("Active", what);
        };
        if self.in_past {
            let what = format!("the past of a subscription at agent {} never ends", self.agent);
            return broken("Active", what);
        }
        let since = if lossless { active_at } else { active_at.max(self.hole_reported_ns) };
        let owed = books.published.values().filter(|published| {
            published.confirmed && published.at_ns > since && self.filter.matches(&published.sealed)
        });
        let missing: Vec<EventId> =
            owed.map(|p| p.sealed.id()).filter(|id| !self.got.contains(id)).collect();
        let reported: u64 = self.gaps.iter().filter_map(|gap| gap.count).sum();
        // A fold that takes the place of many says how many; what was shed by rule is refused.
        if missing.len() as u64 > reported + self.folded {
            let what = format!(
                "a subscriber at agent {} misses {} events that are confirmed (reported: \
                 {reported}, folded: {}), the first {}",
                self.agent,
                missing.len(),
                self.folded,
                missing[0],
            );
            return broken("GaplessOrTold", what);
        }
        Ok(())
    }

    /// Gaps that state a count state at least the events that are missing in their range, all
    /// together where they overlap, and none of those is worse than they say. Of what others got,
    /// it is known what was where. A gap that a losing log brings may be about events from before
    /// the subscription, which are owed to others.
    pub fn check_gaps(&self, books: &Books) -> Result<(), Violation> {
        let of_log = |gap: &&Gap| gap.reason == GapReason::Retention;
        let passes_over = |at: &Position| match self.filter.wants_single() {
            true => books.folds.contains(at),
            false => books.members.contains(at),
        };
        // An event that is in several logs may be missing in another, and be counted there.
        let mut places: BTreeMap<EventId, usize> = BTreeMap::new();
        let wanted = books.order.iter().filter(|(at, _)| !passes_over(at));
        wanted.for_each(|(_, id)| *places.entry(*id).or_insert(0) += 1);
        for gap in self.gaps.iter().filter(|gap| gap.count.is_some()).filter(of_log) {
            let epoch = gap.until.epoch;
            let first = Position { epoch, index: gap.after.index + 1 };
            // One over several epochs is of a log that has lost: what that retained comes
            // elsewhere.
            if first > gap.until || gap.after.epoch != epoch {
                continue;
            }
            let others =
                || self.gaps.iter().filter(|other| other.after < gap.until && other.until >= first);
            if others().any(|other| other.count.is_none() || other.severity_max.is_none()) {
                continue;
            }
            let reported: u64 = others().filter_map(|other| other.count).sum();
            let worst_reported = others().map(|other| other.severity_max).max().flatten();
            let here = books.order.range(first..=gap.until).filter(|(at, _)| !passes_over(at));
            let missing = here.filter_map(|(_, id)| {
                let published = books.published.get(id)?;
                let event = &published.sealed;
                let is_owed = self.since_ns.is_some() || Some(published.at_ns) >= self.active_at;
                let is_missing = !self.got.contains(id) && !self.late.contains(id);
                let is_here_only = places.get(id) == Some(&1);
                (is_missing && is_owed && is_here_only && self.filter.matches(event))
                    .then_some(event.severity())
            });
            let missing: Vec<_> = missing.collect();
            let worst = missing.iter().max().copied();
            if missing.len() as u64 > reported || worst > worst_reported {
                let missing = missing.len();
                let what = format!(
                    "agent {} got {gap:?}, in all {reported}, and {missing} are missing there, the \
                     worst {worst:?}",
                    self.agent
                );
                return broken("Counted", what);
            }
        }
        Ok(())
    }
}
