//! The export: which message is sent with which expectation, and what follows from the answers.
//!
//! A state machine without I/O and clock. Why each event is in the stream once:
//! - **Compare and append.** Each message names the sequence that the last message of the stream
//!   must have. The server appends it only then. So messages are appended in order, none twice and
//!   none left out, also if answers are lost or another bridge writes.
//! - **The stream is the memory.** Each message has its position in the log. After a failure the
//!   last message of the stream tells how far the export is.
//! - A file remembers the position of an export that skips events, and of an empty stream.
//!
//! So two bridges of a cluster do no harm. The one that meets messages of the other is on standby:
//! it takes over when the stream no longer grows.

#[cfg(test)]
mod tests;

use crate::cloud_event::Message;
use ftb_client::Position;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Messages that are read from the log and not acknowledged. At this number the subscription
/// waits.
pub const WINDOW_MAX: usize = 256;
/// Bytes of their bodies; one larger message is sent alone.
pub const WINDOW_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Shortest and longest pause after a failure; it doubles.
const PAUSE_MS: (u64, u64) = (100, 5_000);
/// How often a bridge on standby looks whether the stream grows.
const STANDBY_MS: u64 = 2_000;

/// Where an export was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The sequence of the last message of the stream.
    pub sequence: u64,
    /// The position up to which the log is exported; `None`: nothing is.
    #[serde(with = "position_text")]
    pub position: Option<Position>,
}

/// The end of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The sequence of its last message; the next one has one more.
    pub sequence: u64,
    /// Id and position of the last message; `None`: the stream is empty.
    pub last: Option<(String, Position)>,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The end of the stream was read.
    Tail(Tail),
    /// It could not be read, or a message was not accepted.
    Failed,
    /// There is a new connection: the server may have lost messages.
    Reconnected,
    /// The log has come to a position; `None`: nothing there is exported.
    Read(Position, Option<Message>),
    /// The oldest message in flight was acknowledged with this sequence; `is_duplicate`: the stream
    /// had it before.
    Acked {
        /// Of the message in the stream.
        sequence: u64,
        /// Nothing was appended.
        is_duplicate: bool,
    },
}

/// What the shell must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Forget the messages in flight, and read the end of the stream at that time.
    ReadTail {
        /// In milliseconds.
        at_ms: u64,
    },
    /// Read the log behind a position; `None`: from its beginning. A former subscription ends.
    Subscribe(Option<Position>),
    /// Send a message. The last message of the stream must have that sequence.
    Publish(Message, u64),
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportCounts {
    /// Messages that were appended and acknowledged.
    pub exported: u64,
    /// Events that the choice leaves out.
    pub skipped: u64,
    /// Messages that the stream had before.
    pub duplicates: u64,
    /// Failures of the server or of the connection.
    pub failures: u64,
    /// Meetings with another bridge, or with a stream that has lost messages.
    pub conflicts: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The end of the stream is unknown.
    Looking,
    /// Another bridge writes; the end as it was last seen.
    Standby(u64),
    /// Messages are sent.
    Sending,
}

#[derive(Debug)]
struct Pending {
    message: Message,
    /// The log is read up to here, and nothing between is exported.
    until: Position,
}

/// See the module.
#[derive(Debug)]
pub struct Export {
    mode: Mode,
    /// Of the last start: where the file says that the export was.
    saved: Place,
    /// Where the export is; `None` before the end of the stream is known.
    place: Option<Place>,
    /// Read and not acknowledged, oldest first. While messages are sent, all are in flight.
    window: VecDeque<Pending>,
    bytes: usize,
    /// The server has said of the oldest that it is further back in the stream.
    is_first_known: bool,
    pause_ms: u64,
    counts: ExportCounts,
}

impl Export {
    /// An export that was there, by its file.
    pub fn new(saved: Place) -> Self {
        Self {
            mode: Mode::Looking,
            saved,
            place: None,
            window: VecDeque::new(),
            bytes: 0,
            is_first_known: false,
            pause_ms: PAUSE_MS.0,
            counts: ExportCounts::default(),
        }
    }

    /// Whether the log should be read on.
    pub fn wants_more(&self) -> bool {
        let has_room = self.window.len() < WINDOW_MAX && self.bytes < WINDOW_BYTES_MAX;
        self.mode == Mode::Sending && has_room
    }

    /// Whether it sends; false: on standby, or without the end of the stream.
    pub fn is_sending(&self) -> bool {
        self.mode == Mode::Sending
    }

    /// Where it is, for the file: all before is acknowledged.
    pub fn place(&self) -> Place {
        self.place.unwrap_or(self.saved)
    }

    /// What was counted.
    pub fn counts(&self) -> ExportCounts {
        self.counts
    }

    /// The next step.
    pub fn handle(&mut self, now_ms: u64, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Tail(tail) => self.on_tail(now_ms, tail, out),
            Input::Failed => {
                self.counts.failures += 1;
                self.look(now_ms + self.pause_ms, out);
                self.pause_ms = (self.pause_ms * 2).min(PAUSE_MS.1);
            }
            Input::Reconnected => {
                if self.mode == Mode::Sending {
                    self.look(now_ms, out);
                }
            }
            Input::Read(position, message) => self.on_read(position, message, out),
            Input::Acked { sequence, is_duplicate } => {
                self.on_acked(now_ms, sequence, is_duplicate, out);
            }
        }
    }

    fn look(&mut self, at_ms: u64, out: &mut Vec<Output>) {
        if self.mode == Mode::Sending {
            self.mode = Mode::Looking;
        }
        out.push(Output::ReadTail { at_ms });
    }

    fn on_tail(&mut self, now_ms: u64, tail: Tail, out: &mut Vec<Output>) {
        if let Mode::Standby(seen) = self.mode
            && seen != tail.sequence
        {
            return self.stand_by(now_ms, &tail, out);
        }
        let Some(place) = self.place.filter(|_| self.mode == Mode::Looking) else {
            return self.begin(tail, out);
        };
        // The stream ends where the export is, or behind one of the messages in flight.
        let own = tail.last.as_ref().and_then(|(id, _)| {
            let at = self.window.iter().position(|pending| pending.message.id == *id)?;
            (place.sequence + at as u64 + 1 == tail.sequence).then_some(at + 1)
        });
        let stored = own.or_else(|| (place.sequence == tail.sequence).then_some(0));
        match stored {
            Some(stored) => {
                let is_known = core::mem::take(&mut self.is_first_known);
                if stored == 0 && is_known {
                    // The log has repeated an event.
                    self.advance(0);
                }
                for _ in 0..stored {
                    self.counts.exported += 1;
                    self.advance(1);
                }
                self.send_all(out);
            }
            // The server has lost messages, such as with its power: they are read again.
            None if tail.sequence < place.sequence => {
                self.counts.conflicts += 1;
                self.begin(tail, out);
            }
            None => {
                self.counts.conflicts += 1;
                self.stand_by(now_ms, &tail, out);
            }
        }
    }

    fn stand_by(&mut self, now_ms: u64, tail: &Tail, out: &mut Vec<Output>) {
        let mut saved = self.place();
        // The stream of another bridge counts, also if it comes back to the sequence of the file.
        if let Some((_, position)) = &tail.last
            && *position != Position::ZERO
        {
            saved = Place { sequence: tail.sequence, position: Some(*position) };
        }
        (self.saved, self.place) = (saved, None);
        self.mode = Mode::Standby(tail.sequence);
        self.clear();
        out.push(Output::ReadTail { at_ms: now_ms + STANDBY_MS });
    }

    /// Reads the log from where the stream ends.
    fn begin(&mut self, tail: Tail, out: &mut Vec<Output>) {
        let saved = self.place();
        let position = match tail.last {
            // Behind the last message, nothing up to the saved position is exported.
            Some((_, position)) if saved.sequence == tail.sequence => {
                saved.position.max(Some(position))
            }
            Some((_, position)) if position != Position::ZERO => Some(position),
            _ => saved.position,
        };
        self.clear();
        self.place = Some(Place { sequence: tail.sequence, position });
        self.mode = Mode::Sending;
        out.push(Output::Subscribe(position));
    }

    fn clear(&mut self) {
        self.window.clear();
        (self.bytes, self.is_first_known) = (0, false);
    }

    fn send_all(&mut self, out: &mut Vec<Output>) {
        let Some(place) = self.place else { return };
        self.mode = Mode::Sending;
        let numbered = (place.sequence..).zip(&self.window);
        out.extend(
            numbered.map(|(after, pending)| Output::Publish(pending.message.clone(), after)),
        );
    }

    fn on_read(&mut self, position: Position, message: Option<Message>, out: &mut Vec<Output>) {
        let Some(place) = self.place.as_mut().filter(|_| self.mode == Mode::Sending) else {
            return;
        };
        // A gap at the beginning of a log may have no position.
        let until = if position == Position::ZERO { None } else { Some(position) };
        let Some(message) = message else {
            self.counts.skipped += 1;
            match self.window.back_mut() {
                Some(last) => last.until = position,
                None => place.position = until.or(place.position),
            }
            return;
        };
        let after = place.sequence + self.window.len() as u64;
        self.bytes += message.body.len();
        self.window.push_back(Pending { message: message.clone(), until: position });
        out.push(Output::Publish(message, after));
    }

    fn on_acked(&mut self, now_ms: u64, sequence: u64, is_duplicate: bool, out: &mut Vec<Output>) {
        let Some(place) = self.place.filter(|_| self.mode == Mode::Sending) else { return };
        if is_duplicate {
            // Nothing was appended, so the messages behind it expect a wrong sequence.
            self.counts.duplicates += 1;
            self.is_first_known = sequence <= place.sequence;
            return self.look(now_ms, out);
        }
        if sequence != place.sequence + 1 {
            return self.handle(now_ms, Input::Failed, out);
        }
        self.pause_ms = PAUSE_MS.0;
        self.counts.exported += 1;
        self.advance(1);
    }

    /// The oldest message is in the stream, which has grown.
    fn advance(&mut self, grown: u64) {
        let (Some(place), Some(done)) = (self.place.as_mut(), self.window.pop_front()) else {
            return;
        };
        self.bytes = self.bytes.saturating_sub(done.message.body.len());
        place.sequence += grown;
        if done.until != Position::ZERO {
            place.position = Some(done.until);
        }
    }
}

/// A position as `ftbctl` prints it.
pub(crate) mod position_text {
    use ftb_client::Position;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de};

    #[allow(clippy::ref_option, reason = "serde's signature")]
    pub(crate) fn serialize<S: Serializer>(
        position: &Option<Position>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        position.map(|position| position.to_string()).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Position>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(de::Error::custom)).transpose()
    }
}
