//! What C sees: lengths, codes and structures, bit for bit those of CIFTS FTB 0.6.2 (client API
//! 0.5).
//!
//! Every structure is made of fixed character arrays and small integers. Padding has a name and is
//! zero, because programs copy whole structures into payloads (a handle into a response event).

/// Length of a polling queue when the client does not say, in events.
pub const DEFAULT_POLLING_Q_LEN: usize = 64;
/// Length of a schema version, with its NUL (as all lengths here). The field is never read.
pub const MAX_CLIENTSCHEMA_VER: usize = 8;
/// Length of an event space.
pub const MAX_EVENTSPACE: usize = 64;
/// Length of a client name.
pub const MAX_CLIENT_NAME: usize = 16;
/// Length of a job id.
pub const MAX_CLIENT_JOBID: usize = 16;
/// Length of an event name.
pub const MAX_EVENT_NAME: usize = 32;
/// Length of a severity.
pub const MAX_SEVERITY: usize = 16;
/// Length of a host name.
pub const MAX_HOST_ADDR: usize = 64;
/// Length of a start time.
pub const MAX_PID_TIME: usize = 32;
/// Bytes of a payload.
pub const MAX_PAYLOAD_DATA: usize = 368;
/// Length of a subscription style.
pub const MAX_SUBSCRIPTION_STYLE: usize = 32;

/// A subscription or client without a mode.
pub const SUBSCRIPTION_NONE: u8 = 0;
/// Bit: polls.
pub const SUBSCRIPTION_POLLING: u8 = 1;
/// Bit: is called back.
pub const SUBSCRIPTION_NOTIFY: u8 = 2;
/// An event that stands for itself.
pub const EVENT_NORMAL: u8 = 1;
/// An event that answers another.
pub const EVENT_RESPONSE: u8 = 2;

/// What a function returns when it does not succeed. Three more codes exist in the headers and are
/// never returned: `FTB_ERR_DUP_EVENT`, `FTB_ERR_INVALID_PARAMETER`, `FTB_SUCCESS` (that is `Ok`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// Anything that has no code of its own.
    General = -1,
    /// Not three parts of letters, digits and `_`.
    EventspaceFormat = -2,
    /// No such style.
    SubscriptionStyle = -3,
    /// A client name or job id that is too long.
    InvalidValue = -4,
    /// That client is connected already.
    DupCall = -5,
    /// A pointer that must not be NULL.
    NullPointer = -6,
    /// The client's style does not allow it.
    NotSupported = -7,
    /// A declared event with a bad name or severity.
    InvalidField = -8,
    /// A handle of nothing that is alive.
    InvalidHandle = -9,
    /// A schema file that cannot be read or understood.
    InvalidSchemaFile = -11,
    /// An event name that is empty, too long or not declared.
    InvalidEventName = -12,
    /// Neither normal nor response.
    InvalidEventType = -13,
    /// A subscription string that is no list of pairs.
    SubscriptionStr = -14,
    /// An unknown key in it.
    FilterAttr = -15,
    /// A bad value in it.
    FilterValue = -16,
    /// Nothing queued.
    GotNoEvent = -17,
    /// Two handles differ.
    Failure = -18,
    /// The agent did not take it, or not in time.
    NetworkGeneral = -20,
    /// No agent, where one was demanded.
    NetworkNoRoute = -21,
}

/// `FTB_client_t`: how a client introduces itself.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ClientInfo {
    /// Never read: programs leave it unset.
    pub client_schema_ver: [u8; MAX_CLIENTSCHEMA_VER],
    /// `region.category.component`.
    pub event_space: [u8; MAX_EVENTSPACE],
    /// May be empty.
    pub client_name: [u8; MAX_CLIENT_NAME],
    /// May be empty.
    pub client_jobid: [u8; MAX_CLIENT_JOBID],
    /// `FTB_SUBSCRIPTION_POLLING`, `_NOTIFY`, `_BOTH` or `_NONE`.
    pub client_subscription_style: [u8; MAX_SUBSCRIPTION_STYLE],
    /// In events; 0 and less: [`DEFAULT_POLLING_Q_LEN`].
    pub client_polling_queue_len: i32,
}

/// `FTB_event_info_t`: an event that a client declares.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct EventInfo {
    /// Its name.
    pub event_name: [u8; MAX_EVENT_NAME],
    /// Its severity.
    pub severity: [u8; MAX_SEVERITY],
}

/// `FTB_event_properties_t`: what one publication adds.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct EventProperties {
    /// [`EVENT_NORMAL`] or [`EVENT_RESPONSE`].
    pub event_type: u8,
    /// Free bytes.
    pub event_payload: [u8; MAX_PAYLOAD_DATA],
}

/// `FTB_location_id_t`: the publishing process.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct LocationId {
    /// Its host.
    pub hostname: [u8; MAX_HOST_ADDR],
    /// Tells it from others with its pid.
    pub pid_starttime: [u8; MAX_PID_TIME],
    /// Its pid.
    pub pid: i32,
}

/// `FTB_receive_event_t`: an event as it is delivered.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ReceiveEvent {
    /// Three parts, joined by dots.
    pub event_space: [u8; MAX_EVENTSPACE],
    /// Spelled as it was published.
    pub event_name: [u8; MAX_EVENT_NAME],
    /// Spelled as it was declared.
    pub severity: [u8; MAX_SEVERITY],
    /// May be empty.
    pub client_jobid: [u8; MAX_CLIENT_JOBID],
    /// May be empty.
    pub client_name: [u8; MAX_CLIENT_NAME],
    /// Always 0.
    pub client_extension: u8,
    /// Always 0.
    pub pad0: u8,
    /// Counts the publications of one client, from 1, and wraps.
    pub seqnum: u16,
    /// Host and process of its publisher.
    pub incoming_src: LocationId,
    /// [`EVENT_NORMAL`] or [`EVENT_RESPONSE`].
    pub event_type: u8,
    /// All bytes of it, zeros behind the last.
    pub event_payload: [u8; MAX_PAYLOAD_DATA],
    /// Always 0.
    pub pad1: [u8; 3],
}

/// `FTB_client_id_t`: a client within its process.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ClientId {
    /// First part of the event space; no part of the identity.
    pub region: [u8; MAX_EVENTSPACE],
    /// Second part.
    pub comp_cat: [u8; MAX_EVENTSPACE],
    /// Third part.
    pub comp: [u8; MAX_EVENTSPACE],
    /// The client's name.
    pub client_name: [u8; MAX_CLIENT_NAME],
    /// Always 0.
    pub ext: u8,
}

/// `FTB_client_handle_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ClientHandle {
    /// 1 when it was filled by `FTB_Connect`.
    pub valid: u8,
    /// Whose it is.
    pub client_id: ClientId,
}

/// `FTB_event_t`: what a subscription wants. `all` stands for anything.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct EventMask {
    /// First part of the event space.
    pub region: [u8; MAX_EVENTSPACE],
    /// Second part.
    pub comp_cat: [u8; MAX_EVENTSPACE],
    /// Third part.
    pub comp: [u8; MAX_EVENTSPACE],
    /// Name of the event.
    pub event_name: [u8; MAX_EVENT_NAME],
    /// Its severity.
    pub severity: [u8; MAX_SEVERITY],
    /// The publisher's job.
    pub client_jobid: [u8; MAX_CLIENT_JOBID],
    /// The publisher's name.
    pub client_name: [u8; MAX_CLIENT_NAME],
    /// The publisher's host.
    pub hostname: [u8; MAX_HOST_ADDR],
    /// The number of the subscription within its client: the library's own.
    pub seqnum: u16,
    /// Unused, 0.
    pub event_type: u8,
    /// Unused, zeros.
    pub event_payload: [u8; MAX_PAYLOAD_DATA],
    /// Always 0.
    pub pad: u8,
}

/// `FTB_subscribe_handle_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SubscribeHandle {
    /// Whose subscription.
    pub client_handle: ClientHandle,
    /// What it wants.
    pub subscription_event: EventMask,
    /// [`SUBSCRIPTION_POLLING`] or [`SUBSCRIPTION_NOTIFY`].
    pub subscription_type: u8,
    /// 1 until it is unsubscribed.
    pub valid: u8,
}

/// `FTB_event_handle_t`: names one publication.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct EventHandle {
    /// Its name.
    pub event_name: [u8; MAX_EVENT_NAME],
    /// Its severity.
    pub severity: [u8; MAX_SEVERITY],
    /// The publisher within its process.
    pub client_id: ClientId,
    /// Always 0.
    pub pad: u8,
    /// The publisher's count.
    pub seqnum: u16,
    /// The publisher's process.
    pub location_id: LocationId,
}

/// `FTBX_gap_t`: events that a subscription did not receive. Not part of CIFTS FTB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Gap {
    /// Missing events, as far as their number is known.
    pub count: u64,
    /// How many gaps are added up here.
    pub gaps: u64,
    /// One of `FTBX_GAP_...`.
    pub reason: u32,
    /// 1: more events, or events of a higher severity, may be missing.
    pub at_least: u32,
    /// The highest severity among them, in lower case; empty: unknown.
    pub severity: [u8; MAX_SEVERITY],
}

/// Sizes and the offsets behind padding: the library does not compile when they are others. The
/// tests compare all of them, as a C compiler sees the headers, with the documented ones.
const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<ClientInfo>() == 140 && size_of::<EventInfo>() == 48);
    assert!(size_of::<EventProperties>() == 369 && size_of::<LocationId>() == 100);
    assert!(size_of::<ReceiveEvent>() == 620 && size_of::<ClientId>() == 209);
    assert!(size_of::<ClientHandle>() == 210 && size_of::<EventMask>() == 708);
    assert!(size_of::<SubscribeHandle>() == 920 && size_of::<EventHandle>() == 360);
    assert!(size_of::<Gap>() == 40 && offset_of!(Gap, severity) == 24);
    assert!(offset_of!(ReceiveEvent, seqnum) == 146);
    assert!(offset_of!(ReceiveEvent, incoming_src) == 148);
    assert!(offset_of!(ReceiveEvent, event_payload) == 249);
    assert!(offset_of!(EventMask, seqnum) == 336 && offset_of!(EventMask, event_payload) == 339);
    assert!(offset_of!(SubscribeHandle, subscription_event) == 210);
    assert!(offset_of!(EventHandle, seqnum) == 258 && offset_of!(EventHandle, location_id) == 260);
};
