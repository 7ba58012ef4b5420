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

fn says(round: &mut Round, rank: u32, text: &str) -> Option<NlaInput> {
    round.on_rank(rank, FromLoop::parse(text).unwrap()).answer
}

fn orders(effects: &Effects) -> Vec<(u32, &str)> {
    effects.orders.iter().map(|(rank, order)| (*rank, order.as_str())).collect()
}

/// The loop id of a node with ranks at 5 (100 ms an iteration) and 6 (10 ms).
fn asked(round: &mut Round, episode: Episode) -> u64 {
    round.prepare(episode, &ranks());
    assert!(says(round, 7, "at 6 10000").is_none());
    match says(round, 4, "at 5 100000") {
        Some(NlaInput::Looping { episode: of, loop_id }) if of == episode => loop_id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_ranks_are_saved_at_the_loop_id_of_the_job_which_none_has_reached() {
    let mut round = Round::default();
    assert_eq!(asked(&mut round, ONE), 56, "half a second ahead of the fastest");
    let effects = round.save(ONE, &set(ONE), &ranks(), Some(60));
    let order = "save 1 mem-000001 60";
    assert_eq!(orders(&effects), [(4, order), (7, order)]);
    assert!(says(&mut round, 7, "saved mem-000001 100").is_none());
    assert!(says(&mut round, 7, "saved mem-000001 100").is_none(), "it counts once");
    let saved = says(&mut round, 4, "saved mem-000001 100");
    let Some(NlaInput::Saved { episode: ONE, result: Ok(sizes) }) = saved else {
        panic!("{round:?}")
    };
    assert_eq!(sizes, [(4, 100), (7, 100)]);
    assert!(orders(&round.release()).is_empty());
}

#[test]
fn the_first_save_asks_nothing_before() {
    let mut round = Round::default();
    let effects = round.save(ONE, &set(ONE), &ranks(), None);
    let order = "save 1 mem-000001 first";
    assert_eq!(orders(&effects), [(4, order), (7, order)]);
    let refused = round.save(TWO, &set(TWO), &ranks(), Some(9)).answer;
    assert!(matches!(refused, Some(NlaInput::Saved { result: Err(_), .. })), "{refused:?}");
}

/// A rank that computes for an hour is asked once, whatever is tried meanwhile.
#[test]
fn a_rank_that_is_late_is_asked_once() {
    let mut round = Round::default();
    let asked = round.prepare(ONE, &ranks());
    assert_eq!(orders(&asked), [(4, "where"), (7, "where")]);
    says(&mut round, 4, "at 5 600000");
    assert!(orders(&round.release()).is_empty());
    assert_eq!(orders(&round.prepare(TWO, &ranks())), [(4, "where")]);
    says(&mut round, 4, "at 8 600000");
    let answer = says(&mut round, 7, "at 6 600000");
    let ahead = matches!(answer, Some(NlaInput::Looping { episode: TWO, loop_id: 9 }));
    assert!(ahead, "a slow loop is reached in its next call: {answer:?}");
}

#[test]
fn a_rank_that_was_faster_voids_the_save_and_gets_more_time() {
    let mut round = Round::default();
    let first = asked(&mut round, ONE);
    round.save(ONE, &set(ONE), &ranks(), Some(first));
    let missed = says(&mut round, 7, "missed mem-000001");
    assert!(matches!(missed, Some(NlaInput::Saved { result: Err(_), .. })), "{missed:?}");
    assert_eq!(orders(&round.release()), [(4, "cancel")]);
    assert!(says(&mut round, 4, "missed mem-000001").is_none(), "it counts once");
    assert_eq!(asked(&mut round, TWO), 106);
    round.missed = 60;
    assert_eq!(round.lead(), LEAD_MAX);
}

#[test]
fn a_rank_that_fails_cancels_the_others_and_a_late_image_does_not_count() {
    let mut round = Round::default();
    asked(&mut round, ONE);
    round.save(ONE, &set(ONE), &ranks(), Some(90));
    let failed = says(&mut round, 4, "failed mem-000001 the disk is full");
    let Some(NlaInput::Saved { result: Err(reason), .. }) = failed else { panic!("{round:?}") };
    assert_eq!(reason, "rank 4: the disk is full");
    assert_eq!(orders(&round.release()), [(7, "cancel")]);
    assert!(says(&mut round, 7, "saved mem-000001 100").is_none());
}

#[test]
fn what_a_rank_may_not_say_is_no_message() {
    for text in ["", "at", "at 1", "at x 1", "at -1 2", "saved mem-1", "saved mem-1 x", "failed"] {
        assert_eq!(FromLoop::parse(text), None, "{text}");
    }
}

/// The orders reach a rank, and its answers the core.
#[test]
fn orders_and_answers_pass_over_the_socket_until_the_rank_ends() {
    let (inputs, mut answers) = mpsc::channel(8);
    let loops = Loops::new(inputs);
    let rank = MemorySocket::new(loops.serve(4, 1).unwrap());
    let prepare = |episode| {
        let ranks = Ranks::from_iter([4]);
        loops.act(&NlaOutput::Prepare { episode, set: set(episode), ranks })
    };
    assert!(prepare(ONE).is_none());
    assert_eq!(rank.receive().unwrap().unwrap().0, "where");
    rank.send("at 3 1000000", None).unwrap();
    let answer = answers.blocking_recv();
    assert!(matches!(answer, Some(NlaInput::Looping { loop_id: 4, .. })), "{answer:?}");
    rank.send("nonsense", None).unwrap();
    assert!(rank.receive().unwrap().is_none(), "a rank that breaks the protocol is left alone");
    let answer = prepare(TWO);
    assert!(matches!(answer, Some(NlaInput::Prepared { result: Err(_), .. })), "{answer:?}");
}
