//! What the core says, as the messages of clients and of the admin service.

use ftb_core::node::api::{RefusedWhat, ToClient};
use ftb_core::{Epoch, OriginId, Position};
use ftb_proto::v1;

/// A message of the core to a client.
pub fn to_client(message: ToClient) -> v1::ToClient {
    use v1::to_client::Message;
    let message = match message {
        ToClient::Confirmed { seq } => Message::Confirmed(v1::Confirmed { seq }),
        ToClient::Subscribed { subscription, active_after } => {
            Message::Subscribed(v1::Subscribed {
                subscription: subscription.0,
                active_after: Some(wire_position(active_after)),
            })
        }
        ToClient::Refused { what, code, message } => {
            let what = Some(match what {
                RefusedWhat::Subscription(id) => v1::refused::What::Subscription(id.0),
                RefusedWhat::Publish(seq) => v1::refused::What::PublishSeq(seq),
            });
            Message::Refused(v1::Refused { what, code: code.to_owned(), message })
        }
        ToClient::Deliver { subscription, epoch, items } => Message::Deliver(v1::Deliver {
            subscription: subscription.0,
            epoch: epoch.number,
            epoch_root: epoch.root.0,
            items: items
                .into_iter()
                .map(|(index, event)| v1::Item { index, sealed: event.into_bytes() })
                .collect(),
        }),
        ToClient::Gap { subscription, gap } => Message::Gap(v1::Gap {
            subscription: subscription.0,
            after: Some(wire_position(gap.after)),
            until: Some(wire_position(gap.until)),
            reason: gap.reason.as_str().to_owned(),
            count: gap.count,
            severity_max: gap.severity_max.map_or(0, |severity| severity.to_wire()),
        }),
    };
    v1::ToClient { message: Some(message) }
}

/// A position for the wire.
pub fn wire_position(position: Position) -> v1::Position {
    v1::Position {
        epoch: position.epoch.number,
        epoch_root: position.epoch.root.0,
        index: position.index,
    }
}

/// A position from the wire. Every number is a valid one; the core finds out which it knows.
pub fn position(position: &v1::Position) -> Position {
    let epoch = Epoch { number: position.epoch, root: OriginId(position.epoch_root) };
    Position { epoch, index: position.index }
}
