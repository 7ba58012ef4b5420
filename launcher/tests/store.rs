//! A store that is full or cannot be written to: the checkpoint is refused with the reason, earlier
//! sets stay, the job goes on, and is saved again when that is possible. On file systems of a few
//! hundred KiB.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result, ensure};
use ftb_tests::skip::skip;
use nix::unistd::Uid;
use site::fixture::{Fixture, results};
use site::{Site, nothing_left, run, start, text};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

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
