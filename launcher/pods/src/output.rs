//! Reads the output of a rank in frames of whole lines.

use bytes::Bytes;
pub use ftb_launcher_core::link::packet::Stream;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::sync::mpsc;

/// Most bytes of one frame.
pub const FRAME_BYTES_MAX: usize = 64 * 1024;
/// Longest line with one prefix; longer lines are cut.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// Some output of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub rank: u32,
    pub stream: Stream,
    /// Whole lines where the rank writes lines.
    pub bytes: Bytes,
}

/// Reads a stream of a rank to its end, in whole lines unless they are too long.
pub async fn read(
    rank: u32,
    stream: Stream,
    from: impl AsyncRead + Unpin,
    to: mpsc::Sender<Frame>,
) {
    let mut from = BufReader::with_capacity(FRAME_BYTES_MAX, from);
    loop {
        let mut bytes = Vec::new();
        let mut limited = (&mut from).take(LINE_BYTES_MAX as u64);
        match limited.read_until(b'\n', &mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        // Adds what is available, up to its last line end.
        let waiting = from.buffer();
        let room = waiting.len().min(FRAME_BYTES_MAX - bytes.len());
        if bytes.ends_with(b"\n")
            && let Some(end) = waiting[..room].iter().rposition(|byte| *byte == b'\n')
        {
            bytes.extend_from_slice(&waiting[..=end]);
            from.consume(end + 1);
        }
        if to.send(Frame { rank, stream, bytes: bytes.into() }).await.is_err() {
            return;
        }
    }
}
