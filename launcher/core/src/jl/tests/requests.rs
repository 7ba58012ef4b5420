//! Requests of people and of the policy: queued once, refused with a reason, answered once.

use super::*;

#[test]
fn a_repeated_request_is_known_also_to_the_jl_that_takes_over() {
    let mut jl = jl();
    feed(&mut jl, JlInput::Started);
    assert!(!jl.is_repeated(1));
    assert_eq!(want(&mut jl, migrate("a")), Outcome::Accepted);
    assert!(jl.is_repeated(1));
    let saved = serde_json::to_string(&jl).unwrap();
    let mut next: Jl = serde_json::from_str(&saved).unwrap();
    assert!(next.is_repeated(1), "it waits in the queue");
    assert!(!next.is_repeated(2) && next.is_repeated(2));
    (3..3 + ASKED_MAX as u64).for_each(|request| assert!(!next.is_repeated(request)));
    assert!(!next.is_repeated(2), "the oldest is forgotten");
}

#[test]
fn at_most_one_request_for_a_node_is_queued() {
    let mut jl = jl();
    feed(&mut jl, JlInput::Started);
    assert_eq!(want(&mut jl, migrate("a")), Outcome::Accepted);
    assert_eq!(want(&mut jl, migrate("a")), Outcome::Refused);
    assert_eq!(want(&mut jl, migrate("b")), Outcome::Accepted);
}

#[test]
fn a_node_without_ranks_or_unknown_is_not_migrated() {
    let mut jl = jl();
    feed(&mut jl, JlInput::Started);
    assert_eq!(want(&mut jl, migrate("s")), Outcome::Refused);
    assert_eq!(want(&mut jl, migrate("zz")), Outcome::Refused);
}

#[test]
fn a_spare_that_is_drained_is_none_until_it_may_be_used_again() {
    let mut jl = jl();
    feed(&mut jl, JlInput::Started);
    let drain = |name: &str| Request::Drain { node: node(name), reason: "test".to_owned() };
    jl.job.nodes.get_mut(&node("s")).unwrap().state = Some(MigrationState::Spare);
    assert_eq!(jl.job.spare(&[]), Some(node("s")));
    assert_eq!(want(&mut jl, drain("s")), Outcome::Done);
    assert_eq!(jl.job.spare(&[]), None);
    assert_eq!(want(&mut jl, Request::Usable { node: node("s") }), Outcome::Done);
    assert_eq!(jl.job.spare(&[]), Some(node("s")));
    assert_eq!(want(&mut jl, drain("a")), Outcome::Accepted, "one with ranks is left");
    assert_eq!(want(&mut jl, drain("zz")), Outcome::Refused);
}

#[test]
fn nothing_is_asked_of_ranks_that_have_not_met() {
    let mut jl = jl();
    feed(&mut jl, JlInput::Started);
    let out = feed(&mut jl, JlInput::Request { want: migrate("a"), by: Initiator::Internal });
    assert!(!out.iter().any(|o| matches!(o, JlOutput::Publish(FromJl::Migrate { .. }))));
}

#[test]
fn a_node_that_is_well_again_before_its_turn_stays() {
    let mut jl = jl();
    feed(&mut jl, JlInput::Started);
    want(&mut jl, migrate("a"));
    assert_eq!(want(&mut jl, Request::Usable { node: node("a") }), Outcome::Refused);
    assert_eq!(want(&mut jl, migrate("a")), Outcome::Accepted, "the first one is gone");
}

#[test]
fn requests_for_a_cancelled_fault_go_and_its_late_action_is_refused() {
    let mut jl = jl();
    feed(&mut jl, JlInput::Started);
    wanted_by(&mut jl, 1, migrate("a"));
    wanted_by(&mut jl, 2, migrate("b"));
    let waits = |jl: &Jl| jl.waiting_faults().map(|(fault, ..)| fault.0).collect::<Vec<_>>();
    assert_eq!(waits(&jl), [1, 2]);
    let out = cancel(&mut jl, 1);
    assert!(out.contains(&JlOutput::Save), "{out:?}");
    assert_eq!(waits(&jl), [2]);
    let refused = jl.job().refused;
    assert_eq!(wanted_by(&mut jl, 1, migrate("a")), [], "it comes too late");
    assert_eq!((waits(&jl), jl.job().refused), (vec![2], refused + 1));
    assert_eq!(cancel(&mut jl, 1), [], "nothing is left of it");
    // The policy does not cancel a person's request.
    want(&mut jl, migrate("a"));
    cancel(&mut jl, 2);
    assert_eq!(jl.wanted.len(), 1);
}

#[test]
fn an_early_request_is_done_when_the_ranks_have_joined() {
    let mut job = Clocked::started(Interval::Never, true);
    assert_eq!(job.asks(migrate("a")), [Outcome::Accepted]);
    job.wait(1);
    assert!(!job.asked_of_ranks());
    job.meet(true);
    assert!(job.asked_of_ranks() && !job.reported("neither"), "{:?}", job.out);
}

#[test]
fn the_answer_that_a_node_may_be_used_comes_when_it_is_a_spare() {
    let mut job = Clocked::started(Interval::Never, false);
    job.meet(true);
    assert_eq!(job.asks(Request::Usable { node: node("s") }), [Outcome::Accepted]);
    job.out.clear();
    job.ready("s", MigrationState::Spare);
    assert_eq!(job.answers(), [Outcome::Done]);
    assert!(job.out.contains(&JlOutput::Save), "status shows it");
    assert_eq!(job.asks(Request::Usable { node: node("s") }), [Outcome::Done]);
}
