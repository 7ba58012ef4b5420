//! A job on disk: `<jobs>/<job>/` with `job.json` (what was asked for), `state.json` (the JL, written and synced
//! before each protocol step), `lock` (held by the living JL), `sets/<set>/` (committed when `set.json` is there)
//! and `nodes/<node>/` (the images of local nodes).

use super::spec::{Means, NlaSpec, Starting};
use super::{images, nodedir};
use crate::jl::Jl;
use crate::names::{JobId, NodeName, Ranks, SetId};
use nix::fcntl::{Flock, FlockArg};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Environment variable with the directory of all jobs.
pub const JOBS_DIR_ENV: &str = "FTB_JOBS_DIR";

/// What was asked for: enough to take the job over, or to start it again from a set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobFile {
    /// The job.
    pub job: JobId,
    /// What its agents were told, by node.
    pub specs: BTreeMap<NodeName, NlaSpec>,
    /// Socket of the JL's own agent.
    pub agent: PathBuf,
    /// The address that the JL's services listen on.
    pub listen: String,
    /// How the nodes reach the JL.
    pub address: String,
    /// The policy file, as text.
    pub policy: String,
    /// Whether lines are printed with their rank.
    pub prefix: bool,
    /// How the agents were started: the same way leads to them when they must be ended by force.
    #[serde(default)]
    pub starting: Option<Starting>,
    /// Whether ranks that move are copied while they work, as far as the launcher's host can tell; none where no ranks are
    /// copied by agents.
    #[serde(default)]
    pub precopy: Option<bool>,
}

/// The JL on disk.
#[derive(Debug, Serialize, Deserialize)]
pub struct StateFile {
    /// The machine itself.
    pub jl: Jl,
    /// Process ids of NLAs that are this host's.
    pub nlas: BTreeMap<NodeName, u32>,
    /// The exit code of a job that is over.
    pub exit: Option<i32>,
}

/// The manifest of a set: it counts only where this file is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The job that it is of.
    pub job: JobId,
    /// The set.
    pub set: SetId,
    /// How many ranks the job has.
    pub size: u32,
    /// Bytes and CRC-32C of each rank's image.
    pub images: Vec<(u64, u32)>,
    /// The ranks that share an image and can only be brought back together.
    #[serde(default)]
    pub pods: Vec<Ranks>,
}

/// The directory of one job.
#[derive(Clone, Debug)]
pub struct JobDir(PathBuf);

/// The directory of all jobs: [`JOBS_DIR_ENV`], else below the user's state directory.
///
/// # Errors
/// There is no home.
pub fn jobs_dir() -> Result<PathBuf, String> {
    let var =
        |key: &str| std::env::var_os(key).filter(|value| !value.is_empty()).map(PathBuf::from);
    var(JOBS_DIR_ENV)
        .or_else(|| var("XDG_STATE_HOME").map(|dir| dir.join("ftb/jobs")))
        .or_else(|| var("HOME").map(|dir| dir.join(".local/state/ftb/jobs")))
        .ok_or_else(|| format!("neither {JOBS_DIR_ENV} nor HOME is set: say where jobs are kept"))
}

impl JobDir {
    /// The directory of `job` below `jobs`.
    pub fn new(jobs: &Path, job: &JobId) -> Self {
        Self(jobs.join(job.as_str()))
    }

    /// Makes it, for its user alone.
    ///
    /// # Errors
    /// It is there already, or the system's.
    pub fn create(&self) -> Result<(), String> {
        let fail = |error: io::Error| format!("cannot make {}: {error}", self.0.display());
        if let Some(parent) = self.0.parent() {
            fs::create_dir_all(parent).map_err(fail)?;
        }
        let make = |path: &Path| fs::DirBuilder::new().mode(0o700).create(path);
        make(&self.0).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => format!(
                "there is a job of this name already, in {} (ftb-launch ps): give this one another name (--job)",
                self.0.display()
            ),
            _ => fail(error),
        })?;
        make(&self.sets()).map_err(fail)?;
        make(&self.0.join("nodes")).map_err(fail)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The store of sets.
    pub fn sets(&self) -> PathBuf {
        self.0.join("sets")
    }

    /// The images of a local node.
    pub fn images_of(&self, node: &NodeName) -> PathBuf {
        self.0.join("nodes").join(node.as_str())
    }

    /// Locks the job for its one JL; the lock ends with the process.
    ///
    /// # Errors
    /// Another JL is alive.
    pub fn lock(&self) -> Result<Flock<File>, String> {
        let path = self.0.join("lock");
        let file = File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Flock::lock(file, FlockArg::LockExclusiveNonblock)
            .map_err(|_| format!("a job launcher is at work in {}", self.0.display()))
    }

    /// Writes a file so that it is there whole or not at all, also after a power loss.
    ///
    /// # Errors
    /// One line with the file.
    pub fn write(&self, name: &str, value: &impl Serialize) -> Result<(), String> {
        write_file(&self.0.join(name), value)
    }

    /// Reads a file back.
    ///
    /// # Errors
    /// One line with the file.
    pub fn read<T: DeserializeOwned>(&self, name: &str) -> Result<T, String> {
        read_file(&self.0.join(name))
    }

    /// Commits a set whose images are all in the store.
    ///
    /// # Errors
    /// One line with the file.
    pub fn commit(&self, manifest: &Manifest) -> Result<(), String> {
        write_file(&self.sets().join(manifest.set.as_str()).join("set.json"), manifest)
    }

    /// Deletes a set: its manifest first, so that a half-deleted set does not count.
    pub fn drop_set(&self, set: &SetId) {
        let _ = fs::remove_file(self.sets().join(set.as_str()).join("set.json"));
        images::drop_set(&self.sets(), set);
    }

    /// Removes everything of the job.
    pub fn remove(&self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(dir = %self.0.display(), %error, "the job's directory stays");
        }
    }
}

/// Removes what jobs on this host have left in `jobs` of which everything was killed, launcher and launch agents: the
/// images of their nodes, and the whole directory where no set is in it to start again from. A job whose launcher alone
/// is gone can be taken over: it stays. So does one on other hosts: what lives there is not known here.
pub fn clear_left(jobs: &Path) {
    let entries = fs::read_dir(jobs).into_iter().flatten().filter_map(Result::ok);
    for job in entries.filter_map(|e| e.file_name().to_str().and_then(|name| JobId::new(name).ok()))
    {
        let dir = JobDir::new(jobs, &job);
        if let Err(error) = dir.clear_where_dead() {
            tracing::debug!(%job, error, "what a killed job may have left is not looked at");
        }
    }
}

impl JobDir {
    fn clear_where_dead(&self) -> Result<(), String> {
        let (file, state): (JobFile, StateFile) =
            (self.read("job.json")?, self.read("state.json")?);
        let local = file.starting.as_ref().is_some_and(|starting| starting.means == Means::Local);
        if !local || state.exit.is_some() {
            return Ok(());
        }
        let _lock = self.lock()?;
        let lives = |pid: &u32| nodedir::is_agent(*pid);
        let dirs = || file.specs.values().map(|spec| &spec.image_dir);
        if state.nlas.values().any(lives) || !dirs().all(|dir| nodedir::is_free(dir)) {
            return Ok(());
        }
        dirs().for_each(|dir| nodedir::clear_where_left(dir));
        let sets = fs::read_dir(self.sets()).map_err(|error| error.to_string())?;
        let counts = |entry: fs::DirEntry| entry.path().join("set.json").exists();
        if !sets.filter_map(Result::ok).any(counts) {
            tracing::info!(dir = %self.0.display(), "a killed job without a set: removed");
            self.remove();
        }
        Ok(())
    }
}

fn write_file(path: &Path, value: &impl Serialize) -> Result<(), String> {
    let fail = |error: io::Error| format!("cannot write {}: {error}", path.display());
    let text = serde_json::to_vec(value).map_err(|error| error.to_string())?;
    let part = path.with_extension("part");
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&part)
        .map_err(fail)?;
    file.write_all(&text).map_err(fail)?;
    file.sync_all().map_err(fail)?;
    fs::rename(&part, path).map_err(fail)?;
    path.parent().map_or(Ok(()), images::sync_dir).map_err(fail)
}

fn read_file<T: DeserializeOwned>(path: &Path) -> Result<T, String> {
    let text =
        fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads and verifies a set: its manifest, and length and CRC of every image.
///
/// # Errors
/// One line: what is missing or damaged.
pub fn verify(dir: &Path) -> Result<Manifest, String> {
    let manifest: Manifest = read_file(&dir.join("set.json"))?;
    let root = dir.parent().unwrap_or(Path::new("."));
    if dir.file_name().and_then(|name| name.to_str()) != Some(manifest.set.as_str()) {
        return Err(format!("{} is not the directory of set {}", dir.display(), manifest.set));
    }
    if manifest.images.len() != manifest.size as usize {
        return Err(format!("set {} does not have one image for each rank", manifest.set));
    }
    for (rank, (bytes, crc)) in (0..).zip(&manifest.images) {
        let path = images::path(root, &manifest.set, rank);
        let sum = images::sum(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        if sum != (*bytes, *crc) {
            return Err(format!(
                "{} is damaged, or of another rank or set: its set is not restored",
                path.display()
            ));
        }
    }
    Ok(manifest)
}

/// All ranks of a manifest.
pub fn all_ranks(size: u32) -> Ranks {
    (0..size).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_set_counts_only_whole() {
        let jobs = tempfile::tempdir().unwrap();
        let dir = JobDir::new(jobs.path(), &JobId::new("job").unwrap());
        dir.create().unwrap();
        let set = SetId::new("set-1").unwrap();
        let image = images::path(&dir.sets(), &set, 0);
        fs::create_dir(image.parent().unwrap()).unwrap();
        fs::write(&image, b"state").unwrap();
        let of = dir.sets().join("set-1");
        assert!(verify(&of).is_err(), "no manifest");
        let images = vec![(5, crc32c::crc32c(b"state"))];
        let job = JobId::new("job").unwrap();
        let manifest = Manifest { job, set: set.clone(), size: 1, images, pods: Vec::new() };
        dir.commit(&manifest).unwrap();
        assert_eq!(verify(&of), Ok(manifest));
        fs::write(&image, b"stale").unwrap();
        assert!(verify(&of).unwrap_err().contains("damaged"));
        fs::write(&image, b"stat").unwrap();
        assert!(verify(&of).unwrap_err().contains("damaged"));
    }

    #[test]
    fn one_launcher_at_a_time() {
        let jobs = tempfile::tempdir().unwrap();
        let dir = JobDir::new(jobs.path(), &JobId::new("job").unwrap());
        dir.create().unwrap();
        let lock = dir.lock().unwrap();
        assert!(dir.lock().unwrap_err().contains("at work"));
        drop(lock);
        dir.lock().unwrap();
    }
}
