//! What a node agent and the tender of its pod say to each other, over two pipes that are all that leads out of a pod.
//!
//! To the tender: one JSON object a line. From the tender: frames of at most [`FRAME_BYTES_MAX`], each written in one
//! piece, so that no dump can fall between two halves of one: a byte with the kind, the rank and the length (four and
//! two bytes, little-endian), the bytes.

use crate::output::Stream;
use ftb_launcher_core::message::{Activity, How};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Largest frame in bytes: what a pipe takes in one piece.
pub const FRAME_BYTES_MAX: usize = 4096;
/// Kind, rank, length.
pub const HEAD_BYTES: usize = 7;
/// Most bytes that one frame carries.
pub const BODY_BYTES_MAX: usize = FRAME_BYTES_MAX - HEAD_BYTES;
/// Longest line to a tender: a rank's environment may be large.
pub const LINE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Most bytes of standard input in one word.
pub const INPUT_BYTES_MAX: usize = 16 * 1024;

/// What the agent says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToTender {
    /// Start a rank.
    Spawn {
        /// Which.
        rank: u32,
        /// Program and arguments.
        argv: Vec<String>,
        /// Its whole environment but for the number of its PMI descriptor.
        env: Vec<(String, String)>,
        /// Where.
        cwd: PathBuf,
        /// It has a standard input; else it reads its end at once.
        #[serde(default)]
        fed: bool,
    },
    /// Standard input for a rank; none is its end. Answered by [`Said::Took`] as the rank takes it.
    Input {
        /// Which.
        rank: u32,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A PMI answer, as it is to be written.
    Pmi {
        /// For whom.
        rank: u32,
        /// The line.
        line: String,
    },
    /// A signal to the process group of a rank.
    Signal {
        /// Which.
        rank: u32,
        /// Signal number.
        signal: i32,
    },
    /// Stop the ranks, and take no PMI line from any of them any more; answered by [`Said::Held`].
    Hold(u64),
    /// Answered by [`Said::Synced`] when everything before it is done.
    Sync,
    /// Go on.
    Go,
}

/// What the tender says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// It is there, with this process id inside the pod.
    Begun(u32),
    /// Output of a rank.
    Output(u32, Stream, Vec<u8>),
    /// A PMI line or message of a rank.
    Pmi(u32, String),
    /// A rank has ended, and its output is told.
    Ended(u32, How),
    /// A rank could not be started.
    Failed(u32, String),
    /// A rank that stands still has done so much until now.
    Worked(u32, Activity),
    /// The ranks stand still, and no PMI line comes any more.
    Held(u64),
    /// So many bytes of [`ToTender::Input`] are with their rank, or nobody wants them any more.
    Took(u32),
    /// See [`ToTender::Sync`].
    Synced,
}

impl Said {
    /// As a frame. What is too long is cut.
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

    /// How many bytes follow a head.
    pub fn body_length(head: [u8; HEAD_BYTES]) -> usize {
        usize::from(u16::from_le_bytes([head[5], head[6]])).min(BODY_BYTES_MAX)
    }

    /// Reads a frame; `None` when it is none. A pod runs programs of the user: nothing it says is trusted.
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

fn how(text: &str) -> Option<How> {
    match text.split_once(' ')? {
        ("exit", code) => code.parse().ok().map(How::Exit),
        ("signal", signal) => signal.parse().ok().map(How::Signal),
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
            Said::Begun(1001),
            Said::Output(3, Stream::Out, b"x\n".to_vec()),
            Said::Output(3, Stream::Err, vec![7; BODY_BYTES_MAX]),
            Said::Pmi(70_000, "cmd=init".to_owned()),
            Said::Ended(1, How::Exit(3)),
            Said::Ended(1, How::Signal(9)),
            Said::Failed(2, "no such file".to_owned()),
            Said::Worked(9, Activity { cpu_ms: 1, sent: u64::MAX }),
            Said::Held(1 << 40),
            Said::Took(u32::MAX),
            Said::Synced,
        ] {
            let frame = said.frame();
            assert!(frame.len() <= FRAME_BYTES_MAX);
            let head: [u8; HEAD_BYTES] = frame[..HEAD_BYTES].try_into().unwrap();
            assert_eq!(Said::body_length(head), frame.len() - HEAD_BYTES);
            assert_eq!(Said::read(head, frame[HEAD_BYTES..].to_vec()), Some(said));
        }
        assert_eq!(Said::Output(0, Stream::Out, vec![0; 9999]).frame().len(), FRAME_BYTES_MAX);
        for (kind, body) in [(b'?', ""), (b'x', "left"), (b'h', "x"), (b'w', "1"), (b'x', "exit")] {
            assert_eq!(Said::read([kind, 0, 0, 0, 0, 0, 0], body.into()), None);
        }
    }
}
