//! Zenoh, client side and router, out of the library in `tests/bench/zenoh`: its protocol is spoken
//! by its own crates alone, which take minutes to build and so are no part of this program.
//!
//! The library is loaded where it was built. Its messages go through the same load and the same
//! checks as the others.
#![expect(unsafe_code, reason = "the functions of a library that is loaded")]

use super::{Publish, Receive, WireSystem};
use anyhow::{Context as _, Result, anyhow, bail};
use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Where it is built, below the folder above that of this program.
const LIBRARY: &str = "zenoh/release/libftb_bench_zenoh.so";
/// Room for one line that the library says.
const TEXT_BYTES: usize = 512;
/// Bytes of the length before each message that waits for its subscriber.
const LENGTH_BYTES: usize = size_of::<usize>();

type TextFn = unsafe extern "C" fn(*mut u8, usize) -> usize;
type TakeFn = extern "C" fn(*mut c_void, *const u8, usize);
type EndFn = unsafe extern "C" fn(*mut c_void);

/// The functions of the library. It is never unloaded: Zenoh has threads that outlive its sessions.
#[derive(Debug)]
pub(crate) struct Library {
    error: TextFn,
    version: TextFn,
    router: unsafe extern "C" fn(u16) -> bool,
    publisher: unsafe extern "C" fn(u16, bool) -> *mut c_void,
    put: unsafe extern "C" fn(*const c_void, *const u8, usize) -> bool,
    end_publisher: EndFn,
    subscriber: unsafe extern "C" fn(u16, TakeFn, *mut c_void) -> *mut c_void,
    end_subscriber: EndFn,
}

/// Where the library is, if it was built.
pub(crate) fn library() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    Some(program.parent()?.parent()?.join(LIBRARY)).filter(|file| file.is_file())
}

/// The version of Zenoh in the library.
pub(crate) fn version() -> String {
    match library().map(|file| Library::load(&file)) {
        None => "not built".to_owned(),
        Some(Ok(library)) => Library::text(library.version),
        Some(Err(_)) => "cannot be loaded".to_owned(),
    }
}

/// Routes at that port until killed.
///
/// # Errors
/// The router does not start.
pub(crate) fn route(port: u16) -> Result<()> {
    let file = library().context("Zenoh was not built: run `make bench`")?;
    let library = Library::load(&file)?;
    // SAFETY: it takes any number, and comes back only when it failed.
    unsafe { (library.router)(port) };
    Err(library.failure())
}

impl Library {
    /// Loads it.
    ///
    /// # Errors
    /// It is none, or of another state of the sources.
    pub(crate) fn load(file: &Path) -> Result<Self> {
        // SAFETY: loading runs nothing of ours; the functions have the types that
        // `tests/bench/zenoh/src/lib.rs` gives them, and stay where they are, as the library does.
        unsafe {
            let library = libloading::Library::new(file)?;
            let functions = Self {
                error: *library.get(b"ftb_zenoh_error\0")?,
                version: *library.get(b"ftb_zenoh_version\0")?,
                router: *library.get(b"ftb_zenoh_router\0")?,
                publisher: *library.get(b"ftb_zenoh_publisher\0")?,
                put: *library.get(b"ftb_zenoh_put\0")?,
                end_publisher: *library.get(b"ftb_zenoh_end_publisher\0")?,
                subscriber: *library.get(b"ftb_zenoh_subscriber\0")?,
                end_subscriber: *library.get(b"ftb_zenoh_end_subscriber\0")?,
            };
            std::mem::forget(library);
            Ok(functions)
        }
    }

    /// What a function says in words.
    fn text(function: TextFn) -> String {
        let mut text = vec![0; TEXT_BYTES];
        // SAFETY: the buffer is as long as is said.
        let length = unsafe { function(text.as_mut_ptr(), text.len()) };
        text.truncate(length);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Why the last function on this thread failed.
    fn failure(&self) -> anyhow::Error {
        anyhow!("Zenoh: {}", Self::text(self.error))
    }

    /// What a function has made, to be ended by another one.
    fn held(self: &Arc<Self>, made: *mut c_void, end: EndFn) -> Result<Held> {
        let made = NonNull::new(made).ok_or_else(|| self.failure())?;
        Ok(Held { library: Arc::clone(self), made, end })
    }
}

/// A router at a port.
#[derive(Debug)]
pub(crate) struct Zenoh {
    /// How to speak to it.
    pub(crate) library: Arc<Library>,
    /// On loopback.
    pub(crate) port: u16,
    /// Publishers send each message at once instead of gathering what comes close behind.
    pub(crate) express: bool,
}

/// Something of the library's, ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    library: Arc<Library>,
    made: NonNull<c_void>,
    end: EndFn,
}

// SAFETY: what the library makes may be used and ended by any thread, one at a time.
unsafe impl Send for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: it was made for this function, and no other code has it now.
        unsafe { (self.end)(self.made.as_ptr()) };
    }
}

/// A publishing session.
#[derive(Debug)]
pub(crate) struct ZenohPublisher {
    session: Held,
    put: u64,
}

/// A subscribing session.
#[derive(Debug)]
pub(crate) struct ZenohSubscriber {
    _session: Held,
    inbox: Arc<Inbox>,
    /// What was taken out of the inbox; kept for its memory.
    taken: Vec<u8>,
}

/// Where Zenoh's threads put what comes: messages, each behind its length. The window of the load
/// bounds it.
#[derive(Debug, Default)]
struct Inbox {
    messages: Mutex<Vec<u8>>,
    arrived: Notify,
}

impl Inbox {
    fn put(&self, message: &[u8]) {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let was_empty = messages.is_empty();
        messages.extend_from_slice(&message.len().to_ne_bytes());
        messages.extend_from_slice(message);
        drop(messages);
        if was_empty {
            self.arrived.notify_one();
        }
    }

    /// Waits for messages and takes all that are there, in exchange for an empty buffer.
    async fn take(&self, buffer: &mut Vec<u8>) {
        loop {
            std::mem::swap(
                &mut *self.messages.lock().unwrap_or_else(PoisonError::into_inner),
                buffer,
            );
            if !buffer.is_empty() {
                return;
            }
            self.arrived.notified().await;
        }
    }
}

/// Called by Zenoh's threads with an [`Inbox`].
extern "C" fn take(inbox: *mut c_void, bytes: *const u8, length: usize) {
    // SAFETY: the inbox is the one that the subscriber was made with, which is never freed; the
    // bytes are a message of that length, or none.
    let (inbox, message) = unsafe {
        let message = if length == 0 { &[] } else { std::slice::from_raw_parts(bytes, length) };
        (&*inbox.cast::<Inbox>(), message)
    };
    inbox.put(message);
}

impl WireSystem for Zenoh {
    type Publisher = ZenohPublisher;
    type Subscriber = ZenohSubscriber;
    type Bystander = ();

    async fn publisher(&self, _number: usize) -> Result<ZenohPublisher> {
        let (library, port, express) = (Arc::clone(&self.library), self.port, self.express);
        let connect = move || {
            // SAFETY: it takes any number.
            let made = unsafe { (library.publisher)(port, express) };
            library.held(made, library.end_publisher)
        };
        let session = tokio::task::spawn_blocking(connect).await??;
        Ok(ZenohPublisher { session, put: 0 })
    }

    async fn subscriber(&self, _number: usize) -> Result<ZenohSubscriber> {
        let (library, port) = (Arc::clone(&self.library), self.port);
        let inbox = Arc::new(Inbox::default());
        // Zenoh may still call when the subscriber has ended: its share of the inbox stays for
        // good.
        let shared = Arc::clone(&inbox);
        let connect = move || {
            let context = Arc::into_raw(shared).cast_mut().cast();
            // SAFETY: the context is an inbox, which any thread may use, and is never freed.
            let made = unsafe { (library.subscriber)(port, take, context) };
            library.held(made, library.end_subscriber)
        };
        let session = tokio::task::spawn_blocking(connect).await??;
        Ok(ZenohSubscriber { _session: session, inbox, taken: Vec::new() })
    }

    async fn bystander(&self, _number: usize, _count: usize) -> Result<()> {
        bail!("Zenoh is measured without subscriptions that match nothing")
    }

    async fn resubscribe(&self, _bystander: &mut (), _change: u64) -> Result<()> {
        bail!("Zenoh is measured without changes of subscriptions")
    }
}

impl Publish for ZenohPublisher {
    /// Waits, and its thread with it, while Zenoh has no room.
    async fn put(&mut self, message: &[u8]) -> Result<()> {
        let library = &self.session.library;
        let publisher = self.session.made.as_ptr();
        // SAFETY: the publisher has not ended, and the message is as long as is said.
        let taken = unsafe { (library.put)(publisher, message.as_ptr(), message.len()) };
        if !taken {
            return Err(library.failure());
        }
        self.put += 1;
        Ok(())
    }

    /// Zenoh sends by itself.
    async fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    /// The router says nothing back: what was put counts.
    async fn acknowledged(&mut self, _wanted: u64) -> Result<u64> {
        Ok(self.put)
    }
}

impl Receive for ZenohSubscriber {
    async fn receive(&mut self, see: &mut (impl FnMut(&[u8]) + Send)) -> Result<()> {
        self.taken.clear();
        self.inbox.take(&mut self.taken).await;
        each_message(&self.taken, see)
    }
}

/// Shows the messages of an inbox.
fn each_message(mut messages: &[u8], see: &mut impl FnMut(&[u8])) -> Result<()> {
    while let Some((length, rest)) = messages.split_first_chunk::<LENGTH_BYTES>() {
        let cut = rest.split_at_checked(usize::from_ne_bytes(*length));
        let (message, rest) = cut.context("a message is longer than its inbox")?;
        see(message);
        messages = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn an_inbox_gives_what_was_put_in_order_and_is_empty_then() {
        let inbox = Arc::new(Inbox::default());
        let (first, second) = (b"one".as_slice(), b"".as_slice());
        let context = Arc::as_ptr(&inbox).cast_mut().cast();
        take(context, first.as_ptr(), first.len());
        take(context, second.as_ptr(), second.len());
        let mut taken = Vec::new();
        inbox.take(&mut taken).await;
        let mut seen = Vec::new();
        each_message(&taken, &mut |message| seen.push(message.to_vec())).unwrap();
        assert_eq!(seen, [first, second]);
        assert!(inbox.messages.lock().unwrap().is_empty());
        assert!(each_message(&taken[..=LENGTH_BYTES], &mut |_| ()).is_err());
    }

    #[test]
    fn a_file_that_is_no_library_is_refused() {
        assert!(
            Library::load(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))).is_err()
        );
    }
}
