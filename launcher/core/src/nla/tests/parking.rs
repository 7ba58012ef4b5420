//! Parked processes: when they are started, which rank adopts one, and what follows where that
//! fails.

use super::*;
use crate::message::Ipt;
use crate::warm::ParkedProcesses;

fn warm(spare: u32, local: u32, is_spare: bool) -> Nla {
    let warm = WarmProcesses { spare, local };
    Nla::new(at(0), NlaConfig { warm, ..config() }, is_spare)
}

fn input(nla: &mut Nla, now: Now, input: NlaInput) -> Vec<NlaOutput> {
    let mut out = Vec::new();
    nla.handle(now, input, &mut out);
    out
}

fn starts(out: &[NlaOutput]) -> usize {
    out.iter().filter(|out| **out == NlaOutput::Park).count()
}

fn spawned(out: &[NlaOutput]) -> Vec<u32> {
    let rank = |out: &NlaOutput| match out {
        NlaOutput::Spawn(spawn) => Some(spawn.rank),
        _ => None,
    };
    out.iter().filter_map(rank).collect()
}

fn adopted(out: &[NlaOutput]) -> Vec<(u32, u32)> {
    let rank = |out: &NlaOutput| match out {
        NlaOutput::Adopt { pid, spawn } => Some((spawn.rank, *pid)),
        _ => None,
    };
    out.iter().filter_map(rank).collect()
}

/// The last report of parked processes.
fn report(out: &[NlaOutput]) -> Option<ParkedProcesses> {
    let parked = |out: &NlaOutput| match out {
        NlaOutput::Publish(FromNla::Ready { parked, .. }) => Some(parked.clone()),
        _ => None,
    };
    out.iter().rev().find_map(parked)
}

fn exits(out: &[NlaOutput]) -> bool {
    out.iter().any(|out| matches!(out, NlaOutput::Publish(FromNla::Exited { .. })))
}

/// The processes are started and parked.
fn park(nla: &mut Nla, now: Now, pids: &[u32]) {
    for pid in pids {
        input(nla, now, NlaInput::ParkStarted(Ok(*pid)));
        input(nla, now, NlaInput::Parked { pid: *pid });
    }
}

/// The spare takes ranks 0 and 1 of another node.
fn substitute(nla: &mut Nla, now: Now) -> Vec<NlaOutput> {
    let ipt = Ipt {
        episode: Episode(2),
        incarnation: 1,
        barrier: 2,
        target: config().node,
        ranks: Ranks::from_iter([0, 1]),
        set: SetId::of_checkpoint(Episode(1)),
    };
    feed(nla, now, FromJl::MigrateIpt(ipt))
}

/// A spare with two parked processes, of which rank 0 and 1 have adopted one each.
fn adopting() -> Nla {
    let mut nla = warm(2, 0, true);
    feed(&mut nla, at(1), launch(1, &[]));
    park(&mut nla, at(2), &[71, 72]);
    assert_eq!(adopted(&substitute(&mut nla, at(10))), [(0, 71), (1, 72)]);
    nla
}

#[test]
fn a_spare_parks_at_the_first_message_and_another_node_after_its_ranks() {
    let mut spare = warm(3, 1, true);
    assert_eq!(starts(&input(&mut spare, at(0), NlaInput::Tick)), 0);
    assert_eq!(starts(&feed(&mut spare, at(1), FromJl::Ask)), 3);
    assert_eq!(starts(&feed(&mut spare, at(2), FromJl::Ask)), 0, "they are being started");
    let mut node = warm(3, 1, false);
    assert_eq!(starts(&feed(&mut node, at(1), FromJl::Ask)), 0);
    let out = feed(&mut node, at(2), launch(1, &[0, 1]));
    assert_eq!((spawned(&out), starts(&out)), (vec![0, 1], 1));
    let mut cold = warm(0, 0, true);
    assert_eq!(starts(&feed(&mut cold, at(1), FromJl::Ask)), 0);
}

#[test]
fn ranks_adopt_what_is_parked_and_the_others_are_started() {
    let mut nla = warm(2, 0, true);
    feed(&mut nla, at(1), launch(1, &[]));
    input(&mut nla, at(1), NlaInput::ParkStarted(Ok(71)));
    input(&mut nla, at(1), NlaInput::ParkStarted(Ok(72)));
    // The other one has not come as far.
    let out = input(&mut nla, at(2), NlaInput::Parked { pid: 72 });
    let parked = report(&out).unwrap();
    assert_eq!((parked.wanted, parked.waiting), (2, vec![72]));
    let out = substitute(&mut nla, at(10));
    assert_eq!((adopted(&out), spawned(&out)), (vec![(0, 72)], vec![1]));
    let out = input(&mut nla, at(10), NlaInput::Adopted { pid: 72 });
    let parked = report(&out).unwrap();
    assert_eq!((parked.wanted, parked.adopted), (0, [(0, 72)].into()));
    let ended = NlaInput::Ended { rank: 0, incarnation: 1, how: ExitCause::Exit(3), image: None };
    assert!(exits(&input(&mut nla, at(11), ended)), "it is a rank as any");
    assert_eq!(nla.parked_report().adopted, [].into());
}

#[test]
fn a_process_that_ends_instead_of_becoming_a_rank_is_no_death_of_the_rank() {
    let mut nla = adopting();
    let how = ExitCause::Signal(SIGKILL);
    let of_rank = NlaInput::Ended { rank: 0, incarnation: 1, how, image: None };
    let out = input(&mut nla, at(10), of_rank.clone());
    assert_eq!((spawned(&out), exits(&out)), (vec![0], false));
    // Its end was already on the way.
    let parked = NlaInput::ParkedEnded { pid: 72, how, said: String::new() };
    let out = input(&mut nla, at(10), parked);
    assert_eq!((spawned(&out), exits(&out)), (vec![1], false));
    let problem = report(&out).map(|parked| parked.problem);
    let expected = "parked process 72 ended (signal 9) when rank 1 adopted it";
    assert_eq!(problem.as_deref(), Some(expected));
    assert!(exits(&input(&mut nla, at(11), of_rank)), "the next end is that of the rank");
}

#[test]
fn a_process_that_does_not_confirm_is_killed_and_the_rank_is_started() {
    let mut nla = adopting();
    let line = "cmd=init pmi_version=1 pmi_subversion=1".to_owned();
    input(&mut nla, at(10), NlaInput::PmiLine { rank: 1, incarnation: 1, line });
    let late = after(at(10), limits::ADOPTION_MAX);
    assert_eq!(nla.next_deadline_ns(), late.mono_ns);
    let out = input(&mut nla, late, NlaInput::Tick);
    assert_eq!(out, [NlaOutput::Signal { rank: 0, signal: SIGKILL }], "rank 1 speaks PMI");
    assert_eq!(input(&mut nla, late, NlaInput::Tick), [], "once");
    let how = ExitCause::Signal(SIGKILL);
    let ended = NlaInput::Ended { rank: 0, incarnation: 1, how, image: None };
    let out = input(&mut nla, late, ended);
    assert_eq!((spawned(&out), exits(&out)), (vec![0], false));
}

/// The node launch agent was stopped for a while: what both processes have said waits, and the
/// first word makes the second process late.
#[test]
fn a_process_that_is_killed_although_it_has_confirmed_is_no_death_of_the_rank() {
    let mut nla = adopting();
    let late = at(13);
    let out = input(&mut nla, late, NlaInput::Adopted { pid: 71 });
    assert!(out.contains(&NlaOutput::Signal { rank: 1, signal: SIGKILL }), "{out:?}");
    let line = "cmd=init pmi_version=1 pmi_subversion=1".to_owned();
    let said = NlaInput::PmiLine { rank: 1, incarnation: 1, line };
    for word in [NlaInput::Adopted { pid: 72 }, said] {
        assert_eq!(input(&mut nla, late, word), []);
    }
    assert!(!nla.is_adopting(0) && nla.is_adopting(1), "one of them gets what it is to read");
    let how = ExitCause::Signal(SIGKILL);
    let ended = NlaInput::Ended { rank: 1, incarnation: 1, how, image: None };
    let out = input(&mut nla, late, ended);
    assert_eq!((spawned(&out), exits(&out)), (vec![1], false), "{out:?}");
    assert!(!nla.is_adopting(1), "it is started as any rank");
}

#[test]
fn processes_that_fail_together_are_one_failure_and_the_pause_after_an_adoption_stays() {
    let mut nla = warm(3, 0, true);
    feed(&mut nla, at(1), FromJl::Ask);
    for _ in 0..3 {
        input(&mut nla, at(1), NlaInput::ParkStarted(Err("no memory".to_owned())));
    }
    assert_eq!(nla.next_deadline_ns(), at(2).mono_ns, "the first pause");
    assert_eq!(starts(&input(&mut nla, at(2), NlaInput::Tick)), 3);
    for _ in 0..3 {
        input(&mut nla, at(2), NlaInput::ParkStarted(Err("no memory".to_owned())));
    }
    assert_eq!(nla.next_deadline_ns(), at(4).mono_ns, "the second one");
    let calm = after(at(4), limits::PARK_CALM);
    feed(&mut nla, calm, FromJl::Alive);
    input(&mut nla, calm, NlaInput::ParkStarted(Err("no memory".to_owned())));
    let again = after(calm, limits::PARK_AGAIN);
    assert_eq!(nla.next_deadline_ns(), again.mono_ns, "as the first one");
    let mut nla = warm(2, 1, true);
    feed(&mut nla, at(1), launch(1, &[]));
    park(&mut nla, at(2), &[71, 72]);
    substitute(&mut nla, at(10));
    input(&mut nla, at(10), NlaInput::Adopted { pid: 72 });
    let how = ExitCause::Signal(SIGKILL);
    let failed = NlaInput::Ended { rank: 0, incarnation: 1, how, image: None };
    assert_eq!(spawned(&input(&mut nla, at(10), failed)), [0]);
    let pause = after(at(10), limits::PARK_AFTER_ADOPTION);
    assert_eq!(nla.next_deadline_ns(), pause.mono_ns);
}

/// What is reported is kept by the JL, and shown at a terminal.
#[test]
fn the_reason_of_a_failure_is_short_and_has_no_control_characters() {
    let mut nla = warm(1, 0, true);
    feed(&mut nla, at(1), FromJl::Ask);
    let long = format!("\u{1b}[2J{}", "x".repeat(5000));
    input(&mut nla, at(1), NlaInput::ParkStarted(Err(long.clone())));
    let problem = nla.parked_report().problem;
    let expected = format!("cannot start a process: [2J{}", "x".repeat(197));
    assert_eq!(problem, expected);
    input(&mut nla, at(2), NlaInput::ParkStarted(Ok(71)));
    let how = ExitCause::Exit(1);
    input(&mut nla, at(2), NlaInput::ParkedEnded { pid: 71, how, said: long });
    let problem = nla.parked_report().problem;
    let expected = format!("a process ended before it was parked (exit 1): [2J{}", "x".repeat(197));
    assert_eq!(problem, expected);
}

#[test]
fn one_that_ends_while_it_is_parked_is_reported_and_another_one_is_started_later_each_time() {
    let mut nla = warm(1, 0, true);
    feed(&mut nla, at(1), FromJl::Ask);
    let mut now = at(2);
    for (pid, pause) in [(71, 1), (72, 2), (73, 4)] {
        park(&mut nla, now, &[pid]);
        assert_eq!(nla.parked_report().problem, "");
        let (how, said) = (ExitCause::Exit(64), "no such library".to_owned());
        let out = input(&mut nla, now, NlaInput::ParkedEnded { pid, how, said });
        let parked = report(&out).unwrap();
        assert_eq!(parked.problem, "a parked process ended (exit 64): no such library");
        assert!(parked.waiting.is_empty(), "{parked:?}");
        now = after(now, Duration::from_secs(pause));
        assert_eq!(nla.next_deadline_ns(), now.mono_ns);
        assert_eq!(starts(&input(&mut nla, now, NlaInput::Tick)), 1);
    }
    let out = input(&mut nla, now, NlaInput::ParkStarted(Err("no memory".to_owned())));
    assert_eq!(report(&out).unwrap().problem, "cannot start a process: no memory");
}

#[test]
fn one_that_never_parks_is_killed_and_counts_as_ended() {
    let mut nla = warm(1, 0, true);
    feed(&mut nla, at(1), FromJl::Ask);
    input(&mut nla, at(1), NlaInput::ParkStarted(Ok(71)));
    let late = after(at(1), limits::PARK_MAX);
    feed(&mut nla, at(100), FromJl::Alive);
    let out = input(&mut nla, late, NlaInput::Tick);
    assert_eq!(out, [NlaOutput::EndParked { pid: 71, kill: true }]);
    let how = ExitCause::Signal(SIGKILL);
    let ended = NlaInput::ParkedEnded { pid: 71, how, said: String::new() };
    let problem = report(&input(&mut nla, late, ended)).unwrap().problem;
    assert!(problem.contains("did not reach the initialization"), "{problem}");
}

#[test]
fn parked_processes_exit_by_themselves_at_the_end_before_the_node_leaves() {
    let mut nla = warm(3, 0, true);
    feed(&mut nla, at(1), launch(1, &[]));
    park(&mut nla, at(1), &[71, 72]);
    input(&mut nla, at(1), NlaInput::ParkStarted(Ok(73)));
    let out = feed(&mut nla, at(5), FromJl::Kill { episode: Episode(2), reason: String::new() });
    let end = |pid, kill| NlaOutput::EndParked { pid, kill };
    assert_eq!(out, [end(71, false), end(72, false), end(73, true)]);
    let ended = |pid, how| NlaInput::ParkedEnded { pid, how, said: String::new() };
    input(&mut nla, at(5), ended(73, ExitCause::Signal(SIGKILL)));
    let out = input(&mut nla, at(5), ended(71, ExitCause::Exit(0)));
    assert!(!out.contains(&NlaOutput::Leave) && starts(&out) == 0, "{out:?}");
    let out = input(&mut nla, after(at(5), limits::KILL_GRACE), NlaInput::Tick);
    assert_eq!(out, [end(72, true)], "it is stopped");
    let out = input(&mut nla, at(11), ended(72, ExitCause::Signal(SIGKILL)));
    assert_eq!(out.last(), Some(&NlaOutput::Leave));
}

/// The ranks of a node move away because of a fault: what is parked there is of no use.
#[test]
fn a_node_that_was_left_parks_none_until_it_is_a_spare() {
    let mut nla = warm(1, 1, false);
    feed(&mut nla, at(1), launch(1, &[0, 1]));
    park(&mut nla, at(1), &[71]);
    let (source, set) = (config().node, SetId::of_migration(Episode(2)));
    let ranks = Ranks::from_iter([0, 1]);
    feed(&mut nla, at(2), FromJl::Migrate { episode: Episode(2), source, set, ranks });
    let left = |rank| {
        let (how, image) = (ExitCause::Exit(0), Some(Episode(2)));
        NlaInput::Ended { rank, incarnation: 0, how, image }
    };
    input(&mut nla, at(3), left(0));
    let out = input(&mut nla, at(3), left(1));
    assert_eq!(nla.state(), MigrationState::Inactive);
    assert!(out.contains(&NlaOutput::EndParked { pid: 71, kill: false }), "{out:?}");
    let ended = NlaInput::ParkedEnded { pid: 71, how: ExitCause::Exit(0), said: String::new() };
    assert_eq!(starts(&input(&mut nla, at(3), ended)), 0);
    let (episode, target) = (Episode(3), config().node);
    let out = feed(&mut nla, at(4), FromJl::Usable { episode, target });
    assert_eq!((nla.state(), starts(&out)), (MigrationState::Spare, 1), "{out:?}");
}

/// It was killed because the node was left, and ends when the node is a spare again.
#[test]
fn a_process_that_was_no_longer_wanted_is_not_reported_as_late() {
    let mut nla = warm(1, 1, false);
    feed(&mut nla, at(1), launch(1, &[0]));
    input(&mut nla, at(1), NlaInput::ParkStarted(Ok(71)));
    let (source, set) = (config().node, SetId::of_migration(Episode(2)));
    let ranks = Ranks::from_iter([0]);
    feed(&mut nla, at(2), FromJl::Migrate { episode: Episode(2), source, set, ranks });
    let (how, image) = (ExitCause::Exit(0), Some(Episode(2)));
    let out = input(&mut nla, at(3), NlaInput::Ended { rank: 0, incarnation: 0, how, image });
    assert!(out.contains(&NlaOutput::EndParked { pid: 71, kill: true }), "{out:?}");
    let (episode, target) = (Episode(3), config().node);
    feed(&mut nla, at(4), FromJl::Usable { episode, target });
    let how = ExitCause::Signal(SIGKILL);
    input(&mut nla, at(4), NlaInput::ParkedEnded { pid: 71, how, said: String::new() });
    assert_eq!(nla.parked_report().problem, "");
}
