//! Messages as events, and back. Whatever comes in is hostile until it has passed here: names, numbers and
//! lists are checked, and an event that is not a message of the protocol is refused with a reason.

mod read;
mod write;

pub use read::{WireError, from_jl, from_nla, from_rank, from_request, streams_of};
pub use write::{answer, request, to_jl, to_nla, to_rank, with_streams};

/// The event space of the JL.
pub const SPACE_JL: &str = "ftb.jl";
/// The event space of the NLAs.
pub const SPACE_NLA: &str = "ftb.nla";
/// The event space of the ranks.
pub const SPACE_MPI: &str = "ftb.mpi";
/// The event space of those who ask something of a running job.
pub const SPACE_JOB: &str = "ftb.job";
/// The tag of FTB_JL_ALIVE with the address of the JL's streams.
const TAG_STREAMS: &str = "streams";
/// Most bytes of puts in one event: well below the smallest payload bound in use.
pub const PART_BYTES_MAX: usize = 32 * 1024;

#[cfg(test)]
mod tests;
