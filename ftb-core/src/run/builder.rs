//! How a run is made: what lies where in its buffer, told event by event or row by row.
//!
//! Responsible for: rows, and that all that was told lies in the buffer. Not responsible for: what
//! the bytes mean.

use super::{Common, Packed, Row, Run};
use crate::own::{OwnParts, TIME_BYTES};
use crate::sealed::{Head, Span, SpanError};
use bytes::Bytes;

/// Collects what lies where in a buffer, for a [`Run`].
#[derive(Debug, Default)]
pub struct RunBuilder {
    pub(super) rows: Vec<Row>,
    /// How many events lie in rows.
    pub(super) count: u32,
    /// Their bytes.
    pub(super) sum: u32,
    /// What would continue the last row; `None` where nothing can.
    next: Option<Next>,
    /// So many have continued it since it was looked at last.
    more: u32,
    pub(super) heads: Vec<Common>,
    /// Where the others of rows lie.
    pub(super) packed: Vec<Packed>,
    /// Places of events that a filter may be able to tell from the one before.
    pub(super) unlike: Vec<u32>,
}

/// The event that would continue a row.
#[derive(Debug)]
struct Next {
    seq: u64,
    at: Span,
    /// From one event of the row to the next.
    step: u32,
    /// 0: wherever it has its time.
    time_at: u32,
}

/// An event that differs from the one before in nothing that its head tells but number and time:
/// every text of it lies in the same place and is the same.
#[derive(Clone, Copy, Debug)]
pub struct Alike {
    /// Its number.
    pub seq: u64,
    /// Its time, Unix nanoseconds.
    pub time_ns: u64,
    /// Where it has that, from its first byte on: eight bytes, the lowest first.
    pub time_at: u32,
}

impl RunBuilder {
    /// The next event: its head, whose spans count from its first byte, and where its bytes will
    /// lie in the buffer.
    pub fn push(&mut self, head: Head, at: Span) {
        let (seq, time_ns) = (head.id.seq, head.time_ns);
        let same = self.heads.last().is_some_and(|last| last.head.of(seq, time_ns) == head);
        if !same {
            self.heads.push(Common { head, time_at: 0 });
        }
        let place = self.row(seq, time_ns, at);
        self.unlike.push(place);
    }

    /// The next event, one like that before it, of which there is one. Where there is room for just
    /// that between the two, what a list has there must lie there.
    #[inline]
    pub fn push_like(&mut self, event: Alike, at: Span) {
        debug_assert!(!self.heads.is_empty(), "there is none before");
        if let Some(next) = &mut self.next
            && (next.seq, next.at, next.time_at) == (event.seq, at, event.time_at)
            && let Some(seq) = next.seq.checked_add(1)
        {
            next.seq = seq;
            next.at.start = next.at.start.saturating_add(next.step);
            self.more += 1;
        } else {
            self.push_unusual(event, at);
        }
    }

    /// One that begins a row, or is the second of it.
    fn push_unusual(&mut self, event: Alike, at: Span) {
        let Alike { seq, time_ns, time_at } = event;
        let second = |next: &Next| (next.seq, next.at, next.time_at) == (seq, at, 0);
        if self.next.as_ref().is_some_and(second) {
            self.push_following(1, time_at);
        } else {
            self.row(seq, time_ns, at);
        }
    }

    /// So many events like the last one, which was no fold: as long, with the numbers that follow,
    /// right behind it as a list has them. All of that head have their times at `time_at`, as
    /// [`Alike::time_at`].
    pub fn push_following(&mut self, count: u32, time_at: u32) {
        let (Some(next), Some(common)) = (&mut self.next, self.heads.last_mut()) else {
            debug_assert!(false, "nothing follows a fold, or the highest number");
            return;
        };
        debug_assert!(common.time_at == 0 || common.time_at == time_at, "it lies where it lay");
        (common.time_at, next.time_at) = (time_at, time_at);
        self.more += count;
        next.at.start = next.at.start.saturating_add(count.saturating_mul(next.step));
        match next.seq.checked_add(count.into()) {
            Some(seq) => next.seq = seq,
            None => self.next = None,
        }
    }

    /// The next event, one like that before it, of which there is one, and in a row of its own:
    /// others may be packed behind it.
    pub fn push_known(&mut self, event: Alike, at: Span) {
        debug_assert!(!self.heads.is_empty(), "there is none before");
        self.row(event.seq, event.time_ns, at);
    }

    /// So many events like the last one, which was no fold and came with [`Self::push`] or
    /// [`Self::push_known`]: as long, with the numbers that follow, and told by what is their own,
    /// which begins at `start`. Gives whether they could be taken.
    #[must_use]
    pub fn push_packed(&mut self, count: u32, parts: OwnParts, start: u32) -> bool {
        self.end_row();
        self.next = None;
        let Some(row) = self.rows.last_mut().filter(|row| row.count == 1) else { return false };
        let folds = self.heads.last().is_none_or(|common| common.head.covers != 0);
        let last = row.seq.checked_add(count.into()).filter(|_| !folds && count > 0);
        if !last.is_some_and(|last| parts.fit(row.len, row.seq, last)) {
            return false;
        }
        self.packed.push(Packed { start, parts });
        row.packed = self.packed.len() as u32;
        row.count += count;
        self.count += count;
        self.sum = self.sum.saturating_add(row.len.saturating_mul(count));
        true
    }

    /// Begins a row; gives the place of its event.
    fn row(&mut self, seq: u64, time_ns: u64, at: Span) -> u32 {
        self.end_row();
        let Span { start, len } = at;
        let (place, before) = (self.count, self.sum);
        let head = (self.heads.len() as u32).saturating_sub(1);
        let row = Row { seq, time_ns, place, count: 1, start, len, before, head, packed: 0 };
        let common = self.heads.last().filter(|common| common.head.covers == 0);
        self.next = common.zip(seq.checked_add(1)).map(|(common, seq)| {
            let step = u32::try_from(row.step()).unwrap_or(u32::MAX);
            let at = Span { start: start.saturating_add(step), len };
            Next { seq, at, step, time_at: common.time_at }
        });
        self.rows.push(row);
        self.count += 1;
        self.sum = self.sum.saturating_add(len);
        place
    }

    /// Counts what has continued the last row.
    pub(super) fn end_row(&mut self) {
        let more = std::mem::take(&mut self.more);
        let Some(row) = self.rows.last_mut().filter(|_| more > 0) else { return };
        row.count += more;
        self.count += more;
        self.sum = self.sum.saturating_add(row.len.saturating_mul(more));
    }

    /// Binds them to their buffer; `None` without any event. Texts were checked by whoever found
    /// them: here it is made sure that they lie within their event, and the event in the buffer.
    ///
    /// # Errors
    /// [`SpanError`] names what does not; all must be refused.
    pub fn finish(mut self, bytes: Bytes) -> Result<Option<Run>, SpanError> {
        self.end_row();
        // How long an event is at least that has all texts of its head.
        let needs: Vec<u64> = self.heads.iter().map(|common| common.head.texts_end()).collect();
        for row in &self.rows {
            let (len, head) = (u64::from(row.len), row.head as usize);
            let (Some(common), Some(need)) = (self.heads.get(head), needs.get(head)) else {
                return Err(SpanError("content"));
            };
            if row.end() > bytes.len() as u64 {
                return Err(SpanError("content"));
            }
            let packed_end = row.packed_in(&self.packed).map_or(0, |packed| {
                row.packed_at(packed, row.place + 1..row.place + row.count).end
            });
            if packed_end > bytes.len() {
                return Err(SpanError("payload"));
            }
            let listed = row.count > 1 && row.packed == 0;
            if listed && u64::from(common.time_at) + TIME_BYTES as u64 > len {
                return Err(SpanError("time"));
            }
            if *need > len {
                let mut outside =
                    common.head.texts().into_iter().filter(|(_, span)| span.end() > len);
                return Err(SpanError(outside.next().map_or("content", |(field, _)| field)));
            }
        }
        Ok(Run::of(bytes, self))
    }
}
