//! Images, parity and combined cells between the nodes of a group, over connections of their own.
//!
//! [`Fold`] requests a combined cell along a path of members ([`stripes::path`]): the first one,
//! the server, takes the combination of the rest of the path from the next address, combines it
//! with its own cell, piece by piece, and sends it on. It refuses if its share has not that length.
//! A stream that breaks ends early, so no node takes it for a cell.
//!
//! Images are requested as those on disk are ([`crate::transfer`]).

use super::{Content, Image, NodeMemory, Part, each_part};
use crate::addresses::{self, Addresses};
use crate::connection::BlockingConnection;
use crate::image_request::{Fold, Hop, ImageAnswer, ImageRequest};
use ftb_job::memory::{create, seal};
use ftb_launcher_core::link::cipher::Secret;
use ftb_launcher_core::memory::shares::Stored;
use ftb_launcher_core::memory::stripes::{self, Cell};
use ftb_launcher_core::memory::{GroupTask, Member, Scheme};
use ftb_launcher_core::names::{NodeName, Ranks, SetId};
use std::fs::File;
use std::io::{self, Read as _, Write};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Bytes that are combined at once.
const PIECE_BYTES: usize = 128 * 1024;

/// The means to reach other nodes; for threads that may block.
#[derive(Clone)]
pub struct Peers {
    pub secret: Secret,
    pub runtime: Handle,
}

/// Answers a request of a combined cell; blocking.
///
/// # Errors
/// A connection breaks.
pub fn answer(
    memory: &NodeMemory,
    peers: &Peers,
    fold: &Fold,
    to: &mut BlockingConnection,
) -> io::Result<()> {
    let chunk = fold.chunk;
    let started = own_cell(memory, fold).and_then(|own| {
        let left = fold.next().map(|next| begin(peers, next)).transpose();
        Ok((own, left.map_err(|error| error.to_string())?))
    });
    let (own, mut left) = match started {
        Ok(started) => started,
        Err(reason) => {
            ImageAnswer::Refused(reason).send(to)?;
            return to.flush();
        }
    };
    ImageAnswer::File { bytes: chunk, digest: String::new() }.send(to)?;
    let (mut sum, mut cell) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    for (offset, length) in pieces(chunk) {
        let (sum, cell) = (&mut sum[..length], &mut cell[..length]);
        own(cell, offset)?;
        match &mut left {
            Some(left) => {
                left.read_exact(sum)?;
                stripes::combine(sum, cell);
                to.write_all(sum)?;
            }
            None => to.write_all(cell)?,
        }
    }
    to.flush()
}

type ReadCell = Box<dyn Fn(&mut [u8], u64) -> io::Result<()>>;

/// A reader of the cell that this node adds.
fn own_cell(memory: &NodeMemory, fold: &Fold) -> Result<ReadCell, String> {
    if !fold.is_possible() {
        return Err("no group has such a path".to_owned());
    }
    let Fold { set, stripe, chunk, first: Hop { member, owner, bytes, .. }, .. } = fold;
    match stripes::cell(*member, *stripe, *chunk) {
        Cell::Parity => {
            let parity = memory.shares().parity(set, owner).cloned();
            let parity = parity.ok_or_else(|| format!("no parity of {owner} of {set} is here"))?;
            if parity.bytes != *chunk {
                return Err(format!("the parity of {owner} has {} bytes", parity.bytes));
            }
            Ok(Box::new(move |to, offset| parity.data.read_exact_at(to, offset)))
        }
        Cell::Chunk { offset: begin } => {
            let share = memory.share(set, owner);
            let held: u64 = share.0.iter().map(|image| image.bytes).sum();
            if held != *bytes {
                return Err(format!(
                    "of the images of {owner} of {set} {held} bytes are here, not {bytes}"
                ));
            }
            // Beyond the end are zeros.
            let begin = begin.min(held);
            Ok(Box::new(move |to, offset| share.read_at(to, begin + offset)))
        }
    }
}

/// Offset and length of each piece.
fn pieces(bytes: u64) -> impl Iterator<Item = (u64, usize)> {
    (0..bytes).step_by(PIECE_BYTES).map(move |offset| {
        // At most PIECE_BYTES.
        (offset, (bytes - offset).min(PIECE_BYTES as u64) as usize)
    })
}

/// Requests a cell; its bytes follow.
fn begin(peers: &Peers, fold: Fold) -> io::Result<BlockingConnection> {
    let (address, chunk) = (fold.first.address.clone(), fold.chunk);
    open(peers, &address, ImageRequest::Fold(fold), chunk)
}

/// Requests bytes of a known length.
fn open(
    peers: &Peers,
    address: &str,
    request: ImageRequest,
    length: u64,
) -> io::Result<BlockingConnection> {
    let (bytes, reader) =
        BlockingConnection::ask_bytes(address, &peers.secret, &peers.runtime, request)?;
    if bytes != length {
        return Err(io::Error::other(format!("expected {length} bytes, not {bytes}")));
    }
    Ok(reader)
}

/// The work of one member of a group.
struct Work<'a> {
    memory: &'a NodeMemory,
    peers: &'a Peers,
    task: &'a GroupTask,
    addresses: &'a Addresses,
}

impl Work<'_> {
    fn address(&self, of: &Member) -> io::Result<&str> {
        let address = self.addresses.get(&of.host);
        let unknown = || io::Error::other(format!("node {} has no connection", of.host));
        address.map(String::as_str).ok_or_else(unknown)
    }

    fn member(&self, index: usize) -> io::Result<&Member> {
        let member = self.task.group.members.get(index);
        member.ok_or_else(|| io::Error::other("the group has no such member"))
    }

    /// Receives the member's cell of a stripe.
    fn fold(
        &self,
        stripe: usize,
        mut piece: impl FnMut(&[u8], u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let (group, chunk) = (&self.task.group, self.task.group.chunk_bytes());
        let path = stripes::path(group.members.len(), self.task.member, stripe);
        let hop = |member: usize| {
            let of = self.member(member)?;
            let (address, owner) = (self.address(of)?.to_owned(), of.owner.clone());
            Ok(Hop { address, member, owner, bytes: of.bytes() })
        };
        let path = path.into_iter().map(hop).collect::<io::Result<_>>()?;
        let fold = Fold::along(&self.task.set, stripe, chunk, path)
            .ok_or_else(|| io::Error::other("the group has one member"))?;
        let mut left = begin(self.peers, fold)?;
        let mut sum = vec![0; PIECE_BYTES];
        for (offset, length) in pieces(chunk) {
            left.read_exact(&mut sum[..length])?;
            piece(&sum[..length], offset)?;
        }
        Ok(())
    }

    /// Fetches the images of a member from a node that has them.
    fn copy(&self, of: &Member, from: &Member) -> io::Result<()> {
        let address = self.address(from)?;
        for (rank, bytes) in &of.images {
            let request = ImageRequest::Get { set: self.task.set.clone(), rank: *rank };
            let image = received(open(self.peers, address, request, *bytes)?, *bytes)?;
            self.keep(Some(&of.owner), *rank, *bytes, image)?;
        }
        Ok(())
    }

    fn keep(&self, owner: Option<&NodeName>, rank: u32, bytes: u64, image: File) -> io::Result<()> {
        let image = Stored { bytes, data: Arc::new(Content::Memory(image)) };
        self.memory.shares().put(&self.task.set, owner, rank, image).map_err(io::Error::other)
    }

    /// Makes parity or copies; returns their bytes.
    fn protect(&self) -> io::Result<u64> {
        let (group, index) = (&self.task.group, self.task.member);
        let bytes = group.protection_bytes(index);
        self.memory.shares().admit(bytes).map_err(io::Error::other)?;
        match group.scheme {
            Scheme::Xor(_) => {
                let parity = create("parity")?;
                self.fold(index, |piece, offset| parity.write_all_at(piece, offset))?;
                let parity = Stored { bytes, data: Arc::new(Content::Memory(parity)) };
                let owner = &self.member(index)?.owner;
                let kept = self.memory.shares().put_parity(&self.task.set, owner, parity);
                kept.map_err(io::Error::other)?;
            }
            Scheme::Buddy(_) => {
                for ward in group.wards(index) {
                    if !self.task.lost.contains(&ward) {
                        let of = self.member(ward)?;
                        self.copy(of, of)?;
                    }
                }
            }
        }
        Ok(bytes)
    }

    /// The images of the lost member, from the others; returns their bytes.
    fn gather(&self) -> io::Result<u64> {
        let of = self.member(self.task.member)?;
        self.memory.shares().admit(of.bytes()).map_err(io::Error::other)?;
        match self.task.group.scheme {
            Scheme::Xor(_) => self.decode(of)?,
            Scheme::Buddy(_) => self.copy_from_guard(of)?,
        }
        self.protect()?;
        Ok(of.bytes())
    }

    fn copy_from_guard(&self, of: &Member) -> io::Result<()> {
        let mut last = io::Error::other("no node has a copy");
        for guard in self.task.group.guards(self.task.member) {
            if self.task.lost.contains(&guard) {
                continue;
            }
            match self.copy(of, self.member(guard)?) {
                Ok(()) => return Ok(()),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// All chunks at once: each comes along a path of its own.
    fn decode(&self, of: &Member) -> io::Result<()> {
        let image = |(rank, bytes): (&u32, &u64)| {
            let file = create(&format!("rank-{rank}.img"))?;
            file.set_len(*bytes)?;
            Ok((*rank, *bytes, file))
        };
        let images = of.images.iter().map(image).collect::<io::Result<Vec<_>>>()?;
        let sizes = || images.iter().map(|(_, bytes, _)| *bytes);
        let chunk = self.task.group.chunk_bytes();
        let one = |stripe: usize, begin: u64| {
            self.fold(stripe, |piece, offset| {
                each_part(sizes(), piece.len(), begin + offset, |part| {
                    let Part { index, at, from, length } = part;
                    images[index].2.write_all_at(&piece[from..from + length], at)
                })
            })
        };
        std::thread::scope(|scope| {
            let begin = |stripe| match stripes::cell(self.task.member, stripe, chunk) {
                Cell::Parity => None,
                Cell::Chunk { offset } => Some(scope.spawn(move || one(stripe, offset))),
            };
            let threads: Vec<_> = (0..self.task.group.members.len()).filter_map(begin).collect();
            let broken = || io::Error::other("a thread broke");
            let ends = threads.into_iter().map(|thread| thread.join().map_err(|_| broken())?);
            ends.collect::<io::Result<()>>()
        })?;
        for (rank, bytes, file) in images {
            seal(&file)?;
            self.keep(Some(&of.owner), rank, bytes, file)?;
        }
        Ok(())
    }
}

/// Receives an image into sealed memory.
fn received(mut from: BlockingConnection, bytes: u64) -> io::Result<File> {
    let mut image = create("image")?;
    let mut piece = vec![0; PIECE_BYTES];
    for (_, length) in pieces(bytes) {
        from.read_exact(&mut piece[..length])?;
        image.write_all(&piece[..length])?;
    }
    seal(&image)?;
    Ok(image)
}

/// Sends an image; blocking.
///
/// # Errors
/// The connection breaks.
pub fn send(image: &Image, to: &mut BlockingConnection) -> io::Result<()> {
    ImageAnswer::File { bytes: image.bytes, digest: String::new() }.send(to)?;
    let mut piece = vec![0; PIECE_BYTES];
    for (offset, length) in pieces(image.bytes) {
        image.data.read_exact_at(&mut piece[..length], offset)?;
        to.write_all(&piece[..length])?;
    }
    Ok(())
}

/// Does the work of a task: parity or copies; with `gathers` first the images of the lost member.
/// Returns the bytes of what it made. `own`: the address of this node, which may have the shares of
/// two members where the job goes on with fewer ranks.
///
/// # Errors
/// A node does not answer, lacks what it should have, or the budget is too small.
pub async fn work(
    memory: NodeMemory,
    secret: Secret,
    task: GroupTask,
    (known, own): (watch::Receiver<Addresses>, String),
    gathers: bool,
) -> Result<u64, String> {
    let is_lost = |index: usize| index != task.member && task.lost.contains(&index);
    let needed = task.group.members.iter().enumerate();
    for (_, of) in needed.filter(|(index, of)| !is_lost(*index) && of.host != task.target) {
        addresses::address_of(&of.host, known.clone()).await?;
    }
    let mut addresses = known.borrow().clone();
    addresses.insert(task.target.clone(), own);
    let peers = Peers { secret, runtime: Handle::current() };
    if !gathers {
        let keep: Vec<&SetId> = core::iter::once(&task.set).chain(&task.keep).collect();
        memory.keep_only(&keep);
    }
    let worked = tokio::task::spawn_blocking(move || {
        let (memory, peers) = (&memory, &peers);
        let work = Work { memory, peers, task: &task, addresses: &addresses };
        if gathers { work.gather() } else { work.protect() }
    });
    let worked = worked.await.map_err(|error| error.to_string())?;
    worked.map_err(|error| error.to_string())
}

/// Fetches images of ranks that have moved here from the node that has them; returns their bytes.
///
/// # Errors
/// The node does not answer, has no such image, or the budget is too small.
pub async fn fetch(
    memory: NodeMemory,
    secret: Secret,
    server: String,
    set: SetId,
    ranks: Ranks,
) -> Result<u64, String> {
    let peers = Peers { secret, runtime: Handle::current() };
    let fetched = tokio::task::spawn_blocking(move || {
        let mut sum = 0;
        for rank in ranks.iter() {
            let request = ImageRequest::Get { set: set.clone(), rank };
            let (bytes, from) =
                BlockingConnection::ask_bytes(&server, &peers.secret, &peers.runtime, request)?;
            memory.shares().admit(bytes).map_err(io::Error::other)?;
            let data = Arc::new(Content::Memory(received(from, bytes)?));
            let kept = memory.shares().put(&set, None, rank, Stored { bytes, data });
            kept.map_err(io::Error::other)?;
            sum += bytes;
        }
        Ok::<u64, io::Error>(sum)
    });
    let fetched = fetched.await.map_err(|error| error.to_string())?;
    fetched.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::image_server::ImageServer;
    use crate::listener;
    use ftb_launcher_core::memory::Group;
    use ftb_launcher_core::memory::scheme::GROUP_MAX;
    use ftb_launcher_core::names::Episode;
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    const KEY: &str = "key";

    fn node(n: usize) -> NodeName {
        NodeName::new(&format!("node{n:02}")).unwrap()
    }

    fn set() -> SetId {
        SetId::of_memory(Episode(1))
    }

    /// A node that serves what it holds.
    async fn served(n: usize) -> (NodeMemory, String) {
        let memory = NodeMemory::new(node(n), 64 << 20);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let secret = Secret::new(KEY);
        let images = ImageServer::new("/nowhere".into());
        let images = images.with_memory(memory.clone(), secret.clone());
        let (tree, _) = mpsc::channel(1);
        tokio::spawn(listener::serve(listener, secret, images, tree));
        (memory, address)
    }

    /// Bytes that differ from node to node.
    fn content(rank: u32, bytes: usize) -> Vec<u8> {
        (0..bytes)
            .map(|at| (at as u32).wrapping_mul(2_654_435_761 + rank).to_le_bytes()[3])
            .collect()
    }

    fn hold(memory: &NodeMemory, owner: &NodeName, rank: u32, bytes: usize) {
        let mut file = create("image").unwrap();
        file.write_all(&content(rank, bytes)).unwrap();
        seal(&file).unwrap();
        let image = Stored { bytes: bytes as u64, data: Arc::new(Content::Memory(file)) };
        memory.shares().put(&set(), Some(owner), rank, image).unwrap();
    }

    fn bytes_of(memory: &NodeMemory, rank: u32) -> Vec<u8> {
        let image = memory.image(&set(), rank).unwrap();
        let Content::Memory(sealed) = &*image.data else { panic!("no memory of a rank") };
        assert!(ftb_job::memory::is_sealed(sealed));
        let mut bytes = vec![0; image.bytes as usize];
        image.data.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    /// Two ranks on each node, of ragged sizes; the last node has one empty image.
    fn sizes(members: usize) -> Vec<[usize; 2]> {
        let size =
            |n: usize| [n * 70_001 + 13, if n + 1 == members { 0 } else { 300_000 / (n + 1) }];
        (0..members).map(size).collect()
    }

    async fn lost_and_gathered(scheme: Scheme, members: usize) {
        let (mut memories, mut addresses) = (Vec::new(), Addresses::new());
        let sizes = sizes(members);
        let mut group = Group { scheme, members: Vec::new() };
        for (n, of) in sizes.iter().enumerate() {
            let (memory, address) = served(n).await;
            let ranks = [2 * n as u32, 2 * n as u32 + 1];
            for (rank, bytes) in ranks.into_iter().zip(of) {
                hold(&memory, &node(n), rank, *bytes);
            }
            let images = ranks.into_iter().zip(of.map(|bytes| bytes as u64)).collect();
            group.members.push(Member { owner: node(n), host: node(n), images });
            memories.push(memory);
            addresses.insert(node(n), address);
        }
        let (book, _) = watch::channel(addresses);
        let task = |member: usize, group: &Group| GroupTask {
            episode: Episode(1),
            target: group.members[member].host.clone(),
            set: set(),
            group: group.clone(),
            member,
            lost: Vec::new(),
            keep: None,
        };
        for (member, memory) in memories.iter().enumerate() {
            let (task, secret) = (task(member, &group), Secret::new(KEY));
            let made = work(memory.clone(), secret, task, (book.subscribe(), String::new()), false)
                .await
                .unwrap();
            assert_eq!(made, group.protection_bytes(member));
        }
        // Each in turn is lost, and another node takes its place; the next one then counts on it.
        for lost in 0..members {
            let spare = 100 + lost;
            let (memory, address) = served(spare).await;
            book.send_modify(|known| {
                known.remove(&node(lost));
                known.insert(node(spare), address);
            });
            group.members[lost].host = node(spare);
            let (task, secret) = (task(lost, &group), Secret::new(KEY));
            let gathered =
                work(memory.clone(), secret, task, (book.subscribe(), String::new()), true)
                    .await
                    .unwrap();
            assert_eq!(gathered, group.members[lost].bytes());
            for (rank, bytes) in [2 * lost as u32, 2 * lost as u32 + 1].into_iter().zip(sizes[lost])
            {
                assert!(bytes_of(&memory, rank) == content(rank, bytes), "{scheme} rank {rank}");
            }
            memories[lost] = memory;
        }
    }

    #[tokio::test]
    async fn any_member_comes_back_over_real_connections_one_after_the_other() {
        for (scheme, members) in
            [(Scheme::Xor(2), 2), (Scheme::Xor(4), 5), (Scheme::Buddy(1), 3), (Scheme::Buddy(2), 4)]
        {
            lost_and_gathered(scheme, members).await;
        }
    }

    #[tokio::test]
    async fn a_share_of_another_length_and_a_missing_one_are_refused_and_never_combined() {
        let (memory, address) = served(0).await;
        hold(&memory, &node(0), 0, 100);
        let peers = Peers { secret: Secret::new(KEY), runtime: Handle::current() };
        let refused = |member: usize, owner: NodeName, bytes: u64| {
            let hop = Hop { address: address.clone(), member, owner, bytes };
            let fold = Fold::along(&set(), 0, 50, vec![hop]).unwrap();
            let peers = peers.clone();
            tokio::task::spawn_blocking(move || {
                begin(&peers, fold).map(drop).unwrap_err().to_string()
            })
        };
        let short = refused(1, node(0), 101).await.unwrap();
        assert!(short.contains("100 bytes are here, not 101"), "{short}");
        let other = refused(1, node(5), 100).await.unwrap();
        assert!(other.contains("0 bytes are here"), "{other}");
        let parity = refused(0, node(0), 100).await.unwrap();
        assert!(parity.contains("no parity"), "{parity}");
    }

    #[test]
    fn a_request_reads_back_and_an_impossible_one_is_refused() {
        let hop = |member| Hop {
            address: format!("127.0.0.1:{member}"),
            member,
            owner: node(member),
            bytes: 7,
        };
        let fold = Fold::along(&set(), 3, 9, vec![hop(2), hop(1), hop(0)]).unwrap();
        let json = serde_json::to_string(&fold).unwrap();
        assert_eq!(serde_json::from_str::<Fold>(&json).unwrap(), fold);
        assert_eq!(fold.next().and_then(|next| next.next()).map(|last| last.rest.len()), Some(0));
        serde_json::from_str::<Fold>(&json.replace("mem-000001", "../x")).unwrap_err();
        let (memory, most) = (NodeMemory::new(node(0), 0), 2 * GROUP_MAX as usize);
        let long = Fold::along(&set(), 3, 9, (0..most).map(hop).collect()).unwrap();
        for impossible in [Fold { stripe: 9_999, ..fold }, long] {
            let refused = own_cell(&memory, &impossible).err().unwrap();
            assert!(refused.contains("no group"), "{refused}");
        }
    }

    #[test]
    fn pieces_cover_all_bytes_once() {
        for bytes in [0, 1, PIECE_BYTES as u64, PIECE_BYTES as u64 * 3 + 5] {
            let mut end = 0;
            for (offset, length) in pieces(bytes) {
                assert_eq!(offset, end);
                assert!((1..=PIECE_BYTES).contains(&length));
                end += length as u64;
            }
            assert_eq!(end, bytes);
        }
    }
}
