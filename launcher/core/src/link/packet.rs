//! The packets ([`crate::packet`]) on the connections of the launch tree, and the messages in them.

use crate::message::{FromJl, FromNla, Part};
use crate::names::NodeName;
use crate::packet::PacketHead;
use crate::wire::{PART_BYTES_MAX, PARTS_MAX};
use bytes::Bytes;
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

impl PacketHead for Packet {
    fn bytes(&mut self) -> Option<&mut Bytes> {
        match &mut self.body {
            PacketBody::Message { message, .. } => Some(message),
            _ => None,
        }
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

impl PacketHead for ToNode {
    fn bytes(&mut self) -> Option<&mut Bytes> {
        match self {
            Self::Input { bytes, .. } => Some(bytes),
            _ => None,
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        match self {
            Self::Jl(FromJl::Pmi { part, .. }) => check(part),
            _ => Ok(()),
        }
    }
}

impl PacketHead for FromNode {
    fn bytes(&mut self) -> Option<&mut Bytes> {
        match self {
            Self::Output { bytes, .. } => Some(bytes),
            _ => None,
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        match self {
            Self::Nla(FromNla::Pmi { part, .. }) => check(part),
            _ => Ok(()),
        }
    }
}

fn check(part: &Part) -> Result<(), &'static str> {
    let short = part.lines.len() <= PART_BYTES_MAX && part.parts <= PARTS_MAX;
    if short && part.part < part.parts { Ok(()) } else { Err("no part of the puts of a barrier") }
}
