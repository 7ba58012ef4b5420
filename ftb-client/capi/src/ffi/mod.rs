//! The nine functions and our extensions, and everything in this crate that is `unsafe`.
//!
//! Each function takes what C hands over to where Rust can judge it: no pointer is followed before
//! it was compared with NULL, no text is read beyond its bound, and no panic leaves the library
//! ([`Code::General`] is returned instead). What the functions do, and in which order they check,
//! is in the modules that they call and in `docs/capi.md`.
//!
//! # Safety
//! As in C: a pointer that is not NULL must point to what its type says, a text ends with a NUL or
//! is as long as its bound, and a callback and its argument are valid until the subscription is
//! unsubscribed or its client disconnected.
#![expect(unsafe_code, reason = "the boundary to C: pointers, callbacks, exported symbols")]

pub mod callback;
mod present;
mod progress;

use crate::abi::{
    ClientHandle, ClientInfo, Code, EventHandle, EventInfo, EventProperties, Gap, MAX_EVENT_NAME,
    ReceiveEvent, SUBSCRIPTION_NOTIFY, SUBSCRIPTION_POLLING, SubscribeHandle,
};
use crate::client::Identity;
use crate::convert;
use crate::declared::EVENTS_MAX;
use crate::process::Process;
use crate::subscription::{Mask, STRING_BYTES_MAX};
use callback::{Callback, Function};
use core::ffi::{c_char, c_int, c_void};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Runs a function's body and makes a C code of what became of it.
fn code(body: impl FnOnce() -> Result<(), Code>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code as c_int,
        Err(_) => Code::General as c_int,
    }
}

/// The bytes before the NUL, at most `max` of them.
///
/// # Safety
/// `text` points to a text that ends with a NUL or has `max` bytes.
unsafe fn read<'a>(text: *const c_char, max: usize) -> &'a [u8] {
    // SAFETY: not read beyond the NUL or `max`.
    unsafe {
        let length = libc::strnlen(text, max);
        core::slice::from_raw_parts(text.cast(), length)
    }
}

/// The present process, if it has ever connected.
fn present() -> Result<&'static Process, Code> {
    present::get().ok_or(Code::InvalidHandle)
}

/// A pointer that C wants something written to.
fn out<T>(pointer: *mut T) -> Result<*mut T, Code> {
    if pointer.is_null() { Err(Code::NullPointer) } else { Ok(pointer) }
}

/// Connects a client and fills its handle. Without an agent it succeeds too, and attaches later.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FTB_Connect(info: *const ClientInfo, handle: *mut ClientHandle) -> c_int {
    code(|| {
        let handle = out(handle)?;
        if info.is_null() {
            return Err(Code::NullPointer);
        }
        // SAFETY: neither is NULL.
        let info = unsafe { info.read_unaligned() };
        let identity = Identity::read(&info)?;
        // SAFETY: not NULL.
        unsafe { handle.write_unaligned(identity.handle()) };
        present::get_or_start().ok_or(Code::General)?.connect(identity, &info)
    })
}

/// Declares events that the client may publish: from a schema file, else from an array.
///
/// # Safety
/// See the module; `events` has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FTB_Declare_publishable_events(
    handle: ClientHandle,
    schema_file: *const c_char,
    events: *const EventInfo,
    count: c_int,
) -> c_int {
    code(|| {
        if handle.valid != 1 {
            return Err(Code::InvalidHandle);
        }
        let client = present()?.find(&handle)?;
        if !schema_file.is_null() {
            const PATH_BYTES_MAX: usize = libc::PATH_MAX as usize;
            // SAFETY: not NULL.
            let path = unsafe { read(schema_file, PATH_BYTES_MAX) };
            return client.declare_from(Path::new(OsStr::from_bytes(path)));
        }
        let count = usize::try_from(count).unwrap_or(0);
        if count == 0 {
            return Ok(());
        }
        if events.is_null() {
            return Err(Code::NullPointer);
        }
        let readable = count.min(EVENTS_MAX);
        // SAFETY: not NULL; the program gives their number. Their bytes have no alignment.
        let events = unsafe { core::slice::from_raw_parts(events, readable) };
        client.declare(events, count)
    })
}

/// Publishes a declared event and fills its handle.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FTB_Publish(
    handle: ClientHandle,
    name: *const c_char,
    properties: *const EventProperties,
    event_handle: *mut EventHandle,
) -> c_int {
    code(|| {
        if handle.valid != 1 {
            return Err(Code::InvalidHandle);
        }
        let event_handle = out(event_handle)?;
        if name.is_null() {
            return Err(Code::NullPointer);
        }
        // SAFETY: not NULL.
        let name = unsafe { read(name, MAX_EVENT_NAME) };
        if name.is_empty() || name.len() >= MAX_EVENT_NAME {
            return Err(Code::InvalidEventName);
        }
        let client = present()?.find(&handle)?;
        // SAFETY: read only when it is not NULL; its bytes have no alignment.
        let properties = unsafe { properties.as_ref() };
        let (event, filled) = client.make(name, properties)?;
        // SAFETY: not NULL.
        unsafe { event_handle.write_unaligned(filled) };
        client.send(event)
    })
}

/// Subscribes: with a function to be called back, without one to poll. Fills the handle.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FTB_Subscribe(
    subscribe_handle: *mut SubscribeHandle,
    handle: ClientHandle,
    string: *const c_char,
    function: Option<Function>,
    argument: *mut c_void,
) -> c_int {
    code(|| {
        let subscribe_handle = out(subscribe_handle)?;
        let process = present()?;
        let client = process.find(&handle)?;
        let style = function.map_or(SUBSCRIPTION_POLLING, |_| SUBSCRIPTION_NOTIFY);
        if !client.may(style) {
            return Err(Code::NotSupported);
        }
        if string.is_null() {
            return Err(Code::SubscriptionStr);
        }
        // SAFETY: not NULL.
        let string = unsafe { read(string, STRING_BYTES_MAX) };
        if string.len() == STRING_BYTES_MAX {
            return Err(Code::SubscriptionStr);
        }
        let mask = Mask::parse(string, process.settings().matching)?;
        let shown = mask.as_event(0);
        let callback = function.map(|function| Callback::new(function, argument));
        let number = client.delivery.subscribe(mask, callback)?;
        let filled = SubscribeHandle {
            client_handle: ClientHandle { valid: 1, client_id: client.id },
            subscription_event: crate::abi::EventMask { seqnum: number, ..shown },
            subscription_type: style,
            valid: 1,
        };
        // SAFETY: not NULL.
        unsafe { subscribe_handle.write_unaligned(filled) };
        Ok(())
    })
}

/// Ends a subscription and marks its handle.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FTB_Unsubscribe(subscribe_handle: *mut SubscribeHandle) -> c_int {
    code(|| {
        let pointer = out(subscribe_handle)?;
        // SAFETY: not NULL; filled by FTB_Subscribe.
        let mut handle = unsafe { pointer.read_unaligned() };
        let client = present()?.find(&handle.client_handle)?;
        if handle.valid != 1 {
            return Err(Code::InvalidHandle);
        }
        handle.valid = 0;
        // SAFETY: as above.
        unsafe { pointer.write_unaligned(handle) };
        client.delivery.unsubscribe(handle.subscription_event.seqnum)
    })
}

/// Takes the first queued event of a polling subscription. Never waits.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FTB_Poll_event(
    handle: SubscribeHandle,
    event: *mut ReceiveEvent,
) -> c_int {
    code(|| {
        let event = out(event)?;
        if handle.valid != 1 {
            return Err(Code::InvalidHandle);
        }
        let client = present()?.find(&handle.client_handle)?;
        if !client.may(SUBSCRIPTION_POLLING) {
            return Err(Code::NotSupported);
        }
        client.delivery.poll(handle.subscription_event.seqnum, |found| {
            // SAFETY: not NULL.
            unsafe { event.write_unaligned(*found) };
        })
    })
}

/// Takes a gap of a subscription: events that it did not receive. Never waits. An extension: CIFTS
/// FTB has no such function.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FTBX_Poll_gap(handle: SubscribeHandle, gap: *mut Gap) -> c_int {
    code(|| {
        let gap = out(gap)?;
        if handle.valid != 1 {
            return Err(Code::InvalidHandle);
        }
        let client = present()?.find(&handle.client_handle)?;
        let found = client.delivery.poll_gap(handle.subscription_event.seqnum)?;
        // SAFETY: not NULL.
        unsafe { gap.write_unaligned(found) };
        Ok(())
    })
}

/// Disconnects a client, after what it published was handed over.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FTB_Disconnect(handle: ClientHandle) -> c_int {
    code(|| {
        if handle.valid != 1 {
            return Err(Code::InvalidHandle);
        }
        present()?.disconnect(&handle)
    })
}

/// Makes the handle that the publisher of a received event was given.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FTB_Get_event_handle(
    event: ReceiveEvent,
    event_handle: *mut EventHandle,
) -> c_int {
    code(|| {
        let event_handle = out(event_handle)?;
        let made = convert::event_handle(&event)?;
        // SAFETY: not NULL.
        unsafe { event_handle.write_unaligned(made) };
        Ok(())
    })
}

/// Whether both handles name the same publication: 0, else `FTB_FAILURE`.
///
/// # Safety
/// Any two values may be compared.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn FTB_Compare_event_handles(a: EventHandle, b: EventHandle) -> c_int {
    code(|| if convert::same_event(&a, &b) { Ok(()) } else { Err(Code::Failure) })
}
