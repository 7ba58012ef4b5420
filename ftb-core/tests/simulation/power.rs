//! Power failures and the mark of a journal: what acting root and standby confirm in memory is
//! never lost in silence, and an agent that was neither reports nothing.

use crate::ops::{Op, Script};
use crate::world::{Setup, World, must_hold};
use ftb_core::node::api::GapReason;

const MS: u64 = 1_000;
const S: u64 = 1_000_000;

/// Which hosts report that entries may be missing on their disks.
fn unclean(world: &World) -> Vec<&str> {
    let said = world.announced.iter().filter(|(name, _)| *name == "FTB_JOURNAL_UNCLEAN");
    said.map(|(_, host)| host.as_str()).collect()
}

/// How many events a subscriber has got that no agent and no disk has any more.
fn lost(world: &World, agents: usize) -> usize {
    let got = world.subscribers.iter().flat_map(|subscriber| &subscriber.got);
    let is_held = |id| (0..agents).any(|at| world.holds(at, id) || world.disk_holds(at, id));
    got.filter(|id| !is_held(**id)).count()
}

/// The standby comes, the cluster is idle, then two memories confirm events that no disk takes.
fn power_fails_after_the_standby_came(first: u32, before: &[(u64, Op)]) -> (World, usize) {
    let mut script: Script = vec![(100 * MS, Op::Publish(3)), (S, Op::LoseDisk(1))];
    script.extend_from_slice(before);
    script.extend([
        (12 * S, Op::StallDisk(0)),
        (12 * S, Op::StallDisk(1)),
        (12 * S + MS, Op::Publish(3)),
        (12 * S + 60 * MS, Op::PowerLoss(0)),
        (12 * S + 60 * MS, Op::PowerLoss(1)),
        (13 * S, Op::ResumeDisk(0)),
        (13 * S, Op::ResumeDisk(1)),
        (14 * S, Op::Start(first)),
        (40 * S, Op::Start(1 - first)),
        (60 * S, Op::Publish(1)),
    ]);
    let setup = Setup { gaps_allowed: true, losses_allowed: true, ..Setup::new(2, 2) };
    let world = must_hold("the power fails", &setup.on_disk(), u64::from(first), &script);
    let lost = lost(&world, 2);
    (world, lost)
}

/// Nothing is written between the arrival of the standby and the first event that it confirms. The
/// disk of either is enough to report the loss.
#[test]
fn what_a_new_standby_confirmed_is_never_lost_in_silence() {
    for first in [0, 1] {
        let (world, lost) = power_fails_after_the_standby_came(first, &[(2 * S, Op::Start(1))]);
        assert!(lost > 0, "{first}: no event was lost");
        let gaps = |at: usize| {
            let gaps = world.subscribers[at].gaps.iter();
            gaps.filter(|gap| gap.reason == GapReason::LogLost).count()
        };
        assert!(gaps(0) > 0 && gaps(1) > 0, "{first}: a loss without a gap");
        assert!(unclean(&world).contains(&["node0", "node1"][first as usize]), "{first}");
    }
}

/// A disk that takes nothing yet has no mark of a standby: the root does not rest on that agent,
/// for a while.
#[test]
fn a_standby_whose_disk_has_no_mark_confirms_nothing() {
    for first in [0, 1] {
        let before = [(10 * S, Op::StallDisk(1)), (10 * S + MS, Op::Start(1))];
        let (world, lost) = power_fails_after_the_standby_came(first, &before);
        assert_eq!(lost, 0, "{first}: an event was confirmed that no disk knew of");
        let made = world.role_changes.get(&("syncing", "standby"));
        assert!(made.is_some_and(|made| *made >= 2), "{first}: no copy was complete");
    }
}

/// A former standby is at rest: a power failure takes nothing that only it had.
#[test]
fn a_former_standby_that_loses_power_reports_nothing() {
    for seed in 0..5 {
        // Agent 2 is standby until agent 1 is back.
        let script = |back: Op| {
            let mut script: Script = vec![
                (100 * MS, Op::Publish(3)),
                (S, Op::Kill(1)),
                (5 * S, Op::Publish(3)),
                (10 * S, back),
            ];
            script.extend([(30 * S, Op::PowerLoss(2)), (31 * S, Op::Start(2))]);
            script
        };
        let setup = Setup::new(3, 2).on_disk();
        let world = must_hold("a standby", &setup, seed, &script(Op::Publish(1)));
        assert_eq!(unclean(&world), ["node2"], "it was standby");
        let world = must_hold("a former standby", &setup, seed, &script(Op::Start(1)));
        let was_standby = world.role_changes.get(&("standby", "member"));
        assert!(was_standby.is_some(), "{:?}", world.role_changes);
        assert_eq!(unclean(&world), [""; 0], "it was at rest");
    }
}
