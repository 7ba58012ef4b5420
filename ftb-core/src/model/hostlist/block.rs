//! Hosts of one shape: one word of a host list, or neighbouring words that differ in one number.

use super::slot::{Number, Slot};
use std::sync::Arc;

/// Stands in a shape where a number stands in the name.
pub(super) const NUMBER: char = '\0';

/// All hosts with the same texts around their numbers, each number from a slot. The last number
/// runs fastest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The name with [`NUMBER`] in place of each number.
    pub(super) shape: Arc<str>,
    pub(super) slots: Box<[Slot]>,
    /// How many hosts of the list come before it.
    pub(super) start: u32,
    pub(super) count: u32,
}

impl Block {
    /// Positions within the block of its host with these numbers.
    pub(super) fn position(&self, numbers: impl Iterator<Item = Number>) -> Option<u32> {
        let mut position = 0;
        for (slot, number) in self.slots.iter().zip(numbers) {
            position = position * slot.count() + slot.position(number)?;
        }
        Some(position)
    }

    /// Writes the name of the host at a position within the block.
    pub(super) fn write_name(&self, position: u32, out: &mut String) {
        // The last number runs fastest: what is left for each slot are the hosts behind it.
        let (mut rest, mut behind) = (position, self.count);
        let mut slots = self.slots.iter();
        for c in self.shape.chars() {
            if c != NUMBER {
                out.push(c);
                continue;
            }
            let Some(slot) = slots.next() else { continue };
            behind /= slot.count().max(1);
            if let Some(number) = slot.at(rest / behind.max(1)) {
                number.write(out);
            }
            rest %= behind.max(1);
        }
    }

    /// Writes all of its hosts as one word.
    pub(super) fn write(&self, out: &mut String) {
        let mut slots = self.slots.iter();
        for c in self.shape.chars() {
            match c {
                NUMBER => slots.next().into_iter().for_each(|slot| slot.write(out)),
                c => out.push(c),
            }
        }
    }

    /// Length of the longest name.
    pub(super) fn name_bytes_max(&self) -> usize {
        let numbers: usize = self.slots.iter().map(Slot::digits_max).sum();
        self.shape.len() - self.slots.len() + numbers
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.shape.len() + self.slots.iter().map(Slot::bytes).sum::<usize>()
    }

    /// How many hosts both blocks have, if their shapes are the same but for capitals.
    pub(super) fn shared_count(&self, other: &Self) -> u64 {
        let pairs = self.slots.iter().zip(&other.slots);
        pairs.map(|(ours, theirs)| ours.shared_count(theirs)).product()
    }

    /// The positions, in each block, of a host that both have, if their shapes are the same but for
    /// capitals.
    pub(super) fn shared_host(&self, other: &Self) -> Option<(u32, u32)> {
        let pairs = self.slots.iter().zip(&other.slots);
        let numbers: Option<Vec<Number>> =
            pairs.map(|(ours, theirs)| ours.shared_number(theirs)).collect();
        let numbers = numbers?;
        let position = |block: &Self| block.position(numbers.iter().copied());
        Some((position(self)?, position(other)?))
    }

    /// The positions of a host that the block has twice.
    pub(super) fn repeated_host(&self) -> Option<(u32, u32)> {
        let mut behind = self.count;
        for slot in &self.slots {
            behind /= slot.count().max(1);
            if let Some((one, other)) = slot.repeated() {
                return Some((one * behind, other * behind));
            }
        }
        None
    }

    /// Takes the hosts of the next block in, if that keeps their order: the blocks differ in one
    /// slot, and no slot before that has more than one number.
    pub(super) fn join(&mut self, next: &Self) -> bool {
        if self.shape != next.shape {
            return false;
        }
        let mut pairs = self.slots.iter().zip(&next.slots);
        let Some(place) = pairs.position(|(ours, theirs)| ours != theirs) else { return false };
        let (before, behind) = (&self.slots[..place], &self.slots[place + 1..]);
        if before.iter().any(|slot| slot.count() > 1) || *behind != next.slots[place + 1..] {
            return false;
        }
        self.slots[place] = self.slots[place].joined(&next.slots[place]);
        self.count += next.count;
        true
    }
}

/// A host name taken apart: its shape in lower case, and its numbers.
pub(super) struct Name<'a> {
    host: &'a [u8],
    shape: [u8; crate::limits::HOST_BYTES_MAX],
    shape_len: usize,
}

impl<'a> Name<'a> {
    /// `None` if it cannot be in a list.
    pub(super) fn of(host: &'a str) -> Option<Self> {
        let host = host.as_bytes();
        let mut name = Self { host, shape: [0; crate::limits::HOST_BYTES_MAX], shape_len: 0 };
        if host.is_empty() || host.len() > crate::limits::HOST_BYTES_MAX || host.contains(&0) {
            return None;
        }
        for run in runs(host) {
            if Number::read(run).is_some() {
                name.push(NUMBER as u8);
            } else {
                run.iter().for_each(|byte| name.push(byte.to_ascii_lowercase()));
            }
        }
        Some(name)
    }

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.shape.get_mut(self.shape_len) {
            *place = byte;
            self.shape_len += 1;
        }
    }

    pub(super) fn shape(&self) -> &[u8] {
        &self.shape[..self.shape_len]
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = Number> + 'a {
        runs(self.host).filter_map(Number::read)
    }
}

/// Cuts a text where digits begin or end.
pub(super) fn runs(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.chunk_by(|one, next| one.is_ascii_digit() == next.is_ascii_digit())
}
