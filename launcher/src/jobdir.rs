//! A job on disk, `<jobs>/<job>/`: `job.json` (the request), `state.json` (the JL, synced before
//! each step), `lock` (held by the live JL), `sets/<set>/` (a set counts when `set.json` exists)
//! and `nodes/<node>/` (images of local nodes).
//!
//! Users may share the directory of jobs. A job counts only if its directory belongs to this user;
//! it is opened by descriptor ([`super::own`]).

use super::nodedir;
use super::own::{Lock, PrivateDir};
use super::sets::{Manifest, SetKey};
use super::spec::{NlaSpec, StartMethod, Starting};
use ftb_launcher_core::jl::Jl;
use ftb_launcher_core::link::cipher::Secret;
use ftb_launcher_core::names::{JobId, NodeName, Ranks, SetId};
use ftb_launcher_core::policy::{HandledEvents, Orders};
use ftb_launcher_pods::document::{self, Document};
use ftb_launcher_pods::images;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// What a request to add nodes says of them; its request has only their names.
pub fn added(request: u64) -> String {
    format!("add-{request}.json")
}

const LOCK: &str = "lock";
/// The request of the user.
const JOB: &str = "job.json";
/// The state of the JL.
const STATE: &str = "state.json";
/// The manifest of a set.
const MANIFEST: &str = "set.json";

/// Environment variable with the directory of all jobs.
pub const JOBS_DIR_ENV: &str = "FTB_JOBS_DIR";

/// The request of the user: enough to take the job over or to restart it from a set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobFile {
    pub job: JobId,
    /// The specifications of the agents, by node.
    pub specs: BTreeMap<NodeName, NlaSpec>,
    /// Socket of the JL's own agent.
    pub agent: PathBuf,
    /// Where the JL listens for processes of the job.
    pub listen: String,
    /// How the nodes reach the JL.
    pub address: String,
    /// The policy file, as text.
    pub policy: String,
    /// Whether lines are printed with their rank.
    pub prefix: bool,
    /// How the agents were started; they are killed the same way.
    #[serde(default)]
    pub starting: Option<Starting>,
    /// Whether moving ranks are copied beforehand, on the launcher's host; `None` if no agent
    /// copies ranks.
    #[serde(default)]
    pub precopy: Option<bool>,
    /// The key of the job's sets.
    #[serde(default)]
    pub set_key: SetKey,
}

impl Document for JobFile {}

impl JobFile {
    /// The secret of the job; all specifications have it.
    pub fn secret(&self) -> Secret {
        Secret::new(self.specs.values().next().map_or("", |spec| &spec.token))
    }
}

/// The JL on disk.
#[derive(Debug, Serialize, Deserialize)]
pub struct StateFile {
    pub jl: Jl,
    /// Process ids of NLAs on this host.
    pub nlas: BTreeMap<NodeName, u32>,
    /// Where the NLAs listen, for a JL that takes over.
    pub addresses: BTreeMap<NodeName, String>,
    /// Orders about nodes.
    #[serde(default)]
    pub orders: Orders,
    /// How far the events about nodes are handled.
    #[serde(default)]
    pub handled: HandledEvents,
    /// The exit code of a job that is over.
    pub exit: Option<i32>,
}

impl Document for StateFile {}

/// The directory of one job.
#[derive(Clone, Debug)]
pub struct JobDir(PathBuf);

/// The directory of all jobs: [`JOBS_DIR_ENV`], otherwise below the user's state directory.
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
    pub fn new(jobs: &Path, job: &JobId) -> Self {
        Self(jobs.join(job.as_str()))
    }

    /// Makes and locks it, for its user alone.
    ///
    /// # Errors
    /// It exists, others could rename it, or the system's.
    pub fn create(&self) -> Result<Lock, String> {
        let fail = |error: io::Error| format!("cannot make {}: {error}", self.0.display());
        if let Some(parent) = self.0.parent() {
            fs::create_dir_all(parent).map_err(fail)?;
            check_shared(parent)?;
        }
        let make = |path: &Path| fs::DirBuilder::new().mode(0o700).create(path);
        make(&self.0).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => format!(
                "there is a job of this name already, in {} (ftb-launch ps): give this one \
                 another name (--job)",
                self.0.display()
            ),
            _ => fail(error),
        })?;
        let lock = self.lock()?;
        make(&self.sets()).map_err(fail)?;
        make(&self.0.join("nodes")).map_err(fail)?;
        Ok(lock)
    }

    /// Opens it.
    ///
    /// # Errors
    /// It is missing, or not this user's alone.
    fn open(&self) -> Result<PrivateDir, String> {
        PrivateDir::open(&self.0).map_err(|error| format!("{}: {error}", self.0.display()))
    }

    /// Whether this user has a job there, readable or not.
    pub fn is_own(&self) -> bool {
        let uid = nix::unistd::Uid::effective().as_raw();
        fs::symlink_metadata(&self.0).is_ok_and(|about| about.is_dir() && about.uid() == uid)
    }

    /// Whether the request is there.
    pub fn has_job(&self) -> bool {
        self.open().is_ok_and(|dir| dir.read(JOB).is_ok())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The store of sets.
    pub fn sets(&self) -> PathBuf {
        self.0.join("sets")
    }

    pub fn images_of(&self, node: &NodeName) -> PathBuf {
        self.0.join("nodes").join(node.as_str())
    }

    /// Locks the job for its JL until the end of the process.
    ///
    /// # Errors
    /// Another JL lives, or the directory is not this user's.
    pub fn lock(&self) -> Result<Lock, String> {
        let fail = |error: io::Error| format!("{}: {error}", self.0.join(LOCK).display());
        let file = self.open()?.read_write(LOCK).map_err(fail)?;
        Lock::take(file)
            .map_err(fail)?
            .ok_or_else(|| format!("a job launcher is at work in {}", self.0.display()))
    }

    /// Whether a JL holds the lock. The check does not take it.
    pub fn is_locked(&self) -> bool {
        let file = self.open().ok().and_then(|dir| dir.read(LOCK).ok());
        file.is_some_and(|file| Lock::is_held(&file).unwrap_or(false))
    }

    /// Replaces a file atomically and durably.
    ///
    /// # Errors
    /// One line with the file.
    pub fn write(&self, name: &str, value: &impl Document) -> Result<(), String> {
        write_file(&self.open()?, &self.0.join(name), value)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// One line with the file.
    pub fn read<T: Document>(&self, name: &str) -> Result<T, String> {
        read_file(&self.0.join(name), self.open()?.read(name))
    }

    /// Removes a file.
    pub fn forget(&self, name: &str) {
        if let Err(error) = self.open().and_then(|dir| dir.remove(name).map_err(|e| e.to_string()))
        {
            tracing::debug!(name, error, "a file of the job stays");
        }
    }

    /// Commits a set whose images are all in the store.
    ///
    /// # Errors
    /// One line with the file.
    pub fn commit(&self, manifest: &Manifest) -> Result<(), String> {
        let path = self.sets().join(manifest.set.as_str()).join(MANIFEST);
        let fail = |error: io::Error| format!("cannot write {}: {error}", path.display());
        let sets = self.open()?.subdir("sets").map_err(fail)?;
        let set = sets.subdir(manifest.set.as_str()).map_err(fail)?;
        write_file(&set, &path, manifest)
    }

    /// Deletes a set, its manifest first, so that a half-deleted set does not count.
    pub fn drop_set(&self, set: &SetId) {
        let sets = self.open().ok().and_then(|dir| dir.subdir("sets").ok());
        if let Some(dir) = sets.as_ref().and_then(|sets| sets.subdir(set.as_str()).ok()) {
            let _ = dir.remove(MANIFEST);
        }
        images::drop_set(&self.sets(), set);
    }

    /// Removes everything of the job.
    pub fn remove(&self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(dir = %self.0.display(), %error, "the job's directory stays");
        }
    }
}

/// Removes jobs on this host whose launcher and launch agents were all killed: their nodes' images,
/// and the whole directory if it has no set. A job with live agents stays for `attach`. Jobs on
/// other hosts stay, because their agents are unknown here.
pub fn clear_left(jobs: &Path) {
    let entries = fs::read_dir(jobs).into_iter().flatten().filter_map(Result::ok);
    for job in entries.filter_map(|e| e.file_name().to_str().and_then(|name| JobId::new(name).ok()))
    {
        let dir = JobDir::new(jobs, &job);
        if let Err(error) = dir.clear_where_dead() {
            tracing::debug!(%job, error, "remains of killed jobs are not removed");
        }
    }
}

impl JobDir {
    fn clear_where_dead(&self) -> Result<(), String> {
        let dir = self.open()?;
        // A directory without a lock file is being made.
        let lock = dir.read(LOCK).map_err(|error| error.to_string())?;
        if Lock::is_held(&lock).map_err(|error| error.to_string())? {
            return Ok(());
        }
        if dir.read(STATE).is_err() {
            return self.clear_unbegun();
        }
        let (file, state): (JobFile, StateFile) = (self.read(JOB)?, self.read(STATE)?);
        let local =
            file.starting.as_ref().is_some_and(|starting| starting.means == StartMethod::Local);
        let lives = |pid: &u32| nodedir::is_agent(*pid);
        let dirs = || file.specs.values().map(|spec| &spec.image_dir);
        let dead = !state.nlas.values().any(lives) && dirs().all(|dir| nodedir::is_free(dir));
        if !local || state.exit.is_some() || !dead {
            return Ok(());
        }
        let _lock = self.lock()?;
        dirs().for_each(|dir| nodedir::clear_where_left(dir));
        let sets = fs::read_dir(self.sets()).map_err(|error| error.to_string())?;
        let counts = |entry: fs::DirEntry| entry.path().join(MANIFEST).exists();
        if !sets.filter_map(Result::ok).any(counts) {
            tracing::info!(dir = %self.0.display(), "a killed job without a set: removed");
            self.remove();
        }
        Ok(())
    }

    /// Removes the directory of a launcher that was killed before it started anything.
    fn clear_unbegun(&self) -> Result<(), String> {
        let _lock = self.lock()?;
        // A launcher may have continued between the check and the lock.
        if self.open()?.read(STATE).is_err() {
            self.remove();
        }
        Ok(())
    }
}

/// Whether other users can rename entries of a directory; then no path through it is safe.
fn check_shared(dir: &Path) -> Result<(), String> {
    let about = fs::metadata(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    if about.mode() & 0o002 != 0 && about.mode() & 0o1000 == 0 {
        return Err(format!(
            "every user can rename what is in {}: set its sticky bit (chmod +t), \
             or set {JOBS_DIR_ENV}",
            dir.display()
        ));
    }
    Ok(())
}

fn write_file(dir: &PrivateDir, path: &Path, value: &impl Document) -> Result<(), String> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let written = document::encode(value).and_then(|text| dir.replace(name, &text));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn read_file<T: Document>(path: &Path, file: io::Result<File>) -> Result<T, String> {
    let file = file.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    document::decode(file).map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads the manifest of a set, which need not be authentic.
///
/// # Errors
/// It is missing, or of another set.
pub fn unchecked_manifest(dir: &Path) -> Result<Manifest, String> {
    let path = dir.join(MANIFEST);
    let manifest: Manifest = read_file(&path, document::open(&path))?;
    if dir.file_name().and_then(|name| name.to_str()) != Some(manifest.set.as_str()) {
        return Err(format!("{} is not the directory of set {}", dir.display(), manifest.set));
    }
    Ok(manifest)
}

/// Reads the manifest of a set and checks its code.
///
/// # Errors
/// It is missing, was changed, or is of another job.
pub fn manifest(dir: &Path, job: &JobId, key: &SetKey) -> Result<Manifest, String> {
    let manifest = unchecked_manifest(dir)?;
    key.check(job, &manifest)?;
    Ok(manifest)
}

/// Reads and verifies a set: its manifest, and every image.
///
/// # Errors
/// What is missing, damaged or changed.
pub fn verify(dir: &Path, job: &JobId, key: &SetKey) -> Result<Manifest, String> {
    let manifest = manifest(dir, job, key)?;
    let root = dir.parent().unwrap_or(Path::new("."));
    for (rank, (bytes, crc)) in (0..).zip(&manifest.images) {
        let path = images::path(root, &manifest.set, rank);
        let fail = |error: io::Error| format!("{}: {error}", path.display());
        let digest = manifest.digests.get(rank as usize);
        let same = match digest {
            Some(digest) => images::digest(&path).map_err(fail)? == *digest,
            None => images::sum(&path).map_err(fail)? == (*bytes, *crc),
        };
        if !same {
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
    fn a_set_counts_only_whole_and_unchanged() {
        let jobs = tempfile::tempdir().unwrap();
        let dir = JobDir::new(jobs.path(), &JobId::new("job").unwrap());
        dir.create().unwrap();
        let set = SetId::new("set-1").unwrap();
        let image = images::path(&dir.sets(), &set, 0);
        fs::create_dir(image.parent().unwrap()).unwrap();
        fs::write(&image, b"state").unwrap();
        let of = dir.sets().join("set-1");
        let (job, key) = (JobId::new("job").unwrap(), SetKey::new("secret".to_owned()));
        assert!(verify(&of, &job, &key).is_err(), "no manifest");
        let images = vec![(5, crc32c::crc32c(b"state"))];
        let (digests, code) = (Vec::new(), String::new());
        let plain =
            Manifest { job: job.clone(), set, size: 1, images, pods: Vec::new(), digests, code };
        let sealed = key.seal(&dir.sets(), plain.clone()).unwrap();
        dir.commit(&sealed).unwrap();
        assert_eq!(verify(&of, &job, &key), Ok(sealed.clone()));
        fs::write(&image, b"stale").unwrap();
        assert!(verify(&of, &job, &key).unwrap_err().contains("damaged"));
        fs::write(&image, b"stat").unwrap();
        assert!(verify(&of, &job, &key).unwrap_err().contains("damaged"));
        // An attacker who changes an image can change sums and digests too, but not the code.
        let images = vec![(4, crc32c::crc32c(b"stat"))];
        let forged = Manifest { images, digests: vec![images::digest(&image).unwrap()], ..sealed };
        let bare = Manifest { digests: Vec::new(), code: String::new(), ..forged.clone() };
        for changed in [&forged, &bare, &plain] {
            dir.commit(changed).unwrap();
            assert!(verify(&of, &job, &key).unwrap_err().contains("set-1"), "{changed:?}");
        }
        // A job of a version without codes has no key. Its sets count by their sums.
        dir.commit(&bare).unwrap();
        verify(&of, &job, &SetKey::default()).unwrap();
        let other = JobId::new("other").unwrap();
        let foreign = key.seal(&dir.sets(), Manifest { job: other, ..bare }).unwrap();
        dir.commit(&foreign).unwrap();
        assert!(verify(&of, &job, &key).unwrap_err().contains("of job other"));
    }

    #[test]
    fn one_launcher_at_a_time() {
        let jobs = tempfile::tempdir().unwrap();
        let dir = JobDir::new(jobs.path(), &JobId::new("job").unwrap());
        let lock = dir.create().unwrap();
        assert!(dir.is_locked() && dir.lock().unwrap_err().contains("at work"));
        drop(lock);
        assert!(!dir.is_locked());
        dir.lock().unwrap();
    }

    #[test]
    fn remains_of_a_launcher_that_had_started_nothing_are_removed() {
        let jobs = tempfile::tempdir().unwrap();
        let at = |name: &str| JobDir::new(jobs.path(), &JobId::new(name).unwrap());
        let (killed, alive, made) = (at("killed"), at("alive"), at("made"));
        drop(killed.create().unwrap());
        let _lock = alive.create().unwrap();
        fs::DirBuilder::new().mode(0o700).create(made.path()).unwrap();
        clear_left(jobs.path());
        assert!(!killed.path().exists(), "its launcher is gone");
        assert!(alive.path().exists(), "its launcher is at work");
        assert!(made.path().exists(), "its launcher is about to lock it");
    }

    #[test]
    fn a_directory_of_jobs_in_which_every_user_renames_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let jobs = tempfile::tempdir().unwrap();
        let dir = JobDir::new(jobs.path(), &JobId::new("job").unwrap());
        fs::set_permissions(jobs.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(dir.create().unwrap_err().contains("sticky"));
        fs::set_permissions(jobs.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        dir.create().unwrap();
    }
}
