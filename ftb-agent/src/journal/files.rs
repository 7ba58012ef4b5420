//! The journal's store on disk: a file for each segment, which only grows, and one for the records.
//!
//! ```text
//! records      crc32c u32 | (key length u8 | key | value length u32 | value)*; replaced as a whole
//! records.copy the same bytes: replaced first, read where the records are damaged or missing
//! log-NUMBER   a segment: (crc32c u32 of the next two | length u32 | key u64 | chunk)*
//! ```
//!
//! Numbers are little-endian. A chunk is written once, at the end of its file, and is there when
//! the `write` has returned: the kernel has it, whatever becomes of the process. Records are few
//! and rare and are synced before they take the place of the old ones, after every chunk that was
//! written before them. Responsible for: files, what is found of them after a crash. Not
//! responsible for: what a chunk or a record means, and whether a chunk is good: it carries
//! checksums of its own ([`super::record`]). The lock lies beside the store, and so does the record
//! of what was acknowledged.

use super::segment::{CHUNK_BYTES_MAX, Places, frame, read_chunks, write_both};
use crate::world::{Change, Storage, Store, StoreError};
use bytes::{Buf as _, BufMut as _};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::path::{Path, PathBuf};

/// Where the store lies in the journal's folder.
const STORE: &str = "store";
/// The record of what was acknowledged: beside the store, to be read when that is damaged.
const ACKNOWLEDGED: &str = "acknowledged";
/// Stores that were set aside; the oldest beyond it is removed.
const SET_ASIDE_MAX: usize = 2;
/// What set-aside stores are called, with the time behind it.
const SET_ASIDE: &str = "store.damaged-";
/// Longest record of what was acknowledged, in bytes.
const ACKNOWLEDGED_BYTES_MAX: usize = 64;

/// Where Linux says in which boot of the machine this is, as a UUID;
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// and where the agent's unit says it, which hides that file.
const BOOT_VARIABLE: &str = "FTB_BOOT_ID";

const LOCK: &str = "lock";
const RECORDS: &str = "records";
/// Their copy.
const RECORDS_COPY: &str = "records.copy";
/// The records that are to take the place of the others.
const RECORDS_NEW: &str = "records.new";
const SEGMENT: &str = "log-";
/// In a store of format 1 only, which was a database of fjall.
const FORMAT_1: &str = "keyspaces";

/// Stores on the disks of this host.
pub struct DiskStorage;

impl Storage for DiskStorage {
    fn exists(&self, folder: &Path) -> bool {
        // What cannot be looked at may be there: it is tried to be opened, and tried again. A
        // checkpoint without its store says that the store is gone.
        let has_checkpoint = std::fs::metadata(folder.join(ACKNOWLEDGED))
            .is_ok_and(|checkpoint| checkpoint.len() > 0);
        has_checkpoint || folder.join(STORE).try_exists().unwrap_or(true)
    }

    fn open(&self, folder: &Path) -> Result<Box<dyn Store>, StoreError> {
        let path = folder.join(STORE);
        create_folder(&path)?;
        if path.join(FORMAT_1).exists() {
            return Err(StoreError::Foreign(
                "it is in the format \"ftb journal 1\", which this version does not read: run the \
                 version that wrote it, or move it away"
                    .to_owned(),
            ));
        }
        let lock = lock(folder)?;
        let acknowledged = open_file(&folder.join(ACKNOWLEDGED))?;
        sync_folder(folder)?;
        let names = File::open(&path)?;
        let mut store = FileStore {
            folder: path,
            names,
            records: BTreeMap::new(),
            mended: None,
            segments: BTreeMap::new(),
            writing: None,
            unsynced: BTreeMap::new(),
            names_unsynced: false,
            acknowledged,
            _lock: lock,
        };
        store.read_records()?;
        // An earlier life may have ended before it synced what it wrote.
        store.unsynced = store.segments()?.into_iter().map(|segment| (segment, None)).collect();
        store.names_unsynced = true;
        Ok(Box::new(store))
    }

    fn set_aside(&self, folder: &Path, now_ns: u64) -> Result<PathBuf, StoreError> {
        let _lock = lock(folder)?;
        let mut old: Vec<PathBuf> = std::fs::read_dir(folder)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(SET_ASIDE))
            })
            .collect();
        old.sort();
        for path in old.iter().take(old.len().saturating_sub(SET_ASIDE_MAX - 1)) {
            std::fs::remove_dir_all(path)?;
        }
        let aside = folder.join(format!("{SET_ASIDE}{:020}", now_ns / 1_000_000_000));
        // What was acknowledged of it says nothing of the next.
        match std::fs::rename(folder.join(ACKNOWLEDGED), folder.join(STORE).join(ACKNOWLEDGED)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        std::fs::rename(folder.join(STORE), &aside)?;
        sync_folder(folder).map_err(StoreError::Unsynced)?;
        Ok(aside)
    }

    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        let there = folder.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
        let stat = nix::sys::statvfs::statvfs(there)?;
        // Their types differ between platforms.
        #[allow(clippy::useless_conversion)]
        let (blocks, size): (u64, u64) =
            (stat.blocks_available().into(), stat.fragment_size().into());
        Ok(blocks.saturating_mul(size))
    }

    fn is_blocking(&self) -> bool {
        true
    }
}

/// Takes the journal's lock: it lies beside the store, and stays when that is set aside.
fn lock(folder: &Path) -> Result<File, StoreError> {
    let lock = open_file(&folder.join(LOCK))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// Makes a folder and those above it; that they are there survives a power failure.
fn create_folder(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|path| !path.exists()).collect();
    std::fs::DirBuilder::new().recursive(true).mode(0o750).create(path)?;
    for parent in missing.into_iter().filter_map(Path::parent) {
        // The parent of a relative path of one name is the current folder.
        sync_folder(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?;
    }
    Ok(())
}

/// The names in a folder survive a power failure then.
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn open_file(path: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).read(true).write(true).open(path)
}

struct FileStore {
    folder: PathBuf,
    /// The folder, to be synced where a file has come or gone.
    names: File,
    records: BTreeMap<String, Vec<u8>>,
    /// What was wrong with the records, and was mended with their copy.
    mended: Option<String>,
    segments: BTreeMap<u64, Places>,
    /// The segment that was written to last.
    writing: Option<Writing>,
    /// Segments that have chunks that a power failure may take; with the file that they were
    /// written by, once others are written to: another one may not hear that it could not be
    /// written.
    unsynced: BTreeMap<u64, Option<File>>,
    names_unsynced: bool,
    acknowledged: File,
    /// Held as long as the store is open.
    _lock: File,
}

/// A segment that is written to.
struct Writing {
    segment: u64,
    file: File,
    /// Where the file ends, and the next chunk comes.
    at: u64,
}

fn damaged(what: impl Into<String>) -> StoreError {
    StoreError::Damaged(what.into())
}

fn segment_name(segment: u64) -> String {
    format!("{SEGMENT}{segment:020}")
}

/// Reads a UUID, with its hyphens or without; one of zeros is none.
fn parse_boot(text: &str) -> Option<u128> {
    let digits: String = text.trim().chars().filter(|letter| *letter != '-').collect();
    let is_uuid = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let boot = is_uuid.then(|| u128::from_str_radix(&digits, 16).ok())?;
    boot.filter(|boot| *boot != 0)
}

fn encode_records(records: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let mut out = vec![0; 4];
    for (key, value) in records {
        // Keys are constants of a few letters; a record has at most some MiB.
        out.put_u8(u8::try_from(key.len()).unwrap_or(u8::MAX));
        out.put_slice(key.as_bytes());
        out.put_u32_le(u32::try_from(value.len()).unwrap_or(u32::MAX));
        out.put_slice(value);
    }
    let crc = crc32c::crc32c(&out[4..]);
    (&mut out[..4]).put_u32_le(crc);
    out
}

/// `None`: it is not what was written.
fn decode_records(mut bytes: &[u8]) -> Option<BTreeMap<String, Vec<u8>>> {
    let crc = bytes.try_get_u32_le().ok()?;
    if crc32c::crc32c(bytes) != crc {
        return None;
    }
    let mut records = BTreeMap::new();
    while bytes.has_remaining() {
        let key = usize::from(bytes.get_u8());
        let key = std::str::from_utf8(bytes.split_off(..key)?).ok()?;
        let len = usize::try_from(bytes.try_get_u32_le().ok()?).ok()?;
        records.insert(key.to_owned(), bytes.split_off(..len)?.to_vec());
    }
    Some(records)
}

impl FileStore {
    /// Reads the records, or their copy where they are damaged or missing; makes both the same
    /// again.
    fn read_records(&mut self) -> Result<(), StoreError> {
        let records = read_if_there(&self.folder.join(RECORDS))?;
        let copy = read_if_there(&self.folder.join(RECORDS_COPY))?;
        let wrong = match records.as_deref().map(decode_records) {
            Some(Some(good)) => {
                self.records = good;
                return if copy == records { Ok(()) } else { self.put_records(RECORDS_COPY) };
            }
            Some(None) => "the records are damaged",
            None => "the records are missing",
        };
        if let Some(good) = copy.as_deref().and_then(decode_records) {
            self.records = good;
            // An agent that ended between the first copy and the first records has lost nothing.
            if records.is_some() || !self.segments()?.is_empty() {
                self.mended = Some(format!("{wrong}: they were taken from their copy"));
            }
            return self.put_records(RECORDS);
        }
        // An agent that ended before it had written anything leaves none.
        match records.is_none() && copy.is_none() && self.segments()?.is_empty() {
            true => Ok(()),
            false => Err(damaged(wrong)),
        }
    }

    /// Replaces the records; they and all that was written before them survive a power failure
    /// then. The copy comes first: it is never older than the records, and what it says was done
    /// before it was written.
    fn write_records(&mut self) -> Result<(), StoreError> {
        self.sync()?;
        self.put_records(RECORDS_COPY)?;
        self.put_records(RECORDS)
    }

    fn put_records(&mut self, name: &str) -> Result<(), StoreError> {
        let new = self.folder.join(RECORDS_NEW);
        let mut file = File::create(&new)?;
        file.write_all(&encode_records(&self.records))?;
        file.sync_data().map_err(StoreError::Unsynced)?;
        std::fs::rename(new, self.folder.join(name))?;
        // They read well from here on, and may be the old ones again after a power failure.
        self.names.sync_all().map_err(StoreError::Unsynced)
    }

    fn path(&self, segment: u64) -> PathBuf {
        self.folder.join(segment_name(segment))
    }

    /// Writes a chunk at the end of its segment; those of its key and of later ones are gone.
    fn append(&mut self, segment: u64, key: u64, chunk: &[u8]) -> Result<(), StoreError> {
        let bytes = u32::try_from(chunk.len()).ok().filter(|bytes| *bytes <= CHUNK_BYTES_MAX);
        let bytes = bytes.ok_or_else(|| io::Error::other("a chunk is longer than 128 MiB"))?;
        let end = match self.segments.get_mut(&segment) {
            Some(places) => {
                places.cut(key);
                places.end
            }
            None => {
                // One that is there and was never read is not written over.
                File::options().create_new(true).write(true).open(self.path(segment))?;
                self.names_unsynced = true;
                self.segments.entry(segment).or_default().end
            }
        };
        let mut writing = match self.writing.take() {
            Some(there) if there.segment == segment && there.at == end => there,
            other => {
                self.leave(other);
                Writing { segment, file: open_at(&self.path(segment), end)?, at: end }
            }
        };
        self.unsynced.entry(segment).or_default();
        write_both(&mut writing.file, &frame(key, bytes), chunk)?;
        let places = self.segments.entry(segment).or_default();
        places.push(key, bytes);
        writing.at = places.end;
        self.writing = Some(writing);
        Ok(())
    }

    /// Another segment is written to from now on.
    fn leave(&mut self, writing: Option<Writing>) {
        if let Some(writing) = writing
            && let Some(file) = self.unsynced.get_mut(&writing.segment)
        {
            *file = Some(writing.file);
        }
    }

    /// Takes the chunks of a key and of later ones from the end of a segment.
    fn cut(&mut self, segment: u64, key: u64) -> Result<(), StoreError> {
        let unknown = || io::Error::other(format!("segment {segment} is cut and was never read"));
        let places = self.segments.get_mut(&segment).ok_or_else(unknown)?;
        places.cut(key);
        let end = places.end;
        let writing = self.writing.take();
        self.leave(writing);
        open_at(&self.path(segment), end).map(drop)
    }
}

/// The bytes of a file; `None` where there is none.
fn read_if_there(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A file that ends at a place, to be written from there on.
fn open_at(path: &Path, end: u64) -> Result<File, StoreError> {
    let mut file = open_file(path).map_err(StoreError::of_read)?;
    // To cut an empty file makes some file systems write all of it to the disk when it is closed.
    if file.metadata()?.len() != end {
        file.set_len(end)?;
        // A power failure must not bring back what is void, behind what is written next.
        file.sync_data().map_err(StoreError::Unsynced)?;
    }
    file.seek(SeekFrom::Start(end))?;
    Ok(file)
}

impl Store for FileStore {
    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.records.get(key).cloned())
    }

    fn segments(&mut self) -> Result<Vec<u64>, StoreError> {
        let mut numbers = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(SEGMENT)?.parse().ok());
            // Not `log-1`, nor `log-+1`: nothing else may be taken for a segment. Nor the last
            // number of all: behind it there is none.
            let ours = |number: &u64| *name == *segment_name(*number) && *number < u64::MAX;
            numbers.extend(number.filter(ours));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Ends where something is no chunk: a crash has torn it off there, or it is damaged. Who knows
    /// what should follow sees that it is missing.
    fn read(
        &mut self,
        segment: u64,
        visit: &mut dyn FnMut(u64, Vec<u8>),
    ) -> Result<(), StoreError> {
        let mut places = Places::default();
        let read = read_chunks(&self.path(segment), &mut places, visit);
        // Also where it failed: what was found before is there, and what follows comes behind it.
        self.segments.insert(segment, places);
        read
    }

    fn chunk(&mut self, segment: u64, first: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let place = self.segments.get(&segment).and_then(|places| places.find(first));
        let Some(place) = place else { return Ok(None) };
        let mut chunk = vec![0; place.bytes as usize];
        let file = File::open(self.path(segment)).map_err(StoreError::of_read)?;
        file.read_exact_at(&mut chunk, place.at).map_err(StoreError::of_read)?;
        Ok(Some(chunk))
    }

    fn write(&mut self, changes: Vec<Change>, sync: bool) -> Result<(), StoreError> {
        let (mut replaced, mut cut) = (false, false);
        for change in changes {
            if replaced && !matches!(change, Change::Put(..)) {
                self.write_records()?;
                replaced = false;
            }
            // What is there in the place of what goes.
            if !std::mem::replace(&mut cut, matches!(change, Change::Cut { .. })) && cut {
                self.sync()?;
            }
            match change {
                Change::Put(key, value) => {
                    self.records.insert(key.to_owned(), value);
                    replaced = true;
                }
                Change::Append { segment, first, chunk } => self.append(segment, first, &chunk)?,
                Change::Cut { segment, from } => self.cut(segment, from)?,
            }
        }
        if replaced {
            self.write_records()?;
        }
        if sync { self.sync() } else { Ok(()) }
    }

    fn remove_segment(&mut self, segment: u64) -> Result<(), StoreError> {
        self.writing.take_if(|writing| writing.segment == segment);
        self.unsynced.remove(&segment);
        self.segments.remove(&segment);
        match std::fs::remove_file(self.path(segment)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        while let Some((&segment, left)) = self.unsynced.first_key_value() {
            let writing = self.writing.as_ref().filter(|writing| writing.segment == segment);
            let synced = match writing.map(|writing| &writing.file).or(left.as_ref()) {
                Some(file) => file.sync_data(),
                None => File::open(self.path(segment)).map_err(StoreError::of_read)?.sync_data(),
            };
            synced.map_err(StoreError::Unsynced)?;
            self.unsynced.remove(&segment);
        }
        if self.names_unsynced {
            self.names.sync_all().map_err(StoreError::Unsynced)?;
            self.names_unsynced = false;
        }
        Ok(())
    }

    fn acknowledge(&mut self, record: &[u8], sync: bool) -> Result<(), StoreError> {
        self.acknowledged.write_all_at(record, 0)?;
        if sync { self.acknowledged.sync_data().map_err(StoreError::Unsynced) } else { Ok(()) }
    }

    fn acknowledged(&mut self) -> Result<Vec<u8>, StoreError> {
        let mut bytes = vec![0; ACKNOWLEDGED_BYTES_MAX];
        let len = self.acknowledged.read_at(&mut bytes, 0)?;
        bytes.truncate(len);
        Ok(bytes)
    }

    fn mended(&mut self) -> Option<String> {
        self.mended.clone()
    }

    fn boot(&mut self) -> Option<u128> {
        let text = std::fs::read_to_string(BOOT).or_else(|_| std::env::var(BOOT_VARIABLE));
        text.ok().as_deref().and_then(parse_boot)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A store that is open, and whose folder cannot be synced.
    fn unsyncable_folder(dir: &Path) -> FileStore {
        drop(DiskStorage.open(dir).unwrap());
        FileStore {
            folder: dir.join(STORE),
            // What it is cannot be synced.
            names: File::open("/dev/null").unwrap(),
            records: BTreeMap::new(),
            mended: None,
            segments: BTreeMap::new(),
            writing: None,
            unsynced: BTreeMap::new(),
            names_unsynced: false,
            acknowledged: open_file(&dir.join(ACKNOWLEDGED)).unwrap(),
            _lock: open_file(&dir.join(LOCK)).unwrap(),
        }
    }

    /// Records that have taken the place of the old ones and could not be synced there read well,
    /// and may be the old ones after a power failure: that is a doubt, not a disk that did nothing.
    #[test]
    fn records_whose_folder_could_not_be_synced_are_in_doubt() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = unsyncable_folder(dir.path());
        let written = store.write(vec![Change::Put("begun", vec![7])], false);
        assert!(matches!(written, Err(StoreError::Unsynced(_))), "{written:?}");
        let mut again = DiskStorage.open(dir.path()).unwrap();
        assert_eq!(again.get("begun").unwrap(), Some(vec![7]), "it reads well");
        assert!(again.boot().is_some());
    }

    #[test]
    fn a_boot_is_read_as_the_kernel_and_as_systemd_say_it() {
        let boot = Some(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(parse_boot("01234567-89ab-cdef-0123-456789abcdef\n"), boot);
        assert_eq!(parse_boot("0123456789abcdef0123456789abcdef"), boot);
        let zeros = "0".repeat(32);
        for none in ["", "%b", "1", "+123456789abcdef0123456789abcdef", &zeros, &"f".repeat(33)] {
            assert_eq!(parse_boot(none), None, "{none}");
        }
    }
}
