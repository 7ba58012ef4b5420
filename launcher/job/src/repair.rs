//! The rank's side of `revoke`, `agree` and `shrink`: its calls to the launcher, and the decisions
//! that come back (launcher/core/protocol.md).
//!
//! The launcher decides each round of a communicator once, and all members get that decision.
//! Responsible for the texts and for the wait; not for what a decision means ([`crate::fmi`]), nor
//! for the failure of other calls ([`crate::inbox`]).

use crate::{limits, lock};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

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

/// A call of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairCall {
    /// Its number among the calls of the rank, from 1.
    pub call: u64,
    /// The number of the communicator.
    pub comm: u16,
    /// Which of the rounds of the communicator.
    pub round: u32,
    /// What is called.
    pub kind: RepairKind,
    /// Numbers of processes.
    #[serde(with = "ranges")]
    pub members: BTreeSet<u32>,
    /// For [`RepairKind::Agree`].
    pub flag: u32,
    /// Dead members that the program has acknowledged.
    #[serde(with = "ranges")]
    pub acked: BTreeSet<u32>,
    /// The lowest number that the rank could give to a new communicator.
    pub next: u32,
    /// The last revocation that the rank has heard of.
    pub seen: u64,
    /// Members to which its link has broken; they may live.
    #[serde(default, with = "ranges")]
    pub lost: BTreeSet<u32>,
}

impl RepairCall {
    /// The communicator, as the launcher names it.
    pub(crate) fn comm_id(&self) -> CommId {
        (self.comm, self.members.first().copied().unwrap_or_default())
    }
}

/// A communicator: its number, and its lowest member. Two without a common member may have the same
/// number.
pub type CommId = (u16, u32);

/// What all members of a communicator get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundResult {
    /// The number of the communicator.
    pub comm: u16,
    /// Its lowest member.
    pub first: u32,
    /// Which of its rounds.
    pub round: u32,
    /// `None`: the members made different calls, or a revocation is refused.
    pub kind: Option<RepairKind>,
    /// The flags of the living members, bitwise and.
    pub flag: u32,
    /// The dead members.
    #[serde(with = "ranges")]
    pub dead: BTreeSet<u32>,
    /// Whether every living member had acknowledged all dead ones.
    pub acked: bool,
    /// The number of a shrunken communicator.
    pub next: u32,
}

impl RoundResult {
    /// That of the only member.
    pub(crate) fn alone(call: &RepairCall) -> Self {
        let RepairCall { comm, round, kind, flag, next, .. } = *call;
        let (_, first) = call.comm_id();
        let dead = BTreeSet::new();
        Self { comm, first, round, kind: Some(kind), flag, dead, acked: true, next }
    }
}

/// What the launcher publishes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairNews {
    /// All dead ranks.
    #[serde(with = "ranges")]
    pub dead: BTreeSet<u32>,
    /// Revoked communicators of which a living member may not know.
    pub revoked: Vec<CommId>,
    /// The last revocation.
    pub seen: u64,
    /// The decision of a round, if one was made or asked for.
    pub decided: Option<RoundResult>,
}

/// The open call of the rank.
#[derive(Default)]
pub(crate) struct Repairs {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    calls: u64,
    seen: u64,
    open: Option<RepairCall>,
    answer: Option<RoundResult>,
}

impl Repairs {
    /// Begins a call; its text with the fields of this rank.
    pub(crate) fn begin(&self, call: RepairCall) -> RepairCall {
        let mut state = lock(&self.state);
        state.calls += 1;
        let call = RepairCall { call: state.calls, seen: state.seen, ..call };
        (state.open, state.answer) = (Some(call.clone()), None);
        call
    }

    /// Takes what the launcher has published.
    pub(crate) fn hear(&self, news: RepairNews) {
        let mut state = lock(&self.state);
        state.seen = state.seen.max(news.seen);
        let Some(open) = &state.open else { return };
        let id = open.comm_id();
        if open.kind == RepairKind::Revoke {
            let known = RoundResult::alone(open);
            if news.revoked.contains(&id) {
                state.answer = Some(known);
            } else if news.revoked.len() >= limits::REVOCATIONS_MAX {
                state.answer = Some(RoundResult { kind: None, ..known });
            }
        } else if let Some(decision) = news.decided
            && (decision.comm, decision.first) == id
            && decision.round == open.round
        {
            state.answer = Some(decision);
        }
        self.changed.notify_all();
    }

    /// Waits for the answer to the open call; `None` after `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) -> Option<RoundResult> {
        let waited = self.changed.wait_timeout_while(lock(&self.state), timeout, |state| {
            state.answer.is_none() && state.open.is_some()
        });
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let answer = state.answer.take()?;
        state.open = None;
        Some(answer)
    }
}

/// Ranks as the text `0-2,5`.
mod ranges {
    use super::{BTreeSet, limits};
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        ranks: &BTreeSet<u32>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for rank in ranks {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == *rank => *last = *rank,
                _ => ranges.push((*rank, *rank)),
            }
        }
        let range = |(first, last): (u32, u32)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        to.serialize_str(&ranges.into_iter().map(range).collect::<Vec<_>>().join(","))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeSet<u32>, D::Error> {
        let text = String::deserialize(from)?;
        let mut ranks = BTreeSet::new();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            match (first.parse::<u32>(), last.parse::<u32>()) {
                (Ok(first), Ok(last)) if first <= last && last < limits::RANKS_MAX => {
                    ranks.extend(first..=last);
                }
                _ => return Err(D::Error::custom(format!("{word:.32?} are no ranks"))),
            }
        }
        Ok(ranks)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn call(kind: RepairKind, round: u32) -> RepairCall {
        let (members, acked) = (BTreeSet::from([0, 1, 2, 5]), BTreeSet::new());
        let (flag, next) = (u32::MAX, 2);
        let lost = BTreeSet::new();
        RepairCall { call: 0, comm: 0, round, kind, members, flag, acked, next, seen: 0, lost }
    }

    /// The text that the launcher reads, in its own test too.
    #[test]
    fn a_call_has_the_text_of_the_protocol() {
        let repairs = Repairs::default();
        (0..6).for_each(|_| drop(repairs.begin(call(RepairKind::Agree, 0))));
        let text = serde_json::to_string(&repairs.begin(call(RepairKind::Agree, 3))).unwrap();
        let expected = concat!(
            r#"{"call":7,"comm":0,"round":3,"kind":"agree","members":"0-2,5","flag":4294967295,"#,
            r#""acked":"","next":2,"seen":0,"lost":""}"#
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn only_the_decision_of_the_open_round_answers_a_call() {
        let repairs = Repairs::default();
        let open = repairs.begin(call(RepairKind::Agree, 3));
        let news = |decided| RepairNews {
            dead: BTreeSet::new(),
            revoked: Vec::new(),
            seen: 4,
            decided: Some(decided),
        };
        let decision = RoundResult::alone(&open);
        repairs.hear(news(RoundResult { round: 2, ..decision.clone() }));
        repairs.hear(news(RoundResult { first: 1, ..decision.clone() }));
        assert_eq!(repairs.wait(Duration::ZERO), None);
        repairs.hear(news(decision.clone()));
        assert_eq!(repairs.wait(Duration::ZERO), Some(decision));
        assert_eq!(repairs.begin(call(RepairKind::Shrink, 4)).seen, 4);
    }

    #[test]
    fn a_revocation_is_over_when_the_launcher_repeats_it() {
        let repairs = Repairs::default();
        repairs.begin(call(RepairKind::Revoke, 0));
        let news = |revoked| RepairNews { dead: BTreeSet::new(), revoked, seen: 1, decided: None };
        repairs.hear(news(vec![(0, 1), (3, 0)]));
        assert_eq!(repairs.wait(Duration::ZERO), None);
        repairs.hear(news(vec![(0, 0)]));
        let answer = repairs.wait(Duration::ZERO).unwrap();
        assert_eq!(answer.kind, Some(RepairKind::Revoke));
    }

    #[test]
    fn a_revocation_is_refused_when_the_list_of_the_launcher_is_full_without_it() {
        let repairs = Repairs::default();
        let full = |last| {
            let others = (1..limits::REVOCATIONS_MAX as u16).map(|comm| (comm, 0));
            let revoked = others.chain([last]).collect();
            RepairNews { dead: BTreeSet::new(), revoked, seen: 1, decided: None }
        };
        repairs.begin(call(RepairKind::Revoke, 0));
        repairs.hear(full((9, 1)));
        assert_eq!(repairs.wait(Duration::ZERO).unwrap().kind, None);
        repairs.begin(call(RepairKind::Revoke, 0));
        repairs.hear(full((0, 0)));
        assert_eq!(repairs.wait(Duration::ZERO).unwrap().kind, Some(RepairKind::Revoke));
    }

    #[test]
    fn ranks_that_are_none_are_refused() {
        let text = serde_json::to_string(&call(RepairKind::Agree, 0)).unwrap();
        for bad in ["1024", "2-1", "x", "-"] {
            let text = text.replace("0-2,5", bad);
            assert!(serde_json::from_str::<RepairCall>(&text).is_err(), "{text}");
        }
    }
}
