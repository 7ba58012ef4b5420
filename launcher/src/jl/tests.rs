//! Decisions of the JL that the simulation does not single out.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::backend::Manner;
use crate::message::Placement;
use crate::names::JobId;

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn jl() -> Jl {
    let placement: Placement =
        [(node("a"), Ranks::from_iter([0])), (node("b"), Ranks::from_iter([1]))].into();
    Jl::new(JlConfig {
        job: JobId::new("job").unwrap(),
        size: 2,
        placement,
        spares: vec![node("s")],
        restore: None,
        deadlines: Deadlines::default(),
        on_death: OnDeath::Rollback,
        restarts_max: 3,
        interval: Interval::Never,
        mtbf: MTBF,
        sets_max: 2,
        manner: Manner::default(),
    })
}

fn feed(jl: &mut Jl, input: Input) -> Vec<Output> {
    let mut out = Vec::new();
    jl.handle(Now::default(), input, &mut out);
    out
}

fn want(jl: &mut Jl, want: Want) -> Outcome {
    let out = feed(jl, Input::Want { want, asked: Some(1) });
    let answer = out.into_iter().find_map(|output| match output {
        Output::Answer(answer) => Some(answer.outcome),
        _ => None,
    });
    answer.unwrap()
}

fn migrate(name: &str) -> Want {
    Want::Migrate { node: node(name), reason: "test".to_owned() }
}

#[test]
fn at_most_one_remedy_of_a_node_waits() {
    let mut jl = jl();
    feed(&mut jl, Input::Started { store: String::new() });
    assert_eq!(want(&mut jl, migrate("a")), Outcome::Accepted);
    assert_eq!(want(&mut jl, migrate("a")), Outcome::Refused);
    assert_eq!(want(&mut jl, migrate("b")), Outcome::Accepted);
}

#[test]
fn a_node_without_ranks_or_unknown_is_not_migrated() {
    let mut jl = jl();
    feed(&mut jl, Input::Started { store: String::new() });
    assert_eq!(want(&mut jl, migrate("s")), Outcome::Refused);
    assert_eq!(want(&mut jl, migrate("zz")), Outcome::Refused);
}

#[test]
fn a_spare_that_is_drained_is_none_until_it_may_be_used_again() {
    let mut jl = jl();
    feed(&mut jl, Input::Started { store: String::new() });
    let drain = |name: &str| Want::Drain { node: node(name), reason: "test".to_owned() };
    jl.job.nodes.get_mut(&node("s")).unwrap().state = Some(MigrationState::Spare);
    assert_eq!(jl.job.spare(&[]), Some(node("s")));
    assert_eq!(want(&mut jl, drain("s")), Outcome::Done);
    assert_eq!(jl.job.spare(&[]), None);
    assert_eq!(want(&mut jl, Want::Usable { node: node("s") }), Outcome::Done);
    assert_eq!(jl.job.spare(&[]), Some(node("s")));
    assert_eq!(want(&mut jl, drain("a")), Outcome::Accepted, "one with ranks is left");
    assert_eq!(want(&mut jl, drain("zz")), Outcome::Refused);
}

#[test]
fn nothing_is_asked_of_ranks_that_have_not_met() {
    let mut jl = jl();
    feed(&mut jl, Input::Started { store: String::new() });
    let out = feed(&mut jl, Input::Want { want: migrate("a"), asked: None });
    assert!(!out.iter().any(|o| matches!(o, Output::Publish(FromJl::Migrate { .. }))));
}

#[test]
fn a_node_that_is_well_again_before_its_turn_stays() {
    let mut jl = jl();
    feed(&mut jl, Input::Started { store: String::new() });
    want(&mut jl, migrate("a"));
    assert_eq!(want(&mut jl, Want::Usable { node: node("a") }), Outcome::Refused);
    assert_eq!(want(&mut jl, migrate("a")), Outcome::Accepted, "the first one is gone");
}

#[test]
fn state_is_saved_before_what_it_leads_to_is_published() {
    let mut jl = jl();
    let out = feed(&mut jl, Input::Started { store: String::new() });
    let save = out.iter().position(|o| *o == Output::Save).unwrap();
    let ask = out.iter().position(|o| *o == Output::Publish(FromJl::Ask)).unwrap();
    assert!(save < ask);
}
