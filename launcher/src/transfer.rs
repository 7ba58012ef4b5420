//! Copies images between nodes: a server that streams `<root>/<set>/rank-<r>.img` to processes of
//! the job, and the client, which writes to a temporary name and renames. An image is a file or a
//! directory ([`ftb_launcher_pods::images::tree`]) and exists complete or not at all.
//!
//! Each image has a connection of its own ([`super::connection`]) from its source to its target.
//! Over the launch tree it would pass through the hosts in between, and through the JL.
//!
//! The client requests `GET SET RANK`. The answer is `OK LENGTH SHA256` and the bytes, or `TREE
//! SHA256` and the files; else `ERR reason`. Only the store of a job knows the SHA-256, from the
//! manifest of the set; the client verifies it. Images of sets in memory come from there
//! ([`crate::memory::peers`]). `AWAIT SET RANK` requests an image that may still
//! grow ([`ftb_launcher_pods::images::growing`]). Lines `WAIT` may precede an answer. Both ends
//! copy with blocking streams on threads.

use crate::connection::{BlockingConnection, Connection, Purpose, STALL_MAX, dial};
use crate::jobdir::{self, JobDir, JobFile};
use crate::memory::peers::{self, Peers};
use crate::memory::{Image, NodeMemory};
use crate::sets::SetKey;
use crate::spec::NlaSpec;
use core::time::Duration;
use ftb_launcher_core::link::cipher::Secret;
use ftb_launcher_core::names::{JobId, NodeName, Ranks, SetId};
use ftb_launcher_pods::images::{self, Outlives, copy, growing, path, read_line, sync_dir, tree};
use ftb_launcher_pods::saver;
use ftb_launcher_pods::timeline::Stopwatch;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

/// Most running transfers of a server; others wait and get `WAIT`.
pub const TRANSFERS_MAX: usize = 16;
/// Most combined cells that a server sends at once: those of two large groups. A further one is
/// refused, because members of a path that wait for each other would wait for ever.
pub const FOLDS_MAX: usize = 128;
/// Requests a whole image.
pub(crate) const GET: &str = "GET";
/// Requests an image that may still grow.
const AWAIT: &str = "AWAIT";
/// Sent while the transfer or its image has not begun.
pub(crate) const WAIT: &str = "WAIT";
/// Interval of `WAIT`.
const BEAT_EVERY: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 10_000 });

/// Where nodes of a job listen.
pub type Addresses = BTreeMap<NodeName, String>;
/// How long the address of a source may come after the request to copy from it.
const ADDRESS_WAIT: Duration = Duration::from_secs(5);

/// The source of an image.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    pub server: &'a str,
    pub secret: &'a Secret,
    /// Wait for an image that may not have begun.
    pub early: bool,
}

/// Serves the images of one process.
#[derive(Clone)]
pub struct ImageServer {
    root: Arc<Path>,
    transfers: Arc<Semaphore>,
    /// The job of a store, whose sets have manifests.
    store: Option<Arc<(JobId, SetKey)>>,
    /// Images in memory, and how to reach other nodes that have some.
    memory: Option<(NodeMemory, Secret)>,
    folds: Arc<Semaphore>,
}

impl ImageServer {
    pub fn new(root: PathBuf) -> Self {
        let transfers = Arc::new(Semaphore::new(TRANSFERS_MAX));
        let folds = Arc::new(Semaphore::new(FOLDS_MAX));
        Self { root: root.into(), transfers, store: None, memory: None, folds }
    }

    /// Serves images in memory too.
    #[must_use]
    pub fn with_memory(self, memory: NodeMemory, secret: Secret) -> Self {
        Self { memory: Some((memory, secret)), ..self }
    }

    /// Serves the store of a job: only images of authentic sets.
    pub fn of_store(dir: &JobDir, file: &JobFile) -> Self {
        let store = Some(Arc::new((file.job.clone(), file.set_key.clone())));
        Self { store, ..Self::new(dir.sets()) }
    }

    /// The digest that an image of the store must have; empty where none is known.
    fn digest(&self, path: &Path) -> Result<String, String> {
        let Some((job, key)) = self.store.as_deref().filter(|(_, key)| !key.is_none()) else {
            return Ok(String::new());
        };
        let dir = path.parent().unwrap_or(path);
        let manifest = jobdir::manifest(dir, job, key)?;
        let is = |rank: &u32| images::path(&self.root, &manifest.set, *rank) == path;
        let digest = (0..).zip(&manifest.digests).find(|(rank, _)| is(rank));
        digest.map(|(_, digest)| digest.clone()).ok_or_else(|| "no such rank".to_owned())
    }

    /// The image in memory that is requested, if one is.
    fn in_memory(&self, words: &str) -> Option<Result<Image, String>> {
        let words: Vec<&str> = words.split(' ').collect();
        let [GET, set, rank] = words[..] else { return None };
        let set = SetId::new(set).ok().filter(SetId::is_in_memory)?;
        let Some((memory, _)) = &self.memory else {
            return Some(Err("this node holds nothing in memory".to_owned()));
        };
        let rank = rank.parse().map_err(|_| "this is no rank".to_owned());
        Some(rank.and_then(|rank| memory.image(&set, rank)))
    }

    /// Whether the image may still grow, and its path.
    fn wanted(&self, words: &str) -> Result<(bool, PathBuf), String> {
        let words: Vec<&str> = words.split(' ').collect();
        let (early, set, rank) = match words[..] {
            [GET, set, rank] => (false, set, rank),
            [AWAIT, set, rank] => (true, set, rank),
            _ => return Err("expected GET SET RANK".to_owned()),
        };
        let set = SetId::new(set).map_err(|error| error.to_string())?;
        let rank = rank.parse().map_err(|_| "this is no rank".to_owned())?;
        Ok((early, path(&self.root, &set, rank)))
    }
}

/// Answers a request.
///
/// # Errors
/// The connection breaks, or the image cannot be read.
pub async fn answer(
    mut connection: Connection,
    words: &str,
    server: &ImageServer,
) -> io::Result<()> {
    if words.starts_with(peers::FOLD) {
        return answer_fold(connection, words.to_owned(), server).await;
    }
    let _transfer = begin(&mut connection, server).await?;
    if let Some(image) = server.in_memory(words) {
        let mut to = BlockingConnection::new(connection, Handle::current());
        let task = move || {
            match image {
                Ok(image) => peers::send(&image, &mut to)?,
                Err(reason) => to.write_all(format!("ERR {reason}\n").as_bytes())?,
            }
            to.flush()
        };
        return tokio::task::spawn_blocking(task).await?;
    }
    let wanted = server.wanted(words).and_then(|(early, path)| {
        let digest = server.digest(&path)?;
        Ok((early, path, digest))
    });
    let mut to = BlockingConnection::new(connection, Handle::current());
    let task = move || {
        match wanted {
            Ok((early, path, digest)) => send(&mut to, &path, early, &digest)?,
            Err(reason) => to.write_all(format!("ERR {reason}\n").as_bytes())?,
        }
        to.flush()
    };
    tokio::task::spawn_blocking(task).await?
}

/// Sends a cell that is combined along a path.
async fn answer_fold(
    mut connection: Connection,
    words: String,
    server: &ImageServer,
) -> io::Result<()> {
    let place = server.folds.clone().try_acquire_owned();
    let (Some((memory, secret)), Ok(place)) = (server.memory.clone(), place) else {
        return connection.writer.write(b"ERR this node combines no further cells\n").await;
    };
    let runtime = Handle::current();
    let mut to = BlockingConnection::new(connection, runtime.clone());
    let task = move || {
        let _place = place;
        peers::answer(&memory, &Peers { secret, runtime }, &words, &mut to)
    };
    tokio::task::spawn_blocking(task).await?
}

/// Waits until the transfer may run. The client would take silence for a failure.
async fn begin(
    connection: &mut Connection,
    server: &ImageServer,
) -> io::Result<OwnedSemaphorePermit> {
    let mut place = pin!(Arc::clone(&server.transfers).acquire_owned());
    loop {
        if let Ok(place) = timeout(BEAT_EVERY, &mut place).await {
            return place.map_err(io::Error::other);
        }
        let wait = format!("{WAIT}\n");
        timeout(STALL_MAX, connection.writer.write(wait.as_bytes())).await??;
    }
}

fn send(to: &mut BlockingConnection, path: &Path, early: bool, digest: &str) -> io::Result<()> {
    if early {
        growing::started(path, BEAT_EVERY, || {
            to.write_all(format!("{WAIT}\n").as_bytes()).and_then(|()| to.flush())
        })?;
    }
    match fs::metadata(path) {
        Err(error) => {
            to.write_all(format!("ERR cannot read image {}: {error}\n", path.display()).as_bytes())
        }
        Ok(data) if data.is_dir() => {
            to.write_all(format!("TREE {digest}\n").as_bytes())?;
            if early { growing::send(path, to) } else { tree::send(path, to) }.map(drop)
        }
        Ok(_) => {
            let mut file = File::open(path)?;
            let length = file.metadata()?.len();
            to.write_all(format!("OK {length} {digest}\n").as_bytes())?;
            copy(&mut file, to, length, 0).map(drop)
        }
    }
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

/// Waits for the address of a node.
///
/// # Errors
/// It does not come within `ADDRESS_WAIT`.
pub async fn address_of(
    node: &NodeName,
    mut known: watch::Receiver<Addresses>,
) -> Result<String, String> {
    let wait = known.wait_for(|known| known.contains_key(node));
    let known = tokio::time::timeout(ADDRESS_WAIT, wait).await.ok().and_then(Result::ok);
    let address = known.and_then(|known| known.get(node).cloned());
    address.ok_or_else(|| format!("node {node} has no connection"))
}

/// Fetches and verifies images; returns their bytes.
pub async fn take(
    spec: &NlaSpec,
    server: String,
    set: &SetId,
    ranks: &Ranks,
) -> Result<u64, String> {
    let time = Stopwatch::start();
    let (whole, which, of) = (spec.clone(), set.clone(), ranks.clone());
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
    let purpose = Purpose::Image(words.to_owned());
    let runtime = Handle::current();
    let connection = runtime.block_on(dial(from.server, from.secret, &purpose))?;
    let mut reader = BlockingConnection::new(connection, runtime);
    let mut line = read_line(&mut reader)?;
    while line == WAIT {
        line = read_line(&mut reader)?;
    }
    let part = place.with_extension("part");
    tree::remove(&part)?;
    let words: Vec<&str> = line.splitn(3, ' ').collect();
    let (result, digest) = match words[..] {
        ["TREE", digest] => {
            let sum = tree::receive(&mut reader, &part, outlives);
            (sum.map(|sum| (sum.bytes, sum.crc)), digest)
        }
        ["OK", length, digest] if let Ok(length) = length.parse() => {
            let crc = receive(&mut reader, &part, length, outlives);
            (crc.map(|crc| (length, crc)), digest)
        }
        _ => return Err(io::Error::other(line)),
    };
    match result.and_then(|sum| check(&part, digest).map(|()| sum)) {
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

/// Checks a received image against the digest in the manifest of its set, if any.
fn check(image: &Path, digest: &str) -> io::Result<()> {
    if digest.is_empty() || images::digest(image)? == digest {
        return Ok(());
    }
    Err(io::Error::other("it was changed since its set was made (SHA-256): it is not restored"))
}

fn receive(
    reader: &mut impl BufRead,
    part: &Path,
    length: u64,
    outlives: Outlives,
) -> io::Result<u32> {
    let mut file = File::create(part)?;
    let crc = copy(reader, &mut file, length, 0)?;
    outlives.sync(&file)?;
    Ok(crc)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::connection;
    use ftb_launcher_core::names::Episode;
    use ftb_launcher_pods::images::{newest_migration, sum};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    struct Served {
        address: String,
        from: tempfile::TempDir,
        to: tempfile::TempDir,
    }

    async fn served() -> Served {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let address = serve(ImageServer::new(from.path().to_owned())).await;
        Served { address, from, to }
    }

    /// Returns the address of the server.
    async fn serve(images: ImageServer) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (tree, _) = mpsc::channel(1);
        tokio::spawn(connection::serve(listener, Secret::new("key"), images, tree));
        address
    }

    async fn get(server: &str, to: &Path, key: &str, rank: u32) -> Result<Vec<(u64, u32)>, String> {
        let (server, root) = (server.to_owned(), to.to_owned());
        let secret = Secret::new(key);
        let set = SetId::of_migration(Episode(3));
        let ranks = Ranks::from_iter([rank]);
        let task = move || {
            let from = Origin { server: &server, secret: &secret, early: false };
            fetch(from, &root, &set, &ranks, Outlives::Host)
        };
        tokio::task::spawn_blocking(task).await.unwrap()
    }

    #[tokio::test]
    async fn an_image_arrives_whole_and_only_with_the_key() {
        let served = served().await;
        let set = SetId::of_migration(Episode(3));
        let source = path(served.from.path(), &set, 1);
        fs::create_dir_all(source.parent().unwrap()).unwrap();
        let bytes: Vec<u8> = (0..3_000_001_u32).map(|n| (n % 251) as u8).collect();
        fs::write(&source, &bytes).unwrap();
        let to = served.to.path();
        let wrong = get(&served.address, to, "yek", 1).await.unwrap_err();
        assert!(wrong.contains("wrong key"), "{wrong}");
        let got = get(&served.address, to, "key", 1).await.unwrap();
        assert_eq!(got, [(bytes.len() as u64, crc32c::crc32c(&bytes))]);
        assert!(fs::read(path(to, &set, 1)).unwrap() == bytes);
        assert_eq!(newest_migration(to, 1), Some(Episode(3)));
        assert_eq!(newest_migration(to, 2), None);
        let missing = get(&served.address, to, "key", 2).await.unwrap_err();
        assert!(missing.contains("rank 2"), "{missing}");
    }

    #[tokio::test]
    async fn an_image_that_is_a_directory_arrives_whole() {
        let served = served().await;
        let set = SetId::of_migration(Episode(3));
        let source = path(served.from.path(), &set, 0);
        fs::create_dir_all(source.join("deep/er")).unwrap();
        for (name, bytes) in [("core", &b"one"[..]), ("deep/er/pages", &[7; 300_000]), ("nil", b"")]
        {
            fs::write(source.join(name), bytes).unwrap();
        }
        let to = served.to.path();
        let first = get(&served.address, to, "key", 0).await.unwrap();
        assert_eq!(first, [sum(&source).unwrap()]);
        let there = path(to, &set, 0);
        assert_eq!(sum(&there).unwrap(), first[0]);
        assert_eq!(fs::read(there.join("deep/er/pages")).unwrap(), [7; 300_000]);
        // A second fetch replaces the image.
        fs::remove_file(source.join("nil")).unwrap();
        let second = get(&served.address, to, "key", 0).await.unwrap();
        assert!(second != first && !there.join("nil").exists());
    }

    /// A restart of a job on many nodes copies from one server.
    #[tokio::test]
    async fn a_client_of_a_busy_server_learns_that_it_waits() {
        let dir = tempfile::tempdir().unwrap();
        let images = ImageServer::new(dir.path().to_owned());
        let others = u32::try_from(TRANSFERS_MAX).unwrap();
        let others = images.transfers.clone().acquire_many_owned(others).await.unwrap();
        let server = serve(images).await;
        let purpose = Purpose::Image("GET set-1 0".to_owned());
        let mut client = dial(&server, &Secret::new("key"), &purpose).await.unwrap();
        for _ in 0..3 {
            let line = timeout(STALL_MAX, client.reader.read()).await.unwrap().unwrap();
            assert_eq!(line, b"WAIT\n");
        }
        drop(others);
        let mut line = client.reader.read().await.unwrap();
        while line == b"WAIT\n" {
            line = client.reader.read().await.unwrap();
        }
        assert!(line.starts_with(b"ERR cannot read image"));
    }

    #[test]
    fn an_image_that_ends_early_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut short: &[u8] = b"ab";
        assert!(receive(&mut short, &dir.path().join("x.part"), 4, Outlives::Host).is_err());
    }

    #[test]
    fn only_a_proper_request_names_a_file() {
        let server = ImageServer::new("/images".into());
        for bad in ["", "GET", "GET ../x 1", "GET set-1 x", "GET set-1 1 2", "PUT set-1 1"] {
            assert!(server.wanted(bad).is_err(), "{bad}");
        }
        let there = PathBuf::from("/images/set-1/rank-7.img");
        assert_eq!(server.wanted("GET set-1 7"), Ok((false, there.clone())));
        assert_eq!(server.wanted("AWAIT set-1 7"), Ok((true, there)));
    }
}
