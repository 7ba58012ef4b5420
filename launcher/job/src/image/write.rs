//! Writes an image: a whole one exists under its name, or none.

use super::block::{BlockHeader, End, Kind, MAGIC, VERSION};
use super::{Header, ImageError, Section, SectionType};
use crate::limits::{BLOCK_BYTES_MAX, SECTION_NAME_BYTES_MAX, SECTIONS_MAX};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSize {
    /// Of the file.
    pub bytes: u64,
}

/// What an image must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlives {
    /// A crash of the host: it is synced before it is reported.
    Host,
    /// The end of the process: another node fetches it at once.
    Process,
}

/// Writes `directory/rank-<r>.img` and makes the directory if necessary.
///
/// # Errors
/// [`ImageError::Write`] from the system, [`ImageError::Section`] for invalid content of `save`. No
/// new file is left, and an older one stays.
pub fn write_image(
    directory: &Path,
    header: &Header,
    outlives: Outlives,
    save: &mut dyn FnMut(&mut Writer) -> Result<(), ImageError>,
) -> Result<ImageSize, ImageError> {
    let path = directory.join(Header::file_name(header.rank));
    let temporary = path.with_extension(format!("tmp-{}", std::process::id()));
    let written = write_temporary(&temporary, &path, header, outlives, save);
    if written.is_err() {
        // It may not exist.
        fs::remove_file(&temporary).ok();
    }
    written
}

/// Writes an image into an empty file; `path` names it in errors.
///
/// # Errors
/// As [`write_image`].
pub fn write_image_to(
    file: File,
    path: &Path,
    header: &Header,
    save: &mut dyn FnMut(&mut Writer) -> Result<(), ImageError>,
) -> Result<(File, ImageSize), ImageError> {
    write_within(None, file, path, header, save)
}

/// The same. `room` is asked before the image grows by [`ROOM_BYTES`] or more, with the bytes that
/// it has then.
pub(crate) fn write_within(
    room: Option<AskRoom>,
    file: File,
    path: &Path,
    header: &Header,
    save: &mut dyn FnMut(&mut Writer) -> Result<(), ImageError>,
) -> Result<(File, ImageSize), ImageError> {
    let mut writer = Writer::new(file, path.to_owned());
    writer.room = room;
    writer.start(header)?;
    save(&mut writer)?;
    let (file, bytes) = writer.finish()?;
    Ok((file, ImageSize { bytes }))
}

fn write_temporary(
    temporary: &Path,
    path: &Path,
    header: &Header,
    outlives: Outlives,
    save: &mut dyn FnMut(&mut Writer) -> Result<(), ImageError>,
) -> Result<ImageSize, ImageError> {
    let failed = |source| ImageError::Write { path: path.to_owned(), source };
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory).map_err(failed)?;
    let file = File::create(temporary).map_err(failed)?;
    let (file, ImageSize { bytes }) = write_image_to(file, path, header, save)?;
    let durable = outlives == Outlives::Host;
    if durable {
        file.sync_all().map_err(failed)?;
    }
    drop(file);
    fs::rename(temporary, path).map_err(failed)?;
    if !durable {
        return Ok(ImageSize { bytes });
    }
    sync_directory(directory).map_err(failed)?;
    if let Some(parent) = directory.parent() {
        sync_directory(parent).map_err(failed)?;
    }
    Ok(ImageSize { bytes })
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    // "a" has the parent "".
    let is_here = directory.as_os_str().is_empty();
    File::open(if is_here { Path::new(".") } else { directory })?.sync_all()
}

/// Whether an image may have this many bytes.
pub(crate) type AskRoom = Box<dyn FnMut(u64) -> io::Result<()> + Send>;

/// Below this an image grows without a question.
pub(crate) const ROOM_BYTES: u64 = 1024 * 1024;

/// Takes a program's state, section by section. [`Reader`](super::Reader) gives it back in the same
/// order.
pub struct Writer {
    file: File,
    path: PathBuf,
    blocks: u32,
    bytes: u64,
    checksum: u32,
    sections: u32,
    buffer: Vec<u8>,
    room: Option<AskRoom>,
    /// Bytes that there is room for.
    granted: u64,
}

impl Writer {
    fn new(file: File, path: PathBuf) -> Self {
        let (blocks, bytes, checksum, sections, granted) = (0, 0, 0, 0, 0);
        let (buffer, room) = (Vec::new(), None);
        Self { file, path, blocks, bytes, checksum, sections, buffer, room, granted }
    }

    /// A section of bytes.
    ///
    /// # Errors
    /// As [`write_image`].
    pub fn bytes(&mut self, name: &str, bytes: &[u8]) -> Result<(), ImageError> {
        self.section(name, SectionType::Bytes, bytes.len())?;
        for chunk in bytes.chunks(BLOCK_BYTES_MAX) {
            self.block(Kind::Data, chunk)?;
        }
        Ok(())
    }

    /// A section of numbers, to the bit.
    ///
    /// # Errors
    /// As [`write_image`].
    pub fn f64s(&mut self, name: &str, numbers: &[f64]) -> Result<(), ImageError> {
        self.words(name, SectionType::F64, numbers, |number| number.to_le_bytes())
    }

    /// A section of integers.
    ///
    /// # Errors
    /// As [`write_image`].
    pub fn u64s(&mut self, name: &str, numbers: &[u64]) -> Result<(), ImageError> {
        self.words(name, SectionType::U64, numbers, |number| number.to_le_bytes())
    }

    /// A section of one integer.
    ///
    /// # Errors
    /// As [`write_image`].
    pub fn u64(&mut self, name: &str, number: u64) -> Result<(), ImageError> {
        self.u64s(name, &[number])
    }

    fn words<T: Copy>(
        &mut self,
        name: &str,
        kind: SectionType,
        words: &[T],
        encode: impl Fn(T) -> [u8; 8],
    ) -> Result<(), ImageError> {
        self.section(name, kind, 8 * words.len())?;
        let mut buffer = std::mem::take(&mut self.buffer);
        for chunk in words.chunks(BLOCK_BYTES_MAX / 8) {
            buffer.resize(8 * chunk.len(), 0);
            for (bytes, word) in buffer.chunks_exact_mut(8).zip(chunk) {
                bytes.copy_from_slice(&encode(*word));
            }
            self.block(Kind::Data, &buffer)?;
        }
        self.buffer = buffer;
        Ok(())
    }

    fn section(&mut self, name: &str, kind: SectionType, bytes: usize) -> Result<(), ImageError> {
        let refused =
            |problem| ImageError::Section { name: name.chars().take(80).collect(), problem };
        if name.is_empty() || name.len() > SECTION_NAME_BYTES_MAX {
            return Err(refused("the name must have 1 to 63 bytes"));
        }
        if self.sections == SECTIONS_MAX {
            return Err(refused("there are too many sections"));
        }
        self.sections += 1;
        self.ask_room(bytes as u64)?;
        self.json(Kind::Section, &Section { name: name.to_owned(), kind, bytes: bytes as u64 })
    }

    /// Asks whether these further bytes fit, if they are many.
    fn ask_room(&mut self, more: u64) -> Result<(), ImageError> {
        let needed = self.bytes.saturating_add(more);
        let Some(room) = self.room.as_mut().filter(|_| needed >= self.granted + ROOM_BYTES) else {
            return Ok(());
        };
        self.granted = needed;
        room(needed).map_err(|source| ImageError::Write { path: self.path.clone(), source })
    }

    fn start(&mut self, header: &Header) -> Result<(), ImageError> {
        self.raw(&MAGIC)?;
        self.raw(&VERSION.to_le_bytes())?;
        self.json(Kind::Header, header)
    }

    fn json(&mut self, kind: Kind, value: &impl serde::Serialize) -> Result<(), ImageError> {
        let json = serde_json::to_vec(value).map_err(|error| self.failed(error.into()))?;
        self.block(kind, &json)
    }

    fn block(&mut self, kind: Kind, payload: &[u8]) -> Result<(), ImageError> {
        let header = BlockHeader::of(kind, self.blocks, payload);
        self.raw(&header.encode())?;
        self.raw(payload)?;
        let blocks = self.blocks.checked_add(1);
        self.blocks = blocks.ok_or_else(|| self.failed(io::ErrorKind::FileTooLarge.into()))?;
        Ok(())
    }

    fn raw(&mut self, bytes: &[u8]) -> Result<(), ImageError> {
        let written = self.file.write_all(bytes);
        written.map_err(|error| self.failed(error))?;
        self.checksum = crc32c::crc32c_append(self.checksum, bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn finish(mut self) -> Result<(File, u64), ImageError> {
        let end = End { blocks: self.blocks, bytes: self.bytes, checksum: self.checksum };
        self.block(Kind::End, &end.encode())?;
        Ok((self.file, self.bytes))
    }

    fn failed(&self, source: io::Error) -> ImageError {
        ImageError::Write { path: self.path.clone(), source }
    }
}
