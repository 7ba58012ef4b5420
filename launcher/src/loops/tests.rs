#![allow(clippy::unwrap_used)]

use super::*;

const ONE: Episode = Episode(1);
const TWO: Episode = Episode(2);

fn ranks() -> Ranks {
    Ranks::from_iter([4, 7])
}

fn set(episode: Episode) -> SetId {
    SetId::of_memory(episode)
}

fn at(round: &mut Round, rank: u32, loop_id: u64, period_us: u64) -> Option<NlaInput> {
    round.on_rank(rank, &RankPacket::At { loop_id, period_us }).answer
}

/// A rank has saved 100 bytes for the first episode.
fn saved(round: &mut Round, rank: u32) -> Option<NlaInput> {
    round.on_rank(rank, &RankPacket::Saved { set: set(ONE).to_string(), bytes: 100 }).answer
}

fn missed(round: &mut Round, rank: u32) -> Option<NlaInput> {
    round.on_rank(rank, &RankPacket::Missed { set: set(ONE).to_string() }).answer
}

/// An order for both ranks.
fn both(order: &AgentPacket) -> [(u32, AgentPacket); 2] {
    [(4, order.clone()), (7, order.clone())]
}

fn save(episode: u64, loop_id: Option<u64>) -> AgentPacket {
    AgentPacket::Save { episode, set: set(Episode(episode)).to_string(), loop_id }
}

/// The loop id of a node with ranks at 5 (100 ms an iteration) and 6 (10 ms).
fn asked(round: &mut Round, episode: Episode) -> u64 {
    round.prepare(episode, &ranks());
    assert!(at(round, 7, 6, 10000).is_none());
    match at(round, 4, 5, 100000) {
        Some(NlaInput::Looping { episode: of, loop_id }) if of == episode => loop_id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_ranks_are_saved_at_the_loop_id_of_the_job_which_none_has_reached() {
    let mut round = Round::default();
    assert_eq!(asked(&mut round, ONE), 56, "half a second ahead of the fastest");
    let effects = round.save(ONE, &set(ONE), &ranks(), Some(60));
    assert_eq!(effects.orders, both(&save(1, Some(60))));
    assert!(saved(&mut round, 7).is_none());
    assert!(saved(&mut round, 7).is_none(), "it counts once");
    let last = saved(&mut round, 4);
    let Some(NlaInput::Saved { episode: ONE, result: Ok(sizes) }) = last else {
        panic!("{round:?}")
    };
    assert_eq!(sizes, [(4, 100), (7, 100)]);
    assert!(round.release().orders.is_empty());
}

#[test]
fn the_first_save_asks_nothing_before() {
    let mut round = Round::default();
    let effects = round.save(ONE, &set(ONE), &ranks(), None);
    assert_eq!(effects.orders, both(&save(1, None)));
    let refused = round.save(TWO, &set(TWO), &ranks(), Some(9)).answer;
    assert!(matches!(refused, Some(NlaInput::Saved { result: Err(_), .. })), "{refused:?}");
}

/// A rank that computes for an hour is asked once, whatever is tried meanwhile.
#[test]
fn a_rank_that_is_late_is_asked_once() {
    let mut round = Round::default();
    let asked = round.prepare(ONE, &ranks());
    assert_eq!(asked.orders, both(&AgentPacket::Where));
    at(&mut round, 4, 5, 600000);
    assert!(round.release().orders.is_empty());
    assert_eq!(round.prepare(TWO, &ranks()).orders, [(4, AgentPacket::Where)]);
    at(&mut round, 4, 8, 600000);
    let answer = at(&mut round, 7, 6, 600000);
    let ahead = matches!(answer, Some(NlaInput::Looping { episode: TWO, loop_id: 9 }));
    assert!(ahead, "a slow loop is reached in its next call: {answer:?}");
}

#[test]
fn a_rank_that_was_faster_voids_the_save_and_gets_more_time() {
    let mut round = Round::default();
    let first = asked(&mut round, ONE);
    round.save(ONE, &set(ONE), &ranks(), Some(first));
    let answer = missed(&mut round, 7);
    assert!(matches!(answer, Some(NlaInput::Saved { result: Err(_), .. })), "{answer:?}");
    assert_eq!(round.release().orders, [(4, AgentPacket::Cancel)]);
    assert!(missed(&mut round, 4).is_none(), "it counts once");
    assert_eq!(asked(&mut round, TWO), 106);
    round.missed = 60;
    assert_eq!(round.lead(), LEAD_MAX);
}

#[test]
fn a_rank_that_fails_cancels_the_others_and_a_late_image_does_not_count() {
    let mut round = Round::default();
    asked(&mut round, ONE);
    round.save(ONE, &set(ONE), &ranks(), Some(90));
    let reason = "the disk is full".to_owned();
    let failed = RankPacket::Failed { set: set(ONE).to_string(), reason };
    let failed = round.on_rank(4, &failed).answer;
    let Some(NlaInput::Saved { result: Err(reason), .. }) = failed else { panic!("{round:?}") };
    assert_eq!(reason, "rank 4: the disk is full");
    assert_eq!(round.release().orders, [(7, AgentPacket::Cancel)]);
    assert!(saved(&mut round, 7).is_none());
}

/// The orders reach a rank.
#[test]
fn orders_pass_over_the_socket_until_the_rank_ends() {
    let (inputs, mut answers) = mpsc::channel(8);
    let loops = Loops::new(inputs);
    let (socket, theirs) = RankSocket::pair().unwrap();
    let rank = RankSocket::new(theirs);
    loops.add(4, 1, &Arc::new(socket));
    let prepare = |episode| {
        let ranks = Ranks::from_iter([4]);
        loops.act(&NlaOutput::Prepare { episode, set: set(episode), ranks })
    };
    assert!(prepare(ONE).is_none());
    assert_eq!(rank.receive::<AgentPacket>().unwrap().unwrap().0, AgentPacket::Where);
    let at = RankPacket::At { loop_id: 3, period_us: 1_000_000 };
    assert!(!loops.on_packet(4, 2, &at), "of another process");
    assert!(loops.on_packet(4, 1, &at));
    let answer = answers.blocking_recv();
    assert!(matches!(answer, Some(NlaInput::Looping { loop_id: 4, .. })), "{answer:?}");
    loops.gone(4, 1);
    assert!(rank.receive::<AgentPacket>().unwrap().is_none(), "its socket is closed");
    let answer = prepare(TWO);
    assert!(matches!(answer, Some(NlaInput::Prepared { result: Err(_), .. })), "{answer:?}");
}
