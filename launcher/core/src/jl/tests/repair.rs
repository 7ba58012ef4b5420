//! A job that goes on without dead ranks.

use super::*;
use crate::repair::{RepairCall, RepairKind, RepairNews};
use std::collections::BTreeMap;

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
    calls_among(jl, rank, &[0, 1], &[])
}

fn calls_among(jl: &mut Jl, rank: u32, members: &[u32], lost: &[u32]) -> Vec<JlOutput> {
    let (members, acked) = (members.iter().copied().collect(), Ranks::default());
    let (lost, round) = (lost.iter().copied().collect(), 0);
    let (kind, flag, next) = (RepairKind::Shrink, 0, 2);
    let call =
        RepairCall { call: 1, comm: 0, round, kind, members, flag, acked, next, seen: 0, lost };
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

/// Node `b` is lost and comes back as a spare.
fn returned() -> Jl {
    let mut jl = running();
    feed(&mut jl, JlInput::Gone { node: node("b"), reason: "silent".to_owned() });
    feed(&mut jl, JlInput::Saved);
    let (nodes, racks) = ([node("b")].into(), BTreeMap::new());
    feed(&mut jl, JlInput::Add { nodes, racks, by: Initiator::Request(7) });
    ready(&mut jl, Now::default(), "b", MigrationState::Spare);
    assert!(!jl.job.nodes[&node("b")].lost);
    jl
}

fn ready(jl: &mut Jl, now: Now, name: &str, state: MigrationState) {
    let (changes, ranks, pmi, joined) = (0, Ranks::default(), Ranks::default(), Ranks::default());
    let parked = ParkedProcesses::default();
    let message = FromNla::Ready { state, changes, ranks, pmi, joined, parked };
    jl.handle(now, JlInput::Nla(NlaMessage { node: node(name), message }), &mut Vec::new());
}

#[test]
fn the_ranks_of_a_lost_node_stay_dead_when_it_returns() {
    let mut jl = returned();
    assert_eq!(news(&calls(&mut jl, 1)), [], "a dead rank decides nothing");
    let decided = news(&calls(&mut jl, 0)).remove(0);
    assert_eq!((decided.dead.ranges().as_str(), decided.decided.is_some()), ("1", true));
    ends(&mut jl, 0, ExitCause::Exit(0));
    assert_eq!(end_code(&jl), Some(0));
}

#[test]
fn dead_ranks_of_a_lost_node_do_not_keep_a_hang_of_all_others_hidden() {
    use crate::progress::{HangKind, NodeReport, RankReport};
    let mut jl = running();
    let stall_after = Duration::from_secs(20);
    jl.job.config.hang_times = HangTimes { hang_after: stall_after, stall_after };
    feed(&mut jl, JlInput::Gone { node: node("b"), reason: "silent".to_owned() });
    for seconds in 1..60 {
        let now = Now { mono_ns: seconds * 1_000_000_000, wall_ns: 0 };
        ready(&mut jl, now, "a", MigrationState::Ready);
        let still = RankReport { still_ms: seconds * 1000, ..RankReport::default() };
        let message = FromNla::Progress(NodeReport { still: vec![still], ..NodeReport::default() });
        jl.handle(now, JlInput::Nla(NlaMessage { node: node("a"), message }), &mut Vec::new());
        jl.handle(now, JlInput::Tick, &mut Vec::new());
    }
    let found = jl.hangs.found();
    assert!(found.iter().any(|finding| finding.kind == HangKind::All), "{found:?}");
}

#[test]
fn a_call_with_members_that_the_job_does_not_have_is_refused() {
    let mut jl = running();
    let refused = jl.job.refused;
    calls_among(&mut jl, 0, &[0, 1, 2], &[]);
    assert_eq!(jl.job.refused, refused + 1);
    calls(&mut jl, 0);
    assert_eq!(jl.job.refused, refused + 1);
}

#[test]
fn a_rank_that_another_living_one_cannot_reach_is_killed() {
    let mut jl = running();
    let kills = |out: Vec<JlOutput>| {
        let killed = |output: &JlOutput| match output {
            JlOutput::Publish(FromJl::Hang(notice)) if notice.kill => {
                notice.rank.as_ref().map(|of| of.rank)
            }
            _ => None,
        };
        out.iter().find_map(killed)
    };
    assert_eq!(kills(calls(&mut jl, 1)), None);
    assert_eq!(kills(calls_among(&mut jl, 0, &[0, 1], &[1])), Some(1));
    // The node may miss it.
    assert_eq!(kills(calls_among(&mut jl, 0, &[0, 1], &[1])), Some(1));
    let out = ends(&mut jl, 1, ExitCause::Signal(9));
    assert_eq!(news(&out).pop().unwrap().decided.unwrap().dead.ranges(), "1");
    assert_eq!(kills(calls_among(&mut jl, 0, &[0, 1], &[1])), None);
}
