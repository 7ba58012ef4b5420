//! The socket between a process of a job and its launch agent. The process inherits it
//! (`FTB_RANK_FD`), so the agent knows whose it is.
//!
//! Each message is one packet ([`ftb_launcher_core::packet`]), with at most one descriptor.
//! Responsible for both ends of this socket. Not responsible for what the agent keeps, and which
//! rank adopts a process.

use crate::descriptor::inherited;
use crate::error::{Error, Result};
use crate::lock;
use crate::memory::seal;
use ftb_launcher_core::packet::PacketHead;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, recv, recvmsg, sendmsg,
    shutdown, socketpair,
};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The variable with the number of the descriptor.
pub const RANK_FD: &str = "FTB_RANK_FD";
/// Longest packet in bytes. The buffer of an idle socket has room for one.
pub const PACKET_BYTES_MAX: usize = 64 * 1024;
/// Most characters of a reason in a packet.
const REASON_CHARS_MAX: usize = 400;
/// Most orders that wait for the next call of `ftb_loop`.
const ORDERS_MAX: usize = 64;

/// Of the launch agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "fields that their names explain")]
pub enum AgentPacket {
    /// The request is executed. To [`RankPacket::Get`] with the memfd.
    Ok,
    /// The request is not executed, with the reason.
    Refused(String),
    /// Report the loop id.
    Where,
    /// Be saved at this loop id; without one at that of the first call.
    Save { episode: u64, set: String, loop_id: Option<u64> },
    /// Nothing is saved.
    Cancel,
    /// Become a rank with these variables.
    Adopt(Vec<(String, String)>),
}

/// Of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "fields that their names explain")]
pub enum RankPacket {
    /// Keep room for an image, before so much is written.
    Room { set: String, bytes: u64 },
    /// The image of this rank, as a sealed memfd.
    Put { set: String },
    /// The image of a rank.
    Get { set: String, rank: u32 },
    /// The next loop id, and microseconds of an iteration.
    At { loop_id: u64, period_us: u64 },
    /// The process is saved.
    Saved { set: String, bytes: u64 },
    /// The process is behind the loop id of the save.
    Missed { set: String },
    /// The process is not saved.
    Failed { set: String, reason: String },
    /// The process waits for a rank.
    Parked,
    /// The process is a rank.
    Adopted,
}

impl PacketHead for AgentPacket {}

impl PacketHead for RankPacket {}

/// The text of a reason, short enough for a packet.
pub fn reason(of: &dyn core::fmt::Display) -> String {
    of.to_string().chars().take(REASON_CHARS_MAX).collect()
}

/// One end of the socket.
#[derive(Debug)]
pub struct RankSocket(OwnedFd);

impl RankSocket {
    /// Both ends. The second is for the process.
    ///
    /// # Errors
    /// The system's.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(ours), theirs))
    }

    /// The end that a process has inherited.
    pub fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// The end of this process, from a number in its environment.
    pub(crate) fn from_env() -> Result<Option<Self>> {
        let Some(number) = std::env::var(RANK_FD).ok().filter(|number| !number.is_empty()) else {
            return Ok(None);
        };
        let descriptor = number.parse().map_err(|_| Error::Environment {
            variable: RANK_FD,
            problem: "expected a decimal number".to_owned(),
            value: number,
        })?;
        inherited(RANK_FD, descriptor).map(|socket| Some(Self(socket)))
    }

    /// Sends a packet, with a descriptor or without.
    ///
    /// # Errors
    /// The system's, or a packet beyond [`PACKET_BYTES_MAX`].
    pub fn send(
        &self,
        packet: &(impl PacketHead + Clone),
        with: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        self.send_with(packet, with, SendFlags::NOSIGNAL)
    }

    /// Sends a packet without waiting: [`ErrorKind::WouldBlock`] if the other end does not receive.
    ///
    /// # Errors
    /// As [`RankSocket::send`].
    pub fn try_send(&self, packet: &(impl PacketHead + Clone)) -> io::Result<()> {
        self.send_with(packet, None, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    fn send_with(
        &self,
        packet: &(impl PacketHead + Clone),
        with: Option<BorrowedFd<'_>>,
        flags: SendFlags,
    ) -> io::Result<()> {
        let line = packet.clone().encode();
        if line.len() > PACKET_BYTES_MAX {
            let problem = format!("{} bytes are too many for a packet", line.len());
            return Err(io::Error::new(ErrorKind::InvalidInput, problem));
        }
        let descriptors = with.map(|with| [with]);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if let Some(descriptors) = &descriptors {
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        sendmsg(&self.0, &[IoSlice::new(&line)], &mut ancillary, flags)?;
        Ok(())
    }

    /// The next packet; `None` at the end. Further descriptors are closed.
    ///
    /// # Errors
    /// The system's, or something else than such a packet.
    pub fn receive<T: PacketHead>(&self) -> io::Result<Option<(T, Option<OwnedFd>)>> {
        self.receive_with(RecvFlags::empty())
    }

    /// As [`RankSocket::receive`], without waiting: [`ErrorKind::WouldBlock`] if there is none yet.
    ///
    /// # Errors
    /// As [`RankSocket::receive`].
    pub fn try_receive<T: PacketHead>(&self) -> io::Result<Option<(T, Option<OwnedFd>)>> {
        self.receive_with(RecvFlags::DONTWAIT)
    }

    /// Waits at most this long for a packet, or for the end; false: there is none.
    ///
    /// # Errors
    /// The system's.
    fn wait(&self, at_most: Duration) -> io::Result<bool> {
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

    /// Ends the connection for both ends, also while a thread waits for a packet.
    pub fn close(&self) {
        let _ = shutdown(&self.0, Shutdown::Both);
    }

    /// There is one receiver, so the packet whose length is seen is the one that is taken.
    fn receive_with<T: PacketHead>(
        &self,
        flags: RecvFlags,
    ) -> io::Result<Option<(T, Option<OwnedFd>)>> {
        let look = flags | RecvFlags::PEEK | RecvFlags::TRUNC;
        let length = unless_interrupted(|| recv(&self.0, &mut [0_u8; 1], look))?.1;
        if length > PACKET_BYTES_MAX {
            return Err(io::Error::other(format!("a packet of {length} bytes")));
        }
        let mut line = vec![0; length];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = flags | RecvFlags::CMSG_CLOEXEC;
        let received = unless_interrupted(|| {
            recvmsg(&self.0, &mut [IoSliceMut::new(&mut line)], &mut ancillary, flags)
        })?;
        if received.bytes == 0 {
            return Ok(None);
        }
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                descriptors.extend(some);
            }
        }
        line.truncate(received.bytes);
        let packet = T::decode(line.into()).map_err(io::Error::other)?;
        Ok(Some((packet, descriptors.into_iter().next())))
    }
}

fn unless_interrupted<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

/// The connection of this process to its launch agent.
#[derive(Clone, Debug)]
pub(crate) struct AgentLink(Arc<Mutex<AgentSide>>);

#[derive(Debug)]
struct AgentSide {
    socket: RankSocket,
    /// Those that arrived instead of the answer to a request.
    orders: VecDeque<AgentPacket>,
}

impl AgentLink {
    pub(crate) fn new(socket: RankSocket) -> Self {
        Self(Arc::new(Mutex::new(AgentSide { socket, orders: VecDeque::new() })))
    }

    fn side(&self) -> MutexGuard<'_, AgentSide> {
        lock(&self.0)
    }

    /// Has room kept for an image of this many bytes, before it is written. An image that is put
    /// takes it.
    pub(crate) fn reserve(&self, set: &str, bytes: u64) -> io::Result<()> {
        self.request(&RankPacket::Room { set: set.to_owned(), bytes }, None).map(drop)
    }

    /// Seals an image and hands it over.
    pub(crate) fn put(&self, set: &str, image: &File) -> io::Result<()> {
        seal(image)?;
        self.request(&RankPacket::Put { set: set.to_owned() }, Some(image.as_fd())).map(drop)
    }

    /// The image of a rank that this node has, to be read from its beginning.
    pub(crate) fn get(&self, set: &str, rank: u32) -> io::Result<File> {
        let memory = self.request(&RankPacket::Get { set: set.to_owned(), rank }, None)?;
        let memory = memory.ok_or_else(|| io::Error::other("the answer has no image"))?;
        // An offset of its own.
        File::open(format!("/proc/self/fd/{}", memory.as_raw_fd()))
    }

    fn request(
        &self,
        request: &RankPacket,
        with: Option<BorrowedFd<'_>>,
    ) -> io::Result<Option<OwnedFd>> {
        let mut side = self.side();
        side.socket.send(request, with)?;
        loop {
            match side.socket.receive()? {
                Some((AgentPacket::Ok, memory)) => return Ok(memory),
                Some((AgentPacket::Refused(reason), _)) => return Err(io::Error::other(reason)),
                Some((order, _)) if side.orders.len() < ORDERS_MAX => side.orders.push_back(order),
                Some(_) => return Err(io::Error::other("more orders than a rank can have")),
                None => return Err(io::Error::other("the launch agent is gone")),
            }
        }
    }

    /// The next order, if there is one.
    pub(crate) fn order(&self) -> io::Result<Option<AgentPacket>> {
        let mut side = self.side();
        if let Some(order) = side.orders.pop_front() {
            return Ok(Some(order));
        }
        match side.socket.try_receive() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
            Ok(None) => Err(io::Error::from(ErrorKind::UnexpectedEof)),
            Ok(Some((order, _))) => Ok(Some(order)),
        }
    }

    /// Waits at most this long for an order, or for the end; false: there is none.
    pub(crate) fn wait(&self, at_most: Duration) -> io::Result<bool> {
        let side = self.side();
        if side.orders.is_empty() { side.socket.wait(at_most) } else { Ok(true) }
    }

    pub(crate) fn report(&self, packet: &RankPacket) -> io::Result<()> {
        self.side().socket.send(packet, None)
    }
}

#[cfg(test)]
mod tests;
