//! Copies images between nodes: a server that streams `<root>/<set>/rank-<r>.img` to clients with
//! the job's secret, and the client, which writes to a temporary name, checks length and CRC-32C,
//! and renames. An image is a file or a directory ([`ftb_launcher_pods::images::tree`]) and exists
//! complete or not at all.
//!
//! After the greeting ([`super::secret`]) the client sends `GET SET RANK`. The answer is `OK
//! LENGTH\n`, the bytes and `CRC\n` (eight hex digits); or `TREE\n`, the files and `CRC\n`; or `ERR
//! reason\n`. `AWAIT SET RANK` requests an image that may still grow
//! ([`ftb_launcher_pods::images::growing`]); lines `WAIT\n` may precede the answer. Both ends copy
//! with blocking streams on threads.

use crate::secret::Secret;
use crate::spec::NlaSpec;
use core::time::Duration;
use ftb_launcher_core::names::{Episode, Ranks, SetId};
use ftb_launcher_pods::images::{Outlives, copy, growing, path, read_line, sync_dir, tree};
use ftb_launcher_pods::saver;
use ftb_launcher_pods::timeline::Stopwatch;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Most running transfers of a server; others wait.
pub const TRANSFERS_MAX: usize = 16;
/// Most connections, waiting ones included; others wait in the listen queue.
pub const CONNECTIONS_MAX: usize = 256;
/// A peer that moves no byte for this long is dropped.
pub const STALL_MAX: Duration = Duration::from_secs(30);
/// Requests a whole image.
const GET: &str = "GET";
/// Requests an image that may still grow.
const AWAIT: &str = "AWAIT";
/// Sent while the image has not begun.
const WAIT: &str = "WAIT";
const CHUNK_BYTES: usize = 256 * 1024;
/// Interval of `WAIT`.
const BEAT_EVERY: Duration = Duration::from_secs(10);

/// The source of an image.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    pub server: &'a str,
    pub secret: &'a Secret,
    /// Wait for an image that may not have begun.
    pub early: bool,
}

/// Serves images below `root` until it is dropped. A misbehaving peer is dropped and logged.
pub async fn serve(listener: TcpListener, root: PathBuf, secret: Secret) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let transfers = Arc::new(Semaphore::new(TRANSFERS_MAX));
    let root: Arc<Path> = root.into();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (root, secret, transfers) = (Arc::clone(&root), secret.clone(), Arc::clone(&transfers));
        tokio::spawn(async move {
            let _place = place;
            if let Err(error) = answer(stream, root, &secret, &transfers).await {
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

async fn answer(
    mut stream: tokio::net::TcpStream,
    root: Arc<Path>,
    secret: &Secret,
    transfers: &Semaphore,
) -> io::Result<()> {
    let words = secret.hear(&mut stream).await?;
    let (early, path) = match words.and_then(|words| wanted(&words, &root)) {
        Ok(wanted) => wanted,
        Err(reason) => return stream.write_all(format!("ERR {reason}\n").as_bytes()).await,
    };
    let _transfer = transfers.acquire().await.map_err(io::Error::other)?;
    let stream = stream.into_std()?;
    tokio::task::spawn_blocking(move || send(stream, &path, early)).await?
}

fn send(mut stream: TcpStream, path: &Path, early: bool) -> io::Result<()> {
    prepare(&stream)?;
    if early {
        growing::begun(path, BEAT_EVERY, || stream.write_all(format!("{WAIT}\n").as_bytes()))?;
    }
    let is_dir = match fs::metadata(path) {
        Ok(data) => data.is_dir(),
        Err(error) => {
            let line = format!("ERR cannot read image {}: {error}\n", path.display());
            return stream.write_all(line.as_bytes());
        }
    };
    let crc = if is_dir {
        stream.write_all(b"TREE\n")?;
        if early { growing::send(path, &mut stream)? } else { tree::send(path, &mut stream)? }.crc
    } else {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        stream.write_all(format!("OK {length}\n").as_bytes())?;
        copy(&mut file, &mut stream, length, 0)?
    };
    stream.write_all(format!("{crc:08x}\n").as_bytes())
}

/// Whether the image may still grow, and its path.
fn wanted(words: &str, root: &Path) -> Result<(bool, PathBuf), String> {
    let words: Vec<&str> = words.split(' ').collect();
    let (early, set, rank) = match words[..] {
        [GET, set, rank] => (false, set, rank),
        [AWAIT, set, rank] => (true, set, rank),
        _ => return Err("expected GET SET RANK".to_owned()),
    };
    let set = SetId::new(set).map_err(|error| error.to_string())?;
    let rank = rank.parse().map_err(|_| "this is no rank".to_owned())?;
    Ok((early, path(root, &set, rank)))
}

/// Fetches the images of `ranks` into `<root>/<set>` one after the other; blocking. Returns their
/// sizes and CRCs.
///
/// # Errors
/// The image and the reason. Complete images stay.
pub fn fetch(
    from: Origin<'_>,
    root: &Path,
    set: &SetId,
    ranks: &Ranks,
    outlives: Outlives,
) -> Result<Vec<(u64, u32)>, String> {
    let dir = root.join(set.as_str());
    fs::create_dir_all(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
    let one = |rank| {
        let words = format!("{} {set} {rank}", if from.early { AWAIT } else { GET });
        fetch_one(from, &words, &path(root, set, rank), outlives).map_err(|error| {
            // The reason becomes part of an event that every user may read, so it must not contain
            // the address.
            tracing::warn!(server = from.server, rank, %set, %error, "an image cannot be fetched");
            format!("image of rank {rank} of set {set}: {error}")
        })
    };
    ranks.iter().map(one).collect()
}

/// Images to copy to this node.
#[derive(Clone, Debug)]
pub struct CopyOf {
    pub episode: Episode,
    /// `host:port` of the source.
    pub from: String,
    pub set: SetId,
    pub ranks: Ranks,
}

/// Fetches and verifies images; returns their bytes.
pub async fn take(spec: &NlaSpec, from: &str, set: &SetId, ranks: &Ranks) -> Result<u64, String> {
    let time = Stopwatch::start();
    let (whole, server, which, of) = (spec.clone(), from.to_owned(), set.clone(), ranks.clone());
    let task = tokio::task::spawn_blocking(move || {
        let secret = Secret::new(&whole.token);
        // Images of a migration are requested before the ranks have left, if agents save them.
        let early = whole.backend.pods().is_some() && which.migration().is_some();
        let from = Origin { server: &server, secret: &secret, early };
        fetch(from, &whole.image_dir, &which, &of, Outlives::Nothing)
    });
    let fetched = task.await.map_err(|error| error.to_string())?;
    let fetched = fetched.inspect_err(|error| tracing::info!(node = %spec.node, error))?;
    time.done(&spec.node, "copy the images");
    saver::verify(&spec.site(), set, ranks).await?;
    Ok(fetched.iter().map(|(bytes, _)| bytes).sum())
}

fn fetch_one(
    from: Origin<'_>,
    words: &str,
    place: &Path,
    outlives: Outlives,
) -> io::Result<(u64, u32)> {
    let address = from.server.to_socket_addrs()?.next();
    let address = address.ok_or_else(|| io::Error::other("the server has no address"))?;
    let mut stream = TcpStream::connect_timeout(&address, STALL_MAX)?;
    prepare(&stream)?;
    let mut reader = BufReader::with_capacity(CHUNK_BYTES, stream.try_clone()?);
    let line = from.secret.sign(&read_line(&mut reader)?, words).map_err(io::Error::other)?;
    stream.write_all(format!("{line}\n").as_bytes())?;
    let mut line = read_line(&mut reader)?;
    while line == WAIT {
        line = read_line(&mut reader)?;
    }
    let part = place.with_extension("part");
    tree::remove(&part)?;
    let result = if line == "TREE" {
        receive_tree(&mut reader, &part, outlives)
    } else {
        match line.strip_prefix("OK ").and_then(|text| text.parse().ok()) {
            Some(length) => receive(&mut reader, &part, length, outlives).map(|crc| (length, crc)),
            None => return Err(io::Error::other(line)),
        }
    };
    match result {
        Ok(sum) => {
            tree::remove(place)?;
            fs::rename(&part, place)?;
            if outlives == Outlives::Host {
                sync_dir(place.parent().unwrap_or(place))?;
            }
            Ok(sum)
        }
        Err(error) => {
            let _ = tree::remove(&part);
            Err(error)
        }
    }
}

fn receive_tree(
    reader: &mut impl BufRead,
    part: &Path,
    outlives: Outlives,
) -> io::Result<(u64, u32)> {
    let sum = tree::receive(reader, part, outlives)?;
    check(sum.crc, &read_line(reader)?)?;
    Ok((sum.bytes, sum.crc))
}

/// Compares the CRCs of both sides.
fn check(crc: u32, reported: &str) -> io::Result<()> {
    if reported == format!("{crc:08x}") {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "CRC {crc:08x} here, {reported} at the source: damaged on the way"
    )))
}

fn receive(
    reader: &mut impl BufRead,
    part: &Path,
    length: u64,
    outlives: Outlives,
) -> io::Result<u32> {
    let mut file = File::create(part)?;
    let crc = copy(reader, &mut file, length, 0)?;
    check(crc, &read_line(reader)?)?;
    outlives.sync(&file)?;
    Ok(crc)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::secret;
    use super::*;
    use ftb_launcher_core::names::Episode;
    use ftb_launcher_pods::images::{newest_migration, sum};

    struct Served {
        address: String,
        from: tempfile::TempDir,
        to: tempfile::TempDir,
    }

    async fn served() -> Served {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(serve(listener, from.path().to_owned(), Secret::new("key")));
        Served { address, from, to }
    }

    async fn get(served: &Served, key: &str, rank: u32) -> Result<Vec<(u64, u32)>, String> {
        let (address, root) = (served.address.clone(), served.to.path().to_owned());
        let secret = Secret::new(key);
        let set = SetId::of_migration(Episode(3));
        let ranks = Ranks::from_iter([rank]);
        let task = move || {
            let from = Origin { server: &address, secret: &secret, early: false };
            fetch(from, &root, &set, &ranks, Outlives::Host)
        };
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
        // A second fetch replaces the image.
        fs::remove_file(source.join("nil")).unwrap();
        let second = get(&served, "key", 0).await.unwrap();
        assert!(second != first && !there.join("nil").exists());
    }

    #[test]
    fn a_damaged_image_is_refused_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let part = dir.path().join("x.part");
        let mut wire: &[u8] = b"abcd00000000\n";
        let error = receive(&mut wire, &part, 4, Outlives::Host).unwrap_err().to_string();
        assert!(error.contains("damaged"), "{error}");
        let mut short: &[u8] = b"ab";
        assert!(receive(&mut short, &part, 4, Outlives::Host).is_err());
    }

    #[test]
    fn only_a_proper_request_names_a_file() {
        let root = Path::new("/images");
        for bad in ["", "GET", "GET ../x 1", "GET set-1 x", "GET set-1 1 2", "PUT set-1 1"] {
            assert!(wanted(bad, root).is_err(), "{bad}");
        }
        let there = root.join("set-1/rank-7.img");
        assert_eq!(wanted("GET set-1 7", root).unwrap(), (false, there.clone()));
        assert_eq!(wanted("AWAIT set-1 7", root).unwrap(), (true, there));
    }

    /// The secret is never on the wire.
    #[tokio::test(flavor = "multi_thread")]
    async fn the_secret_does_not_travel() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let to = tempfile::tempdir().unwrap();
        let root = to.path().to_owned();
        let asking = tokio::task::spawn_blocking(move || {
            let (secret, set) = (Secret::new("key"), SetId::of_migration(Episode(3)));
            let from = Origin { server: &address, secret: &secret, early: false };
            fetch(from, &root, &set, &Ranks::from_iter([1]), Outlives::Nothing)
        });
        let (mut stream, _) = listener.accept().await.unwrap();
        let (_, greeting) = secret::greeting().unwrap();
        stream.write_all(greeting.as_bytes()).await.unwrap();
        let said = secret::read_line(&mut stream).await.unwrap();
        assert!(said.starts_with("GET mig-") && !said.contains("key"), "{said}");
        // A repeated line is worthless: each connection has its own nonce.
        let served = served().await;
        let mut again = tokio::net::TcpStream::connect(&served.address).await.unwrap();
        secret::read_line(&mut again).await.unwrap();
        again.write_all(format!("{said}\n").as_bytes()).await.unwrap();
        assert_eq!(secret::read_line(&mut again).await.unwrap(), "ERR wrong key");
        drop(stream);
        assert!(asking.await.unwrap().is_err());
    }
}
