//! The node's directory for a job: `lock`, held by its launch agent; the images of its ranks; `output` that no launcher
//! has taken yet. It goes away with the launch agent, but for that output.
//!
//! Responsible for: making it so that nobody else can change it, the lock, and removing it, also that of a job whose
//! launch agent and guard were both killed (`clear_left`). Not responsible for: images ([`super::images`]).
//!
//! The default place ([`default_base`]) has a predictable name below `/var/tmp`. If another user
//! makes it first, that changes nothing: the launch agent then uses a directory of its own with an
//! unpredictable name beside it (`placed`).

use super::own::{Lock, PrivateDir};
use core::time::Duration;
use ftb_launcher_core::names::{NodeName, SetId};
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Where the default place is.
const BASE_PARENT: &str = "/var/tmp";
/// Name of the default place; the user's number follows.
const BASE_NAME: &str = "ftb-";
/// Name of the lock file.
pub(super) const LOCK: &str = "lock";
/// Name of the file with output that nobody has taken.
pub(super) const OUTPUT: &str = "output";
/// How often the lock is tried while its holder is not the launch agent of this job but another
/// one, which removes what a killed job has left ([`clear_left`]).
const TRIES_MAX: u32 = 50;
/// Between two tries.
const TRY_EVERY: Duration = Duration::from_millis(20);

/// The directory of a launch agent that lives. It goes away with it.
pub(super) struct OwnDir {
    path: PathBuf,
    _lock: Lock,
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
            Ok(mut lock) => {
                if names(dir, &mut lock) {
                    return Ok(Ok(OwnDir { path: dir.to_owned(), _lock: lock }));
                }
            }
            Err(pid) if is_agent(pid) || tries >= TRIES_MAX => return Ok(Err(pid)),
            // Another launch agent is just removing what a job of this name had left.
            Err(_) => {}
        }
        tries += 1;
        tokio::time::sleep(TRY_EVERY).await;
    }
}

/// Locks it, and writes into the lock who has it. `Err` in it: the process id that is written there.
fn lock(dir: &Path) -> Result<Result<Lock, u32>, String> {
    let fail = |error: io::Error| format!("cannot lock {}: {error}", dir.join(LOCK).display());
    let opened = PrivateDir::open(dir).and_then(|dir| Ok((dir.read_write(LOCK)?, dir)));
    let (file, dir) = match opened {
        // The directory was removed since it was made.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Err(0)),
        opened => opened.map_err(fail)?,
    };
    let Some(mut lock) = Lock::take(file).map_err(fail)? else {
        let text = dir.read_all(LOCK).unwrap_or_default();
        let pid = String::from_utf8_lossy(&text).trim().parse();
        return Ok(Err(pid.unwrap_or(0)));
    };
    let file = lock.file();
    file.set_len(0).and_then(|()| write!(file, "{}", std::process::id())).map_err(fail)?;
    Ok(Ok(lock))
}

/// Whether that lock is still the one of this directory.
fn names(dir: &Path, lock: &mut Lock) -> bool {
    let there = PrivateDir::open(dir).and_then(|dir| dir.read(LOCK));
    let same = || Some(there.ok()?.metadata().ok()?.ino() == lock.file().metadata().ok()?.ino());
    same().unwrap_or(false)
}

/// Whether no launch agent holds the lock of this directory any more. Looking does not take it.
pub(super) fn is_free(dir: &Path) -> bool {
    match PrivateDir::open(dir).and_then(|dir| dir.read(LOCK)) {
        Ok(file) => !Lock::is_held(&file).unwrap_or(false),
        Err(_) => true,
    }
}

/// The process id of the launch agent that holds the lock of this directory.
pub(super) fn agent_of(dir: &Path) -> Option<u32> {
    let text = PrivateDir::open(dir).and_then(|dir| dir.read_all(LOCK)).ok()?;
    let pid = String::from_utf8_lossy(&text).trim().parse().ok()?;
    (!is_free(dir) && is_agent(pid)).then_some(pid)
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
    if let Ok(own) = PrivateDir::open(dir) {
        clear_entries(&own, dir, |name| name != OUTPUT);
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

/// Removes what is a launch agent's in a directory whose launch agent is gone. A directory of
/// another user is left alone.
pub(super) fn clear_where_left(dir: &Path) {
    let Ok(own) = PrivateDir::open(dir) else { return };
    // A directory without a lock is none of ours, or is just being made.
    let Ok(lock) = own.edit(LOCK) else { return };
    let Ok(Some(_lock)) = Lock::take(lock) else { return };
    tracing::info!(dir = %dir.display(), "a killed job had left its directory: cleared");
    clear_entries(&own, dir, |name| {
        name == LOCK || SetId::new(name).is_ok_and(|set| set.is_ours())
    });
    remove_dir(dir);
}

/// Removes the entries that `is` names; `dir` is for the log.
fn clear_entries(own: &PrivateDir, dir: &Path, is: impl Fn(&str) -> bool) {
    for name in own.names().unwrap_or_default().iter().filter(|name| is(name)) {
        if let Err(error) = own.remove(name) {
            let path = dir.join(name);
            tracing::warn!(path = %path.display(), %error, "something of the job stays");
        }
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

/// Where directories of jobs are by default.
pub fn default_base() -> PathBuf {
    let uid = nix::unistd::Uid::effective();
    Path::new(BASE_PARENT).join(format!("{BASE_NAME}{uid}"))
}

/// Where the directory `dir` of a job is made on this host: there, but beside the default place
/// where another user has taken that.
///
/// # Errors
/// One line: no other place can be made.
pub(super) fn placed(dir: &Path) -> Result<PathBuf, String> {
    let base = default_base();
    match (dir.parent(), dir.file_name()) {
        (Some(parent), Some(name)) if parent == base => Ok(private_base(&base)?.join(name)),
        _ => Ok(dir.to_owned()),
    }
}

/// `base`, or where that is not this user's: the first `base.*` that is, or a new one.
fn private_base(base: &Path) -> Result<PathBuf, String> {
    use io::ErrorKind::NotFound;
    match PrivateDir::open(base) {
        Ok(_) => return Ok(base.to_owned()),
        Err(error) if error.kind() == NotFound => {
            return Ok(base.to_owned());
        }
        Err(error) => {
            tracing::warn!(dir = %base.display(), %error, "another directory is used for images");
        }
    }
    let (Some(parent), Some(name)) = (base.parent(), base.file_name()) else {
        return Ok(base.to_owned());
    };
    let prefix = format!("{}.", name.to_string_lossy());
    let entries = fs::read_dir(parent).into_iter().flatten().filter_map(Result::ok);
    let beside = entries.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(&prefix)) && PrivateDir::open(path).is_ok()
    });
    if let Some(first) = beside.min() {
        return Ok(first);
    }
    let template = parent.join(format!("{prefix}XXXXXX"));
    nix::unistd::mkdtemp(&template)
        .map_err(|error| format!("cannot make {}: {error}", template.display()))
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
        fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
        fs::create_dir(dir.join("set-000003")).unwrap();
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
        let mut first = own(&dir).await.unwrap().ok().unwrap();
        assert_eq!(lock(&dir).unwrap().err(), Some(std::process::id()));
        assert!(names(&dir, &mut first._lock));
        // Whoever removes it takes the lock with it: it is no lock of that directory any more.
        fs::remove_dir_all(&dir).unwrap();
        assert!(!names(&dir, &mut first._lock));
        make(&dir).unwrap();
        assert!(own(&dir).await.unwrap().is_ok());
    }

    #[test]
    fn a_link_in_place_of_a_directory_or_a_lock_leads_nowhere() {
        let parent = tempfile::tempdir().unwrap();
        let victim = left(parent.path(), "victim");
        std::os::unix::fs::symlink(&victim, parent.path().join("a.node01")).unwrap();
        let node = NodeName::new("node01").unwrap();
        clear_left(&parent.path().join("b.node01"), &node);
        clear_where_left(&parent.path().join("a.node01"));
        assert!(victim.join("set-000003/rank-0.img").exists());
        assert!(lock(&parent.path().join("a.node01")).is_err());
    }

    #[test]
    fn a_default_place_that_is_not_this_users_is_replaced_by_a_private_one() {
        let parent = tempfile::tempdir().unwrap();
        let base = parent.path().join("ftb-1");
        assert_eq!(private_base(&base).unwrap(), base, "nothing is there");
        fs::DirBuilder::new().mode(0o700).create(&base).unwrap();
        assert_eq!(private_base(&base).unwrap(), base, "it is ours");
        fs::remove_dir(&base).unwrap();
        std::os::unix::fs::symlink("/nowhere", &base).unwrap();
        fs::create_dir(parent.path().join("ftb-1.shared")).unwrap();
        std::os::unix::fs::symlink("/tmp", parent.path().join("ftb-1.link")).unwrap();
        let shared: fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(parent.path().join("ftb-1.shared"), shared).unwrap();
        let other = private_base(&base).unwrap();
        assert!(other != base && PrivateDir::open(&other).is_ok());
        assert_eq!(private_base(&base).unwrap(), other, "the same one again");
    }
}
