//! Every limit of the library, each with its reason.

use std::time::Duration;

/// Most ranks of a job: each keeps one connection, an open file, for each peer.
/// `tests/crowd.rs` runs that number.
pub const RANKS_MAX: u32 = 1024;
/// Largest message in bytes.
pub const MESSAGE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Default limit of received bytes of one peer that the program has not taken. At the limit its
/// connection is not read (the peer's `send` blocks), and a hopeless `recv` fails.
pub const RECEIVE_BYTES_DEFAULT: usize = 256 * 1024 * 1024;
/// Most bytes that wait for one peer while its channel is suspended. At the limit `send` blocks
/// until the channels are resumed.
pub const OUTSTANDING_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Most inputs (requests, frames of the agreement) that wait for the control thread. At the limit
/// the source of requests blocks, and a link with a frame is not read; a round needs two of each
/// rank.
pub const CONTROL_INPUTS_MAX: usize = 2 * RANKS_MAX as usize;
/// Most requests that wait at the coordinator. At the limit a new one is refused and counted: the
/// launcher repeats it.
pub const REQUESTS_MAX: usize = 16;
/// Longest payload of a control frame in bytes: a request with all ranks in it.
pub const CONTROL_BYTES_MAX: usize = 32 * 1024;
/// Longest line that is sent over the PMI-1 wire in bytes.
pub use ftb_launcher_core::nla::limits::PMI_LINE_BYTES_MAX;
/// Longest line of a PMI server in bytes: one may name the ranks that are left.
pub const PMI_ANSWER_BYTES_MAX: usize = 8 * 1024;
/// Longest job id, node name and set id in bytes: they become file names, tags and PMI values.
pub const NAME_BYTES_MAX: usize = 63;
/// Largest block of an image in bytes.
pub const BLOCK_BYTES_MAX: usize = 1024 * 1024;
/// Longest name of a section of an image in bytes.
pub const SECTION_NAME_BYTES_MAX: usize = 63;
/// Most sections of an image.
pub const SECTIONS_MAX: u32 = 65_536;
/// Most communicators that a job makes in its life, freed ones too: their numbers are in frames. At
/// the limit a new one is refused.
pub const COMMUNICATORS_MAX: u32 = 65_535;
/// Most revocations of which a living member may not have heard, in the launcher. At the limit a
/// further one is refused.
pub use ftb_launcher_core::repair::REVOKED_MAX as REVOCATIONS_MAX;
/// Most receives of a rank that wait at once. At the limit a further one is refused.
pub const RECEIVES_MAX: usize = 65_536;
/// Most bytes that a rank receives before its loop and keeps for a process that replaces it. Beyond
/// it the loop begins with an error.
pub const PROLOGUE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most pieces of memory of one value of a derived type.
pub const LAYOUT_BLOCKS_MAX: usize = 1 << 20;
/// Most regions of memory that a program protects for `ftb_loop`.
pub const REGIONS_MAX: usize = 4096;
/// How long a connection to another rank may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which a blocked `send` looks whether its rank was called back.
pub const SEND_CHECK: Duration = Duration::from_millis(20);
/// How long a rank that is called back goes on with a message that it has begun to send. Then its
/// connection ends, and another one is made.
pub const BEGUN_MAX: Duration = Duration::from_secs(1);
/// How long a rank may take to confirm a connection that was kept over a recovery. Then another one
/// is made. As long as an introduction: one rank may learn the result of the barrier that much
/// later than another. A rank that is later still may count as lost, and another recovery follows.
pub const RENEWAL_TIMEOUT: Duration = HELLO_TIMEOUT;
/// How long a rank waits for a message without a link, before it makes one to see whether the peer
/// lives.
pub const UNLINKED_MAX: Duration = Duration::from_secs(1);
/// How long one peer has to introduce itself on a new connection. A stopped or slow rank needs it;
/// [`HANDSHAKING_MAX`] keeps strangers from holding places.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Most unproved connections to a rank beyond one of each other rank; a further one ends the
/// oldest.
pub const HANDSHAKING_MAX: usize = 64;
/// Least time between two log lines about refused connections.
pub const REFUSED_EVERY: Duration = Duration::from_secs(60);
/// How long a rank that moves waits for the confirmation of its last event (see
/// launcher/core/protocol.md).
pub const LAST_WORD_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a starting rank waits for its subscription before it goes on without.
pub const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Default time that a call which has lost its peer waits for the launcher, before it fails.
pub const PEER_GRACE_DEFAULT: Duration = Duration::from_secs(30);
/// Interval at which a rank repeats a call that the launcher has not answered.
pub const REPAIR_REPEAT: Duration = Duration::from_secs(1);
/// How long a rank waits before its first step for the first checkpoint in memory.
pub const FIRST_SAVE_MAX: Duration = Duration::from_secs(60);
/// Most connections to a rank that wait to be accepted (the system may allow fewer): all others may
/// dial at once. Beyond it they wait or dial again.
pub const DIALLING_MAX: i32 = 4096;
/// Most connections that are accepted before links are read again.
pub const ACCEPTED_MAX: usize = 16;
/// How long no connection is accepted or dialled after one could not be, for want of files or
/// memory, and how long a socket that cannot be watched is left alone.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Size of the buffer for what links bring in bytes: one for all.
pub const READ_BYTES: usize = 64 * 1024;
/// Most bytes of a link that are read before another one is, but for one read.
pub const TURN_BYTES_MAX: usize = 256 * 1024;
/// Most turns in which a link gives what came before its channel is suspended.
pub const LAST_TURNS_MAX: usize = 64;
/// Stack of a helper thread in bytes: they hold no large values.
pub const HELPER_STACK_BYTES: usize = 256 * 1024;
