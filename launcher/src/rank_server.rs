//! Serves the sockets of the processes of this node ([`ftb_job::rank_socket`]), each by a thread:
//! requests about images in memory, loop ids and saves of `ftb_loop`, and what a parked process
//! says before it is a rank.

use super::loops::Loops;
use super::memory::{Content, NodeMemory};
use ftb_job::rank_socket::{AgentPacket, RankPacket, RankSocket, reason};
use ftb_launcher_core::nla::NlaInput;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc;

/// Stack of the thread of a process, in bytes.
const STACK_BYTES: usize = 128 * 1024;

/// What a process gets.
#[derive(Clone, Debug, Default)]
pub(crate) struct RankServer {
    /// Its rank; a parked process has none until one adopts it.
    pub(crate) rank: Arc<OnceLock<u32>>,
    /// Images in memory, if the job has them.
    pub(crate) memory: Option<NodeMemory>,
    /// With its incarnation, if it may call `ftb_loop`.
    pub(crate) loops: Option<(Loops, u64)>,
    /// The id of a process that was parked, and who learns what it says.
    pub(crate) parked: Option<(u32, mpsc::Sender<NlaInput>)>,
}

impl RankServer {
    /// Serves a process until it ends or breaks the protocol; the socket is closed then.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn serve(self, socket: Arc<RankSocket>) -> io::Result<()> {
        let name = match &self.parked {
            Some((pid, _)) => format!("parked-{pid}"),
            None => format!("rank-{}", self.rank.get().copied().unwrap_or_default()),
        };
        if let (Some((loops, incarnation)), Some(rank)) = (&self.loops, self.rank.get()) {
            loops.add(*rank, *incarnation, &socket);
        }
        let serve = move || {
            if let Err(error) = self.listen(&socket) {
                tracing::warn!(rank = self.rank.get(), %error, "the socket of a process failed");
            }
            if let (Some((loops, incarnation)), Some(rank)) = (&self.loops, self.rank.get()) {
                loops.gone(*rank, *incarnation);
            }
            socket.close();
        };
        std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(serve)?;
        Ok(())
    }

    fn listen(&self, socket: &RankSocket) -> io::Result<()> {
        while let Some((packet, memory)) = socket.receive()? {
            let unexpected = || io::Error::other(format!("unexpected packet: {packet:?}"));
            let Some(rank) = self.rank.get().copied() else {
                let RankPacket::Parked = packet else { return Err(unexpected()) };
                self.inform(|pid| NlaInput::Parked { pid }).ok_or_else(unexpected)?;
                continue;
            };
            match packet {
                RankPacket::Room { .. } | RankPacket::Put { .. } | RankPacket::Get { .. } => {
                    self.answer(socket, rank, &packet, memory)?;
                }
                RankPacket::Adopted => {
                    self.inform(|pid| NlaInput::Adopted { pid }).ok_or_else(unexpected)?;
                }
                // It was sent before the adoption.
                RankPacket::Parked if self.parked.is_some() => {}
                _ => {
                    let Some((loops, incarnation)) = &self.loops else { return Err(unexpected()) };
                    if !loops.on_packet(rank, *incarnation, &packet) {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// `None`: the process was not parked.
    fn inform(&self, input: impl Fn(u32) -> NlaInput) -> Option<()> {
        let (pid, inputs) = self.parked.as_ref()?;
        // Without a receiver the launch agent ends.
        let _ = inputs.blocking_send(input(*pid));
        Some(())
    }

    fn answer(
        &self,
        socket: &RankSocket,
        rank: u32,
        request: &RankPacket,
        memory: Option<OwnedFd>,
    ) -> io::Result<()> {
        let none = || Err("this node holds no images in memory: run with --memory".to_owned());
        let answered =
            self.memory.as_ref().map_or_else(none, |of| of.answer(rank, request, memory));
        let refused = match answered {
            Ok(None) => return socket.send(&AgentPacket::Ok, None),
            Ok(Some(image)) => match &*image {
                Content::Memory(file) => return socket.send(&AgentPacket::Ok, Some(file.as_fd())),
                Content::Pod(_) => "the image is that of a pod".to_owned(),
            },
            Err(why) => reason(&why),
        };
        socket.send(&AgentPacket::Refused(refused), None)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ftb_launcher_core::names::{Episode, NodeName, Ranks, SetId};
    use ftb_launcher_core::nla::NlaOutput;

    fn served(server: RankServer) -> (Arc<RankSocket>, RankSocket) {
        let (ours, theirs) = RankSocket::pair().unwrap();
        let ours = Arc::new(ours);
        server.serve(ours.clone()).unwrap();
        (ours, RankSocket::new(theirs))
    }

    fn next(rank: &RankSocket) -> Option<AgentPacket> {
        rank.receive().unwrap().map(|(packet, _)| packet)
    }

    #[test]
    fn one_socket_carries_images_and_orders_and_ends_when_the_rank_breaks_the_protocol() {
        let (inputs, mut answers) = mpsc::channel(8);
        let loops = Loops::new(inputs);
        let memory = NodeMemory::new(NodeName::new("node01").unwrap(), 10);
        let (_ours, rank) = served(RankServer {
            rank: Arc::new(4.into()),
            memory: Some(memory),
            loops: Some((loops.clone(), 1)),
            parked: None,
        });
        let (episode, set) = (Episode(1), SetId::of_memory(Episode(1)));
        let ranks = Ranks::from_iter([4]);
        let prepare = NlaOutput::Prepare { episode, set: set.clone(), ranks };
        assert!(loops.act(&prepare).is_none());
        rank.send(&RankPacket::Room { set: set.to_string(), bytes: 11 }, None).unwrap();
        assert_eq!(next(&rank), Some(AgentPacket::Where));
        assert!(matches!(next(&rank), Some(AgentPacket::Refused(why)) if why.contains("11 bytes")));
        rank.send(&RankPacket::Room { set: set.to_string(), bytes: 10 }, None).unwrap();
        assert_eq!(next(&rank), Some(AgentPacket::Ok));
        rank.send(&RankPacket::At { loop_id: 3, period_us: 1_000_000 }, None).unwrap();
        let answer = answers.blocking_recv();
        assert!(matches!(answer, Some(NlaInput::Looping { loop_id: 4, .. })), "{answer:?}");
        rank.send(&RankPacket::Adopted, None).unwrap();
        assert_eq!(next(&rank), None, "a rank that breaks the protocol is left alone");
        while loops.act(&prepare).is_none() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_parked_process_asks_for_nothing_before_it_is_a_rank() {
        let (inputs, mut said) = mpsc::channel(8);
        let server = RankServer { parked: Some((71, inputs)), ..RankServer::default() };
        let (_ours, early) = served(server.clone());
        early.send(&RankPacket::Get { set: "mem-000001".to_owned(), rank: 0 }, None).unwrap();
        assert_eq!(next(&early), None);
        let server = RankServer { rank: Arc::default(), ..server };
        let rank = server.rank.clone();
        let (ours, process) = served(server);
        process.send(&RankPacket::Parked, None).unwrap();
        assert!(matches!(said.blocking_recv(), Some(NlaInput::Parked { pid: 71 })));
        rank.set(3).unwrap();
        process.send(&RankPacket::Adopted, None).unwrap();
        assert!(matches!(said.blocking_recv(), Some(NlaInput::Adopted { pid: 71 })));
        process.send(&RankPacket::Get { set: "mem-000001".to_owned(), rank: 3 }, None).unwrap();
        assert!(
            matches!(next(&process), Some(AgentPacket::Refused(why)) if why.contains("--memory"))
        );
        ours.close();
        assert_eq!(next(&process), None, "also while a thread waits for a packet");
    }
}
