//! Publishers and subscribers of the simulation: they behave as the client library does, and keep
//! the books that the invariants are checked against.

use crate::events::count_of;
use ftb_core::filter::Filter;
use ftb_core::ident::{EventId, PublisherId};
use ftb_core::node::api::{ClientId, Gap, GapReason, Start, SubscriptionId};
use ftb_core::position::{Epoch, Position, Trail};
use ftb_core::sealed::{Sealed, SealedRef};
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
}

/// One subscription and all that it was told.
pub struct Subscriber {
    pub agent: usize,
    pub client: ClientId,
    pub subscription: SubscriptionId,
    pub filter: Filter,
    /// Since when it is active, in simulated time.
    pub active_at: Option<u64>,
    pub trail: Option<Trail>,
    pub by_epoch: BTreeMap<Epoch, u64>,
    pub got: BTreeSet<EventId>,
    pub by_publisher: BTreeMap<(PublisherId, usize), u64>,
    pub gaps: Vec<Gap>,
    /// When it was told last that a log is lost that a disk may still bring back, or that it goes on in
    /// a log that never had anything in common with its own: what it misses of that comes late when that
    /// one is given up as well, and appended again.
    pub lost_told_ns: u64,
    /// How many events came as part of another.
    pub folded: u64,
    /// Its agent lost its memory: what it had not read by then it resumed by position.
    pub resumed: bool,
    /// It reads the past, and was not told where that ends.
    pub in_past: bool,
}

/// What was published, when, and whether its publisher was told that it is safe.
pub struct Published {
    pub at_ns: u64,
    pub sealed: Sealed,
    pub confirmed: bool,
}

/// The books of a run.
#[derive(Default)]
pub struct Books {
    pub published: BTreeMap<EventId, Published>,
    /// Which event every position holds: one order for all.
    pub order: BTreeMap<Position, EventId>,
    /// With which sequence each publisher began at each life of its agent, in runs of many faults:
    /// an agent that has forgotten what it had sent into a component that was cut off cannot put it
    /// before what it sends into another.
    pub lives: BTreeMap<PublisherId, Vec<u64>>,
}

impl Books {
    fn life_of(&self, id: EventId) -> usize {
        let lives = self.lives.get(&id.publisher);
        lives.map_or(0, |lives| lives.partition_point(|first| *first <= id.seq))
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
        self.trail.map_or(Start::Now, Start::Behind)
    }

    /// Everything up to a position has come, or was told.
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
        self.stand(position);
        if self.resumed && self.got.contains(&id) {
            // Its agent has forgotten what it had delivered; the client library has not.
            return Ok(());
        }
        self.folded += count_of(sealed) - 1;
        if !self.got.insert(id) {
            return broken("Unique", format!("{here} got {id} twice, now as {position}"));
        }
        // One that began in a cut-off component may get, when that is healed, what its component
        // had logged before: not owed, and in no order with the rest.
        let published = books.published.get(&id).map_or(u64::MAX, |published| published.at_ns);
        if self.active_at.is_none_or(|active_at| published < active_at) {
            return Ok(());
        }
        let last = self.by_epoch.insert(position.epoch, position.index).unwrap_or(0);
        if last >= position.index {
            return broken("Ordered", format!("{here} got {position} after index {last}"));
        }
        let life = books.life_of(id);
        if published < self.lost_told_ns {
            // It was told as lost or missing, and was brought back: late, in no order with the rest.
            return Ok(());
        }
        let before = self.by_publisher.insert((id.publisher, life), id.seq).unwrap_or(0);
        if before > id.seq {
            let what = format!("{here} got {id} at {position} after {before} of that publisher");
            return broken("Ordered", what);
        }
        Ok(())
    }

    /// It was told how far it is: from there it resumes.
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
        let owed = books.published.values().filter(|published| {
            published.confirmed
                && published.at_ns > active_at
                && self.filter.matches(&published.sealed)
        });
        let missing: Vec<EventId> =
            owed.map(|p| p.sealed.id()).filter(|id| !self.got.contains(id)).collect();
        let told: u64 = self.gaps.iter().map(|gap| gap.count).sum();
        let unknown = self.gaps.iter().any(|gap| gap.reason != GapReason::Shed);
        // A fold that takes the place of many says how many; what was shed by rule is refused.
        if missing.len() as u64 > told + self.folded && (!unknown || lossless) {
            let what = format!(
                "a subscriber at agent {} misses {} events that are confirmed (told: {told}, folded: {}), the first {}",
                self.agent,
                missing.len(),
                self.folded,
                missing[0],
            );
            return broken("GaplessOrTold", what);
        }
        Ok(())
    }
}
