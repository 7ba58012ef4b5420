//! Fetches images from other processes of the job ([`crate::image_server`]) and writes them to a
//! temporary name, which it renames when they are complete and verified.
//!
//! Each image has a connection of its own ([`super::connection`]) from its source to its target.
//! Over the launch tree it would pass through the hosts in between, and through the JL.

use crate::connection::BlockingConnection;
use crate::image_request::{ImageAnswer, ImageRequest};
use crate::spec::NlaSpec;
use ftb_launcher_core::link::cipher::Secret;
use ftb_launcher_core::names::{Ranks, SetId};
use ftb_launcher_pods::images::{self, Outlives, copy, path, sync_dir, tree};
use ftb_launcher_pods::rank_hooks;
use ftb_launcher_pods::timeline::Stopwatch;
use std::fs::{self, File};
use std::io::{self, BufRead};
use std::path::Path;
use tokio::runtime::Handle;

/// The source of an image.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    pub server: &'a str,
    pub secret: &'a Secret,
    /// Wait for an image that may not have begun.
    pub early: bool,
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
    let image = |rank| path(root, set, rank);
    let one = |rank| {
        let request = match (set.clone(), from.early) {
            (set, true) => ImageRequest::Await { set, rank },
            (set, false) => ImageRequest::Get { set, rank },
        };
        fetch_one(from, request, &image(rank), outlives).map_err(|error| {
            // The reason becomes part of an event that every user may read, so it must not contain
            // the address.
            tracing::warn!(server = from.server, rank, %set, %error, "an image cannot be fetched");
            format!("image of rank {rank} of set {set}: {error}")
        })
    };
    ranks.iter().map(one).collect()
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
    rank_hooks::verify(&spec.site(), set, ranks).await?;
    Ok(fetched.iter().map(|(bytes, _)| bytes).sum())
}

fn fetch_one(
    from: Origin<'_>,
    request: ImageRequest,
    place: &Path,
    outlives: Outlives,
) -> io::Result<(u64, u32)> {
    let (answer, mut reader) =
        BlockingConnection::ask(from.server, from.secret, &Handle::current(), request)?;
    let part = place.with_extension("part");
    tree::remove(&part)?;
    let (result, digest) = match answer {
        ImageAnswer::Tree { digest } => {
            let sum = tree::receive(&mut reader, &part, outlives);
            (sum.map(|sum| (sum.bytes, sum.crc)), digest)
        }
        ImageAnswer::File { bytes, digest } => {
            let crc = receive(&mut reader, &part, bytes, outlives);
            (crc.map(|crc| (bytes, crc)), digest)
        }
        other => return Err(io::Error::other(format!("no image: {other:?}"))),
    };
    match result.and_then(|sum| check(&part, &digest).map(|()| sum)) {
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
    use crate::image_server::ImageServer;
    use crate::listener;
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
        tokio::spawn(listener::serve(listener, Secret::new("key"), images, tree));
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

    #[test]
    fn an_image_that_ends_early_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut short: &[u8] = b"ab";
        assert!(receive(&mut short, &dir.path().join("x.part"), 4, Outlives::Host).is_err());
    }
}
