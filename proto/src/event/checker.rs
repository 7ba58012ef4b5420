//! The sealed events of one message, checked one after the other.
//!
//! Responsible for: which of them need no look of their own, since they are like one that was checked. Not
//! responsible for: where they lie, and what becomes of them.

use super::shape::{Following, SealedShape};
use super::{EventWireError, Neighbour, SEALED, check_sealed, span_number};
use ftb_core::own::OwnParts;
use ftb_core::run::Alike;
use ftb_core::{Head, PublisherId};

/// Checks sealed events of one message, one after the other.
#[derive(Default)]
pub(crate) struct SealedChecker<'a> {
    neighbour: Neighbour<'a>,
    /// The last event that went the long way, its publisher, and its shape where more of it may come.
    known: &'a [u8],
    publisher: Option<PublisherId>,
    shape: Option<SealedShape>,
    /// How those are found that follow one that had the shape.
    following: Option<Following>,
    /// The number of the last event, where it had the shape and the length of the known one; else 0.
    last: u64,
}

/// What [`SealedChecker`] says of an event.
pub(crate) enum Checked {
    /// All of it; spans count from its first byte.
    Head(Head),
    /// It differs from the one before in nothing else.
    Like(Alike),
}

/// Events of a list that differ from the last that was checked in nothing but number, time and payload.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Followers {
    /// How many.
    pub(crate) count: usize,
    /// Their bytes, with what a list has before each.
    pub(crate) bytes: usize,
    /// Where each has its time, from its own first byte on.
    pub(crate) time_at: u32,
}

impl<'a> SealedChecker<'a> {
    /// The next one, as [`decode_sealed`] does.
    pub(crate) fn check(&mut self, bytes: &'a [u8]) -> Result<Checked, EventWireError> {
        if let Some(shape) = &self.shape
            && let Some(own) = shape.fits(self.known, bytes)
            && own.content_at == shape.content_at()
        {
            if self.following.is_none() {
                self.following = Following::of(shape, self.known);
            }
            self.last = if bytes.len() == self.known.len() { own.seq } else { 0 };
            let (seq, time_ns) = (own.seq, own.content.time_ns);
            return Ok(Checked::Like(Alike {
                seq,
                time_ns,
                time_at: span_number(shape.time_at()),
            }));
        }
        // Two in a row: more of that publisher may follow.
        let head = self.check_new(bytes, |publisher, head| publisher == Some(head.id.publisher))?;
        Ok(Checked::Head(head))
    }

    /// The next one, the long way. Its shape is kept if that is likely to be of use, which is asked with the
    /// publisher of the last one.
    fn check_new(
        &mut self,
        bytes: &'a [u8],
        likely: impl FnOnce(Option<PublisherId>, &Head) -> bool,
    ) -> Result<Head, EventWireError> {
        let (head, parts, inner) = check_sealed(bytes, &mut self.neighbour)?;
        let shape = || SealedShape::of(bytes, parts.event, &inner, head.id.seq);
        let likely = parts.folded.is_none() && likely(self.publisher, &head);
        self.shape = likely.then(shape).flatten();
        (self.following, self.last) = (None, 0);
        (self.known, self.publisher) = (bytes, Some(head.id.publisher));
        Ok(head)
    }

    /// The next one, behind which others are packed, and where those have what is their own.
    pub(crate) fn check_known(
        &mut self,
        bytes: &'a [u8],
    ) -> Result<(Checked, OwnParts), EventWireError> {
        if let Some(shape) = &self.shape
            && let Some(own) = shape.fits(self.known, bytes)
            && own.content_at == shape.content_at()
        {
            // What follows them in a list is looked at one by one again.
            self.last = 0;
            let (seq, time_ns) = (own.seq, own.content.time_ns);
            let like = Alike { seq, time_ns, time_at: span_number(shape.time_at()) };
            return Ok((Checked::Like(like), shape.own_parts_of(&own)));
        }
        let head = self.check_new(bytes, |_, _| true)?;
        let shape = self.shape.ok_or(EventWireError::Malformed {
            message: SEALED,
            offset: 0,
            what: "others are packed behind it, and it is none that they can be like",
        })?;
        Ok((Checked::Head(head), shape.own_parts()))
    }

    /// Those of the next events, at most so many, that need no further check: `list` is what follows the
    /// last in its list. They are as long as that and have the numbers behind its own.
    pub(crate) fn followers(&mut self, list: &[u8], most: usize) -> Option<Followers> {
        let (shape, following) = (self.shape.as_ref()?, self.following.as_ref()?);
        if self.last == 0 {
            return None;
        }
        let count = following.count(list, self.last, most);
        self.last += count as u64;
        let (bytes, time_at) = (count * following.step(), span_number(shape.time_at()));
        (count > 0).then_some(Followers { count, bytes, time_at })
    }
}
