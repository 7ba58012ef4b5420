//! Requests for images between processes of a job, and their answers: packets in the frames of a
//! connection. The bytes of an image follow its answer.

use ftb_launcher_core::memory::scheme::GROUP_MAX;
use ftb_launcher_core::names::{NodeName, SetId};
use ftb_launcher_core::packet::PacketHead;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// What a client requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImageRequest {
    /// A whole image.
    Get { set: SetId, rank: u32 },
    /// An image that may still grow ([`ftb_launcher_pods::images::growing`]).
    Await { set: SetId, rank: u32 },
    /// A combined cell.
    Fold(Fold),
}

/// The answer. Only the store of a job knows the SHA-256 of an image, from the manifest of the set;
/// elsewhere it is empty. The client verifies it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImageAnswer {
    /// The transfer or its image has not begun. Another answer follows.
    Wait,
    /// That many bytes follow.
    File { bytes: u64, digest: String },
    /// The files of a directory follow ([`ftb_launcher_pods::images::tree`]).
    Tree { digest: String },
    /// There is no image, with the reason.
    Refused(String),
}

impl PacketHead for ImageAnswer {}

impl ImageAnswer {
    pub(crate) fn send(self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(&self.encode())
    }
}

/// A member on a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hop {
    pub(crate) address: String,
    pub(crate) member: usize,
    pub(crate) owner: NodeName,
    /// Of its share.
    pub(crate) bytes: u64,
}

/// A request of a combined cell ([`crate::memory::peers`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fold {
    pub(crate) set: SetId,
    pub(crate) stripe: usize,
    pub(crate) chunk: u64,
    /// The server.
    pub(crate) first: Hop,
    pub(crate) rest: Vec<Hop>,
}

impl Fold {
    /// Along a path; `None` without a member.
    pub(crate) fn along(set: &SetId, stripe: usize, chunk: u64, path: Vec<Hop>) -> Option<Self> {
        let mut path = path.into_iter();
        let first = path.next()?;
        Some(Self { set: set.clone(), stripe, chunk, first, rest: path.collect() })
    }

    /// The rest of the path.
    pub(crate) fn next(&self) -> Option<Self> {
        Self::along(&self.set, self.stripe, self.chunk, self.rest.clone())
    }

    /// Whether there can be such a group. A path visits a member once.
    pub(crate) fn is_possible(&self) -> bool {
        const MEMBERS_MAX: usize = 2 * GROUP_MAX as usize;
        self.stripe < MEMBERS_MAX && self.rest.len() + 1 < MEMBERS_MAX
    }
}
