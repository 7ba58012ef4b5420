//! `revoke`, `agree` and `shrink` of a job that goes on without dead ranks: the calls of the ranks,
//! and what the job launcher decides. Pure.
//!
//! The launcher alone knows who is dead, in one order. So it decides each round once: when every
//! member of the communicator has called or is dead. All members get the same decision. A rank
//! repeats its call until it has the decision; it makes one call at a time, and numbers them.
//! `Repairs` keeps a decision until every living member has made a later call.
//!
//! Not responsible for who is dead ([`crate::jl`]), nor for the rank's side (ftb-job).

use crate::names::Ranks;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

/// Most revoked communicators of which a living member may not know. At the limit a further
/// revocation is refused: the list that is published has this length and lacks it.
pub const REVOKED_MAX: usize = 1024;
/// Most decisions. Those that a living member may still ask for are at most one for each rank; at
/// the limit the oldest one of calls that did not fit together is dropped.
pub const DECISIONS_MAX: usize = 1024;

/// What a rank calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RepairKind {
    /// Every later call on the communicator fails at all members.
    Revoke,
    /// The members agree on flags: bitwise and.
    Agree,
    /// A communicator of the members that live.
    Shrink,
    /// The members wait for each other at their end.
    Finish,
}

/// A call of a rank (`FTB_MPI_REPAIR`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairCall {
    /// Its number among the calls of the rank, from 1.
    pub call: u64,
    /// The communicator: its number, together with its lowest member.
    pub comm: u16,
    /// Which of the rounds of the communicator; not of a revocation.
    pub round: u32,
    pub kind: RepairKind,
    #[serde(with = "ranges")]
    pub members: Ranks,
    pub flag: u32,
    /// Dead ranks that the program has acknowledged.
    #[serde(with = "ranges")]
    pub acked: Ranks,
    /// The lowest number that the rank could give to a new communicator.
    pub next: u32,
    /// The last revocation that the rank has heard of.
    pub seen: u64,
    /// Ranks to which its link has broken; they may live.
    #[serde(default, with = "ranges")]
    pub lost: Ranks,
}

/// A communicator: its number, and its lowest member. Two without a common member may have the same
/// number.
pub type CommId = (u16, u32);

impl RepairCall {
    /// The communicator.
    pub fn comm_id(&self) -> CommId {
        (self.comm, self.members.0.first().copied().unwrap_or_default())
    }

    fn round_id(&self) -> RoundId {
        (self.comm_id(), self.round)
    }
}

type RoundId = (CommId, u32);

/// What all members of a communicator get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundResult {
    pub comm: u16,
    /// The lowest member of the communicator.
    pub first: u32,
    pub round: u32,
    /// `None`: the members made different calls, or have different members.
    pub kind: Option<RepairKind>,
    /// The flags of the living members, bitwise and.
    pub flag: u32,
    /// The dead members. The others, in their order, are those of a shrunken communicator.
    #[serde(with = "ranges")]
    pub dead: Ranks,
    /// Whether every living member had acknowledged all dead ones.
    pub acked: bool,
    /// The number of a shrunken communicator.
    pub next: u32,
}

/// What the launcher publishes (`FTB_JL_REPAIR`). All but the decision is repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairNews {
    /// All dead ranks.
    #[serde(with = "ranges")]
    pub dead: Ranks,
    /// Revoked communicators of which a living member may not know.
    pub revoked: Vec<CommId>,
    /// The last revocation.
    pub seen: u64,
    pub decided: Option<RoundResult>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairInput {
    Call {
        rank: u32,
        call: RepairCall,
    },
    /// All ranks that are dead.
    Dead(Ranks),
}

/// Effects of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairOutput {
    pub news: RepairNews,
    /// The state has changed: it must be saved before.
    pub is_new: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Revoked {
    number: u64,
    comm: CommId,
    members: Ranks,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Decided {
    decision: RoundResult,
    /// The calls that it answers, by rank.
    answers: BTreeMap<u32, u64>,
}

/// The calls of a job, and what was decided.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Repairs {
    dead: Ranks,
    decided: Vec<Decided>,
    revoked: Vec<Revoked>,
    /// How many communicators were revoked.
    revocations: u64,
    /// The last call of each living rank. Ranks repeat it: a launcher that takes over hears it.
    #[serde(skip)]
    calls: BTreeMap<u32, RepairCall>,
    /// A rank that must die before a shrink can be decided.
    #[serde(skip)]
    cut_off: Option<u32>,
}

impl Repairs {
    pub fn handle(&mut self, input: RepairInput, out: &mut Vec<RepairOutput>) {
        match input {
            RepairInput::Call { rank, call } => self.on_call(rank, call, out),
            RepairInput::Dead(dead) => self.on_dead(dead, out),
        }
    }

    /// A living rank that other living ones cannot reach: a communicator that holds both is of no
    /// use, so it must die.
    pub fn cut_off(&self) -> Option<u32> {
        self.cut_off
    }

    /// What is repeated, if there is something.
    pub fn news(&self) -> Option<RepairNews> {
        let is_quiet = self.dead.is_empty() && self.revoked.is_empty();
        (!is_quiet).then(|| self.news_of(None))
    }

    fn news_of(&self, decided: Option<RoundResult>) -> RepairNews {
        let revoked = self.revoked.iter().map(|revoked| revoked.comm).collect();
        RepairNews { dead: self.dead.clone(), revoked, seen: self.revocations, decided }
    }

    fn tell(&self, decided: Option<RoundResult>, is_new: bool, out: &mut Vec<RepairOutput>) {
        out.push(RepairOutput { news: self.news_of(decided), is_new });
    }

    fn on_call(&mut self, rank: u32, call: RepairCall, out: &mut Vec<RepairOutput>) {
        let last = self.calls.get(&rank).map_or(0, |last| last.call);
        if self.dead.has(rank) || !call.members.has(rank) || call.call < last {
            return;
        }
        let (id, kind, number) = (call.round_id(), call.kind, call.call);
        self.calls.insert(rank, call);
        self.forget();
        if kind == RepairKind::Revoke {
            return self.revoke(rank, out);
        }
        let Some(known) = self.decided.iter_mut().find(|of| round_of(&of.decision) == id) else {
            return self.decide(id, out);
        };
        known.answers.insert(rank, number);
        let decision = known.decision.clone();
        self.tell(Some(decision), false, out);
    }

    fn revoke(&mut self, rank: u32, out: &mut Vec<RepairOutput>) {
        let Some(call) = self.calls.get(&rank) else { return };
        let comm = call.comm_id();
        let is_new = !self.revoked.iter().any(|revoked| revoked.comm == comm);
        if is_new {
            if self.revoked.len() >= REVOKED_MAX {
                return self.tell(None, false, out);
            }
            self.revocations += 1;
            let (number, members) = (self.revocations, call.members.clone());
            self.revoked.push(Revoked { number, comm, members });
        }
        self.tell(None, is_new, out);
    }

    fn on_dead(&mut self, dead: Ranks, out: &mut Vec<RepairOutput>) {
        if dead == self.dead {
            return;
        }
        self.calls.retain(|rank, _| !dead.has(*rank));
        self.dead = dead;
        self.cut_off = None;
        self.forget();
        self.tell(None, true, out);
        let rounds = self.calls.values().filter(|call| call.kind != RepairKind::Revoke);
        let mut rounds: Vec<RoundId> = rounds.map(RepairCall::round_id).collect();
        rounds.sort_unstable();
        rounds.dedup();
        for id in rounds {
            if !self.decided.iter().any(|of| round_of(&of.decision) == id) {
                self.decide(id, out);
            }
        }
    }

    /// Decides a round in which all living members have called, or whose calls do not fit together.
    fn decide(&mut self, id: RoundId, out: &mut Vec<RepairOutput>) {
        let calls = self.calls.iter();
        let of_round = |(_, call): &(&u32, &RepairCall)| {
            call.kind != RepairKind::Revoke && call.round_id() == id
        };
        let calls: Vec<(u32, &RepairCall)> =
            calls.filter(of_round).map(|(rank, call)| (*rank, call)).collect();
        let Some((_, one)) = calls.first() else { return };
        let fits =
            calls.iter().all(|(_, call)| call.kind == one.kind && call.members == one.members);
        let has_called = |rank: u32| calls.iter().any(|(of, _)| *of == rank);
        if fits && one.members.iter().any(|rank| !self.dead.has(rank) && !has_called(rank)) {
            return;
        }
        if fits && one.kind == RepairKind::Shrink {
            self.cut_off = most_lost(&calls);
            if self.cut_off.is_some() {
                return;
            }
        }
        let dead: Ranks = one.members.iter().filter(|rank| self.dead.has(*rank)).collect();
        let knows = |call: &RepairCall| dead.iter().all(|rank| call.acked.has(rank));
        let ((comm, first), round) = id;
        let decision = RoundResult {
            comm,
            first,
            round,
            kind: fits.then_some(one.kind),
            flag: calls.iter().fold(u32::MAX, |flag, (_, call)| flag & call.flag),
            acked: calls.iter().all(|(_, call)| knows(call)),
            next: calls.iter().map(|(_, call)| call.next).max().unwrap_or_default(),
            dead,
        };
        let answers = one.members.iter().map(|rank| {
            let call = calls.iter().find(|(of, _)| *of == rank).map_or(0, |(_, call)| call.call);
            (rank, call)
        });
        let answers = answers.collect();
        let misfit = |of: &Decided| of.decision.kind.is_none();
        if self.decided.len() >= DECISIONS_MAX
            && let Some(oldest) = self.decided.iter().position(misfit)
        {
            self.decided.remove(oldest);
        }
        self.decided.push(Decided { decision: decision.clone(), answers });
        self.tell(Some(decision), true, out);
    }

    /// Drops decisions and revocations that every living member has.
    fn forget(&mut self) {
        let Self { dead, calls, decided, revoked, .. } = self;
        decided.retain(|of| {
            let has = |(rank, answered): (&u32, &u64)| {
                // A member whose calls did not fit may come to this round later.
                let later = |call: &RepairCall| *answered > 0 && call.call > *answered;
                dead.has(*rank) || calls.get(rank).is_some_and(later)
            };
            !of.answers.iter().all(has)
        });
        revoked.retain(|of| {
            let knows = |rank: u32| {
                dead.has(rank) || calls.get(&rank).is_some_and(|call| call.seen >= of.number)
            };
            !of.members.iter().all(knows)
        });
    }
}

/// Of the callers that have lost each other the one with the most broken links, of those the
/// highest.
fn most_lost(calls: &[(u32, &RepairCall)]) -> Option<u32> {
    let has_lost = |of: &RepairCall, rank: u32| of.lost.has(rank);
    let broken = |(rank, call): &(u32, &RepairCall)| {
        let apart = |(other, of): &&(u32, &RepairCall)| {
            other != rank && (has_lost(call, *other) || has_lost(of, *rank))
        };
        (calls.iter().filter(apart).count(), *rank)
    };
    let most = calls.iter().map(broken).max();
    most.filter(|(links, _)| *links > 0).map(|(_, rank)| rank)
}

fn round_of(decision: &RoundResult) -> RoundId {
    ((decision.comm, decision.first), decision.round)
}

/// Ranks as the text `0-2,5`.
mod ranges {
    use super::{Deserialize, Deserializer, Ranks, Serializer};
    use serde::de::Error as _;

    pub(super) fn serialize<S: Serializer>(ranks: &Ranks, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&ranks.ranges())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Ranks, D::Error> {
        let text = String::deserialize(from)?;
        Ranks::from_ranges(&text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests;
