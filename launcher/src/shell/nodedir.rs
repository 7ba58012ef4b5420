//! The node's directory for a job: `lock`, held by its launch agent; the images of its ranks; `output` that no launcher
//! has taken yet. It goes away with the launch agent, but for that output.
//!
//! Responsible for: making it so that nobody else can change it, the lock, and removing it, also that of a job whose
//! launch agent and guard were both killed ([`clear_left`]). Not responsible for: images ([`super::images`]).

use crate::names::{NodeName, SetId};
use core::time::Duration;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Name of the lock file.
pub(super) const LOCK: &str = "lock";
/// Name of the file with output that nobody has taken.
pub(super) const OUTPUT: &str = "output";
/// How often the lock is tried while it is held by nobody who is a launch agent: by one that looks whether somebody has
/// left the directory ([`clear_left`]).
const TRIES_MAX: u32 = 50;
/// Between two tries.
const TRY_EVERY: Duration = Duration::from_millis(20);

/// The directory of a launch agent that lives. It goes away with it.
pub(super) struct OwnDir {
    path: PathBuf,
    _lock: Flock<File>,
}

impl Drop for OwnDir {
    fn drop(&mut self) {
        clear(&self.path);
    }
}

/// Makes and locks it: of one job there is one launch agent on a node. `Err` in it: the process id of that one.
///
/// # Errors
/// One line: it cannot be made, or others can change it.
pub(super) async fn own(dir: &Path) -> Result<Result<OwnDir, u32>, String> {
    let mut tries = 0;
    loop {
        make(dir)?;
        match lock(dir)? {
            Ok(lock) if names(dir, &lock) => {
                return Ok(Ok(OwnDir { path: dir.to_owned(), _lock: lock }));
            }
            Err(pid) if is_agent(pid) || tries >= TRIES_MAX => return Ok(Err(pid)),
            // Somebody is just removing what a job of this name had left.
            Ok(_) | Err(_) => {}
        }
        tries += 1;
        tokio::time::sleep(TRY_EVERY).await;
    }
}

/// Locks it, and writes into the lock who has it. `Err` in it: the process id that is written there.
fn lock(dir: &Path) -> Result<Result<Flock<File>, u32>, String> {
    let path = dir.join(LOCK);
    let fail = |error: io::Error| format!("cannot lock {}: {error}", path.display());
    let opened = File::options().create(true).append(true).read(true).open(&path);
    let file = match opened {
        // The directory was removed since it was made.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Err(0)),
        opened => opened.map_err(fail)?,
    };
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(mut lock) => {
            lock.set_len(0).and_then(|()| write!(lock, "{}", std::process::id())).map_err(fail)?;
            Ok(Ok(lock))
        }
        Err(_) => {
            let text = fs::read_to_string(&path).unwrap_or_default();
            Ok(Err(text.trim().parse().unwrap_or(0)))
        }
    }
}

/// Whether that lock is still the one of this directory.
fn names(dir: &Path, lock: &File) -> bool {
    let same = || Some(fs::metadata(dir.join(LOCK)).ok()?.ino() == lock.metadata().ok()?.ino());
    same().unwrap_or(false)
}

/// Whether nobody holds the lock of this directory any more.
pub(super) fn is_free(dir: &Path) -> bool {
    match File::open(dir.join(LOCK)) {
        Ok(file) => Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok(),
        Err(_) => true,
    }
}

/// Whether that process is a launch agent that lives: the number may be another process' by now, and one that has ended
/// keeps its name until somebody asks how.
pub(super) fn is_agent(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((name, state)) = stat.rsplit_once(") ") else { return false };
    name.ends_with("(ftb-nla") && !state.starts_with(['Z', 'X'])
}

/// Removes what was this job's on this node. Output that nobody has taken stays, and with it the directory.
pub(super) fn clear(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok) {
        if entry.file_name() != OUTPUT {
            remove(&entry);
        }
    }
    remove_dir(dir);
}

/// Removes what killed jobs have left of this node beside the directory of this one: their launch agent is gone, and their
/// guard has not done it. Other files that are there are nobody's business.
pub(super) fn clear_left(own: &Path, node: &NodeName) {
    let of_node = format!(".{node}");
    let Some(parent) = own.parent() else { return };
    for entry in fs::read_dir(parent).into_iter().flatten().filter_map(Result::ok) {
        let dir = entry.path();
        let name = entry.file_name();
        if dir != own
            && name.to_str().is_some_and(|name| name.ends_with(&of_node))
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
        {
            clear_where_left(&dir);
        }
    }
}

/// Removes what is a launch agent's in a directory whose launch agent is gone.
pub(super) fn clear_where_left(dir: &Path) {
    // A directory without a lock is none of ours, or is just being made.
    let Ok(lock) = File::open(dir.join(LOCK)) else { return };
    let Ok(_lock) = Flock::lock(lock, FlockArg::LockExclusiveNonblock) else { return };
    tracing::info!(dir = %dir.display(), "a killed job had left its directory: cleared");
    for entry in fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok) {
        let name = entry.file_name();
        let set = name.to_str().is_some_and(|name| SetId::new(name).is_ok_and(|set| set.is_ours()));
        if set || name == LOCK {
            remove(&entry);
        }
    }
    remove_dir(dir);
}

fn remove(entry: &fs::DirEntry) {
    let path = entry.path();
    let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
    let gone = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
    if let Err(error) = gone
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "something of the job stays");
    }
}

/// Removes the directory where nothing is in it any more.
fn remove_dir(dir: &Path) {
    use io::ErrorKind::{DirectoryNotEmpty, NotFound};
    if let Err(error) = fs::remove_dir(dir)
        && !matches!(error.kind(), NotFound | DirectoryNotEmpty)
    {
        tracing::warn!(dir = %dir.display(), %error, "the directory of the job stays");
    }
}

/// Makes it, for its user alone.
fn make(dir: &Path) -> Result<(), String> {
    let fail = |error: io::Error| format!("cannot make {}: {error}", dir.display());
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(fail)?;
    let uid = nix::unistd::Uid::effective().as_raw();
    let about = |path| fs::symlink_metadata(path).map_err(fail);
    let shared = |mode: u32| mode & 0o022 != 0;
    let (own, parent) = (about(dir)?, about(dir.parent().unwrap_or(dir))?);
    let good = own.is_dir() && own.uid() == uid && !shared(own.mode());
    let sticky = parent.mode() & 0o1000 != 0;
    let safe = [uid, 0].contains(&parent.uid()) && (!shared(parent.mode()) || sticky);
    if good && safe {
        return Ok(());
    }
    Err(format!(
        "others can change {}: name a directory in a place of your own (images in the nodes file)",
        dir.display()
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn left(parent: &Path, name: &str) -> PathBuf {
        let dir = parent.join(name);
        fs::create_dir_all(dir.join("set-000003")).unwrap();
        fs::write(dir.join("set-000003/rank-0.img"), "state").unwrap();
        fs::write(dir.join(LOCK), "1").unwrap();
        dir
    }

    #[tokio::test]
    async fn what_killed_jobs_have_left_of_this_node_goes_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| left(parent.path(), name);
        let (dead, said, other, strange) =
            (at("a.node01"), at("b.node01"), at("c.node02"), at("d.node01"));
        fs::write(said.join(OUTPUT), "last words").unwrap();
        fs::write(strange.join("thesis.tex"), "mine").unwrap();
        let lives = own(&parent.path().join("e.node01")).await.unwrap().ok().unwrap();
        let (mine, node) = (parent.path().join("f.node01"), NodeName::new("node01").unwrap());
        clear_left(&mine, &node);
        assert!(!dead.exists() && other.join("set-000003/rank-0.img").exists());
        assert!(!said.join("set-000003").exists() && said.join(OUTPUT).exists());
        assert!(!strange.join("set-000003").exists() && strange.join("thesis.tex").exists());
        assert!(lives.path.join(LOCK).exists(), "its launch agent lives");
    }

    #[tokio::test]
    async fn of_one_job_there_is_one_agent_on_a_node() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("job.node01");
        let first = own(&dir).await.unwrap().ok().unwrap();
        assert_eq!(lock(&dir).unwrap().err(), Some(std::process::id()));
        assert!(names(&dir, &first._lock));
        // Whoever removes it takes the lock with it: it is no lock of that directory any more.
        fs::remove_dir_all(&dir).unwrap();
        assert!(!names(&dir, &first._lock));
        make(&dir).unwrap();
        assert!(own(&dir).await.unwrap().is_ok());
    }
}
