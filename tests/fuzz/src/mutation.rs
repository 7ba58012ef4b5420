//! Makes inputs from others: the same ones in each run.

use crate::INPUT_BYTES_MAX;
use crate::random::SplitMix;

/// Most changes of one input.
const CHANGES_MAX: u64 = 6;
/// Numbers at which programs go wrong.
const NUMBERS: [u64; 14] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 62,
    i64::MAX.cast_unsigned(),
    u64::MAX,
];

/// Draws and applies changes.
pub(crate) struct Mutator {
    random: SplitMix,
}

impl Mutator {
    /// Targets with other names get other changes.
    pub(crate) fn new(name: &str) -> Self {
        let state = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self { random: SplitMix(state) }
    }

    /// An input that is near one of these.
    pub(crate) fn mutated(&mut self, inputs: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = self.chosen(inputs).to_vec();
        for _ in 0..=self.random.below(CHANGES_MAX) {
            self.change(&mut bytes, inputs);
        }
        bytes.truncate(INPUT_BYTES_MAX);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, inputs: &[Vec<u8>]) {
        let at = self.place(bytes.len() + 1);
        let range = at..at + self.place((bytes.len() - at).min(32) + 1);
        match self.random.below(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << self.random.below(8),
            1 if at < bytes.len() => bytes[at] = self.random.draw().to_le_bytes()[0],
            2 => drop(bytes.drain(range)),
            3 => {
                let again = bytes[range].to_vec();
                bytes.splice(at..at, again);
            }
            4 => bytes.truncate(at),
            // The beginning of one, and the end of another.
            5 => {
                let other = self.chosen(inputs);
                let from = self.place(other.len() + 1);
                bytes.splice(at.., other[from..].iter().copied());
            }
            6 => {
                let other = self.chosen(inputs);
                let from = self.place(other.len() + 1);
                let until = from + self.place((other.len() - from).min(32) + 1);
                bytes.splice(at..at, other[from..until].iter().copied());
            }
            _ => {
                let number = self.number();
                bytes.splice(range, number);
            }
        }
    }

    /// A number as programs write it: of one to eight bytes, as a varint, in digits.
    fn number(&mut self) -> Vec<u8> {
        let mut number = NUMBERS[self.place(NUMBERS.len())];
        match self.random.below(4) {
            0 => number.to_le_bytes()[..1 << self.random.below(4)].to_vec(),
            1 => number.to_be_bytes()[8 - (1 << self.random.below(4))..].to_vec(),
            2 => number.to_string().into_bytes(),
            _ => {
                let mut bytes = Vec::new();
                while number > 0x7f {
                    bytes.push(0x80 | (number & 0x7f) as u8);
                    number >>= 7;
                }
                bytes.push(number as u8);
                bytes
            }
        }
    }

    fn chosen<'a>(&mut self, inputs: &'a [Vec<u8>]) -> &'a [u8] {
        &inputs[self.place(inputs.len())]
    }

    fn place(&mut self, end: usize) -> usize {
        self.random.below(end as u64) as usize
    }
}
