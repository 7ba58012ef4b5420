//! The saved state of a program, and the library's part beside it.

use crate::error::Result;
use crate::frame::{Class, array};
use crate::image::{ImageError, Reader, Writer};
use crate::inbox::Message;
use crate::job::members::Members;
use crate::router::Outstanding;

/// A program's state at its safe points.
///
/// `restore` takes the sections in the order in which `save` gave them. What can be computed from
/// the rest need not be saved.
///
/// ```
/// use ftb_job::{ImageError, Reader, State, Writer};
///
/// struct Solver { iteration: u64, grid: Vec<f64> }
///
/// impl State for Solver {
///     fn save(&self, writer: &mut Writer) -> Result<(), ImageError> {
///         writer.u64("iteration", self.iteration)?;
///         writer.f64s("grid", &self.grid)
///     }
///     fn restore(&mut self, reader: &mut Reader) -> Result<(), ImageError> {
///         self.iteration = reader.u64("iteration")?;
///         self.grid = reader.f64s("grid")?;
///         Ok(())
///     }
/// }
/// ```
pub trait State {
    /// Writes everything that cannot be computed again.
    ///
    /// # Errors
    /// The writer's.
    fn save(&self, writer: &mut Writer) -> Result<(), ImageError>;

    /// Restores it.
    ///
    /// A survivor of a death still has what no image has, a replacement has not. Neither may need a
    /// message to make it: the others would not send it.
    ///
    /// # Errors
    /// The reader's, or [`Reader::refuse`] for content that does not fit this program.
    fn restore(&mut self, reader: &mut Reader) -> Result<(), ImageError>;

    /// Whether the program can divide its state anew among fewer ranks in the same processes: it
    /// has [`State::begin_parts`] and [`State::restore_part`]. Otherwise the launcher ends the
    /// processes of a job that shrinks, and starts others.
    fn divides(&self) -> bool {
        false
    }

    /// The job goes on with fewer ranks; this process is `now`. The state is as it was before the
    /// death or, after a further death, partly restored: what follows replaces all of it.
    fn begin_parts(&mut self, now: Part) {
        let _ = now;
    }

    /// Whether this rank needs something of that image.
    fn needs_part(&self, part: Part) -> bool {
        let _ = part;
        true
    }

    /// Takes what this rank needs from the image of one rank of a set with another number of ranks:
    /// the job goes on with fewer. Called for each that is needed, in their order. A program that
    /// does not divide its state is not restored.
    ///
    /// # Errors
    /// As [`State::restore`].
    fn restore_part(&mut self, part: Part, reader: &mut Reader) -> Result<(), ImageError> {
        let Part { size, .. } = part;
        Err(reader
            .refuse(format!("{size} ranks have made it, and the program does not divide it anew")))
    }
}

/// What a process is where it begins, or begins again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartState {
    /// It was started with the job.
    New,
    /// It goes back, because other ranks have died.
    Restarted,
    /// It was started from an image, to replace a process.
    Added,
}

/// The owner of an image in a set with another number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The rank that has made it.
    pub rank: u32,
    /// How many ranks there were.
    pub size: u32,
}

/// A program whose only state is the messages under way.
impl State for () {
    fn save(&self, _: &mut Writer) -> Result<(), ImageError> {
        Ok(())
    }

    fn restore(&mut self, _: &mut Reader) -> Result<(), ImageError> {
        Ok(())
    }
}

/// The library's part of an image: messages between the ranks continue from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Communication {
    /// The members that made it.
    pub members: Members,
    /// Collective operations so far.
    pub collectives: u32,
    /// Of each rank: the number of the last message sent to it, and what was outstanding.
    pub sending: Vec<(u64, Vec<Outstanding>)>,
    /// Of each rank: the number of the last message received from it, and what was not taken.
    pub receiving: Vec<(u64, Vec<Message>)>,
}

const COLLECTIVES: &str = "ftb.collectives";
const SENT: &str = "ftb.sent";
const RECEIVED: &str = "ftb.received";
const MESSAGES: &str = "ftb.messages";
/// Rank, class, whether outstanding, communicator, tag, number, length.
const MESSAGE_HEADER_BYTES: usize = 24;

impl Communication {
    pub(crate) fn save(&self, writer: &mut Writer) -> Result<(), ImageError> {
        let mut sent: Vec<u64> = self.sending.iter().map(|(sent, _)| *sent).collect();
        // Behind the counts: only where processes are left out.
        if self.members.numbers().len() < sent.len() {
            sent.extend(self.members.numbers().iter().map(|number| u64::from(*number)));
        }
        let received: Vec<u64> = self.receiving.iter().map(|(received, _)| *received).collect();
        writer.u64(COLLECTIVES, self.collectives.into())?;
        writer.u64s(SENT, &sent)?;
        writer.u64s(RECEIVED, &received)?;
        writer.bytes(MESSAGES, &self.encode_messages())
    }

    pub(crate) fn restore(size: u32, reader: &mut Reader) -> Result<Self, ImageError> {
        let collectives = u32::try_from(reader.u64(COLLECTIVES)?)
            .map_err(|_| reader.refuse("the count of collective operations is out of range"))?;
        let mut sent = reader.u64s(SENT)?;
        let members = match sent.len() > size as usize {
            true => sent.split_off(size as usize).into_iter().map(u32::try_from).collect(),
            false => Ok((0..size).collect()),
        };
        let members = members.ok().and_then(|numbers| Members::new(numbers, size));
        let members = members.ok_or_else(|| reader.refuse("its list of ranks is malformed"))?;
        let received = reader.u64s(RECEIVED)?;
        if sent.len() != size as usize || received.len() != size as usize {
            return Err(reader.refuse(format!("its counts are not those of {size} ranks")));
        }
        let mut communication = Self {
            members,
            collectives,
            sending: sent.into_iter().map(|sent| (sent, Vec::new())).collect(),
            receiving: received.into_iter().map(|received| (received, Vec::new())).collect(),
        };
        let messages = reader.bytes(MESSAGES)?;
        match communication.decode_messages(&messages) {
            Some(()) => Ok(communication),
            None => Err(reader.refuse("its messages are malformed")),
        }
    }

    /// Whether messages were under way.
    pub(crate) fn has_messages(&self) -> bool {
        self.sending.iter().any(|(_, messages)| !messages.is_empty())
            || self.receiving.iter().any(|(_, messages)| !messages.is_empty())
    }

    fn encode_messages(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut push =
            |rank: u32, class: Class, outstanding: bool, tag: u32, seq: u64, payload: &[u8]| {
                bytes.extend_from_slice(&rank.to_le_bytes());
                let (kind, communicator) = class.to_wire();
                bytes.extend_from_slice(&[kind, u8::from(outstanding)]);
                bytes.extend_from_slice(&communicator.to_le_bytes());
                bytes.extend_from_slice(&tag.to_le_bytes());
                bytes.extend_from_slice(&seq.to_le_bytes());
                // At most MESSAGE_BYTES_MAX.
                bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
                bytes.extend_from_slice(payload);
            };
        for (rank, (_, messages)) in (0..).zip(&self.receiving) {
            for m in messages {
                push(rank, m.class, false, m.tag, m.seq, &m.payload);
            }
        }
        for (rank, (_, messages)) in (0..).zip(&self.sending) {
            for m in messages {
                push(rank, m.class, true, m.tag, 0, &m.payload);
            }
        }
        bytes
    }

    fn decode_messages(&mut self, mut bytes: &[u8]) -> Option<()> {
        while !bytes.is_empty() {
            let (header, rest) = bytes.split_at_checked(MESSAGE_HEADER_BYTES)?;
            let rank = u32::from_le_bytes(array(&header[..4])) as usize;
            let class = Class::from_wire(header[4], u16::from_le_bytes(array(&header[6..8])))?;
            let outstanding = header[5] != 0;
            let tag = u32::from_le_bytes(array(&header[8..12]));
            let seq = u64::from_le_bytes(array(&header[12..20]));
            let len = u32::from_le_bytes(array(&header[20..24])) as usize;
            let (payload, rest) = rest.split_at_checked(len)?;
            let payload = payload.to_vec();
            if outstanding {
                self.sending.get_mut(rank)?.1.push(Outstanding { class, tag, payload });
            } else {
                self.receiving.get_mut(rank)?.1.push(Message { class, tag, seq, payload });
            }
            bytes = rest;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(tag: u32, payload: Vec<u8>) -> Message {
        Message { class: Class::Collective, tag, seq: 9, payload }
    }

    proptest! {
        #[test]
        fn messages_survive_their_bytes(tag: u32, id: u16, first: Vec<u8>, second: Vec<u8>) {
            let (class, payload) = (Class::Within(id), second.clone());
            let outstanding = Outstanding { class, tag, payload };
            let whole = Communication {
                members: Members::all(2),
                collectives: 3,
                sending: vec![(4, vec![]), (5, vec![outstanding])],
                receiving: vec![(6, vec![message(tag, first)]), (7, vec![message(1, second)])],
            };
            let mut copy = whole.clone();
            copy.sending[1].1.clear();
            copy.receiving.iter_mut().for_each(|(_, messages)| messages.clear());
            let bytes = whole.encode_messages();
            prop_assert_eq!(copy.decode_messages(&bytes), Some(()));
            prop_assert_eq!(copy, whole);
        }

        #[test]
        fn random_messages_never_panic(bytes: Vec<u8>) {
            let mut empty = Communication {
                members: Members::all(2),
                collectives: 0,
                sending: vec![(0, vec![])],
                receiving: vec![(0, vec![])],
            };
            empty.decode_messages(&bytes);
        }
    }
}
