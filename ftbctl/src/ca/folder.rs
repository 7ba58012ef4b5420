//! The folder of a CA: private files, replaced as a whole, and a lock.
//!
//! Everything is opened relative to the folder, and no symbolic link is followed, so that another
//! user who can write above the folder gains nothing. Not responsible for: contents.

use crate::failure::Failure;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag, open, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, geteuid, syncfs, unlinkat};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Only the owner.
const PRIVATE: u32 = 0o600;
/// Every user may read: certificates and lists are public.
const PUBLIC: u32 = 0o644;
const FOLDER: u32 = 0o700;
/// Rights of group and others to write.
const WRITABLE: u32 = 0o022;
const LOCK: &str = "lock";

/// The readers of a file: its owner, or every user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Secrecy {
    Private,
    Public,
}

/// A folder that belongs to this user and that no other can write.
#[derive(Debug)]
pub(super) struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

/// The work of one command at a time, until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _file: Flock<File>,
}

impl Folder {
    /// Opens the folder of a CA; `create`: makes it, for its owner alone.
    pub(super) fn open(path: &Path, create: bool) -> Result<Self, Failure> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
        if create {
            let made = nix::unistd::mkdir(path, Mode::from_bits_truncate(FOLDER));
            made.or_else(unless_there).map_err(|error| failed(path, "create", error))?;
        }
        let fd = open(path, flags, Mode::empty()).map_err(|error| match error {
            Errno::ENOENT => Failure::failed(format_args!(
                "there is no CA in {}: run `ftbctl ca init CLUSTER`, or name its folder with --dir",
                path.display()
            )),
            error => failed(path, "open", error),
        })?;
        Self::checked(fd, path.to_owned())
    }

    fn checked(fd: OwnedFd, path: PathBuf) -> Result<Self, Failure> {
        let stat = fstat(&fd).map_err(|error| failed(&path, "examine", error))?;
        check_owner(&path, &stat)?;
        Ok(Self { fd, path })
    }

    /// Waits until no other command works here.
    pub(super) fn lock(&self) -> Result<Lock, Failure> {
        let path = self.path.join(LOCK);
        let flags = OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_RDWR;
        let file = openat(&self.fd, LOCK, flags, Mode::from_bits_truncate(PRIVATE));
        let file = File::from(file.map_err(|error| failed(&path, "lock", error))?);
        let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Err((file, Errno::EWOULDBLOCK)) => {
                eprintln!("ftbctl: waiting for another command in {}", self.path.display());
                Flock::lock(file, FlockArg::LockExclusive)
            }
            done => done,
        };
        let file = file.map_err(|(_, error)| failed(&path, "lock", error))?;
        Ok(Lock { _file: file })
    }

    /// A folder in this one, which is made where there is none.
    pub(super) fn below(&self, name: &str) -> Result<Self, Failure> {
        let path = self.path.join(name);
        let made = mkdirat(&self.fd, name, Mode::from_bits_truncate(FOLDER));
        made.or_else(unless_there).map_err(|error| failed(&path, "create", error))?;
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
        let fd = openat(&self.fd, name, flags, Mode::empty());
        Self::checked(fd.map_err(|error| failed(&path, "open", error))?, path)
    }

    /// Whether there is a file or anything else of this name.
    pub(super) fn has(&self, name: &str) -> Result<bool, Failure> {
        match fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(error) => Err(failed(&self.path.join(name), "examine", error)),
        }
    }

    /// Reads a file of at most `bytes_max` bytes. A private one must be private.
    pub(super) fn read(
        &self,
        name: &str,
        secrecy: Secrecy,
        bytes_max: u64,
    ) -> Result<String, Failure> {
        let path = self.path.join(name);
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
        let file = openat(&self.fd, name, flags, Mode::empty());
        let file = file.map_err(|error| failed(&path, "read", error))?;
        let stat = fstat(&file).map_err(|error| failed(&path, "examine", error))?;
        check_owner(&path, &stat)?;
        if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
            return Err(Failure::failed(format_args!("{}: it is no file", path.display())));
        }
        if secrecy == Secrecy::Private && stat.st_mode & 0o077 != 0 {
            return Err(Failure::failed(format_args!(
                "{}: other users can read it (mode {:04o}): its secret may be known. If it is not, \
                 run: chmod 600 {0}",
                path.display(),
                stat.st_mode & 0o7777
            )));
        }
        let mut text = String::new();
        let read = File::from(file).take(bytes_max.saturating_add(1)).read_to_string(&mut text);
        let read = read.map_err(|error| {
            Failure::failed(format_args!("cannot read {}: {error}", path.display()))
        })?;
        match u64::try_from(read).is_ok_and(|read| read <= bytes_max) {
            true => Ok(text),
            false => Err(Failure::failed(format_args!(
                "{}: it has more than {bytes_max} bytes",
                path.display()
            ))),
        }
    }

    /// Replaces a file as a whole: whatever happens, there is the old one or the new one. A link of
    /// that name is replaced and not followed.
    pub(super) fn write(&self, name: &str, secrecy: Secrecy, text: &str) -> Result<(), Failure> {
        let path = self.path.join(name);
        let new = format!(".{name}.new");
        // Left by a command that was killed; the lock is ours.
        self.remove(&new)?;
        let mode = Mode::from_bits_truncate(match secrecy {
            Secrecy::Private => PRIVATE,
            Secrecy::Public => PUBLIC,
        });
        let flags =
            OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_WRONLY;
        let cannot = |error| failed(&path, "write", error);
        let file = openat(&self.fd, new.as_str(), flags, Mode::from_bits_truncate(PRIVATE));
        let file = file.map_err(cannot)?;
        fchmod(&file, mode).map_err(cannot)?;
        File::from(file).write_all(text.as_bytes()).map_err(|error| {
            Failure::failed(format_args!("cannot write {}: {error}", path.display()))
        })?;
        renameat(&self.fd, new.as_str(), &self.fd, name).map_err(cannot)
    }

    /// Removes a file, if it is there.
    pub(super) fn remove(&self, name: &str) -> Result<(), Failure> {
        match unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(failed(&self.path.join(name), "remove", error)),
        }
    }

    /// Waits until everything that was written is on disk.
    pub(super) fn sync(&self) -> Result<(), Failure> {
        syncfs(self.fd.as_fd()).map_err(|error| failed(&self.path, "sync", error))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn unless_there(error: Errno) -> Result<(), Errno> {
    match error {
        Errno::EEXIST => Ok(()),
        error => Err(error),
    }
}

/// Refuses what another user owns or can write.
fn check_owner(path: &Path, stat: &FileStat) -> Result<(), Failure> {
    let ours = geteuid().as_raw();
    if stat.st_uid != ours {
        return Err(Failure::failed(format_args!(
            "{}: it belongs to user {}, and you are user {ours}",
            path.display(),
            stat.st_uid
        )));
    }
    if stat.st_mode & WRITABLE != 0 {
        return Err(Failure::failed(format_args!(
            "{}: other users can write it (mode {:04o}): run: chmod go-w {0}",
            path.display(),
            stat.st_mode & 0o7777
        )));
    }
    Ok(())
}

fn failed(path: &Path, verb: &str, error: Errno) -> Failure {
    let error = match error {
        Errno::ELOOP => "it is a symbolic link".to_owned(),
        error => error.desc().to_owned(),
    };
    Failure::failed(format_args!("cannot {verb} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    fn message(failure: Failure) -> String {
        match failure {
            Failure::Reported { message, .. } => message,
            other => panic!("{other:?}"),
        }
    }

    fn opened() -> (tempfile::TempDir, Folder) {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(&dir.path().join("ca"), true).unwrap();
        (dir, folder)
    }

    #[test]
    fn private_files_are_private_and_links_are_not_followed() {
        let (dir, folder) = opened();
        let victim = dir.path().join("victim");
        fs::write(&victim, "untouched").unwrap();
        symlink(&victim, folder.path().join("key")).unwrap();
        symlink(&victim, folder.path().join(".key.new")).unwrap();
        assert!(folder.read("key", Secrecy::Private, 99).is_err());
        folder.write("key", Secrecy::Private, "secret").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
        let key = fs::symlink_metadata(folder.path().join("key")).unwrap();
        assert!(key.is_file() && key.mode() & 0o7777 == 0o600);
        assert_eq!(fs::metadata(folder.path()).unwrap().mode() & 0o7777, 0o700);
        folder.write("cert", Secrecy::Public, "x").unwrap();
        assert_eq!(fs::metadata(folder.path().join("cert")).unwrap().mode() & 0o7777, 0o644);
        assert_eq!(folder.read("key", Secrecy::Private, 6).unwrap(), "secret");
        assert!(
            message(folder.read("key", Secrecy::Private, 5).unwrap_err()).contains("more than")
        );
    }

    #[test]
    fn folders_and_files_that_others_can_use_are_refused() {
        let (dir, folder) = opened();
        folder.write("key", Secrecy::Private, "secret").unwrap();
        let allow = |name: &str, mode| {
            let path = folder.path().join(name);
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        allow("key", 0o640);
        let refused = message(folder.read("key", Secrecy::Private, 99).unwrap_err());
        assert!(refused.contains("mode 0640") && refused.contains("chmod 600"), "{refused}");
        allow("", 0o770);
        let refused = message(Folder::open(folder.path(), false).unwrap_err());
        assert!(refused.contains("chmod go-w"), "{refused}");
        symlink(folder.path(), dir.path().join("link")).unwrap();
        assert!(Folder::open(&dir.path().join("link"), true).is_err());
        let none = message(Folder::open(&dir.path().join("none"), false).unwrap_err());
        assert!(none.contains("ftbctl ca init"), "{none}");
    }
}
