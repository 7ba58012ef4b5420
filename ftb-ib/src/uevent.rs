//! The kernel's notes that a device came or went, so that nobody has to poll for it.
//!
//! They come only in the host's network namespace; elsewhere, and where one is lost, the slow
//! listing of adapters finds the same.

use nix::sys::socket::{
    AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recvfrom, socket,
};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use tokio::io::Interest;

/// The multicast group of what the kernel itself says; 2 is udev's.
const KERNEL_GROUP: u32 = 1;
/// Longest note that is looked at (the kernel's UEVENT_BUFFER_SIZE is half of this).
const NOTE_BYTES_MAX: usize = 4096;

/// A socket on which the kernel tells of devices.
pub struct Uevents {
    /// A netlink socket: the type is that of datagrams on a descriptor which the runtime can wait
    /// for, and nothing of Unix sockets is used of it.
    socket: tokio::net::UnixDatagram,
}

impl Uevents {
    /// Starts listening. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// What the kernel said, for example in a sandbox without netlink.
    pub fn listen() -> io::Result<Self> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Datagram,
            SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkKObjectUEvent,
        )?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, KERNEL_GROUP))?;
        Ok(Self { socket: tokio::net::UnixDatagram::from_std(UnixDatagram::from(socket))? })
    }

    /// Waits until a device of the RDMA subsystem came, went or changed, or notes were lost.
    /// Cancel safe: a note is read only when this returns or goes on waiting.
    ///
    /// # Errors
    /// The socket is broken: no more notes will come.
    pub async fn rdma_changed(&self) -> io::Result<()> {
        let mut note = [0_u8; NOTE_BYTES_MAX];
        loop {
            let received =
                self.socket.async_io(Interest::READABLE, || receive(&self.socket, &mut note)).await;
            match received {
                Ok(Some(length)) if is_of_rdma(&note[..length.min(NOTE_BYTES_MAX)]) => {
                    return Ok(());
                }
                Ok(_) => {}
                // Notes were lost: anything may have happened.
                Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// One note; `None` where it is not from the kernel.
fn receive(socket: &impl AsRawFd, note: &mut [u8]) -> io::Result<Option<usize>> {
    let (length, sender) = recvfrom::<NetlinkAddr>(socket.as_raw_fd(), note)?;
    Ok(sender.is_some_and(|sender| sender.pid() == 0).then_some(length))
}

/// A note is `ACTION@PATH` and then `KEY=VALUE` fields, each ended by NUL.
fn is_of_rdma(note: &[u8]) -> bool {
    note.split(|byte| *byte == 0)
        .any(|field| matches!(field, b"SUBSYSTEM=infiniband" | b"SUBSYSTEM=infiniband_verbs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_notes_of_the_rdma_subsystems_count() {
        let note = |subsystem: &str| format!("add@/devices/x\0ACTION=add\0SUBSYSTEM={subsystem}\0");
        assert!(is_of_rdma(note("infiniband").as_bytes()));
        assert!(is_of_rdma(note("infiniband_verbs").as_bytes()));
        assert!(!is_of_rdma(note("infiniband_mad").as_bytes()));
        assert!(!is_of_rdma(note("net").as_bytes()));
        assert!(!is_of_rdma(b""));
        assert!(!is_of_rdma(&[0xff; 5000]));
    }
}
