//! Sends an image while it is written, so that the copy is complete soon after the dump.
//!
//! It waits until the image begins and follows files that only grow: the memory of processes,
//! nearly all of an image. When the file [`WHOLE`] appears, it sends the rest. The image is
//! cancelled when its directory disappears. Not responsible for: connections, the format
//! ([`super::tree`]).

use super::tree::{self, Sender, Sum};
use crate::backend::PARENT;
use core::time::Duration;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::fs::{self, File};
use std::io::{self, Seek as _, SeekFrom, Write};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The last file of an image that may be read while it is written.
pub const WHOLE: &str = "whole";
/// How long an image may take to begin; longer than the deadline of phase `leave`.
pub const BEGIN_MAX: Duration = Duration::from_secs(90);
/// Without a change for this long the image counts as abandoned.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Whether the file only grows: the memory of processes.
fn follows(name: &str) -> bool {
    name.starts_with("pages-") && name.ends_with(".img")
}

/// Watches directories, also those that do not exist yet.
struct Watch {
    kernel: Inotify,
    dirs: Vec<PathBuf>,
}

impl Watch {
    fn new(dirs: Vec<PathBuf>) -> io::Result<Self> {
        let kernel = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        Ok(Self { kernel, dirs })
    }

    /// Calls `look` now and after each change until it returns a value; `None` after `patience`
    /// without a change.
    fn until<T>(
        &self,
        patience: Duration,
        mut look: impl FnMut() -> io::Result<Option<T>>,
    ) -> io::Result<Option<T>> {
        loop {
            for dir in &self.dirs {
                let flags = AddWatchFlags::IN_CREATE
                    | AddWatchFlags::IN_MODIFY
                    | AddWatchFlags::IN_MOVED_TO
                    | AddWatchFlags::IN_DELETE;
                // A missing directory appears in its parent.
                let _ = self.kernel.add_watch(dir, flags);
            }
            if let Some(found) = look()? {
                return Ok(Some(found));
            }
            let wait = PollTimeout::try_from(patience).map_err(io::Error::other)?;
            let mut changed = [PollFd::new(self.kernel.as_fd(), PollFlags::POLLIN)];
            if poll(&mut changed, wait)? == 0 {
                return Ok(None);
            }
            // The next look sees every change.
            let _ = self.kernel.read_events();
        }
    }
}

/// Waits until an image begins. Calls `beat` at intervals meanwhile.
///
/// # Errors
/// The image does not begin, or `beat` fails.
pub fn started(
    image: &Path,
    beat_every: Duration,
    mut beat: impl FnMut() -> io::Result<()>,
) -> io::Result<()> {
    let dirs = image.ancestors().skip(1).take(2).map(Path::to_owned).collect();
    let watch = Watch::new(dirs)?;
    let begin = Instant::now();
    while begin.elapsed() < BEGIN_MAX {
        let there = watch.until(beat_every, || Ok(image.exists().then_some(())))?;
        if there.is_some() {
            return Ok(());
        }
        beat()?;
    }
    Err(io::Error::other(format!("there is no image {}", image.display())))
}

struct Followed {
    name: String,
    file: File,
    /// Bytes sent; `None`: not even the name.
    sent: Option<u64>,
}

/// Sends a directory that may still grow.
///
/// # Errors
/// The system's; the image was abandoned.
pub fn send(image: &Path, to: &mut impl Write) -> io::Result<Sum> {
    // A directory with open files does not report its own removal; its parent does.
    let parent = image.join(PARENT);
    let dirs = image.ancestors().take(2).chain([parent.as_path()]);
    let watch = Watch::new(dirs.map(Path::to_owned).collect())?;
    let mut sender = Sender::new(image, to);
    let mut followed: Vec<Followed> = Vec::new();
    let whole = watch.until(PAUSE_MAX, || {
        let whole = image.join(WHOLE).exists();
        if !whole && !image.exists() {
            return Err(io::Error::other("the image was given up"));
        }
        follow(image, "", &mut followed)?;
        if parent.exists() {
            follow(image, &format!("{PARENT}/"), &mut followed)?;
        }
        for one in &mut followed {
            one.send(&mut sender)?;
        }
        Ok(whole.then_some(()))
    })?;
    whole.ok_or_else(|| io::Error::other("nothing is written to the image any more"))?;
    for name in tree::list(image)? {
        if !followed.iter().any(|one| one.name == name) {
            sender.file(&name)?;
        }
    }
    sender.end()
}

/// Finds new files to follow in a folder of the image.
fn follow(image: &Path, folder: &str, followed: &mut Vec<Followed>) -> io::Result<()> {
    for entry in fs::read_dir(image.join(folder))? {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        let good = follows(&name) && followed.len() < tree::FILES_MAX;
        let name = format!("{folder}{name}");
        if good && !followed.iter().any(|one| one.name == name) {
            let file = File::open(image.join(&name))?;
            followed.push(Followed { name, file, sent: None });
        }
    }
    Ok(())
}

impl Followed {
    /// Sends what is new.
    fn send(&mut self, to: &mut Sender<'_, impl Write>) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        let before = self.sent.unwrap_or(0);
        let Some(more) = length.checked_sub(before) else {
            return Err(io::Error::other(format!("{} became shorter", self.name)));
        };
        if more > 0 || self.sent.is_none() {
            self.file.seek(SeekFrom::Start(before))?;
            to.piece(&self.name, &mut self.file, more, self.sent.is_some())?;
            self.sent = Some(length);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::Outlives;
    use super::*;
    use std::sync::mpsc;

    struct Recorder(mpsc::Sender<Vec<u8>>);

    impl Write for Recorder {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Waits until the sent bytes end with `end`.
    fn sent(from: &mpsc::Receiver<Vec<u8>>, all: &mut Vec<u8>, end: &[u8]) {
        while !all.ends_with(end) {
            all.extend(from.recv().unwrap());
        }
    }

    #[test]
    fn what_is_written_is_sent_before_the_image_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("mig-1/rank-0.img");
        let (reported, from) = mpsc::channel();
        let there = image.clone();
        let sending = std::thread::spawn(move || {
            started(&there, Duration::from_secs(60), || Ok(()))?;
            send(&there, &mut Recorder(reported))
        });
        fs::create_dir_all(image.join(PARENT)).unwrap();
        let mut all = Vec::new();
        fs::write(image.join(PARENT).join("pages-1.img"), "early").unwrap();
        sent(&from, &mut all, b"early");
        fs::write(image.join("core-1.img"), "core").unwrap();
        let mut pages = File::create(image.join("pages-1.img")).unwrap();
        sent(&from, &mut all, b"0 pages-1.img\n");
        pages.write_all(b"first").unwrap();
        sent(&from, &mut all, b"first");
        pages.write_all(b"second").unwrap();
        sent(&from, &mut all, b"second");
        fs::write(image.join(WHOLE), "").unwrap();
        let sum = sending.join().unwrap().unwrap();
        all.extend(from.try_iter().flatten());
        let copy = dir.path().join("copy");
        let got = tree::receive(&mut &all[..], &copy, Outlives::Nothing).unwrap();
        assert_eq!(got, sum);
        assert_eq!(sum.bytes, 20);
        assert_eq!(fs::read(copy.join(PARENT).join("pages-1.img")).unwrap(), b"early");
        assert_eq!(fs::read(copy.join("pages-1.img")).unwrap(), b"firstsecond");
        assert_eq!(fs::read(copy.join("core-1.img")).unwrap(), b"core");
        assert!(copy.join(WHOLE).exists());
    }

    #[test]
    fn an_image_that_is_given_up_ends_its_sending() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("rank-0.img");
        fs::create_dir(&image).unwrap();
        fs::write(image.join("pages-1.img"), "some").unwrap();
        let (reported, from) = mpsc::channel();
        let there = image.clone();
        let sending = std::thread::spawn(move || send(&there, &mut Recorder(reported)));
        sent(&from, &mut Vec::new(), b"some");
        fs::remove_dir_all(&image).unwrap();
        let error = sending.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("given up"), "{error}");
    }
}
