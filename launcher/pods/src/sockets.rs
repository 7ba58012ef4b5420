//! Bytes that the TCP sockets of this network have carried, by inode (sock_diag(7)).

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};
use std::collections::BTreeMap;
use std::os::fd::AsRawFd as _;

/// Most sockets that are looked at.
const SOCKETS_MAX: usize = 65_536;
/// More than the kernel puts into one datagram.
const DATAGRAM_BYTES: usize = 64 * 1024;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const TCP: u8 = 6;
/// All states but LISTEN.
const STATES: u32 = !(1 << 10);
/// `INET_DIAG_INFO` of attributes, and its bit in a request.
const INFO: u16 = 2;
const WANT_INFO: u8 = 1 << (INFO - 1);
/// `SOCK_DIAG_BY_FAMILY`, `NLMSG_DONE`, `NLMSG_ERROR`.
const BY_FAMILY: u16 = 20;
const DONE: u16 = 3;
const ERROR: u16 = 2;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
/// Lengths of `nlmsghdr`, `inet_diag_req_v2`, `inet_diag_msg`; where the last one has the inode.
const HEADER: usize = 16;
const REQUEST: usize = 56;
const MESSAGE: usize = 72;
const INODE_AT: usize = 68;
/// Where `tcp_info` has `tcpi_bytes_acked` and `tcpi_bytes_received`.
const ACKED_AT: usize = 120;
const RECEIVED_AT: usize = 128;

/// Sent and received bytes of each TCP socket. Empty where the kernel does not answer.
pub(crate) fn carried() -> BTreeMap<u64, u64> {
    let mut all = BTreeMap::new();
    for family in [AF_INET, AF_INET6] {
        if let Err(error) = dump(family, &mut all) {
            tracing::debug!(%error, "the kernel shows no bytes of sockets");
        }
    }
    all
}

fn dump(family: u8, all: &mut BTreeMap<u64, u64>) -> nix::Result<()> {
    let (kind, flags) = (SockType::Datagram, SockFlag::SOCK_CLOEXEC);
    let diagnosis = Some(SockProtocol::NetlinkSockDiag);
    let socket = socket(AddressFamily::Netlink, kind, flags, diagnosis)?;
    let fd = socket.as_raw_fd();
    sendto(fd, &request(family), &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    let mut buffer = vec![0; DATAGRAM_BYTES];
    loop {
        // The kernel has put the answer there by now.
        let length = recv(fd, &mut buffer, MsgFlags::MSG_DONTWAIT)?;
        if read(&buffer[..length], all) || all.len() >= SOCKETS_MAX {
            return Ok(());
        }
    }
}

fn request(family: u8) -> Vec<u8> {
    let length = u32::try_from(HEADER + REQUEST).unwrap_or(0);
    let mut bytes = Vec::with_capacity(HEADER + REQUEST);
    bytes.extend(length.to_ne_bytes());
    bytes.extend([BY_FAMILY, DUMP].into_iter().flat_map(u16::to_ne_bytes));
    bytes.extend([0; 8]);
    bytes.extend([family, TCP, WANT_INFO, 0]);
    bytes.extend(STATES.to_ne_bytes());
    bytes.resize(HEADER + REQUEST, 0);
    bytes
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The part of this length, and the rest behind its padding.
fn split(bytes: &[u8], length: usize) -> Option<(&[u8], &[u8])> {
    let part = bytes.get(..length)?;
    Some((part, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// Reads a datagram; returns whether it is the last one.
fn read(mut bytes: &[u8], all: &mut BTreeMap<u64, u64>) -> bool {
    while let Some((length, kind)) = u32_at(bytes, 0).zip(u16_at(bytes, 4)) {
        let length = usize::try_from(length).unwrap_or(usize::MAX).max(HEADER);
        let Some((message, rest)) = split(bytes, length) else { return true };
        match kind {
            DONE | ERROR => return true,
            BY_FAMILY => all.extend(of_socket(&message[HEADER..])),
            _ => {}
        }
        bytes = rest;
    }
    false
}

/// Inode and bytes of an `inet_diag_msg`.
fn of_socket(message: &[u8]) -> Option<(u64, u64)> {
    let inode = u64::from(u32_at(message, INODE_AT)?);
    let mut attributes = message.get(MESSAGE..)?;
    while let Some((length, kind)) = u16_at(attributes, 0).zip(u16_at(attributes, 2)) {
        let (attribute, rest) = split(attributes, usize::from(length).max(4))?;
        if kind == INFO {
            let info = &attribute[4..];
            let (acked, received) = (u64_at(info, ACKED_AT)?, u64_at(info, RECEIVED_AT)?);
            return Some((inode, acked.saturating_add(received)));
        }
        attributes = rest;
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn the_kernel_counts_what_a_socket_carries() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(host) else { continue };
            let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut receiver, _) = listener.accept().unwrap();
            let fd = std::path::PathBuf::from(format!("/proc/self/fd/{}", receiver.as_raw_fd()));
            let inode = std::fs::metadata(fd).unwrap().ino();
            let before = carried()[&inode];
            sender.write_all(&[7; 1000]).unwrap();
            receiver.read_exact(&mut [0; 1000]).unwrap();
            assert_eq!(carried()[&inode] - before, 1000, "{host}");
        }
    }

    /// An answer of the kernel with one socket.
    fn answer() -> Vec<u8> {
        let mut message = vec![0; MESSAGE + 4 + RECEIVED_AT + 8];
        message[INODE_AT..MESSAGE].copy_from_slice(&77_u32.to_ne_bytes());
        let info = u16::try_from(message.len() - MESSAGE).unwrap();
        message[MESSAGE..MESSAGE + 2].copy_from_slice(&info.to_ne_bytes());
        message[MESSAGE + 2..MESSAGE + 4].copy_from_slice(&INFO.to_ne_bytes());
        let info = MESSAGE + 4;
        message[info + ACKED_AT..info + RECEIVED_AT].copy_from_slice(&30_u64.to_ne_bytes());
        message[info + RECEIVED_AT..].copy_from_slice(&12_u64.to_ne_bytes());
        let length = u32::try_from(HEADER + message.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(BY_FAMILY.to_ne_bytes());
        bytes.resize(HEADER, 0);
        bytes.extend(message);
        bytes
    }

    #[test]
    fn broken_answers_are_read_as_far_as_they_go() {
        let good = answer();
        let sockets = |bytes: &[u8]| {
            let mut all = BTreeMap::new();
            let is_last = read(bytes, &mut all);
            (is_last, all)
        };
        assert_eq!(sockets(&good), (false, BTreeMap::from([(77, 42)])));
        for length in 0..good.len() {
            assert!(sockets(&good[..length]).1.is_empty());
        }
        for at in 0..good.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut bytes = good.clone();
                bytes[at] = byte;
                assert!(sockets(&bytes).1.len() <= 1);
            }
        }
    }
}
