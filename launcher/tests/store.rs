//! A store that is full or cannot be written to: the checkpoint is refused with the reason, earlier
//! sets stay, the job goes on, and is saved again when that is possible. What the launcher decides
//! waits until its state can be saved. On file systems of a few hundred KiB.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result, ensure};
use ftb_client::{Client, Delivery, Start, Subscription};
use ftb_tests::cluster::PATIENCE;
use ftb_tests::skip::skip;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Uid;
use site::fixture::{Fixture, results};
use site::{Site, fan, nothing_left, ranks_of, result, run, start, text};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::Duration;
use tokio::time::timeout;

/// Enough for a job and its sets.
const SIZE: &str = "size=512k";

/// A file system over a directory, until it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn over(dir: &Path, options: &str) -> Result<Self> {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(dir);
        ensure!(command.status()?.success(), "mount");
        Ok(Self(dir.to_owned()))
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Leaves no byte of it free.
    fn fill(&self) -> Result<()> {
        let mut file = std::fs::File::create(self.filler())?;
        loop {
            match file.write_all(&[7; 512]) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Running processes keep it until they end.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// The committed sets of a job, in order; each of them whole.
fn sets(site: &Site, job: &str) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(site.jobs.path().join(job).join("sets"))?;
    let dirs = entries.filter_map(Result::ok).map(|entry| entry.path());
    let mut sets: Vec<_> = dirs.filter(|dir| dir.join("set.json").exists()).collect();
    sets.sort();
    for set in &sets {
        site.verify(job, set)?;
    }
    Ok(sets)
}

/// A job whose nodes keep their images in a directory of their own.
fn command(site: &Site, of: &Fixture, job: &str, images: &Path) -> Result<Command> {
    let mut nodes = String::new();
    for rank in 0..site.cluster.len() {
        let (name, agent) = (site.cluster.host(rank), site.cluster.socket(rank));
        nodes += &format!("[[node]]\nname = {name:?}\nagent = {agent:?}\nimages = {images:?}\n");
    }
    let file = site.cluster.dir().join("nodes.toml");
    std::fs::write(&file, nodes)?;
    let (file, ranks) = (file.display().to_string(), of.ranks.to_string());
    let mut command = site.command(&["run", "--nodes", &file, "-n", &ranks, "--job", job]);
    command.args(["--backend", &of.backend, "--"]).args(of.words());
    Ok(command)
}

async fn refused(site: &Site, job: &str, word: &str) -> Result<()> {
    let output = run(site.command(&["checkpoint", job])).await?;
    let reported = text(&output.stderr);
    ensure!(output.status.code() == Some(1), "{:?}: {reported}", output.status);
    ensure!(reported.contains(word), "no {word:?} in {reported}");
    Ok(())
}

/// Where there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    Store,
    Images,
}

async fn is_refused_while_it_is_full(site: Site, of: &Fixture, full: Full) -> Result<()> {
    let images = site.cluster.dir().join("images");
    std::fs::create_dir(&images)?;
    site.release()?;
    let undisturbed = results(&run(of.command(&site, &["-q"])).await?)?;
    std::fs::remove_file(site.gate())?;
    let place = if full == Full::Store { site.jobs.path() } else { &images };
    let place = Mounted::over(place, SIZE)?;
    let running = start(command(&site, of, "full", &images)?);
    site.wait_met("full").await?;
    site.checkpoint("full").await?;
    let first = sets(&site, "full")?;
    assert_eq!(first.len(), 1);

    place.fill()?;
    refused(&site, "full", "No space left on device").await?;
    assert_eq!(sets(&site, "full")?, first, "{full:?}: the set of before is what it was");
    std::fs::remove_file(place.filler())?;
    site.checkpoint("full").await?;
    assert_eq!(sets(&site, "full")?.len(), 2);

    if full == Full::Store {
        let store = first[0].parent().context("no store")?;
        let shut = Mounted::over(store, "ro")?;
        refused(&site, "full", "Read-only file system").await?;
        drop(shut);
        assert_eq!(sets(&site, "full")?.len(), 2);
    }
    site.release()?;
    let output = running.await??;
    assert_eq!(results(&output)?, undisturbed, "{}", text(&output.stderr));
    nothing_left("FTB_JOB_ID=full\0").await
}

/// A job whose reports can be read while it runs.
struct Reporting {
    launcher: Child,
    reported: PathBuf,
}

impl Reporting {
    fn start(mut command: Command, dir: &Path) -> Result<Self> {
        let reported = dir.join("reported");
        command.stdout(File::create(dir.join("printed"))?).stderr(File::create(&reported)?);
        Ok(Self { launcher: command.spawn()?, reported })
    }

    fn text(&self) -> Result<String> {
        Ok(std::fs::read_to_string(&self.reported)?)
    }

    async fn reports(&self, site: &Site, words: &str) -> Result<()> {
        let reports = async || Ok(self.text()?.contains(words).then_some(()));
        site.wait(words, reports).await.with_context(|| self.text().unwrap_or_default())
    }

    async fn ended(mut self) -> Result<Output> {
        let status = tokio::task::spawn_blocking(move || self.launcher.wait()).await??;
        let (stdout, stderr) = (
            std::fs::read(self.reported.with_file_name("printed"))?,
            std::fs::read(self.reported)?,
        );
        Ok(Output { status, stdout, stderr })
    }
}

/// Events of a job so far that ask something of nodes or ranks.
async fn orders(events: &mut Subscription) -> Result<Vec<String>> {
    let mut orders = Vec::new();
    loop {
        let next = timeout(PATIENCE, events.next()).await?;
        let Some(Delivery::Event(received)) = next else { anyhow::bail!("no event: {next:?}") };
        let name = received.event.name.as_str();
        match name {
            // The answer to a request of the test: all that was decided before it is here.
            "FTB_JOB_ANSWER" if received.event.tag("outcome") == Some("refused") => {
                return Ok(orders);
            }
            "FTB_MIGRATE" | "FTB_JL_PREPARE" | "FTB_CHECKPOINT" | "FTB_JL_ROLLBACK"
            | "FTB_MIGRATE_IPT" | "FTB_JL_RESET" | "FTB_JL_LAUNCH" => orders.push(name.to_owned()),
            _ => {}
        }
    }
}

/// A fault and the death of a rank, each while the launcher's disk is full.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_launcher_decides_while_its_disk_is_full_is_done_when_there_is_room() -> Result<()> {
    if cannot() {
        return Ok(());
    }
    let site = Site::new(3).await?;
    let expected = site.undisturbed().await?;
    let disk = Mounted::over(site.jobs.path(), SIZE)?;
    let job = site.counting("waits", &["--spares", "node03"]);
    let job = Reporting::start(job, site.cluster.dir())?;
    site.wait_met("waits").await?;
    let client = Client::builder("test").agent(site.cluster.socket(0)).build()?;
    let mut events = client.subscribe("jobid=waits", Start::Now).await?;
    let started = ranks_of("waits")?;

    disk.fill()?;
    fan(&site, "node02", "FANFAIL")?;
    job.reports(&site, "state.json: No space left on device").await?;
    job.reports(&site, "no checkpoint, migration or recovery starts until it can").await?;
    refused(&site, "waits", "No space left on device").await?;
    assert_eq!(orders(&mut events).await?, [""; 0]);
    assert_eq!(ranks_of("waits")?, started, "the ranks go on");
    std::fs::remove_file(disk.filler())?;
    job.reports(&site, "the state of the job can be saved again").await?;
    job.reports(&site, "ranks 2,3 moved from node02 to node03").await?;

    fan(&site, "node02", "FANFAIL=clear")?;
    site.checkpoint("waits").await?;
    let moved = ranks_of("waits")?;
    while let Ok(Some(_)) = timeout(Duration::from_millis(100), events.next()).await {}
    disk.fill()?;
    kill(moved[&1].0, Signal::SIGKILL)?;
    job.reports(&site, "the recovery waits until the state can be saved").await?;
    refused(&site, "waits", "No space left on device").await?;
    assert_eq!(orders(&mut events).await?, [""; 0]);
    let left = ranks_of("waits")?;
    assert!(left.iter().all(|(rank, of)| *rank != 1 && moved[rank] == *of), "{left:?} {moved:?}");
    std::fs::remove_file(disk.filler())?;
    job.reports(&site, "3 ranks went back to set").await?;
    site.release()?;
    assert_eq!(result(&job.ended().await?)?, expected);
    nothing_left("FTB_JOB_ID=waits").await
}

fn cannot() -> bool {
    let root = Uid::effective().is_root();
    if !root {
        skip("only root can mount a small file system");
    }
    !root
}

/// A program that knows nothing of it, its state in a file that hooks copy.
fn hooked(site: &Site) -> Result<Fixture> {
    let work = site.cluster.dir().join("work");
    std::fs::create_dir(&work)?;
    let script = work.join("tally.sh");
    std::fs::write(&script, include_str!("tally.sh"))?;
    let hooks = work.join("hooks.toml");
    let state = format!("{}/state-{{job}}-{{rank}}", work.display());
    let text = format!(
        "[backend.command]\npre = [\"sh\", \"-c\", \"kill -STOP $FTB_PID\"]\n\
         checkpoint = [\"cp\", \"{state}\", \"{{image}}/state\"]\n\
         resume = [\"sh\", \"-c\", \"kill -CONT $FTB_PID\"]\n"
    );
    std::fs::write(&hooks, text)?;
    let words = [script.display().to_string(), work.display().to_string()];
    let gate = site.gate().display().to_string();
    let program = ["sh".to_owned()].into_iter().chain(words).chain([gate]).collect();
    let (process, backend) = (script.display().to_string(), hooks.display().to_string());
    Ok(Fixture { name: "command", backend, program, ranks: 2, process })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_costs_a_checkpoint_of_a_program_that_saves_itself() -> Result<()> {
    if cannot() {
        return Ok(());
    }
    for full in [Full::Store, Full::Images] {
        let site = Site::new(2).await?;
        let app = Fixture::app(&site);
        is_refused_while_it_is_full(site, &app, full).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_costs_a_checkpoint_that_hooks_write() -> Result<()> {
    if cannot() {
        return Ok(());
    }
    for full in [Full::Store, Full::Images] {
        let site = Site::new(2).await?;
        let hooked = hooked(&site)?;
        is_refused_while_it_is_full(site, &hooked, full).await?;
    }
    Ok(())
}
