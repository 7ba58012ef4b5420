//! Limits and times of a node launch agent.

use core::time::Duration;

/// Longest PMI line in bytes, as in MPICH's simple PMI.
pub const PMI_LINE_BYTES_MAX: usize = 2048;
/// Longest PMI-2 message in bytes.
pub const PMI_MESSAGE_BYTES_MAX: usize = 16 * 1024;
/// Longest PMI key in bytes.
pub const KEY_BYTES_MAX: usize = 64;
/// Longest PMI value in bytes.
pub const VALUE_BYTES_MAX: usize = 1024;
/// Most bytes in the key-value space of a job; further puts are refused.
pub const KVS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How long the condition of a hung rank of another job must have been unknown before its launch
/// agent counts as dead. A live one states it again after 30 s at the latest.
pub const LEFT_AFTER: Duration = Duration::from_secs(60);
/// Interval at which a node repeats its arrival at a barrier.
pub const BARRIER_REPEAT: Duration = Duration::from_secs(1);
/// Orphan grace of an NLA that never received a JL.
pub const FIRST_GRACE: Duration = Duration::from_secs(30);
/// How long ranks stay prepared for a checkpoint: well below the time after which TCP gives up
/// (about 15 min).
pub const PREPARED_MAX: Duration = Duration::from_secs(600);
/// Default of the orphan grace.
pub const ORPHAN_GRACE: Duration = Duration::from_secs(600);
/// Default time between SIGTERM and SIGKILL.
pub const KILL_GRACE: Duration = Duration::from_secs(5);
/// Work since the last barrier after which a rank in a pod with nothing to put counts as finished.
pub const LAST_BARRIER_WORK: Duration = Duration::from_secs(10);
/// How long such a rank waits for the others before it is released.
pub const LAST_BARRIER_WAIT: Duration = Duration::from_secs(2);
/// The same for less work: the program may only have started.
pub const EARLY_BARRIER_WAIT: Duration = Duration::from_secs(10);
/// How long a process may take from its start to the initialization of ftb-job, in which it parks.
pub const PARK_MAX: Duration = Duration::from_secs(120);
/// How long a parked process may take to confirm that it is a rank. Then it is killed, and the rank
/// is started.
pub const ADOPTION_MAX: Duration = Duration::from_secs(2);
/// Pause after an adoption: processes are started again when the job is well.
pub const PARK_AFTER_ADOPTION: Duration = Duration::from_secs(5);
/// Pause after a process that ended, doubled with each in a row up to `PARK_AGAIN_MAX`. One that
/// was parked for longer than that does not count. Those that end in the pause count as one.
pub const PARK_AGAIN: Duration = Duration::from_secs(1);
pub const PARK_AGAIN_MAX: Duration = Duration::from_secs(60);
/// Time without a failure after the end of a pause that makes the next failure the first one.
/// Longer than a process may take to fail: `PARK_MAX`, and `PARK_AGAIN_MAX` while it is parked.
pub const PARK_CALM: Duration = Duration::from_secs(180);
/// Most characters of what a process or the system says of a failure, as it is reported.
pub const PROBLEM_CHARS_MAX: usize = 200;
