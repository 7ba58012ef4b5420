//! Fewer ranks take over the state of a set that more ranks have made: each asks for the images
//! that it needs, and those who have them give them. All ranks do this together, in
//! [`Job::restore`].

use super::Job;
use super::members::Members;
use crate::error::{Error, Result};
use crate::frame::{Class, array};
use crate::image::{Header, ImageError, ImageReader, Reader};
use crate::memory::{self, is_memory_set};
use crate::state::{Communication, Part, State};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

/// Bytes of an image in one message.
const PIECE_BYTES: usize = 4 * 1024 * 1024;

/// A set of more ranks than there are now.
#[derive(Clone, Debug)]
pub(super) struct Divided {
    pub(super) set: String,
    /// The members that made it.
    pub(super) before: Members,
}

impl Job {
    /// Takes the state from the images of all that made the set, as far as it is needed here.
    pub(super) fn divide(&mut self, state: &mut dyn State, of: &Divided) -> Result<()> {
        let Divided { set, before } = of;
        let (rank, size) = (self.rank(), self.size());
        state.begin_parts(Part { rank, size });
        let part = |rank| Part { rank, size: before.len() };
        let needs: Vec<u8> =
            (0..before.len()).map(|rank| u8::from(state.needs_part(part(rank)))).collect();
        let all = self.needs_of_all(&needs)?;
        for (index, number) in (0_u32..).zip(before.numbers()) {
            let holder = self.members.rank_of(self.members.holder(*number)).unwrap_or_default();
            let tag = self.next_collective();
            let wants = |of: u32| {
                let at = of as usize * needs.len() + index as usize;
                all.get(at).is_some_and(|needs| *needs != 0)
            };
            let image = if holder == rank {
                let others: Vec<u32> = (0..size).filter(|of| *of != rank && wants(*of)).collect();
                if others.is_empty() && !wants(rank) {
                    continue;
                }
                let image = self.image_of(set, *number)?;
                others.into_iter().try_for_each(|to| self.give_image(to, tag, &image))?;
                if !wants(rank) {
                    continue;
                }
                image
            } else if wants(rank) {
                self.take_image(holder, tag, set, *number)?
            } else {
                continue;
            };
            let mut reader = self.opened(image, set, *number, before)?;
            state.restore_part(part(index), &mut reader)?;
        }
        Ok(())
    }

    /// What each rank needs, one after the other.
    fn needs_of_all(&mut self, own: &[u8]) -> Result<Vec<u8>> {
        let mut all = self.gather(0, own)?.concat();
        self.broadcast(0, &mut all)?;
        let expected = own.len() * self.size() as usize;
        if all.len() == expected {
            return Ok(all);
        }
        let (operation, found) = ("the division of a set", all.len());
        Err(Error::CollectiveMismatch { operation, rank: 0, expected, found })
    }

    fn image_path(&self, set: &str, number: u32) -> PathBuf {
        match (&self.config.image_dir, is_memory_set(set)) {
            (Some(dir), false) => dir.join(set).join(Header::file_name(number)),
            _ => memory::label(set, number),
        }
    }

    /// The image of a process that this one has on its node.
    fn image_of(&self, set: &str, number: u32) -> Result<File> {
        let path = self.image_path(set, number);
        let file = match self.agent.as_ref().filter(|_| is_memory_set(set)) {
            Some(agent) => agent.get(set, number),
            None => File::open(&path),
        };
        Ok(file.map_err(|source| ImageError::Read { path, source })?)
    }

    fn give_image(&mut self, to: u32, tag: u32, mut image: &File) -> Result<()> {
        let failed = |source| ImageError::Read { path: Path::new("image").to_owned(), source };
        let bytes = image.metadata().map_err(failed)?.len();
        image.rewind().map_err(failed)?;
        self.give(to, Class::Collective, tag, &bytes.to_le_bytes())?;
        let (mut left, mut piece) = (bytes, Vec::new());
        while left > 0 {
            // At most PIECE_BYTES.
            piece.resize(left.min(PIECE_BYTES as u64) as usize, 0);
            image.read_exact(&mut piece).map_err(failed)?;
            self.give(to, Class::Collective, tag, &piece)?;
            left -= piece.len() as u64;
        }
        Ok(())
    }

    fn take_image(&mut self, from: u32, tag: u32, set: &str, number: u32) -> Result<File> {
        let path = memory::label(set, number);
        let failed = |source| ImageError::Write { path: path.clone(), source };
        let length = self.take(from, Class::Collective, tag)?;
        let mut left = match length.len() {
            8 => u64::from_le_bytes(array(&length)),
            _ => return Err(failed(io::Error::other("malformed length")).into()),
        };
        let mut image = memory::create(&Header::file_name(number)).map_err(failed)?;
        while left > 0 {
            let piece = self.take(from, Class::Collective, tag)?;
            let rest = left.checked_sub(piece.len() as u64).filter(|rest| *rest < left);
            left = rest.ok_or_else(|| failed(io::Error::other("it is longer than announced")))?;
            image.write_all(&piece).map_err(failed)?;
        }
        Ok(image)
    }

    /// The verified image, behind the part of this library.
    fn opened(&self, mut image: File, set: &str, number: u32, before: &Members) -> Result<Reader> {
        let path = self.image_path(set, number);
        image.rewind().map_err(|source| ImageError::Read { path: path.clone(), source })?;
        let image = ImageReader::read(image, &path)?;
        let header = image.header();
        image.require(header.job == self.config.job_id, "it is of another job")?;
        image.require(header.rank == number, "it is of another rank")?;
        image.require(header.set == set, "it is of another set")?;
        let mut reader = image.into_reader();
        let communication = Communication::restore(self.config.size, &mut reader)?;
        if communication.members != *before {
            return Err(reader.refuse("other ranks have made it").into());
        }
        if communication.has_messages() {
            let problem = "messages were under way: they cannot be given to fewer ranks";
            return Err(reader.refuse(problem).into());
        }
        Ok(reader)
    }
}
