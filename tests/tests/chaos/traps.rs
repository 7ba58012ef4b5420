//! Traps of the recovery protocol that the other stories do not meet, with real processes: root and
//! standby die together; a filter widens while its agent moves; two roots, of which one outruns
//! what it keeps.

use crate::cuts::{PASSING, PER_S, hosts_are_possible};
use crate::machines::keep_journal;
use crate::{everywhere, patient_plan, plan, turn};
use ftb_client::{Gap, GapReason};
use ftb_tests::load::{Account, Load, LoadPlan, Reader, Source, own_space};
use ftb_tests::netns::Net;

/// Nothing twice, nothing out of order, and nothing missing that was not reported.
fn assert_reported(account: &Account, logs: &str) {
    for faults in &account.faults {
        assert!(faults.all_reported() && faults.disordered == 0, "{account:#?}\n{logs}");
    }
}

/// Both holders of the log are killed at one moment: the origins that live send again what they
/// keep, and what is missing is reported.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn root_and_standby_die_together() {
    let _turn = turn().await;
    let mut cluster = patient_plan(7).start().await.unwrap();
    cluster.wait_wanted().await.unwrap();
    let sockets: Vec<_> = (2..7).map(|rank| cluster.socket(rank).to_owned()).collect();
    let load = LoadPlan { publishers: sockets.clone(), per_s: PER_S, subscribers: sockets };
    let load = Load::start(load).await.unwrap();
    cluster.must(load.wait_flow(PASSING, |_| true, |_| true).await).await;
    cluster.crash(0).unwrap();
    cluster.crash(1).unwrap();
    cluster.must(load.wait_flow(PASSING, |_| true, |_| true).await).await;
    cluster.run(0).unwrap();
    cluster.run(1).unwrap();
    cluster.wait_wanted().await.unwrap();
    cluster.must(load.wait_flow(PASSING, |_| true, |_| true).await).await;
    let account = load.finish().await;
    let account = account.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
    assert_reported(&account, &cluster.logs());
}

/// Acting root and standby, each with a journal, are killed at one moment: the journals and the
/// origins have every event, so nothing is lost, and no gap says that retention was outrun.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_double_kill_with_journals_loses_nothing_and_reports_no_false_gap() {
    let _turn = turn().await;
    let mut cluster = patient_plan(7).prepare().unwrap();
    let journals = cluster.dir().join("journals");
    for rank in 0..2 {
        let folder = journals.join(cluster.host(rank));
        std::fs::create_dir_all(&folder).unwrap();
        keep_journal(cluster.config(rank), &folder);
    }
    for rank in 0..7 {
        cluster.run(rank).unwrap();
    }
    cluster.wait_wanted().await.unwrap();
    for round in 0..double_kills() {
        let load = Load::start(everywhere(&cluster, 7, PER_S)).await.unwrap();
        let elsewhere = |client: usize| client % 7 > 1;
        cluster.must(load.wait_flow(PASSING, |_| true, |_| true).await).await;
        cluster.crash(0).unwrap();
        cluster.crash(1).unwrap();
        if round % 2 == 1 {
            cluster.must(load.wait_flow(PASSING, elsewhere, elsewhere).await).await;
        }
        cluster.run(round % 2).unwrap();
        cluster.run(1 - round % 2).unwrap();
        cluster.must(load.wait_flow(PASSING, |_| true, |_| true).await).await;
        cluster.wait_wanted().await.unwrap();
        cluster.must(load.wait_flow(PASSING, |_| true, |_| true).await).await;
        let gaps: Vec<_> =
            load.readers().iter().flat_map(|reader| reader.ledger().gaps().to_vec()).collect();
        let account = load.finish().await;
        let account = account.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
        let faults = account.all_faults();
        let wrong = faults.lost + faults.doubled + faults.disordered + faults.strange;
        assert_eq!(wrong, 0, "round {round}: {account:#?}\n{}", cluster.logs());
        // The agent that takes over in between cannot know how much both confirmed to their own
        // clients. It reports that as one gap of unknown count after the grace time.
        let is_false = |gap: &Gap| gap.reason != GapReason::LogLost;
        assert!(!gaps.iter().any(is_false), "round {round}: {gaps:#?}\n{}", cluster.logs());
    }
}

/// Double kills in one run of the test; `FTB_CHAOS_RUNS=14` for a long look.
fn double_kills() -> usize {
    let runs = std::env::var("FTB_CHAOS_RUNS").ok();
    runs.map_or(2, |runs| runs.parse().expect("FTB_CHAOS_RUNS is a number of runs"))
}

/// A new filter, made while its agent looks for another parent: all that is published
/// anywhere from then on comes, once and in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_widens_while_its_agent_moves() {
    const EVENTS: u64 = 50;
    let _turn = turn().await;
    let mut cluster = plan(7).start().await.unwrap();
    for parent in [1, 0, 1] {
        cluster.wait_wanted().await.unwrap();
        let space = own_space();
        // Below the parent that dies, and on the other side of the tree.
        let mut source = Source::new(cluster.socket(5), &space, 0).unwrap();
        cluster.crash(parent).unwrap();
        let reader = Reader::start(cluster.socket(3), &space).await.unwrap();
        for _ in 0..EVENTS {
            let _ = source.publish().await.unwrap();
        }
        cluster.run(parent).unwrap();
        let came = reader.wait("all that came behind", |ledger| ledger.last(0) == EVENTS).await;
        came.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
        let faults = reader.ledger().faults(&[EVENTS]);
        assert!(faults.is_none(), "{faults:?}\n{}", cluster.logs());
        source.close().await.unwrap();
        reader.end().await;
    }
}

/// Each half has a root of its own until far more has passed than either keeps; then they are one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_roots_that_outrun_their_logs_report_it() {
    if !hosts_are_possible() {
        return;
    }
    let _turn = turn().await;
    let mut net = Net::new(7).unwrap();
    let small = "[detection]\nsilence = \"1s\"\nheartbeat = \"250ms\"\ndial = \"500ms\"\n\
                 search = \"600ms\"\nprobe = \"200ms\"\n\
                 [limits]\nlog_bytes = 65536\nring_bytes = 32768\nlag_bytes = 65536\n";
    let mut cluster = plan(7).extra(small).on(&net).start().await.unwrap();
    cluster.wait_wanted().await.unwrap();
    let load = Load::start(everywhere(&cluster, 7, PER_S)).await.unwrap();
    cluster.must(load.wait_flow(PASSING, |_| true, |_| true).await).await;
    let half = [1, 3, 4];
    net.split(&half).unwrap();
    let here = |client: usize| half.contains(&client);
    let there = |client: usize| !half.contains(&client);
    // Each event is a hundred bytes and more.
    cluster.must(load.wait_flow(800, here, here).await).await;
    cluster.must(load.wait_flow(PASSING, there, there).await).await;
    net.heal().unwrap();
    cluster.wait_wanted().await.unwrap();
    cluster.must(load.wait_flow(PASSING, |_| true, |_| true).await).await;
    let account = load.finish().await;
    let account = account.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
    assert_reported(&account, &cluster.logs());
    assert!(account.all_faults().gaps > 0, "nothing was outrun: {account:#?}");
}
