//! Packets ([`ftb_launcher_core::packet`]) from pipes.

use ftb_launcher_core::packet::{PacketDecoder, PacketError, PacketHead};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Bytes of one read.
const READ_BYTES: usize = 8 * 1024;

/// The packets of a stream.
pub struct PacketReader<R> {
    from: R,
    packets: PacketDecoder,
}

impl<R: AsyncRead + Unpin> PacketReader<R> {
    pub fn new(from: R, packet_bytes_max: usize) -> Self {
        Self { from, packets: PacketDecoder::new(packet_bytes_max) }
    }

    /// The next packet, or why there was none; `None` at the end of the stream. Cancel-safe.
    pub async fn next<T: PacketHead>(&mut self) -> Option<Result<T, PacketError>> {
        let mut piece = [0; READ_BYTES];
        loop {
            if let Some(packet) = self.packets.next_packet().transpose() {
                return Some(packet);
            }
            match self.from.read(&mut piece).await {
                Ok(0) | Err(_) => return None,
                Ok(got) => self.packets.push(&piece[..got]),
            }
        }
    }
}
