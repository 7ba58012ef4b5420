//! Who was in the tree and is not there now: the acting root looks for them until they have come from
//! somewhere, or answer nobody.
//!
//! Whoever loses a child asks about it at once ([`super::verdict`]). What remains is the acting root's,
//! who knows the whole tree: who was below a lost agent and has not come elsewhere, who has left a parent
//! for another one and has not come there, and who was lost and is not known to be dead. So that the next root knows it too, all are told the *roll* by the one that
//! reigns: whoever takes over calls it, and looks for those that do not come.
//!
//! Responsible for: the roll, whom the acting root looks for, and when. Not responsible for: what a look
//! means ([`super::verdict`]), where members stand ([`super::members`]).

use super::Node;
use super::api::{LinkId, MemberState};
use super::config::ns;
use crate::frame::{Frame, ROLL_RANGES_MAX};
use crate::ident::Rank;
use crate::ranges::RangeSet;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The longest pause between two looks for one agent.
const PAUSE_MS_MAX: u64 = 60_000;
/// An agent that is stopped is looked for so often. Each look stays in the queue of its socket, and when
/// that is full its host answers nobody any more, as a dead one.
const TAKEN_MAX: u32 = 5;

/// Who is expected, and who of these is looked for. One entry for each possible member.
pub(super) struct Missing {
    /// The ranks of all that are in the tree or missing, as the acting root has said last.
    roll: Arc<RangeSet>,
    /// When the acting root tells what has changed in it.
    tell_ns: u64,
    /// When a new root calls the roll that it was told by the one before.
    call_ns: u64,
    call_pause_ms: u64,
    sought: BTreeMap<Rank, Sought>,
    /// No one is to be looked for before this: asked for after every input, however many are sought.
    due_ns: u64,
}

struct Sought {
    next_ns: u64,
    pause_ms: u64,
    /// How often its host took the connection and its agent said nothing.
    taken: u32,
}

impl Missing {
    pub(super) fn new() -> Self {
        Self {
            roll: Arc::default(),
            tell_ns: u64::MAX,
            call_ns: u64::MAX,
            call_pause_ms: 0,
            sought: BTreeMap::new(),
            due_ns: u64::MAX,
        }
    }

    /// Looks for an agent after that time, unless it is looked for already.
    fn seek(&mut self, rank: Rank, now_ns: u64, after_ms: u64) {
        let next_ns = now_ns.saturating_add(ns(after_ms));
        self.due_ns = self.due_ns.min(next_ns);
        self.sought.entry(rank).or_insert(Sought { next_ns, pause_ms: after_ms, taken: 0 });
    }

    /// Its host took the connection and its agent said nothing.
    pub(super) fn note_taken(&mut self, rank: Rank) {
        let Some(sought) = self.sought.get_mut(&rank) else { return };
        sought.taken += 1;
        if sought.taken >= TAKEN_MAX {
            sought.next_ns = u64::MAX;
        }
    }

    /// When the acting root has to do something here.
    pub(super) fn deadline_ns(&self) -> u64 {
        self.due_ns.min(self.tell_ns).min(self.call_ns)
    }
}

impl Node {
    /// The acting root knows of a member that it has come, or gone.
    pub(super) fn note_whereabouts(&mut self, rank: Rank, state: MemberState) {
        if self.root.is_none() || Some(rank) == self.rank {
            return;
        }
        if state.is_missed() {
            // Whoever lost it asks about it first, and tells; who has moved is about to be told of.
            let after_ms = self.config.detection_ms + 2 * self.config.dial_ms;
            self.missing.seek(rank, self.now.mono_ns, after_ms);
        } else {
            self.missing.sought.remove(&rank);
        }
        self.roll_has_changed();
    }

    /// Somebody was lost without a word: those below it are missing until they come from elsewhere.
    pub(super) fn miss_all_below(&mut self, lost: Rank) {
        if self.root.is_none() {
            return;
        }
        let after_ms = self.config.detection_ms / 4;
        for rank in self.members.doubt_below(lost) {
            self.missing.seek(rank, self.now.mono_ns, after_ms);
        }
    }

    fn roll_has_changed(&mut self) {
        let soon_ns = self.now.mono_ns.saturating_add(ns(self.config.heartbeat_ms));
        self.missing.tell_ns = self.missing.tell_ns.min(soon_ns);
    }

    /// The parent tells who is expected.
    pub(super) fn roll_told(&mut self, roll: Arc<RangeSet>) {
        let old = std::mem::replace(&mut self.missing.roll, Arc::clone(&roll));
        // Nobody tells where it has come but those above it: whoever takes over must miss it all the same.
        self.members.forget_gone(|rank| {
            let rank = rank.0.into();
            roll.contains(rank) && !old.contains(rank)
        });
        self.pass_roll_on();
    }

    fn pass_roll_on(&mut self) {
        let attached = self.children.iter().filter(|(_, child)| child.attached);
        for link in attached.map(|(link, _)| *link).collect::<Vec<LinkId>>() {
            self.tell_roll_to(link);
        }
    }

    /// A child has come, or the roll has changed. A child that has no room for it is told the next one.
    pub(super) fn tell_roll_to(&mut self, link: LinkId) {
        if !self.missing.roll.ranges().is_empty() {
            let roll = Arc::clone(&self.missing.roll);
            self.say_if_room(link, Frame::Roll(roll));
        }
    }

    /// The member list has changed: ranks may be others'. Or the acting root left in order, and who left
    /// with it was not heard.
    pub(super) fn forget_roll(&mut self) {
        self.missing = Missing::new();
        if self.root.is_some() {
            self.roll_has_changed();
        }
    }

    /// A reign begins: whoever is on the roll has some time to come.
    pub(super) fn begin_roll(&mut self) {
        let now_ns = self.now.mono_ns;
        let pause_ms = self.config.detection_ms / 2;
        let after_ms = self.config.detection_ms + 2 * self.config.dial_ms;
        self.missing.sought.clear();
        for rank in self.members.doubted() {
            self.missing.seek(rank, now_ns, after_ms);
        }
        self.missing.call_pause_ms = pause_ms;
        self.missing.call_ns = match self.missing.roll.ranges().is_empty() {
            true => u64::MAX,
            false => now_ns.saturating_add(ns(pause_ms)),
        };
        self.roll_has_changed();
    }

    /// Time has passed.
    pub(super) fn missing_tick(&mut self) {
        let now_ns = self.now.mono_ns;
        if self.root.is_none() || self.missing.deadline_ns() > now_ns {
            return;
        }
        if self.missing.call_ns <= now_ns {
            self.call_roll();
        }
        if self.missing.tell_ns <= now_ns {
            self.missing.tell_ns = u64::MAX;
            self.tell_roll();
        }
        if self.missing.due_ns <= now_ns {
            self.look_for_missing();
        }
    }

    /// Whoever is on the roll and has not come is missing, and looked for at once.
    fn call_roll(&mut self) {
        let now_ns = self.now.mono_ns;
        let absent: Vec<(Rank, String)> = self
            .all_ranks()
            .filter(|rank| Some(*rank) != self.rank && self.missing.roll.contains(rank.0.into()))
            .filter(|rank| !self.members.is_known(*rank))
            .filter_map(|rank| Some((rank, self.member(rank)?.0)))
            .collect();
        if self.is_cut_off(self.missing.sought.len() + absent.len()) {
            let pause_ms = self.missing.call_pause_ms;
            self.missing.call_ns = now_ns.saturating_add(ns(pause_ms));
            self.missing.call_pause_ms = (2 * pause_ms).min(PAUSE_MS_MAX);
            return;
        }
        self.missing.call_ns = u64::MAX;
        let pause_ms = self.config.detection_ms / 4;
        for (rank, host) in absent {
            self.member_missing(rank, &host);
            let sought = Sought { next_ns: now_ns, pause_ms, taken: 0 };
            self.missing.sought.insert(rank, sought);
            self.missing.due_ns = now_ns;
        }
    }

    fn all_ranks(&self) -> impl Iterator<Item = Rank> {
        let listed = u32::try_from(self.config.members.len()).unwrap_or(u32::MAX);
        (0..listed).map(Rank).chain(self.unlisted_ranks())
    }

    /// Where more are missing than are here it is we who are cut off: nobody is called dead then.
    fn is_cut_off(&self, missing: usize) -> bool {
        missing > self.members.count_up() + 1
    }

    fn tell_roll(&mut self) {
        let mut roll = match self.missing.call_ns {
            u64::MAX => RangeSet::default(),
            // Nobody is left out before it was called.
            _ => RangeSet::clone(&self.missing.roll),
        };
        for rank in self.members.expected().chain(self.rank) {
            roll.insert(rank.0.into());
        }
        if *self.missing.roll != roll {
            roll.truncate(ROLL_RANGES_MAX);
            self.missing.roll = Arc::new(roll);
            self.pass_roll_on();
        }
    }

    fn look_for_missing(&mut self) {
        let now_ns = self.now.mono_ns;
        let cut_off = self.is_cut_off(self.missing.sought.len());
        let due = self.missing.sought.iter_mut().filter(|(_, sought)| sought.next_ns <= now_ns);
        let mut room = if cut_off { 0 } else { self.verdicts.room() };
        let mut looks = Vec::new();
        for (rank, sought) in due {
            sought.next_ns = now_ns.saturating_add(ns(sought.pause_ms));
            if room > 0 && !self.verdicts.is_open(*rank) {
                room -= 1;
                sought.pause_ms = (2 * sought.pause_ms).min(PAUSE_MS_MAX);
                looks.push(*rank);
            }
        }
        let next = self.missing.sought.values().map(|sought| sought.next_ns);
        self.missing.due_ns = next.min().unwrap_or(u64::MAX);
        for rank in looks {
            match self.members.sighting_of(rank) {
                Some((child, host)) => self.look_again(child, &host),
                None => drop(self.missing.sought.remove(&rank)),
            }
        }
    }
}
