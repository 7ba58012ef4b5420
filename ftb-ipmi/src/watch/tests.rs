//! The task of one BMC: bookmarks that wait for the agent, and news that outlive a lost BMC.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::bmc::Target;
use crate::bmc::tests::{fake_bmc, losable_bmc};
use crate::config::{Config, TargetFile};
use crate::monitor::{FormerCondition, Watched};
use crate::rules::Policy;
use crate::sdr::RawThresholds;
use ftb_core::Severity;
use ftb_rmcp::fake::{Behavior, patient};
use std::path::Path;
use std::sync::atomic::Ordering;

fn watcher(state_dir: &Path) -> (Watcher, mpsc::Receiver<Report>) {
    let target = TargetFile {
        bmc: "bmc1".to_owned(),
        node: Some("node001".to_owned()),
        ..TargetFile::default()
    };
    let node = Config::of_target(&target).unwrap().nodes.remove(0);
    let plan = Plan {
        interval: Duration::from_secs(1),
        sel_interval: Duration::from_secs(1),
        restate: Duration::ZERO,
        state_dir: Some(state_dir.to_owned()),
        rules: Vec::new().into(),
        has_table: true,
    };
    let (reports_in, reports) = mpsc::channel(16);
    let (progress, _) = mpsc::channel(16);
    (Watcher::new(node, plan, reports_in, progress), reports)
}

#[tokio::test]
async fn the_bookmark_waits_until_the_agent_has_an_uncorrectable_error() {
    const BEFORE: &str = "2 536870914\n";
    let (config, task) = fake_bmc(|_| Behavior::Answer).await;
    let mut bmc = Bmc::connect(&Target::Lan(patient(config))).await.unwrap();
    for (is_closed, is_last) in [(false, false), (true, false), (true, true)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node001.sel");
        std::fs::write(&path, BEFORE).unwrap();
        let saved = || std::fs::read_to_string(&path).unwrap();
        let (mut watcher, mut reports) = watcher(folder.path());
        watcher.read_log(&mut bmc).await.unwrap();
        let report = reports.recv().await.unwrap();
        assert!(report.kept.is_some(), "{report:?}");
        assert_eq!(saved(), BEFORE);
        if is_closed {
            reports.close();
        }
        if is_last {
            tokio::join!(watcher.save_last(), async { drop(report) });
            assert_ne!(saved(), BEFORE);
            continue;
        }
        drop(report);
        watcher.read_log(&mut bmc).await.unwrap();
        // After the end of the daemon, a finding about an entry may be lost.
        assert_eq!(saved() == BEFORE, is_closed, "{}", saved());
    }
    task.abort();
}

/// A power supply that has only events, and its events.
fn psu_with_events() -> (Watched, impl Fn(u8, bool) -> Input) {
    let mut psu = crate::sdr::tests::fan();
    (psu.sensor_type, psu.reading_type, psu.event_only) = (8, 0x6F, true);
    psu.name = "PS1 Status".to_owned();
    let (policy, key) = (Policy::default_for(&psu), psu.key);
    let event = move |offset, is_asserted| {
        let event = SensorEvent {
            record: 1,
            time_s: 1,
            sensor: Some(key),
            number: key.number,
            sensor_type: 8,
            reading_type: 0x6F,
            is_asserted,
            offset,
        };
        Input::Event { event, source: EventSource::Logged }
    };
    (Watched::new(psu, policy, RawThresholds::default()), event)
}

/// The table does not say which; a file does.
#[tokio::test]
async fn a_new_life_knows_which_state_of_a_power_supply_has_failed() {
    let (config, task) = fake_bmc(|_| Behavior::Answer).await;
    let mut bmc = Bmc::connect(&Target::Lan(patient(config))).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut kinds = Vec::new();
    for (is_first, events) in [(true, [(1, true)].as_slice()), (false, &[(3, false), (1, false)])] {
        let (mut watcher, mut reports) = watcher(folder.path());
        let (watched, event) = psu_with_events();
        watcher.handle(Input::Inventory(vec![watched])).await;
        watcher.news().put(|news| {
            let former = FormerCondition {
                component: "PS1 Status".to_owned(),
                key: "PSUFAIL".to_owned(),
                severity: Severity::Error,
                onset_ns: 1,
                kind: FindingKind::PsuFail,
                event_states: None,
            };
            news.former = Some(if is_first { Vec::new() } else { vec![former] });
        });
        watcher.take_news(&mut bmc).await.unwrap();
        for (offset, is_asserted) in events {
            watcher.handle(event(*offset, *is_asserted)).await;
            while let Ok(report) = reports.try_recv() {
                kinds.push((*offset, report.finding.kind));
            }
        }
    }
    use FindingKind::{Cleared, PsuFail};
    assert_eq!(kinds, [(1, PsuFail), (3, PsuFail), (1, Cleared)]);
    task.abort();
}

/// The log is read each hour: the bookmark neither waits for that, nor is the BMC asked meanwhile.
#[tokio::test]
async fn the_bookmark_is_saved_when_the_agent_decides_without_asking_the_bmc() {
    const BEFORE: &str = "2 536870914\n";
    let (config, task) = fake_bmc(|_| Behavior::Answer).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node001.sel");
    std::fs::write(&path, BEFORE).unwrap();
    let saved = || std::fs::read_to_string(&path).unwrap();
    let hour = Duration::from_secs(3_600);
    let hourly = || {
        let (mut watcher, reports) = watcher(folder.path());
        (watcher.plan.interval, watcher.plan.sel_interval) = (hour, hour);
        (watcher, reports)
    };
    let mut bmc = Bmc::connect(&Target::Lan(patient(config))).await.unwrap();
    let (mut first, mut reports) = hourly();
    first.read_log(&mut bmc).await.unwrap();
    let undecided = reports.recv().await.unwrap();
    assert_eq!((undecided.kept.is_some(), first.log_pause()), (true, Some(hour)));

    let (mut watcher, mut reports) = hourly();
    let mut pause = PAUSE_MIN;
    let decided = async {
        let kept = loop {
            let report = reports.recv().await.unwrap();
            if report.kept.is_some() {
                break report;
            }
        };
        assert_eq!(saved(), BEFORE);
        drop(kept);
        while saved() == BEFORE {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        reports.close();
    };
    let both = async { tokio::join!(watcher.watch(&mut bmc, &mut pause), decided).0 };
    let watched = tokio::time::timeout(Duration::from_secs(60), both).await;
    watched.expect("the bookmark is saved").unwrap();
    task.abort();
}

#[tokio::test]
async fn news_outlive_a_bmc_that_is_lost_while_its_power_is_read() {
    let (config, task, is_silent) = losable_bmc().await;
    let mut bmc = Bmc::connect(&Target::Lan(config)).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (mut watcher, mut reports) = watcher(folder.path());
    let (watched, event) = psu_with_events();
    watcher.handle(Input::Inventory(vec![watched])).await;
    watcher.handle(event(1, true)).await;
    watcher.news().put(|news| {
        news.cleared.insert(("PS1 Status".to_owned(), "PSUFAIL".to_owned()));
        news.former = Some(vec![FormerCondition {
            component: String::new(),
            key: CHASSIS_OFF.to_owned(),
            severity: Severity::Error,
            onset_ns: 1,
            kind: FindingKind::ChassisOff,
            event_states: None,
        }]);
    });

    is_silent.store(true, Ordering::Relaxed);
    assert!(watcher.take_news(&mut bmc).await.unwrap_err().is_lost());
    is_silent.store(false, Ordering::Relaxed);
    watcher.read_power(&mut bmc, false).await.unwrap();
    watcher.read_power(&mut bmc, false).await.unwrap();
    drop(watcher);
    let mut kinds = Vec::new();
    while let Some(report) = reports.recv().await {
        kinds.push(report.finding.kind);
    }
    assert_eq!(kinds, [FindingKind::PsuFail, FindingKind::Cleared, FindingKind::ChassisOn]);
    task.abort();
}
