//! Regressions: what a root takes over, installs and hands on.

use super::{Reached, must_reach, nine};
use crate::chaos::small;
use crate::ops::{Op, Script};
use crate::world::Setup;
use ftb_core::node::NodeConfig;

/// A root that had taken over with what had passed by answered as if it had everything.
#[test]
fn a_root_without_a_copy_does_not_pretend_to_have_one() {
    const WITNESS: &[Reached] = &[Reached::Counter("logs_lost"), Reached::Counter("re_proposed")];
    let mut script: Script = vec![(10_571_260, Op::Kill(7)), (14_597_778, Op::Split(5))];
    script.extend((104..=154).map(|at| (at * 100_000, Op::Publish(2))));
    script.extend((187..=198).map(|at| (at * 100_000, Op::Publish(2))));
    must_reach("no copy", &nine(), 200, &script, WITNESS);
}

/// A root died before anything was logged: its epoch left no trace, and its agents took the next
/// log for one that they had nothing in common with.
#[test]
fn a_root_that_dies_before_anything_is_logged_costs_nothing() {
    const WITNESS: &[Reached] =
        &[Reached::Counter("logs_installed"), Reached::Role("standby", "searching")];
    let script: Script =
        vec![(1_000, Op::Publish(2)), (1_010, Op::Kill(0)), (2_000, Op::Publish(2))];
    let setup = Setup { announcements: false, ..Setup::new(7, 2) };
    for seed in 0..5 {
        must_reach("nothing logged", &setup, seed, &script, WITNESS);
    }
}

/// A root that had passed its standby over, and was then alone, woke without an end: the time at
/// which that child may be standby again stayed due for ever.
#[test]
fn a_root_that_has_passed_its_only_child_over_does_not_spin() {
    const WITNESS: &[Reached] =
        &[Reached::Counter("standby_skipped"), Reached::Role("standby", "member")];
    let mut script: Script = vec![(1_000_000, Op::Pause(1))];
    script.extend((11..=400).map(|at| (at * 100_000, Op::Publish(1))));
    must_reach("alone", &Setup { gaps_allowed: true, ..Setup::new(2, 2) }, 1, &script, WITNESS);
}

/// A root without a copy gave its log up for another one, appended again what it had of it, and got
/// the rest, which was older, back from its origins behind that.
#[test]
fn a_root_without_a_copy_does_not_give_its_log_up() {
    const WITNESS: &[Reached] =
        &[Reached::Counter("logs_lost"), Reached::Counter("installs_refused")];
    let script: Script = vec![
        (5_800_000, Op::Publish(2)),
        (5_878_715, Op::Split(2)),
        (7_963_550, Op::Pause(1)),
        (8_000_000, Op::Publish(2)),
        (9_558_570, Op::Continue(1)),
        (10_155_752, Op::Heal),
        (11_202_604, Op::Kill(0)),
        (12_000_000, Op::Publish(2)),
    ];
    must_reach("given up", &nine(), 6150, &script, WITNESS);
}

/// Events were on their way up when the epoch changed; their origin then put older ones back,
/// behind them.
#[test]
fn events_sent_in_another_epoch_wait_for_requeued_events() {
    const WITNESS: &[Reached] =
        &[Reached::Counter("logs_lost"), Reached::Counter("standby_skipped")];
    let mut script: Script = vec![(6_493_448, Op::HostDown(1))];
    let loads = [64, 67, 70, 71, 72, 76, 78, 82, 102, 104];
    script.extend(loads.map(|at| (at * 100_000, Op::Publish(2))));
    script.extend([(7_226_370, Op::Split(8)), (8_333_541, Op::Split(3))]);
    script.sort_by_key(|(at, _)| *at);
    must_reach("put back", &nine(), 8212, &script, WITNESS);
}

/// A root that one child could not hear any more stopped. Its standby went below that child, which
/// was root of a log of its own, and threw its copy away: what only root and standby had was lost
/// without a gap.
#[test]
fn a_standby_that_goes_below_another_root_hands_its_copy_over() {
    const WITNESS: &[Reached] = &[Reached::Counter("copies_kept"), Reached::Counter("re_proposed")];
    let script: Script = vec![
        (8_700_000, Op::Publish(2)),
        (8_776_202, Op::CutOneWay(0, 1)),
        (16_400_000, Op::Publish(2)),
        (16_410_459, Op::Stop(0)),
    ];
    must_reach("copy", &nine(), 40_037, &script, WITNESS);
    let setup = Setup { unlisted: 3, ..nine() };
    must_reach("copy", &setup, 40_037, &script[1..].to_vec(), WITNESS);
}

/// A root without a copy of its log handed it on to one that had just started. What its own agents
/// had published before that was known to be confirmed there, in a part that no agent has, and came
/// again only when that log met another one: behind what is newer.
#[test]
fn what_a_root_without_a_copy_does_not_have_is_sent_again_at_once() {
    const WITNESS: &[Reached] = &[
        Reached::Counter("logs_lost"),
        Reached::Role("root", "installing"),
        Reached::Role("member", "offering"),
    ];
    let script: Script = vec![
        (10_234_784, Op::Split(5)),
        (13_100_000, Op::Publish(2)),
        (13_194_357, Op::Kill(5)),
        (15_989_408, Op::Start(5)),
        (19_900_000, Op::Publish(2)),
    ];
    must_reach("handed on", &Setup { unlisted: 3, ..nine() }, 90_985, &script, WITNESS);
}

/// A root with a past took a log over that a root without a copy had begun, and lost of its own
/// what that one did not have: its agents sent it again, behind what is newer.
#[test]
fn a_root_with_a_past_takes_no_log_over_that_has_lost_its_own() {
    const WITNESS: &[Reached] =
        &[Reached::Counter("logs_lost"), Reached::Counter("installs_refused")];
    let script: Script = vec![
        (14_603_978, Op::Kill(4)),
        (14_800_000, Op::Publish(2)),
        (17_082_041, Op::Split(4)),
        (19_581_225, Op::Start(4)),
        (19_900_000, Op::Publish(2)),
    ];
    must_reach("with a past", &nine(), 4, &script, WITNESS);
}

/// A root without a copy handed its log over: first what of the past had passed by, in which events
/// are missing, and then all of it again.
#[test]
fn what_passed_by_comes_before_what_was_sent_again_only_if_it_was_not() {
    const WITNESS: &[Reached] = &[
        Reached::Counter("logs_lost"),
        Reached::Counter("re_proposed"),
        Reached::Role("root", "member"),
    ];
    let script: Script = vec![
        (9_961_227, Op::HostDown(4)),
        (11_800_000, Op::Publish(2)),
        (11_900_000, Op::Publish(2)),
        (11_905_202, Op::Split(4)),
        (14_982_318, Op::Start(4)),
        (17_200_000, Op::Publish(2)),
    ];
    must_reach("passed by", &nine(), 51_119, &script, WITNESS);
}

/// A root that had just started had a log by then that others had handed over, and took another one
/// over that a root without a copy had begun: what that one had lost came again behind what is
/// newer.
#[test]
fn a_root_with_children_installs_no_incomplete_log() {
    const WITNESS: &[Reached] =
        &[Reached::Counter("logs_lost"), Reached::Counter("installs_refused")];
    let mut script: Script = vec![
        (593972, Op::Kill(5)),
        (4356134, Op::Stop(2)),
        (4764951, Op::Split(2)),
        (6296169, Op::Start(2)),
    ];
    let loads = [
        0, 3, 4, 5, 6, 7, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28,
        29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 45, 46, 52, 53, 62, 63, 71, 72,
        99,
    ];
    script.extend(loads.map(|at| (at * 100_000, Op::Publish(2))));
    script.sort_by_key(|(at, _)| *at);
    must_reach("joined", &Setup { unlisted: 3, ..nine() }, 51_058, &script, WITNESS);
}

/// An agent between had a rank of an unlisted host in mind that the root of a merged component had
/// given to another. The host got one rank from that agent and the other from all others, and
/// never came to rest.
#[test]
fn a_rank_that_only_an_agent_between_has_in_mind_is_asked_for() {
    const WITNESS: &[Reached] = &[Reached::Counter("renumbered")];
    let mut script: Script = vec![
        (2883997, Op::HostDown(6)),
        (4237843, Op::Stop(7)),
        (5093422, Op::HostDown(0)),
        (10645686, Op::Start(0)),
        (11150233, Op::Split(7)),
        (11208758, Op::Start(7)),
        (11249336, Op::CutOneWay(1, 0)),
    ];
    let loads = [120];
    script.extend(loads.map(|at| (at * 100_000, Op::Publish(2))));
    script.sort_by_key(|(at, _)| *at);
    must_reach("in mind", &Setup { unlisted: 3, ..nine() }, 200_650, &script, WITNESS);
}

/// A root took a longer log over. While that came, its own log went on and dropped the first events
/// after the fork: it appended the others again, and their origin put those back behind them.
#[test]
fn a_root_whose_log_outgrows_its_memory_during_an_install_keeps_its_log() {
    const WITNESS: &[Reached] = &[
        Reached::Counter("installs_refused"),
        Reached::Counter("re_proposed"),
        Reached::Role("installing", "root"),
        Reached::Role("offering", "member"),
    ];
    let mut script: Script = vec![(1_000_000, Op::Publish(2)), (1_050_000, Op::Split(1))];
    script.extend((11..295).map(|at| (at * 100_000, Op::Publish(2))));
    let tune = |config: &mut NodeConfig| config.log_bytes = 256 << 10;
    let setup = Setup { tune, ..nine() }.on_disk();
    let world = must_reach("outgrown", &setup, 1, &script, WITNESS);
    assert!(world.role_rows.contains("| installing | OfferLost | root |"), "it is installed");
}

/// A root had lost an agent and suspected those below it. They went with it to another root without
/// a new hello. When the first one stepped down and reported its doubt later than that they were
/// up, the other one missed them for good, and what they stated became unknown again and again.
#[test]
fn what_a_former_root_doubts_does_not_hide_who_is_up_elsewhere() {
    const WITNESS: &[Reached] = &[
        Reached::Counter("conditions_unknown"),
        Reached::Counter("logs_installed"),
        Reached::Role("root", "member"),
    ];
    let loads = [3..=4, 6..=10, 13..=14, 16..=18, 21..=22, 24..=24, 26..=29, 32..=32, 48..=50];
    let loads = loads.into_iter().chain([54..=54, 57..=67, 71..=81]).flatten();
    let mut script: Script = loads.map(|at| (at * 100_000, Op::Publish(2))).collect();
    script.extend([5, 15, 20, 25, 50, 60, 65, 80].map(|at| (at * 100_000, Op::State)));
    script.extend([
        (1_720_017, Op::ClientDies(1)),
        (2_630_625, Op::Split(2)),
        (2_901_751, Op::Split(1)),
        (5_291_601, Op::Split(3)),
        (7_357_032, Op::Heal),
    ]);
    script.sort_by_key(|(at, _)| *at);
    let setup = Setup { tune: crate::chaos::small, payload: 400, ..nine() };
    must_reach("doubts", &setup.on_disk().with_conditions(), 20_427, &script, WITNESS);
}

/// A root that was stopped for a while joined the next one. It reported as below it what was below
/// a child that had left it in the meantime. The new root refused that as a false claim.
#[test]
fn a_root_that_joins_another_does_not_claim_what_went_with_its_children() {
    const WITNESS: &[Reached] = &[Reached::Role("root", "member")];
    let script: Script = vec![
        (9_553_478, Op::Stop(0)),
        (14_236_564, Op::Pause(1)),
        (15_380_268, Op::Start(0)),
        (15_900_000, Op::Publish(2)),
    ];
    let setup = Setup { tune: small, unlisted: 3, ..nine() };
    must_reach("claims", &setup.on_disk().with_conditions(), 700_065, &script, WITNESS);
}

/// An agent moved with those below it. Its former parent had passed a report of one of them on
/// before it noticed: the new parent waited for that one to come below the former parent.
#[test]
fn a_report_that_is_passed_on_late_is_no_false_claim() {
    const WITNESS: &[Reached] = &[Reached::Counter("reports_held")];
    let script: Script = vec![
        (5_600_000, Op::Publish(2)),
        (11_000_000, Op::State),
        (11_044_569, Op::Split(1)),
        (14_897_393, Op::Heal),
        (16_204_422, Op::Pause(2)),
        (17_753_331, Op::Start(7)),
    ];
    must_reach("late report", &nine().with_conditions(), 720_055, &script, WITNESS);
}
