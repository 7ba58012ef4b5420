//! The rank's side of `revoke`, `agree` and `shrink`: its calls to the launcher, and the decisions
//! that come back (launcher/core/protocol.md).
//!
//! The launcher decides each round of a communicator once, and all members get that decision.
//! Responsible for the wait; not for what a decision means ([`crate::fmi`]), nor
//! for the failure of other calls ([`crate::inbox`]).

use crate::{limits, lock};
use ftb_launcher_core::names::Ranks;
pub use ftb_launcher_core::repair::{CommId, RepairCall, RepairKind, RepairNews, RoundResult};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The decision of the only member.
pub(crate) fn alone(call: &RepairCall) -> RoundResult {
    let RepairCall { comm, round, kind, flag, next, .. } = *call;
    let (_, first) = call.comm_id();
    let dead = Ranks::default();
    RoundResult { comm, first, round, kind: Some(kind), flag, dead, acked: true, next }
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
            let known = alone(open);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn call(kind: RepairKind, round: u32) -> RepairCall {
        let (members, acked) = (Ranks::from_iter([0, 1, 2, 5]), Ranks::default());
        let (flag, next) = (u32::MAX, 2);
        let lost = Ranks::default();
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
            dead: Ranks::default(),
            revoked: Vec::new(),
            seen: 4,
            decided: Some(decided),
        };
        let decision = alone(&open);
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
        let news = |revoked| RepairNews { dead: Ranks::default(), revoked, seen: 1, decided: None };
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
            RepairNews { dead: Ranks::default(), revoked, seen: 1, decided: None }
        };
        repairs.begin(call(RepairKind::Revoke, 0));
        repairs.hear(full((9, 1)));
        assert_eq!(repairs.wait(Duration::ZERO).unwrap().kind, None);
        repairs.begin(call(RepairKind::Revoke, 0));
        repairs.hear(full((0, 0)));
        assert_eq!(repairs.wait(Duration::ZERO).unwrap().kind, Some(RepairKind::Revoke));
    }
}
