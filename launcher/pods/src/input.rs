//! The standard input of the job on its way to rank 0.

use bytes::{Buf as _, BytesMut};
use std::io;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Standard input on the node of rank 0.
#[derive(Debug)]
pub struct JobInput {
    launcher: TcpStream,
    /// Acknowledgements for the launcher.
    telling: BytesMut,
}

impl JobInput {
    pub fn new(launcher: TcpStream) -> Self {
        Self { launcher, telling: BytesMut::new() }
    }

    /// The next bytes; 0 at the end. Cancel-safe.
    pub async fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.launcher.read(to).await
    }

    /// Acknowledges bytes that cannot be lost any more. Cancel-safe: the next call sends the rest.
    pub async fn taken(&mut self, bytes: usize) -> io::Result<()> {
        if bytes > 0 {
            self.telling.extend_from_slice(format!("{bytes}\n").as_bytes());
        }
        while !self.telling.is_empty() {
            let reported = self.launcher.write(&self.telling).await?;
            self.telling.advance(reported);
        }
        Ok(())
    }
}
