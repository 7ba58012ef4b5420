//! What a client and its agent say to each other, as checked values.
//!
//! Both directions come as a pair of a type and its two conversions: [`FromClient`] with
//! [`FromClient::encode`] (client) and [`FromClient::decode`] (agent), [`FromAgent`] with
//! [`FromAgent::decode`] (client) and [`encode_to_client`] (agent). Events inside are not opened
//! on their way to the agent: it checks them when it seals them, one by one, so that one bad event
//! is refused alone.

use crate::event::{EventBatch, EventWireError};
use crate::{PROTOCOL_VERSION, v1};
use bytes::Bytes;
use ftb_core::node::api::{Gap, GapReason, RefusedWhat, Start, SubscriptionId, ToClient};
use ftb_core::position::TRAIL_MAX;
use ftb_core::{Epoch, OriginId, Position, SealedRef, Severity, Spaces, Trail, limits};
use prost::Message as _;
use v1::refused::What;
use v1::subscribe::Start as WireStart;
use v1::to_agent::Message as AgentMessage;
use v1::to_client::Message as ClientMessage;

/// The gRPC method with which a client attaches to its agent.
pub const ATTACH_METHOD: &str = "/ftb.v1.Clients/Attach";

/// Longest reason or message that is taken from the other side, in bytes.
const TEXT_BYTES_MAX: usize = 4096;

/// The stable words for what an agent refuses.
pub mod code {
    /// The filter cannot be read.
    pub const FILTER: &str = "filter";
    /// A limit was reached.
    pub const LIMIT: &str = "limit";
    /// An access rule forbids it.
    pub const DENIED: &str = "denied";
    /// Client and agent speak different versions.
    pub const PROTOCOL: &str = "protocol";
    /// The bytes make no sense.
    pub const MALFORMED: &str = "malformed";
    /// The publisher says more than the storm rules allow.
    pub const RATE: &str = "rate";
}

/// Why a message of the other side cannot be used: the stream must end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientWireError {
    /// A message without content, or without a part that must be there.
    #[error("a message of the {0} has no content that this version knows")]
    Empty(&'static str),
    /// The bytes are no message.
    #[error("a message cannot be read: {0}")]
    Unreadable(String),
    /// Another version.
    #[error("the {peer} speaks version {theirs} of the protocol, this program {ours}")]
    Protocol {
        /// Who.
        peer: &'static str,
        /// Its version.
        theirs: u32,
        /// Ours.
        ours: u32,
    },
    /// Something is over its bound.
    #[error("the {what} of a message has {size}: at most {max} are allowed")]
    TooLong {
        /// What.
        what: &'static str,
        /// Its size.
        size: usize,
        /// The bound.
        max: usize,
    },
    /// A number or a word that has no meaning here.
    #[error("the {what} of a message is {value:?}, which means nothing here")]
    Unknown {
        /// What.
        what: &'static str,
        /// The beginning of it.
        value: String,
    },
    /// An event that is none.
    #[error(transparent)]
    Event(#[from] EventWireError),
}

impl ClientWireError {
    fn unreadable(error: prost::DecodeError) -> Self {
        Self::Unreadable(error.to_string())
    }

    /// The word of [`code`] for it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Protocol { .. } => code::PROTOCOL,
            Self::TooLong { .. } => code::LIMIT,
            _ => code::MALFORMED,
        }
    }
}

fn bound(what: &'static str, size: usize, max: usize) -> Result<(), ClientWireError> {
    if size <= max { Ok(()) } else { Err(ClientWireError::TooLong { what, size, max }) }
}

fn check_version(peer: &'static str, theirs: u32) -> Result<(), ClientWireError> {
    let ours = PROTOCOL_VERSION;
    if theirs == ours { Ok(()) } else { Err(ClientWireError::Protocol { peer, theirs, ours }) }
}

/// The beginning of a text for people, in at most [`TEXT_BYTES_MAX`] bytes.
fn shortened(mut text: String) -> String {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// A position for the wire.
pub fn wire_position(position: Position) -> v1::Position {
    v1::Position {
        epoch: position.epoch.number,
        epoch_root: position.epoch.root.0,
        index: position.index,
    }
}

/// A position from the wire.
pub fn core_position(position: v1::Position) -> Position {
    Position {
        epoch: Epoch { number: position.epoch, root: OriginId(position.epoch_root) },
        index: position.index,
    }
}

/// Event spaces by name; none for any.
pub(crate) fn wire_spaces(spaces: &Spaces) -> Vec<String> {
    spaces.names().unwrap_or_default().iter().map(|space| space.as_str().to_owned()).collect()
}

/// Where a subscription begins, as its message says it.
fn wire_start(start: Start) -> (Option<WireStart>, Vec<v1::Position>) {
    match start {
        Start::Now => (None, Vec::new()),
        Start::SinceNs(since_ns) => (Some(WireStart::SinceNs(since_ns)), Vec::new()),
        Start::After(position) => (Some(WireStart::After(wire_position(position))), Vec::new()),
        Start::Behind(trail) => {
            let (newest, all) = (trail.newest(), trail.places());
            let earlier = all.iter().filter(|place| **place != newest);
            let earlier = earlier.map(|place| wire_position(*place)).collect();
            (Some(WireStart::After(wire_position(newest))), earlier)
        }
    }
}

/// Where a subscription begins, from the wire.
///
/// # Errors
/// [`ClientWireError`] where it names more reigns than a reader remembers.
fn core_start(
    start: Option<WireStart>,
    earlier: &[v1::Position],
) -> Result<Start, ClientWireError> {
    bound("list of earlier positions", earlier.len(), TRAIL_MAX - 1)?;
    Ok(match start {
        None => Start::Now,
        Some(WireStart::SinceNs(since_ns)) => Start::SinceNs(since_ns),
        Some(WireStart::After(position)) if earlier.is_empty() => {
            Start::After(core_position(position))
        }
        Some(WireStart::After(position)) => {
            let mut trail = Trail::at(core_position(position));
            earlier.iter().for_each(|place| trail.note(core_position(*place)));
            Start::Behind(trail)
        }
    })
}

/// Who a client says that it is: its first message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Version of the protocol that it speaks.
    pub protocol: u32,
    /// Its name; may be empty.
    pub client_name: String,
    /// Its job; may be empty.
    pub job_id: String,
    /// Its half of the publisher id.
    pub token: u64,
}

/// What a client says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromClient {
    /// First of all.
    Hello(Hello),
    /// Encoded events whose sequences follow each other.
    Publish {
        /// The sequence of the first, from 1.
        first_seq: u64,
        /// Encoded events, not looked into.
        events: Vec<Bytes>,
        /// Whether an agent may have had them already.
        again: bool,
    },
    /// Wants events.
    Subscribe {
        /// The client's name for it.
        subscription: SubscriptionId,
        /// Not parsed: a bad filter is rejected alone.
        filter: String,
        /// From where on.
        start: Start,
    },
    /// Wants no more of them.
    Unsubscribe(SubscriptionId),
    /// How it wants to hear that its events are held; at once until it says so.
    Confirmations {
        /// With the next thing that it is told, or after a while: nobody waits for it.
        lazily: bool,
    },
    /// Is about to go.
    Goodbye {
        /// Why, for the log.
        reason: String,
    },
}

impl FromClient {
    /// As a message.
    pub fn encode(self) -> v1::ToAgent {
        let message = match self {
            Self::Hello(hello) => AgentMessage::Hello(v1::ClientHello {
                protocol: hello.protocol,
                client_name: hello.client_name,
                job_id: hello.job_id,
                token: hello.token,
            }),
            Self::Publish { first_seq, events, again } => {
                AgentMessage::Publish(v1::Publish { first_seq, events, again })
            }
            Self::Subscribe { subscription, filter, start } => {
                let (start, earlier) = wire_start(start);
                AgentMessage::Subscribe(v1::Subscribe {
                    subscription: subscription.0,
                    filter,
                    start,
                    earlier,
                })
            }
            Self::Unsubscribe(subscription) => {
                AgentMessage::Unsubscribe(v1::Unsubscribe { subscription: subscription.0 })
            }
            Self::Confirmations { lazily } => {
                AgentMessage::Confirmations(v1::Confirmations { lazily })
            }
            Self::Goodbye { reason } => AgentMessage::Goodbye(v1::ClientGoodbye { reason }),
        };
        v1::ToAgent { message: Some(message) }
    }

    /// Decodes a client's message. Events share its buffer.
    ///
    /// # Errors
    /// [`ClientWireError`]: the client must be rejected.
    pub fn decode(bytes: Bytes) -> Result<Self, ClientWireError> {
        let message = v1::ToAgent::decode(bytes).map_err(ClientWireError::unreadable)?;
        match message.message.ok_or(ClientWireError::Empty("client"))? {
            AgentMessage::Hello(hello) => Ok(Self::Hello(Hello {
                protocol: hello.protocol,
                client_name: hello.client_name,
                job_id: hello.job_id,
                token: hello.token,
            })),
            AgentMessage::Publish(publish) => {
                let count = publish.events.len();
                bound("list of events", count, limits::BATCH_EVENTS_MAX)?;
                let last = publish.first_seq.checked_add(count as u64);
                if publish.first_seq == 0 || last.is_none() {
                    return Err(ClientWireError::Unknown {
                        what: "first sequence number",
                        value: publish.first_seq.to_string(),
                    });
                }
                Ok(Self::Publish {
                    first_seq: publish.first_seq,
                    events: publish.events,
                    again: publish.again,
                })
            }
            AgentMessage::Subscribe(subscribe) => {
                let start = core_start(subscribe.start, &subscribe.earlier)?;
                let subscription = SubscriptionId(subscribe.subscription);
                Ok(Self::Subscribe { subscription, filter: subscribe.filter, start })
            }
            AgentMessage::Unsubscribe(unsubscribe) => {
                Ok(Self::Unsubscribe(SubscriptionId(unsubscribe.subscription)))
            }
            AgentMessage::Confirmations(v1::Confirmations { lazily }) => {
                Ok(Self::Confirmations { lazily })
            }
            AgentMessage::Goodbye(goodbye) => {
                Ok(Self::Goodbye { reason: shortened(goodbye.reason) })
            }
        }
    }
}

/// How an agent greets a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The cluster's name.
    pub cluster: String,
    /// The agent's host.
    pub host: String,
    /// The agent's incarnation.
    pub origin: OriginId,
    /// The first half of the client's publisher id.
    pub account: u64,
    /// The largest payload that the agent takes, in bytes.
    pub payload_bytes_max: usize,
}

impl Welcome {
    /// As a message.
    pub fn encode(self) -> v1::ToClient {
        to_client(ClientMessage::Welcome(v1::ClientWelcome {
            protocol: PROTOCOL_VERSION,
            cluster: self.cluster,
            host: self.host,
            origin: self.origin.0,
            account: self.account,
            payload_bytes_max: self.payload_bytes_max as u64,
        }))
    }
}

/// What an agent did not accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedPart {
    /// A subscription.
    Subscription(SubscriptionId),
    /// One event, by its publisher sequence.
    Publish(u64),
    /// All events from one publisher sequence to another.
    PublishRange {
        /// The first.
        first: u64,
        /// The last.
        last: u64,
    },
    /// The client as a whole: the stream ends.
    Attach,
}

/// What an agent says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromAgent {
    /// First of all.
    Welcome(Welcome),
    /// All of the client's events up to this sequence are held by acting root and standby.
    Confirmed {
        /// The highest such.
        seq: u64,
    },
    /// The subscription is active in the whole tree.
    Subscribed {
        /// Which.
        subscription: SubscriptionId,
        /// Everything that matches behind this is delivered.
        active_after: Position,
    },
    /// Something was not accepted.
    Refused {
        /// What.
        part: RefusedPart,
        /// A word of [`code`].
        code: String,
        /// For people.
        message: String,
    },
    /// Events in log order.
    Deliver {
        /// For which subscription.
        subscription: SubscriptionId,
        /// Checked, not decoded.
        events: EventBatch,
    },
    /// Events that this subscription will not get.
    Gap {
        /// For which subscription.
        subscription: SubscriptionId,
        /// What is missing.
        gap: Gap,
    },
    /// Everything that a subscription wants up to a position was delivered or told.
    Covered {
        /// Which subscription.
        subscription: SubscriptionId,
        /// Up to where.
        position: Position,
        /// The past that it began in ends here.
        history_ended: bool,
    },
    /// The agent is about to stop.
    Goodbye {
        /// Why, for people.
        reason: String,
    },
}

impl FromAgent {
    /// Takes an agent's message, as bytes: events stay where they lie in them.
    ///
    /// # Errors
    /// [`ClientWireError`]: the stream must end.
    pub fn decode(bytes: Bytes) -> Result<Self, ClientWireError> {
        let message = v1::ToClient::decode(bytes.clone()).map_err(ClientWireError::unreadable)?;
        match message.message.ok_or(ClientWireError::Empty("agent"))? {
            ClientMessage::Welcome(welcome) => {
                check_version("agent", welcome.protocol)?;
                bound("cluster", welcome.cluster.len(), limits::HOST_BYTES_MAX)?;
                bound("host", welcome.host.len(), limits::HOST_BYTES_MAX)?;
                let max = limits::PAYLOAD_BYTES_MAX;
                Ok(Self::Welcome(Welcome {
                    cluster: welcome.cluster,
                    host: welcome.host,
                    origin: OriginId(welcome.origin),
                    account: welcome.account,
                    payload_bytes_max: usize::try_from(welcome.payload_bytes_max)
                        .map_or(max, |bytes| bytes.min(max)),
                }))
            }
            ClientMessage::Confirmed(confirmed) => Ok(Self::Confirmed { seq: confirmed.seq }),
            ClientMessage::Subscribed(subscribed) => Ok(Self::Subscribed {
                subscription: SubscriptionId(subscribed.subscription),
                active_after: position_of(subscribed.active_after)?,
            }),
            ClientMessage::Refused(refused) => Ok(Self::Refused {
                part: match refused.what.ok_or(ClientWireError::Empty("agent"))? {
                    What::Subscription(id) => RefusedPart::Subscription(SubscriptionId(id)),
                    What::PublishSeq(first) if refused.publish_last > first => {
                        RefusedPart::PublishRange { first, last: refused.publish_last }
                    }
                    What::PublishSeq(seq) => RefusedPart::Publish(seq),
                    What::Attach(_) => RefusedPart::Attach,
                },
                code: shortened(refused.code),
                message: shortened(refused.message),
            }),
            ClientMessage::Deliver(deliver) => Ok(Self::Deliver {
                subscription: SubscriptionId(deliver.subscription),
                events: EventBatch::decode(bytes, &deliver)?,
            }),
            ClientMessage::Gap(gap) => Ok(Self::Gap {
                subscription: SubscriptionId(gap.subscription),
                gap: decode_gap(gap)?,
            }),
            ClientMessage::Covered(covered) => Ok(Self::Covered {
                subscription: SubscriptionId(covered.subscription),
                position: position_of(covered.position)?,
                history_ended: covered.history_ended,
            }),
            ClientMessage::Goodbye(goodbye) => {
                Ok(Self::Goodbye { reason: shortened(goodbye.reason) })
            }
        }
    }
}

fn position_of(position: Option<v1::Position>) -> Result<Position, ClientWireError> {
    position.map(core_position).ok_or(ClientWireError::Empty("agent"))
}

fn decode_gap(gap: v1::Gap) -> Result<Gap, ClientWireError> {
    let reason = GapReason::ALL.into_iter().find(|reason| reason.as_str() == gap.reason);
    bound("list of spaces", gap.spaces.len(), limits::GAP_SPACES_MAX)?;
    let spaces = Spaces::named(gap.spaces.iter().map(String::as_str));
    Ok(Gap {
        spaces: spaces.map_err(|error| ClientWireError::Unknown {
            what: "space of a gap",
            value: error.to_string(),
        })?,
        after: position_of(gap.after)?,
        until: position_of(gap.until)?,
        reason: reason.ok_or_else(|| ClientWireError::Unknown {
            what: "reason of a gap",
            value: gap.reason.chars().take(32).collect(),
        })?,
        count: gap.count,
        severity_max: Severity::from_wire(gap.severity_max),
    })
}

fn to_client(message: ClientMessage) -> v1::ToClient {
    v1::ToClient { message: Some(message) }
}

/// Refuses a client as a whole; the stream ends behind it.
pub fn encode_refused_attach(code: &str, message: &str) -> v1::ToClient {
    refused(What::Attach(true), 0, code, message.to_owned())
}

/// Tells a client that its agent is about to stop.
pub fn encode_goodbye(reason: &str) -> v1::ToClient {
    to_client(ClientMessage::Goodbye(v1::ClientGoodbye { reason: reason.to_owned() }))
}

fn refused(what: What, publish_last: u64, code: &str, message: String) -> v1::ToClient {
    to_client(ClientMessage::Refused(v1::Refused {
        what: Some(what),
        code: code.to_owned(),
        message,
        publish_last,
    }))
}

/// What a node has for a client, as a message. Agents write [`Outgoing`] instead, which is the same
/// on the wire.
pub fn encode_to_client(message: ToClient) -> v1::ToClient {
    match message {
        ToClient::Confirmed { seq } => to_client(ClientMessage::Confirmed(v1::Confirmed { seq })),
        ToClient::Subscribed { subscription, active_after } => {
            to_client(ClientMessage::Subscribed(v1::Subscribed {
                subscription: subscription.0,
                active_after: Some(wire_position(active_after)),
            }))
        }
        ToClient::Refused { what, code, message } => {
            let (what, last) = match what {
                RefusedWhat::Subscription(id) => (What::Subscription(id.0), 0),
                RefusedWhat::Publish(seq) => (What::PublishSeq(seq), 0),
                RefusedWhat::PublishRange { first, last } => (What::PublishSeq(first), last),
            };
            refused(what, last, code, message)
        }
        ToClient::Deliver { subscription, epoch, items } => {
            let copied = |event: SealedRef<'_>| Bytes::copy_from_slice(event.bytes());
            let items = items.iter().map(|(index, run)| {
                let sealed = run.iter().map(copied).collect();
                v1::Item { index: *index, sealed }
            });
            to_client(ClientMessage::Deliver(v1::Deliver {
                subscription: subscription.0,
                epoch: epoch.number,
                epoch_root: epoch.root.0,
                items: items.collect(),
            }))
        }
        ToClient::Gap { subscription, gap } => to_client(ClientMessage::Gap(v1::Gap {
            subscription: subscription.0,
            after: Some(wire_position(gap.after)),
            until: Some(wire_position(gap.until)),
            reason: gap.reason.as_str().to_owned(),
            count: gap.count,
            severity_max: gap.severity_max.map_or(0, Severity::to_wire),
            spaces: wire_spaces(&gap.spaces),
        })),
        ToClient::Covered { subscription, position, history_ended } => {
            to_client(ClientMessage::Covered(v1::Covered {
                subscription: subscription.0,
                position: Some(wire_position(position)),
                history_ended,
            }))
        }
    }
}

mod publish;
pub use publish::{published_len, put_publish, put_published};
mod deliver;
pub use deliver::Outgoing;

#[cfg(test)]
mod tests;
