//! Images in the memory of the node. The rank writes its image into a memfd, seals it, and passes
//! the descriptor to its launch agent, which keeps it beyond the end of the rank.
//!
//! ```text
//! rank -> agent   room SET BYTES   is there room? before so much is written
//!                 put SET     with the sealed memfd
//!                 get SET          its own image
//!                 get SET RANK     that of a rank that is left out
//! agent -> rank   ok          to get: with the memfd
//!                 err REASON
//! ```
//!
//! Each message is one packet of at most [`PACKET_BYTES_MAX`] bytes on a socket that the rank
//! inherits (`FTB_MEMORY_FD`), so the agent knows whose it is. Responsible for both ends of this
//! socket. Not responsible for what is kept (the launch agent).

use crate::image::Header;
use crate::lock;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longest message in bytes.
pub const PACKET_BYTES_MAX: usize = 512;
/// What a memfd needs, so that its content stays as it is.
const SEALS: SealFlags = SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW);

/// Whether a set with this name is in the memory of the nodes.
pub(crate) fn is_memory_set(set: &str) -> bool {
    set.starts_with("mem-")
}

/// New memory that can be written until it is sealed.
///
/// # Errors
/// The system's.
pub fn create(name: &str) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    Ok(File::from(memfd_create(name, flags)?))
}

/// Makes memory unchangeable.
///
/// # Errors
/// The system's.
pub fn seal(memory: &File) -> io::Result<()> {
    Ok(fcntl_add_seals(memory, SEALS | SealFlags::SEAL)?)
}

/// Whether the content of this memory can never change.
#[must_use]
pub fn is_sealed(memory: &File) -> bool {
    fcntl_get_seals(memory).is_ok_and(|seals| seals.contains(SEALS))
}

/// One end of the socket between a rank and its launch agent.
#[derive(Debug)]
pub struct MemorySocket(OwnedFd);

impl MemorySocket {
    /// Both ends. The second is for the rank.
    ///
    /// # Errors
    /// The system's.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(ours), theirs))
    }

    /// The end that a rank has inherited.
    pub fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Sends a message, with a descriptor or without.
    ///
    /// # Errors
    /// The system's.
    pub fn send(&self, text: &str, with: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut end = text.len().min(PACKET_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let descriptors = with.map(|with| [with]);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if let Some(descriptors) = &descriptors {
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let bytes = [IoSlice::new(&text.as_bytes()[..end])];
        sendmsg(&self.0, &bytes, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// The next message; `None` at the end. Further descriptors are closed.
    ///
    /// # Errors
    /// The system's, or a message that is no text.
    pub fn receive(&self) -> io::Result<Option<(String, Option<OwnedFd>)>> {
        self.receive_with(RecvFlags::CMSG_CLOEXEC)
    }

    /// As [`MemorySocket::receive`], without waiting: [`io::ErrorKind::WouldBlock`] if there is
    /// none yet.
    ///
    /// # Errors
    /// As [`MemorySocket::receive`].
    pub fn try_receive(&self) -> io::Result<Option<(String, Option<OwnedFd>)>> {
        self.receive_with(RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT)
    }

    /// Sends a text without waiting: [`io::ErrorKind::WouldBlock`] if the other end does not
    /// receive.
    ///
    /// # Errors
    /// The system's.
    pub fn try_send(&self, text: &str) -> io::Result<()> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        Ok(rustix::net::send(&self.0, text.as_bytes(), flags).map(drop)?)
    }

    /// Waits at most this long for a message, or for the end; false: there is none.
    ///
    /// # Errors
    /// The system's.
    pub fn wait(&self, at_most: Duration) -> io::Result<bool> {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let until = Instant::now() + at_most;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], timeout) {
                Err(nix::errno::Errno::EINTR) => {}
                ready => return Ok(ready? > 0),
            }
        }
    }

    fn receive_with(&self, flags: RecvFlags) -> io::Result<Option<(String, Option<OwnedFd>)>> {
        let mut bytes = [0; PACKET_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut slices = [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.0, &mut slices, &mut ancillary, flags) {
                Err(rustix::io::Errno::INTR) => {}
                received => break received?.bytes,
            }
        };
        if received == 0 {
            return Ok(None);
        }
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                descriptors.extend(some);
            }
        }
        let text = std::str::from_utf8(&bytes[..received]).map_err(io::Error::other)?;
        Ok(Some((text.to_owned(), descriptors.into_iter().next())))
    }
}

/// A rank's way to the memory of its node.
#[derive(Clone, Debug)]
pub(crate) struct NodeMemory(Arc<Mutex<MemorySocket>>);

impl NodeMemory {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self(Arc::new(Mutex::new(MemorySocket::new(socket))))
    }

    /// How errors name an image.
    pub(crate) fn label(set: &str, rank: u32) -> PathBuf {
        Path::new("memory").join(set).join(Header::file_name(rank))
    }

    /// Has room kept for an image of this many bytes, before it is written. An image that is put
    /// takes it.
    pub(crate) fn reserve(&self, set: &str, bytes: u64) -> io::Result<()> {
        self.request(&format!("room {set} {bytes}"), None).map(drop)
    }

    /// Seals an image and hands it over.
    pub(crate) fn put(&self, set: &str, image: &File) -> io::Result<()> {
        seal(image)?;
        self.request(&format!("put {set}"), Some(image.as_fd())).map(drop)
    }

    /// This rank's image of a set, to be read from its beginning.
    pub(crate) fn get(&self, set: &str) -> io::Result<File> {
        self.got(&format!("get {set}"))
    }

    /// The image of another process that this node has.
    pub(crate) fn get_of(&self, set: &str, rank: u32) -> io::Result<File> {
        self.got(&format!("get {set} {rank}"))
    }

    fn got(&self, request: &str) -> io::Result<File> {
        let memory = self.request(request, None)?;
        let memory = memory.ok_or_else(|| io::Error::other("the answer has no image"))?;
        // An offset of its own.
        File::open(format!("/proc/self/fd/{}", memory.as_raw_fd()))
    }

    fn request(&self, text: &str, with: Option<BorrowedFd<'_>>) -> io::Result<Option<OwnedFd>> {
        let socket = lock(&self.0);
        socket.send(text, with)?;
        match socket.receive()? {
            Some((answer, memory)) if answer == "ok" => Ok(memory),
            Some((answer, _)) => {
                Err(io::Error::other(answer.strip_prefix("err ").unwrap_or(&answer).to_owned()))
            }
            None => Err(io::Error::other("the launch agent is gone")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::{Read as _, Write as _};

    #[test]
    fn an_image_passes_as_a_descriptor_and_cannot_be_changed_any_more() {
        let (agent, rank) = MemorySocket::pair().unwrap();
        let rank = NodeMemory::new(rank);
        let serve = std::thread::spawn(move || {
            let (text, image) = agent.receive().unwrap().unwrap();
            assert_eq!(text, "put mem-000001");
            let image = File::from(image.unwrap());
            assert!(is_sealed(&image));
            agent.send("ok", None).unwrap();
            assert_eq!(agent.receive().unwrap().unwrap().0, "get mem-000001");
            agent.send("ok", Some(image.as_fd())).unwrap();
            assert_eq!(agent.receive().unwrap().unwrap().0, "get mem-000002");
            agent.send("err there is none", None).unwrap();
            assert!(agent.receive().unwrap().is_none(), "the rank has ended");
        });
        let mut image = create("image").unwrap();
        image.write_all(b"state").unwrap();
        assert!(!is_sealed(&image));
        rank.put("mem-000001", &image).unwrap();
        assert!(image.write_all(b"more").is_err());
        let mut text = String::new();
        rank.get("mem-000001").unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "state");
        assert_eq!(rank.get("mem-000002").unwrap_err().to_string(), "there is none");
        drop(rank);
        serve.join().unwrap();
    }

    #[test]
    fn a_message_beyond_its_bound_is_cut_at_a_character() {
        let (one, other) = MemorySocket::pair().unwrap();
        let other = MemorySocket::new(other);
        one.send(&"ä".repeat(PACKET_BYTES_MAX), None).unwrap();
        let (text, _) = other.receive().unwrap().unwrap();
        assert_eq!(text, "ä".repeat(PACKET_BYTES_MAX / 2));
    }
}
