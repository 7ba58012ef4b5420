//! Kernel events (uevents) about devices, so that changes are found without polling.
//!
//! They exist only in the network namespace of the host. Elsewhere, and if one is lost, the regular
//! listing of adapters finds the same.

use nix::sys::socket::{
    AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recvfrom, socket,
};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use tokio::io::Interest;

/// Multicast group of the kernel; 2 is the group of udev.
const KERNEL_GROUP: u32 = 1;
/// Longest uevent (the kernel's UEVENT_BUFFER_SIZE is half of this).
const UEVENT_BYTES_MAX: usize = 4096;

/// A socket for uevents.
pub struct Uevents {
    /// A netlink socket. The type serves only as a descriptor that the runtime can wait for.
    socket: tokio::net::UnixDatagram,
}

impl Uevents {
    /// Starts listening. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The error of the kernel, for example in a sandbox without netlink.
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

    /// Waits until a device of the RDMA subsystem came, went or changed, or uevents were lost.
    /// Cancel safe.
    ///
    /// # Errors
    /// The socket is broken: no more uevents will come.
    pub async fn rdma_changed(&self) -> io::Result<()> {
        let mut uevent = [0_u8; UEVENT_BYTES_MAX];
        loop {
            let received = self
                .socket
                .async_io(Interest::READABLE, || receive(&self.socket, &mut uevent))
                .await;
            match received {
                Ok(Some(length)) if is_of_rdma(&uevent[..length.min(UEVENT_BYTES_MAX)]) => {
                    return Ok(());
                }
                Ok(_) => {}
                // Uevents were lost: any device may have changed.
                Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Length of one uevent; `None` if the sender is not the kernel.
fn receive(socket: &impl AsRawFd, uevent: &mut [u8]) -> io::Result<Option<usize>> {
    let (length, sender) = recvfrom::<NetlinkAddr>(socket.as_raw_fd(), uevent)?;
    Ok(sender.is_some_and(|sender| sender.pid() == 0).then_some(length))
}

/// A uevent is `ACTION@PATH` and then `KEY=VALUE` fields, each ended by NUL.
fn is_of_rdma(uevent: &[u8]) -> bool {
    uevent
        .split(|byte| *byte == 0)
        .any(|field| matches!(field, b"SUBSYSTEM=infiniband" | b"SUBSYSTEM=infiniband_verbs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_uevents_of_the_rdma_subsystems_count() {
        let uevent =
            |subsystem: &str| format!("add@/devices/x\0ACTION=add\0SUBSYSTEM={subsystem}\0");
        assert!(is_of_rdma(uevent("infiniband").as_bytes()));
        assert!(is_of_rdma(uevent("infiniband_verbs").as_bytes()));
        assert!(!is_of_rdma(uevent("infiniband_mad").as_bytes()));
        assert!(!is_of_rdma(uevent("net").as_bytes()));
        assert!(!is_of_rdma(b""));
        assert!(!is_of_rdma(&[0xff; 5000]));
    }
}
