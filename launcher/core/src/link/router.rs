//! The connections of one process along the launch tree. The JL has a session with each node; an
//! NLA has one with the JL, and passes packets of the nodes behind it on.
//!
//! An NLA dials its parent; when that fails, the parent's parent, and so on to the JL. It leaves a
//! path without a packet of the JL for [`SILENCE`]. After each new path the session resumes. The
//! number of the path keeps a late `Resume` from turning the route back. Another JL has another
//! session, which begins with the messages that the earlier one has not acknowledged.
//!
//! The last message of an NLA is empty. A JL that leaves waits for those of nodes with a path.

use super::LinkError;
use super::packet::{Packet, PacketBody, PathId};
use super::session::Session;
use crate::names::NodeName;
use bytes::Bytes;
use core::time::Duration;
use ftb_core::Now;
use std::collections::{BTreeMap, BTreeSet};

/// Number of a connection within its process; never used twice.
pub type LinkId = u64;

/// Without a packet of the JL for this long an NLA tries another path: three times the interval of
/// FTB_JL_ALIVE.
pub const SILENCE: Duration = crate::jl::ALIVE.saturating_mul(3);
/// How long a JL that leaves waits for a node without a path that may have more to say.
pub const RETURN_WAIT: Duration = Duration::from_secs(1);
/// Pause after a path that failed.
pub const PAUSE: Duration = Duration::from_millis(200);

#[derive(Clone, Debug)]
pub enum LinkInput {
    /// The connection of [`LinkOutput::Dial`].
    Dialed(LinkId),
    DialFailed,
    Packet {
        link: LinkId,
        packet: Packet,
    },
    Closed(LinkId),
    /// Send a message.
    Send {
        /// A node for the JL; `None`: every node, or the JL for an NLA.
        node: Option<NodeName>,
        /// Empty: the last one of an NLA.
        message: Bytes,
        /// Keep it while there is no path. Otherwise its sender repeats it.
        keep: bool,
    },
    /// Another JL listens at this address.
    Launcher(String),
    /// The node is lost.
    Forget(NodeName),
    /// The node joins the job: JL only.
    Know(NodeName),
    /// End as soon as nothing is under way ([`Router::is_over`]).
    Leave,
    /// A deadline may have passed.
    Tick,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkOutput {
    Write {
        link: LinkId,
        packet: Packet,
    },
    /// `reason`: of a misbehaving peer.
    Close {
        link: LinkId,
        reason: Option<LinkError>,
    },
    /// Connect to this address. Answered by [`LinkInput::Dialed`] or [`LinkInput::DialFailed`].
    Dial(String),
    Deliver {
        node: NodeName,
        message: Bytes,
    },
    /// There is a path.
    Joined {
        node: NodeName,
        /// `host:port` of the node; empty for the JL.
        address: String,
        /// It is the first path to this process.
        first: bool,
    },
    /// There is no path any more.
    Parted(NodeName),
    /// The last message of the node has arrived.
    Left(NodeName),
}

/// The way of an NLA to the JL.
#[derive(Clone, Debug)]
struct Uplink {
    node: NodeName,
    address: String,
    /// The nearest first; the last one is the JL.
    addresses: Vec<String>,
    next: usize,
    dialing: bool,
    link: Option<LinkId>,
    /// When to dial, or to leave the path, in monotonic nanoseconds.
    due_ns: u64,
    /// The number of the latest path.
    path: PathId,
}

#[derive(Clone, Debug)]
pub struct Router {
    /// The session's id; 0 for an NLA before its first.
    id: u64,
    sessions: BTreeMap<NodeName, Session>,
    /// The connections to nodes. Only a `Resume` sets one.
    routes: BTreeMap<NodeName, LinkId>,
    /// The latest path of each node that a packet came from.
    paths: BTreeMap<NodeName, PathId>,
    /// Nodes with a path.
    joined: BTreeSet<NodeName>,
    /// JL: nodes without a path whose last message has not arrived, and until when the JL waits for
    /// them, in monotonic nanoseconds.
    absent: BTreeMap<NodeName, u64>,
    /// JL: nodes whose last message has arrived.
    left: BTreeSet<NodeName>,
    leaving: bool,
    uplink: Option<Uplink>,
    /// Messages refused because of [`super::session::UNACKED_BYTES_MAX`].
    refused: u64,
}

impl Router {
    /// That of a JL. `id`: a random number above 0.
    pub fn of_jl(id: u64, nodes: impl IntoIterator<Item = NodeName>) -> Self {
        let sessions = nodes.into_iter().map(|node| (node, Session::default())).collect();
        Self {
            id,
            sessions,
            routes: BTreeMap::new(),
            paths: BTreeMap::new(),
            joined: BTreeSet::new(),
            absent: BTreeMap::new(),
            left: BTreeSet::new(),
            leaving: false,
            uplink: None,
            refused: 0,
        }
    }

    /// That of an NLA at `address`. `addresses`: of its parent first, of the JL last. `process`: a
    /// random number.
    pub fn of_nla(node: NodeName, process: u64, address: String, addresses: Vec<String>) -> Self {
        let mut router = Self::of_jl(0, [node.clone()]);
        let (next, dialing, link, due_ns) = (0, false, None, 0);
        let path = PathId { process, number: 0 };
        router.uplink =
            Some(Uplink { node, address, addresses, next, dialing, link, due_ns, path });
        router
    }

    /// When [`LinkInput::Tick`] is due, in monotonic nanoseconds.
    pub fn next_deadline_ns(&self) -> u64 {
        let absent = self.absent.values().copied().min().unwrap_or(u64::MAX);
        self.uplink.as_ref().filter(|up| !up.dialing).map_or(absent, |up| up.due_ns)
    }

    /// After [`LinkInput::Leave`]: whether nothing waits for an acknowledgement of the JL, no node
    /// has a connection here, and none is about to come back.
    pub fn is_over(&self) -> bool {
        let own = self.uplink.as_ref().and_then(|up| self.sessions.get(&up.node));
        let waits = !self.routes.is_empty() || !self.absent.is_empty();
        self.leaving && !waits && own.is_none_or(Session::is_idle)
    }

    pub fn refused(&self) -> u64 {
        self.refused
    }

    pub fn handle(&mut self, now: Now, input: LinkInput, out: &mut Vec<LinkOutput>) {
        match input {
            LinkInput::Dialed(link) => self.on_dialed(now, link, out),
            LinkInput::DialFailed => {
                if let Some(up) = &mut self.uplink {
                    up.dialing = false;
                    up.try_next(now);
                }
            }
            LinkInput::Packet { link, packet } => {
                if let Err(reason) = self.on_packet(now, link, packet, out) {
                    out.push(LinkOutput::Close { link, reason: Some(reason) });
                    self.on_closed(now, link, out);
                }
            }
            LinkInput::Closed(link) => self.on_closed(now, link, out),
            LinkInput::Send { node, message, keep } => {
                let nodes = match node {
                    Some(node) => vec![node],
                    None => self.sessions.keys().cloned().collect(),
                };
                for node in nodes {
                    if keep || self.joined.contains(&node) {
                        self.send(&node, message.clone(), keep, out);
                    }
                }
            }
            LinkInput::Launcher(address) => self.on_launcher(now, address, out),
            LinkInput::Forget(node) => {
                self.sessions.remove(&node);
                self.routes.remove(&node);
                self.absent.remove(&node);
                if self.joined.remove(&node) {
                    out.push(LinkOutput::Parted(node));
                }
            }
            LinkInput::Know(node) => {
                self.sessions.entry(node).or_default();
            }
            LinkInput::Leave => self.leaving = true,
            LinkInput::Tick => self.on_tick(now, out),
        }
    }

    fn send(&mut self, node: &NodeName, message: Bytes, keep: bool, out: &mut Vec<LinkOutput>) {
        let Some(session) = self.sessions.get_mut(node) else {
            return;
        };
        match session.send(message, keep) {
            Ok(body) if self.joined.contains(node) => self.write(node, body, out),
            Ok(_) => {}
            Err(_) => self.refused += 1,
        }
    }

    /// Writes a packet of a session of this process.
    fn write(&self, node: &NodeName, body: PacketBody, out: &mut Vec<LinkOutput>) {
        let link = match &self.uplink {
            Some(up) => up.link,
            None => self.routes.get(node).copied(),
        };
        let packet = Packet { node: node.clone(), body };
        out.extend(link.map(|link| LinkOutput::Write { link, packet }));
    }

    fn on_dialed(&mut self, now: Now, link: LinkId, out: &mut Vec<LinkOutput>) {
        // Packets of the nodes behind this one were lost meanwhile: they connect and resume again.
        let behind: BTreeSet<LinkId> = core::mem::take(&mut self.routes).into_values().collect();
        out.extend(behind.into_iter().map(|link| LinkOutput::Close { link, reason: None }));
        let Some(up) = &mut self.uplink else {
            return;
        };
        (up.dialing, up.link, up.due_ns) = (false, Some(link), now.deadline_ns(SILENCE));
        up.path.number += 1;
        let (node, path, address) = (up.node.clone(), up.path, up.address.clone());
        let expected = self.sessions.get(&node).map_or(0, Session::expected);
        self.write(&node, PacketBody::Resume { path, session: self.id, expected, address }, out);
    }

    fn on_packet(
        &mut self,
        now: Now,
        link: LinkId,
        packet: Packet,
        out: &mut Vec<LinkOutput>,
    ) -> Result<(), LinkError> {
        let Some(up) = &mut self.uplink else {
            let known = self.sessions.contains_key(&packet.node);
            return if known && self.is_of_path(link, &packet) {
                self.on_own(packet, out)
            } else {
                Ok(())
            };
        };
        let own = up.node == packet.node;
        if up.link == Some(link) {
            if own {
                up.due_ns = now.deadline_ns(SILENCE);
                return self.on_own(packet, out);
            }
            let onward = self.routes.get(&packet.node).copied();
            out.extend(onward.map(|link| LinkOutput::Write { link, packet }));
            return Ok(());
        }
        if own {
            return Err(LinkError::Loop);
        }
        let onward = up.link;
        if self.is_of_path(link, &packet) {
            out.extend(onward.map(|link| LinkOutput::Write { link, packet }));
        }
        Ok(())
    }

    /// Whether a packet of a node came over its latest path. A `Resume` of a newer path sets the
    /// route.
    fn is_of_path(&mut self, link: LinkId, packet: &Packet) -> bool {
        let PacketBody::Resume { path, .. } = &packet.body else {
            return self.routes.get(&packet.node) == Some(&link);
        };
        let known = self.paths.get(&packet.node);
        if known.is_some_and(|known| known.process == path.process && path.number <= known.number) {
            return false;
        }
        self.paths.insert(packet.node.clone(), *path);
        self.absent.remove(&packet.node);
        self.routes.insert(packet.node.clone(), link);
        true
    }

    /// A packet of a session of this process.
    fn on_own(&mut self, packet: Packet, out: &mut Vec<LinkOutput>) -> Result<(), LinkError> {
        let Packet { node, body } = packet;
        let Some(session) = self.sessions.get_mut(&node) else {
            return Ok(());
        };
        match body {
            // The answer to an earlier path.
            PacketBody::Resume { path, .. }
                if self.uplink.as_ref().is_some_and(|up| up.path != path) => {}
            PacketBody::Resume { path, session: id, expected, address } => {
                let first = id != self.id;
                if first {
                    session.restart();
                    self.left.remove(&node);
                }
                let body = match &self.uplink {
                    Some(_) => {
                        self.id = id;
                        None
                    }
                    None => {
                        let (session, expected) = (self.id, session.expected());
                        Some(PacketBody::Resume { path, session, expected, address: String::new() })
                    }
                };
                let expected = if first { 0 } else { expected };
                let again: Vec<_> = session.on_resume(expected)?.collect();
                for body in body.into_iter().chain(again) {
                    self.write(&node, body, out);
                }
                self.joined.insert(node.clone());
                out.push(LinkOutput::Joined { node, address, first });
            }
            // Of an earlier path.
            _ if !self.joined.contains(&node) => {}
            PacketBody::Message { number, message } => {
                let message = session.on_message(number, message)?;
                let expected = session.expected();
                self.write(&node, PacketBody::Ack { expected }, out);
                match message {
                    Some(message) if message.is_empty() => {
                        self.left.insert(node.clone());
                        out.push(LinkOutput::Left(node));
                    }
                    Some(message) => out.push(LinkOutput::Deliver { node, message }),
                    None => {}
                }
            }
            PacketBody::Ack { expected } => session.on_ack(expected)?,
        }
        Ok(())
    }

    fn on_closed(&mut self, now: Now, link: LinkId, out: &mut Vec<LinkOutput>) {
        let gone = |(node, of): (&NodeName, &LinkId)| (*of == link).then(|| node.clone());
        let gone: Vec<NodeName> = self.routes.iter().filter_map(gone).collect();
        for node in gone {
            self.routes.remove(&node);
            if self.joined.remove(&node) {
                if self.uplink.is_none() && !self.left.contains(&node) {
                    self.absent.insert(node.clone(), now.deadline_ns(RETURN_WAIT));
                }
                out.push(LinkOutput::Parted(node));
            }
        }
        if let Some(up) = self.uplink.as_mut().filter(|up| up.link == Some(link)) {
            up.link = None;
            // The nearest first, again.
            up.next = up.addresses.len();
            up.try_next(now);
            if self.joined.remove(&up.node) {
                out.push(LinkOutput::Parted(up.node.clone()));
            }
        }
    }

    /// Another JL. The path to the earlier one is worth nothing.
    fn on_launcher(&mut self, now: Now, address: String, out: &mut Vec<LinkOutput>) {
        let Some(up) = &mut self.uplink else {
            return;
        };
        let last = up.addresses.last_mut().filter(|last| **last != address);
        let Some(last) = last else {
            return;
        };
        *last = address;
        if let Some(link) = up.link {
            out.push(LinkOutput::Close { link, reason: None });
            self.on_closed(now, link, out);
        } else {
            up.due_ns = now.mono_ns;
        }
    }

    fn on_tick(&mut self, now: Now, out: &mut Vec<LinkOutput>) {
        self.absent.retain(|_, until_ns| now.mono_ns < *until_ns);
        let Some(up) = self.uplink.as_mut().filter(|up| !up.dialing && now.mono_ns >= up.due_ns)
        else {
            return;
        };
        if let Some(link) = up.link {
            let next = up.next;
            out.push(LinkOutput::Close { link, reason: None });
            self.on_closed(now, link, out);
            if let Some(up) = &mut self.uplink {
                up.next = next;
                up.try_next(now);
            }
            return;
        }
        up.dialing = true;
        out.extend(up.addresses.get(up.next).cloned().map(LinkOutput::Dial));
    }
}

impl Uplink {
    /// The next address is due: at once, or after a pause when all were tried.
    fn try_next(&mut self, now: Now) {
        self.next += 1;
        self.due_ns = now.mono_ns;
        if self.next >= self.addresses.len() {
            self.next = 0;
            self.due_ns = now.deadline_ns(PAUSE);
        }
    }
}
