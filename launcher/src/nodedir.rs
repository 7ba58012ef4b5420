//! The node's directory for a job: `lock`, held by its launch agent, with its process id and
//! address; the images of its ranks;
//! `output` that no launcher has taken. It is removed with the launch agent, except that output.
//!
//! Responsible for: making it private, the lock, and the removal, also after launch agent and guard
//! were both killed (`clear_left`). Not responsible for images.
//!
//! The default place ([`default_base`]) has a predictable name below `/var/tmp`. If another user
//! has made it, the launch agent uses a private directory with an unpredictable name (`placed`).

use super::own::{Lock, PrivateDir};
use core::time::Duration;
use ftb_launcher_core::names::{NodeName, SetId};
use ftb_launcher_pods::memory::FOLDER;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// The parent of the default place.
const BASE_PARENT: &str = "/var/tmp";
/// Prefix of the default place; the user's number follows.
const BASE_NAME: &str = "ftb-";
pub(super) const LOCK: &str = "lock";
/// The file with output that no launcher has taken.
pub(super) const OUTPUT: &str = "output";
/// Most attempts for a lock whose holder is another launch agent that removes remains of a killed
/// job ([`clear_left`]).
const TRIES_MAX: u32 = 50;
const TRY_EVERY: Duration = Duration::from_millis(20);

/// The directory of a live launch agent. Dropping it removes it.
pub(super) struct OwnDir {
    path: PathBuf,
    _lock: Lock,
}

impl Drop for OwnDir {
    fn drop(&mut self) {
        clear(&self.path);
    }
}

/// Makes and locks it: a job has one launch agent on a node, which listens at `address`. Inner
/// `Err`: the process id of the other one.
///
/// # Errors
/// It cannot be made, or others can change it.
pub(super) async fn own(dir: &Path, address: &str) -> Result<Result<OwnDir, u32>, String> {
    let mut tries = 0;
    loop {
        make(dir)?;
        match lock(dir, address)? {
            Ok(mut lock) => {
                if names(dir, &mut lock) {
                    return Ok(Ok(OwnDir { path: dir.to_owned(), _lock: lock }));
                }
            }
            Err(pid) if is_agent(pid) || tries >= TRIES_MAX => return Ok(Err(pid)),
            // Another launch agent is removing remains of a job of this name.
            Err(_) => {}
        }
        tries += 1;
        tokio::time::sleep(TRY_EVERY).await;
    }
}

/// Locks it and writes process id and address into the lock. Inner `Err`: the id of the holder.
fn lock(dir: &Path, address: &str) -> Result<Result<Lock, u32>, String> {
    let fail = |error: io::Error| format!("cannot lock {}: {error}", dir.join(LOCK).display());
    let opened = PrivateDir::open(dir).and_then(|dir| Ok((dir.read_write(LOCK)?, dir)));
    let (file, dir) = match opened {
        // The directory was removed since it was made.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Err(0)),
        opened => opened.map_err(fail)?,
    };
    let Some(mut lock) = Lock::take(file).map_err(fail)? else {
        return Ok(Err(holder(&dir).map_or(0, |(pid, _)| pid)));
    };
    let file = lock.file();
    let text = format!("{} {address}", std::process::id());
    file.set_len(0).and_then(|()| file.write_all(text.as_bytes())).map_err(fail)?;
    Ok(Ok(lock))
}

/// Process id and address in the lock.
fn holder(dir: &PrivateDir) -> Option<(u32, String)> {
    let text = String::from_utf8(dir.read_all(LOCK).ok()?).ok()?;
    let (pid, address) = text.trim().split_once(' ')?;
    Some((pid.parse().ok()?, address.to_owned()))
}

/// The address of the launch agent that holds the lock.
pub(super) fn address_of(dir: &Path) -> Option<String> {
    holder(&PrivateDir::open(dir).ok()?).map(|(_, address)| address)
}

/// Whether the lock still belongs to this directory.
fn names(dir: &Path, lock: &mut Lock) -> bool {
    let there = PrivateDir::open(dir).and_then(|dir| dir.read(LOCK));
    let same = || Some(there.ok()?.metadata().ok()?.ino() == lock.file().metadata().ok()?.ino());
    same().unwrap_or(false)
}

/// Whether no launch agent holds the lock. The check does not take it.
pub(super) fn is_free(dir: &Path) -> bool {
    match PrivateDir::open(dir).and_then(|dir| dir.read(LOCK)) {
        Ok(file) => !Lock::is_held(&file).unwrap_or(false),
        Err(_) => true,
    }
}

/// The process id of the launch agent that holds the lock.
pub(super) fn agent_of(dir: &Path) -> Option<u32> {
    let (pid, _) = holder(&PrivateDir::open(dir).ok()?)?;
    (!is_free(dir) && is_agent(pid)).then_some(pid)
}

/// Whether the process is a live launch agent. Its number may be reused, and a zombie keeps its
/// name.
pub(super) fn is_agent(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((name, state)) = stat.rsplit_once(") ") else { return false };
    name.ends_with("(ftb-nla") && !state.starts_with(['Z', 'X'])
}

/// Removes the job's files on this node. Output that no launcher has taken stays with its
/// directory.
pub(super) fn clear(dir: &Path) {
    if let Ok(own) = PrivateDir::open(dir) {
        clear_entries(&own, dir, |name| name != OUTPUT);
    }
    remove_dir(dir);
}

/// Removes remains of killed jobs on this node: neither their launch agent nor their guard lives.
/// Other files stay.
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

/// Removes the files of a dead launch agent. Directories of other users stay.
pub(super) fn clear_where_left(dir: &Path) {
    let Ok(own) = PrivateDir::open(dir) else { return };
    // A directory without a lock is foreign or being made.
    let Ok(lock) = own.edit(LOCK) else { return };
    let Ok(Some(_lock)) = Lock::take(lock) else { return };
    tracing::info!(dir = %dir.display(), "a killed job had left its directory: cleared");
    clear_entries(&own, dir, |name| {
        name == LOCK || name == FOLDER || SetId::new(name).is_ok_and(|set| set.is_ours())
    });
    remove_dir(dir);
}

/// Removes the entries that `is` selects; `dir` is for the log.
fn clear_entries(own: &PrivateDir, dir: &Path, is: impl Fn(&str) -> bool) {
    for name in own.names().unwrap_or_default().iter().filter(|name| is(name)) {
        if let Err(error) = own.remove(name) {
            let path = dir.join(name);
            tracing::warn!(path = %path.display(), %error, "something of the job stays");
        }
    }
}

/// Removes the directory if it is empty.
fn remove_dir(dir: &Path) {
    use io::ErrorKind::{DirectoryNotEmpty, NotFound};
    if let Err(error) = fs::remove_dir(dir)
        && !matches!(error.kind(), NotFound | DirectoryNotEmpty)
    {
        tracing::warn!(dir = %dir.display(), %error, "the directory of the job stays");
    }
}

/// The default place of the directories of jobs.
pub fn default_base() -> PathBuf {
    let uid = nix::unistd::Uid::effective();
    Path::new(BASE_PARENT).join(format!("{BASE_NAME}{uid}"))
}

/// The place of a job's directory on this host: `dir`, or beside the default place if another user
/// has taken that.
///
/// # Errors
/// No other place can be made.
pub(super) fn placed(dir: &Path) -> Result<PathBuf, String> {
    let base = default_base();
    match (dir.parent(), dir.file_name()) {
        (Some(parent), Some(name)) if parent == base => Ok(private_base(&base)?.join(name)),
        _ => Ok(dir.to_owned()),
    }
}

/// `base`; if it is not this user's, the first `base.*` that is, or a new one.
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
    async fn only_remains_of_killed_jobs_of_this_node_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| left(parent.path(), name);
        let (dead, said, other, strange) =
            (at("a.node01"), at("b.node01"), at("c.node02"), at("d.node01"));
        fs::write(said.join(OUTPUT), "last words").unwrap();
        fs::write(strange.join("thesis.tex"), "mine").unwrap();
        let lives = own(&parent.path().join("e.node01"), "a:1").await.unwrap().ok().unwrap();
        let (mine, node) = (parent.path().join("f.node01"), NodeName::new("node01").unwrap());
        clear_left(&mine, &node);
        assert!(!dead.exists() && other.join("set-000003/rank-0.img").exists());
        assert!(!said.join("set-000003").exists() && said.join(OUTPUT).exists());
        assert!(!strange.join("set-000003").exists() && strange.join("thesis.tex").exists());
        assert!(lives.path.join(LOCK).exists(), "its launch agent lives");
    }

    #[tokio::test]
    async fn a_job_has_one_launch_agent_on_a_node() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("job.node01");
        let mut first = own(&dir, "a:1").await.unwrap().ok().unwrap();
        assert_eq!(lock(&dir, "b:1").unwrap().err(), Some(std::process::id()));
        assert!(names(&dir, &mut first._lock));
        // The removal takes the lock with it; it no longer belongs to that directory.
        fs::remove_dir_all(&dir).unwrap();
        assert!(!names(&dir, &mut first._lock));
        make(&dir).unwrap();
        assert!(own(&dir, "a:1").await.unwrap().is_ok());
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
        assert!(lock(&parent.path().join("a.node01"), "").is_err());
    }

    #[test]
    fn a_default_place_that_another_user_made_first_is_not_used() {
        if !nix::unistd::Uid::effective().is_root() {
            return ftb_tests::skip::skip("two users need root");
        }
        let parent = tempfile::tempdir().unwrap();
        let base = parent.path().join("ftb-1");
        for squatted in [&base, &parent.path().join("ftb-1.aaaaaa")] {
            fs::DirBuilder::new().mode(0o700).create(squatted).unwrap();
            std::os::unix::fs::chown(squatted, Some(64_001), Some(64_001)).unwrap();
        }
        let own = private_base(&base).unwrap();
        assert!(PrivateDir::open(&base).is_err() && PrivateDir::open(&own).is_ok());
        assert!(own.starts_with(parent.path()) && own != base);
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
