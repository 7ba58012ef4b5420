//! Channels between ranks, and their registry.
//!
//! A channel is a plug-in of the CR layer (thesis, sections 2.2 and 2.3.1). The layer drains and
//! coordinates with frames inside each link; a channel only keeps the order of frames.
//! [`Channel::suspend`] releases a drained channel. [`Channel::open`] and [`Channel::connect`]
//! resume it, with the exchange of addresses between them. After a migration a peer may be behind
//! another channel.
//!
//! In a recovery in place [`Channel::call_back`] ends what is blocked, and [`Channel::begin`]
//! follows: links to processes that live stay.

pub(crate) mod stream;

use crate::config::is_name;
use crate::error::{Error, Result};
use crate::frame::Frame;
use crate::hello::TOKEN_BYTES;
use crate::inbox::Inbox;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

pub use stream::StreamChannel;

/// One way to other ranks.
pub trait Channel: Send + Sync {
    /// The name, also the key of its part of an [`Endpoint`].
    fn name(&self) -> &'static str;

    /// Whether it leads from one endpoint to the other. Both sides ask and must get the same
    /// answer.
    fn reaches(&self, own: &Endpoint, peer: &Endpoint) -> bool;

    /// First half of the resume hook: opens the local end and returns its address, without spaces
    /// or `;`.
    ///
    /// # Errors
    /// The system's.
    fn open(&self, opening: &Opening) -> io::Result<String>;

    /// The rank goes back in place and meets all others again in that barrier: the own address and
    /// links stay, but no frame of before reaches the inbox. False if the channel is not open.
    fn begin(&self, fence: u64) -> bool;

    /// The process of that rank was replaced or left out: its link and its address are void.
    fn forget(&self, rank: u32);

    /// All ranks have met in the barrier of [`Channel::open`] or [`Channel::begin`]: frames may
    /// come.
    fn meet(&self);

    /// Second half of the resume hook: the peer is reachable from now on. The link is made by the
    /// first frame of either end; one from before [`Channel::begin`] is used again.
    ///
    /// # Errors
    /// The problem, with the rank.
    fn connect(&self, peer: &Endpoint) -> Result<()>;

    /// Sends a frame, after all earlier ones to that rank. May block.
    ///
    /// # Errors
    /// The system's; the link is broken for good.
    fn send(&self, to: u32, frame: &Frame<'_>) -> io::Result<()>;

    /// Makes the link to that rank if there is none. May block.
    ///
    /// # Errors
    /// The system's.
    fn reach(&self, to: u32) -> io::Result<()>;

    /// The suspend hook: releases everything. Called when all links are drained or given up. No
    /// thread of the channel uses the inbox afterwards.
    fn suspend(&self);

    /// That rank is dead: [`Channel::send`] to it fails from now on, blocked calls too. What it has
    /// sent still arrives.
    fn sever(&self, to: u32);

    /// The rank is called back for the recovery with that barrier, by the death of these ranks.
    /// Blocked [`Channel::send`] calls return, further ones fail until [`Channel::begin`] with it.
    fn call_back(&self, fence: u64, dead: &BTreeSet<u32>);
}

/// What a channel is opened with.
#[derive(Clone)]
pub struct Opening {
    /// This rank.
    pub own: Endpoint,
    /// Ranks of the job.
    pub size: u32,
    /// The barrier in which all ranks meet next; connections of another one are refused.
    pub fence: u64,
    /// Takes received frames.
    pub inbox: Arc<Inbox>,
    /// `(sent to, received from)` a rank, compared by both sides when they connect.
    pub counts: Arc<dyn Fn(u32) -> (u64, u64) + Send + Sync>,
}

/// The address of a rank: its value in the PMI key-value space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The rank.
    pub rank: u32,
    /// Its node's name; may be empty.
    pub node: String,
    /// The secret that proves a rank of the job to it and it to them; it never travels over a
    /// channel.
    pub token: [u8; TOKEN_BYTES],
    /// The address of each of its channels.
    pub addresses: BTreeMap<String, String>,
}

impl Endpoint {
    /// As a PMI value: `node=N;token=HEX;tcp=...;unix=...`.
    pub fn encode(&self) -> String {
        let hex = |byte: &u8| format!("{byte:02x}");
        let token: String = self.token.iter().map(hex).collect();
        let mut text = format!("node={};token={token}", self.node);
        for (channel, address) in &self.addresses {
            text.push_str(&format!(";{channel}={address}"));
        }
        text
    }

    /// From a PMI value.
    ///
    /// # Errors
    /// [`Error::Pmi`] with the value.
    pub fn decode(rank: u32, text: &str) -> Result<Self> {
        let wrong = || Error::Pmi {
            command: "get",
            problem: format!("{text:?} is no address of rank {rank}"),
        };
        let mut node = None;
        let mut token = None;
        let mut addresses = BTreeMap::new();
        for part in text.split(';') {
            match part.split_once('=').ok_or_else(wrong)? {
                ("node", name) if name.is_empty() || is_name(name) => node = Some(name.to_owned()),
                ("token", hex) => token = Some(decode_token(hex).ok_or_else(wrong)?),
                (channel, address) => {
                    addresses.insert(channel.to_owned(), address.to_owned());
                }
            }
        }
        Ok(Self { rank, node: node.ok_or_else(wrong)?, token: token.ok_or_else(wrong)?, addresses })
    }
}

fn decode_token(hex: &str) -> Option<[u8; TOKEN_BYTES]> {
    let mut token = [0; TOKEN_BYTES];
    if hex.len() != 2 * TOKEN_BYTES || !hex.is_ascii() {
        return None;
    }
    for (index, byte) in token.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(token)
}

/// The channels of a rank, best first.
#[derive(Clone)]
pub struct Registry {
    channels: Vec<Arc<dyn Channel>>,
}

impl Registry {
    /// Each pair of ranks takes the first channel that reaches.
    pub fn new(channels: Vec<Arc<dyn Channel>>) -> Self {
        Self { channels }
    }

    /// Opens all channels; the endpoint to put.
    pub(crate) fn open(&self, opening: &Opening) -> Result<Endpoint> {
        let mut endpoint = opening.own.clone();
        for channel in &self.channels {
            let address = channel.open(opening).map_err(|error| Error::Channel {
                channel: channel.name(),
                problem: format!("cannot be opened: {error}"),
            })?;
            endpoint.addresses.insert(channel.name().to_owned(), address);
        }
        Ok(endpoint)
    }

    /// The channel to a peer; it knows the peer's address from now on.
    pub(crate) fn route(&self, own: &Endpoint, peer: &Endpoint) -> Result<Arc<dyn Channel>> {
        let reaches = |channel: &&Arc<dyn Channel>| channel.reaches(own, peer);
        let channel = self.channels.iter().find(reaches).ok_or_else(|| Error::Channel {
            channel: "any",
            problem: format!("none reaches rank {} at {}", peer.rank, peer.encode()),
        })?;
        channel.connect(peer)?;
        Ok(Arc::clone(channel))
    }

    /// These ranks are dead.
    pub(crate) fn sever(&self, ranks: &BTreeSet<u32>) {
        for channel in &self.channels {
            ranks.iter().for_each(|rank| channel.sever(*rank));
        }
    }

    /// The rank goes back in place: all channels keep their links. False if one is not open.
    pub(crate) fn begin(&self, fence: u64) -> bool {
        self.channels.iter().all(|channel| channel.begin(fence))
    }

    /// All ranks have met; these were replaced or left out before.
    pub(crate) fn meet(&self, gone: &BTreeSet<u32>) {
        for channel in &self.channels {
            gone.iter().for_each(|rank| channel.forget(*rank));
            channel.meet();
        }
    }

    /// The rank is called back for the recovery with that barrier.
    pub(crate) fn call_back(&self, fence: u64, dead: &BTreeSet<u32>) {
        for channel in &self.channels {
            channel.call_back(fence, dead);
        }
    }

    /// Suspends all channels.
    pub(crate) fn suspend(&self) {
        for channel in &self.channels {
            channel.suspend();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_endpoint_survives_its_text() {
        let addresses = [("tcp", "127.0.0.1:4000"), ("unix", "ftb-job-1")];
        let endpoint = Endpoint {
            rank: 3,
            node: "node01".into(),
            token: [0xa5; TOKEN_BYTES],
            addresses: addresses.map(|(k, v)| (k.into(), v.into())).into(),
        };
        let text = endpoint.encode();
        assert_eq!(Endpoint::decode(3, &text).unwrap(), endpoint);
        assert!(!text.contains(' '), "{text}");
        assert!(Endpoint::decode(3, "node=x").is_err());
        assert!(Endpoint::decode(3, &text.replace("a5", "zz")).is_err());
    }

    proptest! {
        #[test]
        fn random_text_is_refused_without_panic(text: String) {
            prop_assert!(Endpoint::decode(0, &text).is_err());
        }
    }
}
