//! A client's stream: events in and out of the buffers that they lie in, without a message of prost
//! for each.

use super::{ClientWireError, FromClient, bound, encode_to_client};
use crate::event::{Value, Walker};
use crate::v1;
use crate::wire::{EventsItems, Outbound, Pieces, bytes_key};
use bytes::{BufMut as _, Bytes, BytesMut};
use ftb_core::limits;
use ftb_core::node::api::{SubscriptionId, ToClient};
use ftb_core::position::Epoch;
use ftb_core::run::Run;
use ftb_core::sealed::Span;
use prost::Message as _;
use prost::encoding::encode_varint;

/// Field numbers of `ftb/v1/client.proto`.
mod field {
    pub(super) const TO_AGENT_PUBLISH: u32 = 2;
    pub(super) const TO_CLIENT_DELIVER: u8 = 5;
    pub(super) const PUBLISH_FIRST_SEQ: u32 = 1;
    pub(super) const PUBLISH_EVENTS: u32 = 2;
    pub(super) const PUBLISH_AGAIN: u32 = 3;
    pub(super) const DELIVER_SUBSCRIPTION: u8 = 1;
    pub(super) const DELIVER_EPOCH: u8 = 2;
    pub(super) const DELIVER_EPOCH_ROOT: u8 = 3;
    pub(super) const DELIVER_ITEMS: u8 = 4;
}

/// What a client has said, read from the bytes of its message.
#[derive(Debug)]
pub enum Said {
    /// Events.
    Publish(Publish),
    /// Anything else; `None` for what this version does not know.
    Other(Option<v1::to_agent::Message>),
}

/// Events that a client publishes, in the bytes that they came in. Not looked into.
#[derive(Debug)]
pub struct Publish {
    /// The sequence of the first.
    pub first_seq: u64,
    /// Whether an agent may have had them already.
    pub again: bool,
    bytes: Bytes,
    events: Vec<Span>,
}

impl Publish {
    /// The encoded events; their sequences follow each other.
    pub fn events(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        let slice = |at: &Span| &self.bytes[at.start as usize..(at.start + at.len) as usize];
        self.events.iter().map(slice)
    }
}

impl Said {
    /// Reads a message.
    ///
    /// # Errors
    /// [`ClientWireError`]: the client must be refused.
    pub fn decode(bytes: Bytes) -> Result<Self, ClientWireError> {
        const WHAT: &str = "message of a client";
        let mut walker = Walker::new(WHAT, &bytes);
        let mut publish = None;
        let mut fields = 0;
        while let Some(field) = walker.next()? {
            fields += 1;
            if let (field::TO_AGENT_PUBLISH, Value::Bytes(at)) = (field.number, field.value) {
                publish = Some(at);
            }
        }
        match publish {
            Some(at) if fields == 1 => Ok(Self::Publish(Publish::decode(bytes, at)?)),
            // One message says one thing.
            Some(_) => Err(unknown("list of fields", fields)),
            None => match v1::ToAgent::decode(bytes) {
                Ok(message) => Ok(Self::Other(message.message)),
                Err(error) => {
                    Err(ClientWireError::Unknown { what: "encoding", value: error.to_string() })
                }
            },
        }
    }
}

impl Publish {
    fn decode(bytes: Bytes, at: Span) -> Result<Self, ClientWireError> {
        const WHAT: &str = "publication";
        let mut walker = Walker::new(WHAT, Walker::new(WHAT, &bytes).slice(at));
        let (mut first_seq, mut again) = (0, false);
        let mut events = Vec::new();
        while let Some(field) = walker.next()? {
            match (field.number, field.value) {
                (field::PUBLISH_FIRST_SEQ, Value::Varint(number)) => first_seq = number,
                (field::PUBLISH_AGAIN, Value::Varint(number)) => again = number != 0,
                (field::PUBLISH_EVENTS, Value::Bytes(span)) => {
                    bound("list of events", events.len() + 1, limits::BATCH_EVENTS_MAX)?;
                    events.push(Span { start: span.start + at.start, len: span.len });
                    if events.len() == 2 {
                        // Those behind it are mostly as long.
                        let left = at.len.saturating_sub(span.start + span.len) / (span.len + 2);
                        events.reserve((left as usize).min(limits::BATCH_EVENTS_MAX));
                    }
                }
                (1..=3, _) => return Err(field.wrong_type(WHAT).into()),
                _ => {}
            }
        }
        if first_seq == 0 || first_seq.checked_add(events.len() as u64).is_none() {
            return Err(unknown("first sequence number", first_seq));
        }
        Ok(Self { first_seq, again, bytes, events })
    }
}

fn unknown(what: &'static str, value: impl ToString) -> ClientWireError {
    ClientWireError::Unknown { what, value: value.to_string() }
}

/// What goes to a client.
#[derive(Debug)]
pub enum Outgoing {
    /// From the core.
    Core(ToClient),
    /// From the shell.
    Shell(v1::ToClient),
}

impl Outbound for Outgoing {
    fn write(self, out: &mut Pieces) {
        match self {
            Self::Shell(message) => out.message(&message),
            Self::Core(ToClient::Deliver { subscription, epoch, items }) => {
                write_deliver(subscription, epoch, &items, out);
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

fn write_deliver(
    subscription: SubscriptionId,
    epoch: Epoch,
    items: &[(u64, Run)],
    out: &mut Pieces,
) {
    use prost::encoding::{fixed64, uint32, uint64};
    let mut head = BytesMut::with_capacity(32);
    if subscription.0 != 0 {
        uint32::encode(field::DELIVER_SUBSCRIPTION.into(), &subscription.0, &mut head);
    }
    if epoch.number != 0 {
        uint64::encode(field::DELIVER_EPOCH.into(), &epoch.number, &mut head);
    }
    if epoch.root.0 != 0 {
        fixed64::encode(field::DELIVER_EPOCH_ROOT.into(), &epoch.root.0, &mut head);
    }
    let item =
        |(index, run): &(u64, Run)| EventsItems::new(field::DELIVER_ITEMS, Some(*index), run);
    let items: Vec<EventsItems> = items.iter().map(item).collect();
    let len = head.len() + items.iter().map(EventsItems::len).sum::<usize>();
    out.open().put_u8(bytes_key(field::TO_CLIENT_DELIVER));
    encode_varint(len as u64, out.open());
    out.open().extend_from_slice(&head);
    items.into_iter().for_each(|item| item.put(out));
}
