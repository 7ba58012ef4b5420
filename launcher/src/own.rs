//! Files and directories that only this user can change, and locks on them.
//!
//! Everything is opened relative to a directory whose owner and mode were checked on the open
//! descriptor. No symbolic link is followed. No file is truncated before its owner is known. So
//! shared directories (a common directory of jobs, `/var/tmp`) are safe to read, also for root.

use nix::fcntl::{AT_FDCWD, FcntlArg, OFlag, fcntl, openat, renameat};
use nix::libc;
use nix::sys::stat::{FileStat, Mode, fstat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

/// Mode bits that let others than the owner write.
const SHARED: u32 = 0o022;
/// Only the user may read and write: for files that this module makes.
const PRIVATE_FILE: Mode = Mode::S_IRUSR.union(Mode::S_IWUSR);

/// A directory that only this user can change.
#[derive(Debug)]
pub struct PrivateDir(OwnedFd);

impl PrivateDir {
    /// Opens a directory and checks its owner and mode.
    ///
    /// # Errors
    /// The path is missing, not a directory (or a symbolic link), of another user, or writable by
    /// others.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (dir, about) = Self::open_at(AT_FDCWD, path)?;
        if about.st_mode & SHARED != 0 {
            return Err(denied("others can change it"));
        }
        Ok(dir)
    }

    /// Opens a directory in this one. Its mode does not matter, because others cannot pass this
    /// one.
    ///
    /// # Errors
    /// The name is missing, not a directory (or a symbolic link), or of another user.
    pub fn subdir(&self, name: &str) -> io::Result<Self> {
        Ok(Self::open_at(&self.0, Path::new(name))?.0)
    }

    fn open_at(at: impl AsFd, path: &Path) -> io::Result<(Self, FileStat)> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = openat(at, path, flags, Mode::empty())?;
        let about = fstat(&fd)?;
        check_owner(&about)?;
        Ok((Self(fd), about))
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// The file is missing, not a regular file (or a symbolic link), or of another user.
    pub fn read(&self, name: &str) -> io::Result<File> {
        self.file(name, OFlag::O_RDONLY)
    }

    pub fn read_all(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read(name)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Opens a file for reading and writing; makes it if it is missing. Its content stays.
    pub fn read_write(&self, name: &str) -> io::Result<File> {
        self.file(name, OFlag::O_RDWR | OFlag::O_CREAT)
    }

    /// Opens a file for reading and writing.
    pub fn edit(&self, name: &str) -> io::Result<File> {
        self.file(name, OFlag::O_RDWR)
    }

    /// Replaces a file: the old or the whole new content exists, also after a power loss.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let part = format!("{name}.part");
        let mut file = self.file(&part, OFlag::O_WRONLY | OFlag::O_CREAT)?;
        file.set_len(0)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        renameat(&self.0, part.as_str(), &self.0, name)?;
        nix::unistd::fsync(&self.0)?;
        Ok(())
    }

    fn file(&self, name: &str, flags: OFlag) -> io::Result<File> {
        // Opening a pipe does not block.
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let fd = openat(&self.0, name, flags, PRIVATE_FILE)?;
        let about = fstat(&fd)?;
        check_owner(&about)?;
        if about.st_mode & libc::S_IFMT != libc::S_IFREG {
            return Err(denied("it is no regular file"));
        }
        Ok(File::from(fd))
    }

    /// The names in it.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(self.path())?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Ok(names.collect())
    }

    /// Removes an entry with everything below it, if it exists.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let gone = match unlinkat(&self.0, name, UnlinkatFlags::NoRemoveDir) {
            Err(nix::Error::EISDIR) => std::fs::remove_dir_all(self.path().join(name)),
            gone => gone.map_err(io::Error::from),
        };
        match gone {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            gone => gone,
        }
    }

    /// A path to this very directory, whatever its name refers to now.
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// Whether that path still leads to this directory.
    pub fn is_at(&self, path: &Path) -> bool {
        let there = Self::open(path).ok().and_then(|there| fstat(&there.0).ok());
        let here = fstat(&self.0).ok();
        there.zip(here).is_some_and(|(a, b)| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
    }
}

fn check_owner(about: &FileStat) -> io::Result<()> {
    let uid = nix::unistd::Uid::effective().as_raw();
    if about.st_uid == uid {
        return Ok(());
    }
    Err(denied(&format!("it belongs to another user (uid {})", about.st_uid)))
}

fn denied(words: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, words)
}

/// A lock on a whole file, until it is dropped or the process ends.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Takes the lock; `None` if another process holds it. The file must be open for writing.
    pub fn take(file: File) -> io::Result<Option<Self>> {
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&whole_file())) {
            Ok(_) => Ok(Some(Self(file))),
            Err(nix::Error::EAGAIN | nix::Error::EACCES) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a process holds the lock. The check does not take it.
    pub fn is_held(file: &File) -> io::Result<bool> {
        let mut lock = whole_file();
        fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock))?;
        Ok(i32::from(lock.l_type) != libc::F_UNLCK)
    }

    pub fn file(&mut self) -> &mut File {
        &mut self.0
    }
}

/// A write lock on all bytes. It belongs to the open file, not to the process.
fn whole_file() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn a_symbolic_link_is_not_followed_and_its_target_keeps_its_content() {
        let root = tempfile::tempdir().unwrap();
        let (victim, dir) = (root.path().join("victim"), root.path().join("dir"));
        fs::write(&victim, "precious").unwrap();
        fs::DirBuilder::new().create(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&victim, dir.join("lock")).unwrap();
        symlink(&victim, dir.join("state.part")).unwrap();
        symlink(&dir, root.path().join("link")).unwrap();
        let own = PrivateDir::open(&dir).unwrap();
        assert!(own.read_write("lock").is_err());
        assert!(own.read("lock").is_err());
        assert!(own.replace("state", b"new").is_err());
        assert!(PrivateDir::open(&root.path().join("link")).is_err());
        own.remove("lock").unwrap();
        assert!(!dir.join("lock").is_symlink());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    }

    #[test]
    fn a_file_of_another_user_is_neither_read_nor_truncated() {
        if !nix::unistd::Uid::effective().is_root() {
            return ftb_tests::skip::skip("two users need root");
        }
        let root = tempfile::tempdir().unwrap();
        for name in ["lock", "state.part"] {
            fs::write(root.path().join(name), "precious").unwrap();
            std::os::unix::fs::chown(root.path().join(name), Some(64_001), None).unwrap();
        }
        let own = PrivateDir::open(root.path()).unwrap();
        assert!(own.read("lock").is_err() && own.read_write("lock").is_err());
        assert!(own.replace("state", b"new").is_err());
        for name in ["lock", "state.part"] {
            assert_eq!(fs::read_to_string(root.path().join(name)).unwrap(), "precious");
        }
    }

    #[test]
    fn a_directory_that_others_can_change_is_refused() {
        let root = tempfile::tempdir().unwrap();
        PrivateDir::open(root.path()).unwrap();
        for mode in [0o770, 0o707, 0o1777] {
            fs::set_permissions(root.path(), fs::Permissions::from_mode(mode)).unwrap();
            let error = PrivateDir::open(root.path()).unwrap_err().to_string();
            assert!(error.contains("others can change it"), "{mode:o}: {error}");
        }
    }

    #[test]
    fn looking_at_a_lock_never_takes_it_from_another() {
        let root = tempfile::tempdir().unwrap();
        let own = PrivateDir::open(root.path()).unwrap();
        let open = || own.read_write("lock").unwrap();
        let looker = open();
        assert!(!Lock::is_held(&looker).unwrap());
        let held = Lock::take(open()).unwrap().unwrap();
        assert!(Lock::is_held(&looker).unwrap());
        assert!(Lock::take(open()).unwrap().is_none());
        drop(held);
        assert!(!Lock::is_held(&looker).unwrap());
        assert!(Lock::take(open()).unwrap().is_some());
    }

    #[test]
    fn a_replaced_file_has_the_whole_new_content() {
        let root = tempfile::tempdir().unwrap();
        let own = PrivateDir::open(root.path()).unwrap();
        own.replace("state", b"a long first text").unwrap();
        own.replace("state", b"short").unwrap();
        assert_eq!(own.read_all("state").unwrap(), b"short");
        assert_eq!(own.names().unwrap(), ["state"]);
        assert!(own.is_at(root.path()) && !own.is_at(Path::new("/")));
    }
}
