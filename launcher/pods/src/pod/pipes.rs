//! The two pipes between a node agent and the supervisor of its pod, and the tasks that carry
//! messages ([`super::ipc`]).

use super::ipc::{FromSupervisor, HEAD_BYTES, ToSupervisor};
use nix::fcntl::OFlag;
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

/// Our ends as streams, the supervisor's as descriptors, and their inode numbers.
pub(super) struct Pipes {
    pub(super) writer: pipe::Sender,
    pub(super) reader: pipe::Receiver,
    pub(super) theirs: (OwnedFd, OwnedFd),
    pub(super) inodes: (u64, u64),
}

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

/// Writes messages until there is no sender or no reader.
pub(super) async fn write_messages(
    mut writer: pipe::Sender,
    mut words: mpsc::Receiver<ToSupervisor>,
) {
    while let Some(word) = words.recv().await {
        let Ok(mut line) = serde_json::to_vec(&word) else { continue };
        line.push(b'\n');
        if writer.write_all(&line).await.is_err() {
            return;
        }
    }
}

/// Reads frames until the supervisor ends. An invalid frame ends the pod.
pub(super) async fn read_messages(reader: pipe::Receiver, said: mpsc::Sender<FromSupervisor>) {
    let mut reader = BufReader::new(reader);
    loop {
        let mut head = [0; HEAD_BYTES];
        if reader.read_exact(&mut head).await.is_err() {
            return;
        }
        let mut body = vec![0; FromSupervisor::body_length(head)];
        if reader.read_exact(&mut body).await.is_err() {
            return;
        }
        let Some(word) = FromSupervisor::read(head, body) else {
            tracing::warn!("a pod sent an invalid message: it is ended");
            return;
        };
        if said.send(word).await.is_err() {
            return;
        }
    }
}
