//! Hostile bytes in messages of clients and agents, and hostile sequences of frames on a link
//! (`ftb_fuzz` says how targets run).
#![allow(clippy::unwrap_used)]

#[path = "fuzz/link.rs"]
mod link;

use bytes::Bytes;
use ftb_core::{Position, limits};
use ftb_fuzz::Target;
use ftb_proto::client::{FromAgent, FromClient, published_events};
use ftb_proto::event::signature::{signature_of, signed_parts, without_condition};
use ftb_proto::event::{check_event, decode_event, decode_sealed, unseal};
use ftb_proto::link::decode;
use ftb_proto::wire::Outbound as _;
use prost::Message as _;

/// A target that begins with the golden files.
fn golden(name: &'static str) -> Target {
    Target::new(name).files("proto/tests/golden", "bin")
}

#[test]
fn whatever_is_taken_as_an_event_reads_as_one() {
    golden("event").check(|bytes| {
        if check_event(bytes, limits::PAYLOAD_BYTES_MAX).is_ok() {
            let event = decode_event(bytes).unwrap();
            assert_eq!(event.check(limits::PAYLOAD_BYTES_MAX), Ok(()));
        }
        let _ = published_events(&Bytes::copy_from_slice(bytes));
        let (_, _) = (signed_parts(bytes), signature_of(bytes));
        if let Ok(sealed) = decode_sealed(Bytes::copy_from_slice(bytes)) {
            let received = unseal(Position::ZERO, &sealed).unwrap();
            assert_eq!(received.event.space.as_str(), sealed.space());
            assert_eq!(received.host, sealed.host());
            if let Ok(plain) = without_condition(sealed.as_ref()) {
                assert!(plain.as_ref().condition().is_none());
            }
        }
    });
}

#[test]
fn a_message_of_a_client_reads_again_as_it_was() {
    golden("to_agent").check(|bytes| {
        let Ok(message) = FromClient::decode(Bytes::copy_from_slice(bytes)) else { return };
        let encoded = message.clone().encode().encode_to_vec();
        let again = FromClient::decode(encoded.into()).unwrap();
        assert_eq!(message, again);
    });
}

#[test]
fn events_that_a_client_takes_from_an_agent_can_be_read() {
    golden("to_client").check(|bytes| match FromAgent::decode(Bytes::copy_from_slice(bytes)) {
        Ok(FromAgent::Deliver { events, .. }) => {
            for event in events.iter() {
                let received = event.to_received();
                assert_eq!(received.event.name.as_str(), event.name());
                let _ = (event.tag("node"), event.folded(), event.stated());
            }
        }
        Ok(message) => assert!(!format!("{message:?}").is_empty()),
        Err(_) => {}
    });
}

#[test]
fn a_frame_reads_again_as_it_was() {
    golden("link_frame").check(|bytes| {
        let Ok(frame) = decode(Bytes::copy_from_slice(bytes)) else { return };
        let again = decode(frame.clone().to_bytes()).unwrap();
        assert_eq!(frame, again);
    });
}
