//! Reading host lists.

use super::HostlistError;
use super::block::{Block, NUMBER, runs};
use super::slot::{DIGITS_MAX, Number, Range, Slot, TooMany, concatenated};
use crate::limits;
use std::sync::Arc;

/// What a list may grow to while it is read.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) hosts_max: usize,
    pub(super) bytes_max: usize,
}

impl Bounds {
    fn ranges_max(self) -> usize {
        self.bytes_max / size_of::<Range>()
    }

    fn hosts_error(self, column: usize) -> HostlistError {
        HostlistError { column, reason: format!("more than {} hosts", self.hosts_max) }
    }

    pub(super) fn bytes_error(self, column: usize) -> HostlistError {
        let max = self.bytes_max;
        let reason = format!("the ranges need more than {max} bytes of memory: name fewer ranges");
        HostlistError { column, reason }
    }
}

/// The blocks of a list, and the column at which each word begins with the number of hosts before
/// it.
pub(super) struct Read {
    pub(super) blocks: Vec<Block>,
    pub(super) columns: Vec<(u32, usize)>,
}

/// Reads a list; neighbouring words become one block where they can.
pub(super) fn read(text: &str, bounds: Bounds) -> Result<Read, HostlistError> {
    let mut read = Read { blocks: Vec::new(), columns: Vec::new() };
    let (mut hosts, mut bytes) = (0_usize, 0);
    for (column, word) in split_words(text)? {
        let mut block = read_word(column, word, bounds)?;
        block.start = u32::try_from(hosts).unwrap_or(u32::MAX);
        hosts += block.count as usize;
        bytes += block.slots.iter().map(Slot::bytes).sum::<usize>();
        if hosts > bounds.hosts_max {
            return Err(bounds.hosts_error(column));
        }
        if bytes > bounds.bytes_max {
            return Err(bounds.bytes_error(column));
        }
        read.columns.push((block.start, column));
        if let Some(last) = read.blocks.last_mut() {
            if last.join(&block) {
                continue;
            }
            if last.shape == block.shape {
                block.shape = Arc::clone(&last.shape);
            }
        }
        read.blocks.push(block);
    }
    Ok(read)
}

enum WordPart<'a> {
    Text(&'a str),
    Ranges { column: usize, ranges: Vec<Range>, count: usize },
}

fn read_word(column: usize, word: &str, bounds: Bounds) -> Result<Block, HostlistError> {
    let mut writer = Writer { shape: String::new(), slots: Vec::new(), numbers: None };
    let mut count = 1_usize;
    for piece in pieces(column, word, bounds)? {
        match piece {
            WordPart::Text(text) => {
                for run in runs(text.as_bytes()) {
                    writer.add_run(column, run, bounds)?;
                }
            }
            WordPart::Ranges { column, ranges, count: more } => {
                count = count.saturating_mul(more);
                if count > bounds.hosts_max {
                    return Err(bounds.hosts_error(column));
                }
                writer.add_numbers(column, ranges, bounds)?;
            }
        }
    }
    writer.end_number();
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let (shape, slots) = (writer.shape.into(), writer.slots.into());
    let block = Block { shape, slots, start: 0, count };
    let bytes = block.name_bytes_max();
    if bytes > limits::HOST_BYTES_MAX {
        let max = limits::HOST_BYTES_MAX;
        let reason = format!("a host name has {bytes} bytes: at most {max} are allowed");
        return Err(HostlistError { column, reason });
    }
    Ok(block)
}

/// Puts texts and numbers of a word together.
struct Writer {
    shape: String,
    slots: Vec<Slot>,
    /// The numbers that the word so far ends with.
    numbers: Option<Vec<Range>>,
}

impl Writer {
    fn end_number(&mut self) {
        if let Some(ranges) = self.numbers.take() {
            self.shape.push(NUMBER);
            self.slots.push(Slot::new(ranges));
        }
    }

    /// Adds digits, or a text without digits.
    fn add_run(&mut self, column: usize, run: &[u8], bounds: Bounds) -> Result<(), HostlistError> {
        if let Some(number) = Number::read(run) {
            return self.add_numbers(column, vec![Range::single(number)], bounds);
        }
        let is_digits = run.iter().all(u8::is_ascii_digit);
        if is_digits && self.numbers.is_some() {
            return Err(too_long(column));
        }
        self.end_number();
        // The characters were checked: all are ASCII.
        self.shape.extend(run.iter().map(|byte| char::from(*byte)));
        Ok(())
    }

    fn add_numbers(
        &mut self,
        column: usize,
        ranges: Vec<Range>,
        bounds: Bounds,
    ) -> Result<(), HostlistError> {
        let Some(left) = self.numbers.take() else {
            // More digits than a number has stand before it.
            if self.shape.ends_with(|c: char| c.is_ascii_digit()) {
                return Err(too_long(column));
            }
            self.numbers = Some(ranges);
            return Ok(());
        };
        let digits = |ranges: &[Range]| ranges.iter().map(|range| range.digits()).max();
        if digits(&left).unwrap_or(0) + digits(&ranges).unwrap_or(0) > DIGITS_MAX {
            return Err(too_long(column));
        }
        let joined = concatenated(&left, &ranges, bounds.ranges_max());
        self.numbers = Some(joined.map_err(|TooMany| bounds.bytes_error(column))?);
        Ok(())
    }
}

fn too_long(column: usize) -> HostlistError {
    let reason = format!("a number beside a bracket has more than {DIGITS_MAX} digits");
    HostlistError { column, reason }
}

/// Cuts at commas outside brackets; gives each word with its column.
fn split_words(text: &str) -> Result<Vec<(usize, &str)>, HostlistError> {
    fn fail<T>(column: usize, reason: &str) -> Result<T, HostlistError> {
        Err(HostlistError { column, reason: reason.to_owned() })
    }
    if text.trim().is_empty() {
        return fail(1, "empty: expected something like node[001-032]");
    }
    let mut words = Vec::new();
    let (mut start, mut start_column, mut open) = (0, 1, None);
    for (column, (at, c)) in text.char_indices().enumerate().map(|(i, pair)| (i + 1, pair)) {
        match c {
            '[' if open.is_some() => return fail(column, "a bracket inside a bracket"),
            '[' => open = Some(column),
            ']' if open.take().is_none() => return fail(column, "']' without '['"),
            ',' if open.is_none() => {
                words.push((start_column, &text[start..at]));
                (start, start_column) = (at + 1, column + 1);
            }
            _ => {}
        }
    }
    if let Some(column) = open {
        return fail(column, "'[' is never closed");
    }
    words.push((start_column, &text[start..]));
    words
        .into_iter()
        .map(|(column, word)| {
            let blanks = word.chars().take_while(|c| c.is_whitespace()).count();
            match word.trim() {
                "" => fail(column, "a host name is missing"),
                trimmed => Ok((column + blanks, trimmed)),
            }
        })
        .collect()
}

/// Cuts one word into plain text and brackets.
fn pieces(column: usize, word: &str, bounds: Bounds) -> Result<Vec<WordPart<'_>>, HostlistError> {
    let mut pieces = Vec::new();
    let mut rest = word;
    let mut at = column;
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix('[') {
            // `split_words` has paired the brackets.
            let end = inside.find(']').unwrap_or(inside.len());
            let (ranges, count) = ranges(at + 1, &inside[..end], bounds)?;
            pieces.push(WordPart::Ranges { column: at, ranges, count });
            at += inside[..end].chars().count() + 2;
            rest = inside.get(end + 1..).unwrap_or_default();
        } else {
            let end = rest.find('[').unwrap_or(rest.len());
            check_name(&rest[..end], at)?;
            pieces.push(WordPart::Text(&rest[..end]));
            at += rest[..end].chars().count();
            rest = &rest[end..];
        }
    }
    Ok(pieces)
}

fn check_name(name: &str, column: usize) -> Result<(), HostlistError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    match name.chars().enumerate().find(|(_, c)| !allowed(*c)) {
        None if name.is_empty() => {
            Err(HostlistError { column, reason: "a host name is missing".to_owned() })
        }
        None => Ok(()),
        Some((index, c)) => {
            let reason = format!("{c:?} cannot be in a host name");
            Err(HostlistError { column: column + index, reason })
        }
    }
}

/// The numbers inside one bracket, and how many there are.
fn ranges(
    column: usize,
    inside: &str,
    bounds: Bounds,
) -> Result<(Vec<Range>, usize), HostlistError> {
    let (mut ranges, mut count) = (Vec::new(), 0_usize);
    let mut at = column;
    for part in inside.split(',') {
        let fail = |reason: String| HostlistError { column: at, reason };
        let number = |digits: &str| {
            let reason = || fail(format!("{digits:?} is no number of at most {DIGITS_MAX} digits"));
            Number::read(digits.as_bytes()).ok_or_else(reason)
        };
        match part.split_once('-') {
            None => {
                ranges.push(Range::single(number(part)?));
                count += 1;
            }
            Some((first, last)) => {
                let (start, end) = (number(first)?.value, number(last)?.value);
                if start > end {
                    return Err(fail(format!("the range {part:?} runs backwards")));
                }
                let more = usize::try_from(end - start).unwrap_or(usize::MAX);
                count = count.saturating_add(more).saturating_add(1);
                ranges.extend(Range::split(start, end, first.len()));
            }
        }
        if count > bounds.hosts_max {
            return Err(bounds.hosts_error(at));
        }
        if ranges.len() > bounds.ranges_max() {
            return Err(bounds.bytes_error(at));
        }
        at += part.chars().count() + 1;
    }
    Ok((ranges, count))
}
