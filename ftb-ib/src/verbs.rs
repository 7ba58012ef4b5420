//! The verbs library, loaded at run time: the only module with `unsafe` in it.
//!
//! Types come from the crates `ibverbs`/`ibverbs-sys` and `rdma-sys`. Functions are looked up in
//! `libibverbs.so.1`, so that the binary starts without the library. The two crates were generated
//! from different headers. Each call uses the structs of one crate only (devices and ports:
//! ibverbs; asynchronous events: rdma-sys). Enumerations from the library are read as numbers: a
//! value newer than the headers must not become a Rust enum. A test compares sizes, offsets and
//! numbers with the installed C headers.
#![allow(unsafe_code, reason = "calls into a C library that is loaded at run time")]

use crate::facts::{PortReading, PortState, link_layer_word, speed_words};
use ibverbs::Guid;
use ibverbs_sys as ffi;
use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::{NonNull, addr_of};
use std::sync::Arc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// File name of the library, the same in every distribution.
const LIBRARY: &str = "libibverbs.so.1";
/// Most devices of the list; further ones are ignored.
const DEVICES_MAX: usize = 1024;

/// Why verbs do not work.
#[derive(Debug, thiserror::Error)]
pub enum VerbsError {
    /// The library is missing or too old.
    #[error("{0}: install libibverbs1 and ibverbs-providers (or rdma-core)")]
    Library(#[from] libloading::Error),
    /// The library cannot list devices.
    #[error("cannot list verbs devices: {0}: is the kernel module ib_uverbs loaded?")]
    List(io::Error),
    /// The kernel has the device, but the library does not.
    #[error("{0}: no verbs device of this name: install the provider (ibverbs-providers)")]
    NoDevice(String),
    /// The device cannot be opened.
    #[error("{name}: cannot open the device: {error}: {}", advice(error))]
    Open {
        /// Name of the device.
        name: String,
        /// The cause.
        error: io::Error,
    },
    /// Sysfs and the library have different devices of this name.
    #[error("{0}: another device has got this name")]
    Replaced(String),
    /// The descriptor for events is none: the library does not match the headers.
    #[error("{0}: the context of the library has no descriptor for events at its place")]
    Layout(String),
}

/// What an administrator can do if the device does not open.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "give the user of the service access (deploy/udev/70-ftb-ib.rules)"
        }
        _ => "see the messages of its driver in the kernel log",
    }
}

type ListFn = unsafe extern "C" fn(*mut c_int) -> *mut *mut ffi::ibv_device;
type FreeFn = unsafe extern "C" fn(*mut *mut ffi::ibv_device);
type NameFn = unsafe extern "C" fn(*mut ffi::ibv_device) -> *const c_char;
type GuidFn = unsafe extern "C" fn(*mut ffi::ibv_device) -> ffi::__be64;
type OpenFn = unsafe extern "C" fn(*mut ffi::ibv_device) -> *mut ffi::ibv_context;
type CloseFn = unsafe extern "C" fn(*mut ffi::ibv_context) -> c_int;
type QueryPortFn =
    unsafe extern "C" fn(*mut ffi::ibv_context, u8, *mut ffi::ibv_port_attr) -> c_int;
type GetEventFn =
    unsafe extern "C" fn(*mut rdma_sys::ibv_context, *mut rdma_sys::ibv_async_event) -> c_int;
type AckEventFn = unsafe extern "C" fn(*mut rdma_sys::ibv_async_event);

/// The functions of the library.
pub struct Verbs {
    list: ListFn,
    free: FreeFn,
    name: NameFn,
    guid: GuidFn,
    open: OpenFn,
    close: CloseFn,
    query_port: QueryPortFn,
    get_event: GetEventFn,
    ack_event: AckEventFn,
    /// Keeps the functions above loaded.
    _library: libloading::Library,
}

impl Verbs {
    /// Loads the library.
    ///
    /// # Errors
    /// [`VerbsError::Library`] if the library, or one of its functions, is missing.
    pub fn load() -> Result<Arc<Self>, VerbsError> {
        // SAFETY: at load time libibverbs only registers its providers. Every symbol has the type
        // that <infiniband/verbs.h> declares. The symbols have the default versions of ABI 1.1,
        // which has not changed since 2006.
        unsafe {
            let library = libloading::Library::new(LIBRARY)?;
            Ok(Arc::new(Self {
                list: *library.get(b"ibv_get_device_list\0")?,
                free: *library.get(b"ibv_free_device_list\0")?,
                name: *library.get(b"ibv_get_device_name\0")?,
                guid: *library.get(b"ibv_get_device_guid\0")?,
                open: *library.get(b"ibv_open_device\0")?,
                close: *library.get(b"ibv_close_device\0")?,
                query_port: *library.get(b"ibv_query_port\0")?,
                get_event: *library.get(b"ibv_get_async_event\0")?,
                ack_event: *library.get(b"ibv_ack_async_event\0")?,
                _library: library,
            }))
        }
    }

    /// Opens the device of this name, in any state of its ports. From now on the kernel keeps its
    /// events.
    ///
    /// # Errors
    /// [`VerbsError`]: no such device, no permission, or an incompatible library.
    pub fn open(self: &Arc<Self>, name: &str) -> Result<Context, VerbsError> {
        let list = DeviceList::new(self)?;
        let device = list.find(name).ok_or_else(|| VerbsError::NoDevice(name.to_owned()))?;
        // SAFETY: the device is from the list, which lives until the end of this function. The
        // opened context does not need the list (man 3 ibv_get_device_list).
        let (context, guid) = unsafe { ((self.open)(device), (self.guid)(device)) };
        let context = NonNull::new(context).ok_or_else(|| VerbsError::Open {
            name: name.to_owned(),
            error: io::Error::last_os_error(),
        })?;
        let context =
            Context { verbs: Arc::clone(self), context, guid: Guid::from(u64::from_be(guid)) };
        context.prepare().map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => VerbsError::Layout(name.to_owned()),
            _ => VerbsError::Open { name: name.to_owned(), error },
        })?;
        Ok(context)
    }
}

/// The list of devices; freed when dropped.
struct DeviceList<'a> {
    verbs: &'a Verbs,
    devices: *mut *mut ffi::ibv_device,
    count: usize,
}

impl<'a> DeviceList<'a> {
    fn new(verbs: &'a Verbs) -> Result<Self, VerbsError> {
        let mut count = 0;
        // SAFETY: the pointer is to a live integer.
        let devices = unsafe { (verbs.list)(&raw mut count) };
        if devices.is_null() {
            return Err(VerbsError::List(io::Error::last_os_error()));
        }
        let count = usize::try_from(count).unwrap_or(0).min(DEVICES_MAX);
        Ok(Self { verbs, devices, count })
    }

    fn find(&self, name: &str) -> Option<*mut ffi::ibv_device> {
        (0..self.count).find_map(|index| {
            // SAFETY: the list has `count` devices, each valid as long as the list, and the name
            // of a device is a string in it that ends with NUL.
            unsafe {
                let device = *self.devices.add(index);
                let found = CStr::from_ptr((self.verbs.name)(device));
                (found.to_bytes() == name.as_bytes()).then_some(device)
            }
        })
    }
}

impl Drop for DeviceList<'_> {
    fn drop(&mut self) {
        // SAFETY: the list is from the library and is freed once.
        unsafe { (self.verbs.free)(self.devices) }
    }
}

/// An asynchronous event, already acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// `enum ibv_event_type` as a number; it may be newer than the headers.
    pub number: u32,
    /// The first 32 bits of the element: the port, for events of ports.
    pub port: i32,
}

/// `struct ibv_async_event` with its enumeration as a number.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawEvent {
    element: RawElement,
    event_type: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
union RawElement {
    object: *mut std::ffi::c_void,
    port_num: c_int,
}

/// An open device. Closed when dropped.
pub struct Context {
    verbs: Arc<Verbs>,
    context: NonNull<ffi::ibv_context>,
    guid: Guid,
}

// SAFETY: the functions of the library may be called from any thread (man 7 libibverbs), and this
// is the only owner of the context.
unsafe impl Send for Context {}
// SAFETY: `&Context` only reads the descriptor and calls functions that lock for themselves.
unsafe impl Sync for Context {}

impl Context {
    /// Node GUID of the device.
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// Checks that the descriptor is one for events, and makes it non-blocking.
    fn prepare(&self) -> io::Result<()> {
        let fd = self.as_raw_fd();
        let link = std::fs::read_link(format!("/proc/self/fd/{fd}"))?;
        if !link.to_string_lossy().contains("infinibandevent") {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: the link shows that the descriptor is open, and the context keeps it open.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        let flags = nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_GETFL)?;
        let flags = nix::fcntl::OFlag::from_bits_retain(flags) | nix::fcntl::OFlag::O_NONBLOCK;
        nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETFL(flags))?;
        Ok(())
    }

    /// Registers the context with the runtime: it is readable when it has events. Must be called
    /// within a runtime.
    ///
    /// # Errors
    /// The runtime cannot wait for more descriptors.
    pub fn wait_for_events(self) -> io::Result<AsyncFd<Self>> {
        // SAFETY: the descriptor belongs to the context, never changes, and is open until the
        // context is dropped.
        Ok(unsafe { AsyncFd::register_with_interest(self, Interest::READABLE) }?)
    }

    /// The next event. It is acknowledged at once: the context has no queues that depend on it.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; any other error means that the device is gone.
    pub fn next_event(&self) -> io::Result<AsyncEvent> {
        let mut event = MaybeUninit::<rdma_sys::ibv_async_event>::zeroed();
        // SAFETY: the context is open, and the event is a live struct of the size of the C type. It
        // is read through our own struct, which has the same layout and accepts any number. The
        // element holds a port number or a pointer: its first bytes are a valid number in both.
        unsafe {
            let context = self.context.as_ptr().cast::<rdma_sys::ibv_context>();
            if (self.verbs.get_event)(context, event.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            let raw = event.as_ptr().cast::<RawEvent>().read();
            (self.verbs.ack_event)(event.as_mut_ptr());
            Ok(AsyncEvent { number: raw.event_type, port: raw.element.port_num })
        }
    }

    /// The current state of the port. Blocks for the duration of a command to the adapter.
    ///
    /// # Errors
    /// The error of the driver: no such port, or the device is gone.
    pub fn query_port(&self, port: u8) -> io::Result<PortReading> {
        let mut attr = MaybeUninit::<ffi::ibv_port_attr>::zeroed();
        // SAFETY: the context is open. The library fills in the fields of its version, which fit
        // into this struct; the others stay zero.
        let status =
            unsafe { (self.verbs.query_port)(self.context.as_ptr(), port, attr.as_mut_ptr()) };
        if status != 0 {
            return Err(io::Error::from_raw_os_error(status.abs()));
        }
        let attr = attr.as_ptr();
        // SAFETY: every field read here is a number inside a zeroed and filled struct. Fields of
        // enumeration types are read as numbers.
        unsafe {
            let width = addr_of!((*attr).active_width).read();
            let speed = addr_of!((*attr).active_speed).read();
            Ok(PortReading {
                state: PortState::from_number(addr_of!((*attr).state).read()),
                lid: addr_of!((*attr).lid).read().into(),
                sm_lid: addr_of!((*attr).sm_lid).read().into(),
                link_layer: link_layer_word(addr_of!((*attr).link_layer).read()).to_owned(),
                speed: speed_words(width, speed.into()),
            })
        }
    }
}

impl AsRawFd for Context {
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: the context is open; the field is a plain integer.
        unsafe { addr_of!((*self.context.as_ptr()).async_fd).read() }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is open and is closed once.
        unsafe { (self.verbs.close)(self.context.as_ptr()) };
    }
}

/// C expressions and the values that this module expects, for a test against the installed
/// headers.
pub fn layout() -> Vec<(&'static str, usize)> {
    macro_rules! offset {
        ($t:ident, $f:ident) => {
            (
                concat!("offsetof(struct ", stringify!($t), ", ", stringify!($f), ")"),
                offset_of!(ffi::$t, $f),
            )
        };
    }
    let event = "sizeof(struct ibv_async_event)";
    vec![
        offset!(ibv_context, async_fd),
        offset!(ibv_port_attr, state),
        offset!(ibv_port_attr, lid),
        offset!(ibv_port_attr, sm_lid),
        offset!(ibv_port_attr, active_width),
        offset!(ibv_port_attr, active_speed),
        offset!(ibv_port_attr, link_layer),
        (event, size_of::<rdma_sys::ibv_async_event>()),
        (event, size_of::<RawEvent>()),
        ("offsetof(struct ibv_async_event, element.port_num)", offset_of!(RawEvent, element)),
        ("offsetof(struct ibv_async_event, event_type)", offset_of!(RawEvent, event_type)),
        (
            "offsetof(struct ibv_async_event, event_type)",
            offset_of!(rdma_sys::ibv_async_event, event_type),
        ),
    ]
}

/// Size of the struct that the library fills in, for the same test: the C struct must not be
/// larger.
pub const fn port_attr_bytes() -> usize {
    size_of::<ffi::ibv_port_attr>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_device_that_does_not_open_is_one_line_with_advice() {
        let error = io::ErrorKind::PermissionDenied.into();
        let line = VerbsError::Open { name: "mlx5_0".to_owned(), error }.to_string();
        assert!(line.starts_with("mlx5_0: ") && line.contains("70-ftb-ib.rules"), "{line}");
        assert_eq!(line.lines().count(), 1);
    }
}
