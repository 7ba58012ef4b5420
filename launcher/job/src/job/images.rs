//! The image of a rank: written for a checkpoint or a move, read at a start.

use super::{Job, elapsed_us};
use crate::backplane::Notice;
use crate::config::Config;
use crate::error::Result;
use crate::image::{self, AskRoom, Header, ImageError, ImageReader, Outlives, Reader, Writer};
use crate::limits;
use crate::memory::{self, is_memory_set};
use crate::rank_socket::AgentLink;
use crate::request::Request;
use crate::state::{Communication, State};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The verified image that this rank starts from.
pub(super) fn open_image(
    config: &Config,
    agent: Option<&AgentLink>,
) -> Result<Option<(Header, Reader)>> {
    let Some(set_dir) = &config.restore else {
        return Ok(None);
    };
    open_set(set_dir, (&config.job_id, config.rank, config.size), agent).map(Some)
}

/// The verified image of a rank in that set: its job, its number, how many ranks there are.
pub(crate) fn open_set(
    set_dir: &Path,
    (job, rank, size): (&str, u32, u32),
    agent: Option<&AgentLink>,
) -> Result<(Header, Reader)> {
    let set = set_dir.file_name().map(Path::new).and_then(Path::to_str);
    let image = match (set.filter(|set| is_memory_set(set)), agent) {
        (Some(set), Some(agent)) => {
            let path = memory::label(set, rank);
            let read = |source| ImageError::Read { path: path.clone(), source };
            ImageReader::read(agent.get(set, rank).map_err(read)?, &path)?
        }
        _ => ImageReader::open(&set_dir.join(Header::file_name(rank)))?,
    };
    let header = image.header().clone();
    image.require(header.job == job, "it is of another job")?;
    image.require(header.rank == rank, "it is of another rank")?;
    image.require(header.size == size, "it is of a job of another size")?;
    image.require(Some(header.set.as_str()) == set, "it is of another set")?;
    Ok((header, image.into_reader()))
}

impl Job {
    /// Writes the image of a rank that moves; true if it leaves.
    pub(super) fn leave(&mut self, request: &Request, set: &str, state: &dyn State) -> bool {
        if self.control.is_aborted(request.episode) {
            return false;
        }
        let notice = self.save(request, set, state, Outlives::Process);
        let leaves = matches!(notice, Notice::CheckpointDone { .. });
        self.control.answer(notice);
        if leaves {
            self.control.stop();
            if !self.backplane.confirm(limits::LAST_WORD_TIMEOUT) {
                tracing::warn!(rank = self.config.rank, "left without a confirmed last word");
            }
        }
        leaves
    }

    /// Writes this rank's image and reports the result.
    pub(super) fn save(
        &self,
        request: &Request,
        set: &str,
        state: &dyn State,
        outlives: Outlives,
    ) -> Notice {
        let started = Instant::now();
        let (episode, set) = (request.episode, set.to_owned());
        match self.write_image(episode, &set, state, outlives) {
            Ok(bytes) => {
                Notice::CheckpointDone { episode, set, bytes, took_us: elapsed_us(started) }
            }
            Err(error) => {
                let reason = error.to_string();
                tracing::warn!(rank = self.config.rank, episode, %reason, "checkpoint failed");
                Notice::CheckpointFailed { episode, set, reason }
            }
        }
    }

    fn write_image(
        &self,
        episode: u64,
        set: &str,
        state: &dyn State,
        outlives: Outlives,
    ) -> Result<u64, ImageError> {
        let header = Header {
            job: self.config.job_id.clone(),
            rank: self.config.rank,
            size: self.config.size,
            set: set.to_owned(),
            episode,
            safe_point: self.control.passed() + 1,
        };
        let communication = Communication {
            members: self.members.clone(),
            collectives: self.collectives,
            sending: self.router.snapshot(),
            receiving: self.inbox.snapshot(),
        };
        let mut save = |writer: &mut Writer| {
            communication.save(writer)?;
            state.save(writer)
        };
        if is_memory_set(set) {
            return save_to_memory(self.agent.as_ref(), &header, &mut save);
        }
        let Some(image_dir) = &self.config.image_dir else {
            return Err(ImageError::Write {
                path: PathBuf::from(Header::file_name(self.config.rank)),
                source: std::io::Error::other("FTB_IMAGE_DIR is not set"),
            });
        };
        let size = image::write_image(&image_dir.join(set), &header, outlives, &mut save)?;
        Ok(size.bytes)
    }
}

/// Writes an image into memory, which the launch agent takes over; returns its size in bytes.
pub(crate) fn save_to_memory(
    agent: Option<&AgentLink>,
    header: &Header,
    save: &mut dyn FnMut(&mut Writer) -> Result<(), ImageError>,
) -> Result<u64, ImageError> {
    let path = memory::label(&header.set, header.rank);
    let failed = |source| ImageError::Write { path: path.clone(), source };
    let agent = agent.ok_or_else(|| {
        failed(std::io::Error::other("FTB_RANK_FD is not set: run with --memory"))
    })?;
    let memory = memory::create(&Header::file_name(header.rank)).map_err(failed)?;
    // Before it is there twice: the budget of the node is that of its memory.
    let (asked, set) = (agent.clone(), header.set.clone());
    let room: AskRoom = Box::new(move |bytes| asked.reserve(&set, bytes));
    let (memory, size) = image::write_within(Some(room), memory, &path, header, save)?;
    agent.put(&header.set, &memory).map_err(failed)?;
    Ok(size.bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::rank_socket::{AgentPacket, RankPacket, RankSocket};

    #[test]
    fn nothing_is_written_before_the_agent_has_kept_room_for_it() {
        let (agent, rank) = RankSocket::pair().unwrap();
        let node = AgentLink::new(RankSocket::new(rank));
        let header = Header {
            job: "job-1".to_owned(),
            rank: 3,
            size: 4,
            set: "mem-000007".to_owned(),
            episode: 7,
            safe_point: 1,
        };
        let serve = std::thread::spawn(move || {
            let mut heard = Vec::new();
            while let Some((packet, _)) = agent.receive().unwrap() {
                // Room for the first image only.
                let answer = match heard.len() {
                    0 | 1 => AgentPacket::Ok,
                    _ => AgentPacket::Refused("too small".to_owned()),
                };
                agent.send(&answer, None).unwrap();
                heard.push(match packet {
                    RankPacket::Room { .. } => "room",
                    RankPacket::Put { .. } => "put",
                    _ => "another",
                });
            }
            heard
        });
        let sizes = |sizes: &'static [usize]| {
            let mut written = 0;
            let mut save = |writer: &mut Writer| {
                for (at, bytes) in sizes.iter().enumerate() {
                    writer.bytes(&format!("section {at}"), &vec![1; *bytes])?;
                    written += bytes;
                }
                Ok(())
            };
            let saved = save_to_memory(Some(&node), &header, &mut save);
            (saved.map_err(|error| error.to_string()), written)
        };
        let (saved, _) = sizes(&[100, 3 << 20, 100]);
        assert!(saved.unwrap() > 3 << 20);
        let (saved, written) = sizes(&[100, 3 << 20, 100]);
        assert!(saved.unwrap_err().contains("too small"));
        assert_eq!(written, 100, "the large section was not begun");
        drop(node);
        assert_eq!(serve.join().unwrap(), ["room", "put", "room"]);
    }
}
