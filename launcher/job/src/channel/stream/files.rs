//! Open files of this process: each link is one.

use crate::limits;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io;

/// Files of a program beside its links.
const OTHER_FILES: u64 = 64;

/// Lets this process open a link to each of `size` ranks, as far as the system allows it.
pub(super) fn allow_links(rank: u32, size: u32) {
    let needed = u64::from(size) + limits::HANDSHAKING_MAX as u64 + OTHER_FILES;
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    // Not further: what the program starts inherits the limit, and `select` knows 1,024 files.
    let raised = needed.min(hard);
    if soft < raised
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, raised, hard)
    {
        tracing::warn!(rank, %error, soft, needed, "the limit of open files stays");
    }
    if hard < needed {
        tracing::warn!(rank, size, hard, needed, "fewer open files than links to all ranks");
    }
}

/// The error of a link that could not be made; it says what to do where files are missing.
pub(super) fn explained(error: io::Error) -> io::Error {
    if !is_missing(&error) {
        return error;
    }
    let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
    let text = format!(
        "{error}: {soft} are allowed (ulimit -n), and a rank needs one for each rank that it \
         exchanges messages with"
    );
    io::Error::new(error.kind(), text)
}

/// Whether no file can be opened now.
pub(super) fn is_missing(error: &io::Error) -> bool {
    use nix::errno::Errno;
    let codes = [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM];
    codes.iter().any(|code| error.raw_os_error() == Some(*code as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_finds_no_file_says_which_limit_to_raise() {
        let error = explained(io::Error::from_raw_os_error(nix::errno::Errno::EMFILE as i32));
        let text = error.to_string();
        assert!(text.contains("ulimit -n") && text.contains("Too many open files"), "{text}");
        let other = explained(io::ErrorKind::ConnectionRefused.into());
        assert!(!text.is_empty() && !other.to_string().contains("ulimit"), "{other}");
    }

    #[test]
    fn a_job_of_many_ranks_may_open_its_links_where_the_system_allows_it() {
        let (before, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or_default();
        allow_links(0, limits::RANKS_MAX);
        let (after, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or_default();
        assert!(after >= before);
        assert!(after >= hard.min(u64::from(limits::RANKS_MAX)));
    }
}
