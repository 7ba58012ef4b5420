//! IPC between a node agent and the supervisor of its pod: packets over two pipes, the only
//! descriptors that leave a pod.
//!
//! Each packet of the supervisor is written at once, so that no dump splits one. A pod runs
//! programs of the user and is not trusted.

use crate::output::Stream;
use bytes::Bytes;
use ftb_launcher_core::message::ExitCause;
use ftb_launcher_core::packet::PacketHead;
use ftb_launcher_core::progress::{Activity, Sample};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Longest packet of a supervisor: a pipe takes it in one piece.
pub const FROM_BYTES_MAX: usize = 4096;
/// Most bytes behind a head of a supervisor.
pub const PIECE_BYTES_MAX: usize = FROM_BYTES_MAX - 96;
/// Longest packet to a supervisor; a rank's environment may be large.
pub const TO_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most bytes of standard input in one packet.
pub const INPUT_BYTES_MAX: usize = 16 * 1024;
/// Most characters of a reason.
const REASON_CHARS_MAX: usize = 400;

/// A message of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToSupervisor {
    Spawn {
        rank: u32,
        argv: Vec<String>,
        /// Its environment, without the number of its PMI descriptor.
        env: Vec<(String, String)>,
        cwd: PathBuf,
        /// It has a standard input; otherwise it reads its end at once.
        #[serde(default)]
        stdin: bool,
    },
    /// Standard input for a rank; empty at its end. Answered by [`FromSupervisor::Took`].
    Input {
        rank: u32,
        #[serde(skip)]
        bytes: Bytes,
    },
    /// A PMI answer.
    Pmi {
        rank: u32,
        line: String,
    },
    /// A signal to the process group of a rank.
    Signal {
        rank: u32,
        signal: i32,
    },
    /// Stop the ranks and read no more PMI lines. Answered by [`FromSupervisor::Held`].
    Hold(u64),
    /// Look at the ranks. Answered by a [`FromSupervisor::Sampled`] for each, then
    /// [`FromSupervisor::SampledAll`].
    Sample,
    /// Answered by [`FromSupervisor::Synced`] when all earlier messages are handled.
    Sync,
    Go,
}

impl PacketHead for ToSupervisor {
    fn bytes(&mut self) -> Option<&mut Bytes> {
        match self {
            Self::Input { bytes, .. } => Some(bytes),
            _ => None,
        }
    }
}

/// A message of the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromSupervisor {
    /// It runs, with this process id inside the pod.
    Begun(u32),
    /// Output of a rank.
    Output {
        rank: u32,
        stream: Stream,
        #[serde(skip)]
        bytes: Bytes,
    },
    /// A PMI line or message of a rank.
    Pmi {
        rank: u32,
        #[serde(skip)]
        text: Bytes,
    },
    /// A rank has ended; its output was sent before.
    Ended(u32, ExitCause),
    /// A rank could not be started.
    Failed(u32, String),
    /// A look at a rank.
    Sampled(u32, Box<Sample>),
    /// A look at all ranks is over.
    SampledAll,
    /// Activity of a stopped rank.
    Worked(u32, Activity),
    /// The ranks are stopped; no PMI line follows.
    Held(u64),
    /// Bytes of [`ToSupervisor::Input`] that their rank has taken or that are void.
    Took(u32),
    Synced,
}

impl FromSupervisor {
    pub(super) fn failed(rank: u32, reason: &impl ToString) -> Self {
        Self::Failed(rank, reason.to_string().chars().take(REASON_CHARS_MAX).collect())
    }
}

impl PacketHead for FromSupervisor {
    fn bytes(&mut self) -> Option<&mut Bytes> {
        match self {
            Self::Output { bytes, .. } | Self::Pmi { text: bytes, .. } => Some(bytes),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_of_a_supervisor_reads_back_and_fits_a_pipe() {
        let bytes = Bytes::from(vec![7; PIECE_BYTES_MAX]);
        let sample = Sample { steps: u64::MAX, ..Sample::default() };
        for said in [
            FromSupervisor::Begun(1001),
            FromSupervisor::Output { rank: 3, stream: Stream::Out, bytes: "x\n".into() },
            FromSupervisor::Output { rank: u32::MAX, stream: Stream::Err, bytes: bytes.clone() },
            FromSupervisor::Pmi { rank: u32::MAX, text: bytes },
            FromSupervisor::Ended(1, ExitCause::Exit(3)),
            FromSupervisor::Ended(1, ExitCause::Signal(9)),
            FromSupervisor::failed(2, &"\u{1}".repeat(9999)),
            FromSupervisor::Worked(9, Activity { cpu_ms: 1, sent: u64::MAX }),
            FromSupervisor::Sampled(2, Box::new(sample)),
            FromSupervisor::SampledAll,
            FromSupervisor::Held(1 << 40),
            FromSupervisor::Took(u32::MAX),
            FromSupervisor::Synced,
        ] {
            let packet = said.clone().encode();
            assert!(packet.len() <= FROM_BYTES_MAX, "{packet:?}");
            assert_eq!(FromSupervisor::decode(packet), Ok(said));
        }
    }
}
