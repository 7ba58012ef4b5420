//! Each message about an episode names fault, rule, choice and reason.

use super::*;
use crate::message::FaultCause;

const FAULT: &str = "(fault 1: FTB_IPMI_FANFAIL of FAN 1 on a, rule fan failed)";

fn fails(job: &mut Clocked, fails_ns: Option<u64>) {
    let cause = FaultCause {
        what: "FTB_IPMI_FANFAIL of FAN 1 on a".to_owned(),
        rule: "fan failed".to_owned(),
    };
    job.feed(JlInput::Explained { fault: FaultId(1), cause });
    job.fails_at(1, "a", fails_ns);
}

fn met(spare: bool) -> Clocked {
    let mut job = Clocked::started(Interval::Never, spare);
    job.meet(true);
    job.out.clear();
    job
}

fn saved() -> Clocked {
    let mut job = met(true);
    job.asks(Request::Checkpoint { reason: "a test".to_owned() });
    save(&mut job);
    job.wait(1);
    job.out.clear();
    job
}

fn closed(job: &Clocked) -> Closed {
    let closed = job.out.iter().rev().find_map(|output| match output {
        JlOutput::Publish(FromJl::Closed(closed)) => Some(closed.clone()),
        _ => None,
    });
    closed.unwrap()
}

#[test]
fn a_migration_names_its_fault_its_rule_the_spare_and_why_it_is_that_one() {
    let mut job = met(true);
    fails(&mut job, None);
    let words = format!("the ranks of a move: fan failed {FAULT}; s is the first free spare");
    assert!(job.reported(&words), "{:?}", job.out);
    // The target cannot take them, and there is no other.
    let episode = job.jl.open().unwrap().episode;
    let set = SetId::of_migration(episode);
    let ranks = Ranks::from_iter([0]);
    job.says("a", FromNla::Pic { episode, ranks: ranks.clone(), set: set.clone() });
    let reason = "disk full".to_owned();
    job.says("s", FromNla::CopyFailed { episode, set, ranks, reason });
    for words in ["node s cannot take the images: disk full", "no hot spare is left: node a takes"]
    {
        assert!(job.reported(&format!("migration 2 {FAULT}: {words}")), "{words}: {:?}", job.out);
    }
    assert!(job.reported("node a takes its ranks back: s could not take them"));
}

/// What the shell makes of `Action::Gone`.
#[test]
fn a_lost_node_names_the_fault_and_the_rule_by_which_it_is_given_up_in_all_that_follows() {
    let mut job = saved();
    let cause =
        FaultCause { what: "FTB_NODE_DEAD on a".to_owned(), rule: "node is dead".to_owned() };
    let reason = cause.words(FaultId(7));
    job.feed(JlInput::Gone { node: node("a"), reason });
    let fault = "fault 7: FTB_NODE_DEAD on a, rule node is dead";
    assert!(job.reported(&format!("node a is lost: {fault}")), "{:?}", job.out);
    let words = format!("node a was lost with its ranks ({fault}) (on_death = rollback): the job");
    assert!(job.reported(&words), "{words}: {:?}", job.out);
    assert!(job.jl.open().unwrap().why.contains(fault), "{:?}", job.jl.open());
}

/// The migration of a fault fails, and the job goes back to its last set.
#[test]
fn a_recovery_from_a_failed_migration_names_the_fault_of_the_migration() {
    let mut job = saved();
    fails(&mut job, None);
    job.out.clear();
    job.feed(JlInput::Gone { node: node("a"), reason: "no route to host".to_owned() });
    let lost = "source a was lost during its migration (no route to host)";
    let words = format!("{lost} in migration 3 {FAULT}: the job ");
    assert!(job.reported(&words), "{words}: {:?}", job.out);
    assert!(job.reported(&format!("migration 3 {FAULT}: {lost} [")), "{:?}", job.out);
}

#[test]
fn a_fault_for_which_nothing_can_be_done_any_more_is_reported_too() {
    let mut job = met(true);
    let episode = job.jl.job.episode;
    let how = ExitCause::Exit(0);
    job.says("b", FromNla::Exited { episode, rank: 1, incarnation: 0, how });
    fails(&mut job, None);
    let words = format!("ranks have ended already: there is nothing to save {FAULT}");
    assert!(job.reported(&words), "{:?}", job.out);
}

#[test]
fn without_a_spare_the_message_says_why_each_one_is_none() {
    let mut job = met(true);
    job.is_unusable("s");
    fails(&mut job, None);
    let why = "s gets no ranks (fan failed: FAN 1 FANFAIL)";
    assert!(job.reported(&format!("no hot spare is left for the ranks of a (fan failed; {why})")));
    assert!(job.reported(&format!("they move when there is a spare {FAULT}")), "{:?}", job.out);
    save(&mut job);
    job.wait(1);
    let closed = closed(&job);
    assert_eq!(closed.choice, "save the job");
    assert_eq!(closed.why, format!("no hot spare is left: {why}"));
    let cause = closed.cause.unwrap();
    assert_eq!(
        (cause.what.as_str(), cause.rule.as_str()),
        ("FTB_IPMI_FANFAIL of FAN 1 on a", "fan failed")
    );
    assert!(job.reported(&format!("checkpoint 2 {FAULT}: ")), "{:?}", job.out);
}

#[test]
fn a_predicted_fault_names_the_time_the_durations_and_the_remedy() {
    let mut job = met(true);
    job.jl.remedies.has_saved(SavePlace::Store, Duration::from_secs(10));
    fails(&mut job, Some(60_000_000_000));
    let words = format!("a fails in 60.0s or later {FAULT}: checkpoint 10.0s (p95)");
    assert!(job.reported(&words), "{:?}", job.out);
    let why = &job.jl.open().unwrap().why;
    assert!(
        why.contains("the job is saved, then the ranks move; s is the first free spare"),
        "{why}"
    );
    // Also the checkpoint before it names the fault, which stays open.
    save(&mut job);
    job.wait(1);
    assert!(job.reported(&format!("checkpoint 2 {FAULT}: ")), "{:?}", job.out);
    assert!(job.reported(&format!("the ranks of a move: fan failed {FAULT}")), "{:?}", job.out);
}

#[test]
fn a_death_names_its_rank_its_node_and_the_setting_that_decides() {
    let mut job = met(true);
    let how = ExitCause::Signal(9);
    let episode = job.jl.job.episode;
    job.says("b", FromNla::Exited { episode, rank: 1, incarnation: 0, how });
    let words = "rank 1 on b died: signal 9 (on_death = rollback); there is no set to restart from";
    assert!(job.reported(words), "{:?}", job.out);
}

/// A launcher that takes over knows why its faults wait.
#[test]
fn the_cause_of_an_open_fault_outlives_the_launcher_and_goes_with_the_fault() {
    let mut job = met(false);
    fails(&mut job, None);
    save(&mut job);
    job.jl = serde_json::from_str(&serde_json::to_string(&job.jl).unwrap()).unwrap();
    job.out.clear();
    let want = Request::Usable { node: node("a") };
    job.feed(JlInput::Request { want, by: Initiator::Internal });
    assert!(job.reported(&format!("the ranks of a stay {FAULT}: node a is well again")));
    assert_eq!(job.jl.job.faults.cause(FaultId(1)), None);
}
