//! A real job, as the page shows it: its nodes, a rank that is killed, the episode that follows.

use crate::browser::Browser;
use crate::{TOKEN, cluster, open_view};
use ftb_tests::cluster::{Cluster, binary, example, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

const JOB: &str = "page-1";

/// A job of three ranks on node01 and node02, with node03 as its spare. Its ranks stay in their
/// middle until it is let go.
struct RealJob {
    launcher: Child,
    jobs: PathBuf,
    gate: PathBuf,
}

impl Drop for RealJob {
    fn drop(&mut self) {
        // A test that has failed leaves nothing running.
        if matches!(self.launcher.try_wait(), Ok(None)) {
            let _ = self.ask(&["kill", JOB]);
            let _ = self.launcher.kill();
        }
        let _ = self.launcher.wait();
    }
}

impl RealJob {
    fn start(cluster: &Cluster) -> Self {
        let (jobs, gate) = (cluster.dir().join("jobs"), cluster.dir().join("gate"));
        let node = |rank| format!("{}={}", cluster.host(rank), cluster.socket(rank).display());
        let nodes: Vec<String> = (0..cluster.len()).map(node).collect();
        let mut command = Command::new(binary("ftb-launcher", "ftb-launch").unwrap());
        command.args(["run", "-n", "3", "--job", JOB, "--local-nodes", &nodes.join(",")]);
        command.args(["--hosts", "node[01-02]", "--spares", "node03"]);
        command.args(["--checkpoint-every", "never", "--"]);
        command.arg(example("ftb-launcher", "count").unwrap()).args(["200", "1000"]).arg(&gate);
        let log = std::fs::File::create(cluster.dir().join("launch.log")).unwrap();
        command.env("FTB_JOBS_DIR", &jobs).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Self { launcher: command.spawn().unwrap(), jobs, gate }
    }

    fn ask(&self, words: &[&str]) -> Output {
        let mut command = Command::new(binary("ftb-launcher", "ftb-launch").unwrap());
        command.env("FTB_JOBS_DIR", &self.jobs).args(words).output().unwrap()
    }

    /// Saves the job, as soon as no rank waits for others in a barrier.
    async fn checkpoint(&self, cluster: &Cluster) {
        let saved = wait_for("a checkpoint", async || {
            Ok(self.ask(&["checkpoint", JOB]).status.success().then_some(()))
        });
        cluster.must(saved.await).await;
    }

    /// Kills the process of a rank.
    fn kill_rank(&self, rank: &str) {
        let wanted = [format!("FTB_JOB_ID={JOB}"), format!("FTB_RANK={rank}")];
        let jobs = self.jobs.display().to_string();
        let mut killed = 0;
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
            let environ = String::from_utf8_lossy(&read("environ")).into_owned();
            let is_rank = wanted.iter().all(|pair| environ.split('\0').any(|own| own == pair));
            // Another run of this test has jobs of its own.
            if is_rank && environ.contains(&jobs) && read("comm") == b"count\n" {
                let pid = entry.file_name().to_str().unwrap().parse().unwrap();
                kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
                killed += 1;
            }
        }
        assert_eq!(killed, 1, "one process is rank {rank}");
    }

    /// Lets the ranks go on; the job must end well.
    fn end(mut self) {
        std::fs::write(&self.gate, "").unwrap();
        assert!(self.launcher.wait().unwrap().success());
    }
}

/// What the page shows of an episode: of the first one that has these words.
fn episode(words: &[&str]) -> String {
    format!(
        "[...document.querySelectorAll('#jobs .episode')].find((one) => \
         {words:?}.every((word) => one.innerText.includes(word)))"
    )
}

#[tokio::test]
async fn a_real_job_is_shown_with_its_nodes_and_the_episode_after_a_rank_was_killed() {
    let Some(browser) = Browser::open() else { return };
    let cluster = cluster(3).await;
    let address = cluster.metrics_address(2).unwrap();
    browser.go(&format!("http://{address}/page/#token={TOKEN}"));
    browser.wait("document.querySelectorAll('#grid .cell').length === 3");
    open_view(&browser, "jobs");

    let job = RealJob::start(&cluster);
    let is = |state: &str| {
        format!("document.querySelector('#jobs summary .tag')?.textContent === '{state}'")
    };
    browser.wait(&is("running"));
    let nodes = "[...document.querySelectorAll('#jobs .jobnode')].map((node) => \
                 node.innerText.slice(1)).join(', ')";
    browser.wait(&format!("{nodes} === 'node01 works, node02 works'"));
    browser.wait(&episode(&["start", "done", "launch "]));
    let title = browser.text("return document.querySelector('#jobs summary').innerText");
    assert!(title.contains(JOB) && title.contains("2 nodes"), "{title}");

    job.checkpoint(&cluster).await;
    browser.wait(&episode(&["checkpoint", "done", "save "]));
    assert_eq!(browser.run(&format!("return Boolean({})", episode(&["rollback"]))), false);
    job.kill_rank("1");
    browser.wait(&episode(&["rollback", "done", "restart ", "resume "]));
    let shown = browser.text(&format!("return {}.innerText", episode(&["rollback"])));
    assert!(shown.contains("rank"), "{shown}");
    let bars = format!("return {}.querySelectorAll('.bar .phase').length", episode(&["rollback"]));
    assert!(browser.number(&bars) >= 2.0, "a bar for each phase");

    // Its spare takes the place of a node.
    let moved = job.ask(&["migrate", JOB, "node01"]);
    assert!(moved.status.success(), "{moved:?}");
    browser.wait(&format!("{nodes} === 'node01 inactive, node02 works, node03 works'"));
    browser.wait(&episode(&["migration", "done", "leave ", "from node01 to node03"]));
    browser.shot("job-real");

    job.end();
    browser.wait(&is("ended"));
    // Jobs that have ended are closed at first.
    browser.run("document.querySelector('#jobs summary').click()");
    browser.wait(&episode(&["end", "done"]));
}
