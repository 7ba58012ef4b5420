//! Random schedules: calls are delayed, doubled and lost, ranks die, the launcher is replaced.

#![allow(clippy::unwrap_used)]

use super::*;
use std::collections::BTreeSet;

fn call(call: u64, kind: RepairKind, round: u32, members: &[u32]) -> RepairCall {
    RepairCall {
        call,
        comm: 0,
        round,
        kind,
        members: members.iter().copied().collect(),
        flag: u32::MAX,
        acked: Ranks::default(),
        next: 2,
        seen: 0,
        lost: Ranks::default(),
    }
}

fn handle(repairs: &mut Repairs, input: RepairInput) -> Vec<RoundResult> {
    let mut out = Vec::new();
    repairs.handle(input, &mut out);
    out.into_iter().filter_map(|output| output.news.decided).collect()
}

fn says(repairs: &mut Repairs, rank: u32, call: RepairCall) -> Vec<RoundResult> {
    handle(repairs, RepairInput::Call { rank, call })
}

fn die(repairs: &mut Repairs, dead: &[u32]) -> Vec<RoundResult> {
    handle(repairs, RepairInput::Dead(dead.iter().copied().collect()))
}

#[test]
fn flags_are_combined_and_a_death_decides_what_waited_for_it() {
    let mut repairs = Repairs::default();
    let agree = |flag| RepairCall { flag, ..call(1, RepairKind::Agree, 0, &[0, 1, 2]) };
    assert_eq!(says(&mut repairs, 0, agree(6)), []);
    assert_eq!(says(&mut repairs, 1, agree(3)), []);
    let [decided] = &die(&mut repairs, &[2])[..] else { panic!("no decision") };
    assert_eq!((decided.kind, decided.flag), (Some(RepairKind::Agree), 2));
    assert!(!decided.acked, "no member had acknowledged the death");
    assert_eq!(
        says(&mut repairs, 1, agree(3)),
        core::slice::from_ref(decided),
        "it is answered again"
    );
    let acked: Ranks = [2].into_iter().collect();
    let again = |number| RepairCall {
        acked: acked.clone(),
        ..call(number, RepairKind::Agree, 1, &[0, 1, 2])
    };
    assert_eq!(says(&mut repairs, 0, again(2)), []);
    assert!(says(&mut repairs, 1, again(2))[0].acked);
}

#[test]
fn a_shrunken_communicator_has_the_highest_number_that_a_survivor_proposes() {
    let mut repairs = Repairs::default();
    die(&mut repairs, &[1]);
    let shrink = |next| RepairCall { next, ..call(1, RepairKind::Shrink, 0, &[0, 1, 2, 3]) };
    says(&mut repairs, 0, shrink(5));
    says(&mut repairs, 3, shrink(9));
    let decided = says(&mut repairs, 2, shrink(4)).remove(0);
    assert_eq!((decided.next, decided.dead.ranges().as_str()), (9, "1"));
}

#[test]
fn different_calls_of_one_round_fail_at_all_members() {
    let mut repairs = Repairs::default();
    let members = [0, 1, 2];
    assert_eq!(says(&mut repairs, 0, call(1, RepairKind::Agree, 0, &members)), []);
    let wrong = says(&mut repairs, 1, call(1, RepairKind::Shrink, 0, &members));
    assert_eq!(wrong[0].kind, None);
    assert_eq!(says(&mut repairs, 2, call(1, RepairKind::Shrink, 0, &members)), wrong);
    for rank in members {
        says(&mut repairs, rank, call(2, RepairKind::Agree, 1, &members));
    }
    assert_eq!(repairs.decided.len(), 1, "the first one is forgotten");
}

#[test]
fn communicators_of_one_number_with_other_members_do_not_meet() {
    let mut repairs = Repairs::default();
    assert_eq!(says(&mut repairs, 0, call(1, RepairKind::Agree, 0, &[0, 1])), []);
    assert_eq!(says(&mut repairs, 2, call(1, RepairKind::Shrink, 0, &[2, 3])), []);
    assert_eq!(says(&mut repairs, 1, call(1, RepairKind::Agree, 0, &[0, 1]))[0].first, 0);
    assert_eq!(says(&mut repairs, 3, call(1, RepairKind::Shrink, 0, &[2, 3]))[0].first, 2);
}

#[test]
fn a_living_rank_that_another_cannot_reach_must_die_before_a_shrink() {
    let mut repairs = Repairs::default();
    let of = |kind, lost: &[u32]| RepairCall {
        lost: lost.iter().copied().collect(),
        ..call(1, kind, 0, &[0, 1, 2, 3])
    };
    let shrink = |lost: &[u32]| of(RepairKind::Shrink, lost);
    die(&mut repairs, &[3]);
    // All have lost the dead one, 1 and 2 each other.
    says(&mut repairs, 0, shrink(&[3]));
    says(&mut repairs, 1, shrink(&[2, 3]));
    assert_eq!(repairs.cut_off(), None, "not all have called");
    assert_eq!(says(&mut repairs, 2, shrink(&[3])), []);
    assert_eq!(repairs.cut_off(), Some(2));
    let decided = die(&mut repairs, &[2, 3]).remove(0);
    assert_eq!((decided.dead.ranges().as_str(), repairs.cut_off()), ("2-3", None));
    // The one with most broken links; an agreement needs no links.
    let mut repairs = Repairs::default();
    for rank in 0..3 {
        says(&mut repairs, rank, shrink(if rank == 0 { &[] } else { &[0] }));
    }
    says(&mut repairs, 3, shrink(&[]));
    assert_eq!(repairs.cut_off(), Some(0));
    let mut repairs = Repairs::default();
    for rank in 0..3 {
        says(&mut repairs, rank, of(RepairKind::Agree, &[0]));
    }
    assert!(!says(&mut repairs, 3, of(RepairKind::Agree, &[])).is_empty());
}

#[test]
fn a_revocation_is_repeated_until_every_living_member_has_heard_of_it() {
    let mut repairs = Repairs::default();
    says(&mut repairs, 1, call(1, RepairKind::Revoke, 0, &[0, 1, 2]));
    assert_eq!(repairs.news().unwrap().revoked, [(0, 0)]);
    let knows = |number| RepairCall { seen: 1, ..call(number, RepairKind::Shrink, 0, &[0, 1, 2]) };
    says(&mut repairs, 0, knows(1));
    says(&mut repairs, 1, knows(2));
    assert_eq!(repairs.news().unwrap().revoked, [(0, 0)]);
    die(&mut repairs, &[2]);
    assert_eq!(repairs.news().unwrap().revoked, []);
    let mut out = Vec::new();
    for number in 3..3 + REVOKED_MAX as u64 + 9 {
        let comm = number as u16;
        let call = RepairCall { comm, ..call(number, RepairKind::Revoke, 0, &[0, 1]) };
        out.clear();
        repairs.handle(RepairInput::Call { rank: 1, call }, &mut out);
    }
    let refused = &out[0].news.revoked;
    assert_eq!(refused.len(), REVOKED_MAX);
    assert!(!refused.contains(&(REVOKED_MAX as u16 + 11, 0)));
}

#[test]
fn decisions_about_calls_that_do_not_fit_have_a_bound() {
    let mut repairs = Repairs::default();
    for round in 0..DECISIONS_MAX as u32 + 9 {
        let number = u64::from(round) + 1;
        // The third member never comes.
        says(&mut repairs, 0, call(number, RepairKind::Agree, round, &[0, 1, 2]));
        says(&mut repairs, 1, call(number, RepairKind::Shrink, round, &[0, 1, 2]));
    }
    assert_eq!(repairs.decided.len(), DECISIONS_MAX);
}

#[test]
fn calls_survive_their_text() {
    let whole = call(7, RepairKind::Agree, 3, &[0, 1, 2, 5]);
    let text = serde_json::to_string(&whole).unwrap();
    let expected = concat!(
        r#"{"call":7,"comm":0,"round":3,"kind":"agree","members":"0-2,5","flag":4294967295,"#,
        r#""acked":"","next":2,"seen":0,"lost":""}"#
    );
    assert_eq!(text, expected);
    assert_eq!(serde_json::from_str::<RepairCall>(&text).unwrap(), whole);
    assert!(serde_json::from_str::<RepairCall>(&text.replace("0-2", "0-9999999")).is_err());
}

/// A rank of the simulation: it makes its calls one after the other.
struct Caller {
    rank: u32,
    number: u64,
    comm: u16,
    members: Vec<u32>,
    rounds: u32,
    acked: Ranks,
    next: u32,
    seen: u64,
    /// The call that it repeats.
    open: Option<RepairCall>,
    got: Vec<RoundResult>,
}

/// Each rank agrees, shrinks and agrees on the new communicator, and so on.
const CALLS: usize = 8;

impl Caller {
    fn new(rank: u32, size: u32) -> Self {
        let (members, got) = ((0..size).collect(), Vec::new());
        let (acked, next, seen) = (Ranks::default(), 2, 0);
        Self { rank, number: 0, comm: 0, members, rounds: 0, acked, next, seen, open: None, got }
    }

    fn begin(&mut self) {
        if self.open.is_some() || self.got.len() == CALLS {
            return;
        }
        self.number += 1;
        let kind =
            if self.got.len().is_multiple_of(2) { RepairKind::Agree } else { RepairKind::Shrink };
        self.open = Some(RepairCall {
            comm: self.comm,
            flag: !(1 << self.rank),
            acked: self.acked.clone(),
            next: self.next,
            seen: self.seen,
            ..call(self.number, kind, self.rounds, &self.members)
        });
    }

    fn hear(&mut self, news: &RepairNews) {
        self.acked.0.extend(news.dead.iter());
        self.seen = self.seen.max(news.seen);
        let Some(decision) = &news.decided else { return };
        let Some(open) = &self.open else { return };
        if open.round_id() != round_of(decision) {
            return;
        }
        self.open = None;
        self.rounds += 1;
        if decision.kind == Some(RepairKind::Shrink) {
            (self.comm, self.rounds) = (decision.next as u16, 0);
            self.next = decision.next + 1;
            self.members.retain(|member| !decision.dead.has(*member));
        }
        self.got.push(decision.clone());
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Runs until all living ranks have all decisions; returns the ranks and the dead.
fn simulate(seed: u64, size: u32, deaths: u32) -> (Vec<Caller>, BTreeSet<u32>) {
    let mut random = Random(seed);
    let mut ranks: Vec<Caller> = (0..size).map(|rank| Caller::new(rank, size)).collect();
    let (mut dead, mut repairs) = (BTreeSet::new(), Repairs::default());
    let mut calls: Vec<(u32, RepairCall)> = Vec::new();
    let mut news: Vec<(u32, RepairNews)> = Vec::new();
    let lives = |rank: u32, dead: &BTreeSet<u32>| !dead.contains(&rank);
    for step in 0..200_000 {
        let waits = |rank: &Caller| lives(rank.rank, &dead) && rank.got.len() < CALLS;
        if !ranks.iter().any(waits) {
            return (ranks, dead);
        }
        let mut out = Vec::new();
        let rank = random.below(size.into()) as u32;
        match random.below(100) {
            0 if (dead.len() as u32) < deaths => {
                dead.insert(rank);
                // What it has sent may arrive.
                let all = dead.iter().copied().collect();
                repairs.handle(RepairInput::Dead(all), &mut out);
            }
            // Another launcher takes over what is on disk.
            1 => repairs = serde_json::from_str(&serde_json::to_string(&repairs).unwrap()).unwrap(),
            2..40 if lives(rank, &dead) => {
                let caller = &mut ranks[rank as usize];
                caller.begin();
                calls.extend(caller.open.clone().map(|call| (rank, call)));
            }
            40..70 if !calls.is_empty() => {
                let at = random.below(calls.len() as u64) as usize;
                // Some are lost, some come twice, none in order.
                let (rank, call) = match random.below(8) {
                    0 => calls[at].clone(),
                    _ => calls.swap_remove(at),
                };
                if random.below(8) > 0 {
                    repairs.handle(RepairInput::Call { rank, call }, &mut out);
                }
            }
            70..99 if !news.is_empty() => {
                let at = random.below(news.len() as u64) as usize;
                let (rank, heard) = news.swap_remove(at);
                if random.below(8) > 0 && lives(rank, &dead) {
                    ranks[rank as usize].hear(&heard);
                }
            }
            _ => {}
        }
        for output in out {
            news.extend((0..size).map(|rank| (rank, output.news.clone())));
        }
        assert!(step < 199_999, "seed {seed}: the ranks wait for ever");
    }
    (ranks, dead)
}

#[test]
fn all_living_ranks_get_the_same_decisions_in_every_schedule() {
    let mut shrunken = 0;
    for seed in 0..400 {
        let (size, deaths) = (2 + (seed % 5) as u32, (seed % 4) as u32);
        let (ranks, dead) = simulate(seed, size, deaths.min(size - 1));
        let mut all: BTreeMap<RoundId, &RoundResult> = BTreeMap::new();
        for decision in ranks.iter().flat_map(|rank| &rank.got) {
            let one = all.entry(round_of(decision)).or_insert(decision);
            assert_eq!(*one, decision, "seed {seed}: a dead rank too has no other decision");
            assert!(decision.kind.is_some(), "seed {seed}: {decision:?}");
        }
        let living: Vec<&Caller> = ranks.iter().filter(|rank| !dead.contains(&rank.rank)).collect();
        for rank in &living {
            assert_eq!((rank.comm, &rank.members), (living[0].comm, &living[0].members));
            assert!(rank.members.contains(&rank.rank), "seed {seed}");
        }
        shrunken += usize::from(living[0].members.len() < size as usize);
    }
    assert!(shrunken > 100, "{shrunken} runs lost ranks");
}
