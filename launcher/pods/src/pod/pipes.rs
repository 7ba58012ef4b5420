//! The two pipes between a node agent and the tender of its pod: who carries words ([`super::words`]) through them.

use super::words::{HEAD_BYTES, Said, ToTender};
use nix::fcntl::OFlag;
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

/// The two pipes: our ends as streams, the tender's as descriptors, and their inode numbers.
pub(super) struct Pipes {
    pub(super) writer: pipe::Sender,
    pub(super) reader: pipe::Receiver,
    pub(super) theirs: (OwnedFd, OwnedFd),
    pub(super) inodes: (u64, u64),
}

/// New ones.
pub(super) fn pipes() -> io::Result<Pipes> {
    let inode = |fd: &OwnedFd| nix::sys::stat::fstat(fd).map(|data| data.st_ino);
    let (input, to) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    let (from, output) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    let inodes = (inode(&input)?, inode(&output)?);
    Ok(Pipes {
        writer: pipe::Sender::from_owned_fd(to)?,
        reader: pipe::Receiver::from_owned_fd(from)?,
        theirs: (input, output),
        inodes,
    })
}

/// Writes words until nobody has any more, or nobody reads them.
pub(super) async fn write_words(mut writer: pipe::Sender, mut words: mpsc::Receiver<ToTender>) {
    while let Some(word) = words.recv().await {
        let Ok(mut line) = serde_json::to_vec(&word) else { continue };
        line.push(b'\n');
        if writer.write_all(&line).await.is_err() {
            return;
        }
    }
}

/// Reads frames until the pipe ends: the tender is gone then. What is no frame ends it too.
pub(super) async fn read_words(reader: pipe::Receiver, said: mpsc::Sender<Said>) {
    let mut reader = BufReader::new(reader);
    loop {
        let mut head = [0; HEAD_BYTES];
        if reader.read_exact(&mut head).await.is_err() {
            return;
        }
        let mut body = vec![0; Said::body_length(head)];
        if reader.read_exact(&mut body).await.is_err() {
            return;
        }
        let Some(word) = Said::read(head, body) else {
            tracing::warn!("a pod said what is no word of it: it is ended");
            return;
        };
        if said.send(word).await.is_err() {
            return;
        }
    }
}
