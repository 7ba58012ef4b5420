//! What the simulation does not isolate: refusals, orphans, and the table in the docs.

#![allow(clippy::unwrap_used)]

mod parking;

use super::*;
use crate::manner::{Manner, Saver};
use crate::message::{FromJl, FromRank, Ipt, Launch, Part};
use crate::migration_state::table;
use crate::names::{JobId, NodeName};
use crate::warm::WarmProcesses;

const SECOND: u64 = 1_000_000_000;

fn at(seconds: u64) -> Now {
    Now { mono_ns: seconds * SECOND, wall_ns: 0 }
}

fn after(now: Now, wait: Duration) -> Now {
    Now { mono_ns: now.deadline_ns(wait), wall_ns: 0 }
}

fn config() -> NlaConfig {
    NlaConfig {
        size: 2,
        job: JobId::new("job").unwrap(),
        node: NodeName::new("node01").unwrap(),
        orphan_grace: limits::ORPHAN_GRACE,
        kill_grace: limits::KILL_GRACE,
        manner: Manner::default(),
        sample_every: Duration::ZERO,
        warm: WarmProcesses::default(),
    }
}

fn launch(episode: u64, ranks: &[u32]) -> FromJl {
    let ranks: Ranks = ranks.iter().copied().collect();
    FromJl::Launch(Launch {
        episode: Episode(episode),
        incarnation: 0,
        barrier: 1,
        size: 2,
        set: None,
        set_size: None,
        placement: [(config().node, ranks)].into(),
    })
}

fn feed(nla: &mut Nla, now: Now, message: FromJl) -> Vec<NlaOutput> {
    let mut out = Vec::new();
    nla.handle(now, NlaInput::Jl(message), &mut out);
    out
}

fn spawns(out: &[NlaOutput]) -> usize {
    out.iter().filter(|o| matches!(o, NlaOutput::Spawn(_))).count()
}

#[test]
fn a_launch_that_comes_twice_starts_once_and_is_answered_twice() {
    let mut nla = Nla::new(at(0), config(), false);
    let first = feed(&mut nla, at(1), launch(1, &[0, 1]));
    assert_eq!(spawns(&first), 2);
    let second = feed(&mut nla, at(2), launch(1, &[0, 1]));
    assert_eq!(spawns(&second), 0);
    assert!(matches!(&second[..], [NlaOutput::Publish(FromNla::Launched { .. })]));
}

#[test]
fn an_action_of_an_older_episode_is_refused_and_counted() {
    let mut nla = Nla::new(at(0), config(), false);
    feed(&mut nla, at(1), launch(5, &[0, 1]));
    let out = feed(&mut nla, at(2), launch(4, &[0]));
    assert!(out.is_empty(), "{out:?}");
    let migrate = FromJl::Migrate {
        episode: Episode(3),
        source: config().node,
        set: SetId::of_migration(Episode(3)),
        ranks: Ranks::from_iter([0, 1]),
    };
    feed(&mut nla, at(2), migrate);
    assert_eq!(nla.state(), MigrationState::Ready);
    assert_eq!(nla.refused(), Refused { stale: 2, state: 0 });
}

#[test]
fn a_spare_is_never_a_source() {
    let mut nla = Nla::new(at(0), config(), true);
    let migrate = FromJl::Migrate {
        episode: Episode(3),
        source: config().node,
        set: SetId::of_migration(Episode(3)),
        ranks: Ranks::default(),
    };
    feed(&mut nla, at(1), migrate);
    assert_eq!(nla.state(), MigrationState::Spare);
    assert_eq!(nla.refused().state, 1);
}

#[test]
fn an_orphan_ends_its_ranks_first_gently_then_by_force_and_leaves() {
    let mut nla = Nla::new(at(0), config(), false);
    feed(&mut nla, at(1), launch(1, &[0]));
    let mut out = Vec::new();
    let orphan = after(at(2), limits::ORPHAN_GRACE);
    nla.handle(orphan, NlaInput::Tick, &mut out);
    let signals = |out: &[NlaOutput], wanted: i32| {
        out.iter().any(|o| matches!(o, NlaOutput::Signal { signal, .. } if *signal == wanted))
    };
    assert!(signals(&out, SIGTERM) && !signals(&out, SIGKILL));
    out.clear();
    nla.handle(after(orphan, limits::KILL_GRACE), NlaInput::Tick, &mut out);
    assert!(signals(&out, SIGKILL));
    let ended =
        NlaInput::Ended { rank: 0, incarnation: 0, how: ExitCause::Signal(SIGKILL), image: None };
    nla.handle(after(orphan, limits::KILL_GRACE), ended, &mut out);
    assert_eq!(out.last(), Some(&NlaOutput::Leave));
}

#[test]
fn a_rank_that_breaks_the_pmi_protocol_is_killed_and_reported() {
    let mut nla = Nla::new(at(0), config(), false);
    feed(&mut nla, at(1), launch(1, &[0, 1]));
    let line = NlaInput::PmiLine { rank: 1, incarnation: 0, line: "GET / HTTP/1.1".to_owned() };
    let mut out = Vec::new();
    nla.handle(at(2), line, &mut out);
    assert!(out.contains(&NlaOutput::Signal { rank: 1, signal: SIGKILL }));
    let reported = |o: &NlaOutput| matches!(o, NlaOutput::Publish(FromNla::Exited { rank: 1, .. }));
    assert!(out.iter().any(reported));
}

/// The table in the docs is that of the code. `FTB_BLESS=1` writes it.
#[test]
fn the_docs_show_this_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/states.md");
    let mut wanted = String::from(
        "# States of a node in the launcher\n\n\
         A test renders this page from `launcher/core/src/migration_state.rs`\n\
         (`FTB_BLESS=1 cargo test -p ftb-launcher-core` writes it). A cause without a row for the\n\
         present state is refused, counted and logged.\n\n",
    );
    wanted += &table();
    ftb_fuzz::kept::assert_file_is_current(path, wanted);
}

#[test]
fn a_node_with_a_rank_in_a_barrier_refuses_a_checkpoint_at_once() {
    let manner = Manner { saver: Saver::Agent, moves: crate::manner::Moves::Alone };
    let mut nla = Nla::new(at(0), NlaConfig { manner, ..config() }, false);
    feed(&mut nla, at(1), launch(1, &[0]));
    for line in ["cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=barrier_in\n"] {
        let line = NlaInput::PmiLine { rank: 0, incarnation: 0, line: line.to_owned() };
        nla.handle(at(1), line, &mut Vec::new());
    }
    // Only preparations matter here, not barrier reports.
    let mut prepare = |now, number| {
        let episode = Episode(number);
        let set = SetId::of_checkpoint(episode);
        let out = feed(&mut nla, now, FromJl::Prepare { episode, set });
        assert!(!out.iter().any(|out| matches!(out, NlaOutput::Prepare { .. })), "{out:?}");
        out.into_iter().find_map(|out| match out {
            NlaOutput::PublishFor(says) => Some((says.episode, says.rank, says.message)),
            _ => None,
        })
    };
    // Others are stopped meanwhile, perhaps the rank that the barrier waits for.
    let (episode, rank, message) = prepare(at(2), 2).unwrap();
    assert_eq!((episode, rank), (Episode(2), 0));
    let FromRank::CheckpointFailed { reason, .. } = message else { panic!("{message:?}") };
    assert!(reason.contains("PMI barrier"), "{reason}");
    assert!(prepare(at(3), 3).is_some(), "the next one too");
}

/// Sends a PMI line; returns the ranks that are released.
fn pmi(nla: &mut Nla, now: Now, rank: u32, line: &str) -> Vec<u32> {
    let mut out = Vec::new();
    let line = NlaInput::PmiLine { rank, incarnation: 0, line: line.to_owned() };
    nla.handle(now, line, &mut out);
    released_early(&out)
}

fn released_early(out: &[NlaOutput]) -> Vec<u32> {
    let free = |out: &NlaOutput| match out {
        NlaOutput::PmiReply { rank, line } if line.starts_with("cmd=barrier_out") => Some(*rank),
        _ => None,
    };
    out.iter().filter_map(free).collect()
}

fn tick(nla: &mut Nla, now: Now) -> Vec<u32> {
    let mut out = Vec::new();
    nla.handle(now, NlaInput::Tick, &mut out);
    released_early(&out)
}

/// Two ranks of a pod with puts in a first barrier, complete at second 2.
fn met(moves: crate::manner::Moves) -> Nla {
    let manner = Manner { saver: Saver::Agent, moves };
    let mut nla = Nla::new(at(0), NlaConfig { manner, ..config() }, false);
    feed(&mut nla, at(1), launch(1, &[0, 1]));
    pmi(&mut nla, at(1), 0, "cmd=put kvsname=job key=a value=b");
    for rank in 0..2 {
        assert_eq!(pmi(&mut nla, at(1), rank, "cmd=barrier_in"), [0_u32; 0]);
    }
    let part = Part { barrier: 1, part: 0, parts: 1, lines: "a=b\n".to_owned() };
    let out = feed(&mut nla, at(2), FromJl::Pmi { episode: Episode(1), part });
    assert_eq!(released_early(&out), [0, 1]);
    nla
}

#[test]
fn ranks_of_a_pod_are_released_early_from_their_last_barrier_only() {
    use crate::manner::Moves;
    let long = after(at(2), limits::LAST_BARRIER_WORK);
    let wait = |now| after(now, limits::LAST_BARRIER_WAIT);
    let mut nla = met(Moves::Alone);
    pmi(&mut nla, long, 1, "cmd=barrier_in");
    assert_eq!(nla.next_deadline_ns(), wait(long).mono_ns);
    assert_eq!(tick(&mut nla, Now { mono_ns: wait(long).mono_ns - 1, wall_ns: 0 }), [0_u32; 0]);
    assert_eq!(tick(&mut nla, wait(long)), [1]);
    // A later rank is released at once; the result wakes no rank twice.
    assert_eq!(pmi(&mut nla, at(60), 0, "cmd=barrier_in"), [0]);
    let part = Part { barrier: 2, part: 0, parts: 1, lines: String::new() };
    let out = feed(&mut nla, at(61), FromJl::Pmi { episode: Episode(1), part });
    assert_eq!(released_early(&out), [0_u32; 0]);

    // The program may only have started: it waits longer. A rank that was released and is not at
    // its end is killed.
    let mut nla = met(Moves::Alone);
    pmi(&mut nla, at(3), 1, "cmd=barrier_in");
    assert_eq!(tick(&mut nla, wait(at(3))), [0_u32; 0]);
    assert_eq!(tick(&mut nla, after(at(3), limits::EARLY_BARRIER_WAIT)), [1]);
    let mut out = Vec::new();
    let line = NlaInput::PmiLine { rank: 1, incarnation: 0, line: "cmd=barrier_in".to_owned() };
    nla.handle(at(30), line, &mut out);
    assert!(out.contains(&NlaOutput::Signal { rank: 1, signal: SIGKILL }), "{out:?}");

    // This barrier has puts, or the ranks save themselves: they wait for the others.
    let mut nla = met(Moves::Alone);
    pmi(&mut nla, at(19), 0, "cmd=put kvsname=job key=c value=d");
    pmi(&mut nla, at(20), 1, "cmd=barrier_in");
    assert_eq!(tick(&mut nla, at(200)), [0_u32; 0]);
    let mut nla = met(Moves::Meeting);
    pmi(&mut nla, at(20), 1, "cmd=barrier_in");
    assert_eq!(tick(&mut nla, at(200)), [0_u32; 0]);
}

/// The node prepares and saves its ranks; returns the PMI space of the image.
fn saved(nla: &mut Nla, now: Now, number: u64) -> String {
    let episode = Episode(number);
    let set = SetId::of_checkpoint(episode);
    feed(nla, now, FromJl::Prepare { episode, set: set.clone() });
    nla.handle(now, NlaInput::Prepared { episode, result: Ok(()) }, &mut Vec::new());
    let out = feed(nla, now, FromJl::Checkpoint { episode, set, loop_id: None });
    let space = out.into_iter().find_map(|out| match out {
        NlaOutput::Save { space, .. } => Some(space),
        _ => None,
    });
    space.unwrap()
}

#[test]
fn moved_ranks_wait_no_longer_in_their_last_barrier_than_others() {
    use crate::manner::Moves;
    let saved_at = after(at(2), limits::LAST_BARRIER_WORK);
    let space = saved(&mut met(Moves::Alone), saved_at, 2);
    let manner = Manner { saver: Saver::Agent, moves: Moves::Alone };
    // The other host's clock has run for less time than the ranks have worked.
    let mut nla = Nla::new(at(0), NlaConfig { manner, ..config() }, false);
    let FromJl::Launch(start) = launch(3, &[0, 1]) else { panic!("it is a launch") };
    let set = Some(SetId::of_checkpoint(Episode(2)));
    feed(&mut nla, at(1), FromJl::Launch(Launch { set, ..start }));
    let restored = NlaInput::Restored { incarnation: 0, result: Ok(space) };
    nla.handle(at(1), restored, &mut Vec::new());
    pmi(&mut nla, at(2), 1, "cmd=barrier_in");
    assert_eq!(nla.next_deadline_ns(), after(at(2), limits::LAST_BARRIER_WAIT).mono_ns);
    assert_eq!(tick(&mut nla, after(at(2), limits::LAST_BARRIER_WAIT)), [1]);
}

fn restores(set: u64, episode: u64, incarnation: u64) -> FromJl {
    FromJl::MigrateIpt(Ipt {
        episode: Episode(episode),
        target: config().node,
        ranks: Ranks::from_iter([0, 1]),
        set: SetId::of_migration(Episode(set)),
        incarnation,
        barrier: 1,
    })
}

fn of_pods() -> Nla {
    let manner = Manner { saver: Saver::Agent, moves: crate::manner::Moves::Alone };
    Nla::new(at(0), NlaConfig { manner, ..config() }, true)
}

/// As if the new start had failed, the job launcher would drop its set.
#[test]
fn a_restore_that_is_replaced_is_cancelled_and_not_reported() {
    let cancel = NlaOutput::CancelRestore { incarnation: 3 };
    let reset = FromJl::Reset { episode: Episode(8), barrier: 2, reason: String::new() };
    let is_answer = |out: &NlaOutput| {
        matches!(
            out,
            NlaOutput::Publish(
                FromNla::LaunchFailed { .. } | FromNla::Restarted { .. } | FromNla::Reset { .. }
            )
        )
    };
    let mut nla = of_pods();
    feed(&mut nla, at(1), restores(7, 7, 3));
    let out = feed(&mut nla, at(2), reset.clone());
    assert!(out.contains(&cancel) && !out.iter().any(is_answer), "{out:?}");
    let again = feed(&mut nla, at(3), reset);
    assert!(!again.contains(&cancel), "{again:?}");
    let mut out = Vec::new();
    let result = Err("it was replaced".to_owned());
    nla.handle(at(3), NlaInput::Restored { incarnation: 3, result }, &mut out);
    let answers: Vec<NlaOutput> = out.into_iter().filter(is_answer).collect();
    assert_eq!(answers, [NlaOutput::Publish(FromNla::Reset { episode: Episode(8) })]);

    // A newer start without a reset before waits for the end of the older one, which came too late
    // to be cancelled.
    let mut nla = of_pods();
    feed(&mut nla, at(1), restores(7, 7, 3));
    let out = feed(&mut nla, at(2), restores(9, 9, 4));
    assert!(out.contains(&cancel), "{out:?}");
    let mut out = Vec::new();
    let result = Ok(String::new());
    nla.handle(at(3), NlaInput::Restored { incarnation: 3, result }, &mut out);
    assert!(!out.iter().any(is_answer), "{out:?}");
    assert!(out.contains(&NlaOutput::Signal { rank: 1, signal: SIGKILL }), "{out:?}");
}

#[test]
fn a_failed_start_names_its_own_episode() {
    let failed = |out: Vec<NlaOutput>| {
        out.into_iter().find_map(|out| match out {
            NlaOutput::Publish(FromNla::LaunchFailed { episode, .. }) => Some(episode),
            _ => None,
        })
    };
    let mut nla = of_pods();
    feed(&mut nla, at(1), restores(7, 7, 3));
    let (episode, set) = (Episode(8), SetId::of_checkpoint(Episode(8)));
    feed(
        &mut nla,
        at(2),
        FromJl::Rollback { episode, set, ranks: Ranks::default(), left: Ranks::default() },
    );
    let mut out = Vec::new();
    let result = Err("a peer is gone".to_owned());
    nla.handle(at(3), NlaInput::Restored { incarnation: 3, result }, &mut out);
    assert_eq!(failed(out), Some(Episode(7)));
}

/// Two ranks that call `ftb_loop`, one of them still in a barrier of MPI.
fn looping() -> Nla {
    let manner = Manner { saver: Saver::Loop, moves: crate::manner::Moves::Anew };
    let mut nla = Nla::new(at(0), NlaConfig { manner, ..config() }, false);
    feed(&mut nla, at(1), launch(1, &[0, 1]));
    pmi(&mut nla, at(1), 1, "cmd=barrier_in");
    nla
}

fn prepare(nla: &mut Nla, number: u64) -> Vec<NlaOutput> {
    let episode = Episode(number);
    feed(nla, at(2), FromJl::Prepare { episode, set: SetId::of_memory(episode) })
}

fn checkpoint(nla: &mut Nla, number: u64, loop_id: Option<u64>) -> Vec<Option<u64>> {
    let episode = Episode(number);
    let set = SetId::of_memory(episode);
    let out = feed(nla, at(4), FromJl::Checkpoint { episode, set, loop_id });
    let save = |out: NlaOutput| match out {
        NlaOutput::Save { loop_id, .. } => Some(loop_id),
        _ => None,
    };
    out.into_iter().filter_map(save).collect()
}

#[test]
fn ranks_that_loop_are_saved_at_the_loop_id_of_the_job() {
    let mut nla = looping();
    let out = prepare(&mut nla, 2);
    assert!(out.iter().any(|out| matches!(out, NlaOutput::Prepare { .. })), "{out:?}");
    let episode = Episode(2);
    let mut out = Vec::new();
    nla.handle(at(3), NlaInput::Looping { episode, loop_id: 4 }, &mut out);
    assert_eq!(out, [NlaOutput::Publish(FromNla::Prepared { episode, loop_id: Some(4) })]);
    assert_eq!(prepare(&mut nla, 2), out, "repeated");
    assert_eq!(checkpoint(&mut nla, 2, Some(7)), [Some(7)]);
    assert_eq!(checkpoint(&mut nla, 2, Some(7)), [], "repeated");
}

/// They wait in their first call, so nothing has to be asked before.
#[test]
fn the_first_checkpoint_needs_no_preparation() {
    let mut nla = looping();
    assert_eq!(checkpoint(&mut nla, 2, None), [None]);
    assert_eq!(checkpoint(&mut nla, 2, None), [], "repeated");
    let mut out = Vec::new();
    let result = Ok(vec![(0, 10), (1, 10)]);
    nla.handle(at(5), NlaInput::Saved { episode: Episode(2), result }, &mut out);
    let done = |out: &&NlaOutput| {
        matches!(out, NlaOutput::PublishFor(says)
        if matches!(says.message, FromRank::CheckpointDone { .. }))
    };
    assert_eq!(out.iter().filter(done).count(), 2, "{out:?}");
}

#[test]
fn a_save_that_is_cancelled_is_cancelled_on_its_way_to_the_loop_id() {
    for is_due in [false, true] {
        let mut nla = looping();
        prepare(&mut nla, 2);
        let episode = Episode(2);
        if is_due {
            nla.handle(at(3), NlaInput::Looping { episode, loop_id: 4 }, &mut Vec::new());
            checkpoint(&mut nla, 2, Some(7));
        }
        let out = feed(&mut nla, at(5), FromJl::Release { episode });
        assert!(out.contains(&NlaOutput::Release { episode }), "{is_due}: {out:?}");
        let out = prepare(&mut nla, 3);
        assert!(out.iter().any(|out| matches!(out, NlaOutput::Prepare { .. })), "{out:?}");
    }
}

/// The launcher repeats it while nothing is open.
#[test]
fn saved_ranks_are_released_once_also_by_the_number_of_a_later_episode() {
    for later in [2, 5] {
        let mut nla = of_pods();
        feed(&mut nla, at(1), launch(1, &[0, 1]));
        prepare(&mut nla, 2);
        let (episode, mut out) = (Episode(2), Vec::new());
        nla.handle(at(3), NlaInput::Prepared { episode, result: Ok(()) }, &mut out);
        checkpoint(&mut nla, 2, None);
        let result = Ok(vec![(0, 10), (1, 10)]);
        nla.handle(at(5), NlaInput::Saved { episode, result }, &mut out);
        let mut release =
            |number| feed(&mut nla, at(6), FromJl::Release { episode: Episode(number) });
        assert_eq!(release(1), [], "of an earlier one");
        assert_eq!(release(later), [NlaOutput::Release { episode }]);
        assert_eq!(release(later), [], "repeated");
        assert_eq!(release(later + 1), [], "repeated");
        // The next checkpoint is not undone by what comes late.
        prepare(&mut nla, 7);
        let (episode, result) = (Episode(7), Ok(()));
        nla.handle(at(7), NlaInput::Prepared { episode, result }, &mut out);
        let late = feed(&mut nla, at(8), FromJl::Release { episode: Episode(6) });
        assert_eq!(late, []);
        assert_eq!(checkpoint(&mut nla, 7, None), [None]);
    }
}

/// Ranks die with their launch agent, but the condition of a hung one is known to the backplane.
#[test]
fn conditions_of_dead_launch_agents_are_ended_and_those_of_live_ones_stay() {
    use crate::message::{HangNotice, HungRank};
    use crate::progress::HangKind;
    let mut nla = Nla::new(at(0), config(), false);
    feed(&mut nla, at(1), launch(1, &[0, 1]));
    let hung = HungRank { node: config().node, rank: 1, incarnation: 0, pid: 7 };
    let notice = HangNotice {
        episode: Episode(1),
        rank: Some(hung),
        kind: HangKind::Stopped,
        is_over: false,
        kill: false,
        words: String::new(),
    };
    feed(&mut nla, at(2), FromJl::Hang(notice));
    let stated = |component: &str, unknown_for: Option<u64>| StatedHang {
        component: component.to_owned(),
        unknown_for: unknown_for.map(Duration::from_secs),
    };
    let all = vec![
        stated("job rank 0", None),
        stated("job rank 1", None),
        stated("a rank of mine rank 2", Some(59)),
        stated("other rank 2", Some(59)),
        stated("other rank 3", Some(60)),
        stated("other rank 4", None),
        stated("other rank x", Some(60)),
        stated("fan", Some(60)),
    ];
    let mut out = Vec::new();
    nla.handle(at(3), NlaInput::Stated(all), &mut out);
    let left = |job: &str, rank| {
        NlaOutput::Publish(FromNla::HangLeft { job: JobId::new(job).unwrap(), rank })
    };
    assert_eq!(out, [left("job", 0), left("other", 3)]);
}
