//! The standard input of the job on its way to rank 0.

use bytes::{Buf as _, BytesMut};
use std::io;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Standard input, as the node of rank 0 has it.
#[derive(Debug)]
pub struct JobInput {
    launcher: TcpStream,
    /// What the launcher is to be told.
    telling: BytesMut,
}

impl JobInput {
    /// On a connection that has just been accepted.
    pub fn new(launcher: TcpStream) -> Self {
        Self { launcher, telling: BytesMut::new() }
    }

    /// The next bytes; none at the end. Cancel-safe.
    ///
    /// # Errors
    /// The connection's.
    pub async fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.launcher.read(to).await
    }

    /// So many bytes are where nothing can lose them any more. Cancel-safe: what is not told yet is told the next time.
    ///
    /// # Errors
    /// The connection's.
    pub async fn taken(&mut self, bytes: usize) -> io::Result<()> {
        if bytes > 0 {
            self.telling.extend_from_slice(format!("{bytes}\n").as_bytes());
        }
        while !self.telling.is_empty() {
            let told = self.launcher.write(&self.telling).await?;
            self.telling.advance(told);
        }
        Ok(())
    }
}
