//! A process that was started before a rank needs it (`--warm-spares`). It waits here, in
//! [`crate::Job::init`], and gets the environment of a rank when one adopts it.
//!
//! The variable [`PARKED`] says so. When its socket closes ([`crate::rank_socket`]), the job has
//! ended and the process exits with code 0. Responsible for the process's side. Not responsible for
//! which rank adopts it (the launch agent).

use crate::error::{Error, Result};
use crate::rank_socket::{AgentPacket, RankPacket, RankSocket};
use std::{io, process};

/// A process with this variable is parked.
pub const PARKED: &str = "FTB_PARKED";

/// Waits for a rank, if this process is to be parked. Ends the process with code 0 if the job ends
/// before.
pub(crate) fn wait(agent: Option<&RankSocket>) -> Result<()> {
    let Some(value) = std::env::var(PARKED).ok().filter(|value| !value.is_empty()) else {
        return Ok(());
    };
    let wrong = |problem: String| Error::Environment { variable: PARKED, value, problem };
    let adopted = match agent {
        Some(agent) => adoption(agent).and_then(|environment| {
            let Some(environment) = environment else { process::exit(0) };
            set(&environment);
            agent.send(&RankPacket::Adopted, None)
        }),
        None => Err(io::Error::other("FTB_RANK_FD is not set")),
    };
    adopted.map_err(|error| wrong(format!("no rank adopts it: {error}")))
}

/// The variables of a rank; `None`: the connection was closed.
fn adoption(agent: &RankSocket) -> io::Result<Option<Vec<(String, String)>>> {
    agent.send(&RankPacket::Parked, None)?;
    let usable = |(key, value): &(String, String)| {
        !key.is_empty() && !key.contains(['=', '\0']) && !value.contains('\0')
    };
    match agent.receive()? {
        None => Ok(None),
        Some((AgentPacket::Adopt(pairs), _)) if pairs.iter().all(usable) => Ok(Some(pairs)),
        Some(_) => Err(io::Error::other("the launch agent sends no environment of a rank")),
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
    unsafe { std::env::remove_var(PARKED) };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// What a process gets that was sent this packet before the connection was closed.
    fn sent(packet: Option<&AgentPacket>) -> io::Result<Option<Vec<(String, String)>>> {
        let (agent, process) = RankSocket::pair().unwrap();
        if let Some(packet) = packet {
            agent.send(packet, None).unwrap();
        }
        let waits = std::thread::spawn(move || adoption(&RankSocket::new(process)));
        assert_eq!(agent.receive::<RankPacket>().unwrap().unwrap().0, RankPacket::Parked);
        agent.close();
        waits.join().unwrap()
    }

    #[test]
    fn a_parked_process_gets_the_environment_of_its_rank_or_nothing() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let adopt = |pairs: &[(String, String)]| sent(Some(&AgentPacket::Adopt(pairs.to_vec())));
        let environment =
            vec![pair("FTB_RANK", "3"), pair("FTB_RESTORE", "/a=b\nc"), pair("EMPTY", "")];
        assert_eq!(adopt(&environment).unwrap(), Some(environment));
        assert_eq!(adopt(&[]).unwrap(), Some(Vec::new()));
        assert_eq!(sent(None).unwrap(), None);
        for (key, value) in [("", "3"), ("A=B", "3"), ("A\0", "3"), ("A", "\0")] {
            assert!(adopt(&[pair(key, value)]).is_err(), "{key:?}");
        }
        assert!(sent(Some(&AgentPacket::Cancel)).is_err());
    }
}
