//! Events as server-sent events: `event: event` or `event: gap`, with the JSON of
//! `ftbctl subscribe --json`.
//!
//! A reader that is slow loses events as any slow subscription does: the mildest first, and a gap
//! says so. Not responsible for: the subscription.

use crate::public_reading::PublicReading;
use bytes::Bytes;
use ftb_proto::client::FromAgent;
use ftb_proto::json::{EventObject, GapObject};
use serde::Serialize;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// How often a silent stream gets a comment, by which a reader that is gone is noticed.
const COMMENT_EVERY: Duration = Duration::from_secs(15);

/// The body of an answer.
pub(super) struct EventStream {
    reading: PublicReading,
    comment: Interval,
    is_over: bool,
    _place: OwnedSemaphorePermit,
}

impl EventStream {
    pub(super) fn new(reading: PublicReading, place: OwnedSemaphorePermit) -> Self {
        let mut comment = interval(COMMENT_EVERY);
        comment.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { reading, comment, is_over: false, _place: place }
    }

    /// The next part of the text; `None`: the stream has ended. It begins with a comment.
    pub(super) fn poll_text(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        while !self.is_over {
            match self.reading.poll_next(cx) {
                Poll::Ready(None) => self.is_over = true,
                Poll::Ready(Some(message)) => {
                    let text = self.write(message);
                    if !text.is_empty() {
                        return Poll::Ready(Some(text.into()));
                    }
                }
                Poll::Pending => return self.comment.poll_tick(cx).map(|_| Some(COMMENT)),
            }
        }
        Poll::Ready(None)
    }

    fn write(&mut self, message: FromAgent) -> Vec<u8> {
        let mut text = Vec::new();
        match message {
            FromAgent::Deliver { mut events, .. } => {
                while let Some(received) = events.take_first() {
                    let position = Some(received.position.to_string());
                    put(&mut text, "event", position, &EventObject::from(&received));
                }
            }
            FromAgent::Gap { gap, .. } => {
                put(&mut text, "gap", Some(gap.until.to_string()), &GapObject::from(&gap));
            }
            FromAgent::Rejected { message, .. } => {
                put(&mut text, "error", None, &message);
                self.is_over = true;
            }
            _ => {}
        }
        text
    }
}

const COMMENT: Bytes = Bytes::from_static(b":\n\n");

/// Appends one event of the stream. JSON has no line breaks.
fn put(text: &mut Vec<u8>, kind: &str, id: Option<String>, data: &impl Serialize) {
    let before = text.len();
    text.extend_from_slice(format!("event: {kind}\n").as_bytes());
    if let Some(id) = id {
        text.extend_from_slice(format!("id: {id}\n").as_bytes());
    }
    text.extend_from_slice(b"data: ");
    match serde_json::to_writer(&mut *text, data) {
        Ok(()) => text.extend_from_slice(b"\n\n"),
        // These types cannot fail to become JSON.
        Err(_) => text.truncate(before),
    }
}
