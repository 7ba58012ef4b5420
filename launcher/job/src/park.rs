//! A process that was started before a rank needs it (`--warm-spares`). It waits here, in
//! [`crate::Job::init`], and gets the environment of a rank when one adopts it.
//!
//! ```text
//! process -> agent   parked
//! agent -> process   KEY=VALUE for each variable, each with a zero byte behind it, and one more
//! process -> agent   adopted
//! ```
//!
//! The connection is a stream socket that the process inherits (`FTB_PARK_FD`), so the agent knows
//! whose it is. When it closes, the job has ended and the process exits with code 0. Responsible
//! for the process's side. Not responsible for which rank adopts it (the launch agent).

use crate::descriptor::inherited;
use crate::error::{Error, Result};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process;

/// The variable with the number of the descriptor. A process with it is parked.
pub const PARK_FD: &str = "FTB_PARK_FD";
/// What a process says when it waits.
pub const PARKED: &str = "parked";
/// What it says when it is a rank.
pub const ADOPTED: &str = "adopted";
/// Most bytes of an environment. An idle Unix socket has room for as many.
pub const ADOPT_BYTES_MAX: usize = 64 * 1024;

/// Waits for a rank, if this process is to be parked. Ends the process with code 0 if the job ends
/// before.
pub(crate) fn wait() -> Result<()> {
    let Some(number) = std::env::var(PARK_FD).ok().filter(|number| !number.is_empty()) else {
        return Ok(());
    };
    let wrong = |problem: &str| Error::Environment {
        variable: PARK_FD,
        value: number.clone(),
        problem: problem.to_owned(),
    };
    let descriptor = number.parse().map_err(|_| wrong("expected a decimal number"))?;
    let connection = UnixStream::from(inherited(PARK_FD, descriptor)?);
    match adoption(&connection).map_err(|error| wrong(&format!("no rank adopts it: {error}")))? {
        None => process::exit(0),
        Some(environment) => set(&environment),
    }
    say(&connection, ADOPTED).map_err(|error| wrong(&format!("the agent is gone: {error}")))
}

fn say(mut connection: &UnixStream, word: &str) -> io::Result<()> {
    connection.write_all(format!("{word}\n").as_bytes())
}

/// The variables of a rank; `None`: the connection was closed.
fn adoption(connection: &UnixStream) -> io::Result<Option<Vec<(String, String)>>> {
    say(connection, PARKED)?;
    let mut reader = BufReader::new(connection).take(ADOPT_BYTES_MAX as u64);
    let mut environment = Vec::new();
    loop {
        let mut pair = Vec::new();
        reader.read_until(0, &mut pair)?;
        if pair.pop() != Some(0) {
            return Ok(None);
        }
        if pair.is_empty() {
            return Ok(Some(environment));
        }
        let pair = String::from_utf8(pair).map_err(io::Error::other)?;
        let (key, value) =
            pair.split_once('=').ok_or_else(|| io::Error::other("a variable without a value"))?;
        environment.push((key.to_owned(), value.to_owned()));
    }
}

#[expect(unsafe_code, reason = "the process becomes another one, before any code of a rank")]
fn set(environment: &[(String, String)]) {
    for (key, value) in environment {
        // SAFETY: the program is in the initialization of ftb-job, which asks that no other thread
        // of it uses the environment meanwhile (`Job::init`). This library has no thread yet.
        unsafe { std::env::set_var(key, value) };
    }
    // SAFETY: as above.
    unsafe { std::env::remove_var(PARK_FD) };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// What a process gets that was sent these bytes before the connection was closed.
    fn sent(bytes: &[u8]) -> io::Result<Option<Vec<(String, String)>>> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(bytes).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let got = adoption(&ours);
        let mut said = [0; 7];
        theirs.read_exact(&mut said).unwrap();
        assert_eq!(said, *b"parked\n");
        got
    }

    #[test]
    fn a_parked_process_gets_the_environment_of_its_rank_or_nothing() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let got = sent(b"FTB_RANK=3\0FTB_RESTORE=/a=b\nc\0EMPTY=\0\0").unwrap();
        let expected =
            vec![pair("FTB_RANK", "3"), pair("FTB_RESTORE", "/a=b\nc"), pair("EMPTY", "")];
        assert_eq!(got, Some(expected));
        assert_eq!(sent(b"\0").unwrap(), Some(Vec::new()));
        for unended in [&b""[..], b"FTB_RANK=3", b"FTB_RANK=3\0", b"FTB_RANK=3\0FTB"] {
            assert_eq!(sent(unended).unwrap(), None, "{unended:?}");
        }
        assert!(sent(b"FTB_RANK\0\0").is_err());
        assert!(sent(b"FTB_RANK=\xff\0\0").is_err());
    }

    #[test]
    fn an_environment_has_a_largest_size() {
        let long = format!("KEY={}\0", "x".repeat(ADOPT_BYTES_MAX));
        assert_eq!(sent(long.as_bytes()).unwrap(), None);
    }
}
