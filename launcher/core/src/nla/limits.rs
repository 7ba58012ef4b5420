//! Every bound of a node launch agent, in one place.

use core::time::Duration;

/// Longest PMI line in bytes, as in MPICH's simple PMI.
pub const PMI_LINE_BYTES_MAX: usize = 2048;
/// Longest PMI-2 message in bytes.
pub const PMI_MESSAGE_BYTES_MAX: usize = 16 * 1024;
/// Longest PMI key in bytes.
pub const KEY_BYTES_MAX: usize = 64;
/// Longest PMI value in bytes.
pub const VALUE_BYTES_MAX: usize = 1024;
/// Most bytes in the key-value space of a job: a put beyond is refused.
pub const KVS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How long after it entered a fence a node says so again while there is no answer.
pub const FENCE_REPEAT: Duration = Duration::from_secs(1);
/// An agent that has never heard a JL waits no longer than this.
pub const FIRST_GRACE: Duration = Duration::from_secs(30);
/// How long ranks are kept prepared for a checkpoint: well below the time after which TCP gives up (about 15 min).
pub const PREPARED_MAX: Duration = Duration::from_secs(600);
/// Default of the orphan grace.
pub const ORPHAN_GRACE: Duration = Duration::from_secs(600);
/// Default time between SIGTERM and SIGKILL.
pub const KILL_GRACE: Duration = Duration::from_secs(5);
/// A rank of a pod that has worked so long since its last fence, and then enters one with nothing to tell, is at its end.
pub const LAST_FENCE_WORK: Duration = Duration::from_secs(10);
/// How long it waits there for the others before it is let out.
pub const LAST_FENCE_WAIT: Duration = Duration::from_secs(2);
/// The same where it has worked for less: it may only have begun, and the others be late.
pub const EARLY_FENCE_WAIT: Duration = Duration::from_secs(10);
