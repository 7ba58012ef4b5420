//! IPC between a node agent and the supervisor of its pod, over two pipes, the only descriptors
//! that leave a pod.
//!
//! To the supervisor: one JSON object a line. From the supervisor: frames of at most
//! [`FRAME_BYTES_MAX`], each written at once, so that no dump splits one: kind (1 byte), rank (4
//! bytes), length (2 bytes, little-endian), body.

use crate::output::Stream;
use ftb_launcher_core::message::ExitCause;
use ftb_launcher_core::progress::{Activity, Sample};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Largest frame in bytes: a pipe takes it in one piece.
pub const FRAME_BYTES_MAX: usize = 4096;
pub const HEAD_BYTES: usize = 7;
pub const BODY_BYTES_MAX: usize = FRAME_BYTES_MAX - HEAD_BYTES;
/// Longest line to a supervisor; a rank's environment may be large.
pub const LINE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Most bytes of standard input in one message.
pub const INPUT_BYTES_MAX: usize = 16 * 1024;

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
        bytes: Vec<u8>,
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

/// A message of the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromSupervisor {
    /// It runs, with this process id inside the pod.
    Begun(u32),
    /// Output of a rank.
    Output(u32, Stream, Vec<u8>),
    /// A PMI line or message of a rank.
    Pmi(u32, String),
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
    /// Encodes it; long bodies are cut.
    pub fn frame(&self) -> Vec<u8> {
        let text = |text: &str| text.as_bytes().to_vec();
        let (kind, rank, body) = match self {
            Self::Begun(pid) => (b'b', *pid, Vec::new()),
            Self::Output(rank, Stream::Out, bytes) => (b'o', *rank, bytes.clone()),
            Self::Output(rank, _, bytes) => (b'e', *rank, bytes.clone()),
            Self::Pmi(rank, line) => (b'p', *rank, text(line)),
            Self::Ended(rank, how) => (b'x', *rank, text(&how.to_string())),
            Self::Failed(rank, why) => (b'f', *rank, text(why)),
            Self::Worked(rank, done) => {
                (b'w', *rank, text(&format!("{} {}", done.cpu_ms, done.sent)))
            }
            Self::Sampled(rank, sample) => {
                (b'a', *rank, serde_json::to_vec(sample).unwrap_or_default())
            }
            Self::SampledAll => (b'z', 0, Vec::new()),
            Self::Held(number) => (b'h', 0, text(&number.to_string())),
            Self::Took(bytes) => (b't', *bytes, Vec::new()),
            Self::Synced => (b's', 0, Vec::new()),
        };
        let length = body.len().min(BODY_BYTES_MAX);
        let mut frame = vec![kind];
        frame.extend(rank.to_le_bytes());
        frame.extend(u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes());
        frame.extend(&body[..length]);
        frame
    }

    /// Length of the body after this head.
    pub fn body_length(head: [u8; HEAD_BYTES]) -> usize {
        usize::from(u16::from_le_bytes([head[5], head[6]])).min(BODY_BYTES_MAX)
    }

    /// Decodes a frame; `None` if it is invalid. A pod runs programs of the user and is not
    /// trusted.
    pub fn read(head: [u8; HEAD_BYTES], body: Vec<u8>) -> Option<Self> {
        let number = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Some(match head[0] {
            b'b' => Self::Begun(number),
            b'o' => Self::Output(number, Stream::Out, body),
            b'e' => Self::Output(number, Stream::Err, body),
            b'p' => Self::Pmi(number, text(body)),
            b'x' => Self::Ended(number, how(&text(body))?),
            b'f' => Self::Failed(number, text(body)),
            b'w' => Self::Worked(number, activity(&text(body))?),
            b'a' => Self::Sampled(number, serde_json::from_slice(&body).ok()?),
            b'z' => Self::SampledAll,
            b'h' => Self::Held(text(body).parse().ok()?),
            b't' => Self::Took(number),
            b's' => Self::Synced,
            _ => return None,
        })
    }
}

fn activity(text: &str) -> Option<Activity> {
    let (cpu_ms, sent) = text.split_once(' ')?;
    Some(Activity { cpu_ms: cpu_ms.parse().ok()?, sent: sent.parse().ok()? })
}

fn how(text: &str) -> Option<ExitCause> {
    match text.split_once(' ')? {
        ("exit", code) => code.parse().ok().map(ExitCause::Exit),
        ("signal", signal) => signal.parse().ok().map(ExitCause::Signal),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_frame_reads_back_and_fits_a_pipe() {
        for said in [
            FromSupervisor::Begun(1001),
            FromSupervisor::Output(3, Stream::Out, b"x\n".to_vec()),
            FromSupervisor::Output(3, Stream::Err, vec![7; BODY_BYTES_MAX]),
            FromSupervisor::Pmi(70_000, "cmd=init".to_owned()),
            FromSupervisor::Ended(1, ExitCause::Exit(3)),
            FromSupervisor::Ended(1, ExitCause::Signal(9)),
            FromSupervisor::Failed(2, "no such file".to_owned()),
            FromSupervisor::Worked(9, Activity { cpu_ms: 1, sent: u64::MAX }),
            FromSupervisor::Sampled(2, Box::default()),
            FromSupervisor::SampledAll,
            FromSupervisor::Held(1 << 40),
            FromSupervisor::Took(u32::MAX),
            FromSupervisor::Synced,
        ] {
            let frame = said.frame();
            assert!(frame.len() <= FRAME_BYTES_MAX);
            let head: [u8; HEAD_BYTES] = frame[..HEAD_BYTES].try_into().unwrap();
            assert_eq!(FromSupervisor::body_length(head), frame.len() - HEAD_BYTES);
            assert_eq!(FromSupervisor::read(head, frame[HEAD_BYTES..].to_vec()), Some(said));
        }
        assert_eq!(
            FromSupervisor::Output(0, Stream::Out, vec![0; 9999]).frame().len(),
            FRAME_BYTES_MAX
        );
        for (kind, body) in [(b'?', ""), (b'x', "left"), (b'h', "x"), (b'w', "1"), (b'x', "exit")] {
            assert_eq!(FromSupervisor::read([kind, 0, 0, 0, 0, 0, 0], body.into()), None);
        }
    }
}
