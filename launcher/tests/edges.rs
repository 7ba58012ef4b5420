//! Failures in the middle of a migration, with real processes. The target is stopped, so that the
//! copy of the images lasts as long as the test requires.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use site::fixture::{Fixture, results};
use site::{Site, nothing_left, run, start, text};
use std::process::Output;
use tokio::task::JoinHandle;

/// A job whose node02 is being left for node03, which does not get on with it.
struct Middle {
    site: Site,
    job: String,
    undisturbed: Vec<String>,
    running: JoinHandle<Result<Output>>,
    asked: JoinHandle<Result<Output>>,
}

impl Middle {
    async fn of(site: Site, fixture: &Fixture, edge: &str) -> Result<Self> {
        site.release()?;
        let undisturbed = results(&run(fixture.command(&site, &["-q"])).await?)?;
        std::fs::remove_file(site.gate())?;
        let job = format!("{}-{edge}", fixture.name);
        let nodes = ["--job", &job, "--hosts", "node[01-02]", "--spares", "node[03-04]"];
        // A stopped process must not count as lost while this machine is busy.
        let deadlines = site.cluster.dir().join("deadlines.toml");
        std::fs::write(&deadlines, "silence = \"10m\"\n")?;
        let deadlines = deadlines.display().to_string();
        let options = [&nodes[..], &["--deadlines", &deadlines]].concat();
        let running = start(fixture.command(&site, &options));
        site.wait_met(&job).await?;
        site.checkpoint(&job).await?;
        kill(site.nla_of(&job, "node03")?, Signal::SIGSTOP)?;
        let mut asked = start(site.command(&["migrate", &job, "node02"]));
        tokio::select! {
            there = site.wait_phase(&job, "copy") => there?,
            reported = &mut asked => {
                bail!("no copy: {}{}", text(&reported??.stderr), site.evidence());
            }
        }
        Ok(Self { site, job, undisturbed, running, asked })
    }

    fn signal(&self, node: &str, signal: Signal) -> Result<()> {
        kill(self.site.nla_of(&self.job, node)?, signal)?;
        Ok(())
    }

    /// The last answer to the request for the migration, and whether it succeeded.
    async fn reported(&mut self) -> Result<(bool, String)> {
        let output = (&mut self.asked).await??;
        let all = format!("{}{}", text(&output.stdout), text(&output.stderr));
        // A wait of more than 2 s is reported too.
        let answer = all.lines().rfind(|line| !line.contains(": waiting for "));
        Ok((output.status.success(), answer.unwrap_or_default().to_owned()))
    }

    /// The job ends as if nothing had been; what the launcher has said.
    async fn ends_well(self) -> Result<String> {
        self.site.release()?;
        let output = self.running.await??;
        let reported = text(&output.stderr);
        ensure!(results(&output)? == self.undisturbed, "another result: {reported}");
        nothing_left(&format!("FTB_JOB_ID={}\0", self.job)).await?;
        Ok(reported)
    }
}

async fn the_next_spare_takes_over(site: Site, fixture: &Fixture) -> Result<()> {
    let mut middle = Middle::of(site, fixture, "spare").await?;
    middle.signal("node03", Signal::SIGKILL)?;
    let (done, reported) = middle.reported().await?;
    assert!(done && reported.ends_with("moved from node02 to node04"), "{reported}");
    let reported = middle.ends_well().await?;
    assert!(reported.contains("node03 is lost"), "{reported}");
    assert!(!reported.contains("restarts from set"), "{reported}");
    Ok(())
}

async fn the_last_set_is_what_is_left(site: Site, fixture: &Fixture) -> Result<()> {
    let mut middle = Middle::of(site, fixture, "source").await?;
    middle.signal("node02", Signal::SIGKILL)?;
    middle.signal("node03", Signal::SIGCONT)?;
    let (done, reported) = middle.reported().await?;
    // The images may have arrived, so that the ranks were being started.
    assert!(!done && reported.contains("node02 was lost"), "{reported}");
    let reported = middle.ends_well().await?;
    assert_eq!(reported.matches("restarts from set").count(), 1, "{reported}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spare_that_dies_in_the_middle_is_replaced_by_the_next() -> Result<()> {
    let site = Site::new(4).await?;
    let app = Fixture::app(&site);
    the_next_spare_takes_over(site, &app).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_goes_to_the_next_spare_when_the_first_dies_in_the_middle() -> Result<()> {
    let site = Site::new(4).await?;
    match Fixture::stencil(&site)? {
        Some(pods) => the_next_spare_takes_over(site, &pods).await,
        None => Ok(()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_dies_in_the_middle_costs_what_came_after_the_last_set() -> Result<()> {
    let site = Site::new(4).await?;
    let app = Fixture::app(&site);
    the_last_set_is_what_is_left(site, &app).await
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_start_again_from_the_last_set_when_their_source_dies_in_the_middle() -> Result<()> {
    let site = Site::new(4).await?;
    match Fixture::stencil(&site)? {
        Some(pods) => the_last_set_is_what_is_left(site, &pods).await,
        None => Ok(()),
    }
}

/// A migration whose reason is gone goes to its end; then the node that was left is a spare again.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_well_again_in_the_middle_becomes_a_spare_afterwards() -> Result<()> {
    let site = Site::new(4).await?;
    let app = Fixture::app(&site);
    let mut middle = Middle::of(site, &app, "normal").await?;
    // It is answered when the node is a spare, which is after the migration.
    let usable = start(middle.site.command(&["usable", &middle.job, "node02"]));
    middle.site.wait_asked_usable(&middle.job, "node02").await?;
    middle.signal("node03", Signal::SIGCONT)?;
    let (done, reported) = middle.reported().await?;
    assert!(done && reported.ends_with("moved from node02 to node03"), "{reported}");
    let answer = usable.await??;
    assert!(answer.status.success(), "{}", text(&answer.stderr));
    middle.site.wait_spare(&middle.job, "node02").await?;
    middle.ends_well().await?;
    Ok(())
}

/// One after the other, each to a spare of its own.
#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_that_fail_at_once_move_both() -> Result<()> {
    let site = Site::new(4).await?;
    let app = Fixture::app(&site);
    let mut middle = Middle::of(site, &app, "two").await?;
    let (site, job) = (&middle.site, middle.job.clone());
    let second = start(site.command(&["migrate", &job, "node01"]));
    site.wait_wanted(&job, 1).await?;
    middle.signal("node03", Signal::SIGCONT)?;
    let (done, reported) = middle.reported().await?;
    assert!(done && reported.ends_with("moved from node02 to node03"), "{reported}");
    let second = second.await??;
    let reported = text(&second.stdout);
    assert!(
        second.status.success() && reported.contains("moved from node01 to node04"),
        "{reported}"
    );
    middle.ends_well().await?;
    Ok(())
}
