//! A job that goes on without dead ranks.

use super::*;
use crate::repair::{RepairCall, RepairKind, RepairNews};

/// Two ranks that have joined ftb-job and met.
fn running() -> Jl {
    let mut jl = jl();
    jl.job.config.on_death = OnDeath::Continue;
    feed(&mut jl, JlInput::Started);
    jl.open = None;
    jl.job.met = true;
    jl.job.nodes.values_mut().for_each(|row| row.state = Some(MigrationState::Ready));
    jl.job.hear_protocol(&node("a"), &Ranks::from_iter([0]), Protocol::FtbJob);
    jl.job.hear_protocol(&node("b"), &Ranks::from_iter([1]), Protocol::FtbJob);
    jl
}

fn ends(jl: &mut Jl, rank: u32, how: ExitCause) -> Vec<JlOutput> {
    let (episode, incarnation) = (jl.job.episode, 0);
    let node = node(["a", "b"][rank as usize]);
    let message = FromNla::Exited { episode, rank, incarnation, how };
    feed(jl, JlInput::Nla(NlaMessage { node, message }))
}

fn calls(jl: &mut Jl, rank: u32) -> Vec<JlOutput> {
    let (members, acked) = (Ranks::from_iter([0, 1]), Ranks::default());
    let (kind, flag, next) = (RepairKind::Shrink, 0, 2);
    let call = RepairCall { call: 1, comm: 0, round: 0, kind, members, flag, acked, next, seen: 0 };
    let message = FromRank::Repair(call);
    feed(jl, JlInput::Rank(RankMessage { episode: Episode(1), rank, message }))
}

fn news(out: &[JlOutput]) -> Vec<RepairNews> {
    let of = |output: &JlOutput| match output {
        JlOutput::Publish(FromJl::Repair { news, .. }) => Some(news.clone()),
        _ => None,
    };
    out.iter().filter_map(of).collect()
}

fn end_code(jl: &Jl) -> Option<i32> {
    match &jl.open.as_ref()?.workflow {
        Workflow::End(end) => Some(end.code()),
        _ => None,
    }
}

#[test]
fn a_death_is_reported_to_the_others_and_decides_a_shrink_that_waits() {
    let mut jl = running();
    assert_eq!(news(&calls(&mut jl, 0)), []);
    let out = ends(&mut jl, 1, ExitCause::Signal(9));
    let save = out.iter().position(|output| *output == JlOutput::Save).unwrap();
    let first = out.iter().position(|o| matches!(o, JlOutput::Publish(FromJl::Repair { .. })));
    assert!(save < first.unwrap(), "{out:?}");
    let last = news(&out).pop().unwrap();
    assert_eq!(last.dead.ranges(), "1");
    assert_eq!(last.decided.unwrap().next, 2);
    assert!(jl.open.is_none(), "no rank goes back: {:?}", jl.open);
    // The next launcher knows it, and repeats it.
    let mut next: Jl = serde_json::from_str(&serde_json::to_string(&jl).unwrap()).unwrap();
    let out = feed(&mut next, JlInput::Adopted);
    assert_eq!(news(&out)[0].dead.ranges(), "1");
    let again = news(&calls(&mut next, 0));
    assert_eq!(again[0].decided.as_ref().unwrap().next, 2);
    assert_eq!(news(&calls(&mut next, 1)), [], "a dead rank decides nothing");
}

#[test]
fn a_decision_that_is_not_saved_is_not_published() {
    let mut jl = running();
    let published = ends(&mut jl, 1, ExitCause::Signal(9));
    feed(&mut jl, JlInput::SaveFailed { why: "full".to_owned() });
    let repair = |o: &&JlOutput| matches!(o, JlOutput::Publish(FromJl::Repair { .. }));
    assert!(jl.is_taken_back(published.iter().find(repair).unwrap()));
    feed(&mut jl, JlInput::Saved);
    assert!(!jl.is_taken_back(published.iter().find(repair).unwrap()));
}

#[test]
fn the_job_ends_with_its_last_rank() {
    use ExitCause::{Exit, Signal};
    for (first, last, code) in [
        (Signal(9), Exit(0), 0),
        (Exit(0), Signal(9), 0),
        (Signal(9), Signal(11), 139),
        // A shell shows a signal so.
        (Exit(137), Exit(0), 0),
        (Exit(0), Exit(3), 3),
    ] {
        let mut jl = running();
        ends(&mut jl, 0, first);
        assert_eq!(end_code(&jl), None, "{first:?}");
        ends(&mut jl, 1, last);
        assert_eq!(end_code(&jl), Some(code), "{first:?} {last:?}");
    }
}

#[test]
fn a_rank_that_gives_up_ends_the_job() {
    let mut jl = running();
    ends(&mut jl, 1, ExitCause::Exit(7));
    assert_eq!(end_code(&jl), Some(7));
}

#[test]
fn a_lost_node_is_a_death_of_its_ranks() {
    let mut jl = running();
    let gone = JlInput::Gone { node: node("b"), reason: "silent".to_owned() };
    assert_eq!(news(&feed(&mut jl, gone))[0].dead.ranges(), "1");
    ends(&mut jl, 0, ExitCause::Exit(0));
    assert_eq!(end_code(&jl), Some(0));
}

#[test]
fn ranks_that_cannot_hear_of_a_death_do_not_go_on() {
    let mut jl = running();
    jl.job.met = false;
    ends(&mut jl, 1, ExitCause::Signal(9));
    assert_eq!(end_code(&jl), Some(137), "the other one waits in its start");
    let mut jl = running();
    jl.job.ranks[0].protocol = Protocol::Pmi;
    ends(&mut jl, 1, ExitCause::Signal(9));
    assert_eq!(end_code(&jl), Some(137));
}

#[test]
fn such_a_job_is_not_saved() {
    let mut jl = running();
    let checkpoint = Request::Checkpoint { reason: "test".to_owned() };
    assert_eq!(want(&mut jl, checkpoint), Outcome::Refused);
    assert_eq!(want(&mut jl, migrate("a")), Outcome::Refused);
}
