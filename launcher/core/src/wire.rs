//! Messages as events, and back. PMI, FTB_NLA_READY, progress and the protection of images in
//! memory are no events ([`crate::link`]). Input is hostile until it is parsed: names, numbers and
//! lists are checked, and other events are refused with a reason.

mod read;
mod write;

pub use read::{WireError, from_jl, from_nla, from_rank, from_request};
pub use write::{answer, request, to_jl, to_nla, to_rank};

pub const SPACE_JL: &str = "ftb.jl";
pub const SPACE_NLA: &str = "ftb.nla";
pub const SPACE_MPI: &str = "ftb.mpi";
/// The event space of requests to a running job.
pub const SPACE_JOB: &str = "ftb.job";
/// Most bytes of puts in one message.
pub const PART_BYTES_MAX: usize = 32 * 1024;
/// Most parts of the puts of one barrier.
pub const PARTS_MAX: u32 = 1024;

/// The key of a tag of a list that is longer than one tag: `ranks`, `ranks2`, `ranks3`.
fn list_key(key: &str, number: usize) -> String {
    if number == 1 { key.to_owned() } else { format!("{key}{number}") }
}

#[cfg(test)]
mod tests;
