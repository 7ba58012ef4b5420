//! Images that are sent while they are written: so the copy to another node is complete soon after the dump is.
//!
//! Responsible for: waiting until an image begins, following what is only ever appended to (the memory of the processes,
//! which is nearly all of an image), and sending the rest when nothing changes any more. What is written says so itself:
//! an image is whole when the file `WHOLE` is in it, and given up when its directory goes away. Not responsible for:
//! connections, the format on the wire ([`super::tree`]).

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

/// The last file of an image that may be asked for before it is whole.
pub const WHOLE: &str = "whole";
/// How long an image may take to begin: longer than the job launcher waits for ranks to be saved.
pub const BEGIN_MAX: Duration = Duration::from_secs(90);
/// An image of which nothing is written for so long is given up.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Files of an image that are only appended to: the memory of processes.
fn follows(name: &str) -> bool {
    name.starts_with("pages-") && name.ends_with(".img")
}

/// Sees changes in directories, also in those that are not there yet.
struct Watch {
    kernel: Inotify,
    dirs: Vec<PathBuf>,
}

impl Watch {
    fn new(dirs: Vec<PathBuf>) -> io::Result<Self> {
        let kernel = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        Ok(Self { kernel, dirs })
    }

    /// Looks again and again, now and after each change, until there is something to tell; `None` when nothing has
    /// changed for `patience`.
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
                // One that is not there shows in the one above it when it is.
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
            // Whatever it was, the next look sees it.
            let _ = self.kernel.read_events();
        }
    }
}

/// Waits until an image is there, or begins to be. `beat` is called now and then while there is none.
///
/// # Errors
/// It does not come, or `beat` says that nobody wants it any more.
pub fn begun(
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

/// A file that is followed.
struct Followed {
    name: String,
    file: File,
    /// So much of it; none: not even its name.
    sent: Option<u64>,
}

/// Sends a directory that may still be written to.
///
/// # Errors
/// The system's; the image was given up.
pub fn send(image: &Path, to: &mut impl Write) -> io::Result<Sum> {
    // A directory with open files in it does not tell its own end; the one above it does.
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

/// Finds files to follow that are new, in a folder of the image.
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
    /// Sends what has come since the last time.
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

    /// Tells of each write.
    struct Told(mpsc::Sender<Vec<u8>>);

    impl Write for Told {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Waits until so much was sent, from the beginning.
    fn sent(from: &mpsc::Receiver<Vec<u8>>, all: &mut Vec<u8>, end: &[u8]) {
        while !all.ends_with(end) {
            all.extend(from.recv().unwrap());
        }
    }

    #[test]
    fn what_is_written_is_sent_before_the_image_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("mig-1/rank-0.img");
        let (told, from) = mpsc::channel();
        let there = image.clone();
        let sending = std::thread::spawn(move || {
            begun(&there, Duration::from_secs(60), || Ok(()))?;
            send(&there, &mut Told(told))
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
        let (told, from) = mpsc::channel();
        let there = image.clone();
        let sending = std::thread::spawn(move || send(&there, &mut Told(told)));
        sent(&from, &mut Vec::new(), b"some");
        fs::remove_dir_all(&image).unwrap();
        let error = sending.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("given up"), "{error}");
    }
}
