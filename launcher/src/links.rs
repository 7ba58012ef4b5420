//! The task of a process that owns its connections along the launch tree: it carries packets to the
//! router ([`ftb_launcher_core::link::router`]) and back. It decides nothing.
//!
//! Packets that wait for a slow connection stay in memory. The unacknowledged messages of a
//! session limit them ([`ftb_launcher_core::link::session::UNACKED_BYTES_MAX`]), for each node
//! behind it and each of its paths.

use crate::clock::Clock;
use crate::connection::{Connection, Purpose, dial};
use crate::listener::FromListener;
use ftb_launcher_core::link::cipher::Secret;
use ftb_launcher_core::link::packet::Packet;
use ftb_launcher_core::link::router::{LinkId, LinkInput, LinkOutput, Router};
use ftb_launcher_core::names::NodeName;
use ftb_launcher_core::packet::PacketHead as _;
use std::collections::BTreeMap;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Most packets that were read and wait for the router; further ones stay in their connection.
const PACKETS_MAX: usize = 256;

/// What becomes of a node, or of the JL.
#[derive(Debug)]
pub enum LinkNews {
    /// Another JL listens there.
    Launcher(String),
    Message {
        node: NodeName,
        message: bytes::Bytes,
    },
    Joined {
        node: NodeName,
        address: String,
        first: bool,
    },
    Parted(NodeName),
    /// The last message of the node has arrived.
    Left(NodeName),
}

/// From the tasks of connections.
enum FromLink {
    Dialed(Option<Connection>),
    Packet(Packet),
    Closed,
}

struct Link {
    packets: mpsc::UnboundedSender<Packet>,
    tasks: [AbortHandle; 2],
}

/// The connections of one process.
struct Links {
    router: Router,
    secret: Secret,
    clock: Clock,
    links: BTreeMap<LinkId, Link>,
    last: LinkId,
    from_links: mpsc::Sender<(LinkId, FromLink)>,
}

/// Runs until the process leaves ([`LinkInput::Leave`], or the end of `orders`) and nothing is
/// under way ([`Router::is_over`]). `news` must not block.
pub async fn run(
    router: Router,
    secret: Secret,
    clock: Clock,
    mut accepted: mpsc::Receiver<FromListener>,
    mut orders: mpsc::Receiver<LinkInput>,
    mut news: impl FnMut(LinkNews),
) {
    let (from_links, mut heard) = mpsc::channel(PACKETS_MAX);
    let (links, last) = (BTreeMap::new(), 0);
    let mut links = Links { router, secret, clock, links, last, from_links };
    let mut closed = false;
    while !links.router.is_over() {
        let due_ns = links.router.next_deadline_ns();
        let input = tokio::select! {
            order = orders.recv(), if !closed => {
                closed = order.is_none();
                order.unwrap_or(LinkInput::Leave)
            }
            Some((link, from)) = heard.recv() => match links.heard(link, from) {
                Some(input) => input,
                None => continue,
            },
            Some(from) = accepted.recv() => match from {
                FromListener::Launcher(address) => {
                    news(LinkNews::Launcher(address.clone()));
                    LinkInput::Launcher(address)
                }
                FromListener::Tree(connection) => {
                    links.open(connection);
                    continue;
                }
            },
            () = clock.sleep_until(due_ns) => LinkInput::Tick,
        };
        links.handle(input, &mut news);
    }
    if links.router.refused() > 0 {
        tracing::warn!(count = links.router.refused(), "messages found no room");
    }
}

impl Links {
    /// An event of a connection; those of a closed connection are ignored.
    fn heard(&mut self, link: LinkId, from: FromLink) -> Option<LinkInput> {
        match from {
            FromLink::Dialed(Some(connection)) => Some(LinkInput::Dialed(self.open(connection))),
            FromLink::Dialed(None) => Some(LinkInput::DialFailed),
            _ if !self.links.contains_key(&link) => None,
            FromLink::Packet(packet) => Some(LinkInput::Packet { link, packet }),
            FromLink::Closed => {
                self.close(link);
                Some(LinkInput::Closed(link))
            }
        }
    }

    fn handle(&mut self, input: LinkInput, news: &mut impl FnMut(LinkNews)) {
        let mut out = Vec::new();
        self.router.handle(self.clock.now(), input, &mut out);
        for output in out {
            match output {
                LinkOutput::Write { link, packet } => {
                    if let Some(link) = self.links.get(&link) {
                        // A failed connection reports its end.
                        let _ = link.packets.send(packet);
                    }
                }
                LinkOutput::Close { link, reason } => {
                    if let Some(reason) = reason {
                        tracing::warn!(%reason, "a connection of the job is closed");
                    }
                    self.close(link);
                }
                LinkOutput::Dial(address) => self.dial(address),
                LinkOutput::Deliver { node, message } => news(LinkNews::Message { node, message }),
                LinkOutput::Joined { node, address, first } => {
                    news(LinkNews::Joined { node, address, first });
                }
                LinkOutput::Parted(node) => news(LinkNews::Parted(node)),
                LinkOutput::Left(node) => news(LinkNews::Left(node)),
            }
        }
    }

    fn dial(&self, address: String) {
        let (secret, to) = (self.secret.clone(), self.from_links.clone());
        tokio::spawn(async move {
            let dialed = dial(&address, &secret, &Purpose::Tree).await;
            let dialed = dialed.inspect_err(|error| tracing::info!(%address, %error, "no path"));
            let _ = to.send((0, FromLink::Dialed(dialed.ok()))).await;
        });
    }

    fn open(&mut self, connection: Connection) -> LinkId {
        self.last += 1;
        let link = self.last;
        let Connection { mut reader, mut writer } = connection;
        let (packets, mut to_write) = mpsc::unbounded_channel::<Packet>();
        let to = self.from_links.clone();
        let reading = tokio::spawn(async move {
            while let Ok(body) = reader.read().await {
                let packet = match Packet::decode(body.into()) {
                    Ok(packet) => packet,
                    Err(reason) => {
                        tracing::warn!(%reason, "a connection of the job is closed");
                        break;
                    }
                };
                if to.send((link, FromLink::Packet(packet))).await.is_err() {
                    return;
                }
            }
            let _ = to.send((link, FromLink::Closed)).await;
        });
        let to = self.from_links.clone();
        let writing = tokio::spawn(async move {
            while let Some(packet) = to_write.recv().await {
                if writer.write(&packet.encode()).await.is_err() {
                    let _ = to.send((link, FromLink::Closed)).await;
                    return;
                }
            }
        });
        let tasks = [reading.abort_handle(), writing.abort_handle()];
        self.links.insert(link, Link { packets, tasks });
        link
    }

    fn close(&mut self, link: LinkId) {
        self.links.remove(&link);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}
