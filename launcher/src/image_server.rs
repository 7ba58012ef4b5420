//! Serves `<root>/<set>/rank-<r>.img` to processes of the job, and images in memory
//! ([`crate::memory::peers`]). An image is a file or a directory
//! ([`ftb_launcher_pods::images::tree`]) and exists complete or not at all. The client is
//! [`crate::transfer`]. Both ends copy with blocking streams on threads.

use crate::connection::{BlockingConnection, Connection, STALL_MAX};
use crate::image_request::{Fold, ImageAnswer, ImageRequest};
use crate::jobdir::{self, JobDir, JobFile};
use crate::memory::peers::{self, Peers};
use crate::memory::{Image, NodeMemory};
use crate::sets::SetKey;
use core::time::Duration;
use ftb_launcher_core::link::cipher::Secret;
use ftb_launcher_core::names::{JobId, SetId};
use ftb_launcher_core::packet::PacketHead as _;
use ftb_launcher_pods::images::{self, copy, growing, path, tree};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Most running transfers of a server; others wait and get [`ImageAnswer::Wait`].
pub const TRANSFERS_MAX: usize = 16;
/// Most combined cells that a server sends at once: those of two large groups. A further one is
/// refused, because members of a path that wait for each other would wait for ever.
pub const FOLDS_MAX: usize = 128;
/// Interval of [`ImageAnswer::Wait`].
const BEAT_EVERY: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 10_000 });

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
    fn in_memory(&self, set: &SetId, rank: u32) -> Option<Result<Image, String>> {
        let none = || Err("this node holds nothing in memory".to_owned());
        let image = |(memory, _): &(NodeMemory, Secret)| memory.image(set, rank);
        set.is_in_memory().then(|| self.memory.as_ref().map_or_else(none, image))
    }
}

/// Answers a request.
///
/// # Errors
/// The connection breaks, or the image cannot be read.
pub async fn answer(
    mut connection: Connection,
    request: ImageRequest,
    server: &ImageServer,
) -> io::Result<()> {
    let (set, rank, early) = match request {
        ImageRequest::Fold(fold) => return answer_fold(connection, fold, server).await,
        ImageRequest::Get { set, rank } => (set, rank, false),
        ImageRequest::Await { set, rank } => (set, rank, true),
    };
    let _transfer = begin(&mut connection, server).await?;
    let in_memory = if early { None } else { server.in_memory(&set, rank) };
    let place = path(&server.root, &set, rank);
    let digest = if in_memory.is_some() { Ok(String::new()) } else { server.digest(&place) };
    let mut to = BlockingConnection::new(connection, Handle::current());
    let task = move || {
        match (in_memory, digest) {
            (Some(Ok(image)), _) => peers::send(&image, &mut to)?,
            (None, Ok(digest)) => send(&mut to, &place, early, digest)?,
            (Some(Err(reason)), _) | (None, Err(reason)) => {
                ImageAnswer::Refused(reason).send(&mut to)?;
            }
        }
        to.flush()
    };
    tokio::task::spawn_blocking(task).await?
}

/// Sends a cell that is combined along a path.
async fn answer_fold(
    mut connection: Connection,
    fold: Fold,
    server: &ImageServer,
) -> io::Result<()> {
    let place = server.folds.clone().try_acquire_owned();
    let (Some((memory, secret)), Ok(place)) = (server.memory.clone(), place) else {
        let refused = ImageAnswer::Refused("this node combines no further cells".to_owned());
        return connection.writer.write(&refused.encode()).await;
    };
    let runtime = Handle::current();
    let mut to = BlockingConnection::new(connection, runtime.clone());
    let task = move || {
        let _place = place;
        peers::answer(&memory, &Peers { secret, runtime }, &fold, &mut to)
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
        let wait = ImageAnswer::Wait.encode();
        timeout(STALL_MAX, connection.writer.write(&wait)).await??;
    }
}

fn send(to: &mut BlockingConnection, path: &Path, early: bool, digest: String) -> io::Result<()> {
    if early {
        growing::started(path, BEAT_EVERY, || {
            ImageAnswer::Wait.send(to).and_then(|()| to.flush())
        })?;
    }
    match fs::metadata(path) {
        Err(error) => {
            let reason = format!("cannot read image {}: {error}", path.display());
            ImageAnswer::Refused(reason).send(to)
        }
        Ok(data) if data.is_dir() => {
            ImageAnswer::Tree { digest }.send(to)?;
            if early { growing::send(path, to) } else { tree::send(path, to) }.map(drop)
        }
        Ok(_) => {
            let mut file = File::open(path)?;
            let bytes = file.metadata()?.len();
            ImageAnswer::File { bytes, digest }.send(to)?;
            copy(&mut file, to, bytes, 0).map(drop)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::connection::{Purpose, dial};
    use crate::listener;
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    /// A restart of a job on many nodes copies from one server.
    #[tokio::test]
    async fn a_client_of_a_busy_server_learns_that_it_waits() {
        let dir = tempfile::tempdir().unwrap();
        let images = ImageServer::new(dir.path().to_owned());
        let others = u32::try_from(TRANSFERS_MAX).unwrap();
        let others = images.transfers.clone().acquire_many_owned(others).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap().to_string();
        let (tree, _) = mpsc::channel(1);
        tokio::spawn(listener::serve(listener, Secret::new("key"), images, tree));
        let set = SetId::new("set-1").unwrap();
        let purpose = Purpose::Image(ImageRequest::Get { set, rank: 0 });
        let mut client = dial(&server, &Secret::new("key"), &purpose).await.unwrap();
        let wait = ImageAnswer::Wait.encode();
        for _ in 0..3 {
            let line = timeout(STALL_MAX, client.reader.read()).await.unwrap().unwrap();
            assert_eq!(line, wait);
        }
        drop(others);
        let mut line = client.reader.read().await.unwrap();
        while line == wait {
            line = client.reader.read().await.unwrap();
        }
        let answer = ImageAnswer::decode(line.into()).unwrap();
        let ImageAnswer::Refused(reason) = answer else { panic!("{answer:?}") };
        assert!(reason.starts_with("cannot read image"), "{reason}");
    }
}
