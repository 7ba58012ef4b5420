//! Writes the messages of an agent to a client. Delivered events are slices of the buffers they lie
//! in.

use super::{FromClient, encode_to_client};
use crate::v1;
use crate::wire::{EventsItem, Outbound, Pieces, bytes_key};
use bytes::BufMut as _;
use ftb_core::node::api::{SubscriptionId, ToClient};
use ftb_core::numbers::LogIndex;
use ftb_core::position::Epoch;
use ftb_core::run::Run;
use prost::Message as _;
use prost::encoding::encode_varint;

/// Fields of `ftb/v1/client.proto`.
const TO_CLIENT_DELIVER: u8 = 5;
const DELIVER_ITEMS: u8 = 4;

/// A message to a client.
#[derive(Debug)]
pub enum Outgoing {
    /// From the core.
    Core(ToClient),
    /// Events, and the places of those whose signature the agent has verified.
    Deliver {
        /// The subscription.
        subscription: SubscriptionId,
        /// The epoch of all of them.
        epoch: Epoch,
        /// The index of the first event of each run.
        items: Vec<(LogIndex, Run)>,
        /// Places, counted through all items, rising.
        verified: Vec<u32>,
        /// Whether the agent demands signatures; `None`: as it said before.
        requires_signatures: Option<bool>,
    },
    /// From the shell.
    Shell(v1::ToClient),
}

impl Outbound for Outgoing {
    fn write(self, out: &mut Pieces) {
        match self {
            Self::Shell(message) => out.message(&message),
            Self::Core(ToClient::Deliver { subscription, epoch, items }) => {
                write_deliver(head(subscription, epoch), &items, out);
            }
            Self::Deliver { subscription, epoch, items, verified, requires_signatures } => {
                let head = head(subscription, epoch);
                write_deliver(v1::Deliver { verified, requires_signatures, ..head }, &items, out);
            }
            Self::Core(message) => out.message(&encode_to_client(message)),
        }
    }
}

impl Outbound for FromClient {
    fn write(self, out: &mut Pieces) {
        out.message(&self.encode());
    }
}

/// A delivery without its events.
fn head(subscription: SubscriptionId, epoch: Epoch) -> v1::Deliver {
    v1::Deliver {
        subscription: subscription.0,
        epoch: epoch.number,
        epoch_root: epoch.root.0,
        ..v1::Deliver::default()
    }
}

fn write_deliver(head: v1::Deliver, items: &[(LogIndex, Run)], out: &mut Pieces) {
    let item = |(index, events)| EventsItem { field: DELIVER_ITEMS, index: Some(index), events };
    let items = || items.iter().map(|(index, events)| item((*index, events)));
    let len = head.encoded_len() + items().map(|item| item.len()).sum::<usize>();
    out.open().put_u8(bytes_key(TO_CLIENT_DELIVER));
    encode_varint(len as u64, out.open());
    out.message(&head);
    items().for_each(|item| item.put(out));
}
