//! Reads an image: first verifies all of it, then returns section by section.

use super::block::{self, BlockHeader, End, Kind, MAGIC, PREAMBLE_BYTES, VERSION};
use super::{Header, ImageError, Section, SectionType};
use crate::frame::array;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// An image that has been verified as a whole.
pub struct ImageReader {
    header: Header,
    reader: Reader,
}

impl ImageReader {
    /// Opens and verifies an image.
    ///
    /// # Errors
    /// [`ImageError::Refused`] names the first byte at which it is not a whole image.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        let file = File::open(path);
        Self::read(file.map_err(|source| ImageError::Read { path: path.to_owned(), source })?, path)
    }

    /// Verifies an image in an open file; `path` names it in errors.
    ///
    /// # Errors
    /// As [`ImageReader::open`].
    pub fn read(mut file: File, path: &Path) -> Result<Self, ImageError> {
        let read = |source| ImageError::Read { path: path.to_owned(), source };
        let mut scan = Blocks::new(&mut file, path.to_owned());
        scan.verify()?;
        file.seek(SeekFrom::Start(0)).map_err(read)?;
        let mut blocks = Blocks::new(file, path.to_owned());
        blocks.preamble()?;
        let header = blocks.header()?;
        Ok(Self { header, reader: Reader { blocks } })
    }

    /// Whose image it is.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Refuses an image that does not meet the caller's condition.
    ///
    /// # Errors
    /// [`ImageError::Refused`] at the header.
    pub fn require(&self, met: bool, problem: &str) -> Result<(), ImageError> {
        if met {
            return Ok(());
        }
        let at = PREAMBLE_BYTES as u64;
        let problem = format!("{problem}; its header: {:?}", self.header);
        Err(ImageError::refused(&self.reader.blocks.path, at, problem))
    }

    /// To read the sections.
    pub fn into_reader(self) -> Reader {
        self.reader
    }
}

/// Returns a program's state, section by section, in the order of writing.
pub struct Reader {
    blocks: Blocks<File>,
}

impl Reader {
    /// The file.
    pub fn path(&self) -> &Path {
        &self.blocks.path
    }

    /// A section of bytes.
    ///
    /// # Errors
    /// [`ImageError::Refused`] where the next section has another name or type.
    pub fn bytes(&mut self, name: &str) -> Result<Vec<u8>, ImageError> {
        let mut bytes = Vec::new();
        self.data(name, SectionType::Bytes, |len, data| {
            if bytes.is_empty() {
                bytes.reserve_exact(len);
            }
            bytes.extend_from_slice(data);
        })?;
        Ok(bytes)
    }

    /// A section of exactly this many bytes.
    ///
    /// # Errors
    /// As [`Reader::bytes`], and where it has another length.
    pub fn bytes_into(&mut self, name: &str, to: &mut [u8]) -> Result<(), ImageError> {
        let (wanted, mut found, mut filled) = (to.len(), to.len(), 0);
        self.data(name, SectionType::Bytes, |len, data| {
            found = len;
            if let Some(place) = to.get_mut(filled..filled + data.len()) {
                place.copy_from_slice(data);
            }
            filled += data.len();
        })?;
        if filled != wanted {
            let problem = format!("section {name:?} has {found} bytes, expected {wanted}");
            return Err(self.blocks.refused(problem));
        }
        Ok(())
    }

    /// A section of numbers, to the bit.
    ///
    /// # Errors
    /// As [`Reader::bytes`].
    pub fn f64s(&mut self, name: &str) -> Result<Vec<f64>, ImageError> {
        self.words(name, SectionType::F64, f64::from_le_bytes)
    }

    /// A section of integers.
    ///
    /// # Errors
    /// As [`Reader::bytes`].
    pub fn u64s(&mut self, name: &str) -> Result<Vec<u64>, ImageError> {
        self.words(name, SectionType::U64, u64::from_le_bytes)
    }

    /// A section of one integer.
    ///
    /// # Errors
    /// As [`Reader::bytes`], and where it holds more or less than one.
    pub fn u64(&mut self, name: &str) -> Result<u64, ImageError> {
        match self.u64s(name)?[..] {
            [number] => Ok(number),
            _ => Err(self.blocks.refused(format!("section {name:?} is not one number"))),
        }
    }

    /// Refuses the content, with the program's reason.
    pub fn refuse(&self, problem: impl Into<String>) -> ImageError {
        self.blocks.refused(problem)
    }

    fn words<T>(
        &mut self,
        name: &str,
        kind: SectionType,
        decode: impl Fn([u8; 8]) -> T,
    ) -> Result<Vec<T>, ImageError> {
        let mut words = Vec::new();
        self.data(name, kind, |len, data| {
            if words.is_empty() {
                words.reserve_exact(len / 8);
            }
            words.extend(data.chunks_exact(8).map(|word| decode(array(word))));
        })?;
        Ok(words)
    }

    /// Passes the length of the named section and each piece of it to callbacks. The length was
    /// verified before.
    fn data(
        &mut self,
        name: &str,
        kind: SectionType,
        mut piece: impl FnMut(usize, &[u8]),
    ) -> Result<(), ImageError> {
        let at = self.blocks.offset;
        let section = self.blocks.section()?;
        if section.name != name || section.kind != kind {
            let problem = format!(
                "expected section {name:?} of {kind:?}, found {:?} of {:?}",
                section.name, section.kind
            );
            return Err(ImageError::refused(&self.blocks.path, at, problem));
        }
        let len = usize::try_from(section.bytes)
            .map_err(|_| self.blocks.refused("a section that does not fit into memory"))?;
        let mut left = len;
        while left > 0 {
            let data = self.blocks.data()?;
            left = left.saturating_sub(data.len());
            piece(len, data);
        }
        Ok(())
    }
}

/// Reads block after block and checks each.
struct Blocks<R> {
    file: BufReader<R>,
    path: PathBuf,
    offset: u64,
    index: u32,
    checksum: u32,
    payload: Vec<u8>,
}

impl<R: Read> Blocks<R> {
    fn new(file: R, path: PathBuf) -> Self {
        Self {
            file: BufReader::new(file),
            path,
            offset: 0,
            index: 0,
            checksum: 0,
            payload: Vec::new(),
        }
    }

    /// Reads everything: the preamble, a header, sections with their announced data, a matching
    /// end, and nothing after it.
    fn verify(&mut self) -> Result<(), ImageError> {
        self.preamble()?;
        self.header()?;
        let mut section_left = 0_u64;
        loop {
            let before = End { blocks: self.index, bytes: self.offset, checksum: self.checksum };
            match self.next()? {
                Kind::Section if section_left == 0 => section_left = self.parse_section()?.bytes,
                Kind::Data if section_left > 0 && !self.payload.is_empty() => {
                    let len = self.payload.len() as u64;
                    let left = section_left.checked_sub(len);
                    section_left =
                        left.ok_or_else(|| self.refused("more data than the section has"))?;
                }
                Kind::End if section_left == 0 => {
                    if End::decode(&self.payload) != Some(before) {
                        return Err(self.refused("the end does not agree with what is before it"));
                    }
                    return self.nothing_left();
                }
                kind => return Err(self.refused(format!("{kind:?} is not expected here"))),
            }
        }
    }

    fn preamble(&mut self) -> Result<(), ImageError> {
        let mut preamble = [0; PREAMBLE_BYTES];
        self.exact(&mut preamble)?;
        if preamble[..8] != MAGIC {
            return Err(self.refused_at(0, "it does not start as an image"));
        }
        let version = u32::from_le_bytes(array(&preamble[8..12]));
        if version != VERSION {
            let problem = format!("version {version} is not {VERSION}");
            return Err(self.refused_at(8, problem));
        }
        self.offset = PREAMBLE_BYTES as u64;
        self.checksum = crc32c::crc32c(&preamble);
        Ok(())
    }

    fn header(&mut self) -> Result<Header, ImageError> {
        match self.next()? {
            Kind::Header => serde_json::from_slice(&self.payload)
                .map_err(|error| self.refused(format!("the header is malformed: {error}"))),
            kind => Err(self.refused(format!("{kind:?} instead of the header"))),
        }
    }

    fn section(&mut self) -> Result<Section, ImageError> {
        match self.next()? {
            Kind::Section => self.parse_section(),
            Kind::End => Err(self.refused("it has no more sections")),
            kind => Err(self.refused(format!("{kind:?} instead of a section"))),
        }
    }

    fn data(&mut self) -> Result<&[u8], ImageError> {
        match self.next()? {
            Kind::Data => Ok(&self.payload),
            kind => Err(self.refused(format!("{kind:?} instead of data"))),
        }
    }

    fn parse_section(&self) -> Result<Section, ImageError> {
        serde_json::from_slice(&self.payload)
            .map_err(|error| self.refused(format!("a section is malformed: {error}")))
    }

    /// The next block; its payload is in `self.payload`.
    fn next(&mut self) -> Result<Kind, ImageError> {
        let mut bytes = [0; block::HEADER_BYTES];
        self.exact(&mut bytes)?;
        let header = BlockHeader::decode(&bytes).map_err(|problem| self.refused(problem))?;
        let mut payload = std::mem::take(&mut self.payload);
        payload.resize(header.len as usize, 0);
        self.exact(&mut payload)?;
        let checksum = header.sum(&payload);
        if header.index != self.index || header.checksum != checksum {
            return Err(self.refused(format!(
                "block {} says it is {} with checksum {:08x}, but its checksum is {checksum:08x}",
                self.index, header.index, header.checksum
            )));
        }
        self.checksum = crc32c::crc32c_append(self.checksum, &bytes);
        self.checksum = crc32c::crc32c_append(self.checksum, &payload);
        self.offset += (bytes.len() + payload.len()) as u64;
        self.index += 1;
        self.payload = payload;
        Ok(header.kind)
    }

    fn nothing_left(&mut self) -> Result<(), ImageError> {
        match self.file.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(self.refused("something follows the end")),
            Err(source) => Err(self.unreadable(source)),
        }
    }

    fn exact(&mut self, buffer: &mut [u8]) -> Result<(), ImageError> {
        self.file.read_exact(buffer).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => self.refused("it is torn: the file ends in this block"),
            _ => self.unreadable(error),
        })
    }

    fn unreadable(&self, source: io::Error) -> ImageError {
        ImageError::Read { path: self.path.clone(), source }
    }

    fn refused(&self, problem: impl Into<String>) -> ImageError {
        self.refused_at(self.offset, problem)
    }

    fn refused_at(&self, offset: u64, problem: impl Into<String>) -> ImageError {
        ImageError::refused(&self.path, offset, problem)
    }
}
