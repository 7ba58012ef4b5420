//! The two pipes between a node agent and the supervisor of its pod, and the tasks that carry
//! messages ([`super::ipc`]).

use super::ipc::{FROM_BYTES_MAX, FromSupervisor, ToSupervisor};
use crate::packets::PacketReader;
use ftb_launcher_core::packet::PacketHead as _;
use nix::fcntl::OFlag;
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::AsyncWriteExt as _;
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
        if writer.write_all(&word.encode()).await.is_err() {
            return;
        }
    }
}

/// Reads messages until the supervisor ends. An invalid one ends the pod.
pub(super) async fn read_messages(reader: pipe::Receiver, said: mpsc::Sender<FromSupervisor>) {
    let mut packets = PacketReader::new(reader, FROM_BYTES_MAX);
    while let Some(packet) = packets.next().await {
        match packet {
            Ok(word) => {
                if said.send(word).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a pod sent an invalid message: it is ended");
                return;
            }
        }
    }
}
