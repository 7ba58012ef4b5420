//! The messages of a client and its agent, as checked values.
//!
//! [`FromClient`] and [`FromAgent`] are what each side receives. A client writes [`FromClient`], an
//! agent writes [`Outgoing`]. Events are not opened on their way to the agent: it checks each when
//! it adds the envelope, so that a bad event is rejected alone.

use crate::common::{
    self, core_confirm_level, core_position, versions, wire_confirm, wire_gap, wire_position,
};
use crate::event::{EventBatch, EventWireError};
use crate::v1;
use bytes::Bytes;
use ftb_core::node::api::{Gap, RefusedWhat, RejectCode, Start, SubscriptionId, ToClient};
use ftb_core::position::TRAIL_MAX;
use ftb_core::protocol::{CLIENT_FEATURES, Features, PROTOCOL, Versions};
use ftb_core::text::cut;
use ftb_core::{ConfirmLevel, OriginId, Position, SealedRef, Trail, limits};
use prost::Message as _;
use v1::rejected::What;
use v1::subscribe::Start as WireStart;
use v1::to_agent::Message as AgentMessage;
use v1::to_client::Message as ClientMessage;

/// The gRPC method with which a client attaches to its agent.
pub const ATTACH_METHOD: &str = "/ftb.v1.Clients/Attach";

/// Longest reason or message that is taken from the other side, in bytes.
const TEXT_BYTES_MAX: usize = 4096;

/// Why a message of the other side cannot be used: the stream must end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientWireError {
    /// The message has no content, or a part that it must have is missing.
    #[error("a message of the {0} has no content that this version knows")]
    Empty(&'static str),
    /// The bytes are no message.
    #[error("a message cannot be read: {0}")]
    Unreadable(String),
    /// The agent uses a version that this client does not speak.
    #[error(
        "the agent uses protocol {theirs}, this program speaks {ours}: upgrade both to the same \
         release"
    )]
    Protocol {
        /// The agent's.
        theirs: u32,
        /// Those of this program.
        ours: Versions,
    },
    /// A list is over its bound.
    #[error("the {what} of a message has {size}: at most {max} are allowed")]
    TooLong {
        /// Which.
        what: &'static str,
        /// Its size.
        size: usize,
        /// The bound.
        max: usize,
    },
    /// A number is out of range.
    #[error("{0} is out of range")]
    Range(&'static str),
    /// A malformed event.
    #[error(transparent)]
    Event(#[from] EventWireError),
}

impl ClientWireError {
    fn unreadable(error: prost::DecodeError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

fn bound(what: &'static str, size: usize, max: usize) -> Result<(), ClientWireError> {
    if size <= max { Ok(()) } else { Err(ClientWireError::TooLong { what, size, max }) }
}

fn wire_code(code: RejectCode) -> i32 {
    let code = match code {
        RejectCode::Filter => v1::RejectCode::Filter,
        RejectCode::Limit => v1::RejectCode::Limit,
        RejectCode::Denied => v1::RejectCode::Denied,
        RejectCode::Protocol => v1::RejectCode::Protocol,
        RejectCode::Malformed => v1::RejectCode::Malformed,
        RejectCode::Rate => v1::RejectCode::Rate,
        RejectCode::Other => v1::RejectCode::Unspecified,
    };
    code.into()
}

/// A code of a later version is [`RejectCode::Other`].
fn core_code(code: i32) -> RejectCode {
    match v1::RejectCode::try_from(code).unwrap_or_default() {
        v1::RejectCode::Filter => RejectCode::Filter,
        v1::RejectCode::Limit => RejectCode::Limit,
        v1::RejectCode::Denied => RejectCode::Denied,
        v1::RejectCode::Protocol => RejectCode::Protocol,
        v1::RejectCode::Malformed => RejectCode::Malformed,
        v1::RejectCode::Rate => RejectCode::Rate,
        v1::RejectCode::Unspecified => RejectCode::Other,
    }
}

fn wire_start(start: Start) -> (Option<WireStart>, Vec<v1::Position>) {
    match start {
        Start::Now => (None, Vec::new()),
        Start::SinceNs(since_ns) => (Some(WireStart::SinceNs(since_ns)), Vec::new()),
        Start::Conditions => (Some(WireStart::Conditions(true)), Vec::new()),
        Start::After(position) => (Some(WireStart::After(wire_position(position))), Vec::new()),
        Start::AfterTrail(trail) => {
            let (newest, all) = (trail.newest(), trail.places());
            let earlier = all.iter().filter(|place| **place != newest);
            let earlier = earlier.map(|place| wire_position(*place)).collect();
            (Some(WireStart::After(wire_position(newest))), earlier)
        }
    }
}

fn core_start(
    start: Option<WireStart>,
    earlier: &[v1::Position],
) -> Result<Start, ClientWireError> {
    bound("list of earlier positions", earlier.len(), TRAIL_MAX - 1)?;
    Ok(match start {
        None | Some(WireStart::Conditions(false)) => Start::Now,
        Some(WireStart::Conditions(true)) => Start::Conditions,
        Some(WireStart::SinceNs(since_ns)) => Start::SinceNs(since_ns),
        Some(WireStart::After(position)) if earlier.is_empty() => {
            Start::After(core_position(position))
        }
        Some(WireStart::After(position)) => {
            let mut trail = Trail::at(core_position(position));
            earlier.iter().for_each(|place| trail.note(core_position(*place)));
            Start::AfterTrail(trail)
        }
    })
}

/// The first message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The versions of the protocol that it speaks.
    pub versions: Versions,
    /// The features that it supports.
    pub features: Features,
    /// Its name; may be empty.
    pub client_name: String,
    /// Its job; may be empty.
    pub job_id: String,
    /// Its half of the publisher id.
    pub token: u64,
}

/// A message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromClient {
    /// The first.
    Hello(Hello),
    /// Encoded events with consecutive sequence numbers.
    Publish {
        /// The sequence number of the first, from 1.
        first_seq: u64,
        /// Encoded events, not checked.
        events: Vec<Bytes>,
        /// An earlier incarnation of the agent may have received them.
        again: bool,
        /// What each must survive before it is confirmed; `None`: the agent's default.
        confirm: Option<ConfirmLevel>,
    },
    /// What the client has stated about conditions, for an agent that does not know it.
    Restate {
        /// Sequence numbers and encoded events, not checked.
        events: Vec<(u64, Bytes)>,
    },
    /// Begins a subscription.
    Subscribe {
        /// Chosen by the client.
        subscription: SubscriptionId,
        /// Not parsed: a bad filter is rejected alone.
        filter: String,
        /// Where it begins.
        start: Start,
    },
    /// Ends a subscription.
    Unsubscribe(SubscriptionId),
    /// Whether the agent may delay acknowledgements.
    DelayAcks {
        /// False: acknowledge at once.
        delayed: bool,
    },
    /// The last.
    Close {
        /// For the log.
        reason: String,
    },
}

impl FromClient {
    /// As a message.
    pub fn encode(self) -> v1::ToAgent {
        let message = match self {
            Self::Hello(hello) => AgentMessage::Hello(v1::ClientHello {
                protocol: hello.versions.max,
                protocol_min: Some(hello.versions.min),
                features: hello.features.0,
                client_name: hello.client_name,
                job_id: hello.job_id,
                token: hello.token,
            }),
            Self::Publish { first_seq, events, again, confirm } => {
                let confirm = wire_confirm(confirm);
                AgentMessage::Publish(v1::Publish { first_seq, events, again, confirm })
            }
            Self::Restate { events } => {
                let restated = |(seq, event)| v1::RestatedEvent { seq, event };
                let events = events.into_iter().map(restated).collect();
                AgentMessage::Restate(v1::Restate { events })
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
            Self::DelayAcks { delayed } => AgentMessage::DelayAcks(v1::DelayAcks { delayed }),
            Self::Close { reason } => AgentMessage::Close(v1::ClientClose { reason }),
        };
        v1::ToAgent { message: Some(message) }
    }

    /// Decodes a client's message. Events share its buffer.
    ///
    /// # Errors
    /// [`ClientWireError`]: the client must be rejected.
    pub fn decode(bytes: Bytes) -> Result<Self, ClientWireError> {
        let message = v1::ToAgent::decode(bytes).map_err(ClientWireError::unreadable)?;
        Ok(match message.message.ok_or(ClientWireError::Empty("client"))? {
            AgentMessage::Hello(hello) => Self::Hello(Hello {
                versions: versions(hello.protocol, hello.protocol_min),
                features: Features(hello.features),
                client_name: hello.client_name,
                job_id: hello.job_id,
                token: hello.token,
            }),
            AgentMessage::Publish(v1::Publish { first_seq, events, again, confirm }) => {
                bound("list of events", events.len(), limits::BATCH_EVENTS_MAX)?;
                let end = first_seq.checked_add(events.len() as u64);
                if first_seq == 0 || end.is_none_or(|end| end > limits::PUBLISHER_SEQ_MAX) {
                    return Err(ClientWireError::Range("the first sequence number"));
                }
                let confirm = core_confirm_level(confirm);
                Self::Publish { first_seq, events, again, confirm }
            }
            AgentMessage::Restate(v1::Restate { events }) => {
                let range = 1..=limits::PUBLISHER_SEQ_MAX;
                if events.iter().any(|restated| !range.contains(&restated.seq)) {
                    return Err(ClientWireError::Range("a sequence number"));
                }
                let events = events.into_iter().map(|restated| (restated.seq, restated.event));
                Self::Restate { events: events.collect() }
            }
            AgentMessage::Subscribe(subscribe) => Self::Subscribe {
                subscription: SubscriptionId(subscribe.subscription),
                filter: subscribe.filter,
                start: core_start(subscribe.start, &subscribe.earlier)?,
            },
            AgentMessage::Unsubscribe(unsubscribe) => {
                Self::Unsubscribe(SubscriptionId(unsubscribe.subscription))
            }
            AgentMessage::DelayAcks(v1::DelayAcks { delayed }) => Self::DelayAcks { delayed },
            AgentMessage::Close(close) => {
                Self::Close { reason: cut(&close.reason, TEXT_BYTES_MAX).to_owned() }
            }
        })
    }
}

/// The agent's answer to a hello that it accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloAck {
    /// The version of the protocol that both use.
    pub protocol: u32,
    /// The features that both use.
    pub features: Features,
    /// The cluster's name.
    pub cluster: String,
    /// The agent's host.
    pub host: String,
    /// The agent's incarnation.
    pub origin: OriginId,
    /// The first half of the client's publisher id.
    pub account: u64,
    /// The largest payload that the agent accepts, in bytes.
    pub payload_bytes_max: usize,
}

impl HelloAck {
    /// As a message.
    pub fn encode(self) -> v1::ToClient {
        to_client(ClientMessage::HelloAck(v1::ClientHelloAck {
            protocol: self.protocol,
            features: self.features.0,
            cluster: self.cluster,
            host: self.host,
            origin: self.origin.0,
            account: self.account,
            payload_bytes_max: self.payload_bytes_max as u64,
        }))
    }
}

/// Chooses version and features for a client; `None`: client and agent have no common version.
pub fn negotiate(hello: &Hello) -> Option<(u32, Features)> {
    Some((PROTOCOL.common(hello.versions)?, CLIENT_FEATURES.common(hello.features)))
}

/// A message of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromAgent {
    /// The first.
    HelloAck(HelloAck),
    /// The client's events up to this sequence number are confirmed.
    Confirmed {
        /// The highest.
        seq: u64,
        /// The lowest level of those that were to be on disk; `None`: there are none.
        level: Option<ConfirmLevel>,
    },
    /// A subscription is active in the whole tree.
    Subscribed {
        /// Which.
        subscription: SubscriptionId,
        /// Every matching event after this position is delivered.
        active_after: Position,
    },
    /// A subscription or events are rejected.
    Rejected {
        /// Which.
        what: RefusedWhat,
        /// Why, for programs.
        code: RejectCode,
        /// For people.
        message: String,
    },
    /// The client is rejected; the stream ends.
    Nack {
        /// Why, for programs.
        code: RejectCode,
        /// For people.
        message: String,
    },
    /// Events in log order.
    Deliver {
        /// For this subscription.
        subscription: SubscriptionId,
        /// Checked, not decoded.
        events: EventBatch,
        /// Whether the agent demands signatures from now on; `None`: as it said before.
        requires_signatures: Option<bool>,
    },
    /// Events that this subscription does not get.
    Gap {
        /// For this subscription.
        subscription: SubscriptionId,
        /// The lost events.
        gap: Gap,
    },
    /// All matching events up to a position were delivered or reported as a gap.
    Covered {
        /// For this subscription.
        subscription: SubscriptionId,
        /// Up to here.
        position: Position,
        /// History ends here, new events begin.
        history_ended: bool,
        /// With that: statements in it that hold or are unknown, and that the user may not read.
        hidden: u32,
    },
    /// The agent stops.
    Close {
        /// For people.
        reason: String,
    },
}

impl FromAgent {
    /// Decodes an agent's message. Events share its buffer.
    ///
    /// # Errors
    /// [`ClientWireError`]: the stream must end.
    pub fn decode(bytes: Bytes) -> Result<Self, ClientWireError> {
        let message = v1::ToClient::decode(bytes.clone()).map_err(ClientWireError::unreadable)?;
        Ok(match message.message.ok_or(ClientWireError::Empty("agent"))? {
            ClientMessage::HelloAck(ack) => Self::HelloAck(core_hello_ack(ack)?),
            ClientMessage::Confirmed(v1::Confirmed { seq, level }) => {
                Self::Confirmed { seq, level: core_confirm_level(level) }
            }
            ClientMessage::Subscribed(subscribed) => Self::Subscribed {
                subscription: SubscriptionId(subscribed.subscription),
                active_after: position_of(subscribed.active_after)?,
            },
            ClientMessage::Rejected(rejected) => Self::Rejected {
                what: match rejected.what.ok_or(ClientWireError::Empty("agent"))? {
                    What::Subscription(id) => RefusedWhat::Subscription(SubscriptionId(id)),
                    What::Events(v1::SeqRange { first, last }) => {
                        RefusedWhat::Events { first: first.into(), last: last.into() }
                    }
                },
                code: core_code(rejected.code),
                message: cut(&rejected.message, TEXT_BYTES_MAX).to_owned(),
            },
            ClientMessage::Nack(nack) => Self::Nack {
                code: core_code(nack.code),
                message: cut(&nack.message, TEXT_BYTES_MAX).to_owned(),
            },
            ClientMessage::Deliver(deliver) => Self::Deliver {
                subscription: SubscriptionId(deliver.subscription),
                events: EventBatch::decode(bytes, &deliver)?,
                requires_signatures: deliver.requires_signatures,
            },
            ClientMessage::Gap(v1::SubscriptionGap { subscription, gap }) => Self::Gap {
                subscription: SubscriptionId(subscription),
                gap: common::core_gap(gap.ok_or(ClientWireError::Empty("agent"))?)
                    .map_err(ClientWireError::Range)?,
            },
            ClientMessage::Covered(covered) => Self::Covered {
                subscription: SubscriptionId(covered.subscription),
                position: position_of(covered.position)?,
                history_ended: covered.history_ended,
                hidden: covered.hidden,
            },
            ClientMessage::Close(close) => {
                Self::Close { reason: cut(&close.reason, TEXT_BYTES_MAX).to_owned() }
            }
        })
    }
}

fn core_hello_ack(ack: v1::ClientHelloAck) -> Result<HelloAck, ClientWireError> {
    if !PROTOCOL.contains(ack.protocol) {
        return Err(ClientWireError::Protocol { theirs: ack.protocol, ours: PROTOCOL });
    }
    bound("cluster", ack.cluster.len(), limits::HOST_BYTES_MAX)?;
    bound("host", ack.host.len(), limits::HOST_BYTES_MAX)?;
    let max = limits::PAYLOAD_BYTES_MAX;
    Ok(HelloAck {
        protocol: ack.protocol,
        features: Features(ack.features),
        cluster: ack.cluster,
        host: ack.host,
        origin: OriginId(ack.origin),
        account: ack.account,
        payload_bytes_max: usize::try_from(ack.payload_bytes_max)
            .map_or(max, |bytes| bytes.min(max)),
    })
}

fn position_of(position: Option<v1::Position>) -> Result<Position, ClientWireError> {
    position.map(core_position).ok_or(ClientWireError::Empty("agent"))
}

fn to_client(message: ClientMessage) -> v1::ToClient {
    v1::ToClient { message: Some(message) }
}

/// Rejects a client; the stream ends after it.
pub fn encode_nack(code: RejectCode, message: &str) -> v1::ToClient {
    let (code, message) = (wire_code(code), message.to_owned());
    to_client(ClientMessage::Nack(v1::ClientNack { code, message }))
}

/// The end of the history of a subscription, with the number of hidden statements in it.
pub fn encode_history_end(
    subscription: SubscriptionId,
    position: Position,
    hidden: u32,
) -> v1::ToClient {
    to_client(ClientMessage::Covered(v1::Covered {
        subscription: subscription.0,
        position: Some(wire_position(position)),
        history_ended: true,
        hidden,
    }))
}

/// Announces to a client that its agent stops.
pub fn encode_close(reason: &str) -> v1::ToClient {
    to_client(ClientMessage::Close(v1::ClientClose { reason: reason.to_owned() }))
}

/// A message of the core to a client. Agents write [`Outgoing`] instead, which gives the same bytes
/// and copies no events.
pub fn encode_to_client(message: ToClient) -> v1::ToClient {
    to_client(match message {
        ToClient::Confirmed { seq, level } => {
            let (seq, level) = (seq.get(), wire_confirm(level));
            ClientMessage::Confirmed(v1::Confirmed { seq, level })
        }
        ToClient::Subscribed { subscription, active_after } => {
            ClientMessage::Subscribed(v1::Subscribed {
                subscription: subscription.0,
                active_after: Some(wire_position(active_after)),
            })
        }
        ToClient::Refused { what, code, message } => ClientMessage::Rejected(v1::Rejected {
            what: Some(match what {
                RefusedWhat::Subscription(id) => What::Subscription(id.0),
                RefusedWhat::Events { first, last } => {
                    What::Events(v1::SeqRange { first: first.get(), last: last.get() })
                }
            }),
            code: wire_code(code),
            message,
        }),
        ToClient::Deliver { subscription, epoch, items } => {
            let copied = |event: SealedRef<'_>| Bytes::copy_from_slice(event.bytes());
            let items = items.iter().map(|(index, run)| {
                let sealed = run.iter().map(copied).collect();
                v1::Item { index: index.get(), sealed }
            });
            ClientMessage::Deliver(v1::Deliver {
                subscription: subscription.0,
                epoch: epoch.number,
                epoch_root: epoch.root.0,
                items: items.collect(),
                ..v1::Deliver::default()
            })
        }
        ToClient::Gap { subscription, gap } => ClientMessage::Gap(v1::SubscriptionGap {
            subscription: subscription.0,
            gap: Some(wire_gap(&gap)),
        }),
        ToClient::Covered { subscription, position, history_ended } => {
            ClientMessage::Covered(v1::Covered {
                subscription: subscription.0,
                position: Some(wire_position(position)),
                history_ended,
                hidden: 0,
            })
        }
    })
}

mod publish;
pub use publish::{published_events, published_len, put_publish, put_published};
mod deliver;
pub use deliver::Outgoing;

#[cfg(test)]
mod tests;
