//! Images in the memory of this node: sealed memfds of its ranks, the image of its pod
//! ([`ftb_launcher_pods::memory`]), parity and copies for its group. What they mean is in
//! [`ftb_launcher_core::memory`]; how other nodes get them in [`peers`].

pub mod peers;

use ftb_job::memory::{create, is_sealed, seal};
use ftb_job::rank_socket::RankPacket;
use ftb_launcher_core::memory::Shares;
use ftb_launcher_core::memory::shares::Stored;
use ftb_launcher_core::names::{NodeName, SetId};
use ftb_launcher_pods::images::packed::{self, Packed};
use ftb_launcher_pods::images::{self, Outlives, tree};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Without `--memory-bytes` a node may hold this part of its available memory.
const DEFAULT_PART: u64 = 4;
/// Read at once from an image in memory, in bytes.
const READ_BYTES: usize = 256 * 1024;

/// What a node needs to know of checkpoints in memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemorySpec {
    /// Most bytes for images, copies and parity.
    pub bytes: Option<u64>,
    /// Ranks wait for the first checkpoint before their first step.
    pub first: bool,
}

impl MemorySpec {
    /// The budget of a node with this much available memory.
    ///
    /// # Errors
    /// The budget is larger than that.
    pub fn budget(&self, available: u64) -> Result<u64, String> {
        match self.bytes {
            None => Ok(available / DEFAULT_PART),
            Some(bytes) if bytes <= available => Ok(bytes),
            Some(bytes) => Err(format!(
                "--memory-bytes {bytes}: the node has {available} bytes of available memory"
            )),
        }
    }
}

/// Bytes of available memory of this host.
///
/// # Errors
/// The system does not say.
pub fn available() -> Result<u64, String> {
    let text = std::fs::read_to_string("/proc/meminfo").map_err(|error| error.to_string())?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| "/proc/meminfo has no MemAvailable".to_owned())
}

/// The bytes of an image, or parity.
#[derive(Debug)]
pub enum Content {
    Memory(File),
    /// The files of a pod's image; they are in memory too.
    Pod(Packed),
}

impl Content {
    fn read_exact_at(&self, to: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::Memory(file) => file.read_exact_at(to, offset),
            Self::Pod(packed) => packed.read_exact_at(to, offset),
        }
    }
}

/// An image or parity that a node holds.
pub type Image = Stored<Arc<Content>>;

/// Reads an image from its beginning.
struct ImageReader(Image, u64);

impl Read for ImageReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.0.bytes - self.1).unwrap_or(usize::MAX);
        let length = left.min(to.len());
        self.0.data.read_exact_at(&mut to[..length], self.1)?;
        self.1 += length as u64;
        Ok(length)
    }
}

/// The images that this node holds.
#[derive(Clone, Debug)]
pub struct NodeMemory {
    node: NodeName,
    shares: Arc<Mutex<Shares<Arc<Content>>>>,
    /// Where the images of pods are, by set.
    root: Option<PathBuf>,
    /// Nothing stops the unpacking for a restore that is replaced: the next one waits for it.
    unpacking: Arc<Mutex<()>>,
}

impl NodeMemory {
    pub fn new(node: NodeName, budget: u64) -> Self {
        let shares = Arc::new(Mutex::new(Shares::new(budget)));
        Self { node, shares, root: None, unpacking: Arc::default() }
    }

    /// With images of pods below that directory, which is in memory and belongs to it alone.
    #[must_use]
    pub fn with_pods(self, root: PathBuf) -> Self {
        Self { root: Some(root), ..self }
    }

    fn shares(&self) -> MutexGuard<'_, Shares<Arc<Content>>> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that still fit.
    pub fn left(&self) -> u64 {
        self.shares().left()
    }

    /// Frees a set.
    pub fn drop_set(&self, set: &SetId) {
        self.shares().drop_set(set);
        if let Some(root) = &self.root {
            images::drop_set(root, set);
        }
    }

    /// Frees all sets but these.
    fn keep_only(&self, keep: &[&SetId]) {
        self.shares().keep_only(keep);
        let Some(root) = &self.root else { return };
        for entry in fs::read_dir(root).into_iter().flatten().filter_map(Result::ok) {
            let set = entry.file_name().to_str().and_then(|name| SetId::new(name).ok());
            if let Some(set) = set.filter(|set| !keep.contains(&set)) {
                images::drop_set(root, &set);
            }
        }
    }

    /// Keeps the images of a pod that was saved below the directory for pods.
    ///
    /// # Errors
    /// They do not fit, or are not what was reported. Nothing of the set is left then.
    pub fn keep_pod(&self, set: &SetId, sizes: &[(u32, u64)]) -> Result<(), String> {
        let root = self.root.as_deref().ok_or("this node holds no pods in memory")?;
        let keep = |(rank, bytes): &(u32, u64)| {
            let image =
                saved(&images::path(root, set, *rank)).map_err(|error| error.to_string())?;
            if image.bytes != *bytes {
                return Err(format!("the image of rank {rank} has {} bytes", image.bytes));
            }
            self.shares().put(set, Some(&self.node), *rank, image)
        };
        let kept = sizes.iter().try_for_each(keep);
        if kept.is_err() {
            self.drop_set(set);
        }
        kept
    }

    /// Brings the image of a rank below the directory for pods, if it is not there; blocking.
    ///
    /// # Errors
    /// There is none, or it is no image of a pod.
    pub fn unpack(&self, set: &SetId, rank: u32) -> Result<(), String> {
        let root = self.root.as_deref().ok_or("this node holds no pods in memory")?;
        let place = images::path(root, set, rank);
        let _alone = self.unpacking.lock().unwrap_or_else(PoisonError::into_inner);
        if place.exists() {
            return Ok(());
        }
        let image = self.image(set, rank)?;
        // For a moment it is there twice, even beyond the budget: the job would end otherwise.
        let data = Arc::new(unpacked(image, &place).map_err(|error| {
            let _ = tree::remove(&place.with_extension("part"));
            format!("the image of rank {rank} of set {set} cannot be unpacked: {error}")
        })?);
        self.shares().exchange(set, rank, &data);
        Ok(())
    }

    /// The image of a rank.
    ///
    /// # Errors
    /// There is none.
    pub fn image(&self, set: &SetId, rank: u32) -> Result<Image, String> {
        let image = self.shares().image(set, rank).cloned();
        image.ok_or_else(|| format!("no image of rank {rank} of set {set} is in memory here"))
    }

    /// Answers a rank, with the image that it asks for.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn answer(
        &self,
        rank: u32,
        request: &RankPacket,
        memory: Option<OwnedFd>,
    ) -> Result<Option<Arc<Content>>, String> {
        let memory_set = |set: &str| match SetId::new(set) {
            Ok(set) if set.is_in_memory() => Ok(set),
            Ok(set) => Err(format!("{set} is no set in memory")),
            Err(error) => Err(error.to_string()),
        };
        match (request, memory) {
            (RankPacket::Room { set, bytes }, None) => {
                self.shares().reserve(&memory_set(set)?, rank, *bytes).map(|()| None)
            }
            (RankPacket::Put { set }, Some(memory)) => {
                let (set, image) = (memory_set(set)?, sealed(File::from(memory)));
                // No other rank gets the room in between.
                let mut shares = self.shares();
                shares.release(&set, rank);
                shares.put(&set, Some(&self.node), rank, image?).map(|()| None)
            }
            (RankPacket::Get { set, rank }, None) => {
                Ok(Some(self.image(&memory_set(set)?, *rank)?.data))
            }
            _ => Err("only Put has memory with it".to_owned()),
        }
    }

    /// The share of a node, if it has these images of that length.
    fn share(&self, set: &SetId, owner: &NodeName) -> Share {
        let images = self.shares().share(set, owner);
        Share(images.into_iter().map(|(_, image)| image).collect())
    }
}

/// The image that a rank has written.
fn sealed(image: File) -> Result<Image, String> {
    if !is_sealed(&image) {
        return Err("the image is not sealed memory".to_owned());
    }
    let bytes = image.metadata().map_err(|error| error.to_string())?.len();
    Ok(Stored { bytes, data: Arc::new(Content::Memory(image)) })
}

/// An image as a pod was saved: a directory, or a file that refers to one.
fn saved(path: &Path) -> io::Result<Image> {
    if path.is_dir() {
        let packed = Packed::of(path)?;
        return Ok(Stored { bytes: packed.bytes(), data: Arc::new(Content::Pod(packed)) });
    }
    let mut copy = create("image")?;
    let bytes = io::copy(&mut File::open(path)?, &mut copy)?;
    seal(&copy)?;
    Ok(Stored { bytes, data: Arc::new(Content::Memory(copy)) })
}

/// Writes an image as the directory that it was.
fn unpacked(image: Image, place: &Path) -> io::Result<Content> {
    let (part, bytes) = (place.with_extension("part"), image.bytes);
    tree::remove(&part)?;
    fs::create_dir_all(part.parent().unwrap_or(&part))?;
    let mut from = BufReader::with_capacity(READ_BYTES, ImageReader(image, 0));
    let received = tree::receive(&mut from, &part, Outlives::Nothing)?;
    packed::check(&mut from, &received)?;
    fs::rename(&part, place)?;
    let packed = Packed::of(place)?;
    if packed.bytes() != bytes {
        return Err(io::Error::other("it has another length"));
    }
    Ok(Content::Pod(packed))
}

/// The images of a share, one after the other.
struct Share(Vec<Image>);

impl Share {
    /// Fills `to` from this offset; zeros follow the end.
    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<()> {
        to.fill(0);
        each_part(self.0.iter().map(|image| image.bytes), to.len(), offset, |part| {
            let Part { index, at, from, length } = part;
            self.0[index].data.read_exact_at(&mut to[from..from + length], at)
        })
    }
}

/// A piece of a share within one image.
struct Part {
    /// Which image.
    index: usize,
    /// Where in the image.
    at: u64,
    /// Where in the piece.
    from: usize,
    length: usize,
}

/// Calls `each` for the parts of a piece of a share with images of these sizes.
fn each_part(
    sizes: impl Iterator<Item = u64>,
    length: usize,
    offset: u64,
    mut each: impl FnMut(Part) -> io::Result<()>,
) -> io::Result<()> {
    let end = offset.saturating_add(length as u64);
    let mut begin = 0;
    for (index, bytes) in sizes.enumerate() {
        let (first, last) = (offset.max(begin), end.min(begin + bytes));
        if first < last {
            // Within the piece, whose length is a usize.
            let (from, length) = ((first - offset) as usize, (last - first) as usize);
            each(Part { index, at: first - begin, from, length })?;
        }
        begin += bytes;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ftb_launcher_core::names::Episode;
    use std::io::Write as _;

    fn memory(budget: u64) -> NodeMemory {
        NodeMemory::new(NodeName::new("node01").unwrap(), budget)
    }

    fn room(bytes: u64) -> RankPacket {
        RankPacket::Room { set: "mem-000001".to_owned(), bytes }
    }

    fn put(set: &str) -> RankPacket {
        RankPacket::Put { set: set.to_owned() }
    }

    fn get(rank: u32) -> RankPacket {
        RankPacket::Get { set: "mem-000001".to_owned(), rank }
    }

    fn image(bytes: &[u8], sealed: bool) -> OwnedFd {
        let mut file = create("image").unwrap();
        file.write_all(bytes).unwrap();
        if sealed {
            seal(&file).unwrap();
        }
        file.into()
    }

    #[test]
    fn no_other_takes_the_room_that_is_kept_for_an_image_while_it_is_put() {
        let (memory, all) = (memory(10), image(b"ten bytes!", true));
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let other = SetId::of_memory(Episode(9));
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    if memory.shares().reserve(&other, 1, 1).is_ok() {
                        memory.shares().release(&other, 1);
                    }
                }
            });
            let refused = (0..5_000).find_map(|_| {
                while memory.answer(0, &room(10), None).is_err() {}
                let copy = Some(all.try_clone().unwrap());
                let refused = memory.answer(0, &put("mem-000001"), copy).err();
                *memory.shares() = Shares::new(10);
                refused
            });
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(refused, None);
        });
    }

    #[test]
    fn only_sealed_images_of_memory_sets_within_the_budget_are_taken() {
        let memory = memory(10);
        let sent = |packet: &RankPacket, bytes: &[u8], sealed| {
            memory.answer(3, packet, Some(image(bytes, sealed))).map(drop)
        };
        for (packet, bytes, sealed, why) in [
            (put("mem-000001"), &b"open"[..], false, "not sealed"),
            (put("set-000001"), b"disk", true, "no set in memory"),
            (put("../x"), b"climb", true, "set id"),
            (put("mem-000001"), b"much too large", true, "14 bytes are needed, 10 are allowed"),
            (get(3), b"", true, "only Put"),
        ] {
            let error = sent(&packet, bytes, sealed).unwrap_err();
            assert!(error.contains(why), "{packet:?}: {error}");
        }
        let answer = |packet: &RankPacket| memory.answer(3, packet, None);
        let error = answer(&room(14)).unwrap_err();
        assert!(error.contains("14 bytes are needed, 10 are allowed"), "{error}");
        assert!(answer(&put("mem-000001")).unwrap_err().contains("only Put"));
        answer(&room(9)).unwrap();
        assert_eq!(memory.left(), 1, "it is kept for this rank");
        sent(&put("mem-000001"), b"ten bytes!", true).unwrap();
        let got = answer(&get(3)).unwrap().unwrap();
        assert!(matches!(&*got, Content::Memory(got) if got.metadata().unwrap().len() == 10));
        let of_other = answer(&get(4)).unwrap_err();
        assert!(of_other.contains("rank 4"), "{of_other}");
        assert!(memory.answer(4, &get(3), None).unwrap().is_some(), "by a successor");
        memory.drop_set(&SetId::of_memory(Episode(1)));
        assert!(memory.answer(3, &get(3), None).is_err());
    }

    #[test]
    fn a_share_is_its_images_in_the_order_of_the_ranks_and_then_zeros() {
        let memory = memory(100);
        for (rank, bytes) in [(2, &b"abc"[..]), (5, b""), (9, b"defgh")] {
            memory.answer(rank, &put("mem-000001"), Some(image(bytes, true))).unwrap();
        }
        let share = memory.share(&SetId::of_memory(Episode(1)), &memory.node);
        for offset in 0..12 {
            let mut piece = [1; 5];
            share.read_at(&mut piece, offset).unwrap();
            let whole = b"abcdefgh\0\0\0\0\0\0\0\0\0";
            assert_eq!(piece[..], whole[offset as usize..offset as usize + 5]);
        }
    }

    #[test]
    fn the_image_of_a_pod_comes_back_from_its_bytes_on_another_node() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let set = SetId::of_memory(Episode(1));
        let source = images::path(here.path(), &set, 4);
        fs::create_dir_all(source.join("deep")).unwrap();
        fs::write(source.join("deep/pages"), [7; 300_000]).unwrap();
        fs::write(images::path(here.path(), &set, 5), "in the image of rank 4\n").unwrap();
        let first = memory(400_000).with_pods(here.path().to_owned());
        let bytes = packed::bytes(&source).unwrap();
        let wrong = first.keep_pod(&set, &[(4, bytes + 1)]).unwrap_err();
        assert!(wrong.contains("rank 4 has"), "{wrong}");
        assert!(!source.exists(), "nothing of a refused set is left");

        let set = SetId::of_memory(Episode(2));
        let source = images::path(here.path(), &set, 4);
        fs::create_dir_all(source.join("deep")).unwrap();
        fs::write(source.join("deep/pages"), [7; 300_000]).unwrap();
        fs::write(images::path(here.path(), &set, 5), "in the image of rank 4\n").unwrap();
        first.keep_pod(&set, &[(4, bytes), (5, 23)]).unwrap();
        first.unpack(&set, 4).unwrap();
        let mut stream = vec![0; bytes as usize];
        first.share(&set, &first.node).read_at(&mut stream, 0).unwrap();
        let other = memory(bytes).with_pods(there.path().to_owned());
        let put = |rank, stream: &[u8]| {
            let data = Arc::new(Content::Memory(image(stream, true).into()));
            let stored = Stored { bytes: stream.len() as u64, data };
            other.shares().put(&set, None, rank, stored).unwrap();
        };
        let place = |rank| images::path(there.path(), &set, rank);
        put(4, b"5 deep/pages\nshort");
        assert!(other.unpack(&set, 4).unwrap_err().contains("cannot be unpacked"));
        assert!(!place(4).exists() && !place(4).with_extension("part").exists());
        // As wrong parity would leave it: only its checksum says so.
        let mut wrong = stream.clone();
        wrong[200_000] ^= 1;
        put(4, &wrong);
        assert!(other.unpack(&set, 4).unwrap_err().contains("its checksum is"));
        assert!(!place(4).exists() && !place(4).with_extension("part").exists());
        put(4, &stream);
        other.unpack(&set, 4).unwrap();
        assert_eq!(fs::read(place(4).join("deep/pages")).unwrap(), [7; 300_000]);
        assert!(matches!(&*other.image(&set, 4).unwrap().data, Content::Pod(_)));
        other.keep_only(&[]);
        assert!(!place(4).exists() && other.left() == bytes);
        // A restore is replaced while its image is unpacked.
        for _ in 0..20 {
            let there = tempfile::tempdir().unwrap();
            let other = memory(bytes).with_pods(there.path().to_owned());
            let data = Arc::new(Content::Memory(image(&stream, true).into()));
            other.shares().put(&set, None, 4, Stored { bytes, data }).unwrap();
            let both = std::sync::Barrier::new(2);
            let unpack = || {
                both.wait();
                other.unpack(&set, 4).unwrap();
            };
            std::thread::scope(|scope| {
                scope.spawn(unpack);
                unpack();
            });
            let place = images::path(there.path(), &set, 4);
            assert_eq!(fs::read(place.join("deep/pages")).unwrap(), [7; 300_000]);
        }
    }

    #[test]
    fn a_budget_above_the_available_memory_is_refused() {
        let spec = |bytes| MemorySpec { bytes, first: true };
        assert_eq!(spec(None).budget(400), Ok(100));
        assert_eq!(spec(Some(400)).budget(400), Ok(400));
        assert!(spec(Some(401)).budget(400).unwrap_err().contains("401"));
        assert!(available().unwrap() > 0);
    }
}
