//! What a machine does to its agent: a clock that jumps, a disk that is full at the wrong moment.

use crate::{everywhere, plan, turn};
use ftb_tests::cluster::Cluster;
use ftb_tests::load::{Load, ensure_perfect};
use ftb_tests::reported::Reported;
use ftb_tests::skip::skip;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Gives an agent a journal.
pub(crate) fn keep_journal(config: &Path, folder: &Path) {
    let mut file = File::options().append(true).open(config).unwrap();
    write!(file, "\n[journal]\npath = \"{}\"\n", folder.display()).unwrap();
}

async fn finish(load: Load, cluster: &Cluster) {
    let account = load.finish().await;
    let account = account.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
    ensure_perfect(&account).unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
}

/// The clock of the acting root jumps an hour ahead and back again, under load and with a journal:
/// no agent is suspected, nothing is lost, and what it wrote is there when it starts again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_jumps_by_an_hour_does_no_harm() {
    const HOUR_S: u64 = 3_600;
    let _turn = turn().await;
    let mut cluster = plan(3).prepare().unwrap();
    let library = crate::strangers::clock_library(cluster.dir());
    let clock = cluster.dir().join("clock");
    let seconds = File::create(&clock).unwrap();
    cluster.through(
        0,
        &[
            "env".to_owned(),
            format!("LD_PRELOAD={}", library.display()),
            format!("FTB_TEST_CLOCK_FILE={}", clock.display()),
        ],
    );
    keep_journal(cluster.config(0), &cluster.dir().join("journal"));
    for rank in 0..3 {
        cluster.run(rank).unwrap();
    }
    cluster.wait_wanted().await.unwrap();
    let reported = Reported::listen(cluster.socket(2)).await.unwrap();
    let load = Load::start(everywhere(&cluster, 3, 100)).await.unwrap();
    for ahead_s in [0, HOUR_S, 0] {
        seconds.set_len(ahead_s).unwrap();
        cluster.must(load.wait_flow(50, |_| true, |_| true).await).await;
    }
    assert_eq!(reported.hosts("FTB_NODE_SUSPECT"), [""; 0], "{reported}");
    seconds.set_len(HOUR_S).unwrap();
    cluster.crash(0).unwrap();
    cluster.must(load.wait_flow(20, |client| client != 0, |client| client != 0).await).await;
    cluster.run(0).unwrap();
    cluster.wait_wanted().await.unwrap();
    // The agent that is asked reports the one that asks.
    let differ = reported.wait("FTB_CLOCKS_DIFFER", cluster.host(1)).await;
    differ.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
    finish(load, &cluster).await;
}

/// A small file system of its own, gone with the test.
struct Disk(PathBuf);

impl Disk {
    fn mount(path: &Path) -> Option<Self> {
        std::fs::create_dir_all(path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=192m", "tmpfs"]).arg(path).stderr(Stdio::null());
        mount.status().is_ok_and(|status| status.success()).then(|| Self(path.to_owned()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// The disk of acting root and standby is full when the root dies: the next root goes on in memory,
/// nothing is lost, and both journals come back by themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_full_while_the_root_changes_costs_no_event() {
    let _turn = turn().await;
    let mut cluster = plan(3).prepare().unwrap();
    let folder = cluster.dir().join("disk");
    let Some(_disk) = Disk::mount(&folder) else {
        skip("only root can mount a small file system");
        return;
    };
    for rank in 0..3 {
        keep_journal(cluster.config(rank), &folder.join(cluster.host(rank)));
        cluster.run(rank).unwrap();
    }
    cluster.wait_wanted().await.unwrap();
    let reported = Reported::listen(cluster.socket(2)).await.unwrap();
    let load = Load::start(everywhere(&cluster, 3, 100)).await.unwrap();
    cluster.must(load.wait_flow(20, |_| true, |_| true).await).await;
    let filler = folder.join("filler");
    let mut file = File::create(&filler).unwrap();
    let chunk = vec![1; 1 << 20];
    while file.write_all(&chunk).is_ok() {}
    let failed = reported.wait("FTB_JOURNAL_FAILED", cluster.host(0)).await;
    failed.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
    cluster.crash(0).unwrap();
    let elsewhere = |client: usize| client != 0;
    cluster.must(load.wait_flow(20, elsewhere, elsewhere).await).await;
    cluster.run(0).unwrap();
    cluster.must(load.wait_flow(20, |_| true, |_| true).await).await;
    cluster.wait_wanted().await.unwrap();
    std::fs::remove_file(&filler).unwrap();
    drop(file);
    for rank in [0, 1] {
        let back = reported.wait("FTB_JOURNAL_BACK", cluster.host(rank)).await;
        back.unwrap_or_else(|error| panic!("{error:?}\n{}", cluster.logs()));
    }
    cluster.must(load.wait_flow(20, |_| true, |_| true).await).await;
    finish(load, &cluster).await;
}
