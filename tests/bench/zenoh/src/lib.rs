//! Zenoh for the bench: a router, and publishers and subscribers that are clients of it.
//!
//! `zenohd` is a command line and plugins around `zenoh::open` in the mode of a router; so is
//! [`ftb_zenoh_router`], without either. Everything is as Zenoh configures itself, but for its
//! multicast, which would find other routers of the network, and for publishers that wait where
//! there is no room: Zenoh's default is to drop.
//!
//! The functions are C's, since two Rust programs agree on nothing else. None of them may unwind:
//! whatever Zenoh says is an error goes into [`ftb_zenoh_error`]'s text.

use std::cell::RefCell;
use std::ffi::c_void;
use std::fmt::Display;
use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::CongestionControl;
use zenoh::{Config, Session, Wait as _};

/// What the load publishes to.
const KEY: &str = "bench/load";
/// What was resolved when this was built.
const LOCK: &str = include_str!("../Cargo.lock");

thread_local! {
    /// Why the last function on this thread failed.
    static ERROR: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Takes one message: the context that was given with it, the bytes, and how many.
pub type Take = extern "C" fn(context: *mut c_void, bytes: *const u8, length: usize);

/// A session that publishes.
#[derive(Debug)]
pub struct Publishing {
    publisher: Publisher<'static>,
    _session: Session,
}

/// A session that subscribes.
#[derive(Debug)]
pub struct Subscribing {
    _subscriber: Subscriber<()>,
    _session: Session,
}

/// Where messages go. Zenoh calls from threads of its own.
#[derive(Clone, Copy)]
struct Context(*mut c_void);

// SAFETY: who gives the context promises that it may be used by any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// The pointer. A method, so that closures take the whole context and not the bare pointer in
    /// it.
    fn get(self) -> *mut c_void {
        self.0
    }
}

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Keeps why it failed.
fn failed(error: impl Display) {
    ERROR.with(|text| *text.borrow_mut() = error.to_string());
}

/// A value on the heap that C holds; null for an error, which is kept.
fn handed_out<T>(made: Outcome<T>) -> *mut T {
    match made {
        Ok(value) => Box::into_raw(Box::new(value)),
        Err(error) => {
            failed(error);
            std::ptr::null_mut()
        }
    }
}

/// Copies a text, as much as fits, and gives its whole length.
///
/// # Safety
/// `buffer` has room for `room` bytes.
unsafe fn copied(text: &str, buffer: *mut u8, room: usize) -> usize {
    // SAFETY: no more than there is room for; a text of ours does not overlap the caller's buffer.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), buffer, text.len().min(room)) };
    text.len()
}

/// Why the last function on this thread failed; gives the length of the whole text.
///
/// # Safety
/// `buffer` has room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftb_zenoh_error(buffer: *mut u8, room: usize) -> usize {
    // SAFETY: the caller's promise is handed on.
    ERROR.with(|text| unsafe { copied(&text.borrow(), buffer, room) })
}

/// The version of Zenoh; gives the length of the whole text.
///
/// # Safety
/// `buffer` has room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftb_zenoh_version(buffer: *mut u8, room: usize) -> usize {
    let entry = LOCK.split_once("name = \"zenoh\"\nversion = \"");
    let version = entry.and_then(|(_, rest)| rest.split('"').next());
    // SAFETY: the caller's promise is handed on.
    unsafe { copied(version.unwrap_or("unknown"), buffer, room) }
}

/// A router at a loopback port. Comes back only when it cannot start, with `false`.
#[unsafe(no_mangle)]
pub extern "C" fn ftb_zenoh_router(port: u16) -> bool {
    match open("router", "listen/endpoints", port) {
        Ok(_session) => loop {
            std::thread::park();
        },
        Err(error) => {
            failed(error);
            false
        }
    }
}

/// A publisher at the router of that port; `express` keeps Zenoh from waiting for more to send
/// together. Null when it cannot be.
#[unsafe(no_mangle)]
pub extern "C" fn ftb_zenoh_publisher(port: u16, express: bool) -> *mut Publishing {
    handed_out(publisher(port, express))
}

fn publisher(port: u16, express: bool) -> Outcome<Publishing> {
    let session = open("client", "connect/endpoints", port)?;
    let declared = session.declare_publisher(KEY);
    let publisher =
        declared.congestion_control(CongestionControl::Block).express(express).wait()?;
    settle(&session)?;
    Ok(Publishing { publisher, _session: session })
}

/// Publishes a message; waits while there is no room for it.
///
/// # Safety
/// `publishing` is from [`ftb_zenoh_publisher`] and was not given back; `bytes` are `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftb_zenoh_put(
    publishing: *const Publishing,
    bytes: *const u8,
    length: usize,
) -> bool {
    // SAFETY: the caller's promise.
    let (publishing, message) =
        unsafe { (&*publishing, std::slice::from_raw_parts(bytes, length)) };
    publishing.publisher.put(message).wait().map_err(failed).is_ok()
}

/// Ends a publisher.
///
/// # Safety
/// `publishing` is from [`ftb_zenoh_publisher`], and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftb_zenoh_end_publisher(publishing: *mut Publishing) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(publishing) });
}

/// A subscriber at the router of that port, which knows of it when this returns. Null when it
/// cannot be.
///
/// # Safety
/// `context` may be used by any thread as long as this process lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftb_zenoh_subscriber(
    port: u16,
    take: Take,
    context: *mut c_void,
) -> *mut Subscribing {
    handed_out(subscriber(port, take, Context(context)))
}

fn subscriber(port: u16, take: Take, context: Context) -> Outcome<Subscribing> {
    let session = open("client", "connect/endpoints", port)?;
    let taking = move |sample: zenoh::sample::Sample| {
        let message = sample.payload().to_bytes();
        take(context.get(), message.as_ptr(), message.len());
    };
    let subscriber = session.declare_subscriber(KEY).callback(taking).wait()?;
    settle(&session)?;
    Ok(Subscribing { _subscriber: subscriber, _session: session })
}

/// Ends a subscriber.
///
/// # Safety
/// `subscribing` is from [`ftb_zenoh_subscriber`], and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftb_zenoh_end_subscriber(subscribing: *mut Subscribing) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(subscribing) });
}

/// A session in that mode, whose end is at a loopback port.
fn open(mode: &str, ends: &str, port: u16) -> Outcome<Session> {
    let mut config = Config::default();
    config.insert_json5("mode", &format!("\"{mode}\""))?;
    config.insert_json5(ends, &format!("[\"tcp/127.0.0.1:{port}\"]"))?;
    config.insert_json5("scouting/multicast/enabled", "false")?;
    zenoh::open(config).wait()
}

/// Waits until the router has read what this session has declared: it answers questions about
/// declarations in turn with them.
fn settle(session: &Session) -> Outcome<()> {
    let answers = session.liveliness().get("bench/**").wait()?;
    while answers.recv().is_ok() {}
    Ok(())
}
