//! Values of C in messages: their types, how two are combined, and where those of a derived type
//! are in memory. Pure.

use super::FmiError;
use crate::limits;

/// A type of C, by its size and meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Primitive {
    /// Bytes without a meaning as numbers: only bits can be combined.
    Byte,
    /// `int8_t`
    I8,
    /// `int16_t`
    I16,
    /// `int32_t`
    I32,
    /// `int64_t`
    I64,
    /// `uint8_t`
    U8,
    /// `uint16_t`
    U16,
    /// `uint32_t`
    U32,
    /// `uint64_t`
    U64,
    /// `float`
    F32,
    /// `double`
    F64,
}

impl Primitive {
    /// Its size.
    pub fn bytes(self) -> usize {
        match self {
            Self::Byte | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }
}

/// How values are combined. Integers wrap around; the least and greatest of floating-point numbers
/// are those of the IEEE total order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// The sum.
    Sum,
    /// The product.
    Product,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// 1 if both are not 0.
    And,
    /// 1 if one is not 0.
    Or,
    /// Bit by bit.
    BitAnd,
    /// Bit by bit.
    BitOr,
    /// Bit by bit.
    BitXor,
}

macro_rules! integers {
    ($type:ty, $how:expr, $values:expr, $others:expr) => {
        each($values, $others, |mine, other| {
            let (a, b) = (<$type>::from_le_bytes(mine), <$type>::from_le_bytes(other));
            let result = match $how {
                Combine::Sum => a.wrapping_add(b),
                Combine::Product => a.wrapping_mul(b),
                Combine::Min => a.min(b),
                Combine::Max => a.max(b),
                Combine::And => <$type>::from(a != 0 && b != 0),
                Combine::Or => <$type>::from(a != 0 || b != 0),
                Combine::BitAnd => a & b,
                Combine::BitOr => a | b,
                Combine::BitXor => a ^ b,
            };
            Some(result.to_le_bytes())
        })
    };
}

macro_rules! floats {
    ($type:ty, $how:expr, $values:expr, $others:expr) => {
        each($values, $others, |mine, other| {
            let (a, b) = (<$type>::from_le_bytes(mine), <$type>::from_le_bytes(other));
            let result = match $how {
                Combine::Sum => a + b,
                Combine::Product => a * b,
                Combine::Min if a.total_cmp(&b).is_le() => a,
                Combine::Max if a.total_cmp(&b).is_ge() => a,
                Combine::Min | Combine::Max => b,
                _ => return None,
            };
            Some(result.to_le_bytes())
        })
    };
}

/// Combines the values in `values` with those in `others`, place by place.
pub(super) fn combine(
    how: Combine,
    of: Primitive,
    values: &mut [u8],
    others: &[u8],
) -> Result<(), FmiError> {
    let done = match of {
        Primitive::Byte | Primitive::U8 => match (of, how) {
            (Primitive::U8, _) | (_, Combine::BitAnd | Combine::BitOr | Combine::BitXor) => {
                integers!(u8, how, values, others)
            }
            _ => None,
        },
        Primitive::I8 => integers!(i8, how, values, others),
        Primitive::I16 => integers!(i16, how, values, others),
        Primitive::I32 => integers!(i32, how, values, others),
        Primitive::I64 => integers!(i64, how, values, others),
        Primitive::U16 => integers!(u16, how, values, others),
        Primitive::U32 => integers!(u32, how, values, others),
        Primitive::U64 => integers!(u64, how, values, others),
        Primitive::F32 => floats!(f32, how, values, others),
        Primitive::F64 => floats!(f64, how, values, others),
    };
    done.ok_or_else(|| FmiError::Invalid(format!("values of type {of:?} have no {how:?}")))
}

fn each<const N: usize>(
    values: &mut [u8],
    others: &[u8],
    combine: impl Fn([u8; N], [u8; N]) -> Option<[u8; N]>,
) -> Option<()> {
    for (mine, other) in values.chunks_exact_mut(N).zip(others.chunks_exact(N)) {
        let result = combine(crate::frame::array(mine), crate::frame::array(other))?;
        mine.copy_from_slice(&result);
    }
    Some(())
}

/// Where the values of a type are, from the address of one of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    of: Primitive,
    /// Offset and length in bytes, in the order of the message.
    blocks: Vec<(usize, usize)>,
    /// From one value of the type to the next.
    extent: usize,
}

impl Layout {
    /// One value.
    pub fn of(primitive: Primitive) -> Self {
        let bytes = primitive.bytes();
        Self { of: primitive, blocks: vec![(0, bytes)], extent: bytes }
    }

    /// `count` blocks of `len` values of this type; from the start of one to that of the next are
    /// `stride` values. Takes time only for the pieces that it has.
    ///
    /// # Errors
    /// [`FmiError::Full`]: more than [`limits::LAYOUT_BLOCKS_MAX`] pieces, or more than memory.
    pub fn vector(&self, count: usize, len: usize, stride: usize) -> Result<Self, FmiError> {
        let max = limits::LAYOUT_BLOCKS_MAX;
        let full = || FmiError::Full(format!("a type of more than {max} pieces of memory"));
        let values = match count {
            0 => Some(0),
            count => (count - 1).checked_mul(stride).and_then(|rows| rows.checked_add(len)),
        };
        let extent = values.and_then(|values| values.checked_mul(self.extent)).ok_or_else(full)?;
        let blocks = match count.checked_mul(len).ok_or_else(full)? {
            0 => Vec::new(),
            _ if self.blocks.is_empty() => Vec::new(),
            values if self.is_dense() && (count == 1 || stride == len) => {
                vec![(0, values.checked_mul(self.extent).ok_or_else(full)?)]
            }
            // A row is one piece.
            _ if self.is_dense() => {
                let row = Self { blocks: vec![(0, len * self.extent)], ..self.clone() };
                row.placed((count, 1, stride)).ok_or_else(full)?
            }
            _ => self.placed((count, len, stride)).ok_or_else(full)?,
        };
        let bytes = blocks.iter().try_fold(0_usize, |sum, (_, bytes)| sum.checked_add(*bytes));
        // What `usize` holds and no address reaches.
        let fits = |bytes: usize| isize::try_from(bytes).is_ok();
        if !fits(extent) || !bytes.is_some_and(fits) {
            return Err(full());
        }
        Ok(Self { of: self.of, blocks, extent })
    }

    /// The blocks of a vector of this; `None`: they are too many, or beyond memory.
    fn placed(&self, (count, len, stride): (usize, usize, usize)) -> Option<Vec<(usize, usize)>> {
        let max = limits::LAYOUT_BLOCKS_MAX;
        // Neighbours that touch become one, so half of them may be left.
        let all = count.checked_mul(len)?.checked_mul(self.blocks.len())?;
        let mut blocks: Vec<(usize, usize)> = Vec::new();
        if all > 2 * max {
            return None;
        }
        for (row, at) in (0..count).flat_map(|row| (0..len).map(move |at| (row, at))) {
            let start = row.checked_mul(stride)?.checked_add(at)?.checked_mul(self.extent)?;
            for (offset, bytes) in &self.blocks {
                let at = start.checked_add(*offset)?;
                at.checked_add(*bytes)?;
                match blocks.last_mut() {
                    Some((last, len)) if *last + *len == at => *len += bytes,
                    _ => blocks.push((at, *bytes)),
                }
            }
        }
        (blocks.len() <= max).then_some(blocks)
    }

    /// Whether values of it one after the other are one piece.
    fn is_dense(&self) -> bool {
        self.blocks.len() == 1 && self.blocks[0] == (0, self.extent)
    }

    /// What it is made of.
    pub fn primitive(&self) -> Primitive {
        self.of
    }

    /// Bytes of one of it in a message.
    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(|(_, bytes)| bytes).sum()
    }

    /// From one of it to the next, in bytes.
    pub fn extent(&self) -> usize {
        self.extent
    }

    /// The pieces of memory of `count` of it: offset and length, in the order of the message.
    pub fn pieces(&self, count: usize) -> impl Iterator<Item = (usize, usize)> {
        let is_dense = self.is_dense();
        let all = self.extent.saturating_mul(count);
        let whole = is_dense.then_some((0, all)).filter(|_| count > 0);
        let rows = if is_dense || self.blocks.is_empty() { 0 } else { count };
        let each = (0..rows).flat_map(|at| {
            let from = at.saturating_mul(self.extent);
            let place = move |offset: usize| from.saturating_add(offset);
            self.blocks.iter().map(move |(offset, bytes)| (place(*offset), *bytes))
        });
        whole.into_iter().chain(each)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn combined<const N: usize>(
        how: Combine,
        of: Primitive,
        a: [u8; N],
        b: [u8; N],
    ) -> Result<[u8; N], FmiError> {
        let mut values = a;
        combine(how, of, &mut values, &b).map(|()| values)
    }

    #[test]
    fn values_are_combined_as_their_type_says() {
        let i32s = |how, a: i32, b: i32| {
            let done = combined(how, Primitive::I32, a.to_le_bytes(), b.to_le_bytes());
            i32::from_le_bytes(done.unwrap())
        };
        assert_eq!(i32s(Combine::Sum, i32::MAX, 1), i32::MIN);
        assert_eq!(i32s(Combine::Product, -3, 4), -12);
        assert_eq!(i32s(Combine::Min, -3, 4), -3);
        assert_eq!(i32s(Combine::Max, -3, 4), 4);
        assert_eq!(i32s(Combine::And, 2, 0), 0);
        assert_eq!(i32s(Combine::Or, 2, 0), 1);
        assert_eq!(i32s(Combine::BitXor, 6, 3), 5);
        let f64s = |how, a: f64, b: f64| {
            let done = combined(how, Primitive::F64, a.to_le_bytes(), b.to_le_bytes());
            done.map(f64::from_le_bytes)
        };
        assert_eq!(f64s(Combine::Sum, 0.1, 0.2).unwrap().to_bits(), (0.1 + 0.2_f64).to_bits());
        assert_eq!(f64s(Combine::Max, f64::NEG_INFINITY, -1.0).unwrap(), -1.0);
        assert!(f64s(Combine::BitAnd, 1.0, 1.0).is_err());
        assert!(combined(Combine::Sum, Primitive::Byte, [1], [1]).is_err());
        assert_eq!(combined(Combine::BitOr, Primitive::Byte, [1], [2]).unwrap(), [3]);
    }

    /// The faces of a block of 3 x 4 x 5 numbers, as Himeno's benchmark describes them.
    #[test]
    fn a_vector_names_its_pieces_in_order_and_joins_neighbours() {
        let number = Layout::of(Primitive::F32);
        let face = number.vector(12, 1, 5).unwrap();
        let pieces: Vec<_> = face.pieces(1).collect();
        assert_eq!((pieces.len(), pieces[1], face.bytes()), (12, (20, 4), 48));
        let rows = number.vector(3, 5, 20).unwrap();
        assert_eq!(rows.pieces(1).collect::<Vec<_>>(), [(0, 20), (80, 20), (160, 20)]);
        let plane = number.vector(4, 5, 5).unwrap();
        assert_eq!(plane.pieces(2).collect::<Vec<_>>(), [(0, 160)]);
        let two = face.pieces(2).skip(12).map(|(at, _)| at).next();
        assert_eq!((face.extent(), two), (56 * 4, Some(56 * 4)));
        let nested = rows.vector(2, 1, 2).unwrap();
        assert_eq!(
            nested.pieces(1).map(|(at, _)| at).collect::<Vec<_>>(),
            [0, 80, 160, 360, 440, 520]
        );
    }

    #[test]
    fn a_type_without_values_or_with_too_many_pieces_has_an_answer() {
        let number = Layout::of(Primitive::U8);
        let none = number.vector(0, 3, 4).unwrap();
        assert_eq!((none.bytes(), none.extent(), none.pieces(3).count()), (0, 0, 0));
        assert_eq!(number.pieces(0).count(), 0);
        assert!(number.vector(limits::LAYOUT_BLOCKS_MAX + 1, 1, 2).is_err());
        assert!(number.vector(2, 1, usize::MAX).is_err());
    }

    /// Numbers that C may pass: a loop over their product would run for years.
    #[test]
    fn the_largest_numbers_of_c_have_an_answer_at_once() {
        let (number, most) = (Layout::of(Primitive::U8), i32::MAX as usize);
        let dense = number.vector(most, most, most).unwrap();
        assert_eq!((dense.bytes(), dense.pieces(1).count()), (most * most, 1));
        assert_eq!(dense.pieces(most).collect::<Vec<_>>(), [(0, usize::MAX)], "it is cut");
        assert!(dense.vector(4, 1, 1).is_err(), "beyond memory");
        assert!(dense.vector(8, 1, 0).is_err(), "as a message");
        let none = number.vector(most, 0, 1).unwrap();
        let nested = none.vector(most, most, 1).unwrap();
        assert_eq!(
            (none.bytes(), none.pieces(most).count(), nested.pieces(most).count()),
            (0, 0, 0)
        );
        let rows = number.vector(4, most, most + 1).unwrap();
        assert_eq!(rows.pieces(1).nth(3), Some((3 * (most + 1), most)));
        assert!(number.vector(most, most, most + 1).is_err(), "pieces without number");
        assert!(rows.vector(most, most, most).is_err());
        assert_eq!(rows.pieces(most).nth(5), Some((rows.extent() + most + 1, most)));
    }
}
