//! The event that every system can carry alike, with its fields: what ftb carries anyway, and what
//! a program puts into the messages of the others when it needs a fault event and not just bytes.

use super::{Publish, Receive, WireSystem};
use anyhow::{Context as _, Result};
use ftb_client::{Event, EventRef, EventView, Severity, event, limits, now_ns};
use ftb_proto::event::{check_event, encode_event, event_len, put_event};
use std::hint::black_box;

/// What the load publishes.
const SPACE: &str = "ftb.bench.load";
const NAME: &str = "LOAD";
/// What its publishers call themselves.
pub(super) const CLIENT: &str = "bench";
/// Bytes of the key and the length of a payload up to 127, 16,383 and 2,097,151 bytes.
const PAYLOAD_HEADS: [(usize, usize); 3] = [(127, 2), (16_383, 3), (2_097_151, 4)];

/// The event of the load, still without payload.
pub(super) fn load_event() -> Result<Event> {
    let mut event = event(SPACE, NAME)?.build();
    event.client_name = CLIENT.to_owned();
    Ok(event)
}

/// How large the payload is in an event of `size` bytes.
pub(super) fn payload_bytes(size: usize) -> usize {
    let Ok(mut event) = load_event() else { return size };
    event.time_ns = 1;
    let room = size.saturating_sub(encode_event(&event).len());
    let fits =
        |(max, head): &(usize, usize)| room.checked_sub(*head).filter(|payload| payload <= max);
    PAYLOAD_HEADS.iter().find_map(fits).unwrap_or(0)
}

/// What a subscriber reads of an event, whichever system brought it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fields<'a> {
    space: &'a str,
    name: &'a str,
    severity: Severity,
    time_ns: u64,
    client_name: &'a str,
    payload: &'a [u8],
}

impl<'a> Fields<'a> {
    /// From what ftb delivers.
    pub(super) fn of_view(event: &EventView<'a>) -> Self {
        Self {
            space: event.space(),
            name: event.name(),
            severity: event.severity(),
            time_ns: event.time_ns(),
            client_name: event.client_name(),
            payload: event.payload(),
        }
    }

    /// From the bytes of an encoded event: checked, as they came from elsewhere.
    fn of_bytes(bytes: &'a [u8]) -> Result<Self> {
        let head = check_event(bytes, limits::PAYLOAD_BYTES_DEFAULT)?;
        let slice = |span: ftb_core::sealed::Span| {
            let start = span.start as usize;
            bytes.get(start..start + span.len as usize).context("a field outside of its event")
        };
        Ok(Self {
            space: std::str::from_utf8(slice(head.space)?)?,
            name: std::str::from_utf8(slice(head.name)?)?,
            severity: head.severity,
            time_ns: head.time_ns,
            client_name: std::str::from_utf8(slice(head.client_name)?)?,
            payload: slice(head.payload)?,
        })
    }

    /// Has them all read, and gives the payload.
    pub(super) fn read(self) -> &'a [u8] {
        black_box(self).payload
    }
}

/// Another system whose messages are such events.
#[derive(Debug)]
pub(crate) struct Typed<S>(pub(crate) S);

/// Encodes an event for each message.
#[derive(Debug)]
pub(crate) struct TypedPublisher<P> {
    publisher: P,
    event: Event,
    encoded: Vec<u8>,
    /// When the first event was put after the last flush: what goes together bears one time, as it
    /// does in a batch of ours.
    time_ns: Option<u64>,
}

/// Decodes an event from each message.
#[derive(Debug)]
pub(crate) struct TypedSubscriber<R>(R);

impl<S: WireSystem> WireSystem for Typed<S> {
    type Publisher = TypedPublisher<S::Publisher>;
    type Subscriber = TypedSubscriber<S::Subscriber>;
    type Bystander = S::Bystander;

    async fn publisher(&self, number: usize) -> Result<Self::Publisher> {
        let publisher = self.0.publisher(number).await?;
        Ok(TypedPublisher { publisher, event: load_event()?, encoded: Vec::new(), time_ns: None })
    }

    async fn subscriber(&self, number: usize) -> Result<Self::Subscriber> {
        Ok(TypedSubscriber(self.0.subscriber(number).await?))
    }

    async fn bystander(&self, number: usize, count: usize) -> Result<S::Bystander> {
        self.0.bystander(number, count).await
    }

    async fn resubscribe(&self, bystander: &mut S::Bystander, change: u64) -> Result<()> {
        self.0.resubscribe(bystander, change).await
    }

    fn message_bytes(&self, size: usize) -> usize {
        payload_bytes(size)
    }
}

impl<P: Publish> Publish for TypedPublisher<P> {
    async fn put(&mut self, message: &[u8]) -> Result<()> {
        let fields = EventRef::from(&self.event);
        let time_ns = *self.time_ns.get_or_insert_with(now_ns);
        let event = EventRef { time_ns, payload: message, ..fields };
        event.check(limits::PAYLOAD_BYTES_DEFAULT)?;
        self.encoded.clear();
        self.encoded.reserve(event_len(&event));
        put_event(&event, &mut self.encoded);
        self.publisher.put(&self.encoded).await
    }

    async fn flush(&mut self) -> Result<()> {
        self.time_ns = None;
        self.publisher.flush().await
    }

    async fn acknowledged(&mut self, wanted: u64) -> Result<u64> {
        self.publisher.acknowledged(wanted).await
    }
}

impl<R: Receive> Receive for TypedSubscriber<R> {
    async fn receive(&mut self, see: &mut (impl FnMut(&[u8]) + Send)) -> Result<()> {
        let mut wrong = None;
        let mut decode = |message: &[u8]| match Fields::of_bytes(message) {
            Ok(fields) => see(fields.read()),
            Err(error) => wrong = Some(error),
        };
        self.0.receive(&mut decode).await?;
        wrong.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use bytes::Bytes;

    #[test]
    fn an_event_has_the_size_that_was_asked_for() {
        for size in [64, 200, 4096, 65_536] {
            let mut event = load_event().unwrap();
            event.time_ns = u64::MAX;
            event.payload = Bytes::from(vec![0; payload_bytes(size)]);
            assert_eq!(encode_event(&event).len(), size);
        }
    }

    #[test]
    fn the_fields_of_a_message_are_those_that_were_put_into_it() {
        let mut event = load_event().unwrap();
        event.time_ns = 17;
        event.payload = Bytes::from_static(b"x");
        let bytes = encode_event(&event);
        let fields = Fields::of_bytes(&bytes).unwrap();
        assert_eq!((fields.space, fields.name, fields.client_name), (SPACE, NAME, CLIENT));
        assert_eq!((fields.time_ns, fields.read()), (17, &b"x"[..]));
        assert!(Fields::of_bytes(b"no event").is_err());
    }
}
