//! Packets on the connections of the launch tree, and the messages in them: one line of JSON, then
//! bytes. Input is hostile until it is parsed.

use super::LinkError;
use crate::message::{FromJl, FromNla, Part};
use crate::names::NodeName;
use crate::wire::{PART_BYTES_MAX, PARTS_MAX};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Between the JL and `node`, through any number of other nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packet {
    pub node: NodeName,
    pub body: PacketBody,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PacketBody {
    /// The path is new: the sender expects message `expected` of this session. The JL answers with
    /// the same `path`.
    Resume {
        path: PathId,
        /// The session that the sender knows; 0 for a node before its first one.
        session: u64,
        expected: u64,
        /// `host:port` of the node; empty from the JL.
        address: String,
    },
    Message {
        number: u64,
        #[serde(skip)]
        message: Bytes,
    },
    /// All messages before `expected` have arrived.
    Ack { expected: u64 },
}

/// A path of an NLA to the JL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathId {
    /// The random number of the NLA's process.
    pub process: u64,
    /// How many connections the NLA had dialed.
    pub number: u64,
}

impl Packet {
    pub fn encode(&self) -> Vec<u8> {
        match &self.body {
            PacketBody::Message { message, .. } => joined(self, message),
            _ => joined(self, &[]),
        }
    }

    /// # Errors
    /// [`LinkError::Packet`].
    pub fn decode(bytes: Vec<u8>) -> Result<Self, LinkError> {
        let (mut packet, rest): (Self, Bytes) = parted(bytes.into()).ok_or(LinkError::Packet)?;
        if let PacketBody::Message { message, .. } = &mut packet.body {
            *message = rest;
        }
        Ok(packet)
    }
}

/// A message of the JL to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToNode {
    Jl(FromJl),
    /// Where a node listens that has images for this one.
    Address {
        node: NodeName,
        address: String,
    },
    /// Bytes of output that are printed or lost for a reported reason.
    Taken(u64),
    /// Standard input for the request of that number; empty at the end.
    Input {
        request: u64,
        #[serde(skip)]
        bytes: Bytes,
    },
}

/// A message of a node to the JL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromNode {
    Nla(FromNla),
    /// Output of a rank.
    Output {
        rank: u32,
        stream: Stream,
        #[serde(skip)]
        bytes: Bytes,
    },
    /// Bytes of output that found no room in the node's file.
    OutputLost(u64),
    /// Rank 0 runs here and reads standard input.
    WantInput {
        request: u64,
    },
    /// Bytes that cannot be lost any more.
    InputTaken {
        request: u64,
        bytes: u64,
    },
    /// The rank reads no more.
    InputDone {
        request: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Stream {
    Out,
    Err,
    /// Kept output of all ranks of a node from the time without a JL.
    Kept,
}

impl ToNode {
    pub fn encode(&self) -> Bytes {
        match self {
            Self::Input { bytes, .. } => joined(self, bytes).into(),
            _ => joined(self, &[]).into(),
        }
    }

    pub fn decode(message: Bytes) -> Option<Self> {
        let (mut message, rest) = parted(message)?;
        match &mut message {
            Self::Input { bytes, .. } => *bytes = rest,
            Self::Jl(FromJl::Pmi { part, .. }) => checked(part)?,
            _ => {}
        }
        Some(message)
    }
}

impl FromNode {
    pub fn encode(&self) -> Bytes {
        match self {
            Self::Output { bytes, .. } => joined(self, bytes).into(),
            _ => joined(self, &[]).into(),
        }
    }

    pub fn decode(message: Bytes) -> Option<Self> {
        let (mut message, rest) = parted(message)?;
        match &mut message {
            Self::Output { bytes, .. } => *bytes = rest,
            Self::Nla(FromNla::Pmi { part, .. }) => checked(part)?,
            _ => {}
        }
        Some(message)
    }
}

fn checked(part: &Part) -> Option<()> {
    let short = part.lines.len() <= PART_BYTES_MAX && part.parts <= PARTS_MAX;
    (short && part.part < part.parts).then_some(())
}

/// JSON has no line end within.
fn joined(head: &impl Serialize, rest: &[u8]) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(head).unwrap_or_default();
    bytes.push(b'\n');
    bytes.extend_from_slice(rest);
    bytes
}

fn parted<T: DeserializeOwned>(mut bytes: Bytes) -> Option<(T, Bytes)> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let rest = bytes.split_off(end + 1);
    Some((serde_json::from_slice(&bytes[..end]).ok()?, rest))
}
