//! Open files of this process: each link is one.

use crate::limits;
use nix::errno::Errno;
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
    // Others are limits of the whole node.
    if error.raw_os_error() != Some(Errno::EMFILE as i32) {
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
    let codes = [Errno::EMFILE, Errno::ENFILE];
    codes.iter().any(|code| error.raw_os_error() == Some(*code as i32))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::tests::of_many;
    use super::*;
    use crate::channel::Channel;
    use crate::hello::CHALLENGE_BYTES;
    use std::fs::File;
    use std::io::Read;
    use std::net::TcpStream;
    use std::time::Instant;

    /// Its process is of this test alone.
    const ALONE: &str = "FTB_TEST_ALONE";

    /// All files that this process may open.
    fn all_files() -> Vec<File> {
        std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
    }

    /// Both ranks are in this process.
    fn links_are_made_when_there_are_files() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let ((_listens, at, _heard), (dials, ..)) = (of_many(0, 3, None), of_many(1, 3, None));
        let (other, ..) = of_many(2, 3, None);
        setrlimit(Resource::RLIMIT_NOFILE, hard.min(100), hard).unwrap();
        for channel in [&dials, &other] {
            channel.connect(&at).unwrap();
        }
        let mut files = all_files();
        let mut give = |count: usize| drop(files.split_off(files.len() - count));
        std::thread::scope(|scope| {
            let reaching = scope.spawn(|| dials.reach(0));
            std::thread::sleep(3 * limits::ACCEPT_PAUSE);
            // That which is dialled, and that which is accepted.
            give(2);
            reaching.join().unwrap().unwrap();
        });
        give(2);
        let mut stranger = TcpStream::connect(&at.addresses["tcp"]).unwrap();
        stranger.read_exact(&mut [0; CHALLENGE_BYTES]).unwrap();
        give(1);
        let start = Instant::now();
        other.reach(0).unwrap();
        assert!(start.elapsed() < limits::HELLO_TIMEOUT / 2);
        assert_eq!(stranger.read(&mut [0]).unwrap(), 0, "it has made room");
    }

    /// The limit is one of all threads of a process.
    #[test]
    fn a_link_waits_for_a_file_and_a_stranger_makes_room() {
        if std::env::var_os(ALONE).is_some() {
            return links_are_made_when_there_are_files();
        }
        let module = module_path!().split_once("::").unwrap().1;
        let name = format!("{module}::a_link_waits_for_a_file_and_a_stranger_makes_room");
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let output = alone.args(["--exact", &name]).env(ALONE, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains(" 1 passed"), "{text}");
    }

    #[test]
    fn a_link_that_finds_no_file_says_which_limit_to_raise() {
        let of = |code: Errno| explained(io::Error::from_raw_os_error(code as i32)).to_string();
        let text = of(Errno::EMFILE);
        assert!(text.contains("ulimit -n") && text.contains("Too many open files"), "{text}");
        // These are not limits of this process.
        for code in [Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM, Errno::ECONNREFUSED] {
            assert!(!of(code).contains("ulimit"), "{code}");
        }
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
