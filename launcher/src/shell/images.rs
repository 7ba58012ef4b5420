//! Images on the move: a server that streams `<root>/<set>/rank-<r>.img` to whoever shows the job's key, and the
//! fetching side, which writes to a temporary name, checks lengths and CRC-32C, syncs and renames. An image is a
//! file, or a directory of files ([`super::tree`]); it is there complete or not at all.
//!
//! On the wire: `GET KEY SET RANK\n`, answered by `OK LENGTH\n`, the bytes, and `CRC\n` (eight hex digits); or by
//! `TREE\n`, the files and `CRC\n`; or by `ERR reason\n`. Both ends use blocking streams in threads of their own:
//! copying is all they do.

use super::tree;
use crate::names::{Ranks, SetId};
use core::time::Duration;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Transfers that a server does at a time; others wait in the listen queue.
pub const TRANSFERS_MAX: usize = 16;
/// A peer that moves no byte for so long is given up.
pub const STALL_MAX: Duration = Duration::from_secs(30);
/// Longest request or answer line in bytes.
const LINE_BYTES_MAX: u64 = 512;
const CHUNK_BYTES: usize = 256 * 1024;

/// `<root>/<set>/rank-<r>.img`.
pub fn path(root: &Path, set: &SetId, rank: u32) -> PathBuf {
    root.join(set.as_str()).join(format!("rank-{rank}.img"))
}

/// The newest migration for which that rank's image is below `root`.
pub fn newest_migration(root: &Path, rank: u32) -> Option<crate::names::Episode> {
    let sets = fs::read_dir(root).ok()?.filter_map(Result::ok);
    let names =
        sets.filter_map(|entry| entry.file_name().to_str().and_then(|n| SetId::new(n).ok()));
    let made = names.filter(|set| path(root, set, rank).exists());
    made.filter_map(|set| set.migration()).max()
}

/// Serves images below `root` until it is dropped. Never fails: a peer that misbehaves is dropped and logged.
pub async fn serve(listener: TcpListener, root: PathBuf, key: String) {
    let places = Arc::new(Semaphore::new(TRANSFERS_MAX));
    let shared = Arc::new((root, key));
    loop {
        let place =
            Arc::clone(&places).acquire_owned().await.expect("the semaphore is never closed");
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let shared = Arc::clone(&shared);
        tokio::task::spawn_blocking(move || {
            let _place = place;
            let served = stream.into_std().and_then(|stream| answer(stream, &shared.0, &shared.1));
            if let Err(error) = served {
                tracing::warn!(%peer, %error, "an image transfer failed");
            }
        });
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STALL_MAX))?;
    stream.set_write_timeout(Some(STALL_MAX))
}

pub(super) fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.take(LINE_BYTES_MAX).read_line(&mut line)?;
    match line.strip_suffix('\n') {
        Some(text) => Ok(text.to_owned()),
        None => Err(io::Error::other("the peer sent no whole line")),
    }
}

fn answer(stream: TcpStream, root: &Path, key: &str) -> io::Result<()> {
    prepare(&stream)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    let line = read_line(&mut reader)?;
    let found = wanted(&line, root, key).and_then(|path| {
        let kind = fs::metadata(&path).map(|data| data.is_dir());
        kind.map(|is_dir| (path.clone(), is_dir))
            .map_err(|error| format!("cannot read image {}: {error}", path.display()))
    });
    let (path, is_dir) = match found {
        Ok(found) => found,
        Err(reason) => return stream.write_all(format!("ERR {reason}\n").as_bytes()),
    };
    let crc = if is_dir {
        stream.write_all(b"TREE\n")?;
        tree::send(&path, &mut stream)?.crc
    } else {
        let mut file = File::open(&path)?;
        let length = file.metadata()?.len();
        stream.write_all(format!("OK {length}\n").as_bytes())?;
        copy(&mut file, &mut stream, length, 0)?
    };
    stream.write_all(format!("{crc:08x}\n").as_bytes())
}

/// Bytes and CRC-32C of the image at `path`, as a fetch tells them.
///
/// # Errors
/// The system's.
pub fn sum(path: &Path) -> io::Result<(u64, u32)> {
    if fs::metadata(path)?.is_dir() {
        let sum = tree::send(path, &mut io::sink())?;
        return Ok((sum.bytes, sum.crc));
    }
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    Ok((length, copy(&mut file, &mut io::sink(), length, 0)?))
}

fn wanted(line: &str, root: &Path, key: &str) -> Result<PathBuf, String> {
    let words: Vec<&str> = line.split(' ').collect();
    let ["GET", shown, set, rank] = words[..] else {
        return Err("expected GET KEY SET RANK".to_owned());
    };
    if !same(shown, key) {
        return Err("wrong key".to_owned());
    }
    let set = SetId::new(set).map_err(|error| error.to_string())?;
    let rank = rank.parse().map_err(|_| "this is no rank".to_owned())?;
    Ok(path(root, &set, rank))
}

/// Compares without telling by its time where the first difference is.
fn same(shown: &str, key: &str) -> bool {
    let differ = shown.bytes().zip(key.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    shown.len() == key.len() && differ == 0
}

/// Copies exactly `length` bytes and returns their CRC-32C, which begins with `crc`.
pub(super) fn copy(
    from: &mut impl Read,
    to: &mut impl Write,
    length: u64,
    mut crc: u32,
) -> io::Result<u32> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut left = length;
    while left > 0 {
        let want = usize::try_from(left).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let got = from.read(&mut chunk[..want])?;
        if got == 0 {
            return Err(io::Error::other(format!("{left} bytes are missing")));
        }
        crc = crc32c::crc32c_append(crc, &chunk[..got]);
        to.write_all(&chunk[..got])?;
        left -= got as u64;
    }
    Ok(crc)
}

/// Fetches the images of `ranks` from a server into `<root>/<set>`, one after the other; blocking. Returns their
/// sizes and CRCs in the order of the ranks.
///
/// # Errors
/// One line: which image, from where, why. What is complete stays.
pub fn fetch(
    from: &str,
    key: &str,
    root: &Path,
    set: &SetId,
    ranks: &Ranks,
) -> Result<Vec<(u64, u32)>, String> {
    let dir = root.join(set.as_str());
    fs::create_dir_all(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
    let one = |rank| {
        fetch_one(from, key, root, set, rank)
            .map_err(|error| format!("image of rank {rank} of set {set} from {from}: {error}"))
    };
    ranks.iter().map(one).collect()
}

fn fetch_one(from: &str, key: &str, root: &Path, set: &SetId, rank: u32) -> io::Result<(u64, u32)> {
    let address = from.to_socket_addrs()?.next();
    let address = address.ok_or_else(|| io::Error::other("the server has no address"))?;
    let mut stream = TcpStream::connect_timeout(&address, STALL_MAX)?;
    prepare(&stream)?;
    stream.write_all(format!("GET {key} {set} {rank}\n").as_bytes())?;
    let mut reader = BufReader::with_capacity(CHUNK_BYTES, stream);
    let line = read_line(&mut reader)?;
    let place = path(root, set, rank);
    let part = place.with_extension("part");
    tree::remove(&part)?;
    let result = if line == "TREE" {
        receive_tree(&mut reader, &part)
    } else {
        match line.strip_prefix("OK ").and_then(|text| text.parse().ok()) {
            Some(length) => receive(&mut reader, &part, length).map(|crc| (length, crc)),
            None => return Err(io::Error::other(line)),
        }
    };
    match result {
        Ok(sum) => {
            tree::remove(&place)?;
            fs::rename(&part, &place)?;
            sync_dir(place.parent().unwrap_or(root))?;
            Ok(sum)
        }
        Err(error) => {
            let _ = tree::remove(&part);
            Err(error)
        }
    }
}

fn receive_tree(reader: &mut impl BufRead, part: &Path) -> io::Result<(u64, u32)> {
    let sum = tree::receive(reader, part)?;
    check(sum.crc, &read_line(reader)?)?;
    Ok((sum.bytes, sum.crc))
}

/// Compares the CRC of here with that of the other side.
fn check(crc: u32, told: &str) -> io::Result<()> {
    if told == format!("{crc:08x}") {
        return Ok(());
    }
    Err(io::Error::other(format!("CRC {crc:08x} here, {told} there: damaged on the way")))
}

fn receive(reader: &mut impl BufRead, part: &Path, length: u64) -> io::Result<u32> {
    let mut file = File::create(part)?;
    let crc = copy(reader, &mut file, length, 0)?;
    check(crc, &read_line(reader)?)?;
    file.sync_all()?;
    Ok(crc)
}

/// Makes a rename in `dir` durable.
///
/// # Errors
/// The system's.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Deletes a set below `root`; one that is not there is fine.
pub fn drop_set(root: &Path, set: &SetId) {
    let dir = root.join(set.as_str());
    match fs::remove_dir_all(&dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(dir = %dir.display(), %error, "a set cannot be deleted");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::names::Episode;

    struct Served {
        address: String,
        from: tempfile::TempDir,
        to: tempfile::TempDir,
    }

    async fn served() -> Served {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(serve(listener, from.path().to_owned(), "key".to_owned()));
        Served { address, from, to }
    }

    async fn get(served: &Served, key: &str, rank: u32) -> Result<Vec<(u64, u32)>, String> {
        let (address, root) = (served.address.clone(), served.to.path().to_owned());
        let key = key.to_owned();
        let set = SetId::of_migration(Episode(3));
        let ranks = Ranks::from_iter([rank]);
        let task = move || fetch(&address, &key, &root, &set, &ranks);
        tokio::task::spawn_blocking(task).await.unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_image_arrives_whole_and_only_with_the_key() {
        let served = served().await;
        let set = SetId::of_migration(Episode(3));
        let source = path(served.from.path(), &set, 1);
        fs::create_dir_all(source.parent().unwrap()).unwrap();
        let bytes: Vec<u8> = (0..3_000_001_u32).map(|n| (n % 251) as u8).collect();
        fs::write(&source, &bytes).unwrap();
        let wrong = get(&served, "yek", 1).await.unwrap_err();
        assert!(wrong.contains("wrong key"), "{wrong}");
        let got = get(&served, "key", 1).await.unwrap();
        assert_eq!(got, [(bytes.len() as u64, crc32c::crc32c(&bytes))]);
        assert!(fs::read(path(served.to.path(), &set, 1)).unwrap() == bytes);
        assert_eq!(newest_migration(served.to.path(), 1), Some(Episode(3)));
        assert_eq!(newest_migration(served.to.path(), 2), None);
        let missing = get(&served, "key", 2).await.unwrap_err();
        assert!(missing.contains("rank 2"), "{missing}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_image_that_is_a_directory_arrives_whole() {
        let served = served().await;
        let set = SetId::of_migration(Episode(3));
        let source = path(served.from.path(), &set, 0);
        fs::create_dir_all(source.join("deep/er")).unwrap();
        for (name, bytes) in [("core", &b"one"[..]), ("deep/er/pages", &[7; 300_000]), ("nil", b"")]
        {
            fs::write(source.join(name), bytes).unwrap();
        }
        let first = get(&served, "key", 0).await.unwrap();
        assert_eq!(first, [sum(&source).unwrap()]);
        let there = path(served.to.path(), &set, 0);
        assert_eq!(sum(&there).unwrap(), first[0]);
        assert_eq!(fs::read(there.join("deep/er/pages")).unwrap(), [7; 300_000]);
        // Fetched again, it takes the place of the old one.
        fs::remove_file(source.join("nil")).unwrap();
        let second = get(&served, "key", 0).await.unwrap();
        assert!(second != first && !there.join("nil").exists());
    }

    #[test]
    fn a_damaged_image_is_refused_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let part = dir.path().join("x.part");
        let mut wire: &[u8] = b"abcd00000000\n";
        let error = receive(&mut wire, &part, 4).unwrap_err().to_string();
        assert!(error.contains("damaged"), "{error}");
        let mut short: &[u8] = b"ab";
        assert!(receive(&mut short, &part, 4).is_err());
    }

    #[test]
    fn only_a_proper_request_names_a_file() {
        let root = Path::new("/images");
        for bad in
            ["", "GET", "GET key ../x 1", "GET key set-1 x", "GET key set-1 1 2", "PUT key set-1 1"]
        {
            assert!(wanted(bad, root, "key").is_err(), "{bad}");
        }
        assert_eq!(wanted("GET key set-1 7", root, "key").unwrap(), root.join("set-1/rank-7.img"));
    }
}
