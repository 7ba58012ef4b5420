//! The kernel's interface to a local BMC (`linux/ipmi.h`): three calls and their structures. The
//! only module with unsafe code; callers see plain data.
#![allow(unsafe_code, reason = "ioctl takes pointers")]

use ftb_rmcp::Destination;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Largest message of the kernel driver, in bytes.
const MESSAGE_BYTES_MAX: usize = 272;
const ADDRESS_SYSTEM_INTERFACE: i32 = 0x0C;
const ADDRESS_IPMB: i32 = 0x01;
const CHANNEL_BMC: i16 = 0x0F;

/// `recv_type` of an answer to a command.
pub(crate) const RECEIVED_ANSWER: i32 = 1;
/// `recv_type` of an event that the BMC pushed.
pub(crate) const RECEIVED_EVENT: i32 = 2;

/// `struct ipmi_system_interface_addr` (data: logical unit) or `struct ipmi_ipmb_addr` (data: slave
/// address, logical unit). Padded to the size of `struct ipmi_addr`, which the driver may write.
#[repr(C)]
struct Address {
    kind: i32,
    channel: i16,
    data: [u8; 34],
}

/// `struct ipmi_msg`.
#[repr(C)]
struct Payload {
    netfn: u8,
    command: u8,
    data_len: u16,
    data: *mut u8,
}

/// `struct ipmi_req`.
#[repr(C)]
struct Request {
    address: *mut Address,
    address_len: u32,
    id: libc::c_long,
    payload: Payload,
}

/// `struct ipmi_recv`.
#[repr(C)]
struct Receive {
    kind: i32,
    address: *mut Address,
    address_len: u32,
    id: libc::c_long,
    payload: Payload,
}

nix::ioctl_readwrite!(receive_truncated, b'i', 11, Receive);
nix::ioctl_read!(send_command, b'i', 13, Request);
nix::ioctl_read!(set_gets_events, b'i', 16, libc::c_int);

/// A message from the driver.
pub(crate) struct Received {
    /// [`RECEIVED_ANSWER`], [`RECEIVED_EVENT`] or another kind.
    pub(crate) kind: i32,
    /// Number of the request; 0 for events.
    pub(crate) id: i64,
    pub(crate) netfn: u8,
    pub(crate) command: u8,
    pub(crate) data: Vec<u8>,
}

/// Sends a request; its answer repeats `id`.
pub(crate) fn send(
    device: &File,
    id: i64,
    to: Destination,
    netfn: u8,
    command: u8,
    data: &[u8],
) -> io::Result<()> {
    let mut address =
        Address { kind: ADDRESS_SYSTEM_INTERFACE, channel: CHANNEL_BMC, data: [0; 34] };
    if to.controller.is_bmc() {
        address.data[0] = to.lun;
    } else {
        // The driver relays, resends and matches the answer.
        (address.kind, address.channel) = (ADDRESS_IPMB, to.controller.channel.into());
        address.data[..2].copy_from_slice(&[to.controller.slave, to.lun]);
    }
    // The driver only reads from the pointer, but the C structure has no const.
    let mut data = data.to_vec();
    let mut request = Request {
        address: &raw mut address,
        // Both structures: two integers and one or two bytes, aligned to four.
        address_len: 8,
        id,
        payload: Payload {
            netfn,
            command,
            data_len: u16::try_from(data.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
            data: data.as_mut_ptr(),
        },
    };
    // SAFETY: the file is open for the call; every pointer is to a live local of the stated size.
    unsafe { send_command(device.as_raw_fd(), &raw mut request) }?;
    Ok(())
}

/// Receives the next message; `WouldBlock` if there is none.
pub(crate) fn receive(device: &File) -> io::Result<Received> {
    let mut address = Address { kind: 0, channel: 0, data: [0; 34] };
    let mut data = [0_u8; MESSAGE_BYTES_MAX];
    let mut receive = Receive {
        kind: 0,
        address: &raw mut address,
        address_len: u32::try_from(size_of::<Address>()).unwrap_or(0),
        id: 0,
        payload: Payload {
            netfn: 0,
            command: 0,
            data_len: u16::try_from(MESSAGE_BYTES_MAX).unwrap_or(0),
            data: data.as_mut_ptr(),
        },
    };
    // SAFETY: as in `send`; the driver writes at most the stated lengths.
    match unsafe { receive_truncated(device.as_raw_fd(), &raw mut receive) } {
        // A truncated message fails the checks of its command later.
        Ok(_) | Err(nix::errno::Errno::EMSGSIZE) => {}
        Err(error) => return Err(error.into()),
    }
    let length = usize::from(receive.payload.data_len).min(MESSAGE_BYTES_MAX);
    Ok(Received {
        kind: receive.kind,
        id: receive.id,
        netfn: receive.payload.netfn,
        command: receive.payload.command,
        data: data[..length].to_vec(),
    })
}

/// Registers an open device with the runtime.
pub(crate) fn watch(device: File) -> io::Result<AsyncFd<File>> {
    // SAFETY: the file stays open with the same descriptor while the `AsyncFd` owns it; no code
    // takes it out or replaces it.
    unsafe { AsyncFd::register_with_interest(device, Interest::READABLE) }.map_err(Into::into)
}

/// Requests the events that the BMC pushes.
pub(crate) fn enable_events(device: &File) -> io::Result<()> {
    let mut on: libc::c_int = 1;
    // SAFETY: the pointer is to a live local integer, which the driver reads.
    unsafe { set_gets_events(device.as_raw_fd(), &raw mut on) }?;
    Ok(())
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_of_the_kernel_header() {
        assert_eq!(size_of::<Address>(), 40);
        assert_eq!(size_of::<Payload>(), 16);
        assert_eq!(size_of::<Request>(), 40);
        assert_eq!(size_of::<Receive>(), 48);
        assert_eq!(std::mem::offset_of!(Receive, id), 24);
        assert_eq!(std::mem::offset_of!(Request, payload), 24);
    }
}
