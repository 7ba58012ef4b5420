//! Messages as events, and back. Input is hostile until it is parsed: names, numbers and lists are
//! checked, and other events are refused with a reason.

mod read;
mod write;

pub use read::{WireError, from_jl, from_nla, from_rank, from_request, streams_of};
pub use write::{answer, request, to_jl, to_nla, to_rank, with_streams};

pub const SPACE_JL: &str = "ftb.jl";
pub const SPACE_NLA: &str = "ftb.nla";
pub const SPACE_MPI: &str = "ftb.mpi";
/// The event space of requests to a running job.
pub const SPACE_JOB: &str = "ftb.job";
/// The tag of FTB_JL_ALIVE with the address of the JL's streams.
const TAG_STREAMS: &str = "streams";
/// Most bytes of puts in one event, well below the smallest payload limit.
pub const PART_BYTES_MAX: usize = 32 * 1024;

#[cfg(test)]
mod tests;
