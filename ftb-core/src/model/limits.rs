//! Every bound on what an event may be, in one place, each with its reason.
//!
//! Bounds that an administrator may lower or raise (payload size, queue bytes) are configuration;
//! the constants here are what the protocol itself allows, and the defaults.

/// Longest event space in bytes, as CIFTS FTB (64 with the terminating NUL).
pub const SPACE_BYTES_MAX: usize = 63;
/// Most parts of an event space. CIFTS has exactly three; ours have one to eight.
pub const SPACE_PARTS_MAX: usize = 8;
/// Most event spaces that a gap names; one that concerns more concerns any.
pub const GAP_SPACES_MAX: usize = 8;
/// Longest event name in bytes. CIFTS allows 31; twice that leaves room for new names.
pub const NAME_BYTES_MAX: usize = 63;
/// Longest client name and job id in bytes.
pub const CLIENT_NAME_BYTES_MAX: usize = 63;
/// Longest name of a cluster in bytes.
pub const CLUSTER_BYTES_MAX: usize = 63;
/// Longest host name in bytes (RFC 1035).
pub const HOST_BYTES_MAX: usize = 255;
/// Most tags of one event.
pub const TAGS_MAX: usize = 32;
/// Longest key of a tag in bytes.
pub const TAG_KEY_BYTES_MAX: usize = 63;
/// Longest value of a tag in bytes.
pub const TAG_VALUE_BYTES_MAX: usize = 1024;
/// Default bound of a payload in bytes. CIFTS has a fixed 368.
pub const PAYLOAD_BYTES_DEFAULT: usize = 64 * 1024;
/// Largest payload a configuration may allow, in bytes: an event must fit in one frame.
pub const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;
/// Largest encoded event (all fields at their bounds), in bytes.
pub const EVENT_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 64 * 1024;
/// Most events in one frame between agents or to a client.
pub const BATCH_EVENTS_MAX: usize = 1024;
/// Bytes of events after which a client cuts what it publishes at once (a single larger event still
/// travels alone).
pub const CHUNK_BYTES_TARGET: usize = 64 * 1024;
/// Bytes of events after which an agent cuts a delivery (a single larger event still travels
/// alone): room for what a client publishes at once with the stamps around each of its events, so
/// that what came as one goes on as one.
pub const BATCH_BYTES_TARGET: usize = 2 * CHUNK_BYTES_TARGET;
/// Bytes of events after which an agent cuts a frame for another one: several deliveries' worth
/// where so much waits, since each frame on its way up is answered with places, an acknowledgement
/// and a confirmation, at each agent that it passes.
pub const LINK_BYTES_TARGET: usize = 2 * BATCH_BYTES_TARGET;
/// Largest frame that is accepted from a socket, in bytes.
pub const FRAME_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest subscription string in bytes.
pub const FILTER_BYTES_MAX: usize = 4096;
/// Most bytes of memory that one filter may take. Only a list of numbers that no range can hold
/// (`n[1-9999]5`) needs more than its text allows.
pub const FILTER_WEIGHT_MAX: usize = 64 * 1024;
/// Most hosts that one host list may name.
pub const HOSTLIST_HOSTS_MAX: usize = 262_144;
/// What a client counts for in its user's budget, in bytes.
pub const CLIENT_BYTES: usize = 40 * 1024;
/// What a subscription counts for in its user's budget, in bytes, without its filter.
pub const SUBSCRIPTION_BYTES: usize = 1536;
/// Longest component of a condition in bytes.
pub const COMPONENT_BYTES_MAX: usize = 127;
/// Largest encoded event with a condition in bytes: acting root and standby retain it.
pub const CONDITION_BYTES_MAX: usize = 4096;

/// The highest number of an event that an agent takes from a publisher, which counts from 1.
pub const PUBLISHER_SEQ_MAX: u64 = 1 << 62;
